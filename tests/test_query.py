from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate import Texture
from foveate.core.errors import FoveateError, QueryError
from foveate.language.query import MAX_PHRASES, noun_phrases, parse, prepare


@pytest.mark.parametrize(
    ("question", "phrases"),
    [
        ("broccoli", ["broccoli"]),
        ("a child", ["child"]),
        ("The Red Car", ["red car"]),
        ("where is the red car?", ["red car"]),
        ("What color is the bus?", ["bus"]),
        ("How many people are there?", ["people"]),
        ("Is there a dog on the red couch?", ["dog", "red couch"]),
        ("What is the child holding?", ["child"]),
        ("What does the sign say?", ["sign"]),
        ("a cup of coffee next to the cake", ["cup of coffee", "cake"]),
        ("What's the man's hat made of?", ["man hat"]),
        ("a picture of a dog", ["dog"]),
        ("Please count all the wine glasses.", ["wine glasses"]),
        ('where is the "parking meter"?', ["parking meter"]),
        ("dog, cat and bird", ["dog", "cat", "bird"]),
        ("dog dog dog", ["dog dog dog"]),
        ("a t-shirt", ["t-shirt"]),
        ("roof of the house", ["roof of house"]),
        ("the top of the mountain", ["mountain"]),
        ("a man in a top hat on the left", ["man", "top hat"]),
        ("What is to the left of the car?", ["car"]),
        ("Where is the woman's face?", ["woman face"]),
        ("a bar stand and drinks", ["bar stand", "drinks"]),
        ("show me the big old house", ["big old house"]),
        ("the picture on the wall", ["picture", "wall"]),
        ("कुत्ता", ["कुत्ता"]),
        ("cafe\u0301", ["café"]),
    ],
)
def test_noun_phrases(question: str, phrases: list[str]) -> None:
    assert list(noun_phrases(question)) == phrases


@pytest.mark.parametrize(
    ("question", "groups", "ignored"),
    [
        ("a dog and a giraffe", "dog+giraffe", ""),
        ("dog, cat and bird", "dog+cat+bird", ""),
        ("a dog, a cat", "dog+cat", ""),
        ("dog, cat or bird", "dog/cat/bird", ""),
        ("a dog and a cat or a bird", "dog+cat/bird", ""),
        ('the "dog" and the "giraffe"', "dog+giraffe", ""),
        ("a black and white cat", "black/white cat", ""),  # colours of one thing
        ("an orange and a banana", "orange+banana", ""),
        ("the man with the hat", "man/hat", ""),
        ("a man and a woman holding a dog", "man+woman/dog", ""),
        ("a man without a hat", "man", "hat"),
        ("a dog but not a cat", "dog", "cat"),
        ("a car that is not red", "car", "red"),
        ("no dogs or cats, only a horse", "horse", "dogs cats"),
        ("neither a dog nor a cat but a fox", "fox", "dog cat"),
        ("all animals except dogs, cats and birds", "animals", "dogs cats birds"),
        ("an animal other than a dog. the sky", "animal/sky", "dog"),
        ("not only a dog but also a cat", "dog/cat", ""),
        ("is it a cat and not a dog?", "cat/dog", ""),
        ("can't you see the dog?", "dog", ""),
        ("is the man with no shirt holding a cup?", "man/cup", "shirt"),
        ("is there a dog, yes or no?", "dog", ""),
        ("is the light red, yellow or green?", "light red/yellow/green", ""),
        ("other than the dog, what animals are there?", "animals", "dog"),
        ("is that not a bus?", "bus", ""),  # what a question denies is where one has to look
        ("why is the dog not on the sofa?", "dog/sofa", ""),
        ("there is no dog, right?", "dog", ""),
        ("what is the man without a hat doing?", "man", "hat"),
        ("where is the dog but not the cat?", "dog", "cat"),
        ("nothing but the bear", "bear", ""),
        ("is there no one on the beach?", "beach", ""),
        ("the no parking sign", "parking sign", ""),
        ("is there a dog or not?", "dog", ""),
        ("no entry signs", "entry signs", ""),
        ("no smoking sign", "smoking sign", ""),
        ("no parking", "parking", ""),
        ("not a dog", "dog", ""),
        ("no dogs or cats", "dogs/cats", ""),
        ("a car that isn't red", "car", "red"),
        ("people who aren't wearing a hat", "people", "hat"),
        ("isn't there a dog?", "dog", ""),
        ("are there more dogs than cats?", "dogs/cats", ""),
        ("True or false: there is a dog.", "dog", ""),
        ("is there a dog? true/false", "dog", ""),
        ("salt and pepper", "salt+pepper", ""),
    ],
)
def test_what_is_asked_for_together_and_what_is_left_out(question: str, groups: str, ignored: str) -> None:
    wording = parse(question)
    assert "/".join("+".join(group) for group in wording.groups) == groups
    assert " ".join(wording.ignored) == ignored


@pytest.mark.parametrize("text", ["everything except the bear", "everything but the bear", "except dogs"])
def test_a_question_that_only_leaves_out_is_an_error(text: str) -> None:
    with pytest.raises(QueryError, match="names no thing beside what to leave out") as caught:
        prepare(foveate.load_encoder("nano"), text)
    assert "quotes" in caught.value.fix


def test_things_asked_for_together_are_detected_if_all_are(texture: Texture) -> None:
    both, child = foveate.score(texture, "a child and a giraffe"), foveate.score(texture, "child")
    giraffe = foveate.score(texture, "giraffe")
    assert child.detected
    assert not both.detected
    assert both.confidence == pytest.approx(giraffe.confidence, abs=1e-6)
    assert dict(both.confidences) == pytest.approx({"child": child.confidence, "giraffe": giraffe.confidence}, abs=1e-6)
    assert np.allclose(both.map.max(), child.map.max(), atol=1e-5)  # the map shows what there is
    assert both.trust == 1  # and the budget goes there
    assert foveate.score(texture, "a child and broccoli").detected
    assert foveate.score(texture, "a child or a giraffe").confidence == pytest.approx(child.confidence, abs=1e-6)


def test_a_thing_beside_what_is_not_there_is_not_there(texture: Texture) -> None:
    found, giraffe = foveate.score(texture, "the child with the giraffe"), foveate.score(texture, "giraffe")
    assert not found.detected
    assert found.confidence <= giraffe.confidence + 1e-6
    assert np.allclose(found.reasons["child"], foveate.score(texture, "child", smoothing=0).map, atol=1e-6)


def test_what_is_left_out_is_not_in_the_map(texture: Texture) -> None:
    found, child = foveate.score(texture, "a child without broccoli"), foveate.score(texture, "child")
    assert found.ignored == ("broccoli",)
    assert np.array_equal(found.map, child.map)


@given(st.text(min_size=1, max_size=200))
def test_any_text_gives_some_phrase_or_a_clear_error(text: str) -> None:
    try:
        query = prepare(foveate.load_encoder("nano"), text)
    except FoveateError as error:
        assert isinstance(error, QueryError)  # noqa: PT017 - the point is which class
        return
    assert 1 <= len(query.phrases) <= MAX_PHRASES
    assert all(query.phrases)
    assert np.allclose(np.linalg.norm(query.vectors, axis=1), 1, atol=1e-4)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "???", "...!"])
def test_a_query_without_words(text: str) -> None:
    with pytest.raises(QueryError):
        prepare(foveate.load_encoder("nano"), text)


def test_a_query_of_ten_thousand_characters() -> None:
    with pytest.raises(QueryError, match="10,000 characters") as caught:
        prepare(foveate.load_encoder("nano"), "dog and cat " * 833 + "dog ")
    assert "1,000" in caught.value.expected


@pytest.mark.parametrize("text", ["где собака", "犬はどこですか", "狗", "أين الكلب"])
def test_a_language_that_nano_cannot_read(text: str) -> None:
    with pytest.raises(QueryError, match="English"):
        prepare(foveate.load_encoder("nano"), text)


def test_one_phrase_that_can_be_read_is_enough() -> None:
    assert prepare(foveate.load_encoder("nano"), "狗 dog").phrases == ("狗 dog",)
    assert prepare(foveate.load_encoder("nano"), "犬, a dog").phrases == ("dog",)


def test_no_text_at_all() -> None:
    with pytest.raises(QueryError, match="int"):
        prepare(foveate.load_encoder("nano"), 3)  # type: ignore[arg-type]


def test_the_same_question_is_prepared_once() -> None:
    nano = foveate.load_encoder("nano")
    assert prepare(nano, "a very particular dog") is prepare(nano, "a very particular dog")


def test_vectors_are_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        prepare(foveate.load_encoder("nano"), "a dog").vectors[0] = 0


@pytest.mark.parametrize("text", ["caf\ud8e9", '"\udcff"', "a dog \udfff"])
def test_half_a_character_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="Unicode"):
        prepare(foveate.load_encoder("nano"), text)


@pytest.mark.parametrize("text", ["the", "where is it?", "what is this", "of the", "is there any?"])
def test_a_question_that_names_no_thing(text: str) -> None:
    with pytest.raises(QueryError, match="names no thing"):
        prepare(foveate.load_encoder("nano"), text)


@pytest.mark.parametrize("text", ["can", '"the"', "walking", "left", "42"])
def test_a_word_that_may_be_a_name_is_asked(text: str) -> None:
    assert noun_phrases(text) == (text.strip('"'),)
