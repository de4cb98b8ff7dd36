"""Textures beside the API's process: several requests at once, workers that are lost, and their end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from PIL import Image

from foveate.core.errors import ImageError, OptionError
from foveate.serving import workers
from foveate.serving.selection import make_texture
from foveate.serving.workers import TextureWorkers, count_workers
from tests.vlm_models import photo

LOST = "with which a process was lost"


@pytest.fixture
def two() -> Iterator[TextureWorkers]:
    made = TextureWorkers(2)
    yield made
    made.close()


def children() -> set[int]:
    return {each.pid for each in psutil.Process().children()}


def test_a_worker_makes_what_this_process_would(two: TextureWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for preset in (None, "minimum"):
        (found, seconds), (wanted, _) = two.make(photo(), preset), make_texture(photo(), preset)
        assert found.made_by == wanted.made_by
        assert found.preset == wanted.preset
        np.testing.assert_allclose(found.embedding, wanted.embedding, atol=2e-3)  # one thread or several
        assert 0 < seconds < 60


def test_workers_are_shared_by_any_number_of_threads(two: TextureWorkers) -> None:
    before = children()
    with ThreadPoolExecutor(6) as threads:
        made = list(threads.map(lambda n: two.make(photo(seed=n), None)[0], range(6)))
    assert len(children() - before) == 2
    for number, texture in enumerate(made):
        assert np.array_equal(texture.pixel, photo(seed=number))
    two.close()
    assert children() == before
    with pytest.raises(ImageError, match=LOST):
        two.make(photo(), None)


def test_an_image_that_cannot_be_encoded_is_told_and_the_worker_goes_on(two: TextureWorkers) -> None:
    with pytest.raises(ImageError) as caught:
        two.make(np.zeros((0, 9, 3), np.uint8), None)
    assert LOST not in str(caught.value)
    before = children()
    assert two.make(photo(), None)[0].preset is None
    assert children() == before
    for pid in before:  # by a person, or for memory, while it has nothing to do
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.5)
    assert two.make(photo(), None)[0].preset is None


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit(3)",
        "print('no answer', flush=True); import time; time.sleep(99)",
        "while 1: 0",
        "import os; os.write(1, b'cno.such.module\\nname\\n.')",
        "import os, pickle; os.write(1, pickle.dumps(None))",
    ],
)
def test_a_worker_that_dies_or_hangs_is_an_error_and_a_line_in_the_log(
    program: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 1.5)
    monkeypatch.setattr(workers.logger, "propagate", True)
    lost, before = TextureWorkers(1, (sys.executable, "-c", program)), children()
    for _ in range(2):  # its place is taken by another
        with pytest.raises(ImageError, match=LOST):
            lost.make(photo(), None)
    assert children() == before
    assert sum("a process that makes textures was lost" in each.message for each in caplog.records) == 2


@pytest.mark.parametrize("hangs", [False, True])
def test_a_worker_does_not_outlive_who_started_it(hangs: bool) -> None:
    program = f"""
import os, sys, threading, time, numpy as np
from foveate.serving.workers import PROGRAM, TextureWorkers
hang = "import time, foveate.serving.workers as w; w.make_texture = lambda *_: time.sleep(99)\\n"
workers = TextureWorkers(1, (sys.executable, "-P", "-c", {hangs} * hang + PROGRAM))
asked = threading.Thread(target=workers.make, args=(np.zeros((64, 64, 3), np.uint8), None), daemon=True)
asked.start()
asked.join(8 if {hangs} else 60)
print(next(iter(workers._started)).pid, asked.is_alive(), flush=True)
os.kill(os.getpid(), 9)
"""
    out = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False).stdout
    pid, waited = out.split()
    assert waited == str(hangs)
    deadline = time.monotonic() + 30
    while psutil.pid_exists(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not psutil.pid_exists(int(pid))


def test_a_worker_runs_nothing_of_the_folder_that_it_is_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two: TextureWorkers
) -> None:
    (tmp_path / "random.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    assert two.make(photo(), None)[0].preset is None


def test_a_worker_that_is_started_while_the_others_are_ended_ends_too(
    two: TextureWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, before = subprocess.Popen, children()

    def started(*args: Any, **keywords: Any) -> Any:
        worker = start(*args, **keywords)
        two.close()  # in another thread, say: it does not know of this one yet
        return worker

    monkeypatch.setattr(workers.subprocess, "Popen", started)
    with pytest.raises(ImageError, match=LOST):
        two.make(photo(), None)
    assert children() == before


def test_how_many() -> None:
    assert count_workers({"FOVEATE_TEXTURE_WORKERS": "3"}) == 3
    assert count_workers({"FOVEATE_TEXTURE_WORKERS": "0"}) == 0
    assert 1 <= count_workers({}) <= max(1, (os.cpu_count() or 1) // 2)
    with pytest.raises(OptionError, match="FOVEATE_TEXTURE_WORKERS='many'"):
        count_workers({"FOVEATE_TEXTURE_WORKERS": "many"})


# --- in vLLM's renderer, without an engine ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def renderer(folders: Callable[[str], Path]) -> Iterator[Any]:
    from benchmarks.renderers import start_renderer

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOVEATE_TEXTURE_WORKERS", "2")
        with start_renderer(folders("qwen2_5_vl"), max_model_len=1024) as started:
            yield started


def render(renderer: Any, *prompts: Any) -> list[Any]:
    async def every() -> list[Any]:
        return await asyncio.gather(*(renderer.render_cmpl_async([prompt]) for prompt in prompts))

    return [made for (made,) in asyncio.run(every())]


def prompt(budget: Any, *seeds: int) -> dict[str, Any]:
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    return {
        "prompt": mark * len(seeds) + "where is the dog?",
        "multi_modal_data": {"image": [Image.fromarray(photo(seed=seed)) for seed in seeds]},
        "mm_processor_kwargs": {"foveate_budget": budget},
    }


def test_requests_have_their_textures_made_together_and_each_once(
    renderer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    making, most = list[int](), list[int]()
    make = TextureWorkers.make

    def watched(self: Any, *args: Any) -> Any:
        making.append(1)
        most.append(len(making))
        try:
            return make(self, *args)
        finally:
            making.pop()

    monkeypatch.setattr(TextureWorkers, "make", watched)
    first = render(renderer, *(prompt(9, n) for n in range(4)), prompt(9, 4, 5))
    assert len(most) == 6
    assert max(most) > 1
    again = render(renderer, *(prompt(9, n) for n in range(4)), prompt(9, 4, 5))
    assert len(most) == 6
    for one, other in zip(first, again, strict=True):
        assert one["prompt_token_ids"] == other["prompt_token_ids"]
        assert one["mm_hashes"] == other["mm_hashes"]


def test_no_texture_is_made_where_every_token_is_kept(renderer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("a texture that nobody needs")

    monkeypatch.setattr(TextureWorkers, "make", never)
    kept, stock = render(renderer, prompt(10_000, 20), prompt(None, 20))
    assert kept["prompt_token_ids"] == stock["prompt_token_ids"]


def test_a_request_whose_worker_is_lost_gets_the_stock_answer(renderer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    processor = renderer.mm_processor
    dying = TextureWorkers(1, (sys.executable, "-c", "import sys; sys.exit(3)"))
    monkeypatch.setattr(processor, "_workers", dying)
    lost, stock = render(renderer, prompt(9, 30), prompt(None, 30))
    assert lost["prompt_token_ids"] == stock["prompt_token_ids"]
    monkeypatch.undo()
    (again,) = render(renderer, prompt(9, 30))
    assert len(again["prompt_token_ids"]) < len(stock["prompt_token_ids"])


def test_what_is_wrong_with_a_request_is_said_once_it_has_its_turn(renderer: Any) -> None:
    with pytest.raises(ValueError, match="foveate_budget=0"):
        render(renderer, prompt(0, 1))
    with pytest.raises(ValueError, match="foveate_budget=1 for 2 images"):
        render(renderer, prompt(1, 1, 2))
