"""`foveate.score` with torch tensors: the formulas of scoring.py on a device (extra `[torch]`).

Products are made in float64: the user may have allowed TF32 for those of float32. Composed phrases are put together on
the CPU; what was read and fusions are refused. Run on the CPU only, where tests hold it equal to NumPy.

Maps have gradients by what requires them: `DeviceTexture.z`, `rows` and `mean`, planes of `DeviceTexture.with_channel`,
channel weights and priors that are tensors. Maps of composed phrases come from the CPU and have none of the embedding;
of another embedding than the texture's they are refused. Where z is float64 everything is, so that differences can be
compared with gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.arrays import AsArray
from foveate.core.checks import check_pair
from foveate.core.errors import DeviceError
from foveate.core.grid import Floats, Grid
from foveate.core.readonly import OwnCopy, ReadOnly
from foveate.encoders.protocol import Calibration
from foveate.language.negatives import Negatives
from foveate.language.query import Query, quoted
from foveate.relevance.composition import on_thing
from foveate.relevance.confidence import FOLLOWED, Detectable, in_digits, peak_cells, with_odds
from foveate.relevance.evidence import follow, plane_of
from foveate.relevance.fusion import Participation
from foveate.relevance.options import CheckedScoring, ScoringOptions, parse_options
from foveate.relevance.presets import preset_of
from foveate.relevance.scoring import (
    CHUNK,
    OF_THE_QUESTION,
    SUREST,
    compose_phrases,
    floor_of,
    join_composed,
    join_confidences,
    logits_behind,
)
from foveate.relevance.steps import asks_of
from foveate.relevance.value import Asks, Relevance, Relevances
from foveate.relevance.written import doubt_writing, page_of
from foveate.texture.torch import ON_THE_CPU, DeviceTexture, move_plane

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class DeviceRelevance(Detectable, OwnCopy, AsArray):
    """As Relevance, with float32 [h, w] on the texture's device; `cpu()` gives the ordinary value."""

    query: str
    map: Tensor
    logits: Tensor
    confidence: float
    parts: Mapping[str, Tensor]
    reasons: Mapping[str, Tensor]
    confidences: Mapping[str, float]
    peak: float
    weights: Mapping[str, float]
    texture: DeviceTexture
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    looked_for: Mapping[str, str] = field(default_factory=lambda: ReadOnly({}))
    preset: str | None = None
    asks: Asks = "thing"

    def _array(self) -> tuple[NDArray[Any], bool]:
        return copied(self.map), False

    def __repr__(self) -> str:
        return (
            f"DeviceRelevance({quoted(self.query)}, {self.grid.h} x {self.grid.w} cells on {self.device}, "
            f"confidence {in_digits(self.confidence)})"
        )

    @property
    def device(self) -> torch.device:
        return self.map.device

    @property
    def grid(self) -> Grid:
        return self.texture.grid

    @property
    def saliency(self) -> Tensor:
        return self.texture.saliency.reshape(self.map.shape)

    def map_on(self, grid: Grid | tuple[int, int]) -> Tensor:
        """The map on other cells over the same image, as `Relevance.on` has it; gradients flow."""
        wanted = grid.shape if isinstance(grid, Grid) else grid
        return move_plane(self.map, check_pair("grid", wanted, fix="pass (24, 24), say")).clamp(0, 1)

    def cpu(self) -> Relevance:
        texture, shape = self.texture.texture, self.grid.shape
        return Relevance(
            query=self.query,
            map=copied(self.map),
            logits=copied(self.logits),
            confidence=self.confidence,
            parts=ReadOnly({name: copied(plane) for name, plane in self.parts.items()}),
            reasons=ReadOnly({name: copied(plane) for name, plane in self.reasons.items()}),
            saliency=texture.channel("saliency", warn=False),
            valid=None if texture.valid is None else copied(self.texture.valid).reshape(shape),
            grid=self.grid,
            features=texture.coordinates().reshape(*shape, -1),
            confidences=self.confidences,
            ignored=self.ignored,
            unknown=self.unknown,
            looked_for=self.looked_for,
            peak=self.peak,
            weights=self.weights,
            preset=self.preset,
            asks=self.asks,
            texture=texture,
        )


class DeviceRelevances(tuple[DeviceRelevance, ...], AsArray):
    """As Relevances."""

    __slots__ = ()

    def _array(self) -> tuple[NDArray[Any], bool]:
        return copied(self.map), False

    @property
    def map(self) -> Tensor:
        import torch

        return torch.stack([each.map for each in self])

    @property
    def confidence(self) -> NDArray[np.float64]:
        return np.array([each.confidence for each in self])

    def cpu(self) -> Relevances:
        return Relevances(tuple(each.cpu() for each in self))


def copied(tensor: Tensor) -> NDArray[Any]:
    """A copy in NumPy: an array that shared a tensor's memory could be changed through it."""
    return np.array(tensor.detach().cpu().numpy())


def score_on_device(
    texture: DeviceTexture, query: Query, calibration: Calibration, negatives: Negatives | None, options: CheckedScoring
) -> DeviceRelevance:
    """Raises DeviceError for what only the texture on the CPU can do."""
    import torch

    check_supported(texture, options)
    shape = texture.grid.shape
    logits, maps = score_vectors(texture, query.vectors, calibration, negatives)
    made = compose_phrases(texture.texture, query, calibration, negatives)
    if made:
        _check_encoded(texture, query.phrases[min(made)])
    for i, composed in made.items():
        maps[i] = _sent(composed.map.ravel(), texture)
        logits[i] = _sent(logits_behind(composed.map.ravel(), calibration), texture)
    known: dict[int, float] = {}
    for i, phrase in enumerate(query.phrases):
        if i in made:
            continue
        own = peak_of(maps[i])
        known[i] = with_odds(own, query.surer.get(phrase, 0.0))
        for kind, odds in query.kinds.get(phrase, ()):
            if known[i] >= SUREST:
                break
            other, found = score_vectors(texture, kind, calibration, negatives)
            if (sure := with_odds(peak_of(found[0]), odds)) > known[i]:
                known[i] = sure
                if own < FOLLOWED:
                    logits[i], maps[i] = other[0], found[0]
    confidences, on_host, inside, weights = join_composed(query, made, known)
    planes = {name: _sent(plane, texture) for name, plane in on_host.items()}
    asked, half = list(query.asked), query.known_half
    best, logits = maps[asked].amax(0), logits[asked].amax(0)
    if half:
        best = torch.stack([planes[noun].ravel() if noun else maps[i] for i, noun in half.items()]).amax(0)
        logits = _sent(logits_behind(copied(best), calibration), texture)
    by_phrase = dict(zip(query.phrases, confidences, strict=True))
    union = max(confidences[i] for i in asked)
    reasons = {"participation": best.reshape(shape), **planes}
    final = _combine(texture, query, reasons, weights, options)
    if texture.texture.valid is not None and len(reasons) > 1:
        final = final.minimum(texture.valid.reshape(shape))
    entered = reasons.keys() - OF_THE_QUESTION - planes.keys()
    confidence = join_confidences(query.asked_groups, by_phrase) if query.together else union
    if query.written_on:
        confidence = doubt_writing(confidence, texture.texture, copied(reasons["participation"]), options.reading)
    return DeviceRelevance(
        query=query.text,
        map=final,
        logits=logits.reshape(shape),
        confidence=confidence,
        parts=ReadOnly({name: part.reshape(shape) for name, part in zip(query.phrases, maps, strict=True)}),
        reasons=ReadOnly(reasons),
        confidences=ReadOnly({**inside, **by_phrase}),
        peak=peak_of(final.ravel()) if entered or half else union if query.together or query.written_on else 0.0,
        weights=ReadOnly(weights),
        texture=texture,
        ignored=query.ignored,
        unknown=query.unknown,
        looked_for=query.looked_for,
        preset=options.preset,
        asks=asks_of(query.asks, reasons, weights),
    )


def options_on_device(texture: DeviceTexture, how: ScoringOptions) -> CheckedScoring:
    """`parse_options`; weights of channels may be tensors of one number, and the prior one of [h, w]. Raises as it."""
    import torch

    given: Any = dict(how)
    prior: Any = {**preset_of(texture.texture, how.get("preset")).scoring, **how}.get("prior")
    plane: Any = texture.on_cells(prior) if isinstance(prior, str) and prior in texture.given else None
    if isinstance(prior, torch.Tensor):
        given["prior"], plane = copied(prior.float()), prior.clone()
    elif isinstance(prior, DeviceRelevance):
        given["prior"], plane = prior.cpu(), prior.map_on(texture.grid)
    weights, tensors = given.get("channel_weights"), dict[str, Any]()
    if isinstance(weights, Mapping):
        ones = ((name, w) for name, w in weights.items() if isinstance(w, torch.Tensor) and w.numel() == 1)
        tensors = {name: w.reshape(()) for name, w in ones}
        given["channel_weights"] = {**weights, **{name: float(w.detach()) for name, w in tensors.items()}}
    options = parse_options(texture.texture, given)
    options = options if plane is None else replace(options, prior=plane)
    followed = (replace(cue, weight=tensors.get(cue.channel, cue.weight)) for cue in options.channel_weights)
    return replace(options, channel_weights=tuple(followed)) if tensors else options


def check_supported(texture: DeviceTexture, options: CheckedScoring, words: bool = False) -> None:
    """Raises DeviceError for what was read in the image, for fusions, and for taught `words`."""
    host, why = texture.texture, ""
    if options.reading and (host.words or (host.words is None and page_of(host)[1] is not None)):
        why = f"what is written in {host.name!r}"
    if not isinstance(options.fusion, Participation):
        why = f"fusion={options.fusion.name!r}"
    if words:
        why = "taught words"
    if why:
        raise DeviceError(
            f"{why}, on {texture.device}",
            expected="a question of what is seen, without what was read, and by itself",
            fix=f"{ON_THE_CPU}; or pass reading=False, and no fusion",
        )


def _check_encoded(texture: DeviceTexture, phrase: str) -> None:
    """Raises DeviceError where z, rows or mean are not the texture's, of which the CPU makes composed phrases."""
    host = texture.texture
    sent = (host.embedding.reshape(-1, host.rank), host.basis.rows, host.basis.mean)
    there = (texture.z, texture.rows, texture.mean)
    if not all(np.array_equal(copied(new.double()), old) for new, old in zip(there, sent, strict=True)):
        raise DeviceError(
            f"{quoted(phrase)}, of a z, rows or mean that was replaced",
            expected="those of the texture: the CPU puts this phrase together, of what was encoded",
            fix="ask for the thing alone; or change the texture, and send that: texture.in_basis(...).to(device)",
        )


def score_vectors(
    texture: DeviceTexture, vectors: NDArray[np.floating], calibration: Calibration, negatives: Negatives | None
) -> tuple[Tensor, Tensor]:
    """Logits and relevance of text vectors [q, D]: float32 [q, n] each."""
    import torch

    logits = plain_scores(texture, vectors)
    if calibration.contrast > 0 and negatives is not None:
        levels = [_against(texture, negatives, vector, calibration) for vector in vectors]
        logits = logits - calibration.contrast * torch.stack(levels)
    slope, offset = float(np.float32(calibration.slope)), float(np.float32(calibration.offset))
    floor = floor_of(calibration)
    found = float(np.float32(1 / (1 - floor))) / (torch.exp(-slope * logits - offset) + 1)
    if floor:  # rounded as on the CPU
        found = (found - float(np.float32(floor / (1 - floor)))).clamp(0, 1)
    return logits, texture.valid * found


def plain_scores(texture: DeviceTexture, vectors: NDArray[np.floating]) -> Tensor:
    q = _sent(vectors, texture).double()
    weights, offsets = _kept(texture, q @ texture.rows.double().mT), _kept(texture, q @ texture.mean.double())
    return _kept(texture, weights.double() @ texture.z.double().mT) + offsets[:, None]


def peak_of(plane: Tensor) -> float:
    count = peak_cells(plane.shape[-1])
    return float((plane.detach().topk(count, sorted=False).values.double().sum() / count).float())


def _sent(array: NDArray[Any], texture: DeviceTexture) -> Tensor:
    import torch

    return torch.tensor(array, dtype=torch.float32).to(texture.device)


def _kept(texture: DeviceTexture, values: Tensor) -> Tensor:
    """Sums of float64 as they are kept: float32, of a texture in float64 as they are."""
    return values if texture.z.dtype == values.dtype else values.float()


def _segment_means(texture: DeviceTexture, plane: Tensor) -> Tensor:
    sums = texture.sizes.new_zeros(len(texture.sizes)).index_add_(0, texture.segments, plane.ravel().double())
    return _kept(texture, sums / texture.sizes)[texture.segments].reshape(plane.shape)


def _against(texture: DeviceTexture, negatives: Negatives, vector: Floats, calibration: Calibration) -> Tensor:
    t, every = calibration.temperature, negatives.vectors

    def sums(vectors: Floats) -> Tensor:
        parts = [vectors[i : i + CHUNK] for i in range(0, len(vectors), CHUNK)]
        return sum((t * plain_scores(texture, part)).double().exp().sum(0) for part in parts)  # type: ignore[return-value]  # at least one

    like = every @ vector > calibration.synonym
    level, count = texture.derive(("negatives", negatives, t), lambda: sums(every)), len(every)
    if like.any():
        level, count = level - sums(every[like]), max(count - int(like.sum()), 1)
    return _kept(texture, (level.clamp(min=float(np.exp(-t))) / count).log() / t)


def _combine(
    texture: DeviceTexture,
    query: Query,
    reasons: dict[str, Tensor],
    weights: dict[str, float],
    options: CheckedScoring,
) -> Tensor:
    """`steps.combine`, in its order, without what was read and without a fusion."""
    found, host = reasons["participation"], texture.texture
    if options.smoothing and host.has("cluster_id"):
        reasons["segment"] = _segment_means(texture, found)
        share = float(np.float32(options.smoothing))
        found = float(1 - np.float32(share)) * found + share * reasons["segment"]
    by_hand = {cue.channel for cue in options.channel_weights}
    followed = [cue for cue in query.cues if options.cues and cue.channel not in by_hand]
    used = {cue.channel for cue in followed}
    for cue in (*followed, *options.channel_weights, *(cue for cue in options.least if cue.channel not in used)):
        weight: Any = cue.weight  # or a tensor, which has a slope at 0, too
        plane = plane_of(host, cue.channel) if not isinstance(weight, float) or weight else None
        if plane is not None:
            sent = texture.on_cells(cue.channel) if cue.channel in texture.given else _sent(plane, texture)
            if query.written_on and cue.channel == "text" and cue in followed:
                sent = sent * _sent(on_thing(np.ones_like(plane), copied(reasons["participation"])), texture)
            reasons[cue.channel] = sent.to(found.dtype)
            weights[cue.channel] = weight if isinstance(weight, float) else float(weight.detach())
            found = follow(found, cue, reasons[cue.channel])
    if options.prior is not None:
        prior: Any = options.prior  # or a tensor
        sent = _sent(prior, texture) if isinstance(prior, np.ndarray) else prior.to(texture.device)
        reasons["prior"] = sent.to(found.dtype)
        share = float(np.float32(options.prior_weight))
        found = float(1 - np.float32(share)) * found + share * reasons["prior"]
    return found
