"""Scorers by name, how they are learned, and what is chosen inside the learning set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.core.layout import FULL40, GRID13
from training.experiments.scorer.model import TextureScorer, fit, iou_loss
from training.experiments.scorer.planes import ASKED, CHANNELS, NAMES, Lessons, batches

CHOICE_STEPS, BATCH, SEED = 200, 16, 0


@dataclass(frozen=True)
class Way:
    """A scorer: its planes, and whether it has context or a pyramid."""

    name: str
    planes: tuple[str, ...]
    context: bool = False
    levels: tuple[int, ...] = ()

    @property
    def hears(self) -> bool:
        return "question" in self.planes

    def model(self, known: Lessons | None = None) -> TextureScorer:
        torch.manual_seed(SEED)
        made = TextureScorer(len(self.planes), context=self.context, levels=self.levels)
        if known is not None:
            made.mean, made.spread = statistics(known, self.rows)
        if self.hears:
            made.begin_with(self.planes.index("question"))
        return made

    @property
    def rows(self) -> list[int]:
        return [NAMES.index(name) for name in self.planes]


WAYS = (
    Way("13 channels", GRID13.names),
    Way("40 channels", FULL40.names),
    Way("the question's maps", ASKED),
    Way("the question's maps, 3x3", ASKED, context=True),
    Way("everything", NAMES),
    Way("everything, 3x3", NAMES, context=True),
    Way("everything, pyramid", NAMES, levels=(8, 16, 32)),
)
CHOOSE_BY = WAYS[4]


@dataclass(frozen=True)
class Recipe:
    """What is chosen inside the learning set.

    Attributes:
        source: "seen" or "held out" photographs. truth: cells of "masks", or of "both" masks and boxes. decay: how
            strongly the scorer is held to where it begins.
    """

    source: str = "held out"
    truth: str = "both"
    decay: float = 0.03


RECIPES = tuple(Recipe(*each) for each in product(("seen", "held out"), ("masks", "both")))


def statistics(known: Lessons, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Mean and spread of planes: float32 [C] each; a plane without spread is left as it is."""
    some = np.random.default_rng(SEED).permutation(len(known.photograph))[:400]
    planes = gathered(known, some, rows)
    spread = planes.std((0, 2, 3))
    return planes.mean((0, 2, 3)), torch.where(spread > 1e-4, spread, 1.0)


def gathered(known: Lessons, which: NDArray[np.int64], rows: Sequence[int]) -> Tensor:
    """Planes of some questions: float32 [B, len(rows), h, w]."""
    fixed = [row for row in rows if row < len(CHANNELS)]
    heard = [row - len(CHANNELS) for row in rows if row >= len(CHANNELS)]
    parts = []
    if fixed:
        parts.append(known.channels[known.photograph[which][:, None], np.array(fixed)])
    if heard:
        parts.append(known.asked[which[:, None], np.array(heard)])
    return torch.from_numpy(np.concatenate(parts, 1)).float()


def learn(
    way: Way, recipe: Recipe, known: Lessons, from_: NDArray[np.int64], steps: int, checkpoint: Path | None
) -> tuple[TextureScorer, list[float]]:
    """A scorer from those questions."""
    model = way.model(known)
    plan = list(batches(len(from_), BATCH, steps, SEED))

    def loss(step: int) -> Tensor:
        which = from_[plan[step]]
        score = model(gathered(known, which, way.rows)).flatten(1)
        truths = torch.from_numpy(known.truths[which]).float().flatten(2)
        losses = [iou_loss(score, truths[:, i]) for i in range(1 if recipe.truth == "masks" else 2)]
        return torch.stack(losses).mean()

    return model, fit(model, loss, steps, decay=recipe.decay, checkpoint=checkpoint)


def precision_of(model: nn.Module, way: Way, known: Lessons, which: NDArray[np.int64]) -> NDArray[np.float64]:
    """Average precision of each question's map by its mask on the planes' cells."""
    out = []
    with torch.no_grad():
        for some in np.array_split(which, max(1, len(which) // 64)):
            score = model(gathered(known, some, way.rows)).flatten(1)
            truth = torch.from_numpy(known.truths[some, 0]).float().flatten(1) >= 0.5
            hits = truth.gather(1, score.argsort(1, descending=True)).double()
            exact = hits.cumsum(1) / torch.arange(1, hits.shape[1] + 1)
            out.append(((exact * hits).sum(1) / hits.sum(1).clamp_min(1)).numpy())
    return np.concatenate(out)


def choose(known: Lessons, out: Path) -> tuple[Recipe, str]:
    """The recipe whose scorer is best on held-out photographs that it did not learn from, and the table."""
    held = known.held_out[known.photograph]
    halves = [np.flatnonzero(held & (known.photograph % 2 == half)) for half in (0, 1)]
    begin = np.mean([precision_of(CHOOSE_BY.model(known), CHOOSE_BY, known, half).mean() for half in halves])
    rows, best = [f"| the question alone | | | {begin:.4f} |"], (0.0, RECIPES[0])
    for i, recipe in enumerate(RECIPES):
        found = []
        for half, other in ((0, 1), (1, 0)):
            from_ = np.flatnonzero(~held) if recipe.source == "seen" else halves[half]
            file = out / f"choice-{i}-{0 if recipe.source == 'seen' else half}.pt"
            model, _ = learn(CHOOSE_BY, recipe, known, from_, CHOICE_STEPS, file)
            found.append(precision_of(model, CHOOSE_BY, known, halves[other]).mean())
        mean = float(np.mean(found))
        rows.append(f"| {recipe.source} | {recipe.truth} | {recipe.decay} | {mean:.4f} |")
        best = max(best, (mean, recipe), key=lambda pair: pair[0])
    return best[1], "\n".join(["| learned from | truth | decay | precision |", "|---|---|---|---|", *rows])
