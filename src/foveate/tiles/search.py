"""Survey a large image, then encode only the parts that a question makes promising, until the thing is found.

docs/large_images.md tells the order of the looks, and why a thing must be seen twice. Only a part's highest peak is
looked at again: a fainter thing in the same window is found by the tiles, or by another window.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import cv2
import numpy as np

from foveate.core.checks import check_int, check_number, check_type
from foveate.core.errors import QueryError
from foveate.core.grid import Box, Floats, Grid, reduce_plane, resize_map
from foveate.core.image import Bytes, shrink
from foveate.core.readonly import ReadOnly
from foveate.encoders.load import match_encoder, resolve_encoder
from foveate.encoders.protocol import Encoder
from foveate.encoders.taught import TaughtWords
from foveate.language.query import prepare
from foveate.pipeline import encode, score
from foveate.relevance.confidence import DETECTED
from foveate.relevance.fusion import information
from foveate.relevance.scoring import join_confidences
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.tiles.raster import open_raster
from foveate.tiles.scene import (
    LARGEST_TILE,
    LEAST_TILE,
    OVERVIEW,
    Look,
    Scene,
    read_overviews,
    tile_box,
    tile_counts,
)

# Chosen on half A of benchmarks/large_scenes.py, and by hand.
SHARE = 0.3
MOST, STEP = 0.5, 0.1  # of the tiles: what `look_through` may encode, and after how many it looks how much was seen
TILE = 512  # pixels: what nano sees
SCALE_STEP = 2  # between scales: a window at 1/2 of the resolution has twice the side of a tile, a second look half
LEAST_SURE = 0.01  # that may be asked for
SHOWN = 0.25  # where a map reaches this, it is looked at again before anything else
ODD_EVERY = 3  # one look in so many goes to the oddest cell of a window at half the resolution
MIDDLE = 0.5  # of a part's side, around its centre: a place outside of it is too near to a border for a second look
SIMILAR = 1.1  # times the side of a wanted second look: a part of this side or less is as close
CLOSER = 1.5  # a tile, which has no finer scale, is looked at again in a part of its side divided by this
CELL, FINEST = 16, 1_000_000  # pixels of the merged map's cells, more for images with more cells than this
FINE = 0.7  # share of a finer part's map where there is one; the rest is that of coarser parts
DOT, STRUCTURE = 0.5, 0.1  # weights of a part's promise beside its highest relevance
DOT_REACH = 12  # cells around a dot that count as its surroundings


class PartView(NamedTuple):
    """What one part shows: its relevance, the peak in pixels, and how unlike the rest its oddest cell is (`odd`).

    `again` and `oddest` are the closer parts around the peak and that cell; None where there is none.
    """

    relevance: Relevance
    peak: tuple[float, float]
    again: Box | None
    odd: float
    oddest: Box | None


class Seen(NamedTuple):
    """What two looks at the same place share: the confidence of the question and of each phrase, and the place."""

    confidence: float
    peak: tuple[float, float] | None
    confidences: Mapping[str, float]


def survey(
    image: str | os.PathLike[str] | Bytes,
    *,
    encoder: str | Encoder = "nano",
    tile: int = TILE,
    words: TaughtWords | None = None,
) -> Scene:
    """Open a large image; encode its overview, and windows at a quarter of its resolution.

    Args:
        image: a path (tiled TIFF is read in parts; see raster.py), or uint8 [H, W, 3].
        encoder: as for `encode`.
        tile: side of a tile in pixels, 64 to 2048; above 512 it is also the encoder's working size.
        words: taught words, which all of it is encoded with.

    Raises the Image...Errors; OptionError for a side out of range.
    """
    tile = check_int("tile", tile, LEAST_TILE, LARGEST_TILE)
    if words is not None:
        encoder = words.of(resolve_encoder(encoder))
    raster = open_raster(image)
    height, width = raster.size
    coarse, small = read_overviews(raster)
    h, w = coarse.shape[:2]
    windows = {}
    if max(h, w) > OVERVIEW:
        for place in itertools.product(*map(range, tile_counts((h, w), tile))):
            y0, x0, y1, x1 = tile_box((place[0], place[1]), (h, w), tile)
            box = y0 * height // h, x0 * width // w, y1 * height // h, x1 * width // w
            windows[box] = _encode_part(coarse[y0:y1, x0:x1], tile, encoder)
    overview = encode(small, encoder=encoder, long_side=max(*small.shape[:2], 64))
    return Scene(raster, overview, ReadOnly(windows), ReadOnly({}), tile, encoder)


def look(
    scene: Scene,
    query: str,
    *,
    share: float | None = SHARE,
    sure: float = DETECTED,
    progress: Callable[[int, int], None] = lambda done, most: None,
) -> Look:
    """Ask a scene a question: encode its promising parts until the thing is found, or the share is spent.

    Asked again, of `Look.scene`, the same question goes on where it stopped.

    Args:
        query: a question or noun phrase.
        share: of as many parts as there are tiles, how many may be encoded now, 0 to 1; one at least, unless it is 0.
            None: until it is found, or everything is encoded.
        sure: confidence from which it counts as found, and the search ends, 0.01 to 1.
        progress: receives how many parts were encoded, and how many may be.

    Raises:
        OptionError: no scene, share or sure out of range. QueryError: no question, or one that cannot be asked.
    """
    start = time.perf_counter()
    check_type("scene", scene, Scene, fix="scene = tiles.survey(image), or tiles.load(folder, image), comes first")
    if share is not None:
        share = check_number("share", share, fix="pass None to go on until it is found")
    sure = check_number("sure", sure, LEAST_SURE)
    check_type("query", query, str, fix="call look once for each query", error=QueryError)
    given, size, side = None if scene.encoder == "nano" else scene.encoder, scene.raster.size, scene.side

    def view(box: Box, texture: Texture) -> PartView:
        return view_part(texture, score(texture, query, encoder=given), box, size, side)

    views = {box: view(box, texture) for box, texture in scene.parts.items()}
    seconds: dict[Box, Box] = {}
    for known in views:
        note_second_looks(seconds, views, known)
    groups = prepare(match_encoder(scene.overview.encoder, given), query).asked_groups
    places = scene.places
    windows, tiles, finished = dict(scene.windows), dict(scene.tiles), scene.finished
    most = math.inf if share is None else max(1, int(len(places) * share)) if share else 0
    looked: list[Box] = []
    stages = [half_boxes(size, side), list(places)]
    order: list[Box] = []
    while len(looked) < most and seen_twice(views, seconds, groups).confidence < sure:
        box = look_again(views, seconds)
        if box is None and stages and len(looked) % ODD_EVERY == ODD_EVERY - 1:
            box = look_at_oddest(views, side)
        while box is None:
            order = [each for each in order if each not in finished]
            if order:
                box = order[0]
            elif stages:
                order = rank_boxes(stages.pop(0), scene.overview, merge_maps(size, side, views).map, size)
            else:
                break
        if box is None:
            break
        texture = _encode_part(shrink(scene.raster.region(*box), side), side, scene.encoder)
        if box in places:
            tiles[places[box]] = texture
        else:
            windows[box] = texture
        views[box] = view(box, texture)
        note_second_looks(seconds, views, box)
        finished.add(box)
        looked.append(box)
        progress(len(looked), len(views) + len(order) if math.isinf(most) else int(most))
    best, relevance = seen_twice(views, seconds, groups), merge_maps(size, side, views)
    whole = views[_whole(size)]
    if share == 0 and _whole(size) not in seconds:  # the survey alone: one look, as at any image
        best = Seen(whole.relevance.confidence, None, whole.relevance.confidences)
    return Look(
        scene=replace(scene, windows=ReadOnly(windows), tiles=ReadOnly(tiles)),
        relevance=replace(
            relevance,
            confidence=best.confidence,
            confidences=ReadOnly(dict(best.confidences)),
            texture=scene.overview,
        ),
        sure=sure,
        peak=best.peak or _place(relevance.map, _whole(size)),
        boxes=tuple(looked),
        seconds=time.perf_counter() - start,
    )


def look_through(
    scene: Scene,
    query: str,
    *,
    most: float = MOST,
    sure: float = DETECTED,
    progress: Callable[[int, int], None] = lambda done, most: None,
) -> Look:
    """`look`, which goes on by itself: until it is found, every place was seen at half its size or more, or `most` is
    spent, of as many parts as there are tiles, 0 to 1.

    `boxes` and `seconds` of what it returns are of all its looks. Raises as `look` does.
    """
    check_type("scene", scene, Scene, fix="scene = tiles.survey(image), or tiles.load(folder, image), comes first")
    tiles = len(scene.places)
    budget = max(1, int(most * tiles)) if check_number("most", most) else 0
    boxes: tuple[Box, ...] = ()
    seconds = 0.0
    while True:
        step = min(budget - len(boxes), max(1, int(STEP * tiles)))
        done = len(boxes)
        found = look(
            scene, query, sure=sure,
            share=min(1.0, (step + 0.5) / tiles) if step > 0 else 0,
            progress=lambda n, _, done=done: progress(done + n, budget),  # type: ignore[misc]
        )  # fmt: skip
        scene, boxes, seconds = found.scene, boxes + found.boxes, seconds + found.seconds
        if found.detected or not found.boxes or len(boxes) >= budget or scene.seen == 1:
            return replace(found, boxes=boxes, seconds=seconds)


def view_part(texture: Texture, relevance: Relevance, box: Box, size: tuple[int, int], side: int) -> PartView:
    """What a part shows, and the parts of half its side around its peak and its oddest cell."""
    embedding = texture.coordinates().reshape(*texture.grid.shape, -1).astype(np.float32)
    odd = cv2.blur(np.linalg.norm(embedding - np.median(embedding, (0, 1)), axis=-1), (3, 3))
    peak = _place(relevance.map, box)
    again = closer_box(peak, box, size, side)
    return PartView(relevance, peak, again, float(odd.max()), closer_box(_place(odd, box), box, size, side))


def closer_box(centre: tuple[float, float], box: Box, size: tuple[int, int], side: int) -> Box | None:
    """A part of half the side of a box, in which a place is as far in the middle as the image (H, W) allows."""
    long_side = max(box[2] - box[0], box[3] - box[1])
    closer = round(max(long_side / SCALE_STEP, side / CLOSER))
    if closer >= long_side:
        return None
    tall, wide = min(closer, size[0]), min(closer, size[1])
    top, left = (
        min(max(0, round(at - length / 2)), whole - length)
        for at, length, whole in zip(centre, (tall, wide), size, strict=True)
    )
    return top, left, top + tall, left + wide


def seen_twice(views: Mapping[Box, PartView], seconds: Mapping[Box, Box], groups: Sequence[Sequence[str]]) -> Seen:
    """The highest confidence that a part and the second look at its peak share, and the place in the second."""
    whole, overview = next(iter(views.items()))
    phrases = dict.fromkeys(overview.relevance.confidences, 0.0)
    best = min(SHOWN, max(view.relevance.confidence for view in views.values()))
    peak = None
    for box, view in views.items():
        again = box if box == whole and view.again is None else seconds.get(box)
        if again is None:
            continue
        one, two = view.relevance, views[again].relevance
        for phrase in phrases:
            phrases[phrase] = max(phrases[phrase], min(one.confidences[phrase], two.confidences[phrase]))
        if (shared := min(one.confidence, two.confidence)) > best:
            best, peak = shared, views[again].peak
    return Seen(max(best, join_confidences(groups, phrases)), peak, phrases)


def note_second_looks(seconds: dict[Box, Box], views: Mapping[Box, PartView], new: Box) -> None:
    """Add a part to `seconds`: by each part's box, the box of the second look at its peak, or of a part like it."""
    wanted = views[new].again
    seconds.pop(new, None)
    if wanted is not None and (found := _looked_at(views, wanted)) is not None:
        seconds[new] = found
    for box, view in views.items():
        if view.again == new or (view.again is not None and box not in seconds and _is_like(new, view.again)):
            seconds[box] = new


def look_again(views: Mapping[Box, PartView], seconds: Mapping[Box, Box]) -> Box | None:
    """The part to look at again: it shows most, of those that show something and were not looked at again."""
    best, most = None, SHOWN
    for box, view in views.items():
        if view.again is None or box in seconds:
            continue
        if (shows := float(view.relevance.map.max())) >= most:
            best, most = view.again, shows
    return best


def look_at_oddest(views: Mapping[Box, PartView], side: int) -> Box | None:
    """The part around the oddest cell of the windows at half the resolution, of those not seen closer."""
    best, most = None, 0.0
    for box, view in views.items():
        if max(box[2] - box[0], box[3] - box[1]) != SCALE_STEP * side or view.oddest is None or view.odd <= most:
            continue
        if _looked_at(views, view.oddest) is None:
            best, most = view.oddest, view.odd
    return best


def half_boxes(size: tuple[int, int], side: int) -> list[Box]:
    """Windows at half the resolution that cover an image (H, W); none where the overview shows as much."""
    if max(size) <= SCALE_STEP * OVERVIEW:
        return []
    twice = SCALE_STEP * side
    return [tile_box((row, col), size, twice) for row, col in itertools.product(*map(range, tile_counts(size, twice)))]


def rank_boxes(boxes: Sequence[Box], overview: Texture, merged: Floats, size: tuple[int, int]) -> list[Box]:
    """Boxes by promise, the best first; of equals, as they come. `merged`: what is known, [h, w].

    Promise: the highest relevance known, the best cell's contrast (small things are faint dots), and structure.
    """
    dots = np.maximum(merged - cv2.blur(merged, (2 * DOT_REACH + 1,) * 2, borderType=cv2.BORDER_REFLECT), 0)
    detail = resize_map(information(overview), merged.shape)
    worth = []
    for box in boxes:
        part = _cells(box, size, merged.shape)
        worth.append(merged[part].max() + DOT * dots[part].max() + STRUCTURE * detail[part].mean())
    return [boxes[i] for i in np.argsort(-np.array(worth), kind="stable")]


def merge_maps(size: tuple[int, int], side: int, views: Mapping[Box, PartView]) -> Relevance:
    """One map over the image: the survey's highest; where there is a finer part, 0.7 of it is that part's."""
    cell = max(CELL, math.ceil(math.sqrt(size[0] * size[1] / FINEST)))
    grid = Grid(-(-size[0] // cell), -(-size[1] // cell), *size)
    whole = views[_whole(size)].relevance
    parts = [(box, view.relevance) for box, view in views.items() if box != _whole(size)]
    scales = [round(math.log2(max(box[2] - box[0], box[3] - box[1]) / side)) for box, _ in parts]  # 0: of a tile
    planes, looked = {}, np.zeros(grid.shape, np.float32)
    for name in ("map", "logits"):
        plane = resize_map(getattr(whole, name), grid.shape)
        for finer in (None, 1, 0, -1):
            some = [
                part
                for part, scale in zip(parts, scales, strict=True)
                if scale == finer or (finer is None and scale > 1)
            ]
            pasted = _paste(name, some, grid)
            known = np.isfinite(pasted)
            if finer is None:
                plane = np.maximum(plane, pasted)
            else:
                plane = np.where(known, FINE * np.where(known, pasted, 0) + (1 - FINE) * plane, plane)
                looked = np.maximum(looked, known)
        planes[name] = plane.astype(np.float32)
    looked = looked.astype(np.float32)
    saliency = resize_map(whole.saliency, grid.shape)
    for plane in (*planes.values(), looked, saliency):
        plane.setflags(write=False)
    every = [view.relevance for view in views.values()]
    return Relevance(
        query=whole.query,
        map=planes["map"],
        logits=planes["logits"],
        confidence=max(relevance.confidence for relevance in every),
        confidences=whole.confidences,
        ignored=whole.ignored,
        unknown=whole.unknown,
        looked_for=whole.looked_for,
        peak=0.0,
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


def _whole(size: tuple[int, int]) -> Box:
    return 0, 0, size[0], size[1]


def _place(plane: Floats, box: Box) -> tuple[float, float]:
    (h, w), (y, x) = plane.shape, np.unravel_index(int(plane.argmax()), plane.shape)
    return box[0] + (float(y) + 0.5) * (box[2] - box[0]) / h, box[1] + (float(x) + 0.5) * (box[3] - box[1]) / w


def _looked_at(views: Mapping[Box, PartView], wanted: Box) -> Box | None:
    """A wanted part, or else the first one like it, if there is one."""
    return wanted if wanted in views else next((box for box in views if _is_like(box, wanted)), None)


def _is_like(box: Box, wanted: Box) -> bool:
    """It has the middle of the wanted one in its own middle, and about its size."""
    (y0, x0, y1, x1), (tall, wide) = box, (wanted[2] - wanted[0], wanted[3] - wanted[1])
    if not (tall / SCALE_STEP < y1 - y0 <= tall * SIMILAR and wide / SCALE_STEP < x1 - x0 <= wide * SIMILAR):
        return False
    off = abs(wanted[0] + wanted[2] - y0 - y1) / (y1 - y0), abs(wanted[1] + wanted[3] - x0 - x1) / (x1 - x0)
    return max(off) <= MIDDLE


def _encode_part(rgb: Bytes, side: int, encoder: str | Encoder) -> Texture:
    """A part, shrunk to the side of a tile at most (encoders would shrink further)."""
    return encode(np.ascontiguousarray(rgb), encoder=encoder, long_side=side if side > TILE else None)
