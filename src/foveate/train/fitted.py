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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.basis import Basis, Metric, principal
from foveate.errors import BasisFileError, OptionError
from foveate.output import write_whole
from foveate.readonly import Frozen, ReadOnly
from foveate.texture import EncoderStamp
from foveate.train.moments import Moments

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
        """Write the file, whole or not at all. Raises OutputError."""
        from safetensors.numpy import save

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
        write_whole(Path(path), save(tensors, metadata={FORMAT: json.dumps(header, sort_keys=True)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FittedBasis:
        """Read a file. Raises BasisFileError for anything that `save` would not have written."""
        from safetensors import safe_open

        name = Path(path).name
        try:
            with safe_open(path, framework="np") as content:
                header = json.loads((content.metadata() or {})[FORMAT])
                tensors = {key: content.get_tensor(key) for key in content.keys()}  # noqa: SIM118 - not a dict
            if header["version"] > VERSION:
                raise BasisFileError(
                    f"'{name}' is of version {header['version']}",
                    expected=f"version {VERSION} or older",
                    fix="update foveate",
                )
            directions = np.concatenate([tensors["rows"], tensors["beyond"]])
            stamp = EncoderStamp(**header["encoder"])
            found = cls(
                tensors["mean"], directions, tensors["inward"], tensors["values"], int(header["rank"]), stamp,
                ReadOnly(header["made"]),
            )  # fmt: skip
        except BasisFileError:
            raise
        except Exception as cause:
            raise BasisFileError(
                f"'{path}' is no basis ({type(cause).__name__}: {cause})",
                expected="a file that 'foveate basis fit' wrote",
                fix="check the path, or fit it again",
            ) from cause
        _check(found, name)
        return found

    def push_to_hub(self, repository: str, **how: Any) -> str:
        """Upload to the Hub (needs huggingface-hub, and to be logged in); returns the address."""
        hub = _hub()
        import tempfile

        hub.create_repo(repository, exist_ok=True, **{k: v for k, v in how.items() if k in ("private", "token")})
        with tempfile.TemporaryDirectory() as folder:
            self.save(Path(folder) / FILE)
            return str(hub.upload_folder(repo_id=repository, folder_path=folder, token=how.get("token")))

    @classmethod
    def from_pretrained(cls, name: str, *, revision: str | None = None) -> FittedBasis:
        """From a file, a folder with basis.safetensors in it, or a repository of the Hub."""
        path = Path(name)
        if path.is_file():
            return cls.load(path)
        if path.is_dir():
            return cls.load(path / FILE)
        return cls.load(_hub().hf_hub_download(name, FILE, revision=revision))


def fitted(
    moments: Moments, metric: Metric | None, rank: int, encoder: EncoderStamp, made: Mapping[str, Any]
) -> FittedBasis:
    """The best basis for features with these moments. Raises OptionError for too few of them, or no such rank."""
    if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank <= moments.width:
        raise OptionError(f"rank={rank!r}", expected=f"1 to {moments.width}", fix="16 is usual")
    if moments.count <= rank:
        raise OptionError(
            f"{moments.count} features for a basis of rank {rank}", expected="more of them", fix="add images"
        )
    found = principal(moments.covariance, metric)
    kept = max(rank, min(KEPT, moments.width))
    return FittedBasis(
        mean=moments.mean.astype(np.float32),
        directions=np.ascontiguousarray(found.outward[:kept].astype(np.float16)),
        inward=np.ascontiguousarray(found.inward[:, :kept]),
        values=found.values,
        rank=rank,
        encoder=encoder,
        made=ReadOnly({**made, "samples": moments.count}),
    )


def _check(found: FittedBasis, name: str) -> None:
    width, n = len(found.mean), len(found.directions)
    shapes = {
        "mean float32 [D]": found.mean.shape == (width,) and found.mean.dtype == np.float32,
        "rows and beyond float16 [n, D]": found.directions.shape == (n, width) and found.directions.dtype == np.float16,
        "inward float32 [D, n]": found.inward.shape == (width, n) and found.inward.dtype == np.float32,
        "values float64 [D]": found.values.shape == (width,) and found.values.dtype == np.float64,
        "the encoder's width": found.encoder.width == width,
        "a rank from 1 to n": 1 <= found.rank <= n,
        "finite numbers": all(np.isfinite(a).all() for a in (found.mean, found.directions, found.inward, found.values)),
    }
    wrong = [what for what, right in shapes.items() if not right]
    if wrong:
        raise BasisFileError(
            f"'{name}' lacks {', '.join(wrong)}", expected="a file that was not changed", fix="fit it again"
        )


def _hub() -> Any:
    from foveate.errors import MissingExtraError

    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError(
            "the Hub, without huggingface-hub", expected="the package", fix="pip install huggingface-hub"
        ) from None
    return huggingface_hub
