"""Questions as one graph (on the CPU plain calls): the cells of score and allocate; and clear errors."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import foveate
from foveate.allocation.device import replay as module
from foveate.allocation.device.fused import ask
from foveate.allocation.device.replay import Replay
from foveate.core.devices import captured
from foveate.core.errors import BudgetError, DeviceError, OptionError
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Calibration
from foveate.language.query import prepare
from foveate.reading.words import Word, Words
from foveate.texture.tensors import DeviceTextures, stack
from foveate.texture.texture import Texture
from tests.fake_cuda import FakeCuda

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PLAIN = ["broccoli", "a plate", "a violin"]


@pytest.fixture(scope="module")
def batch(texture: Texture) -> DeviceTextures:
    valid = np.full((texture.grid.height, texture.grid.width), 255, np.uint8)
    valid[:200, :300] = 0
    plain = replace(texture, planes={n: p for n, p in texture.planes.items() if n != "cluster_id"})
    return stack([texture, replace(texture, valid=valid), plain], DEVICE)


def test_it_keeps_what_score_and_allocate_keep(batch: DeviceTextures) -> None:
    for budget, floor in ((1, None), (273, None), (273, 0.4), (batch.grid.count, None)):
        found = Replay(batch, 3, budget, floor=floor)(PLAIN)
        assert found.rows.shape == (3, 3, budget, 40)
        for i, texture in enumerate(batch.textures):
            for j, text in enumerate(PLAIN):
                kept = foveate.allocate(foveate.score(texture, text), budget, floor=floor)
                np.testing.assert_array_equal(found.indices[i, j].cpu().numpy(), kept.indices)
                np.testing.assert_allclose(found.scores[i, j].cpu().numpy(), kept.scores, atol=3e-6)
                table = texture.tokens(dtype=np.float16)
                np.testing.assert_array_equal(found.rows[i, j].cpu().numpy(), table[kept.indices])


def test_it_keeps_the_highest_scores(batch: DeviceTextures) -> None:
    vectors = prepare(load_encoder("nano"), "broccoli").vectors
    replay = Replay(batch, 1, 50, rule="scores")
    for given in ("broccoli", ["broccoli"], vectors, torch.tensor(vectors, device=DEVICE)):
        for found, wanted in zip(replay(given), ask(batch, vectors, 50), strict=True):
            assert torch.equal(found, wanted)
    assert "scores" in repr(replay)


def test_one_question_after_the_other(batch: DeviceTextures) -> None:
    replay = Replay(batch[0], 1, 20)
    first = [replay(text).indices.clone() for text in PLAIN]
    assert all(torch.equal(replay(text).indices, one) for text, one in zip(PLAIN, first, strict=True))
    assert not torch.equal(first[0], first[1])


def test_it_may_be_made_in_inference_mode(texture: Texture) -> None:
    with torch.inference_mode():
        replay = Replay(texture.to(DEVICE), 1, 20)
        first = replay("broccoli").indices.clone()
    assert torch.equal(replay("broccoli").indices, first)


def test_a_texture_that_changes_behind_its_graph_is_found_out(texture: Texture) -> None:
    there = texture.to(DEVICE)
    replay = Replay(there, 1, 20)
    replay("broccoli")
    there.z.mul_(2)
    with pytest.raises(DeviceError, match="wrote into its z"):
        replay("broccoli")
    with pytest.raises(DeviceError, match="wrote into its z"):
        Replay(there, 1, 20)


@pytest.mark.parametrize("question", ["the red plate", "a dog and a cat", "what does the sign say?"])
def test_a_question_that_is_not_plain_is_for_score(batch: DeviceTextures, question: str) -> None:
    with pytest.raises(OptionError, match="a graph sees only") as caught:
        Replay(batch, 1, 20)(question)
    assert "foveate.score" in caught.value.fix


def test_wrong_values_are_refused(batch: DeviceTextures, texture: Texture) -> None:
    replay = Replay(batch, 2, 20)
    width = texture.basis.width
    wrong: tuple[Any, ...] = ("broccoli", PLAIN, [], np.zeros((2, width - 1)), torch.zeros(3, width, device=DEVICE))
    for question in wrong:
        with pytest.raises(OptionError):
            replay(question)
    with pytest.raises(OptionError, match="3 at a time, asked of a Replay of 2") as caught:
        replay(PLAIN)
    assert "Replay(texture, questions=3" in caught.value.fix
    with pytest.raises(DeviceError, match="on meta"):
        replay(torch.zeros(2, width, device="meta"))
    for budget in (0, texture.grid.count + 1):
        with pytest.raises(BudgetError):
            Replay(batch, 2, budget)
    bad: dict[str, Any]
    for bad in ({"questions": 0}, {"rule": "best"}, {"floor": 2}):
        with pytest.raises(OptionError):
            Replay(batch, **bad)
    here: Any = texture
    with pytest.raises(OptionError, match="stack"):
        Replay(here)


def test_what_a_graph_cannot_hold_is_refused(texture: Texture, monkeypatch: pytest.MonkeyPatch) -> None:
    read = texture.with_words(Words.of([Word("STOP", (1, 1, 9, 40))], "mine")).to(DEVICE)
    with pytest.raises(DeviceError, match="what is written"):
        Replay(read)
    assert len(Replay(read, rule="scores", budget=5)("broccoli").indices[0, 0]) == 5
    gaze = texture.with_channel("gaze", np.ones(texture.grid.shape))
    looked = replace(gaze, preprocessing={**gaze.preprocessing, "preset": "gaze"}).to(DEVICE)
    with pytest.raises(DeviceError, match="preset 'gaze'"):
        Replay(looked)
    contrast = SimpleNamespace(name="clip", width=512, calibration=Calibration(40.0, 1.0, 0.9, 60.0, -3.0))
    monkeypatch.setattr(module, "match_encoder", lambda *given: contrast)
    with pytest.raises(DeviceError, match="negatives"):
        Replay(texture.to(DEVICE))


def test_the_way_of_a_graph(texture: Texture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code that only a GPU runs, with a graph that replays by calling again."""
    cuda, there = FakeCuda(monkeypatch), texture.to("cpu")
    replay = Replay(there, 1, 20)
    wanted = replay("a plate").indices.clone()
    replay._host, replay._sent = torch.zeros(1, texture.basis.width), cuda  # type: ignore[assignment]
    replay._replay = captured(cuda.capturable(replay._work), replay._vectors)
    buffers = replay("broccoli")
    assert not torch.equal(buffers.indices, wanted)
    assert replay("a plate") is buffers
    assert torch.equal(buffers.indices, wanted)
    vectors = torch.tensor(prepare(replay.encoder, "a plate").vectors)
    assert torch.equal(replay(vectors).indices, wanted)
    with pytest.raises(DeviceError, match="on meta"):
        replay(vectors.to("meta"))
    assert "a graph" in repr(replay)
    there.table[0] += 1
    with pytest.raises(DeviceError, match="wrote into its table"):
        replay("broccoli")
    assert cuda.calls.count("synchronize") == 2 == cuda.calls.count("record")


def test_vectors_are_checked_before_a_graph_too(texture: Texture, monkeypatch: pytest.MonkeyPatch) -> None:
    replay, width = Replay(texture.to(DEVICE), 1, 20), texture.basis.width
    monkeypatch.setattr(replay, "_replay", pytest.fail)
    bad = np.zeros((1, width), np.float32)
    for value in (np.nan, np.inf):
        bad[0, 3] = value
        with pytest.raises(OptionError, match="text vectors"):
            replay(bad)
    with pytest.raises(OptionError, match="float64"):
        replay(torch.zeros(1, width, dtype=torch.float64, device=DEVICE))
    with pytest.raises(OptionError, match="text vectors"):
        replay(np.zeros((1, width + 1), np.float32))
    with pytest.raises(OptionError, match="1 at a time"):
        replay(np.zeros((2, width), np.float32))
