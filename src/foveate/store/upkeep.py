"""Looking after a store: what is in it as a list or a table, tags, versions, checks, copies for other programs.

Nothing is repaired by guessing: `verify` says what is damaged; go back to a version, or index the image again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate.core.checks import advice, check_int
from foveate.core.errors import OptionError, OutputError, StoreDamagedError
from foveate.core.files import make_folder
from foveate.core.readonly import ReadOnly
from foveate.store.dataset import (
    at_version,
    compact,
    cut_files,
    drop_fragments,
    forget,
    mark,
    reading,
    reason_of,
    revise,
    some_of,
    writing,
)
from foveate.store.nearest import extend
from foveate.store.reader import ROW, Reader, among
from foveate.store.record import checksum_of_vectors
from foveate.store.schema import CHECKSUM, ID, RECORD, TAGS, TOLD, VECTOR, WORDS, checksum_of, unchecked_rows

if TYPE_CHECKING:
    import pyarrow as pa

UNREAD = "?"  # the name of an image whose row cannot be read


@dataclass(frozen=True)
class ListedImage:
    """An image of a store's list: id, name, path of its file, height and width in pixels.

    taken: by the camera's clock. words: what was read in it, None where nobody read it. columns: your own, by name.
    """

    id: str
    name: str
    path: str
    height: int
    width: int
    taken: datetime | None = None
    tags: tuple[str, ...] = ()
    words: str | None = None
    columns: Mapping[str, Any] = field(default_factory=lambda: ReadOnly({}))


@dataclass(frozen=True)
class ListedPage:
    """A part of a store's list, in the order of names.

    Attributes:
        total: images of the whole list.
        place: from 0, of the image that was asked for; None where it is not in the list.
    """

    total: int
    images: Sequence[ListedImage]
    place: int | None = None


@dataclass(frozen=True)
class Version:
    """A state of a store: each commit makes one. `images`: how many it has."""

    number: int
    made: datetime
    images: int


@dataclass(frozen=True)
class Verified:
    """What `verify` found. damaged: (name, id, why) of each image whose bytes are not those that were written; its name
    is UNREAD where its row cannot be read, either.
    """

    images: int
    nbytes: int
    damaged: tuple[tuple[str, str, str], ...]

    @property
    def ok(self) -> bool:
        """Whether every byte is as it was written."""
        return not self.damaged


def page(reader: Reader, offset: int, limit: int, part: str, of: str | None, where: str | None) -> ListedPage:
    """As `Store.page`. Raises OptionError, StoreDamagedError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    check_int("offset", offset, 0)
    check_int("limit", limit, 0)
    table = reader.scan([ID, "name", "source"], where)
    with reading(reader.where):
        if part:
            table = table.filter(pc.match_substring(table["name"], part, ignore_case=True))
        table = table.take(pc.sort_indices(table, [("name", "ascending"), ("source", "ascending")]))
        rows = table[ROW].slice(offset, limit).to_pylist()
        place = -1 if of is None else pc.index(table[ID], pa.scalar(of)).as_py()
    return ListedPage(len(table), _listed(reader, rows), None if place < 0 else place)


def _listed(reader: Reader, rows: Sequence[int]) -> tuple[ListedImage, ...]:
    """What the list says of these rows, in their order; damaged ones are left out."""
    if not rows:
        return ()
    names = (ID, "name", "source", "height", "width", "taken", TAGS, WORDS)
    few = among(rows) if len(rows) < 2000 else None
    own = [name for name in reader.dataset.schema.names if name not in (*TOLD, TAGS, VECTOR, RECORD, CHECKSUM)]
    table = reader.scan([*TOLD, TAGS, CHECKSUM, *own], few)
    with reading(reader.where):
        table = table.filter(reader.intact(table))
        columns = {name: table[name].to_pylist() for name in names}
        columns[TAGS] = [tuple(tags or ()) for tags in columns[TAGS]]
        others = map(ReadOnly, table.select(own).to_pylist())
        found = dict(zip(table[ROW].to_pylist(), map(ListedImage, *columns.values(), others), strict=True))
    return tuple(found[row] for row in rows if row in found)


def statistics(reader: Reader) -> dict[str, Any]:
    """Counts, bytes, encoder and basis."""
    identity, images = reader.identity, reader.count()
    with reading(reader.where):
        files = [file for fragment in reader.dataset.get_fragments() for file in fragment.metadata.files]
        nbytes = sum(file.file_size_bytes or 0 for file in files)
        return {
            "store": reader.where,
            "images": images,
            "bytes": nbytes,
            "bytes_an_image": nbytes / images if images else 0.0,
            "encoder": identity.encoder.name,
            "basis": identity.kind,
            "rank": identity.rank,
            "long_side": identity.long_side,
            "looks": identity.looks,
            "reader": identity.reader,
            "read": reader.count(f"{WORDS} IS NOT NULL"),
            "version": reader.version,
            "fragments": len(reader.dataset.get_fragments()),
        }


def set_tags(reader: Reader, ids: Sequence[str], add: Iterable[str], drop: Iterable[str]) -> int:
    """Add and drop tags of images, by id. -> how many have others now. Raises OptionError, OutputError."""
    add, drop = list(add), set(drop)
    for tag in [*add, *drop]:
        good = isinstance(tag, str) and tag.strip() and len(tag) <= 200
        if not good or tag.encode("utf-8", "replace").decode() != tag:
            raise OptionError(f"tag {tag!r}", expected="a text of 1 to 200 characters", fix="'holiday', say")

    def tagged(table: pa.Table) -> list[dict[str, Any]]:
        found = [(id, tags or []) for id, tags in zip(table[ID].to_pylist(), table[TAGS].to_pylist(), strict=True)]
        now = {id: [tag for tag in dict.fromkeys([*tags, *add]) if tag not in drop] for id, tags in found}
        return [{ID: id, TAGS: now[id]} for id, tags in found if now[id] != tags]

    return revise(reader.dataset, ids, [ID, TAGS], tagged)


def remove(reader: Reader, ids: Sequence[str]) -> int:
    """Forget images by id. -> how many. Raises OutputError."""
    mark(reader.dataset)
    forget(reader.dataset, some_of(ids))
    return len(ids)


def _fragments(reader: Reader) -> Iterator[tuple[Any, pa.Table | str]]:
    """Each fragment with its rows, or why there are none. Of records it has places: each may be damaged alone."""
    names = reader.dataset.schema.names
    for fragment in reader.dataset.get_fragments():
        with reading(reader.where):
            cut = "; ".join(cut_files(reader.where, fragment))
        try:
            yield fragment, cut or reader.scan(names, fragments=[fragment])
        except StoreDamagedError as error:
            yield fragment, reason_of(error.__cause__ or error)


def verify(reader: Reader, progress: Callable[[int, int], None] = lambda done, total: None) -> Verified:
    """Compare every record, its columns and its vectors with their checksums. Raises StoreDamagedError."""
    total, done, nbytes, bad = reader.count(), 0, 0, list[tuple[str, str, str]]()
    ids, parts = dict[int, str](), list[list[int]]()
    for fragment, table in _fragments(reader):
        if isinstance(table, str):
            bad += [(UNREAD, f"fragment {fragment.fragment_id}", table)] * fragment.metadata.num_rows
            continue
        rows = table[ROW].to_pylist()
        ids |= zip(rows, table[ID].to_pylist(), strict=True)
        parts += [rows[start : start + 256] for start in range(0, len(rows), 256)]
    while parts:
        some = parts.pop(0)
        try:
            vectors = reader.some_vectors(some)
            places = {row: place for place, row in enumerate(vectors.rows.tolist())}
            kept = vectors.table.reshape(len(vectors.rows), -1)
            found = list(reader.textures(some))
        except StoreDamagedError as error:
            if len(some) > 1:
                parts += [[row] for row in some]
            else:
                bad.append((UNREAD, str(ids[some[0]]), error.received))
            continue
        for row, told, texture in found:
            done += 1
            if isinstance(texture, StoreDamagedError):
                bad.append((told.name, told.id, texture.received))
                continue
            record = texture._record
            nbytes += sum(tensor.nbytes for tensor in record.tensors.values())
            if checksum_of_vectors(np.asarray(kept[places[row]], np.float16)) != record.vectors:
                bad.append((told.name, told.id, "its vectors differ from their checksum"))
            progress(done, total)
    return Verified(total, nbytes, tuple(bad))


def versions(reader: Reader) -> list[Version]:
    """All versions that can be restored, the newest last."""
    with reading(reader.where):
        listed = reader.dataset.versions()
        return [Version(v["version"], v["timestamp"], int(v["metadata"].get("total_rows", 0))) for v in listed]


def restore(reader: Reader, version: int | None) -> None:
    """As `Store.restore`; versions between stay."""
    if version is None:
        gone = [fragment.fragment_id for fragment, table in _fragments(reader) if isinstance(table, str)]
        if not gone:
            raise OptionError(
                "no version, and the newest can be read",
                expected="a number",
                fix=advice("store.versions() lists them", f"foveate store versions {reader.where} lists them"),
            )
        mark(reader.dataset)
        drop_fragments(reader.dataset, gone)
        return
    dataset = at_version(reader.dataset, check_int("version", version))
    mark(reader.dataset)
    with writing(reader.where):
        dataset.restore()


def compacted(reader: Reader, keep: timedelta) -> int:
    """Join small fragments, free the bytes of removed images and of versions older than `keep`. -> bytes freed."""
    if not isinstance(keep, timedelta) or not timedelta(0) <= keep <= timedelta(36500):
        raise OptionError(f"keep={keep!r}", expected="a timedelta of 0 to 36500 days", fix="timedelta(days=7), say")
    before = occupied(reader.where)
    compact(reader.dataset, keep)
    if reader.identity.peaks:
        extend(reader.dataset, reader.space.basis.width, 1)
    return max(0, before - occupied(reader.where))


def occupied(where: str) -> int:
    """Bytes of all files of a store on this machine, old versions too; 0 elsewhere."""
    if "://" in where:
        return 0
    return sum(os.path.getsize(Path(folder, file)) for folder, _, files in os.walk(where) for file in files)


def export(
    reader: Reader, path: Path, where: str | None, progress: Callable[[int, int], None] = lambda done, total: None
) -> int:
    """Write images to a Parquet file (.parquet), or as texture files into a folder. -> how many.

    Raises OutputError, OptionError, StoreDamagedError at the first damaged image.
    """
    rows = reader.rows_where(where or "true").tolist()
    if path.suffix.lower() == ".parquet":
        _export_parquet(reader, path, rows, progress)
        return len(rows)
    make_folder(path)
    for done, (_, told, texture) in enumerate(reader.textures(rows), 1):
        if isinstance(texture, StoreDamagedError):
            raise texture
        stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in told.name)[-80:]
        texture.save(path / f"{stem}--{told.id[:12]}.safetensors")
        progress(done, len(rows))
    return len(rows)


def _export_parquet(reader: Reader, path: Path, rows: list[int], progress: Callable[[int, int], None]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [name for name in reader.dataset.schema.names if name != RECORD]
    schema = pa.schema([reader.dataset.schema.field(name) for name in names])
    schema = schema.append(pa.field(RECORD, pa.large_binary()))
    part = path.with_name(f".{path.name}.part")
    try:
        with pq.ParquetWriter(part, schema) as writer:
            for start in range(0, len(rows), 256):
                some = rows[start : start + 256]
                table = reader.scan(names, among(some))
                with reading(reader.where):
                    blobs = reader.dataset.read_blobs(RECORD, ids=table[ROW].to_pylist(), preserve_order=True)
                    for told, (_, content), one in zip(unchecked_rows(table), blobs, table[CHECKSUM], strict=True):
                        if checksum_of(told, content or b"") != one.as_py():
                            raise ValueError(f"the row of '{told.name}' differs from its checksum")
                contents = pa.array([content for _, content in blobs], pa.large_binary())
                writer.write_table(table.drop_columns([ROW]).append_column(schema.field(RECORD), contents).cast(schema))
                progress(start + len(some), len(rows))
        part.replace(path)
    except OSError as cause:
        raise OutputError(
            f"'{path}' could not be written ({cause.strerror or cause})", expected="a writable folder with room",
            fix="choose another place",
        ) from cause  # fmt: skip
    finally:
        part.unlink(missing_ok=True)
