"""`foveate channels`: all channels of an image on one sheet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.encode import ChannelNames, hints_aside, load_or_encode
from foveate.cli.terminal import EncoderName, Out, print_files, print_json, print_table

if TYPE_CHECKING:
    from foveate.texture.texture import Texture

EMBEDDING, ROPE = "embedding_", "angles of positions, as rotary embeddings have them"


def channels(
    image: Annotated[Path | None, typer.Argument(help="An image or a texture file.", show_default=False)] = None,
    encoder: EncoderName = None,
    out: Out = Path("foveate-out"),
    names: ChannelNames = "all",
    listed: Annotated[bool, typer.Option("--list", help="Print the names of all channels, without an image.")] = False,
) -> None:
    """Draw all channels of an image on one sheet, each from its lowest to its highest value (docs/channels.md)."""
    if listed:
        _list_names()
    elif image is None:
        raise typer.BadParameter("an image is missing; --list prints the names of all channels")
    else:
        _draw(image, encoder, out, names)


def _draw(image: Path, encoder: str | None, out: Path, names: str | None) -> None:
    from foveate.cli.results import write_picture
    from foveate.core.files import make_folder
    from foveate.core.layout import FULL40
    from foveate.viz import channel_sheet

    with hints_aside():  # planes of the pixels are as fine as they are
        texture, seconds = load_or_encode(image, encoder, channels=names)
    make_folder(out)
    path = out / f"{Path(texture.name).stem}--channels.png"
    write_picture(path, channel_sheet(texture))
    every = (*FULL40.names, *(name for name in texture.built if name not in FULL40.names))
    rows = [_row(texture, name) for name in every if not name.startswith(EMBEDDING)]
    number = sum(name.startswith(EMBEDDING) for name in every)
    rows.append((f"{EMBEDDING}0 .. {number - 1}", *_row(texture, f"{EMBEDDING}0")[1:]))
    print_table(str(image), ("channel", "native size", "values", "how"), rows)
    print_files("sheet", [str(path)])
    print_json(image=str(image), png=str(path), built=list(texture.built), encode_seconds=round(seconds, 4))


def _row(texture: Texture, name: str) -> tuple[str, ...]:
    from foveate.core.layout import channel_named
    from foveate.viz import describe_range

    plane = texture.channel(name, warn=False)
    values = describe_range(plane) if name in texture.built else f"not built: {plane.flat[0]:g}"
    by = f" ({texture.made_by[name]})" if name in texture.made_by else ""
    return name, f"{plane.shape[0]} x {plane.shape[1]}", values, channel_named(name, texture.extra).about + by


def _list_names() -> None:
    from foveate.channels.build import CHANNEL_SETS, COMPUTABLE
    from foveate.core.layout import EVERY_NAME

    def named_by(channel: Any) -> str:
        sets = [name for name, members in CHANNEL_SETS.items() if channel.name in members]
        if sets or channel.name in COMPUTABLE:
            return sets[0] if sets else "its name"
        return "" if channel.stored or channel.native == "flow" else "always"

    rows = [(channel.name, named_by(channel), channel.about) for channel in EVERY_NAME.values()]
    print_table(
        "all channels; computed by --channels fast, standard (the default), all, or their name; others are added",
        ("channel", "computed by", "what it is"),
        [row for row in rows if not row[0][-1].isdigit()]
        + [("embedding_0, ...", "always", "compressed dense embedding"), ("rope_sin_y_0, ...", "always", ROPE)],
    )
    print_json(channels=[{"name": name, "computed_by": by, "about": about} for name, by, about in rows])
