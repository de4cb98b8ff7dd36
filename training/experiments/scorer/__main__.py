"""`python -m training.experiments.scorer`: planes, a choice, every scorer learned, both sets judged."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import foveate
import training.experiments.scorer
from foveate.cli.evaluate.agreement import mean_estimate, ratio_estimate
from foveate.core.grid import resize_map
from foveate.relevance.boxes import cells_of
from training.experiments.arguments import checked, command
from training.experiments.examples import Example, held_back, learning
from training.experiments.scorer.judging import MEASURES, judge, table
from training.experiments.scorer.learn import BATCH, CHOOSE_BY, SEED, WAYS, Way, choose, learn
from training.experiments.scorer.model import TextureScorer, fit, iou_loss
from training.experiments.scorer.planes import LEARNED, Lessons, asked_of, batches, channels_of, chosen, lessons
from training.experiments.scorer.published import CANDIDATES, KEPT, Published, hard_loss, samples

ALONE = "the question alone (default)"
SEEN, QUESTIONS = 400, 6  # photographs that the head has seen, beside all that are held out; questions of each
STEPS, PUBLISHED_STEPS = 600, 1000
SHARP = 0.1  # temperature of the published scores, which lie within [0, 1]


def learn_published(known: Lessons, out: Path) -> tuple[Published, dict[str, Any]]:
    """Its 1,000 steps, with its loss' soft twin; and what its own loss says at both ends."""
    model = Published()
    rest = np.flatnonzero(~known.held_out[known.photograph])
    plan = list(batches(len(rest), BATCH, PUBLISHED_STEPS, SEED))

    def lesson(which: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        truth = nn.functional.adaptive_avg_pool2d(torch.from_numpy(known.truths[which, 1:]).float(), CANDIDATES)
        return torch.from_numpy(known.sampled[known.photograph[which]]), truth.flatten(1).ge(0.5).float()

    def loss(step: int) -> Tensor:
        features, truth = lesson(rest[plan[step]])
        return iou_loss(model(features), truth, torch.full((len(truth),), float(KEPT)), SHARP)

    features, truth = lesson(rest)
    before = hard_loss(model(features), truth)
    fit(model, loss, PUBLISHED_STEPS, checkpoint=out / "published.pt")
    after = hard_loss(model(features), truth)
    said = {"its loss has a gradient": before.requires_grad, "before": 1 - before.item(), "after": 1 - after.item()}
    return model, said | {"weights": {name: p.tolist() for name, p in model.named_parameters()}}


def maps_by(models: dict[str, tuple[Way, TextureScorer]], published: dict[str, Published]) -> Callable[..., Any]:
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
        with torch.no_grad():
            for name, recipe in published.items():
                blind[name] = recipe(sampled).reshape(CANDIDATES, CANDIDATES).numpy()
            for name, (way, model) in models.items():
                if not way.hears:
                    blind[name] = map_of(model, channels[way.rows])
            out = []
            for asked, relevance in zip(
                example.asked, foveate.score(texture, [one.text for one in example.asked]), strict=True
            ):
                stack = np.concatenate([channels, asked_of(relevance, grid.shape)])
                found = blind | {ALONE: relevance.map}
                for name, (way, model) in models.items():
                    if way.hears:
                        found[name] = map_of(model, stack[way.rows], relevance.map)
                found["oracle: the mask"] = resize_map(asked.mask.astype(np.float32), grid.shape)
                found["oracle: the boxes"] = cells_of(asked.boxes, grid).astype(np.float32)
                out.append(found)
        return out

    return maps


def map_of(
    model: TextureScorer, planes: NDArray[np.floating], question: NDArray[np.floating] | None = None
) -> NDArray[np.floating]:
    """Planes [C, h, w] -> a map [h, w] in (0, 1); with the question's map [h, w] `like` it."""
    model.reach = max(1, round(max(planes.shape[1:]) / LEARNED))
    with torch.no_grad():
        score: NDArray[np.floating] = model(torch.from_numpy(planes)[None])[0].double().numpy()
    if question is not None:
        return like(score, question)
    return np.asarray(1 / (1 + np.exp((score.mean() - score) / max(float(score.std()), 1e-6))))


def like(score: NDArray[np.floating], question: NDArray[np.floating]) -> NDArray[np.floating]:
    """The values of the question's map in a score's order, both [h, w]; of equal scores the first has the higher one.

    Learned scores grow, and beyond 16 a map of 32 bits is 1 everywhere. So both maps have the same values, and differ
    in nothing but where these lie.
    """
    found = np.empty(score.size, question.dtype)
    found[np.argsort(-score.ravel(), kind="stable")] = np.sort(question.ravel())[::-1]
    return found.reshape(score.shape)


def once(file: Path, make: Callable[[], dict[str, NDArray[np.float64]]]) -> dict[str, NDArray[np.float64]]:
    """Made, or read where it was made before."""
    if not file.exists():
        part = file.with_suffix(".part")
        with part.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **make())
        part.rename(file)
    return dict(np.load(file))


def main() -> None:
    """All of it."""
    args = checked(command("scorer", training.experiments.scorer.__doc__), out="scorer-run")
    out = args.out
    torch.set_num_threads(1)
    known = lessons(chosen(learning(args.data, args.cache), SEEN, QUESTIONS), args.cache / "scorer")
    recipe, choices = choose(known, out)
    print(f"\nPrecision on held-out photographs that were not learned from, of '{CHOOSE_BY.name}':\n\n{choices}\n")
    trained, said = learn_published(known, out)
    print(f"The published recipe on its own lessons: {json.dumps(said)}\n")
    held = known.held_out[known.photograph]
    from_ = np.flatnonzero(held if recipe.source == "held out" else ~held)
    models = {"13 channels, untrained": (WAYS[0], WAYS[0].model(known))}
    for i, way in enumerate(WAYS):
        models[f"learned: {way.name}"] = way, learn(way, recipe, known, from_, STEPS, out / f"way-{i}.pt")[0]
    published = {"published, untrained": Published(), "published, 1,000 steps": trained}
    report: dict[str, Any] = {"recipe": vars(recipe), "published": said, "sets": {}}
    for name, examples in held_back(args.data, args.cache).items():
        judged = once(out / f"{name}.npz", partial(judge, examples, maps_by(models, published)))
        numbers = judged["photograph"].astype(int).tolist()
        print(f"\n{name}: {len(numbers)} questions, {len(examples)} photographs\n\n{table(judged, ALONE)}\n")
        first = judged["published, untrained"][:, 0]
        ratios = {way: ratio_estimate(rows[:, 0], first, numbers) for way, rows in judged.items() if rows.ndim == 2}
        print("IoU, 64 of 256, in times of the untrained recipe: " + "; ".join(f"{w} {r}" for w, r in ratios.items()))
        report["sets"][name] = {
            way: {
                m: {**mean_estimate(rows[:, i], numbers).record()}
                | {"apart": mean_estimate(rows[:, i] - judged[ALONE][:, i], numbers).record()}
                for i, m in enumerate(MEASURES)
            }
            for way, rows in judged.items()
            if rows.ndim == 2
        }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
