"""The unit of work: a batch of files becomes a batch of records. No store is needed, and nothing is written.

    EncodeBatch.__call__({"path", "name", ...}) -> the same, and {"size", "modified", "image", "record", "error"}

What is notable
* Columns in, columns out, so the same object runs in a loop, in other processes, or in an engine's `map_batches`. It
  can be pickled where its encoder is given by name. Columns that it does not know come back as they came.
* A record travels as bytes (record.py), a path as text or as bytes: whatever carries columns can carry these.
* A bad image fills "error" with the reason and stops nothing. What is wrong with the encoder is raised: it would be
  wrong for every image.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import (
    EngineError,
    ImageArrayError,
    ImageDecodeError,
    ImageFormatError,
    ImageNotFoundError,
    ImageTooLargeError,
    OptionError,
)
from foveate.core.image import MAX_BYTES, Picture, load_image
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder, check_features
from foveate.relevance.negatives import query_metric_of
from foveate.store.engine import column
from foveate.store.files import Source
from foveate.store.identity import Identity, Space
from foveate.store.record import Record, digest, record_of

BAD = (ImageArrayError, ImageDecodeError, ImageFormatError, ImageNotFoundError, ImageTooLargeError)


@dataclass(frozen=True)
class Content:
    """The bytes of an image file, and what the file system said of it when they were read."""

    source: Source
    content: bytes
    size: int
    modified: int


def read(source: Source) -> Content:
    """Read an image file. Raises ImageNotFoundError, ImageTooLargeError."""
    try:
        if not stat.S_ISREG(os.stat(source.path).st_mode):  # a pipe may never end
            raise OSError("it is not a regular file")
        with open(source.path, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as cause:
        raise ImageNotFoundError(
            f"'{source.name}' cannot be read ({getattr(cause, 'strerror', None) or cause})",
            expected="a readable image file",
            fix="check its permissions",
        ) from cause
    if len(content) > MAX_BYTES:
        raise ImageTooLargeError(
            f"'{source.name}' has more than {MAX_BYTES:,} bytes", expected="fewer", fix="shrink it"
        )
    return Content(source, content, status.st_size, status.st_mtime_ns)


def refuse_hidden(source: Source, error: str) -> None:
    """Raise EngineError for a file that a worker could not read, and that can be read here.

    A machine without the disk would make all of its images bad, and nobody would notice.
    """
    try:
        read(source)
    except BAD:
        return
    raise EngineError(
        f"a worker cannot read '{source.name}' ({error}), which can be read here",
        expected="the same files under the same paths on all machines",
        fix="mount the folder there; or use --shard where the files are. What was done before is kept",
    )


def seen(tower: Encoder, content: bytes, long_side: int | None) -> tuple[Picture, DenseFeatures]:
    """Bytes of an image file -> its picture and its features, checked."""
    picture = load_image(content)
    dense = tower.encode_image(picture.rgb, long_side=long_side)
    check_features(tower, dense, picture.size)
    return picture, dense


def reason(error: Exception) -> str:
    """Why an image is bad, in one line; the list that it stands in says which image."""
    said = " ".join(str(getattr(error, "received", error)).split()).removeprefix("'bytes' ")
    return said.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True)
class EncodeBatch:
    """Files -> records for a store of this identity and shared basis. `encoder`: its name, or an object."""

    encoder: str | Encoder
    identity: Identity
    space: Space

    def __call__(self, batch: Mapping[str, Sequence[Any] | NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Columns as the module says. "image" is the SHA-256 of a file, "record" is b"" where "error" says why."""
        made: dict[str, list[Any]] = {k: [] for k in ("size", "modified", "image", "record", "error")}
        for path, name in zip(batch["path"], batch["name"], strict=True):
            size = modified = 0
            image, record, error = "", b"", ""
            try:
                content = read(Source(received(path), received(name)))
                size, modified, image = content.size, content.modified, digest(content.content)
                record = self.record(content.content).content
            except BAD as cause:
                error = reason(cause)
            for kept, value in zip(made.values(), (size, modified, image, record, error), strict=True):
                kept.append(value)
        given = {name: values if isinstance(values, np.ndarray) else column(values) for name, values in batch.items()}
        return {**given, **{name: column(values) for name, values in made.items()}}

    def record(self, content: bytes) -> Record:
        """The record of an image file's bytes. Raises the Image...Errors, and those of the encoder."""
        tower = self.tower
        picture, dense = seen(tower, content, self.identity.long_side)
        return record_of(digest(content), picture, dense, tower, self.identity, self.space, query_metric_of(tower))

    @property
    def tower(self) -> Encoder:
        """The encoder. Raises OptionError where it is not the one of the identity."""
        tower = resolve_encoder(self.encoder)
        stamp = self.identity.encoder
        if (tower.revision, tower.width) != (stamp.revision, stamp.width):
            raise OptionError(
                f"encoder '{tower.name}', revision {tower.revision}",
                expected=f"'{stamp.name}', revision {stamp.revision}",
                fix="use the encoder of the store",
            )
        return tower


def sendable(name: str) -> bytes:
    """A file's name as bytes, as batches of work take it: not every name is Unicode, and columns of texts must be."""
    return name.encode("utf-8", "surrogateescape")


def received(said: Any) -> str:
    """What `sendable` made, or a text, as a text."""
    return said.decode("utf-8", "surrogateescape") if isinstance(said, bytes) else str(said)
