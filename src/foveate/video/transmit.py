"""Which of the kept cells a model has to be sent: those that look different from when they were last sent.

What is notable
* A cell is compared with what was **last transmitted** from its place, not with the frame before: a slow change is
  noticed when it has added up, and many small differences below the threshold cannot drift away unseen.
* It looks at pixels (channels/change.py), so it runs before any tower and holds for any encoder.
* Of the first frame everything kept is new. Positions stay true: `frame.index`, and the cell's row and column.

Compare EVS (arXiv 2510.14624, in vLLM), which looks at 1 - cosine to the token of the frame before, and needs the tower
first: `python -m benchmarks video` has both beside this.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.channels.change import CHANGED, measure_change
from foveate.core.readonly import Frozen


@dataclass(frozen=True, eq=False)
class Sent(Frozen):
    """What was last sent from each place: look uint8 [h, w, n] and whether anything was, bool [h, w]."""

    look: NDArray[np.uint8]
    any: NDArray[np.bool_]


def sent_now(
    look: NDArray[np.uint8], kept: NDArray[np.int64], before: Sent | None, changed: float = CHANGED
) -> tuple[NDArray[np.int64], Sent]:
    """Those of the kept cells that have to be sent (ascending indices), and what has been sent after that."""
    if before is None or before.look.shape != look.shape:
        before = Sent(np.zeros_like(look), np.zeros(look.shape[:2], bool))
    wanted = np.zeros(look.shape[:2], bool)
    wanted.ravel()[kept] = True
    new = wanted & (~before.any | (measure_change(look, before.look) > changed))
    after = Sent(np.where(new[..., None], look, before.look), before.any | new)
    cells = np.flatnonzero(new).astype(np.int64)
    cells.setflags(write=False)
    return cells, after
