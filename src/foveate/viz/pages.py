"""Pages of results: a question with its cells, a model's answer, a large image, a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.allocation.allocation import Allocation
from foveate.allocation.crops import nearest_total, regions
from foveate.core.checks import check_choice
from foveate.core.errors import OptionError, StoreDamagedError, StoreKeyError
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.viz import layers, paper
from foveate.viz.colours import PAPER, QUESTIONS, QUIET
from foveate.viz.paper import Block
from foveate.viz.pictures import (
    PAGE,
    PANEL,
    Tile,
    arrange,
    arrange_bare,
    colour_bar,
    confidence_shown,
    describe_kept,
    found_tile,
    homunculus_tile,
    in_quotes,
    legend,
    level_of,
    looked_for,
    photograph,
    region_legend,
    tell_kinds,
)

if TYPE_CHECKING:
    from foveate.store.hits import Hit
    from foveate.tiles.scene import Look
    from foveate.vlm.encoded import Answer, Prepared
    from foveate.vlm.families.token_layout import TokenGrid

Bytes = NDArray[np.uint8]
PICTURES = ("homunculus", "regions")  # that `question_page` adds if they are asked for
# Sizes: chosen by hand.
HIT, COLUMN, MOST_HITS = 400, 480, 60  # pixels of a picture of a search, of an overview; pictures of a search
MOST_SEEN = 4  # pictures of an answer
LOOKED, PART = QUESTIONS[0], QUESTIONS[1]  # frames of what was encoded, and of the part with the peak


def question_page(
    texture: Texture, relevance: Relevance, kept: Allocation, pictures: Sequence[str] = ()
) -> Image.Image:
    """Photograph, heat map, kept cells: one question in three panels, and more of them.

    Args:
        texture, relevance, kept: the image, its map, its cells.
        pictures: of PICTURES. "homunculus" adds the image redrawn with area in proportion to tokens; "regions" adds
            regions of about as many tokens, and their homunculus.

    Raises OptionError for another picture.
    """
    rgb = layers.scale_to(texture.pixel, PANEL)
    cells = Tile(layers.lay_kept(rgb, kept), describe_kept(kept), key=tell_kinds(kept))
    panels, foot = [*_question_tiles(texture, relevance, rgb), cells], []
    for name in pictures:
        check_choice("picture", name, PICTURES)
        if name == "homunculus":
            panels.append(homunculus_tile(rgb, kept))
        else:
            found = regions(relevance.map, relevance.grid, nearest_total(len(kept)))
            panels += [Tile(layers.lay_regions(rgb, found), describe_kept(found)), homunculus_tile(rgb, found)]
            foot = region_legend(found)
    return paper.paint(arrange(panels, len(panels), foot=[colour_bar(), *foot]))


def overview(
    rows: Sequence[tuple[Texture, Sequence[Relevance]]], *, title: str = "", note: str = "", side: int = COLUMN
) -> Image.Image:
    """Photographs below one another, each beside what several questions found in it.

    Args:
        rows: at least one (texture, its relevances).
        title, note: lines above them.
        side: width of each photograph in pixels.

    Raises OptionError for no rows.
    """
    if not rows:
        raise OptionError(f"rows={rows!r}", expected="a photograph and its questions", fix="pass [(texture, answers)]")
    columns = 1 + max(len(relevances) for _, relevances in rows)
    blocks = []
    for texture, relevances in rows:
        height, width = texture.grid.height, texture.grid.width
        rgb = layers.scale_to(texture.pixel, round(side * max(1.0, height / width)))
        tiles = [Tile(rgb, texture.name), *(found_tile(rgb, one.query, one) for one in relevances)]
        blocks.append(arrange(tiles, columns, narrowest=side))
    whole = max(block.width for block in blocks)
    top = paper.above([paper.text(title, whole, 40), paper.text(note, whole, paper.TEXT, QUIET)], 12)
    return paper.paint(paper.above([top, *blocks, colour_bar()], 40))


def answer_page(answer: Answer | Prepared, *, side: int = PANEL, labels: bool = True) -> Image.Image:
    """Photograph, heat map, and what the model saw, with the question and the answer above them.

    Args:
        answer: of `vlm.ask` or `vlm.prepare`. Of several images, or a video, those with the most tokens, at most 4.
        side: long side of each picture in pixels, 64 to 8,192.
        labels: the question, the answer and legends around them; False for the pictures alone.

    Raises OptionError for an answer that has lost its images, by pickling, or a side out of range.
    """
    if not answer.textures:
        raise OptionError(
            f"a picture of {answer!r}, without its images", expected="an answer as it came", fix="ask again"
        )
    shown: list[tuple[int, list[tuple[TokenGrid, Allocation]]]] = []  # number of a picture, and its tokens
    for layout, choice in zip(answer.layouts, answer.chosen, strict=True):
        for frame in range(layout.frames):
            both = zip(layout.grids, choice.kept, strict=True)
            shown.append((len(shown), [(grid, kept) for grid, kept in both if grid.frame == frame]))
    found = getattr(answer, "regions", None)
    if found is not None:
        shown = shown[:1]  # crops are parts of it
    shown = sorted(sorted(shown, key=lambda one: -sum(len(kept) for _, kept in one[1]))[:MOST_SEEN])
    tiles: list[Tile] = []
    for number, kept in shown:
        boxes = [] if found is None else found.boxes.tolist()
        rgb = photograph(answer.textures[number], side)
        tiles += _seen_tiles(answer.textures[number], answer.relevance[number], kept, boxes, rgb)
    if not labels:
        return paper.paint(arrange_bare(tiles, 3))
    tokens = "{} of {} visual tokens".format(*answer.tokens)
    title = in_quotes(answer.question) + (f"  {answer.text}" if isinstance(answer.text, str) else "")
    return paper.paint(arrange(tiles, 3, title=f"{title}  ({tokens})", foot=[colour_bar()]))


def _seen_tiles(
    texture: Texture,
    relevance: Relevance,
    tokens: Sequence[tuple[TokenGrid, Allocation]],
    boxes: Sequence[Sequence[float]],
    rgb: Bytes,
) -> list[Tile]:
    """Where the question looks in a picture, made small [h, w, 3], and what the model saw of it."""
    y, x = (
        (np.arange(n) + 0.5) * whole / n
        for n, whole in zip(rgb.shape[:2], (texture.grid.height, texture.grid.width), strict=True)
    )
    kinds, side = np.zeros(rgb.shape[:2], np.uint8), float(max(rgb.shape))
    for grid, kept in tokens:
        there = cover(grid, kept.indices, layers.number_kinds(kept), y, x)
        kinds = np.where(there > 0, there, kinds)
        side = min(side, (grid.box[2] - grid.box[0]) / grid.h * len(y) / texture.grid.height)
    for y0, x0, y1, x1 in boxes:
        kinds[np.outer((y >= y0) & (y < y1), (x >= x0) & (x < x1)) & (kinds == 0)] = layers.PLAIN
    number, all_of = (sum(map(len, each)) for each in ([k for _, k in tokens], [k.mask.ravel() for _, k in tokens]))
    why = () if number == all_of or boxes else tell_kinds(*(kept for _, kept in tokens))
    drawn = layers.frame_kinds(layers.dim(rgb, kinds > 0), kinds, side) if why else layers.dim(rgb, kinds > 0)
    seen = Tile(drawn, "what the model saw", (f"{number} of {all_of} visual tokens",), key=why)
    return [*_question_tiles(texture, relevance, rgb), seen]


def cover(
    grid: TokenGrid,
    cells: NDArray[np.int64],
    values: NDArray[np.uint8],
    y: NDArray[np.floating],
    x: NDArray[np.floating],
) -> NDArray[np.uint8]:
    """The value of the token that a position lies in, uint8 [h, w]; 0 where it is in none of them.

    cells, values: some tokens of a grid, and what each stands for, [K]. y [h], x [w]: in pixels of the image.
    """
    y0, x0, y1, x1 = grid.box
    rows = np.floor((y - y0) / (y1 - y0) * grid.h).astype(np.int64)
    cols = np.floor((x - x0) / (x1 - x0) * grid.w).astype(np.int64)
    plane = np.zeros((grid.h, grid.w), np.uint8)
    plane.ravel()[cells] = values
    inside = np.outer((rows >= 0) & (rows < grid.h), (cols >= 0) & (cols < grid.w))
    return inside * plane[np.clip(rows, 0, grid.h - 1)][:, np.clip(cols, 0, grid.w - 1)]


def look_page(found: Look) -> Image.Image:
    """A large image with its heat and the parts looked at; beside it, the place of the peak at native resolution."""
    scene, (y, x), relevance = found.scene, found.peak, found.relevance
    height, width = scene.raster.size
    ratio = PANEL / max(height, width)
    side = min(scene.side, height, width)
    top, left = (int(np.clip(p - side / 2, 0, n - side)) for p, n in ((y, height), (x, width)))
    rgb = layers.scale_to(scene.overview.pixel, PANEL)
    whole = layers.lay_heat(rgb, relevance.map, level_of(relevance))
    if found.boxes:
        whole = layers.lay_boxes(whole, np.array(found.boxes, np.float64) * ratio, [LOOKED])
    whole = layers.lay_boxes(whole, np.array([[top, left, top + side, left + side]], np.float64) * ratio, [PART])
    part = Image.fromarray(scene.raster.region(top, left, top + side, left + side)).resize((PANEL, PANEL))
    tiles = [
        Tile(whole, in_quotes(relevance.query), looked_for(relevance), confidence_shown(relevance)),
        Tile(
            np.asarray(part),
            "the most relevant part" if not found.detected else "where it is",
            (f"at y {y:.0f}, x {x:.0f}",),
        ),
    ]
    meanings = ((LOOKED, f"parts encoded: {found.encoded}"), (PART, "the part on the right"))
    return paper.paint(arrange(tiles, 2, foot=[*legend(meanings), colour_bar()]))


def search_sheet(hits: Sequence[Hit], query: str, columns: int = 4) -> Image.Image:
    """What a search found, best first: small pictures with heat and framed words, `columns` in a row."""
    if not hits:
        nothing = paper.text("nothing found", PAGE, 24, QUIET)
        return paper.paint(paper.above([paper.text(in_quotes(query), PAGE, 30), nothing], 24))
    tiles, written, known = [], False, None
    for place, hit in enumerate(hits[:MOST_HITS], 1):
        try:
            known = hit.relevance
            rgb = layers.lay_heat(
                layers.scale_to(hit.texture.pixel, HIT), known.map, known.level if hit.detected else None
            )
            words, name = hit.words, hit.name
        except (StoreKeyError, StoreDamagedError):  # removed or damaged since it was found
            rgb, words, name = np.full((HIT, HIT, 3), PAPER, np.uint8), (), f"{hit.name}: not there any more"
        if words:
            written = True
            ratio = HIT / max(hit.texture.grid.height, hit.texture.grid.width)
            rgb = layers.lay_boxes(rgb, np.array([word.box for word in words]) * ratio, [PART])
        said = (" ".join(word.text for word in words),) if words else ()
        tiles.append(Tile(rgb, f"{place}. {name}", ("", *said), hit.score))
    foot: list[Block] = [colour_bar()]
    if written:
        foot += legend([(PART, "is written there")])
    note = "" if known is None else " ".join(looked_for(known))
    shown = arrange(
        tiles, min(columns, max(1, len(tiles))), size=24, title=in_quotes(query), note=note, foot=foot, narrowest=HIT
    )
    return paper.paint(shown)


def _question_tiles(texture: Texture, relevance: Relevance, rgb: Bytes) -> list[Tile]:
    return [Tile(rgb, texture.name), found_tile(rgb, relevance.query, relevance)]
