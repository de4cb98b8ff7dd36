"""Which visual tokens of a video are kept: by the question, or by the rules of vLLM that do not hear it (EVS, VidCom2).

    python -m benchmarks video_pruning --clips DATA/dev/davis --vllm .venv/serving/lib/python3.11/site-packages/vllm

vLLM's own functions are called. They go by features of the model's encoder, which is not at hand: nano's stand in, on
the model's grid (28 pixels a token; one picture of two frames, of which the first is seen). So the table says what
a rule that does not hear the question keeps of the thing, and not how well EVS does with its model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import cv2
import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.clips import Clips, Labelled
from benchmarks.video import clips_of
from foveate.channels.visual import CHANGED, describe_cells, measure_change
from foveate.core.checks import check_int
from foveate.core.errors import OptionError
from foveate.encoders.load import load_encoder
from foveate.serving.selection import make_texture, select_rows
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, whole_box

SIDE, DEPTH = 28, 2  # pixels of a visual token, frames of a picture: Qwen2.5-VL
RULES = {"EVS": "evs", "VidCom2": "vidcom2"}
COLUMNS = ("rate", "way", "kept", "on the thing", "of the thing", "as before", "CPU a picture")
Masks = NDArray[np.bool_]


def measure(
    vllm: Annotated[Path, typer.Option(help="The folder of the package vllm, installed or not.")],
    clips: Clips = None,
    every: Annotated[int, typer.Option(help="Of the clip's frames, one in so many.")] = 3,
    rates: Annotated[str, typer.Option(help="Shares of the tokens that are kept.")] = "0.3,0.2,0.1",
    length: Annotated[int, typer.Option(help="Frames of a clip, at most.")] = 60,
) -> dict[str, Any]:
    """Tokens of a video that are kept at the same rate: on the thing asked for, and as before."""
    check_int("--every", every)
    rules = {name: load_rule(vllm, file) for name, file in RULES.items()}
    found: dict[tuple[float, str], list[tuple[float, ...]]] = {}
    with TemporaryDirectory() as scratch:
        several = list(clips_of(clips, length, Path(scratch)))
    shares = [float(rate) for rate in rates.split(",")]
    for clip in several:
        for rate, way, kept, seconds, video in of_clip(clip, every, shares, rules):
            found.setdefault((rate, way), []).append((*video.judge(kept), 1e3 * seconds))
    rows = []
    for (rate, way), each in found.items():
        kept, on, of, before, cpu = np.mean(each, 0)
        cells = [f"{rate:.0%}", way, f"{kept:.1%}", f"{on:.3f}", f"{of:.3f}", f"{before:.3f}", f"{cpu:.1f} ms"]
        rows.append({"cells": cells, "clips": [list(one) for one in each]})
    title = f"{', '.join(clip.name for clip in several)}: one frame in {every}, means of the clips"
    return {"title": title, "columns": COLUMNS, "rows": rows}


def load_rule(package: Path, file: str) -> Callable[..., Any]:
    """`compute_retention_mask` of a module of vLLM, which needs torch alone. Raises OptionError."""
    path = package / "multimodal" / "video_prune" / f"{file}.py"
    if not path.is_file():
        raise OptionError(f"no file '{path}'", expected="the package vllm, of 0.32 or later", fix="make serving")
    spec = spec_from_file_location(f"pruning_{file}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    rule: Callable[..., Any] = module.compute_retention_mask
    return rule


class TokenVideo:
    """A clip on visual tokens. area: share of each token that is the thing; still: whether it looks as before."""

    def __init__(self, clip: Labelled, every: int) -> None:
        frames, masks = clip.frames[::every], clip.masks[::every]
        self.pictures, shown = frames[::DEPTH], masks[::DEPTH]
        height, width = self.pictures[0].shape[:2]
        self.h, self.w = round(height / SIDE), round(width / SIDE)
        box, each = whole_box((height, width)), self.h * self.w
        grids = tuple(TokenGrid(self.h, self.w, box, n * each, frame=n) for n in range(len(self.pictures)))
        self.layout = TokenLayout(grids, each * len(grids))
        small = (cv2.resize(mask.astype(np.float32), (self.w, self.h), interpolation=cv2.INTER_AREA) for mask in shown)
        self.area = np.concatenate([mask.ravel() for mask in small])
        looks = [describe_cells(picture, grids[0].grid) for picture in self.pictures]
        changes = (measure_change(now, before) <= CHANGED for before, now in pairwise(looks))
        self.still = np.concatenate([np.zeros(each, bool), *(change.ravel() for change in changes)])

    def judge(self, kept: Masks) -> tuple[float, float, float, float]:
        """Share that is kept; of the kept tokens, the part on the thing; the part of the thing that is kept; the part
        of the kept tokens that look as their place did in the picture before."""
        on = self.area[kept].sum()
        return float(kept.mean()), float(on / kept.sum()), float(on / self.area.sum()), float(self.still[kept].mean())


def of_clip(
    clip: Labelled, every: int, rates: list[float], rules: dict[str, Callable[..., Any]]
) -> Iterator[tuple[float, str, Masks, float, TokenVideo]]:
    """(rate, way, what is kept, seconds of a core for a picture, the video)."""
    import torch

    video, encoder = TokenVideo(clip, every), load_encoder("nano")
    count = len(video.pictures)
    features = torch.from_numpy(
        np.stack([_on_tokens(encoder.encode_image(p).full(encoder.width), video) for p in video.pictures])
    )
    start = time.process_time()
    textures = [make_texture(picture, None)[0] for picture in video.pictures]
    encoding = time.process_time() - start
    size = (count, video.h, video.w)

    def by_rule(rule: Callable[..., Any], rate: float) -> Masks:
        return np.asarray(rule(features.reshape(-1, features.shape[-1]), size, 1, 1 - rate).numpy(), bool)

    def by_question(rate: float) -> Masks:
        budget = round(rate * video.layout.count)
        return _mask(select_rows(video.pictures, textures, [video.layout], clip.question, budget).rows[0], video)

    def evenly(rate: float) -> Masks:
        at = np.linspace(0, video.layout.count - 1, round(rate * video.layout.count)).round()
        return _mask(at.astype(np.int64), video)

    ways: dict[str, tuple[Callable[[float], Masks], float]] = {
        "by the question": (by_question, encoding),
        **{name: (partial(by_rule, rule), 0.0) for name, rule in rules.items()},
        "evenly": (evenly, 0.0),
    }
    for rate in rates:
        for name, (choose, before) in ways.items():
            start = time.process_time()
            kept = choose(rate)
            yield rate, name, kept, (time.process_time() - start + before) / count, video


def _on_tokens(features: NDArray[np.floating], video: TokenVideo) -> NDArray[np.float32]:
    planes = np.moveaxis(np.asarray(features, np.float32), -1, 0)
    return np.stack([cv2.resize(p, (video.w, video.h), interpolation=cv2.INTER_AREA) for p in planes], -1)


def _mask(rows: NDArray[np.int64], video: TokenVideo) -> Masks:
    kept = np.zeros(video.layout.count, bool)
    kept[rows] = True
    return kept
