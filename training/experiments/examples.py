"""Photographs with questions and masks, their textures made once: experiments learn from them and are judged by them.

    python -m training.experiments.examples --data DATA --cache CACHE  makes every texture; goes on where it was killed

    photographs = learning(DATA, CACHE)        1,811 photographs of the training folder, part of them held out
    both = held_back(DATA, CACHE)              {"coco128": 126 photographs, "open": 113}: judge by these, never tune

What is notable
* Learning: what was drawn by eye (labels/), pixel labels of people, streets, clothing, cars and buildings. One in ten
  photographs is held out (`Example.held_out`, by a digest of its name, as when nano's head was trained): choose by
  those. The head saw the rest, so its maps are better there than on anything new.
* Held back: the names of the things in dev/coco128 ("where is the dog?", with boxes), and everything present that is
  asked in dev/open (parts, things, attributes, questions, stuff, as a person types it). No training sees them.
* A texture is a file of CACHE with every channel that a still can have; `Example.texture` reads it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

from benchmarks.questions import read_questions
from foveate.cli.evaluate.agreement import Agreement, Estimate, agreement, mean_estimate
from foveate.cli.evaluate.coco import RASTER, read_folder
from foveate.cli.evaluate.relevance import question
from foveate.core.grid import resize_map
from foveate.core.threads import map_in_order
from foveate.pipeline import encode
from foveate.texture.texture import Texture
from training.nano.labels import drawn, is_held_out

LABELS = Path(__file__).parents[1] / "nano" / "labels"
DENSE = {"clothes": 3, "cars": 2, "artdeco": 1, "facades": 5, "faces": 4}  # one photograph in so many of each folder
STREETS = {  # of camvid, by the numbers of its masks
    0: "sky", 1: "building", 2: "pole", 3: "road", 4: "pavement", 5: "tree", 6: "sign", 7: "fence", 8: "car",
    9: "person", 10: "cyclist",
}  # fmt: skip
LEAST = 2  # samples of 8 x 8 pixels that a mask must have
KINDS_LEFT_OUT = ("text",)  # writing is read, not learned
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
        """Made if its file is not there. Kept with this object: let go of it where there are many."""
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


class _Archives:
    """Members of the training folder's archives, read again for each photograph (threads share nothing)."""

    def __init__(self, data: Path) -> None:
        self.train = data / "train"

    def image(self, archive: str, member: str, mode: str = "RGB") -> NDArray[np.uint8]:
        with tarfile.open(self.train / f"{archive}.tar") as tar:
            content = tar.extractfile(member)
            assert content is not None
            picture = Image.open(io.BytesIO(content.read()))
            return np.array(picture.convert(mode) if mode != "ids" else picture)


def needed(folder: Path, *names: str, hint: str = "--data is described in training/README.md") -> None:
    """Ends the command with a line where a file or folder is missing."""
    if missing := [name for name in names if not (folder / name).exists()]:
        raise SystemExit(f"{folder} has no {', '.join(missing)}: {hint}")


def learning(data: Path, cache: Path) -> list[Example]:
    """The training photographs, in the order of their names; masks are read at once, textures when they are wanted."""
    needed(
        data, *(f"train/{name}" for name in ("photos.tar", "photos.json", "photos2.json", "dense.tar", "dense.json"))
    )
    archives = _Archives(data)
    found: dict[str, Example] = {}
    for example in (*_by_eye(data, cache, archives), *_masked(data, cache, archives), *_dense(data, cache, archives)):
        before = found.get(example.name)  # on two sheets, say
        found[example.name] = replace(example, asked=before.asked + example.asked) if before else example
    return [found[name] for name in sorted(found) if found[name].asked]


def _by_eye(data: Path, cache: Path, archives: _Archives) -> Iterator[Example]:
    sizes = {
        f"{archive}:{name}": (entry["height"], entry["width"])
        for archive in ("photos", "photos2")
        for name, entry in json.loads((archives.train / f"{archive}.json").read_text()).items()
    }
    for sheet in sorted(LABELS.glob("*.json")):
        for name, entry in json.loads(sheet.read_text())["photographs"].items():
            archive, member = name.split(":")
            if archive not in ("photos", "photos2"):
                continue
            size, asked = sizes[name], []
            for label, shapes in entry["labels"].items():
                masks = [drawn(shape, label, size, max(size) / 1000) for shape in shapes]
                there = [mask for mask in masks if mask.any()]
                if label not in entry["unsure"] and there:
                    boxes = np.concatenate([_box_of(mask) for mask in there])
                    asked.append(_asked(f"the {label}", sheet.stem, np.max(there, 0), boxes))
            pixels = _reader(archives, archive, member)
            yield _example(name, cache, [one for one in asked if one], pixels)


def _masked(data: Path, cache: Path, archives: _Archives) -> Iterator[Example]:
    """People, and one street in four (neighbours are frames of one drive)."""
    table = json.loads((archives.train / "photos.json").read_text())
    streets = [name for name in table if name.startswith("camvid/")][::4]
    people = [name for name in table if name.startswith("people/")][::2]
    with tarfile.open(archives.train / "photos_masks.tar") as masks:
        for name in (*people, *streets):
            content = masks.extractfile(table[name]["mask"])
            assert content is not None
            ids = np.array(Image.open(io.BytesIO(content.read())))
            classes = {255: "person"} if name.startswith("people/") else STREETS
            asked = [_asked(f"the {label}", name.split("/")[0], ids == i) for i, label in classes.items()]
            yield _example(f"photos:{name}", cache, [one for one in asked if one], _reader(archives, "photos", name))


def _dense(data: Path, cache: Path, archives: _Archives) -> Iterator[Example]:
    table = json.loads((archives.train / "dense.json").read_text())
    with tarfile.open(archives.train / "dense.tar") as tar:
        for folder, every in DENSE.items():
            names = [name for name, entry in table["files"].items() if entry["folder"] == folder][::every]
            classes = {int(i): label for i, label in table["classes"][folder].items() if label}
            for name in names:
                content = tar.extractfile(table["files"][name]["mask"])
                assert content is not None
                ids = np.array(Image.open(io.BytesIO(content.read())))
                asked = [_asked(f"the {classes[i]}", folder, ids == i) for i in np.unique(ids) if i in classes]
                pixels = _reader(archives, "dense", name)
                yield _example(f"dense:{name}", cache, [one for one in asked if one], pixels)


def _reader(archives: _Archives, archive: str, member: str) -> Callable[[], NDArray[np.uint8]]:
    return lambda: archives.image(archive, member)


def held_back(data: Path, cache: Path) -> dict[str, list[Example]]:
    """The two sets that decide: photographs with questions about what is there."""
    needed(data, "dev/coco128", "dev/open")
    coco, asked_open = [], []
    for item in read_folder(data / "dev" / "coco128").labelled():
        asked = [Asked(question(name), "thing", mask, item.boxes[name]) for name, mask in item.masks.items()]
        coco.append(_example(f"coco128:{item.name}", cache, asked, lambda rgb=item.rgb: rgb))  # type: ignore[misc]
    for _, photograph, rgb in read_questions(data / "dev" / "open").read():
        asked = [
            Asked(q.text, q.kind, q.mask, RASTER * _box_of(q.mask))
            for q in photograph.questions
            if q.mask is not None and q.kind not in KINDS_LEFT_OUT
        ]
        if asked:
            name = f"{photograph.folder.name}:{photograph.file}"  # a photograph of coco128 has one texture
            asked_open.append(_example(name, cache, asked, lambda rgb=rgb: rgb))  # type: ignore[misc]
    return {"coco128": coco, "open": asked_open}


# --- judging ----------------------------------------------------------------------------------------------------------

Maps = Callable[[Example], Sequence[dict[str, Map]]]  # of each question of a photograph: way -> map [h, w] on its cells
MEASURES = ("pointing", "precision", "coverage_10")


def judge(examples: Sequence[Example], maps: Maps) -> dict[str, NDArray[np.float64]]:
    """Every way to make a map, measured on every question: way -> [questions, 3] by MEASURES; "photograph" -> [n]."""
    found: dict[str, list[Any]] = {"photograph": []}
    for number, example in enumerate(tqdm(examples, desc="judging", mininterval=5)):
        for asked, by_way in zip(example.asked, maps(example), strict=True):
            found["photograph"].append(number)
            for way, plane in by_way.items():
                one: Agreement = agreement(resize_map(plane, asked.mask.shape), asked.mask)
                found.setdefault(way, []).append([getattr(one, measure) for measure in MEASURES])
    return {way: np.array(values) for way, values in found.items()}


def compared(judged: dict[str, NDArray[np.float64]], way: str, other: str) -> dict[str, Estimate]:
    """By how much a way is better than another, by measure, with 95 % intervals over photographs."""
    apart, photographs = judged[way] - judged[other], judged["photograph"].astype(int).tolist()
    return {measure: mean_estimate(apart[:, i], photographs) for i, measure in enumerate(MEASURES)}


def means(judged: dict[str, NDArray[np.float64]], way: str) -> dict[str, Estimate]:
    """The means of a way, by measure, with 95 % intervals over photographs."""
    photographs = judged["photograph"].astype(int).tolist()
    return {measure: mean_estimate(judged[way][:, i], photographs) for i, measure in enumerate(MEASURES)}


def table(judged: dict[str, NDArray[np.float64]], baseline: str) -> str:
    """A table in Markdown: a row a way; means, and the differences to the baseline with their intervals."""
    lines = ["| way | " + " | ".join(MEASURES) + " | by precision | by coverage |", "|---" * 6 + "|"]
    for way in judged:
        if way == "photograph":
            continue
        cells = [f"{one.mean:.3f}" for one in means(judged, way).values()]
        apart = compared(judged, way, baseline)
        shown = [apart["precision"], apart["coverage_10"]]
        cells += [""] * 2 if way == baseline else [f"{d.mean:+.3f} ({d.low:+.3f} to {d.high:+.3f})" for d in shown]
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Make the textures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.cache.mkdir(parents=True, exist_ok=True)
    both = held_back(args.data, args.cache)
    every = [*both["coco128"], *both["open"], *learning(args.data, args.cache)]

    def make(example: Example) -> None:
        if not example.file.exists():
            encode(example.pixels(), channels="all").save(example.file)

    for _ in tqdm(map_in_order(make, every, args.threads), total=len(every), mininterval=5):
        pass
    counts = {name: (len(some), sum(len(e.asked) for e in some)) for name, some in both.items()}
    some = every[sum(n for n, _ in counts.values()) :]
    counts["learning"] = len(some), sum(len(e.asked) for e in some)
    counts["held out of it"] = sum(e.held_out for e in some), sum(len(e.asked) for e in some if e.held_out)
    print(json.dumps({name: {"photographs": n, "questions": q} for name, (n, q) in counts.items()}))


if __name__ == "__main__":
    main()
