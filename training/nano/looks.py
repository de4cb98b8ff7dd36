"""What things look like, apart from names: a linear projection of what the specialists see, as an output of it.

    python -m training.nano.looks --data DATA         # after export; half of the training photographs is kept back

Words that are taught (foveate.teach) are linear in it. The projection is whitened over cells of photographs, so their
covariance is the identity, and the direction that tells a mean of examples from everything else (LDA) is that mean.
`bank` are such cells: a word's score on them says what is unusual. docs/log.md has what was compared.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from safetensors.numpy import save_file

from training.nano.features import arguments, fitted, is_kept_back, listed

WIDTH = 96
STEP = 1 / 16  # of the int8 numbers: +-8 deviations
PHOTOGRAPHS, CELLS, BANK = 900, 40, 2000
RIDGE = 1e-3  # of the mean variance
OUTPUT = "looks"
SEEN = {  # tensors by name -> their stride
    "/evidence/trunks/Resize_1_output_0": 8,
    "/evidence/trunks/AveragePool_output_0": 8,
    "/evidence/trunks/Resize_2_output_0": 16,
    "/evidence/trunks/AveragePool_1_output_0": 16,
    "/evidence/trunks/AveragePool_2_output_0": 16,
    "/evidence/trunks/AveragePool_3_output_0": 16,
    "/evidence/trunks/AveragePool_4_output_0": 16,
    "/evidence/trunks/Resize_3_output_0": 32,
}


class Projection(NamedTuple):
    """looks = seen @ weights + bias, float32 [channels, WIDTH] and [WIDTH]: mean 0 and covariance 1."""

    weights: np.ndarray
    bias: np.ndarray


def brought(maps: list[np.ndarray]) -> np.ndarray:
    """The tensors of SEEN [1, c, h, w] -> [h, w, channels] at stride 16."""
    out = []
    for x, stride in zip(maps, SEEN.values(), strict=True):
        c, h, w = x.shape[1:]
        if stride == 8:
            x = x.reshape(c, h // 2, 2, w // 2, 2).mean((2, 4))
        out.append(x.reshape(c, h, w).repeat(2, 1).repeat(2, 2) if stride == 32 else x.reshape(c, *x.shape[-2:]))
    return np.concatenate(out).transpose(1, 2, 0)


def fit(cells: np.ndarray) -> Projection:
    """Principal directions of standardised channels, whitened."""
    mean, deviation = cells.mean(0), cells.std(0) + 1e-4
    standard = (cells - mean) / deviation
    values, vectors = np.linalg.eigh((standard.T @ standard / len(cells)).astype(np.float64))
    first = np.argsort(-values)[:WIDTH]
    weights = vectors[:, first] / np.sqrt(values[first] + RIDGE * values.mean()) / deviation[:, None]
    return Projection(weights.astype(np.float32), (-mean @ weights).astype(np.float32))


def tapped(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """The network with the tensors of SEEN as outputs."""
    model = onnx.ModelProto.FromString(model.SerializeToString())
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in SEEN)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def add_looks(model: onnx.ModelProto, projection: Projection) -> None:
    """Add the output `looks` int8 [n, H/16, W/16, WIDTH] to a network, in the place of an earlier one."""
    graph = model.graph
    for kept in (graph.node, graph.initializer, graph.output):
        for each in [each for each in kept if each.name.split(".")[0] == OUTPUT]:
            kept.remove(each)

    def constant(name: str, value: np.ndarray) -> str:
        graph.initializer.append(numpy_helper.from_array(value, f"{OUTPUT}.{name}"))
        return f"{OUTPUT}.{name}"

    def node(kind: str, inputs: list[str], name: str, **attributes: Any) -> str:
        graph.node.append(helper.make_node(kind, inputs, [name], f"{OUTPUT}.{len(graph.node)}", **attributes))
        return name

    scales = constant("scales", np.array([1, 1, 2, 2], np.float32))
    total, start = "", 0
    for i, (name, stride) in enumerate(SEEN.items()):
        channels = widths(graph)[name]
        kernel = projection.weights[start : start + channels].T[..., None, None]
        start += channels
        half = constant(f"weights.{i}", kernel.astype(np.float16))
        weights = node("Cast", [half], f"{OUTPUT}.w{i}", to=TensorProto.FLOAT)
        if stride == 8:  # before it is wide
            name = node("AveragePool", [name], f"{OUTPUT}.p{i}", kernel_shape=[2, 2], strides=[2, 2])
        x = node("Conv", [name, weights], f"{OUTPUT}.c{i}")
        if stride == 32:
            x = node("Resize", [x, "", scales], f"{OUTPUT}.r{i}", mode="nearest",
                     coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
        total = node("Add", [total, x], f"{OUTPUT}.s{i}") if total else x
    if start != len(projection.weights):
        raise SystemExit(f"{start} channels in the network, {len(projection.weights)} in the projection")
    total = node("Add", [total, constant("bias", projection.bias[:, None, None])], f"{OUTPUT}.biased")
    last = node("Transpose", [total], f"{OUTPUT}.last", perm=[0, 2, 3, 1])
    step, zero = constant("step", np.array(STEP, np.float32)), constant("zero", np.array(0, np.int8))
    node("QuantizeLinear", [last, step, zero], OUTPUT)
    graph.output.append(helper.make_tensor_value_info(OUTPUT, TensorProto.INT8, ["n", "looks_h", "looks_w", WIDTH]))


def widths(graph: onnx.GraphProto) -> dict[str, int]:
    """Channels of the tensors of SEEN, from the weights of the head, which reads them all."""
    dims = {each.name: each.dims for each in graph.initializer}
    read = [n for n in graph.node if n.op_type == "Conv" and n.input[0] in SEEN and ".head." in n.input[1]]
    return {n.input[0]: dims[n.input[1]][1] for n in read}


def main() -> None:
    args = arguments(__doc__, assets="src/foveate/encoders/assets")
    path = Path(args.assets) / "nano_image.onnx"
    model, random = onnx.load(path), np.random.default_rng(0)
    session, cells, seen = tapped(model), list[np.ndarray](), list[np.ndarray]()
    items = [each for each in listed(args.data, not args.no_research) if not is_kept_back(each[1])]
    archives = {each: tarfile.open(args.data / f"train/{each}.tar") for each in {archive for archive, _ in items}}  # noqa: SIM115
    for i in random.permutation(len(items))[:PHOTOGRAPHS]:
        archive, name = items[i]
        rgb, h, w = fitted(np.array(Image.open(io.BytesIO(archives[archive].extractfile(name).read())).convert("RGB")))
        maps = brought(session.run(list(SEEN), {"rgb": rgb[None]}))[: -(-h // 2), : -(-w // 2)]
        flat = maps.reshape(-1, maps.shape[-1])
        cells.append(flat[random.permutation(len(flat))[:CELLS]])
        if len(seen) < 4:
            seen.append(rgb)
    every = np.concatenate(cells).astype(np.float32)
    projection = fit(every)
    add_looks(model, projection)
    onnx.checker.check_model(model)
    shipped = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rgb in seen:
        expected = brought(session.run(list(SEEN), {"rgb": rgb[None]})) @ projection.weights + projection.bias
        (found,) = shipped.run([OUTPUT], {"rgb": rgb[None]})
        worst = np.abs(found[0] * STEP - np.clip(expected, -128 * STEP, 127 * STEP)).max()
        if worst > 2 * STEP:
            raise SystemExit(f"the network's looks differ by {worst:.3f}: nothing was written")
    bank = (every @ projection.weights + projection.bias)[random.permutation(len(every))[:BANK]]
    path.with_suffix(".part").write_bytes(model.SerializeToString())
    path.with_suffix(".part").replace(path)
    whole = np.clip(np.rint(bank / STEP), -128, 127).astype(np.int8)
    save_file({"bank": whole}, path.with_name("nano_looks.safetensors"))
    print(f"{len(cells)} photographs, {len(every)} cells, {path.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
