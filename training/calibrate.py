"""Scores -> relevance: choose rivalry, slope, offset and threshold of an encoder on a COCO-style folder.

    python training/calibrate.py --data DATA/dev/coco128

Prints how well maps of several rivalries point, rank, and tell present from absent things; then fits, for the first of
them, sigmoid(slope * peak + offset) to "this class is in the image", present and absent classes weighing the same: a
confidence of 0.5 then means that the thing is as likely there as not. Run it with foveate installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from foveate.basis import Basis
from foveate.bench.agreement import Agreement, agreement, auroc
from foveate.bench.coco import read_folder
from foveate.encoders import Calibration, load_encoder
from foveate.grid import resize_map
from foveate.relevance.bank import bank_of
from foveate.relevance.query import Query
from foveate.relevance.score import PEAK_SHARE, relevance_of
from foveate.texture import EncoderStamp, Texture

VARIANTS = ((0.0, 20.0), (0.3, 10.0), (0.6, 10.0), (1.0, 10.0), (0.3, 20.0), (0.6, 20.0), (1.0, 20.0), (1.0, 40.0))


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
    variants = [Calibration(t, r, tower.calibration.synonym, 1, 0) for r, t in VARIANTS]
    agreements: list[list] = [[] for _ in variants]
    peaks: list[list] = [[] for _ in variants]
    present: list[bool] = []
    for item in folder.labelled(args.limit):
        dense = tower.encode_image(item.rgb)
        texture = uncompressed(item.rgb, dense, EncoderStamp(tower.name, tower.revision, tower.width))
        present += [name in item.masks for name in names]
        for i, calibration in enumerate(variants):
            for query in queries:
                margin = relevance_of(texture, query, calibration, bank_of(tower)).margin
                best = np.sort(margin.ravel())[-max(1, margin.size // PEAK_SHARE) :]
                peaks[i].append(float(best.mean()))
                if query.text in item.masks:
                    mask = item.masks[query.text]
                    agreements[i].append(agreement(resize_map(margin, mask.shape), mask))
    there = np.array(present)
    print("rivalry temperature  pointing  precision  coverage  presence AUROC")
    for calibration, found, peak in zip(variants, agreements, peaks, strict=True):
        mean = Agreement(*np.mean(found, 0))
        area = auroc(np.array(peak), there)
        numbers = f"{mean.pointing:8.3f}  {mean.precision:9.3f}  {mean.coverage_10:8.3f}  {area:14.3f}"
        print(f"{calibration.rivalry:7.1f} {calibration.temperature:11.0f}  {numbers}")
    slope, offset = logistic(np.array(peaks[0]), there)
    print(f"absolute score: slope={slope:.2f}, offset={offset:.2f}")
    confidence = 1 / (1 + np.exp(-(slope * np.array(peaks[0]) + offset)))
    for threshold in (0.3, 0.4, 0.5, 0.6):
        called = confidence >= threshold
        found, wrong = called[there].mean(), called[~there].mean()
        print(f"present at {threshold}: {found:.2f} of the present, {wrong:.3f} of the absent")


def uncompressed(rgb: np.ndarray, dense: object, stamp: EncoderStamp) -> Texture:
    """A texture with nothing but its embedding, in full."""
    h, w, width = dense.features.shape
    identity = Basis(np.zeros(width, np.float32), np.eye(width, dtype=np.float16))
    return Texture(dense.grid, rgb, None, {}, dense.features.astype(np.float16), identity, np.zeros((h, w), np.float16),
                   stamp, {})  # fmt: skip


def logistic(score: np.ndarray, positive: np.ndarray) -> tuple[float, float]:
    """Slope and offset of the class-balanced logistic regression of `positive` on `score`, by Newton's method."""
    x = np.stack([score, np.ones_like(score)], 1)
    weight = np.where(positive, 0.5 / positive.sum(), 0.5 / (~positive).sum())
    theta = np.zeros(2)
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ theta))
        gradient = x.T @ (weight * (positive - p))
        hessian = (x * (weight * p * (1 - p))[:, None]).T @ x + 1e-9 * np.eye(2)
        theta += np.linalg.solve(hessian, gradient)
    return float(theta[0]), float(theta[1])


if __name__ == "__main__":
    main()
