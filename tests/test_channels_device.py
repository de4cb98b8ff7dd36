"""The planes of channels="fast" by torch, as on a GPU, against OpenCV's and NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate import pipeline
from foveate.channels import build
from foveate.channels.build import CHANNEL_SETS, build_planes
from foveate.channels.saliency import compute_saliency
from foveate.channels.torch_planes import MOST_SIZES, PLANES, DeviceChannels, _Size
from foveate.channels.visual import compute_visual_planes, edge_distance
from foveate.core.image import load_image
from foveate.core.threads import map_in_order
from tests.conftest import PHOTOS

RGB = [load_image(file).rgb for file in sorted(PHOTOS.glob("*.jpg"))]
CELLS = (48, 64)
# Rounding; and the share of samples that may lie at a threshold, where a pixel is as bright as its surround.
WITHIN = dict.fromkeys(PLANES, 2e-6) | {"saliency": 1e-2}
AT_A_THRESHOLD = {"edge_on": 1e-3, "edge_off": 1e-3}


@pytest.fixture(scope="module")
def here() -> DeviceChannels:
    return DeviceChannels("cpu")


@pytest.mark.parametrize("plane", WITHIN)
def test_each_plane_is_that_of_the_cpu(here: DeviceChannels, plane: str) -> None:
    for rgb in (*RGB, RGB[0][:96, :512], RGB[1][200:277, 200:265]):
        expected = compute_visual_planes(rgb) | {"saliency": compute_saliency(rgb, CELLS)}
        found = here(rgb, CELLS)[plane]
        assert found.dtype == np.float32
        assert found.shape == expected[plane].shape
        assert expected[plane].std() > 1e-3  # there is something to be equal to
        apart = np.abs(found - expected[plane]) > WITHIN[plane]
        assert apart.mean() <= AT_A_THRESHOLD.get(plane, 0)


def test_an_image_of_one_colour_has_nothing_in_it(here: DeviceChannels) -> None:
    found = here(np.full((80, 100, 3), 77, np.uint8), (8, 10))
    assert all(found[name].max() == 0 for name in ("edge_on", "edge_off", "saliency"))
    assert found["high_pass"].max() < 1e-6
    assert (found["edge_distance"] == 1).all()


@given(st.integers(16, 40), st.integers(16, 40), st.floats(0, 1), st.integers(0, 2**31))
def test_the_distance_is_exact(h: int, w: int, share: float, seed: int) -> None:
    edges = np.random.default_rng(seed).random((h, w)) < share**3
    size = _Size(torch, torch.device("cpu"), (h * 4, w * 4), (4, 4))
    found = size._distance(torch.from_numpy(edges)).numpy()
    assert np.abs(found - edge_distance(edges)).max() < 1e-6


def test_sizes_that_were_used_last_are_kept(here: DeviceChannels) -> None:
    for i in range(MOST_SIZES + 3):
        here(RGB[0][: 64 + i, :64], (8, 8))
    assert len(here._kept) == MOST_SIZES
    pairs = [(RGB[0][:96, :96], (12, 12)), (RGB[1][:80, :96], (10, 12))] * 6
    alone = [here(*pair) for pair in pairs]
    for a, b in zip(alone, map_in_order(lambda pair: here(*pair), pairs, 4), strict=True):
        assert all((a[name] == b[name]).all() for name in WITHIN)


def test_a_texture_says_who_computed_its_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    names, z = CHANNEL_SETS["standard"], np.random.default_rng(0).standard_normal((12, 12, 4)).astype(np.float32)
    there, by = build_planes(names, RGB[0], z, device="cpu")
    plain, by_numpy = build_planes(names, RGB[0], z)
    assert sorted(there) == sorted(plain)
    assert {name for name in by if by[name] == "torch, cpu"} == {*PLANES, "saliency"}
    assert "saliency" not in by_numpy
    assert (there["cluster_id"] == plain["cluster_id"]).all()
    _, by_numpy = build_planes(names, RGB[0][:40, :40], z, device="cpu")  # too small for it
    assert "saliency" not in by_numpy
    monkeypatch.setattr(pipeline, "gpu_of", lambda encoder: "cpu")
    texture = foveate.encode(RGB[0], channels="fast", long_side=160)
    assert texture.made_by["edge_on"] == "torch, cpu"


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="NEEDS A GPU: channels by a captured graph are not tested here"
)
def test_a_captured_graph_gives_the_same() -> None:
    there, here = DeviceChannels("cuda"), DeviceChannels("cpu")
    for _ in range(4):  # plain, captured, replayed
        for rgb in RGB[:2]:
            found, expected = there(rgb, CELLS), here(rgb, CELLS)
            for plane, within in WITHIN.items():
                assert (np.abs(found[plane] - expected[plane]) > 10 * within).mean() <= 2e-3
    assert all(size.replay is not None for size in there._kept.values())


def test_a_device_is_asked_only_for_its_own_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyframe asks for none of them, a question about regions neither."""
    asked: list[str] = []

    def made(device: str) -> DeviceChannels:
        asked.append(device)
        return DeviceChannels("cpu")

    monkeypatch.setattr(build, "device_channels", made)
    z = np.asarray(RGB[0][::40, ::40], np.float32)
    planes, _ = build_planes(["cluster_id"], RGB[0], z, device="cuda:0")
    assert not asked
    assert set(planes) == {"cluster_id"}
    planes, by = build_planes(["saliency"], RGB[0], z, device="cuda:0")
    assert asked == ["cuda:0"]
    assert by == {"saliency": "torch, cuda"}
