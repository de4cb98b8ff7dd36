"""Small models of saliency: planes -> one map. Trained with torch, and read with NumPy alone.

What is notable
* The loss is the divergence of the map, a softmax over all samples, from the share of the target at each: what nobody
  drew is no proof that nothing is there, and only the order within a photograph counts.
* Convolutions pad by repeating the border: padding with zeros would tell the place of a sample, and the models without
  place must not know it.
* Names (nano's evidence) are read by a matrix [K, names] through the basis, so nothing is decompressed.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

Floats = NDArray[np.float32]
DILATIONS = (1, 2, 4, 8)
BATCH = 16
NAMES_SCALE = 10  # evidence is a few hundredths


@dataclass(frozen=True)
class Shape:
    """Of a model: planes that it sees, numbers read from the names (0: none), width of its layers (0: logistic)."""

    planes: int
    names: int = 0
    reads: int = 0
    width: int = 16


class Saliency(nn.Module):
    """Planes [n, C, h, w] (and z [n, r, h, w] with basis [n, 1 + r, names]) -> logits [n, h, w]."""

    mean: Tensor
    scale: Tensor

    def __init__(self, shape: Shape, mean: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        if shape.reads:
            self.read = nn.Parameter(torch.randn(shape.reads, shape.names) / shape.names**0.5)
        inside = shape.planes + shape.reads
        if shape.width:
            self.enter = nn.Conv2d(inside, shape.width, 1)
            self.steps = nn.ModuleList(
                nn.Conv2d(shape.width, shape.width, 3, padding=d, dilation=d, padding_mode="replicate")
                for d in DILATIONS
            )
            self.leave = nn.Conv2d(2 * shape.width, 1, 1)
        else:
            self.leave = nn.Conv2d(inside, 1, 1)
        nn.init.zeros_(self.leave.weight)

    def forward(self, planes: Tensor, z: Tensor | None = None, basis: Tensor | None = None) -> Tensor:
        x = (planes - self.mean[:, None, None]) / self.scale[:, None, None]
        if self.shape.reads:
            assert z is not None
            assert basis is not None
            x = torch.cat([x, read_names(z, basis, self.read)], 1)
        if self.shape.width:
            x = functional.relu(self.enter(x))
            for step in self.steps:
                x = x + functional.relu(step(x))
            x = torch.cat([x, x.mean((2, 3), keepdim=True).expand_as(x)], 1)
        out: Tensor = self.leave(x)[:, 0]
        return out


def read_names(z: Tensor, basis: Tensor, read: Tensor) -> Tensor:
    """(mean + z rows) read^T without decompressing: [n, r, h, w], [n, 1 + r, D], [k, D] -> [n, k, h, w]."""
    weights = basis @ read.T  # [n, 1 + r, k]
    return NAMES_SCALE * (torch.einsum("nrhw,nrk->nkhw", z, weights[:, 1:]) + weights[:, 0, :, None, None])


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """Of the softmax over a photograph from the target's distribution, the mean over photographs, in nats."""
    share = target.flatten(1) / target.flatten(1).sum(1, keepdim=True)
    own = functional.kl_div(functional.log_softmax(logits.flatten(1), 1), share, reduction="none")
    return own.sum(1).mean()


@dataclass(frozen=True, eq=False)
class Taught:
    """What a model learns from, by photograph: planes [n, C, h, w], z and basis where it reads names, target."""

    planes: NDArray[np.float16]
    target: Floats
    z: NDArray[np.float16] | None = None
    basis: NDArray[np.float16] | None = None

    def batch(self, rows: NDArray[np.int64], flipped: bool = False) -> tuple[list[Tensor | None], Tensor]:
        def take(array: NDArray[Any] | None, spatial: bool = True) -> Tensor | None:
            if array is None:
                return None
            some = array[rows].astype(np.float32)
            return torch.from_numpy(np.ascontiguousarray(some[..., ::-1]) if flipped and spatial else some)

        target = take(self.target)
        assert target is not None
        return [take(self.planes), take(self.z), take(self.basis, False)], target


def train(
    data: Taught,
    reads: int,
    width: int,
    file: Path,
    *,
    epochs: int,
    seed: int = 0,
    rate: float = 3e-3,
    decay: float = 1e-3,
    x_plane: int | None = None,
) -> Saliency:
    """A trained model, as `file` keeps it after every epoch; goes on where it was killed, to the same weights.

    x_plane: the plane of positions from left to right, which a mirrored photograph must not mirror.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    every = data.planes.astype(np.float32)
    mean, scale = every.mean((0, 2, 3)), every.std((0, 2, 3)) + 1e-3
    names = 0 if data.basis is None else data.basis.shape[2]
    model = Saliency(Shape(every.shape[1], names, reads, width), torch.from_numpy(mean), torch.from_numpy(scale))
    optimiser = torch.optim.AdamW(model.parameters(), rate, weight_decay=decay)
    start = 0
    if file.exists():
        state = torch.load(file, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        start = state["epoch"]
    steps = -(-len(every) // BATCH) * epochs
    for epoch in range(start, epochs):
        random = np.random.default_rng((seed, epoch))
        order = random.permutation(len(every))
        for i in range(0, len(order), BATCH):
            done = (epoch * -(-len(order) // BATCH) + i // BATCH) / steps
            for group in optimiser.param_groups:
                group["lr"] = rate * 0.5 * (1 + math.cos(math.pi * done))
            flipped = bool(random.random() < 0.5)
            (planes, z, basis), target = data.batch(order[i : i + BATCH], flipped)
            if flipped and x_plane is not None:
                assert planes is not None
                planes[:, x_plane] = planes[:, x_plane].flip(-1)
            loss = divergence(model(planes, z, basis), target)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        state = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch + 1}
        whole = file.with_suffix(".partial")
        torch.save(state, whole)
        os.replace(whole, file)
    return model.eval()


@torch.no_grad()
def maps_of(model: Saliency, data: Taught) -> Floats:
    """Of every photograph, in [0, 1] with 1 at its highest sample: [n, h, w]."""
    found = []
    for i in range(0, len(data.planes), 64):
        inputs, _ = data.batch(np.arange(i, min(i + 64, len(data.planes))))
        found.append(model(*inputs).numpy())
    logits = np.concatenate(found)
    return np.asarray(np.exp(logits - logits.max((1, 2), keepdims=True)), np.float32)


# --- without torch ----------------------------------------------------------------------------------------------------


def weights_of(model: Saliency) -> dict[str, Floats]:
    return {name: value.numpy().astype(np.float32) for name, value in model.state_dict().items()}


def predict(weights: dict[str, Floats], planes: Floats, evidence: Floats | None = None) -> Floats:
    """`maps_of` for one photograph in NumPy: planes [C, h, w] (and names [h, w, D]) -> [h, w]. The readable twin."""
    x = (planes - weights["mean"][:, None, None]) / weights["scale"][:, None, None]
    if "read" in weights:
        assert evidence is not None
        x = np.concatenate([x, np.moveaxis(NAMES_SCALE * evidence @ weights["read"].T, -1, 0)])
    if "enter.weight" in weights:
        x = np.maximum(_mixed(x, weights["enter.weight"][:, :, 0, 0], weights["enter.bias"]), 0)
        for i, dilation in enumerate(DILATIONS):
            kernel, padded = weights[f"steps.{i}.weight"], np.pad(x, ((0, 0), *[(dilation, dilation)] * 2), mode="edge")
            h, w = x.shape[1:]
            out = np.broadcast_to(weights[f"steps.{i}.bias"][:, None, None], x.shape).copy()
            for dy in range(3):
                for dx in range(3):
                    shifted = padded[:, dy * dilation : dy * dilation + h, dx * dilation : dx * dilation + w]
                    out += np.einsum("oc,chw->ohw", kernel[:, :, dy, dx], shifted)
            x = x + np.maximum(out, 0)
        x = np.concatenate([x, np.broadcast_to(x.mean((1, 2), keepdims=True), x.shape)])
    logits = _mixed(x, weights["leave.weight"][:, :, 0, 0], weights["leave.bias"])[0]
    return np.asarray(np.exp(logits - logits.max()), np.float32)


def _mixed(x: Floats, matrix: Floats, bias: Floats) -> Floats:
    return np.einsum("oc,chw->ohw", matrix, x) + bias[:, None, None]
