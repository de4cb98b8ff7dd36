"""Where there is writing: a mask, by PP-OCRv3's mobile detector (MODEL_CARD.md). `python -m benchmarks text`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.image import Bytes, check_rgb
from foveate.core.threads import count_threads
from foveate.encoders.nano import load_network

Floats = NDArray[np.float32]
NAME = "pp-ocrv3"

PIXELS = 720 * 720  # that the built-in network sees at most
LONGEST = 2048  # a side of what it sees
STEP = 32  # its sides are multiples of: it halves five times
LEVEL = 77  # of 255: from here on a pixel is writing
SURE = 128  # of 255: mean of what is called writing, at least
LARGER = 380  # and so much more for a line as high as the long side: people are large, and not as sure to be writing
THIN = 3  # pixels of what it sees: what is thinner is noise
UNCLIP = 1.6  # it marks the core of each line; so much of area / perimeter is added all around


def find_text_regions(rgb: Bytes) -> Floats:
    """uint8 [H, W, 3] -> mask of writing, float32 [ceil(H/4), ceil(W/4)] of 0 and 1. Raises ImageArrayError."""
    check_rgb(rgb)
    return fill_quads(find_writing(rgb), rgb.shape[:2])


def fill_quads(quads: Floats, size: tuple[int, int]) -> Floats:
    """Quadrilaterals [n, 4, 2] of (y, x) in pixels -> 1 inside and on the border: float32 [ceil(H/4), ceil(W/4)]."""
    height, width = size
    shape = (-(-height // 4), -(-width // 4))
    plane = np.zeros(shape, np.uint8)
    scale = np.array([shape[0] / height, shape[1] / width], np.float32)
    for quad in np.floor(np.clip(quads, 0, [height, width]) * scale).astype(np.int32):
        cv2.fillConvexPoly(plane, np.minimum(quad, np.array(shape) - 1)[:, ::-1].copy(), [1.0])
    return plane.astype(np.float32)


def find_writing(rgb: Bytes) -> Floats:
    """Quadrilaterals float32 [n, 4, 2] of (y, x) in pixels around lines of writing, in no order."""
    height, width = rgb.shape[:2]
    scale = min(1.0, (PIXELS / (height * width)) ** 0.5, LONGEST / max(height, width))
    small, (h, w) = _fit(rgb, scale)
    finder = load_network(Path(str(files("foveate") / "channels" / "assets" / "writing.onnx")), count_threads())
    (chances,) = finder.run(None, {"rgb": small[None]})  # uint8 [1, 1, rows, columns]
    return find_quads(chances[0, 0, :h, :w]) * np.array([height / h, width / w], np.float32)


def find_quads(chances: Bytes) -> Floats:
    """Of 255, how likely each pixel is the core of a line: uint8 [h, w] -> quadrilaterals [n, 4, 2] of (y, x)."""
    outlines, _ = cv2.findContours((chances >= LEVEL).astype(np.uint8), cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    quads = []
    for outline in outlines:
        middle, (a, b), angle = cv2.minAreaRect(outline)
        sure = SURE + LARGER * min(a, b) / max(chances.shape)
        if min(a, b) < THIN or _mean_inside(chances, cv2.boxPoints((middle, (a, b), angle))) < sure:
            continue
        more = a * b * UNCLIP / (a + b)
        quads.append(cv2.boxPoints((middle, (a + more, b + more), angle))[:, ::-1])
    return np.array(quads, np.float32).reshape(-1, 4, 2)


def _mean_inside(chances: Bytes, corners: NDArray[Any]) -> float:
    x, y = np.maximum(np.floor(corners.min(0)).astype(int), 0)
    part = chances[y : int(corners[:, 1].max()) + 2, x : int(corners[:, 0].max()) + 2]
    inside = np.zeros(part.shape, np.uint8)
    cv2.fillConvexPoly(inside, (corners - [x, y]).astype(np.int32), [1.0])
    return float(cv2.mean(part, inside)[0])


def _fit(rgb: Bytes, scale: float) -> tuple[Bytes, tuple[int, int]]:
    h, w = (max(1, round(side * scale)) for side in rgb.shape[:2])
    small = cv2.resize(rgb, (w, h), interpolation=cv2.INTER_AREA) if scale < 1 else rgb
    padded = cv2.copyMakeBorder(small, 0, -h % STEP, 0, -w % STEP, cv2.BORDER_REPLICATE)
    return np.asarray(padded, np.uint8), (h, w)
