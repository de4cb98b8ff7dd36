"""Nothing is lost: kills, interrupts, several processes and threads, a full disk, an encoder that breaks."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from foveate import Store
from foveate.core.errors import EncoderOutputError, StoreDamagedError
from foveate.encoders.protocol import DenseFeatures
from foveate.reading import Word
from foveate.store import hits, ingest, nearest, writing
from foveate.store.upgrade import copy_store
from tests import store_crash
from tests.store_crash import Pace, contents
from tests.store_toys import Planes, Toy, mine, picture, pictures

IMAGES = 6


@pytest.mark.crash
def test_kills_lose_nothing_that_was_reported_as_committed(quick: Path) -> None:
    store_crash.kill(quick, times=3, seed=1, images=24, pace=Pace(image=0.05))


@pytest.mark.crash
def test_two_processes_that_begin_at_once_make_the_store_of_one(quick: Path) -> None:
    store_crash.race(quick, times=1, processes=2, images=24, pace=Pace(image=0.05, read=True))


FULL = """
import resource, sys
from foveate import Store
from foveate.core.errors import OutputError
from foveate.store import hits, ingest, nearest, reader, writing
from foveate.store.upgrade import copy_store
from tests.store_toys import Toy
store = Store(sys.argv[2], encoder=Toy())
ingest.COMMIT_IMAGES = 4
for most in map(int, sys.argv[3:]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    try:
        store.add(sys.argv[1])
    except OutputError as error:
        print(error.received)
"""


@pytest.mark.slow
def test_a_full_disk_loses_nothing(quick: Path) -> None:
    """Files may have so many bytes and no more: of a manifest, and of a fragment's data."""
    folder, path = pictures(quick / "photos", 10), quick / "s.fov"
    store = Store(path, encoder=Toy())
    store.add([folder / "001.png", folder / "002.png"])
    right = contents(path)
    command = [sys.executable, "-c", FULL, str(folder), str(path), "25000", "3000", "100"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert run.stdout.count("could not be written to") == 3, run.stderr
    assert contents(path) == right
    assert store.add(folder).added == 8
    assert len(contents(path)) == 10


class Breaking(Toy):
    """An encoder that breaks at its eleventh image; a new store takes a sample before the first."""

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        dense = super().encode_image(rgb, long_side=long_side)
        seen.append(1)
        if len(seen) > 10:
            dense.features[0, 0, 0] = np.nan
        return dense


seen: list[int] = []


def test_what_is_ready_is_kept_when_the_encoder_breaks(quick: Path) -> None:
    seen.clear()
    store = Store(quick / "s.fov", encoder=Breaking())
    with pytest.raises(EncoderOutputError, match="NaN"):
        store.add(pictures(quick / "photos", 8))
    assert 1 <= len(store) <= 3
    assert store.verify().ok


def test_an_interrupt_commits_what_is_ready(quick: Path) -> None:
    store = Store(quick / "s.fov", encoder=Toy())

    def interrupt(progress: ingest.Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(pictures(quick / "photos", 8), progress=interrupt)
    assert len(store) == 3
    again = store.add(quick / "photos")
    assert (again.known, again.added) == (3, 5)


def test_progress_says_what_is_safe(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "COMMIT_IMAGES", 3)
    store, seen = Store(quick / "s.fov", encoder=Toy()), list[tuple[int, int]]()
    other = Store(quick / "s.fov", encoder=Toy())

    def look(progress: ingest.Progress) -> None:
        seen.append((progress.committed, 0 if other.identity is None else len(other)))

    assert store.add(pictures(quick / "photos", 8), progress=look).commits == 3
    assert all(committed == there for committed, there in seen)
    assert {committed for committed, _ in seen} == {0, 3, 6, 8}


def test_pages_are_committed_while_a_slow_one_is_read(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill then loses the pages that are being read, and no other."""
    monkeypatch.setattr(ingest, "COMMIT_SECONDS", 0.0)
    begun, committed = threading.Event(), threading.Event()

    def read(rgb: np.ndarray) -> list[Word]:
        if rgb.shape[1] == 36 and not begun.is_set():  # the first picture; another size is the reader's own check
            begun.set()
            assert committed.wait(60)
        return mine(rgb)

    def progress(step: ingest.Progress) -> None:
        if step.committed == 7:
            committed.set()

    added = Store(quick / "s.fov", encoder=Toy()).add(
        pictures(quick / "photos", 8), read=read, workers=2, progress=progress
    )
    assert (added.read, committed.is_set()) == (8, True)


def test_readers_see_what_a_writer_adds(quick: Path) -> None:
    writer = Store(quick / "s.fov", encoder=Toy())
    writer.add(pictures(quick / "photos", IMAGES))
    reader, wrong, stop = Store(writer.path, encoder=Toy(), cache=0), list[BaseException](), threading.Event()
    right = {name: writer[name].embedding.tobytes() for name in writer}

    def read() -> None:
        try:
            while not stop.is_set():
                for name, content in right.items():
                    assert reader[name].embedding.tobytes() == content
                assert len(reader.search("a dog", 100)) >= IMAGES
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for first in range(100, 112, 4):
        writer.add(pictures(quick / f"more{first}", 4, first))
        writer.tag(writer.keys()[-1], [str(first)])
        writer.compact(timedelta(minutes=1))
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(reader) == len(reader.search("a dog", 100)) == IMAGES + 12
    assert reader.page(where="tag = '108'").total == 1


def test_writers_in_threads_and_tags_at_once(quick: Path) -> None:
    folder, path = pictures(quick / "photos", 24), quick / "s.fov"
    Store(path, encoder=Toy()).add(folder / "001.png")
    wrong = list[BaseException]()

    def work(number: int) -> None:
        try:
            store = Store(path, encoder=Toy())
            store.add(folder, workers=2)
            store.tag(store.keys()[number], [f"by {number}"])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(contents(path)) == 24
    assert all(Store(path, encoder=Toy()).page(where=f"tag = 'by {number}'").total == 1 for number in range(3))


def test_a_file_that_changes_while_it_is_indexed(quick: Path) -> None:
    """Its row says what was read; the next call reads it again."""
    folder = pictures(quick / "photos", 3)

    class Writing(Toy):
        def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
            (folder / "001.png").write_bytes(picture(50))
            return super().encode_image(rgb, long_side=long_side)

    store = Store(quick / "s.fov", encoder=Writing())
    store.add(folder)
    again = Store(store.path, encoder=Toy()).add(folder)
    right = Store(quick / "right.fov", encoder=Toy())
    right.add(folder)
    assert again.added <= 1
    assert contents(Path(store.path)) == contents(Path(right.path))
    assert replace(again, added=0).bad == ()


# --- what the store holds, and what is asked --------------------------------------------------------------------------


@pytest.mark.parametrize("indexed", [False, True])
def test_a_condition_comes_before_the_most_that_are_taken(
    quick: Path, indexed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(quick / "s.fov", encoder=Toy())
    store.add(pictures(quick / "photos", 8), read=mine)
    assert writing.index_words(store.dataset, 0 if indexed else 99) is indexed
    for name in ("MOST", "COMMON", "HAVING"):
        monkeypatch.setattr(hits if name == "HAVING" else writing, name, 2)
    every = {hit.name: hit.score for hit in store.search('"colour"', 9)}
    for query in ('"colour"', '"color"', "a dog colour"):
        assert [hit.name for hit in store.search(query, where="name LIKE '%7.png'")] == ["007.png"], query
    (hit,) = store.search('"colour"', where="name = '001.png'")
    assert hit.score == every["001.png"]


def test_images_like_one_where_the_index_is_damaged(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearest, "LIMIT", 1)
    store = Store(quick / "s.fov", encoder=Planes())
    store.add(pictures(quick / "photos", IMAGES))
    nearest.extend(store.dataset, 24, 1)
    other = Store(shutil.copytree(store.path, quick / "t.fov"), encoder=Planes())
    for file in Path(store.path, nearest.FOLDER, "data").iterdir():
        file.write_bytes(b"\0" * 100)
    assert store.search(store["001.png"], 1)[0].name == "001.png"
    other.remove("002.png")
    for file in Path(other.path, "_deletions").iterdir():
        file.write_bytes(b"junk")
    with pytest.raises(StoreDamagedError):
        Store(other.path, encoder=Planes()).search("a dog")


def test_damage_is_not_laid_to_a_condition(quick: Path) -> None:
    store = Store(quick / "s.fov", encoder=Toy())
    store.add(pictures(quick / "photos", IMAGES))
    store.tag(["001.png"], ["dog"])
    for file in Path(store.path, "data").iterdir():
        content = file.read_bytes()
        assert content.count(b".PageLayout") > 1
        file.write_bytes(content.replace(b".PageLayout", b".PageLayouT"))
    for where in ("tag = 'dog'", "width > 1"):
        with pytest.raises(StoreDamagedError, match="PageLayouT"):
            Store(store.path, encoder=Toy()).page(where=where)


def test_a_shard_whose_head_lacks_something_is_named(quick: Path) -> None:
    shutil.copytree(Path(__file__).parent / "golden" / "store-v4.fov" / "store", quick / "old.fov")
    for path in (quick / "old.fov" / "shards").iterdir():
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        head = json.loads(content[8 : 8 + length])
        said = json.loads(head["__metadata__"]["foveate"])
        del said["replaces"]
        head["__metadata__"]["foveate"] = json.dumps(said)
        made = json.dumps(head).encode()
        path.write_bytes(len(made).to_bytes(8, "little") + made + content[8 + length :])
    with pytest.raises(StoreDamagedError, match="replaces"):
        copy_store(quick / "old.fov", quick / "new.fov")
