"""RapidOCR as a reader (extra `[text]`): PP-OCRv6 on onnxruntime; its models lie inside the wheel. Added here: a closer
look at small print in tiles, turned pages, boxes of words, reading order.
"""

from __future__ import annotations

import math
import re
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ModelFilesError, needed_by
from foveate.core.threads import once
from foveate.reading.order import order_lines
from foveate.reading.words import Word, Words

Bytes = NDArray[np.uint8]
Quads = NDArray[np.float32]  # [n, 4, 2] of (x, y), as OpenCV has them: top left, top right, bottom right, bottom left

# Chosen by hand on pages and photographs (`python -m benchmarks readers`), but for STEP, HEIGHT.
SHORT_SIDE, LARGEST = 736, 3.0  # pixels to which a small picture's short side is enlarged, and by how much at most
PIXELS = 1_600_000  # of one look at most: half a GB of memory
MARGIN, STEP = 16, 32  # pixels around what is looked at; the detector's network halves five times
SMALL = 16  # pixels of a line's height at the first look; lower ones are looked at again
OVERLAP = 192  # pixels of neighbouring tiles
STROKE, CONTRAST, PRINT = 9, 40, (5, 28)  # pixels of thin strokes, levels of 255, pixels of the lines that they make
SAME = 0.6  # of the lower height that two boxes of one line share
HEIGHT, LONGEST = 48, 40  # of a line for the recogniser; times its height that it is long, else it is read in parts
TALL = 1.5  # times its width that the box of a line on end is high
SURE, SURE_SHORT = 0.5, 0.75  # least mean confidence of a line's letters; of one or two letters
SURE_ALONE, WHOLE = 0.95, 0.8  # the same of one or two letters whose box is so much of the image in both directions
VOTERS, DOUBTFUL = 6, 0.85  # lines read to see whether a page stands on its head, where they are less sure than this

GAP = 2.6  # a step of so many usual ones is a gap; pairs of letters have 0.5 to 2
GAP_OF_KINDS = 1.5  # the same where a letter meets a digit
HALF = 0.8  # of a usual step, from a letter's centre to its end: M and W are wide, and centres are known roughly
LOST = re.compile(
    r"(?<=[^\W\d_]{2}:)(?=\w)"  # Date:23/01/2018, not 3:28
    r"|(?<=\w,)(?=[^\W\d_])|(?<=[^\W\d_],)(?=\d)"  # 84600,PAGOH, not 1,340
    r"|(?<=[^\W\d_]{2})(?=\([^)]{3})"  # SB(306295-X), not Brand(s)
    r"|(?<=[a-z]{4})(?=\d{3,}\b)"  # number4711, not B166
    r"|(?<=[A-Z]{3})(?=\d{1,4}[/.:-]\d)"  # DATE11/4/93, TOTAL12.50; not MP3, B166
)


class RapidReader:
    """RapidOCR's detector and recogniser, with a box for each word."""

    @property
    def name(self) -> str:
        try:
            return f"rapidocr {version('rapidocr')}"
        except PackageNotFoundError:
            return "rapidocr"

    def read(self, rgb: Bytes) -> Words:
        bgr = np.ascontiguousarray(rgb[..., ::-1])
        quads = find_lines(bgr)
        turn = find_turn(bgr, quads)
        quads = np.roll(quads, -turn, axis=1)
        lines = [(quad, *read_line(bgr, quad)) for quad in quads]
        lines = [line for line in lines if is_sure(line[1], fills(line[2], rgb.shape))]
        order = order_lines(upright_boxes(np.array([line[0] for line in lines]).reshape(-1, 4, 2), turn))
        words: list[Word] = []
        for number, (_, letters, quad) in enumerate(lines[i] for i in order):
            for text, start, end, confidence in cut_words(letters):
                x, y = part_of(quad, start, end).T
                box = (float(y.min()), float(x.min()), float(y.max()), float(x.max()))
                words.append(Word(text, box, confidence, number))
        return Words.of(words, self.name, turned=(360 - 90 * turn) % 360 if words else 0)


def find_lines(bgr: Bytes) -> Quads:
    """Quadrilaterals around lines, in pixels of the image."""
    h, w = bgr.shape[:2]
    scale = min(max(1.0, min(LARGEST, SHORT_SIDE / min(h, w))), math.sqrt(PIXELS / (h * w)))
    found = look(bgr, scale)
    if scale >= 1:
        return found
    low = heights_of(found) * scale < SMALL
    gray = np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY), np.uint8)
    for quad in np.rint(found[~low]).astype(np.int32):
        cv2.fillConvexPoly(gray, quad, [int(np.median(gray[quad[:, 1].clip(0, h - 1), quad[:, 0].clip(0, w - 1)]))])
    again, seen = [], np.zeros(len(found), bool)
    for y0, x0, y1, x1 in cut_tiles(h, w):
        here = inside(found, (y0, x0, y1, x1))
        if (low & here).any() or has_rows(gray[y0:y1, x0:x1]):
            seen |= here
            again.append(look(bgr[y0:y1, x0:x1], 1.0) + np.array([x0, y0], np.float32))
    return merge([found[~(low & seen)], *again])


def has_rows(gray: Bytes) -> bool:
    """Whether there may be small print that the first look misses: thin strokes that close up to long low bars."""
    kernel = np.ones((STROKE, STROKE), np.uint8)
    kinds = (cv2.MORPH_BLACKHAT, cv2.MORPH_TOPHAT)
    thin = np.max([cv2.morphologyEx(gray, kind, kernel, borderType=cv2.BORDER_REPLICATE) for kind in kinds], 0)
    marks = (thin >= CONTRAST).astype(np.uint8)
    for along in ((1, 2 * STROKE), (2 * STROKE, 1)):  # pages may be turned
        bars = cv2.morphologyEx(marks, cv2.MORPH_CLOSE, np.ones(along, np.uint8))
        found = cv2.connectedComponentsWithStats(bars)[2][1:]
        low, long = np.sort(found[:, 2:4], 1).T
        filled = 2 * found[:, 4] > low * long  # leaves and hair are not
        if (filled & (low >= PRINT[0]) & (low <= PRINT[1]) & (long >= 8 * low)).sum() >= 2:
            return True
    return False


def look(bgr: Bytes, scale: float) -> Quads:
    """What the detector finds in an image at another size."""
    h, w = bgr.shape[:2]
    size = (max(1, round(w * scale)), max(1, round(h * scale)))
    if size != (w, h):
        how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
        bgr = np.asarray(cv2.resize(bgr, size, interpolation=how), np.uint8)
    around = np.median(np.concatenate([bgr[0], bgr[-1], bgr[:, 0], bgr[:, -1]]), 0).tolist()
    down, right = ((-(side + 2 * MARGIN)) % STEP + MARGIN for side in bgr.shape[:2])
    bgr = np.asarray(cv2.copyMakeBorder(bgr, MARGIN, down, MARGIN, right, cv2.BORDER_CONSTANT, value=around), np.uint8)
    boxes = engines()[0](bgr).boxes
    quads = np.zeros((0, 4, 2), np.float32) if boxes is None else np.asarray(boxes, np.float32).reshape(-1, 4, 2)
    return np.asarray(np.clip((quads - MARGIN) * np.array([w / size[0], h / size[1]]), 0, [w, h]), np.float32)


def cut_tiles(h: int, w: int) -> list[tuple[int, int, int, int]]:
    """Overlapping tiles (y0, x0, y1, x1) of at most PIXELS that cover an image."""
    side = math.isqrt(PIXELS)
    high, wide = min(h, max(side, PIXELS // w)), min(w, max(side, PIXELS // h))
    starts = [
        np.linspace(0, full - part, 1 + math.ceil((full - part) / max(1, part - OVERLAP))).round().astype(int).tolist()
        for full, part in ((h, high), (w, wide))
    ]
    return [(y, x, y + high, x + wide) for y in starts[0] for x in starts[1]]


def heights_of(quads: Quads) -> NDArray[np.float32]:
    """The shorter sides, as lines may run in any direction."""
    a, b = (np.linalg.norm(quads[:, 0] - quads[:, k], axis=1) for k in (1, 3))
    return np.minimum(a, b)


def inside(quads: Quads, tile: tuple[int, int, int, int]) -> NDArray[np.bool_]:
    y0, x0, y1, x1 = tile
    low, high = quads.min(1), quads.max(1)
    return (low[:, 0] < x1) & (high[:, 0] > x0) & (low[:, 1] < y1) & (high[:, 1] > y0)


def merge(looks: list[Quads]) -> Quads:
    """Lines from several looks, each once: boxes of one line that overlap become the box around both."""
    quads = np.concatenate(looks)
    owner = np.repeat(np.arange(len(looks)), [len(each) for each in looks])
    low, high = quads.min(1), quads.max(1)
    group = np.arange(len(quads))
    for i in range(len(quads)):
        shared = np.minimum(high[i], high[i + 1 :]) - np.maximum(low[i], low[i + 1 :])
        least = np.minimum(high[i] - low[i], high[i + 1 :] - low[i + 1 :])
        across = int(np.argmin(high[i] - low[i]))  # the side of a line that does not grow
        same = (shared > 0).all(1) & (shared[:, across] > SAME * least[:, across]) & (owner[i + 1 :] != owner[i])
        for j in np.flatnonzero(same) + i + 1:
            group[group == max(group[i], group[j])] = min(group[i], group[j])
    lines = [quads[group == number] for number in np.unique(group)]
    whole = [line[0] if len(line) == 1 else around(line) for line in lines]
    return np.asarray(whole, np.float32).reshape(-1, 4, 2)


def around(quads: Quads) -> Quads:
    """The rectangle around boxes of one line, in their direction, its corners in their order."""
    longest = quads[np.argmax(np.linalg.norm(quads.max(1) - quads.min(1), axis=1))]
    u = longest[1] - longest[0]
    u = u / max(float(np.linalg.norm(u)), 1e-6)
    v = np.array([-u[1], u[0]])
    along, down = quads.reshape(-1, 2) @ u, quads.reshape(-1, 2) @ v
    (left, right), (top, low) = ((side.min(), side.max()) for side in (along, down))
    return np.array([a * u + d * v for a, d in ((left, top), (right, top), (right, low), (left, low))], np.float32)


def find_turn(bgr: Bytes, quads: Quads) -> int:
    """By how many quarters the page is turned clockwise: 0 to 3."""
    if not len(quads):
        return 0
    wide, high = (np.linalg.norm(quads[:, 0] - quads[:, k], axis=1) for k in (1, 3))
    long = np.maximum(wide, high) > 2 * np.minimum(wide, high)
    standing = int(high[long & (high > wide)].sum() > wide[long & (wide > high)].sum())
    voters = np.argsort(-np.maximum(wide, high), kind="stable")[:VOTERS]
    quads = np.roll(quads[voters], -standing, axis=1)
    upright = np.array([certainty(read_crop(crop_of(bgr, quad))) for quad in quads])
    if np.median(upright) >= DOUBTFUL:
        return standing
    headlong = np.array([certainty(read_crop(crop_of(bgr, np.roll(quad, -2, axis=0)))) for quad in quads])
    read = np.maximum(upright, headlong) >= SURE  # the others say nothing, whichever way
    return standing + 2 * int(read.any() and headlong[read].mean() > upright[read].mean() + 0.05)


def upright_boxes(quads: Quads, turn: int) -> NDArray[np.float64]:
    """Boxes (y0, x0, y1, x1) [n, 4] in a frame where the page is upright and its lines level, for their order only."""
    if not len(quads):
        return np.zeros((0, 4))
    along = quads[:, 1] + quads[:, 2] - quads[:, 0] - quads[:, 3]
    lengths = np.linalg.norm(along, axis=1)
    angles = np.arctan2(along[:, 1], along[:, 0]) - turn * np.pi / 2
    angles = (angles + np.pi) % (2 * np.pi) - np.pi
    level = lengths >= np.median(lengths)
    skew = float(np.median(angles[level])) if np.abs(angles[level]).max() < 1 else 0.0
    cos, sin = math.cos(-skew - turn * np.pi / 2), math.sin(-skew - turn * np.pi / 2)
    points = quads.astype(np.float64) @ np.array([[cos, sin], [-sin, cos]])
    middles, wide = points.mean(1), lengths / 2
    high = np.linalg.norm(quads[:, 0] - quads[:, 3], axis=1)
    leaning = np.abs(angles - skew) > 0.5  # a line in another direction: what it covers
    size = np.where(leaning[:, None], np.ptp(points, axis=1), np.stack([wide, high], 1)) / 2
    return np.concatenate([(middles - size)[:, ::-1], (middles + size)[:, ::-1]], 1)


def read_line(bgr: Bytes, quad: Quads) -> tuple[Letters, Quads]:
    """-> letters, and the corners in reading direction. A box that stands on end is tried in up to three ways."""
    wide, high = (float(np.linalg.norm(quad[0] - quad[k])) for k in (1, 3))
    turns = (0,) if high < TALL * wide else (0, 1, 3) if high < 3 * wide else (1, 3)
    tried = []
    for k in turns:
        turned = np.roll(quad, -k, axis=0)
        tried.append((read_crop(crop_of(bgr, turned)), turned))
        if certainty(tried[-1][0]) > 0.9 and len(tried[-1][0].text) > 2:
            break
    return max(tried, key=lambda one: certainty(one[0]))


def crop_of(bgr: Bytes, quad: Quads) -> Bytes:
    """The pixels of a line, level; at most twice as high as the recogniser wants it."""
    wide, high = (float(max(np.linalg.norm(quad[[0, 2]] - quad[[k, 4 - k]], axis=1))) for k in (1, 3))
    shrink = min(1.0, 2 * HEIGHT / max(high, 1))
    w, h = max(1, round(wide * shrink)), max(1, round(high * shrink))
    if shrink < 0.5:  # by area: the warp below would skip pixels
        x0, y0 = np.maximum(np.floor(quad.min(0)).astype(int) - 2, 0)
        x1, y1 = np.ceil(quad.max(0)).astype(int) + 2
        part = bgr[y0:y1, x0:x1]
        small = cv2.resize(part, None, fx=2 * shrink, fy=2 * shrink, interpolation=cv2.INTER_AREA)
        scale = np.array([small.shape[1] / part.shape[1], small.shape[0] / part.shape[0]])
        bgr, quad = np.asarray(small, np.uint8), np.asarray((quad - np.array([x0, y0])) * scale, np.float32)
    corners = np.array([[0, 0], [w, 0], [w, h], [0, h]], np.float32)
    matrix = cv2.getPerspectiveTransform(np.ascontiguousarray(quad, np.float32), corners)
    level = cv2.warpPerspective(bgr, matrix, (w, h), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(level, np.uint8)


def read_crop(crop: Bytes) -> Letters:
    """The letters of a line; a very long one is read in parts, cut where least is written."""
    h, w = crop.shape[:2]
    parts = math.ceil(w / (LONGEST * h))
    if parts == 1:
        return recognise(crop)
    ink = crop.std((0, 2))
    edges = [0]
    for k in range(1, parts):
        here = k * w // parts
        near = np.arange(max(0, here - 3 * h), min(w, here + 3 * h))
        edges.append(int(near[np.argmin(np.convolve(ink, np.ones(max(1, h // 4)), "same")[near])]))
    read = [(a, b, recognise(crop[:, a:b])) for a, b in pairwise([*edges, w]) if b > a]
    text = " ".join(letters.text for _, _, letters in read)
    centres = [np.append((a + letters.centres * (b - a)) / w, b / w) for a, b, letters in read]
    sure = [np.append(letters.confidences, 0) for _, _, letters in read]
    return Letters(text, np.concatenate(centres)[:-1], np.concatenate(sure)[:-1])


def recognise(crop: Bytes) -> Letters:
    """The recogniser on one line: its letters, their places and confidences."""
    found = engines()[1](np.ascontiguousarray(crop))
    text = str(found.txts[0]) if found.txts else ""
    if not text.strip():
        return Letters.even("", 0.0)
    try:
        info = found.word_results[0]
        sure = np.clip(np.asarray(info.confs, float), 0, 1)
        shown = np.array([i for i, letter in enumerate(text) if not letter.isspace()])
        columns = np.array([column for word in info.word_cols for column in word], float)
        if len(sure) != len(text) or len(columns) != len(shown) or (np.diff(columns) <= 0).any():
            raise ValueError
        centres = np.interp(np.arange(len(text)), shown, (columns + 0.5) / info.line_txt_len)
    except (AttributeError, TypeError, ValueError, IndexError, ZeroDivisionError):
        return Letters.even(text, float(found.scores[0]))  # its letters by their share of the line
    return Letters(text, np.clip(centres, 0, 1), sure)


def certainty(letters: Letters) -> float:
    shown = [not letter.isspace() for letter in letters.text]
    return float(letters.confidences[shown].mean()) if any(shown) else 0.0


def is_sure(letters: Letters, alone: bool = False) -> bool:
    """Whether a line counts as read. `alone`: it fills the image."""
    short = SURE_ALONE if alone else SURE_SHORT
    return certainty(letters) >= (SURE if len(letters.text.strip()) > 2 else short)


def fills(quad: Quads, shape: tuple[int, ...]) -> bool:
    """Whether a line's box is about the whole image: a photograph that was taken for a letter."""
    (x0, y0), (x1, y1) = quad.min(0), quad.max(0)
    return bool(y1 - y0 > WHOLE * shape[0] and x1 - x0 > WHOLE * shape[1])


def part_of(quad: Quads, start: float, end: float) -> Quads:
    """The part of a line between two places along it, from 0 to 1."""
    (a, b, c, d), t = quad, np.array([[start], [end]])
    return np.concatenate([a + t * (b - a), d + t * (c - d)])


class Letters(NamedTuple):
    """A line as it was recognised: text with spaces, and of each character the centre along the line (0 to 1)."""

    text: str
    centres: NDArray[np.float64]
    confidences: NDArray[np.float64]

    @classmethod
    def even(cls, text: str, confidence: float) -> Letters:
        """A line whose letters stand at equal steps, where nothing better is known."""
        n = len(text)
        return cls(text, (np.arange(n) + 0.5) / max(n, 1), np.full(n, confidence))


class Piece(NamedTuple):
    """A word of a line: its text, its ends along the line from 0 to 1, its confidence."""

    text: str
    start: float
    end: float
    confidence: float


def cut_words(line: Letters) -> list[Piece]:
    """The words of a line: "DATE11/4/93 Date:23/01/2018" is cut into DATE, 11/4/93, Date:, 23/01/2018."""
    shown = np.array([i for i, letter in enumerate(line.text) if not letter.isspace()], int)
    if not len(shown):
        return []
    text, centres = "".join(line.text[i] for i in shown), line.centres[shown]
    steps, touching = np.diff(centres), np.diff(shown) == 1
    usual = float(np.median(steps[touching])) if touching.any() else 1 / len(line.text)
    kinds = np.array([(a.isalpha() and b.isdigit()) or (a.isdigit() and b.isalpha()) for a, b in pairwise(text)], bool)
    cuts = ~touching | (steps > np.where(kinds, GAP_OF_KINDS, GAP) * usual)
    cuts |= np.isin(shown[1:], [found.start() for found in LOST.finditer(line.text)])
    edges = [0, *(np.flatnonzero(cuts) + 1).tolist(), len(shown)]
    middles = np.concatenate([[0.0], (centres[1:] + centres[:-1]) / 2, [1.0]])  # no word reaches into the next
    return [
        Piece(
            text[first:end],
            float(max(middles[first], centres[first] - HALF * usual)),
            float(min(middles[end], centres[end - 1] + HALF * usual)),
            float(line.confidences[shown[first:end]].mean()),
        )
        for first, end in pairwise(edges)
    ]


@once()
def engines() -> tuple[Any, Any]:
    """RapidOCR's detector and recogniser, for any number of threads. Raises MissingExtraError, ModelFilesError."""
    with needed_by("the reader 'rapidocr'", "text"):
        import rapidocr
    whole = {
        "Global.log_level": "critical",  # it writes to stderr otherwise, each time
        "Global.use_cls": False,
        "Global.use_preprocess_img": False,  # sizes are chosen here
        "Global.use_vertical_padding": False,
    }
    try:
        models = Path(rapidocr.__file__).parent / "models"
        det, rec = (next(models.glob(f"*_{kind}_*.onnx")) for kind in ("det", "rec"))  # else it would download them
        detector = rapidocr.RapidOCR(
            params=whole | {"Global.use_rec": False, "Det.model_path": str(det), "Det.limit_type": "max",
                            "Det.limit_side_len": 10**6}
        )  # fmt: skip
        recogniser = rapidocr.RapidOCR(
            params=whole | {"Global.use_det": False, "Global.return_word_box": True, "Rec.model_path": str(rec),
                            "Rec.rec_img_shape": [3, HEIGHT, 64]}  # its own least width, 320, makes a short word slow
        )  # fmt: skip
        blank = np.full((HEIGHT, 64, 3), 255, np.uint8)
        detector(blank)
        recogniser(blank)  # models are loaded when first used
    except Exception as cause:  # files missing or damaged, another version, no memory
        raise ModelFilesError(
            f"RapidOCR's models could not be loaded ({type(cause).__name__}: {str(cause).splitlines()[-1:]})",
            expected="rapidocr 3.10 or later, whose wheel carries them",
            fix="pip install --force-reinstall rapidocr; encode(..., read=False) goes on without reading",
        ) from cause
    return detector, recogniser
