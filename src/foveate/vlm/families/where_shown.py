"""What part of an image each picture in `pixel_values` shows: measured, by showing the processor where things are.

It is given an image whose red grows from left to right and whose green grows from top to bottom, with one blue: where
blue is another one there is padding. What it makes of black and white, two small images tell. Where `pixel_values` has
no colours apart, it is given four grey images: black, white, and one that grows in each direction. Patches, in whatever
order, are put together to pictures of a point for each patch.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import ModelError
from foveate.vlm.families.token_layout import Box, Sizes, whole_box
from foveate.vlm.families.written import bordered_mark

Floats = NDArray[np.float32]
BLUE = 200  # no colour of padding
SMALLER = 896  # pixels; by hand
OUTSIDE: Box = (-2.0, -2.0, -1.0, -1.0)
NEAR = 0.01  # of the image's side: a border this near to where a border is expected is there
PATCH = 4  # pixels of the image, from where on a point is a patch and not a pixel; by hand
PROBE = (67, 101)  # pixels of a small image whose sides no processor leaves as they are
LOCAL = "pixel_values_local"  # pictures of parts of the image, whose tokens stand before those of the whole
GRIDS = ("image_grid_thw", "image_grid_hw")
PICTURES = "pictures [n, 3, height, width], or the number of patches (image_grid_thw)"
Shown = Mapping[str, Any]  # what a processor makes of one image; places: float32 [3, *pixels]: x, y, is it inside


def patches_of(inputs: Mapping[str, Any]) -> list[tuple[int, int]] | None:
    """Rows and columns of patches of each image, where a processor tells them."""
    if name := next((name for name in GRIDS if name in inputs), None):
        return [(int(grid[-2]), int(grid[-1])) for grid in inputs[name].tolist()]
    if "image_position_ids" in inputs:  # Gemma 4: (column, row) of each patch, in rows; -1 behind the last
        return [(int(at[:, 1].max()) + 1, int(at[:, 0].max()) + 1) for at in inputs["image_position_ids"]]
    return None


def find_boxes(
    processor: Any, size: tuple[int, int], longest: int | None = None, *, pictures: bool = True
) -> tuple[tuple[Box, ...], tuple[tuple[int, int], ...]]:
    """Of an image of (height, width) pixels: what each picture shows, and its height and width in points.

    A box may reach beyond the image, where there is padding; of a picture that is padding alone it lies outside.
    longest: side in pixels of a smaller image that may be measured in its place. pictures: whether the settings of the
    processor may tell more exactly; not of patches. Raises ModelError.
    """
    settings = _settings(processor)
    scale = 1 if longest is None else min(1, longest / max(size))
    shares, shapes = _measure(processor, settings, (max(1, round(size[0] * scale)), max(1, round(size[1] * scale))))
    boxes = tuple(
        (y0 * size[0], x0 * size[1], y1 * size[0], x1 * size[1]) if y1 > 0 else OUTSIDE for y0, x0, y1, x1 in shares
    )
    images: Any = getattr(processor, "image_processor", None)
    if pictures and len(boxes) == 1 and hasattr(images, "size"):
        by_settings = visible_box(images, size)  # exact, where they tell all
        if np.allclose(by_settings, boxes[0], atol=NEAR * max(size)):
            boxes = (by_settings,)
    return boxes, shapes


def find_all_boxes(
    processor: Any, inputs: Mapping[str, Any], sizes: Sizes
) -> list[tuple[tuple[Box, ...], tuple[tuple[int, int], ...]]]:
    """`find_boxes` of every image. Smaller ones are measured, if they are cut into as many pictures as these were."""
    pixels = [value for name, value in inputs.items() if name.startswith("pixel_values") and value.is_floating_point()]
    count = sum(int(np.prod(value.shape[:-3])) for value in pixels if value.ndim > 3 and value.shape[-3] == 3)
    found = [find_boxes(processor, size, SMALLER) for size in sizes]
    return found if sum(len(boxes) for boxes, _ in found) == count else [find_boxes(processor, size) for size in sizes]


def pads(processor: Any) -> bool:
    """Whether a processor of patches fills images up, so that its grid may reach beyond them."""
    return _pads(processor, _settings(processor))


def _settings(processor: Any) -> str:
    """Of the image processor, which a caller may change."""
    images: Any = getattr(processor, "image_processor", None)
    return repr(images.to_dict()) if hasattr(images, "to_dict") else ""


@lru_cache(maxsize=32)
def _pads(processor: Any, settings: str) -> bool:
    pictures = _pictures(_show(processor, settings, PROBE))
    return any(bool((picture[2] < 0.99).any()) for picture in pictures)


@lru_cache(maxsize=256)
def _measure(
    processor: Any, settings: str, size: tuple[int, int]
) -> tuple[tuple[Box, ...], tuple[tuple[int, int], ...]]:
    """As `find_boxes`, but in shares of the image's height and width."""
    pictures = _pictures(_show(processor, settings, size))
    return tuple(_box(picture, size) for picture in pictures), tuple((p.shape[1], p.shape[2]) for p in pictures)


def _show(processor: Any, settings: str, size: tuple[int, int]) -> Shown:
    """What a processor makes of an image of (height, width) pixels, and where everything in it comes from."""
    across, down = (np.linspace(0, 255, side).round().astype(np.uint8) for side in size[::-1])
    x, y = np.tile(across, (size[0], 1)), np.tile(down[:, None], size[1])
    made = _process(processor, x, y, np.full(size, BLUE, np.uint8))
    pixels = _pixels(made)
    if all(value.ndim > 3 and value.shape[-3] == 3 for value in pixels.values()):
        black, white = _ends_of_colour(processor, settings)
        places = {name: _place_by_colour(value, black, white) for name, value in pixels.items()}
        if all(np.abs(place).max() < 1.1 for place in places.values()):
            return {**made, **_named(places)}
    plain = (np.zeros(size, np.uint8), np.full(size, 255, np.uint8), x, y)
    shown = [_pixels(_process(processor, grey, grey, grey)) for grey in plain]
    return {**made, **_named({name: _place(*(each[name] for each in shown)) for name in pixels})}


def _process(processor: Any, *colours: NDArray[np.uint8]) -> Mapping[str, Any]:
    image = Image.fromarray(np.stack(colours, -1))
    return processor(images=[image], text=bordered_mark(processor), return_tensors="pt")


def _pixels(made: Mapping[str, Any]) -> dict[str, Floats]:
    found = {
        name: np.asarray(v.float().numpy(), np.float32) for name, v in made.items() if name.startswith("pixel_values")
    }
    if not found:
        raise unknown_layout("no pixel_values from a processor", PICTURES)
    return found


def _named(places: dict[str, Floats]) -> dict[str, Floats]:
    """The pictures of the whole image as "places", those of parts under their own name."""
    local = {LOCAL: places[LOCAL]} if len(places) > 1 and LOCAL in places else {}
    return {"places": next(place for name, place in places.items() if name not in local), **local}


def find_level(processor: Any) -> float:
    """How far apart a processor puts two neighbours of 256 levels: of its colours, which differ by a few percent."""
    return _find_level(processor, _settings(processor))


@lru_cache(maxsize=32)
def _find_level(processor: Any, settings: str) -> float:
    grey = (np.full((64, 64), level, np.uint8) for level in (0, 255))
    black, white = (next(iter(_pixels(_process(processor, g, g, g)).values())) for g in grey)
    lighter = white - black
    return float(np.median(lighter[lighter > 0.5 * lighter.max()])) / 255


@lru_cache(maxsize=32)
def _ends_of_colour(processor: Any, settings: str) -> tuple[Floats, Floats]:
    """What black and white become, in each colour: float32 [3, 1, 1]."""
    grey = (np.full((64, 64), level, np.uint8) for level in (0, 255))
    black, white = (next(iter(_pixels(_process(processor, g, g, g)).values())) for g in grey)
    black, white = (np.moveaxis(each, -3, 0).reshape(3, -1) for each in (black, white))
    inside = white[0] - black[0] > 0.5 * (white[0] - black[0]).max()
    return tuple(np.median(each[:, inside], 1)[:, None, None] for each in (black, white))  # type: ignore[return-value]


def _place_by_colour(shown: Floats, black: Floats, white: Floats) -> Floats:
    """What the coloured image became [..., 3, h, w] -> as `_place`, once for all three colours: [3, ..., 1, h, w]."""
    found = np.ascontiguousarray(np.moveaxis((shown - black) / (white - black), -3, 0), np.float32)
    found[2] = np.abs(found[2] - np.float32(BLUE / 255)) < 0.02
    found[:2] *= found[2]
    return found[..., None, :, :]


def _place(black: Floats, white: Floats, x: Floats, y: Floats) -> Floats:
    """What four images became -> where each number comes from: x and y as shares of the image, and is it inside."""
    lighter = white - black
    inside = lighter > 0.5 * lighter.max()
    lighter = np.where(inside, lighter, 1)
    return np.stack([(x - black) / lighter, (y - black) / lighter, inside]) * inside


def cut_pictures(pixels: NDArray[Any], inputs: Mapping[str, Any], block: int = 1) -> list[NDArray[Any]]:
    """What a processor made of images -> its pictures, in order: [rows, columns, n], the numbers of each point.

    A point is a pixel, or a patch. pixels: one of the inputs, in whatever shape. block: patches of an image come in
    blocks of so many rows and columns (`find_block`). Raises ModelError.
    """
    if "target_sizes" in inputs:  # MiniCPM: patches of all pictures in one row
        shapes = [(int(h), int(w)) for h, w in inputs["target_sizes"]]
        count = sum(h * w for h, w in shapes)
        rows = np.moveaxis(pixels.reshape(-1, count, pixels.shape[-1] // count), 1, 0).reshape(count, -1)
    elif "spatial_shapes" in inputs or "image_position_ids" in inputs:  # filled up behind the patches of each
        shapes = [(int(h), int(w)) for h, w in inputs.get("spatial_shapes", patches_of(inputs))]
        rows = np.concatenate([each[: h * w] for each, (h, w) in zip(pixels, shapes, strict=True)])
    elif (patches := patches_of(inputs)) is not None:
        shapes, rows = patches, pixels.reshape(sum(h * w for h, w in patches), -1)
    elif pixels.ndim == 5 and pixels.shape[-1] in (1, 3):  # Inkling: cells, times, rows, columns, colours
        return list(np.moveaxis(pixels, 1, 3).reshape(len(pixels), *pixels.shape[2:4], -1))
    elif pixels.ndim > 3 and pixels.shape[-3] in (1, 3):
        return list(np.moveaxis(pixels, -3, -1).reshape(-1, *pixels.shape[-2:], pixels.shape[-3]))
    else:
        raise unknown_layout(f"pixels of shape {list(pixels.shape)}", PICTURES)
    parts = np.split(rows, np.cumsum([h * w for h, w in shapes])[:-1])
    return [_join(part, *shape, block) for part, shape in zip(parts, shapes, strict=True)]


def find_block(processor: Any) -> int:
    """Of a processor of patches, how many rows of them come together: 1, or those that make a token, or a few."""
    return _find_block(processor, _settings(processor))


@lru_cache(maxsize=32)
def _find_block(processor: Any, settings: str) -> int:
    return _block_of(_show(processor, settings, PROBE))


def _block_of(shown: Shown) -> int:
    if not any(name in shown for name in GRIDS):
        return 1
    fits = [m for m in (1, 2, 3, 4) if all(h % m == w % m == 0 for h, w in patches_of(shown) or [])]
    return min(fits, key=lambda block: sum(map(_slant, _cut(shown["places"], shown, block))))


def _pictures(shown: Shown) -> list[Floats]:
    """Pictures [3, h, w] in the order of their tokens: x and y as shares of the image, and how much is inside."""
    places = shown["places"]
    if "image_token_pooling" in shown:  # Molmo 2: patches of each token, -1 where there is none
        points = _points(places.reshape(3, -1, places.shape[-1]))
        points = np.concatenate([points, np.zeros((3, 1), np.float32)], 1)
        side = int(shown["image_token_pooling"].shape[1] ** 0.5)
        h0, w0, h1, w1 = shown["image_grids"][0].tolist()
        tokens = np.split(points[:, shown["image_token_pooling"].numpy()], [h0 * w0], 1)
        return [
            np.moveaxis(_join(np.moveaxis(part, 0, -1).reshape(-1, 3), h * side, w * side, side), -1, 0)
            for part, h, w in zip(tokens, (h0, h1), (w0, w1), strict=True)
        ]
    block = _block_of(shown)
    return [
        picture
        for each in ([shown[LOCAL], places] if LOCAL in shown else [places])
        for picture in _cut(each, shown, block)
    ]


def _cut(places: Floats, shown: Shown, block: int) -> list[Floats]:
    three = (cut_pictures(plane, shown, block) for plane in places)
    return [_points(np.stack(planes)) for planes in zip(*three, strict=True)]


def _points(places: Floats) -> Floats:
    """Means over the last axis, of what is inside."""
    if places.shape[-1] == 1:
        return places[..., 0]
    inside = places[2].sum(-1)
    return np.stack([*(places[:2].sum(-1) / np.maximum(inside, 1)), inside / places.shape[-1]])


def _join(rows: NDArray[Any], h: int, w: int, side: int) -> NDArray[Any]:
    """Points [h * w, n] that come in blocks of side x side, each with its own in rows -> a picture [h, w, n]."""
    return rows.reshape(h // side, w // side, side, side, -1).swapaxes(1, 2).reshape(h, w, -1)


def _slant(picture: Floats) -> float:
    """How much x changes from a row to the next: more than nothing where points are not in their places."""
    x, _, inside = picture
    return float((np.abs(np.diff(x, axis=0)) * inside[1:] * inside[:-1]).sum())


def unknown_layout(what: str, expected: str) -> ModelError:
    return ModelError(
        what,
        expected=expected,
        fix="check that model and processor belong together; "
        "for another layout subclass foveate.vlm.families.family.Family (docs/vlm_reference.md)",
    )


def _box(picture: Floats, size: tuple[int, int]) -> Box:
    """What a picture [3, h, w] shows of an image of (height, width) pixels, in shares of them."""
    inside = picture[2] > 0.5
    if not inside.any():
        return OUTSIDE
    rows, cols = inside.mean(1) > 0.5 * inside.mean(1).max(), inside.mean(0) > 0.5 * inside.mean(0).max()
    area = np.ix_(rows, cols)
    across, down = picture[0][area].mean(0), picture[1][area].mean(1)
    x0, x1 = _ends(np.flatnonzero(cols), across, picture.shape[2], size[1])
    y0, y1 = _ends(np.flatnonzero(rows), down, picture.shape[1], size[0])
    if x1 <= x0 or y1 <= y0:
        raise ModelError(
            "a processor that turns an image over",
            expected="left and right, top and bottom as they are in the image",
            fix="check that model and processor belong together",
        )
    return y0, x0, y1, x1


def _ends(at: NDArray[np.int64], level: Floats, pixels: int, side: int) -> tuple[float, float]:
    """Where the image lies at both ends of a tile: its columns `at`, of `pixels`, show these levels of the ramp."""
    place = (level * (side - 1) + 0.5) / side
    inner = slice(1, -1) if len(at) > 4 else slice(None)  # the ends of a ramp are flat
    step, first = np.polyfit(at[inner] + 0.5, place[inner], 1) if len(at) > 1 else (1 / pixels, 0.0)
    start, stop = float(first), float(first + step * pixels)
    if stop <= start:
        return start, stop
    parts = max(1, round(1 / (stop - start)))  # so many tiles side by side, if it is one of several
    parts = parts if abs(parts * (stop - start) - 1) <= NEAR else 1  # cells of fixed size do not end with the image
    near = [round(end * parts) / parts for end in (start, stop)]
    limit = NEAR if step * side < PATCH else min(NEAR, step / 4)  # points that are patches: less than a part of one
    return tuple(n if abs(n - end) <= limit else end for n, end in zip(near, (start, stop), strict=True))  # type: ignore[return-value]


def visible_box(images: Any, size: tuple[int, int]) -> Box:
    """The rectangle of an image of (height, width) pixels that a CLIP-like processor shows, by its settings."""
    height, width = size
    top, left = 0.0, 0.0
    padded = size
    if getattr(images, "do_pad", False):
        side = max(size)
        top, left = -float((side - height) // 2), -float((side - width) // 2)
        padded = side, side
    resized = _resized(images, padded)
    y0, x0, y1, x1 = whole_box(resized)
    if getattr(images, "do_center_crop", False):
        h, w = (_side(images.crop_size, name) for name in ("height", "width"))
        y0, x0 = float((resized[0] - h) // 2), float((resized[1] - w) // 2)
        y1, x1 = y0 + h, x0 + w
    down, across = padded[0] / resized[0], padded[1] / resized[1]
    box = top + y0 * down, left + x0 * across, top + y1 * down, left + x1 * across
    return whole_box(size) if np.allclose(box, whole_box(size), atol=1e-6) else box


def _resized(images: Any, size: tuple[int, int]) -> tuple[int, int]:
    if not getattr(images, "do_resize", True):
        return size
    short = _side(images.size, "shortest_edge")
    if not short:
        return _side(images.size, "height") or size[0], _side(images.size, "width") or size[1]
    longer = int(short * max(size) / min(size))
    return (short, longer) if size[0] <= size[1] else (longer, short)


def _side(size: Any, name: str) -> int:
    value = size.get(name) if isinstance(size, dict) else getattr(size, name, None)
    return int(value or 0)
