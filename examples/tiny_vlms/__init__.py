"""Tiny random models of the real classes, with their processors: try foveate.vlm where there is no checkpoint.

    model, processor = tiny("qwen3_5")
    vlm = foveate.vlm.attach(model, processor)

A family is the stock model class on a small configuration and the stock processor class, with a tokenizer of single
characters. Nothing is downloaded. What such a model answers is noise; that its tokens are dropped exactly is not.
"""

from __future__ import annotations

from typing import Any

import torch

from examples.tiny_vlms import first, grids, rope_grids, squares, tiles
from examples.tiny_vlms.parts import WIDTH

FAMILIES = {**first.FAMILIES, **rope_grids.FAMILIES, **grids.FAMILIES, **squares.FAMILIES, **tiles.FAMILIES}
# or what stands in for it: tests/stand_in
NEED_TORCHVISION = {**grids.NEED_TORCHVISION, **squares.NEED_TORCHVISION, **tiles.NEED_TORCHVISION}
REFUSED = {**squares.REFUSED, **tiles.REFUSED}  # their visual tokens cannot be chosen: foveate says why


def tiny(name: str, width: int = WIDTH) -> tuple[Any, Any]:
    """(model, processor) of a family: float32, evaluation, the same weights in every run. `width`: see WIDTH."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, processor = (FAMILIES | NEED_TORCHVISION | REFUSED)[name](width)
    model.eval()
    for parameter in model.parameters():  # random initialisation is so small that attention is uniform
        if parameter.ndim > 1:
            parameter.data.mul_(4)
    return model, processor
