"""Counts for vLLM's /metrics, by prometheus_client, which vLLM brings.

With one API process, /metrics shows that process alone. So the engine writes its counts into a folder, which an
environment variable names before it starts, and the API's process reads them there.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from prometheus_client import REGISTRY, Counter, Histogram
from prometheus_client.core import CounterMetricFamily

REQUESTS = Counter(
    "foveate_requests",
    "Requests with images, videos or sound, by what became of their budget: chosen; unsearched (the question names "
    "nothing that can be looked for: what stands out and what differs); lossless (what a neighbour has as well went); "
    "all (the budget holds every visual token); unreadable (no texture can be made of an image: the stock answer); "
    "stock (no budget)",
    ["outcome"],
)
KEPT = Counter("foveate_visual_tokens_kept", "Visual tokens of requests with a budget that the language model gets")
SAVED = Counter("foveate_visual_tokens_saved", "Visual tokens of requests with a budget that it does not get")
TEXTURES = Counter("foveate_textures", "Textures that were asked for", ["found"])
ENCODING = Histogram("foveate_encoding_seconds", "Seconds to make the texture of an image that is new")
SCORING = Histogram(
    "foveate_scoring_seconds",
    "Seconds to score a question and to choose, textures at hand",
    buckets=(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5),
)
FEATURES = ("foveate_features", "Full features of images that the engine was asked for", ["found"])
FOLDER = "FOVEATE_COUNTS"  # the environment variable that names it
FOUND = ("kept", "made")
_features = Counter(*FEATURES, registry=None)  # shown where vLLM adds processes: prometheus_client writes files itself
_counted = np.zeros(len(FOUND), np.int64)
for found in FOUND:
    TEXTURES.labels(found)


class EngineCounts:
    """What the engine's processes wrote, for the registry of an API's process."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        written = list[bytes]()
        with suppress(OSError):  # somebody may have cleaned the folder of temporary files
            written = [path.read_bytes() for path in Path(os.environ[FOLDER]).iterdir()] if FOLDER in os.environ else []
        whole = [np.frombuffer(each, np.int64) for each in written if len(each) == _counted.nbytes]
        counts = np.array(whole)  # [processes, kept and made]
        shown = CounterMetricFamily(FEATURES[0], FEATURES[1], labels=FEATURES[2])
        for found, count in zip(FOUND, counts.reshape(-1, len(FOUND)).sum(0).tolist(), strict=True):
            shown.add_metric([found], count)
        yield shown


REGISTRY.register(EngineCounts())


def open_folder() -> None:
    """Name a folder for the counts of the processes that will be started; it goes with this one."""
    if FOLDER not in os.environ:
        folder = os.environ[FOLDER] = tempfile.mkdtemp(prefix="foveate-counts-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


def count_features(kept: int, made: int) -> None:
    """Count in an engine's process. Of workers that share a model, the first counts for all."""
    from vllm.distributed import get_tensor_model_parallel_rank

    if get_tensor_model_parallel_rank() > 0:
        return
    _counted[:] += kept, made
    for found, more in zip(FOUND, (kept, made), strict=True):
        _features.labels(found).inc(more)
    if folder := os.environ.get(FOLDER):
        # Counts are not worth a request: the folder may be gone, or the disk full.
        with (
            suppress(OSError),
            open(os.open(Path(folder) / str(os.getpid()), os.O_WRONLY | os.O_CREAT, 0o600), "wb", 0) as file,
        ):
            file.write(_counted.tobytes())  # in one piece, over what was there
