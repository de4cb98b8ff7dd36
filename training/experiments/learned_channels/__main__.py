"""Planes learned from pixels beside those made by hand, by the same linear read-out. See the package's docstring."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

import training.experiments.learned_channels
from foveate.cli.evaluate.agreement import Estimate, agreement, mean_estimate
from foveate.core.grid import resize_map
from foveate.encoders.nano import NanoEncoder
from foveate.language.query import prepare
from training.experiments.arguments import checked, command
from training.experiments.examples import MEASURES, Asked, Example, held_back, learning
from training.experiments.saliency import arrays as a
from training.experiments.saliency.model import divergence

Floats = NDArray[np.float32]
PIXELS = 2 * a.SIDE  # of a photograph's side: two by two for each sample
HIDDEN = 64  # as in the seed document
EPOCHS, BATCH, ASKED, RATE = 6, 16, 4, 3e-3  # ASKED: questions of a photograph in a step
BY_HAND = a.SETS["pixels"]


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


def train(model: Model, data: Data, file: Path, epochs: int, seed: int = 0) -> Model:
    """Trained, as `file` keeps it after every epoch; goes on where it was killed, to the same weights."""
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], RATE, weight_decay=1e-3)
    start = 0
    if file.exists():
        state = torch.load(file, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        start = state["epoch"]
    salient = np.array([i for i in range(len(data.rgb)) if data.target[i].any()])
    steps = -(-len(salient) // BATCH)
    for epoch in range(start, epochs):
        random = np.random.default_rng((seed, epoch))
        order = random.permutation(salient)
        for i in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = RATE * 0.5 * (1 + math.cos(math.pi * (epoch + i / steps) / epochs))
            inputs, target, masks = data.batch(order[i * BATCH : (i + 1) * BATCH], random)
            saliency, asked = model(*inputs)
            loss = divergence(saliency, target) + divergence(asked.flatten(0, 1), masks.flatten(0, 1))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        whole = file.with_suffix(".partial")
        torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), "epoch": epoch + 1}, whole)
        os.replace(whole, file)
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


# --- data -------------------------------------------------------------------------------------------------------------


def data_of(examples: Sequence[Example], cache: Path, name: str, weight: a.Weight) -> Data:
    folder = cache / "learned_channels"
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}.npy"
    if not file.exists():
        small = [
            cv2.resize(
                Example(e.name, e.file, e.asked, e.pixels).texture.pixel, (PIXELS, PIXELS), interpolation=cv2.INTER_AREA
            )
            for e in tqdm(examples, desc=f"pixels, {name}", mininterval=5)
        ]
        np.save(file.with_suffix(".partial.npy"), np.stack(small))
        os.replace(file.with_suffix(".partial.npy"), file)
    planes = a.arrays_of(examples, cache / "saliency", name).planes
    known: dict[str, Floats] = {}
    encoder = NanoEncoder.built_in()
    return Data(
        rgb=np.load(file),
        by_hand=planes[:, [a.PLANES.index(plane) for plane in BY_HAND]],
        target=np.stack([a.target_of(e.asked, weight, (a.SIDE, a.SIDE)) for e in examples]),
        vectors=[np.stack([_vector(encoder, one, known) for one in e.asked]) for e in examples],
        masks=[np.stack([_mask(one) for one in e.asked]) for e in examples],
    )


def _vector(encoder: NanoEncoder, asked: Asked, known: dict[str, Floats]) -> Floats:
    """Of the first phrase of a question, over nano's names."""
    if asked.text not in known:
        known[asked.text] = prepare(encoder, asked.text).vectors[0].astype(np.float32)
    return known[asked.text]


def _mask(asked: Asked) -> Floats:
    return resize_map(asked.mask.astype(np.float32), (a.SIDE, a.SIDE)) + 1e-6


def part(data: Data, rows: NDArray[np.int64]) -> Data:
    return Data(
        data.rgb[rows],
        data.by_hand[rows],
        data.target[rows],
        *([some[i] for i in rows] for some in (data.vectors, data.masks)),
    )


# --- the experiment ---------------------------------------------------------------------------------------------------

WAYS = {  # N, learned, frozen
    "by hand": (len(BY_HAND), False, False),
    "random filters, 32": (32, True, True),
    "learned, 8": (8, True, False),
    "learned, 16": (16, True, False),
    "learned, 32": (32, True, False),
}


def sheet(model: Model, data: Data, rows: Sequence[int]) -> NDArray[np.uint8]:
    """A row for each photograph: itself, then its planes, each from lowest to highest. uint8 [H, W, 3]."""
    assert model.make is not None
    lines = []
    for i in rows:
        with torch.no_grad():
            planes = model.make(torch.from_numpy(_as_input(data.rgb[i : i + 1])))[0].numpy()
        low, high = planes.min((1, 2), keepdims=True), planes.max((1, 2), keepdims=True)
        grey = np.rint(255 * (planes - low) / np.maximum(high - low, 1e-9)).astype(np.uint8)
        tiles = [data.rgb[i], *(np.repeat(cv2.resize(plane, (PIXELS, PIXELS))[..., None], 3, 2) for plane in grey)]
        lines.append(np.concatenate(tiles, 1))
    return np.concatenate(lines)


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


def judged(models: dict[str, Model], examples: Sequence[Example], data: Data) -> dict[str, dict[str, list[float]]]:
    """Way -> measure -> by photograph, or by question ("photograph": whose)."""
    found: dict[str, dict[str, list[float]]] = {}
    for way, model in models.items():
        values = found[way] = {
            "auc of things": [],
            "pointing": [],
            "precision": [],
            "coverage_10": [],
            "photograph": [],
        }
        salient, asked = maps_of(model, data)
        for i, example in enumerate(examples):
            target = a.target_of(example.asked, lambda _: 1.0)
            if 0 < (target > 0).mean() < 1:
                values["auc of things"].append(a.measure(resize_map(salient[i], target.shape), target)[0])
            for one, plane in zip(example.asked, asked[i], strict=True):
                agreed = agreement(resize_map(plane, one.mask.shape), one.mask)
                for name in ("pointing", "precision", "coverage_10"):
                    values[name].append(float(getattr(agreed, name)))
                values["photograph"].append(i)
    return found


def table(found: dict[str, dict[str, list[float]]]) -> str:
    lines = [
        "| way | AUC of things | by hand | pointing | precision | coverage | precision, by hand |",
        "|---" * 7 + "|",
    ]
    base = found["by hand"]
    for way, values in found.items():
        n, photographs = range(len(values["auc of things"])), [int(i) for i in values["photograph"]]
        things = mean_estimate(np.subtract(values["auc of things"], base["auc of things"]), n)
        right = mean_estimate(np.subtract(values["precision"], base["precision"]), photographs)
        cells = [np.mean(values["auc of things"]), things, *(np.mean(values[m]) for m in MEASURES), right]
        lines.append(f"| {way} | " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return (
        f"{value.mean:+.3f} ({value.low:+.3f} to {value.high:+.3f})" if isinstance(value, Estimate) else f"{value:.3f}"
    )


def main() -> None:
    parser = command("learned_channels", training.experiments.learned_channels.__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    args = checked(parser, out="learned_channels")
    out: Path = args.out
    torch.set_num_threads(1)
    examples = learning(args.data, args.cache)
    data = data_of(examples, args.cache, "learning", lambda _: 1.0)
    held = np.array([e.held_out for e in examples])
    taught, chosen = (part(data, np.flatnonzero(some)) for some in (~held, held))
    models: dict[str, Model] = {}
    for way, (channels, learned, frozen) in WAYS.items():
        torch.manual_seed(0)
        model = Model(channels, data.vectors[0].shape[1], learned=learned, frozen=frozen)
        file = out / f"{way.replace(', ', '-').replace(' ', '_')}-{args.epochs}.pt"
        models[way] = train(model, taught, file, args.epochs)
        print(f"{way}: {sum(p.numel() for p in model.make.parameters()) if model.make else 0} numbers", flush=True)
    sets = {"held out": ([e for e in examples if e.held_out], chosen)}
    for name, some in held_back(args.data, args.cache).items():
        sets[name] = some, data_of(some, args.cache, name, lambda _: 1.0)
    report: dict[str, Any] = {}
    for name, (some, of) in sets.items():
        found = judged(models, some, of)
        print(f"\n{name}, {len(some)} photographs, {len(found['by hand']['pointing'])} questions\n\n{table(found)}")
        report[name] = {
            way: {k: round(float(np.mean(v)), 4) for k, v in m.items() if k != "photograph"} for way, m in found.items()
        }
    for way, model in models.items():
        if model.make is not None:
            report[f"explained by {way}"] = likeness(model, chosen)
    Image.fromarray(sheet(models["learned, 8"], chosen, range(0, 60, 6))).save(out / "planes.png")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
