"""Reading open questions: queries.json with its photographs, or the stuff of a COCO-style folder with label masks.

docs/evaluate.md says what the files hold. All entries, the masks and the sizes of the photographs are checked before
the first photograph is encoded; an error names the entry.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from foveate.cli.evaluate.coco import RASTER, Folder, find_scale, finite, half_of, on_raster, open_images, open_tar
from foveate.core.checks import check_int, check_pair, check_type
from foveate.core.errors import FoveateError, OptionError
from foveate.core.image import load_image

QUERIES, ABSENT = "queries.json", "absent"  # a file; a set: what its questions ask for is not in the photograph
ABOVE = 2  # a folder of photographs lies in that of queries.json, or in one of so many above it
LEAST_STUFF = 0.03  # of a photograph; a class that covers less is not asked for
STUFF_SUFFIXES = ("merged", "other", "stuff")
STUFF_NAMES = {  # what people say, where it is not the name's parts in reverse ("wall-brick": "brick wall")
    "floor-wood": "wooden floor",
    "playingfield": "playing field",
    "tree-merged": "trees",
    "wall-tile": "tiled wall",
    "wall-wood": "wooden wall",
    "window-blind": "window blind",
}
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
    """A folder that was checked: photographs, each with a question or more."""

    path: Path
    photographs: tuple[Photograph, ...]

    def read(
        self, limit: int | None = None, only: Container[int] | None = None
    ) -> Iterator[tuple[int, Photograph, NDArray[np.uint8]]]:
        """Photographs with their numbers and pixels, at most `limit` of them; `only` those of these numbers."""
        if limit is not None:
            check_int("limit", limit, fix="leave it out for all photographs")
        with _open_folders() as read:
            for number, photograph in enumerate(self.photographs[:limit]):
                if only is None or number in only:
                    yield number, photograph, read(photograph.folder, photograph.file)

    def half(self, half: str) -> Questions:
        """Those about the photographs of one half alone (`half_of`)."""
        return replace(self, photographs=tuple(p for p in self.photographs if half_of(p.file) == half))


class _Region(NamedTuple):
    """A part of a mask: "polygon" or "hole" with points (x, y) in pixels, or "mask" with the name of a file."""

    what: str
    content: Any


class _Entry(NamedTuple):
    """One of queries.json, of which a photograph is looked for in `folder`."""

    number: int
    folder: Path
    file: str
    size: tuple[int, int]
    text: str
    set: str
    kind: str
    regions: tuple[_Region, ...]


# --- queries.json -----------------------------------------------------------------------------------------------------


def read_questions(data: Path) -> Questions:
    """Read and check queries.json, its masks and its photographs. Raises OptionError that names the entry."""
    file = data / QUERIES
    try:
        content = check_type("its content", json.loads(file.read_text("utf-8")), list)
    except (OSError, ValueError, RecursionError) as cause:
        why = getattr(cause, "strerror", None) or f"{type(cause).__name__}: {str(cause).splitlines()[0][:100]}"
        raise _wrong(file, f"no list of questions ({why})", "write it again") from None
    asked: dict[tuple[Path, str], list[_Entry]] = {}
    for number, value in enumerate(content):
        with _naming(file, number, value):
            entry = _entry(data, number, value)
        asked.setdefault((entry.folder, entry.file), []).append(entry)
    if not any(entry.regions for entries in asked.values() for entry in entries):
        what = "an empty list" if not content else f"none of its {len(content)} questions has a region"
        raise _wrong(file, what, "add questions about things that are there, each with its regions")
    photographs = []
    with _open_folders() as read:
        for (folder, name), entries in asked.items():
            questions = []
            with _naming(file, entries[0].number, entries[0]):
                size = read(folder, name).shape[1::-1]
            for entry in entries:
                with _naming(file, entry.number, entry):
                    questions.append(Question(entry.text, entry.set, entry.kind, _mask(data, entry, size)))
            photographs.append(Photograph(folder, name, tuple(questions)))
    return Questions(data, tuple(photographs))


def _entry(data: Path, number: int, value: Any) -> _Entry:
    if not isinstance(value, dict):
        raise TypeError("no JSON object")
    texts = {key: check_type(key, value[key], str).strip() for key in ("set", "kind", "file", "query")}
    for key, text in texts.items():
        if not text:
            raise ValueError(f"its {key} is empty")
    width, height = check_pair("size", value["size"])
    regions = tuple(_region(data, region) for region in check_type("regions", value["regions"], list))
    if (texts["set"] == ABSENT) == bool(regions):
        it_is = f"of the set {texts['set']!r}, " + ("but has" if regions else "without")
        raise ValueError(f"{it_is} regions (only what is absent has none)")
    folder = _folder_of(data, check_type("dataset", value.get("dataset", ""), str))
    _inside(texts["file"])
    return _Entry(number, folder, texts["file"], (width, height), texts["query"], texts["set"], texts["kind"], regions)


def _region(data: Path, value: Any) -> _Region:
    """Of [[x, y], ...], {"hole": [[x, y], ...]} or {"mask": file}."""
    what, content = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else ("polygon", value)
    if what == "mask":
        return _Region(what, data / _inside(check_type("mask", content, str)))
    if what not in ("polygon", "hole") or not isinstance(content, list):
        raise ValueError(f"{str(value)[:60]} is no region: a polygon, {{'hole': polygon}} or {{'mask': file}}")
    if len(content) < 3:
        raise ValueError(f"a {what} has {len(content)} points, and needs three")
    if not all(isinstance(point, list) and len(point) == 2 for point in content):
        raise ValueError(f"a {what} has a point that is not [x, y]")
    return _Region(what, [(finite(x), finite(y)) for x, y in content])


def _inside(name: str) -> str:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"'{name}' lies outside of the folder")
    return name


def _folder_of(data: Path, dataset: str) -> Path:
    """Where photographs are: beside queries.json, or in a folder of this name there or above."""
    if not dataset:
        return data
    places = [place / _inside(dataset) for place in (data.resolve(), *data.resolve().parents[:ABOVE])]
    for place in places:
        if place.is_dir():
            return place
    raise ValueError(f"dataset '{dataset}' is no folder; looked for " + ", ".join(f"'{place}'" for place in places))


def _mask(data: Path, entry: _Entry, size: tuple[int, int]) -> Mask | None:
    """Regions -> bool [H / 8, W / 8]. Polygons cover every sample that they touch; then holes are cut; then masks."""
    if entry.size != size:
        raise ValueError(f"size is {list(entry.size)}, but '{entry.file}' has {size[0]} x {size[1]} pixels")
    if not entry.regions:
        return None
    h, w = _raster(size[1], size[0])
    canvas = Image.new("L", (w, h))
    for what, fill in (("polygon", 1), ("hole", 0)):
        for region in entry.regions:
            if region.what == what:
                points = [(x * w / size[0], y * h / size[1]) for x, y in region.content]
                ImageDraw.Draw(canvas).polygon(points, fill=fill)
    mask = np.array(canvas, bool)
    for region in entry.regions:
        if region.what == "mask":
            mask |= _read_mask(region.content, size, (h, w))
    if not mask.any():
        raise ValueError("its regions cover nothing of the photograph")
    return mask


def _read_mask(path: Path, size: tuple[int, int], shape: tuple[int, int]) -> Mask:
    pixels = load_image(path).rgb.any(-1)
    if pixels.shape != size[::-1]:
        raise ValueError(
            f"'{path}' has {pixels.shape[1]} x {pixels.shape[0]} pixels, its photograph {size[0]} x {size[1]}"
        )
    return on_raster(pixels.astype(np.uint8), shape) & pixels.any()


def _raster(height: int, width: int) -> tuple[int, int]:
    return max(1, height // RASTER), max(1, width // RASTER)


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


@contextmanager
def _naming(file: Path, number: int, entry: Any) -> Iterator[None]:
    """Errors inside become an OptionError that names an entry."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError, FoveateError) as cause:
        text = entry.text if isinstance(entry, _Entry) else entry.get("query") if isinstance(entry, dict) else None
        what = f"lacks {cause}" if isinstance(cause, KeyError) else getattr(cause, "received", str(cause))
        name = f"entry {number}" + (f" ({text[:40]!r})" if isinstance(text, str) else "")
        raise _wrong(file, f"{name}: {what}", f"mend entry {number} (the first is 0), or take it out") from None


def _wrong(file: Path, what: str, fix: str) -> OptionError:
    return OptionError(
        f"'{file}': {what}",
        expected="a JSON list of questions with set, kind, file, query, size [width, height] and regions, and dataset "
        "where the photographs are not beside it (docs/evaluate.md)",
        fix=fix,
    )


# --- stuff of a COCO-style folder -------------------------------------------------------------------------------------


def read_stuff(folder: Folder) -> Questions | None:
    """What covers 3 % of a photograph and more, and is no thing, as questions; None for a folder without label masks.

    Labels are `semantic/NAME.png` in masks.tar for NAME.jpg; "semantic" of classes.json has their names.
    """
    tar, classes = folder.path / "masks.tar", folder.path / "classes.json"
    if not tar.is_file() or not classes.is_file():
        return None
    names = _stuff_names(classes, folder.names)
    photographs = []
    with open_tar(tar) as find:
        for image in (*folder.images, *folder.empty):
            label = f"semantic/{Path(image.file).stem}.png"
            content = find(label)
            if content is None:
                continue
            labels = _labels(content, f"'{label}' in '{tar}'")
            find_scale(image, labels.shape)
            masks = {name: labels == number for number, name in names.items()}
            some = {name: mask for name, mask in masks.items() if mask.mean() >= LEAST_STUFF}
            rasters = {name: on_raster(mask.astype(np.uint8), _raster(*mask.shape)) for name, mask in some.items()}
            questions = [Question(name, "stuff", "stuff", mask) for name, mask in rasters.items()]
            if questions:
                photographs.append(Photograph(folder.path, image.file, tuple(questions)))
    return Questions(folder.path, tuple(photographs)) if photographs else None


def stuff_name(name: str) -> str:
    """A class of COCO's stuff in the words of people.

    >>> stuff_name("wall-brick"), stuff_name("sky-other-merged")
    ('brick wall', 'sky')
    """
    return STUFF_NAMES.get(name) or " ".join(part for part in name.split("-")[::-1] if part not in STUFF_SUFFIXES)


def _stuff_names(classes: Path, things: tuple[str, ...]) -> dict[int, str]:
    try:
        names = json.loads(classes.read_text("utf-8"))["semantic"]
        every = {int(number): check_type("name", name, str) for number, name in names.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise OptionError(
            f"'{classes}' has no names of labels ({type(cause).__name__}: {str(cause).splitlines()[0][:100]})",
            expected='{"semantic": {"0": "unlabeled", "187": "sky", ...}}',
            fix="mend it, or take masks.tar out of the folder: then stuff is not asked for",
        ) from None
    return {number: stuff_name(name) for number, name in every.items() if number and name not in things}


def _labels(content: bytes, what: str) -> NDArray[np.integer]:
    """The numbers of a PNG of labels: [H, W]."""
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as image:
            labels = np.array(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as cause:
        labels, what = np.empty(0, np.uint8), f"{what} ({cause})"
    if labels.ndim != 2 or labels.dtype.kind not in "ui":
        raise OptionError(
            f"{what} is no picture of labels",
            expected="a PNG of one channel with a class's number in every pixel",
            fix="make it again, or take masks.tar out of the folder: then stuff is not asked for",
        )
    return labels
