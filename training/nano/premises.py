"""Questions with a false premise: all that they name is there, but not so; and true ones of the same form.

    python -m training.nano.premises --data DATA --out FOLDER

They are made from labels. FOLDER/queries.json is what `benchmarks/questions.py` reads; false ones have no regions.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Mask = NDArray[np.bool_]
Entry = dict[str, Any]
TABLES = json.loads(Path(__file__).with_name("premises.json").read_text("utf-8"))
COARSE = 4  # pixels of the photograph per sample of a mask, in which places are compared
APART, TOUCHING = 0.08, 0.006  # of the diagonal: between things that are apart, that touch
CLEAR = 0.5  # share of a thing that its colour covers
ABSENT = 0.01  # share of a thing below which it has nothing of a colour
STUFF = {"sky-other": "sky", "playingfield": "playing field", "water-other": "water", "rug": "rug"}
UNNAMED = {"food-other", "paper", "platform", "cardboard", "banner", "fruit", "net"}  # too vague to ask for
BACKGROUND = {"sky", "wall", "floor", "ceiling", "building", "tree", "water"}


@dataclass(frozen=True, eq=False)
class Thing:
    """One labelled thing or stuff: mask bool [H / 4, W / 4], regions as in queries.json; exact: no mere box."""

    name: str
    mask: Mask
    regions: list[Any]
    box: tuple[float, float, float, float]
    exact: bool
    thing: bool
    crowd: bool = False


@dataclass(frozen=True, eq=False)
class Scene:
    """A photograph and all that is labelled in it."""

    dataset: str
    file: str
    rgb: NDArray[np.uint8]
    things: tuple[Thing, ...]

    @property
    def diagonal(self) -> float:
        return float(np.hypot(*self.rgb.shape[:2])) / COARSE

    @cached_property
    def by_name(self) -> dict[str, list[Thing]]:
        found: dict[str, list[Thing]] = {}
        for thing in self.things:
            found.setdefault(thing.name, []).append(thing)
        return found

    def countable(self) -> dict[str, list[Thing]]:
        """Names of things, without those of which a crowd is there."""
        return {n: some for n, some in self.by_name.items() if some[0].thing and not any(t.crowd for t in some)}

    def gap(self, a: Iterable[Thing], b: Iterable[Thing]) -> float:
        """Smallest distance between the masks, as a share of the diagonal."""
        first, second = (np.logical_or.reduce([t.mask for t in some]) for some in (a, b))
        away = cv2.distanceTransform((~second).astype(np.uint8), cv2.DIST_L2, 5)
        return float(away[first].min()) / self.diagonal

    def draw(self, form: str, some: list[Any], most: int) -> list[Any]:
        """At most so many, the same on every machine."""
        return sorted(some, key=lambda one: hashlib.sha256(f"{self.file}/{form}/{one}".encode()).digest())[:most]

    def entry(self, kind: str, query: str, things: Iterable[Thing] = ()) -> Entry:
        regions = [region for thing in things for region in thing.regions]
        size = [self.rgb.shape[1], self.rgb.shape[0]]
        known = {"set": "premises", "kind": kind, "dataset": self.dataset, "file": self.file}
        return known | {"query": query, "size": size, "regions": regions}


def read_scenes(data: Path) -> Iterator[Scene]:
    """The photographs of dev/coco128."""
    folder = data / "dev" / "coco128"
    labels = json.loads((folder / "annotations.json").read_text("utf-8"))
    names = {c["id"]: _plain(c["name"]) for c in labels["categories"]}
    is_thing = {c["id"]: bool(c["isthing"]) for c in labels["categories"]}
    of: dict[int, list[Any]] = {}
    for annotation in labels["annotations"]:
        of.setdefault(annotation["image_id"], []).append(annotation)
    with tarfile.open(folder / "images.tar") as images, tarfile.open(folder / "masks.tar") as masks:
        members = {Path(m.name).name: m for m in images}

        def read(tar: tarfile.TarFile, member: Any) -> NDArray[np.uint8]:
            found = tar.extractfile(member)
            assert found is not None
            return np.asarray(Image.open(io.BytesIO(found.read())).convert("RGB"))

        for image in labels["images"]:
            file = image["file_name"]
            rgb = read(images, members[file])
            things = [_thing(names[a["category_id"]], a, rgb.shape[:2]) for a in of.get(image["id"], [])]
            if image["has_masks"]:
                ids = read(masks, f"panoptic/{file[:-4]}.png").astype(int) @ [1, 256, 65536]
                for segment in labels["panoptic"][file]:
                    number, name = segment["category_id"], names[segment["category_id"]]
                    if not is_thing[number] and name not in UNNAMED:
                        things.append(_stuff(name, ids == segment["id"]))
            yield Scene(str(folder.resolve()), file, rgb, tuple(things))


def _plain(name: str) -> str:
    """ "wall-other-merged" -> "wall"."""
    name = name.removesuffix("-merged").removesuffix("-stuff")
    first, _, last = name.partition("-")
    return STUFF.get(name) or (first if last in ("other", "wood", "brick", "stone", "tile", "blind") else name)


def _thing(name: str, annotation: dict[str, Any], shape: tuple[int, ...]) -> Thing:
    x, y, w, h = annotation["bbox"]
    outlines = annotation.get("segmentation")
    exact = isinstance(outlines, list) and bool(outlines)
    polygons = [np.reshape(o, (-1, 2)) for o in outlines if len(o) >= 6] if exact else []
    exact = bool(polygons)
    polygons = polygons or [np.array([[x, y], [x + w, y], [x + w, y + h], [x, y + h]])]
    regions = [np.round(p).astype(int).tolist() for p in polygons]
    return Thing(name, _fill(regions, shape), regions, (x, y, x + w, y + h), exact, True, bool(annotation["iscrowd"]))


def _fill(polygons: list[Any], shape: tuple[int, ...]) -> Mask:
    """Polygons in pixels -> mask of a quarter of the size; everything that they touch."""
    mask = np.zeros((-(-shape[0] // COARSE), -(-shape[1] // COARSE)), np.uint8)
    for polygon in polygons:
        cv2.fillPoly(mask, [np.floor(np.array(polygon) / COARSE).astype(np.int32)], 1)
    return mask.astype(bool)


def _stuff(name: str, pixels: Mask) -> Thing:
    """Stuff from its pixels, as polygons and holes."""
    outlines, levels = cv2.findContours(pixels.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    regions: list[Any] = []
    for outline, level in zip(outlines, levels[0], strict=True):
        shape = cv2.approxPolyDP(outline, 1.5, True)[:, 0].tolist()
        if len(shape) >= 3 and cv2.contourArea(outline) >= 64:
            regions.append({"hole": shape} if level[3] >= 0 else shape)
    x, y, w, h = cv2.boundingRect(pixels.astype(np.uint8))
    small = -(-pixels.shape[1] // COARSE), -(-pixels.shape[0] // COARSE)
    coarse = cv2.resize(pixels.astype(np.uint8), small, interpolation=cv2.INTER_AREA)
    if not any(isinstance(r, list) for r in regions):
        regions = [[[x, y], [x + w, y], [x + w, y + h], [x, y + h]]]
    return Thing(name, coarse.astype(bool), regions, (x, y, x + w, y + h), True, False)


# --- forms ------------------------------------------------------------------------------------------------------------

HUES = {  # degrees: certainly of the name; perhaps
    "red": ((345, 12), (325, 20)),
    "orange": ((18, 40), (8, 50)),
    "yellow": ((44, 68), (36, 80)),
    "green": ((78, 165), (62, 185)),
    "blue": ((190, 255), (165, 265)),
    "purple": ((262, 300), (245, 320)),
    "pink": ((305, 340), (285, 20)),
}


def colour_shares(pixels: NDArray[np.uint8]) -> tuple[dict[str, float], dict[str, float]]:
    """Of pixels [n, 3]: the share that is clearly of each colour, and the share that somebody might call so."""
    hsv = cv2.cvtColor((pixels[None] / 255).astype(np.float32), cv2.COLOR_RGB2HSV)[0]
    hue, saturation, value = hsv.T

    def between(bounds: tuple[int, int]) -> Mask:
        low, high = bounds
        return (hue >= low) & (hue <= high) if low < high else (hue >= low) | (hue <= high)

    vivid, any_colour = (saturation > 0.4) & (value > 0.3), (saturation > 0.12) & (value > 0.1)
    clear = {name: vivid & between(bounds) for name, (bounds, _) in HUES.items()}
    clear["orange"] = clear["orange"] & (value > 0.65) & (saturation > 0.6)
    maybe = {name: any_colour & between(bounds) for name, (_, bounds) in HUES.items()}
    clear["brown"] = between((8, 42)) & (saturation > 0.35) & (value > 0.15) & (value < 0.55)
    maybe["brown"] = between((0, 60)) & (saturation > 0.12) & (value < 0.8)
    clear["white"], maybe["white"] = (saturation < 0.15) & (value > 0.75), (saturation < 0.35) & (value > 0.5)
    clear["black"], maybe["black"] = value < 0.2, value < 0.35
    clearly, perhaps = ({n: float(m.mean()) for n, m in some.items()} for some in (clear, maybe))
    return clearly, perhaps


def colours(scene: Scene) -> Iterator[Entry]:
    """Such as "the red bus" of a blue one."""
    for name, some in scene.by_name.items():
        if name == "person" or not all(t.exact and not t.crowd for t in some) or sum(t.mask.sum() for t in some) < 80:
            continue
        shares = [colour_shares(_pixels(scene, t)) for t in some]
        for colour in shares[0][0]:
            so = [t for t, s in zip(some, shares, strict=True) if s[0][colour] >= CLEAR]
            if so and all(s[1][colour] < 0.1 for t, s in zip(some, shares, strict=True) if t not in so):
                yield scene.entry("colour", f"the {colour} {name}", so)
        wrong = [c for c in shares[0][1] if all(s[1][c] < ABSENT for s in shares)]
        for colour in scene.draw(f"colour {name}", wrong, 2 if some[0].thing else 1):
            yield scene.entry("wrong colour", f"the {colour} {name}")


def _pixels(scene: Scene, thing: Thing) -> NDArray[np.uint8]:
    """Those well inside, if there are."""
    h, w = thing.mask.shape
    small = cv2.resize(scene.rgb, (w, h), interpolation=cv2.INTER_AREA)
    inner = cv2.erode(thing.mask.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=1).astype(bool)
    return np.asarray(small[inner if inner.sum() >= 20 else thing.mask])


def places(scene: Scene) -> Iterator[Entry]:
    """Such as "the A on the B" of things far apart; true where one stands on the other."""
    false: list[str] = []
    for relation, hosts in TABLES["hosts"].items():
        for host in hosts:
            for name, some in scene.countable().items():
                if host not in scene.by_name or name == host:
                    continue
                there = scene.by_name[host]
                if scene.gap(some, there) >= APART:
                    false.append(f"the {name} {relation} the {host}")
                elif so := [t for t in some if any(_is_at(t, relation, h) for h in there)]:
                    near = [t for t in some if scene.gap([t], there) <= TOUCHING]
                    yield scene.entry("place", f"the {name} {relation} the {host}", near or so)
    for query in scene.draw("apart", false, 6):
        yield scene.entry("apart", query)


def _is_at(thing: Thing, relation: str, host: Thing) -> bool:
    if relation == "on":
        shifted = np.zeros_like(thing.mask)
        shifted[3:] = thing.mask[:-3]
        foot = shifted & ~thing.mask
        low = thing.box[3] - max(8.0, 0.25 * (thing.box[3] - thing.box[1]))
        foot[: int(low / COARSE)] = False
        return bool(foot.any() and (foot & host.mask).sum() >= 0.5 * foot.sum())
    x0, y0, x1, y1 = (*np.maximum(thing.box[:2], host.box[:2]), *np.minimum(thing.box[2:], host.box[2:]))
    area = (thing.box[2] - thing.box[0]) * (thing.box[3] - thing.box[1])
    inside = max(0.0, x1 - x0) * max(0.0, y1 - y0) >= 0.9 * area
    return bool(inside and relation == "in" and host.thing)


def sides(scene: Scene) -> Iterator[Entry]:
    """Such as "the A left of the B" of one A and one B, side by side; and the other way round."""
    single = [some[0] for some in scene.countable().values() if len(some) == 1]
    pairs = [
        (a, b)
        for a in single
        for b in single
        if a.box[2] <= b.box[0] and abs(_middle(a)[1] - _middle(b)[1]) <= _middle(b)[0] - _middle(a)[0]
    ]
    for a, b in pairs:
        yield scene.entry("side", f"the {a.name} left of the {b.name}", [a])
        yield scene.entry("side", f"the {b.name} right of the {a.name}", [b])
        yield scene.entry("other side", f"the {b.name} left of the {a.name}")
        yield scene.entry("other side", f"the {a.name} right of the {b.name}")


def _middle(thing: Thing) -> tuple[float, float]:
    return (thing.box[0] + thing.box[2]) / 2, (thing.box[1] + thing.box[3]) / 2


def neighbours(scene: Scene) -> Iterator[Entry]:
    """ "sugar bowl" of a bowl."""
    for name in scene.by_name:
        words = [w for w in TABLES["neighbours"].get(name, ()) if w not in scene.by_name]
        for word in scene.draw(f"neighbour {name}", words, 2):
            yield scene.entry("neighbouring word", f"the {word}")


def doings(scene: Scene) -> Iterator[Entry]:
    """Such as "the person riding the horse" of a person who stands far from it."""
    people, false = scene.countable().get("person", []), []
    for doing, things in TABLES["doing"].items() if people else ():
        for name in things:
            some = scene.countable().get(name)
            if not some:
                continue
            if scene.gap(people, some) >= APART / 2:
                false += [f"the person {doing} the {name}"]
            elif doing in ("riding", "holding", "carrying"):
                so = [p for p in people if scene.gap([p], some) == 0 and p.exact]
                if len(so) == 1 or (so and doing == "riding"):
                    yield scene.entry("doing", f"the person {doing} the {name}", so)
        if doing == "riding" and all(scene.gap(people, scene.by_name[n]) >= 0.02 for n in things if n in scene.by_name):
            false += ["what is the person riding?"]
    for query in scene.draw("doing", false, 8):
        yield scene.entry("not doing", query)


def plain(scene: Scene) -> Iterator[Entry]:
    """Names of things, by their share of the picture."""
    for name, some in scene.countable().items():
        share = float(np.logical_or.reduce([t.mask for t in some]).mean())
        size = "below 1 %" if share < 0.01 else "1-5 %" if share < 0.05 else "above 5 %"
        yield scene.entry(f"plain, {size}", name, some)


def absent(names: Iterable[str]) -> Callable[[Scene], Iterator[Entry]]:
    """Names of nothing in the photograph: of these, and everyday ones."""
    known = list(names)

    def form(scene: Scene) -> Iterator[Entry]:
        lacking = [n for n in known if n not in scene.by_name]
        for name in scene.draw("absent", lacking, 5):
            yield scene.entry("absent, one of 80", name)
        for name in scene.draw("absent", [n for n in TABLES["everyday"] if n not in scene.by_name], 5):
            yield scene.entry("absent, everyday", name)

    return form


def make(data: Path) -> list[Entry]:
    """All questions, corrected."""
    scenes = list(read_scenes(data))
    labels = json.loads((data / "dev" / "coco128" / "annotations.json").read_text("utf-8"))
    eighty = [c["name"] for c in labels["categories"] if c["isthing"]]
    forms = (colours, places, sides, neighbours, doings, plain, absent(eighty))
    return [entry for form in forms for scene in scenes for entry in form(scene)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    entries = make(options.data)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "queries.json").write_text(json.dumps(entries), "utf-8")
    counts: dict[str, int] = {}
    for entry in entries:
        counts[entry["kind"]] = counts.get(entry["kind"], 0) + 1
    print("\n".join(f"{n:5} {kind}" for kind, n in counts.items()))


if __name__ == "__main__":
    main()
