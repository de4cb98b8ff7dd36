"""Coordinates, channel names, the shared checkers, names that went. No grid is square, so that swapped axes fail."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from foveate import Grid, Store
from foveate.channels.build import select_channels
from foveate.cli.basis import _limits
from foveate.cli.main import main
from foveate.core import gone
from foveate.core.checks import check_array, check_choice, check_int, check_number, check_pair, check_type
from foveate.core.errors import BudgetError, ChannelError, OptionError
from foveate.core.grid import reduce_plane, resize_map, sample_linear
from foveate.core.layout import CHANNELS, FULL40, LAYOUTS, Layout, channel_named, embedding_number, layout_named
from foveate.store.shared_basis import FittedBasis

sizes = st.integers(1, 23)
planes = hnp.arrays(np.float32, st.tuples(sizes, sizes), elements=st.floats(-8, 8, width=16))


def test_convention_positions_are_y_x_and_flat_indices_run_along_rows() -> None:
    grid = Grid(2, 3, height=20, width=60)
    assert grid.cell == (10.0, 20.0)
    assert grid.centres().tolist() == [[5, 10], [5, 30], [5, 50], [15, 10], [15, 30], [15, 50]]
    assert grid.boxes()[5].tolist() == [10, 40, 20, 60]
    grid = Grid(2, 3, height=20, width=60)
    assert grid.index_at(np.array([[0.0, 59.0], [19.0, 0.0]])).tolist() == [2, 3]
    assert grid.index_at(np.array([[-5.0, -5.0], [99.0, 99.0]])).tolist() == [0, 5]  # outside: the nearest
    with pytest.raises(OptionError, match="0 x 3 cells"):
        Grid(0, 3, 20, 60)


@given(sizes, sizes, st.integers(1, 400), st.integers(1, 400))
def test_a_cells_centre_lies_in_that_cell(h: int, w: int, height: int, width: int) -> None:
    grid = Grid(h, w, height, width)
    assert grid.index_at(grid.centres()).tolist() == list(range(grid.count))


# --- moving maps ------------------------------------------------------------------------------------------------------


@given(planes, sizes, sizes)
def test_resize_is_linear_stays_in_range_and_keeps_a_constant(plane: np.ndarray, h: int, w: int) -> None:
    assert np.allclose(resize_map(np.full_like(plane, 3), (h, w)), 3, atol=1e-5)
    out = resize_map(plane, (h, w))
    assert out.shape == (h, w)
    assert out.min() >= plane.min() - 1e-4
    assert out.max() <= plane.max() + 1e-4
    other = np.roll(plane, 1, 0)[::-1]
    whole = resize_map(2 * plane - other, (h, w))
    assert np.allclose(whole, 2 * resize_map(plane, (h, w)) - resize_map(other, (h, w)), atol=1e-4)


@given(planes, st.integers(1, 4), st.integers(1, 4))
def test_resize_to_coarser_keeps_the_mean(plane: np.ndarray, fh: int, fw: int) -> None:
    shape = (max(1, plane.shape[0] // fh), max(1, plane.shape[1] // fw))
    assert resize_map(plane, shape).mean() == pytest.approx(plane.mean(), abs=1e-4)


def test_resize_to_finer_reads_at_the_new_centres_and_takes_channels_along() -> None:
    plane = np.random.default_rng(1).random((5, 7), np.float32)
    y, x = np.meshgrid((np.arange(20) + 0.5) / 4, (np.arange(21) + 0.5) / 3, indexing="ij")
    assert np.allclose(resize_map(plane, (20, 21)).ravel(), sample_linear(plane, y.ravel(), x.ravel()), atol=1e-6)
    stack = np.random.default_rng(2).random((6, 9, 3), np.float32)
    out = resize_map(stack, (4, 12))
    for c in range(3):
        assert np.allclose(out[..., c], resize_map(stack[..., c], (4, 12)), atol=1e-6)


# --- reducing planes --------------------------------------------------------------------------------------------------


def twin(plane: np.ndarray, shape: tuple[int, int], function: str) -> np.ndarray:
    """The plain definition: every new sample reduces all old samples that its area touches."""
    (h, w), out = plane.shape, np.empty(shape, np.float32)
    for i in range(shape[0]):
        for j in range(shape[1]):
            rows = _touched(h, shape[0], i)
            cols = _touched(w, shape[1], j)
            out[i, j] = getattr(plane[rows][:, cols], function)()
    return out


def _touched(old: int, new: int, i: int) -> list[int]:
    if new > old:
        return [int((i + 0.5) * old / new)]
    return [k for k in range(old) if (k + 1) * new > i * old and k * new < (i + 1) * old]


@given(planes, sizes, sizes, st.sampled_from(["max", "min"]))
def test_reduce_equals_its_definition(plane: np.ndarray, h: int, w: int, function: str) -> None:
    out = reduce_plane(plane, (h, w), "max" if function == "max" else "min")
    assert np.array_equal(out, twin(plane, (h, w), function))


@given(planes, sizes, sizes, st.integers(1, 4))
def test_mode_equals_its_definition(plane: np.ndarray, h: int, w: int, coarser: int) -> None:
    ids = np.round(plane / np.float32(coarser)).astype(np.float32)  # few values, many ties
    found, expected = reduce_plane(ids, (h, w), "mode"), np.zeros((h, w), np.float32)
    for i in range(h):
        for j in range(w):
            values, counts = np.unique(
                ids[_touched(ids.shape[0], h, i)][:, _touched(ids.shape[1], w, j)], return_counts=True
            )
            expected[i, j] = values[counts.argmax()]  # of equally common ones the lowest
    assert np.array_equal(found, expected)
    assert found.dtype == np.float32


# --- channel names ----------------------------------------------------------------------------------------------------


def test_full40_is_the_published_order() -> None:
    assert len(FULL40) == 40
    where = {
        "red": 0, "blue": 2, "edge_on": 3, "edge_off": 4, "high_pass": 5, "low_pass": 6, "motion": 7, "saliency": 8,
        "x": 9, "eccentricity": 11, "cluster_id": 12, "cluster_size": 14, "prev_relevance": 15, "fixation": 17,
        "embedding_0": 18, "embedding_15": 33, "edge_distance": 34, "attention_prev": 35, "gaze": 37, "boundary": 38,
        "text": 39,
    }  # fmt: skip
    assert {name: FULL40.layer(name) for name in where} == where
    for channel in CHANNELS:
        assert channel.low <= channel.neutral <= channel.high, channel.name
    for name in ("cluster_id", "boundary", "text"):
        assert channel_named(name).filter == "nearest"
        assert channel_named(name).reduction in ("mode", "max")
    assert channel_named("embedding_276").native == "cell"
    assert not channel_named("embedding_20").stored
    assert [embedding_number(name) for name in ("embedding_0", "embedding_20", "embedding_", "my_embedding_1")] == [
        0, 20, None, None
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", ["salience", "Saliency", "", "embedding_016", "embedding_x", "embedding_-1"])
def test_an_unknown_name_lists_the_nearest_right_ones(wrong: str) -> None:
    with pytest.raises(ChannelError) as caught:
        channel_named(wrong)
    assert repr(wrong) in str(caught.value)
    if wrong.lower().startswith("salien"):
        assert "saliency" in caught.value.expected


def test_a_layout_is_of_names_in_any_order() -> None:
    names: Any = ["saliency", "red"]
    assert Layout("mine", names) == Layout("mine", ("saliency", "red"))
    assert Layout("mine", names).layer("red") == 1
    for names in ["red", ("red", ["blue"]), 5, (3,), ("red", "green", "red")]:
        with pytest.raises(ChannelError, match="layout 'mine'"):
            Layout("mine", names)
    with pytest.raises(ChannelError, match=r"'lean' is a layout: texture\.tokens\(layout='lean'\)"):
        select_channels("lean")
    with pytest.raises(ChannelError, match=r"pass a list: channels=\['saliency'\]"):
        select_channels("saliency")


def test_the_other_layouts() -> None:
    for rank, name in ((1, "full25"), (8, "full32"), (16, "full40"), (24, "full48"), (32, "full56"), (64, "full88")):
        names = layout_named(name).names
        assert names == layout_named("full", rank).names
        assert names[18 : 18 + rank] == tuple(f"embedding_{i}" for i in range(rank))
        assert tuple(n for n in names if (embedding_number(n) or 0) < 16) == tuple(
            n for n in FULL40.names if (embedding_number(n) or 0) < rank
        )
    for wrong in ("full24", "full0", "full040", "full10000", "fuller"):
        with pytest.raises(ChannelError, match="layouts are full, full40"):
            layout_named(wrong)
    assert LAYOUTS["part28"].names[17:33] == tuple(f"embedding_{i}" for i in range(16))
    assert set(LAYOUTS["part28"].names) == set(FULL40.names)
    assert set(LAYOUTS["tier17"].names) < set(LAYOUTS["part28"].names)
    assert LAYOUTS["phase34"].names == FULL40.names[:34]
    assert LAYOUTS["summary40"].names[18:34] == FULL40.names[18:34]
    assert LAYOUTS["lean"].names == ("red", "green", "blue", "cluster_id", *(f"embedding_{i}" for i in range(32)))


# --- checkers ---------------------------------------------------------------------------------------------------------


def test_what_is_right_comes_back_in_its_plain_type_and_errors_are_the_callers() -> None:
    assert type(check_int("n", np.int64(3), 1, 3)) is int
    assert type(check_number("x", np.float32(0.5))) is float
    assert check_choice("c", "a", ("a", "b")) == "a"
    assert check_type("t", 3, (int, float)) == 3
    assert check_pair("p", [2, np.int8(3)]) == (2, 3)
    plane = np.ones((2, 3), np.float32)
    assert check_array("a", plane, (2, None)) is plane
    assert check_array("a", [[1, 2]], (1, 2)).dtype == np.float32
    with pytest.raises(BudgetError, match="fix: ask for less"):
        check_int("budget", 9, 1, 4, fix="ask for less", error=BudgetError)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: check_int("n", True), "n=True"),
        (lambda: check_int("n", 1.0), "whole number from 1 on"),
        (lambda: check_int("n", 0, 1, 9), "from 1 to 9"),
        (lambda: check_number("x", float("nan")), "a number from 0 to 1"),
        (lambda: check_number("x", float("inf"), high=None), "from 0 on"),
        (lambda: check_number("x", 10**400, high=None), "from 0 on"),
        (lambda: check_number("x", 1j), "a number"),
        (lambda: check_choice("c", 1, ("a", True)), "'a' or True"),
        (lambda: check_choice("c", [], ("a", "b")), r"c=\[\]"),
        (lambda: check_type("t", True, int), "of type bool"),
        (lambda: check_pair("p", (2, 0)), "two whole numbers"),
        (lambda: check_pair("p", 2), "p=2"),
        (lambda: check_array("a", np.ones((2, 3)), (3, 2)), r"shape \[2, 3\]"),
        (lambda: check_array("a", [[np.nan]], (1, 1)), r"finite numbers, shape \[1, 1\]"),
        (lambda: check_array("a", [[2.0]], (1, 1), low=0, high=1), "from 0 to 1"),
        (lambda: check_array("a", [[1e300]], (1, 1)), "finite numbers"),  # too large for float32: no warning
        (lambda: check_number("x", [0.5] * 1000), r"^x=\[0.5, .{1,300}\n"),  # not all of a long list
        (lambda: check_array("a", np.ones((1, 1)), (1, 1), dtype=bool), "bool"),
        (lambda: check_array("a", object(), (1, 1)), "a object"),
        (lambda: check_array("a", [[1], [2, 3]], (None, 1)), "a list"),
    ],
)
def test_what_is_wrong_is_named(call: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        call()


# --- what went answers with what to write instead ---------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(gone.NAMES))
def test_a_name_that_went_says_where_it_is_now(name: str) -> None:
    room, _, last = name.rpartition(".")
    with pytest.raises(ImportError, match="any more; use "):
        exec(f"from {room} import {last}")
    instead = gone.NAMES[name]
    if instead.replace(".", "").isidentifier():  # a name, and no line of code
        room, _, last = instead.rpartition(".")
        assert hasattr(importlib.import_module(room), last)


@pytest.mark.parametrize("name", sorted(gone.ATTRIBUTES))
def test_an_attribute_that_went_says_what_to_write(name: str) -> None:
    owner, _, last = name.partition(".")
    kind = {"Store": Store, "FittedBasis": FittedBasis}[owner]
    with pytest.raises(AttributeError, match="any more; write "):
        getattr(kind, last)
    assert not hasattr(object.__new__(kind), last)


@pytest.mark.parametrize("name", sorted(gone.LIMITS))
def test_a_limit_that_went_says_what_to_write(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        _limits([f"{name}=0.5"])
    assert caught.value.fix == gone.LIMITS[name]


def test_what_did_not_go_is_an_error_as_ever(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AttributeError, match=r"module 'foveate\.relevance' has no attribute 'nothing'$"):
        importlib.import_module("foveate.relevance").nothing  # noqa: B018
    monkeypatch.setattr("sys.argv", ["foveate", "basis", "melt"])
    with pytest.raises(SystemExit):
        main()
    assert "went" not in capsys.readouterr().err


def test_a_keyword_that_went_says_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gone.KEYWORDS, "shape", {"old": "new=3"})

    @gone.without("shape")
    def shape(**how: Any) -> dict[str, Any]:
        return how

    assert shape(new=3) == {"new": 3}
    with pytest.raises(OptionError, match="write new=3"):
        shape(old=3)


@pytest.mark.parametrize("line", sorted(gone.COMMANDS))
def test_a_command_that_went_says_what_to_write(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["foveate", *line.split(), "x", "y", "z"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert f"This went; write {gone.COMMANDS[line]}" in capsys.readouterr().err
