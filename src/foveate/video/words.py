"""Words that were read in one frame, and where the frames after it show them.

In between two readings corners of the letters are followed (Lucas and Kanade), there and back. A line of words moves,
turns and grows as most of its corners do, and is left out once half of them are lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.readonly import Frozen
from foveate.reading.readers import read_words
from foveate.reading.words import Word, WordReader, Words
from foveate.video.flow import Floats, Luma

# All by hand.
LONG_SIDE = 640  # pixels in which corners are followed
CORNERS = 24  # of a line, at most
WINDOW, LEVELS = (15, 15), 3  # around a corner; halvings of the picture
BACK = 1.0  # pixels that a corner may miss its start by, there and back
APART = 3.0  # pixels from where the line's motion takes it
LEFT = 0.5  # share of corners, and of a word's area, below which it is left out


@dataclass(frozen=True, eq=False)
class Writing(Frozen):
    """What was read in one frame, and where the current one shows it."""

    words: Words  # as they were read
    time: float  # of that frame, in seconds
    size: tuple[int, int]  # (height, width) of the frames, in pixels
    luma: Luma  # [y, x] of the current frame, in which corners are followed
    was: Floats  # [n, 2], corners that are not lost, (y, x) in pixels of `luma`: in the frame that was read,
    now: Floats  # and in the current one
    line: NDArray[np.int64]  # [n], the line of each
    whole: NDArray[np.int64]  # [lines], corners of each line when it was read


def read_frame(rgb: NDArray[np.uint8], name: str, time: float, reader: WordReader) -> Writing:
    """Raises OptionError, which names the frame, and MissingExtraError."""
    try:
        words = read_words(rgb, reader)
    except OptionError as cause:
        raise OptionError(
            f"{name}: {cause.received}",
            expected=cause.expected,
            fix="leave read= out to follow the clip without reading it; the stream goes on with the next frame",
        ) from cause
    luma = _small_luma(rgb)
    size = (rgb.shape[0], rgb.shape[1])
    found = [_find_corners(luma, np.asarray(line.box, np.float32) * _scale(luma, size)) for line in words.lines]
    corners = np.concatenate([np.empty((0, 2), np.float32), *found])
    whole = np.array([len(each) for each in found], np.int64)
    return Writing(words, time, size, luma, corners, corners, np.repeat(np.arange(len(found)), whole), whole)


def follow(writing: Writing, rgb: NDArray[np.uint8]) -> Writing:
    """The same one frame later: corners that are found again, and agree with their line."""
    luma = _small_luma(rgb)
    now, found = _track(writing.luma, luma, writing.now)
    back, returned = _track(luma, writing.luma, now)
    alive = found & returned & (np.abs(back - writing.now).max(1, initial=0) < BACK)
    alive &= (now >= 0).all(1) & (now <= np.array(luma.shape, np.float32)).all(1)
    for line in np.unique(writing.line[alive]):
        mine = np.flatnonzero(alive & (writing.line == line))
        alive[mine] = _fit(writing.was[mine], now[mine])[1]
    return replace(writing, luma=luma, was=writing.was[alive], now=now[alive], line=writing.line[alive])


def words_now(writing: Writing) -> Words:
    """The words where the current frame shows them; their confidence falls with the share of corners left."""
    scale, found = _scale(writing.luma, writing.size), []
    for number, line in enumerate(writing.words.lines):
        mine = writing.line == number
        share = mine.sum() / max(1, writing.whole[number])
        if share < LEFT:
            continue
        matrix, _ = _fit(writing.was[mine], writing.now[mine])
        for word in writing.words[line.words.start : line.words.stop]:
            moved = _move(np.asarray(word.box, np.float32) * scale, matrix) / scale
            inside = np.clip(moved, 0, np.array([*writing.size, *writing.size], np.float32))
            if _area(inside) >= LEFT * _area(moved):
                found.append(Word(word.text, tuple(inside.tolist()), word.confidence * float(share), word.line))
    return Words.of(found, writing.words.reader, writing.words.turned)


def _small_luma(rgb: NDArray[np.uint8]) -> Luma:
    ratio = LONG_SIDE / max(rgb.shape[:2])
    luma = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    if ratio < 1:
        h, w = (max(1, round(side * ratio)) for side in rgb.shape[:2])
        luma = cv2.resize(luma, (w, h), interpolation=cv2.INTER_AREA)
    return np.asarray(luma, np.uint8)


def _scale(luma: Luma, size: tuple[int, int]) -> Floats:
    y, x = luma.shape[0] / size[0], luma.shape[1] / size[1]
    return np.array([y, x, y, x], np.float32)


def _find_corners(luma: Luma, box: Floats) -> Floats:
    y0, x0 = np.floor(box[:2]).astype(int)
    y1, x1 = np.ceil(box[2:]).astype(int)
    found: Any = cv2.goodFeaturesToTrack(np.ascontiguousarray(luma[y0:y1, x0:x1]), CORNERS, 0.05, 3)
    if found is None:
        return np.array([[(y0 + y1) / 2, (x0 + x1) / 2]], np.float32)
    return np.asarray(found[:, 0, ::-1] + np.array([y0, x0]) + 0.5, np.float32)  # OpenCV counts from centres


def _track(before: Luma, after: Luma, points: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    if not len(points):
        return points, np.zeros(0, bool)
    given = np.ascontiguousarray(points[:, None, ::-1] - 0.5)
    found, status, _ = cv2.calcOpticalFlowPyrLK(before, after, given, None, winSize=WINDOW, maxLevel=LEVELS)  # type: ignore[call-overload]
    return np.asarray(found[:, 0, ::-1] + 0.5, np.float32), status[:, 0] == 1


def _fit(was: Floats, now: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    matrix = np.eye(2, 3, dtype=np.float32)
    if len(was) >= 4:
        found, follows = cv2.estimateAffinePartial2D(was, now, method=cv2.RANSAC, ransacReprojThreshold=APART)
        if found is not None:
            return found.astype(np.float32), follows[:, 0] == 1
    matrix[:, 2] = np.median(now - was, 0) if len(was) else 0  # too few to turn
    return matrix, np.abs(was + matrix[:, 2] - now).max(1, initial=0) < 2 * APART


def _move(box: Floats, matrix: Floats) -> Floats:
    corners = np.array([[y, x, 1] for y in box[::2] for x in box[1::2]], np.float32) @ matrix.T
    return np.concatenate([corners.min(0), corners.max(0)])


def _area(box: Floats) -> float:
    return float(max(box[2] - box[0], 0) * max(box[3] - box[1], 0))
