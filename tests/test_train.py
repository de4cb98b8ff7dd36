"""A basis for many images: exact sums, a file that is believed only whole, an honest check."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from foveate.cli.main import app
from foveate.core.errors import BasisFileError, EncoderOutputError, ImageNotFoundError, OptionError, OutputError
from foveate.core.image import load_image
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder
from foveate.language.negatives import negatives_of, query_metric_of
from foveate.pipeline import score
from foveate.store import Store
from foveate.store.basis_check import (
    ASKED,
    NUMBERS,
    Checked,
    Lost,
    _left_out,
    check,
    compare_maps,
    in_full,
    in_shared,
    means_of,
    overlap_nearest,
    textures_of,
    truncated,
)
from foveate.store.shared_basis import FittedBasis, Gathered, fit, gather, images_in
from foveate.texture.basis import Basis, Moments, compress, inward
from foveate.texture.texture import EncoderStamp
from tests.conftest import PHOTOS

pytestmark = pytest.mark.slow

NANO = load_encoder("nano")
STAMP = EncoderStamp(NANO.name, NANO.revision, NANO.width)


def features(seed: int, n: int = 300, width: int = 12) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, width)) * np.linspace(3, 0.1, width) + rng.normal(size=width)).astype(np.float32)


@given(st.integers(0, 99), st.lists(st.integers(0, 299), max_size=4))
def test_moments_add_up_however_the_features_are_cut(seed: int, cuts: list[int]) -> None:
    x = features(seed)
    whole = Moments.nothing(12).with_features(x)
    nothing = Moments.nothing(12)
    total = sum((nothing.with_features(part) for part in np.split(x, sorted(cuts))), nothing)
    assert total.count == whole.count == 300
    np.testing.assert_allclose(total.second, whole.second, rtol=1e-12)
    np.testing.assert_allclose(whole.covariance, np.cov(x.astype(np.float64).T, bias=True), atol=1e-9)
    np.testing.assert_allclose(whole.mean, x.astype(np.float64).mean(0), atol=1e-12)


def test_for_questions_it_is_the_basis_of_one_image_where_there_is_one() -> None:
    x = (
        NANO.encode_image(load_image(PHOTOS / "yellow_bus.jpg").rgb, long_side=256)
        .full(NANO.width)
        .reshape(-1, NANO.width)
    )
    metric = query_metric_of(NANO)
    own = compress(x, rank=8, metric=metric)
    found = fit(Moments.nothing(NANO.width).with_features(x), metric, 8, STAMP, {})
    q = negatives_of(NANO).vectors[:50]
    a = q @ own.basis.restore(own.z).T
    b = q @ found.basis().restore((x - found.mean) @ inward(found.basis(), metric)).T
    np.testing.assert_allclose(a, b, atol=5e-3)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos" / "holiday"
    folder.mkdir(parents=True)
    for i, path in enumerate(sorted(PHOTOS.glob("*.jpg"))):
        image = Image.open(path)
        for j, size in enumerate(((160, 120), (120, 90))):
            image.resize(size).save(folder / f"{i}{j}.png")
    (folder / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    (folder / "notes.txt").write_text("no image")
    return tmp_path / "photos"


def same(a: Gathered, b: Gathered) -> bool:
    return np.array_equal(a.moments.second, b.moments.second) and np.array_equal(a.moments.first, b.moments.first)


def test_bad_images_are_listed_and_the_rest_is_taken_evenly(photos: Path) -> None:
    images, steps = images_in([photos]), list[int]()
    found = gather(images, NANO, 100, halves=True, progress=steps.append)
    assert steps == list(range(1, 8))
    assert [Path(path).name for path, _ in found.bad] == ["broken.jpg"]
    assert 580 < found.moments.count <= 6 * 100  # the smallest has fewer cells at half its size
    assert same(found, gather(images, NANO, 100, halves=True, workers=3))
    assert not same(found, gather(images, NANO, 100))
    with pytest.raises(OptionError, match=f"{NANO.width} and of 3"):
        found.moments + Moments.nothing(3)


def test_what_a_list_names_and_is_not_there_is_a_bad_image(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, name = photos.parent / "list.txt", sorted(photos.rglob("*.png"))[0]
    listed.write_bytes(os.fsencode(name) + b"\ngone.png\n" + os.fsencode(name) + b"\0.png\n")
    monkeypatch.chdir(photos.parent)
    found = gather(images_in([listed]), NANO, 100)
    assert [Path(path).name for path, _ in found.bad] == [f"{name.name}\0.png", "gone.png"]


def test_folders_of_nothing_and_circles_of_links(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ImageNotFoundError, match="no image file"):
        images_in([tmp_path / "a"])
    with pytest.raises(ImageNotFoundError, match="nowhere"):
        images_in([tmp_path / "nowhere"])
    shutil.copy(PHOTOS / "yellow_bus.jpg", tmp_path / "a" / "ünï bus.JPG")
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a")
    assert [image.name for image in images_in([tmp_path, tmp_path / "a"])] == ["a/ünï bus.JPG"]


@pytest.fixture(scope="module")
def basis() -> FittedBasis:
    return fit(
        gather(images_in([PHOTOS]), NANO, 500, halves=True).moments, query_metric_of(NANO), 16, STAMP, {"images": 3}
    )


def test_a_file_says_all_of_it_again(basis: FittedBasis, tmp_path: Path) -> None:
    basis.save(tmp_path / "basis.safetensors")
    again = FittedBasis.load(tmp_path / "basis.safetensors")
    for name in ("mean", "directions"):
        np.testing.assert_array_equal(getattr(again, name), getattr(basis, name))
    assert (again.rank, again.encoder, dict(again.made)) == (16, STAMP, dict(basis.made))
    assert again.basis(4).rank == 4
    np.testing.assert_array_equal(again.basis(4).rows, again.basis(64).rows[:4])
    assert f"rank 16 of {NANO.width}, nano" in repr(again)
    with pytest.raises(OptionError, match="rank=500"):
        again.basis(500)


HARMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of the header, of the tensors
    "cut": ({}, {}),
    "a texture": ({}, {}),
    "no JSON": ({}, {}),
    "format": ({"format": "foveate"}, {}),
    "version 0": ({"version": 0}, {}),
    "version 1.0": ({"version": 1.0}, {}),
    "newer": ({"version": 2}, {}),
    "rank": ({"rank": 8}, {}),
    "no rank": ({"rank": True}, {}),
    "encoder": ({"encoder": {"name": 3, "revision": "1", "width": NANO.width}}, {}),
    "made": ({"made": [1]}, {}),
    "nan": ({}, {"mean": np.full(NANO.width, np.nan, np.float32)}),
    "missing": ({}, {"beyond": None}),
    "flat rows": ({}, {"rows": np.zeros(16, np.float16)}),
    "no axis": ({}, {"mean": np.zeros((), np.float32)}),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_was_changed_is_refused(basis: FittedBasis, tmp_path: Path, harm: str) -> None:
    path, (header, tensors) = tmp_path / "basis.safetensors", HARMS[harm]
    basis.save(path)
    facts = {"format": "foveate-basis", "version": 1, "rank": 16, "encoder": vars(STAMP), "made": {}, **header}
    changed = {name: array for name, array in (load_file(path) | tensors).items() if array is not None}
    text = json.dumps(facts)[: 1 if harm == "no JSON" else None]
    save_file(changed, path, None if harm == "a texture" else {"foveate-basis": text})
    if harm == "cut":
        assert FittedBasis.load(path).rank == 16
        path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BasisFileError, match=r"basis\.safetensors"):
        FittedBasis.load(path)


@pytest.fixture(scope="module")
def checked(basis: FittedBasis) -> Checked:
    return check(basis, sorted(PHOTOS.glob("*.jpg")), NANO, [*cast(Any, NANO).names[:100], "why?", "\u72ac"])


def test_what_a_basis_keeps_grows_with_its_rank(checked: Checked) -> None:
    assert list(checked.rows) == [4, 8, 16, 24, 32, 64, 128]
    for row in checked.rows.values():
        assert tuple(row) == NUMBERS
    for name in ("variance", "found"):  # not spearman: where nano hears nothing, the order of cells is noise
        values = [row[name] for row in checked.rows.values()]
        assert values == sorted(values), name
    assert checked.rows[128]["variance"] > 0.99
    assert checked.rows[4]["difference"] > 5 * checked.rows[128]["difference"]
    assert checked.images == 3
    assert 3 <= checked.questions <= 3 * ASKED
    assert checked.worst == tuple(sorted(checked.worst, key=lambda each: each[1]))
    assert replace(checked, limits={"neighbours": 1.1}).failed(16) == ["neighbours"]
    assert replace(checked, limits={"error": 0, "difference": 1}).failed(16) == ["error"]
    strict = replace(checked, limits={"variance": checked.rows[64]["variance"], "error": 1})
    assert (strict.failed(16), strict.failed(64), strict.enough) == (["variance"], [], 64)


def test_what_is_left_out_without_making_the_features_again(basis: FittedBasis) -> None:
    texture, dense = textures_of(load_image(PHOTOS / "yellow_bus.jpg"), NANO)
    given = basis.basis(16)
    full, small = in_full(texture, dense), in_shared(texture, dense, given, inward(given, query_metric_of(NANO)))
    x = dense.full(NANO.width).reshape(dense.grid.count, -1)
    assert np.abs(full.basis.restore(full.coordinates()) - x).max() < 1e-3
    lost = ((x - given.restore(small.coordinates())) ** 2).sum()
    expected = 1 - lost / ((x - given.mean) ** 2).sum(), np.sqrt(lost / (x**2).sum())
    assert _left_out(full, small) == pytest.approx(expected, abs=2e-3)


def test_the_things_own_cells_and_what_is_still_found(basis: FittedBasis) -> None:
    texture, dense = textures_of(load_image(PHOTOS / "yellow_bus.jpg"), NANO, 24)
    full = in_full(texture, dense)
    mask = score(full, "a bus", encoder=NANO).map > 0.5
    nothing = Basis(np.zeros_like(texture.basis.mean), np.zeros((1, NANO.width), np.float16))
    blind = texture.in_basis(np.zeros((*texture.grid.shape, 1), np.float16), nothing, texture.encoder)
    ways = {"all": full, "own": truncated(texture, 24), "nothing": blind}
    found = dict(compare_maps(full, ways, {"a bus": mask}, NANO))
    assert found["all"] == pytest.approx(Lost(True, True, 1.0, 1.0, 1.0, 0.0, 1.0))
    assert (found["own"].found, found["nothing"].found) == (True, False)
    assert found["own"].kept > 0.9 > found["nothing"].kept
    means = means_of([found["own"], found["nothing"]])
    assert means["own"] == pytest.approx((found["own"].kept + found["nothing"].kept) / 2)
    assert means["found"] == 0.5
    assert np.isnan(means_of([found["own"]._replace(seen=False)])["found"])  # nothing that could be found still
    unknown = dict(compare_maps(full, ways, {"a bus": None}, NANO))
    assert np.isnan(unknown["own"].kept)
    assert unknown["own"].overlap == found["own"].overlap


def test_the_nearest_are_those_of_the_whole_vectors() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 8), np.float32)
    assert overlap_nearest(x, x * 3) == 1  # cosine: lengths do not count
    assert overlap_nearest(x, rng.standard_normal((60, 8), np.float32)) < 0.4
    assert overlap_nearest(x[:1], x[:1]) == 1
    half = np.array(x)
    half[:, 4:] = 0
    expected = []
    for i in range(60):  # by hand: the ten others with the largest cosine, before and after
        both = []
        for vectors in (x, half):
            cosine = [
                -2.0 if j == i else float(v @ vectors[i] / np.linalg.norm(v) / np.linalg.norm(vectors[i]))
                for j, v in enumerate(vectors)
            ]
            both.append(set(np.argsort(cosine)[-10:].tolist()))
        expected.append(len(both[0] & both[1]) / 10)
    assert overlap_nearest(x, half) == pytest.approx(np.mean(expected))


def test_scores_of_a_store_with_this_basis_are_off_by_no_more_than_it_says(basis: FittedBasis, tmp_path: Path) -> None:
    path, bank = PHOTOS / "yellow_bus.jpg", negatives_of(NANO).vectors[::200]
    x = NANO.encode_image(load_image(path).rgb).full(NANO.width).reshape(-1, NANO.width)
    for rank in (4, 64):
        store = Store(tmp_path / f"{rank}.fov", basis=basis.basis(rank))
        store.add(path)
        stored = store["yellow_bus.jpg"]
        assert stored.embedding.dtype == np.int8
        left = x - stored.basis.restore(stored.embedding.reshape(-1, rank).astype(np.float32))
        worst = left[:: len(left) // 50] / np.linalg.norm(left[:: len(left) // 50], axis=1, keepdims=True)
        for q in (bank, worst):  # of a cell the worst question is what was lost of it
            off = np.abs(q @ x.T - stored.scores(q).reshape(len(q), -1))
            assert (off <= stored.error_bound(q).reshape(len(q), -1) * (1 + 1e-5)).all()
        assert (off > 0.99 * stored.error_bound(worst).reshape(len(worst), -1)).any()


def test_a_basis_of_another_encoder_is_refused(basis: FittedBasis) -> None:
    other = replace(basis, encoder=EncoderStamp("nano", "0", NANO.width))
    with pytest.raises(OptionError, match="revision 0"):
        check(other, [PHOTOS / "yellow_bus.jpg"], NANO, ["bus"])
    with pytest.raises(OptionError, match="none of them readable"):
        check(basis, [PHOTOS / "nowhere.jpg"], NANO, ["bus"])
    for nothing in (["zebra"], ["\u72ac"], []):
        with pytest.raises(OptionError, match="nothing is seen"):
            check(basis, [PHOTOS / "yellow_bus.jpg"], NANO, nothing)


@dataclass(frozen=True, eq=False)
class Odd:
    """nano with a fault: "one size" takes no long side, "blind" raises, "long" breaks the contract."""

    fault: str

    def __getattr__(self, name: str) -> Any:
        return getattr(NANO, name)

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        if self.fault == "one size" and long_side is not None:
            raise OptionError("a long side", expected="none", fix="leave it out")
        if self.fault == "blind":
            raise EncoderOutputError("nothing to see", expected="eyes", fix="repair it")
        dense = NANO.encode_image(rgb, long_side=long_side)
        return replace(dense, features=dense.features * 3) if self.fault == "long" else dense


def odd(fault: str) -> Encoder:
    return cast(Encoder, Odd(fault))


@pytest.mark.parametrize(("fault", "said"), [("blind", "nothing to see"), ("long", "features of length")])
def test_a_broken_encoder_is_no_bad_image(basis: FittedBasis, photos: Path, fault: str, said: str) -> None:
    with pytest.raises(EncoderOutputError, match=said):
        gather(images_in([photos]), odd(fault), 100)
    with pytest.raises(EncoderOutputError, match=said):
        check(basis, [PHOTOS / "yellow_bus.jpg"], odd(fault), ["bus"])


def test_an_encoder_of_one_size_has_no_second_look(photos: Path) -> None:
    found = gather(images_in([photos]), odd("one size"), 10, halves=True)
    assert (found.moments.count, len(found.bad)) == (30, 1)


def test_nothing_but_a_basis_is_replaced(basis: FittedBasis, tmp_path: Path) -> None:
    path = tmp_path / "b.safetensors"
    path.write_text("a thesis")
    with pytest.raises(OutputError, match="is no basis"):
        basis.save(path)
    code, _, text = run("basis", "fit", PHOTOS, "-o", path)
    assert code != 0
    assert "is no basis" in text
    assert path.read_text() == "a thesis"
    path.unlink()
    basis.save(path)
    basis.save(path)


def test_a_file_does_not_choose_what_is_loaded(basis: FittedBasis, tmp_path: Path) -> None:
    path = tmp_path / "b.safetensors"
    replace(basis, encoder=EncoderStamp("clip:someone/else", "1", NANO.width)).save(path)
    code, _, text = run("basis", "check", path, PHOTOS, "--out", tmp_path / "out")
    assert code != 0
    assert "clip:someone/else" in text
    assert "does not load what a file names" in text


def run(*words: str | Path) -> tuple[int, dict[str, Any], str]:
    result = CliRunner().invoke(app, [*(str(word) for word in words), "--json"])
    lines = result.stdout.strip().splitlines()
    said = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    return result.exit_code, said, result.output + str(result.exception or "")


def test_the_commands(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, said, text = run("basis", "fit", photos, "-o", "b.safetensors", "--samples", "600", "--rank", "8")
    assert code == 0, text
    assert (said["images"], said["bad"], said["rank"]) == (7, 1, 8)

    (tmp_path / "q.txt").write_text("where is the bus?\na child\n\nbroccoli\n")
    for path in photos.rglob("*[1-9].png"):
        path.unlink()
    code, said, _ = run("basis", "check", "b.safetensors", photos, "--queries", "q.txt", "--limit", "spearman=0.999")
    assert code == 1
    assert not said["passed"]
    assert said["bad"] == 1
    report = json.loads((tmp_path / "basis-check" / "report.json").read_text())
    assert {"found", "overlap", "neighbours"} < set(report["rows"][0])
    assert Path(report["bad"][0]["image"]).name == "broken.jpg"
    assert report["worst"]
    with Image.open(tmp_path / "basis-check" / "variance.png") as chart:
        assert min(chart.size) > 400
    for wrong in ("bound=1", "found=much", "overlap"):
        assert "--limit" in run("basis", "check", "b.safetensors", photos, "--limit", wrong)[2]
    loose = ["--limit=overlap=0", "--limit=found=0"]
    one = photos / "holiday" / "00.png"
    code, said, _ = run("basis", "check", "b.safetensors", one, "--queries", "q.txt", *loose)
    assert code == 0
    assert said["passed"]
