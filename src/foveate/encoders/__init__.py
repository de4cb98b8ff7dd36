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
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foveate.errors import EncoderNameError
from foveate.grid import Grid

if TYPE_CHECKING:
    from foveate.encoders.hub import HubEncoder

Floats = NDArray[np.float32]
CLIP_DEFAULT = "openai/clip-vit-base-patch16"
SIGLIP_DEFAULT = "google/siglip2-base-patch16-naflex"
TIPS_DEFAULT = "google/tipsv2-l14"
FROM_HUB = {"clip": CLIP_DEFAULT, "siglip": SIGLIP_DEFAULT, "tips": TIPS_DEFAULT}
OURS = frozenset(["nano", *(f"{kind}:{default}" for kind, default in FROM_HUB.items())])


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
        rivalry: how much of the rivals' level is taken off the score, 0 (absolute score) to 1 (pure contrast).
        synonym: rivals whose text vector has a higher cosine with the question's are no rivals.
        slope, offset: relevance = sigmoid(slope * margin + offset), such that a map that peaks at 0.5 is as likely of a
            thing that is there as of one that is not.
    """

    temperature: float
    rivalry: float
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


def load_encoder(name: str) -> Encoder:
    """An encoder by name, made once per process. Raises EncoderNameError, MissingExtraError, EncoderFilesError.

    >>> load_encoder("nano").width
    256
    """
    if not isinstance(name, str):
        raise EncoderNameError(
            f"an encoder given as {type(name).__name__}",
            expected="a name, or an object with all members of foveate.encoders.Encoder",
            fix="use 'nano', or see docs/encoders.md for an encoder of your own",
        )
    kind, _, checkpoint = name.partition(":")
    if kind not in ("nano", *FROM_HUB) or (kind == "nano" and checkpoint):
        raise EncoderNameError(
            f"no encoder named {name!r}",
            expected="'nano' (built in, offline), or 'clip', 'siglip' or 'tips', alone or with ':NAME_OR_FOLDER'",
            fix="use 'nano', or a folder that holds config.json and model.safetensors: 'clip:/path/to/folder'",
        )
    return _load(kind, checkpoint)


def comes_with_foveate(name: str) -> bool:
    """Whether a name found in a file may be loaded without being asked for: nano, and the default checkpoints.

    Any other name would let the file choose what is downloaded and read.
    """
    return name.partition("#")[0] in OURS


@lru_cache(maxsize=4)
def _load(kind: str, checkpoint: str) -> Encoder:
    if kind == "nano":
        from foveate.encoders.nano import Nano

        return Nano.built_in()
    source, _, dense = (checkpoint, "", "") if Path(checkpoint).is_dir() else checkpoint.partition("#")
    return _family(kind).from_pretrained(source, dense=dense)


def _family(kind: str) -> type[HubEncoder]:
    if kind == "siglip":
        from foveate.encoders.siglip import Siglip

        return Siglip
    if kind == "tips":
        from foveate.encoders.tips import Tips

        return Tips
    from foveate.encoders.clip import Clip

    return Clip
