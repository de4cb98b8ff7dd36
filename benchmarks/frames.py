"""Frames a second: clips followed from end to end, beside encoding every frame, and the documents' arithmetic.

    python -m benchmarks frames [--clips FOLDER]

Both ways read the same file, answer the same question and keep a tenth of the cells, in turn. With one encoding of T in
K frames and c for each of the others, following is S = T / (T / K + (1 - 1 / K) c) times as fast, always below K.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.clips import Clips, Labelled, Length, WorkingSide
from benchmarks.common import Repeats, make_row, rate_row, ratio_row, time_once, time_row
from benchmarks.video import Judged, answer, areas, budget_of, clips_of, judged
from foveate.cli.terminal import counting
from foveate.cli.video import write_results
from foveate.encoders.load import load_encoder
from foveate.pipeline import allocate, encode, score
from foveate.video.decode import import_pyav, open_clip
from foveate.video.state import Frame
from foveate.video.streams import stream

CLAIMS = {  # of the documents: T, c in ms, K; what they say comes out
    "140 ms once, 0.5 ms on average": (140.0, 0.5, None, "280 x"),
    "4.1 ms once, 0.9 ms warped, 30 frames": (4.1, 0.9, 30, "138 x"),
    "the same with a keyframe every 30 frames": (4.1, 0.9, 30, "28 x"),
    "2 ms once, 0.2 ms warped, 30 frames": (2.0, 0.2, 30, "900 x"),
}
DRAWN = 3  # times that an overlay is drawn: it is slow, and no pair
CROPS = 140.0  # ms that they reckon for 273 crops one by one


def speedup(full: float, carried: float, interval: float) -> float:
    """How many times as fast it is to encode one in `interval` frames: T / (T / K + (1 - 1 / K) c)."""
    return full / (full / interval + (1 - 1 / interval) * carried)


@dataclass(eq=False)
class Rates:
    """What was measured on one clip: seconds of each repeat, by the clock, and of all cores together (`cpu`: of both
    ways); frames, and how good they are, of all repeats."""

    clip: Labelled
    every: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    drawn: list[float] = field(default_factory=list)
    cpu: list[tuple[float, float]] = field(default_factory=list)
    followed: list[Frame] = field(default_factory=list)
    alone: list[Judged] = field(default_factory=list)
    steady: list[Judged] = field(default_factory=list)


def measure(
    clips: Clips = None,
    repeats: Repeats = 5,
    length: Length = 60,
    overlay: Annotated[bool, typer.Option(help="Whether the overlay is drawn, too.")] = True,
    side: WorkingSide = None,
) -> dict[str, Any]:
    """Frames a second: clips followed from end to end, beside encoding every frame."""
    import_pyav("a clip as a file")
    load_encoder("nano")
    with TemporaryDirectory() as folder, counting("frames", None) as progress:
        rates = []
        for clip in clips_of(clips, length, Path(folder)):
            rates.append(_follow(clip, repeats, overlay, side, Path(folder)))
            progress(len(rates))
    return make_report(rates, str(clips) if clips else "synthetic")


def _follow(clip: Labelled, repeats: int, overlay: bool, side: int | None, folder: Path) -> Rates:
    rates, count, question = Rates(clip), len(clip.frames), clip.question
    grid = load_encoder("nano").encode_image(clip.frames[0], long_side=side).grid
    budget, area = budget_of(grid.shape), areas(clip.masks, grid.shape)

    def encode_all() -> list[Judged]:
        found = []
        with open_clip(clip.path) as opened:
            for picture, covered in zip(opened, area, strict=False):
                relevance = score(encode(picture.rgb, long_side=side), question)
                found.append(judged(relevance, allocate(relevance, budget), covered))
        return found

    def follow() -> list[Frame]:
        with stream(clip.path, question, budget=budget, long_side=side) as frames:
            return list(islice(frames, count))

    def draw() -> None:
        run = stream(clip.path, question, budget=budget, long_side=side)
        write_results(run, folder / "o.jsonl", folder / "o.mp4", most=count)

    ways: tuple[tuple[list[float], list[Any], Callable[[], list[Any]]], ...] = (
        (rates.every, rates.alone, encode_all),
        (rates.whole, rates.followed, follow),
    )
    follow()  # warm
    for turn in range(repeats):
        cpu = [0.0, 0.0]
        for place in (0, 1) if turn % 2 == 0 else (1, 0):  # neither is always first
            seconds, found, way = ways[place]
            start, mark = time.process_time(), time.perf_counter()
            found += way()
            seconds.append(time.perf_counter() - mark)
            cpu[place] = time.process_time() - start
        rates.cpu.append((cpu[0], cpu[1]))
        if overlay and turn < DRAWN:
            rates.drawn.append(time_once(draw))
    rates.steady = [judged(*answer(frame), area[frame.index]) for frame in rates.followed]
    return rates


def make_report(rates: Sequence[Rates], source: str) -> dict[str, Any]:
    """Rows of all clips together, of each clip, and of the documents' arithmetic."""
    frames = [frame for each in rates for frame in each.followed if frame.index]
    count = sum(len(each.clip.frames) for each in rates)
    key, part, carried = (
        np.array([frame.seconds for frame in frames if kind(frame)])
        for kind in (
            lambda frame: frame.keyframe,
            lambda frame: bool(frame.renewed),
            lambda frame: not frame.keyframe and not frame.renewed,
        )
    )
    every, whole, drawn = (
        np.sum([getattr(each, name) for each in rates], 0) for name in ("every", "whole", "drawn")
    )  # of each repeat
    cpu = np.sum([each.cpu for each in rates], 0)
    encoded = sum(frame.keyframe for each in rates for frame in each.followed) / len(rates[0].whole)
    interval, full = count / encoded, float(np.median(every)) / count
    rows = [
        rate_row("every frame encoded, frames a second", count / every),
        rate_row("followed, frames a second", count / whole, ">= 30"),
        ratio_row("followed, times as fast", every, whole),
        make_row("  its limit: frames for one that is encoded, K", interval, f"{interval:.2f}"),
        time_row("all cores together, a frame, every frame encoded", cpu[:, 0] / count, "ms"),
        time_row("all cores together, a frame, followed", cpu[:, 1] / count, "ms"),
    ]
    if len(key) and len(carried):
        mean = float(carried.mean())
        model = speedup(full, mean, interval)
        rows += [
            time_row("  frames that are encoded, reading included", key, "ms", "<= 45"),
            *([time_row("  frames with parts that are encoded", part, "ms")] if len(part) else []),
            time_row("  frames that are only carried", carried, "ms", "<= 8"),
            make_row("  T / (T / K + (1 - 1 / K) c) of these", model, f"{model:.2f} x", unit="x"),
            *(
                make_row(
                    f"  the same with K = {k}", speedup(full, mean, k), f"{speedup(full, mean, k):.2f} x", unit="x"
                )
                for k in (12, 30)
            ),
        ]
    if drawn.size:
        rows.append(rate_row("`foveate video`, drawn and written, frames a second", count / drawn, ">= 22"))
    for name, what in (("alone", "every frame encoded"), ("steady", "followed")):
        covered = [float(np.nanmean(np.array(getattr(each, name))[:, 0])) for each in rates]
        by_clip = " ".join(f"{value:.3f}" for value in covered)
        value = float(np.mean(covered))
        rows.append(make_row(f"the thing in a tenth of the cells, {what}", value, f"{value:.3f} ({by_clip})"))
    for each in rates:
        rows.append(ratio_row(f"{each.clip.name}: followed, times as fast", np.array(each.every), np.array(each.whole)))
    names = ", ".join(each.clip.name for each in rates)
    claims = {
        "title": "\nthe documents' numbers, put into S = T / (T / K + (1 - 1 / K) c)",
        "columns": ("claim", "claimed", "a frame", "against crops of 140 ms", "against its own T"),
        "rows": [claim_row(what, *claim) for what, claim in CLAIMS.items()],
    }
    return {
        "title": f"{names}: {count} frames from files, {encoded / count:.0%} encoded",
        "rows": rows,
        "claims": claims["rows"],
        "source": source,
        "after": [claims],
    }


def claim_row(what: str, full: float, carried: float, interval: int | None, claimed: str) -> dict[str, Any]:
    """A claim of the documents: what its own numbers give against crops, and against one dense encoding a frame."""
    average = carried if interval is None else full / speedup(full, carried, interval)
    dense = None if interval is None else full / average
    cells = [what, claimed, f"{average:.2f} ms", f"{CROPS / average:.0f} x", "-" if dense is None else f"{dense:.1f} x"]
    return {"cells": cells, "what": what, "claimed": claimed, "average_ms": round(average, 4), "dense": dense}
