"""A question in its context: a gaze and the dialogue so far, beside the question's words. No model is needed.

    context = read_context({"gaze": [[120, 200, 0.4]], "earlier": ["a bus"]})
    relevance, prior = score_in_context(texture, "and its wheels?", context)

A question that goes back (language/dialogue.py) takes the dialogue as its prior, any other the gaze. Where there is a
gaze, only a question that names nothing takes the dialogue. `foveate.vlm.Chat` has the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.channels.attention import make_gaze_plane
from foveate.core.checks import check_array, check_number, check_type
from foveate.core.errors import OptionError, QueryError
from foveate.encoders.taught import TaughtWords
from foveate.language.dialogue import PRIOR_WEIGHTS, GoesBack, refers_back
from foveate.language.query import check_text
from foveate.pipeline import score
from foveate.relevance.options import ScoringOptions, parse_options
from foveate.relevance.passes import HISTORY, add_dialogue
from foveate.relevance.scoring import score_nothing
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
GAZE_WEIGHT = 0.3  # that of the preset "gaze"
ROUNDS = 20  # of a request, at most; by hand
FIXATIONS = 200  # the same


@dataclass(frozen=True)
class Context:
    """What a question goes by beside its words.

    gaze: float64 [n, 3], y and x in pixels, seconds. gaze_weight: in [0, 1]. earlier: questions, the oldest first.
    """

    gaze: NDArray[np.float64]
    gaze_weight: float = GAZE_WEIGHT
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True)
class Round:
    """An earlier question. goes_back: how far to those before it. added: whether the dialogue is about it now."""

    query: str
    goes_back: GoesBack
    added: bool
    confidence: float
    detected: bool


@dataclass(frozen=True)
class Prior:
    """What is mixed into a map: a plane float32 [h, w] in [0, 1], and its share. name: "gaze" or "history"."""

    name: Literal["gaze", "history"]
    plane: Floats
    weight: float


def read_context(body: Mapping[str, Any]) -> Context:
    """From JSON, {"gaze", "gaze_weight", "earlier"} or some of them. Raises OptionError, QueryError."""
    rows = check_type("gaze", body.get("gaze", []), list, expected="[[y, x, seconds], ...]")
    earlier = check_type("earlier", body.get("earlier", []), list, expected="a list of questions")
    for name, given, most in (("gaze", rows, FIXATIONS), ("earlier", earlier, ROUNDS)):
        if len(given) > most:
            raise OptionError(f"{name} of {len(given)}", expected=f"at most {most}", fix="leave out the oldest ones")
    for text in earlier:
        check_text(text)
    return Context(
        check_array("gaze", rows or np.empty((0, 3)), (None, 3), dtype=np.float64, low=0, fix="send [[y, x, seconds]]"),
        check_number("gaze_weight", body.get("gaze_weight", GAZE_WEIGHT)),
        tuple(earlier),
    )


def follow_dialogue(
    texture: Texture, earlier: tuple[str, ...], encoder: str | None = None
) -> tuple[Floats, list[Round]]:
    """Earlier questions -> what the dialogue is about, float32 [h, w] in [0, 1], and what became of each."""
    rounds = []
    for query in earlier:
        kind, found = refers_back(query), score_text(texture, query, encoder=encoder)
        added = kind == "not" or not texture.channel(HISTORY, warn=False).any()
        if added:
            texture = add_dialogue(texture, found)
        rounds.append(Round(query, kind, added, found.confidence, found.detected))
    return texture.channel(HISTORY, warn=False), rounds


def find_prior(
    texture: Texture, query: str, context: Context, encoder: str | None = None, history: Floats | None = None
) -> Prior | None:
    """The prior of a question, or None. history: of `follow_dialogue`, if known. Raises QueryError, OptionError."""
    check_text(query)
    kind = refers_back(query)
    if context.earlier and (kind == "wholly" or (kind == "partly" and not len(context.gaze))):
        if history is None:
            history, _ = follow_dialogue(texture, context.earlier, encoder)
        if history.any():
            return Prior("history", history, PRIOR_WEIGHTS[kind])
    if len(context.gaze) and context.gaze_weight:
        return Prior("gaze", make_gaze_plane(context.gaze, texture.grid), context.gaze_weight)
    return None


def score_in_context(
    texture: Texture, query: str, context: Context, encoder: str | None = None, words: TaughtWords | None = None
) -> tuple[Relevance, Prior | None]:
    """`foveate.score`, with a prior where there is one. encoder, words: as there. Raises QueryError, OptionError."""
    prior = find_prior(texture, query, context, encoder)
    if prior is None:
        return score(texture, query, encoder=encoder, words=words), None
    return score_text(texture, query, prior, encoder, words), prior


def score_text(
    texture: Texture,
    query: str,
    prior: Prior | None = None,
    encoder: str | None = None,
    words: TaughtWords | None = None,
) -> Relevance:
    """`foveate.score`; a question that names nothing has a map of its prior alone."""
    how: ScoringOptions = {"encoder": encoder, "words": words}
    if prior is not None:
        how |= {"prior": prior.plane, "prior_weight": prior.weight}
    return score_anyway(texture, query, how)[0]


def score_anyway(texture: Texture, query: str, how: ScoringOptions) -> tuple[Relevance, QueryError | None]:
    """`foveate.score`; a question that names nothing has a map of its prior alone, and comes with the error."""
    try:
        return score(texture, query, **how), None
    except QueryError as cause:
        return score_nothing(texture, query, parse_options(texture, how)), cause
