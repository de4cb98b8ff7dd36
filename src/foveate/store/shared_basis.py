"""Fits one basis for many images from accumulated moments of their features, and saves it.

gather       a sample of the images -> Moments of their features, evenly from all
fit          the best basis for moments, in the metric of the queries
FittedBasis  that basis with what it came from, and its file (docs/basis.md)
fit_space    what a store does by itself: a basis for the image-level vectors, from a sample of its images
has_planes   whether features are planes of evidence: then the planes are the directions, and nothing is fitted
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from foveate.core.checks import check_array, check_int, check_type
from foveate.core.errors import BasisFileError, FoveateError, ImageError, OptionError, StoreError
from foveate.core.files import carries, check_target, write_whole
from foveate.core.gone import with_gone
from foveate.core.readonly import Frozen, ReadOnly
from foveate.core.threads import map_in_order
from foveate.encoders.protocol import LEAST_SIDE, Encoder
from foveate.language.negatives import bank_of, query_metric_of
from foveate.store.record import SMALLEST, STEPS
from foveate.store.schema import MOST_PLANES, Space
from foveate.store.sources import Source, decode_for, encode_picture, explain, find_sources, read
from foveate.texture.basis import Basis, Metric, Moments, inward, principal
from foveate.texture.texture import EncoderStamp

Floats = NDArray[np.float32]
FORMAT, VERSION = "foveate-basis", 1
KEPT = 128  # directions in a file
LEAST, SHARE, MOST = 64, 10, 512  # images of a store's own sample: one in ten, within these
CELLS = 256  # of each of them, for the basis
FEW = 128  # of those, for the size of its steps: kept until it is known
SPACE_RANK, SHARED_RANK = 96, 64  # of image-level vectors; of cells where all share a basis


# --- a basis and its file ---------------------------------------------------------------------------------------------


@with_gone
@dataclass(frozen=True, eq=False)
class FittedBasis(Frozen):
    """A basis for all images of an encoder. The first r directions are the best basis of rank r.

    Attributes:
        mean: float32 [D]. directions: outward, float16 [n, D], most important first. rank: of the basis, 1 to n.
        encoder: whose features it is for.
        made: how it was made: images, samples, which queries, ...; `shares`: what of the squared scores each of the
            directions explains; `kept`: those of the basis together, `largest`: the first alone.
    """

    mean: Floats
    directions: NDArray[np.float16]
    rank: int
    encoder: EncoderStamp
    made: Mapping[str, Any]

    def basis(self, rank: int | None = None) -> Basis:
        """The basis, of its own rank or another one up to the number of directions. Raises OptionError."""
        rank = check_int("rank", self.rank if rank is None else rank, 1, len(self.directions))
        return Basis(self.mean, np.ascontiguousarray(self.directions[:rank]))

    def __repr__(self) -> str:
        images = self.made.get("images")
        return f"FittedBasis(rank {self.rank} of {len(self.mean)}, {self.encoder.name}, {images} images)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all. Raises OutputError, also where another kind of file is in the way."""
        refuse_other_files(Path(path))
        about = {"format": FORMAT, "version": VERSION, "rank": self.rank}
        header = {**about, "encoder": asdict(self.encoder), "made": dict(self.made)}
        tensors = {"mean": self.mean, "rows": self.directions[: self.rank], "beyond": self.directions[self.rank :]}
        content = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        write_whole(Path(path), save(content, metadata={FORMAT: json.dumps(header, sort_keys=True)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FittedBasis:
        """Read a file. Raises BasisFileError for anything that `save` would not have written."""
        try:
            return _load(path)
        except BasisFileError:
            raise
        except Exception as cause:  # a hostile file fails in many ways
            reason = cause.received if isinstance(cause, FoveateError) else f"{type(cause).__name__}: {cause}"
            raise BasisFileError(
                f"'{path}' is no basis ({reason})",
                expected="a file that 'foveate basis fit' wrote",
                fix="check the path, or fit it again",
            ) from cause


def _load(path: str | os.PathLike[str]) -> FittedBasis:
    with safe_open(path, framework="np") as content:
        header = json.loads((content.metadata() or {})[FORMAT])
        tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - not a dict
    if header["format"] != FORMAT or check_int("version", header["version"]) > VERSION:
        raise BasisFileError(
            f"'{path}' is of version {header['version']}", expected=f"{VERSION} or older", fix="update foveate"
        )
    stamp = EncoderStamp(**header["encoder"])
    check_type("name", stamp.name, str)
    check_type("revision", stamp.revision, str)
    width = check_int("width", stamp.width)
    rank = check_int("rank", header["rank"], 1, width)
    rows = check_array("rows", tensors["rows"], (rank, width), dtype=np.float16)
    beyond = check_array("beyond", tensors["beyond"], (None, width), dtype=np.float16)
    mean = check_array("mean", tensors["mean"], (width,))
    made = ReadOnly(check_type("made", header["made"], dict))
    return FittedBasis(mean, np.concatenate([rows, beyond]), rank, stamp, made)


def fit(
    moments: Moments, metric: Metric | None, rank: int, encoder: EncoderStamp, made: Mapping[str, Any]
) -> FittedBasis:
    """The best basis for features with these moments. Raises OptionError for too few of them, or no such rank."""
    check_int("rank", rank, 1, moments.width, fix="16 is usual")
    if moments.count <= rank:
        raise OptionError(
            f"{moments.count} features for a basis of rank {rank}", expected="more of them", fix="add images"
        )
    found = principal(moments.covariance, metric)
    shares = found.values / max(float(found.values.sum()), 1e-30)
    count = max(rank, min(KEPT, moments.width))
    told = {"kept": round(float(shares[:rank].sum()), 4), "largest": round(float(shares[0]), 4)}
    facts = ReadOnly({**made, **told, "shares": shares[:count].round(5).tolist(), "samples": moments.count})
    directions = found.outward(count)
    return FittedBasis(moments.mean.astype(np.float32), directions, rank, encoder, facts)


def refuse_other_files(path: Path) -> None:
    """Raises OutputError where something other than a basis or an empty file is at the path."""
    check_target(path, "basis", lambda file: carries(file, FORMAT))


# --- gathering --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Gathered(Frozen):
    """Moments of features of images; `few` of each image's, float32 [n, D]; (path, why) of images that are bad."""

    moments: Moments
    few: Floats
    bad: tuple[tuple[str, str], ...]


def images_in(paths: Iterable[str | os.PathLike[str]]) -> list[Source]:
    """Image files of folders (all the way down) and files, each once, by name. Raises ImageNotFoundError if none."""
    found = find_sources(paths)
    missing = [Source(os.path.abspath(path), path) for path, _ in found.unreadable]
    return sorted([*found.files, *missing], key=lambda source: os.fsencode(source.name))


def gather(
    images: Sequence[Source],
    encoder: Encoder,
    each: int,
    *,
    long_side: int | None = None,
    halves: bool = False,
    few: int = 0,
    workers: int = 1,
    progress: Callable[[int], None] = lambda done: None,
) -> Gathered:
    """Moments of about `each` features of every image, evenly from its cells; `halves`: half of them from half size.

    Images that cannot be read are listed. The sums do not depend on `workers`. Raises what the encoder raises.
    """

    def look(source: Source) -> list[Floats] | str:
        try:
            picture, size = decode_for(encoder, read(source)[0], long_side)
        except ImageError as error:
            return explain(error)
        sees = min(max(picture.size), long_side or getattr(encoder, "long_side", None) or max(picture.size))
        sides, found = [long_side, *([max(LEAST_SIDE, sees // 2)] if halves else [])], list[Floats]()
        for side in sides:
            with contextlib.suppress(*([OptionError] if found else [])):  # an encoder that refuses another size
                dense = encode_picture(encoder, picture, size, side)
                x = dense.full(encoder.width).reshape(dense.grid.count, -1)
                found.append(x[_evenly(len(x), -(-each // len(sides)))].astype(np.float32))
        return found

    moments, kept, bad = Moments.nothing(encoder.width), [np.zeros((0, encoder.width), np.float32)], []
    results = map_in_order(look, images, workers, many=len(images))
    for done, (source, found) in enumerate(zip(images, results, strict=True), 1):
        if isinstance(found, str):
            bad.append((source.path, found))
        else:
            for x in found:
                moments = moments.with_features(x)
            if few:
                kept.append(found[0][_evenly(len(found[0]), few)])
        progress(done)
    return Gathered(moments, np.concatenate(kept), tuple(bad))


def _evenly(count: int, most: int) -> list[int]:
    """At most so many places in a list of `count`, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()


# --- a store's own ----------------------------------------------------------------------------------------------------


def sample_of(count: int) -> list[int]:
    """Places of the sample in a list of so many images, evenly spread: one in ten, at least 64, at most 512."""
    return _evenly(count, min(MOST, max(LEAST, count // SHARE)))


def has_planes(sources: Sequence[Source], encoder: Encoder, long_side: int | None) -> bool:
    """Whether an encoder has names, and neither their text vectors nor features of the first image go below 0."""
    if not getattr(encoder, "names", ()) or encoder.width > MOST_PLANES or (bank_of(encoder) < 0).any():
        return False
    for place in sample_of(len(sources)):
        with contextlib.suppress(ImageError):
            picture, size = decode_for(encoder, read(sources[place])[0], long_side)
            return bool((encode_picture(encoder, picture, size, long_side).features >= 0).all())
    return False


def fit_space(
    sources: Sequence[Source],
    encoder: Encoder,
    long_side: int | None,
    rank: int,
    given: Basis | None = None,
    workers: int = 1,
) -> Space:
    """A basis from a sample of the images, or the steps for a `given` one. Raises StoreError if none can be read."""
    metric = query_metric_of(encoder)
    some = [sources[place] for place in sample_of(len(sources))]
    found = gather(some, encoder, CELLS, long_side=long_side, few=FEW, workers=workers)
    if not len(found.few):
        raise StoreError(
            f"{len(sources)} files, none of a sample of which could be read as an image",
            expected="at least one image to fit the store's basis to",
            fix=f"check the files: foveate look '{some[0].path}' \"a dog\" says what is wrong with one",
        )
    basis = given
    if basis is None:
        outward = principal(found.moments.covariance, metric).outward(min(rank, encoder.width))
        basis = Basis(found.moments.mean.astype(np.float32), outward)
    z = (found.few - basis.mean) @ inward(basis, metric)
    return Space(basis, (np.maximum(np.abs(z).max(0), SMALLEST) / STEPS).astype(np.float32))
