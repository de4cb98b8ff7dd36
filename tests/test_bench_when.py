"""`python -m benchmarks when`: sizes of language models, images in which there is nothing, options."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import when
from benchmarks.common import PHOTO
from foveate.core.errors import OptionError
from foveate.pipeline import encode, score


def test_sizes_of_language_models() -> None:
    billions = [round(size.parameters / 1e9, 2) for size in when.MODELS]
    assert billions == [0.11, 0.36, 1.31, 6.53]  # without embeddings


def test_cells_of_a_quiet_image_are_shared_and_spread() -> None:
    texture = encode(np.full((128, 128, 3), 128, np.uint8))
    found = [score(texture, text) for text in ("dog", "car")]
    assert not any(relevance.detected for relevance in found)
    assert when._shared(found) == 1
    assert when._spread(found[0]) > 0.9


def test_wrong_options() -> None:
    with pytest.raises(OptionError, match="--models"):
        when.measure(PHOTO, 1, models=9)
    with pytest.raises(OptionError, match="--repeats"):
        when.measure(PHOTO, 0, models=0)
