"""Served answers are those of `foveate.vlm`: the same cells, the same positions, the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.serving.engine import Ask, Engine, Said, assert_same
from tests.vlm_models import page, photo

DOG = "where is the dog?"
PERSON = "what is on the left of the person in the picture"
TWO = (photo(), photo(120, 260, seed=1))
ASKS = {
    "stock": Ask(DOG),
    "null": Ask(PERSON, keywords={"foveate_budget": None}),
    **{
        f"{budget} for the {name}": Ask(question, keywords={"foveate_budget": budget})
        for name, question in (("dog", DOG), ("person", PERSON))
        for budget in (1, 9, 16, 34, 35, 10_000, "auto")
    },
    "nothing to look for": Ask("why?", keywords={"foveate_budget": 9}),
    "looking for": Ask(DOG, keywords={"foveate_budget": 9, "foveate_question": "the red car"}),
    "no floor": Ask(DOG, keywords={"foveate_budget": 9, "foveate_floor": 0}),
    "all floor": Ask(DOG, keywords={"foveate_budget": 9, "foveate_floor": 1}),
    "preset": Ask(DOG, keywords={"foveate_budget": 9, "foveate_preset": "minimum"}),
    "lossless": Ask(DOG, [page()], {"foveate_budget": "lossless"}),
    "lossless, and nothing to look for": Ask("why?", [page(), TWO[0]], {"foveate_budget": "lossless"}),
    "another image": Ask(DOG, [TWO[1]], {"foveate_budget": 12}),
    "two images": Ask(DOG, TWO),
    "two images share": Ask(PERSON, TWO, {"foveate_budget": 20}),
    "two images, auto": Ask(PERSON, TWO, {"foveate_budget": "auto"}),
    "the same image twice": Ask(DOG, [TWO[0], TWO[0]], {"foveate_budget": 16}),
}


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def engine(request: pytest.FixtureRequest, start: Callable[..., Engine]) -> Engine:
    return start(request.param)


def test_what_a_neighbour_has_is_found_once_an_image_and_without_a_texture(engine: Engine) -> None:
    """Another question keeps the same tokens: no stock processor runs for it, and the prefix cache has them."""
    from foveate.serving import processor

    find: Callable[..., Any] = vars(processor)["find_unrepeated"]
    image, found = photo(336, 336, seed=3), list[int]()

    def count(*given: Any) -> Any:
        found.append(1)
        return find(*given)

    image[:, 168:] = 255  # half of it, of 144 or 100 tokens
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor, "find_unrepeated", count)
        patch.setattr(processor, "find_texture", lambda *given: pytest.fail("a texture"))
        first, second = (engine.ask(Ask(q, [image], {"foveate_budget": "lossless"}))[0] for q in (DOG, "why?"))
    assert len(found) == 1
    assert first.length - len(DOG) == second.length - len("why?") < 100
    assert second.cached >= 32


@pytest.fixture(scope="module")
def batch(engine: Engine) -> dict[str, Said]:
    """All at once, with and without a budget, so that they share steps, images and caches."""
    return dict(zip(ASKS, engine.ask(*ASKS.values()), strict=True))


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.filterwarnings("ignore::foveate.core.errors.BudgetWarning")
def test_answers_are_those_of_the_library(engine: Engine, batch: dict[str, Said], name: str) -> None:
    assert_same(batch[name], engine.expect(ASKS[name]))
