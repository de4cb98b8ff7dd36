"""The command `foveate`: its list of commands, and how an error becomes a message.

Only typer is imported at the top of the commands, so that --help is quick. An error is printed to stderr with what
came, what was expected and what to do; the exit status is then 1 (2 for wrong usage).
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Annotated

import typer

from foveate.cli.ask import ask
from foveate.cli.basis import app as basis
from foveate.cli.channels import channels
from foveate.cli.doctor import doctor
from foveate.cli.encode import encode
from foveate.cli.evaluate.command import evaluate
from foveate.cli.index import index
from foveate.cli.look import demo, look
from foveate.cli.read import read
from foveate.cli.search import search
from foveate.cli.store import store
from foveate.cli.video import EXAMPLE, video
from foveate.cli.zoom import zoom

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Encode an image once, ask it anything, spend the visual tokens where the question looks.\n\n"
    "Start with:  foveate demo\n\n"
    'Then:        foveate look photo.jpg "the red car" "a dog" --budget 273',
)
app.command()(demo)
app.command()(look)
app.command()(encode)
app.command()(channels)
app.command()(read)
app.command()(zoom)
app.command()(ask)
app.command(epilog=EXAMPLE)(video)
app.command()(index)
app.command()(search)
app.command()(doctor)
app.add_typer(store, name="store")
app.add_typer(basis, name="basis")
app.add_typer(evaluate, name="evaluate")


def _print_version(wanted: bool) -> None:
    if wanted:
        from foveate.core.version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of `foveate`."""
    if sys.argv[1:2] != ["evaluate"]:  # that measures what users of the library have
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads spin after each product, in the encoder's way
    run(app)


def run(program: typer.Typer) -> None:
    """Run a program; foveate's errors become messages, and a full pipe silence."""
    from foveate.core.errors import FoveateError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a question may hold what a terminal cannot show
    try:
        program()
        sys.stdout.flush()
    except FoveateError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        typer.echo("error: the output cannot be written: the disk is full; files already written are whole", err=True)
        sys.stderr.flush()
        os._exit(1)  # the usual exit would try to write the rest once more, and show that as a traceback
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
