"""Learned saliency: where would anyone look, whatever is asked?

    python -m training.experiments.saliency --data DATA --cache CACHE [--out FOLDER]    OUT/names.json: a weight a name

What: a photograph's target is the union of its named things as they were drawn by eye; what surrounds things (sky,
wall, road: `STUFF`) is no target. Logistic readers of planes made from pixels, of nano's names, and of both.
Then what it changes for those who ask: kept cells of questions that name nothing, and of those that name something.
Why: spectral residual (the channel "saliency") knows nothing of things. No public set of gaze is at hand.
Verdict: out as a default; by hand where nothing is named (`plane_of_names`). 292 numbers over nano's names order cells
better than spectral residual on both sets (AUC .90 for .69, .75 for .65), but keep no more where a question names
something. nano's objectness, which learns nothing, is as good on COCO's things; dilated convolutions of everything add
.01 at most. All: docs/log.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from foveate.core.grid import Grid, resize_map
from foveate.core.layout import Layout
from foveate.encoders.nano import NanoEncoder
from foveate.pipeline import allocate, score
from foveate.relevance.scoring import empty_relevance
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from training import harness
from training.harness import Asked, Example, Judged, auroc, falling, fit, once

Floats = NDArray[np.float32]
SIDE = 32
STUFF = frozenset(  # what surrounds things: COCO's stuff, and what photographs are full of
    "sky,cloud,wall,brick wall,stone wall,building,house,road,pavement,sidewalk,path,earth,field,grass,tree,trees,"
    "branch,tree trunk,bush,hedge,plant,leaf,sand,beach,snow,sea,water,river,lake,puddle,waterfall,mountain,cliff,"
    "rock,stone,floor,carpet,rug,ceiling,fence,net,railing,roof,window,door,curtain,window blind,counter,shelf,"
    "cabinet,pole,stairs,column,arch,cornice,bridge,wood,metal,smoke,tiled wall,balcony,shop,pillar,skin".split(",")
)
COLOUR = ("red", "green", "blue")
EDGES = ("edge_on", "edge_off", "high_pass", "low_pass", "edge_distance", "saliency")
CONTRAST = ("from_mean", "from_border")  # distance of a colour to the image's mean colour, and to that of its border
NAMED = ("detector", "things", "stuff")  # nano's evidence: the highest of COCO's 80 names, of other things, of stuff
PIXELS = (*COLOUR, *EDGES, *CONTRAST)
PLANES = (*PIXELS, "eccentricity", *NAMED)
BATCH, EPOCHS = 16, 6
NAMES_SCALE = 10  # evidence is a few hundredths
BUDGET = 0.1  # of the cells


def planes_of(texture: Texture) -> Floats:
    """The planes of a texture in the order of PLANES, float32 [planes, SIDE, SIDE], each about in [0, 1]."""
    grid, read = Grid(SIDE, SIDE, texture.grid.height, texture.grid.width), (*COLOUR, *EDGES, "eccentricity")
    table = texture.tokens(grid, Layout("saliency", read))
    known = dict(zip(read, table.T.reshape(-1, SIDE, SIDE), strict=True))
    colour = table[:, :3].reshape(SIDE, SIDE, 3)
    edge = np.concatenate([colour[0], colour[-1], colour[:, 0], colour[:, -1]]).mean(0)
    for name, mean in zip(CONTRAST, (colour.mean((0, 1)), edge), strict=True):
        known[name] = np.linalg.norm(colour - mean, axis=-1)
    known |= dict(zip(NAMED, _named(texture), strict=True))
    return np.stack([known[name] for name in PLANES]).astype(np.float32)


def _named(texture: Texture) -> list[Floats]:
    names = NanoEncoder.built_in().space.names
    evidence = texture.basis.restore(texture.coordinates())[:, : len(names)]
    stuff = np.array([name in STUFF for name in names])
    taught = np.arange(len(names)) < 80
    groups = (taught, ~taught & ~stuff, ~taught & stuff)
    return [resize_map(evidence[:, some].max(1).reshape(texture.grid.shape), (SIDE, SIDE)) for some in groups]


def embedding_of(texture: Texture) -> tuple[Floats, Floats]:
    """Coordinates on the raster [RANK, SIDE, SIDE], and mean and rows of the basis [1 + RANK, names]."""
    z = texture.coordinates().reshape(*texture.grid.shape, -1)
    small = np.stack([resize_map(plane, (SIDE, SIDE)) for plane in np.moveaxis(z, -1, 0)])
    return small, np.concatenate([texture.basis.mean[None], texture.basis.rows.astype(np.float32)])


def label_of(asked: Asked) -> str:
    return asked.text.removeprefix("the ")


def is_thing(asked: Asked) -> bool:
    return label_of(asked) not in STUFF and asked.kind != "stuff"


def target_of(asked: Sequence[Asked], shape: tuple[int, int] | None = None) -> Floats:
    """1 where a thing lies, float32 [H / 8, W / 8], or of `shape`; 0 where there is none."""
    found = np.zeros(asked[0].mask.shape, np.float32)
    for one in asked:
        if is_thing(one):
            found[one.mask] = 1
    return found if shape is None else resize_map(found, shape)


@dataclass(frozen=True, eq=False)
class Arrays:
    """Of n photographs, in their order.

    Attributes:
        planes: float16 [n, PLANES, SIDE, SIDE]. z: float16 [n, RANK, SIDE, SIDE]. basis: float16 [n, 1 + RANK, names].
    """

    planes: NDArray[np.float16]
    z: NDArray[np.float16]
    basis: NDArray[np.float16]


def arrays_of(examples: Sequence[Example], folder: Path, name: str, size: int = 100) -> Arrays:
    """Read from `folder`, or made there, `size` photographs a file: goes on where it was killed."""
    parts = []
    for first in tqdm(range(0, len(examples), size), desc=f"planes, {name}", mininterval=5):

        def make(first: int = first) -> dict[str, NDArray[Any]]:
            some = [_one(replace(example).texture) for example in examples[first : first + size]]
            return {key: np.stack([one[key] for one in some]) for key in some[0]}

        parts.append(once(folder / f"{name}-{first}.npz", make))
    return Arrays(**{key: np.concatenate([part[key] for part in parts]) for key in ("planes", "z", "basis")})


def _one(texture: Texture) -> dict[str, NDArray[np.float16]]:
    z, basis = embedding_of(texture)
    return {
        key: array.astype(np.float16) for key, array in (("planes", planes_of(texture)), ("z", z), ("basis", basis))
    }


# --- models -----------------------------------------------------------------------------------------------------------


class Saliency(nn.Module):
    """Planes [n, C, h, w] (and z [n, r, h, w] with basis [n, 1 + r, names]) -> logits [n, h, w]: one number each."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: Tensor, scale: Tensor, names: int = 0) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale)
        self.planes, self.names = nn.Parameter(torch.zeros(len(mean))), nn.Parameter(torch.zeros(names))

    def forward(self, planes: Tensor, z: Tensor, basis: Tensor) -> Tensor:
        x = (planes - self.mean[:, None, None]) / self.scale[:, None, None]
        found = torch.einsum("nchw,c->nhw", x, self.planes)
        return found + read_names(z, basis, self.names) if len(self.names) else found


def read_names(z: Tensor, basis: Tensor, read: Tensor) -> Tensor:
    """(mean + z rows) read without decompressing: [n, r, h, w], [n, 1 + r, D], [D] -> [n, h, w]."""
    weights = basis @ read  # [n, 1 + r]
    return NAMES_SCALE * (torch.einsum("nrhw,nr->nhw", z, weights[:, 1:]) + weights[:, 0, None, None])


def divergence(logits: Tensor, target: Tensor) -> Tensor:
    """Of the softmax over a photograph from the target's distribution, the mean over photographs, in nats."""
    share = target.flatten(1) / target.flatten(1).sum(1, keepdim=True)
    own = functional.kl_div(functional.log_softmax(logits.flatten(1), 1), share, reduction="none")
    return own.sum(1).mean()


def inputs(arrays: Arrays, planes: tuple[str, ...], rows: Any) -> list[Tensor]:
    """Of some photographs, as a model takes them."""
    some = arrays.planes[rows][:, [PLANES.index(name) for name in planes]]
    return [torch.from_numpy(x.astype(np.float32)) for x in (some, arrays.z[rows], arrays.basis[rows])]


def train(
    arrays: Arrays, target: Floats, rows: NDArray[np.int64], variant: Variant, file: Path, epochs: int
) -> Saliency:
    """A model, trained on the photographs of these rows."""
    every = arrays.planes[rows][:, [PLANES.index(name) for name in variant[0]]].astype(np.float32)
    mean, scale = torch.from_numpy(every.mean((0, 2, 3))), torch.from_numpy(every.std((0, 2, 3)) + 1e-3)
    model = Saliency(mean, scale, arrays.basis.shape[2] if variant[1] else 0)
    steps = -(-len(rows) // BATCH)

    def loss(step: int) -> Tensor:
        some = np.random.default_rng((0, step // steps)).permutation(rows)[step % steps * BATCH :][:BATCH]
        return divergence(model(*inputs(arrays, variant[0], some)), torch.from_numpy(target[some]))

    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=1e-3)
    fit(loss, steps * epochs, file, optimiser, rate=falling(3e-3, steps * epochs), every=steps, model=model)
    return model.eval()


@torch.no_grad()
def maps_of(model: Saliency, arrays: Arrays, variant: Variant) -> list[Floats]:
    """Of every photograph, in [0, 1] with 1 at its highest sample: [h, w]."""
    logits = model(*inputs(arrays, variant[0], slice(None))).numpy()
    return list(np.exp(logits - logits.max((1, 2), keepdims=True)))


# --- judging ----------------------------------------------------------------------------------------------------------

MEASURES = ("auc", "coverage_10", "kept")
BASELINE, CENTRE, OBJECTNESS = "spectral residual", "centre, mean target", "objectness of nano"
Variant = tuple[tuple[str, ...], bool]  # names of the planes that are read; whether nano's names are read
VARIANTS: dict[str, Variant] = {
    "pixels": (PIXELS, False),
    "names": ((), True),
    "names, objectness": (NAMED, True),
    "all": (PLANES, True),
}
IN_USE = (BASELINE, CENTRE, OBJECTNESS, "names", "all")


def measure(plane: Floats, target: Floats) -> list[float]:
    """How a map [h, w] (not negative) agrees with a target [h, w] of weights.

    auc: a sample of the target, drawn by weight, ranks above one off it. coverage_10: share of the weight in the
    highest tenth.
    """
    flat, weight = plane.ravel().astype(np.float64), target.ravel().astype(np.float64)
    best = np.argsort(-flat, kind="stable")[: max(1, round(0.1 * len(flat)))]
    area = auroc(flat, weight > 0, np.where(weight > 0, weight, 1))
    return [area, float(weight[best].sum() / weight.sum())]


def asked_by_people(asked: Sequence[Asked]) -> Floats:
    """How many of the questions that people typed about things are answered by each sample."""
    kinds = ("object", "attribute", "question")
    masks = [one.mask for one in asked if one.kind in kinds and is_thing(one)]
    return np.sum(masks, 0, dtype=np.float32) if masks else np.zeros(asked[0].mask.shape, np.float32)


def plain_maps(examples: Sequence[Example], arrays: Arrays, centre: Floats) -> dict[str, list[Floats]]:
    """Ways that learn nothing, or hardly anything: random, the mean target, spectral residual, nano's objectness."""
    random, planes = np.random.default_rng(0), arrays.planes.astype(np.float32)
    detector, things, _ = (planes[:, PLANES.index(name)] for name in NAMED)
    return {
        "random": [random.random(e.asked[0].mask.shape, np.float32) for e in examples],
        CENTRE: [centre] * len(examples),
        BASELINE: list(planes[:, PLANES.index("saliency")]),
        OBJECTNESS: list(np.maximum(np.maximum(detector, things), 0)),
    }


def kept_share(relevance: Relevance, target: Floats, budget: float = BUDGET) -> float:
    """Share of a target [h, w] that the kept cells hold."""
    kept = allocate(relevance, max(1, round(budget * relevance.grid.count))).mask
    cells = resize_map(target, relevance.grid.shape)
    return float((cells * kept).sum() / cells.sum())


def with_saliency(texture: Texture, plane: Floats) -> Texture:
    return texture.with_channel("saliency", np.clip(resize_map(plane, texture.grid.shape), 0, 1))


def plane_of_names(texture: Texture, weights: dict[str, float]) -> Floats:
    """Learned saliency as one question's vector over nano's names: float32 [h, w] in [0, 1], 1 at its highest cell.

    `with_saliency(texture, plane_of_names(texture, weights))` puts it where spectral residual was; `weights` are those
    of OUT/names.json.
    """
    encoder = NanoEncoder.built_in()
    names = [weights[name] for name in encoder.space.names]
    logits = texture.scores(np.pad(np.array(names, np.float32), (0, encoder.width - len(names))))[0]
    return np.asarray(np.exp(logits - logits.max()), np.float32)


def judged(examples: Sequence[Example], maps: dict[str, list[Floats]], targets: Sequence[Floats]) -> Judged:
    """Way -> [photographs, MEASURES], of those with a target that is not the whole.

    kept: the share of the target that `allocate` keeps of a tenth of the cells, where a question names nothing.
    """
    there = [i for i, target in enumerate(targets) if 0 < (target > 0).mean() < 1]
    found: dict[str, list[Any]] = {"photograph": there}
    for i in there:
        texture = replace(examples[i]).texture
        nothing = empty_relevance(texture, "")
        for way, some in maps.items():
            plane = np.maximum(resize_map(some[i], targets[i].shape), 0)
            kept = kept_share(replace(nothing, saliency=resize_map(some[i], texture.grid.shape)), targets[i])
            found.setdefault(way, []).append([*measure(plane, targets[i]), kept])
    return {way: np.array(values, np.float64) for way, values in found.items()}


def of_questions(examples: Sequence[Example], planes: dict[str, list[Floats]]) -> Judged:
    """Of every question, way -> [questions, 2]: the share of the answer that `allocate` keeps of a tenth of the cells
    with that plane as saliency; and the map's precision with it as a prior of .1."""
    number_of = {example.name: number for number, example in enumerate(examples)}

    def maps(example: Example) -> list[dict[str, Any]]:
        plain, found = example.texture, []
        textures = {way: with_saliency(plain, some[number_of[example.name]]) for way, some in planes.items()}
        for asked in example.asked:
            relevance = score(plain, asked.text)
            both = {}
            for way, texture in textures.items():
                kept = kept_share(
                    replace(relevance, saliency=texture.channel("saliency")), asked.mask.astype(np.float32)
                )
                prior = score(texture, asked.text, prior="saliency", prior_weight=0.1)
                both[way] = kept, harness.measured(prior.map, asked, texture.grid)[1]
            found.append(both)
        return found

    return harness.judge(examples, maps, lambda both, asked, grid: tuple(both))


def main() -> None:
    """Learns every variant, judges held-out photographs, both sets, and questions."""
    args = harness.start("saliency", __doc__, out="saliency", options={"epochs": EPOCHS})
    torch.set_num_threads(1)
    examples = harness.learning(args.data, args.cache)
    arrays = arrays_of(examples, args.cache / "saliency", "learning")
    target = np.stack([target_of(example.asked, (SIDE, SIDE)) for example in examples])
    seen = np.array([i for i, e in enumerate(examples) if not e.held_out and target[i].any()])
    ordinary = {"people", *(file.stem for file in harness.LABELS.glob("*.json"))}  # no portraits of cars, no streets
    held = np.array([i for i, e in enumerate(examples) if e.held_out and any(q.kind in ordinary for q in e.asked)], int)
    models = {}
    for name, variant in VARIANTS.items():
        file = args.out / f"{name.replace(', ', '-')}-{args.epochs}.pt"
        models[name] = train(arrays, target, seen, variant, file, args.epochs)
    read = NAMES_SCALE * models["names"].names.detach().numpy()
    names = NanoEncoder.built_in().space.names
    weights = {name: round(float(v), 3) for name, v in zip(names, read[: len(names)], strict=True)}
    (args.out / "names.json").write_text(json.dumps(weights, indent=0))
    centre = target[seen].mean(0)

    def maps(some: Sequence[Example], of: Arrays) -> dict[str, list[Floats]]:
        learned = {name: maps_of(model, of, VARIANTS[name]) for name, model in models.items()}
        return plain_maps(some, of, centre) | learned

    both = harness.held_back(args.data, args.cache)
    arrays_by = {name: arrays_of(some, args.cache / "saliency", name) for name, some in both.items()}
    sets: dict[str, tuple[Sequence[Example], Arrays, Callable[[Sequence[Asked]], Floats]]] = {
        "held out": ([examples[i] for i in held], Arrays(*(a[held] for a in vars(arrays).values())), target_of),
        "coco128": (both["coco128"], arrays_by["coco128"], target_of),
        "open": (both["open"], arrays_by["open"], asked_by_people),
    }
    report: dict[str, Any] = {}
    for name, (some, of, wanted) in sets.items():
        found = maps(some, of)
        by_way = judged(some, found, [wanted(e.asked) for e in some])
        print(f"\n{name}, {len(by_way['photograph'])} photographs")
        print(f"\n{harness.table(by_way, MEASURES, BASELINE, MEASURES)}", flush=True)
        report[name] = harness.record(by_way, MEASURES, BASELINE)
        if name != "held out":
            asked = of_questions(some, {way: found[way] for way in IN_USE})
            print(
                f"\n{name}, questions\n\n{harness.table(asked, ('kept', 'precision'), BASELINE, ('kept', 'precision'))}"
            )
            report[f"{name}, questions"] = harness.record(asked, ("kept", "precision"), BASELINE)
    harness.report(args, "saliency", report)


if __name__ == "__main__":
    main()
