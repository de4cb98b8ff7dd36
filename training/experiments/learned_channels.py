"""Learned channels: can planes be learned from pixels instead of made by hand?

    python -m training.experiments.learned_channels --data DATA --cache CACHE [--out FOLDER]

What: the seed documents' `LearnedTextureStuffer` (RGB, 3 x 3 convolution to 64, ReLU, 1 x 1 to N planes), trained for
two readers at once: saliency is one vector over the planes, a question a matrix times its vector over nano's names. The
same readers on the planes made by hand, and on filters that stay as they were drawn at random.
Why: the documents expect "no hand-designed features".
Verdict: out. A linear reader of 32 learned planes has a precision of .235 and .267, of 11 made by hand .216 and .262;
as saliency +.012 and -.044 of AUC. They are colours and edges again (`likeness`). All: docs/log.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from foveate.core.grid import resize_map
from foveate.encoders.nano import NanoEncoder
from foveate.language.query import prepare
from training import harness
from training.experiments.saliency import PIXELS, PLANES, SIDE, arrays_of, divergence, measure, target_of
from training.harness import Example, Judged, falling, fit, once

Floats = NDArray[np.float32]
RGB = 2 * SIDE  # pixels of a photograph's side: two by two for each sample
HIDDEN = 64  # as in the seed document
EPOCHS, BATCH, ASKED, RATE = 6, 16, 4, 3e-3  # ASKED: questions of a photograph in a step
BY_HAND = PIXELS
MEASURES = ("auc of things", *harness.MEASURES)
WAYS = {  # N, learned, frozen
    "by hand": (len(BY_HAND), False, False),
    "random filters, 32": (32, True, True),
    "learned, 8": (8, True, False),
    "learned, 16": (16, True, False),
    "learned, 32": (32, True, False),
}


class Generator(nn.Module):
    """RGB [n, 3, 64, 64] -> planes [n, N, 32, 32]: 3 x 3 to 64, ReLU, 1 x 1 to N, and the mean of each two by two."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, HIDDEN, 3, padding=1, padding_mode="replicate")
        self.second = nn.Conv2d(HIDDEN, channels, 1)

    def forward(self, rgb: Tensor) -> Tensor:
        hidden = functional.avg_pool2d(functional.relu(self.first(rgb)), 2)  # 1 x 1 and means commute
        out: Tensor = self.second(hidden)
        return out


class Reader(nn.Module):
    """Planes -> logits: of saliency by one vector, of a question by a matrix times its vector over nano's names."""

    def __init__(self, channels: int, names: int) -> None:
        super().__init__()
        self.normal = nn.BatchNorm2d(channels, affine=False, momentum=0.1)
        self.salient = nn.Parameter(torch.zeros(channels))
        self.asked = nn.Parameter(torch.zeros(channels, names))

    def forward(self, planes: Tensor, questions: Tensor) -> tuple[Tensor, Tensor]:
        """[n, N, h, w], [n, q, names] -> saliency [n, h, w], questions [n, q, h, w]."""
        x = self.normal(planes)
        return torch.einsum("nchw,c->nhw", x, self.salient), torch.einsum("nchw,nqc->nqhw", x, questions @ self.asked.T)


class Model(nn.Module):
    """A generator (or none: planes made by hand come in) and its reader. `frozen`: filters stay as they were drawn."""

    def __init__(self, channels: int, names: int, *, learned: bool, frozen: bool = False) -> None:
        super().__init__()
        self.make = Generator(channels) if learned else None
        self.read = Reader(channels, names)
        if self.make is not None and frozen:
            self.make.requires_grad_(False)

    def forward(self, rgb: Tensor, by_hand: Tensor, questions: Tensor) -> tuple[Tensor, Tensor]:
        out: tuple[Tensor, Tensor] = self.read(by_hand if self.make is None else self.make(rgb), questions)
        return out


@dataclass(frozen=True, eq=False)
class Data:
    """By photograph: rgb uint8 [n, 64, 64, 3], by_hand float16 [n, C, 32, 32], saliency's target [n, 32, 32], and of
    each question a vector [names] and a mask [32, 32]."""

    rgb: NDArray[np.uint8]
    by_hand: NDArray[np.float16]
    target: Floats
    vectors: list[Floats]
    masks: list[Floats]

    def batch(self, rows: NDArray[np.int64], random: np.random.Generator) -> tuple[list[Tensor], Tensor, Tensor]:
        some = [random.choice(len(self.masks[i]), ASKED) for i in rows]
        vectors = np.stack([self.vectors[i][n] for i, n in zip(rows, some, strict=True)])
        masks = np.stack([self.masks[i][n] for i, n in zip(rows, some, strict=True)])
        arrays = (_as_input(self.rgb[rows]), self.by_hand[rows].astype(np.float32), vectors)
        return [torch.from_numpy(x) for x in arrays], torch.from_numpy(self.target[rows]), torch.from_numpy(masks)


def _as_input(rgb: NDArray[np.uint8]) -> Floats:
    return np.ascontiguousarray(np.moveaxis(rgb, -1, 1).astype(np.float32) / 128 - 1)


def train(model: Model, data: Data, file: Path, epochs: int) -> Model:
    """The model, trained on the photographs that show a thing."""
    salient = np.array([i for i in range(len(data.rgb)) if data.target[i].any()])
    steps = -(-len(salient) // BATCH)

    def loss(step: int) -> Tensor:
        order = np.random.default_rng((0, step // steps)).permutation(salient)
        rows = order[step % steps * BATCH :][:BATCH]
        inputs, target, masks = data.batch(rows, np.random.default_rng((1, step)))
        saliency, asked = model(*inputs)
        return divergence(saliency, target) + divergence(asked.flatten(0, 1), masks.flatten(0, 1))

    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], weight_decay=1e-3)
    fit(loss, steps * epochs, file, optimiser, rate=falling(RATE, steps * epochs), every=steps, model=model)
    return model.eval()


@torch.no_grad()
def maps_of(model: Model, data: Data) -> tuple[list[Floats], list[Floats]]:
    """Of each photograph: saliency [32, 32], and its questions' maps [q, 32, 32]; not negative."""
    salient, asked = [], []
    for i in range(len(data.rgb)):
        inputs = (_as_input(data.rgb[i : i + 1]), data.by_hand[i : i + 1].astype(np.float32), data.vectors[i][None])
        one, questions = model(*map(torch.from_numpy, inputs))
        salient.append(torch.softmax(one.flatten(), 0).reshape(one.shape[1:]).numpy())
        asked.append(torch.softmax(questions[0].flatten(1), 1).reshape(questions.shape[1:]).numpy())
    return salient, asked


def data_of(examples: Sequence[Example], folder: Path, name: str) -> Data:
    """Of photographs; pixels are kept in `folder`/learned_channels, planes in `folder`/saliency."""

    def pixels() -> dict[str, NDArray[Any]]:
        some = tqdm(examples, desc=f"pixels, {name}", mininterval=5)
        rgb = (replace(e).texture.pixel for e in some)
        return {"rgb": np.stack([cv2.resize(x, (RGB, RGB), interpolation=cv2.INTER_AREA) for x in rgb])}

    encoder = NanoEncoder.built_in()
    vector = cache(lambda text: prepare(encoder, text).vectors[0].astype(np.float32))  # of its first phrase
    planes = arrays_of(examples, folder / "saliency", name).planes
    return Data(
        rgb=once(folder / "learned_channels" / f"{name}.npz", pixels)["rgb"],
        by_hand=planes[:, [PLANES.index(plane) for plane in BY_HAND]],
        target=np.stack([target_of(e.asked, (SIDE, SIDE)) for e in examples]),
        vectors=[np.stack([vector(one.text) for one in e.asked]) for e in examples],
        masks=[
            np.stack([resize_map(q.mask.astype(np.float32), (SIDE, SIDE)) + 1e-6 for q in e.asked]) for e in examples
        ],
    )


def part(data: Data, rows: NDArray[np.int64]) -> Data:
    """Of some of the photographs."""
    lists = ([some[i] for i in rows] for some in (data.vectors, data.masks))
    return Data(data.rgb[rows], data.by_hand[rows], data.target[rows], *lists)


def likeness(model: Model, data: Data) -> dict[str, float]:
    """Of each plane made by hand: how much of its variance the learned planes explain, linearly (R squared)."""
    assert model.make is not None
    with torch.no_grad():
        learned = np.concatenate(
            [model.make(torch.from_numpy(_as_input(data.rgb[i : i + 32]))).numpy() for i in range(0, len(data.rgb), 32)]
        )
    x = np.moveaxis(learned, 1, -1).reshape(-1, learned.shape[1]).astype(np.float64)
    x = np.c_[x - x.mean(0), np.ones(len(x))]
    y = np.moveaxis(data.by_hand, 1, -1).reshape(-1, len(BY_HAND)).astype(np.float64)
    left = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return {name: round(1 - float(left[:, i].var() / y[:, i].var()), 3) for i, name in enumerate(BY_HAND)}


def judged(models: dict[str, Model], examples: Sequence[Example], data: Data) -> Judged:
    """Way -> [questions, MEASURES]; the AUC of things is a photograph's, at its first question, else NaN."""
    found: dict[str, list[Any]] = {"photograph": [i for i, e in enumerate(examples) for _ in e.asked]}
    for way, model in models.items():
        salient, asked = maps_of(model, data)
        for i, example in enumerate(examples):
            target = target_of(example.asked)
            partly = 0 < (target > 0).mean() < 1
            auc = measure(resize_map(salient[i], target.shape), target)[0] if partly else np.nan
            for n, (one, plane) in enumerate(zip(example.asked, asked[i], strict=True)):
                row = harness.measured(plane, one, example.texture.grid)
                found.setdefault(way, []).append([np.nan if n else auc, *row])
            example.__dict__.pop("texture", None)
    return {way: np.array(values, np.float64) for way, values in found.items()}


def main() -> None:
    """Learns every way, judges held-out photographs and both sets."""
    args = harness.start("learned_channels", __doc__, out="learned_channels", options={"epochs": EPOCHS})
    torch.set_num_threads(1)
    examples = harness.learning(args.data, args.cache)
    data, held = data_of(examples, args.cache, "learning"), np.array([e.held_out for e in examples])
    taught, chosen = (part(data, np.flatnonzero(some)) for some in (~held, held))
    models: dict[str, Model] = {}
    for way, (channels, learned, frozen) in WAYS.items():
        torch.manual_seed(0)
        model = Model(channels, data.vectors[0].shape[1], learned=learned, frozen=frozen)
        models[way] = train(model, taught, args.out / f"{way.replace(', ', '-').replace(' ', '_')}.pt", args.epochs)
    sets = {"held out": ([e for e in examples if e.held_out], chosen)}
    sets |= {n: (some, data_of(some, args.cache, n)) for n, some in harness.held_back(args.data, args.cache).items()}
    report: dict[str, Any] = {f"explained by {w}": likeness(m, chosen) for w, m in models.items() if m.make is not None}
    for name, (some, of) in sets.items():
        found = judged(models, some, of)
        shown = harness.table(found, MEASURES, "by hand", ("auc of things", "precision"))
        print(f"\n{name}, {len(some)} photographs, {len(found['photograph'])} questions\n\n{shown}")
        report[name] = harness.record(found, MEASURES, "by hand")
    harness.report(args, "learned_channels", report)


if __name__ == "__main__":
    main()
