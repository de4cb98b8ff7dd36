"""What a store is made of, once and for all: encoder, basis, preprocessing. And the key of an image in it.

    key = SHA-256 of (format version, encoder and its revision, basis, preprocessing, SHA-256 of the image's bytes)

What is notable
* The same bytes have the same key, wherever they lie and whatever they are called; other numbers have another key.
* `format.json` and every shard say it, so that a store without index or format.json can be made whole from its shards.
* The basis is each image's own by default (`OWN`): "own" stands in the key then. A shared one stands there by its hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load
from safetensors.numpy import save as to_bytes

from foveate.core.errors import FoveateError, OptionError, StoreDamagedError, StoreVersionError
from foveate.core.image import MAX_PIXELS
from foveate.texture.basis import Basis, Metric, inward
from foveate.texture.texture import EncoderStamp

FORMAT, VERSION = "foveate-store", 1
PREPROCESSING = 1  # image.py's rules and the numbers of record.py; changes whenever a record's bytes would
SPACE_FILE, FORMAT_FILE, ANN_FILE = "basis.safetensors", "format.json", "vectors.faiss"
MOST_WIDTH, MOST_VECTORS = 2**14, 2**8  # of an encoder; of an image
HUGE = 1e9  # no number of a basis is larger
MOST_FORMAT, MOST_PIECE = 2**20, 2**30  # bytes of format.json; bytes that are read at once
Kind = Literal["own", "shared"]


@dataclass(frozen=True)
class Identity:
    """What must be the same for all images of a store.

    Attributes:
        encoder: that made the features.
        kind: of the basis that the cells are kept in: each image's "own", or "shared" by all.
        rank: numbers kept a cell.
        space: hash of the shared basis: of the cells where kind is "shared", of the image-level vectors always.
        long_side: working size of the encoder; None is its default.
        vectors: image-level vectors an image.
    """

    encoder: EncoderStamp
    kind: Kind
    rank: int
    space: str
    long_side: int | None
    vectors: int

    def key(self, image: str) -> str:
        """Key of an image: 64 hex digits. `image` is the SHA-256 of its bytes, in hex."""
        basis = self.space if self.kind == "shared" else "own"
        said = [VERSION, self.encoder.name, self.encoder.revision, basis, self.rank, PREPROCESSING, self.long_side]
        return hashlib.sha256(json.dumps([*said, image]).encode()).hexdigest()

    def described(self) -> dict[str, Any]:
        """As JSON; `identity_of` reads it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "encoder": {
                "name": self.encoder.name,
                "revision": self.encoder.revision,
                "width": int(self.encoder.width),
            },
            "basis": self.kind,
            "rank": int(self.rank),
            "space": self.space,
            "preprocessing": {"version": PREPROCESSING, "long_side": self.long_side},
            "vectors": int(self.vectors),
        }


def number(value: Any, most: int, least: int = 0) -> int:
    """A whole number out of a file. Raises ValueError."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is no whole number from {least} to {most}")
    return value


def text(value: Any) -> str:
    """A text out of a file. Raises ValueError."""
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value


def read_small(path: Path, most: int) -> bytes:
    """The bytes of a regular file that has at most so many. Raises OSError, ValueError."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        raise ValueError(f"no file, or one of more than {most} bytes")
    return path.read_bytes()


def identity_of(said: Any, where: str) -> Identity:
    """JSON -> Identity. Raises StoreVersionError for a newer one, StoreDamagedError."""
    try:
        if said["format"] != FORMAT or type(said["version"]) is not int or said["version"] < 1:
            raise ValueError(f"format {said['format']!r}, version {said['version']!r}")
        if said["version"] > VERSION or number(said["preprocessing"]["version"], 2**63, 1) > PREPROCESSING:
            raise StoreVersionError(
                f"{where} has store format version {said['version']}, "
                f"preprocessing {said['preprocessing'].get('version')}",
                expected=f"version {VERSION} and preprocessing {PREPROCESSING}, or older",
                fix="upgrade foveate; or index the images into a new store with this release",
            )
        encoder, side = said["encoder"], said["preprocessing"]["long_side"]
        width = number(encoder["width"], MOST_WIDTH, 1)
        if said["basis"] not in ("own", "shared"):
            raise ValueError(f"basis {said['basis']!r}")
        found = Identity(
            EncoderStamp(text(encoder["name"]), text(encoder["revision"]), width),
            said["basis"],
            number(said["rank"], width, 1),
            text(said["space"]),
            None if side is None else number(side, MAX_PIXELS, 1),
            number(said["vectors"], MOST_VECTORS, 1),
        )
    except FoveateError:
        raise
    except Exception as cause:  # a hostile file fails in many ways
        raise StoreDamagedError(
            f"{where} does not describe a store ({type(cause).__name__}: {cause})",
            expected="what docs/store.md specifies",
            fix="if the shards are there, remove this file: it is made again from them",
        ) from cause
    return found


@dataclass(frozen=True, eq=False)
class Space:
    """The shared basis of a store, and what a step of each axis stands for where cells are kept in it: float32 [r]."""

    basis: Basis
    steps: NDArray[np.float32]

    @cached_property
    def hash(self) -> str:
        """16 hex digits of the SHA-256 of its numbers."""
        digest = hashlib.sha256()
        for array in self.tensors.values():
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def in_steps(self) -> Basis:
        """The basis of cells that are kept in steps."""
        return Basis(self.basis.mean, (self.basis.rows.astype(np.float32) * self.steps[:, None]).astype(np.float16))

    def coordinates(self, x: NDArray[np.float32], metric: Metric) -> NDArray[np.float32]:
        """Features [n, D] -> coordinates in the basis, float32 [n, r]."""
        kept = self.__dict__.get("_inward")
        if kept is None or kept[0] is not metric:  # the same for every image
            kept = self.__dict__["_inward"] = (metric, inward(self.basis, metric))
        return np.asarray((x - self.basis.mean) @ kept[1], np.float32)

    @property
    def tensors(self) -> dict[str, NDArray[Any]]:
        """By name, as in basis.safetensors and, with "space." before it, in shards."""
        return {"mean": self.basis.mean, "rows": self.basis.rows, "steps": self.steps}

    @property
    def content(self) -> bytes:
        """As a safetensors file."""
        return bytes(to_bytes({name: np.ascontiguousarray(array) for name, array in self.tensors.items()}))


def space_of(tensors: Mapping[str, NDArray[Any]]) -> Space:
    """Tensors -> Space. Raises OptionError for what is none."""
    basis, steps = checked_basis(Basis(tensors["mean"], tensors["rows"])), tensors["steps"]
    if steps.dtype != np.float32 or steps.shape != (basis.rank,) or not ((steps > 0) & (steps < HUGE)).all():
        raise OptionError(
            f"steps {steps.dtype} {list(steps.shape)}", expected="positive floats [r]", fix="fit it again"
        )
    for array in (basis.mean, basis.rows, steps):
        array.setflags(write=False)
    return Space(basis, steps)


def space_in(path: Path) -> Space:
    """Read the shared basis of a store. Raises StoreDamagedError."""
    try:
        return space_of(load(read_small(path, MOST_PIECE)))
    except Exception as cause:
        raise StoreDamagedError(
            f"'{path}' cannot be read ({type(cause).__name__}: {cause})",
            expected="the store's shared basis, as docs/store.md specifies",
            fix="if the shards are there, remove this file: it is made again from them",
        ) from cause


def checked_basis(basis: Basis, width: int | None = None) -> Basis:
    """A basis with finite numbers of the right shape and dtype. Raises OptionError."""
    mean, rows = basis.mean, basis.rows
    right = isinstance(mean, np.ndarray) and isinstance(rows, np.ndarray) and mean.ndim == 1 and rows.ndim == 2
    right = right and mean.dtype == np.float32 and rows.dtype == np.float16 and rows.shape[1] == len(mean)
    right = right and 1 <= len(rows) <= len(mean) and bool(np.abs(mean).max() < HUGE and np.isfinite(rows).all())
    if not right or (width is not None and len(mean) != width):
        raise OptionError(
            f"a basis of {getattr(rows, 'dtype', '?')} rows {list(getattr(rows, 'shape', ()))}",
            expected=f"finite: mean float32 [{width or 'D'}], rows float16 [r, {width or 'D'}]",
            fix="take one that foveate.texture.basis.compress made from features of this encoder",
        )
    return basis


def read_format(store: Path) -> Any | None:
    """The content of format.json; None where there is none. Raises StoreDamagedError."""
    try:
        return json.loads(read_small(store / FORMAT_FILE, MOST_FORMAT))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, RecursionError) as cause:
        raise StoreDamagedError(
            f"'{store / FORMAT_FILE}' cannot be read ({cause})",
            expected="what docs/store.md specifies",
            fix="if the shards are there, remove this file: it is made again from them",
        ) from cause
