"""The installed command, run as a person runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from benchmarks.command import bench
from foveate import Texture
from foveate.cli.look import slug
from foveate.core.image import load_image
from tests.conftest import PHOTOS

COMMAND = Path(sys.executable).parent / "foveate"


def run(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *map(str, arguments)], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )


def last(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def fails(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit status 1, a message with its three parts and these words, and no traceback."""
    assert done.returncode == 1, (done.stdout, done.stderr)
    assert done.stderr.startswith("error: ")
    assert "expected: " in done.stderr
    assert "fix: " in done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


# --- the main job -----------------------------------------------------------------------------------------------------


def test_look_ends_with_the_promised_json(broccoli: Path, tmp_path: Path) -> None:
    result = last(run("look", broccoli, "broccoli", "a child", "--budget", 100, "--out", "out", cwd=tmp_path))
    assert {"image", "encoder", "grid", "encode_seconds", "queries"} <= set(result)
    assert result["image"] == str(broccoli)
    assert result["encoder"] == "nano"
    assert result["grid"] == [64, 48]
    assert [q["query"] for q in result["queries"]] == ["broccoli", "a child"]
    for q in result["queries"]:
        assert q["budget"] == len(q["indices"]) == 100
        assert q["indices"] == sorted(set(q["indices"]))
        assert 0 <= q["confidence"] <= 1
        assert isinstance(q["detected"], bool)
        assert q["score_seconds"] > 0
        with Image.open(tmp_path / q["png"]) as picture:
            assert picture.width > 3 * 300
        content = json.loads((tmp_path / q["json"]).read_text())
        assert content["indices"] == q["indices"]
        assert np.array(content["map"]).shape == (64, 48)
    assert len(list((tmp_path / "out").iterdir())) == 4


def test_the_kept_cells_are_the_bright_ones_in_the_picture(broccoli: Path, tmp_path: Path) -> None:
    q = last(run("look", broccoli, "broccoli", "-k", 200, cwd=tmp_path))["queries"][0]
    with Image.open(tmp_path / q["png"]) as picture:
        page = np.asarray(picture.convert("RGB")).astype(int)
    photo, _, panel = (page[42:522, 12 + i * (360 + 12) :][:, :360] for i in range(3))  # of 64 x 48 cells
    mask = np.zeros(64 * 48, bool)
    mask[q["indices"]] = True
    rows, cols = ((np.arange(n) + 0.5) * m // n for n, m in ((480, 64), (360, 48)))
    shown = mask.reshape(64, 48)[rows.astype(int)][:, cols.astype(int)]
    assert (panel.max(-1) - panel.min(-1))[~shown].max() == 0  # dropped cells are grey
    assert np.array_equal(panel[shown], photo[shown])
    assert panel[~shown].mean() < 0.4 * photo[~shown].mean()


def test_encode_then_look_reuses_the_texture(broccoli: Path, tmp_path: Path) -> None:
    made = last(run("encode", broccoli, "-o", "t.safetensors", cwd=tmp_path))
    assert made["bytes"] == (tmp_path / "t.safetensors").stat().st_size
    again = last(run("look", "t.safetensors", "broccoli", cwd=tmp_path))
    fresh = last(run("look", broccoli, "broccoli", cwd=tmp_path))
    assert again["queries"][0]["indices"] == fresh["queries"][0]["indices"]
    assert again["image"] == "t.safetensors"
    assert Texture.load(tmp_path / "t.safetensors").name == broccoli.name


def test_demo_runs_from_anywhere_and_offline(tmp_path: Path) -> None:
    done = run("demo", "--out", "pictures", cwd=tmp_path, HF_HUB_OFFLINE="1")
    records = last(done)["demo"]
    assert len(records) == 2
    assert sum(len(r["queries"]) for r in records) == 4
    for q in (q for r in records for q in r["queries"]):
        assert q["png"] in done.stdout.replace("\n", "")
        assert len(json.loads((tmp_path / q["json"]).read_text())["indices"]) == 273
        assert (tmp_path / q["png"]).stat().st_size > 50_000


def test_channels_draws_one_sheet(broccoli: Path, tmp_path: Path) -> None:
    result = last(run("channels", broccoli, cwd=tmp_path))
    with Image.open(tmp_path / result["png"]) as sheet:
        assert sheet.width > 1000
    assert "saliency" in result["built"]


def test_doctor_is_content(tmp_path: Path) -> None:
    result = last(run("doctor", cwd=tmp_path))
    assert result["ok"] is True
    assert "encoder nano" in [row["what"] for row in result["rows"]]


def test_bench_query_prints_every_target(tmp_path: Path) -> None:
    done = CliRunner().invoke(bench, ["query", "--repeats", "10"], catch_exceptions=False)
    result = json.loads(done.stdout.splitlines()[-1])
    assert len(result["rows"]) == 10
    assert all(np.isfinite(row["median"]) for row in result["rows"])
    assert {"commit", "numpy", "machine"} <= set(result)


def test_help_names_every_command_and_version_is_one_line(tmp_path: Path) -> None:
    text = run("--help", cwd=tmp_path).stdout
    for command in ("look", "encode", "channels", "demo", "doctor", "evaluate"):
        assert f"\n  {command} " in text
    assert run("--version", cwd=tmp_path).stdout.strip().count(".") == 2
    nothing = run(cwd=tmp_path)
    assert "foveate demo" in nothing.stdout + nothing.stderr


def test_two_questions_with_one_file_name_do_not_overwrite_each_other(broccoli: Path, tmp_path: Path) -> None:
    names = [q["png"] for q in last(run("look", broccoli, "a dog", "A dog!", cwd=tmp_path))["queries"]]
    assert len(set(names)) == 2


@pytest.mark.parametrize(
    ("query", "name"), [("Where is the red car?", "where-is-the-red-car"), ("a" * 200, "a" * 60), ("../../etc", "etc")]
)
def test_file_names_of_questions(query: str, name: str) -> None:
    assert slug(query) == name


def test_a_question_without_ascii_still_gets_a_name() -> None:
    assert len(slug("где")) == 12


def test_python_m_foveate_is_the_command(tmp_path: Path) -> None:
    def module(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "foveate", *arguments], cwd=tmp_path, capture_output=True, text=True
        )

    assert last(module("doctor"))
    fails(module("look", "none.jpg", "a dog"), "none.jpg")


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_images(tmp_path: Path, broccoli: Path) -> None:
    (tmp_path / "text.jpg").write_text("words")
    (tmp_path / "empty.png").touch()
    (tmp_path / "half.jpg").write_bytes(broccoli.read_bytes()[:20_000])
    fails(run("look", "nothing.jpg", "dog", cwd=tmp_path), "nothing.jpg", "no file")
    fails(run("look", ".", "dog", cwd=tmp_path), "directory")
    fails(run("look", "text.jpg", "dog", cwd=tmp_path), "text.jpg", "b'words'")
    fails(run("look", "empty.png", "dog", cwd=tmp_path), "0 bytes")
    fails(run("look", "half.jpg", "dog", cwd=tmp_path), "half.jpg", "cannot be decoded")
    assert not (tmp_path / "foveate-out").exists()


def test_bad_budgets(tmp_path: Path, broccoli: Path) -> None:
    for budget in (0, -5, 100_000):
        fails(run("look", broccoli, "dog", "--budget", budget, cwd=tmp_path), f"budget={budget}", "3072")
    usage = run("look", broccoli, "dog", "--budget", "many", cwd=tmp_path)
    assert usage.returncode == 2
    assert "--budget" in usage.stderr
    assert "auto" in usage.stderr


def test_bad_queries_leave_nothing_behind(tmp_path: Path, broccoli: Path) -> None:
    fails(run("look", broccoli, "broccoli", "", cwd=tmp_path), "empty query")
    fails(run("look", broccoli, "broccoli", "x y " * 2500, cwd=tmp_path), "10,000 characters")
    fails(run("look", broccoli, "где собака", cwd=tmp_path), "English")
    assert list(tmp_path.iterdir()) == []


def test_bad_encoders_and_textures(tmp_path: Path, broccoli: Path) -> None:
    fails(run("look", broccoli, "dog", "--encoder", "nan0", cwd=tmp_path), "nan0", "'nano'")
    fails(run("look", broccoli, "dog", "--encoder", "clip:/nowhere", cwd=tmp_path), "/nowhere")
    (tmp_path / "t.safetensors").write_bytes(b"not at all")
    fails(run("look", "t.safetensors", "dog", cwd=tmp_path), "t.safetensors", "encode the image again")


def test_bad_places(tmp_path: Path, broccoli: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    fails(run("look", broccoli, "dog", "--out", "taken", cwd=tmp_path), "taken", "--out")
    fails(run("encode", broccoli, "-o", "no/such/t.safetensors", cwd=tmp_path), "t.safetensors")


def test_an_image_is_never_written_over(tmp_path: Path, broccoli: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(broccoli.read_bytes())
    fails(run("encode", photo, "-o", photo, cwd=tmp_path), "photo.safetensors")
    assert photo.read_bytes() == broccoli.read_bytes()


def test_results_of_other_images_and_budgets_are_not_written_over(tmp_path: Path, broccoli: Path, cake: Path) -> None:
    for name, source in (("one", broccoli), ("two", cake)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "img.jpg").write_bytes(source.read_bytes())
    pngs = [
        last(run("look", f"{name}/img.jpg", "cake", "-k", budget, cwd=tmp_path))["queries"][0]["png"]
        for name, budget in (("one", 50), ("two", 50), ("one", 60), ("one", 50))
    ]
    assert len(set(pngs)) == 3
    assert pngs[3] == pngs[0]  # the same again takes the same place


def test_a_picture_of_somebody_elses_is_not_written_over(tmp_path: Path, broccoli: Path) -> None:
    (tmp_path / "foveate-out").mkdir()
    mine = tmp_path / "foveate-out" / f"{broccoli.stem}--a-dog.png"
    mine.write_text("mine")
    assert last(run("look", broccoli, "a dog", cwd=tmp_path))["queries"][0]["png"].endswith("--a-dog-2.png")
    assert mine.read_text() == "mine"


def test_a_terminal_that_cannot_show_a_question(tmp_path: Path, broccoli: Path) -> None:
    done = run("look", broccoli, "犬 dog", cwd=tmp_path, PYTHONIOENCODING="cp1252")
    assert last(done)["queries"][0]["phrases"] == ["犬 dog"]


def test_a_full_disk_behind_stdout_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m foveate.cli.main doctor > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "disk is full" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_question_longer_than_any_file_name(tmp_path: Path, broccoli: Path) -> None:
    done = run("look", broccoli, "is there a dog. " * 30, cwd=tmp_path)
    assert last(done)["queries"][0]["phrases"] == ["dog"]


def test_a_second_image_is_no_question(tmp_path: Path, broccoli: Path) -> None:
    shutil.copy(broccoli, tmp_path / "other.jpg")
    fails(run("look", broccoli, "other.jpg", "a dog", cwd=tmp_path), "is a file")


def test_options_that_a_texture_cannot_take(tmp_path: Path, broccoli: Path) -> None:
    run("encode", broccoli, "-o", "t.safetensors", cwd=tmp_path)
    fails(run("look", "t.safetensors", "dog", "--long-side", 256, cwd=tmp_path), "--long-side 256")
    fails(run("look", "t.safetensors", "dog", "--encoder", "nonsense", cwd=tmp_path), "nonsense")


def test_doctor_finds_what_is_broken(tmp_path: Path) -> None:
    for module in ("cv2", "onnxruntime", "tokenizers"):
        code = f"import sys; sys.modules[{module!r}] = None; from foveate.cli.main import main; main()"
        done = subprocess.run([sys.executable, "-c", code, "doctor"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 1
        assert json.loads(done.stdout.splitlines()[-1])["ok"] is False
        assert "BROKEN" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_closed_pipe_is_no_traceback(tmp_path: Path, broccoli: Path) -> None:
    script = f"{COMMAND} channels {broccoli} | head -1"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout
    assert done.stderr == ""


# --- large images, channels -------------------------------------------------------------------------------------------


def test_zoom_finds_and_draws(tmp_path: Path) -> None:
    rgb = load_image(PHOTOS / "yellow_bus.jpg").rgb[::4, ::4]
    wide = np.full((1400, 2000, 3), 120, np.uint8)
    wide[900 : 900 + len(rgb), 1500 : 1500 + rgb.shape[1]] = rgb
    Image.fromarray(wide).save(tmp_path / "wide.png")
    found = last(run("zoom", "wide.png", "a bus", "a giraffe", "--out", "out", cwd=tmp_path))
    assert found["size"] == [1400, 2000]
    bus, giraffe = found["queries"]
    assert 880 <= bus["peak"][0] <= 1030
    assert 1480 <= bus["peak"][1] <= 1680
    assert bus["confidence"] > giraffe["confidence"]
    for record in found["queries"]:
        assert (tmp_path / record["png"]).stat().st_size > 1000
        assert json.loads((tmp_path / record["json"]).read_text())["peak"] == record["peak"]
        page = np.asarray(Image.open(tmp_path / record["png"]))
        assert (page[-40:] == (90, 220, 255)).all(-1).sum() > 100  # the legend has the colour of the box
    assert found["scene"] is None
    kept = last(run("zoom", "wide.png", "a bus", "--out", "out", "--scene", "scene", cwd=tmp_path))
    again = last(run("zoom", "wide.png", "a bus", "--out", "out", "--scene", "scene", cwd=tmp_path))
    assert kept["scene"] == "scene"
    assert kept["queries"][0]["encoded"] > 0
    assert again["queries"][0]["encoded"] == 0
    assert {k: again["queries"][0][k] for k in ("peak", "confidence", "looked")} == {
        k: kept["queries"][0][k] for k in ("peak", "confidence", "looked")
    }
    Image.fromarray(wide[::-1]).save(tmp_path / "other.png")
    fails(run("zoom", "other.png", "a bus", "--out", "out", "--scene", "scene", cwd=tmp_path), "other pixels")
    fails(run("zoom", "none.tif", "a bus", cwd=tmp_path), "none.tif")
    fails(run("zoom", "wide.png", "a bus", "--share", 15, cwd=tmp_path), "share")


def test_channels_by_name(tmp_path: Path, broccoli: Path) -> None:
    last(run("encode", broccoli, "-o", "t.safetensors", "--channels", "boundary,edge_on", cwd=tmp_path))
    assert set(Texture.load(tmp_path / "t.safetensors").planes) == {"boundary", "edge_on", "saliency"}
    fails(run("encode", broccoli, "-o", "u.safetensors", "--channels", "boundry", cwd=tmp_path), "boundary")
    fails(run("encode", broccoli, "-o", "u.safetensors", "--channels", "gaze", cwd=tmp_path), "with_channel")
