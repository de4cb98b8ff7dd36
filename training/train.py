"""Train the image side of nano (33 minutes on two cores, with other work beside it).

    python training/train.py --data ../shared/data --cache training/cache --out training/run

A killed run continues from its last checkpoint when the same command is given again. `--steps 50` is a smoke test.

The loss has four parts, all against the frozen text table. With f the unit feature of a cell and t the unit vector of
a name (a class is called by one of its names at random in each step):
* detector: quality focal loss between sigmoid(a f.t + b) and the detector's soft score, for its 80 classes. This is
  what makes the score absolute: a thing that is not there must score low everywhere.
* rivals: cross-entropy over all 1,280 classes in cells that the detector is sure of. Without it the maps of
  different questions look alike (objectness).
* words: the classifier's answer on 32-pixel blocks, and the boxes of tiny ImageNet. This is where words beyond the
  detector's 80 come from.
* absent nouns: 64 random nouns a step, unlike anything the teachers saw in the picture, must score low.
"""

from __future__ import annotations

import argparse
import json
import math
import queue
import random
import threading
import time
from pathlib import Path

import numpy as np
import torch
from data import NOTHING, Photographs, Sample, Tiny
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F
from tower import NAMES, Tower, load_detector
from tqdm import tqdm
from words import Vocabulary

PHOTOGRAPHS, FROM_AFAR, MOSAICS = 4, 2, 2  # a step: one photograph, four from afar, tiny ImageNet
SIDE = 320
COCO, IMAGENET = slice(0, 80), slice(80, 1080)
WEIGHT = {"detector": 1.0, "rivals": 0.5, "blocks": 0.5, "boxes": 0.7, "absent": 0.2}
USUAL_CELLS = 64  # a thing of this size has weight 1; smaller ones more, or the large ones would be all that counts
WARM = 200  # steps
PEAK = 2e-3  # learning rate


class Scales(nn.Module):
    """Slope and offset of the absolute score, slope of the rivals' softmax; logarithms keep slopes positive."""

    def __init__(self) -> None:
        super().__init__()
        self.log_a, self.b = nn.Parameter(torch.tensor(20.0).log()), nn.Parameter(torch.tensor(-3.0))
        self.log_t = nn.Parameter(torch.tensor(100.0).log())

    def absolute(self, cosine: Tensor) -> Tensor:
        return self.log_a.exp() * cosine + self.b


def quality_focal(logits: Tensor, target: Tensor) -> Tensor:
    """|target - p|^2 x cross-entropy (Li et al. 2020, Generalized Focal Loss, eq. 1): soft targets, rare positives."""
    return (target - logits.sigmoid()).square() * F.binary_cross_entropy_with_logits(logits, target, reduction="none")


def losses(
    f: Tensor, batch: dict[str, Tensor], text: Tensor, near: Tensor, scales: Scales, nouns: Tensor, noun_ok: Tensor
) -> dict:
    """f: unit features [n, 256, h, w]; text [1280, 256]; near bool [1280, 1280]; nouns [m, 256]; noun_ok [n, m]."""
    out = {}
    soft, valid = batch["soft"], batch["valid"]
    soft = soft * valid[:, None]
    size = soft.sum((2, 3), keepdim=True)
    weight = (size / USUAL_CELLS).clamp(min=1e-3).rsqrt().clamp(0.5, 4)  # [n, 80, 1, 1]
    cosine = torch.einsum("ndhw,kd->nkhw", f, text[COCO])
    focal = quality_focal(scales.absolute(cosine), soft) * (1 + (weight - 1) * soft) * valid[:, None]
    out["detector"] = focal.sum() / (weight * soft).sum().clamp(min=50)

    cells = f.permute(0, 2, 3, 1)
    mass = soft.permute(0, 2, 3, 1)  # [n, h, w, 80]
    sure = mass.amax(-1) > 0.2
    target = torch.zeros(int(sure.sum()), len(text))
    target[:, COCO] = mass[sure]
    importance = (weight * soft).amax(1)[sure]
    out["rivals"] = competition(cells[sure], target, text, near, scales, importance)

    boxed = batch["label"] != NOTHING
    hot = F.one_hot(batch["label"][boxed], len(text)).float()
    out["boxes"] = competition(cells[boxed], hot, text, near, scales)

    pooled = F.avg_pool2d(f, 4).permute(0, 2, 3, 1)  # not re-normalised: a block of one kind keeps its length
    clear = batch["probability"][..., 0] > 0.3
    target = torch.zeros(int(clear.sum()), len(text))
    target.scatter_(1, batch["words"][clear] + IMAGENET.start, batch["probability"][clear])
    out["blocks"] = competition(pooled[clear], target, text, near, scales)

    strange = scales.absolute(torch.einsum("ndhw,md->nmhw", f, nouns))
    strange = quality_focal(strange, torch.zeros_like(strange))
    asked = noun_ok[:, :, None, None] * valid[:, None]
    out["absent"] = (strange * asked).sum() / soft.sum().clamp(min=50)
    return out


def competition(
    f: Tensor, target: Tensor, text: Tensor, near: Tensor, scales: Scales, weight: Tensor | None = None
) -> Tensor:
    """Weighted cross-entropy of softmax(t f.text) to target rows; names near a target's, if no target, are left out."""
    if not len(f):
        return torch.zeros(())
    weight = target.sum(1).clamp(max=1) if weight is None else weight
    involved = target > 0.1 * target.amax(1, keepdim=True)
    excluded = ((involved.float() @ near.float()) > 0) & ~involved
    logits = (scales.log_t.exp() * f @ text.T).masked_fill(excluded, -1e4)
    target = target * involved
    target = target / target.sum(1, keepdim=True).clamp(min=1e-6)
    return (-(target * logits.log_softmax(1)).sum(1) * weight).sum() / weight.sum().clamp(min=1e-6)


def absent_nouns(
    samples: list[Sample], vocabulary: Vocabulary, rng: random.Random, count: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """-> (vectors [count, 256], bool [n, count]: is unlike everything that the teachers saw in sample n)."""
    picked = rng.sample(range(len(vocabulary.nouns)), count)
    ok = []
    for s in samples:
        seen = set(np.flatnonzero(s.soft.max((1, 2)) > 0.1)) | set(s.words[s.probability > 0.1] + IMAGENET.start)
        ok.append(~vocabulary.noun_near[picked][:, sorted(seen)].any(1))
    return vocabulary.nouns[picked], np.stack(ok)


def batches(photos: Photographs, tiny: Tiny, vocabulary: Vocabulary, seed: int, start: int, steps: int) -> queue.Queue:
    """Samples are made on a thread of their own; step i depends on (seed, i) alone, so a resumed run sees the same."""
    q: queue.Queue = queue.Queue(maxsize=4)

    def make() -> None:
        for step in range(start, steps):
            rng = random.Random(f"{seed}/{step}")
            samples = [photos.sample(rng, SIDE) for _ in range(PHOTOGRAPHS)]
            samples += [photos.mosaic(rng, SIDE) for _ in range(FROM_AFAR)]
            samples += [tiny.sample(rng, SIDE) for _ in range(MOSAICS)]
            batch = {
                key: torch.from_numpy(np.stack([getattr(s, key) for s in samples])) for key in Sample.__annotations__
            }
            nouns, ok = absent_nouns(samples, vocabulary, rng)
            q.put((batch, torch.from_numpy(vocabulary.sample(rng)), torch.from_numpy(nouns), torch.from_numpy(ok)))

    threading.Thread(target=make, daemon=True).start()
    return q


def rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine to zero."""
    return min(1.0, (step + 1) / WARM) * (0.5 + 0.5 * math.cos(math.pi * step / max(steps, 1)))


def save(path: Path, tower: Tower, scales: Scales, optimizer: torch.optim.Optimizer, average: dict, step: int) -> None:
    tensors = {f"tower.{k}": v for k, v in tower.state_dict().items()}
    tensors |= {f"scales.{k}": v for k, v in scales.state_dict().items()}
    tensors |= {f"average.{k}": v for k, v in average.items()}
    tensors |= {
        f"optimizer.{i}.{k}": v for i, state in optimizer.state_dict()["state"].items() for k, v in state.items()
    }
    save_file({k: v.contiguous() for k, v in tensors.items()}, path.with_suffix(".part"), {"step": str(step)})
    path.with_suffix(".part").rename(path)


def resume(path: Path, tower: Tower, scales: Scales, optimizer: torch.optim.Optimizer) -> tuple[int, dict]:
    """-> (step to start at, averaged weights)."""
    with safe_open(path, "pt") as file:
        parts: dict[str, dict] = {"tower": {}, "scales": {}, "average": {}, "optimizer": {}}
        for key in file.keys():  # noqa: SIM118 - not a dict
            part, name = key.split(".", 1)
            parts[part][name] = file.get_tensor(key)
        step = int(file.metadata()["step"])
    tower.load_state_dict(parts["tower"])
    scales.load_state_dict(parts["scales"])
    state: dict[int, dict] = {}
    for name, tensor in parts["optimizer"].items():
        index, key = name.split(".", 1)
        state.setdefault(int(index), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return step, parts["average"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("training/cache"))
    parser.add_argument("--out", type=Path, default=Path("training/run"))
    parser.add_argument("--assets", type=Path, default=Path("src/foveate/encoders/assets"))
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    torch.set_default_device(device)

    vocabulary = Vocabulary(args.data, args.assets)
    near = torch.from_numpy(vocabulary.near).to(device)
    tower, scales = Tower(), Scales()
    load_detector(tower, str(args.data / "teachers/yolox_nano.onnx"))
    tower.teach(torch.from_numpy(vocabulary.first[:NAMES]), torch.arange(NAMES), torch.ones(NAMES))
    tower.to(memory_format=torch.channels_last)  # a step takes 0.41 instead of 0.58 s on two cores
    tower.freeze()
    groups = [
        {"params": [p for p in tower.parameters() if p.requires_grad], "weight_decay": 0.02},
        {"params": list(scales.parameters()), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.999))
    average = {k: v.detach().clone() for k, v in tower.state_dict().items()}

    start, checkpoint = 0, args.out / "checkpoint.safetensors"
    if checkpoint.exists():
        start, average = resume(checkpoint, tower, scales, optimizer)
        average = {k: v.to(device) for k, v in average.items()}
        print(f"continuing at step {start}")
    photos, tiny = Photographs(args.data, args.cache), Tiny(args.data, vocabulary.tiny)
    source = batches(photos, tiny, vocabulary, args.seed, start, args.steps)

    began, history = time.time(), {}
    steps = range(start, args.steps)
    for step in tqdm(steps, desc="training", initial=start, total=args.steps, mininterval=5):
        batch, text, nouns, ok = (
            {k: v.to(device) for k, v in x.items()} if isinstance(x, dict) else x.to(device) for x in source.get()
        )
        for group in optimizer.param_groups:
            group["lr"] = PEAK * rate(step, args.steps)
        f = tower(batch["rgb"].permute(0, 3, 1, 2).float())
        parts = losses(f, batch, text, near, scales, nouns, ok)
        total = sum(WEIGHT[k] * v for k, v in parts.items())
        optimizer.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(tower.parameters(), 5.0)
        optimizer.step()
        keep = min(0.999, (step + 1) / (step + 10))
        with torch.no_grad():
            for k, v in tower.state_dict().items():
                average[k].lerp_(v, 1 - keep) if v.is_floating_point() else average[k].copy_(v)
        for k, v in parts.items():
            history.setdefault(k, []).append(float(v.detach()))
        if (step + 1) % 50 == 0:
            line = {
                "step": step + 1,
                "seconds": round(time.time() - began),
                **{k: round(float(np.mean(v)), 4) for k, v in history.items()},
            }
            line |= {
                "a": round(float(scales.log_a.detach().exp()), 2),
                "b": round(float(scales.b.detach()), 2),
                "t": round(float(scales.log_t.detach().exp()), 2),
            }
            print(json.dumps(line), flush=True)
            with (args.out / "log.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
            history = {}
        if (step + 1) % 500 == 0 or step + 1 == args.steps:
            save(checkpoint, tower, scales, optimizer, average, step + 1)
            final = {f"tower.{k}": v.contiguous() for k, v in average.items()}
            final |= {f"scales.{k}": v.detach().clone() for k, v in scales.state_dict().items()}
            save_file(final, args.out / "tower.safetensors")


if __name__ == "__main__":
    main()
