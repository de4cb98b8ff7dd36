"""The measuring sticks, on cases whose right answer is known."""

from __future__ import annotations

import json
import tarfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from foveate.bench import compression, relevance
from foveate.bench.coco import labelled_images, thing_names
from foveate.errors import OptionError

SQUARE = [[120, 80, 320, 80, 320, 240, 120, 240]]


@pytest.fixture
def folder(tmp_path: Path, broccoli: Path) -> Path:
    """A COCO-style folder with one photograph and three annotations, one of them a crowd."""
    content = {
        "images": [{"id": 7, "file_name": "a.jpg", "height": 640, "width": 480}, {"id": 8, "file_name": "gone.jpg"}],
        "categories": [
            {"id": 1, "name": "person"},
            {"id": 2, "name": "broccoli"},
            {"id": 3, "name": "sky", "isthing": 0},
        ],
        "annotations": [
            {"image_id": 7, "category_id": 1, "bbox": [91, 24, 389, 616], "iscrowd": 0},
            {"image_id": 7, "category_id": 2, "bbox": [0, 0, 9, 9], "segmentation": SQUARE},
            {"image_id": 7, "category_id": 2, "bbox": [0, 0, 480, 640], "iscrowd": 1},
            {"image_id": 7, "category_id": 3, "bbox": [0, 0, 480, 100]},
        ],
    }
    (tmp_path / "annotations.json").write_text(json.dumps(content))
    (tmp_path / "a.jpg").write_bytes(broccoli.read_bytes())
    return tmp_path


def test_masks_come_from_polygons_or_boxes_and_never_from_crowds(folder: Path) -> None:
    (item,) = labelled_images(folder, 10)
    assert list(item.masks) == ["person", "broccoli"]
    assert item.masks["person"].shape == (80, 60)
    assert item.masks["person"].sum() == pytest.approx(389 * 616 / 64, rel=0.03)
    rows, cols = np.nonzero(item.masks["broccoli"])
    assert (rows.min(), rows.max(), cols.min(), cols.max()) == (10, 29, 15, 39)
    assert thing_names(folder) == ["person", "broccoli"]


def test_images_may_lie_in_a_tar(folder: Path) -> None:
    with tarfile.open(folder / "images.tar", "w") as archive:
        archive.add(folder / "a.jpg", "coco/a.jpg")
    (folder / "a.jpg").unlink()
    assert len(list(labelled_images(folder, 10))) == 1


def test_agreement_of_a_perfect_and_of_an_inverted_map() -> None:
    mask = np.zeros((10, 20), bool)
    mask[2:4, 5:10] = True
    assert relevance.agreement(mask.astype(float), mask) == (1, 1, 1)
    pointing, precision, coverage = relevance.agreement(-mask.astype(float), mask)
    assert pointing == coverage == 0
    assert precision < 0.06


def test_average_precision_equals_its_definition() -> None:
    rng = np.random.default_rng(0)
    plane, mask = rng.random((6, 7)), rng.random((6, 7)) < 0.3
    ranked = mask.ravel()[np.argsort(-plane.ravel())]
    expected = np.mean([ranked[: i + 1].mean() for i in range(42) if ranked[i]])
    assert relevance.agreement(plane, mask)[1] == pytest.approx(expected)


def test_the_relevance_table_has_the_baselines_beside_the_encoder(folder: Path) -> None:
    report = relevance.measure(folder, "nano", 10)
    rows = {row["map"]: row for row in report["rows"]}
    assert list(rows) == ["nano", "another thing in the image", "saliency", "centre", "random"]
    assert report["pairs"] == 2
    assert rows["nano"]["average_precision"] > rows["random"]["average_precision"]


def test_likeness_of_equal_reversed_and_unrelated_maps() -> None:
    maps = np.random.default_rng(0).random((5, 4096)).astype(np.float32)
    assert compression.likeness(maps, 3 * maps + 1) == pytest.approx((1, 1))
    spearman, overlap = compression.likeness(maps, -maps)
    assert spearman == pytest.approx(-1)
    assert overlap == 0
    assert abs(compression.likeness(maps, np.roll(maps, 1, 0))[0]) < 0.1


def test_compression_keeps_more_with_more_numbers(folder: Path) -> None:
    report = compression.measure(folder, "nano", 5)
    aware = [row["query_aware"] for row in report["rows"]]
    assert [row["rank"] for row in report["rows"]] == [4, 8, 16, 32, 64]
    assert all(a[0] <= b[0] + 1e-3 for a, b in pairwise(aware))
    assert aware[2][0] > report["rows"][2]["seed_documents"][0]


@pytest.mark.parametrize("content", ["", "{}", '{"images": 3, "annotations": [], "categories": []}', "[]"])
def test_a_folder_without_annotations(tmp_path: Path, content: str) -> None:
    with pytest.raises(OptionError, match=r"annotations\.json"):
        thing_names(tmp_path)
    (tmp_path / "annotations.json").write_text(content)
    with pytest.raises(OptionError, match="COCO"):
        relevance.measure(tmp_path, "nano", 1)


def test_a_folder_without_anything_labelled(tmp_path: Path) -> None:
    (tmp_path / "annotations.json").write_text('{"images": [], "annotations": [], "categories": []}')
    with pytest.raises(OptionError, match="no labelled image"):
        relevance.measure(tmp_path, "nano", 1)
