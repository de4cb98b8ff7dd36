"""Under which circumstances a number was measured.

Nothing heavy is imported for it: versions come from what is installed, the GPU from its driver. Whatever cannot be
found out is left out of the report, and never stops it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# key in a report -> packages that may bring it, the first installed one counts
PACKAGES = {
    "numpy": ("numpy",),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
    "opencv": ("opencv-python-headless", "opencv-python", "opencv-contrib-python-headless", "opencv-contrib-python"),
    "torch": ("torch",),
    "transformers": ("transformers",),
    "triton": ("triton",),
    "cupy": ("cupy-cuda13x", "cupy-cuda12x", "cupy"),
    "faiss": ("faiss-cpu", "faiss-gpu"),
    "av": ("av",),
    "ray": ("ray",),
}
LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def circumstances() -> dict[str, Any]:
    """Versions, commit and machine, for the last line of every benchmark.

    `machine` is what two results must share before their times are compared; `load` (runnable processes, mean of the
    last minute) above the number of cores says that the machine had other things to do.
    """
    from foveate.core.version import __version__

    return {
        "foveate": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        **_versions(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "cpu": _cpu(),
        "cores": _usable_cores(),
        **{key: value for key, value in (("memory_gb", _memory()), ("gpu", _gpu()), ("blas", _blas())) if value},
        "limits": {name: os.environ[name] for name in LIMITS if name in os.environ},
        **({"load": round(os.getloadavg()[0], 1)} if hasattr(os, "getloadavg") else {}),
    }


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for key, packages in PACKAGES.items():
        for package in packages:
            with contextlib.suppress(PackageNotFoundError):
                found.setdefault(key, version(package))
    return found


def _cpu() -> str:
    """The model's name, as the system gives it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith(("model name", "Hardware")):
                return line.partition(":")[2].strip()
    return _run("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor() or platform.machine()


def _usable_cores() -> int:
    """Those this process may run on: in a container fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> float | None:
    with contextlib.suppress(AttributeError, OSError, ValueError):
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    return None


def _gpu() -> str | None:
    """Names, memory and driver of the GPUs; a driver answers for it, as torch would take seconds to load."""
    found = _run("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
    return "; ".join(line.strip() for line in found.splitlines()) if found else None


def _blas() -> str | None:
    """Whose matrix products NumPy uses, and on how many threads they run."""
    import numpy

    with contextlib.suppress(Exception):  # NumPy's own word, whose form it does not promise
        built: Any = numpy.show_config(mode="dicts")
        blas = built["Build Dependencies"]["blas"]
        threads = ""
        with contextlib.suppress(ImportError):
            pools = import_module("threadpoolctl").threadpool_info()
            known = [pool["num_threads"] for pool in pools if pool["user_api"] == "blas"]
            threads = f", {max(known)} threads" if known else ""
        return f"{blas['name']} {blas['version']}{threads}"
    return None


def _commit() -> str | None:
    """Of the code that runs. A copy without its history (on a lent machine) is told by FOVEATE_COMMIT."""
    described = _run("git", "describe", "--always", "--dirty", cwd=Path(__file__).parent)
    return described or os.environ.get("FOVEATE_COMMIT") or None


def _run(*command: str, cwd: Path | None = None) -> str | None:
    """What a program prints, or None where it is missing, fails or hangs."""
    if shutil.which(command[0]) is None:
        return None
    try:
        run = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return run.stdout.strip() if run.returncode == 0 and run.stdout.strip() else None
