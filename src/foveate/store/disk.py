"""Every write of the store goes through here: one place to make it safe, and one to make it fail.

Readers, and a crash at any moment, see all of a file or nothing. Tests pass a Disk whose `step` fails.

Not covered: disks that say "flushed" before it is true; network file systems whose locks do not reach other machines.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from foveate.core.errors import OutputError, StoreLockedError

PART = ".part"
TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.part(-journal|-wal|-shm)?")  # SQLite's, beside an index that is made
PIECE = 2**20  # bytes written at a time


def temporary_in(folder: Path) -> Path:
    return folder / f".{secrets.token_hex(8)}{PART}"


def stamp(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """What tells a file from another one of its name; () where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class Disk:
    """What the store does to files. Raises OutputError, which names the file and the cause."""

    def step(self, what: str, path: Path) -> None:
        """Called before each write: "folder", "write", "flush", "rename", "flush folder", "commit", "remove"."""

    def make_folder(self, path: Path) -> None:
        """A folder, with those above it; and the folder above knows of it after a power cut."""
        if path.is_dir():
            return
        with _refusing(path, "made"):
            self.step("folder", path)
            path.mkdir(parents=True, exist_ok=True)
            self._flush_folder(path.parent)

    def publish(self, path: Path, parts: Iterable[bytes]) -> None:
        """Write a file whole, or not at all. What is there under this name is replaced."""
        with self.publishing(path) as write:
            for part in parts:
                write(part)

    @contextmanager
    def publishing(self, path: Path) -> Iterator[Callable[[bytes], None]]:
        """The same part by part: gives a function that takes the next part."""
        temporary = temporary_in(path.parent)
        with _refusing(path, "written"):
            try:
                with temporary.open("xb") as file:

                    def write(part: bytes) -> None:
                        for start in range(0, len(part), PIECE):
                            self.step("write", path)
                            file.write(part[start : start + PIECE])

                    yield write
                    file.flush()
                    self.step("flush", path)
                    os.fsync(file.fileno())
                self.step("rename", path)
                temporary.replace(path)
            except BaseException:  # an interrupt must not leave a part behind either
                with contextlib.suppress(OSError):
                    temporary.unlink()
                raise
            self._flush_folder(path.parent)

    @contextmanager
    def transaction(self, connection: sqlite3.Connection, path: Path) -> Iterator[None]:
        """Statements that count together or not at all; `path` is that of the index."""
        try:
            self.step("begin", path)
            connection.execute("BEGIN IMMEDIATE")
            yield
            self.step("commit", path)
            connection.execute("COMMIT")
            self.step("committed", path)
        except BaseException as cause:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(cause, sqlite3.Error | OSError):
                raise _refused(path, "written", cause) from cause
            raise

    def move(self, source: Path, target: Path) -> None:
        with _refusing(source, "moved"):
            self.step("rename", source)
            source.replace(target)
            self._flush_folder(target.parent)
            self._flush_folder(source.parent)

    def remove(self, path: Path) -> None:
        """Remove a file; one that is gone already is fine."""
        with _refusing(path, "removed"):
            self.step("remove", path)
            path.unlink(missing_ok=True)

    def _flush_folder(self, path: Path) -> None:
        self.step("flush folder", path)
        if os.name == "nt":  # a folder cannot be opened there
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _refusing(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OutputError:
        raise
    except OSError as cause:
        raise _refused(path, done, cause) from cause


def _refused(path: Path, done: str, cause: Exception) -> OutputError:
    return OutputError(
        f"'{path}' could not be {done} ({getattr(cause, 'strerror', None) or cause})",
        expected="a store in a writable folder, on a disk with room",
        fix="make room, or mend the permissions, and run the same again: what was stored before is still there",
    )


@contextmanager
def only_writer(store: Path) -> Iterator[None]:
    """Be the only writer of the store (lock of the operating system). Raises StoreLockedError at once, OutputError."""
    path = store / "lock"
    lock = FileLock(path, timeout=0, fallback_to_soft=False)  # a soft lock would outlive its process
    try:
        lock.acquire()
    except Timeout:
        raise StoreLockedError(
            f"the store '{store}' is being written to by {_owner(path)}",
            expected="one writer at a time; readers do not mind",
            fix="wait until it has finished, or end it; the lock goes with the process",
        ) from None
    except OSError as cause:
        raise OutputError(
            f"the store '{store}' cannot be written to ({cause.strerror or cause})",
            expected="a writable folder",
            fix="mend its permissions; for reading and searching it is fine as it is",
        ) from cause
    try:
        owner = {"pid": os.getpid(), "machine": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with contextlib.suppress(OSError):  # a full disk: then the message says less
            path.write_text(json.dumps(owner), "utf-8")
        yield
    finally:
        lock.release()


def _owner(path: Path) -> str:
    try:
        owner = json.loads(path.read_text("utf-8"))
        return f"process {int(owner['pid'])} on {owner['machine']}, since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
