"""The recipe of the documents as it is written (`ARR_COC_MVP`): 13 channels, 256 candidates, 64 kept.

    information    weights (.4, .3, .3) of edges, 1 - edges, Laplacian
    perspective    weights (.6, .4) of eccentricity and 1 - eccentricity
    participation  .5 everywhere (a placeholder: it hears no question)
    score          weights (.33, .33, .34) of the three; the 64 highest candidates are kept
    loss           1 - IoU of their positions with the true boxes

What had to be settled: 256 candidates at a stride of 16 do not fit 1,024 pixels (they would be 4,096), so they lie 64
apart; the Laplacian has no size there, so 3 x 3; a position stands for the square around it.
The loss has no gradient: positions come from `topk(...).indices`, which are whole numbers. See `hard_loss`.
"""

from __future__ import annotations

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.texture.texture import Texture

PIXELS, CANDIDATES, KEPT = 1024, 16, 64
Floats = NDArray[np.float32]


def samples(texture: Texture) -> Floats:
    """The 13 channels at the candidates: float32 [256, 13], row by row."""
    rgb = np.stack([texture.channel(name) for name in ("red", "green", "blue")], -1)
    square = np.asarray(cv2.resize(rgb, (PIXELS, PIXELS), interpolation=cv2.INTER_AREA), np.float32)
    grey = square.mean(-1)
    edges = np.hypot(*(cv2.Sobel(grey, cv2.CV_32F, *d, ksize=3) / 8 for d in ((1, 0), (0, 1))))
    laplacian = cv2.filter2D(grey, cv2.CV_32F, (np.ones((3, 3)) - 9 * np.diag([0, 1, 0])) / 16)
    y, x = np.mgrid[:PIXELS, :PIXELS].astype(np.float32)
    away = np.hypot(y - (PIXELS - 1) / 2, x - (PIXELS - 1) / 2)
    eccentricity = away / away.max()
    nothing = np.zeros_like(grey)
    planes = [*np.moveaxis(square, -1, 0), y, x, eccentricity, edges, 1 - edges, laplacian]
    planes += [cv2.GaussianBlur(grey, (5, 5), 1), nothing, 1 - eccentricity, nothing]
    at = PIXELS // CANDIDATES * np.arange(CANDIDATES) + PIXELS // CANDIDATES // 2
    return np.stack([plane[np.ix_(at, at)].ravel() for plane in planes], -1).astype(np.float32)


class Published(nn.Module):
    """Its eight weights (it speaks of about a hundred), beginning where it has them."""

    def __init__(self) -> None:
        super().__init__()
        self.info_weights = nn.Parameter(torch.tensor([0.4, 0.3, 0.3]))
        self.persp_weights = nn.Parameter(torch.tensor([0.6, 0.4]))
        self.tension_weights = nn.Parameter(torch.tensor([0.33, 0.33, 0.34]))

    def forward(self, features: Tensor) -> Tensor:
        """[..., 256, 13] -> scores [..., 256]."""
        information = (features[..., [6, 7, 8]] * self.info_weights).sum(-1)
        perspective = (features[..., [5, 11]] * self.persp_weights).sum(-1)
        participation = torch.full_like(information, 0.5)
        return (torch.stack([information, perspective, participation], -1) * self.tension_weights).sum(-1)


def hard_loss(score: Tensor, truth: Tensor, kept: int = KEPT) -> Tensor:
    """1 - IoU of the highest cells of score [B, n] with truth [B, n]; the published loss. It carries no gradient."""
    mask = torch.zeros_like(score).scatter(-1, score.topk(kept, -1).indices, 1.0)
    return (1 - (mask * truth).sum(-1) / torch.maximum(mask, truth).sum(-1)).mean()
