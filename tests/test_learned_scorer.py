"""The scorer of channels: its top-K and gradient, the recipe's flaw, a map that is learned, a run that goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import foveate
from foveate.cli.evaluate.coco import RASTER
from foveate.core.grid import Grid
from training.experiments.examples import Asked, Example
from training.experiments.scorer.__main__ import like, map_of, once
from training.experiments.scorer.judging import MEASURES, judge, measured, table
from training.experiments.scorer.learn import WAYS, Recipe, Way, learn, precision_of
from training.experiments.scorer.model import TextureScorer, fit, iou_loss, keep_softly
from training.experiments.scorer.planes import (
    ASKED,
    CHANNELS,
    LEARNED,
    NAMES,
    SIDE,
    Lessons,
    asked_of,
    channels_of,
    chosen,
    lessons,
    logit,
)
from training.experiments.scorer.published import CANDIDATES, KEPT, Published, hard_loss, samples

torch.set_num_threads(1)


def test_as_many_are_kept_as_asked_and_the_highest_of_them() -> None:
    score = torch.randn(4, 50, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    count = torch.tensor([1.0, 7.0, 25.0, 49.0], dtype=torch.double)
    assert torch.allclose(keep_softly(score, count).sum(-1), count, atol=1e-4)
    sharp = keep_softly(score, count, temperature=1e-4)
    for row, kept, k in zip(score, sharp, count.int().tolist(), strict=True):
        assert set(np.flatnonzero(kept.numpy() > 0.5)) == set(row.topk(k).indices.tolist())


def test_its_gradient_is_that_of_differences() -> None:
    score = torch.randn(3, 20, generator=torch.Generator().manual_seed(1), dtype=torch.double, requires_grad=True)
    truth = (torch.arange(60).reshape(3, 20) % 4 == 0).double()
    assert torch.autograd.gradcheck(lambda s: iou_loss(s, truth), (score,))
    kept = keep_softly(score, torch.tensor([4.0, 5.0, 6.0], dtype=torch.double))
    (moved,) = torch.autograd.grad(kept.sum(), score)  # their sum is fixed, so no score moves it
    assert moved.abs().max() < 1e-6


def test_the_published_loss_has_no_gradient_and_its_soft_twin_has() -> None:
    features = torch.rand(2, CANDIDATES**2, 13, generator=torch.Generator().manual_seed(0))
    truth = torch.zeros(2, CANDIDATES**2)
    truth[:, :KEPT] = 1
    model = Published()
    assert not hard_loss(model(features), truth).requires_grad
    soft = iou_loss(model(features), truth, torch.full((2,), float(KEPT)), 0.1)
    for gradient in torch.autograd.grad(soft, list(model.parameters())):
        assert gradient.abs().sum() > 0
    perfect = hard_loss(truth, truth)
    assert perfect == 0
    assert hard_loss(1 - truth, truth) == 1


@pytest.mark.parametrize("context", [False, True])
def test_a_scorer_is_a_weighted_sum_of_what_lies_around(context: bool) -> None:
    """Its twin in NumPy, written out."""
    torch.manual_seed(0)
    model = TextureScorer(3, context=context)
    model.mean, model.spread = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.5, 2.0])
    torch.nn.init.normal_(model.channel_weights)
    model.combiner.bias = torch.nn.Parameter(torch.tensor([0.25]))
    planes = np.random.default_rng(0).normal(size=(3, 5, 6)).astype(np.float32)
    moved = (planes - model.mean.numpy()[:, None, None]) / model.spread.numpy()[:, None, None]
    kernel = (model.combiner.weight[0] * model.channel_weights[:, None, None]).detach().numpy()
    side = kernel.shape[-1] // 2
    padded = np.pad(moved, ((0, 0), (side, side), (side, side)))
    expected = np.full((5, 6), 0.25)
    for y in range(2 * side + 1):
        for x in range(2 * side + 1):
            expected += np.einsum("c,chw->hw", kernel[:, y, x], padded[:, y : y + 5, x : x + 6])
    with torch.no_grad():
        np.testing.assert_allclose(model(torch.from_numpy(planes)[None])[0], expected, atol=1e-5)


def test_it_begins_with_the_question_alone_whatever_its_form() -> None:
    planes = torch.randn(2, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    for form in ({}, {"context": True}, {"levels": (4, 8)}):
        model = TextureScorer(4, **form)
        model.mean, model.spread = torch.full((4,), 0.3), torch.full((4,), 2.0)
        model.begin_with(2)
        assert torch.allclose(model(planes), planes[:, 2], atol=1e-5)


def test_what_begins_with_the_question_ranks_cells_as_the_question_does() -> None:
    """Much of a good map is within .001 of 1: log-odds that were cut there, or a sigmoid of 32 bits, lost its order."""
    p = (1 - 10 ** np.random.default_rng(0).uniform(-5, -0.1, (24, 32))).astype(np.float32)
    for way in WAYS:
        if way.hears:
            planes = np.repeat(logit(p)[None], len(way.planes), 0)
            found = map_of(way.model(), planes, p)
            assert (found.ravel()[p.argsort(None)][1:] >= found.ravel()[p.argsort(None)][:-1]).all()
            np.testing.assert_array_equal(found, p)
            steep = way.model()
            with torch.no_grad():
                steep.channel_weights.mul_(9)
            np.testing.assert_array_equal(map_of(steep, planes, p), p)


def test_a_score_is_judged_with_the_questions_own_values() -> None:
    score, question = np.array([[3e9, -1.0], [2e9, 3e9]]), np.array([[0.1, 0.9], [0.9, 0.2]], np.float32)
    np.testing.assert_array_equal(like(score, question), np.array([[0.9, 0.1], [0.2, 0.9]], np.float32))


def test_a_3x3_reaches_as_far_where_cells_are_smaller() -> None:
    model = TextureScorer(1, context=True)
    torch.nn.init.constant_(model.combiner.weight, 1.0)
    model.combiner.bias = None
    plane = np.zeros((1, 64, 64), np.float32)
    plane[0, 32, 32] = 1
    reached = np.nonzero(map_of(model, plane) > 0.5)
    assert set(reached[0]) == set(reached[1]) == {30, 32, 34}


def test_what_was_judged_is_not_judged_again(tmp_path: Path) -> None:
    made = once(tmp_path / "a.npz", lambda: {"way": np.ones((2, 5))})

    def never() -> dict[str, np.ndarray]:
        raise AssertionError

    np.testing.assert_array_equal(once(tmp_path / "a.npz", never)["way"], made["way"])


def test_a_pyramid_hears_what_is_around_a_cell() -> None:
    model = TextureScorer(1, levels=(1,))
    with torch.no_grad():
        model.combiner.weight.copy_(torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1))
        model.combiner.bias = None
    plane = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert torch.allclose(model(plane), torch.full((1, 4, 4), 7.5))


def made_up(n: int = 12) -> Lessons:
    """The truth is where saliency is high, which the question's map knows only half of."""
    random = np.random.default_rng(0)
    channels = random.random((n, len(CHANNELS), 16, 16)).astype(np.float16)
    truth = channels[:, CHANNELS.layer("saliency")] > 0.8
    asked = random.normal(size=(n, len(ASKED), 16, 16)).astype(np.float16)
    return Lessons(
        channels=channels,
        asked=asked,
        truths=np.stack([truth, truth], 1).astype(np.float16),
        sampled=np.zeros((n, 256, 13), np.float32),
        texts=("a thing",) * n,
        photograph=np.arange(n),
        held_out=np.arange(n) % 2 == 0,
    )


WAY = Way("two", ("saliency", "low_pass", "question"))


def test_a_channel_that_answers_is_learned() -> None:
    known, every = made_up(), np.arange(12)
    before = precision_of(WAY.model(known), WAY, known, every).mean()
    model, losses = learn(WAY, Recipe(decay=0.0), known, every[:8], 250, None)
    after = precision_of(model, WAY, known, every[8:]).mean()
    assert before < 0.3 < 0.8 < after
    assert losses[-1] < losses[0]


def test_a_run_that_was_killed_ends_as_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.experiments.scorer.model.EVERY", 5)
    known, every = made_up(), np.arange(12)
    whole, losses = learn(WAY, Recipe(), known, every, 12, None)
    again, _ = learn(WAY, Recipe(), known, every, 12, None)
    for p, q in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(p, q)
    calls = 0

    class KilledError(Exception):
        pass

    def dying(*args: object) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls > 14:  # two truths a step: in the eighth, three steps after what was written
            raise KilledError
        return iou_loss(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("training.experiments.scorer.learn.iou_loss", dying)
    with pytest.raises(KilledError):
        learn(WAY, Recipe(), known, every, 12, tmp_path / "one.pt")
    monkeypatch.setattr("training.experiments.scorer.learn.iou_loss", iou_loss)
    resumed, found = learn(WAY, Recipe(), known, every, 12, tmp_path / "one.pt")
    assert np.allclose(found, losses)
    for p, q in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(p, q)
    assert not list(tmp_path.glob("*.part"))


def test_fit_is_held_to_where_it_begins() -> None:
    def moved(decay: float) -> float:
        model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        fit(model, lambda step: -model.weight.sum(), 50, rate=0.05, decay=decay)
        return model.weight.item()

    assert moved(10.0) < moved(0.0) / 2


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    rgb = np.random.default_rng(0).integers(60, 120, (96, 128, 3)).astype(np.uint8)
    rgb[16:64, 16:80] = (220, 40, 40)
    mask = np.zeros((96 // RASTER, 128 // RASTER), bool)
    mask[2:8, 2:10] = True
    asked = tuple(Asked(text, "thing", mask, np.array([[16.0, 16, 64, 80]])) for text in ("the cup", "a red car"))
    return Example("a:b", tmp_path_factory.mktemp("cache") / "b.safetensors", asked, lambda: rgb)


def test_planes_are_the_textures_and_the_questions(example: Example, tmp_path: Path) -> None:
    known = lessons([example], tmp_path)
    assert known.channels.shape == (1, len(CHANNELS), LEARNED, LEARNED)
    assert known.asked.shape == (2, len(ASKED), LEARNED, LEARNED)
    grid = Grid(SIDE, SIDE, 96, 128)
    direct = channels_of(example.texture, grid)[NAMES.index("saliency")]
    means = direct.reshape(LEARNED, 2, LEARNED, 2).mean((1, 3))
    np.testing.assert_allclose(known.channels[0, NAMES.index("saliency")], means, atol=2e-3)
    relevance = foveate.score(example.texture, "the cup")
    found = asked_of(relevance, relevance.grid.shape)
    np.testing.assert_allclose(found[ASKED.index("question")], logit(relevance.map), atol=1e-5)
    np.testing.assert_allclose(known.truths[0, 1].astype(float).mean(), (48 * 64) / (96 * 128), atol=0.02)
    (file,) = tmp_path.iterdir()
    before = file.stat().st_mtime_ns
    lessons([example], tmp_path)  # nothing is made again
    assert file.stat().st_mtime_ns == before


def test_photographs_held_out_are_always_chosen(example: Example) -> None:
    some = [Example(f"a:{i}", example.file, example.asked, example.pixels) for i in range(60)]
    held = [one for one in some if one.held_out]
    found = chosen(some, 5, 1)
    assert len(found) == len(held) + 5 > 5
    assert {e.name for e in held} <= {e.name for e in found}
    assert all(len(e.asked) == 1 for e in found)
    assert [e.name for e in found] == [e.name for e in chosen(some, 5, 1)]


def test_the_published_channels_lie_at_the_candidates(example: Example) -> None:
    found = samples(example.texture)
    assert found.shape == (CANDIDATES**2, 13)
    red = example.texture.channel("red")
    np.testing.assert_allclose(found[5 * CANDIDATES + 5, 0], red[33, 44], atol=0.02)  # (5.5 / 16 of 96 and of 128)
    np.testing.assert_allclose(found[:, 6] + found[:, 7], 1, atol=1e-6)
    np.testing.assert_allclose(found[:, 5] + found[:, 11], 1, atol=1e-6)


def test_a_judge_tells_the_truth_from_noise(example: Example) -> None:
    grid = example.texture.grid
    best = measured(example.asked[0].mask.astype(float), example.asked[0], grid)
    assert best[1:4] == (1.0, 1.0, 1.0)
    assert best[0] == pytest.approx(1.0)  # 48 x 64 of 96 x 128 pixels: 8 x 8 of the candidates
    noise = np.random.default_rng(0).random(grid.shape)
    judged = judge([example, example], lambda e: [{"best": e.asked[0].mask.astype(float), "noise": noise}] * 2)
    assert judged["noise"].shape == (4, len(MEASURES))
    assert judged["noise"][:, 3].max() < 0.6
    assert table(judged, "best").count("\n") == 3


def test_every_way_reads_planes_that_there_are() -> None:
    for way in WAYS:
        assert len(way.rows) == len(set(way.rows))
        assert way.model().channel_weights.numel() == len(way.rows) * (1 + len(way.levels))
