"""What the plug-in for vLLM does without vLLM: requests, questions in prompts, the choice, kept features, positions."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate.core.errors import BudgetError, FoveateError, ModelError, OptionError, QueryError
from foveate.serving.features import ROWS as PAGE
from foveate.serving.features import FeaturePool
from foveate.serving.layouts import check_keywords
from foveate.serving.model import group_images, restore_prompt
from foveate.serving.request import (
    Request,
    check_budget,
    find_marks,
    find_question,
    parse_request,
    split_keywords,
    usual_request,
)
from foveate.serving.selection import digest_image, find_texture, select_rows
from foveate.texture.cache import TextureCache
from foveate.texture.texture import Texture
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, one_grid, whole_box
from tests.vlm_models import attached, photo, tokenizer

pytestmark = pytest.mark.vlm

# --- requests ---------------------------------------------------------------------------------------------------------


def test_keywords_are_split_and_a_request_without_any_is_the_servers() -> None:
    ours, theirs = split_keywords({"foveate_budget": 16, "min_pixels": 9, "foveate_floor": 0.5})
    assert theirs == {"min_pixels": 9}
    assert parse_request(ours) == Request(16, None, None, 0.5)
    assert parse_request({}) == Request()
    assert parse_request({}, Request("auto", preset="text")) == Request("auto", preset="text")
    assert parse_request({"foveate_budget": None}, Request(9)).budget is None
    assert parse_request({"foveate_preset": None, "foveate_question": "a dog"}, Request(9)) == Request(9, "a dog")


@pytest.mark.parametrize("made_for", [14, (14, 14), [14, 14]])
def test_patches_are_compared_by_their_size_however_it_is_written(made_for: object) -> None:
    config = SimpleNamespace(vision_config=SimpleNamespace(patch_size=made_for, spatial_merge_size=2))
    for same in (14, [14, 14], {"height": 14, "width": 14}):
        check_keywords(config, {"patch_size": same, "max_pixels": 9, "videos_kwargs": {"merge_size": 2}})
    for other in (7, [14, 7], [7, 7], [], "14", None):
        for asked in ({"patch_size": other}, {"videos_kwargs": {"patch_size": other}}):
            with pytest.raises(ModelError, match="mm_processor_kwargs with patch_size="):
                check_keywords(config, asked)


@pytest.mark.parametrize("budget", [0, -1, 1.5, "128", "", "Auto", True, False, [9], {}, float("nan")])
def test_a_budget_that_is_none_is_named(budget: object) -> None:
    with pytest.raises(BudgetError, match="foveate_budget=") as caught:
        check_budget(budget)
    assert isinstance(caught.value, ValueError)  # what vLLM's server answers with status 400


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"foveate_buget": 9}, "did you mean foveate_budget"),
        ({"foveate_encoder": "/etc/passwd"}, "foveate_encoder"),
        ({"foveate_chosen": 9}, "foveate_chosen"),
        ({"foveate_question": ""}, "foveate_question"),
        ({"foveate_question": 7}, "foveate_question=7"),
        ({"foveate_question": "x" * 1001}, "1001 characters"),
        ({"foveate_preset": "documents"}, "document"),
        ({"foveate_preset": ["text"]}, "text"),
        ({"foveate_preset": "document"}, "reads what is written"),
        ({"foveate_preset": "maximum"}, "reads what is written"),
        ({"foveate_floor": 1.5}, "foveate_floor"),
        ({"foveate_floor": "much"}, "foveate_floor"),
        ({"foveate_encode": "some"}, "foveate_encode='some'"),
        ({"foveate_encode": True}, "foveate_encode=True"),
        ({"foveate_encode": ["kept"]}, "foveate_encode"),
    ],
)
def test_what_a_client_may_not_ask_for_is_named(keywords: dict[str, Any], named: str) -> None:
    with pytest.raises(FoveateError) as caught:
        parse_request(keywords)
    assert isinstance(caught.value, ValueError)
    assert named in str(caught.value)


def test_the_server_asks_by_its_environment_and_what_is_configured_wins() -> None:
    assert usual_request({}, {}) == Request()
    assert usual_request({}, {"FOVEATE_BUDGET": " 64 "}) == Request(64)
    assert usual_request({}, {"FOVEATE_BUDGET": "auto"}) == Request("auto")
    assert usual_request({}, {"FOVEATE_BUDGET": "lossless"}) == Request("lossless")
    assert usual_request({"foveate_budget": 9}, {"FOVEATE_BUDGET": "64"}) == Request(9)
    assert usual_request({}, {"FOVEATE_ENCODE": "kept"}) == Request(encode="kept")
    assert usual_request({"foveate_encode": "all"}, {"FOVEATE_ENCODE": "kept"}) == Request()
    assert parse_request({"foveate_encode": None}, Request(encode="kept")).encode == "kept"
    with pytest.raises(OptionError, match="FOVEATE_ENCODE='some'"):
        usual_request({}, {"FOVEATE_ENCODE": "some"})
    for told in ("0", "-5", "some", "1.5"):
        with pytest.raises(BudgetError, match="FOVEATE_BUDGET"):
            usual_request({}, {"FOVEATE_BUDGET": told})


# --- questions --------------------------------------------------------------------------------------------------------

LLAVA = (
    "{% for m in messages %}{{ 'USER: ' if m['role'] == 'user' else 'ASSISTANT: ' }}"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}{{ c['text'] }}"
    "{% endfor %}{% endif %}{{ ' ' if m['role'] == 'user' else '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


def chatty(template: str | None) -> Any:
    words = tokenizer()
    words.chat_template = template
    return words


def qwen_template() -> str:
    return str(attached("qwen2_5_vl").processor.chat_template)


@cache
def qwen_marks() -> Any:
    return find_marks(chatty(qwen_template()))


QWEN_TURNS = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("prompt", "question"),
    [
        (QWEN_TURNS.format(IMAGE + "where is the dog?"), "where is the dog?"),
        (QWEN_TURNS.format("where is the dog?" + IMAGE), "where is the dog?"),
        (QWEN_TURNS.format(IMAGE + IMAGE + "which has\na dog?"), "which has a dog?"),
        (QWEN_TURNS.format(IMAGE + "a cat?") + "no<|im_end|>\n" + QWEN_TURNS.format("and a dog?"), "and a dog?"),
        ("<|im_start|>system\nBe brief.<|im_end|>\n" + QWEN_TURNS.format(IMAGE + "a dog?"), "a dog?"),
        (QWEN_TURNS.format(IMAGE), ""),
        (IMAGE + "where is the dog?", "where is the dog?"),
        ("where is the dog?", "where is the dog?"),
    ],
)
def test_the_question_is_the_last_thing_that_the_user_said(prompt: str, question: str) -> None:
    assert find_question(prompt, qwen_marks(), "<|image_pad|>") == question


def test_a_default_system_turn_that_a_prompt_leaves_out_adds_no_words() -> None:
    template = "<|im_start|>system\nBe brief.<|im_end|>\n" + qwen_template()
    marks = find_marks(chatty(template))
    assert "system" not in marks.before
    assert find_question(QWEN_TURNS.format(IMAGE + "a dog?"), marks, "<|image_pad|>") == "a dog?"
    assert find_question(QWEN_TURNS.format("a dog?" + IMAGE), marks, "<|image_pad|>") == ""


def test_other_templates_and_none() -> None:
    prompt = "USER: <image>\nwhere is the dog? ASSISTANT: there.</s>USER: and the cat? ASSISTANT:"
    assert find_question(prompt, find_marks(chatty(LLAVA)), "<image>") == "and the cat?"
    assert find_question("<image>\nthe dog?", find_marks(chatty(None)), "<image>") == "the dog?"
    broken = find_marks(chatty("{{ raise_exception('no') }}"))
    assert (broken.before, broken.after) == ("", "")


@given(st.text(max_size=40))
def test_any_words_come_back_and_nothing_raises(words: str) -> None:
    marks = qwen_marks()
    found = find_question(QWEN_TURNS.format(IMAGE + words), marks, "<|image_pad|>")
    if not any(mark in words for mark in ("<|", "<im", *marks.special)):
        assert found == " ".join(words.split())


# --- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 9, 30, "auto", None])
@pytest.mark.parametrize("question", ["where is the red thing?", "why?"])
def test_one_image_keeps_the_rows_that_a_prepared_question_keeps(budget: Any, question: str) -> None:
    vlm, image = attached("qwen2_5_vl"), photo()
    encoded = vlm.see(image, read=False, mode="sparse")  # before the encoder, too: no rows of the model to compare
    cache: TextureCache[Texture] = TextureCache(2**24)
    texture, took = find_texture(image, digest_image(image), None, cache)
    assert took is not None
    assert find_texture(image, digest_image(image), None, cache) == (texture, None)
    selection = select_rows([image], [texture], encoded.layouts, question, budget)
    with pytest.warns() if question == "why?" else nullcontext():
        expected = vlm.prepare(encoded, question, budget=budget, mode="sparse")
    np.testing.assert_array_equal(selection.rows[0], expected.chosen[0].rows)
    searched = "unsearched" if question == "why?" else "chosen"
    assert selection.outcome == ("all" if len(selection.rows[0]) == encoded.tokens[0] else searched)


@given(st.integers(2, 200), st.integers(0, 1))
def test_images_share_a_budget_exactly_and_none_is_left_out(budget: int, seed: int) -> None:
    images = [photo(60, 90, seed), photo(120, 90, seed + 1)]
    layouts = [one_grid(4, 6, (60, 90)), one_grid(8, 6, (120, 90))]
    textures = [shared_texture(60, seed), shared_texture(120, seed + 1)]
    selection = select_rows(images, textures, layouts, "where is the dog?", budget)
    sizes = [len(rows) for rows in selection.rows]
    assert sum(sizes) == min(budget, 24 + 48)
    assert min(sizes) >= 1
    for rows, layout in zip(selection.rows, layouts, strict=True):
        assert (np.diff(rows) > 0).all()
        assert rows.min() >= 0 <= layout.count - 1 - rows.max()


def test_fewer_tokens_than_images_are_refused() -> None:
    image, texture, layout = photo(120, 90, 0), shared_texture(120, 0), one_grid(8, 6, (120, 90))
    with pytest.raises(BudgetError, match="2 images"):
        select_rows([image] * 2, [texture] * 2, [layout] * 2, "a dog", 1)


def test_line_ends_and_tokens_that_are_always_kept_come_on_top_of_a_budget() -> None:
    layout = TokenLayout((TokenGrid(8, 6, whole_box((120, 90)), first=1, line=7),), 57, always=(0,))
    (rows,) = select_rows([photo(120, 90, 0)], [shared_texture(120, 0)], [layout], "a dog", 9).rows
    assert 0 in rows
    on_grid = [row for row in rows.tolist() if row and (row - 1) % 7 != 6]
    assert len(on_grid) == 9


def test_digests_are_of_pixels_and_shape() -> None:
    one = photo(60, 90)
    assert digest_image(one) == digest_image(np.asfortranarray(one))
    assert digest_image(one) != digest_image(one.reshape(90, 60, 3))
    other = one.copy()
    other[5, 5, 0] ^= 1
    assert digest_image(one) != digest_image(other)


def shared_texture(height: int, seed: int, made: dict[tuple[int, int], Any] = {}) -> Any:  # noqa: B006  # a cache
    if (height, seed) not in made:
        made[height, seed] = foveate.encode(photo(height, 90, seed))
    return made[height, seed]


# --- kept features ----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5 * PAGE)), max_size=40), st.integers(0, 4))
def test_features_come_back_as_they_were_put_and_never_take_more_room(calls: list[tuple[int, int]], pages: int) -> None:
    pool = FeaturePool(pages * PAGE * 3 * 4 + 5, 3, torch.float32, torch.device("cpu"))
    assert pool.nbytes == pages * PAGE * 3 * 4
    sizes = dict(calls)  # of an image: always the same
    used: list[int] = []
    for key, _ in calls:
        features = torch.arange(sizes[key] * 3, dtype=torch.float32).reshape(-1, 3) + 1000 * key
        fits = -(-len(features) // PAGE) <= pages
        assert pool.put(key, features) == fits
        if fits:
            used = [each for each in used if each != key] + [key]
        kept = [each for each in used if each in pool]
        assert kept == used[len(used) - len(kept) :]  # what was used longest ago went first
        assert sum(-(-sizes[each] // PAGE) for each in kept) <= pages
        for each in kept:
            rows = torch.arange(0, sizes[each], 7)
            expected = (torch.arange(sizes[each] * 3, dtype=torch.float32).reshape(-1, 3) + 1000 * each)[rows]
            assert torch.equal(pool.take(each, rows), expected)
        used = [each for each in used if each not in kept] + kept
    pool.clear()
    assert len(pool) == 0
    assert not any(key in pool for key in sizes)


def test_what_was_taken_is_not_changed_by_what_comes_after() -> None:
    pool = FeaturePool(PAGE * 4, 1, torch.float32, torch.device("cpu"))
    pool.put("a", torch.ones(5, 1))
    taken = pool.take("a", torch.tensor([0, 4]))
    pool.put("b", torch.zeros(5, 1))
    assert "a" not in pool
    assert taken.tolist() == [[1], [1]]
    with pytest.raises(KeyError):
        pool.take("a", torch.tensor([0]))


def test_features_of_another_width_are_not_kept() -> None:
    assert not FeaturePool(2**20, 3, torch.float32, torch.device("cpu")).put("a", torch.ones(5, 4))


@given(st.lists(st.integers(1, 30), max_size=12), st.integers(1, 40))
def test_images_are_encoded_in_groups_that_fit(spans: list[int], most: int) -> None:
    groups = group_images(range(len(spans)), spans, most)
    assert [number for group in groups for number in group] == list(range(len(spans)))
    for group in groups:
        assert len(group) == 1 or sum(spans[number] for number in group) <= most
    for one, other in pairwise(groups):  # as few groups as their order allows
        assert sum(spans[number] for number in one) + spans[other[0]] > most


# --- the full prompt --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    offset: int
    length: int
    is_embed: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Feature:
    mm_position: Place
    data: Any


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(1, 9), st.data()), max_size=4),
    st.integers(0, 3),
)
def test_the_full_prompt_is_restored(images: list[tuple[int, int, int, Any]], behind: int) -> None:
    full, short, features, where, kept = list[int](), list[int](), [], [], list[int]()
    for text, tags, visual, data in images:
        full += range(100, 100 + text)
        span = tags + visual
        rows = [*range(tags), *sorted(data.draw(st.sets(st.integers(tags, span - 1), min_size=1)))]
        chosen = data.draw(st.booleans())
        length = len(rows) if chosen else span
        kept += range(len(full) - text, len(full))
        kept += [len(full) + row for row in (rows if chosen else range(span))]
        short += [*range(100, 100 + text)]
        values = {"foveate_places": torch.tensor(rows), "foveate_span": torch.tensor(span)} if chosen else {"other": 0}
        held = {name: SimpleNamespace(data=value) for name, value in values.items()}
        marks = torch.tensor([place >= tags for place in range(span)])
        features.append(Feature(Place(len(short), length, marks[:length] if tags else None), held))
        where.append(Place(len(full), span, marks))
        full += [8] * tags + [7] * visual
        short += [8] * tags + [7] * (length - tags)
    kept += range(len(full), len(full) + behind)
    full += range(200, 200 + behind)
    short += range(200, 200 + behind)
    ids, moved, at = restore_prompt(short, features[::-1])
    assert ids == full
    assert [each.mm_position for each in moved] == where
    assert all(each.mm_position.is_embed.equal(place.is_embed) for each, place in zip(moved, where, strict=True))
    assert at.tolist() == kept
    assert [full[each] for each in at.tolist()] == short


def test_rows_that_do_not_fit_their_placeholders_are_never_taken() -> None:
    data = {name: SimpleNamespace(data=torch.tensor(value)) for name, value in (("foveate_places", [0, 2]),)}
    with pytest.raises(AssertionError, match="3 ids of an image where 2"):
        restore_prompt([7, 7, 7], [Feature(Place(0, 3), {**data, "foveate_span": SimpleNamespace(data=9)})])


def test_a_question_without_words_is_unsearched() -> None:
    with pytest.raises(QueryError):
        foveate.score(shared_texture(60, 0), "")
    selection = select_rows([photo(60, 90, 0)], [shared_texture(60, 0)], [one_grid(4, 6, (60, 90))], "", 5)
    assert selection.outcome == "unsearched"
    assert len(selection.rows[0]) == 5
