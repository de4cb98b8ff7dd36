"""A model is shown what is written: who reads which images, and that the kept tokens hold the answer's words whole."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import foveate
from foveate.core.errors import OptionError, ReadingWarning
from foveate.core.grid import Grid
from foveate.reading import Word, Words
from foveate.relevance.value import Found, Relevance
from foveate.tiles import refine
from foveate.video import stream
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, one_grid, project
from foveate.vlm.inputs import images as pages
from foveate.vlm.select.choice import Candidates, Choosing
from foveate.vlm.select.crops import write_words
from foveate.vlm.select.methods import choose
from foveate.vlm.select.words import follow_words, raise_words
from tests.pdf_files import make_pdf
from tests.video_scenes import photo as photograph
from tests.vlm_models import FAMILIES, attached, photo

pytestmark = pytest.mark.vlm
Bytes = NDArray[np.uint8]
LINES = (
    "RECEIPT 4711", "Date: 12/03/2021", "Milk 1.20", "Bread 2.35", "Butter 3.10", "Total 34.50", "Cash 40.00",
    "Change 5.50", "Thank you for coming",
)  # fmt: skip


def page(lines: Sequence[str] = LINES, size: tuple[int, int] = (640, 480), ink: int = 10) -> tuple[Bytes, list[Word]]:
    """A page with lines on it, and its words."""
    rgb, words = np.full((*size, 3), 255 - ink, np.uint8), []
    for number, line in enumerate(lines):
        x, y = 30, 60 + 60 * number
        for text in line.split():
            (wide, tall), below = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.8, 2)
            cv2.putText(rgb, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, 0.8, (ink,) * 3, 2, cv2.LINE_AA)
            words.append(Word(text, (y - tall - 1, x, y + below - 1, x + wide), 0.99, number))
            x += wide + 14
    return rgb, words


PAGE, WORDS = page()
EXACTLY = Choosing(floor=0.0)  # no even spread


def knows(rgb: Bytes) -> list[Word]:
    """A reader that knows the page, at any size."""
    scale = np.array([rgb.shape[0] / PAGE.shape[0], rgb.shape[1] / PAGE.shape[1]] * 2)
    return [word._replace(box=tuple((np.array(word.box) * scale).tolist())) for word in WORDS]


def box_of(text: str) -> tuple[float, float, float, float]:
    return next(word.box for word in WORDS if word.text == text)


def covered(layout: TokenLayout, kept: Sequence[Any], box: tuple[float, float, float, float]) -> float:
    """Share of a box, but for a margin, under kept tokens of the finest grids."""
    area = [(g.box[2] - g.box[0]) * (g.box[3] - g.box[1]) / g.count for g in layout.grids]
    margin = 0.12 * (box[2] - box[0])
    y, x = np.linspace(box[0] + margin, box[2] - margin, 30), np.linspace(box[1] + margin, box[3] - margin, 90)
    seen = np.zeros((30, 90), bool)
    for grid, one, size in zip(layout.grids, kept, area, strict=True):
        if size > 1.2 * min(area):
            continue
        y0, x0, y1, x1 = grid.box
        rows, columns = ((y - y0) / (y1 - y0) * grid.h).astype(int), ((x - x0) / (x1 - x0) * grid.w).astype(int)
        rows, columns = np.where((y < y0) | (y >= y1), -1, rows), np.where((x < x0) | (x >= x1), -1, columns)
        good = np.outer((rows >= 0) & (rows < grid.h), (columns >= 0) & (columns < grid.w))
        seen |= good & one.mask[np.clip(rows, 0, grid.h - 1)[:, None], np.clip(columns, 0, grid.w - 1)]
    return float(seen.mean())


# --- which images are read --------------------------------------------------------------------------------------------


def test_pages_and_photographs() -> None:
    def looks(rgb: Bytes) -> bool:
        return pages.is_page(foveate.encode(rgb, channels=pages.CHANNELS, long_side=128))

    assert looks(PAGE)
    assert looks(page(ink=245)[0])  # bright letters on a dark ground
    assert not looks(page(["34.50"])[0])  # too little to be a page
    assert not looks(np.full((300, 200, 3), 255, np.uint8))
    assert not looks(np.zeros((30, 500, 3), np.uint8))
    for name in ("child_with_broccoli.jpg", "cake_and_coffee.jpg", "yellow_bus.jpg"):
        assert not looks(photograph(480, 640, name))


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """An installed reader that writes down what it was given."""
    seen: list[tuple[int, ...]] = []

    def read(self: object, rgb: Bytes) -> list[Word]:
        seen.append(rgb.shape[:2])
        return knows(rgb)

    monkeypatch.setattr("foveate.reading.rapid.RapidReader.read", read)
    monkeypatch.setattr("foveate.reading.readers._kept", {})  # nothing of another test
    monkeypatch.setattr(pages, "can_read", lambda: True)
    return seen


def test_auto_reads_pages_and_leaves_photographs_alone(reader: list[tuple[int, ...]]) -> None:
    vlm = attached("qwen2_vl")
    encoded = vlm.see([PAGE, photo(200, 300), PAGE[:500]])  # of different sizes, in one prompt
    assert [texture.words is not None for texture in encoded.textures] == [True, False, True]
    assert reader == [(640, 480), (500, 480)]
    reader.clear()
    unread = vlm.see(PAGE, read=False).textures[0]
    assert unread.words is None
    assert unread.made_by["text"] != encoded.textures[0].made_by["text"]
    assert reader == []
    both = vlm.see([photo(200, 300), photo(90, 120)], read=True)
    assert [len(texture.words or ()) for texture in both.textures] == [len(WORDS)] * 2
    assert len(reader) == 2
    assert vlm.see(photo(60, 80), read=knows).textures[0].words is not None  # a function


def test_auto_without_a_reader_and_with_one_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    vlm = attached("qwen2_vl")
    monkeypatch.setattr(pages, "can_read", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert vlm.see(PAGE).textures[0].words is None
    monkeypatch.setattr(pages, "can_read", lambda: True)

    def fails(self: object, rgb: Bytes) -> list[Word]:
        raise RuntimeError("out of ink")

    monkeypatch.setattr("foveate.reading.rapid.RapidReader.read", fails)
    monkeypatch.setattr("foveate.reading.readers._kept", {})
    with pytest.warns(ReadingWarning, match=r"out of ink.*read=False"):
        encoded = vlm.see(PAGE)
    assert encoded.textures[0].words is None
    assert vlm.ask(encoded, "what is the total?", budget=10, max_new_tokens=2).tokens[0] == 10
    with pytest.raises(OptionError, match="out of ink"):
        vlm.see(PAGE, read=True)


@pytest.mark.parametrize("bad", ["yes", 3, "tesserakt", knows.__class__, [knows]])
def test_no_such_reader(bad: Any) -> None:
    with pytest.raises(OptionError):
        attached("qwen2_vl").see(PAGE, read=bad)
    with pytest.raises(OptionError):
        attached("qwen2_vl").see_video([PAGE], read=bad)


def test_a_pdf_brings_its_words(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    lines = b"BT /F 24 Tf 60 700 Td (Total 34.50) Tj ET", b"BT /F 24 Tf 60 700 Td (Due date: 12/03/2021) Tj ET"
    path = tmp_path / "bill.pdf"
    path.write_bytes(make_pdf(*lines))
    vlm = attached("qwen2_vl")
    for read, known in ((True, True), (False, False)):
        encoded = vlm.see(path, page=1, read=read)  # nobody reads: the words are the text layer's
        assert (encoded.textures[0].words is not None) is known
    both = vlm.see([path, path.read_bytes()], page=2)  # "auto"
    assert [texture.words.text for texture in both.textures if texture.words] == ["Due date: 12/03/2021"] * 2
    assert vlm.see(path, page=1, read=lambda rgb: []).textures[0].words is not None
    with pytest.raises(OptionError, match="page"):
        vlm.see(PAGE, page=2)


def test_frames_of_a_video(reader: list[tuple[int, ...]]) -> None:
    vlm = attached("qwen2_vl")
    small = np.asarray(cv2.resize(PAGE, (240, 320), interpolation=cv2.INTER_AREA), np.uint8)
    shown = vlm.see_video([small] * 4 + [small[::-1].copy()] * 2, read=True)  # pairs: two alike, then another
    assert [len(texture.words or ()) for texture in shown.textures] == [len(WORDS)] * 3
    assert len(reader) == 2
    assert all(texture.words is None for texture in vlm.see_video([photo(120, 160)] * 2).textures)
    reader.clear()
    frames = list(stream([small] * 2, "the total", read=lambda rgb: [Word("mine", (5, 5, 20, 60))], long_side=128))
    seen = vlm.see_video(frames, read="auto")
    assert seen.textures[0].words is not None
    assert seen.textures[0].words.texts == ("mine",)  # frames of a stream that read keep their words
    assert vlm.see_video(frames, read=False).textures[0] is frames[0].texture  # as it is
    assert reader == []


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in ("llava", "smolvlm")])
def test_the_answer_is_kept_whole(family: str) -> None:
    """In the grids of every family, at an eighth of the tokens or a few more: "34.50", and not "34.5"."""
    vlm = attached(family)
    encoded = vlm.see(PAGE, read=knows)
    layout = encoded.layouts[0]
    budget = max(10, layout.selectable // 8)
    made = vlm.prepare(encoded, "what is the total?", budget=budget)
    assert sum(map(len, made.chosen[0].kept)) == budget
    assert made.relevance[0].words[0].text == "34.50"
    assert covered(layout, made.chosen[0].kept, box_of("34.50")) == 1
    blind = vlm.prepare(vlm.see(PAGE, read=False), "what is the total?", budget=budget)
    even = vlm.prepare(encoded, "what is the total?", budget=budget, method="uniform")
    assert covered(layout, blind.chosen[0].kept, box_of("34.50")) < 1
    assert covered(layout, even.chosen[0].kept, box_of("34.50")) < 1


def test_a_page_of_several_images() -> None:
    vlm = attached("qwen2_vl")
    encoded = vlm.see([photo(300, 200), PAGE, PAGE[:300]], read=knows_all)
    answers = vlm.ask_many(encoded, ["what is the total?", "what is the date?"], budget=(20, 30, 9), max_new_tokens=2)
    for answer, text in zip(answers, ("34.50", "12/03/2021"), strict=True):
        assert [choice.count for choice in answer.chosen] == [20, 30, 9]
        assert covered(encoded.layouts[1], answer.chosen[1].kept, box_of(text)) == 1


def knows_all(rgb: Bytes) -> list[Word]:
    """Words of the page and of its upper part; none of a photograph."""
    if rgb.shape[1] != PAGE.shape[1]:
        return []
    return [word for word in WORDS if word.box[2] <= rgb.shape[0]]


@pytest.mark.parametrize("family", ["llava_next", "internvl", "idefics3"])
def test_tiles_before_the_overview(family: str) -> None:
    """Letters are legible in the tiles alone."""
    vlm = attached(family)
    encoded = vlm.see(PAGE, read=knows)
    layout = encoded.layouts[0]
    overview = max(
        range(len(layout.grids)), key=lambda n: (layout.grids[n].box[3] - layout.grids[n].box[1]) / layout.grids[n].w
    )
    how: dict[str, Any] = {"budget": max(8, layout.selectable // 10), "choosing": EXACTLY}
    read = vlm.prepare(encoded, "what is the total?", **how).chosen[0].kept
    assert len(read[overview]) <= 1
    assert max(map(len, read)) > 2


def test_a_sign_in_a_scene() -> None:
    """End to end: the tokens that are kept of a photograph with a sign lie on the sign."""
    scene = photograph(480, 640, "yellow_bus.jpg").copy()
    scene[40:110, 380:600] = (190, 20, 30)
    cv2.putText(scene, "STOP HERE", (395, 88), cv2.FONT_HERSHEY_SIMPLEX, 1.1, (255, 255, 255), 3, cv2.LINE_AA)
    words = [Word("STOP", (62, 394, 92, 478), 0.98, 0), Word("HERE", (62, 494, 92, 583), 0.98, 0)]
    vlm = attached("qwen2_vl")
    encoded = vlm.see(scene, read=lambda rgb: words)
    for question in ("where is the sign that says STOP?", 'what is beside "STOP"?'):
        answer = vlm.ask(encoded, question, budget=12, choosing=EXACTLY, max_new_tokens=2)
        assert answer.tokens == (12, encoded.tokens[0])
        assert covered(encoded.layouts[0], answer.chosen[0].kept, words[0].box) == 1, question
    asked = vlm.prepare(encoded, "what does the sign say?", budget=16, choosing=EXACTLY)
    assert min(covered(encoded.layouts[0], asked.chosen[0].kept, word.box) for word in words) == 1
    bus = vlm.prepare(encoded, "where is the bus?", budget=40).relevance[0]
    unread = vlm.prepare(vlm.see(scene, read=False), "where is the bus?", budget=40).relevance[0]
    np.testing.assert_allclose(bus.map, unread.map, atol=0.05)  # nothing written is asked for


@pytest.mark.filterwarnings("ignore::foveate.core.errors.BudgetWarning")  # the tiny model has 16 tokens a crop
def test_words_in_mode_crop_and_in_weights() -> None:
    vlm = attached("qwen2_vl")
    encoded = vlm.see(PAGE, read=knows)
    answer = vlm.ask(encoded, "what is the total?", budget=110, mode="crop", max_new_tokens=2)
    assert answer.regions is not None
    y0, x0, y1, x1 = box_of("34.50")
    assert any(a <= y0 and b <= x0 and c >= y1 and d >= x1 for a, b, c, d in answer.regions.boxes.tolist())
    textures = [encoded.textures[0], foveate.encode(PAGE[300:390, 90:180], long_side=128)]
    crop = write_words(textures, Words.of(WORDS, "mine"), answer.regions)[1].words  # nothing is read twice
    assert crop is not None
    assert "34.50" in crop.texts
    assert "Total" not in crop.texts
    scale = 90 / (answer.regions.boxes[0, 2] - answer.regions.boxes[0, 0])
    np.testing.assert_allclose(
        crop.boxes[crop.texts.index("34.50"), 0], (y0 - answer.regions.boxes[0, 0]) * scale, rtol=1e-4
    )
    weighed = vlm.prepare(encoded, "what is the total?", mode="weight")
    assert weighed.tokens[0] == weighed.tokens[1]


def test_why_names_the_word_of_a_tile() -> None:
    vlm = attached("internvl")
    encoded = vlm.see(PAGE, read=knows)
    made = vlm.prepare(encoded, "what is the total?", budget=6, choosing=EXACTLY)
    found = [str(kept.why(i).get("words", "")) for kept in made.chosen[0].kept for i in range(len(kept))]
    assert any(why.startswith("34.50") for why in found)


def relevance_of(words: Sequence[Found], grid: Grid) -> Relevance:
    plane = np.zeros(grid.shape, np.float32)
    return Relevance("q", plane, plane, 1.0, {}, {}, plane, None, grid, words=tuple(words))


boxes = st.tuples(st.floats(0, 250), st.floats(0, 330), st.floats(3, 60), st.floats(3, 150), st.floats(0.2, 1)).map(
    lambda b: Found("w", (b[0], b[1], min(300.0, b[0] + b[2]), min(400.0, b[1] + b[3])), b[4], "")
)


@given(st.lists(boxes, min_size=1, max_size=6), st.integers(2, 30), st.integers(2, 40), st.data())
def test_a_word_is_kept_as_a_whole_or_not_at_all(words: list[Found], h: int, w: int, data: st.DataObject) -> None:
    """But for the one that the budget ends in; and the budget is exact."""
    layout = one_grid(h, w, (300, 400))
    relevance = relevance_of(words, Grid(38, 50, 300, 400))
    budget = data.draw(st.integers(1, h * w))
    image = Candidates(layout, [relevance], [np.zeros((300, 400, 3), np.uint8)], lambda: np.empty((0, 0), np.float32))
    kept = choose("relevance", image, budget).kept[0]
    assert len(kept) == budget
    raised = raise_words(project(relevance, layout.grids[0])).map
    lowest = raised.ravel()[kept.indices].min()
    assert kept.mask[raised > lowest].all()
    for word in words:  # those that score more than the last token that is kept are there
        if word.score > lowest:
            y0, x0, y1, x1 = word.box
            middle = int((y0 + y1) / 2 * h / 300), int((x0 + x1) / 2 * w / 400)
            assert kept.mask[middle]


def test_words_of_grids() -> None:
    whole, tiles = TokenGrid(4, 4, (0, 0, 200, 400)), [TokenGrid(4, 4, (0, x, 200, x + 200)) for x in (0, 200)]
    layout = TokenLayout((whole, *tiles), 48)
    relevance = relevance_of([Found("a", (60, 230, 90, 290), 0.8, "why")], Grid(20, 40, 200, 400))
    relevance = replace(relevance, map=np.full((20, 40), 0.5, np.float32))
    on_grids = [project(relevance, grid) for grid in layout.grids]
    assert [len(each.words) for each in on_grids] == [1, 0, 1]
    np.testing.assert_array_equal(on_grids[2].words[0].box, (60, 30, 90, 90))
    found = follow_words(on_grids, layout)
    np.testing.assert_allclose(found[0].map, 0.5 * 0.2, atol=1e-6)  # the overview counts less
    np.testing.assert_array_equal(found[1].map, on_grids[1].map)
    assert found[2].map.max() == np.float32(0.8)
    assert (found[2].map == np.float32(0.8)).sum() == 2
    plain = [replace(each, words=()) for each in on_grids]
    assert follow_words(plain, layout) == plain


# --- words stay with the texture --------------------------------------------------------------------------------------


def test_refining_keeps_words() -> None:
    texture = foveate.encode(PAGE, read=knows, long_side=256)
    for again in (refine(texture), refine(texture, "a dog", share=0.3)):
        assert again.words is texture.words
        np.testing.assert_array_equal(again.channel("text"), texture.channel("text"))
    encoded = attached("qwen2_vl").see(PAGE, read=knows)
    assert isinstance(encoded.textures[0].words, Words)
