"""Every table in one run: `python -m benchmarks`, or `python -m benchmarks all` with options.

Each table runs in a process of its own: one that fails takes no other with it, and none warms the caches of the next.
The file is written after each, so that --resume can go on. A line of TABLES is a benchmark with its arguments, for the
whole run and for --quick; `{data}` in them is the folder of --data, and a table whose folder is not there is left out.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.common import PHOTOS, circumstances, print_json, read_json
from foveate.core.checks import check_int
from foveate.core.errors import OptionError
from foveate.core.files import make_folder, write_whole

ROOT = Path(__file__).parents[1]
RESULTS, UNNAMED = ROOT / "benchmarks" / "results", ROOT / "build" / "benchmarks.json"
FORMAT = 1
MINUTES = 6  # a table takes less than four of them on two quiet cores, all together about eighteen
VARIES = {"date", "load", "memory_gb", "tables", "failed", "left_out"}  # of a file; a run that goes on shares the rest


class Table(NamedTuple):
    """A benchmark as the suite calls it."""

    name: str
    section: str  # of docs/performance.md
    arguments: str = ""
    quick: str = ""
    benchmark: str = ""  # where it is not the name
    gpu: bool = False  # it has nothing to say without one

    def command(self, quick: bool, data: str) -> list[str]:
        """Arguments of `python -m benchmarks`."""
        words = shlex.split(self.quick if quick else self.arguments)
        return [self.benchmark or self.name, *(word.replace("{data}", data) for word in words)]

    def lacks(self, quick: bool, data: Path | None, gpu: bool) -> str:
        """Why it is left out, or nothing."""
        if self.gpu and not gpu:
            return "no GPU"
        folders = [word.removeprefix("{data}/") for word in self.command(quick, "{data}") if "{data}" in word]
        if folders and data is None:
            return f"no --data, a folder with {' and '.join(folders)}"
        missing = [folder for folder in folders if data and not (data / folder).exists()]
        return f"no {' and no '.join(missing)} in --data" if missing else ""


FIRST, QUESTION, ENCODING = "First question and reuse", "A question", "Encoding"
CHANNELS, VIDEO, MODELS = "Channels, mips, memory", "Video", "Vision-language models"
STORE, QUALITY = "Store, search, indexing", "Quality beside speed"
TABLES = (  # what claims.txt needs is not last, as the last may be cut off
    Table("reuse", FIRST, "--encoders nano,clip-b16 --repeats 5",
          "--encoders nano --repeats 1 --sides 512 --tables questions,patches,bytes"),
    Table("reuse_accuracy", FIRST, "--encoders nano --tables accuracy --data {data}/coco128 --limit 6",
          "--encoders nano --tables accuracy --data {data}/coco128 --limit 1", "reuse"),
    Table("tasks", FIRST, "--repeats 5", "--repeats 1 --images 3 --frames 3"),
    Table("query", QUESTION, "--repeats 200", "--repeats 5"),
    Table("question", QUESTION, "--repeats 200", "--repeats 3 --cells 1024 --no-batches"),
    Table("service", ENCODING, "--repeats 5 --images 32 --threads 2", "--repeats 1 --images 2 --threads 1,2"),
    Table("channels", CHANNELS, "--repeats 20", "--repeats 1"),
    Table("textures", CHANNELS, "--repeats 20", "--repeats 1"),
    Table("basis", CHANNELS),
    Table("frames", VIDEO, "--clips {data}/davis --repeats 5",
          "--clips {data}/davis --repeats 1 --length 4 --no-overlay"),
    Table("vlm", MODELS, "--batch 1,4 --repeats 5", "--tiny --layers 1 --repeats 1 --new 2 --batch 1 --budgets 25"),
    Table("store", STORE, "--repeats 200", "--repeats 10 --images 2000"),
    Table("index", STORE, "{data}/coco128 --limit 40 --workers 2 --repeats 5", "{data}/coco128 --limit 4 --workers 1"),
    Table("quality", QUALITY, "--limit 64", "--limit 1"),
    Table("quality_masks", QUALITY, "--data {data}/coco128 --limit 24", "--data {data}/coco128 --limit 1", "quality"),
    Table("hardware_texture", "Hardware textures", "--repeats 20", "--repeats 1 --side 512 --samples 273"),
    Table("gpu", "GPU", "", "--quick", gpu=True),
    Table("ratios", QUALITY, "--calls 5", "--calls 1"),
    Table("reuse_l14", FIRST, "--encoders clip-l14 --tables questions,patches --repeats 1",
          "--encoders clip-l14 --tables questions,patches --repeats 1 --layers 1", "reuse"),
    Table("video", VIDEO, "--clips {data}/davis --length 24",
          "--clips {data}/davis --length 4 --side 176 --layers 1"),
)  # fmt: skip

Runner = Callable[[list[str], float], tuple[int, str, str]]


def command(
    only: Annotated[str, typer.Option(help="Tables, with commas between [default: all].")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Everything, very small: no number means anything.")] = False,
    data: Annotated[Path | None, typer.Option(help="Folder with coco128, davis and others (docs/evaluate.md).")] = None,
    name: Annotated[str | None, typer.Option(help="Keep the results as benchmarks/results/NAME.json.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file of results [default: build/benchmarks.json].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the file: what it holds is kept.")] = False,
    limit: Annotated[int, typer.Option(help="Minutes after which a table is given up, and has failed.")] = MINUTES,
) -> None:
    """Every table in one run, and a file of results; the last line is one JSON object."""
    check_int("--limit", limit)
    tables, path = choose(only), place(name, out, resume, UNNAMED)
    result = measure(tables, quick, data, path, resume, 60 * limit)
    print_json(file=str(path), **result)
    if result["failed"]:
        raise typer.Exit(1)


def choose(only: str) -> tuple[Table, ...]:
    """Tables of names with commas between; all of them for none. Raises OptionError."""
    tables, wanted = TABLES, [one.strip() for one in only.split(",") if one.strip()]
    unknown = [one for one in wanted if one not in {table.name for table in tables}]
    if unknown:
        raise OptionError(
            f"--only {', '.join(unknown)}",
            expected=f"some of {', '.join(table.name for table in tables)}",
            fix="`python -m benchmarks --help` lists the others, which are commands of their own",
        )
    return tuple(table for table in tables if not wanted or table.name in wanted)


def place(name: str | None, out: Path | None, resume: bool, unnamed: Path) -> Path:
    """The file of results. Raises OptionError; no file is ever replaced by a new run."""
    if name is not None and out is not None:
        raise OptionError(f"--name {name} and --out {out}", expected="one of them", fix="leave out the other")
    if name is not None and re.fullmatch(r"\w[\w.-]*", name) is None:
        raise OptionError(
            f"--name {name}", expected="letters, digits, dots, - and _, no dot first", fix="--out takes a path"
        )
    path = out or (RESULTS / f"{name}.json" if name else unnamed)
    if path.is_dir():
        raise OptionError(f"'{path}' is a folder", expected="a file of results", fix=f"--out {path / unnamed.name}")
    if path.exists() and not resume:
        raise OptionError(
            f"'{path}' exists",
            expected="a new file: results are kept",
            fix="add --resume to go on with it, choose another with --name or --out, or remove it",
        )
    make_folder(path.parent)
    return path


def measure(
    tables: Sequence[Table], quick: bool, data: Path | None, path: Path, resume: bool = False, limit: float = 1800,
    run: Runner | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run tables one after the other and write `path` after each. -> what it then holds.

    Keys beside the circumstances: `tables`, name -> section, command, seconds, report; `failed`, name -> command, exit
    status, the end of what it said; `left_out`, name -> why. limit: seconds of a table. Raises OptionError for data
    that are no folder, and where `resume` finds a file of other circumstances.
    """
    if data is not None and not data.is_dir():
        raise OptionError(f"--data {data}", expected="a folder that is there", fix="leave it out, or correct its name")
    now = circumstances()
    result = {"format": FORMAT, "title": "benchmarks all", "date": f"{date.today()}", "quick": quick, **now}
    result = (read_before(path, result) if resume else result | {"tables": {}}) | {"failed": {}, "left_out": {}}
    hide = {f"{data.resolve()}/": "DATA/"} if data else {}  # as a table gets it; a relative name may be any word
    hide |= {f"{place}/": "" for place in (ROOT, PHOTOS.parents[2], Path.home())}
    for number, table in enumerate(tables, 1):
        title = f"[{number}/{len(tables)}] {table.name}"
        spoken = shlex.join(["python", "-m", "benchmarks", *table.command(quick, "DATA")])
        if result["tables"].get(table.name, {}).get("command") == spoken:
            say(f"{title}: in the file already")
        elif why := table.lacks(quick, data, "gpu" in now):
            say(f"{title}: left out, {why}")
            result["left_out"][table.name] = why
        else:
            say(f"{title}: {spoken}")
            start = time.perf_counter()
            try:
                status, printed, said = (run or run_alone)(table.command(quick, str(data and data.resolve())), limit)
            except KeyboardInterrupt:
                say(f"  cut off; {len(result['tables'])} tables in {path}: the same with --resume goes on with it")
                raise
            report, seconds = last_json(printed), round(time.perf_counter() - start, 1)
            if status or report is None:
                why = said.strip()[-2000:] or "its last line is no JSON object"
                say(f"  failed after {seconds:.0f} s: {why}")
                result["failed"][table.name] = {"command": spoken, "exit": status, "message": without(why, hide)}
            else:
                print(printed.strip().rpartition("\n")[0], flush=True)
                say(f"  {seconds:.0f} s")
                told = {"section": table.section, "command": spoken, "seconds": seconds}
                result["tables"][table.name] = told | {"report": without(report, hide)}
        write_whole(path, json.dumps(result, indent=1).encode())
    for what in ("failed", "left_out"):
        if result[what]:
            say(f"{what.replace('_', ' ')}: {', '.join(result[what])}")
    say(f"{len(result['tables'])} tables in {path}")
    return result


def read_before(path: Path, now: Mapping[str, Any]) -> dict[str, Any]:
    """A file that a run goes on with; of `now` where there is none yet. Raises OptionError for one of another machine,
    code or versions: what a file says of them holds for all of its tables.
    """
    if not path.exists():
        return {**now, "tables": {}}
    before = read_result(path)
    if other := [key for key in {**now, **before} if key not in VARIES and before.get(key) != now.get(key)]:
        raise OptionError(
            f"'{path}' is of another run: "
            + ", ".join(f"{key} {before.get(key)}, now {now.get(key)}" for key in other),
            expected="a file of this machine, this code and these versions: one file, one set of circumstances",
            fix="choose another name for this run",
        )
    return before


def read_result(path: Path) -> dict[str, Any]:
    """A file of results. Raises OptionError for what is none."""

    def checked(found: Any) -> dict[str, Any]:
        if found.get("format", FORMAT) != FORMAT:
            raise ValueError(f"its format is {found['format']}")
        for table in found["tables"].values():
            list(rows_of(table))
        return dict(found)

    return read_json(
        path,
        checked,
        expected=f"a file that `python -m benchmarks all` wrote, format {FORMAT}",
        fix="`python -m benchmarks all --out FILE` writes one",
    )


def rows_of(table: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(title, row) of a table in a file of results; its report may hold several tables."""
    report = table["report"]
    for part in (report, *report.get("tables", ())):
        for row in part.get("rows", ()):
            yield str(part.get("title", "")), dict(row)


def run_alone(words: list[str], limit: float) -> tuple[int, str, str]:
    """`python -m benchmarks ...` in a process. -> exit status, stdout, stderr."""
    command = [sys.executable, "-m", "benchmarks", *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            printed, said = process.communicate(timeout=limit)
        except BaseException as error:  # it has a session of its own, so Ctrl-C does not reach it
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return 124, "", f"given up after {limit:.0f} s (--limit)"
    return process.returncode, printed, said


def last_json(printed: str) -> dict[str, Any] | None:
    """The object in the last line that is printed."""
    lines = printed.strip().splitlines()
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def without(told: Any, hide: Mapping[str, str]) -> Any:
    """A report without the names of this machine's folders: results are published."""
    if isinstance(told, str):
        for path, name in hide.items():
            told = told.replace(path, name)
        return told
    if isinstance(told, dict):
        return {key: without(value, hide) for key, value in told.items()}
    return [without(value, hide) for value in told] if isinstance(told, list) else told


def say(text: str) -> None:
    """Progress goes to stderr: stdout is for tables and the last line."""
    print(text, file=sys.stderr, flush=True)
