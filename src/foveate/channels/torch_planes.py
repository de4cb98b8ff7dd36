"""The planes of channels="fast" by torch, on a GPU: the twin of visual.py and saliency.py (extra `[torch]`).

What is notable
* For an image of one size everything is fixed: matrices of resizing and blurring are made once. On CUDA the work is
  captured when a size comes for the second time, and replayed: one launch.
* Luma is OpenCV's, in whole numbers. The distance to edges is exact, not jump flooding: scans down the columns, then
  for each row the lowest parabola of all columns.
* Planes differ from NumPy's by rounding (1e-6; saliency 1e-2, as a level of 8 bits is rounded the other way now and
  then, of 64 x 64), but where a sample lies within rounding of a threshold: there edge_on and edge_off change places,
  or edge_distance gains or loses an edge. So `Texture.made_by` names torch for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from foveate.channels.saliency import BLUR_SIGMA, FLAT, SIDE
from foveate.channels.visual import EDGE, SURROUND_SIGMA
from foveate.core.devices import captured, convolve, download, working_on
from foveate.core.grid import resize_map
from foveate.core.threads import once
from foveate.texture.computed import SOBEL_PEAK

if TYPE_CHECKING:
    import torch

Floats = NDArray[np.float32]

PLANES = ("edge_on", "edge_off", "high_pass", "low_pass", "edge_distance")  # [ceil(H/4), ceil(W/4)]
MOST_SIZES = 8  # of images, the last ones, whose matrices and graphs are kept
MOST_PAIRS = 2**24  # of columns at once, in the distance: 64 MB
LEAST = SIDE  # pixels along: OpenCV's area means are something else where an image is enlarged
FAR = 1e6  # samples: farther than any image is large


class DeviceChannels:
    """Pixels -> planes on a device. Threads wait for each other; it keeps what images of a few sizes have in common."""

    def __init__(self, device: str) -> None:
        import torch

        self._torch, self.device = torch, torch.device(device)
        self._kept: LRUCache[tuple[int, ...], _Size] = LRUCache(MOST_SIZES)
        self._lock = threading.Lock()
        # Of memory, that all captured graphs share: one at a time is replayed.
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None

    def __call__(self, rgb: NDArray[np.uint8], shape: tuple[int, int]) -> dict[str, Floats]:
        """uint8 [H, W, 3] and the cells -> the five planes [ceil(H/4), ceil(W/4)] and "saliency" `shape`, in [0, 1]."""
        torch, key = self._torch, (*rgb.shape[:2], *shape)
        pixels = torch.empty(rgb.shape, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        pixels.numpy()[:] = rgb
        with self._lock, torch.inference_mode(), working_on(self.device):
            size = self._kept.get(key) or _Size(torch, self.device, (rgb.shape[0], rgb.shape[1]), shape)
            self._kept[key] = size
            visual, saliency = size(pixels, self._pool)
            found = dict(zip(PLANES, download(visual), strict=True))
            return found | {"saliency": download(saliency)}


class _Size:
    """What images of one size share."""

    def __init__(self, torch: Any, device: torch.device, size: tuple[int, int], shape: tuple[int, int]) -> None:
        self.torch, self.device = torch, device
        height, width = size
        self.quarter = (-(-height // 4), -(-width // 4))
        self.blur = self._placed(cv2.getGaussianKernel(_taps(SURROUND_SIGMA), SURROUND_SIGMA, cv2.CV_32F).ravel())
        sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32)
        self.sobel = self._placed(np.stack([sobel.T, sobel])[:, None])
        self.spans = [self._placed(_spans(old, new)) for old, new in zip(size, self.quarter, strict=True)]
        self.shares = [self._placed(_shares(old, new)) for old, new in zip(size, self.quarter, strict=True)]
        self.small = [self._placed(_area(old, SIDE)) for old in size]
        eye = np.eye(SIDE, dtype=np.float32)
        self.mean3 = self._placed(cv2.blur(eye, (1, 3), borderType=cv2.BORDER_REFLECT))
        self.smooth = self._placed(
            cv2.GaussianBlur(eye, (1, _taps(BLUR_SIGMA)), 1, sigmaY=BLUR_SIGMA, borderType=cv2.BORDER_REFLECT)
        )
        self.cells = [self._placed(resize_map(eye, (new, SIDE))) for new in shape]
        self.columns = torch.arange(self.quarter[1], device=device, dtype=torch.float32)
        self.rows = torch.arange(self.quarter[0], device=device, dtype=torch.float32)[:, None]
        self.weights = torch.tensor([9798, 19235, 3735], device=device, dtype=torch.int32)  # of 2^15: OpenCV's
        self.seen = 0
        self.replay: Callable[[torch.Tensor], Any] | None = None

    def __call__(self, pixels: torch.Tensor, pool: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
        if self.replay is not None:
            return self.replay(pixels)
        self.seen += 1
        if self.device.type != "cuda" or self.seen == 1:  # many sizes come once, and a capture takes longer
            return self.compute(pixels.to(self.device, non_blocking=True))
        self.replay = captured(self.compute, pixels.to(self.device), pool)
        return self.replay(pixels)

    def compute(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """uint8 [H, W, 3] on the device -> the planes in their order, float32 [5, ...], and saliency."""
        torch = self.torch
        functional = torch.nn.functional
        levels = self._luma(pixels.int())
        bright = levels / 255
        reach = len(self.blur) // 2
        padded = functional.pad(bright[None, None], (reach, reach, reach, reach), mode="replicate")
        low = convolve(convolve(padded, self.blur[None, None, None]), self.blur[None, None, :, None])[0, 0]
        around = functional.pad(levels[None, None], (1, 1, 1, 1), mode="replicate")
        steps = convolve(around, self.sobel)[0]  # whole numbers: a constant has no edges whatever the order
        magnitude = (steps.square().sum(0).sqrt() / (255 * SOBEL_PEAK)).clamp(max=1)
        brighter = bright >= low
        sides = torch.stack([magnitude * brighter, magnitude * ~brighter])
        edges = self._highest(sides)
        means = self._mean(torch.stack([(bright - low).abs(), low]))
        near = self._distance(edges.amax(0) > EDGE)
        return torch.cat([edges, means, near[None]]), self._saliency(pixels)

    def _luma(self, rgb: torch.Tensor) -> torch.Tensor:
        """int32 [..., 3] -> float32 [...], whole numbers from 0 to 255."""
        found: torch.Tensor = ((rgb * self.weights).sum(-1, dtype=self.torch.int32) + (1 << 14)) >> 15
        return found.float()

    def _highest(self, planes: torch.Tensor) -> torch.Tensor:
        height, width = planes.shape[1:]
        if height % 4 == width % 4 == 0:
            return self.torch.nn.functional.max_pool2d(planes[None], 4)[0]
        down, across = self.spans
        return planes[:, down].amax(2)[:, :, across].amax(3)

    def _mean(self, planes: torch.Tensor) -> torch.Tensor:
        height, width = planes.shape[1:]
        if height % 4 == width % 4 == 0:
            return self.torch.nn.functional.avg_pool2d(planes[None], 4)[0]
        (down, across), (rows, columns) = self.spans, self.shares
        return ((planes[:, down] * rows[..., None]).sum(2)[:, :, across] * columns).sum(3)

    def _distance(self, edges: torch.Tensor) -> torch.Tensor:
        """Exact distance to the nearest edge, as a share of the diagonal: bool [h, w] -> float32 [h, w]."""
        torch, (h, w) = self.torch, self.quarter
        above = torch.where(edges, self.rows, -FAR).cummax(0).values
        below = torch.where(edges, self.rows, FAR).flip(0).cummin(0).values.flip(0)
        straight = torch.minimum(self.rows - above, below - self.rows).square()  # to the nearest edge of the column
        apart = (self.columns[:, None] - self.columns).square()
        step = max(1, MOST_PAIRS // (w * w))
        nearest = [(straight[i : i + step, None] + apart).amin(2) for i in range(0, h, step)]
        return (torch.cat(nearest).sqrt() / float(np.hypot(h, w))).clamp(max=1)

    def _saliency(self, pixels: torch.Tensor) -> torch.Tensor:
        torch, (down, across) = self.torch, self.small
        rows = (down @ pixels.float().reshape(len(pixels), -1)).reshape(SIDE, -1, 3)
        small = torch.einsum("yxc,nx->ync", rows, across).round().int()
        luma = self._luma(small) / 255
        spectrum = torch.fft.fft2(luma)
        amplitude = (spectrum.abs() + 1e-8).log()
        residual = amplitude - self.mean3 @ amplitude @ self.mean3.T
        power = torch.fft.ifft2(torch.polar(residual.exp(), spectrum.angle())).abs().square()
        smooth = self.smooth @ power @ self.smooth.T
        low, high = smooth.amin(), smooth.amax()
        scaled = (smooth - low) / (high - low).clamp(min=1e-12)
        there = (luma.std(correction=0) >= FLAT) & (high - low >= 1e-12)
        return (self.cells[0] @ scaled @ self.cells[1].T).clamp(0, 1) * there

    def _placed(self, array: NDArray[Any]) -> torch.Tensor:
        return self.torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def _taps(sigma: float) -> int:
    """Length of OpenCV's Gaussian kernel of floats."""
    return round(sigma * 8 + 1) | 1


def _spans(old: int, new: int) -> NDArray[np.int64]:
    """The old indices that each new sample touches, the last one repeated: [new, n]."""
    start, stop = np.arange(new) * old // new, -(-(np.arange(1, new + 1) * old) // new)
    return np.minimum(start[:, None] + np.arange((stop - start).max()), stop[:, None] - 1)


def _shares(old: int, new: int) -> Floats:
    """How much of each new sample lies in each of them: [new, n], a row's sum is 1."""
    spans, scale = _spans(old, new), old / new
    begin = np.arange(new)[:, None] * scale
    inside = np.minimum(spans + 1, begin + scale) - np.maximum(spans, begin)
    inside[:, 1:][spans[:, 1:] == spans[:, :-1]] = 0
    return np.asarray(inside / scale, np.float32)


def _area(old: int, new: int) -> Floats:
    """The mean over areas as a matrix [new, old], where new is not more than old."""
    matrix = np.zeros((new, old), np.float32)
    np.add.at(matrix, (np.arange(new)[:, None], _spans(old, new)), _shares(old, new))
    return matrix


@once(2)
def device_channels(device: str) -> DeviceChannels:
    """Made once for each device, with what it keeps; `device_channels.cache_clear()` lets its memory go."""
    return DeviceChannels(device)
