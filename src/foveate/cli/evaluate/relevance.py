"""Is the heat on the thing? Relevance maps against COCO-style masks, beside baselines that know no question.

    foveate evaluate relevance --data FOLDER

For every pair of an image and a thing in it, the thing's name is the question. Masks lie on a raster of an eighth of
the image whatever the encoder's grid, maps are moved to it; `agreement.py` says what is measured.

Beside the encoder, in the same run:
* another thing in the image: the mask of one thing, the map of another thing in the same image. A map that only tells
  objects from background scores the same here; the ratio of the two precisions is the *objectness control*.
* a question from another image: the map of something that is not in this image. What stands out attracts it too, so it
  lies above chance by as much as objects attract any question.
* another image's map: the map of the image before. Only habits of photographers raise it above chance.
* saliency, centre, uniform, random: know no question at all.

Kept cells: `allocate` keeps as many cells as the true boxes have, and a tenth of all; how much of it lies in the boxes?
Beside it what the highest cells of the map alone are (of a thing that was not detected `allocate` keeps less, and
spreads the rest), those of maps that know no question, and those of the thing's mask: what a map without a fault would
keep, as a box holds more than the thing.

Presence: every name of the folder is asked of every image; does confidence tell the things that are there?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.allocation.allocation import Allocation, allocate_map, even_order
from foveate.allocation.overlaps import cells_of, overlap
from foveate.cli.evaluate.agreement import (
    RESAMPLES,
    SEED,
    Agreement,
    agreement,
    auroc_estimate,
    mean_estimate,
    plain,
    ratio_estimate,
)
from foveate.cli.evaluate.cases import Case, choose_cases, draw_page
from foveate.cli.evaluate.circumstances import circumstances
from foveate.cli.evaluate.coco import Folder
from foveate.core.errors import OptionError, QueryError
from foveate.core.grid import resize_map
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
from foveate.pipeline import allocate, encode, score
from foveate.relevance.confidence import DETECTED
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture

QUOTES = str.maketrans('"“”', "   ")  # inside a question they would end it
SIZES = {"small": 0.01, "medium": 0.10, "large": 1.0}  # a thing's share of the image, up to
OTHER_THING = "another thing in the image"
FOREIGN_QUESTION, FOREIGN_MAP = "a question from another image", "another image's map"
ALONE, MASK = "its map alone, nothing spread", "the thing's mask"
TENTH = 0.1
BUDGETS = (1.0, 2.0, 5.0, 10.0, 20.0, 35.0, 50.0)  # percent of the cells
NOTHING = Agreement(*[float("nan")] * len(Agreement._fields))
Floats = NDArray[np.floating]


class KeptCells(NamedTuple):
    """Of kept cells with the cells of true boxes (`relevance.overlap`); everything in [0, 1].

    Attributes:
        iou: intersection over union, of as many kept cells as the boxes have.
        recall_10: share of the boxes' cells among a tenth of all cells; precision_10: share of that tenth in the boxes.
        covered: share of the thing's area in kept cells, at each of BUDGETS.
    """

    iou: float
    recall_10: float
    precision_10: float
    covered: tuple[float, ...]


OF_BOXES = KeptCells._fields[:3]


@dataclass(frozen=True, eq=False)
class Pair:
    """One image and one thing in it: how well each map, by its label, agrees with the thing's mask; and what is kept,
    of a COCO-style folder, with its boxes."""

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
        """For one line of pairs.jsonl."""
        maps = {label: {k: plain(v) for k, v in a._asdict().items()} for label, a in self.found.items()}
        known = {"image": self.image, "thing": self.thing, "share": round(self.share, 5), "size": self.size}
        known |= {"confidence": round(self.confidence, 4), "maps": maps}
        kept = {
            label: {k: plain(getattr(some, k)) for k in OF_BOXES}
            | {"covered": [plain(share) for share in some.covered]}
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
) -> tuple[dict[str, Any], list[Pair]]:
    """-> (report, pairs). The report has one row a map, rows by size of the encoder's, presence, and objectness.

    Raises OptionError for a folder without anything labelled or with a name that cannot be asked; EncoderNameError.
    """
    questions = _questions(folder, encoder)
    random = np.random.default_rng(SEED)
    pairs: list[Pair] = []
    asked: list[tuple[float, bool, int]] = []  # confidence, whether the thing is there, image
    before: Floats | None = None
    for number, item in enumerate(folder.labelled(limit)):
        texture = encode(item.rgb, encoder=encoder, long_side=long_side, read=read)
        every = dict(zip(questions, score(texture, list(questions.values()), encoder=encoder), strict=True))
        asked += [(relevance.confidence, name in item.masks, number) for name, relevance in every.items()]
        shape = next(iter(item.masks.values())).shape
        maps = {name: resize_map(every[name].map, shape) for name in item.masks}
        absent = [name for name in questions if name not in item.masks]
        foreign = every[absent[random.integers(len(absent))]].map if absent else None
        others: dict[str, Floats | None] = {
            FOREIGN_QUESTION: None if foreign is None else resize_map(foreign, shape),
            FOREIGN_MAP: None if before is None else resize_map(before, shape),
            **ignorant_maps(texture, shape, random),
        }
        blind = ignorant_maps(texture, texture.grid.shape, np.random.default_rng([SEED, number]))
        for name, mask in item.masks.items():
            rest = [agreement(maps[other], mask) for other in maps if other != name]
            found = {
                encoder: agreement(maps[name], mask),
                OTHER_THING: Agreement(*np.mean(rest, 0)) if rest else NOTHING,
                **{label: NOTHING if p is None else agreement(p, mask) for label, p in others.items()},
            }
            kept = _keep_cells(every[name], cells_of(item.boxes[name], texture.grid), mask, encoder, blind)
            share, confidence = float(mask.mean()), every[name].confidence
            pairs.append(Pair(item.name, number, name, share, confidence, found, kept=kept))
        before = next(iter(maps.values()))
        progress(number + 1)
    return _report(folder, encoder, long_side, pairs, asked) | {"read": read}, pairs


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


def draw_cases(
    folder: Folder, encoder: str, pairs: Sequence[Pair], long_side: int | None = None, *, read: bool = False
) -> Image.Image:
    """The best, the worst and some random pairs by average precision: outlines, heat, and kept cells with boxes."""
    kinds = choose_cases(pairs, [pair.found[encoder].precision for pair in pairs])
    chosen = {pair.image for some in kinds.values() for pair in some}
    seen = {
        item.name: (item, encode(item.rgb, encoder=encoder, long_side=long_side))
        for item in folder.labelled(only=chosen)
    }

    def case(pair: Pair) -> Case:
        item, texture = seen[pair.image]
        relevance, boxes = score(texture, question(pair.thing), encoder=encoder), item.boxes[pair.thing]
        kept = allocate(relevance, int(cells_of(boxes, texture.grid).sum()))
        caption = f"{pair.thing} {pair.found[encoder].precision:.2f} / {pair.confidence:.2f}"
        iou = f"IoU with the boxes {pair.kept[encoder].iou:.2f}"
        return Case(item.rgb, item.masks[pair.thing], relevance.map, (caption, iou), kept, boxes)

    return draw_page({kind: [case(pair) for pair in some] for kind, some in kinds.items()})


def question(name: str) -> str:
    """The question that asks for a name as it stands, whatever words it is made of."""
    return '"' + name.translate(QUOTES) + '"'


def _questions(folder: Folder, encoder: str) -> dict[str, str]:
    """Each thing's name as a question that is asked as it stands. Raises OptionError for one that cannot be asked."""
    network, questions = load_encoder(encoder), {}
    for name in folder.names:
        questions[name] = question(name)
        try:
            prepare(network, questions[name])
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
    images = len({pair.number for pair in pairs})
    confidence, there, number = (np.array(column) for column in zip(*asked, strict=True))
    called = confidence >= DETECTED
    by_size = {size: [pair for pair in pairs if pair.size == size] for size in SIZES}
    precision = {label: [pair.found[label].precision for pair in pairs] for label in (encoder, OTHER_THING)}
    objectness = ratio_estimate(precision[encoder], precision[OTHER_THING], [pair.number for pair in pairs])
    presence = auroc_estimate(confidence, there, number.tolist())
    return {
        "title": f"{images} images, {len(pairs)} things; means and 95 % intervals",
        "rows": [map_row(label, pairs, label) for label in pairs[0].found],
        "kept": [_kept_row(label, label, pairs) for label in pairs[0].kept],
        "kept_sizes": [_kept_row(f"{size} ({len(some)})", encoder, some) for size, some in by_size.items() if some],
        "budgets": {"percent": list(BUDGETS), "covered": {label: _covered(label, pairs) for label in pairs[0].kept}},
        "sizes": [map_row(f"{size} ({len(some)})", some, encoder) for size, some in by_size.items() if some],
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


def map_row(title: str, pairs: Sequence[Pair], label: str) -> dict[str, Any]:
    """A row of the table of maps: how well those of this label agree with the masks."""
    images = [pair.number for pair in pairs]
    columns = {k: mean_estimate([getattr(p.found[label], k) for p in pairs], images) for k in Agreement._fields}
    cells = [title, *map(str, columns.values())]
    return {"cells": cells, "map": label, **{name: estimate.record() for name, estimate in columns.items()}}


def _kept_row(title: str, label: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    images = [pair.number for pair in pairs]
    columns = {k: mean_estimate([getattr(p.kept[label], k) for p in pairs], images) for k in OF_BOXES}
    known = {"cells": [title, *map(str, columns.values())], "map": label}
    return known | {name: estimate.record() for name, estimate in columns.items()}


def _covered(label: str, pairs: Sequence[Pair]) -> list[dict[str, float | None]]:
    """The mean share of a thing that is kept, at each of BUDGETS, and its interval: the curve of `foveate.viz`."""
    images = [pair.number for pair in pairs]
    shares = zip(*(pair.kept[label].covered for pair in pairs), strict=True)
    return [mean_estimate(share, images).record() for share in shares]


def ignorant_maps(texture: Texture, shape: tuple[int, int], random: np.random.Generator) -> dict[str, Floats]:
    """Maps that know no question: label -> [h, w]."""
    return {
        "saliency": resize_map(texture.channel("saliency"), shape),
        "centre": _centre(shape),
        "uniform": uniform_map(shape),
        "random": random.random(shape),
    }


def _centre(shape: tuple[int, int]) -> Floats:
    y, x = (np.abs((np.arange(n) + 0.5) / n - 0.5) for n in shape)
    return -np.hypot(y[:, None], x[None])


def uniform_map(shape: tuple[int, int]) -> Floats:
    """A map whose highest K cells are spread evenly, for every K."""
    plane = np.empty(shape[0] * shape[1])
    plane[even_order(*shape)] = -np.arange(plane.size)
    return plane.reshape(shape)
