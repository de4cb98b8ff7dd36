"""Which questions go back to what a dialogue was about, and its history as a plane."""

from __future__ import annotations

import numpy as np
import pytest

import foveate
from foveate import Texture
from foveate.core.errors import QueryError
from foveate.language.dialogue import GoesBack, goes_back, refers_back
from foveate.relevance.passes import add_dialogue, shared_map

QUESTIONS: dict[GoesBack, tuple[str, ...]] = {
    "wholly": (
        "and what colour is it?", "is it open?", "what about that one?", "what is he holding?", "and the colour?",
        "what shape is it?", "why?", "and now?", "is it red?", "are they the same size?", "which of them is larger?",
        "what is next to it?", "read it", "how big is this thing?", "where is it?", "Is it the red one?",
    ),
    "partly": (
        "and its wheels?", "is that a dog?", "is it a bus or a car?", "what breed is that dog?",
        "what letter is on it?", "what is the colour of its roof?", "is this a cat?", "what animal is on its roof?",
    ),
    "not": (
        "what shape is blue", "what material is red?",
        "where is the dog?", "what about the red circle?", "and the cat?", "is there another one?", "the other one?",
        "what else is there?", "what time is it?", "is it raining?", "is it day or night?", "describe the image",
        "what is this picture about?", "what is the man holding in his hand?", "can you see the dog that is sleeping?",
        "where is the dog and what is it doing?", "what letter is in the green square?",
        "is there a dog in this photo?",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in QUESTIONS.items() for text in texts])
def test_which_questions_go_back(kind: GoesBack, text: str) -> None:
    assert goes_back(text) == kind
    assert refers_back(text) == kind


def test_texts_that_are_no_questions() -> None:
    with pytest.raises(QueryError):
        goes_back("  ")
    with pytest.raises(QueryError):
        goes_back("x" * 5000)
    assert refers_back("?") == "wholly"  # nothing to look for but what the dialogue was about


def test_history_is_what_the_phrases_share(texture: Texture) -> None:
    one = foveate.score(texture, "a child")
    assert shared_map(one) is one.map
    both = foveate.score(texture, "a child, broccoli")
    shared = shared_map(both)
    assert shared.max() == pytest.approx(both.map.max())
    literal = both.map * np.sqrt(np.prod([np.maximum(part, 0.02) for part in both.parts.values()], 0))
    assert np.allclose(shared, literal * both.map.max() / literal.max(), atol=1e-5)
    twice = add_dialogue(add_dialogue(texture, one, decay=0.5), both, decay=0.5)
    assert np.allclose(twice.channel("history"), np.maximum(0.5 * one.map, shared), atol=2e-3)
