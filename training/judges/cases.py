"""Every set on which rules of choosing tokens are judged, in one table, with what is missing made first.

    python -m training.judges.cases --data DATA --cache CACHE [--half A] [--own] [--sets collage ...]

* Half A is to tune by, B is reported: halves of the photographs and pages, scenes of collage of known cut-outs and of
  other photographs, layouts of micro_doc that its model is trained on and that are held back.
* Rows are those of something in a tower's place: of collage its tower (trained here if it is not there), of pages
  their pixels, of photographs nano's looks; with --own nano's looks of all, as before a tower.
* What rules choose by, and what counts: `foveate.cli.evaluate.policies`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import selection, selection_pages
from benchmarks.common import show
from foveate.allocation.worth import look_rows
from foveate.cli.evaluate.policies import Case, report
from training.judges.collage import cases as collage
from training.judges.micro_doc import cases as micro_doc

PAGES = 60  # of micro_doc


def _photographs(data: Path, cache: Path, half: str, own: bool) -> Iterator[Case]:
    return selection.photographs(data / "dev", half)


def _pages(data: Path, cache: Path, half: str, own: bool) -> Iterator[Case]:
    return selection_pages.pages(data / "dev/docs", cache / "pages.json", half, None, cache / "pages")


def _collage(data: Path, cache: Path, half: str, own: bool) -> Iterator[Case]:
    side = {"A": "known", "B": "held"}[half]
    collage.make(data, cache / "collage", side, own=own)
    return collage.cases(cache / "collage", side, own=own)


def _micro_doc(data: Path, cache: Path, half: str, own: bool) -> Iterator[Case]:
    return micro_doc.cases(cache, PAGES, held_back=half == "B")


SETS: dict[str, Callable[[Path, Path, str, bool], Iterator[Case]]] = {
    "photographs": _photographs,
    "pages": _pages,
    "collage": _collage,
    "micro_doc": _micro_doc,
}


def cases(data: Path, cache: Path, half: str, *, own: bool = False, sets: Sequence[str] = ()) -> Iterator[Case]:
    """Of the sets, by default all; CACHE keeps what takes long. Of micro_doc, fonts are needed (README.md)."""
    for name in sets or SETS:
        for case in SETS[name](data, cache, half, own):
            grid = case.relevance.grid.shape
            texture = case.relevance.texture
            assert texture is not None
            yield replace(case, rows=look_rows(texture, grid, None)) if own and name != "collage" else case


def main(words: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.judges.cases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--half", choices=("A", "B"), default="B")
    parser.add_argument("--own", action="store_true", help="nano's looks in the place of a tower's rows")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    args = parser.parse_args(words)
    args.cache.mkdir(parents=True, exist_ok=True)
    found = report(cases(args.data, args.cache, args.half, own=args.own, sets=args.sets))
    show(found, found["columns"])
    print(*found["after"], sep="\n")


if __name__ == "__main__":
    main()
