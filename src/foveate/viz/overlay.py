"""A frame of a clip as people see it: what is kept, where the heat is, and below it what has happened so far.

What is notable
* Kept cells show the photograph, with an outline: new ones as it is, those that were sent before a little darker.
  Everything else is grey and dark, and glows where it is relevant, on the absolute scale of relevance. The whole map of
  each question is drawn small beside its name.
* Of several questions each has a colour: of its outline, its glow and its line on the strip. There are twelve.
* The strip has a column for each frame so far (for several, in a long clip): its height is how far the carried features
  are believed, a tick on top is a key frame, a tick below a frame with renewed parts. Lines are the questions' own
  confidence. Where the number of frames is not known, or was wrong, the strip is drawn together as it fills.
* It must not cost more than what it shows: all of it is 8-bit arithmetic in OpenCV. Text is Pillow's, as it knows more
  than ASCII.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from foveate.cli.terminal import format_count
from foveate.relevance.allocate import Allocation
from foveate.relevance.value import Relevance
from foveate.video.frame import Frame
from foveate.viz.pictures import colour_heat, fit_text

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Colour = tuple[int, int, int]

NARROW, LONG = 480, 1280  # pixels: at least as wide, at most as long is the picture
COLOURS: tuple[Colour, ...] = (
    (255, 205, 90), (90, 210, 255), (255, 130, 190), (150, 235, 120), (200, 160, 255), (255, 150, 90),
    (110, 150, 255), (235, 245, 130), (235, 75, 75), (90, 230, 190), (225, 105, 240), (205, 180, 150),
)  # fmt: skip
GROUND, LINE, INK, QUIET = (16, 16, 20), (38, 38, 46), (236, 236, 232), (150, 150, 158)
KEY, RENEWED, BELIEF = (255, 255, 255), (110, 235, 215), (66, 84, 112)
SENT = 0.78  # brightness of what is kept and has been sent before
COUNTER = 9  # units that the number of the frame may take beside the legend
DARK = 0.45  # brightness of what is not kept
GLOW = 0.75  # opacity of full relevance
COLUMNS = 512  # of the strip, at most
LEGEND = ("confidence in what was carried {}", "confidence of each question", "key frame", "parts renewed")


@dataclass(frozen=True, eq=False)
class Strip:
    """What has happened so far, in columns of `each` frames; NaN where nothing has yet.

    Attributes:
        each: frames in a column.
        belief: float32 [n], the lowest mean confidence of a column's frames. found: float32 [n, q], the questions'.
        key, renewed: bool [n].
        count: frames so far.
    """

    each: int
    belief: Floats
    found: Floats
    key: NDArray[np.bool_]
    renewed: NDArray[np.bool_]
    count: int = 0

    @staticmethod
    def empty(expected: int | None, questions: int) -> Strip:
        """For a clip of so many frames; None where nobody knows."""
        frames = max(1, expected or COLUMNS // 4)
        each = -(-frames // COLUMNS)
        n = -(-frames // each)
        return Strip(each, _unknown(n), _unknown((n, questions)), np.zeros(n, bool), np.zeros(n, bool))

    def with_frame(self, belief: float, found: Sequence[float], key: bool, renewed: bool) -> Strip:
        """The strip after one frame more."""
        strip = self if self.count // self.each < len(self.belief) else self._longer()
        at = strip.count // strip.each
        after = replace(
            strip,
            belief=strip.belief.copy(),
            found=strip.found.copy(),
            key=strip.key.copy(),
            renewed=strip.renewed.copy(),
            count=strip.count + 1,
        )
        after.belief[at] = np.fmin(strip.belief[at], belief)
        after.found[at] = np.fmax(strip.found[at], np.asarray(found, np.float32))
        after.key[at] |= key
        after.renewed[at] |= renewed
        return after

    def _longer(self) -> Strip:
        """Room for twice as many frames: more columns, or fuller ones."""
        n = len(self.belief)
        if 2 * n <= COLUMNS:
            blank = np.zeros(n, bool)
            return replace(
                self,
                belief=np.concatenate([self.belief, _unknown(n)]),
                found=np.concatenate([self.found, _unknown(self.found.shape)]),
                key=np.concatenate([self.key, blank]),
                renewed=np.concatenate([self.renewed, blank]),
            )
        first = np.arange(0, n, 2)
        second = np.minimum(first + 1, n - 1)

        def paired(plane: Floats | NDArray[np.bool_], how: np.ufunc, empty: float) -> NDArray[np.generic]:
            both = how(plane[first], plane[second])
            return np.concatenate([both, np.full((n - len(first), *plane.shape[1:]), empty, plane.dtype)])

        return Strip(
            each=2 * self.each,
            belief=paired(self.belief, np.fmin, np.nan),  # type: ignore[arg-type]
            found=paired(self.found, np.fmax, np.nan),  # type: ignore[arg-type]
            key=paired(self.key, np.logical_or, False),  # type: ignore[arg-type]
            renewed=paired(self.renewed, np.logical_or, False),  # type: ignore[arg-type]
            count=self.count,
        )


@dataclass(frozen=True)
class Layout:
    """Where everything is, in pixels; made once a clip, as a clip has one size.

    Attributes:
        picture: (h, w) that frames are drawn in.
        unit: height of a line of text.
        columns: questions beside one another.
        rows: lines of questions.
        legend: what the legend of the strip says, in lines.
    """

    picture: tuple[int, int]
    unit: int
    columns: int
    rows: int
    legend: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(frame: tuple[int, int], questions: int) -> Layout:
        """For frames (H, W): drawn as they are, where they are neither narrow nor long."""
        height, width = frame
        ratio = min(max(1.0, NARROW / width), LONG / max(height, width))
        h, w = max(1, round(height * ratio)), max(1, round(width * ratio))
        w = max(w, NARROW)
        unit = max(20, round(20 * w / 854))
        columns = min(questions, max(1, w // (18 * unit)))
        return Layout(
            (h, w + w % 2), unit, columns, -(-questions // columns), _legend(w + w % 2 - unit, unit, questions)
        )

    @property
    def size(self) -> tuple[int, int]:
        """(H, W) of what is drawn, both even."""
        height = self.picture[0] + self.rows * self._row + self._strip + 2 * self._gap
        return height + height % 2, self.picture[1]

    @property
    def _row(self) -> int:
        return 3 * self.unit

    @property
    def _strip(self) -> int:
        return 3 * self.unit + len(self.legend) * self.unit

    @property
    def _gap(self) -> int:
        return self.unit // 2


def drawn(frame: Frame, strip: Strip, layout: Layout, expected: int | None = None) -> Bytes:
    """A frame with what is kept of it, and the strip up to it: uint8 [H, W, 3] of `layout.size`.

    Args:
        frame: of one question or of several.
        strip: this frame included.
        layout: of the clip's first frame; a frame of another size is fitted in.
        expected: how many frames there will be, for the caption.
    """
    relevance = (frame.relevance,) if isinstance(frame.relevance, Relevance) else tuple(frame.relevance)
    kept = (frame.kept,) if isinstance(frame.kept, Allocation) else frame.kept
    new = (frame.kept_new,) if isinstance(frame.kept_new, np.ndarray) else frame.kept_new
    page = _ground(*layout.size).copy()
    height, width = layout.picture
    ratio = min(height / frame.rgb.shape[0], width / frame.rgb.shape[1])
    h, w = (max(1, round(side * ratio)) for side in frame.rgb.shape[:2])
    rgb = frame.rgb
    if (h, w) != rgb.shape[:2]:
        rgb = cv2.resize(rgb, (w, h), interpolation=cv2.INTER_AREA if ratio < 1 else cv2.INTER_CUBIC)  # type: ignore[assignment]
    top, left = (height - h) // 2, (width - w) // 2
    page[top : top + h, left : left + w] = picture(rgb, relevance, kept, new, frame)
    _lamp(page, frame, layout)
    y, room, tall = height + layout._gap, width // layout.columns, layout._row - layout._gap
    small = cv2.resize(rgb, (max(1, min(round(tall * w / h), 2 * tall)), tall), interpolation=cv2.INTER_AREA)
    for i, (one, cells, sent) in enumerate(zip(relevance, kept, new, strict=True)):
        at = (y + (i // layout.columns) * layout._row, (i % layout.columns) * room + layout._gap)
        said = f"{len(cells)} of {format_count(cells.grid.count, 'cell')}, {len(sent)} new"
        said += " (brighter)" if 0 < len(sent) < len(cells) else ""
        _question(page, small, one, said, _colour(i), at, room - layout._gap, layout.unit)
    _strip(page, strip, frame, layout, expected)
    return page


def picture(
    rgb: Bytes,
    relevance: Sequence[Relevance],
    kept: Sequence[Allocation],
    new: Sequence[NDArray[np.int64]],
    frame: Frame,
) -> Bytes:
    """Kept cells outlined, new ones as they are, the others darker; the rest dark with a glow, renewed parts framed:
    uint8 [h, w, 3]."""
    h, w = rgb.shape[:2]
    passing, added = _glow([one.map for one in relevance])
    grey = cv2.convertScaleAbs(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), alpha=DARK)
    grey = cv2.multiply(grey, cv2.resize(passing, (w, h), interpolation=cv2.INTER_LINEAR), scale=1 / 255)
    out = cv2.add(cv2.merge([grey, grey, grey]), cv2.resize(added, (w, h), interpolation=cv2.INTER_LINEAR))
    masks = [cv2.resize(one.mask.astype(np.uint8), (w, h), interpolation=cv2.INTER_NEAREST) for one in kept]
    every = np.bitwise_or.reduce([one.mask for one in kept])
    every = cv2.resize(_level(every, new), (w, h), interpolation=cv2.INTER_NEAREST)
    out = np.asarray(cv2.copyTo(cv2.convertScaleAbs(rgb, alpha=SENT), (every == 1).astype(np.uint8), out), np.uint8)
    out = np.asarray(cv2.copyTo(rgb, (every == 2).astype(np.uint8), out), np.uint8)
    thick = 1 if w < 1000 else 2
    grid = frame.grid
    for y0, x0, y1, x1 in frame.renewed:
        corner, end = (x0 * w // grid.w, y0 * h // grid.h), (x1 * w // grid.w - 1, y1 * h // grid.h - 1)
        cv2.rectangle(out, corner, end, RENEWED, thick)
    for i, mask in sorted(enumerate(masks), key=lambda pair: (relevance[pair[0]].detected, -pair[0])):
        found, _ = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
        colour = _colour(i) if relevance[i].detected else tuple(value // 2 for value in _colour(i))
        cv2.drawContours(out, found, -1, colour, thick, cv2.LINE_AA)
    return np.asarray(out, np.uint8)


def _level(kept: NDArray[np.bool_], new: Sequence[NDArray[np.int64]]) -> Bytes:
    """0: not kept, 1: kept, and sent before, 2: new to a question; uint8 [h, w]."""
    level = kept.astype(np.uint8)
    for cells in new:
        level.ravel()[cells] = 2
    return level


def _glow(maps: Sequence[Floats]) -> tuple[Bytes, Bytes]:
    """What is left of the grey picture, [y, x], and the light that is added, [y, x, 3]; four samples a cell's side."""
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


def _lamp(page: Bytes, frame: Frame, layout: Layout) -> None:
    """In a corner of key frames: why everything was encoded; where parts were: that they were."""
    if not frame.key and not frame.renewed:
        return
    said = f"key frame: {frame.reason}" if frame.key else "parts renewed"
    colour, u = KEY if frame.key else RENEWED, layout.unit
    mask = _text(said, round(u * 0.7), layout.picture[1] - 3 * u)
    high, wide = mask.shape[0] + u // 2, mask.shape[1] + round(1.6 * u)
    place = page[u // 2 : u // 2 + high, u // 2 : u // 2 + wide]
    place[:] = cv2.convertScaleAbs(place, alpha=0.35)
    cv2.circle(page, (u // 2 + round(0.7 * u), u // 2 + high // 2), max(3, u // 5), colour, -1, cv2.LINE_AA)
    _ink(page, mask, (u // 2 + u // 4, u // 2 + round(1.25 * u)), colour)


def _question(
    page: Bytes,
    small: NDArray[Any],
    one: Relevance,
    said: str,
    colour: Colour,
    at: tuple[int, int],
    room: int,
    unit: int,
) -> None:
    """The map of a question, small; its name; what became of it."""
    y, x = at
    tall, wide = small.shape[:2]
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)[..., None] * 0.5
    level = np.asarray(cv2.resize(one.map, (wide, tall), interpolation=cv2.INTER_LINEAR), np.float32)
    share = 0.2 + 0.6 * np.clip(level, 0, 1)[..., None]
    page[y : y + tall, x : x + wide] = (grey * (1 - share) + colour_heat(level) * share).astype(np.uint8)
    cv2.rectangle(page, (x, y), (x + wide - 1, y + tall - 1), colour, 1)
    left, width = x + wide + unit // 2, max(1, room - wide - unit)
    verdict = f"{one.confidence:.2f}" + ("" if one.detected else ", not found: spread out")
    _ink(page, _text(f"“{one.query}”", round(unit * 0.8), width), (y, left), colour)
    _ink(page, _text(f"confidence {verdict}", round(unit * 0.65), width), (y + round(unit * 0.95), left), INK)
    _ink(page, _text(said, round(unit * 0.65), width), (y + round(unit * 1.7), left), QUIET)


def _strip(page: Bytes, strip: Strip, frame: Frame, layout: Layout, expected: int | None) -> None:
    """The strip over time, with a line of text above it."""
    u, width = layout.unit, layout.picture[1]
    y = layout.picture[0] + layout._gap + layout.rows * layout._row
    left, wide, tall = layout._gap, width - 2 * layout._gap, 3 * u - u // 2
    top = y + len(layout.legend) * u + u // 4
    size = round(u * 0.65)
    of = f" of {expected}" if expected is not None and expected > frame.index else ""
    said = f"frame {frame.index + 1}{of}, {frame.time:.2f} s"
    right = _text(said, size, COUNTER * u)
    _ink(page, right, (y, width - left - right.shape[1]), INK)
    marks = {LEGEND[0]: BELIEF, LEGEND[2]: KEY, LEGEND[3]: RENEWED}
    for line, names in enumerate(layout.legend):
        x, middle_y = left, y + line * u + u // 5 + u // 6
        for name in names:
            if name in marks:
                cv2.rectangle(page, (x, middle_y - u // 6), (x + u // 3, middle_y + u // 6), marks[name], -1)
            else:
                for i in range(strip.found.shape[1])[:3]:
                    at = middle_y + 4 * i - 2 * min(2, strip.found.shape[1] - 1)
                    cv2.line(page, (x, at), (x + u // 3, at), _colour(i), 2 if u >= 26 else 1, cv2.LINE_AA)
            word = _text(name.format(f"{frame.confidence.mean():.2f}"), size, wide)
            _ink(page, word, (y + line * u, x + u // 2), QUIET)
            x += u // 2 + word.shape[1] + u
    n = len(strip.belief)
    heights = np.nan_to_num(strip.belief, nan=0.0) * (tall - 1)
    filled = np.arange(tall)[::-1, None] <= np.where(np.isnan(strip.belief), -1, heights)[None]
    columns = np.where(filled[..., None], np.array(BELIEF, np.uint8), np.array(LINE, np.uint8))
    page[top : top + tall, left : left + wide] = cv2.resize(columns, (wide, tall), interpolation=cv2.INTER_NEAREST)
    middle = left + ((np.arange(n) + 0.5) * wide / n)
    for i in range(strip.found.shape[1]):
        seen = ~np.isnan(strip.found[:, i])
        rows = top + (1 - strip.found[seen, i]) * (tall - 3) + 1
        points = np.stack([middle[seen], rows], -1).round().astype(np.int32)
        if len(points) == 1:  # of the first frame: across its column
            points = (points + np.array([[-0.5], [0.5]]) * [[wide / n, 0]]).round().astype(np.int32)
        cv2.polylines(page, [points], False, _colour(i), 1 if u < 26 else 2, cv2.LINE_AA)
    for x in middle[strip.key].round().astype(int):
        cv2.line(page, (x, top), (x, top + u // 3), KEY, 1 if u < 26 else 2)
    for x in middle[strip.renewed].round().astype(int):
        cv2.line(page, (x, top + tall - 1), (x, top + tall - 1 - u // 4), RENEWED, 1 if u < 26 else 2)
    now = round(float(left + ((strip.count - 1) // strip.each + 1) * wide / n))  # where the tick is not hidden
    cv2.line(page, (now, top - 2), (now, top + tall + 1), QUIET, 1)


@lru_cache(maxsize=16)
def _legend(width: int, unit: int, questions: int) -> tuple[tuple[str, ...], ...]:
    """The names of LEGEND in as many lines as they need; in the first there is room for the number of the frame."""
    lines: list[list[str]] = [[]]
    x = COUNTER * unit
    for name in LEGEND if questions > 1 else (LEGEND[0], LEGEND[1].replace("each", "the"), *LEGEND[2:]):
        needed = unit // 2 + _text(name.format("0.00"), round(unit * 0.65), width).shape[1] + unit
        if x + needed - unit > width:
            lines, x = [*lines, []], 0
        lines[-1].append(name)
        x += needed
    return tuple(map(tuple, lines))


def _ink(page: Bytes, mask: Bytes, at: tuple[int, int], colour: Colour) -> None:
    """Lay text on the page, as far as it lies on it."""
    place = page[at[0] : at[0] + mask.shape[0], at[1] : at[1] + mask.shape[1]]
    share = mask[: place.shape[0], : place.shape[1], None].astype(np.float32) / 255
    place[:] = (place * (1 - share) + np.array(colour, np.float32) * share).astype(np.uint8)


@lru_cache(maxsize=2)
def _ground(height: int, width: int) -> Bytes:
    page = np.full((height, width, 3), GROUND, np.uint8)
    page.setflags(write=False)
    return page


@lru_cache(maxsize=256)
def _text(text: str, size: int, width: int) -> Bytes:
    """A line of text as coverage, uint8 [h, w], cut to a width."""
    font = ImageFont.load_default(size)
    shown = fit_text(text, width, font)
    box = Image.new("L", (max(1, min(width, round(font.getlength(shown)) + 1)), round(size * 1.3)))
    ImageDraw.Draw(box).text((0, 0), shown, fill=255, font=font)
    mask = np.asarray(box)
    mask.setflags(write=False)
    return mask


def _colour(number: int) -> Colour:
    return COLOURS[number % len(COLOURS)]


def _unknown(shape: int | tuple[int, ...]) -> Floats:
    return np.full(shape, np.nan, np.float32)
