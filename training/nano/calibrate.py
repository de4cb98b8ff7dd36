"""Scores -> relevance: choose contrast, slope, offset and threshold of an encoder on a COCO-style folder.

    python -m training.nano.calibrate --data DATA/dev/coco128

Prints how well maps of several rivalries point, rank, and tell present from absent things; then fits, for the first of
them, sigmoid(slope * peak + offset) to "this is in the image". A third of the weight each have the classes that are
there, the classes that are not, and 100 nouns unlike any class, which hardly ever are: people ask for anything, and a
score that only had to tell 80 classes apart calls every second word present. And how confident is the encoder as it is
of words that do not exist? Run it with foveate installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import foveate
from foveate.cli.evaluate.agreement import Agreement, agreement, auroc
from foveate.cli.evaluate.coco import read_folder
from foveate.core.grid import resize_map
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Calibration
from foveate.language.negatives import negatives_of
from foveate.language.query import Query
from foveate.relevance.confidence import PEAK_SHARE
from foveate.relevance.scoring import score_query
from foveate.texture.basis import Basis
from foveate.texture.texture import EncoderStamp, Texture

OTHERS, UNLIKE = 100, 0.5  # nouns, and the largest cosine that they have with any class
NONSENSE = ("blorptang", "xqzvk", "flarnimoodle", "grubwixen", "zzyphrog", "wumbledorf", "qwertzuiop", "snorvible")
STEEPEST = 18.0  # a steeper sigmoid rounds to 1 in float32 at the scores of sure things, and equal cells have no order
VARIANTS = ((0.0, 20.0), (0.3, 10.0), (1.0, 20.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="nano")
    parser.add_argument("--limit", type=int, default=100_000)
    args = parser.parse_args()
    folder, tower = read_folder(args.data), load_encoder(args.encoder)
    names = folder.names
    vectors = tower.encode_text([tower.templates[0].format(name) for name in names])
    queries = [Query(name, (name,), vector[None]) for name, vector in zip(names, vectors, strict=True)]
    bank, asked = negatives_of(tower).vectors, np.random.default_rng(0)
    strange = asked.permutation(bank[(bank @ vectors.T).max(1) < UNLIKE])[:OTHERS]
    others: list[float] = []
    variants = [Calibration(t, r, tower.calibration.synonym, 1, 0) for r, t in VARIANTS]
    agreements: list[list] = [[] for _ in variants]
    peaks: list[list] = [[] for _ in variants]
    present: list[bool] = []
    nonsense: list[float] = []
    for item in folder.labelled(args.limit):
        dense = tower.encode_image(item.rgb)
        texture = uncompressed(item.rgb, dense, EncoderStamp(tower.name, tower.revision, tower.width))
        relevances = foveate.score(
            foveate.encode(item.rgb, encoder=tower), [f'"{word}"' for word in NONSENSE], encoder=tower
        )
        nonsense += list(relevances.confidence)
        present += [name in item.masks for name in names]
        scores = np.sort(texture.scores(strange).reshape(len(strange), -1), 1)
        others += scores[:, -max(1, scores.shape[1] // PEAK_SHARE) :].mean(1).tolist()
        for i, calibration in enumerate(variants):
            for query in queries:
                margin = score_query(texture, query, calibration, negatives_of(tower)).logits
                best = np.sort(margin.ravel())[-max(1, margin.size // PEAK_SHARE) :]
                peaks[i].append(float(best.mean()))
                if query.text in item.masks:
                    mask = item.masks[query.text]
                    agreements[i].append(agreement(resize_map(margin, mask.shape), mask))
    there = np.array(present)
    print("contrast temperature  pointing  precision  coverage  presence AUROC")
    for calibration, found, peak in zip(variants, agreements, peaks, strict=True):
        mean = Agreement(*np.mean(found, 0))
        area = auroc(np.array(peak), there)
        numbers = f"{mean.pointing:8.3f}  {mean.precision:9.3f}  {mean.coverage_10:8.3f}  {area:14.3f}"
        print(f"{calibration.contrast:7.1f} {calibration.temperature:11.0f}  {numbers}")
    score = np.array(peaks[0])
    groups = (score[there], score[~there], np.array(others))
    slope, offset = logistic(groups[0], groups[1:])
    if slope > STEEPEST:
        slope, offset = STEEPEST, logistic(groups[0], groups[1:], STEEPEST)[1]
    print(f"absolute score: slope={slope:.2f}, offset={offset:.2f}")
    for threshold in (0.3, 0.4, 0.5, 0.6):
        rates = [float((1 / (1 + np.exp(-slope * g - offset)) >= threshold).mean()) for g in groups]
        print(
            f"present at {threshold}: {rates[0]:.2f} of those there, {rates[1]:.3f} absent, {rates[2]:.3f} other nouns"
        )
    called = np.mean(np.array(nonsense) >= 0.5)
    print(f"words that do not exist: confidence {np.mean(nonsense):.2f}, present {called:.3f} of {len(nonsense)} times")


def uncompressed(rgb: np.ndarray, dense: object, stamp: EncoderStamp) -> Texture:
    """A texture with nothing but its embedding, in full."""
    features = dense.full(stamp.width)
    h, w, width = features.shape
    identity = Basis(np.zeros(width, np.float32), np.eye(width, dtype=np.float16))
    return Texture(dense.grid, rgb, None, {}, features.astype(np.float16), identity, np.zeros((h, w), np.float16),
                   stamp, {})  # fmt: skip


def logistic(positive: np.ndarray, negative: tuple[np.ndarray, ...], slope: float | None = None) -> tuple[float, float]:
    """Slope (unless it is given) and offset of the logistic regression of positives against groups of negatives, all
    groups weighing the same, by Newton's method."""
    groups = (positive, *negative)
    score = np.concatenate(groups)
    target = np.concatenate([np.full(len(g), i == 0) for i, g in enumerate(groups)])
    weight = np.concatenate([np.full(len(g), 1 / len(g)) for g in groups])
    x = np.stack([score, np.ones_like(score)], 1)
    theta = np.array([0.0 if slope is None else slope, 0.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ theta))
        gradient = x.T @ (weight * (target - p))
        hessian = (x * (weight * p * (1 - p))[:, None]).T @ x + 1e-9 * np.eye(2)
        if slope is None:
            theta += np.linalg.solve(hessian, gradient)
        else:
            theta[1] += gradient[1] / hessian[1, 1]
    return float(theta[0]), float(theta[1])


if __name__ == "__main__":
    main()
