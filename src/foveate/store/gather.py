"""Features of many images into moments: streaming, evenly sampled, resumable, the same whatever happens on the way.

Every image gives about the same number of features, half of them from the encoder's usual size and half from half
of it, at cells that are drawn by the seed and the image's name: its path within the folder that was given. So the
result does not depend on interruptions, nor on where a machine mounts the folder, and a part of the images
(`part=(i, n)`) gives the same as it would within the whole.

    SumBatch     8 images -> their sums and the bad ones: on whatever engine, and in as many workers as there are
    gather       adds those up, in their order: the result is the same to the last bit, whoever made the sums, where
                 all encode with as many threads (nano's features differ in the last bit between one thread and two)

Every so many images, moments and the list of bad images are written beside the result; a run that finds them goes on
there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import BasisFileError, EngineError, ImageNotFoundError, OptionError
from foveate.core.files import write_whole
from foveate.core.image import load_image
from foveate.core.readonly import Frozen, ReadOnly
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import LEAST_SIDE, PROBE, Encoder, check_features
from foveate.store.engine import Engine, Local, column
from foveate.store.files import SUFFIXES, Source, find
from foveate.store.work import BAD, received, refuse_hidden, sendable
from foveate.texture.covariance import Moments

EVERY = 200  # images between two checkpoints
BATCH = 8  # images of one sum; the order of a sum of floats is part of the result
FORMAT = "foveate-moments"
PART = re.compile("[0-9]+/[1-9][0-9]*")


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
            what = ReadOnly[str, Any](header["what"])
            if not isinstance(what["encoder"], str) or not PART.fullmatch(what["part"]):
                raise ValueError("no encoder or part")
            return cls(moments, int(header["done"]), bad, what)
        except Exception as cause:
            raise BasisFileError(
                f"'{path}' holds no moments ({type(cause).__name__}: {cause})",
                expected="what 'foveate basis fit' left behind",
                fix="remove it; gathering then begins anew",
            ) from cause


def images_in(sources: Iterable[str | os.PathLike[str]]) -> list[Source]:
    """Image files of folders (all the way down, each file once) and files themselves, in the order of their names.

    What cannot be found or listed is among them: it is a bad image later, not a silent gap.

    Raises ImageNotFoundError where nothing is, and where no image is.
    """
    given = list(sources)
    found = find(given)
    missing = [Source(os.path.abspath(path), path) for path, _ in found.unreadable]
    if not found.sources:
        raise ImageNotFoundError(
            f"no images in {', '.join(repr(str(source)) for source in given)}",
            expected="files that end in " + ", ".join(sorted(SUFFIXES)),
            fix="check the path",
        )
    return sorted([*found.sources, *missing], key=lambda source: os.fsencode(source.name))


def gather(
    images: Sequence[Source],
    tower: Encoder,
    samples: int,
    *,
    seed: int = 0,
    part: tuple[int, int] = (0, 1),
    checkpoint: Path | None = None,
    encoder: str | None = None,
    engine: Engine | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Gathered:
    """Moments of about `samples` features, evenly from all images; of part i of n, from 0, with `part=(i, n)`.

    `engine` makes the sums instead of this process; `encoder` is the name that its workers load the tower by.
    Images that cannot be read are listed; a fault of the encoder is no fault of an image, and is raised.

    Raises OptionError for no images or a part that is none, BasisFileError for a checkpoint of something else, and
    what the encoder raises: EncoderOutputError where its features break the contract.
    """
    number, parts = part
    if not 0 <= number < parts:
        raise OptionError(f"part {number} of {parts}", expected=f"0 to {parts - 1}", fix="--shard 0/4")
    if not images:
        raise OptionError("no images", expected="at least one", fix="images_in(folders) finds them")
    each = max(1, -(-samples // len(images)))
    mine = images[number::parts]
    listed = "\0".join(image.name for image in images)
    names = hashlib.sha256(listed.encode("utf-8", "surrogateescape")).hexdigest()[:16]
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
    todo = mine[state.done :]
    columns: dict[str, Sequence[Any]] = {
        "number": range(len(todo)),
        "path": [sendable(image.path) for image in todo],
        "name": [sendable(image.name) for image in todo],
    }
    work = SumBatch(encoder or tower, each, seed, tower.revision)
    begun = saved = state.done
    for sums in (engine or Local()).map(work, columns, BATCH):
        for number, count, first, second, bad in zip(
            *(sums[name] for name in ("number", "count", "first", "second", "bad")), strict=True
        ):
            if begun + number != state.done:  # else a run that goes on would take images twice
                raise EngineError(f"row {number}", expected=f"{state.done - begun}, in order", fix="report this")
            wrong: list[tuple[str, str]] = []
            for place, why, missing in json.loads(bad):
                source = todo[number + place]
                if missing:
                    refuse_hidden(source, why)
                wrong.append((source.path, str(why)))
            moments = Moments(int(count), np.frombuffer(first), np.frombuffer(second).reshape(tower.width, -1))
            done = min(state.done + BATCH, len(mine))
            state = replace(state, moments=state.moments + moments, bad=(*state.bad, *wrong), done=done)
            if checkpoint is not None and (done - saved >= EVERY or done == len(mine)):
                state.save(checkpoint)
                saved = done
            progress(done)
    if checkpoint is not None and not checkpoint.exists():  # a part without images is a part too
        state.save(checkpoint)
    return state


@dataclass(frozen=True)
class SumBatch:
    """Columns "number", "path" and "name" of images -> one row for all of them.

    "number" of the first, "count", "first", "second" (bytes of Moments), "bad" (JSON: place in the batch, why, whether
    there was no such file).

    Attributes:
        encoder: its name, or an object. each: features of an image. seed: of which cells are taken.
        revision: of the encoder; another one's features do not add up. Raises OptionError.
    """

    encoder: str | Encoder
    each: int
    seed: int
    revision: str

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        tower = resolve_encoder(self.encoder)
        if tower.revision != self.revision:
            raise OptionError(
                f"encoder '{tower.name}', revision {tower.revision}",
                expected=f"revision {self.revision}",
                fix="the same files of the encoder on all machines",
            )
        moments, pixels = Moments.nothing(tower.width), pixels_a_cell(tower)
        bad: list[tuple[int, str, bool]] = []
        for place, (path, name) in enumerate(zip(batch["path"], batch["name"], strict=True)):
            try:
                rgb = load_image(received(path)).rgb
            except BAD as error:
                bad.append((place, error.received, isinstance(error, ImageNotFoundError)))
            else:
                features = sample_of(rgb, received(name), tower, self.each, self.seed, pixels)
                moments = moments.with_features(features)
        return {
            "number": column([batch["number"][0]]),
            "count": column([moments.count]),
            "first": column([moments.first.tobytes()]),
            "second": column([moments.second.tobytes()]),
            "bad": column([json.dumps(bad)]),
        }


def sample_of(
    rgb: NDArray[np.uint8], name: str, tower: Encoder, count: int, seed: int, pixels: float | None
) -> NDArray[np.float32]:
    """About `count` features of an image, half of them from half the size: [n, D]. Raises EncoderOutputError.

    `pixels` along a cell, as the encoder sees it (see `pixels_a_cell`), or None for an encoder of one size.
    """
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    draw = np.random.default_rng([seed, int.from_bytes(digest[:8], "little")])
    usual = tower.encode_image(rgb)
    size = (rgb.shape[0], rgb.shape[1])
    check_features(tower, usual, size)
    looks = [usual.features]
    if pixels is not None:
        side = max(LEAST_SIDE, round(max(usual.features.shape[:2]) * pixels / 2))
        with contextlib.suppress(OptionError):  # nor has one that refuses this size
            half = tower.encode_image(rgb, long_side=side)
            check_features(tower, half, size)
            looks.append(half.features)
    quota = -(-count // len(looks))
    out = []
    for features in looks:
        flat = features.reshape(-1, features.shape[-1])
        out.append(flat[np.sort(draw.choice(len(flat), min(quota, len(flat)), replace=False))])
    return np.concatenate(out).astype(np.float32)


def pixels_a_cell(tower: Encoder) -> float | None:
    """An encoder does not say how many pixels a cell takes, so it is asked with a small image; None has one size."""
    try:
        return PROBE / tower.encode_image(np.zeros((PROBE, PROBE, 3), np.uint8), long_side=PROBE).grid.w
    except OptionError:
        return None
