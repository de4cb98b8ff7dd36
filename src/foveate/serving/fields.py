"""What travels from the API's process to the engine's: where an image's visual tokens lie, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.vlm.families.token_layout import TokenLayout

ROWS, COUNT, SPAN, DIGEST = "foveate_rows", "foveate_count", "foveate_span", "foveate_digest"
PLACES, LENGTHS = "foveate_places", "foveate_lengths"  # the latter only splits the former, and does not travel
FIELDS = (ROWS, PLACES, COUNT, SPAN, DIGEST)


@dataclass(frozen=True, eq=False)
class ImageTokens:
    """Where an image's visual tokens lie.

    Attributes:
        layout: in the image.
        places: among the ids that stand for the image: int64 [visual tokens]. Others are tags of tiles, say.
        span: those ids.
        positions: that they take up in the full prompt; fewer than they are with M-RoPE.
    """

    layout: TokenLayout
    places: NDArray[np.int64]
    span: int
    positions: int


@dataclass(frozen=True, eq=False)
class ChosenImage:
    """What is kept of an image.

    Attributes:
        rows: of features, int64, ascending.
        places: of the ids that stay among those that stand for the image, int64, ascending: kept visual tokens and
            all that is no visual token.
        visual: which of all ids are visual tokens, bool [span].
        digest: int64 [2], of the image and of what the stock processor is told: by it the engine keeps features.
    """

    rows: NDArray[np.int64]
    places: NDArray[np.int64]
    visual: NDArray[np.bool_]
    digest: NDArray[np.int64]


def choose_places(tokens: ImageTokens, rows: NDArray[np.int64], digest: NDArray[np.int64]) -> ChosenImage:
    """What is kept of an image of which these rows are."""
    visual = np.zeros(tokens.span, bool)
    visual[tokens.places] = True
    kept = ~visual
    kept[tokens.places[rows]] = True
    return ChosenImage(rows, np.flatnonzero(kept), visual, digest)


def is_pixels(name: str) -> bool:
    """Whether an input of a stock model is large and is wanted on its device: pixels, and masks of them."""
    return name.startswith("pixel")
