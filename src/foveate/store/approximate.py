"""Approximate nearest neighbours by FAISS: inverted lists over image-level vectors, which are asked a few at a time.

    lists    centres of k-means; each vector lies in the list of the centre that is nearest to it, in 8 bits a number
    asked    the lists whose centres have the highest q.c; of their vectors those with the highest q.v

What is notable
* Lists are made by distance and chosen by inner product. FAISS by itself does both by inner product; long vectors then
  draw all others into their lists. On photographs (docs/store.md) as much is found in a ninth of the vectors.
* Nothing more is needed to suit the lists to questions: a store's space is fitted to them (basis.py), so distance in it
  is the mean error of scores.
* faiss is imported here, when it is used, and nowhere else. Searching takes one thread: OpenMP's others do not survive
  a fork. Building takes as many as OpenMP gives.

Not covered: GPUs; quantisers that keep less than 4 bits a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import MissingExtraError, StoreDamagedError

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]
ROUNDS, SEED = 10, 1  # of k-means
SAMPLE = 64  # vectors a list that k-means sees
PIECE = 2**20  # bytes given to be written at a time
FEW, ENOUGH, MANY = (
    4.0,
    4096,
    1.6,
)  # times the root of the number of vectors: lists of a small store, and of a large one


def library() -> Any:
    """The module faiss. Raises MissingExtraError."""
    try:
        import faiss
    except ImportError as cause:
        raise MissingExtraError(
            f"approximate nearest neighbours need {cause.name}, which is not installed",
            expected="the extra [faiss] (faiss-cpu)",
            fix="pip install 'foveate[faiss]'; the exact scan needs nothing more",
        ) from cause
    return faiss


def lists_for(vectors: int) -> int:
    """How many lists so many vectors are put into: 4 roots of their number up to 4,096 lists, 1.6 roots from there on.

    >>> lists_for(1), lists_for(30_000), lists_for(6_000_000), lists_for(60_000_000)
    (1, 693, 4096, 12394)
    """
    root = float(np.sqrt(vectors))
    return max(1, min(vectors, round(min(FEW * root, max(ENOUGH, MANY * root)))))


class Lists:
    """An index of FAISS whose vectors have the numbers of their images; several have the same."""

    def __init__(self, index: Any, centres: Any = None) -> None:
        self._index, self._centres = index, centres

    @classmethod
    def trained(cls, sample: Floats, lists: int, bits: int = 8) -> Lists:
        """Lists without vectors. `sample`: float32 [n, s] with n at least `lists`; `bits` a number: 4, 8 or 16."""
        faiss = library()
        width = sample.shape[1]
        means = faiss.Kmeans(width, lists, niter=ROUNDS, seed=SEED, min_points_per_centroid=1)
        means.train(np.ascontiguousarray(sample))
        centres, chosen = faiss.IndexFlatL2(width), faiss.IndexFlatIP(width)
        centres.add(means.centroids)
        chosen.add(means.centroids)
        kinds = faiss.ScalarQuantizer
        kind = {4: kinds.QT_4bit, 8: kinds.QT_8bit, 16: kinds.QT_fp16}[bits]
        index = faiss.IndexIVFScalarQuantizer(chosen, width, lists, kind, faiss.METRIC_INNER_PRODUCT, False)
        index.train(np.ascontiguousarray(sample))  # the steps of 8 bits; the lists are trained already
        return cls(index, centres)

    @classmethod
    def read(cls, file: Path) -> Lists:
        """From a file, which is mapped: what is not asked stays on the disk. Raises StoreDamagedError."""
        faiss = library()
        try:
            index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
            faiss.downcast_InvertedLists(index.invlists).prefetch_nthread = 0  # threads do not survive a fork
        except (RuntimeError, AttributeError) as cause:
            raise StoreDamagedError(
                f"'{file}' is no index that FAISS reads ({str(cause).splitlines()[0]})",
                expected="the file that was written",
                fix="foveate store approximate STORE makes it again",
            ) from cause
        return cls(index)

    def write(self, out: Callable[[bytes], object]) -> int:
        """Give all bytes of the file, in parts. -> bytes of its head: all before the vectors, which come last."""
        faiss = library()
        errors: list[BaseException] = []
        held, written = bytearray(), 0

        def take(part: bytes) -> int:
            nonlocal written
            written += len(part)
            held.extend(part)
            try:
                if len(held) >= PIECE and not errors:
                    out(bytes(held))
                    held.clear()
            except BaseException as error:  # it cannot pass through C++
                errors.append(error)
            if errors:
                held.clear()
            return len(part)

        faiss.write_index(self._index, faiss.PyCallbackIOWriter(take))
        if errors:
            raise errors[0]
        out(bytes(held))
        return written - self.count * (int(self._index.code_size) + 8)

    @property
    def count(self) -> int:
        """Vectors."""
        return int(self._index.ntotal)

    @property
    def lists(self) -> int:
        """Lists."""
        return int(self._index.nlist)

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return int(self._index.d)

    def add(self, vectors: Floats, numbers: Whole) -> None:
        """Put vectors [n, s] of the images with these numbers [n] into their lists."""
        pointer = library().swig_ptr
        vectors = np.ascontiguousarray(vectors, np.float32)
        numbers = np.ascontiguousarray(numbers, np.int64)
        nearest = np.ascontiguousarray(self._centres.assign(vectors, 1).ravel(), np.int64)
        self._index.add_core(len(vectors), pointer(vectors), pointer(numbers), pointer(nearest))

    def best(self, weights: Floats, count: int, probes: int) -> Whole:
        """Numbers of the images of the best vectors: [q, count], best first, -1 where there are no more.

        Args:
            weights: of the questions, float32 [q, s].
            count: vectors of each. probes: lists that each asks.
        """
        faiss = library()
        given = faiss.SearchParametersIVF(nprobe=max(1, min(probes, self.lists)))
        with _one_thread(faiss):
            _, numbers = self._index.search(np.ascontiguousarray(weights, np.float32), count, params=given)
        return np.asarray(numbers, np.int64)


def probes_for(found: Callable[[int], float], lists: int, wanted: float) -> tuple[int, float]:
    """The lowest number of lists to ask with a recall of `wanted`, and its recall; all of them where none reaches it.

    `found` gives the recall of a number of lists, and is taken to rise with it.
    """
    below, probes, recall = 0, 1, found(1)
    while recall < wanted and probes < lists:
        below, probes = probes, min(lists, probes + max(1, probes // 3))
        recall = found(probes)
    while recall >= wanted and probes - below > 1:
        middle = (below + probes) // 2
        between = found(middle)
        if between >= wanted:
            probes, recall = middle, between
        else:
            below = middle
    return probes, recall


def recall_of(lists: Lists, weights: Floats, right: Whole, count: int) -> Callable[[int], float]:
    """The share of the images `right` [q, n] that are among those of the best `count` vectors, by the lists asked."""

    def found(probes: int) -> float:
        got = lists.best(weights, count, probes)
        return float(np.mean([np.isin(wanted, numbers).mean() for wanted, numbers in zip(right, got, strict=True)]))

    return found


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """OpenMP's number is this thread's own, so others are not disturbed."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
