"""The micro-VLM's selector: a small convolutional tower and a table of words, an `Encoder` in foveate's sense.

    python -m training.judges.micro_vlm.selector --out FOLDER        trains it, some minutes
    texture = foveate.encode(picture, encoder=Selector.load(FOLDER))

* Features x = f / sqrt(1 + |f|^2): shorter than 1, and short where nothing is. A phrase is the mean of its words' rows,
  through a small layer, at unit length: "green square" is a vector of its own and not the sum of two.
* A sigmoid loss for each cell and phrase against masks of training scenes that the language model is not trained on.
  Phrases are what `foveate` makes of the questions. The calibration is the loss's own slope and offset.
* Words that it was never taught get vectors by their spelling, at random and the same ever after.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from foveate.core.grid import Grid
from foveate.encoders.protocol import Calibration, DenseFeatures
from training.judges.llava import CELLS, ahead
from training.judges.micro_vlm.scenes import COLOURS, DIGITS, LETTERS, SHAPES, SIDE, Thing, cells_of, draw, scene_of

STRIDE = 8
WIDTH = 64
WORDS = (*COLOURS, *SHAPES, *LETTERS, *DIGITS, "shape", "letter", "digit")
FILES = ("selector.safetensors", "selector.json")


class Block(nn.Module):
    """Two 3 x 3 convolutions with a short cut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(8, channels) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(F.gelu(self.norms[0](x)))
        return x + self.second(F.gelu(self.norms[1](y)))


class Net(nn.Module):
    """Pictures [b, 3, H, W] in [0, 1] -> features [b, H/8, W/8, 64]; bags of words -> unit vectors [n, 64]."""

    def __init__(self, channels: int = 96) -> None:
        super().__init__()
        half = channels // 2
        self.tower = nn.Sequential(
            nn.Conv2d(3, half, 4, stride=2, padding=1),
            nn.GroupNorm(8, half),
            nn.GELU(),
            nn.Conv2d(half, channels, 4, stride=2, padding=1),
            Block(channels),
            nn.Conv2d(channels, channels, 4, stride=2, padding=1),
            Block(channels),
            Block(channels),
            nn.GroupNorm(8, channels),
            nn.GELU(),
            nn.Conv2d(channels, WIDTH, 1),
        )
        self.words = nn.Embedding(len(WORDS), WIDTH)
        self.mix = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.scale = nn.Parameter(torch.tensor([10.0, -5.0]))  # of the loss: slope and offset

    def see(self, pictures: Tensor) -> Tensor:
        f = self.tower(pictures * 4 - 2).permute(0, 2, 3, 1).float()
        return f / torch.sqrt(1 + f.square().sum(-1, keepdim=True))

    def read(self, bags: Tensor) -> Tensor:
        """int64 [n, k], -1 for no word."""
        known = (bags >= 0).float()[..., None]
        mean = (self.words(bags.clamp(min=0)) * known).sum(1) / known.sum(1).clamp(min=1)
        return F.normalize(mean + self.mix(mean), dim=-1)


def bags_of(phrases: Sequence[str], longest: int = 4) -> Tensor:
    """Words that the net was taught, int64 [n, longest], -1 for none."""
    bags = torch.full((len(phrases), longest), -1)
    for i, phrase in enumerate(phrases):
        known = [WORDS.index(word) for word in phrase.lower().split() if word in WORDS][:longest]
        bags[i, : len(known)] = torch.tensor(known, dtype=torch.int64)
    return bags


@dataclass(frozen=True)
class Selector:
    """A trained net in a folder, as an `Encoder`."""

    folder: Path
    name: str = "micro-selector"
    width: int = WIDTH
    templates: tuple[str, ...] = ("{}",)

    @classmethod
    def load(cls, folder: str | Path) -> Selector:
        """From a folder that `save` wrote. Raises FileNotFoundError."""
        for name in FILES:
            if not (Path(folder) / name).is_file():
                raise FileNotFoundError(f"no {name} in '{folder}': train one with micro_vlm.selector")
        return cls(Path(folder))

    @cached_property
    def revision(self) -> str:
        digest = hashlib.sha256()
        for name in FILES:
            digest.update((self.folder / name).read_bytes())
        return digest.hexdigest()[:12]

    @cached_property
    def calibration(self) -> Calibration:
        fitted = json.loads((self.folder / FILES[1]).read_text("utf-8"))
        return Calibration(temperature=20.0, contrast=0.0, synonym=0.6, slope=fitted["slope"], offset=fitted["offset"])

    @cached_property
    def _net(self) -> Net:
        net = Net()
        net.load_state_dict(load_file(self.folder / FILES[0]))
        return net.eval()

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        """uint8 [H, W, 3] -> features float32 [h, w, 64], cells of 8 pixels of a picture 128 pixels long."""
        height, width = rgb.shape[:2]
        ratio = (SIDE if long_side is None else long_side) / max(height, width)
        h, w = max(1, round(height * ratio / STRIDE)), max(1, round(width * ratio / STRIDE))
        way = cv2.INTER_AREA if h * STRIDE < height else cv2.INTER_LINEAR
        small = (
            rgb
            if (height, width) == (h * STRIDE, w * STRIDE)
            else cv2.resize(rgb, (w * STRIDE, h * STRIDE), interpolation=way)
        )
        pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            features = self._net.see(pixels)[0].numpy()
        return DenseFeatures(np.ascontiguousarray(features), Grid(h, w, height, width))

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Texts -> unit vectors float32 [n, 64]."""
        bags = bags_of(texts)
        with torch.no_grad():
            out = self._net.read(bags).numpy()
        for i in np.flatnonzero((bags < 0).all(1).numpy()).tolist():
            seed = int.from_bytes(hashlib.sha256(texts[i].lower().encode()).digest()[:8], "little")
            drawn = np.random.default_rng(seed).normal(size=WIDTH)
            out[i] = drawn / np.linalg.norm(drawn)
        return out


def save(net: Net, folder: Path, *, slope: float, offset: float) -> None:
    """Weights as safetensors, words and calibration as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in net.state_dict().items()}, folder / FILES[0])
    (folder / FILES[1]).write_text(json.dumps({"words": WORDS, "slope": slope, "offset": offset}, indent=1), "utf-8")


# --- training ---------------------------------------------------------------------------------------------------------

SEED, FIRST, CHECKING = 1, 2_000_000, 3_000_000  # scenes that the language model is not trained on
PHRASES = (
    *("shape", "letter", "digit"),
    *SHAPES,
    *COLOURS,
    *(f"letter {glyph}" for glyph in LETTERS),
    *(f"digit {glyph}" for glyph in DIGITS),
    *(f"{colour} {noun}" for colour, noun in product(COLOURS, (*SHAPES, "letter", "digit"))),
)
NUMBER = {phrase: i for i, phrase in enumerate(PHRASES)}


def of(thing: Thing) -> set[str]:
    """The phrases that name a thing."""
    out = {thing.colour}
    if thing.shape:
        out |= {"shape", thing.shape, f"{thing.colour} {thing.shape}"}
    if thing.glyph:
        out |= {thing.kind, f"{thing.kind} {thing.glyph}"}
    if not thing.shape:
        out.add(f"{thing.colour} {thing.kind}")
    return out


def labelled(first: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures float32 [n, 3, 128, 128] in [0, 1]; phrases bool [n, 256, phrases]; cells with things [n, 256]."""
    pictures, on = list[NDArray[np.uint8]](), list[Tensor]()
    labels = torch.zeros(count, CELLS * CELLS, len(PHRASES), dtype=torch.bool)
    for k in range(count):
        scene = scene_of(SEED, first + k, least=0, most=4) if k % 2 else scene_of(SEED, first + k)
        table = torch.zeros(len(scene.things) + 1, len(PHRASES), dtype=torch.bool)
        for i, thing in enumerate(scene.things):
            table[i, [NUMBER[phrase] for phrase in of(thing)]] = True
        shown = torch.from_numpy(cells_of(scene, CELLS).ravel())
        labels[k], on = table[shown], [*on, shown >= 0]
        pictures.append(draw(scene))
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255, labels, torch.stack(on)


def loss_of(net: Net, pictures: Tensor, labels: Tensor, on: Tensor) -> Tensor:
    """Sigmoid loss of cells and phrases: half of it what holds, the rest other things' cells and background, 3 to 2."""
    scores = net.see(pictures).flatten(1, 2) @ net.read(bags_of(PHRASES)).T  # [b, cells, phrases]
    each = F.binary_cross_entropy_with_logits(net.scale[0] * scores + net.scale[1], labels.float(), reduction="none")
    others = on[..., None] & ~labels
    return 0.5 * each[labels].mean() + 0.3 * each[others].mean() + 0.2 * each[~on].mean()


def checked(net: Net, count: int = 64) -> tuple[float, float]:
    """On further scenes: share of right verdicts on whether a phrase holds, and precision of the cells above 0.5."""
    pictures, labels, _ = labelled(CHECKING, count)
    with torch.no_grad():
        scores = torch.cat([net.see(part).flatten(1, 2) for part in pictures.split(32)]) @ net.read(bags_of(PHRASES)).T
    above = net.scale[0] * scores + net.scale[1] > 0
    there, said = labels.any(1), above.any(1)
    right = 0.5 * said[there].float().mean() + 0.5 * (~said[~there]).float().mean()
    return float(right), float((above & labels).sum() / above.sum().clamp(min=1))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    torch.manual_seed(SEED)
    net, size, rate = Net(), 32, 2e-3
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=args.steps, pct_start=0.05)
    orders = [FIRST + step * size for step in range(args.steps)]
    for step, (pictures, labels, on) in enumerate(ahead(lambda first: labelled(first, size), orders)):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(net, pictures.contiguous(memory_format=torch.channels_last), labels, on)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        plan.step()
        if (step + 1) % 100 == 0 or step + 1 == args.steps:
            right, precise = checked(net.eval())
            slope, offset = net.scale.tolist()
            save(net, args.out, slope=slope, offset=offset)
            print(f"step {step + 1}, there or not {right:.3f}, cells {precise:.3f}; slope {slope:.2f}", flush=True)
            net.train()


if __name__ == "__main__":
    main()
