"""What is written, as values: words, lines, order, files; whoever reads. No reader is needed here."""

from __future__ import annotations

import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate import Texture
from foveate.core.errors import (
    FoveateError,
    ImageArrayError,
    MissingExtraError,
    ModelFilesError,
    OptionError,
    ReadingWarning,
)
from foveate.core.grid import Grid
from foveate.reading import Line, Word, WordReader, Words
from foveate.reading import readers as reading
from foveate.reading.order import arrange, find_rows, order_lines, stand_upright
from foveate.reading.rapid import Letters, cut_words, engines
from foveate.reading.readers import find_reader, read_words
from foveate.reading.tesseract import TesseractReader, parse_table, turn_of
from foveate.reading.words import LETTERS, printable

SHEET = np.full((60, 100, 3), 255, np.uint8)
TOTAL = [Word("TOTAL", (10, 5, 20, 40), 0.99, 0), Word("34.50", (10, 60, 20, 90), 0.97, 0)]


def reads(*words: Any) -> Any:
    """A function that reads these words in any image."""
    return lambda rgb: list(words)


# --- the value --------------------------------------------------------------------------------------------------------


def test_words_are_a_sequence_in_lines() -> None:
    words = Words.of([*TOTAL, Word("thanks", (30, 5, 40, 50), 0.5, 7)], "mine")
    assert len(words) == 3
    assert words[1] == Word("34.50", (10, 60, 20, 90), float(np.float32(0.97)), 0)
    assert [word.line for word in words] == [0, 0, 1]
    assert words[1:] == [words[1], words[2]]
    assert words.text == "TOTAL 34.50\nthanks"
    assert words.lines[0] == Line("TOTAL 34.50", (10, 5, 20, 90), words.lines[0].confidence, range(2))
    assert words.lines[0].confidence == pytest.approx(0.98)
    assert words.nbytes == 3 * (16 + 4 + 4) + len("TOTAL34.50thanks")
    assert repr(words) == "Words(3 in 2 lines, mine)"
    assert repr(Words.of(TOTAL, "mine", turned=90)) == "Words(2 in 1 lines, mine, turned by 90 degrees)"
    with pytest.raises(ValueError, match="read-only"):
        words.boxes[0] = 1
    words = Words.of([Word(text, (0, 0, 1, 1), 1, line) for text, line in (("a", 5), ("b", 2), ("c", 5))], "mine")
    assert (words.texts, words.line_numbers.tolist()) == (("a", "c", "b"), [0, 0, 1])
    words = Words.of([Word("\x1b\x07", (0, 0, 1, 1)), Word("", (0, 0, 1, 1)), Word(" ", (0, 0, 1, 1))], "mine")
    assert (len(words), words.lines, words.text, list(words), words.boxes.shape) == (0, (), "", [], (0, 4))
    assert not words.mask((4, 4), Grid(2, 2, 8, 8)).any()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;owned\x07sale", "[2J]0;ownedsale"),
        ("a\u202eb\u2066c\u200f", "abc"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("\ud800x", "x"),
        ("Ωμέγα 株式会社 カタカナ", "Ωμέγα 株式会社 カタカナ"),
        ("a" * 5000, "a" * LETTERS),
    ],
)
def test_nothing_that_could_move_a_cursor_or_turn_a_text_comes_in(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert Words.of([Word(text, (0, 0, 1, 1))], "mine").texts == (shown,)


def test_other_numbers_become_those_that_files_hold(tmp_path: Path, texture: Texture) -> None:
    boxes, sure, lines = map(np.array, ([[0, 0, 9, 9]] * 2, [1.0, 0.5], [0, 1]))  # int64, float64
    whole = Words(("a", "b"), boxes, sure, lines, "mine")
    kinds = [array.dtype for array in (whole.boxes, whole.confidences, whole.line_numbers)]
    assert kinds == [np.float32, np.float32, np.int32]
    texture.with_words(whole).save(tmp_path / "t.safetensors")
    assert list(Texture.load(tmp_path / "t.safetensors").words or ()) == list(whole)
    with pytest.raises(OptionError, match="in order"):
        Words(("a", "b"), boxes, sure, sure - sure[1], "mine")


def test_a_mask_is_what_boxes_touch() -> None:
    words = Words.of([Word(text, box) for text, box in (("a", (8, 8, 16, 24)), ("b", (32, 0, 33, 8)))], "mine")
    mask = words.mask((16, 16), Grid(4, 4, 64, 64))
    assert np.argwhere(mask).tolist() == [[y, x] for y in (2, 3) for x in (2, 3, 4, 5)] + [[8, 0], [8, 1]]
    thin = Words.of([Word("thin", (8, 8, 8, 16))], "mine")
    assert thin.mask((16, 16), Grid(4, 4, 64, 64)).sum() == 2


# --- letters to words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("DATE11/4/93", ["DATE", "11/4/93"]),
        ("Date:23/01/2018", ["Date:", "23/01/2018"]),
        ("84600,PAGOH,JOHOR", ["84600,", "PAGOH,", "JOHOR"]),
        ("SB(306295-X)", ["SB", "(306295-X)"]),
        ("TOTAL12.50", ["TOTAL", "12.50"]),
        ("Invoice number4711", ["Invoice", "number", "4711"]),
        ("  two   words ", ["two", "words"]),
        ("B166 MP3 Brand(s) 3:28 1,340.00 http://a.b 10:15PM", None),
        ("", []),
        ("   ", []),
        ("x", ["x"]),
    ],
)
def test_lost_spaces_are_found_again(line: str, words: list[str] | None) -> None:
    pieces = cut_words(Letters.even(line, 0.9))
    assert [piece.text for piece in pieces] == (line.split() if words is None else words)
    ends = [end for piece in pieces for end in (piece.start, piece.end)]
    assert ends == sorted(ends)
    assert all(0 <= end <= 1 for end in ends)


def test_a_gap_between_letters_is_a_space() -> None:
    centres = np.array([1, 2, 3, 7, 8, 9]) / 10
    pieces = cut_words(Letters("abcdef", centres, np.array([0.9, 0.9, 0.9, 0.3, 0.3, 0.3])))
    assert [piece.text for piece in pieces] == ["abc", "def"]
    assert [piece.confidence for piece in pieces] == pytest.approx([0.9, 0.3])
    assert pieces[0].end < 0.4 < 0.6 < pieces[1].start
    assert [piece.text for piece in cut_words(Letters("ab12", np.array([1, 2, 3.7, 4.7]) / 5, np.ones(4)))] == [
        "ab",
        "12",
    ]


@given(st.text(max_size=40))
def test_no_letter_is_lost(text: str) -> None:
    pieces = cut_words(Letters.even(text, 0.5))
    assert "".join(piece.text for piece in pieces) == "".join(text.split())


# --- order ------------------------------------------------------------------------------------------------------------


def boxes_of(*rows: Sequence[tuple[float, float]], height: float = 10, step: float = 15) -> np.ndarray:
    """Rows of (x0, x1), one below the other -> boxes (y0, x0, y1, x1)."""
    return np.array([(i * step, x0, i * step + height, x1) for i, row in enumerate(rows) for x0, x1 in row], float)


def test_rows_of_a_table_and_columns_of_prose_are_read_in_their_order() -> None:
    table = boxes_of(*[[(0, 60), (200, 240), (300, 340)]] * 200)
    shuffled = np.random.default_rng(0).permutation(len(table))
    assert [int(shuffled[i]) for i in order_lines(table[shuffled])] == list(range(600))
    prose = [[(0, 190), (210, 400)]] * 6
    page = boxes_of([(50, 350)], *prose, [(0, 60), (300, 360)])
    assert order_lines(page) == [0, *range(1, 14, 2), *range(2, 15, 2)]
    three = boxes_of(*[[(0, 190), (210, 400), (420, 600)]] * 5)
    assert order_lines(three) == [i + 3 * k for i in range(3) for k in range(5)]
    boxes = np.array([(10, 0, 20, 50), (12, 60, 24, 90), (9, 100, 19, 140), (25, 0, 35, 50)], float)
    assert find_rows(boxes) == [[0, 1, 2], [3]]
    assert order_lines(np.zeros((0, 4))) == []


@pytest.mark.parametrize("turn", range(4))
def test_a_turned_page_has_the_order_of_an_upright_one(turn: int) -> None:
    upright = boxes_of([(0, 40), (45, 80)], [(0, 60)], [(0, 30), (200, 240)])
    y0, x0, y1, x1 = upright.T
    turned = np.stack([(y0, x0, y1, x1), (x0, 50 - y1, x1, 50 - y0), (50 - y1, 240 - x1, 50 - y0, 240 - x0),
                       (240 - x1, y0, 240 - x0, y1)][turn], 1)  # fmt: skip
    back = stand_upright(turned, turn)
    assert np.allclose(back - back.min(0).repeat(1), upright - upright.min(0)) or turn
    words = [
        Word(name, tuple(box), 1.0, line) for name, box, line in zip("abcde", turned, (0, 0, 1, 2, 2), strict=True)
    ]
    found = arrange(words, "mine", turn)
    assert found.texts == tuple("abcde")
    assert found.line_numbers.tolist() == [0, 0, 1, 2, 3]  # the wide gap cuts the last line
    assert found.turned == (0, 270, 180, 90)[turn]


@settings(max_examples=50)
@given(st.lists(st.tuples(*[st.floats(-1e6, 1e6)] * 2, *[st.floats(0, 1e4)] * 2), max_size=30))
def test_every_line_comes_once(corners: list[tuple[float, float, float, float]]) -> None:
    boxes = np.array([(y, x, y + h, x + w) for y, x, h, w in corners]).reshape(-1, 4)
    assert sorted(order_lines(boxes)) == list(range(len(boxes)))


# --- whoever reads ----------------------------------------------------------------------------------------------------


def test_a_function_and_an_object_are_readers() -> None:
    class Mine:
        name = "mine 1.0"

        def read(self, rgb: np.ndarray) -> list[Word]:
            return [Word(f"{rgb.shape[0]}", (0, 0, 5, 5))]

    assert isinstance(Mine(), WordReader)
    assert read_words(SHEET, Mine()).texts == ("60",)
    assert read_words(SHEET, Mine()).reader == "mine 1.0"
    assert read_words(SHEET, reads(*TOTAL)).reader == "<lambda>"
    assert read_words(SHEET, lambda rgb: Words.of(TOTAL, "other", turned=180)).turned == 180
    assert read_words(SHEET, reads(("a", (0, 0, 5, 5)), ("b", (0, 0, 5, 5), 0.5))).texts == ("a", "b")


@pytest.mark.parametrize(
    "word",
    [
        Word("a", (0, 0, np.nan, 5)),
        Word("a", (0, -np.inf, 5, 5)),
        Word("a", (0, 0, 5)),  # type: ignore[arg-type]
        Word("a", "box"),  # type: ignore[arg-type]
        Word(b"a", (0, 0, 5, 5)),  # type: ignore[arg-type]
        Word(None, (0, 0, 5, 5)),  # type: ignore[arg-type]
        Word("a", (0, 0, 5, 5), "sure"),  # type: ignore[arg-type]
        Word("a", (0, 0, 5, 5), 0.5, np.inf),  # type: ignore[arg-type]
        Word("a", (0, 0, 5, 5), 0.5, "first"),  # type: ignore[arg-type]
        "word",
        None,
        7,
        (),
    ],
)
def test_what_is_no_word_is_an_error_that_names_its_reader(word: Any) -> None:
    with pytest.raises(OptionError, match=r"reader '<lambda>' failed .*item 1 is no word"):
        read_words(SHEET, reads(TOTAL[0], word))


def test_boxes_are_cut_at_the_borders_and_those_outside_left_out() -> None:
    words = read_words(
        SHEET,
        reads(
            Word("wide", (-1e300, -5, 1e300, 50), 7.0),
            Word("outside", (70, 0, 80, 10)),
            Word("nowhere", (5, 5, 5, 5)),
            Word("backwards", (20, 20, 10, 10)),
            Word("unsure", (0, 0, 5, 5), -3.0, 10**30),
            Word("nan", (0, 0, 5, 5), np.nan),
        ),
    )
    assert words.texts == ("wide", "nan", "unsure")
    assert list(words[0].box) == [0, 0, 60, 50]
    assert words.confidences.tolist() == [1, 0, 0]


def test_a_reader_that_never_ends_is_stopped_and_an_image_that_is_none_not_read() -> None:
    def endless(rgb: np.ndarray) -> Any:
        while True:
            yield TOTAL[0]

    with pytest.raises(OptionError, match="more than 100,000 words"):
        read_words(SHEET, endless)
    with pytest.raises(ImageArrayError):
        read_words(SHEET[0], reads())


@pytest.mark.parametrize(
    ("raised", "error", "words"),
    [
        (RuntimeError("no\x1b[2J luck"), OptionError, r"RuntimeError: no\[2J luck"),
        (SystemExit(3), OptionError, "SystemExit: 3"),
        (KeyboardInterrupt("stop"), KeyboardInterrupt, "stop"),
        (MissingExtraError("it needs a thing", expected="it", fix="get it"), MissingExtraError, "needs a thing"),
    ],
)
def test_what_a_reader_raises_is_said(raised: BaseException, error: type[BaseException], words: str) -> None:
    def broken(rgb: np.ndarray) -> list[Word]:
        raise raised

    with pytest.raises(error, match=words):
        read_words(SHEET, broken)


def test_named_readers_read_an_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    class Counting(TesseractReader):
        def read(self, rgb: np.ndarray) -> Words:
            calls.append(1)
            return Words.of(TOTAL, self.name)

    monkeypatch.setattr(reading, "TesseractReader", Counting)
    image = np.random.default_rng(5).integers(0, 256, (40, 50, 3), np.uint8)
    first = read_words(image, "tesseract")
    assert read_words(image.copy(), "tesseract") is first
    assert len(calls) == 1
    read_words(image[:, ::-1], "tesseract")
    read_words(image, "tesseract:deu")
    read_words(image.reshape(50, 40, 3), "tesseract")
    assert len(calls) == 4


# --- in a texture -----------------------------------------------------------------------------------------------------


def test_a_texture_is_read_once_and_takes_no_words_of_another_image(texture: Texture) -> None:
    read = texture.read(reads(*TOTAL))
    assert texture.words is None
    assert read.words is not None
    assert read.words.texts == ("TOTAL", "34.50")
    assert read.read() is read
    assert read.made_by["text"] == "<lambda>"
    plane = read.channel("text")
    assert plane[3, 3] == 1
    assert plane[40:].max() == 0
    for box in ((0, 0, 10, 1e6), (-5, 0, 10, 10)):
        with pytest.raises(OptionError, match="outside"):
            texture.with_words(Words.of([Word("a", box)], "mine"))
    with pytest.raises(OptionError, match="words"):
        texture.with_words([TOTAL])  # type: ignore[arg-type]


def test_words_that_come_again_leave_what_a_finder_found(texture: Texture) -> None:
    first, second = (Words.of([Word("a", box)], name) for name, box in (("one", (0, 0, 8, 8)), ("two", (0, 40, 8, 48))))
    read = texture.with_words(first)
    assert read.made_by["text"] == "one"
    again = read.with_words(second)  # nobody else looked for writing: these words alone
    assert (again.made_by["text"], again.channel("text")[0, 0], again.channel("text")[0, 11]) == ("two", 0, 1)
    found = np.zeros(read.channel("text").shape, np.float32)
    found[6, 6] = 1
    again = texture.with_channel("text", found, made_by="finder").with_words(first).with_words(second)
    assert again.made_by["text"] == "two, finder"
    assert again.channel("text")[6, 6] == 1
    assert again.channel("text")[0, 11] == 1
    given = texture.with_channel("text", found).with_words(first).with_words(second)
    assert given.channel("text")[6, 6] == 1


def test_encode_reads_when_asked() -> None:
    sheet = np.full((64, 64, 3), 200, np.uint8)
    sheet[10:20, 5:40] = 0
    assert foveate.encode(sheet, long_side=64).words is None
    words = foveate.encode(sheet, long_side=64, read=reads(*TOTAL)).words
    assert words is not None
    assert words.text == "TOTAL 34.50"
    assert list(words[1].box) == [10, 60, 20, 64]  # cut at the border
    with pytest.raises(OptionError, match="reader"):
        foveate.encode(sheet, read="nobody")
    with pytest.raises(OptionError, match="page"):
        foveate.encode(sheet, page=1)


def test_a_reader_that_fails_leaves_a_texture_without_words_where_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, rgb: np.ndarray) -> Words:
        raise ModelFilesError("RapidOCR's models could not be loaded", expected="them", fix="install it again")

    monkeypatch.setattr("foveate.reading.rapid.RapidReader.read", broken)
    monkeypatch.setattr("foveate.pipeline.choose_reader", lambda read, wanted: find_reader("rapidocr"))
    sheet = np.random.default_rng(6).integers(0, 256, (32, 32, 3), np.uint8)
    with pytest.warns(ReadingWarning, match="encoded without its words"):
        texture = foveate.encode(sheet, channels="all", long_side=64)
    assert texture.words is None
    assert texture.has("text")
    assert foveate.score(texture, "a dog").map.shape == texture.grid.shape
    with pytest.raises(ModelFilesError, match="could not be loaded"):
        foveate.encode(sheet, read=True, long_side=64)
    with pytest.raises(ModelFilesError):
        texture.read()


def test_where_no_reader_is_nothing_is_read_and_asking_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    engines.cache_clear()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    sheet = np.random.default_rng(7).integers(0, 256, (32, 32, 3), np.uint8)
    assert not reading.can_read()
    assert foveate.encode(sheet, channels="all", long_side=64).words is None
    with pytest.raises(MissingExtraError, match=r"foveate\[text\]"):
        foveate.encode(sheet, read=True, long_side=64)
    with pytest.raises(MissingExtraError, match="apt-get install tesseract-ocr"):
        foveate.encode(sheet, read="tesseract", long_side=64)


# --- Tesseract --------------------------------------------------------------------------------------------------------

TABLE = "level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext\n"


def row(line: int, left: int, text: str, confidence: float = 96.0, top: int = 10) -> str:
    return f"5\t1\t1\t1\t{line}\t1\t{left}\t{top}\t40\t20\t{confidence}\t{text}\n"


def test_tesseracts_table() -> None:
    table = TABLE + "1\t1\t0\t0\t0\t0\t0\t0\t100\t60\t-1\t\n" + row(1, 10, "TOTAL") + row(1, 60, "34.50", 90)
    table += row(2, 10, "leaves", 20) + row(3, 10, " ") + row(4, 10, "\x1b[2J", 99) + "5\tbroken\n"
    words = parse_table(table, (2.0, 2.0))
    assert words[:2] == [Word("TOTAL", (5, 5, 15, 25), 0.96, 1), Word("34.50", (5, 30, 15, 50), 0.9, 1)]
    assert len(words) == 3
    assert parse_table("", (1, 1)) == []
    assert turn_of(words) == 0
    assert turn_of([]) == 0
    assert turn_of([Word("a", (0, 0, 9, 9)), Word("b", (30, 0, 39, 9))]) == 1
    assert turn_of([Word("a", (30, 0, 39, 9)), Word("b", (0, 0, 9, 9))]) == 3
    assert turn_of([Word("a", (0, 30, 9, 39)), Word("b", (0, 0, 9, 9))]) == 2


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `tesseract`, first on the PATH, that does what a test writes into it."""
    path = tmp_path / "bin" / "tesseract"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\nexit 1\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{path.parent}:/bin:/usr/bin")
    return path


def test_the_program_gets_an_image_and_its_arguments(program: Path, tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text(TABLE + row(1, 10, "TOTAL") + row(1, 60, "\x1b[31m34.50"))
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo "tesseract v9.8.7"; exit; fi\n'
        f'cat > {tmp_path}/got; echo "$@" > {tmp_path}/asked; cat {table}\n'
    )
    words = read_words(np.full((800, 900, 3), 255, np.uint8), "tesseract:deu+eng")
    assert words.reader == "tesseract 9.8.7 deu+eng"
    assert words.texts == ("TOTAL", "[31m34.50")
    assert (tmp_path / "asked").read_text() == "stdin stdout --psm 1 -l deu+eng tsv\n"
    assert foveate.load_image(tmp_path / "got").size == (800, 900)


def test_a_program_that_fails_or_hangs(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.write_text("#!/bin/sh\necho 'no language \x1b[2J files' >&2; exit 3\n")
    with pytest.raises(OptionError, match=r"status 3 .*no language") as caught:
        read_words(SHEET + 1, "tesseract")
    assert "\x1b" not in str(caught.value)
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("foveate.reading.tesseract.SECONDS", 0.2)
    monkeypatch.setattr("foveate.reading.tesseract.A_MEGAPIXEL", 0)
    with pytest.raises(OptionError, match="TimeoutExpired"):
        read_words(SHEET + 2, "tesseract")
    program.write_bytes(b"\x7fELF no program")
    with pytest.raises(OptionError, match=r"OSError|Exec"):
        read_words(SHEET + 3, "tesseract")
    program.unlink()
    monkeypatch.setenv("PATH", str(program.parent))  # no other one either
    with pytest.raises((MissingExtraError, FoveateError)):
        read_words(SHEET + 4, "tesseract")
