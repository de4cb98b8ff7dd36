"""`python -m benchmarks serving`: its load meets a stub of a server, its arithmetic the sizes of the real classes."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import foveate
from benchmarks import serving_engine
from benchmarks.__main__ import app
from benchmarks.serving import SHARES, TEXT, TOWER, Asked, cost_of, parse_budgets, parse_device
from foveate.core.errors import OptionError
from tests.conftest import PHOTOS

TEXT_TOKENS, SIDE = 11, 28
PAGE = (Path(__file__).parents[1] / "docs" / "serving.md").read_text("utf-8")


@dataclass
class Stub:
    """A server that answers with words of no meaning. knows: foveate_budget. fails: every so many-th request."""

    knows: bool = True
    fails: int = 0
    breaks: bool = False
    bodies: list[dict[str, Any]] = field(default_factory=list)
    at_once: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def tokens(self, body: dict[str, Any]) -> int:
        """Visual tokens that the language model would get."""
        url = body["messages"][0]["content"][0]["image_url"]["url"]
        width, height = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).size
        there = (height // SIDE) * (width // SIDE)
        budget = body.get("mm_processor_kwargs", {}).get("foveate_budget")
        return there if not self.knows or budget is None else there // 4 if budget == "auto" else min(budget, there)

    def answer(self, body: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
        yield {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
        time.sleep(0.002)
        for _ in range(body["max_tokens"]):
            yield {"choices": [{"delta": {"content": "la "}}]}
        if self.breaks:
            yield {"error": {"message": "the engine is gone"}}
            return
        yield {"choices": [{"delta": {}, "finish_reason": "length"}]}
        prompt = TEXT_TOKENS + self.tokens(body)
        yield {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": body["max_tokens"]}}


@contextmanager
def serving(stub: Stub) -> Iterator[str]:
    """The address of a stub that is served."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, json.dumps({"data": [{"id": "la-la"}]}).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with stub.lock:
                stub.bodies.append(body)
                number = len(stub.bodies)
                stub.at_once += 1
                stub.most = max(stub.most, stub.at_once)
            if stub.fails and number % stub.fails == 0:
                self.reply(500, b"no luck")
            else:
                events = [f"data: {json.dumps(event)}\n\n" for event in stub.answer(body, number)]
                self.reply(200, "".join([*events, "data: [DONE]\n\n"]).encode())
            with stub.lock:
                stub.at_once -= 1

        def reply(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        request_queue_size = 64
        daemon_threads = True

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def run(stub: Stub, *words: str) -> Any:
    with serving(stub) as url:
        return CliRunner().invoke(app, ["serving", "--url", url, "--requests", "6", "--rounds", "2", *words])


def report_of(result: Any) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_each_budget_has_its_row_and_its_turns() -> None:
    stub = Stub()
    report = report_of(run(stub, "--budgets", "none,0.25,64,auto", "--concurrency", "3", "--max-tokens", "2"))
    rows = {row["budget"]: row for row in report["rows"]}
    there = [np.prod(np.array(foveate.load_image(file).rgb.shape[:2]) // SIDE) for file in sorted(PHOTOS.glob("*.jpg"))]
    asked = [json.dumps(body["mm_processor_kwargs"]["foveate_budget"]) for body in stub.bodies[2 * len(there) :]]
    for budget, prompt in ((None, np.mean(there)), (0.25, np.mean(there) / 4), (64, 64), ("auto", np.mean(there) / 4)):
        row = rows[budget]
        assert row["prompt"] - TEXT_TOKENS == pytest.approx(prompt, abs=1)
        assert (row["answered"], row["failed"], row["tokens"], len(row["walls"])) == (12, 0, 2, 2)
        assert 0 < row["first_ms"][0] <= row["first_ms"][1]
        assert row["first_ms"][0] <= row["whole_ms"][0] <= row["whole_ms"][1]
        assert row["rate"] == pytest.approx(np.median([6 / wall for wall in row["walls"]]))
    per_turn = [3] * 4 + [6] * 8
    turns = [sorted(set(asked[sum(per_turn[:i]) : sum(per_turn[: i + 1])])) for i in range(len(per_turn))]
    assert [turn for turn in turns if "null" in turn] == [["null"]] * 3  # all budgets take turns
    assert turns[2] == turns[6] == turns[10] == ["64"]
    assert stub.most <= 3


def test_no_image_is_sent_twice_unless_it_is_asked_for() -> None:
    for per_image, repeats in ((1, 1), (3, 3)):
        stub = Stub()
        report_of(run(stub, "--per-image", str(per_image), "--concurrency", "3"))
        sent = [body["messages"][0]["content"] for body in stub.bodies]
        images = [content[0]["image_url"]["url"] for content in sent]
        assert {images.count(image) for image in images} == {repeats}
        assert len({(content[0]["image_url"]["url"], content[1]["text"]) for content in sent}) == len(sent)


def test_a_second_run_sends_other_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's caches outlive a run."""
    starts = iter([70_000, 5])
    monkeypatch.setattr("secrets.randbelow", lambda _: next(starts))
    stub = Stub()
    for _ in range(2):
        report_of(run(stub, "--concurrency", "3"))
    images = [body["messages"][0]["content"][0]["image_url"]["url"] for body in stub.bodies]
    assert len(set(images)) == len(images) == 30


def test_without_a_budget_nothing_of_ours_is_sent() -> None:
    stub = Stub(knows=False)
    report = report_of(run(stub, "--no-fixed", "--concurrency", "2"))
    assert {"mm_processor_kwargs", "ignore_eos"} & {name for body in stub.bodies for name in body} == set()
    assert {body["model"] for body in stub.bodies} == {"la-la"} == {report["model"]}
    assert all(body["stream"] for body in stub.bodies)


def test_a_server_that_ignores_budgets_is_no_measurement() -> None:
    result = run(Stub(knows=False), "--budgets", "none,0.25")
    assert isinstance(result.exception, OptionError)
    assert "with a budget of 1" in str(result.exception)


def test_failures_are_counted_and_told() -> None:
    (row,) = report_of(run(Stub(fails=4), "--concurrency", "2"))["rows"]
    assert (row["answered"], row["failed"]) == (9, 3)
    assert row["messages"] == ["500: no luck"]


@pytest.mark.parametrize("stub", [Stub(fails=1), Stub(breaks=True)])
def test_a_server_without_an_answer_is_an_error(stub: Stub) -> None:
    result = run(stub)
    assert isinstance(result.exception, OptionError)
    assert ("no luck" if stub.fails else "the engine is gone") in str(result.exception)


# --- arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.vlm
def test_sizes_are_those_of_the_classes() -> None:
    """Parameters of the real classes, which take no memory on `meta`, in the configuration of `vlm --random`."""
    import torch
    from transformers import Qwen2_5_VLConfig
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

    from benchmarks.random_vlm import QWEN_TEXT, QWEN_TOWER
    from benchmarks.vlm import sizes_of

    config = Qwen2_5_VLConfig(text_config=QWEN_TEXT, vision_config=QWEN_TOWER)
    assert sizes_of(config) == TEXT
    with torch.device("meta"):
        tower = Qwen2_5_VisionTransformerPretrainedModel(config.vision_config)
    products = [m.weight.numel() for m in tower.modules() if isinstance(m, torch.nn.Linear | torch.nn.Conv3d)]
    assert sum(products) == TOWER.parameters
    assert len(config.vision_config.fullatt_block_indexes) == TOWER.whole


def test_flops_of_a_tower_are_those_of_its_products_one_by_one() -> None:
    """A twin that counts each product of a layer and each pair in attention."""
    for tokens in (4, 16, 100):
        patches = 4 * tokens
        one = 4 * 1280**2 + 3 * 1280 * 3420
        total = 2 * patches * (32 * one + 1176 * 1280) + 2 * tokens * (5120 * 5120 + 5120 * 3584)
        for layer in range(32):
            seen = patches if layer in (7, 15, 23, 31) else min(64, patches)
            total += 2 * (2 * 1280 * patches * seen)  # scores, and their sums
        assert TOWER.flops(tokens) == total


def test_fewer_tokens_cost_less_and_a_known_image_less_still() -> None:
    device = parse_device("989,3350,80", 0.5)
    costs = [cost_of(1024, round(1024 * share), 64, device) for share in SHARES.values()]
    for more, fewer in itertools.pairwise(costs):
        assert fewer["prefill"] < more["prefill"]
        assert fewer["bytes"] < more["bytes"]
        assert fewer["fit"] > more["fit"]
        assert fewer["new"] > more["new"]
    for cost in costs:
        assert cost["new"] < cost["features"] < cost["prefix"]
        assert cost["new"] <= cost["new alone"] < cost["features"]
        assert cost["first alone"] <= cost["first"] <= costs[0]["first"]
    whole, some = costs[0], costs[-1]
    assert (whole["alone"], whole["first alone"]) == (whole["both"], whole["first"])
    assert whole["both"] > 8 * some["alone"]
    assert some["first alone"] > 2 * TEXT.layers * TEXT.layer / device.bandwidth  # weights are read at least once
    assert costs[0]["bytes"] == 57_344 * (1024 + 30 + 64)  # 28 layers, keys and values of 4 heads x 128, 2 bytes
    slow = cost_of(1024, 1024, 64, parse_device("989,3350,80", 0.25))
    assert slow["new"] == pytest.approx(costs[0]["new"] / 2)


def test_the_arithmetic_needs_no_server() -> None:
    result = CliRunner().invoke(app, ["serving", "--arithmetic", "--tokens", "100,4"])
    assert [row["kept"] for row in report_of(result)["rows"]] == [100, 25, 7, 4, 1, 1]


def test_a_budget_may_be_encoded_alone() -> None:
    assert parse_budgets("none, 0.25+kept,9") == (Asked(), Asked(0.25, alone=True), Asked(9))
    assert Asked(0.25, alone=True).keywords(100) == {"foveate_budget": 25, "foveate_encode": "kept"}
    assert Asked(None).keywords(100) == {"foveate_budget": None}


# --- the model of --engine new ----------------------------------------------------------------------------------------


@pytest.mark.vlm
def test_the_small_model_has_the_sizes_that_the_page_names() -> None:
    import torch

    from benchmarks import random_vlm

    kind, config, _ = random_vlm.small_qwen2_5_vl()
    with torch.device("meta"):
        made = kind._from_config(config).model
    language, tower = (
        round(sum(each.numel() for each in part.parameters()) / 1e6) for part in (made.language_model, made.visual)
    )
    assert f"{language} million parameters in\nits language model, {tower} in its encoder" in PAGE


@pytest.mark.vlm
def test_a_model_is_written_as_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import random_vlm
    from foveate.vlm import load
    from tests.vlm_models import photo

    monkeypatch.setattr(random_vlm, "small_qwen2_5_vl", lambda: random_vlm.qwen2_5_vl(None, tiny=True))
    vlm = load(str(random_vlm.write_small(tmp_path)), device="cpu", dtype="float32")
    assert vlm.see(photo(), read=False).tokens == (35,)
    assert vlm.processor.chat_template


# --- an engine with foveate, and one without --------------------------------------------------------------------------


def stand_in(pipe: Any, folder: Path, images: Path | None, requests: int, max_tokens: int) -> None:
    """Of `serving_engine._answer`: half as much again with foveate. The folder's name says what is wrong."""
    ours = os.environ["VLLM_PLUGINS"]
    pipe.send("foveate.serving.families" if ours and folder.name != "unserved" else "vllm.models")
    while (start := pipe.recv()) is not None:
        pipe.send(((3.0 if ours else 2.0, 1.0), [(start, n, ours * (folder.name == "other")) for n in range(requests)]))


def test_an_engine_with_foveate_is_measured_beside_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_engine, "_answer", stand_in)
    report = serving_engine.beside_stock(Path("same"), None, requests=2, rounds=3, max_tokens=1)
    assert "8 answers are the same" in report["title"]
    assert [row["ratio"] for row in report["rows"]] == [1.5, 1.0]
    assert report["rows"][0]["cells"][1:3] == ["1.000", "1.500"]
    for folder, wrong in (("unserved", "vllm.models and vllm.models"), ("other", "answers that differ")):
        with pytest.raises(OptionError, match=wrong):
            serving_engine.beside_stock(Path(folder), None, requests=2, rounds=1, max_tokens=1)
