"""Which rule keeps the tokens that an answer needs, on photographs with labels and open questions?

    python -m benchmarks selection --data FOLDER          # a folder with coco128/ and open/; half B

Cases, rules and what counts: `foveate.cli.evaluate.policies`, which `foveate evaluate relevance --policies` has, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import Half
from benchmarks.questions import read_questions
from foveate.cli.evaluate.coco import read_folder
from foveate.cli.evaluate.policies import Case, cases_of_image, report
from foveate.cli.evaluate.relevance import question
from foveate.pipeline import encode


def photographs(data: Path, half: str | None) -> Iterator[Case]:
    """Cases of DATA/coco128 and DATA/open."""
    for item in read_folder(data / "coco128").half(half).labelled():
        things = {name: (question(name), mask) for name, mask in item.masks.items()}
        yield from cases_of_image("coco128", item.name, encode(item.rgb), things)
    asked = read_questions(data / "open")
    for _, photograph, rgb in (asked if half is None else asked.half(half)).read():
        there = [one for one in photograph.questions if one.mask is not None and one.kind != "text"]
        if there:
            things = {one.text: (one.text, one.mask) for one in there if one.mask is not None}
            yield from cases_of_image("open", photograph.file, encode(rgb), things)


def measure(
    data: Annotated[Path, typer.Option(help="Folder with coco128/ and open/.")], half: Half = "B"
) -> dict[str, Any]:
    """Which rule keeps the tokens that an answer needs?"""
    return {**report(photographs(data, half)), "half": half}
