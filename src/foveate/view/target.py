"""What a viewer shows, whatever kind it is; opening.py opens one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.routing import Route

from foveate.view.encoding import USUAL, SessionEncoding
from foveate.view.pictures import ImageEntry, Pictures


@dataclass(frozen=True)
class Target:
    """What is shown.

    Attributes:
        session: kind ("empty", "image", "folder", "store", "clip"), name, first (id of the image to begin with, or
            None), and what a kind adds.
        find: the image of an id; None where there is none.
        routes: of this kind alone, given the session's pictures.
        encoding: how images are encoded and asked about.
    """

    session: Mapping[str, Any]
    find: Callable[[str], ImageEntry | None] = lambda id: None
    routes: Callable[[Pictures], list[Route]] = field(default=lambda pictures: [])
    encoding: SessionEncoding = USUAL
