"""When does encoding once pay, and when does it not? Tables of docs/when.md.

    python -m benchmarks when

* amortisation: questions about one image, beside crops and the encoder (reuse.py, on an image of 512 pixels).
* stills: what one question on each still costs, and how much of it is not the encoder; bytes beside a JPEG.
* noise: confidence of questions about images in which there is nothing, and what is kept.
* video: one question, a new one in each frame, and every frame encoded.
* models: prefill that fewer visual tokens save, against the texture's cost. One layer of the real class with random
  weights is timed and multiplied by the number of layers, on the CPU.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import cv2
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks import reuse
from benchmarks.common import (
    KEPT,
    PHOTO,
    PHOTOS,
    Image,
    Repeats,
    crop_square,
    medians,
    new_questions,
    show_part,
)
from foveate.core.checks import check_int
from foveate.encoders.load import load_encoder
from foveate.pipeline import allocate, encode, score
from foveate.relevance.value import Relevance
from foveate.video import Propagation, Refresh, stream

Image8 = NDArray[np.uint8]
SIDE = 512
CELLS = 32  # kept of the smallest image, which has 64
ASKED = ("dog", "person", "car", "tree", "cup", "horse", "chair", "bus")  # of images in which there is none of them
SIZES = (64, 128, 256, 512, 1024)
FRAMES = 48
SHARE = 8  # an eighth of the visual tokens is kept


class Size(NamedTuple):
    """A language model: the class, its layers, and the sizes of one."""

    name: str
    kind: str
    layers: int
    width: int
    inner: int
    heads: int
    keys: int

    @property
    def parameters(self) -> int:
        """Of all layers, without embeddings."""
        side = self.width // self.heads
        attention = 2 * self.width * self.width + 2 * self.width * self.keys * side
        return self.layers * (attention + 3 * self.width * self.inner)


MODELS = (
    Size("SmolVLM-256M", "llama", 30, 576, 1536, 9, 3),
    Size("InternVL3-1B", "qwen2", 24, 896, 4864, 14, 2),
    Size("Qwen2-VL-2B", "qwen2", 28, 1536, 8960, 12, 2),
    Size("Qwen2.5-VL-7B", "qwen2", 28, 3584, 18944, 28, 4),
)
TOKENS, PROMPT = (64, 256, 1024), 30  # visual tokens of a picture, and the others


def measure(
    image: Image = PHOTO,
    repeats: Repeats = 7,
    models: Annotated[int, typer.Option(help="Language models, the smallest first; 0: no torch is needed.")] = 4,
) -> dict[str, Any]:
    """When does it pay? First questions, many questions, stills, noise, video, small and large models."""
    check_int("--repeats", repeats, 1, 1000)
    check_int("--models", models, 0, len(MODELS))
    if models:
        from foveate.vlm.loader import libraries

        libraries()
    photograph = crop_square(image, SIDE)
    costs = reuse.measure_costs("nano", load_encoder("nano"), photograph, repeats)
    few = max(1, repeats // 3)
    ways: list[Callable[[], dict[str, Any]]] = [
        lambda: reuse.amortise({"nano": costs}) | {"title": f"N questions about one {SIDE}-pixel image"},
        lambda: compare_sizes(image, repeats),
        ask_noise,
        lambda: follow_video(image, costs, few),
        *(partial(save_prefill, photograph, few, size) for size in MODELS[:models]),
    ]
    return {"title": "when", "tables": [show_part(way()) for way in ways], "image": str(image)}


# --- stills -----------------------------------------------------------------------------------------------------------


def compare_sizes(image: Path, repeats: int) -> dict[str, Any]:
    """What one question on a still costs, by its size; and its bytes, in memory and on disk, beside a JPEG."""
    encoder, fresh = load_encoder("nano"), new_questions()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for side in SIZES:
            photograph = crop_square(image, side)
            texture = encode(photograph)
            file = Path(folder) / f"{side}.safetensors"
            texture.save(file)
            jpeg = len(cv2.imencode(".jpg", photograph[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])[1])
            parts: dict[str, Callable[[], Any]] = {
                "encoder": partial(encoder.encode_image, photograph),
                "encode": partial(encode, photograph),
                "fast": partial(encode, photograph, channels="fast"),
                "first": partial(_first_question, photograph, fresh),
            }
            seconds = medians(parts, repeats)
            shares = [seconds[name] / seconds["encoder"] for name in ("encode", "fast", "first")]
            saved = file.stat().st_size
            cells = [
                f"{side} x {side}", f"{texture.grid.h} x {texture.grid.w}", f"{seconds['encoder'] * 1e3:.0f} ms",
                *(f"{share:.2f}" for share in shares), f"{texture.nbytes / 1e6:.2f} MB", f"{saved / 1e6:.2f} MB",
                f"{jpeg / 1e6:.2f} MB", f"{saved / jpeg:.0f} x",
            ]  # fmt: skip
            rows.append({"cells": cells, "seconds": seconds, "bytes": [texture.nbytes, saved, jpeg]})
    columns = (
        "image", "cells", "encoder", "encode()", "encode(fast)", "encode + first question", "in memory", "on disk",
        "as JPEG", "disk / JPEG",
    )  # fmt: skip
    return {"title": "one question on one still; times are times the encoder's", "columns": columns, "rows": rows}


def _first_question(photograph: Image8, fresh: Iterator[str]) -> Any:
    return allocate(score(encode(photograph), next(fresh)), CELLS)


# --- nothing to see -----------------------------------------------------------------------------------------------


def ask_noise(seeds: int = 2) -> dict[str, Any]:
    """Questions about images in which there is nothing, beside the same about photographs."""
    photographs = [crop_square(file, SIDE) for file in sorted(PHOTOS.glob("*.jpg"))]
    kinds: dict[str, list[Image8]] = {
        "uniform noise": [_noise(seed) for seed in range(seeds)],
        "blurred noise": [_noise(seed, 8) for seed in range(seeds)],
        "noise in 32-pixel blocks": [
            np.repeat(np.repeat(_noise(seed)[:16, :16], SIDE // 16, 0), SIDE // 16, 1) for seed in range(seeds)
        ],
        "one grey": [np.full((SIDE, SIDE, 3), 128, np.uint8)],
        "photographs (some of it is there)": photographs,
    }
    rows = []
    for name, images in kinds.items():
        asked = [[score(encode(image), text) for text in ASKED] for image in images]
        flat = [relevance for found in asked for relevance in found]
        sure = np.array([relevance.confidence for relevance in flat])
        cells = [
            name, str(len(flat)), f"{np.median(sure):.2f}", f"{sure.max():.2f}",
            f"{sum(relevance.detected for relevance in flat)}", f"{np.mean([_shared(found) for found in asked]):.2f}",
            f"{np.mean([_spread(relevance) for relevance in flat]):.2f}",
        ]  # fmt: skip
        rows.append({"cells": cells})
    columns = ("image", "questions", "confidence", "highest", "detected", "kept for two questions alike", "spread")
    title = f"nothing to see: {KEPT} of 4096 cells kept; spread: share of 64 blocks that keep a cell or more"
    return {"title": title, "columns": columns, "rows": rows}


def _noise(seed: int, blur: float = 0) -> Image8:
    plane = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3)).astype(np.float32)
    if blur:
        plane = np.asarray(cv2.GaussianBlur(plane, (0, 0), blur), np.float32)
        plane = (plane - plane.min()) / (plane.max() - plane.min()) * 255
    return plane.astype(np.uint8)


def _shared(found: Sequence[Relevance]) -> float:
    """Share of the kept cells that two different questions have in common, the mean of all pairs."""
    kept = [set(allocate(relevance, KEPT).indices.tolist()) for relevance in found]
    return float(np.mean([len(a & b) / KEPT for a, b in itertools.combinations(kept, 2)]))


def _spread(relevance: Relevance) -> float:
    mask = allocate(relevance, KEPT).mask
    h, w = mask.shape
    return float(mask[: h - h % 8, : w - w % 8].reshape(8, h // 8, 8, w // 8).any((1, 3)).mean())


# --- video --------------------------------------------------------------------------------------------------------


def follow_video(image: Path, costs: reuse.Costs, repeats: int) -> dict[str, Any]:
    """Seconds a frame of a slow pan over a photograph: one question, new ones, every frame encoded."""
    whole = crop_square(image, 480)
    frames = [np.ascontiguousarray(whole[120:360, 2 * i : 2 * i + 320]) for i in range(FRAMES)]
    fresh = new_questions()
    encoder = load_encoder("nano")

    def run(refresh: Refresh, change: bool) -> tuple[float, float]:
        clip = stream(iter(frames), "the dog", propagation=Propagation(refresh=refresh))
        found = []
        for frame in clip:
            found.append((frame.seconds, float(frame.keyframe)))
            if change:
                clip.ask(next(fresh))
        return float(np.mean([seconds for seconds, _ in found])), float(np.mean([key for _, key in found]))

    ways = {
        "one question, propagated": partial(run, Refresh(), False),
        "another question in each frame, propagated": partial(run, Refresh(), True),
        "every frame encoded (stream, every=1)": partial(run, Refresh(every=1), False),
    }
    measured = [{name: way() for name, way in ways.items()} for _ in range(repeats)]
    one = medians({"encoder": lambda: encoder.encode_image(frames[0])}, 9)["encoder"]
    seconds = {name: float(np.median([each[name][0] for each in measured])) for name in ways}
    seconds["the encoder alone, each frame"] = one
    first = next(iter(seconds.values()))
    rows = [
        {
            "cells": [
                name,
                f"{s * 1e3:.0f} ms",
                f"{s / first:.2f} x",
                f"{measured[0][name][1]:.0%}" if name in ways else "",
            ],
            "seconds": s,
        }
        for name, s in seconds.items()
    ]
    crops = one * (KEPT * costs.crop(64) + costs.ask_crops) / costs.dense  # the machine may have changed its pace
    name = f"{KEPT} crops, each frame (by its ratio to the encoder)"
    rows.append({"cells": [name, f"{crops * 1e3:.0f} ms", f"{crops / first:.1f} x", ""], "seconds": crops})
    columns = ("way", "a frame", "of the first", "frames encoded whole")
    return {"title": f"{FRAMES} frames of 240 x 320, a slow pan", "columns": columns, "rows": rows}


# --- models -------------------------------------------------------------------------------------------------------


def save_prefill(photograph: Image8, repeats: int, size: Size) -> dict[str, Any]:
    """Prefill with all visual tokens and with an eighth, in turn with the texture of a first question."""
    import torch

    fresh = new_questions()
    texture = encode(photograph)
    lengths = sorted({PROMPT + n // part for n in TOKENS for part in (1, SHARE)})
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        layer = _one_layer(size)
        inputs = {str(n): torch.rand(1, n, size.width) for n in lengths}
        parts: dict[str, Callable[[], Any]] = {
            "first": partial(_first_question, photograph, fresh),
            "later": lambda: allocate(score(texture, next(fresh)), KEPT),
            **{n: partial(layer, inputs_embeds=rows_of) for n, rows_of in inputs.items()},
        }
        one = medians(parts, repeats)
    first, later = one["first"], one["later"]
    rows = []
    for n in TOKENS:
        every, some = (one[str(PROMPT + n // part)] * size.layers for part in (1, SHARE))
        saved = every - some
        rate = 2 * size.parameters * (n - n // SHARE) / first / 1e12
        pays = "never" if saved <= later else str(max(1, math.ceil((first - later) / (saved - later))))
        cells = [
            str(n), str(n // SHARE), f"{every:.2f} s", f"{some:.2f} s", f"{saved / first:.1f} x", pays, f"{rate:.2f}"
        ]  # fmt: skip
        rows.append({"cells": cells, "seconds": [every, some, first, later], "rate": rate})
    columns = (
        "visual tokens", "kept", "prefill", "with the kept", "saved / first question", "pays from question",
        "even at TFLOP/s",
    )  # fmt: skip
    title = (
        f"{size.name}, {size.parameters / 1e9:.2f}e9 parameters in {size.layers} layers, one of them timed; "
        f"texture and first question {first * 1e3:.0f} ms"
    )
    return {"title": title, "columns": columns, "rows": rows}


def _one_layer(size: Size) -> Any:
    from transformers import LlamaConfig, LlamaModel, Qwen2Config, Qwen2Model

    config, model = {"llama": (LlamaConfig, LlamaModel), "qwen2": (Qwen2Config, Qwen2Model)}[size.kind]
    return model(
        config(
            vocab_size=160, hidden_size=size.width, intermediate_size=size.inner, num_hidden_layers=1,
            num_attention_heads=size.heads, num_key_value_heads=size.keys, use_cache=False,
        )
    ).eval()  # fmt: skip
