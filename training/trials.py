"""The trials of docs/log.md that are not options of the library: looking twice, and other ways to compress.

    python training/trials.py --data DATA/dev/coco128 looks      # several long sides, the mirror image, sums of them
    python training/trials.py --data DATA/dev/coco128 ranks      # weighted cells and questions, an oracle, int8
    python training/trials.py --data DATA/dev/coco128 policies   # which cells, and how many: policies and auto budgets

The first two use uncompressed features of nano as the reference. Run it with foveate installed.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import cv2
import numpy as np

from foveate.allocation.allocation import auto_bounds, budget_of_mass
from foveate.allocation.policies import Coverage, Policy, Proportional, TopK, typical_distance
from foveate.cli.evaluate.agreement import Agreement, agreement
from foveate.cli.evaluate.coco import Folder, read_folder
from foveate.cli.evaluate.compression import likeness
from foveate.cli.evaluate.relevance import question
from foveate.core.grid import Grid, resize_map
from foveate.encoders.load import load_encoder
from foveate.language.negatives import negatives_of
from foveate.pipeline import encode, score
from foveate.texture.basis import query_metric

SIDES = (384, 512, 640, 768)
FLOOR = 1e-3  # of the mean spread of scores: a question that says nothing here must not get all the weight


def looks(folder: Folder) -> None:
    nano = load_encoder("nano")
    vector = dict(zip(folder.names, nano.encode_text(folder.names), strict=True))
    found: dict[str, list[Agreement]] = {}
    for item in folder.labelled():
        seen = {str(side): nano.encode_image(item.rgb, long_side=side).features for side in SIDES}
        seen["mirror"] = nano.encode_image(np.ascontiguousarray(item.rgb[:, ::-1])).features[:, ::-1]
        for name, mask in item.masks.items():
            maps = {label: resize_map(f @ vector[name], mask.shape) for label, f in seen.items()}
            maps["512 + mirror"], maps["512 + 768"] = maps["512"] + maps["mirror"], maps["512"] + maps["768"]
            maps["512, blurred"] = cv2.GaussianBlur(maps["512"], (0, 0), 1.0)
            for label, plane in maps.items():
                found.setdefault(label, []).append(agreement(plane, mask))
    for label, values in found.items():
        mean = Agreement(*np.nanmean(values, 0))
        print(f"{label:14s} {mean.pointing:.3f} / {mean.precision:.3f} / {mean.coverage_10:.3f}")


def ranks(folder: Folder) -> None:
    nano = load_encoder("nano")
    text, bank = nano.encode_text(folder.names), negatives_of(nano).vectors
    alike: dict[tuple[str, int], list[tuple[float, float]]] = {}
    found: dict[tuple[str, int], list[Agreement]] = {}
    for item in folder.labelled():
        features = nano.encode_image(item.rgb).features
        shape, x = features.shape[:2], features.reshape(-1, features.shape[-1])
        mean = x.mean(0)
        centred, full = x - mean, text @ x.T
        covariance = centred.T @ centred / len(x)
        energy = ((centred @ query_metric(bank).root) ** 2).sum(1)
        ways = {
            "as it is": (bank, np.ones(len(x))),
            "ridge 0.001": (bank, np.ones(len(x))),
            "questions by spread": (bank / spread(bank, covariance), np.ones(len(x))),
            "cells by root of energy": (bank, np.sqrt(energy)),
            "cells by energy": (bank, energy),
            "oracle: these questions": (text / spread(text, covariance), np.ones(len(x))),
        }
        for way, (questions, weight) in ways.items():
            metric = query_metric(questions, 1e-3 if way in ("ridge 0.001", "oracle: these questions") else 1e-2)
            weighted = (centred * weight[:, None]).T @ centred / weight.sum()
            vectors = np.linalg.eigh((metric.root @ weighted @ metric.root).astype(np.float64))[1][:, ::-1]
            for rank in (16, 32):
                first = vectors[:, :rank].astype(np.float32)
                z, outward = centred @ metric.root @ first, metric.inverse_root @ first
                step = np.abs(z).max(0) / 127
                kept = {way: z.astype(np.float16).astype(np.float32)}
                if way == "as it is":
                    kept["as it is, int8"] = np.rint(z / step) * step
                for label, numbers in kept.items():
                    scores = text @ outward @ numbers.T + (text @ mean)[:, None]
                    alike.setdefault((label, rank), []).append(likeness(full, scores))
                    for name, mask in item.masks.items():
                        plane = scores[folder.names.index(name)].reshape(shape)
                        found.setdefault((label, rank), []).append(agreement(resize_map(plane, mask.shape), mask))
    for key, values in alike.items():
        spearman, overlap = np.mean(values, 0)
        pointing = np.mean([a.pointing for a in found[key]])
        print(f"{key[0]:24s} rank {key[1]}: {spearman:.3f} / {overlap:.3f}, pointing {pointing:.3f}")


def policies(folder: Folder) -> None:
    """Coverage of the thing and mean distance of the kept cells at a tenth of them; budgets from the map; times."""
    ways: dict[str, Policy] = {"TopK": TopK(), "Proportional": Proportional()}
    ways |= {f"Coverage({d})": Coverage(d) for d in (0.1, 0.25, 0.5, 0.75)}
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    sizes, ranked, absent = [], [], []
    for number, item in enumerate(folder.labelled()):
        texture = encode(item.rgb)
        grid, z = texture.grid, texture.coordinates()
        others = [name for name in folder.names if name not in item.masks]
        foreign = [score(texture, question(others[(number + i) % len(others)])).map for i in (0, 40)]
        absent += [budget_of_mass(plane, *auto_bounds(grid.count)) / grid.count for plane in foreign]
        for name, mask in item.masks.items():
            relevance, thing = score(texture, question(name)).map, resize_map(mask, grid.shape).ravel()
            for way, policy in ways.items():
                kept = policy.select(relevance.ravel(), round(grid.count / 10), grid, z)
                found[way].append((thing[kept].sum() / thing.sum(), apart(z[kept]) / typical_distance(z)))
            sizes.append((budget_of_mass(relevance, *auto_bounds(grid.count)), grid.count, thing.sum()))
            ranked.append(np.cumsum(thing[np.argsort(-relevance.ravel(), kind="stable")]) / thing.sum())
    for way, values in found.items():
        coverage, distance = np.mean(values, 0)
        print(f"{way:16s} coverage {coverage:.3f}, distance {distance:.3f}, {timed(ways[way]):.2f} ms")
    auto, cells, area = np.array(sizes).T
    share, both = (auto / cells).mean(), np.concatenate([auto / cells, absent]).mean()
    print(
        f"auto: {share:.3f} of the cells where the thing is there, {np.mean(absent):.3f} where not, {both:.3f} in all"
    )
    for label, budget in (("auto", auto), ("fixed, there", cells * share), ("fixed, in all", cells * both)):
        covered = np.array([each[round(k) - 1] for each, k in zip(ranked, budget, strict=True)])
        pooled = (covered * area).sum() / area.sum()
        print(f"{label:16s} mean {budget.mean():.0f}, coverage {covered.mean():.3f}, of all cells {pooled:.3f}")


def apart(points: np.ndarray) -> float:
    """Mean distance of two of the points [n, r]."""
    squares = (points.astype(np.float64) ** 2).sum(1)
    between = np.sqrt(np.maximum(squares[:, None] + squares - 2 * points.astype(np.float64) @ points.T, 0))
    return float(between.sum() / (len(points) * (len(points) - 1)))


def timed(policy: Policy, cells: int = 64, budget: int = 273) -> float:
    """Median CPU milliseconds of one selection (not of the clock on the wall: other work may run beside it)."""
    random, grid, times = np.random.default_rng(0), Grid(cells, cells, 512, 512), []
    scores = cv2.GaussianBlur(random.random((cells, cells), np.float32), (0, 0), 3).ravel()
    z = random.standard_normal((cells * cells, 16), np.float32)
    for _ in range(50):
        start = time.process_time()
        policy.select(scores, budget, grid, z)
        times.append(time.process_time() - start)
    return float(np.median(times) * 1e3)


def spread(questions: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Standard deviation of each question's scores over the cells: [n, 1]."""
    variance = np.einsum("jd,de,je->j", questions, covariance, questions)
    return np.sqrt(np.maximum(variance, FLOOR * variance.mean()))[:, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    trials = {trial.__name__: trial for trial in (looks, ranks, policies)}
    parser.add_argument("trial", choices=trials)
    args = parser.parse_args()
    trials[args.trial](read_folder(args.data))


if __name__ == "__main__":
    main()
