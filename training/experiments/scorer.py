"""A scorer of channels: the published recipe, and weights that are learned instead.

    python -m training.experiments.scorer --data DATA --cache CACHE [--out FOLDER]

What: the documents' recipe as written (`Published`: 13 channels, 256 candidates, 64 kept), and a linear scorer of a
question's own maps and 40 channels (`TextureScorer`), learned through a top-K whose IoU has a gradient (`keep_softly`).
Why: the documents expect IoU of kept cells from .25 to .65, "2.6 times", in 1,000 steps.
Verdict: out. The recipe goes from .047 to .149, where the centre alone has .148 and the question alone .263; its loss
has no gradient. No learned scorer keeps better cells than the question alone. All rows, and those of scorers without
the question and with 3 x 3 of each plane: docs/log.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

import foveate
from foveate.allocation.policies import top_cells
from foveate.core.grid import Grid, resize_map
from foveate.core.layout import FULL40, GRID13, Layout
from foveate.relevance.boxes import cells_of, overlap
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from training import harness
from training.harness import Asked, Example, Map, falling, fit, once

Floats = NDArray[np.float32]
ALONE, LEARNED_SCORER = "the question alone (default)", "learned: everything"
SEEN, QUESTIONS = 400, 6  # photographs that the head has seen, beside all that are held out; questions of each
STEPS, PUBLISHED_STEPS, BATCH, SEED, RATE = 600, 1000, 16, 0, 0.01
DECAY = 0.03  # how strongly a scorer is held to where it begins; chosen on held-out photographs (docs/log.md)
SHARP = 0.1  # temperature of the published scores, which lie within [0, 1]
PIXELS, CANDIDATES, KEPT = 1024, 16, 64  # of the published recipe

# --- what a scorer reads ----------------------------------------------------------------------------------------------

LEARNED = 32  # cells of a plane that is learned from, both ways, as in the documents
ASKED = ("question", "own", "segment", "highest", "lowest")  # what a question adds: see `asked_of`
CHANNELS = Layout("stuffed", FULL40.names + tuple(name for name in GRID13.names if name not in FULL40.names))
NAMES = CHANNELS.names + ASKED
EVERYTHING = range(len(NAMES))
SMALLEST = 1e-6  # relevance nearer to 0 or 1 is not told apart; much is within .001 of 1


def logit(p: NDArray[np.floating]) -> Floats:
    """log(p / (1 - p)), within +- 13.8."""
    inside = np.clip(np.asarray(p, np.float64), SMALLEST, 1 - SMALLEST)
    return np.asarray(np.log(inside / (1 - inside)), np.float32)


def channels_of(texture: Texture, grid: Grid) -> Floats:
    """Every channel on a grid: float32 [len(CHANNELS), h, w]."""
    return np.moveaxis(texture.tokens(grid, CHANNELS).reshape(*grid.shape, -1), -1, 0)


def asked_of(relevance: Relevance, shape: tuple[int, int]) -> Floats:
    """What a question adds, as log(p / (1 - p)) on [h, w]: float32 [len(ASKED), h, w].

    Its map, the map without segments and cues, its segments' mean, the highest and lowest of its words' and phrases'.
    """
    own = relevance.reasons["participation"]
    words = [*relevance.parts.values()] or [own]
    words += [relevance.reasons[name] for name in relevance.reasons.keys() & set(relevance.confidences)]
    planes = (relevance.map, own, relevance.reasons.get("segment", own), np.max(words, 0), np.min(words, 0))
    return np.stack([resize_map(logit(plane), shape) for plane in planes])


def truths_of(asked: Asked, grid: Grid) -> NDArray[np.float32]:
    """The mask's share of each cell, and the cells of the boxes: float32 [2, h, w] in [0, 1]."""
    return np.stack([resize_map(asked.mask.astype(np.float32), grid.shape), cells_of(asked.boxes, grid)]).astype("f4")


@dataclass(frozen=True, eq=False)
class Lessons:
    """Questions to learn from, n of them about m photographs.

    Attributes:
        channels: float16 [m, len(CHANNELS), LEARNED, LEARNED]. asked: float16 [n, len(ASKED), LEARNED, LEARNED].
        truths: float16 [n, 2, LEARNED, LEARNED], mask and boxes. sampled: float32 [m, 256, 13], of the recipe.
        texts: n of them. photograph: int64 [n]. held_out: bool [m], not seen by the head whose maps are learned from.
    """

    channels: NDArray[np.float16]
    asked: NDArray[np.float16]
    truths: NDArray[np.float16]
    sampled: Floats
    texts: tuple[str, ...]
    photograph: NDArray[np.int64]
    held_out: NDArray[np.bool_]


def chosen(examples: Sequence[Example], seen: int, questions: int) -> list[Example]:
    """Every photograph held out and `seen` others, in the order given, with at most so many questions each."""
    random = np.random.default_rng(SEED)
    rest = [i for i, example in enumerate(examples) if not example.held_out]
    wanted = set(random.permutation(rest)[:seen].tolist()) | {i for i, e in enumerate(examples) if e.held_out}
    out = []
    for i in sorted(wanted):
        example = examples[i]
        which = sorted(random.permutation(len(example.asked))[:questions].tolist())
        out.append(Example(example.name, example.file, tuple(example.asked[j] for j in which), example.pixels))
    return out


def lessons(examples: Sequence[Example], folder: Path) -> Lessons:
    """Read, or made first: one file a photograph, so a run that was killed goes on."""
    parts = []
    for example in tqdm(examples, desc="planes", mininterval=5):
        asked = "".join(one.text for one in example.asked)
        name = hashlib.sha256(f"{example.name} {asked} {SMALLEST} {LEARNED}".encode()).hexdigest()[:16]
        part = once(folder / f"{name}.npz", lambda example=example: _planes(example))  # type: ignore[misc]
        example.__dict__.pop("texture", None)
        parts.append(part)
    stacked = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Lessons(
        **stacked,
        texts=tuple(one.text for example in examples for one in example.asked),
        photograph=np.repeat(np.arange(len(parts)), [len(part["asked"]) for part in parts]),
        held_out=np.array([example.held_out for example in examples]),
    )


def _planes(example: Example) -> dict[str, NDArray[np.floating]]:
    texture = example.texture
    grid = Grid(LEARNED, LEARNED, texture.grid.height, texture.grid.width)
    found = foveate.score(texture, [one.text for one in example.asked])
    return {
        "channels": channels_of(texture, grid)[None].astype(np.float16),
        "asked": np.stack([asked_of(one, grid.shape) for one in found]).astype(np.float16),
        "truths": np.stack([truths_of(one, grid) for one in example.asked]).astype(np.float16),
        "sampled": samples(texture)[None],
    }


def batches(count: int, size: int, steps: int, seed: int = SEED) -> NDArray[np.int64]:
    """Numbers of questions for each step [steps, size], every one once an epoch."""
    random = np.random.default_rng(seed)
    order = np.concatenate([random.permutation(count) for _ in range(-(-size * steps // count))])
    return order[: size * steps].reshape(steps, size)


def statistics(known: Lessons, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Mean and spread of planes: float32 [C] each; a plane without spread is left as it is."""
    planes = gathered(known, np.random.default_rng(SEED).permutation(len(known.photograph))[:400], rows)
    spread = planes.std((0, 2, 3))
    return planes.mean((0, 2, 3)), torch.where(spread > 1e-4, spread, 1.0)


def gathered(known: Lessons, which: NDArray[np.int64], rows: Sequence[int]) -> Tensor:
    """Planes of some questions, by their places in NAMES: float32 [B, len(rows), h, w]."""
    planes = np.concatenate([known.channels[known.photograph[which]], known.asked[which]], 1)
    return torch.from_numpy(planes[:, list(rows)]).float()


# --- models ----------------------------------------------------------------------------------------------------------


def keep_softly(score: Tensor, count: Tensor, temperature: float = 1.0) -> Tensor:
    """How far each cell is kept, in (0, 1): score [B, n], count [B] in (0, n) -> [B, n], whose rows sum to count.

    kept_i = sigmoid((s_i - t) / T) with t so that they sum to count: t by bisection, and one step of Newton's method
    beside it carries the gradient of the implicit function theorem. As T falls to 0 it becomes the highest cells.
    """
    with torch.no_grad():
        low = score.amin(-1, keepdim=True) - 20 * temperature
        high = score.amax(-1, keepdim=True) + 20 * temperature
        for _ in range(30):
            middle = (low + high) / 2
            more = torch.sigmoid((score - middle) / temperature).sum(-1, keepdim=True) > count[:, None]
            low, high = torch.where(more, middle, low), torch.where(more, high, middle)
        threshold = (low + high) / 2
        slope = torch.sigmoid((score - threshold) / temperature)
        slope = (slope * (1 - slope)).sum(-1, keepdim=True).clamp_min(1e-6)
    rest = torch.sigmoid((score - threshold) / temperature).sum(-1, keepdim=True) - count[:, None]
    return torch.sigmoid((score - threshold) / temperature - rest / slope)


def iou_loss(score: Tensor, truth: Tensor, count: Tensor | None = None, temperature: float = 1.0) -> Tensor:
    """1 - IoU of softly kept cells with truth, [B, n] in [0, 1]; of as many as the truth has without a count [B]."""
    area = truth.sum(-1)
    count = area if count is None else count
    kept = keep_softly(score, count.clamp(1, score.shape[-1] - 1), temperature)
    both = (kept * truth).sum(-1)
    return (1 - both / (kept.sum(-1) + area - both)).mean()


class TextureScorer(nn.Module):
    """Planes [B, C, h, w] -> score [B, h, w]: a weighted sum, of `plane` alone at first.

    mean, spread: of each plane over the lessons [C]; planes are moved and scaled by them first.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, mean: Tensor, spread: Tensor, plane: int) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("spread", spread)
        self.channel_weights = nn.Parameter(torch.ones(len(mean)))
        self.combiner = nn.Parameter(torch.zeros(len(mean)))
        self.bias = nn.Parameter(mean[plane].clone())
        with torch.no_grad():
            self.combiner[plane] = spread[plane]

    def forward(self, planes: Tensor) -> Tensor:
        """Weight, combine."""
        planes = (planes - self.mean[:, None, None]) / self.spread[:, None, None]
        return torch.einsum("bchw,c->bhw", planes, self.combiner * self.channel_weights) + self.bias


def samples(texture: Texture) -> Floats:
    """The recipe's 13 channels at its candidates: float32 [256, 13], row by row.

    256 candidates at its stride of 16 do not fit 1,024 pixels, so they lie 64 apart; its Laplacian has no size: 3 x 3.
    """
    rgb = np.stack([texture.channel(name) for name in ("red", "green", "blue")], -1)
    square = np.asarray(cv2.resize(rgb, (PIXELS, PIXELS), interpolation=cv2.INTER_AREA), np.float32)
    grey = square.mean(-1)
    edges = np.hypot(*(cv2.Sobel(grey, cv2.CV_32F, *d, ksize=3) / 8 for d in ((1, 0), (0, 1))))
    laplacian = cv2.filter2D(grey, cv2.CV_32F, (np.ones((3, 3)) - 9 * np.diag([0, 1, 0])) / 16)
    y, x = np.mgrid[:PIXELS, :PIXELS].astype(np.float32)
    away = np.hypot(y - (PIXELS - 1) / 2, x - (PIXELS - 1) / 2)
    eccentricity = away / away.max()
    nothing = np.zeros_like(grey)
    planes = [*np.moveaxis(square, -1, 0), y, x, eccentricity, edges, 1 - edges, laplacian]
    planes += [cv2.GaussianBlur(grey, (5, 5), 1), nothing, 1 - eccentricity, nothing]
    at = PIXELS // CANDIDATES * np.arange(CANDIDATES) + PIXELS // CANDIDATES // 2
    return np.stack([plane[np.ix_(at, at)].ravel() for plane in planes], -1).astype(np.float32)


class Published(nn.Module):
    """The recipe's eight weights, beginning where it has them; its participation ignores the question."""

    def __init__(self) -> None:
        super().__init__()
        self.info_weights = nn.Parameter(torch.tensor([0.4, 0.3, 0.3]))
        self.persp_weights = nn.Parameter(torch.tensor([0.6, 0.4]))
        self.tension_weights = nn.Parameter(torch.tensor([0.33, 0.33, 0.34]))

    def forward(self, features: Tensor) -> Tensor:
        """[..., 256, 13] -> scores [..., 256]."""
        information = (features[..., [6, 7, 8]] * self.info_weights).sum(-1)
        perspective = (features[..., [5, 11]] * self.persp_weights).sum(-1)
        participation = torch.full_like(information, 0.5)
        return (torch.stack([information, perspective, participation], -1) * self.tension_weights).sum(-1)


def hard_loss(score: Tensor, truth: Tensor, kept: int = KEPT) -> Tensor:
    """1 - IoU of the highest cells of score [B, n] with truth [B, n]; the published loss. It carries no gradient."""
    mask = torch.zeros_like(score).scatter(-1, score.topk(kept, -1).indices, 1.0)
    return (1 - (mask * truth).sum(-1) / torch.maximum(mask, truth).sum(-1)).mean()


def learn(known: Lessons, from_: NDArray[np.int64], steps: int, file: Path) -> TextureScorer:
    """A scorer of everything from those questions, by the cells of their masks; it begins with the question alone."""
    model = TextureScorer(*statistics(known, EVERYTHING), NAMES.index("question"))
    plan = batches(len(from_), BATCH, steps)
    first = [parameter.detach().clone() for parameter in model.parameters()]

    def loss(step: int) -> Tensor:
        which = from_[plan[step]]
        score = model(gathered(known, which, EVERYTHING)).flatten(1)
        away = sum(((p - q) ** 2).sum() for p, q in zip(model.parameters(), first, strict=True))
        return iou_loss(score, torch.from_numpy(known.truths[which, 0]).float().flatten(1)) + DECAY * away

    fit(loss, steps, file, torch.optim.Adam(model.parameters()), rate=falling(RATE, steps), model=model)
    return model


def learn_published(known: Lessons, file: Path, steps: int) -> tuple[Published, dict[str, Any]]:
    """Its 1,000 steps, with its loss' soft twin; and what its own loss says at both ends."""
    model = Published()
    rest = np.flatnonzero(~known.held_out[known.photograph])
    plan = batches(len(rest), BATCH, steps)

    def lesson(which: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        truth = nn.functional.adaptive_avg_pool2d(torch.from_numpy(known.truths[which, 1:]).float(), CANDIDATES)
        return torch.from_numpy(known.sampled[known.photograph[which]]), truth.flatten(1).ge(0.5).float()

    def loss(step: int) -> Tensor:
        features, truth = lesson(rest[plan[step]])
        return iou_loss(model(features), truth, torch.full((len(truth),), float(KEPT)), SHARP)

    features, truth = lesson(rest)
    before = hard_loss(model(features), truth)
    fit(loss, steps, file, torch.optim.Adam(model.parameters()), rate=falling(RATE, steps), model=model)
    after = hard_loss(model(features), truth)
    said = {"its loss has a gradient": before.requires_grad, "before": 1 - before.item(), "after": 1 - after.item()}
    return model, said | {"weights": {name: p.tolist() for name, p in model.named_parameters()}}


# --- judging ---------------------------------------------------------------------------------------------------------

MEASURES = ("IoU, 64 of 256", "IoU, as many", *harness.MEASURES)


def measured(plane: Map, asked: Asked, grid: Grid) -> tuple[float, ...]:
    """Of a map [h, w] on any cells: MEASURES.

    IoU is that of kept cells with the cells of the true boxes: 64 of 16 x 16 as published, and on the texture's own
    grid as many as the boxes have. The other three are the harness's, of the mask.
    """
    few = Grid(CANDIDATES, CANDIDATES, grid.height, grid.width)
    boxes = cells_of(asked.boxes, grid)
    ious = [
        overlap(_highest(resize_map(plane, few.shape), KEPT), cells_of(asked.boxes, few)).iou,
        overlap(_highest(resize_map(plane, grid.shape), int(boxes.sum())), boxes).iou,
    ]
    return (*ious, *harness.measured(plane, asked, grid))


def _highest(plane: NDArray[np.floating], count: int) -> NDArray[np.bool_]:
    kept = np.zeros(plane.size, bool)
    kept[top_cells(plane.ravel(), count)] = True
    return kept.reshape(plane.shape)


def maps_by(model: TextureScorer, published: dict[str, Published]) -> Callable[..., Any]:
    """Every map of a photograph's questions, on the texture's own grid."""

    def maps(example: Example) -> list[dict[str, NDArray[np.floating]]]:
        texture = example.texture
        grid = texture.grid
        channels = channels_of(texture, grid)
        sampled = torch.from_numpy(samples(texture))
        blind: dict[str, NDArray[np.floating]] = {
            "random": np.random.default_rng([*example.name.encode()]).random(grid.shape)
        }
        blind |= {"the centre": 1 - texture.channel("eccentricity"), "saliency": texture.channel("saliency")}
        out = []
        with torch.no_grad():
            for name, recipe in published.items():
                blind[name] = recipe(sampled).reshape(CANDIDATES, CANDIDATES).numpy()
            for asked, relevance in zip(
                example.asked, foveate.score(texture, [one.text for one in example.asked]), strict=True
            ):
                planes = torch.from_numpy(np.concatenate([channels, asked_of(relevance, grid.shape)]))
                score = model(planes[None])[0].double().numpy()
                found = blind | {ALONE: relevance.map, LEARNED_SCORER: like(score, relevance.map)}
                found["oracle: the mask"] = resize_map(asked.mask.astype(np.float32), grid.shape)
                found["oracle: the boxes"] = cells_of(asked.boxes, grid).astype(np.float32)
                out.append(found)
        return out

    return maps


def like(score: NDArray[np.floating], question: NDArray[np.floating]) -> NDArray[np.floating]:
    """The values of the question's map in a score's order, both [h, w]; of equal scores the first has the higher one.

    Learned scores grow, and beyond 16 a map of 32 bits is 1 everywhere. So both maps have the same values, and differ
    in nothing but where these lie.
    """
    found = np.empty(score.size, question.dtype)
    found[np.argsort(-score.ravel(), kind="stable")] = np.sort(question.ravel())[::-1]
    return found.reshape(score.shape)


def main() -> None:
    """Planes, every scorer learned, both sets judged."""
    args = harness.start("scorer", __doc__, out="scorer-run")
    torch.set_num_threads(1)
    known = lessons(chosen(harness.learning(args.data, args.cache), SEEN, QUESTIONS), args.cache / "scorer")
    trained, said = learn_published(known, args.out / "published.pt", PUBLISHED_STEPS)
    print(f"The published recipe on its own lessons: {json.dumps(said)}\n")
    from_ = np.flatnonzero(~known.held_out[known.photograph])
    model = learn(known, from_, STEPS, args.out / "learned.pt")
    published = {"published, untrained": Published(), "published, 1,000 steps": trained}
    report: dict[str, Any] = {"published": said}
    for name, examples in harness.held_back(args.data, args.cache).items():
        judged = harness.judge(examples, maps_by(model, published), measured)
        numbers = judged["photograph"].astype(int).tolist()
        shown = harness.table(judged, MEASURES, ALONE, ("IoU, as many", "precision"))
        print(f"\n{name}: {len(numbers)} questions, {len(examples)} photographs\n\n{shown}\n")
        first = judged["published, untrained"][:, 0]
        ratios = (f"{w} {harness.ratio_estimate(r[:, 0], first, numbers)}" for w, r in harness.ways_of(judged).items())
        print("IoU, 64 of 256, in times of the untrained recipe: " + "; ".join(ratios))
        report[name] = harness.record(judged, MEASURES, ALONE)
    harness.report(args, "scorer", report)


if __name__ == "__main__":
    main()
