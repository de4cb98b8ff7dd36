"""Reading a COCO-style folder: annotations.json beside images (loose, in images/, or in images.tar).

Annotations of unknown images or categories, crowds and empty polygons are left out. Of a run-length coded mask its box
is taken.
"""

from __future__ import annotations

import hashlib
import json
import math
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_choice, check_int, check_number, check_type
from foveate.core.errors import FoveateError, OptionError
from foveate.core.grid import resize_map
from foveate.core.image import load_image

RASTER = 8  # pixels of the image per mask sample: half of a usual encoder's cell
SAME_ASPECT = 0.02  # annotations may be of a larger or smaller copy of the image, but not of a turned or cropped one
HALVES = ("A", "B")
FAR = 1e6  # pixels; OpenCV's coordinates overflow beyond 2^31 / 2^8


@dataclass(frozen=True, eq=False)
class Labelled:
    """An image and the things in it, by name: masks bool [H / 8, W / 8], not empty; boxes [n, 4] in pixels.

    A box is (y0, x0, y1, x1), around a thing of that name.
    """

    name: str
    rgb: NDArray[np.uint8]
    masks: dict[str, NDArray[np.bool_]]
    boxes: dict[str, NDArray[np.float64]]


class Outline(NamedTuple):
    """Where one thing is, in pixels (x, y): polygons, or a box (x0, y0, x1, y1) where there are none."""

    thing: str
    polygons: list[NDArray[np.float64]]
    box: tuple[float, ...]


class Annotated(NamedTuple):
    """An image's file, the size it was annotated at (0 where the file does not say), and its things."""

    file: str
    width: float
    height: float
    outlines: list[Outline]


@dataclass(frozen=True)
class Folder:
    """A folder that was checked: names of all thing categories, images with at least one thing."""

    path: Path
    names: tuple[str, ...]
    images: tuple[Annotated, ...]

    def labelled(self, limit: int | None = None) -> Iterator[Labelled]:
        """The images with their masks, the union of a category's outlines (`on_raster`); at most `limit` of them."""
        if limit is not None:
            check_int("limit", limit, fix="leave it out for all images")
        if not self.images:
            raise OptionError(
                f"no labelled image in '{self.path}'",
                expected="at least one thing",
                fix="check annotations.json, or leave out --half",
            )
        with open_images(self.path) as read:
            for image in self.images[:limit]:
                rgb = read(image.file)
                masks: dict[str, NDArray[np.uint8]] = {}
                boxes: dict[str, list[NDArray[np.float64]]] = {}
                for outline in image.outlines:
                    mask = masks.setdefault(outline.thing, np.zeros(rgb.shape[:2], np.uint8))
                    scale = find_scale(image, mask.shape)
                    _fill(mask, outline, scale)
                    boxes.setdefault(outline.thing, []).append(_box_of(outline, scale, mask.shape))
                found = {thing: on_raster(mask) for thing, mask in masks.items() if mask.any()}
                if found:
                    yield Labelled(image.file, rgb, found, {thing: np.stack(boxes[thing]) for thing in found})

    def half(self, half: str | None) -> Folder:
        """The images of one half alone (`half_of`); None: all of them. Raises OptionError."""
        if half is None:
            return self
        check_choice("--half", half, HALVES, fix="leave it out for all images")
        return replace(self, images=tuple(image for image in self.images if half_of(image.file) == half))


def half_of(file: str) -> str:
    """One of HALVES by a digest of the file's name: the same on every machine, and whatever else is in the folder."""
    return HALVES[hashlib.sha256(Path(file).name.encode("utf-8", "replace")).digest()[0] % 2]


def read_folder(data: Path) -> Folder:
    """Read and check annotations.json. Raises OptionError that names the entry."""
    file = data / "annotations.json"
    try:
        content = json.loads(file.read_text("utf-8"))
        lists = {part: list(check_type(part, content[part], list)) for part in ("images", "categories", "annotations")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError, OptionError) as cause:
        why = getattr(cause, "strerror", None) or f"{type(cause).__name__}: {str(cause)[:100]}"
        raise _wrong(file, f"no COCO annotation file ({why})") from None
    images: dict[Any, Annotated] = {}
    names: dict[Any, str] = {}
    seen: set[Any] = set()

    def add(part: str, entry: dict[str, Any]) -> None:
        if not isinstance(entry, dict):
            raise TypeError("no JSON object")
        if part == "annotations":
            image, thing = images.get(_key(entry["image_id"])), names.get(_key(entry["category_id"]))
            if image is not None and thing and not entry.get("iscrowd"):
                image.outlines.append(_outline(thing, entry))
            return
        key, field = _key(entry["id"]), "file_name" if part == "images" else "name"
        name, is_thing = check_type(field, entry[field], str), entry.get("isthing", 1)
        known = {(part, "id", key)} | ({(part, field, name)} if is_thing else set())
        if not name.strip() or known & seen:
            raise ValueError(f"its id or {field} occurs twice" if name.strip() else f"its {field} is empty")
        seen.update(known)
        if part == "images":
            images[key] = Annotated(name, finite(entry.get("width", 0)), finite(entry.get("height", 0)), [])
        elif is_thing:
            names[key] = name

    for part, entries in lists.items():
        for number, entry in enumerate(entries):
            try:
                add(part, entry)
            except (KeyError, TypeError, ValueError, OverflowError, OptionError) as cause:
                what = f"lacks {cause}" if isinstance(cause, KeyError) else getattr(cause, "received", str(cause))
                raise _wrong(file, f"{part}[{number}]: {what}") from None
    return Folder(data, tuple(names.values()), tuple(image for image in images.values() if image.outlines))


def _outline(thing: str, entry: dict[str, Any]) -> Outline:
    codes = entry.get("segmentation")
    polygons = [np.reshape([finite(v) for v in part], (-1, 2)) for part in codes] if isinstance(codes, list) else []
    usual = [points for points in polygons if len(points) >= 3]
    if usual:
        return Outline(thing, usual, ())
    x, y, w, h = (finite(v) for v in entry["bbox"])
    if w < 0 or h < 0:
        raise ValueError(f"bbox {entry['bbox']} has a negative size")
    return Outline(thing, [], (x, y, x + w, y + h))


def _key(value: Any) -> Any:
    return check_type("id", value, (int, str))


def finite(value: Any) -> float:
    """A coordinate in pixels, not too far away to be drawn. Raises OptionError for what is no finite number."""
    return min(max(check_number("value", value, -math.inf, None), -FAR), FAR)


def _wrong(file: Path, what: str) -> OptionError:
    return OptionError(
        f"'{file}': {what}",
        expected="JSON with the lists 'images', 'annotations' and 'categories' as COCO has them",
        fix="pass --data FOLDER with annotations.json and the images beside it",
    )


def find_scale(image: Annotated, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Annotated pixels -> the file's pixels, as factors (x, y). Raises OptionError where the aspect differs."""
    if not image.width or not image.height:
        return np.ones(2)
    x, y = shape[1] / image.width, shape[0] / image.height
    if not abs(x / y - 1) <= SAME_ASPECT:
        raise OptionError(
            f"'{image.file}' is {shape[1]} x {shape[0]} pixels, annotated at {image.width:g} x {image.height:g}",
            expected="annotations of the upright image (EXIF orientation applied), at any scale",
            fix="annotate it again, or take the image out of annotations.json",
        )
    return np.array([x, y])


def _fill(mask: NDArray[np.uint8], outline: Outline, scale: NDArray[np.float64]) -> None:
    for polygon in outline.polygons:  # each on its own: together, overlapping parts would become holes
        cv2.fillPoly(mask, [np.round(polygon * scale).astype(np.int32)], [1.0])
    if outline.box:
        x0, y0, x1, y1 = np.clip(np.array(outline.box) * np.tile(scale, 2), 0, np.tile(mask.shape[::-1], 2))
        mask[int(y0) : math.ceil(y1), int(x0) : math.ceil(x1)] = 1


def _box_of(outline: Outline, scale: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.float64]:
    """(y0, x0, y1, x1) in the file's pixels, inside the image, at least one pixel each way."""
    corners = np.concatenate(outline.polygons) if outline.polygons else np.reshape(outline.box, (2, 2))
    low, high = ((corner * scale)[::-1] for corner in (corners.min(0), corners.max(0)))
    low = np.clip(low, 0, np.subtract(shape, 1))
    return np.concatenate([low, np.maximum(np.minimum(high, shape), low + 1)])


def on_raster(mask: NDArray[np.uint8], shape: tuple[int, int] | None = None) -> NDArray[np.bool_]:
    """A mask of 0 and 1 [H, W] with anything in it -> bool [H / 8, W / 8], or of this shape: covered by half or more.

    Of a thing too small for that, the fullest sample.
    """
    usual = max(1, round(mask.shape[0] / RASTER)), max(1, round(mask.shape[1] / RASTER))
    share = resize_map(mask, shape or usual)
    return share >= min(0.5, float(share.max()))


@contextmanager
def open_images(data: Path) -> Iterator[Callable[[str], NDArray[np.uint8]]]:
    """A function from a file name to an image [H, W, 3]."""
    tar = data / "images.tar"
    if not tar.is_file():
        folder = data / "images" if (data / "images").is_dir() else data
        yield lambda name: load_image(folder / name).rgb
        return
    with open_tar(tar) as find:

        def read(name: str) -> NDArray[np.uint8]:
            content = find(name)
            if content is None:
                raise OptionError(
                    f"'{tar}' holds no '{name}'",
                    expected="every image that is named beside it",
                    fix="add it, or take it out",
                )
            try:
                return load_image(content).rgb
            except FoveateError as error:
                what = f"'{name}' in '{tar}': {error.received}"
                raise type(error)(what, expected=error.expected, fix=error.fix) from None

        yield read


@contextmanager
def open_tar(tar: Path) -> Iterator[Callable[[str], bytes | None]]:
    """A function from a name, or from its last part where only one member has it, to the content of that member."""
    try:
        archive = tarfile.open(tar)  # noqa: SIM115 - closed below; what happens inside is not to be caught here
        members = {member.name: member for member in archive if member.isfile()}
    except (tarfile.TarError, OSError, EOFError) as cause:
        raise OptionError(
            f"'{tar}' cannot be read ({cause})", expected="a whole tar archive", fix="make it again, or unpack it"
        ) from None
    many = Counter(Path(name).name for name in members)
    short = {Path(name).name: member for name, member in members.items() if many[Path(name).name] == 1}

    def find(name: str) -> bytes | None:
        member = members.get(name) or short.get(Path(name).name)
        content = archive.extractfile(member) if member else None
        return content.read() if content else None

    with archive:
        yield find
