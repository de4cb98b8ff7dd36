"""Routes of a list of images, of a folder or a store: a page of it, and small pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from foveate.core.checks import check_int
from foveate.view.reply import read_number

OFFSET = 10**9  # the highest
MOST = 200  # images of a page
LONGEST = 200  # characters of a part of a name, and of an id
MAKERS = 2  # threads that make small pictures: questions do not wait for them


@dataclass(frozen=True)
class Listing:
    """A page of a list. total: images of all pages. images: id and name of each. place: of the image asked for."""

    total: int
    images: Sequence[tuple[str, str]]
    place: int | None = None


@dataclass(frozen=True)
class Gallery:
    """A list of images.

    Attributes:
        page: (offset, limit, part of a name, id whose place is wanted) -> a page. Without a part, offset 0 looks again
            for what is there.
        thumbnail: id -> a small JPEG.
    """

    page: Callable[[int, int, str, str | None], Listing]
    thumbnail: Callable[[str], bytes]


def gallery_routes(gallery: Gallery) -> list[Route]:
    """GET /api/gallery?offset=0&limit=100&part=beach&of=ID and /api/gallery/{id}/thumbnail."""
    makers = CapacityLimiter(MAKERS)

    async def page(request: Request) -> JSONResponse:
        given = request.query_params
        offset, limit = read_number(given, "offset", 0, OFFSET), read_number(given, "limit", 100, MOST)
        part, of = given.get("part", ""), given.get("of")
        check_int("characters of part", len(part), 0, LONGEST, fix="give a shorter part of a name")
        check_int("characters of of", len(of or ""), 0, LONGEST, fix="give an id of the list")
        found = await to_thread.run_sync(gallery.page, offset, limit, part, of)
        images = [{"id": id, "name": name} for id, name in found.images]
        return JSONResponse({"total": found.total, "offset": offset, "place": found.place, "images": images})

    async def thumbnail(request: Request) -> Response:
        content = await to_thread.run_sync(gallery.thumbnail, request.path_params["id"], limiter=makers)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    return [Route("/api/gallery", page), Route("/api/gallery/{id}/thumbnail", thumbnail)]
