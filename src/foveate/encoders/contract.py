"""Which encoder is meant, is it the right one, and did it keep its side of the contract?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foveate.encoders import Calibration, DenseFeatures, Encoder, Floats, comes_with_foveate, load_encoder
from foveate.errors import EncoderNameError, EncoderOutputError, TextureEncoderError
from foveate.grid import Grid
from foveate.texture import EncoderStamp

UNIT = 1e-2  # how far from 1 the length of a text vector may be, and above 1 that of a feature


def encoder_given(given: str | Encoder) -> Encoder:
    """An encoder by name, or an object with the members of one. Raises EncoderNameError."""
    if isinstance(given, str) or not isinstance(given, Encoder):
        return load_encoder(given)
    problem = _flaw(given)
    if problem:
        raise EncoderNameError(
            f"an encoder of type {type(given).__name__} {problem}",
            expected="an object with all members of foveate.encoders.Encoder",
            fix="docs/encoders.md has one to start from",
        )
    return given


def _flaw(encoder: Any) -> str:
    """What is wrong with the members of an encoder, or nothing."""
    try:
        hash(encoder)  # what is made of an encoder is kept by it
    except TypeError:
        return "which cannot be hashed: write @dataclass(frozen=True), or a plain class"
    if not isinstance(encoder.name, str) or not isinstance(encoder.revision, str):
        return "whose name or revision is no text"
    if isinstance(encoder.width, bool) or not isinstance(encoder.width, int | np.integer) or encoder.width < 1:
        return f"whose width is {encoder.width!r}"
    if not isinstance(encoder.calibration, Calibration):
        return f"whose calibration is {encoder.calibration!r}"
    try:
        filled = [template.format("dog") for template in encoder.templates]
    except (TypeError, AttributeError, LookupError, ValueError):
        filled = []
    if not filled or not all("dog" in text for text in filled):
        return f"whose templates are {encoder.templates!r}, not texts with one {{}} each"
    return ""


def encoder_of(stamp: EncoderStamp, given: str | Encoder | None) -> Encoder:
    """The encoder that made a texture: the one given, or one that comes with foveate. Raises TextureEncoderError.

    A texture file may name any encoder. Loading what it names would let a file choose what is downloaded and read, so
    any but our own must be given by the caller.
    """
    if given is None and not comes_with_foveate(stamp.name):
        raise TextureEncoderError(
            f"the texture was made by encoder '{stamp.name}'",
            expected="that encoder: foveate does not load what a file names",
            fix="pass it: score(texture, query, encoder=...), or --encoder",
        )
    encoder = encoder_given(stamp.name if given is None else given)
    kinds = [name.partition(":")[0] for name in (encoder.name, stamp.name)]
    if kinds[0] != kinds[1] or (encoder.revision, encoder.width) != (stamp.revision, stamp.width):
        raise TextureEncoderError(
            f"the texture was made by encoder '{stamp.name}', revision {stamp.revision}",
            expected=f"'{encoder.name}', revision {encoder.revision}",
            fix="encode the image again, or use the encoder (and foveate release) that made the texture",
        )
    return encoder


def check_features(encoder: Encoder, dense: DenseFeatures, size: tuple[int, int]) -> None:
    """Features must be finite floats [h, w, width], at most 1 long, over the image. Raises EncoderOutputError."""
    expected = "finite float features [h, w, width] of length 1 at most, as DenseFeatures with their Grid"
    grid, features = getattr(dense, "grid", None), getattr(dense, "features", None)
    if not isinstance(grid, Grid) or not isinstance(features, np.ndarray):
        problem = f"a {type(dense).__name__}"
    elif features.dtype.kind != "f" or features.shape != (*grid.shape, encoder.width):
        problem = f"{features.dtype} features of shape {list(features.shape)}"
        expected = f"float features {[*grid.shape, encoder.width]}"
    elif (grid.height, grid.width) != size:
        problem = f"features on a grid over {grid.height} x {grid.width} pixels"
        expected = f"a grid over {size[0]} x {size[1]} pixels, as the image"
    else:
        length = _length(features)
        if not np.isfinite(length).all():
            problem = "features that are NaN or infinite"
        elif (length > 1 + UNIT).any():
            problem = f"features of length {length.min():.3g} to {length.max():.3g}"
        else:
            return
    raise EncoderOutputError(
        f"encoder '{encoder.name}' returned {problem}",
        expected=expected,
        fix="divide features by their norm, or all of them by the largest; foveate.encoders has the contract",
    )


def _length(vectors: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite length is refused like any other wrong one
        return np.asarray(np.linalg.norm(vectors, axis=-1))


def text_vectors(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """The encoder's vectors of texts, checked: float32 [n, width], finite, of length 1. Raises EncoderOutputError."""
    vectors = encoder.encode_text(texts)
    shape = (len(texts), encoder.width)
    if not isinstance(vectors, np.ndarray) or vectors.dtype.kind != "f":
        problem = f"a {type(vectors).__name__} as text vectors"
    elif vectors.shape != shape:
        problem = f"text vectors of shape {list(vectors.shape)}"
    elif not (np.abs(_length(vectors) - 1) <= UNIT).all():  # NaN is not either
        problem = "text vectors that are not finite and of length 1"
    else:
        return np.asarray(vectors, np.float32)
    raise EncoderOutputError(
        f"encoder '{encoder.name}' returned {problem}",
        expected=f"an array of finite unit vectors {list(shape)}",
        fix="return one unit vector of the encoder's width for each text",
    )
