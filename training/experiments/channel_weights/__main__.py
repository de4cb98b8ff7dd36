"""`python -m training.experiments.channel_weights`: a choice, then three sets of questions judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import foveate
import training.channel_weights
from benchmarks.questions import read_questions
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.cli.evaluate.coco import RASTER
from foveate.encoders.load import load_encoder
from foveate.encoders.nano import NanoEncoder
from foveate.language.cues import find_cues
from training.experiments.arguments import checked, command
from training.experiments.channel_weights.model import ChannelWeights, sparse
from training.experiments.examples import Asked, Example, held_back, learning
from training.experiments.scorer.__main__ import like
from training.experiments.scorer.judging import MEASURES, judge, table
from training.experiments.scorer.learn import BATCH, SEED, gathered, statistics
from training.experiments.scorer.model import fit, iou_loss
from training.experiments.scorer.planes import NAMES, Lessons, batches, channels_of, chosen, lessons, logit

NONE, TABLE = "none (cues=False)", "the table (default)"
SEEN, QUESTIONS = 400, 6  # as in training/experiments/scorer, whose planes these are
STEPS, CHOICE_STEPS = 600, 200
CHANNELS = (
    *("red", "green", "blue", "edge_on", "edge_off", "high_pass", "low_pass", "saliency", "x", "y", "eccentricity"),
    *("cluster_distance", "cluster_size", "edge_distance", "boundary", "text", "gradient", "colour_variance"),
)  # what a still has; an embedding's axes are each image's own
ROWS = [NAMES.index(name) for name in (*CHANNELS, "question")]


@dataclass(frozen=True)
class Recipe:
    """What is chosen inside the learning set.

    Attributes:
        vector: "words", the mean of the question's word vectors (256), or "names", its place among the encoder's names.
        price: of a weight's size.
    """

    vector: str = "words"
    price: float = 0.1


RECIPES = tuple(Recipe(*each) for each in product(("words", "names"), (0.3, 1.0)))


def vectors_of(texts: Sequence[str], kind: str) -> Tensor:
    """float32 [n, 256] of words, [n, 290] of names; each of unit length."""
    encoder = load_encoder("nano")
    assert isinstance(encoder, NanoEncoder)
    return torch.from_numpy(np.asarray(encoder.encode_words(texts) if kind == "words" else encoder.encode_text(texts)))


def learn(recipe: Recipe, known: Lessons, steps: int, checkpoint: Path | None, heard: bool = True) -> ChannelWeights:
    """Weights from the questions that are not held out."""
    torch.manual_seed(SEED)
    vectors = vectors_of(known.texts, recipe.vector)
    from_ = np.flatnonzero(~known.held_out[known.photograph])
    model = ChannelWeights(vectors.shape[1], len(CHANNELS), heard=heard)
    model.mean, model.spread = statistics(known, ROWS[:-1])
    plan = list(batches(len(from_), BATCH, steps, SEED))

    def loss(step: int) -> Tensor:
        which = from_[plan[step]]
        planes, weights = gathered(known, which, ROWS), model(vectors[which])
        score = model.score(weights, planes[:, -1], planes[:, :-1]).flatten(1)
        truth = torch.from_numpy(known.truths[which, 0]).float().flatten(1)
        return iou_loss(score, truth) + recipe.price * weights.abs().mean()

    fit(model, loss, steps, checkpoint=checkpoint)
    return model


def precision_of(model: ChannelWeights, vectors: Tensor, known: Lessons) -> float:
    """Mean average precision of the maps of held-out questions, on these cells."""
    which = np.flatnonzero(known.held_out[known.photograph])
    planes = gathered(known, which, ROWS)
    with torch.no_grad():
        score = model.score(sparse(model(vectors[which])), planes[:, -1], planes[:, :-1]).flatten(1)
    truth = torch.from_numpy(known.truths[which, 0]).flatten(1) >= 0.5
    hits = truth.gather(1, score.argsort(1, descending=True)).double()[truth.any(1)]
    exact = hits.cumsum(1) / torch.arange(1, hits.shape[1] + 1)
    return float(((exact * hits).sum(1) / hits.sum(1)).mean())


def choose(known: Lessons, out: Path) -> tuple[Recipe, str]:
    """The recipe that is best on held-out photographs among those that give any channel a weight, and the table."""
    alone = ChannelWeights(256, len(CHANNELS))
    begin = precision_of(alone, vectors_of(known.texts, "words"), known)
    rows, best = [f"| none | | 0 | {begin:.4f} |"], (0.0, RECIPES[0])
    for i, recipe in enumerate(RECIPES):
        model = learn(recipe, known, CHOICE_STEPS, out / f"choice-{i}.pt")
        vectors = vectors_of(known.texts, recipe.vector)
        found = precision_of(model, vectors, known)
        with torch.no_grad():
            many = float((sparse(model(vectors)) != 0).sum(1).float().mean())
        rows.append(f"| {recipe.vector} | {recipe.price} | {many:.1f} | {found:.4f} |")
        best = max(best, (found if many else 0.0, recipe), key=lambda pair: pair[0])
    return best[1], "\n".join(["| vector | price | channels a question | precision |", "|---|---|---|---|", *rows])


def of_writing(data: Path, cache: Path) -> list[Example]:
    """The questions of dev/open about what is written, which `held_back` leaves out: here the table has its say."""
    known = {example.name: example for example in held_back(data, cache)["open"]}
    out = []
    for _, photograph, _ in read_questions(data / "dev" / "open").read():
        name = f"{photograph.folder.name}:{photograph.file}"
        asked = []
        for question in photograph.questions:
            if question.mask is not None and question.kind == "text":
                y, x = np.nonzero(question.mask)
                box = RASTER * np.array([[y.min(), x.min(), y.max() + 1, x.max() + 1]], np.float64)
                asked.append(Asked(question.text, "text", question.mask, box))
        if asked and name in known:
            out.append(replace(known[name], asked=tuple(asked)))
    return out


def maps_by(models: dict[str, tuple[Recipe, ChannelWeights]], spent: dict[str, list[int]]) -> Callable[..., Any]:
    """Every map of a photograph's questions; counts the weights that each way gives a question into `spent`."""

    def maps(example: Example) -> list[dict[str, NDArray[np.floating]]]:
        texture, texts = example.texture, [one.text for one in example.asked]
        channels = torch.from_numpy(channels_of(texture, texture.grid)[ROWS[:-1]])[None]
        out = []
        for asked, plain in zip(texts, foveate.score(texture, texts, cues=False), strict=True):
            followed = foveate.score(texture, asked)
            found: dict[str, NDArray[np.floating]] = {NONE: plain.map, TABLE: followed.map}
            spent.setdefault(TABLE, []).append(len(followed.weights))
            question = torch.from_numpy(logit(plain.map))[None]
            with torch.no_grad():
                for name, (recipe, model) in models.items():
                    foreign = FOREIGN[len(asked) % len(FOREIGN)] if name == SHUFFLED else asked
                    weights = sparse(model(vectors_of([foreign], recipe.vector)))
                    spent.setdefault(name, []).append(int((weights != 0).sum()))
                    score = model.score(weights, question, channels)[0].double().numpy()
                    found[name] = like(score, plain.map)
            out.append(found)
        return out

    return maps


SHUFFLED = "the net, another question's words"
FOREIGN = ("a bus", "the sky", "a person's hand", "the kitchen table", "an old brick wall", "the dog's tail", "pizza")


def main() -> None:
    """All of it."""
    args = checked(command("channel_weights", training.experiments.channel_weights.__doc__), out="channel_weights-run")
    out = args.out
    torch.set_num_threads(1)
    known = lessons(chosen(learning(args.data, args.cache), SEEN, QUESTIONS), args.cache / "scorer")
    cued = sum(bool(find_cues(text, ())) for text in known.texts)
    print(f"{len(known.texts)} questions of {len(set(known.texts))} names; {cued} hold a word of the table\n")
    recipe, choices = choose(known, out)
    print(f"Precision on held-out photographs:\n\n{choices}\n", flush=True)
    net = learn(recipe, known, STEPS, out / "net.pt")
    same = learn(recipe, known, STEPS, out / "same.pt", heard=False)
    models = {"the same for every question": (recipe, same), "the net": (recipe, net), SHUFFLED: (recipe, net)}
    for text in ("the dog", "where is the dog?", "the sky"):
        with torch.no_grad():
            weights = sparse(net(vectors_of([text], recipe.vector)))[0].tolist()
        found = (f"{name} {weight:+.2f}" for name, weight in zip(CHANNELS, weights, strict=True) if weight)
        print(f"{text}: question {net.gain.exp().item():.1f}", *found, sep=", ", flush=True)
    with torch.no_grad():
        mean = net(vectors_of(known.texts, recipe.vector)).mean(0).tolist()
    report: dict[str, Any] = {"recipe": vars(recipe), "mean weights": dict(zip(CHANNELS, mean, strict=True))}
    sets = held_back(args.data, args.cache) | {"open, about writing": of_writing(args.data, args.cache)}
    for name, examples in sets.items():
        spent: dict[str, list[int]] = {}
        judged = judge(examples, maps_by(models, spent))
        numbers = judged["photograph"].astype(int).tolist()
        print(f"\n{name}: {len(numbers)} questions, {len(examples)} photographs\n\n{table(judged, NONE)}\n")
        print("channels a question: " + ", ".join(f"{way} {np.mean(count):.1f}" for way, count in spent.items()))
        report[name] = {
            way: {
                measure: mean_estimate(rows[:, i] - judged[NONE][:, i], numbers).record()
                for i, measure in enumerate(MEASURES)
            }
            for way, rows in judged.items()
            if way not in ("photograph", NONE)
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
