from __future__ import annotations

from typing import Any

import pytest

from foveate.channels.build import select_channels
from foveate.core.errors import ChannelError
from foveate.core.layout import CHANNELS, FULL40, FULL56, LAYOUTS, Layout, channel_named, embedding_number


def test_full40_is_the_published_order() -> None:
    assert len(FULL40) == 40
    where = {
        "red": 0, "blue": 2, "edge_on": 3, "edge_off": 4, "high_pass": 5, "low_pass": 6, "motion": 7, "saliency": 8,
        "x": 9, "eccentricity": 11, "cluster_id": 12, "cluster_size": 14, "prev_relevance": 15, "fixation": 17,
        "embedding_0": 18, "embedding_15": 33, "edge_distance": 34, "attention_prev": 35, "gaze": 37, "boundary": 38,
        "text": 39,
    }  # fmt: skip
    assert {name: FULL40.layer(name) for name in where} == where


def test_the_table_is_consistent() -> None:
    for channel in CHANNELS:
        assert channel.low <= channel.neutral <= channel.high, channel.name
    for name in ("cluster_id", "boundary", "text"):
        assert channel_named(name).filter == "nearest"
        assert channel_named(name).reduction in ("mode", "max")


@pytest.mark.parametrize("wrong", ["salience", "Saliency", "", "embedding_016", "embedding_x", "embedding_-1"])
def test_an_unknown_name_lists_the_nearest_right_ones(wrong: str) -> None:
    with pytest.raises(ChannelError) as caught:
        channel_named(wrong)
    assert repr(wrong) in str(caught.value)
    if wrong.lower().startswith("salien"):
        assert "saliency" in caught.value.expected


@pytest.mark.parametrize("names", ["red", ("red", ["blue"]), 5, (3,), ("red", "green", "red")])
def test_a_layout_of_anything_but_names_is_refused(names: Any) -> None:
    with pytest.raises(ChannelError, match="layout 'mine'"):
        Layout("mine", names)


def test_a_new_layout_has_any_order() -> None:
    names: Any = ["saliency", "red"]
    assert Layout("mine", names) == Layout("mine", ("saliency", "red"))
    assert Layout("mine", names).layer("red") == 1


def test_the_other_layouts() -> None:
    assert LAYOUTS["full56"] is FULL56
    assert FULL56.names[18:50] == tuple(f"embedding_{i}" for i in range(32))
    assert tuple(name for name in FULL56.names if (embedding_number(name) or 0) < 16) == FULL40.names
    assert LAYOUTS["part28"].names[17:33] == tuple(f"embedding_{i}" for i in range(16))
    assert set(LAYOUTS["part28"].names) == set(FULL40.names)
    assert LAYOUTS["lean"].names == ("red", "green", "blue", "cluster_id", *(f"embedding_{i}" for i in range(32)))


def test_a_layout_given_as_channels_is_sent_to_tables() -> None:
    with pytest.raises(ChannelError, match=r"'lean' is a layout: texture\.tokens\(layout='lean'\)"):
        select_channels("lean")
    with pytest.raises(ChannelError, match=r"pass a list: channels=\['saliency'\]"):
        select_channels("saliency")


def test_every_number_of_an_embedding_has_a_name() -> None:
    assert channel_named("embedding_276").native == "cell"
    assert not channel_named("embedding_20").stored
    assert [embedding_number(name) for name in ("embedding_0", "embedding_20", "embedding_", "my_embedding_1")] == [
        0, 20, None, None
    ]  # fmt: skip
