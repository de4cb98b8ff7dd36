"""A classifier of anybody's, from an ONNX or TFLite file: a picture -> how probable each class is at each place.

* A spatial output, [n, classes, h, w] or [n, h, w, classes], is taken as it is, with the mean of 3 x 3 cells.
* A TFLite file that ends in a mean over the picture and one layer is cut there, and the layer is applied to each cell.
* Any other pooled output, [n, classes], is asked of windows of half the long side, which overlap by half.

The files are run by native code (onnxruntime, LiteRT): open only those that you trust.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import EncoderFilesError, needed_by
from foveate.core.grid import Floats
from foveate.core.threads import count_threads
from foveate.encoders.nano import GREY, STRIDE, open_session

Pixels = NDArray[np.uint8]
# How an input of floats has its pixels: value = pixel scale + shift.
_MEAN, _DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
PIXELS: dict[str, tuple[Any, Any]] = {
    "0..255": (1.0, 0.0),
    "0..1": (1 / 255, 0.0),
    "-1..1": (1 / 127.5, -1.0),
    "imagenet": (1 / (255 * _DEVIATION), -_MEAN / _DEVIATION),
}
OUTPUTS = ("logits", "probabilities")
WINDOWS = 4  # steps of windows along the long side; each window is two of them
SIDE = 224  # pixels of an input that may have any size
SUM = 0.02  # how far probabilities may be from 1 in sum: some are written in bytes
# Operations of TFLite: the mean and the layer that a file may end in; what makes probabilities; what changes nothing.
MEANS, LAYERS = {"MEAN", "AVERAGE_POOL_2D"}, {"CONV_2D", "FULLY_CONNECTED"}
ENDS, BETWEEN = {"SOFTMAX": "softmax", "LOGISTIC": "sigmoid"}, {"RESHAPE", "SQUEEZE", "QUANTIZE", "DEQUANTIZE"}
DATA = {0: np.float32, 2: np.int32, 3: np.uint8, 9: np.int8}  # TFLite's numbers of types that weights have


@dataclass(frozen=True)
class Classifier:
    """A file that can be run.

    Attributes:
        run: picture uint8 [H, W, 3] -> numbers of the classes, [rows, columns, classes], or of any shape if `pooled`.
        size: the only (H, W) that `run` takes, or None.
        pooled: whether `run` gives one number for each class.
        output: "probabilities"; "softmax" or "sigmoid", which make these of logits; "logits" before it is known.
    """

    run: Callable[[Pixels], Floats]
    size: tuple[int, int] | None
    pooled: bool = False
    output: str = "logits"

    def look(self, rgb: Pixels) -> tuple[Floats, tuple[int, int]]:
        """nano's padded picture -> probabilities [rows, columns, classes], and how many of nano's cells they cover."""
        if self.pooled:
            return self._by_windows(rgb)
        if self.size is None:
            return self._probable(_neighbours(self.run(rgb))), (rgb.shape[0] // STRIDE, rgb.shape[1] // STRIDE)
        h, w = self.size
        scale = max(rgb.shape[0] / h, rgb.shape[1] / w) / STRIDE
        covered = round(h * scale), round(w * scale)
        found = self.run(_resized(_padded(rgb, covered[0] * STRIDE, covered[1] * STRIDE), self.size))
        return self._probable(_neighbours(found)), covered

    def _by_windows(self, rgb: Pixels) -> tuple[Floats, tuple[int, int]]:
        step = max(rgb.shape[:2]) // WINDOWS
        rows, columns = (max(2, -(-side // step)) for side in rgb.shape[:2])
        picture = _padded(rgb, rows * step, columns * step)
        total, looks = None, np.zeros((rows, columns, 1), np.float32)
        for r in range(rows - 1):
            for c in range(columns - 1):
                window = picture[r * step : (r + 2) * step, c * step : (c + 2) * step]
                found = self._probable(self.run(_resized(window, self.size or (SIDE, SIDE))).reshape(-1))
                total = np.zeros((rows, columns, len(found)), np.float32) if total is None else total
                total[r : r + 2, c : c + 2] += found
                looks[r : r + 2, c : c + 2] += 1
        return np.asarray(total / looks, np.float32), (rows * step // STRIDE, columns * step // STRIDE)

    def _probable(self, x: Floats) -> Floats:
        if self.output == "probabilities":
            return x
        if self.output == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-x)), np.float32)
        found = np.exp(x - x.max(-1, keepdims=True))
        return np.asarray(found / found.sum(-1, keepdims=True), np.float32)


@dataclass(frozen=True)
class Opened:
    """A file's network, before it is known how it is asked: `prepare` gives (classifier, whether channels come first).

    `metadata`: texts that an ONNX file has beside its network.
    """

    prepare: Callable[[str | None], tuple[Classifier, bool]]
    metadata: Mapping[str, str]


def open_file(path: Path) -> Opened:
    """A file that ends in .onnx or .tflite. Raises EncoderFilesError, MissingExtraError."""
    if path.suffix == ".tflite":
        return Opened(lambda pixels: _prepare_lite(path, pixels), {})
    try:
        session = open_session(path, count_threads())
    except Exception as cause:
        refuse(path, f"cannot be read by onnxruntime ({_brief(cause)})", "an ONNX file", "export it again", cause)
    return Opened(lambda pixels: _prepare_onnx(path, session, pixels), session.get_modelmeta().custom_metadata_map)


def open_classifier(path: Path, file: Opened, labels: int, pixels: str | None, output: str | None) -> Classifier:
    """The classifier of a file with so many labels. Raises EncoderFilesError, MissingExtraError.

    Args:
        pixels: a key of PIXELS, for an input of floats.
        output: one of OUTPUTS; None: probabilities if they sum to 1, else logits.
    """
    opened, first = file.prepare(pixels)
    probe = np.random.default_rng(0).integers(0, 256, (*(opened.size or (SIDE, SIDE)), 3), np.uint8)
    run = partial(_run, path, opened.run)
    found = run(None, probe)
    axis = None if found.size == labels else _class_axis(found.shape, labels, first, probe.shape[:2])
    if not found.size or (axis is None and found.size != labels):
        refuse(
            path,
            f"has an output {list(found.shape)}, and {labels} labels",
            "[1, classes, h, w], [1, h, w, classes] or [1, classes], and one label for each class",
            "give as many labels as classes; one that is no thing is called background",
        )
    if not np.isfinite(found).all():
        refuse(path, "answers with numbers that are not finite", "a number for each class", "export it again")
    if opened.output == "logits":
        sums = found.sum(axis) if axis is not None else found.sum()
        certain = bool((found >= 0).all() and (abs(sums - 1) < SUM).all())
        alone = "sigmoid" if labels == 1 else "logits"  # a softmax of one class is 1
        opened = replace(
            opened, output="probabilities" if output == "probabilities" or (certain and not output) else alone
        )
    return replace(opened, run=partial(run, axis), pooled=axis is None)


def _run(path: Path, network: Callable[[Pixels], Floats], axis: int | None, rgb: Pixels) -> Floats:
    """The network's answer: [rows, columns, classes] by the axis of its classes; without one as it is."""
    try:
        found = network(rgb)
    except Exception as cause:
        refuse(
            path,
            f"cannot be run on a picture of {rgb.shape[0]} x {rgb.shape[1]} pixels ({_brief(cause)})",
            "a classifier of one image; where the size of its input is free, of any sides that 32 divides",
            "export it again",
            cause,
        )
    return found if axis is None else np.moveaxis(found, axis, 3)[0]


def refuse(path: Path, problem: str, expected: str, fix: str, cause: BaseException | None = None) -> NoReturn:
    """Raises EncoderFilesError of a specialist's file."""
    raise EncoderFilesError(f"the specialist '{path}' {problem}", expected=expected, fix=fix) from cause


def _class_axis(shape: Sequence[int], labels: int, first: bool, size: tuple[int, int]) -> int | None:
    """The axis of the classes in an output; the other two are places in a picture of `size`, less than a cell off."""
    for axis in (1, 3) if first else (3, 1):
        if len(shape) == 4 and shape[0] == 1 and shape[axis] == labels:
            rows, columns = shape[2:] if axis == 1 else shape[1:3]
            if abs(rows * size[1] - columns * size[0]) < max(size):
                return axis
    return None


def _scaling(path: Path, pixels: str | None) -> tuple[Any, Any]:
    if pixels is None:
        refuse(
            path,
            "takes floats, and nothing says how pixels become these",
            " or ".join(map(repr, PIXELS)),
            f'write {{"pixels": "0..1"}}, or whichever it was trained with, into {path.with_suffix(".json").name}',
        )
    return PIXELS[pixels]


def _prepare_onnx(path: Path, session: Any, pixels: str | None) -> tuple[Classifier, bool]:
    inputs, output = session.get_inputs(), session.get_outputs()[0].name
    shapes = [list(each.shape or ()) for each in inputs]
    if len(shapes) != 1 or len(shapes[0]) != 4 or 3 not in shapes[0][1::2]:
        refuse(
            path,
            f"takes {' and '.join(map(str, shapes)) or 'nothing'}",
            "one image, [1, 3, h, w] or [1, h, w, 3]",
            "export a classifier of images",
        )
    (shape,), kind = shapes, inputs[0].type
    first = shape[1] == 3
    if kind not in ("tensor(float)", "tensor(uint8)"):
        refuse(path, f"takes a {kind}", "an image of float32 or uint8", "export it with such an input")
    scale, shift = _scaling(path, pixels) if kind == "tensor(float)" else (None, None)
    sides = shape[2:] if first else shape[1:3]

    def run(rgb: Pixels) -> Floats:
        x = rgb if scale is None else (rgb * scale + shift).astype(np.float32)
        x = np.ascontiguousarray(x.transpose(2, 0, 1) if first else x)
        return np.asarray(session.run([output], {inputs[0].name: x[None]})[0], np.float32)

    size = (sides[0], sides[1]) if all(isinstance(side, int) for side in sides) else None
    return Classifier(run, size), first


def _prepare_lite(path: Path, pixels: str | None) -> tuple[Classifier, bool]:
    with needed_by(f"the specialist '{path.name}'", "specialists"):
        from ai_edge_litert.interpreter import Interpreter
    content = path.read_bytes()
    try:
        cut, ended = _cut(content)
        interpreter = Interpreter(
            model_content=content if cut is None else cut.content, num_threads=count_threads() or os.cpu_count()
        )
        interpreter.allocate_tensors()
        (given,), made = interpreter.get_input_details(), interpreter.get_output_details()[0]
    except Exception as cause:
        refuse(path, f"cannot be read by LiteRT ({_brief(cause)})", "a TFLite file", "convert it again", cause)
    shape, kind = [int(side) for side in given["shape"]], given["dtype"]
    if len(shape) != 4 or shape[3] != 3 or kind not in (np.float32, np.uint8, np.int8):
        refuse(
            path,
            f"takes {np.dtype(kind)} {shape}",
            "an image [1, h, w, 3] of float32, uint8 or int8",
            "convert a classifier of images",
        )
    scale, shift = _scaling(path, pixels) if kind == np.float32 else (None, None)
    step, zero = made["quantization"]
    alone = threading.Lock()  # an interpreter has one set of tensors

    def run(rgb: Pixels) -> Floats:
        x = rgb if scale is None else (rgb * scale + shift).astype(np.float32)
        x = (x.astype(np.int16) - 128).astype(np.int8) if kind == np.int8 else x
        with alone:
            if list(interpreter.get_input_details()[0]["shape"]) != [1, *x.shape]:
                interpreter.resize_tensor_input(given["index"], [1, *x.shape])
                interpreter.allocate_tensors()
            interpreter.set_tensor(given["index"], x[None])
            interpreter.invoke()
            y = interpreter.get_tensor(made["index"]).astype(np.float32)
        y = (y - zero) * step if step else y
        return y if cut is None else np.asarray(y @ cut.weight.T + cut.bias, np.float32)

    return Classifier(run, (shape[1], shape[2]) if cut is None else None, output=ended), False


@dataclass(frozen=True)
class _Cut:
    """A file without its mean and its last layer, and that layer: logits = x weight^T + bias."""

    content: bytes
    weight: Floats
    bias: Floats | float


def _cut(content: bytes) -> tuple[_Cut | None, str]:
    """-> (a TFLite file's cut; None where it does not end in a mean and one layer; what the output is)."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    if content[4:8] != b"TFL3":
        raise ValueError("it does not begin as one")
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    (graph,), kinds = model.subgraphs, {n: kind for kind, n in vars(schema.BuiltinOperator).items() if kind[0] != "_"}
    codes = [kinds[max(code.builtinCode, code.deprecatedBuiltinCode)] for code in model.operatorCodes]
    steps = [(i, codes[step.opcodeIndex], step) for i, step in enumerate(graph.operators)]
    steps = [step for step in steps if step[1] not in BETWEEN]
    end = ENDS.get(steps[-1][1])
    (place, mean, before), (_, kind, layer) = (steps if end is None else steps[:-1])[-2:]
    whole = None, "logits" if end is None else "probabilities"
    if mean not in MEANS or kind not in LAYERS or layer.builtinOptions.fusedActivationFunction:
        return whole
    weight, *biases = (_read_weights(model, graph.tensors[i]) for i in layer.inputs[1:] if i >= 0)
    if weight is None or weight.size != len(weight) * weight.shape[-1] or any(bias is None for bias in biases):
        return whole
    graph.operators, graph.outputs, model.signatureDefs = graph.operators[:place], [int(before.inputs[0])], None
    builder = flatbuffers.Builder(len(content))
    builder.Finish(model.Pack(builder), b"TFL3")
    bias = biases[0] if biases and biases[0] is not None else 0.0
    return _Cut(bytes(builder.Output()), weight.reshape(len(weight), -1), bias), end or "softmax"


def _read_weights(model: Any, tensor: Any) -> Floats | None:
    """A tensor's numbers, as float32; None where the file does not hold them as such."""
    data, shape, q = model.buffers[tensor.buffer].data, [int(n) for n in tensor.shape], tensor.quantization
    kind = DATA.get(tensor.type)
    if data is None or kind is None or len(data) != np.prod(shape) * np.dtype(kind).itemsize:
        return None
    raw = np.frombuffer(bytes(data), kind).reshape(shape).astype(np.float32)
    if q is None or q.scale is None or not len(q.scale):
        return raw
    along = [1] * raw.ndim
    along[q.quantizedDimension] = len(q.scale)
    return np.asarray((raw - np.reshape(q.zeroPoint, along)) * np.reshape(q.scale, along), np.float32)


def _neighbours(x: Floats) -> Floats:
    """Means of 3 x 3 cells: a classifier's last mean, taken around each place instead of over the picture."""
    around = np.pad(x, ((1, 1), (1, 1), (0, 0)), "edge")
    h, w = x.shape[:2]
    return np.asarray(sum(around[i : i + h, j : j + w] for i in range(3) for j in range(3)) / np.float32(9), np.float32)


def _padded(rgb: Pixels, height: int, width: int) -> Pixels:
    out = np.full((max(height, rgb.shape[0]), max(width, rgb.shape[1]), 3), GREY, np.uint8)
    out[: rgb.shape[0], : rgb.shape[1]] = rgb
    return out[:height, :width]


def _resized(rgb: Pixels, size: tuple[int, int]) -> Pixels:
    method = cv2.INTER_AREA if size[0] < rgb.shape[0] else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(rgb, size[::-1], interpolation=method), np.uint8)


def _brief(cause: BaseException) -> str:
    return str(cause).strip().partition("\n")[0] or type(cause).__name__
