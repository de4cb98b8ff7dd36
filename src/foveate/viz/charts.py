"""Curves: how much of a thing is kept, beside baselines; and what the directions of a basis explain."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import OptionError
from foveate.core.image import Bytes
from foveate.viz import paper
from foveate.viz.colours import INK, PAPER, QUIET, RULE, Colour
from foveate.viz.paper import GAP, TEXT, Block, Item

Report = Mapping[str, Any] | str | os.PathLike[str]
WIDE, TALL, FINER = 1000, 620, 3  # pixels of the area of curves, chosen by hand; lines are drawn so much finer
SMALL = round(0.75 * TEXT)
# Colours, chosen by hand: ours, an upper bound, the baselines in turn.
OURS, BOUND, REST = (
    (0, 104, 160),
    (22, 22, 28),
    ((200, 90, 0), (150, 60, 130), (0, 130, 100), (120, 122, 130), (196, 150, 0), (70, 70, 160)),
)


class Series(NamedTuple):
    """A curve, and an interval around it where it is known."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    bold: bool = False
    dashed: bool = False


def curve(report: Report) -> Image.Image:
    """How much of a thing is kept, over the share of cells kept: the curve of a report of `foveate evaluate relevance`.

    `report` may be the path of its report.json. Raises OptionError for one that has no such curve.
    """
    fix = "pass report.json of 'foveate evaluate relevance', as it is"
    try:
        if isinstance(report, str | os.PathLike):
            report = json.loads(Path(report).read_text("utf-8"))
        assert isinstance(report, Mapping)
        budgets, series = report["budgets"], list[Series]()
        for name, points in budgets["covered"].items():
            mean, low, high = ([float(point[key] or 0) for point in points] for key in ("mean", "low", "high"))
            series.append(Series(name, budgets["percent"], mean, low, high, not series, "mask" in name))
        chart = draw_chart(series, "share of the thing that is kept", "cells kept, percent of all", ends=(0.0, 1.0))
        title = str(report.get("title", ""))
    except (AssertionError, OSError, LookupError, TypeError, ValueError, AttributeError) as cause:
        raise OptionError(f"a report with no budgets in it ({cause!r})"[:300], expected="one", fix=fix) from cause
    return paper.paint(paper.above([paper.text(title, chart.width, TEXT, QUIET), chart], 2 * GAP))


def explained(shares: Sequence[float]) -> Image.Image:
    """Explained variance of a basis: a bar for each direction, [n] shares in [0, 1], and a line of their sums.

    Raises OptionError for other numbers.
    """
    try:
        numbers, sums = range(1, len(shares) + 1), np.cumsum(shares).tolist()
        together = Series("the first so many together", numbers, sums, bold=True)
        series = [together, Series("each direction", numbers, shares, dashed=True)]
        chart = draw_chart(series, "share of the squared scores", "directions", ends=(0.0, 1.0), bars="each direction")
    except (ValueError, TypeError) as cause:
        fix = "pass made['shares'] of a FittedBasis"
        raise OptionError(f"shares {shares!r}"[:300], expected="numbers in [0, 1]", fix=fix) from cause
    return paper.paint(chart)


def draw_chart(
    series: Sequence[Series], y_name: str, x_name: str, *, ends: tuple[float, float], bars: str = ""
) -> Block:
    """Curves over a logarithmic axis, with ticks at the points of the first; their names to the right, best first.

    The series named `bars` has a bar to each of its points, which are 1 apart, in the place of a curve.
    """
    low, high = ends
    xs = [x for one in series for x in one.x]
    if not xs or not np.isfinite([value for one in series for value in (*one.x, *one.y)]).all() or min(xs) <= 0:
        raise ValueError("points must be numbers, above 0 on the lower axis")
    if any(len(one.x) != len(one.y) for one in series):
        raise ValueError("as many points are needed on one axis as on the other")
    span = np.log(max(xs) / min(xs)) or 1.0

    def place(x: Sequence[float], y: Sequence[float]) -> NDArray[np.float64]:
        right = np.log(np.asarray(x) / min(xs)) / span
        up = (np.clip(np.asarray(y, float), low, high) - low) / max(high - low, 1e-9)
        return np.stack([30 + right * (WIDE - 60), TALL - 1 - up * (TALL - 2)], -1)

    ordered = sorted(series, key=lambda one: -float(np.mean(one.y)))
    colours = _colours(series)
    step = 0.2 if 5 * (high - low) % 1 < 1e-6 else 0.25
    ticks = np.arange(round((high - low) / step) + 1) * step + low
    area = _draw_area(series, colours, place, ticks, bars)
    marks, labels = series[0].x, []
    for x in marks:
        block = paper.text(f"{x:g}", WIDE, SMALL, QUIET)
        at = round(float(place([x], [low])[0, 0]))
        labels.append((at, block))
    below, end = [], -GAP
    for at, block in labels:
        left = at - block.width // 2
        if left > end:  # no label over another
            below += [item.moved(left, 0) for item in block.items]
            end = left + block.width + 4
    axis = Block(WIDE, labels[0][1].height, tuple(below))
    numbers = [paper.text(f"{tick:.3g}", 120, SMALL, QUIET) for tick in ticks]
    room = max(block.width for block in numbers)
    half, beside = numbers[0].height // 2, list[Item]()
    for tick, block in zip(ticks, numbers, strict=True):
        top = round(float(place([xs[0]], [tick])[0, 1]))
        beside += [item.moved(room - block.width, top) for item in block.items]
    left_axis = Block(room, TALL + 2 * half, tuple(beside))
    names = []
    for one in ordered:
        line = paper.over(paper.space(44, 24), paper.shape("rule", 44, 7 if one.bold else 4, colours[one.name]))
        names.append(
            paper.beside([line, paper.text(one.name, 420, SMALL, INK if one.bold else QUIET, 2)], 14, middle=True)
        )
    plot = paper.beside([left_axis, paper.grow(paper.picture(area), y=half), paper.above(names, 12)], 18)
    foot = paper.beside([paper.space(room, 1), paper.above([axis, paper.text(x_name, WIDE, SMALL, QUIET)], 4)], 18)
    return paper.above([paper.text(y_name, WIDE, TEXT), plot, foot], 14)


def _colours(series: Sequence[Series]) -> dict[str, Colour]:
    turn = iter(REST * len(series))
    return {one.name: OURS if one.bold else BOUND if one.dashed else next(turn) for one in series}


def _draw_area(
    series: Sequence[Series], colours: Mapping[str, Colour], place: Any, ticks: NDArray[np.floating], bars: str
) -> Bytes:
    area = np.full((TALL * FINER, WIDE * FINER, 3), PAPER, np.uint8)
    for tick in ticks:
        y = round(float(place([series[0].x[0]], [tick])[0, 1]) * FINER)
        cv2.line(area, (0, y), (area.shape[1], y), RULE, FINER)
    for one in series:
        if one.low and one.bold:
            edge = np.concatenate([place(one.x, one.high), place(one.x, one.low)[::-1]])
            shade = area.copy()
            cv2.fillPoly(shade, [np.rint(edge * FINER).astype(np.int32)], colours[one.name])
            area = np.asarray(cv2.addWeighted(area, 0.85, shade, 0.15, 0), np.uint8)
    for one in sorted(series, key=lambda one: one.bold):
        points = place(one.x, one.y) * FINER
        if one.name == bars:
            edges = place(np.add([*one.x, one.x[-1] + 1], -0.5), np.zeros(len(one.x) + 1)) * FINER
            for point, left, right in zip(points, edges, edges[1:], strict=False):
                low, high = (max(int(left[0]), 0), int(point[1])), (max(int(right[0] * 0.99), 0), area.shape[0] - 1)
                cv2.rectangle(area, low, high, colours[one.name], -1)
            continue
        thick = (5 if one.bold else 3) * FINER
        for a, b in itertools.pairwise(points):
            parts = max(1, int(np.hypot(*(b - a)) / (14 * FINER))) if one.dashed else 1
            for part in range(parts):
                start, end = a + (b - a) * part / parts, a + (b - a) * (part + (0.55 if one.dashed else 1)) / parts
                first, last = (np.rint(p).astype(int).tolist() for p in (start, end))
                cv2.line(area, first, last, colours[one.name], thick, cv2.LINE_AA)
        for point in [] if one.dashed else points:
            cv2.circle(area, np.rint(point).astype(int).tolist(), thick, colours[one.name], -1, cv2.LINE_AA)
    return np.asarray(cv2.resize(area, (WIDE, TALL), interpolation=cv2.INTER_AREA), np.uint8)
