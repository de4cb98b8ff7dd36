"""Work for engines, in a module that imports little: each of Ray's workers, a process, loads it anew."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from foveate.store.engine import Batch, column


def doubled(batch: Batch, bad: int = -1, error: Exception | None = None, slow: float = 0.0) -> Batch:
    time.sleep(slow)
    if error is not None and bad in batch["number"]:
        raise error
    return {**batch, "twice": 2 * batch["number"], "of": column([len(batch["number"])] * len(batch["number"]))}


def dying(batch: Batch, deaths: Path) -> Batch:
    if 5 in batch["number"]:
        with deaths.open("a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return batch
