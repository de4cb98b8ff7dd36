"""The command `foveate`: its list of commands, and how an error becomes a message: what came, what was expected, what
to do, on stderr; the exit status is 1 (2 for wrong usage: docs/commands.md).
"""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from foveate.cli.ask import ask
from foveate.cli.basis import app as basis
from foveate.cli.doctor import doctor
from foveate.cli.encode import channels, encode, read
from foveate.cli.evaluate.command import evaluate
from foveate.cli.index import index
from foveate.cli.look import demo, look
from foveate.cli.profile import profile
from foveate.cli.search import search
from foveate.cli.store import store
from foveate.cli.teach import teach
from foveate.cli.terminal import Group, Program
from foveate.cli.video import video
from foveate.cli.view import view
from foveate.cli.zoom import zoom

START, ONE, MODELS, MANY, MEASURING = (
    "Start here", "One image or clip", "Vision-language models", "Many images", "Measuring",
)  # fmt: skip


class _Sections(Group):
    """Lists the commands under headings."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for heading in (START, ONE, MODELS, MANY, MEASURING):
            with formatter.section(heading):
                here = (each for each in self.commands.items() if getattr(each[1], "rich_help_panel", None) == heading)
                formatter.write_dl([(name, each.short_help or each.help or "") for name, each in here])


app = Program(
    cls=_Sections,
    pretty_exceptions_enable=False,
    help="Encode an image once, ask it anything, spend the visual tokens where the question looks.",
    epilog='\b\nExamples:\n  foveate demo\n  foveate look photo.jpg "the red car" "a dog"\n  foveate COMMAND --help',
)


# heading, command, what it does, examples
COMMANDS: tuple[tuple[str, Callable[..., None], str, tuple[str, ...]], ...] = (
    (START, demo, "Questions about three photographs that come with foveate.", ("demo --out pictures",)),
    (START, look, "Where in an image is it? A heat map for each question.",
     ('look photo.jpg "the red car" "a dog"', 'look invoice.pdf "what is the total?" --read',
      'look photo.jpg "the child\'s hand" --budget 273 --json')),
    (START, view, "Play with it in the browser: ask, drag the budget, see the cells.",
     ("view photo.jpg", "view photos.fov")),
    (START, doctor, "What is installed and what is missing; which words are known.",
     ("doctor", "doctor --words cat wheel sky")),
    (ONE, zoom, "Find small things in a large image.", ('zoom city.tif "a bus" --scene city.scene',)),
    (ONE, video, "Follow questions through a clip.", ('video clip.mp4 "the dog" "a frisbee" --out clip_kept.mp4',)),
    (ONE, read, "Read what is written in an image or a PDF.", ("read receipt.jpg --plain",)),
    (ONE, channels, "Draw all channels of an image on one sheet.", ("channels photo.jpg",)),
    (ONE, encode, "Encode an image once and keep it, for other commands.",
     ("encode photo.jpg -o photo.safetensors", 'look photo.safetensors "a dog"')),
    (ONE, teach, "Teach it a word with a handful of boxes.",
     ('teach "our logo" a.jpg:10,20,80,90 b.jpg:5,5,60,70 without.jpg -o words.fov',
      'look c.jpg "our logo" --words words.fov')),
    (MODELS, ask, "Ask a model, which gets only the tokens that matter.",
     ('ask photo.jpg "what does the sign say?" --model Qwen/Qwen2.5-VL-3B-Instruct',
      'ask photo.jpg "where is the dog?" "what colour is it?" --chat --model FOLDER')),
    (MANY, index, "Make a folder of images ready for search.", ("index photos -o photos.fov",)),
    (MANY, search, "Find images by what is in them, or written there.",
     ('search photos.fov "a dog on a beach" -k 12',)),
    (MEASURING, profile, "Where the time of an image and a question goes.",
     ('profile photo.jpg "the red car"', "profile photo.jpg --encoder clip --device cuda --trace trace.json")),
)  # fmt: skip
for heading, command, line, examples in COMMANDS:
    title = "Example" if len(examples) == 1 else "Examples"
    epilog = "\n  foveate ".join((f"\b\n{title}:", *examples))
    app.command(rich_help_panel=heading, short_help=line, epilog=epilog)(command)
app.add_typer(store, name="store", rich_help_panel=MANY, short_help="Look after such a store: tags, versions, checks.")
app.add_typer(basis, name="basis", rich_help_panel=MANY, short_help="One basis for many images: fit it, check it.")
app.add_typer(
    evaluate, name="evaluate", rich_help_panel=MEASURING, short_help="Measure it on your own data, beside baselines."
)


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
    atexit.register(_end_soon)
    run(app)


def _end_soon() -> None:
    if "torch" not in sys.modules:  # whose extensions tell of what is left as leaks
        gc.freeze()  # what is left is searched for circles no more, which would take a tenth of a second


def run(program: typer.Typer) -> None:
    """Run a program; foveate's errors become messages, and a full pipe silence."""
    from foveate.core.errors import BudgetError, ChannelError, EncoderNameError, FoveateError, OptionError
    from foveate.core.gone import find_command

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a question may hold what a terminal cannot show
    try:
        program()
        sys.stdout.flush()
    except FoveateError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2 if isinstance(error, OptionError | BudgetError | ChannelError | EncoderNameError) else 1)
    except SystemExit as end:
        if end.code == 2 and (instead := find_command(sys.argv[1:])):  # 2: typer refused the command line
            typer.echo(f"This went; write {instead}", err=True)
        raise
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
