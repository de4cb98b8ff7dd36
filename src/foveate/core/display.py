"""Values that show themselves. `foveate.viz` draws them, imported on demand: the only import upwards in the package."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from foveate.core.errors import FoveateError, OptionError, OutputError
from foveate.core.files import write_whole

if TYPE_CHECKING:
    from PIL import Image

# By the end of a file's name: Pillow's name of the format, and its options; chosen by hand.
FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    ".png": ("PNG", {"compress_type": 3}),  # runs alone (Z_RLE): 48 ms for 78 at level 4, 9 % more bytes
    ".jpg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".jpeg": ("JPEG", {"quality": 95, "subsampling": 0}),
    ".webp": ("WEBP", {"quality": 95}),
    ".tif": ("TIFF", {"compression": "tiff_lzw"}),
    ".tiff": ("TIFF", {"compression": "tiff_lzw"}),
    ".pdf": ("PDF", {}),
}
NOTEBOOK, SMALLEST = 600_000, 0.5  # pixels of a picture in a notebook, and the least share of a side; by hand


class Drawable:
    """A value that has a picture; `foveate.viz.picture_of` documents what it shows, and its options."""

    __slots__ = ()
    _drawn_by: ClassVar[str] = "picture_of"  # of foveate.viz

    def picture(self, **how: Any) -> Image.Image:
        """The value as a picture, RGB; options as of `foveate.viz.picture_of`. Raises OptionError."""
        draw = getattr(importlib.import_module("foveate.viz"), self._drawn_by)
        drawn: Image.Image = draw(self, **check_how(how, draw))
        return drawn

    def show(self, **how: Any) -> None:
        """Show the picture in a notebook or a viewer; else write a PNG into the current folder. Raises OutputError."""
        drawn = self.picture(**how)
        if in_notebook():
            importlib.import_module("IPython.display").display(drawn)
        elif not (has_desktop() and importlib.import_module("PIL.ImageShow").show(drawn)):
            name = type(self).__name__.lower()
            path = free_path(Path(f"{name}.png"))
            write_whole(path, encode_picture(drawn, path))
            print(f"no viewer here: the picture is in {path.resolve()}")

    def save_image(self, path: str | os.PathLike[str], **how: Any) -> None:
        """Write the picture: `path` ends in .png, .jpg, .webp, .tif or .pdf. Raises OptionError, OutputError."""
        target = check_picture_path(path)
        write_whole(target, encode_picture(self.picture(**how), target))

    def _repr_png_(self) -> bytes | None:
        """A smaller picture at the end of a notebook's cell; None (text instead) where there is nothing to draw."""
        try:
            drawn = self.picture()
        except FoveateError:
            return None
        share = max(SMALLEST, (NOTEBOOK / (drawn.width * drawn.height)) ** 0.5)
        if share < 1:
            drawn = drawn.resize((round(drawn.width * share), round(drawn.height * share)), reducing_gap=2.0)
        return encode_picture(drawn, Path("picture.png"))


def check_how(how: dict[str, Any], draw: Callable[..., Any]) -> dict[str, Any]:
    """The options of a picture, if the function that draws it takes them. Raises OptionError."""
    taken = inspect.signature(draw).parameters.values()
    known = [one.name for one in taken if one.kind is one.KEYWORD_ONLY]
    unknown = next((name for name in how if name not in known), None)
    if unknown is None or any(one.kind is one.VAR_KEYWORD for one in taken):
        return how
    raise OptionError(
        f"{unknown}={how[unknown]!r} of a picture"[:200],
        expected=f"some of {', '.join(known)}" if known else "none: this picture has no options",
        fix="leave it out",
    )


def check_picture_path(path: str | os.PathLike[str]) -> Path:
    """A path whose end names a format, in a folder that is there. Raises OptionError or OutputError."""
    try:
        target = Path(path)
    except TypeError:
        raise OptionError(
            f"path={path!r}, of type {type(path).__name__}", expected="the name of a file", fix='pass "picture.png"'
        ) from None
    expected = "a name that ends in " + ", ".join(FORMATS)
    if target.is_dir():
        raise OutputError(f"'{target}' is a folder", expected=expected, fix=f"pass '{target / 'picture.png'}'")
    if target.suffix.lower() not in FORMATS:
        raise OptionError(
            f"a picture named '{target.name}'", expected=expected, fix=f"pass '{target.with_suffix('.png')}'"
        )
    if not target.parent.is_dir():
        raise OutputError(
            f"there is no folder '{target.parent}' for '{target.name}'",
            expected="a folder that is there",
            fix="make it first, or choose another",
        )
    return target


def encode_picture(picture: Image.Image, path: Path) -> bytes:
    """The bytes of a picture in the format that the end of a path names. Raises OutputError."""
    kind, options = FORMATS[path.suffix.lower()]
    content = io.BytesIO()
    try:
        picture.convert("RGB").save(content, kind, **options)
    except (OSError, ValueError) as cause:  # WebP ends at 16,383 pixels, JPEG at 65,535; Pillow may lack one of them
        width, height = picture.size
        raise OutputError(
            f"a picture of {width} x {height} pixels cannot be written as {kind} ({cause})",
            expected="a format that can hold it",
            fix=f"pass '{path.with_suffix('.png')}'",
        ) from cause
    return content.getvalue()


def free_path(path: Path) -> Path:
    """The path, or the first of `name-2.png`, `name-3.png`, ... that is not there."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None


def has_desktop() -> bool:
    if sys.platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in os.environ
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
