"""A network's file as onnxruntime has it in mind once it has loaded it: loading it then takes less than half the time.

    python -m training.nano.fold       # last, after export and looks

onnxruntime folds constants and merges operators each time it loads a file. Here it does so once, up to its level
"extended", which does not depend on the processor; what does is left to each load. The file then holds operators of
onnxruntime's own (com.microsoft), all known since 1.20 at least.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2
import numpy as np
import onnxruntime

from training.nano.classifier import PHOTOS
from training.nano.features import fitted

AGREE = 1e-6  # largest difference that is rounding


def fold(network: Path) -> None:
    """Rewrites a network file, unless what it says of the package's photographs changes."""
    part = network.with_suffix(".part")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(part)
    _, before, after = (
        onnxruntime.InferenceSession(str(path), how, providers=["CPUExecutionProvider"])
        for path, how in ((network, options), (network, None), (part, None))
    )
    for file in sorted(PHOTOS.glob("*.jpg")):
        rgb = fitted(cv2.imread(str(file))[..., ::-1])[0][None]
        for a, b in zip(before.run(None, {"rgb": rgb}), after.run(None, {"rgb": rgb}), strict=True):
            if np.abs(a.astype(np.float64) - b).max() > AGREE:
                raise SystemExit(f"what it says of {file.name} changes: nothing was written")
    part.replace(network)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, default=Path("src/foveate/encoders/assets"))
    args = parser.parse_args()
    fold(args.assets / "nano_image.onnx")


if __name__ == "__main__":
    main()
