"""Images or a video become a scene: the processor lays them out, the tower runs once, textures are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.errors import ImageArrayError, ModelError, OptionError, SceneError
from foveate.image import Picture, load_image
from foveate.pipeline import encode
from foveate.readonly import ReadOnly
from foveate.vlm.family import Encoded
from foveate.vlm.placement import Placement
from foveate.vlm.prompt import ids_of, spans_of, special_tokens, text_of
from foveate.vlm.scene import Mode, Scene
from foveate.vlm.tower import Tower

if TYPE_CHECKING:
    from foveate.vlm.model import VLM

Indices = NDArray[np.int64]
FIRST_QUESTION = "?"  # of the prompt that a scene's layout is learnt from
TEXT_INPUTS = ("input_ids", "attention_mask", "mm_token_type_ids")


def see_images(vlm: VLM, images: Sequence[Any], mode: Mode) -> Scene:
    """As `VLM.see` says."""
    pictures = [load_image(image) for image in images]
    if not pictures:
        raise SceneError("an empty list of images", expected="at least one", fix="pass a path or an array")
    processor = vlm.processor
    text = text_of(processor, FIRST_QUESTION, len(pictures), _bare(processor, len(pictures)))
    shown = [Image.fromarray(picture.rgb) for picture in pictures]
    made = processor(images=shown, text=text, return_tensors="pt", add_special_tokens=special_tokens(processor, text))
    spans = spans_of(processor, shown, text, made["input_ids"][0].numpy())
    inputs = {name: value for name, value in made.items() if name not in TEXT_INPUTS}
    sizes = [(picture.rgb.shape[0], picture.rgb.shape[1]) for picture in pictures]
    placements = vlm.family.placements(vlm.model, processor, inputs, sizes, spans)
    _check_counts(spans, placements, vlm.model.config.image_token_id)
    inputs, features = _encoded(vlm, inputs, placements, mode)
    images = tuple(picture.rgb for picture in pictures)
    if isinstance(vlm.encoder, Tower):
        images, textures, placements = vlm.encoder.textures(images, placements, features)
    else:
        textures = tuple(encode(picture, encoder=vlm.encoder) for picture in pictures)
    return Scene(
        model=vlm.model,
        images=images,
        textures=textures,
        placements=placements,
        spans=spans,
        features=None if features is None else replace(features, before_last=None),
        inputs=ReadOnly(inputs),
    )


def see_frames(vlm: VLM, frames: Sequence[Any], fps: float, mode: Mode) -> Scene:
    """As `VLM.see_video` says."""
    pictures: list[Picture] = [load_image(frame) for frame in frames]
    if not pictures:
        raise SceneError("a video with no frames", expected="at least one", fix="check what was read from the file")
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < float("inf"):
        raise OptionError(f"fps={fps!r}", expected="frames a second, above 0", fix="2.0 is usual")
    if len({picture.rgb.shape for picture in pictures}) > 1:
        raise ImageArrayError(
            f"frames of {sorted({picture.rgb.shape[:2] for picture in pictures})} pixels",
            expected="one size",
            fix="resize them, or pass them to vlm.see as several images",
        )
    video = vlm.family.video(vlm.model, vlm.processor, [picture.rgb for picture in pictures], float(fps))
    _check_counts([video.span], [video.placement], vlm.model.config.video_token_id)
    inputs, features = _encoded(vlm, dict(video.inputs), [video.placement], mode)
    seen = [pictures[number] for number in video.shown]
    return Scene(
        model=vlm.model,
        images=tuple(picture.rgb for picture in seen),
        textures=tuple(encode(picture, encoder=vlm.encoder) for picture in seen),
        placements=(video.placement,),
        spans=(video.span,),
        features=features,
        inputs=ReadOnly(inputs),
        kind="video",
        mark=video.mark,
    )


def full_ids(vlm: VLM, scene: Scene, question: str, prompt: str | None) -> Indices:
    """Ids [L] of the full prompt for a question about a scene."""
    text = text_of(vlm.processor, question, len(scene.spans), prompt, scene.kind)
    if scene.kind == "video" and scene.mark in text:
        text = text.replace(scene.mark, vlm.processor.video_token)
    return ids_of(vlm.processor, text, scene.spans, scene.kind)


def _bare(processor: Any, images: int) -> str | None:
    """A first prompt for a processor without a chat template: image tokens and nothing else."""
    if getattr(processor, "chat_template", None) or getattr(processor.tokenizer, "chat_template", None):
        return None
    return f"{processor.image_token}\n" * images


def _encoded(
    vlm: VLM, inputs: dict[str, Any], placements: Sequence[Placement], mode: Mode
) -> tuple[dict[str, Any], Encoded | None]:
    """What to keep of the inputs, and the features: pixels for mode "sparse", features for all others."""
    import torch

    placed = {name: _placed(vlm.model, value) for name, value in inputs.items()}
    if mode == "sparse":
        return placed, None
    with torch.no_grad():
        features = vlm.family.encode(vlm.model, placed, [placement.count for placement in placements])
    return {name: value for name, value in placed.items() if not name.startswith("pixel")}, features


def _placed(model: Any, value: Any) -> Any:
    """A tensor where the model is; pixels in the model's number format."""
    if not hasattr(value, "to"):
        return value
    return value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)


def _check_counts(spans: Sequence[Indices], placements: Sequence[Placement], token: int) -> None:
    found, counts = [int((span == token).sum()) for span in spans], [placement.count for placement in placements]
    if found != counts:
        raise ModelError(
            f"{found} placeholder tokens from the processor for {counts} features",
            expected="as many of both",
            fix="pass the processor that belongs to the model",
        )
