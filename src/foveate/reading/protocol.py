"""What a reader owes to those who use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foveate.reading.words import Word


@runtime_checkable
class WordReader(Protocol):
    """Reads an image. An object with these two members, of any class."""

    @property
    def name(self) -> str:
        """With its version, for messages and files ("rapidocr 3.10.0")."""
        ...

    def read(self, rgb: NDArray[np.uint8]) -> Sequence[Word]:
        """uint8 [H, W, 3] -> its words in reading order; an empty sequence where nothing is written."""
        ...
