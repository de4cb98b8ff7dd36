"""What benchmarks share: options, clocks, rows of a report, and how a report is shown."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, TypeVar

import cv2
import numpy as np
import typer
from numpy.typing import ArrayLike

from foveate.cli.evaluate.coco import Folder, Labelled
from foveate.cli.evaluate.command import CocoData, Limit
from foveate.cli.terminal import PHOTOS, EncoderName, counting, print_table
from foveate.core.errors import OptionError
from foveate.core.image import load_image
from foveate.language.negatives import nouns

__all__ = ["PHOTOS", "CocoData", "EncoderName", "Limit"]
PHOTO = PHOTOS / "child_with_broccoli.jpg"
KEPT = 273  # cells that most benchmarks keep: of 64 x 64 one in fifteen, 6.7 %
Image = Annotated[Path, typer.Argument(help="An image.", show_default="a bundled photograph")]
Half = Annotated[str | None, typer.Option(help="Only the photographs of one half, A or B.")]
Repeats = Annotated[int, typer.Option(help="Measurements of each row.")]
T = TypeVar("T")
WHAT = ("what", "measured", "target")
FACTORS = {"s": 1, "ms": 1e3, "µs": 1e6}
DRAWS, AT_ONCE, SEED = 1000, 100, 0  # of a bootstrap
FEWEST = 5  # measurements below which an interval would only feign to know something
PATIENCE = 30.0  # seconds of slow functions in turn after which they are not called once more
LONG = 200  # characters of a list that a terminal does not get
MOST_SAMPLES = 100  # that a row keeps, evenly from all: enough for `compare`


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


def print_json(**report: Any) -> None:
    """The last line of stdout: the report as one JSON object; a terminal gets the lengths of its long lists instead."""
    if sys.stdout.isatty():
        told = {key: json.dumps(value) for key, value in report.items() if isinstance(value, dict | list | tuple)}
        report |= {key: len(report[key]) for key, text in told.items() if len(text) > LONG}
    print(json.dumps(report))


def show(report: dict[str, Any], columns: Iterable[str] = WHAT) -> None:
    """Print a report's table; rows without "cells" have their columns by name."""
    columns = tuple(columns)
    rows = [tuple(row.get("cells") or [row[column] for column in columns]) for row in report["rows"]]
    print_table(report["title"], columns, rows)


def show_part(table: dict[str, Any]) -> dict[str, Any]:
    """Print one of a report's tables as soon as it is measured, and give it back."""
    show(table, table["columns"])
    print(flush=True)
    return table


def each_of(folder: Folder, limit: int) -> Iterator[tuple[int, Labelled]]:
    """Labelled photographs of a folder with their numbers, at most `limit`, with a progress bar."""
    with counting("photographs", min(limit, len(folder.images))) as progress:
        for number, item in enumerate(folder.labelled(limit)):
            yield number, item
            progress(number + 1)


def read_json(file: Path, read: Callable[[Any], T], expected: str, fix: str) -> T:
    """What `read` makes of a JSON file. Raises OptionError that says what is wrong with it."""
    try:
        return read(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        what = f"'{file}': {type(cause).__name__}: {str(cause)[:100]}"
        raise OptionError(what, expected=expected, fix=fix) from None


def parse_numbers(option: str, text: str) -> list[int]:
    """Whole numbers with commas between."""
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{option} {text}: expected whole numbers with commas between") from None


def crop_square(path: Path, side: int) -> np.ndarray:
    """The middle of an image, `side` pixels square."""
    rgb = load_image(path).rgb
    short = min(rgb.shape[:2])
    top, left = (rgb.shape[0] - short) // 2, (rgb.shape[1] - short) // 2
    crop = rgb[top : top + short, left : left + short]
    return cv2.resize(crop, (side, side), interpolation=cv2.INTER_AREA if short > side else cv2.INTER_CUBIC)


def time_once(function: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def time_calls(function: Callable[[], Any], repeats: int) -> np.ndarray:
    """Seconds of each of `repeats` calls, after a warm-up."""
    for _ in range(min(3, repeats)):
        function()
    return np.array([time_once(function) for _ in range(repeats)])


def time_in_turn(a: Callable[[], Any], b: Callable[[], Any], repeats: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of two functions called in turn, so that their difference holds while the machine drifts."""
    times = time_each({0: a, 1: b}, repeats, patience=float("inf"))
    return times[0], times[1]


def time_each(
    parts: Mapping[Any, Callable[[], Any]],
    repeats: int,
    wait: Callable[[], None] = lambda: None,
    patience: float = PATIENCE,
) -> dict[Any, np.ndarray]:
    """Seconds of several functions in each repeat, called in turn; as many of each.

    wait: until the device is idle. patience: seconds after which no repeat begins, but one is always made.
    """
    begin = time.perf_counter()
    for part in parts.values():
        part()
    wait()

    def clock(part: Callable[[], Any]) -> float:
        start = time.perf_counter()
        part()
        wait()
        return time.perf_counter() - start

    measured: list[list[float]] = []
    while not measured or (len(measured) < repeats and time.perf_counter() - begin < patience):
        measured.append([clock(part) for part in parts.values()])
    return dict(zip(parts, np.array(measured).T, strict=True))


ADJECTIVES = ("red", "small", "wooden", "old", "striped", "shiny", "tall", "broken")  # with nouns: texts never asked


def medians(parts: Mapping[Any, Callable[[], Any]], repeats: int) -> dict[Any, float]:
    """Seconds of each part, medians of repeats in which all are called in turn (`time_each`)."""
    return {name: float(np.median(some)) for name, some in time_each(parts, repeats, patience=float("inf")).items()}


def new_questions(part: int = 0, of: int = 1) -> Iterator[str]:
    """Texts that were never asked before; of one of several parts of the nouns, as a noun's vector is kept, too."""
    return (f"{adjective} {noun}" for adjective, noun in itertools.product(ADJECTIVES, nouns()[part::of]))


def interval(a: ArrayLike, b: ArrayLike | None = None, *, pairs: bool = True) -> tuple[float, float]:
    """95 % interval of the median of `a` [n], or of median(a) / median(b): percentiles of a bootstrap.

    a, b: positive numbers, times above all. pairs: a[i] and b[i] were measured in turn (`time_in_turn`), so they are
    drawn together, and what slowed the machine slowed both. False: two runs, drawn each by itself.
    Below five measurements it is (0, inf): nothing is known.
    """
    first = np.asarray(a, np.float64)
    second = None if b is None else np.asarray(b, np.float64)
    if second is not None and pairs and len(first) != len(second):
        raise ValueError(f"pairs: {len(first)} and {len(second)} measurements; expected as many of both")
    if min(len(one) for one in (first, second) if one is not None) < FEWEST:
        return 0.0, float("inf")
    random, drawn = np.random.default_rng(SEED), []
    for _ in range(DRAWS // AT_ONCE):
        pick = random.integers(0, len(first), (AT_ONCE, len(first)))
        drawn.append(np.median(first[pick], 1))
        if second is not None:
            pick = pick if pairs else random.integers(0, len(second), (AT_ONCE, len(second)))
            drawn[-1] /= np.median(second[pick], 1)
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)


def make_row(what: str, value: float | None, measured: str, target: str = "", unit: str = "") -> dict[str, Any]:
    """A row of WHAT with its number; `measured` is the number in words."""
    median = None if value is None else round(value, 5)
    return {"what": what, "measured": measured, "target": target, "median": median, "unit": unit}


def time_row(what: str, seconds: np.ndarray, unit: str, target: str = "", slow: int = 95) -> dict[str, Any]:
    """The median of some times, with a percentile of them; the row keeps samples and an interval for `compare`."""
    scaled = seconds * FACTORS[unit]
    median = float(np.median(scaled))
    measured = f"{median:.3g} {unit} ({slow} %: {np.percentile(scaled, slow):.3g})"
    return make_row(what, median, measured, target, unit) | _spread(scaled, interval(scaled))


def ratio_row(what: str, a: np.ndarray, b: np.ndarray, target: str = "") -> dict[str, Any]:
    """How many times longer `a` [n] takes than `b` [n], measured in turn, with its 95 % interval.

    `better`, for `compare`: "low" where the target is an upper bound, else "high", as then `b` is ours.
    """
    ratio, (low, high) = float(np.median(a) / np.median(b)), interval(a, b)
    measured = f"{ratio:.3g} x ({low:.3g}-{high:.3g})" if np.isfinite(high) else f"{ratio:.3g} x"
    better = {"better": "low" if target.startswith("<") else "high"}
    return make_row(what, ratio, measured, target, "x") | better | _spread(a / b, (low, high))


def rate_row(what: str, rates: np.ndarray, target: str = "") -> dict[str, Any]:
    """The median of some rates a second."""
    row = make_row(what, float(np.median(rates)), f"{np.median(rates):.1f}", target, "/s")
    return row | _spread(rates, interval(rates))


def _spread(samples: np.ndarray, bounds: tuple[float, float]) -> dict[str, Any]:
    some = samples[np.linspace(0, len(samples) - 1, min(len(samples), MOST_SAMPLES)).astype(int)]
    known = {"interval": [_short(end) for end in bounds]} if np.isfinite(bounds[1]) else {}
    return known | {"samples": [_short(sample) for sample in some]}


def _short(number: float) -> float:
    """Four digits: more are noise, and files of results stay small."""
    return float(f"{number:.4g}")


# --- versions and machine ---------------------------------------------------------------------------------------------


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
