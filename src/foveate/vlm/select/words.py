"""Words that a question found, on grids of visual tokens.

* They are kept whole: every token that a word reaches into gets the word's score. By its mean score "34.50" would reach
  the model as "34.5".
* Of an overview and tiles, words count on the tiles alone, and the overview less, the surer the answer was found there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from foveate.relevance.value import Relevance
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout
from foveate.vlm.select.choice import Floats

MARGIN = 0.1  # of a box's shorter side: as much around the letters is no part of them; by hand
SAME_SCALE = 1.2  # of the finest tokens' area: tiles of one image differ by rounding only; by hand


def follow_words(relevance: Sequence[Relevance], layout: TokenLayout) -> list[Relevance]:
    """Relevances on the grids of a layout, with words that were found whole on the finest grids."""
    best = _best_word(relevance)
    if not best:
        return list(relevance)
    finest = min(map(_area, layout.grids))
    return [
        raise_words(each) if _area(grid) <= SAME_SCALE * finest else _with_map(each, each.map * np.float32(1 - best))
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
    return _with_map(relevance, found, words=relevance.words)


def _with_map(relevance: Relevance, plane: Floats, words: Any = ()) -> Relevance:
    plane.setflags(write=False)
    return replace(relevance, map=plane, words=words)


def _best_word(relevance: Sequence[Relevance]) -> float:
    """The score of the best word, in [0, 1]; 0 where none was found."""
    return max((word.score for each in relevance for word in each.words), default=0.0)


def _area(grid: TokenGrid) -> float:
    y0, x0, y1, x1 = grid.box
    return (y1 - y0) * (x1 - x0) / grid.count
