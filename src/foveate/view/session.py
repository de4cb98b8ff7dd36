"""A session of the viewer: what it shows (`Target`), how it encodes and asks, its images by id and their textures. An
id is a hash of an upload's bytes, or of a file's name, size and time.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray
from PIL import Image
from starlette.routing import Route

from foveate.core.errors import FoveateError, ImageNotFoundError, OptionError
from foveate.core.image import Picture
from foveate.encoders.load import load_encoder
from foveate.encoders.specialists import name_in_textures
from foveate.encoders.taught import TaughtWords
from foveate.pipeline import encode, score, teach
from foveate.reading.pdf import PdfPage
from foveate.relevance.presets import PresetName, find_preset, remember_preset
from foveate.texture.cache import TextureCache
from foveate.texture.texture import Texture
from foveate.view.decoding import Decoder

# Bounds of memory, chosen by hand (docs/viewer.md names the first and the last).
TEXTURES = 512 * 2**20  # bytes of textures kept
ENCODING = 2  # images at a time: each takes some hundred megabytes
UPLOADS = 256 * 2**20  # bytes of uploaded files kept
BOXES = 500  # of taught words
# As low as can be: a large working size costs little, and every option is used.
STRIP = Picture(np.resize(np.arange(256, dtype=np.uint8), (8, 512, 3)), None, "strip")


@dataclass(frozen=True)
class SessionEncoding:
    """Keywords of `foveate.encode` that were named; None is its default. `encoder` is also for questions, `words`
    for them and for clips."""

    encoder: str | None = None
    preset: PresetName | None = None
    long_side: int | Literal["native"] | None = None
    read: bool | str | None = None
    words: TaughtWords | None = None

    @property
    def reads(self) -> bool:
        return bool(find_preset(self.preset).encoding.get("read") if self.read is None else self.read)

    @property
    def named(self) -> dict[str, Any]:
        keywords = {"preset": self.preset, "long_side": self.long_side, "read": self.read}
        return {name: value for name, value in keywords.items() if value is not None}

    @property
    def told(self) -> dict[str, Any]:
        """All keywords for the page; of an encoder's folder, and of specialists, the name alone."""
        if self.encoder is None:
            return self.named
        kind, colon, place = name_in_textures(self.encoder).partition(":")
        if any(Path(each).is_dir() for each in (place, place.partition("#")[0]) if each):
            place = Path(place).resolve().name
        return {"encoder": kind + colon + place, **self.named}

    def encode(self, image: Picture | PdfPage | str, page: int | None = None) -> Texture:
        """A page that was opened keeps its own words, unless another reader is named or a scan is to be read."""
        if isinstance(image, PdfPage):
            if image.words is not None and self.read in (None, True) and not (image.scanned and self.reads):
                return replace(self, read=False).encode(image.picture).with_words(image.words)
            image = image.picture
        return encode(image, encoder=self.encoder or "nano", page=page, **self.named)

    def take(self, texture: Texture) -> Texture:
        """A texture that was encoded elsewhere: it goes by the preset, and is read where that is asked for."""
        texture = remember_preset(texture, self.preset)
        return texture.read(self.read if isinstance(self.read, str) else "auto") if self.reads else texture

    def check(self) -> None:
        """Load what was named, and raise what is wrong with it before an image waits: as `encode` and `score`."""
        if self.preset == "gaze":  # it would need one in every question
            raise OptionError(
                "preset='gaze' in the viewer",
                expected="another: no image has a gaze before somebody looks",
                fix="leave it out, and switch on 'My pointer is my gaze' on the page",
            )
        if self != USUAL:
            score(self.encode(STRIP), "a dog", encoder=self.encoder, words=self.words)


USUAL = SessionEncoding()


@dataclass(frozen=True)
class ImageEntry:
    """An image that can be had; its texture, where that is not to be made. Of a page of a PDF `load` gives the path,
    and `page` is the file's name and the number of the page, from 1."""

    id: str
    name: str
    load: Callable[[], Picture | PdfPage | str]
    texture: Callable[[], Texture] | None = None
    page: tuple[str, int] | None = None


@dataclass(frozen=True)
class Target:
    """What is shown: `session` has kind ("empty", "image", "folder", "store", "clip"), name, first (an id or None), ...
    `routes` are of this kind alone, given the session's pictures."""

    session: Mapping[str, Any]
    find: Callable[[str], ImageEntry | None] = lambda id: None
    routes: Callable[[Pictures], Sequence[Route]] = field(default=lambda pictures: [])
    encoding: SessionEncoding = USUAL


class Pictures:
    """Images by id, and textures of those used last, each encoded once."""

    def __init__(
        self, find: Callable[[str], ImageEntry | None] = lambda id: None, encoding: SessionEncoding = USUAL
    ) -> None:
        self._find = find  # images of the target: a folder, a store
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
            with suppress(FoveateError):  # the page shows it when it asks
                self.texture(first)

    def add(self, content: bytes, name: str) -> str:
        """Keep an upload, if it is an image or a PDF. -> its id. Raises ImageFormatError and the like."""
        id = hashlib.sha256(content).hexdigest()[:24]
        self._textures.get(id, lambda: self._encode(self.decoder.decode(content, name)))
        with self._lock:
            self._uploads[id] = (name, content)
        return id

    def teach(self, name: str, id: str, box: Sequence[float]) -> None:
        """Another box of a word, for all questions from now on. Raises as `foveate.teach`, OptionError for too many."""
        texture = self.texture(id)
        with self._lock:
            words = self.encoding.words
            if words is not None and sum(len(word.examples) for word in words.words) >= BOXES:
                raise OptionError(
                    f"more than {BOXES} boxes", expected="fewer", fix="keep words.fov, and forget them here"
                )
            self.encoding = replace(self.encoding, words=teach(name, [(texture, box)], words=words))

    def forget(self, name: str) -> None:
        """Take back a word that was taught, here or before; nothing happens where there is none."""
        with self._lock:
            words = self.encoding.words
            if words is not None:
                left = replace(words, words=tuple(word for word in words.words if word.name != name))
                self.encoding = replace(self.encoding, words=left)

    def source(self, id: str) -> ImageEntry:
        """Raises ImageNotFoundError for an id that is not known (any more)."""
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
        """Requests for one at the same time wait for one encoding."""
        return self._textures.get(id, lambda: self._make(self.source(id)))

    def _make(self, source: ImageEntry) -> Texture:
        page = None if source.page is None else source.page[1]
        return self._encode(source.load(), page) if source.texture is None else source.texture()

    def page(self, id: str) -> tuple[str, int] | None:
        """Of a page of a PDF the file's name and the number of the page."""
        found = self._find(id)
        return None if found is None else found.page

    def _encode(self, image: Picture | PdfPage | str, page: int | None = None) -> Texture:
        with self._encoding:
            return self.encoding.encode(image, page)


def file_id(path: Path) -> str:
    """It changes with the file, and does not tell where it is."""
    about = path.stat()
    said = f"{os.path.abspath(path)}\0{about.st_size}\0{about.st_mtime_ns}"
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:24]  # not every name is Unicode


def shown_name(name: str) -> str:
    """A name that can be sent: file systems allow what is no Unicode."""
    return name.encode("utf-8", "replace").decode()


def to_jpeg(rgb: NDArray[np.uint8], quality: int = 92) -> bytes:
    """A picture, uint8 [H, W, 3], as a JPEG. quality: as Pillow has it, 1 to 95."""
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, "JPEG", quality=quality)
    return out.getvalue()
