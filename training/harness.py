"""What all experiments share: folders, photographs with questions and masks, resumed training, judging with intervals.

    args = start("scorer", __doc__, out="scorer-run")       DATA, CACHE and OUT, checked before anything is loaded
    photographs = learning(args.data, args.cache)           1,811 of the training folder, part of them held out
    both = held_back(args.data, args.cache)                 {"coco128": 126, "open": 113}: judge by these, never tune
    fit(loss, steps, file, optimiser=..., model=model)      goes on where it was killed, to the same numbers
    table(judge(both["open"], maps), MEASURES, baseline)    Markdown, with 95 % intervals over photographs

* Learning: what was drawn by eye (nano/labels), pixel labels of people, streets, clothing, cars and buildings. One in
  ten photographs is held out (`Example.held_out`), as when nano's head was trained: choose by those. The head saw the
  rest, so its maps are better there than on anything new.
* Held back: the names of the things in dev/coco128 ("where is the dog?", with boxes), and everything present that is
  asked in dev/open (parts, things, attributes, questions, stuff, as a person types it). No training sees them.
* A texture is a file of CACHE with every channel that a still can have; `Example.texture` reads it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import math
import os
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

from benchmarks.questions import read_questions
from foveate.cli.evaluate.agreement import Agreement, Estimate, agreement, auroc, mean_estimate, ratio_estimate
from foveate.cli.evaluate.coco import RASTER, read_folder
from foveate.cli.evaluate.relevance import question
from foveate.core.grid import Grid, resize_map
from foveate.pipeline import encode
from foveate.texture.texture import Texture
from training.nano.labels import drawn, is_held_out

__all__ = ["Agreement", "Estimate", "agreement", "auroc", "mean_estimate", "ratio_estimate"]

WANTED = (
    *(f"train/{name}" for name in ("photos.tar", "photos.json", "photos2.json", "photos_masks.tar", "dense.tar")),
    *("train/dense.json", "dev/coco128", "dev/open"),
)


def start(
    name: str,
    description: str | None,
    words: Sequence[str] | None = None,
    *,
    out: str | None = None,
    options: Mapping[str, Any] | None = None,
    package: str = "training.experiments",
) -> argparse.Namespace:
    """The arguments of `python -m training.experiments.NAME`: --data, --cache, --out, and numbers with a default.

    `out` names the folder in CACHE that stands for a missing --out. Folders are made. Ends with status 2 and a sentence
    where DATA lacks something, or a folder cannot be written.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {package}.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and dev/: training/README.md")
    parser.add_argument("--cache", type=Path, required=True, help="folder of textures and of what is learned")
    parser.add_argument("--out", type=Path, help="folder of the report, and of what is learned where that is kept")
    for option, default in (options or {}).items():
        parser.add_argument(f"--{option}", type=type(default), default=default, help="[default: %(default)s]")
    args = parser.parse_args(words)
    if not args.data.is_dir():
        parser.error(f"--data: '{args.data}' is no folder; training/README.md says what it is")
    if missing := [part for part in WANTED if not (args.data / part).exists()]:
        parser.error(f"--data: '{args.data}' has no {', '.join(missing)}; training/README.md says what is in it")
    if args.out is None and out is not None:
        args.out = args.cache / out
    for option, folder in (("--cache", args.cache), ("--out", args.out)):
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / ".writable").touch()
                (folder / ".writable").unlink()
        except OSError as cause:
            parser.error(f"{option}: '{folder}' is no folder that can be written ({cause.strerror}); pass another one")
    return args


def needed(folder: Path, *names: str, hint: str = "--data is described in training/README.md") -> None:
    """Ends the command with a line where a file or folder is missing."""
    if missing := [name for name in names if not (folder / name).exists()]:
        raise SystemExit(f"{folder} has no {', '.join(missing)}: {hint}")


def write(file: Path, fill: Callable[[Any], object]) -> None:
    """A file that is there is whole: written beside, then renamed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(file.name + ".part")
    with part.open("wb") as stream:
        fill(stream)
    os.replace(part, file)


def once(file: Path, make: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Arrays by name from an .npz file, made and written if it is not there."""
    if not file.exists():
        arrays: Any = make()
        write(file, lambda stream: np.savez(stream, allow_pickle=False, **arrays))
    with np.load(file) as content:
        return dict(content)


# --- training ---------------------------------------------------------------------------------------------------------


def falling(peak: float, steps: int, warm: int = 0) -> Callable[[int], float]:
    """The learning rate at each step: linear up, then half a cosine down to 0."""

    def rate(step: int) -> float:
        if step < warm:
            return peak * (step + 1) / warm
        return peak * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    return rate


def fit(
    loss: Callable[[int], Any],
    steps: int,
    file: Path,
    optimiser: Any,
    *,
    rate: Callable[[int], float],
    every: int = 100,
    clip: float | None = None,
    kept: Callable[[int], None] = lambda step: None,
    **parts: Any,
) -> None:
    """Steps of an optimiser; a step's loss depends on its number alone. `file` is written whole every `every` steps.

    parts: modules, whose states the file holds beside the optimiser's. A parameter group's "of" scales its rate. kept:
    called with the number of steps when the file was written.

    Raises FloatingPointError where a loss is no number; the state before it stays. ValueError: the file is of another
    model.
    """
    import torch

    done, began, parts = 0, time.monotonic(), {**parts, "optimiser": optimiser}
    if file.exists():
        before = torch.load(file, weights_only=True)
        try:
            for name, part in parts.items():
                part.load_state_dict(before[name])
        except (RuntimeError, KeyError) as cause:
            raise ValueError(f"{file} is of another model; delete it with all that was learned from it") from cause
        done = int(before["step"])
    for step in range(done, steps):
        for group in optimiser.param_groups:
            group["lr"] = rate(step) * group.get("of", 1.0)
        value = loss(step)
        if not torch.isfinite(value):
            raise FloatingPointError(f"{file.stem}: the loss of step {step} is {float(value.detach())}")
        optimiser.zero_grad(set_to_none=True)
        value.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], clip)
        optimiser.step()
        if (step + 1) % every == 0 or step + 1 == steps:
            state = {"step": step + 1, **{name: part.state_dict() for name, part in parts.items()}}
            write(file, partial(torch.save, state))
            minutes = (steps - step - 1) * (time.monotonic() - began) / (step + 1 - done) / 60
            shown = f"loss {float(value.detach()):.4f}, {minutes:.0f} min left"
            print(f"{file.stem}: step {step + 1} of {steps}, {shown}", flush=True)
            kept(step + 1)


# --- photographs ------------------------------------------------------------------------------------------------------

LABELS = Path(__file__).parent / "nano" / "labels"
DENSE = {"clothes": 3, "cars": 2, "artdeco": 1, "facades": 5, "faces": 4}  # one photograph in so many of each folder
STREETS = {  # of camvid, by the numbers of its masks
    0: "sky", 1: "building", 2: "pole", 3: "road", 4: "pavement", 5: "tree", 6: "sign", 7: "fence", 8: "car",
    9: "person", 10: "cyclist",
}  # fmt: skip
LEAST = 2  # samples of 8 x 8 pixels that a mask must have
Mask = NDArray[np.bool_]
Map = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Asked:
    """A question about a photograph, and where the answer is.

    Attributes:
        text: as a person types it. kind: "thing" of coco128, the kind of dev/open, the source of a training photograph.
        mask: bool [H / 8, W / 8], never empty.
        boxes: of single things, (y0, x0, y1, x1) in pixels, float64 [n, 4]; the mask's own box where none is known.
    """

    text: str
    kind: str
    mask: Mask
    boxes: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Example:
    """A photograph, its texture's file and its questions. `pixels()` reads the photograph: uint8 RGB [H, W, 3]."""

    name: str
    file: Path
    asked: tuple[Asked, ...]
    pixels: Callable[[], NDArray[np.uint8]]

    @property
    def held_out(self) -> bool:
        """Of the training photographs, those to choose by."""
        return is_held_out(self.name.split(":")[-1])

    @cached_property
    def texture(self) -> Texture:
        """Made if its file is not there. Kept with this object: drop it where there are many."""
        if not self.file.exists():
            encode(self.pixels(), channels="all").save(self.file)
        return Texture.load(self.file)


def _example(name: str, cache: Path, asked: Sequence[Asked], pixels: Callable[[], NDArray[np.uint8]]) -> Example:
    return Example(name, cache / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.safetensors", tuple(asked), pixels)


def _asked(text: str, kind: str, mask: NDArray[Any], boxes: Any = None) -> Asked | None:
    """From a mask of the photograph's size. None where hardly anything is left on the raster."""
    h, w = (max(1, round(n / RASTER)) for n in mask.shape)
    small = resize_map(mask.astype(np.float32), (h, w)) >= 0.5
    if small.sum() < LEAST:
        return None
    return Asked(text, kind, small, _box_of(mask) if boxes is None else np.asarray(boxes, np.float64))


def _box_of(mask: NDArray[Any]) -> NDArray[np.float64]:
    y, x = np.nonzero(mask)
    return np.array([[y.min(), x.min(), y.max() + 1, x.max() + 1]], np.float64)


class Archives:
    """Members of the training folder's archives; each archive is opened once."""

    def __init__(self, data: Path) -> None:
        self.train = data / "train"
        self._open: dict[str, tarfile.TarFile] = {}

    def __del__(self) -> None:
        for archive in self._open.values():
            archive.close()

    def image(self, archive: str, member: str, *, ids: bool = False) -> NDArray[np.uint8]:
        """uint8 RGB [h, w, 3]; `ids`: the numbers of a palette's mask [h, w]."""
        if archive not in self._open:
            self._open[archive] = tarfile.open(self.train / f"{archive}.tar")  # noqa: SIM115
        content = self._open[archive].extractfile(member)
        assert content is not None
        picture = Image.open(io.BytesIO(content.read()))
        return np.array(picture if ids else picture.convert("RGB"))

    def table(self, name: str) -> Any:
        """A JSON file beside them."""
        return json.loads((self.train / f"{name}.json").read_text())


def learning(data: Path, cache: Path) -> list[Example]:
    """The training photographs, in the order of their names; masks are read at once, textures when they are wanted."""
    needed(data, *(part for part in WANTED if part.startswith("train/") and "masks" not in part))
    archives = Archives(data)
    found: dict[str, Example] = {}
    for name, asked in (*_by_eye(archives), *_masked(archives), *_dense(archives)):
        pixels = partial(archives.image, *name.split(":"))
        before = found[name].asked if name in found else ()  # on two sheets, say
        found[name] = _example(name, cache, [*before, *(one for one in asked if one)], pixels)
    return [found[name] for name in sorted(found) if found[name].asked]


Sheets = Iterator[tuple[str, list[Asked | None]]]  # "archive:member" and what is asked of it


def _by_eye(archives: Archives) -> Sheets:
    sizes = {
        f"{archive}:{name}": (entry["height"], entry["width"])
        for archive in ("photos", "photos2")
        for name, entry in archives.table(archive).items()
    }
    for sheet in sorted(LABELS.glob("*.json")):
        for name, entry in json.loads(sheet.read_text())["photographs"].items():
            if name.split(":")[0] not in ("photos", "photos2"):
                continue
            size, asked = sizes[name], []
            for label, shapes in entry["labels"].items():
                masks = [drawn(shape, label, size, max(size) / 1000) for shape in shapes]
                there = [mask for mask in masks if mask.any()]
                if label not in entry["unsure"] and there:
                    boxes = np.concatenate([_box_of(mask) for mask in there])
                    asked.append(_asked(f"the {label}", sheet.stem, np.max(there, 0), boxes))
            yield name, asked


def _masked(archives: Archives) -> Sheets:
    """People, and one street in four (neighbours are frames of one drive)."""
    table = archives.table("photos")
    streets = [name for name in table if name.startswith("camvid/")][::4]
    people = [name for name in table if name.startswith("people/")][::2]
    for name in (*people, *streets):
        ids = archives.image("photos_masks", table[name]["mask"], ids=True)
        classes = {255: "person"} if name.startswith("people/") else STREETS
        asked = [_asked(f"the {label}", name.split("/")[0], ids == i) for i, label in classes.items()]
        yield f"photos:{name}", asked


def _dense(archives: Archives) -> Sheets:
    table = archives.table("dense")
    for folder, every in DENSE.items():
        names = [name for name, entry in table["files"].items() if entry["folder"] == folder][::every]
        classes = {int(i): label for i, label in table["classes"][folder].items() if label}
        for name in names:
            ids = archives.image("dense", table["files"][name]["mask"], ids=True)
            yield (
                f"dense:{name}",
                [_asked(f"the {classes[i]}", folder, ids == i) for i in np.unique(ids) if i in classes],
            )


def held_back(data: Path, cache: Path, kinds: Sequence[str] | None = None) -> dict[str, list[Example]]:
    """The two sets that decide: photographs with questions about what is there.

    kinds: of dev/open's questions; None: all but those about writing, which is read, not learned.
    """
    needed(data, "dev/coco128", "dev/open")
    coco, asked_open = [], []
    for item in read_folder(data / "dev" / "coco128").labelled():
        asked = [Asked(question(name), "thing", mask, item.boxes[name]) for name, mask in item.masks.items()]
        coco.append(_example(f"coco128:{item.name}", cache, asked, lambda rgb=item.rgb: rgb))  # type: ignore[misc]
    for _, photograph, rgb in read_questions(data / "dev" / "open").read():
        asked = [
            Asked(q.text, q.kind, q.mask, RASTER * _box_of(q.mask))
            for q in photograph.questions
            if q.mask is not None and (q.kind != "text" if kinds is None else q.kind in kinds)
        ]
        if asked:
            name = f"{photograph.folder.name}:{photograph.file}"  # a photograph of coco128 has one texture
            asked_open.append(_example(name, cache, asked, lambda rgb=rgb: rgb))  # type: ignore[misc]
    return {"coco128": coco, "open": asked_open}


# --- judging ----------------------------------------------------------------------------------------------------------

Judged = dict[str, NDArray[np.float64]]  # way -> [questions, measures]; "photograph" -> [questions], whose they are
Maps = Callable[[Example], Sequence[Mapping[str, Map]]]  # of each question of a photograph: way -> map [h, w]
MEASURES = ("pointing", "precision", "coverage_10")
Measured = Callable[[Map, Asked, Grid], Sequence[float]]


def measured(plane: Map, asked: Asked, grid: Grid) -> tuple[float, ...]:
    """Of a map [h, w] on any cells of a photograph whose texture has `grid`: MEASURES."""
    one = agreement(resize_map(plane, asked.mask.shape), asked.mask)
    return one.pointing, one.precision, one.coverage_10


def judge(examples: Sequence[Example], maps: Maps, measure: Measured = measured) -> Judged:
    """Every way to make a map, measured on every question. Textures are not kept."""
    found: dict[str, list[Any]] = {"photograph": []}
    for number, example in enumerate(tqdm(examples, desc="judging", mininterval=5)):
        for asked, by_way in zip(example.asked, maps(example), strict=True):
            found["photograph"].append(number)
            for way, plane in by_way.items():
                found.setdefault(way, []).append(measure(plane, asked, example.texture.grid))
        example.__dict__.pop("texture", None)
    return {way: np.array(values, np.float64) for way, values in found.items()}


def ways_of(judged: Judged) -> dict[str, NDArray[np.float64]]:
    """Without the numbers of the photographs."""
    return {way: values for way, values in judged.items() if way != "photograph"}


def estimates(judged: Judged, way: str, other: str | None = None) -> list[Estimate]:
    """Of each measure the mean of a way, or by how much it is better than another; 95 % intervals over photographs."""
    values = judged[way] if other is None else judged[way] - judged[other]
    photographs = judged["photograph"].astype(int).tolist()
    return [mean_estimate(column, photographs) for column in values.T]


def table(
    judged: Judged,
    measures: Sequence[str],
    baseline: str,
    shown: Sequence[str] = ("precision",),
    extra: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Markdown, a row a way: `extra` (column -> way -> text), means, differences to the baseline of `shown`."""
    extra = extra or {}
    heads = ["way", *extra, *measures, *(f"by {name}" for name in shown)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for way, values in ways_of(judged).items():
        cells = [way, *(column.get(way, "") for column in extra.values())]
        cells += [f"{mean:.3f}" for mean in np.nanmean(values, 0)]
        apart = estimates(judged, way, baseline)
        cells += ["" if way == baseline else interval(apart[measures.index(name)]) for name in shown]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def interval(one: Estimate) -> str:
    """A difference and its interval."""
    return f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})"


def record(judged: Judged, measures: Sequence[str], baseline: str) -> dict[str, Any]:
    """For JSON: way -> measure -> mean, interval, and the difference to the baseline."""
    return {
        way: {
            name: {**mean.record(), "apart": apart.record()}
            for name, mean, apart in zip(
                measures, estimates(judged, way), estimates(judged, way, baseline), strict=True
            )
        }
        for way in ways_of(judged)
    }


def report(args: argparse.Namespace, name: str, found: Mapping[str, Any]) -> None:
    """The last line of a command: JSON. Also OUT/NAME.json."""
    if args.out is not None:
        (args.out / f"{name}.json").write_text(json.dumps(found))
    print(json.dumps(found))
