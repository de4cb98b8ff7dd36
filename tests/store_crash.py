"""Crashes, on purpose: a process that ends at its n-th write, for every n; and processes that are killed at any moment.

    python tests/store_crash.py nth                     some seconds; --every 3: at one write in three
    python tests/store_crash.py kill --times 50 --seed 0

Every child is a fork of this process, which has no threads. After each crash: every acknowledged texture is there and
bit-identical, `verify` finds nothing wrong, and the same job again completes. Readers run all the while and never fail.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from foveate.store.disk import Disk

from foveate import Store
from foveate.core.errors import StoreKeyError
from foveate.reading.words import Word
from foveate.store import ingest, maintenance
from foveate.store.texture import StoredTexture
from tests.store_toys import Toy, pictures

CRASHED = 99
GONE = ("001.png", "below/100.png")


class Counting(Disk):
    """Counts writes."""

    writes = 0

    def step(self, what: str, path: Path) -> None:
        self.writes += 1


class Crashing(Counting):
    """Ends the process at its n-th write; notes what was acknowledged before."""

    def __init__(self, at: int, notes: Path) -> None:
        self.at, self.notes = at, notes

    def step(self, what: str, path: Path) -> None:
        super().step(what, path)
        if what == "committed":
            store = Store(path.parent, encoder=Toy())
            with self.notes.open("a") as file:  # the first index is made before there is a store
                file.write("\n".join(store.keys() if store.identity else ()) + "\n")
        if self.writes == self.at:
            os._exit(CRASHED)


def mine(rgb: np.ndarray) -> list[Word]:
    """A reader: the colour of the first pixel."""
    return [Word("colour", (0, 0, 4, 9), 1.0, 0), Word(f"{rgb[0, 0]}", (5, 0, 9, 9), 0.5, 1)]


def written(path: Path) -> dict[str, str | None]:
    """What every image's words say, as its record and as the index has it."""
    store = Store(path, encoder=Toy(), cache=0)
    words = {name: store[name].words for name in store}
    found = {hit.name for hit in store.search('"colour"', 100)} if store.stats()["reader"] else set()
    assert found == {name for name, read in words.items() if read is not None}
    return {name: None if read is None else read.text for name, read in words.items()}


def small_shards() -> None:
    for module, name in ((ingest, "SHARD_IMAGES"), (maintenance, "SHARD_IMAGES"), (maintenance, "SMALL")):
        setattr(module, name, 2)


def forked(work: Callable[[], object]) -> int:
    """The exit status of a child that does this."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def numbers_of(texture: StoredTexture) -> str:
    parts = (texture.embedding, texture.residual, texture.basis.rows, texture.basis.mean, texture.planes["saliency"])
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def all_numbers(path: Path) -> dict[str, str]:
    store = Store(path, encoder=Toy(), cache=0)
    if store.identity is None:  # the crash came before there was a store
        return {}
    return {name: numbers_of(store[name]) for name in store}


def check(path: Path, right: dict[str, str], acknowledged: set[str]) -> set[str]:
    """What is there: all that was acknowledged, bit for bit, in a store that is whole. -> its names."""
    found = all_numbers(path)
    assert acknowledged <= set(found), f"lost: {acknowledged - set(found)}"
    assert all(right[name] == numbers for name, numbers in found.items())
    assert not found or Store(path, encoder=Toy()).verify().ok
    if found:
        assert Store(path, encoder=Toy()).search("a dog", 3)
    return set(found)


def every_nth(base: Path, every: int) -> int:
    """Add, read, remove, compact: each ended at every write. Two shards, the second not full. -> crashes."""
    small_shards()
    first, second = pictures(base / "a", 2), pictures(base / "b", 1, first=100)
    empty, ready, many, read = (base / f"{name}.fov" for name in ("empty", "ready", "many", "read"))
    Store(ready, encoder=Toy()).add([first, second])
    right, notes, crashes = all_numbers(ready), base / "notes", 0
    shutil.copytree(ready, many)
    Store(many, encoder=Toy()).remove(GONE[0])
    shutil.copytree(ready, read)
    image = first / "below" / "000.png"
    Store(read, encoder=Toy()).add(image, read=mine)
    said = written(read)
    assert sum(text is not None for text in said.values()) == 1
    jobs: dict[str, tuple[Path, Callable[[Store], object], set[str]]] = {
        "add": (empty, lambda s: s.add([first, second]), set(right)),
        "read": (ready, lambda s: s.add(image, read=mine), set(right)),
        "remove": (ready, lambda s: s.remove(GONE), set(right) - {*GONE}),
        "compact": (many, lambda s: s.compact(), set(right) - {GONE[0]}),
    }
    for name, (start, job, after) in jobs.items():
        before = set(all_numbers(start)) if start.exists() else set()
        for n in range(1, 1000, every):
            path = base / f"{name}-{n}.fov"
            if start.exists():
                shutil.copytree(start, path)
            notes.write_text("")
            status = forked(partial(job, Store(path, encoder=Toy(), disk=Crashing(n, notes))))
            if status == 0:
                break
            assert status == CRASHED, status
            crashes += 1
            acknowledged = before | set(notes.read_text().split("\n")) - {""}
            found = check(path, right, acknowledged & after if name == "remove" else acknowledged)
            if name == "remove":  # all of it or nothing
                assert found in (before, after)
            if name != "remove" or found == before:
                job(Store(path, encoder=Toy()))
            mended = Store(path, encoder=Toy())  # at its next writing
            mended.add(image, read=mine if name == "read" else None)
            seen = Store(path, encoder=Toy()).verify()
            assert seen.ok, (name, n, seen)
            assert not seen.notes, (name, n, seen)
            for index in ("as it is", "made again of the shards alone"):
                assert all_numbers(path) == {key: right[key] for key in after}, index
                assert name != "read" or written(path) == said, index
                (path / "index.sqlite").unlink()
            shutil.rmtree(path)
        print(f"{name}: the process ended at one in {every} of {n - 1} writes")
    return crashes


def killed(base: Path, times: int, seed: int) -> None:
    """SIGKILL at random moments of adding and compacting, while two processes read and search."""
    small_shards()
    rng = random.Random(seed)
    folder, path = pictures(base / "photos", 8), base / "killed.fov"
    Store(path, encoder=Toy()).add(folder)
    shutil.copytree(path, base / "right.fov")
    Store(base / "right.fov", encoder=Toy()).add(pictures(folder, 60))
    right = all_numbers(base / "right.fov")
    stop = base / "stop"
    readers = [os.fork() for _ in range(2)]
    if 0 in readers:
        read_until(stop, path, right)
    notes, acknowledged, complete = base / "notes", set(all_numbers(path)), 0
    for _ in range(times):
        notes.write_text("")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                store = Store(path, encoder=Toy(), disk=Crashing(0, notes))
                store.add(folder)
                store.compact()
                status = CRASHED
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        time.sleep(rng.random() * 0.3)
        os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (-signal.SIGKILL, CRASHED), status
        acknowledged |= set(notes.read_text().rpartition("\n")[0].split("\n")) - {""}
        check(path, right, acknowledged)
        if status == CRASHED:  # it was quicker: from the start again
            complete += 1
            assert all_numbers(path) == right
            Store(path, encoder=Toy()).remove(list(right)[3:])
            acknowledged = set(list(right)[:3])
    Store(path, encoder=Toy()).add(folder)
    assert all_numbers(path) == right
    stop.touch()
    for reader in readers:
        assert os.waitstatus_to_exitcode(os.waitpid(reader, 0)[1]) == 0, "a reader failed"
    print(f"{times} kills, seed {seed}: whole after each; {complete} of them came when the job was done")


def read_until(stop: Path, path: Path, right: dict[str, str]) -> None:
    """The life of a reader: never an error, never a wrong number."""
    status = 1
    try:
        store = Store(path, encoder=Toy(), cache=10_000)
        parent = os.getppid()
        while not stop.exists() and os.getppid() == parent:
            for name in store:
                try:
                    assert numbers_of(store[name]) == right[name]
                except StoreKeyError:  # removed meanwhile
                    continue
            assert store.search("a dog", 5)
            time.sleep(0.05)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("nth", "kill"))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    quick = Path("/dev/shm")  # flushing to a real disk takes its time, and shows nothing here
    with tempfile.TemporaryDirectory(dir=quick if quick.is_dir() else None) as folder:
        if given.what == "nth":
            print(every_nth(Path(folder), given.every), "crashes")
        else:
            killed(Path(folder), given.times, given.seed)
