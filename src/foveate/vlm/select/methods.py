"""How many visual tokens of each image are kept, and which.

Method "relevance" keeps what `foveate.allocate` keeps of the question's map. "changed" is the same, but what looks in a
video as it did when the place last changed comes last. The others are baselines (baselines.py). Each keeps exactly as
many tokens as the budget says (downsample: at most).

* Several grids over one image share its budget: as many tokens go to each as it has among the best of all.
* Words that a question found are kept whole: every token that a word reaches into gets the word's score. By its mean
  score "34.50" would reach the model as "34.5".
* Of an overview and tiles, words count on the tiles alone, and the overview less, the surer the answer was found there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import ABSENT_FLOOR, Allocation, auto_budget, nearest_budget
from foveate.allocation.policies import Proportional, TopK, apportion, top_cells
from foveate.channels.visual import CHANGED, describe_cells, measure_change
from foveate.core.checks import check_choice, check_int, keyword
from foveate.core.errors import BudgetError, BudgetWarning, OptionError, warn
from foveate.pipeline import allocate
from foveate.relevance.value import Relevance
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout
from foveate.vlm.select.baselines import BASELINES
from foveate.vlm.select.choice import Budget, Candidates, Choice, Choosing, Floats, Indices, split_by_grid

Method = Literal["relevance", "changed", "random", "uniform", "saliency", "maxmin", "dpp", "downsample"]
METHODS: tuple[Method, ...] = get_args(Method)
SPREAD = 0.25  # of a budget, evenly: measured on a small model that answers (docs/log.md)
SPREAD_READ = 0.1  # the same where the answer was read: its label was found, too (docs/log.md)
MARGIN = 0.1  # of a box's shorter side: as much around the letters is no part of them; by hand
SAME_SCALE = 1.2  # of the finest tokens' area: tiles of one image differ by rounding only; by hand


def choose_tokens(
    layouts: Sequence[TokenLayout],
    relevance: Sequence[Sequence[Relevance]],
    images: Sequence[Sequence[NDArray[np.uint8]]],
    features: Callable[[int], Floats],
    budget: Budget,
    method: Method,
    choosing: Choosing,
) -> list[Choice]:
    """What is kept of each image, or of the video.

    relevance, images: of the pictures of each layout. features: of an image's selectable tokens, by its number.
    """
    counts = count_tokens(layouts, relevance, budget, choosing.window)
    chosen = []
    for number, (layout, maps, count) in enumerate(zip(layouts, relevance, counts, strict=True)):
        own = replace(choosing, floor=floor_for(maps, choosing.floor), seed=choosing.seed + number)
        image = Candidates(layout, maps, images[number], partial(features, number), own)
        if budget == "auto":  # room for what must be kept
            masks = (image.protected(grid) for grid in layout.grids)
            count = max(count, sum(int(mask.sum()) for mask in masks if mask is not None))
        chosen.append(choose(method, image, count))
    return chosen


def count_tokens(
    layouts: Sequence[TokenLayout],
    relevance: Sequence[Sequence[Relevance]],
    budget: Budget,
    window: tuple[int, int] | None = None,
) -> list[int]:
    """Visual tokens to keep of each image, or of the video. Raises BudgetError, OptionError.

    budget: a number, a tuple with one for each image, "auto", or None for all; a warning where there are fewer.
    relevance: over the pictures of each layout. window: "auto" is moved to fit it; for layouts of one grid.
    """
    if window is not None and any(len(layout.grids) > 1 for layout in layouts):
        raise OptionError(
            f"window={window} for images of several grids of tokens",
            expected="a model that lays one grid over an image",
            fix="leave it out: tiles share a budget by their best tokens",
        )
    counts = [layout.selectable for layout in layouts]
    if budget is None:
        return counts
    if isinstance(budget, str) and budget == "auto":
        wanted = [auto_tokens(each, count) for each, count in zip(relevance, counts, strict=True)]
        return [nearest_budget(n, p.grids[0].grid, window) for n, p in zip(wanted, layouts, strict=True)]
    numbers = list(budget) if isinstance(budget, tuple) else [budget]
    if len(numbers) != len(counts):
        raise BudgetError(
            f"budget={budget!r} for {len(counts)} image{'s' if len(counts) > 1 else ''}",
            expected="a tuple with one number for each image",
            fix=f"pass budget={tuple(min(128, n) for n in counts)}, or 'auto'",
        )
    for number, count in zip(numbers, counts, strict=True):
        check_int("budget", number, error=BudgetError, fix=f"pass 1 to {count}, 'auto', or None for all")
        if number > count:
            warn(f"{keyword('budget', number)} is more than the {count} visual tokens: all are kept", BudgetWarning)
    return [min(int(number), count) for number, count in zip(numbers, counts, strict=True)]


def auto_tokens(relevance: Sequence[Relevance], count: int) -> int:
    """Visual tokens that "auto" keeps of `count`: the mean share that it would keep of the textures' own cells."""
    shares = [auto_budget(each) / each.grid.count for each in relevance]
    return min(count, max(1, round(float(np.mean(shares)) * count)))


def floor_for(relevance: Sequence[Relevance], floor: float | None = None) -> float:
    """The share of a budget that is spread evenly: the caller's, or by how sure an answer was read."""
    return SPREAD + (SPREAD_READ - SPREAD) * _best_word(relevance) if floor is None else floor


def choose(method: Method, image: Candidates, budget: int) -> Choice:
    """Exactly `budget` tokens of an image by a method's name. Raises OptionError for an unknown one."""
    check_choice("method", method, METHODS)
    if budget == image.layout.selectable:  # everything: no method has a choice
        return image.choice([np.arange(grid.count) for grid in image.layout.grids])
    if method in BASELINES:
        return BASELINES[method](image, budget)
    return _by_relevance(image, budget, _new(image) if method == "changed" else None)


def _by_relevance(image: Candidates, budget: int, new: Sequence[Floats] | None) -> Choice:
    choosing = image.choosing
    maps = follow_words(image.on_grids(features=not isinstance(choosing.policy, TopK | Proportional)), image.layout)
    if new is not None:  # what is not new comes last, as transparent cells do
        maps = [replace(r, valid=n * (1.0 if r.valid is None else r.valid)) for r, n in zip(maps, new, strict=True)]
    kept = []
    for grid, relevance, count in zip(image.layout.grids, maps, share_budget(image, maps, budget), strict=True):
        if count:
            how: dict[str, Any] = {"policy": choosing.policy, "floor": choosing.floor or 0.0}
            how |= {"protected": image.protected(grid), "window": choosing.window}
            kept.append(allocate(relevance, int(count), **how))
        else:
            nothing = np.empty(0, np.int64), np.empty(0, np.float32)
            kept.append(Allocation(*nothing, grid.grid, texture=relevance.texture))
    return Choice(tuple(kept), image.layout.rows([allocation.indices for allocation in kept]))


def share_budget(image: Candidates, maps: Sequence[Relevance], budget: int) -> Indices:
    """Tokens for each grid: as many as it has among the best of all, by the rule of `foveate.allocate` on all grids."""
    counts = [grid.count for grid in image.layout.grids]
    if len(counts) == 1:
        return np.array([budget])
    likely = max(r.trust for r in maps)
    peak = max(max(float(r.map.max()) for r in maps), 1e-9)
    keys = [likely * r.map.ravel() / peak + (1 - likely) * r.saliency.ravel() for r in maps]
    flat = np.ptp(np.concatenate(keys)) == 0
    spread = 1.0 if flat else max(image.choosing.floor or 0.0, (1 - likely) * ABSENT_FLOOR)
    for number, (grid, relevance) in enumerate(zip(image.layout.grids, maps, strict=True)):
        if (protected := image.protected(grid)) is not None:
            keys[number] = np.where(protected.ravel(), np.inf, keys[number])
        if relevance.valid is not None:
            keys[number] = np.where(relevance.valid.ravel() > 0, keys[number], -np.inf)
    key = np.concatenate(keys)
    first = int(min((key == np.inf).sum(), budget))
    seen = [int(np.isfinite(each).sum() + (each == np.inf).sum()) for each in keys]
    even = min(int(spread * budget), budget - first)
    found = np.array([len(part) for part in split_by_grid(image.layout.grids, top_cells(key, budget - even))])
    found = found + apportion(seen if sum(seen) else counts, even)
    return apportion(found, budget, upper=seen if sum(seen) >= budget else counts)


def _new(image: Candidates) -> list[Floats]:
    """1 where a token looks different from when the same place last changed, else 0, by grid; a first frame is new."""
    last: dict[tuple[int, int], NDArray[np.uint8]] = {}
    new = []
    for grid in image.layout.grids:
        differs = np.ones((grid.h, grid.w), bool)
        if image.layout.frames > 1:  # the grids of a video show whole pictures
            look = describe_cells(image.images[grid.frame], grid.grid)
            if (grid.h, grid.w) in last:
                differs = measure_change(look, last[grid.h, grid.w]) > CHANGED
                look = np.where(differs[..., None], look, last[grid.h, grid.w])
            last[grid.h, grid.w] = look
        new.append(differs.astype(np.float32))
    return new


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
