"""Pictures for people: each function takes values and returns a picture. Pillow and our own colours only.

* Heat is drawn on the absolute scale of relevance, never stretched: a thing that is not there looks cold.
* Dropped cells are dimmed, not hidden, so that a person can judge what was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from foveate.core.checks import check_choice, check_type
from foveate.core.errors import StoreDamagedError, StoreKeyError
from foveate.core.grid import resize_map
from foveate.core.image import check_rgb
from foveate.core.layout import FULL40, Channel, channel_named
from foveate.relevance.allocation import Allocation
from foveate.relevance.crops import Regions, nearest_total, regions
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.viz.homunculus import redraw

if TYPE_CHECKING:
    from foveate.store.hits import Hit
    from foveate.tiles.scene import Look
    from foveate.vlm.encoded import Answer
    from foveate.vlm.families.token_layout import TokenGrid

Bytes = NDArray[np.uint8]
Colour = tuple[int, int, int]
PANEL, HIT, CHANNEL = 480, 256, 168  # pixels of the long side of a picture: of a question, a search, a channel sheet
MOST_HITS = 60  # pictures on a contact sheet
MARGIN, NARROWEST, SWATCH = 12, 200, 14
INK, PAPER, QUIET, CONSTANT = (20, 20, 24), (250, 250, 248), (110, 110, 116), (205, 205, 208)
LOOKED, FOUND = (255, 255, 255), (90, 220, 255)  # borders of tiles that were encoded, of the part with the peak
DIMMED = 0.22
REGIONS: tuple[Colour, ...] = ((90, 220, 255), (255, 205, 90), (150, 235, 120), (255, 130, 190), (200, 160, 255))
PICTURES = ("homunculus", "regions")  # that `draw_question` adds if they are asked for
# Anchors of the heat colours, from cold to hot; lightness rises all the way, so they survive a grey printer.
_ANCHORS = np.array([(12, 8, 38), (76, 18, 107), (158, 40, 100), (221, 81, 58), (248, 148, 38), (252, 240, 160)])
_HEAT = np.stack([np.interp(np.linspace(0, 5, 256), range(6), _ANCHORS[:, c]) for c in range(3)], -1).astype(np.uint8)


class Tile(NamedTuple):
    """A picture [h, w, 3] with lines of text above it, grey where `faint`."""

    picture: Bytes
    captions: tuple[str, ...]
    faint: bool = False


# --- a photograph [H, W, 3] with something laid over it ---------------------------------------------------------------


def colour_heat(plane: NDArray[np.floating]) -> Bytes:
    """[h, w] in [0, 1] (clipped) -> uint8 [h, w, 3]."""
    return _HEAT[np.rint(np.clip(plane, 0, 1) * 255).astype(np.uint8)]


def draw_heat(rgb: Bytes, plane: NDArray[np.floating]) -> Bytes:
    """Heat of a map [h, w] laid over an image [H, W, 3]: cold cells show the darkened grey photograph."""
    smooth = np.clip(resize_map(plane, rgb.shape[:2]), 0, 1)[..., None]
    grey = rgb.mean(-1, keepdims=True) * 0.55
    weight = 0.15 + 0.6 * smooth
    return np.asarray(grey * (1 - weight) + colour_heat(smooth[..., 0]) * weight, np.uint8)


def draw_kept(rgb: Bytes, kept: Allocation) -> Bytes:
    """The image with dropped cells dimmed: each pixel follows the cell under it."""
    height, width = rgb.shape[:2]
    rows = np.floor((np.arange(height) + 0.5) * kept.grid.h / height).astype(int)
    cols = np.floor((np.arange(width) + 0.5) * kept.grid.w / width).astype(int)
    return dim(rgb, kept.mask[rows][:, cols])


def dim(rgb: Bytes, bright: NDArray[np.bool_]) -> Bytes:
    """The image [H, W, 3], grey and dark where the mask [H, W] is False."""
    faint = rgb.mean(-1, keepdims=True) * DIMMED + 12
    return np.where(bright[..., None], rgb, faint).astype(np.uint8)


def draw_boxes(rgb: Bytes, boxes: NDArray[np.floating]) -> Bytes:
    """The image [H, W, 3] with frames around boxes [n, 4], (y0, x0, y1, x1) in its pixels.

    `draw_boxes(draw_kept(rgb, kept), boxes)` shows kept cells beside boxes that are known to be right.
    """
    picture = Image.fromarray(rgb)
    pen = ImageDraw.Draw(picture)
    for y0, x0, y1, x1 in boxes.tolist():
        pen.rectangle((x0 - 2, y0 - 2, x1 + 1, y1 + 1), outline=FOUND)
    return np.asarray(picture)


def draw_regions(rgb: Bytes, found: Regions) -> Bytes:
    """The image [H, W, 3], dark outside of regions; each framed, with its rows x columns of tokens.

    Raises ImageArrayError for no image, OptionError for no regions.
    """
    check_rgb(rgb)
    check_type("regions", found, Regions, fix="pass regions(relevance.map, relevance.grid, total)")
    height, width = rgb.shape[:2]
    scale = np.tile([height / found.grid.height, width / found.grid.width], 2)
    boxes = np.rint(found.boxes * scale).astype(np.int64)
    bright = np.zeros((height, width), bool)
    for y0, x0, y1, x1 in boxes:
        bright[y0:y1, x0:x1] = True
    picture = Image.fromarray(dim(rgb, bright))
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(max(10, min(height, width) // 28))
    for number in reversed(range(len(found))):  # the most relevant is drawn last
        (y0, x0, y1, x1), (rows, columns) = boxes[number].tolist(), found.sizes[number].tolist()
        colour = REGIONS[number % len(REGIONS)]
        pen.rectangle((x0, y0, x1 - 1, y1 - 1), outline=colour, width=2)
        label = f"{rows} x {columns} = {found.tokens[number]}"
        wide, tall = round(font.getlength(label)) + 8, round(1.5 * font.size)  # type: ignore[union-attr]
        left, top = (max(0, min(at, most - size)) for at, most, size in ((x0, width, wide), (y0, height, tall)))
        pen.rectangle((left, top, left + wide, top + tall), fill=colour)
        pen.text((left + 4, top + tall // 2), label, fill=INK, font=font, anchor="lm")
    return np.asarray(picture)


def scale_to(rgb: Bytes, side: int) -> Bytes:
    """The image with a long side of `side` pixels."""
    ratio = side / max(rgb.shape[:2])
    size = (max(1, round(rgb.shape[1] * ratio)), max(1, round(rgb.shape[0] * ratio)))
    return np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling.LANCZOS))


# --- pages ------------------------------------------------------------------------------------------------------------


def draw_question(
    texture: Texture, relevance: Relevance, kept: Allocation, pictures: Sequence[str] = ()
) -> Image.Image:
    """Photograph, heat map, kept cells: one question in three panels, and more of them.

    Args:
        texture: the image.
        relevance: its map.
        kept: its cells.
        pictures: of PICTURES. "homunculus" adds the image redrawn with area in proportion to tokens; "regions" adds the
            regions of as many tokens as there are kept cells (the nearest number that regions can have), and their
            homunculus.

    Raises OptionError for another picture.
    """
    rgb, count, cells = scale_to(texture.pixel, PANEL), len(kept), kept.grid.count
    panels = [
        *_question_panels(texture, relevance, rgb),
        Tile(draw_kept(rgb, kept), (f"{count} of {cells} cells kept",)),
    ]
    for name in pictures:
        check_choice("picture", name, PICTURES)
        if name == "homunculus":
            panels.append(_homunculus_panel(rgb, kept))
        else:
            found = regions(relevance.map, relevance.grid, nearest_total(count))
            parts = "1 region" if len(found) == 1 else f"{len(found)} regions"
            caption = f"{found.tokens.sum()} tokens in {parts}"
            panels += [Tile(draw_regions(rgb, found), (caption,)), _homunculus_panel(rgb, found)]
    return arrange(panels, len(panels))


def draw_answer(texture: Texture, grids: Sequence[TokenGrid], answer: Answer) -> Image.Image:
    """Photograph, heat map, and what the model saw: bright where a kept token of any grid, or a region, lies."""
    size = texture.grid.height, texture.grid.width
    boxes = [] if answer.regions is None else answer.regions.boxes.tolist()

    def draw_seen(rgb: Bytes) -> Bytes:
        y, x = ((np.arange(n) + 0.5) * whole / n for n, whole in zip(rgb.shape[:2], size, strict=True))
        bright = np.zeros(rgb.shape[:2], bool)
        for grid, kept in zip(grids, answer.chosen[0].kept, strict=True):
            bright |= cover(grid, kept.indices, y, x)
        for y0, x0, y1, x1 in boxes:
            bright |= np.outer((y >= y0) & (y < y1), (x >= x0) & (x < x1))
        return dim(rgb, bright)

    rgb = scale_to(texture.pixel, PANEL)
    tokens = Tile(draw_seen(rgb), ("{} of {} tokens".format(*answer.tokens),))
    return arrange([*_question_panels(texture, answer.relevance[0], rgb), tokens], 3)


def cover(
    grid: TokenGrid, cells: NDArray[np.int64], y: NDArray[np.floating], x: NDArray[np.floating]
) -> NDArray[np.bool_]:
    """Which positions (y [h], x [w], in pixels of the image) lie in these tokens of a grid: bool [h, w]."""
    y0, x0, y1, x1 = grid.box
    rows = np.floor((y - y0) / (y1 - y0) * grid.h).astype(np.int64)
    cols = np.floor((x - x0) / (x1 - x0) * grid.w).astype(np.int64)
    mask = np.zeros((grid.h, grid.w), bool)
    mask.ravel()[cells] = True
    inside = np.outer((rows >= 0) & (rows < grid.h), (cols >= 0) & (cols < grid.w))
    return inside & mask[np.clip(rows, 0, grid.h - 1)][:, np.clip(cols, 0, grid.w - 1)]


def draw_scene(found: Look, query: str) -> Image.Image:
    """A large image with its heat and the tiles looked at; beside it, the place of the peak at native resolution."""
    scene, (y, x) = found.scene, found.peak
    height, width = scene.raster.size
    ratio = PANEL / max(height, width)
    whole = Image.fromarray(draw_heat(scale_to(scene.overview.pixel, PANEL), found.relevance.map))
    pen = ImageDraw.Draw(whole)
    for box in found.boxes:
        y0, x0, y1, x1 = (side * ratio for side in box)
        pen.rectangle((x0, y0, x1 - 1, y1 - 1), outline=LOOKED)
    side = min(scene.side, height, width)
    top, left = (int(np.clip(p - side / 2, 0, n - side)) for p, n in ((y, height), (x, width)))
    part = Image.fromarray(scene.raster.region(top, left, top + side, left + side)).resize((PANEL, PANEL))
    pen.rectangle([v * ratio for v in (left, top, left + side - 1, top + side - 1)], outline=FOUND, width=2)
    captions = (f"“{query}”  {_verdict(found.relevance)}",), (f"at y {y:.0f}, x {x:.0f}",)
    tiles = [Tile(*pair) for pair in zip(map(np.asarray, (whole, part)), captions, strict=True)]
    legend = ((LOOKED, f"parts encoded: {found.encoded}"), (FOUND, "the part on the right"))
    return arrange(tiles, 2, legend=legend)


def draw_channels(texture: Texture) -> Image.Image:
    """The 40 channels of a texture, and what it has beyond them, on one sheet; ids in colours.

    Each plane is drawn from its lowest value to its highest, which are written above it; a constant one is grey.
    """
    built, tiles = set(texture.built), []
    ratio = CHANNEL / max(texture.grid.height, texture.grid.width)
    size = (max(1, round(texture.grid.width * ratio)), max(1, round(texture.grid.height * ratio)))
    for name in (*FULL40.names, *(name for name in texture.built if name not in FULL40.names)):
        plane = texture.channel(name, warn=False)
        channel = channel_named(name, texture.extra)
        picture = Image.fromarray(colour_plane(plane, channel)).resize(size, Image.Resampling.NEAREST)
        number = f"{FULL40.layer(name)} " if name in FULL40.names else ""
        label = f"{number}{name}" + ("" if name in built else " (not built)")
        tiles.append(Tile(np.asarray(picture), (label, describe_range(plane)), faint=name not in built))
    return arrange(tiles, 8, text=12, narrowest=CHANNEL)


def colour_plane(plane: NDArray[np.floating], channel: Channel) -> Bytes:
    """A plane [h, w] for the eye, uint8 [h, w, 3]: heat from its lowest to its highest value; a colour for each id."""
    if np.ptp(plane) == 0:
        return np.full((*plane.shape, 3), CONSTANT, np.uint8)
    if channel.reduction == "mode":
        ids = np.unique(plane, return_inverse=True)[1].reshape(plane.shape)
        hue = ids * 0.61803399 % 1  # the golden ratio keeps neighbours in the list apart
        value = np.array([0.95, 0.7, 0.85])[ids % 3]
        bands = (hue * 255, np.full(plane.shape, 150), value * 255)
        picture = Image.merge("HSV", [Image.fromarray(band.astype(np.uint8)) for band in bands])
        return np.asarray(picture.convert("RGB"))
    low, high = float(plane.min()), float(plane.max())
    return colour_heat((plane - low) / (high - low))


def describe_range(plane: NDArray[np.floating]) -> str:
    """'0.021 .. 0.94', or 'constant 0'.

    >>> describe_range(np.array([[0.0, 0.25]])), describe_range(np.ones((2, 2)))
    ('0 .. 0.25', 'constant 1')
    """
    low, high = float(plane.min()), float(plane.max())
    return f"constant {low:.3g}" if low == high else f"{low:.3g} .. {high:.3g}"


def draw_hits(hits: Sequence[Hit], query: str) -> Image.Image:
    """What a search found, best first: small pictures with the question's heat, at most MOST_HITS.

    What is written there of the question's words is framed, and said.
    """
    tiles = []
    for place, hit in enumerate(hits[:MOST_HITS], 1):
        score = f"{place}.  {hit.score:.2f}" + ("" if hit.detected else "  not detected")
        name = hit.name.encode("utf-8", "replace").decode()
        try:
            picture = draw_heat(scale_to(hit.texture.pixel, HIT), hit.relevance.map)
            words = hit.words
        except (StoreKeyError, StoreDamagedError):  # removed or damaged since it was found
            picture, name, words = np.full((HIT, HIT, 3), PAPER, np.uint8), f"{name}: not there any more", ()
        if words:
            ratio = HIT / max(hit.texture.grid.height, hit.texture.grid.width)
            picture = draw_boxes(picture, np.array([word.box for word in words]) * ratio)
        written = (" ".join(word.text for word in words),) if words else ()
        tiles.append(Tile(picture, (score, name, *written), faint=not hit.detected))
    legend = ((FOUND, "is written there"),) if any(len(tile.captions) > 2 for tile in tiles) else ()
    return arrange(tiles, 4, text=12, title=f"“{query}”", narrowest=HIT, legend=legend)


def arrange(
    tiles: Sequence[Tile],
    columns: int,
    *,
    text: int = 16,
    title: str = "",
    narrowest: int = NARROWEST,
    legend: Sequence[tuple[Colour, str]] = (),
) -> Image.Image:
    """Pictures in rows, each with its lines of text above it, under a title; below, what the colours mean.

    Args:
        text: height of the text in pixels.
        narrowest: least width of a column in pixels; lines of text are cut to a column.
        legend: (colour, meaning).
    """
    font, line = ImageFont.load_default(text), 2 * text - 2
    wide = max(narrowest, *(tile.picture.shape[1] for tile in tiles))
    above = line * max(len(tile.captions) for tile in tiles)
    tall = above + max(tile.picture.shape[0] for tile in tiles) + MARGIN
    head, foot = line * bool(title), line * bool(legend)
    size = (columns * (wide + MARGIN) + MARGIN, head + -(-len(tiles) // columns) * tall + MARGIN + foot)
    page = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((MARGIN, MARGIN), fit_text(title, size[0] - 2 * MARGIN, font), fill=INK, font=font)
    for i, tile in enumerate(tiles):
        left, top = MARGIN + i % columns * (wide + MARGIN), MARGIN + head + i // columns * tall
        for row, words in enumerate(tile.captions):
            colour = QUIET if tile.faint else INK
            draw.text((left, top + row * line), fit_text(words, wide, font), fill=colour, font=font)
        page.paste(Image.fromarray(tile.picture), (left, top + above))
    left, top = MARGIN, size[1] - foot
    for colour, meaning in legend:
        draw.rectangle((left, top, left + SWATCH, top + SWATCH), fill=colour, outline=INK)
        draw.text((left + SWATCH + 8, top - 2), meaning, fill=INK, font=font)
        left += SWATCH + 8 + round(font.getlength(meaning)) + 2 * MARGIN
    return page


def fit_text(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """The text, cut with an ellipsis where it is wider than `width` pixels."""
    text = " ".join(text.split())
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"


def _question_panels(texture: Texture, relevance: Relevance, rgb: Bytes) -> list[Tile]:
    """The photograph, made small [h, w, 3], and the heat map over it."""
    caption = f"“{relevance.query}”  {_verdict(relevance)}"
    return [Tile(rgb, (texture.name,)), Tile(draw_heat(rgb, relevance.map), (caption,))]


def _homunculus_panel(rgb: Bytes, kept: Allocation | Regions) -> Tile:
    redrawn = redraw(kept)
    cells = float((redrawn.tokens > 0).mean())
    return Tile(redrawn.draw(rgb), (f"area by tokens: {cells:.0%} of the image is {redrawn.kept_area:.0%}",))


def _verdict(relevance: Relevance) -> str:
    return f"confidence {relevance.confidence:.2f}" + ("" if relevance.detected else ", not detected")
