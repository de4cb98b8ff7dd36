"""What a basis keeps on a collection's own images, rank by rank: whether it is good enough, and which rank would be.

docs/basis.md explains the numbers: means over images of what a texture file keeps (float16).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import ImageError, OptionError, TextureEncoderError
from foveate.core.image import load_image
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import query_metric_of
from foveate.store.shared_basis import FittedBasis
from foveate.store.sources import encode_picture
from foveate.texture.basis import Basis, inward, rounded_up

Floats = NDArray[np.float32]
RANKS = (4, 8, 16, 32, 64, 128)
SHARE = 273 / 4096
NEAREST = 10
PERCENT = 99  # of the questions and cells below `observed` and `allowed`
TINY = 1e-12
LIMITS = {"variance": 0.5, "error": 0.7, "spearman": 0.9, "overlap": 0.7, "neighbours": 0.8}  # what is good enough
MEANS = ("variance", "error", "spearman", "overlap", "observed", "allowed")


@dataclass(frozen=True)
class Checked:
    """A basis on a folder.

    Attributes:
        rows: by rank, ascending, the numbers of docs/basis.md by name; `rank`, the basis's, is among them.
        limits: of some of them: of the error from above, of the others from below.
        worst: (path, spearman) of the images that lose most at the basis's rank, the worst first.
        bad: (path, why) of images that could not be read.
    """

    rows: Mapping[int, Mapping[str, float]]
    rank: int
    limits: Mapping[str, float]
    worst: tuple[tuple[str, float], ...]
    images: int
    questions: int
    bad: tuple[tuple[str, str], ...] = ()

    def failed(self, rank: int) -> list[str]:
        """Names of the numbers that miss their limit."""
        signs = {name: -1 if name == "error" else 1 for name in self.limits}
        return [n for n, sign in signs.items() if not sign * self.rows[rank][n] >= sign * self.limits[n]]

    @property
    def enough(self) -> int | None:
        """The lowest rank that passes; None if none does."""
        return next((rank for rank in self.rows if not self.failed(rank)), None)

    def report(self) -> dict[str, Any]:
        return {
            "passed": not self.failed(self.rank),
            **{name: getattr(self, name) for name in ("rank", "enough", "images", "questions")},
            "limits": dict(self.limits),
            "rows": [{"rank": rank, **row, "failed": self.failed(rank)} for rank, row in self.rows.items()],
            "worst": [{"image": path, "spearman": value} for path, value in self.worst],
            "bad": [{"image": path, "why": why} for path, why in self.bad],
        }


def check(
    basis: FittedBasis,
    images: Sequence[Path],
    encoder: Encoder,
    questions: NDArray[np.floating],
    limits: Mapping[str, float] = LIMITS,
    progress: Callable[[int], None] = lambda done: None,
) -> Checked:
    """Compare full and compressed features of images; `questions`: unit text vectors [q, D].

    Raises OptionError for another encoder's basis, or without any readable image; EncoderOutputError.
    """
    encoder_for(basis, encoder)
    ranks = sorted({*(rank for rank in RANKS if rank <= len(basis.directions)), basis.rank})
    q, metric = np.asarray(questions, np.float32), query_metric_of(encoder)
    known = [(basis.basis(rank), inward(basis.basis(rank), metric)) for rank in ranks]
    numbers, means, read, bad = list[NDArray[np.float64]](), list[Floats](), list[str](), list[tuple[str, str]]()
    for done, path in enumerate(images, 1):
        try:
            picture = load_image(path)
        except ImageError as error:
            bad.append((str(path), error.received))
        else:
            dense = encode_picture(encoder, picture, picture.size, None)
            x = dense.full(encoder.width).reshape(dense.grid.count, -1).astype(np.float32)
            found = [_kept(x, q, *each) for each in known]
            numbers.append(np.array([values for values, _ in found]))
            means.append(np.stack([x.mean(0), *(mean for _, mean in found)]))
            read.append(str(path))
        progress(done)
    if not read:
        raise OptionError(f"{len(bad)} images, none of them readable", expected="images", fix="see the bad ones")
    every, average = np.stack(means), np.mean(numbers, 0).tolist()
    rows = {
        rank: {**dict(zip(MEANS, each, strict=True)), "neighbours": overlap_nearest(every[:, 0], every[:, place])}
        for place, (rank, each) in enumerate(zip(ranks, average, strict=True), 1)
    }
    spearman = np.stack(numbers)[:, ranks.index(basis.rank), MEANS.index("spearman")]
    worst = tuple((read[place], float(spearman[place])) for place in spearman.argsort(kind="stable")[:8])
    return Checked(rows, basis.rank, limits, worst, len(read), len(q), tuple(bad))


def encoder_for(basis: FittedBasis, given: str | Encoder | None) -> Encoder:
    """The encoder given, or the built-in one that a basis names: a file loads no other. Raises OptionError."""
    try:
        return match_encoder(basis.encoder, given)
    except TextureEncoderError as cause:
        raise OptionError(
            f"a basis for '{basis.encoder.name}', revision {basis.encoder.revision}",
            expected=cause.expected,
            fix="name its encoder with --encoder, or fit a basis for this one",
        ) from cause


def _kept(x: Floats, q: Floats, basis: Basis, inside: Floats) -> tuple[list[float], Floats]:
    """Numbers of an image, in the order of MEANS, and the mean of its features [n, D], as a texture file has them."""
    full, restored = np.asarray(q @ x.T, np.float32), basis.restore(((x - basis.mean) @ inside).astype(np.float16))
    scores, lost = np.asarray(q @ restored.T, np.float32), np.linalg.norm(x - restored, axis=1)
    squared, total = float((lost**2).sum()), float(((x - basis.mean) ** 2).sum())
    allowed = np.linalg.norm(q, axis=1)[:, None] * rounded_up(lost).astype(np.float32)
    values = [
        1 - squared / max(total, TINY),
        float(np.sqrt(squared / max(float((x**2).sum()), TINY))),
        *likeness(full, scores),
        float(np.percentile(np.abs(full - scores), PERCENT)),
        float(np.percentile(allowed, PERCENT)),
    ]
    return values, restored.mean(0)


def likeness(full: Floats, other: Floats) -> tuple[float, float]:
    """Mean over queries of (Spearman correlation, overlap of the top cells) of two stacks of maps [q, cells]."""
    a, b = (np.argsort(np.argsort(m, 1, kind="stable"), 1, kind="stable").astype(np.float64) for m in (full, other))
    count, cells = max(1, round(SHARE * full.shape[1])), full.shape[1]
    centred_a, centred_b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    spread = np.sqrt((centred_a**2).sum(1) * (centred_b**2).sum(1))
    spearman = (centred_a * centred_b).sum(1) / np.maximum(spread, 1e-12)
    overlap = ((a >= cells - count) & (b >= cells - count)).sum(1) / count
    return float(spearman.mean()), float(overlap.mean())


def overlap_nearest(full: Floats, small: Floats) -> float:
    """Of rows of two stacks of vectors [n, D]: the mean share of the ten nearest (by cosine) that both have."""
    nearest = min(NEAREST, len(full) - 1)
    if nearest < 1:
        return 1.0
    found = []
    for vectors in (full, small):
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        cosine = unit @ unit.T
        np.fill_diagonal(cosine, -2)
        found.append(np.argsort(np.argsort(-cosine, 1, kind="stable"), 1, kind="stable") < nearest)
    return float(np.mean((found[0] & found[1]).sum(1) / nearest))
