"""The clock for vision-language models, on tiny ones: what is measured is what it says, and bad options are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import LlavaConfig
from typer.testing import CliRunner

from benchmarks import random_vlm
from benchmarks import vlm as clock
from benchmarks.vlm import FAMILIES, prepare_model
from foveate.cli.evaluate import answers, vlm
from foveate.cli.evaluate.vlm import MODES, Plan
from foveate.cli.main import app
from foveate.core.errors import MissingExtraError, ModelError, OptionError
from foveate.core.image import load_image
from foveate.vlm.loader import attach
from tests.conftest import PHOTOS
from tests.vlm_folders import saved
from tests.vlm_models import pair

PICTURE = load_image(PHOTOS / "child_with_broccoli.jpg")
QUICK = Plan((25.0,), MODES, (1, 2), new=3, repeats=1)


def measured(name: str, plan: Plan = QUICK) -> dict[str, Any]:
    done: list[int] = []
    report = vlm.measure(attach(*pair(name)), [PICTURE], plan, done.append)
    assert done == list(range(1, plan.repeats + 1))
    return report


def test_the_command_on_images_of_ones_own(tmp_path: Path) -> None:
    folder = saved("qwen2_vl", tmp_path / "model")
    plan = ["--budgets", "25", "--batch", "1", "--new", "2", "--repeats", "1"]
    result = CliRunner().invoke(
        app,
        ["evaluate", "vlm", "--model", str(folder), "--data", str(PHOTOS), "--limit", "2", *plan, "--json"],
        catch_exceptions=False,
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["way"] for row in found["rows"]] == ["stock", "all", "drop 25 %", "sparse 25 %"]
    cells = [int(number) for number in found["title"].split(", ")[2].removesuffix(" cells").split(" + ")]
    assert [row["tokens"] for row in found["rows"]] == [round(sum(c) / 2) for c in (cells, cells)] + [
        round(sum(max(1, round(c / 4)) for c in cells) / 2)
    ] * 2
    assert {"foveate", "machine", "torch", "transformers", "threads", "attention"} <= set(found)
    assert (found["model"], found["data"]) == (str(folder), [str(PHOTOS)])


def test_rules_are_compared_by_a_models_answers_and_a_killed_run_goes_on(tmp_path: Path) -> None:
    folder, photos = saved("qwen2_vl", tmp_path / "model"), ["child_with_broccoli.jpg", "yellow_bus.jpg"]
    data = tmp_path / "questions"
    data.mkdir()
    asked = [
        {"image": photo, "question": text, "answers": ["a bus", "bus"], "metric": metric}
        for photo in photos
        for text, metric in (("what is it?", "exact"), ("where is the bus?", "anls"))
    ]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, asked)))
    for photo in photos:
        (data / photo).write_bytes((PHOTOS / photo).read_bytes())

    def run(out: str, *more: str) -> Any:
        words = ["--model", str(folder), "--data", str(data), "--policies", "--new", "2", "--out", str(tmp_path / out)]
        return CliRunner().invoke(app, ["evaluate", "vlm", *words, *more, "--json"])

    whole = run("whole")
    assert whole.exit_code == 0, whole.output
    assert "hours for 1 more" in whole.stderr
    found = json.loads(whole.stdout)
    assert [row["rule"] for row in found["rows"]] == list(answers.RULES)
    assert {row["cases"] for row in found["rows"]} == {found["questions"]} == {4}
    assert all(len(row["scores"]) == 4 for row in found["rows"])

    assert run("killed", "--limit", "2").exit_code == 0
    file = tmp_path / "killed" / "answers.jsonl"
    first = file.read_text()
    file.write_text(first + '{"image": "yellow_b')
    assert json.loads(run("killed").stdout)["rows"] == found["rows"]
    assert file.read_text() == (tmp_path / "whole" / "answers.jsonl").read_text()
    assert file.read_text().startswith(first)
    refused = run("killed", "--new", "3")
    assert refused.exit_code == 1
    assert "another --out" in str(refused.exception)


def test_metrics_of_answers() -> None:
    people = ["stop"] * 2 + ["a stop sign"] * 8
    assert answers.exact("The Bus.", ["bus"]) == 1
    assert answers.exact("buses", ["bus"]) == 0
    assert answers.vqa("Stop sign", people) == 1
    assert answers.vqa("stop", people) == pytest.approx((2 * 1 / 3 + 8 * 2 / 3) / 10)
    assert answers.anls("INV-1O3", ["x", "inv-103"]) == pytest.approx(6 / 7)
    assert answers.anls("nothing", ["inv-103"]) == 0


def test_questions_of_public_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows as the sets on the Hub have them, from a stand-in of `datasets`."""
    image = Image.new("L", (8, 8))
    rows: dict[str | None, list[dict[str, Any]]] = {
        None: [{"image_id": "i", "question": "q", "image": image, "answers": ["a"] * 10}],
        "testdev_balanced_instructions": [{"id": "9", "imageId": "n1", "question": "q", "answer": "a"}],
        "testdev_balanced_images": [{"id": "n1", "image": image}],
        "DocVQA": [{"docId": 4, "question": "q", "image": image, "answers": ["a", "b"]}],
    }
    stand_in = SimpleNamespace(load_dataset=lambda repository, config, split, streaming: rows[config])
    monkeypatch.setitem(sys.modules, "datasets", stand_in)
    read = {name: next(answers.read_items(name)) for name in answers.PUBLIC}
    assert {name: (item.image, item.answers) for name, item in read.items()} == {
        "textvqa": ("i", ("a",) * 10),
        "gqa": ("n1", ("a",)),
        "docvqa": ("4", ("a", "b")),
    }
    assert {item.load().mode for item in read.values()} == {"RGB"}
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match="pip install datasets"):
        next(answers.read_items("gqa"))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("nothing", "line 1: JSONDecodeError"),
        ('{"image": "a.jpg", "question": "what?"}', "line 1: KeyError 'answers'"),
        ('{"image": "a.jpg", "question": "what?", "answers": []}', "line 1: no answer"),
        ('{"image": "a.jpg", "question": "what?", "answers": ["a"], "metric": "vqa"}', "line 1: 1 answers for vqa"),
        ('{"image": "a.jpg", "question": "what?", "answers": ["a"], "metric": "bleu"}', "bleu"),
    ],
)
def test_questions_that_cannot_be_read_are_named(tmp_path: Path, line: str, named: str) -> None:
    (tmp_path / "questions.jsonl").write_text(line)
    with pytest.raises(OptionError, match=named):
        list(answers.read_items(str(tmp_path)))


def test_rows_hold_what_they_say() -> None:
    report = measured("llava")
    assert [(row["batch"], row["way"]) for row in report["rows"]] == [
        (batch, way) for batch in (1, 2) for way in ("stock", "all", "drop 25 %", "sparse 25 %")
    ]
    for row in report["rows"]:
        assert len(row["cells"]) == len(report["columns"]) == len(vlm.COLUMNS)
        assert row["prefill_ms"] > 0
        assert row["fresh_ms"] > row["whole_ms"]
        if row["way"] == "stock":
            assert row["whole_of_stock"] == row["fresh_of_stock"] == 1
            assert "selection_ms" not in row
        else:
            assert row["whole_ms"] > row["selection_ms"] > 0
            assert row["encoder_ms"] > 0
            assert ("NOT faster" in row["cells"][-1]) == (max(row["whole_of_stock"], row["fresh_of_stock"]) >= 1)
    assert report["notes"] == []


def test_a_mode_that_a_family_cannot_do_is_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = vlm._Clock._prepare

    def without_sparse(self: Any, way: Any) -> Any:
        if way.mode == "sparse":
            raise ModelError("no sparse", expected="drop", fix="drop")
        return prepare(self, way)

    monkeypatch.setattr(vlm._Clock, "_prepare", without_sparse)
    report = measured("llava", Plan((25.0,), MODES, (1,), new=1, repeats=1))
    assert [row["way"] for row in report["rows"]] == ["stock", "all", "drop 25 %"]
    (note,) = report["notes"]
    assert "sparse 25 %" in note


def test_what_does_not_fit_in_memory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    generate = vlm._Clock._generate

    def small(self: Any, inputs: dict[str, Any], new: int) -> Any:
        if len(inputs["input_ids"]) > 1:
            raise torch.OutOfMemoryError("no")
        return generate(self, inputs, new)

    monkeypatch.setattr(vlm._Clock, "_generate", small)
    report = measured("llava")
    assert report["notes"] == ["left out: stock, batch 2: it does not fit in memory"]
    alone = [row for row in report["rows"] if row["batch"] == 2]
    assert len(alone) == 3
    for row in alone:  # nothing to compare with, so no verdict
        assert "whole_of_stock" not in row
        assert row["cells"][-1] == ""
    json.loads(json.dumps(report, allow_nan=False))


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "smolvlm", "internvl"])
def test_both_sides_answer_the_same_questions(name: str) -> None:
    """The stock row's batch, padded by the processor, and all tokens through foveate: the same ids."""
    bench = vlm._Clock(attach(*pair(name)), PICTURE, new=4)
    inputs = bench._inputs(3)
    stock = bench._generate(inputs, 4)[:, inputs["input_ids"].shape[1] :]
    ours = bench._answer(bench._prepare(vlm.Way("all", "drop", None, 3)), 4)
    assert stock.shape == (3, 4)
    assert np.array_equal(stock.numpy(), np.stack([answer.ids for answer in ours]))


def test_a_ratio_is_the_median_of_the_ratios_within_repeats() -> None:
    stock = vlm.Way("stock", None, None, 1, [9], {"whole": [100.0, 10.0, 10.0], "fresh": [1.0, 1.0, 1.0]})
    ours = vlm.Way("drop", "drop", 3, 1, [3], {"whole": [50.0, 20.0, 5.0], "fresh": [2.0, 2.0, 2.0]})
    row = vlm._row(ours, stock)
    assert row["whole_of_stock"] == 0.5
    assert row["whole_ms"] == 20
    assert row["cells"][-1] == "NOT faster: new image"


# --- random models ----------------------------------------------------------------------------------------------------


def test_sizes_are_those_of_the_published_models() -> None:
    def count(family: str, layers: int | None) -> int:
        kind, config, _ = random_vlm.FAMILIES[family](layers, False)
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in kind._from_config(config).parameters())

    assert count("llava", None) == pytest.approx(7.06e9, rel=0.002)
    assert count("qwen2_5_vl", None) == pytest.approx(8.29e9, rel=0.002)
    assert count("llava", 1) < 0.8e9
    assert count("qwen2_5_vl", 2) < 2.4e9
    _, config, processor = random_vlm.llava(None, False)
    assert isinstance(config, LlavaConfig)
    assert processor.image_processor.crop_size["height"] == config.vision_config.image_size == 336


@pytest.mark.parametrize("family", FAMILIES)
def test_random_models_are_made_in_their_number_format(family: str) -> None:
    before = torch.random.get_rng_state()
    made = prepare_model(family, "1", True, "auto", "cpu")()
    assert torch.equal(torch.random.get_rng_state(), before)
    assert {parameter.dtype for parameter in made.model.parameters()} == {torch.bfloat16}
    assert made.model.config.get_text_config().num_hidden_layers == 1
    assert not made.model.training
    encoded = made.see(PICTURE)
    assert encoded.tokens[0] == (4096 if family == "llava" else 17 * 23)
    assert len(made.ask(encoded, "a dog", budget=8, generation={"max_new_tokens": 2}).ids) <= 2
    assert tuple(random_vlm.FAMILIES) == FAMILIES


# --- prefill and answers of `python -m benchmarks vlm` --------------------------------------------------------------


def sizes_of_7b() -> clock.Sizes:
    return clock.sizes_of(random_vlm.llava(None, False)[1])


def test_flops_and_bytes_of_a_7b_model() -> None:
    sizes = sizes_of_7b()
    assert sizes == clock.Sizes(layers=32, width=4096, inner=11008, keys=4096, words=sizes.words)
    assert sizes.layers * sizes.layer == pytest.approx(6.48e9, rel=0.01)  # Llama 7B without its embeddings
    few, many = sizes.flops(1, 100), sizes.flops(1, 200)
    assert sizes.flops(16, 100) == 16 * few
    assert many > 2 * few - 2 * sizes.width * sizes.words  # more than twice: attention grows with the square
    assert few == pytest.approx(2 * 6.48e9 * 100, rel=0.02)
    assert sizes.bytes(1, 1, 2) == pytest.approx(2 * (6.48e9 + sizes.width * sizes.words), rel=0.01)  # weights once
    assert clock.sizes_of(random_vlm.qwen2_5_vl(None, False)[1]).keys == 4 * 128


def test_the_limit_is_the_longer_of_flops_and_bytes() -> None:
    sizes = sizes_of_7b()
    compute, memory = clock.Rates(1e12, 1e30), clock.Rates(1e30, 1e12)
    assert compute.limit(sizes, 4, 100, 2) == sizes.flops(4, 100) / 1e12
    assert memory.limit(sizes, 4, 100, 2) == sizes.bytes(4, 100, 2) / 1e12
    assert clock.Rates(1e12, 1e12).limit(sizes, 1, 600, 2) == sizes.flops(1, 600) / 1e12


def test_an_answer_is_the_sum_of_its_parts() -> None:
    parts = clock.Parts(prefill=2.0, step=0.5, head=0.25, tower=10.0, texture=1.0, choose=0.125)
    model = 3 * (2.0 + 3 * 0.5) + 4 * 0.25  # three layers, four tokens: a prefill and three steps
    assert clock.compose(parts, 3, 2, 4, ours=False) == (20 + model, 20 + model)  # stock encodes for each question
    assert clock.compose(parts, 3, 2, 4, ours=True) == (0.25 + model, 11 + 0.25 + model)


def test_prefill_and_answers_of_something_tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(random_vlm.TINY_CLIP, "image_size", 168)  # 144 cells, not 4096
    quick: Any = {"tiny": True, "device": "cpu", "budgets": "25", "batch": "2", "new": 2, "repeats": 1}
    made = clock.measure(layers="1", **quick)
    prefill, answer = made["tables"]
    assert [(row["batch"], row["tokens"]) for row in prefill["rows"]] == [(2, 144), (2, 36)]
    every, quarter = prefill["rows"]
    assert every["flops"] / quarter["flops"] == pytest.approx(quarter["ideal_flops"])
    assert quarter["speedup"] == pytest.approx(every["median"] / quarter["median"], rel=1e-3)
    assert [row["way"] for row in answer["rows"]] == ["stock", "all", "25 %"]
    assert (made["layers"], made["of_layers"]) == (1, 2)
    assert "not measured whole" in answer["title"]
    whole = clock.measure(layers="all", **quick)["tables"][1]  # all layers: nothing is added up
    assert [row["what"] for row in whole["rows"]] == [
        f"answer, batch 2, {way}" for way in ("stock", "all", "drop 25 %")
    ]
    assert all(row["median"] == pytest.approx(row["whole_ms"], abs=1e-3) for row in whole["rows"])
    for table in (prefill, answer, whole):
        assert all(len(row["cells"]) == len(table["columns"]) for row in table["rows"])
