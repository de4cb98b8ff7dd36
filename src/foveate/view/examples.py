"""Photographs that come with foveate, for a page without an image: GET /api/examples and their files."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from foveate.core.errors import ImageNotFoundError
from foveate.core.image import load_image
from foveate.view.pictures import ImageEntry, file_id

PHOTOS = Path(str(files("foveate") / "cli" / "photos"))
QUESTIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "child_with_broccoli.jpg": ("broccoli", "the child's hand", "the child's face", "a dog"),
        "yellow_bus.jpg": ("the bus", "the windows of the bus", "the road", "a dog"),
        "cake_and_coffee.jpg": ("the cake", "a cup of coffee", "the spoon", "a dog"),
    }
)  # the last one is not there: that, too, should be seen


@cache
def example_files() -> Mapping[str, Path]:
    """Files of photographs by id."""
    return MappingProxyType({file_id(PHOTOS / name): PHOTOS / name for name in QUESTIONS})


def find_example(id: str) -> ImageEntry | None:
    """A photograph by id, for `Pictures`."""
    path = example_files().get(id)
    return None if path is None else ImageEntry(id, path.name, lambda: load_image(path))


def example_routes() -> list[Route]:
    """GET /api/examples: {"examples": [{id, name, questions}]}; GET /api/examples/{id}: a file as it is, JPEG."""

    async def listed(request: Request) -> Response:
        found = [
            {"id": id, "name": path.name, "questions": QUESTIONS[path.name]} for id, path in example_files().items()
        ]
        return JSONResponse({"examples": found})

    async def file(request: Request) -> Response:
        path = example_files().get(request.path_params["id"])
        if path is None:
            raise ImageNotFoundError("no such example", expected="an id of /api/examples", fix="ask for /api/examples")
        return Response(path.read_bytes(), media_type="image/jpeg")

    return [Route("/api/examples", listed), Route("/api/examples/{id}", file)]
