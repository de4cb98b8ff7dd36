"""Learn saliency, choose by held-out photographs, judge on both held-back sets."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

import training.experiments.saliency
from foveate.cli.evaluate.agreement import Estimate, mean_estimate
from foveate.core.grid import resize_map
from foveate.encoders.nano import NanoEncoder
from training.experiments.arguments import checked, command
from training.experiments.examples import LABELS, Asked, Example, held_back, learning
from training.experiments.saliency import arrays as a
from training.experiments.saliency.kept import kept_of_nothing, of_questions
from training.experiments.saliency.model import NAMES_SCALE, Saliency, Taught, maps_of, train

Floats = NDArray[np.float32]
Maps = Callable[[Sequence[Example], a.Arrays], dict[str, list[Floats]]]
EPOCHS = 6
BASELINE = "spectral residual"
COMPARED = ("auc", "coverage_10", "kept")
CENTRE = "centre, mean target"


@dataclass(frozen=True)
class Variant:
    """A model: names of its planes, numbers read from nano's names, width of its layers (0: logistic)."""

    planes: tuple[str, ...]
    reads: int = 0
    width: int = 16


VARIANTS = {
    "place alone": Variant(a.PLACE),
    "pixels, logistic": Variant(a.SETS["pixels"], width=0),
    "pixels": Variant(a.SETS["pixels"]),
    "pixels, place": Variant((*a.SETS["pixels"], *a.PLACE)),
    "pixels, segments": Variant(a.SETS["pixels and segments"]),
    "names, logistic": Variant((), reads=1, width=0),
    "names, place, logistic": Variant(a.PLACE, reads=1, width=0),
    "names, objectness, logistic": Variant(a.NAMED, reads=1, width=0),
    "names": Variant(a.NAMED, reads=8),
    "all but place": Variant(tuple(n for n in a.PLANES if n not in a.PLACE), reads=8),
    "all": Variant(a.PLANES, reads=8),
}
OBJECTNESS = "objectness of nano"
IN_USE = (BASELINE, CENTRE, OBJECTNESS, "pixels, segments", "names, logistic", "names, objectness, logistic")


def taught(arrays: a.Arrays, variant: Variant, target: Floats, rows: NDArray[np.int64]) -> Taught:
    planes = arrays.planes[rows][:, [a.PLANES.index(name) for name in variant.planes]]
    z, basis = (arrays.z[rows], arrays.basis[rows]) if variant.reads else (None, None)
    return Taught(planes, target[rows], z, basis)


def plain_maps(examples: Sequence[Example], arrays: a.Arrays, centre: Floats) -> dict[str, list[Floats]]:
    """Ways that learn nothing, or hardly anything: random, the mean target, spectral residual, nano's objectness."""
    random, planes = np.random.default_rng(0), arrays.planes.astype(np.float32)
    detector, things, stuff = (planes[:, a.PLANES.index(name)] for name in a.NAMED)
    return {
        "random": [random.random(e.asked[0].mask.shape, np.float32) for e in examples],
        "centre, less far": list(1 - planes[:, a.PLANES.index("eccentricity")]),
        CENTRE: [centre] * len(examples),
        BASELINE: list(planes[:, a.PLANES.index("saliency")]),
        "objectness of the detector": list(np.maximum(detector, 0)),
        OBJECTNESS: list(np.maximum(np.maximum(detector, things), 0)),
        f"{OBJECTNESS}, less stuff": list(np.exp(8 * (np.maximum(detector, things) - stuff))),
    }


def judged(maps: dict[str, list[Floats]], targets: Sequence[Floats]) -> dict[str, NDArray[np.float64]]:
    """Of photographs with a target that is not the whole: way -> [photographs, MEASURES]."""
    there = [i for i, target in enumerate(targets) if 0 < (target > 0).mean() < 1]
    return {
        way: np.array([a.measure(np.maximum(resize_map(some[i], targets[i].shape), 0), targets[i]) for i in there])
        for way, some in maps.items()
    }


def table(found: dict[str, NDArray[np.float64]], measures: Sequence[str]) -> str:
    """Means by measure, and differences to the baseline and to objectness, with 95 % intervals over photographs."""
    against = [(BASELINE, name) for name in measures if name in COMPARED]
    against += [(OBJECTNESS, against[0][1])]
    titles = [*measures, *(f"{name}, by {other}" for other, name in against)]
    lines = [f"| way | {' | '.join(titles)} |", "|---" * (1 + len(titles)) + "|"]
    for way, values in found.items():
        cells = [f"{mean:.3f}" for mean in values.mean(0)]
        for other, name in against:
            i = measures.index(name)
            cells.append("" if way == other else interval(values[:, i] - found[other][:, i]))
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def interval(values: NDArray[np.float64], photographs: Sequence[int] | None = None) -> str:
    one: Estimate = mean_estimate(values, range(len(values)) if photographs is None else photographs)
    return f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})"


def main() -> None:
    parser = command("saliency", training.experiments.saliency.__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--by-frequency", action="store_true", help="things weighted by how often they were drawn")
    parser.add_argument("--judge", nargs="*", choices=("coco128", "open"), help="both sets if none is named")
    args = checked(parser, out="saliency")
    out: Path = args.out

    examples = learning(args.data, args.cache)
    arrays = a.arrays_of(examples, args.cache / "saliency", "learning")
    weight = a.by_frequency([e for e in examples if not e.held_out]) if args.by_frequency else _one
    target = np.stack([a.target_of(example.asked, weight, (a.SIDE, a.SIDE)) for example in examples])
    seen = np.array([i for i, e in enumerate(examples) if not e.held_out and target[i].any()])
    ordinary = {"people", *(file.stem for file in LABELS.glob("*.json"))}  # no portraits of cars, fronts, streets
    held = np.array([i for i, e in enumerate(examples) if e.held_out and any(q.kind in ordinary for q in e.asked)])
    models = {}
    for name, variant in VARIANTS.items():
        x = variant.planes.index("x") if "x" in variant.planes else None
        file = out / f"{name.replace(', ', '-').replace(' ', '_')}{'-frequency' * args.by_frequency}-{args.epochs}.pt"
        data = taught(arrays, variant, target, seen)
        models[name] = train(data, variant.reads, variant.width, file, epochs=args.epochs, x_plane=x)
        print(f"{name}: {sum(p.numel() for p in models[name].parameters())} numbers", flush=True)
    centre = target[seen].mean(0)

    def maps(some: Sequence[Example], of: a.Arrays) -> dict[str, list[Floats]]:
        rows, none = np.arange(len(some)), np.zeros((len(some), a.SIDE, a.SIDE), np.float32)
        learned = {name: list(maps_of(m, taught(of, VARIANTS[name], none, rows))) for name, m in models.items()}
        return plain_maps(some, of, centre) | learned

    some = [examples[i] for i in held]
    of = a.Arrays(arrays.planes[held], arrays.z[held], arrays.basis[held])
    found = judged(maps(some, of), [a.target_of(e.asked, _one) for e in some])
    print(f"\nHeld out, {len(found[BASELINE])} photographs\n\n{table(found, a.MEASURES)}")
    weights = weights_of_names(models["names, logistic"])
    (out / "names.json").write_text(json.dumps(weights, indent=0))
    ranked = sorted(weights, key=lambda name: -weights[name])
    report: dict[str, Any] = {"held out": summary(found), "most": ranked[:12], "least": ranked[-12:]}
    if args.judge is not None:
        report |= judge(args.data, args.cache, out, maps, args.judge or ("coco128", "open"))
    print(json.dumps(report))


def judge(data: Path, cache: Path, out: Path, maps: Maps, sets: Sequence[str]) -> dict[str, Any]:
    """Both held-back sets: maps, kept cells of questions that name nothing, and what is asked otherwise."""
    report: dict[str, Any] = {}
    both = held_back(data, cache)
    of_coco = {e.name.split(":")[-1]: e.asked for e in both["coco128"]}
    targets: dict[str, dict[str, Callable[[Example], Floats]]] = {
        "coco128": {"things": lambda e: a.target_of(e.asked, _one), "prominent things": lambda e: a.prominent(e.asked)},
        "open": {
            "asked by people": lambda e: a.asked_by_people(e.asked),
            "asked by people, or of COCO's names": lambda e: a.joined(e, of_coco.get(e.name.split(":")[-1], ())),
        },
    }
    for name in sets:
        examples = both[name]
        found = maps(examples, a.arrays_of(examples, cache / "saliency", name))
        planes = {way: found[way] for way in IN_USE}
        for what, make in targets[name].items():
            wanted = [make(example) for example in examples]
            by_way = judged(found, wanted)
            title = f"{name}, {what}, {len(by_way[BASELINE])} photographs"
            print(f"\n{title}\n\n{table(by_way, a.MEASURES)}", flush=True)
            shares = kept_shares(examples, planes, wanted)
            print(f"\n{title}: nothing is named, 10 % kept\n\n{table(shares, ('kept',))}", flush=True)
            report[title] = summary(by_way) | {f"kept, {way}": [v] for way, [v] in summary(shares).items()}
        Image.fromarray(sheet(examples[:120:12], planes, wanted)).save(out / f"maps-{name}.png")
        values, photographs = of_questions(examples, planes)
        print(f"\n{name}: {len(photographs)} questions that name something\n")
        print(f"| way | mean | by {BASELINE} |\n|---|---|---|")
        for way, each in values.items():
            base = values[way.rpartition(": ")[0] + f": {BASELINE}"] if ": " in way else each
            print(f"| {way} | {np.nanmean(each):.3f} | {interval(each - base, photographs)} |", flush=True)
        report[f"{name}, questions"] = {way: round(float(np.nanmean(some)), 4) for way, some in values.items()}
    return report


def kept_shares(
    examples: Sequence[Example], planes: dict[str, list[Floats]], targets: Sequence[Floats]
) -> dict[str, NDArray[np.float64]]:
    found: dict[str, list[list[float]]] = {way: [] for way in planes}
    for i, (example, target) in enumerate(zip(examples, targets, strict=True)):
        if target.any():
            texture = Example(example.name, example.file, example.asked, example.pixels).texture
            for way, share in kept_of_nothing(texture, {way: some[i] for way, some in planes.items()}, target).items():
                found[way].append([share])
    return {way: np.array(values) for way, values in found.items()}


def weights_of_names(model: Saliency) -> dict[str, float]:
    """Of a model that reads one number from the names and no planes: how much each makes a sample stand out."""
    read = (NAMES_SCALE * model.read * model.leave.weight[0, 0]).detach().numpy()[0]
    names = NanoEncoder.built_in().space.names
    return {name: round(float(value), 3) for name, value in zip(names, read[: len(names)], strict=True)}


def sheet(
    examples: Sequence[Example], planes: dict[str, list[Floats]], targets: Sequence[Floats], every: int = 12
) -> NDArray[np.uint8]:
    """A row for each photograph: itself, its target, then each way's map from its lowest to its highest value."""
    lines = []
    for i, example in enumerate(examples):
        shown = [targets[i * every], *(some[i * every] for some in planes.values())]
        tiles = [cv2.resize(example.pixels(), (160, 120), interpolation=cv2.INTER_AREA)]
        for plane in shown:
            unit = (plane - plane.min()) / max(float(np.ptp(plane)), 1e-9)
            tiles.append(np.repeat(np.rint(255 * resize_map(unit, (120, 160))).astype(np.uint8)[..., None], 3, 2))
        lines.append(np.concatenate(tiles, 1))
    return np.concatenate(lines)


def _one(_: Asked) -> float:
    return 1.0


def summary(found: dict[str, NDArray[np.float64]]) -> dict[str, list[float]]:
    return {way: [round(float(v), 4) for v in values.mean(0)] for way, values in found.items()}


if __name__ == "__main__":
    main()
