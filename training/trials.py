"""The trials of docs/log.md that are not options of the library: looking twice, and other ways to compress.

    python training/trials.py --data DATA/dev/coco128 looks      # several long sides, the mirror image, sums of them
    python training/trials.py --data DATA/dev/coco128 ranks      # weighted cells and questions, an oracle, int8

Both use uncompressed features of nano as the reference. Run it with foveate installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np

from foveate.basis import query_metric
from foveate.bench.agreement import Agreement, agreement
from foveate.bench.coco import Folder, read_folder
from foveate.bench.compression import likeness
from foveate.encoders import load_encoder
from foveate.grid import resize_map
from foveate.relevance.bank import bank_of

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
    text, bank = nano.encode_text(folder.names), bank_of(nano).vectors
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


def spread(questions: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Standard deviation of each question's scores over the cells: [n, 1]."""
    variance = np.einsum("jd,de,je->j", questions, covariance, questions)
    return np.sqrt(np.maximum(variance, FLOOR * variance.mean()))[:, None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("trial", choices=("looks", "ranks"))
    args = parser.parse_args()
    (looks if args.trial == "looks" else ranks)(read_folder(args.data))


if __name__ == "__main__":
    main()
