"""Keeping a store: is every byte as it was written, can it be smaller, and can several become one?

At any moment a crash leaves the old shards, the new ones, or both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foveate.core.errors import FoveateError, StoreDamagedError, StoreError
from foveate.language.negatives import query_metric_of
from foveate.store import ann
from foveate.store.disk import TEMPORARY, Disk
from foveate.store.format import FOLDER, Draft, Identity, Name, Record, find_flaws, list_shards, read_shard
from foveate.store.index import IMAGES, ImageRow, Index, ShardRow, drop_shard, image_rows, pack_name, unpack_name
from foveate.store.ingest import SHARD_BYTES, SHARD_IMAGES
from foveate.store.reader import Reader, log
from foveate.store.record import basis_tensors, image_vectors
from foveate.store.recovery import QUARANTINE, Wanted, Writer, no_store, open_store, writing
from foveate.store.words import texts_of

SMALL = SHARD_IMAGES // 2  # a shard with fewer images is worth merging
TEXTS = "images LEFT JOIN writing ON writing.rowid = images.id"
NAMES = "names JOIN images ON images.id = names.image"


@dataclass(frozen=True)
class Verified:
    """What `verify` found.

    Attributes:
        images, names, shards, nbytes: of the store.
        problems: one line each; empty where all is well.
        damaged: paths of images whose records are lost or damaged.
        repaired: shards that were put aside.
        notes: what is no problem: leftovers of a crash, quarantined shards.
    """

    images: int
    names: int
    shards: int
    nbytes: int
    problems: tuple[str, ...]
    damaged: tuple[str, ...]
    repaired: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(path: Path, reader: Reader) -> Verified:
    """Read everything and compare. Nothing is changed."""
    problems: list[str] = []
    damaged: list[str] = []
    notes: list[str] = []
    index = reader.index
    listed = {shard.file: shard.sequence for shard in index.shards()}
    replaced = {sequence for (sequence,) in index.ask("SELECT sequence FROM replaced")}
    lying = list_shards(path)
    try:
        index.check_all()
    except StoreDamagedError as error:
        problems.append(f"index: {error.received}")
    for file in lying:
        if file.name in listed:
            wrong, stale = _compare(reader, file, damaged)
            problems += wrong + stale
        elif int(file.name[:8]) in replaced:
            notes.append(f"{file.name}: replaced; it goes when the store is next opened")
        else:
            notes.append(f"{file.name}: not in the index yet; it is taken in when the store is next opened")
    for name in listed.keys() - {file.name for file in lying}:
        problems.append(f"{name}: missing")
        damaged += _paths(reader, "images.sequence = ?", listed[name])
    for folder in (path, path / FOLDER):
        notes += [f"{file.name}: left by a crash" for file in folder.glob(".*") if TEMPORARY.fullmatch(file.name)]
    if (path / QUARANTINE).is_dir():
        notes += [f"{QUARANTINE}/{file.name}" for file in sorted((path / QUARANTINE).iterdir())]
    problem, note = ann.inspect(reader)
    problems += [problem] * bool(problem)
    notes += [note] * bool(note)
    size = sum(file.stat().st_size for file in lying)
    damaged = list(dict.fromkeys(damaged))
    images, names = index.count(), index.count(table="names")
    return Verified(images, names, len(lying), size, tuple(problems), tuple(damaged), (), tuple(notes))


def _compare(reader: Reader, file: Path, damaged: list[str]) -> tuple[list[str], list[str]]:
    """What is wrong with a shard that the index knows; the paths of damaged images are added to `damaged`."""
    shard, broken, flaw = find_flaws(file)
    if shard is None:
        damaged += _paths(reader, "images.sequence = ?", int(file.name[:8]))
        return [f"{file.name}: {flaw}"], []
    problems = []
    if flaw:
        problems.append(f"{file.name}: {flaw}" + (f", images {broken}" if broken else ""))
        for position in broken:
            damaged += _paths(reader, "images.sequence = ? AND images.position = ?", shard.sequence, position)
    if not reader.identity.admits(shard.identity):
        problems.append(f"{file.name}: of another store")
    right = set(image_rows(shard))
    rows = reader.index.ask(f"SELECT {IMAGES} FROM images WHERE sequence = ?", (shard.sequence,))
    stale = [f"{file.name}: image {row[3]} is not what the index says" for row in rows if row not in right]
    header = ShardRow(shard.sequence, shard.file, shard.bytes, len(shard.entries), *shard.vectors)
    if reader.index.shards("sequence = ?", (shard.sequence,)) != [header]:
        stale.append(f"{file.name}: the shard is not what the index says")
    if reader.index.texts:
        listed = reader.index.ask(f"SELECT position, text FROM {TEXTS} WHERE sequence = ?", (shard.sequence,))
        right_texts = dict(enumerate(texts_of(reader.path, shard)))
        unlike = [position for position, content in listed if content != right_texts.get(position, "")]
        stale += [f"{file.name}: image {position} has other words in the index" for position in unlike]
    return problems, stale


def _paths(reader: Reader, condition: str, *values: Any) -> list[str]:
    found = reader.index.ask(f"SELECT path FROM {NAMES} WHERE {condition}", values)
    return [path.decode("utf-8", "surrogatepass") for (path,) in found if type(path) is bytes]


def repair(path: Path, wanted: Wanted, disk: Disk) -> Verified:
    """`verify`, and put damaged shards into `quarantine/`; what is whole in them is published again."""
    lost: list[str] = []
    aside: list[str] = []
    with writing(path, wanted, disk) as writer:
        try:
            writer.index.check_all()
        except StoreDamagedError as error:
            log.warning("%s; it is made again", error.received)
            writer.rebuild()
            writer.adopt()
        reader, again = _reader(writer), False
        for listed in reader.index.shards():
            sequence, file = listed.sequence, path / FOLDER / listed.file
            if not file.is_file():
                with disk.transaction(writer.index.connection, file):
                    lost += drop_shard(writer.index.connection, sequence, writer.index.texts)
                continue
            problems, stale = _compare(reader, file, [])
            again = again or bool(stale)
            if not problems:
                continue
            draft = Draft(replaces=[sequence])
            for row in reader.index.images("images.sequence = ?", (sequence,)):
                record = _record(reader, row, wanted)
                if record is None:
                    lost += _paths(reader, "images.id = ?", row.id)
                else:
                    draft.records.append(record)
                    draft.names += _names(reader, row)
            draft.names += _other_names(reader, file, {name.path for name in draft.names} | set(lost))
            draft.removed = _still_removed(reader, file, sequence, range(sequence))
            writer.commit(draft)
            writer.quarantine(file)
            aside.append(listed.file)
        if again:
            writer.rebuild()
        gone = ann.discard(reader, disk)
        reader.close()
        found = verify(path, _reader(writer))
    notes = (*found.notes, *([gone] * bool(gone)))
    return replace(found, damaged=tuple(dict.fromkeys(lost)), repaired=tuple(aside), notes=notes)


def compact(path: Path, wanted: Wanted, disk: Disk, progress: Callable[[int, int], None] | None = None) -> int:
    """Rewrite small shards and those with removed images. -> bytes that became free."""
    with writing(path, wanted, disk) as writer:
        before = sum(file.stat().st_size for file in list_shards(path))
        live = dict(writer.index.ask("SELECT sequence, COUNT(*) FROM images GROUP BY sequence"))
        listed = writer.index.shards()
        todo = [s for s in listed if live.get(s.sequence, 0) < s.images or s.images < SMALL]
        if len(todo) == 1 and 0 < live.get(todo[0].sequence, 0) == todo[0].images:
            return 0  # one small shard, all alive: nothing to gain
        stay = {shard.sequence for shard in listed} - {shard.sequence for shard in todo}
        reader = _reader(writer)
        draft = Draft()
        for done, shard in enumerate(todo, 1):
            file = path / FOLDER / shard.file
            for row in reader.index.images("images.sequence = ? ORDER BY position", (shard.sequence,)):
                draft.records.append(_whole_record(reader, row, wanted, f"the shard '{file}'"))
                draft.names += _names(reader, row)
            draft.names += _other_names(reader, file, {n.path for n in draft.names})
            draft.removed += _still_removed(reader, file, shard.sequence, stay)
            draft.replaces.append(shard.sequence)
            if len(draft.records) >= SHARD_IMAGES or draft.nbytes >= SHARD_BYTES or done == len(todo):
                old = [file for file in list_shards(path) if int(file.name[:8]) in draft.replaces]
                writer.commit(draft)
                for file in old:
                    writer.disk.remove(file)
                draft = Draft()
            if progress is not None:
                progress(done, len(todo))
        reader.close()
        return before - sum(file.stat().st_size for file in list_shards(path))


def merge(path: Path, others: Sequence[Path], wanted: Wanted, disk: Disk) -> int:
    """Take the images of other stores; peaks are made where this one has them. -> how many. Raises StoreError."""
    sources: list[tuple[Path, Reader]] = []
    for other in others:
        source = open_store(other, Wanted(), disk, (), other.parent)
        if source is None:
            raise no_store(other)
        sources.append((other, source))
    new = 0
    with writing(path, wanted, disk) as writer:
        # a new store has peaks if one of the others has, wherever it stands; they are taken in the order given
        like = max((source for _, source in sources), key=lambda source: source.identity.version, default=None)
        identity = writer.identity or (like.identity if like is not None else None)
        for other, source in sources:  # all of them, before anything is written
            if identity is not None and not identity.admits(_with_peaks(source.identity, identity)):
                raise _refusal(path, identity, other, source.identity)
        if writer.identity is None and like is not None:
            writer.begin(like.identity, like.space)
        for other, source in sources:
            draft, taker = Draft(), _reader(writer)
            for row in source.index.images("1 ORDER BY images.id"):
                if _lacks(taker, row, source):
                    draft.records.append(_whole_record(source, row, wanted, f"the store '{other}'", writer.identity))
                    new += 1
                draft.names += [name for name in _names(source, row) if not _has_name(writer.index, name)]
                if len(draft.records) >= SHARD_IMAGES or draft.nbytes >= SHARD_BYTES:
                    writer.commit(draft)
                    draft = Draft()
            writer.commit(draft)
            source.close()
    return new


def _with_peaks(other: Identity, identity: Identity) -> Identity:
    """The other identity; with peaks, and bases as this one has them, where it has peaks and the other could."""
    if not identity.peaks or other.kind != "own":
        return other
    return replace(other, vectors=identity.vectors, space=identity.space, peaks=True, columns=identity.columns)


def _refusal(path: Path, identity: Identity, other: Path, offered: Identity) -> StoreError:
    """The error of a store that does not take the images of another; only what stands in the way is named."""
    late = offered.peaks and not identity.peaks  # then the other could take the images of this one
    taker, taken = (offered, identity) if late else (identity, offered)
    obstacles = _unlike(replace(_with_peaks(taken, taker), reader=taken.reader or taker.reader), taker)
    if not obstacles:
        return StoreError(
            f"the store '{other}' has peaks, and '{path}' has none",
            expected="a store with peaks, or a new one: they take the images of both",
            fix=f"merge this store into a new one: foveate store merge NEW.fov {path} {other}; docs/store.md#peaks",
        )
    again = "index its images into this store; or make one of the two again with the options of the other"
    like = "index its images into this store; parts of unlike machines, or of other files, need --like"
    return StoreError(
        f"the store '{other}' has another {obstacles} than the rest",
        expected="parts of one collection, made with the same --rank, --long-side and --read: 'foveate index --shard'",
        fix=f"{again}: docs/store.md#peaks" if taker.peaks and taken.kind == "own" else like,
    )


def _lacks(taker: Reader, row: ImageRow, source: Reader) -> bool:
    """Whether a store lacks an image, or what is written in it."""
    found = taker.index.images("images.key = ?", (row.key,))
    return not found or (source.words_length(row) > 0 and taker.words_length(found[0]) == 0)


def _unlike(one: Identity, other: Identity) -> str:
    a, b = one.as_json(), other.as_json()
    words = {
        "space": "shared space (fitted to other images, or by a machine that rounds otherwise)",
        "preprocessing": "long side",  # its version is the same in all that can be opened
    }
    return ", ".join(words.get(name, name) for name in {**a, **b} if name != "version" and a.get(name) != b.get(name))


def _has_name(index: Index, name: Name) -> bool:
    return bool(index.ask(f"SELECT 1 FROM {NAMES} WHERE path = ? AND key = ?", (pack_name(name.path), name.key)))


def statistics(path: Path, reader: Reader) -> dict[str, Any]:
    """Numbers about a store, as JSON has them."""
    index, identity = reader.index, reader.identity
    images = index.count()
    return {
        "store": str(path),
        "encoder": identity.encoder.name,
        "revision": identity.encoder.revision,
        "basis": identity.kind,
        "rank": identity.rank,
        "long_side": identity.long_side,
        "reader": identity.reader or None,
        "peaks": identity.peaks,
        "images": images,
        "names": index.count(table="names"),
        "shards": index.count(table="shards"),
        "bytes": index.count("SUM(bytes)", "shards"),
        "bytes_an_image": round(index.count("SUM(length)") / max(1, images)),
        "cells_an_image": round(index.count("SUM(h * w)") / max(1, images)),
        "read": index.count(table="writing") if index.texts else None,
        "dead_images": index.count("SUM(images)", "shards") - images,
        **ann.count(reader),
    }


# --- inside -----------------------------------------------------------------------------------------------------------


def _reader(writer: Writer) -> Reader:
    assert writer.identity is not None
    assert writer.space is not None
    return Reader(writer.path, writer.identity, writer.space, writer.index, (), writer.path.parent)


def _record(reader: Reader, row: ImageRow, wanted: Wanted, identity: Identity | None = None) -> Record | None:
    """The record of a row, as it was, or for a store of another identity; None where it is damaged."""
    identity = identity or reader.identity
    try:
        vectors = reader.vectors_at(row)
        if vectors is None or identity.peaks != reader.identity.peaks:  # made again from what is kept
            metric = query_metric_of(wanted.match(reader.identity.encoder))
            texture = reader.texture(row, "", "image")
            x = texture.basis.restore(texture.coordinates())
            vectors = image_vectors(x, x, identity, reader.space, metric)
        record = reader.record(row, vectors)
        if identity.columns != reader.identity.columns:
            basis = basis_tensors(reader.texture(row, "", "image").basis, identity)
            rest = {n: t for n, t in record.tensors.items() if n not in ("basis.columns", "basis.mean", "basis.rows")}
            record = replace(record, tensors={**basis, **rest})
        return record
    except FoveateError:
        return None


def _whole_record(
    reader: Reader, row: ImageRow, wanted: Wanted, where: str, identity: Identity | None = None
) -> Record:
    """The record of a row; `where` is named when it is damaged. Raises StoreDamagedError."""
    record = _record(reader, row, wanted, identity)
    if record is None:
        raise StoreDamagedError(
            f"{where} is damaged",
            expected="a store that is whole",
            fix="foveate store verify STORE --repair comes first",
        )
    return record


def _names(reader: Reader, row: ImageRow) -> list[Name]:
    listed = reader.index.ask("SELECT path, name, size, modified FROM names WHERE image = ? ORDER BY path", (row.id,))
    return [Name(unpack_name(p), unpack_name(n), row.key, size, modified) for p, n, size, modified in listed]


def _other_names(reader: Reader, file: Path, known: Iterable[str]) -> list[Name]:
    """Names that a shard gave to images of other shards, as far as they still count."""
    try:
        shard = read_shard(file)
    except StoreDamagedError:
        return []
    out, seen = [], set(known)
    for name in shard.names:
        found = reader.index.ask(
            f"SELECT name, key, size, modified FROM {NAMES} WHERE path = ?", (pack_name(name.path),)
        )
        if found and name.path not in seen and found[0][1] == name.key:
            called, key, size, modified = found[0]
            out.append(Name(name.path, unpack_name(called), key, size, modified))
            seen.add(name.path)
    return out


def _still_removed(reader: Reader, file: Path, sequence: int, stay: Iterable[int]) -> list[str]:
    """Removals that must be kept, as older shards that stay may hold the names."""
    if not any(other < sequence for other in stay):
        return []
    try:
        removed = read_shard(file).removed
    except StoreDamagedError:
        return []
    known = reader.index.ask
    return [p for p in removed if not known("SELECT 1 FROM names WHERE path = ?", (pack_name(p),))]
