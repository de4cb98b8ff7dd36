"""How quick the viewer is in headless Chromium: typing, the budget's slider, its start, a large folder.

    python -m benchmarks view
    python -m benchmarks view --clients 100 --seconds 30

Times in the page are from an event until the frame that shows its result is painted, so none is below a frame of the
screen, 16.7 ms. A large folder has the bundled photographs under 3,000 names; `--photos` takes another.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.request import urlopen

import numpy as np
import typer

from benchmarks.common import KEPT, PHOTO, PHOTOS, Image, Repeats, time_row
from foveate.core.checks import check_int

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TYPED = "the broccoli in the hand of the child at the table"
MANY = 3000
FRAMES = 240


def measure(
    image: Image = PHOTO,
    photos: Annotated[Path | None, typer.Option(help="A large folder of images instead of the made one.")] = None,
    repeats: Repeats = 5,
    clients: Annotated[int, typer.Option(help="So many clients at a time, and nothing else.")] = 0,
    seconds: Annotated[float, typer.Option(help="How long they ask.")] = 30,
) -> dict[str, Any]:
    """Typing, the slider, the start and a large folder in the viewer; or many clients."""
    if clients:
        from benchmarks.view_clients import client_rows

        with _started(image) as (address, _, process):
            rows = client_rows(address, process, clients, seconds)
        return {"title": "benchmarks view: clients", "rows": rows, "image": str(image)}
    from tests.view_page import browsing

    check_int("--repeats", repeats)
    with browsing() as browser:
        rows = [*_page(browser, image), *_starts(image, repeats)]
        if photos is not None:
            rows += _folder(browser, photos, repeats)
        else:
            with tempfile.TemporaryDirectory() as made:
                rows += _folder(browser, _make_folder(Path(made)), repeats)
    title = f"benchmarks view: medians; starts and folders {repeats} times"
    return {"title": title, "rows": rows, "image": str(image)}


# --- in one page ------------------------------------------------------------------------------------------------------

PAINTED = """
    const frame = () => new Promise(requestAnimationFrame);
    const painted = () => new Promise((done) => requestAnimationFrame(() => {
        const { port1, port2 } = new MessageChannel(); // its message comes after the frame was painted
        port1.onmessage = done;
        port2.postMessage(null);
    }));
    const enter = (field, value) => {
        field.value = value;
        field.dispatchEvent(new Event("input", { bubbles: true }));
    };
"""


def _page(browser: Browser, image: Path) -> Iterator[dict[str, Any]]:
    """Rows about one page with one image."""
    from tests.view_page import opened

    with _started(image) as (address, *_), opened(browser, address) as page:
        page.wait_for_function("window.foveate?.image")
        letters = [TYPED[:n] for n in range(5, len(TYPED) + 1) if TYPED[n - 1] != " "]
        keys = _milliseconds(page, TYPING, letters)
        yield time_row("a keystroke until its map is painted", keys / 1e3, "ms", "<= 50 ms")
        again = [f"{text} and" for text in letters]
        work = _work(page, lambda: _milliseconds(page, TYPING, again)) / len(again)
        yield time_row("  work of the page's thread for it", np.array([work]), "ms")
        yield from _slider(page)
        yield from _allocations(page)


def _slider(page: Page) -> Iterator[dict[str, Any]]:
    idle = _milliseconds(page, IDLE, FRAMES)
    yield time_row("a frame in which nothing happens", idle / 1e3, "ms")
    for policy, target in (("topk", "<= 16.8 ms"), ("proportional", "<= 16.8 ms"), ("coverage", "")):
        frames = _milliseconds(page, SLIDING, [policy, FRAMES])
        yield time_row(f"a frame while the budget moves, {policy}", frames / 1e3, "ms", target)
        work = _work(page, lambda policy=policy: _milliseconds(page, SLIDING, [policy, FRAMES])) / FRAMES  # type: ignore[misc]
        yield time_row("  work of the page's thread for it", np.array([work]), "ms", target)


def _allocations(page: Page) -> Iterator[dict[str, Any]]:
    times = _milliseconds(page, ALLOCATING, ["topk", KEPT])
    yield time_row(f"{KEPT} of 64 x 64 cells, topk", times / 1e3, "ms", "< 1 ms")


TYPING = """
    const field = document.querySelector("#questions input"), canvas = document.querySelector("#stage canvas");
    for (const text of given) {
        const start = performance.now();
        enter(field, text);
        while (canvas.dataset.painted !== text && performance.now() < start + 5000) await painted();
        times.push(performance.now() - start);
    }
"""
IDLE = """
    let last = await frame();
    for (let i = 0; i < given; i++) { const now = await frame(); times.push(now - last); last = now; }
"""
SLIDING = """
    const [policy, count] = given, slider = document.querySelector("#tokens-budget");
    window["foveate"].set({ policy, view: "kept" });
    while (!foveate.kept()) await painted();
    let last = await frame();
    for (let i = 0; i < count; i++) {
        enter(slider, 1 + Math.round((slider.max - 1) * (1 + Math.sin(i / 20)) / 2));
        const now = await frame();
        times.push(now - last);
        last = now;
    }
"""
ALLOCATING = """
    const { allocate } = await import("/static/allocate.js"), [policy, budget] = given, side = 64, rank = 24;
    const random = (count) => Float32Array.from({ length: count }, Math.random);
    const scores = { map: random(side * side), points: random(side * side * rank), h: side, w: side };
    const batch = policy === "topk" ? 100 : 1; // the clock of a page is coarse
    for (let i = 0; i < 30; i++) {
        const start = performance.now();
        for (let j = 0; j < batch; j++) allocate(scores, budget + (j % 7), { policy });
        times.push((performance.now() - start) / batch);
    }
    times.splice(0, 5);
"""


def _milliseconds(page: Page, script: str, given: Any) -> np.ndarray:
    """What a script pushes to `times`."""
    return np.array(page.evaluate(f"async (given) => {{ {PAINTED} const times = []; {script} return times; }}", given))


def _work(page: Page, run: Callable[[], Any]) -> float:
    """Seconds of the processor that the page's thread takes: what others do on the machine does not count."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")

    before = spent()
    run()
    after = spent()
    session.detach()
    return after - before


# --- processes --------------------------------------------------------------------------------------------------------


@contextmanager
def _started(target: Path) -> Iterator[tuple[str, float, int]]:
    """A viewer in a process of its own: its address, the moment at which it was started, and its number."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "foveate", "view", str(target), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://[\w.:]+", process.stdout.readline())
        assert found is not None, "no address"
        yield found[0], start, process.pid
    finally:
        process.terminate()
        process.wait(30)


def _read(address: str) -> bytes:
    with urlopen(address, timeout=60) as answer:
        return bytes(answer.read())


def _starts(image: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Rows about the start, above that of Python."""
    first = []
    for _ in range(repeats):
        with _started(image) as (address, start, _):
            _read(address)
            first.append(time.perf_counter() - start)
    yield time_row("foveate view, until the page is answered", np.array(first), "s", "<= 1 s")


def _make_folder(folder: Path) -> Path:
    """The bundled photographs under many names, without a copy of them."""
    photos = sorted(PHOTOS.glob("*.jpg"))
    for number in range(MANY):
        source = photos[number % len(photos)]
        os.symlink(source, folder / f"{source.stem}_{number:04}.jpg")
    return folder


def _folder(browser: Browser, folder: Path, repeats: int) -> Iterator[dict[str, Any]]:
    """Rows about a large folder."""
    from tests.view_page import opened

    answered, seen = [], []
    for _ in range(repeats):
        with _started(folder) as (address, start, _):
            _read(address)
            answered.append(time.perf_counter() - start)
            with opened(browser, address) as page:
                begin = time.perf_counter()
                page.reload()
                page.wait_for_function("[...document.querySelectorAll('#gallery img')].some((image) => image.complete)")
                seen.append(time.perf_counter() - begin)
    yield time_row(f"a folder of {len(list(folder.iterdir()))}, until the page is answered", np.array(answered), "s")
    yield time_row("  from its address until its first pictures are there", np.array(seen), "s", "<= 1 s")
