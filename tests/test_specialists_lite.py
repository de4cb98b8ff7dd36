"""A classifier in a TFLite file joins nano: cut before its last mean where that can be done, else asked of windows."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import foveate
from foveate.core.errors import EncoderFilesError, MissingExtraError
from foveate.encoders import Specialist
from tests.colour_classifiers import LABELS, write_labels, write_lite, write_onnx

pytestmark = pytest.mark.slow  # networks are opened in most of them

pytest.importorskip("ai_edge_litert", reason="needs an extra: specialists")


@pytest.fixture
def picture() -> np.ndarray:
    noise = np.random.default_rng(0).normal(127, 10, (384, 512, 3))
    rgb = np.clip(noise, 0, 255).astype(np.uint8)
    rgb[64:192, 256:512] = (250, 5, 5)
    return rgb


@pytest.mark.parametrize("codes", [False, True])
def test_one_that_is_cut_says_what_its_onnx_twin_says(codes: bool, picture: np.ndarray, tmp_path: Path) -> None:
    lite = Specialist.read(write_labels(write_lite(tmp_path / "a.tflite", codes=codes)), pixels="0..1")
    onnx = Specialist.read(write_labels(write_onnx(tmp_path / "a.onnx")), pixels="0..1")
    for rgb in (picture, picture[:320, :288], picture):  # of another size, and back
        rgb = np.ascontiguousarray(rgb)
        (found, covered), (expected, same) = lite.look(rgb), onnx.look(rgb)
        assert covered == same
        assert found.shape == expected.shape == (rgb.shape[0] // 32, rgb.shape[1] // 32, 3)
        np.testing.assert_allclose(found, expected, atol=0.02 if codes else 1e-4)
    texture = foveate.encode(picture, specialists=[lite])
    red = foveate.score(texture, "a rambutan")
    assert red.detected
    y, x = np.unravel_index(int(red.map.argmax()), red.map.shape)
    assert 8 <= y < 24
    assert x >= 32
    assert not foveate.score(texture, "a kingfisher").detected


def test_one_that_cannot_be_cut_is_asked_of_windows(picture: np.ndarray, tmp_path: Path) -> None:
    file = write_labels(write_lite(tmp_path / "b.tflite", dense=False))
    specialist = Specialist.read(file, pixels="0..1")
    assert specialist.classifier.pooled
    assert specialist.classifier.size == (64, 64)
    picture[:, 256:] = (250, 5, 5)
    found, covered = specialist.look(picture)
    assert found.shape == (3, 4, 3)
    assert covered == (48, 64)
    assert found[:, 3, 0].min() > 0.9
    assert found[:, 0, 0].max() < 0.1


def test_threads_share_an_interpreter(picture: np.ndarray, tmp_path: Path) -> None:
    encoder = foveate.load_encoder(f"nano+{write_labels(write_lite(tmp_path / 'c.tflite', codes=True))}")
    pictures = [np.ascontiguousarray(picture[: 384 - 32 * i]) for i in range(6)]
    together = foveate.encode(pictures, encoder=encoder, threads=4)
    for rgb, texture in zip(pictures, together, strict=True):
        np.testing.assert_array_equal(texture.embedding, foveate.encode(rgb, encoder=encoder).embedding)


def test_files_that_are_none(tmp_path: Path) -> None:
    good = write_lite(tmp_path / "d.tflite").read_bytes()
    for content in (b"", b"no network", good[: len(good) // 2], good[:100] + b"\xff" * (len(good) - 100)):
        (tmp_path / "d.tflite").write_bytes(content)
        with pytest.raises(EncoderFilesError, match="cannot be read by LiteRT"):
            Specialist.read(tmp_path / "d.tflite", labels=LABELS, pixels="0..1")
    write_lite(tmp_path / "d.tflite")
    with pytest.raises(EncoderFilesError, match="5 labels"):
        Specialist.read(tmp_path / "d.tflite", labels=LABELS[:5], pixels="0..1")
    with pytest.raises(EncoderFilesError, match="nothing says how pixels"):
        Specialist.read(tmp_path / "d.tflite", labels=LABELS)


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_labels(write_lite(tmp_path / "e.tflite"))
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(MissingExtraError, match=r"'e.tflite' needs ai_edge_litert.*\n.*\n.*foveate\[specialists\]"):
        Specialist.read(file, pixels="0..1")
