"""Ratios that must hold on any machine: each quick way beside its slow twin, in one run. `make test` asks for them.

    python -m benchmarks ratios

No time is judged. A pair is measured in turn, and once more, twice, if it falls short. `least` is half of what was
measured, or less (of a plain question four fifths).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.common import KEPT, PHOTO, crop_square, new_questions, ratio_row, time_in_turn
from foveate.allocation.policies import top_cells
from foveate.channels.segments import run_lloyd
from foveate.core.checks import check_choice
from foveate.core.image import load_image
from foveate.encoders.load import load_encoder
from foveate.pipeline import allocate, encode, score
from foveate.relevance.options import CheckedScoring
from foveate.texture.basis import compress, principal
from foveate.video.state import StreamSettings, step

SIDE, CROP, CROPS, STEPS = 512, 64, 50, 8
TRIES = 3


class Twins(NamedTuple):
    """Two ways to the same thing; the quick one must be so many times quicker."""

    name: str
    slow: Callable[[], Any]
    quick: Callable[[], Any]
    least: float
    calls: int


Check = Callable[[], Twins]


def selecting() -> Twins:
    """Ties go to the lower index in both; measured: 6."""
    scores = np.random.default_rng(0).standard_normal(64 * 64).astype(np.float32)
    return Twins(
        "the best 273 of 4,096: top_cells for a stable sort of all",
        lambda: [np.sort(np.argsort(-scores, kind="stable")[:KEPT]) for _ in range(20)],
        lambda: [top_cells(scores, KEPT) for _ in range(20)],
        least=2, calls=15,
    )  # fmt: skip


def compressing() -> Twins:
    """Directions of rank 24 by iteration, and all 768 exactly; measured: 5."""
    random, width = np.random.default_rng(0), 768
    turned = np.linalg.qr(random.standard_normal((width, width)))[0]
    cells = random.standard_normal((1024, width)) / np.arange(1, width + 1) @ turned  # as features of towers decline
    return Twins(
        "a basis of rank 24 of 768: compress for exact eigenvectors",
        lambda: principal(np.cov(cells.T), None),
        lambda: compress(cells),
        least=2, calls=5,
    )  # fmt: skip


def scoring() -> Twins:
    """A question that was asked of the texture before, and a new one; measured: 11."""
    texture = encode(crop_square(PHOTO, SIDE))
    fresh = new_questions()
    return Twins(
        "score: a known text for a new one",
        lambda: score(texture, next(fresh)),
        lambda: score(texture, "a dog"),
        least=2, calls=20,
    )  # fmt: skip


def encoding() -> Twins:
    """The whole image in one pass, and less than a fifth of the crops; measured: 3."""
    encoder, photograph = load_encoder("nano"), crop_square(PHOTO, SIDE)
    places = np.random.default_rng(0).integers(0, SIDE - CROP, (CROPS, 2))
    crops = [photograph[y : y + CROP, x : x + CROP] for y, x in places]
    return Twins(
        f"one dense pass for {CROPS} of 273 crops",
        lambda: [encoder.encode_image(crop, long_side=CROP) for crop in crops],
        lambda: encoder.encode_image(photograph),
        least=1.2, calls=3,
    )  # fmt: skip


def reusing() -> Twins:
    """A further question of a texture, and the image encoded again for it; measured: hundreds."""
    photograph, asked = crop_square(PHOTO, SIDE), "a dog"
    texture = encode(photograph)
    return Twins(
        "a further question: the texture for encoding again",
        lambda: score(encode(photograph), asked),
        lambda: score(texture, asked),
        least=50, calls=3,
    )  # fmt: skip


def following() -> Twins:
    """A frame whose features were propagated, and the same frame encoded; measured: 5."""
    photograph = load_image(PHOTO).rgb[:448]
    first, second = photograph[:, :-4], photograph[:, 4:]
    settings = StreamSettings(encoder=load_encoder("nano"), names=())
    before, _ = step(None, first, "first", ("a dog",), settings)
    return Twins(
        "a frame of video: propagated for encoded",
        lambda: step(None, second, "second", ("a dog",), settings),
        lambda: step(before, second, "second", ("a dog",), settings),
        least=2, calls=4,
    )  # fmt: skip


def gathering() -> Twins:
    """Rows of 40 channels of a texture's table, which it keeps, and 40 planes at the same cells; measured: 4 to 8."""
    texture = encode(crop_square(PHOTO, SIDE))
    planes = [np.ascontiguousarray(plane) for plane in texture.tokens().T]
    kept = np.sort(np.random.default_rng(0).permutation(texture.grid.count)[:KEPT])
    return Twins(
        f"40 channels of {KEPT} cells: texture.tokens for 40 planes",
        lambda: [np.stack([plane[kept] for plane in planes], 1) for _ in range(20)],
        lambda: [texture.tokens()[kept] for _ in range(20)],
        least=1.5, calls=15,
    )  # fmt: skip


def asking() -> Twins:
    """A plain question, and the same through all that others need: weights named, as they are; measured: 1.4."""
    texture, text = encode(crop_square(PHOTO, SIDE)), "a dog"
    usual = CheckedScoring().smoothing
    return Twins(
        "score and allocate: a plain question for the general way",
        lambda: [allocate(score(texture, text, smoothing=usual), KEPT) for _ in range(10)],
        lambda: [allocate(score(texture, text), KEPT) for _ in range(10)],
        least=1.1, calls=25,
    )  # fmt: skip


def clustering() -> Twins:
    """Lloyd's iteration by products of whole numbers, and by all differences; measured: 8."""
    points = np.round(np.random.default_rng(0).normal(0, 40, (4096, 29)))

    def plain(centres: NDArray[np.float64]) -> None:
        for _ in range(STEPS):
            ids = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
            centres = np.stack([np.round(points[ids == i].mean(0)) for i in range(len(centres))])

    return Twins(
        "clusters of 4,096 cells: run_lloyd for all differences",
        lambda: plain(points[:12]),
        lambda: run_lloyd(points, points[:12], STEPS),
        least=3, calls=4,
    )  # fmt: skip


CHECKS: tuple[Check, ...] = (
    selecting, gathering, asking, scoring, reusing, clustering, compressing, encoding, following,
)  # fmt: skip


def measure(
    calls: Annotated[int, typer.Option(help="Times as many calls of each pair as `make test` takes.")] = 5,
    only: Annotated[str, typer.Option(help="Checks, with commas between [default: all].")] = "",
) -> dict[str, Any]:
    """Each quick way beside its slow twin; status 1 if one is not quick enough."""
    known = {check.__name__: check for check in CHECKS}
    names = [check_choice("--only", name.strip(), tuple(known), fix="") for name in only.split(",") if name.strip()]
    rows = [hold(known[name](), calls) for name in names or known]
    return {"title": "a slow way / its quick twin, medians in turn", "rows": rows}


def hold(twins: Twins, calls: int = 1, tries: int = TRIES) -> dict[str, Any]:
    """The row of a pair, from the first try that holds, or else the last."""
    for _ in range(tries):
        slow, quick = time_in_turn(twins.slow, twins.quick, calls * twins.calls)
        row = ratio_row(twins.name, slow, quick, f">= {twins.least:g} x")
        if row["median"] >= twins.least:
            break
    return row | {"holds": bool(row["median"] >= twins.least)}
