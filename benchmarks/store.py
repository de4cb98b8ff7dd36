"""Times, memory and bytes of a store, each beside the project's target.

    python -m benchmarks store                          # 100,000 images, 1.5 GB below TMPDIR
    python -m benchmarks store --images 1000000         # 8 GB
    python -m benchmarks store --data photos            # index these photographs instead of three, again and again
    python -m benchmarks store --words                  # 100,000 images with words: search by what is written
    python -m benchmarks store --labelled DATA/coco128  # are photographs found by the names of what is in them?

The images of the store are made: records of the bundled photographs, again and again. 5,000 have the whole record, in
between all others, which have 4 x 4 of its cells. Vectors are those of the photographs, each plane times .6 to 1.1, of
the others half of that; the 5,000 have 40 planes more, so that what a question finds has a whole record. Rows are
written by Lance, in large batches. Indexing is of photographs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import lance
import numpy as np
import pyarrow as pa
import typer
from PIL import Image as Pillow

from benchmarks import store_words
from benchmarks.common import PHOTOS, make_row, ratio_row, time_once, time_row
from foveate.cli.evaluate.coco import read_folder
from foveate.core.checks import check_int
from foveate.core.errors import OptionError
from foveate.core.grid import Grid
from foveate.core.image import load_image
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Encoder
from foveate.store import EncodeBatch, Store, nearest
from foveate.store.reader import Reader
from foveate.store.record import Record, thumbnail
from foveate.store.schema import Told, table_of
from foveate.store.sources import find_sources
from foveate.store.upkeep import occupied

TOP = 5  # hits of a name of a thing
WHOLE, MORE = 5000, 40  # images with a whole record, and planes that they have more
BATCH = 2048
QUESTIONS = {"a word": "a dog", "a kind": "an animal", "two phrases": "a dog on a beach"}
INDEXED = 60  # photographs
Row = tuple[Told, bytes, np.ndarray]
# What a process that searches takes: above one that has imported everything and asked nothing of a store
SEARCHES = """
import sys, foveate
from foveate.encoders.load import load_encoder
from foveate.language.query import prepare
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
import lance, pyarrow
for text in sys.argv[2:]:
    prepare(load_encoder("nano"), text)
before = peak()
store = foveate.Store(sys.argv[1])
for text in sys.argv[2:]:
    store.search(text, 20)
print((peak() - before) * 1024)
"""
ADDS = "import sys, foveate; foveate.Store(sys.argv[1]).add(sys.argv[2:])"


def measure(
    images: Annotated[int, typer.Option(help="Images of the made store.")] = 100_000,
    repeats: Annotated[int, typer.Option(help="Measurements of each row.")] = 20,
    data: Annotated[Path | None, typer.Option(help="Photographs to index; by default the bundled ones.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Only search by what is written.")] = False,
    labelled: Annotated[Path | None, typer.Option(help="Only P@5, of a COCO-style folder of photographs.")] = None,
) -> dict[str, Any]:
    """Times of the store: opening, searching, reading, indexing; its memory and its bytes."""
    if words:
        return store_words.measure(images, repeats)
    if labelled is not None:
        with tempfile.TemporaryDirectory() as folder:
            return precision(labelled, Path(folder) / "labelled.fov")
    check_int("--repeats", repeats, 3)
    check_int("--images", images, 1)
    with tempfile.TemporaryDirectory() as folder:
        photographs = photographs_of(data, Path(folder))
        rows = index_rows(photographs, Path(folder), max(3, repeats // 5))
        path = Path(folder) / "made.fov"
        made = make(path, images)
        rows += [_once("writing the made store", made), *search_rows(path, repeats), *reading_rows(path, repeats)]
        rows += adding_rows(path, photographs)
    title = f"benchmarks store: {images:,} made images, medians of {repeats}"
    return {"title": title, "rows": rows, "images": images}


def precision(folder: Path, path: Path) -> dict[str, Any]:
    """P@5: the share of the best five hits that have the thing; a mean over names that five photographs have."""
    labelled, store = read_folder(folder), Store(path)
    store.add([file for image in labelled.images if (file := folder / image.file).is_file()], workers=2)
    having = {
        thing: {image.file for image in labelled.images if any(outline.thing == thing for outline in image.outlines)}
        for thing in labelled.names
    }
    found = [
        float(np.mean([Path(hit.path).relative_to(folder.absolute()).as_posix() in right for hit in hits]))
        for thing, right in having.items()
        if len(right) >= TOP and (hits := store.search(thing, TOP))
    ]
    if not found:
        raise OptionError(f"'{folder}'", expected=f"a name that {TOP} photographs have", fix="take a larger folder")
    what = f"P@{TOP} of {len(found)} names that {TOP} or more photographs have"
    rows = [make_row(what, float(np.mean(found)), f"{np.mean(found):.3f}")]
    return {"title": f"benchmarks store --labelled: {len(store)} photographs", "rows": rows, "images": len(store)}


# --- made stores ------------------------------------------------------------------------------------------------------


def make(path: Path, images: int) -> float:
    """A store of so many images, as the head of this file says, without an index. -> seconds."""
    store = Store(path, cache=0)
    store.add(sorted(PHOTOS.glob("*.jpg"))[:1])
    reader = store._open()
    bases = list(_bases(reader))
    schema = reader.dataset.schema
    source = pa.RecordBatchReader.from_batches(schema, _batches(bases, images, schema))
    return time_once(lambda: lance.write_dataset(source, path, mode="append", max_rows_per_file=8192))


def _bases(reader: Reader) -> Iterator[tuple[Told, bytes, bytes, np.ndarray]]:
    """Of each bundled photograph: what it is told by, its whole record, one of 4 x 4 of its cells, its vectors."""
    work = EncodeBatch("nano", reader.identity, reader.space)
    ((_, told, _),) = reader.records(reader.vectors().rows.tolist())
    for file in sorted(PHOTOS.glob("*.jpg")):
        decoded = work.decode(file.read_bytes())
        record, _ = work.finish(decoded[0], *work.look([decoded]))
        assert isinstance(record.vectors, np.ndarray)
        yield told, record.content, part_of(record).content, record.vectors.astype(np.float32)


def part_of(record: Record) -> Record:
    """A record of few bytes: 4 x 4 cells, as many planes as it needs, a small thumbnail."""
    tensors = {name: t[:4, :4] if t.shape[:2] == record.grid.shape else t for name, t in record.tensors.items()}
    few = np.flatnonzero(np.unpackbits(tensors["basis.columns"]))[: len(tensors["basis.rows"])]
    columns = np.zeros(8 * len(tensors["basis.columns"]), np.uint8)
    columns[few] = 1
    tensors["basis.columns"] = np.packbits(columns)
    tensors["basis.mean"] = tensors["basis.mean"][: len(few)]
    tensors["basis.rows"] = tensors["basis.rows"][:, : len(few)]
    tensors["thumbnail"] = np.frombuffer(thumbnail(np.full((8, 8, 3), 128, np.uint8)), np.uint8)
    return replace(record, grid=Grid(4, 4, 64, 64), tensors=tensors)


def _batches(
    bases: list[tuple[Told, bytes, bytes, np.ndarray]], images: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    rng, every = np.random.default_rng(0), max(1, images // WHOLE)
    for start in range(0, images, BATCH):
        rows = list[Row]()
        for number in range(start, min(images, start + BATCH)):
            told, whole, small, vectors = bases[number // every % len(bases)]
            vectors = vectors * rng.uniform(0.6, 1.1, vectors.shape).astype(np.float32)
            if number % every == 0:
                vectors[:, rng.integers(0, vectors.shape[1], MORE)] = rng.uniform(0.5, 1, MORE)
            else:
                vectors *= np.float32(0.5)
            told = replace(told, id=f"{number:064x}", name=f"{number}", source=f"/nowhere/{number}")
            rows.append((told, small if number % every else whole, vectors.astype(np.float16)))
        yield from table_of(rows, schema).to_batches()


# --- a large store ----------------------------------------------------------------------------------------------------


def search_rows(path: Path, repeats: int) -> list[dict[str, Any]]:
    """Opening the store, its index, questions by it and by the table, memory."""
    store = Store(path, cache=0)
    reader, width = store._open(), store._open().space.basis.width
    built = time_once(lambda: nearest.extend(reader.dataset, width, 1))
    size, images = occupied(f"{path}/{nearest.FOLDER}"), len(store)
    opened = _processor_times(lambda: Store(path), repeats)
    store = Store(path, cache=0)
    first = time_once(lambda: store.search("a fork", 20))
    rows = [
        _once("making the index, where there is one", built),
        _size("  bytes of the index", size, f"{size / images:,.0f} an image" if size else "none below 65,537"),
        time_row(f"opening a store of {images:,}, of a core", opened, "ms", "<= 50 ms", 99),
        _once("first question of a process", first),
    ]
    wanted = "<= 120 ms" if images <= 200_000 else "<= 250 ms"
    exact, different = list[np.ndarray](), 0
    for what, text in QUESTIONS.items():
        found = store.search(text, 20)
        times = _processor_times(partial(store.search, text, 20), repeats)
        rows.append(time_row(f"a question, of a core, {what}: {text}", times, "ms", wanted, 99))
        few = _processor_times(partial(store.search, text, 20, rerank=50), repeats)
        rows.append(time_row("  with 50 exact scores", few, "ms", "", 99))
        flat = store.search(text, 20, exact=True)
        different += [hit.id for hit in flat] != [hit.id for hit in found]
        exact.append(_processor_times(partial(store.search, text, 20, exact=True), max(3, repeats // 5)))
    memory = int(_run(SEARCHES, path, *QUESTIONS.values()))
    rows += [
        time_row(f"  by the table instead ({QUESTIONS['a kind']})", exact[1], "ms", "", 99),
        make_row("questions with other hits by the table", different, f"{different} of {len(QUESTIONS)}", "0"),
        _size("memory of a search, above asking nothing", memory, "<= 300 MB"),
    ]
    return rows


def reading_rows(path: Path, repeats: int) -> list[dict[str, Any]]:
    """Textures by name and by batch."""
    store = Store(path, cache=0)
    rng, reader = np.random.default_rng(0), store._open()
    whole = [int(row) for row in reader.vectors().rows[1 :: max(1, len(store) // WHOLE)]]  # after the photograph
    names = [told.name for _, told, _ in reader.records(whole[:BATCH])]

    def batch() -> None:
        for _ in reader.textures(rng.choice(whole, min(316, len(whole)), replace=False).tolist()):
            pass

    one = _processor_times(lambda: store[names[int(rng.integers(len(names)))]], repeats)
    many = _processor_times(batch, repeats)
    return [
        time_row("a texture by its name, of a core", one, "ms", "", 99),
        time_row("316 textures in a batch, of a core", many, "ms", "", 99),
    ]


def adding_rows(path: Path, photographs: list[Path]) -> list[dict[str, Any]]:
    """Questions while another process indexes photographs into the same store."""
    store, times = Store(path, cache=0), list[float]()
    before, versions = len(store), set[int]()
    adding = subprocess.Popen([sys.executable, "-c", ADDS, str(path), *map(str, photographs)])
    while adding.poll() is None:
        times.append(time_once(lambda: store.search("a dog", 20)))
        versions.add(store._open().version)
        time.sleep(0.05)
    if adding.returncode or len(store) != before + len(photographs):
        raise AssertionError(f"{len(store) - before} of {len(photographs)} images were added")
    what = f"a question while {len(photographs)} images are added ({len(versions)} versions)"
    return [time_row(what, np.array(times), "ms", "", 99)]


# --- indexing ---------------------------------------------------------------------------------------------------------


def photographs_of(data: Path | None, folder: Path) -> list[Path]:
    """INDEXED different photographs: those of a folder, or the bundled ones with a pixel changed."""
    if data is not None:
        return [Path(source.path) for source in find_sources(data).files][:INDEXED]
    files, out = sorted(PHOTOS.glob("*.jpg")), list[Path]()
    (folder / "photographs").mkdir()
    for number in range(INDEXED):
        picture = Pillow.open(files[number % len(files)]).convert("RGB")
        picture.putpixel((0, 0), (number, number, number))
        out.append(folder / "photographs" / f"{number}.jpg")
        picture.save(out[-1], quality=90)
    return out


def index_rows(photographs: list[Path], folder: Path, repeats: int) -> list[dict[str, Any]]:
    """Indexing beside the encoder alone, in seconds of a core; and bytes on disk beside those of the records."""
    encoder = load_encoder("nano")
    pictures = [load_image(file).rgb for file in photographs]
    Store(folder / "first.fov").add(photographs[:1])
    stores = [Store(folder / f"indexed{number}.fov") for number in range(repeats)]
    both = [
        (_processor(partial(one.add, photographs)), _processor(partial(_encode, encoder, pictures))) for one in stores
    ]
    whole, alone = np.array(both).T
    store = stores[0]
    after = occupied(store.path)
    records = sum(len(record.content) for record in _records(store._open()))
    store.compact(timedelta(0))
    compacted = occupied(store.path)
    return [
        ratio_row(f"indexing {len(photographs)} photographs, of a core, beside the encoder", whole, alone, "<= 1.15 x"),
        time_row("  an image", whole / len(photographs), "ms"),
        make_row("bytes on disk beside the records'", after / records, f"{after / records:.3f} x", "<= 1.05 x", "x"),
        make_row("  after compacting", compacted / records, f"{compacted / records:.3f} x", "<= 1.05 x", "x"),
    ]


def _records(reader: Reader) -> Iterator[Record]:
    for _, _, record in reader.records(reader.vectors().rows.tolist()):
        assert isinstance(record, Record)
        yield record


def _encode(encoder: Encoder, pictures: list[np.ndarray]) -> None:
    for rgb in pictures:
        encoder.encode_image(rgb)


def _processor(function: Any) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def _processor_times(function: Any, repeats: int) -> np.ndarray:
    """Seconds of a core, which other work does not lengthen by as much."""
    return np.array([_processor(function) for _ in range(repeats)])


def _run(code: str, *arguments: Any) -> str:
    """What a process of its own prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout


def _once(what: str, seconds: float) -> dict[str, Any]:
    shown = f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
    return make_row(what, seconds, f"{shown} (once)", "", "s")


def _size(what: str, count: int, target: str = "") -> dict[str, Any]:
    return make_row(what, count, f"{count / 1e6:,.0f} MB", target, "bytes")
