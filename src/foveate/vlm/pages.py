"""Which of the images that a model sees are read, and by whom.

Reading takes seconds, and what is written matters on pages first: "auto" reads what looks like one by its text channel
(relevance/fusion.py: many pieces of writing, a twentieth of the image), where a reader is installed. It leaves alone
photographs, streets with signs among them; True, or a reader by name, reads everything. `python -m benchmarks
reading_vlm` says how often "auto" is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from foveate.channels.build import CHANNEL_SETS
from foveate.channels.change import CHANGED, describe_cells, measure_change
from foveate.core.errors import MissingExtraError, ModelFilesError, OptionError, ReadingWarning, warn
from foveate.reading.pdf import PdfPage
from foveate.reading.readers import ReadBy, can_read, choose_reader
from foveate.reading.words import WordReader
from foveate.relevance.written import page_of
from foveate.texture.texture import Texture

CHANNELS = (*CHANNEL_SETS["standard"], "text")  # of textures: questions look at writing, and a page is known by it
PAGE = 0.5  # of `page_of`
Read = bool | Literal["auto"] | ReadBy


def find_reader_of(read: Read) -> WordReader | Literal["auto"] | None:
    """The keyword `read` of `VLM.see` -> who reads every image; "auto" for pages alone; None. Raises OptionError."""
    if isinstance(read, str) and read == "auto":
        return "auto" if can_read() else None
    return choose_reader(read, wanted=False)


def is_page(texture: Texture) -> bool:
    """Whether a texture with a text channel shows a page."""
    return page_of(texture)[0] >= PAGE


def with_layer(texture: Texture, page: PdfPage | None, read: Read) -> Texture:
    """A texture of a PDF's page with the words of its text layer, where those say what is on it."""
    wanted = read is True or (isinstance(read, str) and read == "auto")
    if page is None or page.words is None or page.scanned or not wanted:
        return texture
    whole = texture.pixel.shape == page.picture.rgb.shape  # LLaVA's tower sees a part only
    return texture.with_words(page.words) if whole else texture


def read_textures(textures: Sequence[Texture], reader: WordReader | Literal["auto"] | None) -> tuple[Texture, ...]:
    """Textures that know what is written in their images; those that do already stay as they are.

    With "auto" a reader that fails is a warning, and the image stays as it was; a reader that was asked for raises
    OptionError or MissingExtraError.
    """
    return tuple(textures) if reader is None else tuple(_read(texture, reader) for texture in textures)


def read_frames(textures: Sequence[Texture], reader: WordReader | Literal["auto"] | None) -> tuple[Texture, ...]:
    """The same for the frames of a clip: one that looks like the last that was read has its words."""
    if reader is None:
        return tuple(textures)
    found: list[Texture] = []
    last: Texture | None = None
    for texture in textures:
        if last is not None and last.words is not None and texture.words is None and _alike(texture, last):
            found.append(texture.with_words(last.words))
            continue
        last = _read(texture, reader)
        found.append(last)
    return tuple(found)


def _alike(texture: Texture, other: Texture) -> bool:
    looks = [describe_cells(each.pixel, each.grid) for each in (texture, other)]
    return bool(np.all(measure_change(looks[0], looks[1]) <= CHANGED))


def _read(texture: Texture, reader: WordReader | Literal["auto"]) -> Texture:
    if texture.words is not None:
        return texture
    if reader != "auto":
        return texture.read(reader)
    if not is_page(texture):
        return texture
    try:
        return texture.read()
    except (OptionError, MissingExtraError, ModelFilesError) as cause:
        note = f"{cause.received}: the page was not read; read=False leaves it out, read=True makes this an error"
        warn(note, ReadingWarning)
        return texture
