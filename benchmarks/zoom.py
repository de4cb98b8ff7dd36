"""Are small things found in large images, what does it cost, and is it noticed when one is not there?

    python -m benchmarks zoom --data FOLDER --half B

Scenes of 20 to 60 million pixels (large_scenes.py) with a few small things that the encoder detects within 180 pixels
of one, at full resolution. As many names are asked that are not in a scene. Found: the place is on the thing. The
cost is in parts encoded, as a share of the number of tiles; the survey's are counted apart.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import CocoData, EncoderName
from benchmarks.large_scenes import THINGS, LargeScene, make_scene, read_material
from foveate.cli.terminal import counting
from foveate.core.grid import Box, Floats
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder
from foveate.pipeline import encode, score
from foveate.relevance.confidence import DETECTED
from foveate.tiles.search import SHARE, look, survey

COLUMNS = (
    "asked for what is", "questions", "found", "right place", "parts encoded", "of the tiles", "most", "with survey",
)  # fmt: skip
NEAR = 16  # pixels around a thing that still count as on it


class Remembering:
    """An encoder that looks at the same pixels once: several questions of a scene cost as much as one."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._seen = encoder, dict[tuple[str, int | None], DenseFeatures]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        key = f"{rgb.shape}{hashlib.sha1(rgb.tobytes()).hexdigest()}", long_side
        if key not in self._seen:
            dense = self._encoder.encode_image(rgb, long_side=long_side)
            self._seen[key] = replace(dense, features=dense.features.astype(np.float16))
        dense = self._seen[key]
        return replace(dense, features=dense.features.astype(np.float32))

    def encode_text(self, texts: Sequence[str]) -> Floats:
        return self._encoder.encode_text(texts)


def measure(
    data: CocoData,
    encoder: EncoderName = None,
    half: Annotated[str, typer.Option(help="A or B: whose photographs the scenes are made of.")] = "B",
    scenes: Annotated[int, typer.Option(help="Scenes; each has --things questions of either kind.")] = 10,
    first: Annotated[int, typer.Option(help="Seed of the first scene.")] = 100,
    things: Annotated[int, typer.Option(help="Things in each scene.")] = THINGS,
    share: Annotated[float, typer.Option(help="Of the tiles, as for `look`.")] = SHARE,
    sure: Annotated[float, typer.Option(help="Confidence, as for `look`.")] = DETECTED,
) -> dict[str, Any]:
    """Are small things found in large images, at what cost, and does it say so when one is not there?"""
    material, network = read_material(data, half), load_encoder(encoder or "nano")
    questions: list[dict[str, Any]] = []
    pixels = []

    def known(name: str, rgb: np.ndarray) -> bool:
        texture = encode(np.ascontiguousarray(rgb), encoder=network, channels="fast")
        return bool(score(texture, name, encoder=network).confidence >= DETECTED)

    with counting("zoom", scenes) as progress:
        for done, seed in enumerate(range(first, first + scenes), 1):
            scene = make_scene(seed, material, things, known)
            pixels.append(scene.rgb.shape[0] * scene.rgb.shape[1])
            questions += [{"seed": seed, **each} for each in ask_all(scene, network, share, sure)]
            progress(done)
    return {
        "title": f"{len(pixels)} scenes of {min(pixels) / 1e6:.0f} to {max(pixels) / 1e6:.0f} million pixels",
        "columns": COLUMNS,
        "rows": [_row(there, [each for each in questions if each["there"] == there]) for there in (True, False)],
        "questions": questions,
        "encoder": network.name,
        "half": half,
        "share": share,
        "sure": sure,
    }


def ask_all(large: LargeScene, network: Encoder, share: float, sure: float) -> list[dict[str, Any]]:
    """Ask a scene for what is there and for what is not: a record of each question."""
    encoder = Remembering(network)
    scene = survey(large.rgb, encoder=encoder)
    tiles = scene.counts[0] * scene.counts[1]
    overview = (
        scene.overview.grid.count / next(iter(scene.windows.values())).grid.count
    )  # as many parts of a tile's size
    records = []
    for name, box in [*large.present.items(), *((name, None) for name in large.absent)]:
        start = time.perf_counter()
        found = look(scene, name, share=share, sure=sure)
        records.append(
            {
                "name": name,
                "there": box is not None,
                "box": box,
                "found": found.detected,
                "right": box is not None and found.detected and _on(found.peak, box),
                "confidence": round(found.relevance.confidence, 3),
                "peak": [round(v) for v in found.peak],
                "encoded": found.encoded,
                "tiles": tiles,
                "survey": round(len(scene.windows) + overview, 1),
                "seen": round(found.scene.seen, 3),
                "seconds": round(time.perf_counter() - start, 2),
            }
        )
    return records


def _on(peak: tuple[float, float], box: Box) -> bool:
    return box[0] - NEAR <= peak[0] <= box[2] + NEAR and box[1] - NEAR <= peak[1] <= box[3] + NEAR


def _row(there: bool, questions: list[dict[str, Any]]) -> dict[str, Any]:
    shares = np.array([each["encoded"] / each["tiles"] for each in questions] or [0.0])
    whole = np.array([(each["encoded"] + each["survey"]) / each["tiles"] for each in questions] or [0.0])
    found, right = (sum(each[what] for each in questions) for what in ("found", "right"))
    encoded = float(np.mean([each["encoded"] for each in questions] or [0]))
    what = "there" if there else "not there"
    cells = [what, len(questions), found, right if there else "-", f"{encoded:.0f}", f"{shares.mean():.1%}",
             f"{shares.max():.1%}", f"{whole.mean():.1%}"]  # fmt: skip
    return {
        "what": what,
        "cells": [str(cell) for cell in cells],
        "questions": len(questions),
        "found": found,
        "right": right,
        "share_mean": float(shares.mean()),
        "share_most": float(shares.max()),
        "with_survey": float(whole.mean()),
    }
