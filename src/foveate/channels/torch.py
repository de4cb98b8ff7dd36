"""The planes of channels="fast" by torch, of many images at once, with gradients: visual.py's twin (extra `[torch]`).

* uint8 pixels give NumPy's planes but for rounding: luma is OpenCV's, in whole numbers. Where a pixel is as bright as
  its surround, rounding decides between edge_on and edge_off.
* Floating pixels are not rounded to levels, so that planes have slopes; edge_distance alone has no gradient.
* Sums are made in float64: the user may have allowed TF32. Planes are float32, of float64 pixels float64.
* The distance to edges is exact, not jump flooding: scans along the columns, then for each row the lowest parabola.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.channels.build import VISUAL
from foveate.channels.visual import BLUR_SIGMA, EDGE, FLAT, FULL_STEP, SIDE, SURROUND
from foveate.core.checks import check_pair
from foveate.core.devices import import_torch
from foveate.core.errors import OptionError
from foveate.texture.torch import move_plane

if TYPE_CHECKING:
    from torch import Tensor

LUMA = (9798, 19235, 3735)  # of 2^15, as OpenCV has them
MOST_PAIRS = 2**24  # of columns at once, in the distance: 128 MB
FAR = 1e6  # samples: farther than any image is large
SOBEL = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float64)


def planes_of_batch(pixels: Tensor, shape: tuple[int, int]) -> dict[str, Tensor]:
    """The planes of channels="fast" of images of one size, on their device; gradients flow through them.

    Args:
        pixels: [B, H, W, 3] of 64 pixels a side at least: uint8, or floating from 0 to 255, which is not looked for:
            of others planes are beyond [0, 1], and NaN stays.
        shape: cells (h, w) of saliency.

    Returns:
        edge_on, edge_off, high_pass, low_pass, edge_distance [B, ceil(H/4), ceil(W/4)], saliency [B, h, w], in [0, 1].

    Raises:
        OptionError: anything else. MissingExtraError: no torch.
    """
    torch = import_torch("planes_of_batch")
    size = check_pair("shape", shape, fix="pass texture.grid.shape")
    is_batch = isinstance(pixels, torch.Tensor) and pixels.ndim == 4 and pixels.shape[-1] == 3 and len(pixels) > 0
    if not is_batch or min(pixels.shape[1:3]) < SIDE or not (pixels.is_floating_point() or pixels.dtype == torch.uint8):
        came = f"{list(pixels.shape)} {pixels.dtype}" if hasattr(pixels, "dtype") else type(pixels).__name__
        raise OptionError(
            f"pixels: {came}",
            expected=f"a tensor [B, H, W, 3] of at least 1 image, {SIDE} x {SIDE} pixels, uint8, or floating to 255",
            fix="torch.from_numpy(np.stack([texture.pixel for texture in textures])), of images of one size",
        )
    visual = _visual(pixels)
    found = dict(zip(VISUAL, visual, strict=True)) | {"saliency": _saliency(pixels, size)}
    kind = pixels.dtype if pixels.is_floating_point() else torch.float32
    return {name: plane.to(kind) for name, plane in found.items()}


def _visual(pixels: Tensor) -> tuple[Tensor, ...]:
    import torch

    functional, gray = torch.nn.functional, _luma(pixels)
    quarter = -(-gray.shape[1] // 4), -(-gray.shape[2] // 4)
    blur, sobel = (_placed(each, gray) for each in (SURROUND.ravel(), np.stack([SOBEL, SOBEL.T])[:, None]))
    reach = len(SURROUND) // 2
    padded = functional.pad(gray[:, None], (reach,) * 4, mode="replicate")
    low = functional.conv2d(functional.conv2d(padded, blur[None, None, None]), blur[None, None, :, None])[:, 0]
    steps = functional.conv2d(functional.pad(gray[:, None], (1,) * 4, mode="replicate"), sobel)
    magnitude = _root(steps.square().sum(1)) / float(FULL_STEP)
    brighter = gray >= low
    sides = torch.stack([magnitude * brighter, magnitude * ~brighter])
    edge_on, edge_off = move_plane(sides, quarter, "max").clamp(max=1)
    high, low = move_plane(torch.stack([(gray - low).abs(), low]), quarter) / 255
    return edge_on, edge_off, high, low, _distance(torch.maximum(edge_on, edge_off).detach() > EDGE)


def _distance(edges: Tensor) -> Tensor:
    """Exact distance to the nearest edge, as a share of the diagonal: bool [B, h, w] -> float64 [B, h, w]."""
    import torch

    h, w = edges.shape[1:]
    y, x = (torch.arange(n, device=edges.device, dtype=torch.float64) for n in (h, w))
    above = torch.where(edges, y[:, None], -FAR).cummax(1).values
    below = torch.where(edges, y[:, None], FAR).flip(1).cummin(1).values.flip(1)
    straight = torch.minimum(y[:, None] - above, below - y[:, None]).square()  # to the nearest edge of the column
    apart = (x[:, None] - x).square()
    rows, step = straight.reshape(-1, w), max(1, MOST_PAIRS // (w * w))
    parts = [(rows[i : i + step, None] + apart).amin(2) for i in range(0, len(rows), step)]
    nearest = torch.cat(parts).reshape(edges.shape)
    return (nearest.sqrt() / float(np.hypot(h, w))).clamp(max=1)


def _saliency(pixels: Tensor, shape: tuple[int, int]) -> Tensor:
    import torch

    small = move_plane(pixels.double().movedim(-1, 1), (SIDE, SIDE)).movedim(1, -1)
    luma = _luma(small if pixels.is_floating_point() else small.round().to(torch.uint8)) / 255
    spectrum = torch.fft.fft2(luma)
    eye = np.eye(SIDE, dtype=np.float32)
    mean = _placed(cv2.blur(eye, (1, 3), borderType=cv2.BORDER_REFLECT), pixels)
    blur = cv2.GaussianBlur(eye, (1, 0), 1e-9, sigmaY=BLUR_SIGMA, borderType=cv2.BORDER_REFLECT)
    smooth = _placed(blur, pixels)
    amplitude = (spectrum.abs() + 1e-8).log()
    residual = amplitude - mean @ amplitude @ mean.mT
    power = torch.fft.ifft2(torch.polar(residual.exp(), spectrum.angle())).abs().square()
    plane = smooth @ power @ smooth.mT
    lowest, highest = plane.amin((1, 2), keepdim=True), plane.amax((1, 2), keepdim=True)
    there = (luma.std((1, 2), correction=0, keepdim=True) >= FLAT) & (highest - lowest >= 1e-12)
    scaled = (plane - lowest) / (highest - lowest).clamp(min=1e-12)
    return move_plane(scaled, shape).clamp(0, 1) * there


def _luma(rgb: Tensor) -> Tensor:
    """[..., 3] -> float64 [...]: of uint8 whole numbers, as OpenCV rounds them."""
    import torch

    if rgb.is_floating_point():
        return (rgb.double() * torch.tensor(LUMA, device=rgb.device, dtype=torch.float64)).sum(-1) / 2**15
    weighted = (rgb.int() * torch.tensor(LUMA, device=rgb.device, dtype=torch.int32)).sum(-1, dtype=torch.int32)
    return ((weighted + (1 << 14)) >> 15).double()


def _root(squares: Tensor) -> Tensor:
    """The square root, whose slope is 0 at 0 instead of infinite."""
    import torch

    flat = squares == 0
    return torch.where(flat, 0.0, torch.where(flat, 1.0, squares).sqrt())


def _placed(array: NDArray[Any], like: Tensor) -> Tensor:
    import torch

    return torch.from_numpy(np.array(array, np.float64)).to(like.device)
