"""A stock model becomes a VLM: one that is loaded (`attach`), or one by name or folder (`load`).

* A checkpoint is data: safetensors only, its code never runs, missing weights are an error.
* What cannot be used is refused before its weights are read: first by the model type, then by the processor.
* Some processors want a video processor, which needs one package more. Where it is missing, the same class is used
  without it (`without_video_processor`): images are treated alike, videos are refused.

Quantised checkpoints and models over several devices are for `attach`.
"""

from __future__ import annotations

import inspect
import os
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from foveate.core.checks import check_choice
from foveate.core.devices import CPU_ONLY, find_device, first_line
from foveate.core.errors import MissingExtraError, ModelError, needed_by, warn
from foveate.encoders.checkpoint import (
    Checkpoint,
    ModelKind,
    check_reachable,
    explain_errors,
    find_checkpoint,
    hide_progress,
)
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import Encoder
from foveate.vlm.families.family import Family
from foveate.vlm.families.features import find_method, token_of
from foveate.vlm.families.known import FAMILIES, REFUSED, family_of
from foveate.vlm.families.processors import fitting_processor
from foveate.vlm.families.written import bordered_mark
from foveate.vlm.model import VLM
from foveate.vlm.self_check import Exactness, check_attached

OLDEST = "5.18"  # the first transformers whose models take `mm_encoder_outputs`
SMOLVLM_BROKEN = ("5.20.1", "5.20.2")
PASSED: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()  # models that were checked, with these processors
DTYPES = ("auto", "float32", "bfloat16", "float16")
KIND = ModelKind(
    "vision-language model",  # of which foveate.vlm.attach knows the families
    instead="check the name, or pass a local folder in transformers format",
    files="config.json, model.safetensors, and the files of tokenizer and processor",
    type_error=ModelError,
)


def attach(model: Any, processor: Any = None, *, encoder: str | Encoder = "nano", family: Family | None = None) -> VLM:
    """A stock model and its processor, ready to see images. The model is not changed.

    Args:
        model: a vision-language model of transformers whose visual tokens lie somewhere in the image. A class that no
            test of foveate covers (`FAMILIES`), also one derived from them, is checked by `foveate.vlm.check` first,
            which takes a few seconds.
        processor: that belongs to it.
        encoder: what textures are made with, and questions scored by: as of `foveate.encode`.
        family: an adapter by hand (families/family.py), which is not checked.

    Raises MissingExtraError, EncoderNameError; ModelError for another model, or another model's processor.
    """
    vlm = _attach(model, processor, encoder, family)
    if family is None and not is_tested(type(model)) and processor not in PASSED.get(model, ()):
        report = check_attached(vlm)
        if report.ok and report.places is None:
            came = f"a {type(model).__name__}: whether its tokens lie where foveate says could not be measured"
            warn(f"{came}. Look at answer.show() before you trust it", UserWarning)
        if report.ok:
            PASSED.setdefault(model, WeakSet()).add(processor)
        else:
            raise ModelError(
                f"a {type(model).__name__}, with which foveate is not exact:\n{report}",
                expected="a model that passes foveate.vlm.check",
                fix=BY_HAND,
            )
    return vlm


def is_tested(kind: type) -> bool:
    """Whether a class is one of FAMILIES, and transformers' own."""
    return kind.__name__ in FAMILIES and kind.__module__.startswith("transformers.")


def check(model: Any, processor: Any, *, family: Family | None = None) -> Exactness:
    """Is foveate exact with this model? Shows it one small image, in the model's own number format.

    All tokens against the stock model, some tokens against the full prompt with the others masked, both by `generate`,
    and whether tokens lie where foveate says. Print what it returns; `.ok` says whether `attach` takes the model.

    Raises ModelError for a model without visual tokens that can be dropped; MissingExtraError.
    """
    return check_attached(_attach(model, processor, "nano", family))


def _attach(model: Any, processor: Any, encoder: str | Encoder, family: Family | None) -> VLM:
    if isinstance(model, str | os.PathLike):
        raise ModelError(
            f"a model given by its name, {str(model)!r}",
            expected="a model that was loaded, and its processor",
            fix=f"foveate.vlm.load({str(model)!r}) takes a name or a folder; foveate doctor --vlm checks one",
        )
    if hasattr(model, "tokenizer") and hasattr(model, "image_processor"):
        raise ModelError(
            f"a processor in the place of the model, a {type(model).__name__}",
            expected="the model first, then its processor",
            fix="foveate.vlm.attach(model, processor)",
        )
    for inner, how in (("get_base_model", "model.get_base_model()"), ("_orig_mod", "model._orig_mod")):
        if inner in dir(type(model)) or inner in getattr(model, "_modules", ()):
            raise ModelError(
                f"a {type(model).__name__}, which is wrapped around a model",
                expected="the model itself",
                fix=f"foveate.vlm.attach({how}, processor)",
            )
    if isinstance(family, type):
        raise ModelError("a family that is a class", expected="an instance", fix=f'family={family.__name__}("mine")')
    if family is not None and not isinstance(family, Family):
        raise ModelError(
            f"a family that is a {type(family).__name__}",
            expected="a foveate.vlm.families.family.Family, with the methods layouts, encode and positions",
            fix="subclass it (docs/vlm_reference.md), or leave family= out",
        )
    _check_version(model)
    if family is None:
        check_class(model)
    processor = fitting_processor(model, processor)
    _check_processor(model, processor)
    resolve_encoder(encoder)
    return VLM(model, processor, family or family_of(model), encoder)


BY_HAND = (
    "for another model, subclass foveate.vlm.families.family.Family, with the methods layouts, encode and positions "
    "(docs/vlm_reference.md), and pass it as family="
)


def check_class(model: Any) -> None:
    """Raises ModelError for a model that has no visual tokens which can be dropped, with the reason."""
    names = [each.__name__ for each in type(model).__mro__]
    reason = next((REFUSED[name] for name in names if name in REFUSED), None)
    given = inspect.signature(getattr(model, "forward", check_class)).parameters
    if reason is None and "mm_encoder_outputs" in given and find_method(model, "get_image_features") is not None:
        if hasattr(model, "generate"):
            return
        raise ModelError(
            f"a {names[0]}, the body of a model",
            expected="a model that writes text",
            fix="pass the ...ForConditionalGeneration that it is a part of",
        )
    if reason is None and not any("mm_encoder" in name or "pixel" in name or "image" in name for name in given):
        reason = "it takes no images"
    raise ModelError(
        f"a model of class {names[0]}" + (f": {reason}" if reason else ""),
        expected="a vision-language model with get_image_features: foveate.vlm.FAMILIES lists those that are tested",
        fix="use another model: tokens of this one cannot be chosen" if reason else BY_HAND,
    )


def _check_version(model: Any) -> None:
    _, transformers = libraries()
    if type(model).__name__.startswith("SmolVLM") and transformers.__version__ in SMOLVLM_BROKEN:
        raise ModelError(
            f"SmolVLM with transformers {transformers.__version__}, which takes whole tiles only",
            expected="5.18, 5.19, or 5.21 and newer",
            fix="pip install 'transformers>=5.21'",
        )
    forward = getattr(model, "forward", None)
    if forward is None or "mm_encoder_outputs" in inspect.signature(forward).parameters:
        return
    if any(kind.__name__ in REFUSED for kind in type(model).__mro__):  # of any version
        return
    if find_method(model, "get_image_features") is not None and any(
        kind.__module__.startswith("transformers.") for kind in type(model).__mro__
    ):
        raise ModelError(
            f"a {type(model).__name__} of transformers {transformers.__version__}, which takes no mm_encoder_outputs",
            expected=f"transformers {OLDEST} or newer",
            fix=f"pip install 'transformers>={OLDEST}'",
        )


def _check_processor(model: Any, processor: Any) -> None:
    fix = "AutoProcessor.from_pretrained(the same name as the model)"
    names = ("tokenizer", "image_token")
    if missing := [name for name in names if not hasattr(processor, name)]:
        raise ModelError(
            f"a processor that is a {type(processor).__name__}, without {' and '.join(missing)}",
            expected="the model's processor, with a tokenizer and an image processor",
            fix=fix,
        )
    token, images = token_of(model, "image"), getattr(processor, "image_processor", None)
    patch = own = None
    if hasattr(images, "merge_size"):  # the patches that it counts are those of the tower
        patch = getattr(images, "patch_size", None)
        own = getattr(getattr(model.config, "vision_config", None), "patch_size", patch)
    if patch != own or token not in _tokens_of(processor, token):
        theirs = getattr(processor, "image_token_id", None)
        sizes = ["", ""] if patch is None else [f" and whose patches are {patch} pixels", f", patches of {own}"]
        raise ModelError(
            f"a {type(processor).__name__} whose image token is {theirs}{sizes[0]}",
            expected=f"image token {token}{sizes[1]}, as {type(model).__name__} has it",
            fix=fix,
        )


def _tokens_of(processor: Any, wanted: int | None) -> set[int | None]:
    """Ids of image tokens, by a processor's word; if the wanted one is not among them, by what it writes."""
    tokens = {getattr(processor, "image_token_id", None), *getattr(processor, "image_token_ids", ())}
    tokens.add(processor.tokenizer.convert_tokens_to_ids(processor.image_token))
    if wanted in tokens:
        return tokens
    from PIL import Image

    small = Image.new("RGB", (64, 64))
    with suppress(Exception):  # another model's processor may fail in any way
        tokens.update(
            processor(images=[small], text=bordered_mark(processor), return_tensors="pt")["input_ids"][0].tolist()
        )
    return tokens


def load(name: str, *, dtype: str = "auto", device: str = "auto", encoder: str | Encoder = "nano") -> VLM:
    """A checkpoint by Hub name, `name@revision`, or local folder, with its processor, attached.

    Args:
        name: Hub name (downloaded once, if it is not in the cache) or folder.
        dtype: "auto" (the checkpoint's own), "float32", "bfloat16" or "float16".
        device: "auto" (the first GPU if there is one), "cpu", "cuda", or "cuda:1" and so on.
        encoder: as of `attach`.

    Raises MissingExtraError, EncoderNameError, OptionError; ModelError, ModelFilesError.
    """
    return attach(*load_pair(name, dtype=dtype, device=device), encoder=encoder)


def load_pair(name: str, *, dtype: str = "auto", device: str = "auto") -> tuple[Any, Any]:
    """(model, processor) of a checkpoint, not attached. Raises as `load`."""
    torch, transformers = libraries()
    check_choice("dtype", dtype, DTYPES)
    place = device_of(torch, device)
    source = find_checkpoint(name, KIND)
    options = source.options | ({"local_files_only": True} if source.folder else {})
    with explain_errors(source):
        if source.folder is None:
            check_reachable(source.where, source.pinned)
        config = transformers.AutoConfig.from_pretrained(source.where, **options)
        _check_kind(name, config)
        processor = _load_processor(transformers, source, config, options)
        with hide_progress(transformers):
            model, report = transformers.AutoModelForImageTextToText.from_pretrained(
                source.where,
                config=config,
                dtype=dtype if dtype == "auto" else getattr(torch, dtype),
                use_safetensors=True,
                output_loading_info=True,
                **options,
            )
        if report["missing_keys"]:  # the library would fill them with random numbers and only warn
            raise ValueError(f"weights are missing: {sorted(report['missing_keys'])[:3]}")
    return model.eval().to(place), processor


class _NoVideos:
    """Stands where a video processor would: its settings are None, and it takes no videos."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):  # copying and the like ask for these
            raise AttributeError(name)

    def __call__(self, *videos: Any, **keywords: Any) -> Any:
        raise MissingExtraError(
            "a video, for a processor that was loaded without its video processor",
            expected="images",
            fix="show its frames as images, or install what transformers.AutoVideoProcessor asks for and load it again",
        )


def without_video_processor(kind: type[Any]) -> type[Any]:
    """A processor class without its video processor: everything else, images above all, is its own code."""
    full = kind.get_attributes()
    if "video_processor" not in full:
        return kind
    at = full.index("video_processor")
    from transformers.processing_utils import ProcessorMixin

    class _WithoutPlace(ProcessorMixin):  # type: ignore[misc]
        """Stands between the class and its base, which takes what the class hands on by place."""

        def __init__(self, *args: Any, **keywords: Any) -> None:
            keywords.pop("video_processor", None)
            super().__init__(*args[:at], *args[at + 1 :], **keywords)

    def get_attributes(cls: Any) -> list[str]:
        return [name for name in full if name != "video_processor"]

    def arguments(cls: Any, *args: Any, **keywords: Any) -> list[Any]:
        found = list(super(made, cls)._get_arguments_from_pretrained(*args, **keywords))
        return [*found[:at], None, *found[at:]]  # its place in __init__

    members = {
        "get_attributes": classmethod(get_attributes),
        "_get_arguments_from_pretrained": classmethod(arguments),
        "video_processor": _NoVideos(),
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
    }
    made: type[Any] = type(kind.__name__, (kind, _WithoutPlace), members)
    return made


def _load_processor(transformers: Any, source: Checkpoint, config: Any, options: dict[str, Any]) -> Any:
    try:
        return transformers.AutoProcessor.from_pretrained(source.where, **options)
    except (
        ImportError,
        ValueError,
        OSError,
    ) as cause:  # which one differs by class; if it was something else, it recurs
        from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

        kind = getattr(transformers, PROCESSOR_MAPPING_NAMES[config.model_type])
        try:
            return without_video_processor(kind).from_pretrained(source.where, **options)
        except ImportError as second:
            reason = first_line(second, 200)
            raise MissingExtraError(
                f"the processor of '{source.name}' needs a package that is not installed ({reason})",
                expected="the packages that its processor in transformers asks for",
                fix="install the package that is named, with pip",
            ) from cause


def _check_kind(name: str, config: Any) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    found = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(config.model_type)
    if found is None or found in REFUSED:
        raise ModelError(
            f"'{name}' is a {config.model_type} model" + (f": {REFUSED[found]}" if found in REFUSED else ""),
            expected="a vision-language model: foveate.vlm.FAMILIES lists those that are tested, docs/vlm.md says more",
            fix="for another model, write a family (docs/vlm_reference.md) and use foveate.vlm.attach",
        )


def device_of(torch: Any, device: str) -> str:
    """Where "auto", "cpu", "cuda" or "cuda:1" is, for torch. Raises OptionError."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return str(find_device(device))


def libraries() -> tuple[Any, Any]:
    """(torch, transformers). Raises MissingExtraError if one of them, or what else the extra brings, is missing."""
    with needed_by("a vision-language model", "vlm", CPU_ONLY):
        import jinja2  # noqa: F401  chat templates; transformers would say so only when a question is laid out
        import torch
        import transformers
    return torch, transformers
