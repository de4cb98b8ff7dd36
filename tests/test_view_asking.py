"""Questions over the viewer's routes: the numbers that Python has, on every grid; and messages of arrays."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from starlette.testclient import TestClient

import foveate
from foveate.allocation.allocation import auto_budget
from foveate.allocation.policies import to_typical_distance
from foveate.texture.texture import Texture
from foveate.view.app import make_app
from foveate.view.opening import open_target
from foveate.view.questions import NamedGrid, grids_of
from foveate.view.wire import pack, unpack
from tests.conftest import PHOTOS

BUS = PHOTOS / "yellow_bus.jpg"
QUESTIONS = ["the bus", "a bus and a wheel", "a zeppelin", "a wheel but not the bus", "what does the sign say?"]


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(make_app(open_target(BUS)), base_url="http://127.0.0.1")


@pytest.fixture(scope="module")
def first(client: TestClient) -> str:
    return str(client.get("/api/session").json()["first"])


@pytest.fixture(scope="module")
def texture() -> Texture:
    return foveate.encode(BUS, channels="standard")


def on(relevance: foveate.Relevance, each: NamedGrid) -> foveate.Relevance:
    return relevance if each.name == "cells" else relevance.on(each.grid)


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_what_score_says(client: TestClient, first: str, texture: Texture, question: str) -> None:
    header, arrays = unpack(client.post("/api/score", json={"image": first, "query": question}).content)
    relevance = foveate.score(texture, question)
    for each in grids_of(texture.grid):
        moved = on(relevance, each)
        assert np.array_equal(arrays[f"map:{each.name}"], moved.map)
        assert header["auto"][each.name] == auto_budget(moved) == len(foveate.allocate(moved))
    assert header["confidence"] == relevance.confidence
    assert header["detected"] == relevance.detected
    assert header["trust"] == relevance.trust
    assert header["confidences"] == dict(relevance.confidences)
    assert header["phrases"] == list(relevance.parts)
    assert header["unknown"] == list(relevance.unknown)
    assert header["ignored"] == list(relevance.ignored)
    assert np.array_equal(np.reshape(header["boxes"], (-1, 4)), relevance.boxes())
    assert header["words"] == []


@pytest.mark.parametrize("number", range(4))
def test_points_are_what_coverage_compares(client: TestClient, first: str, texture: Texture, number: int) -> None:
    each = grids_of(texture.grid)[number]
    _, arrays = unpack(client.get(f"/api/images/{first}/points", params={"grid": each.name}).content)
    features = on(foveate.score(texture, "the bus"), each).features
    assert features is not None
    assert np.array_equal(arrays["points"], to_typical_distance(features.reshape(each.grid.count, -1)))


def test_points_of_no_grid_and_of_no_image(client: TestClient, first: str) -> None:
    refused = client.get(f"/api/images/{first}/points", params={"grid": "25x25"})
    assert refused.status_code == 422
    assert "24x24" in refused.json()["error"]["expected"]
    assert client.get("/api/images/nothing/points").status_code == 404


@pytest.mark.parametrize(
    "body", ["", "[]", "{}", '"a"', '{"image": 1, "query": "a"}', '{"image": "IMAGE", "query": ["a"]}']
)
def test_bodies_that_are_no_questions(client: TestClient, first: str, body: str) -> None:
    answer = client.post("/api/score", content=body.replace("IMAGE", first))
    assert answer.status_code == 422
    assert set(answer.json()["error"]) == {"received", "expected", "fix"}


# --- messages of arrays -----------------------------------------------------------------------------------------------

TYPES = [np.dtype(name) for name in ("<f4", "<f2", "<i4", "u1")]
arrays_of = st.dictionaries(
    st.text(max_size=8),
    st.sampled_from(TYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    ),
    max_size=4,
)


@given(st.dictionaries(st.text(max_size=8), st.text() | st.integers() | st.none()), arrays_of)
def test_a_message_is_read_as_it_was_written(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    message = pack(header, arrays)
    said, found = unpack(message)
    assert said == header
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()
    length = int.from_bytes(message[:8], "little")
    assert length % 8 == 0
    for name, about in json.loads(message[8 : 8 + length]).items():  # the page reads them without a copy
        assert name == "__metadata__" or about["data_offsets"][0] % found[name].itemsize == 0


def test_an_array_in_another_order() -> None:
    turned = np.arange(12, dtype="f4").reshape(3, 4).T
    assert np.array_equal(unpack(pack({}, {"turned": turned}))[1]["turned"], turned)
