"""Channel weights from a question's vector: they begin with the question alone, and learn which words want what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from training.experiments.channel_weights import __main__ as command
from training.experiments.channel_weights.__main__ import CHANNELS, ROWS, Recipe, learn, precision_of, vectors_of
from training.experiments.channel_weights.model import LEAST, ChannelWeights, sparse
from training.experiments.scorer.model import iou_loss
from training.experiments.scorer.planes import ASKED, NAMES, Lessons
from training.experiments.scorer.planes import CHANNELS as STUFFED

torch.set_num_threads(1)
TEXTS = ("the sky", "the road")


def made_up(n: int = 24) -> Lessons:
    """The sky is where saliency is high, the road where it is low; the question's map knows nothing."""
    random = np.random.default_rng(0)
    channels = random.random((n, len(STUFFED), 16, 16)).astype(np.float16)
    saliency = channels[:, STUFFED.layer("saliency")]
    truth = np.where((np.arange(n) % 2 == 0)[:, None, None], saliency > 0.8, saliency < 0.2)
    return Lessons(
        channels=channels,
        asked=np.zeros((n, len(ASKED), 16, 16), np.float16),
        truths=np.stack([truth, truth], 1).astype(np.float16),
        sampled=np.zeros((n, 256, 13), np.float32),
        texts=tuple(TEXTS[i % 2] for i in range(n)),
        photograph=np.arange(n),
        held_out=np.arange(n) >= n - 4,
    )


def test_every_question_begins_with_its_own_map() -> None:
    model = ChannelWeights(8, 3)
    question, channels = torch.randn(2, 4, 5), torch.randn(2, 3, 4, 5)
    weights = model(torch.randn(2, 8))
    assert weights.abs().max() == 0
    assert torch.equal(model.score(weights, question, channels), question)


def test_a_score_is_a_sum_of_weighted_channels() -> None:
    model = ChannelWeights(8, 3)
    model.mean, model.spread = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.5, 2.0])
    torch.nn.init.constant_(model.gain, np.log(3))
    random = np.random.default_rng(0)
    weights, question, channels = (random.normal(size=s).astype("f4") for s in ((2, 3), (2, 4, 5), (2, 3, 4, 5)))
    expected = 3 * question
    for i in range(3):
        expected += weights[:, i, None, None] * (channels[:, i] - [1, 2, 3][i]) / [1, 0.5, 2][i]
    found = model.score(*(torch.from_numpy(each) for each in (weights, question, channels)))
    np.testing.assert_allclose(found.detach(), expected, atol=1e-5)


def test_small_weights_are_dropped() -> None:
    found = sparse(torch.tensor([LEAST / 2, -LEAST / 2, LEAST * 2, -1.0]))
    assert found.tolist() == pytest.approx([0, 0, LEAST * 2, -1])


def test_vectors_are_the_encoders() -> None:
    words, names = (vectors_of(TEXTS, kind) for kind in ("words", "names"))
    assert words.shape == (2, 256)
    assert names.shape[1] != 256
    for vectors in (words, names):
        np.testing.assert_allclose(vectors.norm(dim=1), 1, atol=1e-4)
        assert (vectors[0] - vectors[1]).abs().max() > 0.01


def test_it_learns_which_words_want_what_and_one_set_of_weights_cannot() -> None:
    known = made_up()
    vectors, recipe = vectors_of(known.texts, "words"), Recipe(price=0.0)
    net = learn(recipe, known, 100, None)
    same = learn(recipe, known, 100, None, heard=False)
    assert precision_of(net, vectors, known) > 0.8
    assert precision_of(same, vectors, known) < 0.7
    with torch.no_grad():
        sky, road = net(vectors)[:2, CHANNELS.index("saliency")]
    assert sky > 0 > road


def test_a_price_makes_weights_few() -> None:
    known = made_up()
    vectors = vectors_of(known.texts, "words")

    def many(price: float) -> int:
        return int((sparse(learn(Recipe(price=price), known, 60, None)(vectors)) != 0).sum())

    assert many(3.0) < many(0.0)


def test_a_run_that_was_killed_ends_as_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.experiments.scorer.model.EVERY", 4)
    known = made_up(8)
    whole = learn(Recipe(), known, 10, None)
    calls = 0

    class KilledError(Exception):
        pass

    def dying(*args: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls > 6:
            raise KilledError
        return iou_loss(*args)

    monkeypatch.setattr(command, "iou_loss", dying)
    with pytest.raises(KilledError):
        learn(Recipe(), known, 10, tmp_path / "net.pt")
    monkeypatch.setattr(command, "iou_loss", iou_loss)
    resumed = learn(Recipe(), known, 10, tmp_path / "net.pt")
    for p, q in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(p, q)


def test_its_channels_are_planes_and_no_embedding() -> None:
    assert len(set(ROWS)) == len(CHANNELS) + 1
    assert not [name for name in CHANNELS if name.startswith("embedding")]
    assert NAMES[ROWS[-1]] == "question"
