"""Visual tokens that the caller chose, and the warnings and errors of a model's questions."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate
from benchmarks.document_grids import FAMILIES, model_of
from foveate.core.errors import BudgetWarning, OptionError, SceneError
from foveate.relevance import cells_of
from foveate.vlm import Choosing, QuestionWarning
from tests.vlm_models import attached, encoded, photo

pytestmark = [pytest.mark.vlm, pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")]
QUESTION = "where is the dog?"
SHORT: dict[str, Any] = {"max_new_tokens": 2, "generation": {"eos_token_id": None}}


def relevance(name: str = "qwen2_5_vl") -> foveate.Relevance:
    return foveate.score(encoded(name).textures[0], "the dog")


def test_an_allocation_on_the_models_grid_is_what_it_gets() -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    kept = foveate.allocate(relevance().on(image.grid), 6, floor=0.25, policy="topk")
    mine = vlm.prepare(image, QUESTION, kept=kept)
    usual = vlm.prepare(image, QUESTION, budget=6, choosing=Choosing(floor=0.25, policy="topk"))
    assert mine.chosen[0].kept[0].indices.tolist() == usual.chosen[0].kept[0].indices.tolist()
    assert mine.tokens == usual.tokens
    assert (mine.features.rows[0] == usual.features.rows[0]).all()
    assert mine.length == mine.text["input_ids"].shape[1] == mine.keep.sum()
    by_mask = vlm.ask(image, QUESTION, kept=kept.mask, **SHORT)
    assert by_mask.text == vlm.ask(image, QUESTION, kept=kept, **SHORT).text
    assert [a.tokens[0] for a in vlm.ask_many(image, [QUESTION, "a cat?"], kept=kept, **SHORT)] == [6, 6]


def test_the_grid_of_a_part_of_the_image() -> None:
    """LLaVA's processor cuts the centre out: its tokens are no grid over the whole image."""
    vlm, image = attached("llava"), encoded("llava")
    tokens = relevance("llava").on(image.grid)
    assert tokens.map.shape == image.grid.shape
    assert tokens.grid.width < relevance("llava").grid.width
    assert vlm.ask(image, QUESTION, kept=foveate.allocate(tokens, 3), **SHORT).tokens == (3, 16)
    whole = image.grid.shape
    assert relevance("llava").on(whole).grid == foveate.Grid(*whole, *photo().shape[:2])
    with pytest.raises(OptionError, match="this model's visual tokens: 4 x 4 over 150 x 15"):
        vlm.prepare(image, QUESTION, kept=foveate.allocate(relevance("llava").on(whole), 3))


def test_several_grids_take_a_list() -> None:
    vlm, image = attached("llava_next"), encoded("llava_next")
    kept = [foveate.allocate(relevance("llava_next").on(grid), 3) for grid in image.grids]
    assert vlm.prepare(image, QUESTION, kept=kept).chosen[0].count == 3 * len(kept)
    assert vlm.prepare(image, QUESTION, kept=[*kept[:-1], None]).chosen[0].count == 3 * (len(kept) - 1)
    with pytest.raises(OptionError, match=r"for 1 grids.*\n.*\n.*for grid in encoded\.grids"):
        vlm.prepare(image, QUESTION, kept=kept[0])
    with pytest.raises(SceneError, match="lie on 2 grids"):
        image.grid  # noqa: B018


def test_cells_are_not_tokens() -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    cells = foveate.allocate(relevance(), 6)
    grid = image.grid.grid
    wrong = {
        r"6 cells of a grid of 48 x 64": cells,
        r"which grid it is of": cells.indices,
        r"int64 of shape \[3\]": [1, 2, 3],
        r"a mask of shape \[48, 64\]": cells.mask,
        r"a dict": {},
        r"ascending, each once": foveate.Allocation(np.array([1, 1]), np.ones(2, np.float32), grid),
        r"whole numbers from 0 to": foveate.Allocation(np.array([10_000]), np.ones(1, np.float32), grid),
        r"without a visual token": np.zeros(image.grid.shape, bool),
    }
    for message, kept in wrong.items():
        with pytest.raises(OptionError, match=message) as caught:
            vlm.prepare(image, QUESTION, kept=kept)  # type: ignore[arg-type]
        assert "encoded.grid" in caught.value.fix or "np.unique" in caught.value.fix
    with pytest.raises(OptionError, match="pass it as kept="):
        vlm.prepare(image, QUESTION, relevance=cells)


def test_an_allocation_of_another_image_is_refused() -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    texture = foveate.encode(photo(seed=7))
    other = foveate.allocate(foveate.score(texture, "the dog").on(image.grid), 6)
    with pytest.raises(OptionError, match="which has other pixels") as caught:
        vlm.prepare(image, QUESTION, kept=other)
    assert "encoded.textures[0]" in caught.value.fix
    again = foveate.score(foveate.encode(photo()), "the dog")  # another texture of the same image
    for kept in (other.mask, pickle.loads(pickle.dumps(other)), foveate.allocate(again.on(image.grid), 6)):
        assert vlm.prepare(image, QUESTION, kept=kept).tokens[0] == 6


def test_a_misspelt_keyword_gets_the_same_list_everywhere() -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    asking: tuple[Callable[..., object], ...] = (
        partial(vlm.ask, image),
        lambda question, **how: vlm.ask_many(image, [question], **how),
        lambda question, **how: vlm.chat(image, **how),
        vlm.chat(image).ask,
    )
    for ask in asking:
        with pytest.raises(OptionError, match="budgt") as caught:
            ask(QUESTION, budgt=3)
        assert caught.value.fix == "did you mean budget?"
        assert {"budget", "kept", "choosing", "method", "scoring"} <= set(caught.value.expected.split(", "))
        for old, instead in (("looking_for", 'relevance="the dog"'), ("floor", "Choosing(floor=...)"),
                             ("prior", "ScoringOptions(prior=...)")):  # fmt: skip
            with pytest.raises(OptionError, match=f"prepare.{old}=") as caught:
                ask(QUESTION, **{old: 0.1})
            assert instead in caught.value.fix
    with pytest.raises(OptionError, match="did you mean max_new_tokens"):
        vlm.ask(image, QUESTION, max_new_token=5)
    with pytest.raises(OptionError, match="write choosing="):
        vlm.prepare(image, QUESTION, seed=1)  # type: ignore[call-arg]


def test_one_way_to_say_which_tokens() -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    kept = np.ones(image.grid.shape, bool)
    for other in (
        {"budget": 5},
        {"method": "random"},
        {"choosing": Choosing(protected=kept)},
        {"choosing": Choosing(floor=0.1)},
        {"mode": "weight"},
    ):
        with pytest.raises(OptionError, match="kept= with"):
            vlm.prepare(image, QUESTION, kept=kept, **other)
    with pytest.raises(OptionError, match="mode 'crop'"):
        vlm.ask(image, QUESTION, kept=kept, mode="crop")


def test_a_round_of_a_chat_replaces_how_the_chat_chooses() -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    kept = np.ones(image.grid.shape, bool)
    mask = np.zeros(image.textures[0].grid.shape, bool)
    mask[:2, :2] = True
    for usual in ({"choosing": Choosing(floor=0.5)}, {"choosing": Choosing(protected=mask)}, {"method": "random"}):
        chat = vlm.chat(image, budget=4, **usual)
        assert chat.prepare(QUESTION, kept=kept).tokens[0] == kept.size
        assert chat.prepare(QUESTION).tokens[0] == 4
    assert vlm.chat(image, mode="weight").prepare(QUESTION, kept=kept).mode == "drop"
    chat = vlm.chat(image, kept=kept)
    assert chat.ask(QUESTION, budget=4, **SHORT).tokens[0] == 4
    assert chat.ask(QUESTION, **SHORT).tokens[0] == kept.size
    assert chat.prepare(QUESTION, mode="weight").mode == "weight"
    with pytest.raises(OptionError, match="kept= with budget="):
        chat.prepare(QUESTION, kept=kept, budget=4)


@pytest.mark.parametrize("question", ["why?", "これは何ですか"])
def test_a_question_that_names_nothing_warns_at_the_callers_line_and_is_asked(question: str) -> None:
    """It has no place in the picture: what stands out and what differs get the budget, and a warning says so."""
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    asking: tuple[Callable[[], Any], ...] = (
        lambda: vlm.ask(image, question, budget=3, **SHORT),
        lambda: vlm.chat(image).ask(question, budget=3, **SHORT),
        lambda: vlm.ask_many(image, [question], budget=3, **SHORT)[0],
    )
    for ask in asking:
        with pytest.warns(QuestionWarning, match="relevance=") as caught:
            answer = ask()
        assert {warning.filename for warning in caught} == {__file__}
        assert answer.tokens[0] == 3
        assert answer.relevance[0].confidence == 0
        assert not answer.relevance[0].detected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vlm.prepare(image, question, kept=np.ones(image.grid.shape, bool))  # needs no search


def test_a_map_for_one_of_two_images() -> None:
    vlm = attached("qwen2_5_vl")
    image = vlm.see([photo(), photo(seed=1)], read=False)
    first, second = vlm.relevance(image, "the dog", relevance=[np.eye(4), None])
    assert "given" in first.reasons
    assert second.map.tolist() == foveate.score(image.textures[1], "the dog").map.tolist()
    both: list[Any] = [np.eye(4), "a cat"]
    second = vlm.relevance(image, "why?", relevance=both)[1]
    assert second.query == "a cat"


def test_the_tokens_of_given_boxes_and_a_context() -> None:
    vlm = attached("qwen2_5_vl")
    image = vlm.see([photo(), photo(seed=1)], read=False)
    height, width = photo().shape[:2]
    corner = [height / 2, width / 2, height, width]
    one = vlm.see(photo(), read=False)
    few, more = (vlm.prepare(one, "why?", boxes=[corner], budget=k).chosen[0].kept[0].mask for k in (4, 30))
    inside = cells_of([corner], foveate.Grid(few.shape[0], few.shape[1], height, width))
    assert (few & ~inside).sum() <= 2
    assert few.sum() == 4
    assert (more & ~inside).any()
    assert vlm.ask(one, "why?", boxes=np.array([corner]), budget=4, **SHORT).tokens[0] == 4
    both = vlm.prepare(image, "why?", boxes=[[corner], [corner, [0, 0, 9, 9]]], budget=(4, 4))
    assert [bool(each.confidence) for each in both.relevance] == [True, True]
    for bad, said in (
        ([corner], "1 for boxes, of 2 images"),
        ([[corner], []], "boxes"),
        ([[corner], [[5, 5, 5, 9]]], "area"),
    ):
        with pytest.raises(OptionError, match=said):
            vlm.prepare(image, "why?", boxes=bad)
    with pytest.raises(OptionError, match="boxes= with relevance="):
        vlm.prepare(one, "why?", boxes=[corner], relevance="the dog")


@pytest.mark.parametrize("choosing", [Choosing(), Choosing(floor=1)])
def test_a_budget_of_a_blank_image_over_several_grids(choosing: Choosing) -> None:
    """All is as good as all: the whole budget is spread evenly."""
    vlm = attached("llava_next")
    for image in (np.full((70, 300, 3), 255, np.uint8), photo()):
        seen = vlm.see(image, read=False)
        for budget in (1, 9):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", QuestionWarning)
                assert vlm.prepare(seen, "where is the dog?", budget=budget, choosing=choosing).tokens[0] >= budget


def test_unknown_keywords_of_generate_and_budgets_that_are_too_large() -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    with pytest.raises(OptionError, match=r"'bogus'[\s\S]*keywords of model\.generate"):
        vlm.ask(image, QUESTION, budget=3, generation={"bogus": 1})
    vlm, image = attached("llava"), encoded("llava")  # 16 tokens of each crop, however large it is
    with pytest.warns(BudgetWarning, match="budget=200 is more than the"):
        vlm.ask(image, QUESTION, mode="crop", budget=200, **SHORT)


def test_an_answer_knows_what_the_model_saw() -> None:
    vlm, image = attached("qwen2_5_vl"), encoded("qwen2_5_vl")
    answer = vlm.ask(image, QUESTION, budget=4, **SHORT)
    assert answer.textures == image.textures
    assert answer.layouts == image.layouts
    assert copy.copy(answer) is copy.deepcopy(answer) is answer
    assert answer.picture().width > answer.picture().height  # photograph, map, what it saw, one beside another
    both = vlm.see([photo(), photo(seed=1)], read=False)
    prepared = vlm.prepare(both, QUESTION, budget=(4, 4))
    assert prepared.picture().height > 1.5 * answer.picture().height  # a row for each image
    again = pickle.loads(pickle.dumps(answer))
    assert (again.text, again.textures) == (answer.text, ())
    with pytest.raises(OptionError, match="without its images"):
        again.picture()
    assert again._repr_png_() is None
    with pytest.raises(OptionError, match="bogus=1 of a picture"):
        answer.picture(bogus=1)
    assert answer.picture(side=100, labels=False).height < 200


def test_the_page_has_the_grids_of_real_processors() -> None:
    """docs/cells_and_tokens.md, for 480 x 640 pixels."""
    page = (Path(__file__).parents[1] / "docs" / "cells_and_tokens.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| ((?:LLaVA|Qwen|SmolVLM|Intern)[^|]*) \| (.*?\| \d+) \|", page, re.M))
    assert len(rows) == len(FAMILIES)
    for family, (name, said) in zip(FAMILIES, rows.items(), strict=True):
        assert family.replace("_", "") in re.sub(r"[^a-z0-9]", "", name.lower())
        image = model_of(family).see(np.zeros((480, 640, 3), np.uint8), mode="sparse", read=False)
        shapes = [f"{grid.h} x {grid.w}" for grid in image.grids]
        grids = f"{len(shapes)} times {shapes[0]}" if len(shapes) > 2 else " and ".join(shapes)
        assert said == f"{grids} | {sum(image.tokens)}"
