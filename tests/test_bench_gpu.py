"""`python -m benchmarks gpu`: without a GPU it says so at once; what works on the CPU runs."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import gpu
from foveate.core.errors import DeviceError, OptionError


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_without_a_gpu_it_says_so_at_once() -> None:
    with pytest.raises(DeviceError, match="torch sees none") as caught:
        gpu.measure("cuda")
    assert "--device cpu" in caught.value.fix
    with pytest.raises(OptionError, match="--device tpu"):
        gpu.measure("tpu")


def test_it_runs_on_the_cpu() -> None:
    report = gpu.measure("cpu", quick=True)
    assert "no GPU" in report["title"]
    assert [row["median"] for row in report["rows"] if "0.9963" in str(row["target"])] == [1.0]
    assert any("planes of 2 images" in str(row) for row in report["rows"])
    assert all(row["median"] > 0 for row in report["rows"])
    json.dumps(report)
