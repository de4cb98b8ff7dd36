"""`foveate view`: a local page to play with relevance maps, kept cells and channels."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import webbrowser
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, cast

import typer

from foveate.cli import terminal
from foveate.cli.encode import who_reads

if TYPE_CHECKING:
    from foveate.relevance.presets import PresetName
    from foveate.view.models import LateModel
    from foveate.vlm import VLM


def view(
    target: Annotated[
        Path | None, typer.Argument(help="An image, a PDF, a folder of them, a store (foveate index), or a clip.")
    ] = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="A folder holds the frames of a clip, in the order of their names.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="A vision-language model that answers, too: Hub name or folder. Needs [vlm].")
    ] = None,
    page: terminal.PageNumber = None,
    encoder: terminal.EncoderName = None,
    long_side: terminal.LongSideOrNative = None,
    read: terminal.ReadFlag = None,
    reader: terminal.ReaderName = None,
    preset: terminal.PresetOption = None,
    words: terminal.WordsFile = None,
    port: Annotated[int, typer.Option(help="Port of this machine; 0 takes a free one.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen at. 0.0.0.0: every network that this machine is in, with a token.")
    ] = "127.0.0.1",
    token: Annotated[
        bool, typer.Option("--token", help="Ask for a token on this machine, too, where others have accounts.")
    ] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Open a page in the browser: type a question and see where it looks, and what K tokens keep (docs/viewer.md)."""
    _check_extra()
    from foveate.core.checks import spelled
    from foveate.view.app import make_app
    from foveate.view.guard import LOCAL
    from foveate.view.opening import open_target
    from foveate.view.server import bind, is_local, name_of, serve
    from foveate.view.session import SessionEncoding

    known = terminal.load_words(words)
    with bind(host, port) as listening:  # first: a port in use is known before a large folder is read
        local = is_local(host)
        secret = None if local and not token else secrets.token_urlsafe(32)
        encoding = SessionEncoding(
            encoder, cast("PresetName | None", preset), long_side, who_reads(read, reader), **known
        )
        shown = open_target(target, clip, encoding, page)
        with terminal.waiting("loading the encoder" + (", and who reads" if encoding.reads else ""), encoder):
            encoding.check()
        late = None if model is None else _load(model, encoder)
        app = make_app(shown, late, hosts=LOCAL | {host} if local else None, token=secret)
        address = f"http://{name_of(listening)}/" + (f"?token={secret}" if secret else "")
        typer.echo(f"foveate view: {address}   (Ctrl-C ends it)")
        terminal.print_json(address=address, kind=shown.session["kind"])
        if not local:
            typer.echo(
                "Whoever has this address sees these images, and the connection is not encrypted. Safer is ssh: here "
                f"foveate view without --host, on the other machine ssh -L PORT:127.0.0.1:PORT {_name()}"
            )
        sys.stdout.flush()
        with nullcontext(address) if secret is None else _leading_to(address) as opened:
            if not no_browser and _has_screen():
                threading.Thread(target=webbrowser.open, args=(opened,), daemon=True).start()
            threading.Thread(target=app.state.prepare, daemon=True).start()  # while the browser opens
            with spelled({}):  # what the page gets names keywords as in Python
                serve(app, listening)


@contextmanager
def _leading_to(address: str) -> Iterator[str]:
    """A file of this account alone that sends the browser on: every account can read its command line."""
    with TemporaryDirectory(prefix="foveate-") as folder:
        file = Path(folder) / "open.html"
        file.touch(0o600)
        leads = f'<meta http-equiv="refresh" content="0;url={address}">'
        file.write_text(f'<!doctype html><meta charset="utf-8"><title>foveate</title>{leads}')
        yield file.as_uri()


def _load(name: str, encoder: str | None) -> LateModel:
    """A model that loads beside the page; how that ended is said here, too, where paths may be told."""
    from foveate.view.models import load_late

    model = load_late(name, encoder)

    def tell(loaded: Future[VLM]) -> None:
        problem = loaded.exception()
        typer.echo(
            f"foveate view: {model.name} {'is ready' if problem is None else f'was not loaded: {problem}'}", err=True
        )

    model.vlm.add_done_callback(tell)
    return model


def _check_extra() -> None:
    from foveate.core.errors import needed_by

    with needed_by("the viewer", "view"):
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401


def _has_screen() -> bool:
    """Whether a browser has a window to open. Without one, it would be one of texts, in this terminal."""
    return sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _name() -> str:
    import socket

    return socket.gethostname()
