"""How long a vision-language model takes, by visual tokens: sizes of real models with random weights, no download.

    python -m benchmarks vlm --random llava --layers 2

A checkpoint is measured by `foveate evaluate vlm --model NAME --data IMAGES`, which this shares everything with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from benchmarks.common import PHOTO, Image, print_json
from foveate.cli.evaluate.command import Batch, Budgets, Modes, New, Repeats, time_vlm
from foveate.cli.evaluate.vlm import make_plan
from foveate.cli.terminal import Device, Dtype
from foveate.core.checks import check_choice, check_int
from foveate.core.image import load_image
from foveate.vlm.attachment import attach
from foveate.vlm.loader import DTYPES, device_of, libraries

FAMILIES = ("llava", "qwen2_5_vl")  # of random_vlm.py, which needs transformers


def command(
    image: Image = PHOTO,
    random: Annotated[str, typer.Option(metavar="FAMILY", help="llava or qwen2_5_vl, 7B-like.")] = "llava",
    layers: Annotated[int | None, typer.Option(help="Layers of the language model [default: all].")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="Very narrow; llava with 4096 cells.")] = False,
    budgets: Budgets = "50,25,12.5,6.7",
    modes: Modes = "drop,sparse",
    batch: Batch = "1,4",
    new: New = 16,
    repeats: Repeats = 5,
    dtype: Dtype = "auto",
    device: Device = "auto",
) -> None:
    """Is a model faster with fewer visual tokens? With random weights; auto is bfloat16."""
    plan = make_plan(budgets, modes, batch, new, repeats)
    make = prepare_model(random, layers, tiny, dtype, device)
    picture = load_image(image)
    report = time_vlm(make(), [picture], plan)
    print_json(model=f"random {random}{' tiny' if tiny else ''}", image=str(image), **report)


def prepare_model(family: str, layers: int | None, tiny: bool, dtype: str, device: str) -> Callable[[], Any]:
    """Checks the options; what it returns makes the model. Raises OptionError, MissingExtraError."""
    check_choice("--random", family, FAMILIES)
    if layers is not None:
        check_int("--layers", layers, 1, 1000)
    check_choice("dtype", dtype, DTYPES)
    torch, _ = libraries()
    place, kind = device_of(torch, device), getattr(torch, "bfloat16" if dtype == "auto" else dtype)

    def make() -> Any:
        from benchmarks import random_vlm

        return attach(*random_vlm.random_pair(family, layers, tiny, kind, place))

    return make
