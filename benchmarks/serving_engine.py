"""CPU seconds to the first token about a new image, of vLLM's engine in this process: also where a machine is busy."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.serving import Asked
from benchmarks.serving_clients import QUESTIONS, Photo, read_photos, shifted

NEW = "new"
COLUMNS = ("budget", "visual tokens", "texture made: CPU s", "of the first", "texture there: CPU s", "of the first")
ALONE = {  # all in this process, whose time is taken
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "FOVEATE_TEXTURE_WORKERS": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
}  # fmt: skip


def measure(folder: Path, images: Path | None, budgets: Sequence[Asked], requests: int) -> dict[str, Any]:
    """Report: medians of so many requests for each budget, which take turns. Every image is new.

    folder: of a checkpoint; `new` writes a small Qwen2.5-VL with random weights for the time of the measurement.
    Where the texture is there, a request for one token, encoded alone, came before. Without a budget none is made.
    """
    for name, value in ALONE.items():
        os.environ.setdefault(name, value)
    if str(folder) != NEW:
        return _measure(folder, folder.name, images, budgets, requests)
    from benchmarks.random_vlm import write_small

    with tempfile.TemporaryDirectory() as made:
        return _measure(write_small(Path(made)), "a small Qwen2.5-VL with random weights", images, budgets, requests)


def _measure(folder: Path, name: str, images: Path | None, budgets: Sequence[Asked], requests: int) -> dict[str, Any]:
    from vllm import LLM, SamplingParams

    photos = read_photos(images)
    llm = LLM(str(folder), dtype="float32", max_model_len=4096, enforce_eager=True, block_size=32)
    one = SamplingParams(max_tokens=1, temperature=0)

    def ask(photo: Photo, number: int, asked: Asked) -> int:
        picture = {"type": "image_pil", "image_pil": Image.fromarray(photo.rgb)}
        content = [picture, {"type": "text", "text": QUESTIONS[number % len(QUESTIONS)]}]
        messages: Any = [{"role": "user", "content": content}]
        (said,) = llm.chat(messages, one, use_tqdm=False, mm_processor_kwargs=asked.keywords(photo.tokens))
        return len(said.prompt_token_ids)

    counted = [ask(photo, 0, Asked()) - ask(photo, 0, Asked(1)) + 1 for photo in photos]
    fresh = shifted([Photo(photo.rgb, count) for photo, count in zip(photos, counted, strict=True)])
    took = np.zeros((requests + 1, len(budgets), 2))  # the first warms up
    for number in range(requests + 1):
        for turn, asked in enumerate(budgets):
            for known in (0, 1):
                photo = next(fresh)
                if known:
                    ask(photo, number, Asked(1, alone=True))
                start = time.process_time()
                ask(photo, number, asked)
                took[number, turn, known] = time.process_time() - start
    medians = np.median(took[1:], 0)  # [budgets, made and there]
    first, rows = medians[0], []
    for asked, (made, there) in zip(budgets, medians.tolist(), strict=True):
        share = asked.budget if isinstance(asked.budget, float) else None
        kept = "" if share is None else f"{round(share * float(np.mean(counted)))} of {np.mean(counted):.0f}"
        cells = [
            str(asked),
            kept,
            f"{made:.3f}",
            f"{first[0] / made:.2f} x",
            f"{there:.3f}",
            f"{first[1] / there:.2f} x",
        ]
        rows.append({"cells": cells, "budget": asked.budget, "alone": asked.alone, "made": made, "there": there})
    title = f"{name}: vLLM in one process and thread, {requests} requests for each budget, one after the other"
    return {"title": title, "columns": COLUMNS, "rows": rows, "tokens": counted}
