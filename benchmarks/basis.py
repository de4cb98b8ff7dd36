"""How long fitting a basis takes once the features are there, and how much memory: none of it grows with their number.

    python -m benchmarks basis --features 1000000 --width 512

Features are drawn at random, a few thousand at a time, as a stream of images would bring them; drawing is not counted.
It runs in a process of its own, whose peak memory is Linux's word.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Annotated, Any

import typer

from foveate.core.errors import OptionError

FIT = """
import json, sys, time
import numpy as np
from foveate.texture.basis import principal
from foveate.texture.basis import Moments
features, width, chunk = int(sys.argv[1]), int(sys.argv[2]), 8192
rng, moments, summing = np.random.default_rng(0), Moments.nothing(width), 0.0
for start in range(0, features, chunk):
    x = rng.standard_normal((min(chunk, features - start), width), np.float32)
    begun = time.perf_counter()
    moments = moments.with_features(x)
    summing += time.perf_counter() - begun
begun = time.perf_counter()
principal(moments.covariance, None)
directions = time.perf_counter() - begun
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
print(json.dumps({"count": moments.count, "summing": summing, "directions": directions, "peak": peak}))
"""


def measure(
    features: Annotated[int, typer.Option(help="How many.")] = 1_000_000,
    width: Annotated[int, typer.Option(help="Numbers of each.")] = 512,
) -> dict[str, Any]:
    """Seconds and memory of fitting a basis, once the features are there."""
    if features < 1 or not 1 <= width <= 8192:
        raise OptionError(f"--features {features}, --width {width}", expected="1 or more, 1 to 8192", fix="leave out")
    command = [sys.executable, "-c", FIT, str(features), str(width)]
    found = dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    seconds = found["summing"] + found["directions"]
    rows = [
        {"what": "sums of products, float64", "measured": f"{found['summing']:.1f} s", "target": ""},
        {"what": "directions of them", "measured": f"{found['directions']:.2f} s", "target": ""},
        {"what": "both", "measured": f"{seconds:.1f} s", "target": "<= 60 s, of 1,000,000 x 512"},
        {"what": "peak memory", "measured": f"{found['peak'] / 1e6:.0f} MB", "target": "<= 500 MB"},
    ]
    title = f"benchmarks basis: {features:,} features of {width} numbers"
    return {"title": title, "rows": rows, "seconds": seconds, **found}
