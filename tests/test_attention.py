"""Gaze, attention and the dialogue so far: literal twins of the formulas, known scenes, and every refusal."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from foveate.channels.attention import DEGREE, accumulate, make_attention_plane, make_gaze_plane
from foveate.core.errors import OptionError
from foveate.core.grid import Grid, resize_map

WIDE = Grid(6, 9, height=200, width=300)
SQUARE = Grid(8, 8, height=512, width=512)


def literal_gaze(fixations: np.ndarray, grid: Grid, sigma: float) -> np.ndarray:
    """The formula, cell by cell and fixation by fixation."""

    def share(low: float, high: float, centre: float) -> float:
        return 0.5 * sum(s * math.erf((at - centre) / (sigma * math.sqrt(2))) for s, at in ((1, high), (-1, low)))

    out = np.zeros(grid.shape)
    tall, wide = grid.height / grid.h, grid.width / grid.w
    for i, j in np.ndindex(grid.shape):
        for y, x, duration in fixations:
            out[i, j] += duration * share(i * tall, (i + 1) * tall, y) * share(j * wide, (j + 1) * wide, x)
    return out / out.max() if out.max() > 0 else out


@st.composite
def looks(draw: st.DrawFn) -> tuple[np.ndarray, Grid, float]:
    height, width = draw(st.integers(1, 400)), draw(st.integers(1, 400))
    grid = Grid(draw(st.integers(1, 9)), draw(st.integers(1, 9)), height, width)
    share = st.floats(0, 1)
    duration = st.just(0.0) | st.floats(1e-6, 5)  # shorter ones vanish in the product of the formula
    rows = draw(st.lists(st.tuples(share, share, duration), max_size=5))
    fixations = np.array([(y * height, x * width, d) for y, x, d in rows]).reshape(-1, 3)
    return fixations, grid, draw(st.floats(0.5, 200))


@given(looks())
def test_gaze_is_its_formula(case: tuple[np.ndarray, Grid, float]) -> None:
    fixations, grid, sigma = case
    plane = make_gaze_plane(fixations, grid, sigma=sigma)
    assert plane.dtype == np.float32
    assert plane.shape == grid.shape
    assert plane.min() >= 0
    assert plane.max() == (1 if (fixations[:, 2] > 0).any() else 0)
    assert np.allclose(plane, literal_gaze(fixations, grid, sigma), atol=1e-5)


def test_a_fixation_lights_the_cell_it_is_in_however_small_its_sigma() -> None:
    for index, centre in enumerate(WIDE.centres()):
        assert make_gaze_plane([(*centre, 0.2)], WIDE).argmax() == index
    expected = np.zeros(WIDE.shape)
    expected[0, 0], expected[4, 7] = 0.5, 1
    assert np.allclose(make_gaze_plane([(10, 10, 1), (150, 250, 2)], WIDE, sigma=0.01), expected)
    for nothing in ([], np.empty((0, 3)), [(5, 5, 0)]):
        assert not make_gaze_plane(nothing, WIDE).any()


def test_only_ratios_of_durations_count_and_one_degree_is_the_default() -> None:
    fixations = np.array([(20, 30, 0.2), (100, 280, 0.7)])
    plane = make_gaze_plane(fixations, WIDE)
    assert np.allclose(plane, make_gaze_plane(fixations * (1, 1, 1e300), WIDE))
    assert np.array_equal(plane, make_gaze_plane(fixations, WIDE, sigma=DEGREE * math.hypot(200, 300)))
    assert plane[0, 0] < plane[3, 8] == 1


# --- attention --------------------------------------------------------------------------------------------------------


@given(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.integers(0, 99)
)
def test_attention_is_the_mean_over_all_but_the_tokens(
    layers: int, heads: int, queries: int, h: int, w: int, seed: int
) -> None:
    weights = np.random.default_rng(seed).dirichlet(np.ones(h * w), (layers, heads, queries))
    total = np.zeros((h, w))
    for layer, head, query, token in np.ndindex(weights.shape):
        total[token // w, token % w] += weights[layer, head, query, token]
    grid = Grid(h, w, 37 * h, 20 * w)
    expected = total / total.max()
    assert np.allclose(make_attention_plane(weights, grid), expected, atol=1e-6)
    few = make_attention_plane(weights[:, :, :1], grid, layers=[-1])
    assert np.allclose(few, make_attention_plane(weights[-1, :, 0], grid, tokens_grid=(h, w)), atol=1e-6)


def test_it_moves_to_the_textures_grid_as_every_map_does() -> None:
    tokens = np.random.default_rng(0).random((4, 6))
    plane = make_attention_plane(tokens.ravel(), Grid(12, 18, 400, 600), tokens_grid=(4, 6))
    moved = resize_map(tokens, (12, 18))
    assert np.allclose(plane, moved / moved.max(), atol=1e-6)
    assert plane.max() == 1
    coarse = make_attention_plane(tokens, Grid(2, 3, 400, 600), tokens_grid=(4, 6))
    means = tokens.reshape(2, 2, 3, 2).mean((1, 3))
    assert np.allclose(coarse, means / means.max(), atol=1e-6)


def test_the_token_grid_is_the_textures_own_or_given() -> None:
    hot = np.eye(64)[17]  # row 2, column 1 of 8 x 8
    for weights in (hot, hot.reshape(8, 8), np.tile(hot, (16, 1)), np.tile(hot, (2, 3, 5, 1))):
        assert make_attention_plane(weights, SQUARE).argmax() == 17
    for weights in (np.ones(600), np.ones((16, 16)), np.ones((2, 2, 2, 577))):
        with pytest.raises(OptionError, match=r"shape .* over a texture of 8 x 8 cells") as caught:
            make_attention_plane(weights, SQUARE)
        assert "tokens_grid" in str(caught.value)
    by_heads = np.tile(np.eye(16)[3], (16, 1))
    assert make_attention_plane(by_heads, SQUARE, tokens_grid=(4, 4))[0, 7] == 1
    assert make_attention_plane(by_heads, SQUARE, tokens_grid=(16, 16)).any()  # a map
    plane = make_attention_plane(np.eye(24)[23], SQUARE, tokens_grid=(2, 12))
    assert plane[7, 7] == 1
    assert plane[0].max() == 0
    for given_grid in ((4, 5), (24, 24)):
        with pytest.raises(OptionError, match=r"shape \[24\] with tokens_grid"):
            make_attention_plane(np.eye(24)[23], SQUARE, tokens_grid=given_grid)
    for wrong in ((0, 24), (4.0, 6.0), 24, (2, 3, 4), (True, 24)):
        with pytest.raises(OptionError, match="tokens_grid="):
            make_attention_plane(np.eye(24)[23], SQUARE, tokens_grid=wrong)  # type: ignore[arg-type]


def test_even_attention_and_none() -> None:
    assert np.allclose(make_attention_plane(np.full(64, 1 / 64), SQUARE), 1)
    assert not make_attention_plane(np.zeros(64), SQUARE).any()


def test_low_precision_is_summed_in_high() -> None:
    weights = np.full((40, 40, 5, 64), 1e-4, np.float16)
    weights[..., 9] = 2e-4
    plane = make_attention_plane(weights, SQUARE)
    assert plane.argmax() == 9
    assert plane[0, 0] == pytest.approx(0.5, abs=0.01)
    assert np.array_equal(plane, make_attention_plane(torch.from_numpy(weights), SQUARE))
    with pytest.raises(OptionError, match="detach"):
        make_attention_plane(torch.ones(64, dtype=torch.bfloat16), SQUARE)


def test_sinks_are_taken_out_on_demand_and_objects_are_not() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.uniform(0.5, 1.0, (16, 16))
    tokens[3:6, 8:12] += 8  # what the model looks at
    clean = make_attention_plane(tokens, SQUARE, tokens_grid=(16, 16))
    spoilt = tokens.copy()
    spoilt[0, 0] = spoilt[12, 5] = 400
    kept = make_attention_plane(spoilt, SQUARE, tokens_grid=(16, 16))
    assert kept[0, 0] > 0.9
    healed = make_attention_plane(spoilt, SQUARE, tokens_grid=(16, 16), drop_sinks=True)
    assert np.abs(healed - clean).max() < 0.05
    assert np.array_equal(make_attention_plane(tokens, SQUARE, tokens_grid=(16, 16), drop_sinks=True), clean)


def test_no_more_than_a_few_sinks_and_the_heaviest_first() -> None:
    tokens = np.zeros((8, 8))
    tokens[1, 1], tokens[6, 6] = 5, 7  # 2 % of 64 is one
    assert make_attention_plane(tokens, SQUARE, drop_sinks=True).argmax() == 9
    tokens[6, 6] = 5
    assert make_attention_plane(tokens, SQUARE, drop_sinks=True).argmax() == 54  # of two alike, the first goes
    assert make_attention_plane([3.0], Grid(1, 1, 9, 9), drop_sinks=True)[0, 0] == 1


# --- the dialogue so far ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10), min_size=1, max_size=6), st.floats(0, 1))
def test_turns_of_the_dialogue_fade(turns: list[int], decay: float) -> None:
    plane = np.zeros((2, 3), np.float32)
    maps = [np.random.default_rng(seed).random((2, 3)) for seed in turns]
    for now in maps:
        plane = accumulate(plane, now, decay)
        assert plane.dtype == np.float32
        assert plane.min() >= 0
        assert plane.max() <= 1
    n = len(maps)
    literal = np.max([decay ** (n - 1 - i) * now for i, now in enumerate(maps)], 0)
    assert np.allclose(plane, literal, atol=1e-5)
