"""`python -m benchmarks all` and `compare`: what goes on, what is kept, what is refused."""

from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from benchmarks import claims, common, compare, quality, ratios, suite, tasks
from benchmarks.__main__ import BENCHMARKS, app
from benchmarks.common import circumstances
from benchmarks.ratios import CHECKS
from benchmarks.suite import TABLES, Table, choose, measure, place, read_result
from foveate.core.errors import OptionError

ROOT = Path(__file__).parents[1]
THREE = (Table("one", "A"), Table("two", "A", "--data {data}/coco128"), Table("three", "B", gpu=True))


class Runs:
    """In the place of processes: what each benchmark prints, and what was called."""

    def __init__(self, **printed: Any) -> None:
        self.printed, self.called = printed, list[str]()

    def __call__(self, words: list[str], limit: float) -> tuple[int, str, str]:
        self.called.append(" ".join(words))
        found = self.printed.get(words[0], {"title": words[0], "rows": []})
        return found if isinstance(found, tuple) else (0, f"a table\n{json.dumps(found)}\n", "")


def test_a_table_that_fails_takes_no_other_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, runs = tmp_path / "r.json", Runs(one=(1, "half a table\n", "ValueError: no"), two={"title": "t", "rows": []})
    (tmp_path / "coco128").mkdir()
    result = measure(THREE, False, tmp_path, path, run=runs)
    assert list(result["tables"]) == ["two"]
    assert result["failed"]["one"] == {"command": "python -m benchmarks one", "exit": 1, "message": "ValueError: no"}
    assert result["left_out"] == {"three": "no GPU"}
    assert result["tables"]["two"]["command"] == "python -m benchmarks two --data DATA/coco128"
    assert json.loads(path.read_text()) == result == read_result(path)
    assert {"cpu", "cores", "commit", "numpy", "date", "quick"} <= set(result)
    said = capsys.readouterr()
    assert "failed: one" in said.err
    assert "a table" in said.out


@pytest.mark.parametrize("printed", ["", "a table\n", "[1, 2]\n", '{"title": 1'])
def test_a_benchmark_without_a_last_line_failed(tmp_path: Path, printed: str) -> None:
    result = measure(THREE[:1], False, None, tmp_path / "r.json", run=Runs(one=(0, printed, "")))
    assert "no JSON object" in result["failed"]["one"]["message"]


def test_a_run_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, tables = tmp_path / "r.json", (Table("one", "A"), Table("two", "A"))

    def cut(words: list[str], limit: float) -> tuple[int, str, str]:
        if words[0] == "two":
            raise KeyboardInterrupt
        return 0, json.dumps({"title": "first", "rows": []}), ""

    now = circumstances() | {"load": 0.1, "memory_gb": 1.0}
    monkeypatch.setattr(suite, "circumstances", lambda: now)
    with pytest.raises(KeyboardInterrupt):
        measure(tables, False, None, path, run=cut)
    assert f"1 tables in {path}: the same with --resume" in capsys.readouterr().err
    runs, begun = Runs(), json.loads(path.read_text())
    monkeypatch.setattr(suite, "circumstances", lambda: now | {"load": 9.9, "memory_gb": 1.1})
    result = measure(tables, False, None, path, resume=True, run=runs)
    assert runs.called == ["two"]
    assert result["tables"]["one"]["report"]["title"] == "first"
    assert {**result, "tables": begun["tables"]} == begun  # with the load of its beginning
    others = ({"cpu": "another"}, {"numpy": "9.9"}, {"limits": {"OMP_NUM_THREADS": "64"}}, {"gpu": "one"})
    for other in others:  # what a file says of machine and versions is true of each of its tables
        monkeypatch.setattr(suite, "circumstances", lambda other=other: now | other)
        with pytest.raises(OptionError, match=f"another run: {next(iter(other))}"):
            measure(tables, False, None, path, resume=True, run=runs)
    monkeypatch.setattr(suite, "circumstances", lambda: {key: now[key] for key in now if key != "cpu"})
    with pytest.raises(OptionError, match="another run: cpu"):
        measure(tables, False, None, path, resume=True, run=runs)


def test_a_table_of_another_command_is_measured_again(tmp_path: Path) -> None:
    path, runs = tmp_path / "r.json", Runs()
    for device in ("cpu", "cuda"):
        measure((Table("one", "A", f"--device {device}"),), False, None, path, resume=True, run=runs)
    assert runs.called == ["one --device cpu", "one --device cuda"]


def test_results_hold_no_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".", "data", str(tmp_path / "data")):
        (Path(name) / "coco128").mkdir(parents=True)

        def run(words: list[str], limit: float) -> tuple[int, str, str]:
            report = {"title": f"3.5 ms of data: {words[2]}", "rows": [], "image": str(common.PHOTO)}
            return 0, json.dumps(report), ""

        told = measure(THREE[1:2], False, Path(name), tmp_path / "r.json", run=run)["tables"]["two"]["report"]
        assert told["title"] == "3.5 ms of data: DATA/coco128"  # a relative name may be any word
        assert not Path(told["image"]).is_absolute()
        assert str(tmp_path) not in (tmp_path / "r.json").read_text()
        (Path(name) / "coco128").rmdir()


def test_a_benchmark_that_hangs_is_given_up_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging, pipe = tmp_path / "hanging", tmp_path / "pipe"
    os.mkfifo(pipe)
    hanging.write_text(f"#!/bin/sh\nsh -c 'exec 9>{pipe}; echo there >&9; sleep 60' & wait\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert suite.run_alone(["query"], 1)[::2] == (124, "given up after 1 s (--limit)")
    assert os.read(reader, 9) == b"there\n"
    ready = select.select([reader], [], [], 20)[0]  # at once when nobody has the other end any more
    assert ready
    assert os.read(reader, 9) == b""
    os.close(reader)


def test_files_of_results_are_not_replaced(tmp_path: Path) -> None:
    there = tmp_path / "r.json"
    for at, unnamed in ((there, Path("no")), (None, there)):
        assert place(None, at, False, unnamed) == there
        there.write_text("{}")
        with pytest.raises(OptionError, match="exists"):
            place(None, at, False, unnamed)
        assert place(None, at, True, unnamed) == there
        there.unlink()
    assert place("2026-11-23_epyc", None, False, there).name == "2026-11-23_epyc.json"
    for name, out in (("../up", None), (".hidden", None), ("a", there), ("", None)):
        with pytest.raises(OptionError, match="--name"):
            place(name, out, True, there)
    for resume in (False, True):
        with pytest.raises(OptionError, match="is a folder"):
            place(None, tmp_path, resume, there)
    for data in (tmp_path / "none", Path(__file__)):
        with pytest.raises(OptionError, match="--data"):
            measure(THREE, False, data, there, run=Runs())
    with pytest.raises(OptionError, match="--limit"):
        suite.command(limit=-5, out=there)
    assert not there.exists()
    with pytest.raises(OptionError, match="--only nope"):
        choose("query, nope")
    assert choose("") == TABLES
    assert [table.name for table in TABLES if table.gpu] == ["gpu"]


def test_every_table_is_a_command_with_these_options() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for quick in (False, True):
        for table in choose(""):
            name, *words = table.command(quick, str(ROOT))
            assert name in BENCHMARKS, name
            commands[name].make_context(name, words)  # or a UsageError
    assert len({table.name for table in TABLES}) == len(TABLES)
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert {table.section for table in choose("")} <= {line[3:] for line in page.splitlines() if line.startswith("## ")}


@pytest.mark.slow
def test_one_real_table_through_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "TABLES", (Table("ratios", suite.QUESTION, "--calls 1 --only selecting"),))
    ran = CliRunner().invoke(
        app, ["all", "--only", "ratios", "--out", str(tmp_path / "r.json")], catch_exceptions=False
    )
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout.splitlines()[-1])
    assert "top_cells" in ran.stdout  # the table itself
    assert "[1/1] ratios" in ran.stderr
    compared = compare.measure(result, result)
    assert (compared["slower"], compared["faster"], len(compared["rows"])) == (0, 0, 1)


# --- ratios -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_quick_way_is_quicker(check: ratios.Check) -> None:
    row = ratios.hold(check())
    assert row["holds"], row["measured"]


def test_a_bad_moment_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = iter([(1.0, 1.0), (1.0, 1.0), (3.0, 1.0)])
    monkeypatch.setattr(ratios, "time_in_turn", lambda *_: tuple(np.full(3, one) for one in next(measured)))
    twins = ratios.Twins("a", lambda: None, lambda: None, 2, 3)
    assert ratios.hold(twins)["holds"]
    assert list(measured) == []
    monkeypatch.setattr(ratios, "time_in_turn", lambda *_: (np.ones(3), np.ones(3)))
    assert not ratios.hold(twins)["holds"]  # a quick way that became slow is noticed


# --- compare ----------------------------------------------------------------------------------------------------------


def result_of(seconds: dict[str, np.ndarray], **keys: Any) -> dict[str, Any]:
    rows = [common.time_row(what, times, "ms") for what, times in seconds.items()]
    table = {"report": {"title": f"of {len(rows)} rows, 0.{len(rows)}", "rows": rows}}
    return {"tables": {"t": table}, "machine": "m", "cpu": "c", "cores": 2, "commit": "1", **keys}


def noisy(median: float, count: int = 40, seed: int = 0) -> np.ndarray:
    return median * np.exp(0.1 * np.random.default_rng(seed).standard_normal(count))


def test_what_became_slower_is_marked() -> None:
    before = result_of({"a": noisy(1), "b": noisy(1), "c": noisy(1), "d": noisy(1, 3)})
    after = result_of({"a": noisy(1.02, seed=1), "b": noisy(1.5, seed=2), "c": noisy(0.5, seed=3), "d": noisy(2, 3)})
    report = compare.measure(before, after)
    assert {row["what"]: row["verdict"] for row in report["rows"]} == {
        "a": "",
        "b": "SLOWER",
        "c": "faster",
        "d": "SLOWER",
    }
    low, high = report["rows"][1]["interval"]
    assert low < 1.5 < high
    assert report["rows"][3]["interval"] is None  # of three measurements: it has to be far off
    back = compare.measure(after, before)
    assert (report["slower"], report["faster"]) == (back["faster"], back["slower"]) == (2, 1)


def test_rates_and_ratios_have_a_direction() -> None:
    def result(rate: float, ratio: float, takes: float, size: float) -> dict[str, Any]:
        rows = [
            common.rate_row("frames", noisy(rate)),
            common.ratio_row("times as fast", noisy(ratio), np.ones(40)),
            common.ratio_row("beside the encoder", noisy(takes), np.ones(40), "<= 1.25 x"),
            common.make_row("bytes", size, "", unit="MB"),
            common.make_row("without samples", takes, "", unit="ms"),
        ]
        return result_of({}) | {"tables": {"t": {"report": {"title": "", "rows": rows}}}}

    usual, changed = result(30, 10, 1, 1), result(3, 2, 2, 9)
    assert [row["verdict"] for row in compare.measure(usual, changed)["rows"]] == ["SLOWER"] * 3 + ["", "SLOWER"]
    assert [row["verdict"] for row in compare.measure(changed, usual)["rows"]] == ["faster"] * 3 + ["", "faster"]
    near = result(31, 11, 1.1, 1)
    assert compare.measure(usual, near)["slower"] == compare.measure(near, usual)["slower"] == 0
    busy = compare.measure(usual | {"load": 9.0}, changed)
    assert [row["verdict"] for row in busy["rows"]] == ["SLOWER"] * 2 + [""] * 3  # a factor of 2 says nothing there
    assert "no verdict" in busy["warnings"][0]


def test_two_machines_are_never_compared_silently(tmp_path: Path) -> None:
    before, after = result_of({"a": noisy(1)}), result_of({"a": noisy(1)}, cpu="another", load=9.0)
    with pytest.raises(OptionError, match="two machines: cpu c and another"):
        compare.measure(before, after)
    warnings = compare.measure(before, after, other_machine=True)["warnings"]
    assert warnings[0].startswith("TWO MACHINES")
    assert "load 9.0" in warnings[1]
    for name, result in (("a", before), ("b", after)):
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    paths = [str(tmp_path / "a.json"), str(tmp_path / "b.json")]
    shown = CliRunner().invoke(app, ["compare", *paths, "--other-machine"], catch_exceptions=False)
    assert shown.stdout.startswith("! TWO MACHINES")
    assert json.loads(shown.stdout.splitlines()[-1])["slower"] == 0


def test_a_table_is_judged_by_its_own_circumstances() -> None:
    """Not by those of the file, which may have been begun at another time."""
    row, here = common.time_row("a", noisy(1), "ms"), {"machine": "m", "cpu": "c", "cores": 2, "load": 0.1}
    slow = common.time_row("a", noisy(2), "ms")

    def result(row: Any, **loads: float) -> dict[str, Any]:
        reports = {name: {"rows": [row], **here, "load": load} for name, load in loads.items()}
        return {"tables": {name: {"report": report} for name, report in reports.items()}, **here, "load": 9.0}

    report = compare.measure(result(row, quiet=0.1, busy=5.0), result(slow, quiet=0.1, busy=0.1))
    assert {each["table"]: each["verdict"] for each in report["rows"]} == {"quiet": "SLOWER", "busy": ""}
    (warning,) = report["warnings"]
    assert warning.startswith("before: the machine was busy in 1 of 2 tables, load 5.0 on 2 cores in busy")
    after = result(slow, quiet=0.1, busy=0.1)
    after["tables"]["quiet"]["report"]["limits"] = {"OMP_NUM_THREADS": "1"}
    with pytest.raises(OptionError, match="two machines: limits None and "):
        compare.measure(result(row, quiet=0.1, busy=0.1), after)
    assert compare.measure(result(row, quiet=0.1, busy=0.1), after, only="busy")["slower"] == 1


def test_rows_of_the_same_name_and_rows_of_one_alone() -> None:
    before = result_of({"a": noisy(1), "b": noisy(1)})
    rows = before["tables"]["t"]["report"]["rows"]
    rows += [common.make_row("of which", 1.0, "1 ms", unit="ms"), common.make_row("of which", 2.0, "2 ms", unit="ms")]
    report = compare.measure(before, before)
    assert [row["before"] for row in report["rows"] if row["what"] == "of which"] == [1.0, 2.0]
    after = json.loads(json.dumps(before))
    after["tables"]["t"]["report"]["rows"] = [
        rows[0] | {"unit": "s"},
        common.make_row("new", 1.0, "1"),
        {"cells": ["x"]},
    ]
    report = compare.measure(before, after)
    assert [row["ratio"] for row in report["rows"]] == [None]  # of seconds and milliseconds there is none
    assert report["unmatched"]["only after"] == ["t: new"]
    with pytest.raises(OptionError, match="no row is in both"):
        compare.measure(before, before | {"tables": {}})


def test_results_that_are_kept_can_be_read_and_answer_the_claims() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        result = read_result(path)
        assert {"commit", "python", "cpu", "cores"} <= set(result), path
        assert claims.measure(result)["rows"], path  # or an OptionError: a place that names nothing


# --- quality ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_quicker_ways_are_beside_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "ENCODING", {"encode(rank=16)": {"rank": 16}})
    default, *others = quality.measure(limit=1)["rows"]
    assert (default["median"], default["same_cells"], default["cells"][1:3]) == (1, 1, ["1", "1.000"])
    assert {row["what"] for row in others} == {*quality.ENCODING, quality.CASCADE, quality.UNSMOOTHED}
    assert all(0 < row["same_cells"] <= 1 for row in others)
    assert quality.share(np.array([1, 2]), np.array([2, 3])) == 0.5


@pytest.mark.slow
def test_the_documents_tasks_have_their_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CROPS", 5)
    rows = tasks.measure(1, images=2, frames=2)["rows"]
    assert [row["there"] for row in rows] == ["26 x, 27 x", "114 x", "120 x", "27 x", ""]
    once, ten, video, *_, encoded = rows
    assert ten["against_crops"] > 3 * once["against_crops"]  # the encoding is shared
    assert ten["against_kept_crops"] < ten["against_crops"]
    assert video["against_encoder"] < video["against_crops"]
    assert encoded["against_kept_crops"] < encoded["against_crops"]  # once kept, crops are as quick as a texture


# --- claims -----------------------------------------------------------------------------------------------------------


def test_claims_take_their_numbers_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"what": "one image, first", "median": 0.123456, "cells": ["one image", "24 s (12 x)"]}
    result = {"tables": {"t": {"report": {"tables": [{"rows": [row, row | {"what": "two", "median": 0.5}]}]}}}}
    ours = "{t|one|1}, {t|two|median / t|one|median} x, {basis|one|1}"
    monkeypatch.setattr(claims, "CLAIMS", (claims.Claim("27", "33 x", ours, "as it is"),))
    (found,) = claims.measure(result)["rows"]
    gone = claims.MISSING
    assert found["cells"] == [
        "27",
        "33 x",
        f"24 s (12 x), 4.1 x, {gone}",
        "`benchmarks t`, `benchmarks basis`",
        "as it is",
    ]
    for wrong in ("t|three|median", "t|one|nothing", "t|one|7", "u|one|1"):
        monkeypatch.setattr(claims, "CLAIMS", (claims.Claim("27", "33 x", f"{{{wrong}}} x", "as it is"),))
        with pytest.raises(OptionError, match="nothing at"):
            claims.measure(result)
        if wrong[0] == "t":
            assert claims.MISSING in claims.measure(result | {"quick": True})["rows"][0]["cells"][2]
    monkeypatch.setattr(claims, "CLAIMS", (claims.Claim("27", "33 x", ours, "as it is"),))
    page, results = tmp_path / "page.md", tmp_path / "r.json"
    page.write_text("# A\n\n| x |\n|---|\n\n## B\n\n| old |\n|---|\n| 1 |\n\nEnd.\n")
    results.write_text(json.dumps(result))
    CliRunner().invoke(app, ["claims", str(results), "--into", str(page)], catch_exceptions=False)
    text = page.read_text()
    assert text.startswith("# A\n\n| x |\n|---|\n\n## B\n\n| there | claim |")
    assert text.endswith("| as it is |\n\nEnd.\n")
    assert "old" not in text


def test_every_claim_is_on_the_page_and_asks_for_tables_that_there_are() -> None:
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    for claim in claims.CLAIMS:
        assert f"| {claim.where} | {claim.said} |" in page
        for found in claims.PLACE.findall(claim.ours + claim.why):
            for part in found.split(" / "):
                assert part.split("|")[0] in {table.name for table in TABLES}, found


# --- intervals --------------------------------------------------------------------------------------------------------


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    inside = 0
    for _ in range(100):
        a, b = random.lognormal(0, 0.3, 30), 2 * random.lognormal(0, 0.3, 30)
        low, high = common.interval(b, a)
        inside += low <= 2 <= high
    assert 85 <= inside <= 100


def test_pairs_are_drawn_together() -> None:
    drift = np.exp(np.random.default_rng(0).standard_normal(40))  # the machine, in turns quick and slow
    low, high = common.interval(2 * drift, drift)
    assert (low, high) == pytest.approx((2, 2))
    low, high = common.interval(2 * drift, drift, pairs=False)
    assert high - low > 0.5
    with pytest.raises(ValueError, match="as many"):
        common.interval(drift, drift[1:])
    assert common.interval([1, 2, 3, 4]) == (0, float("inf"))
    row = common.ratio_row("r", 2 * drift, drift)
    assert (row["median"], row["unit"], row["interval"]) == (2.0, "x", [2.0, 2.0])
    json.dumps(common.time_row("few", drift[:3], "ms"), allow_nan=False)
