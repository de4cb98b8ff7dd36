"""An image as the bytes that the store keeps: about 70 KB of an image of 64 x 48 cells.

    basis.mean float32 [D], basis.rows float16 [r, D], basis.steps float32 [r]     of an image with its own basis
    rivals     float16 [h, w]      of encoders whose questions compete with a bank of nouns
    embedding  int8 [h, w, r]      z of basis.py in steps of a 127th of each axis's largest; the rows are in these steps
    residual   uint8 [h, w]        |x - x^| in steps of a 255th of the image's largest, rounded up: a bound stays one
    saliency   uint8 [h, w]        in 255ths
    valid      uint8 [h, w]        opaque share of each cell, of an image with alpha
    thumbnail  uint8 [bytes]       a JPEG, 128 pixels along its long side
    vectors    float16 [k, s]      image-level vectors in the store's shared space (vectors.py)

What is notable
* The steps are part of the basis's rows that are kept, so a texture reads the integers as they are.
* The residual is measured with all that rounding in it.
* Other planes are cheap to make from pixels, so they are not kept (texture.py of this package).
"""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load
from safetensors.numpy import save as to_bytes

from foveate.channels.saliency import compute_saliency
from foveate.core.errors import StoreDamagedError
from foveate.core.grid import Grid, resize_map
from foveate.core.image import Picture
from foveate.encoders.protocol import DenseFeatures, Encoder
from foveate.store.identity import Identity, Space
from foveate.store.vectors import farthest
from foveate.texture.basis import Basis, Metric, rounded_up

Floats = NDArray[np.float32]
STEPS, LEVELS = 127, 255
EVERY, ENOUGH = 3, 1024  # an image's basis is fitted to one cell in three, if that leaves so many: neighbours are alike
SPARE, TURNS = 16, 4  # directions beyond those wanted, and iterations: scores as good as with exact eigenvectors
SMALLEST = 1e-7  # an axis without spread must not divide by 0
THUMBNAIL, QUALITY = 128, 80
FLAT, ALPHA = 1, 2  # flags of a record
HEAD, VECTORS = "record", "vectors"  # beside the tensors, where a record travels


@dataclass(frozen=True, eq=False)
class Record:
    """One image, ready to be written.

    Attributes:
        key: of Identity.key.
        image: SHA-256 of the image's bytes, in hex.
        grid: cells over the image.
        flags: FLAT for an image of one colour, ALPHA for one with transparency.
        step: of the residual.
        tensors: by name, in the order of the module's table, without the vectors.
        vectors: float16 [k, s].
    """

    key: str
    image: str
    grid: Grid
    flags: int
    step: float
    tensors: dict[str, NDArray[Any]]
    vectors: NDArray[np.float16]

    @property
    def payload(self) -> bytes:
        """The tensors' bytes, one after the other."""
        return b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in self.tensors.values())

    def described(self) -> dict[str, Any]:
        """What the shard says of it beside its tensors."""
        return {
            "key": self.key,
            "image": self.image,
            "size": [self.grid.height, self.grid.width],
            "grid": list(self.grid.shape),
            "flags": self.flags,
            "step": self.step,
            "crc": zlib.crc32(self.payload),
        }

    @property
    def content(self) -> bytes:
        """As a safetensors file, which is how it travels between processes; `record_in` reads it."""
        said = json.dumps({**self.described(), "tensors": list(self.tensors)}).encode()
        every = {**self.tensors, HEAD: np.frombuffer(said, np.uint8), VECTORS: self.vectors}
        return bytes(to_bytes({name: np.ascontiguousarray(tensor) for name, tensor in every.items()}))


def record_in(content: bytes) -> Record:
    """What `Record.content` wrote. Raises StoreDamagedError where it is anything else."""
    try:
        tensors = load(content)
        said = json.loads(tensors[HEAD].tobytes())
        grid = Grid(*said["grid"], *said["size"])
        ordered = {name: tensors[name] for name in said["tensors"]}
        record = Record(said["key"], said["image"], grid, said["flags"], said["step"], ordered, tensors[VECTORS])
        if zlib.crc32(record.payload) != said["crc"]:
            raise ValueError("its CRC-32 differs")
    except Exception as cause:
        raise StoreDamagedError(
            f"{len(content):,} bytes that are no record ({type(cause).__name__}: {cause})",
            expected="what a worker of the same release sent",
            fix="the same foveate on all machines",
        ) from cause
    return record


def digest(content: bytes) -> str:
    """SHA-256 of an image's bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def record_of(
    image: str,
    picture: Picture,
    dense: DenseFeatures,
    tower: Encoder,
    identity: Identity,
    space: Space,
    metric: Metric,
) -> Record:
    """Features of a picture as a record. `image` is the digest of its file; `space` the store's shared basis."""
    first = picture.rgb[0, 0]
    flat = bool((picture.rgb[::16, ::16] == first).all() and (picture.rgb == first).all())  # most are not: a glance
    x = dense.features.reshape(dense.grid.count, -1).astype(np.float32)
    if flat:
        x = np.zeros_like(x)  # as encode does: nothing is in it
    if identity.kind == "own":
        basis, z, steps = _own(x, identity.rank, metric)
        own: dict[str, NDArray[Any]] = {"basis.mean": basis.mean, "basis.rows": basis.rows, "basis.steps": steps}
    else:
        basis, own = space.in_steps, {}
        z = whole_steps(space.coordinates(x, metric), space.steps)
    shape = dense.grid.shape
    left = np.linalg.norm(x - basis.restore(z.astype(np.float32)), axis=1)
    levels, step = in_levels(left)
    tensors: dict[str, NDArray[Any]] = dict(own)
    if tower.calibration.contrast > 0:
        tensors["rivals"] = _rivals(z, basis, tower).reshape(shape)
    tensors["embedding"] = z.reshape(*shape, -1)
    tensors["residual"] = levels.reshape(shape)
    tensors["saliency"] = np.rint(compute_saliency(picture.rgb, shape) * LEVELS).astype(np.uint8)
    if picture.valid is not None:
        tensors["valid"] = np.rint(resize_map(picture.valid, shape)).astype(np.uint8)
    tensors["thumbnail"] = np.frombuffer(thumbnail(picture.rgb), np.uint8)
    vectors = farthest(space.coordinates(x, metric), identity.vectors).astype(np.float16)
    flags = FLAT * flat + ALPHA * (picture.valid is not None)
    return Record(identity.key(image), image, dense.grid, flags, step, tensors, vectors)


def _own(x: Floats, rank: int, metric: Metric) -> tuple[Basis, NDArray[np.int8], Floats]:
    few = x[:: max(1, min(EVERY, len(x) // ENOUGH))]
    mean = few.mean(0)
    centred = few - mean
    first = leading(metric.root @ (centred.T @ centred / np.float32(len(few))) @ metric.root, rank)
    z = (x - mean) @ (metric.root @ first)
    rows = np.ascontiguousarray((metric.inverse_root @ first).T.astype(np.float16))
    own = Space(Basis(mean, rows), np.maximum(np.abs(z).max(0), SMALLEST) / np.float32(STEPS))
    return own.in_steps, whole_steps(z, own.steps), own.steps


def leading(covariance: Floats, rank: int) -> Floats:
    """The first `rank` eigenvectors of a symmetric matrix [D, D], by subspace iteration: float32 [D, rank].

    basis.compress takes all of them exactly, which is most of the time that an image costs beside the tower.
    """
    width = len(covariance)
    block = np.random.default_rng(0).standard_normal((width, min(width, rank + SPARE)), np.float32)
    for _ in range(TURNS):
        block = np.linalg.qr(covariance @ block)[0]
    _, turned = np.linalg.eigh(block.T @ covariance @ block)
    first = np.asarray(block @ turned[:, ::-1][:, :rank], np.float32)
    largest = first[np.abs(first).argmax(0), np.arange(rank)]
    return first * np.where(largest < 0, np.float32(-1), np.float32(1))  # signs fixed: same image, same bytes


def whole_steps(z: Floats, steps: Floats) -> NDArray[np.int8]:
    """Coordinates [n, r] in steps [r]; those beyond the last step are cut."""
    return np.clip(np.rint(z / steps), -STEPS, STEPS).astype(np.int8)


def in_levels(lengths: Floats) -> tuple[NDArray[np.uint8], float]:
    """Lengths as levels, rounded up, and the step of a level, so that the longest has the last one."""
    step = max(float(lengths.max()), SMALLEST) / LEVELS
    return np.minimum(np.ceil(lengths / step), LEVELS).astype(np.uint8), step


def lengths_of(levels: NDArray[np.uint8], step: float) -> NDArray[np.float16]:
    """What `in_levels` made levels of, nowhere shorter."""
    return rounded_up(levels * np.float32(step))


def _rivals(z: NDArray[np.int8], basis: Basis, tower: Encoder) -> NDArray[np.float16]:
    """log(mean over the bank of exp(t s)) / t at each cell: of many nouns, made once instead of at each search."""
    from foveate.relevance.negatives import negatives_of

    t, bank = tower.calibration.temperature, negatives_of(tower).vectors
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
