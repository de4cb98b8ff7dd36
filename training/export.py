"""Trained tower -> encoders/assets/nano_image.onnx (uint8 [n, H, W, 3] in, features [n, H/8, W/8, 256] out).

    python training/export.py --run training/run

Checks that onnxruntime and torch agree before it writes, and prints the calibration for src/foveate/encoders/nano.py.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from tower import NAMES, Tower, load_detector
from words import Vocabulary

SYNONYM = 0.1  # weight of a class's other names beside its first: "child" is a person too (docs/log.md)
AGREE = 2e-3  # largest difference of a feature's component


class Shipped(nn.Module):
    """Bytes in, channels last out: what the library wants, and the only place where layouts change."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.tower = tower

    def forward(self, rgb: Tensor) -> Tensor:
        return self.tower.painted(rgb.permute(0, 3, 1, 2).float()).permute(0, 2, 3, 1)


def load(path: Path, detector: Path) -> tuple[Tower, dict[str, float]]:
    """The trained tower. Its detector is frozen; what older runs did not keep of it (the boxes) is in its own file."""
    weights = load_file(path)
    tower = Tower()
    load_detector(tower, str(detector))
    trained = {k.removeprefix("tower."): v for k, v in weights.items() if k.startswith("tower.")}
    tower.load_state_dict(tower.state_dict() | trained)
    return tower.eval(), {k.removeprefix("scales."): float(v) for k, v in weights.items() if k.startswith("scales.")}


def cut(rgb: np.ndarray) -> np.ndarray:
    """Both sides to multiples of 32."""
    return np.ascontiguousarray(rgb[:, : rgb.shape[1] // 32 * 32, : rgb.shape[2] // 32 * 32])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("training/run"))
    parser.add_argument("--out", type=Path, default=Path("src/foveate/encoders/assets/nano_image.onnx"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--assets", type=Path, help="Folder of the text table [default: where --out lies].")
    args = parser.parse_args()
    tower, scales = load(args.run / "tower.safetensors", args.data / "teachers/yolox_nano.onnx")
    groups = Vocabulary(args.data, args.out.parent if args.assets is None else args.assets).groups[:NAMES]
    classes = torch.tensor([i for i, group in enumerate(groups) for _ in group])
    weights = torch.tensor([SYNONYM if n else 1.0 for group in groups for n in range(len(group))])
    tower.teach(torch.from_numpy(np.concatenate(groups)), classes, weights)
    shipped = Shipped(tower).eval()
    temporary = args.out.with_suffix(".part")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            shipped,
            (torch.zeros(1, 512, 512, 3, dtype=torch.uint8),),
            str(temporary),
            dynamo=False,
            opset_version=17,
            input_names=["rgb"],
            output_names=["features"],
            dynamic_axes={"rgb": {0: "n", 1: "h", 2: "w"}, "features": {0: "n", 1: "rows", 2: "cols"}},
        )
    session = onnxruntime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
    worst = 0.0
    noise = np.random.default_rng(0)
    images = [noise.integers(0, 256, size, np.uint8) for size in ((2, 320, 320, 3), (1, 64, 640, 3), (1, 32, 32, 3))]
    photographs = sorted((Path(__file__).parents[1] / "src/foveate/cli/photos").glob("*.jpg"))
    images += [cut(cv2.imread(str(file))[None, ..., ::-1]) for file in photographs]  # noise paints nothing
    for rgb in images:
        with torch.no_grad():
            expected = shipped(torch.from_numpy(rgb)).numpy()
        worst = max(worst, float(np.abs(session.run(None, {"rgb": rgb})[0] - expected).max()))
    if worst > AGREE:
        raise SystemExit(f"onnxruntime and torch differ by {worst:.1e}, more than {AGREE:.0e}: nothing was written")
    temporary.replace(args.out)
    millions, size = sum(p.numel() for p in tower.parameters()) / 1e6, args.out.stat().st_size / 1e6
    print(f"{args.out}: {millions:.2f} million parameters, {size:.1f} MB, agrees to {worst:.0e}")
    print(f"trained score: sigmoid({np.exp(scales['log_a']):.2f} q.x {scales['b']:+.2f})")


if __name__ == "__main__":
    main()
