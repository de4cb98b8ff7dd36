"""A scene in a folder: texture files, and one scene.json that says where each belongs.

scene.json is replaced last, so after a crash the folder holds the old scene or the new one. One writer at a time. The
image is not kept; `load` compares its size and overview, which a small change does not alter.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from foveate.core.errors import FoveateError, OptionError, OutputError, TextureFileError, TextureVersionError
from foveate.core.files import check_target, make_folder, write_whole
from foveate.core.grid import Box
from foveate.core.image import Bytes
from foveate.core.readonly import ReadOnly
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Encoder
from foveate.texture.texture import Texture
from foveate.tiles.raster import Raster, open_raster
from foveate.tiles.scene import LARGEST_TILE, LEAST_TILE, Place, Scene, read_overviews, tile_box, tile_counts

FORMAT, VERSION = "foveate-scene", 1
INDEX = "scene.json"
OURS = re.compile(r"(overview|window-\d+|tile-\d+-\d+)-[0-9a-f]{16}\.safetensors")
NO_FOLDERS = (".safetensors", ".json", ".png", ".jpg", ".jpeg", ".tif", ".tiff")
SAME = 2  # levels of 255 by which overviews may differ: releases of decoders and OpenCV round differently


def save(scene: Scene, folder: str | os.PathLike[str]) -> None:
    """Write a scene into a folder, made or replaced. Raises OutputError; the folder then holds what it held before."""
    path = check_folder(folder)
    ours = "index of a scene"
    check_target(path / INDEX, ours, lambda file: bool(json.loads(file.read_text("utf-8"))["format"] == FORMAT))
    make_folder(path)
    stamp, (height, width) = scene.overview.encoder, scene.raster.size
    index: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "image": {"name": scene.raster.name, "height": height, "width": width},
        "side": scene.side,
        "encoder": {"name": stamp.name, "revision": stamp.revision},
        "overview": _keep(path, "overview", scene.overview),
        "windows": [
            {"box": list(box), "file": _keep(path, f"window-{number}", texture)}
            for number, (box, texture) in enumerate(scene.windows.items())
        ],
        "tiles": [
            {"place": list(place), "file": _keep(path, f"tile-{place[0]}-{place[1]}", texture)}
            for place, texture in scene.tiles.items()
        ],
    }
    write_whole(path / INDEX, json.dumps(index).encode())
    named = {index["overview"], *(entry["file"] for kind in ("windows", "tiles") for entry in index[kind])}
    for file in path.iterdir():
        if OURS.fullmatch(file.name) and file.name not in named:
            with contextlib.suppress(OSError):  # it does no harm
                file.unlink()


def load(
    folder: str | os.PathLike[str], image: str | os.PathLike[str] | Bytes, *, encoder: str | Encoder | None = None
) -> Scene:
    """Read a scene that `save` wrote, over the image that it was made of: nothing is encoded.

    Args:
        image: as for `survey`.
        encoder: the one that made the scene, if it does not come with foveate.

    Raises the Image...Errors; OptionError for another image than the scene's; TextureFileError, TextureVersionError;
    TextureEncoderError for another encoder, or another revision of it.
    """
    path = Path(folder)
    raster = open_raster(image)
    try:
        index = _read_index(path)
        side, size = int(index["side"]), (int(index["image"]["height"]), int(index["image"]["width"]))
        if not LEAST_TILE <= side <= LARGEST_TILE:
            raise ValueError(f"tiles of {side} pixels")
        overview = _read(path, index["overview"])
        _check_image(path, raster, size, overview)
        windows: dict[Box, Texture] = {}
        for entry in index["windows"]:
            y0, x0, y1, x1 = (int(v) for v in entry["box"])
            if not (0 <= y0 < y1 <= size[0] and 0 <= x0 < x1 <= size[1]):
                raise ValueError(f"a window at {entry['box']}")
            windows[y0, x0, y1, x1] = _read(path, entry["file"], overview)
        tiles: dict[Place, Texture] = {}
        rows, cols = tile_counts(size, side)
        for entry in index["tiles"]:
            row, col = (int(v) for v in entry["place"])
            if not (0 <= row < rows and 0 <= col < cols):
                raise ValueError(f"a tile at {entry['place']}")
            tile = tiles[row, col] = _read(path, entry["file"], overview)
            y0, x0, y1, x1 = tile_box((row, col), size, side)
            if (tile.grid.height, tile.grid.width) != (y1 - y0, x1 - x0):
                raise ValueError(f"a tile of {tile.grid.height} x {tile.grid.width} pixels")
    except FoveateError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, OSError, RecursionError) as cause:
        raise TextureFileError(
            f"'{path}' is no whole scene ({type(cause).__name__}: {cause})",
            expected=f"{INDEX} and the textures it names, as tiles.save writes them",
            fix="survey the image again, and save the scene once more",
        ) from cause
    return Scene(raster, overview, ReadOnly(windows), ReadOnly(tiles), side, match_encoder(overview.encoder, encoder))


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """The path of a folder for a scene. Raises OutputError for a new one that is named like a file."""
    path = Path(folder)
    if path.suffix.lower() in NO_FOLDERS and not path.is_dir():
        raise OutputError(
            f"a scene in '{path.name}'", expected="the name of a folder", fix=f"pass '{path.with_suffix('')}'"
        )
    return path


def is_scene(folder: str | os.PathLike[str]) -> bool:
    return (Path(folder) / INDEX).is_file()


def _keep(path: Path, part: str, texture: Texture) -> str:
    """Write a texture under a name made of its content, unless it is there. -> the name of the file."""
    digest = hashlib.sha256(json.dumps([texture.encoder.name, texture.encoder.revision]).encode())
    arrays = {"pixel": texture.pixel, "embedding": texture.embedding, "residual": texture.residual, **texture.planes}
    for name in sorted(arrays):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    file = path / f"{part}-{digest.hexdigest()[:16]}.safetensors"
    try:
        Texture.load(file)
    except TextureFileError:  # not there, or damaged since: then it would not be replaced
        file.unlink(missing_ok=True)
        texture.save(file)
    return file.name


def _read(path: Path, name: Any, like: Texture | None = None) -> Texture:
    if not isinstance(name, str) or not OURS.fullmatch(name):  # a path out of the folder does not match either
        raise ValueError(f"a file named {name!r}")
    texture = Texture.load(path / name)
    if like is not None and texture.encoder != like.encoder:
        raise ValueError(f"'{name}' was made by another encoder")
    return texture


def _read_index(path: Path) -> dict[str, Any]:
    try:
        index = dict(json.loads((path / INDEX).read_text("utf-8")))
    except FileNotFoundError:
        raise TextureFileError(
            f"no scene in '{path}'", expected=f"a folder with {INDEX}, as tiles.save writes it", fix="check the path"
        ) from None
    if index["format"] != FORMAT or type(index["version"]) is not int:
        raise ValueError(f"{INDEX} is not that of a scene")
    if index["version"] != VERSION:
        raise TextureVersionError(
            f"the scene in '{path}' has version {index['version']}",
            expected=f"version {VERSION}",
            fix="survey the image again with this release, or upgrade foveate",
        )
    return index


def _check_image(path: Path, raster: Raster, size: tuple[int, int], overview: Texture) -> None:
    what = ""
    if raster.size != size:
        what = f"{raster.size[0]} x {raster.size[1]} pixels, not {size[0]} x {size[1]}"
    else:
        now, then = read_overviews(raster)[1].astype(np.int16), overview.pixel.astype(np.int16)
        if now.shape != then.shape or np.abs(now - then).max() > SAME:
            what = "other pixels"
    if what:
        raise OptionError(
            f"the image '{raster.name}' with the scene in '{path}': it has {what}",
            expected="the image that the scene was made of",
            fix="pass that image, or survey this one and keep its scene in another folder",
        )
