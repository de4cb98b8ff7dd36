"""Images or a video -> EncodedImage: the processor lays them out, the model's encoder runs once, textures are made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from PIL import Image

from foveate.core.checks import check_number, check_type
from foveate.core.errors import (
    FoveateError,
    ImageArrayError,
    ModelError,
    OptionError,
    SceneError,
    TextureEncoderError,
)
from foveate.core.image import Picture, load_image
from foveate.core.layout import COLOURS
from foveate.core.readonly import ReadOnly
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Encoder
from foveate.pipeline import encode, open_source
from foveate.reading.pdf import PdfPage
from foveate.relevance.presets import PresetName, find_preset, remember_preset
from foveate.texture.texture import Texture
from foveate.video.decode import VideoClip
from foveate.video.sampling import measure_rate, pick
from foveate.video.state import Frame
from foveate.vlm.encoded import EncodedImage, Mode
from foveate.vlm.families.family import Family, Indices, VisualFeatures
from foveate.vlm.families.token_layout import TokenLayout
from foveate.vlm.inputs.prompt import adds_special_tokens, find_spans
from foveate.vlm.pages import CHANNELS, Read, find_reader_of, read_frames, read_textures, with_layer
from foveate.vlm.tower import TowerEncoder

TEXT_INPUTS = ("input_ids", "attention_mask", "mm_token_type_ids")


@dataclass(frozen=True, eq=False)
class Attached:
    """A stock vision-language model with its processor, its family's adapter, and the encoder of textures."""

    model: Any
    processor: Any
    family: Family
    encoder: str | Encoder


@dataclass(frozen=True, eq=False)
class ImageToSee:
    """An image to see: its picture, the page of a PDF that it is, and its texture where one was made before."""

    picture: Picture
    page: PdfPage | None
    texture: Texture | None


def open_sources(
    vlm: Attached, images: Sequence[Any], page: int | None, textures: Sequence[Texture | None]
) -> list[ImageToSee]:
    """Images with the textures that the caller has of them. Raises as `VLM.see` says."""
    if not images:
        raise SceneError("an empty list of images", expected="at least one", fix="pass a path or an array")
    if len(textures) != len(images):
        raise SceneError(
            f"{len(textures)} textures for {len(images)} images",
            expected="one for each; None for an image that has none yet",
            fix="pass texture=[first, None], say",
        )
    return [_open_source(vlm, image, page, texture) for image, texture in zip(images, textures, strict=True)]


def _open_source(vlm: Attached, image: Any, page: int | None, texture: Texture | None) -> ImageToSee:
    if isinstance(image, Texture):
        if texture is not None or page is not None:
            raise SceneError(
                f"a texture in the place of an image, with {'texture=' if page is None else f'page={page}'}",
                expected="a texture alone: it holds its image",
                fix="leave the keyword out",
            )
        if not image.original:
            raise SceneError(
                f"the texture of '{image.name}', of whose image only a thumbnail is left",
                expected="an image that the model can be shown",
                fix="pass the image itself beside it: vlm.see(image, texture=texture)",
            )
        _match(vlm, image)
        return ImageToSee(Picture(image.pixel, image.valid, image.name), None, image)
    picture, layer = open_source(image, page)
    if texture is not None:
        check_type("texture", texture, Texture, fix="foveate.encode(image) makes one", error=SceneError)
        _match(vlm, texture)
        if not texture.shows(picture.rgb):
            sizes = [f"{h} x {w}" for h, w in (picture.size, (texture.grid.height, texture.grid.width))]
            same = sizes[0] == sizes[1]
            raise SceneError(
                f"the image '{picture.name}' of {sizes[0]} pixels with the texture of "
                f"'{texture.name}'{', whose pixels are others' if same else f' of {sizes[1]} pixels'}",
                expected="the texture of this image, the same in every pixel",
                fix="encode the image, or leave texture= out; vlm.see(texture) shows the texture's own image",
            )
        if not texture.original:  # the image is at hand: who reads it must not read the thumbnail
            made = {name: by for name, by in texture.made_by.items() if name not in COLOURS}
            texture = replace(texture, pixel=picture.rgb, valid=picture.valid, made_by=made)
    return ImageToSee(picture, layer, texture)


def _match(vlm: Attached, texture: Texture) -> None:
    """Raises TextureEncoderError for a texture that this model's encoder cannot ask questions of."""
    match_encoder(texture.encoder, None if vlm.encoder == "nano" else vlm.encoder)


def can_ask(vlm: Attached, texture: Texture) -> bool:
    """Whether this model's encoder can ask questions of a texture."""
    try:
        _match(vlm, texture)
    except TextureEncoderError:
        return False
    return True


def encode_images(
    vlm: Attached,
    images: Sequence[Any],
    mode: Mode,
    read: Read | None = False,
    page: int | None = None,
    textures: Sequence[Texture | None] | None = None,
    preset: PresetName | None = None,
) -> EncodedImage:
    """As `VLM.see` says."""
    how, read = encoding_keywords(preset, read)
    reader = find_reader_of(read)
    if isinstance(vlm.encoder, TowerEncoder) and how.keys() - {"channels"}:
        raise OptionError(
            f"preset={preset!r} with encoder='tower'",
            expected="a preset without " + " and ".join(sorted(how.keys() - {"channels"})),
            fix="leave the preset out, or attach the model with encoder='nano'",
        )
    sources = open_sources(vlm, images, page, [None] * len(images) if textures is None else textures)
    pictures = [source.picture for source in sources]
    processor = vlm.processor
    text = f"{processor.image_token}\n" * len(pictures)  # what stands around an image makes no difference to it
    as_pillow = [Image.fromarray(picture.rgb) for picture in pictures]
    sizes = [(picture.rgb.shape[0], picture.rgb.shape[1]) for picture in pictures]
    with _layout_errors(processor, sizes):
        made = processor(
            images=as_pillow, text=text, return_tensors="pt", add_special_tokens=adds_special_tokens(processor, text)
        )
    spans = find_spans(processor, as_pillow, text, made["input_ids"][0].numpy())
    inputs = {name: value for name, value in made.items() if name not in TEXT_INPUTS}
    layouts = vlm.family.layouts(vlm.model, processor, inputs, sizes, spans)
    _check_counts(spans, layouts, vlm.model.config.image_token_id)
    inputs, features = _run_encoder(vlm, inputs, layouts, mode)
    visible = [picture.rgb for picture in pictures]
    placed = list(layouts)
    known: list[Texture] = []
    for number, source in enumerate(sources):
        if source.texture is not None:
            known.append(source.texture)
        elif isinstance(vlm.encoder, TowerEncoder):
            visible[number], texture, placed[number] = vlm.encoder.texture(
                source.picture.rgb, placed[number], features, number, how["channels"]
            )
            known.append(texture)
        else:
            known.append(encode(source.picture, encoder=vlm.encoder, **how))
    return EncodedImage(
        model=vlm.model,
        images=tuple(visible),
        textures=read_textures(
            [
                with_layer(remember_preset(t, preset), source.page, read)
                for t, source in zip(known, sources, strict=True)
            ],
            reader,
        ),
        layouts=tuple(placed),
        spans=spans,
        features=None if features is None else replace(features, before_last=None),
        inputs=ReadOnly(inputs),
    )


def encoding_keywords(preset: PresetName | None, read: Read | None) -> tuple[dict[str, Any], Read]:
    """Keywords of `encode` for the textures that are made here, and whether they are read."""
    how: dict[str, Any] = {"channels": CHANNELS, **find_preset(preset).encoding}
    wanted = how.pop("read", "auto")
    if how["channels"] == "standard":
        how["channels"] = CHANNELS
    return how, wanted if read is None else read


def encode_video(
    vlm: Attached,
    frames: Any,
    fps: float,
    mode: Mode,
    read: Read | None = False,
    preset: PresetName | None = None,
) -> EncodedImage:
    """As `VLM.see_video` says."""
    how, read = encoding_keywords(preset, read)
    reader = find_reader_of(read)
    if isinstance(frames, str | os.PathLike | VideoClip):
        picked = pick(frames, fps)
        frames, fps = [picture.rgb for picture in picked], measure_rate(picked, fps)  # a slow clip has fewer
    if isinstance(frames, np.ndarray | Image.Image) or not isinstance(frames, Iterable):
        raise SceneError(
            f"a video given as {type(frames).__name__}"
            + (f" of shape {list(frames.shape)}" if isinstance(frames, np.ndarray) else ""),
            expected="the path of a clip, or a list of images or frames",
            fix="pass [image] for a single image, or list(array) for an array of frames",
        )
    frames = list(frames)
    pictures: list[Picture] = [load_image(each.rgb if isinstance(each, Frame) else each) for each in frames]
    if not pictures:
        raise SceneError("a video with no frames", expected="at least one", fix="check what was read from the file")
    fps = check_number("fps", fps, 1e-6, None, fix="pass frames a second, above 0; 2.0 is usual")
    if len({picture.rgb.shape for picture in pictures}) > 1:
        raise ImageArrayError(
            f"frames of {sorted({picture.rgb.shape[:2] for picture in pictures})} pixels",
            expected="one size",
            fix="resize them, or pass them to vlm.see as several images",
        )
    with _layout_errors(vlm.processor, [pictures[0].rgb.shape[:2]]):
        video = vlm.family.video(vlm.model, vlm.processor, [picture.rgb for picture in pictures], fps)
    _check_counts([video.span], [video.layout], vlm.model.config.video_token_id)
    inputs, features = _run_encoder(vlm, dict(video.inputs), [video.layout], mode)
    shown = [pictures[number] for number in video.shown]
    textures = [
        remember_preset(_texture_of(vlm, frames[number], pictures[number], how), preset) for number in video.shown
    ]
    return EncodedImage(
        model=vlm.model,
        images=tuple(picture.rgb for picture in shown),
        textures=read_frames(textures, reader),
        layouts=(video.layout,),
        spans=(video.span,),
        features=features,
        inputs=ReadOnly(inputs),
        kind="video",
        mark=video.mark,
    )


def _texture_of(vlm: Attached, frame: Any, picture: Picture, how: dict[str, Any]) -> Texture:
    """A frame's texture: that of a stream has one already, with what was propagated and read."""
    if isinstance(frame, Frame) and can_ask(vlm, frame.texture):
        return frame.texture
    return encode(picture, encoder=vlm.encoder, **how)


@contextmanager
def _layout_errors(processor: Any, sizes: Sequence[tuple[int, int]]) -> Iterator[None]:
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


def _run_encoder(
    vlm: Attached, inputs: dict[str, Any], layouts: Sequence[TokenLayout], mode: Mode
) -> tuple[dict[str, Any], VisualFeatures | None]:
    """What to keep of the inputs, and the features: pixels for mode "sparse", features for all others."""
    import torch

    placed = {name: _on_device(vlm.model, name, value) for name, value in inputs.items()}
    if mode == "sparse":
        return placed, None
    counts = [layout.count for layout in layouts]
    with torch.no_grad():
        features = vlm.family.encode(vlm.model, placed, counts)
    if [len(rows) for rows in features.rows] != counts:
        raise ModelError(
            f"{[len(rows) for rows in features.rows]} features from the model",
            expected=f"{counts}, one for each visual token",
            fix="check that model and processor belong together",
        )
    return {name: value for name, value in placed.items() if not name.startswith("pixel")}, features


def _on_device(model: Any, name: str, value: Any) -> Any:
    """A tensor where the model is; pixels in the model's number format, times as they are."""
    if not hasattr(value, "to"):
        return value
    return value.to(model.device, model.dtype) if name.startswith("pixel") else value.to(model.device)


def _check_counts(spans: Sequence[Indices], layouts: Sequence[TokenLayout], token: int) -> None:
    found, counts = [int((span == token).sum()) for span in spans], [layout.count for layout in layouts]
    if found != counts:
        raise ModelError(
            f"{found} visual tokens from the processor for {counts} features",
            expected="as many of both",
            fix="pass the processor that belongs to the model",
        )
