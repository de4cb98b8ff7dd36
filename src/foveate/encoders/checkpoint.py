"""Finds and loads checkpoints in transformers format (extra `[torch]`), and records their revision.

A checkpoint is data: weights are read as safetensors only, code that comes with it never runs, and missing weights are
an error. A Hub name is downloaded once; a local folder downloads nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError

from foveate.core.devices import find_device, first_line
from foveate.core.errors import EncoderOutputError, FoveateError, ModelFilesError, needed_by

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CODE = {"trust_remote_code": False}  # and never ask: a checkpoint is data


@dataclass(frozen=True)
class ModelKind:
    """What one kind of model needs: classes by model_type of config.json, the files of a folder, and its errors."""

    what: str
    instead: str
    classes: dict[str, str] = field(default_factory=dict, hash=False)
    default: str = ""
    files: str = "config.json and model.safetensors"
    error: type[FoveateError] = ModelFilesError
    type_error: type[FoveateError] = ModelFilesError


@dataclass(frozen=True)
class Checkpoint:
    """Where a checkpoint's files are: a local folder, or a name and a revision on the Hub."""

    name: str
    where: str
    pinned: str
    folder: Path | None
    kind: ModelKind

    @property
    def options(self) -> dict[str, Any]:
        return {**CODE, "revision": self.pinned} if self.pinned else CODE

    @property
    def label(self) -> str:
        """The checkpoint, or the name of the folder without its path."""
        return self.folder.resolve().name if self.folder else self.name

    def revision(self, config: Any) -> str:
        """At most 12 characters that change whenever the numbers change."""
        on_hub = getattr(config, "_commit_hash", None) or self.pinned or "unknown"
        return (_digest(self.folder) if self.folder else str(on_hub))[:12]


@dataclass(frozen=True, eq=False)
class LoadedCheckpoint:
    """A model in evaluation mode on its device. mean, std: of pixels in [0, 1], three numbers each."""

    model: Any
    config: Any
    revision: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    tokenizer: Any


def find_checkpoint(name: str, kind: ModelKind) -> Checkpoint:
    """A Hub name, `name@revision`, or local folder. Raises the kind's error for a folder that is not there."""
    folder = Path(name).expanduser()
    if folder.is_dir():  # folders may have an @ in their names
        return Checkpoint(name, str(folder.resolve()), "", folder, kind)
    if name.startswith((".", "/", "~")):
        raise kind.error(f"no folder '{folder}'", expected=f"a folder with {kind.files}", fix="check the path")
    where, _, pinned = name.partition("@")
    return Checkpoint(name, where, pinned, None, kind)


def load_checkpoint(
    checkpoint: Checkpoint,
    adjust: Callable[[Any], None] | None = None,
    *,
    device: str | None = None,
    normalisation: tuple[Sequence[float], Sequence[float]] = IMAGENET,
    tokenizer: bool = False,
) -> LoadedCheckpoint:
    """Read a checkpoint whole. Raises MissingExtraError without torch or transformers, and the kind's errors.

    `adjust` changes the configuration, or raises for one that is not supported; `normalisation` (mean, standard
    deviation) is for checkpoints without preprocessor_config.json.
    """
    place = choose_device(device, checkpoint.kind)
    _, transformers = _import_libraries(checkpoint.kind)
    where, options = checkpoint.where, checkpoint.options
    with explain_errors(checkpoint):
        if checkpoint.folder is None:
            check_reachable(where, checkpoint.pinned)
        config = transformers.AutoConfig.from_pretrained(where, **options)
        if adjust:
            adjust(config)
        network = getattr(transformers, _choose_class(checkpoint, config.model_type))
        with hide_progress(transformers):
            model, report = network.from_pretrained(
                where, config=config, use_safetensors=True, output_loading_info=True, **options
            )
        if report["missing_keys"]:
            raise ValueError(f"weights are missing: {sorted(report['missing_keys'])[:3]}")
        file = transformers.utils.cached_file(
            where,
            "preprocessor_config.json",
            _raise_exceptions_for_missing_entries=False,
            revision=checkpoint.pinned or None,
        )
        pixels = json.loads(Path(file).read_text("utf-8")) if file else {}
        words = transformers.AutoTokenizer.from_pretrained(where, **options) if tokenizer else None
    return LoadedCheckpoint(
        model.eval().to(place),
        config,
        checkpoint.revision(config),
        tuple(pixels.get("image_mean") or normalisation[0]),
        tuple(pixels.get("image_std") or normalisation[1]),
        words,
    )


def choose_device(device: str | None, kind: ModelKind) -> str:
    """Torch's name of a device; None is a GPU where there is one. Raises OptionError, MissingExtraError."""
    torch, _ = _import_libraries(kind)
    wanted = device if device is not None else "cuda" if torch.cuda.is_available() else "cpu"
    return str(find_device(wanted, kinds=()))


def resize_and_normalise(
    rgb: NDArray[np.uint8], size: tuple[int, int], method: Image.Resampling, mean: Any, std: Any
) -> NDArray[np.float32]:
    """uint8 [H, W, 3] -> (pixels - mean) / std of pixels in [0, 1]: float32 [*size, 3], resized by Pillow."""
    pixels = np.asarray(Image.fromarray(rgb).resize(size[::-1], method), np.float32) / 255
    return np.asarray((pixels - np.asarray(mean, np.float32)) / np.asarray(std, np.float32), np.float32)


def check_finite(who: str, *outputs: NDArray[np.floating]) -> None:
    """Raises EncoderOutputError for a model's output with NaN or infinity."""
    if not all(np.isfinite(output).all() for output in outputs):
        raise EncoderOutputError(
            f"{who} returned NaN or infinity",
            expected="finite numbers",
            fix="check the checkpoint's weights; half precision overflows in some",
        )


def check_reachable(name: str, revision: str | None) -> None:
    """Raises ConnectionError where nothing is cached and the Hub is silent; the library would try for half a minute."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError

    try:
        if not isinstance(try_to_load_from_cache(name, "config.json", revision=revision or None), str):
            get_hf_file_metadata(hf_hub_url(name, "config.json", revision=revision or None))
    except (HfHubHTTPError, ValueError):  # it answered, or was not asked
        return
    except Exception as cause:  # of whichever library huggingface_hub talks to the network with: that changed twice
        raise ConnectionError(f"the Hub could not be reached: {cause}") from cause


@contextmanager
def hide_progress(transformers: Any) -> Iterator[None]:
    """No bar on stderr within."""
    switch = transformers.utils.logging
    shown = switch.is_progress_bar_enabled()
    switch.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            switch.enable_progress_bar()


@contextmanager
def explain_errors(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what the library raises while it reads a checkpoint into the kind's error, with a fix."""
    kind = checkpoint.kind
    try:
        yield
    except FoveateError:
        raise
    except (OSError, ValueError, RuntimeError, SafetensorError) as cause:
        reason = first_line(cause, 200)
        if checkpoint.folder:
            raise kind.error(
                f"the folder '{checkpoint.name}' does not hold a whole {kind.what} ({reason})",
                expected=f"{kind.files}, in transformers format",
                fix="save it again, each part with its save_pretrained(folder)",
            ) from cause
        raise kind.error(
            f"the {kind.what} '{checkpoint.name}' is neither a folder nor in the local cache, and cannot be downloaded "
            f"({reason})",
            expected="a network and a right name, or a checkpoint in the cache (HF_HUB_OFFLINE=1 forbids the network)",
            fix=kind.instead,
        ) from cause


def _choose_class(checkpoint: Checkpoint, model_type: str) -> str:
    kind = checkpoint.kind
    if model_type not in kind.classes:
        raise kind.type_error(
            f"'{checkpoint.name}' is a {model_type} model",
            expected=f"a {kind.what} (model_type {' or '.join(map(repr, kind.classes))})",
            fix=f"use '{kind.default}', or a folder with such a checkpoint",
        )
    return kind.classes[model_type]


def _import_libraries(kind: ModelKind) -> tuple[Any, Any]:
    cpu = "for a CPU-only machine first: pip install torch --index-url https://download.pytorch.org/whl/cpu"
    with needed_by(f"a {kind.what}", "torch", f"{cpu} (on Linux, PyPI's brings 5 GB for CUDA); or {kind.instead}"):
        import torch
        import transformers
    return torch, transformers


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(f for kind in ("json", "safetensors", "txt") for f in folder.glob(f"*.{kind}")):
        digest.update(file.name.encode())
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
