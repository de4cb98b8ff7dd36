"""Is the heat on what an open question asks for? Parts, stuff, attributes, questions, writing, and what is not there.

    foveate evaluate relevance --data FOLDER      # with queries.json, or a COCO-style folder with label masks

Each question is asked as it stands, and its map is compared with the mask of its answer on a raster of an eighth of the
photograph. Of equal samples those rank first that are spread evenly, so the precision of a map that says nothing is
that of chance. It has no peak.

Beside it, in the same run:
* another question: the maps of the other questions about the photograph that have another mask (overlap at most one
  half). The ratio of the two precisions is the *swap control*: 1 means that the words made no difference.
* the noun alone ("the dog" of "the dog's ears", "the seat" of "the brown leather seat"): its map on the mask of the
  whole question. Where the two are as good as each other, the other words made no difference.
* maps that know no question.

A question that the library refuses counts as not detected, with confidence 0 and a map that says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.cli.evaluate.agreement import (
    RESAMPLES,
    SEED,
    Agreement,
    Estimate,
    agreement,
    auroc_estimate,
    mean_estimate,
    plain,
    ratio_estimate,
)
from foveate.cli.evaluate.cases import Case, choose_cases, draw_page
from foveate.cli.evaluate.circumstances import circumstances
from foveate.cli.evaluate.coco import RASTER
from foveate.cli.evaluate.questions import Question, Questions
from foveate.cli.evaluate.relevance import NOTHING, Floats, Pair, ignorant_maps, map_row, uniform_map
from foveate.core.errors import OptionError, QueryError
from foveate.core.grid import resize_map
from foveate.encoders.load import load_encoder
from foveate.language.query import parse
from foveate.pipeline import encode, score
from foveate.texture.texture import Texture

OTHER_QUESTION, NOUN = "another question", "its noun alone"
NEAR = 16 // RASTER  # samples: a peak within 16 pixels of the mask is near it
SAME = 0.5  # overlap (intersection over union) above which two masks are of the same thing
TIES = 1e-9  # of a map's range
WHERE = (
    "questions about",
    "number",
    "peak inside",
    "within 16 px",
    "precision",
    "in the best 10 %",
    "over another question",
)
DETECTED = (
    "questions about",
    "number",
    "detected",
    "median confidence",
    "AUROC, absent things",
    "AUROC, absent premises",
)
NOUNS = ("questions about", "with a noun", "precision", "of the noun alone", "ratio")

BODY = frozenset(
    """
face faces hand hands hair shoe shoes leg legs eye eyes ear ears nose noses mouth mouths beard beards
""".split()
)
PEOPLE = frozenset(
    """
person persons people man men woman women boy boys girl girls child children kid kids baby babies player players
rider riders cyclist cyclists skier skiers
""".split()
)
# Words that name a class of COCO by themselves; "orange" and "mouse" more often name something else.
THINGS = PEOPLE | frozenset(
    """
bicycle bicycles bike bikes car cars motorcycle motorcycles motorbike motorbikes airplane airplanes plane planes jet bus
buses train trains truck trucks boat boats hydrant bench benches bird birds parrot owl cat cats kitten kittens dog dogs
puppy horse horses sheep lamb cow cows elephant elephants bear bears zebra zebras giraffe giraffes backpack umbrella
umbrellas handbag suitcase suitcases frisbee snowboard kite kites skateboard surfboard racket bottle bottles cup cups
mug mugs fork knife knives spoon bowl bowls banana bananas apple apples sandwich broccoli pizza donut donuts cake cakes
chair chairs sofa sofas couch bed beds table tables toilet tv television monitor laptop keyboard phone phones telephone
microwave oven toaster sink refrigerator book books clock clocks vase vases scissors toothbrush
""".split()
)

TITLES = {
    "part": "parts",
    "object": "other things",
    "attribute": "attributes",
    "stuff": "stuff asked freely",
    "question": "questions",
    "text": "writing",
}
ABSENT_TITLES = {"absent": "absent things", "absent-premise": "absent premises"}


@dataclass(frozen=True, eq=False)
class Asked(Pair):
    """One photograph and one open question; what is absent has no maps, a share of 0, and a `near` of NaN."""

    set: str
    kind: str
    near: float
    detected: bool
    refused: bool
    noun: str | None

    @property
    def there(self) -> bool:
        return bool(self.found)

    @property
    def titles(self) -> tuple[str, ...]:
        """The rows that it counts in."""
        if not self.there:
            return (ABSENT_TITLES.get(self.kind, f"absent: {self.kind}"),)
        if self.set == "stuff":
            return ("stuff",)
        person = self.kind == "part" and is_of_a_person(self.thing)
        return ("parts of people",) * person + (TITLES.get(self.kind, self.kind),)

    def record(self) -> dict[str, Any]:
        """For one line of pairs.jsonl; "thing" is the question."""
        known = {"set": self.set, "kind": self.kind, "detected": self.detected, "refused": self.refused}
        record = super().record() | known | {"near": plain(self.near), "noun": self.noun}
        return record if self.there else record | {"size": None}


def measure(
    questions: Questions,
    encoder: str,
    limit: int | None = None,
    long_side: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    *,
    read: bool = False,
) -> tuple[dict[str, Any], list[Asked]]:
    """-> (report, one Asked for each question). The report has rows by kind in three tables, and one row a map.

    Raises OptionError where nothing that is there is asked for; EncoderNameError.
    """
    random = np.random.default_rng(SEED)
    asked: list[Asked] = []
    for number, photograph, rgb in questions.read(limit):
        texture = encode(rgb, encoder=encoder, long_side=long_side, read=read)
        asked += _ask_all(texture, encoder, number, photograph.file, photograph.questions, random)
        progress(number + 1)
    if not any(one.there for one in asked):
        raise OptionError(
            f"no question about something that is there in '{questions.path}', or in the part of it that was chosen",
            expected="at least one, with its regions",
            fix="leave out --half and --limit, or add questions",
        )
    return _report(questions, encoder, long_side, asked) | {"read": read}, asked


def draw_cases(
    questions: Questions, encoder: str, asked: Sequence[Asked], long_side: int | None = None, *, read: bool = False
) -> Image.Image:
    """The best, the worst and some random questions by average precision: the answer outlined, heat below."""
    there = [one for one in asked if one.there]
    kinds = choose_cases(there, [one.found[encoder].precision for one in there])
    chosen = {one.number for some in kinds.values() for one in some}
    seen = {
        number: (photograph, rgb, encode(rgb, encoder=encoder, long_side=long_side))
        for number, photograph, rgb in questions.read(only=chosen)
    }

    def case(one: Asked) -> Case:
        photograph, rgb, texture = seen[one.number]
        mask = next(q.mask for q in photograph.questions if (q.text, q.set, q.kind) == (one.thing, one.set, one.kind))
        assert mask is not None
        heat = np.zeros(mask.shape) if one.refused else score(texture, one.thing, encoder=encoder).map
        numbers = f"{one.found[encoder].precision:.2f} / {one.confidence:.2f}" + " (refused)" * one.refused
        return Case(rgb, mask, heat, (one.thing, numbers))

    return draw_page({kind: [case(one) for one in some] for kind, some in kinds.items()})


def is_of_a_person(text: str) -> bool:
    """Whether a part is a face, hair, hands or the like of somebody, by the words that name the whole.

    >>> is_of_a_person("the man's hands"), is_of_a_person("the hands of the clock"), is_of_a_person("the dog's ears")
    (True, False, False)
    """
    words = set(_words(text))
    return bool(words & BODY and words & PEOPLE)


def noun_in(text: str) -> str | None:
    """The noun of a question as a question of its own, or None where there is none, or nothing else.

    The first word that names an everyday thing. Where there is none, as the library parses the first phrase with more
    in it than a noun: the whole that it is part of, or its noun.

    >>> noun_in("the dog's ears"), noun_in("the knobs of the stove"), noun_in("the yellow wall"), noun_in("a dog")
    ('the dog', 'the stove', 'the wall', None)
    """
    words = _words(text)
    first = next((word for word in words if word in THINGS), None)
    if first is not None:
        return f"the {first}" if set(words) - {first, "the", "a", "an"} else None
    try:
        phrases = parse(text).structure
    except QueryError:
        return None
    things = (p.place.of if p.place is not None and p.place.relation == "part" else p for p in phrases)
    nouns = [(thing.noun, phrase.text) for thing, phrase in zip(things, phrases, strict=True)]
    return next((f"the {noun}" for noun, text in nouns if noun not in ("", text)), None)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z]+(?:-[a-z]+)*", re.sub(r"['’]s?\b", " ", text.lower()))


# --- one photograph ---------------------------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """What the library makes of a question, its map on the raster; by default, of one that it refuses."""

    plane: Floats
    confidence: float = 0.0
    detected: bool = False
    refused: bool = True
    peak: bool = False


def _ask_all(
    texture: Texture, encoder: str, number: int, file: str, questions: Sequence[Question], random: np.random.Generator
) -> list[Asked]:
    shape = next((question.mask.shape for question in questions if question.mask is not None), texture.grid.shape)
    answers = [_answer(texture, question.text, encoder, shape) for question in questions]
    ignorant = ignorant_maps(texture, shape, random)
    asked = []
    for question, answer in zip(questions, answers, strict=True):
        found, share, near, noun = dict[str, Agreement](), 0.0, float("nan"), None
        if question.mask is not None:
            others = [a.plane for other, a in zip(questions, answers, strict=True) if _differ(question, other)]
            rest = [agreement(plane, question.mask) for plane in others]
            noun = noun_in(question.text)
            alone = None if noun is None else _answer(texture, noun, encoder, shape).plane
            right = agreement(answer.plane, question.mask)
            found = {
                encoder: right if answer.peak else right._replace(pointing=0.0),
                OTHER_QUESTION: Agreement(*np.mean(rest, 0)) if rest else NOTHING,
                NOUN: NOTHING if alone is None else agreement(alone, question.mask),
                **{label: agreement(plane, question.mask) for label, plane in ignorant.items()},
            }
            share = float(question.mask.mean())
            near = float(answer.peak and _widen(question.mask).ravel()[answer.plane.argmax()])
        asked.append(
            Asked(
                file, number, question.text, share, answer.confidence, found, question.set, question.kind, near,
                answer.detected, answer.refused, noun,
            )
        )  # fmt: skip
    return asked


def _answer(texture: Texture, text: str, encoder: str, shape: tuple[int, int]) -> _Answer:
    spread = uniform_map(shape) / np.prod(shape)  # in [-1, 0]: it breaks the ties of a map
    try:
        relevance = score(texture, text, encoder=encoder)
    except QueryError:
        return _Answer(spread)
    plane = np.asarray(resize_map(relevance.map, shape), np.float64)
    extent = float(np.ptp(plane))
    broken = plane + TIES * extent * spread if extent else spread
    return _Answer(broken, relevance.confidence, relevance.detected, False, extent > 0)


def _differ(a: Question, b: Question) -> bool:
    """Whether b can serve as another question than a: another text, of something that is there elsewhere."""
    if a.mask is None or b.mask is None or a.text == b.text:
        return False
    return bool((a.mask & b.mask).sum() <= SAME * (a.mask | b.mask).sum())


def _widen(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A mask and everything within NEAR samples of it."""
    h, w = mask.shape
    padded = np.pad(mask, NEAR)
    reach = range(-NEAR, NEAR + 1)
    near = [(y, x) for y in reach for x in reach if y * y + x * x <= NEAR * NEAR]
    return np.any([padded[NEAR + y : NEAR + y + h, NEAR + x : NEAR + x + w] for y, x in near], axis=0)


# --- the report -------------------------------------------------------------------------------------------------------


def _report(questions: Questions, encoder: str, long_side: int | None, asked: list[Asked]) -> dict[str, Any]:
    there, absent = [one for one in asked if one.there], [one for one in asked if not one.there]
    kinds, absent_kinds = _by_title(there), _by_title(absent)
    refused = [one.thing for one in asked if one.refused]
    photographs = len({one.number for one in asked})
    number = f"{len(there)} questions about what is there" + f", {len(absent)} about what is not" * bool(absent)
    labels = [label for label in there[0].found if label != NOUN]
    with_noun = {title: [one for one in some if one.noun] for title, some in kinds.items()}
    return {
        "title": f"{photographs} photographs, {number}; means and 95 % intervals",
        "rows": [_where_row(title, some, encoder) for title, some in kinds.items()],
        "detected": [
            *(_detected_row(title, some, absent_kinds) for title, some in kinds.items()),
            *(_detected_row(title, some, {}) for title, some in absent_kinds.items()),
        ],
        "nouns": [_noun_row(title, some, encoder) for title, some in with_noun.items() if some],
        "maps": [map_row(label, there, label) for label in labels],
        "refused": {"number": len(refused), "questions": sorted(set(refused))},
        "data": str(questions.path),
        "encoder": {"name": encoder, "revision": load_encoder(encoder).revision, "long_side": long_side},
        "questions": len(asked),
        "seed": SEED,
        "resamples": RESAMPLES,
        **circumstances(),
    }


def _by_title(asked: Iterable[Asked]) -> dict[str, list[Asked]]:
    """Rows in the order of the two tables of titles; kinds of the user's own behind them."""
    rows: dict[str, list[Asked]] = {
        title: [] for title in ("stuff", "parts of people", *TITLES.values(), *ABSENT_TITLES.values())
    }
    for one in asked:
        for title in one.titles:
            rows.setdefault(title, []).append(one)
    return {title: some for title, some in rows.items() if some}


def _where_row(title: str, asked: Sequence[Asked], encoder: str) -> dict[str, Any]:
    images = [one.number for one in asked]
    mine, other = [one.found[encoder] for one in asked], [one.found[OTHER_QUESTION].precision for one in asked]
    columns = {
        "peak_inside": mean_estimate([found.pointing for found in mine], images),
        "peak_near": mean_estimate([one.near for one in asked], images),
        "precision": mean_estimate([found.precision for found in mine], images),
        "coverage_10": mean_estimate([found.coverage_10 for found in mine], images),
        "over_another": ratio_estimate([found.precision for found in mine], other, images),
    }
    return _row(title, asked, columns)


def _detected_row(title: str, asked: Sequence[Asked], absent: dict[str, list[Asked]]) -> dict[str, Any]:
    detected = mean_estimate([one.detected for one in asked], [one.number for one in asked])
    median = plain(np.median([one.confidence for one in asked]))
    columns = {name: _auroc(asked, absent.get(title, [])) for name, title in ABSENT_TITLES.items()}
    row = _row(title, asked, {"detected": detected, **columns})
    row["cells"].insert(3, f"{median:.2f}")
    return row | {"median_confidence": median}


def _noun_row(title: str, asked: Sequence[Asked], encoder: str) -> dict[str, Any]:
    images = [one.number for one in asked]
    whole, alone = ([one.found[label].precision for one in asked] for label in (encoder, NOUN))
    columns = {
        "precision": mean_estimate(whole, images),
        "noun_precision": mean_estimate(alone, images),
        "ratio": ratio_estimate(whole, alone, images),
    }
    return _row(title, asked, columns)


def _row(title: str, asked: Sequence[Asked], columns: dict[str, Estimate]) -> dict[str, Any]:
    cells = [title, str(len(asked)), *map(str, columns.values())]
    photographs = len({one.number for one in asked})
    known = {"cells": cells, "kind": title, "number": len(asked), "photographs": photographs}
    return known | {name: estimate.record() for name, estimate in columns.items()}


def _auroc(there: Sequence[Asked], absent: Sequence[Asked]) -> Estimate:
    if not absent:
        return Estimate(np.nan, np.nan, np.nan)
    both = [*there, *absent]
    positive = np.arange(len(both)) < len(there)
    return auroc_estimate([one.confidence for one in both], positive, [one.number for one in both])
