"""Files that foveate writes: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path

from foveate.core.errors import OutputError


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that readers, and a crash at any moment, see the old content or the new. Raises OutputError."""
    temporary = path.parent / f".{secrets.token_hex(8)}.part"  # short: the name itself may be as long as names can be
    try:
        if not path.name:
            raise IsADirectoryError("that is a folder")
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as cause:  # an interrupt must not leave a part behind either
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink()
        if not isinstance(cause, OSError | ValueError):  # ValueError: a name with a null byte
            raise
        raise OutputError(
            f"'{path}' could not be written ({getattr(cause, 'strerror', None) or cause})",
            expected=f"the name of a file in a writable folder with {len(content) / 1e6:.1f} MB free",
            fix="choose another place, or make room; nothing was changed",
        ) from cause


def check_output(path: Path, source: str | Path, what: str, option: str) -> None:
    """Raises OutputError for a file that cannot be written, or that is the source, a `what`; nothing is changed."""
    try:
        if path.exists() and os.path.exists(source) and path.samefile(source):
            raise FileExistsError(f"that is the {what} itself")
        if path.is_dir():
            raise IsADirectoryError("that is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as cause:
        raise OutputError(
            f"'{path}' cannot be written ({getattr(cause, 'strerror', None) or cause})",
            expected="the name of another file, in a folder that exists and can be written to",
            fix=f"make the folder first, or choose another place with {option}",
        ) from cause


def check_target(path: Path, what: str, ours: Callable[[Path], bool], *, suffix: str = "") -> None:
    """Raises OutputError for a path of another suffix, and where `ours` raises or says no of the file that is there."""
    if suffix and path.suffix.lower() not in ("", suffix):
        raise OutputError(
            f"a {what} named '{path.name}'",
            expected=f"a name that ends in {suffix}, or without a suffix",
            fix=f"pass '{path.with_suffix(suffix)}'",
        )
    try:
        if not path.is_file() or ours(path):
            return
    except Exception:
        pass  # it cannot be read: not ours
    raise OutputError(
        f"'{path}' exists and is no {what}",
        expected=f"a new name, or that of a {what}, which is then replaced",
        fix="choose another name, or remove the file first",
    )


def carries(path: Path, key: str) -> bool:
    """Whether a file is empty, or a safetensors file with this key in its metadata. Raises what reading it raises."""
    from safetensors import safe_open

    if not path.stat().st_size:
        return True
    with safe_open(path, framework="np") as content:
        return key in (content.metadata() or {})


def make_folder(path: Path) -> None:
    """Create an output folder and make sure that files can be written there. Raises OutputError with the cause."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except (OSError, ValueError) as cause:
        raise OutputError(
            f"the output folder '{path}' cannot be made or written to ({getattr(cause, 'strerror', None) or cause})",
            expected="a writable folder, or a place where one can be made",
            fix="choose another place (with --out, for pictures)",
        ) from cause
