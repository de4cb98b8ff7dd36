"""Generated pages as cases of `foveate.cli.evaluate.policies`: are all cells kept that an answer's characters stand in?

The pages and questions of evaluate.py. "micro_doc read": every rule gets the map of a page that was read; "micro_doc":
none does. Rows are pixels (`benchmarks.selection_pages`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

import foveate
from benchmarks.selection_pages import cases_of_page
from foveate.cli.evaluate.policies import Case, Need
from foveate.vlm.inputs.images import CHANNELS
from training.judges.llava import CELLS
from training.judges.micro_doc.evaluate import asked, words_of
from training.judges.micro_doc.pages import VALUE, Page, Question, characters, draw
from training.judges.micro_doc.train import cells_of


def needs_of(page: Page, question: Question) -> tuple[Need, ...]:
    """All cells of the characters of its answer."""
    found = characters(page)
    runs = [k for k, run in enumerate(page.runs) if (run.field, run.role) == (question.field, VALUE)]
    cells = np.unique(cells_of(found.centres[np.isin(found.run, runs)]))
    cells = cells[cells >= 0]
    return (Need(cells, len(cells)),)


def cases(cache: Path, count: int, each: int = 8, *, held_back: bool = False, plain: bool = False) -> Iterator[Case]:
    """`count` pages and up to `each` questions of each; cache keeps what was read; held_back, plain: as of `asked`."""
    pages, items = asked(count, each, held_back=held_back, plain=plain)
    pictures = [draw(page) for page in pages]
    words = words_of(pictures, cache / f"words-{'held-back' if held_back else 'trained'}.json")
    for number, some in groupby(items, lambda item: item.scene):
        unread = foveate.encode(pictures[number], channels=CHANNELS)
        textures = {"micro_doc read": unread.with_words(words[number]), "micro_doc": unread}
        its = [(item.question.text, needs_of(pages[number], item.question)) for item in some]
        yield from cases_of_page(f"page {number}", pictures[number], textures, its, CELLS)
