"""One version of a store's dataset: rows -> what they are told by, records, textures, image-level vectors.

Rows are named by Lance's row ids, which hold for this version. Nothing of a record is used before its checksum and that
of its columns are compared. Damage is an error that names the image; all else is served as before.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_type, keyword
from foveate.core.errors import OptionError, StoreDamagedError
from foveate.core.readonly import ReadOnly
from foveate.encoders.protocol import Calibration
from foveate.encoders.taught import TaughtWords, as_evidence
from foveate.relevance.confidence import peak_cells
from foveate.store.dataset import reading, reason_of
from foveate.store.example import SAMPLE, Usual, usual_of
from foveate.store.nearest import Joined, Vectors, files_of, indexed
from foveate.store.record import Record, parse_record
from foveate.store.schema import (
    CHECKSUM,
    ID,
    MOST_RECORD,
    RECORD,
    TOLD,
    VECTOR,
    Told,
    check_told,
    damaged,
    describe,
    unchecked_rows,
)
from foveate.store.texture import StoredTexture, stored_texture
from foveate.texture.basis import Basis

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
ROW = "_rowid"
PAGE, TOGETHER = 64, 2**28  # records that are read at a time, of at most so many bytes
VECTORS = 4096  # rows of vectors that are read at a time
log = logging.getLogger("foveate")
# A condition, and not a file, which is an "External error: Invalid user input".
REFUSED = re.compile("^Invalid user input|^Not supported: This feature|Error applying filter expression")
TEXTS = re.compile("'(?:[^']|'')*'")
QUOTED = re.compile(TEXTS.pattern + r"""|"(?:[^"]|"")*"|`[^`]*`""")
TIMES = re.compile(  # of a condition whose quoted texts are all '', as those below
    r"(?<![\w.])(?:taken|modified)\b\s*"
    r"(?:[<>=!]+\s*''|(?:not\s+)?between\s*''\s*and\s*''|(?:not\s+)?in\s*\(\s*''(?:\s*,\s*'')*\s*\))",
    re.I,
)
TAG = re.compile(r"(?<![\w.])tags?\b\s*(?:(!=|<>|=+)\s*('')|(not\s+)?in\s*\(\s*(''(?:\s*,\s*'')*)\s*\))", re.I)


class Reader:
    """A dataset at one version. Safe from many threads."""

    def __init__(
        self, where: str, dataset: Any, channels: tuple[str, ...], root: str, before: Reader | None = None
    ) -> None:
        self.where, self.dataset, self.channels, self.root = where, dataset, channels, root
        with reading(where):
            self.version, schema = dataset.version, dataset.schema
        self.identity, self.space = describe(schema, f"the store '{where}'")
        self._vectors = dict[bool, Joined]()
        # by file and deletions, of those that the version before has, too
        self._parts: dict[tuple[str, str], Vectors] = {} if before is None else before._parts
        self._taught: tuple[TaughtWords, NDArray[np.float32]] | None = None
        self._usual: Usual | None = None
        self._names: pa.Table | None = None
        self.mark = object()  # another store may lie here by now, with as many versions
        self._guard = threading.Lock()
        made = "query" if self.identity.kind == "own" else f"store {self.identity.space}"
        self._preprocessing = ReadOnly({"long_side": self.identity.long_side, "compression": made})

    # --- rows ---------------------------------------------------------------------------------------------------------

    def count(self, where: str | None = None) -> int:
        """Images for which an SQL condition holds; all without one. Raises OptionError, StoreDamagedError."""
        return int(self._asking(where, lambda text: self.dataset.count_rows(filter=text)))

    def scan(self, columns: Sequence[str], where: str | None = None, **how: Any) -> pa.Table:
        """Columns of the images for which an SQL condition holds, with ROW. Raises OptionError, StoreDamagedError."""

        def ask(text: str | None) -> pa.Table:
            return self.dataset.scanner(columns=list(columns), filter=text, with_row_id=True, **how).to_table()

        table: pa.Table = self._asking(where, ask)
        return table

    def _asking(self, where: str | None, ask: Any) -> Any:
        """An SQL condition that Lance does not take is the caller's."""
        names = [f.name for f in self.dataset.schema if f.name not in (VECTOR, RECORD, CHECKSUM)]
        if where is not None:
            check_type("where", where, str, fix="where=\"taken > '2026-01-01'\", say")
        if where is not None and ";" in (rest := TEXTS.sub("", where)):  # which Lance would leave out
            raise OptionError(
                keyword("where", where), expected="one SQL condition", fix="leave out the ; and what follows"
            )
        if where is not None and (
            quoted := [name for name in (*names, "tag") if f'"{name}"' in rest]
        ):  # to Lance a text
            raise OptionError(keyword("where", where), expected="columns without quotes", fix=f"write {quoted[0]}")
        with reading(self.where):
            try:
                return ask(None if where is None else condition_of(where))
            except (OSError, ValueError) as cause:
                if where is None or not REFUSED.search(str(cause)):
                    raise
                raise OptionError(
                    f"{keyword('where', where)} ({reason_of(cause).split(' Valid fields')[0]})",
                    expected=f"an SQL condition on: {', '.join(names)}",
                    fix="put texts and times in single quotes, columns in none: taken > '2026-01-01' and tag = 'dog'",
                ) from cause

    def rows_where(self, where: str) -> NDArray[np.int64]:
        """Row ids of the images for which an SQL condition holds."""
        return np.asarray(self.scan([ID], where)[ROW].to_numpy(), np.int64)

    def named(self, name: str) -> list[int]:
        """Rows of the images of this name. The names of all are read once."""
        import pyarrow.compute as pc

        if self._names is None:
            self._names = self.scan(["name"])
        with reading(self.where):
            found: list[int] = self._names.filter(pc.equal(self._names["name"], name))[ROW].to_pylist()
            return found

    def intact(self, table: pa.Table) -> pa.BooleanArray:
        """Which rows, with TOLD and CHECKSUM, say what was written; others are logged."""
        import pyarrow as pa

        with reading(self.where):
            rows, sums = unchecked_rows(table), table[CHECKSUM].to_pylist()
            good = [told.checksum == (one or 0) & 0xFFFFFFFF for told, one in zip(rows, sums, strict=True)]
        if not all(good):
            tell(damaged(f"{good.count(False)} rows of the store '{self.where}'", "they differ from their checksums"))
        return pa.array(good, pa.bool_())

    def _described(self, rows: Sequence[int]) -> list[tuple[Told, int, int]]:
        """Columns, checksum and the record's size, of rows in their order; what is no row of unreadable ones."""
        try:
            table = self.scan([*TOLD, CHECKSUM, RECORD], among(rows))
        except StoreDamagedError:
            if len(rows) == 1:
                return [(Told("", f"row {rows[0]}", "", 0, 0, 0, 0, None, "", None), 0, 0)]
            return [found for row in rows for found in self._described([row])]
        with reading(self.where):
            sizes = [0 if one is None else one["size"] for one in table[RECORD].to_pylist()]
            each = zip(unchecked_rows(table), table[CHECKSUM].to_pylist(), sizes, strict=True)
            found = dict(zip(table[ROW].to_pylist(), each, strict=True))
            missing = [row for row in rows if row not in found]
            if missing:
                raise ValueError(f"rows {missing[:3]} are not there")
            return [found[row] for row in rows]

    # --- textures -----------------------------------------------------------------------------------------------------

    def records(self, rows: Sequence[int]) -> Iterator[tuple[int, Told, Record | StoreDamagedError]]:
        """Row, columns and record of rows, in their order; of a damaged one the error. Raises StoreDamagedError."""
        for start in range(0, len(rows), PAGE):
            some = list(rows[start : start + PAGE])
            described = dict(zip(some, self._described(some), strict=True))
            together = sum(size for _, _, size in described.values()) <= TOGETHER
            for part in [some] if together else [[row] for row in some]:
                contents = self._contents([row for row in part if described[row][2] <= MOST_RECORD])
                for row in part:
                    told, checksum, _ = described[row]
                    yield row, told, self._checked(told, checksum, contents.get(row))

    def _contents(self, rows: list[int]) -> dict[int, bytes | None]:
        """The bytes of these rows' records. One after the other where together they fail."""
        try:
            with reading(self.where):
                found = self.dataset.read_blobs(RECORD, ids=rows, preserve_order=True) if rows else ()
            return {row: content for row, (_, content) in zip(rows, found, strict=True)}
        except StoreDamagedError:
            return {} if len(rows) == 1 else {row: self._contents([row]).get(row) for row in rows}

    def _checked(self, told: Told, checksum: int | None, content: bytes | None) -> Record | StoreDamagedError:
        called = f"{printable(str(told.name))!r}, {str(told.id)[:16]}, in the store '{self.where}'"
        try:
            check_told(told)
            if content is None or checksum is None:
                raise ValueError("its record cannot be read")
            if told.checksum != checksum & 0xFFFFFFFF:
                raise ValueError("its columns differ from their checksum")
            if zlib.crc32(content) != checksum >> 32:
                raise ValueError("the bytes of its record differ from their checksum")
            return parse_record(content, self.identity, called)
        except StoreDamagedError as error:
            return error
        except ValueError as cause:
            return damaged(f"the row of {called}", str(cause))

    def textures(self, rows: Sequence[int]) -> Iterator[tuple[int, Told, StoredTexture | StoreDamagedError]]:
        """The same as textures."""
        for row, told, found in self.records(rows):
            yield row, told, found if isinstance(found, StoreDamagedError) else self.texture_of(told, found)

    def texture(self, row: int) -> StoredTexture:
        """The texture of one row. Raises StoreDamagedError."""
        ((_, _, found),) = self.textures([row])
        if isinstance(found, StoreDamagedError):
            raise found
        return found

    def texture_of(self, told: Told, record: Record) -> StoredTexture:
        """A record as a texture."""
        basis, tensors = None, record.tensors
        if not self.identity.peaks:
            own = self.identity.kind == "own"
            basis = Basis(tensors["basis.mean"], tensors["basis.rows"]) if own else self.space.in_steps
        places: tuple[str, ...] = (told.source, os.path.join(self.root, told.name))
        if "\\x" in told.source:
            places = (*places, file_name(told.source))
        stamp, made = self.identity.encoder, self._preprocessing
        return stored_texture(
            told.id, record, basis, self.channels, places,
            encoder=stamp, preprocessing=made, name=printable(told.name),
        )  # fmt: skip

    # --- image-level vectors ------------------------------------------------------------------------------------------

    def vectors(self, exact: bool = False) -> Joined:
        """Of all images, read once; by the index where there is one, unless `exact`. Raises StoreDamagedError."""
        with self._guard:
            if exact not in self._vectors:
                self._vectors[exact] = self._join_vectors(exact)
            return self._vectors[exact]

    def _join_vectors(self, exact: bool) -> Joined:
        index, known = None, set[str]()
        if self.identity.peaks and not exact:
            try:
                with reading(self.where):
                    index, known = indexed(self.dataset, self.space.basis.width)
            except StoreDamagedError as error:
                tell(error)
        parts = {}
        with reading(self.where):
            for name, fragment in files_of(self.dataset).items():
                if name not in known:
                    key = name, str(fragment.metadata.deletion_file)
                    kept = self._parts.get(key)
                    parts[key] = kept or self._read_vectors(fragments=[fragment])
        self._parts = parts
        return Joined([*([] if index is None else [index]), *parts.values()])

    def usual(self) -> Usual:
        """What is usual in the store, by a sample of it; made once."""
        if self._usual is None:
            rows = self.vectors().rows
            some = rows[:: max(1, len(rows) // SAMPLE)].tolist()
            self._usual = usual_of(self.some_vectors(some), self.space, self.identity)
        return self._usual

    def some_vectors(self, rows: Sequence[int]) -> Vectors:
        """Of a few images, in the order of their rows in the store."""
        return self._read_vectors(filter=among(rows))

    def _read_vectors(self, **which: Any) -> Vectors:
        k, s, peaks = self.identity.vectors, self.space.basis.rank, self.identity.peaks
        kind: Any = np.float16 if peaks else np.float32
        rows, parts = [np.zeros(0, np.int64)], [np.zeros((0, k * s), kind)]
        with reading(self.where):
            scanner = self.dataset.scanner(columns=[VECTOR], with_row_id=True, batch_size=VECTORS, **which)
            for batch in scanner.to_batches():
                parts.append(batch[VECTOR].flatten().to_numpy(zero_copy_only=False).reshape(len(batch), k * s))
                rows.append(np.asarray(batch[ROW].to_numpy(), np.int64))
        table = np.empty((sum(map(len, parts)), k * s), kind, order="F" if peaks else "C")
        np.concatenate(parts, out=table)
        if not peaks:
            table = table.reshape(-1, s)
        np.nan_to_num(table, copy=False, nan=0.0, posinf=0.0, neginf=0.0)  # of a damaged row, which verify finds
        return Vectors(np.concatenate(rows), table, k)

    def taught(self, words: TaughtWords, vectors: Joined, calibration: Calibration) -> NDArray[np.float32]:
        """Peaks of taught words in the images of `vectors`, float32 [n, words], 0 of damaged ones."""
        kept = self._taught  # which another thread may replace
        if kept is None or kept[0] != words or len(kept[1]) != len(vectors.rows):
            found = np.zeros((len(vectors.rows), len(words)), np.float32)
            for row, _, record in sound(self.records(vectors.rows.tolist())):
                odds = words.odds(record.tensors["looks"]).reshape(-1, len(words))
                best = np.sort(odds, 0)[-peak_cells(len(odds)) :].mean(0)
                found[np.searchsorted(vectors.rows, row)] = as_evidence(best, calibration)
            kept = self._taught = words, found
        return kept[1]


def sound(found: Iterable[tuple[int, Told, T | StoreDamagedError]]) -> Iterator[tuple[int, Told, T]]:
    """Records or textures that are not damaged; the others are logged."""
    for row, told, one in found:
        if isinstance(one, StoreDamagedError):
            tell(one)
        else:
            yield row, told, one


def tell(error: StoreDamagedError, fix: str = "") -> None:
    log.warning("%s\n  fix: %s", error.received, fix or error.fix)


def among(rows: Iterable[int]) -> str:
    """The SQL condition for some rows."""
    return f"{ROW} IN ({', '.join(map(str, rows))})"


def condition_of(where: str) -> str:
    """A condition as Lance takes it."""

    def tags(found: re.Match[str]) -> str:
        others = found[3] or found[1] in ("!=", "<>")
        return f"{'NOT ' if others else ''}array_has_any(tags, [{found[2] or found[4]}])"

    texts = iter(QUOTED.findall(where))  # what looks like a condition in them is none
    bare = TIMES.sub(lambda found: found[0].replace("''", "timestamp ''"), QUOTED.sub("''", where))
    condition = re.sub("''", lambda _: next(texts), TAG.sub(tags, bare))
    return f"({condition}\n)"  # without brackets Lance leaves out what it does not understand at the end


def file_name(name: str) -> str:
    """A file's name of what ingest.plain made of one that is no Unicode."""
    return os.fsdecode(re.sub(rb"\\x([89a-f][0-9a-f])", lambda byte: bytes([int(byte[1], 16)]), os.fsencode(name)))


def printable(name: str) -> str:
    """The last part of a name, as a texture may be called."""
    last = name.rpartition("/")[2].encode("utf-8", "replace").decode()
    return last if last.isprintable() and last else ascii(last)[1:-1] or "image"
