"""Which model is of which family, and whether this transformers can do it."""

from __future__ import annotations

import inspect
import os
from typing import Any

from foveate.core.errors import MissingExtraError, ModelError
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import Encoder
from foveate.vlm.families.anyres import Idefics, InternVL, LlavaNext
from foveate.vlm.families.family import Family
from foveate.vlm.families.llava import Llava
from foveate.vlm.families.qwen import Qwen
from foveate.vlm.model import VLM
from foveate.vlm.tower import tower_encoder

OLDEST = "5.18"  # the first transformers whose models take `mm_encoder_outputs`
SMOLVLM_BROKEN = ("5.20.1", "5.20.2")
FAMILIES: dict[str, Family] = {
    "LlavaForConditionalGeneration": Llava("llava"),
    "LlavaNextForConditionalGeneration": LlavaNext("llava_next"),
    "Qwen2VLForConditionalGeneration": Qwen("qwen2_vl"),
    "Qwen2_5_VLForConditionalGeneration": Qwen("qwen2_5_vl"),
    "Qwen3VLForConditionalGeneration": Qwen("qwen3_vl"),
    "Idefics3ForConditionalGeneration": Idefics("idefics3"),
    "SmolVLMForConditionalGeneration": Idefics("smolvlm"),
    "InternVLForConditionalGeneration": InternVL("internvl"),
}


def attach(model: Any, processor: Any = None, *, encoder: str | Encoder = "nano", family: Family | None = None) -> VLM:
    """A stock model and its processor, ready to see images. The model is not changed.

    Args:
        model: of one of the classes in FAMILIES, from transformers.
        processor: that belongs to it.
        encoder: what textures are made with, and questions scored by: as of `foveate.encode`. For LLaVA 1.5 also
            "tower", or "tower:NAME_OR_FOLDER": its vision tower is CLIP's, so textures come from the same pass as
            the features; the name is that of the CLIP checkpoint, which has the text side.
        family: the adapter of a model that is not in FAMILIES; foveate.vlm.families.family has the three methods to
            write.

    Raises:
        MissingExtraError: no transformers. ModelError: another model, too old a transformers, another model's
            processor. EncoderNameError: no encoder of this name.
    """
    if isinstance(model, str | os.PathLike):
        raise ModelError(
            f"a model given by its name, {str(model)!r}",
            expected="a model that was loaded, and its processor",
            fix=f"foveate.vlm.load({str(model)!r}) takes a name or a folder",
        )
    kind = type(model).__name__
    if hasattr(model, "tokenizer") and hasattr(model, "image_processor"):
        raise ModelError(
            f"a processor in the place of the model, a {kind}",
            expected="the model first, then its processor",
            fix="foveate.vlm.attach(model, processor)",
        )
    adapter = FAMILIES.get(kind) if family is None else family
    if not isinstance(adapter, Family):
        raise ModelError(
            f"a model of class {kind}" if family is None else f"a family that is a {type(family).__name__}",
            expected=", ".join(FAMILIES),
            fix="for another model, subclass foveate.vlm.families.family.Family, with the methods layouts, encode and "
            "positions (docs/vlm_reference.md), and pass it as family=",
        )
    _check_version(model)
    _check_processor(model, processor)
    if isinstance(encoder, str) and encoder.partition(":")[0] == "tower":
        return VLM(model, processor, adapter, tower_encoder(model, encoder.partition(":")[2]))
    resolve_encoder(encoder)
    return VLM(model, processor, adapter, encoder)


def _check_version(model: Any) -> None:
    try:
        import transformers
    except ImportError as cause:
        raise MissingExtraError(
            "foveate.vlm needs transformers, which is not installed",
            expected="the extra [vlm]",
            fix="pip install 'foveate[vlm]'",
        ) from cause
    if type(model).__name__.startswith("SmolVLM") and transformers.__version__ in SMOLVLM_BROKEN:
        raise ModelError(
            f"SmolVLM with transformers {transformers.__version__}, which takes whole tiles only",
            expected="5.18, 5.19, or 5.21 and newer",
            fix="pip install 'transformers>=5.21'",
        )
    forward = getattr(model, "forward", None)
    if forward is None or "mm_encoder_outputs" in inspect.signature(forward).parameters:
        return
    if any(kind.__module__.startswith("transformers.") for kind in type(model).__mro__):
        raise ModelError(
            f"a {type(model).__name__} of transformers {transformers.__version__}, which takes no mm_encoder_outputs",
            expected=f"transformers {OLDEST} or newer",
            fix=f"pip install 'transformers>={OLDEST}'",
        )


def _check_processor(model: Any, processor: Any) -> None:
    token = getattr(processor, "image_token_id", None)
    fix = "AutoProcessor.from_pretrained(the same name as the model)"
    if token is None or not hasattr(processor, "tokenizer") or not hasattr(processor, "image_processor"):
        raise ModelError(
            f"a processor that is a {type(processor).__name__}",
            expected="the model's processor, with a tokenizer and an image processor",
            fix=fix,
        )
    patch = getattr(processor.image_processor, "patch_size", None)
    own = (
        getattr(getattr(model.config, "vision_config", None), "patch_size", patch) if isinstance(patch, int) else patch
    )
    if (token, patch) != (model.config.image_token_id, own):
        raise ModelError(
            f"a {type(processor).__name__} whose image token is {token} and whose patches are {patch} pixels",
            expected=f"image token {model.config.image_token_id}, patches of {own}, as {type(model).__name__} has it",
            fix=fix,
        )
