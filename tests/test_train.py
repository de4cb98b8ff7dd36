"""A basis for many images: exact sums, resumable gathering, a file that is believed only whole, an honest check."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

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
from foveate.core.readonly import ReadOnly
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder
from foveate.language.negatives import negatives_of, query_metric_of
from foveate.pipeline import encode
from foveate.store import Store
from foveate.store.basis_check import Checked, Kept, Limits, as_file, as_record, check, compare, overlap_nearest
from foveate.store.shared_basis import FittedBasis, Gathered, SumBatch, fit, gather, images_in
from foveate.texture.basis import Basis, Moments, compress, inward
from foveate.texture.texture import EncoderStamp
from foveate.viz.charts import basis_page
from tests.conftest import PHOTOS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("seen_once")]

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
    np.testing.assert_allclose(b, q @ found.basis().restore((x - found.mean) @ found.inward[:, :8]).T, atol=5e-3)


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
    found = gather(images_in([photos]), NANO, 700)
    assert found.done == 7
    assert [Path(path).name for path, _ in found.bad] == ["broken.jpg"]
    assert found.moments.count == 6 * 100
    assert same(found, gather(images_in([photos]), NANO, 700))
    assert not same(found, gather(images_in([photos]), NANO, 700, seed=1))


@pytest.mark.crash
def test_a_killed_process_goes_on_to_the_same_result(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import sys, time, foveate.store.shared_basis as g; from pathlib import Path;"
        "from foveate.encoders.load import load_encoder;"
        "g.EVERY = g.BATCH = 1; "
        "g.gather(g.images_in([sys.argv[1]]), load_encoder('nano'), 500, checkpoint=Path(sys.argv[2]),"
        "progress=lambda done: (print(done, flush=True), time.sleep(0.05)))"
    )
    at = tmp_path / "out.moments"
    command = [sys.executable, "-c", script, str(photos), str(at)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == "3":
                break
        process.send_signal(signal.SIGKILL)
    done = Gathered.load(at).done
    assert 3 <= done < 7
    monkeypatch.setattr("foveate.store.shared_basis.BATCH", 1)
    images, steps = images_in([photos]), list[int]()
    again = gather(images, NANO, 500, checkpoint=at, progress=steps.append)
    assert steps == list(range(done + 1, 8))
    assert again.bad == Gathered.load(at).bad == (whole := gather(images, NANO, 500)).bad
    assert same(again, whole)
    with pytest.raises(BasisFileError, match="another run"):
        gather(images, NANO, 501, checkpoint=at)


def test_sums_of_another_revision_of_the_encoder_are_refused() -> None:
    work = SumBatch("nano", 10, 0, "of last year")
    with pytest.raises(OptionError, match="revision of last year"):
        work({"number": np.arange(0), "path": np.empty(0, object), "name": np.empty(0, object)})


def test_what_a_list_names_and_is_not_there_is_a_bad_image(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed, name = photos.parent / "list.txt", sorted(photos.rglob("*.png"))[0]
    listed.write_bytes(os.fsencode(name) + b"\ngone.png\n" + os.fsencode(name) + b"\0.png\n")
    monkeypatch.chdir(photos.parent)
    found = gather(images_in([listed]), NANO, 100)
    assert (found.done, [Path(path).name for path, _ in found.bad]) == (3, [f"{name.name}\0.png", "gone.png"])


def test_the_moments_are_the_same_wherever_the_folder_is(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "elsewhere")
    images, elsewhere = images_in([photos]), images_in([tmp_path / "elsewhere"])
    whole, again = gather(images, NANO, 600), gather(elsewhere, NANO, 600)
    assert dict(whole.what) == dict(again.what)
    assert same(whole, again)
    with pytest.raises(OptionError, match="no images"):
        gather([], NANO, 600)
    with pytest.raises(OptionError, match=f"{NANO.width} and of 3"):
        whole.moments + Moments.nothing(3)


def test_folders_of_nothing_and_circles_of_links(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(ImageNotFoundError, match="no images"):
        images_in([tmp_path / "a"])
    with pytest.raises(ImageNotFoundError, match="nowhere"):
        images_in([tmp_path / "nowhere"])
    shutil.copy(PHOTOS / "yellow_bus.jpg", tmp_path / "a" / "ünï bus.JPG")
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a")
    assert [image.name for image in images_in([tmp_path, tmp_path / "a"])] == ["a/ünï bus.JPG"]


@pytest.fixture(scope="module")
def basis() -> FittedBasis:
    return fit(gather(images_in([PHOTOS]), NANO, 1500).moments, query_metric_of(NANO), 16, STAMP, {"images": 3})


def test_a_file_says_all_of_it_again(basis: FittedBasis, tmp_path: Path) -> None:
    basis.save(tmp_path / "basis.safetensors")
    again = FittedBasis.from_pretrained(str(tmp_path))
    for name in ("mean", "directions", "inward", "values"):
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
    "missing": ({}, {"inward": None}),
    "ascending": ({}, {"values": np.arange(float(NANO.width))}),
    "negative": ({}, {"values": -np.arange(float(NANO.width))}),
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
    return check(basis, sorted(PHOTOS.glob("*.jpg")), NANO, negatives_of(NANO).vectors[::40])


def test_what_a_basis_keeps_grows_with_its_rank(checked: Checked) -> None:
    assert [row.rank for row in checked.rows] == [4, 8, 16, 32, 64, 128]
    for name in (
        "variance",
        "overlap",
        "retrieval",
    ):  # not spearman: where nano hears nothing, the order of cells is noise
        values = [row.values[name] for row in checked.rows]
        assert values == sorted(values), name
    assert checked.rows[-1].values["variance"] > 0.99
    assert checked.rows[-1].values["retrieval"] > 0.9
    assert "retrieval" in checked.own.failed(Limits(retrieval=1.1))
    assert checked.images == 3
    strict = replace(checked, limits=Limits(spearman=0, overlap=0, variance=checked.rows[4].values["variance"]))
    assert not strict.passed
    assert strict.enough == 64


def test_cells_are_found_again_where_nothing_is_lost() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 8), np.float32)
    everyone = np.arange(60)
    assert overlap_nearest(x, x * 3, everyone) == 1  # cosine: lengths do not count
    assert overlap_nearest(x, rng.standard_normal((60, 8), np.float32), everyone) < 0.4
    assert overlap_nearest(x[:1], x[:1], everyone[:1]) == 1
    half = np.array(x)
    half[:, 4:] = 0
    expected = []
    for i in (7, 31):  # by hand: the ten others with the largest cosine, before and after
        both = []
        for vectors in (x, half):
            cosine = [
                -2.0 if j == i else float(v @ vectors[i] / np.linalg.norm(v) / np.linalg.norm(vectors[i]))
                for j, v in enumerate(vectors)
            ]
            both.append(set(np.argsort(cosine)[-10:].tolist()))
        expected.append(len(both[0] & both[1]) / 10)
    assert overlap_nearest(x, half, np.array([7, 31])) == pytest.approx(np.mean(expected))


def test_scores_are_off_by_no_more_than_a_texture_says(checked: Checked) -> None:
    for row in checked.rows:
        values = row.values
        assert 0 < values["ratio"] == pytest.approx(values["observed"] / values["allowed"])
        assert values["ratio"] < values["bound"] <= 1
    assert "bound" not in checked.own.failed(Limits())
    assert "bound" in checked.own.failed(Limits(bound=0.1))
    assert Limits().texts(["ratio", "bound"]) == ["", "1"]


@pytest.mark.parametrize("rank", [4, 16, 64, 128])
@pytest.mark.parametrize("keep", [as_file, as_record])
def test_the_bound_holds_of_the_worst_question_and_would_not_of_a_shorter_one(
    basis: FittedBasis, keep: Callable[..., Kept], rank: int
) -> None:
    x = (
        NANO.encode_image(load_image(PHOTOS / "yellow_bus.jpg").rgb, long_side=256)
        .full(NANO.width)
        .reshape(-1, NANO.width)
    )
    kept = keep(x, basis.basis(rank), (x - basis.mean) @ basis.inward[:, :rank])
    left = x - kept.basis.restore(kept.z.astype(np.float32))
    q = left / np.linalg.norm(left, axis=1, keepdims=True)  # a cell's worst question: along what was lost of it
    worst = np.diag(np.abs(q @ x.T - kept.scores(q)) / kept.allowed(q))
    assert 0.999 < worst.max() <= 1 + 1e-5  # what adding up in float32 costs
    assert compare(q @ x.T, q, kept)[2] == pytest.approx(worst.max(), rel=1e-6)
    shorter = replace(kept, residual=np.nextafter(kept.residual, np.float16(0)) * np.float16(0.99))
    assert compare(q @ x.T, q, shorter)[2] > 1


def coordinates(x: np.ndarray, basis: Basis) -> np.ndarray:
    return np.asarray((x - basis.mean) @ inward(basis, query_metric_of(NANO)), np.float32)


def test_what_is_kept_is_what_textures_keep(basis: FittedBasis, tmp_path: Path) -> None:
    path, q = PHOTOS / "yellow_bus.jpg", negatives_of(NANO).vectors[::200]
    x = NANO.encode_image(load_image(path).rgb).full(NANO.width).reshape(-1, NANO.width)
    encoded = encode(path, rank=16)
    own = as_file(x, encoded.basis, coordinates(x, encoded.basis))
    np.testing.assert_allclose(own.residual, encoded.residual.ravel(), rtol=0.01)
    again = replace(own, z=encoded.embedding.reshape(-1, 16), residual=encoded.residual.ravel())
    np.testing.assert_allclose(again.scores(q), encoded.scores(q).reshape(len(q), -1), atol=1e-6)
    np.testing.assert_array_equal(again.allowed(q), encoded.error_bound(q).reshape(len(q), -1))

    store = Store(tmp_path / "b.fov", basis=basis.basis(64))
    store.add(path)
    stored = store["yellow_bus.jpg"]
    kept = as_record(x, basis.basis(64), coordinates(x, basis.basis(64)))
    assert kept.z.dtype == stored.embedding.dtype == np.int8
    # the store's steps are those of a sample, so a few cells reach beyond the last one
    near = np.isclose(kept.scores(q), stored.scores(q).reshape(len(q), -1), atol=5e-3).all(0)
    assert near.mean() > 0.98
    assert (np.abs(q @ x.T - stored.scores(q).reshape(len(q), -1)) <= stored.error_bound(q).reshape(len(q), -1)).all()


def test_a_basis_of_another_encoder_is_refused(basis: FittedBasis) -> None:
    other = replace(basis, encoder=EncoderStamp("nano", "0", NANO.width))
    with pytest.raises(OptionError, match="revision 0"):
        check(other, [PHOTOS / "yellow_bus.jpg"], NANO, negatives_of(NANO).vectors[:3])
    with pytest.raises(OptionError, match="none of them readable"):
        check(basis, [PHOTOS / "nowhere.jpg"], NANO, negatives_of(NANO).vectors[:3])


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
        check(basis, [PHOTOS / "yellow_bus.jpg"], odd(fault), negatives_of(NANO).vectors[:3])


def test_an_encoder_of_one_size_has_no_second_look(photos: Path) -> None:
    found = gather(images_in([photos]), odd("one size"), 70)
    assert (found.moments.count, len(found.bad)) == (60, 1)


@pytest.mark.parametrize("change", [{"encoder": 3}, {"done": -5}, {"count": -1}, {"count": "3"}])
def test_moments_that_somebody_else_made(change: dict[str, Any], photos: Path, tmp_path: Path) -> None:
    at = tmp_path / "a.moments"
    one = gather(images_in([photos]), NANO, 90)
    what = ReadOnly({**one.what, **{k: v for k, v in change.items() if k == "encoder"}})
    moments = replace(one.moments, count=change.get("count", one.moments.count))
    replace(one, what=what, moments=moments, done=change.get("done", one.done)).save(at)
    with pytest.raises(BasisFileError):
        Gathered.load(at)


def test_nothing_but_a_basis_is_replaced(basis: FittedBasis, tmp_path: Path) -> None:
    path = tmp_path / "b.safetensors"
    path.write_text("a thesis")
    with pytest.raises(OutputError, match="is no basis"):
        basis.save(path)
    code, _, text = run("basis", "fit", PHOTOS, "-o", path)
    assert code != 0
    assert "is no basis" in text
    assert path.read_text() == "a thesis"
    assert not list(tmp_path.glob("*.moments"))
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


def test_a_page_of_odd_names_is_text_only(basis: FittedBasis, checked: Checked) -> None:
    harmful = replace(
        basis, made={"images": "<script>", "samples": "<b>"}, encoder=EncoderStamp("<i>", "<u>", NANO.width)
    )
    text = basis_page(replace(checked, bad=((os.fsdecode(b"/caf\xe9<p>.jpg"), "cut"),)), harmful)
    for tag in ("<script>", "<b>", "<i>", "<u>", "<p>.jpg"):
        assert tag not in text
    assert "caf\\udce9" in text
    assert text.encode()


class Hub:
    """Stands for huggingface_hub.HfApi: remembers what was asked of it."""

    asked: ClassVar[list[Any]] = []

    def __init__(self, token: str | None = None) -> None:
        self.asked.append(token)

    def create_repo(self, repo_id: str, **how: Any) -> None:
        self.asked.append((repo_id, how))

    def upload_folder(self, *, repo_id: str, folder_path: str, commit_message: str) -> str:
        self.asked.append((repo_id, FittedBasis.from_pretrained(folder_path).rank, commit_message))
        return "https://somewhere"


def test_the_hub(basis: FittedBasis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub, "HfApi", Hub)
    assert basis.push_to_hub("me/it", private=True, token="secret") == "https://somewhere"
    assert Hub.asked == ["secret", ("me/it", {"private": True, "exist_ok": True}), ("me/it", 16, "Basis")]
    basis.save(tmp_path / "b.safetensors")

    def download(repo: str, file: str, *, revision: str | None, token: str | None) -> str:
        if (repo, revision, token) != ("me/it", "main", "secret"):
            raise OSError("401 Client Error\nand so on")
        assert file == "basis.safetensors"
        return str(tmp_path / "b.safetensors")

    monkeypatch.setattr(hub, "hf_hub_download", download)
    assert FittedBasis.from_pretrained("me/it", revision="main", token="secret").rank == 16
    with pytest.raises(BasisFileError, match=r"'me/it' is no file .*\(401 Client Error\)") as caught:
        FittedBasis.from_pretrained("me/it")
    assert caught.value.fix
    assert caught.value.expected


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
    assert not list(tmp_path.glob("*.moments"))

    (tmp_path / "q.txt").write_text("where is the bus?\na child\n\nbroccoli\n")
    for path in photos.rglob("*[1-9].png"):
        path.unlink()
    code, said, _ = run("basis", "check", "b.safetensors", photos, "--queries", "q.txt", "--limit", "spearman=0.999")
    assert code == 1
    assert not said["passed"]
    assert said["bad"] == 1
    report = json.loads((tmp_path / "basis-check" / "report.json").read_text())
    assert report["questions"] == 3
    assert {"observed", "allowed", "ratio", "bound", "retrieval"} < set(report["rows"][0])
    page = (tmp_path / "basis-check" / "report.html").read_text()
    assert "data:image/png" in page
    assert "<th>allowed</th>" in page
    assert "data:image/jpeg" in page
    assert "broken.jpg" in page
    loose = [
        f"--limit={name}"
        for name in ("spearman=0", "overlap=0", "variance=0", "error=1", "neighbours=0", "retrieval=0")
    ]
    one = photos / "holiday" / "00.png"
    code, said, _ = run("basis", "check", "b.safetensors", one, "--queries", "q.txt", *loose)
    assert code == 0
    assert said["passed"]
