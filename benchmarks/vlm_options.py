"""The options of `python -m benchmarks vlm`: checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from foveate.core.errors import OptionError
from foveate.core.image import Picture, load_image
from foveate.vlm.attach import attach
from foveate.vlm.encoded import Mode
from foveate.vlm.load import DTYPES, device_of, libraries, load
from foveate.vlm.model import VLM

N = TypeVar("N", int, float)
FAMILIES = ("llava", "qwen2_5_vl")  # of random_vlm.py, which needs transformers
MODES: tuple[Mode, ...] = ("drop", "sparse")


@dataclass(frozen=True)
class Plan:
    """What to measure.

    Attributes:
        budgets: percent of the cells. modes: "drop", "sparse". batches: questions at once.
        new: tokens of an answer. repeats: measurements of each number.
    """

    budgets: tuple[float, ...]
    modes: tuple[Mode, ...]
    batches: tuple[int, ...]
    new: int
    repeats: int


def planned(budgets: str, modes: str, batch: str, new: int, repeats: int) -> Plan:
    """Options as text -> a plan. Raises OptionError."""
    shares = tuple(_number("--budgets", part, float) for part in budgets.split(","))
    if not all(0 < share <= 100 for share in shares):
        raise OptionError(f"--budgets {budgets}", expected="percents above 0, up to 100", fix="50,25,12.5,6.7")
    found = [mode for part in modes.split(",") for mode in MODES if mode == part.strip()]
    if len(found) != len(modes.split(",")):
        raise OptionError(f"--modes {modes}", expected="drop, sparse, or both with a comma", fix="drop,sparse")
    batches = tuple(_number("--batch", part, int) for part in batch.split(","))
    if not all(1 <= size <= 256 for size in batches):
        raise OptionError(f"--batch {batch}", expected="whole numbers from 1 to 256", fix="1,4")
    for name, value, most in (("--new", new, 4096), ("--repeats", repeats, 1000)):
        if not 1 <= value <= most:
            raise OptionError(f"{name} {value}", expected=f"1 to {most}", fix="leave it out for the usual number")
    return Plan(shares, tuple(found), batches, new, repeats)


def model_for(
    model: str | None, family: str | None, *, layers: int | None, tiny: bool, dtype: str, device: str
) -> Callable[[], VLM]:
    """Checks the options; what it returns loads the checkpoint, or makes the random model. Raises OptionError."""
    if (model is None) == (family is None):
        given = "neither --model nor --random" if model is None else "both --model and --random"
        raise OptionError(given, expected="one of them", fix=f"--model FOLDER, or --random {FAMILIES[0]}")
    if family is None:
        if layers is not None or tiny:
            raise OptionError(
                "--layers or --tiny for a checkpoint", expected="--random beside it", fix="leave it out: all is used"
            )
        return lambda: load(str(model), dtype=dtype, device=device)
    if family not in FAMILIES:
        raise OptionError(f"--random {family}", expected=", ".join(FAMILIES), fix="or save a model, and --model FOLDER")
    if layers is not None and not 1 <= layers <= 1000:
        raise OptionError(f"--layers {layers}", expected="1 or more", fix="leave it out for all")
    if dtype not in DTYPES:
        raise OptionError(f"dtype={dtype!r}", expected=", ".join(DTYPES), fix="leave it out for bfloat16")
    torch, _ = libraries()
    place, kind = device_of(torch, device), getattr(torch, "bfloat16" if dtype == "auto" else dtype)

    def make() -> VLM:
        from benchmarks.random_vlm import random_pair

        return attach(*random_pair(family, layers, tiny, kind, place))

    return make


def picture_of(image: Path | None) -> tuple[Picture, str]:
    """The image, or the bundled photograph, and its path. Raises the Image...Errors."""
    path = image or Path(str(files("foveate") / "cli" / "photos" / "child_with_broccoli.jpg"))
    return load_image(path), str(path)


def _number(option: str, text: str, kind: Callable[[str], N]) -> N:
    try:
        return kind(text)
    except ValueError:
        expected = "numbers" if kind is float else "whole numbers"
        raise OptionError(f"{option} with {text!r}", expected=f"{expected} with commas", fix="check it") from None
