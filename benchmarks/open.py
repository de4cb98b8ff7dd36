"""Is the heat on what an open question asks for? Parts, stuff, attributes, questions, writing, and what is not there.

    python -m benchmarks open --data FOLDER --half B      # a folder with queries.json (questions.py)
    python -m benchmarks failures --data FOLDER           # the worst of them, with what nano sees instead

Each question is asked as it stands, and its map is compared with the mask of its answer on a raster of an eighth of the
photograph. Of equal samples those rank first that are spread evenly, so a map that says nothing has the precision of
chance, and no peak. A question that the library refuses counts as such a map, and as not detected.

Another question: the maps of the other questions about the photograph whose mask overlaps by one half at most. At a
ratio of 1 of the two precisions the words make no difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import EncoderName, Half
from benchmarks.questions import Question, Questions, read_questions
from foveate.cli.evaluate.agreement import SEED, Agreement, agreement, mean_estimate, plain, ratio_estimate
from foveate.cli.evaluate.coco import RASTER
from foveate.cli.evaluate.relevance import NOTHING, Floats, Pair, ignorant_maps, map_row, uniform_map
from foveate.core.errors import OptionError, QueryError
from foveate.core.grid import resize_map
from foveate.encoders.nano import NanoEncoder
from foveate.pipeline import encode, score
from foveate.texture.texture import Texture

Data = Annotated[Path, typer.Option(help="Folder with queries.json and its photographs.")]
OTHER_QUESTION = "another question"
NEAR = 16 // RASTER  # samples: a peak within 16 pixels of the mask is near it
SAME = 0.5  # overlap (intersection over union) above which two masks are of the same thing
TIES = 1e-9  # of a map's range
COLUMNS = (
    "questions about", "number", "detected", "confidence", "peak inside", "within 16 px", "precision",
    "in the best 10 %", "over another question",
)  # fmt: skip
BODY = frozenset(
    """face faces hand hands hair shoe shoes leg legs eye eyes ear ears nose noses mouth mouths beard beards""".split()
)
PEOPLE = frozenset(
    """person persons people man men woman women boy boys girl girls child children kid kids baby babies player players
    rider riders cyclist cyclists skier skiers""".split()
)
TITLES = {
    "part": "parts",
    "object": "other things",
    "attribute": "attributes",
    "stuff": "stuff asked freely",
    "question": "questions",
    "text": "writing",
    "absent": "absent things",
    "absent-premise": "absent premises",
}


@dataclass(frozen=True, eq=False)
class Asked(Pair):
    """One photograph and one open question; what is absent has no maps, a share of 0, and a `near` of NaN."""

    set: str
    kind: str
    near: float
    detected: bool
    refused: bool

    @property
    def there(self) -> bool:
        return bool(self.found)

    @property
    def titles(self) -> tuple[str, ...]:
        """The rows that it counts in."""
        if self.set == "stuff":
            return ("stuff",)
        person = self.kind == "part" and is_of_a_person(self.thing)
        return ("parts of people",) * person + (TITLES.get(self.kind, self.kind),)


def measure(
    data: Data, encoder: EncoderName = None, limit: Annotated[int | None, typer.Option()] = None, half: Half = None
) -> dict[str, Any]:
    """Is the heat on what an open question asks for?"""
    questions = read_questions(data)
    asked = ask(questions if half is None else questions.half(half), encoder or "nano", limit)
    return make_report(asked, encoder or "nano") | {"half": half}


def failures(
    data: Data, count: Annotated[int, typer.Option(help="Rows; a quarter of them about what is not there.")] = 40
) -> dict[str, Any]:
    """The worst maps of open questions, and what is called found though it is not there."""
    questions = read_questions(data)
    asked = ask(questions, "nano")
    there = [one for one in asked if one.there and "writing" not in one.titles]
    worst = sorted(there, key=lambda one: one.found["nano"].precision)
    false = sorted((one for one in asked if not one.there), key=lambda one: -one.confidence)
    chosen = [*worst[: count - count // 4], *false[: count // 4]]
    nano, rows = NanoEncoder.built_in(), []
    names = (*nano.space.names, *nano.space.classes)
    axes = np.delete(np.eye(nano.width, dtype=np.float32), len(nano.space.names), 0)  # without that of no name
    textures = {
        number: encode(rgb, encoder=nano) for number, _, rgb in questions.read(only={one.number for one in chosen})
    }
    for one in chosen:
        texture = textures[one.number]
        planes = texture.scores(axes).reshape(len(names), -1)
        best = planes[:, int(score(texture, one.thing, encoder=nano).map.argmax())].argsort()[::-1][:2]
        precision = f"{one.found['nano'].precision:.2f}" if one.there else "not there"
        seen = ", ".join(names[i] for i in best)
        rows.append([one.thing, one.image, f"{one.share:.1%}", precision, f"{one.confidence:.2f}", seen])
    head = ("question", "photograph", "share of it", "precision", "confidence", "what nano sees at the map's peak")
    return {
        "failures": rows,
        "after": [f"|{'---|' * len(head)}" if row is None else f"| {' | '.join(row)} |" for row in (head, None, *rows)],
    }


def ask(questions: Questions, encoder: str, limit: int | None = None) -> list[Asked]:
    """One for each question. Raises OptionError where nothing that is there is asked for."""
    random, asked = np.random.default_rng(SEED), list[Asked]()
    for number, photograph, rgb in questions.read(limit):
        texture = encode(rgb, encoder=encoder)
        asked += _ask_all(texture, encoder, number, photograph.file, photograph.questions, random)
    if not any(one.there for one in asked):
        raise OptionError(
            f"no question about something that is there in '{questions.path}'",
            expected="at least one, with its regions",
            fix="leave out --half and --limit, or add questions",
        )
    return asked


def make_report(asked: Sequence[Asked], encoder: str) -> dict[str, Any]:
    """A row for each kind of question, and one for each map."""
    there = [one for one in asked if one.there]
    maps = {
        "title": "all questions about what is there",
        "columns": ("map", *Agreement._fields),
        "rows": [map_row(label, there, label) for label in there[0].found],
    }
    refused = sorted({one.thing for one in asked if one.refused})
    return {
        "title": f"{len({one.number for one in asked})} photographs, {len(there)} questions about what is there, "
        f"{len(asked) - len(there)} about not",
        "columns": COLUMNS,
        "rows": [_kind_row(kind, some, encoder) for kind, some in by_title(asked).items()],
        "maps": maps,
        "refused": refused,
        "questions": len(asked),
        "encoder": encoder,
        "after": [maps, f"refused, and counted as not found: {', '.join(refused) or 'none'}"],
    }


def by_title(asked: Iterable[Asked]) -> dict[str, list[Asked]]:
    """Questions by the rows that they count in, in the order of the table; other kinds last."""
    rows: dict[str, list[Asked]] = {title: [] for title in ("stuff", "parts of people", *TITLES.values())}
    for one in asked:
        for title in one.titles:
            rows.setdefault(title, []).append(one)
    return {title: some for title, some in rows.items() if some}


def is_of_a_person(text: str) -> bool:
    """Whether a part is a face, hair, hands or the like of a person: of "the man's hands", not of the clock's."""
    words = set(re.findall(r"[a-z]+(?:-[a-z]+)*", re.sub(r"['’]s?\b", " ", text.lower())))
    return bool(words & BODY and words & PEOPLE)


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
    ignorant, asked = ignorant_maps(texture, shape, random), []
    for question, answer in zip(questions, answers, strict=True):
        found, share, near = dict[str, Agreement](), 0.0, float("nan")
        if question.mask is not None:
            others = [a.plane for other, a in zip(questions, answers, strict=True) if _differ(question, other)]
            rest, right = [agreement(plane, question.mask) for plane in others], agreement(answer.plane, question.mask)
            found = {
                encoder: right if answer.peak else right._replace(pointing=0.0),
                OTHER_QUESTION: Agreement(*np.mean(rest, 0)) if rest else NOTHING,
                **{label: agreement(plane, question.mask) for label, plane in ignorant.items()},
            }
            share = float(question.mask.mean())
            near = float(answer.peak and _widen(question.mask).ravel()[answer.plane.argmax()])
        known = (file, number, question.text, share, answer.confidence, found, question.set, question.kind, near)
        asked.append(Asked(*known, answer.detected, answer.refused))
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
    padded, reach = np.pad(mask, NEAR), range(-NEAR, NEAR + 1)
    near = [(y, x) for y in reach for x in reach if y * y + x * x <= NEAR * NEAR]
    return np.any([padded[NEAR + y : NEAR + y + h, NEAR + x : NEAR + x + w] for y, x in near], axis=0)


def _kind_row(title: str, asked: Sequence[Asked], encoder: str) -> dict[str, Any]:
    images = [one.number for one in asked]
    detected, median = mean_estimate([one.detected for one in asked], images), np.median([o.confidence for o in asked])
    columns = {"detected": detected}
    if asked[0].there:
        mine, other = [one.found[encoder] for one in asked], [one.found[OTHER_QUESTION].precision for one in asked]
        columns |= {
            "peak_inside": mean_estimate([found.pointing for found in mine], images),
            "peak_near": mean_estimate([one.near for one in asked], images),
            "precision": mean_estimate([found.precision for found in mine], images),
            "coverage_10": mean_estimate([found.coverage_10 for found in mine], images),
            "over_another": ratio_estimate([found.precision for found in mine], other, images),
        }
    shown = [*map(str, columns.values()), *[""] * (len(COLUMNS) - 3 - len(columns))]
    cells = [title, str(len(asked)), shown[0], f"{median:.2f}", *shown[1:]]
    known = {"cells": cells, "kind": title, "number": len(asked), "median_confidence": plain(float(median))}
    return known | {name: estimate.record() for name, estimate in columns.items()}
