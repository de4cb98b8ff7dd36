"""What the frozen trunks see in every training photograph, kept once (a quarter of an hour on two cores, resumable).

    python -m training.nano.features --data DATA

One folder per photograph list; a photograph's file holds, fp16, at the size at which the library will look at it:

    fine    [160, h, w]       trunk of the detector and of ADE, stride 8
    coarse  [c, h/2, w/2]     the rest, stride 16 (stride 32 is brought to 16)
    stuff   [32, h, w] uint8  ADE's own answer, as 255 x probability
    parts   [24, h/2, w/2] uint8, person [1, h/2, w/2] uint8, points [17, h/2, w/2] uint8: BodyPix's
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image
from tqdm import tqdm

LONG_SIDE, STRIDE, PADDED_TO, GREY = 512, 8, 32, 114
# Non-commercial licences stay out of the shipped weights: camvid CC BY-NC 4.0, lowlight CC BY-NC 4.0.
LEFT_OUT = ("camvid", "lowlight")
LABELS = Path(__file__).parent / "labels"
_nets: dict = {}


FREE = frozenset("clothes clothing grocery azure fashion fruit raccoon u2net sam2 stanford40 daynight".split())


def listed(data: Path, research: bool = True) -> list[tuple[str, str]]:
    """(archive, name) of every photograph: those with labels first. `research`: also sources that allow that alone."""
    out: list[tuple[str, str]] = []
    for file in sorted(LABELS.glob("*.json")):
        out += [tuple(name.split(":", 1)) for name in json.loads(file.read_text())["photographs"]]
    out += [("boxes", name) for name in json.loads((data / "train/boxes.json").read_text())["files"]]
    out += [("dense", name) for name in json.loads((data / "train/dense.json").read_text())["files"]]
    for archive in ("photos", "photos2"):
        names = json.loads((data / f"train/{archive}.json").read_text())
        out += [(archive, name) for name in names if name.split("/")[0] not in (*LEFT_OUT, "receipts")]
    return [item for item in dict.fromkeys(out) if research or item[1].split("/")[0] in FREE]


def is_kept_back(name: str) -> bool:
    """Half of the photographs, on which taught words are measured (taught.py)."""
    return zlib.crc32(name.encode()) % 2 == 0


def place(out: Path, archive: str, name: str) -> Path:
    return out / archive / (name.replace("/", "__") + ".npz")


def fitted(rgb: np.ndarray, long_side: int = LONG_SIDE) -> tuple[np.ndarray, int, int]:
    """As the library sees it: resized, padded to multiples of 32 -> (uint8 [H, W, 3], cells h, cells w)."""
    height, width = rgb.shape[:2]
    ratio = long_side / max(height, width)
    h, w = max(1, round(height * ratio / STRIDE)), max(1, round(width * ratio / STRIDE))
    rows, cols = h * STRIDE, w * STRIDE
    method = cv2.INTER_AREA if rows < height else cv2.INTER_LINEAR
    padded = np.full((rows + -rows % PADDED_TO, cols + -cols % PADDED_TO, 3), GREY, np.uint8)
    padded[:rows, :cols] = cv2.resize(rgb, (cols, rows), interpolation=method)
    return padded, h, w


def start(data: str) -> None:
    import torch

    from training.nano.trunks import Trunks

    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    _nets["trunks"] = Trunks(Path(data), decoder=True).eval()


def look(job: tuple[bytes, str]) -> None:
    import torch

    from training.nano.trunks import joined

    content, path = job
    rgb, _, _ = fitted(np.array(Image.open(io.BytesIO(content)).convert("RGB")))
    with torch.no_grad():
        seen = _nets["trunks"](torch.from_numpy(rgb).permute(2, 0, 1)[None].float())
        answers = _nets["trunks"].answers(seen)
    arrays = {k: joined(getattr(seen, k))[0].half().numpy() for k in ("fine", "coarse")}
    arrays |= {k: (v[0] * 255).round().byte().numpy() for k, v in answers.items()}
    with open(path + ".part", "wb") as file:
        np.savez(file, **arrays)
    Path(path + ".part").rename(path)


def arguments(description: str | None, **options: Any) -> argparse.Namespace:
    """--data, --cache, --run, --no-research, and numbers with a default: what the steps of nano have in common."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="described in training/README.md")
    parser.add_argument("--cache", type=Path, default=Path("training/cache"), help="of what the specialists see")
    parser.add_argument("--run", type=Path, default=Path("training/run"), help="of what is learned")
    parser.add_argument("--no-research", action="store_true", help="leave out sources that allow research only")
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default, help="[default: %(default)s]")
    return parser.parse_args()


def main() -> None:
    args = arguments(__doc__, workers=2, most=4000)  # most: photographs in all; those with labels come first
    archives = {n: tarfile.open(args.data / f"train/{n}.tar") for n in ("dense", "boxes", "photos", "photos2")}  # noqa: SIM115

    jobs = []
    for archive, name in listed(args.data, not args.no_research)[: args.most]:
        path = place(args.cache, archive, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            jobs.append((archive, name, str(path)))
    todo = ((archives[a].extractfile(n).read(), p) for a, n, p in jobs)
    with ProcessPoolExecutor(args.workers, initializer=start, initargs=(str(args.data),)) as pool:
        for _ in tqdm(pool.map(look, todo, chunksize=2), total=len(jobs), desc="trunks", mininterval=5):
            pass


if __name__ == "__main__":
    main()
