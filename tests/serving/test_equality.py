"""Served answers are those of `foveate.vlm`: the same cells, the same positions, the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.serving.engine import Ask, Engine, assert_same

DOG = "where is the dog?"
PERSON = "what is on the left of the person in the picture"


@pytest.fixture(scope="module", params=["qwen2_vl"])
def engine(request: pytest.FixtureRequest, start: Callable[..., Engine]) -> Engine:
    return start(request.param)


@pytest.mark.parametrize("question", [DOG, PERSON])
@pytest.mark.parametrize("budget", [None, 1, 16, 27, 10_000, "auto"])
def test_answers_are_those_of_the_library(engine: Engine, question: str, budget: int | str | None) -> None:
    ask = Ask(question, keywords={"foveate_budget": budget})
    (said,) = engine.ask(ask)
    assert_same(said, engine.expect(ask))
