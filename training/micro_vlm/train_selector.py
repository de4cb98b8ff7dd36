"""Trains the selector's encoder: `python -m micro_vlm.train_selector --out FOLDER` (from training/), a few minutes.

What is notable
* Weak labels: for each picture, which phrases hold ("green square", "letter q", "star", "shape", ...) and which do not.
  Where the thing is, nobody says: the score of a picture is the soft maximum of q.x over its cells, and a sigmoid loss.
* Phrases are what `foveate` makes of the questions: noun_phrases of every question family, so it is taught to look for
  what it will be asked for. Numerals and single letters that foveate cuts never arrive.
* Pictures are of the training seed, with fewer things in half of them, or "shape" would hold for every picture.
* Slope and offset of the calibration are fitted on further scenes of the training seed: 0.5 is as likely there as not.
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
from torch import Tensor
from torch.nn import functional as F

from .scenes import COLOURS, DIGITS, LETTERS, SHAPES, Scene, draw, scene_of
from .selector import Net, bags_of, save

SEED, FIRST, CALIBRATING = 1, 2_000_000, 3_000_000  # scenes that the language model is not trained on
PHRASES = (
    *("shape", "letter", "digit"),
    *SHAPES,
    *COLOURS,
    *(f"letter {glyph}" for glyph in LETTERS),
    *(f"digit {glyph}" for glyph in DIGITS),
    *(f"{colour} {noun}" for colour, noun in product(COLOURS, (*SHAPES, "letter", "digit"))),
)
NUMBER = {phrase: i for i, phrase in enumerate(PHRASES)}
PER_PICTURE = 24  # phrases that do not hold, drawn for each picture
SHARP = 12.0  # of the soft maximum over cells


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


def near(scene: Scene, said: set[str], rng: np.random.Generator) -> list[str]:
    """Phrases that do not hold, half of them made of words that do: a red star and a green heart, no "red heart"."""
    words = {word for phrase in said for word in phrase.split()}
    wrong = [phrase for phrase in PHRASES if phrase not in said]
    close = [phrase for phrase in wrong if all(word in words for word in phrase.split())]
    few = min(len(close), PER_PICTURE // 2)
    drawn = [close[i] for i in rng.permutation(len(close))[:few]] if close else []
    rest = rng.permutation(len(wrong))[: PER_PICTURE - few]
    return drawn + [wrong[i] for i in rest]


def labelled(first: int, count: int) -> tuple[Tensor, Tensor]:
    """Pictures float32 [n, 3, 128, 128] in [0, 1], labels float32 [n, phrases]: 1 holds, 0 not, NaN not asked."""
    pictures, labels = [], torch.full((count, len(PHRASES)), torch.nan)
    for k in range(count):
        scene = scene_of(SEED, first + k, least=0, most=4) if k % 2 else scene_of(SEED, first + k)
        said = holds(scene)
        pictures.append(draw(scene))
        labels[k, [NUMBER[p] for p in near(scene, said, np.random.default_rng([SEED, first + k, 3]))]] = 0
        labels[k, [NUMBER[p] for p in said]] = 1
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255, labels


def loss_of(net: Net, pictures: Tensor, labels: Tensor) -> Tensor:
    """Sigmoid loss of the soft maximum; what holds and what does not weigh the same."""
    texts = net.read(bags_of(PHRASES))
    scores = net.see(pictures).flatten(1, 2) @ texts.T  # [b, cells, phrases]
    best = torch.logsumexp(SHARP * scores, 1) / SHARP - np.log(scores.shape[1]) / SHARP * 0.5
    logits = net.scale[0] * best + net.scale[1]
    asked = ~labels.isnan()
    wanted = labels[asked]
    weight = torch.where(wanted > 0, 0.5 / wanted.sum(), 0.5 / (1 - wanted).sum())
    return (F.binary_cross_entropy_with_logits(logits[asked], wanted, reduction="none") * weight).sum()


def calibrated(net: Net, count: int = 256) -> tuple[float, float, float]:
    """Slope and offset of a logistic fit on the highest cell, and its share of right verdicts."""
    pictures, labels = labelled(CALIBRATING, count)
    with torch.no_grad():
        texts = net.read(bags_of(PHRASES))
        best = torch.cat([(net.see(part).flatten(1, 2) @ texts.T).amax(1) for part in pictures.split(64)])
    asked = ~labels.isnan()
    peak, wanted = best[asked].double(), labels[asked].double()
    weight = torch.where(wanted > 0, 0.5 / wanted.sum(), 0.5 / (1 - wanted).sum())
    fit = torch.tensor([10.0, -5.0], dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([fit], max_iter=200, line_search_fn="strong_wolfe")

    def again() -> Tensor:
        search.zero_grad()
        out = (F.binary_cross_entropy_with_logits(fit[0] * peak + fit[1], wanted, reduction="none") * weight).sum()
        out.backward()
        return out

    search.step(again)
    right = (((fit[0] * peak + fit[1]) > 0) == (wanted > 0)).double()
    return float(fit[0]), float(fit[1]), float((right * weight).sum())


def ahead(steps: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
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
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(SEED)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=args.rate, weight_decay=0.01, betas=(0.9, 0.98))
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.rate, total_steps=args.steps, pct_start=0.05)
    begun, mean = time.monotonic(), 0.0
    for step, (pictures, labels) in enumerate(ahead(args.steps, args.batch)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(net, pictures.contiguous(memory_format=torch.channels_last), labels)
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
        if (step + 1) % 300 == 0 or step + 1 == args.steps:
            slope, offset, right = calibrated(net.eval())
            save(net, args.out, slope=slope, offset=offset)
            print(f"present or not: {right:.3f} right; slope {slope:.2f}, offset {offset:.2f}", flush=True)
            net.train()


if __name__ == "__main__":
    main()
