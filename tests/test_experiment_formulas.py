"""Formulas of training/experiments that something stands on: a layout, what was published, what is used by hand.

The others have their verdict, "out": test_experiments.py shows that they still run.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import foveate
from foveate.allocation.policies import top_cells
from foveate.core.layout import LAYOUTS
from foveate.encoders.nano import NanoEncoder
from foveate.relevance.fusion import Fusion, Linear, Tensions
from foveate.texture.texture import Texture

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch import Tensor  # noqa: E402

from training.experiments import (  # noqa: E402  # noqa: E402
    atlas,
    balance,
    channel_budget,
    saliency,
    scene_reader,
    scorer,
)
from training.experiments.atlas import Bases  # noqa: E402
from training.harness import Asked, Example  # noqa: E402

pytestmark = pytest.mark.vlm


def drawn_picture() -> NDArray[np.uint8]:
    rgb = np.random.default_rng(0).integers(60, 120, (96, 128, 3)).astype(np.uint8)
    rgb[16:64, 16:80] = (220, 40, 40)
    return rgb


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    mask = np.zeros((12, 16), bool)
    mask[2:8, 2:10] = True
    asked = tuple(Asked(text, "thing", mask, np.array([[16.0, 16, 64, 80]])) for text in ("the cup", "a red car"))
    return Example("a:b", tmp_path_factory.mktemp("cache") / "b.safetensors", asked, drawn_picture)


@pytest.fixture(scope="module")
def texture(example: Example) -> Texture:
    return example.texture


# --- scorer -----------------------------------------------------------------------------------------------------------


def test_as_many_are_kept_as_asked_and_the_highest_of_them() -> None:
    score = torch.randn(4, 50, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    count = torch.tensor([1.0, 7.0, 25.0, 49.0], dtype=torch.double)
    assert torch.allclose(scorer.keep_softly(score, count).sum(-1), count, atol=1e-4)
    sharp = scorer.keep_softly(score, count, temperature=1e-4)
    for row, kept, k in zip(score, sharp, count.int().tolist(), strict=True):
        assert set(np.flatnonzero(kept.numpy() > 0.5)) == set(row.topk(k).indices.tolist())


def test_the_published_loss_has_no_gradient_and_its_soft_twin_has() -> None:
    features = torch.rand(2, scorer.CANDIDATES**2, 13, generator=torch.Generator().manual_seed(0))
    truth = torch.zeros(2, scorer.CANDIDATES**2)
    truth[:, : scorer.KEPT] = 1
    model = scorer.Published()
    assert not scorer.hard_loss(model(features), truth).requires_grad
    soft = scorer.iou_loss(model(features), truth, torch.full((2,), float(scorer.KEPT)), 0.1)
    for gradient in torch.autograd.grad(soft, list(model.parameters())):
        assert gradient.abs().sum() > 0
    perfect = scorer.hard_loss(truth, truth)
    assert perfect == 0
    assert scorer.hard_loss(1 - truth, truth) == 1


# --- channel weights and budget ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full(example: Example) -> channel_budget.Full:
    return channel_budget.full_texture(example, example.file.parent)


def test_a_texture_holds_what_is_named_and_nothing_else(full: channel_budget.Full) -> None:
    some = channel_budget.holding(full, ("red", "green", "blue", "saliency", *channel_budget.embedding(5)))
    assert some.rank == 5
    assert [name for name in (*full.texture.planes, "embedding_5") if some.has(name)] == ["saliency"]
    assert some.pixel is full.texture.pixel
    assert not channel_budget.holding(full, channel_budget.embedding(5)).pixel.any()
    with pytest.raises(ValueError, match="gaps"):
        channel_budget.holding(full, ("embedding_1",))


def test_the_lean_layout_answers_as_all_planes_do(full: channel_budget.Full) -> None:
    """It has the colours and segments of an image, so a plain question and one about a colour read nothing else."""
    for text in ("the dog", "the red box"):
        lean, whole = (
            foveate.score(foveate.encode(drawn_picture(), channels=channels, rank=32), text).map
            for channels in (["cluster_id"], "all")
        )
        np.testing.assert_array_equal(lean, whole)
        held = foveate.score(channel_budget.holding(full, LAYOUTS["lean"].names), text).map
        np.testing.assert_allclose(held, whole, atol=0.02)


def worth(names: channel_budget.Names) -> np.ndarray:
    """Precision and coverage of a made-up texture: numbers of the channel_budget.embedding, and one plane of three."""
    rank = sum(name.startswith("embedding_") for name in names)
    value = 0.5 * min(rank, 8) / 8 + 0.2 * ("saliency" in names) - 0.1 * ("text" in names)
    return np.array([value, value])


def test_forwards_takes_what_adds_most_a_channel_and_ends_where_nothing_adds() -> None:
    units: dict[str, channel_budget.Names] = {"saliency": ("saliency",), "text": ("text",), "place": ("x", "y")}
    path = channel_budget.forwards(units, worth, 64)
    assert path[0] == ("saliency", ("saliency",))
    assert [what for what, _ in path[1:]] == [f"embedding to {rank}" for rank in (1, 2, 4, 6, 8)]
    assert channel_budget.smallest(path, worth, worth(("saliency", *channel_budget.embedding(8)))) == path[-1][1]
    assert channel_budget.smallest(path, worth, np.array([0.57, 0.57])) == ("saliency", *channel_budget.embedding(6))
    assert channel_budget.smallest(path, worth, np.array([9.0, 9.0])) == path[-1][1]


# --- atlas ------------------------------------------------------------------------------------------------------------


GRIDS, RANK, DIRECTIONS, QUESTIONS = ((5, 7), (16, 16), (1, 3), (20, 33)), 6, 10, 3


@pytest.fixture
def planes() -> list[NDArray[np.float32]]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal((*grid, RANK)).astype(np.float32) for grid in GRIDS]


@pytest.fixture
def own() -> Bases:
    draw = np.random.default_rng(1)
    rows, mean = draw.standard_normal((len(GRIDS), RANK, DIRECTIONS)), draw.standard_normal((len(GRIDS), DIRECTIONS))
    return Bases(rows.astype(np.float32), mean.astype(np.float32))


@pytest.fixture
def questions() -> NDArray[np.float32]:
    return np.random.default_rng(2).standard_normal((QUESTIONS, DIRECTIONS)).astype(np.float32)


def cell_by_cell(
    planes: list[NDArray[np.float32]], bases: Bases, questions: NDArray[np.float32]
) -> list[NDArray[np.float64]]:
    """q.mean + (B q).z of each texture, [q, n] in float64."""
    found = []
    for number, plane in enumerate(planes):
        which = number if len(bases.rows) > 1 else 0
        features = bases.mean[which] + plane.reshape(-1, RANK).astype(np.float64) @ bases.rows[which]
        found.append(questions @ features.T)
    return found


@pytest.mark.parametrize("shared", [False, True])
def test_every_shape_says_what_one_by_one_says(
    planes: list[NDArray[np.float32]], own: Bases, questions: NDArray[np.float32], shared: bool
) -> None:
    bases = Bases(own.rows[:1], own.mean[:1]) if shared else own
    right = cell_by_cell(planes, bases, questions)
    rows = atlas.ragged(planes)
    every = [atlas.score_ragged(rows, bases, questions)]
    every += [atlas.score_pages(one, bases, questions) for one in (atlas.runs(planes), atlas.runs(planes, 7))]
    for scores in every:
        for mine, exact in zip(atlas.unpack(scores, rows.starts), right, strict=True):
            np.testing.assert_allclose(mine, exact, atol=2e-5)
            assert [top_cells(row, 3).tolist() for row in mine] == [top_cells(row, 3).tolist() for row in exact]


# --- saliency ---------------------------------------------------------------------------------------------------------


def test_names_are_read_through_the_basis() -> None:
    z, basis, read = torch.rand(1, 3, 4, 5), torch.rand(1, 4, 6), torch.rand(6)
    whole = torch.einsum("nrhw,nrd->ndhw", z, basis[:, 1:]) + basis[:, 0, :, None, None]
    twin = 10 * torch.einsum("ndhw,d->nhw", whole, read)
    assert torch.allclose(saliency.read_names(z, basis, read), twin, atol=1e-4)


def test_a_target_holds_things_and_no_stuff_and_saliency_can_be_put_into_a_texture(texture: Texture) -> None:
    def one(text: str, rows: slice, columns: slice) -> Asked:
        mask = np.zeros((20, 30), bool)
        mask[rows, columns] = True
        return Asked(text, "things", mask, np.zeros((0, 4)))

    target = saliency.target_of(
        [one("the sky", slice(0, 10), slice(0, 30)), one("the dog", slice(10, 20), slice(0, 10))]
    )
    assert target[:10].max() == 0
    assert target[10:, :10].min() == 1
    names = NanoEncoder.built_in().space.names
    plane = saliency.plane_of_names(texture, {name: float(name == "car") for name in names})
    assert plane.max() == 1
    other = saliency.with_saliency(texture, plane)
    assert not np.array_equal(other.channel("saliency"), texture.channel("saliency"))


# --- balance, and the reader of scenes --------------------------------------------------------------------------------


K, MANY = 16, 64


def three_planes(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, 3, MANY), np.float32) * 0.9 + 2 * balance.LEAST


@pytest.mark.parametrize(("form", "published"), [("weights", Linear(0.33, 0.33, 0.34)), ("tensions", Tensions())])
def test_every_form_starts_as_published(form: str, published: Fusion) -> None:
    planes = three_planes(1)[0]
    torch.manual_seed(0)
    scores = balance.FORMS[form]()(torch.from_numpy(planes)).detach().numpy()
    expected = published.fuse(*planes.reshape(3, 8, 8)).ravel()
    np.testing.assert_allclose(scores, expected, atol=2e-6)
    order = balance.Learned("learned", balance.FORMS[form]()).fuse(*planes.reshape(3, 8, 8)).ravel()
    assert (order.min(), order.max()) == (0, 1)
    np.testing.assert_array_equal(np.argsort(order), np.argsort(scores))


def test_the_soft_choice_is_the_hard_one_made_soft() -> None:
    scores = torch.from_numpy(three_planes(5)[:, 0])
    soft, hard = balance.soft_top(scores, K), balance.hard_top(scores, K)
    above = (soft > 0.5).nonzero()[:, 1].reshape(5, K)
    assert torch.equal(above, hard)
    assert ((soft.sum(1) - K).abs() < 3).all()
    torch.testing.assert_close(balance.soft_top(40 * scores - 7, K), soft, atol=1e-3, rtol=0)
    assert balance.hard_top(torch.zeros(1, MANY), 3).tolist() == [[0, 1, 2]]  # ties: the lower index first


# --- texture attention ------------------------------------------------------------------------------------------------


def array(value: Tensor) -> NDArray[np.float64]:
    return np.asarray(value.detach().numpy(), np.float64)


def test_a_dropped_token_is_as_if_it_were_not_there() -> None:
    torch.manual_seed(0)
    reader = scene_reader.Reader(scene_reader.NUMBERS, 16).eval()
    tokens, ids = (
        torch.randn(2, 256, scene_reader.NUMBERS),
        scene_reader.ids_of(["what colour is the animal", "how many car"])[:, None],
    )
    kept = torch.stack([torch.randperm(256)[:20].sort().values for _ in range(2)])
    bias = torch.full((2, 1, 256), float("-inf")).scatter(2, kept[:, None], 0.0)
    seen = reader.see(tokens)
    short, _ = reader.look(seen.gather(1, kept[..., None].expand(-1, -1, 16)), ids)
    torch.testing.assert_close(reader(tokens, ids, bias), short)
    assert not torch.allclose(reader(tokens, ids), short)
