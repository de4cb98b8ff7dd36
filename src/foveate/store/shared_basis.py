"""A fitted basis with what it came from, and its file: safetensors with a JSON header, never pickle.

The file holds more directions than the basis has rank, so that `foveate basis check` can say what another rank would
keep: directions are nested, the first r of them are the best basis of rank r.

    mean      float32 [D]
    rows      float16 [rank, D]    the basis: what a store needs
    beyond    float16 [n, D]       the directions after those
    values    float64 [D]          share of each direction in the squared scores
    inward    float32 [D, rank + n]  z = (x - mean) inward
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core import files as output
from foveate.core.errors import BasisFileError, OptionError
from foveate.core.readonly import Frozen, ReadOnly
from foveate.texture.basis import Basis, Metric, principal
from foveate.texture.covariance import Moments
from foveate.texture.texture import EncoderStamp

Floats = NDArray[np.float32]
FORMAT, VERSION = "foveate-basis", 1
KEPT = 128  # directions in a file
FILE = "basis.safetensors"  # its name in a repository of the Hub


@dataclass(frozen=True, eq=False)
class FittedBasis(Frozen):
    """A basis for all images of an encoder.

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
        wanted = self.rank if rank is None else rank
        if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= len(self.directions):
            raise OptionError(
                f"rank={wanted!r}", expected=f"1 to {len(self.directions)}", fix="leave it out for the basis's own"
            )
        return Basis(self.mean, np.ascontiguousarray(self.directions[:wanted]))

    def __repr__(self) -> str:
        images = self.made.get("images")
        return f"FittedBasis(rank {self.rank} of {len(self.mean)}, {self.encoder.name}, {images} images)"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, whole or not at all. Raises OutputError, also where another kind of file is in the way."""
        from safetensors.numpy import save

        refuse_to_replace(Path(path))
        header = {
            "format": FORMAT,
            "version": VERSION,
            "rank": self.rank,
            "encoder": {"name": self.encoder.name, "revision": self.encoder.revision, "width": self.encoder.width},
            "made": dict(self.made),
        }
        tensors: dict[str, NDArray[Any]] = {
            "mean": self.mean,
            "rows": np.ascontiguousarray(self.directions[: self.rank]),
            "beyond": np.ascontiguousarray(self.directions[self.rank :]),
            "values": self.values,
            "inward": np.ascontiguousarray(self.inward),
        }
        output.write_whole(Path(path), save(tensors, metadata={FORMAT: json.dumps(header, sort_keys=True)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FittedBasis:
        """Read a file. Raises BasisFileError for anything that `save` would not have written."""
        from safetensors import safe_open

        name = Path(path).name
        try:
            with safe_open(path, framework="np") as content:
                header = json.loads((content.metadata() or {})[FORMAT])
                tensors = {key: content.get_tensor(key) for key in content.keys()}  # noqa: SIM118 - not a dict
            version = header["version"]
            if header["format"] != FORMAT or not _whole(version) or version < 1:
                raise ValueError(f"format {header['format']!r}, version {version!r}")
            if version > VERSION:
                raise BasisFileError(
                    f"'{name}' is of version {version}",
                    expected=f"version {VERSION} or older",
                    fix="update foveate",
                )
            for key, axes in (("mean", 1), ("rows", 2), ("beyond", 2), ("values", 1), ("inward", 2)):
                if tensors[key].ndim != axes:
                    raise ValueError(f"{key} with {tensors[key].ndim} axes")
            rank, made = header["rank"], header["made"]
            if not _whole(rank) or len(tensors["rows"]) != rank or not isinstance(made, dict):
                raise ValueError(f"rank {rank!r} and {len(tensors['rows'])} rows")
            stamp = EncoderStamp(**header["encoder"])
            if not (isinstance(stamp.name, str) and isinstance(stamp.revision, str) and _whole(stamp.width)):
                raise ValueError(f"encoder {header['encoder']}")
            directions = np.concatenate([tensors["rows"], tensors["beyond"]])
            found = cls(
                tensors["mean"], directions, tensors["inward"], tensors["values"], rank, stamp, ReadOnly(made)
            )  # fmt: skip
            _check(found, name)
        except BasisFileError:
            raise
        except Exception as cause:
            raise BasisFileError(
                f"'{path}' is no basis ({type(cause).__name__}: {cause})",
                expected="a file that 'foveate basis fit' wrote",
                fix="check the path, or fit it again",
            ) from cause
        return found

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
        """From a file, a folder with basis.safetensors in it, or a repository of the Hub.

        Raises BasisFileError for what is no basis, and for what the Hub does not give.
        """
        path = Path(name)
        if path.is_file():
            return cls.load(path)
        if path.is_dir():
            return cls.load(path / FILE)
        hub = _hub()
        try:
            file = hub.hf_hub_download(str(name), FILE, revision=revision, token=token)
        except Exception as cause:  # no network, no such repository, not a name at all: there is a class for each
            reason = str(cause).strip().split("\n")[0][:200]
            raise BasisFileError(
                f"'{name}' is no file or folder here, and cannot be had from the Hub ({reason})",
                expected=f"a basis, a folder with {FILE} in it, or owner/name on the Hub and a network",
                fix="check the name; HF_HUB_OFFLINE=1 forbids the network",
            ) from cause
        return cls.load(file)


def fitted(
    moments: Moments, metric: Metric | None, rank: int, encoder: EncoderStamp, made: Mapping[str, Any]
) -> FittedBasis:
    """The best basis for features with these moments. Raises OptionError for too few of them, or no such rank."""
    check_rank(rank, moments.width)
    if moments.count <= rank:
        raise OptionError(
            f"{moments.count} features for a basis of rank {rank}", expected="more of them", fix="add images"
        )
    found = principal(moments.covariance, metric)
    kept = max(rank, min(KEPT, moments.width))
    return FittedBasis(
        mean=moments.mean.astype(np.float32),
        directions=found.outward(kept),
        inward=np.ascontiguousarray(found.inward(kept)),
        values=found.values,
        rank=rank,
        encoder=encoder,
        made=ReadOnly({**made, "samples": moments.count}),
    )


def check_rank(rank: int, width: int) -> None:
    """Raises OptionError for a rank that features of this width cannot have."""
    if not _whole(rank) or not 1 <= rank <= width:
        raise OptionError(f"rank={rank!r}", expected=f"1 to {width}", fix="16 is usual")


def refuse_to_replace(path: Path) -> None:
    """Raises OutputError where something other than a basis is at the path. An empty file may be replaced."""
    output.check_target(path, "basis", lambda file: output.carries(file, FORMAT))


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(found: FittedBasis, name: str) -> None:
    width, n = len(found.mean), len(found.directions)
    shapes = {
        "mean float32 [D]": found.mean.shape == (width,) and found.mean.dtype == np.float32,
        "rows and beyond float16 [n, D]": found.directions.shape == (n, width) and found.directions.dtype == np.float16,
        "inward float32 [D, n]": found.inward.shape == (width, n) and found.inward.dtype == np.float32,
        "values float64 [D]": found.values.shape == (width,) and found.values.dtype == np.float64,
        "the encoder's width": found.encoder.width == width,
        "a rank from 1 to n": 1 <= found.rank <= n,
        "values that descend to 0 or above": bool((np.diff(found.values) <= 0).all() and (found.values >= 0).all()),
        "finite numbers": all(np.isfinite(a).all() for a in (found.mean, found.directions, found.inward, found.values)),
    }
    wrong = [what for what, right in shapes.items() if not right]
    if wrong:
        raise BasisFileError(
            f"'{name}' lacks {', '.join(wrong)}", expected="a file that was not changed", fix="fit it again"
        )


def _hub() -> Any:
    from foveate.core.errors import MissingExtraError

    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError(
            "the Hub, without huggingface-hub", expected="the package", fix="pip install huggingface-hub"
        ) from None
    return huggingface_hub
