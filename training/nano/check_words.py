"""Does nano understand words that it was never taught? Synonyms, adjectives, nonsense.

    python -m training.nano.check_words --data DATA/dev/coco128

* synonyms that training never used (vocabulary.json holds those that it did), asked instead of the class name;
* an adjective before the name, taught ("red bus") and never taught ("shabby bus"): no worse than the noun alone?
* words that do not exist: how confident is it?

Run it with foveate installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import foveate
from foveate.cli.evaluate.agreement import Agreement, agreement
from foveate.cli.evaluate.coco import read_folder
from foveate.core.grid import resize_map

SYNONYMS = {
    "person": "pedestrian", "bicycle": "two-wheeler", "car": "motorcar", "motorcycle": "superbike",
    "airplane": "jetliner", "bus": "omnibus", "train": "subway", "truck": "semi-trailer", "boat": "yacht",
    "traffic light": "street light", "bird": "gull", "cat": "feline", "dog": "canine", "horse": "stallion",
    "elephant": "mammoth", "bear": "cub", "backpack": "daypack", "umbrella": "canopy", "handbag": "tote",
    "suitcase": "trunk", "bottle": "flask", "wine glass": "champagne", "cup": "beverage", "bowl": "saucer",
    "sandwich": "panini", "broccoli": "veggies", "hot dog": "sausage", "pizza": "flatbread", "donut": "cruller",
    "cake": "dessert", "chair": "recliner", "couch": "divan", "potted plant": "shrub", "bed": "bedstead",
    "tv": "display", "laptop": "netbook", "cell phone": "handset", "refrigerator": "cooler", "book": "paperback",
    "clock": "timepiece", "vase": "ceramic pot", "teddy bear": "soft toy",
}  # fmt: skip
ADJECTIVES = ("red", "wooden", "shabby", "expensive")
NONSENSE = ("blorptang", "xqzvk", "flarnimoodle", "grubwixen", "zzyphrog", "wumbledorf", "qwertzuiop", "snorvible")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    found: dict[str, list[Agreement]] = {}
    nonsense: list[float] = []
    for item in read_folder(args.data).labelled():
        texture = foveate.encode(item.rgb)
        nonsense += list(foveate.score(texture, [f'"{word}"' for word in NONSENSE]).confidence)
        for name, mask in item.masks.items():

            def ask(text: str, mask: np.ndarray = mask, texture: foveate.Texture = texture) -> Agreement:
                return agreement(resize_map(foveate.score(texture, f'"{text}"').logits, mask.shape), mask)

            found.setdefault("name", []).append(ask(name))
            for adjective in ADJECTIVES:
                found.setdefault(f"{adjective} NAME", []).append(ask(f"{adjective} {name}"))
            if name in SYNONYMS:
                found.setdefault("name, where a synonym is known", []).append(ask(name))
                found.setdefault("synonym", []).append(ask(SYNONYMS[name]))
    for label, values in found.items():
        mean = Agreement(*np.mean(values, 0))
        numbers = f"pointing {mean.pointing:.3f}  precision {mean.precision:.3f}  coverage {mean.coverage_10:.3f}"
        print(f"{label:32s} {numbers}  ({len(values)} pairs)")
    called = np.mean(np.array(nonsense) >= 0.5)
    print(f"nonsense: mean confidence {np.mean(nonsense):.2f}, 'present' for {called:.3f} of {len(nonsense)} questions")


if __name__ == "__main__":
    main()
