"""Relevance: where a question looks in an image, as a value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from foveate.core.arrays import AsArray
from foveate.core.checks import check_pair
from foveate.core.display import Drawable
from foveate.core.errors import OptionError
from foveate.core.grid import Floats, Grid, check_grid, check_whole, resize_map
from foveate.core.readonly import Frozen, ReadOnly
from foveate.language.query import quoted
from foveate.relevance.boxes import Boxes, find_boxes, score_boxes
from foveate.relevance.confidence import DETECTED, Detectable, in_digits
from foveate.texture.texture import Texture

MOST_WORDS = 8  # that are said of an answer
_BESIDE = re.compile(r'(?:right of|left of|above|below|after) "(?P<label>.*?)"(?:, is |$)')
Asks = Literal["thing", "beside", "everything", "writing"]


class Found(NamedTuple):
    """A word in the image that a question found, with its box (y0, x0, y1, x1) in pixels and its score in [0, 1].

    `because` tells why: 'matches "total"', 'right of "total"'.
    """

    text: str
    box: tuple[float, float, float, float]
    score: float
    because: str
    said: bool = True  # whether it is a part of `Relevance.answer`

    @property
    def label(self) -> str:
        """What it is the value of: "TOTAL" where it stands right of that; else ""."""
        found = _BESIDE.match(self.because)
        return found["label"] if found else ""


def _middle(word: Found) -> float:
    return (word.box[0] + word.box[2]) / 2


def say(words: Sequence[Found]) -> str:
    """As `Relevance.answer`."""
    best = [word for word in words if word.said]
    label = next((word.label for word in best if word.label), "")
    rows: list[list[Found]] = []
    for word in sorted((word for word in best if word.label == label), key=_middle):
        if rows and _middle(word) < rows[-1][-1].box[2]:
            rows[-1].append(word)
        else:
            rows.append([word])
    said = [word.text for row in rows for word in sorted(row, key=lambda word: word.box[1])]
    return f"{label} -> " * bool(label) + " ".join(said[:MOST_WORDS]) + " ..." * (len(said) > MOST_WORDS)


def describe_others(looked_for: Mapping[str, str]) -> list[str]:
    """`Relevance.looked_for` in words: ["car in place of police car"]."""
    return [f"{other} in place of {word}" for word, other in looked_for.items()]


@runtime_checkable
class Placed(Protocol):
    """A grid that knows where in the image it lies, as a model's visual tokens do."""

    def place(self, relevance: Relevance) -> Relevance:
        """A relevance over the image, on this grid."""


@dataclass(frozen=True, eq=False)
class Relevance(Detectable, Frozen, Drawable, AsArray):
    """Where a question looks. `np.asarray(relevance)` is its map, `relevance.torch()` a tensor of it.

    Attributes:
        query: the question as asked.
        map: relevance of each cell, float32 [h, w] in [0, 1].
        logits: the raw score behind it, float32 [h, w]; to compare cells where the map is low everywhere.
        confidence: in [0, 1], how sure the question's own map is that the thing is in the image.
        parts: the map of each phrase, by the phrase.
        reasons: every plane that entered the map, by name: "participation" (the highest of the phrases' maps),
            "segment", "place", "reading", "prior", "information", "perspective", channels, parts of composed phrases.
        saliency: what stands out whatever is asked, float32 [h, w].
        valid: opaque share of each cell, float32 [h, w]; None for an image without alpha.
        grid: the cells.
        features: the cells' embedding, float32 [h, w, r], for policies that look at it; or None.
        confidences: of each phrase, by the phrase.
        ignored: phrases that the question leaves out ("everything except the bear").
        unknown: words that were not looked for at all, in the question's order: "violin", "tallest", "on the left".
        looked_for: words of the question -> what was looked for in their place: {"police car": "car"}. Empty where all
            was looked for as asked. Then `confidence` is at most what the other thing can promise.
        peak: the mean of the highest 1/1024 of the final map, where more than one map and its segments entered; else 0.
        words: words of the image that the question found, the best first.
        weights: how much each channel counted, in (0, 1], by its name in `reasons`.
        preset: name of the preset that the question went by; None for none.
        asks: for a thing, for what is beside one, for everything in the picture, for writing: `allocate` goes by it.
        texture: the texture that was asked; None after pickling, and of one made by hand.
    """

    query: str
    map: Floats
    logits: Floats
    confidence: float
    parts: Mapping[str, Floats]
    reasons: Mapping[str, Floats]
    saliency: Floats
    valid: Floats | None
    grid: Grid
    features: Floats | None = None
    confidences: Mapping[str, float] = field(default_factory=lambda: ReadOnly({}))
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    looked_for: Mapping[str, str] = field(default_factory=lambda: ReadOnly({}))
    peak: float = 0.0
    words: tuple[Found, ...] = ()
    weights: Mapping[str, float] = field(default_factory=lambda: ReadOnly({}))
    preset: str | None = None
    asks: Asks = "thing"
    texture: Texture | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "texture": None}  # the pixels stay where they are

    def _array(self) -> tuple[Floats, bool]:
        return self.map, True

    def __repr__(self) -> str:
        found = "detected" if self.detected else "not detected"
        said = f", looked for {', '.join(describe_others(self.looked_for))}" if self.looked_for else ""
        said += f", unknown: {', '.join(self.unknown)}" if self.unknown else ""
        preset = "" if self.preset is None else f", preset {self.preset!r}"
        return (
            f"Relevance({quoted(self.query)}, {self.grid.h} x {self.grid.w} cells, "
            f"confidence {in_digits(self.confidence)}: {found}{said}{preset})"
        )

    @property
    def level(self) -> float:
        """From where on boxes, contours and lines have the thing in them: half of the map's highest value.

        Not 0.5: of what only its parts or odds make likely (a third of what is detected) the map stays below that.
        """
        return DETECTED * float(self.map.max()) or DETECTED

    @property
    def answer(self) -> str:
        """The words of the best value, or those that are about as good, in reading order, after their label.

        "TOTAL -> 34.50"; "" of no words.
        """
        return say(self.words)

    def boxes(self, threshold: float | None = None, *, detected_only: bool = True) -> Boxes:
        """Boxes around connected parts of the map: float32 [n, 4], (y0, x0, y1, x1) in pixels, the best first.

        `boxes().xyxy` has them as (x0, y0, x1, y1), as most other tools do.

        Args:
            threshold: 0 to 1, which the map must reach; None is `level`.
            detected_only: what is not detected has no boxes, but at thresholds below 0.5: "the blue bus" on a yellow
                one has none. False: its boxes all the same.

        Raises OptionError for another threshold, and on a grid of visual tokens over a part of the image.
        """
        check_whole(self.grid, "boxes")
        found = find_boxes(self.map, self.grid, self.level if threshold is None else threshold)
        low = threshold is not None and threshold < DETECTED
        return found if self.followed or low or not detected_only else found[:0].view(Boxes)

    def score_boxes(self, boxes: ArrayLike) -> Floats:
        """The highest value of the map in each box [n, 4], (y0, x0, y1, x1) in pixels: float32 [n] in [0, 1].

        Raises OptionError for another shape, and a box without area in the image.
        """
        check_whole(self.grid, "scores of boxes")
        return score_boxes(self.map, self.grid, boxes)

    def on(self, grid: Grid | Placed | tuple[int, int]) -> Relevance:
        """The same relevance on another grid over the same image: area means where coarser, linear where finer.

        Args:
            grid: cells over the whole image, or (rows, columns) of them; or a model's visual tokens (`encoded.grid`).

        Raises OptionError for a grid over an image of another size.
        """
        if not isinstance(grid, Grid) and isinstance(grid, Placed):
            return grid.place(self)
        if isinstance(grid, tuple):
            grid = Grid(*check_pair("grid", grid, fix="pass (24, 24), say"), self.grid.height, self.grid.width)
        grid = replace(check_grid(grid, self.grid), part=self.grid.part)
        return replace(
            self,
            map=np.clip(resize_map(self.map, grid.shape), 0, 1),
            logits=resize_map(self.logits, grid.shape),
            parts=ReadOnly({name: resize_map(plane, grid.shape) for name, plane in self.parts.items()}),
            reasons=ReadOnly({name: resize_map(plane, grid.shape) for name, plane in self.reasons.items()}),
            saliency=resize_map(self.saliency, grid.shape),
            valid=None if self.valid is None else resize_map(self.valid, grid.shape),
            grid=grid,
            features=None if self.features is None else resize_map(self.features, grid.shape),
        )


@dataclass(frozen=True, eq=False)
class Relevances(Sequence[Relevance], Drawable, AsArray):
    """Several questions on one texture, or one on several, in their order: a sequence of Relevance, arrays stacked."""

    items: tuple[Relevance, ...]

    def __repr__(self) -> str:
        first = [f"{quoted(item.query)} {in_digits(item.confidence)}" for item in self.items[:3]]
        return f"Relevances({len(self)}: {', '.join(first)}{', ...' if len(self) > 3 else ''})"

    @property
    def map(self) -> Floats:
        """float32 [q, h, w]; [0, 0, 0] of no questions. Raises OptionError where textures have different cells."""
        return self._stacked("map")

    def _stacked(self, name: str) -> Floats:
        if len(shapes := {item.grid.shape for item in self.items}) > 1:
            raise OptionError(
                f"maps of {' and '.join(f'{h} x {w}' for h, w in sorted(shapes)[:3])} cells",
                expected="as many cells each",
                fix="relevances.on((32, 32)) moves all to these; or encode images of one shape",
            )
        return np.stack([getattr(item, name) for item in self.items]) if shapes else np.zeros((0, 0, 0), np.float32)

    def on(self, grid: tuple[int, int]) -> Relevances:
        """Each on as many cells over its image, as `Relevance.on`."""
        return Relevances(tuple(item.on(grid) for item in self.items))

    def _array(self) -> tuple[Floats, bool]:
        return self.map, False

    @property
    def logits(self) -> Floats:
        return self._stacked("logits")

    @property
    def confidence(self) -> Floats:
        """float32 [q]."""
        return np.array([item.confidence for item in self.items], np.float32)

    @overload
    def __getitem__(self, index: int) -> Relevance: ...
    @overload
    def __getitem__(self, index: slice) -> Relevances: ...
    def __getitem__(self, index: int | slice) -> Relevance | Relevances:
        return Relevances(self.items[index]) if isinstance(index, slice) else self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Relevance]:
        return iter(self.items)
