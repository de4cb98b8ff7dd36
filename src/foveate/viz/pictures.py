"""Pictures of one image: what a question found, what was kept, several questions beside one another.

Each returns a Pillow image: the photograph with title, colour bar and legend around it; `labels=False` gives the
photograph alone. Pages of results are in pages.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from foveate.allocation.allocation import Allocation
from foveate.allocation.crops import Regions
from foveate.core.checks import check_array, check_int, check_type
from foveate.core.errors import OptionError
from foveate.core.grid import Grid, check_whole
from foveate.core.image import Bytes, ImageSource, load_image
from foveate.relevance.confidence import DETECTED, in_digits
from foveate.relevance.value import Relevance, describe_others
from foveate.texture.texture import Texture
from foveate.viz import layers, paper
from foveate.viz.cartogram import REST, redraw
from foveate.viz.colours import ABSENT, FOUND, INK, KINDS, PAPER, QUESTIONS, QUIET, Colour
from foveate.viz.paper import GAP, TEXT, Block

Map = Relevance | ArrayLike
# Sizes: chosen by hand.
SIDE = 1080  # pixels of the long side of a photograph that is a picture by itself
PANEL = 720  # of one of several
SMALLEST, LARGEST = 64, 8192
BAR = 560  # pixels of the colour bar
SAME_SHAPE = 0.02  # of two aspects: their logarithms differ by no more
NARROWEST, PAGE = 360, 720  # pixels of a column, of a page: room for words
GREY = 150  # of a photograph that is not there
SAID = {"asked": "asked for", "beside": "beside them", "context": "context", "given": "protected or spread evenly"}
PALE_GREY = 215  # that the colour bar is drawn over, as heat is transparent


def heatmap(
    image: Texture | ImageSource,
    relevance: Map,
    *,
    boxes: ArrayLike | None = None,
    side: int = SIDE,
    labels: bool = True,
) -> Image.Image:
    """Where a question looks: the photograph with heat; of what was found a contour, at half of the highest value.

    Args:
        image: a texture, or anything that `load_image` takes: a path, a PIL image, an array.
        relevance: a Relevance, or a map [h, w] in [0, 1] over the image.
        boxes: frames to draw, [n, 4], (y0, x0, y1, x1) in pixels of the image: `relevance.boxes()`, say.
        side: long side of the photograph in pixels, 64 to 8,192.
        labels: the question, its confidence and the colour bar around it; False for the photograph alone.

    Raises OptionError for no such map or boxes, and what `load_image` raises.
    """
    rgb = photograph(image, side)
    known = plane_of(relevance)[1]
    check_shape(rgb, known)
    tile = found_tile(rgb, "" if known is None else known.query, relevance)
    if boxes is not None:
        tile = tile._replace(picture=lay_frames(tile.picture, boxes, known or image))
    if not labels:
        return Image.fromarray(tile.picture)
    return paper.paint(arrange([tile], 1, foot=[colour_bar()]))


def kept(
    image: Texture | ImageSource,
    allocation: Allocation | Regions,
    *,
    boxes: ArrayLike | None = None,
    side: int = SIDE,
    labels: bool = True,
) -> Image.Image:
    """What is kept: bright cells in a dark photograph, with lines that say why, as the legend above them; of regions,
    each framed, with its tokens in the legend.

    Args:
        image, boxes, side, labels: as for `heatmap`.
        allocation: of `allocate`, or the Regions of `regions`.

    Raises OptionError for anything else, and what `load_image` raises.
    """
    rgb = _photograph_of(allocation, image, side)
    drawn = (
        layers.lay_kept(rgb, allocation) if isinstance(allocation, Allocation) else layers.lay_regions(rgb, allocation)
    )
    if boxes is not None:
        drawn = lay_frames(drawn, boxes, allocation)
    if not labels:
        return Image.fromarray(drawn)
    tile = Tile(drawn, describe_kept(allocation), key=tell_kinds(allocation))
    return paper.paint(arrange([tile], 1, foot=region_legend(allocation)))


def homunculus(
    image: Texture | ImageSource,
    allocation: Allocation | Regions,
    *,
    rest: float = REST,
    side: int = SIDE,
    labels: bool = True,
) -> Image.Image:
    """The photograph redrawn with area in proportion to tokens, as maps of the cortex draw a body (cartogram.py).

    Args:
        image, side, labels: as for `heatmap`.
        allocation: of `allocate`, or the Regions of `regions`.
        rest: as for `redraw`.

    Raises OptionError for anything else, and what `load_image` raises.
    """
    rgb = _photograph_of(allocation, image, side)
    tile = homunculus_tile(rgb, allocation, rest)
    return paper.paint(arrange([tile], 1)) if labels else Image.fromarray(tile.picture)


def compare(
    image: Texture | ImageSource, relevances: Mapping[str, Map], *, side: int = PANEL, columns: int | None = None
) -> Image.Image:
    """Several questions about one photograph, side by side, after the photograph as it is.

    Args:
        image, side: as for `heatmap`, of each photograph.
        relevances: the Relevance, or the map [h, w] in [0, 1], of each question, by its name.
        columns: pictures in a row; None for up to four, in rows of equal length where that can be.

    Raises OptionError for no questions or no such map, and what `load_image` raises.
    """
    if not isinstance(relevances, Mapping) or not relevances:
        raise OptionError(
            f"relevances={relevances!r}"[:200],
            expected="a dictionary from questions to their relevance",
            fix='pass {"the dog": score(texture, "the dog"), ...}',
        )
    rgb = photograph(image, side)
    for query, relevance in relevances.items():
        check_type("the name of a question", query, str, fix='pass {"the dog": score(texture, "the dog"), ...}')
        check_shape(rgb, plane_of(relevance)[1])
    name = image.name if isinstance(image, Texture) else ""
    tiles = [Tile(rgb, name or "the photograph"), *(found_tile(rgb, *pair) for pair in relevances.items())]
    if columns is None:
        rows = -(-len(tiles) // 4)
        columns = -(-len(tiles) // rows)
    columns = check_int("columns", columns, 1, len(tiles))
    return paper.paint(arrange(tiles, columns, foot=[colour_bar()]))


class Tile(NamedTuple):
    """A picture [h, w, 3] below its title, a badge of its confidence if it has one, lines of text and a legend."""

    picture: Bytes
    title: str = ""
    notes: tuple[str, ...] = ()
    confidence: float | None = None
    key: tuple[tuple[Colour, str], ...] = ()


def arrange(
    tiles: Sequence[Tile],
    columns: int,
    *,
    size: int = TEXT,
    title: str = "",
    note: str = "",
    foot: Sequence[Block] = (),
    narrowest: int = NARROWEST,
) -> Block:
    """Tiles in rows, each picture below its text, under a title and a note; below them a foot of legends."""
    wide = max(narrowest, *(tile.picture.shape[1] for tile in tiles))
    whole = max(min(columns, len(tiles)) * (wide + GAP) - GAP, PAGE)
    rows = []
    for start in range(0, len(tiles), columns):
        row = tiles[start : start + columns]
        heads = [head(tile, wide, size) for tile in row]
        tall = max(one.height for one in heads)
        pictures = [
            paper.above([paper.grow(one, wide, tall), paper.picture(tile.picture)], size // 2 if tall else 0)
            for one, tile in zip(heads, row, strict=True)
        ]
        rows.append(paper.beside(pictures))
    top = paper.above([paper.text(title, whole, round(1.25 * size)), paper.text(note, whole, size, QUIET)], size // 4)
    return paper.above([top, *rows, paper.flow(foot, whole, 2 * GAP)], round(1.2 * size))


def arrange_bare(tiles: Sequence[Tile], columns: int) -> Block:
    rows = [tiles[start : start + columns] for start in range(0, len(tiles), columns)]
    return paper.above([paper.beside([paper.picture(tile.picture) for tile in row]) for row in rows], GAP)


def head(tile: Tile, width: int, size: int = TEXT) -> Block:
    """Title, badge, lines, legend."""
    blocks = [paper.text(tile.title, width, size, INK if is_found(tile.confidence) else ABSENT, 2)]
    notes = tile.notes
    if tile.confidence is not None:
        mark = badge(tile.confidence, round(0.8 * size))
        rest = width - mark.width - size // 2
        words, notes = ([notes[0]], notes[1:]) if notes else ([], ())
        side = [paper.text(line, rest, round(0.8 * size), QUIET, 1) for line in words if rest > 4 * size]
        blocks.append(paper.beside([mark, *side], size // 2, middle=True))
    blocks += [paper.text(line, width, round(0.8 * size), QUIET, 2) for line in notes]
    blocks += [paper.flow(legend(tile.key, round(0.8 * size)), width, size)] if tile.key else []
    return paper.above(blocks, size // 5)


def badge(confidence: float, size: int) -> Block:
    """How sure it is: green and filled where it was detected; grey, and an outline only, where not."""
    found = is_found(confidence)
    said = in_digits(confidence) + (" detected" if found else " not detected")
    words = paper.text(said, 100 * size, size, PAPER if found else ABSENT)
    wide, tall = words.width + round(1.4 * size), round(1.6 * size)
    kind, colour = ("pill", FOUND) if found else ("ring", ABSENT)
    return paper.over(paper.shape(kind, wide, tall, colour, max(2, size // 10)), words)


def is_found(confidence: float | None) -> bool:
    return confidence is None or confidence >= DETECTED


def colour_bar() -> Block:
    """The scale of heat from 0 to 1 as it looks over pale grey, and what the line in it means."""
    small = tall = round(0.75 * TEXT)
    ramp = np.tile(((np.arange(BAR) + 0.5) / BAR).astype(np.float32), (tall, 1))
    strip = layers.tint(
        layers.darken(np.full((tall, BAR, 3), PALE_GREY, np.uint8), ramp), ramp, layers.colour_heat(ramp)
    )
    names = [paper.text(name, BAR, small, QUIET) for name in ("0", "white line: half of the highest value", "1")]
    items = []
    for block, at in zip(names, (0, BAR // 2, BAR), strict=True):
        left = min(max(0, at - block.width // 2), BAR - block.width)
        items += [item.moved(left, 0) for item in block.items]
    ticks = Block(BAR, names[0].height, tuple(items))
    bar = paper.above([paper.picture(strip), ticks], TEXT // 6)
    return paper.beside([paper.text("relevance", BAR, small, QUIET), bar], TEXT // 2)


def legend(meanings: Sequence[tuple[Colour, str]], small: int = round(0.75 * TEXT)) -> list[Block]:
    """A swatch and a text, so many pixels high, for each colour."""
    blocks = []
    for colour, meaning in meanings:
        inner = paper.shape("swatch", small - 4, small - 4, colour)
        swatch = paper.over(paper.shape("swatch", small, small, layers.DARK), inner)
        blocks.append(paper.beside([swatch, paper.text(meaning, BAR, small, QUIET, 1)], TEXT // 3, middle=True))
    return blocks


def region_legend(found: Allocation | Regions) -> list[Block]:
    """Rows x columns of tokens of each region, beside its colour; nothing of an allocation."""
    if isinstance(found, Allocation):
        return []
    shown = zip(found.sizes.tolist(), found.tokens.tolist(), strict=True)
    said = [f"{rows} x {columns} = {tokens} tokens" for (rows, columns), tokens in shown]
    return legend([(QUESTIONS[i % len(QUESTIONS)], words) for i, words in enumerate(said)])


def describe_kept(found: Allocation | Regions) -> str:
    """'273 of 3072 cells kept (8.9 %)', or '512 tokens in 3 regions'."""
    if isinstance(found, Allocation):
        return f"{len(found)} of {found.grid.count} cells kept ({len(found) / found.grid.count * 100:.1f} %)"
    return f"{found.tokens.sum()} tokens in " + ("1 region" if len(found) == 1 else f"{len(found)} regions")


def tell_kinds(*found: Allocation | Regions) -> tuple[tuple[Colour, str], ...]:
    """The legend of kept cells: how many of each kind, with the colour of its lines. Nothing of a bare map."""
    kinds: Counter[str] = Counter(
        kind for one in found if isinstance(one, Allocation) and "asked" in one.reasons for kind in one.kinds
    )
    return tuple((colour, f"{kinds[kind]:,} {SAID[kind]}") for kind, colour in KINDS.items() if kinds[kind])


def homunculus_tile(rgb: Bytes, found: Allocation | Regions, rest: float = REST) -> Tile:
    redrawn = redraw(found, rest)
    cells = float((redrawn.tokens > 0).mean())
    return Tile(redrawn.draw(rgb), f"area by tokens: {cells:.0%} of the image is {redrawn.kept_area:.0%}")


def lay_frames(drawn: Bytes, boxes: ArrayLike, of: Relevance | Allocation | Regions | Texture | ImageSource) -> Bytes:
    """Frames around boxes [n, 4], in pixels of the image that they are `of`, over that image as it is drawn."""
    frames = check_array("boxes", boxes, (None, 4), fix="pass rows (y0, x0, y1, x1) in pixels")
    if isinstance(of, Relevance | Allocation | Regions | Texture):
        size = of.grid.height, of.grid.width
    else:
        size = load_image(of).size
    return layers.lay_boxes(drawn, frames * (max(drawn.shape[:2]) / max(size)))


def found_tile(rgb: Bytes, name: str, relevance: Map, notes: tuple[str, ...] | None = None) -> Tile:
    """A question's heat over a photograph of the size of the tile."""
    plane, known = plane_of(relevance)
    said = looked_for(known) if notes is None and known is not None else notes or ()
    heat = layers.lay_heat(rgb, plane, DETECTED if known is None else level_of(known))
    return Tile(heat, in_quotes(name), said, None if known is None else confidence_shown(known))


def level_of(relevance: Relevance) -> float | None:
    """Where its contour runs; None where nothing was found."""
    return relevance.level if relevance.followed else None


def confidence_shown(relevance: Relevance) -> float | None:
    """The confidence for the badge; None where a channel or a prior made the map, and no thing was detected."""
    half = relevance.unknown or relevance.looked_for  # of which the rest is shown
    return relevance.confidence if relevance.detected or not relevance.followed or half else None


def looked_for(relevance: Relevance) -> tuple[str, ...]:
    """The phrases that were looked for, where they are not the question itself; what was in their place or was not
    understood; the words that were read for it."""
    phrases = " + ".join(relevance.parts) + "".join(f", not {phrase}" for phrase in relevance.ignored)
    bare = " ".join(
        word.removesuffix("'s") for word in relevance.query.lower().split() if word not in ("a", "an", "the")
    )
    told = phrases.lower() == bare or phrases in relevance.looked_for.values()
    notes = () if told else (f"looks for: {phrases}",)
    if relevance.looked_for:
        notes = (*notes, "looks for " + ", ".join(describe_others(relevance.looked_for)))
    if relevance.unknown:
        notes = (*notes, "not understood: " + ", ".join(relevance.unknown))
    if confidence_shown(relevance) is None:
        planes = [name for name in (*relevance.weights, "prior", "reading") if name in relevance.reasons]
        notes = (*notes, "found by " + ", ".join(planes or ["other planes"]) + ", not as a thing")
    return (*notes, f"reads: {relevance.answer}") if relevance.words else notes


def in_quotes(query: str) -> str:
    return f"“{query}”" if query and '"' not in query else query


def photograph(image: Texture | ImageSource, side: int) -> Bytes:
    side = check_int("side", side, SMALLEST, LARGEST)
    rgb = image.pixel if isinstance(image, Texture) else load_image(image).rgb
    return layers.scale_to(rgb, side)


def _photograph_of(found: Allocation | Regions, image: Texture | ImageSource, side: int) -> Bytes:
    check_type("kept", found, (Allocation, Regions), fix="pass allocate(relevance, budget) or regions(...)")
    check_whole(found.grid, "a picture")
    rgb = photograph(image, side)
    check_shape(rgb, found)
    return rgb


def is_shaped_like(rgb: Bytes, grid: Grid) -> bool:
    """Whether a photograph [H, W, 3] has the aspect of the image that a grid lies on, but for rounding."""
    height, width = rgb.shape[:2]
    return bool(abs(np.log(width * grid.height / (height * grid.width))) <= SAME_SHAPE + 2 / min(height, width))


def check_shape(rgb: Bytes, of: Relevance | Allocation | Regions | None) -> None:
    """Raises OptionError where a value is of an image of another aspect than the photograph it is drawn over."""
    if of is not None and not is_shaped_like(rgb, of.grid):
        height, width = rgb.shape[:2]
        raise OptionError(
            f"{of!r}, of an image of {of.grid.height:g} x {of.grid.width:g} pixels, over a photograph of the shape "
            f"{height} x {width}",
            expected="both of the same image, as a whole",
            fix="pass the photograph that was encoded; for visual tokens of a part of it, cut that part out",
        )


def plane_of(relevance: Map) -> tuple[NDArray[np.floating], Relevance | None]:
    """The map [h, w], and the relevance it is of, if it is one. Raises OptionError."""
    if isinstance(relevance, Relevance):
        check_whole(relevance.grid, "a picture")
        return relevance.map, relevance
    fix = "pass a Relevance, or its map"
    return check_array("relevance", relevance, (None, None), low=0, high=1, fix=fix), None
