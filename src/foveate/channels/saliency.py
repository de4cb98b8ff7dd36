"""Spectral residual saliency: the parts of an image that its own statistics do not predict.

Hou & Zhang, "Saliency Detection: A Spectral Residual Approach", CVPR 2007. The log amplitude spectrum of a natural
image is nearly smooth; what sticks out of it is what is unusual in the image. Query-independent by design: it is the
fallback where a question finds nothing, and a baseline that relevance has to beat.
"""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.grid import resize_map

SIDE = 64  # working size; the paper's scale of attention
BLUR_SIGMA = 2.5
FLAT = 1e-3  # a luma that varies less than this has nothing salient


def compute_saliency(rgb: NDArray[np.uint8], shape: tuple[int, int]) -> NDArray[np.float32]:
    """uint8 [H, W, 3] -> float32 `shape` in [0, 1]; all 0 for a constant image."""
    luma = cv2.cvtColor(cv2.resize(rgb, (SIDE, SIDE), interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2GRAY)
    luma = luma.astype(np.float32) / 255
    if luma.std() < FLAT:
        return np.zeros(shape, np.float32)
    spectrum = np.fft.fft2(luma)
    amplitude = np.log(np.abs(spectrum) + 1e-8).astype(np.float32)
    residual = amplitude - cv2.blur(amplitude, (3, 3), borderType=cv2.BORDER_REFLECT)
    power = np.abs(np.fft.ifft2(np.exp(residual + 1j * np.angle(spectrum)))) ** 2
    smooth = cv2.GaussianBlur(power.astype(np.float32), (0, 0), BLUR_SIGMA, borderType=cv2.BORDER_REFLECT)
    low, high = float(smooth.min()), float(smooth.max())
    if high - low < 1e-12:
        return np.zeros(shape, np.float32)
    return np.clip(resize_map((smooth - low) / (high - low), shape), 0, 1)
