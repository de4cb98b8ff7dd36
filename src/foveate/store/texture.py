"""A texture out of the store: the embedding is there at once, everything else is made when it is first read.

That is from the image's file, if it still has the bytes that were indexed, otherwise from the enlarged thumbnail.
"""

from __future__ import annotations

import copy
import hashlib
import io
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import FrozenInstanceError, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.channels.build import SEGMENTS, build_planes
from foveate.core.arrays import to_single
from foveate.core.errors import FoveateError
from foveate.core.grid import resize_map
from foveate.core.image import MAX_BYTES, Picture, load_image
from foveate.core.layout import COLOURS, native_shape
from foveate.core.readonly import ReadOnly
from foveate.encoders.load import match_encoder
from foveate.language.negatives import nouns
from foveate.reading.words import Words
from foveate.store.record import ALPHA, FLAT, LEVELS, THUMBNAIL, Record, lengths_of
from foveate.store.schema import damaged
from foveate.store.words import unpack_words
from foveate.texture.basis import Basis, unpacked
from foveate.texture.texture import EncoderStamp, Texture

T = TypeVar("T")
Bytes = NDArray[np.uint8]
Halves = NDArray[np.float16]
Floats = NDArray[np.float32]
NOTHING: ReadOnly[str, Any] = ReadOnly({})


class StoredTexture(Texture):
    """A Texture whose pixels and planes are made when they are first read; copies and pickles are plain Textures."""

    _id: str  # SHA-256 of the image's file
    _record: Record
    _names: tuple[str, ...]  # of planes that are made from pixels
    _places: tuple[str, ...]  # where the image's file may be
    _basis: Basis | None  # None: the record's, which is widened when it is first read

    def __new__(cls, stored: Mapping[str, Any] | None = None, **fields: Any) -> Texture:  # type: ignore[misc]
        if stored is None:  # dataclasses.replace passes all that a Texture has
            return Texture(**fields | {"embedding": fields["embedding"].astype(np.float16)})
        return object.__new__(cls)

    def __init__(self, stored: Mapping[str, Any], **fields: Any) -> None:
        self.__dict__.update({"extra": NOTHING, "_derived": {}, **stored, **fields})
        self.embedding.setflags(write=False)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    @property
    def basis(self) -> Basis:
        return self._basis or self.derive("basis", lambda: unpacked(*self._packed, self.encoder.width))

    @property
    def _packed(self) -> tuple[Bytes, Floats, Halves]:
        tensors = self._record.tensors
        return tensors["basis.columns"], tensors["basis.mean"], tensors["basis.rows"]

    def _projection(self) -> tuple[Any, Floats, Floats]:
        if self._basis is not None:
            return super()._projection()
        columns, mean, rows = self._packed
        return np.unpackbits(columns, count=self.encoder.width).astype(bool), mean, to_single(rows)

    @property
    def pixel(self) -> Bytes:
        return self._picture[0].rgb

    @property
    def valid(self) -> Bytes | None:
        if not self._record.flags & ALPHA:
            return None
        return self._picture[0].valid if self._picture[0].valid is not None else self.derive("valid", self._opacity)

    @property
    def residual(self) -> Halves:
        return self.derive("residual", lambda: lengths_of(self._record.tensors["residual"], self._record.step))

    @property
    def words(self) -> Words | None:
        return self.derive("words", self._unpack) if "words" in self._record.tensors else None

    @property
    def planes(self) -> Mapping[str, Halves]:
        return StoredPlanes(self)

    @property
    def made_by(self) -> Mapping[str, str]:
        made = dict(self._made[1]) if self._names else {}
        if origin := self._picture[1]:
            named = sorted({*COLOURS, *self._names})
            made = {name: f"{made[name]}, {origin}" if name in made else origin for name in named}
        return ReadOnly(made if self.words is None else {**made, "text": self.words.reader})

    @property
    def original(self) -> bool:
        """Whether the pixels are those of the image's file, and not the thumbnail's. Looks for the file."""
        return not self._picture[1]

    @property
    def nbytes(self) -> int:
        """Bytes of what is in memory now; pixels and planes count once they were made."""
        picture, planes = (self._derived.get(key, ({}, {}))[0] for key in ("picture", "made"))
        made = [*planes.values(), *((picture.rgb, picture.valid) if picture else ())]
        basis = self._basis or self._derived.get("basis")
        parts = (basis.mean, basis.rows) if basis else self._packed
        own = (self.embedding, *parts, self._record.tensors.get("words"), *made)
        return 4 * self.grid.count + sum(each.nbytes for each in own if each is not None)

    @property
    def thumbnail(self) -> bytes:
        return self._record.tensors["thumbnail"].tobytes()

    @property
    def looks(self) -> NDArray[np.int8] | None:
        return self._record.tensors.get("looks")

    def find_looks(self) -> NDArray[np.int8] | None:
        """Those that are kept; else from the image's file, once. None where it is gone, or its encoder has no looks."""
        return self.derive("looks", self._look_again) if self.looks is None else self.looks

    def in_basis(self, embedding: Halves, basis: Basis, encoder: EncoderStamp) -> Texture:
        stored = {name: getattr(self, name) for name in ("_id", "_record", "_names", "_places")} | {"_basis": basis}
        fields = {name: getattr(self, name) for name in ("grid", "preprocessing", "name")}
        texture: Any = StoredTexture(stored, embedding=embedding, encoder=encoder, **fields)
        texture._derived.update({key: self._derived[key] for key in ("validity", "picture") if key in self._derived})
        return texture

    def whole(self) -> Texture:
        """The same as a Texture without ties to the store; its pixels and planes are made."""
        return replace(self, planes=dict(self.planes))

    def save(self, path: str | os.PathLike[str]) -> None:
        self.whole().save(path)

    def __reduce__(self) -> Any:
        return copy.copy, (self.whole(),)  # a Texture is its own copy

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        if isinstance(key, tuple) and key[0] == "negatives" and "rivals" in self._record.tensors:
            bank, level = key[1], self._record.tensors["rivals"].ravel().astype(np.float64)
            if len(bank.vectors) == len(nouns()):  # what ingest asked
                made: Any = lambda: np.exp(np.clip(key[2] * level, -700, 700)) * len(bank.vectors)  # noqa: E731
                return super().derive(key, made)
        return super().derive(key, make)

    @property
    def _picture(self) -> tuple[Picture, str]:
        """From the file, or the thumbnail at the image's size with the reason."""
        return self.derive("picture", lambda: self._found() or self._enlarged())

    @property
    def _made(self) -> tuple[dict[str, Halves], dict[str, str]]:
        def make() -> tuple[dict[str, Halves], dict[str, str]]:
            kept = self._record.tensors["embedding"].astype(np.float32)  # `in_basis` may have added to it
            z = kept * steps_of(self._record.tensors, self.basis)[: kept.shape[-1]]
            planes, made = build_planes(self._names, self.pixel, z)
            return {name: _read_only(plane.astype(np.float16)) for name, plane in planes.items()}, made

        return self.derive("made", make)

    def _look_again(self) -> NDArray[np.int8] | None:
        try:
            encoder = match_encoder(self.encoder, None)
        except FoveateError:
            return None
        long_side = self.preprocessing["long_side"]
        return encoder.encode_image(self.pixel, long_side=long_side).looks if self.original else None

    def _found(self) -> tuple[Picture, str] | None:
        for place in self._places:
            try:
                if os.path.isfile(place) and os.path.getsize(place) <= MAX_BYTES:
                    content = Path(place).read_bytes()
                    if hashlib.sha256(content).hexdigest() == self._id:
                        picture = load_image(content)
                        return replace(
                            picture,
                            rgb=_read_only(picture.rgb),
                            valid=None if picture.valid is None else _read_only(picture.valid),
                        ), ""
            except (OSError, ValueError, FoveateError):
                continue
        return None

    def _enlarged(self) -> tuple[Picture, str]:
        try:
            with Image.open(io.BytesIO(self.thumbnail), formats=["JPEG"]) as image:
                if max(image.size) > THUMBNAIL:
                    raise ValueError(f"{image.size} pixels")
                small = np.array(image.convert("RGB"))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as cause:
            fix = "put the image's file back, or index it again"
            raise damaged(f"the thumbnail of image {self._id[:16]}", cause, fix) from cause
        rgb, size = small, (self.grid.height, self.grid.width)
        if small.shape[:2] != size:
            rgb = np.asarray(cv2.resize(small, size[::-1], interpolation=cv2.INTER_LINEAR), np.uint8)
        origin = f"from a thumbnail of {small.shape[0]} x {small.shape[1]} pixels: the image is not there any more"
        return Picture(_read_only(rgb), None, "thumbnail"), origin

    def _unpack(self) -> Words:
        try:
            return unpack_words(self._record.tensors["words"].tobytes(), (self.grid.height, self.grid.width))
        except ValueError as cause:
            raise damaged(f"what is written in '{self.name}'", cause) from cause

    def _opacity(self) -> Bytes:
        enlarged = resize_map(self._record.tensors["valid"], (self.grid.height, self.grid.width))
        return np.rint(np.clip(enlarged, 0, 255)).astype(np.uint8)


class StoredPlanes(ReadOnly[str, Halves]):
    """The planes of a stored texture, by name; one that is not kept is made when it is first read."""

    __slots__ = ("_texture",)

    def __init__(self, texture: StoredTexture) -> None:
        super().__init__({})
        self._texture = texture

    def __reduce__(self) -> Any:
        return ReadOnly, (dict(self),)

    def __getitem__(self, name: str) -> Halves:
        texture = self._texture
        if name == "saliency":
            levels = texture._record.tensors["saliency"]
            return texture.derive("plane saliency", lambda: (levels / np.float32(LEVELS)).astype(np.float16))
        if name == "text" and texture.words is not None:
            words, shape = texture.words, native_shape("quarter", texture.grid)
            return texture.derive("plane text", lambda: words.mask(shape, texture.grid).astype(np.float16))
        if name not in texture._names:
            raise KeyError(name)
        return texture._made[0][name]

    def __iter__(self) -> Iterator[str]:
        return iter((*_kept(self._texture._record.tensors), *self._texture._names))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == each for each in self)

    get, items = Mapping.get, Mapping.items  # type: ignore[assignment]  # ReadOnly's look into its own dict


def stored_texture(
    id: str, record: Record, basis: Basis | None, channels: tuple[str, ...], places: tuple[str, ...], **fields: Any
) -> StoredTexture:
    """The texture of a record; `channels` are planes to make when needed, `places` where the image may be.

    basis: None where the record has it with its columns.
    """
    kept = _kept(record.tensors)
    names = _names_of(channels, kept, bool(record.flags & FLAT))
    stored = {"_id": id, "_record": record, "_names": names, "_places": places, "_basis": basis}
    texture: Any = StoredTexture(stored, grid=record.grid, embedding=record.tensors["embedding"], **fields)
    if record.flags & ALPHA:  # as ingest saw it, on the cells
        texture.derive("validity", lambda: record.tensors["valid"].ravel() / np.float32(255))
    return texture


@lru_cache(64)
def _names_of(channels: tuple[str, ...], kept: tuple[str, ...], flat: bool) -> tuple[str, ...]:
    return tuple(name for name in channels if name not in kept and not (flat and name in SEGMENTS))


def steps_of(tensors: Mapping[str, NDArray[Any]], basis: Basis) -> NDArray[np.float32]:
    """The step of each axis: as it was kept; by the length of its row for a shared basis."""
    if "basis.steps" in tensors:
        return tensors["basis.steps"]
    return np.asarray(np.linalg.norm(basis.rows.astype(np.float32), axis=1))


def _kept(tensors: Mapping[str, Any]) -> tuple[str, ...]:
    return ("saliency", "text") if "words" in tensors else ("saliency",)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
