"""Planes learned from pixels: the generator, its readers, and what they can and cannot learn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
Floats = NDArray[np.float32]

from training.experiments.learned_channels import __main__ as lc  # noqa: E402
from training.experiments.saliency.arrays import SIDE, measure  # noqa: E402
from training.experiments.saliency.model import divergence  # noqa: E402


def _data(count: int = 24, seed: int = 0) -> lc.Data:
    """A red and a blue square on grey noise; both are salient, and each has a question. Planes by hand are noise."""
    random = np.random.default_rng(seed)
    rgb = random.integers(90, 130, (count, lc.PIXELS, lc.PIXELS, 3)).astype(np.uint8)
    masks = np.full((count, 2, SIDE, SIDE), 1e-6, np.float32)
    for i in range(count):
        for k, colour in enumerate(((220, 30, 30), (30, 30, 220))):
            y, x = random.integers(0, SIDE - 8), random.integers(0, SIDE // 2 - 8) + k * SIDE // 2
            rgb[i, 2 * y : 2 * y + 16, 2 * x : 2 * x + 16] = colour
            masks[i, k, y : y + 8, x : x + 8] = 1
    by_hand = random.random((count, len(lc.BY_HAND), SIDE, SIDE)).astype(np.float16)
    return lc.Data(rgb, by_hand, masks.max(1), [np.eye(3, dtype=np.float32)[:2]] * count, list(masks))


def _auc(plane: Floats, target: Floats) -> float:
    return measure(plane, (target > 0.5).astype(np.float32))[0]


def _model(**how: Any) -> lc.Model:
    torch.manual_seed(0)
    return lc.Model(len(lc.BY_HAND), 3, **{"learned": True, **how})


def test_planes_tell_two_colours_apart_by_their_question(tmp_path: Path) -> None:
    learned = lc.train(_model(), _data(), tmp_path / "learned.pt", 12)
    by_hand = lc.train(_model(learned=False), _data(), tmp_path / "hand.pt", 12)
    new = _data(4, seed=1)
    salient, asked = lc.maps_of(learned, new)
    assert np.mean([_auc(s, t) for s, t in zip(salient, new.target, strict=True)]) > 0.95
    for maps, masks in zip(asked, new.masks, strict=True):
        for k in (0, 1):
            assert _auc(maps[k], masks[k]) > 0.9
    noise = [_auc(s, t) for s, t in zip(lc.maps_of(by_hand, new)[0], new.target, strict=True)]
    assert np.mean(noise) < 0.65  # the planes of this test know nothing


def test_killed_training_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole = lc.train(_model(), _data(), tmp_path / "whole.pt", 2).state_dict()
    saved: list[Any] = []
    replace = os.replace

    def killed(source: Path, target: Path) -> None:
        replace(source, target)
        saved.append(target)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            lc.train(_model(), _data(), tmp_path / "cut.pt", 2)
    assert torch.load(tmp_path / "cut.pt", weights_only=True)["epoch"] == 1
    resumed = lc.train(_model(), _data(), tmp_path / "cut.pt", 2).state_dict()
    assert len(saved) == 1
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_filters_that_stay_as_drawn_do(tmp_path: Path) -> None:
    model = _model(frozen=True)
    assert model.make is not None
    before = model.make.first.weight.clone()
    lc.train(model, _data(), tmp_path / "frozen.pt", 1)
    assert torch.equal(before, model.make.first.weight)
    assert float(model.read.salient.detach().abs().max()) > 0


def test_means_before_the_last_layer_are_those_after_it() -> None:
    make = lc.Generator(5)
    rgb = torch.rand(2, 3, lc.PIXELS, lc.PIXELS)
    slow = torch.nn.functional.avg_pool2d(make.second(torch.relu(make.first(rgb))), 2)
    assert torch.allclose(make(rgb), slow, atol=1e-5)


def test_gradients_are_those_of_differences() -> None:
    torch.manual_seed(0)
    reader = lc.Reader(3, 4).double().eval()
    planes, questions = torch.rand(2, 3, 5, 5, dtype=torch.float64), torch.rand(2, 2, 4, dtype=torch.float64)
    target = torch.rand(2, 5, 5, dtype=torch.float64)
    masks = torch.rand(4, 5, 5, dtype=torch.float64)

    def loss(salient: Any, asked: Any) -> Any:
        one, many = torch.func.functional_call(reader, {"salient": salient, "asked": asked}, (planes, questions))
        return divergence(one, target) + divergence(many.flatten(0, 1), masks)

    weights = [torch.rand(shape, dtype=torch.float64, requires_grad=True) for shape in ((3,), (3, 4))]
    assert torch.autograd.gradcheck(loss, weights)


def test_what_learned_planes_explain_of_those_made_by_hand() -> None:
    data, model = _data(4), _model()
    assert model.make is not None
    with torch.no_grad():
        planes = model.make(torch.from_numpy(lc._as_input(data.rgb))).numpy()
    by_hand: NDArray[np.float16] = data.by_hand.copy()
    by_hand[:, 0] = planes[:, 1] - 2 * planes[:, 3]  # a sum of learned planes is explained, noise is not
    found = lc.likeness(model, lc.Data(data.rgb, by_hand, data.target, data.vectors, data.masks))
    assert found[lc.BY_HAND[0]] > 0.98
    assert found[lc.BY_HAND[1]] < 0.2


def test_a_sheet_has_a_row_for_each_photograph() -> None:
    picture = lc.sheet(_model(), _data(3), [0, 2])
    assert picture.shape == (2 * lc.PIXELS, (1 + len(lc.BY_HAND)) * lc.PIXELS, 3)
    assert picture[: lc.PIXELS, lc.PIXELS :].max() == 255
