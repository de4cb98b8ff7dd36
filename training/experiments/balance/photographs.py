"""Planes of photographs' questions, for learning by masks and for judging what was learned elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

import foveate
from foveate.core.grid import resize_map
from foveate.relevance.fusion import Fusion, information, perspective
from training.experiments.examples import Example, Map

SIDE = 16  # cells a side of the documents' 256 candidates


def planes(example: Example) -> list[NDArray[np.float32]]:
    """Of each question: information, perspective and participation on the texture's cells, float32 [3, h, w]."""
    texture = example.texture
    fixed = [information(texture), perspective(texture)]
    return [np.stack([*fixed, foveate.score(texture, asked.text).map]) for asked in example.asked]


def small(examples: Callable[[], Sequence[Example]], file: Path) -> tuple[Tensor, Tensor]:
    """Planes float32 [q, 3, 256] and shares of the cells on the mask [q, 256]; kept in `file` (npz)."""
    if not file.exists():
        found, masks = [], []
        for example in tqdm(examples(), desc="planes", mininterval=5):
            for asked, each in zip(example.asked, planes(example), strict=True):
                found.append([resize_map(plane, (SIDE, SIDE)).ravel() for plane in each])
                masks.append(resize_map(asked.mask.astype(np.float32), (SIDE, SIDE)).ravel())
            example.__dict__.pop("texture", None)  # memory
        fresh = file.with_suffix(".new.npz")
        np.savez(fresh, planes=np.array(found, np.float32), masks=np.array(masks, np.float32))
        fresh.replace(file)
    kept = np.load(file)
    return torch.from_numpy(kept["planes"]), torch.from_numpy(kept["masks"])


def maps(example: Example, ways: dict[str, Fusion]) -> list[dict[str, Map]]:
    """Of each question: the map of every fusion."""
    found: list[dict[str, Map]] = [
        {way: fusion.fuse(*each) for way, fusion in ways.items()} for each in planes(example)
    ]
    example.__dict__.pop("texture", None)
    return found
