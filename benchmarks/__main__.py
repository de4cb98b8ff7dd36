"""`python -m benchmarks`: the list of benchmarks."""

from importlib import import_module

import typer

from foveate.cli.main import run

# A file each, with `measure(...) -> report` and `command(...)`; one a line, so that lines are added in peace.
BENCHMARKS = (
    "query",
    "channels",
    "fusion",
    "refine",
    "service",
    "text",
    "readers",
    "reading",
    "reading_vlm",
    "budget",
    "failures",
    "video",
    "store",
    "writing",
    "index",
    "basis",
    "vlm",
    "video_words",
    "objects",
    "zoom",
    "presets",
    "weights",
    "when",
    "chat",
    "boxes",
    "view",
)

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The numbers of README and docs come from here.",
)
for name in BENCHMARKS:
    app.command(name)(import_module(f"benchmarks.{name}").command)

if __name__ == "__main__":
    run(app)
