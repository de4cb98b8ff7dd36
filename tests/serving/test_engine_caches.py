"""What the engine keeps, cuts into parts and does again: the answer does not show it.

One engine with little of everything: a prompt's tokens come 40 at a time, and the requests' keys and values do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from examples.tiny_vlms.folders import HEADS
from foveate.serving.features import ROWS, FeaturePool
from foveate.serving.processor import NAMED, ChoosingProcessor
from tests.serving.engine import Ask, Engine, assert_same
from tests.vlm_models import photo

DOG = "where is the dog?"
CAR = "what colour is the old car on the street in front of the house?"
BLOCK = 32  # tokens of keys and values that are kept and found together
PART = 40  # tokens of a prompt at a time


@pytest.fixture(scope="module")
def engine(start: Callable[..., Engine]) -> Engine:
    return start(
        "qwen3_vl", max_model_len=320, num_gpu_blocks_override=14, max_num_batched_tokens=PART, max_num_seqs=4,
        enable_chunked_prefill=True, disable_log_stats=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def seeds() -> Iterator[int]:
    """Of photographs that no other test has shown."""
    return count(100)


@pytest.fixture
def large(seeds: Iterator[int]) -> Any:
    """A photograph of about a hundred visual tokens: uint8 [280, 380, 3]."""
    return photo(280, 380, seed=next(seeds))


def asks(image: Any, budget: int | str | None, *questions: str, **more: Any) -> list[Ask]:
    keywords = {} if budget is None else {"foveate_budget": budget, **more}
    return [Ask(question, [image], keywords) for question in questions]


@contextmanager
def counted(owner: Any, name: str) -> Iterator[list[int]]:
    """How often a method is called: a list that grows by one each time."""
    calls: list[int] = []
    stock = getattr(owner, name)

    def method(*args: Any, **keywords: Any) -> Any:
        calls.append(1)
        return stock(*args, **keywords)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, method)
        yield calls


def test_an_image_may_come_in_parts(engine: Engine, large: Any) -> None:
    for ask in asks(large, 90, DOG, CAR):
        (said,) = engine.ask(ask)
        assert said.length > 2 * PART
        assert_same(said, engine.expect(ask))


def test_the_same_question_again_finds_its_prompt(engine: Engine, large: Any) -> None:
    (ask,) = asks(large, 60, DOG)
    first, again = engine.ask(ask)[0], engine.ask(ask)[0]
    assert (first.cached, again.cached) == (0, (first.length - 1) // BLOCK * BLOCK)
    assert_same(again, engine.expect(ask))


def test_another_question_keeps_other_cells_and_finds_nothing(engine: Engine, large: Any) -> None:
    first, second = asks(large, 60, DOG, CAR)
    engine.ask(first)
    (said,) = engine.ask(second)
    assert said.cached == 0
    assert_same(said, engine.expect(second))


def test_the_same_cells_are_found_whatever_is_asked_about_them(engine: Engine, large: Any) -> None:
    first, second = asks(large, 60, DOG, CAR, foveate_question="the sky")
    engine.ask(first)
    (said,) = engine.ask(second)
    assert said.cached == (60 + 7) // BLOCK * BLOCK  # what stands before the questions, in whole blocks
    assert_same(said, engine.expect(second))


def test_a_budget_finds_nothing_of_the_whole_image(engine: Engine, large: Any) -> None:
    (whole,), (some,) = asks(large, None, DOG), asks(large, 60, DOG)
    for before, after in ((whole, some), (some, whole)):
        engine.llm.reset_prefix_cache()
        engine.ask(before)
        (said,) = engine.ask(after)
        assert said.cached == 0
        assert_same(said, engine.expect(after))


def test_a_hash_that_forgot_the_rows_would_be_seen(engine: Engine, large: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that the tests above are for."""
    stock = ChoosingProcessor._get_mm_hashes

    def forgetful(self: ChoosingProcessor, inputs: Any) -> Any:
        named = stock(self, inputs)
        return {**named, "image": [name.partition(NAMED)[0] + NAMED for name in named["image"]]}

    monkeypatch.setattr(ChoosingProcessor, "_get_mm_hashes", forgetful)
    first, second = asks(large, 60, DOG, CAR)
    engine.ask(first)
    (said,) = engine.ask(second)
    assert said.cached > 0
    with pytest.raises(AssertionError):
        assert_same(said, engine.expect(second))


def test_an_image_is_encoded_once_for_all_its_questions(engine: Engine, large: Any) -> None:
    with counted(engine.model.visual, "forward") as encoded:
        for budget, question in ((30, DOG), (30, CAR), (50, DOG), ("auto", CAR), (10_000, DOG)):
            engine.ask(*asks(large, budget, question))
    assert len(encoded) == 1


def test_images_of_a_batch_are_encoded_once_each(engine: Engine, seeds: Iterator[int]) -> None:
    images = [photo(seed=next(seeds)) for _ in range(3)]
    batch = [ask for image in images for ask in asks(image, 12, DOG, CAR)]
    with counted(engine.model, "_encode") as encoded, counted(engine.model.visual, "forward") as ran:
        for ask, said in zip(batch, engine.ask(*batch), strict=True):
            assert_same(said, engine.expect(ask))
    assert len(ran) <= len(images) <= len(encoded)


def test_an_image_that_made_room_is_encoded_again(
    engine: Engine, seeds: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = engine.model._features.pages[:2]
    assert pages.shape == (2, ROWS, 4 * HEADS)  # DeepStack's three beside the features
    room = FeaturePool(pages.nbytes, pages.shape[-1], pages.dtype, pages.device)
    monkeypatch.setattr(engine.model, "_features", room)
    a, b, c = (photo(seed=next(seeds)) for _ in range(3))  # 30 rows: a page each
    runs = []
    for budget, image in enumerate((a, b, a, c, a, b), 9):  # other rows each time: vLLM's own cache has none of them
        with counted(engine.model.visual, "forward") as encoded:
            (ask,) = asks(image, budget, DOG)
            (said,) = engine.ask(ask)
        assert_same(said, engine.expect(ask))
        runs.append(len(encoded))
    assert runs == [1, 1, 0, 1, 0, 1]
    assert len(room) == 2


def test_a_request_that_was_set_back_says_the_same(engine: Engine, seeds: Iterator[int]) -> None:
    """Four prompts fit, their answers do not: one loses its keys and values, and is computed again."""
    images = [photo(280, 380, seed=next(seeds)) for _ in range(4)]
    batch = [ask for budget, image in enumerate(images, 60) for ask in asks(image, budget, DOG)]
    before = preemptions(engine)
    said = engine.ask(*batch, steps=40)
    assert preemptions(engine) > before
    for ask, each in zip(batch, said, strict=True):
        assert_same(each, engine.expect(ask, steps=40))


def preemptions(engine: Engine) -> int:
    return sum(metric.value for metric in engine.llm.get_metrics() if metric.name == "vllm:num_preemptions")


def test_no_more_images_are_encoded_together_than_vllm_measured_its_memory_for(
    engine: Engine, seeds: Iterator[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scheduler counts the kept tokens: with a budget of one for each, it hands on as many images as there are."""
    calls = list[int]()
    encode = type(engine.model)._encode

    def counting(self: Any, stock: Any, ours: Any, numbers: Any) -> Any:
        calls.append(len(numbers))
        return encode(self, stock, ours, numbers)

    monkeypatch.setattr(type(engine.model), "_encode", counting)
    for most, expected in ((18, [2]), (17, [1, 1])):
        monkeypatch.setattr(engine.model, "_most", most)
        images = [photo(100, 100, seed=next(seeds)) for _ in range(2)]
        assert engine.vlm.see(images, read=False).tokens == (9, 9)
        ask = Ask(DOG, images, {"foveate_budget": 2})
        calls.clear()
        (said,) = engine.ask(ask)
        assert calls == expected
        assert_same(said, engine.expect(ask))
