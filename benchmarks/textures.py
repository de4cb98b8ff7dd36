"""Channels, mips, memory and sampling beside the seed documents' figures, with bytes and the share of a copy's speed.

    python -m benchmarks textures

Bytes are counted: the least that has to be read and written once (of a gather, whole lines of 64 bytes). The share is
that of a copy of as many bytes by one thread in the same run. Cold gathers read new positions in each repeat, warm ones
the same. The documents' times are reckoned for an H100 from bandwidth alone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import cv2
import numpy as np

from benchmarks.common import (
    KEPT,
    PHOTO,
    Image,
    Repeats,
    crop_square,
    make_row,
    ratio_row,
    time_calls,
    time_in_turn,
    time_row,
)
from benchmarks.question import copy_seconds
from foveate.channels.objects import find_objects
from foveate.channels.segments import mark_borders, measure_cells, segment_image
from foveate.channels.text import find_text_regions
from foveate.channels.visual import compute_saliency, compute_visual_planes, describe_cells, measure_change
from foveate.core.checks import check_int
from foveate.core.layout import FULL40
from foveate.encoders.load import load_encoder
from foveate.language.negatives import query_metric_of
from foveate.pipeline import encode
from foveate.texture.basis import compress
from foveate.texture.sampling import positions
from foveate.texture.texture import Texture

SIDE, LINE = 1024, 64  # pixels; bytes of a line of the cache
COLUMNS = ("what", "documents", "measured", "bytes", "of a copy")
Row = dict[str, Any]


def measure(image: Image = PHOTO, repeats: Repeats = 20) -> dict[str, Any]:
    """Channels, mips, memory and sampling beside the documents' figures, at 1,024 x 1,024 pixels."""
    check_int("--repeats", repeats, 1, 1000)
    texture = encode(crop_square(image, SIDE))
    speed = _bandwidth(repeats)
    rows = [
        make_row("bandwidth: a copy of 268 MB", speed / 1e9, f"{speed / 1e9:.3g} GB/s", unit="GB/s"),
        *_channels(texture, repeats),
        *_mips_and_sampling(texture, repeats, speed),
        *_memory(texture),
    ]
    for row in rows:
        row.setdefault("cells", tuple(str(row.get(column) or "") for column in COLUMNS))
    title = f"benchmarks textures: medians of {repeats}, {SIDE} x {SIDE} pixels, {texture.grid.count} cells"
    return {"title": title, "columns": COLUMNS, "rows": rows, "image": str(image)}


def _bandwidth(repeats: int) -> float:
    """Bytes a second of a copy, read and written."""
    source = np.ones(2**26, np.float32)
    target = np.empty_like(source)
    return 2 * source.nbytes / float(np.median(time_calls(lambda: np.copyto(target, source), max(3, repeats))))


def _row(what: str, documents: str, seconds: np.ndarray, counted: float, speed: float | None = None) -> Row:
    """A step; its share is of a copy of as many bytes, or of `speed`, bytes a second."""
    median = float(np.median(seconds))
    size = f"{counted / 1e6:.3g} MB" if counted >= 1e5 else f"{counted / 1e3:.3g} KB"
    least = counted / speed if speed else copy_seconds(int(counted), len(seconds))
    return {**_time(what, seconds), "documents": documents, "bytes": size, "of a copy": f"{least / median:.2g}"}


def _time(what: str, seconds: np.ndarray) -> Row:
    median = float(np.median(seconds))
    shown = f"{median * 1e3:.3g} ms" if median >= 1e-4 else f"{median * 1e6:.3g} µs"
    return time_row(what, seconds, "ms") | {"measured": shown}


def _channels(texture: Texture, repeats: int) -> list[Row]:
    rgb, shape = texture.pixel, texture.grid.shape
    z = texture.coordinates().reshape(*shape, -1)
    cells, parts = measure_cells(rgb, z), segment_image(rgb, z)
    objects = find_objects(rgb, z, parts.ids, cells=cells)
    quarter = (SIDE // 4, SIDE // 4)
    encoder = load_encoder("nano")
    metric = query_metric_of(encoder)
    features = encoder.encode_image(rgb).full(encoder.width).reshape(texture.grid.count, -1)
    looks = describe_cells(rgb, texture.grid), describe_cells(rgb[:, ::-1], texture.grid)
    plane, sample, whole = 4 * texture.grid.count, 4 * quarter[0] * quarter[1], rgb.nbytes

    steps: list[tuple[str, str, Callable[[], Any], float]] = [
        (
            "edges, frequencies, distance to edges: 5 planes",
            "0.17 ms",
            lambda: compute_visual_planes(rgb),
            whole + 5 * sample,
        ),
        ("saliency", "0.03 ms", lambda: compute_saliency(rgb, shape), whole + plane),
        (
            "clusters: 3 planes",
            "1.5 ms (SAM)",
            lambda: segment_image(rgb, z, cells=measure_cells(rgb, z)),
            whole + z.nbytes + 3 * plane,
        ),
        ("objects", "", lambda: find_objects(rgb, z, parts.ids, cells=cells), z.nbytes + 2 * plane),
        ("their borders", "0.05 ms", lambda: mark_borders(objects, quarter), plane + sample),
        ("writing", "0.05 ms", lambda: find_text_regions(rgb), whole + sample),
        ("motion: cells that changed", "0.02 ms", lambda: measure_change(*looks), 2 * looks[0].nbytes + plane),
        (
            "x, y, eccentricity, on the cells",
            "0.003 ms",
            lambda: [positions(name, shape, shape) for name in ("x", "y", "eccentricity")],
            3 * plane,
        ),
        (
            f"compression, {features.shape[1]} to {texture.rank} numbers a cell",
            "0.5 ms",
            lambda: compress(features, metric=metric),
            features.nbytes + texture.query_nbytes,
        ),
    ]
    return [_row(what, claim, time_calls(run, repeats), size) for what, claim, run, size in steps]


def _mips_and_sampling(texture: Texture, repeats: int, speed: float) -> list[Row]:
    """Forty float32 planes and their table, as the documents have them, beside the texture."""
    planes = texture.dense()  # [40, H, W]
    table = np.ascontiguousarray(np.moveaxis(planes, 0, -1))  # [H, W, 40]
    own, names = texture.tokens(), texture.planes
    slow = max(1, repeats // 5)

    def chain(plane: np.ndarray) -> None:
        while plane.shape[0] > 1:
            plane = cv2.resize(plane, (plane.shape[1] // 2, plane.shape[0] // 2), interpolation=cv2.INTER_AREA)

    def own_chain() -> None:
        copy = object.__new__(Texture)  # without what was derived from it
        copy.__setstate__(texture.__getstate__())
        for name in names:
            for level in range(1, 11):
                copy.mip(name, level)

    kept = sum(4 * plane.size for plane in names.values())
    seconds = time_calls(lambda: list(map(chain, planes)), slow)
    chained, stored = planes.nbytes * 5 / 3, kept * 5 / 3  # read 4/3, write 1/3
    rows = [
        _row("mip levels of 40 dense planes, by means", "0.06 ms", seconds, chained),
        _row("mip levels of the stored planes, each by its rule", "", time_calls(own_chain, repeats), stored),
    ]
    rng = np.random.default_rng(0)
    layers = len(FULL40)
    for count in (KEPT, 4096):
        lines = {"planes": count * layers * LINE, "table": count * (layers * 4 // LINE + 1) * LINE}
        for heat, draws in (("cold", repeats + 1), ("warm", 1)):
            places = rng.integers(0, SIDE, (draws, 2, count))
            apart, together = time_in_turn(
                _each(lambda at: planes[:, at[0], at[1]], places),
                _each(lambda at: table[at[0], at[1]], places),
                repeats,
            )
            limit = speed if heat == "cold" else None
            claim = "0.27 ms" if count == KEPT and heat == "cold" else ""
            rows += [
                _row(f"{count:,} pixels x 40, {heat}: planes, one behind the other", "", apart, lines["planes"], limit),
                _row(f"{count:,} pixels x 40, {heat}: table, channels last", claim, together, lines["table"], limit),
                ratio_row(f"{count:,} pixels, {heat}: table beside planes, times as fast", apart, together),
            ]
        cells = rng.integers(0, texture.grid.count, (repeats + 3, count))
        points = rng.integers(0, SIDE, (slow + 3, count, 2)) + 0.25
        rows += [
            _row(
                f"{count:,} cells x 40: the texture's own table",
                "",
                time_calls(_each(own.__getitem__, cells), repeats),
                count * layers * 4,
            ),
            _row(
                f"{count:,} points x 40: texture.sample, bilinear at native resolutions",
                "",
                time_calls(_each(texture.sample, points), slow),
                4 * count * layers * 4,
            ),
        ]
    return rows


def _each(read: Callable[[np.ndarray], Any], places: np.ndarray) -> Callable[[], Any]:
    """A function that reads at the next places each time, round and round."""
    turn = cycle(places)
    return lambda: read(next(turn))


def _memory(texture: Texture) -> list[Row]:
    dense = 4 * len(FULL40) * SIDE * SIDE

    def size(what: str, documents: str, count: float) -> Row:
        return {**make_row(what, count / 1e6, f"{count / 1e6:.3g} MB", unit="MB"), "documents": documents}

    return [
        size("40 dense float32 planes", "160 MB", dense),
        size("with their mip levels", "213 MB", dense * 4 / 3),
        size("16 embedding planes at the image's size", "64 MB", 4 * 16 * SIDE * SIDE),
        size(f"the texture, {texture.rank} numbers of embedding a cell", "", texture.nbytes),
        size("  of which answers questions", "", texture.query_nbytes),
        {
            **make_row("textures in 80 GB", 80e9 / texture.nbytes, f"{80e9 / texture.nbytes:,.0f}"),
            "documents": "375 images",
        },
    ]
