"""Questions with a false premise: all that they name is there, but not so; and true ones of the same form.

    python -m training.nano.premises --data DATA --out FOLDER

They are made from labels: of dev/coco128, and of training photographs that the head was not trained on. What labels
cannot say stands in premises.json, with the words that the forms take, and what was looked at and taken out. A false
one has no regions; `kind` is the form. FOLDER/queries.json is what `benchmarks/questions.py` reads; the training
photographs are put beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.nano.labels import drawn, is_held_out

Mask = NDArray[np.bool_]
Pixels = NDArray[np.uint8]
Entry = dict[str, Any]
TABLES = json.loads(Path(__file__).with_name("premises.json").read_text("utf-8"))
COARSE = 4  # pixels of the photograph per sample of a mask, in which places are compared
FAR, APART, TOUCHING = 0.3, 0.08, 0.006  # of the diagonal: between things that are far apart, apart, that touch
CLEAR = 0.5  # share of a thing that its colour covers
ABSENT = 0.01  # share of a thing below which it has nothing of a colour
SMALL = 80  # samples below which a thing has no certain colour
SOME = 5  # questions of a form about one photograph, where labels would give many more
SHARES = (0.01, 0.05)  # of the picture, between which plain names are told apart
UNNAMED = {"food-other", "paper", "platform", "cardboard", "banner", "fruit", "net"}  # too vague to ask for
FAMILY = {"other", "wood", "brick", "stone", "tile", "blind"}  # second words of names of stuff
EYE = 1000  # units of a photograph's long side in labels drawn by eye


@dataclass(frozen=True, eq=False)
class Thing:
    """Something labelled: mask bool [H / 4, W / 4]; regions as in queries.json; box (x0, y0, x1, y1) in pixels.

    exact: the mask is no mere box. countable: things, not stuff.
    """

    name: str
    mask: Mask
    regions: list[Any]
    box: tuple[float, ...]
    exact: bool = True
    countable: bool = True
    crowd: bool = False


@dataclass(frozen=True, eq=False)
class Scene:
    """A photograph and what is labelled in it.

    subject: whose parts the things are, of training photographs; "" where they are things of their own. lacking: names
    that are not there. dev: a photograph in which all things of the names are labelled.
    """

    dataset: str
    file: str
    rgb: Pixels
    things: tuple[Thing, ...]
    subject: str = ""
    lacking: tuple[str, ...] = ()
    dev: bool = False

    @cached_property
    def by_name(self) -> dict[str, list[Thing]]:
        found: dict[str, list[Thing]] = {}
        for thing in self.things:
            found.setdefault(thing.name, []).append(thing)
        return found

    @cached_property
    def countable(self) -> dict[str, list[Thing]]:
        """Names of things, without those of which a crowd is there."""
        return {n: some for n, some in self.by_name.items() if some[0].countable and not any(t.crowd for t in some)}

    @cached_property
    def key(self) -> str:
        """What premises.json calls it."""
        return Path(self.file).stem.lstrip("0")

    def gap(self, a: Iterable[Thing], b: Iterable[Thing]) -> float:
        """Smallest distance between the masks, as a share of the diagonal."""
        first, second = (np.logical_or.reduce([t.mask for t in some]) for some in (a, b))
        away = cv2.distanceTransform((~second).astype(np.uint8), cv2.DIST_L2, 5)
        return float(away[first].min() / np.hypot(*first.shape))

    def draw(self, form: str, some: Iterable[str], most: int) -> list[str]:
        """At most so many, the same on every machine."""
        return sorted(some, key=lambda one: hashlib.sha256(f"{self.file}/{form}/{one}".encode()).digest())[:most]

    def entry(self, kind: str, query: str, things: Iterable[Thing] = ()) -> Entry:
        regions = [region for thing in things for region in thing.regions]
        size = [self.rgb.shape[1], self.rgb.shape[0]]
        known = {"set": "premises", "kind": kind, "dataset": self.dataset, "file": self.file}
        return known | {"query": query, "size": size, "regions": regions}


# --- photographs and their labels -------------------------------------------------------------------------------------


def read_coco(data: Path) -> Iterator[Scene]:
    """The photographs of dev/coco128: things, and stuff where it has masks."""
    folder = data / "dev" / "coco128"
    labels = json.loads((folder / "annotations.json").read_text("utf-8"))
    categories = {c["id"]: c for c in labels["categories"]}
    of: dict[int, list[Any]] = {}
    for annotation in labels["annotations"]:
        of.setdefault(annotation["image_id"], []).append(annotation)
    with tarfile.open(folder / "images.tar") as images, tarfile.open(folder / "masks.tar") as masks:
        members = {Path(member.name).name: member for member in images}
        for image in labels["images"]:
            file = image["file_name"]
            rgb = _read(images, members[file])
            things = [_annotated(categories[a["category_id"]]["name"], a, rgb.shape) for a in of.get(image["id"], [])]
            if image["has_masks"]:
                ids = _read(masks, f"panoptic/{file[:-4]}.png").astype(int) @ [1, 256, 65536]
                for segment in labels["panoptic"][file]:
                    category = categories[segment["category_id"]]
                    name = category["name"].removesuffix("-merged").removesuffix("-stuff")
                    if not category["isthing"] and name not in UNNAMED:
                        things.append(_painted(_plain(name), ids == segment["id"], countable=False))
            yield Scene(str(folder.resolve()), file, rgb, tuple(things), dev=True)


def read_by_eye(data: Path, out: Path) -> Iterator[Scene]:
    """Training photographs that were drawn by eye, held out: parts of a subject, or things in a room or outdoors."""
    for archive in ("photos", "photos2"):
        about = json.loads((data / "train" / f"{archive}.json").read_text("utf-8"))
        with tarfile.open(data / "train" / f"{archive}.tar") as photographs:
            for sheet in sorted(Path(__file__).with_name("labels").glob("*.json")):
                labels = json.loads(sheet.read_text("utf-8"))
                for place, entry in labels["photographs"].items():
                    name = place.partition(":")[2]
                    if place.startswith(f"{archive}:") and is_held_out(name):
                        rgb = _copy(photographs, name, out)
                        shapes, unsure = entry["labels"], entry["unsure"]
                        things = [_drawn(n, s, rgb.shape) for n in shapes if n not in unsure for s in shapes[n]]
                        lacking = tuple(n for n in labels["names"] if n not in shapes and n not in unsure)
                        subject, group = TABLES["subjects"].get(about[name]["label"], ("", ""))
                        lacking = tuple(n for n in lacking if n in TABLES["can be missing"].get(group, lacking))
                        yield Scene(out.name, _flat(name), rgb, tuple(things), subject, lacking)


def read_dense(data: Path, out: Path) -> Iterator[Scene]:
    """Training photographs of one dressed person, or of one car, held out, with labels of pixels."""
    labels = json.loads((data / "train" / "dense.json").read_text("utf-8"))
    with tarfile.open(data / "train" / "dense.tar") as archive:
        for name, entry in labels["files"].items():
            if entry["folder"] in ("clothes", "cars") and is_held_out(name):
                rgb = _copy(archive, name, out)
                file = archive.extractfile(entry["mask"])
                ids = np.asarray(Image.open(cast(IO[bytes], file)))
                names = {int(number): n for number, n in labels["classes"][entry["folder"]].items() if n}
                there = {names[number] for number in np.unique(ids).tolist() if number in names}
                is_car = entry["folder"] == "cars"
                things = [
                    _painted(n, ids == number)
                    for number, n in names.items()
                    if n in there and (is_car or n in TABLES["garments"]) and (ids == number).sum() >= SMALL
                ]
                lacking = _lacking_car(there) if is_car else _lacking_garments(there)
                yield Scene(out.name, _flat(name), rgb, tuple(things), "car" if is_car else "person", lacking)


def _lacking_garments(there: set[str]) -> tuple[str, ...]:
    """Those of which nothing similar is labelled either."""
    return tuple(name for name, similar in TABLES["garments"].items() if not there & set(similar))


def _lacking_car(there: set[str]) -> tuple[str, ...]:
    """What is at the other end, of a car that is seen from one end."""
    front, back = TABLES["cars"]["front"], TABLES["cars"]["back"]
    for seen, hidden in ((front, back), (back, front)):
        if len(there & set(seen)) >= 2 and not there & set(hidden):
            return tuple(hidden)
    return ()


def _read(tar: tarfile.TarFile, member: str | tarfile.TarInfo) -> Pixels:
    return np.asarray(Image.open(cast(IO[bytes], tar.extractfile(member))).convert("RGB"))


def _flat(name: str) -> str:
    return name.replace("/", "_")


def _copy(tar: tarfile.TarFile, name: str, out: Path) -> Pixels:
    """A photograph, which is put into `out`, too."""
    content = cast(IO[bytes], tar.extractfile(name)).read()
    out.mkdir(parents=True, exist_ok=True)
    (out / _flat(name)).write_bytes(content)
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def _plain(name: str) -> str:
    """Such as "wall" of "wall-brick", "sky" of "sky-other"."""
    first, _, second = name.partition("-")
    return "playing field" if name == "playingfield" else first if second in FAMILY else name


def _annotated(name: str, annotation: dict[str, Any], shape: tuple[int, ...]) -> Thing:
    """A thing from its outlines, or from its box where it has none."""
    x, y, w, h = annotation["bbox"]
    outlines = annotation.get("segmentation")
    polygons = [np.reshape(o, (-1, 2)) for o in outlines if len(o) >= 6] if isinstance(outlines, list) else []
    regions = [np.round(p).astype(int).tolist() for p in polygons or [_corners(x, y, x + w, y + h)]]
    mask = np.zeros(_coarse(shape), np.uint8)
    for region in regions:
        cv2.fillPoly(mask, [np.array(region) // COARSE], 1)
    box = x, y, x + w, y + h
    return Thing(name, mask.astype(bool), regions, box, bool(polygons), crowd=bool(annotation["iscrowd"]))


def _drawn(name: str, shape: list[Any], size: tuple[int, ...]) -> Thing:
    height, width = size[:2]
    return _painted(name, drawn(shape, name, (height, width), max(height, width) / EYE).astype(bool))


def _painted(name: str, pixels: Mask, countable: bool = True) -> Thing:
    """A thing, or stuff, from its pixels, as polygons and holes."""
    outlines, levels = cv2.findContours(pixels.astype(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    regions: list[Any] = []
    for outline, level in zip(outlines, levels[0] if len(outlines) else (), strict=True):
        polygon = cv2.approxPolyDP(outline, 1.5, True)[:, 0].tolist()
        if len(polygon) >= 3 and cv2.contourArea(outline) >= COARSE**2:
            regions.append({"hole": polygon} if level[3] >= 0 else polygon)
    x, y, w, h = cv2.boundingRect(pixels.astype(np.uint8))
    if not any(isinstance(region, list) for region in regions):
        regions = [_corners(x, y, x + w, y + h)]
    mask = cv2.resize(pixels.astype(np.float32), _coarse(pixels.shape)[::-1], interpolation=cv2.INTER_AREA)
    return Thing(name, mask >= min(0.5, mask.max()), regions, (x, y, x + w, y + h), countable=countable)


def _corners(x0: float, y0: float, x1: float, y1: float) -> list[list[float]]:
    return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]]


def _coarse(shape: tuple[int, ...]) -> tuple[int, int]:
    return -(-shape[0] // COARSE), -(-shape[1] // COARSE)


# --- colours ----------------------------------------------------------------------------------------------------------

HUES = {  # degrees: certainly of the name; perhaps
    "red": ((345, 12), (325, 20)),
    "orange": ((18, 40), (8, 50)),
    "yellow": ((44, 68), (36, 80)),
    "green": ((78, 165), (62, 185)),
    "blue": ((190, 255), (165, 265)),
    "purple": ((262, 300), (245, 320)),
    "pink": ((305, 340), (285, 20)),
}


def colour_shares(pixels: Pixels) -> tuple[dict[str, float], dict[str, float]]:
    """Of pixels [n, 3]: the share that is clearly of each colour, and the share that somebody might call so."""
    hsv = cv2.cvtColor((pixels[None] / 255).astype(np.float32), cv2.COLOR_RGB2HSV)[0]
    hue, saturation, value = hsv.T

    def between(bounds: tuple[int, int]) -> Mask:
        low, high = bounds
        inside = (hue >= low) & (hue <= high) if low < high else (hue >= low) | (hue <= high)
        return np.asarray(inside, bool)

    vivid, any_colour = (saturation > 0.4) & (value > 0.3), (saturation > 0.12) & (value > 0.1)
    clear = {name: vivid & between(certain) for name, (certain, _) in HUES.items()}
    maybe = {name: any_colour & between(perhaps) for name, (_, perhaps) in HUES.items()}
    clear["orange"] = clear["orange"] & (value > 0.65) & (saturation > 0.6)
    clear["brown"] = between((8, 42)) & (saturation > 0.35) & (value > 0.15) & (value < 0.55)
    maybe["brown"] = between((0, 60)) & (saturation > 0.12) & (value < 0.8)
    clear["white"], maybe["white"] = (saturation < 0.15) & (value > 0.75), (saturation < 0.35) & (value > 0.5)
    clear["black"], maybe["black"] = value < 0.2, value < 0.35
    certainly, perhaps = ({n: float(m.mean()) for n, m in some.items()} for some in (clear, maybe))
    return certainly, perhaps


def colours(scene: Scene) -> Iterator[Entry]:
    """Such as "the red bus" of a blue one."""
    wrong: list[str] = []
    for name, some in scene.by_name.items():
        named = name != "person" if scene.dev else name in TABLES["has colour"]
        if not named or not all(t.exact and not t.crowd for t in some):
            continue
        if sum(t.mask.sum() for t in some) < SMALL:
            continue
        certain, perhaps = zip(*(colour_shares(_inside(scene, t)) for t in some), strict=True)
        for colour in certain[0]:
            so = [t for t, s in zip(some, certain, strict=True) if s[colour] >= CLEAR]
            others = [s[colour] for t, s in zip(some, perhaps, strict=True) if t not in so]
            if so and max(others, default=0) < ABSENT:
                yield scene.entry("colour", f"the {colour} {name}", so)
        none = [colour for colour in perhaps[0] if max(s[colour] for s in perhaps) < ABSENT]
        wrong += [f"the {colour} {name}" for colour in scene.draw(f"colour {name}", none, 2)]
    for query in scene.draw("colour", wrong, 2 * SOME):
        yield scene.entry("wrong colour", query)


def _inside(scene: Scene, thing: Thing) -> Pixels:
    """Pixels of a thing [n, 3], without its border where it is large enough."""
    small = cv2.resize(scene.rgb, thing.mask.shape[::-1], interpolation=cv2.INTER_AREA)
    inner = cv2.erode(thing.mask.astype(np.uint8), np.ones((3, 3), np.uint8), borderValue=1).astype(bool)
    return np.asarray(small[inner if inner.sum() >= SMALL / 4 else thing.mask])


# --- parts, places, sides, words, doings ------------------------------------------------------------------------------


def parts(scene: Scene) -> Iterator[Entry]:
    """Such as "the man's glasses" of a bare face; without a subject, a name that is not in the room."""
    if scene.subject:
        for name in scene.draw("part", (n for n in scene.by_name if n not in TABLES["no part"]), SOME):
            yield scene.entry("part", f"the {scene.subject}'s {name.removeprefix('car ')}", scene.by_name[name])
        for name in scene.draw("missing", scene.lacking, SOME):
            yield scene.entry("missing part", f"the {scene.subject}'s {name.removeprefix('car ')}")
    else:
        for name in scene.draw("missing", scene.lacking, SOME):
            yield scene.entry("absent, taught", f"the {name}")
    for subject, names in TABLES["missing"].get(scene.key, {}).items():
        for name in names:
            yield scene.entry("missing part", f"the {subject}'s {name}")


def places(scene: Scene) -> Iterator[Entry]:
    """Such as "the A on the B" of things far apart; true where one stands on the other."""
    false: dict[int, list[str]] = {SOME: [], 2 * SOME: []}
    for relation, hosts in TABLES["hosts"].items():
        for host in (h for h in hosts if h in scene.by_name):
            same = (host, *TABLES["same"].get(host, ()))
            there = [thing for name in same for thing in scene.by_name.get(name, ())]
            for name, some in scene.countable.items():
                query = f"the {name} {relation} the {host}"
                if name not in same and scene.gap(some, there) >= APART:
                    false[2 * SOME].append(query)
                elif so := [t for t in some if any(_is_at(scene, t, relation, h) for h in there) and name not in same]:
                    near = [t for t in some if scene.gap([t], there) <= TOUCHING]
                    yield scene.entry("place", query, near or so)
    for a, b in itertools.permutations(scene.countable, 2):
        query, gap = f"the {a} next to the {b}", scene.gap(scene.countable[a], scene.countable[b])
        if gap >= FAR:
            false[SOME].append(query)
        elif gap <= APART / 2 and _is_beside(scene.countable[a], scene.countable[b]):
            yield scene.entry("place", query, scene.countable[a])
    for most, queries in false.items():
        for query in scene.draw("apart", queries, most):
            yield scene.entry("apart", query)


def _is_at(scene: Scene, thing: Thing, relation: str, host: Thing) -> bool:
    """On: below its lowest part is the host, which can carry it. In: its box is in that of a container."""
    if relation == "in":
        return host.name in TABLES["containers"] and _overlap(thing.box, host.box) >= 0.9 * _area(thing.box)
    on_ground = host.name in TABLES["ground"]
    carries = TABLES["seats"] if thing.name == "person" else () if thing.name in TABLES["heavy"] else TABLES["tops"]
    if relation != "on" or not (on_ground or host.name in carries):
        return False
    people = scene.by_name.get("person", [])
    if people and thing.name in TABLES["held"] and scene.gap([thing], people) <= TOUCHING:
        return False
    shifted = np.zeros_like(thing.mask)
    shifted[3:] = thing.mask[:-3]
    foot = shifted & ~thing.mask
    low = thing.box[3] - max(2 * COARSE, 0.25 * (thing.box[3] - thing.box[1]))
    foot[: int(low / COARSE)] = False
    return bool(foot.any() and (foot & host.mask).sum() >= 0.5 * foot.sum())


def _is_beside(some: list[Thing], others: list[Thing]) -> bool:
    """Of one thing and one other: of about one size, and neither before the other."""
    if len(some) > 1 or len(others) > 1:
        return False
    a, b = some[0].box, others[0].box
    small, large = sorted((_area(a), _area(b)))
    level = min(a[3], b[3]) - max(a[1], b[1]) >= 0.5 * min(a[3] - a[1], b[3] - b[1])
    return level and large <= 8 * small and _overlap(a, b) <= 0.1 * small


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _area(box: tuple[float, ...]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def sides(scene: Scene) -> Iterator[Entry]:
    """Such as "the A left of the B" where every A is left of every B, beside it; and the other way round."""
    boxes = {name: _around(some) for name, some in scene.countable.items()}
    beside = [f"{a}/{b}" for a in boxes for b in boxes if _is_left(boxes[a], boxes[b])]
    for pair in scene.draw("side", beside, 2 * SOME):
        a, b = pair.split("/")
        yield scene.entry("side", f"the {a} left of the {b}", scene.by_name[a])
        yield scene.entry("side", f"the {b} right of the {a}", scene.by_name[b])
        yield scene.entry("other side", f"the {b} left of the {a}")
        yield scene.entry("other side", f"the {a} right of the {b}")


def _around(things: Iterable[Thing]) -> tuple[float, ...]:
    boxes = np.array([thing.box for thing in things])
    return *boxes[:, :2].min(0).tolist(), *boxes[:, 2:].max(0).tolist()


def _is_left(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Of two boxes: no overlap, and rather beside than above each other."""
    (x, y), (x1, y1) = (((box[0] + box[2]) / 2, (box[1] + box[3]) / 2) for box in (a, b))
    return a[2] <= b[0] and abs(y1 - y) <= x1 - x


def words(scene: Scene) -> Iterator[Entry]:
    """Such as "sugar bowl" of a bowl; true ones are other words for a thing."""
    right = TABLES["other words"].get(scene.key, {})
    for name in scene.by_name:
        for word in scene.draw(f"neighbour {name}", TABLES["neighbours"].get(name, ()), 2):
            if f"the {word}" not in right and word not in scene.by_name:
                yield scene.entry("neighbouring word", f"the {word}")
    for query, name in right.items():
        yield scene.entry("other word", query, _named(scene, name))


def doings(scene: Scene) -> Iterator[Entry]:
    """Such as "the person riding the horse" of a person who stands far from it."""
    people, false = scene.countable.get("person", []), list[str]()
    for doing, names in TABLES["doing"].items() if people else ():
        for name in (n for n in names if n in scene.countable):
            some, query = scene.countable[name], f"the person {doing} the {name}"
            if scene.gap(people, some) >= APART / 2:
                false.append(query)
            elif doing in ("riding", "holding", "carrying"):
                so = [p for p in people if scene.gap([p], some) == 0 and p.exact]
                if len(so) == 1 or (so and doing == "riding"):
                    yield scene.entry("doing", query, so)
        if doing == "riding" and not any(n in scene.by_name for n in names):
            false.append("what is the person riding?")
    for query in scene.draw("doing", false, 2 * SOME):
        yield scene.entry("not doing", query)
    for query in TABLES["not doing"].get(scene.key, ()):
        yield scene.entry("not doing", query)
    for query, name in TABLES["doing by hand"].get(scene.key, {}).items():
        yield scene.entry("doing", query, _named(scene, name))


def _named(scene: Scene, name: str) -> list[Thing]:
    """Things of a name; with ":0" behind it, the largest."""
    plain, _, which = name.partition(":")
    some = sorted(scene.by_name[plain], key=lambda thing: -int(thing.mask.sum()))
    return [some[int(which)]] if which else some


def plain(scene: Scene) -> Iterator[Entry]:
    """Names of things, by their share of the picture; names of what is not there."""
    for name, some in scene.countable.items():
        share = float(np.logical_or.reduce([t.mask for t in some]).mean())
        size = ("below 1 %", "1-5 %", "above 5 %")[int(np.searchsorted(SHARES, share))]
        yield scene.entry(f"plain, {size}", name, some)
    for kind in ("eighty", "everyday"):
        for name in scene.draw("absent", (n for n in TABLES[kind] if n not in scene.by_name), SOME):
            yield scene.entry(f"absent, {kind}", name)


def make(data: Path, out: Path) -> list[Entry]:
    """All questions, without those that were taken out."""
    photographs = out / "photographs"
    scenes = [*read_coco(data), *read_by_eye(data, photographs), *read_dense(data, photographs)]
    entries: dict[tuple[str, str], Entry] = {}
    for form in (colours, parts, places, sides, words, doings, plain):
        for scene in scenes:
            for entry in form(scene) if scene.dev or form in (colours, parts) else ():
                if entry["query"] not in TABLES["drop"].get(scene.key, ()):
                    entries.setdefault((entry["file"], entry["query"]), entry)
    return list(entries.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="as training/README.md describes it")
    parser.add_argument("--out", type=Path, required=True, help="a folder; queries.json is written there")
    options = parser.parse_args()
    entries = make(options.data, options.out)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "queries.json").write_text(json.dumps(entries), "utf-8")
    for kind, number in Counter(entry["kind"] for entry in entries).items():
        print(f"{number:5} {kind}")


if __name__ == "__main__":
    main()
