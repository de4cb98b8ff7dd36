"""Trains the selector's encoder: `python -m micro_vlm.train_selector --out FOLDER` (from training/), some minutes.

What is notable
* A sigmoid loss for each cell and phrase ("green square", "letter q", "star", "shape", ...) against the masks of
  *training* scenes. Weak labels (which phrases hold for a picture, through a soft maximum) tell 98 % of what is there
  from what is not, and still do not find it: the evidence may stand in any cell (docs/log.md).
* Phrases are what `foveate` makes of the questions: noun_phrases of every question family, so it is taught to look for
  what it will be asked for. Numerals and single letters that foveate cuts never arrive.
* Scenes that the language model is not trained on, with fewer things in half of them.
* The calibration is the loss's own slope and offset: what holds and what does not weigh the same there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from .model import CELLS
from .scenes import COLOURS, DIGITS, LETTERS, SHAPES, Scene, Thing, cells_of, draw, scene_of
from .selector import FILES, Net, bags_of, save

SEED, FIRST, CHECKING = 1, 2_000_000, 3_000_000  # scenes that the language model is not trained on
PHRASES = (
    *("shape", "letter", "digit"),
    *SHAPES,
    *COLOURS,
    *(f"letter {glyph}" for glyph in LETTERS),
    *(f"digit {glyph}" for glyph in DIGITS),
    *(f"{colour} {noun}" for colour, noun in product(COLOURS, (*SHAPES, "letter", "digit"))),
)
NUMBER = {phrase: i for i, phrase in enumerate(PHRASES)}


def holds(scene: Scene) -> set[str]:
    """The phrases that hold for a scene."""
    out: set[str] = set()
    for thing in scene.things:
        out.add(thing.colour)
        if thing.shape:
            out |= {"shape", thing.shape, f"{thing.colour} {thing.shape}"}
        if thing.glyph:
            out |= {thing.kind, f"{thing.kind} {thing.glyph}"}
        if not thing.shape:
            out.add(f"{thing.colour} {thing.kind}")
    return out


def of(thing: Thing) -> set[str]:
    """The phrases that name a thing."""
    return holds(Scene((thing,), (0, 0)))


def labelled(first: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures float32 [n, 3, 128, 128] in [0, 1]; phrases bool [n, 256, phrases]; cells with things [n, 256]."""
    pictures, labels, on = [], torch.zeros(count, CELLS * CELLS, len(PHRASES), dtype=torch.bool), []
    for k in range(count):
        scene = scene_of(SEED, first + k, least=0, most=4) if k % 2 else scene_of(SEED, first + k)
        table = torch.zeros(len(scene.things) + 1, len(PHRASES), dtype=torch.bool)
        for i, thing in enumerate(scene.things):
            table[i, [NUMBER[phrase] for phrase in of(thing)]] = True
        shown = torch.from_numpy(cells_of(scene, CELLS).ravel())
        labels[k], on = table[shown], [*on, shown >= 0]
        pictures.append(draw(scene))
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255, labels, torch.stack(on)


def loss_of(net: Net, pictures: Tensor, labels: Tensor, on: Tensor) -> Tensor:
    """Sigmoid loss of cells and phrases: half of it what holds, the rest other things' cells and background, 3 to 2."""
    scores = net.see(pictures).flatten(1, 2) @ net.read(bags_of(PHRASES)).T  # [b, cells, phrases]
    each = F.binary_cross_entropy_with_logits(net.scale[0] * scores + net.scale[1], labels.float(), reduction="none")
    others = on[..., None] & ~labels
    return 0.5 * each[labels].mean() + 0.3 * each[others].mean() + 0.2 * each[~on].mean()


def checked(net: Net, count: int = 64) -> tuple[float, float]:
    """On further scenes: share of right verdicts on whether a phrase holds, and precision of the cells above 0.5."""
    pictures, labels, _ = labelled(CHECKING, count)
    with torch.no_grad():
        scores = torch.cat([net.see(part).flatten(1, 2) for part in pictures.split(32)]) @ net.read(bags_of(PHRASES)).T
    above = net.scale[0] * scores + net.scale[1] > 0
    there, said = labels.any(1), above.any(1)
    right = 0.5 * said[there].float().mean() + 0.5 * (~said[~there]).float().mean()
    return float(right), float((above & labels).sum() / above.sum().clamp(min=1))


def ahead(steps: int, size: int) -> Iterator[tuple[Tensor, ...]]:
    """Batches, the next one made while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(labelled, FIRST, size)
        for step in range(steps):
            now, coming = coming, pool.submit(labelled, FIRST + (step + 1) * size, size)
            yield now.result()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--start", type=Path, help="folder of a net to start from")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(SEED)
    net = Net()
    if args.start:
        net.load_state_dict(load_file(args.start / FILES[0]))
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.rate, weight_decay=0.01, betas=(0.9, 0.98))
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.rate, total_steps=args.steps, pct_start=0.05)
    begun, mean = time.monotonic(), 0.0
    for step, (pictures, labels, on) in enumerate(ahead(args.steps, args.batch)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(net, pictures.contiguous(memory_format=torch.channels_last), labels, on)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        plan.step()
        mean = float(loss.detach()) if step == 0 else 0.95 * mean + 0.05 * float(loss.detach())
        if (step + 1) % 50 == 0:
            pace = (time.monotonic() - begun) / (step + 1)
            left = (args.steps - step - 1) * pace / 60
            print(f"step {step + 1} loss {mean:.4f} {pace:.2f} s/step, {left:.1f} min left", flush=True)
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            right, precise = checked(net.eval())
            slope, offset = net.scale.tolist()
            save(net, args.out, slope=slope, offset=offset)
            print(f"there or not {right:.3f}, cells {precise:.3f}; slope {slope:.2f}, offset {offset:.2f}", flush=True)
            net.train()


if __name__ == "__main__":
    main()
