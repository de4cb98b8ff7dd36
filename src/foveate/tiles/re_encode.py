"""Encode the most relevant part of an image once more at a finer scale, and merge it into the texture.

New features take half of the weight, fading over two cells towards inner borders of the box. Everything is linear, so
scores are weighted means of both encodings', and `Texture.error_bound` holds (triangle inequality).
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_number, check_type
from foveate.core.errors import OptionError, QueryError
from foveate.core.gone import without
from foveate.core.grid import Box, Floats, Grid
from foveate.core.image import is_one_colour
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import LEAST_SIDE, DenseFeatures, Encoder, check_features
from foveate.encoders.windows import cell_pixels
from foveate.language.negatives import query_metric_of
from foveate.pipeline import score
from foveate.relevance.passes import add_map
from foveate.relevance.value import Relevance
from foveate.texture.basis import inward, rounded_up
from foveate.texture.texture import Texture

FINE = 0.5  # weight of the fine features: alone they lose .04 of precision, as they miss what is around (docs/log.md)
RAMP = 2  # cells over which a box fades into its surroundings, chosen by hand
LARGEST_SCALE, LEAST_SHARE = 4, 1e-6  # chosen by hand


@without("refine")
def refine(
    texture: Texture,
    looking_for: str | Relevance | None = None,
    *,
    scale: float = 1.5,
    share: float = 0.25,
    encoder: str | Encoder | None = None,
) -> Texture:
    """Encode the most relevant part of a texture's image again, `scale` times as fine, and merge it.

    The relevance that chose the part becomes the channel "pass_1" (then "pass_2", ...): `score(..., prior="pass_1")`.

    Args:
        looking_for: None for the whole image; or a question; or a relevance of this texture.
        scale: resolution as a multiple of the first encoding's, 1 to 4; nothing is gained beyond the photograph's own.
        share: of the image that is encoded, above 0, to 1.
        encoder: as for `score`: needed only for one that does not come with foveate.

    Raises:
        TextureEncoderError: the texture is from another encoder. QueryError: a question that cannot be asked.
        OptionError: an argument out of range, a relevance of another image, or a scale that the encoder refuses.
        EncoderOutputError: the encoder broke its contract.
    """
    check_type("texture", texture, Texture, fix="texture = encode(image) comes first")
    expected = "one question, a Relevance or None"
    check_type("looking_for", looking_for, (str, Relevance, type(None)), expected=expected, error=QueryError)
    scale = check_number("scale", scale, 1, LARGEST_SCALE)
    share = check_number("share", share, LEAST_SHARE)
    network = match_encoder(texture.encoder, encoder)
    if looking_for is None:
        return _refine_box(texture, (0, 0, *texture.grid.shape), scale, network)
    relevance = score(texture, looking_for, encoder=network) if isinstance(looking_for, str) else looking_for
    relevance = relevance.on(texture.grid)
    refined = _refine_box(texture, top_box(relevance.map, share), scale, network)
    free = next(name for n in itertools.count(1) if (name := f"pass_{n}") not in refined.planes)
    return add_map(refined, relevance, free)


def top_box(plane: NDArray[np.floating], share: float) -> Box:
    """The box, in cells, with `share` of the cells, the map's aspect and its highest cell, that has the highest sum."""
    h, w = plane.shape
    tall, wide = (min(n, max(1, round(n * share**0.5))) for n in (h, w))
    y, x = (int(i) for i in np.unravel_index(int(plane.argmax()), plane.shape))
    total = np.zeros((h + 1, w + 1))
    total[1:, 1:] = plane.astype(np.float64).cumsum(0).cumsum(1)
    tops = slice(max(0, y - tall + 1), min(y, h - tall) + 1)
    lefts = slice(max(0, x - wide + 1), min(x, w - wide) + 1)
    sums = total[tall:, wide:] - total[:-tall, wide:] - total[tall:, :-wide] + total[:-tall, :-wide]
    best = np.unravel_index(int(np.round(sums[tops, lefts], 9).argmax()), sums[tops, lefts].shape)
    top, left = tops.start + int(best[0]), lefts.start + int(best[1])
    return top, left, top + tall, left + wide


def area_means(features: Floats, pixels: Box, grid: Grid, cells: Box) -> Floats:
    """Features [hf, wf, D] of a box of pixels -> exact means over the cells inside it: [h, w, D]."""
    weights = []
    for axis, (length, count) in enumerate(((grid.height, grid.h), (grid.width, grid.w))):
        edges = np.arange(cells[axis], cells[axis + 2] + 1) * (length / count)
        steps = np.linspace(pixels[axis], pixels[axis + 2], features.shape[axis] + 1)
        above = np.maximum(edges[:-1, None], steps[None, :-1])
        covered = np.maximum(np.minimum(edges[1:, None], steps[None, 1:]) - above, 0)
        weights.append((covered / covered.sum(1, keepdims=True)).astype(np.float32))
    return np.asarray(np.einsum("ya,abd,xb->yxd", weights[0], features, weights[1], optimize=True), np.float32)


def fading(shape: tuple[int, int], cells: Box) -> Floats:
    """1 inside a box, falling over RAMP cells towards those of its borders that are not the grid's: [h, w]."""
    sides = []
    for n, start, stop in ((shape[0], cells[0], cells[2]), (shape[1], cells[1], cells[3])):
        rise = np.minimum(1, (np.arange(stop - start) + 0.5) / RAMP)
        one = np.ones(stop - start)
        sides.append(np.minimum(one if start == 0 else rise, one if stop == n else rise[::-1]))
    return np.outer(*sides).astype(np.float32)


def _refine_box(texture: Texture, cells: Box, scale: float, network: Encoder) -> Texture:
    grid, basis, part = texture.grid, texture.basis, (slice(cells[0], cells[2]), slice(cells[1], cells[3]))
    pixels = pixel_box(cells, grid)
    if is_one_colour(texture.pixel):  # as in encode: features would only show how the encoder treats borders
        fine = np.zeros((cells[2] - cells[0], cells[3] - cells[1], basis.width), np.float32)
    else:
        fine = area_means(_encode_finer(texture, pixels, scale, network), pixels, grid, cells)
    metric = query_metric_of(network) if texture.preprocessing.get("compression", "query") == "query" else None
    rows = basis.rows.astype(np.float32)
    z_fine = (fine - basis.mean) @ inward(basis, metric)
    r_fine = np.linalg.norm(fine - basis.mean - z_fine @ rows, axis=-1)
    weight = FINE * fading(grid.shape, cells)
    embedding, residual = texture.embedding.astype(np.float32), texture.residual.astype(np.float32)
    exact = weight[..., None] * z_fine + (1 - weight[..., None]) * embedding[part]
    kept = exact.astype(np.float16)
    moved = np.linalg.norm((exact - kept.astype(np.float32)) @ rows, axis=-1)
    embedding[part], residual[part] = kept, weight * r_fine + (1 - weight) * residual[part] + moved
    before = texture.made_by.get("embedding", "")
    made = f"again at {scale:g} x in {'-'.join(map(str, pixels))}"
    return replace(
        texture,
        embedding=embedding.astype(np.float16),
        residual=rounded_up(residual),
        looks=None,  # of the first look
        made_by={**texture.made_by, "embedding": f"{before}; {made}" if before else made},
    )


def encode_part(rgb: NDArray[np.uint8], pixels: Box, network: Encoder, side: float | None) -> DenseFeatures:
    """Features of a box of pixels; `side` is the working size of that part, None the encoder's default."""
    part = np.ascontiguousarray(rgb[pixels[0] : pixels[2], pixels[1] : pixels[3]])
    dense = network.encode_image(part, long_side=None if side is None else max(LEAST_SIDE, round(side)))
    check_features(network, dense, (part.shape[0], part.shape[1]))
    return dense


def working_side(texture: Texture, network: Encoder) -> float:
    """Pixels along the long side of the image as the encoder saw it."""
    side = texture.preprocessing.get("long_side")
    if side is not None:
        return float(side)
    return max(texture.grid.shape) * cell_pixels(network)


def _encode_finer(texture: Texture, pixels: Box, scale: float, network: Encoder) -> Floats:
    """Features of a part of the image with `scale` times the cells that it has in the texture: [hf, wf, D]."""
    grid, size = texture.grid, (pixels[2] - pixels[0], pixels[3] - pixels[1])
    ratio = scale * max(size) / max(grid.height, grid.width)  # of the first working size
    side: float | None = texture.preprocessing.get("long_side")
    if abs(ratio - 1) * max(grid.shape) >= 0.5:
        side = ratio * working_side(texture, network)
    try:
        return encode_part(texture.pixel, pixels, network, side).full(network.width)
    except OptionError as error:
        raise OptionError(
            f"scale={scale:g} for {size[0]} x {size[1]} pixels: {error.received}",
            expected=error.expected,
            fix="a smaller scale, or a smaller share of the image",
        ) from error


def pixel_box(cells: Box, grid: Grid) -> Box:
    """A box of cells in whole pixels, rounded outwards."""
    y0, y1 = (cells[i] * grid.height for i in (0, 2))
    x0, x1 = (cells[i] * grid.width for i in (1, 3))
    return y0 // grid.h, x0 // grid.w, -(-y1 // grid.h), -(-x1 // grid.w)
