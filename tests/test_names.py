"""Texts as vectors over names (encoders/names.py): words of the table, words near them, and words nobody taught."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate.core.errors import QueryError
from foveate.encoders.load import load_encoder
from foveate.encoders.names import TAIL, NameSpace, read_names
from foveate.encoders.nano import NanoEncoder

WORDS = ("dog", "cat", "hand", "sky", "wheel", "couch", "light", "hands")


def vectors(texts: Sequence[str]) -> np.ndarray:
    """Every word of WORDS has a direction of its own; "hound" lies near "dog"; other words lie elsewhere."""
    out = np.zeros((len(texts), len(WORDS) + 1), np.float32)
    for row, text in zip(out, texts, strict=True):
        for word in text.lower().split():
            if word == "hound":
                row[[0, len(WORDS)]] += 0.95, 0.3
            elif word == "zzz":
                raise QueryError("zzz", expected="a word", fix="write one")
            else:
                row[WORDS.index(word) if word in WORDS else len(WORDS)] += 1
        row /= max(float(np.linalg.norm(row)), 1e-9)
    return out


def space() -> NameSpace:
    carried = np.zeros((len(WORDS) + 1, 2), np.float32)
    carried[0, 0] = carried[1, 1] = 1
    words = {"dog": (0,), "cat": (1,), "hand": (2,), "hands": (2,), "sky": (3,), "wheel": (4,), "couch": (5,)}
    return NameSpace(("dog", "cat", "hand", "sky", "wheel", "sofa"), words | {"light": (3, 4)}, carried, vectors)


def test_a_word_of_the_table_asks_for_its_name_alone() -> None:
    for text, name in (("dog", 0), ("The Hand", 2), ("hands", 2), ("wheels", 4), ("a couch", 5)):
        place = space().place(text)
        assert place[name] == pytest.approx(1)
        assert np.count_nonzero(place) == 1


def test_two_names_the_last_words_and_near_words() -> None:
    assert space().place("light")[[3, 4]] == pytest.approx([np.sqrt(0.5)] * 2)
    assert space().place("rubber wheel")[4] == space().known("rubber wheel") == pytest.approx(TAIL)
    assert space().place("hound")[0] > 0.9
    assert space().known("quux") < 0.05
    assert space().place("quux")[-1] > 0.99
    with pytest.raises(QueryError):
        space().place("zzz")


@pytest.mark.parametrize(
    "text", ["the DOG", "dog's", "dog’s", "the dog's wheel", "dogs'", "dog!", "“dog”", "dogs", "_dog_"]
)
def test_signs_around_a_word_of_the_table_do_not_hide_it(text: str) -> None:
    assert space().place(text)[4 if "wheel" in text else 0] >= TAIL - 1e-6


@pytest.mark.parametrize("text", ["the", "the a", "!?", "s", "'s", "e\u0301", "犬", "\u200b", " "])
def test_texts_without_a_word_of_the_table_are_hardly_known(text: str) -> None:
    assert space().known(text) < 0.05
    assert not space().knows(text)


def test_a_very_long_text_takes_no_longer_than_its_words() -> None:
    """Of a text only as many of its last words are looked up as the longest phrase of the table has."""
    made = space()
    assert made.place("very " * 200_000 + "old dog")[0] == pytest.approx(TAIL)
    assert made.known("very " * 200_000) < 0.05


@given(st.text(alphabet="abdogcthandskywel ", min_size=1, max_size=30).filter(str.strip))
def test_every_text_is_a_unit_vector(text: str) -> None:
    made = space()
    place = made.place(text)
    assert place.shape == (made.width,)
    assert np.linalg.norm(place) == pytest.approx(1, abs=1e-3)
    assert np.isfinite(place).all()


def test_a_file_without_names_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "names.json"
    for text in ("", "[]", '{"other": {}}', '{"names": 3}', '{"names": {}}', '{"names": {"a": "bc", "d": []}}',
                 '{"names": {"a": [1], "d": []}}', '{"names": {"a": []}}'):  # fmt: skip
        file.write_text(text)
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
            read_names(file, np.zeros((7, 2), np.float32), vectors)
    file.write_text('{"names": {"a": [], "b": ["c"]}}')
    assert read_names(file, np.zeros((7, 2), np.float32), vectors).words == {"a": (0,), "b": (1,), "c": (1,)}
    with pytest.raises(ValueError, match="for 2 names"):
        read_names(file, np.zeros((7, 3), np.float32), vectors)


def test_the_built_in_names_are_silent_for_each_other() -> None:
    nano = load_encoder("nano")
    assert isinstance(nano, NanoEncoder)
    texts = ["dog", "sky", "hand", "wheel", "window", "pavement", "couch", "number plate"]
    q = nano.encode_text(texts)
    alike = q @ q.T
    assert np.abs(alike - np.eye(len(texts))).max() < 0.05
    assert nano.encode_text(["sofa"])[0] @ nano.encode_text(["couch"])[0] > 0.99
    assert nano.encode_text(["sidewalk"])[0] @ nano.encode_text(["pavement"])[0] > 0.99


def test_nonsense_is_not_known() -> None:
    nano = load_encoder("nano")
    assert isinstance(nano, NanoEncoder)
    assert max(nano.space.known(text) for text in ("flurbish", "quenticle", "brimvok", "zanthor")) < 0.6
    strange = nano.encode_text(["flurbish", "quenticle", "brimvok", "zanthor"])
    assert strange[:, :-1].max() < 0.4  # and no name has much of it
