"""Several images at once: equal to one by one, bad ones named and the others kept; and the hint at large images."""

from __future__ import annotations

import pickle
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import foveate
import foveate.pipeline
from foveate.cli.main import app
from foveate.core.errors import (
    BadImagesError,
    EncoderOutputError,
    ImageDecodeError,
    ImageError,
    ImageNotFoundError,
    OptionError,
    PageError,
    ReadingWarning,
    ResolutionHint,
)
from foveate.core.threads import MANY, count_threads, map_in_order, once, side_by_side
from foveate.encoders.nano import load_network
from foveate.encoders.protocol import DenseFeatures
from foveate.texture import stack
from tests.conftest import PHOTOS, same
from tests.pdf_files import make_pdf, text
from tests.store_toys import Toy

BROCCOLI, BUS = PHOTOS / "child_with_broccoli.jpg", PHOTOS / "yellow_bus.jpg"
RANDOM = np.random.default_rng(0).integers(0, 256, (90, 70, 3)).astype(np.uint8)


def test_several_are_equal_to_one_by_one_and_in_order() -> None:
    sources: list[Any] = [str(BUS), BROCCOLI.read_bytes(), Image.open(BUS), RANDOM, foveate.load_image(BROCCOLI)]
    found = foveate.encode(sources, threads=3, long_side=256)
    names = ["yellow_bus.jpg", "bytes", "PIL image", "array", "child_with_broccoli.jpg"]
    assert [texture.name for texture in found] == names
    for place in (0, 1, 3):
        assert same(found[place], foveate.encode(sources[place], long_side=256))
    assert np.array_equal(found[4].embedding, found[1].embedding)
    assert all(map(same, foveate.encode(sources[3:], threads=1, long_side=256), found[3:]))


def test_keywords_are_those_of_one(tmp_path: Path) -> None:
    native = foveate.encode([RANDOM, RANDOM[:40]], long_side="native", preset="minimum")
    assert [texture.preset for texture in native] == ["minimum"] * 2
    assert same(native[1], foveate.encode(RANDOM[:40], long_side="native", preset="minimum"))
    bright, dim = (foveate.load_image(each, value_range=(0, 1)) for each in (RANDOM / 255, RANDOM / 510))
    floats = foveate.encode([bright, dim], channels="fast", rank=4)
    assert floats[0].rank == 4
    assert np.array_equal(floats[0].pixel, RANDOM)
    assert foveate.encode([]) == []
    assert len(foveate.encode((BUS,), channels="fast", long_side=128)) == 1


def test_a_bad_image_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(BUS.read_bytes()[:5000])
    with pytest.raises(
        BadImagesError, match=r"2 of 4 images: images\[1\]: .*cut\.jpg.*images\[3\]: .*gone\.jpg"
    ) as caught:
        foveate.encode([BUS, cut, RANDOM, tmp_path / "gone.jpg"], channels="fast", long_side=128)
    error = caught.value
    assert {place: type(each) for place, each in error.errors.items()} == {1: ImageDecodeError, 3: ImageNotFoundError}
    assert [texture is None for texture in error.textures] == [False, True, False, True]
    assert same(error.textures[0], foveate.encode(BUS, channels="fast", long_side=128))
    assert isinstance(error, ImageError)
    assert "other 2 were encoded" in error.fix
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.textures == []


def test_a_page_that_is_not_there_is_one_bad_image(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    (tmp_path / "one.pdf").write_bytes(make_pdf(text((50, 700, 40, "one"))))
    (tmp_path / "two.pdf").write_bytes(make_pdf(text((50, 700, 40, "first")), text((50, 700, 40, "second"))))
    images: list[Any] = [RANDOM, tmp_path / "one.pdf", tmp_path / "two.pdf"]
    with pytest.raises(BadImagesError, match=r"1 of 3 images: images\[2\]: 'two\.pdf' has 2 pages") as caught:
        foveate.encode(images, channels="fast", long_side=128)
    assert isinstance(caught.value.errors[2], PageError)
    assert [texture is None for texture in caught.value.textures] == [False, False, True]
    assert [each.name for each in foveate.encode(images, page=1, channels="fast", long_side=128)] == [
        "array", "one.pdf", "two, page 1.pdf",
    ]  # fmt: skip
    with pytest.raises(BadImagesError, match=r"images\[1\]: page=2\n(?s:.*)has pages 1 to 1"):
        foveate.encode(images, page=2, channels="fast", long_side=128)
    with pytest.raises(OptionError, match="page=1 of an image"):
        foveate.encode(RANDOM, page=1)


def test_what_is_wrong_for_all_is_raised_at_once_and_of_many_bad_ones_a_few_are_listed() -> None:
    with pytest.raises(BadImagesError, match=r"5 of 5 images: images\[0\].*images\[2\].*\.\.\.") as caught:
        foveate.encode([f"{i}.jpg" for i in range(5)])
    assert "images[3]" not in str(caught.value)
    assert "were encoded" not in str(caught.value)
    with pytest.raises(OptionError, match="rank"):
        foveate.encode([BUS, "gone.jpg", BUS], rank=100_000)
    with pytest.raises(OptionError, match="threads"):
        foveate.encode([BUS], threads=0)
    with pytest.raises(OptionError, match="threads"):
        foveate.encode([BUS], threads=True)
    assert len(foveate.encode([RANDOM], threads=100, channels="fast")) == 1  # the 16 are only the default's


class Together(Toy):
    """It takes several images at once."""

    long_side = 64

    def __init__(self, lost: int = 0) -> None:
        self.sizes: list[int] = []
        self.lost = lost

    def encode_images(self, images: list[np.ndarray], *, long_side: int | None = None) -> list[DenseFeatures]:
        assert threading.current_thread() is threading.main_thread()
        self.sizes.append(len(images))
        return [self.encode_image(rgb) for rgb in images][self.lost :]


def test_an_encoder_that_takes_several_gets_batches() -> None:
    images = [np.roll(RANDOM, i, 1) for i in range(40)]
    encoder = Together()
    found = foveate.encode(images, encoder=encoder, channels="fast")
    assert encoder.sizes == [16, 16, 8]
    assert all(same(a, foveate.encode(b, encoder=Toy(), channels="fast")) for a, b in zip(found, images, strict=True))
    encoder = Together()
    with pytest.raises(BadImagesError) as caught:
        foveate.encode([*images[:3], "gone.jpg", *images[3:]], encoder=encoder, channels="fast")
    assert encoder.sizes == [15, 16, 9]
    assert caught.value.textures[3] is None
    assert same(caught.value.textures[4], found[3])
    with pytest.raises(EncoderOutputError, match="returned 1 features for 2 images"):
        foveate.encode(images[:2], encoder=Together(lost=1))


def test_words_that_could_not_be_read_are_warnings_of_the_callers_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foveate.pipeline, "choose_reader", lambda read, usual: Broken())
    with pytest.warns(ReadingWarning, match="without its words") as caught:
        foveate.encode([BUS, BROCCOLI], channels="fast", long_side=128)
    assert [Path(one.filename).name for one in caught] == ["test_many.py"] * 2


class Broken:
    name = "broken"

    def read(self, rgb: np.ndarray) -> Any:
        raise OptionError("nothing to read", expected="words", fix="none")


# --- threads ----------------------------------------------------------------------------------------------------------


def test_results_come_in_order_a_few_ahead_and_an_error_stops_the_rest() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for i in range(100):
            taken.append(i)
            yield i

    def work(i: int) -> int:
        time.sleep(0.02 if i == 0 else 0)
        if i == 50:
            raise KeyError(i)
        return i

    results = map_in_order(work, items(), 2)
    assert next(results) == 0
    assert len(taken) <= 5
    assert [next(results) for _ in range(49)] == list(range(1, 50))
    with pytest.raises(KeyError):
        next(results)
    assert len(taken) < 60


def test_threads_beside_each_other_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def counts(threads: int, share: bool = True) -> list[int]:
        return list(map_in_order(lambda _: count_threads(), range(6), threads, many=MANY if share else 0))

    for cores, shares in (("8", {1: 8, 2: 4, 3: 2, 16: 1}), ("1", {1: 1, 2: 1})):
        monkeypatch.setenv("OMP_NUM_THREADS", cores)
        for threads, share in shares.items():
            assert counts(threads) == [share] * 6
        assert counts(2, share=False) == [int(cores)] * 6
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    assert counts(1) == [0] * 6  # all
    assert counts(3) == [2] * 6


def test_a_long_list_looks_with_a_network_of_one_thread_each_and_a_short_one_with_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = set[int]()

    def load(path: Path, threads: int, *state: Any) -> Any:
        asked.add(threads)
        return load_network(path, threads, *state)

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr("foveate.encoders.nano.load_network", load)
    alone = foveate.encode(BUS, channels="fast", long_side=128)
    asked.clear()
    for images, threads in (([BUS], {2}), ([BUS] * 3, {2}), ([BUS] * MANY, {1})):
        found = foveate.encode(images, threads=2, channels="fast", long_side=128)
        assert all(same(each, alone) for each in found)
        assert asked == threads
        asked.clear()


def test_two_calls_are_made_by_two_threads_where_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def who() -> int:
        return threading.get_ident()

    def fail() -> None:
        raise KeyError("second")

    here, met = who(), threading.Barrier(2, timeout=10)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    side_by_side(met.wait, met.wait)  # each waits for the other one
    with pytest.raises(KeyError, match="second"):
        side_by_side(who, fail)
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda: 1 / 0, fail)
    with ThreadPoolExecutor(4) as pool:  # more callers than second threads, and calls within calls
        found = pool.map(
            lambda i: side_by_side(lambda: i, lambda: side_by_side(lambda: i + 1, lambda: i + 2)), range(200)
        )
        assert list(found) == [(i, (i + 1, i + 2)) for i in range(200)]
    with ThreadPoolExecutor(1) as ended:  # as all are once the main thread has ended, and others still encode
        pass
    with monkeypatch.context() as patched:
        patched.setattr("foveate.core.threads._second_thread", lambda: ended)
        assert side_by_side(who, who) == (here, here)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert side_by_side(who, who) == (here, here)


def test_what_is_large_is_loaded_once_whoever_asks() -> None:
    loaded: list[str] = []

    @once(2)
    def load(name: str) -> str:
        time.sleep(0.02)
        loaded.append(name)
        return name.upper()

    assert list(map_in_order(load, ["a", "a", "b", "a", "b"], 4)) == ["A", "A", "B", "A", "B"]
    assert sorted(loaded) == ["a", "b"]
    assert load.__name__ == "load"  # type: ignore[attr-defined]
    load.cache_clear()
    assert load("b") == load("b") == "B"
    assert sorted(loaded) == ["a", "b", "b"]


def test_what_is_loaded_is_there_while_something_else_loads() -> None:
    begun, go_on = threading.Event(), threading.Event()

    @once(2)
    def load(name: str) -> str:
        if name == "slow":
            begun.set()
            assert go_on.wait(10)
        return name

    load("quick")
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(load, "slow")
        assert begun.wait(10)
        assert pool.submit(load, "quick").result(10) == "quick"
        assert not slow.done()
        go_on.set()
        assert slow.result(10) == "slow"


# --- the hint ---------------------------------------------------------------------------------------------------------


def large(side: int) -> np.ndarray:
    return np.broadcast_to(RANDOM[:40, :1], (40, side, 3)).copy()


def hints(**how: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        foveate.encode(channels=["saliency"], **how)
    assert all(one.category is ResolutionHint and Path(one.filename).name == "test_many.py" for one in caught)
    return [str(one.message) for one in caught]


def test_an_image_much_larger_than_the_encoder_sees_is_hinted_at() -> None:
    (text,) = hints(image=large(2049))
    assert all(part in text for part in ("2048", "'nano' sees 512", "long_side=1024", "'native'", "foveate.tiles"))
    assert hints(image=large(2048)) == []
    assert hints(image=large(2049), long_side=512) == []
    assert hints(image=large(2049), preset="minimum") == []  # which names it
    assert len(hints(image=[large(2049), RANDOM, large(3000)])) == 1
    assert hints(image=[large(2049)], encoder=Toy()) == []  # which does not say what it sees
    assert len(hints(image=[large(300)], encoder=Together())) == 1


def test_pythons_own_filter_shows_it_once_a_line(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("default")
    for side in (2100, 2500):
        foveate.encode(large(side), channels=["saliency"])
    assert len(recwarn) == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", ["look", "encode", "channels"])
def test_commands_speak_of_it_below_their_table(tmp_path: Path, command: str) -> None:
    file, out = str(tmp_path / "wide.png"), str(tmp_path / "out")
    Image.fromarray(large(2100)).save(file)
    arguments = {
        "look": ["look", file, "a dog", "--out", out],
        "encode": ["encode", file, "-o", f"{out}.safetensors"],
        "channels": ["channels", file, "--channels", "saliency", "--out", out],
    }[command]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert ("hint: " in result.stderr and "--long-side 1024" in result.stderr) == (command != "channels")
    assert "hint: " not in result.stdout
    assert "ResolutionHint" not in result.output
    if command == "look":
        assert "hint: " not in CliRunner().invoke(app, [*arguments, "--long-side", "512"]).output


# --- batches ----------------------------------------------------------------------------------------------------------


def test_several_textures_are_one_array_and_one_question_asks_all() -> None:
    images = [np.random.default_rng(i).integers(0, 256, (64, 96 + 32 * (i > 1), 3), np.uint8) for i in range(3)]
    textures = foveate.encode(images, long_side=64)
    batch = stack(textures)
    assert batch.shape == (3, 13, 32, 32)
    assert batch.dtype == np.float32
    for one, texture in zip(batch, textures, strict=True):
        np.testing.assert_array_equal(one, texture.dense(layout="grid13"))
    assert stack(textures[:2], "lean").shape == (2, 36, *textures[0].grid.shape)
    np.testing.assert_array_equal(stack(textures[:1], "lean")[0, 5].ravel(), textures[0].tokens(layout="lean")[:, 5])
    with pytest.raises(OptionError, match=r"textures of 4 x 8 and 5 x 8 cells") as caught:
        stack(textures, "lean")
    assert "shape=(32, 32)" in caught.value.fix
    assert stack(textures, "full40", shape=(6, 7)).shape == (3, 40, 6, 7)

    found = foveate.score(textures, "a dog")
    for one, texture in zip(found, textures, strict=True):
        np.testing.assert_array_equal(one.map, foveate.score(texture, "a dog").map)
    assert found.on((32, 32)).map.shape == (3, 32, 32)
    assert [len(kept) for kept in foveate.allocate(found, 5)] == [5, 5, 5]
    with pytest.raises(OptionError, match=r"maps of 4 x 8 and 5 x 8 cells") as caught:
        found.map  # noqa: B018
    assert "on((32, 32))" in caught.value.fix
    there = foveate.score([texture.to("cpu") for texture in textures[:2]], "a dog")
    np.testing.assert_allclose(there.map, found[:2].map, atol=3e-6)


@pytest.mark.parametrize("textures", [[], None, "ab", [1], 5])
def test_what_is_no_list_of_textures_is_refused(textures: Any) -> None:
    with pytest.raises(OptionError, match="textures"):
        stack(textures)
    with pytest.raises(OptionError, match="texture"):
        foveate.score(textures, "a dog")


def test_several_questions_of_several_images_are_refused() -> None:
    texture = foveate.encode(np.zeros((64, 64, 3), np.uint8), long_side=64, channels="fast")
    with pytest.raises(OptionError, match="2 textures and 2 questions") as caught:
        foveate.score([texture, texture], ["a dog", "a cat"])  # type: ignore[call-overload]
    assert "for one in textures" in caught.value.fix
    with pytest.raises(OptionError, match="some of which are on a device"):
        foveate.score([texture, texture.to("cpu")], "a dog")  # type: ignore[list-item]
