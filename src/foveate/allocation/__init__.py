"""Relevance -> Allocation: a map and a budget become exactly K cells.

* allocation: `foveate.allocate` of one map; policies: which cells; windows: budgets made of whole windows of cells.
* crops: a map and a total become crops of 64 to 400 tokens each.
* torch: the same on tensors; kernel: score, exact top-K and gather of rows as one Triton kernel.
"""

from foveate.allocation.allocation import Allocation, Keep, allocate_map
from foveate.allocation.crops import Regions, regions
from foveate.allocation.policies import Coverage, Policy, Proportional, TopK
from foveate.core.gone import gone_from

__all__ = [
    "Allocation", "Coverage", "Keep", "Policy", "Proportional", "Regions", "TopK", "allocate_map", "regions",
]  # fmt: skip
__getattr__ = gone_from("foveate.allocation")
