"""Search by entries: an inverted index from an entry to the photographs that have it, with the number of cells.

A question scores the entries instead of the cells: as many products as there are entries. The confidence of a
photograph is the mean of its best 1/256 cells (`foveate.relevance.confidence`); of cells that are known by their
entries that is a walk down the entries, best first, until so many cells are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foveate.encoders.protocol import Calibration
from foveate.language.query import Query
from foveate.relevance.confidence import MOST, PEAK_SHARE
from foveate.relevance.scoring import sigmoid
from foveate.store.hits import combine_peaks
from training.experiments.vocabulary.cells import Cells
from training.experiments.vocabulary.codebooks import Ids

Floats = NDArray[np.float32]
WALK, LEAST = 64, 16  # one entry in so many is walked down, but at least so many


@dataclass(frozen=True, eq=False)
class InvertedIndex:
    """Postings in the order of entries: of entry e those from starts[e] to starts[e + 1].

    starts: int64 [K + 1]. photographs: int32 [n]. counts: uint16 [n], cells. best: int64 [P], cells whose mean counts.
    """

    starts: NDArray[np.int64]
    photographs: NDArray[np.int32]
    counts: NDArray[np.uint16]
    best: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(each.nbytes for each in (self.starts, self.photographs, self.counts, self.best))

    @cached_property
    def holders(self) -> NDArray[np.int64]:
        """Photographs that have each entry [K]."""
        return np.diff(self.starts)

    def peaks(self, worth: Floats, walked: int | None = None) -> Floats:
        """Confidence of every photograph [P] where entries are worth [K], in [0, 1].

        Only the `walked` best entries count, one in 64 by default: further down nothing is seen of the thing. A
        photograph with too few cells of those gets zeros for the rest.
        """
        walked = min(len(worth), max(LEAST, len(worth) // WALK) if walked is None else walked)
        order = np.argsort(-worth, kind="stable")[:walked]
        sizes = self.holders[order]
        first = np.repeat(self.starts[order] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        places = first + np.arange(len(first))
        photograph, value = self.photographs[places], np.repeat(worth[order], sizes)
        by_photograph = np.argsort(photograph, kind="stable")
        photograph, value = photograph[by_photograph], value[by_photograph]
        count = self.counts[places[by_photograph]].astype(np.int64)
        seen = np.cumsum(count) - count  # cells before this posting, of all photographs
        begins = np.searchsorted(photograph, np.arange(len(self.best)))
        offset = np.append(seen, count.sum())[begins]
        left = np.clip(self.best[photograph] - (seen - offset[photograph]), 0, count)
        return np.asarray(np.bincount(photograph, left * value, len(self.best)) / self.best, np.float32)


def best_cells(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Cells whose mean is the confidence of a photograph with so many."""
    return np.clip(sizes // PEAK_SHARE, 1, MOST)


def make_index(ids: Sequence[Ids], entries: int) -> InvertedIndex:
    """Of the ids of each photograph's cells."""
    counts = [np.bincount(each, minlength=entries) for each in ids]
    there = [np.flatnonzero(each) for each in counts]
    entry = np.concatenate(there)
    photograph = np.repeat(np.arange(len(ids), dtype=np.int32), [len(each) for each in there])
    order = np.argsort(entry, kind="stable")
    starts = np.searchsorted(entry[order], np.arange(entries + 1)).astype(np.int64)
    every = np.concatenate([count[where] for count, where in zip(counts, there, strict=True)])
    sizes = np.array([len(each) for each in ids], np.int64)
    return InvertedIndex(starts, photograph[order], every[order].astype(np.uint16), best_cells(sizes))


def rank_by_entries(index: InvertedIndex, features: Floats, query: Query, calibration: Calibration) -> Floats:
    """The score of every photograph for a question [P], by entries that stand for features [K, D]."""
    return _joined([index.peaks(_worth(features @ vector, calibration)) for vector in query.vectors])


def rank_exactly(cells: Cells, photograph: int, vectors: Floats, calibration: Calibration) -> Floats:
    """The confidence of each vector [n, D] in a photograph, from all of its cells: float32 [n]."""
    rows = cells.rows[photograph].astype(np.float32)
    z = cells.z[cells.starts[photograph] : cells.starts[photograph + 1]].astype(np.float32)
    scores = (vectors @ rows.T) @ z.T + (vectors @ cells.mean[photograph])[:, None]
    best = int(best_cells(np.array([len(z)]))[0])
    return np.asarray(_worth(np.partition(scores, -best, axis=1)[:, -best:], calibration).mean(1), np.float32)


def rank_by_planes(peaks: Floats, query: Query, calibration: Calibration) -> Floats:
    """The score of every photograph [P] by the peaks of its planes [P, D]: exact for a question of one plane.

    The peaks of several need not lie on the same cells; for those it is what a cell with all of them would have.
    """
    return _joined([_worth(peaks @ vector, calibration) for vector in query.vectors])


def join_phrases(peaks: Floats, queries: Sequence[Query]) -> Floats:
    """Confidences of all phrases [phrases, P] -> scores of the questions [q, P], as the store joins them."""
    ends = np.cumsum([len(query.phrases) for query in queries])[:-1]
    return np.stack([_joined(list(part)) for part in np.split(peaks, ends)])


def _joined(peaks: list[Floats]) -> Floats:
    if len(peaks) == 1:
        return peaks[0]
    return np.array([combine_peaks(np.array(each, np.float32)) for each in zip(*peaks, strict=True)], np.float32)


def _worth(scores: Floats, calibration: Calibration) -> Floats:
    return sigmoid(np.asarray(scores, np.float32), np.float32(calibration.slope), np.float32(calibration.offset))
