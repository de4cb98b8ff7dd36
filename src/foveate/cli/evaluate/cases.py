"""The best, the worst and some random cases of a measurement, as one page of pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from foveate.allocation.allocation import Allocation
from foveate.cli.evaluate.agreement import SEED
from foveate.viz import paper
from foveate.viz.layers import lay_boxes, lay_heat, lay_kept, scale_to
from foveate.viz.pictures import Tile, arrange

CASES, TILE, OUTLINE = 7, 240, (64, 255, 96)  # pictures of each kind, their long side, the colour of masks
T = TypeVar("T")


class Case(NamedTuple):
    """A photograph [H, W, 3], the mask [h, w] of what was asked for, the map [h, w] of it, and lines of text.

    Where they are known, kept cells and true boxes [n, 4], (y0, x0, y1, x1) in pixels.
    """

    rgb: NDArray[np.uint8]
    mask: NDArray[np.bool_]
    heat: NDArray[np.floating]
    captions: tuple[str, ...]
    kept: Allocation | None = None
    boxes: NDArray[np.floating] | None = None


def choose_cases(items: Sequence[T], precision: ArrayLike) -> dict[str, list[T]]:
    """-> {"best", "worst", "random"}, up to CASES of each; `precision` [n] is of the items."""
    ranked = np.argsort(-np.asarray(precision), kind="stable")
    random = np.random.default_rng(SEED).permutation(len(items))
    kinds = {"best": ranked, "worst": ranked[::-1], "random": random}
    return {kind: [items[i] for i in order[:CASES]] for kind, order in kinds.items()}


def draw_page(kinds: Mapping[str, Sequence[Case]]) -> Image.Image:
    """A row of pictures for each kind of cases: what was asked for outlined, heat, kept cells with boxes."""
    rows = []
    for kind, cases in kinds.items():
        title = f"{kind} (captions: average precision / confidence)"
        tiles = [Tile(_draw(case), case.captions[0], case.captions[1:]) for case in cases]
        rows.append(arrange(tiles, CASES, size=20, title=title, narrowest=TILE))
    return paper.paint(paper.above(rows, paper.MARGIN))


def _draw(case: Case) -> NDArray[np.uint8]:
    small = scale_to(case.rgb, TILE)
    mask = cv2.resize(case.mask.astype(np.uint8), small.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    outlines, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    outlined = cv2.drawContours(small.copy(), outlines, -1, OUTLINE, 1)
    panels = [np.asarray(outlined, np.uint8), lay_heat(small, case.heat)]
    if case.kept is not None and case.boxes is not None:
        ratio = max(small.shape[:2]) / max(case.rgb.shape[:2])
        panels.append(lay_boxes(lay_kept(small, case.kept), case.boxes * ratio))
    return np.concatenate(panels)
