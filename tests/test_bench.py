"""The measuring sticks, on cases whose right answer is known."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from benchmarks import channels, common, fusion, query, refine, textures, weights
from benchmarks.__main__ import app as benchmarks
from foveate.cli.evaluate import cases, command, compression, relevance
from foveate.cli.evaluate.agreement import agreement, auroc, mean_estimate, ratio_estimate
from foveate.cli.evaluate.coco import read_folder
from foveate.cli.main import app
from foveate.cli.terminal import print_table
from foveate.core.errors import ImageFormatError, OptionError
from foveate.store.basis_check import likeness
from foveate.viz.colours import PAPER
from tests.conftest import PHOTOS

pytestmark = pytest.mark.slow

SMALL = 128  # pixels, for the encoder, where its maps do not matter
SQUARE = [[120, 80, 320, 80, 320, 240, 120, 240]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path)


def write_folder(path: Path) -> Path:
    """A COCO-style folder with one photograph and three annotations, one of them a crowd."""
    names = (("person", 1), ("broccoli", 1), ("sky", 0))
    content = {
        "images": [{"id": 7, "file_name": "a.jpg", "height": 640, "width": 480}, {"id": 8, "file_name": "gone.jpg"}],
        "categories": [{"id": i, "name": name, "isthing": thing} for i, (name, thing) in enumerate(names, 1)],
        "annotations": [
            {"image_id": 7, "category_id": 1, "bbox": [91, 24, 389, 616], "iscrowd": 0},
            {"image_id": 7, "category_id": 2, "bbox": [0, 0, 9, 9], "segmentation": SQUARE},
            {"image_id": 7, "category_id": 2, "bbox": [0, 0, 480, 640], "iscrowd": 1},
            {"image_id": 7, "category_id": 3, "bbox": [0, 0, 480, 100]},
        ],
    }
    (path / "annotations.json").write_text(json.dumps(content))
    (path / "a.jpg").write_bytes((PHOTOS / "child_with_broccoli.jpg").read_bytes())
    return path


def test_masks_come_from_polygons_or_boxes_and_never_from_crowds(folder: Path) -> None:
    (item,) = read_folder(folder).labelled(10)
    assert list(item.masks) == ["person", "broccoli"]
    assert item.masks["person"].shape == (80, 60)
    assert item.masks["person"].sum() == pytest.approx(389 * 616 / 64, rel=0.03)
    rows, cols = np.nonzero(item.masks["broccoli"])
    assert (rows.min(), rows.max(), cols.min(), cols.max()) == (10, 29, 15, 39)
    assert read_folder(folder).names == ("person", "broccoli")


def test_boxes_lie_around_outlines(folder: Path) -> None:
    (item,) = read_folder(folder).labelled(10)
    assert item.boxes["person"].tolist() == [[24, 91, 640, 480]]
    assert item.boxes["broccoli"].tolist() == [[80, 120, 240, 320]]  # around the polygon, whatever its bbox says
    edited(folder, "annotations", bbox=[400, 600, 500, 500])
    (item,) = read_folder(folder).labelled(10)
    assert item.boxes["person"].tolist() == [[600, 400, 640, 480]]


def test_agreement_of_a_perfect_and_of_an_inverted_map() -> None:
    mask = np.zeros((10, 20), bool)
    mask[2:4, 5:10] = True
    assert agreement(mask.astype(float), mask) == (1, 1, 1, 1, 1, 1)
    everything = agreement(np.random.default_rng(0).random((4, 5)), np.ones((4, 5), bool))
    assert np.isnan(everything.auroc)
    assert everything.precision == everything.pointing == 1
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
    together = mean_estimate(np.repeat(values, 9), np.repeat(range(40), 9).tolist())
    assert together == pytest.approx(mean_estimate(values, range(40)))


def test_ratio_uses_only_pairs_that_have_both() -> None:
    ratio = ratio_estimate([0.8, 0.9, 0.4], [0.4, np.nan, 0.2], [0, 1, 2])
    assert ratio == pytest.approx((2, 2, 2))
    assert np.isnan(ratio_estimate([0.8], [np.nan], [0]).mean)


@pytest.fixture(scope="module")
def two_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with a second image, mirrored, on which the masks are in the wrong place."""
    folder = write_folder(tmp_path_factory.mktemp("two"))
    content = json.loads((folder / "annotations.json").read_text())
    with Image.open(folder / "a.jpg") as photo:
        photo.transpose(Image.Transpose.FLIP_TOP_BOTTOM).save(folder / "gone.jpg")
    content["annotations"].append({"image_id": 8, "category_id": 1, "bbox": [0, 0, 480, 640]})
    content["categories"].append({"id": 4, "name": "zebra", "isthing": 1})
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


def test_the_relevance_report_has_the_baselines_beside_the_encoder(two_images: Path) -> None:
    report, pairs = relevance.measure(read_folder(two_images), "nano", 10, SMALL)
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
    kept = {row["map"]: row for row in report["kept"]}
    assert list(kept) == ["nano", relevance.ALONE, relevance.MASK, "saliency", "centre", "uniform", "random"]
    assert kept[relevance.MASK]["iou"]["mean"] > kept["random"]["iou"]["mean"]
    *whole, covered = pairs[2].kept["nano"]
    assert whole == pytest.approx([1, 0.1, 1], abs=0.01)  # the box is everything
    assert covered == pytest.approx([percent / 100 for percent in relevance.BUDGETS], abs=0.01)
    (broccoli,) = (pair for pair in pairs if pair.thing == "broccoli")
    assert broccoli.kept[relevance.MASK].iou == 1  # its polygon is a rectangle
    assert broccoli.record()["kept"]["nano"].keys() == {"iou", "recall_10", "precision_10", "covered"}
    sizes = [replace(pairs[0], share=share).size for share in (0.01, 0.011, 0.1, 0.11, 1.0)]
    assert sizes == ["small", "medium", "medium", "large", "large"]


def test_the_command_writes_report_pairs_and_pictures(
    two_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    names = list[set[str]]()

    def show(*table: Any) -> None:
        names.append({file.name for file in out.iterdir()})
        print_table(*table)

    monkeypatch.setattr(command, "print_table", show)
    options = ["--data", str(two_images), "--out", str(out), "--long-side", str(SMALL)]
    result = CliRunner().invoke(app, ["evaluate", "relevance", *options, "--json"], catch_exceptions=False)
    assert names[0] == {
        "report.json",
        "pairs.jsonl",
        "cases.png",
        "curve.png",
    }  # whole, whoever stops reading the tables
    last = json.loads(result.stdout)
    assert last == json.loads((out / "report.json").read_text())
    assert [row["rank"] for row in last["compression"]] == [4, 8, 16, 24, 32, 48, 64]
    assert [row["rank"] for row in last["compression_maps"]] == [4, 8, 16, 24, 32, 48, 64]
    assert len(last["budgets"]["covered"]["nano"]) == len(last["budgets"]["percent"]) == 7
    kept = {name: [point["mean"] for point in some] for name, some in last["budgets"]["covered"].items()}
    assert all((np.diff(shares) > -0.02).all() for shares in kept.values())  # more cells, more of the thing
    assert (np.array(kept["the thing's mask"]) >= np.array(kept["nano"]) - 1e-6).all()
    lines = [json.loads(line) for line in (out / "pairs.jsonl").read_text().splitlines()]
    assert [line["thing"] for line in lines] == ["person", "broccoli", "person"]
    assert lines[0]["maps"]["random"].keys() == lines[0]["maps"]["nano"].keys()
    assert "another thing in the image" in result.stdout
    with Image.open(out / "cases.png") as page:
        sheet = np.asarray(page.convert("RGB"))
    assert [(sheet[:, x : x + 240] != PAPER).any() for x in range(36, 36 + 3 * 264, 264)] == [True] * 3
    assert (np.abs(sheet.astype(int) - cases.OUTLINE).sum(-1) == 0).sum() > 100


def test_likeness_of_equal_reversed_and_unrelated_maps() -> None:
    maps = np.random.default_rng(0).random((5, 4096)).astype(np.float32)
    assert likeness(maps, 3 * maps + 1) == pytest.approx((1, 1))
    spearman, overlap = likeness(maps, -maps)
    assert spearman == pytest.approx(-1)
    assert overlap == 0
    assert abs(likeness(maps, np.roll(maps, 1, 0))[0]) < 0.1


def test_compression_keeps_more_with_more_numbers(folder: Path) -> None:
    report = compression.measure(read_folder(folder), "nano", 5, 256)
    aware = [row["query_aware"] for row in report["rows"]]
    assert [row["rank"] for row in report["rows"]] == [4, 8, 16, 24, 32, 48, 64]
    assert all(a[1] <= b[1] + 0.02 for a, b in pairwise(aware))  # of the top: elsewhere the order may be noise
    maps = [row["query_aware"] for row in report["maps"]]
    assert maps[0][0] < maps[-1][0]
    assert maps[-1][1] > 0.97
    assert aware[2][0] > report["rows"][2]["seed_documents"][0]


# --- folders that are not as they should be ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", ["", "{}", '{"images": 3, "annotations": [], "categories": []}', "[]", "[" * 200_000]
)
def test_a_folder_without_annotations(tmp_path: Path, content: str) -> None:
    with pytest.raises(OptionError, match=r"annotations\.json"):
        read_folder(tmp_path)
    (tmp_path / "annotations.json").write_text(content)
    with pytest.raises(OptionError, match="COCO"):
        read_folder(tmp_path)


def test_nothing_labelled_and_bad_limits(folder: Path) -> None:
    labelled = read_folder(folder)
    (folder / "annotations.json").write_text('{"images": [], "annotations": [], "categories": []}')
    for measure in (relevance.measure, compression.measure):
        with pytest.raises(OptionError, match="no labelled image"):
            measure(read_folder(folder), "nano", 1)
        for limit in (0, -1):
            with pytest.raises(OptionError, match="limit"):
                measure(labelled, "nano", limit)


def edited(folder: Path, part: str, **changes: object) -> Path:
    """The folder with the first entry of a part changed; a value of None takes the key out."""
    content = json.loads((folder / "annotations.json").read_text())
    entry = content[part][0]
    entry.update(changes)
    content[part][0] = {key: value for key, value in entry.items() if value is not None}
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("part", "changes", "named"),
    [
        ("images", {"id": None}, r"images\[0\].*id"),
        ("images", {"id": [7]}, r"images\[0\]"),
        ("images", {"file_name": None}, r"images\[0\].*file_name"),
        ("images", {"file_name": 5}, r"images\[0\].*file_name"),
        ("images", {"width": "wide"}, r"images\[0\].*'wide'"),
        ("images", {"id": 8}, r"images\[1\].*twice"),
        ("images", {"file_name": "gone.jpg"}, r"images\[1\].*twice"),
        ("categories", {"name": None}, r"categories\[0\].*name"),
        ("categories", {"name": "  "}, r"categories\[0\].*name"),
        ("categories", {"name": "broccoli"}, r"categories\[1\].*twice"),
        ("categories", {"id": 2}, r"categories\[1\].*twice"),
        ("annotations", {"image_id": None}, r"annotations\[0\].*image_id"),
        ("annotations", {"bbox": None}, r"annotations\[0\].*bbox"),
        ("annotations", {"bbox": [1, 2, 3]}, r"annotations\[0\]"),
        ("annotations", {"bbox": [1, 2, "3", 4]}, r"annotations\[0\].*'3'"),
        ("annotations", {"bbox": [1, 2, float("nan"), 4]}, r"annotations\[0\].*nan"),
        ("annotations", {"bbox": [10, 10, -30, -30]}, r"annotations\[0\].*negative"),
        ("annotations", {"segmentation": [[1, 2, 3]]}, r"annotations\[0\]"),
        ("annotations", {"segmentation": [1, 2, 3]}, r"annotations\[0\]"),
        ("annotations", {"segmentation": ["abc"]}, r"annotations\[0\].*'a'"),
        ("annotations", {"segmentation": [[1, 2, float("inf"), 4, 5, 6]]}, r"annotations\[0\].*inf"),
    ],
)  # fmt: skip
def test_a_broken_entry_is_named(folder: Path, part: str, changes: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        read_folder(edited(folder, part, **changes))


@pytest.mark.parametrize("entry", [None, "text", 5, []])
@pytest.mark.parametrize("part", ["images", "categories", "annotations"])
def test_an_entry_that_is_no_object_is_named(folder: Path, part: str, entry: object) -> None:
    content = json.loads((folder / "annotations.json").read_text())
    (folder / "annotations.json").write_text(json.dumps(content | {part: [entry]}))
    with pytest.raises(OptionError, match=rf"{part}\[0\].*no JSON object"):
        read_folder(folder)


@pytest.mark.parametrize("segmentation", [[], [[]], [[1, 2, 3, 4]], {"counts": "abc", "size": [640, 480]}])
def test_without_a_polygon_the_box_serves(folder: Path, segmentation: object) -> None:
    (item,) = read_folder(edited(folder, "annotations", segmentation=segmentation)).labelled()
    assert item.masks["person"].sum() == pytest.approx(389 * 616 / 64, rel=0.03)


@pytest.mark.parametrize(
    ("box", "cells"), [([-50, 10, 20, 20], 0), ([-20, -20, 100, 100], 100), ([400, 600, 1e300, 1e300], 50)]
)
def test_a_box_beyond_the_border_ends_there(folder: Path, box: list[float], cells: int) -> None:
    (item,) = read_folder(edited(folder, "annotations", bbox=box)).labelled()
    assert (item.masks["person"].sum() if "person" in item.masks else 0) == cells


def test_annotations_of_a_larger_copy_are_scaled(folder: Path) -> None:
    (right,) = read_folder(folder).labelled()
    content = json.loads((folder / "annotations.json").read_text())
    content["images"][0].update(width=4800, height=6400)
    for annotation in content["annotations"]:
        annotation["bbox"] = [10 * v for v in annotation["bbox"]]
        if "segmentation" in annotation:
            annotation["segmentation"] = [[10 * v for v in p] for p in annotation["segmentation"]]
    (folder / "annotations.json").write_text(json.dumps(content))
    (large,) = read_folder(folder).labelled()
    assert all((large.masks[name] == right.masks[name]).all() for name in right.masks)


def test_annotations_of_a_turned_image_are_refused(folder: Path) -> None:
    with pytest.raises(OptionError, match="480 x 640 pixels, annotated at 640 x 480"):
        list(read_folder(edited(folder, "images", width=640, height=480)).labelled())


@pytest.mark.parametrize("name", ["\u72ac", "dog " * 300])
def test_a_category_that_cannot_be_asked_is_named(folder: Path, name: str) -> None:
    with pytest.raises(OptionError, match="category"):
        relevance.measure(read_folder(edited(folder, "categories", name=name)), "nano", 1)


def test_quotes_in_a_name_do_not_split_it(folder: Path) -> None:
    report, _ = relevance.measure(read_folder(edited(folder, "categories", name='a 5" "tall" man')), "nano", 1)
    assert report["pairs"] == 2


@pytest.mark.parametrize("content", [b"", b"not a tar", b"\x1f\x8b\x08\x00cut"])
def test_a_tar_that_is_none(folder: Path, content: bytes) -> None:
    (folder / "images.tar").write_bytes(content)
    with pytest.raises(OptionError, match=r"images\.tar"):
        list(read_folder(folder).labelled())


def test_images_in_a_tar_are_found_by_their_whole_name_first(folder: Path) -> None:
    with tarfile.open(folder / "images.tar", "w") as archive:
        archive.add(folder / "a.jpg", "c/a.jpg")
    (folder / "a.jpg").unlink()
    assert len(list(read_folder(folder).labelled(10))) == 1  # by the end of its name
    with tarfile.open(folder / "images.tar", "a") as archive:
        archive.add(folder / "annotations.json", "b/a.jpg")
    assert len(list(read_folder(edited(folder, "images", file_name="c/a.jpg")).labelled())) == 1
    with pytest.raises(OptionError, match=r"holds no 'a\.jpg'"):  # there are two, so neither
        list(read_folder(edited(folder, "images", file_name="a.jpg")).labelled())
    with pytest.raises(ImageFormatError, match=r"'b/a\.jpg' in"):
        list(read_folder(edited(folder, "images", file_name="b/a.jpg")).labelled())


def test_the_main_path_has_every_target() -> None:
    result = CliRunner().invoke(benchmarks, ["query", "--repeats", "2"], catch_exceptions=False)
    report = json.loads(result.stdout.splitlines()[-1])
    assert len(report["rows"]) == 10
    assert all(np.isfinite(row["median"]) for row in report["rows"])
    assert {"commit", "numpy", "machine"} <= set(report)
    for repeats in (0, 20_000):
        with pytest.raises(OptionError, match="repeats"):
            query.measure(common.PHOTO, repeats)


# --- balance, channels ------------------------------------------------------------------------------------------------


def test_looking_again_is_compared_with_one_look(folder: Path) -> None:
    report = refine.measure(read_folder(folder), "nano", 10)
    ways = [row["way"] for row in report["rows"]]
    assert ways[0] == refine.ALONE
    assert set(ways) == {refine.ALONE, refine.BOTH, *refine.WHOLE, *refine.BOXES}
    for row in report["rows"]:
        assert len(row["cells"]) == len(refine.COLUMNS)
        assert all(0 <= row[metric] <= 1 for metric in refine.METRICS)


def test_balance_compares_every_way_with_the_question_alone(folder: Path) -> None:
    report = fusion.measure(read_folder(folder), "nano", 10)
    first, *others = report["rows"]
    assert first["way"] == fusion.ALONE
    assert len(others) >= 10
    assert all(0 <= row[metric] <= 1 for row in report["rows"] for metric in fusion.METRICS)
    assert 0 < report["cascade"]["looked"] < 1
    json.dumps(report)


def test_channels_have_a_price() -> None:
    report = channels.measure(common.PHOTO, 1)
    assert len(report["rows"]) >= 10
    assert all(row["median"] > 0 for row in report["rows"])
    with pytest.raises(OptionError, match="repeats"):
        channels.measure(common.PHOTO, 0)


def test_textures_stand_beside_the_documents_figures() -> None:
    report = textures.measure(common.PHOTO, 1)
    assert {len(row["cells"]) for row in report["rows"]} == {len(textures.COLUMNS)}
    assert all(row["median"] > 0 for row in report["rows"])
    named = {row["what"]: row for row in report["rows"]}
    for heat in ("cold", "warm"):
        kept = named[f"273 pixels x 40, {heat}: planes, one behind the other"]
        assert kept["bytes"] == f"{273 * 40 * 64 / 1e6:.3g} MB"
        assert float(kept["of a copy"]) > 0
        assert kept["samples"]
    json.dumps(report)
    with pytest.raises(OptionError, match="repeats"):
        textures.measure(common.PHOTO, 0)


def test_cold_gathers_read_other_places_each_time() -> None:
    read: list[int] = []
    ask = textures._each(lambda at: read.append(int(at[0])), np.arange(6).reshape(3, 2))
    for _ in range(4):
        ask()
    assert read == [0, 2, 4, 0]


def test_channels_of_questions_are_measured(folder: Path) -> None:
    report = weights.measure(folder)
    assert {row["channel"] for row in report["rows"]} == {"colour_contrast", "a ramp for depth"}
    alone = [row for row in report["rows"] if row["way"] == "none"]
    assert all(row["pairs"] == 2 and row["difference"]["mean"] == 0 for row in alone)
    assert weights.listen("what colour is the moving bus?") == {"colour_contrast", "own_motion"}
    assert weights.listen("") == set()
    heard = weights.measure_hearing()
    assert [row["way"] for row in heard["rows"][:2]] == ["the table", "the table"]
    assert "are nearest to a word of their own channel" in heard["left_out"]
