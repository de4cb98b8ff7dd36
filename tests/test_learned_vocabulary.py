"""A vocabulary of cells: codebooks that learn, ids that come back, an index that counts, runs that go on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate
from foveate.encoders.protocol import Calibration
from foveate.language.query import Query
from foveate.relevance.confidence import peak
from foveate.relevance.scoring import sigmoid
from foveate.store.record import plane_peaks
from foveate.texture.texture import Texture
from training.experiments.examples import Asked, Example
from training.experiments.vocabulary import __main__ as command
from training.experiments.vocabulary import fitting
from training.experiments.vocabulary.cells import PARTS, Cells, Common, fit_common
from training.experiments.vocabulary.codebooks import blocks_of, fit_codebook, grid_of, k_means, means_of, nearest
from training.experiments.vocabulary.index import make_index, rank_by_entries, rank_by_planes, rank_exactly
from training.experiments.vocabulary.kept import (
    BASELINE,
    as_encoded,
    blocks,
    entries,
    likeness,
    names,
    own_int8,
    shapes,
    unit,
    with_features,
)
from training.experiments.vocabulary.sharing import measure

WIDTH, KINDS = 12, 5
CALIBRATION = Calibration(slope=18.0, offset=-9.0, contrast=0.0, temperature=1.0, synonym=1.0)
PLAIN = Common(np.zeros(WIDTH, np.float32), np.eye(WIDTH, dtype=np.float32), np.eye(WIDTH, dtype=np.float32))


def kinds() -> np.ndarray:
    """Features of KINDS things, each a plane of its own [KINDS, WIDTH]."""
    return np.eye(KINDS, WIDTH, dtype=np.float32)


def drawn(count: int, seed: int = 0, noise: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Noisy cells [count, WIDTH] of those things, and which each is."""
    draw = np.random.default_rng(seed)
    which = draw.integers(0, KINDS, count)
    return (kinds()[which] + noise * draw.standard_normal((count, WIDTH))).astype(np.float32), which


def some_cells(photographs: int = 12, shape: tuple[int, int] = (16, 17), seed: int = 0) -> tuple[Cells, np.ndarray]:
    """Photographs of some of the things each, exactly in a basis; and which thing each cell is [P, n]."""
    draw = np.random.default_rng(seed)
    n = shape[0] * shape[1]
    which = np.stack([np.sort(draw.choice(draw.choice(KINDS, 3, replace=False), n)) for _ in range(photographs)])
    rows = np.stack([np.eye(KINDS, WIDTH)] * photographs).astype(np.float16)
    return Cells(
        z=np.concatenate([np.eye(KINDS)[each] for each in which]).astype(np.float16),
        starts=np.arange(photographs + 1, dtype=np.int64) * n,
        rows=rows,
        mean=np.zeros((photographs, WIDTH), np.float32),
        labels=which.ravel().astype(np.int16),
        held_out=np.arange(photographs) % 4 == 0,
        shapes=np.array([shape] * photographs, np.int64),
        names=tuple(f"the thing {i}" for i in range(KINDS)),
    ), which


@pytest.fixture(scope="module")
def texture() -> Texture:
    draw = np.random.default_rng(1)
    rgb = np.kron(draw.integers(0, 255, (8, 9, 3)), np.ones((32, 32, 1))).astype(np.uint8)
    return foveate.encode(rgb, channels="fast")


def test_a_codebook_learns_what_is_there() -> None:
    points, which = drawn(2000)
    table = k_means(points, KINDS * 2, seed=3)
    ids = nearest(points, table)
    left = ((points - table[ids]) ** 2).sum(1).mean()
    at_random = ((points - points[:10][nearest(points, points[:10])]) ** 2).sum(1).mean()
    assert left < WIDTH * 0.05**2 * 1.1 < at_random  # the noise, and no more
    assert all(len(np.unique(which[ids == number])) == 1 for number in np.unique(ids))


def test_the_same_seed_gives_the_same_bytes() -> None:
    points, _ = drawn(3000)
    first, again, other = (k_means(points, 600, rounds=3, seed=seed) for seed in (0, 0, 1))
    assert first.tobytes() == again.tobytes() != other.tobytes()


def test_an_entry_without_cells_is_put_where_one_is_missing() -> None:
    points = np.concatenate([np.zeros((50, 2)), np.full((1, 2), 9.0), np.full((1, 2), -7.0)]).astype(np.float32)
    table = k_means(points, 3, rounds=3)  # drawn from 52 points of which 50 are equal
    assert sorted(table[:, 0].tolist()) == pytest.approx([-7, 0, 9])


def test_many_entries_are_tried_in_part_and_few_are_missed() -> None:
    draw = np.random.default_rng(0)
    points = (draw.standard_normal((4000, 4)) @ draw.standard_normal((4, 8))).astype(np.float32)
    table = k_means(points, 1024, rounds=1)
    exact = ((points[:, None] - table[None]) ** 2).sum(2)
    ids = nearest(points, table)
    assert (ids == exact.argmin(1)).mean() > 0.97
    taken = np.take_along_axis(exact, ids[:, None], 1).mean()
    assert taken < 1.02 * exact.min(1).mean()


def test_nearest_is_exact_for_few_entries_and_prefers_the_first() -> None:
    points, _ = drawn(300)
    table = np.concatenate([kinds(), kinds()])
    distance = ((points[:, None] - table[None]) ** 2).sum(2)
    assert (nearest(points, table) == distance[:, :KINDS].argmin(1)).all()


def test_means_are_those_of_the_values() -> None:
    values, which = drawn(500)
    found = means_of(values, which, KINDS + 1)
    for number in range(KINDS):
        np.testing.assert_allclose(found[number], values[which == number].mean(0), rtol=1e-5, atol=1e-6)
    assert not found[KINDS].any()


def test_stages_say_more_of_what_is_left() -> None:
    x, _ = drawn(3000, noise=0.3)
    left = []
    for counts in ((8,), (8, 8), (8, 8, 8)):
        book = fit_codebook(x, x, counts)
        left.append(float(((x - book.restore(book.ids(x))) ** 2).mean()))
    assert left[0] > 1.1 * left[1] > 1.1 * 1.1 * left[2]


def test_blocks_come_back() -> None:
    plane = np.random.default_rng(0).standard_normal((5, 7, 2)).astype(np.float32)
    found = blocks_of(plane, 4)
    assert found.shape == (4, 32)
    np.testing.assert_array_equal(grid_of(found, (5, 7), 4), plane)
    np.testing.assert_array_equal(found[0].reshape(4, 4, 2), plane[:4, :4])


def test_the_common_metric_gives_back_what_lies_in_it() -> None:
    x, _ = drawn(2000, noise=0)
    common = fit_common(x, None, rank=KINDS)  # type: ignore[arg-type]  # None is no metric: plain directions
    np.testing.assert_allclose(common.mean + common.coordinates(x) @ common.outward, x, atol=2e-3)


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_what_encode_keeps_is_what_it_says(texture: Texture) -> None:
    kept = as_encoded(texture)
    other = with_features(texture, kept.features)
    for text in ("a dog", "the sky"):
        first, second = foveate.score(texture, text), foveate.score(other, text)
        np.testing.assert_allclose(second.map, first.map, atol=2e-3)
    assert kept.raw == texture.embedding.nbytes + texture.basis.rows.nbytes + texture.basis.mean.nbytes
    assert 0 < kept.packed < kept.raw


def test_int8_is_nearly_what_encode_keeps_and_fewer_numbers_are_less(texture: Texture) -> None:
    exact = as_encoded(texture).features
    errors = [float(np.abs(own_int8(rank)(texture).features - exact).mean()) for rank in (24, 8, 2)]
    assert errors[0] < 0.003
    assert errors == sorted(errors)
    assert errors[2] > 4 * errors[0]
    kept = own_int8(2)(texture)
    assert kept.raw == texture.grid.count * 2 + 2 * 2 * texture.basis.width + 2 * texture.basis.width + 4 * 2


def test_entries_take_a_byte_or_two_a_cell(texture: Texture) -> None:
    width = texture.basis.width
    draw = np.random.default_rng(0)
    x = as_encoded(texture).features
    common = Common(x.mean(0), np.eye(width, dtype=np.float32), np.eye(width, dtype=np.float32))
    y, n = common.coordinates(x), texture.grid.count
    small = fit_codebook(y, x, (16,))
    large = fit_codebook(y, x, (300,))
    assert [entries(common, book)(texture).raw for book in (small, large)] == [n, 2 * n]
    errors = [float(np.abs(entries(common, book)(texture).features - x).mean()) for book in (small, large)]
    assert errors[0] > errors[1]
    own = entries(common, fit_codebook(x - x.mean(0), x - x.mean(0), (16,)), own_mean=True)(texture)
    assert own.raw == n + 2 * width
    assert float(np.abs(own.features - x).mean()) < 1.5 * errors[0]
    table = draw.standard_normal((4, 2 * 2 * width)).astype(np.float32)
    h, w = texture.grid.shape
    assert blocks(common, table, width, 2)(texture).raw == 2 * (-(-h // 2) * -(-w // 2))


def test_the_highest_planes_are_kept(texture: Texture) -> None:
    x = as_encoded(texture).features
    mean = np.full(x.shape[1], -1.0, np.float32)
    kept = names(mean, float(x.max()) + 1, 3)(texture)
    assert ((kept.features > -1).sum(1) <= 3).all()
    best = np.argmax(x, 1)
    step = (float(x.max()) + 1) / 255
    got = kept.features[np.arange(len(x)), best]
    np.testing.assert_allclose(got, x[np.arange(len(x)), best], atol=step)


def test_a_direction_and_a_height_say_what_lies_on_a_direction(texture: Texture) -> None:
    n, width = texture.grid.count, texture.basis.width
    draw = np.random.default_rng(0)
    table = unit(draw.standard_normal((7, width)).astype(np.float32))
    which, heights = draw.integers(0, 7, n), draw.uniform(0.1, 0.9, n).astype(np.float32)
    mean = np.full(width, 0.02, np.float32)
    given = with_features(texture, mean + table[which] * heights[:, None])
    kept = shapes(mean, table, 1.0)(given)
    np.testing.assert_array_equal(kept.parts[0], which)
    np.testing.assert_allclose(kept.features, as_encoded(given).features, atol=1e-3 + 0.5 / 255)
    assert kept.raw == 2 * n


def test_likeness_shares_ranks() -> None:
    scores = np.arange(60, dtype=np.float32)
    assert likeness(scores, scores).spearman == pytest.approx(1)
    assert likeness(scores, -scores).spearman == pytest.approx(-1)
    assert likeness(scores, -scores).overlap == 0
    halves = (scores >= 30).astype(np.float32)
    assert likeness(scores, halves).spearman == pytest.approx(np.sqrt(3) / 2, abs=2e-3)
    assert likeness(scores, np.zeros(60, np.float32)).spearman == 0


# --- search and sharing -----------------------------------------------------------------------------------------------


def by_hand(cells: Cells, photograph: int, vector: np.ndarray) -> float:
    scores = cells.features(photograph) @ vector
    return peak(sigmoid(scores, np.float32(CALIBRATION.slope), np.float32(CALIBRATION.offset)))


def test_an_index_of_things_ranks_as_all_cells_do() -> None:
    cells, which = some_cells()
    index = make_index(list(which), KINDS)
    assert int(index.counts.sum()) == which.size
    assert index.holders.tolist() == [sum(kind in each for each in which) for kind in range(KINDS)]
    vectors = np.eye(KINDS, WIDTH, dtype=np.float32)[:2]
    query = Query("both", ("one", "two"), vectors)
    for vector in vectors:
        exact = np.array([by_hand(cells, number, vector) for number in range(len(cells))])
        alone = rank_by_entries(index, kinds(), Query("one", ("one",), vector[None]), CALIBRATION)
        np.testing.assert_allclose(alone, exact, rtol=1e-3)
        every = [rank_exactly(cells, n, vector[None], CALIBRATION)[0] for n in range(len(cells))]
        np.testing.assert_allclose(every, exact, rtol=1e-5)
    both = rank_by_entries(index, kinds(), query, CALIBRATION)
    there = np.array([{0, 1} <= set(each.tolist()) for each in which])
    assert both[there].min() > 2 * both[~there].max()


def test_peaks_of_planes_are_exact_for_a_question_of_one_plane() -> None:
    cells, which = some_cells()
    peaks = np.stack([plane_peaks(cells.features(number)) for number in range(len(cells))])
    vectors = np.eye(KINDS, WIDTH, dtype=np.float32)
    for kind in range(KINDS):
        found = rank_by_planes(peaks, Query("one", ("one",), vectors[kind][None]), CALIBRATION)
        exact = [by_hand(cells, number, vectors[kind]) for number in range(len(cells))]
        np.testing.assert_allclose(found, exact, rtol=1e-3)
        assert ((found > 0.5) == [(kind in each) for each in which]).all()


def test_the_walk_takes_no_more_cells_than_count() -> None:
    index = make_index([np.array([0] * 300 + [1] * 300), np.array([1] * 299 + [0])], 2)  # 2 and 1 cells count
    np.testing.assert_allclose(index.peaks(np.array([0.9, 0.5], np.float32)), [0.9, 0.9])
    np.testing.assert_allclose(index.peaks(np.array([0.2, 0.5], np.float32)), [0.5, 0.5])
    few = make_index([np.array([0] + [1] * 767)], 2)  # three cells count, of which one is the best
    np.testing.assert_allclose(few.peaks(np.array([0.9, 0.3], np.float32)), [0.5])
    np.testing.assert_allclose(few.peaks(np.array([0.9, 0.3], np.float32), walked=1), [0.3])


def test_purity_is_that_of_photographs_held_out() -> None:
    cells, which = some_cells()
    perfect = measure(cells, list(which))
    assert perfect["purity"] == 1
    assert perfect["labels"] == {}  # none of the names that are shown
    blind = measure(cells, [np.zeros_like(each) for each in which])
    assert blind["purity"] == pytest.approx(blind["commonest"])
    mixed = which.copy()
    mixed[cells.held_out] = (mixed[cells.held_out] + 1) % KINDS  # other things there than elsewhere
    assert measure(cells, list(mixed))["purity"] == 0


# --- runs that go on --------------------------------------------------------------------------------------------------


def test_a_run_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells, _ = some_cells(photographs=8)
    monkeypatch.setattr("training.experiments.vocabulary.cells.EACH", 64)
    monkeypatch.setattr(fitting, "STAGES", {"8 entries": (8,), "own mean + 6 entries": (6,), "3 x 4": (4, 4, 4)})
    monkeypatch.setattr(fitting, "BLOCKS", ())
    monkeypatch.setattr(fitting, "SHAPES", ())
    monkeypatch.setattr(fitting, "load_encoder", lambda name: None)
    monkeypatch.setattr(fitting, "query_metric_of", lambda encoder: None)
    fit = k_means
    made: list[int] = []

    def stops(points: Any, count: int, *rest: Any, **how: Any) -> Any:
        made.append(count)
        if len(made) == 4:
            raise KeyboardInterrupt
        return fit(points, count, *rest, **how)

    monkeypatch.setattr("training.experiments.vocabulary.codebooks.k_means", stops)
    monkeypatch.setattr(fitting, "k_means", lambda points, count: fit(points, min(count, 5)))
    with pytest.raises(KeyboardInterrupt):
        fitting.fit_all(cells, tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["8_entries.npz", "common.npz", "own_mean_+_6_entries.npz"]
    _, books, _ = fitting.fit_all(cells, tmp_path)
    assert made == [8, 6, 4, 4, 4, 4, 4]  # those that were finished are not made again
    (fresh := tmp_path / "fresh").mkdir()
    monkeypatch.setattr("training.experiments.vocabulary.codebooks.k_means", fit)
    _, again, _ = fitting.fit_all(cells, fresh)
    for name, book in books.items():
        for key, array in book.arrays().items():
            np.testing.assert_array_equal(array, again[name].arrays()[key])


def test_what_was_found_is_read_again(tmp_path: Path) -> None:
    assert command.stored(tmp_path / "a.json", lambda: {"x": 1}) == {"x": 1}
    assert command.stored(tmp_path / "a.json", lambda: pytest.fail("made again")) == {"x": 1}
    with pytest.raises(RuntimeError):
        command.stored(tmp_path / "b.json", lambda: (_ for _ in ()).throw(RuntimeError))
    assert not (tmp_path / "b.json").exists()
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}


def test_cells_are_sampled_from_what_is_not_held_out() -> None:
    cells, _ = some_cells(photographs=8)
    marked = replace(cells, mean=np.where(cells.held_out[:, None], 100.0, 0.0).astype(np.float32).repeat(WIDTH, 1))
    assert float(marked.sample().max()) <= 1
    assert set(PARTS) == {field for field in Cells.__dataclass_fields__ if field != "names"}


def test_ways_are_judged_in_groups_that_are_not_judged_again(tmp_path: Path, texture: Texture) -> None:
    mask = np.zeros((32, 36), bool)
    mask[4:20, 8:24] = True
    asked = (Asked("the sky", "test", mask, np.zeros((1, 4))), Asked("a dog", "test", ~mask, np.zeros((1, 4))))
    texture.save(file := tmp_path / "one.safetensors")
    example = Example("one", file, asked, lambda: texture.pixel)
    groups = {"a": {"int8": own_int8(24)}, "b": {"less": own_int8(1)}}
    found = command.judge_groups([example], groups, tmp_path, "set")
    assert {way: len(values) for way, values in found["alike"].items()} == {BASELINE: 2, "int8": 2, "less": 2}
    assert found["alike"][BASELINE] == [[1.0, 1.0], [1.0, 1.0]]
    assert found["alike"]["int8"][0][0] > found["alike"]["less"][0][0]
    example.file.unlink()
    assert command.judge_groups([], groups, tmp_path, "set") == found
    text, numbers = command.kept_table({"set": found})
    assert len(text.splitlines()) == 2 + 3
    assert numbers["int8"]["bytes"] < numbers[BASELINE]["bytes"]
