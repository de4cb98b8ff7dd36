"""Several images in the place of one: which values mean several, and what becomes of the bad ones among them.

A bad image stops nothing: it is an error in its place among the results (`attempt`), and at the end one error names all
that are bad and holds the results of the others (`complete`). Whatever else is raised would be raised for every image,
and ends the work at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

from PIL.Image import Image

from foveate.core.errors import BadImagesError, ImageArrayError, ImageError

A = TypeVar("A")
B = TypeVar("B")
MOST_LISTED = 3  # bad images in a message


def is_several(image: Any) -> bool:
    """Whether what was given as an image is a list of them. Raises ImageArrayError for what only yields images."""
    if isinstance(image, str | bytes | bytearray | memoryview | os.PathLike | Image) or hasattr(image, "__array__"):
        return False
    if isinstance(image, Iterable) and not isinstance(image, Sequence) and not hasattr(image, "read"):
        raise ImageArrayError(
            f"images given as {type(image).__name__}",
            expected="an image, or a list of images",
            fix="encode(list(images)) keeps all textures in memory; for thousands take slices of the list, or "
            "foveate.Store(folder).add(paths), which keeps them on disk",
        )
    return isinstance(image, Sequence)


def attempt(function: Callable[[A], B]) -> Callable[[A | ImageError], B | ImageError]:
    """The function, but a bad image is returned instead of raised, and one that was bad before is passed on."""

    def tried(item: A | ImageError) -> B | ImageError:
        if isinstance(item, ImageError):
            return item
        try:
            return function(item)
        except ImageError as error:
            return error

    return tried


def complete(results: Iterable[tuple[A, B] | ImageError]) -> list[tuple[A, B]]:
    """(texture, note) of several images. Raises BadImagesError where one is bad, with the textures of the others."""
    found = list(results)
    bad = {place: each for place, each in enumerate(found) if isinstance(each, ImageError)}
    good = [each for each in found if not isinstance(each, ImageError)]
    if not bad:
        return good
    listed = "; ".join(f"images[{place}]: {error.received}" for place, error in islice(bad.items(), MOST_LISTED))
    first = next(iter(bad.values()))
    rest = f"; the other {len(good)} were encoded and are in the error's `textures`, with None for a bad one"
    raise BadImagesError(
        f"{len(bad)} of {len(found)} images: {listed}" + ("; ..." if len(bad) > MOST_LISTED else ""),
        expected=first.expected,
        fix=first.fix + (rest if good else ""),
        textures=[None if isinstance(each, ImageError) else each[0] for each in found],
        errors=bad,
    ) from first
