"""`python -m benchmarks`: every table; with a command, one of them."""

from importlib import import_module

import typer

from benchmarks import suite
from foveate.cli.main import run

# A file each, with `measure(...) -> report` and `command(...)`; one a line, so that lines are added in peace.
BENCHMARKS = (
    "query",
    "question",
    "hardware_texture",
    "compare",
    "claims",
    "ratios",
    "quality",
    "tasks",
    "channels",
    "textures",
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
    "frames",
    "store",
    "writing",
    "index",
    "basis",
    "vlm",
    "gpu",
    "video_words",
    "objects",
    "zoom",
    "presets",
    "weights",
    "when",
    "reuse",
    "chat",
    "boxes",
    "view",
)

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


app.command("all")(suite.command)
for name in BENCHMARKS:
    app.command(name)(import_module(f"benchmarks.{name}").command)

if __name__ == "__main__":
    run(app)
