"""Score, exact top-K and gather: the kernel in Triton's interpreter (on a GPU as it is), plain torch, and NumPy."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

CUDA = torch.cuda.is_available()
if not CUDA:
    os.environ["TRITON_INTERPRET"] = "1"  # read where the kernel is first imported
pytest.importorskip("triton")

from foveate.allocation import kernel  # noqa: E402
from foveate.allocation.policies import top_cells  # noqa: E402
from foveate.allocation.torch import keep_rows, top_indices  # noqa: E402
from foveate.core.errors import OptionError  # noqa: E402
from foveate.encoders.load import load_encoder  # noqa: E402
from foveate.language.query import prepare  # noqa: E402
from foveate.texture.texture import Texture  # noqa: E402

DEVICE = "cuda" if CUDA else "cpu"
TINY = float(np.finfo(np.float32).smallest_subnormal)
ODD = (0.0, -0.0, TINY, -TINY, 3 * TINY, 1e-30, 1.0, -1.0, 1.0000001, 3e38, -3e38, np.inf, -np.inf, np.nan)


def on_device(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array, device=DEVICE)


def top_by_kernel(scores: np.ndarray, budget: int) -> list[list[list[int]]]:
    """Of scores [b, n], one question each, as numbers of rank 1."""
    one = np.ones((len(scores), 1, 1), np.float32)
    z, table = scores[..., None], np.zeros((*scores.shape, 4), np.float16)
    found = kernel.keep_rows(*map(on_device, (z, one, one[..., 0] - 1, table)), budget=budget)
    assert not found.scores.isnan().any()
    return found.indices.tolist()


@st.composite
def scored(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Scores [b, n] with many ties and odd numbers, and a budget."""
    b, n = draw(st.integers(1, 3)), draw(st.integers(1, 300))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    few = np.array(ODD, np.float32)[: draw(st.integers(1, len(ODD)))]
    scores = rng.choice(few, (b, n)) if draw(st.booleans()) else rng.standard_normal((b, n), np.float32)
    return scores.astype(np.float32), draw(st.sampled_from([1, n, (n + 1) // 2]))


@settings(max_examples=20, deadline=None)
@given(scored())
def test_kernel_and_torch_keep_what_numpy_keeps(case: tuple[np.ndarray, int]) -> None:
    """Ties by the lower index; NaN as -infinity, -0.0 as 0.0, subnormal numbers apart."""
    scores, budget = case
    wanted = [[top_cells(np.where(np.isnan(one), np.float32(-np.inf), one), budget).tolist()] for one in scores]
    assert top_indices(on_device(scores[:, None]), budget).tolist() == wanted
    assert top_by_kernel(scores, budget) == wanted


@pytest.mark.parametrize(("n", "k"), [(16_384, 4_096), (4_096, 273), (16_383, 1)])
def test_the_largest_sizes(n: int, k: int) -> None:
    scores = np.random.default_rng(n).integers(0, 1000, (1, n)).astype(np.float32)
    assert top_by_kernel(scores, k)[0][0] == top_cells(scores[0], k).tolist()


@pytest.mark.parametrize("number_by_number", [True, False])
def test_scores_places_and_rows_are_those_of_numpy(number_by_number: bool) -> None:
    """Of whole numbers: every order of adding gives the same score."""
    rng = np.random.default_rng(0)
    z = rng.integers(-8, 9, (2, 300, 5)).astype(np.float16)
    weights, offsets = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((2, 3, 5), (2, 3)))
    table = rng.standard_normal((2, 300, 8)).astype(np.float16)
    scores = weights @ z.astype(np.float32).transpose(0, 2, 1) + offsets[..., None]
    kept = np.array([[top_cells(one, 70) for one in image] for image in scores])
    tensors = [on_device(each) for each in (z, weights, offsets, table)]
    if number_by_number:
        tensors[0] = tensors[0].mT.contiguous().mT
    for found in (kernel.keep_rows(*tensors, budget=70), keep_rows(*tensors, budget=70)):
        np.testing.assert_array_equal(found.indices.cpu(), kept)
        np.testing.assert_array_equal(found.scores.cpu(), np.take_along_axis(scores, kept, -1))
        np.testing.assert_array_equal(found.rows.cpu(), [rows[each] for rows, each in zip(table, kept, strict=True)])


def test_a_photograph_keeps_the_same_cells(texture: Texture) -> None:
    """Scores that are no whole numbers: the same to rounding, and the same cells."""
    vectors = prepare(load_encoder("nano"), "broccoli, a plate, a violin").vectors
    there = texture.to(DEVICE)
    q = on_device(vectors).double()
    weights, offsets = (q @ there.rows.double().mT).float(), (q @ there.mean.double()).float()
    given = there.z[None], weights[None], offsets[None], there.table[None]
    by_kernel, by_torch = kernel.keep_rows(*given, budget=273), keep_rows(*given, budget=273)
    wanted = [top_cells(one, 273).tolist() for one in texture.scores(vectors).reshape(3, -1)]
    assert by_kernel.indices.tolist() == by_torch.indices.tolist() == [wanted]
    assert torch.equal(by_kernel.rows, by_torch.rows)
    np.testing.assert_allclose(by_kernel.scores.cpu(), by_torch.scores.cpu(), atol=1e-6)


@pytest.mark.parametrize(("cells", "columns", "budget"), [(16_385, 4, 3), (300, 6, 3), (300, 4, 301), (300, 4, 0)])
def test_what_the_kernel_does_not_take_is_refused(cells: int, columns: int, budget: int) -> None:
    shapes = (1, cells, 1), (1, 1, 1), (1, 1), (1, cells, columns)
    with pytest.raises(OptionError, match=f"{cells} cells"):
        kernel.keep_rows(*(torch.zeros(shape) for shape in shapes), budget=budget)


@pytest.mark.slow
def test_the_kernel_compiles_for_a_gpu() -> None:
    """In a process of its own: there Triton does not interpret. No GPU is needed to compile for one."""
    code = """
import warnings; warnings.simplefilter("ignore")
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from foveate.allocation.kernel import ask_kernel
kinds = dict(z="*fp16", weights="*fp32", offsets="*fp32", table="*i64", out_index="*i64", out_score="*fp32",
             out_rows="*i64")
signature = {n: kinds.get(n, "constexpr" if n.isupper() else "i32") for n in ask_kernel.arg_names}
source = ASTSource(fn=ask_kernel, signature=signature, constexprs=dict(RANK=24, WORDS=10, BLOCK=4096))
built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=dict(num_warps=32))
print(len(built.asm["cubin"]), built.metadata.shared)
"""
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=clean, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    size, shared = map(int, done.stdout.split())
    assert size > 0
    assert 4 * shared <= 227 * 1024  # of a block on an H100, where up to four times as many cells are
