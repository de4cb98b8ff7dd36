"""Relevance -> Allocation: a map and a budget become exactly K cells.

* allocation: `foveate.allocate` of one map; worth: what each cell is worth keeping, the default;
  policies: other rules; windows: budgets made of whole windows of cells.
* repeated: cells whose pixels a neighbour has, so that the first of them stands for all.
* crops: a map and a total become crops of 64 to 400 tokens each.
* torch: the same on tensors; kernel: score, exact top-K and gather of rows as one Triton kernel.
"""

from foveate.allocation.allocation import Allocation, Keep, allocate_map
from foveate.allocation.crops import Regions, regions
from foveate.allocation.policies import DPP, Coverage, MaxMin, Policy, Proportional, TopK
from foveate.core.gone import gone_from

__all__ = [
    "DPP",
    "Allocation",
    "Coverage",
    "Keep",
    "MaxMin",
    "Policy",
    "Proportional",
    "Regions",
    "TopK",
    "allocate_map",
    "regions",
]  # fmt: skip
__getattr__ = gone_from("foveate.allocation")
