"""What is where in the training photographs: pixel labels, boxes, labels drawn by eye, and what the teachers say.

For every photograph, on cells of 8 x 8 pixels of its working size:

    target  uint8 [names, h, w]   255 x share of the cell
    weight  float32 [names]       how far a cell *without* the name counts as a negative; 0: nothing is known

A name that a source does not know has weight 0 and no target. Where several sources speak of a name, labels win over
teachers.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

_KNOWN = json.loads(Path(__file__).with_name("sources.json").read_text())
ADE: list[str] = _KNOWN["ade"]  # its 32 answers, in order
BODY: dict[str, list[int]] = _KNOWN["body"]  # parts of BodyPix's 24
POINTS: dict[str, list[int]] = _KNOWN["points"]  # of its 17
ROUND = frozenset(_KNOWN["round"])  # their boxes are filled as ellipses
CANNOT = {  # names that some folders cannot hold, or hardly ever do
    folder: [name for group in groups for name in _KNOWN["groups"][group]]
    for folder, groups in _KNOWN["cannot"].items()
}
HUMAN = frozenset(_KNOWN["human"])  # folders that show people
VOID = 0.3  # weight of cells that a pixel label leaves out: mostly background, now and then another of the kind
PARTIAL = 0.3  # the same for boxes, which do not cover every instance
ELSEWHERE = 0.3  # weight of names that a folder cannot hold
HELD_OUT = 10  # one photograph in so many is never trained on


@dataclass(frozen=True)
class Photograph:
    archive: str
    name: str
    target: np.ndarray
    weight: np.ndarray

    @property
    def held_out(self) -> bool:
        return is_held_out(self.name)


def is_held_out(name: str) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % HELD_OUT == 0


class Names:
    """The names of the head, in order, and which labels count for which."""

    def __init__(self, without: tuple[str, ...] = ()) -> None:
        table = json.loads(Path(__file__).with_name("concepts.json").read_text())["concepts"]
        self.all = [name for name in table if name not in without]
        self.index = {name: i for i, name in enumerate(self.all)}
        self.of: dict[str, list[int]] = {}
        for name in self.all:
            for label in (name, *table[name]["includes"]):
                self.of.setdefault(label, []).append(self.index[name])
        for name in self.all:  # a bush is a plant, a garage door is a door: two steps are enough
            for label in table[name]["includes"]:
                for further in table.get(label, {"includes": []})["includes"]:
                    self.of.setdefault(further, []).append(self.index[name])
        self.of = {label: sorted(set(names)) for label, names in self.of.items()}


def cells(mask: np.ndarray, h: int, w: int) -> np.ndarray:
    """A mask of any size -> uint8 share of each cell."""
    return cv2.resize(mask.astype(np.uint8) * 255, (w, h), interpolation=cv2.INTER_AREA)


def drawn(shape: list, name: str, size: tuple[int, int], scale: float) -> np.ndarray:
    """A box or polygon in units of `scale` pixels -> mask of `size`, with 8 more bits of position."""
    mask = np.zeros(size, np.uint8)
    if isinstance(shape[0], (int, float)):
        x0, y0, x1, y1 = (v * scale for v in shape)
        if name in ROUND:
            centre = round((x0 + x1) * 8), round((y0 + y1) * 8)
            half = max(round((x1 - x0) * 8), 8), max(round((y1 - y0) * 8), 8)
            cv2.ellipse(mask, centre, half, 0, 0, 360, 1, -1, shift=4)
        else:
            cv2.rectangle(mask, (round(x0), round(y0)), (round(x1), round(y1)), 1, -1)
    else:
        cv2.fillPoly(mask, [np.round(np.array(shape) * scale).astype(np.int32)], 1)
    return mask


class Labels:
    """Everything known of each photograph. `target(archive, name, h, w, answers)` makes the arrays."""

    def __init__(self, data: Path, folder: Path, names: Names) -> None:
        self.names, train = names, data / "train"
        self.dense = json.loads((train / "dense.json").read_text())
        self.boxes = json.loads((train / "boxes.json").read_text())["files"]
        self.masks = tarfile.open(train / "dense.tar")  # noqa: SIM115
        self.sizes = {}
        for archive in ("photos", "photos2"):
            for name, entry in json.loads((train / f"{archive}.json").read_text()).items():
                self.sizes[f"{archive}:{name}"] = entry["width"], entry["height"]
        self.by_eye: dict[str, tuple[dict, list[str], list[str]]] = {}  # labels, absent else, not all drawn
        for file in sorted(folder.glob("*.json")):
            sheet = json.loads(file.read_text())
            for name, entry in sheet["photographs"].items():
                known = [n for n in sheet["names"] if n not in entry["unsure"]]
                self.by_eye[name] = entry["labels"], known, entry["unsure"]

    def target(self, archive: str, name: str, h: int, w: int, answers: dict) -> Photograph:
        n, of = len(self.names.all), self.names.of
        target, weight = np.zeros((n, h, w), np.uint8), np.zeros(n, np.float32)
        labelled = np.zeros(n, bool)
        folder, nothing = name.split("/")[0], np.zeros((h, w), np.uint8)

        def put(label: str, plane: np.ndarray, negatives: float) -> None:
            for i in of.get(label, ()):
                np.maximum(target[i], plane, out=target[i])
                weight[i] = max(weight[i], negatives)
                labelled[i] = True

        def absent(label: str, negatives: float) -> None:
            i = self.names.index.get(label)
            if i is not None and not labelled[i]:
                weight[i], labelled[i] = negatives, True

        if archive == "dense":
            entry = self.dense["files"][name]
            ids = np.array(Image.open(io.BytesIO(self.masks.extractfile(entry["mask"]).read())))
            classes = {int(k): v for k, v in self.dense["classes"][entry["folder"]].items() if v}
            everywhere = 1.0 if entry["folder"] in ("hair", "faces", "hands") else VOID
            if entry["folder"] != "hands":
                there = set(np.unique(ids).tolist())
                for number, label in classes.items():
                    put(label, cells(ids == number, h, w) if number in there else nothing, everywhere)
            else:
                put("hand", cells(ids == 91, h, w), everywhere)
        elif archive == "boxes":
            ratio = max(h, w) / max(self._size(archive, name))
            for label in ("door", "handle", "cabinet door", "refrigerator door", "window", "cabinet"):
                for box in (b["box"] for b in self.boxes[name] if b["name"] == label):
                    put(label, self._plane(box, label, h, w, ratio), PARTIAL)
        elif f"{archive}:{name}" in self.by_eye:
            shapes, known, unsure = self.by_eye[f"{archive}:{name}"]
            for label, some in shapes.items():
                for shape in some:
                    plane = self._plane(shape, label, h, w, max(h, w) / 1000)
                    put(label, plane, 1.0 if label in known and label not in unsure else 0.0)
            for label in known:
                absent(label, 1.0)
        for label in CANNOT.get(folder, ()):
            absent(label, ELSEWHERE)
        self._teach(folder, target, weight, labelled, answers)
        return Photograph(archive, name, target, weight)

    def _size(self, archive: str, name: str) -> tuple[int, int]:
        if archive == "boxes":
            if not hasattr(self, "_boxes"):
                self._boxes = tarfile.open(Path(self.masks.name).with_name("boxes.tar"))  # noqa: SIM115
            return Image.open(io.BytesIO(self._boxes.extractfile(name).read())).size
        return self.sizes[f"{archive}:{name}"]

    @staticmethod
    def _plane(shape: list, label: str, h: int, w: int, cells_per_unit: float) -> np.ndarray:
        return cells(drawn(shape, label, (h * 8, w * 8), cells_per_unit * 8), h, w)

    def _teach(self, folder: str, target: np.ndarray, weight: np.ndarray, labelled: np.ndarray, answers: dict) -> None:
        """Soft targets of ADE and BodyPix for names that no label speaks of."""
        h, w = target.shape[1:]
        stuff, index = answers["stuff"], self.names.index
        soft: dict[str, np.ndarray] = {}
        for number, label in enumerate(ADE):
            for i in self.names.of.get(label, ()):
                name = self.names.all[i]
                soft[name] = np.minimum(soft.get(name, 0) + stuff[number].astype(np.int32), 255)
        for name, plane in soft.items():
            if not labelled[index[name]]:
                target[index[name]], weight[index[name]] = plane[:h, :w], 1.0
        if folder not in HUMAN:
            return
        person = answers["person"][0].astype(np.float32) / 255
        for table, planes, joined in ((BODY, answers["parts"], np.sum), (POINTS, answers["points"], np.max)):
            for label, numbers in table.items():
                i = index.get(label)
                if i is None or labelled[i]:
                    continue
                plane = joined(planes[list(numbers)].astype(np.float32), 0) * person
                plane = cv2.resize(plane, (plane.shape[1] * 2, plane.shape[0] * 2))
                target[i], weight[i] = np.clip(plane[:h, :w], 0, 255).astype(np.uint8), 1.0
