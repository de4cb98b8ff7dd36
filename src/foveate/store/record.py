"""Features of a picture -> the record that a row keeps, with its image-level vectors; and a record's bytes, checked.

A record is a safetensors file. Its vectors are cells most unlike each other, as a mean says little of things of a few
cells; or peaks (docs/store.md).
"""

from __future__ import annotations

import io
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import save as to_bytes

from foveate.channels.visual import compute_saliency
from foveate.core.errors import OptionError
from foveate.core.grid import Grid, resize_map
from foveate.core.image import MAX_PIXELS, Picture, is_one_colour
from foveate.encoders.protocol import DenseFeatures, Encoder
from foveate.language.negatives import negatives_of
from foveate.reading.words import Words
from foveate.relevance.confidence import peak_cells
from foveate.store.schema import HUGE, MOST_RECORD, Identity, Space, damaged, number
from foveate.store.words import pack_words
from foveate.texture.basis import Basis, Metric, fit, packed, rounded_up, widened

Floats = NDArray[np.float32]
STEPS, LEVELS = 127, 255
EVERY, ENOUGH = 3, 1024  # an image's basis is fitted to one cell in three, if that leaves so many: neighbours are alike
SMALLEST = 1e-7  # an axis without spread must not divide by 0
THUMBNAIL, QUALITY = 128, 80
FLAT, ALPHA = 1, 2  # flags: an image of one colour, one with transparency
MOST_WORDS = 2**24  # bytes of what is written in an image: 100,000 words take a quarter
HEAD = "record"  # beside the tensors, as JSON
U8, I8, F16, F32 = (
    (name, np.dtype(kind)) for name, kind in (("U8", "u1"), ("I8", "i1"), ("F16", "<f2"), ("F32", "<f4"))
)
DTYPES = {  # as safetensors and NumPy call them
    "basis.columns": U8, "basis.mean": F32, "basis.rows": F16, "basis.steps": F32, "rivals": F16, "embedding": I8,
    "residual": U8, "saliency": U8, "valid": U8, "looks": I8, "thumbnail": U8, "words": U8, HEAD: U8,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Record:
    """What is kept of an image's features.

    Attributes:
        flags: FLAT, ALPHA. step: of the residual. tensors: by the names of DTYPES.
        vectors: image-level, float16 [k, s]; their CRC-32 alone where a record was read.
    """

    grid: Grid
    flags: int
    step: float
    tensors: Mapping[str, NDArray[Any]]
    vectors: NDArray[np.float16] | int

    @property
    def content(self) -> bytes:
        """As safetensors."""
        said = {
            "size": [self.grid.height, self.grid.width],
            "grid": list(self.grid.shape),
            "flags": self.flags,
            "step": self.step,
            "vectors": self.vectors if isinstance(self.vectors, int) else checksum_of_vectors(self.vectors),
        }
        every = {**self.tensors, HEAD: np.frombuffer(json.dumps(said).encode(), np.uint8)}
        return bytes(to_bytes({name: np.ascontiguousarray(tensor) for name, tensor in every.items()}))


def checksum_of_vectors(vectors: NDArray[np.float16]) -> int:
    return zlib.crc32(vectors.tobytes())


def parse_record(content: bytes, identity: Identity, called: str) -> Record:
    """What `Record.content` wrote, for a store of this identity. Raises StoreDamagedError for anything else."""
    try:
        if len(content) > MOST_RECORD:
            raise ValueError(f"{len(content):,} bytes")
        tensors = tensors_of(content)
        said = json.loads(tensors.pop(HEAD).tobytes())
        height, width = (number(n, MAX_PIXELS, 1) for n in said["size"])
        h, w = (number(n, MAX_PIXELS, 1) for n in said["grid"])
        flags, step = number(said["flags"], FLAT | ALPHA), said["step"]
        if max(height * width, h * w) > MAX_PIXELS or type(step) is not float or not 0 < step < HUGE:
            raise ValueError(f"it is described as {said}")
        for name, shape in shapes_of(identity, (h, w), flags, tensors).items():
            if tensors[name].shape != shape:
                raise ValueError(f"tensor '{name}' is {tensors[name].dtype} {list(tensors[name].shape)}")
        if not all(_sane(tensor) for tensor in tensors.values() if tensor.dtype.kind == "f"):
            raise ValueError("numbers that are none")
        return Record(Grid(h, w, height, width), flags, step, tensors, number(said["vectors"], 2**32 - 1))
    except Exception as cause:  # a hostile file fails in many ways
        raise damaged(f"the record of {called}", cause) from cause


def tensors_of(content: bytes) -> dict[str, NDArray[Any]]:
    """The tensors of a record by name, read-only and not copied. Raises an error of any kind for what is none."""
    start = 8 + int.from_bytes(content[:8], "little")
    out = dict[str, NDArray[Any]]()
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    for name, said in header.items():
        (called, kind), (first, last) = DTYPES[name], said["data_offsets"]
        if said["dtype"] != called or not 0 <= first <= last:
            raise ValueError(f"tensor '{name}' is {said}")
        flat = np.frombuffer(content, kind, (last - first) // kind.itemsize, start + first)
        out[name] = flat.reshape(said["shape"])
    return out


def shapes_of(
    identity: Identity, cells: tuple[int, int], flags: int, tensors: Mapping[str, NDArray[Any]]
) -> dict[str, tuple[int, ...]]:
    """Shapes that a record's tensors must have, but for the thumbnail and the words."""
    width, shapes = identity.encoder.width, dict[str, tuple[int, ...]]()
    if identity.peaks:
        shapes["basis.columns"] = (-(-width // 8),)
        bits = int.from_bytes(tensors["basis.columns"].tobytes())
        if bits & (1 << -width % 8) - 1:
            raise ValueError(f"columns beyond {width}")
        width = bits.bit_count()
    if identity.kind == "own":
        shapes |= {"basis.mean": (width,), "basis.rows": (identity.rank, width), "basis.steps": (identity.rank,)}
    if "rivals" in tensors:
        shapes["rivals"] = cells
    shapes |= {"embedding": (*cells, identity.rank), "residual": cells, "saliency": cells}
    shapes |= {"valid": cells} if flags & ALPHA else {}
    halves = -(-cells[0] // 2), -(-cells[1] // 2)
    return shapes | ({"looks": (*halves, identity.looks)} if identity.looks else {})


def _sane(array: NDArray[Any]) -> bool:
    """Whether all numbers are numbers, and none is huge; of float16 by its bits, which is quicker."""
    if not array.size:
        return True
    if array.dtype.itemsize == 2:
        return bool((array.view("<u2") & 0x7C00).max() < 0x7C00)
    return bool(np.abs(array).max() < HUGE)


def record_of(
    picture: Picture, dense: DenseFeatures, encoder: Encoder, identity: Identity, space: Space, metric: Metric
) -> Record:
    """Features as a record without words; `space` is the store's shared basis."""
    flat = is_one_colour(picture.rgb)
    columns = dense.columns if identity.peaks else None
    if columns is not None and len(columns) < identity.rank:
        columns = None
    every = dense.full(encoder.width) if columns is None else dense.features
    x = every.reshape(dense.grid.count, -1).astype(np.float32, copy=False)  # nothing below writes to it
    if flat:
        x = np.zeros_like(x)  # as encode does: nothing is in it
    if identity.kind == "own":
        narrow, z, steps = _own(x, identity.rank, metric if columns is None else metric.of(columns))
        basis = narrow if columns is None else widened(narrow, columns, encoder.width)
        own = {**basis_tensors(basis, identity), "basis.steps": steps}
    else:
        basis, own = space.in_steps, dict[str, NDArray[Any]]()
        narrow, z = basis, whole_steps(space.coordinates(x, metric), space.steps)
    shape = dense.grid.shape
    kept = narrow.restore(z.astype(np.float32))  # of the columns alone: four times as quick
    left = x - kept
    levels, step = in_levels(np.sqrt(np.einsum("nd,nd->n", left, left)))
    tensors: dict[str, NDArray[Any]] = dict(own)
    if encoder.calibration.contrast > 0:
        tensors["rivals"] = _rivals(z, basis, encoder).reshape(shape)
    tensors["embedding"] = z.reshape(*shape, -1)
    tensors["residual"] = levels.reshape(shape)
    tensors["saliency"] = np.rint(compute_saliency(picture.rgb, shape) * LEVELS).astype(np.uint8)
    if picture.valid is not None:
        tensors["valid"] = np.rint(resize_map(picture.valid, shape)).astype(np.uint8)
    if identity.looks:
        tensors["looks"] = _check_looks(dense, identity)
    tensors["thumbnail"] = np.frombuffer(thumbnail(picture.rgb), np.uint8)
    vectors = image_vectors(x, kept, identity, space, metric, columns)
    flags = FLAT * flat + ALPHA * (picture.valid is not None)
    return Record(dense.grid, flags, step, tensors, vectors)


def basis_tensors(basis: Basis, identity: Identity) -> dict[str, NDArray[Any]]:
    parts: dict[str, Any] = packed(basis) if identity.peaks else {"mean": basis.mean, "rows": basis.rows}
    return {f"basis.{name}": part for name, part in parts.items()}


def _check_looks(dense: DenseFeatures, identity: Identity) -> NDArray[np.int8]:
    if dense.looks is None or dense.looks.shape[-1] != identity.looks:
        raise OptionError(f"features without {identity.looks} looks", expected="those of the store", fix="use nano")
    return dense.looks


def add_words(record: Record, words: Words) -> Record:
    packed = np.frombuffer(pack_words(words), np.uint8)
    if packed.size > MOST_WORDS:
        raise OptionError(f"{len(words)} words of {packed.size:,} bytes", expected="fewer", fix="read=False")
    return replace(record, tensors={**record.tensors, "words": packed})


def _own(x: Floats, rank: int, metric: Metric) -> tuple[Basis, NDArray[np.int8], Floats]:
    """The basis of features [n, D] in steps, their coordinates in whole ones, and the steps [r]."""
    basis, toward = fit(x[:: max(1, min(EVERY, len(x) // ENOUGH))], rank, metric)
    z = np.asarray((x - basis.mean) @ toward, np.float32)
    own = Space(basis, np.maximum(np.abs(z).max(0), SMALLEST) / np.float32(STEPS))
    return own.in_steps, whole_steps(z, own.steps), own.steps


def whole_steps(z: Floats, steps: Floats) -> NDArray[np.int8]:
    return np.clip(np.rint(z / steps), -STEPS, STEPS).astype(np.int8)


def in_levels(lengths: Floats) -> tuple[NDArray[np.uint8], float]:
    """Lengths as levels, rounded up, and the step of a level, so that the longest has the last one."""
    step = max(float(lengths.max()), SMALLEST) / LEVELS
    return np.minimum(np.ceil(lengths / step), LEVELS).astype(np.uint8), step


def lengths_of(levels: NDArray[np.uint8], step: float) -> NDArray[np.float16]:
    return rounded_up(levels * np.float32(step))


def _rivals(z: NDArray[np.int8], basis: Basis, encoder: Encoder) -> NDArray[np.float16]:
    """log(mean over the bank of exp(t s)) / t at each cell: of many nouns, made once instead of at each search."""
    t, bank = encoder.calibration.temperature, negatives_of(encoder).vectors
    offset, weights = basis.project(bank)
    level = np.zeros(len(z))
    for start in range(0, len(bank), 128):
        part = slice(start, start + 128)
        level += np.exp(t * (weights[part] @ z.T.astype(np.float32) + offset[part, None]).astype(np.float64)).sum(0)
    return (np.log(level / len(bank)) / t).astype(np.float16)


def thumbnail(rgb: NDArray[np.uint8]) -> bytes:
    """A JPEG with a long side of 128 pixels; a smaller image is not enlarged."""
    height, width = rgb.shape[:2]
    ratio = min(1.0, THUMBNAIL / max(height, width))
    size = (max(1, round(width * ratio)), max(1, round(height * ratio)))
    small = rgb if ratio == 1 else cv2.resize(rgb, size, interpolation=cv2.INTER_AREA)
    out = io.BytesIO()
    Image.fromarray(small).save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def image_vectors(
    x: Floats, kept: Floats, identity: Identity, space: Space, metric: Metric, columns: NDArray[np.intp] | None = None
) -> NDArray[np.float16]:
    """Image-level vectors, float16 [k, s], of features x [n, D]; peaks: of `kept` [n, columns], what is left."""
    if identity.peaks:
        peaks = np.zeros((1, space.basis.width), np.float16)
        peaks[:, slice(None) if columns is None else columns] = plane_peaks(kept)
        return peaks
    return farthest(space.coordinates(x, metric), identity.vectors).astype(np.float16)


def plane_peaks(x: Floats) -> Floats:
    """The mean of the best cells of each plane of features [n, D], of as many as a confidence is made of: [D]."""
    count = peak_cells(len(x))
    groups = math.isqrt(len(x) * count)
    fold = len(x) // groups
    parts = x[: fold * groups].reshape(fold, groups, -1)
    highest = np.ascontiguousarray(np.maximum.reduce(parts).T)
    where = highest.argpartition(groups - count, axis=1)[:, groups - count :]
    few = parts[:, where.T, np.arange(x.shape[1])].reshape(fold * count, -1)
    best = np.concatenate([few, x[fold * groups :]]).T.copy()
    best.partition(best.shape[1] - count, axis=1)
    return np.asarray(best[:, -count:].mean(1), np.float32)


def farthest(points: Floats, count: int) -> Floats:
    """`count` of the points [n, s], each as far as can be from those before; of equals the first. They may repeat."""
    squares = np.einsum("ns,ns->n", points, points)

    def distance(centre: Floats) -> Floats:
        return np.asarray(squares - 2 * (points @ centre) + centre @ centre, np.float32)

    chosen = [int(distance(points.mean(0)).argmax())]
    nearest = distance(points[chosen[0]])
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        np.minimum(nearest, distance(points[chosen[-1]]), out=nearest)
    return points[chosen]
