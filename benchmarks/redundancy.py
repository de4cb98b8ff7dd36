"""How many visual tokens show a pixel that no neighbour shows?

    python -m benchmarks redundancy pages.tar screens/ photos/

Tokens of 2 x 2 patches of 14 and of 16 pixels, as Qwen2.5-VL and Qwen3-VL make of an image with the settings of their
checkpoints. "lossless" is the mean share that budget "lossless" keeps; "2 levels" and "8 levels" let pixels differ by
so many of 256; "anywhere" would keep one of all tokens that are the same, wherever they lie.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image

from foveate.cli.terminal import counting
from foveate.core.image import load_image
from foveate.store.sources import SUFFIXES

SIZES = {
    14: (56**2, 3584**2),
    16: (256**2, 4096**2),
}  # pixels, the fewest and the most of an image, by the patch's side
LEVELS = (0, 2, 8)
COLUMNS = ("images", "patch", "number", "tokens", "lossless", "2 levels", "8 levels", "anywhere")


def read_images(source: Path, limit: int | None) -> Iterator[Image.Image]:
    """Of a folder, with all that is below it, or of a tar; in the order of their names."""
    if source.is_dir():
        for file in [each for each in sorted(source.rglob("*")) if each.suffix.lower() in SUFFIXES][:limit]:
            yield Image.fromarray(load_image(file).rgb)
        return
    with tarfile.open(source) as archive:
        names = [name for name in sorted(archive.getnames()) if Path(name).suffix.lower() in SUFFIXES]
        for name in names[:limit]:
            member = archive.extractfile(name)
            assert member is not None
            yield Image.fromarray(load_image(member.read()).rgb)


def measure(
    images: Annotated[list[Path], typer.Argument(help="Folders or tars of images; a row each.")],
    limit: Annotated[int | None, typer.Option(help="Images of each, at most.")] = None,
) -> dict[str, Any]:
    """How many visual tokens show a pixel that no neighbour shows?"""
    from transformers import Qwen2VLProcessor

    from examples.tiny_vlms.parts import qwen_processor
    from foveate.vlm.families.pixels import find_cells, find_repeated
    from foveate.vlm.families.token_layout import one_grid

    processors = {patch: qwen_processor(Qwen2VLProcessor, patch, *sizes) for patch, sizes in SIZES.items()}
    rows = []
    for source in images:
        shares = dict[int, list[list[float]]]({patch: [] for patch in SIZES})
        with counting("images", limit or 0) as progress:
            for number, image in enumerate(read_images(source, limit), 1):
                for patch, processor in processors.items():
                    made = processor.image_processor([image], return_tensors="pt")
                    _, h, w = made["image_grid_thw"][0].tolist()
                    layout = [one_grid(h // 2, w // 2, (image.height, image.width))]
                    ((cells,),) = find_cells(None, processor, made, layout)
                    unique = len({row.tobytes() for row in cells.reshape(h * w // 4, -1)})
                    kept = [1 - find_repeated(None, processor, made, layout, t)[0][0].mean() for t in LEVELS]
                    shares[patch].append([h * w // 4, *kept, unique / (h * w // 4)])
                progress(number)
        for patch, found in shares.items():
            tokens, *means = np.mean(found, 0).tolist()
            name = f"{source.parent.name}/{source.name}"
            shown = [name, str(patch), str(len(found)), f"{tokens:.0f}", *(f"{100 * mean:.1f} %" for mean in means)]
            rows.append({"what": name, "patch": patch, "cells": shown, "tokens": tokens, "shares": means})
    return {"title": "visual tokens that repeat no neighbour", "columns": COLUMNS, "rows": rows}
