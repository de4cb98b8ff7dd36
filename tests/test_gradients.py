"""Planes and scores by torch: equal to NumPy, batches at once, gradients that finite differences confirm."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate.channels.build import VISUAL
from foveate.channels.torch import _distance, planes_of_batch
from foveate.channels.visual import compute_saliency, compute_visual_planes, edge_distance
from foveate.core.errors import DeviceError, OptionError
from foveate.core.grid import Grid, reduce_plane
from foveate.core.image import load_image
from foveate.reading.words import Words
from foveate.texture.texture import Texture
from foveate.texture.torch import DeviceTexture, move_plane
from tests.conftest import PHOTOS

RGB = [load_image(file).rgb for file in sorted(PHOTOS.glob("*.jpg"))]
CELLS = (48, 64)
PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]
SMOOTH = [name for name in VISUAL if name != "edge_distance"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("rgb", [*RGB, RGB[0][:96, :512], RGB[1][200:277, 200:265]], ids=lambda rgb: str(rgb.shape))
def test_planes_of_bytes_are_numpys(rgb: np.ndarray, place: str) -> None:
    expected = compute_visual_planes(rgb) | {"saliency": compute_saliency(rgb, CELLS)}
    found = planes_of_batch(torch.from_numpy(rgb.copy())[None].to(place), CELLS)
    assert {*found} == {*expected}
    for name, plane in expected.items():
        assert plane.std() > 1e-3  # there is something to be equal to
        assert found[name].dtype == torch.float32
        # Saliency is of 64 x 64 pixels: where one lies halfway between two levels, the other rounding moves the plane.
        np.testing.assert_allclose(found[name][0].cpu().numpy(), plane, atol=1e-2 if name == "saliency" else 1e-6)


def test_a_batch_is_what_each_image_is_alone() -> None:
    batch = torch.from_numpy(np.stack([rgb[:400, :472] for rgb in RGB]))
    together = planes_of_batch(batch, (32, 32))
    for i, one in enumerate(batch):
        for name, plane in planes_of_batch(one[None], (32, 32)).items():
            torch.testing.assert_close(together[name][i], plane[0], atol=1e-6, rtol=0)


def test_an_image_of_one_colour_has_planes_of_nothing_and_gradients_that_are_numbers() -> None:
    pixels = torch.full((1, 80, 100, 3), 77.0, requires_grad=True)
    found = planes_of_batch(pixels, (8, 10))
    assert all(float(found[name].detach().max()) == 0 for name in ("edge_on", "edge_off", "saliency"))
    assert bool((found["edge_distance"] == 1).all())
    (gradient,) = torch.autograd.grad([plane.sum() for plane in found.values() if plane.requires_grad], [pixels])
    assert bool(gradient.isfinite().all())


@settings(deadline=None)
@given(st.integers(16, 40), st.integers(16, 40), st.floats(0, 1), st.integers(0, 2**31))
def test_the_distance_is_exact(h: int, w: int, share: float, seed: int) -> None:
    edges = np.random.default_rng(seed).random((2, h, w)) < share**3
    for place in ("cpu", "cuda")[: 1 + torch.cuda.is_available()]:
        found = _distance(torch.from_numpy(edges).to(place)).cpu().numpy()
        np.testing.assert_allclose(found, np.stack([edge_distance(each) for each in edges]), atol=1e-6)


@pytest.mark.parametrize(("old", "new"), [((30, 41), (8, 9)), ((8, 8), (20, 8)), ((9, 16), (9, 4))])
def test_planes_move_as_numpys(old: tuple[int, int], new: tuple[int, int]) -> None:
    plane = np.random.default_rng(0).random(old).astype(np.float32)
    for reduction in ("mean", "max"):
        moved = move_plane(torch.from_numpy(plane), new, reduction)
        np.testing.assert_allclose(moved.numpy(), reduce_plane(plane, new, reduction), atol=1e-6)


@pytest.mark.parametrize(
    "pixels",
    [
        RGB[0], torch.zeros(64, 64, 3), torch.zeros(1, 3, 64, 64), torch.zeros(1, 63, 64, 3), torch.zeros(0, 64, 64, 3),
        torch.zeros(1, 64, 64, 3, dtype=torch.int32), None,
    ],
)  # fmt: skip
def test_other_pixels_are_refused(pixels: Any) -> None:
    with pytest.raises(OptionError, match="pixels: ") as caught:
        planes_of_batch(pixels, (8, 8))
    assert "[B, H, W, 3]" in caught.value.expected


@pytest.mark.parametrize("shape", [(0, 8), (8,), 8, None, "ab", (2.5, 8)])
def test_other_shapes_of_saliency_are_refused(shape: Any) -> None:
    with pytest.raises(OptionError, match="shape="):
        planes_of_batch(torch.zeros(1, 64, 64, 3), shape)


# --- gradients --------------------------------------------------------------------------------------------------------


def checked(function: Any, inputs: torch.Tensor) -> None:
    """Gradients in float64 against finite differences, along one random direction of inputs and outputs."""
    assert torch.autograd.gradcheck(function, (inputs,), eps=1e-5, atol=1e-6, rtol=1e-4, fast_mode=True)
    (gradient,) = torch.autograd.grad(function(inputs).square().sum(), [inputs])
    assert float(gradient.abs().max()) > 0


@pytest.mark.parametrize("plane", [*SMOOTH, "saliency"])
def test_gradients_of_planes_are_the_slopes(plane: str) -> None:
    pixels = torch.from_numpy(np.random.default_rng(0).uniform(0, 255, (2, 64, 68, 3))).requires_grad_()
    checked(lambda x: planes_of_batch(x, (8, 8))[plane], pixels)


@pytest.fixture(scope="module")
def small() -> Texture:
    return foveate.encode(RGB[0][:256, :256], long_side=128)


def in_double(texture: Texture, **parts: torch.Tensor) -> DeviceTexture:
    there = texture.to("cpu")
    doubles = {name: getattr(there, name).double() for name in ("z", "rows", "mean")}
    return replace(there, **(doubles | parts))


@pytest.mark.parametrize("part", ["z", "rows", "mean"])
@pytest.mark.parametrize("question", ["a plate", "a fork and a plate"])
def test_gradients_of_a_map_by_what_was_encoded(small: Texture, part: str, question: str) -> None:
    values = getattr(small.to("cpu"), part).double().requires_grad_()
    how: Any = {"channel_weights": {"saliency": 0.3}}
    checked(lambda x: foveate.score(in_double(small, **{part: x}), question, **how).logits, values)
    checked(lambda x: foveate.score(in_double(small, **{part: x}), question, **how).map * 100, values)


def test_gradients_of_a_map_by_weights_and_by_pixels(small: Texture) -> None:
    there = in_double(small)
    names = ("saliency", "edge_on", "boundary", "colour:green")
    weights = torch.tensor([0.5, 0.2, 0.7, 0.1], dtype=torch.float64, requires_grad=True)

    def by_weights(w: torch.Tensor) -> torch.Tensor:
        return foveate.score(there, "broccoli", channel_weights=dict(zip(names, w, strict=True))).map

    checked(by_weights, weights)
    numbers = dict(zip(names, weights.tolist(), strict=True))
    here = foveate.score(small, "broccoli", channel_weights=numbers)
    np.testing.assert_allclose(by_weights(weights).detach(), here.map, atol=3e-6)
    nothing = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(by_weights(nothing).sum(), [nothing])
    assert bool((gradient > 0).all())  # also at 0, where a number would leave the channel out

    pixels = torch.from_numpy(small.pixel.astype(np.float64))[None].requires_grad_()

    def by_pixels(x: torch.Tensor) -> torch.Tensor:
        planes, asked = planes_of_batch(x, small.grid.shape), there
        for name in ("saliency", "edge_on"):
            asked = asked.with_channel(name, planes[name][0])
        return foveate.score(asked, "broccoli", channel_weights={"saliency": 0.5, "edge_on": 0.5}).map

    (gradient,) = torch.autograd.grad(by_pixels(pixels).sum(), [pixels])
    step = 1e-3 * torch.from_numpy(np.random.default_rng(1).standard_normal(pixels.shape))
    with torch.no_grad():
        slope = float((by_pixels(pixels + step) - by_pixels(pixels - step)).sum()) / 2
    assert slope == pytest.approx(float((gradient * step).sum()), rel=1e-3)
    asked = foveate.score(there.with_channel("cluster_id", torch.zeros(small.grid.shape)), "broccoli")
    assert len(foveate.allocate(asked, 32)) == 32
    assert len(asked.texture.sizes) == 1


def test_what_has_a_gradient_is_kept_and_shown_as_ever(small: Texture) -> None:
    there = replace(small.to("cpu"), z=small.to("cpu").z.float().requires_grad_())
    asked, here = foveate.score(there, "broccoli"), foveate.score(small, "broccoli")
    assert foveate.allocate(asked, 32).scores.requires_grad
    (gradient,) = torch.autograd.grad(foveate.score(there, "the red plate").map.sum(), [there.z])
    assert not bool(gradient.any())  # put together on the CPU
    np.testing.assert_array_equal(foveate.allocate(asked, 32).cpu().indices, foveate.allocate(here, 32).indices)
    np.testing.assert_allclose(np.asarray(asked), here.map, atol=3e-6)
    assert asked.confidence == pytest.approx(here.confidence, abs=3e-6)
    on = asked.map_on((5, 7))
    np.testing.assert_allclose(on.detach(), here.on(Grid(5, 7, 256, 256)).map, atol=3e-6)
    assert on.requires_grad


def test_what_is_written_on_a_thing_is_looked_for_there_also_in_a_plane_that_was_given(small: Texture) -> None:
    plane = torch.rand((64, 64), generator=torch.manual_seed(0)).round().requires_grad_()
    there, question = small.to("cpu").with_channel("text", plane), "what is written on the plate?"
    asked, here = (foveate.score(each, question, reading=False) for each in (there, there.texture))
    assert "text" in here.weights
    np.testing.assert_allclose(asked.map.detach(), here.map, atol=3e-6)
    (gradient,) = torch.autograd.grad(asked.map.sum(), [plane])
    assert bool(gradient.any())


@pytest.mark.parametrize("reading", [True, False])
def test_what_was_read_says_on_a_device_too_that_nothing_is_written_on_a_thing(small: Texture, reading: bool) -> None:
    read = small.with_channel("text", np.ones((64, 64), np.float32)).with_words(Words.of([], "by hand"))
    asked, here = (foveate.score(each, "the word on the child", reading=reading) for each in (read.to("cpu"), read))
    assert asked.confidence == pytest.approx(here.confidence, abs=3e-6)
    assert here.detected is not reading  # without it the plane of writing counts


@pytest.mark.parametrize("how", [{"prior": "gaze"}, {"preset": "gaze"}, {"prior": ...}])
def test_gradients_of_a_map_by_its_prior(small: Texture, how: Any) -> None:
    plane = torch.rand(small.grid.shape, generator=torch.manual_seed(0), dtype=torch.float64).requires_grad_()

    def by_prior(x: torch.Tensor) -> torch.Tensor:
        given = {"prior": x} if how == {"prior": ...} else how
        return foveate.score(in_double(small).with_channel("gaze", x), "broccoli", **given).map

    checked(by_prior, plane)
    given = {"prior": plane.detach().numpy()} if how == {"prior": ...} else how
    here = foveate.score(small.with_channel("gaze", plane.detach().numpy()), "broccoli", **given)
    np.testing.assert_allclose(by_prior(plane).detach(), here.map, atol=3e-4)  # kept as float16 there


def test_gradients_of_a_map_by_an_earlier_map(small: Texture) -> None:
    there = in_double(small, z=small.to("cpu").z.double().requires_grad_())
    asked = foveate.score(there, "a plate", prior=foveate.score(there, "broccoli"), prior_weight=1)
    (gradient,) = torch.autograd.grad(asked.map.sum(), [there.z])
    assert bool(gradient.any())


@pytest.mark.parametrize("part", ["z", "rows", "mean"])
def test_of_another_embedding_a_composed_phrase_is_refused(small: Texture, part: str) -> None:
    there = small.to("cpu")
    changed = replace(there, **{part: getattr(there, part) + 0.5})
    assert foveate.score(changed, "broccoli").map.shape == small.grid.shape
    for other in (changed, replace(there, z=there.z[:, :8], rows=there.rows[:8])):
        with pytest.raises(DeviceError, match=r"red plate.*replaced"):
            foveate.score(other, "the red plate")


def test_other_types_of_tensors(small: Texture) -> None:
    there, plane = small.to("cpu"), torch.rand(small.grid.shape, generator=torch.manual_seed(0)).bfloat16()
    maps = [
        foveate.score(there.with_channel("gaze", each), "broccoli", prior="gaze").map
        for each in (plane, plane.double())
    ]
    torch.testing.assert_close(maps[0], maps[1], check_dtype=False)
    torch.testing.assert_close(foveate.score(there, "broccoli", prior=plane).map, maps[0])
    wrong: tuple[Any, ...] = (plane.float().numpy(), None, plane.to(torch.complex64))
    for each in wrong:
        with pytest.raises(OptionError, match="plane"):
            there.with_channel("gaze", each)
    asked = foveate.score(there, "broccoli", channel_weights={"saliency": 0.5}).map
    for shape in ((), (1,), (1, 1, 1)):
        weight: Any = torch.full(shape, 0.5, dtype=torch.float64)
        found = foveate.score(there, "broccoli", channel_weights={"saliency": weight})
        torch.testing.assert_close(found.map, asked)  # their type and shape, too
    grids: tuple[Any, ...] = ("x", 5, None, (5, 0))
    for grid in grids:
        with pytest.raises(OptionError, match="grid="):
            found.map_on(grid)
    assert found.map_on([5, 7]).shape == (5, 7)  # type: ignore[arg-type]


def test_weights_are_learned_through_a_models_loss() -> None:
    words = [sys.executable, "examples/learn_weights.py", "--steps", "1"]
    alone = {**os.environ, "PYTHONPATH": "src"}
    assert "saliency" in subprocess.run(words, env=alone, capture_output=True, text=True, check=True).stdout
    made = runpy.run_path("examples/learn_weights.py")
    losses, weights = made["learn"](RGB[2][:420, :420], steps=6)
    assert losses[-1] < losses[0] / 5
    away = (weights - made["HIDDEN"]).abs()
    assert float((weights - 0.5).abs().max()) > 0.1  # they moved
    assert float(away[0]) < 0.25  # saliency, which counts most, towards what was hidden
