"""Connected components of a graph, all edges at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def find_components(count: int, first: Ints, second: Ints) -> Ints:
    """Edges first-second between nodes 0 to count - 1 -> for each node the lowest one it is connected with.

    Union-find: each root is hooked under the lowest root that an edge leads to, then paths are shortened until every
    node points at its root.
    """
    root = np.arange(count)
    while len(first):
        np.minimum.at(root, np.maximum(first, second), np.minimum(first, second))
        while (root != root[root]).any():
            root = root[root]
        first, second = root[first], root[second]
        apart = first != second
        first, second = first[apart], second[apart]
    return root
