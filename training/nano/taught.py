"""How well are words taught? With names that no specialist was trained on, on photographs that looks.py held back.

    python -m training.nano.taught --data DATA            # with foveate installed; textures are kept in --cache

Then with one and the same thing in all its photographs: made-up logos, pasted into photographs.

For each name some photographs teach it, with one box each, and others are asked: average precision of the map's cells
against the label, how often it is detected where it is, and where it is not: in photographs of the same sheets and
folders, labelled as without it.
"""

from __future__ import annotations

import collections
import hashlib
import io
import json
import tarfile
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import foveate
from foveate import Texture
from training.nano.features import LABELS, LONG_SIDE, arguments, is_kept_back
from training.nano.labels import ADE, BODY, POINTS, cells, drawn

BOXES, TIMES, MOST, LEAST = (1, 5, 20), 2, 12, 9
DENSE = {"clothes": 120, "cars": 90, "facades": 60}
# Things that a specialist was trained on under another name, and the vague "held object" and "accessory".
KNOWN = frozenset(
    name.replace("_", " ")
    for name in """person man woman body head eye ear nose hair torso leg arm front_leg back_leg skin sea tv fridge sky
    bush plant clock house wing cabinet drawer lamp picture table_leg counter couch stove armchair flower book ball cup
    light chair_leg nightstand suit held_object accessory""".split()
)


class Labelled:
    """A photograph: its texture, the share of each cell by name, boxes by name, and names known to be absent."""

    def __init__(self, texture: Texture, masks: dict[str, np.ndarray], absent: set[str]) -> None:
        grid = texture.grid
        self.texture, self.absent = texture, absent - set(masks)
        self.planes = {name: cells(mask, grid.h, grid.w) / 255 for name, mask in masks.items() if mask.any()}
        self.boxes = {name: largest(mask, grid.height, grid.width) for name, mask in masks.items() if mask.any()}


def largest(mask: np.ndarray, height: int, width: int) -> tuple[float, float, float, float]:
    """The box (y0, x0, y1, x1) of the largest piece of a mask, in pixels of an image of this size."""
    _, _, found, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
    x, y, w, h, _ = max(found[1:], key=lambda piece: piece[4])
    down, right = height / mask.shape[0], width / mask.shape[1]
    return y * down, x * right, (y + h) * down, (x + w) * right


def photographs(data: Path, cache: Path) -> list[Labelled]:
    """Held-back photographs with labels: drawn by eye, boxes, and some of each folder of pixel labels."""
    archives = {each: tarfile.open(data / f"train/{each}.tar") for each in ("dense", "boxes", "photos", "photos2")}  # noqa: SIM115

    def look(archive: str, name: str) -> Texture:
        path = cache / f"{archive}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.safetensors"
        if not path.exists():
            image = Image.open(io.BytesIO(archives[archive].extractfile(name).read())).convert("RGB")
            foveate.encode(image, channels="fast").save(path)
        return Texture.load(path)

    cache.mkdir(parents=True, exist_ok=True)
    out = []
    for file in sorted(LABELS.glob("*.json")):
        sheet = json.loads(file.read_text())
        for key, entry in sheet["photographs"].items():
            if is_kept_back(key.partition(":")[2]):
                texture = look(*key.split(":", 1))
                out.append(from_shapes(texture, entry["labels"], 1000, set(sheet["names"]) - set(entry["unsure"])))
    for name, boxes in json.loads((data / "train/boxes.json").read_text())["files"].items():
        if is_kept_back(name) and len(name) % 3 == 0:
            texture, shapes = look("boxes", name), collections.defaultdict(list)
            for each in boxes:
                shapes[each["name"]].append(each["box"])
            out.append(from_shapes(texture, shapes, max(texture.grid.height, texture.grid.width), set()))
    dense, seen = json.loads((data / "train/dense.json").read_text()), collections.Counter[str]()
    for name, entry in dense["files"].items():
        folder = entry["folder"]
        if is_kept_back(name) and seen[folder] < DENSE.get(folder, 0):
            seen[folder] += 1
            ids = np.array(Image.open(io.BytesIO(archives["dense"].extractfile(entry["mask"]).read())))
            classes = {label: ids == int(number) for number, label in dense["classes"][folder].items() if label}
            masks = {label: mask for label, mask in classes.items() if mask.any()}
            out.append(Labelled(look("dense", name), masks, set(classes)))
    return out


def from_shapes(texture: Texture, shapes: dict[str, list], units: float, known: set[str]) -> Labelled:
    """Boxes and polygons in units of 1 / `units` of the long side."""
    height, width = texture.grid.height, texture.grid.width
    ratio = min(1.0, LONG_SIDE / max(height, width))
    size, scale = (round(height * ratio), round(width * ratio)), max(height, width) * ratio / units
    masks = {name: np.max([drawn(one, name, size, scale) for one in some], 0) for name, some in shapes.items() if some}
    return Labelled(texture, masks, known)


def precision(scores: np.ndarray, there: np.ndarray) -> float:
    ordered = there.ravel()[np.argsort(-scores.ravel(), kind="stable")]
    return float((np.cumsum(ordered) / np.arange(1, len(ordered) + 1))[ordered].mean())


LOGOS, EACH, TOLD = 6, 25, 10  # logos, photographs of each, and those of them that may teach it
PLACES = ("corel", "houses2", "azure", "daynight")


def logo(number: int) -> np.ndarray:
    """RGBA uint8 [256, 256, 4]: two or three flat shapes and a word."""
    random, image = np.random.default_rng([9, number]), Image.new("RGBA", (256, 256))
    draw, colours = ImageDraw.Draw(image), [tuple(map(int, random.integers(0, 256, 3))) for _ in range(3)]
    if number % 3 == 0:
        draw.ellipse((8, 8, 248, 248), fill=colours[0])
        draw.polygon([(128, 40), (210, 200), (46, 200)], fill=colours[1])
    elif number % 3 == 1:
        draw.rounded_rectangle((8, 40, 248, 216), 40, fill=colours[0])
        draw.ellipse((40, 80, 130, 170), fill=colours[1])
        draw.rectangle((140, 80, 220, 170), fill=colours[2])
    else:
        draw.polygon([(128, 8), (248, 128), (128, 248), (8, 128)], fill=colours[0])
        draw.line((70, 128, 128, 186, 200, 80), fill=colours[1], width=28)
    name = ("ACME", "NOVA", "ORBI", "QUIX", "LUMO", "TREK")[number]
    draw.text((96, 180), name, fill=(255, 255, 255), font=ImageFont.load_default(28))
    return np.array(image)


def pasted(photo: np.ndarray, mark: np.ndarray, random: np.random.Generator) -> Labelled:
    """A photograph with a logo of 50 to 150 pixels, turned, squeezed, lighter or darker."""
    side, angle = int(random.integers(50, 150)), random.uniform(-12, 12)
    turned = cv2.warpAffine(mark, cv2.getRotationMatrix2D((128, 128), angle, 1), (256, 256))
    turned = cv2.resize(turned, (int(side * random.uniform(0.8, 1)), side), interpolation=cv2.INTER_AREA)
    tall, wide = turned.shape[:2]
    y, x = (int(random.integers(0, most - own)) for most, own in zip(photo.shape, (tall, wide), strict=False))
    out, mask = photo.astype(np.float32), np.zeros(photo.shape[:2], bool)
    share, part = turned[..., 3:] / 255, np.s_[y : y + tall, x : x + wide]
    out[part] = out[part] * (1 - share) + turned[..., :3] * share * random.uniform(0.6, 1.1)
    mask[part] = share[..., 0] > 0.5
    texture = foveate.encode(np.clip(out, 0, 255).astype(np.uint8), channels="fast")
    return Labelled(texture, {"logo": mask}, set())


def measure_logos(data: Path) -> None:
    listed = json.loads((data / "train/photos2.json").read_text())
    names = sorted(name for name in listed if is_kept_back(name) and name.split("/")[0] in PLACES)
    names = [names[i] for i in np.random.default_rng(3).permutation(len(names))[:EACH]]
    photos = []
    with tarfile.open(data / "train/photos2.tar") as archive:
        for name in names:
            image = Image.open(io.BytesIO(archive.extractfile(name).read())).convert("RGB")
            photos.append(np.array(image.resize([side * 640 // max(image.size) for side in image.size])))
    bare = [foveate.encode(photo, channels="fast") for photo in photos[TOLD:]]
    marks = [logo(number) for number in range(LOGOS)]
    made = [
        [pasted(photo, mark, np.random.default_rng([k, i])) for i, photo in enumerate(photos)]
        for k, mark in enumerate(marks)
    ]
    for boxes in (1, 5, 10):
        rows = []
        for own in made:
            words = foveate.teach("logo", [(each.texture, each.boxes["logo"]) for each in own[:boxes]])
            found = [foveate.score(each.texture, "the logo", words=words) for each in own[TOLD:]]
            precise = [precision(f.map, e.planes["logo"] >= 0.5) for f, e in zip(found, own[TOLD:], strict=True)]
            others = [each.texture for other in made if other is not own for each in other[TOLD:]]
            seen = [[foveate.score(t, "the logo", words=words).detected for t in some] for some in (bare, others)]
            rows.append((np.mean(precise), np.mean([f.detected for f in found]), *map(np.mean, seen)))
        ap, there, not_there, rivals = np.mean(rows, 0)
        print(f"{boxes:2} boxes of a logo: AP {ap:.3f}, detected where it is {there:.3f}, "
              f"in photographs without {not_there:.3f}, with another logo {rivals:.3f}", flush=True)  # fmt: skip


def main() -> None:
    args = arguments(__doc__)
    labels = (args.data / "teachers/imagenet_labels.txt").read_text().lower().splitlines()
    known = KNOWN | {word.strip() for line in labels for word in line.split(",")}
    known |= {*json.loads((args.data / "text/coco_names.json").read_text()), *ADE, *BODY, *POINTS}
    items = photographs(args.data, args.cache / "taught")
    count = collections.Counter(name for item in items for name in item.planes if item.planes[name].max() >= 0.5)
    names = sorted(name for name, n in count.items() if n >= LEAST and name not in known)
    table: dict[int, list[tuple[float, float, float]]] = collections.defaultdict(list)
    for name in names:
        for turn in range(TIMES):
            random = np.random.default_rng([turn, *name.encode()])
            there = [i for i in items if name in i.planes and i.planes[name].max() >= 0.5]
            there = [there[k] for k in random.permutation(len(there))]
            absent = [i for i in items if name in i.absent]
            absent = [absent[k] for k in random.permutation(len(absent))][: 3 * MOST]
            asked = there[: min(MOST, max(4, len(there) // 3))]
            for boxes in BOXES:
                examples = [(item.texture, item.boxes[name]) for item in there[len(asked) :][:boxes]]
                if len(examples) < min(boxes, 10):
                    continue
                words = foveate.teach(name, examples)
                found = [foveate.score(item.texture, f'"{name}"', words=words) for item in asked]
                maps = zip(found, asked, strict=True)
                ap = np.mean([precision(one.map, item.planes[name] >= 0.5) for one, item in maps])
                seen = [foveate.score(item.texture, f'"{name}"', words=words).detected for item in absent]
                table[boxes].append(
                    (float(ap), float(np.mean([o.detected for o in found])), float(np.mean(seen or [np.nan])))
                )
    print(f"{len(items)} photographs, {len(names)} names: {', '.join(names)}")
    for boxes, rows in table.items():
        ap, there, not_there = np.nanmean(rows, 0)
        print(
            f"{boxes:2} boxes: AP {ap:.3f}, detected where it is {there:.3f}, where it is not {not_there:.3f}",
            flush=True,
        )
    measure_logos(args.data)


if __name__ == "__main__":
    main()
