"""nano and classifiers of yours: their classes become words of a texture, beside nano's own names.

    texture = foveate.encode("garden.jpg", specialists=["birds.tflite"])        # and birds.txt beside it: the labels
    foveate.score(texture, "a painted bunting")

classifiers.py runs its file; what it says of a picture joins nano's features as nano's own classes do. It speaks for
its words, except for those that mean one of nano's names, and not a kind of it: these are seen at a finer stride. Of
two specialists the first one speaks.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import OptionError
from foveate.core.grid import Floats
from foveate.core.threads import once
from foveate.encoders.classifiers import OUTPUTS, PIXELS, Classifier, open_classifier, open_file, refuse
from foveate.encoders.names import NameSpace, words_of
from foveate.encoders.nano import NanoEncoder, fit_image, state_of, with_classes
from foveate.encoders.protocol import DenseFeatures

SUFFIXES = (".onnx", ".tflite")
BACKGROUND = "background"
JOINED = re.compile(r"(?:(?<=\.onnx)|(?<=\.tflite))\+")  # a folder may have a + in its name
MOST_KEPT = 8  # files, and encoders made of them
LABELS = "one line a class, its words with commas between (docs/encoders.md#bring-a-classifier)"


@dataclass(frozen=True, eq=False, repr=False)
class Specialist:
    """A classifier, its name and its words.

    Attributes:
        name: of its file, without folder and ending.
        revision: 12 hex digits of a SHA-256 over the file, its labels and settings.
        classes: the first word of each class. Planes of the background are left out.
        words: of each word the classes that it means.
    """

    name: str
    revision: str
    classes: tuple[str, ...]
    words: Mapping[str, tuple[int, ...]]
    planes: NDArray[np.intp]
    classifier: Classifier

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        labels: Sequence[str] | None = None,
        pixels: str | None = None,
        output: str | None = None,
    ) -> Self:
        """From a file that ends in .onnx or .tflite (extra `specialists`). What is None is looked for beside it.

        Args:
            labels: for each class its words, with commas between, "background" for none; after the classes groups,
                "words<TAB>numbers of their classes, from 0". None: "labels" of NAME.json, else NAME.txt or
                NAME_labels.txt, else "labels" or "names" in an ONNX file's metadata.
            pixels: how an input of floats has them: "0..255", "0..1", "-1..1", or "imagenet" (less the mean of
                ImageNet, by the deviation). None: "pixels" of NAME.json, else of the metadata.
            output: "logits" or "probabilities". None: "output" of NAME.json, else probabilities where they sum to 1.

        Raises EncoderFilesError, MissingExtraError.
        """
        path = Path(path)
        _check_file(path)
        opened = open_file(path)
        told = _told(path, opened.metadata)
        pixels = _choice(path, "pixels", pixels or told.get("pixels"), PIXELS)
        output = _choice(path, "output", output or told.get("output"), OUTPUTS)
        lines, classes, words = _read_labels(path, told.get("labels") if labels is None else labels)
        planes = np.array([k for k, name in enumerate(classes) if name != BACKGROUND], np.intp)
        new = {int(k): i for i, k in enumerate(planes)}
        said = "\n".join([hashlib.sha256(path.read_bytes()).hexdigest(), str(pixels), str(output), *lines])
        return cls(
            path.stem,
            hashlib.sha256(said.encode()).hexdigest()[:12],
            tuple(classes[k] for k in planes),
            {word: tuple(sorted(new[k] for k in below if k in new)) for word, below in words.items()},
            planes,
            open_classifier(path, opened, len(classes), pixels, output),
        )

    def __repr__(self) -> str:
        return f"Specialist({self.name!r}, {len(self.classes)} classes)"

    def look(self, rgb: NDArray[np.uint8]) -> tuple[Floats, tuple[int, int]]:
        """nano's padded picture -> probabilities [rows, columns, classes], and how many of nano's cells they cover."""
        found, covered = self.classifier.look(rgb)
        return found[..., self.planes], covered


@dataclass(frozen=True, repr=False, kw_only=True)
class SpecialistEncoder(NanoEncoder):
    """nano with specialists: its planes, then theirs; what it says of texts, it says by all their words (`space`).

    `name` is as textures have it, "nano+birds": where the files lie, they do not tell.
    """

    base: NanoEncoder
    specialists: tuple[Specialist, ...]

    @cached_property
    def revision(self) -> str:
        """12 hex digits over those of its parts."""
        parts = " ".join((self.base.revision, *(each.revision for each in self.specialists)))
        return hashlib.sha256(parts.encode()).hexdigest()[:12]

    @cached_property
    def space(self) -> NameSpace:
        """nano's names and words with those of the specialists."""
        space, taken = self.base.space, set[str]()
        for each in self.specialists:
            space = space.with_specialist(each.classes, each.words, taken)
            taken |= set(each.words)
        return space

    @property
    def _table(self) -> Any:  # read once
        return self.base._table

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        """As nano's; each specialist sees the picture that nano sees."""
        dense = self.base.encode_image(rgb, long_side=long_side)
        width, (padded, _) = self.base.width, fit_image(rgb, long_side)
        for each in self.specialists:
            dense = with_classes(dense, width, *each.look(padded))
            width += len(each.classes)
        return dense


def files_of(name: str) -> tuple[str, ...]:
    """The specialists in an encoder's name: "nano+birds.tflite" -> ("birds.tflite",); () where there are none."""
    base, plus, rest = name.partition("+")
    return tuple(JOINED.split(rest)) if plus and base == "nano" else ()


def name_in_textures(name: str) -> str:
    """An encoder's name without the folders of specialists: "nano+models/birds.tflite" -> "nano+birds"."""
    found = files_of(name)
    return "+".join(("nano", *(Path(file).stem for file in found))) if found else name


def join(base: Any, specialists: Sequence[str | Path | Specialist]) -> SpecialistEncoder:
    """nano with specialists, files or values; the same again for the same. Raises OptionError, EncoderFilesError."""
    if not isinstance(base, NanoEncoder) or isinstance(base, SpecialistEncoder):
        raise OptionError(
            f"specialists for the encoder '{base.name}'",
            expected="the encoder 'nano', whose features are a plane for each name",
            fix="leave out encoder, or the specialists",
        )
    several = isinstance(specialists, Collection) and not isinstance(specialists, str)  # a Path is no Collection
    if not several or not all(isinstance(each, str | Path | Specialist) for each in specialists):
        raise OptionError(
            f"specialists={specialists!r}",
            expected="a list of files, or of foveate.encoders.Specialist",
            fix='write specialists=["birds.onnx"]',
        )
    return _join(base, tuple(each if isinstance(each, Specialist) else _find(Path(each)) for each in specialists))


@once(MOST_KEPT)  # what is made of an encoder is kept by it: there should be one
def _join(base: NanoEncoder, specialists: tuple[Specialist, ...]) -> SpecialistEncoder:
    name = "+".join((base.name, *(each.name for each in specialists)))
    return SpecialistEncoder(base.folder, name, base.calibration, base=base, specialists=specialists)


def _find(path: Path) -> Specialist:
    _check_file(path)
    return _read(path.absolute(), tuple(state_of(file) for file in (path, *_beside(path))))


@once(MOST_KEPT)
def _read(path: Path, state: object) -> Specialist:
    return Specialist.read(path)


def _beside(path: Path) -> tuple[Path, Path, Path]:
    """Where settings and labels of a file may be."""
    return path.with_suffix(".json"), path.with_suffix(".txt"), path.with_name(f"{path.stem}_labels.txt")


def _check_file(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        refuse(path, f"ends in '{path.suffix}'", "a classifier's file: .onnx or .tflite", "convert it to ONNX")
    if not path.is_file():
        refuse(path, "is not there", "a file", "check the path")


def _told(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Settings and labels: of the JSON file beside it, else of the text file, else of the file's own metadata."""
    told: dict[str, Any] = {key: metadata[key] for key in ("pixels", "output") if key in metadata}
    settings, *texts = _beside(path)
    if settings.is_file():
        beside = _json(path, _text(path, settings), settings.name)
        if not isinstance(beside, dict):
            refuse(path, f"has no object in {settings.name}", '{"pixels": "0..1"}, say', "write one")
        told |= beside
    if "labels" not in told and (found := [file for file in texts if file.is_file()]):
        told["labels"] = _text(path, found[0]).splitlines()
    if "labels" not in told and (written := metadata.get("labels") or metadata.get("names")):
        told["labels"] = _json(path, written, "its metadata")
    return told


def _json(path: Path, text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as cause:
        refuse(path, f"has no JSON in {where} ({cause})", "JSON", "write it again, or the labels into a .txt", cause)


def _text(path: Path, file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as cause:
        refuse(path, f"has '{file.name}' beside it, which is no text", LABELS, "save it as UTF-8", cause)


def _choice(path: Path, name: str, value: object, known: Collection[str]) -> str | None:
    if value is not None and (not isinstance(value, str) or value not in known):
        refuse(path, f"has {name}={value!r}", " or ".join(map(repr, known)), "write one of these")
    return value


def _read_labels(path: Path, given: object) -> tuple[list[str], list[str], dict[str, set[int]]]:
    """-> (the lines, the first word of each class, the classes of each word: those of groups, too)."""
    if isinstance(given, Mapping):  # {"0": "tench"}
        given = list(given.values())
    lines = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
    while lines and isinstance(lines[-1], str) and not lines[-1].strip():
        lines.pop()
    if not lines:
        beside = " or ".join(file.name for file in _beside(path)[1:])
        refuse(path, "has no labels", LABELS, f"write them into {beside}")
    classes: list[str] = []
    words: dict[str, set[int]] = {}
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str) or not (found := words_of(line.partition("\t")[0])):
            refuse(path, f"has {line!r} as label {number}", LABELS, f"write a word there, or {BACKGROUND}")
        group = line.partition("\t")[2].split()
        try:
            below = [int(each) for each in group] or [len(classes)]
        except ValueError:
            below = [-1]
        if group and not all(0 <= each < len(classes) for each in below):
            refuse(path, f"has the group {line!r} in line {number}", "numbers of classes above it, from 0", "mend it")
        for word in found:
            words.setdefault(word, set()).update(below)
        if not group:
            classes.append(found[0])
    words.pop(BACKGROUND, None)
    return lines, classes, words
