"""Train the head on frozen features (half an hour on two cores). A killed run continues from its last checkpoint.

    python -m training.nano.train --data DATA

The loss is quality focal loss of each name's logit on each cell against the share of the cell that the name covers
(labels) or the teacher's probability. Cells without the name weigh as much as the source knows of absence; cells with
it weigh more where the thing is small, and photographs of rare names are shown more often.
"""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from training.nano.features import LABELS, arguments, listed, place
from training.nano.head import COARSE, Head
from training.nano.labels import Labels, Names, is_held_out

BATCH, USUAL_CELLS, WARM, PEAK = 4, 64, 100, 2e-3
OTHERS = 64  # names of a step that none of its photographs shows
SIDE = 40  # cells of a crop
TAUGHT = ("stuff", "parts", "person", "points")


def load(data: Path, cache: Path, names: Names, most: int, held_out: bool, research: bool = True) -> list[tuple]:
    """Photographs with features: (Photograph, fine fp16, coarse fp16, coarse mean)."""
    book = Labels(data, LABELS, names)
    found, first = [], ("dense", "boxes")
    files = [item for item in listed(data, research) if place(cache, *item).exists()]
    rest = 0
    for archive, name in tqdm(files, desc="features", mininterval=5):
        labelled = archive in first or f"{archive}:{name}" in book.by_eye
        if is_held_out(name) != held_out or (not labelled and rest >= most):
            continue
        rest += not labelled
        with np.load(place(cache, archive, name)) as file:
            fine, coarse = file["fine"], file["coarse"]
            answers = {key: file[key] for key in TAUGHT}
        h, w = answers["stuff"].shape[1:]
        person, parts, points = (answers[key].astype(np.float16) / 255 for key in ("person", "parts", "points"))
        coarse = np.concatenate([coarse, parts * person, points, person])
        photo = book.target(archive, name, h, w, answers)
        found.append((photo, fine, coarse, coarse.astype(np.float32).mean((1, 2))))
    return found


def statistics(photos: list[tuple], which: int) -> tuple[Tensor, Tensor]:
    """Mean and deviation of the channels over a sample of photographs."""
    some = [p[which].astype(np.float32).reshape(p[which].shape[0], -1) for p in photos[:: max(1, len(photos) // 200)]]
    every = np.concatenate(some, 1)
    return torch.from_numpy(every.mean(1)), torch.from_numpy(every.std(1) + 1e-3)


def rarity(photos: list[tuple]) -> np.ndarray:
    """How often each photograph is shown: more where it holds names that few others hold."""
    there = np.stack([p[0].target.max((1, 2)) > 100 for p in photos])
    worth = (there / np.sqrt(np.maximum(there.sum(0), 1))).sum(1) + 0.1
    worth = np.minimum(worth, np.median(worth) * 12)
    return worth / worth.sum()


def batch_of(photos: list[tuple], picked: np.ndarray, random: np.random.Generator) -> tuple[Tensor, ...]:
    """fine, coarse, whole, target, weight, inside: crops of SIDE cells, half of them mirrored."""
    n, names, half = len(picked), len(photos[0][0].weight), SIDE // 2
    fine, coarse = np.zeros((n, 96, SIDE, SIDE), np.float32), np.zeros((n, COARSE, half, half), np.float32)
    target, inside = np.zeros((n, names, SIDE, SIDE), np.uint8), np.zeros((n, 1, SIDE, SIDE), np.float32)
    for k, i in enumerate(picked):
        photo, f, c, _ = photos[i]
        y, x = (int(random.integers(0, max(0, side - half) + 1)) for side in c.shape[1:])
        step = -1 if random.random() < 0.5 else 1
        f, c = f[:, 2 * y : 2 * y + SIDE, 2 * x : 2 * x + SIDE], c[:, y : y + half, x : x + half]
        t = photo.target[:, 2 * y : 2 * y + SIDE, 2 * x : 2 * x + SIDE]
        fine[k, :, : f.shape[1], : f.shape[2]] = f[..., ::step]
        coarse[k, :, : c.shape[1], : c.shape[2]] = c[..., ::step]
        left = f.shape[2] - t.shape[2] if step < 0 else 0  # padding lies on the other side of a mirrored photograph
        target[k, :, : t.shape[1], left : left + t.shape[2]] = t[..., ::step]
        inside[k, :, : t.shape[1], left : left + t.shape[2]] = 1
    whole = np.stack([photos[i][3] for i in picked])
    weight = np.stack([photos[i][0].weight for i in picked])
    return tuple(torch.from_numpy(x) for x in (fine, coarse, whole, target, weight, inside))


def asked(target: Tensor, weight: Tensor, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Names of a step: those that are there, and OTHERS of the rest, which then count for all of the rest."""
    there = (target > 25).any(-1).any(-1).any(0).numpy()
    rest = np.flatnonzero(~there & (weight > 0).any(0).numpy())
    some = random.permutation(rest)[:OTHERS]
    more = np.where(there, 1.0, max(1.0, len(rest) / max(len(some), 1)))
    only = np.sort(np.concatenate([np.flatnonzero(there), some]))
    return torch.from_numpy(only), torch.from_numpy(more).float()


def loss_of(logits: Tensor, target: Tensor, weight: Tensor, inside: Tensor) -> Tensor:
    t = target.float() / 255
    size = t.sum((2, 3), keepdim=True)
    more = (size / USUAL_CELLS).clamp(min=1e-3).rsqrt().clamp(0.5, 4)
    w = torch.maximum(weight[..., None, None], (t > 0.1).float()) * inside
    focal = (t - logits.sigmoid()).square() * F.binary_cross_entropy_with_logits(logits, t, reduction="none")
    return (focal * w * (1 + (more - 1) * t)).sum() / (more * t).sum().clamp(min=50)


def main() -> None:
    args = arguments(__doc__, steps=6500, unlabelled=200, seed=0)  # unlabelled: that only teachers speak of
    args.run.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    names = Names()
    photos = load(args.data, args.cache, names, args.unlabelled, held_out=False, research=not args.no_research)
    print(f"{len(photos)} photographs, {len(names.all)} names", flush=True)
    head = Head(len(names.all))
    head.standardise(statistics(photos, 1), statistics(photos, 2))
    head.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(head.parameters(), lr=PEAK, betas=(0.9, 0.99), weight_decay=0.02)
    average = {k: v.detach().clone() for k, v in head.state_dict().items()}
    start, checkpoint = 0, args.run / "head_checkpoint.safetensors"
    if checkpoint.exists():
        saved = load_file(checkpoint)
        start = int(saved.pop("step"))
        head.load_state_dict({k.removeprefix("head."): v for k, v in saved.items() if k.startswith("head.")})
        average = {k.removeprefix("average."): v for k, v in saved.items() if k.startswith("average.")}
        state: dict[int, dict[str, Tensor]] = {}
        for k, v in saved.items():
            if k.startswith("optimizer."):
                _, i, key = k.split(".", 2)
                state.setdefault(int(i), {})[key] = v
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        print(f"continuing at step {start}", flush=True)
    shown = rarity(photos)

    def make(step: int) -> tuple[Tensor, ...]:
        random = np.random.default_rng((args.seed, step))
        return batch_of(photos, random.choice(len(photos), BATCH, p=shown), random)

    began, sums = time.time(), []
    with ThreadPoolExecutor(1) as ahead:
        following = ahead.submit(make, start)
        for step in range(start, args.steps):
            fine, coarse, whole, target, weight, inside = following.result()
            following, random = ahead.submit(make, step + 1), np.random.default_rng((args.seed, step, 1))
            rate = PEAK * min(1.0, (step + 1) / WARM) * (0.5 + 0.5 * math.cos(math.pi * step / args.steps))
            for group in optimizer.param_groups:
                group["lr"] = rate
            only, more = asked(target, weight, random)
            logits = head(fine, coarse, whole, only)
            loss = loss_of(logits, target[:, only], weight[:, only] * more[only], inside)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(head.parameters(), 5.0)
            optimizer.step()
            keep = min(0.998, (step + 1) / (step + 10))
            with torch.no_grad():
                for k, v in head.state_dict().items():
                    average[k].lerp_(v, 1 - keep)
            sums.append(float(loss.detach()))
            if (step + 1) % 100 == 0:
                line = {"step": step + 1, "seconds": round(time.time() - began), "loss": round(float(np.mean(sums)), 4)}
                print(json.dumps(line), flush=True)
                sums = []
            if (step + 1) % 500 == 0 or step + 1 == args.steps:
                tensors = {f"head.{k}": v.contiguous() for k, v in head.state_dict().items()}
                tensors |= {f"average.{k}": v.contiguous() for k, v in average.items()}
                for i, state in optimizer.state_dict()["state"].items():
                    tensors |= {f"optimizer.{i}.{k}": v.contiguous() for k, v in state.items()}
                save_file(tensors | {"step": torch.tensor(step + 1)}, checkpoint.with_suffix(".part"))
                checkpoint.with_suffix(".part").rename(checkpoint)
    head.load_state_dict(average)
    save_file({k: v.contiguous() for k, v in head.state_dict().items()}, args.run / "head.safetensors")
    (args.run / "head.json").write_text(json.dumps({"names": names.all}, indent=1))


if __name__ == "__main__":
    main()
