"""The second teacher: MobileNetV2 (ImageNet-1000), read from its quantised TFLite file and run densely in torch.

What is notable
* The classifier is global average pooling and one linear layer, so the same layer applied at every position is a
  class activation map. Positions see a 3x3 average of the last features, close to the 7x7 mean it was trained on.
* Weights are de-quantised; activations stay float. TensorFlow's SAME padding puts the odd pixel at the end.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F


class Classifier:
    def __init__(self, path: str) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        lite = Interpreter(path, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
        lite.allocate_tensors()
        details = {t["index"]: t for t in lite.get_tensor_details()}

        def weight(index: int) -> Tensor:
            q = details[index]["quantization_parameters"]
            raw = lite.get_tensor(index).astype(np.float32)
            return torch.from_numpy(((raw - q["zero_points"][0]) * q["scales"][0]).astype(np.float32))

        self.input = int(lite.get_input_details()[0]["index"])
        self.steps = []
        for op in lite._get_ops_details():  # the only door to the order of the operations
            kind, inputs, output = op["op_name"], [int(i) for i in op["inputs"]], int(op["outputs"][0])
            if kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
                w, b = weight(inputs[1]), weight(inputs[2])
                deep = kind.startswith("DEPTH")
                w = w.permute(3, 0, 1, 2) if deep else w.permute(0, 3, 1, 2)  # [1,k,k,c] or [o,k,k,i] -> [o,i,k,k]
                stride = int(details[inputs[0]]["shape"][1] // max(1, details[output]["shape"][1]))
                linear = "Relu6" not in details[output]["name"].split(";")[0]
                self.steps.append(
                    (kind, inputs[:1], output, (w.contiguous(), b, stride, w.shape[0] if deep else 1, linear))
                )
            elif kind in ("ADD", "AVERAGE_POOL_2D"):
                self.steps.append((kind, inputs, output, None))

    @torch.no_grad()
    def __call__(self, rgb: np.ndarray, pool: int = 3) -> np.ndarray:
        """uint8 [H, W, 3] -> class logits float32 [h, w, 1000] at stride 32 (ImageNet order, background dropped)."""
        x = torch.from_numpy(rgb.astype(np.float32) / 128 - 1).permute(2, 0, 1)[None]
        values = {self.input: x}
        for kind, inputs, output, data in self.steps:
            x = values[inputs[0]]
            if kind == "ADD":
                x = x + values[inputs[1]]
            elif kind == "AVERAGE_POOL_2D":
                x = F.avg_pool2d(x, pool, 1, pool // 2, count_include_pad=False)
            else:
                w, b, stride, groups, linear = data
                x = F.conv2d(F.pad(x, same_padding(x, w.shape[-1], stride)), w, b, stride, groups=groups)
                x = x if linear else x.clamp(0, 6)
            values[output] = x
        return x[0].permute(1, 2, 0)[..., 1:].numpy()


def same_padding(x: Tensor, kernel: int, stride: int) -> tuple[int, int, int, int]:
    def one(size: int) -> tuple[int, int]:
        total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        return total // 2, total - total // 2

    return (*one(x.shape[-1]), *one(x.shape[-2]))
