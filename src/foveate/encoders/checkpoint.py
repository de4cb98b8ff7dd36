"""Checkpoints in transformers format (extra `[torch]`): found, loaded whole, and named, for every model that needs one.

What is notable
* A checkpoint is data: weights are read as safetensors only, code that comes with it never runs, and weights that are
  missing are an error (the library would fill them with random numbers and only warn).
* With a Hub name and nothing in the cache the checkpoint is downloaded, once. A local folder downloads nothing. Without
  a network that is said at once.
* What kind of model is meant, and how errors speak of it, is a `Kind`; the rest is the same for all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from foveate.core.errors import FoveateError, MissingExtraError


@dataclass(frozen=True)
class Kind:
    """How errors speak of the models of one kind.

    Attributes:
        what: "depth model", say.
        needs: begins the sentence about a missing extra: "depth".
        files: what a folder must hold.
        again: how it is saved so that it does.
        otherwise: what to do instead, without a download.
        spared: what needs neither torch nor a download.
        error: raised for files that are missing, damaged or not to be had.
    """

    what: str
    needs: str
    files: str
    again: str
    otherwise: str
    spared: str
    error: type[FoveateError]


@dataclass(frozen=True)
class Source:
    """Where a checkpoint's files are.

    Attributes:
        given: as it was asked for.
        where: a folder's full path, or a name on the Hub.
        pinned: the revision asked for, or nothing.
        folder: the folder, or None for the Hub.
    """

    given: str
    where: str
    pinned: str
    folder: Path | None

    @property
    def options(self) -> dict[str, Any]:
        """For the library's `from_pretrained`."""
        return {"revision": self.pinned} if self.pinned else {}

    @property
    def label(self) -> str:
        """The checkpoint, or the name of the folder: textures travel, folders do not."""
        return self.folder.resolve().name if self.folder else self.given

    def revision(self, config: Any) -> str:
        """At most 12 characters that change whenever the numbers change."""
        on_hub = getattr(config, "_commit_hash", None) or self.pinned or "unknown"
        return (digest_of(self.folder) if self.folder else str(on_hub))[:12]


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model as the library made it, in evaluation mode, with its configuration and how pixels are normalised.

    Attributes:
        model, config: the library's.
        mean, std: from preprocessor_config.json; None where the checkpoint does not say.
    """

    model: Any
    config: Any
    mean: Any
    std: Any


def libraries(kind: Kind) -> tuple[Any, Any]:
    """torch and transformers. Raises MissingExtraError."""
    try:
        import torch
        import transformers
    except ImportError as cause:
        raise MissingExtraError(
            f"{kind.needs} needs {cause.name}, which is not installed",
            expected="the extra [torch] (on Linux, PyPI's torch brings 5 GB of CUDA packages)",
            fix="pip install 'foveate[torch]'; for a CPU-only machine first: "
            f"pip install torch --index-url https://download.pytorch.org/whl/cpu; {kind.spared}",
        ) from cause
    return torch, transformers


def find(checkpoint: str, kind: Kind) -> Source:
    """A Hub name, `name@revision`, or local folder. Raises the kind's error for a folder that is not there."""
    folder = Path(checkpoint).expanduser()
    if folder.is_dir():  # folders may have an @ in their names
        return Source(checkpoint, str(folder.resolve()), "", folder)
    if checkpoint.startswith((".", "/", "~")):
        raise kind.error(f"no folder '{folder}'", expected=f"a folder with {kind.files}", fix="check the path")
    name, _, pinned = checkpoint.partition("@")
    return Source(checkpoint, name, pinned, None)


def load(source: Source, chosen: Callable[[Any], Any]) -> Loaded:
    """Read a checkpoint with the class that `chosen` says for its configuration. Call it within `explained`.

    `chosen` raises an error of its own for a configuration that it does not take.
    """
    import transformers

    if source.folder is None:
        check_reachable(source.where, source.pinned)
    code = {"trust_remote_code": False}  # and never ask: a checkpoint is data
    config = transformers.AutoConfig.from_pretrained(source.where, **code, **source.options)
    network = chosen(config)
    with _quiet(transformers):
        model, report = network.from_pretrained(
            source.where, config=config, use_safetensors=True, output_loading_info=True, **code, **source.options
        )
    if report["missing_keys"]:
        raise ValueError(f"weights are missing: {sorted(report['missing_keys'])[:3]}")
    mean, std = _normalisation(source, transformers)
    return Loaded(model.eval(), config, mean, std)


def check_reachable(name: str, revision: str | None) -> None:
    """Raises ConnectionError for a Hub name of which nothing is cached, if the Hub does not answer.

    The library would ask six times, for half a minute. What else may be wrong, it says better itself.
    """
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
def explained(source: Source, kind: Kind) -> Iterator[None]:
    """What the library raises while it reads a checkpoint becomes the kind's error, which says what to do."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, SafetensorError) as cause:
        if isinstance(cause, FoveateError):
            raise
        reason = str(cause).strip().split("\n")[0][:200]
        if source.folder:
            raise kind.error(
                f"the folder '{source.given}' does not hold a whole {kind.what} ({reason})",
                expected=f"{kind.files}, in transformers format",
                fix=f"save it again with {kind.again}",
            ) from cause
        raise kind.error(
            f"the {kind.what} '{source.given}' is neither a folder nor in the local cache, and cannot be downloaded "
            f"({reason})",
            expected="a network and a right name, or a checkpoint in the cache (HF_HUB_OFFLINE=1 forbids the network)",
            fix=kind.otherwise,
        ) from cause


def place(torch: Any, device: str | None) -> str:
    """The device asked for; None is a GPU where there is one."""
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


def digest_of(folder: Path) -> str:
    """SHA-256 over the names and bytes of a checkpoint's files: changes whenever its numbers may."""
    digest = hashlib.sha256()
    for file in sorted(f for kind in ("json", "safetensors", "txt") for f in folder.glob(f"*.{kind}")):
        digest.update(file.name.encode())
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _normalisation(source: Source, transformers: Any) -> tuple[Any, Any]:
    file = transformers.utils.cached_file(
        source.where, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False, **source.options
    )
    content = json.loads(Path(file).read_text("utf-8")) if file else {}
    return content.get("image_mean"), content.get("image_std")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """No progress bar while weights are read; the library's switch is put back as it was."""
    switch = transformers.utils.logging
    shown = switch.is_progress_bar_enabled()
    switch.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            switch.enable_progress_bar()
