"""`foveate read`: what is written in an image, line by line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from foveate.cli.encode import TEXTURE, describe_words
from foveate.cli.terminal import PageNumber, ReaderName, print_json, print_table, waiting


def read(
    image: Annotated[Path, typer.Argument(help="An image, a PDF, or a texture that was read.")],
    reader: ReaderName = None,
    page: PageNumber = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print the lines and nothing else.")] = False,
) -> None:
    """Read what is written in an image: lines with their boxes. A PDF's own text is taken as it is."""
    from foveate.core.errors import OptionError
    from foveate.reading.pdf import open_source
    from foveate.reading.readers import read_words
    from foveate.texture.texture import Texture

    start = time.perf_counter()
    if image.suffix.lower() == TEXTURE:
        if page is not None:
            raise OptionError(f"--page {page} of a texture", expected="a PDF", fix="leave it out")
        texture = Texture.load(image)
        rgb, words = texture.pixel, texture.words
    else:
        picture, layer = open_source(image, page)
        rgb, words = picture.rgb, None if layer is None or layer.scanned else layer.words
    if words is None or reader is not None:
        with waiting(f"reading {image}"):
            words = read_words(rgb, reader or "auto")
    seconds = time.perf_counter() - start
    rows = [
        (line.text, f"{line.confidence:.2f}", "{:.0f} {:.0f} {:.0f} {:.0f}".format(*line.box)) for line in words.lines
    ]
    title = f"{image}  {rgb.shape[0]} x {rgb.shape[1]} pixels, {describe_words(words)}, {seconds:.1f} s"
    if plain:
        typer.echo(words.text)
    elif rows:
        print_table(title, ("line", "confidence", "y0 x0 y1 x1"), rows)
    else:
        typer.echo(f"{title}\nnothing is written there, as far as {words.reader} can see")
    print_json(
        image=str(image),
        size=list(rgb.shape[:2]),
        reader=words.reader,
        turned=words.turned,
        seconds=round(seconds, 3),
        words=len(words),
        lines=[
            {
                "text": line.text,
                "confidence": round(line.confidence, 4),
                "box": [round(value, 1) for value in line.box],
                "words": [
                    [word.text, [round(value, 1) for value in word.box]] for word in map(words.__getitem__, line.words)
                ],
            }
            for line in words.lines
        ],
    )
