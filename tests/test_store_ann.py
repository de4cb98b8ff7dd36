"""Approximate nearest neighbours: what they find is what the exact scan finds, whatever happens to store and file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import save
from typer.testing import CliRunner

from foveate import Store, load_encoder
from foveate.cli.main import app
from foveate.core.errors import MissingExtraError, OptionError, OutputError, StoreError, StoreLockedError
from foveate.language.negatives import nouns
from foveate.language.query import prepare
from foveate.store import ann, ingest, maintenance
from foveate.store.ann import KEY, MAGIC, PREFIX, Ann, Best, Lists, read_head
from foveate.store.disk import Disk, only_writer
from foveate.store.format import ANN_FILE, list_shards
from foveate.store.hits import short_list
from tests.conftest import PHOTOS
from tests.store_crash import CRASHED, forked
from tests.store_toys import Rivalling, Toy, forget_index, pictures, quick_folder

IMAGES = 40
QUERIES = ("a dog", "a cat and a table", "a red car next to a tree on a hill", "a beach")
Found = list[tuple[str, float]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Five shards of eight images; all lists are asked, so that what is found is what the exact scan finds."""
    with quick_folder(tmp_path_factory.mktemp("made")) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "SHARD_IMAGES", 8)
        store = Store(folder / "s.fov", encoder=Toy())
        store.add(pictures(folder / "photos", IMAGES))
        store.build_ann(1.0)
        yield folder


@pytest.fixture
def store(made: Path, quick: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    for module, name in ((ingest, "SHARD_IMAGES"), (maintenance, "SHARD_IMAGES"), (maintenance, "SMALL")):
        monkeypatch.setattr(module, name, 8)
    monkeypatch.setattr(ann, "NOUNS", 40)  # for its lists: how well they are found is not what is tested
    shutil.copytree(made, quick, dirs_exist_ok=True)
    return Store(quick / "s.fov", encoder=Toy())


def fresh(store: Store) -> Store:
    return Store(store.path, encoder=Toy(), cache=0)


def found(store: Store, query: str, k: int = 8, rerank: int | None = 10, exact: bool = False) -> Found:
    return [(hit.name, hit.score) for hit in store.search(query, k, rerank=rerank, exact=exact)]


def used(store: Store) -> bool:
    """Whether searches go by FAISS."""
    reader = store._reader()
    assert reader is not None
    return Ann(reader).short_lists([prepare(Toy(), "a dog")], Toy().calibration, 5) is not None


def same(store: Store, k: int = 8, rerank: int | None = 10) -> None:
    for query in QUERIES:
        right = found(store, query, k, rerank, exact=True)
        assert found(store, query, k, rerank) == right
        assert len(right) == min(k, int(store.stats()["images"]))


def replaced(file: Path, content: bytes) -> None:
    """A file that is mapped is replaced, never written over."""
    file.with_suffix(".copy").write_bytes(content)
    file.with_suffix(".copy").replace(file)


# --- the parts --------------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 9))
@settings(max_examples=30)
def test_the_streamed_exact_scan_is_the_exact_scan(seed: int, images: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, weights = rng.standard_normal((images, 3, 8), np.float32), rng.standard_normal((4, 8), np.float32)
    best = Best(weights, 7)
    for first in range(0, images, block):
        best.take(vectors[first : first + block], np.arange(first, min(images, first + block)))
    scores = np.einsum("nks,qs->qnk", vectors, weights).max(2)
    for ids, own in zip(best.ids, scores, strict=True):
        assert set(ids.tolist()) == set(np.argsort(-own)[:7].tolist())


# --- photographs ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Parts of the photographs, 70 or more: real pixels, real vectors, the real encoder."""
    folder = tmp_path_factory.mktemp("parts")
    for file in sorted(PHOTOS.glob("c*.jpg")):
        with Image.open(file) as image:
            side = min(image.size) // 3
            for y in range(0, image.height - side + 1, side // 2):
                for x in range(0, image.width - side + 1, side // 2):
                    image.crop((x, y, x + side, y + side)).save(folder / f"{file.stem}-{y}-{x}.png")
    made = Store(folder.parent / "parts.fov", long_side=96)
    assert made.add(folder).added >= 70
    return made


def test_recall_on_photographs_is_what_was_wanted(photographs: Store) -> None:
    report = photographs.build_ann(0.95)
    assert 0.95 <= report.recall <= 1
    assert report.probes < report.lists
    assert report.vectors == report.images == len(photographs)  # one vector of peaks an image
    assert report.nbytes == (photographs.path / ANN_FILE).stat().st_size
    reader, tower = photographs._reader(), load_encoder("nano")
    assert reader is not None
    vectors = reader.vectors()
    for texts in (nouns()[3::40], ["a cake and a cup", "a child with a fork"]):
        queries = [prepare(tower, text) for text in texts]
        listed = Ann(reader).short_lists(queries, tower.calibration, 50)
        assert listed is not None
        right = short_list(vectors, reader.space, queries, tower.calibration, 50)
        assert np.mean([np.isin(vectors.ids[p], ids).mean() for ids, p in zip(listed.ids, right, strict=True)]) >= 0.9
    hits = photographs.search("cake", 5)
    assert all(hit.name.startswith("cake") for hit in hits)
    assert [hit.score for hit in hits] == [hit.relevance.confidence for hit in hits]


def test_the_command(photographs: Store) -> None:
    run = CliRunner().invoke(app, ["store", "ann", str(photographs.path), "--recall", "0.9", "--json"])
    assert run.exit_code == 0, run.output
    report = json.loads(run.stdout)
    assert report["images"] == len(photographs)
    assert report["recall"] >= 0.9
    assert 1 <= report["probes"] <= report["lists"]
    search = ["search", str(photographs.path), "cake", "-k", "3", "--no-sheet", "--json"]
    said = [CliRunner().invoke(app, [*search, *more]).stdout for more in ((), ("--exact",))]
    near, exact = ([hit["path"] for hit in json.loads(line)["queries"][0]["hits"]] for line in said)
    assert near == exact


# --- what happens to a store ------------------------------------------------------------------------------------------


def test_what_is_found_is_what_the_exact_scan_finds(store: Store) -> None:
    assert used(store)
    for k, rerank in ((8, 10), (3, 3), (1, None), (IMAGES, None), (1000, None)):
        same(store, k, rerank)
    several = store.search(list(QUERIES), 8, rerank=10)
    assert [[(h.name, h.score) for h in hits] for hits in several] == [found(store, q) for q in QUERIES]
    stats = store.stats()
    assert (stats["ann_images"], stats["ann_bytes"]) == (IMAGES, (store.path / ANN_FILE).stat().st_size)


def test_images_that_were_added_later_are_scanned_exactly(store: Store, quick: Path) -> None:
    reader = fresh(store)
    assert found(reader, "a dog")
    store.add(pictures(quick / "more", 20, first=100))
    for each in (store, reader, fresh(store)):
        assert used(each)
        same(each, 60, 60)
        same(each, 5, 5)
    steps: list[tuple[int, int]] = []
    store.build_ann(1.0, progress=lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    assert steps[-1] == (120, 120)
    assert store.verify().notes == (f"{ANN_FILE}: approximate nearest neighbours of {IMAGES + 20} images",)
    same(reader, 60, 60)


def test_removed_images_are_never_found_and_the_list_is_full(store: Store, quick: Path) -> None:
    reader = fresh(store)
    best = [name for name, _ in found(reader, "a dog", 30, 30)]
    store.remove(best)  # just those that FAISS finds first
    for each in (store, reader, fresh(store)):
        assert used(each)
        left = found(each, "a dog", 10, 10)
        assert len(left) == IMAGES - len(best)
        assert not {name for name, _ in left} & set(best)
        same(each)
    store.add(pictures(quick / "other", 3, first=200))  # takes the rows that became free
    store.add(quick / "photos")
    names = [name for name, _ in found(store, "a dog", 50, 50)]
    assert len(names) == len(set(names)) == IMAGES + 3
    same(reader, 50, 50)
    store.remove(store.keys())
    assert reader.search("a dog") == store.search("a dog") == []
    with pytest.raises(StoreError, match="no images"):
        store.build_ann()


def test_rows_and_shards_may_change_their_numbers(store: Store, quick: Path) -> None:
    reader = fresh(store)
    same(reader)
    store.remove([f"{n:03d}.png" for n in (1, 2, 3, 17, 33)])
    assert store.compact() > 0
    for each in (reader, store, fresh(store)):
        assert used(each)
        same(each, 10, 10)
    forget_index(store.path)
    same(fresh(store), 10, 10)
    other = Store(quick / "other.fov", encoder=Toy())
    other.merge(store.path)
    other.add(pictures(quick / "more", 5, first=300))
    store.merge(other.path)
    same(store, 45, 45)
    note = f"{ANN_FILE}: approximate nearest neighbours of {IMAGES} images; 5 more are scanned exactly"
    assert store.verify().notes == (note,)
    shutil.copy(store.path / ANN_FILE, other.path)  # the same space, and most of its keys
    assert used(other)
    same(other, 45, 45)


def test_small_stores_bad_recalls_and_encoders_with_negatives(quick: Path) -> None:
    store = Store(quick / "s.fov", encoder=Rivalling())
    with pytest.raises(StoreError, match="no store"):
        store.build_ann()
    store.add(pictures(quick / "photos", 1))
    report = store.build_ann()
    assert (report.images, report.recall) == (1, 1.0)
    store.add(pictures(quick / "photos", 6))
    right = [(hit.name, hit.score) for hit in store.search("a dog", 3, exact=True)]
    for _ in range(2):
        assert [(hit.name, hit.score) for hit in store.search("a dog", 3)] == right
        store.build_ann()
    for recall in (0, -1, 1.01, True, "0.9", float("nan")):
        with pytest.raises(OptionError, match="recall="):
            store.build_ann(recall)  # type: ignore[arg-type]


# --- damage -----------------------------------------------------------------------------------------------------------


def lying(**changes: Any) -> Callable[[bytes], bytes]:
    """A head with other facts or arrays, and with the right checksum: what somebody would make up."""

    def change(content: bytes) -> bytes:
        length = PREFIX.unpack(content[: PREFIX.size])[1]
        arrays, facts = read_head(content[PREFIX.size : PREFIX.size + length])
        arrays |= {name: np.array(value) for name, value in changes.items() if name in arrays}
        facts |= {name: value for name, value in changes.items() if name not in arrays}
        head = save(arrays, metadata={KEY: json.dumps(facts)})
        prefix = PREFIX.pack(MAGIC, len(head), hashlib.sha256(head).digest())
        return prefix + head + content[PREFIX.size + length :]

    return change


LIES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "longer": lambda content: content + bytes(64),
    "a text": lambda content: b"no index at all, and not short either: " * 99,
    "a head of 4 GB": lambda content: PREFIX.pack(MAGIC, 2**32 - 1, bytes(32)) + content[PREFIX.size :],
    "fewer images": lying(images=7),
    "images of another type": lying(images="40"),
    "no shards": lying(shards=None),
    "more probes than lists": lying(probes=10**6),
    "one list": lying(sizes=[240]),
    "negative lists": lying(sizes=np.r_[-(2**62), np.zeros(60, np.int64), 2**62 + 240]),
    "huge lists": lying(sizes=np.full(62, 2**62)),
    "centres that are no numbers": lying(centres=np.full((62, 12), np.nan, np.float32)),
    "narrow ranges": lying(ranges=np.zeros(1, np.float32)),
}


def flipped(place: int, content: bytes) -> bytes:
    return content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]


def mutate(path: Path) -> None:
    """In a process of its own: every change gives the exact scan's answer and a warning; FAISS sees none of it."""
    file, store = path / ANN_FILE, Store(path, encoder=Toy())
    content, right = file.read_bytes(), [found(store, query, exact=True) for query in QUERIES[:2]]
    rng, length = np.random.default_rng(0), len(content)
    changes = dict(LIES)
    for place in [*range(0, 200, 8), *rng.integers(0, length, 60).tolist(), length - 1]:
        changes[f"byte {place}"] = partial(flipped, place)
    for place in rng.integers(0, length, 15).tolist():
        changes[f"cut at {place}"] = itemgetter(slice(place))
    for name, change in changes.items():
        replaced(file, change(content))
        assert [found(store, query) for query in QUERIES[:2]] == right, name
        assert name not in LIES or not used(store), name
        assert store.verify().problems, name
    assert store.verify(repair=True).notes[-1].endswith("was removed, foveate store ann builds it again")
    assert not file.exists()
    replaced(file, content)
    assert used(store)
    assert store.verify().ok


def crash_at_every_write(path: Path) -> None:
    """In a process that forks: a build ends at each of its writes, the first one and one that replaces."""
    right, crashes = [found(Store(path, encoder=Toy()), q, exact=True) for q in QUERIES], 0
    ann.NOUNS = 40  # recall is not what is tested
    for before in (True, False):
        if not before:
            (path / ANN_FILE).unlink()
        for n in range(1, 100):
            copy = shutil.copytree(path, path.parent / f"{before}-{n}.fov")
            status = forked(partial(Store(copy, encoder=Toy(), disk=Ending(n)).build_ann, 1.0))
            if status == 0:
                break
            assert status == CRASHED
            crashes += 1
            left = Store(copy, encoder=Toy())
            assert [found(left, q) for q in QUERIES] == right
            assert left.verify().ok
            assert used(left) or not before
            left.build_ann(1.0)
            assert used(left)
            assert len(left.verify().notes) == 1, "something was left"
    assert crashes >= 8


def search_after_forks(path: Path) -> None:
    """OpenMP's threads do not survive a fork; the children must neither wait for them nor die."""
    faiss.omp_set_num_threads(4)
    store = Store(path, encoder=Toy())
    store.build_ann(1.0)
    assert faiss.omp_get_max_threads() == 4
    right = found(store, "a dog")

    def search() -> None:
        assert found(store, "a dog") == right

    for _ in range(3):
        assert forked(search) == 0


@pytest.mark.crash
@pytest.mark.parametrize(("work", "threads"), [("mutate, crash_at_every_write", "1"), ("search_after_forks", "4")])
def test_in_a_process_of_its_own(store: Store, work: str, threads: str) -> None:
    code = (
        f"import sys; from pathlib import Path; from tests.test_store_ann import {work}\n"
        f"for work in ({work},): work(Path(sys.argv[1]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, store.path], cwd=Path(__file__).parents[1], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": threads}, timeout=100,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]


def test_a_file_of_another_store_or_an_earlier_version(
    store: Store, quick: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Store(quick / "other.fov", encoder=Toy())
    other.add(pictures(quick / "more", 9, first=500))
    strange = (store.path / ANN_FILE).read_bytes()
    earlier = strange.replace(MAGIC, b"IwSq....") + bytes(12) + b"FOVNEAR1"
    for content, said in ((strange, "is of another store"), (earlier, "is of an earlier version")):
        caplog.clear()
        replaced(other.path / ANN_FILE, content)
        with caplog.at_level(logging.WARNING, "foveate"):
            for _ in range(2):
                same(other)
        assert len(caplog.records) == 1  # said once
        assert said in caplog.text
        assert "foveate store ann STORE builds it again" in caplog.text
        assert other.verify().ok
        assert "it is not used" in other.verify().notes[0]
    assert "was removed" in other.verify(repair=True).notes[-1]
    other.build_ann()
    assert used(other)


def test_a_damaged_shard_is_left_out_of_both(store: Store) -> None:
    shard = list_shards(store.path)[1]
    content = bytearray(shard.read_bytes())
    content[-10] ^= 1  # its vectors are at the end
    shard.write_bytes(content)
    again = fresh(store)
    assert len(found(again, "a dog", IMAGES, IMAGES)) == IMAGES - 8
    assert found(again, "a dog") == found(again, "a dog", exact=True)
    assert again.build_ann().images == IMAGES - 8
    assert again.verify(repair=True).ok  # the vectors are made again from the cells
    assert len(found(again, "a dog", IMAGES, IMAGES)) == IMAGES


def test_without_faiss(store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    again = fresh(store)
    with caplog.at_level(logging.WARNING, "foveate"):
        same(again)
    assert len(caplog.records) == 1
    assert "pip install 'foveate[faiss]'" in caplog.text
    assert again.verify().ok
    assert "faiss is not installed" in again.verify().notes[0]
    assert again.stats()["ann_images"] == IMAGES
    with pytest.raises(MissingExtraError, match=r"pip install 'foveate\[faiss\]'"):
        again.build_ann()


def test_nothing_imports_faiss_before_it_is_needed(store: Store) -> None:
    (store.path / ANN_FILE).unlink()
    code = (
        "import sys, foveate; from foveate.store import Store; from tests.store_toys import Toy; "
        "s = Store(sys.argv[1], encoder=Toy()); assert s.search('a dog'); s.verify(); s.stats(); "
        "assert 'faiss' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, store.path], check=True, cwd=Path(__file__).parents[1])


# --- crashes, locks, readers ------------------------------------------------------------------------------------------


class Ending(Disk):
    """Ends the process, or says that the disk is full, at its n-th write."""

    def __init__(self, at: int, full: bool = False) -> None:
        self.left, self.full = at, full

    def step(self, what: str, path: Path) -> None:
        self.left -= 1
        if self.left == 0:
            if self.full:
                raise OSError(28, "No space left on device")
            os._exit(CRASHED)


def test_a_full_disk_and_a_second_writer_leave_the_old_one(store: Store) -> None:
    old, n = (store.path / ANN_FILE).read_bytes(), 1
    while True:
        try:
            Store(store.path, encoder=Toy(), disk=Ending(n, full=True)).build_ann(1.0)
            break
        except OutputError:
            assert not list(store.path.glob(".*.part"))
            assert n > 2 or (store.path / ANN_FILE).read_bytes() == old
            same(store)
        n += 1
    assert n > 3
    with only_writer(store.path), pytest.raises(StoreLockedError):
        fresh(store).build_ann()


def test_readers_go_on_while_it_is_made_and_the_store_changes(store: Store, quick: Path) -> None:
    stop, wrong = threading.Event(), list[BaseException]()
    reader = fresh(store)

    def read() -> None:
        try:
            while not stop.is_set():
                assert [len(hits) for hits in reader.search(list(QUERIES[:2]), 8, rerank=10)] == [8, 8]
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    writer = fresh(store)
    for first in (100, 110):
        writer.add(pictures(quick / f"more{first}", 5, first))
        writer.remove([f"{first - 99:03d}.png"])
        writer.build_ann(1.0)
        writer.compact()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    same(reader, 60, 60)


def test_a_file_that_is_replaced_while_it_is_opened(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes of one file and lists of another would give other images."""
    file = store.path / ANN_FILE
    first = file.read_bytes()
    store.remove(store.keys()[::4])
    store.add(store.path.parent / "photos")  # the same images, in another order
    store.build_ann(1.0)
    second, times = file.read_bytes(), list[int]()

    class Meanwhile(Lists):
        def __init__(self, reader: Any) -> None:
            super().__init__(reader)
            if not times:
                replaced(file, second)
            times.append(1)

    replaced(file, first)
    monkeypatch.setattr(ann, "Lists", Meanwhile)
    again = fresh(store)
    assert found(again, "a dog") == found(again, "a dog", exact=True)
    assert len(times) == 2
    same(again, 3, 3)


def test_images_that_move_while_the_others_are_looked_for(
    store: Store, quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(pictures(quick / "more", 20, first=100))
    again = fresh(store)
    reader = again._reader()
    assert reader is not None
    real, moved = reader.index.ask, list[int]()

    def meanwhile(statement: str, values: Any = ()) -> list[tuple[Any, ...]]:
        if statement.startswith("SELECT id, sequence, position, key") and not moved:
            moved.append(1)
            writer = fresh(store)
            writer.remove([f"{n}.png" for n in (101, 109, 117)])
            assert writer.compact() > 0
        return real(statement, values)

    monkeypatch.setattr(reader.index, "ask", meanwhile)
    near = found(again, "a dog", 8, 60)
    assert moved
    assert near == found(again, "a dog", 8, 60, exact=True)


def test_the_benchmark_is_small_when_asked_to() -> None:
    from benchmarks.store_ann import measure

    assert len(measure(300, 10, 0.9)["rows"]) == 7
    with pytest.raises(OptionError):
        measure(3, 10)
