"""The shipped nano (training/): segmenters in integers, a head in parts; each against its slow twin.

That onnxruntime counts as torch does is checked at each export (training/nano/export.py): it needs onnx.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from training.nano import detector, evidence, export, head, integers, trunks  # noqa: E402


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
    codes = integers.Layer(weight, scale, bias, options)(x, before, after)
    values = torch.nn.functional.conv2d(
        before.read(x).double(), weight * scale[:, None, None, None].double(), bias * scale.double() * 0.02, *options
    )
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


def test_the_parts_are_what_the_head_was_made_for() -> None:
    assert (sum(trunks.FINE_PARTS), sum(trunks.COARSE_PARTS)) == (head.FINE, head.COARSE)


def test_the_stem_as_one_convolution_is_the_detectors() -> None:
    torch.manual_seed(0)
    focus, rgb = detector.Focus(3, 16), torch.rand(2, 3, 64, 96) * 255
    stem = trunks.Stem(focus.conv.conv)
    torch.testing.assert_close(stem(rgb), focus(rgb.flip(1)), atol=1e-3, rtol=1e-4)


def test_softplus_and_length_are_torchs() -> None:
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
