"""Nothing is lost: crashes, damage, locks, full disks, odd folders. Real store, toy encoder; the photographs are in
test_store.py. The crashes themselves are in store_crash.py, which forks, and so runs in a process of its own."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import threading
import unicodedata
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foveate.store.disk import Disk, only_writer
from foveate.store.format import VERSION, list_shards, read_shard
from safetensors import safe_open

from foveate import Store
from foveate.core.errors import (
    EncoderOutputError,
    FoveateError,
    ImageNotFoundError,
    OutputError,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
    StoreVersionError,
)
from foveate.encoders.protocol import DenseFeatures
from foveate.store import ingest
from tests.store_toys import Planes, Toy, forget_index, picture, pictures

HERE = Path(__file__).parent
GOLDEN: dict[str, Toy] = {"store-v1.fov": Toy(), "store-v3.fov": Planes(), "store-v4.fov": Planes()}
IMAGES = 6


@pytest.fixture
def store(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three shards of two images."""
    monkeypatch.setattr(ingest, "SHARD_IMAGES", 2)
    made = Store(quick / "s.fov", encoder=Toy())
    made.add(pictures(quick / "photos", IMAGES))
    return made


def fresh(store: Store) -> Store:
    return Store(store.path, encoder=Toy(), cache=0)


def numbers(store: Store) -> dict[str, bytes]:
    return {name: store[name].embedding.tobytes() + store[name].residual.tobytes() for name in store}


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 16
    path.write_bytes(content)


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize("arguments", [("nth", "--every", "3"), ("kill", "--times", "4", "--seed", "1")])
def test_a_crash_at_a_write_or_moment_loses_nothing_that_was_acknowledged(arguments: tuple[str, ...]) -> None:
    run = subprocess.run([sys.executable, HERE / "store_crash.py", *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


class Failing(Disk):
    """Says at its n-th write that the disk is full."""

    def __init__(self, at: int) -> None:
        self.left = at

    def step(self, what: str, path: Path) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(28, "No space left on device")


@pytest.mark.slow
def test_a_full_disk_loses_nothing(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "SHARD_IMAGES", 2)
    folder = pictures(quick / "photos", 3)
    right = numbers(_filled(quick / "right.fov", folder))
    for n in count(1, 2):
        path = quick / f"{n}.fov"
        try:
            Store(path, encoder=Toy(), disk=Failing(n)).add(folder)
            break
        except OutputError as error:
            said = str(error)
        assert "No space left" in said
        assert "make room" in said
        assert not list(path.rglob("*.part"))
        store = Store(path, encoder=Toy())
        if store.identity is not None:
            assert store.verify().ok
            assert numbers(store).items() <= right.items()
        store.add(folder)
        assert numbers(store) == right
        shutil.rmtree(path)
    assert n > 40


def _filled(path: Path, folder: Path) -> Store:
    store = Store(path, encoder=Toy())
    store.add(folder)
    return store


class Breaking(Toy):
    """An encoder that breaks at its fourth image."""

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


def test_an_interrupt_publishes_what_is_ready(quick: Path) -> None:
    store = Store(quick / "s.fov", encoder=Toy())

    def interrupt(progress: ingest.Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(pictures(quick / "photos", 8), progress=interrupt)
    assert len(store) == 3
    assert store.add(quick / "photos").known == 3


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_named_and_put_aside_and_the_rest_serves(store: Store) -> None:
    right = numbers(store)
    shard = list_shards(store.path)[1]
    entry = read_shard(shard).entries[1]
    flip(shard, entry.start + 700)
    damaged = fresh(store)
    (name,) = [n for n in damaged if damaged.content_key(n) == entry.head["key"]]
    with pytest.raises(StoreDamagedError, match=f"{shard.name}.*image 1"):
        damaged[name]
    assert numbers_but(damaged, name) == {n: v for n, v in right.items() if n != name}
    assert {hit.name for hit in damaged.search("a dog", 20)} == set(right) - {name}
    assert {n for n, _ in damaged.score_all("a dog")} == set(right) - {name}
    found = damaged.verify()
    assert not found.ok
    assert shard.name in found.problems[0]
    assert [Path(path).name for path in found.damaged] == [Path(name).name]
    repaired = damaged.verify(repair=True)
    assert repaired.ok
    assert repaired.repaired == (shard.name,)
    assert (store.path / "quarantine" / shard.name).is_file()
    assert numbers(fresh(store)) == {n: v for n, v in right.items() if n != name}
    again = fresh(store).add(store.path.parent / "photos")
    assert (again.added, again.known) == (1, IMAGES - 1)
    assert numbers(fresh(store)) == right
    assert fresh(store).verify().ok


def numbers_but(store: Store, damaged: str) -> dict[str, bytes]:
    return {name: store[name].embedding.tobytes() + store[name].residual.tobytes() for name in store if name != damaged}


@pytest.mark.parametrize("where", ["header", "length", "vectors", "basis", "cut", "empty", "missing"])
def test_other_damage_to_a_shard(store: Store, where: str) -> None:
    right, shard = numbers(store), list_shards(store.path)[0]
    header = read_shard(shard)
    if where == "missing":
        shard.unlink()
    elif where in ("cut", "empty"):
        shard.write_bytes(shard.read_bytes()[: -100 if where == "cut" else 0])
    else:
        places = {"header": 60, "length": 1, "vectors": header.vectors[0] + 5, "basis": header.entries[0].start - 3}
        flip(shard, places[where])
    damaged = fresh(store)
    found = damaged.verify()
    assert not found.ok
    assert shard.name in found.problems[0]
    assert len(damaged.search("a dog", 20)) >= IMAGES - 2
    repaired = damaged.verify(repair=True)
    assert repaired.ok, repaired
    kept = numbers(fresh(store))
    assert len(kept) == {"missing": 4, "empty": 4, "cut": 6}.get(where, 6)
    assert kept.items() <= right.items()
    fresh(store).add(store.path.parent / "photos")
    assert numbers(fresh(store)) == right
    assert len(fresh(store).search("a dog", 20)) == IMAGES


@pytest.mark.parametrize("damage", ["removed", "overwritten", "emptied", "truncated"])
def test_a_lost_index_is_made_again(store: Store, damage: str) -> None:
    store.remove("001.png")
    right, index = numbers(store), store.path / "index.sqlite"
    store._reader().close()  # type: ignore[union-attr]
    for rest in store.path.glob("index.sqlite-*"):
        rest.unlink()
    if damage == "removed":
        index.unlink()
    else:
        whole = index.read_bytes()
        index.write_bytes({"overwritten": b"x" * len(whole), "emptied": b"", "truncated": whole[:5000]}[damage])
    again = fresh(store)
    assert numbers(again) == right
    assert again.verify().ok
    assert again.add(store.path.parent / "photos").added == 1  # what was removed


def test_a_log_that_goes_while_a_reader_opens(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    right, real = numbers(store), os.lstat

    def vanishing(path: str | Path) -> os.stat_result:
        status = real(path)
        if str(path).endswith("-wal"):  # whoever closes the index last removes it
            os.unlink(path)
        return status

    store._reader().close()  # type: ignore[union-attr]
    (store.path / "index.sqlite-wal").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", vanishing)
        again = fresh(store)
    assert numbers(again) == right


@pytest.mark.parametrize("name", [".0123456789abcdef.part", ".0123456789abcdef.part-journal"])
def test_what_a_crash_left_of_a_new_index_is_swept(name: str, store: Store, quick: Path) -> None:
    for path in (store.path, quick / "new.fov"):
        path.mkdir(exist_ok=True)
        (path / name).touch()
        if path == store.path:
            assert any(name in note for note in fresh(store).verify().notes)
        for _ in range(2):  # of a new store, when it is next written to
            Store(path, encoder=Toy()).add(pictures(quick / "more", 2, 50))
        assert not (path / name).exists()


def test_a_reader_that_opens_while_a_store_is_made_sees_what_is_added(quick: Path) -> None:
    seen: list[Store] = []

    class Watched(Disk):
        def step(self, what: str, path: Path) -> None:
            seen.append(Store(quick / "s.fov", encoder=Toy()))

    Store(quick / "s.fov", encoder=Toy(), disk=Watched()).add(pictures(quick / "photos", 3))
    assert {len(store) for store in seen} == {3}


def test_a_shard_that_cannot_be_opened_is_not_put_aside(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    right, real = numbers(store), Path.open
    store._reader().close()  # type: ignore[union-attr]
    forget_index(store.path)

    def failing(path: Path, *rest: Any, **named: Any) -> Any:
        if path.parent.name == "shards":
            raise OSError(24, "Too many open files")
        return real(path, *rest, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", failing)
        with pytest.raises(OutputError, match="Too many open files"):
            fresh(store).add(store.path.parent / "photos")
    assert not (store.path / "quarantine").exists()
    assert numbers(fresh(store)) == right


def test_an_old_index_that_was_put_back_loses_nothing(store: Store, quick: Path) -> None:
    store._reader().close()  # type: ignore[union-attr]
    old = (store.path / "index.sqlite").read_bytes()
    store.add(pictures(quick / "more", 4, 50))
    right = numbers(store)
    fresh(store)
    store._reader().close()  # type: ignore[union-attr]
    forget_index(store.path)
    (store.path / "index.sqlite").write_bytes(old)
    assert numbers(fresh(store)) == right


@pytest.mark.parametrize("file", ["format.json", "basis.safetensors"])
def test_the_shards_repeat_what_the_store_is(store: Store, file: str) -> None:
    right = numbers(store)
    before = (store.path / file).read_bytes()
    (store.path / file).unlink()
    assert numbers(fresh(store)) == right
    assert fresh(store).search("a dog", 3)
    fresh(store).add(store.path.parent / "photos", workers=2)
    fresh(store).remove("001.png")
    assert (store.path / file).read_bytes() == before


# --- several processes and threads ------------------------------------------------------------------------------------


def test_one_writer_at_a_time_and_the_lock_of_the_dead_is_taken(store: Store, quick: Path) -> None:
    more = pictures(quick / "more", 1, 60)
    with only_writer(store.path):
        with pytest.raises(StoreLockedError, match=f"process {os.getpid()} on .*, since"):
            fresh(store).add(more)
        assert fresh(store).search("a dog")  # readers do not mind
    held = (
        "import sys, time; from pathlib import Path; from foveate.store.disk import only_writer\n"
        "with only_writer(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", held, store.path], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match=f"process {owner.pid} "):
            fresh(store).add(more)
        owner.kill()
    assert fresh(store).add(more).added == 1


def test_readers_see_what_a_writer_adds(store: Store, quick: Path) -> None:
    reader, wrong, stop = fresh(store), list[BaseException](), threading.Event()
    right = numbers(store)

    def read() -> None:
        try:
            while not stop.is_set():
                for name in list(right):
                    assert reader[name].embedding.tobytes() in right[name]
                assert len(reader.search("a dog", 100)) >= IMAGES
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    writer = fresh(store)
    for first in range(100, 112, 4):
        writer.add(pictures(quick / f"more{first}", 4, first))
        writer.compact()
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(reader) == IMAGES + 12
    assert len(reader.search("a dog", 100)) == IMAGES + 12


# --- formats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", GOLDEN)
def test_the_golden_stores_stay_readable(golden: str, quick: Path) -> None:
    encoder = GOLDEN[golden]
    said = json.loads((HERE / "golden" / golden / "expected.json").read_text())
    shutil.copytree(HERE / "golden" / golden / "store", quick / "g.fov")
    for attempt in ("from its shards", "with its index"):
        store = Store(quick / "g.fov", encoder=encoder)
        assert store.keys() == said["names"], attempt
        for name, numbers in said["scores"].items():
            scores = store[name].scores(encoder.encode_text(["a dog"]))[0]
            np.testing.assert_allclose(scores[0, :4], numbers, atol=1e-6)
            assert store.content_key(name) == said["keys"][name]
        assert [hit.name for hit in store.search("a dog")] == said["hits"]
        assert store.verify().ok


def test_any_safetensors_reader_reads_a_shard(store: Store) -> None:
    with safe_open(list_shards(store.path)[0], framework="np") as content:
        assert {"0.embedding", "1.thumbnail", "vectors", "space.rows"} <= set(content.keys())
        said = json.loads(content.metadata()["foveate"])
        names = {name for _, name, *_ in said["names"]}
        (first,) = [n for n in names if store.content_key(n) == said["images"][0]["key"]]
        assert np.array_equal(content.get_tensor("0.embedding"), store[first].embedding)


@pytest.mark.parametrize("change", ["version", "preprocessing"])
def test_a_newer_store_is_refused(store: Store, change: str) -> None:
    file = store.path / "format.json"
    said = json.loads(file.read_text())
    if change == "version":
        said["version"] = VERSION + 1
    else:
        said["preprocessing"]["version"] = 99
    file.write_text(json.dumps(said))
    with pytest.raises(StoreVersionError, match="upgrade foveate"):
        fresh(store)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "foveate-store", "version": true}', '{"format": 1}'])
def test_a_broken_format_file(store: Store, content: str) -> None:
    (store.path / "format.json").write_text(content)
    with pytest.raises(StoreDamagedError, match="remove this file"):
        fresh(store)


def test_what_is_no_store(quick: Path) -> None:
    (quick / "file").write_text("x")
    with pytest.raises(StoreError, match="no folder"):
        Store(quick / "file")
    with pytest.raises(StoreError, match="holds other things"):
        Store(pictures(quick / "photos", 1))
    (quick / "empty").mkdir()
    assert Store(quick / "empty").identity is None


# --- odd folders ------------------------------------------------------------------------------------------------------


def test_odd_folders(quick: Path) -> None:
    folder = quick / "photos"
    odd = ["späße.png", "写真 🐕.png", "a'b\"c;--.png", "CAPS.PNG", "[brackets] %20.png", "new\nline.png"]
    folder.mkdir()
    for seed, name in enumerate(odd):
        (folder / name).write_bytes(picture(seed))
    bad_bytes = os.fsdecode(b"not-utf8-\xff.png")
    (folder / bad_bytes).write_bytes(picture(20))
    (folder / "loop").symlink_to(folder, target_is_directory=True)
    (folder / "itself.png").symlink_to("itself.png")
    (folder / "gone.png").symlink_to("nowhere.png")
    (folder / "link.png").symlink_to("CAPS.PNG")
    (folder / "notes.txt").write_text("no image")
    (folder / "empty.png").write_bytes(b"")
    (folder / "half.png").write_bytes(picture(1)[:200])
    (folder / "folder.jpg").mkdir()
    os.mkfifo(folder / "pipe.png")
    store = Store(folder / "inside.fov", encoder=Toy())  # a store among the photographs
    added = store.add(folder)
    assert sorted(Path(path).name for path, _ in added.bad) == [
        "empty.png", "gone.png", "half.png", "itself.png", "pipe.png",
    ]  # fmt: skip
    assert all(why and "\n" not in why for _, why in added.bad)
    assert set(store) == {*odd, bad_bytes, "link.png"}
    assert (added.added, added.linked) == (len(odd) + 1, 1)
    for name in store:
        assert store[name].name.isprintable()
    assert store["写真 🐕.png"].grid.count == 54
    assert len(store.search("a dog", 50)) == len(odd) + 1  # an image once, whatever its names
    assert unicodedata.normalize("NFD", "späße.png") in store
    os.remove(store.path / "index.sqlite")
    assert set(Store(store.path, encoder=Toy())) == set(store)


def test_lists_of_paths(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pictures(quick / "photos", 4)
    monkeypatch.chdir(quick)
    bad_bytes = b"photos/not-utf8-\xff.png"
    Path(os.fsdecode(bad_bytes)).write_bytes(picture(20))
    listed = quick / "photos.txt"
    lines = [b"photos/below", b"photos/001.png", b"", b"photos/gone.png", b"photos/a\0b.png", bad_bytes]
    listed.write_bytes(b"\xef\xbb\xbf" + b"\r\n".join(lines))
    store = Store(quick / "s.fov", encoder=Toy())
    added = store.add(listed)
    assert added.bad == (("photos/gone.png", "nothing is there"), ("photos/a\0b.png", "nothing is there"))
    assert sorted(store) == sorted(["000.png", "photos/001.png", os.fsdecode(bad_bytes)])
    assert store.add(["photos.txt", folder]).added == 2
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"photos/003.png\n")))
    assert Store(quick / "t.fov", encoder=Toy()).add("-").added == 1
    (quick / "empty.txt").touch()
    with pytest.raises(ImageNotFoundError, match=r"no image file in '.*empty\.txt'"):
        store.add(quick / "empty.txt")
    with pytest.raises(ImageNotFoundError, match=r"list 'nowhere\.txt' cannot be read"):
        store.add("nowhere.txt")
    monkeypatch.setattr("sys.stdin", None)  # closed: foveate index - <&-
    with pytest.raises(ImageNotFoundError, match="list '-' cannot be read"):
        store.add("-")
    (quick / "web.txt").write_text("https://example.org/a.jpg\n")
    with pytest.raises(ImageNotFoundError, match="nothing is fetched"):
        store.add("web.txt")


def test_a_folder_without_images(quick: Path) -> None:
    (quick / "empty").mkdir()
    with pytest.raises(ImageNotFoundError, match="no image file"):
        Store(quick / "s.fov", encoder=Toy()).add(quick / "empty")
    (quick / "empty" / "bad.jpg").write_text("x")
    with pytest.raises(StoreError, match="none of a sample"):
        Store(quick / "s.fov", encoder=Toy()).add(quick / "empty")
    assert not (quick / "s.fov" / "format.json").exists()


def test_a_folder_that_may_not_be_written_to(store: Store, quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = numbers(store)
    store._reader().close()  # type: ignore[union-attr]
    monkeypatch.setattr(os, "access", lambda *_: False)  # a test may run as root, to whom all is allowed

    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    for index in ("there", "gone"):
        if index == "gone":
            (store.path / "index.sqlite").unlink()
        reader = fresh(store)
        assert numbers(reader) == right
        assert len(reader.search("a dog", 20)) == IMAGES
        assert reader.verify().ok
        assert not list(store.path.glob("index.sqlite-*"))
    with monkeypatch.context() as patch:
        patch.setattr("filelock._unix.os.open", refused)
        with pytest.raises(OutputError, match="cannot be written to"):
            fresh(store).add(pictures(quick / "more", 1, 60))


def test_names_that_fit_several_images(quick: Path) -> None:
    a, b = pictures(quick / "a", 2), pictures(quick / "b", 2, 0)
    (b / "001.png").write_bytes(picture(50))
    store = Store(quick / "s.fov", encoder=Toy())
    store.add([a, b])
    with pytest.raises(FoveateError, match="names several images"):
        store["001.png"]
    assert set(store.keys()) == {str(f) for d in (a, b) for f in d.rglob("*.png")}
    assert store[str(a / "001.png")].grid == store["b/001.png"].grid
    assert store.content_key("a/001.png") != store.content_key("b/001.png")


def test_tiny_and_flat_images(quick: Path) -> None:
    folder = pictures(quick / "photos", 2)
    (folder / "dot.png").write_bytes(picture(5, 1, 1))
    (folder / "clear.png").write_bytes(picture(5, 24, 24, "RGBA"))
    store = Store(quick / "s.fov", encoder=Toy())
    assert store.add(folder).bad == ()
    assert store["dot.png"].grid.count == 1
    assert "cluster_id" not in store["dot.png"].built
    assert store["clear.png"].valid is not None
    assert len(store.search("a dog", 9)) == 4
