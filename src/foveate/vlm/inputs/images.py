"""Images or a video -> EncodedImage: the processor lays them out, the model's encoder runs once, textures are made.

`read="auto"` reads what looks like a page by its text channel (many pieces of writing, a twentieth of the image), where
a reader is installed: reading takes seconds. `python -m benchmarks reading_vlm` says how often it is right.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from PIL import Image

from foveate.channels.build import CHANNEL_SETS
from foveate.channels.visual import CHANGED, describe_cells, measure_change
from foveate.core import errors
from foveate.core.checks import check_number, check_type, keyword
from foveate.core.image import Picture, load_image
from foveate.core.layout import COLOURS
from foveate.core.readonly import ReadOnly
from foveate.encoders.load import match_encoder
from foveate.pipeline import encode
from foveate.reading.pdf import PdfPage, open_source
from foveate.reading.readers import ReadBy, can_read, choose_reader
from foveate.reading.words import WordReader
from foveate.relevance.presets import PresetName, find_preset, remember_preset
from foveate.relevance.written import page_of
from foveate.texture.texture import Texture
from foveate.video.decode import VideoClip, measure_rate, pick
from foveate.video.state import Frame
from foveate.vlm.encoded import Attached, EncodedImage, Mode
from foveate.vlm.families.features import VisualFeatures, find_method
from foveate.vlm.families.token_layout import ImageSpan, TokenLayout
from foveate.vlm.families.written import adds_special_tokens
from foveate.vlm.inputs.prompt import APART, find_spans, images_text, span_of
from foveate.vlm.inputs.tensors import read_kinds

CHANNELS = (*CHANNEL_SETS["standard"], "text")  # of textures: questions look at writing, and a page is known by it
PAGE = 0.5  # of `page_of`: docs/log.md, "auto reads"
Read = bool | Literal["auto"] | ReadBy
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids")


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
        raise errors.SceneError("an empty list of images", expected="at least one", fix="pass a path or an array")
    if len(textures) != len(images):
        raise errors.SceneError(
            f"{len(textures)} textures for {len(images)} images",
            expected="one for each; None for an image that has none yet",
            fix="pass texture=[first, None], say",
        )
    return [_open_source(vlm, image, page, texture) for image, texture in zip(images, textures, strict=True)]


def _open_source(vlm: Attached, image: Any, page: int | None, texture: Texture | None) -> ImageToSee:
    if isinstance(image, Texture):
        if texture is not None or page is not None:
            raise errors.SceneError(
                f"a texture in the place of an image, with {'texture=' if page is None else f'page={page}'}",
                expected="a texture alone: it holds its image",
                fix="leave the keyword out",
            )
        if not image.original:
            raise errors.SceneError(
                f"the texture of '{image.name}', of whose image only a thumbnail is left",
                expected="an image that the model can be shown",
                fix="pass the image itself beside it: vlm.see(image, texture=texture)",
            )
        _match(vlm, image)
        return ImageToSee(Picture(image.pixel, image.valid, image.name), None, image)
    picture, layer = open_source(image, page)
    if texture is not None:
        check_type("texture", texture, Texture, fix="foveate.encode(image) makes one", error=errors.SceneError)
        _match(vlm, texture)
        if not texture.shows(picture.rgb):
            sizes = [f"{h} x {w}" for h, w in (picture.size, (texture.grid.height, texture.grid.width))]
            same = sizes[0] == sizes[1]
            raise errors.SceneError(
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
    match_encoder(texture.encoder, None if vlm.encoder == "nano" else vlm.encoder)


def can_ask(vlm: Attached, texture: Texture) -> bool:
    """Whether this model's encoder can ask questions of a texture."""
    try:
        _match(vlm, texture)
    except errors.TextureEncoderError:
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
    sources = open_sources(vlm, images, page, [None] * len(images) if textures is None else textures)
    pictures = [source.picture for source in sources]
    processor = vlm.processor
    sizes = [(picture.rgb.shape[0], picture.rgb.shape[1]) for picture in pictures]
    with _layout_errors(processor, sizes):
        made, spans = process_images(vlm, [Image.fromarray(picture.rgb) for picture in pictures])
    kinds = read_kinds(made, _kinds_taken(vlm.model))
    inputs = {name: value for name, value in made.items() if name not in TEXT_INPUTS}
    layouts = vlm.family.layouts(vlm.model, processor, inputs, sizes, [span.ids for span in spans])
    _check_counts(spans, layouts, vlm.token("image"))
    inputs, features = _run_encoder(vlm, inputs, layouts, mode)
    textures = list[Texture]()
    for source in sources:
        texture = source.texture or encode(source.picture, encoder=vlm.encoder, **how)
        textures.append(with_layer(remember_preset(texture, preset), source.page, read))
    return EncodedImage(
        model=vlm.model,
        images=tuple(picture.rgb for picture in pictures),
        textures=read_textures(textures, reader),
        layouts=tuple(layouts),
        spans=spans,
        features=features,
        inputs=ReadOnly(inputs),
        kinds=ReadOnly(kinds),
    )


def process_images(vlm: Attached, images: Sequence[Image.Image]) -> tuple[Any, tuple[ImageSpan, ...]]:
    """What the processor makes of images, and what stands for each of them in a prompt. Raises ModelError."""
    processor = vlm.processor
    for number, apart in enumerate(APART, 1):
        text = images_text(processor, len(images), apart)
        added = adds_special_tokens(processor, text)
        made = processor(images=list(images), text=text, return_tensors="pt", add_special_tokens=added)
        try:
            ids = made["input_ids"][0].numpy()
            return made, find_spans(processor, vlm.family.prompt(processor, text), len(images), ids)
        except errors.ModelError:
            if number == len(APART):
                raise
    raise AssertionError("there is a text between images")


def _kinds_taken(model: Any) -> set[str]:
    """Inputs of every token that a model takes. Some have one for positions alone, which foveate hands over itself."""
    taken = {name for name in inspect.signature(model.forward).parameters if name.endswith("token_type_ids")}
    return taken - {"mm_token_type_ids"} if find_method(model, "get_rope_index") else taken


def encoding_keywords(preset: PresetName | None, read: Read | None) -> tuple[dict[str, Any], Read]:
    """Keywords of `encode` for the textures that are made here, and whether they are read."""
    how: dict[str, Any] = {"channels": CHANNELS, **find_preset(preset).encoding}
    wanted = how.pop("read", "auto")
    if how["channels"] == "standard":
        how["channels"] = CHANNELS
    return how, wanted if read is None else read


def encode_video(
    vlm: Attached, frames: Any, fps: float, mode: Mode, read: Read | None = False, preset: PresetName | None = None
) -> EncodedImage:
    """As `VLM.see_video` says."""
    how, read = encoding_keywords(preset, read)
    reader = find_reader_of(read)
    if isinstance(frames, str | os.PathLike | VideoClip):
        picked = pick(frames, fps)
        frames, fps = [picture.rgb for picture in picked], measure_rate(picked, fps)  # a slow clip has fewer
    if isinstance(frames, np.ndarray | Image.Image) or not isinstance(frames, Iterable):
        raise errors.SceneError(
            f"a video given as {type(frames).__name__}"
            + (f" of shape {list(frames.shape)}" if isinstance(frames, np.ndarray) else ""),
            expected="the path of a clip, or a list of images or frames",
            fix="pass [image] for a single image, or list(array) for an array of frames",
        )
    frames = list(frames)
    pictures: list[Picture] = [load_image(each.rgb if isinstance(each, Frame) else each) for each in frames]
    if not pictures:
        raise errors.SceneError(
            "a video with no frames", expected="at least one", fix="check what was read from the file"
        )
    fps = check_number("fps", fps, 1e-6, None, fix="pass frames a second, above 0; 2.0 is usual")
    if len({picture.rgb.shape for picture in pictures}) > 1:
        raise errors.ImageArrayError(
            f"frames of {sorted({picture.rgb.shape[:2] for picture in pictures})} pixels",
            expected="one size",
            fix="resize them, or pass them to vlm.see as several images",
        )
    with _layout_errors(vlm.processor, [pictures[0].rgb.shape[:2]]):
        video = vlm.family.video(vlm.model, vlm.processor, [picture.rgb for picture in pictures], fps)
    span = span_of(vlm.processor, video.span)
    _check_counts([span], [video.layout], vlm.token("video"))
    inputs, features = _run_encoder(vlm, dict(video.inputs), [video.layout], mode)
    shown = [pictures[number] for number in video.shown]
    textures = [
        remember_preset(_texture_of(vlm, frames[number], pictures[number], how), preset) for number in video.shown
    ]
    return EncodedImage(
        model=vlm.model,
        images=tuple(picture.rgb for picture in shown),
        textures=read_textures(textures, reader, frames=True),
        layouts=(video.layout,),
        spans=(span,),
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
    except errors.FoveateError:
        raise
    except (ValueError, IndexError, ZeroDivisionError) as cause:
        raise errors.ImageArrayError(
            f"images of {', '.join(f'{h} x {w}' for h, w in sizes)} pixels: {str(cause).splitlines()[0][:200]}",
            expected=f"what {type(processor).__name__} can lay out",
            fix="images that are very thin or small can be padded, or cut",
        ) from cause


def _run_encoder(
    vlm: Attached, inputs: dict[str, Any], layouts: Sequence[TokenLayout], mode: Mode
) -> tuple[dict[str, Any], VisualFeatures | None]:
    """What to keep of the inputs, and the features: pixels for mode "sparse", features for all others."""
    import torch

    placed = {name: on_device(vlm.model, name, value) for name, value in inputs.items()}
    if mode == "sparse":
        return placed, None
    counts = [layout.count for layout in layouts]
    with torch.no_grad():
        features = vlm.family.encode(vlm.model, placed, counts)
    if [len(rows) for rows in features.rows] != counts:
        raise errors.ModelError(
            f"{[len(rows) for rows in features.rows]} features from the model",
            expected=f"{counts}, one for each visual token",
            fix="check that model and processor belong together",
        )
    return {name: value for name, value in placed.items() if "pixel" not in name}, features


def on_device(model: Any, name: str, value: Any) -> Any:
    """A tensor where the model is: pixels in the model's number format, times as they are."""
    if not hasattr(value, "to"):
        return value
    pixels = value.is_floating_point() and not name.startswith("second")
    return value.to(model.device, model.dtype) if pixels else value.to(model.device)


def _check_counts(spans: Sequence[ImageSpan], layouts: Sequence[TokenLayout], token: int) -> None:
    found, counts = [int((span.ids == token).sum()) for span in spans], [layout.count for layout in layouts]
    if found != counts:
        raise errors.ModelError(
            f"{found} visual tokens from the processor for {counts} features",
            expected="as many of both",
            fix="pass the processor that belongs to the model",
        )


def find_reader_of(read: Read) -> WordReader | Literal["auto"] | None:
    """The keyword `read` of `VLM.see` -> who reads every image; "auto" for pages alone; None. Raises OptionError."""
    if isinstance(read, str) and read == "auto":
        return "auto" if can_read() else None
    return choose_reader(read, wanted=False)


def is_page(texture: Texture) -> bool:
    """Whether a texture with a text channel shows a page."""
    return page_of(texture)[0] >= PAGE


def with_layer(texture: Texture, page: PdfPage | None, read: Read) -> Texture:
    """A texture of a PDF's page with the words of its text layer, where those say what is on it."""
    wanted = read is True or (isinstance(read, str) and read == "auto")
    if page is None or page.words is None or page.scanned or not wanted:
        return texture
    return texture.with_words(page.words)


def read_textures(
    textures: Sequence[Texture], reader: WordReader | Literal["auto"] | None, *, frames: bool = False
) -> tuple[Texture, ...]:
    """Textures that know what is written in their images; those that do already stay as they are.

    frames: of a clip; one that looks like the last that was read has its words. A reader that fails is a warning with
    "auto", and an OptionError or MissingExtraError where it was asked for.
    """
    if reader is None:
        return tuple(textures)
    found: list[Texture] = []
    last: Texture | None = None
    for texture in textures:
        if frames and last is not None and last.words is not None and texture.words is None and _alike(texture, last):
            found.append(texture.with_words(last.words))
        else:
            found.append(last := _read(texture, reader))
    return tuple(found)


def _alike(texture: Texture, other: Texture) -> bool:
    looks = [describe_cells(each.pixel, each.grid) for each in (texture, other)]
    return bool(np.all(measure_change(looks[0], looks[1]) <= CHANGED))


def _read(texture: Texture, reader: WordReader | Literal["auto"]) -> Texture:
    if texture.words is not None:
        return texture
    if reader != "auto":
        return texture.read(reader)
    if not is_page(texture):
        return texture
    try:
        return texture.read()
    except (errors.OptionError, errors.MissingExtraError, errors.ModelFilesError) as cause:
        no, yes = keyword("read", False), keyword("read", True)
        note = f"{cause.received}: the page was not read; {no} leaves it out, {yes} makes this an error"
        errors.warn(note, errors.ReadingWarning)
        return texture
