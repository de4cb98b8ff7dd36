"""`foveate channels`: all channels of an image on one sheet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from foveate.cli.encode import ChannelNames, hints_aside, load_or_encode
from foveate.cli.terminal import EncoderName, Out, print_json, print_table


def channels(
    image: Annotated[Path, typer.Argument(help="An image or a texture file.")],
    encoder: EncoderName = None,
    out: Out = Path("foveate-out"),
    names: ChannelNames = "all",
) -> None:
    """Draw all channels of an image on one sheet, each from its lowest to its highest value (docs/pictures.md)."""
    from foveate.cli.results import write_picture
    from foveate.core.files import make_folder
    from foveate.core.layout import FULL40, channel_named
    from foveate.viz import channel_sheet, describe_range

    with hints_aside():  # planes of the pixels are as fine as they are
        texture, seconds = load_or_encode(image, encoder, channels=names)
    make_folder(out)
    path = out / f"{Path(texture.name).stem}--channels.png"
    write_picture(path, channel_sheet(texture))
    rows, built = [], set(texture.built)
    for name in (*FULL40.names, *(name for name in texture.built if name not in FULL40.names)):
        plane, layer = texture.channel(name, warn=False), FULL40.layer(name) if name in FULL40.names else ""
        values = describe_range(plane) if name in built else f"not built: {plane.flat[0]:g}"
        about = channel_named(name, texture.extra).about + (
            f" ({texture.made_by[name]})" if name in texture.made_by else ""
        )
        rows.append((str(layer), name, f"{plane.shape[0]} x {plane.shape[1]}", values, about))
    print_table(str(image), ("layer", "channel", "native size", "values", "how"), rows)
    typer.echo(f"sheet: {path}")
    print_json(image=str(image), png=str(path), built=list(texture.built), encode_seconds=round(seconds, 4))
