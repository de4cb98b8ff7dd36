"""Operations on questions: the map on each grid of the page, in float32 as `allocate` has it, and why it looks so.

A request brings its context (a gaze, a dialogue: vlm/context.py), as the server keeps no state of a page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from foveate.allocation.allocation import auto_budget
from foveate.allocation.policies import to_typical_distance
from foveate.allocation.worth import asked_share, mix_of, worth_keeping
from foveate.channels.attention import make_gaze_plane
from foveate.core.checks import check_choice
from foveate.core.errors import QueryError
from foveate.core.grid import Grid, resize_map
from foveate.language.dialogue import GoesBack, refers_back
from foveate.relevance.scoring import empty_relevance
from foveate.relevance.value import Relevance
from foveate.relevance.written import is_unread
from foveate.texture.texture import Texture
from foveate.view.service import MESSAGE, Asked, AskedImage, ImageId, Operation, Share, Text
from foveate.view.session import Pictures
from foveate.view.wire import Message
from foveate.vlm.context import (
    FIXATIONS,
    GAZE_WEIGHT,
    ROUNDS,
    Context,
    Prior,
    find_prior,
    follow_dialogue,
    read_context,
    score_in_context,
)

QUESTIONS = 6  # of a page at a time: as many colours can be told apart
Seen = Annotated[float, Field(strict=True, ge=0)]


@dataclass(frozen=True)
class NamedGrid:
    """A grid of cells or visual tokens: a name for addresses, a label for people."""

    name: str
    label: str
    grid: Grid


def grids_of(grid: Grid) -> list[NamedGrid]:
    """The texture's cells, and the tokens of the usual vision-language models."""

    def patches(side: int) -> Grid:
        rows, columns = (max(1, round(length / side)) for length in (grid.height, grid.width))
        return Grid(rows, columns, grid.height, grid.width)

    return [
        NamedGrid("cells", "cells of the texture", grid),
        NamedGrid("24x24", "24 × 24 tokens (LLaVA)", Grid(24, 24, grid.height, grid.width)),
        NamedGrid("28px", "28-pixel tokens (Qwen2-VL, Qwen2.5-VL)", patches(28)),
        NamedGrid("32px", "32-pixel tokens (Qwen3-VL)", patches(32)),
    ]


GRIDS = [each.name for each in grids_of(Grid(1, 1, 1, 1))]
GridName = Annotated[str, Field(json_schema_extra={"enum": GRIDS})]  # checked by `find_grid`


class AskedContext(Asked):
    """An image and the context of questions about it, as in vlm/context.py."""

    image: ImageId
    gaze: Annotated[tuple[tuple[Seen, Seen, Seen], ...], Field(max_length=FIXATIONS)] = ()
    gaze_weight: Share = GAZE_WEIGHT
    earlier: Annotated[tuple[Text, ...], Field(max_length=ROUNDS)] = ()

    @property
    def context(self) -> Context:
        gaze, earlier = list(map(list, self.gaze)), list(self.earlier)
        return read_context({"gaze": gaze, "gaze_weight": self.gaze_weight, "earlier": earlier})


class AskedQuestion(AskedContext):
    query: Text


class AskedReasons(AskedQuestion):
    grid: GridName = "cells"


class AskedPriors(AskedContext):
    """Questions that may still be empty fields."""

    queries: Annotated[tuple[str, ...], Field(max_length=QUESTIONS)]


class AskedGrid(AskedImage):
    grid: GridName = "cells"


def question_routes(pictures: Pictures) -> list[Operation]:
    """About the images of a session."""
    encoder = pictures.encoding.encoder

    def ask(asked: AskedQuestion) -> tuple[Relevance, Prior | None]:
        words = pictures.encoding.words
        return score_in_context(pictures.texture(asked.image), asked.query, asked.context, encoder, words)

    def scored(asked: AskedQuestion) -> Message:
        relevance, prior = ask(asked)
        header, arrays = describe_relevance(relevance)
        return {**header, **describe_prior(prior)}, arrays

    def reasons(asked: AskedReasons) -> Message:
        relevance, _ = ask(asked)
        return describe_reasons(relevance, find_grid(relevance.grid, asked.grid))

    def points(asked: AskedGrid) -> Message:
        texture = pictures.texture(asked.id)
        return describe_points(texture, find_grid(texture.grid, asked.grid))

    def priors(asked: AskedPriors) -> Message:
        return describe_priors(pictures.texture(asked.image), asked.queries, asked.context, encoder)

    return [
        Operation("POST", "/api/score", "The map of a question", scored, AskedQuestion, MESSAGE),
        Operation("POST", "/api/reasons", "What entered a map", reasons, AskedReasons, MESSAGE),
        Operation("POST", "/api/priors", "What questions would go by", priors, AskedPriors, MESSAGE),
        Operation("GET", "/api/images/{id}/points", "What Coverage compares", points, AskedGrid, MESSAGE),
    ]


def find_grid(cells: Grid, name: str) -> Grid:
    """By its name (`grids_of`). Raises OptionError."""
    grids = {each.name: each.grid for each in grids_of(cells)}
    return grids[check_choice("grid", name, tuple(grids), fix="'cells' is the texture's own")]


def describe_grids(texture: Texture) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """What is the same for every question: opacity on each grid."""
    listed, arrays = [], {}
    empty = replace(empty_relevance(texture, ""), features=None)
    for each in grids_of(texture.grid):
        moved = empty.on(each.grid)
        listed.append({"name": each.name, "label": each.label, "h": each.grid.h, "w": each.grid.w})
        if moved.valid is not None:
            arrays[f"valid:{each.name}"] = (moved.valid > 0).astype(np.uint8)
    return listed, arrays


def describe_relevance(relevance: Relevance) -> Message:
    """A header, and on each grid NAME, as float32 [h, w]: `map:NAME`, what `allocate` keeps the best of (`worth:NAME`),
    and which part of that was asked for (`asked:NAME`).
    """
    light = replace(relevance, features=None, parts={}, reasons={})
    arrays, auto, levels = {}, {}, {}
    for each in grids_of(relevance.grid):
        moved = light if each.name == "cells" else light.on(each.grid)
        arrays[f"map:{each.name}"] = moved.map
        mix = mix_of(moved)
        arrays[f"worth:{each.name}"] = worth_keeping(moved, mix)
        arrays[f"asked:{each.name}"] = asked_share(moved.map, moved.saliency, mix)
        auto[each.name], levels[each.name] = auto_budget(moved), moved.level
    return {**describe_answer(relevance, auto), "levels": levels}, arrays


def describe_answer(relevance: Relevance, auto: dict[str, int]) -> dict[str, Any]:
    return {
        "query": relevance.query,
        "confidence": relevance.confidence,
        "detected": relevance.detected,
        "followed": relevance.followed,
        "phrases": list(relevance.parts),
        "confidences": dict(relevance.confidences),
        "ignored": list(relevance.ignored),
        "looked_for": dict(relevance.looked_for),
        "unknown": list(relevance.unknown),
        "words": [{"text": w.text, "box": list(map(float, w.box)), "because": w.because} for w in relevance.words],
        "answer": relevance.answer,
        "unread": is_unread(relevance),
        "boxes": relevance.boxes().tolist(),
        "auto": auto,
        "levels": {"cells": relevance.level},
    }


def describe_reasons(relevance: Relevance, grid: Grid) -> Message:
    """What entered the map, on a grid, float32 [h, w] each: `reason:NAME`, `phrase:TEXT`, and `logits`."""
    moved = replace(relevance, features=None, texture=None).on(grid)
    header = {"reasons": list(moved.reasons), "phrases": list(moved.parts), "weights": dict(moved.weights)}
    reasons = {f"reason:{name}": plane for name, plane in moved.reasons.items()}
    return header, reasons | {f"phrase:{text}": plane for text, plane in moved.parts.items()} | {"logits": moved.logits}


def describe_points(texture: Texture, grid: Grid) -> Message:
    """`points`, float32 [cells, r]."""
    features = resize_map(texture.coordinates().reshape(*texture.grid.shape, -1), grid.shape)
    return {}, {"points": to_typical_distance(features.reshape(grid.count, -1))}


def describe_prior(prior: Prior | None) -> dict[str, Any]:
    return {"prior": None if prior is None else prior.name, "weight": 0.0 if prior is None else prior.weight}


def describe_priors(texture: Texture, queries: Sequence[str], context: Context, encoder: str | None = None) -> Message:
    """The rounds of the dialogue, what each question would go by, and the planes `history` and `gaze` [h, w]."""
    history, rounds = follow_dialogue(texture, context.earlier, encoder)
    questions = []
    for query in queries:
        try:
            prior = find_prior(texture, query, context, encoder, history)
            goes_back: GoesBack = refers_back(query)
        except QueryError:  # a field that is still empty
            prior, goes_back = None, "not"
        questions.append({"goes_back": goes_back, **describe_prior(prior)})
    planes = {"history": history, "gaze": make_gaze_plane(context.gaze, texture.grid)}
    return {"rounds": [asdict(each) for each in rounds], "questions": questions}, planes
