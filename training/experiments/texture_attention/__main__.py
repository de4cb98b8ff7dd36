"""Times of the blocks by the number of cells, answers from behind them, and a line of JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foveate.cli.evaluate.agreement import mean_estimate
from training.experiments import texture_attention
from training.experiments.arguments import checked, command
from training.experiments.balance.train_reader import learned_reader
from training.experiments.texture_attention.blocks import size
from training.experiments.texture_attention.learn import ARMS, NONE, Fronted, batch_of, learned, loss_of, right
from training.experiments.texture_attention.speed import report as speeds
from training.judges.collage.features import load
from training.judges.collage.scenes import CELLS, NAMED, questions_of

HELD = 12  # questions of each held-out scene
SEEDS = (1, 2, 3)


def accuracies(cache: Path, out: Path) -> dict[str, Any]:
    """Prints a table of right answers by arm, means over seeds, intervals over scenes; the same for JSON."""
    made, held = load(cache / "collage", "train"), load(cache / "collage", "held")
    for folder in (out, cache / "balance"):
        folder.mkdir(parents=True, exist_ok=True)
    reader = learned_reader(cache / "collage", cache / "balance" / "reader.pt")
    scenes = [n for n, scene in enumerate(held.scenes) if questions_of(scene)]
    parts = [scenes[first : first + 4] for first in range(0, len(scenes), 4)]
    batches = [batch_of(held, part, np.random.default_rng([8, part[0]]), HELD) for part in parts]
    families, scene = np.array([family for batch in batches for family in batch.families]), np.repeat(scenes, HELD)
    groups = {"named": np.isin(families, NAMED), "relation": families == "relation", "all": families != ""}
    every = torch.arange(CELLS * CELLS)
    whole = [replace(b, kept=every.expand(*b.kept.shape[:2], -1)) for b in batches]
    untaught = Fronted(reader, NONE)
    hits = {
        "the reader before, all 256 tokens": right(untaught, whole)[None],
        "the reader before": right(untaught, batches)[None],
    }
    sizes = dict.fromkeys(hits, 0)
    losses = dict(zip(hits, ([loss_of(untaught, whole)], [loss_of(untaught, batches)]), strict=True))
    for seed in SEEDS:
        for arm in ARMS:
            model = learned(
                reader, arm, made, out / f"{arm.replace(' ', '_').replace(chr(39), '')}_{seed}.pt", seed=seed
            )
            hits[arm] = np.concatenate([hits.get(arm, np.empty((0, len(scene)))), right(model, batches)[None]])
            sizes[arm] = size(model.block)
            losses.setdefault(arm, []).append(loss_of(model, batches))
    report: dict[str, Any] = {}
    print(f"\n{len(scene)} questions of {len(scenes)} held-out scenes, 31 of 256 tokens, seeds {SEEDS}\n")
    head = ["in front", "numbers", *groups, "all, by seed", "loss"]
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for arm, hit in hits.items():
        cells = []
        for name, on in groups.items():
            mean = mean_estimate(hit.mean(0)[on], scene[on])
            apart = mean_estimate((hit.mean(0) - hits[NONE].mean(0))[on], scene[on])
            report[f"{arm}, {name}"] = {"right": mean.record(), "difference": apart.record()}
            cells.append(f"{mean.mean:.3f} {apart.mean:+.3f} ({apart.low:+.3f} to {apart.high:+.3f})")
        seeds = " ".join(f"{share:.3f}" for share in hit.mean(1))
        report[f"{arm}, loss"] = losses[arm]
        print(f"| {arm} | {sizes[arm]:,} | {' | '.join(cells)} | {seeds} | {np.mean(losses[arm]):.3f} |", flush=True)
    return report


def main() -> None:
    """Times, answers, and a line of JSON."""
    args = checked(command("texture_attention", texture_attention.__doc__), out="texture_attention")
    torch.set_num_threads(1)
    out: Path = args.out
    answers = accuracies(args.cache, out)
    times = speeds()
    columns = list(next(iter(times.values())))
    print("\n| block | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for name, row in times.items():
        print(f"| {name} | " + " | ".join(f"{value:g}" for value in row.values()) + " |", flush=True)
    print(json.dumps({"times": times, "answers": answers}))


if __name__ == "__main__":
    main()
