"""Folders, lists and files -> image files, each with its name in the store; and a file -> bytes, picture and features.

    photos/            a folder, with all that is below it: files with an image's ending (.jpg, .png, ...)
    photos/a.jpg       a file, whatever its name ends in; it keeps the path as its name
    photos.txt, -      a list: a path a line, of files or folders, from a text file or standard input

A path of a list where nothing is becomes a bad image, as does a PDF. Links are followed, no folder is visited twice,
and a store in the folder is passed over. Names are relative to the folder that was passed, with slashes.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace
from pathlib import Path

from foveate.core.errors import EngineError, ImageError, ImageNotFoundError, ImageTooLargeError, OptionError
from foveate.core.image import MAX_BYTES, PDF_START, Picture, first_bytes, load_reduced, refuse_address
from foveate.encoders.protocol import DenseFeatures, Encoder, check_features

SUFFIXES = frozenset((".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".tif", ".tiff", ".bmp", ".dib", ".gif"))
STORES = ({"_versions", "data"}, {"shards", "format.json"})  # what is in a store, and in one of an earlier release
NAMED = 3  # paths in a message
LIST, STANDARD_INPUT = ".txt", "-"
PDF = ".pdf"
A_PDF = "a PDF: foveate view shows its pages, and foveate look --page N asks one; to index them, save them as images"
SPARE = 2  # times what an encoder sees: with less, the decoder's filter changes where one in five names is highest
PathLike = str | os.PathLike[str]
Decoded = tuple[Picture, tuple[int, int]]  # and the size of the whole image


@dataclass(frozen=True)
class Source:
    path: str
    name: str


@dataclass(frozen=True)
class Sources:
    """What was found: files in the order of their names; what could not be read, with the reason; stores."""

    files: tuple[Source, ...]
    unreadable: tuple[tuple[str, str], ...]
    stores: tuple[str, ...]


def find_sources(paths: PathLike | Iterable[PathLike], *, empty: bool = False, endings: Set[str] = SUFFIXES) -> Sources:
    """Image files of folders, lists and files; of folders those with one of some `endings`, in small letters.

    Raises ImageNotFoundError for a path where nothing is, and, unless it may be `empty`, without any; OptionError.
    """
    if isinstance(paths, str | os.PathLike):
        paths = (paths,)
    if not isinstance(paths, Iterable):
        raise OptionError(
            f"paths={paths!r}", expected="a path, or several", fix="pass a folder, a file, or a list of them"
        )
    given, sources = list(paths), dict[str, Source]()
    unreadable, stores = list[tuple[str, str]](), list[str]()
    for path, listed in _unroll(given):
        if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
            raise OptionError(f"a path of type {type(path).__name__}", expected="a text or a Path", fix="pass paths")
        refuse_address(path)
        text = os.fspath(path)
        try:
            folder, there = os.path.isdir(text), os.path.lexists(text)
        except ValueError:  # a null byte
            folder = there = False
        if not there and listed:
            unreadable.append((text, "nothing is there"))
        elif not there:
            raise ImageNotFoundError(
                f"nothing is at '{text}'",
                expected="a folder with images, or an image file",
                fix=f"check the spelling; the working directory is '{Path.cwd()}'",
            )
        else:
            root = os.path.abspath(text)
            for file in _walk(root, endings | {PDF}, unreadable, stores) if folder else (root,):
                if (
                    PDF not in endings
                    and file.lower().endswith(PDF)
                    and (folder or PDF_START in first_bytes(file, 1024))
                ):
                    unreadable.append((file, A_PDF))
                    continue
                name = os.path.relpath(file, root) if folder else text
                sources.setdefault(file, Source(file, Path(name).as_posix()))
    if not sources and not empty:
        named = ", ".join(f"'{os.fspath(path)}'" for path in given[:NAMED]) or "no paths"
        named += f" and {len(given) - NAMED} more" if len(given) > NAMED else ""
        blocked = "".join(f"; '{path}': {why}" for path, why in unreadable[:NAMED])
        raise ImageNotFoundError(
            f"no image file in {named}{blocked}",
            expected="files that end in .jpg, .png, .webp, .tif, .bmp or .gif; a file that is named itself, or by a "
            ".txt list, may be called anything",
            fix=f"check the paths; the working directory is '{Path.cwd()}'",
        )
    return Sources(tuple(sources.values()), tuple(unreadable), tuple(stores))


def _unroll(paths: Iterable[PathLike]) -> Iterator[tuple[PathLike, bool]]:
    """Each path, and those that lists hold: (path, whether from a list). Raises ImageNotFoundError."""
    for path in paths:
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        a_list = isinstance(text, str) and (text == STANDARD_INPUT or text.lower().endswith(LIST))
        if not a_list or os.path.isdir(path):
            yield path, False
            continue
        try:
            content = sys.stdin.buffer.read() if text == STANDARD_INPUT else Path(path).read_bytes()
        except (OSError, ValueError, AttributeError) as cause:  # the last one of a standard input that is closed
            raise ImageNotFoundError(
                f"the list '{text}' cannot be read ({getattr(cause, 'strerror', None) or cause})",
                expected="a text file with a path a line, or - for standard input",
                fix=f"check the spelling; the working directory is '{Path.cwd()}'",
            ) from cause
        for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
            if line.strip():
                yield os.fsdecode(line.removesuffix(b"\r")), True


def _walk(root: str, endings: Set[str], unreadable: list[tuple[str, str]], stores: list[str]) -> Iterator[str]:
    visited = set[tuple[int, int]]()

    def note(cause: OSError) -> None:
        unreadable.append((os.fspath(cause.filename), cause.strerror or str(cause)))

    for folder, below, files in os.walk(root, onerror=note, followlinks=True):
        try:
            here = os.stat(folder)
        except OSError as cause:  # gone meanwhile
            note(cause)
            continue
        known, store = (here.st_dev, here.st_ino) in visited, any(one <= {*below, *files} for one in STORES)
        visited.add((here.st_dev, here.st_ino))
        if store and not known:
            stores.append(folder)
        if known or store:
            below.clear()
            continue
        below.sort(key=os.fsencode)
        for name in sorted(files, key=os.fsencode):
            if os.path.splitext(name)[1].lower() in endings and not name.startswith("."):
                yield os.path.join(folder, name)


def read(source: Source) -> tuple[bytes, os.stat_result]:
    """An image file's bytes, and what it was then. Raises ImageNotFoundError, ImageTooLargeError."""
    try:
        if not stat.S_ISREG(os.stat(source.path).st_mode):  # a pipe may never end
            raise OSError("it is not a regular file")
        with open(source.path, "rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as cause:
        raise ImageNotFoundError(
            f"'{source.name}' cannot be read ({getattr(cause, 'strerror', None) or cause})",
            expected="a readable image file",
            fix="check its permissions",
        ) from cause
    if len(content) > MAX_BYTES:
        raise ImageTooLargeError(
            f"'{source.name}' has more than {MAX_BYTES:,} bytes", expected="fewer", fix="shrink it"
        )
    return content, status


def refuse_hidden(source: Source, error: str) -> None:
    """Raise EngineError for a file that can be read here and not by a worker: its machine may lack the disk."""
    try:
        read(source)
    except ImageError:
        return
    raise EngineError(
        f"a worker cannot read '{source.name}' ({error}), which can be read here",
        expected="the same files under the same paths on all machines",
        fix="mount the folder there; or run 'foveate index' where the files are: machines may index into one store",
    )


def encode_picture(encoder: Encoder, picture: Picture, size: tuple[int, int], long_side: int | None) -> DenseFeatures:
    """Checked features of a picture of `decode_for`, on the grid of the whole image. Raises what the encoder raises."""
    dense = encoder.encode_image(picture.rgb, long_side=long_side)
    check_features(encoder, dense, picture.size)
    return over_whole(dense, size)


def decode_for(encoder: Encoder, content: bytes, long_side: int | None, *, whole: bool = False) -> Decoded:
    """Bytes of an image file -> its picture (`whole`: all pixels of a large JPEG), and the whole image's (H, W)."""
    sees = getattr(encoder, "long_side", None) if long_side is None else long_side
    return load_reduced(content, None if whole or sees is None else SPARE * sees)


def over_whole(dense: DenseFeatures, size: tuple[int, int]) -> DenseFeatures:
    """Features of a reduced picture on the grid of the whole image."""
    return replace(dense, grid=replace(dense.grid, height=size[0], width=size[1]))


def explain(error: Exception) -> str:
    """Why an image is bad, in one line without its name."""
    line = " ".join(str(getattr(error, "received", error)).split()).removeprefix("'bytes' ")
    return line.encode("utf-8", "backslashreplace").decode()


def plain(name: str) -> str:
    """A file's name as a column of a store has it: bytes that are no Unicode are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
