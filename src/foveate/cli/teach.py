"""`foveate teach`: boxes in images become a word, in a file for --words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli import terminal
from foveate.cli.encode import load_or_encode

if TYPE_CHECKING:
    from foveate.texture.texture import Texture

_BOX = re.compile(r"(.+):(\d+(?:\.\d+)?(?:,\d+(?:\.\d+)?){3})")
_NEARLY = re.compile(r".+:[-\d., ]+")


def teach(
    name: Annotated[str, typer.Argument(help='The word, a noun phrase in quotes: "our logo".')],
    example: Annotated[
        list[str],
        typer.Argument(
            help="IMAGE:Y0,X0,Y1,X1, a box around it in pixels, in the order in which foveate prints boxes; or IMAGE "
            "alone, which does not show it. Images, or textures (.safetensors)."
        ),
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", help="File for the word (.fov). One that is there keeps its words.")
    ] = Path("words.fov"),
) -> None:
    """Teach a word with a handful of boxes; --words WORDS.fov then lets questions name it (docs/teach.md)."""
    from foveate.core.errors import OptionError
    from foveate.encoders.taught import TaughtWords
    from foveate.pipeline import score
    from foveate.pipeline import teach as teach_word

    words = TaughtWords.load(out) if out.exists() else None
    textures: dict[str, Texture] = {}
    boxes, without = [], []
    for text in example:
        found = _BOX.fullmatch(text)
        path = text if found is None else found[1]
        if found is None and _NEARLY.fullmatch(text) and not Path(text).exists():
            raise OptionError(
                f"the box of {text!r}",
                expected="IMAGE:Y0,X0,Y1,X1, four numbers without spaces",
                fix="a.jpg:10,20,80,90 is a box of 70 x 70 pixels",
            )
        if path not in textures:
            textures[path], _ = load_or_encode(Path(path), None)
        if found is None:
            without.append(textures[path])
        else:
            boxes.append((textures[path], [float(number) for number in found[2].split(",")]))
    taught = teach_word(name, boxes, without=without, words=words)
    taught.save(out)
    rows, records = [], list[dict[str, Any]]()
    for path, texture in textures.items():
        relevance = score(texture, f'"{name}"', words=taught)
        shown = sum(each is texture for each, _ in boxes)
        said = terminal.format_confidence(relevance.confidence, relevance.detected)
        rows.append((path, str(shown), said))
        records.append({"image": path, "boxes": shown, "confidence": terminal.round_confidence(relevance.confidence)})
    count = sum(len(word.examples) for word in taught.words)
    terminal.print_table(f"{name}: {len(taught)} words from {count} boxes in {out}", ("image", "boxes", "found"), rows)
    terminal.print_json(words=list(taught), file=str(out), boxes=len(boxes), without=len(without), images=records)
