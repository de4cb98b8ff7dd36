"""From scores to a map: the formula, planes that words ask for, phrases of things, maps for later questions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import foveate
from foveate import Texture
from foveate.channels import Channels
from foveate.channels.build import COMPUTABLE, select_channels
from foveate.channels.segments import KMeans
from foveate.core.errors import ChannelError, OptionError
from foveate.encoders.protocol import Calibration
from foveate.language.cues import COLOURS, MOVES, RAISE, Cue
from foveate.language.negatives import Negatives
from foveate.language.phrase import FRAMES, Phrase, Pick, words_of
from foveate.language.query import channel_weights, parse, prepare
from foveate.reading.words import Word, Words
from foveate.relevance.composition import ANYBODY, GUESS, TOO_FEW, Composed, compose
from foveate.relevance.confidence import DETECTED, with_odds
from foveate.relevance.evidence import (
    COLOUR,
    MATERIAL,
    OWN_MOTION,
    Shown,
    colour_plane,
    evidence_of,
    follow,
    own_motion,
)
from foveate.relevance.options import DEFAULTS
from foveate.relevance.passes import add_dialogue, add_map, add_phrases, add_word_maps, shared_map
from foveate.relevance.scoring import relevance_of, score_maps, score_nothing, score_query
from foveate.relevance.value import Relevance
from tests.conftest import PHOTOS
from tests.store_toys import Toy

NANO: Any = foveate.load_encoder("nano")


def with_rivalry(contrast: float, synonym: float = 0.6) -> Calibration:
    return Calibration(temperature=20.0, contrast=contrast, synonym=synonym, slope=10.0, offset=-1.0)


@pytest.fixture(scope="module")
def bank() -> Negatives:
    return Negatives(NANO.encode_text(["table", "house", "child", "tree", "puppy", "window", "hat"]))


def test_without_rivals_it_is_a_sigmoid_of_the_score_and_no_evidence_is_0(texture: Texture) -> None:
    query = prepare(NANO, "broccoli")
    found = score_query(texture, query, with_rivalry(0))
    score = texture.scores(query.vectors)[0]
    assert query.kinds  # which are asked beside it, and do not change a digit
    np.testing.assert_array_equal(found.logits, score)
    floor = 1 / (1 + np.e)
    expected = np.maximum((1 / (1 + np.exp(-(10 * score - 1))) - floor) / (1 - floor), 0)
    assert np.allclose(found.reasons["participation"], expected, atol=1e-5)
    nowhere = foveate.score(texture, "an elephant")
    assert nowhere.confidence < 0.01
    assert nowhere.map.max() < 0.05


def test_a_relevance_is_at_most_one() -> None:
    for offset in np.arange(-3, 3, 0.02):  # for some, float32 rounds up
        assert relevance_of(np.full(1, 5, np.float32), replace(with_rivalry(0), offset=float(offset))).max() <= 1


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


def test_confidence_is_the_mean_of_the_highest_cells_also_without_rivals(texture: Texture, bank: Negatives) -> None:
    found = foveate.score(texture, "broccoli")
    highest = float(np.sort(found.reasons["participation"].ravel())[-3:].mean())
    assert found.confidence == pytest.approx(with_odds(highest, NANO.surer("broccoli")), abs=1e-6)
    query = prepare(NANO, "broccoli")
    found = score_query(texture, query, with_rivalry(1, synonym=-1), bank)
    assert np.isfinite(found.map).all()


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


# --- planes that words ask for ----------------------------------------------------------------------------------------


def test_words_that_did_not_help_use_no_channel_and_cues_need_no_name(texture: Texture) -> None:
    for asked in ("what colour is the broccoli?", "how far is the broccoli?"):
        assert np.array_equal(foveate.score(texture, asked).map, foveate.score(texture, "broccoli").map)
        assert dict(channel_weights(asked)) == {}
    mask = np.zeros((160, 120))
    mask[10:20, 50:75] = 1
    found = score_nothing(texture.with_channel("text", mask), "what does it say?")
    assert dict(found.weights) == {"text": RAISE}
    assert found.map[4:8, 20:30].min() == RAISE
    assert score_nothing(texture, "why?").map.max() == 0


def test_motion_of_its_own_is_against_the_cameras(texture: Texture) -> None:
    asked = "what is moving?"
    assert "own_motion" not in foveate.score(texture, asked).weights  # a still has no flow
    with pytest.raises(ChannelError, match="holds no flow"):
        foveate.score(texture, asked, channel_weights={"own_motion": 0.5})
    down, right = np.full(texture.grid.shape, 4.0), np.full(texture.grid.shape, -3.0)  # the camera pans
    down[10:20, 30:40] += 6  # and something falls
    frame = texture.with_channel("flow_y", down).with_channel("flow_x", right)
    plane = own_motion(frame)
    assert plane is not None
    assert np.allclose(plane[10:20, 30:40], 6 / (OWN_MOTION * np.hypot(640, 480)))
    assert plane.sum() == pytest.approx(float(plane[10:20, 30:40].sum()))
    found = foveate.score(frame, asked)
    assert dict(found.weights) == {"own_motion": MOVES}
    assert np.array_equal(found.reasons["own_motion"], plane)
    assert dict(foveate.score(frame, "broccoli", channel_weights={"own_motion": 0.5}).weights) == {"own_motion": 0.5}


PAINT = {
    "red": (200, 20, 20), "orange": (250, 140, 20), "yellow": (240, 220, 40), "green": (40, 160, 60),
    "blue": (40, 70, 200), "purple": (130, 40, 170), "pink": (250, 150, 190), "brown": (110, 70, 30),
    "black": (15, 15, 15), "white": (245, 245, 245), "grey": (128, 128, 128),
}  # fmt: skip


def test_each_colour_is_called_by_its_own_name() -> None:
    assert set(PAINT) == set(COLOURS)
    cells = np.repeat(np.array(list(PAINT.values()), np.uint8), 32, axis=0)
    texture = foveate.encode(np.repeat(cells[:, None], 32, axis=1), long_side=32 * len(PAINT))
    rows = {name: slice(4 * i + 1, 4 * i + 3) for i, name in enumerate(PAINT)}  # away from borders between colours
    for name in PAINT:
        plane = colour_plane(texture, name)
        means = {other: float(plane[rows[other]].mean()) for other in PAINT}
        assert means[name] > 0.9, name
        assert max(means, key=lambda other: means[other]) == name, means


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=9), st.floats(0, 1, width=32), st.data())
def test_rules_keep_the_map_in_range_and_do_what_they_say(p: list[float], w: float, data: st.DataObject) -> None:
    c = data.draw(st.lists(st.floats(0, 1, width=32), min_size=len(p), max_size=len(p)))
    before, plane = np.array(p, np.float32), np.array(c, np.float32)
    raised, favoured = (follow(before, Cue("x", rule, w), plane) for rule in ("raise", "favour"))
    assert (raised >= before - 1e-6).all()
    assert (raised <= 1 + 1e-6).all()
    assert (favoured <= before + 1e-6).all()
    assert (favoured >= before * (1 - w) - 1e-6).all()
    assert np.allclose(follow(before, Cue("x", "raise", w), np.zeros_like(plane)), before, atol=1e-6)
    assert np.allclose(follow(before, Cue("x", "favour", w), np.ones_like(plane)), before, atol=1e-6)


def test_a_question_about_writing_uses_the_text_channel(texture: Texture) -> None:
    question = "what is written here?"  # on no thing: all writing counts
    assert "text" not in foveate.score(texture, question).reasons  # nobody looked for writing in this texture
    mask = np.zeros((160, 120))
    mask[10:20, 50:75] = 1  # cells of 10 pixels: rows 4 to 8, columns 20 to 30
    read = texture.with_channel("text", mask)
    found, plain = foveate.score(read, question), foveate.score(read, question, cues=False)
    assert found.reasons["text"][4:8, 20:30].min() == 1
    assert found.reasons["text"].sum() == 40
    assert (found.map[4:8, 20:30] >= 0.5).all()
    assert np.allclose(found.map[8:], plain.map[8:], atol=1e-6)


def test_the_colour_of_a_thing_is_mild(texture: Texture) -> None:
    plain, green, red = (foveate.score(texture, q, smoothing=0) for q in ("broccoli", "green broccoli", "red broccoli"))
    assert set(green.reasons) == {"participation", "broccoli", "looks green"}
    assert dict(green.weights) == {"looks green": COLOUR}
    assert np.allclose(green.reasons["broccoli"], plain.map, atol=1e-6)
    assert (red.map >= (1 - COLOUR) * plain.map - 1e-6).all()
    leaf = np.unravel_index(plain.map.argmax(), plain.map.shape)
    assert green.map[leaf] > red.map[leaf]


@pytest.mark.parametrize("word", ["wooden", "denim", "striped"])
def test_what_materials_and_patterns_look_like_is_made_once(word: str, texture: Texture) -> None:
    found, again = evidence_of(texture, word), evidence_of(texture, word)
    assert found is not None
    assert again is not None
    assert found.plane.shape == texture.grid.shape
    assert found.plane.dtype == np.float32
    assert 0 <= found.plane.min() < found.plane.max() <= 1
    assert found.weight == MATERIAL < COLOUR
    assert again.planes is found.planes


def test_what_pixels_do_not_show_is_no_evidence(texture: Texture) -> None:
    assert evidence_of(texture, "old") is None
    bare = dataclasses.replace(texture, planes={n: p for n, p in texture.planes.items() if n != "high_pass"})
    assert evidence_of(bare, "striped") is None


# --- phrases of things, on drawn maps whose right answer is known -----------------------------------------------------


Floats = NDArray[np.float32]
SHAPE = (48, 64)


def blob(y: float, x: float, half: float, high: float = 0.95) -> Floats:
    rows, cols = np.mgrid[: SHAPE[0], : SHAPE[1]].astype(np.float32)
    inside = np.maximum(np.abs(rows - y), np.abs(cols - x)) <= half
    return np.where(inside, np.float32(high), np.float32(0.02))


def colour(word: str) -> Shown | None:
    """Left half red, right half blue."""
    planes = np.zeros((2, *SHAPE), np.float32)
    planes[0, :, : SHAPE[1] // 2] = 1
    planes[1, :, SHAPE[1] // 2 :] = 1
    return Shown(planes, ("red", "blue").index(word), COLOUR, 1.0) if word in ("red", "blue") else None


def put(text: str, maps: Mapping[str, Floats]) -> Composed:
    """A phrase of drawn maps, by word."""
    return compose(one(text), lambda *words: np.max([maps[word] for word in words], 0), colour, {})


def peak_at(p: Floats) -> tuple[int, int]:
    y, x = np.unravel_index(int(p.argmax()), p.shape)
    return int(y), int(x)


def one(text: str) -> Phrase:
    return parse(text).structure[0]


def test_a_part_counts_on_its_whole_only_or_where_it_usually_is() -> None:
    maps = {"face": np.maximum(blob(10, 12, 3, 0.8), blob(10, 50, 3)), "dog": blob(16, 12, 10)}
    made = put("the dog's face", maps)
    assert abs(peak_at(made.map)[1] - 12) <= 3  # the brighter face beside the dog is a person's
    assert made.map[10, 50] < 0.3
    assert made.confidence > DETECTED
    assert made.confidences["dog"] > 0.9
    nothing, dog = np.full(SHAPE, 0.03, np.float32), blob(20, 20, 10)
    bare = put("the dog's collar", {"collar": nothing, "dog": dog})
    assert bare.confidence < 0.1
    assert bare.map.max() <= GUESS + 1e-6  # guessed, so it never counts as found
    without = put("the dog's collar", {"collar": blob(20, 20, 2), "dog": nothing})
    assert without.confidence < 0.1
    nothing, horse = np.full(SHAPE, 0.03, np.float32), blob(24, 30, 12)
    hooves = put("the horse's hooves", {"hooves": nothing, "horse": horse}).map
    ears = put("the horse's ears", {"ears": nothing, "horse": horse}).map
    assert hooves[34, 30] > 2 * hooves[14, 30]
    assert ears[14, 30] > 2 * ears[34, 30]


def test_a_colour_is_evidence() -> None:
    cars = np.maximum(blob(20, 12, 5, 0.9), blob(20, 50, 5, 0.95))
    red = put("the red car", {"car": cars})
    blue = put("the blue car", {"car": cars})
    assert peak_at(red.map)[1] < SHAPE[1] // 2 <= peak_at(blue.map)[1]
    assert set(red.planes) == {"car", "looks red"}
    np.testing.assert_array_equal(put("the old car", {"car": cars}).map, cars)  # pixels do not show it


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
    made = put(text, {"cup": cups, "laptop": blob(20, 28, 8)}).map
    assert made[kept] == pytest.approx(max(made[place] for place in places), abs=0.15)
    assert made[kept] > 2.5 * made[44, 2]


DOGS = {(10, 8): 2.0, (12, 30): 4.0, (34, 44): 3.0, (24, 58): 2.5}


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("the dog on the left", (10, 8)),
        ("which dog is on the right?", (24, 58)),
        ("the leftmost dog", (10, 8)),
        ("the second dog from the left", (12, 30)),
        ("the dog third from the left", (34, 44)),
        ("the dog at the bottom of the picture", (34, 44)),
        ("the dog in the top right corner", (24, 58)),
        ("the dog in the lower left corner", (10, 8)),
        ("the dog in the upper right corner of the picture", (24, 58)),
        ("the first dog from the left of the picture", (10, 8)),
        ("the dog in the middle", (12, 30)),
        ("the largest dog", (12, 30)),
        ("the second largest dog", (34, 44)),
        ("which dog is the smallest?", (10, 8)),
        ("the dog closest to the camera", (34, 44)),
        ("the dog nearest to the cat", (24, 58)),
        ("the dog between the cat and the cup", (34, 44)),
        ("the nearest dog on the carpet", (34, 44)),
        ("the dog between the tables", (34, 44)),
    ],
)
def test_a_side_and_a_size_choose_one_of_several(text: str, chosen: tuple[int, int]) -> None:
    tables = np.maximum(blob(34, 28, 3), blob(34, 62, 2))
    maps = {"dog": np.max([blob(*place, size) for place, size in DOGS.items()], 0), "cat": blob(34, 60, 3)}
    maps |= {"cup": blob(34, 26, 2), "tables": tables, "carpet": np.ones(SHAPE, np.float32)}
    query = prepare(NANO, text)
    made = compose(query.structure[0], lambda *words: np.max([maps[word] for word in words], 0), colour, {})
    assert query.unknown == ()
    assert made.map[chosen] == made.map.max()
    for place in DOGS.keys() - {chosen}:
        assert made.map[place] < DETECTED * made.map[chosen]  # `boxes()` has no other
    assert made.confidence > DETECTED


@pytest.mark.parametrize("place", ["on the couch", "with the couch", "above the couch"])
def test_a_place_chooses_a_thing_as_a_whole(place: str) -> None:
    near, far = blob(16, 16, 12), blob(16, 50, 8)
    made = put(f"the dog {place}", {"dog": np.maximum(near, far), "couch": blob(34, 16, 6)})
    np.testing.assert_allclose(made.map[near > DETECTED], near[near > DETECTED], atol=0.02)  # its head as well
    assert made.map[16, 50] < DETECTED


def test_who_is_known_by_a_thing_is_a_person_with_it_or_with_none_in_sight_anybody() -> None:
    phrase = prepare(NANO, "the skier").structure[0]
    people, skis = np.maximum(blob(20, 14, 5), blob(20, 50, 5, 0.9)), blob(27, 50, 3)
    maps = {"person": people, "skis": skis}
    made = compose(phrase, lambda word: maps[word], colour, {})
    assert peak_at(made.map)[1] in range(44, 57)
    assert made.confidence > DETECTED
    made = compose(phrase, lambda word: maps[word] * np.float32(word == "person"), colour, {})
    np.testing.assert_allclose(made.map, people, atol=0.05)
    assert 0.4 < made.confidence <= ANYBODY
    nobody = compose(phrase, lambda word: maps[word] * np.float32(word == "skis"), colour, {})
    assert nobody.confidence < 0.1


@pytest.mark.parametrize(
    ("text", "there"),
    [
        ("the dog on the left", True),
        ("the dog on the right", False),
        ("the rightmost dog", True),
        ("the first dog from the right", True),
        ("the dog at the top", True),
        ("the dog at the bottom", True),  # a little above the middle
        ("the dog in the upper right corner", False),
        ("the dog in the lower left corner", True),
        ("the dog in the middle", False),
        ("the largest dog", True),
    ],
)
def test_the_only_thing_is_not_detected_on_the_other_side(text: str, there: bool) -> None:
    for only in (blob(22, 6, 4), np.maximum(blob(22, 4, 3), blob(22, 10, 3))):  # one piece, with a valley
        made = put(text, {"dog": only})
        assert made.confidence > DETECTED if there else made.confidence <= TOO_FEW
        assert peak_at(made.map)[1] < 14  # it is shown all the same
    assert put(text, {"dog": np.maximum(blob(22, 6, 4), blob(22, 22, 2))}).confidence > DETECTED


def test_what_is_asked_of_a_chosen_thing_does_not_choose_it() -> None:
    dogs = {"dog": np.maximum(blob(20, 12, 4), blob(20, 52, 4))}  # a red one, and a blue one
    for text, sure in (("is the dog on the left blue?", False), ("is the dog on the right blue?", True)):
        assert (put(text, dogs).confidence > DETECTED) == sure
    assert peak_at(put("the blue dog on the left", dogs).map)[1] > 40
    for said in ("full", "smiling"):
        phrase = one(f"is the dog on the left {said}?")
        assert (phrase.noun, phrase.attributes, phrase.choice) == ("dog", (said,), Pick(("left",), there=True))
    assert one("is the dog in the middle black car?").choice is None


def test_a_weaker_thing_is_chosen_as_surely_as_it_is_seen() -> None:
    dogs = np.maximum(blob(20, 12, 4, 0.7), blob(20, 48, 4, 0.95))
    left, right = (put(f"the dog on the {side}", {"dog": dogs}) for side in ("left", "right"))
    assert peak_at(left.map)[1] < 20
    assert left.confidence == pytest.approx(put("dog", {"dog": dogs}).confidence * 0.7 / 0.95, abs=0.02)
    assert right.confidence == put("dog", {"dog": dogs}).confidence
    faint = np.maximum(blob(20, 12, 4, 0.4), blob(20, 48, 4, 0.7))  # not detected, and no second dog
    assert peak_at(put("the dog on the left", {"dog": faint}).map)[1] > 40
    sliver = np.maximum(blob(20, 4, 2.5), blob(20, 44, 10))  # a part of something
    assert peak_at(put("the dog on the left", {"dog": sliver}).map)[1] > 30


def test_a_third_of_two_is_not_there_and_things_that_touch_are_two() -> None:
    two = np.max([blob(20, 20, 6), blob(20, 36, 6), blob(20, 28, 3, 0.6)], 0)
    assert (two[20, 14:43] > two.max() / 2).all()  # one piece
    for text, chosen in (("the dog on the left", (20, 20)), ("the dog on the right", (20, 36))):
        made = put(text, {"dog": two}).map
        assert made[chosen] == made.max() > 2 * min(made[20, 20], made[20, 36])
    third = put(
        "the third dog from the left", {"dog": two}
    )  # "third" stays an attribute, as long as it is not prepared
    assert third.confidence > DETECTED
    missing = compose(prepare(NANO, "the third dog from the left").structure[0], lambda *words: two, colour, {})
    assert missing.confidence < DETECTED
    assert missing.map[20, 36] == missing.map.max() > 2 * missing.map[20, 20]


def test_sides_of_a_body_of_nothing_and_of_two_are_left_as_they_are() -> None:
    for text, unknown in (
        ("the man's left hand", ("left",)),
        ("the left hand", ("left",)),
        ("the dog on the left or on the right", ("on the left", "on the right")),
        ("the tallest man", ("tallest",)),
        ("the upper arm", ("upper",)),
        ("the highest mountain", ("highest",)),
        ("which mountain is the highest?", ("highest",)),
    ):
        query = prepare(NANO, text)
        assert query.unknown == unknown
        assert all(phrase.choice is None for phrase in query.structure)
    assert prepare(NANO, "the dog left of the car").structure[0].choice is None
    assert prepare(NANO, "the lowest shelf").structure[0].choice == Pick(("bottom",))
    assert prepare(NANO, "the dog in the middle car").structure[0].choice is None
    assert prepare(Toy(), "the red dog on the left").words == ("red dog",)  # also of those that read phrases


def test_behind_is_higher_in_the_picture_and_in_front_lower() -> None:
    dogs = np.maximum(blob(14, 18, 2, 0.9), blob(30, 18, 2, 0.9))
    maps = {"dog": dogs, "car": blob(22, 28, 7)}
    behind, before = (put(f"the dog {where} the car", maps).map for where in ("behind", "in front of"))
    assert behind[14, 18] > 1.2 * behind[30, 18]
    assert before[30, 18] > 1.2 * before[14, 18]


def test_the_only_thing_of_its_kind_keeps_its_map_but_not_its_confidence() -> None:
    cup = blob(4, 4, 2, 0.9)
    made = put("the cup next to the laptop", {"cup": cup, "laptop": blob(40, 55, 5)})
    assert made.map.max() == pytest.approx(0.9, abs=0.02)
    assert peak_at(made.map)[0] <= 6
    assert made.confidence < 0.1
    assert put("the cup next to the laptop", {"cup": cup, "laptop": blob(10, 10, 5)}).confidence > 0.8
    missing = put("the cup next to the laptop", {"cup": cup, "laptop": np.zeros_like(cup)})
    assert missing.confidence < 0.1  # both are asked for


@pytest.mark.parametrize(
    ("relation", "y", "x", "reversed_"),
    [("left of", 20, 10, "right of"), ("right of", 30, 50, "left of"), ("above", 4, 28, "under"), ("on", 12, 28, "")],
)
def test_a_relation_counts_in_the_verdict(relation: str, y: float, x: float, reversed_: str) -> None:
    maps = {"cup": blob(y, x, 2), "laptop": blob(22, 28, 7)}
    assert put(f"the cup {relation} the laptop", maps).confidence > DETECTED
    if reversed_:
        assert put(f"the cup {reversed_} the laptop", maps).confidence < 0.1
    apart = {"cup": blob(44, 60, 2), "laptop": blob(12, 10, 7)}
    assert (put(f"the cup {relation} the laptop", apart).confidence < 0.1) == (relation != "right of")


def test_a_stripe_is_not_the_colour_of_a_thing() -> None:
    bus = blob(20, 26, 12)  # two thirds of it are red
    assert put("the red bus", {"bus": bus}).confidence > 0.9
    assert put("the blue bus", {"bus": blob(20, 22, 12)}).confidence < 0.2
    faint = blob(20, 12, 5, 0.4)
    assert put("the red bus", {"bus": faint}).confidence > DETECTED > put("the bus", {"bus": faint}).confidence
    two = np.maximum(blob(20, 12, 5), blob(20, 50, 5))  # each is a thing of its own
    assert min(put(f"the {colour} bus", {"bus": two}).confidence for colour in ("red", "blue")) > 0.9
    both = blob(20, 31, 12)  # as red as blue: of a bus either may be meant, of a zebra it is what is around it
    assert put("the red bus", {"bus": both}).confidence > 0.9
    assert (
        put("the red zebra", {"zebra": blob(20, 33, 12)}).confidence
        < 0.1
        < put("the red bus", {"bus": blob(20, 33, 12)}).confidence
    )


def test_what_is_held_is_at_the_hands_and_every_frame_finds_its_words() -> None:
    words = words_of(one("what is the man holding?"))
    assert len(words) == len(set(words))
    assert {*FRAMES["held"], "hand", "man"} <= set(words)
    maps = {word: np.full(SHAPE, 0.02, np.float32) for word in words}
    maps |= {"man": blob(24, 20, 14), "hand": blob(28, 33, 2), "umbrella": np.maximum(blob(27, 36, 3), blob(10, 60, 3))}
    made = put("what is the man holding?", maps)
    assert np.hypot(*(np.array(peak_at(made.map)) - (27, 36))) < 5
    assert made.map[10, 60] < 0.3  # an umbrella that nobody holds
    for text in ("what is the man holding?", "what is the man wearing on his head?", "what is the cat sitting on?",
                 "what is the girl eating?", "what is the boy riding?", "what is on the table?"):  # fmt: skip
        phrase = one(text)
        maps = {word: blob(20, 20, 6, 0.5) for word in words_of(phrase)}
        made = put(text, maps)
        assert made.map.shape == SHAPE
        assert "place" in made.planes
        assert made.confidence <= made.confidences[phrase.place.of.noun] + 1e-6  # type: ignore[union-attr]


def test_an_encoder_that_reads_phrases_keeps_its_attributes() -> None:
    query = prepare(Toy(), "the red cup on the old table")
    assert query.words == ("red cup", "old table")
    assert [cue.channel for cue in query.cues] == ["colour:red"]
    assert prepare(NANO, "the red cup").cues == ()


def test_reasons_name_the_parts_of_a_phrase_and_quotes_keep_it_as_it_is(texture: Texture) -> None:
    relevance = foveate.score(texture, "the child's hand")
    assert {"hand", "child", "place"} <= set(relevance.reasons)
    assert relevance.confidence <= relevance.confidences["child"]
    assert relevance.confidences["child"] > DETECTED
    assert set(relevance.parts) == {"child hand"}
    query = prepare(NANO, '"the dog\'s face"')
    assert query.phrases == ("the dog's face",)
    assert query.words == ()
    assert prepare(NANO, "the dog's face").words == ("face", "dog")


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


# --- maps for later questions -----------------------------------------------------------------------------------------


def test_a_pass_can_be_read_by_the_next(texture: Texture) -> None:
    first = foveate.score(texture, "a child")
    kept = add_map(texture, first, "pass_1")
    assert np.allclose(kept.channel("pass_1"), first.map, atol=1e-3)
    assert kept.made_by["pass_1"] == "a child"
    again = add_map(
        kept, foveate.score(kept, "broccoli", prior="pass_1"), "pass_1"
    )  # the second pass replaces the first
    assert again.made_by["pass_1"] == "broccoli"


def test_every_phrase_and_every_word_becomes_a_plane(texture: Texture) -> None:
    found = foveate.score(texture, "a cup of coffee next to the cake")
    kept = add_phrases(texture, found)
    assert {"word_cup_of_coffee", "word_cake"} <= set(kept.built)
    assert np.allclose(kept.channel("word_cake"), found.parts["cake"], atol=1e-3)
    found = foveate.score(texture, "the white plate of the old child, and a hot dog")
    kept = add_word_maps(texture, found)
    added = set(kept.built) - set(texture.built)
    assert added == {"word_white", "word_plate", "word_old", "word_child", "word_hot_dog"}
    assert np.allclose(kept.channel("word_white"), colour_plane(texture, "white"), atol=1e-3)
    alone = foveate.score(texture, "a child", smoothing=0)
    assert np.allclose(kept.channel("word_child"), alone.map, atol=1e-3)
    again = foveate.score(kept, "a child", channel_weights={"word_white": 0.5})  # a plane like any other
    assert again.weights["word_white"] == 0.5
    kept = add_word_maps(texture, foveate.score(texture, "an orange"))
    assert np.allclose(kept.channel("word_orange"), foveate.score(texture, '"orange"', smoothing=0).map, atol=1e-3)
    assert not np.allclose(kept.channel("word_orange"), colour_plane(texture, "orange"), atol=0.05)


def test_words_of_a_transparent_part_are_nowhere() -> None:
    rgba = np.full((64, 64, 4), 255, np.uint8)
    rgba[:32, :, 1:3] = 0  # red above white
    rgba[:, :32, 3] = 0
    texture = foveate.encode(rgba, long_side=64)
    kept = add_word_maps(texture, foveate.score(texture, "the red car"))
    red = kept.channel("word_red")
    assert red[:4, 5:].min() > 0.9
    assert red[:, :4].max() == red[4:].max() == kept.channel("word_car")[:, :4].max() == 0


def test_a_dialogue_fades_and_readmits_what_phrases_share(texture: Texture) -> None:
    child, broccoli = foveate.score(texture, "a child"), foveate.score(texture, "broccoli")
    once = add_dialogue(texture, child, decay=0.6)
    twice = add_dialogue(once, broccoli, decay=0.6)
    assert np.allclose(once.channel("history"), child.map, atol=1e-3)
    assert np.allclose(twice.channel("history"), np.maximum(0.6 * child.map, broccoli.map), atol=2e-3)
    later = foveate.score(twice, "a child", prior="history")  # what the second question dropped comes back
    assert set(foveate.allocate(later, 273).indices) & set(foveate.allocate(child, 273).indices)
    with pytest.raises(OptionError, match="decay"):
        add_dialogue(texture, child, decay=1.5)
    one = foveate.score(texture, "a child")
    assert shared_map(one) is one.map
    both = foveate.score(texture, "a child, broccoli")
    shared = shared_map(both)
    assert shared.max() == pytest.approx(both.map.max())
    literal = both.map * np.sqrt(np.prod([np.maximum(part, 0.02) for part in both.parts.values()], 0))
    assert np.allclose(shared, literal * both.map.max() / literal.max(), atol=1e-5)
    twice = add_dialogue(add_dialogue(texture, one, decay=0.5), both, decay=0.5)
    assert np.allclose(twice.channel("history"), np.maximum(0.5 * one.map, shared), atol=2e-3)


def test_anything_but_a_texture_and_a_relevance_is_refused(texture: Texture) -> None:
    relevance, wrong = foveate.score(texture, "broccoli"), cast(Any, 5)
    for function in (add_map, add_phrases, add_word_maps, add_dialogue):
        with pytest.raises(OptionError, match="of type int"):
            function(wrong, relevance)
        with pytest.raises(OptionError, match="of type Relevances"):
            function(texture, cast(Any, foveate.score(texture, ["broccoli"])))
    for name in (cast(Any, ["pass"]), wrong):
        with pytest.raises(ChannelError, match="name="):
            add_map(texture, relevance, name)


def test_presets_and_lists_of_channels() -> None:
    photo = PHOTOS / "yellow_bus.jpg"
    fast = foveate.encode(photo, channels="fast")
    assert "cluster_id" not in fast.built
    assert dict(fast.made_by) == {}
    named = foveate.encode(photo, channels=Channels(["boundary", "text", "red"], KMeans(count=9)))
    assert set(named.planes) == {"saliency", "boundary", "text"}
    assert named.made_by["text"] == "pp-ocrv3"
    for wrong in ["standart", ["motion"], ["gaze", "red"], ["salience"], ["mine"]]:
        with pytest.raises(ChannelError) as caught:
            select_channels(wrong)
        assert caught.value.expected
    plain = foveate.encode(np.full((80, 100, 3), 90, np.uint8))
    assert plain.channel("cluster_id", warn=False).max() == 0
    assert plain.channel("cluster_size", warn=False).min() == 1
    assert not plain.channel("boundary", warn=False).any()
    assert set(select_channels(list(COMPUTABLE))) == set(COMPUTABLE)
