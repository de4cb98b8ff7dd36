"""Encoders: image -> dense features in a space that text vectors share.

An encoder is any object with the members of `Encoder`. `load_encoder` finds the built-in ones by name:

* `nano` (nano.py): ours, inside the package, offline, no torch. The default.
* `clip`, `siglip`, `tips`, alone or with `:NAME_OR_FOLDER`, or with `:NAME_OR_FOLDER#HEAD` for another dense head
  (clip.py, siglip.py, tips.py): checkpoints in transformers format; needs the extra `[torch]`.

What an encoder owes its callers: features are at most 1 long; the score q.x is *linear* in the features and
larger means more alike (some towers are inverted: the pointing test in tests/ catches a wrong sign); encode_text
returns unit vectors; the same input gives the same output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import Grid

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class DenseFeatures:
    """Features float32 [h, w, D] on a grid of cells over the image."""

    features: Floats
    grid: Grid


@dataclass(frozen=True)
class Calibration:
    """How an encoder's scores become relevance in [0, 1]; `relevance/score.py` has the formula.

    Attributes:
        temperature: of the softmax against rival nouns; CLIP cosines need about 40, see docs/architecture.md.
        contrast: how much of the negatives' level is taken off the score, 0 (absolute score) to 1 (pure contrast).
        synonym: negatives whose text vector has a higher cosine with the question's are no negatives.
        slope, offset: relevance = sigmoid(slope * logits + offset), such that a map that peaks at 0.5 is as likely of a
            thing that is there as of one that is not.
    """

    temperature: float
    contrast: float
    synonym: float
    slope: float
    offset: float


@runtime_checkable
class Encoder(Protocol):
    """What foveate asks of an encoder. It must be hashable (a plain class is; a dataclass needs frozen=True).

    Attributes:
        name: as passed to `load_encoder`, stored in textures.
        revision: changes whenever the numbers change; stored in textures.
        width: D of the shared space.
        templates: prompts with `{}` for the noun; their unit vectors are averaged.
        calibration: see Calibration.
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
        """Texts -> unit vectors float32 [n, D]. Raises QueryError for a text that the encoder cannot read."""
        ...

    def __hash__(self) -> int: ...
