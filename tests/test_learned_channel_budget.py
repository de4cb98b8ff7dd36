"""How many channels are enough: textures that hold some channels, the way forwards, the linear scorer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foveate
from foveate.cli.evaluate.agreement import agreement
from foveate.core.layout import LAYOUTS
from foveate.encoders.load import load_encoder
from foveate.language.negatives import query_metric_of
from foveate.texture.basis import compress
from training.experiments.channel_budget import linear, quality
from training.experiments.channel_budget.__main__ import ALL, embedding, forwards, quality_table, smallest
from training.experiments.channel_budget.linear import Folds, Table, fit, pairs, precision, promise
from training.experiments.channel_budget.quality import Full, Names, answers, holding, judge
from training.experiments.examples import Asked, Example

SIZE = (96, 128)


def picture() -> np.ndarray:
    rgb = np.random.default_rng(0).integers(80, 110, (*SIZE, 3)).astype(np.uint8)
    rgb[20:70, 30:90] = (200, 40, 40)
    return rgb


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    mask = np.zeros((12, 16), bool)
    mask[3:9, 4:11] = True
    asked = tuple(Asked(text, "thing", mask, np.array([[20.0, 30, 70, 90]])) for text in ("the red box", "a dog"))
    return Example("one", tmp_path_factory.mktemp("cache") / "one.safetensors", asked, picture)


@pytest.fixture(scope="module")
def full(example: Example) -> Full:
    whole = foveate.encode(picture(), rank="full")
    small = compress(whole.coordinates(), rank=64, metric=query_metric_of(load_encoder("nano")))
    return Full(example.texture, small.z, small.basis)


def test_a_texture_holds_what_is_named_and_nothing_else(full: Full) -> None:
    some = holding(full, ("red", "green", "blue", "saliency", *embedding(5)))
    assert some.rank == 5
    assert [name for name in (*full.texture.planes, "embedding_5") if some.has(name)] == ["saliency"]
    assert some.pixel is full.texture.pixel
    assert not holding(full, embedding(5)).pixel.any()
    with pytest.raises(ValueError, match="gaps"):
        holding(full, ("embedding_1",))


def test_all_channels_answer_as_the_texture_does_and_no_embedding_answers_nothing(full: Full) -> None:
    own, all_of_them = (foveate.score(one, "the red box").map for one in (full.texture, holding(full, ALL)))
    assert np.corrcoef(own.ravel(), all_of_them.ravel())[0, 1] > 0.999
    nothing = foveate.score(holding(full, ()), "a dog").map
    assert np.ptp(nothing) == 0


def test_the_lean_layout_answers_as_all_planes_do(full: Full) -> None:
    """It has the colours and segments of an image, so a plain question and one about a colour read nothing else."""
    for text in ("the dog", "the red box"):
        lean, whole = (
            foveate.score(foveate.encode(picture(), channels=channels, rank=32), text).map
            for channels in (["cluster_id"], "all")
        )
        np.testing.assert_array_equal(lean, whole)
        held = foveate.score(holding(full, LAYOUTS["lean"].names), text).map
        np.testing.assert_allclose(held, whole, atol=0.02)


def test_answers_are_those_of_the_judge(example: Example, full: Full) -> None:
    rows = answers(example, full.texture)
    assert rows.shape == (2, 4)
    perfect = foveate.score(full.texture, "the red box")
    assert 0 <= rows.min() <= rows.max() <= 1
    kept = foveate.allocate(perfect, full.texture.grid.count // 10).mask
    inside = np.zeros(SIZE)
    inside[24:72, 32:88] = 1  # the mask, in pixels
    area = inside.reshape(full.texture.grid.h, 2, full.texture.grid.w, 2).mean((1, 3))
    assert rows[0, 3] == pytest.approx(area[kept].sum() / area.sum(), abs=0.02)


def test_what_was_judged_is_read_and_not_judged_again(
    example: Example, full: Full, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "full_texture", lambda example, cache: full)
    ways: dict[str, Names] = {"one": embedding(4)}
    first = judge([example], ways, "set", tmp_path, tmp_path / "judged")
    more = judge([example], ways | {"two": embedding(2)}, "set", tmp_path, tmp_path / "judged")
    np.testing.assert_array_equal(first["one"], more["one"])
    monkeypatch.setattr(quality, "answers", lambda *given: 1 / 0)
    again = judge([example], {"other name": embedding(4)}, "set", tmp_path, tmp_path / "judged")
    np.testing.assert_array_equal(first["one"], again["other name"])
    with pytest.raises(ZeroDivisionError):
        judge([example], {"new": embedding(3)}, "set", tmp_path, tmp_path / "judged")


def worth(names: Names) -> np.ndarray:
    """Precision and coverage of a made-up texture: numbers of the embedding, and one plane of three."""
    rank = sum(name.startswith("embedding_") for name in names)
    value = 0.5 * min(rank, 8) / 8 + 0.2 * ("saliency" in names) - 0.1 * ("text" in names)
    return np.array([value, value])


def test_forwards_takes_what_adds_most_a_channel_and_ends_where_nothing_adds() -> None:
    units: dict[str, Names] = {"saliency": ("saliency",), "text": ("text",), "place": ("x", "y")}
    path = forwards(units, worth, 64)
    assert path[0] == ("saliency", ("saliency",))
    assert [what for what, _ in path[1:]] == [f"embedding to {rank}" for rank in (1, 2, 4, 6, 8)]
    assert smallest(path, worth, worth(("saliency", *embedding(8)))) == path[-1][1]
    assert smallest(path, worth, np.array([0.57, 0.57])) == ("saliency", *embedding(6))
    assert smallest(path, worth, np.array([9.0, 9.0])) == path[-1][1]


def test_the_table_has_a_row_a_way_and_0_where_nothing_differs() -> None:
    judged = {"all": np.full((4, 4), 0.5), "same": np.full((4, 4), 0.5), "less": np.full((4, 4), 0.25)}
    lines = quality_table(judged, dict.fromkeys(judged, ("x",)), [0, 0, 1, 1], "all")
    assert len(lines) == 5
    assert lines[3].endswith("| 0 | 0 | 0 |")
    assert "-0.2500 (-0.2500 to -0.2500)" in lines[4]


# --- the linear scorer ------------------------------------------------------------------------------------------------


def question(photograph: int, hint: int | None, cells: int = 120, columns: int = 4) -> Table:
    """A weak map, and one column that knows the answer better, if there is a hint."""
    random = np.random.default_rng(photograph)
    inside = np.arange(cells) < cells // 6
    x = random.standard_normal((cells, columns)).astype(np.float32)
    x[:, 0] += 0.5 * inside
    if hint is not None:
        x[:, hint] += 3 * inside
    return Table(x, inside, photograph)


def test_precision_is_that_of_the_judge() -> None:
    random = np.random.default_rng(3)
    plane, mask = np.round(random.random((9, 7)), 1), random.random((9, 7)) > 0.7
    assert precision(plane.ravel(), mask.ravel()) == pytest.approx(agreement(plane, mask).precision)


def test_a_fit_has_no_gradient_left_and_no_neighbour_is_better() -> None:
    x = np.concatenate([pairs(question(i, None), np.random.default_rng(0)) for i in range(4)]).astype(np.float64)
    w = fit(x)

    def loss(w: np.ndarray) -> float:
        return float(np.log1p(np.exp(-x @ w)).mean() + linear.RIDGE / 2 * w @ w)

    for i in range(len(w)):
        step = 1e-4 * np.eye(len(w))[i]
        assert abs(loss(w + step) - loss(w - step)) / 2e-4 < 1e-6
        assert loss(w + 100 * step) > loss(w) < loss(w - 100 * step)


def test_the_column_that_knows_more_is_found_and_helps() -> None:
    folds = Folds([question(i, 2) for i in range(10)])
    assert int(np.argmax(promise(folds.x, [0])[1:])) + 1 == 2
    assert folds.judged([0, 2]).mean() > folds.judged([0]).mean() + 0.3


def test_noise_is_no_help_to_photographs_it_was_not_fitted_to() -> None:
    folds = Folds([question(i, None, columns=40) for i in range(10)])
    assert folds.judged(range(40)).mean() < folds.judged([0]).mean()


def test_a_photograph_never_judges_weights_that_it_took_part_in() -> None:
    asked = [question(i, 2 if i == 0 else None) for i in range(linear.FOLDS)]
    folds = Folds(asked)
    weights = folds.weights([0, 2], without=0)
    other = Folds([question(0, 3), *asked[1:]]).weights([0, 2], without=0)
    scale = folds.spread[[0, 2]]  # the spread is of all photographs, and only scales the ridge
    np.testing.assert_allclose(weights * scale, other * scale, rtol=0.2)
    assert abs(folds.weights([0, 2])[1]) > 2 * abs(weights[1])


def test_tables_have_the_columns_that_are_named(example: Example) -> None:
    found = linear.tables([example])
    assert len(found) == 2
    assert found[0].columns.shape == (example.texture.grid.count, len(linear.NAMES))
    y = found[0].columns[:, linear.NAMES.index("y")].reshape(example.texture.grid.shape)
    assert (np.diff(y, axis=0) > 0).all()
