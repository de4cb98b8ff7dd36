"""Any image -> upright RGB uint8 [H, W, 3], and its opacity.

* Formats are an allow-list, decided by content; limits on bytes and pixels come before decoding.
* EXIF orientation is applied. Alpha is composited over white and kept.
* 16-bit grey is scaled by 1/257, 16-bit colour shifted by Pillow. Floats and 32-bit integers need a declared range.

Not covered: colour profiles, the transparent value of a 16-bit grey PNG, frames after the first.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from foveate.core import errors
from foveate.core.checks import check_array

FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF")
UPRIGHT, TURNED = 1, (5, 6, 7, 8)  # orientations of EXIF: as it is, and those with rows for columns
SCALES = (8, 4, 2)  # by which a decoder of JPEG divides an image's sides at little cost
STRIP = 2**18  # bytes taken out of Pillow at a time: they stay in the processor's cache
MAX_BYTES, MAX_PIXELS = 256 * 2**20, 64_000_000  # chosen by hand, against decompression bombs
PILLOWS_LIMIT = 178_956_970  # pixels: Pillow's own
TEXTURE_START = b'{"__metadata__":{"foveate"'  # near the beginning of a texture file
PDF_START = b"%PDF-"  # within the first 1,024 bytes
ADDRESS = re.compile("(https?|ftp|s3|gs|file):/", re.IGNORECASE)

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Picture:
    """A decoded image."""

    rgb: Bytes  # [H, W, 3], upright, alpha composited over white
    valid: Bytes | None  # [H, W], 255 where the image is opaque; None where it has no alpha
    name: str  # file name, or the kind of object it came from; for messages and headers

    def __repr__(self) -> str:
        alpha = "" if self.valid is None else ", with alpha"
        return f"Picture({self.name!r}, {self.rgb.shape[0]} x {self.rgb.shape[1]} px{alpha})"

    @property
    def size(self) -> tuple[int, int]:
        """(H, W) in pixels."""
        return self.rgb.shape[0], self.rgb.shape[1]

    def overview(self, long_side: int) -> Bytes:
        """The whole by area means, its long side at most `long_side`: uint8 [h, w, 3]."""
        return np.ascontiguousarray(shrink(self.rgb, long_side))

    def region(self, y0: int, x0: int, y1: int, x1: int) -> Bytes:
        """The pixels of a box inside the image: uint8 [y1 - y0, x1 - x0, 3]."""
        return np.ascontiguousarray(self.rgb[y0:y1, x0:x1])


ImageSource: TypeAlias = str | os.PathLike[str] | bytes | io.IOBase | Image.Image | NDArray[np.generic] | Picture


def load_image(
    source: ImageSource,
    *,
    value_range: tuple[float, float] | None = None,
    max_bytes: int = MAX_BYTES,
    max_pixels: int = MAX_PIXELS,
) -> Picture:
    """Read an image from a path, an open file, encoded bytes, a PIL image, an array or a tensor.

    Args:
        source: path; file that is open for reading bytes; bytes of a file; PIL image; array [H, W], [H, W, 1],
            [H, W, 3] or [H, W, 4] of uint8, uint16 (scaled by 1/257) or, with `value_range`, any other number; torch
            tensor of these, or [C, H, W]; or a Picture, which is returned as it is.
        value_range: (black, white) of pixels that are neither uint8 nor uint16; values outside are clipped.
        max_bytes, max_pixels: limits, checked before decoding, beside Pillow's own of 179 million pixels for files.

    Raises ImageNotFoundError, ImageFormatError, ImageDecodeError, ImageTooLargeError or ImageArrayError.
    """
    if isinstance(source, Picture):
        return source
    if isinstance(source, Image.Image):
        return _from_pil(source, "PIL image", value_range, max_pixels)
    if isinstance(source, str | os.PathLike | bytes | bytearray | memoryview | io.IOBase):
        content, name = read_source(source, max_bytes)
        return _from_bytes(content, name, value_range, max_pixels)[0]
    if hasattr(source, "__array__"):
        return _from_array(np.asarray(_channels_last(source)), value_range, max_pixels)
    kind = type(source).__name__
    raise errors.ImageArrayError(
        f"an image given as {kind}",
        expected="a path, an open file, bytes, a PIL image, a NumPy array or a tensor",
        fix="pixels in lists: np.asarray(pixels, np.uint8)" if kind in ("list", "tuple") else "pass its path",
    )


def _channels_last(array: Any) -> Any:
    """A torch tensor [C, H, W], as torch has images, as [H, W, C]; anything else, and what may be either, as it is."""
    if hasattr(array, "permute") and array.ndim == 3:
        first, last = (array.shape[axis] in (1, 3, 4) for axis in (0, 2))
        if first and not last:
            return array.detach().cpu().permute(1, 2, 0)
    return array


def load_reduced(source: ImageSource, at_least: int | None) -> tuple[Picture, tuple[int, int]]:
    """An image at least `at_least` pixels long, and its whole (H, W). Only JPEGs are reduced."""
    if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview | io.IOBase):
        picture = load_image(source)
        return picture, picture.size
    content, name = read_source(source)
    return _from_bytes(content, name, None, MAX_PIXELS, at_least)


def first_bytes(source: object, count: int) -> bytes:
    """The first bytes of a file or of bytes; none of what cannot be read."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source[:count])
    try:
        path = Path(source)  # type: ignore[arg-type]
        if not path.is_file():  # a pipe may never end
            return b""
        with path.open("rb") as file:
            return file.read(count)
    except (OSError, ValueError, TypeError):
        return b""


def refuse_address(source: str | os.PathLike[str]) -> None:
    """Raises ImageNotFoundError for a web address in the place of a path, also one whose slash `Path` took away."""
    text = os.fspath(source)
    if isinstance(text, str) and ADDRESS.match(text):
        raise errors.ImageNotFoundError(
            f"the address '{text[:200].replace(':/', '://', 1).replace(':///', '://', 1)}' in the place of a path",
            expected="the path of an image on this machine: nothing is fetched from the network",
            fix="download it first, and pass the file's path or its bytes",
        )


def fit_size(size: tuple[int, int], long_side: int | None) -> tuple[int, int]:
    """(H, W) with the same aspect whose long side is at most `long_side` (None: any); never larger than it was."""
    if long_side is None or max(size) <= long_side:
        return size
    scale = long_side / max(size)
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def shrink(rgb: Bytes, long_side: int | None) -> Bytes:
    """An image uint8 [H, W, 3] scaled down by area means, where its long side is above `long_side`."""
    h, w = fit_size((rgb.shape[0], rgb.shape[1]), long_side)
    if (h, w) == rgb.shape[:2]:
        return rgb
    import cv2

    return np.asarray(cv2.resize(rgb, (w, h), interpolation=cv2.INTER_AREA), np.uint8)


def is_one_colour(rgb: Bytes) -> bool:
    return bool((rgb[0] == rgb[0, 0]).all() and (rgb == rgb[0, 0]).all())  # the first row of a photograph says no


def read_source(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | io.IOBase, max_bytes: int = MAX_BYTES
) -> tuple[bytes, str]:
    """The bytes of a file and its name, for messages. Raises ImageNotFoundError, ImageTooLargeError, ImageArrayError.

    An open file is read from where it stands.
    """
    if isinstance(source, str | os.PathLike):
        refuse_address(source)
        path = Path(source)
        name = path.name.encode("utf-8", "replace").decode()  # a name that is no text must not break messages
        content = _read(path, max_bytes)
    elif isinstance(source, io.IOBase):
        name, content = Path(str(getattr(source, "name", "file"))).name, _read_stream(source, max_bytes)
    else:
        name, content = "bytes", bytes(source)
    if len(content) > max_bytes:
        raise errors.ImageTooLargeError(
            f"'{name}' has more than {max_bytes:,} bytes",
            expected=f"at most {max_bytes:,}",
            fix="if you trust it: foveate.encode(foveate.load_image(source, max_bytes=...))",
        )
    return content, name


def _read_stream(file: Any, max_bytes: int) -> bytes:
    try:
        content = file.read(max_bytes + 1)
    except (OSError, ValueError) as cause:  # ValueError: a closed file
        raise errors.ImageArrayError(
            f"an open file that cannot be read ({cause})",
            expected="one that is open for reading bytes",
            fix="with open(path, 'rb') as file: foveate.encode(file)",
        ) from cause
    if not isinstance(content, bytes) or not content:
        came = "has nothing left to read" if isinstance(content, bytes) else "gives text"
        raise errors.ImageArrayError(
            f"an open file that {came}",
            expected="one that is open for reading bytes, at its start",
            fix="file.seek(0) goes back to it; open(path, 'rb') reads bytes",
        )
    return content


def _read(path: Path, max_bytes: int) -> bytes:
    fix = f"check spelling and permissions; the working directory is '{Path.cwd()}'"
    try:
        if path.is_file():  # not a device or a pipe, which may never end
            with path.open("rb") as file:
                return file.read(max_bytes + 1)
        what = "is not a regular file" if path.exists() else ""
        if path.is_dir():
            what = "is a directory" + (" (an empty path means that, too)" if path == Path() else "")
            fix = "name one of its images; of a folder of images make a store: foveate index, then foveate search"
    except (OSError, ValueError) as cause:  # ValueError: a name with a null byte
        what = f"cannot be read ({cause})"
    raise errors.ImageNotFoundError(
        f"'{path}' {what}" if what else f"no file at '{path}'", expected="the path of an image, or of a PDF", fix=fix
    )


def _check_pixels(size: tuple[int, int], name: str, max_pixels: int) -> None:
    height, width = size
    if height * width > max_pixels:
        raise errors.ImageTooLargeError(
            f"'{name}' is {height:,} x {width:,} = {height * width / 1e6:,.1f} million pixels",
            expected=f"at most {max_pixels / 1e6:,.1f} million (a guard against decompression bombs)",
            fix="foveate zoom (foveate.tiles) is for such images; or shrink it; or, if you trust it: "
            "foveate.encode(foveate.load_image(source, max_pixels=...))",
        )
    if height < 1 or width < 1:
        raise errors.ImageArrayError(
            f"'{name}' is {height} x {width} pixels", expected="at least 1 x 1", fix="check how the image was cropped"
        )


def _from_bytes(
    content: bytes, name: str, value_range: tuple[float, float] | None, max_pixels: int, at_least: int | None = None
) -> tuple[Picture, tuple[int, int]]:
    """The picture, and its (H, W) before it was reduced."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            width, height = image.size
            _check_pixels((height, width), name, max_pixels)
            enough = [s for s in SCALES if at_least is not None and max(image.size) >= s * at_least]
            scale = next((s for s in enough if width % s == height % s == 0), 1)
            if scale > 1:
                image.draft(None, (width // scale, height // scale))  # of a JPEG; else nothing
            size = (width, height) if _orientation(image) in TURNED else (height, width)
            return _from_pil(image, name, value_range, max_pixels), size
    except UnidentifiedImageError:
        start = f"it begins with '{_printable(content[:12])}'" if content else "it has 0 bytes"
        raise errors.ImageFormatError(
            f"'{name}' is not an image that foveate reads ({start})",
            expected=", ".join(FORMATS) + ", judged by content and not by file name",
            fix="this looks like a texture: foveate.Texture.load(path), or foveate look PATH.safetensors"
            if TEXTURE_START in content[:64]
            else "foveate.encode, look, encode, read and view take a page of a PDF; elsewhere save the page as PNG"
            if PDF_START in content[:1024]
            else "convert it to PNG or JPEG, or download it again",
        ) from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as cause:
        count = re.search(r"\d+(?= pixels)", str(cause))  # Pillow refuses it before it says the size otherwise
        raise errors.ImageTooLargeError(
            f"'{name}' has {int(count[0]) / 1e6:,.1f} million pixels" if count else f"'{name}' has too many pixels",
            expected=f"at most {min(max_pixels, PILLOWS_LIMIT) / 1e6:,.1f} million",
            fix="make it smaller; or foveate zoom (foveate.tiles), which is for such images, as tiled TIFF",
        ) from None
    except (errors.ImageArrayError, errors.ImageDecodeError, errors.ImageTooLargeError):
        raise
    except Exception as cause:  # decoders fail in many ways: OSError, SyntaxError, struct.error, EOFError, ...
        raise undecodable(name, cause) from cause


def _printable(content: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in content)


def undecodable(name: str, cause: Exception) -> errors.ImageDecodeError:
    return errors.ImageDecodeError(
        f"'{name}' begins as an image, but cannot be decoded: {cause or type(cause).__name__}",
        expected="a complete, undamaged file",
        fix="download or export it again; foveate does not guess missing pixels",
    )


def _from_pil(image: Image.Image, name: str, value_range: tuple[float, float] | None, max_pixels: int) -> Picture:
    _check_pixels((image.height, image.width), name, max_pixels)
    try:
        image.load()
        upright = image if _orientation(image) == UPRIGHT else ImageOps.exif_transpose(image)  # which copies anyway
        if upright.mode.startswith("I;16"):
            return _from_array(np.asarray(upright).astype(np.uint16), value_range, max_pixels, name)
        if upright.mode in ("I", "F"):
            return _from_array(np.asarray(upright), value_range, max_pixels, name)
        if upright.mode == "1":
            upright = upright.convert("L")
        if upright.has_transparency_data:
            return _over_white(np.asarray(upright.convert("RGBA")), name)
        return Picture(_to_array(upright if upright.mode == "RGB" else upright.convert("RGB")), None, name)
    except errors.ImageArrayError:
        raise
    except Exception as cause:
        raise undecodable(name, cause) from cause


def _orientation(image: Image.Image) -> object:
    return image.getexif().get(ExifTags.Base.Orientation, UPRIGHT)


def _to_array(image: Image.Image) -> Bytes:
    """np.array(image) of mode RGB, in a quarter of the time where it is large."""
    out = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(1, STRIP // (3 * image.width))
    for top in range(0, image.height, rows):
        part = image.crop((0, top, image.width, min(top + rows, image.height)))
        out[top : top + rows] = np.frombuffer(part.tobytes(), np.uint8).reshape(part.height, image.width, 3)
    return out


def check_rgb(rgb: object) -> None:
    """Raises ImageArrayError unless an array is uint8 [H, W, 3] and not empty."""
    if not isinstance(rgb, np.ndarray):
        what = f"a {type(rgb).__name__}"
    elif rgb.dtype != np.uint8 or rgb.ndim != 3 or rgb.shape[2] != 3 or not rgb.size:
        what = f"an array of {rgb.dtype} {list(rgb.shape)}"
    else:
        return
    raise errors.ImageArrayError(
        f"{what} as pixels", expected="uint8 [H, W, 3], not empty", fix="load_image(source).rgb makes one of any image"
    )


def _from_array(
    array: NDArray[np.generic], value_range: tuple[float, float] | None, max_pixels: int, name: str = "array"
) -> Picture:
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        channels_first = array.ndim == 3 and array.shape[0] in (1, 3, 4)
        raise errors.ImageArrayError(
            f"an array of shape {list(array.shape)}",
            expected="[H, W], [H, W, 1], [H, W, 3] (RGB) or [H, W, 4] (RGBA), channels last",
            fix="transpose it with array.transpose(1, 2, 0)"
            if channels_first
            else "an array is one image; foveate.encode(list(array)) takes several"
            if array.ndim in (1, 4)
            else "reshape it",
        )
    _check_pixels(array.shape[:2], name, max_pixels)
    pixels = _to_uint8(array, value_range, name)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.shape[2] == 4:
        return _over_white(pixels, name)
    return Picture(np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], 3))), None, name)


def _to_uint8(array: NDArray[np.generic], value_range: tuple[float, float] | None, name: str) -> Bytes:
    if array.dtype == np.uint8:
        return array.astype(np.uint8, copy=True)
    if array.dtype == np.uint16:
        return np.rint(array.astype(np.float32) / 257).astype(np.uint8)
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    fix = "convert it, say with array.astype(np.uint8); np.nan_to_num replaces NaN"
    numbers = check_array(name, array, None, dtype=np.float64, fix=fix, error=errors.ImageArrayError)
    if value_range is None:
        low, high = numbers.min(), numbers.max()
        raise errors.ImageArrayError(
            f"'{name}' has {array.dtype} pixels from {low:.4g} to {high:.4g}, with no declared range",
            expected="value_range=(black, white) for pixels that are neither uint8 nor uint16",
            fix="pass foveate.load_image(array, value_range=(0, 1)) to encode, or (0, 255), whichever is true",
        )
    bounds = check_array("value_range", value_range, (2,), dtype=np.float64, error=errors.ImageArrayError)
    black, white = float(bounds[0]), float(bounds[1])
    if not white > black:
        raise errors.ImageArrayError(
            f"value_range=({black}, {white})", expected="black < white", fix="pass (0, 1), say"
        )
    return np.rint(np.clip((numbers - black) / (white - black), 0, 1) * 255).astype(np.uint8)


def _over_white(rgba: Bytes, name: str) -> Picture:
    alpha = rgba[..., 3:].astype(np.uint16)
    mixed = rgba[..., :3].astype(np.uint16) * alpha + 255 * (255 - alpha)
    valid = np.ascontiguousarray(rgba[..., 3])
    rgb = ((mixed + 127) // 255).astype(np.uint8)
    return Picture(rgb, None if (valid == 255).all() else valid, name)
