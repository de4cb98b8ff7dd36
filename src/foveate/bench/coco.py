"""Reading a COCO-style folder: annotations.json beside images (loose, in images/, or in images.tar)."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.errors import OptionError
from foveate.grid import resize_map
from foveate.image import load_image

RASTER = 8  # pixels of the image per mask sample


@dataclass(frozen=True, eq=False)
class Labelled:
    """An image and the masks of the things in it: name -> bool [H / 8, W / 8], never empty."""

    name: str
    rgb: NDArray[np.uint8]
    masks: dict[str, NDArray[np.bool_]]


def thing_names(data: Path) -> list[str]:
    """Names of all thing categories of the folder, in the file's order."""
    return [c["name"] for c in _annotations(data)["categories"] if c.get("isthing", 1)]


def image_count(data: Path) -> int:
    """How many images of the folder have an annotation: what a progress bar counts to."""
    return len({annotation["image_id"] for annotation in _annotations(data)["annotations"]})


def labelled_images(data: Path, limit: int, only: Container[str] | None = None) -> Iterator[Labelled]:
    """The images of the folder that have at least one thing, at most `limit` of them; `only` those of these names.

    A mask is the union of the polygons of a thing's category, or of its boxes where there are no polygons; crowds are
    left out. A sample is True where at least half of it is covered; of a thing too small for that, the fullest one.
    """
    content = _annotations(data)
    names = {c["id"]: c["name"] for c in content["categories"] if c.get("isthing", 1)}
    by_image: dict[Any, list[dict[str, Any]]] = {}
    for annotation in content["annotations"]:
        if annotation["category_id"] in names and not annotation.get("iscrowd"):
            by_image.setdefault(annotation["image_id"], []).append(annotation)
    described = [
        image for image in content["images"] if image["id"] in by_image and (only is None or image["file_name"] in only)
    ]
    with _opened(data) as read:
        for image in described[:limit]:
            rgb = load_image(read(image["file_name"])).rgb
            masks: dict[str, NDArray[np.uint8]] = {}
            for annotation in by_image[image["id"]]:
                mask = masks.setdefault(names[annotation["category_id"]], np.zeros(rgb.shape[:2], np.uint8))
                _fill(mask, annotation)
            found = {name: _on_raster(mask) for name, mask in masks.items() if mask.any()}
            if found:
                yield Labelled(image["file_name"], rgb, found)


def _fill(mask: NDArray[np.uint8], annotation: dict[str, Any]) -> None:
    polygons = annotation.get("segmentation")
    if isinstance(polygons, list) and polygons:
        for polygon in polygons:  # each on its own: together, overlapping parts would become holes
            cv2.fillPoly(mask, [np.round(np.reshape(polygon, (-1, 2))).astype(np.int32)], [1.0])
    else:
        x, y, w, h = annotation["bbox"]
        mask[max(0, int(y)) : int(np.ceil(y + h)), max(0, int(x)) : int(np.ceil(x + w))] = 1


def _on_raster(mask: NDArray[np.uint8]) -> NDArray[np.bool_]:
    share = resize_map(mask, (max(1, round(mask.shape[0] / RASTER)), max(1, round(mask.shape[1] / RASTER))))
    return share >= min(0.5, float(share.max()))


def _annotations(data: Path) -> dict[str, Any]:
    file = data / "annotations.json"
    try:
        content = json.loads(file.read_text("utf-8"))
        if not all(isinstance(content[key], list) for key in ("images", "annotations", "categories")):
            raise KeyError("a list")
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise OptionError(
            f"'{file}' is not a COCO annotation file ({type(cause).__name__}: {cause})",
            expected="JSON with the lists 'images', 'annotations' and 'categories'",
            fix="pass --data FOLDER with annotations.json and the images beside it",
        ) from None
    return dict(content)


@contextmanager
def _opened(data: Path) -> Iterator[Callable[[str], bytes | Path]]:
    """A function from a file name to something that load_image takes."""
    if not (data / "images.tar").is_file():
        folder = data / "images" if (data / "images").is_dir() else data
        yield lambda name: folder / name
        return
    with tarfile.open(data / "images.tar") as archive:
        inside = {Path(name).name: name for name in archive.getnames()}

        def read(name: str) -> bytes:
            member = archive.extractfile(inside[name]) if name in inside else None
            return member.read() if member else b""

        yield read
