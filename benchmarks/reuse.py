"""First question and reuse: an image encoded once, against 273 crops of it. The documents' tables, ours beside.

    python -m benchmarks reuse --data DATA/dev/coco128
    python -m benchmarks reuse --encoders nano --tables questions,patches

The documents' rival encodes the crops again for each question; the fair one keeps their vectors; the fairest keeps
the dense features. A sample of crops is timed and multiplied, as the titles note; "linear" is the time of a sample
over that of a quarter of it, times four. CLIP has real sizes and random weights. Every question goes through the text
side anew.
"""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image as Pillow

from benchmarks.common import (
    KEPT,
    PHOTO,
    Image,
    Repeats,
    crop_square,
    each_of,
    make_row,
    new_questions,
    parse_numbers,
    ratio_row,
    show_part,
    time_each,
)
from foveate.channels.build import SEGMENTS, VISUAL, build_planes
from foveate.cli.evaluate.agreement import agreement
from foveate.cli.evaluate.coco import Folder, read_folder
from foveate.cli.evaluate.relevance import Pair, map_row, question
from foveate.core.checks import check_choice, check_int
from foveate.core.errors import OptionError
from foveate.core.grid import Floats, Grid, resize_map
from foveate.core.image import load_image
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import LEAST_SIDE, DenseFeatures, Encoder
from foveate.language.negatives import query_metric_of
from foveate.language.query import prepare
from foveate.pipeline import allocate, encode, score
from foveate.texture.basis import compress
from foveate.texture.texture import Texture

Image8 = NDArray[np.uint8]
TABLES = ("questions", "patches", "resolutions", "components", "bytes", "accuracy")
SIDE, CROP = 1024, 224  # pixels of the image and along a crop, as the documents have them
QUESTIONS, PATCHES, SIDES = (1, 2, 5, 10, 20, 50), (64, 144, 273, 512, 1024), (512, 1024, 2048, 4096)
LINEAR_PART = 4  # a sample's part that shows whether time is linear
PATIENCE = 60.0  # seconds after which no encoder is measured once more
Pairs = Sequence[tuple[float, float]]
SIZED = ("nano", "clip-b16")  # encoders that go through images of all sizes; L/14 would take minutes
AROUND = 16  # crops along a side for accuracy: 256, near enough to 273
DENSE, AGAIN, KEEP = "texture: encode once, score", "the encoder, for each question", "its features, kept"


class Kind(NamedTuple):
    """How an encoder is measured: long side of the dense pass, sides that crops are brought to, crops in a sample."""

    dense: int
    crops: tuple[int, ...]
    sample: int
    batch: int


# A crop at 64 pixels is nano's cheapest that still has 8 x 8 cells; 224 is what the documents have, and CLIP's own.
ENCODERS = {
    "nano": Kind(512, (64, 224), 32, 16),
    "clip-b16": Kind(512, (224,), 8, 8),
    "clip-l14": Kind(448, (224,), 4, 4),
}


def measure(
    image: Image = PHOTO,
    repeats: Repeats = 5,
    encoders: Annotated[str, typer.Option(help=f"With commas between: {', '.join(ENCODERS)}.")] = (
        "nano,clip-b16,clip-l14"
    ),
    tables: Annotated[str, typer.Option(help=f"With commas between, of {', '.join(TABLES)}.")] = ",".join(TABLES),
    data: Annotated[Path | None, typer.Option(help="COCO-style folder, for accuracy [default: left out].")] = None,
    limit: Annotated[int, typer.Option(help="Photographs of --data.")] = 8,
    layers: Annotated[int | None, typer.Option(help="Layers of CLIP's networks [default: all].")] = None,
    sides: Annotated[str, typer.Option(help="Sides of images in pixels.")] = ",".join(map(str, SIDES)),
) -> dict[str, Any]:
    """Encode once and ask, against crops: the first question, later ones, bytes, accuracy."""
    names, wanted = (tuple(part.strip() for part in text.split(",")) for text in (encoders, tables))
    pixels = parse_numbers("--sides", sides)
    check_int("--repeats", repeats, 1, 1000)
    for name in names:
        check_choice("--encoders", name, tuple(ENCODERS))
    for name in wanted:
        check_choice("--tables", name, TABLES)
    if layers is not None:
        check_int("--layers", layers, 1, 1000)
    for side in pixels:
        check_int("--sides", side, LEAST_SIDE, 16384)
    if wanted == ("accuracy",) and data is None:
        raise OptionError(
            "--tables accuracy without --data", expected="photographs with masks", fix="pass --data FOLDER"
        )
    folder = read_folder(data) if data is not None and "accuracy" in wanted else None
    photograph = crop_square(image, SIDE)
    networks = {name: make_encoder(name, layers) for name in names}
    timed = names if set(wanted) - {"bytes", "accuracy"} else ()
    costs = {name: measure_costs(name, networks[name], photograph, repeats) for name in timed}
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "questions": lambda: amortise(costs),
        "patches": lambda: compare_patches(costs),
        "resolutions": lambda: compare_sides(image, costs, networks, pixels, repeats),
        "components": lambda: split_costs(photograph, costs, networks, repeats),
        "bytes": lambda: count_bytes(photograph, networks),
        **({"accuracy": lambda: compare_accuracy(folder, limit)} if folder is not None else {}),
    }
    done = [show_part({"name": name, **table()}) for name, table in made.items() if name in wanted]
    known = {name: cost._replace(each=())._asdict() for name, cost in costs.items()}
    return {"title": "reuse", "image": str(image), "seconds": known, "tables": done}


def make_encoder(name: str, layers: int | None = None) -> Encoder:
    """nano, or a CLIP of real size. Raises MissingExtraError."""
    if name == "nano":
        return load_encoder("nano")
    from foveate.vlm.loader import libraries

    libraries()
    from benchmarks.random_clip import random_clip

    return random_clip(name, layers)


# --- what things cost ---------------------------------------------------------------------------------------------


class Costs(NamedTuple):
    """Seconds of one encoder and one image.

    Attributes:
        cut: to copy one crop out of the image. alone, batched: of each crop in the encoder, by side in pixels; batched
            is empty for an encoder that takes one at a time.
        dense: the encoder on the image. first: encode, score and allocate, of a question never asked.
        ask, ask_dense, ask_crops: of a question never asked: with a texture; with dense features; with KEPT vectors.
        linear: time of a sample over that of its quarter, times four: 1 where time is linear in the number of crops.
        sample: crops that were timed. each: the same of every repeat by itself, in turn; seconds above are its medians.
    """

    cut: float
    alone: Mapping[int, float]
    batched: Mapping[int, float]
    dense: float
    first: float
    ask: float
    ask_dense: float
    ask_crops: float
    linear: float
    sample: int
    each: tuple[Costs, ...] = ()

    def crops(self) -> dict[tuple[int, str], float]:
        """(side in pixels, how) -> seconds of a crop, cut and encoded."""
        ways = (("one by one", self.alone), ("in batches", self.batched))
        return {(pixels, how): self.cut + each[pixels] for pixels in self.alone for how, each in ways if pixels in each}

    def crop(self, pixels: int) -> float:
        """A crop by the quicker way."""
        return min(crop for (side, _), crop in self.crops().items() if side == pixels)


def measure_costs(name: str, encoder: Encoder, photograph: Image8, repeats: int) -> Costs:
    """Medians of calls in turn; slow encoders get fewer than `repeats`."""
    kind, fresh = ENCODERS[name], new_questions(0, 3)
    crops = cut_crops(photograph, kind.sample)
    texture = encode(photograph, encoder=encoder, long_side=kind.dense)
    features = encoder.encode_image(photograph, long_side=kind.dense).full(encoder.width)
    vectors = np.ascontiguousarray(features.reshape(-1, features.shape[-1])[:KEPT])
    many = getattr(encoder, "encode_images", None)

    def one_by_one(some: list[Image8], pixels: int) -> None:
        for crop in some:
            encoder.encode_image(crop, long_side=pixels)

    def in_batches(pixels: int) -> None:
        assert many is not None
        for start in range(0, len(crops), kind.batch):
            many(crops[start : start + kind.batch], long_side=pixels)

    def first() -> Any:
        made = encode(photograph, encoder=encoder, long_side=kind.dense)
        return allocate(score(made, next(fresh), encoder=encoder), KEPT)

    def product(rows: Floats) -> Callable[[], Any]:
        return lambda: rows @ prepare(encoder, next(fresh)).vectors.T

    parts: dict[Any, Callable[[], Any]] = {
        "cut": lambda: cut_crops(photograph, KEPT),
        "dense": lambda: encoder.encode_image(photograph, long_side=kind.dense),
        "first": first,
        "ask": lambda: allocate(score(texture, next(fresh), encoder=encoder), KEPT),
        "ask_dense": product(features),
        "ask_crops": product(vectors),
        "quarter": partial(one_by_one, crops[: kind.sample // LINEAR_PART], kind.crops[0]),
        **{("alone", pixels): partial(one_by_one, crops, pixels) for pixels in kind.crops},
        **({("batched", pixels): partial(in_batches, pixels) for pixels in kind.crops} if many else {}),
    }
    times = time_each(parts, repeats, patience=PATIENCE)
    linear = float(np.median(times["alone", kind.crops[0]] / times["quarter"])) / LINEAR_PART

    def costs_of(seconds: dict[Any, float], each: tuple[Costs, ...] = ()) -> Costs:
        alone, batched = (
            {pixels: seconds[way, pixels] / kind.sample for pixels in kind.crops if (way, pixels) in seconds}
            for way in ("alone", "batched")
        )
        return Costs(
            seconds["cut"] / KEPT, alone, batched, seconds["dense"], seconds["first"], seconds["ask"],
            seconds["ask_dense"], seconds["ask_crops"], linear, kind.sample, each,
        )  # fmt: skip

    count = len(times["first"])
    each = tuple(costs_of({part: float(some[i]) for part, some in times.items()}) for i in range(count))
    return costs_of({part: float(np.median(some)) for part, some in times.items()}, each)


def cut_crops(photograph: Image8, count: int, side: int = CROP) -> list[Image8]:
    """Squares evenly over the image, row by row, copied; they overlap."""
    across = math.ceil(math.sqrt(count))
    room = photograph.shape[0] - side, photograph.shape[1] - side
    corners = (
        (room[0] * (i // across) // max(1, across - 1), room[1] * (i % across) // max(1, across - 1))
        for i in range(count)
    )
    return [np.ascontiguousarray(photograph[y : y + side, x : x + side]) for y, x in corners]


def ways_of(costs: Costs, patches: int = KEPT) -> dict[str, tuple[float, float]]:
    """name -> seconds (once, for each question)."""
    ways = {DENSE: (max(0.0, costs.first - costs.ask), costs.ask)}
    for (pixels, how), crop in costs.crops().items():
        ways[f"{patches} crops at {pixels}, {how}, again"] = 0.0, patches * crop + costs.ask_crops
    for pixels in costs.alone:
        ways[f"{patches} crops at {pixels}, kept"] = patches * costs.crop(pixels), costs.ask_crops
    return ways | {AGAIN: (0.0, costs.dense + costs.ask_dense), KEEP: (costs.dense, costs.ask_dense)}


def first_ahead(ours: tuple[float, float], other: tuple[float, float]) -> int | None:
    """The first number of questions at which our once + n each is below the other's; None for never."""
    (once, each), (start, every) = ours, other
    if once + each < start + every:
        return 1
    return math.floor((once - start) / (every - each)) + 1 if every > each else None


def first_crops(once: float, crop: float) -> int:
    """The smallest number of crops that take longer than what is done once."""
    return max(1, math.floor(once / crop) + 1)


# --- the documents' tables ----------------------------------------------------------------------------------------


def amortise(costs: Mapping[str, Costs]) -> dict[str, Any]:
    """Seconds of N questions each way, beside the texture, and from which question on the texture is ahead."""
    rows = []
    for name, cost in costs.items():
        ways = ways_of(cost)
        repeats = [ways_of(one) for one in cost.each]
        for way, each in ways.items():
            pairs = [(sum(one[way]), sum(one[DENSE])) for one in repeats]
            rows.append(way_row(f"{name}, {way}", each, ways[DENSE], pairs))
    sampled = ", ".join(
        f"{cost.sample} of {KEPT} ({name}, {len(cost.each)} times, linear {cost.linear:.2f})"
        for name, cost in costs.items()
    )
    return {
        "title": f"N questions, {SIDE} x {SIDE} pixels; in brackets: times the texture; crops timed: {sampled}",
        "columns": ("way", *map(str, QUESTIONS), "texture ahead from question"),
        "rows": rows,
    }


def way_row(name: str, way: tuple[float, float], ours: tuple[float, float], pairs: Pairs = ()) -> dict[str, Any]:
    """Seconds of a way and their ratio to ours, by number of questions; the row's number is that of the first, and has
    an interval if there are enough pairs [n, 2] of its seconds and ours."""
    totals = [way[0] + n * way[1] for n in QUESTIONS]
    ratios = [total / (ours[0] + n * ours[1]) for n, total in zip(QUESTIONS, totals, strict=True)]
    ahead = first_ahead(ours, way)
    cells = [name, *(f"{format_time(t)} ({format_ratio(r)})" for t, r in zip(totals, ratios, strict=True))]
    cells.append("" if way == ours else "never" if ahead is None else str(ahead))
    row = first_row(f"{name}, first question", ratios[0], pairs)
    if "interval" in row and way != ours:
        cells[1] = f"{format_time(totals[0])} ({format_ratio(ratios[0])}, {format_between(row)})"
    return row | {"cells": cells, "seconds": totals, "ratios": ratios, "ahead": ahead}


def first_row(what: str, ratio: float, pairs: Pairs) -> dict[str, Any]:
    """The row of a ratio of medians, with samples and interval of its pairs."""
    row = make_row(what, ratio, format_ratio(ratio), unit="x")
    found = ratio_row(what, *np.transpose(pairs)) if len(pairs) else {}
    return row | {key: found[key] for key in ("interval", "samples") if key in found}


def format_between(row: Mapping[str, Any]) -> str:
    """Both ends of a row's interval."""
    return "-".join(f"{end:.2g}" if end < 100 else f"{end:,.0f}" for end in row["interval"])


def compare_patches(costs: Mapping[str, Costs]) -> dict[str, Any]:
    """The first question by number of crops: times what the texture takes."""
    rows = list[dict[str, Any]]()
    for name, cost in costs.items():
        for (pixels, how), crop in cost.crops().items():
            title = f"{name}, crops at {pixels}, {how}"
            ratios = [(k * crop + cost.ask_crops) / cost.first for k in PATCHES]
            ahead, ideal = first_crops(cost.first - cost.ask_crops, crop), count_work(name, pixels)
            cells = [title, *map(format_ratio, (*ratios, ideal)), str(ahead), format_time(crop)]
            pairs = [(KEPT * one.crops()[pixels, how] + one.ask_crops, one.first) for one in cost.each]
            row = first_row(f"{title}, {KEPT} crops", ratios[PATCHES.index(KEPT)], pairs)
            if "interval" in row:
                cells[1 + PATCHES.index(KEPT)] += f" ({format_between(row)})"
            rows.append(row | {"cells": cells, "ratios": ratios, "ahead": ahead, "by_work": ideal})
    return {
        "title": "crops, times what a texture and its first question take",
        "columns": ("way", *map(str, PATCHES), f"{KEPT}, by work", "dense ahead from crop", "a crop"),
        "rows": rows,
    }


def count_work(name: str, pixels: int) -> float:
    """KEPT crops over the dense pass by what the networks have to do: flops of CLIP, pixels of nano (it is made of
    convolutions, but for attention at a thirty-second of the side)."""
    dense = ENCODERS[name].dense
    if name == "nano":
        return KEPT * pixels**2 / dense**2
    from benchmarks.random_clip import count_flops, count_tokens

    return KEPT * count_flops(name, count_tokens(name, pixels)) / count_flops(name, count_tokens(name, dense))


def compare_sides(
    image: Path, costs: Mapping[str, Costs], networks: Mapping[str, Encoder], sides: Sequence[int], repeats: int
) -> dict[str, Any]:
    """The first question by size of the image, beside KEPT crops of CROP pixels, which cost the same in all of them."""
    rows = list[dict[str, Any]]()
    photographs = {side: crop_square(image, side) for side in sides}
    for name in (name for name in costs if name in SIZED):
        crops = KEPT * costs[name].crop(max(costs[name].alone)) + costs[name].ask_crops
        for long_side in (ENCODERS[name].dense, *(["native"] if name == "nano" else [])):
            times = _time_sides(networks[name], photographs, long_side, repeats)
            title = f"{name}, {'every pixel' if long_side == 'native' else f'working size {long_side}'}"
            cells = [title]
            for first, later in times.values():
                ratios = f"{format_ratio(crops / first)} / {format_ratio(crops / later)}"
                cells.append(f"{format_time(first)}: {ratios}")
            row = make_row(f"{title}, {sides[0]} pixels", crops / times[sides[0]][0], cells[1], unit="x")
            rows.append(row | {"cells": cells, "seconds": list(times.values())})
    return {
        "title": f"by size of the image: texture and first question, and how many times that {KEPT} crops of {CROP} "
        "pixels take / how many times a later question",
        "columns": ("way", *(f"{side} x {side}" for side in sides)),
        "rows": rows,
    }


def _time_sides(
    encoder: Encoder, photographs: Mapping[int, Image8], long_side: Any, repeats: int
) -> dict[int, tuple[float, float]]:
    """Side -> seconds (of a texture and its first question, of a later one)."""
    fresh, made = new_questions(1, 3), dict[int, Texture]()

    def ask(side: int) -> Any:
        return allocate(score(made[side], next(fresh), encoder=encoder), KEPT)

    def first(side: int) -> Any:
        made[side] = encode(photographs[side], encoder=encoder, long_side=long_side)
        return ask(side)

    parts: dict[Any, Callable[[], Any]] = {}
    for side in photographs:
        parts |= {("first", side): partial(first, side), ("later", side): partial(ask, side)}
    times = time_each(parts, repeats)
    return {side: tuple(float(np.median(times[part, side])) for part in ("first", "later")) for side in photographs}  # type: ignore[misc]


def split_costs(
    photograph: Image8, costs: Mapping[str, Costs], networks: Mapping[str, Encoder], repeats: int
) -> dict[str, Any]:
    """Where the time goes, by the documents' list of parts."""
    file = io.BytesIO()
    Pillow.fromarray(photograph).save(file, "JPEG", quality=90)
    content, columns, found = file.getvalue(), list[str](), list[dict[str, str]]()
    for name, cost in costs.items():
        columns += [f"{name}: {KEPT} crops", "texture"]
        both = _parts_of(content, photograph, name, cost, networks[name], repeats)
        found += [{part: format_time(value) for part, value in each.items()} for each in both]
    rows = [{"cells": [title, *claim, *(each.get(part, "-") for each in found)]} for part, title, *claim in COMPONENTS]
    title = f"components, {SIDE} x {SIDE} pixels, {KEPT} crops; sums of medians"
    return {"title": title, "columns": ("part", "documents: crops", "texture", *columns), "rows": rows}


def _parts_of(
    content: bytes, photograph: Image8, name: str, cost: Costs, encoder: Encoder, repeats: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of the parts of one encoder's first question: of crops, and of a texture."""
    kind, fresh = ENCODERS[name], new_questions(2, 3)
    dense = encoder.encode_image(photograph, long_side=kind.dense)
    texture = encode(photograph, encoder=encoder, long_side=kind.dense)
    z = texture.coordinates().reshape(*dense.grid.shape, -1)
    flat, metric = dense.features.reshape(dense.grid.count, -1), query_metric_of(encoder)
    columns, width = dense.columns, encoder.width
    vectors = dense.full(width).reshape(-1, width)[:KEPT]  # crops' have all numbers
    parts: dict[Any, Callable[[], Any]] = {
        "load": partial(load_image, content),
        "visual": partial(build_planes, (*VISUAL, "saliency"), photograph, z),
        "clusters": partial(build_planes, SEGMENTS, photograph, z),
        "compress": partial(compress, flat, texture.rank, metric, columns, width),
        "query": lambda: prepare(encoder, next(fresh)),
        "score": partial(score, texture, "a dog", encoder=encoder),
        "product": partial(np.matmul, vectors, prepare(encoder, "a dog").vectors.T),
        "choose": partial(allocate, score(texture, "a dog", encoder=encoder), KEPT),
    }
    t = {part: float(np.median(some)) for part, some in time_each(parts, repeats).items()}
    crops = {"load": t["load"], "cut": KEPT * cost.cut, "crops": KEPT * (cost.crop(max(cost.alone)) - cost.cut)}
    crops |= {"query": t["query"], "product": t.pop("product")}
    ours, later = {**t, "dense": cost.dense}, t["query"] + t["score"] + t["choose"]
    return (
        crops | {"first": sum(crops.values()), "later": sum(crops.values())},
        ours | {"first": sum(ours.values()), "later": later},
    )


COMPONENTS = (
    ("load", "image: load, decode", "0.5 ms", "0.5 ms"),
    ("visual", "visual channels, saliency", "-", "0.15 ms"),
    ("position", "position channels (computed when read)", "-", "0.001 ms"),
    ("clusters", "segments, objects", "-", "0.5 ms"),
    ("dense", "dense features", "-", "3.0 ms"),
    ("compress", "compression", "-", "0.5 ms"),
    ("upsample", "embeddings to pixels, upload (not done)", "-", "0.4 ms"),
    ("cut", "crops out of the image", "0.5 ms", "-"),
    ("crops", "crops through the encoder", "136.5 ms", "-"),
    ("query", "question to vectors", "0.5 ms", "0.5 ms"),
    ("score", "map: product, calibration, smoothing", "-", "0.27 ms"),
    ("product", "similarity", "2.73 ms", "0.027 ms"),
    ("choose", f"exactly {KEPT} cells", "-", "-"),
    ("first", "first question", "140.73 ms", "5.33 ms"),
    ("later", "a later one", "140.73 ms", "0.80 ms"),
)


class Moved(NamedTuple):
    """Bytes between the steps, each thing once (who reads it wrote it before); of what a network moves inside only its
    weights, which each pass reads."""

    image: int
    crops: int
    inputs: int
    weights: int
    vectors: int
    planes: int
    question: int

    @property
    def first(self) -> int:
        return sum(self)


def count_bytes(photograph: Image8, networks: Mapping[str, Encoder]) -> dict[str, Any]:
    """What is moved for the first question, and for each later one."""
    found: dict[str, tuple[Moved, int]] = {}
    for name, encoder in networks.items():
        kind, weights = ENCODERS[name], weight_bytes(encoder)
        texture = encode(photograph, encoder=encoder, long_side=kind.dense)
        dense = encoder.encode_image(photograph, long_side=kind.dense).full(encoder.width)
        pixels, each = max(kind.crops), 1 if name == "nano" else 4  # nano takes bytes, CLIP float32
        for batch in (1, kind.batch) if hasattr(encoder, "encode_images") else (1,):
            crops = move_crops(photograph.nbytes, KEPT, pixels, batch, weights, encoder.width, each)
            found[f"{name}, {KEPT} crops, {'one by one' if batch == 1 else f'{batch} at once'}"] = crops, crops.first
        h, w = texture.grid.shape
        patch = kind.dense // max(h, w)
        asked = texture.query_nbytes + 4 * h * w
        ours = Moved(
            photograph.nbytes, 0, each * 3 * h * w * patch * patch, weights, dense.nbytes, texture.nbytes, asked
        )
        found[f"{name}, texture"] = ours, asked
    claims = [
        ("documents, crops", "12", "-", "164", "-", "0.84", "-", "-", "177", "177"),
        ("documents, texture", "12", "-", "-", "-", "12.8", "224", "0.017", "249", "0.017"),
    ]
    rows: list[dict[str, Any]] = [{"cells": list(claim)} for claim in claims]
    for title, (moved, later) in found.items():
        parts = (part / 1e6 for part in (*moved, moved.first, later))
        cells = [title, *(f"{part:{'.3g' if part < 100 else ',.0f'}}" if part else "-" for part in parts)]
        row = make_row(f"{title}: bytes of a later question", later, "", unit="bytes")
        rows.append(row | {"cells": cells, "first": moved.first, "later": later, **moved._asdict()})
    columns = (
        "megabytes", "image", "crops", "network's input", "weights", "vectors", "planes", "question", "first question",
        "a later one",
    )  # fmt: skip
    return {
        "title": f"megabytes between the steps, each thing once, {SIDE} x {SIDE} pixels",
        "columns": columns,
        "rows": rows,
    }


def move_crops(image: int, count: int, pixels: int, batch: int, weights: int, width: int, each: int) -> Moved:
    """Of crops: cut out as bytes, given to the network, and weights once for every batch."""
    return Moved(
        image, count * 3 * CROP * CROP, count * 3 * pixels * pixels * each, weights * math.ceil(count / batch),
        count * width * 4, 0, 0,
    )  # fmt: skip


def weight_bytes(encoder: Any) -> int:
    """Of an encoder's image network."""
    if hasattr(encoder, "folder"):
        return int((encoder.folder / encoder.files[0]).stat().st_size)
    return sum(parameter.nbytes for parameter in encoder._model.vision_model.parameters())


# --- accuracy -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CropsAsEncoder:
    """An encoder whose cells are crops: each the mean of what another encoder sees in a window around it.

    Attributes:
        inner: sees the crops, and reads texts. across: windows along each side.
        share: side of a window by the image's long side (the documents: 224 of 1024). pixels: a crop as it is encoded.
    """

    inner: Encoder
    across: int = AROUND
    share: float = CROP / SIDE
    pixels: int = CROP

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def name(self) -> str:
        return f"{self.inner.name}-crops"

    def encode_image(self, rgb: Image8, *, long_side: int | None = None) -> DenseFeatures:
        """Windows around the cells' centres, moved inside the image where they would leave it."""
        grid = Grid(self.across, self.across, *rgb.shape[:2])
        features = [
            self.inner.encode_image(window, long_side=self.pixels).full(self.inner.width).mean((0, 1))
            for window in windows_of(rgb, grid, round(self.share * max(rgb.shape[:2])))
        ]
        return DenseFeatures(np.stack(features).reshape(*grid.shape, -1), grid)


def windows_of(rgb: Image8, grid: Grid, side: int) -> Iterator[Image8]:
    """A square (or what the image has of it) around each cell, inside the image, row by row."""
    tall, wide = (min(side, size) for size in rgb.shape[:2])
    for y, x in itertools.product(range(grid.h), range(grid.w)):
        top = round(min(max((y + 0.5) * rgb.shape[0] / grid.h - tall / 2, 0), rgb.shape[0] - tall))
        left = round(min(max((x + 0.5) * rgb.shape[1] / grid.w - wide / 2, 0), rgb.shape[1] - wide))
        yield np.ascontiguousarray(rgb[top : top + tall, left : left + wide])


def compare_accuracy(folder: Folder, limit: int) -> dict[str, Any]:
    """Maps of names against masks, as `foveate evaluate relevance` judges them: crops, and the dense pass."""
    nano, columns = load_encoder("nano"), ("pointing", "precision", "auroc", "coverage 5 %", "10 %", "25 %")
    looks: dict[str, tuple[Any, int]] = {
        "dense, 64 cells along": (nano, 0),
        f"dense, its map by {AROUND} x {AROUND}": (nano, AROUND),
        f"{AROUND**2} crops of {CROP / SIDE:.0%} of the side, at 224": (CropsAsEncoder(nano), 0),
        f"{AROUND**2} crops of {CROP / SIDE:.0%} of the side, at 64": (CropsAsEncoder(nano, pixels=64), 0),
        f"{AROUND**2} crops of {CROP / SIDE / 2:.0%} of the side, at 224": (
            CropsAsEncoder(nano, share=CROP / SIDE / 2),
            0,
        ),
    }
    pairs: list[Pair] = []
    for number, item in each_of(folder, limit):
        asked, shape = [question(thing) for thing in item.masks], next(iter(item.masks.values())).shape
        maps: dict[str, list[Any]] = {}
        for label, (encoder, coarse) in looks.items():
            found = score(encode(item.rgb, encoder=encoder), asked, encoder=encoder)
            maps[label] = [resize_map(one.map, (coarse, coarse)) if coarse else one.map for one in found]
        for thing, (name, mask) in enumerate(item.masks.items()):
            judged = {label: agreement(resize_map(some[thing], shape), mask) for label, some in maps.items()}
            pairs.append(Pair(item.name, number, name, float(mask.mean()), 0.0, judged))
    images = len({pair.number for pair in pairs})
    rows = []
    for label in looks:
        row = map_row(label, pairs, label)
        rows.append(row | make_row(label, row["pointing"]["mean"], row["cells"][1]))
    return {
        "title": f"nano, {images} photographs, {len(pairs)} things; means and 95 % intervals",
        "columns": ("map", *columns),
        "rows": rows,
        "data": str(folder.path),
    }


def format_ratio(ratio: float) -> str:
    """Two digits, or whole."""
    return f"{ratio:.2g} x" if ratio < 100 else f"{ratio:,.0f} x"


def format_time(seconds: float) -> str:
    """Three digits."""
    if seconds >= 1:
        return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
