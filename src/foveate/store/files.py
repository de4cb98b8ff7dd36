"""Folders, lists and single files -> the image files they mean, each with the name it will have in the store.

    photos/            a folder, with all that is below it
    photos/a.jpg       a file, whatever its name ends in
    photos.txt, -      a list: a path a line, of files or folders, from a text file or standard input

What is notable
* Paths in a list are seen from the working directory, as if they were typed. One where nothing is, is listed as bad and
  stops nothing: a list of a million has such lines.
* In a folder, files count by the ends of their names (.jpg, .png, ...); a file that is named itself always counts.
* Links are followed; a folder that was visited already, under whatever name, is not visited again, so loops end.
* A folder that is a store is passed over: it may lie among the photographs.
* Names are relative to the folder that was given, with slashes. A file that was given itself keeps the path as given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from foveate.core.errors import ImageNotFoundError, OptionError
from foveate.core.image import refuse_address
from foveate.store.identity import FORMAT_FILE
from foveate.store.shard import FOLDER

SUFFIXES = frozenset((".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp", ".dib", ".gif"))
LIST, STANDARD_INPUT = ".txt", "-"
PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Source:
    """An image file: absolute path, and its name in the store."""

    path: str
    name: str


@dataclass(frozen=True)
class Found:
    """What was found: sources in the order of their names, and folders that could not be read, with the reason."""

    sources: tuple[Source, ...]
    unreadable: tuple[tuple[str, str], ...]


def find(paths: PathLike | Iterable[PathLike]) -> Found:
    """Image files of folders and files. Raises ImageNotFoundError for a path where nothing is, OptionError."""
    if isinstance(paths, str | os.PathLike):
        paths = (paths,)
    if not isinstance(paths, Iterable):
        raise OptionError(
            f"paths={paths!r}", expected="a path, or several", fix="pass a folder, a file, or a list of them"
        )
    sources: dict[str, Source] = {}
    unreadable: list[tuple[str, str]] = []
    for given, listed in _unrolled(paths):
        if not isinstance(given, str | os.PathLike) or not isinstance(os.fspath(given), str):
            raise OptionError(f"a path given as {type(given).__name__}", expected="a text or a Path", fix="pass paths")
        refuse_address(given)
        text = os.fspath(given)
        try:
            folder, there = os.path.isdir(text), os.path.lexists(text)
        except ValueError:  # a null byte
            folder = there = False
        if not there and listed:
            unreadable.append((text, "nothing is there"))
            continue
        if not there:
            raise ImageNotFoundError(
                f"nothing is at '{text}'",
                expected="a folder with images, or an image file",
                fix=f"check the spelling; the working directory is '{Path.cwd()}'",
            )
        if not folder:
            path = os.path.abspath(text)
            sources.setdefault(path, Source(path, Path(text).as_posix()))
            continue
        root = os.path.abspath(text)
        for path in _walk(root, unreadable):
            sources.setdefault(path, Source(path, Path(os.path.relpath(path, root)).as_posix()))
    return Found(tuple(sources.values()), tuple(unreadable))


def _unrolled(paths: Iterable[PathLike]) -> Iterator[tuple[PathLike, bool]]:
    """Each path, and those that lists hold: (path, whether from a list). Raises ImageNotFoundError."""
    for given in paths:
        text = os.fspath(given) if isinstance(given, str | os.PathLike) else None
        if not isinstance(text, str) or not (text == STANDARD_INPUT or text.lower().endswith(LIST)):
            yield given, False
            continue
        if os.path.isdir(text):
            yield given, False
            continue
        try:
            content = sys.stdin.buffer.read() if text == STANDARD_INPUT else Path(text).read_bytes()
        except (OSError, ValueError, AttributeError) as cause:  # the last one of a standard input that is closed
            raise ImageNotFoundError(
                f"the list '{text}' cannot be read ({getattr(cause, 'strerror', None) or cause})",
                expected="a text file with a path a line, or - for standard input",
                fix=f"check the spelling; the working directory is '{Path.cwd()}'",
            ) from cause
        for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            if line.strip():
                yield os.fsdecode(line.removesuffix(b"\r")), True


def _walk(root: str, unreadable: list[tuple[str, str]]) -> Iterator[str]:
    visited: set[tuple[int, int]] = set()
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in visited:
                continue
            visited.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: os.fsencode(entry.name))
        except OSError as cause:
            unreadable.append((folder, cause.strerror or str(cause)))
            continue
        names = {entry.name for entry in entries}
        if FOLDER in names and FORMAT_FILE in names:
            continue
        below = []
        for entry in entries:
            if _is_folder(entry):
                below.append(entry.path)
            elif os.path.splitext(entry.name)[1].lower() in SUFFIXES and not entry.name.startswith("."):
                yield entry.path
        pending += reversed(below)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False
