"""The bank of nouns that stands for what people ask: the metric of compression, and the negatives of a question."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from foveate.encoders.protocol import Encoder, encode_texts
from foveate.relevance.score import Negatives
from foveate.texture.basis import Metric, query_metric


@lru_cache(maxsize=1)
def nouns() -> tuple[str, ...]:
    """1,585 names of things, from the category lists of COCO, LVIS, Objects365 and Open Images."""
    return tuple((files("foveate") / "encoders" / "assets" / "nouns.txt").read_text("utf-8").splitlines())


@lru_cache(maxsize=4)
def negatives_of(encoder: Encoder) -> Negatives:
    """The nouns' vectors: what a question competes with. Made once a process and encoder."""
    prompt = encoder.templates[0]
    return Negatives(encode_texts(encoder, [prompt.format(noun) for noun in nouns()]))


@lru_cache(maxsize=4)
def query_metric_of(encoder: Encoder) -> Metric:
    """The metric in which a basis is fitted: second moments of the nouns' vectors."""
    return query_metric(negatives_of(encoder).vectors)
