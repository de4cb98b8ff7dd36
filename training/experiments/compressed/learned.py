"""Small autoencoders, trained with checkpoints: killed at any moment and started again, they end with the same numbers.

`Planes` is a twin of PCA for planes on a grid: convolutions of 1 x 1 or 3 x 3 samples to k numbers and back. `Features`
is one for the features of a cell. Both are a linear map and what a small network adds to it, which is 0 in the
beginning: training starts from the best linear map of that rank. The k numbers are kept in 8 bits: in training noise
of half a step stands for that.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.core.files import write_whole

Floats = NDArray[np.float32]
STEPS = 127  # of a number, on either side of 0
EVERY = 100  # steps between two checkpoints


class Autoencoder(nn.Module):
    """x -> k numbers in [-1, 1] -> x. `down` [k, n] and `up` [n, k] are linear maps of white x, with |z| <= reach."""

    down: Tensor
    up: Tensor
    reach: Tensor

    def __init__(self, down: Floats, up: Floats, reach: Floats, hidden: int, side: int = 0) -> None:
        """side: of convolutions, 1 or 3, for planes [b, n, h, w]; 0 for features [b, n]."""
        super().__init__()
        k, n = down.shape
        for name, value in (("down", down), ("up", up), ("reach", reach)):
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(value, np.float32)))
        self.side = side
        self.encoder = nn.Sequential(self._layer(n, hidden), nn.GELU(), self._layer(hidden, k, last=True))
        self.decoder = nn.Sequential(self._layer(k, hidden), nn.GELU(), self._layer(hidden, n, last=True))

    def _layer(self, inputs: int, outputs: int, last: bool = False) -> nn.Module:
        layer: Any
        if self.side:
            layer = nn.Conv2d(inputs, outputs, self.side, padding=self.side // 2)
        else:
            layer = nn.Linear(inputs, outputs)
        if last:
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        return layer

    def _apply_linear(self, matrix: Tensor, x: Tensor) -> Tensor:
        return torch.einsum("kn,bn...->bk...", matrix, x)

    def encode(self, x: Tensor) -> Tensor:
        reach = self.reach.view(-1, *[1] * (x.dim() - 2))
        return torch.clamp(self._apply_linear(self.down, x) / reach + self.encoder(x), -1, 1)

    def decode(self, z: Tensor) -> Tensor:
        reach = self.reach.view(-1, *[1] * (z.dim() - 2))
        return self._apply_linear(self.up, z * reach) + self.decoder(z)

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        return self.decode(self.encode(x) + noise / (2 * STEPS))


def train(
    model: Autoencoder, batch: Callable[[np.random.Generator], Floats], steps: int, file: Path, rate: float = 2e-3
) -> Autoencoder:
    """Fits the model to batches; the file holds where it is. Batches and noise of a step depend on its number alone."""
    optimiser = torch.optim.Adam(model.parameters(), rate)
    plan = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    done = 0
    if file.exists():
        state = torch.load(file, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        plan.load_state_dict(state["plan"])
        done = state["done"]
    for step in range(done, steps):
        random = np.random.default_rng((7, step))
        x = torch.from_numpy(batch(random))
        shape = (len(x), len(model.down), *x.shape[2:])
        noise = torch.from_numpy(random.uniform(-1, 1, shape).astype(np.float32))
        loss = torch.square(model(x, noise) - x).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        plan.step()
        if (step + 1) % EVERY == 0 or step + 1 == steps:
            save(model, optimiser, plan, step + 1, file)
    return model.eval()


def save(model: Autoencoder, optimiser: Any, plan: Any, done: int, file: Path) -> None:
    stream = io.BytesIO()
    parts = {"model": model, "optimiser": optimiser, "plan": plan}
    torch.save({**{name: part.state_dict() for name, part in parts.items()}, "done": done}, stream)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, stream.getvalue())


@torch.no_grad()
def to_integers(model: Autoencoder, x: Floats) -> NDArray[np.int8]:
    """x [b, n, ...] -> int8 [b, k, ...]."""
    return np.rint(model.encode(torch.from_numpy(x)).numpy() * STEPS).astype(np.int8)


@torch.no_grad()
def from_integers(model: Autoencoder, z: NDArray[np.int8]) -> Floats:
    """int8 [b, k, ...] -> x [b, n, ...]."""
    found: Floats = model.decode(torch.from_numpy(z.astype(np.float32) / STEPS)).numpy()
    return found
