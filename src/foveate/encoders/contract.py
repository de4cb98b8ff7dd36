"""Which encoder is meant, is it the right one, and did it keep its side of the contract?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foveate.core.errors import EncoderOutputError
from foveate.core.grid import Grid
from foveate.encoders.protocol import DenseFeatures, Encoder, Floats

UNIT = 1e-2  # how far from 1 the length of a text vector may be, and above 1 that of a feature


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
        fix="divide features by their norm, or all of them by the largest; foveate.encoders.protocol has the contract",
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
