"""foveate evaluate search: how good the store's short list is, on cases whose right answer is known."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from foveate.cli.evaluate import search
from foveate.cli.main import app
from foveate.core.errors import FoveateError, ImageNotFoundError, OptionError, QueryError, StoreError
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import query_metric_of
from foveate.language.query import prepare
from foveate.pipeline import score
from foveate.store import Store
from foveate.store.hits import combine_peaks, highest
from foveate.store.sources import encode_bytes
from tests.store_toys import Rivalling, Toy, picture

pytestmark = pytest.mark.slow

TOY = Toy()
ASKED = ("dog", "a cat and a mat", "red house", "sky", '"bow and arrow"')


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """130 small pictures, one of them twice, one of one colour, and a file that is none."""
    folder = tmp_path_factory.mktemp("toys")
    for seed in range(130):
        (folder / f"{seed:03d}.png").write_bytes(picture(seed))
    (folder / "again.png").write_bytes(picture(7))
    Image.new("RGB", (40, 30), (9, 99, 200)).save(folder / "flat.png")
    (folder / "none.jpg").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def report(toys: Path) -> dict[str, Any]:
    done: list[int] = []
    found = search.measure(search.choose_images(toys), TOY, ASKED, progress=done.append)
    assert done == list(range(1, 133 + 132))  # each file, then each image
    return found


def crops(photographs: list[Path], folder: Path) -> int:
    """Quarters of the photographs."""
    for photograph in photographs:
        whole = Image.open(photograph)
        w, h = whole.width // 2, whole.height // 2
        for y, x in product((0, 1), repeat=2):
            whole.crop((x * w, y * h, x * w + w, y * h + h)).save(folder / f"{photograph.stem}-{y}{x}.png")
    return 4 * len(photographs)


# --- what the numbers are ---------------------------------------------------------------------------------------------


def test_every_number_is_that_of_a_twin_that_does_it_the_long_way(toys: Path, report: dict[str, Any]) -> None:
    """Each choice from features anew: farthest points, scores and ranks by their definitions."""
    store = Store(toys.parent / "twin.fov", encoder=TOY)
    store.add(toys)
    reader = store._reader()
    assert reader is not None
    ids = reader.vectors().ids.tolist()
    textures = [reader.load("images.id = ?", id) for id in ids]
    exact = np.array(
        [
            [
                combine_peaks(
                    np.array([score(t, f'"{p}"', encoder=TOY).confidence for p in prepare(TOY, text).phrases])
                )
                for t, *_ in textures
            ]
            for text in ASKED
        ]
    )
    metric = query_metric_of(TOY)
    points = []
    for _, path, _ in textures:
        dense = encode_bytes(TOY, Path(path).read_bytes(), None)[1]
        x = dense.features.reshape(-1, TOY.width)
        points.append(reader.space.coordinates(np.zeros_like(x) if path.endswith("flat.png") else x, metric))
    cal = TOY.calibration
    for row in report["rows"]:
        assert row["numbers"] == TOY.width  # it has no more
        found: dict[int, dict[int, list[float]]] = {top: {size: [] for size in search.LISTS} for top in (10, 1)}
        for text, truth in zip(ASKED, exact, strict=True):
            vectors = prepare(TOY, text).vectors
            offset, weights = reader.space.basis.project(vectors)
            relevance = [
                np.prod([
                    1 / (1 + np.exp(-(cal.slope * float((chosen @ w + o).max()) + cal.offset)))
                    for w, o in zip(weights, offset, strict=True)
                ])
                for chosen in (far(p, row["vectors"]).astype(np.float16).astype(np.float32) for p in points)
            ]  # fmt: skip
            order = np.argsort(-np.array(relevance), kind="stable")
            for top, sizes in found.items():
                best = set(np.argsort(-truth, kind="stable")[:top].tolist())
                for size in sizes:
                    sizes[size].append(len(best & set(order[:size].tolist())) / top)
        for top, sizes in found.items():
            for size, values in sizes.items():
                assert row[f"top{top}"][size] == pytest.approx(np.mean(values), abs=1e-4), (row["vectors"], top, size)


def far(points: np.ndarray, count: int) -> np.ndarray:
    """Farthest-point sampling as it is defined."""
    chosen = [int(((points - points.mean(0)) ** 2).sum(1).argmax())]
    while len(chosen) < count:
        nearest = ((points[:, None] - points[chosen]) ** 2).sum(2).min(1)
        chosen.append(int(nearest.argmax()))
    return points[chosen]


def test_the_temporary_store_is_the_one_that_add_makes(toys: Path, tmp_path: Path) -> None:
    assert_same_store(toys, TOY, tmp_path)


def test_so_it_is_where_the_basis_is_cut_from_a_larger_one(broccoli: Path, cake: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    crops([broccoli, cake], tmp_path / "photos")
    gathered = assert_same_store(tmp_path / "photos", load_encoder("nano-fast"), tmp_path, 160)
    assert not gathered.peaks
    assert {r: v.shape for r, v in gathered.vectors.items()} == {r: (8, 8, r) for r in (64, 96, 128)}
    for numbers in (64, 96):  # a smaller choice is a part of a larger one, up to rounding
        assert np.allclose(gathered.vectors[numbers][:, 0], gathered.vectors[128][:, 0, :numbers], atol=2e-2)


def test_so_it_is_where_images_have_peaks(broccoli: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    crops([broccoli], tmp_path / "photos")
    assert assert_same_store(tmp_path / "photos", load_encoder("nano"), tmp_path, 160).peaks


def assert_same_store(photos: Path, encoder: Encoder, folder: Path, long_side: int | None = None) -> search.VectorSets:
    usual, other = (Store(folder / f"{name}.fov", encoder=encoder, long_side=long_side) for name in ("usual", "other"))
    usual.add(photos)
    gathered = search._gather(other, search.choose_images(photos), encoder, long_side, lambda done: None)
    a, b = usual._reader(), other._reader()
    assert a is not None
    assert b is not None
    assert np.array_equal(a.space.basis.rows, b.space.basis.rows)
    assert np.array_equal(a.vectors().table, b.vectors().table)
    assert (a.identity.vectors, a.identity.peaks) == (b.identity.vectors, gathered.peaks)
    if not gathered.peaks:
        kept = gathered.vectors[b.space.basis.rank][:, :6]
        assert np.array_equal(kept.reshape(b.vectors().table.shape), b.vectors().table)
    assert {usual.content_key(name) for name in usual} == {other.content_key(name) for name in other}
    assert [hit.score for hit in usual.search("a dog", 5)] == [hit.score for hit in other.search("a dog", 5)]
    return gathered


def test_the_report(report: dict[str, Any]) -> None:
    """A longer list never finds less; one row is the store's, and Store.search itself finds what it says."""
    for row in report["rows"]:
        for top in ("top10", "top1"):
            values = [row[top][size] for size in search.LISTS]
            assert values == sorted(values)
            assert 0 <= values[0] <= values[-1] <= 1
        assert len(row["cells"]) == len(search.COLUMNS)
    json.dumps(report)
    (usual,) = [row for row in report["rows"] if row["default"]]
    assert (usual["vectors"], usual["numbers"]) == (6, TOY.width)
    assert [row for row in report["rows"] if "the store's" in " ".join(row["cells"])] == [usual]
    for top in ("top10", "top1"):
        assert report["search"][top]["mean"] == pytest.approx(usual[top][50], abs=1e-4)
    assert (report["images"], report["same"]) == (131, 1)
    assert [Path(path).name for path, _ in report["bad"]] == ["none.jpg"]


def test_encoders_whose_questions_compete_are_measured_too(toys: Path) -> None:
    found = search.measure(search.choose_images(toys, 30), Rivalling(), ("dog", "sky"))
    assert (found["images"], len(found["bad"])) == (29, 1)
    assert all(row["top10"][50] == 1 for row in found["rows"])


@pytest.mark.filterwarnings("ignore::foveate.core.errors.ReadingWarning")  # a noun in quotes; nothing was read
def test_approximate_neighbours_are_asked_in_the_same_store(toys: Path, report: dict[str, Any], tmp_path: Path) -> None:
    """Against a store of its own, asked through the public search alone."""
    pytest.importorskip("faiss")
    store = Store(tmp_path / "twin.fov", encoder=TOY)
    store.add(toys)
    made = store.build_ann()
    length = report["search"]["rerank"]
    found = report["ann"]
    assert (found["lists"], found["probes"], found["recall"]) == (made.lists, made.probes, made.recall)
    assert 0 < found["probes"] < found["lists"]
    shares = {name: list[float]() for name in ("short_list", "top10", "top1")}
    for text in ASKED:
        near, exact = (store.search(text, length, rerank=length, exact=way) for way in (False, True))
        shares["short_list"].append(len({hit.path for hit in near} & {hit.path for hit in exact}) / length)
        best = store.search(text, len(store), rerank=len(store), exact=True)
        for top in (10, 1):  # no scores are equal here
            right = {hit.path for hit in best[:top]}
            shares[f"top{top}"].append(len(right & {hit.path for hit in near[:top]}) / top)
    for name, values in shares.items():
        assert found[name]["mean"] == pytest.approx(np.mean(values), abs=1e-4), name
    assert found["short_list"]["mean"] < 1  # else nothing is tried here
    assert found["top10"]["mean"] <= report["search"]["top10"]["mean"] + 0.05
    said = search.summarise(report)
    assert f"After Store.build_ann ({made.probes} of {made.lists} lists asked for 50 images): " in said
    assert f"{np.mean(shares['short_list']):.3f}" in said


def test_without_faiss_it_says_so_and_goes_on(
    toys: Path, report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "faiss":
            raise ModuleNotFoundError("No module named 'faiss'", name="faiss")
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    found = search.measure(search.choose_images(toys), TOY, ASKED)
    assert found["ann"] is None
    assert (found["rows"], found["search"]) == (report["rows"], report["search"])
    assert search.summarise(found).splitlines()[-1] == (
        "Store.build_ann was not tried: it needs faiss (pip install 'foveate[faiss]')."
    )


@given(st.lists(st.integers(0, 4), min_size=1, max_size=30), st.integers(1, 12), st.data())
def test_recall_is_the_best_overlap_over_all_orders_of_equals(levels: list[int], top: int, data: st.DataObject) -> None:
    exact = np.array(levels, np.float32)
    listed = np.array(data.draw(st.lists(st.integers(0, len(levels) - 1), unique=True)), np.int64)
    here = np.isin(np.arange(len(exact)), listed)
    best = np.lexsort((~here, -exact))[:top]  # of equal scores those that are listed first
    assert search.recall(exact, listed, top) == pytest.approx(here[best].mean())
    assert search.recall(exact, np.arange(len(exact)), top) == 1
    assert search.recall(exact, highest(exact, top), top) == 1


# --- what is asked of what --------------------------------------------------------------------------------------------


def test_which_images_and_questions(toys: Path, tmp_path: Path) -> None:
    names = [source.name for source in search.choose_images(toys, 5)]
    every = [source.name for source in search.choose_images(toys)]
    assert len(every) == 133
    assert names == [every[i] for i in (0, 33, 66, 99, 132)]
    assert search.choose_images(toys, 1000) == search.choose_images(toys)
    assert len(set(search.usual_questions())) == 100
    assert search.usual_questions(1585)[7].startswith('"')
    (tmp_path / "asked.txt").write_text("a dog\n\n  red car \na dog\n")
    assert search.read_questions(tmp_path / "asked.txt") == ("a dog", "red car")


@pytest.mark.parametrize(
    ("call", "error", "named"),
    [
        (lambda folder: search.choose_images(folder, 0), OptionError, "limit=0"),
        (lambda folder: search.choose_images(folder / "empty"), ImageNotFoundError, "no image file"),
        (lambda folder: search.choose_images(folder / "gone"), ImageNotFoundError, "nothing is at"),
        (lambda folder: search.usual_questions(0), OptionError, "questions=0"),
        (lambda folder: search.usual_questions(1586), OptionError, "questions=1586"),
        (lambda folder: search.read_questions(folder / "gone.txt"), QueryError, "gone.txt"),
        (lambda folder: search.read_questions(folder / "blank.txt"), QueryError, "no question"),
        (lambda folder: search.read_questions(folder / "broken.jpg"), QueryError, "broken.jpg"),
        (lambda folder: search.measure(search.choose_images(folder), TOY, ()), QueryError, "no question"),
        (
            lambda folder: search.measure(search.choose_images(folder), TOY, ("where is it?",)),
            QueryError,
            "names no thing",
        ),
        (lambda folder: search.measure(search.choose_images(folder), TOY, ("dog",)), StoreError, "none of a sample"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    call: Callable[[Path], object], error: type[FoveateError], named: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.txt").write_text("\n  \n")
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 no image")
    with pytest.raises(error, match=named):
        call(tmp_path)


def test_where_the_list_holds_every_image_nothing_is_lost(broccoli: Path, cake: Path, tmp_path: Path) -> None:
    """The command: its table, its words and its JSON."""
    count = crops([broccoli, cake], tmp_path)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    (tmp_path / "asked.txt").write_text("broccoli\na cup of coffee\na spoon\n")
    options = ["--data", str(tmp_path), "--queries", str(tmp_path / "asked.txt"), "--long-side", "160"]
    run = CliRunner().invoke(app, ["evaluate", "search", *options], catch_exceptions=False)
    assert "580 (the store's)" in run.stdout
    assert "Store.search, as it is (rerank 50): 1.000" in run.stdout
    assert "broken.jpg" in run.stderr
    found = json.loads(CliRunner().invoke(app, ["evaluate", "search", *options, "--json"]).stdout)
    assert (found["images"], found["questions"]) == (count, 3)
    assert [(row["vectors"], row["numbers"]) for row in found["rows"]] == [
        (1, 290),
        *((count, numbers) for numbers, count in product((64, 96, 128), (3, 4, 6, 8))),
    ]
    assert [(row["vectors"], row["numbers"]) for row in found["rows"] if row["default"]] == [(1, 290)]
    assert all(share == 1 for row in found["rows"] for top in ("top10", "top1") for share in row[top].values())
    assert found["search"]["top10"] == found["search"]["top1"] == {"mean": 1, "low": 1, "high": 1}
