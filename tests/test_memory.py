"""Maps as planes for later questions; which channels are built."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import foveate
from foveate import Texture
from foveate.channels import Channels
from foveate.channels.build import COMPUTABLE, select_channels
from foveate.channels.segments import KMeans
from foveate.core.errors import ChannelError, OptionError
from foveate.relevance.evidence import colour_plane
from foveate.relevance.passes import add_dialogue, add_map, add_phrases, add_word_maps, shared_map
from tests.conftest import PHOTOS


def test_a_pass_can_be_read_by_the_next(texture: Texture) -> None:
    first = foveate.score(texture, "a child")
    kept = add_map(texture, first, "pass_1")
    assert np.allclose(kept.channel("pass_1"), first.map, atol=1e-3)
    assert kept.made_by["pass_1"] == "a child"
    again = add_map(
        kept, foveate.score(kept, "broccoli", prior="pass_1"), "pass_1"
    )  # the second pass replaces the first
    assert again.made_by["pass_1"] == "broccoli"


def test_every_phrase_becomes_a_plane(texture: Texture) -> None:
    found = foveate.score(texture, "a cup of coffee next to the cake")
    kept = add_phrases(texture, found)
    assert {"word_cup_of_coffee", "word_cake"} <= set(kept.built)
    assert np.allclose(kept.channel("word_cake"), found.parts["cake"], atol=1e-3)


def test_every_word_becomes_a_plane(texture: Texture) -> None:
    found = foveate.score(texture, "the white plate of the old child, and a hot dog")
    kept = add_word_maps(texture, found)
    added = set(kept.built) - set(texture.built)
    assert added == {"word_white", "word_plate", "word_old", "word_child", "word_hot_dog"}
    assert np.allclose(kept.channel("word_white"), colour_plane(texture, "white"), atol=1e-3)
    alone = foveate.score(texture, "a child", smoothing=0)
    assert np.allclose(kept.channel("word_child"), alone.map, atol=1e-3)
    again = foveate.score(kept, "a child", channel_weights={"word_white": 0.5})  # a plane like any other
    assert again.weights["word_white"] == 0.5


def test_words_that_are_things_are_not_their_colour(texture: Texture) -> None:
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


def test_a_dialogue_fades_and_readmits(texture: Texture) -> None:
    child, broccoli = foveate.score(texture, "a child"), foveate.score(texture, "broccoli")
    once = add_dialogue(texture, child, decay=0.6)
    twice = add_dialogue(once, broccoli, decay=0.6)
    assert np.allclose(once.channel("history"), child.map, atol=1e-3)
    assert np.allclose(twice.channel("history"), np.maximum(0.6 * child.map, broccoli.map), atol=2e-3)
    later = foveate.score(twice, "a child", prior="history")  # what the second question dropped comes back
    assert set(foveate.allocate(later, 273).indices) & set(foveate.allocate(child, 273).indices)
    with pytest.raises(OptionError, match="decay"):
        add_dialogue(texture, child, decay=1.5)


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


@pytest.mark.parametrize("wrong", ["standart", ["motion"], ["gaze", "red"], ["salience"], ["mine"]])
def test_channels_that_cannot_be_built_say_so(wrong: str | list[str]) -> None:
    with pytest.raises(ChannelError) as caught:
        select_channels(wrong)
    assert caught.value.expected


def test_an_image_of_one_colour_is_one_segment() -> None:
    plain = foveate.encode(np.full((80, 100, 3), 90, np.uint8))
    assert plain.channel("cluster_id", warn=False).max() == 0
    assert plain.channel("cluster_size", warn=False).min() == 1
    assert not plain.channel("boundary", warn=False).any()
    assert set(select_channels(list(COMPUTABLE))) == set(COMPUTABLE)
