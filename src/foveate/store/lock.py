"""One writer at a time: a lock that the operating system lets go of when its owner dies.

The lock is on the open file, so one that a killed process left behind is nobody's, and is simply taken.
What the file says (process, machine, since when) is for the message only.

Not covered: network file systems whose `flock` does not reach other machines. One machine writes to a store there.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from foveate.core.errors import OutputError, StoreLockedError


@contextmanager
def only_writer(store: Path) -> Iterator[None]:
    """Be the only writer of the store while the block runs. Raises StoreLockedError at once, OutputError."""
    path = store / "lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as cause:
        raise OutputError(
            f"the store '{store}' cannot be written to ({cause.strerror})",
            expected="a writable folder",
            fix="mend its permissions; for reading and searching it is fine as it is",
        ) from cause
    try:
        if not _taken(handle):
            raise StoreLockedError(
                f"the store '{store}' is being written to by {_owner(path)}",
                expected="one writer at a time; readers do not mind",
                fix="wait until it has finished, or end it; the lock goes with the process",
            )
        with contextlib.suppress(OSError):  # a full disk: then the message says less
            os.ftruncate(handle, 0)
            owner = {"pid": os.getpid(), "machine": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            os.pwrite(handle, json.dumps(owner).encode(), 0)
        yield
    finally:
        os.close(handle)  # and with it the lock


def _owner(path: Path) -> str:
    try:
        said = json.loads(path.read_text("utf-8"))
        return f"process {int(said['pid'])} on {said['machine']}, since {said['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def _taken(handle: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt  # type: ignore[import-not-found, unused-ignore]

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
