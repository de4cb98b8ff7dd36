"""What is lost where a cell keeps fewer numbers, in a basis of each image and in one that all share, by kind of image.

    python -m benchmarks compression --data DATA/dev/coco128 --data DATA/dev/open --data DATA/dev/docs \
        --data DATA/dev/names --basis basis.safetensors

Of things that are there, by the measures of `Lost` in foveate/store/basis_check.py, a table each. A folder's questions:

things, drawings   annotations.json (COCO): names of things in photographs, and in pencil drawings of these by OpenCV
open, faces        queries.json with masks (questions.py); faces are its questions about parts of heads
pages              queries.json with boxes (reading.py): the answers on pages that nobody read
rare names         queries.json with "names": mosaics of four photographs, each of one of ImageNet's 1,000 classes
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import cv2
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks import questions, reading
from benchmarks.common import EncoderName
from foveate.cli.evaluate.coco import RASTER, open_images, read_folder
from foveate.cli.evaluate.compression import TITLES
from foveate.cli.evaluate.relevance import question
from foveate.cli.terminal import counting
from foveate.core.errors import OptionError, QueryError
from foveate.core.image import Picture
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import query_metric_of
from foveate.language.query import prepare
from foveate.store.basis_check import (
    Lost,
    Mask,
    compare_maps,
    encoder_for,
    in_full,
    in_shared,
    means_of,
    textures_of,
    truncated,
)
from foveate.store.shared_basis import FittedBasis
from foveate.texture.basis import inward

RANKS = (16, 24, 32, 64)
SHARED = (*RANKS, 128)
HEADS = frozenset("face hair eye eyes ear ears nose mouth beard".split())


class Asked(NamedTuple):
    """Pixels [H, W, 3] of one kind, and the masks of what is asked there, on any raster."""

    kind: str
    rgb: NDArray[np.uint8]
    masks: dict[str, Mask]


def measure(
    data: Annotated[list[Path], typer.Option(help="Folder with annotations.json or queries.json; again for more.")],
    basis: Annotated[Path | None, typer.Option(help="From 'foveate basis fit'; without it own bases alone.")] = None,
    encoder: EncoderName = None,
    limit: Annotated[int, typer.Option(help="Images of each folder at most, evenly from all.")] = 60,
) -> dict[str, Any]:
    """What is lost with fewer numbers a cell, in an own basis and a shared one, by kind of image."""
    fitted = None if basis is None else FittedBasis.load(basis)
    network = load_encoder(encoder or "nano") if fitted is None else encoder_for(fitted, encoder)
    bases = {r: fitted.basis(r) for r in SHARED if fitted is not None and r <= len(fitted.directions)}
    shared = {rank: (each, inward(each, query_metric_of(network))) for rank, each in bases.items()}
    own, found = [rank for rank in RANKS if rank <= network.width], dict[tuple[str, tuple[str, int]], list[Lost]]()
    for folder in data:
        with counting(folder.name, limit) as progress:
            for done, asked in enumerate(_asked(folder, limit), 1):
                texture, dense = textures_of(Picture(asked.rgb, None, asked.kind), network, max(own))
                textures = {("own", rank): truncated(texture, rank) for rank in own}
                textures |= {("shared", rank): in_shared(texture, dense, *each) for rank, each in shared.items()}
                known = {text: mask for text, mask in asked.masks.items() if _reads(network, text)}
                for way, lost in compare_maps(in_full(texture, dense), textures, known, network):
                    found.setdefault((asked.kind, way), []).append(lost)
                progress(min(done, limit))
    kinds, ways = (list(dict.fromkeys(each)) for each in zip(*found, strict=True))
    means = {key: means_of(lost) for key, lost in found.items()}
    numbers = {kind: len(found[kind, ways[0]]) for kind in kinds}
    tables = []
    for name, title in TITLES.items():
        numbered = {way: [f"{means[kind, way][name]:.3f}".replace("nan", "-") for kind in kinds] for way in ways}
        rows = [{"cells": [*map(str, way), *cells]} for way, cells in numbered.items()]
        columns = ("basis", "rank", *(f"{kind} ({numbers[kind]})" for kind in kinds))
        tables.append({"title": f"{title}, by number of questions", "columns": columns, "rows": rows})
    first = tables[0]
    every = [{"kind": kind, "basis": way[0], "rank": way[1], **known} for (kind, way), known in means.items()]
    return {**first, "after": tables[1:], "means": every, "encoder": network.name}


def _reads(network: Encoder, text: str) -> bool:
    try:
        return bool(prepare(network, text))
    except QueryError:
        return False


def _asked(data: Path, limit: int) -> Iterator[Asked]:
    """What is asked about the images of a folder, of at most `limit` of them."""
    if (data / "annotations.json").is_file():
        folder = read_folder(data)
        for item in replace(folder, images=_some(folder.images, limit)).labelled():
            masks = {question(name): mask for name, mask in item.masks.items()}
            yield Asked("things", item.rgb, masks)
            yield Asked("drawings", draw(item.rgb), masks)
        return
    try:
        first = json.loads((data / "queries.json").read_text("utf-8"))[0]
        way: Callable[[Path, int], Iterator[Asked]] = (
            _open if "set" in first else _mosaics if "names" in first else _pages
        )
    except (OSError, ValueError, LookupError, TypeError) as cause:
        expected = "a folder with annotations.json or queries.json"
        raise OptionError(f"--data {data}: {cause}", expected=expected, fix="docs/evaluate.md describes both") from None
    yield from way(data, limit)


def _some(all_of_them: Sequence[Any], limit: int) -> tuple[Any, ...]:
    return tuple(all_of_them[:: -(-len(all_of_them) // limit)])


def draw(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A pencil drawing of a photograph, in its colours."""
    return np.asarray(cv2.pencilSketch(rgb, sigma_s=60, sigma_r=0.07, shade_factor=0.05)[1], np.uint8)


def _open(data: Path, limit: int) -> Iterator[Asked]:
    asked = questions.read_questions(data)
    for _, photograph, rgb in replace(asked, photographs=_some(asked.photographs, limit)).read():
        there = {each.text: each.mask for each in photograph.questions if each.mask is not None}
        heads = {text: mask for text, mask in there.items() if HEADS & set(text.lower().replace("'s", "").split())}
        yield Asked("open", rgb, {text: mask for text, mask in there.items() if text not in heads})
        yield Asked("faces", rgb, heads)


def _pages(data: Path, limit: int) -> Iterator[Asked]:
    asked = [each for each in reading.read_questions(data) if each.kind != "scene"]
    with open_images(data) as read:
        for file in _some(sorted({each.file for each in asked}), limit):
            rgb = read(file)
            size = rgb.shape[0], rgb.shape[1]
            masks = {
                each.text: reading.lay_boxes(each.places[0], size[0] // RASTER, size[1] // RASTER, size) > 0
                for each in asked
                if each.file == file
            }
            yield Asked("pages", rgb, masks)


def _mosaics(data: Path, limit: int) -> Iterator[Asked]:
    mosaics = json.loads((data / "queries.json").read_text("utf-8"))
    quarters = [np.kron(np.arange(4).reshape(2, 2) == place, np.ones((32, 32), bool)) for place in range(4)]
    with open_images(data) as read:
        for each in _some(mosaics, limit):
            yield Asked(
                "rare names", read(each["file"]), dict(zip(map(question, each["names"]), quarters, strict=True))
            )
