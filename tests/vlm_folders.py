"""The tiny models of vlm_models.py as folders."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from examples.tiny_vlms.folders import save
from foveate.vlm.loader import load
from tests.vlm_models import WIDTH, pair


def saved(name: str, folder: Path, *, template: bool = True, width: int = WIDTH) -> Path:
    """Write the tiny model of a family into a folder; `template`: with its chat template. -> the folder."""
    return save(name, *pair(name, width), folder, template=template)


loaded = cache(load)  # in the place of `load`, for tests of what comes after it: values, so tests share them
