"""Sliding windows: they cover everything, leave no seam, and agree with a picture that needs none."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foveate.encoders.windows import blend_windows, fit_shape, place_windows


def unit(x: np.ndarray) -> np.ndarray:
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


@given(cells=st.integers(1, 200), size=st.integers(2, 60))
def test_windows_cover_from_end_to_end_and_overlap_by_half(cells: int, size: int) -> None:
    size = min(size, cells)
    first = place_windows(cells, size, size - size // 2)
    assert first[0] == 0
    assert first[-1] + size == cells
    assert all(0 < b - a <= max(1, (size + 1) // 2) for a, b in pairwise(first))


def test_other_overlaps() -> None:
    assert place_windows(20, 8, 1) == [0, 6, 12]
    assert place_windows(20, 8, 0) == [0, 6, 12]
    assert place_windows(21, 8, 6) == [0, 2, 4, 6, 7, 9, 11, 13]
    assert place_windows(8, 8, 4) == [0]
    assert place_windows(3, 1, 1) == [0, 1, 2]


def test_windows_that_agree_give_what_they_agree_on() -> None:
    truth = unit(np.random.default_rng(0).standard_normal((20, 31, 10)))
    asked = []

    def look(y: int, x: int, h: int, w: int) -> np.ndarray:
        asked.append((h, w))
        return truth[y : y + h, x : x + w]

    out = blend_windows(look, truth, (20, 31), 12)
    assert np.allclose(out, truth, atol=1e-5)
    assert set(asked) == {(12, 12)}


def test_no_seam_shows_between_windows_that_disagree() -> None:
    """Every window has an opinion of its own; with hard borders neighbours would jump from one to another."""
    rng = np.random.default_rng(1)
    flat = unit(np.ones((4, 4, 6)))

    def look(y: int, x: int, h: int, w: int) -> np.ndarray:
        return unit(np.ones((h, w, 6)) + 0.5 * np.random.default_rng(y * 100 + x).standard_normal(6))

    out = blend_windows(look, flat, (40, 40), 16)
    step = np.linalg.norm(np.diff(out, axis=1), axis=-1).max()
    opinions = [look(y, x, 1, 1)[0, 0] for y, x in rng.integers(0, 24, (20, 2))]
    apart = max(float(np.linalg.norm(a - b)) for a in opinions for b in opinions)
    assert step < apart / 4


def test_a_strip_gets_flat_windows() -> None:
    ones = unit(np.ones((2, 16, 3)))
    out = blend_windows(lambda y, x, h, w: ones[:h, :w], unit(np.ones((1, 4, 3))), (2, 50), 16)
    assert np.allclose(out, ones[0, 0])


def test_the_overview_keeps_the_aspect() -> None:
    assert fit_shape((64, 48), 24) == (24, 18)
    assert fit_shape((10, 8), 24) == (10, 8)
    assert fit_shape((1, 400), 24) == (1, 24)
