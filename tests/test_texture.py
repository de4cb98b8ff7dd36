"""The texture as a value: native resolution, named channels, sampling, mips, tables."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate import Grid, Texture
from foveate.core.errors import ChannelError, OptionError, UnbuiltChannelWarning
from foveate.core.grid import resize_map
from foveate.core.layout import CHANNELS, FULL40, MVP13, Layout
from tests.conftest import PHOTOS


@pytest.fixture(scope="module")
def bus() -> Texture:
    return foveate.encode(PHOTOS / "yellow_bus.jpg")  # 427 x 640: neither side a multiple of 8


def test_channels_have_their_native_sizes_and_ranges(texture: Texture) -> None:
    sizes = {"pixel": (640, 480), "quarter": (160, 120), "cell": (64, 48), "position": (64, 48)}
    for channel in CHANNELS:
        plane = texture.channel(channel.name, warn=False)
        assert plane.shape == sizes[channel.native], channel.name
        assert plane.dtype == np.float32
        assert np.isfinite(plane).all()
        assert plane.min() >= channel.low
        assert plane.max() <= channel.high


def test_unbuilt_channels_are_neutral_and_warn_where_they_are_named(texture: Texture) -> None:
    unbuilt = [channel for channel in CHANNELS if not texture.has(channel.name)]
    for channel in unbuilt:
        assert channel.name not in texture.planes
        with pytest.warns(UnbuiltChannelWarning, match=f"'{channel.name}'.*was not built") as caught:
            assert (texture.channel(channel.name) == channel.neutral).all()
        assert caught[0].filename == __file__
    with pytest.warns(UnbuiltChannelWarning, match="channels=.'text'"):
        texture.mip("text", 2)
    with pytest.warns(UnbuiltChannelWarning, match="channels=.'text'"):
        texture.sample([[1, 1]], ["red", "text"])
    with pytest.warns(UnbuiltChannelWarning):  # what docs once advised: it protects nothing on a default texture
        assert not (texture.channel("text") > 0.5).any()
    with warnings.catch_warnings():  # all channels at once, and a reader who accepts the neutral value
        warnings.simplefilter("error")
        assert texture.sample([[1, 1]])[0, FULL40.layer("cluster_id")] == texture.channel("cluster_id")[0, 0]
        texture.sample([[1, 1]], MVP13)
        texture.dense(MVP13)
        texture.tokens()
        texture.channel("text", warn=False)
        texture.with_channel("text", np.ones((160, 120))).channel("text")


def test_which_channels_a_default_texture_has(texture: Texture) -> None:
    assert {"red", "edge_on", "saliency", "x", "embedding_0", "embedding_15", "edge_distance"} <= set(texture.built)
    assert {"cluster_id", "boundary"} <= set(texture.built)
    assert {"motion", "text", "gaze"}.isdisjoint(texture.built)
    assert texture.made_by["cluster_id"].startswith("kmeans")


def test_convention_y_before_x(texture: Texture) -> None:
    assert np.allclose(texture.channel("x")[0], (np.arange(48) + 0.5) / 48)
    assert np.allclose(texture.channel("y")[:, 0], (np.arange(64) + 0.5) / 64)
    assert texture.sample([[0.0, 480.0]], ["x", "y", "eccentricity"])[0].tolist() == [1, 0, 1]
    for y, x in ((3, 471), (600, 20)):
        read = texture.sample([[y + 0.5, x + 0.5]], ["red", "green", "blue"])[0]
        assert np.allclose(read * 255, texture.pixel[y, x], atol=1e-3)


@given(seed=st.integers(0, 99), name=st.sampled_from(["saliency", "embedding_0", "low_pass", "edge_on"]))
def test_sampling_at_pixel_centres_equals_upsampling_first(seed: int, name: str, bus: Texture) -> None:
    texture = bus
    rng = np.random.default_rng(seed)
    pixels = np.stack([rng.integers(0, texture.grid.height, 30), rng.integers(0, texture.grid.width, 30)], 1)
    upsampled = resize_map(texture.channel(name), (texture.grid.height, texture.grid.width))
    assert np.allclose(texture.sample(pixels + 0.5, [name])[:, 0], upsampled[pixels[:, 0], pixels[:, 1]], atol=1e-5)


def test_dense_holds_every_channel_at_every_pixel(noise: np.ndarray) -> None:
    texture = foveate.encode(noise, long_side=64)
    dense = texture.dense()
    assert dense.shape == (40, 30, 50)
    assert np.array_equal(np.rint(dense[:3] * 255), noise.transpose(2, 0, 1))
    grid = np.stack(np.meshgrid(np.arange(30), np.arange(50), indexing="ij"), -1).reshape(-1, 2) + 0.5
    for i, name in enumerate(FULL40.names):
        assert np.allclose(dense[i].ravel(), texture.sample(grid, Layout("one", (name,)))[:, 0], atol=2e-3), name


def test_the_token_table_has_one_row_a_cell(texture: Texture) -> None:
    table, layout = texture.tokens(), texture.layout
    assert table.shape == (64 * 48, 40)
    assert table.flags.c_contiguous
    for column in (layout.names.index("saliency"), layout.layer("saliency")):
        assert np.array_equal(table[:, column], texture.channel("saliency").ravel())
    red = texture.pixel[..., 0].reshape(64, 10, 48, 10).mean((1, 3)) / 255
    assert np.allclose(table[:, 0], red.ravel(), atol=1e-5)
    kept = foveate.allocate(foveate.score(texture, "broccoli"), 20)
    assert np.array_equal(table[kept.indices], table[kept.mask.ravel()])


def test_the_token_table_reduces_each_channel_by_its_own_rule(texture: Texture) -> None:
    coarse = texture.tokens(Grid(8, 6, 640, 480))
    blocks = {name: texture.channel(name).reshape(8, 20, 6, 20) for name in ("edge_on", "edge_distance", "low_pass")}
    assert np.array_equal(coarse[:, 3], blocks["edge_on"].max((1, 3)).ravel())
    assert np.array_equal(coarse[:, 34], blocks["edge_distance"].min((1, 3)).ravel())
    assert np.allclose(coarse[:, 6], blocks["low_pass"].mean((1, 3)).ravel(), atol=1e-5)


def test_a_layout_of_ones_own(texture: Texture) -> None:
    mine = Layout("mine", ("saliency", "red"))
    assert np.array_equal(texture.tokens(layout=mine), texture.tokens()[:, [8, 0]])
    assert texture.dense(layout=mine).shape == (2, 640, 480)


def test_mips_halve_by_each_channels_own_reduction(texture: Texture) -> None:
    for name, function in (("edge_on", np.max), ("edge_distance", np.min), ("low_pass", np.mean)):
        native, half = texture.mip(name, 0), texture.mip(name, 1)
        assert half.shape == (80, 60)
        assert np.allclose(half, function(native.reshape(80, 2, 60, 2), (1, 3)), atol=1e-5)
    assert texture.mip("saliency", 16).shape == (1, 1)


def test_a_texture_cannot_be_changed(texture: Texture) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        texture.name = "other"  # type: ignore[misc]
    for array in (texture.pixel, texture.embedding, texture.tokens(), texture.channel("saliency")):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(TypeError):
        texture.planes["saliency"] = texture.planes["saliency"]  # type: ignore[index]


def test_a_megapixel_stays_small() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (1024, 1024, 3), np.uint8)
    texture = foveate.encode(rgb)
    assert texture.grid.shape == (64, 64)
    assert texture.nbytes <= 6.5e6
    assert texture.query_nbytes <= 225e3


def test_scores_of_compressed_cells_are_within_their_bound(texture: Texture, broccoli: Path) -> None:
    small, full = texture, foveate.encode(broccoli, channels="fast", rank="full")
    q = foveate.load_encoder("nano").encode_text(["a dog", "broccoli", "table"])
    assert (np.abs(small.scores(q) - full.scores(q)) <= small.error_bound(q) + full.error_bound(q) + 1e-4).all()


def test_the_footprint_is_the_longer_side_of_a_sample() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1, 4000, 3), np.uint8)
    strip = foveate.encode(noise, long_side=512)  # cells of 1 x 62 pixels
    at = [[0.5, 1000.0]]
    assert strip.sample(at, ["embedding_0"], level=6) == strip.sample(at, ["embedding_0"], level=0)


def test_full_size_planes_are_not_kept() -> None:
    texture = foveate.encode(np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8))
    texture.sample([[1.0, 1.0]], ["red"])
    texture.channel("green")
    assert not [key for key in texture._derived if isinstance(key, tuple) and key[1] in ("red", "green")]


WRONG: list[tuple[type[Exception], str, Callable[[Texture], Any]]] = [
    (OptionError, "positions", lambda t: t.sample([[1.0, 2.0, 3.0]])),
    (OptionError, "positions", lambda t: t.sample([1.0, 2.0])),
    (OptionError, "positions", lambda t: t.sample([[float("nan"), 0.0]])),
    (OptionError, "999 x 111", lambda t: t.tokens(Grid(8, 8, 999, 111))),
    (OptionError, "a Grid", lambda t: t.tokens((8, 8))),  # type: ignore[call-overload]
    (ChannelError, "salience", lambda t: t.channel("salience")),
    (ChannelError, "salience", lambda t: t.sample([[1.0, 1.0]], ["salience"])),
    (OptionError, "level", lambda t: t.mip("red", -1)),
    (OptionError, "level", lambda t: t.sample([[1.0, 1.0]], ["red"], level=float("nan"))),
    *((ChannelError, "no layout named", lambda t, w=wrong: t.tokens(layout=w)) for wrong in (["red"], 5, None)),
    *((ChannelError, "no layout named", lambda t, w=wrong: t.dense(w)) for wrong in (["red"], 5, {"a": 1})),
    *((ChannelError, "channel", lambda t, w=wrong: t.sample([[1.0, 1.0]], w)) for wrong in (5, None, [["red"]], [3])),
]


@pytest.mark.parametrize(("error", "words", "call"), WRONG)
def test_unusable_arguments_say_so(
    error: type[Exception], words: str, call: Callable[[Texture], Any], texture: Texture
) -> None:
    for each in (texture, texture.with_channel("mine", np.zeros(texture.grid.shape))):
        with pytest.raises(error, match=words):
            call(each)
