"""Are words still where they are, two seconds after they were read? A drawn sign moves over a photograph.

    python -m benchmarks video_words

48 frames of 640 x 360; the sign (150 x 48 pixels, two words) is read in the first one only, by a reader that knows its
place. Share of the words' true boxes under the boxes that were followed: in the last frame, and the least of all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.common import PHOTOS
from foveate.cli.terminal import counting
from foveate.core.image import load_image
from foveate.reading.words import Word, Words
from foveate.video import Propagation, stream

FRAMES, SIZE = 48, (360, 640)
SIGN, WORDS = (48, 150), {"STOP": (14, 10, 36, 72), "HERE": (14, 78, 36, 140)}  # boxes in the sign
COLUMNS = ("sign", "covered at the end", "least")
Place = tuple[float, float, float]  # y, x, scale
PATHS: dict[str, tuple[Callable[[int], Place], float]] = {  # and pixels that the camera pans by
    "still": (lambda t: (150, 200, 1), 0),
    "3 px a frame": (lambda t: (150, 100 + 3 * t, 1), 0),
    "6 px a frame": (lambda t: (100, 20 + 6 * t, 1), 0),
    "diagonal": (lambda t: (60 + 2 * t, 100 + 3 * t, 1), 0),
    "pan of 5 px": (lambda t: (150, 400 - 5 * t, 1), 5),
    "grows to twice": (lambda t: (150, 200 - 1.5 * t, 1 + t / 47), 0),
    "shrinks to half": (lambda t: (150, 200, 1.5 - 0.7 * t / 47), 0),
}


def measure() -> dict[str, Any]:
    """Are words still where they are, two seconds after they were read? A drawn sign, followed through a clip."""
    rows = []
    with counting("video_words", len(PATHS)) as progress:
        for number, (name, (path, pan)) in enumerate(PATHS.items(), 1):
            shares = follow(path, pan)
            rows.append({"cells": [name, f"{shares[-1]:.2f}", f"{min(shares):.2f}"], "sign": name, "covered": shares})
            progress(number)
    title = f"{FRAMES} frames of {SIZE[1]} x {SIZE[0]}, read in the first"
    return {"title": title, "columns": COLUMNS, "rows": rows}


def follow(path: Callable[[int], Place], pan: float) -> list[float]:
    """Share of the words that is covered in each frame."""
    photo = load_image(PHOTOS / "cake_and_coffee.jpg").rgb
    wide = np.asarray(cv2.resize(photo, (SIZE[1] + round(pan * FRAMES), SIZE[0])), np.uint8)
    frames = [draw_sign(wide[:, round(pan * t) :][:, : SIZE[1]], *path(t)) for t in range(FRAMES)]
    first = [Word(text, box) for text, box in place_words(*path(0)).items()]
    timed = ((t / 24, rgb) for t, rgb in enumerate(frames))
    with stream(timed, "the sign", read=lambda rgb: first, budget=64, propagation=Propagation(read_every=60)) as found:
        return [share_of(frame.words, place_words(*path(frame.index))) for frame in found]


def draw_sign(rgb: NDArray[np.uint8], y: float, x: float, scale: float) -> NDArray[np.uint8]:
    sign = np.full((*SIGN, 3), (200, 20, 30), np.uint8)
    cv2.rectangle(sign, (2, 2), (SIGN[1] - 3, SIGN[0] - 3), (255, 255, 255), 2)
    cv2.putText(sign, "STOP HERE", (10, 33), cv2.FONT_HERSHEY_SIMPLEX, 0.75, (255, 255, 255), 2, cv2.LINE_AA)
    h, w = round(SIGN[0] * scale), round(SIGN[1] * scale)
    out = rgb.copy()
    part = out[round(y) : round(y) + h, round(x) : round(x) + w]
    part[:] = cv2.resize(sign, (w, h), interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    return out


def place_words(y: float, x: float, scale: float) -> dict[str, tuple[float, float, float, float]]:
    """The true boxes of the words."""
    top, left = round(y), round(x)
    return {
        text: (top + a * scale, left + b * scale, top + c * scale, left + d * scale)
        for text, (a, b, c, d) in WORDS.items()
    }


def share_of(words: Words | None, truth: dict[str, tuple[float, float, float, float]]) -> float:
    shares = []
    for text, (y0, x0, y1, x1) in truth.items():
        found = next((word.box for word in words or () if word.text == text), (0.0, 0.0, 0.0, 0.0))
        tall, wide = min(y1, found[2]) - max(y0, found[0]), min(x1, found[3]) - max(x0, found[1])
        shares.append(max(0.0, tall) * max(0.0, wide) / ((y1 - y0) * (x1 - x0)))
    return float(np.mean(shares))
