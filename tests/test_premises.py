"""Questions with a false premise, from labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.questions import read_questions
from foveate.core.image import load_image
from tests.conftest import PHOTOS
from training.nano import premises
from training.nano.premises import TABLES, Entry, Scene, Thing, colour_shares, colours, places, sides


def thing(name: str, x0: int, y0: int, x1: int, y1: int) -> Thing:
    """A box in a picture of 160 x 120 pixels."""
    pixels = np.zeros((120, 160), bool)
    pixels[y0:y1, x0:x1] = True
    return premises._painted(name, pixels)


def scene(*things: Thing) -> Scene:
    """A picture of grey, in which every thing is of one blue."""
    rgb = np.full((120, 160, 3), 128, np.uint8)
    for one in things:
        x0, y0, x1, y1 = map(int, one.box)
        rgb[y0:y1, x0:x1] = 20, 40, 220
    return Scene("photographs", "000000000001.jpg", rgb, things, dev=True)


def by_query(entries: object) -> dict[str, Entry]:
    return {entry["query"]: entry for entry in entries}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("rgb", "name"),
    [((200, 20, 30), "red"), ((20, 40, 220), "blue"), ((250, 250, 250), "white"), ((20, 20, 22), "black")],
)
def test_a_clear_colour_has_one_name(rgb: tuple[int, int, int], name: str) -> None:
    certain, perhaps = colour_shares(np.full((50, 3), rgb, np.uint8))
    assert [colour for colour, share in certain.items() if share] == [name]
    assert perhaps[name] == 1
    assert all(perhaps[colour] >= share for colour, share in certain.items())


def test_between_two_colours_both_may_be_said() -> None:
    certain, perhaps = colour_shares(np.full((50, 3), (200, 120, 60), np.uint8))  # leather
    assert not certain["red"]
    assert not certain["yellow"]
    assert perhaps["orange"] == 1


def test_a_wrong_colour_is_none_of_the_thing() -> None:
    asked = by_query(colours(scene(thing("bus", 20, 20, 80, 80))))
    assert asked["the blue bus"]["kind"] == "colour"
    assert asked["the blue bus"]["regions"]
    wrong = [query for query, entry in asked.items() if entry["kind"] == "wrong colour"]
    assert wrong
    assert not any(asked[query]["regions"] for query in wrong)
    assert not {"the blue bus", "the purple bus"} & set(wrong)  # this blue may be called purple


def test_of_two_buses_only_a_colour_of_neither_is_wrong() -> None:
    red = scene(thing("bus", 20, 20, 60, 80), thing("bus", 90, 20, 140, 80))
    red.rgb[20:80, 90:140] = 200, 20, 30
    wrong = [query for query, entry in by_query(colours(red)).items() if not entry["regions"]]
    assert wrong
    assert not {"the red bus", "the blue bus"} & set(wrong)


def test_on_is_true_above_and_false_far_away() -> None:
    table = thing("dining table", 10, 60, 100, 110)
    asked = by_query(places(scene(table, thing("cup", 30, 40, 50, 60), thing("bottle", 130, 10, 140, 40))))
    assert asked["the cup on the dining table"]["kind"] == "place"
    assert asked["the cup on the dining table"]["regions"]
    assert asked["the bottle on the dining table"]["kind"] == "apart"
    assert not asked["the bottle on the dining table"]["regions"]
    assert "the dining table on the cup" not in asked


def test_what_a_person_holds_is_on_no_ground() -> None:
    grass, person = thing("grass", 0, 80, 160, 120), thing("person", 40, 20, 60, 90)
    held, lying = thing("sports ball", 56, 70, 70, 80), thing("frisbee", 120, 70, 130, 80)
    asked = by_query(places(scene(grass, person, held, lying)))
    assert "the sports ball on the grass" not in asked
    assert asked["the frisbee on the grass"]["kind"] == "place"


def test_sides_are_of_things_beside_each_other() -> None:
    dog, cat, kite = thing("dog", 10, 60, 40, 90), thing("cat", 100, 60, 130, 90), thing("kite", 60, 0, 70, 8)
    asked = by_query(sides(scene(dog, cat, kite)))
    assert asked["the dog left of the cat"]["regions"] == asked["the dog left of the cat"]["regions"]
    assert asked["the cat right of the dog"]["regions"] == cat.regions
    assert asked["the cat left of the dog"]["regions"] == []
    assert asked["the dog right of the cat"]["kind"] == "other side"
    assert not any("kite" in query for query in asked)  # rather above than beside


def test_tables_name_one_form_a_question() -> None:
    for key, queries in TABLES["other words"].items():
        assert not set(queries) & set(TABLES["drop"].get(key, ()))
    for key, queries in TABLES["doing by hand"].items():
        assert not set(queries) & set(TABLES["not doing"].get(key, ()))
    for name, neighbours in TABLES["neighbours"].items():
        assert name not in neighbours


def test_entries_are_read_by_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = PHOTOS / "yellow_bus.jpg"
    rgb = load_image(bus).rgb
    (tmp_path / "photographs").mkdir()
    (tmp_path / "photographs" / "a.jpg").write_bytes(bus.read_bytes())
    pixels = np.zeros(rgb.shape[:2], bool)
    pixels[50:200, 50:300] = True
    one = Scene("photographs", "a.jpg", rgb, (premises._painted("bus", pixels),), "bus", ("propeller",))
    monkeypatch.setattr(premises, "read_coco", lambda data: ())
    monkeypatch.setattr(premises, "read_by_eye", lambda data, out: (one,))
    monkeypatch.setattr(premises, "read_dense", lambda data, out: ())
    monkeypatch.setattr("sys.argv", ["premises", "--data", str(tmp_path), "--out", str(tmp_path)])
    premises.main()
    (photograph,) = read_questions(tmp_path).photographs
    masks = {question.text: question.mask for question in photograph.questions}
    assert masks["the bus's propeller"] is None
    assert masks["the bus's bus"] is not None
    assert masks["the bus's bus"].sum() == pytest.approx(150 * 250 / 64, rel=0.1)
