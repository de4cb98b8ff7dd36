"""DATA, CACHE and OUT of a command, checked before anything is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

WANTED = ("train/photos.json", "train/dense.json", "dev/coco128", "dev/open")


class Folders(NamedTuple):
    data: Path
    cache: Path
    out: Path


def folders(name: str, description: str | None, words: Sequence[str] | None = None) -> Folders:
    """Of `python -m training.NAME`; ends with what is wrong where DATA lacks something or OUT is no folder."""
    parser = argparse.ArgumentParser(prog=f"python -m training.{name}", description=description)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True, help="textures of training.examples, and planes")
    parser.add_argument("--out", type=Path, help=f"what is learned and judged; CACHE/{name}-run if left out")
    args = parser.parse_args(words)
    missing = [each for each in WANTED if not (args.data / each).exists()]
    if missing:
        parser.error(f"--data {args.data}: no {', '.join(missing)} in it; training/README.md says what DATA must hold")
    out = args.out or args.cache / f"{name}-run"
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "written.part").touch()
        (out / "written.part").unlink()
    except OSError as why:
        parser.error(f"cannot write into {out}: {why.strerror}; pass another folder as --out")
    return Folders(args.data, args.cache, out)
