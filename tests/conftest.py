"""Shared by the tests: the bundled photographs, one texture of each, and which tests an environment can run.

`FOVEATE_TESTS=all` (make test): every extra must be installed, so that nothing is skipped in silence. `base` (make
test-fast): files that import an extra are left out. `serving` (make test-serving): those in serving/, none skipped.
Unset: files whose extras are missing are left out.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import foveate
from foveate import Texture
from foveate.core.errors import MissingExtraError
from foveate.encoders.nano import NanoEncoder
from foveate.encoders.protocol import DenseFeatures

# Deadlines are times, and a time on a shared machine means nothing. Examples are the same in every run.
settings.register_profile(
    "foveate", deadline=None, derandomize=True, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("foveate")

# nano's features differ in the last bit by the number of threads, and commands choose theirs: all tests, and the
# processes that they start, have the same.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what runs in its background with interrupts ignored, and tests that interrupt need them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Triton reads it when it is first imported, by whichever test comes first: without a GPU its kernels are interpreted.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

ROOT = Path(__file__).parents[1]
PHOTOS = Path(str(files("foveate") / "cli" / "photos"))
EXTRAS = (
    "torch",
    "transformers",
    "peft",
    "av",
    "lance",
    "moto",
    "ray",
    "rapidocr",
    "pypdfium2",
    "tifffile",
    "imagecodecs",
    "nbclient",
    "nbformat",
    "starlette",
    "uvicorn",
    "playwright",
    "schemathesis",
    "httpx",
)
WHICH = os.environ.get("FOVEATE_TESTS", "")
ENCODERS = ("bench_suite", "many", "nano", "one_thread", "overlap", "specialists")  # what their tests are about
SEEN: dict[object, DenseFeatures] = {}  # at most MOST_SEEN, the newest last
MOST_SEEN = 60
IMPORTS = re.compile(r"^(?:import|from) ([\w.]+)", re.MULTILINE)  # at the top of a file


def pytest_sessionstart() -> None:
    """`make test` must find every extra, and `make test-oldest` the transformers that it means."""
    missing = [name for name in EXTRAS if find_spec(name) is None]
    if WHICH == "all" and missing:
        pytest.exit(
            f"FOVEATE_TESTS=all needs every extra; missing: {', '.join(missing)} (run: make test)", returncode=2
        )
    wanted = os.environ.get("FOVEATE_TRANSFORMERS")
    if wanted is None:
        return
    import transformers

    found = f"transformers {transformers.__version__} of {Path(transformers.__file__).parents[1]}"
    if not transformers.__version__.startswith(wanted + "."):
        pytest.exit(f"{found}, and not {wanted}, would be tested", returncode=2)
    print(f"tested with {found}")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Whether a test file needs an extra that this run has not; None leaves the decision to pytest."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    return True if any(map(_is_missing, _imports(collection_path))) else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A test that meets a missing extra on its way is skipped; never in `make test` and `make test-serving`."""
    report = yield
    error = None if call.excinfo is None else call.excinfo.value
    absent = isinstance(error, ModuleNotFoundError) and error.name in EXTRAS
    if WHICH not in ("all", "serving") and (absent or isinstance(error, MissingExtraError)):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"needs an extra: {error}")
    return report


@cache
def _is_missing(name: str) -> bool:
    return name in EXTRAS and (WHICH == "base" or find_spec(name) is None)


@cache
def _imports(path: Path) -> frozenset[str]:
    """Packages that a test file imports at its top, itself or through helpers in tests/, benchmarks/ and examples/."""
    found: set[str] = set()
    for name in IMPORTS.findall(path.read_text("utf-8")):
        place = ROOT / Path(*name.split("."))
        helper = next((each for each in (place.with_suffix(".py"), place / "__init__.py") if each.exists()), path)
        found |= {name.split(".")[0]} if helper == path else _imports(helper)
    return frozenset(found)


@pytest.fixture(scope="module", autouse=True)
def seen_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """nano keeps the features of pictures: tests have few, and encode them often. Not where nano is what is tested."""
    if request.path.stem.removeprefix("test_") in ENCODERS:
        yield
        return
    encode_image = NanoEncoder.encode_image

    def remember(self: NanoEncoder, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        key = self.folder, rgb.shape, hashlib.sha1(rgb.tobytes()).digest(), long_side
        if (found := SEEN.pop(key, None)) is None:
            found = encode_image(self, rgb, long_side=long_side)
            found.features.flags.writeable = False
        SEEN[key] = found  # the last one is the newest
        for oldest in tuple(SEEN)[:-MOST_SEEN]:
            SEEN.pop(oldest, None)  # or another thread has
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NanoEncoder, "encode_image", remember)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium (tests/view_page.py), for a file: while Playwright runs, asyncio is its own."""
    from tests.view_page import browsing

    with browsing() as found:
        yield found


@pytest.fixture(scope="session")
def bus() -> Iterator[str]:
    """The address of a viewer of the photograph of a bus."""
    from tests.view_page import serving

    with serving(PHOTOS / "yellow_bus.jpg") as address:
        yield address


@pytest.fixture(scope="module")
def tab(browser: Any, bus: str) -> Iterator[Any]:
    """Its page for all tests of a file that leave no more behind than a state, which is set back."""
    from tests.view_page import opened

    with opened(browser, bus) as found:
        found.wait_for_function("window.foveate?.image")
        yield found


@pytest.fixture
def page(tab: Any, bus: str) -> Iterator[Any]:
    """Its page, as it is opened."""
    from tests.view_page import start_again

    start_again(tab, bus)
    yield tab
    assert not tab.wrong, tab.wrong


def kill_after(seconds: float, script: str, *arguments: object) -> None:
    """Kill a Python process some time after it printed that it is ready, while it works on."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(seconds)
        process.kill()


@pytest.fixture(autouse=True)
def textures_made_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tests of models a photograph is encoded once."""
    if request.path.name.startswith(("test_vlm", "test_ask")):
        from tests.vlm_models import encode_once

        monkeypatch.setattr("foveate.vlm.inputs.images.encode", encode_once)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The tiny model of a family (vlm_models.py) as a folder, written once."""
    from tests.vlm_folders import saved

    return cache(lambda name: saved(name, tmp_path_factory.mktemp(name)))


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is such a place: a store flushes every write, and a disk takes its time."""
    from tests.store_toys import quick_folder

    with quick_folder(tmp_path) as folder:
        yield folder


@pytest.fixture(scope="session")
def broccoli() -> Path:
    return PHOTOS / "child_with_broccoli.jpg"  # 640 x 480: higher than wide


@pytest.fixture(scope="session")
def cake() -> Path:
    return PHOTOS / "cake_and_coffee.jpg"  # 480 x 640: wider than high


@pytest.fixture(scope="session")
def texture(broccoli: Path) -> Texture:
    return foveate.encode(broccoli)


@pytest.fixture(scope="session")
def wide(cake: Path) -> Texture:
    return foveate.encode(cake)


@pytest.fixture(scope="session")
def street() -> Texture:
    return foveate.encode(PHOTOS / "yellow_bus.jpg")  # 427 x 640: neither side a multiple of 8


def same(a: Texture, b: Texture) -> bool:
    """Whether everything that is stored is equal, bit for bit."""

    def facts(t: Texture) -> list[object]:
        return [t.name, t.grid, t.encoder, dict(t.preprocessing), dict(t.made_by), sorted(t.planes)]

    def arrays(t: Texture) -> list[np.ndarray]:
        planes = [t.planes[name] for name in sorted(t.planes)]
        return [t.pixel, t.embedding, t.residual, t.basis.mean, t.basis.rows, np.array(t.valid), *planes]

    return facts(a) == facts(b) and all(map(np.array_equal, arrays(a), arrays(b)))


@pytest.fixture
def noise() -> np.ndarray:
    """An image that is not square and differs in every pixel: uint8 [30, 50, 3]."""
    return np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Kind of a tiny model (tiny_models.py) -> the folder of its checkpoint, made once a session."""
    from tests import tiny_models

    return cache(lambda kind: tiny_models.save(kind, tmp_path_factory.mktemp("tiny") / kind))
