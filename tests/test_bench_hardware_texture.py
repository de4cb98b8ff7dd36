"""`python -m benchmarks hardware_texture`: lines against a slow count, gathers against our samplers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import hardware_texture as bench
from benchmarks.hardware_texture import block_linear, layouts, measure, misses, reads, touched

UV = np.random.default_rng(0).random((50, 2))


@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("line", [32, 64, 128])
def test_lines_are_those_of_every_single_byte(linear: bool, line: int) -> None:
    for name, parts in layouts(128, 16).items():
        first, last = reads(parts, UV, linear)
        every = {byte // line for a, b in zip(first.tolist(), last.tolist(), strict=True) for byte in range(a, b + 1)}
        assert set(touched(first, last, line).tolist()) == every, name


def test_a_block_linear_surface_holds_each_byte_once() -> None:
    y, x = (each.ravel() for each in np.mgrid[:16, :256])
    at = block_linear(y, x, 256)
    assert np.array_equal(np.sort(at), np.arange(16 * 256))
    assert set(at[(y < 8) & (x < 64)].tolist()) == set(range(512))  # 64 bytes x 8 rows lie together
    assert set(at[(y < 2) & (x < 16)].tolist()) == set(range(32))  # and of those 16 bytes x 2 rows


@given(st.lists(st.integers(0, 40), max_size=200), st.sampled_from([1, 2, 4]))
def test_the_cache_forgets_what_was_used_least_recently(lines: Sequence[int], ways: int) -> None:
    sets: list[list[int]] = [[] for _ in range(1024 // 64 // ways)]
    expected = 0
    for number in lines:
        held = sets[number % len(sets)]
        expected += number not in held
        if number in held:
            held.remove(number)
        held.append(number)
        del held[:-ways]
    assert misses(np.array(lines, np.int64), 1024, ways) == expected


def test_a_small_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "kept_positions", lambda: UV)
    report = measure(repeats=1, side=512, samples=273)
    planes, five, half4, rows, ours, tokens = (row["median"] for row in report["rows"][:6])
    assert (planes, half4, rows) == (40, 10, 2)
    assert 4.5 < five < 5.5
    assert 10 < ours < 14  # positions far from each other, each plane by itself: here it is the table that is short
    assert tokens <= 2
