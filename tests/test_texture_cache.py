"""The cache in memory: bytes are bounded, values are made once, whoever asks. And the commands around the store."""

from __future__ import annotations

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from foveate import Store
from foveate.cli.main import app
from foveate.core.errors import FoveateError, OptionError
from foveate.store import TextureCache
from tests.conftest import PHOTOS
from tests.store_toys import Toy, pictures


def sized(max_bytes: int) -> TextureCache[bytes]:
    return TextureCache(max_bytes, len)


def test_the_least_recently_used_goes_first() -> None:
    cache = sized(10)
    for key in "abc":
        cache.get(key, lambda: b"1234")
    cache.get("b", lambda: b"other")
    found = cache.statistics
    assert (found.hits, found.misses, found.evictions, found.entries, found.nbytes) == (1, 3, 1, 2, 8)
    assert cache.get("a", lambda: b"new") == b"new"
    assert cache.get("b", lambda: b"other") == b"1234"
    assert cache.get("large", lambda: b"x" * 11) == b"x" * 11
    assert cache.statistics.entries == 2
    cache.drop("b")
    cache.drop("never there")
    assert cache.get("b", lambda: b"again") == b"again"
    cache.clear()
    assert (cache.statistics.entries, cache.statistics.nbytes) == (0, 0)


@pytest.mark.parametrize("peeks", [False, True])
def test_what_grows_is_counted_again_and_what_is_dropped_meanwhile_is_not_kept(peeks: bool) -> None:
    cache: TextureCache[list[int]] = TextureCache(10, len)
    value = cache.get("a", lambda: [1])
    cache.get("b", lambda: [2])
    assert cache.peek("none") is None
    value += [0] * 9
    assert (cache.peek if peeks else lambda key: cache.get(key, list))("a") is value
    assert (cache.statistics.entries, cache.statistics.nbytes) == (1, 10)
    cache.clear()

    def dropped() -> list[int]:
        cache.drop("a")
        return [0]

    assert cache.get("a", dropped) == [0]
    assert cache.statistics.entries == 0
    for size in [-1, 1.5, True, "1 MB"]:
        with pytest.raises(OptionError):
            TextureCache(size)  # type: ignore[arg-type]


def test_single_flight_and_failures() -> None:
    cache, made, gate = sized(100), [], threading.Event()

    def slow() -> bytes:
        made.append(1)
        gate.wait(10)
        return b"value"

    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(cache.get, "a", slow) for _ in range(8)]
        while cache.statistics.waits < 7:
            time.sleep(0.001)
        gate.set()
        assert {one.result() for one in waiting} == {b"value"}
    assert len(made) == 1

    def fails() -> bytes:
        raise OSError("once")

    with pytest.raises(OSError, match="once"):
        cache.get("b", fails)
    assert cache.get("b", lambda: b"fine") == b"fine"


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    pictures(tmp_path / "photos", 12)
    store = Store(tmp_path / "s.fov", encoder=Toy())
    store.add(tmp_path / "photos", workers=3)
    right = {name: store[name].embedding.tobytes() for name in store}
    tight = Store(tmp_path / "s.fov", encoder=Toy(), cache=9_000)  # a few textures

    def ask(seed: int) -> int:
        rng = random.Random(seed)
        for _ in range(25):
            name = rng.choice(list(right))
            texture = tight[name]
            assert texture.embedding.tobytes() == right[name]
            assert texture.scores(Toy().encode_text(["a dog"])).shape == (1, *texture.grid.shape)
            assert not texture.embedding.flags.writeable
        return 25

    with ThreadPoolExecutor(40) as pool:
        assert sum(pool.map(ask, range(40))) == 1000
    found = tight.cached
    assert found.hits + found.misses + found.waits == 1000
    assert found.nbytes <= 9_000
    assert found.evictions > 0


# --- commands ---------------------------------------------------------------------------------------------------------


def run(*arguments: object) -> dict[str, object]:
    result = CliRunner().invoke(app, [*(str(a) for a in arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    said: dict[str, object] = json.loads(result.stdout)
    return said


@pytest.mark.slow
def test_index_search_and_store_commands(tmp_path: Path) -> None:
    photos, store = tmp_path / "photos", tmp_path / "photos.fov"
    photos.mkdir()
    for file in PHOTOS.glob("*.jpg"):
        with Image.open(file) as image:
            image.reduce(2).save(photos / file.name)
    (photos / "bad.jpg").write_text("no image")
    said = run("index", photos, "-o", store, "--long-side", "256")
    assert (said["added"], said["images"]) == (len(list(PHOTOS.glob("*.jpg"))), len(list(PHOTOS.glob("*.jpg"))))
    assert [Path(bad["path"]).name for bad in said["bad"]] == ["bad.jpg"]  # type: ignore[attr-defined]
    assert run("index", photos, "-o", store)["added"] == 0
    found = run("search", store, "cake", "broccoli", "-k", 5, "--out", tmp_path / "out")
    for query in found["queries"]:  # type: ignore[attr-defined]
        assert len(query["hits"]) == said["images"]
        with Image.open(query["sheet"]) as sheet:
            assert sheet.width > 1000
    assert Path(found["queries"][0]["hits"][0]["path"]).name == "cake_and_coffee.jpg"  # type: ignore[index]
    assert run("search", store, "cake", "--no-sheet", "--out", tmp_path / "none")["queries"][0]["sheet"] is None  # type: ignore[index]
    assert not (tmp_path / "none").exists()
    assert run("store", "verify", store)["ok"] is True
    assert run("store", "stats", store)["rank"] == 24
    assert run("store", "compact", store)["freed"] == 0
    with pytest.raises(FoveateError, match="no store at"):
        run("search", tmp_path / "nowhere", "cake")
    with pytest.raises(FoveateError, match="is a file"):
        run("search", store, photos / "cake_and_coffee.jpg")
