"""Devices of torch: the library imported when it is first needed, a device by name, tensors on one device."""

from __future__ import annotations

from collections.abc import Collection
from types import ModuleType
from typing import TYPE_CHECKING

from foveate.core.errors import DeviceError, MissingExtraError, OptionError
from foveate.core.failures import first_line

if TYPE_CHECKING:
    import torch

KINDS = ("cpu", "cuda")
LEAVE = "leave it out for the GPU if there is one, else the CPU"


def import_torch(what: str) -> ModuleType:
    """The module torch. Raises MissingExtraError, which names `what` needs it."""
    try:
        import torch
    except ImportError as cause:
        raise MissingExtraError(
            f"{what} needs torch, which is not installed",
            expected="the extra [torch]",
            fix=f"pip install 'foveate[torch]'; or NumPy's values, which need nothing ({cause})",
        ) from cause
    return torch


def find_device(device: object, fix: str = LEAVE, kinds: Collection[str] = KINDS) -> torch.device:
    """A device that torch has here, with its number: "cuda" is the current GPU. Raises OptionError, MissingExtraError.

    `kinds`: none of them means all but "meta", which keeps no numbers. "cpu:3" is refused: there is one CPU.

    >>> find_device("cpu")
    device(type='cpu')
    """
    torch = import_torch(f"device={device!r}")
    why = ""
    if isinstance(device, str | torch.device):
        try:
            place = torch.empty(0, device=device).device
            numbered = place.type == "cpu" and torch.device(device).index
            if place.type != "meta" and place.type in (kinds or (place.type,)) and not numbered:
                return place
        except Exception as cause:  # torch raises many kinds: RuntimeError, AssertionError, NotImplementedError, ...
            why = f" ({first_line(cause, 120)})"
    there = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    raise OptionError(
        f"device={device!r}, which cannot be used here{why}",
        expected=" or ".join(map(repr, ["cpu", *there])) + ("" if there else ": torch sees no GPU"),
        fix=fix,
    )


def check_same(what: str, found: torch.device, wanted: torch.device) -> None:
    """Raises DeviceError for a value on another device: nothing moves by itself."""
    if found != wanted:
        raise DeviceError(
            f"{what} on {found}, beside a texture on {wanted}",
            expected="all on one device",
            fix=f"move it with .to({str(wanted)!r})",
        )
