"""Which encoder is meant, and is it the one that made a texture?"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate.core.errors import EncoderNameError, TextureEncoderError
from foveate.encoders.protocol import Calibration, Encoder
from foveate.texture.texture import EncoderStamp

if TYPE_CHECKING:
    from foveate.encoders.hub import HubEncoder

CLIP_DEFAULT = "openai/clip-vit-base-patch16"
SIGLIP_DEFAULT = "google/siglip2-base-patch16-naflex"
TIPS_DEFAULT = "google/tipsv2-l14"
FROM_HUB = {"clip": CLIP_DEFAULT, "siglip": SIGLIP_DEFAULT, "tips": TIPS_DEFAULT}
OURS = frozenset(["nano", *(f"{kind}:{default}" for kind, default in FROM_HUB.items())])


def load_encoder(name: str) -> Encoder:
    """An encoder by name, made once per process. Raises EncoderNameError, MissingExtraError, EncoderFilesError.

    >>> load_encoder("nano").width
    256
    """
    if not isinstance(name, str):
        raise EncoderNameError(
            f"an encoder given as {type(name).__name__}",
            expected="a name, or an object with all members of foveate.encoders.protocol.Encoder",
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


def encoder_given(given: str | Encoder) -> Encoder:
    """An encoder by name, or an object with the members of one. Raises EncoderNameError."""
    if isinstance(given, str) or not isinstance(given, Encoder):
        return load_encoder(given)
    problem = _flaw(given)
    if problem:
        raise EncoderNameError(
            f"an encoder of type {type(given).__name__} {problem}",
            expected="an object with all members of foveate.encoders.protocol.Encoder",
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
