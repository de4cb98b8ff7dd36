"""Answers to held-out scenes' questions from the cells that a balance keeps, and learning a balance by answers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from foveate.cli.evaluate.agreement import Estimate, mean_estimate
from training.experiments.balance.forms import Loss, hard_top, soft_top
from training.experiments.balance.reader import Reader
from training.experiments.balance.scenes import Asked
from training.experiments.balance.train_reader import labels
from training.judges.collage.scenes import NAMED

Score = Callable[[Tensor], Tensor]  # planes [q, 3, n] -> scores [q, n]
GROUPS = ("named", "not named")  # the thing that is the answer


def seen_scenes(reader: Reader, asked: Asked) -> Tensor:
    """Tokens of all scenes as the reader sees them, [scenes, 256, width]; they do not depend on the balance."""
    with torch.no_grad():
        every = [reader.see(torch.from_numpy(labels(asked.made, n))[None]) for n in range(int(asked.scene.max()) + 1)]
    return torch.cat(every)


def by_answers(reader: Reader, asked: Asked, budget: int) -> Loss:
    """The loss of answers where each cell counts as soft selection has it."""
    seen = seen_scenes(reader, asked)

    def loss(form: nn.Module, rows: Any) -> Tensor:
        weights = soft_top(form(asked.planes[rows]), budget)
        bias = weights.clamp(min=1e-9).log()[:, None]
        logits, _ = reader.look(seen[asked.scene[rows]], asked.ids[rows][:, None], bias)
        return F.cross_entropy(logits[:, 0], asked.answers[rows])

    return loss


def answered(reader: Reader, asked: Asked, scores: Tensor, budget: int) -> NDArray[np.bool_]:
    """Which questions are answered right from the `budget` cells of the highest scores [q, 256]; others are dropped."""
    kept = torch.full_like(scores, float("-inf")).scatter(1, hard_top(scores, budget), 0.0)
    right = np.zeros(len(scores), bool)
    with torch.no_grad():
        for number, seen in enumerate(seen_scenes(reader, asked)):
            rows = np.flatnonzero(asked.scene == number)
            if len(rows):
                logits, _ = reader.look(seen[None], asked.ids[rows][None], kept[rows][None])
                right[rows] = (logits[0].argmax(-1) == asked.answers[rows]).numpy()
    return right


def searched(reader: Reader, asked: Asked, budget: int) -> tuple[float, float, float]:
    """The three weights, in tenths, that answer most questions: no gradient, no soft selection."""
    tries = [(i / 10, s / 10, (10 - i - s) / 10) for i, s in product(range(8), range(8)) if i + s <= 7]
    hits = [answered(reader, asked, (asked.planes * torch.tensor(t)[:, None]).sum(1), budget).mean() for t in tries]
    return tries[int(np.argmax(hits))]


def judged(
    reader: Reader, asked: Asked, ways: dict[str, Score], budgets: dict[str, int], alone: str
) -> dict[str, dict[str, dict[str, Estimate]]]:
    """By way and "GROUP, BUDGET": the share of right answers, and the difference to the way `alone`, over scenes."""
    group = np.where(np.isin(asked.families, NAMED), *GROUPS)
    right: dict[tuple[str, str], NDArray[np.bool_]] = {}
    for way, score in ways.items():
        with torch.no_grad():
            scores = score(asked.planes)
        for name, budget in budgets.items():
            right[way, name] = answered(reader, asked, scores, budget)
    found: dict[str, dict[str, dict[str, Estimate]]] = {}
    for way, name in right:
        for part in GROUPS:
            on = group == part
            scenes = asked.scene[on].tolist()
            hit, base = (right[w, name][on].astype(float) for w in (way, alone))
            found.setdefault(way, {})[f"{part}, {name}"] = {
                "right": mean_estimate(hit, scenes),
                "difference": mean_estimate(hit - base, scenes),
            }
    return found


def shown(found: dict[str, dict[str, dict[str, Estimate]]], alone: str) -> str:
    """A table in Markdown: right answers, and their difference to `alone` with its interval."""
    columns = list(next(iter(found.values())))
    lines = ["| kept by | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for way, cells in found.items():
        row = []
        for column in columns:
            right, apart = cells[column]["right"], cells[column]["difference"]
            row.append(
                f"{right.mean:.3f}"
                + ("" if way == alone else f" {apart.mean:+.3f} ({apart.low:+.3f} to {apart.high:+.3f})")
            )
        lines.append(f"| {way} | " + " | ".join(row) + " |")
    return "\n".join(lines)
