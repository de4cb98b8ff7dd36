"""CLIP encoders of real sizes with random weights, through foveate's own encoder: nothing is downloaded.

Time does not depend on what the weights are. Words become numbers by a checksum, one for each, as a byte-pair tokenizer
does for usual words; long lists (the nouns that every question competes with, made once a process) get random vectors,
or a minute would go into what no row counts.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import CLIPConfig, CLIPModel

from foveate.core.grid import Floats
from foveate.encoders.clip import ClipEncoder

START, END = 49406, 49407  # of OpenAI's vocabulary
LONG = 64  # texts at once from which they are nouns, and nobody's question
BASE = {
    "text_config": {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8},
    "vision_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "patch_size": 16},
    "projection_dim": 512,
}  # fmt: skip
LARGE = {
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    "vision_config": {
        "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "patch_size": 14,
    },
    "projection_dim": 768,
}  # fmt: skip
SIZES: dict[str, tuple[dict[str, Any], int]] = {  # and the side in pixels that the checkpoint was trained at
    "clip-b16": (BASE, 224),
    "clip-l14": (LARGE, 224),
}


class RandomClip(ClipEncoder):
    """A CLIP model without a tokenizer's files."""

    def tokenize(self, texts: list[str]) -> dict[str, Any]:
        ids = [
            [START, *(zlib.crc32(word.encode()) % START for word in re.findall(r"\w+|[^\w\s]", text.lower())), END]
            for text in texts
        ]
        longest = max(map(len, ids))
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
        return {"input_ids": torch.tensor([row + [END] * (longest - len(row)) for row in ids]), "attention_mask": mask}

    def encode_text(self, texts: Sequence[str]) -> Floats:
        if len(texts) <= LONG:
            return super().encode_text(texts)
        vectors = np.random.default_rng(0).standard_normal((len(texts), self.width), np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def random_clip(size: str, layers: int | None = None) -> RandomClip:
    """An encoder of one of SIZES; `layers` of both its networks, None for all."""
    config, side = SIZES[size]
    cut = {} if layers is None else {"num_hidden_layers": layers}
    vision, text = {**config["vision_config"], "image_size": side, **cut}, {**config["text_config"], **cut}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = CLIPModel(CLIPConfig(**{**config, "vision_config": vision, "text_config": text}))
    return RandomClip(model, None, name=f"clip:random-{size}", revision="random", dense="naclip")


def count_flops(size: str, tokens: int) -> float:
    """Of one pass of the image network over so many tokens: 2 a weight and token, and attention."""
    vision = SIZES[size][0]["vision_config"]
    width, inner, layers = vision["hidden_size"], vision["intermediate_size"], vision.get("num_hidden_layers", 12)
    return float(layers * (2 * tokens * (4 * width * width + 2 * width * inner) + 4 * tokens * tokens * width))


def count_tokens(size: str, pixels: int) -> int:
    """Patches of a square and the class token."""
    return int((pixels // SIZES[size][0]["vision_config"]["patch_size"]) ** 2 + 1)
