"""How many visual tokens of each image are kept, and which.

Method "relevance" keeps what `foveate.allocate` keeps of the question's map. "changed" is the same, but what looks in a
video as it did when the place last changed comes last. The others are baselines (baselines.py). Each keeps exactly as
many tokens as the budget says (downsample: at most).

* Several grids over one image share its budget: as many tokens go to each as it has among the best of all.
* Words that a question found are kept whole (words.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import Allocation, Keep, allocate_relevance, auto_budget, nearest_budget
from foveate.allocation.policies import Proportional, TopK, apportion, top_cells
from foveate.allocation.worth import Alike, find_alike, look_rows, mix_of, worth_of_all
from foveate.channels.visual import CHANGED, describe_cells, measure_change
from foveate.core.checks import check_choice, check_int, keyword
from foveate.core.errors import BudgetError, BudgetWarning, OptionError, warn
from foveate.relevance.value import Relevance
from foveate.vlm.families.token_layout import TokenLayout, whole_box
from foveate.vlm.select.baselines import BASELINES
from foveate.vlm.select.choice import Bools, Budget, Candidates, Choice, Choosing, Floats, Indices, split_by_grid
from foveate.vlm.select.words import follow_words

Method = Literal["relevance", "changed", "random", "uniform", "saliency", "maxmin", "dpp", "downsample"]
METHODS: tuple[Method, ...] = get_args(Method)
MOST_COMPARED = 8192  # tokens of an image, or of a video: more would take seconds once


def choose_tokens(
    layouts: Sequence[TokenLayout],
    relevance: Sequence[Sequence[Relevance]],
    images: Sequence[Sequence[NDArray[np.uint8]]],
    features: Callable[[int], Floats],
    budget: Budget,
    method: Method,
    choosing: Choosing,
    alike: Callable[[int], Alike | None] | None = None,
    repeated: Sequence[Sequence[Bools]] | None = None,
) -> list[Choice]:
    """What is kept of each image, or of the video.

    relevance, images: of the pictures of each layout. features, alike: of an image's selectable tokens, by its number;
    without `alike` they are compared by how they look in the textures. repeated: of each grid of each layout, tokens
    that are kept after all others, bool [h, w]; budget "lossless" keeps the others.
    """
    lossless = budget == "lossless"
    counts = count_tokens(layouts, relevance, None if lossless else budget, choosing.window)
    chosen = []
    for number, (layout, maps, count) in enumerate(zip(layouts, relevance, counts, strict=True)):
        own = replace(choosing, seed=choosing.seed + number)
        find = partial(alike_by_looks, layout, maps) if alike is None else partial(alike, number)
        image = Candidates(layout, maps, images[number], partial(features, number), own, find)
        if repeated is not None:
            image = replace(image, repeated=repeated[number])
        if lossless:
            chosen.append(image.choice([np.flatnonzero(~each) for each in image.repeated or ()]))
            continue
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
    numbers: list[Any] = list(budget) if isinstance(budget, tuple) else [budget]
    if len(numbers) != len(counts):
        raise BudgetError(
            f"budget={budget!r} for {len(counts)} image{'s' if len(counts) > 1 else ''}",
            expected="a tuple with one number for each image",
            fix=f"pass budget={tuple(min(128, n) for n in counts)}, or 'auto'",
        )
    for number, count in zip(numbers, counts, strict=True):
        check_int("budget", number, error=BudgetError, fix=f"pass 1 to {count}, 'auto', 'lossless', or None for all")
        if number > count:
            warn(f"{keyword('budget', number)} is more than the {count} visual tokens: all are kept", BudgetWarning)
    return [min(int(number), count) for number, count in zip(numbers, counts, strict=True)]


def auto_tokens(relevance: Sequence[Relevance], count: int) -> int:
    """Visual tokens that "auto" keeps of `count`: the mean share that it would keep of the textures' own cells."""
    shares = [auto_budget(each) / each.grid.count for each in relevance]
    return min(count, max(1, round(float(np.mean(shares)) * count)))


def choose(method: Method, image: Candidates, budget: int) -> Choice:
    """Exactly `budget` tokens of an image by a method's name. Raises OptionError for an unknown one."""
    check_choice("method", method, METHODS)
    if budget == image.layout.selectable:  # everything: no method has a choice
        return image.choice([np.arange(grid.count) for grid in image.layout.grids])
    if method in BASELINES:
        return BASELINES[method](image, budget)
    new = _new(image) if method == "changed" else None
    if image.repeated is not None:
        own = [np.float32(1) - each for each in image.repeated]
        new = own if new is None else [a * b for a, b in zip(own, new, strict=True)]
    return _by_relevance(image, budget, new)


def _by_relevance(image: Candidates, budget: int, new: Sequence[Floats] | None) -> Choice:
    choosing = image.choosing
    compares = not isinstance(choosing.policy, TopK | Proportional | None)
    maps = follow_words(image.on_grids(features=compares), image.layout)
    if new is not None:  # what is not new, or repeats a neighbour, comes last, as transparent cells do
        maps = [replace(r, valid=n * (1.0 if r.valid is None else r.valid)) for r, n in zip(maps, new, strict=True)]
    worth = worth_of_all(maps, image.alike()) if choosing.policy is None else [r.map for r in maps]
    counts, mix = share_budget(image, maps, worth, budget), mix_of(*maps)
    kept = []
    for grid, relevance, plane, count in zip(image.layout.grids, maps, worth, counts, strict=True):
        if count:
            keep = Keep(choosing.floor, choosing.policy, image.protected(grid), choosing.window)
            kept.append(allocate_relevance(relevance, int(count), keep, plane, mix))
        else:
            nothing = np.empty(0, np.int64), np.empty(0, np.float32)
            kept.append(Allocation(*nothing, grid.grid, texture=relevance.texture))
    return Choice(tuple(kept), image.layout.rows([allocation.indices for allocation in kept]))


def alike_by_looks(layout: TokenLayout, relevance: Sequence[Relevance]) -> Alike | None:
    """The tokens of a layout, compared by how they look in the textures that were asked; of an image found once."""
    textures = [each.texture for each in relevance]
    first = textures[0]
    if first is None or layout.selectable > MOST_COMPARED:
        return None

    def find() -> Alike:
        rows = []
        for grid in layout.grids:
            texture = textures[grid.frame]
            assert texture is not None
            whole = grid.box == whole_box((texture.grid.height, texture.grid.width))
            rows.append(look_rows(texture, grid.shape, None if whole else grid.box))
        return find_alike(np.concatenate(rows))

    if len(textures) > 1:  # of a video: the first frame is not all that it depends on
        return find()
    return first.derive(("alike", layout), find)


def share_budget(image: Candidates, maps: Sequence[Relevance], worth: Sequence[Floats], budget: int) -> Indices:
    """Tokens for each grid: as many as it has among the best of all, by the rule of `foveate.allocate` on all grids."""
    counts = [grid.count for grid in image.layout.grids]
    if len(counts) == 1:
        return np.array([budget])
    keys = [plane.ravel() for plane in worth]
    spread = 1.0 if np.ptp(np.concatenate(keys)) == 0 else image.choosing.floor or 0.0
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
