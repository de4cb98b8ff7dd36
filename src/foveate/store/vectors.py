"""What stands for an image in a search: a few of its cells that are most unlike each other.

A question is about a thing, and a thing is a few cells: the mean of an image says little of it. So an image is
represented by k vectors, and its score in the short list is the highest of theirs. They are chosen by farthest-point
sampling: the cell farthest from the mean, then again and again the cell farthest from all that were chosen.
docs/store.md has the recall of this, and of means of clusters, against exact ranking.

What is notable
* The vectors are in a space that all images of a store share: a basis that is fitted to a sample of its images. The
  cells themselves are kept in a basis of their own by default, which says much more with fewer numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def farthest(points: Floats, count: int) -> Floats:
    """`count` of the points [n, s], each as far as can be from those before; ties go to the lower index.

    Of fewer points some are repeated.
    """
    squares = np.einsum("ns,ns->n", points, points)

    def distance(centre: Floats) -> Floats:
        return np.asarray(squares - 2 * (points @ centre) + centre @ centre, np.float32)

    chosen = [int(distance(points.mean(0)).argmax())]
    nearest = distance(points[chosen[0]])
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        np.minimum(nearest, distance(points[chosen[-1]]), out=nearest)
    return points[chosen]
