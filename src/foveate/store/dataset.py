"""The one place where Lance is called to open, to add and to change: its errors and panics become foveate's.

A panic of Lance is a BaseException, so `except Exception` would let it pass. What Lance reads back is not checked by
checksums of its own; schema.py and record.py check it.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from foveate.core import errors
from foveate.core.checks import advice, check_type
from foveate.store.schema import ID, damaged

if TYPE_CHECKING:
    import pyarrow as pa

RETRIES = 40  # of a commit that another writer was in front of
ROWS = 8192  # of a fragment, after compacting
KEPT = timedelta(minutes=10)  # for readers of a version whose files were joined
CONFLICT = re.compile("[Ii]ncompatible|[Cc]onflict|concurrent")
AGAIN, PAUSE = 20, 0.1  # how often a change is tried again, and seconds between
SOME = 500  # ids in a condition
BEFORE, MARKS = "before-", 10  # tags of versions that a later `add` changed, and how many are kept
ABSENT = re.compile(r"was not found|Not found|not found: ")
UNPARSED = re.compile("Protobuf|too small|sufficient data|Invalid range|out of range|Version not found|files outside")
PLACES = re.compile(r",? ?/[^ ,]*\.rs:\d+(:\d+)?|(LanceError\(\w+\): )")  # of Lance's sources
UNREACHED = re.compile(
    r"Permission denied|Too many open|Generic (?!LocalFile|memory)\w+ error|timed out|dispatch failure|[Cc]onnection"
)
Options = Mapping[str, str]
T = TypeVar("T")


def lance_module() -> Any:
    """The module `lance`. Raises MissingExtraError."""
    try:
        os.environ.setdefault("LANCE_LOG", "error")  # what matters is raised
        import lance
    except ImportError as cause:
        raise errors.MissingExtraError(
            f"a store needs Lance, which is not installed ({cause})",
            expected="the extra [store]",
            fix="pip install 'foveate[store]'",
        ) from cause
    return lance


def place_of(path: str | os.PathLike[str]) -> str:
    """An absolute path, or an address like s3://bucket/photos.fov, also one whose slash `Path` took away."""
    check_type("path", path, (str, os.PathLike), fix='Store("photos.fov"), say')
    given = os.fspath(path)
    address = re.match(r"([a-z][a-z0-9+]+):/+(?=[^/])", given)
    return f"{address[1]}://{given[address.end() :]}" if address else os.path.abspath(given)


def reading(where: str) -> AbstractContextManager[None]:
    """Whatever Lance or Arrow raise inside, panics too, is StoreDamagedError or OutputError about the store `where`."""
    return _explained(partial(_unread, where))


def writing(where: str) -> AbstractContextManager[None]:
    """The same for changes: a full disk, a folder that may not be written to, writers that are always in front."""
    return _explained(partial(_unwritten, where))


@contextmanager
def _explained(explain: Callable[[BaseException], errors.FoveateError]) -> Iterator[None]:
    try:
        yield
    except (errors.FoveateError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as cause:
        if not isinstance(cause, Exception) and type(cause).__name__ != "PanicException":
            raise
        raise explain(cause) from cause


def _unread(where: str, cause: BaseException) -> errors.FoveateError:
    said = reason_of(cause)
    if isinstance(cause, PermissionError) or UNREACHED.search(said):
        return errors.OutputError(
            f"the store '{where}' cannot be reached ({said})",
            expected="a place that answers, and leave to read and write there",
            fix="check the address, the network and the keys, and do the same again: what was committed is kept",
        )
    return _cut_short(where) or damaged(f"the store '{where}'", said)


def cut_files(where: str, fragment: Any) -> list[str]:
    """Of a fragment of a store on this machine: data files that are gone, or shorter than they were written."""
    found = list[str]()
    for file in fragment.metadata.files if "://" not in where else ():
        path = Path(where, "data", file.path)
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            found.append(f"'{path}' is gone")
        elif size < (file.file_size_bytes or 0):
            found.append(f"'{path}' has {size:,} of {file.file_size_bytes:,} bytes")
    return found


def _cut_short(where: str) -> errors.FoveateError | None:
    """The error of a store with such files. None where all are as long as they were."""
    total, lost, files = 0, 0, list[str]()
    with suppress(Exception):
        for fragment in lance_module().dataset(where).get_fragments() if "://" not in where else ():
            images, cut = fragment.metadata.num_rows, cut_files(where, fragment)
            total, lost, files = total + images, lost + images * bool(cut), files + cut
    if not files:
        return None
    more = f" (such files: {len(files)})" if files[1:] else ""
    return errors.StoreDamagedError(
        f"the store '{where}' is damaged: {files[0]}{more}; images lost by that: {lost} of {total}",
        expected="data files as they were written",
        fix=f"put a copy back; or leave these images out (foveate store restore {where}) and index their files again",
    )


def _unwritten(where: str, cause: BaseException) -> errors.FoveateError:
    return _cut_short(where) or errors.OutputError(
        f"the store '{where}' could not be written to ({reason_of(cause)})",
        expected="a writable place with room",
        fix="make room, or mend the permissions, and do the same again: what was committed is kept",
    )


def reason_of(cause: BaseException) -> str:
    """Lance's message in one line, without places in its sources."""
    said = " ".join(PLACES.sub("", str(cause)).split())
    return f"{type(cause).__name__}: {said[:300]}"


def is_old(where: str | os.PathLike[str]) -> bool:
    """Whether a folder is a store of an earlier release, perhaps one that lost its description."""
    return Path(where, "format.json").is_file() or any(Path(where, "shards").glob("*.safetensors"))


def open_dataset(where: str, options: Options | None = None, version: int | str | None = None) -> Any:
    """The dataset at a place; None where there is nothing. Raises StoreDamagedError, StoreVersionError, OutputError."""
    lance, local = lance_module(), "://" not in where
    if local and not os.path.isdir(where):
        if os.path.lexists(where):
            raise errors.StoreError(
                f"'{where}' is a file, and no store",
                expected="a store: a folder",
                fix="check the path, or what follows -o",
            )
        return None
    with reading(where):
        old = local and is_old(where)
    if old:
        raise errors.StoreVersionError(
            f"'{where}' is a store of an earlier release",
            expected="a Lance dataset",
            fix=f"foveate store upgrade {where} NEW, which leaves the old one as it is",
        )
    with reading(where):
        try:
            dataset = lance.dataset(where, version=version, storage_options=dict(options or {}) or None)
            files = [file for fragment in dataset.get_fragments() for file in fragment.metadata.files]
            if dataset.base_paths() or any("/" in file.path or "\\" in file.path for file in files):
                raise damaged(f"the store '{where}'", "it names files outside of itself")
            return dataset
        except ValueError as cause:
            _check_there(where, version, cause)
            if not ABSENT.search(str(cause)) or (local and Path(where, "_versions").is_dir()):
                raise
            return None


def at_version(dataset: Any, version: int) -> Any:
    """The dataset as it was; other versions may be damaged. Raises OptionError, StoreDamagedError."""
    with reading(dataset.uri):
        try:
            return dataset.checkout_version(version)
        except (OSError, ValueError) as cause:
            _check_there(dataset.uri, version, cause)
            raise


def _check_there(where: str, version: int | str | None, cause: Exception) -> None:
    if version is not None and f"/{version}.manifest" in str(cause):
        raise errors.OptionError(
            f"version {version} of the store '{where}'",
            expected="one that the store has",
            fix=advice(
                "store.versions() lists them; leave it out for the newest", f"foveate store versions {where} lists them"
            ),
        ) from cause


def create(where: str, schema: pa.Schema, options: Options | None = None) -> tuple[Any, bool]:
    """An empty dataset, True; the one that another process just made where there is one. Raises OutputError."""
    lance, local = lance_module(), "://" not in where
    if local and os.path.isdir(where) and os.listdir(where) and not Path(where, "_versions").is_dir():
        raise errors.StoreError(
            f"the folder '{where}' has other things in it",
            expected="a new or an empty folder for a store",
            fix=f"choose another one: {where}.fov, say",
        )
    with writing(where):
        try:
            if local:
                os.makedirs(where, exist_ok=True)
            made = lance.write_dataset(
                schema.empty_table(), where, mode="create", data_storage_version="2.1",
                storage_options=dict(options or {}) or None,
            )  # fmt: skip
            if made.version == 1:
                return made, True
            made.checkout_version(made.version - 1).restore()  # on object stores two may create: ours came second
        except OSError as cause:
            if "already exists" not in str(cause):
                raise
    return open_dataset(where, options), False


def insert(dataset: Any, table: pa.Table) -> int:
    """Add rows whose ids are not there yet. -> how many. Raises OutputError."""
    return _merge(dataset, table, lambda builder: builder.when_not_matched_insert_all())["num_inserted_rows"]


def update(dataset: Any, table: pa.Table) -> int:
    """Replace rows, or some of their columns, by id. -> how many. Raises OutputError."""
    return _merge(dataset, table, lambda builder: builder.when_matched_update_all())["num_updated_rows"]


def _merge(dataset: Any, table: pa.Table, how: Callable[[Any], Any]) -> dict[str, int]:
    return changing(dataset, lambda: how(dataset.merge_insert(ID)).conflict_retries(RETRIES).execute(table))


def revise(
    dataset: Any, ids: Sequence[str], columns: Sequence[str], make: Callable[[pa.Table], list[dict[str, Any]]]
) -> int:
    """Change columns of rows by what they hold: again where another writer was in front. -> how many were changed.

    `make` gets the columns of some of these rows, and returns the ids and the new values of those that change.
    Raises OutputError, StoreDamagedError.
    """
    import pyarrow as pa

    def merge(which: str) -> int:
        with reading(dataset.uri):
            changed = make(dataset.to_table(columns=list(columns), filter=which))
        if changed:
            schema = pa.schema([dataset.schema.field(name) for name in changed[0]])
            builder = dataset.merge_insert(ID).when_matched_update_all().conflict_retries(0)
            builder.execute(pa.Table.from_pylist(changed, schema=schema))
        return len(changed)

    return sum(changing(dataset, partial(merge, which)) for which in some_of(ids))


def forget(dataset: Any, conditions: Sequence[str]) -> None:
    """Delete the rows of the newest version for which one of these holds. Raises OutputError."""
    for which in conditions:
        changing(dataset, partial(dataset.delete, which))


def drop_fragments(dataset: Any, numbers: Sequence[int]) -> None:
    """A version without some fragments, whose files are not looked at. Raises OutputError."""
    lance = lance_module()
    with writing(dataset.uri):
        gone = lance.LanceOperation.Delete([], list(numbers), "true")
        lance.LanceDataset.commit(dataset, gone, read_version=dataset.version)
        dataset.checkout_latest()


def changing(dataset: Any, change: Callable[[], T]) -> T:
    """Change the newest version; once more where another writer was in front. Raises OutputError."""
    with writing(dataset.uri):
        for left in range(AGAIN, -1, -1):
            dataset.checkout_latest()
            try:
                return change()
            except OSError as cause:
                if not left or not CONFLICT.search(str(cause)):
                    raise
                time.sleep(PAUSE)
    raise AssertionError


def pieces_of(dataset: Any) -> dict[tuple[Any, ...], Any]:
    """Fragments by their number and the names of their files, which no other dataset has. Raises StoreDamagedError."""
    with reading(dataset.uri):
        return {(one.fragment_id, *(f.path for f in one.metadata.files)): one for one in dataset.get_fragments()}


def set_aside(where: str) -> dict[int, str]:
    """Put the newest manifests of a store on this machine aside, while they cannot be parsed; none where none can be.

    -> what they are called now, by version. The newest that can be parsed is then the newest. Raises what else stops
    reading them, and OutputError.
    """
    paths, bad = dict[int, Path](), list[int]()
    for path in Path(where, "_versions").glob("*.manifest"):
        if path.stem.isdecimal():  # Lance counts files backwards
            paths[int(path.stem) if len(path.stem) < 20 else 2**64 - 1 - int(path.stem)] = path
    for version in sorted(paths, reverse=True):
        if not all(_unparsed(where, version, paths[version]) for _ in range(2)):
            break
        bad.append(version)
    if len(bad) == len(paths):
        return {}
    with writing(where):
        return {version: str(paths[version].rename(f"{paths[version]}.damaged")) for version in sorted(bad)}


def _unparsed(where: str, version: int, path: Path) -> bool:
    """Whether a manifest has bytes that are none. Raises StoreDamagedError, OutputError where that is not known."""
    try:
        open_dataset(where, version=version)
    except errors.StoreDamagedError as error:
        with reading(where):
            path.read_bytes()
        if not UNPARSED.search(error.received):
            raise
        return True
    return False


def mark(dataset: Any) -> None:
    """Keep the version there is now until `compact` lets it go: what is added next can be taken back."""
    with writing(dataset.uri), suppress(OSError, ValueError):  # another process has just done so
        dataset.tags.create(f"{BEFORE}{dataset.version}", dataset.version)
        names = sorted(
            (name for name in dataset.tags.list() if name.startswith(BEFORE)), key=lambda n: int(n[len(BEFORE) :])
        )
        for name in names[:-MARKS]:
            dataset.tags.delete(name)


def join_small(dataset: Any) -> None:
    """Join small fragments; the commits that made them go, marked versions stay. Where another does so, it is left."""
    with writing(dataset.uri), suppress(OSError):  # a conflict
        dataset.optimize.compact_files(target_rows_per_fragment=ROWS)
        dataset.checkout_latest()
        dataset.cleanup_old_versions(older_than=KEPT, error_if_tagged_old_versions=False)


def compact(dataset: Any, keep: timedelta) -> None:
    """Join small fragments, free the bytes of removed rows, drop versions older than `keep`. Raises OutputError."""
    with writing(dataset.uri):
        dataset.optimize.compact_files(target_rows_per_fragment=ROWS, materialize_deletions_threshold=0.0)
        dataset.checkout_latest()
        last = datetime.now() - keep
        old = {one["version"] for one in dataset.versions() if one["timestamp"].replace(tzinfo=None) <= last}
        for name, tag in dataset.tags.list().items():
            if name.startswith(BEFORE) and tag["version"] in old:
                dataset.tags.delete(name)
        dataset.cleanup_old_versions(older_than=keep, error_if_tagged_old_versions=False)


def literal(value: str) -> str:
    """A text as SQL has it."""
    return "'" + value.replace("'", "''") + "'"


def any_of(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(map(literal, values))})"


def some_of(ids: Sequence[str], column: str = ID) -> list[str]:
    """SQL conditions for rows of these ids, of some of them each."""
    return [any_of(column, ids[start : start + SOME]) for start in range(0, len(ids), SOME)]
