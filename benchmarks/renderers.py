"""New images a second through vLLM's renderer, without an engine, by the number of processes that make textures.

What a server does with a request before the model sees it: a tiny model's folder has all that it reads.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import psutil  # type: ignore[import-untyped]
from PIL import Image

from benchmarks.serving_clients import Photo, read_photos, shifted
from foveate.serving.workers import WORKERS

BUDGET = 64
COLUMNS = ("processes", "new images a second", "beside the first", "CPU a new image", "vLLM's of it", "their memory")


def measure(counts: Sequence[int], images: Path | None, requests: int, rounds: int) -> dict[str, Any]:
    """Rates by number of processes, in turn in each round; medians. One more round, the first, is not counted."""
    photos, starts = read_photos(images), itertools.count(1, requests)
    taken: dict[int, list[tuple[float, float, float]]] = {count: [] for count in counts}
    with ExitStack() as open_now:
        folder = write_tiny(Path(open_now.enter_context(tempfile.TemporaryDirectory())))
        started = {}
        for count in counts:
            with patch.dict(os.environ, {WORKERS: str(count)}):
                started[count] = open_now.enter_context(start_renderer(folder))
        for _ in range(rounds + 1):
            for count, renderer in started.items():
                copies = itertools.islice(shifted(photos, next(starts)), requests)
                taken[count].append(asyncio.run(_render(renderer, list(copies))))
        memory = {
            count: sum(each.memory_full_info().uss for each in _workers(renderer))
            for count, renderer in started.items()
        }
    middle = {count: [median(column) for column in zip(*taken[count][1:], strict=True)] for count in counts}
    rows = [
        {
            "processes": str(count) if count else "none: vLLM's own thread",
            "new images a second": f"{requests / middle[count][0]:.1f}",
            "beside the first": f"{middle[counts[0]][0] / middle[count][0]:.2f} x",
            "CPU a new image": f"{1e3 * middle[count][1] / requests:.0f} ms",
            "vLLM's of it": f"{1e3 * middle[count][2] / requests:.0f} ms",
            "their memory": f"{memory[count] / 1e6:.0f} MB",
        }
        for count in counts
    ]
    title = f"{requests} requests at once, each about a new photograph, {rounds} rounds, {os.cpu_count()} cores"
    return {"title": title, "columns": COLUMNS, "rows": rows}


async def _render(renderer: Any, photos: Sequence[Photo]) -> tuple[float, float, float]:
    """Seconds, seconds of cores, and those of this process, for requests that come at once."""
    prompt = "<|vision_start|><|image_pad|><|vision_end|>where is the dog?"
    asked = [
        {
            "prompt": prompt,
            "multi_modal_data": {"image": Image.fromarray(photo.rgb)},
            "mm_processor_kwargs": {"foveate_budget": BUDGET},
        }
        for photo in photos
    ]
    others, own, start = _cpu_of_workers(renderer), time.process_time(), time.perf_counter()
    await asyncio.gather(*(renderer.render_cmpl_async([each]) for each in asked))
    wall, own = time.perf_counter() - start, time.process_time() - own
    return wall, own + _cpu_of_workers(renderer) - others, own


def _cpu_of_workers(renderer: Any) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in _workers(renderer))


def _workers(renderer: Any) -> list[psutil.Process]:
    return [psutil.Process(each.pid) for each in renderer.mm_processor._workers._started]


def write_tiny(folder: Path) -> Path:
    """Configuration, tokenizer and image processor of a tiny Qwen2.5-VL: what a server reads. -> the folder."""
    from benchmarks.random_vlm import qwen2_5_vl, write_processor

    kind, config, processor = qwen2_5_vl(None, tiny=True)
    config.architectures = [kind.__name__]
    config.save_pretrained(folder)
    return write_processor(processor, folder)


@contextmanager
def start_renderer(folder: Path, **options: Any) -> Iterator[Any]:
    """The renderer of a model's folder, of which the weights are not read. options: of vLLM's `EngineArgs`."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.renderers import renderer_from_config

    arguments = EngineArgs(model=str(folder), dtype="float32", enforce_eager=True, **options)
    renderer = renderer_from_config(arguments.create_engine_config())
    try:
        yield renderer
    finally:
        renderer.shutdown()
