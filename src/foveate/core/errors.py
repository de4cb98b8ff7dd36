"""Every failure a person can cause, one class each, in the order of the rooms. All derive from `FoveateError`, and from
the built-in exception that fits: `except FileNotFoundError` and `except ValueError` work.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any


class FoveateError(Exception):
    """Base of all errors that foveate raises on purpose.

    Args:
        received: what came, with the offending value in it.
        expected: what would have been right.
        fix: what the reader can do now.
    """

    def __init__(self, received: str, *, expected: str, fix: str) -> None:
        super().__init__(received)
        self.received, self.expected, self.fix = received, expected, fix

    def __str__(self) -> str:
        return f"{self.received}\n  expected: {self.expected}\n  fix: {self.fix}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.received, self.expected, self.fix)  # so that worker processes can raise it


def _rebuilt(kind: type[FoveateError], received: str, expected: str, fix: str) -> FoveateError:
    return kind(received, expected=expected, fix=fix)


class OptionError(FoveateError, ValueError):
    """An argument outside its documented choices or range (a rank, a side, a mip level)."""


class ImageError(FoveateError):
    """An image cannot be found or read; the base of the classes that say why."""


class ImageNotFoundError(ImageError, FileNotFoundError):
    """The path of an image does not exist, or is not a file."""


class ImageFormatError(ImageError, ValueError):
    """The bytes are not an image in one of the allowed formats."""


class ImageDecodeError(ImageError, ValueError):
    """The bytes begin as an image, but cannot be decoded to the end."""


class ImageTooLargeError(ImageError, ValueError):
    """More bytes or pixels than the limits allow (a decompression bomb, for example)."""


class ImageArrayError(ImageError, ValueError):
    """An array that is not an image: wrong shape or dtype, an undeclared float range, NaN."""


class PageError(ImageError, OptionError):
    """A PDF without the page that was named, or with several pages of which none was named."""


class BadImagesError(ImageError, ValueError):
    """Of several images, some cannot be read. The others were encoded, and are kept here.

    Attributes:
        textures: in the order of the images, None where an image is bad. Empty after pickling.
        errors: place in that order, from 0 -> what is wrong with the image there.
    """

    def __init__(
        self,
        received: str,
        *,
        expected: str,
        fix: str,
        textures: Sequence[Any] = (),
        errors: Mapping[int, ImageError] = MappingProxyType({}),
    ) -> None:
        super().__init__(received, expected=expected, fix=fix)
        self.textures, self.errors = list(textures), dict(errors)


class ResolutionHint(UserWarning):
    """An image is much larger than what the encoder sees of it, and `long_side` was not named."""


class ChannelError(FoveateError, KeyError):
    """An unknown channel name or layout name."""

    __str__ = FoveateError.__str__  # KeyError would print the repr of the arguments


class UnbuiltChannelWarning(UserWarning):
    """A channel was read that was not built for this image: every value is the channel's neutral one."""


class TextureFileError(FoveateError, ValueError):
    """A file that is not a texture, or is damaged: names, shapes, dtypes or values are not what the format says."""


class TextureVersionError(TextureFileError):
    """A texture file or a scene of a version that this release cannot read."""


class TextureEncoderError(FoveateError, ValueError):
    """A texture is asked through another encoder, or another revision, than made it."""


class BasisFileError(FoveateError, ValueError):
    """Not a basis, or not as it was written."""


class WordsFileError(FoveateError, ValueError):
    """Not a file of taught words, or not as it was written."""


class EncoderNameError(FoveateError, ValueError):
    """No encoder of this name."""


class EncoderFilesError(FoveateError, OSError):
    """The files of a known encoder are missing, incomplete or cannot be downloaded."""


class EncoderOutputError(FoveateError, ValueError):
    """An encoder returned features or vectors that break its contract: wrong shape, not finite, too long."""


class DeviceError(FoveateError, RuntimeError):
    """A GPU lacks memory, failed, or cannot do the work; or tensors are on different devices, or were changed."""


class MissingExtraError(FoveateError, ImportError):
    """A feature needs an optional dependency that is not installed."""


class ModelFilesError(FoveateError, OSError):
    """Files of a model (depth, masks, a VLM, a projector) that are missing, incomplete or of another kind."""


class QueryError(FoveateError, ValueError):
    """A question that cannot be asked: empty, too long, or in no language the encoder knows."""


class QueryLanguageWarning(UserWarning):
    """A question that looks like another language than those the encoder reads, but may be a name."""


class BudgetWarning(UserWarning):
    """A budget of more visual tokens than there are: all are kept."""


class ReadingWarning(UserWarning):
    """The words of an image could not be read, where reading was not asked for; the texture has none."""


class BudgetError(FoveateError, ValueError):
    """A number of tokens that cannot be kept: not a whole number, below 1, or above the number of cells."""


class ModelError(FoveateError, ValueError):
    """A vision-language model, a processor or a version of transformers that cannot be used, or not in this way."""


class PromptError(FoveateError, ValueError):
    """A prompt that does not have one image token for each image."""


class SceneError(FoveateError, ValueError):
    """An encoded image of another model, without images, or encoded in another way than it is asked."""


class VideoNotFoundError(FoveateError, FileNotFoundError):
    """No video file, no images in a folder, or no camera of that number."""


class VideoError(FoveateError, ValueError):
    """A file that is no video, has no pictures, or has a frame that cannot be decoded."""


class OutputError(FoveateError, OSError):
    """A result could not be written. Nothing half-written is left behind."""


class EngineError(FoveateError, RuntimeError):
    """An engine that is not there, or whose workers keep failing."""


class StoreError(FoveateError, ValueError):
    """A place that holds no store, a store of another encoder or basis, or one that cannot do what is asked."""


class StoreVersionError(StoreError):
    """A store of a newer release, or of an earlier one, which `foveate store upgrade` takes over."""


class StoreNotFoundError(StoreError, FileNotFoundError):
    """No store at a path that was to be read: a folder that does not exist, or an empty one."""


class StoreKeyError(StoreError, KeyError):
    """An image that is not in the store, or a name that fits several."""

    __str__ = FoveateError.__str__  # KeyError would print the repr of the arguments


class StoreDamagedError(StoreError):
    """A store, or an image in it, whose bytes are not those that were written."""


@contextmanager
def needed_by(what: str, extra: str, more: str = "") -> Iterator[None]:
    """For the import of an optional package: if it fails, MissingExtraError says that `what` needs the extra."""
    try:
        yield
    except ImportError as cause:
        raise MissingExtraError(
            f"{what} needs {cause.name} of the extra [{extra}], which is not installed",
            expected=f"the extra [{extra}]",
            fix="; ".join(filter(None, (f"pip install 'foveate[{extra}]'", more))),
        ) from cause


def warn(note: str, kind: type[Warning]) -> None:
    """A warning that points at the caller's line: the nearest one outside of this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "foveate":
        level, frame = level + 1, frame.f_back
    warnings.warn(note, kind, stacklevel=level)
