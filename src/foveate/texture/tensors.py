"""A texture on a device: tensors that answer questions there, and the texture they were made of.

    there = texture.to("cuda")                       # or "cuda:1", "cpu", a torch.device
    kept = foveate.allocate(foveate.score(there, "a dog"), 273)
    rows = there.table[kept.indices]                 # float16 [273, 40], on the device

What is notable
* The token table is float16 with one contiguous row a cell, filled up with zeros to a multiple of 8 columns: 16 bytes,
  the widest load of a GPU.
* The embedding lies number by number in memory, so that neighbouring threads read neighbouring cells; `z` is a view.
* Nothing is written into. Whoever writes into a tensor all the same is found out by torch's own counter, and told
  (`check_unchanged`), before an answer comes from half an image. Writing through `tensor.data` is not counted.
* Several textures of one shape are a batch (`stack`): one launch asks them all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_int, check_type
from foveate.core.devices import check_room, check_same, counting, find_device, free_bytes, import_torch
from foveate.core.errors import DeviceError, OptionError
from foveate.core.failures import explain_device
from foveate.core.grid import Grid, resize_map
from foveate.core.layout import FULL40, Layout, layout_named
from foveate.core.readonly import Counted
from foveate.texture.basis import Basis

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
FEWER = "fewer textures at a time (`in_chunks`), or the texture itself, on the CPU: score(there.texture, question)"
NO_GPU = "name a device that is there; without a GPU, ask the texture itself: score(texture, question)"
WIDE = 8  # columns of float16 in 16 bytes
HALF_END = float(np.finfo(np.float16).max)


class Sendable(Protocol):
    """What is sent of a Texture, whose module comes here for `Texture.to`: this one cannot name it."""

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
    @property
    def encoder(self) -> Any: ...
    def has(self, name: str) -> bool: ...
    def channel(self, name: str, *, warn: bool = True) -> NDArray[Any]: ...
    def tokens(self, *, layout: Layout | str = FULL40) -> NDArray[Any]: ...


class Tensors(NamedTuple):
    """What answers questions, of b images with n cells each.

    table: float16 [b, n, columns]. z: float16 [b, n, r]. rows: float32 [b, r, D]. mean: float32 [b, D].
    saliency, valid (opaque share): float32 [b, n]. segments: int64 [b, n]. sizes: float64 [b, s], cells of a segment.
    smooth: float32 [b, 1, 1], 1 where there are segments, else 0.
    """

    table: Tensor
    z: Tensor
    rows: Tensor
    mean: Tensor
    saliency: Tensor
    valid: Tensor
    segments: Tensor
    sizes: Tensor
    smooth: Tensor


@dataclass(frozen=True, eq=False)
class OnDevice(Counted):
    """Textures of one grid and one encoder, and their tensors.

    Attributes:
        textures: what the tensors were made of; their pixels and words stay where they are.
        layout: of the table's columns; those after it are zeros.
        tensors: see Tensors.
    """

    textures: tuple[Any, ...]  # of Texture
    layout: Layout
    tensors: Tensors
    _derived: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.textures, self.layout, self.tensors)  # what was derived is made anew

    def _counted(self) -> Iterable[tuple[str, Tensor]]:
        return zip(Tensors._fields, self.tensors, strict=True)

    def _changed(self) -> tuple[str, str]:
        return f"{self.textures[0].name!r} on {self.device}", "texture.to(device) again, from the texture itself"

    def __repr__(self) -> str:
        grid = self.grid
        return (
            f"{type(self).__name__}({len(self.textures)} on {self.device}, {grid.h} x {grid.w} cells, "
            f"{self.nbytes / 1e6:.1f} MB)"
        )

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.tensors.table.device

    @property
    def grid(self) -> Grid:
        """The cells."""
        return self.textures[0].grid

    @property
    def nbytes(self) -> int:
        """Bytes on the device, those of what was made of the tensors since (`derive`) among them."""
        return _size(self.tensors) + _size(self._derived.values())

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        """What depends on these tensors alone, made when first needed and kept (`Texture.derive`)."""
        if key not in self._derived:
            self._derived[key] = make()
        kept: T = self._derived[key]
        return kept


class DeviceTexture(OnDevice):
    """One texture on a device; `Texture.to` makes it. `foveate.score` and `foveate.allocate` work there.

    >>> there = texture.to("cpu")                                               # doctest: +SKIP
    >>> there.table.shape, there.z.shape                                        # doctest: +SKIP
    (torch.Size([4096, 40]), torch.Size([4096, 24]))
    """

    @property
    def texture(self) -> Any:
        """The Texture that it was made of."""
        return self.textures[0]

    @property
    def table(self) -> Tensor:
        """The token table, float16 [cells, columns], a view: one contiguous row a cell, columns as of `layout`."""
        return self.tensors.table[0]

    @property
    def z(self) -> Tensor:
        """The embedding, float16 [cells, r], a view."""
        return self.tensors.z[0]

    def to(self, device: str | torch.device) -> DeviceTexture:
        """The same on another device; itself where it is there already. Raises as `Texture.to`."""
        place = find_device(device, NO_GPU)
        self.check_unchanged()
        if place == self.device:
            return self
        check_room(repr(self), _size(self.tensors), place, "free memory there, or ask the texture itself, on the CPU")
        return DeviceTexture(self.textures, self.layout, _moved(self.tensors, place))

    def cpu(self) -> Any:
        """The Texture that it was made of."""
        return self.texture


class DeviceTextures(OnDevice):
    """Textures of one grid on a device, to be asked in one launch; `stack` makes it."""

    def __len__(self) -> int:
        return len(self.textures)

    def __getitem__(self, number: int) -> DeviceTexture:
        """One of them, sharing its tensors."""
        number = range(len(self))[number]
        self.check_unchanged()
        return DeviceTexture(self.textures[number : number + 1], self.layout, _sliced(self.tensors, number))


def send(texture: Sendable, device: str | torch.device, layout: Layout | str = FULL40) -> DeviceTexture:
    """`Texture.to`, which explains it."""
    place, wanted = find_device(device, NO_GPU), layout_named(layout)
    fix = "free memory there, pass a layout of fewer channels, or ask the texture itself, on the CPU"
    check_room(f"{texture.name!r} on {place}", bytes_on_device(texture, wanted), place, fix)
    return DeviceTexture((texture,), wanted, _moved(_tensors(texture, wanted), place))


def stack(
    textures: Sequence[Sendable | DeviceTexture],
    device: str | torch.device | None = None,
    layout: Layout | str = FULL40,
) -> DeviceTextures:
    """Several textures of one grid and one encoder on a device.

    Args:
        textures: on the CPU (`Texture`), or all on this device already.
        device: where to; None is where the first one is.
        layout: of the tables of those that are not on a device yet.

    Raises:
        OptionError: none, grids, encoders or tables that differ, no such device. DeviceError: one is on another device.
        DeviceError: they do not fit; it says how many do, and `in_chunks` asks so many at a time.
    """
    if not textures:
        raise OptionError("stack of no textures", expected="at least one", fix="stack([texture], device)")
    first = textures[0]
    place = find_device(
        device if device is not None else first.device if isinstance(first, DeviceTexture) else "cpu", NO_GPU
    )
    grids = {each.grid.shape for each in textures}
    stamps = {(each.texture if isinstance(each, DeviceTexture) else each).encoder for each in textures}
    tables = {each.layout for each in textures if isinstance(each, DeviceTexture)}
    if len(grids) > 1 or len(stamps) > 1 or len(tables) > 1:
        found = "grids " + ", ".join(f"{h} x {w}" for h, w in sorted(grids))
        raise OptionError(
            f"{len(textures)} textures with {found}, encoders {sorted(each.name for each in stamps)}",
            expected="one grid of cells, one encoder and one layout",
            fix="in_chunks(sorted(textures, key=lambda each: each.grid.shape), device) of foveate.texture.tensors "
            "makes a stack of each grid",
        )
    wanted = tables.pop() if tables else layout_named(layout)
    needed = [
        _size(each.tensors) if isinstance(each, DeviceTexture) else bytes_on_device(each, wanted) for each in textures
    ]
    free = free_bytes(place)
    if free is not None and sum(needed) > free:
        fits = int((np.cumsum(needed) <= free).sum())
        raise DeviceError(
            f"{len(textures)} textures on {place}: {sum(needed) / 1e6:,.1f} MB, of which {free / 1e6:,.1f} MB are free",
            expected=f"at most {fits} of them at a time",
            fix=f"for part in foveate.texture.tensors.in_chunks(textures, {str(place)!r}): has as many as fit",
        )
    parts = []
    for each in textures:
        if isinstance(each, DeviceTexture):
            check_same(f"the texture {each.texture.name!r}", each.device, place)
            each.check_unchanged()
            parts.append(each.tensors)
        else:
            parts.append(_moved(_tensors(each, wanted), place))
    known = tuple(each.texture if isinstance(each, DeviceTexture) else each for each in textures)
    with explain_device(f"a batch of {len(parts)} textures", place, FEWER):
        return DeviceTextures(known, wanted, _joined(parts))


def in_chunks(
    textures: Sequence[Sendable], device: str | torch.device, *, most: int = 256, layout: Layout | str = FULL40
) -> Iterator[DeviceTextures]:
    """Batches of textures on a device, in their order, as many at a time as half of what is free takes.

    Counted are their tensors, and the embedding in float64, which a question makes; the other half is for its maps. A
    batch ends where the next texture has another grid, or another encoder: who has photographs of both orientations
    sorts them first, sorted(textures, key=lambda each: each.grid.shape). `part.textures` says which they are.

    >>> for part in in_chunks(textures, "cuda"):                                # doctest: +SKIP
    ...     kept += ask(part, vectors, 273).indices.tolist()

    Args:
        textures: on the CPU. device, layout: as of `stack`.
        most: how many at a time.

    Raises OptionError, and DeviceError where not one fits.
    """
    place, wanted = find_device(device, NO_GPU), layout_named(layout)
    most = check_int("most", most, fix="leave it out: as many as there is memory for, up to 256")
    start = 0
    while start < len(textures):
        free, first = free_bytes(place), textures[start]
        count, needed = 0, 0
        for texture in textures[start : start + most]:
            needed += bytes_on_device(texture, wanted) + 8 * texture.grid.count * texture.basis.rank
            alike = texture.grid.shape == first.grid.shape and texture.encoder == first.encoder
            if count and (not alike or (free is not None and 2 * needed > free)):
                break
            count += 1
        yield stack(textures[start : start + count], place, wanted)
        start += count


def bytes_on_device(texture: Sendable, layout: Layout | str = FULL40) -> int:
    """Bytes that `texture.to(device)` takes there, without making anything."""
    cells, columns = texture.grid.count, _padded(len(layout_named(layout)))
    basis = texture.basis
    small = 4 + 4 + 8  # saliency, valid, segments
    return (
        cells * (2 * columns + 2 * basis.rank + small) + 4 * basis.width * (basis.rank + 1) + 8 * _segments(texture) + 4
    )


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


def _tensors(texture: Sendable, layout: Layout) -> Tensors:
    """The tensors of one texture on the CPU, with a batch of 1. All are copies: NumPy's arrays are read-only."""
    torch = import_torch("Texture.to")
    grid, rank = texture.grid, texture.basis.rank
    columns = texture.tokens(layout=layout)
    for name, column in zip(layout.names, columns.T, strict=True):
        check_half(f"channel '{name}' of {texture.name!r}", column)
    table = np.zeros((grid.count, _padded(len(layout))), np.float16)
    table[:, : len(layout)] = columns
    z = check_half(
        f"the embedding of {texture.name!r}", texture.embedding.reshape(-1, rank)
    )  # int8 is exact in float16
    valid = np.ones(grid.count, np.float32)
    if texture.valid is not None:
        valid = resize_map(texture.valid, grid.shape).ravel() / np.float32(255)
    ids = texture.channel("cluster_id", warn=False).astype(np.int64).ravel()

    def one(array: NDArray[Any], dtype: Any) -> Tensor:
        return torch.tensor(np.ascontiguousarray(array, dtype))[None]

    with counting():
        return Tensors(
            table=one(table, np.float16),
            z=one(z.T, np.float16).mT,
            rows=one(texture.basis.rows, np.float32),
            mean=one(texture.basis.mean, np.float32),
            saliency=one(texture.channel("saliency", warn=False).ravel(), np.float32),
            valid=one(valid, np.float32),
            segments=one(ids, np.int64),
            sizes=one(np.maximum(np.bincount(ids), 1), np.float64),
            smooth=torch.full((1, 1, 1), float(texture.has("cluster_id"))),
        )


def _size(values: Iterable[Any]) -> int:
    """Bytes of tensors, those in tuples among them."""
    return sum(_size(each) if isinstance(each, tuple) else getattr(each, "nbytes", 0) for each in values)


def _segments(texture: Sendable) -> int:
    return int(texture.channel("cluster_id", warn=False).max()) + 1


def _padded(columns: int) -> int:
    return -(-columns // WIDE) * WIDE


def _moved(tensors: Tensors, place: torch.device) -> Tensors:
    with explain_device(f"{_size(tensors) / 1e6:,.1f} MB", place, FEWER), counting():
        return Tensors(*(each.to(place) for each in tensors))  # the layout in memory stays


def _sliced(tensors: Tensors, number: int) -> Tensors:
    with counting():
        return Tensors(*(each[number : number + 1] for each in tensors))


def _joined(parts: Sequence[Tensors]) -> Tensors:
    """A batch. Ranks and numbers of segments that differ are filled up: with zeros, which add exactly nothing."""
    torch = import_torch("stack")
    rank, count = max(part.z.shape[-1] for part in parts), max(part.sizes.shape[-1] for part in parts)

    def filled(tensor: Tensor, missing: tuple[int, ...], value: float = 0.0) -> Tensor:
        return cast("Tensor", torch.nn.functional.pad(tensor, missing, value=value)) if any(missing) else tensor

    with counting():
        whole = [
            part._replace(
                z=filled(part.z.mT, (0, 0, 0, rank - part.z.shape[-1])),
                rows=filled(part.rows, (0, 0, 0, rank - part.rows.shape[1])),
                sizes=filled(part.sizes, (0, count - part.sizes.shape[-1]), 1.0),
            )
            for part in parts
        ]
        joined = Tensors(*(torch.cat(each) for each in zip(*whole, strict=True)))
        return joined._replace(z=joined.z.mT)


def check_texture(texture: object) -> OnDevice:
    """A texture on a device, as nobody changed it. Raises OptionError, DeviceError."""
    fix = "texture.to('cuda') gives one, foveate.texture.tensors.stack several"
    found = check_type("texture", texture, OnDevice, fix=fix)
    found.check_unchanged()
    return found
