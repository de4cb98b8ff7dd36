"""Is the value of a label said, and does the confidence know? "what is the invoice number?" -> `Relevance.answer`.

    python -m benchmarks values --data DATA/dev/docs --words words.json --half B

Questions of `reading` whose answer is a value: of at most MOST words, beside a label of a form or a receipt, so many of
each page. Of each page, too, as many that other pages answer and that hold no word of this one: nothing is right there.
Said is what is said without its label; right: letters and digits agree in ALIKE and more (readers misread some).
AUC: of the confidence, of what is right against all else; "there": among the questions that the page answers.
Constants were chosen on half A.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rapidfuzz.fuzz import ratio

from benchmarks.reading import KeptWords, PageHalf, PagesData, Question, read_pages, read_questions
from foveate.answers.page import ReadWords, prepare_words
from foveate.answers.question import read_question
from foveate.cli.evaluate.agreement import auroc_estimate, mean_estimate
from foveate.language.spelling import fold
from foveate.relevance.value import say
from foveate.relevance.written import find_words

KINDS = ("form", "receipt-total", "receipt-date", "receipt-field")
MOST, OF_A_PAGE, ALIKE = 5, 2, 80
COLUMNS = ("questions", "number", "right", "confidence", "detected", "AUC")


class Said(NamedTuple):
    """A question about a page, what is said, how surely, and whether that is right."""

    file: str
    text: str
    answer: str  # "" where the page does not answer
    said: str
    confidence: float

    @property
    def right(self) -> bool:
        return bool(self.answer) and ratio(_bare(self.said), _bare(self.answer)) >= ALIKE


def measure(
    data: PagesData,
    words: KeptWords = None,
    half: PageHalf = None,
    shown: Annotated[bool, typer.Option(help="Print what was said to each question that is not right.")] = False,
) -> dict[str, Any]:
    """Is the value of a label said?"""
    asked = [q for q in choose(read_questions(data)) if half in (None, q.half)]
    files = list(dict.fromkeys(question.file for question in asked))
    pages = {file: prepare_words(page) for file, (_, page) in read_pages(data, files, words).items()}
    there = [_ask(pages[question.file], question, question.answer) for question in asked]
    absent = [_ask(pages[question.file], question, "") for question in strangers(asked, pages)]
    rows = [_row("there", there), *(_row(f"  {kind}", some) for kind, some in _by_kind(asked, there))]
    rows += [_row("not on the page", absent), _row("all", [*there, *absent])]
    wrong = [json.dumps([*one[1:], one.right]) for one in (*there, *absent)] if shown else []
    return {"title": f"values of {len(files)} pages", "columns": COLUMNS, "rows": rows, "half": half, "after": wrong}


def choose(questions: list[Question]) -> list[Question]:
    """Those whose answer is a value, the same few of each page."""
    out: list[Question] = []
    for file in dict.fromkeys(question.file for question in questions):
        mine = [q for q in questions if q.file == file and q.kind in KINDS and 0 < len(q.answer.split()) <= MOST]
        out += [mine[k] for k in np.unique(np.linspace(0, len(mine) - 1, OF_A_PAGE).astype(int))] if mine else []
    return out


def strangers(asked: list[Question], pages: dict[str, ReadWords]) -> Iterator[Question]:
    """For each page questions about others: of their terms' phrases no word stands on it, and none is general."""
    seen = set[tuple[str, str]]()
    for number, one in enumerate(asked):
        for other in (*asked[number + 7 :], *asked[: number + 7]):
            terms = read_question(other.text).terms
            words = {word for term in terms for phrase, _ in term.phrases for word in phrase}
            if words and (one.file, other.text) not in seen and words.isdisjoint(pages[one.file].vocabulary):
                seen.add((one.file, other.text))
                yield Question(one.file, other.text, other.kind, ())
                break


def _ask(page: ReadWords, question: Question, answer: str) -> Said:
    found, confidence = find_words(page, read_question(question.text))
    return Said(question.file, question.text, answer, say(found).rpartition(" -> ")[2], confidence)


def _bare(text: str) -> str:
    return re.sub(r"\W", "", re.sub(r"\b0+(?=\d)", "", fold(text)))


def _by_kind(asked: list[Question], said: list[Said]) -> Iterator[tuple[str, list[Said]]]:
    for kind in KINDS:
        some = [one for question, one in zip(asked, said, strict=True) if question.kind == kind]
        if some:
            yield kind, some


def _row(title: str, said: list[Said]) -> dict[str, Any]:
    files = np.unique([one.file for one in said], return_inverse=True)[1].tolist()
    right, sure = np.array([one.right for one in said]), np.array([one.confidence for one in said])
    known = {"right": mean_estimate(right, files), "confidence": mean_estimate(sure, files)}
    known["detected"] = mean_estimate(sure >= 0.5, files)
    auc = auroc_estimate(sure, right, files) if 0 < right.sum() < len(right) else None
    cells = [title, str(len(said)), *map(str, known.values()), "" if auc is None else str(auc)]
    return {
        "cells": cells,
        **{name: estimate.record() for name, estimate in known.items()},
        "auc": auc and auc.record(),
    }
