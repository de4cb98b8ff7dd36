"""What following a clip costs: against a large tower, by stages, end to end, in memory; and how still it stands.

* The large tower is a CLIP ViT-B/16 of its real size with random weights, through foveate's own CLIP encoder: time does
  not depend on what weights are. Its text side is small, as no text is read while a clip is followed.
* Stages are measured by calling the parts of a step again on the same values; they are pure. What they do not add up
  to is "the rest": putting the frame together, and what is propagated beside features.
* Flicker is measured on a photograph with a camera's noise that went through H.264: share of the cells kept in one
  frame that were not kept in the frame before.
* Memory is that of a process of its own, by Linux's /proc; elsewhere it is not measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.clips import Labelled, decoded, photograph, through, written
from benchmarks.common import KEPT
from benchmarks.video_rivals import BY_AGE, DEFAULTS, EVERY_FRAME, PLAIN, WAYS, K, onward
from foveate.channels.change import describe_cells
from foveate.channels.saliency import compute_saliency
from foveate.core.errors import MissingExtraError
from foveate.encoders.protocol import Encoder
from foveate.pipeline import score
from foveate.video.flow import make_view
from foveate.video.propagation import blend_layers, propagate
from foveate.video.sight import find_passage
from foveate.video.state import Frame, Propagation, State, StreamSettings, step
from foveate.video.streams import stream
from foveate.video.temporal import allocate_steadily, compute_change, measure_motion, select_changed, smooth_relevance

Bytes = NDArray[np.uint8]
SETTLED = 100  # frames after which memory should no longer grow
STILL_NOISE = 2.0
ENCODED = 3  # one of so many frames is encoded alone, as each takes a second
STILL = {"yellow_bus": "the bus", "child_with_broccoli": "the broccoli"}
TINY = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 3}


# --- a large tower ----------------------------------------------------------------------------------------------------


def random_b16(tiny: bool = False) -> Encoder:
    """CLIP ViT-B/16 with random weights. Raises MissingExtraError."""
    try:
        import torch
        from transformers import CLIPConfig, CLIPModel

        from benchmarks.random_vlm import IDS, tokenizer
        from foveate.encoders.clip import ClipEncoder
    except ImportError as cause:
        raise MissingExtraError(
            f"a CLIP-sized tower needs {cause.name}", expected="the extra [torch]", fix="pip install 'foveate[torch]'"
        ) from cause
    text = {
        "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
        "vocab_size": len(IDS), "bos_token_id": IDS["<s>"], "eos_token_id": IDS["</s>"],
    }  # fmt: skip
    vision = {**(TINY if tiny else {"hidden_size": 768, "num_hidden_layers": 12}), "patch_size": 16}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=24 if tiny else 512))
    return ClipEncoder(model, tokenizer(), name="random-b16", revision="0", dense="naclip")


def large_tower(frames: Sequence[Bytes], encoder: Encoder, names: tuple[str, ...]) -> dict[str, Any]:
    """Times of the feature stage (no question asked) of each way, in turn, and how much faster than encoding it is.

    By age: a cycle of K frames takes one median of encoded frames and K - 1 of propagated ones, so the ratio is below K
    whatever the machine does beside. Defaults: the mean over the frames, as parts may be renewed in
    any of them, against that median.
    """
    hows = {name: WAYS[name].how(encoder, names) for name in (EVERY_FRAME, BY_AGE, DEFAULTS)}
    states: dict[str, State | None] = dict.fromkeys(hows)
    seconds: dict[str, list[float]] = {name: [] for name in hows}
    keys: list[bool] = []
    for number, rgb in enumerate(frames):
        for name, how in hows.items():
            if name == EVERY_FRAME and number % ENCODED:
                continue
            started = time.perf_counter()
            states[name], frame = onward(states[name], rgb, (), how)
            seconds[name].append(time.perf_counter() - started)
            if name == BY_AGE:
                keys.append(frame.keyframe)
    taken, key = np.array(seconds[BY_AGE][1:]), np.array(keys[1:])
    propagated = float(np.median(taken[~key]))
    encoded = float(np.median([*seconds[EVERY_FRAME][1:], *taken[key]]))
    return {
        "encoded_ms": round(encoded * 1e3, 2),
        "propagated_ms": round(propagated * 1e3, 2),
        "ratio_by_age": round(encoded * K / (encoded + (K - 1) * propagated), 3),
        "ratio_defaults": round(encoded / float(np.mean(seconds[DEFAULTS][1:])), 3),
        "cells": int(frame.grid.count),
    }


# --- stages and the whole ---------------------------------------------------------------------------------------------


def stages(clip: Labelled, how: StreamSettings) -> dict[str, list[float]]:
    """Seconds of each stage of the frames that were only propagated, and of the whole steps."""
    found: dict[str, list[float]] = {}
    state: State | None = None
    for rgb, read in zip(clip.frames, clip.read, strict=True):
        before = state
        started = time.perf_counter()
        state, frame = step(before, rgb, clip.name, (clip.question,), how)
        whole = time.perf_counter() - started
        if before is None or frame.keyframe or frame.renewed:
            continue
        parts = _stages(before, frame, rgb, clip.question, how)
        for name, seconds in {"reading": read, **parts, "the rest": whole - sum(parts.values())}.items():
            found.setdefault(name, []).append(seconds)
    return found


def _stages(before: State, frame: Frame, rgb: Bytes, question: str, how: StreamSettings) -> dict[str, float]:
    laps = [time.perf_counter()]
    lap: Callable[[], None] = lambda: laps.append(time.perf_counter())  # noqa: E731
    view = make_view(rgb)
    passage = find_passage(view, before.view, how.propagation.flow)
    lap()
    blend_layers(tuple(propagate(patch, passage.flow, passage.uncovered) for patch in before.layers), view)
    last = measure_motion(passage, before.texture.grid.shape)
    lap()
    compute_saliency(view.rgb, frame.grid.shape)
    compute_change(view, before.view, frame.grid.shape)
    look = describe_cells(view.rgb, frame.grid)
    lap()
    texture = frame._texture
    lap()
    found, answers = score(texture, question, encoder=how.encoder), before.answers[0]
    found = smooth_relevance(found, answers.relevance, last, how.propagation.smoothing)
    lap()
    kept = allocate_steadily(
        found,
        last.propagate_kept(answers.kept),
        how.propagation.hysteresis,
        how.budget,
        how.keep,
    )
    select_changed(look, kept.indices, answers.sent, how.propagation.changed)
    lap()
    names = ("flow", "propagating", "planes of its own", "", "scoring, smoothing", "choosing, sending")
    return {name: b - a for name, a, b in zip(names, laps[:-1], laps[1:], strict=True) if name}


def end_to_end(clip: Labelled, budget: int) -> list[Frame]:
    """The frames of the public stream over a clip's file, reading included."""
    assert clip.path is not None
    with stream(clip.path, clip.question, budget=budget) as frames:
        return list(islice(frames, len(clip.frames)))


# --- a still scene ----------------------------------------------------------------------------------------------------


def flicker(count: int, size: int, long_side: int | None, photos: Mapping[str, str] = STILL) -> dict[str, Any]:
    """Share of kept cells that change from frame to frame, mean over photographs: as it is, and without a steady hand;
    and share of the kept cells that are sent again. Raises MissingExtraError without PyAV."""
    ways = {"steady": Propagation(), "without": Propagation(**PLAIN)}
    changed: dict[str, list[float]] = {way: [] for way in ways}
    again: dict[str, list[float]] = {way: [] for way in ways}
    with TemporaryDirectory() as folder:
        for name, question in photos.items():
            frames, _, _ = decoded(still_clip(name, count, size, Path(folder)))
            for way, how in ways.items():
                kept: list[NDArray[np.int64]] = []
                for frame in stream(frames, question, budget=KEPT, long_side=long_side, propagation=how):
                    kept.append(frame.kept.indices)  # type: ignore[union-attr]
                    again[way].append(len(frame.kept_new) / len(frame.kept) if len(kept) > 1 else np.nan)
                changed[way] += moving(kept)
    return {
        **{way: round(float(np.mean(values)), 5) for way, values in changed.items()},
        "worst_frame": round(max(changed["steady"]), 5),
        "sent_again": round(float(np.nanmean(again["steady"])), 5),
    }


def moving(kept: Sequence[NDArray[np.int64]]) -> list[float]:
    """Share of the cells of each set (but the first) that were not in the set before."""
    return [float(1 - np.isin(now, before).mean()) for before, now in pairwise(kept)]


def still_clip(name: str, count: int, size: int, folder: Path) -> Path:
    """A photograph that does not move, with noise of its own in each frame, as H.264. `size`: pixels of the long side,
    made even, as the codec wants it."""
    rgb = photograph(name)
    scale = size / max(rgb.shape[:2])
    h, w = (round(side * scale / 2) * 2 for side in rgb.shape[:2])
    whole, _ = through(rgb, (h, w), (rgb.shape[0] / 2, rgb.shape[1] / 2), scale)
    random = np.random.default_rng(0)
    noise = (random.standard_normal(whole.shape, np.float32) * STILL_NOISE for _ in range(count))
    return written([np.clip(whole + n + 0.5, 0, 255).astype(np.uint8) for n in noise], folder / f"{name}.mp4")


# --- memory -----------------------------------------------------------------------------------------------------------


def growth(frames: int) -> dict[str, float] | None:
    """How many megabytes a process grows that follows so many small frames, after the first hundred; None where /proc
    does not say."""
    if resident() is None:
        return None
    code = "import sys; from benchmarks.video_speed import print_growth; print_growth(int(sys.argv[1]))"
    run = subprocess.run([sys.executable, "-c", code, str(frames)], capture_output=True, text=True, check=True)
    return dict(json.loads(run.stdout.splitlines()[-1]))


def print_growth(frames: int) -> None:
    """What the child process does: JSON on stdout."""
    sizes = []
    for number, _ in enumerate(stream(small_frames(frames), "the bus", budget=20, long_side=160)):
        if number >= min(SETTLED, frames // 2) and number % 10 == 0:
            sizes.append(resident() or 0.0)
    half = max(1, len(sizes) // 2)
    print(
        json.dumps(
            {
                "frames": frames,
                "megabytes": round(sizes[-1] - sizes[0], 3),
                "second_half": round(float(np.median(sizes[-half:]) - np.median(sizes[:half])), 3),
                "resident": round(sizes[-1], 1),
            }
        )
    )


def small_frames(count: int) -> Iterator[Bytes]:
    """A photograph that turns slowly behind a window of 96 x 160 pixels, without an end."""
    rgb = photograph("yellow_bus")
    for number in range(count):
        centre = (rgb.shape[0] / 2 + 20 * np.sin(number / 9), rgb.shape[1] / 2 + 40 * np.sin(number / 13))
        yield through(rgb, (96, 160), centre, 0.3, 5 * np.sin(number / 17))[0]


def resident() -> float | None:
    """Megabytes of this process that are in memory, or None."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
