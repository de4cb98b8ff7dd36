"""One file -> one row: what threads and an engine's workers do for `add`. It needs no store."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.devices import explain_device
from foveate.core.errors import ImageError, OptionError
from foveate.core.image import Picture
from foveate.core.threads import products_in_one_thread
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder, check_features, encode_images, gpu_of
from foveate.language.negatives import query_metric_of
from foveate.reading.readers import read_words
from foveate.reading.words import WordReader
from foveate.store.record import Record, add_words, record_of
from foveate.store.schema import Identity, Space, Told
from foveate.store.sources import Decoded, Source, decode_for, explain, over_whole, plain, read
from foveate.store.words import text_of, unpack_words

BATCH = 16  # images of an engine's batch, and of a GPU's
LARGE = 2**24  # bytes of a picture: many of them do not wait for a batch to be full
TAKEN = (36867, 306)  # EXIF: when a photograph was taken, or changed
Vectors = NDArray[np.float16]
Made = tuple[Source, Told | None, bytes, Vectors, str]
NONE = np.zeros(0, np.float16)


@dataclass(frozen=True)
class EncodeBatch:
    """Files -> rows for a store of this identity and shared basis: of each (file, told, record, vectors, error).

    Told is None of a file that cannot be read; its record is b"" where `has` says that the store has it, or it is no
    image: then the error says why. What is wrong with the encoder is raised.

    Attributes:
        encoder: a name, for which `device` holds, or an object. reader: None is for a store that is not read.
        has: of an id, whether it is there: then the file is not encoded.
    """

    encoder: str | Encoder
    identity: Identity
    space: Space
    reader: WordReader | None = None
    device: str | None = None
    has: Callable[[str], bool] | None = None

    def __call__(self, sources: Sequence[Source]) -> list[Made]:
        """Files as the class describes it."""
        together = 0 if gpu_of(self.resolve()) is None else BATCH * LARGE
        made, waiting = list[Made](), list[tuple[Source, Told | None, Decoded | str]]()
        for source in sources:
            waiting.append((source, *self._open(source)))
            if sum(picture[0].rgb.nbytes for *_, picture in waiting if not isinstance(picture, str)) >= together:
                made += self._rows(waiting)
                waiting = []
        return made + list(self._rows(waiting))

    def _open(self, source: Source) -> tuple[Told | None, Decoded | str]:
        """A file that was read, with its picture; or why there is none, "" where the store has it."""
        told = None
        try:
            content, status = read(source)
            id = hashlib.sha256(content).hexdigest()
            told = Told(
                id, plain(source.name), plain(source.path), status.st_size, status.st_mtime_ns // 1000, 1, 1,
                taken_at(content), self.identity.encoder.name, None,
            )  # fmt: skip
            return told, "" if self.has and self.has(id) else self.decode(content)
        except ImageError as cause:
            return told, explain(cause)

    def _rows(self, opened: Sequence[tuple[Source, Told | None, Decoded | str]]) -> Iterator[Made]:
        dense = iter(self.look([picture for *_, picture in opened if not isinstance(picture, str)]))
        for source, told, picture in opened:
            if isinstance(picture, str):
                yield source, told, b"", NONE, picture
                continue
            assert told is not None
            record, error = self.finish(picture[0], next(dense))
            yield source, described(told, record), record.content, np.asarray(record.vectors).ravel(), error

    def decode(self, content: bytes) -> Decoded:
        """The picture of a file's bytes, and the size that the whole image has. Raises the Image...Errors."""
        return decode_for(self.resolve(), content, self.identity.long_side, whole=self.reader is not None)

    def look(self, decoded: Sequence[Decoded]) -> list[DenseFeatures]:
        """Features of pictures, together where the encoder takes several. Raises DeviceError, and what it raises."""
        pictures = [picture for picture, _ in decoded]
        encoder, side = self.resolve(), self.identity.long_side
        with explain_device(f"{len(pictures)} images", f"the device of '{encoder.name}'"):
            if hasattr(encoder, "encode_images"):
                found = encode_images(encoder, [picture.rgb for picture in pictures], side)
            else:
                found = [encoder.encode_image(picture.rgb, long_side=side) for picture in pictures]
        for picture, dense in zip(pictures, found, strict=True):
            check_features(encoder, dense, picture.size)
        return [over_whole(dense, size) for dense, (_, size) in zip(found, decoded, strict=True)]

    def finish(self, picture: Picture, dense: DenseFeatures) -> tuple[Record, str]:
        """The record of a picture that was looked at, and why it could not be read: then it has no words.

        Raises MissingExtraError of the reader.
        """
        encoder = self.resolve()
        metric = query_metric_of(encoder)
        with products_in_one_thread():
            record = record_of(picture, dense, encoder, self.identity, self.space, metric)
        if self.reader is None:
            return record, ""
        try:
            return add_words(record, read_words(picture.rgb, self.reader)), ""
        except OptionError as cause:
            return record, explain(cause)

    def resolve(self) -> Encoder:
        """The encoder. Raises OptionError where it is not the one of the identity."""
        device = self.device if isinstance(self.encoder, str) else None  # an object works where it was made
        encoder, stamp = resolve_encoder(self.encoder, device), self.identity.encoder
        if (encoder.revision, encoder.width) != (stamp.revision, stamp.width):
            raise OptionError(
                f"encoder '{encoder.name}', revision {encoder.revision}",
                expected=f"'{stamp.name}', revision {stamp.revision}",
                fix="use the encoder of the store",
            )
        return encoder


def described(told: Told, record: Record) -> Told:
    """With what the record says: size, and what is written."""
    size = record.grid.height, record.grid.width
    words = record.tensors.get("words")
    text = None if words is None else text_of(unpack_words(words.tobytes(), size))
    return replace(told, height=size[0], width=size[1], words=text)


def taken_at(content: bytes) -> datetime | None:
    """When a photograph was taken, by the camera's clock (EXIF); None where it does not say."""
    with suppress(Exception), Image.open(io.BytesIO(content)) as image:  # whatever hostile EXIF raises
        exif = image.getexif()
        said = exif.get_ifd(34665).get(TAKEN[0]) or exif.get(TAKEN[1])
        return datetime.strptime(str(said).strip("\0 "), "%Y:%m:%d %H:%M:%S") if said else None
    return None
