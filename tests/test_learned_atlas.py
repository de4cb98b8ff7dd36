"""Many textures in one array: every shape of it says what one by one says, and gradients pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from foveate.allocation.policies import top_cells
from training.experiments.atlas.__main__ import medians, time_table
from training.experiments.atlas.pages import (
    Bases,
    Pages,
    Ragged,
    padded,
    ragged,
    runs,
    score_gathered,
    score_pages,
    score_ragged,
    tiles,
    unpack,
)

GRIDS, RANK, WIDTH, QUESTIONS = ((5, 7), (16, 16), (1, 3), (20, 33)), 6, 10, 3


@pytest.fixture
def planes() -> list[NDArray[np.float32]]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal((*grid, RANK)).astype(np.float32) for grid in GRIDS]


@pytest.fixture
def own() -> Bases:
    draw = np.random.default_rng(1)
    rows, mean = draw.standard_normal((len(GRIDS), RANK, WIDTH)), draw.standard_normal((len(GRIDS), WIDTH))
    return Bases(rows.astype(np.float32), mean.astype(np.float32))


@pytest.fixture
def questions() -> NDArray[np.float32]:
    return np.random.default_rng(2).standard_normal((QUESTIONS, WIDTH)).astype(np.float32)


def by_hand(
    planes: list[NDArray[np.float32]], bases: Bases, questions: NDArray[np.float32]
) -> list[NDArray[np.float64]]:
    """q.mean + (B q).z of each texture, [q, n] in float64."""
    found = []
    for number, plane in enumerate(planes):
        which = number if len(bases.rows) > 1 else 0
        features = bases.mean[which] + plane.reshape(-1, RANK).astype(np.float64) @ bases.rows[which]
        found.append(questions @ features.T)
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_every_shape_says_what_one_by_one_says(
    planes: list[NDArray[np.float32]], own: Bases, questions: NDArray[np.float32], shared: bool
) -> None:
    bases = Bases(own.rows[:1], own.mean[:1]) if shared else own
    right = by_hand(planes, bases, questions)
    rows = ragged(planes)
    every = [score_ragged(rows, bases, questions)]
    every += [score_pages(atlas, bases, questions) for atlas in (runs(planes), runs(planes, 7), tiles(planes, 4))]
    if not shared:
        every.append(score_gathered(rows, bases, questions))
    for scores in every:
        for mine, exact in zip(unpack(scores, rows.starts), right, strict=True):
            np.testing.assert_allclose(mine, exact, atol=2e-5)
            assert [top_cells(row, 3).tolist() for row in mine] == [top_cells(row, 3).tolist() for row in exact]


def test_pages_are_where_the_table_says(planes: list[NDArray[np.float32]]) -> None:
    side = 8
    atlas = tiles(planes, side)
    assert len(atlas.cells) == sum(-(-h // side) * -(-w // side) for h, w in GRIDS)
    assert (atlas.table[:, 0] == atlas.owner).all()
    for page, (texture, y, x) in zip(atlas.cells, atlas.table, strict=True):
        there = planes[texture][y : y + side, x : x + side]
        square = page.reshape(side, side, RANK)
        np.testing.assert_array_equal(square[: there.shape[0], : there.shape[1]], there)
        assert not square[there.shape[0] :].any()
        assert not square[:, there.shape[1] :].any()
    lines = runs(planes, 50)
    for page, (texture, y, x) in zip(lines.cells, lines.table, strict=True):
        start = y * planes[texture].shape[1] + x
        there = planes[texture].reshape(-1, RANK)[start : start + 50]
        np.testing.assert_array_equal(page[: len(there)], there)


def test_waste_is_what_is_no_cell(planes: list[NDArray[np.float32]]) -> None:
    cells = sum(h * w for h, w in GRIDS)
    assert runs(planes, 100).waste == pytest.approx(1 - cells / (100 * (1 + 3 + 1 + 7)))
    assert tiles(planes, 16).waste == pytest.approx(1 - cells / (256 * (1 + 1 + 1 + 6)))
    assert runs([np.zeros((4, 4, 2), np.float32)], 16).waste == 0


def test_all_at_once_keeps_the_same_cells(
    planes: list[NDArray[np.float32]], own: Bases, questions: NDArray[np.float32]
) -> None:
    rows = ragged(planes)
    scores = np.round(score_ragged(rows, own, questions), 1)  # many are equal
    wide = padded(scores, rows.starts)
    assert wide.shape == (len(GRIDS), QUESTIONS, 20 * 33)
    for mine, row in zip(unpack(scores, rows.starts), wide, strict=True):
        for one, filled in zip(mine, row, strict=True):
            assert top_cells(filled, 3).tolist() == top_cells(one, 3).tolist()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("shape", ["ragged", "runs", "tiles"])
def test_gradients_are_right(
    planes: list[NDArray[np.float32]], own: Bases, questions: NDArray[np.float32], shape: str, shared: bool
) -> None:
    few = [plane[:3, :3] for plane in planes]
    atlas: Ragged | Pages
    atlas = ragged(few) if shape == "ragged" else runs(few, 4) if shape == "runs" else tiles(few, 2)
    end = 1 if shared else len(few)

    def doubles(array: NDArray[np.float32]) -> torch.Tensor:
        return torch.tensor(array, dtype=torch.float64, requires_grad=True)

    def scores(cells: torch.Tensor, rows: torch.Tensor, mean: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
        bases, owner = Bases(rows, mean), torch.from_numpy(atlas.owner)
        found: torch.Tensor
        if isinstance(atlas, Pages):
            slots = torch.from_numpy(atlas.slots)
            found = score_pages(replace(atlas, cells=cells, owner=owner, slots=slots), bases, asked)
        else:
            found = score_ragged(replace(atlas, z=cells, owner=owner), bases, asked)
        return found

    cells = atlas.cells if isinstance(atlas, Pages) else atlas.z
    inputs = (doubles(cells), doubles(own.rows[:end]), doubles(own.mean[:end]), doubles(questions))
    assert torch.autograd.gradcheck(scores, inputs)
    right = by_hand(few, Bases(own.rows[:end], own.mean[:end]), questions)
    for mine, exact in zip(unpack(scores(*inputs).detach().numpy(), atlas.starts), right, strict=True):
        np.testing.assert_allclose(mine, exact, atol=1e-9)
    (gradient,) = torch.autograd.grad(scores(*inputs).sum(), inputs[0])
    if isinstance(atlas, Pages):  # what is no cell has no part in anything
        of_slots = gradient.reshape(-1, RANK).numpy()
        empty = np.setdiff1d(np.arange(len(of_slots)), atlas.slots)
        assert len(empty)
        assert not of_slots[empty].any()
        assert of_slots[atlas.slots].any()


def test_times_are_in_turns_and_the_table_says_how_many_times_as_fast() -> None:
    calls: list[str] = []
    found = medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3)
    assert calls == ["a", "b"] * 4
    assert set(found) == {"a", "b"}
    text = time_table("ms", {1: {"a": 2.0, "b": 1.0}})
    assert text.splitlines()[2:] == ["| a | 2.00 |", "| b | 1.00 (2.00 x) |"]
