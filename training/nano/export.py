"""Trunks + trained head -> encoders/assets/nano_image.onnx, nano_names.json and nano_names.safetensors.

    python -m training.nano.export --run training/run

The segmenters count in integers (integers.py). Before it writes, it checks that onnxruntime and torch agree, and that
the integers agree with floats (`Agreement`).
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import onnxruntime
import torch
from PIL import Image
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from training.nano.classifier import add_classifier
from training.nano.evidence import Evidence
from training.nano.features import fitted
from training.nano.head import Head

SYNONYM = 0.1  # weight of a class's other names beside its first: "child" is a person too (docs/log.md)
RIDGE = 0.1  # near-synonyms (fork, knife) would otherwise get huge opposite vectors
AGREE = 2e-3  # largest difference of a feature's component


class TextTable:
    """text -> unit vector float32 [256], the mean of its pieces' rows."""

    def __init__(self, assets: Path) -> None:
        self.spell = Tokenizer.from_file(str(assets / "nano_tokenizer.json"))
        table = load_arrays(assets / "nano_text.safetensors")
        self.rows = table["rows"].astype(np.float32) * table["scale"].astype(np.float32)[:, None]

    def __call__(self, texts: list[str]) -> np.ndarray:
        ids = [e.ids for e in self.spell.encode_batch(texts, add_special_tokens=False)]
        out = np.stack([self.rows[i].mean(0) if i else np.zeros(self.rows.shape[1], np.float32) for i in ids])
        return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-9)


class Shipped(nn.Module):
    """Bytes in, planes last out: what the library wants, and the only place where layouts change."""

    def __init__(self, evidence: Evidence) -> None:
        super().__init__()
        self.evidence = evidence

    def forward(self, rgb: Tensor) -> Tensor:
        return self.evidence(rgb.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def carried(groups: list[np.ndarray]) -> np.ndarray:
    """Ridge regression from words to the detector's names: float32 [256, 80]."""
    vectors = np.concatenate(groups).astype(np.float64)
    weights = np.array([SYNONYM if n else 1.0 for group in groups for n in range(len(group))])
    target = np.repeat(np.eye(len(groups)), [len(g) for g in groups], 0)
    weighted = (vectors * weights[:, None]).T
    return np.linalg.solve(weighted @ vectors + RIDGE * np.eye(vectors.shape[1]), weighted @ target).astype(np.float32)


def cut(rgb: np.ndarray) -> np.ndarray:
    """Both sides to multiples of 32."""
    return np.ascontiguousarray(rgb[:, : rgb.shape[1] // 32 * 32, : rgb.shape[2] // 32 * 32])


def written_as(model: nn.Module, path: Path) -> onnxruntime.InferenceSession:
    """Write the network for any batch, height and width, and open what was written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (torch.zeros(1, 512, 512, 3, dtype=torch.uint8),),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["rgb"],
            output_names=["features"],
            dynamic_axes={"rgb": {0: "n", 1: "h", 2: "w"}, "features": {0: "n", 1: "rows", 2: "cols"}},
        )
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


# --- do the integers agree with floats? -------------------------------------------------------------------------------

CORRELATION, DIFFERENCE, LOST = 0.99, 0.05, 0.1  # measured: 0.997, 0.02 and 0.04
CLEAR = 0.1  # maps whose peak is lower hold no peak to lose
SAMPLE = 4  # every fourth photograph of an archive


class Agreement(NamedTuple):
    """Least correlation of a name, largest difference of a value, largest loss at a peak in shares of the peak, and
    the share of clear peaks that lie within one cell of where they were."""

    correlation: float
    difference: float
    lost: float
    kept: float

    def bad(self) -> bool:
        return not (self.correlation >= CORRELATION and self.difference <= DIFFERENCE and self.lost <= LOST)

    def __str__(self) -> str:
        return (
            f"least correlation {self.correlation:.4f}, largest difference {self.difference:.3f}, "
            f"lost at a peak {self.lost:.1%}, peaks kept {self.kept:.1%}"
        )


def photographs(folder: Path, archive: Path | None = None) -> list[np.ndarray]:
    """JPEG files of a folder and a sample of an archive's, as the network sees them: uint8 [1, H, W, 3]."""
    files = [Image.open(path) for path in sorted(folder.glob("*.jpg"))]
    if archive is not None and archive.exists():
        with tarfile.open(archive) as tar:
            members = sorted((m for m in tar.getmembers() if m.name.endswith(".jpg")), key=lambda m: m.name)[::SAMPLE]
            files += [Image.open(io.BytesIO(tar.extractfile(m).read())) for m in members]
    return [fitted(np.array(image.convert("RGB")))[0][None] for image in files]


def compare(pairs: list[tuple[np.ndarray, np.ndarray]]) -> Agreement:
    """(float planes, shipped planes) of each photograph, both [h, w, names]."""
    exact, ours = (np.concatenate([pair[k].reshape(-1, pair[k].shape[-1]) for pair in pairs]) for k in (0, 1))
    spoken = exact.std(0) > 0
    correlations = [np.corrcoef(exact[:, i], ours[:, i])[0, 1] for i in np.flatnonzero(spoken)]
    lost, near = [0.0], []
    for a, b in pairs:
        for i in np.flatnonzero(a.max((0, 1)) > CLEAR):
            was, now = (np.array(np.unravel_index(x[..., i].argmax(), x.shape[:2])) for x in (a, b))
            lost.append(1 - float(a[..., i][tuple(now)] / a[..., i].max()))
            near.append(bool(np.abs(was - now).max() <= 1))
    return Agreement(min(correlations), float(np.abs(exact - ours).max()), max(lost), float(np.mean(near or [True])))


def agreement(float_session: Any, session: Any, images: list[np.ndarray]) -> Agreement:
    return compare([(float_session.run(None, {"rgb": x})[0][0], session.run(None, {"rgb": x})[0][0]) for x in images])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("training/run"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--assets", type=Path, default=Path("src/foveate/encoders/assets"))
    args = parser.parse_args()
    here = Path(__file__).parent
    names = json.loads((args.run / "head.json").read_text())["names"]
    written = json.loads((here / "concepts.json").read_text())
    concepts, detector = written["concepts"], written["detector"]
    synonyms = json.loads((here / "vocabulary.json").read_text())
    coco = json.loads((args.data / "text/coco_names.json").read_text())
    head = Head(len(names))
    head.load_state_dict(load_file(args.run / "head.safetensors"))
    fitted = load_file(args.run / "calibration.safetensors")
    shipped, exact = (Shipped(Evidence(args.data, head, fitted, names, integers)).eval() for integers in (True, False))
    temporary, other = args.assets / "nano_image.part", args.assets / "nano_image_float.part"
    session = written_as(shipped, temporary)
    worst, noise = 0.0, np.random.default_rng(0)
    images = [noise.integers(0, 256, size, np.uint8) for size in ((2, 320, 320, 3), (1, 64, 640, 3), (1, 32, 32, 3))]
    files = sorted((here.parents[1] / "src/foveate/cli/photos").glob("*.jpg"))
    images += [cut(cv2.imread(str(file))[None, ..., ::-1]) for file in files]  # noise paints nothing
    for rgb in images:
        with torch.no_grad():
            expected = shipped(torch.from_numpy(rgb)).numpy()
        worst = max(worst, float(np.abs(session.run(None, {"rgb": rgb})[0] - expected).max()))
    if worst > AGREE:
        raise SystemExit(f"onnxruntime and torch differ by {worst:.1e}, more than {AGREE:.0e}: nothing was written")
    images = photographs(here.parents[1] / "src/foveate/cli/photos", args.data / "dev/coco128/images.tar")
    agreed = agreement(written_as(exact, other), session, images)
    other.unlink()
    print(f"integers and floats on {len(images)} photographs: {agreed}")
    if agreed.bad():
        raise SystemExit("the integers differ too much from floats (limits above): nothing was written")
    temporary.replace(args.assets / "nano_image.onnx")
    add_classifier(args.assets / "nano_image.onnx", args.data)
    encode = TextTable(args.assets)
    groups = [encode([name, *synonyms[name]]) for name in coco]
    save_file({"carried": carried(groups)}, args.assets / "nano_names.safetensors")
    table = {name: list(dict.fromkeys((*synonyms[name], *detector.get(name, ())))) for name in coco}
    table |= {(f"{name} (part)" if name in table else name): concepts[name]["words"] for name in names}
    (args.assets / "nano_names.json").write_text(json.dumps({"names": table}, indent=0, ensure_ascii=False) + "\n")
    size = (args.assets / "nano_image.onnx").stat().st_size / 1e6
    print(f"{len(table)} names, {size:.1f} MB, agrees to {worst:.0e}")


if __name__ == "__main__":
    main()
