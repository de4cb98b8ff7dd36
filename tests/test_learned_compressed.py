"""Compressed channels: blocks by the specification, autoencoders that begin as PCA, learn, and go on after a kill."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import foveate
from foveate.encoders.load import load_encoder
from foveate.language.negatives import query_metric_of
from foveate.texture.basis import query_metric
from foveate.texture.texture import Texture

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from training.experiments.compressed import blocks, embedding, learned, planes  # noqa: E402
from training.experiments.compressed.__main__ import PAIRS_OF_EMBEDDING, PAIRS_OF_PLANES, pairs, remembered  # noqa: E402
from training.experiments.compressed.learned import Autoencoder, from_integers, to_integers, train  # noqa: E402


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
    coded = blocks.encode(plane)
    assert coded.shape == (8, 12, 8)
    ours = blocks.decode(coded, (32, 48))
    for y, x in ((0, 0), (3, 5), (7, 11)):
        expected = np.reshape(by_the_letter(coded[y, x].tobytes()), (4, 4))
        np.testing.assert_allclose(ours[4 * y : 4 * y + 4, 4 * x : 4 * x + 4], expected, atol=1e-6)
    theirs = np.asarray(Image.frombytes("L", (48, 32), coded.tobytes(), "bcn", (4, "BC4")), np.float32)
    assert np.abs(theirs - 255 * ours).max() < 1  # Pillow cuts to whole levels
    np.testing.assert_array_equal(blocks.decode(coded, plane.shape), ours[:30, :45])


def test_a_sample_is_off_by_at_most_half_a_step_of_its_block() -> None:
    plane = noisy(32, 32, 1)
    apart = np.abs(blocks.decode(blocks.encode(plane), plane.shape) - plane)
    tiles = plane.reshape(8, 4, 8, 4).swapaxes(1, 2).reshape(64, 16)
    room = (tiles.max(1) - tiles.min(1)) / 14 + 1 / 255
    assert (apart.reshape(8, 4, 8, 4).swapaxes(1, 2).reshape(64, 16).max(1) <= room).all()


@pytest.mark.parametrize("value", [0.0, 1.0, 128 / 255])
def test_constant_blocks_and_masks_stay_exact(value: float) -> None:
    plane = np.full((4, 8), value, np.float32)
    plane[:, 4:] = np.indices((4, 4)).sum(0) % 2
    np.testing.assert_allclose(blocks.decode(blocks.encode(plane), plane.shape), plane, atol=1e-7)


def test_an_exact_end_with_values_in_between_takes_the_second_kind_of_palette() -> None:
    plane = np.full((4, 4), 100 / 255, np.float32)
    plane[0] = 0, 1, 101 / 255, 102 / 255
    coded = blocks.encode(plane)[0, 0]
    assert coded[0] <= coded[1]
    np.testing.assert_allclose(blocks.decode(coded[None, None], (4, 4)), plane, atol=0.002)


def parabola(n: int, random: np.random.Generator) -> np.ndarray:
    t = random.uniform(-1, 1, n)
    return np.stack([t, 2 * t * t - 2 / 3, np.zeros(n)], 1).astype(np.float32)


def small_model(hidden: int = 24, side: int = 0) -> Autoencoder:
    torch.manual_seed(0)
    rows = np.eye(3, dtype=np.float32)[:1]
    return Autoencoder(rows, rows.T, np.ones(1, np.float32), hidden, side)


@pytest.mark.parametrize("side", [0, 1, 3])
def test_an_untrained_autoencoder_is_the_linear_map(side: int) -> None:
    x = parabola(20, np.random.default_rng(0))
    x = x if side == 0 else x.reshape(1, 4, 5, 3).transpose(0, 3, 1, 2).copy()
    model = small_model(side=side)
    found = from_integers(model, to_integers(model, x))
    np.testing.assert_allclose(found[:, 0], x[:, 0], atol=0.5 / learned.STEPS + 1e-6)
    assert not found[:, 1:].any()


@pytest.mark.parametrize("side", [0, 3])
def test_gradients_are_right(side: int) -> None:
    model = small_model(4, side).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # the last layers begin at 0
    shape = (2, 3) if side == 0 else (2, 3, 4, 4)
    x = 0.3 * torch.randn(shape, dtype=torch.float64)
    noise = torch.rand((2, 1, *shape[2:]), dtype=torch.float64)
    names, values = zip(*((name, one.detach().requires_grad_()) for name, one in model.named_parameters()), strict=True)

    def loss(*parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        out: Tensor = torch.func.functional_call(model, given, (x, noise))
        return torch.square(out - x).sum()

    assert torch.autograd.gradcheck(loss, values)


def test_it_learns_a_curve_that_no_line_follows(tmp_path: Path) -> None:
    model = train(small_model(), lambda random: parabola(256, random), 400, tmp_path / "m.pt", rate=1e-2)
    x = parabola(500, np.random.default_rng(9))
    untrained = small_model()
    left, linear = (np.square(from_integers(m, to_integers(m, x)) - x).mean() for m in (model, untrained))
    assert left < 0.1 * linear


def test_training_goes_on_where_it_was_killed_and_ends_with_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learned, "EVERY", 4)
    calls = 0

    def batch(random: np.random.Generator) -> np.ndarray:
        return parabola(32, random)

    def killed(random: np.random.Generator) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 10:
            raise KeyboardInterrupt
        return batch(random)

    whole = train(small_model(), batch, 20, tmp_path / "whole.pt")
    with pytest.raises(KeyboardInterrupt):
        train(small_model(), killed, 20, tmp_path / "parts.pt")
    assert torch.load(tmp_path / "parts.pt", weights_only=True)["done"] == 8
    resumed = train(small_model(), batch, 20, tmp_path / "parts.pt")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert not list(tmp_path.glob(".*.part"))


@pytest.fixture(scope="module")
def texture() -> Texture:
    random = np.random.default_rng(0)
    rgb = np.full((96, 128, 3), 90, np.uint8) + random.integers(0, 20, (96, 128, 3)).astype(np.uint8)
    rgb[20:70, 30:90] = (200, 40, 40)
    return foveate.encode(rgb, channels="all", rank=64)


def test_planes_come_back_from_the_stack(texture: Texture) -> None:
    stack = planes.stack(texture)
    assert stack.shape == (len(planes.NAMES), 24, 32)
    back = planes.unstack(texture, stack)
    for name in planes.QUARTER:
        np.testing.assert_array_equal(back.planes[name], texture.planes[name])
    assert set(np.unique(planes.unstack(texture, 0.6 * stack).planes["boundary"])) <= {0.0, 1.0}
    psnr, edges = planes.likeness(stack, stack)
    assert psnr == pytest.approx(60)
    assert edges == 1
    bright = stack.copy()
    bright[0, :4] = 1
    assert planes.likeness(bright, stack)[1] < 0.9
    assert planes.same_information(texture, back) == pytest.approx(1)


def test_codecs_of_planes_lose_less_the_more_they_keep(texture: Texture) -> None:
    stack = planes.stack(texture)
    white = planes.whitening([stack])
    found = {
        codec.name: (codec.size, planes.likeness(stack, codec.through(stack))[0]) for codec in planes.codecs(white, {})
    }
    assert found["float16"][1] > found["bytes"][1] > found["BC4"][1] > 30
    assert found["PCA to 8, bytes"][1] > found["PCA to 4, bytes"][1] > found["PCA to 2, bytes"][1]
    assert found["BC4"][0] == len(planes.NAMES) / 2  # 8 bytes for 16 samples of each plane


def test_codecs_of_the_embedding(texture: Texture) -> None:
    metric = query_metric_of(load_encoder("nano"))
    x = texture.basis.restore(texture.coordinates())
    shared = embedding.fit_shared(x, metric)
    torch.manual_seed(0)
    down = (metric.inverse_root @ shared.inward[:, :8]).T * shared.size
    up = (shared.outward[:8] @ metric.root).T / shared.size
    untrained = {8: Autoencoder(down, up, shared.reach[:8], 16)}
    codecs = {codec.name: codec for codec in embedding.codecs(shared, metric, untrained)}
    error = {name: float(np.linalg.norm((codec.through(x) - x) @ metric.root)) for name, codec in codecs.items()}
    assert error["own basis, int8, 24"] < error["own basis, int8, 8"] < error["own basis, int8, 4"]
    assert error["shared basis, int8, 16"] < error["shared basis, int8, 4"]
    linear, learned_8 = (codecs[f"{name}, int8, 8"].through(x) for name in ("shared basis", "learned decoder"))
    np.testing.assert_allclose(learned_8, linear, atol=2e-3)  # before training it is the same map
    assert codecs["own basis, int8, 8"].a_photograph == 4 * 290 + 8 * (2 * 290 + 4)


def test_a_learned_decoder_of_features_beats_the_line_on_a_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "SHARED", (1,))
    monkeypatch.setattr(embedding, "TURNS", 400)
    monkeypatch.setattr(embedding, "HIDDEN", 24)
    x = parabola(4000, np.random.default_rng(0))
    metric = query_metric(np.eye(3))
    shared = embedding.fit_shared(x, metric)
    models = embedding.train_all(x, shared, metric, tmp_path)
    codecs = {codec.name: codec for codec in embedding.codecs(shared, metric, models) if "own" not in codec.name}
    error = {name: float(np.square(codec.through(x) - x).mean()) for name, codec in codecs.items()}
    assert error["learned decoder, int8, 1"] < 0.6 * error["shared basis, int8, 1"]


def test_what_was_judged_is_not_judged_again(tmp_path: Path) -> None:
    def never() -> dict[str, np.ndarray]:
        raise AssertionError

    first = remembered(tmp_path / "a" / "judged.npz", lambda: {"way, 8": np.ones((2, 3))})
    again = remembered(tmp_path / "a" / "judged.npz", never)
    np.testing.assert_array_equal(first["way, 8"], again["way, 8"])


def test_pairs_are_compared_question_by_question() -> None:
    judged = {"a": np.array([[0.5, 1.0], [0.7, 1.0]]), "b": np.array([[0.4, 1.0], [0.6, 0.5]])}
    head, _, row = pairs(judged, ("precision", "kept"), [("a", "b")], [0, 1])
    assert head == "| way | against | precision | kept |"
    assert row.startswith("| a | b | +0.100 (+0.100 to +0.100) | +0.250 (")


def test_ways_that_are_compared_are_ways_that_are_judged(texture: Texture) -> None:
    white = planes.whitening([planes.stack(texture)])
    models = {f"autoencoder {side} x {side} to {k}": small_model() for side in (1, 3) for k in planes.COUNTS}
    assert {way for pair in PAIRS_OF_PLANES for way in pair} <= {c.name for c in planes.codecs(white, models)}
    metric = query_metric_of(load_encoder("nano"))
    shared = embedding.fit_shared(texture.basis.restore(texture.coordinates()), metric)
    codecs = embedding.codecs(shared, metric, {k: small_model() for k in embedding.SHARED})
    assert {way for pair in PAIRS_OF_EMBEDDING for way in pair} <= {codec.name for codec in codecs}
