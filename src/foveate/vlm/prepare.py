"""The steps of `VLM.prepare` (model.py, which calls them in this order), one function each.

`check_encoded`, `check_request`; `find_relevance`: where to look; `choose_kept`: how many tokens, and which; `lay_out`:
ids, mask and positions of the prompt; `make_features`: rows of features for the kept tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from foveate.allocation.allocation import Allocation
from foveate.core.checks import check_choice, check_type, keyword
from foveate.core.errors import OptionError, QueryError, SceneError, warn
from foveate.relevance.boxes import cells_of
from foveate.relevance.options import ScoringOptions
from foveate.relevance.presets import preset_of
from foveate.relevance.scoring import given_relevance
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.vlm.context import score_anyway
from foveate.vlm.encoded import MODES, Attached, EncodedImage, Mode
from foveate.vlm.families import pixels
from foveate.vlm.families.features import VisualFeatures
from foveate.vlm.inputs.images import process_images
from foveate.vlm.inputs.prompt import check_question, prompt_ids, prompt_text
from foveate.vlm.inputs.tensors import check_weights, keep_mask, pool, shorten, weights_from_map
from foveate.vlm.select.choice import Budget, Choice, Choosing
from foveate.vlm.select.given import Kept, choose_given
from foveate.vlm.select.methods import Method, choose_tokens

if TYPE_CHECKING:
    import torch

Where: TypeAlias = (  # of several images, a list with one for each
    str | Relevance | ArrayLike | Sequence[str | Relevance | ArrayLike | None]
)


class QuestionWarning(UserWarning):
    """A question that names nothing the encoder can look for: its tokens are kept by what stands out and differs."""


class Stopwatch:
    """Seconds between marks, added up by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def mark(self, name: str) -> None:
        before, self.last = self.last, time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + self.last - before


# --- check ------------------------------------------------------------------------------------------------------------


def check_encoded(vlm: Attached, encoded: EncodedImage, mode: Mode) -> None:
    """Raises SceneError for an image that this model cannot be asked about in this mode."""
    check_choice("mode", mode, MODES)
    check_type("encoded", encoded, EncodedImage, fix="vlm.see(image) makes one", error=SceneError)
    if encoded.model is not vlm.model:
        raise SceneError(
            f"an image encoded by another model ({type(encoded.model).__name__})",
            expected=f"one encoded by this {type(vlm.model).__name__}",
            fix="see the image again with this model",
        )
    if mode == "sparse" and not any(name.startswith("pixel") for name in encoded.inputs):
        raise SceneError(
            "mode='sparse' for an image that was encoded whole",
            expected="one whose pixels are kept",
            fix="see it with vlm.see(image, mode='sparse')",
        )
    if mode in ("drop", "weight") and encoded.features is None:
        came = f"{keyword('mode', mode)}: the image was not encoded"
        raise SceneError(came, expected="one seen for it", fix="vlm.see(image)")


def check_request(mode: Mode, method: Method, budget: Budget, kept: Kept | None, choosing: Choosing) -> None:
    """Raises OptionError or SceneError for keywords that do not go together."""
    if mode == "crop":
        raise OptionError("mode='crop' for prepare", expected="drop, sparse, weight", fix="call ask")
    if mode == "sparse" and method == "downsample":
        raise SceneError(
            "method='downsample' in mode 'sparse'",
            expected="features of the whole image, which this mode does not make",
            fix="use mode='drop', or see a smaller image",
        )
    check_type("choosing", choosing, Choosing)
    beside = ["mode='weight'"] * (mode == "weight") + ["method="] * (method != "relevance")
    beside += [name for name in choosing.named() if name != "redundancy"]
    if budget == "lossless" and beside:
        raise OptionError(
            f"budget='lossless' with {', '.join(beside)}",
            expected="it alone, or with redundancy=, in mode drop or sparse: which tokens go is a matter of pixels",
            fix="leave the others out, or pass a number and Choosing(redundancy=0)",
        )
    if choosing.redundancy is not None and method not in ("relevance", "changed"):
        raise OptionError(
            f"redundancy= with {keyword('method', method)}",
            expected="method 'relevance' or 'changed'",
            fix="leave one out",
        )
    if choosing.weights is not None and mode != "weight":
        raise OptionError("weights= outside of mode 'weight'", expected="mode='weight'", fix="set the mode")
    other = ["budget="] * (budget != "auto") + ["method="] * (method != "relevance") + choosing.named()
    if kept is not None and (other or mode == "weight"):
        raise OptionError(
            f"kept= with {', '.join(other) or 'mode=weight, which keeps all tokens'}",
            expected="kept= alone: it says which tokens",
            fix="give budget, floor, policy and the like to foveate.allocate, which makes the Allocation",
        )


# --- where to look ----------------------------------------------------------------------------------------------------


def find_relevance(
    vlm: Attached,
    encoded: EncodedImage,
    question: str,
    where: Where | None,
    scoring: ScoringOptions,
    *,
    searched: bool = True,
) -> tuple[Relevance, ...]:
    """Where a question looks in each image. searched: False where nothing depends on it; then it does not warn."""
    check_question(question)
    check_type("scoring", scoring, Mapping, expected="ScoringOptions(...)")
    given = [None] * len(encoded.textures) if where is None else one_each("relevance", where, len(encoded.textures))
    if any(isinstance(each, Allocation) for each in given):
        raise OptionError("relevance=an Allocation", expected="a Relevance, or a map", fix="pass it as kept=")
    texts = [question if each is None else each for each in given]
    wanted = [isinstance(each, str) for each in texts]  # for each image, whether to score: a given map is used as it is
    if (named := sorted(scoring)) and not any(wanted):
        raise OptionError(
            f"relevance= with {', '.join(named)}",
            expected="one of them: a relevance that is given is not scored",
            fix="foveate.score(texture, query, prior=...) makes a relevance with them",
        )
    scored = iter(_search(vlm, encoded, texts, wanted, scoring, warned=searched))
    return tuple(
        next(scored) if searching else given_relevance(texture, question, each)
        for texture, each, searching in zip(encoded.textures, given, wanted, strict=True)
    )


def look_in(boxes: ArrayLike | Sequence[ArrayLike], textures: Sequence[Texture]) -> list[NDArray[np.bool_]]:
    """Maps of the cells in boxes (y0, x0, y1, x1) of pixels, as `relevance=`; of several images a list of lists."""
    each = [boxes] if len(textures) == 1 else one_each("boxes", boxes, len(textures))
    return [cells_of(some, texture.grid) for some, texture in zip(each, textures, strict=True)]


def _search(
    vlm: Attached,
    encoded: EncodedImage,
    texts: Sequence[str],
    wanted: Sequence[bool],
    scoring: ScoringOptions,
    *,
    warned: bool,
) -> list[Relevance]:
    """Score the texts on the images that `wanted` marks; a text that names nothing has a map of its prior alone."""
    textures = list(compress(encoded.textures, wanted))
    told = None if vlm.encoder == "nano" else vlm.encoder  # nothing to tell of one that comes with foveate
    priors = _priors(textures, wanted, scoring)
    found, unnamed = list[Relevance](), list[QueryError]()
    for texture, text, prior in zip(textures, compress(texts, wanted), priors, strict=True):
        how = cast("ScoringOptions", {**scoring, "encoder": told, "prior": prior})
        relevance, cause = score_anyway(texture, text, how)
        found.append(relevance)
        unnamed += [cause] if cause else []
    followed = any(prior is not None for prior in priors)  # whether a prior decides where nothing is named
    if unnamed and warned and not (followed and scoring.get("prior_weight") == 1):  # all that was wanted
        warn(
            f"{unnamed[0].received}: the image was not searched, tokens are kept by "
            f"{'the prior' if followed else 'what stands out and what differs'}. Name what to look for (in Python also "
            "beside the question, by relevance=)",
            QuestionWarning,
        )
    return found


def _priors(textures: Sequence[Texture], wanted: Sequence[bool], scoring: ScoringOptions) -> list[Any]:
    """The prior of each image that is searched: the caller's, else that of its preset."""
    if "prior" not in scoring:
        priors = [preset_of(texture, scoring.get("preset")).scoring.get("prior") for texture in textures]
    elif (given := scoring["prior"]) is None:
        return [None] * len(textures)
    else:
        priors = list(compress(one_each("prior", given, len(wanted)), wanted))
    # held: whether an image's texture has the channel that its prior names
    held = [not isinstance(prior, str) or t.has(prior) for t, prior in zip(textures, priors, strict=True)]
    if any(held):  # a first frame has no frame before it, and one of two images may have a gaze
        return [prior if has else None for prior, has in zip(priors, held, strict=True)]
    return priors


def one_each(name: str, given: Any, count: int) -> list[Any]:
    """One thing for each image: a list of so many, or a text for all of them. Raises OptionError for another number."""
    # alone: a list of one thing, and not the rows of a map
    alone = isinstance(given, list | tuple) and len(given) == 1 and (not np.ndim(given[0]) or np.ndim(given[0]) == 2)
    if isinstance(given, list | tuple) and (count > 1 or alone):
        found = list(given)
    else:
        found = [given] * (count if isinstance(given, str) else 1)
    if len(found) != count:
        raise OptionError(
            f"{len(found)} for {name}, of {count} images",
            expected="a list with one for each image",
            fix=f"{name}=[first, second], say; None for an image without" if name == "prior" else f"{name}=[a, b]",
        )
    return found


# --- how many, and which ----------------------------------------------------------------------------------------------


def choose_kept(
    encoded: EncodedImage,
    relevance: Sequence[Relevance],
    budget: Budget,
    method: Method,
    kept: Kept | None,
    choosing: Choosing,
    repeated: Callable[[int], Sequence[Sequence[NDArray[np.bool_]]]],
) -> list[Choice]:
    """The visual tokens of each image: those that are given, else those that a method chooses.

    repeated: as `find_repeated`, by levels.
    """
    video = encoded.kind == "video"
    if kept is not None:
        return choose_given(kept, encoded.layouts, () if video else encoded.images)

    levels = 0 if budget == "lossless" and choosing.redundancy is None else choosing.redundancy
    alike = None if encoded.features is None else encoded.alike
    pictures = [encoded.images] if video else [[image] for image in encoded.images]
    return choose_tokens(
        encoded.layouts, encoded.per_layout(relevance), pictures, encoded.rows, budget, method, choosing, alike,
        repeated=None if levels is None else repeated(levels),
    )  # fmt: skip


def find_repeated(vlm: Attached, encoded: EncodedImage, levels: int) -> list[list[NDArray[np.bool_]]]:
    """As of families/pixels.py, of each grid of each image; found once. Raises ModelError, SceneError."""
    if encoded.kind == "video":
        raise SceneError(
            "tokens that repeat a neighbour, of a video",
            expected="images",
            fix="method='changed' keeps what changes; or pass the frames to vlm.see(frames) as several images",
        )
    if levels not in encoded.repeated:
        made, _ = process_images(vlm, [Image.fromarray(image) for image in encoded.images])
        found = pixels.find_repeated(vlm.model, vlm.processor, made, encoded.layouts, levels)
        encoded.repeated[levels] = found
    return encoded.repeated[levels]


# --- lay out ----------------------------------------------------------------------------------------------------------


def lay_out(
    vlm: Attached, encoded: EncodedImage, question: str, prompt: str | None, chosen: Sequence[Choice]
) -> tuple[NDArray[np.bool_], dict[str, torch.Tensor]]:
    """Which tokens of the full prompt stay, bool [L], and the ids, mask and positions of these."""
    import torch

    text = prompt_text(vlm.processor, question, len(encoded.spans), prompt, encoded.kind)
    if encoded.kind == "video" and encoded.mark in text:
        text = text.replace(encoded.mark, vlm.processor.video_token)
    text = vlm.family.prompt(vlm.processor, text)
    full = prompt_ids(vlm.processor, text, encoded.spans, encoded.kind)
    keep = keep_mask(full, vlm.token(encoded.kind), chosen, encoded.layouts)
    ids = torch.from_numpy(full).to(vlm.model.device)
    return keep, shorten(ids, keep, vlm.family.positions(vlm.model, ids, encoded.inputs), encoded.kinds)


# --- features ---------------------------------------------------------------------------------------------------------


def make_features(
    vlm: Attached,
    encoded: EncodedImage,
    relevance: Sequence[Relevance],
    mode: Mode,
    chosen: Sequence[Choice],
    weights: Sequence[torch.Tensor] | None,
) -> VisualFeatures:
    """Features of the kept rows, in the way of the mode."""
    import torch

    rows = [choice.rows for choice in chosen]
    if mode == "sparse":
        with torch.no_grad():
            return vlm.family.encode_kept(vlm.model, encoded.inputs, rows, encoded.layouts)
    assert encoded.features is not None
    if mode == "weight":
        if weights is None:
            maps = encoded.per_layout(relevance)
            weights = [weights_from_map(*each) for each in zip(encoded.layouts, maps, strict=True)]
        else:
            check_weights(weights, [layout.count for layout in encoded.layouts])
        return encoded.features.scale(weights)
    kept = encoded.features.take(rows)
    if any(choice.pooled is not None for choice in chosen):
        return pool(encoded.features, kept, encoded.layouts, chosen)
    return kept
