"""Pictures: what is drawn lies where it should, text lies beside it, and nothing is stretched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import foveate
from foveate import Grid, Texture, viz
from foveate.allocation import Regions
from foveate.allocation.allocation import allocate_map
from foveate.core.errors import OptionError
from foveate.core.layout import FULL40, channel_named
from foveate.viz import paper
from foveate.viz.charts import BOUND, OURS, Series, draw_chart, explained
from foveate.viz.colours import HEAT, KINDS, QUESTIONS, lightness
from foveate.viz.layers import FINER, PLAIN, colour_heat, enlarge, lay_heat, lay_kept, number_kinds, outline, veil
from foveate.viz.pages import cover
from foveate.viz.pictures import (
    Tile,
    arrange,
    colour_bar,
    confidence_shown,
    head,
    heatmap,
    legend,
    looked_for,
    tell_kinds,
)
from foveate.viz.planes import CONSTANT, FAMILIES, OWN, colour_plane, family_of
from foveate.vlm.families.token_layout import TokenGrid
from tests.conftest import PHOTOS

LONG = "what does the very long question about the child's hand and the broccoli that it holds ask for? " * 3


def boxes_of(block: paper.Block) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    for item in block.items:
        yield ("picture" if item.picture is not None else "text" if item.text else "shape"), item.box


def overlaps(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


# --- colours ----------------------------------------------------------------------------------------------------------


def test_heat_gets_lighter_in_equal_steps() -> None:
    steps = np.diff(lightness(HEAT))
    assert lightness(HEAT[0]) < 6
    assert lightness(HEAT[-1]) > 90
    assert np.abs(steps - steps.mean()).max() < 0.6 * steps.mean() + 0.2  # colours are whole numbers
    assert np.abs(np.diff(lightness(HEAT[::8])) - 8 * steps.mean()).max() < 0.5
    assert np.array_equal(colour_heat(np.array([-3.0, 9.0])), colour_heat(np.array([0.0, 1.0])))
    assert lightness(np.array([255, 255, 255])) == pytest.approx(100)
    assert lightness(np.array([119, 119, 119])) == pytest.approx(50, abs=0.1)


def test_neighbouring_questions_differ_for_all_kinds_of_colour_vision() -> None:
    """Red-green blindness (Vienot and others, 1999): what is left are yellow against blue, and lightness."""
    for colours in (np.array(QUESTIONS, float), np.array([*KINDS.values()], float)):
        seen = np.stack([lightness(colours), (colours[:, 0] + colours[:, 1]) / 2 - colours[:, 2]], -1)
        for one, other in zip(seen, np.roll(seen, -1, 0), strict=True):
            assert np.abs(one - other).max() > 10


# --- layers -----------------------------------------------------------------------------------------------------------


def test_heat_is_lit_where_the_map_is_high_and_the_photograph_stays_in_colour(texture: Texture) -> None:
    plane = np.zeros(texture.grid.shape, np.float32)
    plane[:8, 40:] = 1
    red = np.full((640, 480, 3), (180, 40, 40), np.uint8)
    drawn = lay_heat(red, plane).astype(int)
    assert drawn[:60, 420:].mean() > drawn[400:, :200].mean() + 60
    cold = drawn[500:, :200].reshape(-1, 3)
    assert (cold[:, 0] > cold[:, 1:].max(-1) + 20).all()  # it is red still
    assert cold.max() < 180


def test_a_map_is_never_stretched(texture: Texture) -> None:
    photograph = np.full((64, 48, 3), 100, np.uint8)
    faint, strong = (lay_heat(photograph, np.full((8, 6), level, np.float32)) for level in (0.1, 0.9))
    assert np.abs(faint.astype(int) - lay_heat(photograph, np.zeros((8, 6)))).max() < 40
    assert lightness(strong).min() > lightness(faint).max() + 15


@pytest.mark.parametrize("photograph", [20, 60, 128, 250], ids=["night", "dim", "grey", "snow"])
def test_values_below_detection_are_told_apart_on_dim_and_bright_photographs(photograph: int) -> None:
    rgb, levels = np.full((40, 400, 3), photograph, np.uint8), np.linspace(0, 0.49, 8, dtype=np.float32)
    for found in (True, False):
        drawn = lay_heat(rgb, np.repeat(levels, 50)[None].repeat(40, 0), 0.5 if found else None)[20, 25::50].astype(int)
        assert np.abs(drawn[-1] - drawn[1]).max() > 40
        assert (np.abs(np.diff(drawn, axis=0)).max(-1)[1:] >= 4).all()


def test_the_colour_bar_gets_lighter_and_says_what_the_line_is() -> None:
    items = colour_bar().items
    strip = next(item.picture for item in items if item.picture is not None)
    light = lightness(strip[0])[::20]
    assert (np.diff(light) > 0).all()
    assert any("white line" in item.text for item in items)


def test_kept_cells_have_lines_of_their_kind_and_a_legend_that_counts_them(texture: Texture) -> None:
    relevance = foveate.score(texture, "what is left of the broccoli?").on((20, 15))
    kept = foveate.allocate(relevance, 60, floor=0.1)
    assert {*kept.kinds} == {*KINDS}
    assert [words.split()[0] for _, words in tell_kinds(kept)] == [str(kept.kinds.count(kind)) for kind in KINDS]
    drawn, cells = lay_kept(texture.pixel, kept), dict(zip(kept.indices.tolist(), kept.kinds, strict=True))
    changed = (drawn != texture.pixel).any(-1)
    for kind, colour in KINDS.items():
        y, x = np.nonzero((drawn == colour).all(-1) & changed)
        assert {cells[at] for at in np.unique(y // 32 * 15 + x // 32).tolist()} == {kind}
    chosen = foveate.allocate(relevance, 60, policy="topk")
    assert sum(int(said.split()[0]) for _, said in tell_kinds(chosen)) == 60  # the same where a policy chose
    assert PLAIN not in number_kinds(chosen)
    bare = allocate_map(relevance.map, relevance.grid, 60)
    assert tell_kinds(bare) == ()
    assert {*np.unique(number_kinds(bare))} == {PLAIN}


def test_the_contour_lies_where_the_map_crosses_a_half() -> None:
    plane = np.tile(np.linspace(0, 1, 20, dtype=np.float32), (10, 1))  # it crosses 0.5 at column 9.5: x = 10 cells
    photograph = np.full((400, 800, 3), 90, np.uint8)
    smooth = enlarge(plane, photograph.shape)
    line = (outline(photograph, smooth >= 0.5) != photograph).any(-1)
    columns = np.flatnonzero(line.any(0))
    assert columns.mean() == pytest.approx(400, abs=1.5)
    assert np.ptp(columns) < 16
    assert line[:, 399:401].all()  # from border to border
    light = outline(np.full((400, 800, 3), 250, np.uint8), smooth >= 0.5)
    dark = outline(np.full((400, 800, 3), 5, np.uint8), smooth >= 0.5)
    assert light.min() < 40  # its dark part is seen on snow, its light part at night
    assert dark.max() > 215
    assert FINER >= 2


def test_no_line_runs_along_the_border_of_a_photograph() -> None:
    photograph = np.full((100, 200, 3), 90, np.uint8)
    assert np.array_equal(outline(photograph, np.ones((100, 200), bool)), photograph)
    assert np.array_equal(outline(photograph, np.zeros((100, 200), bool)), photograph)


def test_what_is_not_detected_looks_different_at_first_sight(texture: Texture) -> None:
    there, absent = (foveate.score(texture, words) for words in ("broccoli", "a zebra"))
    assert there.detected
    assert not absent.detected
    found, missing = (np.asarray(viz.heatmap(texture, one, labels=False), float) for one in (there, absent))
    colour = [np.ptp(one, axis=-1).mean() for one in (found, missing)]
    assert lightness(missing).mean() > lightness(found).mean() + 25
    assert colour[1] < 0.6 * colour[0]
    assert veil(np.zeros((2, 2, 3), np.uint8)).min() > 120


def test_dropped_cells_are_grey_and_dim(wide: Texture) -> None:
    kept = foveate.allocate(foveate.score(wide, "cake"), 100)
    drawn = lay_kept(wide.pixel, kept).astype(int)
    index = kept.grid.index_at(np.argwhere(np.ones((wide.grid.height, wide.grid.width))) + 0.5)
    shown = kept.mask.ravel()[index].reshape(wide.grid.height, wide.grid.width)
    same = (drawn[shown] == wide.pixel[shown]).all(-1)
    lines = np.isin(drawn[shown] @ (1 << 16, 1 << 8, 1), np.array([*KINDS.values()]) @ (1 << 16, 1 << 8, 1))
    assert (same | lines).all()
    assert same.mean() > 0.5
    assert (drawn[~shown].max(-1) == drawn[~shown].min(-1)).all()
    assert drawn[~shown].max() < 90


# --- pages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [200, 480, 1080])
def test_text_never_lies_on_a_picture_nor_beyond_its_page(width: int) -> None:
    photograph = np.zeros((300, width, 3), np.uint8)
    notes = ("looks for: " + LONG, "a_file_name_without_any_space_" * 20, "犬 と 猫")
    tiles = [Tile(photograph, LONG, notes, 0.91), Tile(photograph[:200], "short", (), 0.12), Tile(photograph)]
    for columns in (1, 2, 3):
        foot = [colour_bar(), *legend([(QUESTIONS[0], LONG), (QUESTIONS[1], "b")])]
        page = arrange(tiles, columns, title=LONG, note=LONG, foot=foot)
        known = list(boxes_of(page))
        pictures = [box for kind, box in known if kind == "picture"]
        for number, (kind, box) in enumerate(known):
            assert box[0] >= 0 <= box[1]
            assert box[2] <= page.width
            assert box[3] <= page.height
            if kind != "picture":
                assert not any(overlaps(box, one) for one in pictures), known[number]
        assert len([one for one in pictures if one[3] - one[1] > 100]) == 3
        assert not any(overlaps(a, b) for i, a in enumerate(pictures) for b in pictures[:i])
        texts = [box for kind, box in known if kind == "text"]
        assert not any(overlaps(a, b) for i, a in enumerate(texts) for b in texts[:i])


def test_text_is_wrapped_and_never_cut_without_an_ellipsis() -> None:
    for words in ("w" * 500, "une très longue question " * 30, "“quoted”\nand broken", "犬" * 90, "\ud800 \x00", ""):
        for lines in (1, 3):
            shown = paper.wrap(words, 200, 16, lines)
            assert len(shown) <= lines
            assert all(paper.measure(line, 16) <= 200 for line in shown)
            letters = "".join("".join(shown).split())
            whole = "".join(words.encode("utf-8", "replace").decode().replace("\x00", " ").split())
            assert letters == whole or letters.endswith("…")
            assert whole.startswith(letters.removesuffix("…"))
    assert paper.wrap("the wheels of the bus", 90, 16, 3) == ["the wheels", "of the bus"]
    assert paper.cut("the wheels of the bus", 10_000, 16) == "the wheels of the bus"


def test_letters_that_the_usual_font_lacks_are_drawn_if_this_machine_has_them() -> None:
    """Pillow's own is a subset: it lacks even é. Elsewhere letters lose their accents rather than become boxes."""
    assert paper.font_for("“it’s” …", 20).getname() == paper.font_for("a", 20).getname()  # type: ignore[union-attr]
    (line,) = paper.wrap("Straße, café", 400, 20)
    assert line in ("Straße, café", "Straße, cafe")
    for words in ("犬", "Ελληνικά", "\U0001f600", "\U0010ffff"):
        assert paper.measure(words, 20) > 0


@pytest.mark.parametrize("found", [True, False])
def test_a_badge_says_how_sure_it_is(found: bool) -> None:
    block = head(Tile(np.zeros((9, 9, 3), np.uint8), "q", (), 0.5 if found else 0.49), 900)
    assert f"{0.5 if found else 0.49:.2f} " + "not " * (not found) + "detected" in [item.text for item in block.items]
    assert ("pill" if found else "ring") in {item.shape for item in block.items}


def test_pages_are_opaque_and_large(wide: Texture) -> None:
    relevance = foveate.score(wide, "the child's hand")
    kept = foveate.allocate(relevance, 50)
    for page in (
        viz.heatmap(wide, relevance),
        viz.kept(wide, kept),
        viz.homunculus(wide, kept),
        viz.question_page(wide, relevance, kept),
        viz.compare(wide, {"a hand": relevance, "by hand": relevance.map}),
    ):
        assert page.mode == "RGB"
        assert max(page.size) > 1000
        assert np.asarray(page)[0, 0].min() > 200


def test_a_picture_by_itself_has_the_photographs_shape(wide: Texture) -> None:
    relevance = foveate.score(wide, "cake")
    kept = foveate.allocate(relevance, 100)
    size = (320, round(320 * wide.grid.height / wide.grid.width))
    path = Image.fromarray(wide.pixel)
    draws: list[tuple[Any, Any]] = [(viz.heatmap, relevance), (viz.kept, kept), (viz.homunculus, kept)]
    for draw, value in draws:
        assert draw(wide, value, side=320, labels=False).size == size
        assert draw(path, value, side=320, labels=False).size == size
    boxed = np.asarray(viz.kept(wide, kept, boxes=[[0, 0, 240, 320]], side=320, labels=False))
    plain = np.asarray(viz.kept(wide, kept, side=320, labels=False))
    changed = np.argwhere((boxed != plain).any(-1))
    assert np.abs(changed.max(0) - [120, 160]).max() <= 3


def test_regions_are_named_in_the_legend_and_not_in_the_picture() -> None:
    sizes = np.array([[20, 20], [8, 12]])
    boxes = np.array([[40, 40, 200, 200], [280, 360, 440, 600]])
    found = Regions(boxes, sizes.prod(1), sizes, np.array([0.8, 0.2], np.float32), 28, Grid(24, 32, 480, 640))
    page = viz.kept(np.zeros((480, 640, 3), np.uint8), found)
    bare = viz.kept(np.zeros((480, 640, 3), np.uint8), found, labels=False)
    assert page.height > bare.height + 100


# --- channels ---------------------------------------------------------------------------------------------------------


def test_a_plane_is_drawn_on_its_own_range() -> None:
    faint = np.linspace(0.001, 0.004, 12).reshape(3, 4).astype(np.float32)
    assert np.array_equal(
        colour_plane(faint, channel_named("high_pass")), colour_heat(np.linspace(0, 1, 12).reshape(3, 4))
    )
    constant = colour_plane(np.full((3, 4), 0.2, np.float32), channel_named("text"))
    assert (constant == CONSTANT).all()
    ids = colour_plane(np.arange(12, dtype=np.float32).reshape(3, 4), channel_named("cluster_id"))
    assert len(np.unique(ids.reshape(-1, 3), axis=0)) == 12


def test_every_channel_has_its_family_and_your_own_are_drawn_too(texture: Texture) -> None:
    assert {family_of(name) for name in FULL40.names} <= set(FAMILIES)
    assert family_of("mine") == family_of("xray") == OWN
    own = texture.with_channel("mine", np.eye(*texture.grid.shape, dtype=np.float32) / 50)
    more, plain = viz.channel_sheet(own), viz.channel_sheet(texture)
    assert more.height > plain.height + 200
    last = np.asarray(more)[-300:, :300]
    assert (last == colour_heat(np.ones(1))).all(-1).any()  # 0.02 is its highest value


# --- curves -----------------------------------------------------------------------------------------------------------


def test_a_bar_for_each_direction_and_a_line_of_their_sums() -> None:
    few, many = (np.asarray(explained(shares)) for shares in ([0.3, 0.05, 0.01], [0.9, 0.05, 0.01]))
    assert few.shape == many.shape
    dark = [int((page == BOUND).all(-1).sum()) for page in (few, many)]
    assert dark[1] > 2 * dark[0]  # the first bar is three times as high
    assert (few == OURS).all(-1).any()
    wrong: Any
    for wrong in ([], [float("nan")], ["a"], [0.5, float("inf")]):
        with pytest.raises(OptionError, match="shares"):
            explained(wrong)


def test_the_curve_of_a_report_with_its_baselines(tmp_path: Path) -> None:
    point = {"mean": 0.4, "low": 0.3, "high": 0.5}
    covered = {"nano": [point] * 3, "the thing's mask": [point] * 3, "random": [point] * 3}
    report = {"budgets": {"percent": [1, 10, 50], "covered": covered}, "title": LONG}
    page = viz.curve(report)
    assert min(page.size) > 600
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    assert np.array_equal(np.asarray(viz.curve(path)), np.asarray(page))
    bad: list[Any] = [
        {}, {"rows": []}, tmp_path / "no.json", 5, {"budgets": {"covered": {"a": []}}},
        {"budgets": {"percent": [0, 1], "covered": {"a": [point] * 2}}},
        {"budgets": {"percent": [1, 2], "covered": {"a": [point]}}},
        {"budgets": {"percent": [1], "covered": {"a": [{"mean": float("nan"), "low": 0, "high": 1}]}}},
        {"budgets": {"percent": "12", "covered": [1]}}, {"budgets": {"percent": [1], "covered": {}}},
    ]  # fmt: skip
    for wrong in bad:
        with pytest.raises(OptionError, match="report"):
            viz.curve(wrong)


def test_a_chart_has_its_points_where_they_are_and_its_words_beside_it() -> None:
    series = [Series("ours", [1, 10, 100], [0.0, 0.5, 1.0], bold=True), Series("bound", [1, 100], [1, 1], dashed=True)]
    chart = draw_chart(series, "share", "cells", ends=(0.0, 1.0))
    known = list(boxes_of(chart))
    (area,) = [item for item in chart.items if item.picture is not None]
    assert not any(overlaps(box, area.box) for kind, box in known if kind != "picture")
    texts = [box for kind, box in known if kind == "text"]
    assert not any(overlaps(a, b) for i, a in enumerate(texts) for b in texts[:i])
    assert area.picture is not None
    height, width = area.picture.shape[:2]
    assert np.abs(area.picture[height // 2, width // 2].astype(int) - (0, 104, 160)).max() < 10  # log axis: 10 is half
    assert [item.text for item in chart.items if item.text][:3] == ["share", "0", "0.2"]


def test_extreme_shapes_can_be_drawn() -> None:
    for size in ((1, 1), (1, 900), (900, 1)):
        one = foveate.encode(np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8))
        relevance = foveate.score(one, "a dog")
        kept = foveate.allocate(relevance, 1)
        pages = [viz.question_page(one, relevance, kept, ("homunculus",))]  # heat map and kept cells, too
        pages += [viz.compare(one, {"a dog": relevance}), viz.channel_sheet(one)]
        assert all(page.mode == "RGB" and 200 < max(page.size) < 5000 for page in pages), [page.size for page in pages]


def test_what_is_drawn_bright_lies_in_the_kept_cells() -> None:
    y, x = np.arange(30) + 0.5, np.arange(50) + 0.5
    whole = TokenGrid(3, 5, (0.0, 0.0, 30.0, 50.0))
    one = np.ones(15, np.uint8)
    assert np.array_equal(np.argwhere(cover(whole, np.array([6]), 7 * one[:1], y, x) == 7).min(0), [10, 10])
    assert cover(whole, np.arange(15), one, y, x).all()
    centre = TokenGrid(2, 2, (0.0, 10.0, 30.0, 40.0))  # a processor that cuts the sides off
    seen = cover(centre, np.arange(4), one[:4], y, x)
    assert seen[:, 10:40].all()
    assert not seen[:, :10].any()
    assert not seen[:, 40:].any()
    padded = TokenGrid(4, 4, (-10.0, 0.0, 40.0, 50.0))  # one that pads to a square
    assert cover(padded, np.arange(4), one[:4], y, x).sum() == 50 * 2  # its first row of cells: -10 .. 2.5


def test_what_a_channel_found_is_lit_though_no_thing_was_detected() -> None:
    texture = foveate.encode(PHOTOS / "yellow_bus.jpg", preset="static")
    writing, giraffe = foveate.score(texture, "the letters"), foveate.score(texture, "a giraffe")
    assert not writing.detected
    assert looked_for(writing)[-1] == "found by text, not as a thing"
    found = foveate.score(texture, "an old police car")
    assert looked_for(found) == ("looks for car in place of police car", "not understood: old")
    assert confidence_shown(writing) is None
    assert confidence_shown(giraffe) == giraffe.confidence < 0.5
    lit, pale = (np.asarray(heatmap(texture, one, labels=False)).mean() for one in (writing, giraffe))
    assert lit < 0.7 * pale


def test_a_value_of_another_photograph_is_refused(texture: Texture, wide: Texture) -> None:
    relevance = foveate.score(texture, "a child")
    kept = foveate.allocate(relevance, 50)
    other = wide.pixel
    part = TokenGrid(8, 8, (0.0, 0.0, 100.0, 100.0))
    draws: list[Callable[[], object]] = [
        lambda: viz.heatmap(other, relevance),
        lambda: viz.kept(wide, kept),
        lambda: viz.homunculus(other, kept),
        lambda: viz.compare(other, {"a child": relevance}),
    ]
    for draw in draws:
        with pytest.raises(OptionError, match="over a photograph of the shape"):
            draw()
    height, width = texture.pixel.shape[:2]
    for ratio in (0.37, 0.05):  # smaller, and so rounded
        small = Image.fromarray(texture.pixel).resize((round(width * ratio), round(height * ratio)))
        viz.heatmap(small, relevance, labels=False)
    assert relevance.on(part).picture(labels=False).size == (1080, 1080)  # the part, over grey


def test_a_search_that_found_nothing_has_its_page() -> None:
    page = viz.search_sheet([], "a unicorn")
    assert page.mode == "RGB"
    assert np.asarray(page).min() < 100  # it says so


def test_boxes_are_framed_over_heat_of_a_relevance_and_of_a_map() -> None:
    texture = foveate.encode(PHOTOS / "yellow_bus.jpg")
    bus = foveate.score(texture, "the bus")
    boxes, plain = bus.boxes(), bus.picture(labels=False)
    framed = bus.picture(labels=False, boxes=boxes)
    of_map = heatmap(PHOTOS / "yellow_bus.jpg", bus.map, boxes=boxes, labels=False)
    changed = np.argwhere((np.asarray(framed) != np.asarray(plain)).any(-1))
    scale = max(plain.size) / max(texture.pixel.shape[:2])
    assert np.abs(np.r_[changed.min(0), changed.max(0)] - boxes[0] * scale).max() < 8
    differs = (np.asarray(framed) != np.asarray(of_map)).any(-1)  # contours at half of .99999, and at .5
    assert differs.mean() < 1e-4
