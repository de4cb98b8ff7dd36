"""A frame of a clip drawn for people: cells that are asked for outlined in their question's colour, context in grey,
heat. Below it the questions with their maps, and a strip over time: confidence in the propagated features, keyframes
(ticks on top), renewed parts (ticks below), a line for each question's confidence. In 8-bit arithmetic of OpenCV.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from foveate.allocation.allocation import ASKED_FOR, Allocation
from foveate.allocation.worth import asked_share, mix_of
from foveate.relevance.confidence import in_digits
from foveate.relevance.value import Relevance
from foveate.video.flow import make_small
from foveate.video.state import Frame
from foveate.viz.layers import colour_heat, darken, tint
from foveate.viz.paper import cut, font_for

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Colour = tuple[int, int, int]

# Sizes and colours: chosen by hand.
NARROW, LONG = 480, 1280  # pixels: at least as wide, at most as long is the picture
COLOURS: tuple[Colour, ...] = (
    (255, 205, 90), (90, 210, 255), (255, 130, 190), (150, 235, 120), (200, 160, 255), (255, 150, 90),
    (110, 150, 255), (235, 245, 130), (235, 75, 75), (90, 230, 190), (225, 105, 240), (205, 180, 150),
)  # fmt: skip
GROUND, LINE, INK, QUIET = (16, 16, 20), (38, 38, 46), (236, 236, 232), (150, 150, 158)
KEY, RENEWED, BELIEF = (255, 255, 255), (110, 235, 215), (66, 84, 112)
SENT = 0.78  # brightness of what is kept and has been sent before
CONTEXT = 0.7  # of context, which is grey
DARK = 0.45  # brightness of what is not kept
GLOW = 0.4  # opacity of full relevance
COLUMNS = 512  # of the strip, at most


class History:
    """What the strip shows."""

    def __init__(self, questions: int, expected: int | None = None) -> None:
        self.questions, self.expected, self.count = questions, expected, 0
        self.belief, self._found = array("f"), array("f")  # mean confidence in features; confidence of each question
        self.keyframes, self.renewed = bytearray(), bytearray()  # whether it was one; how many parts

    def add(self, frame: Frame) -> None:
        self.count += 1
        self.belief.append(float(frame.confidence.mean()))
        self._found.extend(relevance.confidence for relevance, _, _ in frame.answers)
        self.keyframes.append(frame.keyframe)
        self.renewed.append(min(255, len(frame.renewed)))

    @property
    def found(self) -> Floats:
        """[count, questions]."""
        return np.array(self._found, np.float32).reshape(-1, self.questions)

    def to_columns(self) -> tuple[Floats, Floats, NDArray[np.bool_], NDArray[np.bool_], int]:
        """The m columns so far, each of several frames in a long clip, and how many columns the strip has: lowest
        belief [m], highest confidence of each question [m, q], whether there is a keyframe, a renewed part [m].
        """
        room = max(1, self.expected or COLUMNS // 4)
        while room < self.count:
            room *= 2
        each = -(-room // COLUMNS)
        starts = np.arange(0, self.count, each)
        belief = np.minimum.reduceat(np.array(self.belief, np.float32), starts)
        key, renewed = (
            np.maximum.reduceat(np.array(marks, np.uint8), starts) > 0 for marks in (self.keyframes, self.renewed)
        )
        return belief, np.maximum.reduceat(self.found, starts, axis=0), key, renewed, -(-room // each)


@dataclass(frozen=True)
class Page:
    """The layout of a clip's frames: `picture` (h, w) in pixels, text `unit` high, `rows` x `columns` of questions."""

    picture: tuple[int, int]
    unit: int
    columns: int
    rows: int

    @staticmethod
    def for_frames(frame: tuple[int, int], questions: int) -> Page:
        """Frames (H, W) are drawn as they are where they are neither narrow nor long."""
        height, width = frame
        ratio = min(max(1.0, NARROW / width), LONG / max(height, width))
        h, w = max(1, round(height * ratio)), max(1, round(width * ratio), NARROW)
        unit = max(20, round(20 * w / 854))
        w += w % 2
        columns = min(questions, max(1, w // (18 * unit)))
        return Page((h, w), unit, columns, -(-questions // columns))

    @property
    def size(self) -> tuple[int, int]:
        """(H, W) of what is drawn, both even."""
        height = self.picture[0] + (3 * self.rows + 5) * self.unit + 2 * self.gap
        return height + height % 2, self.picture[1]

    @property
    def gap(self) -> int:
        return self.unit // 2


def draw(frame: Frame, history: History, page: Page) -> Bytes:
    """The page of a frame: what is kept of it, and the strip up to it (it included): uint8 [H, W, 3] of `page.size`."""
    out = _ground(page.size).copy()
    height, width = page.picture
    ratio = min(height / frame.rgb.shape[0], width / frame.rgb.shape[1])
    h, w = (max(1, round(side * ratio)) for side in frame.rgb.shape[:2])
    rgb = frame.rgb
    if (h, w) != rgb.shape[:2]:
        rgb = cv2.resize(rgb, (w, h), interpolation=cv2.INTER_AREA if ratio < 1 else cv2.INTER_CUBIC)  # type: ignore[assignment]
    top, left = (height - h) // 2, (width - w) // 2
    out[top : top + h, left : left + w] = draw_picture(rgb, frame)
    room, tall = width // page.columns, 3 * page.unit - page.gap
    small = make_small(rgb, (tall, max(1, min(round(tall * w / h), 2 * tall))))
    for i, (relevance, kept, new) in enumerate(frame.answers):
        row, column = divmod(i, page.columns)
        at = (height + page.gap + 3 * row * page.unit, column * room + page.gap, room - page.gap)
        context = len(kept) - int(_asked_for(relevance, kept).sum())
        note = f"{len(kept)} of {kept.grid.count} cells, {len(new)} new" + " (brighter)" * (0 < len(new) < len(kept))
        note += f", {context} context (grey)" * (context > 0)
        _draw_question(out, small, relevance, note, _colour(i), at, page.unit)
    _draw_strip(out, history, frame, page)
    return out


@lru_cache(maxsize=1)
def _ground(size: tuple[int, int]) -> Bytes:
    """An empty page: filling one anew takes as long as everything that is drawn on it."""
    out = np.full((*size, 3), GROUND, np.uint8)
    out.setflags(write=False)
    return out


def draw_picture(rgb: Bytes, frame: Frame) -> Bytes:
    """The frame's picture [h, w, 3]: cells that a question asked for in colour, outlined, old ones darker; the others
    grey, without a line, as each of several questions has its own all over the picture; the rest dark with a glow.
    """
    h, w = rgb.shape[:2]
    relevances = [relevance for relevance, _, _ in frame.answers]
    passing, added = _glow([relevance.map for relevance in relevances])
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    dark = cv2.addWeighted(rgb, DARK / 2, cv2.merge([grey, grey, grey]), DARK / 2, 0)
    left = cv2.resize(passing, (w, h), interpolation=cv2.INTER_LINEAR)
    dark = cv2.multiply(dark, cv2.merge([left, left, left]), scale=1 / 255)
    out = cv2.add(dark, cv2.resize(added, (w, h), interpolation=cv2.INTER_LINEAR))
    level = np.zeros(frame.grid.shape, np.uint8)  # of not kept, context, asked for and sent before, new to a question
    asked = [_asked_for(relevance, kept) for relevance, kept, _ in frame.answers]
    for _, kept, _ in frame.answers:
        level.ravel()[kept.indices] = 1
    for mask in asked:
        level[mask] = 2
    for mask, (_, _, new) in zip(asked, frame.answers, strict=True):
        level.ravel()[new[mask.ravel()[new]]] = 3
    level = np.asarray(cv2.resize(level, (w, h), interpolation=cv2.INTER_NEAREST), np.uint8) - np.uint8(1)
    context = cv2.convertScaleAbs(cv2.merge([grey, grey, grey]), alpha=CONTEXT)
    out = cv2.copyTo(context, (level == 0).astype(np.uint8), out)
    out = cv2.copyTo(cv2.convertScaleAbs(rgb, alpha=SENT), (level == 1).astype(np.uint8), out)
    out = cv2.copyTo(rgb, (level == 2).astype(np.uint8), out)
    thick = 1 if w < 1000 else 2
    grid = frame.grid
    for y0, x0, y1, x1 in frame.renewed:
        corner, end = (x0 * w // grid.w, y0 * h // grid.h), (x1 * w // grid.w - 1, y1 * h // grid.h - 1)
        cv2.rectangle(out, corner, end, RENEWED, thick)
    for i in sorted(range(len(relevances)), key=lambda i: (relevances[i].detected, -i)):
        outlined = cv2.resize(asked[i].astype(np.uint8), (w, h), interpolation=cv2.INTER_NEAREST)
        found, _ = cv2.findContours(outlined, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
        colour = _colour(i) if relevances[i].detected else tuple(value // 2 for value in _colour(i))
        cv2.drawContours(out, found, -1, colour, thick, cv2.LINE_AA)
    return np.asarray(out, np.uint8)


def _asked_for(relevance: Relevance, kept: Allocation) -> NDArray[np.bool_]:
    """The kept cells that are there for the question and not for the picture, bool [h, w]."""
    share = asked_share(relevance.map, relevance.saliency, mix_of(relevance))
    return np.asarray(kept.mask & (share >= ASKED_FOR))


def _glow(maps: Sequence[Floats]) -> tuple[Bytes, Bytes]:
    """What is left of the dark picture, [y, x], and the light that is added, [y, x, 3]; four samples a cell's side."""
    h, w = maps[0].shape
    passing, added = np.ones((4 * h, 4 * w, 1), np.float32), np.zeros((4 * h, 4 * w, 3), np.float32)
    for i, plane in enumerate(maps):
        finer = cv2.resize(plane, (4 * w, 4 * h), interpolation=cv2.INTER_LINEAR)
        level = np.clip(np.asarray(finer, np.float32), 0, 1)[..., None]
        opaque = np.float32(GLOW) * level
        colour = colour_heat(level[..., 0]) if len(maps) == 1 else level * np.array(_colour(i), np.float32)
        added = added * (1 - opaque) + colour * opaque
        passing = passing * (1 - opaque)
    return (passing[..., 0] * 255).astype(np.uint8), added.astype(np.uint8)


def _draw_question(
    out: Bytes, small: NDArray[Any], relevance: Relevance, note: str, colour: Colour, at: tuple[int, ...], unit: int
) -> None:
    y, x, room = at  # `room`: its width
    tall, wide = small.shape[:2]
    level = np.clip(
        np.asarray(cv2.resize(relevance.map, (wide, tall), interpolation=cv2.INTER_LINEAR), np.float32), 0, 1
    )
    out[y : y + tall, x : x + wide] = tint(darken(small, level), level, colour_heat(level))
    cv2.rectangle(out, (x, y), (x + wide - 1, y + tall - 1), colour, 1)
    left, width = x + wide + unit // 2, max(1, room - wide - unit)
    verdict = in_digits(relevance.confidence) + ("" if relevance.detected else ", not detected")
    asked = " as ".join(filter(None, (f"“{relevance.query}”", ", ".join(relevance.looked_for.values()))))
    _ink(out, _render_text(asked, round(unit * 0.8), width), (y, left), colour)
    _ink(out, _render_text(f"confidence {verdict}", round(unit * 0.65), width), (y + round(unit * 0.95), left), INK)
    _ink(out, _render_text(note, round(unit * 0.65), width), (y + round(unit * 1.7), left), QUIET)


def _draw_strip(out: Bytes, history: History, frame: Frame, page: Page) -> None:
    u, width = page.unit, page.picture[1]
    y = page.picture[0] + page.gap + 3 * page.rows * u
    left, wide, tall, thick = page.gap, width - 2 * page.gap, 3 * u - u // 2, 1 if u < 26 else 2
    top, size = y + 2 * u + u // 4, round(u * 0.65)
    total = frame.index + 1 - history.count + (history.expected or 0)
    of = f" of {total}" if total > frame.index else ""
    counter = _render_text(f"frame {frame.index + 1}{of}, {frame.time:.2f} s", size, wide // 2)
    _ink(out, counter, (y, width - left - counter.shape[1]), INK)
    colours = [_colour(i) for i in range(history.questions)]
    first = f"confidence in features {frame.confidence.mean():.2f}"
    legend = {first: [BELIEF], "keyframe": [KEY], "parts renewed": [RENEWED]}
    legend["confidence of each question"] = colours[:3]
    line, x = y, left
    for name, shown in legend.items():
        for i, colour in enumerate(shown):
            corner = (x, line + u // 5 + i * u // (3 * len(shown)))
            cv2.rectangle(out, corner, (x + u // 3, line + u // 5 + u // 3), colour, -1)
        word = _render_text(name, size, wide // 2)
        _ink(out, word, (line, x + u // 2), QUIET)
        if name == first:
            _draw_lamp(out, frame, (y, x + 2 * u + word.shape[1], width - left - counter.shape[1] - u), size)
        line, x = y + u, left if name == first else x + 3 * u // 2 + word.shape[1]
    belief, found, key, renewed, n = history.to_columns()
    filled = np.arange(tall)[::-1, None] <= np.pad(belief, (0, n - len(belief)), constant_values=-1) * (tall - 1)
    columns = np.where(filled[..., None], np.array(BELIEF, np.uint8), np.array(LINE, np.uint8))
    out[top : top + tall, left : left + wide] = cv2.resize(columns, (wide, tall), interpolation=cv2.INTER_NEAREST)
    middle = left + (np.arange(len(belief)) + 0.5) * wide / n
    for i, colour in enumerate(colours):
        points = np.stack([middle, top + (1 - found[:, i]) * (tall - 3) + 1], -1)
        if len(points) == 1:  # of the first frame: across its column
            points = points + np.array([[-0.5], [0.5]]) * [[wide / n, 0]]
        cv2.polylines(out, [points.round().astype(np.int32)], False, colour, thick, cv2.LINE_AA)
    for x in middle[key].round().astype(int):
        cv2.line(out, (x, top), (x, top + u // 3), KEY, thick)
    for x in middle[renewed].round().astype(int):
        cv2.line(out, (x, top + tall - 1), (x, top + tall - 1 - u // 4), RENEWED, thick)
    now = round(left + len(belief) * wide / n)  # where the tick is not hidden
    cv2.line(out, (now, top - 2), (now, top + tall + 1), QUIET, 1)


def _draw_lamp(out: Bytes, frame: Frame, at: tuple[int, int, int], size: int) -> None:
    """Why everything was encoded, or that parts were renewed, at the right of the line `at` (y, from x, to x)."""
    y, start, end = at
    if frame.keyframe or frame.renewed:
        words, colour = (f"keyframe: {frame.reason}", KEY) if frame.keyframe else ("parts renewed", RENEWED)
        mask = _render_text(words, size, max(1, end - start - size))
        x = end - mask.shape[1]
        cv2.circle(out, (x - size // 2, y + round(0.65 * size)), max(3, size // 4), colour, -1, cv2.LINE_AA)
        _ink(out, mask, (y, x), colour)


def _ink(out: Bytes, mask: Bytes, at: tuple[int, int], colour: Colour) -> None:
    place = out[at[0] : at[0] + mask.shape[0], at[1] : at[1] + mask.shape[1]]
    share = mask[: place.shape[0], : place.shape[1], None].astype(np.float32) / 255
    place[:] = (place * (1 - share) + np.array(colour, np.float32) * share).astype(np.uint8)


@lru_cache(maxsize=256)
def _render_text(text: str, size: int, width: int) -> Bytes:
    shown = cut(text, width, size)
    font = font_for(shown, size)
    box = Image.new("L", (max(1, min(width, round(font.getlength(shown)) + 1)), round(size * 1.3)))
    ImageDraw.Draw(box).text((0, 0), shown, fill=255, font=font)
    mask = np.asarray(box)
    mask.setflags(write=False)
    return mask


def _colour(number: int) -> Colour:
    return COLOURS[number % len(COLOURS)]
