"""Reading a COCO-style folder: annotations.json beside images (loose, in images/, or in images.tar).

Everything is checked before the first image is read, so that a broken entry fails at once and is named. Entries that
other tools leave out are left out here too: annotations of unknown images or categories, crowds, empty polygons.
"""

from __future__ import annotations

import json
import math
import tarfile
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import FoveateError, OptionError
from foveate.core.grid import resize_map
from foveate.core.image import load_image

RASTER = 8  # pixels of the image per mask sample
SAME_ASPECT = 0.02  # annotations may be of a larger or smaller copy of the image, but not of a turned or cropped one
FAR = 1e6  # pixels; beyond, OpenCV's coordinates overflow


@dataclass(frozen=True, eq=False)
class Labelled:
    """An image and the masks of the things in it: name -> bool [H / 8, W / 8], never empty."""

    name: str
    rgb: NDArray[np.uint8]
    masks: dict[str, NDArray[np.bool_]]


class Outline(NamedTuple):
    """Where one thing is, in pixels (x, y): polygons, or a box (x0, y0, x1, y1) where there are none."""

    thing: str
    polygons: tuple[NDArray[np.float64], ...]
    box: tuple[float, float, float, float]


class Annotated(NamedTuple):
    """An image's file, the size it was annotated at (0 where the file does not say), and its things."""

    file: str
    width: float
    height: float
    outlines: list[Outline]


@dataclass(frozen=True)
class Folder:
    """A folder that was checked: names of all thing categories, and images with at least one thing."""

    path: Path
    names: tuple[str, ...]
    images: tuple[Annotated, ...]

    def labelled(self, limit: int | None = None, only: Container[str] | None = None) -> Iterator[Labelled]:
        """The images with their masks, at most `limit` of them; `only` those of these names.

        A mask is the union of a category's outlines. A sample is True where at least half of it is covered; of a thing
        too small for that, the fullest one.
        """
        if limit is not None and limit < 1:
            raise OptionError(f"a limit of {limit} images", expected="at least 1", fix="leave it out for all of them")
        if not self.images:
            raise OptionError(
                f"no labelled image in '{self.path}'", expected="at least one thing", fix="check annotations.json"
            )
        with open_images(self.path) as read:
            for image in self.images[:limit]:
                if only is not None and image.file not in only:
                    continue
                rgb = read(image.file)
                masks: dict[str, NDArray[np.uint8]] = {}
                for outline in image.outlines:
                    mask = masks.setdefault(outline.thing, np.zeros(rgb.shape[:2], np.uint8))
                    _fill(mask, outline, _scale(image, mask.shape))
                found = {thing: _on_raster(mask) for thing, mask in masks.items() if mask.any()}
                if found:
                    yield Labelled(image.file, rgb, found)


def read_folder(data: Path) -> Folder:
    """Read and check annotations.json. Raises OptionError that names the entry."""
    file = data / "annotations.json"
    try:
        content = json.loads(file.read_text("utf-8"))
        lists = [content[key] for key in ("images", "annotations", "categories")]
        if not all(isinstance(entries, list) for entries in lists):
            raise TypeError("not lists")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as cause:
        why = getattr(cause, "strerror", None) or f"{type(cause).__name__}: {str(cause)[:100]}"
        raise _wrong(file, f"no COCO annotation file ({why})") from None
    images: dict[Any, Annotated] = {}
    names: dict[Any, str] = {}

    def add_image(entry: dict[str, Any]) -> None:
        size = _finite(entry.get("width", 0)), _finite(entry.get("height", 0))
        images[entry["id"]] = Annotated(entry["file_name"], *size, [])

    def add_category(entry: dict[str, Any]) -> None:
        if entry.get("isthing", 1):
            names[entry["id"]] = entry["name"]

    def add_annotation(entry: dict[str, Any]) -> None:
        image, thing = images.get(_key(entry["image_id"])), names.get(_key(entry["category_id"]))
        if image is not None and thing and not entry.get("iscrowd"):
            image.outlines.append(_outline(thing, entry))

    _read_entries(file, "images", lists[0], add_image, "file_name")
    _read_entries(file, "categories", lists[2], add_category, "name")
    _read_entries(file, "annotations", lists[1], add_annotation)
    return Folder(data, tuple(names.values()), tuple(image for image in images.values() if image.outlines))


def _read_entries(
    file: Path, part: str, entries: list[Any], add: Callable[[dict[str, Any]], None], name: str = ""
) -> None:
    """Check and add each entry of a list; an error names it. `name`: a text, which occurs once, as the id does."""
    before: set[Any] = set()
    for number, entry in enumerate(entries):
        try:
            if not isinstance(entry, dict):
                raise TypeError("no JSON object")
            if name:
                if not isinstance(entry[name], str) or not entry[name].strip():
                    raise TypeError(f"{name} is no text")
                known = {("id", _key(entry["id"])), (name, entry[name] if entry.get("isthing", 1) else number)}
                if known & before:
                    raise ValueError(f"its id or {name} occurs twice")
                before |= known
            add(entry)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as cause:
            what = f"lacks {cause}" if isinstance(cause, KeyError) else str(cause)
            raise _wrong(file, f"{part}[{number}]: {what}") from None


def _outline(thing: str, entry: dict[str, Any]) -> Outline:
    segmentation = entry.get("segmentation")
    polygons = segmentation if isinstance(segmentation, list) else []  # run-length codes are a dict: the box serves
    points = [np.reshape([_finite(v) for v in polygon], (-1, 2)) for polygon in polygons]
    usual = tuple(p for p in points if len(p) >= 3)
    if usual:
        return Outline(thing, usual, (0, 0, 0, 0))
    x, y, w, h = (_finite(v) for v in entry["bbox"])
    if w < 0 or h < 0:
        raise ValueError(f"bbox {entry['bbox']} has a negative size")
    return Outline(thing, (), (x, y, x + w, y + h))


def _key(value: Any) -> Any:
    if not isinstance(value, int | str):
        raise TypeError(f"an id is {value!r}")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no finite number")
    return float(min(max(value, -FAR), FAR))


def _wrong(file: Path, what: str) -> OptionError:
    return OptionError(
        f"'{file}': {what}",
        expected="JSON with the lists 'images', 'annotations' and 'categories' as COCO has them",
        fix="pass --data FOLDER with annotations.json and the images beside it",
    )


def _scale(image: Annotated, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Annotated pixels -> the file's pixels, as factors (x, y)."""
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
    if not outline.polygons:
        x0, y0, x1, y1 = np.clip(np.array(outline.box) * np.tile(scale, 2), 0, np.tile(mask.shape[::-1], 2))
        mask[int(y0) : math.ceil(y1), int(x0) : math.ceil(x1)] = 1


def _on_raster(mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
    share = resize_map(mask, (max(1, round(mask.shape[0] / RASTER)), max(1, round(mask.shape[1] / RASTER))))
    return share >= min(0.5, float(share.max()))


@contextmanager
def open_images(data: Path) -> Iterator[Callable[[str], NDArray[np.uint8]]]:
    """A function from a file name to an image [H, W, 3]."""
    tar = data / "images.tar"
    if not tar.is_file():
        folder = data / "images" if (data / "images").is_dir() else data
        yield lambda name: load_image(folder / name).rgb
        return
    try:
        archive = tarfile.open(tar)  # noqa: SIM115 - closed below; what happens inside is not to be caught here
        members = {member.name: member for member in archive if member.isfile()}
    except (tarfile.TarError, OSError, EOFError) as cause:
        raise OptionError(
            f"'{tar}' cannot be read ({cause})", expected="a whole tar archive", fix="make it again, or unpack it"
        ) from None
    many = Counter(Path(name).name for name in members)
    short = {Path(name).name: name for name in members if many[Path(name).name] == 1}

    def read(name: str) -> NDArray[np.uint8]:
        try:
            member = members.get(name) or members[short[Path(name).name]]
            content = archive.extractfile(member)
            return load_image(content.read() if content else b"").rgb
        except KeyError:
            raise OptionError(
                f"'{tar}' holds no '{name}'", expected="every image of annotations.json", fix="add it, or take it out"
            ) from None
        except FoveateError as error:
            raise type(error)(
                f"'{name}' in '{tar}': {error.received}", expected=error.expected, fix=error.fix
            ) from None

    with archive:
        yield read
