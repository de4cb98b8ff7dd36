"""Many clients at a time. The longer run, with times: `python -m benchmarks view --clients 100 --seconds 30`."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import psutil  # type: ignore[import-untyped]
import pytest

from benchmarks.view_clients import press, resident
from tests.conftest import PHOTOS


@pytest.mark.slow
def test_a_hundred_clients_are_answered_and_memory_stays_flat() -> None:
    words = [sys.executable, "-m", "foveate", "view", str(PHOTOS / "yellow_bus.jpg"), "--no-browser"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[2].rstrip("/")
        try:
            first = asyncio.run(press(address, 10, rounds=1))
            before = resident(process.pid)
            second = asyncio.run(press(address, 100, rounds=1))
            grown = resident(process.pid) - before
            assert first.wrong == second.wrong == []
            assert (len(first.seconds), len(second.seconds)) == (40, 400)
            assert grown < 50  # MB; the answers alone have 30
            assert len(psutil.Process(process.pid).children()) == 1  # the decoder
        finally:
            process.kill()
