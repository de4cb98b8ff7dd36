"""The map of a composed phrase ("the dog's white face") from the maps of its thing, attributes and place.

    thing       p of the noun alone: "face" of "the dog's white face"
    attribute   what the pixels show: p <- p (1 - A (1 - a)), with a the share of that colour around the cell
    place       where the relation allows it, from the map w of the other thing:  p <- p (1 - G (1 - place(w)))

* A part is likelier once its whole is there (GIVEN), and nothing without its whole. A part that is not found is looked
  for where such parts are ("paws": low on the dog); that map stays below one half (GUESS), so it is never detected.
* A place chooses among things of a kind: the one that fits best keeps its value.
* The map of a frame ("what is the man holding?") is the place times the likeliest of some words for what is held.
* Confidence is that of the phrase's own map, at most that of the thing it belongs to.

GATE, GIVEN, SEEN and NEAR were chosen on one half of a development set (docs/log.md); the other numbers by eye.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.language.lists import read_set
from foveate.language.phrase import HANDS, Phrase, Relation, things_of
from foveate.relevance.confidence import DETECTED, peak

Floats = NDArray[np.float32]
GATE = 0.75  # how much a place outside its relation takes away
GIVEN = 1.0  # log odds by which a part is likelier once its whole is there
GUESS = 0.45  # a part that is only guessed from the whole stays below this
SEEN = 0.3  # a part whose map reaches this is not guessed at all
LEAST = 0.05  # a whole that is less likely than this has no places
NEAR, BESIDE, REACH = 0.2, 0.45, 0.35  # distances, in square roots of the other thing's area
ENOUGH, LOCAL = 0.4, 0.25  # share of a property that is enough to be sure of; over what part of a thing it is taken
HIGH, LOW = read_set("things", "high"), read_set("things", "low")


@dataclass(frozen=True)
class Composed:
    """A phrase's map [h, w], its confidence, and by name what entered: planes, confidences, weights of properties."""

    map: Floats
    confidence: float
    planes: dict[str, Floats]
    confidences: dict[str, float]
    weights: dict[str, float]


Evidence = Callable[[str], tuple[Floats, float] | None]


def compose(phrase: Phrase, maps: dict[str, Floats], evidence: Evidence) -> Composed:
    """The map of a phrase from those of `words_of(phrase)`, each float32 [h, w] in [0, 1], and `evidence_of` words."""
    planes: dict[str, Floats] = {}
    confidences: dict[str, float] = {}
    weights: dict[str, float] = {}
    found = maps[phrase.noun] if phrase.noun else None
    support = 1.0
    if found is not None and not phrase.plain:
        planes[phrase.noun], confidences[phrase.noun] = found, peak(found)
    for attribute in phrase.attributes:
        for word in attribute.split():
            shown = evidence(word)
            if shown is not None and found is not None:
                planes[f"looks {word}"], share = shown
                weights[f"looks {word}"] = share
                support = min(support, share_of(shown[0], found) / ENOUGH)
                found = found * (1 - np.float32(share) * (1 - around(shown[0], found)))
    if phrase.place is None:
        assert found is not None
        return Composed(found, peak(found) * support, planes, confidences, weights)
    relation, other = phrase.place.relation, compose(phrase.place.of, maps, evidence)
    planes |= other.planes
    confidences |= other.confidences
    weights |= other.weights
    whole = phrase.place.of.noun or phrase.place.of.text
    planes.setdefault(whole, other.map)
    confidences[whole] = other.confidence
    if found is None:
        place, found = frame(relation, other.map, maps)
        planes["place"] = place
        found = found * place
        return Composed(found, min(peak(found), other.confidence), planes, confidences, weights)
    place = region(relation, other.map)
    planes["place"] = place
    if relation == "part":
        odds = np.float32(np.exp(GIVEN * other.confidence))
        found = np.asarray(found * odds / (1 - found + found * odds), np.float32)
        confidences[phrase.noun] = peak(found)
    gate = 1 - np.float32(GATE) * (1 - place)
    if relation != "part":  # the best of its kind keeps its value
        gate = gate / gate[found >= found.max() / 2].max()
    there = np.float32(min(1.0, other.confidence / DETECTED))  # nothing is part of what is not there, or beside it
    gated = np.minimum(found * gate, 1) * there
    confidence = min(peak(gated) * support, other.confidence)
    if relation == "part":
        unseen = max(0.0, 1 - peak(gated) / SEEN)
        gated = np.maximum(gated, np.float32(GUESS * unseen) * other.map * usual(phrase.noun, other.map))
    return Composed(gated, confidence, planes, confidences, weights)


def region(relation: Relation, w: Floats) -> Floats:
    """Where a thing may be that stands in a relation to one with the map w: float32 [h, w] in [0, 1]."""
    size = extent(w)
    w = np.minimum(1, w / max(peak(w), LEAST)) if peak(w) > LEAST else w
    if relation == "part":
        return grown(w, NEAR * size)
    if relation in ("on", "in", "with"):
        return grown(w, (NEAR if relation == "in" else 2 * NEAR) * size)
    if relation in ("above", "under", "left", "right"):
        down, right = {"above": (-1, 0), "under": (1, 0), "left": (0, -1), "right": (0, 1)}[relation]
        step = BESIDE * size
        moved = np.maximum(shifted(w, down * step / 2, right * step / 2), shifted(w, down * step, right * step))
        return grown(moved, NEAR * size) * (1 - 0.5 * w)
    return grown(w, BESIDE * size) * (1 - 0.5 * w)


def frame(relation: Relation, w: Floats, maps: dict[str, Floats]) -> tuple[Floats, Floats]:
    """(place, likeliest thing) of a question for what is beside its noun."""
    size = extent(w)
    things = np.max([maps[word] for word in things_of(relation)], 0)
    inside = grown(w, NEAR * size)
    if relation in ("held", "carried", "used", "eaten"):
        hold = np.max([maps[word] for word in HANDS], 0) * inside
        touch = grown(np.maximum(hold, 0.3 * inside), REACH * size)
        return touch, np.maximum(things, 0.3 * touch * (1 - 0.6 * w))
    if relation == "worn on head":
        top = np.maximum(maps["head"] * inside, 0.5 * w * usual("head", w))
        return grown(top, NEAR * size), np.maximum(things, 0.4 * top)
    if relation == "worn":
        return inside, np.maximum(things, 0.4 * w)
    if relation in ("supporting", "ridden"):
        below = np.maximum(shifted(w, BESIDE * size / 2, 0), shifted(w, BESIDE * size, 0))
        near = np.maximum(grown(below, NEAR * size), 0.6 * grown(w, 2 * NEAR * size))
        return near * (1 - 0.5 * w), np.maximum(things, 0.3)
    return region(relation, w), np.maximum(things * (1 - 0.8 * w), 0.2)


def usual(part: str, w: Floats) -> Floats:
    """Where in a thing such parts usually are (high, low, anywhere): float32 [h, w] in [0, 1]."""
    word = part.split()[-1] if part else part
    if (word not in HIGH and word not in LOW) or not w.max() > 0:
        return np.ones_like(w)
    rows = np.flatnonzero((w > 0.5 * w.max()).any(1))
    top, height = rows[0], rows[-1] - rows[0] + 1
    v = ((np.arange(len(w), dtype=np.float32) + 0.5 - top) / height)[:, None]
    ramp = np.clip(1.4 - 2.4 * v, 0.2, 1) if word in HIGH else np.clip(2.4 * v - 1, 0.2, 1)
    return np.broadcast_to(ramp.astype(np.float32), w.shape)


def extent(w: Floats) -> float:
    """A thing's size in cells: the square root of the area where its map is above half its highest value."""
    return float(np.sqrt(np.count_nonzero(w > 0.5 * w.max()))) if w.max() > 0 else 0.0


def grown(w: Floats, cells: float) -> Floats:
    """The highest value within a distance, with soft borders."""
    reach = max(1, round(cells))
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * reach + 1, 2 * reach + 1))
    wide = cv2.dilate(np.ascontiguousarray(w, np.float32), kernel)
    return np.maximum(w, cv2.GaussianBlur(wide, (0, 0), max(0.5, reach / 2)))


def shifted(w: Floats, down: float, right: float) -> Floats:
    matrix = np.array([[1, 0, round(right)], [0, 1, round(down)]], np.float32)
    return np.asarray(cv2.warpAffine(np.ascontiguousarray(w, np.float32), matrix, w.shape[::-1]), np.float32)


def share_of(plane: Floats, p: Floats) -> float:
    """The largest share of a property in any third of a thing: sky in its windows does not make a bus blue."""
    thing = np.where(p > p.max() / 2, p, 0)
    reach = max(1.0, LOCAL * extent(p))
    seen = cv2.GaussianBlur(plane * thing, (0, 0), reach) / np.maximum(cv2.GaussianBlur(thing, (0, 0), reach), 1e-3)
    return float(seen[thing > 0].max(initial=0))


def around(plane: Floats, p: Floats) -> Floats:
    """A property's share around each cell, as far as the thing is there."""
    near = cv2.GaussianBlur(plane * p, (0, 0), 1.5) / np.maximum(cv2.GaussianBlur(p, (0, 0), 1.5), 1e-3)
    return np.maximum(plane, np.clip(near, 0, 1)).astype(np.float32)
