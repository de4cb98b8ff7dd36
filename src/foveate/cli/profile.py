"""`foveate profile`: where the time of an image and a question goes, part by part."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from foveate.cli import terminal
from foveate.cli.encode import TEXTURE, ChannelNames, split_names, who_reads
from foveate.core.trace import Call, Watched, chrome_trace, seconds_by_path, watching

WIDTH = 100  # characters of the bar
QUICK = 20  # times a question is asked for each time that the image is encoded
Path_ = tuple[str, ...]


def profile(
    image: Annotated[Path, typer.Argument(help="An image, or a PDF.")],
    question: Annotated[str, typer.Argument(help="A question or noun phrase, in quotes.")] = "a dog",
    repeats: Annotated[int, typer.Option(help="Measurements of each part; medians are shown.")] = 5,
    budget: terminal.Budget = "auto",
    encoder: terminal.EncoderName = None,
    preset: terminal.PresetOption = None,
    long_side: terminal.LongSideOrNative = None,
    channels: ChannelNames = None,
    read: terminal.ReadFlag = None,
    reader: terminal.ReaderName = None,
    page: terminal.PageNumber = None,
    device: Annotated[
        str | None,
        typer.Option(help="Where an encoder of the Hub, score and allocate work: cuda, or cpu (torch)."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A vision-language model, too: a folder, or a name on the Hub.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="File to write: all calls, for ui.perfetto.dev (Chrome's trace format).")
    ] = None,
) -> None:  # fmt: skip
    """Where the time goes: a table and a bar of the parts of encode, of score and allocate, and of a model's answer."""
    from foveate.core.checks import check_int
    from foveate.core.devices import find_device
    from foveate.core.errors import OptionError
    from foveate.core.files import check_output, write_whole
    from foveate.encoders.load import BUILT_IN, resolve_encoder
    from foveate.encoders.specialists import files_of
    from foveate.pipeline import allocate, encode, score
    from foveate.reading.pdf import open_source

    terminal.refuse_files(image, [question])
    check_int("--repeats", repeats, 1, 1000)
    if image.suffix.lower() == TEXTURE:
        raise OptionError(
            f"the texture '{image}'", expected="an image: a texture is encoded already", fix="name its image"
        )
    open_source(image, page)  # what is bad is refused before anything is loaded, or downloaded
    if trace is not None:
        check_output(trace, image, "image", "--trace")
    place, settle = None, _nothing
    if device is not None:
        place = find_device(device, "leave --device out for NumPy on the CPU")
        settle = _waiter(place)
    named = encoder or "nano"
    network = resolve_encoder(named, None if named in BUILT_IN or files_of(named) else device)
    how: dict[str, Any] = {
        "encoder": network, "preset": preset, "long_side": long_side, "channels": split_names(channels),
        "read": who_reads(read, reader), "page": page,
    }  # fmt: skip
    with terminal.waiting(f"measuring {image}", encoder):
        first, texture = _timed(lambda: encode(image, **how), settle)  # loads what is loaded once
        sent = texture if place is None else texture.to(place)
        scoring: dict[str, Any] = {"encoder": network} | (
            {} if place is None else {"reading": False}
        )  # the CPU's alone
        asked, relevance = _timed(lambda: score(sent, question, **scoring), settle)
        allocate(relevance, budget)  # what is bad is refused before a model is loaded, and anything measured
    vlm: Any = None
    if model is not None:
        from foveate.vlm import load

        vlm = load(model, device=device or "auto", encoder=network)
    with terminal.waiting(f"measuring {image}"):
        runs = list[list[Call]]()
        for _ in range(repeats):
            with watching(parts_of_encode(network), settle) as spans:
                encode(image, **how)
            runs.append(spans)
        seconds = _medians(runs)
        if place is not None:
            seconds["send",] = median(_timed(lambda: texture.to(place), settle)[0] for _ in range(repeats))
        ways: Mapping[str, Callable[[], Any]] = {
            "score": lambda: score(sent, question, **scoring), "allocate": lambda: allocate(relevance, budget),
        }  # fmt: skip
        for name, way in ways.items():
            seconds[name,] = median(_timed(way, settle)[0] for _ in range(QUICK * repeats))
        if vlm is not None:
            found = _measure_model(vlm, texture, question, budget, repeats, settle)
            runs += found
            seconds |= _medians(found)
    if trace is not None:
        write_whole(trace, json.dumps(chrome_trace([span for spans in runs for span in spans])).encode())
    total = sum(value for path, value in seconds.items() if len(path) == 1)
    rows = [
        ("  " * (len(path) - 1) + path[-1], _in_ms(value), f"{100 * value / total:.1f} %")
        for path, value in seconds.items()
    ]
    grid, where = texture.grid, "the CPU" if place is None else str(place)
    title = (
        f"{image}  {grid.h} x {grid.w} cells, {network.name}; questions on {where}; medians of {repeats}; "
        f"first {first:.1f} s, first question {asked * 1e3:.1f} ms"
    )
    terminal.print_table(title, ("part", "ms", "of all"), rows)
    for line in draw_bar(seconds, WIDTH):
        typer.echo(line)
    if trace is not None:
        terminal.print_files("trace", [str(trace)])
    terminal.print_json(
        image=str(image), question=question, encoder=network.name, device=where, repeats=repeats,
        first_seconds=round(first, 4), first_question_seconds=round(asked, 6),
        parts=[{"path": path, "seconds": round(value, 7)} for path, value in seconds.items()],
        trace=trace and str(trace),
    )  # fmt: skip


def parts_of_encode(network: Any) -> Watched:
    """The functions that encode is made of, by the names that the table has."""
    from onnxruntime import InferenceSession

    from foveate.channels import depth, geometry, objects, segments, text, visual
    from foveate.encoders import nano, windows
    from foveate.encoders.hub import HubEncoder
    from foveate.pipeline import encode
    from foveate.reading.pdf import open_source
    from foveate.reading.readers import read_picture
    from foveate.texture.basis import compress, keep_all

    encoders: list[Any] = [getattr(network, name, None) for name in ("encode_image", "encode_images")]
    return {
        "encode": [encode],
        "open": [open_source],
        "encoder": [windows.encode_native, *[each for each in encoders if hasattr(each, "__func__")]],
        "resize": [nano.fit_image, HubEncoder._resized],
        "network": [InferenceSession.run, HubEncoder._run],
        "classes": [nano.with_classes],
        "read": [read_picture],
        "compress": [compress, keep_all],
        "edges, frequencies": [visual.compute_visual_planes],
        "saliency": [visual.compute_saliency],
        "segments": [segments.measure_cells, segments.segment_image],
        "objects": [objects.find_objects, segments.mark_borders],
        "writing": [text.find_text_regions],
        "depth": [depth.compute_depth_plane, geometry.compute_normals, geometry.measure_occlusion],
    }


def _nothing() -> None:
    pass


def _waiter(place: Any) -> Callable[[], None]:
    import torch

    return (lambda: torch.cuda.synchronize(place)) if place.type == "cuda" else _nothing


def _timed(call: Callable[[], Any], settle: Callable[[], None]) -> tuple[float, Any]:
    settle()
    start = time.perf_counter()
    found = call()
    settle()
    return time.perf_counter() - start, found


def _medians(runs: Sequence[Sequence[Call]]) -> dict[Path_, float]:
    sums = [with_rest(seconds_by_path(spans)) for spans in runs]
    return {path: median(each.get(path, 0.0) for each in sums) for path in max(sums, key=len)}


def _measure_model(
    vlm: Any, texture: Any, question: str, budget: Any, repeats: int, settle: Callable[[], None]
) -> list[list[Call]]:
    """Calls of seeing an image that is encoded already, of laying out a question, and of 16 tokens of an answer."""
    from foveate.vlm.model import VLM

    parts: Watched = {"model sees": [VLM.see], "model answers": [VLM.ask], "choose tokens": [VLM.prepare]}
    runs = list[list[Call]]()
    for _ in range(repeats + 1):  # the first is not counted
        with watching(parts, settle) as spans:
            vlm.ask(vlm.see(texture, read=False), question, budget=budget, max_new_tokens=16)
        runs.append(spans)
    return runs[1:]


def with_rest(seconds: Mapping[Path_, float]) -> dict[Path_, float]:
    """The same with a part "rest" after the parts of each: what they leave over."""
    out: dict[Path_, float] = {}
    for path in _inside(seconds, ()):
        _add(out, seconds, path)
    return out


def _add(out: dict[Path_, float], seconds: Mapping[Path_, float], path: Path_) -> None:
    out[path], inside = seconds[path], _inside(seconds, path)
    for each in inside:
        _add(out, seconds, each)
    if inside:
        out[*path, "rest"] = max(0.0, seconds[path] - sum(seconds[each] for each in inside))


def _inside(seconds: Mapping[Path_, float], path: Path_) -> list[Path_]:
    return [each for each in seconds if each and each[:-1] == path]


def draw_bar(seconds: Mapping[Path_, float], width: int) -> list[str]:
    """Lines of text: what a part is made of stands below it, as wide as its share of the time."""
    lines = list[list[str]]()

    def draw(parent: Path_, left: int, wide: int) -> None:
        parts = _inside(seconds, parent)
        sums = [0.0, *accumulate(seconds[path] for path in parts)]
        edges = [left + round(wide * each / (sums[-1] or 1.0)) for each in sums]
        if parts and len(lines) == len(parent):
            lines.append([" "] * width)
        for path, start, stop in zip(parts, edges, edges[1:], strict=False):
            lines[len(parent)][start:stop] = f"|{path[-1]}".ljust(stop - start, "-")[: stop - start]
            draw(path, start, stop - start)

    draw((), 0, width)
    return ["".join(line).rstrip() for line in lines]


def _in_ms(seconds: float) -> str:
    return f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.3g}"
