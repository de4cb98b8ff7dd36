"""Finds an encoder: by its name, as an object, or as the one that made a texture."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from foveate.core.checks import check_int, keyword
from foveate.core.devices import find_device
from foveate.core.errors import EncoderNameError, OptionError, TextureEncoderError
from foveate.core.gone import ENCODERS
from foveate.core.threads import once
from foveate.encoders.checkpoint import choose_device
from foveate.encoders.clip import ClipEncoder
from foveate.encoders.hub import HubEncoder
from foveate.encoders.nano import NanoEncoder
from foveate.encoders.protocol import Calibration, Encoder
from foveate.encoders.siglip import SiglipEncoder
from foveate.encoders.specialists import Specialist, files_of, join
from foveate.encoders.tips import TipsEncoder
from foveate.texture.texture import EncoderStamp

FAMILIES: dict[str, type[HubEncoder]] = {each.kind: each for each in (ClipEncoder, SiglipEncoder, TipsEncoder)}
BUILT_IN: dict[str, type[NanoEncoder]] = {"nano": NanoEncoder}
# Names that a file may choose: any other would let it decide what is downloaded and read.
DEFAULTS = frozenset([*BUILT_IN, *ENCODERS, *(f"{kind}:{family.default}" for kind, family in FAMILIES.items())])
MOST_LOADED = 4  # encoders from the Hub, the last ones used
_joined: dict[str, Encoder] = {}  # nano with specialists, by the name in textures: the last one of each
_places: dict[tuple[str, str], str] = {}  # where each of them was used last
MEMBERS = "an object with all members of foveate.encoders.protocol.Encoder"


def load_encoder(name: str, device: str | None = None) -> Encoder:
    """An encoder by name, made once per process and device.

    Args:
        name: "nano", also with specialists, "nano+FILE.onnx+FILE.tflite"; "clip", "siglip", "tips", alone or with
            ":NAME_OR_FOLDER".
        device: of encoders from the Hub: "cuda", "cuda:1", "cpu", ...; None is where it was loaded last, or else a GPU
            if there is one. nano runs on the CPU only.

    Raises EncoderNameError, MissingExtraError, EncoderFilesError; OptionError for the device.
    """
    if not isinstance(name, str):
        raise EncoderNameError(
            f"an encoder given as {type(name).__name__}",
            expected=f"a name, or {MEMBERS}",
            fix="use 'nano', or see docs/encoders.md for how to write an encoder",
        )
    if specialists := files_of(name):
        return _joined.get(name) or join_specialists(load_encoder("nano", device), specialists)
    kind, _, checkpoint = name.partition(":")
    if kind not in (*BUILT_IN, *FAMILIES) or (kind in BUILT_IN and checkpoint):
        raise EncoderNameError(
            f"no encoder named {name!r}",
            expected="'nano' (built in), or 'clip', 'siglip' or 'tips', alone or with ':NAME_OR_FOLDER'",
            fix=ENCODERS.get(
                name, "use 'nano', or a folder that holds config.json and model.safetensors: 'clip:/path/to/folder'"
            ).format(long_side=keyword("long_side", 384)),
        )
    if kind in BUILT_IN:
        _refuse_device(kind, device)
        return _load_built_in(kind)
    place = _places.get((kind, checkpoint), "") if device is None else ""
    place = place or choose_device(device, FAMILIES[kind].model_kind())
    found = _load_from_hub(kind, checkpoint, place)
    _places[kind, checkpoint] = place
    return found


def join_specialists(encoder: Encoder, specialists: Sequence[str | Path | Specialist]) -> Encoder:
    """nano with specialists (specialists.py). Textures that it made find it again in this process.

    Raises OptionError where the encoder is another one; EncoderFilesError, MissingExtraError.
    """
    found = join(encoder, specialists)
    _joined[found.name] = found
    return found


@once(MOST_LOADED)  # one at a time, too: transformers changes settings of the whole process while it loads
def _load_from_hub(kind: str, checkpoint: str, device: str) -> Encoder:
    source, _, dense = (checkpoint, "", "") if Path(checkpoint).is_dir() else checkpoint.partition("#")
    return FAMILIES[kind].from_pretrained(source, dense=dense, device=device)


@cache
def _load_built_in(kind: str) -> Encoder:
    return BUILT_IN[kind].built_in()


def _refuse_device(kind: str, device: str | None) -> None:
    if device not in (None, "cpu"):
        raise OptionError(
            f"{keyword('device', device)} for the encoder '{kind}'",
            expected="'cpu': it runs there, by onnxruntime",
            fix="leave device out; encoders that run on a GPU are 'clip', 'siglip' and 'tips' (docs/gpu.md)",
        )


def resolve_encoder(encoder: str | Encoder, device: str | None = None) -> Encoder:
    """An encoder by name, or an object with the members of one. Raises EncoderNameError, and as `load_encoder`."""
    if isinstance(encoder, str) or not isinstance(encoder, Encoder):
        return load_encoder(encoder, device)
    if device is not None:
        raise OptionError(
            f"{keyword('device', device)} for an encoder that is an object",
            expected="no device: an object works where it was made",
            fix="leave it out; or name the encoder: encoder='clip:NAME_OR_FOLDER'",
        )
    if problem := _find_flaw(encoder):
        raise EncoderNameError(
            f"an encoder of type {type(encoder).__name__} {problem}",
            expected=MEMBERS,
            fix="docs/encoders.md has one to start from",
        )
    return encoder


def check_place(encoder: str | Encoder | None, device: str) -> None:
    """Raises what `resolve_encoder` raises of the device, and loads nothing."""
    if not isinstance(encoder, str | None):
        resolve_encoder(encoder, device)
    elif encoder in BUILT_IN or files_of(encoder or ""):
        _refuse_device("nano", device)
    elif device != "cpu":  # there is always one, also without torch
        find_device(device, kinds=())


def _find_flaw(encoder: Any) -> str:
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
    """The encoder that made a texture: `encoder`, or for None one of the defaults. Raises TextureEncoderError."""
    built_in = encoder is None and stamp.name in BUILT_IN
    if encoder is None and not built_in and stamp.name.partition("#")[0] not in DEFAULTS and stamp.name not in _joined:
        named = f"'{stamp.name}.onnx', with the folders of the files" if files_of(stamp.name) else "..."
        raise TextureEncoderError(
            f"the texture was made by encoder '{stamp.name}'",
            expected="that encoder: foveate does not load what a file names",
            fix=f"pass it: score(texture, query, encoder={named}), or --encoder",
        )
    found = _load_built_in(stamp.name) if built_in else resolve_encoder(stamp.name if encoder is None else encoder)
    same = found.name == stamp.name or found.name.partition(":")[0] == stamp.name.partition(":")[0]
    if not same or found.revision != stamp.revision or found.width != stamp.width:
        raise TextureEncoderError(
            f"the texture was made by encoder '{stamp.name}', revision {stamp.revision}",
            expected=f"'{found.name}', revision {found.revision}",
            fix="encode the image again, or use the encoder (and foveate release) that made the texture",
        )
    return found
