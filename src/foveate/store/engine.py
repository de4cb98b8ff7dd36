"""Where batches of work are done: in this process, or on the workers of a Ray cluster.

Work is a pure function from some items to what is made of each; parts and their order do not depend on the engine.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_choice, check_int, check_number, keyword
from foveate.core.errors import EngineError, FoveateError, MissingExtraError, OptionError
from foveate.core.threads import map_in_order
from foveate.core.version import __version__

Work = Callable[[list[Any]], list[Any]]
ENGINES = ("local", "ray")
BLOCK = 4  # parts that Ray hands to a worker at once, at least; progress comes in blocks
BLOCKS = 4096  # about the most blocks: Ray takes 5 ms for each
AHEAD = 2  # blocks that wait at a worker; without a bound, results pile up where the reader is slow
ATTEMPTS = 3  # at a part whose worker dies
LEAST = 0.0001  # of a CPU or a GPU, that Ray can give to a worker
OBJECTS = 2**29  # bytes of shared memory for a Ray that is started here


class Engine(Protocol):
    def map(self, work: Work, items: Sequence[Any], part: int) -> Iterator[list[Any]]:
        """`work` on every `part` items; results in the order of the items. Raises what work raises, and EngineError."""


def parts_of(items: Sequence[Any], part: int) -> Iterator[list[Any]]:
    return (list(items[start : start + part]) for start in range(0, len(items), part))


@dataclass(frozen=True)
class Local:
    workers: int = 1
    ordered: bool = True  # results in the order of the items; else each as soon as it is there

    def map(self, work: Work, items: Sequence[Any], part: int) -> Iterator[list[Any]]:
        return map_in_order(work, parts_of(items, part), self.workers, ordered=self.ordered, many=len(items))


@dataclass(frozen=True)
class Ray:
    """Ray Data's `map_batches` with a pool of actors.

    Attributes:
        workers: actors; None is as many as fit: all CPUs by cpus, or all GPUs by gpus.
        cpus, gpus: that each of them takes; parts of one, too: 4 workers with gpus=0.25 share a GPU.
        address: of a cluster, "auto" for this machine's. None: RAY_ADDRESS of the environment, or else a Ray that is
            started here and stopped afterwards.
    """

    workers: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    address: str | None = None

    def __post_init__(self) -> None:
        fix = "Ray(workers=8, gpus=0.25), say"
        check_int("workers", 1 if self.workers is None else self.workers, fix=fix)
        check_number("cpus", self.cpus, LEAST, None, fix=fix)
        check_number("gpus", self.gpus, LEAST if self.gpus else 0, None, fix=fix)
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise OptionError(keyword("gpus", self.gpus), expected="a part of one, or a whole number of them", fix=fix)

    def map(self, work: Work, items: Sequence[Any], part: int) -> Iterator[list[Any]]:
        """Raises MissingExtraError without Ray, EngineError where workers keep dying."""
        if not items:
            return
        with self._joined() as ray, _settings(ray):
            import pyarrow

            parts = [ray.cloudpickle.dumps(some) for some in parts_of(items, part)]  # not all names are Unicode
            workers = self.workers or self._fitting(ray.cluster_resources())
            most = max(BLOCK, len(parts) // BLOCKS)
            blocks = list(parts_of(parts, min(most, max(1, math.ceil(len(parts) / (2 * AHEAD * workers))))))
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "`ray_remote_args` is deprecated")  # Ray has no other way yet
                done = ray.data.from_arrow([pyarrow.table({"part": block}) for block in blocks]).map_batches(
                    _Worker,
                    fn_constructor_args=(_sent(ray, work), __version__),
                    batch_size=1,
                    batch_format="numpy",
                    compute=ray.data.ActorPoolStrategy(
                        size=min(workers, len(blocks)), max_tasks_in_flight_per_actor=AHEAD
                    ),
                    num_cpus=self.cpus,
                    num_gpus=self.gpus or None,
                    max_task_retries=ATTEMPTS - 1,  # or Ray tries for ever
                )
            place = 0
            try:
                for few in done.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=1):
                    for content in few["made"]:
                        made = ray.cloudpickle.loads(content)
                        if isinstance(made, FoveateError):
                            raise made
                        place += len(made)
                        yield made
            except FoveateError:
                raise
            except Exception as cause:  # of Ray, and what Ray Data's own parts raise
                raise EngineError(
                    f"Ray's workers failed, and would again; {place} of {len(items)} files are done ({_line(cause)})",
                    expected=f"work that does not end its process {ATTEMPTS} times",
                    fix="what was done before is kept. If memory ran out, use fewer workers a machine; else one of the "
                    "next files is the cause: go through them without an engine. Ray's own account is in /tmp/ray",
                ) from cause

    @property
    def _address(self) -> str:
        return self.address or os.environ.get("RAY_ADDRESS") or "local"

    @contextlib.contextmanager
    def _joined(self) -> Iterator[Any]:
        """The module ray, connected. Raises MissingExtraError, EngineError, OptionError."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # or Ray sends statistics
        ray = _imported()
        theirs = ray.is_initialized()
        if not theirs:
            cpus = max(os.cpu_count() or 1, math.ceil((self.workers or 1) * self.cpus))
            here = {"num_cpus": cpus, "object_store_memory": OBJECTS, "include_dashboard": False}
            options = here if self._address == "local" else {}
            with _reaching(self._address):
                ray.init(address=self._address, logging_level=logging.ERROR, log_to_driver=False, **options)
        try:
            there = ray.cluster_resources()
            cpus, gpus = there.get("CPU", 0.0), there.get("GPU", 0.0)
            if cpus < self.cpus or gpus < self.gpus:  # Ray would wait for ever
                raise OptionError(
                    f"workers with {self.cpus:g} CPUs and {self.gpus:g} GPUs each; Ray has {cpus:g} and {gpus:g}",
                    expected="room for one of them at least",
                    fix="leave out --gpus, or ask for less; or start the cluster's machines first",
                )
            yield ray
        finally:
            if not theirs:
                ray.shutdown()

    def check(self) -> None:
        """What can be known before anything else is done. Raises MissingExtraError, EngineError, OptionError."""
        _imported()
        if self._address != "local":
            with _reaching(self._address):
                pass
        elif self.gpus:
            with self._joined():  # seconds, but a mistake that would show after minutes
                pass

    def _fitting(self, there: Mapping[str, float]) -> int:
        by_cpus = there.get("CPU", 0.0) / self.cpus
        return max(1, int(min(by_cpus, there.get("GPU", 0.0) / self.gpus) if self.gpus else by_cpus))


@contextlib.contextmanager
def _reaching(address: str) -> Iterator[None]:
    """Raises EngineError if no Ray answers there (Ray itself would try for minutes), or if joining fails."""
    host, _, port = address.rpartition("//")[2].rpartition(":")
    try:
        if host:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        yield
    except Exception as cause:
        raise EngineError(
            f"no Ray at '{address}' ({_line(cause)})",
            expected="the address of a running cluster, 'auto' on one of its machines, or none to start one here",
            fix="check it with `ray status`; leave the address out to work on this machine",
        ) from cause


def engine_named(
    name: str, workers: int | None = None, cpus: float = 1.0, gpus: float = 0.0, address: str | None = None
) -> Engine:
    """An engine by its name, as commands have it. Raises OptionError."""
    check_choice("engine", name, ENGINES, fix="leave it out to work on this machine")
    return Ray(workers, cpus, gpus, address) if name == "ray" else Local(workers or 1)


class _Worker:
    """Parts and results travel as Ray's own bytes: as columns they lose odd names and the types of errors."""

    def __init__(self, work: bytes, release: str) -> None:
        self.ray = _imported()
        self.work, self.release = self.ray.cloudpickle.loads(work), release

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        made: list[Any] | FoveateError
        try:
            if self.release != __version__:
                raise EngineError(
                    f"a worker with foveate {__version__}, asked by foveate {self.release}",
                    expected="the same release everywhere: another one may give other numbers",
                    fix=f"pip install foveate=={self.release} on every machine of the cluster",
                )
            made = self.work(self.ray.cloudpickle.loads(batch["part"][0]))
        except FoveateError as error:
            made = error
        except Exception as error:
            made = EngineError(f"a worker failed ({_line(error)})", expected="work without an error", fix="report this")
        return {"made": np.array([self.ray.cloudpickle.dumps(made)], object)}


def _imported() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as cause:
        raise MissingExtraError(
            f"the engine 'ray' needs Ray Data ({cause})",
            expected="the extra [ray]",
            fix="pip install 'foveate[ray]'; or leave the engine out: several machines may index into one store",
        ) from cause
    return ray


@contextlib.contextmanager
def _settings(ray: Any) -> Iterator[None]:
    """Ray Data's settings for one job: results in order, no bars, no logs."""
    context, log = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    options = context.execution_options
    before = context.enable_progress_bars, options.preserve_order, log.level
    context.enable_progress_bars, options.preserve_order = False, True
    log.setLevel(logging.CRITICAL)  # what goes wrong is raised
    try:
        yield
    finally:
        context.enable_progress_bars, options.preserve_order = before[:2]
        log.setLevel(before[2])


def _sent(ray: Any, work: Work) -> bytes:
    try:
        content: bytes = ray.cloudpickle.dumps(work)
        return content
    except Exception as cause:
        raise OptionError(
            f"an encoder that cannot be sent to a worker ({_line(cause)})",
            expected="the name of an encoder, which each worker loads itself, or an object that can be pickled",
            fix='pass a name: "nano", or "clip:openai/clip-vit-base-patch16"',
        ) from cause


def _line(error: BaseException) -> str:
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {said[-1] if said else ''}"[:300]
