"""Two files of results side by side: what became slower?

    python -m benchmarks compare BEFORE AFTER

Rows are matched by table, title and name. Times are better when low, rates when high, ratios as their row says. A row
is called slower where the 95 % interval of the ratio says so *and* the medians differ by more than NOISE, as no
interval knows what the machine did between two runs; without samples, by more than FAR. On a busy machine the same
code took 2.6 times as long at 95 % of the rows, so there nothing below BUSY has a verdict.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import interval, print_json, show
from benchmarks.suite import read_result, rows_of
from foveate.core.errors import OptionError

COLUMNS = ("table", "what", "before", "after", "after / before", "")
MACHINE = ("machine", "cpu", "cores", "gpu", "limits")
NOISE, FAR, BUSY = 1.2, 1.5, 3.0
TIMES = {"s", "ms", "µs", "us", "ns"}
SLOWER, FASTER = "SLOWER", "faster"


def command(
    before: Annotated[Path, typer.Argument(help="A file of results.")],
    after: Annotated[Path, typer.Argument(help="Another.")],
    other_machine: Annotated[
        bool, typer.Option("--other-machine", help="Compare although the machines differ.")
    ] = False,
    only: Annotated[str, typer.Option(help="Tables, with commas between [default: all].")] = "",
) -> None:
    """What became slower between two files of results? Status 1 if anything did."""
    report = measure(read_result(before), read_result(after), other_machine, only)
    for line in report["warnings"]:
        print(f"! {line}")
    show(report, COLUMNS)
    print(f"\n{report['slower']} slower, {report['faster']} faster, {len(report['rows'])} compared")
    for what, names in report["unmatched"].items():
        if names:
            print(f"{what}: {len(names)} rows, {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}")
    print_json(**report)
    if report["slower"]:
        raise typer.Exit(1)


def measure(
    before: Mapping[str, Any], after: Mapping[str, Any], other_machine: bool = False, only: str = ""
) -> dict[str, Any]:
    """-> report; its rows are those of both results. Raises OptionError for two machines, and for nothing in common."""
    wanted = {name.strip() for name in only.split(",") if name.strip()}
    a, b = dict(numbers(before)), dict(numbers(after))
    common = [key for key in a if key in b and (not wanted or key[0] in wanted)]
    if not common:
        raise OptionError(
            "no row is in both",
            expected="results with tables in common" + (f", {only} among them" if only else ""),
            fix=f"one has {', '.join(before['tables']) or 'none'}, the other {', '.join(after['tables']) or 'none'}",
        )
    tables = dict.fromkeys(key[0] for key in common)
    was, now = ({name: circumstances_of(result, name) for name in tables} for result in (before, after))
    warnings = differences(was, now, other_machine)
    if before.get("quick") or after.get("quick"):
        warnings.append("a --quick run: its numbers mean little")
    least = {name: BUSY if is_busy(was[name]) or is_busy(now[name]) else 1.0 for name in tables}
    rows = [set_beside(key, a[key], b[key], least[key[0]]) for key in common]
    verdicts = [row["verdict"] for row in rows]
    return {
        "title": f"{before.get('commit')} ({before.get('date')}) and {after.get('commit')} ({after.get('date')})",
        "warnings": warnings,
        "rows": rows,
        "slower": verdicts.count(SLOWER),
        "faster": verdicts.count(FASTER),
        "unmatched": {"only before": names(a, b), "only after": names(b, a)},
    }


def names(of: Mapping[tuple[str, ...], Any], without: Mapping[tuple[str, ...], Any]) -> list[str]:
    """Rows that the other has not."""
    return [f"{key[0]}: {key[-1].strip()}" for key in of if key not in without]


def circumstances_of(result: Mapping[str, Any], table: str) -> Mapping[str, Any]:
    """Those that a table was measured under: its own, if it has them; the file has those of its beginning."""
    report: Mapping[str, Any] = result["tables"][table]["report"]
    return report if "machine" in report else result


Under = Mapping[str, Mapping[str, Any]]  # the circumstances of each table


def differences(before: Under, after: Under, other_machine: bool) -> list[str]:
    """What speaks against comparing the same tables of two results. Raises OptionError for two machines."""
    pairs = [(before[table], after[table]) for table in before]
    found = [f"{key} {a.get(key)} and {b.get(key)}" for key in MACHINE for a, b in pairs if a.get(key) != b.get(key)]
    differ = dict.fromkeys(found)
    if differ and not other_machine:
        raise OptionError(
            f"two machines: {'; '.join(differ)}",
            expected="results of one machine: times of two say nothing about the code",
            fix="measure both on one, or add --other-machine and look at ratios within each file",
        )
    found = [f"TWO MACHINES: {each}. Times below say nothing about the code." for each in differ]
    for title, under in (("before", before), ("after", after)):
        if busy := [table for table in under if is_busy(under[table])]:
            most = max(busy, key=lambda table: under[table]["load"])
            found.append(
                f"{title}: the machine was busy in {len(busy)} of {len(under)} tables, load {under[most]['load']} on "
                f"{under[most]['cores']} cores in {most}: what differs there by less than {BUSY:g} x has no verdict"
            )
    return found


def is_busy(under: Mapping[str, Any]) -> bool:
    """Whether more ran than there are cores, when it was measured."""
    return bool(under.get("load", 0) > under.get("cores", 1))


def numbers(result: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """(table, title, which of that name, name) -> row, of all rows with a number."""
    for name, table in result["tables"].items():
        met: Counter[tuple[str, str]] = Counter()  # "  of which the encoder" may stand below several rows
        for heading, row in rows_of(table):
            number, title = row.get("median"), re.sub(r"[\d.,]+", "#", heading)  # numbers may differ between runs
            if isinstance(number, int | float) and number == number:  # NaN is none
                what = str(row.get("what", ""))
                met[title, what] += 1
                yield (name, title, str(met[title, what]), what), row


def set_beside(key: tuple[str, ...], a: Mapping[str, Any], b: Mapping[str, Any], least: float = 1.0) -> dict[str, Any]:
    """A row of both, with a verdict where its unit has a direction, and the difference is large enough."""
    one, other, unit = float(a["median"]), float(b["median"]), str(a.get("unit", ""))
    ratio = other / one if one > 0 and other > 0 and unit == b.get("unit", "") else None
    judged, verdict, low, high = "", "", 0.0, float("inf")
    if ratio is not None:
        judged, enough = f"{ratio:.3g}", FAR
        if a.get("samples") and b.get("samples"):
            low, high = interval(b["samples"], a["samples"], pairs=False)
        if high < float("inf"):
            judged += f" ({low:.3g}-{high:.3g})"
            enough = NOISE if low > 1 or high < 1 else float("inf")
        if max(ratio, 1 / ratio) > max(enough, least) and (better := direction(a)):
            verdict = SLOWER if (ratio > 1) == (better == "low") else FASTER
    shown = [key[0], key[-1].strip(), f"{one:.4g} {unit}", f"{other:.4g} {unit}", judged, verdict]
    return {"cells": shown, "table": key[0], "what": key[-1], "before": one, "after": other, "ratio": ratio,
            "interval": [low, high] if high < float("inf") else None, "verdict": verdict}  # fmt: skip


def direction(row: Mapping[str, Any]) -> str:
    """What is better, "low" or "high", or nothing where a row does not say: sizes, shares, counts."""
    unit = str(row.get("unit", ""))
    return str(row.get("better") or ("low" if unit in TIMES else "high" if unit.endswith("/s") else ""))
