"""What gives wrong answers without an error, and what must be an error."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import foveate.vlm
from examples.tiny_vlms import tiny
from foveate.core.errors import (
    BudgetError,
    ChannelError,
    EncoderNameError,
    ImageArrayError,
    ImageNotFoundError,
    ModelError,
    OptionError,
    PromptError,
    QueryError,
    SceneError,
)
from foveate.vlm import VLM, Choosing
from foveate.vlm.families.family import Family
from foveate.vlm.families.features import mark_of
from foveate.vlm.inputs.images import process_images
from foveate.vlm.inputs.prompt import prompt_ids
from tests.conftest import PHOTOS
from tests.test_vlm import EXACT, QUESTION, QWENS, generated, stock_inputs
from tests.vlm_models import FAMILIES, TEXT, attached, encoded, pair, photo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
FEW = {"max_new_tokens": 3}
BUS = PHOTOS / "yellow_bus.jpg"


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@torch.no_grad()
def logits(vlm: VLM, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.as_tensor(vlm.model(**inputs, use_cache=True).logits[0, -1])


# --- traps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "qwen3_vl"])
def test_without_positions_the_answer_would_differ(name: str) -> None:
    """Trap 1: compact positions raise nothing. This is why `prepare` always passes them."""
    vlm = attached(name)
    prepared = vlm.prepare(encoded(name), QUESTION, budget=6, method="uniform")
    right = logits(vlm, prepared.inputs())
    without = {key: value for key, value in prepared.inputs().items() if key != "position_ids"}
    assert (logits(vlm, without) - right).abs().max() > 100 * EXACT


def test_nothing_is_passed_from_which_positions_could_be_made_anew(family: str) -> None:
    """Traps 2 and 4: grids and token types of the full prompt beside short ids, and embeddings in place of ids."""
    given = attached(family).prepare(encoded(family), QUESTION, budget=4).inputs()
    assert set(given) == {"input_ids", "attention_mask", "position_ids", "mm_encoder_outputs"}


def test_without_a_cache_gaps_would_be_borders() -> None:
    """Trap 3: `generate` drops a mask of ones, and then takes gaps in positions for borders between prompts."""
    vlm, image = attached("llava"), encoded("llava", 2)
    how: dict[str, Any] = {"budget": 5, "method": "uniform"}
    naive = generated(vlm, vlm.prepare(image, QUESTION, **how).inputs(), use_cache=False)[1]
    right = generated(vlm, vlm.prepare(image, QUESTION, **how).inputs())[1]
    assert (naive[0] - right[0]).abs().max() > 100 * EXACT
    cached = vlm.ask(image, QUESTION, **how, generation=FEW).ids
    assert np.array_equal(vlm.ask(image, QUESTION, **how, generation={"use_cache": False, **FEW}).ids, cached)
    model, processor = copy.deepcopy(pair("llava"))
    model.generation_config.use_cache = False  # as fine-tuned models are often saved
    never = foveate.vlm.attach(model, processor)
    assert np.array_equal(never.ask(never.see(photo(seed=2)), QUESTION, **how, generation=FEW).ids, cached)


def test_deepstack_is_not_lost() -> None:
    """Trap 4: without the further features Qwen3-VL answers, and differently."""
    vlm = attached("qwen3_vl")
    prepared = vlm.prepare(encoded("qwen3_vl"), QUESTION, budget=8)
    assert [len(level[0]) for level in prepared.features.levels] == [8, 8, 8]
    right, without = prepared.inputs(), prepared.inputs()
    for level in without["mm_encoder_outputs"]["image"].deepstack_features:
        level[0] = torch.zeros_like(level[0])
    assert (logits(vlm, right) - logits(vlm, without)).abs().max() > 10 * EXACT


def test_generate_never_changes_an_encoded_image(family: str) -> None:
    """Trap 5: beams and several sequences write into the object that carries the features."""
    vlm, image = attached(family), encoded(family)
    assert image.features is not None
    before = copy.deepcopy(image.features)
    first = vlm.ask(image, QUESTION, budget=None, generation=FEW)
    vlm.ask(image, QUESTION, budget=None, generation={**FEW, "num_beams": 3})
    inputs = vlm.prepare(image, QUESTION, budget=None).inputs()
    out = vlm.model.generate(**inputs, **FEW, do_sample=True, num_return_sequences=3, pad_token_id=0)
    assert len(out) == 3
    for now, then in zip(image.features.rows, before.rows, strict=True):
        assert torch.equal(now, then)
    assert np.array_equal(vlm.ask(image, QUESTION, budget=None, generation=FEW).ids, first.ids)


@pytest.mark.parametrize("name", QWENS)
def test_the_model_answers_others_as_before(name: str) -> None:
    """Trap 6: offsets of positions that a call leaves behind in the model must not reach the next one."""
    vlm, images = attached(name), [photo(seed=5)]
    stock = generated(vlm, stock_inputs(vlm, images))
    vlm.ask(vlm.see(photo(90, 220, seed=6)), QUESTION, budget=3, generation=FEW)
    assert torch.equal(stock[1], generated(vlm, stock_inputs(vlm, images))[1])
    assert not [module for module in vlm.model.modules() if module._forward_hooks or module._forward_pre_hooks]


# --- modes ------------------------------------------------------------------------------------------------------------


def test_weights_of_one_are_the_stock_model_and_gradients_flow(family: str) -> None:
    vlm, image = attached(family), encoded(family)
    ones = [torch.ones(layout.count, requires_grad=True) for layout in image.layouts]
    prepared = vlm.prepare(image, QUESTION, mode="weight", choosing=Choosing(weights=ones))
    out = vlm.model(**prepared.inputs(), use_cache=True).logits[0, -1]
    stock = generated(vlm, stock_inputs(vlm, [photo()]), max_new_tokens=1)[1][0, 0]
    assert (out.detach() - stock).abs().max() <= EXACT / 10  # kernels differ a little where gradients are kept
    out.max().backward()
    assert ones[0].grad is not None
    assert (ones[0].grad != 0).any()


def test_usual_weights_follow_the_map() -> None:
    vlm = attached("qwen2_5_vl")
    image = vlm.see(BUS)
    prepared = vlm.prepare(image, "the yellow bus", mode="weight")
    assert image.features is not None
    norms = prepared.features.rows[0].norm(dim=1) / image.features.rows[0].norm(dim=1)
    (grid,) = image.layouts[0].grids
    plane = prepared.relevance[0].on(foveate.Grid(grid.h, grid.w, *image.images[0].shape[:2])).map.ravel()
    assert norms.min() >= 0.5 - 1e-5
    assert norms.max() <= 1 + 1e-5
    assert np.corrcoef(norms.numpy(), plane)[0, 1] > 0.99
    assert prepared.keep.all()


@pytest.mark.filterwarnings("ignore::foveate.core.errors.BudgetWarning")  # the tiny model has 16 tokens a crop
@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "qwen3_vl"])
def test_crops_are_further_images(name: str) -> None:
    vlm = attached(name)
    answer = vlm.ask(vlm.see(BUS), "the yellow bus", mode="crop", budget=120, generation=FEW)
    assert answer.regions is not None
    assert len(answer.chosen) == 1 + len(answer.regions)
    kept = sum(choice.count for choice in answer.chosen)
    assert kept == 120 if name != "llava" else kept <= 120  # the tiny one has 16 tokens an image


# --- models and processors --------------------------------------------------------------------------------------------


def test_what_is_no_model_of_a_family() -> None:
    class Other(torch.nn.Module):
        def forward(self, mm_encoder_outputs: Any = None) -> None: ...

    with pytest.raises(ModelError) as caught:
        foveate.vlm.attach(Other(), None)
    assert all(name in str(caught.value) for name in ("foveate.vlm.FAMILIES", "layouts", "encode", "positions"))
    with pytest.raises(ModelError, match="class LlamaForCausalLM") as caught:  # of the library, and without vision
        foveate.vlm.attach(LlamaForCausalLM(LlamaConfig(**TEXT)), pair("llava")[1])
    assert "pip install" not in caught.value.fix
    for name in ("Qwen/Qwen2.5-VL-3B-Instruct", Path("Qwen/Qwen2.5-VL-3B-Instruct")):
        with pytest.raises(ModelError, match="by its name") as caught:
            foveate.vlm.attach(name)
        assert "load('Qwen/Qwen2.5-VL-3B-Instruct')" in caught.value.fix


def test_a_transformers_that_is_too_old_or_breaks_smolvlm(monkeypatch: pytest.MonkeyPatch) -> None:
    def forward(self: Any, input_ids: Any = None) -> None: ...

    old = type("LlavaForConditionalGeneration", (type(pair("llava")[0]),), {"forward": forward})
    with pytest.raises(ModelError, match=r"5\.18"):
        foveate.vlm.attach(object.__new__(old), pair("llava")[1])
    monkeypatch.setattr("transformers.__version__", "5.20.2")
    with pytest.raises(ModelError, match=r"5\.20\.2.*\n.*\n.*transformers>=5\.21"):
        foveate.vlm.attach(*pair("smolvlm"))
    foveate.vlm.attach(*pair("idefics3"))


def test_a_processor_whose_settings_changed() -> None:
    model, processor = copy.deepcopy(pair("internvl"))
    vlm = foveate.vlm.attach(model, processor)
    assert len(vlm.see(photo(120, 180)).layouts[0].grids) == 7
    processor.image_processor.max_patches = 2
    assert len(vlm.see(photo(120, 180)).layouts[0].grids) < 7


def test_another_thread_sees_the_whole_encoder() -> None:
    vlm, image = attached("llava"), encoded("llava", 1, mode="sparse")
    model, lengths = vlm.model.model, []
    stock = model.get_image_features

    @wraps(stock)
    def between(*args: Any, **keywords: Any) -> Any:
        thread = threading.Thread(target=lambda: lengths.append(len(stock(*args, **keywords).pooler_output[0])))
        thread.start()
        thread.join()
        return stock(*args, **keywords)

    model.__dict__["get_image_features"] = between
    try:
        assert len(vlm.prepare(image, QUESTION, budget=5, mode="sparse").features.rows[0]) == 5
    finally:
        del model.__dict__["get_image_features"]
    assert lengths == [16]


# --- prompts, questions, generation -----------------------------------------------------------------------------------


def test_hand_written_prompts_and_templates_that_fail() -> None:
    vlm, image = attached("llava"), encoded("llava")
    content = [{"type": "image"}, {"type": "text", "text": QUESTION}]
    text = vlm.processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
    )
    usual, own = (vlm.prepare(image, QUESTION, budget=7, prompt=prompt) for prompt in (None, text))
    assert torch.equal(usual.text["input_ids"], own.text["input_ids"])
    with pytest.raises(PromptError, match="token"):
        attached("qwen2_5_vl").ask(encoded("qwen2_5_vl"), "what is <|video_pad|> here?", budget=3)
    strings = "{% for m in messages %}{{ 'USER: ' + m['content'] }}{% endfor %}"
    for template, words in ((None, "chat template"), (strings, "prompt=")):
        model, processor = pair("llava")
        processor = copy.copy(processor)
        processor.chat_template = template
        bare = foveate.vlm.attach(model, processor)
        with pytest.raises(PromptError, match=words):
            bare.ask(bare.see(photo()), QUESTION)
        prompt = "USER: <image>\nwhat? ASSISTANT:"
        assert bare.ask(bare.see(photo()), QUESTION, prompt=prompt, budget=5, generation=FEW).tokens[0] == 5


def test_usual_use_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attached("llava").ask(encoded("llava"), QUESTION, budget=5, generation=FEW)


def test_generation_is_what_the_caller_says() -> None:
    vlm, image = attached("llava"), encoded("llava")
    config = GenerationConfig(max_new_tokens=3, min_new_tokens=3, pad_token_id=0)
    assert len(vlm.ask(image, QUESTION, budget=5, generation={"generation_config": config}).ids) == 3
    assert len(vlm.ask(image, QUESTION, budget=5, max_new_tokens=2, generation={"min_new_tokens": 2}).ids) == 2
    several = GenerationConfig(num_return_sequences=2, do_sample=True)
    for wrong, words in (
        ({"input_ids": 1}, "generation"),
        ({"prompt_lookup_num_tokens": 3}, "generation"),
        ({"num_return_sequences": 2, "do_sample": True}, "num_return_sequences=2"),
        ({"generation_config": several}, "num_return_sequences=2"),
    ):
        with pytest.raises(OptionError, match=words):
            vlm.ask(image, QUESTION, budget=5, generation=wrong)
        with pytest.raises(OptionError, match=words):
            vlm.ask_many(image, [QUESTION], budget=5, generation=wrong)


def test_answers_refuses_what_does_not_belong_together() -> None:
    qwen, older = attached("qwen2_5_vl"), attached("qwen2_vl")
    prepared = qwen.prepare(encoded("qwen2_5_vl"), QUESTION, budget=5)
    video = qwen.prepare(qwen.see_video([photo()] * 2), QUESTION, budget=5)
    for vlm, made, words in ((older, [prepared], "another model"), (qwen, [prepared, video], "videos"),
                             (qwen, [], "no prepared")):  # fmt: skip
        with pytest.raises(SceneError, match=words):
            vlm.answers(made, FEW)
    other = qwen.prepare(qwen.see(photo(90, 220)), "a dog", budget=9)
    both = qwen.answers([prepared, other], FEW)
    assert np.array_equal(both[1].ids, qwen.answers([other], FEW)[0].ids)


# --- budgets and windows ----------------------------------------------------------------------------------------------


def test_budgets() -> None:
    vlm, image = attached("llava"), encoded("llava")
    with pytest.warns(UserWarning, match="16 visual tokens"):
        assert vlm.ask(image, QUESTION, budget=99, generation=FEW).tokens == (16, 16)
    wrong: list[Any] = [0, -1, 2.5, True, "all", (3, 4), ()]
    for budget in wrong:
        with pytest.raises(BudgetError):
            vlm.prepare(image, QUESTION, budget=budget)
    two = vlm.see([photo(), photo(seed=1)])
    with pytest.raises(BudgetError, match="2 images"):
        vlm.prepare(two, QUESTION, budget=8)
    assert [choice.count for choice in vlm.prepare(two, QUESTION, budget=(3, 5)).chosen] == [3, 5]
    assert vlm.prepare(two, QUESTION, budget="auto").tokens[0] >= 2
    with pytest.raises(BudgetError, match="3 budgets for 2"):
        vlm.ask_many(image, ["a", "b"], budget=[1, 2, 3])


def test_whole_windows() -> None:
    vlm = attached("qwen2_5_vl")
    image = encoded("qwen2_5_vl", size=(230, 230))
    kept = vlm.prepare(image, QUESTION, budget="auto", choosing=Choosing(window=(4, 4))).chosen[0].kept[0].mask
    assert kept.shape == (8, 8)
    assert kept.sum() == 16 * kept.reshape(2, 4, 2, 4).any((1, 3)).sum()
    with pytest.raises(BudgetError, match="whole windows"):
        vlm.prepare(image, QUESTION, budget=5, choosing=Choosing(window=(4, 4)))
    with pytest.raises(OptionError, match="grids"):
        attached("internvl").prepare(encoded("internvl"), QUESTION, budget=4, choosing=Choosing(window=(2, 2)))


def test_an_encoder_of_windows_alone_loses_nothing_where_they_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    vlm = attached("qwen2_5_vl")
    monkeypatch.setattr(vlm.model.model.visual, "fullatt_block_indexes", [])
    dense, sparse = vlm.see(photo(336, 336)), encoded("qwen2_5_vl", size=(336, 336), mode="sparse")
    assert dense.features is not None
    lost = []
    for window in ((4, 4), None):
        prepared = vlm.prepare(sparse, QUESTION, budget=64, mode="sparse", choosing=Choosing(window=window))
        rows = dense.features.take([prepared.chosen[0].rows]).rows[0]
        lost.append(float((prepared.features.rows[0] - rows).abs().max() / rows.abs().max()))
    assert lost[0] <= 1e-5
    assert lost[1] > 0.02


def test_what_to_look_for_may_differ_from_the_question() -> None:
    vlm = attached("llava")
    image = vlm.see(BUS)
    ours = vlm.prepare(image, "what is it doing?", budget=4, relevance="the bus")
    bus = vlm.prepare(image, "the bus", budget=4)
    assert np.array_equal(ours.chosen[0].rows, bus.chosen[0].rows)
    assert len(ours.keep) != len(bus.keep)


@pytest.mark.filterwarnings("ignore::foveate.vlm.QuestionWarning")
@pytest.mark.parametrize("name", ["llava_next", "idefics3", "smolvlm", "internvl", "video"])
def test_a_question_that_names_nothing_spreads_over_all_grids(name: str) -> None:
    vlm = attached("qwen2_5_vl" if name == "video" else name)
    image = vlm.see_video([photo(112, 112, seed=n) for n in range(8)]) if name == "video" else encoded(name)
    kept = vlm.prepare(image, "why?", budget=20).chosen[0].kept
    assert sum(map(len, kept)) == 20
    assert all(len(each) for each in kept)


@pytest.mark.filterwarnings("ignore::foveate.vlm.QuestionWarning")
def test_transparent_tiles_come_last_and_protected_tokens_first() -> None:
    vlm = attached("idefics3")
    clear = np.zeros((150, 200), np.uint8)
    clear[75:] = 255
    kept = vlm.prepare(vlm.see(np.dstack([photo(), clear])), "why?", budget=16).chosen[0].kept
    assert [len(each) for each in kept[:2]] == [0, 0]
    mask = np.zeros((10, 10), bool)
    mask[9, 9] = mask[0, 0] = True
    chosen = (
        vlm.prepare(encoded("idefics3"), "a red thing", budget=12, choosing=Choosing(protected=mask)).chosen[0].kept
    )
    assert chosen[0].mask[0, 0]
    assert chosen[3].mask[-1, -1]


# --- encoded images ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["drop", "sparse"])
def test_copies_and_pickles(mode: Any) -> None:
    """A copy would be of another model; so it is the value itself. A pickle would be the model."""
    vlm, image = attached("qwen3_vl"), encoded("qwen3_vl", mode=mode)
    for value in (image, vlm.prepare(image, QUESTION, budget=5, mode=mode)):
        assert copy.copy(value) is copy.deepcopy([value])[0] is value
        with pytest.raises(SceneError, match=rf"a {type(value).__name__} to be pickled[^$]*see the image again"):
            pickle.dumps(value)
    answer = vlm.ask(image, QUESTION, budget=5, mode=mode, generation=FEW)
    again = pickle.loads(pickle.dumps(answer))
    assert (again.text, again.tokens, again.mode) == (answer.text, answer.tokens, mode)
    assert np.array_equal(again.chosen[0].kept[0].mask, answer.chosen[0].kept[0].mask)
    texture = pickle.loads(pickle.dumps(image.textures[0]))
    assert np.array_equal(foveate.score(texture, "a dog").map, foveate.score(image.textures[0], "a dog").map)


def llava(name: str = "llava", question: Any = QUESTION, seen: str = "drop", **how: Any) -> Any:
    return attached(name).ask(encoded(name, mode=seen), question, **how)


def attach(model: str, processor: str | None = None, **how: Any) -> Any:
    return foveate.vlm.attach(pair(model)[0], None if processor is None else pair(processor)[1], **how)


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # models and processors
    (lambda: attach("llava", "qwen2_5_vl"), ModelError, "(?i)processor"),
    (lambda: attach("qwen3_vl", "qwen2_5_vl"), ModelError, "(?i)processor"),
    (lambda: attach("internvl", "llava"), ModelError, "(?i)processor"),
    (lambda: foveate.vlm.attach(*pair("llava")[::-1]), ModelError, r"attach\(model, processor\)"),
    (lambda: foveate.vlm.attach(pair("llava")[1]), ModelError, r"attach\(model, processor\)"),
    (lambda: foveate.vlm.attach(pair("llava")[0], pair("llava")[1].tokenizer), ModelError, "tokenizer"),
    (lambda: attach("llava", "llava", encoder="best"), EncoderNameError, "best"),
    # images
    (lambda: attached("llava_next").see(photo(1, 500)), ImageArrayError, "pixels"),
    (lambda: attached("llava_next").see(photo(500, 1)), ImageArrayError, "pixels"),
    (lambda: attached("qwen2_vl").see(photo(1, 500)), ImageArrayError, "pixels"),
    (lambda: attached("llava").see([]), SceneError, "at least one"),
    (lambda: attached("llava").see(photo(), mode="prune"), OptionError, "drop"),  # type: ignore[arg-type]
    (lambda: attached("llava").see(photo(), mode=None), OptionError, "drop"),  # type: ignore[arg-type]
    (lambda: attached("llava").ask(encoded("qwen2_5_vl"), QUESTION), SceneError, "another model"),
    (lambda: attached("llava").ask("photo.jpg", QUESTION), SceneError, "str"),  # type: ignore[arg-type]
    # modes that an image was not encoded for
    (lambda: llava(seen="sparse", mode="drop"), SceneError, "not encoded"),
    (lambda: llava(seen="sparse", mode="sparse", budget=5, method="maxmin"), SceneError, "compares the model's"),
    (lambda: llava(seen="sparse", mode="sparse", budget=5, method="downsample"), SceneError, "downsample"),
    (lambda: llava(mode="sparse"), SceneError, "sparse"),
    (
        lambda: attached("llava_onevision").ask(encoded("llava_onevision", mode="sparse"), QUESTION, mode="sparse"),
        ModelError,
        "sparse",
    ),
    (lambda: llava(mode="crop", prompt="<image> what?"), PromptError, "crop"),
    (lambda: llava(mode="crop", budget=10), BudgetError, "64"),
    (
        lambda: attached("llava").ask(attached("llava").see([photo()] * 2), QUESTION, mode="crop"),
        SceneError,
        "2 images",
    ),
    # prompts, questions and keywords
    (lambda: llava(prompt="USER: what is it? ASSISTANT:"), PromptError, "0 image tokens"),
    (lambda: llava(prompt="<image><image> what is it?"), PromptError, "2 image tokens"),
    (lambda: llava(question="<image> what is it?"), PromptError, "question with the image token"),
    (lambda: llava(question="  "), QueryError, "question"),
    (lambda: llava(question=None), QueryError, "question"),
    (lambda: llava(mode="weight", choosing=Choosing(weights=[torch.ones(3)])), OptionError, "weights"),
    (lambda: llava(choosing=Choosing(weights=[torch.ones(16)])), OptionError, "weights= outside of mode"),
    (lambda: llava(choosing={"floor": 0.1}), OptionError, "choosing"),
    (lambda: llava(scoring={"prior": "gaze"}), ChannelError, "gaze"),
    (lambda: llava(method="best"), OptionError, "best"),
    (lambda: llava(budgets=5), OptionError, "budgets"),
    (lambda: attached("llava").ask_many(encoded("llava"), "a dog"), OptionError, "list of texts"),
    # videos
    (lambda: attached("qwen2_5_vl").see_video([]), SceneError, "no frames"),
    (lambda: attached("qwen2_5_vl").see_video([photo(), photo(90, 90)]), ImageArrayError, "one size"),
    (lambda: attached("qwen2_5_vl").see_video([photo()], fps=0), OptionError, "fps"),
    (lambda: attached("llava").see_video([photo()]), ModelError, "several images"),
]


@pytest.mark.parametrize(("wrong", "error", "words"), REFUSED)
def test_what_is_refused_and_named(wrong: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        wrong()


def test_an_address_is_no_file() -> None:
    for address in ("https://example.org/photo.jpg", Path("https://example.org/photo.jpg")):
        with pytest.raises(ImageNotFoundError, match=r"'https://example\.org/photo\.jpg'") as missing:
            attached("llava").see(address)
        assert "download it first" in missing.value.fix


def test_times_of_a_video_are_not_rounded_to_the_models_format() -> None:
    model, processor = copy.deepcopy(pair("qwen2_5_vl"))
    video = foveate.vlm.attach(model.to(torch.bfloat16), processor).see_video([photo()] * 4, fps=3)
    assert video.inputs["second_per_grid_ts"].dtype == torch.float32


@pytest.mark.skipif("FOVEATE_TRANSFORMERS" in os.environ, reason="its Gemma 3 is not tested")
@pytest.mark.parametrize("name", ["gemma3", "llava", "internvl"])
def test_a_tokenizer_that_joins_letters(name: str) -> None:
    """Gemma 3's processor writes line ends around an image: with those beside them they are other tokens."""
    model, processor = tiny(name)
    processor = copy.copy(processor)
    plain = processor.tokenizer
    raw = Tokenizer(models.BPE())
    lines = Regex(r"\s*[\r\n]+|\s+|[^\s]+")  # as GPT-4's, line ends and the spaces before them are one
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.Split(lines, "isolated"), decoders.Fuse()
    raw.train_from_iterator(["\n\n\n what is this? \n\n =#= and" * 50], trainers.BpeTrainer(show_progress=False))
    roles = ("image_token", "boi_token", "eoi_token", "start_image_token", "end_image_token", "context_image_token")
    named = {role: getattr(plain, role) for role in (*roles, "video_token") if hasattr(plain, role)}
    words = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", extra_special_tokens=named)
    whole = [str(token) for token in plain.added_tokens_decoder.values()]
    words.add_special_tokens({"additional_special_tokens": whole})
    processor.tokenizer = words
    processor.image_token_id = words.convert_tokens_to_ids(processor.image_token)
    images = [Image.fromarray(photo(seed=n)) for n in range(2)]
    vlm = VLM(model, processor, Family(name), "nano")
    mark = mark_of(processor)
    _, spans = process_images(vlm, images)
    prompt = f"\n\n{mark}\n what is this? {mark}\n\n"
    stock = processor(images=images, text=prompt, return_tensors="np")["input_ids"][0]
    ours = prompt_ids(processor, prompt, spans)
    assert np.array_equal(ours, stock)
    assert any(span.text is not None for span in spans) == (name == "gemma3")
    assert any("\n\n\n" in token for token in words.convert_ids_to_tokens(ours)) == (name == "gemma3")
