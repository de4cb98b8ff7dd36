"""Does decoding go on beside encoding, and both beside what follows? `encode([...])`, a store and a stream, traced.

    python -m benchmarks overlap --trace FOLDER

Photographs and a clip are made of the bundled ones. Each row is two stages of one run: how long both ran at the same
time, in different threads, as a share of the shorter one's time. FOLDER gets a file for each run for ui.perfetto.dev.
`--encoder clip --device cuda` shows a GPU's batches, "network" being uploads, the network and downloads.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image

from benchmarks.common import PHOTOS, EncoderName
from foveate.cli.profile import parts_of_encode
from foveate.core.checks import check_int
from foveate.core.files import make_folder, write_whole
from foveate.core.image import load_image
from foveate.core.trace import Call, Watched, chrome_trace, together, watching
from foveate.encoders.load import resolve_encoder
from foveate.pipeline import build_texture, encode
from foveate.store import Store, dataset, sources, work
from foveate.video import flow, stream
from foveate.video.decode import VideoClip

SHIFT = 8  # pixels between pictures, so that no two are the same
COLUMNS = ("run", "stage", "beside", "both, ms", "of the shorter")


def measure(
    images: Annotated[int, typer.Option(help="Photographs, and frames of the clip.")] = 24,
    workers: Annotated[int, typer.Option(help="Threads.")] = 2,
    encoder: EncoderName = None,
    device: Annotated[str | None, typer.Option(help="Where an encoder of the Hub works.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Folder for the traces.")] = None,
) -> dict[str, Any]:
    """Which stages of encode, index and stream run at the same time?"""
    check_int("--images", images, 4, 1000)
    check_int("--workers", workers, 1, 64)
    network = resolve_encoder(encoder or "nano", device)
    if trace is not None:
        make_folder(trace)
    rows = []
    with tempfile.TemporaryDirectory(prefix="foveate-bench-") as folder:
        files = write_photographs(Path(folder) / "photos", images)
        for run, (call, stages, pairs) in runs(network, files, Path(folder) / "a.fov", workers).items():
            with watching(stages) as spans:
                call()
            if trace is not None:
                write_whole(trace / f"{run}.json", json.dumps(chrome_trace(spans)).encode())
            rows += [row_of(run, spans, *pair) for pair in pairs]
    title = f"benchmarks overlap: {images} photographs, {workers} threads, {network.name}"
    return {"title": title, "columns": COLUMNS, "rows": rows}


def write_photographs(folder: Path, count: int) -> list[Path]:
    """Bundled photographs, each as JPEG moved by a few pixels more than the one before."""
    folder.mkdir()
    photos = [load_image(path).rgb for path in sorted(PHOTOS.glob("*.jpg"))]
    files = [folder / f"{i:04}.jpg" for i in range(count)]
    for i, file in enumerate(files):
        Image.fromarray(np.roll(photos[i % len(photos)], SHIFT * i, 1)).save(file, quality=90)
    return files


def runs(
    network: Any, files: Sequence[Path], store: Path, workers: int
) -> dict[str, tuple[Callable[[], Any], Watched, Sequence[tuple[str, str]]]]:
    """By name: what is called, the stages that are watched, and the pairs that should run at the same time."""
    every = parts_of_encode(network)
    stages = {name: every[name] for name in ("open", "encoder", "resize", "network")}
    rest: Watched = {"channels": [build_texture]}
    reads: Watched = {"read": [sources.read, work.EncodeBatch.decode], "record": [work.EncodeBatch.finish]}
    writes: Watched = {"commit": [dataset.insert, dataset.create]}
    clip: Watched = {"decode": [VideoClip.__next__], "motion": [flow.look]}
    return {
        "encode": (
            lambda: encode(files, encoder=network, threads=workers),
            {**stages, **rest},
            (("open", "encoder"), ("channels", "encoder"), ("encoder", "encoder"), ("network", "resize")),
        ),
        "index": (
            lambda: Store(store, encoder=network).add(files, workers=workers),
            {**stages, **reads, **writes},
            (("read", "encoder"), ("record", "encoder"), ("commit", "encoder")),
        ),
        "stream": (
            lambda: list(stream(files[0].parent, "the bus", encoder=network)),
            {**stages, **clip},
            (("decode", "encoder"), ("motion", "encoder")),
        ),
    }


def row_of(run: str, spans: Sequence[Call], stage: str, other: str) -> dict[str, Any]:
    """Seconds of two stages at the same time, and as a share of the shorter one's."""
    lengths = [sum(span.stop - span.start for span in spans if span.name == name) for name in (stage, other)]
    both = together(spans, stage, other)
    share = both / min(lengths) if min(lengths) else 0.0
    cells = [run, f"{stage}, {lengths[0] * 1e3:.0f} ms", f"{other}, {lengths[1] * 1e3:.0f} ms", f"{both * 1e3:.0f}",
             f"{share:.2f}"]  # fmt: skip
    return {"cells": cells, "run": run, "stages": [stage, other], "seconds": lengths, "together": round(both, 6)}
