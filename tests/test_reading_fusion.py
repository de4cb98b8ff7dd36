"""What was read, in the map of a question: it takes the map's place where words answer, and stays silent elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import foveate
from foveate.core.errors import OptionError, QueryError
from foveate.reading.words import Word, Words
from foveate.relevance.written import UNREAD, _on_thing, page_of
from foveate.texture.texture import Texture

PAGE = [
    Word("RECEIPT", (20, 180, 50, 330), 0.99, 0),
    Word("Date:", (100, 40, 120, 90), 0.98, 1),
    Word("12/03/2024", (100, 110, 120, 220), 0.98, 1),
    Word("Apples", (200, 40, 220, 110), 0.97, 2),
    Word("3.20", (200, 400, 220, 450), 0.97, 3),
    Word("TOTAL", (300, 40, 320, 110), 0.99, 4),
    Word("34.50", (300, 400, 320, 460), 0.99, 5),
    Word("From:", (400, 40, 420, 90), 0.99, 6),
    Word("Ann", (400, 110, 420, 150), 0.99, 6),
    Word("Lee", (400, 155, 420, 190), 0.99, 6),
]


@pytest.fixture(scope="module")
def blank() -> Texture:
    """A sheet of paper with grey bars in the place of words: nano sees nothing in it."""
    rgb = np.full((512, 512, 3), 245, np.uint8)
    for word in PAGE:
        y0, x0, y1, x1 = map(int, word.box)
        rgb[y0 + 4 : y1 - 4, x0:x1] = 90
    return foveate.encode(rgb)


@pytest.fixture(scope="module")
def page(blank: Texture) -> Texture:
    return blank.with_words(Words.of(PAGE, "by hand"))


def inside(relevance: foveate.Relevance, text: str) -> bool:
    """Whether the best cell touches the word."""
    y0, x0, y1, x1 = next(word.box for word in PAGE if word.text == text)
    y, x = np.unravel_index(relevance.map.argmax(), relevance.map.shape)
    size = 512 / relevance.grid.h
    return bool(y0 < (y + 1) * size and y1 > y * size and x0 < (x + 1) * size and x1 > x * size)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("what is the total?", "34.50"),
        ("how much was the total?", "34.50"),
        ("what is the date?", "12/03/2024"),
        ("when was it bought?", "12/03/2024"),
        ('the word "Apples"', "Apples"),
        ("the line that says RECEIPT", "RECEIPT"),
    ],
)
def test_the_map_points_at_the_answer(page: Texture, question: str, answer: str) -> None:
    relevance = foveate.score(page, question)
    assert inside(relevance, answer)
    assert relevance.detected
    assert relevance.words[0].text == answer
    kept = foveate.allocate(relevance, 12)
    best = kept.why(int(kept.scores.argmax()))
    assert str(best["words"]).startswith(answer + ", ")
    assert best["reading"] > 0.4  # type: ignore[operator]
    if answer == "34.50":  # the whole answer is kept
        size = 512 / kept.grid.h
        y0, x0, y1, x1 = (value / size for value in PAGE[6].box)
        assert foveate.allocate(relevance, 40).mask[int(y0) : -int(-y1 // 1), int(x0) : -int(-x1 // 1)].all()


def test_a_question_without_a_noun_asks_for_what_is_written(blank: Texture, page: Texture) -> None:
    with pytest.raises(QueryError):
        foveate.score(blank, "who is it from?")
    relevance = foveate.score(page, "who is it from?")
    assert {word.text for word in relevance.words[:2]} == {"Ann", "Lee"}
    with pytest.raises(QueryError):
        foveate.score(page, "")


@pytest.mark.parametrize("question", ["where is the dog?", "a bicycle", "the red car"])
def test_silent_where_nothing_written_is_asked_for(blank: Texture, page: Texture, question: str) -> None:
    without, read = foveate.score(blank, question), foveate.score(page, question)
    np.testing.assert_array_equal(without.map, read.map)
    assert not read.detected
    assert read.confidence == pytest.approx(without.confidence, abs=0.2)


def test_quotes_alone_may_name_a_thing(page: Texture) -> None:
    bus = foveate.encode(Path(foveate.__file__).parent / "cli" / "photos" / "yellow_bus.jpg")
    read = bus.with_words(Words.of([Word("SCHOOL", (100, 100, 120, 200))], "by hand"))
    assert foveate.score(read, '"bus"').confidence == foveate.score(bus, '"bus"').confidence > 0.9
    assert foveate.score(read, '"SCHOOL"').detected
    assert not foveate.score(read, 'the sign that says "bus"').detected
    assert foveate.score(page, 'the sign that says "STOP"').confidence < 0.3
    assert foveate.score(read, 'the word "SCHOQL"').detected  # misread
    assert not foveate.score(read, '"preschooling"').detected


def test_left_out_when_asked(blank: Texture, page: Texture) -> None:
    plain = foveate.score(blank, "the total", cues=False)  # "total" is a cue for writing, too
    without = foveate.score(page, "the total", reading=False, cues=False)
    np.testing.assert_array_equal(plain.map, without.map)
    assert "reading" not in without.reasons
    assert without.words == ()
    with pytest.raises(OptionError):
        foveate.score(page, "the total", reading="yes")  # type: ignore[call-overload]


def test_writing_on_a_thing(page: Texture) -> None:
    words = page.words
    assert words is not None
    sign = np.zeros(page.grid.shape, np.float32)
    sign[:10] = 0.9  # the upper sixth, where RECEIPT stands
    on = _on_thing(words, {"sign": sign}, "sign", page)
    assert on[0] == 1
    assert on[-1] < 0.1
    unseen = _on_thing(words, {"sign": sign * 0}, "sign", page)
    assert (unseen == 1).all()
    np.testing.assert_array_equal(_on_thing(words, {}, "sign", page), 1)


@cache
def unread_sheet(lines: int) -> Texture:
    """A sheet with two columns of short lines, as a finder of writing sees them: a grey bar and a plane."""
    rgb, plane = np.full((512, 512, 3), 245, np.uint8), np.zeros((128, 128), np.float32)
    for line in range(lines):
        y = 20 + 30 * (line // 2)
        x = 40 + 260 * (line % 2)
        rgb[y : y + 12, x : x + 90] = 90
        plane[y // 4 : y // 4 + 4, x // 4 : x // 4 + 23] = 1
    return foveate.encode(rgb).with_channel("text", plane)


def test_the_writing_of_a_page_that_nobody_read_takes_the_place_of_a_guess() -> None:
    sheet = unread_sheet(24)
    written = sheet.channel("text")[1::2, 1::2] > 0
    for question in ("what is the total?", "who is it from?"):
        relevance = foveate.score(sheet, question)
        best = np.argsort(-relevance.map.ravel())[: int(written.sum()) // 2]
        assert written.ravel()[best].mean() > 0.9
        assert 0 < relevance.map.max() <= UNREAD
        assert not relevance.detected
        assert relevance.words == ()
        assert relevance.reasons["reading"].max() > UNREAD
    plain = foveate.score(sheet, "what is the total?", reading=False)
    assert "reading" not in plain.reasons
    assert plain.confidence == foveate.score(sheet, "what is the total?").confidence


def test_what_is_no_page_or_was_read_keeps_its_map() -> None:
    few, empty = unread_sheet(6), unread_sheet(24).with_words(Words.of([], "mine"))
    empty = empty.with_channel("text", unread_sheet(24).channel("text"))
    for texture in (few, empty, foveate.encode(few.pixel)):
        assert "reading" not in foveate.score(texture, "what is the total?").reasons
        with pytest.raises(QueryError):
            foveate.score(texture, "who is it from?")
    assert page_of(few) == (0.0, None)
    assert page_of(unread_sheet(24))[0] == 1


@pytest.mark.parametrize("turned", [90, 180, 270])
def test_a_turned_page_is_understood_as_it_is_read(page: Texture, turned: int) -> None:
    """Boxes lie in the image as it was given; rows and columns are those of the page as one reads it."""

    def turn(y: float, x: float) -> tuple[float, float]:
        for _ in range((360 - turned) // 90):  # the page lies turned clockwise by so many quarters
            y, x = x, 512 - y
        return y, x

    words = []
    for word in PAGE:
        (ya, xa), (yb, xb) = turn(*word.box[:2]), turn(*word.box[2:])
        words.append(word._replace(box=(min(ya, yb), min(xa, xb), max(ya, yb), max(xa, xb))))
    lying = page.with_words(Words.of(words, "by hand", turned))
    relevance = foveate.score(lying, "what is the total?")
    assert relevance.words[0].text == "34.50"
    assert relevance.detected
