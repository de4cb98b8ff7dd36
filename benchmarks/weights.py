"""Do channels that a question's words speak of help its map, and who hears them: a table, or vectors of words?

    python -m benchmarks weights --data DATA/coco128 --open DATA/open --clips DATA/davis --pages DATA/docs

* `--data`, a COCO-style folder: "what colour is the car?" with the contrast of colours, "how far is the car?" with a
  ramp from top to bottom in the place of depth (no depth model comes with the package; most photographs are so).
* `--open`, a folder with queries.json: its questions of the kind "text" with the channel of writing, and its others
  about the same photographs, as if their words had asked for writing too.
* `--clips`, a folder with davis.json: "the moving dog", "what is moving?" and another thing, with the channel "motion"
  (how much pixels changed) and with motion against the camera's.

Each row is a rule of language/cues.py and a weight, against the map without any cue on the same pairs. A second table
says how well channels are heard by the table of words, and by vectors of words: in questions that were written by hand
for this (weights_questions.txt), for writing also in the questions of `--pages` (all of them ask for it), of `--open`
and in nouns (none does). Below it: would a word of the table be found by the others of its row, were it missing?
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.baselines import colour_contrast, raise_within
from benchmarks.clips import names_in, read_clip
from benchmarks.common import circumstances, format_signed, print_json, show
from benchmarks.questions import read_questions
from foveate.cli.evaluate.agreement import Agreement, agreement, mean_estimate
from foveate.cli.evaluate.coco import half_of, read_folder
from foveate.core.errors import QueryError
from foveate.core.grid import resize_map
from foveate.encoders.nano import NanoEncoder
from foveate.language.cues import CUES, WORDS, Cue
from foveate.language.negatives import nouns
from foveate.language.query import channel_weights
from foveate.pipeline import encode, score
from foveate.relevance.evidence import follow, own_motion, plane_of
from foveate.video import stream

Floats = NDArray[np.float32]
RULES = ("raise", "within", "favour")
LEVELS = (0.1, 0.3, 0.5, 0.8)
EVERY = 3  # frames of a clip from one that is judged to the next
METRICS = ("pointing", "precision", "coverage_10")
COLUMNS = ("question", "channel", "rule, weight", "pairs", "pointing", "precision", "coverage at 10 %", "difference")
HEARD = (
    "heard by",
    "half",
    "asked for",
    "heard",
    "rightly",
    "wrongly in plain ones",
    "writing: pages",
    "open",
    "nouns",
)
QUESTIONS = Path(__file__).with_name("weights_questions.txt")
DESCRIPTIONS = {  # of the channels, for vectors
    "text": "written text read say word print number price name total",
    "own_motion": "moving motion speed fast running",
    "depth": "far near distance close depth",
    "colour_contrast": "colour color hue shade tint",
}
NEAR = (0.4, 0.5, 0.6)  # cosines from which on a word asks for a channel
STOP = frozenset(
    "a an the this that these those some any every each all is are was were be do does did has have can could will "
    "would should may it its his her their what which who whom whose where when why how there here in on at by for "
    "from to of and or but not with one".split()
)


class Case(NamedTuple):
    """A question's map without cues, a channel [h, w], and a mask of the answer."""

    kind: str
    channel: str
    image: str
    map: Floats
    plane: Floats
    mask: NDArray[np.bool_]


def command(
    data: Annotated[Path | None, typer.Option("--data", help="COCO-style folder: colour, distance.")] = None,
    questions: Annotated[Path | None, typer.Option("--open", help="Folder with queries.json: writing.")] = None,
    clips: Annotated[Path | None, typer.Option("--clips", help="Folder with davis.json: motion.")] = None,
    pages: Annotated[
        Path | None, typer.Option("--pages", help="Folder with queries.json: what is asked of pages.")
    ] = None,
    half: Annotated[str | None, typer.Option("--half", help="A or B: photographs of one half alone.")] = None,
) -> None:
    """Do channels that a question's words speak of help its map?"""
    report = measure(data, questions, clips, half)
    show(report, COLUMNS)
    heard = measure_hearing(questions, pages)
    show(heard, HEARD)
    print(heard["left_out"])
    print_json(**report, hearing=heard)


def measure(
    data: Path | None = None, questions: Path | None = None, clips: Path | None = None, half: str | None = None
) -> dict[str, Any]:
    """-> report: a row for each kind of question, channel, rule and weight."""
    found: dict[tuple[str, str, str], list[Agreement]] = {}
    images: dict[tuple[str, str, str], list[int]] = {}
    numbers: dict[str, int] = {}
    for case in cases(data, questions, clips):
        if half is not None and half_of(case.image) != half:
            continue
        maps = {"none": case.map} | {f"{rule} {w:g}": _followed(case, rule, w) for rule in RULES for w in LEVELS}
        number = numbers.setdefault(case.image, len(numbers))
        for way, plane in maps.items():
            key = (case.kind, case.channel, way)
            found.setdefault(key, []).append(agreement(resize_map(plane, case.mask.shape), case.mask))
            images.setdefault(key, []).append(number)
    rows = []
    for (kind, channel, way), values in found.items():
        table, alone = np.array(values), np.array(found[kind, channel, "none"])
        at = images[kind, channel, way]
        means = {m: mean_estimate(table[:, Agreement._fields.index(m)], at).mean for m in METRICS}
        apart = mean_estimate((table - alone)[:, Agreement._fields.index("precision")], at)
        cells = [kind, channel, way, str(len(at)), *(f"{means[m]:.3f}" for m in METRICS)]
        rows.append(
            {"kind": kind, "channel": channel, "way": way, "pairs": len(at), "difference": apart.record(), **means}
            | {"cells": [*cells, "" if way == "none" else format_signed(apart)]}
        )
    return {
        "title": "differences in precision to the map without cues, 95 % intervals",
        "rows": rows,
        **circumstances(),
    }


def _followed(case: Case, rule: str, weight: float) -> Floats:
    if rule == "within":
        return raise_within(case.map, weight, case.plane)
    return follow(case.map, Cue(case.channel, "raise" if rule == "raise" else "favour", weight), case.plane)


def cases(data: Path | None, questions: Path | None, clips: Path | None) -> Iterator[Case]:
    """Everything that is judged."""
    if data is not None:
        yield from _of_things(data)
    if questions is not None:
        yield from _of_writing(questions)
    if clips is not None:
        yield from _of_motion(clips)


def _of_things(folder: Path) -> Iterator[Case]:
    for item in read_folder(folder).labelled(100_000):
        texture = encode(item.rgb)
        for name, mask in item.masks.items():
            for text, channel, plane in (
                (f"what colour is the {name}?", "colour_contrast", colour_contrast(texture)),
                (f"how far is the {name}?", "a ramp for depth", texture.channel("y")),
            ):
                plain = score(texture, text, cues=False).map
                yield Case(text.replace(name, "..."), channel, item.name, plain, plane, mask)


def _of_writing(folder: Path) -> Iterator[Case]:
    asked = read_questions(folder)
    wanted = {i for i, photo in enumerate(asked.photographs) if any(q.kind == "text" for q in photo.questions)}
    for _, photograph, rgb in asked.read(only=wanted):
        texture = encode(rgb, channels="all", read=False)
        plane = plane_of(texture, "text")
        for question in photograph.questions:
            if question.mask is not None and plane is not None:
                kind = "for writing" if question.kind == "text" else "for things beside writing"
                plain = score(texture, question.text, cues=False).map
                yield Case(kind, "text", photograph.file, plain, plane, question.mask)


def _of_motion(folder: Path) -> Iterator[Case]:
    for name, thing in names_in(folder).items():
        clip = read_clip(folder, name, thing)
        for i, frame in enumerate(stream(iter(clip.frames), thing)):
            texture = frame.texture
            mask = resize_map(clip.masks[i].astype(np.float32), texture.grid.shape) > 0.5
            own = own_motion(texture)
            if i % EVERY or own is None or not mask.any():
                continue
            for kind, text in (
                ("the moving ...", thing),
                ("what is moving?", "what is moving?"),
                ("another thing", "a tree"),
            ):
                plain = score(texture, text, cues=False).map
                for channel, plane in (("motion", texture.channel("motion")), ("own_motion", own)):
                    yield Case(kind, channel, name, plain, plane, mask)


# --- who hears what is asked for --------------------------------------------------------------------------------------


def measure_hearing(questions: Path | None = None, pages: Path | None = None) -> dict[str, Any]:
    """-> report: how well the table, and vectors of words, tell which channel a question speaks of."""
    others: dict[str, Sequence[str]] = {
        "pages": [] if pages is None else [entry["query"] for entry in _entries(pages)],
        "open": [] if questions is None else [e["query"] for e in _entries(questions) if e["kind"] != "text"],
        "nouns": nouns(),
    }
    lines = [line.split(": ", 1) for line in QUESTIONS.read_text("utf-8").splitlines()]
    names = {"colour": "colour_contrast", "motion": "own_motion", "none": ""}
    asked = [(names.get(label, label), text) for label, text in lines]
    vectors = _Vectors()
    ways = {"the table": listen} | {
        f"{which} {near:g}": (
            lambda text, near=near, both=both: vectors.listen(text, near) | (listen(text) if both else set())
        )
        for which, both in (("vectors,", False), ("the table or vectors,", True))
        for near in NEAR
    }
    rows = []
    for way, hear in ways.items():
        writing = [
            f"{np.mean(['text' in hear(text) for text in some]):.3f}" if some else "" for some in others.values()
        ]
        for half in "AB":
            some = [(want, hear(text)) for want, text in asked if half_of(text) == half]
            wanted = [(want, got) for want, got in some if want]
            right = sum(want in got for want, got in wanted)
            total = sum(len(got) for _, got in some)
            plain = [bool(got) for want, got in some if not want]
            numbers = (right / len(wanted), right / max(total, 1), float(np.mean(plain)))
            cells = [way, half, str(len(wanted)), *(f"{n:.2f}" for n in numbers), *writing]
            rows.append({"way": way, "half": half, "cells": cells})
    return {
        "title": f"{len(asked)} questions by hand; half of them each",
        "rows": rows,
        "left_out": vectors.leave_one_out(),
    }


def _entries(folder: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((folder / "queries.json").read_text("utf-8"))
    return entries


def listen(text: str) -> set[str]:
    """Channels by the table."""
    try:
        return set(channel_weights(text)) & {cue.channel for cue in CUES}
    except QueryError:
        return set()


class _Vectors:
    """Words of a question against words that describe a channel, in the static table of words that nano comes with.

    A text as nano sees it, over the names of things, is of no use: "far" and "speed" are no names.
    """

    def __init__(self) -> None:
        self.of = NanoEncoder.built_in().encode_words
        self.channels = {channel: self.of(words.split()) for channel, words in DESCRIPTIONS.items()}

    def listen(self, text: str, near: float) -> set[str]:
        """Channels of which a describing word is as near to a word of the question."""
        words = [word for word in re.findall(r"[a-z]+", text.lower()) if word not in STOP]
        if not words:
            return set()
        vectors = self.of(words)
        return {channel for channel, described in self.channels.items() if float((vectors @ described.T).max()) > near}

    def leave_one_out(self) -> str:
        """Would the other words of a row find one that is missing? Other forms of the same word do not count."""
        words = [(channel, word) for channel, some in WORDS.items() for word in some if word not in nouns()]
        vectors, things = self.of([word for _, word in words]), self.of(list(nouns()))
        right = beyond = 0
        for i, (channel, word) in enumerate(words):
            others = [j for j, (_, other) in enumerate(words) if other[:4] != word[:4]]
            alike = vectors[others] @ vectors[i]
            right += words[others[int(alike.argmax())]][0] == channel
            beyond += float((things @ vectors[i]).max()) > alike.max()
        return (
            f"of {len(words)} words of the table, each left out, {right} are nearest to a word of their own channel, "
            f"and {beyond} are nearer to one of {len(things)} nouns than to any of them"
        )
