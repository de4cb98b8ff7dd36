"""Information, perspective, participation; what a fusion does with them; channels by hand; priors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate import Grid, Texture
from foveate.core.errors import OptionError
from foveate.language.cues import RAISE
from foveate.relevance.fusion import FUSIONS, Linear, Tensions, information, perspective

unit = st.floats(0, 1, width=32)


def column(texture: Texture, name: str) -> np.ndarray:
    return texture.tokens()[:, foveate.core.layout.FULL40.layer(name)].reshape(texture.grid.shape).astype(np.float64)


def test_the_formulas_word_for_word(texture: Texture) -> None:
    names = ("edge_on", "edge_off", "high_pass", "edge_distance", "saliency", "motion", "eccentricity")
    c = {name: column(texture, name) for name in names}
    info = 0.4 * np.maximum(c["edge_on"], c["edge_off"]) + 0.3 * c["high_pass"] + 0.3 * (1.0 - c["edge_distance"])
    persp = (0.6 * c["saliency"] + 0.4 * c["motion"]) * (1.0 - 0.5 * c["eccentricity"])
    assert np.allclose(information(texture), info, atol=1e-6)
    assert np.allclose(perspective(texture), persp, atol=1e-6)
    moving = np.zeros(texture.grid.shape)
    moving[10, 20] = 1
    more = perspective(texture.with_channel("motion", moving)) - perspective(texture)
    assert np.flatnonzero(more > 1e-6).tolist() == [10 * texture.grid.w + 20]


def tensions(info: float, persp: float, partic: float) -> float:
    """The seed documents' function, literally."""
    compression_bias = 0.5 + 0.5 * (1.0 - partic)
    exploitation = persp
    exploration = info
    focus_score = partic * exploitation
    diversify_score = info * exploration
    return compression_bias * focus_score + (1 - compression_bias) * diversify_score


@given(unit, unit, unit)
def test_the_three_tensions_are_the_published_ones(a: float, b: float, c: float) -> None:
    planes = (np.full((2, 3), v, np.float32) for v in (a, b, c))
    assert np.allclose(Tensions().fuse(*planes), tensions(a, b, c), atol=1e-5)


@given(unit, unit, unit, st.floats(0, 5), st.floats(0, 5), st.floats(0.1, 5))
def test_a_linear_fusion_is_a_weighted_mean(a: float, b: float, c: float, i: float, p: float, q: float) -> None:
    planes = [np.full((2, 3), v, np.float32) for v in (a, b, c)]
    found = Linear(i, p, q).fuse(*planes)
    assert np.allclose(found, np.average([a, b, c], weights=[i, p, q]), atol=1e-5)


@pytest.mark.parametrize("fusion", list(FUSIONS))
def test_every_fusion_gives_a_map_with_its_reasons(texture: Texture, fusion: str) -> None:
    plain, relevance = foveate.score(texture, "broccoli"), foveate.score(texture, "broccoli", fusion=fusion)
    expected = FUSIONS[fusion].fuse(information(texture), perspective(texture), plain.map)
    assert np.allclose(relevance.map, expected, atol=1e-6)
    assert relevance.confidence == plain.confidence  # whether it is there is the question's business alone
    assert np.array_equal(relevance.reasons["participation"], plain.reasons["participation"])
    others = set() if fusion == "participation" else {"information", "perspective"}
    assert set(relevance.reasons) == {"participation", "segment"} | others
    moved = relevance.on(foveate.Grid(8, 6, texture.grid.height, texture.grid.width))
    assert all(plane.shape == (8, 6) for plane in moved.reasons.values())


def test_a_fusion_of_ones_own(texture: Texture) -> None:
    class Upside:
        name = "upside"

        def fuse(self, information: np.ndarray, perspective: np.ndarray, participation: np.ndarray) -> np.ndarray:
            return 1 - participation

    found = foveate.score(texture, "broccoli", fusion=Upside())
    assert np.allclose(found.map, 1 - foveate.score(texture, "broccoli").map)

    class Broken(Upside):
        def fuse(self, information: np.ndarray, perspective: np.ndarray, participation: np.ndarray) -> np.ndarray:
            return participation[:3]

    with pytest.raises(OptionError, match="result of the fusion 'upside'"):
        foveate.score(texture, "broccoli", fusion=Broken())


def test_each_cell_takes_a_share_of_its_segment(texture: Texture) -> None:
    alone, usual, whole = (foveate.score(texture, "broccoli", smoothing=c).map for c in (0, 0.3, 1))
    ids = texture.channel("cluster_id")
    for number in (0, 7, int(ids.max())):
        assert np.allclose(whole[ids == number], alone[ids == number].mean(), atol=1e-5)
    assert np.allclose(usual, 0.7 * alone + 0.3 * whole, atol=1e-5)
    assert np.array_equal(foveate.score(texture, "broccoli").map, usual)
    fast = foveate.encode(texture.pixel, channels="fast")  # without segments there is nothing to take from
    assert set(foveate.score(fast, "broccoli").reasons) == {"participation"}


def test_channels_by_hand_raise_the_map(texture: Texture) -> None:
    plain = foveate.score(texture, "broccoli")
    assert dict(plain.weights) == {}
    found = foveate.score(texture, "broccoli", channel_weights={"saliency": 0.4, "colour:green": 0.2})
    saliency, green = column(texture, "saliency"), found.reasons["colour:green"]
    assert np.allclose(found.map, 1 - (1 - plain.map) * (1 - 0.4 * saliency) * (1 - 0.2 * green), atol=1e-5)
    assert dict(found.weights) == {"saliency": 0.4, "colour:green": 0.2}
    assert dict(found.on(Grid(8, 6, texture.grid.height, texture.grid.width)).weights) == dict(found.weights)
    assert np.allclose(found.reasons["saliency"], saliency, atol=1e-6)
    assert found.confidence == plain.confidence
    derived = foveate.score(texture, ["broccoli", "a child"], channel_weights={"gradient": 0.5})
    assert all(dict(each.weights) == {"gradient": 0.5} for each in derived)


def test_a_weight_by_hand_replaces_that_of_the_words(texture: Texture) -> None:
    written = texture.with_channel("text", np.eye(160, 120))
    asked = "what does the sign say?"
    assert foveate.score(written, asked).weights["text"] == RAISE
    assert foveate.score(written, asked, channel_weights={"text": 0.9}).weights["text"] == 0.9
    silent = foveate.score(written, asked, channel_weights={"text": 0})
    assert "text" not in silent.weights
    assert "text" not in silent.reasons
    assert np.array_equal(silent.map, foveate.score(written, asked, cues=False).map)


def test_a_prior_is_mixed_in(texture: Texture) -> None:
    first, plain = foveate.score(texture, "a child"), foveate.score(texture, "broccoli")
    noted = texture.with_channel("pass_1", first.map)
    for prior in (first, first.map, "pass_1"):
        found = foveate.score(noted, "broccoli", prior=prior, prior_weight=0.25)
        assert np.allclose(found.map, 0.75 * plain.map + 0.25 * first.map, atol=1e-3)  # the plane is float16
        assert set(found.reasons) == {"participation", "segment", "prior"}
    several = foveate.score(noted, ["broccoli", "a child"], prior="pass_1")
    assert np.array_equal(several[0].map, foveate.score(noted, "broccoli", prior="pass_1").map)


def test_a_budget_goes_to_all_that_entered_the_map(texture: Texture) -> None:
    bright, mask = np.zeros(texture.grid.shape, np.float32), np.zeros((160, 120))
    bright[50:60, 4:8] = mask[125:150, 10:20] = 1  # nothing stands out there
    read = texture.with_channel("text", mask)
    prior = foveate.score(texture, "a zebra", prior=0.9 * bright, prior_weight=0.9)
    for found in (foveate.score(read, "what is written here?"), prior):
        assert found.map[bright > 0].min() >= 0.5
        assert foveate.allocate(found, 128).mask[bright > 0].all()
        assert not found.detected  # whether the thing asked for is there is the question's business alone
        assert found.on(Grid(32, 24, 640, 480)).followed


def test_transparent_cells_stay_irrelevant_whatever_the_fusion() -> None:
    rgba = np.random.default_rng(0).integers(0, 256, (64, 64, 4), np.uint8)
    rgba[:32, :, 3] = 0
    texture = foveate.encode(rgba, long_side=64)
    found = foveate.score(texture, "a dog", fusion=Linear(1, 1, 1), prior=np.ones(texture.grid.shape))
    assert (found.map[:4] == 0).all()
    assert (found.map[4:] > 0).any()
    rgba[..., 3] = 128  # halved, and once
    texture = foveate.encode(rgba, long_side=64)
    mixed = foveate.score(texture, "a dog", prior=np.zeros(texture.grid.shape), prior_weight=0.0)
    assert np.allclose(mixed.map, foveate.score(texture, "a dog").map, atol=1e-6)


def test_a_prior_is_copied(texture: Texture) -> None:
    prior = np.zeros(texture.grid.shape, np.float32)
    found = foveate.score(texture, "a dog", prior=prior)
    prior[:] = 1
    assert not found.reasons["prior"].any()
    with pytest.raises(ValueError, match="read-only"):
        found.reasons["prior"][:] = 1
