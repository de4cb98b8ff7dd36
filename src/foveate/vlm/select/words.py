"""Words that a question found are kept whole, and where a model can read them.

* A map's mean over a token says little about half a word: the token that shows its end would be dropped, and "34.50"
  would reach the model as "34.5". So every token that a word reaches into gets the word's score, all alike: a budget
  keeps a word as a whole, the best words first. The budget stays exact; of the last word a part may be left.
* Where an image has an overview and tiles, letters are legible in the tiles alone: words count there, and the overview
  counts the less, the surer the answer was found among them.
* An even spread is for what is beside the thing that a question names. Of a value on a page its label is that, which is
  found, too: less is spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foveate.relevance.value import Relevance
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout

MARGIN = 0.1  # of a box's shorter side: as much around the letters is no part of them
SAME_SCALE = 1.2  # of the finest tokens' area
SPREAD = 0.25  # of a budget, evenly: measured on a small model that answers (docs/log.md)
SPREAD_READ = 0.1  # the same where the answer was read


def choose_spread(relevance: Sequence[Relevance]) -> float:
    """The share of a budget that is spread evenly unless the caller says so."""
    return SPREAD + (SPREAD_READ - SPREAD) * _sureness(relevance)


def follow_words(relevance: Sequence[Relevance], layout: TokenLayout) -> list[Relevance]:
    """Relevances on the grids of a layout, with words that were found whole on the finest grids."""
    best = _sureness(relevance)
    if not best:
        return list(relevance)
    finest = min(map(_area, layout.grids))
    return [
        raise_words(each)
        if _area(grid) <= SAME_SCALE * finest
        else replace(each, map=_lowered(each.map, 1 - best), words=())
        for each, grid in zip(relevance, layout.grids, strict=True)
    ]


def raise_words(relevance: Relevance) -> Relevance:
    """A relevance on a grid of tokens, with every word's score on all tokens that show the word."""
    if not relevance.words:
        return relevance
    grid, found = relevance.grid, relevance.map.copy()
    down, across = grid.h / grid.height, grid.w / grid.width
    for word in relevance.words:
        y0, x0, y1, x1 = word.box
        margin = MARGIN * min(y1 - y0, x1 - x0)
        rows = slice(int((y0 + margin) * down), int(np.ceil((y1 - margin) * down)))
        columns = slice(int((x0 + margin) * across), int(np.ceil((x1 - margin) * across)))
        np.maximum(found[rows, columns], np.float32(word.score), out=found[rows, columns])
    found.setflags(write=False)
    return replace(relevance, map=found)


def _sureness(relevance: Sequence[Relevance]) -> float:
    """The score of the best word, in [0, 1]; 0 where none was found."""
    return max((word.score for each in relevance for word in each.words), default=0.0)


def _lowered(plane: np.ndarray, share: float) -> np.ndarray:
    out = plane * np.float32(share)
    out.setflags(write=False)
    return out


def _area(grid: TokenGrid) -> float:
    y0, x0, y1, x1 = grid.box
    return (y1 - y0) * (x1 - x0) / grid.count
