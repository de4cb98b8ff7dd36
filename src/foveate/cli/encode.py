"""`foveate encode`: an image to a texture file. And how every command gets its texture."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.terminal import EncoderName, LongSide, print_json, print_table, waiting

if TYPE_CHECKING:
    from foveate.texture.texture import Texture

TEXTURE = ".safetensors"
ChannelNames = Annotated[
    str,
    typer.Option("--channels", help="fast, standard or all; or names, with commas between: text,boundary,depth."),
]


def encode(
    image: Annotated[Path, typer.Argument(help="An image.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Texture file to write (.safetensors).")],
    encoder: EncoderName = None,
    rank: Annotated[int, typer.Option(help="Numbers kept for each cell.")] = 24,
    long_side: LongSide = None,
    channels: ChannelNames = "standard",
    twice: Annotated[
        bool, typer.Option("--twice", help="Encode a second, closer time: better maps, in about thrice the time.")
    ] = False,
) -> None:
    """Encode an image once, keep the texture for 'foveate look FILE'."""
    from foveate.core.errors import OptionError
    from foveate.pipeline import encode as encode_image
    from foveate.tiles.re_encode import refine

    if output.suffix.lower() != TEXTURE:
        raise OptionError(
            f"--output {output}", expected=f"a name that ends in {TEXTURE}", fix=f"write -o {image.stem}{TEXTURE}"
        )
    start = time.perf_counter()
    with waiting(f"encoding {image}", encoder):
        texture = encode_image(
            image, encoder=encoder or "nano", rank=rank, long_side=long_side, channels=_split(channels)
        )
        if twice:
            texture = refine(texture, encoder=encoder)
    seconds = time.perf_counter() - start
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
    print_table(f"{image} -> {output}", ("what", "value"), rows)
    print_json(
        image=str(image),
        texture=str(output),
        encoder=texture.encoder.name,
        grid=list(grid.shape),
        encode_seconds=round(seconds, 4),
        bytes=output.stat().st_size,
    )


def load_or_encode(
    path: Path, encoder: str | None, long_side: int | None = None, channels: str = "standard"
) -> tuple[Texture, float]:
    """A texture from an image (encoded) or from a texture file (read), and the seconds it took."""
    from foveate.core.errors import OptionError
    from foveate.pipeline import encode as encode_image
    from foveate.texture.texture import Texture

    start = time.perf_counter()
    if path.suffix.lower() == TEXTURE:
        if long_side is not None:
            raise OptionError(
                f"--long-side {long_side} for the texture '{path}'",
                expected="no such option: its image is encoded already",
                fix="leave it out, or encode the image again with it",
            )
        texture = Texture.load(path)
    else:
        with waiting(f"encoding {path}", encoder):
            texture = encode_image(path, encoder=encoder or "nano", long_side=long_side, channels=_split(channels))
    return texture, time.perf_counter() - start


def _split(channels: str) -> Any:
    """--channels: a preset as it is, names as a list."""
    from foveate.channels.build import PRESETS

    return channels if channels in PRESETS else [name.strip() for name in channels.split(",")]
