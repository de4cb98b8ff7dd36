"""DATA, CACHE and OUT of a command, checked before an hour is spent."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple


class Arguments(NamedTuple):
    """Folders; `out` is None where nothing is written."""

    data: Path
    cache: Path
    out: Path | None


def read_arguments(description: str | None) -> Arguments:
    """From the command line. Ends with status 2 and a sentence where DATA is not there, or a folder cannot be made."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and dev/")
    parser.add_argument("--cache", type=Path, required=True, help="folder of textures; made if it is not there")
    parser.add_argument("--out", type=Path, help="folder of the report; made if it is not there")
    args = parser.parse_args()
    for part in ("train", "dev/coco128", "dev/open"):
        if not (args.data / part).is_dir():
            parser.error(f"--data: '{args.data}' has no folder {part}; training/README.md says what is in it")
    for option, folder in (("--cache", args.cache), ("--out", args.out)):
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / ".writable").touch()
                (folder / ".writable").unlink()
        except OSError as cause:
            parser.error(f"{option}: '{folder}' is no folder that can be written ({cause.strerror}); pass another one")
    return Arguments(args.data, args.cache, args.out)
