"""Times of searching images by what is written in them: `python -m benchmarks store --words`.

Synthetic pages of 80 words and 20 numbers; words are drawn by Zipf's law, numbers are below 10,000, and one page in a
thousand holds KNOWN. The exact scores of a search come on top. Processor time, of one thread.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import time_row
from foveate.core.checks import check_int
from foveate.store.dataset import lance_module
from foveate.store.hits import HAVING
from foveate.store.writing import WrittenTexts, index_words, read_quotes, units_of

VOCABULARY, WORDS, NUMBERS, EVERY = 400_000, 80, 20, 1000
WANTED = 20
KNOWN = "tanqwe wooniu yannop"


def measure(images: int, repeats: int) -> dict[str, Any]:
    """-> report. `repeats`: of each row."""
    check_int("--images", images, 1000)
    repeats = max(5, repeats // 50)
    rng = np.random.default_rng(0)
    vocabulary = make_vocabulary(rng)
    with tempfile.TemporaryDirectory() as folder:
        dataset = write(Path(folder), images, vocabulary, rng)
        size = _bytes(folder)
        seconds = processor_time(lambda: index_words(dataset, 0))
        size = _bytes(folder) - size
        middle = vocabulary[len(vocabulary) // 80]
        rows = [
            {"what": f"writing the index of {images:,} pages, once", "measured": f"{seconds:.0f} s"},
            {"what": "its bytes", "measured": f"{size / 1e6:.0f} MB, {size / images:.0f} an image"},
        ]
        for what, text in (
            ("a quoted text of three rare words", f'"{KNOWN}"'),
            ("  a letter of it is wrong", '"tanqwe woniu yannop"'),
            ("  nowhere written", '"tanqwe yannop"'),
            ("a quoted text of the two commonest words", f'"{vocabulary[0]} {vocabulary[1]}"'),
            ("  nowhere written", f'"{vocabulary[0]} {middle[:2]}x {vocabulary[1]}"'),
            ("a quoted text of Han: a plain scan", '"合計金額"'),
        ):
            rows.append(_timed(what, partial(_find, dataset, images, text), repeats))
        for what, text in (
            ("three rare words", KNOWN),
            ("a rare word, a common one and a number", f"{middle} {vocabulary[3]} 34.50"),
            ("the three commonest words", " ".join(vocabulary[:3])),
        ):
            words = units_of(text)

            rows.append(_timed(f"without quotes: {what}", partial(_ask, dataset, images, words), repeats))
    title = f"benchmarks store --words: {images:,} pages of {WORDS + NUMBERS} words, medians of {repeats}"
    return {"title": title, "columns": ("what", "measured"), "rows": rows, "images": images}


def make_vocabulary(rng: np.random.Generator) -> list[str]:
    """Different random words of three to ten letters."""
    lengths = rng.integers(3, 11, 2 * VOCABULARY)
    letters = (rng.integers(0, 26, lengths.sum(), np.uint8) + ord("a")).tobytes().decode()
    ends = np.cumsum(lengths).tolist()
    return list(dict.fromkeys(letters[end - n : end] for end, n in zip(ends, lengths.tolist(), strict=True)))[
        :VOCABULARY
    ]


def write(folder: Path, images: int, vocabulary: list[str], rng: np.random.Generator) -> Any:
    """A dataset of the texts of so many pages."""
    import pyarrow as pa

    share = np.cumsum(1 / np.arange(1, len(vocabulary) + 1))
    share /= share[-1]
    pages = []
    for image in range(images):
        drawn = np.searchsorted(share, rng.random(WORDS))
        page = [vocabulary[word] for word in drawn] + [str(n) for n in rng.integers(0, 10_000, NUMBERS)]
        if image % EVERY == 0:
            page[40:43] = KNOWN.split()
        pages.append(" ".join(page))
    return lance_module().write_dataset(pa.table({"words": pages}), folder / "texts")


def _bytes(folder: str) -> int:
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def _find(dataset: Any, images: int, text: str) -> None:
    WrittenTexts(dataset, images).find_quoted(read_quotes(text).quoted, WANTED)


def _ask(dataset: Any, images: int, words: list[tuple[str, ...]]) -> None:
    texts = WrittenTexts(dataset, images)  # a new one: it remembers what it found
    texts.shares([words], texts.find_having(words, HAVING))


def _timed(what: str, function: Callable[[], Any], repeats: int) -> dict[str, Any]:
    function()
    return time_row(what, np.array([processor_time(function) for _ in range(repeats)]), "ms", "", 99)


def processor_time(function: Callable[[], Any]) -> float:
    """Seconds of the processor that a call takes."""
    start = time.process_time()
    function()
    return time.process_time() - start
