"""A dense ImageNet classifier joins nano's network: a second output, one plane of probability for each class.

    python -m training.nano.classifier --data DATA      # into encoders/assets/nano_image.onnx, as export.py does

    rgb -> MobileNetEdgeTPU, in integers (integers.py) -> its classifier at each cell -> means of 3 x 3 cells -> softmax
    -> "classes" [n, H/32, W/32, 1000], without the background

A classifier was trained on whole photographs: its last mean is taken over a neighbourhood in the place of the picture
(docs/log.md has the sizes that were tried). The mean of what the classifier says is what it says of the mean, so it
multiplies the features' bytes. Its names are in nano_classes.tsv (classes.py).
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from training.nano.features import fitted
from training.nano.integers import Integers, Product
from training.nano.lite import read, stored
from training.nano.trunks import middles

if TYPE_CHECKING:
    import onnx  # training alone needs it, and tests import this

FILE = "mobilenet_edgetpu_224_1.0_uint8.tflite"
FEATURES, LOGITS = "MobilenetEdgeTPU/Conv_1/BatchNorm_Fold/bias1", "MobilenetEdgeTPU/Logits/Conv2d_1c_1x1/biases1"
CELLS = 3  # along the side of the neighbourhood
PREFIX = "classes/"  # of names in the joined network
PHOTOS = Path(__file__).parents[2] / "src/foveate/cli/photos"
ALIKE = 0.98  # least correlation of probabilities: codes round otherwise, and differences add up over 45 layers


class Classifier(nn.Module):
    """uint8 [n, H, W, 3], sides multiples of 32 -> probabilities [n, H/32, W/32, 1000]."""

    def __init__(self, data: Path) -> None:
        super().__init__()
        file = data / "teachers" / FILE
        self.trunk = Integers(file, (FEATURES,))
        last = read(file, (LOGITS,))
        kernel, bias = (last.tensors[i] for i in last.steps[-1].operation.inputs[1:3])
        q = kernel.quantization
        codes = torch.from_numpy(stored(last.model, kernel).copy())  # [1001, 1, 1, 1280]
        self.register_buffer("weight", (codes.flatten(1).T.short() - 128).to(torch.int8).contiguous())
        self.register_buffer("zero", torch.tensor(int(q.zeroPoint[0]) - 128, dtype=torch.int8))
        self.scale = float(q.scale[0])
        self.register_buffer("bias", torch.from_numpy(stored(last.model, bias) * bias.quantization.scale[0]).float())

    def forward(self, rgb: Tensor) -> Tensor:
        ((features, coded),) = self.trunk.codes(rgb.permute(0, 3, 1, 2))
        said = Product.apply(features.permute(0, 2, 3, 1), self.weight, coded.zero, self.zero)
        x = middles((said * (coded.scale * self.scale)).permute(0, 3, 1, 2))
        around = F.pad(x, (CELLS // 2,) * 4, mode="replicate")
        x = F.avg_pool2d(around, CELLS, 1).permute(0, 2, 3, 1)
        return (x + self.bias).softmax(-1)[..., 1:]


def join(model: onnx.ModelProto, more: onnx.ModelProto) -> onnx.ModelProto:
    """Two networks that see the same input `rgb` as one; names of the second get PREFIX, but for its outputs.

    What is computed twice, as the picture's fourth channel and its edges are, is computed once.
    """
    from onnx.checker import check_model

    kept = {"rgb", "", *(each.name for each in more.graph.output)}
    nodes = list(more.graph.node)
    for names in ([each.name for each in model.graph.node], [each.name for each in model.graph.initializer]):
        if any(name.startswith(PREFIX) for name in names):
            raise SystemExit("the network has a classifier already: export it again")
    for node in nodes:
        node.name = PREFIX + node.name
        for names in (node.input, node.output):
            renamed = [name if name in kept else PREFIX + name for name in names]
            del names[:]
            names.extend(renamed)
    for tensor in more.graph.initializer:
        tensor.name = PREFIX + tensor.name
    same: dict[str, str] = {}
    once: dict[tuple[object, ...], onnx.NodeProto] = {}
    for node in [*model.graph.node, *nodes]:
        inputs = [same.get(name, name) for name in node.input]
        del node.input[:]
        node.input.extend(inputs)
        key = node.op_type, *inputs, *(each.SerializeToString(deterministic=True) for each in node.attribute)
        same |= zip(node.output, once.setdefault(key, node).output, strict=True)
    del model.graph.node[:]
    model.graph.node.extend(once.values())
    model.graph.initializer.extend(more.graph.initializer)
    model.graph.output.extend(more.graph.output)
    check_model(model)
    return model


def add_classifier(network: Path, data: Path) -> None:
    """Rewrites a network file with the classifier in it; nothing where onnxruntime and torch disagree."""
    import onnx

    part = network.with_suffix(".part")
    model = Classifier(data).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.zeros(1, 512, 512, 3, dtype=torch.uint8),), str(part), dynamo=False, opset_version=17,
            input_names=["rgb"], output_names=["classes"], do_constant_folding=False,
            dynamic_axes={"rgb": {0: "n", 1: "h", 2: "w"}, "classes": {0: "n", 1: "coarse_rows", 2: "coarse_cols"}},
        )  # fmt: skip
    onnx.save(join(onnx.load(network), onnx.load(part)), part)
    session = onnxruntime.InferenceSession(str(part), providers=["CPUExecutionProvider"])
    least = 1.0
    for file in sorted(PHOTOS.glob("*.jpg")):
        rgb = fitted(np.array(Image.open(file).convert("RGB")))[0][None]
        with torch.no_grad():
            expected = model(torch.from_numpy(rgb)).numpy()
        found = session.run(["classes"], {"rgb": rgb})[0]
        least = min(least, float(np.corrcoef(found.ravel(), expected.ravel())[0, 1]))
    if least < ALIKE:
        raise SystemExit(f"onnxruntime and torch correlate at {least:.3f} only: nothing was written")
    part.replace(network)
    print(f"a classifier, correlates at {least:.3f} with torch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--assets", type=Path, default=Path("src/foveate/encoders/assets"))
    args = parser.parse_args()
    add_classifier(args.assets / "nano_image.onnx", args.data)


if __name__ == "__main__":
    main()
