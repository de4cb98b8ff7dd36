"""Scenes as cases of `foveate.cli.evaluate.policies`: do the kept tokens still show what a question needs?

* As a perfect reader of the kept tokens would say: one must show the thing that is named, one its painted part where a
  part is asked, one each of both things of a relation. A part that no cell shows is never seen: of all tokens .90.
* Rows are the tower's tokens, or nano's own looks.
* dialogues: after a question that names one thing, "and what colour is it?" needs that thing again, "and what is above
  it?" the thing above it, too. As in `foveate.vlm.chat`, the map is that of the dialogue so far; every rule gets it.
* Side "known" is to tune by; "held", of other photographs, is reported. Counting is left out: it needs every thing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import foveate
from foveate.allocation.worth import look_rows
from foveate.cli.evaluate.policies import Case, Need
from foveate.vlm.context import Context, score_in_context
from training.harness import needed
from training.judges.collage import features, tower
from training.judges.collage.evaluate import EACH, GROUPS, asked, textures
from training.judges.collage.scenes import CELLS, NAMED, SIDES, Question, Thing, beside

SETS = ("named", "relations")


def needs_of(question: Question, shown: NDArray[np.int8]) -> tuple[Need, ...]:
    """Of a question, by what cells show, int8 [2, 256]: the thing, and the thing whose tinted part is there."""
    things = [Need(np.flatnonzero(shown[0] == thing), 1) for thing in question.needs]
    parts = [Need(np.flatnonzero(shown[1] == question.needs[0]), 1)] if question.family.startswith("part") else []
    return *things, *parts


def follow_ups(things: Sequence[Thing], first: Question) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Questions that refer back to the one thing that `first` names, and the things that they need."""
    (thing,) = first.needs
    if first.family != "colour" and things[thing].colour:
        yield "and what colour is it?", (thing,)
    for side in SIDES:
        other = beside(things, thing, side)
        if other is not None:
            yield f"and what is {side} it?", (thing, other)


def make(data: Path, folder: Path, side: str, *, own: bool = False) -> None:
    """The scenes of a side, and unless `own` the tower and its tokens, as far as they are missing."""
    features.make(data, folder, side, features.COUNTS[side])
    if own or (folder / side / "tokens.npy").exists():
        return
    features.make(data, folder, "train", features.COUNTS["train"])
    features.make(data, folder, "held", features.COUNTS["held"])  # the tower's training ends with a look at them
    tower.write_tokens(tower.train(folder, steps=tower.STEPS), folder, side)


def cases(folder: Path, side: str, *, own: bool = False, scenes: int | None = None) -> Iterator[Case]:
    """Questions about the scenes of CACHE/collage; textures are made where they are missing."""
    made = features.load(folder, side)
    count = min(scenes or len(made.scenes), len(made.scenes))
    if not own:
        needed(folder / side, "tokens.npy", hint="`make` makes it")
        rows = np.load(folder / side / "tokens.npy", mmap_mode="r")[:, 0]
    items = asked(made.scenes, count, EACH)
    for number, texture in enumerate(textures(folder / side, count)):
        seen = look_rows(texture, (CELLS, CELLS), None) if own else rows[number].astype(np.float32)
        for question in (item.question for item in items if item.scene == number):
            needs = needs_of(question, made.shown[number])
            relevance = foveate.score(texture, question.text).on((CELLS, CELLS))
            for name in SETS:
                if question.family in GROUPS[name]:
                    yield Case(f"{side} {name}", f"{side} {number}", question.text, relevance, seen, needs)
            context = Context(np.empty((0, 3)), earlier=(question.text,))
            for text, things in follow_ups(made.scenes[number].things, question) if question.family in NAMED else ():
                needs = tuple(Need(np.flatnonzero(made.shown[number][0] == thing), 1) for thing in things)
                relevance = score_in_context(texture, text, context)[0].on((CELLS, CELLS))
                yield Case(f"{side} dialogues", f"{side} {number}", f"{question.text}; {text}", relevance, seen, needs)
