"""Painting the detector's scores over its boxes (training/paint.py): a NumPy twin, and what holds for any input."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
paint = import_module("paint")

Floats = NDArray[np.float64]
NAMES = 5


def made(seed: int, shape: tuple[int, int], n: int = 1, high: float = 0.9) -> tuple[list[Any], list[Any], Any, Any]:
    """Scores, raw boxes, features and total of n images: a few strong answers, everything else weak."""
    draw = np.random.default_rng(seed)
    sizes = [(shape[0] // 2**i, shape[1] // 2**i) for i in range(3)]
    scores = [draw.uniform(0, high, (n, NAMES, *s)) * (draw.random((n, 1, *s)) < 0.1) for s in sizes]
    raw = [draw.normal(0, 1, (n, 4, *s)) for s in sizes]
    features, total = draw.normal(0, 1, (n, 7, *shape)), draw.uniform(0, 1, (n, NAMES, *shape)) ** 3
    tensors: list[Any] = [[torch.from_numpy(a) for a in arrays] for arrays in (scores, raw, [features, total])]
    return tensors[0], tensors[1], tensors[2][0], tensors[2][1]


def answers(scores: list[Any], raw: list[Any]) -> list[tuple[float, Floats, tuple[float, float, float, float]]]:
    """(best, scores, box (y0, x0, y1, x1) in fine cells) of the answers of one image, one by one, the best first."""
    found = []
    for level, (s, r) in enumerate(zip(scores, raw, strict=True)):
        s, r = s[0].numpy(), r[0].numpy()
        best = s.max(0)
        for y, x in np.ndindex(*best.shape):
            around = best[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
            if best[y, x] > paint.LEAST and best[y, x] >= around.max():
                cy, cx = (r[1, y, x] + y) * 2**level, (r[0, y, x] + x) * 2**level
                hy, hx = (max(np.exp(r[k, y, x]) / 2 * 2**level, paint.HALF) for k in (3, 2))
                found.append((best[y, x], s[:, y, x], (cy - hy, cx - hx, cy + hy, cx + hx)))
    return sorted(found, key=lambda one: -one[0])[: paint.SPOTS]


def share_in(box: tuple[float, float, float, float], y: int, x: int) -> float:
    high = max(0.0, min(box[2], y + 1) - max(box[0], y))
    return float(high * max(0.0, min(box[3], x + 1) - max(box[1], x)))


def twin(scores: list[Any], raw: list[Any], features: Any, total: Any) -> Floats:
    """The formulas of paint.py with a loop for every sum: one image."""
    f, t0 = features[0].numpy(), total[0].numpy()
    f = (f - f.mean((1, 2), keepdims=True)) / np.sqrt(f.var((1, 2), keepdims=True) + 1e-5)
    h, w = t0.shape[1:]
    fourth = np.zeros_like(t0)
    for _, said, (y0, x0, y1, x1) in answers(scores, raw):
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
            like = 1 / (1 + np.exp(-paint.STEEP * (t - paint.MIDDLE)))
        shape = box * (1 - paint.OUTLINE + paint.OUTLINE * like)
        fourth += (paint.SHARE * np.where(said > paint.FAINT, said, 0)[:, None, None] * shape) ** 4
    return np.asarray(1 - (1 - t0) * (1 - fourth**0.25))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", [(8, 12), (4, 4), (20, 8)])
def test_it_equals_its_formula(seed: int, shape: tuple[int, int]) -> None:
    inputs = made(seed, shape)
    assert np.allclose(paint.paint(*inputs)[0].numpy(), twin(*inputs), atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(4, 4), (8, 12), (16, 8)]))
def test_a_score_only_rises_and_never_above_one(seed: int, shape: tuple[int, int]) -> None:
    scores, raw, features, total = made(seed, shape)
    painted = paint.paint(scores, raw, features, total)
    assert (painted >= total - 1e-9).all()
    assert (painted <= 1 + 1e-9).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_images_of_a_batch_do_not_know_of_each_other(seed: int) -> None:
    scores, raw, features, total = made(seed, (8, 12), n=2)
    both = paint.paint(scores, raw, features, total)
    for i in range(2):
        one = slice(i, i + 1)
        alone = paint.paint([s[one] for s in scores], [r[one] for r in raw], features[one], total[one])
        assert torch.allclose(both[one], alone)


def test_weak_answers_paint_nothing() -> None:
    scores, raw, features, total = made(0, (8, 12), high=paint.LEAST)
    assert torch.equal(paint.paint(scores, raw, features, total), total)


def test_one_answer_paints_its_box_and_what_looks_like_its_core_most() -> None:
    shape = (16, 24)
    scores = [torch.zeros(1, NAMES, shape[0] >> i, shape[1] >> i) for i in range(3)]
    raw = [torch.zeros(1, 4, shape[0] >> i, shape[1] >> i) for i in range(3)]
    scores[0][0, 2, 8, 12] = 0.8
    raw[0][0, 2:, 8, 12] = torch.tensor([12.0, 8.0]).log()  # width, height: rows 4 to 11, columns 6 to 17
    features = torch.zeros(1, 3, *shape)
    features[0, 0, 4:12, 9:15] = 1  # the thing is narrower than its box
    painted = paint.paint(scores, raw, features, torch.zeros(1, NAMES, *shape))[0]
    assert painted[[0, 1, 3, 4]].abs().max() == 0
    assert painted[2].nonzero().amin(0).tolist() == [4, 6]
    assert painted[2].nonzero().amax(0).tolist() == [11, 17]
    thing, rest = painted[2, 4:12, 9:15], painted[2, 4:12, 6:9]
    assert thing.min() > 0.9 * paint.SHARE * 0.8
    assert rest.max() < 0.5 * thing.min()
