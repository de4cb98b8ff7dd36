"""Weights of channels from the question's words: a small net against the table of foveate.language.cues.

    python -m training.experiments.channel_weights --data DATA --cache CACHE [--out FOLDER]

What: the question's vector -> 16 -> a weight for each channel, few of them not 0; the score is the question's log-odds
with a weight of its own, and the weighted channels. Learned with the top-K of scorer.py.
Why: the documents let a question choose its channels by learned attention; the package has a table of words.
Verdict: out. Precision +.015 on held-out photographs of the kinds it learned from; -.011 (-.017 to -.005) on
dev/coco128, -.002 (-.009 to +.004) on dev/open. All: docs/log.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import foveate
from foveate.encoders.load import load_encoder
from foveate.encoders.nano import NanoEncoder
from training import harness
from training.experiments.scorer import (
    BATCH,
    NAMES,
    QUESTIONS,
    RATE,
    SEED,
    SEEN,
    Lessons,
    batches,
    channels_of,
    chosen,
    gathered,
    iou_loss,
    lessons,
    like,
    logit,
    statistics,
)
from training.harness import Example, Map, falling, fit

NONE, TABLE, SHUFFLED = "none (cues=False)", "the table (default)", "the net, another question's words"
FOREIGN = ("a bus", "the sky", "a person's hand", "the kitchen table", "an old brick wall", "the dog's tail", "pizza")
STEPS = 600
PRICE = 0.3  # of a weight's size; chosen on held-out photographs (docs/log.md)
HIDDEN = 16
LEAST = 0.02  # a weight below it is 0
CHANNELS = (
    *("red", "green", "blue", "edge_on", "edge_off", "high_pass", "low_pass", "saliency", "x", "y", "eccentricity"),
    *("cluster_distance", "cluster_size", "edge_distance", "boundary", "text", "gradient", "colour_variance"),
)  # what a still has; an embedding's axes are each image's own
ROWS = [NAMES.index(name) for name in (*CHANNELS, "question")]


class ChannelWeights(nn.Module):
    """Vectors [B, d] -> weights [B, C], all 0 at first. With `by_question=False` the same for every question.

    Attributes:
        mean, spread: of each channel over the lessons.
        gain: logarithm of the question's own weight, so that no channel is needed to make a map steeper.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, width: int, channels: int, *, by_question: bool = True) -> None:
        super().__init__()
        self.by_question = by_question
        self.inside = nn.Linear(width, HIDDEN)
        self.out = nn.Linear(HIDDEN, channels)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.gain = nn.Parameter(torch.zeros(()))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("spread", torch.ones(channels))

    def forward(self, vectors: Tensor) -> Tensor:
        """Weights, before the small ones are dropped."""
        found: Tensor = self.out(torch.tanh(self.inside(vectors if self.by_question else torch.zeros_like(vectors))))
        return found

    def score(self, weights: Tensor, question: Tensor, channels: Tensor) -> Tensor:
        """The question's map as log(p / (1 - p)) [B, h, w] and weighted channels [B, C, h, w] -> [B, h, w]."""
        moved = (channels - self.mean[:, None, None]) / self.spread[:, None, None]
        return self.gain.exp() * question + torch.einsum("bc,bchw->bhw", weights, moved)


def sparse(weights: Tensor) -> Tensor:
    """Those that are large enough to count, the others 0."""
    return torch.where(weights.abs() >= LEAST, weights, 0.0)


def vectors_of(texts: Sequence[str]) -> Tensor:
    """A question's place among nano's names, float32 [n, 290]; each of unit length."""
    encoder = load_encoder("nano")
    assert isinstance(encoder, NanoEncoder)
    return torch.from_numpy(np.asarray(encoder.encode_text(texts)))


def learn(
    known: Lessons, vectors: Tensor, steps: int, file: Path, by_question: bool = True, price: float = PRICE
) -> ChannelWeights:
    """Weights from the questions [n] with these vectors [n, d], of photographs that are not held out."""
    torch.manual_seed(SEED)
    from_ = np.flatnonzero(~known.held_out[known.photograph])
    model = ChannelWeights(vectors.shape[1], len(CHANNELS), by_question=by_question)
    model.mean, model.spread = statistics(known, ROWS[:-1])
    plan = batches(len(from_), BATCH, steps)

    def loss(step: int) -> Tensor:
        which = from_[plan[step]]
        planes, weights = gathered(known, which, ROWS), model(vectors[which])
        score = model.score(weights, planes[:, -1], planes[:, :-1]).flatten(1)
        truth = torch.from_numpy(known.truths[which, 0]).float().flatten(1)
        return iou_loss(score, truth) + price * weights.abs().mean()

    fit(loss, steps, file, torch.optim.Adam(model.parameters()), rate=falling(RATE, steps), model=model)
    return model


def maps_by(models: dict[str, ChannelWeights], spent: dict[str, list[int]]) -> Callable[..., Any]:
    """Every map of a photograph's questions; counts the weights that each way gives a question into `spent`."""

    def maps(example: Example) -> list[dict[str, Map]]:
        texture, texts = example.texture, [one.text for one in example.asked]
        channels = torch.from_numpy(channels_of(texture, texture.grid)[ROWS[:-1]])[None]
        out = []
        for asked, plain in zip(texts, foveate.score(texture, texts, cues=False), strict=True):
            followed = foveate.score(texture, asked)
            found: dict[str, Map] = {NONE: plain.map, TABLE: followed.map}
            spent.setdefault(TABLE, []).append(len(followed.weights))
            question = torch.from_numpy(logit(plain.map))[None]
            with torch.no_grad():
                for name, model in models.items():
                    foreign = FOREIGN[len(asked) % len(FOREIGN)] if name == SHUFFLED else asked
                    weights = sparse(model(vectors_of([foreign])))
                    spent.setdefault(name, []).append(int((weights != 0).sum()))
                    score = model.score(weights, question, channels)[0].double().numpy()
                    found[name] = like(score, plain.map)
            out.append(found)
        return out

    return maps


def main() -> None:
    """Learns both nets, judges three sets of questions."""
    args = harness.start("channel_weights", __doc__, out="channel_weights-run")
    torch.set_num_threads(1)
    known = lessons(chosen(harness.learning(args.data, args.cache), SEEN, QUESTIONS), args.cache / "scorer")
    vectors = vectors_of(known.texts)
    net = learn(known, vectors, STEPS, args.out / "net.pt")
    same = learn(known, vectors, STEPS, args.out / "same.pt", by_question=False)
    models = {"the same for every question": same, "the net": net, SHUFFLED: net}
    report: dict[str, Any] = {}
    sets = harness.held_back(args.data, args.cache)
    sets["open, about writing"] = harness.held_back(args.data, args.cache, kinds=("text",))["open"]
    for name, examples in sets.items():
        spent: dict[str, list[int]] = {}
        judged = harness.judge(examples, maps_by(models, spent))
        shown = harness.table(judged, harness.MEASURES, NONE)
        print(f"\n{name}: {len(judged['photograph'])} questions, {len(examples)} photographs\n\n{shown}\n")
        print("channels a question: " + ", ".join(f"{way} {np.mean(count):.1f}" for way, count in spent.items()))
        report[name] = harness.record(judged, harness.MEASURES, NONE)
    harness.report(args, "channel_weights", report)


if __name__ == "__main__":
    main()
