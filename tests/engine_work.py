"""Work for engines, in a module that imports little: each of Ray's workers, a process, loads it anew."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any


def doubled(items: list[Any], bad: int = -1, error: Exception | None = None, slow: float = 0.0) -> list[Any]:
    time.sleep(slow)
    if error is not None and bad in items:
        raise error
    return [(item, 2 * item, len(items)) for item in items]


def dying(items: list[int], deaths: Path) -> list[int]:
    if 5 in items:
        with deaths.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return items
