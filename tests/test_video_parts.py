"""Propagation, refresh rules, what a frame inherits, and what is sent again: each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate.allocation import Keep
from foveate.channels.visual import CHANGED, describe_cells
from foveate.core.grid import Grid
from foveate.video.flow import Floats, View, make_view
from foveate.video.propagation import KEPT_PER_FRAME, Field, Layer, blend_layers, find_trust, make_layer, propagate
from foveate.video.refresh import HALO, TILE, Refresh, add_halo, find_stale_parts, measure_cost, weigh_cells
from foveate.video.temporal import Motion, Sent, allocate_steadily, select_changed, smooth_relevance
from tests.video_scenes import no_flow, pan, photo, seen_through

SHAPE = (18, 24)  # cells; views have 8 samples for each
SIZE = (144, 192)
NO = np.zeros(SIZE, bool)


def features(seed: int = 0, rank: int = 5) -> Floats:
    return np.random.default_rng(seed).normal(size=(*SHAPE, rank)).astype(np.float32)


def test_a_patch_moves_with_the_picture_and_keeps_its_numbers() -> None:
    """One cell to the right: what was at x is now at x + 1; the flow points one cell to the left."""
    first = photo(*SIZE)
    step = pan(*SIZE, 0.0, -8.0)
    z, view, residual = features(), make_view(first), np.full(SHAPE, 0.25, np.float32)
    after = make_view(seen_through(first, step))
    layer = propagate(make_layer(z, residual, view), step, NO)
    seen = blend_layers([layer], find_trust([layer], after))
    np.testing.assert_allclose(seen.z[:, 1:], z[:, :-1], atol=1e-5)
    np.testing.assert_allclose(seen.residual, 0.25, atol=1e-6)
    assert seen.confidence[:, 2:].min() > 0.9 * KEPT_PER_FRAME
    assert seen.confidence[:, 0].max() == 0  # came in from outside of the frame that was encoded
    assert layer.age == 1


def test_what_was_covered_on_the_way_stays_unknown() -> None:
    view = make_view(photo(*SIZE))
    gone = NO.copy()
    gone[64:80, 96:112] = True
    layer = propagate(
        propagate(make_layer(features(), np.zeros(SHAPE, np.float32), view), no_flow(SIZE), gone), no_flow(SIZE), NO
    )
    confidence = find_trust([layer], view).confidence
    assert confidence[8:10, 12:14].max() == 0
    assert confidence[8:10, 15:].min() == pytest.approx(KEPT_PER_FRAME**2)


def blended(below: Layer, above: Layer, view: View) -> Field:
    return blend_layers([below, above], find_trust([below, above], view))


def test_a_renewed_part_replaces_what_it_covers_and_nothing_else() -> None:
    view, none = make_view(photo(*SIZE)), np.zeros(SHAPE, np.float32)
    old, new = features(0), features(1)
    cover = none.copy()
    cover[4:10, 6:14] = 1
    cover[4, 6:14] = 0.25  # a soft border mixes by its share
    base = make_layer(old, none, view)
    seen = blended(base, make_layer(new, none, view, cover), view)
    share = cover[..., None]
    np.testing.assert_allclose(seen.z, share * new + (1 - share) * old, atol=1e-5)
    gone = propagate(base, no_flow(SIZE), np.ones(SIZE, bool))
    seen = blended(gone, make_layer(new, none, view, cover), view)
    np.testing.assert_array_equal(seen.confidence, cover)
    half = NO.copy()
    half[:, :96] = True  # where it is no longer believed it uncovers what is below
    seen = blended(base, propagate(make_layer(new, none, view, none + 1), no_flow(SIZE), half), view)
    np.testing.assert_allclose(seen.z[:, :12], old[:, :12], atol=1e-5)
    assert seen.confidence.min() > 0.9


# --- rules ------------------------------------------------------------------------------------------------------------

SURE = np.ones(SHAPE, np.float32)


@pytest.mark.parametrize(
    ("age", "stale", "difference", "changed", "lost", "reason"),
    [
        (3, 0.0, 0.0, 0.0, 0.0, None),
        (11, 0.3, 0.12, 0.12, 0.8, None),
        (12, 0.0, 0.0, 0.0, 0.0, "age"),
        (3, 0.32, 0.0, 0.0, 0.0, "stale"),
        (3, 0.0, 0.13, 0.0, 0.0, "residual"),
        (3, 0.0, 0.0, 0.13, 0.0, "cut"),
        (3, 0.0, 0.0, 0.07, 0.81, "cut"),
        (3, 0.0, 0.0, 0.06, 1.0, None),
        (99, 1.0, 1.0, 1.0, 1.0, "cut"),
        (99, 1.0, 1.0, 0.0, 0.0, "age"),
    ],
)
def test_each_rule_alone(
    age: int, stale: float, difference: float, changed: float, lost: float, reason: str | None
) -> None:
    confidence = SURE.copy()
    confidence.ravel()[: int(stale * confidence.size)] = 0.4
    assert Refresh().find_reason(age, confidence, difference, changed, lost) == reason
    assert Refresh(cut=2).find_reason(1, SURE, 0.0, changed, lost) is None


def test_stale_tiles_are_joined_and_the_most_important_come_first() -> None:
    confidence = np.ones((4 * TILE, 6 * TILE), np.float32)
    confidence[:TILE, :TILE] = 0
    confidence[2 * TILE : 3 * TILE, 3 * TILE : 5 * TILE] = 0.2
    confidence[3 * TILE, 0] = 0  # a single cell is not worth a look
    assert find_stale_parts(confidence) == [(16, 24, 24, 40), (0, 0, 8, 8)]
    weight = np.full(confidence.shape, 0.25, np.float32)
    weight[:TILE, :TILE] = 1
    assert find_stale_parts(confidence, weight)[0] == (0, 0, 8, 8)
    assert find_stale_parts(np.ones((5, 5), np.float32)) == []
    np.testing.assert_allclose(weigh_cells(np.array([[0.0, 0.1, 0.5, 1.0]])), [[0.43, 0.73, 1, 1]], atol=1e-6)
    assert add_halo((8, 8, 16, 16), (36, 64)) == (8 - HALO, 8 - HALO, 16 + HALO, 16 + HALO)
    assert add_halo((0, 60, 8, 64), (36, 64)) == (0, 60 - HALO, 8 + HALO, 64)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 2**31))
def test_parts_lie_in_the_image_and_hold_every_tile_that_is_stale(h: int, w: int, seed: int) -> None:
    confidence = np.random.default_rng(seed).choice([0.0, 1.0], size=(h, w)).astype(np.float32)
    boxes = find_stale_parts(confidence)
    covered = np.zeros((h, w), bool)
    for y0, x0, y1, x1 in boxes:
        assert 0 <= y0 < y1 <= h
        assert 0 <= x0 < x1 <= w
        covered[y0:y1, x0:x1] = True
    for y in range(0, h, TILE):
        for x in range(0, w, TILE):
            tile = (slice(y, y + TILE), slice(x, x + TILE))
            if (confidence[tile] < 0.5).mean() >= 0.5:
                assert covered[tile].all()
    assert measure_cost(boxes, (h, w)) >= covered.mean() * bool(boxes)


# --- what a frame inherits --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texture() -> foveate.Texture:
    return foveate.encode(photo(240, 320), channels="fast")


def _step(texture: foveate.Texture, trust: float = 1.0, dx: float = 0.0) -> Motion:
    h, w = texture.grid.shape
    return Motion(pan(h, w, 0.0, dx), np.full((h, w), trust, np.float32), 0.0)


def test_smoothing_follows_the_motion_and_stops_where_it_cannot(texture: foveate.Texture) -> None:
    before, now = foveate.score(texture, "a child"), foveate.score(texture, "broccoli")
    mixed = smooth_relevance(now, before, _step(texture, dx=-2.0), 0.5)
    np.testing.assert_allclose(mixed.map[:, 2:], 0.5 * now.map[:, 2:] + 0.5 * before.map[:, :-2], atol=1e-5)
    saliency = 0.5 * now.saliency[:, 2:] + 0.5 * before.saliency[:, :-2]
    np.testing.assert_allclose(mixed.saliency[:, 2:], saliency, atol=1e-5)
    np.testing.assert_array_equal(smooth_relevance(now, before, _step(texture, trust=0.0), 0.5).map, now.map)
    np.testing.assert_array_equal(smooth_relevance(now, before, _step(texture), 0.0).map, now.map)
    assert "prior" in mixed.reasons
    assert mixed.query == now.query


def test_a_steady_hand_keeps_what_is_nearly_as_good_and_lets_go_of_what_is_much_worse(texture: foveate.Texture) -> None:
    relevance = foveate.score(texture, "a child")
    noisy = np.random.default_rng(0).normal(0, 0.01, relevance.map.shape).astype(np.float32)
    other = replace(relevance, map=relevance.map + noisy)
    first = foveate.allocate(relevance, 100, policy="topk")
    free, steady = (allocate_steadily(other, before, 0.1, 100, Keep()) for before in (None, first.mask))
    assert len(steady) == len(free) == 100
    assert len(np.setdiff1d(steady.indices, first.indices)) < len(np.setdiff1d(free.indices, first.indices))
    np.testing.assert_array_equal(steady.scores, other.map.ravel()[steady.indices])
    worst = np.zeros(relevance.map.size, bool)
    worst[np.argsort(relevance.map.ravel())[:100]] = True
    steady = allocate_steadily(relevance, worst.reshape(relevance.map.shape), 0.1, 100, Keep())
    np.testing.assert_array_equal(steady.indices, first.indices)


# --- what is sent -----------------------------------------------------------------------------------------------------

GRID = Grid(6, 8, 96, 128)


def sent_of(frames: Sequence[np.ndarray], kept: Sequence[int]) -> list[list[int]]:
    out, state = [], None
    for rgb in frames:
        new, state = select_changed(describe_cells(rgb, GRID), np.array(kept), state)
        out.append(new.tolist())
    return out


def test_a_change_is_sent_once_and_a_slow_one_when_it_has_added_up() -> None:
    """Each step stays below the threshold; compared with the frame before, nothing would ever be sent."""
    first, second = photo(96, 128), photo(96, 128)
    second[16:32, 16:32] = 255 - second[16:32, 16:32]
    assert sent_of([first, first, second, second], [9, 10]) == [[9, 10], [], [9], []]
    frames = [np.full((96, 128, 3), 100 + 3 * i, np.uint8) for i in range(9)]
    assert 3 / 255 < CHANGED < 9 / 255
    assert [len(new) for new in sent_of(frames, [5])] == [1, 0, 0, 1, 0, 0, 1, 0, 0]
    small = Sent(np.zeros((2, 2, 48), np.uint8), np.ones((2, 2), bool))  # another grid begins anew
    assert select_changed(describe_cells(first, GRID), np.array([0, 1]), small)[0].tolist() == [0, 1]
