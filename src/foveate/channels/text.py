"""Where there is writing: a mask, and who made it. Nothing is read.

* "rapidocr": the detector of RapidOCR (extra `[text]`): PP-OCRv6 small on onnxruntime. Its model lies inside the wheel,
  so nothing is downloaded; its recogniser is never loaded. About half a second of one core an image.
* "opencv": strokes, letters, lines; no model. Thin things vanish in a morphological opening or closing; they count as
  letters where three of about the same height stand in a row. It misses letters that touch each other and writing that
  is in columns or higher than an eighth of the long side, and takes fences and windows for text. Its constants were
  chosen on the 12 images that `benchmarks.text` measures, so the figures flatter it. 15 ms of one core an image.
* "auto": RapidOCR where it is installed and works, else OpenCV; the second result says which.

An image on which RapidOCR fails is an error where RapidOCR was asked for: an empty mask would mean no writing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.channels.components import find_components
from foveate.core.checks import check_choice
from foveate.core.errors import MissingExtraError, OptionError
from foveate.core.image import check_rgb

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Detector = Literal["auto", "rapidocr", "opencv"]

OCR_SIDE, OCR_STEP = 960, 32  # long side that RapidOCR sees at most; its network halves five times
FAILED = "opencv (rapidocr failed)"

SIDE = 896  # long side that OpenCV's detector sees at most
STROKE = 21  # pixels; what is thinner is a stroke
CONTRAST = 32  # levels of 255 between a stroke and its surround, at least
HEIGHTS = (6, SIDE // 8)  # pixels, of letters
MOST = 1200  # letters at most, those of the highest contrast: pairs grow with the square
IN_A_ROW = 3


def find_text_regions(rgb: Bytes, detector: Detector = "auto") -> tuple[Floats, str]:
    """uint8 [H, W, 3] -> (mask, name): float32 [ceil(H/4), ceil(W/4)] of 0 and 1; "rapidocr", "opencv" or FAILED.

    Raises:
        MissingExtraError: "rapidocr" is not installed. ImageArrayError: no image. OptionError: no such detector, or
            RapidOCR failed.
    """
    check_rgb(rgb)
    check_choice("detector", detector, ("auto", "rapidocr", "opencv"))
    if detector == "opencv":
        return fill_boxes(find_strokes(rgb), rgb), "opencv"
    try:
        return fill_boxes(run_ocr(rgb), rgb), "rapidocr"
    except (MissingExtraError, OptionError) as error:
        if detector == "rapidocr":
            raise
        name = "opencv" if isinstance(error, MissingExtraError) else FAILED
        return fill_boxes(find_strokes(rgb), rgb), name


def fill_boxes(quads: Floats, rgb: Bytes) -> Floats:
    """Quadrilaterals [n, 4, 2] of (y, x) in pixels -> 1 inside and on the border: float32 [ceil(H/4), ceil(W/4)]."""
    height, width = rgb.shape[:2]
    shape = (-(-height // 4), -(-width // 4))
    plane = np.zeros(shape, np.uint8)
    scale = np.array([shape[0] / height, shape[1] / width], np.float32)
    for quad in np.floor(np.clip(quads, 0, [height, width]) * scale).astype(np.int32):
        cv2.fillConvexPoly(plane, np.minimum(quad, np.array(shape) - 1)[:, ::-1].copy(), [1.0])
    return plane.astype(np.float32)


# --- RapidOCR ---------------------------------------------------------------------------------------------------------


def run_ocr(rgb: Bytes) -> Floats:
    """Quadrilaterals float32 [n, 4, 2] of (y, x) in pixels around writing, by RapidOCR's detector.

    Raises MissingExtraError without the extra, OptionError where RapidOCR fails.
    """
    engine = _load_engine()
    height, width = rgb.shape[:2]
    scale = min(1.0, OCR_SIDE / max(height, width))
    h, w = max(1, round(height * scale)), max(1, round(width * scale))
    small = cv2.resize(rgb, (w, h), interpolation=cv2.INTER_AREA) if scale < 1 else rgb
    # Left to itself it enlarges the short side to 736 pixels: a strip of 31 x 5000 then takes gigabytes.
    small = cv2.copyMakeBorder(small, 0, -h % OCR_STEP, 0, -w % OCR_STEP, cv2.BORDER_REPLICATE)
    try:
        boxes = engine(np.ascontiguousarray(small[..., ::-1])).boxes
        quads = np.zeros((0, 4, 2), np.float32) if boxes is None else np.asarray(boxes, np.float32).reshape(-1, 4, 2)
        if not np.isfinite(quads).all():
            raise ValueError("boxes that are not finite")
    except Exception as cause:  # whatever another library raises on an image
        raise OptionError(
            f"RapidOCR failed on an image of {height} x {width} pixels ({type(cause).__name__}: {str(cause)[:100]})",
            expected="boxes around writing",
            fix="ask for detector='opencv', or 'auto', which does so by itself",
        ) from cause
    return np.asarray(quads[..., ::-1] * np.array([height / h, width / w]), np.float32)


@lru_cache(maxsize=1)
def _load_engine() -> Any:
    try:
        import rapidocr
    except ImportError as cause:
        raise MissingExtraError(
            f"the text detector 'rapidocr' needs {cause.name}, which is not installed",
            expected="the extra [text]",
            fix="pip install 'foveate[text]'; or use detector='opencv', which needs nothing",
        ) from cause
    return rapidocr.RapidOCR(
        params={
            "Global.log_level": "critical",  # it writes to stderr otherwise, each time
            "Global.use_cls": False,
            "Global.use_rec": False,
            "Det.limit_type": "max",
            "Det.limit_side_len": OCR_SIDE,
        }
    )


# --- OpenCV -----------------------------------------------------------------------------------------------------------


def find_strokes(rgb: Bytes) -> Floats:
    """Quadrilaterals float32 [n, 4, 2] of (y, x) in pixels: letters in a row, and the gaps between them."""
    height, width = rgb.shape[:2]
    scale = min(1.0, SIDE / max(height, width))
    h, w = max(1, round(height * scale)), max(1, round(width * scale))
    luma = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    luma = cv2.resize(luma, (w, h), interpolation=cv2.INTER_AREA) if scale < 1 else luma
    kernel = np.ones((STROKE, STROKE), np.uint8)
    found = [
        find_rows(find_letters(cv2.morphologyEx(luma, kind, kernel, borderType=cv2.BORDER_REPLICATE).astype(np.uint8)))
        for kind in (cv2.MORPH_BLACKHAT, cv2.MORPH_TOPHAT)
    ]
    y0, x0, y1, x1 = (np.concatenate(found) * np.tile([height / h, width / w], 2)).T
    return np.asarray(np.stack([y0, x0, y0, x1, y1, x1, y1, x0], 1).reshape(-1, 4, 2), np.float32)


def find_letters(hat: Bytes) -> NDArray[np.float64]:
    """Contrast of strokes, uint8 [h, w] -> boxes of what may be a letter: (y0, x0, y1, x1, contrast) [n, 5]."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats((hat >= CONTRAST).astype(np.uint8), connectivity=8)
    x, y, w, h, area = stats.T.astype(np.float64)
    contrast = np.bincount(labels.ravel(), hat.ravel(), count) / np.maximum(area, 1)
    fill = area / np.maximum(w * h, 1)
    good = (h >= HEIGHTS[0]) & (h <= HEIGHTS[1]) & (w <= 2.5 * h) & (w >= 0.08 * h) & (fill > 0.15) & (area >= 8)
    good[0] = False  # the ground
    kept = np.flatnonzero(good)
    kept = np.sort(kept[np.argsort(-contrast[kept], kind="stable")[:MOST]])
    return np.stack([y, x, y + h, x + w, contrast], 1)[kept]


def find_rows(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Letters [n, 5] -> boxes (y0, x0, y1, x1) [m, 4] that hold neighbouring pairs of rows of three and more."""
    y0, x0, y1, x1, contrast = boxes.T
    h, middle = y1 - y0, (y0 + y1) / 2
    tall = np.maximum(h[:, None], h)
    gap = np.maximum(x0[:, None], x0) - np.minimum(x1[:, None], x1)
    pair = (
        (np.minimum(h[:, None], h) > 0.55 * tall)
        & (abs(middle[:, None] - middle) < 0.35 * tall)
        & (gap < 0.8 * tall)
        & (gap > -0.3 * tall)
        & (np.minimum(contrast[:, None], contrast) > 0.6 * np.maximum(contrast[:, None], contrast))
        & (x0[:, None] < x0)
    )
    first, second = np.nonzero(pair)
    names = find_components(len(boxes), first, second)
    long = np.bincount(names, minlength=len(boxes))[names] >= IN_A_ROW
    first, second = first[long[first]], second[long[first]]
    low, high = np.minimum(boxes[first, :2], boxes[second, :2]), np.maximum(boxes[first, 2:4], boxes[second, 2:4])
    return np.concatenate([low, high], 1)
