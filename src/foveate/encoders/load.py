"""Which encoder is meant: by name, as an object, or by the stamp of a texture."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from foveate.core.checks import check_int
from foveate.core.errors import EncoderNameError, OptionError, TextureEncoderError
from foveate.encoders.clip import ClipEncoder
from foveate.encoders.hub import HubEncoder
from foveate.encoders.nano import NanoEncoder, NanoFastEncoder
from foveate.encoders.protocol import Calibration, Encoder
from foveate.encoders.siglip import SiglipEncoder
from foveate.encoders.tips import TipsEncoder
from foveate.texture.texture import EncoderStamp

FAMILIES: dict[str, type[HubEncoder]] = {each.kind: each for each in (ClipEncoder, SiglipEncoder, TipsEncoder)}
BUILT_IN: dict[str, type[NanoEncoder] | type[NanoFastEncoder]] = {"nano": NanoEncoder, "nano-fast": NanoFastEncoder}
# Names that a file may choose: any other would let it decide what is downloaded and read.
DEFAULTS = frozenset([*BUILT_IN, *(f"{kind}:{family.default}" for kind, family in FAMILIES.items())])
MEMBERS = "an object with all members of foveate.encoders.protocol.Encoder"


def load_encoder(name: str) -> Encoder:
    """An encoder by name, made once per process. Raises EncoderNameError, MissingExtraError, EncoderFilesError.

    >>> load_encoder("nano-fast").width
    256
    """
    if not isinstance(name, str):
        raise EncoderNameError(
            f"an encoder given as {type(name).__name__}",
            expected=f"a name, or {MEMBERS}",
            fix="use 'nano', or see docs/encoders.md for how to write an encoder",
        )
    kind, _, checkpoint = name.partition(":")
    if kind not in (*BUILT_IN, *FAMILIES) or (kind in BUILT_IN and checkpoint):
        raise EncoderNameError(
            f"no encoder named {name!r}",
            expected="'nano' or 'nano-fast' (built in), or 'clip', 'siglip' or 'tips', alone or with ':NAME_OR_FOLDER'",
            fix="use 'nano', or a folder that holds config.json and model.safetensors: 'clip:/path/to/folder'",
        )
    return _load(kind, checkpoint)


@lru_cache(maxsize=4)
def _load(kind: str, checkpoint: str) -> Encoder:
    if kind in BUILT_IN:
        return BUILT_IN[kind].built_in()
    source, _, dense = (checkpoint, "", "") if Path(checkpoint).is_dir() else checkpoint.partition("#")
    return FAMILIES[kind].from_pretrained(source, dense=dense)


def resolve_encoder(encoder: str | Encoder) -> Encoder:
    """An encoder by name, or an object with the members of one. Raises EncoderNameError."""
    if isinstance(encoder, str) or not isinstance(encoder, Encoder):
        return load_encoder(encoder)
    if problem := _find_flaw(encoder):
        raise EncoderNameError(
            f"an encoder of type {type(encoder).__name__} {problem}",
            expected=MEMBERS,
            fix="docs/encoders.md has one to start from",
        )
    return encoder


def _find_flaw(encoder: Any) -> str:
    """What is wrong with the members of an encoder, or nothing."""
    try:
        hash(encoder)  # what is made of an encoder is kept by it
    except TypeError:
        return "which cannot be hashed: write @dataclass(frozen=True), or a plain class"
    if not isinstance(encoder.name, str) or not isinstance(encoder.revision, str):
        return "whose name or revision is no text"
    try:
        check_int("width", encoder.width)
    except OptionError as error:
        return f"with {error.received}"
    if not isinstance(encoder.calibration, Calibration):
        return f"whose calibration is {encoder.calibration!r}"
    try:
        prompts = [template.format("dog") for template in encoder.templates]
    except (TypeError, AttributeError, LookupError, ValueError):
        prompts = []
    if not prompts or not all("dog" in prompt for prompt in prompts):
        return f"whose templates are {encoder.templates!r}, not texts with one {{}} each"
    return ""


def match_encoder(stamp: EncoderStamp, encoder: str | Encoder | None) -> Encoder:
    """The encoder that made a texture: `encoder`, or for None one of the defaults. Raises TextureEncoderError.

    A texture file may name any encoder, so any but a default must be passed by the caller.
    """
    if encoder is None and stamp.name.partition("#")[0] not in DEFAULTS:
        raise TextureEncoderError(
            f"the texture was made by encoder '{stamp.name}'",
            expected="that encoder: foveate does not load what a file names",
            fix="pass it: score(texture, query, encoder=...), or --encoder",
        )
    found = resolve_encoder(stamp.name if encoder is None else encoder)
    kinds = [name.partition(":")[0] for name in (found.name, stamp.name)]
    if kinds[0] != kinds[1] or (found.revision, found.width) != (stamp.revision, stamp.width):
        raise TextureEncoderError(
            f"the texture was made by encoder '{stamp.name}', revision {stamp.revision}",
            expected=f"'{found.name}', revision {found.revision}",
            fix="encode the image again, or use the encoder (and foveate release) that made the texture",
        )
    return found
