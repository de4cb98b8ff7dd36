"""Which encoder is meant, is it the right one, and did it keep its side of the contract?"""

from __future__ import annotations

import numpy as np

from foveate.encoders import DenseFeatures, Encoder, comes_with_foveate, load_encoder
from foveate.errors import EncoderNameError, EncoderOutputError, TextureEncoderError
from foveate.texture import EncoderStamp

UNIT = 1e-2  # how far from 1 the length of a feature may be


def encoder_given(given: str | Encoder) -> Encoder:
    """An encoder by name, or an object with the members of one. Raises EncoderNameError."""
    if isinstance(given, str) or not isinstance(given, Encoder):
        return load_encoder(given)
    try:
        hash(given)
    except TypeError:
        raise EncoderNameError(
            f"an encoder of type {type(given).__name__}, which cannot be hashed",
            expected="a hashable object: what is made of an encoder is kept by it",
            fix="write @dataclass(frozen=True), or a plain class",
        ) from None
    return given


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
    """Features must be finite, [h, w, width], of length 1 or 0, over the whole image. Raises EncoderOutputError."""
    shape, expected = dense.features.shape, (*dense.grid.shape, encoder.width)
    length = np.linalg.norm(dense.features, axis=-1) if shape == expected else np.zeros(1)
    if shape != expected or (dense.grid.height, dense.grid.width) != size:
        problem = f"features of shape {list(shape)} on a grid over {dense.grid.height} x {dense.grid.width} pixels"
    elif not np.isfinite(length).all():
        problem = "features that are NaN or infinite"
    elif ((np.abs(length - 1) > UNIT) & (length > UNIT)).any():
        problem = f"features of length {length.min():.3g} to {length.max():.3g}"
    else:
        return
    raise EncoderOutputError(
        f"encoder '{encoder.name}' returned {problem}",
        expected=f"finite features {list(expected)} of length 1 (or 0), on a grid over {size[0]} x {size[1]} pixels",
        fix="divide them by their norm; foveate.encoders has the contract",
    )
