"""How long a block takes on a grid: medians of interleaved calls in one thread, and how that grows with the cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from training.experiments.texture_attention.blocks import Attention, Convolution

NAMES = ("attention", "attention, offsets", "question's kernels", "fixed kernels")
SIDES = (8, 16, 32, 64)  # 64, 256, 1,024 and 4,096 cells


def times(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, in turn, `rounds` times after one that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            begun = time.process_time()  # other processes share the machine
            call()
            if number:
                taken[name].append(time.process_time() - begun)
    return taken


def exponent(cells: Sequence[int], seconds: Sequence[float]) -> float:
    """e of seconds ~ cells^e, by least squares of the logarithms."""
    return float(np.polyfit(np.log(cells), np.log(seconds), 1)[0])


def report(width: int = 256, sides: Sequence[int] = SIDES, rounds: int = 11) -> dict[str, dict[str, float]]:
    """By block: median milliseconds a picture by number of cells, the ratio to attention, and the exponent."""
    torch.manual_seed(0)
    convolution, fixed = Convolution(width).eval(), Convolution(width, asked=False).eval()
    question = torch.randn(1, width)
    calls: dict[str, Callable[[], object]] = {}
    with torch.no_grad():
        for side in sides:
            x, placed = torch.randn(1, side * side, width), Attention(width, side=side).eval()
            plain = Attention(width, side=side, places=False).eval()
            calls[f"attention {side}"] = partial(plain, x, question, side)
            calls[f"attention, offsets {side}"] = partial(placed, x, question, side)
            calls[f"question's kernels {side}"] = partial(convolution, x, question, side)
            calls[f"fixed kernels {side}"] = partial(fixed, x, question, side)
        taken = times(calls, rounds)
    found: dict[str, dict[str, float]] = {}
    cells = [side * side for side in sides]
    for name in NAMES:
        each = [float(np.median(taken[f"{name} {side}"])) for side in sides]
        against = [float(np.median(np.divide(taken[f"{name} {s}"], taken[f"attention {s}"]))) for s in sides]
        found[name] = {f"{n} cells, ms": round(1e3 * t, 3) for n, t in zip(cells, each, strict=True)}
        found[name] |= {f"{n} cells, of attention": round(r, 3) for n, r in zip(cells, against, strict=True)}
        found[name]["exponent"] = round(exponent(cells, each), 2)
    return found
