"""Files of results: a picture and a JSON file named after the question, and never in the place of other results."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image


def make_slug(query: str) -> str:
    """A file name for a question: its letters and digits, or a digest where it has none in ASCII."""
    words = re.sub(r"[^a-z0-9]+", "-", query.lower()).strip("-")
    return words[:60].rstrip("-") or hashlib.sha256(query.encode()).hexdigest()[:12]


def write_result(
    stem: Path, identity: dict[str, Any], record: dict[str, Any], picture: Image.Image, **more: Any
) -> dict[str, Any]:
    """Write `stem.png` and `stem.json` (identity, record and more). -> the record with "png" and "json", their paths.

    Files are replaced only by a result of the same identity; others get a number behind their name. Raises OutputError.
    """
    from foveate.core.files import write_whole

    path = _free_path(stem, identity)
    record = record | {"png": f"{path}.png", "json": f"{path}.json"}
    write_picture(Path(record["png"]), picture)
    write_whole(Path(record["json"]), json.dumps(identity | more | record).encode())
    return record


def write_picture(path: Path, picture: Image.Image) -> None:
    """Write a PNG, whole or not at all. Raises OutputError."""
    from foveate.core.display import encode_picture
    from foveate.core.files import write_whole

    write_whole(path, encode_picture(picture, path))


def _free_path(path: Path, identity: dict[str, Any]) -> Path:
    """The path without suffix, or the first `path-2`, `path-3`, ... that is free or holds this very result already."""
    number, candidate = 1, path
    while any(Path(f"{candidate}.{kind}").exists() for kind in ("json", "png")):
        try:
            there = json.loads(Path(f"{candidate}.json").read_text("utf-8"))
            if all(there.get(key) == value for key, value in identity.items()):
                break
        except (OSError, ValueError, AttributeError):
            pass  # not ours: leave it alone
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
