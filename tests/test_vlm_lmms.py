"""The lmms-eval plug-in, without lmms-eval: four small stand-ins for the modules that it imports from there.

The stand-ins have the names and signatures of lmms-eval 0.7.3 (api/model.py, api/instance.py, models/registry_v2.py,
models/model_utils/gen_metrics.py), and nothing else of it.
"""

from __future__ import annotations

import abc
import gc
import subprocess
import sys
import tomllib
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import foveate.vlm
from foveate.core.errors import BudgetError, ModelError, OptionError, PromptError
from foveate.vlm import lmms
from foveate.vlm.lmms import cut_answer, extract_question, token_budget, translate_settings
from foveate.vlm.loader import load
from tests.vlm_folders import loaded
from tests.vlm_models import attached, photo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
LOGGED: list[dict[str, Any]] = []


class StandIn(abc.ABC):
    """lmms_eval.api.model.lmms: its attributes, its abstract methods, how it is made from the command line."""

    is_simple = True

    def __init__(self) -> None:
        self._rank, self._world_size, self.task_dict = 0, 1, {}  # type: ignore[var-annotated]
        self.cache_hook = types.SimpleNamespace(add_partial=lambda kind, request, answer: None)

    @abc.abstractmethod
    def loglikelihood(self, requests: Any) -> Any: ...
    @abc.abstractmethod
    def generate_until(self, requests: Any) -> Any: ...
    @abc.abstractmethod
    def generate_until_multi_round(self, requests: Any) -> Any: ...

    def clean(self) -> None:
        self.cleaned = True

    @property
    def rank(self) -> int:
        return int(self._rank)

    @classmethod
    def create_from_arg_string(cls, text: str, more: dict[str, Any] | None = None) -> Any:
        def value(given: str) -> Any:
            return int(given) if given.isnumeric() else given

        pairs = (part.split("=", 1) for part in text.split(","))
        return cls(**{k: value(v) for k, v in pairs}, **{k: v for k, v in (more or {}).items() if v is not None})


@dataclass
class TokenCounts:
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass
class GenerationResult:
    text: str
    token_counts: TokenCounts | None = None


@dataclass(frozen=True)
class ModelManifest:
    model_id: str
    simple_class_path: str | None = None
    chat_class_path: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass
class Request:
    """lmms_eval.api.instance.Instance: of it only `args`, six of them for a chat model."""

    args: tuple[Any, ...] = field(default_factory=tuple)


@pytest.fixture(autouse=True)
def lmms_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    members: dict[str, dict[str, Any]] = {
        "lmms_eval": {},
        "lmms_eval.api": {},
        "lmms_eval.api.model": {"lmms": StandIn},
        "lmms_eval.api.instance": {"GenerationResult": GenerationResult, "TokenCounts": TokenCounts},
        "lmms_eval.models": {},
        "lmms_eval.models.registry_v2": {"ModelManifest": ModelManifest},
        "lmms_eval.models.model_utils": {},
        "lmms_eval.models.model_utils.gen_metrics": {"log_metrics": lambda **said: LOGGED.append(said)},
    }
    for name, inside in members.items():
        module = types.ModuleType(name)
        module.__dict__.update(inside)
        monkeypatch.setitem(sys.modules, name, module)
    lmms._model_class.cache_clear()
    monkeypatch.setattr(lmms, "load", loaded)
    LOGGED.clear()


@pytest.fixture
def folder(model_folder: Callable[[str], Path]) -> Path:
    return model_folder("qwen2_vl")


def messages(document: dict[str, Any]) -> list[dict[str, Any]]:
    """As lmms-eval lays a document out: images, then the text with the task's order to the model."""
    content = [{"type": "image", "url": image} for image in document["images"]]
    text = document["question"] + "\nAnswer the question using a single word or phrase."
    return [{"role": "user", "content": [*content, {"type": "text", "text": text}]}]


def prompt_of(processor: Any, document: dict[str, Any]) -> str:
    """The task's prompt, laid out by the chat template."""
    content = [{"type": "image"}, messages(document)[0]["content"][1]]
    return str(
        processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
    )


def evaluated(folder: Path, arguments: str, documents: list[dict[str, Any]]) -> Any:
    model = lmms.Foveate.create_from_arg_string(f"pretrained={folder},{arguments}", {"batch_size": 1, "device": None})
    model.task_dict["task"] = {"test": documents}
    return model


def requests(count: int, settings: dict[str, Any], lay_out: Callable[..., Any] = messages) -> list[Request]:
    return [Request(("context", lay_out, dict(settings), i, "task", "test")) for i in range(count)]


def rounds(texts: list[tuple[str, Any]], told: list[Any] | None = None) -> Request:
    """A request of a task with these rounds: text and images of each (None: no new ones), as lmms-eval lays it out."""

    def doc_to_text(document: Any, previous_output: Any, round_idx: int, previous_round_info: Any) -> Any:
        if told is not None:
            told.append((list(previous_output), round_idx, previous_round_info))
        if round_idx == len(texts):
            return None, "", True, previous_output, None
        return texts[round_idx][1], texts[round_idx][0], False, previous_output, {"round": round_idx}

    return Request((texts[0][0], dict(GREEDY), lambda document: texts[0][1], doc_to_text, 0, "task", "test"))


GREEDY = {"max_new_tokens": 6, "temperature": 0, "top_p": 1.0, "num_beams": 1, "do_sample": False, "until": ["\n\n"]}
LARGE, SMALL = Image.fromarray(photo(300, 400, seed=1)), Image.fromarray(photo(120, 90, seed=2))


# --- how lmms-eval finds it -------------------------------------------------------------------------------------------


def test_the_entry_point_leads_to_a_chat_model() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    where, _, name = project["entry-points"]["lmms_eval.models"]["foveate"].partition(":")
    manifest = getattr(sys.modules[where], name)()
    assert manifest == ModelManifest("foveate", chat_class_path="foveate.vlm.lmms.Foveate")
    kind = lmms.Foveate
    assert issubclass(kind, StandIn)
    assert kind is lmms.Foveate
    assert kind.is_simple is False
    assert f"{kind.__module__}.{kind.__qualname__}" == manifest.chat_class_path
    with pytest.raises(AttributeError, match="Fovea"):
        lmms.Fovea  # noqa: B018


def test_importing_the_module_does_not_import_lmms_eval() -> None:
    code = "import sys, foveate.vlm.lmms; assert not [m for m in sys.modules if m.startswith(('lmms_eval', 'torch'))]"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_two_requests_about_different_images(folder: Path) -> None:
    documents: list[dict[str, Any]] = [
        {"images": [LARGE], "question": "Is there a dog in the image?"},
        {"images": [SMALL], "question": "What colour is the cup?"},
    ]
    model = evaluated(folder, "budget=25%", documents)
    found = model.generate_until(requests(2, GREEDY))
    own = attached("qwen2_vl")
    kept = []
    for document, result in zip(documents, found, strict=True):
        prompt = prompt_of(own.processor, document)
        encoded = own.see(document["images"][0])
        budget, words = round(encoded.tokens[0] / 4), extract_question(document["question"])
        answer = own.ask(encoded, words, budget=budget, prompt=prompt, generation={"max_new_tokens": 6})
        assert result.text == answer.text
        assert result.token_counts.output_tokens == len(answer.ids) <= 6
        kept.append(answer.tokens)
    assert kept[0] != kept[1]  # a share gives each image a budget of its own
    (logged,) = LOGGED
    assert logged["total_gen_tokens"] == sum(result.token_counts.output_tokens for result in found)
    assert logged["additional_metrics"]["visual_tokens_kept"] == np.mean([k for k, _ in kept])
    assert logged["additional_metrics"]["visual_tokens_of"] == np.mean([n for _, n in kept])


def test_an_image_is_encoded_once_for_all_questions_about_its_image(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    see = foveate.vlm.VLM.see

    def counted(self: foveate.vlm.VLM, *given: Any, **how: Any) -> Any:
        seen.append(given)
        return see(self, *given, **how)

    monkeypatch.setattr(foveate.vlm.VLM, "see", counted)
    again = Image.fromarray(np.asarray(LARGE).copy())  # another object, the same pixels
    other = Image.fromarray(photo(100, 100, seed=3))
    documents = [{"images": [image], "question": "a dog"} for image in (LARGE, again, SMALL, LARGE, other, SMALL)]
    model = evaluated(folder, "budget=5,images=2", documents)
    model.generate_until(requests(6, GREEDY | {"max_new_tokens": 1}))
    assert len(seen) == 4  # large, small, other; small once more, as large was asked about after it
    assert len(model.encoded) == 2


def test_a_fixed_budget_is_cut_to_small_images_without_a_word(folder: Path, recwarn: pytest.WarningsRecorder) -> None:
    model = evaluated(folder, "budget=20", [{"images": [LARGE, SMALL], "question": "a dog"}])
    model.generate_until(requests(1, GREEDY))
    encoded = model.encode([foveate.load_image(image) for image in (LARGE, SMALL)])
    assert token_budget(20, encoded) == (20, 12)
    assert encoded.tokens[1] == 12
    assert not [w for w in recwarn if "all are kept" in str(w.message)]
    assert LOGGED[0]["additional_metrics"]["visual_tokens_kept"] == 32


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        *((f"budget=9,method={method}", 9) for method in ("random", "uniform", "saliency", "maxmin", "dpp")),
        ("budget=9,method=downsample", None),
        ("mode=sparse,budget=6", 6),
        ("budget=lossless", None),
        ("mode=crop,budget=100", None),
        ("mode=weight", "all"),
        ("budget=all", "all"),
    ],
)
def test_baselines_and_modes_by_name(folder: Path, arguments: str, kept: int | str | None) -> None:
    model = evaluated(folder, arguments, [{"images": [LARGE], "question": "a dog"}])
    (result,) = model.generate_until(requests(1, GREEDY))
    metrics = LOGGED[0]["additional_metrics"]
    if kept is not None:
        assert metrics["visual_tokens_kept"] == (metrics["visual_tokens_of"] if kept == "all" else kept)
    assert "downsample" not in arguments or 0 < metrics["visual_tokens_kept"] <= 9
    assert result.token_counts.output_tokens >= 1


def test_rounds_are_a_dialogue_while_the_images_stay(folder: Path) -> None:
    model = evaluated(folder, "budget=9", [{}])
    told: list[Any] = []
    asked = [("<|image_pad|>Where is the dog?", [LARGE]), ("What colour is it?", None), ("Is it open?", [SMALL])]
    (answers,) = model.generate_until_multi_round([rounds(asked, told)])
    own = attached("qwen2_vl")
    how: dict[str, Any] = {"generation": {"max_new_tokens": 6}, "budget": 9}
    chat, other = own.chat(own.see(LARGE), **how), own.chat(own.see(SMALL), **how)
    literal = [chat.ask("Where is the dog?"), chat.ask("What colour is it?")]
    literal.append(other.ask("Is it open?"))
    assert chat.turns[1].prior_weight == 1
    assert answers == [answer.text for answer in literal]
    assert told == [(answers[:1], 1, None), (answers[:2], 2, {"round": 1}), (answers, 3, {"round": 2})]


def test_a_dialogue_beyond_the_context_forgets_its_oldest_rounds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = evaluated(folder, "budget=9", [{}])
    own = attached("qwen2_vl")
    chat = own.chat(own.see(LARGE), generation={"max_new_tokens": 6}, budget=9)
    literal = [chat.ask("a dog")]
    inputs = chat.prepare("a cat").text
    reach = max(inputs["input_ids"].shape[1], int(inputs["position_ids"].max()) + 1)
    config = model.vlm.model.config.get_text_config()
    monkeypatch.setattr(config, "max_position_embeddings", reach + 10)  # two rounds, not three
    literal.append(chat.ask("a cat"))
    chat.forget(1)
    literal.append(chat.ask("a cup"))
    asked = [("a dog", [LARGE]), ("a cat", None), ("a cup", None)]
    assert model.generate_until_multi_round([rounds(asked)]) == [[answer.text for answer in literal]]
    with pytest.raises(PromptError, match="for a context of"):
        model.generate_until_multi_round([rounds([("a dog", [LARGE]), ("a cat " * 200, None)])])


def test_it_lets_go_of_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmms, "load", load)
    model = evaluated(folder, "budget=9", [{"images": [LARGE], "question": "a dog"}])
    model.generate_until(requests(1, GREEDY))
    network = weakref.ref(model.vlm.model)
    model.clean()
    gc.collect()
    assert network() is None
    assert str(model.device) == "cpu"


def test_until_and_length(folder: Path) -> None:
    model = evaluated(folder, "budget=9,max_new_tokens=3", [{"images": [LARGE], "question": "what is it?"}])
    whole = model.generate_until(requests(1, GREEDY | {"max_new_tokens": 12}))[0]
    assert model.generate_until(requests(1, {}))[0].token_counts.output_tokens <= 3
    assert len(whole.text) >= 2
    end = whole.text[len(whole.text) // 2]
    short = model.generate_until(requests(1, GREEDY | {"max_new_tokens": 12, "until": [end]}))[0]
    assert short.text == whole.text.split(end)[0].strip()


def test_messages_of_other_shapes(folder: Path) -> None:
    """A system's turn, an example with an answer, an image token that a task wrote into its text."""

    def lay_out(document: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [{"type": "image", "url": SMALL}, {"type": "text", "text": "what is it?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "a cup"}]},
            {"role": "user", "content": [{"type": "text", "text": "<|image_pad|>and this? "},
                                         {"type": "image", "url": LARGE}]},
        ]  # fmt: skip

    model = evaluated(folder, "budget=5", [{}])
    model.generate_until(requests(1, GREEDY, lay_out))
    assert LOGGED[0]["additional_metrics"]["visual_tokens_kept"] == 10


# --- what is scored ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Is there a dog in the image?\nAnswer the question using a single word or phrase.", "Is there a dog?"),
        ("Is there a cat? Please answer yes or no.", "Is there a cat?"),
        ("What is it?\nA. a cup\nB. a plate\nAnswer with the option's letter from the given choices directly.",
         "What is it?; a cup; a plate"),
        ("What colour is the sign? (A) red (B) blue", "What colour is the sign?; red; blue"),
        ("Hint: give the correct option letter.\nQuestion: How many cars are there?\nChoices:\n(A) 3\n(B) 4",
         "How many cars are there?; 3; 4"),
        ("Who is the man at 5 p.m. in a hat?", "Who is the man at 5 p.m.; in a hat?"),
        ("Answer briefly.", "Answer briefly."),
        ("", ""),
    ],
)  # fmt: skip
def test_orders_to_the_model_are_not_looked_for(text: str, question: str) -> None:
    assert extract_question(text) == question


def test_answers_are_cut() -> None:
    for text, until, left in (
        ("red\nblue. green", ["\n", "."], "red"),
        ("one\n\ntwo", ["\n\n"], "one\n\ntwo"),
        ("one two", None, "one two"),
        ("one STOP", "STOP", "one"),
    ):
        assert cut_answer(text, until) == left


def test_settings_of_generation() -> None:
    greedy = {"max_new_tokens": 64, "num_beams": 1, "do_sample": False}
    assert translate_settings({"temperature": 0, "top_p": 1.0}, 64) == greedy
    warm = {"temperature": 0.7, "top_p": 0.9, "num_beams": 2, "max_new_tokens": 5}
    assert translate_settings(warm, 64) == {**warm, "do_sample": True}


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ("budgt=5", OptionError, "budgt=5"),
        ("method=best", OptionError, "best"),
        ("mode=drip", OptionError, "drip"),
        ("budget=0", BudgetError, "0"),
        ("budget=1.5", BudgetError, "1.5"),
        ("budget=120%", BudgetError, "120%"),
        ("budget=many", BudgetError, "many"),
    ],
)
def test_bad_arguments_are_refused_before_the_model_is_loaded(
    arguments: str, error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmms, "load", lambda *a, **k: pytest.fail("loaded"))
    with pytest.raises(error, match=words):
        lmms.Foveate.create_from_arg_string(f"pretrained=x,{arguments}", {})
    with pytest.raises(OptionError, match="batch_size=8"):
        lmms.Foveate.create_from_arg_string("pretrained=x", {"batch_size": 8})


def test_requests_that_are_not_covered(folder: Path) -> None:
    model = evaluated(folder, "budget=5", [{"images": [], "question": "why?"}])
    with pytest.raises(NotImplementedError, match="generate_until"):
        model.loglikelihood([])
    with pytest.raises(ModelError, match="without an image"):
        model.generate_until_multi_round([rounds([("why?", None)])])
    with pytest.raises(ModelError, match="without an image"):
        model.generate_until(requests(1, GREEDY))
    with pytest.raises(OptionError, match="several rounds"):
        evaluated(folder, "mode=crop", [{}]).generate_until_multi_round([rounds([("a dog", [LARGE])])])
    video = [{"role": "user", "content": [{"type": "video", "url": "film.mp4"}]}]
    with pytest.raises(ModelError, match="video"):
        model.generate_until(requests(1, GREEDY, lambda document: video))
