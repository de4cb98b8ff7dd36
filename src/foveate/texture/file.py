"""Textures on disk: one safetensors file, written whole or not at all, believed only after every check.

`docs/format.md` is the specification. Reading checks names, shapes, dtypes, finiteness and the format version:
safetensors itself checks none of the last three.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from foveate.core.errors import FoveateError, TextureFileError, TextureVersionError
from foveate.core.files import carries, refuse_to_replace, write_whole
from foveate.core.grid import Grid
from foveate.core.layout import EVERY_NAME, FULL40, Channel, extra_channel
from foveate.texture.basis import Basis
from foveate.texture.planes import is_stored, quarter_shape
from foveate.texture.texture import EncoderStamp, Texture

FORMAT = "foveate-texture"
VERSION = 2  # 2: planes of one's own, and how channels were made
PLANE = "plane."


def save_texture(texture: Texture, path: str | os.PathLike[str]) -> None:
    """Write `path` (a .safetensors file by custom). Raises OutputError; then the path is as it was before.

    A texture that is there is replaced; any other file is not.
    """
    refuse_to_replace(
        Path(path),
        lambda file: carries(file, "foveate"),
        received=f"'{Path(path)}' exists and is no texture",
        expected="a new name, or the name of a texture, which is then replaced",
        fix="choose another name (textures end in .safetensors by custom), or remove the file first",
    )
    if not texture.name.isprintable():
        raise TextureFileError(
            f"a texture whose image is called {texture.name!r}",
            expected="a name that can be printed: no reader would accept the file",
            fix="dataclasses.replace(texture, name='photo')",
        )
    header = {
        "format": FORMAT,
        "version": VERSION,
        "layout": FULL40.name,
        "image": {"name": texture.name, "height": texture.grid.height, "width": texture.grid.width},
        "grid": list(texture.grid.shape),
        "channels": sorted(texture.planes),
        "made_by": dict(texture.made_by),
        "extra": {name: _described(channel) for name, channel in texture.extra.items()},
        "encoder": {
            "name": texture.encoder.name,
            "revision": texture.encoder.revision,
            "width": texture.encoder.width,
        },
        "preprocessing": dict(texture.preprocessing),
    }
    tensors: dict[str, NDArray[Any]] = {
        "pixel": texture.pixel,
        "embedding": texture.embedding,
        "residual": texture.residual,
        "basis.mean": texture.basis.mean,
        "basis.rows": texture.basis.rows,
        **{PLANE + name: plane for name, plane in texture.planes.items()},
    }
    if texture.valid is not None:
        tensors["valid"] = texture.valid
    broken = [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]
    if broken:
        raise TextureFileError(
            f"a texture whose {broken} hold NaN or infinite values",
            expected="finite values: no reader would accept the file",
            fix="look at what made the texture; foveate.encode refuses such features",
        )
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    write_whole(Path(path), to_bytes(contiguous, {"foveate": json.dumps(header, sort_keys=True, default=_number)}))


def _described(channel: Channel) -> dict[str, Any]:
    """JSON has no infinity: a range without end has no key."""
    said = {key: value for key, value in asdict(channel).items() if key not in ("name", "low", "high")}
    return said | {key: getattr(channel, key) for key in ("low", "high") if math.isfinite(getattr(channel, key))}


def _number(value: Any) -> Any:
    """NumPy's numbers, which an encoder of one's own may put into a grid, as Python's."""
    return value.item()


def load_texture(path: str | os.PathLike[str]) -> Texture:
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
            _check_names(names, header, file)
            return _build(header, {name: content.get_tensor(name) for name in names}, file)
    except FoveateError:
        raise
    except Exception as cause:  # a hostile file fails in many ways: no JSON, absurd numbers, dtypes NumPy lacks
        raise _damaged(file, f"not a whole texture ({type(cause).__name__}: {cause})") from cause


def _damaged(file: Path, what: str) -> TextureFileError:
    return TextureFileError(
        f"'{file}': {what}",
        expected="a texture as docs/format.md describes it",
        fix="encode the image again with 'foveate encode IMAGE -o FILE'",
    )


def _header(metadata: dict[str, str] | None, file: Path) -> dict[str, Any]:
    try:
        header = json.loads((metadata or {})["foveate"])
        known = header["format"] == FORMAT
        version = header["version"]
    except (KeyError, TypeError, ValueError):
        raise _damaged(file, "a safetensors file, but not a foveate texture") from None
    if not known or isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise _damaged(file, f"format {header.get('format')!r}, version {version!r}")
    if version > VERSION:
        raise TextureVersionError(
            f"'{file}' has texture format version {version}",
            expected=f"version {VERSION} or older",
            fix="upgrade foveate, or encode the image again with this release",
        )
    return dict(header)


def _check_names(names: set[str], header: dict[str, Any], file: Path) -> None:
    channels = header.get("channels")
    if not isinstance(channels, list) or not all(isinstance(c, str) for c in channels):
        raise _damaged(file, "the header does not list its channels")
    unknown = sorted(set(channels) - set(EVERY_NAME) - set(header.get("extra", {})))
    if unknown or len(set(channels)) < len(channels):
        raise _damaged(file, f"unknown channels {unknown}")
    if header.get("layout") != FULL40.name:
        raise _damaged(file, f"layout {header.get('layout')!r}")
    wanted = {"pixel", "embedding", "residual", "basis.mean", "basis.rows", *(PLANE + c for c in channels)}
    if names - {"valid"} != wanted:
        raise _damaged(
            file, f"tensors missing {sorted(wanted - names)}, unexpected {sorted(names - wanted - {'valid'})}"
        )


def _extras(header: dict[str, Any], file: Path) -> dict[str, Channel]:
    """Channels of one's own, by the rules for making them. Raises TextureFileError."""
    out = {}
    for name, said in header.get("extra", {}).items():
        if name not in header["channels"]:
            raise _damaged(file, f"channel '{name}' is described but not there")
        description = {"low": -math.inf, "high": math.inf, **said}
        try:
            out[name] = extra_channel(name, description.pop("native"), **description)
        except (FoveateError, KeyError, TypeError) as cause:
            raise _damaged(file, f"channel '{name}' is described as {said}") from cause
    return out


def _build(header: dict[str, Any], tensors: dict[str, NDArray[Any]], file: Path) -> Texture:
    height, width = int(header["image"]["height"]), int(header["image"]["width"])
    if min(height, width, *header["grid"]) < 1:
        raise _damaged(file, f"an image of {height} x {width} pixels in {header['grid']} cells")
    grid = Grid(int(header["grid"][0]), int(header["grid"][1]), height, width)
    stamp = header["encoder"]
    encoder = EncoderStamp(str(stamp["name"]), str(stamp["revision"]), int(stamp["width"]))
    preprocessing, image = dict(header["preprocessing"]), str(header["image"]["name"])
    if not image.isprintable():
        raise _damaged(file, f"the image's name is no text: {image!r}")
    rank = tensors["basis.rows"].shape[0] if tensors["basis.rows"].ndim == 2 else 0
    if rank < 1:
        raise _damaged(file, "an empty basis")

    def check(tensor: str, dtype: type, *shape: int) -> None:
        found = tensors[tensor]
        if found.dtype != dtype or found.shape != shape:
            raise _damaged(
                file, f"tensor '{tensor}' is {found.dtype} {list(found.shape)}, not {np.dtype(dtype)} {list(shape)}"
            )
        if not np.isfinite(found).all():
            raise _damaged(file, f"tensor '{tensor}' has NaN or infinite values")

    check("pixel", np.uint8, height, width, 3)
    check("embedding", np.float16, *grid.shape, rank)
    check("residual", np.float16, *grid.shape)
    if (tensors["residual"] < 0).any():
        raise _damaged(file, "tensor 'residual' has negative lengths")
    check("basis.mean", np.float32, encoder.width)
    check("basis.rows", np.float16, rank, encoder.width)
    if "valid" in tensors:
        check("valid", np.uint8, height, width)
    planes, extra = {}, _extras(header, file)
    shapes = {"cell": grid.shape, "quarter": quarter_shape(grid), "pixel": (height, width)}
    for name in header["channels"]:
        channel = extra.get(name) or EVERY_NAME[name]
        if not is_stored(channel):
            raise _damaged(file, f"channel '{name}' is never stored as a plane")
        check(PLANE + name, np.float16, *shapes[channel.native])
        planes[name] = tensors[PLANE + name]
        if planes[name].size and not channel.low <= planes[name].min() <= planes[name].max() <= channel.high:
            raise _damaged(file, f"channel '{name}' leaves its range, {channel.low:g} to {channel.high:g}")
    return Texture(
        grid=grid,
        pixel=tensors["pixel"],
        valid=tensors.get("valid"),
        planes=planes,
        embedding=tensors["embedding"],
        basis=Basis(tensors["basis.mean"], tensors["basis.rows"]),
        residual=tensors["residual"],
        encoder=encoder,
        preprocessing=preprocessing,
        name=image,
        made_by={str(k): str(v) for k, v in header.get("made_by", {}).items()},
        extra=extra,
    )
