"""The reading order of lines: rows from top to bottom, columns of prose (not of a table) one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.reading.words import Word, Words

Floats = NDArray[np.float64]

# Chosen by hand on receipts, forms and papers:
GAP = 1.5  # heights of two words between them from which on they are two lines, as a label and its value
SAME_ROW = 0.5  # of the lower height, by which the middles of two lines of a row differ at most
ROWS = 4  # of prose on both sides of a gap make columns
FULL, WIDE = 0.75, 8.0  # share of its column that a row of prose fills; its length in heights; both in the median


def arrange(words: Sequence[Word], reader: str, turn: int) -> Words:
    """Words of a page that is turned by so many quarters clockwise -> in reading order; lines are cut at wide gaps."""
    if not words:
        return Words.of((), reader)
    level = stand_upright(np.array([word.box for word in words], float), turn)
    number, numbers = -1, []
    for i, word in enumerate(words):
        height = max(level[i, 2] - level[i, 0], level[i - 1, 2] - level[i - 1, 0])
        if not i or word.line != words[i - 1].line or level[i, 1] - level[i - 1, 3] > GAP * height:
            number += 1
        numbers.append(number)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    low, high = np.minimum.reduceat(level[:, :2], starts), np.maximum.reduceat(level[:, 2:], starts)
    rank = {line: place for place, line in enumerate(order_lines(np.concatenate([low, high], 1)))}
    lines = sorted(zip(numbers, words, strict=True), key=lambda item: rank[item[0]])
    return Words.of((word._replace(line=n) for n, word in lines), reader, turned=(360 - 90 * turn) % 360)


def stand_upright(boxes: Floats, turn: int) -> Floats:
    """Boxes (y0, x0, y1, x1) [n, 4] of a page turned by so many quarters clockwise, as if it were upright."""
    y0, x0, y1, x1 = boxes.T
    return np.stack([(y0, x0, y1, x1), (-x1, y0, -x0, y1), (-y1, -x1, -y0, -x0), (x0, -y1, x1, -y0)][turn], 1)


def order_lines(boxes: Floats) -> list[int]:
    """Boxes [n, 4] of (y0, x0, y1, x1), of an upright page -> their numbers in reading order."""
    if not len(boxes):
        return []
    rows = find_rows(boxes)
    done: list[int] = []
    refused: dict[int, int] = {}
    first = 0
    while first < len(rows):
        gap = find_columns(boxes, rows, first, refused)
        if gap is None:
            done += rows[first]
            first += 1
            continue
        x, end = gap
        inside = [i for row in rows[first:end] for i in row]
        middle = boxes[inside][:, [1, 3]].mean(1)
        for side in (middle < x, middle >= x):
            part = [i for i, here in zip(inside, side, strict=True) if here]
            done += [part[k] for k in order_lines(boxes[part])]
        first = end
    return done


def find_rows(boxes: Floats) -> list[list[int]]:
    """From top to bottom, each from left to right."""
    middles, heights = boxes[:, [0, 2]].mean(1), boxes[:, 2] - boxes[:, 0]
    rows: list[list[int]] = []
    for i in np.argsort(middles, kind="stable").tolist():
        last = rows[-1] if rows else []
        near = [j for j in last if abs(middles[i] - middles[j]) < SAME_ROW * min(heights[i], heights[j])]
        covers = any(min(boxes[i, 3], boxes[j, 3]) - max(boxes[i, 1], boxes[j, 1]) > 0.3 * min(
            boxes[i, 3] - boxes[i, 1], boxes[j, 3] - boxes[j, 1]) for j in last)  # fmt: skip
        if near and not covers:
            last.append(i)
        else:
            rows.append([i])
    return [sorted(row, key=lambda i: float(boxes[i, 1])) for row in rows]


def find_columns(boxes: Floats, rows: list[list[int]], first: int, refused: dict[int, int]) -> tuple[float, int] | None:
    """From row `first` on: (x of a gap between two columns of prose, the row where they end), or None.

    `refused`: gaps that are none, and the row from which they are tried again (a page may have thousands).
    """
    best = None
    height = max(1e-6, float(np.median(boxes[:, 2] - boxes[:, 0])))
    starts = sorted({float(boxes[i, 1]) for row in rows[first : first + ROWS] for i in row})
    for x in starts[1:]:
        place, end = round(x / height), first
        if refused.get(place, 0) > first:
            continue
        while end < len(rows) and all(boxes[i, 3] <= x or boxes[i, 1] >= x - 1 for i in rows[end]):
            end += 1
        inside = [[i for i in row if boxes[i, 3] <= x] for row in rows[first:end]]
        beyond = [[i for i in row if boxes[i, 3] > x] for row in rows[first:end]]
        if is_prose(boxes, inside) and is_prose(boxes, beyond):
            best = (x - 0.5, end) if best is None or end > best[1] else best
        else:
            refused[place] = first + 1 + (end - first) // 4
    return best


def is_prose(boxes: Floats, rows: list[list[int]]) -> bool:
    """Whether rows look like running text, in one column or more: one above the other, filling what they take."""
    rows = [row for row in rows if row]
    if len(rows) < ROWS:
        return False
    every = boxes[[i for row in rows for i in row]]
    heights, widths = every[:, 2] - every[:, 0], every[:, 3] - every[:, 1]
    filled = [float((boxes[row, 3] - boxes[row, 1]).sum()) for row in rows]
    wide = every[:, 3].max() - every[:, 1].min()
    return bool(np.median(filled) >= FULL * wide and np.median(widths / np.maximum(heights, 1e-6)) >= WIDE)
