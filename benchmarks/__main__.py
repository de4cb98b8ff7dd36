"""`python -m benchmarks`: every table; with a command, one of them."""

from importlib import import_module

import typer

from benchmarks import suite
from foveate.cli.main import run

# Each is a file with `command(...)`, or in FUNCTIONS; by what they ask.
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
    "serving",
    "store",
    "index",
    "quality",
    "gpu",
    "hardware_texture",
    # Do maps show what is asked for?
    "fusion",
    "refine",
    "boxes",
    "objects",
    "weights",
    "presets",
    "open",
    "failures",
    "when",
    "zoom",
    # Writing in images
    "text",
    "readers",
    "reading",
    "reading_vlm",
    "writing",
    # Video, chat, the viewer
    "video",
    "video_words",
    "chat",
    "view",
)
FUNCTIONS = {  # of names that are not a file's `command`
    "chat": "vlm.chat",
    "failures": "open.failures",
    "fusion": "maps.fusion",
    "refine": "maps.refine",
    "weights": "maps.weights",
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


app.command("all")(suite.command)
for name in BENCHMARKS:
    module, _, function = FUNCTIONS.get(name, name).partition(".")
    app.command(name)(getattr(import_module(f"benchmarks.{module}"), function or "command"))

if __name__ == "__main__":
    run(app)
