"""Cache lines of six layouts: how many a position touches in each, and what gathers take on the CPU.

Exactly which 32-byte sectors, 64-byte and 128-byte lines each layout touches for the same positions (addresses are
reckoned, nothing is sampled), and how many of them miss in a simulated cache. No hardware counter is read, and no GPU
was at hand. The order inside a block-linear layer is as open drivers describe it (512 bytes are 64 bytes x 8 rows, a
sector 16 bytes x 2 rows); the vendor does not publish it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import KEPT, PHOTO, Repeats, crop_square, make_row, time_each, time_row
from foveate.core.checks import check_int
from foveate.pipeline import allocate, encode, score

Ints = NDArray[np.int64]
SIDE, GRID, CHANNELS, LAYERS = 1024, 64, 40, 10
SAMPLES = (KEPT, 4096, 65_536)
LINES = (32, 64, 128)
COLUMNS = ("what", "32 B", "64 B", "128 B", "L1 misses", "L2 misses", "measured")


class Layout(NamedTuple):
    """Where a layout keeps the channels of a position: rows, columns of its texels -> byte addresses [n, reads]."""

    name: str
    side: int  # texels along
    addresses: Callable[[Ints, Ints], Ints]
    width: int  # bytes a read


def planes(side: int) -> Layout:
    """40 planes of float32, one after the other: the documents' texture array."""
    layer = np.arange(CHANNELS, dtype=np.int64) * side * side * 4
    return Layout("40 planes of float32", side, lambda y, x: ((y * side + x) * 4)[:, None] + layer, 4)


def half4_layers(side: int) -> Layout:
    """Ten block-linear layers of half4: a layered CUDA array."""
    layer = np.arange(LAYERS, dtype=np.int64) * (-(-side * 8 // 64) * -(-side // 8) * 512)

    def addresses(y: Ints, x: Ints) -> Ints:
        return block_linear(y, x * 8, side * 8)[:, None] + layer

    return Layout("10 block-linear layers of half4", side, addresses, 8)


def table(side: int, name: str, size: int = 2) -> Layout:
    """All channels of a texel in one row."""
    row = CHANNELS * size
    return Layout(name, side, lambda y, x: ((y * side + x) * row)[:, None], row)


def block_linear(y: Ints, x: Ints, pitch: int) -> Ints:
    """Address of byte x of row y in a surface of blocks of 64 bytes x 8 rows, `pitch` bytes wide."""
    block = (y // 8) * -(-pitch // 64) + x // 64
    inside = (x % 64) // 32 * 256 + (y % 8) // 2 * 64 + (x % 32) // 16 * 32 + (y % 2) * 16 + x % 16
    return block * 512 + inside


def arrays(side: int) -> list[Layout]:
    """What the documents compare with: colours, position, cluster, 16 numbers of CLIP and relevance, an array each."""
    out, start = [], 0
    for name, width in (("colours", 3), ("position", 8), ("cluster", 4), ("embedding", 64), ("relevance", 4)):
        out.append(Layout(name, side, partial(_row_of, start, side, width), width))
        start += -(-side * side * width // 64) * 64
    return out


def _row_of(start: int, side: int, width: int, y: Ints, x: Ints) -> Ints:
    return start + ((y * side + x) * width)[:, None]


def groups(side: int, grid: int) -> list[Layout]:
    """Ours: colours as bytes, quarter planes and cell planes in half precision, the embedding in rows of 24."""
    quarter, cells = side // 4, grid
    near, far = (np.arange(n, dtype=np.int64) * size * size * 2 for n, size in ((7, quarter), (4, cells)))
    start = side * side * 3
    mid = start + 7 * quarter * quarter * 2
    last = mid + 4 * cells * cells * 2
    return [
        Layout("colours", side, lambda y, x: ((y * side + x) * 3)[:, None], 3),
        Layout("quarter", quarter, lambda y, x: start + ((y * quarter + x) * 2)[:, None] + near, 2),
        Layout("cell", cells, lambda y, x: mid + ((y * cells + x) * 2)[:, None] + far, 2),
        Layout("embedding", cells, lambda y, x: last + ((y * cells + x) * 48)[:, None], 48),
    ]


def layouts(side: int = SIDE, grid: int = GRID) -> dict[str, list[Layout]]:
    """The six that are compared, each of one part or several, all for the same image."""
    return {
        "40 planes of float32 (the documents')": [planes(side)],
        "five arrays (what they compare with)": arrays(side),
        "10 block-linear layers of half4 (hardware)": [half4_layers(side)],
        "rows of 40 halfs, every pixel": [table(side, "rows")],
        "groups at native resolution (ours)": groups(side, grid),
        "token table, 64 x 64 rows of 40 halfs (ours)": [table(grid, "tokens")],
    }


def reads(parts: Iterable[Layout], uv: NDArray[np.float64], linear: bool) -> tuple[Ints, Ints]:
    """First and last byte of every read of positions uv [n, 2] in (0, 1), position after position."""
    first, last = [], []
    for part in parts:
        at = uv * part.side
        corner = np.floor(at - 0.5 if linear else at).astype(np.int64)
        steps = [(0, 0), (0, 1), (1, 0), (1, 1)] if linear else [(0, 0)]
        found = [part.addresses(*np.clip(corner + step, 0, part.side - 1).T) for step in steps]
        begin = np.stack(found, 1).reshape(len(uv), -1)
        first.append(begin)
        last.append(begin + part.width - 1)
    return np.concatenate(first, 1).ravel(), np.concatenate(last, 1).ravel()


def touched(first: Ints, last: Ints, line: int) -> Ints:
    """Numbers of the lines that reads touch, in their order; a read over borders touches several."""
    begin = first // line
    many = last // line - begin + 1
    step = np.arange(many.sum()) - np.repeat(many.cumsum() - many, many)
    return np.repeat(begin, many) + step


def misses(lines: Ints, size: int, ways: int = 8, line: int = 64) -> int:
    """Misses of a set-associative cache of `size` bytes that forgets what was used least recently, empty at first."""
    count = size // line // ways
    sets: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(count)]
    missed = 0
    for number in lines.tolist():
        held = sets[number % count]
        if number in held:
            held.move_to_end(number)
            continue
        missed += 1
        held[number] = None
        if len(held) > ways:
            held.popitem(last=False)
    return missed


def measure(
    repeats: Repeats = 20,
    side: Annotated[int, typer.Option(help="Pixels of the image along.")] = SIDE,
    samples: Annotated[int, typer.Option(help="At most so many positions on the CPU.")] = SAMPLES[-1],
) -> dict[str, Any]:
    """Cache lines of six layouts, and gathers timed on the CPU."""
    check_int("--repeats", repeats, 1, 10_000)
    check_int("--side", side, 8 * GRID)
    kept = kept_positions()
    random = np.random.default_rng(0).random((samples, 2))
    rows = _line_rows(f"{len(kept)} kept cells", kept, side)
    if samples > KEPT:
        rows += _line_rows("4,096 positions at random", random[:4096], side, cache=False)
    rows += _cpu_rows(random, side, repeats)
    title = f"benchmarks hardware_texture: 40 channels of {side} x {side} px; lines and misses a position"
    return {"title": title, "columns": COLUMNS, "rows": rows}


def kept_positions() -> NDArray[np.float64]:
    """Centres of the 273 cells that a question keeps of a photograph, in (0, 1): float64 [273, 2]."""
    texture = encode(crop_square(PHOTO, 512))
    centres = texture.grid.centres()[allocate(score(texture, "broccoli"), KEPT).indices]
    return np.asarray(centres, np.float64) / 512


def _line_rows(what: str, uv: NDArray[np.float64], side: int, cache: bool = True) -> list[dict[str, Any]]:
    rows = []
    for linear in (False, True):
        for name, parts in layouts(side).items():
            first, last = reads(parts, uv, linear)
            lines = {f"{size} B": len(np.unique(touched(first, last, size))) / len(uv) for size in LINES}
            known: dict[str, float] = dict(lines)
            if cache:
                order = touched(first, last, 64)
                known |= {"L1 misses": misses(order, 32 << 10) / len(uv), "L2 misses": misses(order, 1 << 20) / len(uv)}
            text = {key: f"{value:.1f}" for key, value in known.items()}
            filtered = "bilinear" if linear else "nearest"
            row = _row(f"{what}, {filtered}: {name}") | text
            rows.append(row | {"median": round(lines["64 B"], 4), "unit": "lines", "lines": known})
    return rows


def _cpu_rows(uv: NDArray[np.float64], side: int, repeats: int) -> list[dict[str, Any]]:
    """40 channels at positions, gathered by NumPy from three layouts in turn; places and weights are known."""
    random = np.random.default_rng(2)
    stack = random.random((CHANNELS, side * side), np.float32)
    rows = np.ascontiguousarray(stack.T)
    tables = {"planes": (stack, 1, side), "rows": (rows, 0, side), "token table": (rows[: GRID * GRID].copy(), 0, GRID)}
    out = []
    for n in (n for n in SAMPLES if n <= len(uv)):
        for linear in (False, True):
            ways = {
                name: partial(gather, values, axis, *places(uv[:n], width, linear))
                for name, (values, axis, width) in tables.items()
            }
            turns = max(min(9, repeats), repeats * KEPT // n)
            for name, each in time_each(ways, turns, patience=float("inf")).items():
                what = f"CPU, {n:,} positions, {'bilinear' if linear else 'nearest'}: {name}"
                out.append(_row(what) | time_row(what, each, "µs", slow=99))
    return out


def places(uv: NDArray[np.float64], side: int, linear: bool) -> tuple[Ints, NDArray[np.float32]]:
    """Flat texels of positions in (0, 1), one or four each, and their weights: both [1 or 4, n]."""
    at = uv * side
    if not linear:
        row, column = np.floor(at).astype(np.int64).T
        return (row * side + column)[None], np.ones((1, len(uv)), np.float32)
    at = np.clip(at - 0.5, 0, side - 1)
    corner = np.floor(at)
    b, a = (at - corner).T
    y, x = (np.minimum(np.stack([each, each + 1]), side - 1).astype(np.int64) for each in corner.T)
    weights = np.stack([(1 - b) * (1 - a), (1 - b) * a, b * (1 - a), b * a])
    return np.stack([y[i] * side + x[j] for i in (0, 1) for j in (0, 1)]), weights.astype(np.float32)


def gather(values: NDArray[Any], axis: int, texels: Ints, weights: NDArray[np.float32]) -> NDArray[Any]:
    """Texels along an axis, weighted and added up: [40, n] of planes (axis 1), [n, 40] of rows (axis 0)."""
    if len(texels) == 1:
        return values.take(texels[0], axis)
    shaped = weights[:, None] if axis else weights[..., None]
    out = values.take(texels[0], axis) * shaped[0]
    for some, weight in zip(texels[1:], shaped[1:], strict=True):
        out += values.take(some, axis) * weight
    return out


def _row(what: str, measured: str = "") -> dict[str, Any]:
    return dict.fromkeys(COLUMNS, "") | make_row(what, None, measured)
