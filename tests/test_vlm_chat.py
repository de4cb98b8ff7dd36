"""Dialogues: every round equals the stock model with the same messages, selects anew, and leaves no tensors behind."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import foveate
from foveate.core.errors import BudgetError, OptionError, PromptError, QueryError, SceneError
from foveate.core.grid import Grid
from foveate.relevance import ScoringOptions
from foveate.vlm import VLM, Answer, Chat, Choosing, QuestionWarning, Turn
from foveate.vlm.chat import attention_planes
from foveate.vlm.context import Context, score_in_context
from foveate.vlm.families.token_layout import TokenGrid, project, spread
from foveate.vlm.inputs.prompt import prompt_text
from tests.conftest import PHOTOS
from tests.vlm_models import FAMILIES, SPECIAL, attached, encoded, pair, photo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
GREEDY = {"max_new_tokens": 4, "suppress_tokens": list(range(len(SPECIAL)))}
EXACTLY = Choosing(floor=0.0)  # no even spread
ROUNDS = ("where is the dog?", "and what colour is it?", "where is the sign?")


@pytest.fixture
def eager() -> Iterator[VLM]:
    vlm = attached("llava_next")
    vlm.model.set_attn_implementation("eager")
    yield vlm
    vlm.model.set_attn_implementation("sdpa")


def stock(vlm: VLM, images: list[np.ndarray], earlier: list[tuple[str, str]], question: str) -> list[int]:
    """Ids of the stock model's answer to messages, laid out by its own template and processor."""
    messages: list[dict[str, Any]] = []
    for asked, answer in earlier:
        messages += [
            {"role": "user", "content": [{"type": "text", "text": asked}]},
            {"role": "assistant", "content": [{"type": "text", "text": answer}]},
        ]
    messages.append({"role": "user", "content": [{"type": "text", "text": question}]})
    messages[0]["content"] = [*({"type": "image"} for _ in images), *messages[0]["content"]]
    text = vlm.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    inputs = vlm.processor(images=[Image.fromarray(image) for image in images], text=text, return_tensors="pt")
    out = vlm.model.generate(**inputs, **GREEDY, do_sample=False, pad_token_id=0)
    return [int(n) for n in out[0, inputs["input_ids"].shape[1] :]]


# --- rounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", list(FAMILIES))
def test_all_tokens_in_every_round_are_the_stock_model(family: str) -> None:
    vlm, images = attached(family), [photo(seed=1), photo(90, 130, seed=2)]
    chat = vlm.chat(vlm.see(images), generation=GREEDY, budget=None)
    for number, question in enumerate(ROUNDS):
        earlier = [(turn.question, turn.answer) for turn in chat.turns]
        assert len(earlier) == number
        assert chat.ask(question).ids.tolist() == stock(vlm, images, earlier, question)


@pytest.mark.parametrize("mode", ["drop", "sparse"])
def test_every_round_selects_from_all_tokens(mode: Any) -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl", 3, mode=mode)
    chat = vlm.chat(image, generation=GREEDY, mode=mode, budget=5)
    corner, other = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32)
    corner[:3, :3], other[-3:, -3:] = 1, 1
    rows = [
        set(chat.ask("x", relevance=plane, choosing=Choosing(floor=0)).chosen[0].rows)
        for plane in (corner, other, corner)
    ]
    assert rows[0] == rows[2]
    assert not rows[0] & rows[1]
    assert [turn.tokens for turn in chat.turns] == [(5, image.tokens[0])] * 3
    assert chat.turns[0].prompt < chat.turns[1].prompt < chat.turns[2].prompt


def test_a_question_that_goes_back_looks_where_the_dialogue_looked(recwarn: pytest.WarningsRecorder) -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl", 3)
    plane = np.zeros(image.textures[0].grid.shape, np.float32)
    plane[:12, :12] = 1
    chat = vlm.chat(image, generation=GREEDY, budget=4, choosing=EXACTLY, prior_weight=0.6)
    first = chat.ask("x", relevance=plane)
    wholly = chat.ask("and what colour is it?")
    assert (wholly.chosen[0].rows == first.chosen[0].rows).all()
    assert wholly.relevance[0].followed
    partly, own = chat.prepare("what breed is that dog?"), chat.prepare("the dog")
    assert "prior" in partly.relevance[0].reasons
    assert "prior" not in own.relevance[0].reasons
    alone = vlm.prepare(image, "the dog", budget=4, choosing=EXACTLY)
    assert (own.relevance[0].map == alone.relevance[0].map).all()
    assert "prior" not in chat.prepare("is it open?", relevance="the dog").relevance[0].reasons
    assert (
        chat.prepare("is it open?", scoring=ScoringOptions(prior="saliency")).relevance[0].reasons["prior"] < 1
    ).any()
    chat.ask("what is it?", scoring=ScoringOptions(prior_weight=0.0))
    assert [turn.prior_weight for turn in chat.turns] == [0, 1, 0]
    assert not [w for w in recwarn if issubclass(w.category, QuestionWarning) and "stands out" not in str(w.message)]
    fresh = vlm.chat(image, generation=GREEDY, budget=4)
    with pytest.warns(QuestionWarning, match="stands out"):
        fresh.ask("why?")


def test_the_history_keeps_what_was_named_whatever_weight_is_given() -> None:
    vlm, image = attached("llava"), encoded("llava", 1)
    chat = vlm.chat(image, generation=GREEDY, budget=4, decay=0.0)
    chat.ask("a cat")
    dog = chat.ask("a dog", scoring=ScoringOptions(prior_weight=0.5)).relevance[0]
    assert "prior" in dog.reasons
    assert np.allclose(chat.textures[0].channel("history"), dog.map, atol=1e-3)
    chat.ask(
        "and its wheels?", scoring=ScoringOptions(prior_weight=0.0)
    )  # goes back, though nothing of the dialogue counts
    assert np.allclose(chat.textures[0].channel("history"), dog.map, atol=1e-3)


def test_a_history_of_nothing_is_no_prior() -> None:
    chat = attached("llava").chat(encoded("llava", 1), generation=GREEDY, budget=4)
    with pytest.warns(QuestionWarning):
        chat.ask("why?")
    assert not chat.textures[0].channel("history").any()
    red = chat.ask("is it red?")
    assert red.relevance[0].map.any()
    assert "prior" not in red.relevance[0].reasons
    assert chat.turns[1].prior_weight == 0
    assert chat.textures[0].channel("history").any()


def test_a_prior_brings_its_weight() -> None:
    vlm, image = attached("llava"), encoded("llava", 1)
    plane = np.zeros(image.textures[0].grid.shape, np.float32)
    plane[:4, :4] = 1
    whole, usual = ScoringOptions(prior=plane, prior_weight=0.9), ScoringOptions(prior=plane)
    for given, scoring in ((whole, whole), (ScoringOptions(prior=plane, prior_weight=0.3), usual)):
        literal = vlm.prepare(image, "a dog", scoring=given).relevance[0].map
        assert np.allclose(vlm.chat(image, scoring=scoring).prepare("a dog").relevance[0].map, literal)
        assert np.allclose(vlm.chat(image).prepare("a dog", scoring=scoring).relevance[0].map, literal)
    for weight, scoring in ((0.9, given), (0.3, usual)):
        by_round = vlm.chat(image, prior_weight=weight).prepare("a dog", scoring=scoring).relevance[0].map
        assert np.allclose(by_round, literal)


def test_a_gaze_stays_but_in_questions_that_name_nothing() -> None:
    vlm = attached("llava")
    texture = foveate.encode(photo(seed=1))
    gaze = np.zeros(texture.grid.shape, np.float32)
    gaze[:4, :4] = 1
    image = vlm.see(texture.with_channel("gaze", gaze), preset="gaze")
    chat = vlm.chat(image, generation=GREEDY, budget=4)
    first = chat.ask("a dog")
    history = chat.textures[0].channel("history")
    for question, prior, weight in (("and its wheels?", gaze, 0.0), ("and what colour is it?", history, 1.0)):
        chat.ask(question)
        assert chat.turns[-1].prior_weight == weight
        found = chat.prepare(question).relevance[0]
        assert np.allclose(found.reasons["prior"], prior, atol=1e-3)
    assert np.allclose(first.relevance[0].reasons["prior"], gaze, atol=1e-3)
    plain = ScoringOptions(preset="medium")
    own = chat.prepare("and its wheels?", scoring=plain).relevance[0]  # without the gaze there is the dialogue
    assert np.allclose(own.reasons["prior"], history, atol=1e-3)


def test_planes_of_the_dialogue_are_planes_of_textures() -> None:
    vlm = attached("qwen2_5_vl")
    images = vlm.see([photo(seed=1), photo(90, 130, seed=2)])
    chat = vlm.chat(images, generation=GREEDY, budget=(4, 3), decay=0.5)
    assert chat.textures == images.textures
    first, second = (chat.ask(text).relevance for text in ("a dog", "a cat"))
    for i, texture in enumerate(chat.textures):
        literal = np.maximum(0.5 * first[i].map, second[i].map)
        assert np.allclose(texture.channel("history"), literal, atol=1e-3)
        found = foveate.score(texture, "a bus", prior="history", prior_weight=1.0)
        assert np.allclose(found.map, literal, atol=1e-3)
    follow = chat.ask("is it open?")
    assert np.allclose(follow.relevance[1].map, chat.textures[1].channel("history"), atol=1e-3)


def test_forgetting() -> None:
    chat = attached("llava").chat(encoded("llava", 1), generation=GREEDY, budget=4)
    for question in ROUNDS:
        chat.ask(question)
    chat.forget(2)
    assert [turn.question for turn in chat.turns] == [ROUNDS[2]]
    assert chat.textures[0].has("history")
    with pytest.raises(OptionError, match="rounds=2"):
        chat.forget(2)
    chat.forget()
    assert chat.turns == ()
    assert not chat.textures[0].has("history")
    assert chat.ask("the dog").ids.tolist() == attached("llava").ask(
        encoded("llava", 1), "the dog", generation=GREEDY, budget=4
    ).ids.tolist()  # fmt: skip


def test_60_rounds_leave_texts_and_planes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    vlm, image = attached("llava"), encoded("llava", 1)
    monkeypatch.setattr(vlm.model.config.text_config, "max_position_embeddings", 10**6)
    one = torch.tensor([[20]])  # generation is the model's own, and takes long
    monkeypatch.setattr(vlm.model, "generate", lambda input_ids, **_: torch.cat([input_ids, one], 1))
    chat, counts = vlm.chat(image, budget=2), []
    for number in range(60):
        chat.ask("is it?" if number % 3 == 1 else "a dog")
        if number < 57:
            chat.forget(max(0, len(chat.turns) - 3))  # a prompt of 60 rounds takes long, too
        if number in (20, 59):
            gc.collect()
            counts.append(sum(isinstance(each, torch.Tensor | np.ndarray) for each in gc.get_objects()))
    assert len(chat.turns) == 6
    assert all(type(value) in (str, int, float, tuple) for value in vars(chat.turns[-1]).values())
    assert counts[1] <= counts[0] + 3


# --- the model's own attention ----------------------------------------------------------------------------------------


def test_attention_of_the_answer_is_put_back_on_the_image(eager: VLM) -> None:
    image = eager.see(photo(seed=3))
    chat = eager.chat(image, generation=GREEDY, budget=20)
    first = chat.ask("where is the dog?")
    assert first.attention is not None
    (attention,) = first.attention
    assert attention.shape == (3, len(first.chosen[0].rows))
    prepared = eager.prepare(image, "where is the dog?", budget=20)
    literal = literal_attention(eager, prepared.inputs(), first.ids.tolist())
    assert np.allclose(attention, literal, atol=1e-5)
    texture = chat.textures[0]
    for name, layer in (("attention_prev", -2), ("attention_now", -1)):
        (plane,) = attention_planes(image, first, layer)
        assert plane.max() == 1
        assert np.allclose(texture.channel(name), plane, atol=1e-3)
    cells = np.zeros(texture.grid.shape)
    for tokens, kept in zip(image.layouts[0].grids, first.chosen[0].kept, strict=True):  # several grids add up
        for index in kept.indices:
            one = np.zeros(tokens.count, np.float32)
            one[index] = attention[-1][np.searchsorted(first.chosen[0].rows, tokens.rows(np.array([index])))[0]]
            cells += spread(one.reshape(tokens.h, tokens.w), tokens, texture.grid)
    assert np.allclose(cells / cells.max(), attention_planes(image, first, -1)[0], atol=1e-4)
    second = eager.chat(image, generation=GREEDY, budget=20, layers=(0, 1))
    second.ask("where is the dog?")
    assert np.allclose(second.textures[0].channel("attention_now"), attention_planes(image, first, 1)[0], atol=1e-3)


def test_a_round_without_attention_leaves_the_planes_before_it(eager: VLM) -> None:
    image = eager.see(photo(seed=3))
    chat = eager.chat(image, generation=GREEDY, budget=20)
    beams = {**GREEDY, "num_beams": 2}
    assert chat.ask("a dog", generation=beams).attention is None
    chat.ask("a dog")
    looked = chat.textures[0].channel("attention_now")
    chat.ask("a cat", generation=beams)
    assert np.array_equal(chat.textures[0].channel("attention_now"), looked)


def literal_attention(vlm: VLM, inputs: dict[str, Any], ids: list[int]) -> np.ndarray:
    """[layers, visual tokens], token by token, from whole forward passes without a cache."""
    n = inputs["input_ids"].shape[1]
    visual = np.flatnonzero(inputs["input_ids"][0].numpy() == vlm.model.config.image_token_id)
    last = int(inputs["position_ids"].max())
    found = []
    for step in range(len(ids)):
        more = torch.tensor([ids[:step]], dtype=torch.long)
        length = n + step
        mask = torch.triu(torch.full((length, length), torch.finfo(torch.float32).min), 1)[None, None]
        given = {
            **inputs,
            "input_ids": torch.cat([inputs["input_ids"], more], 1),
            "position_ids": torch.cat([inputs["position_ids"], last + 1 + torch.arange(step)[None]], 1),
            "attention_mask": mask,
        }
        with torch.no_grad():
            out = vlm.model(**given, use_cache=False, output_attentions=True)
        found.append([layer[0, :, -1, visual].mean(0).numpy() for layer in out.attentions])
        inputs = {**inputs}
    return np.mean(found, 0)


def test_a_model_that_does_not_return_attention_has_the_history_only() -> None:
    vlm, image = attached("llava"), encoded("llava", 1)
    chat = vlm.chat(image, generation=GREEDY, budget=4)
    answer = chat.ask("the dog")
    assert answer.attention is None
    assert chat.textures[0].has("history")
    assert not chat.textures[0].has("attention_now")
    with pytest.raises(OptionError, match="without attention"):
        attention_planes(image, answer, -1)


def test_what_is_spread_adds_up_and_is_the_transposed_of_projecting() -> None:
    over, rng = Grid(11, 13, 110, 130), np.random.default_rng(0)
    relevance = foveate.score(foveate.encode(photo(110, 130)), "a dog")
    for box, shape in (((0, 0, 110, 130), (4, 5)), ((10, 20, 60, 90), (9, 8)), ((-10, 0, 120, 130), (3, 3))):
        tokens = TokenGrid(*shape, tuple(float(side) for side in box))  # type: ignore[arg-type]
        plane = rng.random(shape).astype(np.float32)
        cells = spread(plane, tokens, over)
        if min(box) >= 0:
            assert cells.sum() == pytest.approx(plane.sum(), rel=1e-5)
        zero = np.zeros(over.shape, np.float32)
        random = rng.random(over.shape).astype(np.float32)
        on = replace(relevance, map=random, logits=zero, saliency=zero, grid=over, parts={}, reasons={}, features=None)
        if min(box) >= 0 and box != (0, 0, 110, 130):
            assert (cells * on.map).sum() == pytest.approx(float((plane * project(on, tokens).map).sum()), rel=1e-4)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_the_context_is_refused_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl", 3)
    chat = vlm.chat(image, generation=GREEDY)
    chat.ask("the dog", budget=4)
    before, planes = chat.turns, chat.textures[0].channel("history")
    config = vlm.model.config.text_config
    length = int(chat.prepare("a cat", budget=20).text["input_ids"].shape[1])
    monkeypatch.setattr(config, "max_position_embeddings", length + 4)
    chat.ask("a cat", budget=20)  # fits exactly
    chat.forget()
    chat.ask("the dog", budget=4)
    with pytest.raises(BudgetError, match="at most 20 visual tokens") as caught:
        chat.ask("a cat", budget=21)
    assert "budget=20, or chat.forget(1)" in str(caught.value)
    with pytest.raises(PromptError, match="drops the oldest round"):
        chat.ask("a cat " * 100, budget=4)
    monkeypatch.setattr(vlm.model, "generate", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        chat.ask("a cat", budget=2)
    assert chat.turns == before
    assert (chat.textures[0].channel("history") == planes).all()
    alone = attached("llava").chat(encoded("llava", 1), generation=GREEDY)
    monkeypatch.setattr(attached("llava").model.config.text_config, "max_position_embeddings", 20)
    with pytest.raises(PromptError, match="a context of 20"):  # positions are those of the full prompt
        alone.ask("the dog", budget=1)


def test_chats_that_are_refused() -> None:
    vlm, image = attached("llava"), encoded("llava", 1)
    for keywords, words in (
        ({"prior_weight": 2}, "prior_weight=2"),
        ({"decay": -1}, "decay=-1"),
        ({"layers": (0, 7)}, "layer=7"),
        ({"layers": 2}, "layers=2"),
        ({"budgt": 3}, "budgt"),
    ):
        with pytest.raises(OptionError, match=words):
            vlm.chat(image, **keywords)
    with pytest.raises(SceneError, match="another model"):
        vlm.chat(encoded("qwen2_vl", 1))
    with pytest.raises(SceneError, match="sparse"):
        vlm.chat(image, mode="sparse")
    with pytest.raises(SceneError):
        vlm.chat(photo())  # type: ignore[arg-type]
    chat = vlm.chat(image, generation=GREEDY)
    with pytest.raises(OptionError, match="prompt= in a chat"):
        chat.ask("the dog", prompt="<image> the dog")
    with pytest.raises(OptionError, match="mode='crop' in a chat"):
        chat.ask("the dog", mode="crop")
    with pytest.raises(OptionError, match="budgt") as caught:
        chat.ask("the dog", budgt=3)
    assert "budget" in caught.value.expected
    for question in ("", None):
        with pytest.raises(QueryError):
            chat.ask(question)  # type: ignore[arg-type]
    with pytest.raises(SceneError, match="pickled"):
        chat.__reduce__()
    assert chat.turns == ()


def test_a_model_without_a_chat_template(monkeypatch: pytest.MonkeyPatch) -> None:
    vlm, image = attached("llava"), encoded("llava", 1)
    chat = vlm.chat(image, generation=GREEDY, budget=4)
    chat.ask("the dog")
    monkeypatch.setattr(vlm.processor, "chat_template", None)
    with pytest.raises(PromptError, match="to the one of your model"):
        chat.ask("and now?")
    assert len(chat.turns) == 1


def test_an_answer_that_spells_the_image_token_is_no_image() -> None:
    processor = pair("llava")[1]
    text = prompt_text(processor, "and now?", 1, None, earlier=[("what is it?", "an <image>!")])
    assert text.count("<image>") == 1
    assert "an !" in text


def test_values_say_what_they_are() -> None:
    chat = attached("llava").chat(encoded("llava", 1), generation=GREEDY, budget=4)
    assert repr(chat).startswith("Chat(0 rounds about EncodedImage(150 x 200 px")
    answer = chat.ask("the dog")
    assert isinstance(answer, Answer)
    assert isinstance(chat, Chat)
    assert repr(chat).endswith("planes history)")
    assert chat.turns == (Turn("the dog", answer.text, (4, 16), chat.turns[0].prompt, 0.0),)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repr(chat.turns[0]).startswith("Turn(question='the dog'")


def test_a_follow_up_about_a_side_asks_for_what_is_beside() -> None:
    texture, earlier = foveate.encode(PHOTOS / "yellow_bus.jpg"), Context(np.empty((0, 3)), earlier=("the bus",))
    asked = [f"and what is {side} it?" for side in ("left of", "above", "next to")]
    found = [score_in_context(texture, text, earlier)[0].asks for text in ("and what colour is it?", *asked)]
    assert found == ["thing", "beside", "beside", "beside"]
