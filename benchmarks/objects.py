"""Borders of segments and of objects against those of COCO's panoptic labels: precision, recall, share of the image.

    python -m benchmarks objects --data FOLDER

A COCO-style folder with masks.tar (panoptic/NAME.png, id = R + 256 G + 65536 B, 0 unlabelled). A cell's label is its
commonest pixel's; precision is the share of border cells within one cell of a true one, recall the reverse.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.common import CocoData, EncoderName, Half, Limit, each_of, time_calls
from foveate.channels.objects import find_objects
from foveate.channels.segments import mark_borders, segment_image
from foveate.cli.evaluate.coco import open_tar, read_folder
from foveate.core.errors import OptionError
from foveate.core.grid import reduce_plane
from foveate.encoders.load import load_encoder
from foveate.pipeline import encode

COLUMNS = ("borders of", "precision", "recall", "F", "borders", "an image")
Mask = NDArray[np.bool_]


def measure(data: CocoData, encoder: EncoderName = None, half: Half = None, limit: Limit = 128) -> dict[str, Any]:
    """Borders of segments and of objects against labels of pixels."""
    folder = read_folder(data).half(half)
    by, counts, images, seconds = load_encoder(encoder or "nano"), np.zeros((3, 6)), 0, []
    with open_tar(folder.path / "masks.tar") as find:
        for _, photograph in each_of(folder, limit):
            content = find(f"panoptic/{Path(photograph.name).stem}.png")
            if content is None:
                continue
            texture = encode(photograph.rgb, encoder=by, channels=["cluster_id", "object_id"])
            labels = read_labels(content, texture.grid.shape)
            planes = (*(texture.channel(name).astype(np.int64) for name in ("cluster_id", "object_id")), labels)
            quarter = (-(-texture.grid.height // 4), -(-texture.grid.width // 4))
            counts += [(*compare(ids, labels), mark_borders(ids, quarter).mean(), ids.max() + 1) for ids in planes]
            z = texture.coordinates().reshape(*texture.grid.shape, -1)
            seconds.append([
                np.median(time_calls(run, 3))
                for run in (
                    lambda t=texture, z=z: segment_image(t.pixel, z),
                    lambda t=texture, z=z, ids=planes[0]: find_objects(t.pixel, z, ids),
                )
            ])  # fmt: skip
            images += 1
    if not images:
        raise OptionError(
            f"no labels in '{folder.path / 'masks.tar'}'", expected="panoptic/NAME.png of the photographs",
            fix="see docs/evaluate.md, or choose another folder",
        )  # fmt: skip
    rows = []
    for name, (found, right, true, met, share, number) in zip(("segments", "objects", "labels"), counts, strict=True):
        precision, recall = right / max(found, 1), met / max(true, 1)
        f = 2 * precision * recall / max(precision + recall, 1e-9)
        numbers = {"precision": precision, "recall": recall, "F": f, "borders": share / images}
        texts = (*(f"{value:.3f}" for value in numbers.values()), f"{number / images:.1f}")
        rows.append({"what": name, **numbers, "number": number / images, "cells": [name, *texts]})
    ratio = float(np.median([merging / segmenting for segmenting, merging in seconds]))
    title = f"{images} photographs, {by.name}; merging takes {ratio:.2f} of the time of segmenting"
    known = {"images": images, "encoder": by.name, "merging_to_segmenting": ratio}
    return {"title": title, "columns": COLUMNS, "rows": rows, **known}


def read_labels(content: bytes, shape: tuple[int, int]) -> NDArray[np.int64]:
    """The commonest label of each cell, from a panoptic PNG: int64 [h, w], 0 unlabelled, others in any order."""
    with Image.open(io.BytesIO(content)) as image:
        rgb = np.asarray(image.convert("RGB")).astype(np.int64)
    values, numbers = np.unique(np.append(rgb @ [1, 256, 65536], 0), return_inverse=True)
    assert values[0] == 0
    return reduce_plane(numbers[:-1].reshape(rgb.shape[:2]).astype(np.float32), shape, "mode").astype(np.int64)


def compare(ids: NDArray[np.int64], labels: NDArray[np.int64]) -> tuple[int, int, int, int]:
    """Border cells found, those of them near a true one, true ones, those of them near a found one."""
    void = labels == 0
    borders, known = find_borders(ids, np.ones_like(void)), ~widen(void)
    true = find_borders(labels, ~void)
    found = borders & known
    return tuple(int(m.sum()) for m in (found, found & widen(true), true, true & widen(borders)))  # type: ignore[return-value]


def find_borders(ids: NDArray[np.int64], among: Mask) -> Mask:
    """Cells with another id in one of their four neighbours; both `among` those given."""
    out = np.zeros(ids.shape, bool)
    for a, b in ((np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1])):
        differ = (ids[a] != ids[b]) & among[a] & among[b]
        out[a] |= differ
        out[b] |= differ
    return out


def widen(mask: Mask) -> Mask:
    """A mask and the eight cells around each of its own."""
    return cv2.dilate(mask.astype(np.uint8), np.ones((3, 3), np.uint8)).astype(bool)
