"""Names and their vectors: what the tower is taught to mean, and by which other words a class may be called."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

ADJECTIVES = """
red orange yellow green blue purple pink brown black white grey silver golden dark bright small large big tiny little
tall long short old new young wooden metal plastic glass stone striped spotted round square empty full open closed
broken clean dirty wet parked standing sitting
""".split()
NEAR = 0.6  # names closer than this may describe the same thing, so neither is a negative of the other


class TextTable:
    """text -> unit vector float32 [256], the mean of its pieces' rows."""

    def __init__(self, assets: Path) -> None:
        self.spell = Tokenizer.from_file(str(assets / "nano_tokenizer.json"))
        table = load_file(assets / "nano_text.safetensors")
        self.rows = table["rows"].astype(np.float32) * table["scale"].astype(np.float32)[:, None]

    def __call__(self, texts: list[str]) -> np.ndarray:
        ids = [e.ids for e in self.spell.encode_batch(texts, add_special_tokens=False)]
        out = np.stack([self.rows[i].mean(0) if i else np.zeros(self.rows.shape[1], np.float32) for i in ids])
        return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-9)


class Vocabulary:
    """Classes in one numbering: the detector's 80, then ImageNet's 1000, then tiny ImageNet's 200; and loose nouns."""

    def __init__(self, data: Path, assets: Path) -> None:
        self.encode = TextTable(assets)
        here = json.loads(Path(__file__).with_name("vocabulary.json").read_text())
        coco = json.loads((data / "text/coco_names.json").read_text())
        imagenet = (data / "teachers/imagenet_labels.txt").read_text().splitlines()[1:1001]
        tiny = json.loads((data / "train/tiny_imagenet.json").read_text())
        self.tiny = {wnid: 1080 + i for i, wnid in enumerate(tiny)}
        groups = [[name, *here[name]] for name in coco]
        groups += [english(line) for line in imagenet] + [english(entry["words"]) for entry in tiny.values()]
        texts = sorted({t for g in groups for t in g})
        vector = dict(zip(texts, self.encode(texts), strict=True))
        self.groups = [np.stack([vector[t] for t in g]) for g in groups]
        self.first = np.stack([g[0] for g in self.groups])
        self.described = [
            self.encode([f"{a} {n}" for a in ADJECTIVES for n in (name, *here[name][:2])]) for name in coco
        ]
        self.near = self.first @ self.first.T > NEAR
        nouns = {
            n
            for s in ("lvis", "openimages", "objects365")
            for n in json.loads((data / f"text/{s}_names.json").read_text())
        }
        self.nouns = self.encode(sorted(clean(n) for n in nouns))
        self.noun_near = self.nouns @ self.first.T > 0.45

    def sample(self, rng: random.Random, other: float = 0.5, adjective: float = 0.25) -> np.ndarray:
        """One text a class, its first name or (with probability `other`) another: unit vectors [1280, 256].

        With probability `adjective`, one of the detector's classes is called "small dog" or "red bus", whatever it is:
        the tower learns that such a phrase still means the noun. It does not learn what the adjective means.
        """
        out = np.stack([g[rng.randrange(len(g))] if rng.random() < other else g[0] for g in self.groups])
        for i, texts in enumerate(self.described):
            if rng.random() < adjective:
                out[i] = rng.choice(texts)
        return out


def english(line: str) -> list[str]:
    """The synonyms of a WordNet line, without Latin names ("goldfish, Carassius auratus" -> ["goldfish"])."""
    names = [clean(n) for n in line.split(",")]
    return [n for n in names if not re.fullmatch(r"[A-Z][a-z]+ [a-z]+", n)] or names[:1]


def clean(name: str) -> str:
    return re.sub(r"\(.*?\)", "", name).replace("_", " ").strip()
