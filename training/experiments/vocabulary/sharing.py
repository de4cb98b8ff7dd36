"""What photographs share: are the cells of one entry the same kind of thing in all of them?

Purity is counted on photographs that no codebook was fitted to: the label that most of an entry's cells have elsewhere,
is it the label here? Each labelled cell counts once, and so does each photograph's share of a label (`balanced`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.experiments.vocabulary.cells import Cells, Common
from training.experiments.vocabulary.codebooks import Ids

SHOWN = ("the sky", "the grass", "the road", "the tree", "the person", "the car", "the dog", "the cup")


def shared_by_labels(cells: Cells, common: Common, ids: dict[str, list[Ids]]) -> dict[str, dict[str, Any]]:
    """By vocabulary; the last one has no codebook: the highest of nano's planes, a name for each cell.

    (The last number of nano's features is no name.)
    """
    highest = [(cells.features(number) - common.mean)[:, :-1].argmax(1) for number in range(len(cells))]
    return {name: measure(cells, each) for name, each in (*ids.items(), ("the highest of nano's planes", highest))}


def measure(cells: Cells, ids: Sequence[Ids]) -> dict[str, Any]:
    """Of the entries of each photograph's cells: how pure, and by how many photographs each is used."""
    count = int(max(each.max() for each in ids)) + 1
    fitted = np.repeat(~cells.held_out, cells.sizes)
    entry, labels = np.concatenate(list(ids)), np.asarray(cells.labels)
    known = labels >= 0
    table = np.zeros((count, len(cells.names)), np.int64)
    np.add.at(table, (entry[known & fitted], labels[known & fitted]), 1)
    majority, most = table.argmax(1), table.sum(0).argmax()
    majority[table.sum(1) == 0] = most
    here = known & ~fitted
    right = majority[entry[here]] == labels[here]
    photographs = np.zeros(count, np.int64)
    for each in ids:
        photographs[np.unique(each)] += 1
    used = photographs > 0
    return {
        "entries": int(used.sum()),
        "purity": float(right.mean()),
        "commonest": float((labels[here] == most).mean()),
        "photographs": float(np.median(photographs[used])),
        "in_one": float((photographs[used] == 1).mean()),
        "of_photograph": float(np.mean([len(np.unique(each)) for each in ids])),
        "labels": {name: _of_label(table, cells, name) for name in SHOWN if name in cells.names},
    }


def _of_label(table: NDArray[np.int64], cells: Cells, name: str) -> dict[str, float]:
    """Entries that hold half of the label's cells, and what share of all labelled cells in those have it."""
    column = table[:, cells.names.index(name)]
    order = np.argsort(-column, kind="stable")
    enough = int(np.searchsorted(np.cumsum(column[order]), column.sum() / 2)) + 1
    return {"half_in": enough, "theirs": float(column[order[:enough]].sum() / table[order[:enough]].sum())}


def sharing_table(found: dict[str, dict[str, Any]]) -> str:
    """Markdown of `shared_by_labels`."""
    shown = list(next(iter(found.values()))["labels"])
    head = ["vocabulary", "purity (held out)", "photographs an entry (median)", "entries a photograph", *shown]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, row in found.items():
        cells = [name, f"{row['purity']:.3f}", f"{row['photographs']:.0f}", f"{row['of_photograph']:.0f}"]
        cells += [f"{row['labels'][each]['half_in']} entries, {row['labels'][each]['theirs']:.2f}" for each in shown]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, f"\nThe commonest label everywhere: {row['commonest']:.3f}."])
