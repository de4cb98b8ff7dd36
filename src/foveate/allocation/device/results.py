"""What a question found on a device: Relevance and Allocation with tensors in place of arrays.

`cpu()` gives the ordinary value, with everything that it can do: boxes, pictures, other grids, other policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foveate.allocation.allocation import Allocation
from foveate.core.arrays import AsArray
from foveate.core.devices import import_torch
from foveate.core.grid import Grid
from foveate.core.readonly import Counted, OwnCopy, ReadOnly
from foveate.language.query import quoted
from foveate.relevance.confidence import DETECTED, in_digits
from foveate.relevance.value import Relevance, Relevances
from foveate.texture.tensors import DeviceTexture

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class DeviceRelevance(Counted, AsArray):
    """Where a question looks: attributes as of Relevance, on the texture's device; to NumPy its map, downloaded.

    Nothing is written into: `foveate.allocate` and `cpu()` say so if somebody did.

    map, logits: float32 [h, w]. confidence, peak, and each of `confidences`: float64, one number, which is computed
    there: to read it (`float(relevance.confidence)`) waits for the device. parts, reasons: float32 [h, w] each.
    """

    query: str
    map: Tensor
    logits: Tensor
    confidence: Tensor
    parts: Mapping[str, Tensor]
    reasons: Mapping[str, Tensor]
    confidences: Mapping[str, Tensor]
    peak: Tensor
    weights: Mapping[str, float]
    texture: DeviceTexture
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    preset: str | None = None

    def _counted(self) -> Iterable[tuple[str, Tensor]]:
        yield from (("map", self.map), ("logits", self.logits), ("confidence", self.confidence), ("peak", self.peak))
        for name in ("parts", "reasons", "confidences"):
            yield from ((f"{name}[{key!r}]", value) for key, value in getattr(self, name).items())

    def _changed(self) -> tuple[str, str]:
        return f"the relevance of {quoted(self.query)} on {self.device}", "score(texture, question) again"

    def _array(self) -> tuple[np.ndarray, bool]:
        self.check_unchanged()
        return _array(self.map), False

    def __repr__(self) -> str:
        return (
            f"DeviceRelevance({quoted(self.query)}, {self.grid.h} x {self.grid.w} cells on {self.device}, "
            f"confidence {in_digits(float(self.confidence))})"
        )

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.map.device

    @property
    def grid(self) -> Grid:
        """The cells."""
        return self.texture.grid

    @property
    def trust(self) -> Tensor:
        """As of Relevance: float64, one number, in [0, 1]."""
        return trust_of(self.confidence, self.peak)

    @property
    def detected(self) -> bool:
        """As of Relevance. Waits for the device."""
        return bool(self.confidence >= DETECTED)

    def cpu(self) -> Relevance:
        """The ordinary value, of the texture on the CPU. Raises DeviceError if somebody wrote into a tensor of this."""
        self.check_unchanged()
        texture = self.texture.texture
        shape, valid = self.grid.shape, self.texture.tensors.valid[0]
        return Relevance(
            query=self.query,
            map=_array(self.map),
            logits=_array(self.logits),
            confidence=float(self.confidence),
            parts=_arrays(self.parts),
            reasons=_arrays(self.reasons),
            saliency=texture.channel("saliency", warn=False),
            valid=None if texture.valid is None else _array(valid).reshape(shape),
            grid=self.grid,
            features=texture.coordinates().reshape(*shape, -1),
            confidences=ReadOnly({name: float(value) for name, value in self.confidences.items()}),
            ignored=self.ignored,
            unknown=self.unknown,
            peak=float(self.peak),
            weights=self.weights,
            preset=self.preset,
            texture=texture,
        )


class DeviceRelevances(tuple[DeviceRelevance, ...], AsArray):
    """Several questions on one texture on a device, in the order asked; to NumPy their maps, downloaded."""

    __slots__ = ()

    def _array(self) -> tuple[np.ndarray, bool]:
        for each in self:
            each.check_unchanged()
        return _array(self.map), False

    @property
    def map(self) -> Tensor:
        """float32 [q, h, w]."""
        return stacked([each.map for each in self])

    @property
    def confidence(self) -> Tensor:
        """float64 [q]."""
        return stacked([each.confidence for each in self])

    def cpu(self) -> Relevances:
        """The ordinary value."""
        return Relevances(tuple(each.cpu() for each in self))


@dataclass(frozen=True, eq=False)
class DeviceAllocation(OwnCopy, AsArray):
    """The kept cells: attributes as of Allocation, on the texture's device; to NumPy the indices, downloaded.

    indices: int64 [K], ascending. scores, and each of reasons: float32 [K]. spread: int64, how many cells of the budget
    went to an even spread.
    """

    indices: Tensor
    scores: Tensor
    reasons: Mapping[str, Tensor]
    spread: Tensor
    texture: DeviceTexture

    def __len__(self) -> int:
        return len(self.indices)

    def _array(self) -> tuple[np.ndarray, bool]:
        return _array(self.indices), False

    def __repr__(self) -> str:
        return f"DeviceAllocation({len(self)} of {self.grid.count} on {self.indices.device})"

    @property
    def grid(self) -> Grid:
        """The cells that the indices count."""
        return self.texture.grid

    @property
    def mask(self) -> Tensor:
        """bool [h, w], True at the kept cells."""
        mask = self.scores.new_zeros(self.grid.count)
        mask[self.indices] = 1
        return mask.bool().reshape(self.grid.shape)

    @property
    def rows(self) -> Tensor:
        """Their rows of the token table, float16 [K, columns]."""
        return self.texture.table[self.indices]

    def cpu(self) -> Allocation:
        """The ordinary value."""
        reasons = {name: plane for name, plane in self.reasons.items() if name != "floor" or int(self.spread)}
        return Allocation(
            _array(self.indices), _array(self.scores), self.grid, _arrays(reasons), (), self.texture.texture
        )


def trust_of(confidence: Tensor, peak: Tensor) -> Tensor:
    """`Relevance.trust` of tensors: float64."""
    return (confidence.maximum(peak) / DETECTED).clamp(max=1.0)


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor of several of one shape, along a new first axis."""
    found: Tensor = import_torch("a device").stack(list(tensors))
    return found


def _array(tensor: Tensor) -> np.ndarray:
    """A copy in NumPy: one that shared a tensor's memory could be written into unnoticed."""
    return np.array(tensor.cpu().numpy())


def _arrays(tensors: Mapping[str, Tensor]) -> ReadOnly[str, np.ndarray]:
    return ReadOnly({name: _array(tensor) for name, tensor in tensors.items()})
