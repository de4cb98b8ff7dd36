"""Planes that the words of a question ask for, and how a map follows them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate import Texture
from foveate.core.errors import ChannelError
from foveate.language.cues import COLOURS, MOVES, RAISE, Cue
from foveate.language.query import channel_weights
from foveate.relevance.evidence import COLOUR, MATERIAL, OWN_MOTION, colour_plane, evidence_of, follow, own_motion
from foveate.relevance.scoring import score_nothing


def test_words_that_did_not_help_use_no_channel(texture: Texture) -> None:
    for asked in ("what colour is the broccoli?", "how far is the broccoli?"):
        assert np.array_equal(foveate.score(texture, asked).map, foveate.score(texture, "broccoli").map)
        assert dict(channel_weights(asked)) == {}


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


def test_a_question_that_names_nothing_keeps_its_cues(texture: Texture) -> None:
    mask = np.zeros((160, 120))
    mask[10:20, 50:75] = 1
    found = score_nothing(texture.with_channel("text", mask), "what does it say?")
    assert dict(found.weights) == {"text": RAISE}
    assert found.map[4:8, 20:30].min() == RAISE
    assert score_nothing(texture, "why?").map.max() == 0


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
    question = "what does the sign say?"
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
    plane, share = found
    assert plane.shape == texture.grid.shape
    assert plane.dtype == np.float32
    assert 0 <= plane.min() < plane.max() <= 1
    assert share == MATERIAL < COLOUR
    assert again[0] is plane


def test_what_pixels_do_not_show_is_no_evidence(texture: Texture) -> None:
    assert evidence_of(texture, "old") is None
    bare = dataclasses.replace(texture, planes={n: p for n, p in texture.planes.items() if n != "high_pass"})
    assert evidence_of(bare, "striped") is None
