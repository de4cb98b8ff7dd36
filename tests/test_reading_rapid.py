"""RapidOCR on pages that are drawn here: words at their place, whatever the page."""

from __future__ import annotations

import threading
from collections import Counter
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import rapidocr
from PIL import Image, ImageDraw, ImageFont

import foveate
from foveate.core.errors import ModelFilesError, OptionError
from foveate.core.grid import Grid
from foveate.reading import rapid
from foveate.reading.rapid import PIXELS, Letters, RapidReader, find_turn
from foveate.reading.readers import read_words
from tests.conftest import PHOTOS

LINES = ("Invoice number 4711", "Total amount 34.50", "Paid in cash on Monday", "Date 23/01/2018")


def draw(*lines: str, size: int = 24, shape: tuple[int, int] = (220, 420), step: float = 2.0) -> np.ndarray:
    """Lines of print on white: uint8 [H, W, 3]."""
    page = Image.new("RGB", shape[::-1], "white")
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(size)
    for i, line in enumerate(lines):
        pen.text((20, 14 + i * size * step), line, fill="black", font=font)
    return np.array(page)


PAGE = draw(*LINES)


def ink(rgb: np.ndarray) -> np.ndarray:
    return np.asarray(rgb.min(2) < 128)


@pytest.fixture
def as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print that is large enough is not enlarged first: the detector takes as long as an image is large."""
    monkeypatch.setattr(rapid, "SHORT_SIDE", 1)


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("as_it_is")
def test_words_stand_where_they_are_written() -> None:
    upright = RapidReader().read(PAGE)
    assert upright.text.split("\n") == list(LINES)
    assert upright.reader == f"rapidocr {version('rapidocr')}"
    assert upright.turned == 0
    assert upright.confidences.min() > 0.8
    mask = upright.mask(PAGE.shape[:2], Grid(1, 1, *PAGE.shape[:2]))
    assert ink(PAGE)[mask == 0].sum() < 0.02 * ink(PAGE).sum()
    for word in upright:
        y0, x0, y1, x1 = np.rint(word.box).astype(int)
        assert ink(PAGE)[y0:y1, x0:x1].any()
        assert y1 - y0 < 40
    for a, b in pairwise(upright):
        assert a.line != b.line or a.box[3] <= b.box[1] + 2  # no word reaches into the next


@pytest.mark.usefixtures("as_it_is")
@pytest.mark.parametrize("quarters", [1, 2, 3])
def test_turned_pages_are_read_and_their_boxes_come_back(quarters: int) -> None:
    page = np.ascontiguousarray(np.rot90(draw(*LINES[:2], shape=(110, 420)), quarters))
    words = RapidReader().read(page)
    assert words.text.split("\n") == list(LINES[:2])
    assert words.turned == 90 * quarters
    mask = words.mask(page.shape[:2], Grid(1, 1, *page.shape[:2]))
    assert ink(page)[mask == 0].sum() < 0.04 * ink(page).sum()
    first = words[0].box
    corner = [(0, 0), (1, 0), (1, 1), (0, 1)][quarters]  # of the page where its first word is
    assert [(first[0] + first[2]) / 2 > page.shape[0] / 2, (first[1] + first[3]) / 2 > page.shape[1] / 2] == [
        *map(bool, corner)
    ]


@pytest.mark.usefixtures("as_it_is")
def test_lines_askew_stay_in_their_order_and_other_scripts_are_read_as_they_stand() -> None:
    askew = cv2.warpAffine(draw(*LINES[:3], shape=(250, 460)), cv2.getRotationMatrix2D((200, 100), 8, 1), (460, 250),
                          borderValue=(255, 255, 255))  # fmt: skip
    assert RapidReader().read(askew.astype(np.uint8)).text.split("\n") == list(LINES[:3])
    page = draw("\u0391\u03b8\u03ae\u03bd\u03b1 2026", shape=(60, 260))  # Greek: in the default font
    assert "2026" in RapidReader().read(page).text


def test_small_print_in_a_small_picture_and_light_on_dark() -> None:
    words = RapidReader().read(draw(*LINES[:2], size=9, shape=(60, 150)))
    assert words.text.split("\n") == list(LINES[:2])
    assert RapidReader().read(255 - draw(LINES[1], shape=(60, 300))).text == LINES[1]


@pytest.mark.parametrize(
    "rgb",
    [
        np.full((100, 140, 3), 255, np.uint8),
        np.zeros((1, 1, 3), np.uint8),
        np.zeros((1, 900, 3), np.uint8),
        np.zeros((900, 1, 3), np.uint8),
        np.random.default_rng(0).integers(0, 256, (100, 150, 3), np.uint8),
        np.asarray(cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (100, 150, 3), np.uint8), (0, 0), 2)),
    ],
    ids=["blank", "dot", "row", "column", "noise", "clouds"],
)
def test_nothing_is_read_where_nothing_is_written(rgb: np.ndarray) -> None:
    words = read_words(rgb, "rapidocr")
    assert (len(words), words.turned) == (0, 0)


def test_a_photograph_is_not_a_letter() -> None:
    """The recogniser takes the whole picture of a child for a character, at .78."""
    assert not RapidReader().read(foveate.load_image(PHOTOS / "child_with_broccoli.jpg").rgb)


@pytest.mark.usefixtures("as_it_is")
def test_a_scribble_is_not_turned_into_words() -> None:
    page, rng = np.full((200, 400, 3), 255, np.uint8), np.random.default_rng(3)
    points = np.array([200, 100]) + np.cumsum(rng.normal(0, 12, (120, 2)), 0)
    cv2.polylines(page, [points.astype(np.int32)], False, (30, 30, 60), 2)
    words = RapidReader().read(page)
    assert all(word.confidence < 0.95 for word in words)
    assert len(words) <= 2


@pytest.mark.slow
def test_small_print_on_a_large_page_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapid, "PIXELS", PIXELS // 8)
    line = "hotel india juliet kilo lima mike november oscar papa quebec"
    page = np.full((640, 650, 3), 255, np.uint8)  # four tiles; print on the seams of both directions
    page[240:450] = draw(*[line] * 3, size=14, shape=(210, 650), step=4.5)
    page[30:150] = draw("A large headline", size=60, shape=(120, 650))
    assert len(rapid.cut_tiles(640, 650)) == 4
    words = RapidReader().read(page)
    found = Counter(words.texts)
    assert words.lines[0].text == "A large headline"
    assert sum(found[name] for name in line.split()) >= 0.95 * 3 * len(line.split())
    assert max(found[name] for name in line.split()) <= 3
    assert len(words.lines) == 4


@pytest.mark.usefixtures("as_it_is")
@pytest.mark.slow
def test_a_long_strip_is_one_line_and_takes_little_memory() -> None:
    import resource

    strip = np.ascontiguousarray(draw(" ".join(LINES * 2), size=20, shape=(50, 1800))[12:43])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = RapidReader().read(strip)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 10**6  # KB
    assert len(words.lines) == 1
    assert Counter(words.texts)["Monday"] == 2


def quad(x0: float, y0: float, x1: float, y1: float) -> np.ndarray:
    return np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], np.float32)


# --- what RapidOCR may do ---------------------------------------------------------------------------------------------


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A detector with these boxes and a recogniser with this result in the place of RapidOCR's."""
    fake = SimpleNamespace(boxes=[], found=None)
    pair = (lambda bgr: SimpleNamespace(boxes=fake.boxes), lambda crop: fake.found)
    monkeypatch.setattr(rapid, "engines", lambda: pair)
    return fake


def result(text: str, columns: Any, confidences: Any, width: float = 10, score: float = 0.9) -> SimpleNamespace:
    info = SimpleNamespace(word_cols=columns, confs=confidences, line_txt_len=width)
    return SimpleNamespace(txts=(text,), scores=(score,), word_results=(info,))


def test_a_line_whose_letters_are_not_placed_is_cut_by_its_text(engines: SimpleNamespace) -> None:
    engines.boxes = [quad(20, 20, 220, 40) + 16]
    for odd in (
        SimpleNamespace(txts=("TOTAL 34.50",), scores=(0.9,), word_results=()),
        SimpleNamespace(txts=("TOTAL 34.50",), scores=(0.9,)),
        result("TOTAL 34.50", [[1, 2]], [0.9] * 11),
        result("TOTAL 34.50", [[5, 4, 3, 2, 1, 0, 9, 8, 7, 6]], [0.9] * 11),
        result("TOTAL 34.50", None, None),
    ):
        engines.found = odd
        words = read_words(np.random.default_rng(id(odd) % 97).integers(0, 256, (100, 300, 3), np.uint8), "rapidocr")
        assert words.texts == ("TOTAL", "34.50")
        assert words[0].box[3] < words[1].box[1] + 1
        assert words.confidences.tolist() == pytest.approx([0.9, 0.9])


def test_no_line_is_lost_beside_one_without_words(engines: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    engines.boxes = [quad(20, y, 220, y + 20) + 16 for y in (20, 50, 80)]
    texts = iter(["one", "", "three"] * 3)
    monkeypatch.setattr(rapid, "read_crop", lambda crop: Letters.even(next(texts), 0.95))
    assert RapidReader().read(np.full((120, 300, 3), 255, np.uint8)).text == "one\nthree"


def test_boxes_that_are_none(engines: SimpleNamespace) -> None:
    engines.found = result("word", [[1, 2, 3, 4]], [0.9] * 4)
    for boxes in (None, [], np.zeros((0, 4, 2)), [quad(5, 5, 5, 5)], [quad(-1e4, -1e4, 1e4, 1e4)]):
        engines.boxes = boxes
        read_words(np.full((50, 60, 3), len(str(boxes)) % 255, np.uint8), "rapidocr")
    engines.boxes = [quad(np.nan, 0, 9, 9)]
    with pytest.raises(OptionError, match="reader 'rapidocr"):
        read_words(np.full((50, 60, 3), 1, np.uint8), "rapidocr")


def test_models_that_cannot_be_loaded_and_those_that_can_in_silence_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    package = Path(str(rapidocr.__file__)).parent
    damaged = tmp_path / "models"
    damaged.mkdir()
    monkeypatch.setattr(rapidocr, "__file__", str(tmp_path / "__init__.py"))
    rapid.engines.cache_clear()
    image = np.random.default_rng(11).integers(0, 256, (40, 40, 3), np.uint8)
    with pytest.raises(ModelFilesError, match="could not be loaded") as caught:  # no file
        foveate.encode(image, read=True, long_side=64)
    assert "--force-reinstall rapidocr" in caught.value.fix
    for file in (package / "models").glob("*.onnx"):
        (damaged / file.name).write_bytes(file.read_bytes()[:1000])
    with pytest.raises(ModelFilesError):  # half a file
        foveate.encode(image, read=True, long_side=64)
    monkeypatch.undo()
    for name in ("socket.connect", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(f"socket.{name}", lambda *a, **k: pytest.fail("it asks a network"))
    assert not read_words(np.full((64, 64, 3), 254, np.uint8), "rapidocr")  # and again when it is mended
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("as_it_is")
def test_from_several_threads() -> None:
    found: list[str] = []
    strip = draw(LINES[1], shape=(60, 300))
    threads = [threading.Thread(target=lambda: found.append(RapidReader().read(strip).text)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [LINES[1]] * 2


def test_lines_that_cannot_be_read_have_no_say_in_a_pages_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    sure = iter([0.3, 0.9, 0.4, 0.9, 0.45, 0.99, 0.2, 0.99])  # four lines upright, then on their heads
    monkeypatch.setattr(rapid, "read_crop", lambda crop: Letters.even("word", next(sure)))
    lines = np.array([quad(20, y, 220, y + 20) for y in (20, 50, 80, 110)])
    assert find_turn(PAGE, lines) == 2
    monkeypatch.setattr(rapid, "read_crop", lambda crop: Letters.even("word", 0.4))
    assert find_turn(PAGE, lines) == 0
