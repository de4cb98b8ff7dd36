"""Questions of training/judges/collage's scenes with their three planes: what a balance is learned and judged by.

A scene's picture is drawn again, encoded as a user would, and its questions are scored; the planes are kept, a file a
scene, so this goes on where it was killed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

import foveate
from foveate.core.grid import resize_map
from foveate.relevance.fusion import information, perspective
from training.experiments.balance.reader import ids_of
from training.judges.collage.cutouts import cutouts, grounds
from training.judges.collage.features import Made, load
from training.judges.collage.model import VOCABULARY
from training.judges.collage.scenes import CELLS, Scene, draw, pick, pool_of, questions_of
from training.judges.micro_vlm.scenes import Question


@dataclass(frozen=True, eq=False)
class Asked:
    """Questions of some scenes, one row each.

    Attributes:
        made: the scenes. scene: int64 [q]. families: of each question.
        ids: int64 [q, n]. answers: int64 [q]. planes: float32 [q, 3, 256]. masks: float32 [q, 256], the things' cells.
    """

    made: Made
    scene: NDArray[np.int64]
    families: NDArray[np.str_]
    ids: Tensor
    answers: Tensor
    planes: Tensor
    masks: Tensor


def questions(made: Made, scene: int, count: int) -> list[Question]:
    """`count` of a scene's questions, or all; always the same."""
    if not questions_of(made.scenes[scene]):
        return []
    return list(dict.fromkeys(pick(made.scenes[scene], count, np.random.default_rng([3, scene]))))


def digest(scene: Scene, some: Sequence[Question]) -> str:
    """Of a scene and what is asked: the name of its file."""
    return hashlib.sha256("\n".join([scene.line(), *(q.text for q in some)]).encode()).hexdigest()[:16]


def asked(data: Path, collage: Path, out: Path, side: str, *, scenes: int, count: int) -> Asked:
    """The first scenes of a side ("train", "held") with up to `count` questions each; makes what is not in `out`."""
    made, folder = load(collage, side), out / side
    folder.mkdir(parents=True, exist_ok=True)
    per_scene = [questions(made, number, count) for number in range(min(scenes, len(made.scenes)))]
    files = [folder / f"{digest(made.scenes[n], some)}.npy" for n, some in enumerate(per_scene)]
    missing = [n for n, file in enumerate(files) if per_scene[n] and not file.exists()]
    if missing:
        held = side == "held"
        pool, behind = pool_of(cutouts(data, held_out=held)), grounds(data, held_out=held)
        for number in tqdm(missing, desc=f"planes, {side}", mininterval=5):
            picture, shown = draw(made.scenes[number], pool, behind[made.scenes[number].ground])
            np.testing.assert_array_equal(shown, made.shown[number])  # the scene that the features are of
            planes = scene_planes(picture, [question.text for question in per_scene[number]])
            fresh = folder / "new.npy"
            np.save(fresh, planes)
            fresh.replace(files[number])
    return gathered(made, per_scene, [np.load(file) for some, file in zip(per_scene, files, strict=True) if some])


def gathered(made: Made, per_scene: Sequence[Sequence[Question]], planes: Sequence[NDArray[np.float32]]) -> Asked:
    """Questions of scene 0, 1, ... and their planes [q, 3, 256] as one value."""
    flat = [(number, question) for number, some in enumerate(per_scene) for question in some]
    masks = [np.isin(made.shown[number][0], question.needs) for number, question in flat]
    return Asked(
        made=made,
        scene=np.array([number for number, _ in flat]),
        families=np.array([question.family for _, question in flat]),
        ids=ids_of([question.text for _, question in flat]),
        answers=torch.tensor([VOCABULARY[question.answer] for _, question in flat]),
        planes=torch.from_numpy(np.concatenate(planes)),
        masks=torch.from_numpy(np.stack(masks).astype(np.float32)),
    )


def scene_planes(picture: NDArray[np.uint8], texts: Sequence[str]) -> NDArray[np.float32]:
    """Information, perspective and each question's own map on 16 x 16 tokens: float32 [q, 3, 256]."""
    texture = foveate.encode(picture)
    fixed = [resize_map(plane, (CELLS, CELLS)).ravel() for plane in (information(texture), perspective(texture))]
    found = [foveate.score(texture, text).on((CELLS, CELLS)).map.ravel() for text in texts]
    return np.array([[*fixed, own] for own in found], np.float32)
