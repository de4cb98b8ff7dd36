"""A tiny random model that `vllm serve` takes, as a folder: python -m examples.tiny_vlms qwen2_5_vl FOLDER"""

import argparse
from importlib.util import find_spec
from pathlib import Path

from examples.tiny_vlms import FAMILIES, NEED_TORCHVISION, tiny
from examples.tiny_vlms.folders import HEADS, save
from foveate.serving import families


def main(words: list[str] | None = None) -> None:
    """Write what the command line names. Leaves with status 2 where that is not possible."""
    names = [*FAMILIES, *(NEED_TORCHVISION if find_spec("torchvision") else ())]
    parser = argparse.ArgumentParser(prog="python -m examples.tiny_vlms", description=__doc__)
    parser.add_argument("name", choices=names, metavar="NAME", help="a family: qwen2_5_vl, qwen3_vl, llava, ...")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where it goes: a new folder, or an empty one")
    args = parser.parse_args(words)
    if args.folder.exists() and not (args.folder.is_dir() and not any(args.folder.iterdir())):
        parser.error(f"{args.folder} is there already: name a new folder")
    model, processor = tiny(args.name, HEADS)
    if type(model).__name__ not in (*families.FAMILIES, *families.BEHIND):
        parser.error(f"{args.name} is not served by foveate in vLLM: docs/serving.md lists the families")
    print(save(args.name, model, processor, args.folder))


if __name__ == "__main__":
    main()
