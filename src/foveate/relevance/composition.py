"""The map and the verdict of a composed phrase ("the dog's white face") from maps of its thing, attributes and place.

The map:

    thing       p of the noun alone: "face" of "the dog's white face"
    attribute   what the pixels show: p <- p (1 - A (1 - a)), with a the share of that colour around the cell
    place       where the relation allows it, from the map w of the other thing:  p <- p (1 - G (1 - place(w)))

A choice ("on the left", "the largest") leaves what is chosen of the things of the map as it is, and lowers the others.

A part is nothing without its whole. One that is not found is looked for where such parts are ("paws": low on the dog);
that map stays below one half (GUESS). A place chooses among things of a kind: the one that fits best keeps its value,
and keeps it as a whole.
The map of a frame ("what is the man holding?") is the place times the likeliest of some words for what is held.

The verdict is of pieces, connected cells above half of the noun's highest value:

    evidence    e = the noun's confidence * max over the pieces of (colour * geometry); of a part, of its map * place
    colour      (r - MINOR) / (MAJOR - MINOR), cut to [0, 1], with r its share of the piece by the most common other's
    geometry    how near the piece is to touching the other thing, or how far it lies on the right side of it, 0 to 1
    confidence  sigmoid(logit(e) + ODDS of the relation or attribute), at most that of the other thing; of sides ("left
                of") at most that with the same odds; above one half less, by PROMISES

GATE, NEAR, MAIN and ODDS were chosen on one half of development sets (docs/log.md), other numbers by eye.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.language.cues import is_unusual
from foveate.language.lists import read_set
from foveate.language.phrase import HANDS, By, Phrase, Pick, Relation, things_of
from foveate.relevance.confidence import DETECTED, limit, peak, with_odds
from foveate.relevance.evidence import Shown

Floats = NDArray[np.float32]
GATE = 0.75  # how much a place outside its relation takes away
GUESS = 0.18  # a part that is only guessed from the whole stays below this
SEEN = 0.08  # a part whose map reaches this is not guessed at all
LEAST = np.float32(0.06)  # how likely a thing is that is not seen, where something else decides its place
FAINT = np.float32(0.01)  # as likely as that is a thing of which there is no evidence
NEAR, BESIDE, REACH = 0.2, 0.45, 0.35  # distances, in square roots of the other thing's area
MAIN = 0.3  # a piece smaller than this share of the largest is no thing of its own
TOUCHING, SOFT = 1.5, 2.0  # cells between things that touch; over how many more the fit falls to 0
# Log odds by which less evidence of a thing is enough where more is asked of it than that it is there, and that fits.
ODDS = {"attribute": 2.5, "part": 0.85, "frame": 0.25, "left": 3.0, "right": 3.0, "above": 3.0, "under": 3.0}
# How sure a verdict can be where all is seen: so often it is so, with as many questions true as not.
PROMISES = dict.fromkeys(("left", "right", "above", "under"), 0.9)
PROMISES |= dict.fromkeys(("on", "in", "beside", "with", "known by"), 0.85)
PLACE_ODDS, PROMISED = 2.0, 0.8  # of other relations; the second of parts and frames, too
ANYBODY = 0.45  # how sure it can be that somebody is a skier where no skis are seen
HIGH, LOW = read_set("things", "high"), read_set("things", "low")
# A colour is a thing's if it covers so much of it as the most common other colour does, times MAJOR; not, times MINOR.
# Both are so much more for a colour that such things seldom have: a zebra on grass has green in its outlines.
MINOR, MAJOR, ENOUGH, UNUSUAL = 0.2, 0.6, 0.4, 0.7
AROUND = 5  # cells along the square in which a property counts for each cell
# Of the chosen thing's highest value, what others keep; how sure a third of two things is, or one thing elsewhere; how
# far that lies beyond the middle of the picture, in its sides; of the largest piece what would be another thing.
OTHERS, TOO_FEW, BEYOND, ANOTHER = 0.4, 0.45, 0.1, 0.1
# Of the largest piece the smallest thing, of the highest value that of one that is not detected itself, of the lower
# hill a valley between two.
SMALL, LIKELY, VALLEY = 0.07, 0.8, 0.7
DEEP = 0.5  # of a thing's height, by which feet tell what is behind it
SAME = 0.6  # overlap (intersection over union) of two pieces from which they are one thing
_WITHIN = frozenset(("part", "in", "with", "known by", "held", "worn"))
_TOUCH = frozenset(("part", "on", "in", "with", "known by", "held", "ridden", "worn"))
# Where the thing is: down, right of the other.
_DEPTH: dict[Relation, int] = {"behind": -1, "before": 1}
_SIDES: dict[Relation, tuple[int, int]] = {"above": (-1, 0), "under": (1, 0), "left": (0, -1), "right": (0, 1)}


@dataclass(frozen=True)
class Composed:
    """A phrase's map [h, w], its confidence, and by name what entered: planes, confidences, weights of properties."""

    map: Floats
    confidence: float
    planes: dict[str, Floats]
    confidences: dict[str, float]
    weights: dict[str, float]


Look = Callable[..., Floats]  # words -> the map of the likeliest of them, float32 [h, w] in [0, 1]
Evidence = Callable[[str], Shown | None]
Known = Callable[[str, Floats], float]
Pieces = list[NDArray[np.bool_]]


def compose(
    phrase: Phrase, look: Look, evidence: Evidence, surer: Mapping[str, float], known: Known | None = None
) -> Composed:
    """The map and the verdict of a phrase from the maps of `words_of(phrase)` and what its attributes look like.

    `surer`: as of Query. `known`: a noun and its map -> its confidence, where it is not the map's own.
    """
    if known is None:
        return compose(phrase, look, evidence, surer, lambda noun, p: with_odds(peak(p), surer.get(noun, 0.0)))
    if phrase.choice is not None:
        said = tuple(word for word in phrase.attributes[-1:] if phrase.text.endswith(f" {word}"))
        before = phrase.attributes[: len(phrase.attributes) - len(said)]
        made = compose(replace(phrase, choice=None, attributes=before), look, evidence, surer, known)
        of = phrase.place.of if phrase.place is not None and phrase.choice.to_place else None
        made = choose(made, phrase.choice, None if of is None else made.planes.get(of.noun or of.text))
        return _say_of(made, replace(phrase, attributes=said), evidence) if said else made  # "is the left dog black?"
    if phrase.plain:
        found = look(phrase.noun)
        return Composed(found, known(phrase.noun, found), {}, {}, {})
    if phrase.place is None:
        return _describe(phrase, look, evidence, known)[0]
    relation, other = phrase.place.relation, compose(phrase.place.of, look, evidence, surer, known)
    whole = phrase.place.of.noun or phrase.place.of.text
    planes, confidences = {whole: other.map} | other.planes, other.confidences | {whole: other.confidence}
    if phrase.place.other is not None:  # between two things is nothing where one of them is not there
        too = compose(phrase.place.other, look, evidence, surer, known)
        planes[name := phrase.place.other.noun or phrase.place.other.text], confidences[name] = too.map, too.confidence
        planes, confidences = planes | too.planes, confidences | too.confidences
        other = replace(other, map=np.maximum(other.map, too.map), confidence=min(other.confidence, too.confidence))
    if not phrase.noun:
        planes["place"], found = frame(relation, other.map, look)
        found = found * planes["place"]
        seen = peak(found)
        seen = limit(min(with_odds(seen, ODDS["frame"]), other.confidence), PROMISED)
        return Composed(found, seen, planes, confidences, other.weights)
    thing, pieces, fits = _describe(phrase, look, evidence, known)
    found, sure = thing.map, thing.confidences[phrase.noun]
    place = region(relation, other.map)
    if relation != "part":  # a thing is in its place as a whole
        pieces = pieces or find_pieces(found)
        near = place_fits(relation, pieces, other.map)
        place = np.max([place, *(fit * piece for fit, piece in zip(near, pieces, strict=True))], 0)
    planes["place"] = place
    gate = 1 - np.float32(GATE) * (1 - place)
    if relation == "part":
        own = peak(found * place)  # near its whole a part is seen for less than elsewhere: its evidence is no surer
        seen = with_odds(own, min(0.0, surer.get(phrase.noun, 0.0))) * float(fits.max(initial=0))
    else:
        gate /= gate[found >= found.max() / 2].max()  # the best of its kind keeps its value
        seen = sure * float((fits * near).max(initial=0))
    beside = other.confidence
    if relation in _SIDES:  # each of two things that stand so needs less evidence
        beside = with_odds(beside, ODDS[relation])
    sure = limit(min(with_odds(seen, ODDS.get(relation, PLACE_ODDS)), beside), PROMISES.get(relation, PROMISED))
    found = np.minimum(found * gate, 1)
    if relation == "known by":
        sure = max(sure, limit(thing.confidence, ANYBODY))
    else:  # nothing is part of what is not there, or beside it
        found *= np.float32(min(1.0, beside / DETECTED))
    if relation == "part" and (unseen := 1 - float(found.max()) / SEEN) > 0:
        found = np.maximum(found, np.float32(GUESS * unseen) * other.map * usual(phrase.noun, other.map))
    return Composed(
        found,
        sure,
        planes | thing.planes,
        confidences | thing.confidences,
        other.weights | thing.weights,
    )


def _describe(phrase: Phrase, look: Look, evidence: Evidence, known: Known) -> tuple[Composed, Pieces | None, Floats]:
    """A thing with its attributes and no place: with its pieces, where attributes asked for them, and how each fits."""
    found = thing = look(phrase.noun)
    confidence = known(phrase.noun, thing)
    planes, weights, fits = {phrase.noun: thing}, dict[str, float](), np.ones(1, np.float32)
    pieces = None
    for word in (word for attribute in phrase.attributes for word in attribute.split()):
        if (shown := evidence(word)) is not None:
            pieces = pieces or find_pieces(thing)
            planes[f"looks {word}"], weights[f"looks {word}"] = shown.plane, shown.weight
            fits = fits * property_fits(shown, thing, pieces, UNUSUAL * is_unusual(word, phrase.noun))
            found = np.maximum(found, FAINT)  # of what is not seen, where such a colour is
            found *= 1 - np.float32(shown.weight) * (1 - around(shown.plane, found))
    sure = with_odds(confidence * float(fits.max(initial=0)), ODDS["attribute"]) if weights else confidence
    return Composed(found, sure, planes, {phrase.noun: confidence}, weights), pieces, fits


def _say_of(made: Composed, phrase: Phrase, evidence: Evidence) -> Composed:
    """A chosen thing with the attributes that are asked of it; of one that is not there none is surer than that."""
    found = _describe(phrase, lambda *_: made.map, evidence, lambda *_: made.confidence)[0]
    sure = found.confidence if made.confidence >= DETECTED else min(found.confidence, made.confidence)
    return replace(
        made, map=found.map, confidence=sure, planes=found.planes | made.planes, weights=made.weights | found.weights
    )


def choose(made: Composed, choice: Pick, near: Floats | None = None) -> Composed:
    """A phrase of which one thing of several is asked for: the others' values stay below the half of its highest.

    Where there are fewer things than it counts, the last is taken, and it is not detected; nor is the only thing, where
    it lies on the other side. The confidence is that of the chosen thing. near: the map of what it is the nearest to.
    """
    pieces = find_things(made.map, choice.by)
    if not pieces:
        return made
    order = np.argsort([_rank(piece, choice, near) for piece in pieces], kind="stable")
    so = choice.number <= len(pieces)
    own = pieces[order[choice.number - 1 if so else -1]]
    if choice.there and len(find_pieces(made.map, ANOTHER)) == 1:
        so = so and _is_there(own, choice)
    highest = float(made.map[own].max())
    rest = np.where(own, 0, made.map)
    less = min(1.0, OTHERS * highest / max(float(rest.max()), 1e-6))
    found = np.where(own, made.map, rest * np.float32(less))
    sure = made.confidence * highest / float(made.map.max())
    return replace(made, map=found, confidence=sure if so else limit(sure, TOO_FEW))


def _is_there(piece: NDArray[np.bool_], choice: Pick) -> bool:
    """Whether a thing's middle does not lie on the other side of the picture; one "in the middle" not at an edge."""
    y, x = (sum(ends) / 2 / side - 0.5 for ends, side in zip(zip(*_box(piece), strict=True), piece.shape, strict=True))
    away = {"left": x, "right": -x, "top": y, "bottom": -y, "middle": abs(x) - 0.25}
    return max(away.get(by, 0.0) for by in choice.by) <= BEYOND


def find_things(p: Floats, by: Sequence[By] = ()) -> Pieces:
    """The parts of a map that are a thing each, bool [h, w]: also small pieces; those with valleys between are cut.

    A valley is one of the evidence (log odds above the piece's border) in the columns of a piece, or in its rows: of
    what stands side by side or, `by` top or bottom, one over the other.
    """
    likely = np.clip(p, 1e-6, 1 - 1e-6)
    odds = np.log(likely / (1 - likely))
    border = np.clip(p.max() / 2, 1e-6, 1)
    evidence = np.maximum(cv2.blur(odds - np.float32(np.log(border / (1 - border))), (3, 3)), 0)
    axes = [
        axis for axis, sides in ((0, {"left", "right", "middle"}), (1, {"top", "bottom"})) if not sides.isdisjoint(by)
    ]
    pieces = find_pieces(p, SMALL)
    for axis in axes or (0, 1):
        pieces = [cut for piece in pieces for cut in _cut(piece, evidence, axis)]
    return [piece for piece in pieces if p[piece].max() >= min(DETECTED, LIKELY * p.max())]


def _cut(piece: NDArray[np.bool_], evidence: Floats, axis: int) -> Pieces:
    """A piece in parts, where its evidence along an axis (0: in its columns) has valleys."""
    profile = np.where(piece, evidence, 0).sum(axis).tolist()
    ends, hill, low, at = [0], 0.0, 0.0, 0  # the hill that we are on; the lowest since it, and where
    for i, value in enumerate(profile):
        if value < low:
            low, at = value, i
        if hill and low < VALLEY * min(hill, value):
            ends.append(at)
            hill = low = value
        elif value > hill:
            hill = low = value
    lines = np.arange(len(profile))
    parts = [(lines >= a) & (lines < b) for a, b in zip(ends, [*ends[1:], len(profile)], strict=True)]
    cut = [piece & (part[None] if axis == 0 else part[:, None]) for part in parts]
    return [part for part in cut if part.sum() >= SMALL * piece.sum()] or [piece]


def _rank(piece: NDArray[np.bool_], choice: Pick, near: Floats | None) -> float:
    """By what things are put in order: the lowest is the first."""
    (y0, x0), (y1, x1) = _box(piece)
    y, x = (y0 + y1) / 2 / len(piece), (x0 + x1) / 2 / piece.shape[1]
    size = (y1 - y0) * (x1 - x0) / piece.size
    if near is not None:
        away = float(cv2.distanceTransform((near <= near.max() / 2).astype(np.uint8), cv2.DIST_L2, 3)[piece].min())
    else:
        away = -y1 / len(piece) - size
    values = {
        "left": x, "right": -x, "top": y, "bottom": -y, "middle": abs(x - 0.5) + abs(y - 0.5) / 2, "largest": -size,
        "smallest": size, "nearest": away, "farthest": -away,
    }  # fmt: skip
    return sum(values[by] for by in choice.by)


def find_pieces(p: Floats, main: float = MAIN) -> Pieces:
    """The parts of a thing: connected cells above half of its highest value, bool [h, w] each; none that is small."""
    count, of_cell = cv2.connectedComponents((p > p.max() / 2).view(np.uint8), connectivity=8)
    if count <= 2:
        return [of_cell == 1] * (count - 1)
    sizes = np.bincount(of_cell.ravel())[1:]
    return [of_cell == number for number in np.flatnonzero(sizes >= main * sizes.max()) + 1]


def property_fits(shown: Shown, p: Floats, pieces: Pieces, less: float = 0.0) -> Floats:
    """How far each piece of a thing with the map p has a property: [n] in [0, 1]. `less` is taken off its share."""
    planes = shown.planes.reshape(len(shown.planes), -1)
    fits = np.empty(len(pieces), np.float32)
    for i, piece in enumerate(pieces):
        weights = (p * piece).ravel()
        shares = planes.dot(weights)
        own, shares[shown.own] = shares[shown.own], ENOUGH * weights.sum()
        fits[i] = 1 - shown.certain * (1 - min(1.0, max(0.0, (own / shares.max() - less - MINOR) / (MAJOR - MINOR))))
    return fits


def place_fits(relation: Relation, pieces: Pieces, w: Floats) -> Floats:
    """How far each piece stands in a relation to a thing with the map w: [n] in [0, 1]."""
    if relation in _SIDES:
        down, right = _SIDES[relation]
        some, others = (
            np.array([_box(piece) for piece in each]).reshape(-1, 2, 2) for each in (pieces, find_pieces(w))
        )
        reach = ((some[:, 1] - some[:, 0])[:, None] + others[:, 1] - others[:, 0]) / 2
        apart = (some.sum(1)[:, None] - others.sum(1)) / 2 / reach  # [n, others, (y, x)]; 1 where they are side by side
        fits = np.clip(2 * (apart @ (down, right)), 0, 1)
        if down:  # one over the other
            fits = fits * np.clip(2 - 1.5 * np.abs(apart[..., 1]), 0, 1)
        return np.asarray(fits.max(1, initial=0), np.float32)
    if relation == "between":
        place = between(w)
        return np.array([place[piece].mean() for piece in pieces], np.float32)
    others = w > w.max() / 2
    away = cv2.distanceTransform((~others).astype(np.uint8), cv2.DIST_L2, 3)
    gaps = np.array([away[piece].min() for piece in pieces], np.float32)
    if relation not in _WITHIN:  # nothing stands beside itself
        for i in np.flatnonzero([(piece & others).sum() > SAME * piece.sum() for piece in pieces]):
            apart = [other for other in find_pieces(w) if (pieces[i] & other).sum() <= SAME * (pieces[i] | other).sum()]
            rest = np.logical_or.reduce([np.zeros_like(others), *apart])
            away = cv2.distanceTransform((~rest).astype(np.uint8), cv2.DIST_L2, 3)
            gaps[i] = away[pieces[i]].min() if apart else np.inf
    if relation in _TOUCH:
        return np.asarray(np.clip(1 - (gaps - TOUCHING) / SOFT, 0, 1))
    sizes = np.array([np.sqrt(piece.sum()) for piece in pieces], np.float32) + extent(w)
    fits = np.asarray(np.clip(2 - gaps / np.maximum(BESIDE * sizes, TOUCHING), 0, 1))
    if relation in _DEPTH and others.any():  # what stands behind another stands higher in the picture
        low = np.flatnonzero(others.any(1))
        feet = np.array([np.flatnonzero(piece.any(1))[-1] for piece in pieces])
        fits *= np.clip(0.75 + _DEPTH[relation] * (feet - low[-1]) / len(low) / DEEP, 0.5, 1)
    return fits


def _box(piece: NDArray[np.bool_]) -> tuple[tuple[int, int], tuple[int, int]]:
    """((y0, x0), (y1, x1)) around cells."""
    rows, columns = np.flatnonzero(piece.any(1)), np.flatnonzero(piece.any(0))
    return (rows[0], columns[0]), (rows[-1] + 1, columns[-1] + 1)


def region(relation: Relation, w: Floats) -> Floats:
    """Where a thing may be that stands in a relation to one with the map w: float32 [h, w] in [0, 1]."""
    size = extent(w)
    w = (w + LEAST) / (w.max() + LEAST)
    if relation == "part":
        return grown(w, NEAR * size)
    if relation in ("on", "in", "with", "known by"):
        return grown(w, (NEAR if relation == "in" else 2 * NEAR) * size)
    if relation in _SIDES:
        down, right = _SIDES[relation]
        step = BESIDE * size
        moved = np.maximum(shifted(w, down * step / 2, right * step / 2), shifted(w, down * step, right * step))
        return grown(moved, NEAR * size) * (1 - 0.5 * w)
    if relation == "between":
        return between(w)
    near = grown(w, BESIDE * size) * (1 - 0.5 * w)
    if relation in _DEPTH:
        low = np.flatnonzero((w > w.max() / 2).any(1))
        middle = (low[0] + low[-1] + 1) / 2
        ramp = 0.5 + _DEPTH[relation] * (np.arange(len(w), dtype=np.float32) + 0.5 - middle) / len(low)
        near *= np.clip(ramp, 0.4, 1)[:, None]
    return near


def between(w: Floats) -> Floats:
    """Where a thing is between the two largest of those with the map w: float32 [h, w] in [0, 1]; of one beside it."""
    things = sorted(find_things(w), key=lambda piece: -piece.sum())[:2]
    if len(things) < 2:
        return region("beside", w)
    grid = np.indices(w.shape).astype(np.float32)
    y, x = grid[0], grid[1]
    (y0, x0), (y1, x1) = ((float(y[piece].mean()), float(x[piece].mean())) for piece in things)
    far = max((y1 - y0) ** 2 + (x1 - x0) ** 2, 1e-6)
    along = ((y - y0) * (y1 - y0) + (x - x0) * (x1 - x0)) / far
    aside = np.abs((y - y0) * (x1 - x0) - (x - x0) * (y1 - y0)) / np.sqrt(far)
    wide = sum(np.sqrt(piece.sum()) for piece in things) / 2
    inside = np.clip(4 * np.minimum(along, 1 - along), 0, 1) * np.clip(2 - aside / wide, 0, 1)
    return np.asarray(inside * (1 - 0.5 * w), np.float32)


def on_thing(plane: Floats, w: Floats) -> Floats:
    """What of the plane of writing lies on a thing with the map w, [h, w] each; all of it where that is not seen."""
    seen = min(1.0, peak(w) / DETECTED)
    return np.asarray(plane * (1 - np.float32(seen) * (1 - region("part", w))), np.float32)


def frame(relation: Relation, w: Floats, look: Look) -> tuple[Floats, Floats]:
    """(place, likeliest thing) of a question for what is beside its noun."""
    size = extent(w)
    things = look(*things_of(relation))
    inside = grown(w, NEAR * size)
    if relation in ("held", "carried", "used", "eaten"):
        hold = look(*HANDS) * inside
        touch = grown(np.maximum(hold, 0.25 * inside), REACH * size)
        return touch, np.maximum(things, 0.25 * touch * (1 - 0.6 * w))
    if relation == "worn on head":
        top = np.maximum(look("head") * inside, 0.46 * w * usual("head", w))
        return grown(top, NEAR * size), np.maximum(things, 0.36 * top)
    if relation == "worn":
        return inside, np.maximum(things, 0.36 * w)
    if relation in ("supporting", "ridden"):
        below = np.maximum(shifted(w, BESIDE * size / 2, 0), shifted(w, BESIDE * size, 0))
        near = np.maximum(grown(below, NEAR * size), 0.6 * grown(w, 2 * NEAR * size))
        return near * (1 - 0.5 * w), np.maximum(things, 0.25)
    return region(relation, w), np.maximum(things * (1 - 0.8 * w), 0.14)


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
    """The highest value within a distance (in rows and in columns), with soft borders."""
    reach = max(1, round(cells))
    wide = cv2.dilate(w, np.ones((2 * reach + 1, 2 * reach + 1), np.uint8))
    return np.maximum(w, cv2.blur(wide, (reach | 1, reach | 1)))


def shifted(w: Floats, down: float, right: float) -> Floats:
    """A map moved by whole cells; zeros come in."""
    y, x = (max(-side, min(side, round(step))) for step, side in zip((down, right), w.shape, strict=True))
    moved = np.zeros_like(w)
    moved[max(y, 0) : len(w) + min(y, 0), max(x, 0) : w.shape[1] + min(x, 0)] = w[
        max(-y, 0) : len(w) - max(y, 0), max(-x, 0) : w.shape[1] - max(x, 0)
    ]
    return moved


def around(plane: Floats, p: Floats) -> Floats:
    """A property's share around each cell, as far as the thing is there."""
    near = cv2.blur(plane * p, (AROUND, AROUND)) / np.maximum(cv2.blur(p, (AROUND, AROUND)), 1e-3)
    return np.minimum(np.maximum(plane, near), 1)
