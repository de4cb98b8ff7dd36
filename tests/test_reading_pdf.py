"""PDFs: a page as a picture, and the words of its text layer at their place."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pypdfium2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

import foveate
from foveate.cli.main import app
from foveate.core.errors import (
    FoveateError,
    ImageDecodeError,
    ImageFormatError,
    ImageNotFoundError,
    ImageTooLargeError,
    MissingExtraError,
    OptionError,
)
from foveate.core.grid import Grid
from foveate.reading import Word
from foveate.reading.pdf import FINEST, LONG_SIDE, STAMP, is_pdf, load_page
from tests.pdf_files import make_pdf, text

LETTER = text(
    (72, 700, 24, "Invoice number: 4711"),
    (72, 650, 12, "Total"),
    (300, 650, 12, "34.50 EUR"),
    (72, 600, 12, "caf\xe9 \u20ac 5 (net)"),
)


def scan(*lines: tuple[float, float, float, str]) -> bytes:
    """A page that is one image, with these lines of text on it."""
    picture = b"<< /Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8 "
    picture += b"/Length 1 >>\nstream\n\xc8\nendstream"
    content = b"q 595 0 0 842 0 0 cm /P Do Q " + text(*lines)
    return make_pdf(content, more=[picture], resources=b"/XObject << /P 4 0 R >>")


@pytest.mark.parametrize("rotate", [0, 90, 180, 270])
@pytest.mark.parametrize("crop", [None, (50, 100, 500, 800)])
def test_words_lie_on_their_ink(rotate: int, crop: Sequence[float] | None) -> None:
    page = load_page(make_pdf(LETTER, rotate=rotate, crop=crop))
    assert page.words is not None
    assert page.words.text.split("\n") == ["Invoice number: 4711", "Total", "34.50 EUR", "caf\xe9 \u20ac 5 (net)"]
    assert page.words.turned == (360 - rotate) % 360
    assert set(page.words.confidences.tolist()) == {1.0}
    assert page.words.reader == f"text layer, pypdfium2 {pypdfium2.version.PYPDFIUM_INFO.version}"
    assert not page.scanned
    height, width = page.picture.size
    assert max(height, width) == LONG_SIDE
    assert (height > width) == (rotate in (0, 180))
    dark = page.picture.rgb.min(2) < 128
    assert dark.sum() > 3000
    assert dark[page.words.mask((height, width), Grid(1, 1, height, width)) == 0].sum() == 0
    for word in page.words:
        y0, x0, y1, x1 = np.rint(word.box).astype(int)
        assert dark[y0:y1, x0:x1].any()


def test_encode_keeps_the_layer_unless_told_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "letter.pdf"
    file.write_bytes(make_pdf(LETTER, text((72, 700, 24, "Second page"))))
    texture = foveate.encode(file, page=1, long_side=64)
    assert texture.words is not None
    assert "4711" in texture.words.texts
    assert (texture.name, texture.grid.height) == ("letter, page 1.pdf", LONG_SIDE)
    assert foveate.encode(str(file), page=2, long_side=64, read=True).words.text == "Second page"  # type: ignore[union-attr]
    assert foveate.encode(file, page=1, long_side=64, read=False).words is None
    own = foveate.encode(file, page=1, long_side=64, read=lambda rgb: [Word("mine", (0, 0, 9, 9))])
    assert own.words is not None
    assert own.words.texts == ("mine",)
    texture.save(tmp_path / "t.safetensors")
    again = foveate.Texture.load(tmp_path / "t.safetensors")
    assert again.words is not None
    assert again.words.texts == texture.words.texts
    assert foveate.encode(make_pdf(LETTER), long_side=64).name == "bytes"


def test_pages_count_from_one() -> None:
    three = make_pdf(LETTER, text((72, 700, 24, "Second")), text((72, 700, 24, "Third")))
    assert load_page(three, 3).words.text == "Third"  # type: ignore[union-attr]
    with pytest.raises(OptionError, match="has 3 pages") as caught:
        load_page(three)
    assert "page=1" in caught.value.fix
    for page in (0, -1, 4, 10**9, True, "1", 1.0):
        with pytest.raises(OptionError, match="page="):
            load_page(three, page)  # type: ignore[arg-type]
    assert load_page(make_pdf(LETTER), 1).picture.name == "bytes"


def test_a_page_without_a_layer_is_a_picture(tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.new("RGB", (600, 800), "white").save(out, "PDF")
    page = load_page(out.getvalue())
    assert (page.words, page.scanned) == (None, True)
    assert page.picture.size == (LONG_SIDE, LONG_SIDE * 3 // 4)
    assert foveate.encode(out.getvalue(), long_side=64).words is None
    read = foveate.encode(out.getvalue(), long_side=64, read=lambda rgb: [Word("read", (5, 5, 9, 9))])
    assert read.words is not None
    assert read.words.texts == ("read",)
    empty = load_page(make_pdf(b""))
    assert (empty.words, empty.scanned) == (None, False)


def test_a_stamp_on_a_scan_is_kept_but_does_not_keep_from_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    stamped = scan((72, 20, 10, "page 1 of 5"))
    page = load_page(stamped)
    assert page.words is not None
    assert page.scanned
    assert foveate.encode(stamped, long_side=64).words.text == "page 1 of 5"  # type: ignore[union-attr]
    seen: list[Any] = []

    def read(rgb: Any, reader: Any) -> Any:
        seen.append(reader)
        return page.words

    monkeypatch.setattr("foveate.reading.readers.read_words", read)
    foveate.encode(stamped, long_side=64, read=True)
    assert len(seen) == 1
    searchable = scan(*[(72, 700 - 20 * i, 10, "several words that are there") for i in range(STAMP)])
    assert not load_page(searchable).scanned


def test_chunks_words_and_hyphens() -> None:
    page = load_page(
        make_pdf(text((72, 700, 12, "left"), (400, 700, 12, "right"), (72, 680, 10, "sec-"), (72, 669, 10, "ond line")))
    )
    assert page.words is not None
    assert page.words.text.split("\n") == ["left", "right", "sec-", "ond line"]
    assert all(box[2] - box[0] < 40 for box in page.words.boxes)  # no word reaches over two lines


def test_letters_without_a_meaning_and_control_characters_stay_out() -> None:
    names = b"/Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Differences [ 65 %s ] >>"
    font = b"<< " + names % b" ".join(b"/g%d" % i for i in range(26)) + b" >>"
    content = text((72, 700, 12, "ABCDEFGHIJ KLMNOP")).replace(b"/F ", b"/G ")
    nameless = make_pdf(content, more=[font]).replace(b"/F 3 0 R", b"/G 4 0 R")
    for pdf in (nameless, make_pdf(b"BT /F 12 Tf 72 700 Td (a\\033[2Jb \\007bell) Tj ET")):
        page = load_page(pdf)
        assert page.words is None or all(each.isprintable() for each in page.words.texts)


@pytest.mark.parametrize(
    "media", [(0, 0, 14400, 14400), (0, 0, 14400, 2), (0, 0, 3, 3), (0, 0, 0.01, 5000), (-50, -50, 50, 50)]
)
def test_pages_of_any_size(media: Sequence[float]) -> None:
    page = load_page(make_pdf(text((1, 1, 1, "x")), media=media))
    assert 1 <= min(page.picture.size) <= max(page.picture.size) <= LONG_SIDE + 1
    assert max(page.picture.size) <= max(media[2] - media[0], media[3] - media[1]) * FINEST + 1
    without = load_page(make_pdf(LETTER, media=(5, 5, 5, 500)))  # no area: the usual size
    assert without.picture.size == pytest.approx((LONG_SIDE, 1314), abs=1)


ENCRYPTED = b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -44 >>" % (b"5a" * 32, b"a5" * 32)


def test_a_pdf_that_is_encrypted_or_has_too_many_letters_and_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = make_pdf(LETTER, more=[ENCRYPTED]).replace(b"/Root 1 0 R", b"/Root 1 0 R /Encrypt 4 0 R /ID [<00> <00>]")
    with pytest.raises(ImageDecodeError, match="encrypted") as caught:
        foveate.encode(locked)
    assert "qpdf" in caught.value.fix
    monkeypatch.setattr("foveate.reading.pdf.MOST_LETTERS", 10)
    with pytest.raises(ImageTooLargeError, match="letters"):
        load_page(make_pdf(LETTER))
    monkeypatch.setitem(__import__("sys").modules, "pypdfium2", None)
    with pytest.raises(MissingExtraError, match="pypdfium2") as missing:
        foveate.encode(make_pdf(LETTER))
    assert "foveate[text]" in missing.value.fix


@pytest.mark.parametrize(
    "content",
    [b"%PDF-1.4", b"%PDF-1.7\n" + b"\0" * 5000, make_pdf(LETTER)[:300], make_pdf(), b"%PDF-1.4\n%%EOF", b"\n\n%PDF-"],
)
def test_broken_pdfs(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "broken.pdf"
    file.write_bytes(content)
    with pytest.raises(ImageDecodeError, match=r"broken\.pdf") as caught:
        foveate.encode(file)
    assert caught.value.fix


def test_other_places_and_sources(tmp_path: Path) -> None:
    assert not is_pdf(tmp_path / "no.pdf")
    assert not is_pdf(tmp_path)
    assert not is_pdf("a\0b")
    assert not is_pdf(np.zeros((2, 2), np.uint8))
    assert is_pdf(make_pdf(LETTER))
    with pytest.raises(ImageNotFoundError):
        foveate.encode(tmp_path / "no.pdf")
    with pytest.raises(ImageFormatError) as caught:
        foveate.load_image(make_pdf(LETTER))
    assert "PDF" in caught.value.fix


@settings(max_examples=60)
@given(st.data())
def test_mutated_pdfs_are_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(make_pdf(LETTER))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(8, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        page = load_page(bytes(content))
    except FoveateError:
        return  # any other exception fails this test
    assert page.picture.rgb.ndim == 3


def test_the_command_takes_a_page(tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    file, out = str(tmp_path / "two.pdf"), str(tmp_path / "out")
    Path(file).write_bytes(make_pdf(LETTER, text((72, 700, 24, "Second page"))))
    assert run("read", file, "--page", "2", "--plain") == "Second page\n"
    how = ("--page", "1", "--budget", "20", "--long-side", "128", "--json", "--out", out)
    result = json.loads(run("look", file, "how much is the total?", *how).splitlines()[-1])
    assert result["words"] == 10
    assert "two, page 1--how-much" in result["queries"][0]["png"]
    with pytest.raises(OptionError, match="has 2 pages"):
        run("look", file, "the total")


def test_filled_in_forms_and_hidden_layers_are_words() -> None:
    filled = text((2, 4, 12, "Ada Lovelace"))
    field = b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /Rect [100 500 300 520] /F 4 /AP << /N 5 0 R >> >>"
    look = b"<< /Type /XObject /Subtype /Form /BBox [0 0 200 20] /Resources << /Font << /F 3 0 R >> >> /Length %d >>\n"
    look = look % len(filled) + b"stream\n%s\nendstream" % filled
    form = make_pdf(text((100, 530, 12, "Your name")), more=[field, look])
    form = form.replace(b"/Type /Page /Parent", b"/Type /Page /Annots [4 0 R] /Parent")
    form = form.replace(b"/Pages 2 0 R >>", b"/Pages 2 0 R /AcroForm << /Fields [4 0 R] >> >>")
    words = load_page(form).words
    assert words is not None
    assert words.text == "Your name\nAda Lovelace"
    hidden = load_page(make_pdf(b"BT 3 Tr /F 12 Tf 72 700 Td (read before) Tj ET")).words
    assert hidden is not None
    assert hidden.text == "read before"
