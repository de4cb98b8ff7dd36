"""Mode "crop": which regions to cut out and show larger, beside the whole picture.

A quarter of the budget goes to the whole picture, the rest to the regions, 64 to 400 tokens each. Crops are further
images in the prompt, encoded for every question; of a crop with more tokens than its part, the best are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from foveate.allocation.crops import Regions, regions
from foveate.core.checks import check_int, keyword
from foveate.core.errors import BudgetError
from foveate.reading.words import Word, Words
from foveate.relevance.evidence import plane_of
from foveate.relevance.options import ScoringOptions, parse_options
from foveate.relevance.presets import preset_of
from foveate.relevance.scoring import given_relevance
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.vlm.families.token_layout import TokenGrid, project

USUAL = 512  # tokens in all, for "auto"; by hand
OVERVIEW = 4  # a quarter of the budget; by hand
FEWEST, MOST = 64, 400  # tokens of a region: the levels of detail of docs/seeds.md
LEAST = 96  # tokens in all: a region, and as much as half of it for the whole picture
SIDE = 28  # pixels of a crop for each token, where the model does not say: Qwen2.5-VL's


def choose_crops(model: Any, relevance: Relevance, budget: Any) -> tuple[int, Regions]:
    """Tokens in all, and the regions to cut out. Raises BudgetError for fewer than LEAST."""
    total = check_int(
        "mode='crop': budget", USUAL if budget in ("auto", None) else budget, LEAST, error=BudgetError,
        fix=f"leave it out for {USUAL} (a region takes {FEWEST} to {MOST} tokens), or use {keyword('mode', 'drop')}",
    )  # fmt: skip
    vision: Any = getattr(model.config, "vision_config", None)
    merge = getattr(vision, "spatial_merge_size", None)
    side = int(vision.patch_size * merge) if merge else SIDE
    most = total - total // OVERVIEW
    for tokens in range(most, FEWEST, -1):  # a few totals cannot be met exactly: the next lower one that can
        try:
            return total, regions(relevance.map, relevance.grid, tokens, (FEWEST, MOST), side)
        except BudgetError:
            continue
    return total, regions(relevance.map, relevance.grid, FEWEST, (FEWEST, MOST), side)


def split_budget(total: int, found: Regions, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The budget of the picture and of each crop, of which there are `tokens`: what crops cannot take, it gets."""
    shown = [min(int(n), count) for n, count in zip(found.tokens, tokens[1:], strict=True)]
    return max(1, min(total - sum(shown), tokens[0])), *shown


def cut_relevance(relevance: Relevance, textures: Sequence[Texture], found: Regions) -> tuple[Relevance, ...]:
    """A map over the picture, on the textures of its crops."""
    cut = []
    for texture, (y0, x0, y1, x1) in zip(textures, found.boxes.tolist(), strict=True):
        grid = TokenGrid(texture.grid.h, texture.grid.w, (y0, x0, y1, x1))
        cut.append(given_relevance(texture, relevance.query, project(relevance, grid).map))
    return tuple(cut)


def cut_scoring(
    texture: Texture, textures: Sequence[Texture], found: Regions, scoring: ScoringOptions
) -> ScoringOptions:
    """How the picture and its crops are scored: as the picture, its prior cut, without channels that a crop lacks."""
    named = {**preset_of(texture, scoring.get("preset")).scoring, **scoring, "preset": "medium"}
    prior, weights = named.pop("prior", None), named.pop("channel_weights", None)
    if prior is not None:
        plane = parse_options(texture, {"prior": prior, "preset": "medium"}).prior
        assert plane is not None
        whole = given_relevance(texture, "prior", plane)
        prior = [None, *(each.map for each in cut_relevance(whole, textures[1:], found))]
    if weights:
        held = {name for name in weights if all(plane_of(crop, name) is not None for crop in textures[1:])}
        weights = {name: weight for name, weight in weights.items() if name in held}
    return cast("ScoringOptions", {**named, "prior": prior, "channel_weights": weights})


def write_words(textures: Sequence[Texture], words: Words, found: Regions) -> list[Texture]:
    """Textures of a picture and of its crops, with the picture's words; a crop has those that are in it by half."""
    out = [textures[0] if textures[0].words is not None else textures[0].with_words(words)]
    for texture, (y0, x0, y1, x1) in zip(textures[1:], found.boxes.tolist(), strict=True):
        scale = np.array([texture.grid.height / (y1 - y0), texture.grid.width / (x1 - x0)] * 2)
        inside = []
        for word in words:
            box = np.array(word.box)
            cut = np.clip(box, [y0, x0, y0, x0], [y1, x1, y1, x1])
            if 2 * np.prod(cut[2:] - cut[:2]) >= np.prod(box[2:] - box[:2]):
                moved = tuple(((cut - [y0, x0, y0, x0]) * scale).tolist())
                inside.append(Word(word.text, moved, word.confidence, word.line))
        out.append(texture.with_words(Words.of(inside, words.reader, words.turned)))
    return out
