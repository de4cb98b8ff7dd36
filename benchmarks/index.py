"""How many images a second `foveate index` does: by threads and by Ray's workers, and what the tower alone would do.

    python -m benchmarks index photos --workers 1,2 --engine local,ray

Each row is a process of its own, as the command is, with a new store in a temporary folder. Images are encoded by one
thread each, as `foveate index` does by default; the tower alone runs in one thread on the same images. The machines are
shared, so the ratio to the tower, within one run, says more than the rates.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from foveate.cli.evaluate.circumstances import circumstances
from foveate.cli.evaluate.search import chosen
from foveate.core.errors import OptionError
from foveate.store.engine import ENGINES

# A row. The start is loading, fitting the shared basis, starting Ray's workers, until the first image is done. The rate
# is the slope of a line through (time, images done): an engine gives images back in blocks, so two points would not do.
INDEX = """
import json, sys, time
import numpy as np
from foveate.store import Store
from foveate.cli.terminal import make_engine
engine, workers, store, listed = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
done, start = [], time.monotonic()
def note(progress):
    if progress.done:
        done.append((time.monotonic() - start, progress.done))
elsewhere = None if engine == "local" else make_engine(engine, workers, 0.0, None)[1]
added = Store(store).add(listed, workers=workers, engine=elsewhere, progress=note)
seconds, (times, counts) = time.monotonic() - start, np.array(done).T
rate = np.polyfit(times, counts, 1)[0] if np.ptp(times) > 0.1 else len(done) / seconds
said = {"start": times[0], "rate": rate, "seconds": seconds, "added": added.added, "bad": len(added.bad)}
print(json.dumps(said))
"""
TOWER = """
import json, sys, time
from foveate.encoders import load_encoder
from foveate.store.files import find
from foveate.store.work import BAD, read
from foveate.core.image import load_image
tower, took = load_encoder("nano"), []
for source in find(sys.argv[1]).sources:
    try:
        rgb = load_image(read(source).content).rgb
    except BAD:
        continue
    start = time.perf_counter()
    tower.encode_image(rgb)
    took.append(time.perf_counter() - start)
print(json.dumps({"milliseconds": 1e3 * sorted(took)[len(took) // 2], "images": len(took)}))
"""


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
    sources = chosen(list(paths), limit)
    with tempfile.TemporaryDirectory(prefix="foveate-bench-") as folder:
        listed = Path(folder) / "images.txt"
        listed.write_bytes(b"\n".join(os.fsencode(source.path) for source in sources))
        tower = _run(TOWER, str(listed))
        progress(1)
        rows = []
        for engine in engines:
            for count in workers:
                found = _run(INDEX, engine, str(count), str(Path(folder) / f"{engine}{count}.fov"), str(listed))
                rows.append(_row(engine, count, found, tower["milliseconds"]))
                progress(1 + len(rows))
    return {
        "title": f"benchmarks index: {len(sources)} files, nano; the tower alone {tower['milliseconds']:.1f} ms "
        "an image in one thread",
        "rows": rows,
        "tower": tower,
        "images": len(sources),
        **circumstances(),
    }


def _row(engine: str, workers: int, found: dict[str, Any], tower: float) -> dict[str, Any]:
    core = 1e3 * min(workers, os.cpu_count() or 1) / found["rate"]  # milliseconds of a core that an image takes
    cells = [engine, str(workers), f"{found['start']:.1f} s", f"{found['rate']:.1f}", f"{core:.1f} ms"]
    cells.append(f"{core / tower - 1:.0%}")
    return {"cells": cells, "engine": engine, "workers": workers, "core_ms": core, "above": core / tower - 1, **found}


def _run(script: str, *arguments: str) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise OptionError(
            f"a row failed ({' '.join(said[-3:])[:500]})", expected="images, and the engine installed", fix="see above"
        )
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))
