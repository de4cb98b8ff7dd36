"""Command line of the package's docstring."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foveate.cli.evaluate.agreement import mean_estimate
from training.balance.train_reader import learned_reader
from training.collage.features import load
from training.collage.scenes import NAMED, questions_of
from training.texture_attention.blocks import size
from training.texture_attention.learn import ARMS, batch_of, learned, right
from training.texture_attention.speed import report as speeds

NONE = "no block"
HELD = 12  # questions of each held-out scene


def accuracies(cache: Path, out: Path) -> dict[str, Any]:
    """Prints a table of right answers by arm; the same for JSON."""
    reader = learned_reader(cache / "collage", cache / "balance" / "reader.pt")
    made, held = load(cache / "collage", "train"), load(cache / "collage", "held")
    blocks = {arm: learned(reader, arm, made, out / f"{arm.replace(' ', '_')}.pt") for arm in ARMS}
    scenes = [n for n, scene in enumerate(held.scenes) if questions_of(scene)]
    parts = [scenes[first : first + 4] for first in range(0, len(scenes), 4)]
    batches = [batch_of(held, part, np.random.default_rng([8, part[0]]), HELD) for part in parts]
    families = np.array([family for batch in batches for family in batch.families])
    scene = np.repeat(scenes, HELD)
    base = right(reader, None, NONE, batches)
    groups = {"named": np.isin(families, NAMED), "relation": families == "relation", "all": families != ""}
    report: dict[str, Any] = {}
    print(f"\n{len(base)} questions of {len(scenes)} held-out scenes, 31 of 256 tokens\n")
    print("| block | numbers | " + " | ".join(groups) + " |\n" + "|---" * (len(groups) + 2) + "|")
    for arm, block in {NONE: None, **blocks}.items():
        hit = right(reader, block, arm, batches)
        cells = []
        for name, on in groups.items():
            mean, apart = mean_estimate(hit[on], scene[on]), mean_estimate(hit[on] * 1.0 - base[on], scene[on])
            report[f"{arm}, {name}"] = {"right": mean.record(), "difference": apart.record()}
            cells.append(f"{mean.mean:.3f} {apart.mean:+.3f} ({apart.low:+.3f} to {apart.high:+.3f})")
        print(f"| {arm} | {size(block) if block else 0:,} | " + " | ".join(cells) + " |", flush=True)
    return report


def main() -> None:
    """Times, answers, and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="states; by default CACHE/texture_attention")
    args = parser.parse_args()
    torch.set_num_threads(1)
    out: Path = args.out or args.cache / "texture_attention"
    out.mkdir(parents=True, exist_ok=True)
    times = speeds()
    columns = list(next(iter(times.values())))
    print("| block | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for name, row in times.items():
        print(f"| {name} | " + " | ".join(f"{value:g}" for value in row.values()) + " |", flush=True)
    print(json.dumps({"times": times, "answers": accuracies(args.cache, out)}))


if __name__ == "__main__":
    main()
