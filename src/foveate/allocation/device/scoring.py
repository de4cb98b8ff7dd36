"""`foveate.score` on tensors: the formula and the order of relevance/scoring.py and fusion.py, on a device.

What is notable
* Products are made in float64 and rounded to float32: they are small, and the user may have allowed TF32 for products
  of float32, which would move cells. Means over segments are sums in float64, as NumPy's are.
* Maps are NumPy's to the last digits (a device's exp is not NumPy's), and on photographs the kept cells are the same.
* Planes of cues, channels by hand and priors are sent to the device once a texture.
* Composed phrases ("the red car") are put together by OpenCV: the maps of their words come to the CPU for that, and
  the result goes back. `maps_of` has none of it and waits for nothing, so that a graph can capture it.

Not here, and refused by name: what was read, and fusions. Both are for the texture on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.allocation.device.fused import as_vectors, project
from foveate.allocation.device.results import DeviceRelevance
from foveate.core.devices import check_same
from foveate.core.errors import DeviceError, OptionError
from foveate.core.readonly import ReadOnly
from foveate.encoders.protocol import Calibration
from foveate.language.cues import Cue
from foveate.language.negatives import CHUNK, Negatives
from foveate.language.query import Query
from foveate.relevance.composition import compose
from foveate.relevance.confidence import MOST, PEAK_SHARE
from foveate.relevance.evidence import evidence_of, follow, plane_of
from foveate.relevance.fusion import Participation, ScoreOptions
from foveate.relevance.scoring import OF_THE_QUESTION, Floats
from foveate.relevance.written import page_of
from foveate.texture.tensors import DeviceTexture, OnDevice


def score_on_device(
    texture: DeviceTexture,
    query: Query,
    calibration: Calibration,
    negatives: Negatives | None,
    options: ScoreOptions,
    prior: Tensor | None = None,
) -> DeviceRelevance:
    """The relevance of one prepared question. `prior`: float32 [h, w] on the device, in place of the options' own.

    Raises DeviceError for what only the texture on the CPU can do.
    """
    check_supported(texture, options)
    shape = texture.grid.shape
    logits, maps = score_vectors(texture, query.vectors, calibration, negatives)
    logits, maps = logits[0], maps[0]
    confidences = peak_of(maps)
    planes: dict[str, Tensor] = {}
    inside: dict[str, Tensor] = {}
    weights: dict[str, float] = {}
    if query.words and query.word_vectors is not None:
        _compose(texture, query, calibration, negatives, logits, maps, confidences, planes, inside, weights)
    asked = list(query.asked)
    best, logits = maps[asked].amax(0), logits[asked].amax(0)
    reasons = {"participation": best.reshape(shape), **planes}
    union = confidences[asked].amax() if query.alone else peak_of(best)
    by_phrase = dict(zip(query.phrases, confidences, strict=True))
    confidence = union
    if query.together:
        lowest = [torch.stack([by_phrase[phrase] for phrase in group]).amin() for group in query.asked_groups]
        confidence = torch.stack(lowest).amax()
    final = _combine(texture, query.cues, reasons, weights, options, prior)
    if texture.texture.valid is not None and len(reasons) > 1:
        final = torch.minimum(final, texture.tensors.valid[0].reshape(shape))
    entered = reasons.keys() - OF_THE_QUESTION - planes.keys()
    return DeviceRelevance(
        query=query.text,
        map=final,
        logits=logits.reshape(shape),
        confidence=confidence,
        parts=ReadOnly({name: part.reshape(shape) for name, part in zip(query.phrases, maps, strict=True)}),
        reasons=ReadOnly(reasons),
        confidences=ReadOnly({**inside, **by_phrase}),
        peak=peak_of(final.ravel()) if entered else union if query.together else torch.zeros_like(confidence),
        weights=ReadOnly(weights),
        texture=texture,
        ignored=query.ignored,
        unknown=query.unknown,
        preset=options.preset,
    )


def check_supported(texture: OnDevice, options: ScoreOptions) -> None:
    """Raises DeviceError for what was read in the image, and for fusions."""
    why = ""
    for each in texture.textures:
        if options.reading and (each.words or (each.words is None and page_of(each)[1] is not None)):
            why = f"what is written in {each.name!r}"
    if not isinstance(options.fusion, Participation):
        why = f"fusion={options.fusion.name!r}"
    if why:
        raise DeviceError(
            f"{why}, on {texture.device}",
            expected="a question of what is seen, without what was read, and by itself",
            fix="ask the texture on the CPU: score(there.texture, question); or pass reading=False, and no fusion",
        )


def maps_of(texture: OnDevice, vectors: Tensor, calibration: Calibration, smoothing: float) -> tuple[Tensor, Tensor]:
    """Maps of plain phrases, one vector each: float32 [b, q, n], and confidences, float64 [b, q]. Waits for nothing."""
    _, maps = _from_logits(texture, plain_scores(texture, vectors), calibration)
    found = torch.minimum(smoothed(texture, maps, smoothing), texture.tensors.valid[:, None])
    return found, peak_of(maps)


def score_vectors(
    texture: OnDevice, vectors: NDArray[np.floating], calibration: Calibration, negatives: Negatives | None
) -> tuple[Tensor, Tensor]:
    """Logits and relevance of text vectors [q, D]: float32 [b, q, n] each."""
    logits = plain_scores(texture, as_vectors(vectors, texture.tensors.rows.shape[2], texture.device))
    if calibration.contrast > 0 and negatives is not None:
        levels = [_against(texture, negatives, vector, calibration) for vector in vectors]
        logits = logits - calibration.contrast * torch.stack(levels, 1)
    return _from_logits(texture, logits, calibration)


def plain_scores(texture: OnDevice, vectors: Tensor) -> Tensor:
    """q.mean + (B q).z of text vectors [q, D]: float32 [b, q, n]."""
    weights, offsets = project(texture, vectors)
    product = torch.matmul(weights.double(), texture.tensors.z.double().mT).float()
    return product + offsets[..., None]


def smoothed(texture: OnDevice, maps: Tensor, share: float) -> Tensor:
    """Maps [b, q, n] in which each cell takes a share of its segment's mean, as far as a texture has segments."""
    share32 = texture.tensors.smooth * float(np.float32(share))
    return (1 - share32) * maps + share32 * segment_means_of(texture, maps)


def segment_means_of(texture: OnDevice, maps: Tensor) -> Tensor:
    """Each cell's mean over its segment: float32 [b, q, n] -> the same."""
    tensors = texture.tensors
    ids = tensors.segments[:, None].expand(maps.shape)
    sums = torch.zeros((*maps.shape[:2], tensors.sizes.shape[1]), dtype=torch.float64, device=maps.device)
    means = sums.scatter_add_(2, ids, maps.double()) / tensors.sizes[:, None]
    return means.float().gather(2, ids)


def peak_of(maps: Tensor) -> Tensor:
    """`confidence.peak` of maps [..., n]: float64 [...], rounded to float32 as there."""
    count = min(max(1, maps.shape[-1] // PEAK_SHARE), MOST)
    return maps.topk(count, sorted=False).values.double().sum(-1).div(count).float().double()


def _from_logits(texture: OnDevice, logits: Tensor, calibration: Calibration) -> tuple[Tensor, Tensor]:
    slope, offset = float(np.float32(calibration.slope)), float(np.float32(calibration.offset))
    maps = 1 / (torch.exp(-slope * logits - offset) + 1)
    return logits, maps * texture.tensors.valid[:, None]


def _against(texture: OnDevice, negatives: Negatives, vector: Floats, calibration: Calibration) -> Tensor:
    """`Negatives.against`: float32 [b, n]. The level of all nouns is kept with the texture."""
    t, every = calibration.temperature, negatives.vectors

    def sums(vectors: Floats) -> Tensor:
        parts = [vectors[i : i + CHUNK] for i in range(0, len(vectors), CHUNK)]
        width = every.shape[1]
        return sum(  # type: ignore[return-value]  # at least one
            torch.exp(t * plain_scores(texture, as_vectors(part, width, texture.device)).double()).sum(1)
            for part in parts
        )

    like = every @ vector > calibration.synonym
    level, count = texture.derive(("negatives", negatives, t), lambda: sums(every)), len(every)
    if like.any():
        level, count = level - sums(every[like]), max(count - int(like.sum()), 1)
    return ((level.clamp(min=float(np.exp(-t))) / count).log() / t).float()


def _compose(
    texture: DeviceTexture,
    query: Query,
    calibration: Calibration,
    negatives: Negatives | None,
    logits: Tensor,
    maps: Tensor,
    confidences: Tensor,
    planes: dict[str, Tensor],
    inside: dict[str, Tensor],
    weights: dict[str, float],
) -> None:
    """Rows of composed phrases, by relevance/composition.py on the CPU, into what is there."""
    host, shape, device = texture.texture, texture.grid.shape, texture.device
    assert query.word_vectors is not None
    words = score_vectors(texture, query.word_vectors, calibration, negatives)[1][0].cpu().numpy()
    by_word = {word: plane.reshape(shape) for word, plane in zip(query.words, words, strict=True)}
    for i, phrase in enumerate(query.structure):
        if not query.composed(i):
            continue
        made = compose(phrase, by_word, lambda word: evidence_of(host, word))
        maps[i] = torch.tensor(made.map.ravel()).to(device) * texture.tensors.valid[0]
        clipped = maps[i].clamp(1e-6, 1 - 1e-6)
        logits[i] = ((clipped / (1 - clipped)).log() - calibration.offset) / calibration.slope
        confidences[i] = made.confidence
        planes |= {name: torch.tensor(plane).to(device) for name, plane in made.planes.items()}
        inside |= {
            name: torch.tensor(value, dtype=torch.float64, device=device) for name, value in made.confidences.items()
        }
        weights |= made.weights


def _combine(
    texture: DeviceTexture,
    cues: Sequence[Cue],
    reasons: dict[str, Tensor],
    weights: dict[str, float],
    options: ScoreOptions,
    prior: Tensor | None,
) -> Tensor:
    """`fusion.combine`, in its order, without what was read and without a fusion."""
    found, shape = reasons["participation"], texture.grid.shape
    if options.smoothing and texture.texture.has("cluster_id"):
        flat = found.reshape(1, 1, -1)
        reasons["segment"] = segment_means_of(texture, flat).reshape(shape)
        found = smoothed(texture, flat, options.smoothing).reshape(shape)
    by_hand = {cue.channel for cue in options.channel_weights}
    followed = [cue for cue in cues if options.cues]
    followed = [cue for cue in followed if cue.channel not in by_hand]
    heard = {cue.channel for cue in followed}
    least = [cue for cue in options.least if cue.channel not in heard]
    for cue in (*followed, *options.channel_weights, *least):
        plane = _plane(texture, cue.channel) if cue.weight else None
        if plane is not None:
            reasons[cue.channel], weights[cue.channel] = plane.clone(), cue.weight  # the texture keeps the plane
            found = follow(found, cue, plane)
    if prior is None and options.prior is not None:
        prior = torch.tensor(options.prior).to(texture.device)
    if prior is not None:
        reasons["prior"] = prior
        share = np.float32(options.prior_weight)
        found = float(1 - share) * found + float(share) * prior
    return found


def _plane(texture: DeviceTexture, channel: str) -> Tensor | None:
    """A cue's plane on the device, sent when it is first needed."""

    def send() -> Tensor | None:
        plane = plane_of(texture.texture, channel)
        return None if plane is None else torch.tensor(plane).to(texture.device)

    return texture.derive(("plane", channel), send)


def split_prior(texture: DeviceTexture, how: Mapping[str, Any]) -> tuple[dict[str, Any], Tensor | None]:
    """Keywords of `score` without a prior that is on a device, and that. Raises DeviceError, OptionError."""
    prior = how.get("prior")
    if isinstance(prior, DeviceRelevance):
        prior.check_unchanged()
        prior = prior.map
    if not isinstance(prior, Tensor):
        return dict(how), None
    check_same("the prior", prior.device, texture.device)
    if (
        prior.shape != texture.grid.shape
        or prior.dtype != torch.float32
        or not bool(((prior >= 0) & (prior <= 1)).all())
    ):
        raise OptionError(
            f"prior: {prior.dtype} of shape {list(prior.shape)}",
            expected=f"float32 {list(texture.grid.shape)} in [0, 1]",
            fix="the map of an earlier question on this grid, or a plane by its name",
        )
    return {name: value for name, value in how.items() if name != "prior"}, prior.clone()  # it is the caller's
