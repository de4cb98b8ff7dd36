"""Datasets whose bytes were changed, each used in a process of its own.

    python tests/store_hostile.py --times 300 --seed 0

A process must end by itself; what it shows is what was stored, or an error of ours; its memory is bounded.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import lance

from foveate import Store
from foveate.core.errors import FoveateError
from tests.store_crash import numbers_of
from tests.store_toys import Toy, mine, pictures, quick_folder

MOST = 700 * 2**20  # bytes of memory that a store of a few small pictures may take; an empty process has 300
SECONDS = 60  # for all of them, on a machine that does other things
QUESTIONS = ("a dog", '"colour"')
KINDS = ("flip", "flip", "bytes", "cut", "huge", "zero", "swap", "mix", "gone", "longer")
Known = dict[str, Any]


def make(path: Path, folder: Path, first: int) -> Known:
    """A store with fragments, deletions, tags, an index of words and versions. -> all that it may ever show."""
    store = Store(path, encoder=Toy(), cache=0)
    store.add(pictures(folder, 4, first), read=mine)
    store.add(pictures(folder, 7, first), read=mine)
    store.tag(store.keys()[1], ["x"])
    known = told(store)
    store.remove(store.keys()[2])
    store.add(pictures(folder, 9, first), read=mine)
    return {name: known.get(name, {}) | one for name, one in told(store).items()}


def told(store: Store) -> Known:
    images = store.page(0, 1000).images
    names = {image.id: (image.name, image.path, image.height, image.width) for image in images}
    textures = {image.id: numbers_of(store[image.path]) for image in images}
    thumbnails = {image.id: store[image.path].thumbnail for image in images}
    scores = {(q, hit.id): (hit.score, hit.path, hit.name) for q in QUESTIONS for hit in store.search(q, 1000)}
    words = {image.id: image.words for image in images}
    return {"names": names, "textures": textures, "thumbnails": thumbnails, "scores": scores, "words": words}


def use(path: Path, right: Known) -> int:
    """What people do with a store. -> how many of it all were refused. Raises AssertionError for a changed byte."""

    def look() -> None:
        for image in opened.page(0, 1000).images:
            assert right["names"][image.id] == (image.name, image.path, image.height, image.width)
            assert right["words"][image.id] == image.words
        assert len(opened.keys()) <= 1000

    def search() -> None:
        for question in QUESTIONS:
            for hit in opened.search(question, 20):
                assert right["scores"][question, hit.id] == (hit.score, hit.path, hit.name)

    def read() -> None:
        for key in right["names"]:
            try:
                texture = opened[key]
            except FoveateError:
                continue
            assert numbers_of(texture) == right["textures"][key]
            assert texture.thumbnail == right["thumbnails"][key]

    def verify() -> None:
        if opened.verify().ok:
            for job in (look, search, read):
                job()

    def change() -> None:
        opened.tag(opened.keys()[:1], ["y"])
        opened.compact(timedelta(0))
        read()

    refused = 0
    jobs: tuple[Callable[[], object], ...] = (
        look, search, read, verify, opened_stats(lambda: opened), lambda: opened.versions(), change,
    )  # fmt: skip
    try:
        opened = Store(path, encoder=Toy(), cache=0)
    except FoveateError:
        return len(jobs)
    for job in jobs:
        try:
            job()
        except FoveateError:
            refused += 1
    return refused


def opened_stats(store: Callable[[], Store]) -> Callable[[], object]:
    return lambda: (store().stats(), repr(store()), len(store()), store().identity)


def mutate(path: Path, other: Path, rng: random.Random) -> str:
    """Change one file of a dataset. -> what was done."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file()]
    kinds = sorted({file.parent.relative_to(path).parts[0] for file in files})
    manifest = min(path.glob("_versions/*.manifest"))
    kind = rng.choice(["_versions", "data", "data", *kinds])
    file = manifest if kind == "_versions" and rng.random() < 0.8 else rng.choice([f for f in files if kind in f.parts])
    content, how = bytearray(file.read_bytes()), rng.choice(KINDS)
    if how == "gone" or not content:
        file.unlink()
    elif how in ("swap", "mix"):
        of = path if how == "mix" else other
        same = [f for f in sorted(of.rglob("*")) if f.suffix == file.suffix and f.is_file() and f != file]
        shutil.copy(rng.choice(same), file) if same else file.unlink()
    else:
        for _ in range(rng.choice((1, 1, 3, 20)) if how in ("flip", "bytes", "huge") else 1):
            place = rng.choice((rng.randrange(len(content)), max(0, len(content) - 1 - rng.randrange(200))))
            if how == "flip":
                content[place] ^= 1 << rng.randrange(8)
            elif how == "bytes":
                content[place] = rng.randrange(256)
            elif how == "huge":
                size = min(rng.choice((2, 4, 8)), len(content) - place)
                content[place : place + size] = (b"\xff" * 7 + b"\x7f")[-size:]
            elif how == "zero":
                content[place : place + 64] = bytes(len(content[place : place + 64]))
            elif how == "cut":
                del content[place:]
            else:
                content += content[place:]
        file.write_bytes(content)
    return f"{how} {file.relative_to(path)}"


def in_a_child(work: Callable[[], int]) -> tuple[int, str]:
    """What `work` gave in a fork of this process, which has used nothing of Lance yet; below 0 where it died."""
    with tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            status = 200
            try:
                os.dup2(errors.fileno(), 2)
                resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
                status = work()
                if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MOST:
                    status = 201
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        errors.seek(0)
        return status, errors.read()[-3000:]


def run(base: Path, times: int, seed: int) -> Iterator[tuple[str, int, str]]:
    """What was changed, how much was refused (200: an assertion, or another error; below 0: it died), and why."""
    subprocess.run([sys.executable, __file__, "--make", base], check=True)
    right: Known = eval((base / "right").read_text())
    one, other = base / "one.fov", base / "other.fov"
    status, why = in_a_child(lambda: use(Path(shutil.copytree(one, base / "whole.fov")), right))
    yield "nothing", status, why
    for number in range(times):
        rng = random.Random(f"{seed} {number}")
        path = Path(shutil.copytree(one, base / "m.fov"))
        what = mutate(path, other, rng)
        status, why = in_a_child(partial(use, path, right))
        yield f"{number}: {what}", status, why
        shutil.rmtree(path)


def prepare(base: Path) -> None:
    one, other = (make(base / f"{n}.fov", base / n, first) for n, first in (("one", 0), ("other", 100)))
    right = {name: one[name] | other[name] for name in one}
    (base / "right").write_text(repr(right))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    assert lance.__version__
    if given.make:
        prepare(given.make)
        sys.exit()
    with quick_folder(Path(tempfile.gettempdir())) as place:
        results = []
        for what, status, why in run(place, given.times, given.seed):
            results.append(status)
            if not 0 <= status < 200:
                print(what, status, why, sep="\n", flush=True)
        bad = sum(not 0 <= status < 200 for status in results)
        refused = sum(0 < status < 200 for status in results)
        print(f"{len(results)} datasets: {bad} bad, {refused} with something refused")
