"""The negatives, nouns that a question competes with; and the bank, the texts for which a basis is fitted.

The bank stands for what people ask: the names that the encoder was taught (`names` of the protocol), else the nouns. Of
a word that it was not taught an encoder gives little but noise, and a basis that is fitted to noise keeps noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from foveate.core.threads import once
from foveate.encoders.protocol import Calibration, Encoder, encode_texts
from foveate.texture.basis import Metric, query_metric
from foveate.texture.texture import Texture

Floats = NDArray[np.float32]
CHUNK = 128  # nouns scored at a time


@dataclass(frozen=True, eq=False)
class Negatives:
    """Unit text vectors of nouns, float32 [m, D], of one encoder."""

    vectors: Floats

    def level(self, texture: Texture, temperature: float) -> NDArray[np.float64]:
        """Sum over the nouns of exp(t s_j) at each cell, float64 [cells]. Kept with the texture."""

        def make() -> NDArray[np.float64]:
            chunks = (self.vectors[i : i + CHUNK] for i in range(0, len(self.vectors), CHUNK))
            return np.sum([np.exp(temperature * self._scores(texture, chunk)).sum(0) for chunk in chunks], 0)

        return texture.derive(("negatives", self, temperature), make)

    def against(self, texture: Texture, vector: Floats, calibration: Calibration) -> Floats:
        """r of the formula in relevance/scoring.py for one text vector [D]: float32 [cells]."""
        t = calibration.temperature
        like = self.vectors @ vector > calibration.synonym
        level, count = self.level(texture, t), len(self.vectors)
        if like.any():
            level = level - np.exp(t * self._scores(texture, self.vectors[like])).sum(0)
            count = max(count - int(like.sum()), 1)
        floor = np.exp(-t)  # the sum of one noun at its lowest: rounding in the difference cannot go below
        return np.asarray(np.log(np.maximum(level, floor) / count) / t, np.float32)

    @staticmethod
    def _scores(texture: Texture, vectors: Floats) -> NDArray[np.float64]:
        return texture.scores(vectors).reshape(len(vectors), -1).astype(np.float64)


@lru_cache(maxsize=1)
def nouns() -> tuple[str, ...]:
    """1,585 names of things, from the category lists of COCO, LVIS, Objects365 and Open Images."""
    return tuple((files("foveate") / "encoders" / "assets" / "nouns.txt").read_text("utf-8").splitlines())


@once(4)
def negatives_of(encoder: Encoder) -> Negatives:
    """The nouns' vectors. Made once a process and encoder."""
    prompt = encoder.templates[0]
    return Negatives(encode_texts(encoder, [prompt.format(noun) for noun in nouns()]))


@once(4)
def query_metric_of(encoder: Encoder) -> Metric:
    """The metric in which a basis is fitted: second moments of the bank."""
    return query_metric(bank_of(encoder))


@once(4)
def bank_of(encoder: Encoder) -> Floats:
    """Unit text vectors float32 [m, D] of what an encoder is likely to be asked."""
    names: tuple[str, ...] = getattr(encoder, "names", ())
    prompt = encoder.templates[0]
    return encode_texts(encoder, [prompt.format(name) for name in names]) if names else negatives_of(encoder).vectors
