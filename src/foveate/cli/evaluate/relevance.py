"""Do relevance maps lie on the things that were asked for? Compared with COCO-style masks, beside baselines.

Each thing's name is a question, for every image that it is in. Maps and masks are compared on a raster of an eighth of
the image. Beside the encoder's map stand, in the same run,

* another thing in the image: the map of one thing on the mask of another, which is as good where a map only tells
  objects from background: the ratio of the two precisions says how much the question matters;
* saliency, centre, uniform, random: maps that know no question.

Kept cells: `allocate` keeps as many cells as the true boxes have, and a tenth of all; beside it the highest cells of
the map alone, of those maps, and of the mask: the most that a map can reach.

Presence: every name is asked of every image; does the confidence tell the things that are there?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import Allocation, allocate_map, even_order
from foveate.cli.evaluate.agreement import (
    RESAMPLES,
    SEED,
    Agreement,
    agreement,
    auroc_estimate,
    circumstances,
    mean_estimate,
    plain,
    ratio_estimate,
)
from foveate.cli.evaluate.coco import Folder
from foveate.core.errors import OptionError, QueryError
from foveate.core.grid import resize_map
from foveate.encoders.load import load_encoder
from foveate.encoders.taught import TaughtWords
from foveate.language.query import prepare
from foveate.pipeline import allocate, encode, score
from foveate.relevance.boxes import cells_of, overlap
from foveate.relevance.confidence import DETECTED
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture

QUOTES = str.maketrans('"“”', "   ")  # inside a question they would end it
SIZES = {"small": 0.01, "medium": 0.10, "large": 1.0}  # a thing's share of the image, up to: chosen by hand
OTHER_THING, ALONE, MASK = "another thing in the image", "its map alone, nothing spread", "the thing's mask"
TENTH = 0.1
BUDGETS = (1.0, 2.0, 5.0, 10.0, 20.0, 35.0, 50.0)  # percent of the cells, for the curve
NOTHING = Agreement(*[float("nan")] * len(Agreement._fields))
Floats = NDArray[np.floating]


class KeptCells(NamedTuple):
    """Of kept cells with the cells of true boxes; everything in [0, 1].

    iou, recall_10 and precision_10 are of as many cells, and of a tenth of all; covered is the share of the thing's
    area in kept cells, at each of BUDGETS.
    """

    iou: float
    recall_10: float
    precision_10: float
    covered: tuple[float, ...]


OF_BOXES = KeptCells._fields[:3]


@dataclass(frozen=True, eq=False)
class Pair:
    """One image and one thing in it: how well each map, by its label, agrees with the mask, and what is kept."""

    image: str
    number: int
    thing: str
    share: float
    confidence: float
    found: dict[str, Agreement]
    kept: dict[str, KeptCells] = field(default_factory=dict, kw_only=True)

    @property
    def size(self) -> str:
        return next(name for name, limit in SIZES.items() if self.share <= limit)

    def record(self) -> dict[str, Any]:
        maps = {label: {k: plain(v) for k, v in a._asdict().items()} for label, a in self.found.items()}
        known = {"image": self.image, "thing": self.thing, "share": round(self.share, 5), "size": self.size}
        known |= {"confidence": round(self.confidence, 4), "maps": maps}
        kept = {
            label: {k: plain(getattr(some, k)) for k in OF_BOXES} | {"covered": [plain(s) for s in some.covered]}
            for label, some in self.kept.items()
        }
        return known | {"kept": kept} if kept else known


def measure(
    folder: Folder,
    encoder: str,
    limit: int,
    long_side: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    *,
    read: bool = False,
    words: TaughtWords | None = None,
) -> tuple[dict[str, Any], list[Pair]]:
    """-> (report, pairs). Raises OptionError for a folder without labels or with a name that cannot be asked."""
    questions = questions_of(folder, encoder)
    pairs: list[Pair] = []
    asked: list[tuple[float, bool, int]] = []  # confidence, whether the thing is there, image
    for number, item in enumerate(folder.labelled(limit)):
        texture = encode(item.rgb, encoder=encoder, long_side=long_side, read=read)
        every = dict(
            zip(questions, score(texture, list(questions.values()), encoder=encoder, words=words), strict=True)
        )
        asked += [(relevance.confidence, name in item.masks, number) for name, relevance in every.items()]
        shape = next(iter(item.masks.values())).shape
        maps = {name: resize_map(every[name].map, shape) for name in item.masks}
        ignorant = ignorant_maps(texture, shape, np.random.default_rng([SEED, number]))
        blind = ignorant_maps(texture, texture.grid.shape, np.random.default_rng([SEED, number]))
        for name, mask in item.masks.items():
            rest = [agreement(maps[other], mask) for other in maps if other != name]
            found = {
                encoder: agreement(maps[name], mask),
                OTHER_THING: Agreement(*np.mean(rest, 0)) if rest else NOTHING,
                **{label: agreement(plane, mask) for label, plane in ignorant.items()},
            }
            kept = _keep_cells(every[name], cells_of(item.boxes[name], texture.grid), mask, encoder, blind)
            share, confidence = float(mask.mean()), every[name].confidence
            pairs.append(Pair(item.name, number, name, share, confidence, found, kept=kept))
        progress(number + 1)
    return _report(folder, encoder, long_side, pairs, asked) | {"read": read}, pairs


def question(name: str) -> str:
    """The question that asks for a name as it stands."""
    return '"' + name.translate(QUOTES) + '"'


def map_row(title: str, pairs: Sequence[Pair], label: str) -> dict[str, Any]:
    return _row(title, label, pairs, Agreement._fields, [pair.found[label] for pair in pairs])


def ignorant_maps(texture: Texture, shape: tuple[int, int], random: np.random.Generator) -> dict[str, Floats]:
    """label -> [h, w]."""
    y, x = (np.abs((np.arange(n) + 0.5) / n - 0.5) for n in shape)
    return {
        "saliency": resize_map(texture.channel("saliency"), shape),
        "centre": -np.hypot(y[:, None], x[None]),
        "uniform": uniform_map(shape),
        "random": random.random(shape),
    }


def uniform_map(shape: tuple[int, int]) -> Floats:
    """A map whose highest K cells are spread evenly, for every K."""
    plane = np.empty(shape[0] * shape[1])
    plane[even_order(*shape)] = -np.arange(plane.size)
    return plane.reshape(shape)


def _keep_cells(
    relevance: Relevance, cells: NDArray[np.bool_], mask: NDArray[np.bool_], encoder: str, blind: dict[str, Floats]
) -> dict[str, KeptCells]:
    """What the question, the mask, and maps that know no question keep, beside the cells of boxes [h, w]."""
    many, tenth = int(cells.sum()), max(1, round(TENTH * cells.size))
    even = uniform_map(cells.shape) / cells.size  # in (-1, 0]: it breaks ties
    thing = resize_map(mask, cells.shape)
    maps: dict[str, Floats] = {ALONE: relevance.map, MASK: thing + 1e-3 * even, **blind}
    budgets = [max(1, round(percent / 100 * cells.size)) for percent in BUDGETS]

    def compare(keep: Callable[[int], Allocation]) -> KeptCells:
        as_many, few = (overlap(keep(budget).mask, cells) for budget in (many, tenth))
        covered = [float(thing.ravel()[keep(budget).indices].sum() / thing.sum()) for budget in budgets]
        return KeptCells(as_many.iou, few.recall, few.precision, tuple(covered))

    kept = {label: compare(partial(allocate_map, plane, relevance.grid)) for label, plane in maps.items()}
    return {encoder: compare(partial(allocate, relevance)), **kept}


def questions_of(folder: Folder, encoder: str) -> dict[str, str]:
    """Each thing's name as a question that is asked as it stands. Raises OptionError for one that cannot be asked."""
    network, questions = load_encoder(encoder), {name: question(name) for name in folder.names}
    for name, text in questions.items():
        try:
            prepare(network, text)
        except QueryError as error:
            raise OptionError(
                f"the category {name[:40]!r} in '{folder.path}' cannot be asked: {error.received}",
                expected="names of things that the encoder can read",
                fix=f"rename it in annotations.json ({error.fix})",
            ) from None
    return questions


def _report(
    folder: Folder, encoder: str, long_side: int | None, pairs: list[Pair], asked: list[tuple[float, bool, int]]
) -> dict[str, Any]:
    images = [pair.number for pair in pairs]
    confidence, there, number = (np.array(column) for column in zip(*asked, strict=True))
    called = confidence >= DETECTED
    by_size = {size: [pair for pair in pairs if pair.size == size] for size in SIZES}
    sizes = {f"{size} ({len(some)})": some for size, some in by_size.items() if some}
    precision = {label: [pair.found[label].precision for pair in pairs] for label in (encoder, OTHER_THING)}
    objectness = ratio_estimate(precision[encoder], precision[OTHER_THING], images)
    presence = auroc_estimate(confidence, there, number.tolist())
    covered = {label: zip(*(pair.kept[label].covered for pair in pairs), strict=True) for label in pairs[0].kept}
    return {
        "title": f"{len(set(images))} images, {len(pairs)} things; means and 95 % intervals",
        "rows": [map_row(label, pairs, label) for label in pairs[0].found],
        "kept": [_kept_row(label, label, pairs) for label in pairs[0].kept],
        "kept_sizes": [_kept_row(title, encoder, some) for title, some in sizes.items()],
        "budgets": {
            "percent": list(BUDGETS),
            "covered": {
                label: [mean_estimate(share, images).record() for share in shares] for label, shares in covered.items()
            },
        },
        "sizes": [map_row(title, some, encoder) for title, some in sizes.items()],
        "objectness": {"ratio": objectness.record(), "text": str(objectness)},
        "presence": {
            "auroc": presence.record(),
            "text": str(presence),
            "detected_when_there": plain(called[there].mean()),
            "detected_when_not": plain(called[~there].mean()) if not there.all() else None,
            "asked": len(there),
        },
        "data": str(folder.path),
        "encoder": {"name": encoder, "revision": load_encoder(encoder).revision, "long_side": long_side},
        "pairs": len(pairs),
        "seed": SEED,
        "resamples": RESAMPLES,
        **circumstances(),
    }


def _kept_row(title: str, label: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    return _row(title, label, pairs, OF_BOXES, [pair.kept[label] for pair in pairs])


def _row(
    title: str, label: str, pairs: Sequence[Pair], fields: Sequence[str], values: Sequence[tuple[Any, ...]]
) -> dict[str, Any]:
    images = [pair.number for pair in pairs]
    columns = {name: mean_estimate([getattr(each, name) for each in values], images) for name in fields}
    known = {"cells": [title, *map(str, columns.values())], "map": label}
    return known | {name: estimate.record() for name, estimate in columns.items()}
