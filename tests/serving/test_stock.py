"""Requests without a budget beside a vLLM that has no foveate: what docs/serving.md measures, with a tiny model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.serving_engine import beside_stock


def test_answers_are_the_same_bit_for_bit(folders: Callable[[str], Path]) -> None:
    report = beside_stock(folders("qwen2_5_vl"), None, requests=2, rounds=1, max_tokens=3)
    assert "4 answers are the same" in report["title"]
    assert [row["time"] for row in report["rows"]] == ["CPU", "wall"]
