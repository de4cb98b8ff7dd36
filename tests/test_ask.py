"""`foveate ask` and the loader behind it, on tiny models of the real classes, saved as folders."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import foveate.vlm
from foveate import Texture
from foveate.cli.main import app
from foveate.core.errors import (
    BudgetError,
    EncoderNameError,
    FoveateError,
    ImageNotFoundError,
    MissingExtraError,
    ModelError,
    ModelFilesError,
    OptionError,
    PromptError,
    QueryError,
)
from foveate.vlm.chat import Chat
from foveate.vlm.encoded import Answer
from foveate.vlm.loader import load, without_video_processor
from foveate.vlm.select.choice import Choosing
from tests.conftest import PHOTOS
from tests.vlm_folders import loaded, saved
from tests.vlm_models import pair, photo

Folders = Callable[[str], Path]
CAKE = PHOTOS / "cake_and_coffee.jpg"
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def words_for_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """SmolVLM's processor asks for a package that spells numbers, for videos only; it need not be installed here."""
    monkeypatch.setattr("transformers.models.smolvlm.processing_smolvlm.num2words", str)


@pytest.fixture(autouse=True)
def loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foveate.vlm.load", loaded)


def asked(*arguments: object) -> dict[str, Any]:
    """What the command says with --json."""
    result = CliRunner().invoke(app, ["ask", *map(str, arguments), "--json"])
    if result.exception is not None:
        raise result.exception
    return dict(json.loads(result.stdout))


# --- the loader -------------------------------------------------------------------------------------------------------


def test_a_processor_without_videos_refuses_a_video(model_folder: Folders) -> None:
    from transformers import LlavaProcessor, Qwen2VLProcessor

    assert without_video_processor(LlavaProcessor) is LlavaProcessor
    made = without_video_processor(Qwen2VLProcessor).from_pretrained(model_folder("qwen2_vl"))
    assert isinstance(made, Qwen2VLProcessor)
    with pytest.raises(MissingExtraError, match="video"):
        made(text="<|video_pad|>", videos=[np.zeros((4, 56, 56, 3), np.uint8)])


def test_numbers_and_places(model_folder: Folders) -> None:
    assert load(str(model_folder("llava"))).model.dtype == torch.float32
    vlm = load(str(model_folder("llava")), dtype="bfloat16", device="cpu")
    assert vlm.model.dtype == torch.bfloat16
    assert vlm.ask(vlm.see(photo()), "a dog", budget=4, generation={"max_new_tokens": 2}).tokens == (4, 16)
    with pytest.raises(OptionError, match="float64"):
        load(str(model_folder("llava")), dtype="float64")
    with pytest.raises(OptionError, match="tpu"):
        load(str(model_folder("llava")), device="tpu")


def test_doctor_compares_a_model_with_the_stock_one(model_folder: Folders) -> None:
    result = CliRunner().invoke(app, ["doctor", "--vlm", str(model_folder("qwen2_5_vl")), "--json"])
    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert report["ok"]
    assert report["all_tokens"] == 0
    assert report["places"] == 1
    shown = CliRunner().invoke(app, ["doctor", "--vlm", str(model_folder("qwen2_5_vl"))]).stdout
    assert "Qwen2_5_VLForConditionalGeneration, float32: ok" in shown
    with pytest.raises(ModelFilesError, match="nowhere"):
        raise CliRunner().invoke(app, ["doctor", "--vlm", "./nowhere"]).exception or AssertionError


def test_models_that_cannot_be_used(model_folder: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import BertConfig, CLIPConfig

    for config in (BertConfig(), CLIPConfig()):
        config.save_pretrained(tmp_path / config.model_type)
        with pytest.raises(ModelError, match=f"{config.model_type} model") as caught:
            load(str(tmp_path / config.model_type))
        assert "foveate.vlm.FAMILIES" in caught.value.expected
    with pytest.raises(ModelFilesError, match="no folder"):
        load("./nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelFilesError, match="whole"):
        load(str(tmp_path / "empty"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelFilesError, match=r"neither a folder nor in the local cache.*the Hub could not be reached"):
        load("nobody/has-this-model")
    monkeypatch.undo()
    asked: list[str] = []

    def nobody_there(url: str, **keywords: Any) -> None:
        asked.append(url)
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", nobody_there)
    with pytest.raises(ModelFilesError, match=r"'nobody/has-this@v1'.*the Hub could not be reached: no route to host"):
        load("nobody/has-this@v1")
    (url,) = asked  # once: the library itself would ask again and again
    assert url.endswith("nobody/has-this/resolve/v1/config.json")
    half = saved("llava", tmp_path / "half")
    (half / "model.safetensors").unlink()
    with pytest.raises(ModelFilesError, match="whole"):
        load(str(half))
    torch.save(pair("llava")[0].state_dict(), half / "pytorch_model.bin")
    with pytest.raises(ModelFilesError, match="whole"):  # a pickle is not a model
        load(str(half))
    pair("llava")[0].save_pretrained(tmp_path / "no processor")
    with pytest.raises(ModelFilesError, match="whole"):
        load(str(tmp_path / "no processor"))


def test_missing_weights_are_not_made_up(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = saved("llava", tmp_path)
    weights = load_file(folder / "model.safetensors")
    weights.pop(next(name for name in weights if "linear_1.weight" in name))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelFilesError, match=r"missing.*linear_1"):
        load(str(folder))


def test_a_missing_extra_is_named(model_folder: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.models.smolvlm.processing_smolvlm.num2words", None)
    with pytest.raises(MissingExtraError, match="num2words"):
        load(str(model_folder("smolvlm")))
    for module in ["transformers", "torch", "jinja2"]:
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingExtraError, match=f"needs {module}") as caught:
            asked(CAKE, "a dog", "--model", "x/y")
        assert "pip install 'foveate[vlm]'" in caught.value.fix


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_answers(model_folder: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        app,
        ["ask", str(CAKE), "where is the cake?", "why?", "-k", "40", "--out", "out",
         "--model", str(model_folder("qwen2_5_vl")), "--max-new-tokens", "3", "--json"],
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert done.stderr.splitlines()[0].startswith("loading ")
    said = json.loads(done.stdout)
    assert [q["question"] for q in said["questions"]] == ["where is the cake?", "why?"]
    assert (said["cells"], said["budget"], said["mode"], said["method"]) == (130, 40, "drop", "relevance")
    for q in said["questions"]:
        assert q["tokens"] == [40, 130]
        (pane,) = q["kept"]
        assert pane["grid"] == [10, 13]
        assert pane["box"] == [0, 0, 481, 640]
        assert len(set(pane["indices"])) == 40
        assert {"score", "choose", "slice", "generate"} == set(q["seconds"])
        assert json.loads((tmp_path / q["json"]).read_text())["kept"] == q["kept"]
        assert (tmp_path / q["png"]).stat().st_size > 10_000
    assert said["questions"][0]["kept"] != said["questions"][1]["kept"]  # every question selects afresh


def test_a_dialogue_over_a_texture(model_folder: Folders, wide: Texture, tmp_path: Path) -> None:
    wide.save(tmp_path / "cake.safetensors")
    given = [str(tmp_path / "cake.safetensors"), "where is the cake?", "and what colour is it?"]
    how = ["-k", "20", "--model", str(model_folder("qwen2_5_vl")), "--max-new-tokens", "2"]
    said = asked(*given, *how, "--chat")
    first, second = said["questions"]
    assert first["kept"] == second["kept"]  # it is the cake
    assert said["warnings"] == []
    for more in ([], ["--chat"]):
        notes = asked(given[0], "why?", "a zebra", *how, "-k", "500", *more)["warnings"]
        assert ["not searched" in notes[0], "-k 500" in notes[1], len(notes)] == [True, True, 2]
    with pytest.raises(FoveateError, match="--chat with --mode crop"):
        asked(*given, *how, "--chat", "--mode", "crop")
    vlm = foveate.vlm.attach(*pair("qwen2_5_vl"))
    seen = vlm.see(wide)
    for policy in ("topk", "maxmin"):
        (kept,) = asked(*given[:2], *how, "--policy", policy)["questions"][0]["kept"]
        (choice,) = vlm.prepare(seen, given[1], budget=20, choosing=Choosing(policy=policy)).chosen
        assert kept["indices"] == choice.kept[0].indices.tolist()
        assert kept["indices"] != first["kept"][0]["indices"]


def test_what_a_texture_does_not_hold_is_refused_before_the_model_is_loaded(
    wide: Texture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foveate.vlm.load", lambda *a, **k: pytest.fail("loaded"))
    wide.save(tmp_path / "cake.safetensors")
    with pytest.raises(FoveateError, match="--preset gaze"):
        asked(tmp_path / "cake.safetensors", "a cake", "--model", "x", "--preset", "gaze")


@pytest.mark.parametrize(
    ("mode", "name"), [("drop", "llava"), ("sparse", "qwen2_5_vl"), ("weight", "smolvlm"), ("crop", "qwen3_vl")]
)
def test_modes_and_families(mode: str, name: str, model_folder: Folders, tmp_path: Path) -> None:
    budget = {"crop": 96, "drop": 7}.get(mode, 64)  # of crop: a region and what is around it
    found = asked(CAKE, "a cake", "--model", model_folder(name), "-k", budget, "--mode", mode, "--max-new-tokens", 2,
                  "--out", tmp_path)  # fmt: skip
    (record,) = found["questions"]
    cells = sum(grid[0] * grid[1] for grid in (pane["grid"] for pane in record["kept"]))
    kept = sum(len(pane["indices"]) for pane in record["kept"])
    if (mode, name) == ("drop", "llava"):
        vlm = foveate.vlm.attach(*pair(name))
        answer = vlm.ask(vlm.see(CAKE), "a cake", budget=budget, generation={"max_new_tokens": 2})
        assert record["answer"] == answer.text
        assert record["kept"][0]["indices"] == answer.chosen[0].kept[0].indices.tolist()
    assert cells == found["cells"]
    assert kept == cells if mode == "weight" else kept <= budget
    assert ("regions" in record) == (mode == "crop")
    assert ("encode" in record["seconds"]) == (mode == "sparse")
    with Image.open(record["png"]) as picture:
        assert picture.width > 900


def test_answers_are_not_lost_when_a_later_question_cannot_be_asked(
    model_folder: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = Chat.ask

    def ask(self: Chat, question: str, **how: Any) -> Answer:
        if self.turns:
            raise PromptError("a prompt of 5,000 tokens", expected="4,096", fix="ask less")
        return asks(self, question, **how)

    monkeypatch.setattr(Chat, "ask", ask)
    base = ["ask", str(CAKE), "a cake", "a cup", "--model", str(model_folder("llava")), "--chat"]
    table = CliRunner().invoke(app, base)
    assert "a cake" in table.stdout
    assert isinstance(table.exception, PromptError)
    said = json.loads(CliRunner().invoke(app, [*base, "--json"]).stdout)
    assert [q["question"] for q in said["questions"]] == ["a cake"]


def test_budgets_by_word_and_too_large(model_folder: Folders) -> None:
    base = (CAKE, "a cake", "--model", model_folder("llava"), "--max-new-tokens", 2)
    everything = asked(*base, "-k", "all")
    assert everything["questions"][0]["tokens"] == [16, 16]
    assert everything["warnings"] == []
    assert 1 <= asked(*base, "-k", "auto")["questions"][0]["tokens"][0] <= 16
    assert asked(*base, "-k", "lossless")["questions"][0]["tokens"] == [16, 16]  # of a photograph no token repeats
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = CliRunner().invoke(app, ["ask", *map(str, base), "-k", "500", "--json"])
    assert "warning: -k 500 is more than the 16 visual tokens" in result.stderr
    assert json.loads(result.stdout)["warnings"]


def test_a_hand_written_prompt_and_a_model_without_a_chat_template(model_folder: Folders, tmp_path: Path) -> None:
    base = (CAKE, "a cake", "a cup", "--model", model_folder("llava"), "-k", 4, "--max-new-tokens", 3)
    with_template = asked(*base)
    by_hand = asked(
        *base, "--prompt", r"<|im_start|>user\n<image>\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )  # fmt: skip
    assert [q["answer"] for q in by_hand["questions"]] == [q["answer"] for q in with_template["questions"]]
    with pytest.raises(PromptError, match="2 questions"):
        asked(*base, "--prompt", "<image> what?")
    with pytest.raises(PromptError, match="0 image tokens"):
        asked(*base, "--prompt", "{question}")
    with pytest.raises(OptionError, match="crop"):
        asked(*base, "--prompt", "<image> {question}", "--mode", "crop")
    saved("llava", tmp_path, template=False)
    with pytest.raises(PromptError, match="without a chat template") as caught:
        asked(CAKE, "a cake", "--model", tmp_path)
    assert "--prompt" in caught.value.fix
    asked(CAKE, "a cake", "--model", tmp_path, "--max-new-tokens", 2, "--prompt", "USER: <image> {question} ASSISTANT:")


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("nothing.jpg", "a dog"), ImageNotFoundError, "nothing.jpg"),
        ((CAKE, " "), QueryError, "empty"),
        ((CAKE, CAKE), OptionError, "is a file"),
        ((CAKE, "a dog", "--mode", "dropp"), OptionError, "dropp"),
        ((CAKE, "a dog", "--method", "best"), OptionError, "best"),
        ((CAKE, "a dog", "--policy", "best"), OptionError, "policy 'best'|--policy best|policy='best'"),
        ((CAKE, "a dog", "--policy", "dpp", "--method", "dpp"), OptionError, "--policy with --method dpp"),
        ((CAKE, "a dog", "-k", 0), BudgetError, "-k 0"),
        ((CAKE, "a dog", "--max-new-tokens", 0), OptionError, "--max-new-tokens 0"),
        ((CAKE, "a dog", "--encoder", "nan0"), EncoderNameError, "nan0"),
        ((CAKE, "a dog", "--model", "/no/such/folder"), ModelFilesError, "no folder"),
    ],
)
def test_bad_input_is_refused_before_the_model_is_loaded(
    arguments: tuple[object, ...], error: type[FoveateError], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "transformers.AutoModelForImageTextToText.from_pretrained", lambda *a, **k: pytest.fail("weights were read")
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(error, match=words):
        asked(*arguments, *(() if "--model" in arguments else ("--model", "somebody/some-model")))
