"""vLLM's engine in a process whose CPU time is taken, so also where a machine is busy: seconds to the first token about
a new image; and what a request without a budget costs beside a vLLM that has no foveate.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import psutil  # type: ignore[import-untyped]
from PIL import Image

from benchmarks.serving import Asked
from benchmarks.serving_clients import QUESTIONS, Photo, read_photos, shifted
from foveate.core.errors import OptionError

NEW = "new"
COLUMNS = ("budget", "visual tokens", "texture made: CPU s", "of the first", "texture there: CPU s", "of the first")
ALONE = {  # all in this process, whose time is taken
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "FOVEATE_TEXTURE_WORKERS": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
}  # fmt: skip


def measure(folder: Path, images: Path | None, budgets: Sequence[Asked], requests: int) -> dict[str, Any]:
    """Report: medians of so many requests for each budget, which take turns. Every image is new.

    folder: as of `_checkpoint`. Where the texture is there, a request for one token, encoded alone, came before.
    Without a budget none is made.
    """
    with _checkpoint(folder) as (path, name):
        return _measure(path, name, images, budgets, requests)


@contextmanager
def _checkpoint(folder: Path) -> Iterator[tuple[Path, str]]:
    """A checkpoint's folder and its name, for engines of one process. `new` writes a small Qwen2.5-VL with random
    weights for the time of the measurement.
    """
    with tempfile.TemporaryDirectory() as made, patch.dict(os.environ, {**ALONE, **os.environ}):
        if str(folder) != NEW:
            yield folder, folder.name
            return
        from benchmarks.random_vlm import write_small

        yield write_small(Path(made)), "a small Qwen2.5-VL with random weights"


def _start(folder: Path) -> Any:
    from vllm import LLM

    return LLM(str(folder), dtype="float32", max_model_len=4096, enforce_eager=True, block_size=32)


def _message(photo: Photo, number: int) -> Any:
    picture = {"type": "image_pil", "image_pil": Image.fromarray(photo.rgb)}
    return [{"role": "user", "content": [picture, {"type": "text", "text": QUESTIONS[number % len(QUESTIONS)]}]}]


def _measure(folder: Path, name: str, images: Path | None, budgets: Sequence[Asked], requests: int) -> dict[str, Any]:
    from vllm import SamplingParams

    photos, llm = read_photos(images), _start(folder)
    one = SamplingParams(max_tokens=1, temperature=0)

    def ask(photo: Photo, number: int, asked: Asked) -> int:
        how = asked.keywords(photo.tokens)
        (said,) = llm.chat(_message(photo, number), one, use_tqdm=False, mm_processor_kwargs=how)
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


# --- requests without a budget, beside a vLLM that has no foveate -----------------------------------------------------

OURS = "foveate.serving"


def beside_stock(folder: Path, images: Path | None, requests: int, rounds: int, max_tokens: int) -> dict[str, Any]:
    """Report: the same requests without a budget, in an engine with foveate and in one without, by turns.

    Each of the rounds has other images, and so many requests at a time. Ratios are of a round, with foveate to without.
    Raises OptionError where vLLM does not find foveate, or an answer is not the same bit for bit.
    """
    took, same = list[Any](), 0
    with _checkpoint(folder) as (path, name), _both(path, images, requests, max_tokens) as pipes:
        classes = [pipe.recv() for pipe in pipes]
        if [each.startswith(OURS) for each in classes] != [True, False]:
            raise OptionError(
                f"--stock in an environment whose vLLM runs {' and '.join(classes)}",
                expected="a class of foveate's, and one of vLLM's",
                fix="pip install foveate there, or name a checkpoint of a family that is served",
            )
        for number in range(rounds + 1):  # the first warms up
            turn, said = {}, {}
            for which in (0, 1) if number % 2 else (1, 0):
                pipes[which].send(1 + number * requests)
                turn[which], said[which] = pipes[which].recv()
            if said[0] != said[1]:
                raise OptionError(
                    "answers that differ", expected="the same, bit for bit", fix="this is a fault of ours"
                )
            took.append((turn[0], turn[1]))
            same += len(said[0])
    seconds = np.array(took[1:]) / requests  # [rounds, with and without, CPU and wall]
    rows = []
    for what, pairs in zip(("CPU", "wall"), np.moveaxis(seconds, -1, 0), strict=True):
        low, middle, high = np.percentile(pairs[:, 0] / pairs[:, 1], (25, 50, 75)).tolist()
        ours, stock = np.median(pairs, 0).tolist()
        cells = [what, f"{stock:.3f}", f"{ours:.3f}", f"{middle:.3f}", f"{low:.3f} to {high:.3f}"]
        rows.append({"cells": cells, "time": what, "ratio": middle, "quartiles": [low, high]})
    title = f"{name}: {requests} requests at a time without a budget, {rounds} rounds; {same} answers are the same"
    return {"title": title, "columns": ("s a request", "without foveate", "with", "ratio", "quartiles"), "rows": rows}


@contextmanager
def _both(*given: Any) -> Iterator[list[Any]]:
    """Pipes to `_answer` of these, in a process with foveate and in one without."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for plugins in ("foveate", ""):
        here, there = context.Pipe()
        processes.append(context.Process(target=_answer, args=(there, *given), daemon=True))
        with patch.dict(os.environ, VLLM_PLUGINS=plugins):
            processes[-1].start()
        there.close()  # so that the end of the process is the end of the pipe
        pipes.append(here)
    try:
        yield pipes
    finally:
        for pipe, process in zip(pipes, processes, strict=True):
            with suppress(OSError):  # of a process that is lost
                pipe.send(None)
            process.join()


def _answer(pipe: Any, folder: Path, images: Path | None, requests: int, max_tokens: int) -> None:
    """In a process of its own: the module of the model's class; then, for each start of shifted images, (CPU and wall
    seconds, answers), until None comes.
    """
    from vllm import SamplingParams

    photos, llm, process = read_photos(images), _start(folder), psutil.Process()
    how = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True, logprobs=5)
    pipe.send(llm.apply_model(lambda model: type(model).__module__)[0])

    def spent() -> float:  # a process's own is exact
        others = process.children(recursive=True)
        return time.process_time() + sum(sum(one.cpu_times()[:2]) for one in others)

    while (start := pipe.recv()) is not None:
        asked = [_message(photo, n) for n, photo in enumerate(itertools.islice(shifted(photos, start), requests))]
        cpu, wall = spent(), time.perf_counter()
        outputs = llm.chat(asked, how, use_tqdm=False)
        taken = spent() - cpu, time.perf_counter() - wall
        steps = [
            [{token: each.logprob for token, each in step.items()} for step in out.outputs[0].logprobs]
            for out in outputs
        ]
        pipe.send((taken, [(list(out.outputs[0].token_ids), step) for out, step in zip(outputs, steps, strict=True)]))
