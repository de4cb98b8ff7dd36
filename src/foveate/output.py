"""Files that foveate writes: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from foveate.errors import OutputError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that readers, and a crash at any moment, see the old content or the new, never a part.

    A sibling temporary file is written, flushed to disk and renamed. Raises OutputError with the cause; the temporary
    file is then removed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as cause:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise OutputError(
            f"'{path}' could not be written ({cause.strerror or cause})",
            expected=f"a writable folder with {len(content) / 1e6:.1f} MB free",
            fix="choose another place, or make room; nothing was changed",
        ) from cause


def make_folder(path: Path) -> None:
    """Create an output folder. Raises OutputError with the cause."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise OutputError(
            f"the output folder '{path}' cannot be made ({cause.strerror or cause})",
            expected="a folder, or a place where one can be made",
            fix="choose another place with --out",
        ) from cause
