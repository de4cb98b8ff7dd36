"""Formulas of training/experiments against a loop, a definition or a difference quotient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import foveate
from foveate.allocation.policies import top_cells
from foveate.core.layout import LAYOUTS
from foveate.encoders.nano import NanoEncoder
from foveate.relevance.fusion import Fusion, Linear, Tensions
from foveate.texture.texture import Texture

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from torch import Tensor, nn  # noqa: E402

from training.experiments import (  # noqa: E402  # noqa: E402
    atlas,
    balance,
    channel_budget,
    channel_weights,
    compressed,
    learned_channels,
    saliency,
    scene_reader,
    scorer,
    vocabulary,
)
from training.experiments.atlas import Bases  # noqa: E402
from training.experiments.texture_attention import Attention, Convolution  # noqa: E402
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


def test_its_gradient_is_that_of_differences() -> None:
    score = torch.randn(3, 20, generator=torch.Generator().manual_seed(1), dtype=torch.double, requires_grad=True)
    truth = (torch.arange(60).reshape(3, 20) % 4 == 0).double()
    assert torch.autograd.gradcheck(lambda s: scorer.iou_loss(s, truth), (score,))
    kept = scorer.keep_softly(score, torch.tensor([4.0, 5.0, 6.0], dtype=torch.double))
    (moved,) = torch.autograd.grad(kept.sum(), score)  # their sum is fixed, so no score moves it
    assert moved.abs().max() < 1e-6


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


def test_a_scorer_is_a_weighted_sum_that_begins_with_the_question_alone() -> None:
    mean, spread = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.5, 2.0])
    model = scorer.TextureScorer(mean, spread, 2)
    planes = np.random.default_rng(0).normal(size=(2, 3, 5, 6)).astype(np.float32)
    np.testing.assert_allclose(model(torch.from_numpy(planes)).detach(), planes[:, 2], atol=1e-5)
    torch.nn.init.normal_(model.channel_weights)
    torch.nn.init.normal_(model.combiner)
    weights = (model.combiner * model.channel_weights).detach().numpy()
    moved = (planes - mean.numpy()[:, None, None]) / spread.numpy()[:, None, None]
    expected = np.einsum("bchw,c->bhw", moved, weights) + model.bias.item()
    np.testing.assert_allclose(model(torch.from_numpy(planes)).detach(), expected, atol=1e-5)


# --- channel weights and budget ---------------------------------------------------------------------------------------


def test_a_score_is_a_sum_of_weighted_channels() -> None:
    model = channel_weights.ChannelWeights(8, 3)
    model.mean, model.spread = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 0.5, 2.0])
    torch.nn.init.constant_(model.gain, np.log(3))
    random = np.random.default_rng(0)
    weights, question, channels = (random.normal(size=s).astype("f4") for s in ((2, 3), (2, 4, 5), (2, 3, 4, 5)))
    expected = 3 * question
    for i in range(3):
        expected += weights[:, i, None, None] * (channels[:, i] - [1, 2, 3][i]) / [1, 0.5, 2][i]
    found = model.score(*(torch.from_numpy(each) for each in (weights, question, channels)))
    np.testing.assert_allclose(found.detach(), expected, atol=1e-5)


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


# --- learned and compressed channels ----------------------------------------------------------------------------------


def test_means_before_the_last_layer_are_those_after_it() -> None:
    make = learned_channels.Generator(5)
    rgb = torch.rand(2, 3, learned_channels.RGB, learned_channels.RGB)
    slow = torch.nn.functional.avg_pool2d(make.second(torch.relu(make.first(rgb))), 2)
    assert torch.allclose(make(rgb), slow, atol=1e-5)


def noisy(h: int, w: int, seed: int = 0) -> np.ndarray:
    """A plane with ramps, noise, and a mask in a corner."""
    random = np.random.default_rng(seed)
    plane = np.linspace(0.1, 0.9, w)[None] * np.linspace(0.3, 1, h)[:, None] + 0.05 * random.random((h, w))
    plane[: h // 2, : w // 2] = random.random((h // 2, w // 2)) > 0.5
    return np.clip(plane, 0, 1).astype(np.float32)


def by_the_letter(block: bytes) -> list[float]:
    """The 16 samples of a BC4 block, as the specification says it: one bit after another."""
    first, second = block[0], block[1]
    if first > second:
        palette = [first, second, *((first * (7 - i) + second * i) / 7 for i in range(1, 7))]
    else:
        palette = [first, second, *((first * (5 - i) + second * i) / 5 for i in range(1, 5)), 0, 255]
    bits = int.from_bytes(block[2:], "little")
    return [palette[(bits >> (3 * i)) & 7] / 255 for i in range(16)]


def test_blocks_are_decoded_as_the_specification_and_pillow_say() -> None:
    plane = noisy(30, 45)
    coded = compressed.encode_blocks(plane)
    assert coded.shape == (8, 12, 8)
    ours = compressed.decode_blocks(coded, (32, 48))
    for y, x in ((0, 0), (3, 5), (7, 11)):
        expected = np.reshape(by_the_letter(coded[y, x].tobytes()), (4, 4))
        np.testing.assert_allclose(ours[4 * y : 4 * y + 4, 4 * x : 4 * x + 4], expected, atol=1e-6)
    theirs = np.asarray(Image.frombytes("L", (48, 32), coded.tobytes(), "bcn", (4, "BC4")), np.float32)
    assert np.abs(theirs - 255 * ours).max() < 1  # Pillow cuts to whole levels
    np.testing.assert_array_equal(compressed.decode_blocks(coded, plane.shape), ours[:30, :45])


def test_a_sample_is_off_by_at_most_half_a_step_of_its_block() -> None:
    plane = noisy(32, 32, 1)
    apart = np.abs(compressed.decode_blocks(compressed.encode_blocks(plane), plane.shape) - plane)
    tiles = plane.reshape(8, 4, 8, 4).swapaxes(1, 2).reshape(64, 16)
    room = (tiles.max(1) - tiles.min(1)) / 14 + 1 / 255
    assert (apart.reshape(8, 4, 8, 4).swapaxes(1, 2).reshape(64, 16).max(1) <= room).all()


def parabola(n: int, random: np.random.Generator) -> np.ndarray:
    t = random.uniform(-1, 1, n)
    return np.stack([t, 2 * t * t - 2 / 3, np.zeros(n)], 1).astype(np.float32)


def small_model(hidden: int = 24, side: int = 0) -> compressed.Autoencoder:
    torch.manual_seed(0)
    rows = np.eye(3, dtype=np.float32)[:1]
    return compressed.Autoencoder(rows, rows.T, np.ones(1, np.float32), hidden, side)


@pytest.mark.parametrize("side", [0, 1, 3])
def test_an_untrained_autoencoder_is_the_linear_map(side: int) -> None:
    x = parabola(20, np.random.default_rng(0))
    x = x if side == 0 else x.reshape(1, 4, 5, 3).transpose(0, 3, 1, 2).copy()
    model = small_model(side=side)
    found = compressed.from_integers(model, compressed.to_integers(model, x))
    np.testing.assert_allclose(found[:, 0], x[:, 0], atol=0.5 / compressed.STEPS + 1e-6)
    assert not found[:, 1:].any()


# --- vocabulary -------------------------------------------------------------------------------------------------------


def test_int8_is_nearly_what_encode_keeps_and_entries_take_a_byte_or_two_a_cell(texture: Texture) -> None:
    exact, size = vocabulary.as_encoded(texture)
    errors = [float(np.abs(vocabulary.own_int8(rank)(texture)[0] - exact).mean()) for rank in (24, 8, 2)]
    assert errors[0] < 0.003
    assert errors == sorted(errors)
    width, n = texture.basis.width, texture.grid.count
    assert vocabulary.own_int8(2)(texture)[1] == n * 2 + 2 * 2 * width + 2 * width + 4 * 2 < size
    common = vocabulary.Common(exact.mean(0), *[np.eye(width, dtype=np.float32)] * 2)
    y = common.coordinates(exact)
    books = [vocabulary.fit_codebook(y, exact, count) for count in (16, 150)]
    kept = [vocabulary.entries(common, book)(texture) for book in books]
    assert [size for _, size in kept] == [n, n]
    lost = [float(np.abs(features - exact).mean()) for features, _ in kept]
    assert lost[0] > lost[1]


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


# --- texture attention ------------------------------------------------------------------------------------------------


WIDE, SIDE = 8, 6
BLOCKS: dict[str, Callable[[], Any]] = {
    "question": lambda: Convolution(WIDE, kernel=3, bank=3),
    "fixed": lambda: Convolution(WIDE, kernel=3, asked=False),
    "attention": lambda: Attention(WIDE, side=SIDE, heads=2),
    "plain": lambda: Attention(WIDE, side=SIDE, heads=2, places=False),
    "alone": lambda: Attention(WIDE, side=SIDE, heads=2, alone=True),
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
    x = torch.randn(count, SIDE * SIDE, WIDE, generator=generator, dtype=torch.float64)
    return x, torch.randn(count, WIDE, generator=generator, dtype=torch.float64)


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
