"""Scenes as cases of `benchmarks.selection`: do the kept tokens still show what a question needs?

    python -m training.judges.collage.cases --cache CACHE [--side known]      after features; tower.py makes the rows

* As a perfect reader of the kept tokens would say: one must show the thing that is named, one its painted part where a
  part is asked, one each of both things of a relation. A part that no cell shows is never seen: of all tokens .90.
* Rows are the tower's tokens; with --own nano's numbers of the tokens, as before a tower.
* Side "known" is to tune by; "held", of other photographs, is reported. Counting is left out: it needs every thing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import foveate
from benchmarks.common import show
from benchmarks.selection import Case, Need, looks_on, report
from training.harness import needed
from training.judges.collage.evaluate import EACH, GROUPS, asked, textures
from training.judges.collage.features import load
from training.judges.collage.scenes import CELLS, Question

SETS = ("named", "relations")


def needs_of(question: Question, shown: NDArray[np.int8]) -> tuple[Need, ...]:
    """Of a question, by what cells show, int8 [2, 256]: the thing, and the thing whose tinted part is there."""
    things = [Need(np.flatnonzero(shown[0] == thing), 1) for thing in question.needs]
    parts = [Need(np.flatnonzero(shown[1] == question.needs[0]), 1)] if question.family.startswith("part") else []
    return *things, *parts


def cases(folder: Path, side: str, *, own: bool = False, scenes: int | None = None) -> Iterator[Case]:
    """Questions about the scenes of CACHE/collage; textures are made where they are missing."""
    made = load(folder, side)
    count = min(scenes or len(made.scenes), len(made.scenes))
    if not own:
        needed(folder / side, "tokens.npy", hint="first run the tower (tower.py), or pass --own for nano's numbers")
        rows = np.load(folder / side / "tokens.npy", mmap_mode="r")[:, 0]
    items = asked(made.scenes, count, EACH)
    for number, texture in enumerate(textures(folder / side, count)):
        seen = looks_on(texture, (CELLS, CELLS)) if own else rows[number].astype(np.float32)
        for question in (item.question for item in items if item.scene == number):
            needs = needs_of(question, made.shown[number])
            relevance = foveate.score(texture, question.text).on((CELLS, CELLS))
            for name in SETS:
                if question.family in GROUPS[name]:
                    yield Case(f"{side} {name}", f"{side} {number}", question.text, relevance, seen, needs)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.judges.collage.cases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--side", choices=("known", "held"), default="held")
    parser.add_argument("--own", action="store_true", help="nano's numbers in place of the tower's")
    args = parser.parse_args()
    found = report(list(cases(args.cache / "collage", args.side, own=args.own)))
    show(found, found["columns"])
    print(*found["after"], sep="\n")


if __name__ == "__main__":
    main()
