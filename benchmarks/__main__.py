"""`python -m benchmarks`: the list of benchmarks."""

import typer

from benchmarks import (
    basis,
    boxes,
    budget,
    channels,
    chat,
    failures,
    fusion,
    index,
    objects,
    presets,
    query,
    readers,
    reading,
    reading_vlm,
    refine,
    service,
    store,
    text,
    video,
    video_words,
    view,
    vlm,
    weights,
    when,
    writing,
    zoom,
)
from foveate.cli.main import run

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="The numbers of README and docs come from here.",
)
for benchmark in (
    query, channels, fusion, refine, service, text, readers, reading, reading_vlm, budget, failures, video, store,
    writing, index, basis, vlm, video_words, objects, zoom, presets, weights, when, chat, boxes, view,
):  # fmt: skip
    app.command(benchmark.__name__.removeprefix("benchmarks."))(benchmark.command)

if __name__ == "__main__":
    run(app)
