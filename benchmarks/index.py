"""How many images a second `foveate index` does: by threads and by Ray's workers, and what the encoder alone would do.

    python -m benchmarks index photos --workers 1,2 --engine local,ray

Each row is a process of its own with a new store. Beside it, in turn, the encoder alone works on the same images,
decoded before, as many at a time. Two images at a time share a memory, so the ratio to the encoder of as many threads
is what indexing adds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import EncoderName, interval, parse_numbers
from foveate.cli.evaluate.search import choose_images
from foveate.cli.terminal import counting, make_engine
from foveate.core.checks import check_int
from foveate.core.errors import ImageError, OptionError
from foveate.core.image import load_image
from foveate.core.threads import map_in_order
from foveate.encoders.load import load_encoder
from foveate.store.engine import ENGINES
from foveate.store.sources import find_sources, read

SHOWN = ("engine", "workers", "until the first", "images a second", "of a core an image", "above the encoder")


def measure(
    folders: Annotated[list[Path], typer.Argument(help="Folders of images, all the way down, or images.tar in it.")],
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas between.")] = "1,2",
    engine: Annotated[str, typer.Option(help="local, ray, or local,ray.")] = "local",
    limit: Annotated[int | None, typer.Option(help="At most so many images, evenly from all.")] = 500,
    repeats: Annotated[int, typer.Option(help="Rounds; from five on there is an interval.")] = 1,
    encoder: EncoderName = None,
) -> dict[str, Any]:
    """Images a second of indexing, by engine and workers, beside the encoder alone: medians of rounds."""
    counts, engines = parse_numbers("--workers", workers), [name.strip() for name in engine.split(",")]
    unknown = [name for name in engines if name not in ENGINES]
    if unknown or min(counts) < 1:
        raise OptionError(
            f"engines {', '.join(engines)}; workers {workers}",
            expected=f"{' or '.join(ENGINES)}; whole numbers from 1",
            fix="--engine local,ray --workers 1,2",
        )
    check_int("--repeats", repeats)
    name = encoder or "nano"
    total = repeats * len(counts) * (1 + len(engines))
    with counting("measuring", total) as progress, tempfile.TemporaryDirectory(prefix="foveate-bench-") as folder:
        sources = choose_images(_taken_out(folders, Path(folder) / "images"), limit)
        listed = Path(folder) / "images.txt"
        listed.write_bytes(b"\n".join(os.fsencode(source.path) for source in sources))
        alone: dict[int, list[dict[str, Any]]] = {}
        found: dict[tuple[str, int], list[dict[str, Any]]] = {}
        done = 0
        for turn in range(repeats):
            for count in counts:
                alone.setdefault(count, []).append(_run(encode_images, name, str(count), str(listed)))
                for way in engines:
                    store = str(Path(folder) / f"{way}{count}.{turn}.fov")
                    row = _run(index_images, way, name, str(count), store, str(listed))
                    found.setdefault((way, count), []).append(row)
                    progress(done := done + 1)
                progress(done := done + 1)
    rows = [_row(way, count, each, alone[count]) for (way, count), each in found.items()]
    least = {count: float(np.median([one["milliseconds"] for one in each])) for count, each in alone.items()}
    spoken = ", ".join(f"{ms:.1f} ms in {count}" for count, ms in least.items())
    return {
        "title": f"benchmarks index: {len(sources)} files, {name}, rounds: {repeats}; the encoder alone, of a core "
        f"an image, by threads: {spoken}",
        "columns": SHOWN,
        "rows": rows,
        "encoder": {"milliseconds": least[counts[0]], "images": alone[counts[0]][0]["images"], "by_threads": least},
        "images": len(sources),
    }


def _taken_out(paths: Sequence[Path], folder: Path) -> list[Path]:
    """The folders, or what is in their images.tar."""
    found = []
    for number, path in enumerate(paths):
        tar = path / "images.tar"
        if tar.is_file():
            with tarfile.open(tar) as archive:
                archive.extractall(folder / str(number), filter="data")
        found.append(folder / str(number) if tar.is_file() else path)
    return found


def index_images(engine: str, encoder: str, workers: str, store: str, listed: str) -> dict[str, Any]:
    """A row, in this process. `start`: seconds of loading, fitting the shared basis, starting Ray's workers, until the
    first image is done. `rate`: slope of a line through (time, images done), as an engine gives images back in blocks.
    """
    from foveate.store import Store

    done, start = [], time.monotonic()

    def note(progress: Any) -> None:
        if progress.done:
            done.append((time.monotonic() - start, progress.done))

    elsewhere = None if engine == "local" else make_engine(engine, int(workers), 0.0, None)[1]
    added = Store(store, encoder=encoder).add(listed, workers=int(workers), engine=elsewhere, progress=note)
    seconds, (times, counts) = time.monotonic() - start, np.array(done).T
    rate = np.polyfit(times, counts, 1)[0] if np.ptp(times) > 0.1 else len(done) / seconds
    return {"start": times[0], "rate": rate, "seconds": seconds, "added": added.added, "bad": len(added.bad)}


def encode_images(name: str, workers: str, listed: str) -> dict[str, Any]:
    """The encoder alone, in this process, so many images at a time: milliseconds of a core that an image takes."""
    encoder, images = load_encoder(name), []
    for source in find_sources(listed).files:
        try:
            images.append(load_image(read(source)[0]).rgb)
        except ImageError:
            continue
    encoder.encode_image(images[0])
    start, threads = time.perf_counter(), int(workers)
    for _ in map_in_order(encoder.encode_image, images, threads):
        pass
    seconds = time.perf_counter() - start
    return {"milliseconds": 1e3 * seconds * _cores(threads) / len(images), "images": len(images)}


def _cores(workers: int) -> int:
    return min(workers, os.cpu_count() or 1)


def _row(engine: str, workers: int, found: list[dict[str, Any]], alone: list[dict[str, Any]]) -> dict[str, Any]:
    """Rounds of indexing beside rounds of the encoder alone: medians, and the interval of their ratio."""
    core = np.array(
        [1e3 * _cores(workers) / each["rate"] for each in found]
    )  # milliseconds of a core that an image takes
    bare = np.array([each["milliseconds"] for each in alone])
    start, rate = (float(np.median([each[key] for each in found])) for key in ("start", "rate"))
    above, (low, high) = float(np.median(core) / np.median(bare)) - 1, interval(core, bare)
    spread = f" ({low - 1:.0%} to {high - 1:.0%})" if np.isfinite(high) else ""
    cells = [engine, str(workers), f"{start:.1f} s", f"{rate:.1f}", f"{np.median(core):.1f} ms", f"{above:.0%}{spread}"]
    row = {"what": f"indexing, {engine}, {workers} workers", "median": round(1 + above, 4), "unit": "x the encoder"}
    row |= {"interval": [round(low, 4), round(high, 4)]} if spread else {}
    samples = [round(float(one), 4) for one in core / bare]
    return {
        "cells": cells, "engine": engine, "workers": workers, "core_ms": float(np.median(core)), "above": above,
        **row, "samples": samples, **found[-1], "start": start, "rate": rate,
    }  # fmt: skip


def _run(function: Callable[..., dict[str, Any]], *arguments: str) -> dict[str, Any]:
    """Call a function of this module in a process of its own, which encodes each image in one thread."""
    call = f"import json, sys; from benchmarks.index import *; print(json.dumps({function.__name__}(*sys.argv[1:])))"
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", call, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = " ".join(done.stderr.strip().splitlines()[-3:])[:500]
        raise OptionError(f"a row failed ({last})", expected="images, and the engine installed", fix="see above")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))
