"""Frames a second: the arithmetic by hand, and that both ways see the same frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import frames
from benchmarks.frames import claim_row, measure, speedup

pytestmark = pytest.mark.video


def test_the_gain_of_carrying_by_hand() -> None:
    assert speedup(10, 0, 12) == pytest.approx(12)  # carrying for nothing: the limit
    assert speedup(10, 10, 12) == pytest.approx(1)
    assert speedup(4.1, 0.9, 30) == pytest.approx(4.1 * 30 / (4.1 + 29 * 0.9))
    row = claim_row("4.1 ms once", 4.1, 0.9, 30, "138 x")
    assert row["cells"][2:] == ["1.01 ms", "139 x", "4.1 x"]
    assert claim_row("on average", 140, 0.5, None, "280 x")["cells"][2:] == ["0.50 ms", "280 x", "-"]


@given(st.floats(0.1, 1e3), st.floats(0, 1e3), st.floats(1, 1e3))
def test_it_is_never_above_the_interval_and_grows_as_carrying_gets_cheaper(t: float, c: float, k: float) -> None:
    found = speedup(t, min(c, t), k)
    assert 1 - 1e-9 <= found <= k * (1 + 1e-9)
    assert speedup(t, min(c, t) / 2, k) >= found * (1 - 1e-9)


def test_a_small_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MADE", (96, 160))
    report = measure(None, repeats=1, length=6, side=160)
    rows = {row["what"].strip(): row["median"] for row in report["rows"]}
    assert report["title"].startswith("bus, broccoli: 12 frames from files, ")
    assert rows["followed, times as fast"] > 1
    assert 0 < rows["the thing in a tenth of the cells, followed"] <= 1
    assert rows["its limit: frames for one that is encoded, K"] == pytest.approx(12 / rows_encoded(report))
    assert rows["`foveate video`, drawn and written, frames a second"] > 0
    assert [row["claimed"] for row in report["claims"]] == ["280 x", "138 x", "28 x", "900 x"]


def rows_encoded(report: dict[str, object]) -> int:
    """Frames that were encoded, by the title's share of 12."""
    return round(12 * int(str(report["title"]).split(", ")[-1].split("%")[0]) / 100)
