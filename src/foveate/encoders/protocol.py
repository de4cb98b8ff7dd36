"""What an encoder is, what it must return, and the checks of that.

An encoder is any hashable object with the members of `Encoder`; it needs no base class. A score q.x is linear in its
features and larger where image and text are more alike. The same input gives the same output, in any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import EncoderOutputError
from foveate.core.grid import Floats, Grid

ASK_IN_ENGLISH = (
    "ask in English; SigLIP 2 reads other languages: encoder='siglip' in Python, --encoder siglip of foveate look and "
    "view (a download, with the extra [torch])"
)
UNIT = 1e-2  # how far from 1 the length of a text vector may be, and above 1 that of a feature
LEAST_SIDE = 64  # pixels: encoders refuse images of less than a patch
PROBE = 224  # pixels: no encoder says how many of them a cell takes; encoding an image of this side shows it


@dataclass(frozen=True)
class DenseFeatures:
    """Features float32 [h, w, D], finite and at most 1 long, on a grid of cells over the whole image.

    looks: of an encoder that can be taught words (taught.py), int8 [h / 2, w / 2, n], halves rounded up.
    columns: where most of D numbers are 0 in all cells, those that are not, each once, [k]; `features` are these.
    """

    features: Floats
    grid: Grid
    looks: NDArray[np.int8] | None = None
    columns: NDArray[np.intp] | None = None

    def full(self, width: int) -> Floats:
        """All features, float32 [h, w, width]."""
        return self.features if self.columns is None else self.of(np.arange(width))

    def of(self, columns: NDArray[np.intp]) -> Floats:
        """The features of some columns, each once, float32 [h, w, n]: 0 where there are none."""
        if self.columns is None:
            return self.features[..., columns]
        out = np.zeros((*self.features.shape[:2], len(columns)), np.float32)
        _, to, mine = np.intersect1d(columns, self.columns, assume_unique=True, return_indices=True)
        out[..., to] = self.features[..., mine]
        return out


@dataclass(frozen=True)
class Calibration:
    """How an encoder's scores become relevance in [0, 1]; relevance/scoring.py has the formula.

    Attributes:
        temperature: of the softmax against negatives.
        contrast: how much of the negatives' level is taken off the score, 0 (absolute score) to 1 (pure contrast).
        synonym: negatives whose text vector has a higher cosine with the query's are dropped.
        slope, offset: relevance = sigmoid(slope * logits + offset).
    """

    temperature: float
    contrast: float
    synonym: float
    slope: float
    offset: float


@runtime_checkable
class Encoder(Protocol):
    """What foveate needs of an encoder. It must be hashable (a plain class is; a dataclass needs frozen=True).

    Attributes:
        name: as passed to `load_encoder`, stored in textures.
        revision: changes whenever the numbers change; stored in textures.
        width: D of the shared space.
        templates: prompts with `{}` for the noun; their unit vectors are averaged.
        calibration: see Calibration.
        reads_phrases: optional; False where "red car" should be asked as a car, and the colour taken from the pixels.
        names: optional; what it was taught to see. A texture's basis is fitted to questions for these.
        long_side: optional; its default working size in pixels.
        device: optional; where it works.
        encode_images: optional; as `encode_image`, for a list of images, as a list.
        knows: optional; text -> whether it has a name for the whole of it: "clock face" is then asked as one thing.
        understands: optional; text -> whether it has a name for it, or for something like it; `Relevance.unknown` lists
            the nouns that it does not understand.
        understood_as: optional; text -> (the words it is looked for as, where that is another thing, and how far a
            verdict on them may go, in (0, 1]), else None: "desk lamp" -> ("lamp", 0.6), say.
        surer: optional; text -> log odds to add to a confidence, where evidence of it is surer than the calibration's.
        kinds_of: optional; text -> vectors [1, D] of what is surely one of it, each with its log odds (poodle: dog).
    """

    @property
    def name(self) -> str: ...
    @property
    def revision(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def templates(self) -> tuple[str, ...]: ...
    @property
    def calibration(self) -> Calibration: ...

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        """Upright RGB uint8 [H, W, 3] -> features. `long_side`: working size in pixels, None for the default."""
        ...

    def encode_text(self, texts: Sequence[str]) -> Floats:
        """Texts -> vectors float32 [n, D] of length 1, or longer, and nowhere below 0, for a word of several names.

        Raises QueryError for a text that the encoder cannot read.
        """
        ...

    def __hash__(self) -> int: ...


def encode_texts(encoder: Encoder, texts: Sequence[str]) -> Floats:
    """`encoder.encode_text`, checked: vectors float32 [n, width]. Raises EncoderOutputError."""
    vectors = encoder.encode_text(texts)
    shape = (len(texts), encoder.width)
    if not isinstance(vectors, np.ndarray) or vectors.dtype.kind != "f":
        problem = f"a {type(vectors).__name__} as text vectors"
    elif vectors.shape != shape:
        problem = f"text vectors of shape {list(vectors.shape)}"
    elif not _are_texts(vectors):
        problem = "text vectors that are not finite and of length 1"
    else:
        return np.asarray(vectors, np.float32)
    raise EncoderOutputError(
        f"encoder '{encoder.name}' returned {problem}",
        expected=f"an array of finite unit vectors {list(shape)}",
        fix="return one unit vector of the encoder's width for each text",
    )


def _are_texts(vectors: Floats) -> bool:
    """Finite, of length 1; or longer without a number below 0, as evidence for several things is added up."""
    lengths = _lengths(vectors)
    right = (np.abs(lengths - 1) <= UNIT) | ((lengths > 1) & (vectors >= 0).all(-1))
    return bool(np.isfinite(lengths).all() and right.all())


def encode_images(encoder: Any, images: Sequence[NDArray[np.uint8]], long_side: int | None) -> list[DenseFeatures]:
    """Raises EncoderOutputError where it is not one for each image."""
    found = list(encoder.encode_images(images, long_side=long_side)) if images else []
    if len(found) == len(images):
        return found
    raise EncoderOutputError(
        f"encoder '{encoder.name}' returned {len(found)} features for {len(images)} images",
        expected="one for each",
        fix="mend its encode_images, or leave that method out",
    )


def gpu_of(encoder: Encoder) -> str | None:
    """The GPU that an encoder works on, by torch's name; None on the CPU, or where it has no `device`."""
    device = str(getattr(encoder, "device", ""))
    return device if device.startswith("cuda") else None


def check_features(encoder: Encoder, dense: DenseFeatures, size: tuple[int, int]) -> None:
    """Features must be finite floats [h, w, width], at most 1 long, over the image. Raises EncoderOutputError."""
    expected = "finite float features [h, w, width] of length 1 at most, as DenseFeatures with their Grid"
    grid, features = getattr(dense, "grid", None), getattr(dense, "features", None)
    if not isinstance(grid, Grid) or not isinstance(features, np.ndarray):
        problem = f"a {type(dense).__name__}"
    elif features.dtype.kind != "f" or features.shape != (*grid.shape, _count(dense.columns, encoder.width)):
        problem = f"{features.dtype} features of shape {list(features.shape)}"
        expected = f"float features {[*grid.shape, encoder.width]}"
    elif (grid.height, grid.width) != size:
        problem = f"features on a grid over {grid.height} x {grid.width} pixels"
        expected = f"a grid over {size[0]} x {size[1]} pixels, as the image"
    elif not np.isfinite(lengths := _lengths(features)).all():
        problem = "features that are NaN or infinite"
    elif (lengths > 1 + UNIT).any():
        problem = f"features of length {lengths.min():.3g} to {lengths.max():.3g}"
    else:
        return
    raise EncoderOutputError(
        f"encoder '{encoder.name}' returned {problem}",
        expected=expected,
        fix="divide features by their norm, or all of them by the largest; foveate.encoders.protocol has the contract",
    )


def _count(columns: NDArray[np.intp] | None, width: int) -> int:
    """How many numbers a cell's features have; -1 for columns that are none."""
    if columns is None:
        return width
    different = set(columns.tolist())
    return len(columns) if len(different) == len(columns) and different <= set(range(width)) else -1


def _lengths(vectors: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite length is refused like any other wrong one
        return np.sqrt(np.einsum("...d,...d->...", vectors, vectors, dtype=np.result_type(vectors, np.float32)))
