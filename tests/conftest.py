"""Shared by the tests: the bundled photographs, and one texture of each, encoded once a session."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import foveate
from foveate import Texture

# Deadlines are times, and a time on a shared machine means nothing. Examples are the same in every run.
settings.register_profile("foveate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("foveate")

# nano's features differ in the last bit by the number of threads, and commands choose theirs: all tests, and the
# processes that they start, have the same.
os.environ.setdefault("OMP_NUM_THREADS", "2")

PHOTOS = Path(str(files("foveate") / "cli" / "photos"))


def pytest_sessionstart() -> None:
    """`make test-oldest` names the transformers that it means: no other may be tested in its place."""
    wanted = os.environ.get("FOVEATE_TRANSFORMERS")
    if wanted is None:
        return
    import transformers

    found = f"transformers {transformers.__version__} of {Path(transformers.__file__).parents[1]}"
    if not transformers.__version__.startswith(wanted + "."):
        pytest.exit(f"{found}, and not {wanted}, would be tested", returncode=2)
    print(f"tested with {found}")


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


@pytest.fixture
def noise() -> np.ndarray:
    """An image that is not square and differs in every pixel: uint8 [30, 50, 3]."""
    return np.random.default_rng(0).integers(0, 256, (30, 50, 3), np.uint8)
