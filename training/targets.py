"""Ask both teachers about every photograph once, and keep the answers (about 20 minutes on two cores, resumable).

    python training/targets.py --data ../shared/data --out training/cache

One .npz per photograph: soft class maps of the detector with filled boxes on a raster of a quarter of the
photograph, and the classifier's five likeliest ImageNet classes at each position of a coarse grid.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from tqdm import tqdm

RASTER = 4  # pixels of the photograph per target cell
FAINT = 0.04  # class maps that never exceed this are dropped
TOP_WORDS = 5
CLASSIFIER_SIDES = (288, 448)
# Non-commercial licences stay out of the shipped weights: camvid CC BY-NC 4.0, lowlight CC BY-NC 4.0.
LEFT_OUT = ("camvid", "lowlight")
_teachers: dict = {}  # one pair a worker process


def photographs(data: Path) -> list[tuple[str, str, str | None]]:
    """-> (archive, name in it, words for the whole image or None)."""
    out = []
    for archive in ("photos", "photos2"):
        for name, entry in json.loads((data / f"train/{archive}.json").read_text()).items():
            if name.split("/")[0] not in LEFT_OUT:
                out.append((archive, name, entry["label"]))
    return out


def start(data: str) -> None:
    import torch
    from classifier import Classifier
    from detector import Detector

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    folder = Path(data) / "teachers"
    _teachers["detector"] = Detector(str(folder / "yolox_nano.onnx"))
    _teachers["classifier"] = Classifier(str(folder / "mobilenet_v2_1.0_224_quant.tflite"))


def words(rgb: np.ndarray, raster: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """-> five likeliest ImageNet classes (int16) and their probabilities (fp16) at each position [*raster, 5]."""
    total = np.zeros((*raster, 1000), np.float32)
    for side in CLASSIFIER_SIDES:
        ratio = side / min(rgb.shape[:2])
        logits = _teachers["classifier"](cv2.resize(rgb, None, fx=ratio, fy=ratio, interpolation=cv2.INTER_LINEAR))
        p = np.exp(logits - logits.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        total += np.stack([cv2.resize(p[..., c], raster[::-1]) for c in range(1000)], -1)
    total /= len(CLASSIFIER_SIDES)
    best = np.argsort(-total, -1)[..., :TOP_WORDS]
    return best.astype(np.int16), np.take_along_axis(total, best, -1).astype(np.float16)


def answer(job: tuple[bytes, str]) -> None:
    from detector import filled

    content, path = job
    rgb = np.array(Image.open(io.BytesIO(content)).convert("RGB"))
    raster = (round(rgb.shape[0] / RASTER), round(rgb.shape[1] / RASTER))
    maps, found = _teachers["detector"].look(rgb, raster)
    maps = np.maximum(np.minimum(maps, 1), filled(rgb, found, raster))
    present = np.flatnonzero(maps.max((0, 1)) > FAINT)
    best, probability = words(rgb, (round(rgb.shape[0] / 16), round(rgb.shape[1] / 16)))
    soft = np.rint(maps[..., present].transpose(2, 0, 1) * 255).astype(np.uint8)
    with open(path + ".part", "wb") as file:
        np.savez_compressed(file, classes=present.astype(np.int16), maps=soft, words=best, probability=probability)
    Path(path + ".part").rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path("training/cache"))
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    archives = {name: tarfile.open(args.data / f"train/{name}.tar") for name in ("photos", "photos2")}  # noqa: SIM115

    def jobs():
        for archive, name, _ in photographs(args.data):
            path = args.out / target_name(name)
            if not path.exists():
                yield archives[archive].extractfile(name).read(), str(path)

    todo = list(jobs())
    with ProcessPoolExecutor(args.workers, initializer=start, initargs=(str(args.data),)) as pool:
        for _ in tqdm(pool.map(answer, todo, chunksize=4), total=len(todo), desc="teachers"):
            pass


def target_name(photograph: str) -> str:
    return photograph.replace("/", "__") + ".npz"


if __name__ == "__main__":
    main()
