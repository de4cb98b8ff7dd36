"""The negatives, nouns that a question competes with; and the bank, the texts for which a basis is fitted: the names
that the encoder was taught (`Encoder.names`), else the nouns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from foveate.core.threads import once
from foveate.encoders.protocol import Encoder, encode_texts
from foveate.texture.basis import Metric, query_metric

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Negatives:
    """float32 [m, D]: unit text vectors of nouns."""

    vectors: Floats


@lru_cache(maxsize=1)
def nouns() -> tuple[str, ...]:
    """1,585 names of things, from the category lists of COCO, LVIS, Objects365 and Open Images."""
    return tuple((files("foveate") / "encoders" / "assets" / "nouns.txt").read_text("utf-8").splitlines())


@once(4)
def negatives_of(encoder: Encoder) -> Negatives:
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
