"""What is installed, and what is missing: the first thing to look at, and to paste into a report of a problem."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

from foveate import __version__
from foveate.encoders import load_encoder
from foveate.encoders.nano import FILES
from foveate.errors import FoveateError

BASE = ("numpy", "opencv-python-headless", "pillow", "onnxruntime", "tokenizers", "safetensors", "typer", "rich")
EXTRAS = {"torch": ("torch", "transformers")}


def examine() -> dict[str, Any]:
    """-> {"ok": bool, "rows": [{"what", "state"}]}; not ok where the main job cannot run."""
    rows = [
        ("foveate", __version__),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        ("cpu", f"{platform.machine()}, {os.cpu_count()} cores" + _thread_limits()),
    ]
    ok = True
    for name in BASE:
        found = _version(name)
        ok &= found is not None
        rows.append((name, found or "MISSING: pip install --force-reinstall foveate"))
    for extra, packages in EXTRAS.items():
        missing = [p for p in packages if find_spec(p) is None]
        state = ", ".join(f"{p} {_version(p)}" for p in packages)
        rows.append((f"extra [{extra}]", f"not installed: pip install 'foveate[{extra}]'" if missing else state))
    try:
        nano = load_encoder("nano")
        sizes = [(nano.folder / f).stat().st_size for f in FILES]  # type: ignore[attr-defined]
        nano.encode_text(["a dog"])
        rows.append(("encoder nano", f"revision {nano.revision}, {sum(sizes) / 1e6:.1f} MB, offline"))
    except FoveateError as error:
        ok = False
        rows.append(("encoder nano", f"BROKEN: {error.received}"))
    rows.append(
        ("hub", "offline by HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else "allowed for encoder='clip'")
    )
    return {"ok": ok, "rows": [{"what": what, "state": state} for what, state in rows]}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _thread_limits() -> str:
    limits = {name: os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name in os.environ}
    return "".join(f", {name}={value}" for name, value in limits.items())
