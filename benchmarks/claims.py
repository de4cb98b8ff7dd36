"""The documents' claims of speed, one row each, with what a file of results says to them.

    python -m benchmarks claims benchmarks/results/NAME.json     # as it stands in docs/performance.md

In claims.txt `{table|row|column}` is the first row of that table whose name contains the text, and of it a key or the
number of a cell; `{a|b|c / d|e|f}` is a ratio of two. A name that finds nothing in a table that is there is an error.
The documents' times are of an H100 and were reckoned, not measured; so ratios are what can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.common import print_json
from benchmarks.suite import TABLES, read_result, rows_of
from foveate.core.errors import OptionError
from foveate.core.files import write_whole

COLUMNS = ("there", "claim", "here", "by", "why it differs")
PLACE = re.compile(r"\{([^{}]+)\}")
MISSING = "not in this file"


class Claim(NamedTuple):
    """A claim, what came of it, and why it differs. `by` names a command or a page where no table says it."""

    where: str
    said: str
    ours: str
    why: str
    by: str = ""


FILE = Path(__file__).parent / "claims.txt"  # blocks: "document and section: claim", ours, why, by (if no table)


def read_claims(text: str) -> tuple[Claim, ...]:
    """Of blocks with empty lines between."""
    claims = []
    for block in text.strip().split("\n\n"):
        first, *rest = block.split("\n")
        where, _, said = first.partition(": ")
        claims.append(Claim(where, said, *rest))
    return tuple(claims)


CLAIMS = read_claims(FILE.read_text("utf-8"))


def command(
    results: Annotated[Path, typer.Argument(help="A file of results.")],
    into: Annotated[Path | None, typer.Option(help="A page whose last table is replaced.")] = None,
) -> None:
    """The documents' claims beside what a file of results says, as a table of Markdown."""
    report = measure(read_result(results))
    lines = list(markdown(report["rows"]))
    if into is not None:
        page = into.read_text("utf-8").split("\n") if into.is_file() else []
        rows = [number for number, line in enumerate(page) if line.startswith("|")]
        if not rows:
            raise OptionError(f"--into {into}", expected="a page with a table of Markdown", fix="correct its name")
        first = next(n for n in reversed(rows) if n - 1 not in rows)
        write_whole(into, "\n".join([*page[:first], *lines, *page[rows[-1] + 1 :]]).encode())
    print("\n".join(lines))
    print_json(**report)


def measure(result: Mapping[str, Any]) -> dict[str, Any]:
    """-> report with a row a claim. Raises OptionError for places that name nothing in a table that is there."""
    if wrong := [place for place in places() if names_nothing(result, place)]:
        raise OptionError(
            f"claims.txt: nothing at {', '.join(f'{{{place}}}' for place in wrong)}",
            expected="table|row|column as the file of results has them",
            fix="correct benchmarks/claims.txt, or measure these tables again as `all` does",
        )
    rows = []
    for claim in CLAIMS:
        ours, why = (PLACE.sub(lambda found: look_up(result, found[1]), text) for text in (claim.ours, claim.why))
        tables = dict.fromkeys(place.split("|")[0] for place in places(claim))
        by = ", ".join([*(f"`benchmarks {name}`" for name in tables), *([claim.by] if claim.by else [])])
        rows.append({"what": claim.said, "cells": [claim.where, claim.said, ours, by, why]})
    return {"title": f"{len(rows)} claims", "rows": rows, "commit": result.get("commit"), "cpu": result.get("cpu")}


def places(*claims: Claim) -> list[str]:
    """Every `table|row|column` of some claims, or of all."""
    found = (place for claim in claims or CLAIMS for place in PLACE.findall(claim.ours + claim.why))
    return [part.strip() for place in found for part in place.split(" / ")]


def names_nothing(result: Mapping[str, Any], place: str) -> bool:
    """Whether a place is wrong: its table is unknown, or is there, whole, without such a row or column."""
    table = place.split("|")[0]
    if table not in result["tables"]:
        return table not in {known.name for known in TABLES}
    return not result.get("quick") and at(result, *place.split("|")) in (None, "")


def markdown(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of a table."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    for row in rows:
        yield f"| {' | '.join(row['cells'])} |"


def look_up(result: Mapping[str, Any], place: str) -> str:
    """What stands at `table|row|column`, or the ratio of two such."""
    found = [at(result, *part.strip().split("|")) for part in place.split(" / ")]
    if any(one is None for one in found):
        return MISSING
    if len(found) == 2:
        return f"{float(found[0]) / float(found[1]):.2g}"
    one = found[0]
    return str(one) if not isinstance(one, float) else f"{one:.3g}" if abs(one) < 1000 else f"{one:,.0f}"


def at(result: Mapping[str, Any], table: str, row: str, column: str) -> Any:
    """A value of the first row whose name contains `row`; None where there is none."""
    for _, each in rows_of(result["tables"].get(table, {"report": {}})):
        cells = each.get("cells") or [""]
        if row in str(each.get("what") or cells[0]):
            return each.get(column) if not column.isdigit() else dict(enumerate(cells)).get(int(column))
    return None
