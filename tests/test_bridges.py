"""Values for supervision, FiftyOne and Rerun: against stand-ins that record what they get, and against the packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import foveate
from foveate import Texture, viz
from foveate.allocation.allocation import Allocation
from foveate.core.errors import MissingExtraError, OptionError
from foveate.relevance.value import Relevance

BRIDGES: dict[str, Callable[..., Any]] = {
    "supervision": viz.to_supervision,
    "fiftyone": viz.to_fiftyone,
    "rerun": viz.to_rerun,
}


class Recorder:
    """A package that is not there: every call gives its name, its arguments and its keywords."""

    def __init__(self) -> None:
        self.logged: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **keywords: (name, arguments, keywords)

    def log(self, path: str, entity: Any, *, recording: Any) -> None:
        self.logged[path] = entity


@pytest.fixture(scope="module")
def asked(street: Texture) -> tuple[Relevance, Allocation]:
    relevance = foveate.score(street, "the bus")
    return relevance, foveate.allocate(relevance, 64)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    for name in BRIDGES:
        monkeypatch.setitem(sys.modules, name, made)
    return made


def test_boxes_begin_with_x(asked: tuple[Relevance, Allocation], package: Recorder) -> None:
    relevance, _ = asked
    name, _, given = viz.to_supervision(relevance, 0.4)
    boxes = relevance.boxes(0.4)
    assert name == "Detections"
    assert len(boxes)
    np.testing.assert_array_equal(given["xyxy"], boxes[:, [1, 0, 3, 2]])
    np.testing.assert_array_equal(given["confidence"], relevance.score_boxes(boxes))
    assert given["data"]["class_name"].tolist() == ["the bus"] * len(boxes)


def test_a_map_is_a_heatmap_and_kept_cells_are_detections(
    asked: tuple[Relevance, Allocation], package: Recorder
) -> None:
    relevance, kept = asked
    name, _, given = viz.to_fiftyone(relevance)
    assert (name, given["range"]) == ("Heatmap", [0, 1])
    np.testing.assert_array_equal(given["map"], relevance.map)
    cells = [one[2] for one in viz.to_fiftyone(kept, "seen")[2]["detections"]]
    boxes = np.array([cell["bounding_box"] for cell in cells])  # x, y, width, height as shares
    height, width = kept.grid.height, kept.grid.width
    corners = np.concatenate([boxes[:, 1::-1], (boxes[:, :2] + boxes[:, 2:])[:, ::-1]], 1) * ([height, width] * 2)
    np.testing.assert_allclose(corners, kept.grid.boxes()[kept.indices], rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose([cell["confidence"] for cell in cells], kept.scores)
    assert {cell["label"] for cell in cells} == {"seen"}


def test_rerun_gets_image_heat_boxes_and_cells(asked: tuple[Relevance, Allocation], package: Recorder) -> None:
    relevance, kept = asked
    viz.to_rerun(relevance, kept, path="bus")
    assert list(package.logged) == ["bus/image", "bus/heat", "bus/boxes", "bus/kept"]
    assert relevance.texture is not None
    np.testing.assert_array_equal(package.logged["bus/image"][1][0], relevance.texture.pixel)
    assert package.logged["bus/heat"][1][0].shape == relevance.texture.pixel.shape
    cells = package.logged["bus/kept"][2]
    found = np.concatenate([cells["mins"], cells["mins"] + cells["sizes"]], 1)[:, [1, 0, 3, 2]]
    np.testing.assert_allclose(found, kept.grid.boxes()[kept.indices], rtol=1e-6)


@pytest.mark.parametrize("name", BRIDGES)
def test_a_package_that_is_missing_is_named(
    asked: tuple[Relevance, Allocation], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=f"pip install {name}"):
        BRIDGES[name](asked[0])
    with pytest.raises(OptionError, match="pass what"):
        BRIDGES[name]("a relevance")
