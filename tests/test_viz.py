from __future__ import annotations

import numpy as np
import pytest
from PIL import ImageFont

import foveate
from foveate import Texture
from foveate.core.errors import OptionError
from foveate.core.layout import FULL40, channel_named
from foveate.viz.pictures import (
    CONSTANT,
    colour_heat,
    colour_plane,
    cover,
    describe_range,
    draw_channels,
    draw_heat,
    draw_kept,
    draw_question,
    fit_text,
)
from foveate.vlm.families.token_layout import TokenGrid


def test_heat_gets_lighter_all_the_way() -> None:
    light = colour_heat(np.linspace(0, 1, 256)).astype(float) @ [0.299, 0.587, 0.114]
    assert (np.diff(light) >= -0.5).all()
    assert light[-1] - light[0] > 180
    assert np.array_equal(colour_heat(np.array([-3.0, 9.0])), colour_heat(np.array([0.0, 1.0])))


def test_heat_is_drawn_where_the_map_is_high(texture: Texture) -> None:
    plane = np.zeros(texture.grid.shape, np.float32)
    plane[:8, 40:] = 1
    drawn = draw_heat(texture.pixel, plane).astype(int)
    assert drawn[:60, 420:].mean() > drawn[400:, :200].mean() + 60


def test_dropped_cells_are_grey_and_dim(wide: Texture) -> None:
    kept = foveate.allocate(foveate.score(wide, "cake"), 100)
    drawn = draw_kept(wide.pixel, kept).astype(int)
    index = kept.grid.index_at(np.argwhere(np.ones((wide.grid.height, wide.grid.width))) + 0.5)
    shown = kept.mask.ravel()[index].reshape(wide.grid.height, wide.grid.width)
    assert np.array_equal(drawn[shown], wide.pixel[shown])
    assert (drawn[~shown].max(-1) == drawn[~shown].min(-1)).all()
    assert drawn[~shown].max() < 80


def test_pictures_of_upright_and_wide_images_have_three_panels(texture: Texture, wide: Texture) -> None:
    for one in (texture, wide):
        relevance = foveate.score(one, "a dog")
        page = draw_question(one, relevance, foveate.allocate(relevance, 50))
        assert page.width > 2.5 * page.height * one.grid.width / one.grid.height * 0.8


def test_more_pictures_are_more_panels(texture: Texture) -> None:
    relevance = foveate.score(texture, "the child's hand")
    kept = foveate.allocate(relevance, 273)
    widths = [
        draw_question(texture, relevance, kept, some).width
        for some in ((), ("homunculus",), ("regions",), ("homunculus", "regions"))
    ]
    assert np.array_equal(np.diff(widths), [372] * 3)
    with pytest.raises(OptionError, match="homunculus"):
        draw_question(texture, relevance, kept, ("homunculi",))
    for budget in (1, 67, 1000):  # the nearest total is taken
        draw_question(texture, relevance, foveate.allocate(relevance, budget), ("regions",))


def test_a_plane_is_drawn_on_its_own_range() -> None:
    faint = np.linspace(0.001, 0.004, 12).reshape(3, 4).astype(np.float32)
    assert np.array_equal(
        colour_plane(faint, channel_named("high_pass")), colour_heat(np.linspace(0, 1, 12).reshape(3, 4))
    )
    constant = colour_plane(np.full((3, 4), 0.2, np.float32), channel_named("text"))
    assert (constant == CONSTANT).all()
    ids = colour_plane(np.arange(12, dtype=np.float32).reshape(3, 4), channel_named("cluster_id"))
    assert len(np.unique(ids.reshape(-1, 3), axis=0)) == 12
    assert describe_range(np.array([[0.5, 0.0004]])) == "0.0004 .. 0.5"
    assert describe_range(np.zeros((2, 2))) == "constant 0"


def test_the_sheet_has_what_is_beyond_the_forty(texture: Texture) -> None:
    own = texture.with_channel("mine", np.eye(*texture.grid.shape, dtype=np.float32) / 50)
    names = [*FULL40.names, *(name for name in own.built if name not in FULL40.names)]
    page = np.asarray(draw_channels(own))
    rows, (row, column) = -(-len(names) // 8), divmod(names.index("mine"), 8)
    tall = (page.shape[0] - 2 * 12) // rows
    tile = page[12 + row * tall : 12 + (row + 1) * tall, 12 + column * 180 : 12 + column * 180 + 126]
    assert (tile == colour_heat(np.ones(1))).all(-1).any()  # 0.02 is its highest value


def test_extreme_shapes_can_be_drawn() -> None:
    for size in ((1, 1), (1, 900), (900, 1)):
        one = foveate.encode(np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8))
        relevance = foveate.score(one, "a dog")
        draw_question(one, relevance, foveate.allocate(relevance, 1))
        draw_channels(one)


def test_long_captions_are_cut_and_strange_ones_drawn() -> None:
    font = ImageFont.load_default(16)
    for text in ("w" * 500, "une très longue question " * 30, "“quoted”\nand broken", "犬", ""):
        assert font.getlength(fit_text(text, 200, font)) <= 200


def test_what_is_drawn_bright_lies_in_the_kept_cells() -> None:
    y, x = np.arange(30) + 0.5, np.arange(50) + 0.5
    whole = TokenGrid(3, 5, (0.0, 0.0, 30.0, 50.0))
    assert np.array_equal(np.argwhere(cover(whole, np.array([6]), y, x)).min(0), [10, 10])
    assert cover(whole, np.arange(15), y, x).all()
    centre = TokenGrid(2, 2, (0.0, 10.0, 30.0, 40.0))  # a processor that cuts the sides off
    seen = cover(centre, np.arange(4), y, x)
    assert seen[:, 10:40].all()
    assert not seen[:, :10].any()
    assert not seen[:, 40:].any()
    padded = TokenGrid(4, 4, (-10.0, 0.0, 40.0, 50.0))  # one that pads to a square
    assert cover(padded, np.arange(4), y, x).sum() == 50 * 2  # its first row of cells: -10 .. 2.5
