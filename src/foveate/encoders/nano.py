"""nano, the built-in encoder: a convolutional network (ONNX) and a static table of word-piece vectors; offline.

Its features are evidence, one plane a name; a text becomes a vector over the names (names.py). Both sides of the image
are brought to multiples of 8 (long side 512), the stride. A classifier looks on at a stride of 32: the probability p
of a class is evidence CLASS p. MODEL_CARD.md has the words and how well they are found; `training/` made the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Self

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_int
from foveate.core.errors import EncoderFilesError, QueryError
from foveate.core.grid import Floats, Grid
from foveate.core.threads import count_threads, once
from foveate.encoders.names import CLASSES, NameSpace, read_names
from foveate.encoders.protocol import ASK_IN_ENGLISH, Calibration, DenseFeatures

LONG_SIDE = 512  # that its head was trained at
MAX_LONG_SIDE = 2048  # 1.2 GB; attention at stride 32 grows with the fourth power
MOST_SESSIONS = 8  # nano's and the finder of writing, each with all cores, a stream's half, a list's share, and one
STRIDE = 8  # pixels along a cell
PADDED_TO = 32  # the network halves its input five times
GREY = 114  # what the network saw outside the photographs in training
WIDTH = 256  # of the word table
# Chosen with training/nano/calibrate.py. An offset of -2.77 that it fits is -2.65 here, where no evidence is 0.
CALIBRATION = Calibration(temperature=20.0, contrast=0.0, synonym=0.6, slope=27.00, offset=-2.65)
FIX = "install foveate again from where it came: pip install --force-reinstall . in its clone, say"
IMAGE, TEXT, PIECES = "nano_image.onnx", "nano_text.safetensors", "nano_tokenizer.json"
CARRIED, NAMES = "nano_names.safetensors", "nano_names.json"
FILES = (IMAGE, TEXT, PIECES, CARRIED, NAMES, CLASSES)
# Of the classifier (docs/log.md): a class counts as detected from p = 0.23 on; less than FAINTEST is no evidence; at
# most so many classes have evidence in an image.
CLASS, FAINTEST, MOST_CLASSES = 0.45, 0.02, 64
# onnxruntime's threads wait by spinning, for up to a second: within a run this long, after it not at all. Versions that
# do not know the first key spin within a run only.
WAITING = {"session.intra_op.spin_duration_us": "100", "session.force_spinning_stop": "1"}
# Files whose weights differ from an earlier release's by rounding keep its revision, so that its textures are asked as
# before. Features differ by up to .065, maps by up to .27, verdicts as little as docs/performance.md says.
ROUNDS_AS = {"10b166283836": "ef34f22be35f", "65a827ed6bde": "ef34f22be35f"}


@dataclass(frozen=True, repr=False)
class NanoEncoder:
    """The default encoder. `NanoEncoder.built_in()` reads the package's files, `NanoEncoder(folder)` others."""

    folder: Path
    name: str = "nano"
    calibration: Calibration = CALIBRATION
    files: ClassVar[tuple[str, ...]] = FILES
    templates: ClassVar[tuple[str, ...]] = ("{}",)  # a table: any template would add the same vector to every noun
    reads_phrases: ClassVar[bool] = False  # a mean of words: attributes and places are composed instead
    long_side: ClassVar[int] = LONG_SIDE

    @classmethod
    def built_in(cls) -> Self:
        """With the package's files. Raises EncoderFilesError where one is missing."""
        folder = Path(str(files("foveate") / "encoders" / "assets"))
        missing = [name for name in cls.files if not (folder / name).is_file()]
        if missing:
            raise EncoderFilesError(
                f"the built-in encoder lacks {missing} in '{folder}'",
                expected="the files that come with foveate",
                fix=FIX,
            )
        return cls(folder)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, files in '{self.folder}')"

    @property
    def width(self) -> int:
        """Its names, and one number for what no name covers."""
        return self.space.width

    @cached_property
    def revision(self) -> str:
        """12 hex digits of the SHA-256 over its files, or those of the files that it ROUNDS_AS."""
        found = hashlib.sha256(b"".join((self.folder / name).read_bytes() for name in self.files)).hexdigest()[:12]
        return ROUNDS_AS.get(found, found)

    @cached_property
    def space(self) -> NameSpace:
        """The names it has evidence for, and the words that ask for them."""
        from safetensors.numpy import load_file

        try:
            carried = load_file(self.folder / CARRIED)["carried"].astype(np.float32)
            return read_names(self.folder / NAMES, carried, self.encode_words)
        except Exception as cause:
            raise _damaged(f"{CARRIED}' or '{NAMES}", cause) from cause

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What it has evidence for, each as a question; "tie (part)" is asked as "tie"."""
        return tuple(dict.fromkeys((*(name.partition(" (")[0] for name in self.space.names), *self.space.classes)))

    @property
    def _session(self) -> Any:
        return load_network(self.folder / IMAGE, count_threads(), self._file)

    @cached_property
    def _file(self) -> tuple[int, int] | None:
        return state_of(self.folder / IMAGE)  # another encoder of this folder may find a newer one

    @cached_property
    def _outputs(self) -> list[str]:
        return [each.name for each in self._session.get_outputs()]

    @cached_property
    def _table(self) -> tuple[Any, NDArray[np.int8], Floats]:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        try:
            tensors = load_file(self.folder / TEXT)
            tokenizer = Tokenizer.from_file(str(self.folder / PIECES))
            return tokenizer, tensors["rows"], tensors["scale"].astype(np.float32)
        except Exception as cause:
            raise _damaged(f"{TEXT}' or '{PIECES}", cause) from cause

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        """uint8 [H, W, 3] -> features float32 [h, w, D], at most 1 long; 64 cells along the default long side."""
        padded, grid = fit_image(rgb, long_side)
        seen = dict(zip(self._outputs, self._session.run(self._outputs, {"rgb": padded[None]}), strict=True))
        features, classes, looks = seen["features"], seen.get("classes"), seen.get("looks")  # [1, rows, cols, n] each
        width = sum(each.shape[-1] for each in (features, classes) if each is not None)
        if width != self.width:
            raise _damaged(IMAGE, f"{width} numbers a cell, not {self.width}")
        if looks is not None:
            looks = np.ascontiguousarray(looks[0, : -(-grid.h // 2), : -(-grid.w // 2)])
        found = DenseFeatures(np.ascontiguousarray(features[0, : grid.h, : grid.w]), grid, looks)
        return found if classes is None else with_classes(found, features.shape[-1], classes[0], features.shape[1:3])

    def encode_words(self, texts: Sequence[str]) -> Floats:
        """Texts -> unit vectors of the word table, float32 [n, 256]: the mean of their pieces' rows. QueryError."""
        tokenizer, rows, scale = self._table
        out = np.empty((len(texts), WIDTH), np.float32)
        unknown = tokenizer.token_to_id("[UNK]")
        for i, text in enumerate(texts):
            ids = [piece for piece in tokenizer.encode(text, add_special_tokens=False).ids if piece != unknown]
            if not ids:
                raise QueryError(
                    f"{text!r} has no word that the encoder '{self.name}' can read",
                    expected="English words",
                    fix=ASK_IN_ENGLISH,
                )
            mean = (rows[ids] * scale[ids, None]).sum(0)
            out[i] = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return out

    def knows(self, text: str) -> bool:
        return self.space.knows(text)

    def understands(self, text: str) -> bool:
        return self.space.understands(text)

    def understood_as(self, text: str) -> tuple[str, float] | None:
        return self.space.understood_as(text)

    def surer(self, text: str) -> float:
        return self.space.surer(text)

    def kinds_of(self, text: str) -> tuple[tuple[Floats, float], ...]:
        return self.space.kinds_of(text)

    def encode_text(self, texts: Sequence[str]) -> Floats:
        return np.array([self.space.place(text) for text in texts], np.float32).reshape(-1, self.width)


def state_of(file: Path) -> tuple[int, int] | None:
    if not file.is_file():
        return None
    found = file.stat()
    return found.st_size, found.st_mtime_ns


@once(MOST_SESSIONS)
def load_network(path: Path, threads: int = 0, state: tuple[int, int] | None = None) -> Any:
    """One of the package's networks (ONNX) as a session of onnxruntime. Raises EncoderFilesError.

    state: of the file; one that has changed is opened again.
    """
    try:
        return open_session(path, threads)
    except Exception as cause:
        raise _damaged(str(path), cause) from cause


def open_session(path: Path, threads: int) -> Any:
    """An ONNX file as a session of onnxruntime, which says by whatever exception what is wrong with it.

    threads: of each run; 0 is all cores.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    for key, value in WAITING.items():
        options.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _damaged(file: str, cause: object) -> EncoderFilesError:
    return EncoderFilesError(
        f"'{file}' cannot be read ({cause})",
        expected="the files that come with foveate",
        fix=FIX,
    )


def with_classes(dense: DenseFeatures, width: int, probabilities: Floats, padded: tuple[int, int]) -> DenseFeatures:
    """Features of `width` numbers and probabilities of classes [H/32, W/32, c], of an image of `padded` cells, as one.

    Only classes that have evidence are among the columns.
    """
    highest = probabilities.max((0, 1))
    few = np.sort(np.argsort(-highest, kind="stable")[: min(MOST_CLASSES, np.count_nonzero(highest >= FAINTEST))])
    some = probabilities[..., few]
    evidence = np.where(some >= FAINTEST, CLASS * some, 0).astype(np.float32)
    h, w = dense.grid.shape
    both = np.empty((h, w, dense.features.shape[-1] + len(few)), np.float32)
    both[..., : -len(few) or None] = dense.features
    if len(few):
        fine = cv2.resize(evidence, padded[::-1], interpolation=cv2.INTER_LINEAR).reshape(*padded, -1)
        both[..., -len(few) :] = fine[:h, :w]
    squares = np.einsum("yxd,yxd->yx", both, both)
    if (squares > 1).any():
        both /= np.sqrt(np.maximum(squares, 1))[..., None]
    columns = np.arange(width) if dense.columns is None else dense.columns
    return replace(dense, features=both, columns=np.append(columns, width + few))


def fit_image(rgb: NDArray[np.uint8], long_side: int | None) -> tuple[NDArray[np.uint8], Grid]:
    """uint8 [H, W, 3] -> the same as the network sees it, with grey to whole 32 pixels, and its cells."""
    height, width = rgb.shape[:2]
    h, w = fit_cells(height, width, LONG_SIDE if long_side is None else long_side)
    rows, columns = h * STRIDE, w * STRIDE
    method = cv2.INTER_AREA if rows < height else cv2.INTER_LINEAR
    padded = np.full((rows + -rows % PADDED_TO, columns + -columns % PADDED_TO, 3), GREY, np.uint8)
    padded[:rows, :columns] = cv2.resize(rgb, (columns, rows), interpolation=method)
    return padded, Grid(h, w, height, width)


def fit_cells(height: int, width: int, long_side: int) -> tuple[int, int]:
    """Cells (h, w) of an image: the long side gets long_side / 8, the short side keeps the aspect, at least 1."""
    check_int("long_side", long_side, PADDED_TO, MAX_LONG_SIDE, fix=f"leave it out for the default of {LONG_SIDE}")
    ratio = long_side / max(height, width)
    return max(1, round(height * ratio / STRIDE)), max(1, round(width * ratio / STRIDE))
