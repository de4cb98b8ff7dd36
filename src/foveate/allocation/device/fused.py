"""A question of a batch in one launch: score N x r, exact top-K, gather of token rows.

    found = ask(stack(textures, "cuda"), vectors, 273)
    found.indices, found.scores, found.rows         # int64, float32 [b, q, 273]; float16 [b, q, 273, columns]

The score is the plain one, q.mean + (B q).z, plus a bias where one is given: what negatives, saliency or a prior add.
The whole of `foveate.score`, with segments, confidence and spread, is scoring.py. On a GPU with Triton this is one
kernel (kernel.py); elsewhere, and for more than 16,384 cells, plain torch. `how` names one, and never falls back.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.allocation.device.selection import cleaned, top_indices
from foveate.allocation.policies import top_cells
from foveate.core.checks import check_array, check_choice, check_int
from foveate.core.devices import check_same, working_on
from foveate.core.errors import BudgetError, DeviceError, OptionError
from foveate.core.failures import explain_device
from foveate.texture.tensors import FEWER, OnDevice, check_texture

How = Literal["auto", "triton", "torch"]
Threshold = Literal["histogram", "bisection"]
MOST_CELLS, MOST_KEPT = 16_384, 4_096  # of the kernel: the registers of a block; two counts of so many fit into 32 bits
WORD = 4  # float16 in 8 bytes, of which a row is copied


class KeptRows(NamedTuple):
    """What was kept of b images for q questions, in tensors.

    indices: int64 [b, q, K], ascending. scores: float32 [b, q, K]. rows: of the table, float16 [b, q, K, columns].
    """

    indices: Tensor
    scores: Tensor
    rows: Tensor


def ask(
    texture: OnDevice,
    vectors: NDArray[np.floating] | Tensor,
    budget: int,
    *,
    bias: Tensor | None = None,
    how: How = "auto",
) -> KeptRows:
    """The cells with the highest scores of each question in each image, and their rows.

    Args:
        texture: DeviceTexture, or several in DeviceTextures.
        vectors: text vectors [q, D], `foveate.language.prepare(encoder, text).vectors`; a tensor on the texture's
            device, or NumPy's, which is sent there.
        budget: K.
        bias: float32 [b, n] or [b, q, n], on the texture's device; added to the scores.
        how: "triton", "torch"; "auto" is Triton on a GPU where it is installed, for up to 16,384 cells.

    Raises:
        OptionError: vectors of another width or not finite. BudgetError: K. DeviceError: tensors on another device,
        tensors of the texture that were written into, or `how="triton"` where that cannot be.
    """
    check_texture(texture)
    tensors = texture.tensors
    cells, width = tensors.z.shape[1], tensors.rows.shape[2]
    budget = check_int("budget", budget, 1, cells, fix=f"a number from 1 to {cells}", error=BudgetError)
    checked = check_vectors(vectors, width, texture.device)
    if bias is not None:
        check_same("the bias", bias.device, texture.device)
        if bias.dtype != torch.float32 or bias.shape not in (
            tensors.z.shape[:2],
            (len(tensors.z), len(checked), cells),
        ):
            raise OptionError(
                f"a bias {bias.dtype} {list(bias.shape)}",
                expected=f"float32 [{len(tensors.z)}, {cells}], or [{len(tensors.z)}, {len(checked)}, {cells}]",
                fix="one number for each cell",
            )
    with explain_device(f"{len(checked)} questions of {texture!r}", texture.device, FEWER):
        return ask_tensors(texture, as_vectors(checked, width, texture.device), budget, bias, how=how)


def as_vectors(vectors: NDArray[np.floating] | Tensor, width: int, device: torch.device) -> Tensor:
    """Text vectors float32 [q, D] on a device. Raises as `check_vectors`."""
    checked = check_vectors(vectors, width, device)
    return checked if isinstance(checked, Tensor) else torch.tensor(checked).to(device, non_blocking=True)


def check_vectors(
    vectors: NDArray[np.floating] | Tensor, width: int, device: torch.device
) -> NDArray[np.float32] | Tensor:
    """Text vectors float32 [q, D]: a tensor on this device, or NumPy's, finite.

    Raises OptionError, and DeviceError for a tensor that is elsewhere. To look into a tensor would wait for the device.
    """
    if not isinstance(vectors, Tensor):
        return check_array("text vectors", vectors, [None, width], fix="prepare(encoder, text).vectors")
    check_same("the text vectors", vectors.device, device)
    if vectors.dtype == torch.float32 and vectors.ndim == 2 and vectors.shape[1] == width:
        return vectors
    raise OptionError(
        f"text vectors {vectors.dtype} {list(vectors.shape)}",
        expected=f"float32 [q, {width}]",
        fix="vectors.float()",
    )


def ask_tensors(texture: OnDevice, vectors: Tensor, budget: int, bias: Tensor | None, *, how: How = "auto") -> KeptRows:
    """`ask` of checked values: it waits for nothing, so a graph can capture it."""
    tensors = texture.tensors
    weights, offsets = project(texture, vectors)
    if use_triton(how, texture.device, tensors.z.shape[1], budget):
        return launch(tensors.z, weights, offsets, bias, tensors.table, budget)
    scores = torch.matmul(weights.double(), tensors.z.double().mT).float() + offsets[..., None]
    if bias is not None:
        scores = scores + (bias[:, None] if bias.ndim == 2 else bias)
    return gather(scores, tensors.table, budget)


def project(texture: OnDevice, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Text vectors [q, D] -> weights of z, float32 [b, q, r], and offsets, float32 [b, q].

    In float64: the user may have allowed TF32 for products of float32, which would move cells.
    """
    q, tensors = vectors.double(), texture.tensors
    rows = texture.derive("rows", lambda: tensors.rows.double().mT.contiguous())
    mean = texture.derive("mean", lambda: tensors.mean.double())
    return torch.matmul(q, rows).float(), (mean @ q.mT).float()


def gather(scores: Tensor, table: Tensor, budget: int) -> KeptRows:
    """The kept cells of scores [b, q, n], and their rows of the table [b, n, columns]."""
    scores = cleaned(scores)
    indices = top_indices(scores, budget)
    image = torch.arange(len(table), device=table.device)[:, None, None]
    return KeptRows(indices, scores.gather(-1, indices), table[image, indices])


def select(scores: Tensor, budget: int, *, how: How = "auto") -> Tensor:
    """Indices of the `budget` largest of scores float32 [..., n], ascending, ties to the lower: int64 [..., budget]."""
    if not use_triton(how, scores.device, scores.shape[-1], budget):
        return top_indices(scores, budget)
    flat = scores.reshape(1, -1, scores.shape[-1])
    return launch(None, None, None, flat, None, budget).indices.reshape(*scores.shape[:-1], budget)


def use_triton(how: How, device: torch.device, cells: int, budget: int) -> bool:
    """Whether the kernel is what works. Raises DeviceError where it is named and cannot."""
    check_choice("how", how, ("auto", "triton", "torch"))
    if how == "torch" or (how == "auto" and device.type != "cuda"):
        return False
    why = "" if _has_triton() else "triton is not installed"
    if cells > MOST_CELLS or budget > MOST_KEPT:
        why = f"{cells} cells, of which {budget} are kept: the kernel takes {MOST_CELLS} and {MOST_KEPT}"
    elif device.type != "cuda" and not _interpreted():
        why = f"tensors on {device}"
    if why and how == "triton":
        raise DeviceError(
            f"how='triton': {why}",
            expected=f"tensors on a GPU, up to {MOST_CELLS} cells and a budget up to {MOST_KEPT}",
            fix="leave it out: plain torch gives the same",
        )
    return not why


def launch(
    z: Tensor | None,
    weights: Tensor | None,
    offsets: Tensor | None,
    bias: Tensor | None,
    table: Tensor | None,
    budget: int,
    threshold: Threshold = "histogram",
) -> KeptRows:
    """The kernel, by itself: no checks.

    Args:
        z: float16 or float32 [b, n, r], any strides. None for scores that are there already, as `bias`.
        weights: float32 [b, q, r]. offsets: float32 [b, q]. All three or none.
        bias: float32 [b, n] or [b, q, n], contiguous along n.
        table: float16 [b, n, columns], contiguous, columns a multiple of 4; None for no rows.
    """
    from foveate.allocation.device import kernel

    if z is not None and weights is not None:
        (images, cells, rank), questions = z.shape, weights.shape[1]
        strides = z.stride()
    else:
        assert bias is not None
        (images, questions, cells), rank, strides = bias.shape, 0, (0, 0, 0)
    some: Any = bias if bias is not None else weights
    device = some.device
    words = 0 if table is None else table.shape[2] // WORD
    indices = torch.empty((images, questions, budget), dtype=torch.int64, device=device)
    scores = torch.empty((images, questions, budget), dtype=torch.float32, device=device)
    rows = torch.empty((images, questions, budget, words * WORD), dtype=torch.float16, device=device)
    block = max(256, 1 << math.ceil(math.log2(cells)))
    bias_strides = (0, 0)
    if bias is not None:
        bias = bias.contiguous()
        bias_strides = (cells, 0) if bias.ndim == 2 else (questions * cells, cells)
    launcher = kernel.ask_kernel[(images, questions)]
    with working_on(device):  # Triton goes to the current one
        launcher(
            some if z is None else z,
            some if weights is None else weights.contiguous(),
            some if offsets is None else offsets.contiguous(),
            some if bias is None else bias,
            indices if table is None else table.view(torch.int64),
            indices,
            scores,
            rows.view(torch.int64) if words else indices,
            cells,
            budget,
            questions,
            *strides,
            *bias_strides,
            RANK=rank,
            WORDS=words,
            HAS_BIAS=bias is not None,
            BLOCK=block,
            HISTOGRAM=threshold == "histogram",
            num_warps=min(32, max(4, block // 256)),
            enable_fp_fusion=True,  # Triton's default, and a warning where nobody says so
        )
    return KeptRows(indices, scores, rows)


def ask_reference(
    z: NDArray[Any],
    weights: NDArray[np.float32],
    offsets: NDArray[np.float32],
    bias: NDArray[np.float32] | None,
    table: NDArray[Any],
    budget: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[Any]]:
    """What is right, in NumPy: shapes as of `launch`. -> indices, scores, rows, as of KeptRows."""
    scores = np.matmul(weights, np.asarray(z, np.float32).transpose(0, 2, 1)) + offsets[..., None]
    if bias is not None:
        scores = scores + (bias[:, None] if bias.ndim == 2 else bias)
    scores = np.where(np.isnan(scores), np.float32(-np.inf), scores)
    kept = np.array([[top_cells(one, budget) for one in image] for image in scores])
    return (
        kept,
        np.take_along_axis(scores, kept, -1),
        np.array([rows[each] for rows, each in zip(table, kept, strict=True)]),
    )


def _interpreted() -> bool:
    """Whether Triton's kernels run in its interpreter, which takes tensors of the CPU."""
    from triton import JITFunction

    from foveate.allocation.device.kernel import ask_kernel

    return not isinstance(ask_kernel, JITFunction)


def _has_triton() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True
