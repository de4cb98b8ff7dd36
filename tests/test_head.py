"""The head of nano (training/): its labels, what a step asks, thresholds, and BodyPix's share. On drawn data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from training.nano import evidence, labels, thresholds  # noqa: E402
from training.nano import train as train_head  # noqa: E402

TRAINING = Path(__file__).parents[1] / "training"


def test_a_label_counts_for_every_name_that_includes_it() -> None:
    names = labels.Names()
    named = {label: {names.all[i] for i in numbers} for label, numbers in names.of.items()}
    assert named["garage door"] >= {"garage door", "door"}
    assert named["palm tree"] == {"tree"}
    assert "chair leg" not in named["leg"]


def test_the_labels_drawn_by_eye_can_be_read() -> None:
    known = set(labels.Names().of)
    shapes = 0
    for file in (TRAINING / "nano" / "labels").glob("*.json"):
        sheet = json.loads(file.read_text())
        assert sheet["names"]
        for entry in sheet["photographs"].values():
            for name, drawn in entry["labels"].items():
                for shape in drawn:
                    mask = labels.drawn(shape, name, (64, 64), 0.064)
                    assert mask.shape == (64, 64)
                    shapes += name in known
    assert shapes > 15_000


def test_boxes_of_round_things_are_ellipses() -> None:
    wheel, door = (labels.drawn([10, 10, 50, 50], name, (64, 64), 1.0) for name in ("wheel", "door"))
    assert door[11, 11] == 1
    assert wheel[11, 11] == 0
    assert wheel[30, 30] == door[30, 30] == 1


def test_a_step_asks_for_what_is_there_and_lets_some_stand_for_the_rest() -> None:
    target, weight = torch.zeros(2, 200, 4, 4, dtype=torch.uint8), torch.ones(2, 200)
    target[0, 7], target[1, 150] = 255, 255
    weight[:, 3] = 0
    only, more = train_head.asked(target, weight, np.random.default_rng(0))
    assert {7, 150} <= set(only.tolist())
    assert 3 not in only
    assert len(only) == train_head.OTHERS + 2
    assert more[7] == 1
    assert more[0] == pytest.approx(197 / train_head.OTHERS)


def test_a_threshold_parts_presence_from_absence() -> None:
    draw = np.random.default_rng(0)
    there, known = draw.random((300, 2)) < 0.4, np.ones((300, 2), bool)
    there[:, 1] = False  # of the second name no photograph was held out
    peaks = np.where(there, 2.0, -2.0) + draw.normal(0, 0.3, there.shape)
    gain, shift, above = thresholds.calibrate(peaks, there, known)
    logits = peaks * gain + shift
    assert ((logits[:, 0] > 0) == there[:, 0]).mean() > 0.99
    assert above[0] == 1
    assert above[1] == pytest.approx(thresholds.LEAST)
    assert shift[1] / gain[1] == pytest.approx(shift[0] / gain[0], rel=0.1)  # the usual threshold


def test_bodypix_has_its_share_on_people_alone() -> None:
    body = evidence.Body(["dog", "hand", "hair"])
    logits = torch.full((1, 3, 8, 8), evidence.REST)
    parts = torch.zeros(1, 24, 4, 4)
    parts[:, 10] = 20  # sure of a left hand
    points = torch.full((1, 17, 4, 4), -20.0)
    person = torch.full((1, 1, 4, 4), 20.0)
    on, off = body(logits, person, parts, points), body(logits, -person, parts, points)
    assert torch.equal(on[:, [0, 2]], logits[:, [0, 2]])
    assert on[0, 1].mean() == pytest.approx(evidence.REST + evidence.SHARE * evidence.SUREST, abs=0.01)
    assert torch.allclose(off, logits, atol=1e-5)
