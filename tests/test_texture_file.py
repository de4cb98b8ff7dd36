"""Textures on disk: what is written comes back; what is damaged is refused; what fails leaves nothing behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import foveate
from foveate import Texture
from foveate.core.errors import FoveateError, OutputError, TextureEncoderError, TextureFileError, TextureVersionError
from foveate.reading import Word, Words
from tests.conftest import kill_after, same

GOLDEN = Path(__file__).parent / "golden" / "texture-v1.safetensors"


WORDS = Words.of([Word("TOTAL", (2, 1, 6, 12), 0.9, 0), Word("34.50", (2, 15, 6, 26), 0.8, 0)], "mine", turned=180)


def parts(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    with safe_open(path, "np") as file:
        return load_file(path), json.loads(file.metadata()["foveate"])


def rewrite(source: Path, target: Path, change: Any) -> Path:
    """A copy of a texture file with `change(tensors, header)` applied."""
    tensors, header = parts(source)
    change(tensors, header)
    save_file(tensors, target, {"foveate": json.dumps(header)})
    return target


@pytest.fixture(scope="module")
def saved(texture: Texture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("textures") / "broccoli.safetensors"
    texture.save(path)
    return path


@settings(max_examples=10)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 5, 16, 40]), st.booleans())
def test_round_trip(height: int, width: int, rank: int, alpha: bool) -> None:
    import tempfile

    rgba = np.random.default_rng(height * 41 + width).integers(0, 256, (height, width, 4 if alpha else 3), np.uint8)
    texture = foveate.encode(rgba, rank=rank, long_side=64)
    with tempfile.TemporaryDirectory() as folder:
        texture.save(f"{folder}/t.safetensors")
        assert same(texture, Texture.load(f"{folder}/t.safetensors"))
        assert os.listdir(folder) == ["t.safetensors"]


def test_a_loaded_texture_answers_as_the_original_and_has_the_same_bytes(
    texture: Texture, saved: Path, tmp_path: Path
) -> None:
    loaded = Texture.load(saved)
    for query in ("broccoli", "a child"):
        a, b = foveate.score(texture, query), foveate.score(loaded, query)
        assert np.array_equal(a.map, b.map)
        assert np.array_equal(foveate.allocate(a).indices, foveate.allocate(b).indices)
    texture.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()


def test_the_golden_file() -> None:
    """A 20 x 28 image with alpha, planes of new names, and words: every later release must read just these values."""
    texture = Texture.load(GOLDEN)
    assert (texture.grid.shape, texture.grid.height, texture.grid.width) == ((6, 8), 20, 28)
    assert (texture.encoder.name, texture.encoder.width, texture.basis.rank) == ("golden", 12, 4)
    assert len(texture.planes) == 11
    assert texture.pixel.sum() == 213750
    assert texture.valid is not None
    assert int(texture.valid.sum()) == 69615
    assert float(texture.embedding.astype(np.float64).sum()) == pytest.approx(-13.9384, abs=1e-3)
    assert float(texture.channel("edge_distance").astype(np.float64).sum()) == pytest.approx(18.6296, abs=1e-3)
    query = np.linspace(-1, 1, 12, dtype=np.float32)
    assert float(texture.scores(query).sum()) == pytest.approx(-66.2324, abs=1e-2)
    assert dict(texture.made_by) == {"cluster_id": "kmeans", "temperature": "a camera", "text": "golden reader 1.0"}
    heat = texture.describe("temperature")
    assert (heat.native, heat.reduction, heat.low, heat.high, heat.about) == ("pixel", "max", -40, 60, "heat")
    assert texture.describe("unbounded").high == float("inf")
    assert float(texture.channel("temperature").sum()) == pytest.approx(5426.24, abs=0.1)
    assert float(texture.channel("gaze").sum()) == pytest.approx(24.8936, abs=1e-3)
    assert int(texture.channel("cluster_id").sum()) == 113
    words = texture.words
    assert words is not None
    assert words.texts == ("TOTAL", "34.50", "Ωμέγα株式会社")
    assert words.boxes.tolist() == [[2, 1, 6, 12.5], [2, 15.25, 6, 26], [10, 1, 16, 20]]
    assert words.confidences.tolist() == pytest.approx([0.99, 0.875, 0.5])
    assert words.line_numbers.tolist() == [0, 0, 1]
    assert (words.reader, words.turned) == ("golden reader 1.0", 90)


@pytest.mark.parametrize("words", [WORDS, Words.of([], "mine"), None])
def test_words_come_back(words: Words | None, texture: Texture, tmp_path: Path) -> None:
    read = texture if words is None else texture.with_words(words)
    read.save(tmp_path / "t.safetensors")
    again = Texture.load(tmp_path / "t.safetensors")
    assert same(read, again)
    assert (None if again.words is None else list(again.words)) == (None if words is None else list(words))


# --- damage -----------------------------------------------------------------------------------------------------------


def test_no_file_and_other_files(saved: Path, tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.safetensors", "a" * 5000):
        with pytest.raises(TextureFileError, match="no texture file"):
            Texture.load(path)
    other = tmp_path / "weights.safetensors"
    save_file({"w": np.zeros(3)}, other)
    with pytest.raises(TextureFileError, match="not a foveate texture"):
        Texture.load(other)
    for content in (b"", b"hello", b"\xff" * 100, b"\x08\0\0\0\0\0\0\0{}      "):
        other.write_bytes(content)
        with pytest.raises(TextureFileError):
            Texture.load(other)
    for text in ("{", "[]", "3", '"texture"', "[" * 100_000):  # headers that are no JSON objects
        save_file(load_file(saved), other, {"foveate": text})
        with pytest.raises(TextureFileError):
            Texture.load(other)
    for dtype, size in (("BF16", 2), ("F8_E4M3", 1)):
        tensors = {"pixel": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2 * size]}}
        ours = {"format": "foveate-texture", "version": 1, "layout": "full40", "channels": []}
        header = json.dumps({"__metadata__": {"foveate": json.dumps(ours)}, **tensors}).encode()
        path = tmp_path / f"{dtype}.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 2 * size)
        with pytest.raises(TextureFileError):
            Texture.load(path)


def test_another_version_and_another_encoder_say_what_to_do(saved: Path, tmp_path: Path) -> None:
    for version in [2, 3, 5]:
        path = rewrite(saved, tmp_path / "t.safetensors", lambda t, h, v=version: h.update(version=v))
        with pytest.raises(TextureVersionError, match=f"version {version}") as caught:
            Texture.load(path)
        assert "encode the image again" in caught.value.fix
    path = rewrite(saved, tmp_path / "t.safetensors", lambda t, h: h["encoder"].update(revision="0123456789ab"))
    with pytest.raises(TextureEncoderError, match="0123456789ab"):
        foveate.score(Texture.load(path), "a dog")


def _nan(tensors: dict[str, np.ndarray], _: dict[str, Any]) -> None:
    tensors["embedding"][3, 2, 1] = np.nan


CHANGES = {
    "a missing tensor": lambda t, h: t.pop("residual"),
    "an extra tensor": lambda t, h: t.update(extra=np.zeros(2)),
    "a plane the header does not list": lambda t, h: h["channels"].remove("saliency"),
    "a channel nobody knows": lambda t, h: h["channels"].append("salience"),
    "not a number": _nan,
    "another dtype": lambda t, h: t.update(embedding=t["embedding"].astype(np.float32)),
    "another shape": lambda t, h: t.update(pixel=t["pixel"][1:]),
    "swapped axes": lambda t, h: t.update(embedding=t["embedding"].transpose(1, 0, 2).copy()),
    "another grid": lambda t, h: h.update(grid=[48, 64]),
    "no grid": lambda t, h: h.pop("grid"),
    "an absurd grid": lambda t, h: h.update(grid=[0, "many"]),
    "no encoder": lambda t, h: h.pop("encoder"),
    "another width": lambda t, h: h["encoder"].update(width=3),
    "version true": lambda t, h: h.update(version=True),
    "version zero": lambda t, h: h.update(version=0),
    "another format": lambda t, h: h.update(format="something"),
    "channels of a wrong kind": lambda t, h: h.update(channels="saliency"),
    "infinity in the grid": lambda t, h: h.update(grid=[float("inf"), 4]),
    "another layout": lambda t, h: h.update(layout="part28"),
    "a name that is no text": lambda t, h: h["image"].update(name="a\0b"),
    "a name that moves the cursor": lambda t, h: h["image"].update(name="\x1b[2Ja"),
    "an extra that is not there": lambda t, h: h.update(extra={"heat": {"native": "cell"}}),
    "an extra that is no object": lambda t, h: h.update(extra=7),
    "an extra that is badly described": lambda t, h: (
        h["channels"].append("heat"),
        h.update(extra={"heat": {"native": "everywhere"}}),
        t.update({"plane.heat": t["plane.saliency"]}),
    ),
    "an extra that takes a known name": lambda t, h: (
        h["channels"].append("gaze"),
        h.update(extra={"gaze": {"native": "cell", "high": 9.0}}),
        t.update({"plane.gaze": t["plane.saliency"] * 9}),
    ),
    "no makers, as before the first release": lambda t, h: h.pop("made_by"),
    "makers that are no object": lambda t, h: h.update(made_by=["kmeans"]),
    "a segment that no layout has": lambda t, h: t.update({"plane.cluster_id": t["plane.cluster_id"] + 50}),
    "an empty basis": lambda t, h: t.update({"basis.rows": t["basis.rows"][:0]}),
}


def _texts(content: bytes) -> Any:
    return lambda t, h: t.update({"words.texts": np.frombuffer(content, np.uint8)})


def _tensor(name: str, values: Any, dtype: type) -> Any:
    return lambda t, h: t.update({f"words.{name}": np.array(values, dtype)})


WORDS_CHANGES = {  # of the file: values that Words refuses are in test_reading.py
    "a missing tensor of words": lambda t, h: t.pop("words.boxes"),
    "no header": lambda t, h: h.pop("words"),
    "a header that is no object": lambda t, h: h.update(words="rapidocr"),
    "no reader": lambda t, h: h["words"].pop("reader"),
    "a turn that is no number": lambda t, h: h["words"].update(turned="half"),
    "one text too many": _texts(b"a\nb\nc\n"),
    "one text too few": _texts(b"a\n"),
    "no end": _texts(b"a\nb"),
    "no UTF-8": _texts(b"a\n\xff\n"),
    "an escape sequence": _texts(b"a\n\x1b[2J\n"),
    "a text of another type": _tensor("texts", [97, 10, 98, 10], np.int32),
    "boxes of another type": _tensor("boxes", [[0, 0, 1, 1]] * 2, np.float64),
    "a box outside": _tensor("boxes", [[0, 0, 1, 1e9]] * 2, np.float32),
    "a box before the image": _tensor("boxes", [[-1, 0, 1, 1]] * 2, np.float32),
    "another number of confidences": _tensor("confidences", [1], np.float32),
    "lines of another type": _tensor("line_numbers", [0, 0], np.int64),
}


@pytest.fixture(scope="module")
def written(texture: Texture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("textures") / "words.safetensors"
    texture.with_words(WORDS).save(path)
    return path


@pytest.mark.parametrize("change", (CHANGES | WORDS_CHANGES).values(), ids=(CHANGES | WORDS_CHANGES).keys())
def test_damage_is_refused(change: Any, written: Path, tmp_path: Path) -> None:
    path = rewrite(written, tmp_path / "t.safetensors", change)
    with pytest.raises(TextureFileError) as caught:
        Texture.load(path)
    assert str(path) in str(caught.value)
    assert "\x1b" not in str(caught.value)


@given(st.data())
def test_mutated_files_are_read_or_refused(data: st.DataObject) -> None:
    import tempfile

    content = bytearray(GOLDEN.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(content)
        file.flush()
        try:
            texture = Texture.load(file.name)
        except FoveateError:
            return  # any other exception fails this test
        assert np.isfinite(texture.embedding).all()


def test_values_that_no_reader_accepts_are_not_written(texture: Texture, tmp_path: Path) -> None:
    import dataclasses

    broken = texture.embedding.copy()
    broken[0, 0, 0] = np.inf
    with pytest.raises(TextureFileError, match="embedding"):
        dataclasses.replace(texture, embedding=broken).save(tmp_path / "t.safetensors")
    assert list(tmp_path.iterdir()) == []


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_place_that_cannot_be_written_and_what_is_never_replaced(
    texture: Texture, tmp_path: Path, broccoli: Path
) -> None:
    with pytest.raises(OutputError, match="could not be written"):
        texture.save(tmp_path / "no" / "such" / "folder.safetensors")
    (tmp_path / "folder").mkdir()
    for impossible in (tmp_path / "folder", "", ".", "a\0b", tmp_path / ("n" * 300)):
        with pytest.raises(OutputError):
            texture.save(impossible)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder"]
    victim, weights = tmp_path / "victim", tmp_path / "weights.safetensors"
    victim.write_bytes(broccoli.read_bytes())
    save_file({"a": np.zeros(3)}, weights)
    for file in (victim, weights):
        before = file.read_bytes()
        with pytest.raises(OutputError, match="no texture"):
            texture.save(file)
        assert file.read_bytes() == before
    texture.save(tmp_path / "t.safetensors")
    texture.save(tmp_path / "t.safetensors")  # a texture is


FULL_DISK = """
import resource, sys
import foveate
texture = foveate.Texture.load(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))  # the disk is full after 200 KB
try:
    texture.save(sys.argv[2])
except foveate.FoveateError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.crash
@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs POSIX limits")
def test_a_full_disk_leaves_the_old_file_and_no_half(saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "t.safetensors"
    target.write_bytes(before := saved.read_bytes())
    run = subprocess.run([sys.executable, "-c", FULL_DISK, saved, target], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("OutputError")
    assert "nothing was changed" in run.stdout
    assert target.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.safetensors"]


KILLED = """
import sys
import foveate
texture = foveate.Texture.load(sys.argv[1])
texture.save(sys.argv[2])
print("ready", flush=True)
while True:
    texture.save(sys.argv[2])
"""


@pytest.mark.crash
def test_a_killed_writer_leaves_a_whole_file(saved: Path, tmp_path: Path) -> None:
    target = tmp_path / "t.safetensors"
    for wait in (0.02, 0.08):
        kill_after(wait, KILLED, saved, target)
        assert same(Texture.load(target), Texture.load(saved))


def test_another_suffix_is_refused(texture: Texture, tmp_path: Path) -> None:
    for name in ("t.png", "photo.jpg", "t.safetensors.gz"):
        with pytest.raises(OutputError, match=f"a texture named '{name}'") as caught:
            texture.save(tmp_path / name)
        assert str(tmp_path / Path(name).with_suffix(".safetensors")) in caught.value.fix
    for name in ("plain", "upper.SAFETENSORS"):
        texture.save(tmp_path / name)
        assert same(Texture.load(tmp_path / name), texture)
    assert len(list(tmp_path.iterdir())) == 2
