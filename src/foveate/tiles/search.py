"""Survey a large image, then encode only the tiles that a question makes promising.

What is notable
* Scoring 4096 cells takes 30 microseconds and needs no cascade; encoding 567 tiles does. What is saved here is
  encoding. The windows of the survey, at a quarter of the resolution, cost a sixteenth of all tiles; with them at most
  15 % of what everything would cost is spent before the first answer.
* A tile's promise is what the survey knows of it: the highest relevance, how much its best cell exceeds its
  surroundings (a thing of a few pixels is a faint dot), and how much structure there is. Tiles are encoded in that
  order, a batch at a time; a batch that finds the thing with high confidence ends the search.
* The relevance of a calibrated encoder is absolute, so maps of different scales can be mixed: a large thing is seen
  in the overview, a small one in the tiles.
* A scene is a value. `look` returns a new one that shares all tiles of the old one.

Not covered: a thing that lies across tiles is seen in parts (they overlap by an eighth). A thing that leaves no trace
at a quarter of the resolution, in a place without structure, is found only by looking everywhere (`share=1`).
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_int, check_number, check_type
from foveate.core.errors import QueryError
from foveate.core.grid import Box, Grid, reduce_plane, resize_map
from foveate.core.readonly import ReadOnly
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Encoder
from foveate.pipeline import encode, score
from foveate.relevance.fusion import information
from foveate.relevance.query import prepare
from foveate.relevance.score import join_confidences
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.tiles.raster import Bytes, open_raster
from foveate.tiles.scene import (
    LARGEST_TILE,
    LEAST_TILE,
    OVERVIEW,
    Look,
    Place,
    Scene,
    read_overviews,
    tile_box,
    tile_counts,
)

Floats = NDArray[np.float32]
SHARE = 0.09
TILE = 512
BATCH = 8  # tiles between two checks of whether the thing is found
SURE = 0.8  # confidence at which the search ends early
CELL = 16  # pixels of the merged map's cells, more for images beyond FINEST cells
FINEST = 1_000_000
FINE = 0.7  # share of a tile's map where there is one; the rest is the survey's
DOT, STRUCTURE = 0.5, 0.1  # weights of a tile's promise beside its highest relevance
DOT_REACH = 12  # cells around a dot that count as its surroundings


def survey(image: str | os.PathLike[str] | Bytes, *, encoder: str | Encoder = "nano", tile: int = TILE) -> Scene:
    """Open a large image; encode its overview, and windows at a quarter of its resolution.

    Args:
        image: a path (tiled TIFF is read in parts; see raster.py), or uint8 [H, W, 3].
        encoder: as for `encode`.
        tile: side of a tile in pixels, 64 to 2048, at every scale.

    Raises:
        The Image...Errors of raster.py; OptionError for a side out of range.
    """
    tile = check_int("tile", tile, LEAST_TILE, LARGEST_TILE)
    raster = open_raster(image)
    height, width = raster.size
    coarse, small = read_overviews(raster)
    h, w = coarse.shape[:2]
    windows = {}
    if max(h, w) > OVERVIEW:
        for place in itertools.product(*map(range, tile_counts((h, w), tile))):
            y0, x0, y1, x1 = tile_box((place[0], place[1]), (h, w), tile)
            box = y0 * height // h, x0 * width // w, y1 * height // h, x1 * width // w
            windows[box] = encode(coarse[y0:y1, x0:x1], encoder=encoder)
    overview = encode(small, encoder=encoder, long_side=max(*small.shape[:2], 64))
    return Scene(raster, overview, ReadOnly(windows), ReadOnly({}), tile, encoder)


def look(
    scene: Scene,
    query: str,
    *,
    share: float = SHARE,
    progress: Callable[[int, int], None] = lambda done, most: None,
) -> Look:
    """Ask a scene a question: encode the most promising tiles that are new, and merge the maps of all.

    Args:
        query: a question or noun phrase.
        share: of all tiles that may be scored for this question, 0 to 1; at least one tile unless it is 0.
        progress: receives how many tiles were scored, and how many may be.
    """
    share = check_number("share", share)
    check_type("query", query, str, fix="call look once for each query", error=QueryError)

    given = None if scene.encoder == "nano" else scene.encoder

    def scored(texture: Texture) -> Relevance:
        return score(texture, query, encoder=given)

    size, whole = scene.raster.size, scored(scene.overview)
    groups = prepare(match_encoder(scene.overview.encoder, given), query).asked_groups()
    windows = [(box, scored(texture)) for box, texture in scene.windows.items()]
    order = rank_tiles(scene, merge_maps(size, whole, windows, [], groups).map)
    most = min(len(order), max(1, int(len(order) * share))) if share else 0
    tiles, found, encoded = dict(scene.tiles), {}, 0
    for number, place in enumerate(order[:most], 1):
        if place not in tiles:
            y0, x0, y1, x1 = scene.box(place)
            tiles[place] = encode(scene.raster.region(y0, x0, y1, x1), encoder=scene.encoder)
            encoded += 1
        found[place] = scored(tiles[place])
        progress(number, most)
        if number % BATCH == 0 and max(relevance.confidence for relevance in found.values()) >= SURE:
            break
    fine = [(scene.box(place), found.get(place) or scored(texture)) for place, texture in tiles.items()]
    relevance = merge_maps(size, whole, windows, fine, groups)
    return Look(replace(scene, tiles=ReadOnly(tiles)), relevance, tuple(found), encoded)


def rank_tiles(scene: Scene, coarse: Floats) -> list[Place]:
    """All tiles, the most promising first; of equals, in reading order. `coarse`: the survey's map, float32 [h, w]."""
    rows, cols = scene.counts
    dots = np.maximum(coarse - cv2.blur(coarse, (2 * DOT_REACH + 1,) * 2, borderType=cv2.BORDER_REFLECT), 0)
    detail = resize_map(information(scene.overview), coarse.shape)
    worth = np.empty((rows, cols))
    for row, col in itertools.product(range(rows), range(cols)):
        part = _cells(scene.box((row, col)), scene.raster.size, coarse.shape)
        worth[row, col] = coarse[part].max() + DOT * dots[part].max() + STRUCTURE * detail[part].mean()
    order = np.argsort(-worth.ravel(), kind="stable")
    return [(int(i // cols), int(i % cols)) for i in order]


def merge_maps(
    size: tuple[int, int],
    whole: Relevance,
    windows: Sequence[tuple[Box, Relevance]],
    tiles: Sequence[tuple[Box, Relevance]],
    groups: Sequence[Sequence[str]],
) -> Relevance:
    """One map over the image: the highest of overview and windows; where there is a tile, 0.7 of it is the tile's.

    `groups`: phrases that are asked for together; their confidence is joined over the image, not tile by tile.
    """
    cell = max(CELL, math.ceil(math.sqrt(size[0] * size[1] / FINEST)))
    grid = Grid(-(-size[0] // cell), -(-size[1] // cell), *size)
    planes, looked = {}, np.zeros(grid.shape, np.float32)
    for name in ("map", "logits"):
        base = np.maximum(resize_map(getattr(whole, name), grid.shape), _paste(name, windows, grid))
        fine = _paste(name, tiles, grid)
        known = np.isfinite(fine)
        looked = known.astype(np.float32)
        planes[name] = np.where(known, FINE * np.where(known, fine, 0) + (1 - FINE) * base, base).astype(np.float32)
    saliency = resize_map(whole.saliency, grid.shape)
    for plane in (*planes.values(), looked, saliency):
        plane.setflags(write=False)
    parts = (whole, *(r for _, r in (*windows, *tiles)))
    confidences = {phrase: max(r.confidences[phrase] for r in parts) for phrase in whole.confidences}
    together = join_confidences(groups, confidences)
    return Relevance(
        query=whole.query,
        map=planes["map"],
        logits=planes["logits"],
        confidence=max(*(r.confidence for r in parts), together),
        confidences=ReadOnly(confidences),
        ignored=whole.ignored,
        peak=max(r.peak for r in parts),
        parts=ReadOnly({}),
        reasons=ReadOnly({"participation": planes["map"], "looked": looked}),
        saliency=saliency,
        valid=None,
        grid=grid,
    )


def _paste(name: str, parts: Sequence[tuple[Box, Relevance]], grid: Grid) -> Floats:
    """Planes of parts in their places, the highest where they overlap; -inf where there is none."""
    out = np.full(grid.shape, -np.inf, np.float32)
    for box, relevance in parts:
        part = _cells(box, (grid.height, grid.width), grid.shape)
        out[part] = np.maximum(out[part], reduce_plane(getattr(relevance, name), out[part].shape, "max"))
    return out


def _cells(box: Box, size: tuple[int, int], shape: tuple[int, ...]) -> tuple[slice, slice]:
    """The cells whose centres lie in a box; at least one."""
    spans = []
    for start, stop, length, n in zip(box[:2], box[2:], size, shape, strict=True):
        first = min(math.ceil(start * n / length - 0.5), n - 1)
        spans.append(slice(first, max(math.ceil(stop * n / length - 0.5), first + 1)))
    return spans[0], spans[1]
