"""Channels for the page: the same numbers as `Texture.tokens` and `Texture.mip`, and what is said of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import foveate
from foveate.core.layout import DERIVED, FULL40, Layout
from foveate.store import Store
from foveate.texture.texture import Texture
from foveate.view.app import make_app
from foveate.view.images import MOST, channel_names, describe_channels, describe_plane, levels_of
from foveate.view.opening import open_target
from foveate.view.questions import grids_of
from foveate.view.wire import unpack
from tests.conftest import PHOTOS


@pytest.fixture(scope="module")
def texture() -> Texture:
    return foveate.encode(PHOTOS / "yellow_bus.jpg")


@pytest.mark.parametrize("number", range(4))
def test_values_at_the_cells_are_those_of_tokens(texture: Texture, number: int) -> None:
    grid = grids_of(texture.grid)[number].grid
    header, arrays = describe_channels(texture, grid)
    names = [channel["name"] for channel in header["channels"]]
    assert names[:40] == list(FULL40.names)
    assert len(set(names)) == len(names)
    assert {*texture.built, "gradient", "colour_variance"} <= {*names}
    expected = texture.tokens(grid, Layout("all", tuple(names)), dtype=np.float16)
    assert arrays["values"].dtype == np.float16
    assert np.array_equal(arrays["values"].T, expected)


def test_what_is_said_of_channels(texture: Texture) -> None:
    said = {each["name"]: each for each in describe_channels(texture, texture.grid)[0]["channels"]}
    assert json.dumps(said, allow_nan=False)
    assert said["saliency"]["built"]
    assert not said["motion"]["built"]
    assert said["cluster_id"]["ids"]
    assert said["cluster_id"]["how"] == texture.made_by["cluster_id"]
    assert (said["embedding_0"]["low"], said["embedding_0"]["high"]) == (None, None)
    assert (said["saliency"]["low"], said["saliency"]["high"]) == (0, 1)
    assert said["gradient"]["family"] == said["edge_on"]["family"]
    assert said["red"]["levels"] == [0, 10]  # 640 pixels along
    assert said["edge_on"]["levels"] == [0, 8]


def test_planes_are_those_of_mip(texture: Texture) -> None:
    for name in channel_names(texture):
        for level in (0, 1, 3):
            header, arrays = describe_plane(texture, name, level)
            expected = texture.mip(name, level, warn=False).astype(np.float16)
            assert header == {"name": name, "level": level}
            assert np.array_equal(arrays["plane"], expected), (name, level)


def test_planes_are_not_kept_with_the_texture() -> None:
    texture = foveate.encode(PHOTOS / "cake_and_coffee.jpg")
    describe_channels(texture, texture.grid)
    describe_plane(texture, "gradient", 2)
    assert not any(isinstance(value, np.ndarray) for value in texture._derived.values())


def test_a_large_plane_is_never_sent_whole() -> None:
    assert levels_of((4000, 6000)) == (2, 13)  # 1000 x 1500 samples
    assert levels_of((1024, 2048)) == (0, 11)
    assert levels_of((1, 1)) == (0, 0)
    shape = (3001, 5003)
    first, _ = levels_of(shape)
    finest, finer = (np.prod([-(-side // 2**level) for side in shape]) for level in (first, first - 1))
    assert finest <= MOST < finer


def test_what_is_derived_from_many_pixels_is_left_out() -> None:
    small, large = (foveate.encode(Image.new("RGB", (2048, height)), long_side=512) for height in (1024, 1025))
    assert set(channel_names(small)) - set(channel_names(large)) == {each.name for each in DERIVED}


def test_a_texture_of_a_store_whose_image_is_gone(tmp_path: Path) -> None:
    shutil.copy(PHOTOS / "yellow_bus.jpg", tmp_path / "bus.jpg")
    store = Store(tmp_path / "store")
    store.add(tmp_path / "bus.jpg")
    (tmp_path / "bus.jpg").unlink()
    (texture,) = (store[name] for name in store)
    header, arrays = describe_channels(texture, texture.grid)
    names = [channel["name"] for channel in header["channels"]]
    expected = texture.tokens(layout=Layout("all", tuple(names)), dtype=np.float16)
    assert np.array_equal(arrays["values"].T, expected)
    assert "thumbnail" in header["channels"][names.index("red")]["how"]


def test_answers_and_errors() -> None:
    target = open_target(PHOTOS / "yellow_bus.jpg")
    with TestClient(make_app(target), base_url="http://127.0.0.1") as client:
        at = f"/api/images/{target.session['first']}"
        header, arrays = unpack(client.get(f"{at}/channels?grid=24x24").content)
        assert arrays["values"].shape == (len(header["channels"]), 576)
        header, arrays = unpack(client.get(f"{at}/planes/saliency?level=2").content)
        assert arrays["plane"].shape == (11, 16)
        for path, received in {
            "channels?grid=7x7": "grid='7x7'",
            "planes/nothing": "no channel named 'nothing'",
            "planes/saliency?level=-1": "level='-1'",
            "planes/saliency?level=9": "level 9 of saliency",
            "planes/saliency?level=one": "level='one'",
            "planes/saliency?level=%C2%B2": "level='²'",
        }.items():
            answer = client.get(f"{at}/{path}")
            assert answer.status_code == 422
            assert received in answer.json()["error"]["received"], path
            assert answer.json()["error"]["fix"]
        assert client.get("/api/images/000000000000000000000000/channels").status_code == 404


def test_every_image_has_channels() -> None:
    for size in ((1, 1), (3, 200)):
        texture = foveate.encode(Image.new("RGB", size, (200, 40, 40)))
        header, arrays = describe_channels(texture, texture.grid)
        assert np.isfinite(arrays["values"].astype(np.float32)).all()
        for channel in header["channels"]:
            for level in channel["levels"]:
                assert describe_plane(texture, channel["name"], level)[1]["plane"].size
