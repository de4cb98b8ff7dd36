"""The measuring sticks, on cases whose right answer is known."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveate.bench import compression, gallery, relevance
from foveate.bench.agreement import agreement, auroc, mean_estimate, ratio_estimate
from foveate.bench.coco import labelled_images, thing_names
from foveate.errors import OptionError
from foveate.viz import PAPER

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
    assert agreement(mask.astype(float), mask) == (1, 1, 1, 1, 1, 1)
    worst = agreement(-mask.astype(float), mask)
    assert worst.pointing == worst.auroc == worst.coverage_25 == 0
    assert worst.precision < 0.06


def test_precision_coverage_and_auroc_equal_their_definitions() -> None:
    rng = np.random.default_rng(0)
    plane, mask = rng.integers(0, 9, (6, 7)).astype(float), rng.random((6, 7)) < 0.3
    found = agreement(plane, mask)
    order = sorted(range(42), key=lambda i: (-plane.ravel()[i], i))
    ranked = mask.ravel()[order]
    assert found.precision == pytest.approx(np.mean([ranked[: i + 1].mean() for i in range(42) if ranked[i]]))
    assert found.coverage_10 == pytest.approx(ranked[:4].sum() / mask.sum())
    wins = [(a > b) + (a == b) / 2 for a in plane[mask] for b in plane[~mask]]
    assert found.auroc == pytest.approx(np.mean(wins))


def test_a_mask_that_covers_everything_has_no_auroc() -> None:
    found = agreement(np.random.default_rng(0).random((4, 5)), np.ones((4, 5), bool))
    assert np.isnan(found.auroc)
    assert found.precision == found.pointing == 1


def test_weights_are_repetitions() -> None:
    rng = np.random.default_rng(1)
    scores, positive, weights = rng.integers(0, 5, 30), rng.random(30) < 0.4, rng.integers(0, 4, 30)
    expected = auroc(np.repeat(scores, weights), np.repeat(positive, weights))
    assert auroc(scores, positive, weights) == pytest.approx(expected)


def test_intervals_hold_the_truth_and_shrink_with_more_images() -> None:
    rng = np.random.default_rng(2)
    few, many = (mean_estimate(rng.random(n), range(n)) for n in (30, 3000))
    assert few.low < 0.5 < few.high
    assert many.low < 0.5 < many.high
    assert many.high - many.low < 0.2 * (few.high - few.low)
    expected = 1.96 * np.sqrt(1 / 12 / 3000)
    assert (many.high - many.low) / 2 == pytest.approx(expected, rel=0.15)


def test_things_of_one_image_are_not_independent() -> None:
    values = np.random.default_rng(3).random(40)
    alone, together = (
        mean_estimate(values, range(40)),
        mean_estimate(np.repeat(values, 9), np.repeat(range(40), 9).tolist()),
    )
    assert together == pytest.approx(alone)


def test_ratio_uses_only_pairs_that_have_both() -> None:
    ratio = ratio_estimate([0.8, 0.9, 0.4], [0.4, np.nan, 0.2], [0, 1, 2])
    assert ratio == pytest.approx((2, 2, 2))
    assert np.isnan(ratio_estimate([0.8], [np.nan], [0]).mean)


@pytest.fixture
def two_images(folder: Path) -> Path:
    """The folder with a second image, mirrored, on which the masks are in the wrong place."""
    content = json.loads((folder / "annotations.json").read_text())
    with Image.open(folder / "a.jpg") as photo:
        photo.transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(folder / "gone.jpg")
    content["annotations"].append({"image_id": 8, "category_id": 1, "bbox": [0, 0, 480, 640]})
    content["categories"].append({"id": 4, "name": "zebra"})
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


def test_the_relevance_report_has_the_baselines_beside_the_encoder(two_images: Path) -> None:
    report, pairs = relevance.measure(two_images, "nano", 10)
    rows = {row["map"]: row for row in report["rows"]}
    assert list(rows) == ["nano", relevance.OTHER_THING, relevance.FOREIGN_QUESTION, relevance.FOREIGN_MAP,
                          "saliency", "centre", "uniform", "random"]  # fmt: skip
    assert report["pairs"] == len(pairs) == 3
    assert rows["nano"]["precision"]["mean"] > rows["random"]["precision"]["mean"]
    assert rows["nano"]["precision"]["low"] <= rows["nano"]["precision"]["mean"] <= rows["nano"]["precision"]["high"]
    assert report["presence"]["asked"] == 2 * 3  # sky is no thing
    assert pairs[2].found["nano"].precision == 1  # the mask is everything
    assert np.isnan(pairs[2].found[relevance.OTHER_THING].precision)  # alone in its image
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    sizes = [replace(pairs[0], share=share).size for share in (0.01, 0.011, 0.1, 0.11, 1.0)]
    assert sizes == ["small", "medium", "medium", "large", "large"]


def test_the_page_shows_every_case(two_images: Path) -> None:
    _, pairs = relevance.measure(two_images, "nano", 10)
    sheet = np.asarray(gallery.page(two_images, "nano", pairs))
    columns = [(sheet[:, x : x + 240] != np.array(PAPER)).any() for x in range(12, 12 + 3 * 252, 252)]
    assert columns == [True] * 3
    assert (np.abs(sheet.astype(int) - gallery.OUTLINE).sum(-1) == 0).sum() > 100


def test_the_command_writes_report_pairs_and_pictures(two_images: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "foveate.cli", "bench", "relevance", "--data", str(two_images), "--out", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    last = json.loads(result.stdout.splitlines()[-1])
    assert last == json.loads((out / "report.json").read_text())
    assert [row["rank"] for row in last["compression"]] == [4, 8, 16, 32, 64]
    lines = [json.loads(line) for line in (out / "pairs.jsonl").read_text().splitlines()]
    assert [line["thing"] for line in lines] == ["person", "broccoli", "person"]
    assert lines[0]["maps"]["random"].keys() == lines[0]["maps"]["nano"].keys()
    with Image.open(out / "cases.png") as page:
        assert page.size[0] > 1000
    assert "another thing in the image" in result.stdout


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
