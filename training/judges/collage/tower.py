"""The vision tower: pixels and nano's features -> visual tokens. It learns what each cell shows, then is frozen.

* Names come from what nano says of the picture at twice the size, tints and parts from a small convolutional network on
  the pixels. The selector stays nano alone, on the picture as it is: the tower sees more.
* It learns name, tint, tinted part and that part's tint of each of 16 x 16 cells, from the training scenes' masks.
* tokens.npy: float16 [n, 2, 256, WIDTH], of the picture and of it in a mirror: the answers' training reads these.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from training.harness import fit
from training.judges.collage.cutouts import PARTS
from training.judges.collage.features import NUMBERS, Made, load
from training.judges.collage.scenes import CELLS, COLOURS
from training.judges.llava import TOKENS, optimiser, rate_at

WIDTH = 192
NAMES = tuple("apple banana boots car cat coat dog dress face pants person wheel".split())
PLANES = {"name": ("", *NAMES), "colour": ("", *COLOURS), "part": ("", *PARTS), "paint": ("", *COLOURS)}
SEED, SIZE, STEPS = 1, 12, 700


class Block(nn.Module):
    """Two convolutions, normalised before, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, width), nn.GroupNorm(8, width)])
        self.convs = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = conv(F.gelu(norm(y)))
        return x + y


class Tower(nn.Module):
    """Pixels float [b, 3, 256, 256] in [-1, 1] and nano's numbers [b, NUMBERS, 16, 16] -> tokens [b, 256, width]."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        half = width // 2
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=4, padding=3), nn.GroupNorm(8, 64), nn.GELU(), nn.Conv2d(64, half, 3, 2, 1)
        )
        self.nano = nn.Sequential(
            nn.BatchNorm2d(NUMBERS, affine=False), nn.Hardtanh(-6, 6), nn.Dropout(0.3), nn.Conv2d(NUMBERS, width, 1),
            nn.GELU(), nn.Dropout(0.3), nn.Conv2d(width, width, 1),
        )  # fmt: skip
        self.fine = nn.Sequential(Block(half), Block(half), nn.Conv2d(half, width, 3, 2, 1))
        self.coarse = nn.Sequential(Block(width), Block(width), nn.GroupNorm(8, width))
        self.heads = nn.ModuleDict({name: nn.Linear(width, len(words)) for name, words in PLANES.items()})

    def forward(self, pixels: Tensor, nano: Tensor) -> Tensor:
        found: Tensor = self.coarse(self.fine(self.stem(pixels)) + self.nano(nano))
        return found.flatten(2).mT


def cells_loss(heads: nn.ModuleDict, tokens: Tensor, dense: Tensor) -> Tensor:
    """Cross entropy over cells, the sum of each plane's mean; tokens [b, 256, D], dense int64 [b, 4, 256].

    Cells without a thing count a fifth. Parts are asked of things alone; most cells have none, and count a fifth.
    """
    on, painted = dense[:, 0] > 0, dense[:, 2] > 0
    whole, parts = torch.where(on, 1.0, 0.2).flatten(), torch.where(painted, 1.0, on * 0.2).flatten()
    total = tokens.new_zeros(())
    for k, name in enumerate(PLANES):
        weight = whole if k < 2 else parts
        logits = heads[name](tokens).float().flatten(0, 1)
        losses = F.cross_entropy(logits, dense[:, k].flatten(), reduction="none")
        total = total + (losses * weight).sum() / weight.sum().clamp(min=1)
    return total


def shown_of(made: Made, index: int) -> np.ndarray:
    """What each cell shows, numbers in PLANES: int64 [4, 256]."""
    things = made.scenes[index].things
    words = [(t.name, t.colour, t.part, t.paint) for t in things] + [("", "", "", "")]
    table = np.array([[PLANES[p].index(w) for p, w in zip(PLANES, row, strict=True)] for row in words])
    whole, part = made.shown[index]
    return np.concatenate([table[whole].T[:2], table[np.where(part >= 0, part, len(things))].T[2:]])


def inputs(made: Made, indices: list[int], mirrors: list[bool]) -> tuple[Tensor, Tensor, Tensor]:
    """Pixels, nano's features, and what cells show, of some scenes, some of them in a mirror."""
    pixels, nano, dense = [], [], []
    for index, turned in zip(indices, mirrors, strict=True):
        step = -1 if turned else 1
        pixels.append(made.pixels[index][:, ::step])
        nano.append(made.nano[index][:, ::step])
        dense.append(shown_of(made, index).reshape(-1, CELLS, CELLS)[..., ::step].reshape(-1, TOKENS))
    return (
        torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous().float() / 127.5 - 1,
        torch.from_numpy(np.stack(nano)).permute(0, 3, 1, 2).contiguous().float(),
        torch.from_numpy(np.stack(dense)),
    )


def train(folder: Path, *, steps: int, size: int = SIZE, rate: float = 2e-3, every: int = 50) -> Tower:
    """All steps that are missing."""
    torch.manual_seed(SEED)
    tower, made = Tower(), load(folder, "train")

    def loss(step: int) -> Tensor:
        rng = np.random.default_rng([SEED, step])
        torch.manual_seed(step)
        few = rng.integers(0, len(made.scenes), size).tolist()
        pixels, nano, dense = inputs(made, few, (rng.random(size) < 0.5).tolist())
        light = torch.from_numpy(rng.uniform((0.8, -0.1), (1.2, 0.1), (size, 2)).astype(np.float32))[:, :, None, None]
        pixels = pixels * light[:, :1] + light[:, 1:]
        with torch.autocast("cpu", torch.bfloat16):
            return cells_loss(tower.heads, tower(pixels, nano), dense)

    rates = partial(rate_at, steps=steps, peak=rate)
    fit(loss, steps, folder / "tower.pt", optimiser(tower), rate=rates, every=every, clip=1.0, tower=tower)
    print(named(tower, load(folder, "held")))
    return tower.eval()


def named(tower: Tower, made: Made, count: int = 60) -> dict[str, float]:
    """Shares of cells whose name, tint, part and paint are right: of cells with a thing, or with a part."""
    tower.eval()
    hits: dict[str, list[float]] = {name: [] for name in PLANES}
    for index in range(min(count, len(made.scenes))):
        pixels, nano, dense = inputs(made, [index], [False])
        with torch.no_grad():
            tokens = tower(pixels, nano)
        for k, name in enumerate(PLANES):
            on = dense[0, 0 if k < 2 else 2] > 0
            hits[name] += (tower.heads[name](tokens)[0].argmax(-1) == dense[0, k])[on].float().tolist()
    tower.train()
    return {name: round(float(np.mean(some)), 3) for name, some in hits.items() if some}


def write_tokens(tower: Tower, folder: Path, side: str) -> None:
    """tokens.npy of a side, written whole."""
    made = load(folder, side)
    out = np.empty((len(made.scenes), 2, TOKENS, WIDTH), np.float16)
    for index in tqdm(range(len(out)), desc=f"tokens, {side}", mininterval=10):
        pixels, nano, _ = inputs(made, [index, index], [False, True])
        with torch.no_grad():
            out[index] = tower(pixels, nano).numpy()
    np.save(folder / side / "new.npy", out)
    (folder / side / "new.npy").replace(folder / side / "tokens.npy")
