"""`foveate encode`: an image to a texture file. And how every command gets its texture."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.terminal import (
    EncoderName,
    LongSideOrNative,
    PageNumber,
    PresetOption,
    ReaderName,
    ReadFlag,
    format_count,
    print_json,
    print_table,
    waiting,
)
from foveate.core.options import ENCODE

if TYPE_CHECKING:
    from foveate.reading.words import Words
    from foveate.texture.texture import Texture

TEXTURE = ".safetensors"
ChannelNames = Annotated[str | None, typer.Option("--channels", help=ENCODE["channels"].help)]


def encode(
    image: Annotated[Path, typer.Argument(help="An image, or a PDF.")],
    output: Annotated[Path, typer.Option("-o", "--out", "--output", help="Texture file to write (.safetensors).")],
    encoder: EncoderName = None,
    preset: PresetOption = None,
    rank: Annotated[int | None, typer.Option(help=ENCODE["rank"].help)] = None,
    long_side: LongSideOrNative = None,
    channels: ChannelNames = None,
    twice: Annotated[
        bool, typer.Option("--twice", help="Encode a second, closer time: better maps, in about thrice the time.")
    ] = False,
    read: ReadFlag = None,
    reader: ReaderName = None,
    page: PageNumber = None,
) -> None:
    """Encode an image once, keep the texture for 'foveate look FILE'."""
    from foveate.core.errors import OptionError
    from foveate.relevance.presets import find_preset
    from foveate.tiles.re_encode import refine

    if output.suffix.lower() != TEXTURE:
        raise OptionError(
            f"--out {output}", expected=f"a name that ends in {TEXTURE}", fix=f"write -o {image.stem}{TEXTURE}"
        )
    if twice and long_side == "native":
        raise OptionError(
            "--twice with --long-side native",
            expected="one of them: there is nothing finer than the image's own pixels to encode",
            fix="leave out --twice, or give --long-side in pixels",
        )
    by, wanted = who_reads(read, reader), find_preset(preset).name if preset else None
    sign = waiting(f"{'encoding and reading' if reads(by, preset) else 'encoding'} {image}", encoder)
    with hints_aside() as hints, sign:
        texture, seconds = _encode_timed(
            image, page, encoder, preset=wanted, rank=rank, long_side=long_side, channels=_split(channels), read=by
        )
        if twice:
            start = time.perf_counter()
            texture = refine(texture, encoder=encoder)
            seconds += time.perf_counter() - start
    texture.save(output)
    grid = texture.grid
    rows = [
        ("image", f"{grid.height} x {grid.width} pixels"),
        ("cells", f"{grid.h} x {grid.w} = {grid.count}"),
        ("encoder", f"{texture.encoder.name}, revision {texture.encoder.revision}"),
        ("rank", str(texture.basis.rank)),
        ("size", f"{texture.nbytes / 1e6:.2f} MB, {texture.query_nbytes / 1e3:.0f} KB of it answers questions"),
        ("time", f"{seconds * 1e3:.0f} ms"),
    ]
    if texture.preset is not None:
        rows.insert(2, ("preset", texture.preset))
    if texture.words is not None:
        rows.insert(len(rows) - 2, ("words", describe_words(texture.words)))
    print_table(f"{image} -> {output}", ("what", "value"), rows)
    print_hints(hints)
    print_json(
        image=str(image),
        texture=str(output),
        preset=texture.preset,
        encoder=texture.encoder.name,
        grid=list(grid.shape),
        encode_seconds=round(seconds, 4),
        bytes=output.stat().st_size,
        words=None if texture.words is None else len(texture.words),
    )


@contextmanager
def hints_aside() -> Iterator[list[str]]:
    """Hints at images much larger than what the encoder sees, with options instead of keywords, for `print_hints`."""
    from foveate.core.errors import ResolutionHint

    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    for one in caught:
        if issubclass(one.category, ResolutionHint):
            what = str(one.message).splitlines()[0]
            found.append(
                f"{what}\n  --long-side 1024 shows more, --long-side native every pixel; foveate zoom: still more"
            )
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def print_hints(hints: list[str]) -> None:
    """On stderr, after the table."""
    for hint in hints:
        typer.echo(f"hint: {hint}", err=True)


def load_or_encode(
    path: Path,
    encoder: str | None,
    long_side: Any = None,
    channels: str | None = None,
    read: bool | str | None = None,
    page: int | None = None,
    preset: Any = None,
) -> tuple[Texture, float]:
    """A texture from an image (encoded) or from a texture file (read), and the seconds it took, without loading.

    A texture file goes by another preset where one is named; nothing of it is made again, but it is read where the
    preset reads.
    """
    from foveate.core.errors import OptionError
    from foveate.relevance.presets import remember_preset
    from foveate.texture.texture import Texture

    if path.suffix.lower() == TEXTURE:
        given = f"--long-side {long_side}" if long_side is not None else f"--page {page}" if page is not None else ""
        if given:
            raise OptionError(
                f"{given} for the texture '{path}'",
                expected="no such option: its image is encoded already",
                fix="leave it out, or encode the image again with it",
            )
        start = time.perf_counter()
        texture = remember_preset(Texture.load(path), preset)
        read = reads(read, preset) and (read or True)
        if read:
            with waiting(f"reading {path}"):
                texture = texture.read("auto" if read is True else read)
        return texture, time.perf_counter() - start
    with waiting(f"{'encoding and reading' if reads(read, preset) else 'encoding'} {path}", encoder):
        return _encode_timed(
            path, page, encoder, preset=preset, long_side=long_side, channels=_split(channels), read=read
        )


def _encode_timed(path: Path, page: int | None, encoder: str | None, **how: Any) -> tuple[Texture, float]:
    """A texture, and the seconds of opening and encoding, without those in which the encoder was loaded."""
    import numpy as np

    from foveate.pipeline import encode as encode_image
    from foveate.reading.pdf import open_source

    encoder, start = encoder or "nano", time.perf_counter()
    picture, layer = open_source(path, page)  # a bad image is refused before anything is loaded, or downloaded
    opened = time.perf_counter() - start
    tiny = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)  # networks and libraries are loaded when they first work
    encode_image(tiny, encoder=encoder, channels=how["channels"], long_side=64, read=False)
    start = time.perf_counter()
    if layer is not None:  # a page is opened again, since its words come with it
        return encode_image(path, encoder=encoder, page=page, **how), time.perf_counter() - start
    return encode_image(picture, encoder=encoder, **how), time.perf_counter() - start + opened


def who_reads(read: bool | None, reader: str | None) -> bool | str | None:
    """The options --read and --reader as the keyword `read` of encode. Raises OptionError."""
    from foveate.core.errors import OptionError

    if read is False and reader is not None:
        raise OptionError(f"--no-read with --reader {reader}", expected="one of them", fix="leave out --no-read")
    return read if reader is None else reader


def reads(read: bool | str | None, preset: str | None) -> bool:
    """Whether the options --read, --reader and --preset ask for reading. Raises OptionError for no preset."""
    from foveate.relevance.presets import find_preset

    return bool(find_preset(preset).encoding.get("read") if read is None else read)


def describe_words(words: Words) -> str:
    """For a table: how many there are, who read them, how the page lies."""
    turned = f"; the page had to be turned by {words.turned} degrees" if words.turned else ""
    return f"{format_count(len(words), 'word')} in {format_count(len(words.lines), 'line')}, {words.reader}{turned}"


def _split(channels: str | None) -> Any:
    """--channels: a set as it is, names as a list; None where nothing was named."""
    from foveate.channels.build import CHANNEL_SETS

    return channels if channels is None or channels in CHANNEL_SETS else [name.strip() for name in channels.split(",")]
