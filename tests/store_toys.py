"""A quick encoder and small pictures for the tests of the store: what is tested is the store, not a tower."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from foveate.core.grid import Grid
from foveate.encoders.protocol import Calibration, DenseFeatures
from foveate.reading.words import Word
from foveate.store import EncodeBatch, Store

WIDTH = 24


ALONE = Calibration(temperature=20, contrast=0, synonym=0.6, slope=10, offset=-1)
AMONG = Calibration(temperature=20, contrast=1, synonym=0.6, slope=10, offset=-1)


@dataclass(frozen=True)
class Toy:
    """Features are random projections of a cell's colours; a text is a random direction of its own."""

    name: str = "toy"
    revision: str = "1"
    width: int = WIDTH
    templates: tuple[str, ...] = ("{}",)
    calibration: Calibration = ALONE

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        height, width = rgb.shape[:2]
        h, w = max(1, height // 4), max(1, width // 4)
        small = cv2.resize(rgb, (w * 2, h * 2), interpolation=cv2.INTER_AREA).astype(np.float32) / 255 - 0.5
        cells = small.reshape(h, 2, w, 2, 3).transpose(0, 2, 1, 3, 4).reshape(h, w, 12)
        mixed = np.tanh(cells @ np.random.default_rng(0).standard_normal((12, WIDTH), np.float32))
        return DenseFeatures((mixed / np.sqrt(WIDTH)).astype(np.float32), Grid(h, w, height, width))

    def encode_text(self, texts: Sequence[str]) -> np.ndarray:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") for text in texts]
        vectors = np.stack([np.random.default_rng(seed).standard_normal(WIDTH) for seed in seeds])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True)
class Rivalling(Toy):
    """A toy whose questions compete with the bank of nouns, as CLIP's do."""

    name: str = "rivalling"
    calibration: Calibration = AMONG


@dataclass(frozen=True)
class Planes(Toy):
    """A toy whose features are planes of evidence, never below 0; a text asks for one or two of them, as nano's do."""

    name: str = "planes"
    names: tuple[str, ...] = ("dog", "sky", "road")

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        dense = super().encode_image(rgb, long_side=long_side)
        return DenseFeatures(np.maximum(dense.features, 0), dense.grid)

    def encode_text(self, texts: Sequence[str]) -> np.ndarray:
        whole = super().encode_text(texts)
        kept = np.where(np.abs(whole) >= np.sort(np.abs(whole), axis=1)[:, -2:-1], np.abs(whole), 0)
        return (kept / np.linalg.norm(kept, axis=1, keepdims=True)).astype(np.float32)


@contextmanager
def quick_folder(otherwise: Path) -> Iterator[Path]:
    """In memory where there is such a place: a store flushes every write, and a disk takes its time."""
    quick = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=quick if os.access(quick, os.W_OK) else otherwise) as folder:
        yield Path(folder)


def picture(seed: int, height: int = 24, width: int = 36, mode: str = "RGB") -> bytes:
    """A PNG of smooth random colours."""
    rng = np.random.default_rng(seed)
    rough = rng.integers(0, 256, (5, 6, len(mode)), np.uint8)
    out = io.BytesIO()
    Image.fromarray(cv2.resize(rough, (width, height), interpolation=cv2.INTER_CUBIC), mode).save(out, "PNG")
    return out.getvalue()


def pictures(folder: Path, count: int, first: int = 0) -> Path:
    """A folder with so many pictures, one in four of them in a folder below."""
    for seed in range(first, first + count):
        path = folder / ("" if seed % 4 else "below") / f"{seed:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(picture(seed))
    return folder


def id_of(store: Store, name: str) -> str:
    """The id of an image in a store."""
    return store[name]._id


def work_of(store: Store) -> EncodeBatch:
    """What workers of an engine do for a store of toys."""
    assert store.identity is not None
    return EncodeBatch(store._wanted.encoder or store.identity.encoder.name, store.identity, store._open().space)


def mine(rgb: np.ndarray) -> list[Word]:
    """A reader: the colour of the first pixel."""
    return [Word("colour", (0, 0, 4, 9), 1.0, 0), Word(f"{rgb[0, 0]}", (5, 0, 9, 9), 0.5, 1)]
