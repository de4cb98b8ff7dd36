"""The learned balance: forms that begin as published, gradients, what can be learned is learned, resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from foveate.relevance.fusion import FUSIONS, Fusion, Linear, Tensions
from training.balance.__main__ import by_masks, learned, numbers
from training.balance.forms import FORMS, LEAST, Learned, hard_top, learn, overlap_loss, soft_top

K, CELLS = 16, 64


def drawn(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 3, CELLS), np.float32) * 0.9 + 2 * LEAST


@pytest.mark.parametrize(
    ("form", "published"),
    [("weights", Linear(0.33, 0.33, 0.34)), ("tensions", Tensions()), ("net", FUSIONS["participation"])],
)
def test_every_form_starts_as_published(form: str, published: Fusion) -> None:
    planes = drawn(1)[0]
    torch.manual_seed(0)
    scores = FORMS[form]()(torch.from_numpy(planes)).detach().numpy()
    expected = published.fuse(*planes.reshape(3, 8, 8)).ravel()
    np.testing.assert_allclose(scores, expected, atol=2e-6)
    order = Learned("learned", FORMS[form]()).fuse(*planes.reshape(3, 8, 8)).ravel()
    assert (order.min(), order.max()) == (0, 1)
    np.testing.assert_array_equal(np.argsort(order), np.argsort(scores))


def test_the_soft_choice_is_the_hard_one_made_soft() -> None:
    scores = torch.from_numpy(drawn(5)[:, 0])
    soft, hard = soft_top(scores, K), hard_top(scores, K)
    above = (soft > 0.5).nonzero()[:, 1].reshape(5, K)
    assert torch.equal(above, hard)
    assert ((soft.sum(1) - K).abs() < 3).all()
    torch.testing.assert_close(soft_top(40 * scores - 7, K), soft, atol=1e-3, rtol=0)
    assert hard_top(torch.zeros(1, CELLS), 3).tolist() == [[0, 1, 2]]  # ties: the lower index first


@pytest.mark.parametrize("form", list(FORMS))
def test_gradients_through_soft_choice_and_overlap(form: str) -> None:
    torch.manual_seed(0)
    net = FORMS[form]().double()
    with torch.no_grad():
        for value in net.parameters():
            value.add_(0.1 * torch.randn_like(value))
    planes = torch.from_numpy(drawn(2)).double()
    masks = (planes[:, 2] > 0.7).double()
    names = [name for name, _ in net.named_parameters()]
    fixed = soft_top(net(planes), K).detach()
    step = (fixed - fixed.mean()).abs().mean()  # the width of the step is not differentiated: weights by hand instead

    def loss(*values: torch.Tensor) -> torch.Tensor:
        scores = torch.func.functional_call(net, dict(zip(names, values, strict=True)), (planes,))
        return overlap_loss(torch.sigmoid((scores - scores.mean()) / step), masks)

    assert torch.autograd.gradcheck(loss, tuple(net.parameters()))
    torch.autograd.backward(overlap_loss(soft_top(net(planes), K), masks))
    assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in net.parameters())


def test_the_overlap_is_that_of_sets_where_weights_are_hard() -> None:
    kept, mask = torch.tensor([[1.0, 1, 0, 0]]), torch.tensor([[0.0, 1, 1, 1]])
    assert float(overlap_loss(kept, mask)) == pytest.approx(1 - 1 / 4)


@pytest.mark.parametrize("plane", [0, 1, 2])
def test_the_plane_that_shows_the_thing_is_found(tmp_path: Path, plane: int) -> None:
    planes = torch.from_numpy(drawn(80, 3))
    masks = torch.zeros(80, CELLS).scatter(1, hard_top(planes[:, plane], K), 1.0)
    found = learned("masks", by_masks(planes, masks), 80, tmp_path, 60)["weights, by masks"]
    assert np.argmax(numbers(found)["logits"]) == plane
    assert numbers(found)["logits"][plane] > 0.8


def test_learning_goes_on_where_it_was_killed_and_is_the_same(tmp_path: Path) -> None:
    planes = torch.from_numpy(drawn(40, 5))
    masks = (planes[:, 1] > 0.6).float()
    once, twice = FORMS["weights"](), FORMS["weights"]()
    learn(once, by_masks(planes, masks), 40, tmp_path / "once.pt", steps=40, rate=0.1)
    calls = 0

    def killed(form: torch.nn.Module, rows: np.ndarray) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 33:
            raise KeyboardInterrupt
        return by_masks(planes, masks)(form, rows)

    with pytest.raises(KeyboardInterrupt):
        learn(twice, killed, 40, tmp_path / "twice.pt", steps=40, rate=0.1)
    again = FORMS["weights"]()
    learn(again, by_masks(planes, masks), 40, tmp_path / "twice.pt", steps=40, rate=0.1)
    torch.testing.assert_close(again.state_dict(), once.state_dict(), rtol=0, atol=0)
    assert not list(tmp_path.glob("*.new"))


def test_a_loss_that_is_no_number_is_an_error_and_the_state_stays(tmp_path: Path) -> None:
    planes, state = torch.full((4, 3, CELLS), float("nan")), tmp_path / "state.pt"
    with pytest.raises(FloatingPointError, match="state: the loss of step 0 is nan"):
        learn(FORMS["weights"](), by_masks(planes, torch.ones(4, CELLS)), 4, state, steps=3, rate=0.1)
    assert not state.exists()
