"""Is the value of a label said, and does the confidence know? "what is the invoice number?" -> `Relevance.answer`.

    python -m benchmarks values --data DATA/dev/docs --words words.json --half B
    python -m benchmarks values --data DATA/dev/docs --words words.json --fit

Questions of `reading` whose answer is a value: of at most MOST words, beside a label of a form or a receipt, so many of
each page. Of each page, too, as many that other pages answer and that hold no word of this one: nothing is right there.
Said is what is said without its label; right: letters and digits agree in ALIKE and more (readers misread some).
AUC: of the confidence, of what is right against all else; "there": among the questions that the page answers.
Constants were chosen, and the weights of the confidence fitted, on half A.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rapidfuzz.fuzz import ratio

from benchmarks.reading import KeptWords, PageHalf, PagesData, Question, read_pages, read_questions
from foveate.answers.match import Evidence, score_words
from foveate.answers.page import ReadWords, prepare_words
from foveate.answers.question import read_question
from foveate.cli.evaluate.agreement import auroc_estimate, mean_estimate
from foveate.language.spelling import fold
from foveate.relevance.value import say
from foveate.relevance.written import find_words

KINDS = ("form", "receipt-total", "receipt-date", "receipt-field")
MOST, OF_A_PAGE, ALIKE = 5, 2, 80
LEARNED = (*KINDS, "form-paraphrase", "receipt-company")
WRONG, FEW, PARTLY = 2.0, 0.05, (0.2, 0.45)
THINGS = (
    "person",
    "dog",
    "bus",
    "clock",
    "bottle",
    "book",
    "chair",
    "car",
    "cup",
    "pizza",
    "train",
    "boat",
    "tie",
    "bed",
)
FORMS = ("where is the {}?", "a {}", "how many {}s are there?", "the {} on the left", "what is the {} doing?")
Floats = NDArray[np.float64]
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
    fit: Annotated[bool, typer.Option(help="Fit the weights of the confidence to half A instead.")] = False,
    shown: Annotated[bool, typer.Option(help="Print what was said to each question that is not right.")] = False,
) -> dict[str, Any]:
    """Is the value of a label said?"""
    if fit:
        return fit_weights(data, words)
    asked = [q for q in choose(read_questions(data)) if half in (None, q.half)]
    files = list(dict.fromkeys(question.file for question in asked))
    pages = {file: prepare_words(page) for file, (_, page) in read_pages(data, files, words).items()}
    there = [_ask(pages[question.file], question, question.answer) for question in asked]
    absent = [_ask(pages[question.file], question, "") for question in strangers(asked, pages)]
    rows = [_row("there", there), *(_row(f"  {kind}", some) for kind, some in _by_kind(asked, there))]
    rows += [_row("not on the page", absent), _row("all", [*there, *absent])]
    wrong = [json.dumps([*one[1:], one.right]) for one in (*there, *absent)] if shown else []
    return {"title": f"values of {len(files)} pages", "columns": COLUMNS, "rows": rows, "half": half, "after": wrong}


def fit_weights(data: PagesData, words: KeptWords) -> dict[str, Any]:
    """BIAS and WEIGHTS of answers/match.py: a logistic regression on all of half A.

    Wrong answers count WRONG times. Not on a page is what a stranger asks, what it has few words for, and a thing
    (those count FEW times); left out is what a shape alone may answer there, as "the date".
    """
    every = [q for q in read_questions(data) if q.half == "A"]
    asked = [q for q in every if q.kind in LEARNED and 0 < len(q.answer.split()) <= MOST]
    files = list(dict.fromkeys(q.file for q in every))
    pages = {file: prepare_words(page) for file, (_, page) in read_pages(data, files, words).items()}
    texts = sorted({q.text for q in asked if not _by_shape(q.text)})
    cases = [(q.file, q.text, q.answer, 1.0) for q in asked]
    cases += [(q.file, q.text, "", 1.0) for q in strangers(asked, pages) if q.text in texts]
    cases += [(file, text, "", FEW) for file in files for text in texts if _partly(pages[file], text)]
    cases += [(file, form.format(thing), "", FEW) for file in files for form in FORMS for thing in THINGS]
    rows: list[tuple[Evidence, bool, float]] = []
    for file, text, answer, count in cases:
        found = score_words(pages[file], read_question(text))
        if found.evidence is not None:
            said = " ".join(pages[file].words.texts[i] for i in found.answer)
            right = Said(file, text, answer, said, 1.0).right
            rows.append((found.evidence, right, WRONG if answer and not right else count))
    columns = [np.array([row[k] for row in rows], np.float64) for k in range(3)]
    weights = fit_logistic(columns[0], columns[1], columns[2])
    cells = [[name, f"{weight:.2f}"] for name, weight in zip(("BIAS", *Evidence._fields), weights, strict=True)]
    return {
        "title": f"weights of the confidence, from {len(rows)} questions about {len(files)} pages",
        "columns": ("of", "weight"),
        "rows": [{"cells": each} for each in cells],
    }


def fit_logistic(x: Floats, right: Floats, count: Floats, shrink: float = 0.3) -> Floats:
    """Weights [1 + f], the bias first, of rows [n, f] that are right (1) or not (0), each so often; Newton's steps."""
    x = np.column_stack((np.ones(len(x)), x))
    penalty = np.diag([1e-6, *[shrink] * (x.shape[1] - 1)])
    out = np.zeros(x.shape[1])
    for _ in range(50):
        sure = 1 / (1 + np.exp(-x @ out))
        slope = x.T @ (count * (sure - right)) + penalty @ out
        out -= np.linalg.solve((x.T * (count * sure * (1 - sure))) @ x + penalty, slope)
    return out


def _by_shape(text: str) -> bool:
    question = read_question(text)
    return question.heading or not {"date", "time", "url", "email", "org", "shop"}.isdisjoint(question.types)


def _partly(page: ReadWords, text: str) -> bool:
    """Whether a page has words for some of what is asked for, and not for half."""
    terms, there = read_question(text).terms, set(page.vocabulary)
    held = sum(term.weight for term in terms if any(there.issuperset(phrase) for phrase, _ in term.phrases))
    return bool(terms) and PARTLY[0] < held / sum(term.weight for term in terms) < PARTLY[1]


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
