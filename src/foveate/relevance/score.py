"""Text vectors become a calibrated map over a texture's cells, with a confidence.

For a phrase with unit vector q and a cell with unit feature x (compressed, see basis.py):

    score      s = q.x                                              linear, so it may be interpolated
    negatives     r = log(mean over j of exp(t s_j)) / t               over a bank of nouns that are not like q
    logits     m = s - contrast r
    relevance  p = sigmoid(slope m + offset)                        in [0, 1]; of several phrases the highest

Then each cell takes a share of its segment's mean, the words of the question that speak of a channel have their say
(cues.py), a prior is mixed in if one is given, and a fusion weighs the result against what is in the pixels and what
stands out (scorers.py, weighing.py); by default no balance but the question counts.

The five numbers are the encoder's `Calibration`. Confidence is the mean of the highest 1/256 of p: a thing that
is not there gives a low map everywhere, and a low confidence. It is never stretched to full contrast. From 0.5 on the
thing counts as detected. Things that are asked for together ("a dog and a giraffe") are detected if all of them are:
their confidence is that of the least likely one, though the map shows each of them.

What is notable
* The bank's level depends on the image and not on the question, so it is computed once a texture. Nouns like the
  question (cosine above `synonym`) are taken out of it for that question, or "puppy" would compete with "dog".
* Pixels that are transparent have no relevance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import resize_map
from foveate.core.readonly import ReadOnly
from foveate.encoders.protocol import Calibration
from foveate.relevance.fusion import AS_ASKED, Weighing, weighed
from foveate.relevance.query import Query
from foveate.relevance.value import Relevance, fixed
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
CHUNK = 128  # nouns scored at a time: the bank has 1,585, an image thousands of cells
PEAK_SHARE = 256  # confidence is the mean of the best 1/256 of the cells: one cell of 16 x 16, 16 of 64 x 64


@dataclass(frozen=True, eq=False)
class Negatives:
    """The bank of nouns that a question competes with: unit vectors float32 [m, D] of one encoder."""

    vectors: Floats

    def level(self, texture: Texture, temperature: float) -> NDArray[np.float64]:
        """Sum over the bank of exp(t s_j) at each cell, float64 [cells]. Kept with the texture."""

        def make() -> NDArray[np.float64]:
            chunks = (self.vectors[i : i + CHUNK] for i in range(0, len(self.vectors), CHUNK))
            return np.sum([np.exp(temperature * self._scores(texture, chunk)).sum(0) for chunk in chunks], 0)

        return texture.derive(("negatives", self, temperature), make)

    def against(self, texture: Texture, vector: Floats, calibration: Calibration) -> Floats:
        """r of the module's formula for one text vector [D]: float32 [cells]."""
        t = calibration.temperature
        like = self.vectors @ vector > calibration.synonym
        level, count = self.level(texture, t), len(self.vectors)
        if like.any():
            level = level - np.exp(t * self._scores(texture, self.vectors[like])).sum(0)
            count = max(count - int(like.sum()), 1)
        floor = np.exp(-t)  # the sum of one rival at its lowest: rounding in the difference cannot go below
        return np.asarray(np.log(np.maximum(level, floor) / count) / t, np.float32)

    @staticmethod
    def _scores(texture: Texture, vectors: Floats) -> NDArray[np.float64]:
        return texture.scores(vectors).reshape(len(vectors), -1).astype(np.float64)


def relevance_of(
    texture: Texture,
    query: Query,
    calibration: Calibration,
    negatives: Negatives | None = None,
    weighing: Weighing = AS_ASKED,
) -> Relevance:
    """The relevance of one prepared question. `negatives` is needed where the calibration's contrast is above 0."""
    logits, maps, valid = _maps(texture, query, calibration, negatives)
    best = maps[0] if len(maps) == 1 else maps.max(0)
    logits = logits[0] if len(logits) == 1 else logits.max(0)
    shape = texture.grid.shape
    fixed(maps)
    reasons = {"participation": fixed(best.reshape(shape))}
    final = weighed(texture, query.cues, reasons, weighing)
    if valid is not None and len(reasons) > 1:  # what entered knows nothing of transparency; the question's map does
        final = np.minimum(final, valid.reshape(shape))
    entered = reasons.keys() - {"participation", "segment"}
    together = [group for group in query.groups if len(group) > 1]
    confidences = {phrase: _peak(one) for phrase, one in zip(query.phrases, maps, strict=True)}
    union = _peak(best) if len(maps) > 1 else confidences[query.phrases[0]]
    return Relevance(
        query=query.text,
        map=fixed(final),
        logits=fixed(logits.reshape(shape)),
        confidence=join_confidences(query.groups, confidences) if together else union,
        parts=ReadOnly({phrase: part.reshape(shape) for phrase, part in zip(query.phrases, maps, strict=True)}),
        reasons=ReadOnly(reasons),
        saliency=texture.channel("saliency", warn=False),
        valid=None if valid is None else valid.reshape(shape),
        grid=texture.grid,
        features=texture.coordinates().reshape(*shape, -1),
        confidences=ReadOnly(confidences),
        ignored=query.ignored,
        peak=_peak(final.ravel()) if entered or together else 0.0,
    )


def join_confidences(groups: Sequence[Sequence[str]], confidences: Mapping[str, float]) -> float:
    """The confidence of a question: of phrases that are asked for together the lowest, of such groups the highest."""
    return max(min(confidences[phrase] for phrase in group) for group in groups)


def sigmoid(logits: Floats, slope: np.float32, offset: np.float32) -> Floats:
    """1 / (1 + exp(-(slope m + offset))) of each logits, float32, in one array."""
    maps = -slope * logits
    maps -= offset
    np.exp(maps, out=maps)
    maps += 1
    return np.divide(1, maps, out=maps)


def peaks_of(texture: Texture, query: Query, calibration: Calibration, negatives: Negatives | None = None) -> Floats:
    """How sure the map of each phrase is that its thing is there: float32 [phrases] in [0, 1].

    Of a question with one phrase it is `Relevance.confidence`.
    """
    _, maps, _ = _maps(texture, query, calibration, negatives)
    return np.array([_peak(one) for one in maps], np.float32)


def maps_of(
    texture: Texture, queries: Sequence[Query], calibration: Calibration, negatives: Negatives | None = None
) -> Floats:
    """What each question says by itself, without segments, cues and the like: float32 [q, h, w], from one product."""
    every = Query("", tuple(p for q in queries for p in q.phrases), np.concatenate([q.vectors for q in queries]))
    _, maps, _ = _maps(texture, every, calibration, negatives)
    if len(maps) > len(queries):  # np.maximum.reduceat would take ten times as long
        ends = np.cumsum([len(query.phrases) for query in queries])[:-1]
        maps = np.stack([part.max(0) for part in np.split(maps, ends)])
    return maps.reshape(-1, *texture.grid.shape)


def _maps(
    texture: Texture, query: Query, calibration: Calibration, negatives: Negatives | None
) -> tuple[Floats, Floats, Floats | None]:
    """Margins and relevance of each phrase, float32 [phrases, cells], and the opaque share of the cells."""
    logits = texture.scores(query.vectors).reshape(len(query.phrases), -1)
    if calibration.contrast > 0 and negatives is not None:
        for row, vector in zip(logits, query.vectors, strict=True):
            row -= calibration.contrast * negatives.against(texture, vector, calibration)
    maps = sigmoid(logits, np.float32(calibration.slope), np.float32(calibration.offset))
    valid = _validity(texture)
    if valid is not None:
        maps *= valid
    return logits, maps, valid


def nothing_of(texture: Texture, text: str) -> Relevance:
    """The relevance of a question that names nothing ("why?"): 0 everywhere, confidence 0; saliency is all there is."""
    shape, valid = texture.grid.shape, _validity(texture)
    nothing = fixed(np.zeros(shape, np.float32))
    return Relevance(
        query=text,
        map=nothing,
        logits=nothing,
        confidence=0.0,
        parts=ReadOnly({}),
        reasons=ReadOnly({"participation": nothing}),
        saliency=texture.channel("saliency", warn=False),
        valid=None if valid is None else valid.reshape(shape),
        grid=texture.grid,
        features=texture.coordinates().reshape(*shape, -1),
    )


def _peak(values: Floats) -> float:
    count = max(1, len(values) // PEAK_SHARE)
    return float(np.partition(values, len(values) - count)[-count:].sum() / count)


def _validity(texture: Texture) -> Floats | None:
    """Opaque share of each cell, float32 [cells]; None for an image without alpha."""
    valid = texture.valid
    if valid is None:
        return None
    return texture.derive("validity", lambda: resize_map(valid, texture.grid.shape).ravel() / np.float32(255))
