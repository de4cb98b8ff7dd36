"""How a session encodes images and asks about them: what `foveate view` was told by the options of `foveate look`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from foveate.core.errors import OptionError
from foveate.core.image import Picture
from foveate.pipeline import encode, score
from foveate.relevance.presets import PresetName, find_preset, remember_preset
from foveate.texture.texture import Texture

# As low as can be: a large working size costs little, and every option is used.
STRIP = Picture(np.resize(np.arange(256, dtype=np.uint8), (8, 512, 3)), None, "strip")


@dataclass(frozen=True)
class SessionEncoding:
    """Keywords of `foveate.encode` that were named; None is its default.

    Attributes:
        encoder: a name; questions need it, too, where it does not come with foveate.
        preset: what it is for.
        long_side: working size in pixels, or the image's own.
        read: whether to read what is written, or who does.
    """

    encoder: str | None = None
    preset: PresetName | None = None
    long_side: int | Literal["native"] | None = None
    read: bool | str | None = None

    @property
    def reads(self) -> bool:
        """Whether images are read. Raises OptionError for no preset."""
        return bool(find_preset(self.preset).encoding.get("read") if self.read is None else self.read)

    @property
    def named(self) -> dict[str, Any]:
        """The keywords beside the encoder."""
        keywords = {"preset": self.preset, "long_side": self.long_side, "read": self.read}
        return {name: value for name, value in keywords.items() if value is not None}

    @property
    def told(self) -> dict[str, Any]:
        """All keywords for the page; of an encoder's folder the name alone."""
        if self.encoder is None:
            return self.named
        kind, colon, place = self.encoder.partition(":")
        if any(Path(each).is_dir() for each in (place, place.partition("#")[0]) if each):
            place = Path(place).resolve().name
        return {"encoder": kind + colon + place, **self.named}

    def encode(self, picture: Picture) -> Texture:
        """A picture as a texture. Raises as `foveate.encode`."""
        return encode(picture, encoder=self.encoder or "nano", **self.named)

    def take(self, texture: Texture) -> Texture:
        """A texture that was encoded elsewhere: it goes by the preset, and is read where that is asked for."""
        texture = remember_preset(texture, self.preset)
        return texture.read(self.read if isinstance(self.read, str) else "auto") if self.reads else texture

    def check(self) -> None:
        """Load what was named, and raise what is wrong with it, before an image waits for it.

        Raises what `encode` and `score` do: OptionError, EncoderNameError, EncoderFilesError, MissingExtraError, ...
        """
        if self.preset == "gaze":  # it would need one in every question
            raise OptionError(
                "preset='gaze' in the viewer",
                expected="another: no image has a gaze before somebody looks",
                fix="leave it out, and switch on 'My pointer is my gaze' on the page",
            )
        if self != USUAL:
            score(self.encode(STRIP), "a dog", encoder=self.encoder)


USUAL = SessionEncoding()
