"""Does anything beside the question's own map help? Each way beside the plain one, on the same images and things.

    python -m benchmarks fusion --data FOLDER      # what was there before the question: saliency, segments, a cascade
    python -m benchmarks refine --data FOLDER      # looking again, closer
    python -m benchmarks weights --data DATA/coco128 --open DATA/open --clips DATA/davis   # channels that words ask for

The interval of a *difference* is small even where those of the means are wide. Below 0 a way hurts, above it helps,
across 0 these photographs do not tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.baselines import cascade, colour_contrast, raise_within
from benchmarks.clips import names_in, read_clip
from benchmarks.common import KEPT, CocoData, EncoderName, Limit, each_of
from benchmarks.questions import read_questions
from foveate.allocation.policies import top_cells
from foveate.cli.evaluate.agreement import Agreement, Estimate, agreement, mean_estimate
from foveate.cli.evaluate.coco import read_folder
from foveate.cli.evaluate.relevance import question
from foveate.core.grid import resize_map
from foveate.encoders.load import load_encoder
from foveate.language.cues import Cue
from foveate.language.query import prepare
from foveate.pipeline import encode, score
from foveate.relevance.evidence import follow, own_motion, plane_of
from foveate.relevance.fusion import Linear, Tensions, information, perspective
from foveate.relevance.steps import segment_means
from foveate.texture.texture import Texture
from foveate.tiles.re_encode import refine as look_again
from foveate.video import stream

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
METRICS = ("pointing", "precision", "coverage_10")
COLUMNS = ("map", "pairs", *METRICS, "difference in precision", "in coverage")
ALONE = "the question alone"
EVERY = 3  # frames of a clip from one that is judged to the next


@dataclass
class Compared:
    """Agreements of ways with masks, pair by pair; `kind` says which pairs belong together."""

    found: dict[tuple[str, str], list[Agreement]] = field(default_factory=dict)
    images: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def add(self, way: str, plane: Floats, mask: Mask, image: int, kind: str = "") -> None:
        """A map [h, w] of any size with a mask."""
        self.found.setdefault((kind, way), []).append(agreement(resize_map(plane, mask.shape), mask))
        self.images.setdefault((kind, way), []).append(image)

    def report(self, encoder: str) -> dict[str, Any]:
        title = "maps against masks; differences to the first way, with 95 % intervals"
        return {"title": title, "columns": COLUMNS, "rows": self.rows(), "encoder": encoder}

    def rows(self) -> list[dict[str, Any]]:
        """One a way, with its difference to the first way of its kind."""
        first: dict[str, str] = {}
        rows = []
        for (kind, way), values in self.found.items():
            table, images = np.array(values), self.images[kind, way]
            apart = table - np.array(self.found[kind, first.setdefault(kind, way)])
            places = [Agreement._fields.index(name) for name in METRICS]
            means = dict(zip(METRICS, table.mean(0)[places].tolist(), strict=True))
            differences = [mean_estimate(apart[:, place], images) for place in places[1:]]
            title = f"{kind}: {way}" if kind else way
            cells = [title, str(len(values)), *(f"{mean:.3f}" for mean in means.values())]
            cells += ["" if way == first[kind] else signed(each) for each in differences]
            known = {"what": title, "way": way, "kind": kind, "pairs": len(values), "cells": cells}
            rows.append(known | means | {"difference": differences[0].record()})
        return rows


def signed(estimate: Estimate) -> str:
    """A difference with its interval."""
    return f"{estimate.mean:+.3f} ({estimate.low:+.3f} to {estimate.high:+.3f})"


# --- fusion -----------------------------------------------------------------------------------------------------------


def fused(texture: Texture, p: Floats) -> Mapping[str, Floats]:
    """Name -> map [h, w], all made of the question's map p and what is known without it."""
    info, persp = information(texture), perspective(texture)
    return {
        ALONE: p,
        "three tensions (part28)": Tensions().fuse(info, persp, p),
        "linear, 5 % information, 5 % perspective": Linear().fuse(info, persp, p),
        "30 % mean of the segment (default)": 0.7 * p + 0.3 * segment_means(texture, p),
    }


def measure_fusion(data: CocoData, encoder: EncoderName = None, limit: Limit = 100_000) -> dict[str, Any]:
    """Does anything beside the question help? Fusions, segments, a cascade."""
    network, compared = load_encoder(encoder or "nano"), Compared()
    cascades: list[tuple[float, float]] = []
    for number, item in each_of(read_folder(data), limit):
        texture = encode(item.rgb, encoder=network)
        budget = min(KEPT, texture.grid.count // 2)
        for name, mask in item.masks.items():
            relevance = score(texture, question(name), encoder=network, smoothing=0)
            for way, plane in fused(texture, relevance.map).items():
                compared.add(way, plane, mask, number)
            quick = cascade(texture, prepare(network, question(name)), budget)
            exact = top_cells(relevance.logits.ravel(), budget)
            cascades.append((float(quick.looked.mean()), float(np.isin(quick.kept, exact).mean())))
    looked, same = np.mean(cascades, 0).tolist()
    told = f"\ncascade, beside scoring all cells: {looked:.0%} looked at, {same:.0%} the same kept"
    return compared.report(network.name) | {"cascade": {"looked": looked, "same": same}, "after": [told]}


# --- looking again ----------------------------------------------------------------------------------------------------


LOOKS: Mapping[str, Mapping[str, Any]] = {  # keywords of `foveate.tiles.refine`; share 1: the whole image
    "the whole at 1.5 x": {"share": 1, "scale": 1.5},
    "the whole at 2 x": {"share": 1, "scale": 2},
    "a quarter at 1.5 x": {"scale": 1.5},
    "a quarter at 2 x": {"scale": 2},
    "half at 1.5 x": {"share": 0.5, "scale": 1.5},
}


def measure_refine(data: CocoData, encoder: EncoderName = None, limit: Limit = 100_000) -> dict[str, Any]:
    """Does looking again, closer, help? Boxes and the whole image, with their price.

    A box is looked at for each question, the whole image once for all.
    """
    network, compared, seconds = load_encoder(encoder or "nano"), Compared(), dict[str, list[float]]()

    def look(way: str, make: Callable[[], Texture]) -> Texture:
        start = time.perf_counter()
        seen = make()
        seconds.setdefault(way, []).append(time.perf_counter() - start)
        return seen

    for number, item in each_of(read_folder(data), limit):
        texture = look(ALONE, lambda rgb=item.rgb: encode(rgb, encoder=network))  # type: ignore[misc]
        seen: dict[str, Texture] = {ALONE: texture}
        for name, mask in item.masks.items():
            for way, how in LOOKS.items():
                whole = how.get("share") == 1
                if not whole or way not in seen:
                    asked = None if whole else question(name)
                    seen[way] = look(way, lambda a=asked, h=how, t=texture: look_again(t, a, encoder=network, **h))  # type: ignore[misc]
            for way, each in seen.items():
                compared.add(way, score(each, question(name), encoder=network).map, mask, number)
    report, once = compared.report(network.name), float(np.median(seconds[ALONE]))
    for row in report["rows"]:
        more = 0 if row["way"] == ALONE else float(np.median(seconds[row["way"]]))
        row["cells"].append(f"{1 + more / once:.1f}")
    return report | {"columns": (*COLUMNS, "times one look")}


# --- channels that words ask for --------------------------------------------------------------------------------------


class Case(NamedTuple):
    """A question's map without cues, the map with a channel, its name, and a mask of the answer."""

    kind: str
    image: str
    plain: Floats
    way: str
    map: Floats
    mask: Mask


def measure_weights(
    data: Annotated[Path | None, typer.Option("--data", help="COCO-style folder: colour, distance.")] = None,
    questions: Annotated[Path | None, typer.Option("--open", help="Folder with queries.json: writing.")] = None,
    clips: Annotated[Path | None, typer.Option("--clips", help="Folder with davis.json: motion.")] = None,
) -> dict[str, Any]:
    """Do channels that a question's words speak of help its map? Two rows for each: without the channel, and with."""
    compared, numbers = Compared(), dict[str, int]()
    cases = ((_of_things, data), (_of_writing, questions), (_of_motion, clips))
    for make, folder in cases:
        for case in make(folder) if folder is not None else ():
            number = numbers.setdefault(case.image, len(numbers))
            compared.add("without", case.plain, case.mask, number, f"{case.kind} {case.way}")
            compared.add("with", case.map, case.mask, number, f"{case.kind} {case.way}")
    return compared.report("nano")


def _of_things(folder: Path) -> Iterator[Case]:
    """Contrast of colours and a ramp from top to bottom in the place of depth, inside the thing, at .3."""
    for item in read_folder(folder).labelled(100_000):
        texture = encode(item.rgb)
        for name, mask in item.masks.items():
            for text, way, plane in (
                (f"what colour is the {name}?", "colour_contrast", colour_contrast(texture)),
                (f"how far is the {name}?", "a ramp for depth", texture.channel("y")),
            ):
                plain = score(texture, text, cues=False).map
                yield Case(text.replace(name, "..."), item.name, plain, way, raise_within(plain, 0.3, plane), mask)


def _of_writing(folder: Path) -> Iterator[Case]:
    """The channel of writing at .5: questions of the kind "text", and the others about the same photographs."""
    asked = read_questions(folder)
    wanted = {i for i, photo in enumerate(asked.photographs) if any(q.kind == "text" for q in photo.questions)}
    for _, photograph, rgb in asked.read(only=wanted):
        texture = encode(rgb, channels="all", read=False)
        plane = plane_of(texture, "text")
        for each in photograph.questions:
            if each.mask is not None and plane is not None:
                kind = "for writing" if each.kind == "text" else "for things beside writing"
                plain = score(texture, each.text, cues=False).map
                yield Case(kind, photograph.file, plain, "text", _raised("text", 0.5, plain, plane), each.mask)


def _of_motion(folder: Path) -> Iterator[Case]:
    """How much pixels changed, at .5, and motion against the camera's, at .3."""
    for name, thing in names_in(folder).items():
        clip = read_clip(folder, name, thing)
        for i, frame in enumerate(stream(iter(clip.frames), thing)):
            texture, own = frame.texture, own_motion(frame.texture)
            mask = resize_map(clip.masks[i].astype(np.float32), texture.grid.shape) > 0.5
            if i % EVERY or own is None or not mask.any():
                continue
            for kind, text in (("the moving ...", thing), ("what is moving?", "what is moving?")):
                plain = score(texture, text, cues=False).map
                for way, weight, plane in (("motion", 0.5, texture.channel("motion")), ("own_motion", 0.3, own)):
                    yield Case(kind, name, plain, way, _raised(way, weight, plain, plane), mask)


def _raised(channel: str, weight: float, plain: Floats, plane: Floats) -> Floats:
    return np.asarray(follow(plain, Cue(channel, "raise", weight), plane), np.float32)
