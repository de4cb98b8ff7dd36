"""`foveate evaluate`: reading folders, numbers whose right answer is known, and the five commands."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from foveate.cli.evaluate import compression, gaze, relevance, search
from foveate.cli.evaluate.agreement import agreement, auroc, mean_estimate, ratio_estimate
from foveate.cli.evaluate.coco import half_of, read_folder
from foveate.cli.main import app
from foveate.cli.terminal import print_table, read_lines
from foveate.core.errors import FoveateError, ImageFormatError, ImageNotFoundError, OptionError, QueryError, StoreError
from foveate.store import Store
from foveate.store.basis_check import Lost, likeness
from foveate.store.hits import highest
from tests.conftest import PHOTOS
from tests.store_toys import Rivalling, Toy, picture

EPSILON = 2**-52
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


def edited(folder: Path, part: str, **changes: object) -> Path:
    """The folder with the first entry of a part changed; a value of None takes the key out."""
    content = json.loads((folder / "annotations.json").read_text())
    entry = content[part][0]
    entry.update(changes)
    content[part][0] = {key: value for key, value in entry.items() if value is not None}
    (folder / "annotations.json").write_text(json.dumps(content))
    return folder


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_agreement_equals_its_definition_also_of_perfect_and_inverted_maps() -> None:
    mask = np.zeros((10, 20), bool)
    mask[2:4, 5:10] = True
    assert agreement(mask.astype(float), mask) == (1, 1, 1, 1, 1, 1)
    everything = agreement(np.random.default_rng(0).random((4, 5)), np.ones((4, 5), bool))
    assert np.isnan(everything.auroc)
    assert everything.precision == everything.pointing == 1
    worst = agreement(-mask.astype(float), mask)
    assert worst.pointing == worst.auroc == worst.coverage_25 == 0
    assert worst.precision < 0.06
    rng = np.random.default_rng(0)
    plane, mask = rng.integers(0, 9, (6, 7)).astype(float), rng.random((6, 7)) < 0.3
    found = agreement(plane, mask)
    order = sorted(range(42), key=lambda i: (-plane.ravel()[i], i))
    ranked = mask.ravel()[order]
    assert found.precision == pytest.approx(np.mean([ranked[: i + 1].mean() for i in range(42) if ranked[i]]))
    assert found.coverage_10 == pytest.approx(ranked[:4].sum() / mask.sum())
    wins = [(a > b) + (a == b) / 2 for a in plane[mask] for b in plane[~mask]]
    assert found.auroc == pytest.approx(np.mean(wins))
    scores, positive, weights = rng.integers(0, 5, 30), rng.random(30) < 0.4, rng.integers(0, 4, 30)
    repeated = auroc(np.repeat(scores, weights), np.repeat(positive, weights))
    assert auroc(scores, positive, weights) == pytest.approx(repeated)


def test_intervals_hold_the_truth_and_shrink_with_more_images() -> None:
    rng = np.random.default_rng(2)
    few, many = (mean_estimate(rng.random(n), range(n)) for n in (30, 1000))
    assert few.low < 0.5 < few.high
    assert many.low < 0.5 < many.high
    assert many.high - many.low < 0.3 * (few.high - few.low)
    assert (many.high - many.low) / 2 == pytest.approx(1.96 * np.sqrt(1 / 12 / 1000), rel=0.15)
    values = rng.random(40)  # things of one image are not independent
    together = mean_estimate(np.repeat(values, 9), np.repeat(range(40), 9).tolist())
    assert together == pytest.approx(mean_estimate(values, range(40)))
    # a ratio uses only pairs that have both
    assert ratio_estimate([0.8, 0.9, 0.4], [0.4, np.nan, 0.2], [0, 1, 2]) == pytest.approx((2, 2, 2))
    assert np.isnan(ratio_estimate([0.8], [np.nan], [0]).mean)


def test_likeness_of_equal_reversed_and_unrelated_maps() -> None:
    maps = np.random.default_rng(0).random((5, 4096)).astype(np.float32)
    assert likeness(maps, 3 * maps + 1) == pytest.approx((1, 1))
    spearman, overlap = likeness(maps, -maps)
    assert spearman == pytest.approx(-1)
    assert overlap == 0
    assert abs(likeness(maps, np.roll(maps, 1, 0))[0]) < 0.1


# --- a COCO-style folder ----------------------------------------------------------------------------------------------


def test_masks_and_boxes_come_from_outlines_and_never_from_crowds(folder: Path) -> None:
    (item,) = read_folder(folder).labelled(10)
    assert list(item.masks) == ["person", "broccoli"]
    assert item.masks["person"].shape == (80, 60)
    assert item.masks["person"].sum() == pytest.approx(389 * 616 / 64, rel=0.03)
    rows, cols = np.nonzero(item.masks["broccoli"])
    assert (rows.min(), rows.max(), cols.min(), cols.max()) == (10, 29, 15, 39)
    assert read_folder(folder).names == ("person", "broccoli")
    assert item.boxes["person"].tolist() == [[24, 91, 640, 480]]
    assert item.boxes["broccoli"].tolist() == [[80, 120, 240, 320]]  # around the polygon, whatever its bbox says
    (item,) = read_folder(edited(folder, "annotations", bbox=[400, 600, 500, 500])).labelled(10)
    assert item.boxes["person"].tolist() == [[600, 400, 640, 480]]


def test_a_folder_without_annotations(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"annotations\.json"):
        read_folder(tmp_path)
    for content in ("", "{}", '{"images": 3, "annotations": [], "categories": []}', "[]", "[" * 200_000):
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


def test_halves_are_chosen_by_the_name_of_the_file_alone(folder: Path) -> None:
    assert [half_of(name) for name in ("000000000009.jpg", "000000000030.jpg", "x/000000000009.jpg")] == ["B", "A", "B"]
    names = [half_of(f"{i}.jpg") for i in range(1000)]
    assert 450 < names.count("A") < 550
    halves = [read_folder(folder).half(half).images for half in "AB"]
    assert [image.file for half in halves for image in half] == ["a.jpg"]


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
)
def test_a_broken_entry_is_named(folder: Path, part: str, changes: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        read_folder(edited(folder, part, **changes))


def test_an_entry_that_is_no_object_is_named(folder: Path) -> None:
    content = json.loads((folder / "annotations.json").read_text())
    wrong: list[object] = [None, "text", 5, []]
    for part, entry in product(("images", "categories", "annotations"), wrong):
        (folder / "annotations.json").write_text(json.dumps(content | {part: [entry]}))
        with pytest.raises(OptionError, match=rf"{part}\[0\].*no JSON object"):
            read_folder(folder)


def test_without_a_polygon_the_box_serves_and_ends_at_the_border(folder: Path) -> None:
    of_the_box = pytest.approx(389 * 616 / 64, rel=0.03)
    no_polygon: list[Any] = [[], [[]], [[1, 2, 3, 4]], {"counts": "a", "size": [9, 9]}]
    cases: list[tuple[str, Any, Any]] = [
        ("bbox", [-50, 10, 20, 20], 0),
        ("bbox", [-20, -20, 100, 100], 100),
        ("bbox", [400, 600, 1e300, 1e300], 50),
        ("bbox", [91, 24, 389, 616], of_the_box),
        *(("segmentation", codes, of_the_box) for codes in no_polygon),
    ]
    for name, value, cells in cases:
        (item,) = read_folder(edited(folder, "annotations", **{name: value})).labelled()
        assert (item.masks["person"].sum() if "person" in item.masks else 0) == cells


def test_annotations_of_a_larger_copy_are_scaled_and_of_a_turned_one_refused(folder: Path) -> None:
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
    with pytest.raises(OptionError, match="480 x 640 pixels, annotated at 640 x 480"):
        list(read_folder(edited(folder, "images", width=640, height=480)).labelled())


def test_images_in_a_tar_are_found_by_their_whole_name_first(folder: Path) -> None:
    for content in (b"", b"not a tar", b"\x1f\x8b\x08\x00cut"):
        (folder / "images.tar").write_bytes(content)
        with pytest.raises(OptionError, match=r"images\.tar"):
            list(read_folder(folder).labelled())
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


# --- relevance and compression ----------------------------------------------------------------------------------------


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


@pytest.mark.slow
def test_the_relevance_report_has_the_baselines_beside_the_encoder(two_images: Path) -> None:
    report, pairs = relevance.measure(read_folder(two_images), "nano", 10, SMALL)
    rows = {row["map"]: row for row in report["rows"]}
    assert list(rows) == ["nano", relevance.OTHER_THING, "saliency", "centre", "uniform", "random"]
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


@pytest.mark.slow
def test_the_command_writes_report_and_pairs_before_it_prints(
    two_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    names = list[set[str]]()

    def show(*table: Any) -> None:
        names.append({file.name for file in out.iterdir()})
        print_table(*table)

    monkeypatch.setattr("foveate.cli.terminal.print_table", show)
    options = ["--data", str(two_images), "--out", str(out), "--long-side", str(SMALL)]
    result = CliRunner().invoke(app, ["evaluate", "relevance", *options, "--json"], catch_exceptions=False)
    # whole, whoever stops reading the tables
    assert names[0] == {"report.json", "pairs.jsonl", "curve.png"}
    last = json.loads(result.stdout)
    assert last == json.loads((out / "report.json").read_text())
    assert len(last["budgets"]["covered"]["nano"]) == len(last["budgets"]["percent"]) == 7
    kept = {name: [point["mean"] for point in some] for name, some in last["budgets"]["covered"].items()}
    assert all((np.diff(shares) > -0.02).all() for shares in kept.values())  # more cells, more of the thing
    assert (np.array(kept["the thing's mask"]) >= np.array(kept["nano"]) - 1e-6).all()
    lines = [json.loads(line) for line in (out / "pairs.jsonl").read_text().splitlines()]
    assert [line["thing"] for line in lines] == ["person", "broccoli", "person"]
    assert lines[0]["maps"]["random"].keys() == lines[0]["maps"]["nano"].keys()
    assert "another thing in the image" in result.stdout


@pytest.mark.slow
def test_policies_are_compared_on_every_thing(two_images: Path, tmp_path: Path) -> None:
    options = ["--data", str(two_images), "--out", str(tmp_path), "--policies", "--json"]
    result = CliRunner().invoke(app, ["evaluate", "relevance", *options], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found == json.loads((tmp_path / "policies.json").read_text())
    rules = ["default", "topk", "coverage", "dpp", "maxmin", "saliency", "uniform", "random", "oracle"]
    name = two_images.name
    asked = {f"{name} named": 3, f"{name} beside": 1, f"{name} everything": 1}
    assert [(row["set"], row["rule"]) for row in found["rows"]] == list(product(asked, rules))
    assert {row["set"]: row["cases"] for row in found["rows"]} == asked
    for row in found["rows"]:
        means = [each["mean"] for each in row["scores"]]
        assert len(means) == len(row["cells"]) - 3 == 4
        assert row["rule"] != "oracle" or means == [1] * 4
        assert row["rule"] != "default" or not any(gap["mean"] for gap in row["default_less"])


def test_a_category_that_cannot_be_asked_is_named_and_quotes_do_not_split_it(folder: Path) -> None:
    for name in ("\u72ac", "dog " * 300):
        with pytest.raises(OptionError, match="category"):
            relevance.measure(read_folder(edited(folder, "categories", name=name)), "nano", 1)
    report, _ = relevance.measure(read_folder(edited(folder, "categories", name='a 5" "tall" man')), "nano", 1, SMALL)
    assert report["pairs"] == 2


def test_compression_keeps_more_with_more_numbers(folder: Path) -> None:
    options = ["--data", str(folder), "--long-side", str(SMALL), "--json"]
    result = CliRunner().invoke(app, ["evaluate", "compression", *options], catch_exceptions=False)
    rows = json.loads(result.stdout)["rows"]
    assert [row["rank"] for row in rows] == [4, 8, 16, 24, 32, 48, 64]
    assert rows[0]["spearman"] < rows[-1]["spearman"]
    assert rows[-1]["overlap"] > 0.97
    assert rows[-1]["difference"] < 0.05 < rows[0]["difference"]
    assert rows[-1]["own"] == pytest.approx(1, abs=0.05)
    assert rows[-1]["found"] == 1


def test_where_nothing_is_seen_nothing_can_be_found_still(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "compare_maps", lambda *_: [(4, Lost(False, False, 0.5, 0.5, 0.5, 0.5, 0.5))])
    (row,) = compression.measure(read_folder(folder), "nano", 1, SMALL)["rows"]
    assert row["cells"][:4] == ["4", "1.000", "-", "0.500"]


# --- search -----------------------------------------------------------------------------------------------------------

TOY = Toy()
ASKED = ("dog", "a cat and a mat", "red house", "sky", '"bow and arrow"')


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 small pictures, one of them twice, one of one colour, and a file that is none."""
    folder = tmp_path_factory.mktemp("toys")
    for seed in range(60):
        (folder / f"{seed:03d}.png").write_bytes(picture(seed))
    (folder / "again.png").write_bytes(picture(7))
    Image.new("RGB", (40, 30), (9, 99, 200)).save(folder / "flat.png")
    (folder / "none.jpg").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def report(toys: Path) -> dict[str, Any]:
    done: list[int] = []
    found = search.measure(search.choose_images(toys), TOY, ASKED, progress=done.append)
    assert sorted(set(done)) == list(range(64))  # each file, after none
    return found


@pytest.mark.filterwarnings("ignore::foveate.core.errors.ReadingWarning")  # a noun in quotes; nothing was read
def test_every_share_is_that_of_a_store_of_its_own(toys: Path, report: dict[str, Any], tmp_path: Path) -> None:
    """Asked through the public search alone. A longer list never finds less."""
    store = Store(tmp_path / "twin.fov", encoder=TOY)
    store.add(toys)
    ways = [{"rerank": size} for size in search.LISTS] + [{}]
    for row, how in zip(report["rows"], ways, strict=True):
        for top in (10, 1):  # no scores are equal here
            shares = []
            for text in ASKED:
                best = {hit.path for hit in store.search(text, top, rerank=len(store), exact=True)}
                shares.append(len(best & {hit.path for hit in store.search(text, 10, **how)[:top]}) / top)  # type: ignore[call-overload]
            assert row[f"top{top}"]["mean"] == pytest.approx(np.mean(shares), abs=1e-4), row
    for share in ("top10", "top1"):
        lists = [row[share]["mean"] for row in report["rows"][:4]]
        assert lists == sorted(lists)
    assert report["rows"][0]["top10"]["mean"] < 1  # else nothing is tried here
    assert all(len(row["cells"]) == len(search.COLUMNS) for row in report["rows"])
    assert (report["images"], report["same"]) == (61, 1)
    assert [Path(path).name for path, _ in report["bad"]] == ["none.jpg"]
    json.dumps(report)


def test_encoders_whose_questions_compete_are_measured(toys: Path) -> None:
    found = search.measure(search.choose_images(toys, 30), Rivalling(), ("dog", "sky"))
    assert (found["images"], len(found["bad"]), len(found["rows"])) == (29, 1, 5)
    assert found["rows"][2]["top10"]["mean"] == found["rows"][4]["top10"]["mean"] == 1  # the list holds every image


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 12), st.data())
def test_recall_is_the_best_overlap_over_all_orders_of_equals(levels: list[int], top: int, data: st.DataObject) -> None:
    exact = np.array(levels, np.float32)
    listed = np.array(data.draw(st.lists(st.integers(0, len(levels) - 1), unique=True)), np.int64)
    here = np.isin(np.arange(len(exact)), listed)
    best = np.lexsort((~here, -exact))[:top]  # of equal scores those that are listed first
    assert search.recall(exact, listed, top) == pytest.approx(here[best].mean())
    assert search.recall(exact, np.arange(len(exact)), top) == 1
    assert search.recall(exact, highest(exact, top), top) == 1


def test_which_images_and_questions(toys: Path, tmp_path: Path) -> None:
    names = [source.name for source in search.choose_images(toys, 5)]
    every = [source.name for source in search.choose_images(toys)]
    assert len(every) == 63
    assert names == [every[i] for i in (0, 16, 31, 46, 62)]
    assert search.choose_images(toys, 1000) == search.choose_images(toys)
    assert len(set(search.usual_questions())) == 100
    assert search.usual_questions(1585)[7].startswith('"')
    (tmp_path / "asked.txt").write_text("a dog\n\n  red car \na dog\n")
    assert read_lines(tmp_path / "asked.txt") == ["a dog", "red car"]


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda folder: search.choose_images(folder, 0), OptionError, "--limit 0"),
        (lambda folder: search.choose_images(folder / "empty"), ImageNotFoundError, "no image file"),
        (lambda folder: search.choose_images(folder / "gone"), ImageNotFoundError, "nothing is at"),
        (lambda folder: search.usual_questions(0), OptionError, "--questions 0"),
        (lambda folder: search.usual_questions(1586), OptionError, "--questions 1586"),
        (lambda folder: read_lines(folder / "gone.txt"), QueryError, "gone.txt"),
        (lambda folder: read_lines(folder / "blank.txt"), QueryError, "no question"),
        (lambda folder: read_lines(folder / "broken.jpg"), QueryError, "broken.jpg"),
        (lambda folder: search.measure(search.choose_images(folder), TOY, ()), QueryError, "no question"),
        (lambda folder: search.measure(search.choose_images(folder), TOY, ("dog",)), StoreError, "none of a sample"),
    ],
)
def test_what_cannot_be_searched_is_refused(
    call: Callable[[Path], object], error: type[FoveateError], named: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.txt").write_text("\n  \n")
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 no image")
    with pytest.raises(error, match=named):
        call(tmp_path)


def test_the_command_of_search_prints_a_table_and_names_bad_files(broccoli: Path, cake: Path, tmp_path: Path) -> None:
    for photograph in (broccoli, cake):  # quarters
        whole = Image.open(photograph)
        w, h = whole.width // 2, whole.height // 2
        for y, x in product((0, 1), repeat=2):
            whole.crop((x * w, y * h, x * w + w, y * h + h)).save(tmp_path / f"{photograph.stem}-{y}{x}.png")
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    (tmp_path / "asked.txt").write_text("broccoli\na cup of coffee\na spoon\n")
    options = ["--data", str(tmp_path), "--queries", str(tmp_path / "asked.txt"), "--long-side", "160"]
    run = CliRunner().invoke(app, ["evaluate", "search", *options], catch_exceptions=False)
    assert re.search(r"search as it is +1\.000 \(1\.000-1\.000\)", run.stdout)
    assert "8 images, 3 questions" in run.stdout
    assert "broken.jpg" in run.stderr


# --- gaze -------------------------------------------------------------------------------------------------------------


def made_gaze(seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    plane, fixated = rng.random((20, 30)).round(1), np.zeros((20, 30), bool)  # rounded: many are equal
    fixated.flat[rng.choice(600, 9, replace=False)] = True
    return plane, fixated, rng.random((20, 30))


@pytest.mark.parametrize("seed", range(5))
def test_gaze_metrics_equal_their_published_loops(seed: int) -> None:
    plane, fixated, density = made_gaze(seed)
    found = gaze.compare_gaze(plane, fixated, density)
    points, alarms, hits = sorted(plane[fixated], reverse=True), [0.0], [0.0]
    for level in sorted(set(points), reverse=True):  # as in AUC_Judd.m; equal values are one step
        above = sum(value >= level for value in plane.ravel())
        hit = sum(value >= level for value in points)
        hits.append(hit / len(points))
        alarms.append((above - hit) / (plane.size - len(points)))
    area = sum((b - a) * (p + q) / 2 for a, b, p, q in zip(alarms, [*alarms[1:], 1], hits, [*hits[1:], 1], strict=True))
    mine, true = plane / plane.sum(), density / density.sum()
    divergence = sum(t * np.log(EPSILON + t / (m + EPSILON)) for t, m in zip(true.flat, mine.flat, strict=True))
    nss = sum((plane[y, x] - plane.mean()) / plane.std() for y, x in np.argwhere(fixated)) / fixated.sum()
    assert found == pytest.approx((nss, area, np.corrcoef(plane.ravel(), density.ravel())[0, 1], divergence), abs=1e-9)


def test_gaze_metrics_of_perfect_inverted_and_constant_maps() -> None:
    fixated = np.zeros((10, 10), bool)
    fixated[3, 4] = True
    one = fixated.astype(float)
    assert gaze.compare_gaze(one, fixated, one) == pytest.approx((np.sqrt(99), 1, 1, 0), abs=1e-9)
    inverted = gaze.compare_gaze(1 - one, fixated, one)
    assert (inverted.auc, inverted.cc) == pytest.approx((0.5, -1))  # one threshold, at which everything is above
    assert inverted.kl > 30
    flat = gaze.compare_gaze(np.ones((10, 10)), fixated, one)
    assert flat.auc == 0.5
    assert flat.kl == pytest.approx(np.log(100))
    assert np.isnan((flat.nss, flat.cc)).all()
    for plane, at in ((one[:5], fixated), (one, ~fixated & False), (one * np.nan, fixated)):
        with pytest.raises(OptionError, match="finite maps of one shape"):
            gaze.compare_gaze(plane, at, one)


def test_fixations_come_from_tables_and_pictures_and_bad_files_say_what_is_wrong(tmp_path: Path) -> None:
    def read(name: str, text: str) -> list[list[float]]:
        (tmp_path / name).write_text(text)
        return gaze.read_fixations(tmp_path / name, (480, 640)).tolist()

    assert read("a.csv", "10,20\n639.5,479\n640,0\n-1,5\n") == [[20, 10], [479, 639.5], [0, 640], [5, -1]]
    assert read("b.csv", "\ufeffduration,Y,X\n200,20,10\n\n") == [[20, 10]]
    for name, text, what in (
        ("c.csv", "x,z\n1,2", "x and y"), ("d.csv", "x,y\n1,2\n3", "line 3"), ("e.csv", "1,2\nnan,3", "line 2"),
        ("f.mat", "", "scipy.io.loadmat"), ("i.csv", "x,y\n" + "1" * 200_000 + ",2", "field larger"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=what):
            read(name, text)
    (tmp_path / "utf16.csv").write_bytes("x,y\n1,2".encode("utf-16"))
    (tmp_path / "folder.csv").mkdir()
    for name in ("utf16.csv", "folder.csv"):
        with pytest.raises(OptionError, match="in UTF-8"):
            gaze.read_fixations(tmp_path / name, (480, 640))
    points = np.zeros((480, 640), np.uint8)
    points[20, 10] = 1
    Image.fromarray(points).save(tmp_path / "g.png")
    assert gaze.read_fixations(tmp_path / "g.png", points.shape).tolist() == [[20.5, 10.5]]
    for shape, blurred in (((640, 480), points), (points.shape, np.full_like(points, 200))):
        Image.fromarray(blurred).save(tmp_path / "h.png")
        with pytest.raises(OptionError, match="not the blurred one"):
            gaze.read_fixations(tmp_path / "h.png", shape)


def test_the_command_of_gaze_ranks_maps_by_made_fixations(tmp_path: Path) -> None:
    def run(*more: str) -> Any:
        options = ["evaluate", "gaze", "--data", str(tmp_path / "images"), *more]
        return CliRunner().invoke(app, options, catch_exceptions=False)

    for name in ("images/one", "images/two", "tracked/one", "tracked/two"):
        (tmp_path / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("one", "two"):  # of one name in two folders, as in CAT2000
        (tmp_path / f"images/{name}/001.jpg").write_bytes((PHOTOS / "child_with_broccoli.jpg").read_bytes())
        looks = rng.normal((360, 380), 25, (30, 2))  # x, y of the broccoli
        np.savetxt(tmp_path / f"tracked/{name}/001.csv", looks, delimiter=",", header="x,y", comments="")
    result = run("--fixations", str(tmp_path / "tracked"), "--query", "broccoli", "--json")
    assert result.exit_code == 0, result.output
    rows = {row["map"]: row for row in json.loads(result.stdout)["rows"]}
    asked, other = rows['"broccoli"'], rows["random"]
    assert asked["nss"]["mean"] > 1 > other["nss"]["mean"]
    assert asked["auc"]["mean"] > 0.8 > rows["saliency"]["auc"]["mean"]
    assert abs(other["auc"]["mean"] - 0.5) < 0.1
    assert asked["kl"]["mean"] < rows["uniform"]["kl"]["mean"] < other["kl"]["mean"]
    assert rows["uniform"]["cells"][1:4] == ["-", "0.50 (0.50-0.50)", "-"]
    with pytest.raises(OptionError, match="no fixations of 2"):
        run()
    for name, out in (("two", 2), ("one", 4)):
        np.savetxt(
            tmp_path / f"tracked/{name}/001.csv", [(1000, 5), (-20, 9)], delimiter=",", header="x,y", comments=""
        )
        if out == 2:
            some = run("--fixations", str(tmp_path / "tracked"), "--json")
            assert (json.loads(some.stdout)["outside"], json.loads(some.stdout)["fixations"]) == (2, 30)
            assert "2 fixations outside of their image left out; 30 count" in some.stderr
    with pytest.raises(OptionError, match="2 files with 4 fixations outside"):
        run("--fixations", str(tmp_path / "tracked"))
    (tmp_path / "tracked/three.csv").mkdir()
    (tmp_path / "tracked/one/001.csv").rename(tmp_path / "tracked/three.csv/001.csv")
    with pytest.raises(OptionError, match="one folder at a time"):
        run("--fixations", str(tmp_path / "tracked"))


def test_fixations_beside_their_images_are_no_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo, points = (PHOTOS / "child_with_broccoli.jpg").read_bytes(), np.zeros((640, 480), np.uint8)
    points[::64, ::48] = 255
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for name in ("one", "two", "none"):
            (tmp_path / folder / f"{name}.jpg").write_bytes(photo)
        Image.fromarray(points).save(tmp_path / folder / "one.png")
        Image.fromarray(points).save(tmp_path / folder / "two_fixPts.jpg", quality=95)
    monkeypatch.chdir(tmp_path)
    both = ["a", "--data", str(tmp_path / "b")]
    for data, images, without in ((both, 4, 2), ([*both, "--limit", "1"], 1, 2), (["a", "--fixations", "a"], 2, 1)):
        result = CliRunner().invoke(app, ["evaluate", "gaze", "--data", *data, "--json"], catch_exceptions=False)
        report = json.loads(result.stdout)
        assert (report["images"], report["without"]) == (images, without)
        assert f"{without} of {images + without} images have no fixations" in result.stderr
