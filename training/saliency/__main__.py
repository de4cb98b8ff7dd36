"""Learn saliency, choose by held-out photographs, judge on both held-back sets."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.cli.evaluate.agreement import Estimate, mean_estimate
from foveate.core.grid import resize_map
from training.examples import LABELS, Example, held_back, learning
from training.saliency import arrays as a
from training.saliency.kept import kept_of_nothing, of_questions
from training.saliency.model import Taught, maps_of, train

Floats = NDArray[np.float32]
EPOCHS = 6
BASELINE = "spectral residual"
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
    "names": Variant(a.NAMED, reads=8),
    "all but place": Variant(tuple(n for n in a.PLANES if n not in a.PLACE), reads=8),
    "all": Variant(a.PLANES, reads=8),
}
IN_USE = (BASELINE, CENTRE, "objectness of nano", "pixels, segments", "names, logistic", "names")


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
        "objectness of nano": list(np.maximum(np.maximum(detector, things), 0)),
        "objectness of nano, less stuff": list(np.exp(8 * (np.maximum(detector, things) - stuff))),
    }


def judged(maps: dict[str, list[Floats]], targets: Sequence[Floats]) -> dict[str, NDArray[np.float64]]:
    """Of photographs with a target that is not the whole: way -> [photographs, MEASURES]."""
    there = [i for i, target in enumerate(targets) if 0 < (target > 0).mean() < 1]
    return {
        way: np.array([a.measure(np.maximum(resize_map(some[i], targets[i].shape), 0), targets[i]) for i in there])
        for way, some in maps.items()
    }


def table(found: dict[str, NDArray[np.float64]], measures: Sequence[str], shown: Sequence[str]) -> str:
    """Means by measure, and the differences to the baseline with 95 % intervals over photographs."""
    lines = [
        "| way | " + " | ".join([*measures, *(f"by {name}" for name in shown)]) + " |",
        "|---" * (1 + len(measures) + len(shown)) + "|",
    ]
    for way, values in found.items():
        apart = [interval(values[:, measures.index(name)] - found[BASELINE][:, measures.index(name)]) for name in shown]
        cells = [f"{mean:.3f}" for mean in values.mean(0)] + ([""] * len(shown) if way == BASELINE else apart)
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def interval(values: NDArray[np.float64], photographs: Sequence[int] | None = None) -> str:
    one: Estimate = mean_estimate(values, range(len(values)) if photographs is None else photographs)
    return f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.saliency", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True, help="textures and planes")
    parser.add_argument("--out", type=Path, help="of the models; CACHE/saliency if left out")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--by-frequency", action="store_true", help="things weighted by how often they were drawn")
    parser.add_argument("--judge", action="store_true", help="the held-back sets too: once, when all is chosen")
    args = parser.parse_args()
    out = args.out or args.cache / "saliency"
    out.mkdir(parents=True, exist_ok=True)

    examples = learning(args.data, args.cache)
    arrays = a.arrays_of(examples, args.cache / "saliency", "learning")
    weight = a.by_frequency([e for e in examples if not e.held_out]) if args.by_frequency else lambda _: 1.0
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
    found = judged(maps(some, of), [a.target_of(e.asked, lambda _: 1.0) for e in some])
    print(f"\nHeld out, {len(found[BASELINE])} photographs\n\n{table(found, a.MEASURES, ('auc', 'coverage_10'))}")
    report: dict[str, Any] = {"held out": summary(found)}
    if args.judge:
        report |= judge(args.data, args.cache, maps)
    print(json.dumps(report))


def judge(data: Path, cache: Path, maps: Any) -> dict[str, Any]:
    """Both held-back sets: maps, kept cells of questions that name nothing, and what is asked otherwise."""
    report: dict[str, Any] = {}
    targets = {
        "coco128": {"things": lambda asked: a.target_of(asked, lambda _: 1.0), "prominent things": a.prominent},
        "open": {"asked by people": a.asked_by_people},
    }
    for name, examples in held_back(data, cache).items():
        found = maps(examples, a.arrays_of(examples, cache / "saliency", name))
        for what, make in targets[name].items():
            wanted = [make(example.asked) for example in examples]
            by_way = judged(found, wanted)
            title = f"{name}, {what}, {len(by_way[BASELINE])} photographs"
            print(f"\n{title}\n\n{table(by_way, a.MEASURES, ('auc', 'coverage_10'))}", flush=True)
            report[title] = summary(by_way)
        planes = {way: found[way] for way in IN_USE}
        kept: dict[str, list[list[float]]] = {way: [] for way in IN_USE}
        for i, (example, target) in enumerate(zip(examples, wanted, strict=True)):
            if target.any():
                one = kept_of_nothing(example.texture, {way: some[i] for way, some in planes.items()}, target)
                for way, share in one.items():
                    kept[way].append([share])
        shares = {way: np.array(values) for way, values in kept.items()}
        print(
            f"\n{name}: a question that names nothing, 10 % kept\n\n{table(shares, ('kept',), ('kept',))}", flush=True
        )
        values, photographs = of_questions(examples, planes)
        print(f"\n{name}: {len(photographs)} questions that name something\n")
        print(f"| way | mean | by {BASELINE} |\n|---|---|---|")
        for way, each in values.items():
            base = values[way.rpartition(": ")[0] + f": {BASELINE}"] if ": " in way else each
            print(f"| {way} | {each.mean():.3f} | {interval(each - base, photographs)} |", flush=True)
        report[f"{name}, questions"] = {way: round(float(some.mean()), 4) for way, some in values.items()}
    return report


def summary(found: dict[str, NDArray[np.float64]]) -> dict[str, list[float]]:
    return {way: [round(float(v), 4) for v in values.mean(0)] for way, values in found.items()}


if __name__ == "__main__":
    main()
