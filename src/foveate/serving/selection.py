"""Images, question and budget -> the rows of features that are kept, as `foveate.vlm` chooses them.

A texture is made once and kept by what the image shows. Several images of a request share its budget: as many tokens
go to each as it has among the best of all, and at least one: vLLM gives an image without any no place in the prompt.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.policies import apportion
from foveate.allocation.worth import worth_of_all
from foveate.core.errors import BudgetError, ResolutionHint
from foveate.pipeline import encode
from foveate.relevance.presets import PresetName, remember_preset
from foveate.relevance.value import Relevance
from foveate.serving.request import Budget
from foveate.texture.cache import TextureCache
from foveate.texture.texture import Texture
from foveate.vlm.context import score_anyway
from foveate.vlm.families.token_layout import TokenLayout
from foveate.vlm.inputs.images import encoding_keywords
from foveate.vlm.select.choice import Budget as VisualBudget
from foveate.vlm.select.choice import Candidates, Choosing
from foveate.vlm.select.methods import Method, choose_tokens, share_budget

Indices = NDArray[np.int64]
Pixels = NDArray[np.uint8]
Outcome = Literal["chosen", "unsearched", "lossless", "all"]


@dataclass(frozen=True, eq=False)
class ImageRows:
    """What is kept of the images of a request: `rows` of features of each image, int64, ascending.

    outcome: "chosen"; "unsearched" for a question that names nothing; "lossless" (repeated.py); "all" where the budget
    holds everything. seconds: to score and to choose.
    """

    rows: tuple[Indices, ...]
    outcome: Outcome
    seconds: float


def digest_image(rgb: Pixels) -> bytes:
    """16 bytes that stand for an image, uint8 [H, W, 3]: the same only for the same pixels."""
    return blake2b(np.ascontiguousarray(rgb).data, digest_size=16, key=repr(rgb.shape).encode()).digest()


Make = Callable[[Pixels, PresetName | None], tuple[Texture, float]]


def make_texture(rgb: Pixels, preset: PresetName | None) -> tuple[Texture, float]:
    """The texture of an image, and the seconds to make it. Raises ImageError."""
    start = time.perf_counter()
    how, _ = encoding_keywords(preset, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResolutionHint)  # of keywords that a client does not have
        made = remember_preset(encode(rgb, read=False, **how), preset)  # reading takes seconds, and others wait
    return made, time.perf_counter() - start


def find_texture(
    rgb: Pixels, digest: bytes, preset: PresetName | None, textures: TextureCache[Texture], make: Make = make_texture
) -> tuple[Texture, float | None]:
    """The texture of an image; and the seconds to make it, None where it was kept. Raises ImageError."""
    took: list[float] = []

    def made() -> Texture:
        texture, seconds = make(rgb, preset)
        took.append(seconds)
        return texture

    return textures.get((digest, preset), made), took[0] if took else None


def needs_textures(budget: Budget, layouts: Sequence[TokenLayout]) -> bool:
    """Whether there is anything to choose: not where a budget holds every visual token, or is "lossless".

    Raises BudgetError for fewer tokens than images.
    """
    if budget == "lossless":
        return False
    if isinstance(budget, int) and budget < len(layouts):
        one = "video" if any(layout.frames > 1 for layout in layouts) else "image"
        raise BudgetError(
            f"foveate_budget={budget} for {len(layouts)} {one}s",
            expected=f"at least one visual token for each {one}",
            fix=f"pass {len(layouts)} or more, or fewer {one}s",
        )
    return not isinstance(budget, int) or budget < sum(layout.selectable for layout in layouts)


def select_rows(
    images: Sequence[Pixels],
    textures: Sequence[Texture],
    layouts: Sequence[TokenLayout],
    question: str,
    budget: Budget,
    floor: float | None = None,
) -> ImageRows:
    """The rows that a question keeps of the images, or videos, of a request. `budget`, `floor`: as of `Request`.

    images: a layout's pictures in order, layout after layout: one of an image, several of a video, in which what looks
    as it did when its place last changed comes last. textures: of them; none where `needs_textures` says so.

    Raises BudgetError for fewer tokens than images or videos; OptionError, ChannelError.
    """
    start = time.perf_counter()
    there = [layout.selectable for layout in layouts]
    if not needs_textures(budget, layouts):
        every = [layout.rows([np.arange(grid.count) for grid in layout.grids]) for layout in layouts]
        return ImageRows(tuple(every), "all", time.perf_counter() - start)
    scored = [score_anyway(texture, question, {}) for texture in textures]
    ends = np.cumsum([0, *(layout.frames for layout in layouts)])
    maps = [[relevance for relevance, _ in scored[a:b]] for a, b in pairwise(ends)]
    pictures = [images[a:b] for a, b in pairwise(ends)]
    wanted: VisualBudget = "auto" if budget == "auto" else None
    several = len(images) > len(layouts)  # pictures of a video
    if isinstance(budget, int):
        wanted = _share(images, maps, layouts, budget)
    method: Method = "changed" if several else "relevance"
    chosen = choose_tokens(layouts, maps, pictures, _no_features, wanted, method, Choosing(floor=floor))
    searched = any(unnamed is None for _, unnamed in scored)
    whole = [choice.count for choice in chosen] == there
    outcome: Outcome = "all" if whole else "chosen" if searched else "unsearched"
    return ImageRows(tuple(choice.rows for choice in chosen), outcome, time.perf_counter() - start)


def _no_features(number: int = 0) -> NDArray[np.float32]:
    raise AssertionError("the model's features are in another process")


def _share(
    images: Sequence[Pixels], maps: Sequence[Sequence[Relevance]], layouts: Sequence[TokenLayout], budget: int
) -> tuple[int, ...]:
    """Tokens of each image, at least one: as many as it has among the best of all."""
    if len(layouts) == 1:
        return (budget,)
    there = np.array([layout.selectable for layout in layouts])
    starts = np.cumsum([0, *(layout.frames for layout in layouts)])
    grids = tuple(
        replace(grid, frame=int(start) + grid.frame)
        for start, layout in zip(starts, layouts, strict=False)
        for grid in layout.grids
    )
    together = TokenLayout(grids, sum(layout.count for layout in layouts))
    found = [each for of_one in maps for each in of_one]
    all_images = Candidates(together, found, images, _no_features)
    on_grids = all_images.on_grids()
    shares = share_budget(all_images, on_grids, worth_of_all(on_grids, None), budget)
    owner = np.repeat(np.arange(len(layouts)), [len(layout.grids) for layout in layouts])
    wanted = np.bincount(owner, shares, len(layouts))
    return tuple(int(n) for n in apportion(wanted, budget, lower=1, upper=there))
