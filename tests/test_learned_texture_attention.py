"""Blocks between features and language model: identity at first, gradients, moved pictures, naive twins, growth."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.learned_scenes import made
from training.experiments.arguments import WANTED
from training.experiments.balance.__main__ import main as learns_balances
from training.experiments.balance.reader import Reader
from training.experiments.balance.train_reader import NUMBERS
from training.experiments.texture_attention import learn, speed
from training.experiments.texture_attention.__main__ import main as learns_blocks
from training.experiments.texture_attention.blocks import Attention, Convolution, size
from training.judges.collage.features import Made

WIDTH, SIDE = 8, 6
BLOCKS: dict[str, Callable[[], Convolution | Attention]] = {
    "question": lambda: Convolution(WIDTH, kernel=3, bank=3),
    "fixed": lambda: Convolution(WIDTH, kernel=3, asked=False),
    "attention": lambda: Attention(WIDTH, side=SIDE, heads=2),
    "plain": lambda: Attention(WIDTH, side=SIDE, heads=2, places=False),
    "alone": lambda: Attention(WIDTH, side=SIDE, heads=2, alone=True),
}


def awake(name: str) -> Convolution | Attention:
    """A block in double precision whose last layer is not zero."""
    torch.manual_seed(1)
    block = BLOCKS[name]().double()
    with torch.no_grad():
        for value in block.parameters():
            value.add_(0.3 * torch.randn_like(value))
    return block


def inputs(seed: int = 0, count: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, SIDE * SIDE, WIDTH, generator=generator, dtype=torch.float64)
    return x, torch.randn(count, WIDTH, generator=generator, dtype=torch.float64)


def array(value: Tensor) -> NDArray[np.float64]:
    return np.asarray(value.detach().numpy(), np.float64)


def normed(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray((x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5))


def linear(layer: nn.Linear, x: NDArray[np.float64]) -> NDArray[np.float64]:
    return x @ array(layer.weight).T + array(layer.bias)


@pytest.mark.parametrize("name", list(BLOCKS))
def test_a_new_block_is_the_identity_and_can_learn(name: str) -> None:
    torch.manual_seed(0)
    block = BLOCKS[name]().double()
    x, question = inputs()
    out = block(x, question, SIDE)
    assert torch.equal(out, x)
    torch.autograd.backward((out * torch.randn_like(out)).sum())
    assert block.outer.weight.grad is not None
    assert block.outer.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("name", list(BLOCKS))
def test_gradients(name: str) -> None:
    block = awake(name)
    x, question = inputs(count=1)
    values = [value for value in block.parameters() if value.requires_grad]
    names = [key for key, value in block.named_parameters() if value.requires_grad]

    def of(x: Tensor, question: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(block, dict(zip(names, values, strict=True)), (x, question, SIDE))

    assert torch.autograd.gradcheck(of, (x.requires_grad_(), question.requires_grad_(), *values), fast_mode=True)


@pytest.mark.parametrize("name", ["question", "fixed"])
def test_a_moved_picture_gives_a_moved_result(name: str) -> None:
    """Cells whose neighbourhood is inside in both: 1 from the border, and not what came in."""
    block, (x, question) = awake(name), inputs()
    plane = x.reshape(2, SIDE, SIDE, WIDTH)
    before = block(x, question, SIDE).reshape(plane.shape)
    moved = block(plane.roll((1, 2), (1, 2)).reshape(x.shape), question, SIDE).reshape(plane.shape)
    torch.testing.assert_close(moved[:, 2:-1, 3:-1], before[:, 1:-2, 1:-3])
    assert not torch.allclose(moved[:, 0], before[:, -1])  # no torus


def test_a_convolution_is_what_four_loops_give() -> None:
    block, (x, question) = awake("question"), inputs()
    assert isinstance(block, Convolution)
    assert block.mix is not None
    b, n, width = x.shape
    z, gate = np.split(linear(block.inner, normed(array(x)) * array(block.norm.weight) + array(block.norm.bias)), 2, -1)
    with torch.no_grad():
        shares = array(block.mix(torch.from_numpy(normed(array(question))))).reshape(b, width, -1)
    seen = np.zeros((b, SIDE, SIDE, width))
    plane = z.reshape(b, SIDE, SIDE, width)
    for i in range(b):
        for c in range(width):
            kernel = np.tensordot(shares[i, c], array(block.bank), 1)
            for y, x_ in np.ndindex(SIDE, SIDE):
                for dy, dx in np.ndindex(3, 3):
                    v, u = y + dy - 1, x_ + dx - 1
                    if 0 <= v < SIDE and 0 <= u < SIDE:
                        seen[i, y, x_, c] += kernel[dy, dx] * plane[i, v, u, c]
    expected = array(x) + linear(block.outer, seen.reshape(b, n, width) * gate / (1 + np.exp(-gate)))
    np.testing.assert_allclose(array(block(x, question, SIDE)), expected, atol=1e-9)


@pytest.mark.parametrize("name", ["attention", "plain", "alone"])
def test_attention_is_softmax_over_tokens_and_the_question(name: str) -> None:
    block, (x, question) = awake(name), inputs(count=1)
    assert isinstance(block, Attention)
    cells = torch.tensor([[3, 8, 20, 31]])
    looked = cells[0].tolist() if name == "alone" else list(range(SIDE * SIDE))
    out = array(block(x, question, SIDE, cells))[0]
    inside = normed(array(x)[0]) * array(block.norm.weight) + array(block.norm.bias)
    asker = linear(block.question, normed(array(question)))
    q = linear(block.asks, inside[cells[0].numpy()] + asker)
    k, v = np.split(linear(block.offers, np.concatenate([inside[looked], asker])), 2, -1)
    seen = []
    for head in range(2):
        part = np.s_[:, head * 4 : head * 4 + 4]
        logits = q[part] @ k[part].T / 2
        if block.places:
            for i, j in np.ndindex(4, len(looked)):
                a, b = int(cells[0, i]), looked[j]
                logits[i, j] += array(block.offsets)[head, a // SIDE - b // SIDE + 5, a % SIDE - b % SIDE + 5]
        weight = np.exp(logits - logits.max(1, keepdims=True))
        seen.append(weight / weight.sum(1, keepdims=True) @ v[part])
    kept = array(x)[0, cells[0].numpy()]
    np.testing.assert_allclose(out, kept + linear(block.outer, np.concatenate(seen, 1)), atol=1e-9)


@pytest.mark.parametrize("name", [name for name in BLOCKS if name != "alone"])
def test_wanted_cells_of_several_questions_are_those_of_the_whole_grid(name: str) -> None:
    block, (x, _), (_, questions) = awake(name), inputs(), inputs(7, 6)
    cells = torch.stack([torch.randperm(SIDE * SIDE)[:5] for _ in range(6)])
    whole = torch.cat([block(x[i // 3][None], questions[i][None], SIDE) for i in range(6)])
    torch.testing.assert_close(block(x, questions, SIDE), whole)
    torch.testing.assert_close(block(x, questions, SIDE, cells), torch.stack([whole[i, cells[i]] for i in range(6)]))


def test_the_question_makes_the_kernels() -> None:
    block, (x, question) = awake("question"), inputs()
    other = block(x, question.flip(0), SIDE)
    assert not torch.allclose(block(x, question, SIDE), other)
    fixed = awake("fixed")
    assert torch.equal(fixed(x, question, SIDE), fixed(x, question.flip(0), SIDE))


def test_blocks_that_are_compared_are_alike_in_size() -> None:
    assert 0.9 < size(Convolution(256)) / size(Attention(256)) < 1.1


def test_the_exponent_of_what_grows_like_a_power() -> None:
    assert speed.exponent((64, 256, 1024), [0.1 * n**1.5 for n in (64, 256, 1024)]) == pytest.approx(1.5)
    found = speed.report(width=16, sides=(4, 8), rounds=3)
    assert set(found) == set(speed.NAMES)
    assert found["attention"]["16 cells, of attention"] == 1


def beginning(monkeypatch: pytest.MonkeyPatch) -> tuple[Reader, Made, learn.Batch]:
    """An untrained reader, scenes, and a batch of their questions."""
    monkeypatch.setattr(learn, "vectors", lambda text: np.ones((1, 290), np.float32))
    monkeypatch.setattr(learn, "SCENES", 3)
    torch.manual_seed(0)
    reader, scenes = Reader(NUMBERS, 16).eval().requires_grad_(False), made(6)
    return reader, scenes, learn.batch_of(scenes, [0, 1, 2], np.random.default_rng(0), 4)


@pytest.mark.parametrize("arm", list(learn.ARMS))
def test_a_new_block_changes_no_answer_and_a_few_steps_lower_the_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm: str
) -> None:
    reader, scenes, batch = beginning(monkeypatch)
    assert batch.kept.shape == (3, 4, learn.BUDGET)
    before = learn.Fronted(reader, arm)(batch)
    torch.testing.assert_close(before, learn.Fronted(reader, learn.NONE)(batch))
    words = reader.words.weight.clone()
    model = learn.learned(reader, arm, scenes, tmp_path / "block.pt", steps=12)
    answers = batch.answers.flatten()
    assert nn.functional.cross_entropy(model(batch), answers) < nn.functional.cross_entropy(before, answers)
    assert torch.equal(reader.words.weight, words)  # it is a copy that learns
    other = learn.learned(reader, arm, scenes, tmp_path / "other.pt", steps=1, seed=2)
    assert not torch.equal(other.reader.words.weight, words)


def test_learning_goes_on_where_it_was_killed_and_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, scenes, _ = beginning(monkeypatch)
    arm = "question's kernels"
    once = learn.learned(reader, arm, scenes, tmp_path / "once.pt", steps=53).state_dict()
    batch_of, calls = learn.batch_of, 0

    def killed(*args: Any) -> learn.Batch:
        nonlocal calls
        calls += 1
        if calls == 52:
            raise KeyboardInterrupt
        return batch_of(*args)

    monkeypatch.setattr(learn, "batch_of", killed)
    with pytest.raises(KeyboardInterrupt):
        learn.learned(reader, arm, scenes, tmp_path / "twice.pt", steps=53)
    again = learn.learned(reader, arm, scenes, tmp_path / "twice.pt", steps=53)
    assert calls == 52 + 3  # from step 50 on
    torch.testing.assert_close(again.state_dict(), once, rtol=0, atol=0)


def test_missing_scenes_are_said_with_the_command_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in WANTED:
        (tmp_path / "data" / part).mkdir(parents=True)
    monkeypatch.setattr("sys.argv", ["here", "--data", str(tmp_path / "data"), "--cache", str(tmp_path / "cache")])
    for main in (learns_blocks, learns_balances):
        with pytest.raises(SystemExit, match=r"first run python -m training\.judges\.collage\.features"):
            main()
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_the_cells_that_agree_with_a_question_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learn, "vectors", lambda text: np.eye(290, dtype=np.float32)[[int(text)]])
    nano = np.zeros((32, 32, 290), np.float16)
    nano[4:8, 6:8, 5] = 1  # cells (2, 3) and (3, 3) of 16 x 16
    nano[0:2, 30:32, 7] = 1
    assert learn.agreeing(nano, ["5", "7"], 2).tolist() == [[35, 51], [0, 15]]
