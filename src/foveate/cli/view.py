"""`foveate view`: a local page to play with relevance maps, kept cells and channels."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def view(
    target: Annotated[
        Path | None, typer.Argument(help="An image, a folder of them, a store (foveate index), or a clip.")
    ] = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="A folder holds the frames of a clip, in the order of their names.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port of this machine; 0 takes a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Open a page in the browser: type a question and see where it looks, and what K tokens keep (docs/viewer.md)."""
    from foveate.view.app import make_app
    from foveate.view.server import bind, serve
    from foveate.view.targets import open_target

    app = make_app(open_target(target, clip))
    listening = bind("127.0.0.1", port)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    typer.echo(f"foveate view: {address}   (Ctrl-C ends it)")
    if not no_browser:
        webbrowser.open(address)
    serve(app, listening)
