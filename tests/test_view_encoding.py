"""How a session encodes and asks: every route gives what Python gives with the same options, and so does the page."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient
from typer.testing import CliRunner

import foveate
import foveate.view.server
import foveate.vlm
from foveate.cli.main import app as commands
from foveate.core.errors import (
    EncoderNameError,
    FoveateError,
    OptionError,
    StoreError,
    TextureEncoderError,
    TextureFileError,
)
from foveate.video import stream
from foveate.view.app import make_app
from foveate.view.models import load_late
from foveate.view.opening import open_target
from foveate.view.session import SessionEncoding
from foveate.vlm.context import read_context, score_in_context
from tests.conftest import PHOTOS
from tests.test_cli import READER
from tests.view_client import client_of, message
from tests.view_page import ask, lines_of, opened, run_lines, serving

BUS = PHOTOS / "yellow_bus.jpg"
CONTEXT = {"earlier": ["a cat"], "gaze": [[20.0, 30.0, 1.0]]}
TINY = "TINY"  # stands for a checkpoint's folder


@pytest.fixture(autouse=True)
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program `tesseract` that reads the same two words in every image."""
    program = tmp_path / "bin" / "tesseract"
    program.parent.mkdir()
    program.write_text(READER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/bin:/usr/bin")


@pytest.fixture(scope="module")
def small() -> Image.Image:
    """A photograph small enough for every size."""
    with Image.open(BUS) as image:
        return image.resize((192, 128))


@pytest.fixture
def photo(small: Image.Image, tmp_path: Path) -> Path:
    small.save(tmp_path / "bus.png")
    return tmp_path / "bus.png"


@pytest.fixture
def tiny(checkpoints: Callable[[str], Path]) -> str:
    return f"clip:{checkpoints('clip')}"


def client(target: Path | None, encoding: SessionEncoding, **how: Any) -> TestClient:
    return client_of(target, encoding=encoding, **how)


ALL: list[dict[str, Any]] = [
    {"encoder": TINY, "preset": "text"},
    {"long_side": "native"},
    {"long_side": 160, "preset": "static", "read": "tesseract"},
]


@pytest.mark.parametrize("how", ALL)
def test_every_route_goes_by_the_options(photo: Path, tiny: str, how: dict[str, Any]) -> None:
    how = {name: tiny if value == TINY else value for name, value in how.items()}
    encoder = how.get("encoder")
    texture = foveate.encode(photo, **how)
    asked = client(photo, SessionEncoding(**how))
    id = asked.post("/api/images", content=photo.read_bytes(), headers={"x-file-name": "same.png"}).json()["id"]
    for image in (asked.get("/api/session").json()["first"], id):
        header, _ = message(asked.get(f"/api/images/{image}"))
        assert header["encoder"] == texture.encoder.name
        assert header["grids"][0]["h"] == texture.grid.h
        assert header["words"] == (
            None if "read" not in how else [{"text": w.text, "box": list(w.box)} for w in texture.words or ()]
        )
        for query in ("a dog", "what is written on the red dog?"):
            said, arrays = message(asked.post("/api/score", json={"image": image, "query": query}))
            relevance = foveate.score(texture, query, encoder=encoder)
            np.testing.assert_array_equal(arrays["map:cells"], relevance.map)
            assert [word["text"] for word in said["words"]] == [word.text for word in relevance.words]
            assert said["unread"] == (query != "a dog" and "read" not in how)
        _, arrays = message(asked.post("/api/score", json={"image": image, "query": "and its cat?", **CONTEXT}))
        mixed, prior = score_in_context(texture, "and its cat?", read_context(CONTEXT), encoder)
        assert prior is not None
        np.testing.assert_array_equal(arrays["map:cells"], mixed.map)
        _, arrays = message(asked.post("/api/reasons", json={"image": image, "query": "a dog"}))
        np.testing.assert_array_equal(arrays["logits"], foveate.score(texture, "a dog", encoder=encoder).logits)
        header, _ = message(asked.post("/api/priors", json={"image": image, "queries": ["it?"], **CONTEXT}))
        assert header["rounds"][0]["confidence"] == foveate.score(texture, "a cat", encoder=encoder).confidence


def test_the_page_is_told_of_the_options_and_of_no_folder(photo: Path, tiny: str) -> None:
    for encoder, name in ((tiny, "clip:clip"), (f"{tiny}#raw", "clip:clip#raw"), ("clip:openai/clip#raw", None)):
        answer = client(photo, SessionEncoding(encoder, "document", 256, "tesseract")).get("/api/session")
        told = {"encoder": name or encoder, "preset": "document", "long_side": 256, "read": "tesseract"}
        assert answer.json()["encoding"] == told
        assert str(Path(tiny[5:]).parent) not in answer.text
    assert client(photo, SessionEncoding()).get("/api/session").json()["encoding"] == {}
    ways: list[dict[str, Any]] = [{}, {"preset": "document"}, {"preset": "maximum", "read": False}, {"read": True}]
    assert [SessionEncoding(**how).reads for how in ways] == [False, True, False, True]


def test_a_texture_keeps_its_encoder(photo: Path, tmp_path: Path, tiny: str) -> None:
    file = tmp_path / "dog.safetensors"
    texture = foveate.encode(photo, encoder=tiny)
    texture.save(file)
    for wrong in (SessionEncoding(), SessionEncoding("nano")):
        with pytest.raises(TextureEncoderError):
            open_target(file, encoding=wrong)
    with pytest.raises(OptionError, match="encoded already"):
        open_target(file, encoding=SessionEncoding(tiny, long_side=256))
    (tmp_path / "bad.safetensors").write_bytes(b"none")
    with pytest.raises(TextureFileError):
        open_target(tmp_path / "bad.safetensors")
    asked = client(file, SessionEncoding(tiny, preset="text", read="tesseract"))
    id = asked.get("/api/session").json()["first"]
    assert len(message(asked.get(f"/api/images/{id}"))[0]["words"]) == 2
    _, arrays = message(asked.post("/api/score", json={"image": id, "query": "a dog"}))
    expected = foveate.score(texture.read("tesseract"), "a dog", encoder=tiny, preset="text")
    np.testing.assert_array_equal(arrays["map:cells"], expected.map)


def test_a_store_keeps_its_encoder(photo: Path, tmp_path: Path, tiny: str) -> None:
    path = tmp_path / "photos.fov"
    store = foveate.Store(path, encoder=tiny)
    store.add([photo])
    for wrong in (SessionEncoding(), SessionEncoding("nano")):
        with pytest.raises((TextureEncoderError, StoreError)):
            open_target(path, encoding=wrong)
    with pytest.raises(OptionError, match="encoded already"):
        open_target(path, encoding=SessionEncoding(tiny, read=True))
    asked = client(path, SessionEncoding(tiny))
    header, arrays = message(asked.post("/api/search", json={"query": "a dog"}))
    (hit,) = store.search("a dog")
    assert header["hits"][0]["score"] == hit.score
    _, arrays = message(asked.post("/api/score", json={"image": header["hits"][0]["id"], "query": "a dog"}))
    expected = foveate.score(store[store.keys()[0]], "a dog", encoder=tiny)
    np.testing.assert_array_equal(arrays["map:cells"], expected.map)


@pytest.fixture
def frames(tmp_path: Path, small: Image.Image) -> Path:
    folder = tmp_path / "frames"
    folder.mkdir()
    for number in range(3):
        small.rotate(number).save(folder / f"{number}.png")
    return folder


def test_a_clip_is_followed_with_the_options(frames: Path) -> None:
    how: dict[str, Any] = {"encoder": "nano", "preset": "text", "long_side": 128, "read": "tesseract"}
    asked = client(frames, SessionEncoding(**how), clip=True)
    clip = asked.get("/api/session").json()["clip"]["id"]
    body = {"questions": ["the bus"], "frame": 0}
    found: list[Any] = []
    while len(found) < 3:
        header, arrays = message(asked.post(f"/api/clips/{clip}/frames", json={**body, "frame": len(found)}))
        found += [arrays[f"{row['index']}:map:0"] for row in header["frames"]]
    for mine, frame in zip(found, stream(frames, ["the bus"], **how), strict=True):
        np.testing.assert_array_equal(mine, frame.answers[0][0].map.astype(np.float16))
    with pytest.raises(OptionError, match="native"):
        open_target(frames, clip=True, encoding=SessionEncoding(long_side="native"))


def test_a_model_looks_with_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foveate.vlm, "load", lambda name, encoder: f"{name} {encoder}")
    assert str(load_late("tiny", "clip:here").vlm.result(30)) == "tiny clip:here"
    assert str(load_late("tiny").vlm.result(30)) == "tiny nano"


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_gives_the_options(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    monkeypatch.setattr(foveate.view.server, "serve", lambda app, listening: served.append(app))
    options = "--encoder nano --long-side native --reader tesseract --preset static".split()
    done = CliRunner().invoke(commands, ["view", str(photo), "--no-browser", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = TestClient(served[0], base_url="http://127.0.0.1").get("/api/session").json()
    expected = {"encoder": "nano", "long_side": "native", "read": "tesseract", "preset": "static"}
    assert (told["encoding"], told["reads"]) == (expected, True)


def test_wrong_options_are_said_before_anything_is_served(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foveate.view.server, "serve", lambda *_: pytest.fail("it serves"))
    for options, said in {
        "--encoder nope": "nope",
        "--encoder clip:/no/such/folder": "/no/such/folder",
        "--preset documents": "--preset documents",
        "--preset gaze": "My pointer is my gaze",
        "--long-side 7": "--long-side 7",
        "--reader nobody": "--reader nobody",
        "--no-read --reader tesseract": "--no-read with --reader",
        "--reader tesseract:none+such": "tesseract",
    }.items():
        if "none+such" in options:
            monkeypatch.setenv("PATH", "/nowhere")
        done = CliRunner().invoke(commands, ["view", str(photo), "--no-browser", *options.split()])
        assert isinstance(done.exception, FoveateError)
        assert said in str(done.exception)
        assert "http://" not in done.output
    with pytest.raises(EncoderNameError):  # nothing is loaded for an unknown encoder
        SessionEncoding("nope", read=True).check()


# --- the page ---------------------------------------------------------------------------------------------------------


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["dialogue", "texture", "clip"])
def test_the_lines_of_python_name_the_options(
    browser: Any, photo: Path, frames: Path, tmp_path: Path, tiny: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    shutil.copytree(tiny[5:], tmp_path / "tiny")
    how: dict[str, Any] = {"encoder": f"clip:{tmp_path / 'tiny'}", "preset": "text", "read": "tesseract"}
    target = {"texture": tmp_path / "bus.safetensors", "clip": frames}.get(kind, photo)
    if kind == "texture":
        foveate.encode(photo, encoder=how["encoder"]).save(target)
    else:
        how["long_side"] = 96
    at = "/#q=what+is+the+total&k=9" + ("&earlier=a+dog" if kind == "dialogue" else "")
    app = make_app(open_target(target, kind == "clip", SessionEncoding(**how)))
    with serving(app=app) as address, opened(browser, address, at) as page:
        if kind == "dialogue":
            page.wait_for_function("window.foveate?.image")
            page.evaluate("foveate.set({questions: ['and its red cat?'], earlier: ['a dog']})")
        page.wait_for_function("window.foveate?.answer() && foveate.kept()")
        if kind == "clip":
            page.wait_for_function("foveate.image.clip")
        lines, kept = lines_of(page), page.evaluate("[...foveate.kept()]")
    assert "tesseract" in lines
    if kind != "clip":
        assert lines.count("clip:tiny") == (1 if kind == "texture" else 2)
    assert str(tmp_path) not in lines
    assert run_lines(lines, tmp_path, monkeypatch)["kept"].indices.tolist() == kept


@pytest.mark.browser
def test_words_are_shown_where_somebody_read_them_and_else_the_page_says_so(
    browser: Any, page: Any, photo: Path
) -> None:
    ask(page, "the bus")
    assert "not read" not in page.locator("#questions").inner_text()
    ask(page, "what is written on the bus?")
    page.wait_for_function(
        "document.querySelector('#questions .said').textContent.includes('start foveate view with --read')"
    )
    page.evaluate("foveate.tell('loading', 'page.png')")
    assert page.locator(".loading p").inner_text() == "Encoding page.png …"
    app = make_app(open_target(photo, encoding=SessionEncoding(read="tesseract")))
    with serving(app=app) as address, opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        assert "2 words read" in page.locator("#source").inner_text()
        ask(page, "what is the total?")
        assert "TOTAL" in page.locator("#questions .said").inner_text()
        assert "not read" not in page.locator("#questions").inner_text()
        (box,) = page.evaluate("foveate.image.words.filter(word => word.text === 'TOTAL').map(word => word.box)")
        y, x = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        page.evaluate(
            "([y, x]) => { const { h, w } = foveate.grid, { height, width } = foveate.image;"
            " foveate.set({pin: Math.floor(y / height * h) * w + Math.floor(x / width * w)}); }", [y, x]
        )  # fmt: skip
        page.wait_for_function("document.querySelector('#cell .words').textContent.includes('Written here: TOTAL')")
        page.evaluate("foveate.tell('loading', 'page.png')")
        assert page.locator(".loading p").inner_text() == "Encoding and reading page.png …"
