"""Approximate nearest neighbours: what they find is what the exact scan finds, whatever happens to store and file.

Toys for what must never happen; photographs, cut into many, for how much is found.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import io
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from foveate import Store
from foveate.cli.main import app
from foveate.core.errors import MissingExtraError, OptionError, OutputError, StoreError, StoreLockedError
from foveate.relevance.negatives import nouns
from foveate.relevance.query import prepare
from foveate.store import ingest as adding
from foveate.store import maintenance as upkeep
from foveate.store import nearest
from foveate.store.disk import Disk
from foveate.store.lock import only_writer
from foveate.store.nearest import among
from foveate.store.nearest_file import FOOTER, NEAREST_FILE, Facts, Keys, read_facts, read_keys
from foveate.store.search import short_list
from foveate.store.shard import shards_of
from tests.conftest import PHOTOS
from tests.store_crash import CRASHED, forked
from tests.store_toys import Rivalling, Toy, picture, pictures, quick_folder

faiss = pytest.importorskip("faiss")
from foveate.store.approximate import Lists, lists_for, probes_for, recall_of  # noqa: E402
from foveate.store.approximating import Best  # noqa: E402

IMAGES = 40
QUESTIONS = ("a dog", "a cat and a table", "a red car next to a tree on a hill", '"a beach"')
Found = list[tuple[str, float]]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder:
        yield folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Five shards of eight images, in lists that are asked all: what is found is what the exact scan finds."""
    for module, name in ((adding, "SHARD_IMAGES"), (upkeep, "SHARD_IMAGES"), (upkeep, "SMALL")):
        monkeypatch.setattr(module, name, 8)
    made = Store(tmp_path / "s.fov", encoder=Toy())
    made.add(pictures(tmp_path / "photos", IMAGES))
    made.approximate(1.0)
    return made


def fresh(store: Store) -> Store:
    return Store(store.path, encoder=Toy(), cache=0)


def found(store: Store, question: str, k: int = 8, rerank: int | None = 10, exact: bool = False) -> Found:
    hits = store.search(question, k, rerank=rerank, exact=exact)
    for hit in hits:
        assert hit.texture.grid.count > 0
        assert hit.relevance.confidence >= 0
    return [(hit.name, hit.score) for hit in hits]


def used(store: Store) -> bool:
    """Whether searches go by FAISS."""
    reader = store._reader()
    assert reader is not None
    query = prepare(Toy(), "a dog")
    return reader.nearest.short_lists(reader, [query], Toy().calibration, 5) is not None


def same(store: Store, k: int = 8, rerank: int | None = 10) -> None:
    for question in QUESTIONS:
        right = found(store, question, k, rerank, exact=True)
        assert found(store, question, k, rerank) == right
        assert len(right) == min(k, int(store.stats()["images"]))


# --- the lists --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 10**9))
@settings(max_examples=50, deadline=None)
def test_the_number_of_lists_grows_with_the_vectors(vectors: int) -> None:
    count = lists_for(vectors)
    assert 1 <= count <= vectors
    assert count <= lists_for(vectors + 1)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=40), st.integers(1, 50))
@settings(max_examples=80, deadline=None)
def test_the_fewest_lists_with_the_wanted_recall(gains: list[int], wanted: int) -> None:
    recall = np.cumsum(gains) / max(1, sum(gains))
    asked = wanted / 50
    probes, got = probes_for(lambda p: float(recall[p - 1]), len(recall), asked)
    assert got == recall[probes - 1]
    enough = np.flatnonzero(recall >= asked)
    assert probes == (enough[0] + 1 if len(enough) else len(recall))


@given(st.integers(0, 2**32), st.integers(1, 30), st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_the_streamed_exact_scan_is_the_exact_scan(seed: int, images: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    vectors, weights = rng.standard_normal((images, 3, 8), np.float32), rng.standard_normal((4, 8), np.float32)
    best = Best(weights, 7)
    for first in range(0, images, block):
        best.take(vectors[first : first + block], np.arange(first, min(images, first + block)))
    scores = np.einsum("nks,qs->qnk", vectors, weights).max(2)
    for numbers, own in zip(best.numbers, scores, strict=True):
        assert set(numbers.tolist()) == set(np.argsort(-own)[:7].tolist())


@pytest.mark.parametrize(("bits", "least"), [(4, 0.8), (8, 0.98), (16, 0.99)])
def test_all_lists_together_are_the_exact_scan_up_to_rounding(bits: int, least: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table, weights = rng.standard_normal((1200, 16), np.float32), rng.standard_normal((20, 16), np.float32)
    lists = Lists.trained(table, 12, bits)
    lists.add(table[:600], np.arange(600))
    lists.add(table[600:], np.arange(600, 1200))
    right = np.argsort(-(weights @ table.T), 1)[:, :10]
    assert recall_of(lists, weights, right, 10)(12) >= least
    few, more, every = (recall_of(lists, weights, right, 40)(p) for p in (1, 4, 12))
    assert few < more < every == 1
    out = io.BytesIO()
    head = lists.write(out.write)
    file = tmp_path / "x.faiss"
    file.write_bytes(out.getvalue() + b"what follows does not matter")
    assert 0 < head < len(out.getvalue())
    read = Lists.read(file)
    assert (read.count, read.lists, read.width) == (1200, 12, 16)
    assert np.array_equal(read.best(weights, 40, 3), lists.best(weights, 40, 3))
    assert (lists.best(weights[:1], 2000, 12)[0, 1200:] == -1).all()  # there are no more


@given(st.integers(0, 2**32), st.integers(0, 20), st.integers(0, 20))
@settings(max_examples=30, deadline=None)
def test_which_keys_are_among_others(seed: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 256, (n, 32), np.uint8)
    some = np.concatenate([keys[rng.permutation(n)[: n // 2]], rng.integers(0, 256, (m, 32), np.uint8)])
    known = {key.tobytes() for key in keys}
    assert among(some, keys).tolist() == [key.tobytes() in known for key in some]


# --- photographs ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Parts of the photographs, 70 or more: real pixels, real vectors, the real encoder."""
    folder = tmp_path_factory.mktemp("parts")
    for file in sorted(PHOTOS.glob("*.jpg")):
        with Image.open(file) as image:
            side = min(image.size) // 3
            for y in range(0, image.height - side + 1, side // 2):
                for x in range(0, image.width - side + 1, side // 2):
                    image.crop((x, y, x + side, y + side)).save(folder / f"{file.stem}-{y}-{x}.png")
    made = Store(folder.parent / "parts.fov", long_side=96)
    assert made.add(folder).added >= 70
    return made


def test_recall_on_photographs_is_what_was_wanted(photographs: Store) -> None:
    made = photographs.approximate(0.95)
    assert 0.95 <= made.recall <= 1
    assert made.probes < made.lists
    assert made.images == len(photographs)
    assert made.vectors == 6 * made.images
    assert made.nbytes == (photographs.path / NEAREST_FILE).stat().st_size
    reader = photographs._reader()
    assert reader is not None
    from foveate import load_encoder

    tower = load_encoder("nano")
    vectors = reader.vectors()
    for texts, least in ((nouns()[3::40], 0.9), (["a cake and a cup", "a child with a fork"], 0.9)):
        queries = [prepare(tower, text) for text in texts]
        listed = reader.nearest.short_lists(reader, queries, tower.calibration, 50)
        assert listed is not None
        right = short_list(vectors, reader.space, queries, tower.calibration, 50)
        shares = [np.isin(vectors.ids[p], ids).mean() for ids, p in zip(listed.ids, right, strict=True)]
        assert np.mean(shares) >= least
    hits = photographs.search("cake", 5)
    assert all(hit.name.startswith("cake") for hit in hits)
    assert [hit.score for hit in hits] == [hit.relevance.confidence for hit in hits]


def test_more_recall_asks_more_lists(photographs: Store) -> None:
    some, every = photographs.approximate(0.8), photographs.approximate(1.0)
    assert some.probes < every.probes
    assert every.recall > 0.99
    right = photographs.search(["broccoli", "a cup and a cake"], 10, exact=True)
    got = photographs.search(["broccoli", "a cup and a cake"], 10)
    assert [[(h.name, h.score) for h in hits] for hits in got] == [[(h.name, h.score) for h in hits] for hits in right]


# --- what happens to a store ------------------------------------------------------------------------------------------


def test_what_is_found_is_what_the_exact_scan_finds(store: Store) -> None:
    assert used(store)
    same(store)
    same(store, 3, 3)
    several = store.search(list(QUESTIONS), 8, rerank=10)
    assert [[(h.name, h.score) for h in hits] for hits in several] == [found(store, q) for q in QUESTIONS]


@pytest.mark.parametrize("k", [1, IMAGES, 1000])
def test_any_number_of_hits(store: Store, k: int) -> None:
    same(store, k, None)


def test_images_that_were_added_later_are_scanned_exactly(store: Store, tmp_path: Path) -> None:
    reader = fresh(store)
    assert found(reader, "a dog")
    store.add(pictures(tmp_path / "more", 20, first=100))
    for each in (store, reader, fresh(store)):
        assert used(each)
        same(each, 60, 60)
        same(each, 5, 5)
    names = {name for name, _ in found(reader, "a dog", 60, 60)}
    assert len(names) == IMAGES + 20
    store.approximate(1.0)
    assert store.verify().notes == (f"{NEAREST_FILE}: approximate nearest neighbours of {IMAGES + 20} images",)
    same(reader, 60, 60)


def test_removed_images_are_never_found_and_the_list_is_full(store: Store) -> None:
    reader = fresh(store)
    best = [name for name, _ in found(reader, "a dog", 30, 30)]
    store.remove(best)  # just those that FAISS finds first
    for each in (store, reader, fresh(store)):
        assert used(each)
        left = found(each, "a dog", 10, 10)
        assert len(left) == IMAGES - len(best)
        assert not {name for name, _ in left} & set(best)
        same(each)
    store.remove(store.keys())
    assert reader.search("a dog") == store.search("a dog") == []


def test_an_image_that_comes_back_is_found_once(store: Store, tmp_path: Path) -> None:
    name = found(store, "a dog", 1, 5)[0][0]
    store.remove(name)
    store.add(pictures(tmp_path / "other", 3, first=200))  # takes the row that became free
    assert name not in {n for n, _ in found(store, "a dog", 50, 50)}
    store.add(tmp_path / "photos")
    names = [n for n, _ in found(store, "a dog", 50, 50)]
    assert names.count(name) == 1
    same(store, 50, 50)


def test_rows_and_shards_may_change_their_numbers(store: Store, tmp_path: Path) -> None:
    reader = fresh(store)
    same(reader)
    store.remove([f"{n:03d}.png" for n in (1, 2, 3, 17, 33)])
    assert store.compact() > 0
    for each in (reader, store, fresh(store)):
        assert used(each)
        same(each, 10, 10)
    (store.path / "index.sqlite").unlink()
    for file in store.path.glob("index.sqlite-*"):
        file.unlink()
    same(fresh(store), 10, 10)
    other = Store(tmp_path / "other.fov", encoder=Toy(), basis=None)
    other.merge(store.path)
    other.add(pictures(tmp_path / "more", 5, first=300))
    store.merge(other.path)
    assert len(store) == IMAGES
    same(store, 45, 45)
    assert store.verify().notes == (
        f"{NEAREST_FILE}: approximate nearest neighbours of {IMAGES} images; 5 more are scanned exactly",
    )
    shutil.copy(store.path / NEAREST_FILE, other.path)  # the same space, and most of its keys
    assert used(other)
    same(other, 45, 45)


def test_a_store_without_images_and_one_with_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.fov", encoder=Toy())
    with pytest.raises(StoreError, match="no store at"):
        store.approximate()
    assert not (tmp_path / "s.fov" / NEAREST_FILE).exists()
    store.add(pictures(tmp_path / "photos", 1))
    made = store.approximate()
    assert (made.images, made.recall) == (1, 1.0)
    assert used(store)
    same(store)
    store.remove(store.keys())
    with pytest.raises(StoreError, match="no images"):
        store.approximate()
    assert store.search("a dog") == []


@pytest.mark.parametrize("recall", [0, -1, 1.01, True, "0.9", float("nan")])
def test_a_recall_that_is_none(store: Store, recall: Any) -> None:
    with pytest.raises(OptionError, match="recall="):
        store.approximate(recall)


def test_an_encoder_with_rivals(tmp_path: Path) -> None:
    store = Store(tmp_path / "r.fov", encoder=Rivalling())
    store.add(pictures(tmp_path / "photos", 6))
    right = [(hit.name, hit.score) for hit in store.search("a dog", 3)]
    store.approximate()
    assert [(hit.name, hit.score) for hit in store.search("a dog", 3)] == right


def test_stats_and_progress(store: Store) -> None:
    said: list[tuple[int, int]] = []
    store.approximate(progress=lambda done, total: said.append((done, total)))
    assert said == sorted(said)
    assert said[-1] == (2 * IMAGES, 2 * IMAGES)
    size = (store.path / NEAREST_FILE).stat().st_size
    stats = store.stats()
    assert (stats["approximate_images"], stats["approximate_bytes"]) == (IMAGES, size)
    (store.path / NEAREST_FILE).unlink()
    assert store.stats()["approximate_images"] == 0
    same(store)


# --- damage -----------------------------------------------------------------------------------------------------------


def _flipped(place: Callable[[Any], int]) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[place(read_facts(file))] ^= 255
        file.write_bytes(content)

    return damage


def _changed(**new: Any) -> Callable[[Path], None]:
    """Facts that are well formed, and wrong."""
    import json
    import zlib

    def damage(file: Path) -> None:
        content = file.read_bytes()
        length, _, magic = FOOTER.unpack(content[-FOOTER.size :])
        start = len(content) - FOOTER.size - length
        said = {**json.loads(content[start : start + length]), **new}
        facts = json.dumps(said).encode()
        file.write_bytes(content[:start] + facts + FOOTER.pack(len(facts), zlib.crc32(facts), magic))

    return damage


def _becomes(file: Path, content: bytes) -> None:
    file.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": lambda file: _becomes(file, b""),
    "a text": lambda file: _becomes(file, b"no index at all, and not short either: " * 9),
    "cut": lambda file: os.truncate(file, file.stat().st_size - 1000),
    "longer": lambda file: _becomes(file, file.read_bytes() + bytes(64)),
    "first bytes": _flipped(lambda facts: 1),
    "centres": _flipped(lambda facts: facts.head // 2),
    "lengths": _flipped(lambda facts: facts.head - 3),
    "keys": _flipped(lambda facts: facts.length + 5),
    "facts": _flipped(lambda facts: facts.length + 32 * facts.images + 5),
    "another format": _changed(version=2),
    "an unknown fact": _changed(more=1),
    "no shards": _changed(window=None),
    "fewer vectors": _changed(vectors=7),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_costs_a_warning_and_nothing_else(
    store: Store, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    right = {q: found(store, q) for q in QUESTIONS}
    again = fresh(store)
    file = store.path / NEAREST_FILE
    copy = file.with_suffix(".copy")  # the mapped one stays as it is: a file is replaced, never written over
    shutil.copy(file, copy)
    DAMAGES[damage](copy)
    copy.replace(file)
    with caplog.at_level(logging.WARNING, "foveate"):
        for each in (again, store):
            assert not used(each)
            assert {q: found(each, q) for q in QUESTIONS} == right
    assert len([r for r in caplog.records if "exact scan" in r.message]) == 2  # once each
    assert "exact scan" in caplog.text
    seen = again.verify()
    if damage != "fewer vectors":
        assert not seen.ok
        assert NEAREST_FILE in seen.problems[0]
        repaired = again.verify(repair=True)
        assert repaired.ok
        assert "was removed" in repaired.notes[-1]
        assert not file.exists()
    store.approximate(1.0)
    assert used(store)
    assert again.verify().ok


def test_damaged_vectors_are_found_by_verify_and_cannot_invent_images(store: Store) -> None:
    file = store.path / NEAREST_FILE
    facts = read_facts(file)
    content = bytearray(file.read_bytes())
    rng = np.random.default_rng(0)
    content[facts.head : facts.length] = rng.integers(0, 256, facts.length - facts.head, np.uint8).tobytes()
    copy = file.with_suffix(".copy")
    copy.write_bytes(content)
    copy.replace(file)
    for question in QUESTIONS:
        same_names = dict(found(store, question, IMAGES, IMAGES, exact=True))
        for name, score in found(store, question):
            assert same_names[name] == score
    seen = store.verify()
    assert not seen.ok
    assert "its vectors differ" in seen.problems[0]
    assert store.verify(repair=True).ok
    assert not file.exists()


def test_a_file_of_another_store_or_another_faiss(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = Store(tmp_path / "other.fov", encoder=Toy())
    other.add(pictures(tmp_path / "more", 9, first=500))
    shutil.copy(store.path / NEAREST_FILE, other.path)
    with caplog.at_level(logging.WARNING, "foveate"):
        assert not used(other)
        same(other)
    assert "is of another store" in caplog.text
    assert other.verify().ok
    assert "is not used" in other.verify().notes[0]
    assert "was removed" in other.verify(repair=True).notes[-1]
    caplog.clear()
    monkeypatch.setattr(faiss, "__version__", "99.0")
    with caplog.at_level(logging.WARNING, "foveate"):
        again = fresh(store)
        assert not used(again)
        same(again)
    assert "99.0 is installed" in caplog.text
    assert "99.0 is installed" in again.verify().notes[0]


def test_a_damaged_shard_is_left_out_of_both(store: Store) -> None:
    shard = shards_of(store.path)[1]
    content = bytearray(shard.read_bytes())
    content[-10] ^= 1  # its vectors are at the end
    shard.write_bytes(content)
    again = fresh(store)
    assert len(found(again, "a dog", IMAGES, IMAGES)) == IMAGES - 8
    assert found(again, "a dog") == found(again, "a dog", exact=True)
    made = again.approximate()
    assert made.images == IMAGES - 8
    assert again.verify(repair=True).ok  # the vectors are made again from the cells
    assert len(found(again, "a dog", IMAGES, IMAGES)) == IMAGES


def test_without_faiss(store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "faiss":
            raise ModuleNotFoundError("No module named 'faiss'", name="faiss")
        return real(name, *rest, **named)

    right = {q: found(store, q) for q in QUESTIONS}
    monkeypatch.setattr(builtins, "__import__", without)
    again = fresh(store)
    with caplog.at_level(logging.WARNING, "foveate"):
        assert {q: found(again, q) for q in QUESTIONS} == right
    assert [record.message for record in caplog.records] == [caplog.records[0].message]
    assert "pip install 'foveate[faiss]'" in caplog.text
    assert again.verify().ok
    assert "faiss is not installed" in again.verify().notes[0]
    assert again.stats()["approximate_images"] == IMAGES
    with pytest.raises(MissingExtraError, match=r"pip install 'foveate\[faiss\]'"):
        again.approximate()


def test_nothing_imports_faiss_before_it_is_needed(store: Store, tmp_path: Path) -> None:
    (store.path / NEAREST_FILE).unlink()
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


def crash_at_every_write(path: Path) -> None:
    """In a process of its own, which forks: a build ends at each of its writes, the first one and one that replaces."""
    right = {q: found(Store(path, encoder=Toy()), q, exact=True) for q in QUESTIONS}
    crashes = 0
    for before in (True, False):
        if not before:
            (path / NEAREST_FILE).unlink()
        for n in range(1, 100):
            copy = shutil.copytree(path, path.parent / f"{before}-{n}.fov")
            status = forked(partial(Store(copy, encoder=Toy(), disk=Ending(n)).approximate, 1.0))
            if status == 0:
                break
            assert status == CRASHED
            crashes += 1
            left = Store(copy, encoder=Toy())
            assert {q: found(left, q) for q in QUESTIONS} == right
            assert left.verify().ok
            assert used(left) or not before
            left.approximate(1.0)
            assert used(left)
            assert len(left.verify().notes) == 1, "something was left"
            shutil.rmtree(copy)
    assert crashes >= 8


def test_killed_at_any_write_the_store_is_as_before(store: Store) -> None:
    code = (
        "import sys; from pathlib import Path; from tests import test_store_approximate as t; "
        "t.crash_at_every_write(Path(sys.argv[1]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, store.path], cwd=Path(__file__).parents[1], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_full_disk_leaves_the_old_one(store: Store) -> None:
    old = (store.path / NEAREST_FILE).read_bytes()
    for n in range(1, 100):
        full = Store(store.path, encoder=Toy(), disk=Ending(n, full=True))
        with contextlib.suppress(OutputError):
            full.approximate(1.0)
            break
        assert not list(store.path.glob(".*.part"))
        if n < 3:
            assert (store.path / NEAREST_FILE).read_bytes() == old
        same(store)
    assert n > 3


def test_one_writer_at_a_time(store: Store) -> None:
    with only_writer(store.path), pytest.raises(StoreLockedError):
        fresh(store).approximate()


def test_a_fork_searches_after_a_build_with_threads(tmp_path: Path) -> None:
    """OpenMP's threads do not survive a fork; the children must neither wait for them nor die."""
    code = """
import os, sys
from pathlib import Path
import faiss
from foveate import Store
from tests.store_crash import forked
from tests.store_toys import Toy
faiss.omp_set_num_threads(4)
store = Store(sys.argv[1], encoder=Toy())
store.approximate(1.0)
assert faiss.omp_get_max_threads() == 4
right = [hit.name for hit in store.search("a dog", 5)]
def search():
    assert [hit.name for hit in store.search("a dog", 5)] == right
for _ in range(3):
    assert forked(search) == 0
"""
    store = Store(tmp_path / "s.fov", encoder=Toy())
    store.add(pictures(tmp_path / "photos", 30))
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    run = subprocess.run(
        [sys.executable, "-c", code, store.path], cwd=Path(__file__).parents[1], env=environment, timeout=120,
        capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr


def test_readers_go_on_while_it_is_made_and_the_store_changes(store: Store, tmp_path: Path) -> None:
    stop, wrong = threading.Event(), list[BaseException]()
    reader = fresh(store)

    def read() -> None:
        try:
            while not stop.is_set():
                assert len(reader.search("a dog", 8, rerank=10)) == 8
                assert len(reader.search("a cat and a table", 8, rerank=10)) == 8
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    writer = fresh(store)
    for first in (100, 110, 120):
        writer.add(pictures(tmp_path / f"more{first}", 5, first))
        writer.remove([f"{first - 99:03d}.png"])
        writer.approximate(1.0)
        writer.compact()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    same(reader, 60, 60)


def test_a_file_that_is_replaced_while_it_is_opened(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts and keys of one file and lists of another would give other images."""
    file = store.path / NEAREST_FILE
    first = file.read_bytes()
    some = store.keys()[::4]
    store.remove(some)
    store.add(store.path.parent / "photos")  # the same images, in another order
    store.approximate(1.0)
    second = file.read_bytes()
    times: list[int] = []

    def replaced(path: Path, content: bytes) -> None:
        copy = path.with_suffix(".copy")
        copy.write_bytes(content)
        copy.replace(path)

    def meanwhile(path: Path, facts: Facts) -> Keys:
        keys = read_keys(path, facts)
        if not times:
            replaced(path, second)
        times.append(1)
        return keys

    replaced(file, first)
    monkeypatch.setattr(nearest, "read_keys", meanwhile)
    again = fresh(store)
    assert used(again)
    assert len(times) == 2
    same(again)
    same(again, 3, 3)


def test_images_that_move_while_the_others_are_looked_for(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(pictures(tmp_path / "more", 20, first=100))
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
    got = found(again, "a dog", 8, 60)
    assert moved
    assert got == found(again, "a dog", 8, 60, exact=True)


def test_processes_read_at_once(store: Store) -> None:
    right = found(store, "a dog")

    def read() -> None:
        for _ in range(5):
            assert found(fresh(store), "a dog") == right

    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                read()
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert forked(read) == 0


# --- commands ---------------------------------------------------------------------------------------------------------


def test_the_command(photographs: Store) -> None:
    run = CliRunner().invoke(app, ["store", "approximate", str(photographs.path), "--recall", "0.9"])
    assert run.exit_code == 0, run.output
    import json

    said = json.loads(run.stdout.splitlines()[-1])
    assert said["images"] == len(photographs)
    assert said["recall"] >= 0.9
    assert 1 <= said["probes"] <= said["lists"]
    assert "lists" in run.stdout
    hits = [
        [h["path"] for h in json.loads(run.stdout.splitlines()[-1])["queries"][0]["hits"]]
        for run in (
            CliRunner().invoke(app, ["search", str(photographs.path), "cake", "-k", "3", "--no-sheet", *more])
            for more in ((), ("--exact",))
        )
    ]
    assert hits[0] == hits[1]


def test_the_benchmark_is_small_when_asked_to() -> None:
    from benchmarks.store_approximate import measure

    report = measure(300, 10, 0.9)
    said = {row["what"]: row for row in report["rows"]}
    assert len(said) == 8
    with pytest.raises(OptionError):
        measure(3, 10)


def test_facts_are_a_value(store: Store) -> None:
    facts = read_facts(store.path / NEAREST_FILE)
    assert facts.images == IMAGES
    assert len(facts.whole) == 5
    assert facts.recall == 1.0
    assert dataclasses.replace(facts, probes=1).probes == 1
    assert picture(1)  # the toys are what they were
