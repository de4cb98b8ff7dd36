"""`python -m benchmarks`: every table; with a command, one of them."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import typer

from benchmarks import suite
from benchmarks.common import WHAT, circumstances, print_json, show
from foveate.cli.main import run

# Each is a file, or a function of FUNCTIONS; by what they ask. A file has `measure(options) -> report`, or `command`,
# which prints by itself.
BENCHMARKS = (
    # The whole, and what reads it
    "compare",
    "claims",
    "ratios",
    # Speed: docs/performance.md, in its order
    "reuse",
    "tasks",
    "query",
    "question",
    "service",
    "channels",
    "textures",
    "basis",
    "compression",
    "frames",
    "vlm",
    "families",
    "serving",
    "store",
    "index",
    "overlap",
    "quality",
    "gpu",
    "hardware_texture",
    # Do maps show what is asked for?
    "fusion",
    "refine",
    "boxes",
    "sides",
    "objects",
    "weights",
    "presets",
    "phases",
    "open",
    "failures",
    "verdict",
    "selection",
    "when",
    "zoom",
    "redundancy",
    # Writing in images
    "text",
    "written",
    "readers",
    "reading",
    "values",
    "reading_vlm",
    "selection_pages",
    "writing",
    # Video, chat, the viewer
    "video",
    "video_words",
    "video_pruning",
    "chat",
    "view",
)
FUNCTIONS = {  # file.function, where it is not a file's `measure`
    "channels": "query.measure_channels",
    "chat": "vlm.chat",
    "failures": "open.failures",
    "fusion": "maps.measure_fusion",
    "refine": "maps.measure_refine",
    "weights": "maps.measure_weights",
    "written": "text.measure_kept",
}

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    help="The numbers of README and docs come from here. Without a command: every table, as `all`.",
)


@app.callback(invoke_without_command=True)
def begin(context: typer.Context) -> None:
    """Without a command, all tables as they are by default."""
    if context.invoked_subcommand is None:
        suite.say(
            "every table, one after the other; `python -m benchmarks --help` lists them, `all --help` the options"
        )
        suite.command()


def printed(measure: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """A command that prints the report of `measure`, and all of it with versions and machine as its last line.

    Of a report, "columns" are those of its "rows", and "after" are lines and tables below them. Status 1 where a row
    says that it does not hold.
    """

    @wraps(measure)
    def command(**options: Any) -> None:
        report = measure(**options)
        rows, after = report.get("rows", ()), report.pop("after", ())
        if rows:
            show(report, report.get("columns", WHAT))
        for part in after:
            print(part) if isinstance(part, str) else show(part, part["columns"])
        print_json(**report, **circumstances())
        if not all(row.get("holds", True) for row in rows):
            raise typer.Exit(1)

    return command


app.command("all")(suite.command)
for name in BENCHMARKS:
    file, _, function = FUNCTIONS.get(name, name).partition(".")
    try:
        module = import_module(f"benchmarks.{file}")
    except ModuleNotFoundError as missing:  # in an environment with few extras, vLLM's say
        if str(missing.name).partition(".")[0] in ("benchmarks", "foveate"):
            raise
        continue
    app.command(name)(getattr(module, "command", None) or printed(getattr(module, function or "measure")))

if __name__ == "__main__":
    run(app)
