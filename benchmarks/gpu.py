"""For a day with a GPU: what runs there equals NumPy, and how long it takes (docs/gpu.md).

    python -m benchmarks gpu
    python -m benchmarks gpu --device cpu --quick          # without a GPU: to see that it runs

The question on tensors (`foveate.score` and `foveate.allocate` of `texture.to(device)`), the kernel that scores, keeps
the best K cells and gathers their rows, its twin in plain torch, and planes of pixels in a batch. Each is compared with
NumPy before it is timed.
Times begin with the call and end when the device is idle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from benchmarks.common import KEPT, PHOTO, crop_square, make_row, ratio_row, time_each, time_row
from foveate.allocation.policies import top_cells
from foveate.channels.visual import compute_saliency, compute_visual_planes
from foveate.core.checks import check_choice
from foveate.core.errors import DeviceError
from foveate.pipeline import allocate, encode, score

if TYPE_CHECKING:
    from foveate.allocation.torch import KeptRows

RANK, COLUMNS = 24, 40
SIZES = ((1, 4096), (132, 4096), (1, 16_384))  # images, cells; 132: one for each multiprocessor of an H100
QUESTIONS = ("broccoli", "a violin", "the red plate", "a fork and a plate")


def measure(
    device: Annotated[str, typer.Option(help='"cuda", or "cpu" for what works without a GPU.')] = "cuda",
    quick: Annotated[bool, typer.Option("--quick", help="Very small: no number means anything.")] = False,
) -> dict[str, Any]:
    """The question on a device against NumPy, and the kernel against its twin.

    Raises DeviceError where there is no GPU, AssertionError where an answer is not NumPy's.
    """
    import torch  # here, as it takes seconds that no other benchmark needs

    check_choice("--device", device, ("cuda", "cpu"))
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError(
            "no GPU: torch sees none here",
            expected="a GPU, its driver, and a torch that was built for CUDA (docs/gpu.md)",
            fix="`--device cpu --quick` runs what works without one; nothing of it is a number of a GPU",
        )
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    repeats = 3 if quick else 200
    rows = [*asking(device, repeats), *making_planes(device, 2 if quick else 16, repeats)]
    for images, cells in SIZES[:1] if quick else SIZES:
        rows += keeping(device, images, 512 if quick else cells, repeats)
    return {"title": f"benchmarks gpu: {name}", "rows": rows}


def wait(device: str) -> None:
    """Until the device is idle."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def asking(device: str, repeats: int) -> list[dict[str, Any]]:
    """`score` and `allocate` of a photograph: the same cells as NumPy, and the time of both."""
    texture = encode(crop_square(PHOTO, 512))
    there = texture.to(device)
    for question in QUESTIONS:
        here, found = (allocate(score(each, question), KEPT) for each in (texture, there))
        same = float(np.isin(np.asarray(found), here.indices).mean())
        if same < 1 - 1 / KEPT:  # one cell may change places with one that is as good to seven digits
            raise AssertionError(f"{question!r}: {same:.3f} of the kept cells are NumPy's")
    ways = {
        "numpy": lambda: allocate(score(texture, QUESTIONS[0]), KEPT),
        device: lambda: allocate(score(there, QUESTIONS[0]), KEPT),
    }
    times = time_each(ways, repeats, partial(wait, device))
    return [time_row(f"score and allocate, {way}", each, "µs") for way, each in times.items()]


def making_planes(device: str, images: int, repeats: int) -> list[dict[str, Any]]:
    """The planes of channels="fast": by NumPy one by one, on the device in one batch, and with the way there, back."""
    import torch

    from foveate.channels.torch import planes_of_batch

    rgb, shape = crop_square(PHOTO, 512), (64, 64)
    batch = torch.from_numpy(np.stack([np.roll(rgb, 8 * i, 1) for i in range(images)]))
    sent = batch.to(device)
    expected, found = compute_visual_planes(rgb), planes_of_batch(sent, shape)
    apart = {name: np.abs(found[name][0].cpu().numpy() - plane) > 1e-5 for name, plane in expected.items()}
    if max(float(each.mean()) for each in apart.values()) > 1e-3:  # rounding decides where a pixel is as its surround
        raise AssertionError(
            f"planes of a batch are not NumPy's: { {name: each.mean() for name, each in apart.items()} }"
        )
    ways = {
        "NumPy": lambda: [(compute_visual_planes(each), compute_saliency(each, shape)) for each in batch.numpy()],
        f"{device}": lambda: planes_of_batch(sent, shape),
        f"{device}, there and back": lambda: {
            name: plane.cpu() for name, plane in planes_of_batch(batch.to(device), shape).items()
        },
    }
    with torch.inference_mode():
        times = time_each(ways, max(3, repeats // 20), partial(wait, device))
    rows = [time_row(f"planes of {images} images of 512 x 512, {way}", each, "ms") for way, each in times.items()]
    back = times[f"{device}, there and back"]
    return [*rows, ratio_row("NumPy / there and back", times["NumPy"], back, "> 1")]


def keeping(device: str, images: int, cells: int, repeats: int) -> list[dict[str, Any]]:
    """The kernel and its twin on random textures, one question each."""
    import torch

    from foveate.allocation.torch import keep_rows

    rng = np.random.default_rng(0)
    z = rng.standard_normal((images, RANK, cells)).astype(np.float16)  # number by number, as in a DeviceTexture
    weights = rng.standard_normal((images, 1, RANK)).astype(np.float32)
    table = rng.standard_normal((images, cells, COLUMNS)).astype(np.float16)
    given = [torch.tensor(each, device=device) for each in (z, weights, np.zeros((images, 1), np.float32), table)]
    given[0] = given[0].mT
    what = f"{images} images of {cells} cells, the best {KEPT} and their rows"
    ways: dict[str, Callable[[], KeptRows]] = {"plain torch": partial(keep_rows, *given, budget=KEPT)}
    if device == "cuda":
        from foveate.allocation import kernel

        ways["kernel"] = partial(kernel.keep_rows, *given, budget=KEPT)
    scores = np.einsum("bqr,brn->bqn", weights.astype(np.float64), z.astype(np.float64)).astype(np.float32)
    rows = []
    for name, way in ways.items():
        share = agreement(way(), scores)
        if share < 1 - 1 / KEPT:
            raise AssertionError(f"{what}, {name}: {share:.4f} of the cells are NumPy's")
        rows.append(make_row(f"{what}, {name}: share of NumPy's cells", share, f"{share:.4f}", ">= 0.9963"))
    times = time_each(ways, repeats, partial(wait, device))
    rows += [time_row(f"{what}, {name}", each, "µs") for name, each in times.items()]
    if "kernel" in times:
        rows.append(ratio_row(f"{what}: plain torch / kernel", times["plain torch"], times["kernel"], "> 1"))
    return rows


def agreement(found: KeptRows, scores: np.ndarray) -> float:
    """Share of the kept cells that NumPy keeps of these scores [b, 1, n]."""
    kept = found.indices[:, 0].cpu().numpy()
    return float(np.mean([np.isin(a, top_cells(b[0], KEPT)).mean() for a, b in zip(kept, scores, strict=True)]))
