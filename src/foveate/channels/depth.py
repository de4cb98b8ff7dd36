"""Depth from one image by Depth Anything V2 (Yang et al., NeurIPS 2024) in transformers format (extra `[torch]`).

It is relative inverse depth: larger is nearer, without a unit, stretched to [0, 1] within each image. Metric
checkpoints are refused: there larger is farther. Small is Apache-2.0; the licence of
Base and Large forbids commercial use.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Resampling

from foveate.core.errors import ModelFilesError
from foveate.core.grid import Floats, resize_map
from foveate.core.image import check_rgb
from foveate.encoders.checkpoint import ModelKind, check_finite, find_checkpoint, load_checkpoint, resize_and_normalise

DEFAULT = "depth-anything/Depth-Anything-V2-Small-hf"
SIDE = 518  # pixels that one side is brought to: the size it was trained at
LONGEST = 2 * SIDE  # pixels of the long side at most
KIND = ModelKind(
    "depth model",
    instead="leave depth out, as all other channels need neither torch nor a download; or pass a local folder",
    classes={"depth_anything": "AutoModelForDepthEstimation"},
    default=DEFAULT,
)
EVEN = 1e-5  # of the largest value: a map that varies less has no depth in it


@dataclass(frozen=True, eq=False)
class DepthModel:
    """A loaded Depth Anything model. Make one with `DepthModel.from_pretrained`."""

    name: str
    revision: str
    patch: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    _network: Any

    @classmethod
    def from_pretrained(cls, checkpoint: str = DEFAULT, *, device: str | None = None) -> Self:
        """A checkpoint by Hub name, `name@revision`, or local folder. Raises MissingExtraError, ModelFilesError."""
        where = find_checkpoint(checkpoint, KIND)
        found = load_checkpoint(where, _refuse_metric, device=device)
        return cls(
            name=where.label,
            revision=found.revision,
            patch=int(found.config.patch_size),
            mean=found.mean,
            std=found.std,
            _network=found.model,
        )

    def working_size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) as the model sees an image: multiples of `patch`, about the same aspect."""
        scale = min((SIDE / height, SIDE / width), key=lambda s: abs(1 - s))
        scale = min(scale, LONGEST / max(height, width))
        fitted = (max(1, round(scale * side / self.patch)) * self.patch for side in (height, width))
        return next(fitted), next(fitted)

    def inverse_depth(self, rgb: NDArray[np.uint8]) -> Floats:
        """uint8 [H, W, 3] -> float32 [h, w] at the working size, larger is nearer. Raises EncoderOutputError."""
        import torch

        check_rgb(rgb)
        size = self.working_size(rgb.shape[0], rgb.shape[1])
        pixels = resize_and_normalise(rgb, size, Resampling.BICUBIC, self.mean, self.std)
        batch = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))[None]
        with torch.inference_mode():
            depth = self._network(pixel_values=batch.to(self._network.device)).predicted_depth[0].float().cpu().numpy()
        check_finite(f"the depth model '{self.name}'", depth)
        return np.asarray(depth, np.float32)


def missing_depth() -> str:
    """Why the usual model cannot be had without a download, and what to do; "" where its weights are here."""
    missing = [name for name in ("torch", "transformers", "huggingface_hub") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} is not installed; pip install 'foveate[torch]', or leave depth out of a list"
    from huggingface_hub import try_to_load_from_cache

    if isinstance(try_to_load_from_cache(DEFAULT, "config.json"), str):
        return ""
    return f"{DEFAULT} is not on this machine; Channels(..., depth={DEFAULT!r}) downloads it, or names a folder"


def compute_depth_plane(rgb: NDArray[np.uint8], model: DepthModel) -> Floats:
    """uint8 [H, W, 3] -> relative inverse depth, float32 [ceil(H/4), ceil(W/4)] in [0, 1]: 1 nearest, 0 farthest."""
    shape = (-(-rgb.shape[0] // 4), -(-rgb.shape[1] // 4))
    found = model.inverse_depth(rgb)
    if (rgb == rgb[0, 0]).all():  # nothing in it: what a model says then is only how it treats borders
        return np.zeros(shape, np.float32)
    plane = resize_map(found, shape)
    low, high = float(plane.min()), float(plane.max())
    if high - low <= EVEN * max(abs(low), abs(high)):
        return np.zeros(shape, np.float32)
    return np.clip((plane - np.float32(low)) / np.float32(high - low), 0, 1)


def _refuse_metric(config: Any) -> None:
    if getattr(config, "depth_estimation_type", "relative") != "relative":
        raise ModelFilesError(
            f"the checkpoint is a {config.depth_estimation_type} {config.model_type} model",
            expected="a relative one: in metric depth larger is farther",
            fix=f"use '{DEFAULT}', or a folder with such a checkpoint",
        )
