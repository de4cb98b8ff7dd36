"""Words that a person teaches with a handful of boxes, and an encoder with those words beside its own.

A texture of nano keeps `looks`: numbers of mean 0 and covariance 1 over photographs, in which things that look alike
lie together. With m the mean of n boxes, and o, C mean and covariance of what is beside them in the same pictures:

    direction  u ~ ((1 - s) I + s C)^-1 (m - s o)     linear discriminant analysis, |u| = 1
    share      s = MOST_BESIDE n / (n + FEW): what lies beside a few boxes is a poor sample
    level      q: mean of the highest of u.x over a bank of cells from other photographs, and over pictures without it
    evidence   of a cell: STEEP (u.x / q - CUT), the log odds that the thing is there

As planes beside the encoder's own these answer questions like any name: "the red logo", "the logo on the car".
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import TextureEncoderError, WordsFileError
from foveate.core.files import carries, check_target, write_whole
from foveate.core.grid import Floats, Grid
from foveate.encoders.names import forms_of, read_name
from foveate.encoders.protocol import Calibration, DenseFeatures, Encoder
from foveate.texture.basis import Basis
from foveate.texture.texture import Texture

Looks = NDArray[np.int8]
STEP = np.float32(1 / 16)  # of the numbers of `looks`
# Chosen on one half of the training photographs (taught.py measures on the other): at CUT a twentieth is seen falsely.
MOST_BESIDE, FEW, HIGHEST, CUT, STEEP = 0.5, 5, 10, 1.45, 4.0
SAFE = 1.1  # how far below CUT pictures without it come to lie
LIKELY = 30  # at rank 24 ten still lose a few hundredths of confidence, and a hundred gain nothing
BESIDE = 64  # cells beside the boxes that are kept of a picture, and at most MOST of a word
MOST = 1024
MOST_PLANES = 128  # that OpenCV 5 resizes at once; older ones take 512
FORMAT, VERSION, KEY = "foveate-words", 1, "foveate_words"
SUFFIX = ".fov"
BANK = "nano_looks.safetensors"
AGAIN = "encode the image again; of clips and large images pass words= where they are opened; lost files have none"


@dataclass(frozen=True, eq=False)
class TaughtWord:
    """examples float16 [boxes, w]: the mean of each box; beside int8 [n, w]: cells of its pictures without it; lowest:
    the level q is at least this, which pictures without it ask for; 0 if there are none."""

    name: str
    examples: NDArray[np.float16]
    beside: Looks
    lowest: float = 0.0

    @cached_property
    def direction(self) -> Floats:
        """u / q, float32 [w]."""
        mean = self.examples.astype(np.float64).mean(0)
        spread = np.eye(len(mean))
        if len(self.beside):
            other = self.beside.astype(np.float64) * STEP
            share = MOST_BESIDE * len(self.examples) / (len(self.examples) + FEW)
            mean = mean - share * other.mean(0)
            spread = (1 - share) * spread + share * np.cov(other.T, bias=True)
        toward = np.linalg.solve(spread, mean)
        toward /= max(float(np.linalg.norm(toward)), 1e-9)
        level = max(float(np.sort(_bank() @ toward)[-HIGHEST:].mean()), self.lowest)
        return np.asarray(toward / max(level, 1e-3), np.float32)


@dataclass(frozen=True, eq=False)
class TaughtWords:
    """Words by name, equal where they say the same. `foveate.teach` makes them, `load` reads a file of `save`.

    looks: which ones they are made of.
    """

    words: tuple[TaughtWord, ...]
    looks: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TaughtWords) and self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)

    @cached_property
    def _said(self) -> tuple[str, ...]:
        return self.looks, _digest(self._tensors), *(f"{word.name} {word.lowest}" for word in self.words)

    @property
    def _tensors(self) -> dict[str, NDArray[Any]]:
        examples = {f"examples.{i}": word.examples for i, word in enumerate(self.words)}
        return examples | {f"beside.{i}": word.beside for i, word in enumerate(self.words)}

    def __iter__(self) -> Iterator[str]:
        return iter(word.name for word in self.words)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        said = ", ".join(f"{word.name!r} from {len(word.examples)}" for word in self.words)
        return f"TaughtWords({said} boxes; looks {self.looks})"

    def joined(self, word: TaughtWord) -> TaughtWords:
        """With one word more; boxes of a word that is there are added to its own."""
        old = next((each for each in self.words if each.name == word.name), None)
        if old is not None:
            examples = np.concatenate([old.examples, word.examples])
            beside = np.concatenate([old.beside, word.beside])
            word = TaughtWord(word.name, examples, thinned(beside, MOST), max(old.lowest, word.lowest))
        return replace(self, words=(*(each for each in self.words if each is not old), word))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .fov file (docs/teach.md): all of it or nothing. Raises OutputError."""
        file = Path(path)
        check_target(file, "file of taught words", lambda there: carries(there, KEY), suffix=SUFFIX)
        write_whole(file, self.content)

    @property
    def content(self) -> bytes:
        """Of the file that `save` writes."""
        from safetensors.numpy import save as to_bytes

        tensors = self._tensors
        header = {
            "format": FORMAT,
            "version": VERSION,
            "looks": self.looks,
            "words": [{"name": word.name, "lowest": word.lowest} for word in self.words],
            "sha256": _digest(tensors),
        }
        return bytes(to_bytes(tensors, {KEY: json.dumps(header, sort_keys=True)}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TaughtWords:
        """Read a file that `save` wrote. Raises WordsFileError, never returns damage."""
        from safetensors import safe_open

        file = Path(path)
        try:
            with safe_open(file, framework="np") as content:
                header = json.loads((content.metadata() or {})[KEY])
                tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118
            if header["format"] != FORMAT or header["version"] != VERSION:
                raise ValueError(f"version {header['version']!r} of {header['format']!r}, not {VERSION}")
            if header["sha256"] != _digest(tensors):
                raise ValueError("its numbers are not those that were written")
            words = tuple(
                TaughtWord(str(each["name"]), tensors[f"examples.{i}"], tensors[f"beside.{i}"], float(each["lowest"]))
                for i, each in enumerate(header["words"])
            )
            for word in words:
                _check_word(word)
            looks = str(header["looks"])
        except Exception as cause:  # a hostile file fails in many ways
            what = str(cause) if isinstance(cause, ValueError) else f"{type(cause).__name__}: {cause}"
            raise WordsFileError(
                f"'{file}' cannot be read as taught words ({what})",
                expected="a file that foveate teach wrote",
                fix=f'foveate teach "our logo" photo.jpg:10,20,80,90 -o words{SUFFIX} writes one',
            ) from cause
        return cls(words, looks)

    @property
    def revision(self) -> str:
        """12 hex digits that change with what they say."""
        return hashlib.sha256(repr(self._said).encode()).hexdigest()[:12]

    def odds(self, looks: Looks) -> Floats:
        """Log odds that each word's thing is at each cell of looks [h, w, n]: float32 [h, w, words]."""
        directions = np.stack([word.direction for word in self.words], 1)
        return np.asarray(STEEP * (looks.astype(np.float32) * STEP @ directions - CUT), np.float32)

    def evidence(self, looks: Looks, grid: Grid, calibration: Calibration) -> Floats:
        """A plane a word as an encoder of this calibration has for its own: float32 [h, w, words] in [0, 1]."""
        odds, size = self.odds(looks), (2 * looks.shape[1], 2 * looks.shape[0])
        fine = np.concatenate(
            [
                cv2.resize(odds[..., k : k + MOST_PLANES], size, interpolation=cv2.INTER_LINEAR).reshape(
                    *size[::-1], -1
                )
                for k in range(0, len(self), MOST_PLANES)
            ],
            -1,
        )[: grid.h, : grid.w]
        return as_evidence(fine, calibration)

    def check(self) -> None:
        """Raises TextureEncoderError for words that are made of the looks of another release."""
        if self.looks != looks_revision():
            raise TextureEncoderError(
                f"taught words of looks {self.looks}",
                expected=f"looks {looks_revision()}, those of this release",
                fix="teach them again, with the same boxes",
            )

    def on(self, texture: Texture, encoder: Encoder) -> tuple[Texture, Encoder]:
        """A texture with a plane of evidence for each word, and the encoder that asks it.

        Both as they are where there is no word. Raises TextureEncoderError: words that are made of other looks, or a
        texture that was made without.
        """
        self.check()
        if not self.words:
            return texture, encoder
        asked = TaughtEncoder(encoder, self)
        check_looks(texture)
        last: dict[str, tuple[TaughtWords, Texture]] = texture.derive("taught", dict)  # one: a view is a whole texture
        said, seen = last.get("view", (None, texture))
        if said != self:
            seen = _with_planes(texture, asked)
            last["view"] = self, seen
        return seen, asked

    def of(self, encoder: Encoder) -> Encoder:
        """An encoder that sees these words beside its own, for clips and large images; as it is where there is none.

        Raises TextureEncoderError: words that are made of other looks.
        """
        self.check()
        return TaughtEncoder(encoder, self) if self.words else encoder


@dataclass(frozen=True)
class TaughtEncoder:
    """An encoder whose features and vectors have a number more for each taught word; the others stay as they are."""

    base: Any  # an Encoder; its optional members are passed on
    taught: TaughtWords

    def __getattr__(self, name: str) -> Any:
        if name in ("base", "encode_images") or name.startswith("__"):  # of a copy that is being made
            raise AttributeError(name)
        return getattr(self.base, name)

    @property
    def width(self) -> int:
        return int(self.base.width) + len(self.taught)

    @property
    def revision(self) -> str:
        return f"{self.base.revision}+{self.taught.revision}"

    @property
    def names(self) -> tuple[str, ...]:
        """What is likely to be asked, and so kept by compression; of a thing that was taught, LIKELY times as much."""
        known: tuple[str, ...] = getattr(self.base, "names", ())
        return (*known, *LIKELY * tuple(self.taught)) if known else ()

    @property
    def calibration(self) -> Calibration:
        return self.base.calibration

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        """Raises TextureEncoderError where the encoder has no looks."""
        dense: DenseFeatures = self.base.encode_image(rgb, long_side=long_side)
        evidence = self.taught.evidence(_checked(dense.looks, "a picture"), dense.grid, self.calibration)
        both = np.concatenate([dense.features, evidence], -1)
        both /= np.sqrt(np.maximum(np.einsum("yxd,yxd->yx", both, both), 1))[..., None]
        columns = dense.columns
        if columns is not None:
            columns = np.append(columns, np.arange(self.base.width, self.width))
        return replace(dense, features=both, columns=columns)

    def encode_text(self, texts: Sequence[str]) -> Floats:
        out = np.zeros((len(texts), self.width), np.float32)
        for row, text in zip(out, texts, strict=True):
            number = self.find(text)
            if number is None:
                row[: self.base.width] = self.base.encode_text([text])[0]
            else:
                row[self.base.width + number] = 1
        return out

    def find(self, text: str) -> int | None:
        """The number of the taught word that a text is, in the singular or plural; or None."""
        words = read_name(text)
        if not words:
            return None
        numbers = {word.name: i for i, word in enumerate(self.taught.words)}
        plurals = {form: i for name, i in numbers.items() for form in forms_of([name])[1:]}
        known = plurals | numbers  # a name goes before what another may be the plural of
        return next((known[form] for form in forms_of(words) if form in known), None)

    def knows(self, text: str) -> bool:
        return self.find(text) is not None or bool(self.base.knows(text))

    def understands(self, text: str) -> bool:
        return self.find(text) is not None or bool(self.base.understands(text))

    def surer(self, text: str) -> float:
        return 0.0 if self.find(text) is not None else float(self.base.surer(text))

    def understood_as(self, text: str) -> tuple[str, float] | None:
        return None if self.find(text) is not None else self.base.understood_as(text)

    def kinds_of(self, text: str) -> tuple[tuple[Floats, float], ...]:
        """Of a taught word that the encoder knew before: what it saw as that, unless pictures without it were given."""
        kinds, number = self.base.kinds_of(text), self.find(text)
        if number is not None:
            own = self.base.knows(text) and not self.taught.words[number].lowest
            kinds = ((self.base.encode_text([text]), self.base.surer(text)), *kinds) if own else ()
        return tuple((np.pad(kind, ((0, 0), (0, len(self.taught)))), odds) for kind, odds in kinds)


def as_evidence(odds: Floats, calibration: Calibration) -> Floats:
    """The inverse of relevance/scoring.py, where a score of 0 is nothing: float32 in [0, 1]."""
    floor = 1 / (1 + np.exp(-calibration.offset))
    likely = floor + (1 - floor) / (1 + np.exp(-odds))
    evidence = (np.log(likely / np.maximum(1 - likely, 1e-6)) - calibration.offset) / calibration.slope
    return np.asarray(np.clip(evidence, 0, 1), np.float32)


def learn(
    name: str, boxed: Sequence[tuple[Texture, Sequence[Sequence[float]]]], without: Sequence[Texture]
) -> TaughtWord:
    """A word from pictures with boxes (y0, x0, y1, x1) in pixels, and pictures without it."""
    examples, beside = [], []
    for texture, boxes in boxed:
        looks = check_looks(texture).astype(np.float32) * STEP
        inside = np.zeros(looks.shape[:2], np.float32)
        for box in boxes:
            share = covered(texture, box, looks.shape[:2])
            weights = share * share  # the middle of a box is the thing, its border half of something else
            examples.append((looks * weights[..., None]).sum((0, 1)) / weights.sum())
            inside = np.maximum(inside, share)
        beside.append(thinned(check_looks(texture)[inside <= 0], BESIDE))
    empty = [check_looks(texture).reshape(-1, looks.shape[-1]) for texture in without]
    beside += [thinned(flat, BESIDE) for flat in empty]
    cells = thinned(np.concatenate(beside), MOST)
    word = TaughtWord(" ".join(read_name(name)), np.array(examples, np.float16), cells)
    unit = word.direction / max(float(np.linalg.norm(word.direction)), 1e-9)
    highest = [float(np.sort(flat.astype(np.float32) * STEP @ unit)[-4:].mean()) for flat in empty]
    return replace(word, lowest=max(0.0, *highest) / CUT * SAFE if highest else 0.0)


def covered(texture: Texture, box: Sequence[float], shape: tuple[int, int]) -> Floats:
    """The share of each cell of the looks, two cells of the texture along, that lies in a box: float32 [h, w]."""
    grid = texture.grid
    axes = []
    for low, high, pixels, cells, count in (
        (box[0], box[2], grid.height, grid.h, shape[0]), (box[1], box[3], grid.width, grid.w, shape[1]),
    ):  # fmt: skip
        edges, scale = np.arange(count + 1), cells / pixels / 2
        axes.append(np.clip(np.minimum(edges[1:], high * scale) - np.maximum(edges[:-1], low * scale), 0, 1))
    return np.asarray(np.outer(*axes), np.float32)


def thinned(cells: Looks, most: int) -> Looks:
    """At most so many rows, evenly from all."""
    return cells if len(cells) <= most else cells[np.linspace(0, len(cells) - 1, most).astype(np.int64)]


def check_looks(texture: Texture) -> Looks:
    """The looks of a texture. Raises TextureEncoderError where it has none, or those of another release."""
    return _checked(texture.find_looks(), f"the texture of {texture.name!r}")


def _checked(looks: Looks | None, whose: str) -> Looks:
    if looks is None:
        raise TextureEncoderError(
            f"{whose} has no looks, which taught words are made of",
            expected="a texture of nano, by foveate.encode of an image, without long_side='native'",
            fix=AGAIN,
        )
    if looks.shape[-1] != (width := _bank().shape[1]):
        raise TextureEncoderError(
            f"the looks of {whose} have {looks.shape[-1]} numbers a cell",
            expected=f"{width}, as those of this release",
            fix="encode the image again",
        )
    return looks


def _with_planes(texture: Texture, encoder: TaughtEncoder) -> Texture:
    count = len(encoder.taught)
    evidence = encoder.taught.evidence(check_looks(texture), texture.grid, encoder.calibration)
    z = np.concatenate([texture.embedding, evidence.astype(np.float16)], -1)
    basis, rank = texture.basis, texture.basis.rank
    rows = np.zeros((rank + count, basis.width + count), np.float16)
    rows[:rank, : basis.width] = basis.rows
    rows[rank:, basis.width :] = np.eye(count)
    wider = Basis(np.append(basis.mean, np.zeros(count, np.float32)), rows)
    stamp = replace(texture.encoder, width=basis.width + count, revision=encoder.revision)
    return texture.in_basis(z, wider, stamp)


@lru_cache(maxsize=1)
def looks_revision() -> str:
    """12 hex digits that change with the projection: of the SHA-256 over the bank, which is made with it."""
    return hashlib.sha256(_bank().tobytes()).hexdigest()[:12]


@lru_cache(maxsize=1)
def _bank() -> Floats:
    """Looks of cells of other photographs, float32 [n, w]."""
    from safetensors.numpy import load_file

    path = Path(str(files("foveate") / "encoders" / "assets" / BANK))
    return load_file(path)["bank"].astype(np.float32) * STEP


def _check_word(word: TaughtWord) -> None:
    width = _bank().shape[1]
    examples, beside = word.examples, word.beside
    if examples.dtype != np.float16 or beside.dtype != np.int8 or not word.name or not np.isfinite(word.lowest):
        raise ValueError(f"the word {word.name!r} with {examples.dtype} and {beside.dtype}")
    if examples.ndim != 2 or not len(examples) or examples.shape[1] != width or beside.shape[1:] != (width,):
        raise ValueError(f"the word {word.name!r} with {examples.shape} and {beside.shape} numbers")
    if not np.isfinite(examples).all():
        raise ValueError(f"the word {word.name!r} with numbers that are not finite")


def _digest(tensors: dict[str, NDArray[Any]]) -> str:
    whole = hashlib.sha256()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        whole.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        whole.update(tensor.tobytes())
    return whole.hexdigest()
