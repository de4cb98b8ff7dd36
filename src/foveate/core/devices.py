"""Where tensors go: torch, imported when it is first needed, its devices, and what is free there."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from foveate.core.errors import DeviceError, MissingExtraError, OptionError

if TYPE_CHECKING:
    import torch

KINDS = ("cpu", "cuda")


def import_torch(what: str) -> ModuleType:
    """The module torch. Raises MissingExtraError, which says what needs it."""
    try:
        import torch
    except ImportError as cause:
        raise MissingExtraError(
            f"{what} needs torch, which is not installed",
            expected="the extra [torch]",
            fix=f"pip install 'foveate[torch]'; or NumPy's values, which need nothing ({cause})",
        ) from cause
    return torch


def find_device(device: str | torch.device) -> torch.device:
    """A device that is there, with its number: "cuda" is the current GPU. Raises OptionError, MissingExtraError.

    >>> find_device("cpu")
    device(type='cpu')
    """
    torch = import_torch(f"device={device!r}")
    why = ""
    if isinstance(device, str | torch.device):
        try:
            place = torch.empty(0, device=device).device
            if place.type in KINDS:
                return place
        except Exception as cause:  # torch says so in many ways: RuntimeError, AssertionError, NotImplementedError, ...
            why = " (" + str(cause).strip().split("\n")[0][:100] + ")"
    there = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    raise OptionError(
        f"device={device!r}, which torch does not find here, or which textures do not go to{why}",
        expected=" or ".join(map(repr, ["cpu", *there])) + ("" if there else ": torch sees no GPU"),
        fix="name one of these; without a GPU, ask the texture itself: score(texture, question)",
    )


def free_bytes(device: torch.device) -> int | None:
    """Bytes that a new tensor may take on a GPU, those that torch keeps for later among them; None of the CPU."""
    if device.type != "cuda":
        return None
    torch = import_torch("the memory of a GPU")
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + kept)


def check_room(what: str, needed: int, device: torch.device, fix: str) -> None:
    """Raises DeviceError for what does not fit, before anything is moved."""
    free = free_bytes(device)
    if free is not None and needed > free:
        raise DeviceError(
            f"{what}: {needed / 1e6:,.1f} MB, of which {device} has {free / 1e6:,.1f} MB free",
            expected="what fits",
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
