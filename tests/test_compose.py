"""Maps of things become the map of a phrase (relevance/composition.py), on drawn maps whose right answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import foveate
from foveate.language.phrase import FRAMES, Phrase, words_of
from foveate.language.query import parse, prepare
from foveate.relevance.composition import GUESS, compose
from foveate.relevance.confidence import DETECTED
from tests.conftest import PHOTOS
from tests.store_toys import Toy

Floats = NDArray[np.float32]
SHAPE = (48, 64)
NANO = foveate.load_encoder("nano")


def blob(y: float, x: float, half: float, high: float = 0.95) -> Floats:
    rows, cols = np.mgrid[: SHAPE[0], : SHAPE[1]].astype(np.float32)
    inside = np.maximum(np.abs(rows - y), np.abs(cols - x)) <= half
    return np.where(inside, np.float32(high), np.float32(0.02))


def colour(word: str) -> tuple[Floats, float] | None:
    """Left half red, right half blue."""
    plane = np.zeros(SHAPE, np.float32)
    if word == "red":
        plane[:, : SHAPE[1] // 2] = 1
    elif word == "blue":
        plane[:, SHAPE[1] // 2 :] = 1
    else:
        return None
    return plane, 0.7


def peak_at(p: Floats) -> tuple[int, int]:
    y, x = np.unravel_index(int(p.argmax()), p.shape)
    return int(y), int(x)


def one(text: str) -> Phrase:
    return parse(text).structure[0]


def test_a_part_counts_on_its_whole_only() -> None:
    maps = {"face": np.maximum(blob(10, 12, 3, 0.8), blob(10, 50, 3)), "dog": blob(16, 12, 10)}
    made = compose(one("the dog's face"), maps, colour)
    assert abs(peak_at(made.map)[1] - 12) <= 3  # the brighter face beside the dog is a person's
    assert made.map[10, 50] < 0.3
    assert made.confidence > DETECTED
    assert made.confidences["dog"] > 0.9


def test_a_part_is_not_there_if_it_is_not_found_or_its_whole_is_not() -> None:
    nothing, dog = np.full(SHAPE, 0.03, np.float32), blob(20, 20, 10)
    bare = compose(one("the dog's collar"), {"collar": nothing, "dog": dog}, colour)
    assert bare.confidence < 0.1
    assert bare.map.max() <= GUESS + 1e-6  # guessed, so it never counts as found
    without = compose(one("the dog's collar"), {"collar": blob(20, 20, 2), "dog": nothing}, colour)
    assert without.confidence < 0.1


def test_parts_that_nobody_found_are_looked_for_where_they_usually_are() -> None:
    nothing, horse = np.full(SHAPE, 0.03, np.float32), blob(24, 30, 12)
    hooves = compose(one("the horse's hooves"), {"hooves": nothing, "horse": horse}, colour).map
    ears = compose(one("the horse's ears"), {"ears": nothing, "horse": horse}, colour).map
    assert hooves[34, 30] > 2 * hooves[14, 30]
    assert ears[14, 30] > 2 * ears[34, 30]


def test_a_colour_is_evidence() -> None:
    cars = np.maximum(blob(20, 12, 5, 0.9), blob(20, 50, 5, 0.95))
    red = compose(one("the red car"), {"car": cars}, colour)
    blue = compose(one("the blue car"), {"car": cars}, colour)
    assert peak_at(red.map)[1] < SHAPE[1] // 2 <= peak_at(blue.map)[1]
    assert set(red.planes) == {"car", "looks red"}
    np.testing.assert_array_equal(compose(one("the old car"), {"car": cars}, colour).map, cars)  # pixels do not show it


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("the cup next to the laptop", (20, 40)),
        ("the cup on the laptop", (20, 30)),
        ("the cup under the laptop", (36, 30)),
    ],
)
def test_a_place_chooses_among_things(text: str, kept: tuple[int, int]) -> None:
    places = [(20, 40), (20, 30), (36, 30), (44, 2)]
    cups = np.max([blob(y, x, 1.5, 0.9) for y, x in places], 0)
    made = compose(one(text), {"cup": cups, "laptop": blob(20, 28, 8)}, colour).map
    assert made[kept] == pytest.approx(max(made[place] for place in places), abs=0.15)
    assert made[kept] > 3 * made[44, 2]


def test_the_only_thing_of_its_kind_is_the_one() -> None:
    cup = blob(4, 4, 2, 0.9)
    made = compose(one("the cup next to the laptop"), {"cup": cup, "laptop": blob(40, 55, 5)}, colour)
    assert made.confidence == pytest.approx(0.9, abs=0.02)
    assert peak_at(made.map)[0] <= 6
    missing = compose(one("the cup next to the laptop"), {"cup": cup, "laptop": np.zeros_like(cup)}, colour)
    assert missing.confidence < 0.1  # both are asked for


def test_what_is_held_is_at_the_hands() -> None:
    words = words_of(one("what is the man holding?"))
    assert len(words) == len(set(words))
    assert {*FRAMES["held"], "hand", "man"} <= set(words)
    maps = {word: np.full(SHAPE, 0.02, np.float32) for word in words}
    maps |= {"man": blob(24, 20, 14), "hand": blob(28, 33, 2), "umbrella": np.maximum(blob(27, 36, 3), blob(10, 60, 3))}
    made = compose(one("what is the man holding?"), maps, colour)
    assert np.hypot(*(np.array(peak_at(made.map)) - (27, 36))) < 5
    assert made.map[10, 60] < 0.3  # an umbrella that nobody holds


def test_every_frame_finds_its_words() -> None:
    for text in ("what is the man holding?", "what is the man wearing on his head?", "what is the cat sitting on?",
                 "what is the girl eating?", "what is the boy riding?", "what is on the table?"):  # fmt: skip
        phrase = one(text)
        maps = {word: blob(20, 20, 6, 0.5) for word in words_of(phrase)}
        made = compose(phrase, maps, colour)
        assert made.map.shape == SHAPE
        assert "place" in made.planes
        assert made.confidence <= made.confidences[phrase.place.of.noun] + 1e-6  # type: ignore[union-attr]


def test_an_encoder_that_reads_phrases_keeps_its_attributes() -> None:
    query = prepare(Toy(), "the red cup on the old table")
    assert query.words == ("red cup", "old table")
    assert [cue.channel for cue in query.cues] == ["colour:red"]
    assert prepare(NANO, "the red cup").cues == ()


def test_reasons_name_the_parts_of_a_phrase() -> None:
    texture = foveate.encode(PHOTOS / "child_with_broccoli.jpg")
    relevance = foveate.score(texture, "the child's hand")
    assert {"hand", "child", "place"} <= set(relevance.reasons)
    assert relevance.confidence <= relevance.confidences["child"]
    assert relevance.confidences["child"] > DETECTED
    assert set(relevance.parts) == {"child hand"}


QUESTIONS = (
    "the child's hand", "what is the child holding?", "what is the child wearing on his head?", "the striped red shirt",
    "the cup next to the cup next to the cup", "the child's face, the child's hair, the cup's handle, the bus's wheel, "
    "the tree's leaves, the bird's wing, the man in the hat, the dog on the couch, a ninth thing",
    "the face of the face of the face of the face", "the child with the 犬", "the child's 犬", "what is on the table?",
)  # fmt: skip


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 3), (40, 30)])
def test_any_map_can_be_composed(size: tuple[int, int]) -> None:
    """One cell, a row of cells, a column."""
    rgb = np.random.default_rng(1).integers(0, 256, (*size, 4), np.uint8)
    rgb[: size[0] // 2, :, 3] = 0  # nothing is composed where it is transparent
    rgb[size[0] // 2 :, :, 3] = 255
    texture = foveate.encode(rgb, channels="fast", long_side=96)
    for question in QUESTIONS:
        found = foveate.score(texture, question)
        for plane in (found.map, *found.parts.values(), *found.reasons.values()):
            assert plane.shape == texture.grid.shape
            assert plane.min() >= 0
            assert plane.max() <= 1 + 1e-5
        assert found.valid is None or not found.map[found.valid == 0].any()
        assert np.isfinite(found.logits).all()
        assert 0 <= found.confidence <= 1
        assert len(foveate.allocate(found, 1)) == 1


def test_a_phrase_in_quotes_is_asked_as_it_is() -> None:
    query = prepare(NANO, '"the dog\'s face"')
    assert query.phrases == ("the dog's face",)
    assert query.words == ()
    assert prepare(NANO, "the dog's face").words == ("face", "dog")
