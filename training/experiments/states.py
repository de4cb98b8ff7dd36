"""What an experiment has learned so far, in one file, so that it goes on where it was killed.

done = resume(state, model=model, optimizer=optimizer)
keep(state, step + 1, model=model, optimizer=optimizer)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch


def resume(state: Path, **parts: Any) -> int:
    """Loads modules and optimisers by their names; the steps that are done, 0 where there is no file."""
    if not state.exists():
        return 0
    kept = torch.load(state, weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(kept[name])
    return int(kept["step"])


def keep(state: Path, step: int, **parts: Any) -> None:
    """Writes the parts and the steps done; whole, then renamed."""
    fresh = state.with_suffix(".new")
    torch.save({"step": step, **{name: part.state_dict() for name, part in parts.items()}}, fresh)
    fresh.replace(state)
