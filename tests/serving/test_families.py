"""Every family that is served says what `foveate.vlm` says; what is not served refuses a budget, never ignores it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from foveate.core.errors import FoveateError, ModelError, OptionError
from foveate.serving import families
from foveate.serving.families import FAMILIES, RefusingProcessor
from foveate.serving.hooks import find_stock, other_architectures
from foveate.serving.kept import KeptEncoder
from foveate.serving.layouts import SECTION
from foveate.serving.model import FlatPositions
from foveate.serving.processor import ChoosingProcessor
from foveate.serving.selection import select_rows
from tests.serving.engine import STEPS, Ask, Engine, assert_same
from tests.vlm_models import page, photo

DOG = "where is the dog?"
POSITIONS = 256  # of the tiny models here
SERVED = ("llava", "llava_next", "idefics3", "smolvlm", "internvl")
TWO = (photo(), photo(90, 230, seed=1))


@pytest.fixture(scope="module", params=SERVED)
def engine(request: pytest.FixtureRequest, start: Callable[..., Engine]) -> Engine:
    if request.param == "smolvlm" and not find_spec("num2words"):
        pytest.skip("SmolVLM's processor, in transformers, needs num2words: pip install num2words")
    positions = {"text_config": {"max_position_embeddings": POSITIONS}}
    limits = {"max_model_len": POSITIONS, "max_num_batched_tokens": 96}  # an image comes in several chunks
    return start(request.param, hf_overrides=positions, **limits)


def compare(engine: Engine, ask: Ask) -> None:
    (said,) = engine.ask(ask)
    assert_same(said, engine.expect(ask))


@pytest.mark.parametrize("budget", [None, 1, 9, "auto", "lossless", 10_000])
def test_one_image(engine: Engine, budget: int | str | None) -> None:
    ask = Ask(DOG, [page() if budget == "lossless" else photo()], {"foveate_budget": budget})
    compare(engine, ask)


@pytest.mark.parametrize("budget", [1, 9, "auto"])
def test_kept_tokens_alone_are_encoded_as_in_mode_sparse(engine: Engine, budget: int | str) -> None:
    how = {"foveate_budget": budget, "foveate_encode": "kept"}
    for images in ([photo(seed=3)], TWO) if budget == 9 else ([photo(seed=3)],):
        compare(engine, Ask(DOG, images, how))


def test_an_image_that_cannot_be_encoded_so_is_refused_before_the_engine(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> None:
        raise ModelError(f"{given[-2:]}", expected="another", fix="send it")

    monkeypatch.setattr(KeptEncoder, "check_image", refuse)
    with pytest.raises(ModelError, match=r"\(\(150, 200\), "):
        engine.ask(Ask(DOG, keywords={"foveate_budget": 9, "foveate_encode": "kept"}))
    compare(engine, Ask(DOG, keywords={"foveate_budget": 10_000, "foveate_encode": "kept"}))  # all: as a whole image


def test_two_images_share_a_budget_between_tags_and_without_a_budget_are_the_stock_models(engine: Engine) -> None:
    seen = engine.vlm.see(list(TWO), read=False)
    shared = select_rows(TWO, seen.textures, seen.layouts, DOG, 9).rows
    ends = [np.setdiff1d(rows, layout.selectable_rows()) for rows, layout in zip(shared, seen.layouts, strict=True)]
    shares = tuple(len(rows) - len(end) for rows, end in zip(shared, ends, strict=True))
    assert sum(shares) == 9
    chosen, stock = engine.ask(Ask(DOG, TWO, {"foveate_budget": 9}), Ask(DOG, TWO))
    assert_same(chosen, engine.expect(Ask(DOG, TWO, {"foveate_budget": shares})))
    assert_same(stock, engine.expect(Ask(DOG, TWO)))


def test_an_image_of_one_pixel_gets_an_answer(engine: Engine) -> None:
    images = (photo(1, 1),)
    with_budget, stock = engine.ask(Ask(DOG, images, {"foveate_budget": 10_000}), Ask(DOG, images))
    assert_same(with_budget, stock)


def test_another_question_about_an_image_does_not_encode_it_again(engine: Engine) -> None:
    image, encoded = photo(seed=7), list[int]()
    stock: Any = type(engine.model).__mro__[3]
    assert stock.__module__.startswith("vllm.")
    encode = stock.embed_multimodal

    def counted(*args: Any, **given: Any) -> Any:
        encoded.append(len(given))
        return encode(*args, **given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stock, "embed_multimodal", counted)
        for question in (DOG, "what is on the left of the person?"):
            compare(engine, Ask(question, (image,), {"foveate_budget": 5}))
    assert len(encoded) == 1


def test_positions_end_where_the_models_end(engine: Engine) -> None:
    """An answer may pass them, as its prompt is short; a prompt may not."""
    from vllm import SamplingParams

    one = engine.prompt(Ask(DOG, keywords={"foveate_budget": 1}))
    (short,) = engine.llm.generate([one], SamplingParams(max_tokens=1), use_tqdm=False)
    room = POSITIONS - len(short.prompt_token_ids)
    (out,) = engine.llm.generate([one], SamplingParams(max_tokens=room, ignore_eos=True), use_tqdm=False)
    assert len(out.outputs[0].token_ids) == room
    long = DOG + "?" * (room - 1)
    with pytest.raises(ModelError, match="positions before visual tokens are dropped"):
        engine.ask(Ask(long, keywords={"foveate_budget": 1}))


# --- what is not served -----------------------------------------------------------------------------------------------


def test_a_model_that_is_not_served_gives_its_stock_answers_and_refuses_a_budget(start: Callable[..., Engine]) -> None:
    """By an architecture that has the same class in vLLM as a served one."""
    engine = start("internvl", hf_overrides={"architectures": ["InternS1ForConditionalGeneration"]})
    compare(engine, Ask(DOG))
    compare(engine, Ask(DOG, keywords={"foveate_budget": None}))
    with pytest.raises(ModelError, match="foveate_budget=5 for InternS1"):
        engine.ask(Ask(DOG, keywords={"foveate_budget": 5}))
    with pytest.raises(OptionError, match="foveate_bugdet"):
        engine.ask(Ask(DOG, keywords={"foveate_bugdet": 5}))


class StockProcessor:
    """A stock processor without a model."""

    def __init__(self, told: dict[str, object] | None = None) -> None:
        config = SimpleNamespace(mm_processor_kwargs=told, mm_encoder_tp_mode="weights")
        model = SimpleNamespace(
            architecture="Other", hf_config=SimpleNamespace(architectures=["Other"]), hf_text_config=SimpleNamespace(),
            max_model_len=64,
        )  # fmt: skip
        self.info = SimpleNamespace(
            ctx=SimpleNamespace(get_mm_config=lambda: config, model_config=model, tokenizer=None), model_id="other"
        )

    def apply(self, inputs: Any, timing_ctx: Any) -> str:
        return "stock"


class Refusing(RefusingProcessor, StockProcessor):
    pass


class Choosing(ChoosingProcessor, StockProcessor):
    pass


def test_a_default_budget_of_a_server_is_refused_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="foveate_budget=9 for Other"):
        Refusing({"foveate_budget": 9})
    monkeypatch.setenv("FOVEATE_BUDGET", "9")
    with pytest.raises(ModelError, match="unset FOVEATE_BUDGET"):
        Refusing()


def test_mistrals_own_files_are_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.multimodal.processing import ProcessorInputs
    from vllm.tokenizers.mistral import MistralTokenizer

    asked = ProcessorInputs([1], {}, None, {"foveate_budget": 9})
    choosing, refusing = Choosing(), Refusing()
    choosing.info.ctx.tokenizer = object.__new__(MistralTokenizer)
    assert choosing.apply(replace(asked, hf_processor_mm_kwargs={}), None) == "stock"
    with pytest.raises(ModelError, match="Mistral's own tokenizer") as caught:
        choosing.apply(asked, None)
    assert "--tokenizer-mode hf" in str(caught.value)
    refusing.info.ctx.model_config.architecture = "PixtralForConditionalGeneration"
    with pytest.raises(ModelError, match="--config-format hf"):
        refusing.apply(asked, None)


def test_a_budget_for_a_video_is_refused_and_a_servers_default_is_not_for_videos() -> None:
    from vllm.multimodal.processing import ProcessorInputs

    def asked(**keywords: object) -> Any:
        items: Any = {"image": [photo()], "video": [photo()]}
        return ProcessorInputs([1, 2], items, None, keywords)

    assert Choosing({"foveate_budget": 9}).apply(asked(), None) == "stock"
    assert Choosing().apply(asked(foveate_budget=None), None) == "stock"
    with pytest.raises(FoveateError, match="foveate_budget=9 for a request with video"):
        Choosing().apply(asked(foveate_budget=9), None)


def test_every_other_architecture_with_a_processor_refuses() -> None:
    others = other_architectures(FAMILIES)
    assert not set(others) & {*FAMILIES, "LlamaForCausalLM", "EagleLlamaForCausalLM"}
    for name in ("PaddleOCRVLForConditionalGeneration", "InternVLChatModel", "TransformersMultiModalEmbeddingModel"):
        assert name in others
        found = getattr(families, f"{name}__0_32_0")
        stock = find_stock(name)
        assert issubclass(found, stock)
        assert found.__name__ == stock.__name__
        assert found._processor_factory is not stock._processor_factory
    assert families.BertModel is find_stock("BertModel")  # it has no processor
    with pytest.raises(AttributeError, match="NoSuchModel"):
        _ = families.NoSuchModel


def test_models_of_transformers_are_served_by_their_own_names() -> None:
    def mixin(name: str, architecture: str) -> Any:
        info = SimpleNamespace(get_hf_config=lambda: SimpleNamespace(architectures=[architecture]))
        return families._mixin_for(name, info)[0]

    behind = families.BACKEND[0]
    assert all(mixin(behind, name) is ChoosingProcessor for name in families.BEHIND)
    assert mixin(behind, "BlipForConditionalGeneration") is RefusingProcessor
    assert mixin(FAMILIES[0], FAMILIES[0]) is ChoosingProcessor


def test_a_model_of_transformers_that_is_not_served_is_the_stock_one(start: Callable[..., Engine]) -> None:
    """No memory for features, no rows of positions, nothing of ours."""
    engine = start("internvl", model_impl="transformers")
    assert type(engine.model) is find_stock(families.BACKEND[0])
    assert not engine.llm.model_config.uses_mrope
    with pytest.raises(ModelError, match=r"foveate_budget=5 for InternVL.*, which vLLM runs by Transformers") as caught:
        engine.ask(Ask(DOG, keywords={"foveate_budget": 5}))
    assert set(families.BACKEND).isdisjoint(caught.value.expected.split(", "))
    compare(engine, Ask(DOG))


# --- positions in one dimension ---------------------------------------------------------------------------------------


class StockModel:
    """Says which positions it was given."""

    def __init__(self, *, vllm_config: Any, prefix: str) -> None:
        pass

    def forward(self, input_ids: Any, positions: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        return positions


class Flat(FlatPositions, StockModel):
    pass


def test_a_stock_model_sees_one_row_of_positions_in_the_memory_where_they_were() -> None:
    """torch compiles the language model for one row, and a captured graph reads where it read before."""
    model = SimpleNamespace(
        hf_config=SimpleNamespace(mrope_section=SECTION),
        hf_text_config=SimpleNamespace(max_position_embeddings=50),
        max_model_len=40,
    )
    flat = Flat(vllm_config=SimpleNamespace(model_config=model))
    rows, delta = flat.get_mrope_input_positions([7] * 6, [])
    assert delta == 0
    assert rows.tolist() == [list(range(6))] * len(SECTION)
    rows = rows + 46
    found = flat.forward(None, rows)
    assert found.tolist() == [46, 47, 48, 49, 49, 49]
    assert found.data_ptr() == rows.data_ptr()
    assert flat.forward(None, torch.arange(STEPS)).tolist() == list(range(STEPS))
