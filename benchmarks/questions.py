"""Reading open questions: a folder with queries.json, a list of questions about photographs with regions of answers.

    {"set": "parts", "kind": "part", "file": "a.jpg", "size": [640, 480], "query": "the dog's ears", "regions": [...]}

A region is a polygon of [x, y] in pixels, {"hole": polygon} or {"mask": file}; what is absent has none. Photographs lie
beside the file, or in a folder named by "dataset" there or up to two folders above. Kinds are those of open.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from foveate.cli.evaluate.coco import RASTER, half_of, on_raster, open_images
from foveate.core.errors import FoveateError, OptionError
from foveate.core.image import load_image

ABOVE = 2  # folders above queries.json in which a dataset is looked for
Mask = NDArray[np.bool_]


class Question(NamedTuple):
    """A question about a photograph; mask bool [H / 8, W / 8], never empty, or None of something absent."""

    text: str
    set: str
    kind: str
    mask: Mask | None


class Photograph(NamedTuple):
    """A file, in a folder as `open_images` takes it, and what is asked about it."""

    folder: Path
    file: str
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Questions:
    """A folder that was read: photographs, each with a question or more."""

    path: Path
    photographs: tuple[Photograph, ...]

    def read(
        self, limit: int | None = None, only: Container[int] | None = None
    ) -> Iterator[tuple[int, Photograph, NDArray[np.uint8]]]:
        """Photographs with their numbers and pixels, at most `limit` of them; `only` those of these numbers."""
        with _open_folders() as read:
            for number, photograph in enumerate(self.photographs[:limit]):
                if only is None or number in only:
                    yield number, photograph, read(photograph.folder, photograph.file)

    def half(self, half: str) -> Questions:
        """Those about the photographs of one half alone (`half_of`)."""
        return replace(self, photographs=tuple(p for p in self.photographs if half_of(p.file) == half))


def read_questions(data: Path) -> Questions:
    """Read queries.json with its masks. Raises OptionError that names the entry."""
    file = data / "queries.json"
    try:
        entries = json.loads(file.read_text("utf-8"))
        if not isinstance(entries, list) or not any(entry["regions"] for entry in entries):
            raise ValueError("no list of questions, some with regions")
    except (OSError, ValueError, KeyError, TypeError) as cause:
        raise _wrong(file, str(cause)) from None
    asked: dict[tuple[Path, str], list[Question]] = {}
    sizes: dict[tuple[Path, str], tuple[int, int]] = {}
    with _open_folders() as read:
        for number, entry in enumerate(entries):
            try:
                folder, name = _folder_of(data, entry.get("dataset", "")), entry["file"]
                if (folder, name) not in sizes:
                    sizes[folder, name] = read(folder, name).shape[1::-1]
                size = sizes[folder, name]
                if tuple(entry["size"]) != size:
                    raise ValueError(f"size {entry['size']}, but '{name}' has {size[0]} x {size[1]} pixels")
                question = Question(entry["query"], entry["set"], entry["kind"], _mask(data, entry["regions"], size))
            except (KeyError, TypeError, ValueError, FoveateError) as cause:
                raise _wrong(file, f"entry {number}: {cause}") from None
            asked.setdefault((folder, name), []).append(question)
    return Questions(data, tuple(Photograph(folder, file, tuple(some)) for (folder, file), some in asked.items()))


def _wrong(file: Path, what: str) -> OptionError:
    expected = "a JSON list of questions with set, kind, file, query, size [width, height] and regions"
    return OptionError(f"'{file}': {what}", expected=expected, fix="docs/evaluate.md shows one")


def _folder_of(data: Path, dataset: str) -> Path:
    places = [place / dataset for place in (data.resolve(), *data.resolve().parents[:ABOVE])]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise ValueError(f"dataset '{dataset}' is no folder; looked for {', '.join(map(str, places))}")
    return found if dataset else data


def _mask(data: Path, regions: list[Any], size: tuple[int, int]) -> Mask | None:
    """Regions -> bool [H / 8, W / 8]. Polygons cover every sample that they touch; then holes are cut; then masks."""
    if not regions:
        return None
    h, w = (max(1, side // RASTER) for side in size[::-1])
    canvas, masks = Image.new("L", (w, h)), []
    parts = [next(iter(each.items())) if isinstance(each, dict) else ("polygon", each) for each in regions]
    for what, content in sorted(parts, key=lambda part: part[0] == "hole"):
        if what == "mask":
            pixels = np.asarray(load_image(data / content).rgb.any(-1), np.uint8)
            masks.append(on_raster(pixels, (h, w)) & bool(pixels.any()))
        else:
            points = [(x * w / size[0], y * h / size[1]) for x, y in content]
            ImageDraw.Draw(canvas).polygon(points, fill=int(what == "polygon"))
    mask = np.logical_or.reduce([np.array(canvas, bool), *masks])
    if not mask.any():
        raise ValueError("its regions cover nothing of the photograph")
    return mask


@contextmanager
def _open_folders() -> Iterator[Callable[[Path, str], NDArray[np.uint8]]]:
    """A function from a folder and a file name to an image [H, W, 3]."""
    with ExitStack() as stack:
        readers: dict[Path, Callable[[str], NDArray[np.uint8]]] = {}

        def read(folder: Path, file: str) -> NDArray[np.uint8]:
            if folder not in readers:
                readers[folder] = stack.enter_context(open_images(folder))
            return readers[folder](file)

        yield read
