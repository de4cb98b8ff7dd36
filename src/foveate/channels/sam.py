"""Segments from the masks of a Segment Anything model in transformers format (extra `[torch]`).

    encode(image, channels=Channels(segments=Sam()))                       # SAM's base model, downloaded once
    encode(image, channels=Channels(segments=Sam("/path/to/folder")))      # SAM, SAM 2 or SAM 2.1, from a folder

A grid of points prompts for masks, three for each point. A mask stays if its predicted IoU is high and if it hardly
changes when the threshold moves by 1 (Kirillov et al., ICCV 2023); of masks that overlap the better one stays. Large
masks are painted first. What no mask covers is one more segment. A cell takes its commonest sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Resampling

from foveate.channels.segments import Ids
from foveate.core.checks import check_int, check_number, check_type
from foveate.core.errors import OptionError
from foveate.core.grid import Floats, reduce_plane
from foveate.core.image import Bytes
from foveate.core.threads import once
from foveate.encoders.checkpoint import (
    Checkpoint,
    ModelKind,
    check_finite,
    find_checkpoint,
    load_checkpoint,
    resize_and_normalise,
)

Masks = NDArray[np.bool_]

DEFAULT = "facebook/sam-vit-base"  # Apache-2.0, 375 MB
BATCH = 64  # points at a time
OFFSET = 1.0  # of the threshold, up and down, for the stability of a mask
MOST_POINTS = 64  # along a side
FINE = 4  # samples along a cell's side, on which masks are painted
KIND = ModelKind(
    "SAM model",
    instead="use KMeans(), which needs nothing, or a local folder: Sam('/path/to/folder')",
    classes={"sam": "SamModel", "sam2": "Sam2Model", "sam2_video": "Sam2Model"},  # published SAM 2 says sam2_video
    default=DEFAULT,
)


@dataclass(frozen=True)
class Sam:
    """Masks of a Segment Anything model as a provider of segments.

    Attributes:
        checkpoint: a Hub name, `name@revision`, or a local folder with config.json and model.safetensors.
        points: prompts along each side, 1 to 64.
        sure, stable: predicted IoU and stability that a mask must exceed, 0 to 1.
        overlap: IoU above which of two masks only the better one stays, 0 to 1.
        device: "cpu", "cuda", ...; None is a GPU where there is one.
    """

    checkpoint: str = DEFAULT
    points: int = 16
    sure: float = 0.88
    stable: float = 0.95
    overlap: float = 0.7
    device: str | None = None

    masks: ClassVar[bool] = True  # they are objects, and are not merged

    def __post_init__(self) -> None:
        if not check_type("checkpoint", self.checkpoint, str):
            raise OptionError("checkpoint='' of Sam", expected="a name or a folder", fix="leave it out")
        check_int("points", self.points, 1, MOST_POINTS)
        for name in ("sure", "stable", "overlap"):
            check_number(name, getattr(self, name))

    @property
    def name(self) -> str:
        return f"sam:{find_checkpoint(self.checkpoint, KIND).label}"

    def __call__(self, rgb: Bytes, features: Floats) -> Ids:
        """uint8 [H, W, 3], float32 [h, w, r] -> ids [h, w]. MissingExtraError, ModelFilesError, EncoderOutputError."""
        network = _load_network(find_checkpoint(self.checkpoint, KIND), self.device)
        shape = features.shape[0], features.shape[1]
        fine = shape[0] * FINE, shape[1] * FINE
        kept, scores = [np.zeros((0, *fine), bool)], [np.zeros(0, np.float32)]
        for logits, score in network.predict_masks(rgb, self.points, fine):
            good = (score > self.sure) & (measure_stability(logits) > self.stable)
            kept.append(logits[good] > 0)
            scores.append(score[good])
        masks = np.concatenate(kept)
        kept_masks = masks[suppress_duplicates(masks, np.concatenate(scores), self.overlap)]
        return reduce_plane(stack_masks(kept_masks).astype(np.float32), shape, "mode").astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Network:
    model: Any
    side: int
    squeezed: bool
    mean: Floats
    std: Floats

    def prepare(self, rgb: Bytes) -> tuple[Floats, tuple[int, int]]:
        scale = self.side / max(rgb.shape[:2])
        h, w = (self.side if self.squeezed else max(1, int(n * scale + 0.5)) for n in rgb.shape[:2])
        out = np.zeros((self.side, self.side, 3), np.float32)
        out[:h, :w] = resize_and_normalise(rgb, (h, w), Resampling.BILINEAR, self.mean, self.std)
        return out, (h, w)

    def predict_masks(self, rgb: Bytes, points: int, fine: tuple[int, int]) -> Iterator[tuple[Floats, Floats]]:
        """Batches of logits [n, *fine] over the image, and the IoU that the model predicts for each [n]."""
        import torch

        pixels, (h, w) = self.prepare(rgb)
        along = (np.arange(points) + 0.5) / points
        x, y = np.meshgrid(along * w, along * h)
        prompts = torch.from_numpy(np.stack([x.ravel(), y.ravel()], 1).astype(np.float32)).to(self.model.device)
        batch = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))[None]
        with torch.inference_mode():
            embedded = self.model.get_image_embeddings(batch.to(self.model.device))
            for start in range(0, len(prompts), BATCH):
                points_now = prompts[None, start : start + BATCH, None]
                answer = self.model(image_embeddings=embedded, input_points=points_now, multimask_output=True)
                coarse = answer.pred_masks[0].flatten(0, 1).float().cpu().numpy()
                score = answer.iou_scores[0].flatten().float().cpu().numpy()
                check_finite("the SAM model", coarse, score)
                across = [
                    linear_weights(n, size / self.side, coarse.shape[1]) for n, size in zip(fine, (h, w), strict=True)
                ]
                yield across[0] @ coarse @ across[1].T, score


@once()
def _load_network(checkpoint: Checkpoint, device: str | None) -> _Network:
    found = load_checkpoint(checkpoint, _mend_decoder, device=device)
    side, squeezed = int(found.config.prompt_encoder_config.image_size), found.config.model_type != "sam"
    return _Network(found.model, side, squeezed, np.array(found.mean, np.float32), np.array(found.std, np.float32))


def _mend_decoder(config: Any) -> None:
    """transformers 5.18 and 5.19 mix up the two decoders of SAM 2."""
    decoder = getattr(config, "mask_decoder_config", None)
    if decoder is not None and type(decoder) is type(config.prompt_encoder_config):
        import transformers

        config.mask_decoder_config = transformers.Sam2VideoMaskDecoderConfig.from_dict(decoder.to_dict())


def linear_weights(count: int, share: float, size: int) -> Floats:
    """Weights that read `count` even samples from the first `share` of `size` values, linearly: [count, size]."""
    place = np.clip((np.arange(count) + 0.5) / count * share * size - 0.5, 0, size - 1)
    low = np.minimum(place.astype(np.int64), max(size - 2, 0))
    part = (place - low).astype(np.float32)
    weights = np.zeros((count, size), np.float32)
    weights[np.arange(count), low] = 1 - part
    weights[np.arange(count), np.minimum(low + 1, size - 1)] += part
    return weights


def measure_stability(logits: Floats) -> Floats:
    """IoU of the masks above OFFSET and above -OFFSET: [n, h, w] -> float32 [n] in [0, 1]; 0 for an empty mask."""
    inner, outer = ((logits > limit).sum((1, 2)) for limit in (OFFSET, -OFFSET))
    return (inner / np.maximum(outer, 1)).astype(np.float32)


def suppress_duplicates(masks: Masks, scores: Floats, overlap: float) -> Ids:
    """Indices of masks bool [n, h, w], best first, without those whose IoU with a better one is higher."""
    n, h, w = masks.shape
    bits = np.packbits(masks.reshape(n, h * w), axis=1)
    areas = np.bitwise_count(bits).sum(1, dtype=np.int64)
    left = np.argsort(-scores, kind="stable")
    left, kept = left[areas[left] > 0], []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(int(best))
        both = np.bitwise_count(bits[left] & bits[best]).sum(1, dtype=np.int64)
        left = left[both <= overlap * (areas[left] + areas[best] - both)]
    return np.array(kept, np.int64)


def stack_masks(masks: Masks) -> Ids:
    """Masks bool [n, h, w] on top of one another, the largest first: int64 [h, w], 1 to n; 0 where there is none."""
    out = np.zeros(masks.shape[1:], np.int64)
    order = np.argsort(masks.sum((1, 2)), kind="stable")[::-1]
    for number, index in enumerate(order):
        out[masks[index]] = number + 1
    return out
