"""Texture files: one safetensors file, specified by docs/format.md; everything is checked before it is returned."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from foveate.core.errors import FoveateError, TextureFileError, TextureVersionError
from foveate.core.files import carries, check_target, write_whole
from foveate.core.grid import Grid
from foveate.core.layout import EVERY_NAME, FULL40, Channel, extra_channel, native_shape
from foveate.reading.readers import MOST
from foveate.reading.words import LETTERS, Words
from foveate.texture.basis import Basis, packed, unpacked

FORMAT = "foveate-texture"
VERSION, COLUMNS = 1, 4  # of files with a whole basis; of those that keep the columns that are used
PLANE = "plane."
WORDS = ("words.texts", "words.boxes", "words.confidences", "words.line_numbers")


def save_parts(path: str | os.PathLike[str], parts: Mapping[str, Any]) -> None:
    """Write a texture file, in the place of another one; `parts` are the keyword arguments of `Texture`.

    Raises OutputError for another suffix than .safetensors, and where a file of another kind is; TextureFileError.
    """
    file, grid, name = Path(path), parts["grid"], parts["name"]
    check_target(file, "texture", lambda there: carries(there, "foveate"), suffix=".safetensors")
    words: Words | None = parts["words"]
    basis = packed(parts["basis"])
    if 2 * basis["mean"].size > parts["basis"].width:
        basis = {"mean": parts["basis"].mean, "rows": parts["basis"].rows}
    tensors = {
        **{key: parts[key] for key in ("pixel", "embedding", "residual")},
        **{f"basis.{key}": part for key, part in basis.items()},
        **({} if parts["valid"] is None else {"valid": parts["valid"]}),
        **{PLANE + key: plane for key, plane in parts["planes"].items()},
        **({} if words is None else words_tensors(words)),
        **({} if parts["looks"] is None else {"looks": parts["looks"]}),
    }
    broken = [key for key, tensor in tensors.items() if not np.isfinite(tensor).all()]
    if broken or not name.isprintable():
        raise TextureFileError(
            f"a texture of {name!r}" + (f" whose {broken} hold NaN or infinite values" if broken else ""),
            expected="finite values and a printable name: no reader would accept the file",
            fix="look at what made the texture; dataclasses.replace(texture, name='photo') gives another name",
        )
    header = {
        "format": FORMAT,
        "version": COLUMNS if "columns" in basis else VERSION,
        "layout": FULL40.name,
        "image": {"name": name, "height": grid.height, "width": grid.width},
        "grid": list(grid.shape),
        "channels": sorted(parts["planes"]),
        "made_by": dict(parts["made_by"]),
        "extra": {key: _description(channel) for key, channel in parts["extra"].items()},
        "encoder": dict(parts["encoder"]),
        "preprocessing": dict(parts["preprocessing"]),
        **({} if words is None else {"words": {"reader": words.reader, "turned": words.turned}}),
    }
    # default: NumPy's numbers, which a third-party encoder may put into a grid, become Python's
    metadata = {"foveate": json.dumps(header, sort_keys=True, default=lambda value: value.item())}
    write_whole(file, to_bytes({key: np.ascontiguousarray(tensor) for key, tensor in tensors.items()}, metadata))


def words_tensors(words: Words) -> dict[str, NDArray[Any]]:
    """Words as arrays by name: texts as UTF-8 with a line feed after each."""
    texts = "".join(f"{text}\n" for text in words.texts).encode("utf-8", "replace")
    arrays = (np.frombuffer(texts, np.uint8), words.boxes, words.confidences, words.line_numbers)
    return dict(zip(WORDS, arrays, strict=True))


def words_of(tensors: Mapping[str, NDArray[Any]], reader: str, turned: int, size: tuple[int, int]) -> Words:
    """The words of which `words_tensors` made arrays, in an image (height, width). Raises ValueError."""
    texts, boxes, confidences, lines = (tensors[name] for name in WORDS)
    n = len(confidences)
    kinds = (np.uint8, np.float32, np.float32, np.int32)
    shapes = ((texts.size,), (n, 4), (n,), (n,))
    for name, kind, shape in zip(WORDS, kinds, shapes, strict=True):
        if tensors[name].dtype != kind or tensors[name].shape != shape:
            raise ValueError(f"tensor '{name}' is {tensors[name].dtype} {list(tensors[name].shape)}")
    split = texts.tobytes().decode("utf-8").split("\n")
    if len(split) != n + 1 or split.pop():
        raise ValueError(f"{n} words with other texts")
    if n > MOST or max(map(len, split), default=0) > LETTERS:
        raise ValueError(f"{n} words, the longest of {max(map(len, split), default=0)} characters")
    if not ((boxes >= 0).all() and (boxes[:, 2:] <= size).all()):
        raise ValueError("boxes of words that leave the image")
    return Words(tuple(split), boxes, confidences, lines, reader, turned)


def _description(channel: Channel) -> dict[str, Any]:
    # JSON has no infinity: a range without an end has no key
    out = {key: value for key, value in asdict(channel).items() if key != "name"}
    return {key: value for key, value in out.items() if not (isinstance(value, float) and math.isinf(value))}


def load_parts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and check a texture file. Raises TextureFileError, TextureVersionError."""
    file = Path(path)
    try:
        found = file.is_file()
    except (OSError, ValueError):
        found = False
    if not found:
        raise TextureFileError(
            f"no texture file at '{file}'", expected="a file written by foveate encode", fix="check the path"
        )
    try:
        with safe_open(file, framework="np") as content:
            header = _header(content.metadata(), file)
            names = set(content.keys())
            _check_names(names, header)
            return _parts(header, {name: content.get_tensor(name) for name in names})
    except TextureVersionError:
        raise
    except Exception as cause:  # a hostile file fails in many ways: no JSON, absurd numbers, dtypes NumPy lacks
        what = str(cause) if isinstance(cause, ValueError) else f"not a whole texture ({type(cause).__name__}: {cause})"
        raise TextureFileError(
            f"'{file}': {what}",
            expected="a texture as docs/format.md describes it",
            fix="encode the image again with 'foveate encode IMAGE -o FILE'",
        ) from cause


def _header(metadata: Mapping[str, str] | None, file: Path) -> dict[str, Any]:
    try:
        header = dict(json.loads((metadata or {})["foveate"]))
        known, version = header["format"] == FORMAT, header["version"]
    except (KeyError, TypeError, ValueError):
        raise ValueError("a safetensors file, but not a foveate texture") from None
    if not known or type(version) is not int or version < 1:
        raise ValueError(f"format {header['format']!r}, version {version!r}")
    if version not in (VERSION, COLUMNS):
        raise TextureVersionError(
            f"'{file}' has texture format version {version}",
            expected=f"version {VERSION} or {COLUMNS}; versions 2 and 3 were written before the first release",
            fix="encode the image again with this release; a file of a newer release: upgrade foveate",
        )
    return header


def _check_names(names: set[str], header: Mapping[str, Any]) -> None:
    channels = header.get("channels")
    if not isinstance(channels, list) or not all(isinstance(name, str) for name in channels):
        raise ValueError("the header does not list its channels")
    unknown = sorted(set(channels) - set(EVERY_NAME) - set(header["extra"]))
    if unknown or len(set(channels)) < len(channels):
        raise ValueError(f"unknown channels {unknown}")
    if header.get("layout") != FULL40.name:
        raise ValueError(f"layout {header.get('layout')!r}")
    wanted = {"pixel", "embedding", "residual", "basis.mean", "basis.rows", *(PLANE + name for name in channels)}
    wanted |= {"basis.columns"} if header["version"] == COLUMNS else set()
    wanted |= set(WORDS) if "words" in header else set()
    names = names - {"valid", "looks"}
    if names != wanted:
        raise ValueError(f"tensors missing {sorted(wanted - names)}, unexpected {sorted(names - wanted)}")


def _extras(header: Mapping[str, Any]) -> dict[str, Channel]:
    out = {}
    for name, description in header["extra"].items():
        if name not in header["channels"]:
            raise ValueError(f"channel '{name}' is described but not there")
        try:
            out[name] = extra_channel(name, **{"low": -math.inf, "high": math.inf, **description})
        except (FoveateError, TypeError) as cause:
            raise ValueError(f"channel '{name}' is described as {description}") from cause
    return out


def _parts(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    image, stamp = header["image"], header["encoder"]
    height, width, name = int(image["height"]), int(image["width"]), str(image["name"])
    if min(height, width, *header["grid"]) < 1:
        raise ValueError(f"an image of {height} x {width} pixels in {header['grid']} cells")
    if not name.isprintable():
        raise ValueError(f"the image's name is no text: {name!r}")
    grid = Grid(int(header["grid"][0]), int(header["grid"][1]), height, width)
    encoder: dict[str, Any] = {
        "name": str(stamp["name"]),
        "revision": str(stamp["revision"]),
        "width": int(stamp["width"]),
    }
    rank = tensors["basis.rows"].shape[0] if tensors["basis.rows"].ndim == 2 else 0
    if rank < 1:
        raise ValueError("an empty basis")

    def tensor(key: str, dtype: type, *shape: int) -> NDArray[Any]:
        found = tensors[key]
        if found.dtype != dtype or found.shape != shape:
            raise ValueError(
                f"tensor '{key}' is {found.dtype} {list(found.shape)}, not {np.dtype(dtype)} {list(shape)}"
            )
        if not np.isfinite(found).all():
            raise ValueError(f"tensor '{key}' has NaN or infinite values")
        return found

    planes, extra = {}, _extras(header)
    for key in header["channels"]:
        channel = extra.get(key) or EVERY_NAME[key]
        if not channel.stored:
            raise ValueError(f"channel '{key}' is never stored as a plane")
        plane = planes[key] = tensor(PLANE + key, np.float16, *native_shape(channel.native, grid))
        if plane.size and not channel.low <= plane.min() <= plane.max() <= channel.high:
            raise ValueError(f"channel '{key}' leaves its range, {channel.low:g} to {channel.high:g}")
    residual = tensor("residual", np.float16, *grid.shape)
    if (residual < 0).any():
        raise ValueError("tensor 'residual' has negative lengths")
    return {
        "grid": grid,
        "pixel": tensor("pixel", np.uint8, height, width, 3),
        "valid": tensor("valid", np.uint8, height, width) if "valid" in tensors else None,
        "planes": planes,
        "embedding": tensor("embedding", np.float16, *grid.shape, rank),
        "basis": _basis(header, tensor, rank, encoder["width"]),
        "residual": residual,
        "encoder": encoder,
        "preprocessing": dict(header["preprocessing"]),
        "name": name,
        "made_by": {str(key): str(value) for key, value in header["made_by"].items()},
        "extra": extra,
        "words": _words(header, tensors, (height, width)),
        "looks": _looks(tensors, grid) if "looks" in tensors else None,
    }


def _basis(header: Mapping[str, Any], tensor: Callable[..., NDArray[Any]], rank: int, width: int) -> Basis:
    if header["version"] == VERSION:
        return Basis(tensor("basis.mean", np.float32, width), tensor("basis.rows", np.float16, rank, width))
    columns = tensor("basis.columns", np.uint8, -(-width // 8))
    used = int.from_bytes(columns.tobytes()).bit_count()
    mean, rows = tensor("basis.mean", np.float32, used), tensor("basis.rows", np.float16, rank, used)
    return unpacked(columns, mean, rows, width)


def _looks(tensors: Mapping[str, NDArray[Any]], grid: Grid) -> NDArray[Any]:
    looks = tensors["looks"]
    if looks.dtype != np.int8 or looks.ndim != 3 or looks.shape[:2] != (-(-grid.h // 2), -(-grid.w // 2)):
        raise ValueError(f"tensor 'looks' is {looks.dtype} {list(looks.shape)}")
    return looks


def _words(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], size: tuple[int, int]) -> Words | None:
    if "words" not in header:
        return None
    about = header["words"]
    return words_of(tensors, str(about["reader"]), int(about["turned"]), size)
