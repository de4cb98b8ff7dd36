"""What the commands share: options with the same meaning everywhere, tables, the last line, a sign of life.

Only typer is imported at the top; `foveate --help` stays quick.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

EncoderName = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="nano; clip, siglip or tips, alone or as clip:NAME_OR_FOLDER [default: nano; a texture's own].",
    ),
]
Twice = Annotated[bool, typer.Option("--twice", help="Look again, closer: better maps, in about thrice the time.")]
LongSide = Annotated[
    int | None, typer.Option(help="Working size of the encoder in pixels [default: the encoder's own].")
]


def table(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table on stdout; 160 columns wide where stdout is no terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    lines = Table(title=Text(title), title_justify="left", box=None, header_style="bold", pad_edge=False)
    for name in header:
        lines.add_column(name, overflow="fold")
    for row in rows:
        lines.add_row(*(Text(cell) for cell in row))  # Text, not markup: file names may hold brackets
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(lines)


def last_line(**values: Any) -> None:
    """Print the JSON object that ends every command's output."""
    typer.echo(json.dumps(values))


@contextmanager
def waiting(what: str, encoder: str | None) -> Iterator[None]:
    """A spinner on stderr, for people only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    if (encoder or "").startswith(("clip", "siglip", "tips")):
        what += " (the first use of a Hub checkpoint downloads it: 0.6 to 4 GB, see docs/encoders.md)"
    with Console(stderr=True).status(what):
        yield


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, for people only; gives a function that takes the number done."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def no_files(queries: list[str]) -> None:
    """Raises QueryError for a question that is a file: somebody meant several images."""
    from foveate.errors import QueryError

    files = [query for query in queries if Path(query).suffix and _is_file(query)]
    if files:
        raise QueryError(
            f"the query '{files[0]}' is a file",
            expected="one image, then questions",
            fix='run the command once for each image: for f in *.jpg; do foveate look "$f" "a dog"; done',
        )


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # a question longer than a file's name can be
        return False
