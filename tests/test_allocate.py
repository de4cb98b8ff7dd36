"""Exactly K, whatever the map: every policy with every floor, whole windows, and a budget from the map."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import foveate
from foveate import Grid, Texture
from foveate.allocation.allocation import allocate_map, budget_of_mass, even_order, nearest_budget
from foveate.allocation.policies import (
    DPP,
    POLICIES,
    SHORT,
    Coverage,
    MaxMin,
    Policy,
    Proportional,
    TopK,
    apportion,
    top_cells,
    typical_distance,
)  # fmt: skip
from foveate.allocation.windows import cut_windows
from foveate.allocation.worth import (
    LEAST,
    OF_LOOKS,
    alike_on,
    find_alike,
    look_rows,
    mix_of,
    quality,
    unlike,
    worth_keeping,
    worth_of_all,
)
from foveate.core.errors import BudgetError, OptionError
from foveate.core.grid import resize_map
from foveate.texture.cache import texture_nbytes

VALUES = st.sampled_from([0, 0.25, 0.5, 1])  # few, so that ties are the rule
maps = hnp.arrays(np.float32, st.tuples(st.integers(1, 10), st.integers(1, 10)), elements=VALUES)
policies = st.sampled_from(
    [TopK(), Coverage(), Coverage(0.0), Coverage(1), Proportional(), Proportional(3), DPP(), MaxMin()]
)
FLAT = Grid(8, 8, 64, 64)


def grid_of(plane: np.ndarray) -> Grid:
    h, w = plane.shape
    return Grid(h, w, height=h * 8, width=w * 8)


def features_of(plane: np.ndarray, seed: int = 0) -> np.ndarray:
    """On a coarse lattice, so that copies and equal distances are common."""
    return np.random.default_rng(seed).integers(0, 3, (plane.size, 3)).astype(np.float32)


# --- exactly K ----------------------------------------------------------------------------------------------------


@given(maps, st.data())
def test_top_cells_equal_a_stable_sort_and_a_larger_budget_keeps_them(plane: np.ndarray, data: st.DataObject) -> None:
    scores = plane.ravel().copy()
    budget = data.draw(st.integers(0, len(scores)))
    scores[data.draw(st.integers(0, len(scores) - 1))] = data.draw(st.sampled_from([np.inf, 1, -np.inf]))
    by_score_then_index = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    assert top_cells(scores, budget).tolist() == sorted(by_score_then_index[:budget])
    small = data.draw(st.integers(1, plane.size))
    large = data.draw(st.integers(small, plane.size))
    grid = grid_of(plane)
    assert set(allocate_map(plane, grid, small).indices) <= set(allocate_map(plane, grid, large).indices)


@pytest.mark.parametrize("window", [None, (2, 2)])
def test_a_kept_cell_says_whether_its_score_kept_it(window: tuple[int, int] | None) -> None:
    plane = np.zeros((8, 8), np.float32)
    plane[:2] = 1
    protected = np.zeros((8, 8), bool)
    protected[6, 6] = True
    grid = grid_of(plane)
    kept = allocate_map(plane, grid, 16, floor=0.5, protected=protected, window=window)
    guarded, even = (kept.reasons[name] for name in ("protected", "floor"))
    where = kept.indices[guarded > 0]
    assert 6 * 8 + 6 in where
    assert len(where) == (1 if window is None else 4)
    assert not (guarded * even).any()
    assert 4 <= even.sum() <= 8
    assert kept.mask[4:].sum() >= 3
    ordinary = (guarded == 0) & (even == 0)
    assert (kept.scores[ordinary] == 1).all()
    assert kept.why(int(np.flatnonzero(even)[0]))["floor"] == 1
    assert set(allocate_map(plane, grid, 16, floor=0.5).reasons) == {"floor"}
    best = allocate_map(plane, grid, 16)
    assert best.mask[:2].all()
    assert set(best.reasons) == set()
    assert guarded.flags.writeable is False


@pytest.mark.parametrize("shape", [(64, 64), (64, 48), (23, 17), (43, 64), (7, 5), (1, 40)])
def test_the_even_spread_is_even_and_not_at_one_border(shape: tuple[int, int]) -> None:
    h, w = shape
    order = even_order(h, w)
    assert sorted(order.tolist()) == list(range(h * w))
    for number in (16, 64, 137, 273):
        if number <= h * w / 2:
            y, x = np.divmod(order[:number], w)
            assert abs((y + 0.5).mean() / h - 0.5) < 0.1
            assert abs((x + 0.5).mean() / w - 0.5) < 0.1
            quarters = np.bincount(2 * (2 * y // h) + 2 * x // w, minlength=4)
            assert quarters.max() <= 2 * quarters.min() + 1 or min(shape) < 40


# --- the slow, literal twins ------------------------------------------------------------------------------------------


def slow_coverage(scores: np.ndarray, budget: int, features: np.ndarray, diversity: float) -> list[int]:
    """The formula of allocation/policies.py, one cell and one distance at a time."""
    kept = [i for i, s in enumerate(scores) if s == np.inf]
    free = [i for i, s in enumerate(scores) if np.isfinite(s)]
    rest = budget - len(kept)
    by_score = sorted(free, key=lambda i: (-scores[i], i))
    if not 0 < rest < len(free):
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        return sorted(order[:budget])
    low, high = float(scores[free].min()), float(scores[free].max())
    candidates = by_score[: SHORT * rest]
    scale = typical_distance(features)
    points = features * np.float32(1 / scale) if scale > 0 else features * 0

    def gain(i: int) -> np.float32:
        relevance = np.float32(1) if high == low else np.float32((float(scores[i]) - low) / (high - low))
        far = np.float32(1)
        for j in kept:
            total = np.float32(0)
            for a, b in zip(points[i], points[j], strict=True):
                total += (a - b) * (a - b)
            far = min(far, np.sqrt(total))
        return far * np.float32(diversity) + relevance * np.float32(1 - diversity)

    for _ in range(rest):
        best = candidates[int(np.argmax([gain(i) for i in candidates]))]
        candidates.remove(best)
        kept.append(best)
    return sorted(kept)


def slow_proportional(scores: np.ndarray, budget: int, grid: Grid, window: int) -> list[int]:
    """Window by window: its share, then its best cells. Finite scores >= 0 only."""
    spans = [range(0, n, window) for n in grid.shape]
    windows = [
        [y * grid.w + x for y in range(top, min(top + window, grid.h)) for x in range(left, min(left + window, grid.w))]
        for top, left in itertools.product(*spans)
    ]
    share = apportion([float(scores[w].sum()) for w in windows], budget, upper=[len(w) for w in windows])
    best = [sorted(w, key=lambda i: (-scores[i], i))[:n] for w, n in zip(windows, share, strict=True)]
    return sorted(itertools.chain(*best))


@settings(max_examples=60)
@given(maps, st.data(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 5))
def test_coverage_equals_its_literal_twin(plane: np.ndarray, data: st.DataObject, diversity: float, seed: int) -> None:
    budget = data.draw(st.integers(1, min(plane.size, 25)))
    scores, features = plane.ravel().copy(), features_of(plane, seed)
    for value in (np.inf, -np.inf):
        scores[data.draw(st.lists(st.integers(0, plane.size - 1), max_size=3))] = value
    kept = Coverage(diversity).select(scores, budget, grid_of(plane), features)
    assert kept.tolist() == slow_coverage(scores, budget, features, diversity)


@given(maps, st.data(), st.integers(1, 11))
def test_proportional_equals_its_literal_twin(plane: np.ndarray, data: st.DataObject, window: int) -> None:
    budget = data.draw(st.integers(1, plane.size))
    kept = Proportional(window).select(plane.ravel(), budget, grid_of(plane), None)
    assert kept.tolist() == slow_proportional(plane.ravel(), budget, grid_of(plane), window)


# --- what each policy promises ----------------------------------------------------------------------------------------


def test_coverage_takes_one_of_each_kind_before_a_second_of_any() -> None:
    scores, kinds = np.linspace(1, 0.9, 12, dtype=np.float32), np.arange(12) // 4
    features = np.eye(3, dtype=np.float32)[kinds]
    assert Coverage(1).select(scores, 4, Grid(3, 4, 30, 40), features).tolist() == [0, 1, 4, 8]
    scores[4] = np.inf  # kept anyway: its kind is there, whatever comes next
    assert Coverage(1).select(scores, 4, Grid(3, 4, 30, 40), features).tolist() == [0, 1, 4, 8]
    scores[5] = np.inf
    assert Coverage(1).select(scores, 5, Grid(3, 4, 30, 40), features).tolist() == [0, 1, 4, 5, 8]


def test_proportional_gives_each_window_its_share() -> None:
    plane = np.zeros((8, 16), np.float32)
    plane[:, :8], plane[:, 8:] = 0.75, 0.25
    kept = allocate_map(plane, grid_of(plane), 16, policy=Proportional(8)).mask
    assert (kept[:, :8].sum(), kept[:, 8:].sum()) == (12, 4)
    full = allocate_map(plane, grid_of(plane), 100, policy=Proportional(8)).mask
    assert (full[:, :8].sum(), full[:, 8:].sum()) == (64, 36)  # three quarters would be more than it has
    plane[:, :8], plane[:, 8:] = -3, -1  # the lowest is moved up to 0
    assert allocate_map(plane, grid_of(plane), 16, policy=Proportional(8)).mask[:, 8:].sum() == 16


@given(maps, policies, st.data(), st.sampled_from([0.0, 0.3, 1.0]), st.booleans(), st.booleans())
def test_everything_composes_to_exactly_k(
    plane: np.ndarray, policy: Policy, data: st.DataObject, floor: float, with_windows: bool, with_masks: bool
) -> None:
    grid, masks = grid_of(plane), hnp.arrays(bool, plane.shape)
    whole = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4))) if with_windows else None
    budget = nearest_budget(data.draw(st.integers(1, plane.size)), grid, whole)
    eligible, protected = (data.draw(masks), data.draw(masks)) if with_masks else (None, None)
    given_all: dict[str, Any] = {"floor": floor, "eligible": eligible, "protected": protected, "window": whole}
    try:
        kept = allocate_map(plane, grid, budget, policy=policy, features=features_of(plane), **given_all)
    except BudgetError as error:  # nothing protected is ever cut
        assert "protected" in error.received  # noqa: PT017 - which error
        assert whole is not None or (protected & eligible).sum() > budget  # type: ignore[operator]
        return
    assert len(kept) == budget == kept.mask.sum() == kept.budgets.sum()
    assert (np.diff(kept.indices) > 0).all()
    assert kept.indices.dtype == np.int64
    assert np.array_equal(np.flatnonzero(kept.mask), kept.indices)
    assert np.array_equal(kept.scores, plane.ravel()[kept.indices])
    if whole is not None:
        windows = cut_windows(grid, whole)
        held = np.bincount(windows.of_cell[kept.indices], minlength=len(windows.sizes))
        assert ((held == 0) | (held == windows.sizes)).all()
    elif eligible is not None:
        assert (kept.mask & eligible).sum() == min(budget, eligible.sum())
    if eligible is not None and protected is not None:
        assert kept.mask[protected & eligible].all()


@given(maps.filter(lambda plane: plane.size <= 36), st.data())
def test_the_best_whole_windows_are_the_best_of_all_sets_of_windows(plane: np.ndarray, data: st.DataObject) -> None:
    grid, whole = grid_of(plane), data.draw(st.sampled_from([(2, 2), (2, 3), (3, 2), (3, 4)]))
    windows = cut_windows(grid, whole)
    sums = np.bincount(windows.of_cell, plane.ravel())
    sets = [np.array(chosen) for chosen in itertools.product([0, 1], repeat=len(sums))] if len(sums) <= 9 else []
    for budget in range(1, plane.size + 1):
        possible = [float(chosen @ sums) for chosen in sets if chosen @ windows.sizes == budget]
        if possible:
            kept = allocate_map(plane, grid, budget, window=whole)
            assert kept.scores.sum() == pytest.approx(max(possible), abs=1e-5)
        elif sets:
            with pytest.raises(BudgetError, match=f"budget={budget} in whole windows"):
                allocate_map(plane, grid, budget, window=whole)


def test_a_budget_between_windows_names_the_nearest_that_can_be() -> None:
    with pytest.raises(BudgetError, match="273") as caught:
        allocate_map(np.zeros((64, 64)), Grid(64, 64, 512, 512), 273, window=(2, 2))
    assert "272 or 276" in caught.value.fix
    with pytest.raises(BudgetError) as caught:
        allocate_map(np.zeros((8, 8)), FLAT, 3, window=(2, 2))
    assert caught.value.fix == "pass 4"
    assert nearest_budget(273, Grid(64, 64, 512, 512), (2, 2)) == 272
    assert nearest_budget(2, FLAT, (2, 2)) == 4
    assert len(allocate_map(np.zeros((64, 63)), Grid(64, 63, 512, 504), 274, window=(2, 2))) == 274  # edges have 2
    plane = np.zeros((4, 5), np.float32)
    plane[:, 4] = 1
    assert allocate_map(plane, grid_of(plane), 4, window=(2, 2)).mask[:, 4].all()  # for their own scores


def test_protected_cells_come_first_also_in_windows() -> None:
    plane, text = np.zeros((8, 8), np.float32), np.zeros((8, 8), bool)
    plane[:4], text[6, 1] = 1, True
    for policy in (TopK(), Proportional()):
        assert allocate_map(plane, FLAT, 8, policy=policy, protected=text).mask[6, 1]
        assert allocate_map(plane, FLAT, 8, policy=policy, protected=text, window=(2, 2)).mask[6:, :2].all()
    assert allocate_map(plane, FLAT, 1, protected=text, floor=1).indices.tolist() == [49]
    endless = allocate_map(np.full((8, 8), np.inf), FLAT, 2, protected=text)
    assert endless.indices.tolist() == [0, 49]
    assert np.isinf(endless.scores).all()
    assert len(allocate_map(plane, FLAT, np.int32(5))) == 5  # type: ignore[arg-type]  # a whole number like any other


def test_more_protected_cells_than_budget_are_an_error(texture: Texture) -> None:
    text = np.zeros((8, 8), bool)
    text[0, :6] = True
    with pytest.raises(BudgetError, match="6 protected cells, with budget=5") as caught:
        allocate_map(np.zeros((8, 8)), FLAT, 5, protected=text)
    assert "budget=6" in caught.value.fix
    with pytest.raises(BudgetError, match="12 cells in windows with a protected one") as caught:
        allocate_map(np.zeros((8, 8)), FLAT, 8, protected=text, window=(2, 2))
    assert "budget=12" in caught.value.fix
    page = np.ones(texture.grid.shape, bool)
    with pytest.raises(BudgetError, match="3072 protected cells"):
        foveate.allocate(foveate.score(texture, "broccoli"), 273, protected=page)
    assert len(foveate.allocate(foveate.score(texture, "broccoli"), "auto", protected=page)) == 3072


# --- the default: worth -----------------------------------------------------------------------------------------------


@given(maps, st.integers(0, 99))
def test_being_unlike_equals_its_literal_twin(plane: np.ndarray, seed: int) -> None:
    """The distance to the nearest cell of a higher q, of equal ones of a lower number; 1 where there is none."""
    rows = features_of(plane, seed)
    q, alike = plane.ravel(), find_alike(rows)
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
    mean = np.sqrt((apart**2).mean())
    for i, u in enumerate(unlike(q, alike, power=1)):
        higher = [j for j in alike.near[:, i].tolist() if (q[j], -j) > (q[i], -i)]
        nearest = min((apart[i, j] for j in higher), default=np.inf) / mean if mean else float(not higher)
        assert u == pytest.approx(np.clip(nearest, LEAST, 1), abs=1e-3)
        many = alike.near.shape[0]
        nearest_first = sorted(apart[i])  # itself is among them
        assert sorted(apart[i, alike.near[:, i]]) == pytest.approx(nearest_first[:many], abs=1e-3)


@pytest.mark.parametrize("query", ["broccoli", "what is left of the child?", "what is in the picture?", "a violin"])
def test_a_smaller_choice_is_the_beginning_of_a_larger_one(texture: Texture, query: str) -> None:
    relevance = foveate.score(texture, query)
    for on in (relevance, relevance.on((24, 18)), relevance.on((7, 5))):
        assert texture_nbytes(texture) >= texture.nbytes + alike_on(texture, on.grid).nbytes  # caches count it
        kept: set[int] = set()
        for budget in (1, 2, 5, 16, 35):
            found = foveate.allocate(on, budget)
            assert (len(found), kept <= set(found.indices)) == (budget, True)
            kept = set(found.indices.tolist())


def test_of_cells_that_look_alike_the_most_relevant_is_kept_and_context_is_said(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    default, best = (foveate.allocate(relevance, 200, policy=policy) for policy in (None, TopK()))
    on_it, kinds = relevance.map.ravel()[default.indices] > 0.5, np.array(default.kinds)
    assert on_it[kinds == "asked"].mean() > 0.8
    assert not on_it[kinds == "context"].any()
    assert "given" not in best.kinds  # a policy's cells, too, say what they are for
    assert best.kinds.count("asked") >= default.kinds.count("asked")
    looks = look_rows(texture, texture.grid.shape, None)
    spread = [np.linalg.norm(looks[k.indices] - looks[k.indices].mean(0), axis=1).mean() for k in (default, best)]
    assert spread[0] > spread[1]
    everything = foveate.allocate(foveate.score(texture, "what is in the picture?"), 200)
    assert everything.kinds.count("context") > 100
    assert default.why(0)["kept as"] == default.kinds[0]


def test_why_cells_were_kept_is_found_once_it_is_asked(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    kept = foveate.allocate(relevance, 64)
    again = pickle.loads(pickle.dumps(kept))
    mix = mix_of(relevance)
    q = relevance.map * np.float32(mix.question)
    asked = q / (q + relevance.saliency * np.float32(mix.stands_out) + np.float32(mix.even))
    for reasons in (kept.reasons, again.reasons):
        assert [*reasons] == ["participation", "segment", "asked"]
        np.testing.assert_array_equal(reasons["segment"], relevance.reasons["segment"].ravel()[kept.indices])
        np.testing.assert_allclose(reasons["asked"], asked.ravel()[kept.indices], rtol=1e-6)
        assert not any(values.flags.writeable for values in reasons.values())
    assert kept.reasons["asked"] is kept.reasons["asked"]
    with pytest.raises(AttributeError, match="other"):
        kept.reasons.other  # type: ignore[attr-defined]  # noqa: B018


def test_what_is_faint_everywhere_is_left_to_the_context(texture: Texture) -> None:
    found = foveate.score(texture, "broccoli")
    faint = replace(found, map=found.map * np.float32(1e-4))
    assert foveate.allocate(faint, 100).kinds.count("context") == 100


def test_a_large_grid_is_compared_in_blocks_and_one_that_is_given_rows_by_them(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    fine = replace(relevance.on((97, 101)), texture=None)  # 33 x 34 blocks of 3 x 3 cells
    assert fine.features is not None
    assert len(foveate.allocate(fine, 500)) == 500
    q = quality(fine, mix_of(fine))
    block = np.add.outer(np.arange(97) // 3 * 34, np.arange(101) // 3)
    best = np.array([q[block == place].max() for place in range(33 * 34)])
    alike = find_alike(resize_map(fine.features, (33, 34)).reshape(33 * 34, -1), OF_LOOKS)
    u = unlike(best, alike, power=1)
    expected = np.where(q == best[block], u[block], np.minimum(u, alike.apart[0])[block])
    np.testing.assert_array_equal(worth_keeping(fine), q * expected)
    whole = relevance.on((20, 16))
    (alone,) = worth_of_all([whole], find_alike(look_rows(texture, (20, 16), None), OF_LOOKS))
    np.testing.assert_array_equal(alone, worth_keeping(whole))
    bare = replace(whole, texture=None, features=None)
    np.testing.assert_array_equal(worth_keeping(bare), quality(bare, mix_of(bare)))


def test_a_flat_map_of_a_flat_image_is_an_even_spread_on_every_grid() -> None:
    flat = foveate.score(foveate.encode(np.full((448, 448, 3), 128, np.uint8)), "a dog")
    looks = np.random.default_rng(0).random((512, 4)).astype(np.float32)  # they differ where the picture is padded
    for worth in worth_of_all([flat.on((16, 16))] * 2, find_alike(looks)):
        assert np.ptp(worth) == 0


def test_writing_on_one_of_several_grids_is_kept_as_writing(texture: Texture) -> None:
    found = foveate.score(texture, "broccoli").on((16, 16))
    faint, read = replace(found, map=found.map * np.float32(0.5)), replace(found, asks="writing")
    rows = find_alike(np.ones((512, 2), np.float32))
    np.testing.assert_array_equal(worth_of_all([faint, read], rows)[1], worth_keeping(read))
    np.testing.assert_array_equal(worth_of_all([read, faint], rows)[0], worth_keeping(read))


def test_a_policy_has_a_name(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli").on((12, 9))
    for name, policy in POLICIES.items():
        by_name = foveate.allocate(relevance, 20, policy=name)
        np.testing.assert_array_equal(by_name.indices, foveate.allocate(relevance, 20, policy=policy).indices)
    with pytest.raises(OptionError, match="policy"):
        foveate.allocate(relevance, 20, policy="best")  # type: ignore[call-overload]


# --- the main path ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [TopK(), Coverage(), Proportional()])
def test_the_main_path_takes_policies_windows_and_protected_cells(texture: Texture, policy: Policy) -> None:
    relevance, text = foveate.score(texture, "broccoli"), np.zeros(texture.grid.shape, bool)
    text[0, :5] = True
    kept = foveate.allocate(relevance, 200, policy=policy, protected=text)
    assert len(kept) == 200
    assert kept.mask[0, :5].all()
    assert foveate.allocate(relevance, policy=policy, window=(2, 2)).mask.reshape(32, 2, 24, 2).sum((1, 3)).max() == 4
    several = foveate.allocate(foveate.score(texture, ["broccoli", "a child"]), 200, policy=policy, protected=text)
    assert np.array_equal(several[0].indices, kept.indices)


def test_policies_follow_the_map_to_another_grid(texture: Texture) -> None:
    for h, w in ((17, 30), (70, 60), (16, 12)):
        moved = foveate.score(texture, "broccoli").on(Grid(h, w, texture.grid.height, texture.grid.width))
        assert moved.features is not None
        assert moved.features.shape == (h, w, texture.basis.rank)
        assert not moved.features.flags.writeable
        assert len(foveate.allocate(moved, 20, policy=Coverage())) == 20
        if h == 16:  # means over whole blocks keep the mean
            assert np.allclose(moved.features.mean((0, 1)), texture.coordinates().mean(0), atol=1e-5)


# --- a budget from the map --------------------------------------------------------------------------------------------

unit_maps = hnp.arrays(np.float32, (6, 7), elements=st.floats(0, 1, width=32))


@given(unit_maps, unit_maps, st.integers(1, 42), st.integers(1, 42))
def test_a_map_that_is_nowhere_lower_gets_no_smaller_budget(a: np.ndarray, b: np.ndarray, k: int, m: int) -> None:
    lower, upper = min(k, m), max(k, m)
    small, large = budget_of_mass(a, lower, upper), budget_of_mass(np.maximum(a, b), lower, upper)
    assert lower <= small <= large <= upper


def test_auto_keeps_more_of_what_fills_the_image_or_is_not_found(texture: Texture) -> None:
    small, large = (foveate.score(texture, text) for text in ("broccoli", "a child"))
    cells = texture.grid.count
    assert small.detected
    assert large.detected
    assert cells / 64 <= len(foveate.allocate(small, "auto")) < len(foveate.allocate(large, "auto")) <= cells / 4
    assert len(foveate.allocate(large, "auto", window=(2, 2))) % 4 == 0
    sky = foveate.score(texture, "what colour is the sky?")
    assert not sky.detected
    assert len(foveate.allocate(sky, "auto")) > 273
    found = foveate.score(texture, "broccoli")
    less_sure = [len(foveate.allocate(replace(found, confidence=c), "auto")) for c in (0.9, 0.5, 0.499, 0.2, 0.0)]
    assert less_sure == sorted(less_sure)
    assert less_sure[0] == less_sure[1] >= less_sure[2] - 2
    assert less_sure[-1] == texture.grid.count // 4


# --- shares -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12), st.data())
def test_shares_add_up_within_bounds_and_near_the_proportion(
    parts: list[tuple[float, int, int]], data: st.DataObject
) -> None:
    weights, low, more = (np.array(column) for column in zip(*parts, strict=True))
    total = data.draw(st.integers(int(low.sum()), int((low + more).sum())))
    share = apportion(weights, total, low, low + more)
    assert share.sum() == total
    assert (share >= low).all()
    assert (share <= low + more).all()
    inner = (share > low + 1) & (share < low + more - 1) & (weights > 1e-3)
    if inner.sum() > 1:  # one constant for all whose bounds do not hold them
        assert max((share[inner] - 1) / weights[inner]) <= min((share[inner] + 1) / weights[inner]) * (1 + 1e-6)


def test_shares_by_hand() -> None:
    assert apportion([1, 1, 1], 5).tolist() == [2, 2, 1]
    assert apportion([0, 0], 3).tolist() == [2, 1]
    assert apportion([9, 0, 0], 5, upper=3).tolist() == [3, 1, 1]
    with pytest.raises(BudgetError, match="a total of 7 for 2 parts"):
        apportion([1, 1], 7, upper=3)
    for wrong in (-1, np.nan, np.inf):
        with pytest.raises(OptionError, match="weights"):
            apportion([1, wrong], 3)


# --- wrong input ------------------------------------------------------------------------------------------------------


class Wrong:
    """A policy that says whatever it was told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def select(self, scores: np.ndarray, budget: int, grid: Grid, features: np.ndarray | None) -> Any:
        return self.answer


def test_what_cannot_be_allocated() -> None:
    for budget in [0, -3, 65, 10**9, 2.0, "3", None, True, float("nan")]:
        with pytest.raises(BudgetError, match="budget=") as caught:
            allocate_map(np.zeros((8, 8)), FLAT, budget)  # type: ignore[arg-type]
        assert "64" in caught.value.expected
        assert '"auto"' in caught.value.fix
    with pytest.raises(OptionError, match=r"\[4, 8\]"):
        allocate_map(np.zeros((4, 8)), FLAT, 3)
    with pytest.raises(OptionError, match="NaN"):
        allocate_map(np.full((8, 8), np.nan), FLAT, 3)


def with_floor(floor: Any) -> Any:
    return allocate_map(np.zeros((8, 8)), FLAT, 3, floor=floor)


@pytest.mark.parametrize("make", [Coverage, Proportional, with_floor])
@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), "much", True])
def test_numbers_that_cannot_be(make: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"(diversity|window|floor)="):
        make(wrong)


@pytest.mark.parametrize(
    ("given_all", "words"),
    [
        ({"policy": "top"}, "policy='top'"),
        ({"policy": TopK}, "policy="),
        ({"policy": Coverage()}, "without features"),
        ({"policy": Wrong([0.0, 1, 2])}, "from Wrong.select"),
        ({"policy": Wrong([0, 1])}, r"int64 \[2\]"),
        ({"policy": Wrong([0, 1, 1])}, "do not ascend"),
        ({"policy": Wrong([0, 1, 64])}, "from Wrong.select"),
        ({"window": 2}, "window=2"),
        ({"window": (2, 0)}, r"window=\(2, 0\)"),
        ({"window": (2.0, 2)}, "window="),
        ({"window": (1, 1, 1)}, "window="),
        ({"protected": np.zeros((8, 8))}, "protected: float64"),
        ({"protected": np.zeros((4, 8), bool)}, r"protected: bool of shape \[4, 8\]"),
        ({"eligible": np.zeros(64, bool)}, "eligible"),
        ({"features": np.zeros((63, 4), np.float32)}, "features: float32"),
        ({"features": np.full((64, 4), np.nan, np.float32)}, "features"),
    ],
)
def test_wrong_input_is_named(given_all: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        allocate_map(np.zeros((8, 8)), FLAT, 3, **given_all)


def test_the_choice_follows_the_map_and_not_the_verdict(texture: Texture) -> None:
    sure = foveate.score(texture, "broccoli")
    best = foveate.allocate(sure, 200)
    for confidence in (0.49, 0.1, 0.0):
        faint = replace(sure, map=0.3 * sure.map, confidence=confidence)
        assert np.array_equal(foveate.allocate(faint, 200).indices, best.indices)
        assert len(foveate.allocate(faint)) > len(foveate.allocate(replace(faint, confidence=0.5)))  # "auto"
