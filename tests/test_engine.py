"""Engines: the same batches and results in the same order; what happens when workers fail. One Ray for the module."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil  # type: ignore[import-untyped]
import pytest
import ray as library
from typer.testing import CliRunner

from foveate import Store
from foveate.cli.main import app
from foveate.core.errors import EncoderOutputError, EngineError, MissingExtraError, OptionError
from foveate.store import engine
from foveate.store.engine import ATTEMPTS, Engine, Local, Ray, Work, engine_named
from foveate.store.ingest import Progress
from foveate.store.sources import Source
from tests.engine_work import doubled, dying
from tests.store_crash import contents
from tests.store_toys import Toy, mine, pictures

pytestmark = [  # Ray's own: of its settings, and of processes that it leaves to end by themselves
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def ray() -> Iterator[Engine]:
    """Two workers of half a core on a Ray that outlives single jobs, as on a cluster; foveate starts and ends it."""
    engine = Ray(2, cpus=0.5, address="local")  # another run's may be there
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # Ray's 15 gives its workers what the other tests leave
        with engine._joined():
            yield engine
    assert not library.is_initialized()


@pytest.fixture
def lone(ray: Engine) -> Engine:
    """One worker, where it does not take two to show it: each is a process that imports everything anew."""
    return replace(cast(Ray, ray), workers=1)


def joined(pieces: Iterator[list[Any]]) -> list[Any]:
    return [item for piece in pieces for item in piece]


def processes(title: str) -> list[int]:
    """Ids of processes below this one that are called so; another run of these tests has its own."""
    below = [child.as_dict(["pid", "cmdline"]) for child in psutil.Process().children(recursive=True)]
    return sorted(child["pid"] for child in below if " ".join(child["cmdline"] or ()).startswith(title))


@pytest.mark.ray
def test_the_same_batches_in_the_same_order_though_a_worker_is_killed(ray: Engine) -> None:
    items = ["/photos/\udcff\udcfe.jpg", "/photos/写真.jpg", "", "d"] * 25  # not every name is Unicode

    def killing(pieces: Iterator[list[Any]]) -> Iterator[list[Any]]:
        yield next(pieces)
        os.kill(processes("ray::MapWorker")[0], signal.SIGKILL)
        yield from pieces

    here = joined(Local().map(doubled, items, 8))
    assert here == joined(killing(ray.map(partial(doubled, slow=0.05), items, 8)))
    assert here == [(item, 2 * item, 8 if place < 96 else 4) for place, item in enumerate(items)]
    assert list(ray.map(doubled, [], 8)) == []


@pytest.mark.ray
def test_an_error_of_the_work_is_the_error_of_the_job(lone: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its type where it is ours; another's in one line; texts that are not Unicode travel too."""
    ours = EncoderOutputError("'\udcff.jpg' of 2", expected="1", fix="divide")
    with pytest.raises(EncoderOutputError, match="jpg' of 2"):
        joined(lone.map(partial(doubled, bad=11, error=ours), range(20), 4))
    other = ValueError("first line\n'\udcff.jpg', the very reason")
    with pytest.raises(EngineError, match="jpg', the very reason"):
        joined(lone.map(partial(doubled, bad=3, error=other), range(4), 4))
    monkeypatch.setattr("foveate.store.engine.__version__", "0.0.1")  # here; a worker has its own
    with pytest.raises(EngineError, match=r"a worker with foveate .*, asked by foveate 0\.0\.1"):
        joined(lone.map(doubled, range(3), 2))


@pytest.mark.ray
def test_a_batch_that_kills_its_worker_ends_the_job(lone: Engine, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"Ray's workers failed.* of 8 files are done"):
        joined(lone.map(partial(dying, deaths=tmp_path / "deaths"), range(8), 2))
    assert len((tmp_path / "deaths").read_text()) == ATTEMPTS


@pytest.mark.ray
def test_a_store_whose_worker_was_killed_is_the_local_one(ray: Engine, tmp_path: Path) -> None:
    folder = pictures(tmp_path / "photos", 100)
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    (folder / "same as 7.png").write_bytes((folder / "007.png").read_bytes())
    os.rename(folder / "011.png", os.fsencode(folder) + b"/\xff011.png")
    here, there = (Store(tmp_path / f"{name}.fov", encoder=Toy()) for name in ("here", "there"))
    killed: list[int] = []

    def kill(progress: Progress) -> None:
        if progress.done >= 16 and not killed:
            killed.append(processes("ray::MapWorker")[0])
            os.kill(killed[0], signal.SIGKILL)

    one = here.add(folder, read=mine)
    other = there.add(folder, engine=ray, progress=kill, read=mine)
    assert len(killed) == 1
    assert (one.added, one.read, one.linked, len(one.bad)) == (100, 100, 1, 1)
    assert (other.added, other.read, other.linked, other.bad) == (one.added, one.read, one.linked, one.bad)
    assert contents(Path(here.path)) == contents(Path(there.path))
    assert there.verify().ok
    os.remove(folder / "broken.jpg")
    again = there.add(folder, engine=ray, read=mine)  # nothing is left to do
    assert (again.added, again.known, again.linked, again.bad) == (0, 100, 1, ())


def test_an_engine_that_starts_slowly_makes_no_commit_of_one_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("foveate.store.ingest.time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Slow(Local):
        def map(self, work: Work, items: Sequence[Any], part: int) -> Iterator[list[Any]]:
            clock[0] += 60
            yield from super().map(work, items, part)

    added = Store(tmp_path / "s.fov", encoder=Toy()).add(pictures(tmp_path / "photos", 5), engine=Slow())
    assert (added.added, added.commits) == (5, 1)


def test_a_cluster_has_more_workers_than_a_machine_has_threads(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "photos", 3)
    store = Store(tmp_path / "s.fov", encoder=Toy())
    assert store.add(folder, workers=200, engine=Local()).added == 3
    with pytest.raises(OptionError, match="workers=200"):
        store.add(folder, workers=200)


def test_the_command_goes_by_its_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, asked = pictures(tmp_path / "photos", 3), []

    def here(self: Ray, work: Work, items: Sequence[Any], part: int) -> Iterator[list[Any]]:
        asked.append(self.workers)
        yield from Local().map(work, items, part)

    monkeypatch.setattr(Ray, "map", here)
    store = str(tmp_path / "p.fov")
    said = CliRunner().invoke(app, ["index", str(folder), "-o", store, "--engine", "ray", "--workers", "1"])
    assert said.exit_code == 0, said.output
    assert asked == [1]
    assert len(Store(store)) == 3


class Diskless:
    """Its worker has no such folder."""

    def map(self, work: Any, items: Any, part: int) -> Iterator[Any]:
        def there(some: list[Source]) -> list[Any]:
            hidden = [one if "gone" in one.path else replace(one, path=f"/elsewhere{one.path}") for one in some]
            return [(one, *row[1:]) for one, row in zip(some, work(hidden), strict=True)]

        return Local().map(there, items, part)


def test_a_worker_without_the_disk_is_no_bad_image(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "photos", 4)
    store = Store(tmp_path / "s.fov", encoder=Toy())
    with pytest.raises(EngineError, match=r"a worker cannot read '001\.png' .*can be read here"):
        store.add(folder, engine=Diskless())
    assert store.verify().ok
    (folder / "gone.png").symlink_to("nowhere.png")
    assert [Path(path).name for path, _ in store.add(folder / "gone.png", engine=Diskless()).bad] == ["gone.png"]


def test_parts_of_a_gpu_reach_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    class Data:
        """As much of Ray Data as `Ray.map` uses; the work is done here."""

        ActorPoolStrategy = SimpleNamespace

        def from_arrow(self, tables: list[Any]) -> Data:
            self.tables = tables
            return self

        def map_batches(self, worker: Any, **options: Any) -> Data:
            asked.append(options)
            self.work = worker(*options["fn_constructor_args"])
            return self

        def iter_batches(self, **_: Any) -> Iterator[Any]:
            for table in self.tables:
                for one in table["part"].to_pylist():
                    yield self.work({"part": [one]})

    def remote(**_: Any) -> Any:
        return lambda kind: SimpleNamespace(remote=kind)

    fake = SimpleNamespace(
        data=Data(), remote=remote, cloudpickle=pickle, cluster_resources=lambda: {"CPU": 16.0, "GPU": 2.0}
    )
    monkeypatch.setattr(Ray, "_joined", lambda self: contextlib.nullcontext(fake))
    monkeypatch.setattr(engine, "_settings", contextlib.nullcontext)
    monkeypatch.setattr(engine, "_sent", lambda ray, work: pickle.dumps(work))
    for gpus, workers in ((0.25, 8), (1, 2), (0, 16)):  # as many as fit
        assert [one[0] for one in joined(Ray(gpus=gpus).map(doubled, range(200), 2))] == list(range(200))
        assert asked[-1]["num_gpus"] == (gpus or None)  # Ray then shows each worker its own GPU only
        assert asked[-1]["compute"].size == workers


class Stuck(Toy):
    def __reduce__(self) -> Any:
        raise TypeError("an open session")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda ray: Ray(0), "workers=0"),
        (lambda ray: Ray(2, gpus=-1), "gpus=-1"),
        (lambda ray: Ray(2, gpus=1.5), "gpus=1.5"),
        (lambda ray: Ray(2, gpus=1e-6), "gpus=1e-06"),
        (lambda ray: Ray(2, cpus=float("nan")), "cpus=nan"),
        (lambda ray: engine_named("spark"), "'local' or 'ray'"),
        (lambda ray: joined(Ray(2, gpus=1).map(doubled, range(3), 2)), "Ray has 2 and 0"),
        (
            lambda ray: joined(ray.map(partial(doubled, error=cast(Any, Stuck())), range(3), 2)),
            "an open session",
        ),
    ],
)
@pytest.mark.ray
def test_bad_options(ray: Engine, make: Any, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        make(ray)


def test_an_address_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "is_initialized", lambda: False)
    engine = Ray(2, address="127.0.0.1:9")
    for ask in (engine.check, lambda: joined(engine.map(doubled, range(3), 2))):
        with pytest.raises(EngineError, match=r"no Ray at '127\.0\.0\.1:9'.*refused"):
            ask()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"foveate\[ray\]"):
        joined(Ray(2).map(doubled, range(3), 2))
