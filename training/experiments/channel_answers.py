"""Which channels do answers need? Each left out in turn, and what small models answer from the tokens that are kept.

    python -m training.experiments.channel_answers --data DATA --cache CACHE [--scenes 60] [--steps 1800]

What: a question is scored on a texture without some channels, `allocate` keeps an eighth of the tokens, and a model
that was trained here answers from these alone: of collages the reader of `scene_reader`, which is told what each cell
shows, of photographs and pages (unread) the LLaVA of `judges/alone`; of a page, the digits of the answer that its heads
read. Then channels that a question's words could ask for: contrast of colours for "what colour is the ...?", and for
"how far is the ...?" a depth that knows every thing (its size; 0 for the ground); "how far" counts as answered where a
kept token shows the thing.
Why: every other ablation here is judged by maps against masks; documents ask for answers.
Verdict: only the colours and the embedding are missed, 16 numbers of it as little as 24; contrast of colours and depth
bring nothing to the questions that ask for them, so these words weigh no channel. All: docs/learned.md.

CACHE/alone and CACHE/channel_answers keep the two models; they are trained where they are missing: half an hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

import foveate
from benchmarks.baselines import colour_contrast, raise_within
from foveate.channels.build import SEGMENTS, VISUAL
from foveate.core.grid import resize_map
from foveate.core.layout import COLOURS
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from training import harness
from training.experiments.channel_budget import Full, embedding, holding
from training.experiments.scene_reader import Reader, ids_of, labels, learned_reader
from training.harness import Judged, estimates, interval
from training.judges import alone
from training.judges.collage.cutouts import cutouts, grounds
from training.judges.collage.evaluate import asked as asked_of
from training.judges.collage.evaluate import oracle
from training.judges.collage.features import SEEDS, Made
from training.judges.collage.model import VOCABULARY
from training.judges.collage.scenes import CELLS, NAMED, Question, called, draw, pool_of, scene_of

SCENES, LEARNED, EACH = 60, 400, 10
SHARE = 8  # one token in so many is kept
RANK = 24
UNITS = {"colours": COLOURS, "edges": VISUAL, "saliency": ("saliency",), "segments": SEGMENTS, "writing": ("text",)}
ALL = (*sum(UNITS.values(), ()), *embedding(RANK))
WAYS = {
    "all": ALL,
    **{f"no {unit}": tuple(name for name in ALL if name not in names) for unit, names in UNITS.items()},
    **{f"{rank} of {RANK} numbers": (*sum(UNITS.values(), ()), *embedding(rank)) for rank in (16, 8, 0)},
}
WEIGHTS = (0.1, 0.3)
RANDOM, ORACLE = "random tokens", "the things themselves"
Mask = NDArray[np.bool_]
Floats = NDArray[np.float32]


def full(texture: Texture) -> Full:
    """A texture as `holding` takes channels from it."""
    return Full(texture, np.asarray(texture.embedding, np.float16).reshape(texture.grid.count, -1), texture.basis)


def keep(relevance: Relevance, shape: tuple[int, int]) -> Mask:
    """The tokens that are kept of a grid."""
    return foveate.allocate(relevance.on(shape), shape[0] * shape[1] // SHARE).mask


def kept_by(texture: Texture, text: str, shape: tuple[int, int], seed: int) -> dict[str, Mask]:
    """Way -> kept tokens [h, w], of every way of leaving channels out, and of chance."""
    whole, count = full(texture), shape[0] * shape[1]
    masks = {way: keep(foveate.score(holding(whole, names), text), shape) for way, names in WAYS.items()}
    chance = np.random.default_rng(seed).permutation(count).reshape(shape) < count // SHARE
    return masks | {RANDOM: chance}


def raised(
    texture: Texture, text: str, shape: tuple[int, int], what: str, plane: NDArray[np.floating]
) -> dict[str, Mask]:
    """Way -> kept tokens, of a plane at each of WEIGHTS inside the thing: 1 - (1 - p)(1 - w c p)."""
    plain = foveate.score(texture, text)
    return {f"all, {what} {w:g}": keep(replace(plain, map=raise_within(plain.map, w, plane)), shape) for w in WEIGHTS}


# --- collages ---------------------------------------------------------------------------------------------------------


def drawn(data: Path, side: str, count: int) -> tuple[Made, list[NDArray[np.uint8]]]:
    """Scenes of a side of `collage`, as a Made without what nano sees of them, and their pictures."""
    apart = side == "held"
    pool, behind = pool_of(cutouts(data, held_out=apart)), grounds(data, held_out=apart)
    scenes = [scene_of(SEEDS[side], n, pool, grounds=len(behind)) for n in range(count)]
    pictures, shown = zip(*(draw(scene, pool, behind[scene.ground]) for scene in scenes), strict=True)
    return Made(np.empty(0, np.float16), np.empty(0, np.uint8), np.stack(shown), tuple(scenes)), list(pictures)


def of_collages(made: Made, pictures: Sequence[NDArray[np.uint8]], reader: Reader) -> Iterator[tuple[str, int, Any]]:
    """(set, scene, way -> right) of every question."""
    items, grid = asked_of(made.scenes, len(made.scenes), EACH), (CELLS, CELLS)
    for number, picture in enumerate(tqdm(pictures, desc="collages", mininterval=5)):
        texture, shown = foveate.encode(picture, channels="all", read=False), made.shown[number][0]
        contrast, near = colour_contrast(texture), nearness(made, number, texture.grid.shape)
        for question in (item.question for item in items if item.scene == number and item.question.family != "count"):
            masks, colours = kept_by(texture, question.text, grid, number), dict[str, Mask]()
            if question.text.startswith("what colour"):
                colours = raised(texture, question.text, grid, "contrast", contrast)
            best = np.zeros(CELLS**2, bool)
            best[oracle(shown, question.needs, CELLS**2 // SHARE)] = True
            masks[ORACLE] = best.reshape(grid)
            right = read(reader, labels(made, number), question, masks | colours)
            name = "collages: named" if question.family in NAMED else "collages: relations"
            yield name, number, {way: right[way] for way in masks}
            if colours:
                yield "what colour?", number, right
        for thing in range(len(made.scenes[number].things)):
            if words := called(made.scenes[number].things, thing):
                text = f"how far is the {words}?"
                masks = {"all": keep(foveate.score(texture, text), grid)} | raised(texture, text, grid, "depth", near)
                yield (
                    "how far?",
                    number,
                    {way: float(shown[mask.ravel()].tolist().count(thing) > 0) for way, mask in masks.items()},
                )


def nearness(made: Made, number: int, shape: tuple[int, int]) -> Floats:
    """A depth that knows every thing, on any cells: .3 to 1 by a thing's height, 0 for the ground."""
    heights = np.array([thing.box[2] for thing in made.scenes[number].things] + [0], np.float32)
    near = np.where(heights > 0, 0.3 + 0.7 * heights / heights.max(), 0).astype(np.float32)
    return resize_map(near[made.shown[number][0]].reshape(CELLS, CELLS), shape)


def read(
    reader: Reader, tokens: NDArray[np.float32], question: Question, masks: Mapping[str, Mask]
) -> dict[str, float]:
    """Way -> 1 where the reader says the answer from its tokens alone."""
    there = torch.from_numpy(np.stack([mask.ravel() for mask in masks.values()]))
    bias = torch.zeros(there.shape).masked_fill(~there, -torch.inf)[None]
    ids = ids_of([question.text]).expand(len(masks), -1)[None]
    said = reader(torch.from_numpy(tokens)[None], ids, bias)[0].argmax(-1)
    return dict(zip(masks, (said == VOCABULARY[question.answer]).float().tolist(), strict=True))


# --- photographs and pages --------------------------------------------------------------------------------------------


def of_pictures(trainee: alone.Trainee, vlm: Any, count: int) -> Iterator[tuple[str, int, dict[str, float]]]:
    """(set, picture, way -> right) of every held-out picture of `judges.alone`."""
    grid = (alone.CELLS, alone.CELLS)
    for name, make, judge in (("photographs", alone.scene_of, words), ("pages, unread", alone.page_of, digits)):
        for number in tqdm(range(count), desc=name, mininterval=5):
            asked = make(alone.HELD_OUT + number)
            texture = foveate.encode(asked.picture, channels="all", read=False)
            encoded = vlm.see(asked.picture, read=False, texture=texture)
            masks = kept_by(texture, asked.question, grid, number)
            first = np.isin(np.arange(alone.CELLS**2), asked.best)
            rank = np.random.default_rng(number).random(alone.CELLS**2) - first  # any of its cells, then any
            best = np.zeros(alone.CELLS**2, bool)
            best[np.argsort(rank)[: alone.CELLS**2 // SHARE]] = True
            masks[ORACLE] = best.reshape(grid)
            prepared = [vlm.prepare(encoded, asked.question, kept=mask) for mask in masks.values()]
            yield name, number, dict(zip(masks, judge(trainee, vlm, asked, prepared), strict=True))


def words(_: alone.Trainee, vlm: Any, asked: alone.Asked, prepared: Sequence[Any]) -> list[float]:
    """1 where the model's answer is right."""
    said = vlm.answers(list(prepared), {"max_new_tokens": 3, "do_sample": False})
    return [float(each.text.strip() == asked.answer[0]) for each in said]


def digits(trainee: alone.Trainee, _: Any, asked: alone.Asked, prepared: Sequence[Any]) -> list[float]:
    """The share of the answer's digits that heads read from kept tokens."""
    best, out = np.array(asked.best), []
    total = max(1, int((asked.dense[:2, best] > 0).sum()))
    for each in prepared:
        rows, (features,) = np.asarray(each.chosen[0].rows), each.features.rows
        found = np.stack([head(features).argmax(-1).numpy() for head in trainee.heads[:2]])
        wanted = np.where(np.isin(rows, best), asked.dense[:2, rows], 0)
        out.append(float(((found == wanted) & (wanted > 0)).sum()) / total)
    return out


# --- the table --------------------------------------------------------------------------------------------------------


def judged(found: Iterator[tuple[str, int, dict[str, float]]]) -> dict[str, Judged]:
    """Set -> way -> [questions, 1], as `harness` judges."""
    rows: dict[str, dict[str, list[Any]]] = {}
    for name, number, right in found:
        into = rows.setdefault(name, {"photograph": []})
        into["photograph"].append(number)
        for way, value in right.items():
            into.setdefault(way, []).append([value])
    return {name: {way: np.array(values, np.float64) for way, values in ways.items()} for name, ways in rows.items()}


def table(sets: Mapping[str, Judged]) -> str:
    """Markdown: a row a way, a column a set; answers, and of others than all how many more, with intervals."""
    ways = dict.fromkeys(way for ways in sets.values() for way in ways if way != "photograph")
    counts = [f"{name} ({len(ways['photograph'])})" for name, ways in sets.items()]
    lines = [f"| | {' | '.join(counts)} |", "|---" * (len(sets) + 1) + "|"]
    for way in ways:
        cells = [
            "" if way not in found
            else f"{found[way].mean():.3f}" if way == "all"
            else interval(estimates(found, way, "all")[0])
            for found in sets.values()
        ]  # fmt: skip
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Both models, every question, one table."""
    args = harness.start("channel_answers", __doc__, options={"scenes": SCENES, "steps": alone.STEPS})
    torch.set_num_threads(1)
    trainee, vlm = alone.learned(args.cache / "alone", args.steps)
    with torch.no_grad():
        sets = judged(of_pictures(trainee, vlm, args.scenes))
    made, _ = drawn(args.data, "train", LEARNED)
    reader = learned_reader(made, args.cache / "channel_answers" / "reader.pt")
    with torch.no_grad():
        sets |= judged(of_collages(*drawn(args.data, "held", args.scenes), reader))
    print(f"\nright answers from one token in {SHARE}; of other rows, the difference to all\n\n{table(sets)}")
    harness.report(
        args, "channel_answers", {name: harness.record(ways, ("right",), "all") for name, ways in sets.items()}
    )


if __name__ == "__main__":
    main()
