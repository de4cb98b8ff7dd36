"""Learned saliency: planes, targets, measures, and models that learn what can be learned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import foveate
from training.experiments.examples import Asked

torch = pytest.importorskip("torch")

from training.experiments.saliency import arrays as a  # noqa: E402
from training.experiments.saliency.__main__ import weights_of_names  # noqa: E402
from training.experiments.saliency.kept import kept_of_nothing, plane_of_names, with_saliency  # noqa: E402
from training.experiments.saliency.model import (  # noqa: E402
    Saliency,
    Shape,
    Taught,
    divergence,
    maps_of,
    predict,
    read_names,
    train,
    weights_of,
)

Floats = NDArray[np.float32]


def _asked(text: str, rows: slice, columns: slice, kind: str = "pets") -> Asked:
    mask = np.zeros((20, 30), bool)
    mask[rows, columns] = True
    return Asked(text, kind, mask, np.zeros((1, 4)))


def test_a_target_holds_things_by_weight_and_no_stuff() -> None:
    asked = [
        _asked("the sky", slice(0, 10), slice(0, 30)),
        _asked("the dog", slice(10, 20), slice(0, 10)),
        _asked("the eye", slice(12, 14), slice(2, 4)),
    ]
    target = a.target_of(asked, lambda one: {"the dog": 0.5, "the eye": 1.0}[one.text])
    assert target[:10].max() == 0
    assert target[19, 0] == 0.5
    assert target[13, 3] == 1
    assert target[15, 20] == 0


def test_often_drawn_labels_weigh_more() -> None:
    from training.experiments.examples import Example

    common, rare = _asked("the eye", slice(0, 2), slice(0, 2)), _asked("the anvil", slice(0, 2), slice(0, 2))
    examples = [Example(str(i), Path(), (common, rare) if i == 0 else (common,), lambda: None) for i in range(9)]  # type: ignore[arg-type, return-value]
    weight = a.by_frequency(examples)
    assert weight(common) == 1
    assert 0 < weight(rare) < 0.5


def test_people_are_counted_where_their_questions_are_answered() -> None:
    asked = [
        _asked("the lamp", slice(0, 5), slice(0, 5), "object"),
        _asked("what is on the table?", slice(0, 2), slice(0, 2), "question"),
        _asked("the dog's ear", slice(10, 12), slice(0, 2), "part"),
        _asked("the sky", slice(0, 20), slice(0, 30), "stuff"),
    ]
    found = a.asked_by_people(asked)
    assert found[0, 0] == 2
    assert found[4, 4] == 1
    assert found[11, 1] == 0
    assert found[19, 29] == 0


def test_measures_of_a_right_a_flat_and_a_wrong_map() -> None:
    target = np.zeros((10, 10), np.float32)
    target[0] = 1
    right, wrong = target + 1e-3, 1 - target
    flat = np.ones_like(target)
    assert a.measure(right, target)[:3] == pytest.approx([1, 3, 1], abs=0.01)
    assert a.measure(right, target)[3] < 0.1
    assert a.measure(flat, target)[0] == 0.5
    assert a.measure(flat, target)[3] == pytest.approx(np.log(10), abs=1e-6)
    assert a.measure(wrong, target)[0] == 0
    assert a.measure(wrong, target)[3] > 5


def test_planes_of_a_texture_are_on_the_raster(pixels: Floats) -> None:
    texture = foveate.encode(pixels, channels="all", read=False)
    planes = a.planes_of(texture)
    assert planes.shape == (len(a.PLANES), a.SIDE, a.SIDE)
    assert np.isfinite(planes).all()
    named = dict(zip(a.PLANES, planes, strict=True))
    assert named["object_share"].min() > 0
    assert named["object_at_border"].max() <= 1
    assert named["x"][0, -1] > 0.9 > 0.1 > named["x"][0, 0]
    z, basis = a.embedding_of(texture)
    evidence = np.einsum("rhw,rd->dhw", z, basis[1:]) + basis[0][:, None, None]
    detector = evidence[:80].max(0)
    assert np.abs(detector - named["detector"]).mean() < 0.05  # the highest of means beside the mean of the highest


@pytest.fixture(name="pixels")
def _pixels() -> NDArray[np.uint8]:
    random = np.random.default_rng(0)
    rgb = random.integers(0, 60, (160, 240, 3)).astype(np.uint8)
    rgb[60:100, 100:160] = (220, 40, 30)
    return rgb


def _squares(count: int = 48, seed: int = 0) -> Taught:
    """A bright square is the thing, on planes of which the second is noise."""
    random = np.random.default_rng(seed)
    planes = random.random((count, 2, 16, 16), np.float32) * 0.3
    target = np.zeros((count, 16, 16), np.float32)
    for i in range(count):
        y, x = random.integers(0, 11, 2)
        planes[i, 0, y : y + 5, x : x + 5] += 0.6
        target[i, y : y + 5, x : x + 5] = 1
    return Taught(planes.astype(np.float16), target)


@pytest.mark.parametrize("width", [0, 8])
def test_a_bright_square_is_learned(tmp_path: Path, width: int) -> None:
    model = train(_squares(), 0, width, tmp_path / "model.pt", epochs=12)
    new = _squares(8, seed=1)
    scores = [a.measure(found, target)[0] for found, target in zip(maps_of(model, new), new.target, strict=True)]
    untaught = Saliency(model.shape, model.mean, model.scale)
    assert np.mean(scores) > 0.95
    assert a.measure(maps_of(untaught, new)[0], new.target[0])[0] < 0.8


def test_killed_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole = train(_squares(), 0, 8, tmp_path / "whole.pt", epochs=3)
    again = train(_squares(), 0, 8, tmp_path / "again.pt", epochs=3)
    calls: list[int] = []

    class KilledError(Exception):
        pass

    class Fragile(Taught):
        def batch(self, rows: NDArray[np.int64], flipped: bool = False):  # type: ignore[no-untyped-def]
            calls.append(1)
            if len(calls) > 4:  # three steps an epoch: in the second one
                raise KilledError
            return super().batch(rows, flipped)

    data = _squares()
    with pytest.raises(KilledError):
        train(Fragile(data.planes, data.target), 0, 8, tmp_path / "cut.pt", epochs=3)
    assert torch.load(tmp_path / "cut.pt", weights_only=True)["epoch"] == 1
    resumed = train(data, 0, 8, tmp_path / "cut.pt", epochs=3)
    for one, two, three in zip(*(weights_of(model).values() for model in (whole, again, resumed)), strict=True):
        assert np.array_equal(one, two)
        assert np.array_equal(one, three)
    assert not list(tmp_path.glob("*.partial"))


def test_gradients_are_those_of_differences() -> None:
    torch.manual_seed(0)
    mean, scale = torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    model = Saliency(Shape(2, names=5, reads=2, width=4), mean, scale).double()
    torch.nn.init.normal_(model.leave.weight)
    planes, z, basis = (torch.rand(shape, dtype=torch.float64) for shape in ((2, 2, 6, 6), (2, 3, 6, 6), (2, 4, 5)))
    target = torch.rand(2, 6, 6, dtype=torch.float64)

    def loss(read: Any) -> Any:
        return divergence(torch.func.functional_call(model, {"read": read}, (planes, z, basis)), target)

    assert torch.autograd.gradcheck(loss, (model.read.detach().clone().requires_grad_(),))


@pytest.mark.parametrize("width", [0, 4])
def test_numpy_is_the_twin_of_torch(width: int) -> None:
    torch.manual_seed(1)
    random = np.random.default_rng(1)
    model = Saliency(Shape(3, names=7, reads=2, width=width), torch.rand(3), 0.5 + torch.rand(3))
    torch.nn.init.normal_(model.leave.weight)
    planes, z = random.random((1, 3, 12, 9), np.float32), random.random((1, 4, 12, 9), np.float32)
    basis = random.standard_normal((1, 5, 7)).astype(np.float32)
    data = Taught(planes, np.ones((1, 12, 9), np.float32), z, basis)  # type: ignore[arg-type]
    evidence = np.einsum("rhw,rd->hwd", z[0], basis[0, 1:]) + basis[0, 0]
    assert np.allclose(maps_of(model, data)[0], predict(weights_of(model), planes[0], evidence), atol=2e-5)


def test_without_place_a_model_cannot_know_it() -> None:
    """Padding repeats the border, so a flat image has a flat map, whatever the weights."""
    torch.manual_seed(2)
    model = Saliency(Shape(3, width=8), torch.zeros(3), torch.ones(3))
    torch.nn.init.normal_(model.leave.weight)
    flat = model(torch.full((1, 3, 20, 20), 0.7)).detach()
    assert float(flat.max() - flat.min()) < 1e-4


def test_names_are_read_through_the_basis() -> None:
    z, basis, read = torch.rand(1, 3, 4, 5), torch.rand(1, 4, 6), torch.rand(2, 6)
    whole = torch.einsum("nrhw,nrd->ndhw", z, basis[:, 1:]) + basis[:, 0, :, None, None]
    assert torch.allclose(read_names(z, basis, read), 10 * torch.einsum("ndhw,kd->nkhw", whole, read), atol=1e-4)


def test_a_question_that_names_nothing_keeps_what_the_plane_shows(pixels: NDArray[np.uint8]) -> None:
    texture = foveate.encode(pixels, channels=["saliency"])
    target = np.zeros((20, 30), np.float32)
    target[8:12, 13:19] = 1
    shares = kept_of_nothing(texture, {"right": target, "wrong": 1 - target}, target)
    assert shares["right"] > 0.9 > 0.2 > shares["wrong"]
    other = with_saliency(texture, target)
    assert other.channel("saliency").max() == 1
    assert not np.array_equal(other.channel("saliency"), texture.channel("saliency"))
    assert replace(foveate.score(other, "the square")).saliency.max() == 1


def test_a_logistic_reader_of_names_is_one_question(pixels: NDArray[np.uint8]) -> None:
    """The model's map, on the evidence restored, beside the score of one vector over the names."""
    torch.manual_seed(3)
    texture = foveate.encode(pixels, channels=["saliency"])
    model = Saliency(Shape(0, names=texture.basis.width, reads=1, width=0), torch.zeros(0), torch.ones(0))
    torch.nn.init.constant_(model.leave.weight, -2.0)
    evidence = texture.basis.restore(texture.coordinates()).reshape(*texture.grid.shape, -1)
    slow = predict(weights_of(model), np.zeros((0, *texture.grid.shape), np.float32), evidence)
    fast = plane_of_names(texture, weights_of_names(model))
    assert fast.max() == 1
    assert np.allclose(slow, fast, atol=0.01)  # weights are rounded
    assert float(np.ptp(fast)) > 0.05
