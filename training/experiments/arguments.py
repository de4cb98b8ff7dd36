"""DATA, CACHE and OUT of an experiment's command, checked before anything is loaded.

parser = command("saliency", __doc__)
parser.add_argument("--epochs", type=int, default=6)
args = checked(parser, out="saliency")
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

WANTED = (
    *(f"train/{name}" for name in ("photos.tar", "photos.json", "photos2.json", "photos_masks.tar", "dense.tar")),
    *("train/dense.json", "dev/coco128", "dev/open"),
)


def command(name: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m training.NAME`, with the three folders."""
    parser = argparse.ArgumentParser(
        prog=f"python -m training.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and dev/: training/README.md")
    parser.add_argument("--cache", type=Path, required=True, help="folder of textures and of what is learned")
    parser.add_argument("--out", type=Path, help="folder of the report, and of what is learned where that is kept")
    return parser


def checked(
    parser: argparse.ArgumentParser, words: Sequence[str] | None = None, *, out: str | None = None
) -> argparse.Namespace:
    """The arguments; `out` names the folder in CACHE that stands for a missing --out. Folders are made.

    Ends with status 2 and a sentence where DATA lacks something, or a folder cannot be written.
    """
    args = parser.parse_args(words)
    if not args.data.is_dir():
        parser.error(f"--data: '{args.data}' is no folder; training/README.md says what it is")
    if missing := [part for part in WANTED if not (args.data / part).exists()]:
        parser.error(f"--data: '{args.data}' has no {', '.join(missing)}; training/README.md says what is in it")
    if args.out is None and out is not None:
        args.out = args.cache / out
    for option, folder in (("--cache", args.cache), ("--out", args.out)):
        try:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / ".writable").touch()
                (folder / ".writable").unlink()
        except OSError as cause:
            parser.error(f"{option}: '{folder}' is no folder that can be written ({cause.strerror}); pass another one")
    return args
