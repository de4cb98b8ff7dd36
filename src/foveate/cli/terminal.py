"""What commands share: common options, --json, tables, progress, and results in files that never overwrite others."""

from __future__ import annotations

import functools
import hashlib
import inspect
import io
import json
import math
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from foveate.core.options import ALLOCATE, ENCODE, MODEL_ARGS, PREPARE, SCORE, STREAM

if TYPE_CHECKING:
    from PIL import Image

    from foveate.store.engine import Engine

TYPED = "foveate: typed"  # the words of the command line, in a context's meta
KINDS = {"list[Path]": "file", "list[str]": "text", "str": "text", "Any": "name"}  # what typer writes, for people
KINDS |= dict.fromkeys(("int", "float", "int range", "float range"), "number")
PHOTOS = Path(__file__).parent / "photos"

F = TypeVar("F", bound=Callable[..., None])
Q = TypeVar("Q")
T = TypeVar("T")

EncoderName = Annotated[
    str | None,
    typer.Option("--encoder", help=f"{ENCODE['encoder'].about} [default: that of the texture or store, else nano]"),
]
Budget = Annotated[
    Any,
    typer.Option(
        "--budget", "-k", parser=lambda text: parse_budget(text), metavar="INTEGER|auto", help=ALLOCATE["budget"].help
    ),
]
TokenBudget = Annotated[
    Any,
    typer.Option(
        "--budget",
        "-k",
        parser=lambda text: parse_budget(text, ("auto", "lossless", "all")),
        metavar="INTEGER|auto|lossless|all",
        help=PREPARE["budget"].help,
    ),
]
Floor = Annotated[float | None, typer.Option(metavar="<0 to 1>", help=ALLOCATE["floor"].help)]
PolicyOption = Annotated[Any, typer.Option("--policy", help=ALLOCATE["policy"].help)]
LongSide = Annotated[int | None, typer.Option(help=STREAM["long_side"].help)]
LongSideOrNative = Annotated[
    Any,
    typer.Option(
        "--long-side",
        parser=lambda text: parse_budget(text, ("native",)),
        metavar="INTEGER|native",
        help=ENCODE["long_side"].help,
    ),
]
PresetOption = Annotated[str | None, typer.Option("--preset", help=ENCODE["preset"].help)]
WordsFile = Annotated[list[Path] | None, typer.Option("--words", help=SCORE["words"].help + " Again for more.")]
ReadFlag = Annotated[bool | None, typer.Option("--read/--no-read", help=ENCODE["read"].help)]
ReaderName = Annotated[
    str | None,
    typer.Option("--reader", help="Who reads: rapidocr, tesseract, tesseract:deu+eng [default: whichever there is]."),
]
PageNumber = Annotated[int | None, typer.Option("--page", help=ENCODE["page"].help)]
Workers = Annotated[int | None, typer.Option(help=ENCODE["threads"].help)]
Questions = Annotated[list[str], typer.Argument(help="Questions or noun phrases, each in quotes.")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder for pictures and JSON; made if needed.")]

EngineName = Annotated[str, typer.Option("--engine", help="What does the work: local, or ray (a Ray cluster).")]
Gpus = Annotated[float, typer.Option(help="With --engine ray: GPUs for each worker; 0.25 puts four on one.")]
Where = Annotated[str | None, typer.Option("--device", help=ENCODE["device"].help)]
Address = Annotated[
    str | None,
    typer.Option(help="With --engine ray: of a cluster, or auto on one of its machines [default: Ray starts here]."),
]


Dtype = Annotated[str, typer.Option(help=f"{MODEL_ARGS['dtype'].about} {MODEL_ARGS['dtype'].values}.")]
Device = Annotated[str, typer.Option(help=f"{MODEL_ARGS['device'].about} {MODEL_ARGS['device'].values}.")]


_json_goes_to: ContextVar[IO[str] | None] = ContextVar("json_goes_to", default=None)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and no tables.")]


def load_words(paths: Sequence[Path] | None) -> dict[str, Any]:
    """--words as keywords of `score`: of several files all words. Raises WordsFileError, TextureEncoderError."""
    if not paths:
        return {}
    from functools import reduce

    from foveate.encoders.taught import TaughtWords

    first, *others = [TaughtWords.load(path) for path in paths]
    for each in (first, *others) if others else ():
        each.check()  # words of other looks cannot be put together
    return {"words": reduce(TaughtWords.joined, (word for each in others for word in each.words), first)}


def answer_each(questions: Sequence[Q], answer: Callable[[Q], T]) -> tuple[list[T], list[dict[str, str | None]]]:
    """What `answer` gives for each question; those that cannot be asked are told, and returned for JSON.

    Raises QueryError where none can be asked.
    """
    from foveate.core.errors import QueryError

    found, refused = list[T](), list[QueryError]()
    for question in questions:
        try:
            found.append(answer(question))
        except QueryError as error:
            refused.append(error)
    if refused and not found:
        raise refused[0]
    for one in refused:
        typer.echo(f"not asked: {one}", err=True)
    return found, [{"received": one.received, "expected": one.expected, "fix": one.fix} for one in refused]


@contextmanager
def _usage_explained(command: Any, ctx: Any, args: list[str]) -> Iterator[None]:
    """Errors of usage help: what is missing is explained, -k is suggested for --k; they are JSON beside --json."""
    as_json = "--json" in args  # they are eaten
    try:
        yield
    except typer.Exit:  # --help
        raise
    except Exception as error:
        if isinstance(error, typer.BadParameter) and not error.message:  # one is missing
            about = getattr(error.param, "help", None) or ""
            error.message = f"{about}\n\n{inspect.cleandoc(command.epilog or '')}".replace("\b\n", "").strip()
        elif isinstance(error, typer.BadParameter) and (found := getattr(error.__cause__, "errors", None)):
            wrong = found()[0]  # of pydantic, which does not say what came
            wanted = wrong["msg"].removeprefix("Input should be ").partition(",")[0]
            wanted = getattr(error.param, "metavar", None) or wanted
            error.message = f"{wrong['input']!r} came, expected {wanted}. {getattr(error.param, 'help', '')}"
        typed = getattr(error, "option_name", "")
        short = "--budget" if typed == "--keep" else typed[1:]
        if any(short in each.opts for each in command.get_params(ctx)):
            error.possibilities = [short]  # type: ignore[attr-defined]
        with _json_alone() if as_json else nullcontext():
            said = error.format_message() if hasattr(error, "format_message") else str(error)
            _print_error(said, ctx.get_usage().removeprefix("Usage: "), f"{ctx.command_path} --help")
        raise


class _Command(TyperCommand):
    def format_options(self, ctx: Any, formatter: Any) -> None:
        """As typer does, with words of people for Python's types."""
        write, kind = formatter.write_dl, lambda found: f"<{KINDS.get(found[1], found[1])}>"
        formatter.write_dl = lambda rows: write([(re.sub("<(.+)>", kind, name), about) for name, about in rows])
        super().format_options(ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = tuple(args)
        with _usage_explained(self, ctx, args):
            return super().parse_args(ctx, args)


class Group(TyperGroup):
    """Commands under a name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _usage_explained(self, ctx, args):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        with _usage_explained(self, ctx, args):
            return super().resolve_command(ctx, args)


class Program(typer.Typer):
    """Commands that take --json: stdout then gets what they hand to `print_json`, and nothing else.

    Messages name keywords by the command's options (`foveate.core.checks.keyword`).
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(**{"cls": Group} | how, add_completion=False, no_args_is_help=True, rich_markup_mode=None)

    def command(self, *given: Any, **how: Any) -> Callable[[F], F]:
        register = super().command(*given, **{"cls": _Command} | how)

        def add(function: F) -> F:
            register(_as_command(function))
            return function

        return add


def _as_command(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def run(*, context: typer.Context, as_json: bool, **options: Any) -> None:
        from foveate.core.checks import spelled  # NumPy is for commands, not for --help

        named = dict[str, str]()
        for each in context.command.params:  # as it was typed: who wrote -k looks for no --budget
            names = [name for name in each.opts if name.startswith("-")]
            short = {name for name in names if len(name) == 2 and any(arg[:2] == name for arg in context.meta[TYPED])}
            named |= {name.lstrip("-").replace("-", "_"): min(short, default=name) for name in names}
        with spelled(named), _warning_in_a_line(), _json_alone() if as_json else nullcontext():
            return function(**options)

    signature, last = inspect.signature(function, eval_str=True), inspect.Parameter.KEYWORD_ONLY
    added = (
        inspect.Parameter("context", last, annotation=typer.Context),
        inspect.Parameter("as_json", last, annotation=Json, default=False),
    )
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    run.__annotations__ = {**function.__annotations__, **{each.name: each.annotation for each in added}}
    return run


@contextmanager
def _json_alone() -> Iterator[None]:
    """Nothing reaches stdout but what `print_json` gets."""
    from foveate.core.errors import FoveateError

    before = _json_goes_to.set(sys.stdout)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    except FoveateError as error:
        _print_error(error.received, error.expected, error.fix)
        raise
    finally:
        _json_goes_to.reset(before)


@contextmanager
def _warning_in_a_line() -> Iterator[None]:
    """Warnings of foveate are a line on stderr, without the place in its code; those of others are as usual."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if category.__module__.startswith("foveate."):
                typer.echo(f"warning: {message}", err=True)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        yield


@contextmanager
def warnings_aside(kind: type[Warning]) -> Iterator[list[str]]:
    """Messages of the warnings of one class, each once, to be told after the table; others are shown as usual."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    for one in caught:
        if not issubclass(one.category, kind):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        elif str(one.message) not in found:
            found.append(str(one.message))


def make_engine(name: str, workers: int | None, gpus: float, address: str | None) -> tuple[int, Engine]:
    """The options of a command as (threads of its own, engine). Raises OptionError, and what an engine lacks."""
    from foveate.core.checks import check_int
    from foveate.core.errors import OptionError
    from foveate.core.threads import usual_threads
    from foveate.store.engine import Local, Ray, engine_named

    if workers is not None:
        check_int("--workers", workers)
    cores = usual_threads()
    engine = engine_named(name, cores if name == "local" and workers is None else workers, gpus=gpus, address=address)
    if isinstance(engine, Local) and (gpus or address):
        came = f"--gpus {gpus:g}" if gpus else f"--address {address}"
        raise OptionError(f"{came} without --engine ray", expected="both, or neither", fix="add --engine ray")
    if isinstance(engine, Ray):
        engine.check()  # now, not when the images were looked at
    return engine.workers if isinstance(engine, Local) else cores, engine


def use_one_thread() -> None:
    """For commands that encode several images at a time, each in one thread, unless the environment says otherwise.

    Must be called before NumPy is imported. Results then do not depend on the number of cores.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def parse_budget(text: str | int, words: tuple[str, ...] = ("auto",)) -> int | str:
    """The value of --budget: a whole number or a word. typer passes defaults through it as well."""
    try:
        return str(text) if text in words else int(text)
    except ValueError:
        expected = " nor ".join(map(repr, words))
        fix = f"write --budget 128, or --budget {words[0]}"
        raise typer.BadParameter(f"{text!r} is neither a whole number nor {expected}; {fix}") from None


def format_confidence(confidence: float, detected: bool, digits: int = 2) -> str:
    """For a table: '0.07 (not detected)'."""
    from foveate.relevance.confidence import in_digits

    return in_digits(confidence, digits) + ("" if detected else " (not detected)")


def round_confidence(confidence: float, at: float = 0.5) -> float:
    """For JSON, four digits: below the threshold `at` it stays below."""
    from foveate.relevance.confidence import in_digits

    return float(in_digits(confidence, 4, at=at))


def add_understood(text: str, record: dict[str, Any]) -> str:
    """For a table: 'violin (unknown)', 'tallest dog (unknown: tallest)', 'police car (as car)', from the lists
    `unknown` and `looked_for` of a record; the text alone where all of it was looked for as asked."""
    others: dict[str, str] = record["looked_for"]
    seen = " ".join(word for word in text.split() if word not in record["unknown"]).strip(" +")
    if (whole := next((word for word, other in others.items() if other == seen != word), None)) is not None:
        others, text = {word: other for word, other in others.items() if word != whole}, f"{seen} in place of {whole}"
    said = [f"as {other}" if word == text else f"{word} as {other}" for word, other in others.items()]
    if unknown := record["unknown"]:
        said.append("unknown" if unknown == [text] else f"unknown: {', '.join(unknown)}")
    return f"{text} ({'; '.join(said)})" if said else text


def round_box(box: Iterable[float]) -> list[float]:
    return [round(float(side), 1) for side in box]


def format_count(number: int, what: str) -> str:
    """'1 frame', '0 frames'."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def print_table(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """Print a table on stdout; 160 columns wide where stdout is no terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if Console().is_terminal else 160)
    lines = Table(*header, box=None, header_style="bold", pad_edge=False)
    for row in rows:
        lines.add_row(*(Text(cell, overflow="fold") for cell in row))  # Text, not markup: names may hold brackets
    console.print(Text(title))
    console.print(lines)


def print_files(what: str, paths: list[str]) -> None:
    """Below a table: a line for each file, never broken."""
    for path in paths:
        typer.echo(f"{what if path is paths[0] else '':{len(what)}}  {path}")


def print_json(**values: Any) -> None:
    """A command's result for programs: one JSON object in a line, where it was called with --json. Infinity is null."""
    out = _json_goes_to.get()
    if out is not None:
        print(json.dumps(_finite(values), allow_nan=False), file=out, flush=True)
        _json_goes_to.set(None)  # an error that follows is no second object


def _print_error(received: str, expected: str, fix: str) -> None:
    print_json(error={"received": received, "expected": expected, "fix": fix})


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_lines(file: Path) -> list[str]:
    """Questions, a line each: those that are not empty, each once. Raises QueryError."""
    from foveate.core.errors import QueryError

    try:
        lines = [line.strip() for line in file.read_text("utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as cause:
        raise QueryError(f"'{file}' ({cause})", expected="a text file with a question a line", fix="check it") from None
    found = list(dict.fromkeys(line for line in lines if line))
    if not found:
        raise QueryError(f"'{file}' holds no question", expected="a question or noun a line", fix="write some")
    return found


@contextmanager
def waiting(what: str, encoder: str | None = None) -> Iterator[None]:
    """A spinner on stderr with the seconds that passed, for people only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    if (encoder or "").startswith(("clip", "siglip", "tips")):
        what += " (the first use of a Hub checkpoint downloads it: 0.6 to 4 GB, see docs/encoders.md)"
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr, for people only; gives a function of the number done, a later total, and a note."""
    if not sys.stderr.isatty():
        yield lambda done, total=None, note="": None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    name = TextColumn("{task.description}", markup=False)  # a question may hold braces and brackets
    note = TextColumn("{task.fields[note]}", markup=False)
    columns = (name, BarColumn(), MofNCompleteColumn(), note, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=total, note="")
        yield lambda done, total=None, note="": bar.update(task, completed=done, total=total, note=note)


@contextmanager
def until_interrupted() -> Iterator[Callable[[], bool]]:
    """Ctrl-C asks the block to end: gives a function that says whether it was pressed. Once more, and it ends at once.

    Where the interrupt is ignored (a job in the background of a script), it stays ignored.
    """
    pressed: list[int] = []

    def press(number: int, _: FrameType | None) -> None:
        pressed.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


def refuse_files(
    first: str | Path,
    queries: list[str],
    what: str = "image",
    loop: str = 'for f in *.jpg; do foveate look "$f" "a dog"',
) -> None:
    """Raises OptionError for a question that is a file: somebody meant several images."""
    from foveate.core.errors import OptionError

    files = [query for query in queries if Path(query).suffix and os.path.isfile(query)]
    if files:
        if not os.path.exists(first):
            raise OptionError(
                f"the query '{files[0]}' is a file, and '{first}' is none",
                expected=f"the {what} first, then questions",
                fix="change their order",
            )
        raise OptionError(
            f"the query '{files[0]}' is a file",
            expected=f"one {what}, then questions",
            fix=f"run the command once for each {what}: {loop}; done",
        )


def make_slug(query: str) -> str:
    """A file name for a question: its letters and digits, or a digest where it has none in ASCII."""
    words = re.sub(r"[^a-z0-9]+", "-", query.lower()).strip("-")
    return words[:60].rstrip("-") or hashlib.sha256(query.encode()).hexdigest()[:12]


def write_result(
    stem: Path, identity: dict[str, Any], record: dict[str, Any], picture: Image.Image, **more: Any
) -> dict[str, Any]:
    """Write `stem.png` and `stem.json` (identity, record and more). -> the record with "png" and "json", their paths.

    Files are replaced only by a result of the same identity; others get a number behind their name. Raises OutputError.
    """
    from foveate.core.files import write_whole

    path = _free_path(stem, identity)
    record = record | {"png": f"{path}.png", "json": f"{path}.json"}
    write_picture(Path(record["png"]), picture)
    write_whole(Path(record["json"]), json.dumps(identity | more | record).encode())
    return record


def write_picture(path: Path, picture: Image.Image) -> None:
    """Write a PNG, whole or not at all. Raises OutputError."""
    from foveate.core.display import encode_picture
    from foveate.core.files import write_whole

    write_whole(path, encode_picture(picture, path))


def _free_path(path: Path, identity: dict[str, Any]) -> Path:
    """The path without suffix, or the first `path-2`, `path-3`, ... that is free or holds this very result already."""
    number, candidate = 1, path
    while any(Path(f"{candidate}.{kind}").exists() for kind in ("json", "png")):
        try:
            there = json.loads(Path(f"{candidate}.json").read_text("utf-8"))
            if all(there.get(key) == value for key, value in identity.items()):
                break
        except (OSError, ValueError, AttributeError):
            pass  # not ours: leave it alone
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
