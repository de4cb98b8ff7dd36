"""Does a map say where people look? Metrics of saliency maps against fixations, and the files that fixations come in.

NSS, AUC-Judd, CC and KL as the MIT/Tuebingen benchmark has them. Maps and fixations are compared on a raster of the
image's shape, RASTER pixels along at most. A map that is a constant says nothing: NSS and CC are then NaN.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.channels.attention import make_gaze_plane
from foveate.cli.evaluate.agreement import SEED, circumstances, mean_estimate
from foveate.cli.evaluate.relevance import ignorant_maps
from foveate.core.errors import OptionError
from foveate.core.grid import Grid, resize_map
from foveate.core.image import load_image
from foveate.pipeline import encode, score

Floats = NDArray[np.float64]
RASTER = 512
EPS = float(np.finfo(np.float64).eps)
JPEG = (".jpg", ".jpeg")  # leaves faint pixels around those that are set
POINTS, PICTURES = (".csv", ".txt"), (".png", ".bmp", *JPEG)
ENDINGS = ("", "_fixPts", "_fixations")  # of a file's name, behind the image's: MIT's, and a usual one
DENSE = 0.05  # a picture with more pixels set than this is a density, and no fixations
FORMATS = "NAME.csv with x,y in pixels, a line a fixation, or NAME.png, 0 but for the fixated pixels"


class Likeness(NamedTuple):
    """Of a map with fixations."""

    nss: float  # mean of the standardised map at the fixated pixels; chance 0
    auc: float  # area under the ROC of fixated pixels, thresholds at their values (Judd); chance .5
    cc: float  # correlation with the fixations' density
    kl: float  # Kullback-Leibler divergence of the map from that density, in nats; 0 is perfect


def compare_gaze(plane: NDArray[Any], fixated: NDArray[np.bool_], density: NDArray[Any]) -> Likeness:
    """A map [h, w] with the fixated pixels [h, w], one at least, and their density [h, w], not all 0.

    Raises OptionError for shapes that differ, values that are not finite, or no fixation.
    """
    at = np.asarray(fixated, bool)
    one, other = (np.asarray(each, np.float64) for each in (plane, density))
    if not (one.shape == at.shape == other.shape and at.any() and np.isfinite(one).all() and other.max() > 0):
        raise OptionError(
            f"a map {list(one.shape)} with {int(at.sum())} fixated pixels of {list(at.shape)}",
            expected="finite maps of one shape, a fixation and a density that is not 0",
            fix="foveate.core.grid.resize_map(plane, shape) moves a map to another raster",
        )
    spread = one.std()
    standard = (one - one.mean()) / spread if spread > EPS else np.full_like(one, np.nan)
    cc = float((standard * (other - other.mean())).mean() / other.std()) if other.std() > EPS else float("nan")
    return Likeness(float(standard[at].mean()), _auc_judd(one, at), cc, _divergence(one, other))


def _auc_judd(plane: Floats, at: NDArray[np.bool_]) -> float:
    """Of true against false positives at the threshold of each fixated value, by trapezoids."""
    inside, outside = np.sort(plane[at]), np.sort(plane[~at])
    if not outside.size:
        return float("nan")
    levels = np.unique(inside)[::-1]
    hits = 1 - np.searchsorted(inside, levels) / inside.size
    alarms = 1 - np.searchsorted(outside, levels) / outside.size
    return float(np.trapezoid([0, *hits, 1], [0, *alarms, 1]))


def _divergence(plane: Floats, density: Floats) -> float:
    given, true = plane - min(0.0, plane.min()), density / density.sum()
    given = given / given.sum() if given.sum() > 0 else np.full_like(given, 1 / given.size)
    return float((true * np.log(EPS + true / (given + EPS))).sum())


def read_fixations(path: Path, size: tuple[int, int]) -> Floats:
    """Fixations of an image of `size` (H, W) pixels, rows (y, x): [n, 2]. They may lie outside of it.

    A table has x and y first, or columns of these names. Of a picture, which has the image's shape, every pixel that is
    not 0 is a fixation, in JPEG every one above 127. Raises OptionError for a file that is neither.
    """
    if path.suffix.lower() in POINTS:
        return _read_table(path)
    if path.suffix.lower() in PICTURES:
        return _read_picture(path, size)
    raise OptionError(
        f"fixations in '{path.name}'",
        expected=FORMATS,
        fix="of MATLAB: scipy.io.loadmat, then numpy.savetxt of x,y; SciPy is no dependency",
    )


def _read_table(path: Path) -> Floats:
    try:
        rows = [row for row in csv.reader(path.read_text("utf-8-sig").splitlines()) if any(map(str.strip, row))]
    except (OSError, UnicodeError, csv.Error) as cause:
        raise OptionError(f"'{path}' ({cause})", expected=FORMATS, fix="save it as plain text, in UTF-8") from cause
    x, y, first = 0, 1, 0
    if rows and not _number(rows[0][0]):
        names, first = [name.strip().lower() for name in rows[0]], 1
        if not {"x", "y"} <= {*names}:
            raise OptionError(f"columns {rows[0]} of '{path.name}'", expected="x and y among them", fix=FORMATS)
        x, y = names.index("x"), names.index("y")
    found = []
    for number, row in enumerate(rows[first:], first + 1):
        if len(row) <= max(x, y) or not (_number(row[y]) and _number(row[x])):
            raise OptionError(
                f"line {number} of '{path.name}': {','.join(row)[:40]!r}", expected=FORMATS, fix="mend it"
            )
        found.append((float(row[y]), float(row[x])))
    return np.array(found, np.float64).reshape(-1, 2)


def _number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _read_picture(path: Path, size: tuple[int, int]) -> Floats:
    there = load_image(path).rgb.max(-1) > (127 if path.suffix.lower() in JPEG else 0)
    if there.shape != size or there.mean() > DENSE:
        raise OptionError(
            f"'{path.name}' of {there.shape[0]} x {there.shape[1]} pixels, {there.mean():.0%} of them set",
            expected=f"fixated pixels of an image of {size[0]} x {size[1]}, {DENSE:.0%} at most",
            fix="pass the map of points, not the blurred one",
        )
    return np.argwhere(there).astype(np.float64) + 0.5


def find_fixations(folder: Path | None, images: Sequence[Path]) -> tuple[dict[Path, Path], int]:
    """By image, the file of its fixations; and how many images have none.

    They lie in the folder, all the way down (of several, that of a folder named alike); without a folder beside their
    image. A picture there that is named as another one's fixations is no image. Raises OptionError where there are no
    fixations, or several that may be meant.
    """
    images = [image.parent.resolve() / image.name for image in images]
    places = {image.parent for image in images} if folder is None else {folder.resolve()}
    there = Counter(str(image.with_suffix("")) for image in images)
    pictures = {each for each in images if not (_is_map(each, there) and places.intersection(each.parents))}
    named, found = dict[str, list[Path]](), dict[Path, Path]()
    for path in sorted(path for place in places for path in (place.glob("*") if folder is None else place.rglob("*"))):
        if path.is_file() and path not in pictures:
            named.setdefault(path.name, []).append(path)
    for image in images:
        if image not in pictures:
            continue
        names = (image.stem + end + kind for kind in (*POINTS, ".mat", *PICTURES) for end in ENDINGS)
        every = ([p for p in named.get(name, ()) if folder or p.parent == image.parent] for name in names)
        some = next(filter(None, every), [])
        here = [path for path in some if path.parent.name == image.parent.name] if len(some) > 1 else some
        if some and len(here) != 1:
            raise OptionError(
                f"{len(some)} files '{some[0].name}' in '{folder}'", expected="one", fix="evaluate one folder at a time"
            )
        if here:
            found[image] = here[0]
    if not found:
        raise OptionError(
            f"no fixations of {len(pictures)} images " + (f"in '{folder}'" if folder else "beside them"),
            expected=FORMATS,
            fix="pass their folder: --fixations",
        )
    return found, len(pictures) - len(found)


def _is_map(path: Path, images: Counter[str]) -> bool:
    """Whether a picture is, by its name, the fixations of another one beside it: NAME.png, NAME_fixPts.jpg."""
    name = str(path.with_suffix(""))
    longer = any(name.removesuffix(end) in images for end in ENDINGS if end and name.endswith(end))
    return longer or (path.suffix.lower() == ".png" and images[name] > 1)


def measure(
    files: Mapping[Path, Path],
    encoder: str,
    query: str | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """-> report with a row a map, means over images. files: of `find_fixations`; query: its map is a row, too."""
    rows: dict[str, list[Likeness]] = {}
    fixations = outside = 0
    for number, (image, file) in enumerate(files.items()):
        rgb = load_image(image).rgb
        every = read_fixations(file, rgb.shape[:2])
        points = every[((every >= 0) & (every < rgb.shape[:2])).all(1)]
        outside += len(every) - len(points)
        progress(number + 1)
        if not len(points):
            continue
        fixations += len(points)
        scale = min(1.0, RASTER / max(rgb.shape[:2]))
        h, w = (max(1, round(length * scale)) for length in rgb.shape[:2])
        raster = Grid(h, w, *rgb.shape[:2])
        fixated = np.zeros((h, w), bool)
        fixated[tuple((points * (h / rgb.shape[0], w / rgb.shape[1])).astype(int).T)] = True
        density = make_gaze_plane(np.column_stack([points, np.ones(len(points))]), raster)
        texture = encode(rgb, encoder=encoder, channels=["saliency"] if query is None else None)
        maps = ignorant_maps(texture, (h, w), np.random.default_rng([SEED, number])) | {"uniform": np.ones((h, w))}
        if query is not None:
            maps = {f'"{query}"': resize_map(score(texture, query, encoder=encoder).map, (h, w)), **maps}
        for name, plane in maps.items():
            rows.setdefault(name, []).append(compare_gaze(plane, fixated, density))
    if not rows:
        raise OptionError(
            f"{len(files)} files with {outside} fixations outside of their images, and none inside",
            expected="one on an image, at least",
            fix=f"{FORMATS}; x goes first, and both count pixels of the image as it is stored",
        )
    images = len(next(iter(rows.values())))
    return {
        "title": f"maps beside {fixations} fixations on {images} images",
        "columns": ("map", *(name.upper() for name in Likeness._fields)),
        "rows": [_row(name, found) for name, found in rows.items()],
        "images": images,
        "fixations": fixations,
        "outside": outside,
        "encoder": encoder,
        **circumstances(),
    }


def _row(name: str, found: Sequence[Likeness]) -> dict[str, Any]:
    means = [mean_estimate(values, range(len(found))) for values in zip(*found, strict=True)]
    known = {field: mean.record() for field, mean in zip(Likeness._fields, means, strict=True)}
    return {"map": name, "cells": [name, *map(str, means)], **known}
