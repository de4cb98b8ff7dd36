"""Making a store's approximate nearest neighbours: a sample trains the lists, then each shard's vectors are put in.

    sample     every n-th image of all shards, so that albums count as they are large
    filling    a shard at a time; and the exact scan of some nouns of the bank beside it, over the same vectors
    probes     the fewest lists that give the wanted share of the exact scan's best 50 images: counted, not assumed

What is notable
* No more than the sample and one shard is in memory as floats. FAISS keeps 8 bits a number until the file is written:
  0.7 to 1.3 KB an image.
* The caller is the store's writer all the while. Killed at any moment, the store is as it was before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import FoveateError, OptionError, StoreError
from foveate.relevance.negatives import negatives_of
from foveate.store.approximate import SAMPLE, Lists, library, lists_for, probes_for, recall_of
from foveate.store.disk import Disk
from foveate.store.nearest import OVER, USUAL, other_library, uncovered, unfit
from foveate.store.nearest_file import NEAREST_FILE, Facts, flaw, read_facts, read_keys, write
from foveate.store.reader import Reader, log
from foveate.store.recovery import Wanted, Writer, writing

NOUNS = 400  # questions that recall is measured by
Floats = NDArray[np.float32]
Block = tuple[Floats, list[str], str]  # vectors [n, k, s] of a shard's images, their keys, its file if these are all


@dataclass(frozen=True)
class Approximate:
    """What `Store.approximate` made.

    Attributes:
        images, vectors: that the lists hold. lists: how many. probes: lists that a question asks.
        recall: share of the exact scan's best 50 images that `probes` lists give, mean of 400 nouns of the bank.
        nbytes: of the file. seconds: of it all.
    """

    images: int
    vectors: int
    lists: int
    probes: int
    recall: float
    nbytes: int
    seconds: float


def build(
    path: Path, recall: float, wanted: Wanted, disk: Disk, progress: Callable[[int, int], None] | None = None
) -> Approximate:
    """See Store.approximate."""
    started = time.monotonic()
    library()
    if isinstance(recall, bool) or not isinstance(recall, int | float) or not 0 < recall <= 1:
        raise OptionError(f"recall={recall!r}", expected="a share above 0, up to 1", fix="0.95 is usual")
    with writing(path, wanted, disk) as writer:
        images = 0 if writer.identity is None else int(writer.index.ask("SELECT COUNT(*) FROM images")[0][0])
        if writer.identity is None or writer.space is None or not images:
            raise StoreError(
                f"no images in the store '{path}'", expected="some to put into lists", fix="add images first"
            )
        reader = Reader(path, writer.identity, writer.space, writer.index, (), path.parent)
        bank = negatives_of(wanted.tower(writer.identity.encoder)).vectors
        even = np.unique(np.linspace(0, len(bank) - 1, NOUNS).round().astype(int))
        _, weights = writer.space.basis.project(bank[even])
        facts, size = _built(writer, reader, images, weights, float(recall), progress)
    seconds = time.monotonic() - started
    return Approximate(facts.images, facts.vectors, facts.lists, facts.probes, facts.recall, size, seconds)


def _built(
    writer: Writer,
    reader: Reader,
    images: int,
    weights: Floats,
    recall: float,
    progress: Callable[[int, int], None] | None,
) -> tuple[Facts, int]:
    k = reader.identity.vectors
    count = lists_for(images * k)
    every = max(1, images * k // (SAMPLE * count))
    steps = 2 * images

    def said(done: int) -> None:
        if progress is not None:
            progress(done, steps)

    sample: list[Floats] = []
    number = 0
    for vectors, keys, _ in _blocks(reader):
        sample.append(vectors[-number % every :: every])
        number += len(keys)
        said(number)
    if not number:
        raise StoreError(
            f"no shard of the store '{writer.path}' can be read",
            expected="images to put into lists",
            fix="foveate store verify STORE says more",
        )
    few = np.concatenate(sample).reshape(-1, reader.space.basis.rank)
    lists = Lists.trained(few, min(count, len(few)))
    del sample, few
    best = Best(weights, USUAL)
    names: list[bytes] = []
    whole: list[str] = []
    for vectors, keys, file in _blocks(reader):
        numbers = np.arange(len(names), len(names) + len(keys))
        lists.add(vectors.reshape(-1, vectors.shape[-1]), np.repeat(numbers, k))
        best.take(vectors, numbers)
        names += [bytes.fromhex(key) for key in keys]
        whole += [file] * bool(file)
        said(images + len(names))
    probes, found = probes_for(recall_of(lists, weights, best.numbers, OVER * USUAL), lists.lists, recall)
    facts = Facts(
        str(library().__version__), reader.space.hash, len(names), lists.count, lists.lists, probes, recall, found,
        tuple(whole),
    )  # fmt: skip
    target = writer.path / NEAREST_FILE
    facts = write(writer.disk, target, lists, np.frombuffer(b"".join(names), np.uint8).reshape(-1, 32), facts)
    said(steps)
    return facts, target.stat().st_size


def _blocks(reader: Reader) -> Iterator[Block]:
    """The images of each shard that can be read."""
    for sequence, file, images in reader.index.ask("SELECT sequence, file, images FROM shards ORDER BY sequence"):
        rows = reader.index.ask("SELECT key, position FROM images WHERE sequence = ? ORDER BY position", (sequence,))
        if not rows:
            continue
        try:
            vectors = reader.vectors_in(sequence, np.array([position for _, position in rows]))
        except FoveateError as cause:
            log.warning("%s; its images are left out of searches", cause.received)
            continue
        yield vectors.astype(np.float32), [key for key, _ in rows], file if len(rows) == images else ""


class Best:
    """The exact scan of blocks of images, as they come: the numbers of the best for each question."""

    def __init__(self, weights: Floats, count: int) -> None:
        self._weights, self._count = weights, count
        self._scores = np.empty((len(weights), 0), np.float32)
        self.numbers = np.empty((len(weights), 0), np.int64)  # [q, count], in no order; fewer where there are fewer

    def take(self, vectors: Floats, numbers: NDArray[np.int64]) -> None:
        """Vectors [n, k, s] of the images with some numbers."""
        n, k, s = vectors.shape
        scores = (vectors.reshape(n * k, s) @ self._weights.T).reshape(n, k, -1).max(1).T
        scores = np.concatenate([self._scores, scores], 1)
        named = np.concatenate([self.numbers, np.broadcast_to(numbers, (len(self._weights), n))], 1)
        if scores.shape[1] > self._count:
            kept = np.argpartition(-scores, self._count - 1, 1)[:, : self._count]
            scores, named = np.take_along_axis(scores, kept, 1), np.take_along_axis(named, kept, 1)
        self._scores, self.numbers = scores, named


# --- upkeep -----------------------------------------------------------------------------------------------------------


def inspected(path: Path, reader: Reader) -> tuple[str, str]:
    """What verify says of a store's file: (a problem or "", a note or ""). Every byte is read."""
    file = path / NEAREST_FILE
    try:
        facts = read_facts(file)
    except FileNotFoundError:
        return "", ""
    except FoveateError as cause:
        return f"{NEAREST_FILE}: {cause.received}", ""
    why = unfit(facts, reader.space.hash)
    if why:
        return "", f"{NEAREST_FILE}: {why}; it is not used"
    wrong = flaw(file, facts)
    if wrong:
        return f"{NEAREST_FILE}: {wrong}", ""
    try:
        why = other_library(facts)
    except FoveateError:
        why = "is not used: faiss is not installed"
    left = len(uncovered(reader, facts, read_keys(file, facts)))
    note = f"{NEAREST_FILE}: approximate nearest neighbours of {facts.images} images"
    note += f"; {left} more are scanned exactly" if left else ""
    return "", note + (f"; it {why}" if why else "")


def discarded(path: Path, reader: Reader, disk: Disk) -> str:
    """Remove a file that is damaged or of another store. -> a note, or ""."""
    problem, note = inspected(path, reader)
    if not problem and not note.endswith("it is not used"):
        return ""
    disk.remove(path / NEAREST_FILE)
    return f"{problem or note}; it was removed, foveate store approximate makes it again"


def counted(path: Path) -> dict[str, int]:
    """For statistics: images that the file speaks of, and its bytes."""
    file = path / NEAREST_FILE
    try:
        return {"approximate_images": read_facts(file).images, "approximate_bytes": file.stat().st_size}
    except (OSError, FoveateError):
        return {"approximate_images": 0, "approximate_bytes": 0}
