"""An ONNX file run by torch: the twin of onnxruntime for nano on a GPU (extra `[torch]`).

    read_graph(path) -> Graph            the file's nodes and constants, without the package onnx
    TorchGraph(graph, device)(rgb)          its first output, for a batch

What is notable
* onnxruntime's own CUDA provider has no kernel for QLinearConv (84 nodes of nano): it would run them on the CPU, and
  copy between them. torch runs all of it where it was asked to.
* Everything that follows from the shape of the input alone (a third of the nodes) is computed once for each shape. What
  is left is a list of steps on tensors of the device; on CUDA it is captured and replayed, one launch a batch.
* Levels of 8 bits stay exact in float32; a sum beyond 2^24 may be rounded, and then a level differs by one.
* Operators are those that nano and nano-fast use; another one is refused by its name.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from foveate.core.devices import captured, convolve, download, working_on
from foveate.core.errors import EncoderFilesError

if TYPE_CHECKING:
    import torch

# TensorProto.DataType
DTYPES: dict[int, Any] = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16}
MOST_SHAPES = 32  # programs that are kept; on a GPU they share their buffers


@dataclass(frozen=True)
class Node:
    """An operator: the names of what it takes ("" for what is left out) and makes, and its attributes."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can be run; constants by name; the name of the input, and of the first output."""

    nodes: tuple[Node, ...]
    constants: dict[str, NDArray[Any]]
    input: str
    output: str


# --- the file ---------------------------------------------------------------------------------------------------------


def read_graph(path: Path) -> Graph:
    """Of an ONNX file. Raises EncoderFilesError for what is none."""
    try:
        (graph,) = (value for field, value in _fields(path.read_bytes()) if field == 7)
        parts: dict[int, list[Any]] = {}
        for field, value in _fields(graph):
            parts.setdefault(field, []).append(value)
        constants = dict(_tensor(each) for each in parts.get(5, []))
        names = [next(_text(v) for f, v in _fields(parts[which][0]) if f == 1) for which in (11, 12)]
        return Graph(tuple(map(_node, parts[1])), constants, *names)
    except (OSError, ValueError, LookupError, struct.error, UnicodeDecodeError) as cause:
        raise EncoderFilesError(
            f"'{path}' cannot be read ({cause})",
            expected="a network in ONNX format",
            fix="install foveate again: pip install --force-reinstall foveate",
        ) from cause


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a protobuf message: whole numbers, bytes, or 4 and 8 bytes as they are."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield field, value
            continue
        length = {1: 8, 5: 4}.get(wire)
        if length is None:
            if wire != 2:
                raise ValueError(f"wire type {wire}")
            length, place = _varint(message, place)
        if place + length > len(message):
            raise ValueError("the file ends early")
        yield field, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return (value - (1 << 64) if value >> 63 else value), place


def _whole(value: Any) -> list[int]:
    """A repeated field of whole numbers: one of them, or several packed."""
    if isinstance(value, int):
        return [value]
    out, place = [], 0
    while place < len(value):
        one, place = _varint(value, place)
        out.append(one)
    return out


def _text(value: bytes) -> str:
    return value.decode("utf-8")


def _tensor(message: bytes) -> tuple[str, NDArray[Any]]:
    name, kind, shape, raw = "", 1, [], b""
    for field, value in _fields(message):
        if field == 1:
            shape += _whole(value)
        elif field == 2:
            kind = value
        elif field == 8:
            name = _text(value)
        elif field == 9:
            raw = value
        elif field in (4, 5, 6, 7, 10, 11):
            raise ValueError(f"tensor '{name}' is not kept as raw bytes")
    return name, np.frombuffer(raw, DTYPES[kind]).reshape(shape)


def _node(message: bytes) -> Node:
    inputs, outputs, kind, attributes = [], [], "", {}
    for field, value in _fields(message):
        if field == 1:
            inputs.append(_text(value))
        elif field == 2:
            outputs.append(_text(value))
        elif field == 4:
            kind = _text(value)
        elif field == 5:
            name, content = _attribute(value)
            attributes[name] = content
    return Node(kind, tuple(inputs), tuple(outputs), attributes)


def _attribute(message: bytes) -> tuple[str, Any]:
    name, content = "", None
    whole: list[int] = []
    for field, value in _fields(message):
        if field == 1:
            name = _text(value)
        elif field == 2:
            content = struct.unpack("<f", value)[0]
        elif field == 3:
            content = value
        elif field == 4:
            content = _text(value)
        elif field == 5:
            content = _tensor(value)[1]
        elif field == 8:
            whole += _whole(value)
    return name, whole or content


# --- operators --------------------------------------------------------------------------------------------------------


def _ints(value: torch.Tensor) -> list[int]:
    return [int(each) for each in value.reshape(-1).tolist()]


def _same_sides(pads: Sequence[int]) -> bool:
    return pads[: len(pads) // 2] == pads[len(pads) // 2 :]


def _pad(torch: Any, x: torch.Tensor, attributes: dict[str, Any], fill: float) -> torch.Tensor:
    """x with `pads` (top, left, bottom, right) around it."""
    top, left, bottom, right = attributes.get("pads") or (0, 0, 0, 0)
    return torch.nn.functional.pad(x, (left, right, top, bottom), value=fill) if top + left + bottom + right else x


def _convolve(torch: Any, a: dict[str, Any], x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
    pads = a.get("pads") or [0, 0, 0, 0]
    if not _same_sides(pads):
        x, pads = _pad(torch, x, a, 0.0), [0, 0, 0, 0]
    return convolve(x, weight, bias, a.get("strides", (1, 1)), pads[:2], a.get("dilations", (1, 1)), a.get("group", 1))


def _convolve_levels(torch: Any, a: dict[str, Any], x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """QLinearConv with what `_prepare_levels` made of its constants."""
    zero, weight, bias, scale, least, most, shift = rest
    sums = _convolve(torch, a, x - zero, weight, bias)
    return (sums * scale).round_().add_(shift).clamp_(least, most)


def _prepare_levels(torch: Any, inputs: list[Any]) -> list[Any]:
    """x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias -> as `_convolve_levels` takes them.

    Levels stay float32 between the nodes: whole numbers of 8 bits.
    """
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = inputs
    scale = (x_scale * w_scale / y_scale).reshape(-1, 1, 1)
    limits = torch.iinfo(y_zero.dtype)
    weight = w.float() - w_zero.float().reshape(-1, 1, 1, 1)
    return [
        x, x_zero.float(), weight, bias[0].float() if bias else None, scale,
        float(limits.min), float(limits.max), float(y_zero),
    ]  # fmt: skip


def _quantize(torch: Any, a: dict[str, Any], x: torch.Tensor, scale: Any, zero: Any) -> torch.Tensor:
    limits = torch.iinfo(zero.dtype)
    return (x / scale).round().add(zero.float()).clamp(float(limits.min), float(limits.max))


def _dequantize(torch: Any, a: dict[str, Any], x: torch.Tensor, scale: Any, zero: Any) -> torch.Tensor:
    if scale.dim():
        shape = [1] * x.dim()
        shape[a.get("axis", 1)] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    return (x.float() - zero.float()) * scale


def _slice(torch: Any, a: dict[str, Any], x: torch.Tensor, *rest: Any) -> torch.Tensor:
    starts, stops, *more = map(_ints, rest)
    axes = more[0] if more else list(range(len(starts)))
    steps = more[1] if len(more) > 1 else [1] * len(starts)
    for start, stop, axis, step in zip(starts, stops, axes, steps, strict=True):
        if step < 0:
            places = range(x.shape[axis])[start:stop:step]
            x, start, stop, step = (
                x.flip(axis),
                x.shape[axis] - 1 - places.start,
                x.shape[axis] - 1 - places.stop,
                -step,
            )
        index = [slice(None)] * x.dim()
        index[axis] = slice(start, stop, step)
        x = x[tuple(index)]
    return x


def _reduce(name: str) -> Callable[..., Any]:
    def reduce(torch: Any, a: dict[str, Any], x: torch.Tensor, axes: Any = None) -> torch.Tensor:
        axis = _ints(axes) if axes is not None else a.get("axes") or list(range(x.dim()))
        return getattr(torch, name)(x, dim=axis, keepdim=bool(a.get("keepdims", 1)))

    return reduce


def _norm(torch: Any, a: dict[str, Any], x: torch.Tensor, axes: Any = None) -> torch.Tensor:
    axis = _ints(axes) if axes is not None else a["axes"]
    return torch.linalg.vector_norm(x, dim=axis, keepdim=bool(a.get("keepdims", 1)))


def _resize(torch: Any, a: dict[str, Any], x: torch.Tensor, roi: Any, scales: Any, sizes: Any = None) -> torch.Tensor:
    size = (
        _ints(sizes)[2:]
        if sizes is not None
        else [int(side * scale) for side, scale in zip(x.shape[2:], scales.tolist()[2:], strict=True)]
    )
    how = a["mode"], a["coordinate_transformation_mode"]
    if how == ("nearest", "asymmetric"):
        return torch.nn.functional.interpolate(x, size=size, mode="nearest")
    if how == ("linear", "half_pixel"):
        return torch.nn.functional.interpolate(x, size=size, mode="bilinear", align_corners=False)
    raise ValueError(f"Resize {how}")


def _reshape(torch: Any, a: dict[str, Any], x: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    return x.reshape([x.shape[i] if side == 0 else side for i, side in enumerate(_ints(shape))])


def _expand(torch: Any, a: dict[str, Any], x: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(_ints(shape))))


def _split(torch: Any, a: dict[str, Any], x: torch.Tensor, sizes: Any = None) -> Sequence[torch.Tensor]:
    axis = a.get("axis", 0)
    return tuple(torch.split(x, _ints(sizes) if sizes is not None else x.shape[axis] // a["outputs"], axis))


def _gather(torch: Any, a: dict[str, Any], x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    axis = a.get("axis", 0) % max(x.dim(), 1)
    index = torch.where(index < 0, index + x.shape[axis], index)
    return x.index_select(axis, index.reshape(-1)).reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))


def _pool(torch: Any, a: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    padded = _pad(torch, x, a, float("-inf"))
    return torch.nn.functional.max_pool2d(padded, a["kernel_shape"], a.get("strides", 1))


def _mean_pool(torch: Any, a: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.avg_pool2d(_pad(torch, x, a, 0.0), a["kernel_shape"], a.get("strides", 1))


def _unsqueeze(torch: Any, a: dict[str, Any], x: torch.Tensor, axes: torch.Tensor) -> torch.Tensor:
    wanted = _ints(axes)
    for axis in sorted(axis % (x.dim() + len(wanted)) for axis in wanted):
        x = x.unsqueeze(axis)
    return x


def _squeeze(torch: Any, a: dict[str, Any], x: torch.Tensor, axes: Any = None) -> torch.Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(_ints(axes)))


def _flatten(torch: Any, a: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
    rows = int(np.prod(x.shape[: a.get("axis", 1)]))
    return x.reshape(rows, -1)


def _divide(torch: Any, a: dict[str, Any], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def _clip(torch: Any, a: dict[str, Any], x: torch.Tensor, least: Any = None, most: Any = None) -> torch.Tensor:
    return x.clamp(*(None if each is None else each.item() for each in (least, most)))


def _extreme(name: str) -> Callable[..., Any]:
    def extreme(torch: Any, a: dict[str, Any], first: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        for each in rest:
            first = getattr(torch, name)(first, each)
        return first

    return extreme


def _top(torch: Any, a: dict[str, Any], x: torch.Tensor, count: torch.Tensor) -> Sequence[torch.Tensor]:
    return x.topk(_ints(count)[0], a.get("axis", -1), bool(a.get("largest", 1)), bool(a.get("sorted", 1)))


def _filled(torch: Any, a: dict[str, Any], shape: torch.Tensor) -> torch.Tensor:
    value = a.get("value")
    fill = torch.zeros(1) if value is None else torch.tensor(value)
    return fill.reshape(()).expand(_ints(shape)).clone()


def _constant(torch: Any, a: dict[str, Any]) -> torch.Tensor:
    return torch.tensor(a["value"])


def _one(function: str) -> Callable[..., Any]:
    return lambda torch, a, *inputs: getattr(torch, function)(*inputs)


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": _one("add"), "And": _one("logical_and"), "AveragePool": _mean_pool, "Clip": _clip,
    "Cast": lambda torch, a, x: x.to(getattr(torch, np.dtype(DTYPES[a["to"]]).name)),
    "Concat": lambda torch, a, *x: torch.cat(x, a["axis"]),
    "Constant": _constant, "ConstantOfShape": _filled, "Conv": _convolve,
    "DequantizeLinear": _dequantize,
    "Div": _divide, "Equal": _one("eq"), "Exp": _one("exp"), "Expand": _expand, "Flatten": _flatten, "Gather": _gather,
    "GatherElements": lambda torch, a, x, index: x.gather(a.get("axis", 0), index),
    "Greater": _one("gt"), "GreaterOrEqual": _one("ge"), "Identity": lambda torch, a, x: x,
    "InstanceNormalization": lambda torch, a, x, weight, bias: torch.nn.functional.instance_norm(
        x, weight=weight, bias=bias, eps=a.get("epsilon", 1e-5)
    ),
    "Less": _one("lt"), "Log": _one("log"), "MatMul": _one("matmul"), "Max": _extreme("maximum"), "MaxPool": _pool,
    "Min": _extreme("minimum"), "Mod": _one("remainder"), "Mul": _one("mul"), "Pow": _one("pow"),
    "QLinearConv": _convolve_levels, "QuantizeLinear": _quantize,
    "Range": lambda torch, a, *ends: torch.arange(*(each.item() for each in ends), dtype=ends[0].dtype),
    "Reciprocal": _one("reciprocal"), "ReduceL2": _norm, "ReduceMax": _reduce("amax"), "ReduceMean": _reduce("mean"),
    "ReduceSum": _reduce("sum"), "Reshape": _reshape, "Resize": _resize, "Sigmoid": _one("sigmoid"), "Slice": _slice,
    "Shape": lambda torch, a, x: torch.tensor(x.shape),
    "Softmax": lambda torch, a, x: torch.softmax(x, a.get("axis", -1)),
    "Split": _split, "Sqrt": _one("sqrt"), "Squeeze": _squeeze, "Sub": _one("sub"), "TopK": _top,
    "Transpose": lambda torch, a, x: x.permute(a["perm"]),
    "Unsqueeze": _unsqueeze, "Where": _one("where"),
}  # fmt: skip
# Inputs from this place on are numbers that say how, and stay with the CPU.
HOW = {
    "Clip": 1, "Expand": 1, "ReduceSum": 1, "Reshape": 1, "Resize": 1, "Slice": 1, "Split": 1, "Squeeze": 1, "TopK": 1,
    "Unsqueeze": 1,
}  # fmt: skip


# --- running it -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Step:
    """An operator on tensors of the device. `takes` has places of values; None where `given` has what stands there."""

    function: Callable[..., Any]
    attributes: dict[str, Any]
    takes: tuple[int | None, ...]
    given: tuple[Any, ...]
    makes: tuple[int, ...]
    last: tuple[int, ...]  # values that nothing needs afterwards


class TorchGraph:
    """A graph on a device; it never changes but for what it keeps of the shapes that it has seen.

    One batch at a time: threads wait for each other, and a batch keeps the device busy.
    """

    def __init__(self, graph: Graph, device: str) -> None:
        import torch

        unknown = sorted({node.kind for node in graph.nodes} - set(OPERATORS))
        if unknown:
            raise EncoderFilesError(
                f"operators {unknown} in a network that torch is to run",
                expected=f"the {len(OPERATORS)} that nano uses",
                fix="run it on the CPU: device='cpu'",
            )
        self.graph, self.device, self._torch = graph, torch.device(device), torch
        self._kept: LRUCache[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]] = LRUCache(MOST_SHAPES)
        self._lock = threading.Lock()
        self._pool: Any = None  # of memory, that all captured graphs of the program share

    def __call__(self, rgb: NDArray[np.uint8]) -> NDArray[np.float32]:
        """uint8 [n, H, W, 3] -> float32 [n, h, w, D]. Raises what torch raises."""
        torch = self._torch
        pixels = torch.from_numpy(np.ascontiguousarray(rgb))
        pixels = pixels.pin_memory() if self.device.type == "cuda" else pixels
        with self._lock, torch.inference_mode(), working_on(self.device):
            run = self._kept.get(rgb.shape) or self._prepare(pixels)
            self._kept[rgb.shape] = run
            return download(run(pixels).float())

    def _prepare(self, pixels: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        steps, out = self._fold(pixels)
        if self.device.type != "cuda":
            return lambda pixels: _run(self._torch, steps, pixels.to(self.device), out)
        if self._pool is None:
            self._pool = self._torch.cuda.graph_pool_handle()
        return captured(lambda fixed: _run(self._torch, steps, fixed, out), pixels.to(self.device), self._pool)

    def _fold(self, pixels: torch.Tensor) -> tuple[list[_Step], int]:
        """The steps for inputs of this shape, and the place of the output; everything else is computed here, once.

        A value that follows from constants and shapes alone is kept on the CPU until a step on the device takes it.
        """
        torch: Any = self._torch
        graph = self.graph
        known: dict[str, Any] = {name: torch.tensor(value) for name, value in graph.constants.items()}
        live: dict[str, Any] = {graph.input: pixels.to(self.device)}
        place, shapes = {graph.input: 0}, {graph.input: tuple(pixels.shape)}
        ends = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs} | {
            graph.output: len(graph.nodes)
        }
        moved: dict[str, Any] = {}
        steps: list[_Step] = []
        for i, node in enumerate(graph.nodes):
            a, function = node.attributes | {"outputs": len(node.outputs)}, OPERATORS[node.kind]
            if node.kind == "Shape" and node.inputs[0] in live:
                known[node.outputs[0]] = torch.tensor(shapes[node.inputs[0]])
            elif not any(name in live for name in node.inputs):
                inputs = [known[name] if name else None for name in node.inputs]
                made = function(torch, a, *inputs)
                known |= zip(node.outputs, made if isinstance(made, list | tuple) else [made], strict=True)
            else:
                takes: list[Any] = []
                for at, name in enumerate(node.inputs):
                    if name in live or not name:
                        takes.append(live.get(name))
                    elif at >= HOW.get(node.kind, len(node.inputs)) or node.kind == "QLinearConv":
                        takes.append(known[name])
                    else:
                        takes.append(moved.setdefault(name, known[name].to(self.device)))
                if node.kind == "QLinearConv":
                    takes = [
                        each.to(self.device) if hasattr(each, "to") else each for each in _prepare_levels(torch, takes)
                    ]
                made = function(torch, a, *takes)
                made = made if isinstance(made, list | tuple) else [made]
                for name, value in zip(node.outputs, made, strict=True):
                    live[name], place[name], shapes[name] = value, len(place), tuple(value.shape)
                where = tuple(
                    place[node.inputs[at]] if at < len(node.inputs) and node.inputs[at] in live else None
                    for at in range(len(takes))
                )
                given = tuple(None if at is not None else each for at, each in zip(where, takes, strict=True))
                done = tuple(
                    place[name] for name in {*node.inputs, *node.outputs} & live.keys() if ends.get(name, i) <= i
                )
                steps.append(_Step(function, a, where, given, tuple(place[name] for name in node.outputs), done))
            for name in [name for name in node.inputs if name in live and ends[name] <= i]:
                live[name] = live[name].new_empty(0)  # its memory, not its being there
        return steps, place[graph.output]


def _run(torch: Any, steps: Sequence[_Step], pixels: torch.Tensor, out: int) -> torch.Tensor:
    values: dict[int, torch.Tensor] = {0: pixels}
    for step in steps:
        inputs = [each if at is None else values[at] for at, each in zip(step.takes, step.given, strict=True)]
        made = step.function(torch, step.attributes, *inputs)
        values |= zip(step.makes, made if isinstance(made, list | tuple) else [made], strict=True)
        for at in step.last:
            del values[at]
    return values[out]
