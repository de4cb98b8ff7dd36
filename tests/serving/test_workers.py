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
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from PIL import Image

from foveate.core.errors import ImageError, OptionError
from foveate.serving import metrics, workers
from foveate.serving.selection import make_texture
from foveate.serving.workers import TextureWorkers, count_workers
from foveate.texture.cache import TextureCache
from tests.vlm_models import photo

MOST = {"image": 2, "video": 1}
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

    monkeypatch.setattr(subprocess, "Popen", started)
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
        with start_renderer(folders("qwen2_5_vl"), max_model_len=1024, limit_mm_per_prompt=MOST) as started:
            yield started


def render(renderer: Any, *prompts: Any) -> list[Any]:
    async def every() -> list[Any]:
        return await asyncio.gather(*(renderer.render_cmpl_async([prompt]) for prompt in prompts))

    return [made for (made,) in asyncio.run(every())]


def prompt(
    budget: Any, *seeds: int, size: tuple[int, int] = (160, 160), uuids: Any = None, text: str = "", **keywords: Any
) -> dict[str, Any]:
    mark = "<|vision_start|><|image_pad|><|vision_end|>"
    return {
        "prompt": mark * len(seeds) + text + "where is the dog?",
        "multi_modal_data": {"image": [Image.fromarray(photo(*size, seed=seed)) for seed in seeds]},
        "mm_processor_kwargs": {"foveate_budget": budget, **keywords},
        **({} if uuids is None else {"multi_modal_uuids": {"image": uuids}}),
    }


def video_prompt(keywords: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Of four frames, which make two pictures."""
    frames = np.stack([photo(56, 84, seed=seed) for seed in range(70, 74)])
    told = {"fps": 2.0, "total_num_frames": 4, "frames_indices": [*range(4)], "duration": 2.0, **more}
    return {
        "prompt": "<|vision_start|><|video_pad|><|vision_end|>where is the dog?",
        "multi_modal_data": {"video": [(frames, {"video_backend": "opencv", "do_sample_frames": False, **told})]},
        "mm_processor_kwargs": keywords,
    }


def count_made() -> float:
    return float(metrics.TEXTURES.labels("made")._value.get())


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many textures were being made, each time that one was asked for; of vLLM's own thread 0."""
    making, most = list[int](), list[int]()
    make = TextureWorkers.make

    def watched(self: Any, *args: Any) -> Any:
        making.append(1)
        most.append(len(making))
        try:
            return make(self, *args)
        finally:
            making.pop()

    def made_here(*args: Any) -> Any:
        most.append(0)
        return make_texture(*args)

    monkeypatch.setattr(TextureWorkers, "make", watched)
    monkeypatch.setattr("foveate.serving.processor.make_texture", made_here)
    return most


def test_requests_have_their_textures_made_together_and_each_once(renderer: Any, asked: list[int]) -> None:
    first = render(renderer, *(prompt(9, n) for n in range(4)), prompt(9, 4, 5))
    assert len(asked) == 6
    assert max(asked) > 1
    again = render(renderer, *(prompt(9, n) for n in range(4)), prompt(9, 4, 5))
    assert len(asked) == 6
    for one, other in zip(first, again, strict=True):
        assert one["prompt_token_ids"] == other["prompt_token_ids"]
        assert one["mm_hashes"] == other["mm_hashes"]


def test_a_texture_that_is_not_kept_is_made_once_a_request(
    renderer: Any, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renderer.mm_processor, "textures", TextureCache(0))
    counts = [count_made() for _ in [None] if render(renderer, prompt(9, 40, 40), prompt(9, 41))]
    assert len(asked) == 2
    assert 0 not in asked
    assert count_made() == counts[0]
    render(renderer, prompt(9, 40))
    assert len(asked) == 3
    assert count_made() == counts[0] + 1


@pytest.mark.parametrize("size", [(112, 84), (160, 160)])  # of one that was not seen, and one that was
def test_no_texture_is_made_where_every_token_is_kept(renderer: Any, asked: list[int], size: tuple[int, int]) -> None:
    kept, stock = render(renderer, prompt(10_000, 20, size=size), prompt(None, 20, size=size))
    assert kept["prompt_token_ids"] == stock["prompt_token_ids"]
    assert asked == []


def test_no_texture_is_made_for_a_video_of_which_every_token_is_kept(renderer: Any, asked: list[int]) -> None:
    render(renderer, video_prompt({"foveate_budget": 10_000}))
    assert asked == []
    render(renderer, video_prompt({"foveate_budget": 9}))
    assert len(asked) == 2
    assert 0 not in asked


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (lambda: video_prompt({"foveate_budget": 9}, do_sample_frames=True), "do_sample_frames"),
        (lambda: video_prompt({"foveate_budget": 9, "do_sample_frames": True}), "picks frames"),
        (lambda: video_prompt({"foveate_budget": 9, "fps": [1]}), r"fps=\[1\]"),
        (lambda: video_prompt({"foveate_budget": 9, "foveate_encode": "kept"}), "for a video"),
        (lambda: prompt(1, 60, 61), "foveate_budget=1 for 2 images"),
        (lambda: prompt(9, 60, max_pixels=28 * 28 * 4), "FOVEATE_ONLY"),
        (lambda: prompt(9, 60, uuids=["a-foveate-b"]), "a uuid with"),
        (lambda: prompt(9, 60), "takes up 26 positions"),
        (lambda: prompt(9, 60, foveate_prepared={}), "foveate_prepared"),
    ],
)
def test_no_texture_is_made_for_a_request_that_is_refused(
    renderer: Any, asked: list[int], wrong: Callable[[], Any], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOVEATE_ONLY", str(int("FOVEATE_ONLY" in error)))
    if "positions" in error:
        monkeypatch.setattr("foveate.serving.processor.count_positions", lambda _: 25)
    with pytest.raises(ValueError, match=error):
        render(renderer, wrong())
    assert asked == []


def test_requests_with_no_texture_to_make_pass_by_those_that_wait(
    renderer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    render(renderer, prompt(9, 50))
    made, make = Event(), TextureWorkers.make

    def waits(self: Any, *args: Any) -> Any:
        assert made.wait(60)
        return make(self, *args)

    monkeypatch.setattr(TextureWorkers, "make", waits)
    monkeypatch.setattr(renderer, "_ahead", ThreadPoolExecutor(1))

    async def passing() -> None:
        new = [asyncio.ensure_future(renderer.render_cmpl_async([prompt(9, n)])) for n in (51, 52)]
        await asyncio.sleep(1)
        for request in (prompt(None, 53), prompt("lossless", 53), prompt(9, 50), prompt(10_000, 53)):
            await asyncio.wait_for(renderer.render_cmpl_async([request]), 30)
        assert not any(each.done() for each in new)
        made.set()
        await asyncio.gather(*new)

    asyncio.run(passing())


def test_a_request_whose_worker_is_lost_twice_gets_the_stock_answer(
    renderer: Any, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            renderer.mm_processor, "_workers", TextureWorkers(1, (sys.executable, "-c", "import sys; sys.exit(3)"))
        )
        lost, stock = render(renderer, prompt(9, 30), prompt(None, 30))
    assert lost["prompt_token_ids"] == stock["prompt_token_ids"]
    assert asked == [1, 1]  # both before its turn, and none in it
    (again,) = render(renderer, prompt(9, 30))
    assert len(again["prompt_token_ids"]) < len(stock["prompt_token_ids"])


def test_a_request_that_was_not_prepared_has_its_texture_made_in_its_turn(
    renderer: Any, asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renderer.mm_processor, "look", lambda _: None)
    made, stock = render(renderer, prompt(9, 31), prompt(None, 31))
    assert len(made["prompt_token_ids"]) < len(stock["prompt_token_ids"])
    assert asked == [0]


def test_a_model_without_images_and_another_vllm_get_the_stock_renderer(
    renderer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from vllm.renderers.base import BaseRenderer
    from vllm.renderers.hf import HfRenderer

    from foveate.serving import renderer as module

    def make(*, images: bool = True) -> None:
        module.make_renderer(SimpleNamespace(model_config=SimpleNamespace(supports_multimodal_inputs=images)), None)

    monkeypatch.setattr(module.logger, "propagate", True)
    made = list[type[Any]]()
    monkeypatch.setattr(HfRenderer, "__init__", lambda self, *_: made.append(type(self)))
    make()
    make(images=False)
    assert made == [module.PreparingRenderer, HfRenderer]
    with monkeypatch.context() as patch:
        patch.setattr(HfRenderer, "_process_tokens_async", lambda self, other: None)
        make()
    assert "_process_tokens_async takes other" in caplog.text

    def begin(self: Any) -> None:
        self.mm_processor = None

    monkeypatch.setattr(BaseRenderer, "__init__", begin)
    make()
    assert "HfRenderer has no _mm_executor" in caplog.text
    assert made[2:] == [HfRenderer, HfRenderer]


def test_what_is_wrong_with_a_request_is_said_once_it_has_its_turn(renderer: Any) -> None:
    with pytest.raises(ValueError, match="foveate_budget=0"):
        render(renderer, prompt(0, 1))
    with pytest.raises(ValueError, match="foveate_budget=1 for 2 images"):
        render(renderer, prompt(1, 1, 2))
