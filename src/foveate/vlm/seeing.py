"""Images or a video become a scene: the processor lays them out, the tower runs once, textures are made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import FoveateError, ImageArrayError, ModelError, OptionError, SceneError
from foveate.core.image import Picture, load_image
from foveate.core.readonly import ReadOnly
from foveate.pipeline import encode
from foveate.video.decode import VideoClip
from foveate.video.pick import measure_rate, pick
from foveate.video.step import Frame
from foveate.vlm.encoded import Mode, Scene
from foveate.vlm.families.family import Encoded
from foveate.vlm.inputs.placement import Placement
from foveate.vlm.inputs.prompt import ids_of, spans_of, special_tokens, text_of
from foveate.vlm.tower import Tower

if TYPE_CHECKING:
    from foveate.vlm.model import VLM

Indices = NDArray[np.int64]
TEXT_INPUTS = ("input_ids", "attention_mask", "mm_token_type_ids")


def see_images(vlm: VLM, images: Sequence[Any], mode: Mode) -> Scene:
    """As `VLM.see` says."""
    pictures = [load_image(image) for image in images]
    if not pictures:
        raise SceneError("an empty list of images", expected="at least one", fix="pass a path or an array")
    processor = vlm.processor
    text = f"{processor.image_token}\n" * len(pictures)  # what stands around an image makes no difference to it
    shown = [Image.fromarray(picture.rgb) for picture in pictures]
    sizes = [(picture.rgb.shape[0], picture.rgb.shape[1]) for picture in pictures]
    with _too_thin(processor, sizes):
        made = processor(
            images=shown, text=text, return_tensors="pt", add_special_tokens=special_tokens(processor, text)
        )
    spans = spans_of(processor, shown, text, made["input_ids"][0].numpy())
    inputs = {name: value for name, value in made.items() if name not in TEXT_INPUTS}
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


def see_frames(vlm: VLM, frames: Any, fps: float, mode: Mode) -> Scene:
    """As `VLM.see_video` says."""
    if isinstance(frames, str | os.PathLike | VideoClip):
        picked = pick(frames, fps)
        frames, fps = (
            [picture.rgb for picture in picked],
            measure_rate(picked, fps),
        )  # a slow clip has fewer than asked for
    if isinstance(frames, np.ndarray | Image.Image) or not isinstance(frames, Iterable):
        raise SceneError(
            f"a video given as {type(frames).__name__}"
            + (f" of shape {list(frames.shape)}" if isinstance(frames, np.ndarray) else ""),
            expected="the path of a clip, or a list of images or frames",
            fix="pass [image] for a single image, or list(array) for an array of frames",
        )
    pictures: list[Picture] = [load_image(each.rgb if isinstance(each, Frame) else each) for each in frames]
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
    with _too_thin(vlm.processor, [pictures[0].rgb.shape[:2]]):
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


@contextmanager
def _too_thin(processor: Any, sizes: Sequence[tuple[int, int]]) -> Iterator[None]:
    """What a processor cannot lay out becomes an error that names the images."""
    try:
        yield
    except FoveateError:
        raise
    except (ValueError, IndexError, ZeroDivisionError) as cause:
        raise ImageArrayError(
            f"images of {', '.join(f'{h} x {w}' for h, w in sizes)} pixels: {str(cause).splitlines()[0][:200]}",
            expected=f"what {type(processor).__name__} can lay out",
            fix="images that are very thin or small can be padded, or cut",
        ) from cause


def _encoded(
    vlm: VLM, inputs: dict[str, Any], placements: Sequence[Placement], mode: Mode
) -> tuple[dict[str, Any], Encoded | None]:
    """What to keep of the inputs, and the features: pixels for mode "sparse", features for all others."""
    import torch

    placed = {name: _placed(vlm.model, name, value) for name, value in inputs.items()}
    if mode == "sparse":
        return placed, None
    with torch.no_grad():
        features = vlm.family.encode(vlm.model, placed, [placement.count for placement in placements])
    if [len(rows) for rows in features.rows] != [placement.count for placement in placements]:
        raise ModelError(
            f"{[len(rows) for rows in features.rows]} features from the model",
            expected=f"{[placement.count for placement in placements]}, one for each placeholder token",
            fix="check that model and processor belong together",
        )
    return {name: value for name, value in placed.items() if not name.startswith("pixel")}, features


def _placed(model: Any, name: str, value: Any) -> Any:
    """A tensor where the model is; pixels in the model's number format, times as they are."""
    if not hasattr(value, "to"):
        return value
    return value.to(model.device, model.dtype) if name.startswith("pixel") else value.to(model.device)


def _check_counts(spans: Sequence[Indices], placements: Sequence[Placement], token: int) -> None:
    found, counts = [int((span == token).sum()) for span in spans], [placement.count for placement in placements]
    if found != counts:
        raise ModelError(
            f"{found} placeholder tokens from the processor for {counts} features",
            expected="as many of both",
            fix="pass the processor that belongs to the model",
        )
