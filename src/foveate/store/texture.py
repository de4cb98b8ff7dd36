"""A texture out of the store: the embedding is there at once, everything else when somebody looks at it.

What is notable
* It is a Texture, over the whole image and with its coordinates. `pixel`, and the planes that are made from pixels
  (edges, segments, ...), are made when they are first read: from the image's file if it is still there and has the
  bytes that were indexed, otherwise from the thumbnail, enlarged. `made_by` says which, for each of them.
* What a question needs is kept in the store: embedding, basis, residual, saliency, opacity, words. Only the share that
  a cell takes of its segment's mean (relevance/fusion.py) makes `foveate.score` look at pixels, once a texture.
* `whole` gives a Texture without ties to the store, and so does pickling; `save` writes that.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from foveate.channels.build import SEGMENTS, build_planes
from foveate.core.errors import FoveateError, StoreDamagedError
from foveate.core.grid import Grid, resize_map
from foveate.core.image import MAX_BYTES, Picture, load_image
from foveate.core.layout import COLOURS, native_shape
from foveate.core.readonly import ReadOnly
from foveate.language.negatives import Negatives, nouns
from foveate.reading.words import Words
from foveate.store.format import ALPHA, FLAT
from foveate.store.index import ImageRow
from foveate.store.record import LEVELS, THUMBNAIL, lengths_of
from foveate.store.words import unpack_words
from foveate.texture.basis import Basis
from foveate.texture.texture import Texture

T = TypeVar("T")
Bytes = NDArray[np.uint8]


@dataclass(eq=False)
class LazyPixels:
    """What is made from an image's pixels, when it is first needed: the picture, planes by name, who made them.

    Args:
        places: where the image's file may be, in order; `image` is the SHA-256 of its bytes.
        thumbnail: a JPEG. size: of the image. names: of planes to make. z: what segments follow.
    """

    places: tuple[str, ...]
    image: str
    thumbnail: Bytes
    size: tuple[int, int]
    names: tuple[str, ...]
    z: Callable[[], NDArray[np.floating]]

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._picture: Picture | None = None
        self._origin = ""  # why the picture is not the image itself
        self._planes: dict[str, NDArray[np.float16]] | None = None
        self._made: dict[str, str] = {}

    @property
    def picture(self) -> Picture:
        """From the file, or the thumbnail at the image's size."""
        with self._lock:
            if self._picture is None:
                self._picture, self._origin = self._found() or self._enlarged()
                for array in (self._picture.rgb, self._picture.valid):
                    if array is not None:
                        array.setflags(write=False)
            return self._picture

    @property
    def planes(self) -> dict[str, NDArray[np.float16]]:
        """float16, by name."""
        with self._lock:
            if self._planes is None:
                planes, self._made = build_planes(self.names, self.picture.rgb, self.z())
                self._planes = {name: plane.astype(np.float16) for name, plane in planes.items()}
                for plane in self._planes.values():
                    plane.setflags(write=False)
            return self._planes

    @property
    def made_by(self) -> dict[str, str]:
        """As Texture.made_by: everything from a thumbnail says so."""
        with self._lock:
            made = dict(self._made) if self.planes or not self.names else {}
            if not self._origin:
                return made
            named = sorted({*COLOURS, *self.names})
            return {name: f"{made[name]}, {self._origin}" if name in made else self._origin for name in named}

    @property
    def original(self) -> bool:
        """Whether the picture is from the image's file."""
        return self.picture is not None and not self._origin

    @property
    def nbytes(self) -> int:
        """Of what was made so far."""
        with self._lock:
            picture, planes = self._picture, self._planes or {}
            own = 0 if picture is None else picture.rgb.nbytes + (0 if picture.valid is None else picture.valid.nbytes)
            return own + sum(plane.nbytes for plane in planes.values())

    def _found(self) -> tuple[Picture, str] | None:
        for place in self.places:
            try:
                if os.path.isfile(place) and os.path.getsize(place) <= MAX_BYTES:
                    content = Path(place).read_bytes()
                    if hashlib.sha256(content).hexdigest() == self.image:
                        return load_image(content), ""
            except (OSError, ValueError, FoveateError):
                continue
        return None

    def _enlarged(self) -> tuple[Picture, str]:
        try:
            with Image.open(io.BytesIO(self.thumbnail.tobytes()), formats=["JPEG"]) as image:
                if max(image.size) > THUMBNAIL:
                    raise ValueError(f"{image.size} pixels")
                small = np.asarray(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as cause:
            raise StoreDamagedError(
                f"the thumbnail of image {self.image[:16]} is damaged ({cause})",
                expected="a small JPEG",
                fix="put the image's file back, or index it again",
            ) from cause
        rgb = small
        if small.shape[:2] != self.size:
            rgb = np.asarray(cv2.resize(small, self.size[::-1], interpolation=cv2.INTER_LINEAR), np.uint8)
        origin = f"from a thumbnail of {small.shape[0]} x {small.shape[1]} pixels: the image is not there any more"
        return Picture(np.array(rgb), None, "thumbnail"), origin


class LazyPlanes(Mapping[str, NDArray[np.float16]]):
    """Planes by name: saliency is there, the others are made when one of them is first read.

    `text` makes the plane of an image that was read.
    """

    def __init__(
        self, saliency: Bytes, pixels: LazyPixels, text: Callable[[], NDArray[np.float32]] | None = None
    ) -> None:
        self._levels, self._pixels, self._text = saliency, pixels, text
        self._kept = ("saliency",) if text is None else ("saliency", "text")

    @cached_property
    def _saliency(self) -> NDArray[np.float16]:
        plane = (self._levels / np.float32(LEVELS)).astype(np.float16)
        plane.setflags(write=False)
        return plane

    @cached_property
    def _writing(self) -> NDArray[np.float16]:
        assert self._text is not None
        plane = self._text().astype(np.float16)
        plane.setflags(write=False)
        return plane

    def __getitem__(self, name: str) -> NDArray[np.float16]:
        if name in self._kept:
            return self._saliency if name == "saliency" else self._writing
        if name not in self._pixels.names:
            raise KeyError(name)
        return self._pixels.planes[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._kept, *self._pixels.names))

    def __len__(self) -> int:
        return len(self._kept) + len(self._pixels.names)

    def __contains__(self, name: object) -> bool:
        return name in self._kept or name in self._pixels.names


class StoredTexture(Texture):
    """A Texture whose pixels and planes are made when they are needed. Made by `stored_texture`."""

    _pixels: LazyPixels | _Fixed
    _alpha: Bytes | None
    _residual: NDArray[np.float16] | tuple[Bytes, float]
    _rivals: NDArray[np.float16] | None
    _words: Words | Bytes | None

    def __init__(
        self,
        pixels: LazyPixels | None = None,
        alpha: Bytes | None = None,
        negatives: NDArray[np.float16] | None = None,
        **fields: Any,
    ) -> None:
        if pixels is None:  # dataclasses.replace passes everything that a Texture has
            pixels_now = _Fixed(*(fields.pop(name) for name in ("pixel", "valid", "made_by")))
            values = {**fields, "planes": ReadOnly(fields["planes"]), "_pixels": pixels_now}
            alpha = values["_pixels"].picture.valid
        else:
            values = {"extra": ReadOnly({}), **fields, "_pixels": pixels}
        values["_residual"], values["_words"] = values.pop("residual"), values.pop("words", None)
        values |= {"_alpha": alpha, "_rivals": negatives, "_derived": {}}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self.embedding.setflags(write=False)

    @property
    def residual(self) -> NDArray[np.float16]:
        if isinstance(self._residual, np.ndarray):
            return self._residual
        levels, step = self._residual
        return self.derive("residual", lambda: lengths_of(levels, step))

    @property
    def words(self) -> Words | None:
        if not isinstance(self._words, np.ndarray):
            return self._words
        packed = self._words
        return self.derive("words", lambda: self._unpacked(packed))

    @property
    def pixel(self) -> Bytes:
        return self._pixels.picture.rgb

    @property
    def valid(self) -> Bytes | None:
        if self._alpha is None:
            return None
        valid = self._pixels.picture.valid
        return self.derive("valid", lambda: self._enlarged_alpha()) if valid is None else valid

    @property
    def made_by(self) -> Mapping[str, str]:
        made, words = self._pixels.made_by, self.words if isinstance(self._words, np.ndarray) else None
        return ReadOnly(made if words is None else {**made, "text": words.reader})

    @property
    def nbytes(self) -> int:
        """Bytes of what is in memory now; pixels and planes count once they were made."""
        own = self.embedding.nbytes + self.basis.mean.nbytes + self.basis.rows.nbytes
        words = 0 if self._words is None else self._words.nbytes
        return own + words + 4 * self.grid.count + self._pixels.nbytes

    @property
    def original(self) -> bool:
        """Whether the pixels are those of the image's file, and not the thumbnail's. Looks for the file."""
        return self._pixels.original

    @property
    def thumbnail(self) -> bytes:
        """A small JPEG of the image; nothing of a copy that was made with changes."""
        return self._pixels.thumbnail.tobytes()

    def whole(self) -> Texture:
        """The same as a Texture without ties to the store; its pixels and planes are made."""
        return Texture(
            grid=self.grid,
            pixel=self.pixel,
            valid=self.valid,
            planes=dict(self.planes),
            embedding=self.embedding.astype(np.float16),
            basis=self.basis,
            residual=self.residual,
            encoder=self.encoder,
            preprocessing=self.preprocessing,
            name=self.name,
            made_by=self.made_by,
            words=self.words,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        self.whole().save(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (self.whole(),)

    def with_channel(self, name: str, plane: ArrayLike, **said: Any) -> Texture:
        return self.whole().with_channel(name, plane, **said)

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        if isinstance(key, tuple) and key[0] == "negatives" and self._rivals is not None and _is_bank(key[1]):
            level: Any = self._rivals.ravel().astype(np.float64)
            return super().derive(key, lambda: np.exp(np.clip(key[2] * level, -700, 700)) * len(key[1].vectors))
        return super().derive(key, make)

    def with_words(self, words: Words) -> Texture:
        return self.whole().with_words(words)

    def _unpacked(self, packed: Bytes) -> Words:
        try:
            return unpack_words(packed.tobytes(), (self.grid.height, self.grid.width))
        except ValueError as cause:
            raise StoreDamagedError(
                f"the words of '{self.name}' are damaged ({cause})",
                expected="what docs/store.md specifies, as it was written",
                fix="foveate store verify STORE --repair; then index the folder again",
            ) from cause

    def _enlarged_alpha(self) -> Bytes:
        assert self._alpha is not None
        return np.rint(np.clip(resize_map(self._alpha, (self.grid.height, self.grid.width)), 0, 255)).astype(np.uint8)


class _Fixed:
    """What stands for LazyPixels in a copy that dataclasses.replace made."""

    def __init__(self, pixel: Bytes, valid: Bytes | None, made_by: Mapping[str, str]) -> None:
        self.picture, self.made_by, self.original = Picture(pixel, valid, ""), dict(made_by), COLOURS[0] not in made_by
        self.nbytes = pixel.nbytes + (0 if valid is None else valid.nbytes)
        self.thumbnail = np.zeros(0, np.uint8)


def stored_texture(
    row: ImageRow,
    tensors: Mapping[str, NDArray[Any]],
    basis: Basis,
    channels: tuple[str, ...],
    places: tuple[str, ...],
    **fields: Any,
) -> StoredTexture:
    """The texture of a record: `tensors` by the names of format.py; `channels` are planes to make when needed.

    `places` are where the image may be; `fields`: encoder, preprocessing and name, as in Texture.
    """
    embedding, size = tensors["embedding"], (row.height, row.width)
    words = tensors.get("words")
    kept = ("saliency",) if words is None else ("saliency", "text")
    names = tuple(n for n in channels if n not in kept and not (row.flags & FLAT and n in SEGMENTS))
    alpha = tensors["valid"] if row.flags & ALPHA else None
    grid = Grid(row.h, row.w, *size)

    def coordinates() -> NDArray[np.floating]:
        return embedding.astype(np.float32) * steps_of(tensors, basis)

    def writing() -> NDArray[np.float32]:
        assert texture.words is not None
        return texture.words.mask(native_shape("quarter", grid), grid)

    pixels = LazyPixels(places, row.image, tensors["thumbnail"], size, names, coordinates)
    texture = StoredTexture(
        pixels,
        alpha,
        tensors.get("rivals"),
        grid=grid,
        planes=LazyPlanes(tensors["saliency"], pixels, None if words is None else writing),
        embedding=embedding,
        basis=basis,
        residual=(tensors["residual"], row.step),
        words=words,
        **fields,
    )
    if alpha is not None:
        texture._derived["validity"] = alpha.ravel() / np.float32(255)
    return texture


def steps_of(tensors: Mapping[str, NDArray[Any]], basis: Basis) -> NDArray[np.float32]:
    """What one step of each axis stands for: as it was kept; by the length of its row for a shared basis."""
    if "basis.steps" in tensors:
        return tensors["basis.steps"]
    return np.asarray(np.linalg.norm(basis.rows.astype(np.float32), axis=1))


def _is_bank(negatives: Negatives) -> bool:
    return len(negatives.vectors) == len(nouns())


def _same(texture: Texture) -> Texture:
    return texture
