"""The arithmetic of `python -m benchmarks when`, on costs whose answer is known; its quick tables."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import when
from benchmarks.common import PHOTO, crop_square
from foveate.core.errors import OptionError
from foveate.pipeline import encode, score

COSTS = {"encode": 0.1, "encoder": 0.06, "score_new": 0.001, "features_new": 0.002, "crops": 2.0, "crops_new": 0.001}


def test_totals_and_where_the_texture_is_ahead() -> None:
    table = when.amortise(COSTS)
    texture, crops, kept, encoder, features = table["rows"]
    assert texture["seconds"][0] == pytest.approx(0.101)
    assert crops["seconds"][-1] == pytest.approx(50 * 2.001)
    assert crops["ratios"][0] == pytest.approx(2.001 / 0.101)
    assert kept["seconds"][-1] == pytest.approx(2.05)
    assert [row["cells"][-1] for row in (crops, kept, encoder, features)] == ["1", "1", "2", "41"]
    assert all(len(row["cells"]) == len(table["columns"]) for row in table["rows"])
    never = when.amortise(COSTS | {"features_new": 0.001})["rows"][-1]
    assert never["cells"][-1] == "never"


def test_sizes_of_language_models() -> None:
    billions = [round(size.parameters / 1e9, 2) for size in when.MODELS]
    assert billions == [0.11, 0.36, 1.31, 6.53]  # without embeddings


def test_crops_lie_in_the_image() -> None:
    photograph = crop_square(PHOTO, when.SIDE)
    crops = when._crops(photograph, np.array([0, 63, 4095, 32 * 64 + 32]), 64)
    assert {crop.shape for crop in crops} == {(when.CROP, when.CROP, 3)}
    assert np.array_equal(crops[0], photograph[:64, :64])
    assert np.array_equal(crops[2], photograph[-64:, -64:])
    assert np.array_equal(crops[3], photograph[228:292, 228:292])


def test_cells_of_a_quiet_image_are_shared_and_spread() -> None:
    grey = np.full((when.SIDE, when.SIDE, 3), 128, np.uint8)
    texture = encode(grey)
    found = [score(texture, text) for text in ("dog", "car")]
    assert not any(relevance.detected for relevance in found)
    assert when._shared(found) == 1
    assert when._spread(found[0]) > 0.9


def test_wrong_options() -> None:
    with pytest.raises(OptionError, match="--models"):
        when.measure(PHOTO, 1, models=9)
    with pytest.raises(OptionError, match="--repeats"):
        when.measure(PHOTO, 0, models=0)
