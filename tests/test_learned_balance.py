"""The learned balance: forms that begin as published, gradients, what can be learned is learned, resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from foveate.relevance.fusion import FUSIONS, Fusion, Linear, Tensions
from tests.learned_scenes import made
from training.experiments.balance import judging
from training.experiments.balance.__main__ import by_masks, fixed, learned, numbers
from training.experiments.balance.forms import FORMS, LEAST, Learned, hard_top, learn, overlap_loss, soft_top
from training.experiments.balance.judging import answered, by_answers, judged, searched, shown
from training.experiments.balance.photographs import maps, small
from training.experiments.balance.reader import Reader, ids_of, looking_loss
from training.experiments.balance.scenes import Asked, gathered, questions
from training.experiments.balance.train_reader import NUMBERS, labels, learned_reader
from training.experiments.examples import Asked as Asking
from training.experiments.examples import Example
from training.judges.collage.tower import PLANES

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


def some_asked(count: int = 4) -> Asked:
    scenes = made(count)
    per_scene = [questions(scenes, number, 8) for number in range(count)]
    planes = np.random.default_rng(2).random((sum(map(len, per_scene)), 3, 256), np.float32)
    return gathered(scenes, per_scene, [planes])


def test_questions_know_their_scene_their_answer_and_their_cells() -> None:
    asked = some_asked()
    assert len(asked.scene) == len(asked.ids) == len(asked.answers) == len(asked.masks) == len(asked.planes)
    assert questions(asked.made, 1, 8) == questions(asked.made, 1, 8)
    row = int(np.flatnonzero(asked.scene == 1)[0])
    needs = questions(asked.made, 1, 8)[0].needs
    np.testing.assert_array_equal(asked.masks[row] > 0, np.isin(asked.made.shown[1][0], needs))


def test_labels_say_what_a_cell_shows() -> None:
    scenes = made(1)
    found = labels(scenes, 0)
    assert found.shape == (256, NUMBERS)
    assert (found.sum(1) == 4).all()
    thing, names = scenes.scenes[0].things[0], PLANES["name"]
    on = scenes.shown[0][0] == 0
    assert (found[on, names.index(thing.name)] == 1).all()
    assert (found[on, len(names) + PLANES["colour"].index(thing.colour)] == 1).all()
    assert (found[scenes.shown[0][0] < 0, 0] == 1).all()


def test_a_dropped_token_is_as_if_it_were_not_there() -> None:
    torch.manual_seed(0)
    reader = Reader(NUMBERS, 16).eval()
    tokens, ids = torch.randn(2, 256, NUMBERS), ids_of(["what colour is the animal", "how many car"])[:, None]
    kept = torch.stack([torch.randperm(256)[:20].sort().values for _ in range(2)])
    bias = torch.full((2, 1, 256), float("-inf")).scatter(2, kept[:, None], 0.0)
    seen = reader.see(tokens)
    short, _ = reader.look(seen.gather(1, kept[..., None].expand(-1, -1, 16)), ids)
    torch.testing.assert_close(reader(tokens, ids, bias), short)
    assert not torch.allclose(reader(tokens, ids), short)


def test_the_loss_of_looking_is_minus_the_log_of_the_share() -> None:
    looks = torch.tensor([[[[0.0, 0.0, 0.0, 0.0], [9.0, 0, 0, 0]]]])  # one question, two heads, four cells
    assert float(looking_loss(looks, torch.tensor([[[True, False, False, False]]]))) == pytest.approx(np.log(4))
    assert float(looking_loss(looks, torch.zeros(1, 1, 4, dtype=torch.bool))) == 0


def test_the_reader_learns_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.experiments.balance.train_reader.load", lambda folder, side: made(6))
    once = learned_reader(tmp_path, tmp_path / "once.pt", 4, 16)
    learned_reader(tmp_path, tmp_path / "twice.pt", 4, 16)
    for state in ("once.pt", "twice.pt"):
        assert (tmp_path / state).exists()
    kept = torch.load(tmp_path / "twice.pt", weights_only=True)
    torch.testing.assert_close(kept["reader"], once.state_dict(), rtol=0, atol=0)  # seeds are fixed
    assert not any(value.requires_grad for value in once.parameters())
    with pytest.raises(ValueError, match=r"once\.pt has other words or another width"):
        learned_reader(tmp_path, tmp_path / "once.pt", 4, 32)


class Counting(Reader):
    """Answers right as far as cells that the question needs count."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(NUMBERS, 16)
        self.asked = asked

    def look(self, seen: torch.Tensor, ids: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
        assert bias is not None
        rows = [int(np.flatnonzero([torch.equal(i, one) for one in self.asked.ids])[0]) for i in ids.flatten(0, 1)]
        needed = (bias.flatten(0, 1).softmax(-1) * self.asked.masks[rows]).sum(-1)
        logits = torch.zeros(len(rows), 64)
        logits[:, 0] = 0.3
        found = logits.scatter(1, self.asked.answers[rows][:, None], needed[:, None])
        return found.reshape(*ids.shape[:2], -1), []


@pytest.mark.parametrize("plane", [0, 2])
def test_answers_teach_which_plane_shows_what_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plane: int
) -> None:
    asked = some_asked(1)  # so that a question's words say which row it is
    asked.planes[:, plane] = 0.5 * asked.planes[:, plane] + 0.5 * asked.masks
    reader, budget = Counting(asked), 12
    monkeypatch.setattr("training.experiments.balance.__main__.FORMS", {"weights": FORMS["weights"]})
    found = learned("answers", by_answers(reader, asked, budget), len(asked.scene), tmp_path, 40)["weights, by answers"]
    assert np.argmax(numbers(found)["logits"]) == plane
    assert np.argmax(searched(reader, asked, budget)) == plane
    alone = answered(reader, asked, asked.planes[:, plane], budget)
    assert alone.mean() > answered(reader, asked, asked.planes[:, 1], budget).mean()


def test_the_table_compares_with_the_question_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = some_asked()
    reader = Reader(NUMBERS, 16).eval()
    same = {"participation": fixed(FUSIONS["participation"]), "again": fixed(FUSIONS["participation"])}
    found = judged(reader, asked, same, {"5 %": 12}, "participation")
    assert all(cell["difference"] == (0, 0, 0) for cell in found["again"].values())
    lines = shown(found, "participation").splitlines()
    assert lines[0] == "| kept by | named, 5 % | not named, 5 % |"
    assert len(lines) == 4
    planes = torch.rand(2, 3, 256)
    expected = FUSIONS["part28"].fuse(*planes[1].numpy().reshape(3, 16, 16)).ravel()
    np.testing.assert_allclose(fixed(FUSIONS["part28"])(planes)[1].numpy(), expected, atol=1e-6)
    assert judging.GROUPS == ("named", "not named")


def test_planes_of_photographs_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = photographs_asked(tmp_path)
    planes, masks = small(lambda: asked, tmp_path / "planes.npz")
    assert planes.shape == (2, 3, 256)
    assert masks.shape == (2, 256)
    assert masks[0].reshape(16, 16)[:8, :8].min() == 1
    assert masks[0].sum() == 64
    again, _ = small(list, tmp_path / "planes.npz")  # no photograph is asked for
    torch.testing.assert_close(again, planes, rtol=0, atol=0)
    (first, second) = maps(asked[0], {"participation": FUSIONS["participation"], "part28": FUSIONS["part28"]})
    assert set(first) == {"participation", "part28"}
    assert not np.array_equal(first["participation"], second["participation"])


def photographs_asked(cache: Path) -> list[Example]:
    rgb = np.random.default_rng(0).integers(0, 255, (128, 128, 3)).astype(np.uint8)
    mask = np.zeros((16, 16), bool)
    mask[:8, :8] = True
    box = np.array([[0, 0, 64, 64]], np.float64)
    some = (Asking("the dog", "thing", mask, box), Asking("the red car", "thing", ~mask, box))
    return [Example("one", cache / "one.safetensors", some, lambda: rgb)]
