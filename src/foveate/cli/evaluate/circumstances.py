"""Under which circumstances a number was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def circumstances() -> dict[str, Any]:
    """Versions, commit and machine, for the last line of every benchmark."""
    import numpy
    import onnxruntime

    from foveate.core.version import __version__

    return {
        "foveate": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "onnxruntime": onnxruntime.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=here, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return run.stdout.strip() or None
