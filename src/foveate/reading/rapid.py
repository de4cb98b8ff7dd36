"""RapidOCR as a reader (extra `[text]`): PP-OCRv6 on onnxruntime; its models lie inside the wheel."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import MissingExtraError
from foveate.reading.words import Word


class RapidReader:
    """RapidOCR's detector and recogniser, with a box for each word."""

    name = "rapidocr"

    def read(self, rgb: NDArray[np.uint8]) -> list[Word]:
        """uint8 [H, W, 3] -> words, line by line."""
        found = load_engine()(np.ascontiguousarray(rgb[..., ::-1]), return_word_box=True)
        words: list[Word] = []
        if not found.txts:  # then its words are a line that is none
            return words
        for number, line in enumerate(found.word_results or ()):
            for text, confidence, quad in filter(None, line or ()):  # an empty one stands for a line without words
                if not text.strip() or quad is None:
                    continue
                x, y = np.asarray(quad, float).T
                words.append(Word(text.strip(), (y.min(), x.min(), y.max(), x.max()), float(confidence), number))
        return words


@lru_cache(maxsize=1)
def load_engine() -> Any:
    try:
        import rapidocr
    except ImportError as cause:
        raise MissingExtraError(
            f"the reader 'rapidocr' needs {cause.name}, which is not installed",
            expected="the extra [text]",
            fix="pip install 'foveate[text]'",
        ) from cause
    return rapidocr.RapidOCR(params={"Global.log_level": "critical"})
