"""How many images a second `foveate index` does: by threads and by Ray's workers, and what the encoder alone would do.

    python -m benchmarks index photos --workers 1,2 --engine local,ray

Each row is a process of its own, as the command is, with a new store in a temporary folder. Images are encoded by one
thread each, as `foveate index` does by default; the encoder alone runs in one thread on the same images. The machines
are shared, so the ratio to the encoder, within one run, says more than the rates.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import parse_numbers, print_json, show, time_once
from foveate.cli.evaluate.circumstances import circumstances
from foveate.cli.evaluate.search import choose_images
from foveate.cli.terminal import counting, make_engine
from foveate.core.errors import ImageError, OptionError
from foveate.core.image import load_image
from foveate.encoders.load import load_encoder
from foveate.store.engine import ENGINES
from foveate.store.sources import find_sources, read


def command(
    folders: Annotated[list[Path], typer.Argument(help="Folders of images, all the way down, or images.")],
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas between.")] = "1,2",
    engine: Annotated[str, typer.Option(help="local, ray, or local,ray.")] = "local",
    limit: Annotated[int | None, typer.Option(help="At most so many images, evenly from all.")] = 500,
) -> None:
    """Images a second of indexing, by engine and workers, beside the encoder alone."""
    counts, engines = parse_numbers("--workers", workers), [name.strip() for name in engine.split(",")]
    with counting("measuring", 1 + len(counts) * len(engines), "rows") as progress:
        report = measure(folders, engines, counts, limit, progress)
    show(report, ("engine", "workers", "until the first", "images a second", "of a core an image", "above the encoder"))
    print_json(**report)


def measure(
    paths: Sequence[Path],
    engines: Sequence[str],
    workers: Sequence[int],
    limit: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> dict[str, Any]:
    """-> report with a row for each engine and number of workers. Raises OptionError, ImageNotFoundError.

    `progress` gets how many rows are done.
    """
    unknown = [name for name in engines if name not in ENGINES]
    if unknown or not workers or min(workers) < 1:
        raise OptionError(
            f"engines {', '.join(engines)}; workers {', '.join(map(str, workers))}",
            expected=f"{' or '.join(ENGINES)}; whole numbers from 1",
            fix="--engine local,ray --workers 1,2",
        )
    sources = choose_images(list(paths), limit)
    with tempfile.TemporaryDirectory(prefix="foveate-bench-") as folder:
        listed = Path(folder) / "images.txt"
        listed.write_bytes(b"\n".join(os.fsencode(source.path) for source in sources))
        alone = _run(encode_images, str(listed))
        progress(1)
        rows = []
        for engine in engines:
            for count in workers:
                found = _run(index_images, engine, str(count), str(Path(folder) / f"{engine}{count}.fov"), str(listed))
                rows.append(_row(engine, count, found, alone["milliseconds"]))
                progress(1 + len(rows))
    return {
        "title": f"benchmarks index: {len(sources)} files, nano; the encoder alone {alone['milliseconds']:.1f} ms "
        "an image in one thread",
        "rows": rows,
        "encoder": alone,
        "images": len(sources),
        **circumstances(),
    }


def index_images(engine: str, workers: str, store: str, listed: str) -> dict[str, Any]:
    """A row, in this process. `start`: seconds of loading, fitting the shared basis, starting Ray's workers, until the
    first image is done. `rate`: slope of a line through (time, images done), as an engine gives images back in blocks.
    """
    from foveate.store import Store

    done, start = [], time.monotonic()

    def note(progress: Any) -> None:
        if progress.done:
            done.append((time.monotonic() - start, progress.done))

    elsewhere = None if engine == "local" else make_engine(engine, int(workers), 0.0, None)[1]
    added = Store(store).add(listed, workers=int(workers), engine=elsewhere, progress=note)
    seconds, (times, counts) = time.monotonic() - start, np.array(done).T
    rate = np.polyfit(times, counts, 1)[0] if np.ptp(times) > 0.1 else len(done) / seconds
    return {"start": times[0], "rate": rate, "seconds": seconds, "added": added.added, "bad": len(added.bad)}


def encode_images(listed: str) -> dict[str, Any]:
    """The encoder alone, in this process: the median time of an image."""
    encoder, took = load_encoder("nano"), []
    for source in find_sources(listed).files:
        try:
            rgb = load_image(read(source).content).rgb
        except ImageError:
            continue
        took.append(time_once(lambda rgb=rgb: encoder.encode_image(rgb)))  # type: ignore[misc]
    return {"milliseconds": 1e3 * sorted(took)[len(took) // 2], "images": len(took)}


def _row(engine: str, workers: int, found: dict[str, Any], alone: float) -> dict[str, Any]:
    core = 1e3 * min(workers, os.cpu_count() or 1) / found["rate"]  # milliseconds of a core that an image takes
    cells = [engine, str(workers), f"{found['start']:.1f} s", f"{found['rate']:.1f}", f"{core:.1f} ms"]
    cells.append(f"{core / alone - 1:.0%}")
    return {"cells": cells, "engine": engine, "workers": workers, "core_ms": core, "above": core / alone - 1, **found}


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
