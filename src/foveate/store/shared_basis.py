"""Fits one basis for many images from accumulated moments of their features, and saves it.

    gather       streams images into Moments: evenly sampled, in batches on any engine, resumable
    fit          the best basis for moments, in the metric of the queries
    FittedBasis  that basis with what it came from, and its file (docs/basis.md)
    fit_space    what a store does by itself: a basis for the image-level vectors, from a sample of its images
    plane_space  where features are planes of evidence (`has_planes`): the planes are the directions

The result depends on the seed and names in the folder, not on interruptions or engines (but for nano's last bit).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save

from foveate.core.checks import check_array, check_int, check_type
from foveate.core.devices import first_line
from foveate.core.errors import (
    BasisFileError,
    EngineError,
    FoveateError,
    ImageError,
    ImageNotFoundError,
    MissingExtraError,
    OptionError,
    StoreError,
)
from foveate.core.files import carries, check_target, write_whole
from foveate.core.image import load_image
from foveate.core.readonly import Frozen, ReadOnly
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import LEAST_SIDE, PROBE, Encoder, check_features
from foveate.language.negatives import bank_of, query_metric_of
from foveate.store.engine import Engine, Local, column
from foveate.store.record import SMALLEST, STEPS
from foveate.store.schema import MOST_PLANES, Space
from foveate.store.sources import (
    SUFFIXES,
    Source,
    encode_bytes,
    find_sources,
    from_column,
    read,
    refuse_hidden,
    to_column,
)
from foveate.texture.basis import Basis, Metric, Moments, inward, principal
from foveate.texture.texture import EncoderStamp

Floats = NDArray[np.float32]
FORMAT, VERSION = "foveate-basis", 1
FILE = "basis.safetensors"  # its name in a repository of the Hub
KEPT = 128  # directions in a file
MOMENTS = "foveate-moments"
EVERY = 200  # images between two checkpoints
BATCH = 8  # images of one sum; the order of a sum of floats is part of the result
LEAST, SHARE, MOST = 64, 10, 512  # images of a store's own sample: one in ten, within these
CELLS = 256  # of each of them, for the basis
FEW = 128  # of those, for the size of its steps: kept until it is known
SPACE_RANK, SHARED_RANK = 96, 64  # of image-level vectors; of cells where all share a basis


# --- a basis and its file ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FittedBasis(Frozen):
    """A basis for all images of an encoder. The first r directions are the best basis of rank r.

    Attributes:
        mean: float32 [D]. directions: outward, float16 [n, D], most important first. inward: float32 [D, n].
        values: of all D directions, float64, descending.
        rank: of the basis, 1 to n.
        encoder: whose features it is for.
        made: how it was made: images, samples, seed, which queries, ...; anything that JSON can say.
    """

    mean: Floats
    directions: NDArray[np.float16]
    inward: Floats
    values: NDArray[np.float64]
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
        encoder = {"name": self.encoder.name, "revision": self.encoder.revision, "width": self.encoder.width}
        header = {"format": FORMAT, "version": VERSION, "rank": self.rank, "encoder": encoder, "made": dict(self.made)}
        tensors = {
            "mean": self.mean,
            "rows": self.directions[: self.rank],
            "beyond": self.directions[self.rank :],
            "values": self.values,
            "inward": self.inward,
        }
        content = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
        write_whole(Path(path), save(content, metadata={FORMAT: json.dumps(header, sort_keys=True)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FittedBasis:
        """Read a file. Raises BasisFileError for anything that `save` would not have written."""
        with _refusing(path, "basis", "a file that 'foveate basis fit' wrote", "check the path, or fit it again"):
            header, tensors = _content(path, FORMAT)
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
            inside = check_array("inward", tensors["inward"], (width, rank + len(beyond)))
            values = check_array("values", tensors["values"], (width,), dtype=np.float64, low=0)
            if (np.diff(values) > 0).any():
                raise ValueError("values that ascend")
            made = ReadOnly(check_type("made", header["made"], dict))
            return cls(mean, np.concatenate([rows, beyond]), inside, values, rank, stamp, made)

    def push_to_hub(self, repository: str, *, private: bool = False, token: str | None = None) -> str:
        """Upload to the Hub, as "owner/name" (needs huggingface-hub, and a token or a login); returns the address."""
        api = _hub().HfApi(token=token)
        with tempfile.TemporaryDirectory() as folder:
            self.save(Path(folder) / FILE)
            api.create_repo(repository, private=private, exist_ok=True)
            return str(api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Basis"))

    @classmethod
    def from_pretrained(
        cls, name: str | os.PathLike[str], *, revision: str | None = None, token: str | None = None
    ) -> FittedBasis:
        """From a file, a folder with basis.safetensors in it, or a repository of the Hub. Raises BasisFileError."""
        path = Path(name)
        if path.exists():
            return cls.load(path / FILE if path.is_dir() else path)
        try:
            return cls.load(_hub().hf_hub_download(str(name), FILE, revision=revision, token=token))
        except (BasisFileError, MissingExtraError):
            raise
        except Exception as cause:  # a class for each of: no network, no such repository, not a name
            reason = first_line(cause, 200)
            raise BasisFileError(
                f"'{name}' is no file or folder here, and cannot be had from the Hub ({reason})",
                expected=f"a basis, a folder with {FILE} in it, or owner/name on the Hub and a network",
                fix="check the name; HF_HUB_OFFLINE=1 forbids the network",
            ) from cause


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
    kept = max(rank, min(KEPT, moments.width))
    mean, inside = moments.mean.astype(np.float32), np.ascontiguousarray(found.inward(kept))
    facts = ReadOnly({**made, "samples": moments.count})
    return FittedBasis(mean, found.outward(kept), inside, found.values, rank, encoder, facts)


def refuse_other_files(path: Path) -> None:
    """Raises OutputError where something other than a basis or an empty file is at the path."""
    check_target(path, "basis", lambda file: carries(file, FORMAT))


@contextlib.contextmanager
def _refusing(path: str | os.PathLike[str], what: str, expected: str, fix: str) -> Iterator[None]:
    """Whatever a hostile file raises is a BasisFileError."""
    try:
        yield
    except BasisFileError:
        raise
    except Exception as cause:
        reason = cause.received if isinstance(cause, FoveateError) else f"{type(cause).__name__}: {cause}"
        raise BasisFileError(f"'{path}' is no {what} ({reason})", expected=expected, fix=fix) from cause


def _content(path: str | os.PathLike[str], key: str) -> tuple[Any, dict[str, NDArray[Any]]]:
    with safe_open(path, framework="np") as content:
        header = json.loads((content.metadata() or {})[key])
        return header, {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 - not a dict


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError(
            "the Hub, without huggingface-hub", expected="the package", fix="pip install huggingface-hub"
        ) from None
    return huggingface_hub


# --- gathering --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Gathered(Frozen):
    """Moments of the images so far. A run goes on from a checkpoint with the same `what`.

    `done` counts images looked at, bad ones included; `bad` has (path, why) of those.
    """

    moments: Moments
    done: int
    bad: tuple[tuple[str, str], ...]
    what: ReadOnly[str, Any]

    def save(self, path: Path) -> None:
        header = {"done": self.done, "bad": list(self.bad), "what": dict(self.what), "count": self.moments.count}
        tensors = {"first": self.moments.first, "second": self.moments.second}
        write_whole(path, save(tensors, metadata={MOMENTS: json.dumps(header, sort_keys=True)}))

    @classmethod
    def load(cls, path: Path) -> Gathered:
        with _refusing(path, "file of moments", "what 'foveate basis fit' left behind", "remove it, and start again"):
            header, tensors = _content(path, MOMENTS)
            first = check_array("first", tensors["first"], (None,), dtype=np.float64)
            second = check_array("second", tensors["second"], (len(first), len(first)), dtype=np.float64)
            bad = tuple((str(name), str(why)) for name, why in header["bad"])
            what = ReadOnly[str, Any](header["what"])
            if not isinstance(what["encoder"], str):
                raise ValueError("no encoder")
            count, done = (check_int(name, header[name], 0) for name in ("count", "done"))
            return cls(Moments(count, first, second), done, bad, what)


def images_in(sources: Iterable[str | os.PathLike[str]]) -> list[Source]:
    """Image files of folders (all the way down) and files, each once, by name. Raises ImageNotFoundError if none."""
    given = list(sources)
    found = find_sources(given)
    missing = [Source(os.path.abspath(path), path) for path, _ in found.unreadable]
    if not found.files:
        raise ImageNotFoundError(
            f"no images in {', '.join(repr(str(source)) for source in given)}",
            expected="files that end in " + ", ".join(sorted(SUFFIXES)),
            fix="check the path",
        )
    return sorted([*found.files, *missing], key=lambda source: os.fsencode(source.name))


def gather(
    images: Sequence[Source],
    encoder: Encoder,
    samples: int,
    *,
    seed: int = 0,
    checkpoint: Path | None = None,
    worker_encoder: str | None = None,
    engine: Engine | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Gathered:
    """Moments of about `samples` features, evenly from all images.

    Args:
        checkpoint: file for the moments so far, written every 200 images; a run that finds it goes on there.
        engine: what makes the sums instead of this process.
        worker_encoder: the name by which its workers load the encoder.

    Raises:
        OptionError: no images. BasisFileError: a checkpoint of another run.
        EncoderOutputError, and what else the encoder raises; images that cannot be read are listed instead.
    """
    if not images:
        raise OptionError("no images", expected="at least one", fix="images_in(folders) finds them")
    names = hashlib.sha256(to_column("\0".join(image.name for image in images))).hexdigest()[:16]
    what: dict[str, Any] = {
        "encoder": f"{encoder.name} {encoder.revision}", "images": len(images), "names": names,
        "samples": samples, "seed": seed,
    }  # fmt: skip
    state = Gathered(Moments.nothing(encoder.width), 0, (), ReadOnly(what))
    if checkpoint is not None and checkpoint.exists():
        state = Gathered.load(checkpoint)
        if dict(state.what) != what:
            came = f"'{checkpoint}' is from another run ({dict(state.what)})"
            raise BasisFileError(came, expected=f"{what}", fix="remove it, or choose another output")
    todo = images[state.done :]
    columns: dict[str, Sequence[Any]] = {
        "number": range(len(todo)),
        "path": [to_column(image.path) for image in todo],
        "name": [to_column(image.name) for image in todo],
    }
    work = SumBatch(worker_encoder or encoder, max(1, -(-samples // len(images))), seed, encoder.revision)
    begun = saved = state.done
    for sums in (engine or Local()).map(work, columns, BATCH):
        for first, count, *moments, bad in zip(*(sums[name] for name in SumBatch.COLUMNS), strict=True):
            if begun + first != state.done:  # else a run that goes on would take images twice
                raise EngineError(f"row {first}", expected=f"{state.done - begun}, in order", fix="report this")
            wrong = [(todo[first + place], str(why), missing) for place, why, missing in json.loads(bad)]
            for source, why, missing in wrong:
                if missing:
                    refuse_hidden(source, why)
            x, xx = map(np.frombuffer, moments)
            found, done = Moments(int(count), x, xx.reshape(len(x), -1)), min(state.done + BATCH, len(images))
            listed = (*state.bad, *((source.path, why) for source, why, _ in wrong))
            state = replace(state, moments=state.moments + found, bad=listed, done=done)
            if checkpoint is not None and (done - saved >= EVERY or done == len(images)):
                state.save(checkpoint)
                saved = done
            progress(done)
    return state


@dataclass(frozen=True)
class SumBatch:
    """Columns "number", "path" and "name" of images -> one row of the moments of them all.

    "number" of the first, "count", "first", "second" (bytes), "bad" (JSON: place in the batch, why, whether missing).
    `each`: features of an image. `seed`: of which cells are taken. `revision`: of the encoder.
    """

    encoder: str | Encoder
    each: int
    seed: int
    revision: str

    COLUMNS = ("number", "count", "first", "second", "bad")

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        encoder = resolve_encoder(self.encoder)
        if encoder.revision != self.revision:
            raise OptionError(
                f"encoder '{encoder.name}', revision {encoder.revision}",
                expected=f"revision {self.revision}",
                fix="the same files of the encoder on all machines",
            )
        moments, pixels = Moments.nothing(encoder.width), _pixels_a_cell(encoder)
        bad: list[tuple[int, str, bool]] = []
        for place, (path, name) in enumerate(zip(batch["path"], batch["name"], strict=True)):
            try:
                rgb = load_image(from_column(path)).rgb
            except ImageError as error:
                bad.append((place, error.received, isinstance(error, ImageNotFoundError)))
            else:
                features = _draw(rgb, from_column(name), encoder, self.each, self.seed, pixels)
                moments = moments.with_features(features)
        row = (batch["number"][0], moments.count, moments.first.tobytes(), moments.second.tobytes(), json.dumps(bad))
        return {name: column([value]) for name, value in zip(self.COLUMNS, row, strict=True)}


def _draw(
    rgb: NDArray[np.uint8], name: str, encoder: Encoder, count: int, seed: int, pixels: float | None
) -> NDArray[np.float32]:
    """About `count` features [n, D] of an image, half of them from half the size, where the encoder takes it."""
    digest = hashlib.sha256(to_column(name)).digest()
    draw = np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
    usual = encoder.encode_image(rgb)
    size = (rgb.shape[0], rgb.shape[1])
    check_features(encoder, usual, size)
    looks = [usual.full(encoder.width)]
    if pixels is not None:
        side = max(LEAST_SIDE, round(max(usual.grid.shape) * pixels / 2))
        with contextlib.suppress(OptionError):  # nor has one that refuses this size
            half = encoder.encode_image(rgb, long_side=side)
            check_features(encoder, half, size)
            looks.append(half.full(encoder.width))
    out = []
    for features in looks:
        flat = features.reshape(-1, features.shape[-1])
        quota = min(-(-count // len(looks)), len(flat))
        out.append(flat[np.sort(draw.choice(len(flat), quota, replace=False))])
    return np.concatenate(out).astype(np.float32)


def _pixels_a_cell(encoder: Encoder) -> float | None:
    """Pixels a cell, found with a small image, as an encoder does not tell; None has one size."""
    try:
        return PROBE / encoder.encode_image(np.zeros((PROBE, PROBE, 3), np.uint8), long_side=PROBE).grid.w
    except OptionError:
        return None


# --- a store's own ----------------------------------------------------------------------------------------------------


def sample_of(count: int) -> list[int]:
    """Places of the sample in a list of so many images, evenly spread: one in ten, at least 64, at most 512."""
    size = min(count, MOST, max(LEAST, count // SHARE))
    return np.unique(np.linspace(0, count - 1, size).round().astype(int)).tolist()


def has_planes(sources: Sequence[Source], encoder: Encoder, long_side: int | None) -> bool:
    """Whether an encoder has names, and neither their text vectors nor features of the first image go below 0."""
    if not getattr(encoder, "names", ()) or encoder.width > MOST_PLANES or (bank_of(encoder) < 0).any():
        return False
    for place in sample_of(len(sources)):
        with contextlib.suppress(ImageError):
            _, dense = encode_bytes(encoder, read(sources[place]).content, long_side)
            return bool((dense.features >= 0).all())
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

    def look(place: int) -> tuple[Moments, Floats] | None:
        try:
            _, dense = encode_bytes(encoder, read(sources[place]).content, long_side)
        except ImageError:
            return None
        x = dense.full(encoder.width).reshape(dense.grid.count, -1)
        x = x[:: max(1, len(x) // CELLS)].astype(np.float32)
        return Moments.nothing(encoder.width).with_features(x), x[:: max(1, len(x) // FEW)]

    moments, few = Moments.nothing(encoder.width), []
    with ThreadPoolExecutor(workers, "foveate-fit") as pool:
        for found in pool.map(look, sample_of(len(sources))):
            if found is not None:
                moments = moments + found[0]
                few.append(found[1])
    if not few:
        raise StoreError(
            f"{len(sources)} files, none of a sample of which could be read as an image",
            expected="at least one image to fit the store's basis to",
            fix="check the files: foveate encode IMAGE says what is wrong with one",
        )
    basis = given
    if basis is None:
        outward = principal(moments.covariance, metric).outward(min(rank, encoder.width))
        basis = Basis(moments.mean.astype(np.float32), outward)
    z = (np.concatenate(few) - basis.mean) @ inward(basis, metric)
    return Space(basis, (np.maximum(np.abs(z).max(0), SMALLEST) / STEPS).astype(np.float32))
