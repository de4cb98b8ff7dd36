"""How questions are read: phrases, their structure, channels, languages, dialogue, answers; and what holds of any text.

tests/data/questions.tsv has a check, a question and what must come of it in a line. phrases.tsv has a text and its
structure: noun, attributes in brackets, and the place in angles, for each phrase: "the woman's white hair" is
"hair [white] <part woman>". "?" is a thing that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate import Texture
from foveate.answers.question import read_question
from foveate.answers.types import find_types
from foveate.core.errors import FoveateError, QueryError, QueryLanguageWarning
from foveate.encoders.names import DROPPED, OFTEN, SELDOM
from foveate.language.cues import find_cues
from foveate.language.dialogue import goes_back, refers_back
from foveate.language.lists import read_lists, read_rows
from foveate.language.phrase import Phrase, Relation, read
from foveate.language.query import DESCRIBED, HALF, MAX_PHRASES, noun_phrases, other_language, parse, prepare
from foveate.relevance.confidence import DETECTED, limit
from tests.store_toys import Toy

DATA = Path(__file__).parent / "data"


def lines(name: str) -> list[list[str]]:
    every = (DATA / name).read_text("utf-8").splitlines()
    return [line.split("\t") for line in every if line and not line.startswith("#")]


TABLE = lines("phrases.tsv")
WORDS = sorted({word for text, _ in TABLE for word in text.lower().split()})
NANO = foveate.load_encoder("nano")


def spell(phrase: Phrase) -> str:
    attributes = f" [{', '.join(phrase.attributes)}]" if phrase.attributes else ""
    place = f" <{phrase.place.relation} {spell(phrase.place.of)}>" if phrase.place else ""
    return f"{phrase.noun or '?'}{attributes}{place}"


def within(phrase: Phrase) -> list[Phrase]:
    """A phrase and all that it is in."""
    return [phrase, *(within(phrase.place.of) if phrase.place else [])]


def groups(text: str) -> str:
    wording = parse(text)
    together = "/".join("+".join(group) for group in wording.groups)
    return "\t".join(filter(None, (together, " ".join(wording.ignored))))


def error(text: str) -> str:
    with pytest.raises(QueryError) as caught:
        prepare(NANO, text)
    assert caught.value.fix
    return str(caught.value)


def warning(text: str) -> str:
    with pytest.warns(QueryLanguageWarning) as caught:
        prepare(NANO, text)
    return str(caught[0].message)


CHECKS: dict[str, Callable[[str], str]] = {
    "phrases": lambda text: " | ".join(noun_phrases(text)),
    "together": groups,
    "english": lambda text: "" if other_language(text) is None else "another",
    "channels": lambda text: ", ".join(cue.channel for cue in find_cues(text, noun_phrases(text))),
    "unknown": lambda text: ", ".join(prepare(NANO, text).unknown),
    "looked for": lambda text: ", ".join(f"{word}: {other}" for word, other in prepare(NANO, text).looked_for.items()),
    "back": goes_back,
    "exact": lambda text: " ".join(read_question(text).exact),
    "on": lambda text: read_question(text).on or "",
    "types": lambda text: " ".join(sorted(read_question(text).types)),
}


@pytest.mark.parametrize("line", lines("questions.tsv"), ids=lambda line: f"{line[0]}: {line[1]}")
def test_what_a_question_is_read_as(line: list[str]) -> None:
    check, text, *expected = line
    if check == "shape":
        kind, span = expected
        place = (text.index(span), text.index(span) + len(span))
        assert any((a, b) == place and weight >= 0.8 for a, b, weight in find_types(text)[kind])
    elif check in ("error", "warning"):
        assert expected[0] in (error if check == "error" else warning)(text)
    else:
        assert CHECKS[check](text) == "\t".join(expected)


@pytest.mark.parametrize(("text", "structure"), TABLE)
def test_structure(text: str, structure: str) -> None:
    assert "; ".join(map(spell, parse(text).structure)) == structure
    assert other_language(text) is None


def test_lists_of_words_are_wellformed() -> None:
    words = Path(foveate.__file__).parent / "language" / "words"
    for file in words.glob("*.tsv"):
        rows = read_rows(file.stem)
        assert rows, file
        assert all(entry == entry.strip() for row in rows for column in row for entry in column), file
    for name in ("describing", "things", "small", "verbs", "prepositions", "frames", "cues", "looks", "dialogue"):
        for key, entries in read_lists(name).items():
            assert entries, (name, key)
            assert len(set(entries)) == len(entries), (name, key)
    assert "sofa" in {word for wholes, _ in read_rows("wholes") for word in wholes}


# --- what holds of any text -------------------------------------------------------------------------------------------


@given(
    st.one_of(
        st.lists(st.sampled_from([*WORDS, "?", ".", ",", "of", "the", "'s"]), min_size=1, max_size=20).map(" ".join),
        st.text(max_size=200),
    )
)
def test_any_text_has_a_structure_or_a_clear_error(text: str) -> None:
    try:
        wording = parse(text)
        query = prepare(NANO, text)
    except FoveateError as refused:
        assert isinstance(refused, QueryError)  # noqa: PT017 - the point is which class
        return
    assert 1 <= len(query.phrases) <= len(wording.phrases) == len(wording.structure) <= MAX_PHRASES
    lengths = np.linalg.norm(query.vectors, axis=1)
    assert (lengths > 1 - 1e-4).all()
    assert (lengths < np.sqrt(1003)).all()  # a group has at most all classes, and names
    for flat, phrase in zip(wording.phrases, wording.structure, strict=True):
        assert flat
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


@pytest.mark.parametrize("words", ["dog of ", "dog's ", "a dog on ", "a car door of the ", "wheel of his ", "what is "])
def test_a_long_text_is_no_deep_one(words: str) -> None:
    for phrase in parse((words * 500)[:990] + " cat").structure:
        assert len(within(phrase)) < 40
        hash(phrase)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((text, "an empty query") for text in ("", "   ", "\n\t", "???", "...!")),
        *((text, "Unicode") for text in ("caf\ud8e9", '"\udcff"', "a dog \udfff")),
        ("dog and cat " * 833 + "dog ", "10,000 characters"),
        (3, "int"),
    ],
)
def test_what_is_no_question(text: str, words: str) -> None:
    assert words in error(text)


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_query_is_prepared_once_and_what_cannot_be_read_does_not_refuse_the_rest() -> None:
    query = prepare(NANO, "犬, the dog's face")
    assert query.phrases == ("dog face",)
    assert query.structure == (read("the dog's face"),)
    assert prepare(NANO, "狗 dog").phrases == ("狗 dog",)
    words: Any = type("Words", (Toy,), {"reads_phrases": False})()
    assert prepare(words, "the tallest trophy in the background").unknown == ("tallest", "in the background")
    query = prepare(NANO, "a very particular dog")
    assert prepare(NANO, "a very particular dog") is query
    with pytest.raises(ValueError, match="read-only"):
        query.vectors[0] = 0


def test_what_is_looked_for_in_the_place_of_a_word_limits_every_phrase_with_it() -> None:
    assert dict(prepare(NANO, "a police car and a dog").promises) == {"police car": SELDOM}
    assert prepare(NANO, "the white stove's knobs").promises == {"stove": OFTEN, "white stove knobs": OFTEN}
    assert prepare(NANO, "the knobs of the stove beside the police car").promises["knobs of stove"] == SELDOM
    assert prepare(NANO, "a dog, a lorry or a trophy").promises == {"trophy": HALF}
    assert not prepare(NANO, "a black and white cat").promises
    assert not prepare(NANO, "a black and white cat").looked_for
    for half_known in ("a person holding the trophy", "a person with a trophy", "a person and 犬"):
        assert prepare(NANO, half_known).promises["person"] == HALF
    toy: Any = Toy()
    assert not prepare(toy, "a police car").looked_for


def test_texts_that_are_no_questions_of_a_dialogue() -> None:
    for text in ("  ", "x" * 5000):
        with pytest.raises(QueryError):
            goes_back(text)
    assert refers_back("?") == "wholly"  # nothing to look for but what the dialogue was about
    assert refers_back("and its wheels?") == "partly"


# --- in a photograph --------------------------------------------------------------------------------------------------


def test_things_asked_for_together_are_detected_if_all_are(texture: Texture) -> None:
    both, child = foveate.score(texture, "a child and a giraffe"), foveate.score(texture, "child")
    giraffe = foveate.score(texture, "giraffe")
    assert child.detected
    assert not both.detected
    assert both.confidence == pytest.approx(giraffe.confidence, abs=1e-6)
    assert dict(both.confidences) == pytest.approx({"child": child.confidence, "giraffe": giraffe.confidence}, abs=1e-6)
    assert np.allclose(both.map.max(), child.map.max(), atol=1e-5)  # the map shows what there is
    assert foveate.score(texture, "a child and broccoli").detected
    assert foveate.score(texture, "a child or a giraffe").confidence == pytest.approx(child.confidence, abs=1e-6)


def test_what_was_looked_for_in_its_place_is_said_and_paid_for(texture: Texture, cake: Path) -> None:
    child = foveate.score(texture, "a child")
    for question, word in (("a police officer", "police officer"), ("the bride", "bride"), ("a mother", "mother")):
        found, other = foveate.score(texture, question), "person"
        assert found.looked_for == {word: other}
        assert f"looked for {other} in place of {word}" in repr(found)
        assert not found.detected
        assert 0.4 < found.confidence == found.confidences[word] <= SELDOM
        assert np.corrcoef(found.map.ravel(), child.map.ravel())[0, 1] > 0.95  # and the map is of that
    table, desk = (foveate.score(foveate.encode(cake), question) for question in ("the table", "the desk"))
    assert table.detected
    assert not table.looked_for
    assert desk.detected
    assert desk.confidence <= OFTEN < table.confidence
    worn, named = (foveate.score(texture, f"the child in {what}") for what in ("pink", "pink clothes"))
    assert (worn.confidence, worn.unknown, dict(worn.looked_for)) == (named.confidence, (), {})
    for wearing in ("pink", "a pink dress"):  # it is no dress that smiles
        asked = foveate.score(texture, f"is the child in {wearing} smiling?")
        assert asked.confidence == pytest.approx(0.45)
        assert asked.unknown == ("smiling",)
    half = foveate.score(texture, "a child holding the trophy")
    assert half.unknown == ("trophy",)
    assert not half.detected
    for question in ("a child holding the trophy", "who is holding the trophy?", "a child and a trophy"):
        half = foveate.score(texture, question)  # the known half is shown
        assert list(half.looked_for.values()) == ["person" if question.startswith("who") else "child"]
        assert half.unknown == ("trophy",)
        assert not half.detected
        np.testing.assert_allclose(half.map, child.map, atol=0.02)
        assert half.boxes()[0] == pytest.approx(child.boxes()[0], abs=20)
    for question in ("is the child sleeping?", "the sleeping child", "is the child eating?"):
        half = foveate.score(texture, question)
        assert list(half.looked_for.values()) == ["child"]
        assert len(half.unknown) == 1
        assert half.detected == (question == "the sleeping child")
        assert half.confidence <= DESCRIBED
        np.testing.assert_allclose(half.map, child.map, atol=0.02)
        assert half.boxes()[0] == pytest.approx(child.boxes()[0], abs=20)
    skier = foveate.score(texture, "the skier")  # without skis it is anybody
    assert not skier.detected
    assert skier.looked_for == {"skier": "person with skis"}
    assert np.corrcoef(skier.map.ravel(), child.map.ravel())[0, 1] > 0.9
    for question in ("the child's trophy", "a trophy", "the trophy on the table"):
        assert not len(foveate.score(texture, question).boxes())
    assert foveate.score(texture, "a child or a trophy").looked_for == {}


@given(st.lists(st.floats(0, 1), min_size=2, max_size=9), st.sampled_from([HALF, DROPPED, SELDOM, OFTEN, 1.0]))
def test_a_limit_keeps_the_order(confidences: list[float], at_most: float) -> None:
    limited = [limit(each, at_most) for each in sorted(confidences)]
    assert limited == sorted(limited)
    assert limited[-1] <= at_most + 1e-9
    assert (limited[-1] >= DETECTED) == (max(confidences) >= DETECTED and at_most >= DETECTED)
    assert all(limit(each, at_most) <= each for each in confidences)


def test_things_beside_each_other_and_things_left_out(texture: Texture) -> None:
    found, giraffe = foveate.score(texture, "the child with the giraffe"), foveate.score(texture, "giraffe")
    assert not found.detected
    assert found.confidence <= giraffe.confidence + 1e-6
    assert np.allclose(found.reasons["child"], foveate.score(texture, "child", smoothing=0).map, atol=1e-6)
    found, child = foveate.score(texture, "a child without broccoli"), foveate.score(texture, "child")
    assert found.ignored == ("broccoli",)
    assert np.array_equal(found.map, child.map)
