"""Training samples: crops of photographs with both teachers' answers, and mosaics of tiny ImageNet with boxes.

A sample is `side` pixels square. Targets lie on its stride-8 cells; the classifier's words on 32-pixel blocks.
"""

from __future__ import annotations

import io
import json
import random
import tarfile
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from targets import RASTER, photographs, target_name
from tower import STRIDE
from tqdm import tqdm

CELL, BLOCK = STRIDE, 32
GREY = 114
ZOOM = (0.9, 2.2)  # a photograph of short side 256 at the library's 512-pixel default is zoomed by about 1.5
FAR = (0.4, 1.1)  # in mosaics of photographs: small things, seen sharply, that the teachers saw at a larger size
NOTHING = -1


@dataclass(frozen=True)
class Sample:
    rgb: np.ndarray  # uint8 [side, side, 3]
    soft: np.ndarray  # float32 [80, cells, cells], the detector's answer
    valid: np.ndarray  # bool [cells, cells]: on the photograph, and the detector was asked
    words: np.ndarray  # int64 [blocks, blocks, 5], ImageNet classes
    probability: np.ndarray  # float32 [blocks, blocks, 5]
    label: np.ndarray  # int64 [cells, cells], class of a mosaic tile's box, or NOTHING


class Photographs:
    def __init__(self, data: Path, cache: Path) -> None:
        archives = {name: tarfile.open(data / f"train/{name}.tar") for name in ("photos", "photos2")}  # noqa: SIM115
        self.items = []
        for archive, name, _ in tqdm(photographs(data), desc="photographs", mininterval=5):
            path = cache / target_name(name)
            with np.load(path) as answer:
                content = archives[archive].extractfile(name).read()
                self.items.append((content, {key: answer[key] for key in answer.files}))

    def mosaic(self, rng: random.Random, side: int) -> Sample:
        """Four photographs from afar."""
        parts = [self.sample(rng, side // 2, FAR) for _ in range(4)]
        joined = {}
        for key in Sample.__annotations__:
            a, b, c, d = (getattr(p, key) for p in parts)
            rows, cols = (1, 2) if key == "soft" else (0, 1)
            joined[key] = np.concatenate([np.concatenate([a, b], cols), np.concatenate([c, d], cols)], rows)
        return Sample(**joined)

    def sample(self, rng: random.Random, side: int, zooms: tuple[float, float] = ZOOM) -> Sample:
        content, answer = rng.choice(self.items)
        rgb = np.array(Image.open(io.BytesIO(content)).convert("RGB"))
        zoom = np.exp(rng.uniform(*np.log(zooms)))
        if rng.random() < 0.5:
            rgb, answer = mirror(rgb, answer)
        free = np.array(rgb.shape[:2]) * zoom - side
        y, x = (rng.uniform(min(0, f), max(0, f)) for f in free)  # top left corner in zoomed pixels
        out = warp(rgb, zoom, y, x, side, (GREY,) * 3)
        n = side // CELL
        soft = np.zeros((80, n, n), np.float32)
        for label, plane in zip(answer["classes"], answer["maps"], strict=True):
            soft[label] = warp(plane, zoom * RASTER / CELL, y / CELL, x / CELL, n, 0) / np.float32(255)
        valid = warp(np.ones(rgb.shape[:2], np.uint8), zoom / CELL, y / CELL, x / CELL, n, 0) > 0
        blocks = side // BLOCK
        centre = (np.arange(blocks) + 0.5) * BLOCK
        rows = np.floor((centre + y) / zoom / 16).astype(int)
        cols = np.floor((centre + x) / zoom / 16).astype(int)
        h, w = answer["words"].shape[:2]
        inside = ((rows >= 0) & (rows < h))[:, None] & ((cols >= 0) & (cols < w))[None]
        place = np.ix_(rows.clip(0, h - 1), cols.clip(0, w - 1))
        probability = answer["probability"][place].astype(np.float32) * inside[..., None]
        words = answer["words"][place].astype(np.int64)
        return Sample(jitter(out, rng), soft, valid, words, probability, np.full((n, n), NOTHING))


class Tiny:
    """12,800 thumbnails with one box each, shown in mosaics of 2x2 to 4x4."""

    def __init__(self, data: Path, number: dict[str, int]) -> None:
        boxes = {w: e["boxes"] for w, e in json.loads((data / "train/tiny_imagenet.json").read_text()).items()}
        self.items = []
        with tarfile.open(data / "train/tiny_imagenet.tar.gz") as archive:
            for member in archive:
                wnid, name = member.name.split("/")
                x0, y0, x1, y1 = boxes[wnid][name]
                if x1 > x0 and y1 > y0:
                    self.items.append((archive.extractfile(member).read(), number[wnid], (y0, x0, y1 + 1, x1 + 1)))

    def sample(self, rng: random.Random, side: int) -> Sample:
        tiles, n, blocks = rng.choice((2, 3, 4)), side // CELL, side // BLOCK
        edges = np.linspace(0, n, tiles + 1).round().astype(int)
        out = np.full((side, side, 3), GREY, np.uint8)
        label = np.full((n, n), NOTHING)
        for r in range(tiles):
            for c in range(tiles):
                content, number, (y0, x0, y1, x1) = rng.choice(self.items)
                tile = np.array(Image.open(io.BytesIO(content)).convert("RGB"))
                if rng.random() < 0.5:
                    tile, x0, x1 = tile[:, ::-1], 64 - x1, 64 - x0
                top, left, h, w = edges[r], edges[c], edges[r + 1] - edges[r], edges[c + 1] - edges[c]
                place = slice(top * CELL, (top + h) * CELL), slice(left * CELL, (left + w) * CELL)
                out[place] = cv2.resize(tile, (w * CELL, h * CELL), interpolation=cv2.INTER_CUBIC)
                rows = slice(top + round(y0 / 64 * h), top + max(round(y1 / 64 * h), round(y0 / 64 * h) + 1))
                cols = slice(left + round(x0 / 64 * w), left + max(round(x1 / 64 * w), round(x0 / 64 * w) + 1))
                label[rows, cols] = number
        nothing = np.zeros((blocks, blocks, 5))
        return Sample(
            jitter(out, rng),
            np.zeros((80, n, n), np.float32),
            np.zeros((n, n), bool),
            nothing.astype(np.int64),
            nothing.astype(np.float32),
            label,
        )


def warp(plane: np.ndarray, zoom: float, y: float, x: float, side: int, border: object) -> np.ndarray:
    """Zoom about the corner, then cut `side` x `side` from (y, x); pixel centres at +0.5 as everywhere. Bilinear."""
    matrix = np.array([[zoom, 0, 0.5 * zoom - 0.5 - x], [0, zoom, 0.5 * zoom - 0.5 - y]])
    flags = cv2.INTER_LINEAR
    return cv2.warpAffine(plane, matrix, (side, side), flags=flags, borderMode=cv2.BORDER_CONSTANT, borderValue=border)


def mirror(rgb: np.ndarray, answer: dict) -> tuple[np.ndarray, dict]:
    flipped = {"classes": answer["classes"], "maps": answer["maps"][..., ::-1]}
    flipped |= {key: answer[key][:, ::-1] for key in ("words", "probability")}
    return np.ascontiguousarray(rgb[:, ::-1]), {k: np.ascontiguousarray(v) for k, v in flipped.items()}


def jitter(rgb: np.ndarray, rng: random.Random) -> np.ndarray:
    """Brightness, contrast, saturation and, one time in twenty, grey."""
    x = rgb.astype(np.float32)
    grey = x @ np.array([0.299, 0.587, 0.114], np.float32)
    saturation = 0.0 if rng.random() < 0.05 else rng.uniform(0.6, 1.4)
    x = grey[..., None] + saturation * (x - grey[..., None])
    x = (x - 128) * rng.uniform(0.7, 1.3) + 128 + rng.uniform(-30, 30)
    return np.clip(x, 0, 255).astype(np.uint8)
