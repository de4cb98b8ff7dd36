"""Accuracy of the answers of the model that reads pages against budget, for every way to choose.

    python -m training.judges.micro_doc.evaluate --model FOLDER [--held-back] [--out report.json]

What is notable
* Held-out pages (another seed), up to `--questions` questions of each, the same for every method and budget.
* "exact" is the share of answers that are right in every character (case does not count); "anls" is DocVQA's measure,
  which forgives a few.
* No selection sees the generator's truth but `oracle`, which is no method but the upper bound. `reading` goes by words
  that RapidOCR read in the picture (which it enlarges to 736 pixels, as small ones always). Each page is read once;
  its words are kept in the model's folder (`words-*.json`).
* Every method gets the map of a page that was read; `nano alone` is the same call where nothing was read. `text mask`
  keeps what is written, whatever is asked: the boxes of the words, the middle ones of each first.
* Intervals are 95 %, by bootstrap over pages. `kept` is the share of the full accuracy on the same questions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from rapidfuzz.distance import Levenshtein

import foveate
import foveate.vlm
from foveate.reading.words import Word, Words
from foveate.vlm import Choosing
from training.judges.llava import CELLS, TOKENS, Answerer, Item, equal, report, table
from training.judges.micro_doc.pages import LABEL, SIDE, VALUE, Page, Question, characters, draw, page_of, questions_of
from training.judges.micro_doc.train import cells_of

SEED, FIRST = 2, 5_000_000  # held out: training has seed 1
BUDGETS = {"100 %": 256, "50 %": 128, "25 %": 64, "12 %": 31, "6 %": 15, "3 %": 8}
SHORT = {"max_new_tokens": 14, "do_sample": False}
METHODS: dict[str, dict[str, Any]] = {  # keywords of VLM.ask; those without are made here
    "reading": {"method": "relevance"},
    "reading, no floor": {"choosing": Choosing(floor=0.0)},
    "nano alone": {"method": "relevance"},
    "text mask": {},
    "maxmin": {"method": "maxmin"},
    "dpp": {"method": "dpp"},
    "dpp, nano alone": {"method": "dpp"},
    **{name: {"method": name} for name in ("random", "uniform", "downsample")},
    "oracle": {},
}
UNREAD = ("nano alone", "dpp, nano alone")  # methods whose textures have no words


def asked(count: int, questions: int, *, held_back: bool, plain: bool = False) -> tuple[list[Page], list[Item]]:
    """`count` held-out pages, and questions of each, page by page."""
    pages = [page_of(SEED, FIRST + k, held_back=held_back, plain=plain) for k in range(count)]
    return pages, [Item(k, q) for k, page in enumerate(pages) for q in questions_of(page)[:questions]]


def read_page(picture: NDArray[np.uint8]) -> list[Word]:
    """Words of a picture, by the reader that `encode(..., read=True)` uses; it enlarges small ones itself."""
    from foveate.reading.rapid import RapidReader

    return list(RapidReader().read(picture))


def words_of(pictures: Sequence[NDArray[np.uint8]], cache: Path) -> list[Words]:
    """Words of each picture, from the file `cache` or read now."""
    known = json.loads(cache.read_text("utf-8")) if cache.is_file() else []
    for number in range(len(known), len(pictures)):
        known.append([[*word] for word in read_page(pictures[number])])
        if number % 10 == 9 or number + 1 == len(pictures):
            cache.write_text(json.dumps(known), "utf-8")
            print(f"read {number + 1} of {len(pictures)} pages", flush=True)
    return [
        Words.of([Word(text, tuple(box), sure, line) for text, box, sure, line in page], "rapidocr")
        for page in known[: len(pictures)]
    ]


def through_foveate(vlm: Any, pages: Sequence[Page], words: Sequence[Words]) -> Answerer:
    """Asks through `foveate.vlm`, as a user would."""
    pictures = [Image.fromarray(draw(page)) for page in pages]
    sees = {
        False: [vlm.see(picture, read=False) for picture in pictures],
        True: [vlm.see(picture, read=partial(_known, its)) for picture, its in zip(pictures, words, strict=True)],
    }

    def answers(items: Sequence[Item], method: str, budget: int) -> list[str]:
        out: list[str] = []
        for number, some in groupby(items, lambda item: item.scene):
            encoded, group = sees[method not in UNREAD][number], list(some)
            if method == "oracle":
                made = [given(vlm, encoded, item, oracle(pages[number], item.question, budget)) for item in group]
                said = vlm.answers(made, SHORT)
            elif method == "text mask":
                kept = written(words[number], budget)
                said = vlm.answers([given(vlm, encoded, item, kept) for item in group], SHORT)
            else:
                choosing = replace(METHODS[method].get("choosing", Choosing()), seed=number)
                how = {**METHODS[method], "choosing": choosing, "generation": SHORT}
                said = vlm.ask_many(encoded, [item.question.text for item in group], budget=budget, **how)
            out += [answer.text.strip() for answer in said]
        return out

    return answers


def _known(words: Words, rgb: NDArray[np.uint8]) -> list[Word]:
    """A reader that has read the picture before."""
    return list(words)


def given(vlm: Any, encoded: Any, item: Item, kept: NDArray[np.int64]) -> Any:
    """A question prepared with tokens that are told: `protected` lies on exactly these cells."""
    mask = np.zeros((CELLS, CELLS), bool)
    mask.ravel()[kept] = True
    return vlm.prepare(encoded, item.question.text, budget=len(kept), choosing=Choosing(floor=0.0, protected=mask))


def first_cells(rank: NDArray[np.floating[Any]], budget: int) -> NDArray[np.int64]:
    """The cells of lowest rank, ascending; of equal ones any, by a fixed seed."""
    return np.sort(np.lexsort((np.random.default_rng(0).random(TOKENS), rank))[:budget])


def written(words: Words, budget: int) -> NDArray[np.int64]:
    """The cells with the most writing: by the share of their area that lies in boxes of words."""
    plane = np.zeros((SIDE, SIDE), np.float32)
    for y0, x0, y1, x1 in words.boxes.round().astype(int).clip(0, SIDE):
        plane[y0:y1, x0:x1] = 1
    share = np.asarray(cv2.resize(plane, (CELLS, CELLS), interpolation=cv2.INTER_AREA), np.float32)
    return first_cells(-share.ravel(), budget)


def oracle(page: Page, question: Question, budget: int) -> NDArray[np.int64]:
    """The cells of the answer's characters, then those beside them, then those of its key, then any."""
    found = characters(page)
    cells = cells_of(found.centres)
    y, x = np.divmod(np.arange(TOKENS), CELLS)
    rank = np.full(TOKENS, 1e3)
    for role, near, behind in ((LABEL, 200.0, 300.0), (VALUE, 0.0, 100.0)):
        numbers = [k for k, run in enumerate(page.runs) if (run.field, run.role) == (question.field, role)]
        its = cells[np.isin(found.run, numbers)]
        for cell in its[its >= 0]:
            away = np.maximum(abs(y - cell // CELLS), abs(x - cell % CELLS))
            rank = np.minimum(rank, np.where(away == 0, near, np.where(away == 1, behind, 1e3)))
    return first_cells(rank, budget)


def alike(said: str, right: str) -> float:
    """ANLS of DocVQA for one answer: 1 less edits for each character of the longer one; 0 from a half on."""
    alike = Levenshtein.normalized_similarity(said, right)
    return alike if alike > 0.5 else 0.0


def once(answerer: Answerer) -> Answerer:
    """The same, each method and budget asked once."""
    found: dict[tuple[str, int], list[str]] = {}

    def answers(items: Sequence[Item], method: str, budget: int) -> list[str]:
        if (method, budget) not in found:
            found[method, budget] = answerer(items, method, budget)
        return found[method, budget]

    return answers


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of the model and the processor")
    parser.add_argument("--pages", type=int, default=60)
    parser.add_argument("--questions", type=int, default=8, help="of each page, at most")
    parser.add_argument("--held-back", action="store_true", help="of the layouts and fonts that training does not see")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--out", type=Path, help="report.json")
    args = parser.parse_args()
    cv2.setNumThreads(1)  # its threads wait by spinning
    pages, items = asked(args.pages, args.questions, held_back=args.held_back)
    kind = "held-back" if args.held_back else "trained"
    words = words_of([draw(page) for page in pages], args.model / f"words-{kind}.json")
    from transformers import AutoModelForImageTextToText, AutoProcessor

    model = AutoModelForImageTextToText.from_pretrained(args.model, dtype=torch.float32).eval()
    vlm = foveate.vlm.attach(model, AutoProcessor.from_pretrained(args.model))
    everything = {"all": np.ones(len(items), bool)}
    found = {}
    answerer = once(through_foveate(vlm, pages, words))
    for name, metric in (("exact", equal), ("anls", alike)):
        found[name] = report(answerer, items, args.methods, BUDGETS, everything, metric)
    print(f"\n{len(items)} questions of {len(pages)} pages of {kind} layouts, with 95 % intervals.")
    for name, rows in found.items():
        print(f"\n{name}\n\n{table(rows, 'all')}")
    if args.out:
        settings = {"pages": len(pages), "questions": len(items), "layouts": kind, "budgets": BUDGETS}
        args.out.write_text(json.dumps({"settings": settings, "found": found}, indent=1), "utf-8")


if __name__ == "__main__":
    main()
