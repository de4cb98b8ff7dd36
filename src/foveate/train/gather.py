"""Features of many images into moments: streaming, evenly sampled, resumable, the same whatever happens on the way.

Every image gives about the same number of features, half of them from the encoder's usual size and half from half
of it, at cells that are drawn by the seed and the image's path. So the result does not depend on interruptions, and
a part of the images (`part=(i, n)`) gives the same as it would within the whole. Every so many images, moments and
the list of bad images are written beside the result; a run that finds them goes on there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.encoders import Encoder
from foveate.encoders.contract import check_features
from foveate.errors import BasisFileError, FoveateError, ImageNotFoundError, OptionError
from foveate.image import load_image
from foveate.output import write_whole
from foveate.readonly import Frozen, ReadOnly
from foveate.refine import LEAST_SIDE, PROBE
from foveate.store.files import SUFFIXES, find
from foveate.train.moments import Moments

EVERY = 200  # images between two checkpoints
FORMAT = "foveate-moments"


@dataclass(frozen=True, eq=False)
class Gathered(Frozen):
    """Moments of the images so far.

    Attributes:
        moments: of their features.
        done: images looked at, bad ones included.
        bad: path and what was wrong, of images that could not be read.
        what: what was gathered: encoder, seed, samples, images; two runs with the same may go on from each other.
    """

    moments: Moments
    done: int
    bad: tuple[tuple[str, str], ...]
    what: ReadOnly[str, Any]

    def save(self, path: Path) -> None:
        from safetensors.numpy import save

        header = {"done": self.done, "bad": list(self.bad), "what": dict(self.what), "count": self.moments.count}
        tensors = {"first": self.moments.first, "second": self.moments.second}
        write_whole(path, save(tensors, metadata={FORMAT: json.dumps(header, sort_keys=True)}))

    @classmethod
    def load(cls, path: Path) -> Gathered:
        """Raises BasisFileError."""
        from safetensors import safe_open

        try:
            with safe_open(path, framework="np") as content:
                header = json.loads((content.metadata() or {})[FORMAT])
                first, second = content.get_tensor("first"), content.get_tensor("second")
            if first.dtype != np.float64 or second.shape != (len(first), len(first)) or not np.isfinite(second).all():
                raise ValueError("wrong numbers")
            moments = Moments(int(header["count"]), first, second)
            bad = tuple((str(name), str(why)) for name, why in header["bad"])
            return cls(moments, int(header["done"]), bad, ReadOnly(header["what"]))
        except Exception as cause:
            raise BasisFileError(
                f"'{path}' holds no moments ({type(cause).__name__}: {cause})",
                expected="what 'foveate basis fit' left behind",
                fix="remove it; gathering then begins anew",
            ) from cause


def images_in(sources: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Image files of folders (all the way down, each file once) and files themselves: absolute paths, sorted.

    Raises ImageNotFoundError where nothing is, and where no image is.
    """
    given = list(sources)
    found = sorted(Path(source.path) for source in find(given).sources)
    if not found:
        raise ImageNotFoundError(
            f"no images in {', '.join(repr(str(source)) for source in given)}",
            expected="files that end in " + ", ".join(sorted(SUFFIXES)),
            fix="check the path",
        )
    return found


def gather(
    images: Sequence[Path],
    tower: Encoder,
    samples: int,
    *,
    seed: int = 0,
    part: tuple[int, int] = (0, 1),
    checkpoint: Path | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Gathered:
    """Moments of about `samples` features, evenly from all images; of part i of n, from 0, with `part=(i, n)`.

    Raises OptionError for a part that is none, and BasisFileError for a checkpoint of something else.
    """
    number, parts = part
    if not 0 <= number < parts:
        raise OptionError(f"part {number} of {parts}", expected=f"0 to {parts - 1}", fix="--shard 0/4")
    each = max(1, -(-samples // len(images)))
    mine = images[number::parts]
    names = hashlib.sha256("\0".join(str(path) for path in images).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    what = ReadOnly(
        {
            "encoder": f"{tower.name} {tower.revision}",
            "images": len(images),
            "names": names,
            "samples": samples,
            "seed": seed,
            "part": f"{number}/{parts}",
        }
    )
    state = Gathered(Moments.nothing(tower.width), 0, (), what)
    if checkpoint is not None and checkpoint.exists():
        state = Gathered.load(checkpoint)
        if dict(state.what) != dict(what):
            raise BasisFileError(
                f"'{checkpoint}' is from another run ({dict(state.what)})",
                expected=f"{dict(what)}",
                fix="remove it, or choose another output",
            )
    pixels = pixels_a_cell(tower)
    for done, path in enumerate(mine[state.done :], state.done + 1):
        try:
            features = sample_of(path, tower, each, seed, pixels)
            state = replace(state, moments=state.moments.with_features(features), done=done)
        except FoveateError as error:
            state = replace(state, bad=(*state.bad, (str(path), error.received)), done=done)
        if checkpoint is not None and (done % EVERY == 0 or done == len(mine)):
            state.save(checkpoint)
        progress(done)
    return state


def sample_of(path: Path, tower: Encoder, count: int, seed: int, pixels: float) -> NDArray[np.float32]:
    """About `count` features of an image, half of them from half the size: [n, D]. Raises the five image errors.

    `pixels` along a cell, as the encoder sees it: see `pixels_a_cell`.
    """
    rgb = load_image(path).rgb
    digest = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).digest()
    draw = np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
    usual = tower.encode_image(rgb)
    check_features(tower, usual, (rgb.shape[0], rgb.shape[1]))
    looks = [usual.features]
    with contextlib.suppress(OptionError):  # an encoder of one size has no other look
        side = max(LEAST_SIDE, round(max(usual.features.shape[:2]) * pixels / 2))
        looks.append(tower.encode_image(rgb, long_side=side).features)
    quota = -(-count // len(looks))
    out = []
    for features in looks:
        flat = features.reshape(-1, features.shape[-1])
        out.append(flat[np.sort(draw.choice(len(flat), min(quota, len(flat)), replace=False))])
    return np.concatenate(out).astype(np.float32)


def pixels_a_cell(tower: Encoder) -> float:
    """An encoder does not say how many pixels a cell takes, so it is asked with a small image."""
    return PROBE / tower.encode_image(np.zeros((PROBE, PROBE, 3), np.uint8), long_side=PROBE).grid.w
