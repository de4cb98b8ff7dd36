"""From scores to relevance: the formula, checked against its plain definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate import Texture
from foveate.encoders.protocol import Calibration
from foveate.language.negatives import Negatives
from foveate.language.query import prepare
from foveate.reading.words import Word, Words
from foveate.relevance.options import DEFAULTS
from foveate.relevance.scoring import score_maps, score_query
from foveate.relevance.value import Relevance

NANO = foveate.load_encoder("nano")


def with_rivalry(contrast: float, synonym: float = 0.6) -> Calibration:
    return Calibration(temperature=20.0, contrast=contrast, synonym=synonym, slope=10.0, offset=-1.0)


@pytest.fixture(scope="module")
def bank() -> Negatives:
    return Negatives(NANO.encode_text(["table", "house", "child", "tree", "puppy", "window", "hat"]))


def test_without_rivals_it_is_a_sigmoid_of_the_score(texture: Texture) -> None:
    query = prepare(NANO, "broccoli")
    found = score_query(texture, query, with_rivalry(0))
    score = texture.scores(query.vectors)[0]
    assert np.allclose(found.logits, score, atol=1e-6)
    assert np.allclose(found.reasons["participation"], 1 / (1 + np.exp(-(10 * score - 1))), atol=1e-5)


@pytest.mark.parametrize("text", ["broccoli", "a dog", "a cap"])  # the bank holds synonyms of the last two
def test_rivals_equal_their_definition(text: str, texture: Texture, bank: Negatives) -> None:
    query = prepare(NANO, text)
    found = score_query(texture, query, with_rivalry(0.7), bank)
    others = bank.vectors[bank.vectors @ query.vectors[0] <= 0.6]
    assert (len(others) < len(bank.vectors)) == (text != "broccoli")
    level = np.log(np.exp(20 * texture.scores(others).astype(np.float64)).mean(0)) / 20
    assert np.allclose(found.logits, texture.scores(query.vectors)[0] - 0.7 * level, atol=1e-4)


@settings(max_examples=20)
@given(
    st.lists(
        st.sampled_from(["broccoli", "a dog", "a dog and a cat", "a cup, a fork and a plate"]), min_size=1, max_size=4
    )
)
def test_several_questions_at_once_have_the_maps_they_have_alone(
    texture: Texture, bank: Negatives, texts: list[str]
) -> None:
    queries = [prepare(NANO, text) for text in texts]
    for calibration, negatives in ((with_rivalry(0), None), (with_rivalry(0.7), bank)):
        maps = score_maps(texture, queries, calibration, negatives)
        assert maps.shape == (len(texts), *texture.grid.shape)
        for one, query in zip(maps, queries, strict=True):
            alone = score_query(texture, query, calibration, negatives).reasons["participation"]
            np.testing.assert_allclose(one, alone, atol=1e-6)


def test_when_every_rival_is_a_synonym_nothing_breaks(texture: Texture, bank: Negatives) -> None:
    query = prepare(NANO, "broccoli")
    found = score_query(texture, query, with_rivalry(1, synonym=-1), bank)
    assert np.isfinite(found.map).all()


def test_confidence_is_the_mean_of_the_highest_cells(texture: Texture) -> None:
    found = foveate.score(texture, "broccoli")
    assert found.confidence == pytest.approx(np.sort(found.reasons["participation"].ravel())[-12:].mean(), abs=1e-6)


def test_the_map_is_not_stretched_to_full_contrast(texture: Texture) -> None:
    assert foveate.score(texture, "an elephant").map.max() < 0.5


@pytest.mark.parametrize("contrast", [0.0, 0.7])
@pytest.mark.parametrize("text", ["broccoli", "a dog", "a dog but not a cat", "the tallest giraffe"])
def test_a_plain_question_is_scored_as_any_other(text: str, contrast: float, texture: Texture, bank: Negatives) -> None:
    query, how = prepare(NANO, text), with_rivalry(contrast)
    short, whole = (score_query(texture, query, how, bank, options) for options in (DEFAULTS, replace(DEFAULTS)))
    for part in fields(Relevance):
        a, b = getattr(short, part.name), getattr(whole, part.name)
        if isinstance(a, Mapping):
            assert list(a) == list(b)
            assert all(np.array_equal(a[name], b[name]) for name in a)
        else:
            assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b or a is b


def test_what_enters_beside_a_plain_question_takes_the_long_way(texture: Texture) -> None:
    query, how = prepare(NANO, "broccoli"), with_rivalry(0)
    sheer = replace(texture, valid=np.zeros_like(texture.pixel[..., 0]))
    assert query.plain
    assert score_query(sheer, query, how).map.max() == 0
    written = texture.with_words(Words.of([Word("Broccoli", (10, 10, 60, 200)), Word("fresh", (70, 10, 99, 99))], "me"))
    asks = replace(query, text='the word "broccoli"')
    assert asks.plain
    assert score_query(written, asks, how).words
    assert "segment" not in score_query(replace(texture, planes={}), query, how).reasons
