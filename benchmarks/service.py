"""What a service needs to know: images by number of threads, and what a texture holds in memory.

    python -m benchmarks service                         # a process that sets nothing: what most users have
    OMP_NUM_THREADS=1 python -m benchmarks service       # each image in one thread

Rates are ratios to one after the other, in turn. The images are one photograph, turned and shifted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import cv2
import numpy as np
import onnxruntime
import typer

from benchmarks.common import (
    KEPT,
    PHOTO,
    Image,
    make_row,
    parse_numbers,
    ratio_row,
    time_each,
    time_in_turn,
    time_once,
    time_row,
)
from foveate.core.checks import check_int
from foveate.core.image import load_image
from foveate.core.threads import count_threads
from foveate.encoders.load import load_encoder
from foveate.pipeline import allocate, encode, score
from foveate.texture.cache import texture_nbytes
from foveate.texture.texture import Texture

QUESTIONS = ("broccoli", "the child's hand", "a red cup", "where is the table?")
AS_THEY_COME = "one after the other, with NumPy's and onnxruntime's threads as they come"
PHONE = (3024, 4032)
STATM = "/proc/self/statm"


def measure(
    image: Image = PHOTO,
    images: Annotated[int, typer.Option(help="Images of a round.")] = 8,
    threads: Annotated[str, typer.Option(help="Numbers of threads, with commas between.")] = "1,2,4",
    repeats: Annotated[int, typer.Option(help="Rounds of each row; slow ones once a round.")] = 5,
) -> dict[str, Any]:
    """Many images by threads; memory of a texture and of a question."""
    counts = parse_numbers("--threads", threads)
    check_int("--images", images)
    check_int("--repeats", repeats)
    for count in counts:
        check_int("--threads", count, 1, 16)
    rgb = load_image(image).rgb
    batch = [np.ascontiguousarray(np.roll(rgb[:, :: 1 - 2 * (i % 2)], 17 * i, 1)) for i in range(images)]
    texture = encode(rgb)
    as_they_come = with_threads_as_they_come(encode)

    def one_by_one(function: Callable[[Any], Any] = encode) -> None:
        for each in batch:
            function(each)

    rows: list[dict[str, Any]] = []
    for count in counts:
        ways: dict[int, Callable[[], Any]] = {
            0: partial(encode, batch, threads=count),
            1: one_by_one,
            2: partial(one_by_one, as_they_come),
        }
        together, alone, left = time_each(ways, repeats, patience=float("inf")).values()
        if not rows:
            rows.append(time_row("encode(image), one after the other", alone / images, "ms"))
            rows.append(_ratio("  the same", left, alone, AS_THEY_COME))
        rows.append(_ratio(f"encode([{images} images]), {count} threads", alone, together))
        rows.append(_ratio("  the same", left, together, AS_THEY_COME))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texture.safetensors"
        texture.save(file)
        loaded, encoded = time_in_turn(lambda: Texture.load(file), lambda: encode(rgb), repeats)
        rows.append(_ratio("Texture.load(file), of a texture that was saved", encoded, loaded, "encoding it"))
        rows.append(_size("its file", file.stat().st_size))
    return {
        "title": f"benchmarks service: {rgb.shape[0]} x {rgb.shape[1]} pixels, medians of {repeats} rounds, "
        f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}",
        "rows": [*rows, *_memory(rgb, texture), *_new(image)],
        "image": str(image),
    }


def with_threads_as_they_come(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function of an image, with the threads of NumPy and of onnxruntime as both have them by default."""
    encoder: Any = load_encoder("nano")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, count_threads()
    file = str(encoder.folder / encoder.files[0])
    spinning = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def called(image: Any) -> Any:
        with (
            patch("foveate.encoders.nano.load_network", lambda *_: spinning),
            patch("foveate.pipeline.products_in_one_thread", nullcontext),
        ):
            return function(image)

    return called


def _memory(rgb: np.ndarray, texture: Texture) -> list[dict[str, Any]]:
    """Rows about bytes."""
    asked = encode(rgb)
    _ask(asked, 0)
    large = encode(cv2.resize(rgb, PHONE[::-1]), long_side=512)
    one = _peak(lambda: _ask(texture, 1))
    many = _peak(lambda: score(texture, [f"{QUESTIONS[0]} {i}" for i in range(100)])) / 100
    return [
        _size("a texture (Texture.nbytes)", texture.nbytes),
        _size("  with what questions derive and keep", texture_nbytes(asked)),
        _size(f"a texture of {PHONE[0]} x {PHONE[1]} pixels", large.nbytes),
        _size("a question while it is asked, at most", one),
        _size("  each of 100 in one call, maps included", many),
    ]


def _ask(texture: Texture, number: int) -> Any:
    return allocate(score(texture, QUESTIONS[number % len(QUESTIONS)]), KEPT)


def _ratio(what: str, slow: np.ndarray, fast: np.ndarray, to: str = "one after the other") -> dict[str, Any]:
    row = ratio_row(what, slow, fast)
    return row | {"measured": row["measured"].replace(" x", f" x as fast as {to}", 1)}


def _size(what: str, nbytes: float) -> dict[str, Any]:
    return make_row(what, nbytes, f"{nbytes / 1e6:.3g} MB", unit="bytes")


def new_process(image: str) -> None:
    """Print what a process has after its first image: pages of memory (Linux); and the times of the first and later."""
    first = time_once(lambda: score(encode(image), "a dog"))
    pages = Path(STATM).read_text("ascii").split()[1] if Path(STATM).exists() else "0"
    later = np.median([time_once(lambda: score(encode(image), "a cat")) for _ in range(5)])
    print(pages, first / later)


def _new(image: Path) -> list[dict[str, Any]]:
    """Rows about a new process."""
    call = "import sys; from benchmarks.service import new_process; new_process(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", call, image], capture_output=True, text=True, check=True)
    pages, times = (float(number) for number in done.stdout.split())
    return [
        _size("a process that has encoded one image", pages * os.sysconf("SC_PAGE_SIZE")),
        make_row("its first image and question", times, f"{times:.3g} x the time of the next ones", unit="x"),
    ]


def _peak(function: Callable[[], Any]) -> int:
    """Bytes that a call takes at most, what it returns included."""
    function()
    tracemalloc.start()
    try:
        result = function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        del result
