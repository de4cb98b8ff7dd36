"""The texture: an image as named channels, each at its native resolution, channels last, immutable."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from foveate.core.arrays import to_single
from foveate.core.checks import check_array, check_choice, check_int, check_type
from foveate.core.display import Drawable
from foveate.core.errors import ChannelError, OptionError, UnbuiltChannelWarning, warn
from foveate.core.grid import Boundary, Floats, Grid, check_grid, reduce_plane, resize_map
from foveate.core.image import shrink
from foveate.core.layout import (
    COLOURS,
    DERIVED,
    EVERY_NAME,
    FLOW,
    FULL40,
    ROPE,
    Channel,
    Description,
    Layout,
    Native,
    channel_named,
    embedding_number,
    extra_channel,
    layout_named,
    native_shape,
)
from foveate.core.readonly import Frozen, ReadOnly
from foveate.reading.readers import ReadBy, read_words
from foveate.reading.words import Words
from foveate.texture import sampling
from foveate.texture.basis import Basis
from foveate.texture.file import load_parts, save_parts
from foveate.texture.sampling import MAX_LEVEL, FilterMode, derived_plane, positions

if TYPE_CHECKING:
    import torch

    from foveate.texture.torch import DeviceTexture

Table = Floats | NDArray[np.float16]
T = TypeVar("T")
RESOLUTIONS: tuple[Native, ...] = ("pixel", "quarter", "cell")  # an array that fits two of them is of the coarser one
SMALL = 64  # pixels along, at which a thumbnail is compared with an image
ALIKE = 8.0  # levels of 255: 60 photographs differ from their own thumbnail by at most 5.8, from others by 10.9
COMPUTED = (*COLOURS, "x", "y", "eccentricity")
HALF_END = np.float32(np.finfo(np.float16).max)


@dataclass(frozen=True)
class EncoderStamp:
    """Which encoder made the embedding; only the same one can ask the texture."""

    name: str
    revision: str
    width: int


@dataclass(frozen=True, eq=False)
class Texture(Frozen, Drawable):
    """An encoded image. Make one with `foveate.encode`, or read one with `Texture.load`.

    Attributes:
        grid: the cells of the encoder over the image.
        pixel: uint8 [H, W, 3], the upright RGB image.
        valid: uint8 [H, W], 255 where the image is opaque; None for an image without alpha.
        planes: stored planes by channel name, float16 [h, w] at their native resolution.
        embedding: float16 or int8 [h, w, r], compressed coordinates z of the features.
        basis: turns text vectors into weights for z (see basis.py).
        residual: float16 [h, w], length of what compression dropped; bounds every score's error.
        encoder: name, revision and width of the encoder.
        preprocessing: how the image was presented to the encoder (long side, cells, ...).
        name: of the image, for messages.
        made_by: how channels were computed, by name, where there is more than one way.
        extra: descriptions of planes that are not in the table, by name.
        words: the words in the image (`read`), with boxes; None if it was not read.
        looks: int8 [h / 2, w / 2, n], halves rounded up: what taught words are made of (`foveate.teach`); None if the
            encoder has none.
    """

    grid: Grid
    pixel: NDArray[np.uint8]
    valid: NDArray[np.uint8] | None
    planes: Mapping[str, NDArray[np.float16]]
    embedding: NDArray[np.float16] | NDArray[np.int8]
    basis: Basis
    residual: NDArray[np.float16]
    encoder: EncoderStamp
    preprocessing: Mapping[str, Any]
    name: str = "image"
    made_by: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Channel] = field(default_factory=dict)
    words: Words | None = None
    looks: NDArray[np.int8] | None = None
    _derived: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("planes", "preprocessing", "made_by", "extra"):
            value = getattr(self, name)
            object.__setattr__(self, name, value if isinstance(value, ReadOnly) else ReadOnly(value))
        super().__post_init__()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_derived": {}}

    @property
    def original(self) -> bool:
        """Whether `pixel` is the image that was encoded, and not the thumbnail that a store kept of it."""
        return COLOURS[0] not in self.made_by

    def shows(self, rgb: NDArray[np.uint8]) -> bool:
        """Whether an image, uint8 [H, W, 3], is the one that was encoded; exactly, unless only a thumbnail is left."""
        if self.original or rgb.shape != self.pixel.shape:
            return np.array_equal(self.pixel, rgb)
        small = [shrink(each, SMALL).astype(np.int16) for each in (rgb, self.pixel)]
        return float(np.abs(small[0] - small[1]).mean()) <= ALIKE

    @property
    def layout(self) -> Layout:
        """The default columns of `tokens()` and planes of `dense()`: "full40"."""
        return FULL40

    @property
    def preset(self) -> str | None:
        """Name of the preset that it was encoded with, whose defaults `score` and `allocate` take; or None."""
        return self.preprocessing.get("preset")

    def __repr__(self) -> str:
        preset = "" if self.preset is None else f", preset {self.preset!r}"
        return (
            f"Texture({self.name!r}, {self.grid.height} x {self.grid.width} px, {self.grid.h} x {self.grid.w} cells, "
            f"{self.encoder.name}, rank {self.basis.rank}, {self.nbytes / 1e6:.1f} MB{preset})"
        )

    @property
    def nbytes(self) -> int:
        """Bytes of everything stored, without what was derived since."""
        own = (self.pixel, self.valid, self.embedding, self.residual, self.basis.mean, self.basis.rows)
        return sum(part.nbytes for part in (*own, *self.planes.values(), self.words, self.looks) if part is not None)

    @property
    def query_nbytes(self) -> int:
        """Bytes of the part that answers questions: embedding, basis, residual."""
        return self.embedding.nbytes + self.residual.nbytes + self.basis.mean.nbytes + self.basis.rows.nbytes

    @property
    def built(self) -> tuple[str, ...]:
        """Names of the channels that were computed for this image: those of full40 in order, the embedding, others."""

        def make() -> tuple[str, ...]:
            embedding = tuple(f"embedding_{i}" for i in range(self.rank))
            flow = (FLOW.name,) if {"flow_y", "flow_x"} <= {*self.planes} else ()
            stored = {*COMPUTED, *self.planes, *embedding, *flow}
            first = (*(name for name in FULL40.names if name in stored), *embedding)
            return tuple(dict.fromkeys((*first, *sorted(stored))))

        return self.derive("built", make)

    @property
    def rank(self) -> int:
        """Numbers of the embedding that are kept a cell."""
        return self.basis.rank

    def describe(self, name: str) -> Channel:
        """Range, native resolution, filter and reduction of a channel. Raises ChannelError for an unknown name."""
        return channel_named(name, self.extra)

    def has(self, name: str) -> bool:
        """Whether a channel holds values of this image, computed or derived, and not its neutral value."""
        return name in self.built or any(name == channel.name for channel in (*DERIVED, *ROPE))

    def channel(self, name: str, *, warn: bool = True) -> Floats:
        """One channel at its native resolution: float32 [h, w]. Raises ChannelError for an unknown name.

        One that was not built (see `has`) is its neutral value, with an UnbuiltChannelWarning if `warn`.
        """
        if warn:
            self._warn_unbuilt(name)
        return self._mip(self.describe(name), 0)

    def mip(self, name: str, level: int, *, warn: bool = True) -> Floats:
        """A channel after `level` halvings of its native resolution, by its own reduction; else as `channel`."""
        if warn:
            self._warn_unbuilt(name)
        return self._mip(self.describe(name), level)

    def _warn_unbuilt(self, *names: str) -> None:
        for channel in map(self.describe, names):
            if not self.has(channel.name):
                number = embedding_number(channel.name)
                fix = (
                    "frames of foveate.video have it; so has a texture with both flow_y and flow_x"
                    if channel.native == "flow"
                    else f"encode(image, channels=['{channel.name}', ...]) computes what follows from pixels; "
                    f"texture.with_channel('{channel.name}', plane) adds what you have"
                    if number is None
                    else f"encode(image, rank={number + 1}) keeps so many numbers a cell, not {self.rank}"
                )
                warn(
                    f"the channel '{channel.name}' of {self.name!r} was not built: it is {channel.neutral:g} everywhere"
                    f"\n  expected: a channel of texture.built"
                    f"\n  fix: {fix}; warn=False accepts it",
                    UnbuiltChannelWarning,
                )

    def _mip(self, channel: Channel, level: int) -> Floats:
        level = check_int("level", level, 0, MAX_LEVEL, fix="0 is native")
        if level == 0 and channel.native == "pixel":
            return self._native(channel)  # too large to keep, and quick to make

        def make() -> Floats:
            if level == 0:
                return self._native(channel)
            above = self._mip(channel, level - 1)
            return reduce_plane(above, (-(-above.shape[0] // 2), -(-above.shape[1] // 2)), channel.reduction)

        return self.derive(("mip", channel.name, level), make)

    def sample(
        self,
        positions: ArrayLike,
        channels: Sequence[str] | Layout = FULL40,
        level: ArrayLike = 0.0,
        *,
        footprint: ArrayLike | None = None,
        filter_mode: FilterMode = "linear-mipmap-nearest",
        boundary_mode: Boundary = "clamp",
    ) -> Floats:
        """Read channels at positions: (y, x) in pixels of the image, [n, 2] -> float32 [n, len(channels)].

        Args:
            positions: continuous coordinates; the centre of the first pixel is (0.5, 0.5).
            channels: a layout; or names, of which those that were not built give an UnbuiltChannelWarning.
            level: log2 of the footprint's side in pixels, one for all or [n].
            footprint: sides in pixels [n], or Jacobians d(y, x)/d(row, column) [n, 2, 2]: their level is added.
            filter_mode: "nearest" and "linear" read native planes; "linear-mipmap-nearest" the nearest level,
                "linear-mipmap-linear" between two. Ids and masks are never blended.
            boundary_mode: outside the image, "clamp" repeats the border, "wrap" the image, "zero" is 0.
        """
        yx = check_array("positions", positions, (None, 2), dtype=np.float64, fix="pass (y, x) pairs in pixels, [n, 2]")
        check_choice("filter_mode", filter_mode, sampling.FILTER_MODES)
        check_choice("boundary_mode", boundary_mode, sampling.BOUNDARY_MODES)
        wanted = sampling.levels(level, footprint, len(yx))
        if isinstance(channels, Layout):
            names = channels.names
        else:
            fix = 'pass a list: channels=["text"]'
            check_type("channels", channels, Iterable, expected="names of channels", fix=fix, error=ChannelError)
            names = (channels,) if isinstance(channels, str) else tuple(channels)
            self._warn_unbuilt(*names)
        read = [self._sampled(self.describe(name), yx, wanted, filter_mode, boundary_mode) for name in names]
        return np.stack(read, -1) if read else np.empty((len(yx), 0), np.float32)

    def _sampled(self, channel: Channel, *where: Any) -> Floats:
        def mip(level: int) -> NDArray[Any]:
            if level == 0 and channel.name in COLOURS:  # bytes: a whole float plane for a few positions is a waste
                return self.pixel[..., COLOURS.index(channel.name)]
            return self._mip(channel, level)

        return sampling.read(channel, self.grid, mip if self.has(channel.name) else None, *where)

    def with_channel(
        self,
        name: str,
        plane: ArrayLike,
        *,
        made_by: str = "",
        native: Native | None = None,
        **description: Unpack[Description],
    ) -> Texture:
        """A new texture with one plane more (or another one), which shares everything else.

        Args:
            name: one of the table that is stored as a plane (its range and resolution are known), or a new one.
            plane: numbers [h, w] at the channel's native resolution; kept as float16.
            made_by: a few words for `Texture.made_by`.
            native: resolution of a new channel: "cell", "quarter" or "pixel"; None takes it from the plane's shape.
            description: of a new channel: filter, reduction, low, high, neutral, about (see `Channel`).

        Raises:
            ChannelError: the name cannot be a plane. OptionError: wrong shape, NaN, or values outside the range.
        """
        what = f"plane '{name}'"
        array = check_array(what, plane, (None, None), dtype=np.float64, fix="pass a NumPy array [h, w]")
        known = isinstance(name, str) and (name in EVERY_NAME or name in self.extra)
        if known and description:
            raise OptionError(
                f"{sorted(description)} for the channel '{name}'",
                expected="nothing: its description stands already",
                fix="leave them out, or choose a new name",
            )
        if known:
            channel = self.describe(name)
        else:
            shapes = {native_shape(each, self.grid): each for each in RESOLUTIONS}
            channel = extra_channel(name, native or shapes.get(array.shape, "cell"), **description)
        if not channel.stored:
            raise ChannelError(
                f"a plane for '{name}'",
                expected="a channel that is stored: this one follows from the image",
                fix="choose a new name, or encode another image",
            )
        shape = native_shape(channel.native, self.grid)
        with np.errstate(over="ignore"):  # what float16 cannot hold becomes infinite, and is refused
            kept = array.astype(np.float16)
        fix = "resize_map of foveate.core.grid moves it, np.clip cuts it; float16 ends at 65504"
        check_array(what, kept, shape, dtype=np.float16, low=channel.low, high=channel.high, fix=fix)
        if channel.filter == "nearest" and ((kept != array) | (kept != np.rint(kept))).any():
            raise OptionError(
                f"{what} with values that are no whole numbers up to 2048",
                expected="ids or a mask: between them nothing is interpolated",
                fix="threshold the mask; number the segments from 0",
            )
        made = {key: by for key, by in self.made_by.items() if key != name} | ({name: made_by} if made_by else {})
        extra = self.extra if known else {**self.extra, name: channel}
        return replace(self, planes={**self.planes, name: kept}, made_by=made, extra=extra)

    def read(self, reader: ReadBy = "auto") -> Texture:
        """A new texture with the words that are written in the image; this one if it has them. Takes seconds.

        Args:
            reader: "rapidocr" (extra `[text]`), "tesseract", "auto" for whichever is installed, an object with `name`
                and `read(rgb)`, or a function rgb -> words. Any but "auto" reads again.

        Raises MissingExtraError; OptionError for a reader that is unknown or failed.
        """
        if self.words is not None and reader == "auto":
            return self
        return self.with_words(read_words(self.pixel, reader))

    def with_words(self, words: Words) -> Texture:
        """A new texture with these words; their boxes replace those of earlier words in the channel "text"."""
        words = check_type("words", words, Words, fix="Words.of([Word(text, box), ...], 'mine') makes them")
        if (words.boxes < 0).any() or (words.boxes[:, 2:] > (self.grid.height, self.grid.width)).any():
            raise OptionError(
                f"words with boxes outside of the image of {self.grid.height} x {self.grid.width} pixels",
                expected="(y0, x0, y1, x1) in pixels of this image",
                fix="scale the boxes to it",
            )
        plane, made_by = words.mask(native_shape("quarter", self.grid), self.grid), words.reader
        finder = self.made_by.get("text", "given") if self.has("text") else ""
        if self.words is not None:
            finder = finder.removeprefix(self.words.reader).removeprefix(", ")
        if finder:
            plane, made_by = np.maximum(plane, self.channel("text")), f"{made_by}, {finder}"
        return replace(self.with_channel("text", plane, made_by=made_by), words=words)

    @overload
    def tokens(self, grid: Grid | None = None, layout: Layout | str = FULL40) -> Floats: ...
    @overload
    def tokens(self, grid: Grid | None = None, layout: Layout | str = FULL40, *, dtype: DTypeLike) -> Table: ...
    def tokens(
        self, grid: Grid | None = None, layout: Layout | str = FULL40, *, dtype: DTypeLike = np.float32
    ) -> Table:
        """The token table: one contiguous row of all channels per cell, [grid.count, len(layout)], read-only.

        `texture.tokens()[:, texture.layout.layer("saliency")]` is one channel;
        `texture.tokens(kept.grid)[kept.indices]` are the rows of an allocation.

        Args:
            grid: whose cells are the rows; None is the texture's. Channels are reduced or interpolated by their rules.
            layout: the columns; "full" has all `rank` numbers of the embedding, from 18 on, where full40 has 16.
            dtype: float32, or float16 (rounded; half the bytes).
        """
        kind = _float_type(dtype)
        shape = (self.grid if grid is None else check_grid(grid, self.grid)).shape
        wanted = layout_named(layout, self.rank)

        def make() -> Table:
            planes = [_as_type(self._at(self.describe(name), shape), kind) for name in wanted.names]
            return np.asarray(np.stack(planes, -1).reshape(-1, len(wanted)), kind)

        return self.derive(("tokens", shape, wanted, kind.name), make)

    @overload
    def dense(self, layout: Layout | str = FULL40) -> Floats: ...
    @overload
    def dense(self, layout: Layout | str = FULL40, *, dtype: DTypeLike) -> Table: ...
    def dense(self, layout: Layout | str = FULL40, *, dtype: DTypeLike = np.float32) -> Table:
        """All channels of a layout at the image's (or the layout's) resolution: [n, H, W]; 168 MB a megapixel.

        "full" has all `rank` numbers of the embedding, at layers 18 to 17 + rank, where full40 has the first 16.
        """
        kind = _float_type(dtype)
        wanted = layout_named(layout, self.rank)
        shape = wanted.shape or (self.grid.height, self.grid.width)
        out: Table = np.empty((len(wanted), *shape), kind)
        for i, name in enumerate(wanted.names):
            out[i] = _as_type(self._at(self.describe(name), shape), kind)
        return out

    def coordinates(self) -> Floats:
        """The embedding as a float32 matrix [cells, r], ready for the product with a question's weights.

        In memory one coordinate of all cells lies behind the other: so the product takes half as long.
        """
        z = self.embedding
        return self.derive("coordinates", lambda: np.ascontiguousarray(to_single(z.reshape(-1, z.shape[-1])).T).T)

    def scores(self, queries: NDArray[np.floating]) -> Floats:
        """Scores of text vectors [n, D] at every cell: float32 [n, h, w]; approximately q.x for features x."""
        q: Floats = np.asarray(queries, np.float32)
        q = q[None] if q.ndim < 2 else q
        columns, mean, rows = self.derive("projection", self._projection)
        q = q[:, columns]
        if len(q) == 1:  # the same numbers: `dot` takes less time to find out what is to be done
            found: NDArray[Any] = rows.dot(q[0]).dot(self.coordinates().T)
            found += mean.dot(q[0])
        else:
            found = (q @ rows.T) @ self.coordinates().T
            found += (q @ mean)[:, None]
        return found.reshape(-1, *self.grid.shape)

    def _projection(self) -> tuple[Any, Floats, Floats]:
        """Components of the basis that are not 0 everywhere (or all), and in these its mean and rows."""
        return slice(None), self.basis.mean, to_single(self.basis.rows)

    def error_bound(self, queries: NDArray[np.floating]) -> Floats:
        """No score of `scores(queries)` is further from the uncompressed one than this: float32 [n, h, w]."""
        length = np.linalg.norm(np.atleast_2d(queries), axis=1).astype(np.float32)
        return length[:, None, None] * self.residual.astype(np.float32)

    def derive(self, key: Hashable, make: Callable[[], T]) -> T:
        """A value that depends on this texture alone, made when first needed and kept with it; arrays are read-only."""
        if key not in self._derived:
            value = make()
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            self._derived[key] = value
        kept: T = self._derived[key]
        return kept

    def find_looks(self) -> NDArray[np.int8] | None:
        """`looks`; of a texture out of a store they are made now, which takes the time of encoding the image."""
        return self.looks

    def in_basis(self, embedding: NDArray[np.float16], basis: Basis, encoder: EncoderStamp) -> Texture:
        """The same texture with other features: z of every cell [h, w, r] in a basis, of an encoder."""
        return replace(self, embedding=embedding, basis=basis, encoder=encoder)

    def to(self, device: str | torch.device, layout: Layout | str = FULL40) -> DeviceTexture:
        """The texture as tensors on a device, for `foveate.score` and `foveate.allocate` to work there (extra [torch]).

        `device` is "cuda", "cuda:1", "cpu" or a torch.device; `layout` has the columns of the token table, float16.

        Raises:
            MissingExtraError: torch is not installed. OptionError: no such device, or values that float16 cannot hold.
            DeviceError: it does not fit; the size is named.
        """
        from foveate.texture.torch import send

        return send(self, device, layout)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .safetensors file (docs/format.md): all of it or nothing. Raises OutputError."""
        parts = {part.name: getattr(self, part.name) for part in fields(self) if part.init}
        save_parts(path, parts | {"encoder": asdict(self.encoder)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Texture:
        """Read a file that `save` wrote. Raises TextureFileError or TextureVersionError, never returns damage."""
        parts = load_parts(path)
        return Texture(**parts | {"encoder": EncoderStamp(**parts["encoder"])})

    def _native(self, channel: Channel) -> Floats:
        if channel.native == "position":
            return positions(channel.name, self.grid.shape, self.grid.shape)
        if channel.native == "derived":
            return derived_plane(channel.name, self.pixel)
        if channel.name in COLOURS:
            return self.pixel[..., COLOURS.index(channel.name)].astype(np.float32) / np.float32(255)
        if channel.name in self.planes:
            return self.planes[channel.name].astype(np.float32)
        if channel.native == "flow" and self.has(channel.name):
            return np.hypot(*(self.planes[name].astype(np.float32) for name in ("flow_y", "flow_x")))
        number = embedding_number(channel.name)
        if number is not None and number < self.rank:
            return self.embedding[..., number].astype(np.float32)
        return np.full(native_shape(channel.native, self.grid), channel.neutral, np.float32)

    def _at(self, channel: Channel, shape: tuple[int, int]) -> Floats:
        if channel.native == "position":
            return positions(channel.name, shape, self.grid.shape)
        if not self.has(channel.name):
            return np.full(shape, channel.neutral, np.float32)
        plane = self._native(channel)
        coarser = plane.shape[0] > shape[0] or plane.shape[1] > shape[1]
        if channel.filter == "nearest" or (coarser and channel.reduction != "mean"):
            return reduce_plane(plane, shape, channel.reduction)
        return resize_map(plane, shape)


def _float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """float32 or float16. Raises OptionError for any other."""
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = np.dtype(object)
    if kind not in (np.float32, np.float16) or dtype is None:
        raise OptionError(f"dtype={dtype!r}", expected="float32 or float16", fix="leave it out for float32")
    return kind


def _as_type(plane: Floats, kind: np.dtype[Any]) -> Table:
    """Rounded to nearest; what float16 cannot hold becomes its largest number."""
    if kind == np.float32:
        return plane
    return np.clip(plane, -HALF_END, HALF_END).astype(np.float16)
