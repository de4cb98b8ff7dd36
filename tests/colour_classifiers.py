"""Tiny classifiers in files, whose classes are colours; ONNX is written byte by byte, without the package onnx.

A colour c of the mean x of 32 x 32 pixels has the logit 40 (2 c.x - c.c), so the nearest colour has the highest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

COLOURS = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0.5, 0.5), (0, 0, 0), (1, 1, 1))
LABELS = ("rambutan, hairy lychee", "katydid wing", "kingfisher (halcyon)", "background", "Background", "background")
STRENGTH = 40.0


def layer(given: Sequence[Sequence[float]] = COLOURS) -> tuple[np.ndarray, np.ndarray]:
    """-> (weights float32 [classes, 3], bias [classes]) for pixels from 0 to 1."""
    colours = np.array(given, np.float32)
    return 2 * STRENGTH * colours, -STRENGTH * (colours**2).sum(1)


# --- ONNX: protobuf's bytes (onnx.proto) ------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(name: str, values: np.ndarray) -> bytes:
    kind = {"f": 1, "i": 7}[values.dtype.kind]
    dims = b"".join(field(1, n) for n in values.shape)
    return dims + field(2, kind) + field(8, name) + field(9, values.tobytes())


def value_info(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    dims = b"".join(field(1, field(1, n) if isinstance(n, int) else field(2, n)) for n in shape)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, dims)))


def node(kind: str, inputs: Sequence[str], output: str, **attributes: int | Sequence[int]) -> bytes:
    out = b"".join(field(1, name) for name in inputs) + field(2, output) + field(4, kind)
    for name, value in attributes.items():
        if isinstance(value, int):
            held = field(1, name) + field(3, value) + field(20, 2)
        else:
            held = field(1, name) + b"".join(field(8, n) for n in value) + field(20, 7)
        out += field(5, held)
    return out


def write_onnx(
    path: Path,
    *,
    kind: Literal["float", "uint8"] = "float",
    last: bool = False,
    size: tuple[int | str, int | str] = ("h", "w"),
    pooled: bool = False,
    softmax: bool = False,
    metadata: Mapping[str, str] | None = None,
    colours: Sequence[Sequence[float]] = COLOURS,
    channels: int = 3,
) -> Path:
    """kind: of the input; floats go from 0 to 1. last: channels are last, in the input and in the output."""
    weight, bias = layer([(*colour, *[0.0] * (channels - 3)) for colour in colours])
    weight = weight / 255 if kind == "uint8" else weight
    tensors = [tensor("weight", weight.astype(np.float32)[..., None, None]), tensor("bias", bias.astype(np.float32))]
    nodes, now = [], "image"

    def then(operation: str, *more: str, **attributes: int | Sequence[int]) -> None:
        nonlocal now
        nodes.append(node(operation, [now, *more], f"{now}+", **attributes))
        now += "+"

    if kind == "uint8":
        then("Cast", to=1)
    if last:
        then("Transpose", perm=[0, 3, 1, 2])
    if pooled:
        then("GlobalAveragePool")
    else:
        then("AveragePool", kernel_shape=[32, 32], strides=[32, 32])
    then("Conv", "weight", "bias")
    if softmax:
        then("Softmax", axis=1)
    if pooled:
        then("Flatten")
    elif last:
        then("Transpose", perm=[0, 2, 3, 1])
    nodes[-1] = nodes[-1].replace(field(2, now), field(2, "classes"))
    shape: list[int | str] = [1, *size, channels] if last else [1, channels, *size]
    made: list[int | str] = [1, len(colours)] if pooled else ["n", "a", "b", "c"]
    graph = b"".join(field(1, each) for each in nodes) + field(2, "colours") + b"".join(field(5, t) for t in tensors)
    graph += field(11, value_info("image", {"float": 1, "uint8": 2}[kind], shape))
    graph += field(12, value_info("classes", 1, made))
    model = field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17))
    model += b"".join(field(14, field(1, key) + field(2, text)) for key, text in (metadata or {}).items())
    path.write_bytes(model)
    return path


# --- TFLite: its own package writes the flatbuffer --------------------------------------------------------------------


def write_lite(path: Path, *, dense: bool = True, side: int = 64, codes: bool = False) -> Path:
    """A mean over 32 x 32 pixels, a ReLU, the mean of these, one layer, softmax.

    dense: False has a second layer after the mean, so that the file cannot be cut. codes: the input is bytes, and not
    floats from 0 to 1.
    """
    import flatbuffers
    from ai_edge_litert import schema_py_generated as s

    weight, bias = layer()
    buffers: list[Any] = [s.BufferT()]
    tensors: list[Any] = []
    codes_of: list[Any] = []

    def add(
        shape: Sequence[int], kind: int = 0, data: np.ndarray | None = None, q: tuple[float, int] | None = None
    ) -> int:
        held = s.TensorT()
        held.shape, held.type, held.name = list(shape), kind, f"t{len(tensors)}".encode()
        if data is not None:
            buffer = s.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            buffers.append(buffer)
            held.buffer = len(buffers) - 1
        if q is not None:
            held.quantization = s.QuantizationParametersT()
            held.quantization.scale, held.quantization.zeroPoint = [q[0]], [q[1]]
        tensors.append(held)
        return len(tensors) - 1

    def do(kind: str, inputs: Sequence[int], output: int, options: Any = None, name: str = "") -> Any:
        code = s.OperatorCodeT()
        code.builtinCode = getattr(s.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        codes_of.append(code)
        step = s.OperatorT()
        step.opcodeIndex, step.inputs, step.outputs = len(codes_of) - 1, list(inputs), [output]
        if options is not None:
            step.builtinOptions, step.builtinOptionsType = options, getattr(s.BuiltinOptions, name)
        return step

    pool = s.Pool2DOptionsT()
    pool.padding, pool.strideH, pool.strideW, pool.filterHeight, pool.filterWidth = 1, 32, 32, 32, 32
    mean, full, soft = s.ReducerOptionsT(), s.FullyConnectedOptionsT(), s.SoftmaxOptionsT()
    mean.keepDims, soft.beta = False, 1.0
    cells = [1, side // 32, side // 32, 3]
    steps = []
    given = add([1, side, side, 3], 3 if codes else 0, q=(1 / 255, 0) if codes else None)
    start = given
    if codes:
        start = add([1, side, side, 3])
        steps.append(do("DEQUANTIZE", [given], start))
    pooled, relu = add(cells), add(cells)
    steps += [do("AVERAGE_POOL_2D", [start], pooled, pool, "Pool2DOptions"), do("RELU", [pooled], relu)]
    axes, one = add([2], 2, np.array([1, 2], np.int32)), add([1, 3])
    steps.append(do("MEAN", [relu, axes], one, mean, "ReducerOptions"))
    logits = add([1, len(bias)])
    held = [add(weight.shape, 0, weight.astype(np.float32)), add(bias.shape, 0, bias.astype(np.float32))]
    steps.append(do("FULLY_CONNECTED", [one, *held], logits, full, "FullyConnectedOptions"))
    if not dense:
        same, zero = np.eye(len(bias), dtype=np.float32), np.zeros(len(bias), np.float32)
        more = [add(same.shape, 0, same), add(zero.shape, 0, zero)]
        logits, before = add([1, len(bias)]), logits
        steps.append(do("FULLY_CONNECTED", [before, *more], logits, full, "FullyConnectedOptions"))
    out = add([1, len(bias)])
    steps.append(do("SOFTMAX", [logits], out, soft, "SoftmaxOptions"))
    graph, model = s.SubGraphT(), s.ModelT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = tensors, steps, [given], [out]
    model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [graph], buffers, codes_of
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path


def write_labels(path: Path, labels: Sequence[str] = LABELS) -> Path:
    path.with_suffix(".txt").write_text("\n".join(labels) + "\n", "utf-8")
    return path
