"""Large images with small things in them, made of the photographs of a COCO-style folder with label masks.

The ground is a patchwork of pieces of grass, water, sand, trees, roads and the like without a thing in them, enlarged
and joined, under uneven light, with noise. Things are cut out, shrunk to 80 to 200 pixels, and set down far from one
another; those at a border, or that fill less than 0.3 of their box, are left out. All follows from the seed and the
half.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.cli.evaluate.coco import open_images, open_tar, read_folder
from foveate.core.grid import Box

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
GROUNDS = (147, 148, 149, 154, 155, 159, 178, 184, 187, 191, 192, 193, 194, 198, 125, 145, 171, 175)  # COCO panoptic
PIECE, ENLARGED, LEAST_PURE = 120, 2, 0.99  # pixels of the photograph, how much they are enlarged, share of the label
REGIONS, SOFT = 12, 16  # of the ground; the scale of its plan in pixels
THINGS = 4
MEGAPIXELS = 20, 60
SIDES = 80, 200  # of a thing, along its long side
LEAST_FULL = 0.3  # share of its box that a thing fills
APART = 700  # pixels between two things' corners
NOISE = 2.0
REACH = 180  # pixels around a thing in which it must be known
PATCH, PERIOD = 192, 1152  # pixels of the parts that a quilt is made of, and after which it repeats


class Thing(NamedTuple):
    """A thing cut out of a photograph: its name, pixels uint8 [h, w, 3], and how opaque they are, float32 [h, w]."""

    name: str
    rgb: Bytes
    opacity: Floats


@dataclass(frozen=True, eq=False)
class Material:
    """What one half of the photographs offers."""

    names: tuple[str, ...]
    things: tuple[Thing, ...]
    pieces: tuple[Bytes, ...]


@dataclass(frozen=True, eq=False)
class LargeScene:
    """An image uint8 [H, W, 3], the boxes of its things by name, and names of things that are not in it."""

    rgb: Bytes
    present: dict[str, Box]
    absent: tuple[str, ...]


def read_material(data: Path, half: str) -> Material:
    """Things and pieces of ground of a folder with annotations.json, images.tar and masks.tar."""
    folder = read_folder(data)
    whole, things, pieces = folder.half(half), [], []
    with open_images(data) as read, open_tar(data / "masks.tar") as find:
        for image in whole.images:
            rgb = read(image.file)
            for outline in image.outlines:
                thing = cut_out(outline.thing, rgb, outline.polygons)
                if thing is not None:
                    things.append(thing)
            content = find(f"semantic/{Path(image.file).stem}.png")
            if content is not None:
                labels = np.asarray(Image.open(io.BytesIO(content)))
                pieces += list(cut_pieces(rgb, labels))
    return Material(folder.names, tuple(things), tuple(pieces))


def cut_out(name: str, rgb: Bytes, polygons: list[NDArray[np.float64]]) -> Thing | None:
    """A thing along its outline, or None of one that is small, cut by the border, or mostly something else's."""
    mask = np.zeros(rgb.shape[:2], np.uint8)
    for polygon in polygons:
        cv2.fillPoly(mask, [np.round(polygon).astype(np.int32)], [255.0])
    ys, xs = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(ys):
        return None
    y0, y1, x0, x1 = int(ys[0]), int(ys[-1]) + 1, int(xs[0]), int(xs[-1]) + 1
    inside = y0 > 1 and x0 > 1 and y1 < rgb.shape[0] - 2 and x1 < rgb.shape[1] - 2
    part = mask[y0:y1, x0:x1]
    if not inside or max(part.shape) < SIDES[0] or (part > 0).mean() < LEAST_FULL:
        return None
    return Thing(name, rgb[y0:y1, x0:x1].copy(), (part > 0).astype(np.float32))


def shrink_thing(thing: Thing, long_side: float) -> Thing:
    """A thing, so many pixels long."""
    ratio = long_side / max(thing.opacity.shape)
    h, w = (max(1, round(side * ratio)) for side in thing.opacity.shape)
    rgb, opacity = (cv2.resize(plane, (w, h), interpolation=cv2.INTER_AREA) for plane in (thing.rgb, thing.opacity))
    return thing._replace(rgb=np.asarray(rgb, np.uint8), opacity=np.asarray(opacity, np.float32))


def paste(thing: Thing, rgb: Bytes, y: int, x: int) -> None:
    """Set a thing into an image, in place."""
    h, w = thing.opacity.shape
    opacity, part = thing.opacity[..., None], rgb[y : y + h, x : x + w]
    rgb[y : y + h, x : x + w] = np.rint(opacity * thing.rgb + (1 - opacity) * part).astype(np.uint8)


def cut_pieces(rgb: Bytes, labels: NDArray[np.uint8]) -> Iterator[Bytes]:
    """Squares of a photograph that show nothing but one kind of ground, at most one a kind."""
    for kind in GROUNDS:
        pure = cv2.boxFilter((labels == kind).astype(np.float32), -1, (PIECE, PIECE), anchor=(0, 0))
        pure = pure[: max(0, rgb.shape[0] - PIECE), : max(0, rgb.shape[1] - PIECE)]
        if pure.size and pure.max() >= LEAST_PURE:
            y, x = np.unravel_index(int(pure.argmax()), pure.shape)
            yield rgb[y : y + PIECE, x : x + PIECE].copy()


def make_scene(
    seed: int, material: Material, things: int = THINGS, known: Callable[[str, Bytes], bool] = lambda name, rgb: True
) -> LargeScene:
    """A scene with so many small things, each of another name, and as many names of things that are not there.

    `known`: whether a thing of this name may be taken, by the pixels around it where it stands; else it is left out.
    """
    random = np.random.default_rng(seed)
    pixels = random.uniform(*MEGAPIXELS) * 1e6
    aspect = random.choice([4 / 3, 3 / 2, 16 / 9, 3 / 4])
    height, width = round((pixels / aspect) ** 0.5), round((pixels * aspect) ** 0.5)
    rgb = make_ground(random, (height, width), material.pieces)
    present: dict[str, Box] = {}
    places: list[tuple[int, int]] = []
    by_name: dict[str, list[Thing]] = {}
    for thing in material.things:
        by_name.setdefault(thing.name, []).append(thing)
    for name in random.permutation(sorted(by_name)):
        thing = by_name[name][random.integers(len(by_name[name]))]
        thing = shrink_thing(thing, random.uniform(SIDES[0], min(SIDES[1], max(thing.opacity.shape))))
        h, w = thing.opacity.shape
        while True:
            y, x = int(random.integers(20, height - h - 20)), int(random.integers(20, width - w - 20))
            if all(max(abs(y - v), abs(x - u)) >= APART for v, u in places):
                break
        around = rgb[max(0, y - REACH) : y + h + REACH, max(0, x - REACH) : x + w + REACH]
        before = around.copy()
        paste(thing, rgb, y, x)
        if not known(name, around):
            around[:] = before
            continue
        places.append((y, x))
        present[str(name)] = y, x, y + h, x + w
        if len(present) == things:
            break
    others = random.permutation([name for name in material.names if name not in present])[:things]
    return LargeScene(rgb, present, tuple(map(str, others)))


def make_ground(random: np.random.Generator, size: tuple[int, int], pieces: tuple[Bytes, ...]) -> Bytes:
    """Regions around random points, each of one piece as a quilt; uneven light, and noise: [H, W, 3]."""
    height, width = size
    h, w = -(-height // SOFT), -(-width // SOFT)
    seeds = random.uniform(0, 1, (REGIONS, 2)) * (h, w)
    rows, cols = np.mgrid[:h, :w]
    bend = [cv2.resize(random.normal(0, 12, (9, 9)).astype(np.float32), (w, h), interpolation=cv2.INTER_CUBIC)
            for _ in range(2)]  # fmt: skip
    distance = [(rows + bend[0] - y) ** 2 + (cols + bend[1] - x) ** 2 for y, x in seeds]
    plan = np.argmin(distance, 0)
    out = np.zeros((height, width, 3), np.uint8)
    chosen = random.permutation(len(pieces))
    light = 1 + cv2.resize(random.normal(0, 0.08, (6, 8)).astype(np.float32), (w, h), interpolation=cv2.INTER_CUBIC)
    for region in range(REGIONS):
        piece = pieces[chosen[region % len(chosen)]]
        large = quilt(random, piece)
        mask = cv2.blur((plan == region).astype(np.float32), (3, 3))
        ys, xs = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        if not len(ys):
            continue
        y0, y1 = int(ys[0]) * SOFT, min(height, (int(ys[-1]) + 1) * SOFT)
        x0, x1 = int(xs[0]) * SOFT, min(width, (int(xs[-1]) + 1) * SOFT)
        part = mask[ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1]
        for top in range(y0, y1, 512):  # in strips: the floats of 60 million pixels would be a gigabyte
            bottom = min(y1, top + 512)
            strip = part[(top - y0) // SOFT : -(-(bottom - y0) // SOFT)]
            fine = cv2.resize(strip, (strip.shape[1] * SOFT, strip.shape[0] * SOFT), interpolation=cv2.INTER_LINEAR)
            fine = fine[: bottom - top, : x1 - x0, None]
            filled = large[np.ix_(np.arange(top, bottom) % len(large), np.arange(x0, x1) % large.shape[1])]
            out[top:bottom, x0:x1] = np.clip(out[top:bottom, x0:x1] + fine * filled, 0, 255).astype(np.uint8)
    for top in range(0, height, 512):
        bottom = min(height, top + 512)
        strip = light[top // SOFT : -(-bottom // SOFT)]
        fine = cv2.resize(strip, (w * SOFT, strip.shape[0] * SOFT))[: bottom - top, :width, None]
        lit = out[top:bottom] * fine + random.normal(0, NOISE, (bottom - top, width, 1)).astype(np.float32)
        out[top:bottom] = np.clip(np.rint(lit), 0, 255).astype(np.uint8)
    return out


def quilt(random: np.random.Generator, piece: Bytes) -> Bytes:
    """A piece of ground as a large one, uint8 [PERIOD, PERIOD, 3], that repeats: parts of it, softly joined."""
    large = cv2.resize(piece, None, fx=ENLARGED, fy=ENLARGED, interpolation=cv2.INTER_CUBIC)
    wave = np.sin(np.pi * (np.arange(PATCH) + 0.5) / PATCH).astype(np.float32) ** 2
    weight = np.outer(wave, wave)[..., None]
    total, sure = np.zeros((PERIOD, PERIOD, 3), np.float32), np.zeros((PERIOD, PERIOD, 1), np.float32)
    for y in range(0, PERIOD, PATCH // 2):
        for x in range(0, PERIOD, PATCH // 2):
            top, left = random.integers(0, len(large) - PATCH + 1, 2)
            part = large[top : top + PATCH, left : left + PATCH]
            place = np.ix_(np.arange(y, y + PATCH) % PERIOD, np.arange(x, x + PATCH) % PERIOD)
            total[place] += weight * (part if random.random() < 0.5 else part[:, ::-1])
            sure[place] += weight
    return np.rint(total / sure).astype(np.uint8)
