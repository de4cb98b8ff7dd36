"""The detector's scores painted over its boxes (training/nano/paint.py): a NumPy twin, and what holds for any input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
from training.nano import paint  # noqa: E402

Floats = NDArray[np.float64]
NAMES = 5


def made(
    seed: int, shape: tuple[int, int], n: int = 1, high: float = 0.9, seen: tuple[int, int] | None = None
) -> tuple[list[Any], list[Any], Any, Any, Any]:
    """Scores, raw boxes, features, total and people of n images: a few strong answers, everything else weak.

    `seen`: the detector's finest grid, where it is not that of the features.
    """
    draw = np.random.default_rng(seed)
    sizes = [((seen or shape)[0] // 2**i, (seen or shape)[1] // 2**i) for i in range(3)]
    scores = [draw.uniform(0, high, (n, NAMES, *s)) * (draw.random((n, 1, *s)) < 0.1) for s in sizes]
    raw = [draw.normal(0, 1, (n, 4, *s)) for s in sizes]
    features, total = draw.normal(0, 1, (n, 7, *shape)), draw.uniform(0, 1, (n, NAMES, *shape)) ** 3
    people = draw.random((n, 2, *shape)) ** 2
    tensors: list[Any] = [[torch.from_numpy(a) for a in some] for some in (scores, raw, [features, total, people])]
    return tensors[0], tensors[1], *tensors[2]


Box = tuple[float, float, float, float]


def answers(scores: list[Any], raw: list[Any], shape: tuple[int, int]) -> list[tuple[float, Floats, Box]]:
    """(best, scores, box (y0, x0, y1, x1) in cells of `shape`) of the answers of one image, one by one, best first."""
    found = []
    fine = scores[0].shape[-2:]
    ky, kx = shape[0] / fine[0], shape[1] / fine[1]
    for level, (s, r) in enumerate(zip(scores, raw, strict=True)):
        s, r = s[0].numpy(), r[0].numpy()
        best = s.max(0)
        for y, x in np.ndindex(*best.shape):
            around = best[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
            if best[y, x] > paint.LEAST and best[y, x] >= around.max():
                cy, cx = (r[1, y, x] + y) * 2**level * ky, (r[0, y, x] + x) * 2**level * kx
                hy, hx = (max(np.exp(r[at, y, x]) / 2 * 2**level * k, paint.HALF) for at, k in ((3, ky), (2, kx)))
                found.append((best[y, x], s[:, y, x], (cy - hy, cx - hx, cy + hy, cx + hx)))
    return sorted(found, key=lambda one: -one[0])[: paint.SPOTS]


def share_in(box: Box, y: int, x: int) -> float:
    high = max(0.0, min(box[2], y + 1) - max(box[0], y))
    return float(high * max(0.0, min(box[3], x + 1) - max(box[1], x)))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def twin(scores: list[Any], raw: list[Any], features: Any, total: Any, people: Any = None) -> Floats:
    """The formulas of paint.py with a loop for every sum: one image."""
    f, t0 = features[0].numpy(), total[0].numpy()
    f = (f - f.mean((1, 2), keepdims=True)) / np.sqrt(f.var((1, 2), keepdims=True) + 1e-5)
    h, w = t0.shape[1:]
    found = []
    for best, said, (y0, x0, y1, x1) in answers(scores, raw, (h, w)):
        my, mx = paint.FRAME * (y1 - y0) + 1, paint.FRAME * (x1 - x0) + 1
        box, frame, core = np.zeros((h, w)), np.zeros((h, w)), np.zeros((h, w))
        for y, x in np.ndindex(h, w):
            box[y, x] = share_in((y0, x0, y1, x1), y, x)
            frame[y, x] = share_in((y0 - my, x0 - mx, y1 + my, x1 + mx), y, x) - box[y, x]
            away = [(2 * at + 1 - a - b) / (b - a) / paint.CORE for at, a, b in ((y, y0, y1), (x, x0, x1))]
            core[y, x] = np.exp(sum(max(-0.5 * u * u, paint.FADED) for u in away))
        if frame.sum() < paint.FRAME_CELLS:
            like = np.ones((h, w))
        else:
            seen, beside = ((f * weight).sum((1, 2)) / weight.sum() for weight in (core, frame))
            d = seen - beside
            t = np.einsum("chw,c->hw", f - beside[:, None, None], d) / max(d @ d, 1e-6)
            like = sigmoid(paint.STEEP * (t - paint.MIDDLE))
        said = np.where(said > paint.FAINT, said, 0)
        found.append((best, said, (y1 - y0) * (x1 - x0), box, like, core / core.sum()))
    fourth = np.zeros_like(t0)
    for _, said, area, box, like, core in found:
        before = np.zeros((h, w))
        for best, other, size, its_box, its_like, _ in found:
            unlike = 1 - said @ other / np.linalg.norm(said) / np.linalg.norm(other)
            smaller = sigmoid(paint.SMALLER * (np.log(area / size) - paint.MARGIN))
            before += unlike * smaller * best * its_box * its_like
        shape = np.stack([like] * NAMES)
        if people is not None:
            sure, face = people[0].numpy()
            trust = min(1.0, paint.TRUST * (core * sure).sum())
            shape[paint.PERSON] = (1 - trust) * like + trust * sure * (1 - paint.FACE * (1 - face))
        shape = shape * box * np.exp(-paint.RIVAL * before)
        fourth += (paint.SHARE * said[:, None, None] * shape) ** 4
    return np.asarray(1 - (1 - paint.KEPT * t0) * (1 - fourth**0.25))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("shape", "seen"), [((8, 12), None), ((4, 4), None), ((20, 8), None), ((16, 12), (20, 16)), ((4, 4), (8, 8))]
)
def test_it_equals_its_formula(seed: int, shape: tuple[int, int], seen: tuple[int, int] | None) -> None:
    scores, raw, features, total, people = made(seed, shape, seen=seen)
    for given_people in (None, people):
        painted = paint.paint(scores, raw, features, total, given_people)
        assert np.allclose(painted[0].numpy(), twin(scores, raw, features, total, given_people), atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(4, 4), (8, 12), (16, 8)]))
def test_images_of_a_batch_are_apart_and_paint_adds_to_what_is_kept(seed: int, shape: tuple[int, int]) -> None:
    scores, raw, features, total, people = made(seed, shape, n=2)
    painted = paint.paint(scores, raw, features, total, people)
    assert (painted >= paint.KEPT * total - 1e-9).all()
    assert (painted <= 1 + 1e-9).all()
    for i in range(2):
        one = slice(i, i + 1)
        alone = paint.paint([s[one] for s in scores], [r[one] for r in raw], features[one], total[one], people[one])
        assert torch.allclose(painted[one], alone)


def test_weak_answers_paint_nothing() -> None:
    scores, raw, features, total, people = made(0, (8, 12), high=paint.LEAST)
    assert torch.allclose(paint.paint(scores, raw, features, total, people), paint.KEPT * total)
