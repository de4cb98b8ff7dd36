"""Things cut out of the training photographs: name, pixels, outline, parts.

    cutouts(DATA, held_out=False)        everything that scenes of the training are made of
    cutouts(DATA, held_out=True)         of other photographs (`training.nano.labels.is_held_out`)

What is notable
* Outlines are pixel labels (people and their clothes, cars, faces, facades), what was drawn by eye (animals: all their
  parts together; things), or what stands out from a plain ground (fruit, by GrabCut).
* One cut-out is one connected piece. It is kept if it is large enough and not cut by the photograph's border on two
  sides.
* Parts are masks within it, of names in PARTS.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from training.harness import LABELS, Archives
from training.nano.labels import drawn, is_held_out

Mask = NDArray[np.bool_]
LEAST = 34  # pixels: the shorter side of a cut-out
LARGEST = 200  # pixels of the longer side that are kept
ANIMALS = {"dog", "cat"}
ANIMAL_PARTS = {"head": "head", "ear": "head", "front leg": "leg", "back leg": "leg"}
ANIMAL = ("body", "nose", "mouth", "eye", "paw", "mane", "neck", "tail", *ANIMAL_PARTS)
GARMENTS = {"dress": (14,), "coat": (13, 24, 4), "pants": (25, 30), "boots": (7,)}  # of dense/clothes: one cut-out each
WORN = {
    "hair": (19,), "dress": (14,), "pants": (25, 30, 40), "shirt": (13, 24, 4, 5, 36, 46, 26, 49), "bag": (2, 31),
}  # fmt: skip
CAR_PARTS = {"wheel": (61,), "hood": (68,), "windshield": (69, 70), "bumper": (67, 71)}
PARTS = ("head", "leg", "hair", "dress", "pants", "shirt", "bag", "wheel", "hood", "windshield", "bumper")


def is_apart(name: str) -> bool:
    """Two photographs in ten, for scenes that no training sees. One of the two nano's head has not seen either."""
    return is_held_out(name) or int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % 10 == 1


@dataclass(frozen=True, eq=False)
class Cutout:
    """A thing: pixels uint8 [h, w, 3], coverage bool [h, w], parts by name bool [h, w], and where it is from."""

    name: str
    rgb: NDArray[np.uint8]
    mask: Mask
    parts: Mapping[str, Mask]
    source: str


def cut(name: str, rgb: NDArray[np.uint8], mask: Mask, parts: Mapping[str, Mask], source: str) -> Cutout | None:
    """The largest connected piece of a mask; None where it is too small or lies on two borders."""
    closed = cv2.morphologyEx(mask.astype(np.uint8), cv2.MORPH_CLOSE, np.ones((3, 3), np.uint8))
    _, numbers, stats, _ = cv2.connectedComponentsWithStats(closed)
    if len(stats) < 2:
        return None
    one = 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax())
    x, y, w, h, area = (int(v) for v in stats[one])
    borders = (y == 0) + (x == 0) + (y + h == mask.shape[0]) + (x + w == mask.shape[1])
    if min(w, h) < LEAST or area < 0.25 * w * h or borders > 1 or max(w, h) > 4 * min(w, h):
        return None
    here = np.s_[y : y + h, x : x + w]
    alone = numbers[here] == one
    scale = min(1.0, LARGEST / max(w, h))
    size = max(1, round(w * scale)), max(1, round(h * scale))

    def small(plane: Mask) -> Mask:
        return cv2.resize(plane.astype(np.float32), size, interpolation=cv2.INTER_AREA) >= 0.5

    kept = {part: small(plane[here] & alone) for part, plane in parts.items()}
    there = {part: plane for part, plane in kept.items() if 0.05 < plane.sum() / (alone.sum() * scale**2) < 0.6}
    pixels = np.asarray(cv2.resize(rgb[here], size, interpolation=cv2.INTER_AREA), np.uint8)
    return Cutout(name, pixels, small(alone), there, source)


def cutouts(data: Path, *, held_out: bool) -> list[Cutout]:
    """All of one side, in a fixed order."""
    archives = Archives(data)
    made = (*_dense(archives, held_out), *_by_eye(archives, held_out), *_fruit(archives, held_out))
    return [one for one in made if one is not None]


def _ids(plane: NDArray[np.uint8], numbers: tuple[int, ...]) -> Mask:
    return np.isin(plane, numbers)


def _dense(archives: Archives, held_out: bool) -> Iterator[Cutout | None]:
    table = archives.table("dense")
    for name, entry in table["files"].items():
        folder = entry["folder"]
        if folder not in ("clothes", "cars", "faces") or is_apart(name) != held_out:
            continue
        rgb, ids = archives.image("dense", name), archives.image("dense", entry["mask"], ids=True)
        if folder == "cars":
            yield cut("car", rgb, ids > 0, {part: _ids(ids, some) for part, some in CAR_PARTS.items()}, name)
            yield cut("wheel", rgb, ids == 61, {}, name)
        elif folder == "clothes":
            parts = {part: _ids(ids, some) for part, some in WORN.items()}
            yield cut("person", rgb, ids > 0, parts, name)
            for garment, some in GARMENTS.items():
                yield cut(garment, rgb, _ids(ids, some), {}, name)
        elif folder == "faces":
            classes = {label: int(i) for i, label in table["classes"][folder].items() if label}
            whole = np.isin(ids, list(classes.values()))
            yield cut("face", rgb, whole, {"hair": ids == classes["hair"]}, name)


def _by_eye(archives: Archives, held_out: bool) -> Iterator[Cutout | None]:
    sizes = {
        f"{archive}:{name}": (entry["height"], entry["width"], entry["label"])
        for archive in ("photos", "photos2")
        for name, entry in archives.table(archive).items()
    }
    for sheet in sorted(LABELS.glob("*.json")):
        for name, entry in json.loads(sheet.read_text())["photographs"].items():
            archive, member = name.split(":")
            if archive not in ("photos", "photos2") or is_apart(member) != held_out:
                continue
            height, width, label = sizes[name]
            size, scale, rgb = (height, width), max(height, width) / 1000, archives.image(archive, member)
            labels = entry["labels"]

            def joined(
                names: Iterable[str], labels: Any = labels, size: tuple[int, int] = size, scale: float = scale
            ) -> Mask:
                planes = [drawn(s, n, size, scale) > 0 for n in names if n in labels for s in labels[n]]
                return np.any(planes, 0) if planes else np.zeros(size, bool)

            if label in ANIMALS and "body" in labels and len(labels.get("head", ())) == 1:
                by_part: dict[str, list[str]] = {}
                for label_of_part, part in ANIMAL_PARTS.items():
                    by_part.setdefault(part, []).append(label_of_part)
                parts = {part: joined(some) for part, some in by_part.items()}
                yield cut(label, rgb, joined(ANIMAL), parts, name)


def _fruit(archives: Archives, held_out: bool) -> Iterator[Cutout | None]:
    table = archives.table("photos2")
    for name, entry in table.items():
        if entry["label"] not in ("apple", "banana") or is_apart(name) != held_out:
            continue
        rgb = archives.image("photos2", name)
        edge = np.concatenate(
            [rgb[:3].reshape(-1, 3), rgb[-3:].reshape(-1, 3), rgb[:, :3].reshape(-1, 3), rgb[:, -3:].reshape(-1, 3)]
        )
        if np.median(edge.min(1)) < 200 or (edge.min(1) > 190).mean() < 0.7:
            continue  # not on a plain bright ground
        mask = np.full(rgb.shape[:2], cv2.GC_PR_FGD, np.uint8)
        mask[rgb.min(2) > 225] = cv2.GC_BGD
        cv2.setRNGSeed(0)
        cv2.grabCut(  # type: ignore[call-overload]
            np.ascontiguousarray(rgb[..., ::-1]),
            mask,
            None,
            np.zeros((1, 65)),
            np.zeros((1, 65)),
            2,
            cv2.GC_INIT_WITH_MASK,
        )
        yield cut(entry["label"], rgb, (mask == cv2.GC_FGD) | (mask == cv2.GC_PR_FGD), {}, name)


def grounds(data: Path, *, held_out: bool) -> list[NDArray[np.uint8]]:
    """Photographs of rooms, houses and squares to put things on; held out as nano's head was."""
    archives, out = Archives(data), []
    for archive, folders in (("photos", ("houses",)), ("photos2", ("houses2", "daynight"))):
        names = archives.table(archive)
        some = [name for name in names if name.split("/")[0] in folders and is_held_out(name) == held_out]
        out += [archives.image(archive, name) for name in some]
    return out
