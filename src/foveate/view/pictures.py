"""The images of a session, by content id, and their textures, encoded once.

An id says nothing of a path: it is a hash of the bytes of an upload, or of name, size and time of a file.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cachetools import LRUCache

from foveate.core.errors import FoveateError, ImageNotFoundError
from foveate.core.image import Picture
from foveate.encoders.load import load_encoder
from foveate.texture.cache import TextureCache
from foveate.texture.texture import Texture
from foveate.view.decoding import Decoder
from foveate.view.encoding import USUAL, SessionEncoding

TEXTURES = 512 * 2**20  # bytes of textures kept
ENCODING = 2  # images at a time
UPLOADS = 256 * 2**20  # bytes of uploaded files kept


@dataclass(frozen=True)
class ImageEntry:
    """An image that can be had: its id, a name for people, how to get it; its texture, where that is not to be made."""

    id: str
    name: str
    load: Callable[[], Picture]
    texture: Callable[[], Texture] | None = None


def file_id(path: Path) -> str:
    """An id of a file that changes when the file does, and does not tell where it is."""
    about = path.stat()
    said = f"{os.path.abspath(path)}\0{about.st_size}\0{about.st_mtime_ns}"
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:24]  # not every name is Unicode


def content_id(content: bytes) -> str:
    """An id of bytes."""
    return hashlib.sha256(content).hexdigest()[:24]


class Pictures:
    """Sources by id, and textures of those used last."""

    def __init__(
        self, find: Callable[[str], ImageEntry | None] = lambda id: None, encoding: SessionEncoding = USUAL
    ) -> None:
        self._find = find  # sources of the target: a folder, a store
        self.encoding = encoding
        self._uploads: LRUCache[str, tuple[str, bytes]] = LRUCache(UPLOADS, lambda each: len(each[1]))
        self.decoder = Decoder()
        self._encoding = threading.Semaphore(ENCODING)
        self._lock = threading.Lock()
        self._textures: TextureCache[Texture] = TextureCache(TEXTURES)

    def prepare(self, first: str | None) -> None:
        """Do now what the first question would wait for: load the encoder, with the first image if there is one."""
        self.decoder.start()
        if first is None:
            load_encoder(self.encoding.encoder or "nano")
        else:
            with suppress(FoveateError):  # the page says it when it asks
                self.texture(first)

    def add(self, content: bytes, name: str) -> str:
        """Keep an upload, if it is an image. -> its id. Raises ImageFormatError and the like."""
        id = content_id(content)
        self._textures.get(id, lambda: self._encode(self.decoder.decode(content, name)))
        with self._lock:
            self._uploads[id] = (name, content)
        return id

    def source(self, id: str) -> ImageEntry:
        """Raises ImageNotFoundError for an id that nobody knows (any more)."""
        with self._lock:
            upload = self._uploads.get(id)
        if upload is not None:
            name, content = upload
            return ImageEntry(id, name, lambda: self.decoder.decode(content, name))
        found = self._find(id)
        if found is None:
            raise ImageNotFoundError(
                f"no image {id!r} in this session", expected="one that was opened here", fix="open the image again"
            )
        return found

    def texture(self, id: str) -> Texture:
        """The texture of an image; made once, whoever asks."""
        return self._textures.get(id, lambda: self._make(self.source(id)))

    def _make(self, source: ImageEntry) -> Texture:
        return self._encode(source.load()) if source.texture is None else source.texture()

    def _encode(self, picture: Picture) -> Texture:
        with self._encoding:  # each takes some hundred megabytes
            return self.encoding.encode(picture)
