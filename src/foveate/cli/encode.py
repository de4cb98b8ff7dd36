"""`foveate encode`, `read`, `channels`: an image, its writing, its planes. And how every command gets its texture."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli import terminal
from foveate.core.options import ENCODE

if TYPE_CHECKING:
    from foveate.encoders.protocol import Encoder
    from foveate.reading.words import Words
    from foveate.texture.texture import Texture

TEXTURE = ".safetensors"
EMBEDDING = "embedding_"  # planes of the compressed features: one row of the table
ChannelNames = Annotated[str | None, typer.Option("--channels", help=ENCODE["channels"].help)]


def encode(
    image: Annotated[Path, typer.Argument(help="An image, or a PDF.")],
    output: Annotated[Path, typer.Option("-o", "--out", "--output", help="Texture file to write (.safetensors).")],
    encoder: terminal.EncoderName = None,
    preset: terminal.PresetOption = None,
    rank: Annotated[int | None, typer.Option(help=ENCODE["rank"].help)] = None,
    long_side: terminal.LongSideOrNative = None,
    channels: ChannelNames = None,
    twice: Annotated[
        bool, typer.Option("--twice", help="Encode a second, closer time: better maps, in about thrice the time.")
    ] = False,
    read: terminal.ReadFlag = None,
    reader: terminal.ReaderName = None,
    page: terminal.PageNumber = None,
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
    sign = terminal.waiting(f"{'encoding and reading' if reads(by, preset) else 'encoding'} {image}", encoder)
    with hints_aside() as hints, sign:
        texture, seconds = _encode_timed(
            image, page, encoder, preset=wanted, rank=rank, long_side=long_side, channels=split_names(channels), read=by
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
    terminal.print_table(f"{image} -> {output}", ("what", "value"), rows)
    print_hints(hints)
    terminal.print_json(**describe_texture(image, texture, seconds), texture=str(output), bytes=output.stat().st_size)


def read(
    image: Annotated[Path, typer.Argument(help="An image, a PDF, or a texture that was read.")],
    reader: terminal.ReaderName = None,
    page: terminal.PageNumber = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print the lines and nothing else.")] = False,
) -> None:
    """Read what is written in an image: lines with their boxes. A PDF's own text is taken as it is."""
    from foveate.reading.pdf import open_source
    from foveate.reading.readers import read_words
    from foveate.texture.texture import Texture

    start = time.perf_counter()
    if image.suffix.lower() == TEXTURE:
        _refuse_for_texture(image, None, page)
        texture = Texture.load(image)
        rgb, words = texture.pixel, texture.words
    else:
        picture, layer = open_source(image, page)
        rgb, words = picture.rgb, None if layer is None or layer.scanned else layer.words
    if words is None or reader is not None:
        with terminal.waiting(f"reading {image}"):
            words = read_words(rgb, reader or "auto")
    seconds = time.perf_counter() - start
    rows = [
        (line.text, f"{line.confidence:.2f}", "{:.0f} {:.0f} {:.0f} {:.0f}".format(*line.box)) for line in words.lines
    ]
    title = f"{image}  {rgb.shape[0]} x {rgb.shape[1]} pixels, {describe_words(words)}, {seconds:.1f} s"
    if plain:
        typer.echo(words.text)
    elif rows:
        terminal.print_table(title, ("line", "confidence", "y0 x0 y1 x1"), rows)
    else:
        typer.echo(f"{title}\nnothing is written there, as far as {words.reader} can see")
    lines = [
        {
            "text": line.text,
            "confidence": round(line.confidence, 4),
            "box": terminal.round_box(line.box),
            "words": [[words[i].text, terminal.round_box(words[i].box)] for i in line.words],
        }
        for line in words.lines
    ]
    terminal.print_json(
        image=str(image), size=list(rgb.shape[:2]), reader=words.reader, turned=words.turned,
        seconds=round(seconds, 3), words=len(words), lines=lines,
    )  # fmt: skip


def channels(
    image: Annotated[Path, typer.Argument(help="An image or a texture file.")],
    encoder: terminal.EncoderName = None,
    out: terminal.Out = Path("foveate-out"),
    names: ChannelNames = "all",
    layout: Annotated[
        str | None, typer.Option(help="List the columns of this layout: full, full40, grid13, ... (docs/channels.md).")
    ] = None,
) -> None:
    """Draw all channels of an image on one sheet, each from its lowest to its highest value (docs/channels.md)."""
    from foveate.core.files import make_folder
    from foveate.core.layout import FULL40, layout_named
    from foveate.viz import channel_sheet

    if layout is not None:
        layout_named(layout)  # a wrong name is said before the work begins
    with hints_aside():  # planes of the pixels are as fine as they are
        texture, seconds = load_or_encode(image, encoder, channels=names)
    make_folder(out)
    path = out / f"{Path(texture.name).stem}--channels.png"
    terminal.write_picture(path, channel_sheet(texture))
    if layout is not None:
        columns = layout_named(layout, texture.rank).names
        rows = [(str(number), *_row(texture, name)) for number, name in enumerate(columns)]
        terminal.print_table(f"{image}, {layout}", ("column", "channel", "native size", "values", "how"), rows)
    else:
        every = (*FULL40.names, *(name for name in texture.built if name not in FULL40.names))
        rows = [_row(texture, name) for name in every if not name.startswith(EMBEDDING)]
        number = sum(name.startswith(EMBEDDING) for name in every)
        rows.append((f"{EMBEDDING}0 .. {number - 1}", *_row(texture, f"{EMBEDDING}0")[1:]))
        terminal.print_table(str(image), ("channel", "native size", "values", "how"), rows)
    terminal.print_files("sheet", [str(path)])
    terminal.print_json(
        image=str(image),
        png=str(path),
        built=list(texture.built),
        columns=None if layout is None else list(columns),
        encode_seconds=round(seconds, 4),
    )


def _row(texture: Texture, name: str) -> tuple[str, ...]:
    from foveate.core.layout import channel_named
    from foveate.viz import describe_range

    plane = texture.channel(name, warn=False)
    values = describe_range(plane) if name in texture.built else f"not built: {plane.flat[0]:g}"
    by = f" ({texture.made_by[name]})" if name in texture.made_by else ""
    return name, f"{plane.shape[0]} x {plane.shape[1]}", values, channel_named(name, texture.extra).about + by


def hints_aside() -> AbstractContextManager[list[str]]:
    """Hints at images much larger than what the encoder sees."""
    from foveate.core.errors import ResolutionHint

    return terminal.warnings_aside(ResolutionHint)


def print_hints(hints: list[str], *more: str) -> None:
    sizes = "--long-side 1024 shows more, --long-side native every pixel; foveate zoom: still more"
    for hint in (*(f"{hint.splitlines()[0]}\n  {sizes}" for hint in hints), *more):
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
    """A texture, encoded or read from its file, and the seconds it took, without loading.

    A texture file goes by the preset that is named: it is read where that reads, nothing else of it is made again.
    """
    if path.suffix.lower() == TEXTURE:
        from foveate.relevance.presets import remember_preset
        from foveate.texture.texture import Texture

        _refuse_for_texture(path, long_side, page)
        start = time.perf_counter()
        texture = remember_preset(Texture.load(path), preset)
        read = reads(read, preset) and (read or True)
        if read:
            with terminal.waiting(f"reading {path}"):
                texture = texture.read("auto" if read is True else read)
        return texture, time.perf_counter() - start
    with terminal.waiting(f"{'encoding and reading' if reads(read, preset) else 'encoding'} {path}", encoder):
        return _encode_timed(
            path, page, encoder, preset=preset, long_side=long_side, channels=split_names(channels), read=read
        )


def _refuse_for_texture(path: Path, long_side: Any, page: int | None) -> None:
    from foveate.core.errors import OptionError

    for name, value in (("--long-side", long_side), ("--page", page)):
        if value is not None:
            raise OptionError(
                f"{name} {value} for the texture '{path}'",
                expected="no such option: its image is encoded already",
                fix="leave it out, or encode the image again with it",
            )


def _encode_timed(path: Path, page: int | None, encoder: str | None, **how: Any) -> tuple[Texture, float]:
    """A texture, and the seconds of opening and encoding, without those in which the encoder was loaded."""
    from foveate.core.threads import Behind, products_in_one_thread
    from foveate.encoders.load import resolve_encoder
    from foveate.reading.pdf import open_source

    encoder, start = encoder or "nano", time.perf_counter()
    picture, layer = open_source(path, page)  # a bad image is refused before anything is loaded, or downloaded
    opened, network = time.perf_counter() - start, resolve_encoder(encoder)
    with Behind(1) as behind:  # while this thread imports, and prepares what a basis is fitted to
        behind.call(_load, network)
        from foveate.language.negatives import query_metric_of
        from foveate.pipeline import encode as encode_image

        with products_in_one_thread():
            query_metric_of(network)
    start = time.perf_counter()
    if layer is not None:  # a page is opened again, since its words come with it
        return encode_image(path, encoder=encoder, page=page, **how), time.perf_counter() - start
    return encode_image(picture, encoder=encoder, **how), time.perf_counter() - start + opened


def _load(network: Encoder) -> None:
    """What is slow only the first time: the network, the sum over its files, and OpenCV's tables of Lab (70 ms)."""
    import cv2
    import numpy as np

    tiny = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    network.encode_image(tiny, long_side=64)
    cv2.cvtColor(tiny, cv2.COLOR_RGB2LAB)
    str(network.revision)


def who_reads(read: bool | None, reader: str | None) -> bool | str | None:
    """The options --read and --reader as the keyword `read` of encode. Raises OptionError."""
    from foveate.core.errors import OptionError

    if read is False and reader is not None:
        raise OptionError(f"--no-read with --reader {reader}", expected="one of them", fix="leave out --no-read")
    return read if reader is None else reader


def reads(read: bool | str | None, preset: str | None) -> bool:
    """Whether the options --read, --reader and --preset ask for reading. Raises OptionError for no preset."""
    if read is not None or preset is None:
        return bool(read)
    from foveate.relevance.presets import find_preset

    return bool(find_preset(preset).encoding.get("read"))


def describe_texture(image: Path, texture: Texture, seconds: float) -> dict[str, Any]:
    return {
        "image": str(image),
        "preset": texture.preset,
        "encoder": texture.encoder.name,
        "grid": list(texture.grid.shape),
        "encode_seconds": round(seconds, 4),
        "words": None if texture.words is None else len(texture.words),
    }


def describe_words(words: Words) -> str:
    turned = f"; the page had to be turned by {words.turned} degrees" if words.turned else ""
    count = terminal.format_count
    return f"{count(len(words), 'word')} in {count(len(words.lines), 'line')}, {words.reader}{turned}"


def split_names(channels: str | None) -> Any:
    """--channels: a set as it is, names as a list; None where nothing was named."""
    from foveate.channels.build import CHANNEL_SETS

    return channels if channels is None or channels in CHANNEL_SETS else [name.strip() for name in channels.split(",")]
