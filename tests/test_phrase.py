"""The structure of phrases: a table of what people ask of photographs, and what holds of any text.

tests/data/phrases.tsv has a text and its structure in a line: noun, attributes in brackets, and the place in angles,
for each phrase of the text: "the woman's white hair" is "hair [white] <part woman>". "?" is a thing that is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate.core.errors import QueryError, QueryLanguageWarning
from foveate.language.phrase import Phrase, Place, Relation, read
from foveate.language.query import other_language, parse, prepare
from tests.store_toys import Toy

TABLE = Path(__file__).parent / "data" / "phrases.tsv"
LINES = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines() if line and not line.startswith("#")]
WORDS = sorted({word for text, _ in LINES for word in text.lower().split()})


def say(phrase: Phrase) -> str:
    attributes = f" [{', '.join(phrase.attributes)}]" if phrase.attributes else ""
    place = f" <{phrase.place.relation} {say(phrase.place.of)}>" if phrase.place else ""
    return f"{phrase.noun or '?'}{attributes}{place}"


def within(phrase: Phrase) -> list[Phrase]:
    """A phrase and all that it is in."""
    return [phrase, *(within(phrase.place.of) if phrase.place else [])]


@pytest.mark.parametrize(("text", "structure"), LINES)
def test_structure(text: str, structure: str) -> None:
    assert "; ".join(map(say, parse(text).structure)) == structure


def test_the_table_is_long() -> None:
    assert len({text for text, _ in LINES}) == len(LINES) >= 300


@given(st.lists(st.sampled_from([*WORDS, "?", ".", ",", "of", "the", "'s"]), min_size=1, max_size=20).map(" ".join))
def test_any_english_has_a_structure_or_a_clear_error(text: str) -> None:
    try:
        wording = parse(text)
    except QueryError as error:
        assert "names no thing" in str(error)  # noqa: PT017 - the point is which error
        return
    assert len(wording.structure) == len(wording.phrases)
    for flat, phrase in zip(wording.phrases, wording.structure, strict=True):
        assert phrase.noun in phrase.text or phrase.noun == "person"
        assert phrase.noun or phrase.place
        if phrase.noun not in ("", "person"):
            assert phrase.text == flat
        for inner in within(phrase)[1:]:
            assert inner.noun
            assert inner.noun in inner.text
            assert all(attribute in inner.text for attribute in inner.attributes)
        for inner in within(phrase):
            assert inner.place is None or inner.place.relation in get_args(Relation)


@given(st.text(max_size=100))
def test_any_text_at_all(text: str) -> None:
    try:
        wording = parse(text)
    except QueryError:
        return
    assert len(wording.structure) == len(wording.phrases)


def test_a_frame_says_what_is_asked_and_keeps_the_flat_phrase() -> None:
    wording = parse("What is the woman wearing on her head?")
    assert wording.phrases == ("woman", "head")
    frame = wording.structure[0]
    assert frame == Phrase("what is the woman wearing on her head", "", (), Place("worn on head", read("the woman")))
    assert wording.structure[1].place == Place("part", read("woman"))


def test_the_query_has_the_structure_of_the_phrases_it_can_read() -> None:
    query = prepare(foveate.load_encoder("nano"), "犬, the dog's face")
    assert query.phrases == ("dog face",)
    assert query.structure == (read("the dog's face"),)


@pytest.mark.parametrize("words", ["dog of ", "dog's ", "a dog on ", "a car door of the ", "wheel of his ", "what is "])
def test_a_long_text_is_no_deep_one(words: str) -> None:
    for phrase in parse((words * 500)[:990] + " cat").structure:
        assert len(within(phrase)) < 40
        hash(phrase)


def test_a_structure_can_be_a_key() -> None:
    assert len({read("the dog's face"), read("a dog's face")}) == 1


@pytest.mark.parametrize(
    "text",
    [
        "wo ist der Hund?", "où est le chien ?", "¿dónde está el perro?", "dove è il cane?", "onde está o cão?",
        "waar is de hond?", "Wie viele Hunde gibt es?", "que hay en la mesa", "ein Hund und eine Katze",
        "die Giraffe neben dem Zaun", "Was ist auf dem Bild zu sehen?", "Was hat der Mann in der Hand?",
        "la jirafa al lado de la valla", "la girafe à côté de la clôture",
    ],
)  # fmt: skip
def test_a_question_in_another_language_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="English") as caught:
        prepare(foveate.load_encoder("nano"), text)
    assert "multilingual" in caught.value.fix
    assert "--encoder clip:" in caught.value.fix


@pytest.mark.parametrize(
    "text", ["le chien", "el perro rojo", "der Hut", "das Auto", "il gatto", "het paard", "uma casa"]
)
def test_an_article_of_another_language_is_a_warning(text: str) -> None:
    with pytest.warns(QueryLanguageWarning, match="looks like"):
        prepare(foveate.load_encoder("nano"), text)


@pytest.mark.parametrize(
    "text",
    [
        "los angeles sign", "la la land", "le creuset pot", "a la carte menu", "van on main", "a can of la croix",
        "hat", "die cast car", "the el camino", "no entry", "man on a chaise longue", "come in sign",
        "pas de deux", "a piñata", "mahi mahi", "hot dog stand", "van gogh", "du jour", '"der Hund"',
        "die in am", "what was in the das boot poster", "man on an AM radio", "a man in an la t-shirt",
    ],
)  # fmt: skip
def test_english_with_foreign_words_in_it_is_english(text: str) -> None:
    assert other_language(text) is None


def test_the_whole_table_is_english() -> None:
    assert [text for text, _ in LINES if other_language(text)] == []


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("a violin and a dog", "violin"),
        ("asdfgh qwer", "asdfgh qwer"),
        ("犬, the dog's face", "犬"),
        ("the violin case", "violin case"),
        ("the garden gnome", "garden gnome"),
        ("the tallest giraffe on the left", "tallest, on the left"),
        ("the big red car", "big"),
        ("the person in the top left corner with a kettle", "in the top left corner, kettle"),
        ("trees in the background", "in the background"),
        ("is the dog at the left or the right?", "at the left, the right"),
        ("the cup to the left of the plate", ""),
        ("the left of the car", ""),
        ("what is in front of the house?", ""),
        ("the child's hand", ""),
        ("the dark blue jacket and a striped hat", ""),
        ("what does the writing on the sign say?", ""),
        ("what is the man holding?", ""),
        ("a desk lamp", ""),
    ],
)
def test_a_query_says_what_it_does_not_understand(text: str, unknown: str) -> None:
    assert ", ".join(prepare(foveate.load_encoder("nano"), text).unknown) == unknown


def test_places_and_properties_alone_where_an_encoder_has_no_list_of_names() -> None:
    words: Any = type("Words", (Toy,), {"reads_phrases": False})()
    query = prepare(words, "the tallest violin on the left")
    assert query.unknown == ("tallest", "on the left")
