"""Everything that a day with a GPU is for, in one command of nine minutes at most, and a file of results (docs/gpu.md).

    python -m benchmarks gpu --name 2026-12-01_h200
    python -m benchmarks gpu --device cpu --quick          # without a GPU: what works there, to see that it runs

Each part is a process of its own: a failed assertion of a kernel takes the GPU from a whole process. What a part
computes is compared with NumPy before it is timed. Times "on the device" are those of a captured graph of many calls,
between two events; times "from Python" begin with the call and end when the device is idle. "Warm": each call reads
what the one before read, so from the L2 cache; "cold": calls go round over more than it holds. The parts in order:

* question: the kernel and plain torch over cells, budgets and batches. asking: the public functions, and replays.
* channels: planes of a 1,024 px image in one graph. towers: CLIP B/16 at 448 px beside its bare tower.
* rate: images a second, from JPEG bytes to textures. indexing: the same from files into a store.
* vlm: a model of 7B, prefill and end to end (benchmarks/vlm.py).
* hardware_texture: samplers of the hardware beside ours (benchmarks/hardware_texture.py).
* floors: no measurement, but bytes and operations counted, for an H100 and an H200.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image

from benchmarks.common import (
    KEPT,
    PHOTO,
    PHOTOS,
    circumstances,
    crop_square,
    make_row,
    print_json,
    ratio_row,
    show,
    time_each,
    time_row,
)
from benchmarks.suite import ROOT, TABLES, Table, place, run_alone
from benchmarks.suite import measure as measure_tables
from foveate.core.checks import check_choice, check_number
from foveate.core.devices import import_torch
from foveate.core.errors import DeviceError, OptionError
from foveate.pipeline import allocate, encode, score

MINUTES, UNNAMED = 9, ROOT / "build" / "benchmarks_gpu.json"
INSIDE = 50  # calls in one captured graph, so that an event's resolution of half a microsecond does not count
SECTION = "GPU"
RANK, COLUMNS = 24, 40
WARM = 2  # images that are indexed before the clock begins, and compared
MANY = 132  # images at once: one for each multiprocessor of an H100
COPIES = 4  # of these, for cold calls: each reads 32 MB, and an L2 cache has 50


def command(
    part: Annotated[str, typer.Option(help="Only this part, in this process; without it all, each in its own.")] = "",
    device: Annotated[str, typer.Option(help='"auto" is the GPU; "cpu" runs what works without one.')] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Very small: no number means anything.")] = False,
    name: Annotated[str | None, typer.Option(help="Keep the results as benchmarks/results/NAME.json.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file of results [default: build/benchmarks_gpu.json].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the file: what it holds is kept.")] = False,
    minutes: Annotated[float, typer.Option(help="After which nothing begins, and what runs is given up.")] = MINUTES,
) -> None:
    """Everything that needs a GPU, and a file of results; the last line is one JSON object."""
    if part and (name or out or resume):
        raise OptionError(
            f"--part {part} with --name, --out or --resume",
            expected="a part alone, which keeps no file",
            fix=f"`python -m benchmarks all --only gpu_{part}` keeps one",
        )
    check_number("--minutes", minutes, 0, None)
    where = find(device)
    if part:
        report = measure(part, where, quick)
        show(report)
        print_json(**report)
        return
    end = time.monotonic() + 60 * minutes

    def run(words: list[str], limit: float) -> tuple[int, str, str]:
        left = end - time.monotonic()
        return run_alone(words, left) if left > 1 else (124, "", f"not begun: {minutes:g} minutes are over (--minutes)")

    path = place(name, out, resume, UNNAMED)
    known = [table._replace(gpu=False) for table in tables(where)]  # torch has found one
    result = measure_tables(known, quick, None, path, resume, run=run)
    print_json(file=str(path), **result)
    if result["failed"]:
        raise typer.Exit(1)


def find(device: str) -> str:
    """The device that is meant. Raises DeviceError at once where there is no GPU."""
    check_choice("--device", device, ("auto", "cuda", "cpu"))
    if device == "cpu" or import_torch("python -m benchmarks gpu").cuda.is_available():
        return "cpu" if device == "cpu" else "cuda"
    raise DeviceError(
        "no GPU: torch sees none here",
        expected="a GPU, its driver, and a torch that was built for CUDA (docs/gpu.md)",
        fix="`--device cpu --quick` runs what works without one; nothing of it is a number of a GPU",
    )


def tables(device: str) -> tuple[Table, ...]:
    """The parts as the suite runs them, the most important first."""
    parts = []
    for part in PARTS:
        where = "cpu" if part == "floors" else device  # it only counts
        words = f"--part {part} --device {where}"
        parts.append(Table(f"gpu_{part}", SECTION, words, f"{words} --quick", "gpu", where == "cuda"))
    large = "--device cuda --layers all --batch 1,4,16 --budgets 25,6.7 --repeats 3"
    small = f"--device {device} --tiny --layers 1 --repeats 1 --new 2 --batch 1 --budgets 25"
    parts.append(Table("gpu_vlm", SECTION, large if device == "cuda" else small, small, "vlm", device == "cuda"))
    return (*parts, next(table for table in TABLES if table.name == "hardware_texture"))


def measure(part: str, device: str, quick: bool = False) -> dict[str, Any]:
    """One part -> its report. Raises OptionError for another name, AssertionError where a result is wrong."""
    if part not in PARTS:
        raise OptionError(f"--part {part}", expected=", ".join(PARTS), fix="leave it out for all")
    rows = list(PARTS[part](device, quick))
    where = import_torch("this").cuda.get_device_name() if device == "cuda" else "the CPU, no GPU"
    return {"title": f"benchmarks gpu, {part}: on {where}", "rows": rows, "device": device, **circumstances()}


# --- clocks -----------------------------------------------------------------------------------------------------------


def wait_for(device: str) -> Callable[[], None]:
    """Until the device is idle."""
    return import_torch("this").cuda.synchronize if device == "cuda" else lambda: None


def on_device(
    parts: dict[Any, Callable[[], Any]], device: str, repeats: int, inside: int = INSIDE
) -> dict[Any, np.ndarray]:
    """Seconds a call on the device, the parts in turn. On a GPU `inside` calls are captured; on the CPU one is made."""
    if device != "cuda":
        return time_each(parts, repeats)
    torch = import_torch("this")
    graphs = {name: capture(part, inside) for name, part in parts.items()}
    out: dict[Any, list[float]] = {name: [] for name in parts}
    for _ in range(repeats):
        for name, graph in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            out[name].append(begin.elapsed_time(end) / 1e3 / inside)
    return {name: np.array(seconds) for name, seconds in out.items()}


def capture(work: Callable[[], Any], inside: int = INSIDE) -> Any:
    """`inside` calls as one graph, after three that are not counted."""
    torch = import_torch("this")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inside):
            work()
    graph.replay()
    torch.cuda.synchronize()
    return graph


# --- parts ------------------------------------------------------------------------------------------------------------


def question(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Score, exact top-K and gather: over cells, budgets and batches, against NumPy's cells."""
    cuda, repeats = device == "cuda", 3 if quick else 100
    one = (1, 1, 4096, KEPT)
    cases = [one, (MANY, 1, 4096, KEPT), (1, 16, 4096, KEPT), (1, 1, 1024, KEPT), (1, 1, 16384, KEPT)]
    cases += [(1, 1, 16384, 4096), (16, 16, 4096, KEPT)]
    if quick:
        cases = [(1, 1, 400, 27), (3, 1, 400, 27), (3, 2, 400, 27)]
        one = cases[0]
    ways = ("histogram", "bisection", "torch") if cuda else ("torch",)
    for case in cases:
        made = make_case(*case, device)
        parts = {way: ask_by(way, made, case[3]) for way in ways}
        for way, part in parts.items():
            check(f"{way}, {case}", part(), made["wanted"])
        for way, seconds in on_device(parts, device, repeats).items():
            b, q, n, k = case
            target = "<= 10 µs" if case == one and way == "histogram" else ""
            yield time_row(f"{way}: {b} images x {q} questions, {k} of {n} cells, warm", seconds, "µs", target)
    yield from one_and_many(cases[1], ways[0], device, repeats)


def one_and_many(case: tuple[int, int, int, int], way: str, device: str, repeats: int) -> Iterator[dict[str, Any]]:
    """Several images in a call beside one in a call, in turn: warm, and cold."""
    many, _, n, k = case
    made = make_case(*case, device)
    batches = [made] + [{name: made[name].clone() for name in TENSORS} for _ in range(COPIES - 1)]
    images = [{name: batch[name][i : i + 1] for name in TENSORS} for batch in batches for i in range(many)]
    for heat, inside, ones, manys in (
        ("warm", INSIDE, images[:1], batches[:1]),
        ("cold", len(images), images, batches),
    ):
        parts = {1: in_turn([ask_by(way, each, k) for each in ones]), many: in_turn([ask_by(way, b, k) for b in manys])}
        found = on_device(parts, device, repeats, inside)
        if heat == "cold":
            for number, target in ((1, "<= 10 µs"), (many, "")):
                yield time_row(
                    f"{way}: {number} images x 1 questions, {k} of {n} cells, cold", found[number], "µs", target
                )
        yield ratio_row(f"{many} images against one, {way}, {heat}", found[many], found[1], "<= 2 x")


def in_turn(calls: list[Callable[[], Any]]) -> Callable[[], Any]:
    """A function that makes the next of these calls each time, round and round."""
    turn = cycle(calls)
    return lambda: next(turn)()


TENSORS = ("z", "weights", "offsets", "table")


def make_case(b: int, q: int, n: int, k: int, device: str) -> dict[str, Any]:
    """Tensors of random whole numbers: scores are exact in any order, and full of ties. With NumPy's answer."""
    from foveate.allocation.device.fused import ask_reference

    torch, rng = import_torch("this"), np.random.default_rng(b + q + n + k)
    z = rng.integers(-8, 9, (b, n, RANK)).astype(np.float16)
    weights = rng.integers(-8, 9, (b, q, RANK)).astype(np.float32)
    offsets = rng.integers(-8, 9, (b, q)).astype(np.float32)
    table = rng.standard_normal((b, n, COLUMNS), np.float32).astype(np.float16)
    wanted = ask_reference(z, weights, offsets, None, table, k)
    to = {"weights": weights, "offsets": offsets, "table": table}
    placed = {name: torch.tensor(array, device=device) for name, array in to.items()}
    return {**placed, "z": torch.tensor(z.transpose(0, 2, 1).copy(), device=device).mT, "wanted": wanted}


def ask_by(way: str, made: dict[str, Any], k: int) -> Callable[[], Any]:
    """A call of the kernel with one of its two searches, or of plain torch."""
    from foveate.allocation.device.fused import gather, launch

    z, weights, offsets, table = (made[name] for name in TENSORS)
    if way != "torch":
        return lambda: launch(z, weights, offsets, None, table, k, way)  # type: ignore[arg-type]
    return lambda: gather(weights @ z.float().mT + offsets[..., None], table, k)


def check(what: str, found: Any, wanted: Any) -> None:
    """Raises AssertionError where indices, scores or rows are not NumPy's."""
    for name, one, other in zip(("indices", "scores", "rows"), found, wanted, strict=True):
        got = one.cpu().numpy()
        if not np.array_equal(got, other):
            raise AssertionError(f"{what}: {name} differ from NumPy's at {np.argwhere(got != other)[:3].tolist()}")


def asking(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """The public functions, from Python, beside NumPy's on the same texture."""
    from foveate.allocation.device.replay import Replay
    from foveate.encoders.load import load_encoder
    from foveate.language.query import prepare
    from foveate.texture.tensors import stack

    side, many, budget = (128, 3, 27) if quick else (512, MANY, KEPT)
    texture = encode(crop_square(PHOTO, side))
    there = texture.to(device)
    batch = stack([there] * many)
    text = "broccoli"
    vectors = prepare(load_encoder("nano"), text).vectors
    wanted = allocate(score(texture, text), budget)
    one, all_of_it = Replay(there, 1, budget, rule="scores"), Replay(there, 1, budget)
    several, all_of_them = Replay(batch, 1, budget, rule="scores"), Replay(batch, 1, budget)
    kept = [
        all_of_it(text).indices[0, 0],
        *all_of_them(text).indices[:, 0],
        allocate(score(there, text), budget).indices,
    ]
    others = max(len({*found.tolist()} - {*wanted.indices.tolist()}) for found in kept)
    if others > budget // 50:  # one or two may be as good to seven digits, and be chosen by another exponential
        raise AssertionError(f"{others} of {budget} cells are not those that NumPy keeps")
    yield make_row("cells that NumPy does not keep", others, f"{others} of {budget}", "0")
    vector, plain = "replay: scores, top-K, rows, from vectors", "replay: the same, from a text"
    parts: dict[str, Callable[[], Any]] = {
        "NumPy: score + allocate, on the CPU": lambda: allocate(score(texture, text), budget),
        "score + allocate on the device, call by call": lambda: allocate(score(there, text), budget),
        vector: lambda: one(vectors),
        plain: lambda: one(text),
        "replay: all of score and allocate, from a text": lambda: all_of_it(text),
        f"replay: scores, top-K, rows of {many} images": lambda: several(text),
        f"replay: all of score and allocate of {many} images": lambda: all_of_them(text),
    }
    found = time_each(parts, 3 if quick else 100, wait_for(device))
    for what, seconds in found.items():
        yield time_row(f"from Python, {what}", seconds, "µs", "<= 30 µs" if what in (vector, plain) else "")


def channels(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Edges, frequencies, distance and saliency of an image, on the device and from Python."""
    from foveate.channels.saliency import compute_saliency
    from foveate.channels.torch_planes import PLANES, DeviceChannels
    from foveate.channels.visual import compute_visual_planes

    torch = import_torch("this")
    side = 128 if quick else 1024
    rgb = crop_square(PHOTO, side)
    made, shape = DeviceChannels(device), (side // 8, side // 8)
    found, wanted = made(rgb, shape), compute_visual_planes(rgb)
    for name in PLANES:
        off = float(np.median(np.abs(found[name] - wanted[name])))
        if not off <= 1e-4:
            raise AssertionError(f"plane '{name}' differs from NumPy's by {off:.2g} (median)")
    made(rgb, shape)
    (size,) = made._kept.values()
    pixels = torch.tensor(rgb, device=device)
    with torch.inference_mode():
        alone = on_device({"planes": lambda: size.compute(pixels)}, device, 3 if quick else 30)
    yield time_row(f"planes of {side} x {side} pixels, on the device, warm", alone["planes"], "µs", "<= 150 µs")
    parts: dict[Any, Callable[[], Any]] = {
        "device": lambda: made(rgb, shape),
        "numpy": lambda: (compute_visual_planes(rgb), compute_saliency(rgb, shape)),
    }
    timed = time_each(parts, 3 if quick else 30, wait_for(device))
    yield time_row("the same from Python, upload and download included", timed["device"], "ms")
    yield ratio_row("NumPy and OpenCV on the CPU against it", timed["numpy"], timed["device"])


def towers(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """CLIP B/16, random weights: dense features beside the bare tower, up to where both have the same work.

    That is the attention of the last block: neither goes through its MLP. The tower has its queries more, ours a bias,
    the repair of tokens, and the projection.
    """
    from benchmarks.random_clip import RandomClip, random_clip
    from foveate.encoders.hub import with_images_in

    torch = import_torch("this")
    side, batches = (64, (1,)) if quick else (448, (1, 16, 64))
    kind = "bfloat16" if device == "cuda" else "float32"
    model = with_images_in(random_clip("clip-b16", 2 if quick else None)._model.to(device).eval(), kind)
    encoder = RandomClip(model, None, name="clip:random", revision="random", dense="naclip")
    for batch in batches:
        pixels = torch.randn(batch, 3, side, side, device=device, dtype=getattr(torch, kind))

        def dense(pixels: Any = pixels) -> Any:
            return encoder.dense_features(pixels)

        def bare(pixels: Any = pixels) -> Any:
            last = model.vision_model.encoder.layers[-1]
            return last.self_attn(last.layer_norm1(encoder.before_last_block(pixels)), attention_mask=None)[0]

        with torch.inference_mode():
            if not bool(dense().isfinite().all()):
                raise AssertionError("dense features are not finite")
            found = time_each({"dense": dense, "bare": bare}, 2 if quick else 30, wait_for(device))
        yield time_row(f"B/16 dense, {batch} x {side} px, {kind}", found["dense"] / batch, "ms")
        yield ratio_row(f"against the bare tower, {batch} at a time", found["dense"], found["bare"], "<= 1.1 x")


def rate(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Images a second of nano: features alone, and textures from JPEG bytes."""
    from foveate.encoders.load import load_encoder

    count, side = (4, 128) if quick else (512, 512)
    bytes_of = [path.read_bytes() for path in sorted(PHOTOS.glob("*.jpg"))]
    files = [bytes_of[i % len(bytes_of)] for i in range(count)]
    encoder: Any = load_encoder("nano", device)
    here: Any = load_encoder("nano", "cpu")
    photo = crop_square(PHOTO, side)
    off = float(np.abs(encoder.encode_image(photo).features - here.encode_image(photo).features).max())
    if not off <= 1e-3:
        raise AssertionError(f"nano's features differ from the CPU's by {off:.2g}")
    several = getattr(encoder, "encode_images", lambda images: [encoder.encode_image(each) for each in images])
    for what, work in {
        "nano's features, decoded before": lambda: several([photo] * count),
        'textures from JPEG bytes, channels="fast"': lambda: encode(files, encoder=encoder, channels="fast"),
        'textures from JPEG bytes, channels="standard"': lambda: encode(files, encoder=encoder),
    }.items():
        seconds = time_each({what: work}, 1 if quick else 3, wait_for(device), patience=40)[what]
        speed = count / float(np.median(seconds))
        yield make_row(
            f"{what}: images a second", speed, f"{speed:.4g}", "" if "features" in what else ">= 1,000", "1/s"
        )


# Of the data sheets, dense, without sparsity: bytes a second of memory, operations a second in bfloat16 and float32.
SHEETS = {"H100": (3.35e12, 989e12, 67e12), "H200": (4.8e12, 989e12, 67e12)}
ONE_SM = 64 * 1.755e9  # bytes a second that one multiprocessor gets from the L2 cache: 64 a clock
PCIE = 55e9  # bytes a second from the host, of the fifth generation


def floors(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """No measurement: bytes and operations counted, by the numbers of the data sheets. No GPU is faster."""
    bytes_asked = question_bytes(4096, KEPT)
    from benchmarks.random_clip import count_flops

    flops = count_flops("clip-b16", 28 * 28 + 1)
    for gpu, (memory, half, full) in SHEETS.items():
        found = {
            f"question, {KEPT} of 4096 cells x {RANK}: {bytes_asked / 1e3:.0f} KB": bytes_asked / memory,
            "  its operations": 2 * 4096 * RANK / full,
            "  by one multiprocessor, from the L2 cache": bytes_asked / ONE_SM,
            "  by one, 16,384 cells": question_bytes(16384, KEPT) / ONE_SM,
            f"  {MANY} images, from memory": MANY * bytes_asked / memory,
            "planes of a 1024 x 1024 image, read once and written once": (3 * 1024**2 + 5 * 4 * 256**2) / memory,
            f"B/16 at 448 px: {flops / 1e9:.0f} GFLOP in bfloat16": flops / half,
            "pixels of 1,000 images of 512 x 512 over PCIe": 1000 * 3 * 512**2 / PCIE,
        }
        for what, seconds in found.items():
            unit = "ms" if seconds > 1e-3 else "µs"
            value = seconds * (1e3 if unit == "ms" else 1e6)
            yield make_row(f"{gpu}: {what.strip()}", value, f">= {value:.2g} {unit}", "", unit)


def question_bytes(cells: int, kept: int) -> int:
    """Read: the embedding, and the kept rows. Written: the rows, indices and scores."""
    return 2 * cells * RANK + 2 * (2 * kept * COLUMNS) + 12 * kept


def indexing(device: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Images a second into a store, from JPEG files; what is computed is compared with a store made on the CPU."""
    from foveate.core.threads import usual_threads
    from foveate.store import Store

    count, side, sizes = (3, 64, 1) if quick else (1024, 512, 4)
    rng = np.random.default_rng(0)
    with TemporaryDirectory() as folder:
        photos = Path(folder) / "photos"
        first = Path(folder) / "first"
        photos.mkdir()
        first.mkdir()
        whole = [Image.open(path).convert("RGB") for path in sorted(PHOTOS.glob("*.jpg"))]
        for i in range(count + WARM):  # no two files are alike, and sizes are a few, as cameras have them
            shape = (side, side - 32 * (i % sizes))
            noise = rng.integers(0, 3, (shape[1], shape[0], 3), np.uint8)
            pixels = np.minimum(np.asarray(whole[i % len(whole)].resize(shape)), 252) + noise
            Image.fromarray(pixels).save((first if i < WARM else photos) / f"{i:05d}.jpg", quality=85)
        here = Store(Path(folder) / "here.fov", long_side=side)
        here.add(first)
        for repeat in range(1 if quick else 3):
            store = Store(Path(folder) / f"{repeat}.fov", long_side=side)
            store.add(first, like=here.path, device=device)  # the network is loaded
            added = store.add(photos, device=device, workers=usual_threads())
            for path in first.iterdir():
                off = float(np.abs(restored(store[path.name]) - restored(here[path.name])).max())
                if not off <= 0.05:
                    raise AssertionError(f"what the store has of {path.name} differs from the CPU's by {off:.2g}")
            speed = added.added / added.seconds
            target = ">= 1,000" if repeat else ""
            what = f"images of {side} px indexed a second, {'again' if repeat else 'the first time'}"
            yield make_row(what, speed, f"{speed:.4g}", target, "1/s")


def restored(texture: Any) -> np.ndarray:
    """Features of a texture, as far as its basis has them: float32 [h, w, D]."""
    return np.asarray(texture.basis.restore(texture.embedding))


PARTS: dict[str, Callable[[str, bool], Iterator[dict[str, Any]]]] = {
    "question": question,
    "asking": asking,
    "channels": channels,
    "towers": towers,
    "rate": rate,
    "indexing": indexing,
    "floors": floors,
}
