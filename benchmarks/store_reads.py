"""What a question reads: bytes from files and of arrays, of the first question about an image and of later ones.

The documents that this project started from have a table of it (1024 x 1024 pixels, 273 patches, projected): 177 MB a
question where each patch is cut out, brought to 224 x 224 and encoded, 0.017 MB where embeddings are reused. Their way
of counting is kept, each array once where a step takes it; here it is counted of what this library does:

    files       bytes that the process asked the system for (rchar of /proc/self/io, Linux only), whoever cached them
    arrays      what enters the product of a question with a texture: embedding, basis, question; and the map it gives
    crops       the same question with nano on each crop: pixels as the tower takes them (uint8), one vector a crop

What is notable
* Their 0.017 MB are the embeddings of the 273 cells that are kept. Which those are, only a look at all 4096 says, and
  that look is what `arrays` counts.
* foveate.score wants segments, so the first question about a stored image reads the image's file too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.query import square
from foveate.encoders.load import load_encoder
from foveate.pipeline import DEFAULT_BUDGET, score
from foveate.relevance.query import prepare
from foveate.relevance.score import maps_of
from foveate.store import Store
from foveate.store.texture import StoredTexture

COUNTER = Path("/proc/self/io")
CROP = 224  # pixels along the side of a patch, as those documents have it
CLAIMED = {"crops": "177 MB, said of CLIP in float32", "kept": "0.017 MB", "arrays": "0.017 MB"}


def file_bytes(function: Callable[[], Any]) -> int | None:
    """Bytes that a call reads from files, cached by the system or not; None where the system does not count them."""
    if not COUNTER.exists():
        return None

    def now() -> int:
        return int(COUNTER.read_text().split()[1])

    itself = -now() + now()
    before = now()
    function()
    return now() - before - itself


def array_bytes(texture: StoredTexture, vectors: np.ndarray) -> dict[str, int]:
    """Of the arrays in a question's product with a texture."""
    return {
        "embedding": texture.coordinates().nbytes,
        "basis": 4 * texture.basis.rows.size + texture.basis.mean.nbytes,  # rows are multiplied as float32
        "question": vectors.nbytes,
        "map": texture.scores(vectors).nbytes,
    }


def crop_bytes(image: Path, side: int) -> dict[str, int]:
    """Of a question to nano about DEFAULT_BUDGET crops: the image, what the tower takes of them all, their vectors."""
    tower = load_encoder("nano")
    crop = square(image, CROP)
    features = tower.encode_image(crop, long_side=CROP).features
    vector = features.reshape(-1, features.shape[-1]).mean(0)
    return {
        "image": side * side * 3,
        "crops": DEFAULT_BUDGET * crop.nbytes,
        "vectors": DEFAULT_BUDGET * vector.nbytes,
    }


def rows(path: Path, photograph: Path, side: int) -> list[dict[str, Any]]:
    """Rows of `python -m benchmarks store`. `path`: of a store that holds the photograph, `side` pixels square."""
    tower = load_encoder("nano")
    first, later = prepare(tower, "a dog"), prepare(tower, "a cat")
    name = named(path, photograph)

    def alone() -> Callable[[], Any]:
        store = Store(path, cache=0)
        len(store)  # the index is open
        return lambda: maps_of(store[name], [first], tower.calibration)

    warm = Store(path)
    len(warm)
    asked = file_bytes(lambda: score(warm[name], "a dog"))
    arrays, crops = array_bytes(warm[name], later.vectors), crop_bytes(photograph, side)
    kept = DEFAULT_BUDGET * warm[name].rank * 4
    return [
        _row("files: first question, what it says by itself (search, score_all)", file_bytes(alone())),
        _row("files: first question, foveate.score, with the image's pixels", asked),
        _row("files: each later question about an image in the cache", file_bytes(lambda: score(warm[name], "a cat"))),
        _row(f"arrays of each later question ({_said(arrays)})", sum(arrays.values()), CLAIMED["arrays"]),
        _row(f"  of which embeddings of the {DEFAULT_BUDGET} cells that are kept", kept, CLAIMED["kept"]),
        _row(
            f"each question by encoding {DEFAULT_BUDGET} crops ({_said(crops)})", sum(crops.values()), CLAIMED["crops"]
        ),
    ]


def named(path: Path, photograph: Path) -> str:
    """What a store calls the photograph. (By the end of its path it would look at every name.)"""
    return next(name for name in Store(path) if name.endswith(photograph.name))


def resident() -> int | None:
    """Bytes of memory that the process has now; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def megabytes(count: int | None) -> str:
    return "not counted here" if count is None else f"{count / 1e6:.3f} MB" if count < 1e7 else f"{count / 1e6:,.0f} MB"


def _said(parts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count / 1e3:,.0f} KB" for name, count in parts.items())


def _row(what: str, count: int | None, claimed: str = "") -> dict[str, Any]:
    return {"what": what, "measured": megabytes(count), "target": claimed, "median": count, "unit": "bytes"}
