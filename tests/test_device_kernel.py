"""The question in one launch: the kernel in Triton's interpreter (on a GPU as it is), plain torch, and NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

CUDA = torch.cuda.is_available()
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # read where the kernel is first imported

from foveate.allocation.device import fused  # noqa: E402
from foveate.allocation.device.fused import How, KeptRows, Threshold, ask, ask_reference, gather, launch, select  # noqa: E402
from foveate.allocation.device.selection import top_indices  # noqa: E402
from foveate.allocation.policies import top_cells  # noqa: E402
from foveate.core.errors import DeviceError  # noqa: E402
from foveate.encoders.load import load_encoder  # noqa: E402
from foveate.language.query import prepare  # noqa: E402
from foveate.texture.tensors import stack  # noqa: E402
from foveate.texture.texture import Texture  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
TINY = float(np.finfo(np.float32).smallest_subnormal)
ODD = (0.0, -0.0, TINY, -TINY, 3 * TINY, 1e-30, 1.0, -1.0, 1.0000001, 3e38, -3e38, np.inf, -np.inf)
HOWS: tuple[How, ...] = ("auto", "triton", "torch")
THRESHOLDS: tuple[Threshold, ...] = ("histogram", "bisection")
pytest.importorskip("triton")


def on_device(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array, device=DEVICE)


def top_by_kernel(scores: np.ndarray, budget: int, threshold: Threshold) -> np.ndarray:
    return launch(None, None, None, on_device(scores), None, budget, threshold).indices.cpu().numpy()


@st.composite
def scored(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Scores [b, q, n] with many ties and odd numbers, and a budget."""
    b, q, n = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 300))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    few = np.array(ODD, np.float32)[: draw(st.integers(1, len(ODD)))]
    scores = rng.choice(few, (b, q, n)) if draw(st.booleans()) else rng.standard_normal((b, q, n), np.float32)
    return scores.astype(np.float32), draw(st.sampled_from([1, n, (n + 1) // 2]))


@settings(max_examples=20, deadline=None)
@given(scored(), st.sampled_from(THRESHOLDS))
def test_kernel_and_torch_keep_what_numpy_keeps(case: tuple[np.ndarray, int], threshold: Threshold) -> None:
    scores, budget = case
    wanted = [[top_cells(one, budget).tolist() for one in image] for image in scores]
    assert top_indices(on_device(scores), budget).tolist() == wanted
    assert top_by_kernel(scores, budget, threshold).tolist() == wanted


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_nan_comes_last_and_is_given_back_as_minus_infinity(threshold: Threshold) -> None:
    scores = np.array([[[np.nan, 1, -np.inf, 2, np.nan, -np.nan]]], np.float32)
    for budget in range(1, 7):
        wanted = top_cells(np.where(np.isnan(scores[0, 0]), np.float32(-np.inf), scores[0, 0]), budget).tolist()
        found = launch(None, None, None, on_device(scores), None, budget, threshold)
        assert found.indices.tolist() == top_indices(on_device(scores), budget).tolist() == [[wanted]]
        assert not found.scores.isnan().any()


@pytest.mark.parametrize("threshold", THRESHOLDS)
@pytest.mark.parametrize(("n", "k"), [(16_384, 4_096), (16_384, 1), (4_096, 273), (16_383, 4_096), (257, 256)])
def test_the_largest_sizes(n: int, k: int, threshold: Threshold) -> None:
    scores = np.random.default_rng(n).integers(0, 1000, (1, 1, n)).astype(np.float32)
    assert top_by_kernel(scores, k, threshold)[0, 0].tolist() == top_cells(scores[0, 0], k).tolist()


def batch(b: int = 2, q: int = 3, n: int = 300, r: int = 5, columns: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    z = rng.integers(-8, 9, (b, n, r)).astype(np.float16)
    return {
        "z": z,  # whole numbers: every order of adding gives the same score
        "weights": rng.integers(-8, 9, (b, q, r)).astype(np.float32),
        "offsets": rng.integers(-3, 4, (b, q)).astype(np.float32),
        "table": rng.standard_normal((b, n, columns)).astype(np.float16),
    }


@pytest.mark.parametrize("number_by_number", [True, False])
@pytest.mark.parametrize("shape", [None, (2, 300), (2, 3, 300)])
def test_scores_places_and_rows_are_those_of_numpy(shape: tuple[int, ...] | None, number_by_number: bool) -> None:
    made = batch()
    bias = None if shape is None else np.random.default_rng(1).integers(0, 9, shape).astype(np.float32)
    wanted = ask_reference(made["z"], made["weights"], made["offsets"], bias, made["table"], 70)
    tensors = {name: on_device(array) for name, array in made.items()}
    if number_by_number:
        tensors["z"] = tensors["z"].mT.contiguous().mT
    given_bias = None if bias is None else on_device(bias)
    by_kernel = launch(tensors["z"], tensors["weights"], tensors["offsets"], given_bias, tensors["table"], 70)
    scores = tensors["weights"] @ tensors["z"].float().mT + tensors["offsets"][..., None]
    if given_bias is not None:
        scores = scores + (given_bias[:, None] if given_bias.ndim == 2 else given_bias)
    for found in (by_kernel, gather(scores, tensors["table"], 70)):
        assert_equal(found, wanted)


def test_a_photograph_keeps_the_same_cells(texture: Texture) -> None:
    """Scores that are no whole numbers: the same to rounding, and the same cells."""
    vectors = prepare(load_encoder("nano"), "broccoli, a plate, a violin").vectors
    there = stack([texture, texture], DEVICE)
    by_kernel, by_torch = (ask(there, vectors, 273, how=how) for how in HOWS[1:])
    wanted = [top_cells(one, 273).tolist() for one in texture.scores(vectors).reshape(3, -1)]
    assert by_kernel.indices.tolist() == by_torch.indices.tolist() == [wanted, wanted]
    assert torch.equal(by_kernel.rows, by_torch.rows)
    np.testing.assert_allclose(by_kernel.scores.cpu(), by_torch.scores.cpu(), atol=1e-6)


def assert_equal(found: KeptRows, wanted: tuple[np.ndarray, ...]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == torch.tensor(other).dtype
        np.testing.assert_array_equal(one.cpu().numpy(), other)


def test_the_kernel_is_chosen_where_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = on_device(np.random.default_rng(0).standard_normal((2, 500), np.float32))
    wanted = [top_cells(one, 20).tolist() for one in scores.cpu().numpy()]
    for how in HOWS:
        assert select(scores, 20, how=how).tolist() == wanted
    with pytest.raises(DeviceError, match="16384"):
        select(torch.zeros(1, 16_385, device=DEVICE), 3, how="triton")
    assert select(torch.zeros(1, 16_385, device=DEVICE), 3).tolist() == [[0, 1, 2]]  # plain torch
    with pytest.raises(ValueError, match="how='numpy'"):
        select(scores, 3, how="numpy")  # type: ignore[arg-type]
    monkeypatch.setattr(fused, "_has_triton", lambda: False)
    with pytest.raises(DeviceError, match="not installed"):
        select(scores, 3, how="triton")
    monkeypatch.undo()
    monkeypatch.setattr(fused, "_interpreted", lambda: False)
    with pytest.raises(DeviceError, match="on cpu"):
        select(scores.cpu(), 3, how="triton")


@pytest.mark.slow
def test_the_kernel_compiles_for_a_gpu() -> None:
    """In a process of its own: there Triton does not interpret. No GPU is needed to compile for one."""
    code = """
import warnings; warnings.simplefilter("ignore")
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from foveate.allocation.device.kernel import ask_kernel
kinds = dict(z="*fp16", weights="*fp32", offsets="*fp32", bias="*fp32", table="*i64", out_index="*i64",
             out_score="*fp32", out_rows="*i64")
signature = {n: kinds.get(n, "constexpr" if n.isupper() else "i32") for n in ask_kernel.arg_names}
fixed = dict(RANK=24, WORDS=10, HAS_BIAS=True, BLOCK=16384, HISTOGRAM=True)
source = ASTSource(fn=ask_kernel, signature=signature, constexprs=fixed)
built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(num_warps=32))
print(len(built.asm["cubin"]), built.metadata.shared)
"""
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    size, shared = map(int, done.stdout.split())
    assert size > 0
    assert shared <= 227 * 1024  # of a block on an H100
