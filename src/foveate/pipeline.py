"""The whole main path on one screen: encode once, score anything, keep exactly K cells.

    image --encode--> Texture --score(query)--> Relevance --allocate(budget)--> Allocation

`encode` is the slow part (about a tenth of a second) and happens once an image. `score` and `allocate` are pure and
take about a hundred microseconds together; they can be called from any thread, on textures made today or loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Literal, overload

import numpy as np

from foveate.basis import DEFAULT_RANK, Metric, compress, keep_all, query_metric
from foveate.channels.saliency import spectral_residual
from foveate.channels.visual import visual_planes
from foveate.encoders import Encoder, load_encoder
from foveate.errors import OptionError, TextureEncoderError
from foveate.image import ImageSource, load_image
from foveate.relevance.allocate import Allocation, allocate_map
from foveate.relevance.query import prepare
from foveate.relevance.score import Relevance, Relevances, Rivals, relevance_of
from foveate.texture import EncoderStamp, Texture

Compression = Literal["query", "pca", "full"]
DEFAULT_BUDGET = 273  # of 64 x 64 cells: one in fifteen, 6.7 %
ABSENT_FLOOR = 0.5  # of the budget spread evenly when the thing asked for is not there


def encode(
    image: ImageSource,
    *,
    encoder: str | Encoder = "nano",
    rank: int = DEFAULT_RANK,
    error: float | None = None,
    compression: Compression = "query",
    long_side: int | None = None,
    value_range: tuple[float, float] | None = None,
) -> Texture:
    """Encode an image once, for any number of questions.

    >>> texture = encode("photo.jpg")                                           # doctest: +SKIP

    Args:
        image: path, encoded bytes, PIL image, or array [H, W, 3] (see image.load_image).
        encoder: "nano" (built in), "clip", "clip:NAME_OR_FOLDER", or an object with the members of `Encoder`.
        rank: numbers kept a cell.
        error: or the rank by an error target: allowed share of the scores' spread (see basis.compress).
        compression: "query" minimises the error of scores, "pca" that of features (for comparison), "full" keeps all.
        long_side: working size of the encoder in pixels; None is its default (512 for nano: 64 cells).
        value_range: (black, white) of float arrays.

    Raises:
        ImageError and its kin for the image, EncoderNameError, MissingExtraError, EncoderFilesError, OptionError.
    """
    _check_compression(compression)
    tower = load_encoder(encoder) if isinstance(encoder, str) else encoder
    picture = load_image(image, value_range=value_range)
    dense = tower.encode_image(picture.rgb, long_side=long_side)
    grid, flat = dense.grid, dense.features.reshape(dense.grid.count, -1)
    if _is_constant(picture.rgb):
        flat = np.zeros_like(flat)  # nothing in it: what a tower says then is only how it treats borders
    if compression == "full":
        small = keep_all(flat)
    else:
        metric = query_metric_of(tower) if compression == "query" else None
        small = compress(flat, rank=rank, error=error, metric=metric)
    planes = visual_planes(picture.rgb) | {"saliency": spectral_residual(picture.rgb, grid.shape)}
    return Texture(
        grid=grid,
        pixel=picture.rgb,
        valid=picture.valid,
        planes={name: plane.astype(np.float16) for name, plane in planes.items()},
        embedding=small.z.reshape(*grid.shape, -1),
        basis=small.basis,
        residual=small.residual.reshape(grid.shape),
        encoder=EncoderStamp(tower.name, tower.revision, tower.width),
        preprocessing={"long_side": long_side, "compression": compression},
        name=picture.name,
    )


@overload  # a str is a sequence of str too; the first signature wins
def score(texture: Texture, query: str, *, encoder: Encoder | None = None) -> Relevance: ...  # type: ignore[overload-overlap]
@overload
def score(texture: Texture, query: Sequence[str], *, encoder: Encoder | None = None) -> Relevances: ...
def score(texture: Texture, query: str | Sequence[str], *, encoder: Encoder | None = None) -> Relevance | Relevances:
    """Where a question looks in a texture: pure, about a hundred microseconds once its words are known.

    >>> relevance = score(texture, "where is the red car?")                     # doctest: +SKIP

    Args:
        texture: from `encode` or `Texture.load`.
        query: a question or noun phrase; a list of them gives Relevances with maps stacked [q, h, w].
        encoder: only for a texture made by an encoder object of your own.

    Raises:
        QueryError: empty, too long or unreadable. TextureEncoderError: the texture is from another encoder.
    """
    tower = _encoder_of(texture, encoder)
    rivals = rivals_of(tower) if tower.calibration.rivalry > 0 else None
    texts = [query] if isinstance(query, str) else list(query)
    found = tuple(relevance_of(texture, prepare(tower, text), tower.calibration, rivals) for text in texts)
    return found[0] if isinstance(query, str) else Relevances(found)


def allocate(relevance: Relevance, budget: int = DEFAULT_BUDGET, *, floor: float = 0.0) -> Allocation:
    """Keep exactly `budget` cells.

    >>> kept = allocate(relevance, budget=273)                                  # doctest: +SKIP

    A thing that is there gets the cells where it is most relevant. For one that is not, half of the budget is spread
    evenly and half follows saliency; in a featureless image all of it is spread evenly.

    Args:
        floor: share of the budget that is spread evenly whatever the map says.

    Raises:
        BudgetError: not a whole number from 1 to the number of cells. OptionError: floor outside [0, 1].
    """
    if relevance.present:
        return allocate_map(relevance.map, relevance.grid, budget, floor=floor)
    saliency = relevance.parts["saliency"]
    spread = 1.0 if np.ptp(saliency) == 0 else max(floor, ABSENT_FLOOR)
    kept = allocate_map(saliency, relevance.grid, budget, floor=spread)
    return Allocation(kept.indices, relevance.map.ravel()[kept.indices], kept.grid)


# --- what belongs to an encoder and is made once a process -----------------------------------------------------------


def nouns() -> tuple[str, ...]:
    """The bank of nouns that stands for what people ask."""
    return tuple((files("foveate") / "assets" / "nouns.txt").read_text("utf-8").split("\n")[:-1])


@lru_cache(maxsize=4)
def _bank(encoder: Encoder) -> Rivals:
    prompt = encoder.templates[0]
    return Rivals(encoder.encode_text([prompt.format(noun) for noun in nouns()]))


@lru_cache(maxsize=4)
def query_metric_of(encoder: Encoder) -> Metric:
    """The metric in which the basis is fitted: second moments of the encoder's noun vectors."""
    return query_metric(_bank(encoder).vectors)


def rivals_of(encoder: Encoder) -> Rivals:
    """The nouns that a question competes with."""
    return _bank(encoder)


def _encoder_of(texture: Texture, encoder: Encoder | None) -> Encoder:
    stamp = texture.encoder
    tower = load_encoder(stamp.name) if encoder is None else encoder
    if (tower.name, tower.revision, tower.width) != (stamp.name, stamp.revision, stamp.width):
        raise TextureEncoderError(
            f"texture '{texture.name}' was made by encoder '{stamp.name}', revision {stamp.revision}",
            expected=f"'{tower.name}', revision {tower.revision}",
            fix="encode the image again, or install the foveate release that made the texture",
        )
    return tower


def _check_compression(compression: str) -> None:
    if compression not in ("query", "pca", "full"):
        raise OptionError(f"compression={compression!r}", expected="'query', 'pca' or 'full'", fix="leave it out")


def _is_constant(rgb: np.ndarray) -> bool:
    return bool((rgb == rgb[0, 0]).all())
