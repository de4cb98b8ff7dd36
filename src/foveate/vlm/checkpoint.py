"""Where a training stands, on disk: weights and optimiser as safetensors, and a JSON file that says which.

What is notable
* The tensors of a step go to a file of their own; `state.json` then names it. Both are written whole or not at all, so
  a kill at any moment leaves the last complete checkpoint, and at most one file more, which the next save removes.
* Only what is trained is kept: the frozen model is whoever's who calls.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveate.core.errors import ModelFilesError, OptionError
from foveate.core.files import make_folder, write_whole

if TYPE_CHECKING:
    import torch

STATE, FORMAT = "state.json", "foveate-training"
MOMENTS = ("exp_avg", "exp_avg_sq")  # AdamW's


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoints of one training, in one folder. `identity`: what must be the same for it to go on."""

    folder: Path
    identity: str

    def save(
        self, trained: Mapping[str, torch.nn.Parameter], optimiser: torch.optim.Optimizer, losses: Sequence[float]
    ) -> None:
        """Write where the training stands after as many steps as there are losses. Raises OutputError."""
        from safetensors.torch import save

        tensors = {name: p.detach().cpu().contiguous() for name, p in trained.items()}
        for name, p in trained.items():
            for moment in MOMENTS:
                tensors[f"{moment}.{name}"] = optimiser.state[p][moment].detach().cpu().contiguous()
        file = f"step_{len(losses)}.safetensors"
        make_folder(self.folder)
        write_whole(self.folder / file, save(tensors))
        state = {"format": FORMAT, "identity": self.identity, "weights": file, "losses": list(losses)}
        write_whole(self.folder / STATE, json.dumps(state).encode())
        for old in self.folder.glob("step_*.safetensors"):
            if old.name != file:
                old.unlink(missing_ok=True)

    def restore(self, trained: Mapping[str, torch.nn.Parameter], optimiser: torch.optim.Optimizer) -> list[float]:
        """Put weights and optimiser back, and return the losses so far; nothing happens where there is no checkpoint.

        Raises OptionError for a checkpoint of another training, ModelFilesError for a damaged one.
        """
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load

        if not (self.folder / STATE).exists():
            return []
        try:
            state = json.loads((self.folder / STATE).read_text("utf-8"))
            self._check(state)
            losses = [float(loss) for loss in state["losses"]]
            tensors = load((self.folder / Path(str(state["weights"])).name).read_bytes())
            kept = {name: [tensors[key] for key in (name, *(f"{m}.{name}" for m in MOMENTS))] for name in trained}
        except (OSError, ValueError, TypeError, KeyError, SafetensorError) as cause:
            if isinstance(cause, OptionError):
                raise
            raise self._damaged(str(cause)) from cause
        for name, p in trained.items():
            if any(t.shape != p.shape or not bool(torch.isfinite(t).all()) for t in kept[name]):
                raise self._damaged(f"{name} is of another shape, or not finite")
        if not losses or not all(map(math.isfinite, losses)):
            raise self._damaged("no losses")
        with torch.no_grad():
            for name, p in trained.items():
                value, first, second = (t.to(p) for t in kept[name])
                p.copy_(value)
                step = torch.tensor(float(len(losses)), dtype=torch.float32)
                optimiser.state[p] = {"step": step, "exp_avg": first, "exp_avg_sq": second}
        return losses

    def _check(self, state: Any) -> None:
        if not isinstance(state, dict) or state.get("format") != FORMAT:
            raise self._damaged(f"{STATE} does not say format {FORMAT!r}")
        if state.get("identity") != self.identity:
            raise OptionError(
                f"the folder '{self.folder}' with a checkpoint of another training",
                expected="the same stage, settings, examples, budget and projector",
                fix="choose another folder, or remove this one to begin anew",
            )

    def _damaged(self, reason: str) -> ModelFilesError:
        return ModelFilesError(
            f"the checkpoint in '{self.folder}' is damaged ({' '.join(reason.split())[:200]})",
            expected="the files as train() wrote them",
            fix="remove the folder to begin anew",
        )
