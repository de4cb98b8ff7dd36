"""A texture on a device: the same numbers as torch tensors, for `foveate.score` and `foveate.allocate` there.

    there = texture.to("cuda")                       # or "cuda:1", "cpu", a torch.device
    kept = foveate.allocate(foveate.score(there, "a dog"), 273)
    rows = there.table[kept.indices]                 # float16 [273, 40], on the device

A tensor cannot be made read-only: write into a `clone()`. Rows of the table are filled up to a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_type
from foveate.core.devices import explain_device, find_device, import_torch
from foveate.core.errors import OptionError
from foveate.core.grid import Grid, resize_map, touched
from foveate.core.layout import FULL40, Layout, layout_named
from foveate.core.readonly import OwnCopy, ReadOnly
from foveate.texture.basis import Basis

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
ON_THE_CPU = "ask the texture itself, on the CPU: score(there.texture, question)"
NO_GPU = "name a device that is there; without a GPU, ask the texture itself: score(texture, question)"
WIDE = 8  # columns of float16 in 16 bytes
HALF_END = float(np.finfo(np.float16).max)


class Sendable(Protocol):
    """The part of a Texture that is sent: texture.py imports this module."""

    @property
    def name(self) -> str: ...
    @property
    def grid(self) -> Grid: ...
    @property
    def basis(self) -> Basis: ...
    @property
    def embedding(self) -> NDArray[Any]: ...
    @property
    def valid(self) -> NDArray[np.uint8] | None: ...
    def has(self, name: str) -> bool: ...
    def channel(self, name: str, *, warn: bool = True) -> NDArray[Any]: ...
    def tokens(self, *, layout: Layout | str = FULL40) -> NDArray[Any]: ...


@dataclass(frozen=True, eq=False)
class DeviceTexture(OwnCopy):
    """One texture on a device, made by `Texture.to`."""

    texture: Any  # the Texture that it was made of
    layout: Layout  # of the table's columns; those after it are zeros
    table: Tensor  # float16 [n, columns]
    z: Tensor  # float16 [n, r]
    rows: Tensor  # float32 [r, D]
    mean: Tensor  # float32 [D]
    saliency: Tensor  # float32 [n]
    valid: Tensor  # float32 [n], opaque share
    segments: Tensor  # int64 [n]
    sizes: Tensor  # float64 [s], cells of a segment
    given: Mapping[str, Tensor] = field(default_factory=lambda: ReadOnly({}))  # planes of `with_channel`, as they came
    _derived: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __repr__(self) -> str:
        grid = self.grid
        return f"DeviceTexture({grid.h} x {grid.w} cells on {self.device}, {self.nbytes / 1e6:.1f} MB)"

    @property
    def device(self) -> torch.device:
        return self.table.device

    @property
    def grid(self) -> Grid:
        grid: Grid = self.texture.grid
        return grid

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in self._tensors().values())

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        """As `Texture.derive`."""
        if key not in self._derived:
            self._derived[key] = make()
        kept: T = self._derived[key]
        return kept

    def to(self, device: str | torch.device) -> DeviceTexture:
        """The same on another device; itself where it is there already. Raises as `Texture.to`."""
        place = find_device(device, NO_GPU)
        if place == self.device:
            return self
        moved = _moved(self.texture, self.layout, self._tensors(), place)
        return replace(moved, given=ReadOnly({name: plane.to(place) for name, plane in self.given.items()}))

    def with_channel(self, name: str, plane: Tensor) -> DeviceTexture:
        """As `Texture.with_channel`; scores take the tensor itself, so that gradients flow to it. Raises as it.

        Not of channels whose cells are numbers of things (reduction "mode"): these have no gradient.
        """
        torch, fix = import_torch("with_channel"), "torch.from_numpy(plane) makes one of an array"
        plane = check_type("plane", plane, torch.Tensor, expected="a tensor [h, w]", fix=fix)
        plane = plane.to(torch.promote_types(plane.dtype, torch.float32))  # NumPy has no bfloat16, sums need fractions
        there = send(self.texture.with_channel(name, plane.detach().cpu().numpy()), self.device, self.layout)
        given = dict(self.given)
        if there.texture.describe(name).reduction in ("mean", "max"):
            given[name] = plane.to(self.device)
        return replace(there, z=self.z, rows=self.rows, mean=self.mean, given=ReadOnly(given))

    def on_cells(self, name: str) -> Tensor:
        """A plane that was given, on the cells: [h, w]."""
        return move_plane(self.given[name], self.grid.shape, self.texture.describe(name).reduction)

    def cpu(self) -> Any:
        return self.texture

    def _tensors(self) -> dict[str, Tensor]:
        names = [each.name for each in fields(self) if each.name not in ("texture", "layout", "given", "_derived")]
        return {name: getattr(self, name) for name in names}


def send(texture: Sendable, device: str | torch.device, layout: Layout | str = FULL40) -> DeviceTexture:
    """See `Texture.to`."""
    place, wanted = find_device(device, NO_GPU), layout_named(layout, texture.basis.rank)
    torch = import_torch("Texture.to")
    cells, rank = texture.grid.count, texture.basis.rank
    columns = texture.tokens(layout=wanted)
    for name, column in zip(wanted.names, columns.T, strict=True):
        check_half(f"channel '{name}' of {texture.name!r}", column)
    table = np.zeros((cells, -(-len(wanted) // WIDE) * WIDE), np.float16)
    table[:, : len(wanted)] = columns
    z = check_half(f"the embedding of {texture.name!r}", texture.embedding.reshape(-1, rank))  # int8 is exact, too
    valid = np.ones(cells, np.float32)
    if texture.valid is not None:
        valid = resize_map(texture.valid, texture.grid.shape).ravel() / np.float32(255)
    ids = texture.channel("cluster_id", warn=False).astype(np.int64).ravel()

    def copied(array: NDArray[Any], dtype: Any = np.float32) -> Tensor:
        tensor: Tensor = torch.tensor(np.ascontiguousarray(array, dtype))
        return tensor

    tensors = {
        "table": copied(table, np.float16),
        "z": copied(z.T, np.float16).mT,
        "rows": copied(texture.basis.rows),
        "mean": copied(texture.basis.mean),
        "saliency": copied(texture.channel("saliency", warn=False).ravel()),
        "valid": copied(valid),
        "segments": copied(ids, np.int64),
        "sizes": copied(np.maximum(np.bincount(ids), 1), np.float64),
    }
    return _moved(texture, wanted, tensors, place)


def _moved(texture: Any, layout: Layout, tensors: dict[str, Tensor], place: torch.device) -> DeviceTexture:
    size = sum(each.nbytes for each in tensors.values()) / 1e6
    with explain_device(f"{texture.name!r}, {size:,.1f} MB", place, ON_THE_CPU):
        there: dict[str, Any] = {name: each.to(place) for name, each in tensors.items()}
        return DeviceTexture(texture, layout, **there)


def check_half(what: str, values: NDArray[np.floating]) -> NDArray[np.float16]:
    """As float16. Raises OptionError for values that it cannot hold, where a cast would give infinity."""
    largest = float(np.abs(values).max(initial=0))
    if not largest <= HALF_END:  # NaN is refused too
        raise OptionError(
            f"{what} with values up to {largest:g}",
            expected=f"values that float16 holds: at most {HALF_END:g}, no NaN",
            fix="scale the channel, pass a layout without it, or ask the texture itself, on the CPU in float32",
        )
    return values.astype(np.float16)


def move_plane(plane: Tensor, shape: tuple[int, int], reduction: str = "mean") -> Tensor:
    """`grid.reduce_plane` of [..., H, W] on its device, with gradients: "mean" or "max" -> [..., *shape]."""
    import torch

    size = plane.shape[-2:]
    if reduction == "max":
        rows, columns = (torch.from_numpy(touched(*each)).to(plane.device) for each in zip(size, shape, strict=True))
        return plane[..., rows, :].amax(-2)[..., columns].amax(-1)
    down, across = (
        torch.from_numpy(resize_map(np.eye(old, dtype=np.float32), (new, old))).to(plane)
        for old, new in zip(size, shape, strict=True)
    )
    return down @ plane @ across.mT
