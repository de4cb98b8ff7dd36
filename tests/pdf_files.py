"""PDFs made by hand, for tests."""

from __future__ import annotations

from collections.abc import Sequence


def make_pdf(
    *pages: bytes,
    rotate: int = 0,
    media: Sequence[float] = (0, 0, 595, 842),
    crop: Sequence[float] | None = None,
    more: Sequence[bytes] = (),
    resources: bytes = b"",
) -> bytes:
    """A PDF of content streams, with Helvetica as font F. `more` are objects after the font, numbered from 4."""
    first = 4 + len(more)
    kids = b" ".join(b"%d 0 R" % (first + 2 * i) for i in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(pages), kids),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        *more,
    ]
    boxes = b"/MediaBox [%s]" % numbers(media) + (b" /CropBox [%s]" % numbers(crop) if crop else b"")
    for i, content in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R %s /Rotate %d /Contents %d 0 R /Resources << /Font << /F 3 0 R >> %s >> >>"
            % (boxes, rotate, first + 2 * i + 1, resources)
        )
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    out, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    tail = b"xref\n0 %d\n0000000000 65535 f \n%strailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF"
    return out + tail % (len(objects) + 1, table, len(objects) + 1, len(out))


def numbers(values: Sequence[float]) -> bytes:
    return b" ".join(str(value).encode() for value in values)


def text(*lines: tuple[float, float, float, str]) -> bytes:
    """(x, y, size, text) in points from the lower left corner -> a content stream."""
    shown = (b"/F %s Tf 1 0 0 1 %s %s Tm (%s) Tj" % (str(size).encode(), str(x).encode(), str(y).encode(), escape(line))
             for x, y, size, line in lines)  # fmt: skip
    return b"BT " + b" ".join(shown) + b" ET"


def escape(line: str) -> bytes:
    return line.encode("cp1252").replace(b"\\", rb"\\").replace(b"(", rb"\(").replace(b")", rb"\)")
