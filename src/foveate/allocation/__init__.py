"""Relevance -> Allocation: a map and a budget become exactly K cells.

* allocation: `foveate.allocate` of one map; "auto" takes K from the map.
* policies: which cells: TopK, Coverage, Proportional; whole numbers in proportion.
* windows: budgets made of whole windows of cells.
* crops: a map and a total become crops of 64 to 400 tokens each.
* device: the same on tensors.
* overlaps: kept cells beside boxes that are known to be right.
"""

from foveate.allocation.allocation import Allocation, Keep, allocate_map
from foveate.allocation.crops import Regions, regions
from foveate.allocation.overlaps import Overlap, cells_of, overlap
from foveate.allocation.policies import Coverage, Policy, Proportional, TopK
from foveate.core.gone import gone_from

__all__ = [
    "Allocation", "Coverage", "Keep", "Overlap", "Policy", "Proportional", "Regions", "TopK", "allocate_map",
    "cells_of", "overlap", "regions",
]  # fmt: skip
__getattr__ = gone_from("foveate.allocation")
