"""Where is nano wrong? The worst maps of open questions, and what it calls found that is not there, as a table.

    python -m benchmarks failures --data FOLDER

Beside each question stands what nano sees where its map is highest: the two names with most evidence there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.common import print_json
from foveate.cli.evaluate.open import Asked, measure
from foveate.cli.evaluate.questions import read_questions
from foveate.encoders.nano import NanoEncoder
from foveate.pipeline import encode, score

WRITING = "writing"


def command(
    data: Annotated[Path, typer.Option(help="Folder with queries.json (docs/evaluate.md).")],
    count: Annotated[int, typer.Option(help="Rows in all; a quarter of them are about what is not there.")] = 40,
) -> None:
    """The worst maps of open questions, and what is called found though it is not there."""
    questions = read_questions(data)
    _, asked = measure(questions, "nano")
    there = [one for one in asked if one.there and WRITING not in one.titles]
    worst = sorted(there, key=lambda one: one.found["nano"].precision)
    false = sorted((one for one in asked if not one.there), key=lambda one: -one.confidence)
    chosen = [*worst[: count - count // 4], *false[: count // 4]]
    nano, rows = NanoEncoder.built_in(), []
    textures = {
        number: encode(rgb, encoder=nano) for number, _, rgb in questions.read(only={one.number for one in chosen})
    }
    for one in chosen:
        texture = textures[one.number]
        planes = texture.scores(np.eye(nano.width, dtype=np.float32)[:-1]).reshape(nano.width - 1, -1)
        best = planes[:, int(score(texture, one.thing, encoder=nano).map.argmax())].argsort()[::-1][:2]
        rows.append(_row(one, [nano.space.names[i] for i in best]))
    print("| question | photograph | share of it | precision | confidence | what nano sees at the map's peak |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(map(str, row.values())) + " |")
    print_json(failures=rows)


def _row(one: Asked, seen: list[str]) -> dict[str, str]:
    precision = f"{one.found['nano'].precision:.2f}" if one.there else "not there"
    return {
        "question": one.thing,
        "photograph": one.image,
        "share": f"{one.share:.1%}",
        "precision": precision,
        "confidence": f"{one.confidence:.2f}",
        "seen": ", ".join(seen),
    }
