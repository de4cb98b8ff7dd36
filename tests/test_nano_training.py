"""How nano is made (training/nano): segmenters in integers, a head in parts, painted boxes, labels, thresholds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

torch = pytest.importorskip("torch")
from training.nano import (  # noqa: E402
    classifier,
    detector,
    evidence,
    export,
    fold,
    head,
    integers,
    labels,
    paint,
    thresholds,
    trunks,
)
from training.nano import train as train_head  # noqa: E402

Floats = NDArray[np.float64]
NAMES = 5


def made(
    seed: int, shape: tuple[int, int], n: int = 1, high: float = 0.9, seen: tuple[int, int] | None = None
) -> tuple[list[Any], list[Any], Any, Any, Any]:
    """Scores, raw boxes, features, total and people of n images: a few strong answers, everything else weak.

    `seen`: the detector's finest grid, where it is not that of the features.
    """
    draw = np.random.default_rng(seed)
    sizes = [((seen or shape)[0] // 2**i, (seen or shape)[1] // 2**i) for i in range(3)]
    scores = [draw.uniform(0, high, (n, NAMES, *s)) * (draw.random((n, 1, *s)) < 0.1) for s in sizes]
    raw = [draw.normal(0, 1, (n, 4, *s)) for s in sizes]
    features, total = draw.normal(0, 1, (n, 7, *shape)), draw.uniform(0, 1, (n, NAMES, *shape)) ** 3
    people = draw.random((n, 2, *shape)) ** 2
    tensors: list[Any] = [[torch.from_numpy(a) for a in some] for some in (scores, raw, [features, total, people])]
    return tensors[0], tensors[1], *tensors[2]


Box = tuple[float, float, float, float]


def answers(scores: list[Any], raw: list[Any], shape: tuple[int, int]) -> list[tuple[float, Floats, Box]]:
    """(best, scores, box (y0, x0, y1, x1) in cells of `shape`) of the answers of one image, one by one, best first."""
    found = []
    fine = scores[0].shape[-2:]
    ky, kx = shape[0] / fine[0], shape[1] / fine[1]
    for level, (s, r) in enumerate(zip(scores, raw, strict=True)):
        s, r = s[0].numpy(), r[0].numpy()
        best = s.max(0)
        for y, x in np.ndindex(*best.shape):
            around = best[max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2]
            if best[y, x] > paint.LEAST and best[y, x] >= around.max():
                cy, cx = (r[1, y, x] + y) * 2**level * ky, (r[0, y, x] + x) * 2**level * kx
                hy, hx = (max(np.exp(r[at, y, x]) / 2 * 2**level * k, paint.HALF) for at, k in ((3, ky), (2, kx)))
                found.append((best[y, x], s[:, y, x], (cy - hy, cx - hx, cy + hy, cx + hx)))
    return sorted(found, key=lambda one: -one[0])[: paint.SPOTS]


def share_in(box: Box, y: int, x: int) -> float:
    high = max(0.0, min(box[2], y + 1) - max(box[0], y))
    return float(high * max(0.0, min(box[3], x + 1) - max(box[1], x)))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def twin(scores: list[Any], raw: list[Any], features: Any, total: Any, people: Any = None) -> Floats:
    """The formulas of paint.py with a loop for every sum: one image."""
    f, t0 = features[0].numpy(), total[0].numpy()
    f = (f - f.mean((1, 2), keepdims=True)) / np.sqrt(f.var((1, 2), keepdims=True) + 1e-5)
    h, w = t0.shape[1:]
    found = []
    for best, said, (y0, x0, y1, x1) in answers(scores, raw, (h, w)):
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
            like = sigmoid(paint.STEEP * (t - paint.MIDDLE))
        said = np.where(said > paint.FAINT, said, 0)
        found.append((best, said, (y1 - y0) * (x1 - x0), box, like, core / core.sum()))
    fourth = np.zeros_like(t0)
    for _, said, area, box, like, core in found:
        before = np.zeros((h, w))
        for best, other, size, its_box, its_like, _ in found:
            unlike = 1 - said @ other / np.linalg.norm(said) / np.linalg.norm(other)
            smaller = sigmoid(paint.SMALLER * (np.log(area / size) - paint.MARGIN))
            before += unlike * smaller * best * its_box * its_like
        shape = np.stack([like] * NAMES)
        if people is not None:
            sure, face = people[0].numpy()
            trust = min(1.0, paint.TRUST * (core * sure).sum())
            shape[paint.PERSON] = (1 - trust) * like + trust * sure * (1 - paint.FACE * (1 - face))
        shape = shape * box * np.exp(-paint.RIVAL * before)
        fourth += (paint.SHARE * said[:, None, None] * shape) ** 4
    return np.asarray(1 - (1 - paint.KEPT * t0) * (1 - fourth**0.25))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("shape", "seen"), [((8, 12), None), ((4, 4), None), ((20, 8), None), ((16, 12), (20, 16)), ((4, 4), (8, 8))]
)
def test_it_equals_its_formula(seed: int, shape: tuple[int, int], seen: tuple[int, int] | None) -> None:
    scores, raw, features, total, people = made(seed, shape, seen=seen)
    for given_people in (None, people):
        painted = paint.paint(scores, raw, features, total, given_people)
        assert np.allclose(painted[0].numpy(), twin(scores, raw, features, total, given_people), atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([(4, 4), (8, 12), (16, 8)]))
def test_images_of_a_batch_are_apart_and_paint_adds_to_what_is_kept(seed: int, shape: tuple[int, int]) -> None:
    scores, raw, features, total, people = made(seed, shape, n=2)
    painted = paint.paint(scores, raw, features, total, people)
    assert (painted >= paint.KEPT * total - 1e-9).all()
    assert (painted <= 1 + 1e-9).all()
    for i in range(2):
        one = slice(i, i + 1)
        alone = paint.paint([s[one] for s in scores], [r[one] for r in raw], features[one], total[one], people[one])
        assert torch.allclose(painted[one], alone)


def test_weak_answers_paint_nothing() -> None:
    scores, raw, features, total, people = made(0, (8, 12), high=paint.LEAST)
    assert torch.allclose(paint.paint(scores, raw, features, total, people), paint.KEPT * total)


TRAINING = Path(__file__).parents[1] / "training"


# --- the head ---------------------------------------------------------------------------------------------------------


def test_a_label_counts_for_every_name_that_includes_it_and_round_things_are_ellipses() -> None:
    names = labels.Names()
    named = {label: {names.all[i] for i in numbers} for label, numbers in names.of.items()}
    assert named["garage door"] >= {"garage door", "door"}
    assert named["palm tree"] == {"tree"}
    assert "chair leg" not in named["leg"]
    wheel, door = (labels.drawn([10, 10, 50, 50], name, (64, 64), 1.0) for name in ("wheel", "door"))
    assert door[11, 11] == 1
    assert wheel[11, 11] == 0
    assert wheel[30, 30] == door[30, 30] == 1


def test_the_labels_drawn_by_eye_can_be_read() -> None:
    known = set(labels.Names().of)
    shapes = 0
    for file in (TRAINING / "nano" / "labels").glob("*.json"):
        sheet = json.loads(file.read_text())
        assert sheet["names"]
        for entry in sheet["photographs"].values():
            for name, drawn in entry["labels"].items():
                for shape in drawn:
                    mask = labels.drawn(shape, name, (64, 64), 0.064)
                    assert mask.shape == (64, 64)
                    shapes += name in known
    assert shapes > 15_000


def test_a_step_asks_for_what_is_there_and_lets_some_stand_for_the_rest() -> None:
    target, weight = torch.zeros(2, 200, 4, 4, dtype=torch.uint8), torch.ones(2, 200)
    target[0, 7], target[1, 150] = 255, 255
    weight[:, 3] = 0
    only, more = train_head.asked(target, weight, np.random.default_rng(0))
    assert {7, 150} <= set(only.tolist())
    assert 3 not in only
    assert len(only) == train_head.OTHERS + 2
    assert more[7] == 1
    assert more[0] == pytest.approx(197 / train_head.OTHERS)


def test_a_threshold_parts_presence_from_absence() -> None:
    draw = np.random.default_rng(0)
    there, known = draw.random((300, 2)) < 0.4, np.ones((300, 2), bool)
    there[:, 1] = False  # of the second name no photograph was held out
    peaks = np.where(there, 2.0, -2.0) + draw.normal(0, 0.3, there.shape)
    gain, shift, above = thresholds.calibrate(peaks, there, known)
    logits = peaks * gain + shift
    assert ((logits[:, 0] > 0) == there[:, 0]).mean() > 0.99
    assert above[0] == 1
    assert above[1] == pytest.approx(thresholds.LEAST)
    assert shift[1] / gain[1] == pytest.approx(shift[0] / gain[0], rel=0.1)  # the usual threshold


def test_bodypix_has_its_share_on_people_alone() -> None:
    body = evidence.Body(["dog", "hand", "hair"])
    logits = torch.full((1, 3, 8, 8), evidence.REST)
    parts = torch.zeros(1, 24, 4, 4)
    parts[:, 10] = 20  # sure of a left hand
    points = torch.full((1, 17, 4, 4), -20.0)
    person = torch.full((1, 1, 4, 4), 20.0)
    on, off = body(logits, person, parts, points), body(logits, -person, parts, points)
    assert torch.equal(on[:, [0, 2]], logits[:, [0, 2]])
    assert on[0, 1].mean() == pytest.approx(evidence.REST + evidence.SHARE * evidence.SUREST, abs=0.01)
    assert torch.allclose(off, logits, atol=1e-5)


# --- what is shipped --------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 99),
    stride=st.sampled_from([1, 2]),
    dilation=st.sampled_from([1, 2]),
    deep=st.booleans(),
    zero=st.sampled_from([0, 128, 131]),
)
def test_a_convolution_of_codes_is_the_one_of_values_rounded(
    seed: int, stride: int, dilation: int, deep: bool, zero: int
) -> None:
    draw = np.random.default_rng(seed)
    weight = torch.from_numpy(draw.integers(-127, 128, (6, 1 if deep else 6, 3, 3), np.int8))
    scale = torch.from_numpy(draw.uniform(0.001, 0.01, 6).astype(np.float32))
    bias = torch.from_numpy(draw.integers(-5000, 5000, 6, np.int32))
    before, after = integers.Coded(0.02, 127), integers.Coded(0.1, zero)
    options = (stride, dilation, dilation, 6 if deep else 1)
    x = torch.from_numpy(draw.integers(0, 256, (2, 6, 9, 11), np.uint8))
    zeros = torch.from_numpy(draw.integers(-20, 20, 6, np.int8))
    codes = integers.Layer(weight, scale, zeros, bias, options)(x, before, after)
    kernel = (weight.double() - zeros[:, None, None, None]) * scale[:, None, None, None]
    values = torch.nn.functional.conv2d(before.read(x).double(), kernel, bias * scale.double() * 0.02, *options)
    least, most = after.read(torch.tensor([0, 255], dtype=torch.uint8)).tolist()
    assert (after.read(codes) - values.clamp(least, most)).abs().max() <= 0.05 + 1e-4  # half a step


@pytest.mark.parametrize("size", [(4, 6), (2, 2)])
def test_a_head_in_parts_is_the_head(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    whole = head.Head(7)
    for parameter in whole.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    gain, shift = torch.rand(7) + 0.5, torch.randn(7)
    apart = head.Apart(whole, trunks.FINE_PARTS, trunks.COARSE_PARTS, gain, shift)
    h, w = size
    fine = [torch.randn(2, c, 2 * h, 2 * w) for c in trunks.FINE_PARTS]
    coarse = [torch.randn(2, c, h, w) for c in trunks.COARSE_PARTS]
    coarse[1] = torch.randn(2, trunks.COARSE_PARTS[1], h // 2, w // 2)
    expected = (
        whole(trunks.joined(tuple(fine)), trunks.joined(tuple(coarse))) * gain[:, None, None] + shift[:, None, None]
    )
    torch.testing.assert_close(apart(fine, coarse), expected, atol=1e-4, rtol=1e-4)


def test_parts_of_the_graph_are_torchs() -> None:
    assert (sum(trunks.FINE_PARTS), sum(trunks.COARSE_PARTS)) == (head.FINE, head.COARSE)
    torch.manual_seed(0)
    focus, rgb = detector.Focus(3, 16), torch.rand(2, 3, 64, 96) * 255
    stem = trunks.Stem(focus.conv.conv)
    torch.testing.assert_close(stem(rgb), focus(rgb.flip(1)), atol=1e-3, rtol=1e-4)
    x = torch.linspace(-60, 9, 2 * 5 * 12).reshape(2, 5, 3, 4)
    torch.testing.assert_close(evidence.softplus(x), torch.nn.functional.softplus(x), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(evidence.length(x), x.norm(dim=1, keepdim=True))


def test_agreement_says_what_differs() -> None:
    exact = np.random.default_rng(0).random((5, 6, 3)).astype(np.float32) * 0.05
    exact[1, 2, 0] = 0.8
    same = export.compare([(exact, exact)])
    assert tuple(same) == pytest.approx((1, 0, 0, 1))
    assert not same.bad()
    moved = exact.copy()
    moved[1, 2, 0], moved[4, 5, 0] = exact[4, 5, 0], 0.8
    found = export.compare([(exact, moved)])
    assert found.lost == pytest.approx(1 - exact[4, 5, 0] / 0.8, abs=1e-6)
    assert found.kept == 0
    assert found.bad()


def test_more_channels_change_no_code() -> None:
    draw = np.random.default_rng(0)
    coded = [integers.Coded(0.008, 127), *(integers.Coded(0.02, 0) for _ in range(3))]
    shapes = {(6, 3, 3, 3): (2, 1, 1, 1), (6, 1, 3, 3): (1, 1, 1, 6), (5, 6, 1, 1): (1, 0, 1, 1)}
    layers = torch.nn.ModuleList(
        integers.Layer(
            torch.from_numpy(draw.integers(-127, 128, shape, np.int8)),
            torch.from_numpy(draw.uniform(0.001, 0.01, shape[0]).astype(np.float32)),
            torch.zeros(shape[0], dtype=torch.int8),
            torch.from_numpy(draw.integers(-500, 500, shape[0], np.int32)),
            options,
        )
        for shape, options in shapes.items()
    )
    steps = [(kind, [i], i + 1, i) for i, kind in enumerate(("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D"))]

    def codes(x: Any) -> Any:
        for layer, before, after in zip(layers, coded, coded[1:], strict=False):
            x = layer(x, before, after)
        return x

    rgb = torch.from_numpy(draw.integers(0, 256, (2, 3, 9, 12), np.uint8))
    expected = codes(rgb)
    integers.even(steps, layers)
    assert [tuple(layer.weight.shape[:2]) for layer in layers] == [(16, 4), (16, 1), (5, 16)]
    fourth: Any = integers.Fourth
    assert torch.equal(codes(fourth.apply(rgb)), expected)
    assert len(expected.unique()) > 20


def test_the_shipped_network_is_folded_and_folding_it_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = (classifier.PHOTOS.parents[1] / "encoders/assets/nano_image.onnx").read_bytes()
    assert b"Identity" not in shipped  # of which torch's exporter leaves hundreds
    network = tmp_path / "network.onnx"
    network.write_bytes(shipped)
    Image.open(classifier.PHOTOS / "yellow_bus.jpg").crop((0, 200, 512, 264)).save(tmp_path / "bus.jpg")
    monkeypatch.setattr(fold, "PHOTOS", tmp_path)
    fold.fold(network)  # stops where a number changes
    assert len(network.read_bytes()) == pytest.approx(len(shipped), rel=0.01)
    monkeypatch.setattr(fold, "AGREE", -1.0)
    kept = network.read_bytes()
    with pytest.raises(SystemExit, match=r"bus\.jpg changes"):
        fold.fold(network)
    assert network.read_bytes() == kept


def test_weights_get_a_zero_of_0_and_lose_only_what_is_beyond_a_byte() -> None:
    codes = torch.tensor(np.random.default_rng(0).integers(-100, 100, (3, 4, 3, 3)), dtype=torch.int16)
    codes[1, 0, 0, 0], codes[2] = 128, 2 * codes[2]  # one weight beyond a byte; a channel of which many are
    scale, bias = torch.tensor([0.5, 0.5, 0.5]), torch.tensor([7, 8, 9], dtype=torch.int32)
    weight, steps, zeros, added = integers.symmetric(codes, scale, bias)
    assert weight.dtype == zeros.dtype == torch.int8
    assert not zeros.any()
    assert torch.equal(weight[0].short(), codes[0])
    assert (weight[1].short() - codes[1]).abs().sum() == 1  # cut off: nearer than coarser steps for all
    assert torch.equal(steps[:2], scale[:2])
    assert steps[2] > scale[2]
    assert (weight[2] * steps[2] - codes[2] * scale[2]).abs().max() <= steps[2] / 2 + 1e-6
    assert torch.allclose(added * steps, bias * scale, atol=float(steps.max()) / 2)
