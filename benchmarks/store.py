"""Times of the store, each beside the project's target.

    python -m benchmarks store                        # 512 textures
    python -m benchmarks store --textures 100000      # 9 GB below TMPDIR: what grows with a store

Textures are of 64 x 64 cells: one photograph, square, stored many times with its cells moved round. Searching is over
synthetic vectors, random and as long as real ones. Medians, with the 99th percentile; the machines are shared. Rows
that say "once" are single measurements. What a question reads is in store_reads.py.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks import store_reads
from benchmarks.query import SIDE, paired, square, timed
from foveate.cli.evaluate.circumstances import circumstances
from foveate.core.errors import OptionError
from foveate.encoders.load import load_encoder
from foveate.pipeline import score
from foveate.relevance.negatives import nouns
from foveate.relevance.query import prepare
from foveate.store import Store
from foveate.store.disk import Disk
from foveate.store.index import INDEX_FILE
from foveate.store.ingest import SHARD_IMAGES
from foveate.store.record import digest
from foveate.store.recovery import VECTORS, Wanted, writing
from foveate.store.search import Vectors, short_list
from foveate.store.shard import Draft, Name
from foveate.store.work import EncodeBatch

TEXTURES, RERANKED, QUESTIONS = 512, 50, 16


def measure(image: Path | None, repeats: int, images: int, textures: int = TEXTURES) -> dict[str, Any]:
    """Measure everything. `repeats`: of the quick rows, slow ones a tenth.

    `images`: of the synthetic search; `textures`: in the store, about 90 KB each below TMPDIR.
    """
    if repeats < 10 or images < 1 or textures < 1:
        raise OptionError(
            f"--repeats {repeats}, --images {images}, --textures {textures}",
            expected="10, 1 and 1, or more",
            fix="leave them out",
        )
    path = image or Path(str(files("foveate") / "cli" / "photos" / "child_with_broccoli.jpg"))
    rng, tower, few = np.random.default_rng(0), load_encoder("nano"), max(10, repeats // 20)
    with tempfile.TemporaryDirectory() as folder:
        photograph = Path(folder) / "photo.jpg"
        Image.fromarray(square(path, SIDE)).save(photograph, quality=90)
        at = Path(folder) / "bench.fov"
        store = Store(at, cache=0)
        store.add(photograph)
        filled = _seconds(lambda: _filled(store, photograph, textures))
        large = _of_the_whole(at, photograph)  # first, while nothing is in memory
        reads = store_reads.rows(at, photograph, SIDE)
        store = Store(at, cache=0)
        names = store.keys()

        def one() -> Any:
            return store[names[int(rng.integers(len(names)))]]

        read = timed(one, repeats)
        warm = Store(store.path)
        score(warm[names[0]], "a dog")
        mapped = timed(lambda: score(warm[names[0]], "a dog"), repeats)
        found = timed(lambda: warm[names[0]], repeats)
        reranked = timed(lambda: store.search("a dog", 1, rerank=RERANKED), few)
        throughput = _throughput(store, names)
        reader = store._reader()
        assert reader is not None
        table = rng.standard_normal((images * VECTORS, reader.space.basis.rank), np.float32) * np.float32(0.1)
        vectors = Vectors(np.arange(images), table, VECTORS, 0)
        asked = [prepare(tower, "a dog")]
        listed = timed(lambda: short_list(vectors, reader.space, asked, tower.calibration, 50), few)
        work, content = EncodeBatch(tower, reader.identity, reader.space), photograph.read_bytes()
        rgb = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
        whole, alone = paired(lambda: work.record(content), lambda: tower.encode_image(rgb), few)
        decoded = timed(lambda: np.asarray(Image.open(io.BytesIO(content)).convert("RGB")), few)
        digested = timed(lambda: digest(content), few)
        size = store.stats()["bytes_an_image"]
        upkeep = _upkeep(store, names)
    over = float(np.median(whole - alone) / np.median(alone))
    rows = [
        _row("one texture of a warm store", read, 1e6, "µs", "<= 100 µs, 99 %: 1000 µs"),
        _row("a texture that is in the cache", found, 1e6, "µs", ""),
        _row("cache hit to relevance map", mapped, 1e6, "µs", "<= 100 µs"),
        _row(f"short list of {images:,} images", listed, 1e3, "ms", "<= 30 ms"),
        _row(f"a search: its short list, exact score of {RERANKED} images read", reranked, 1e3, "ms", "<= 30 + 20 ms"),
        _row("a record: decoding, tower and everything else", whole, 1e3, "ms", ""),
        _row("  of which the tower", alone, 1e3, "ms", ""),
        _row("  of which decoding the JPEG", decoded, 1e3, "ms", ""),
        _row("  of which SHA-256", digested, 1e3, "ms", ""),
        {"what": "overhead above the bare tower", "measured": f"{over:.1%}", "target": "<= 15 %", "median": over},
        {"what": "bytes an image", "measured": f"{size / 1e3:.1f} KB", "target": "about 70 KB", "median": size},
        *throughput,
        _once("writing so many records", filled),
        *large,
        *upkeep,
        *reads,
    ]
    title = f"benchmarks store: 64 x 64 cells, {textures:,} textures, medians of {repeats} ({few} where slow)"
    return {"title": title, "rows": rows, "image": str(path), "images": images, "textures": textures, **circumstances()}


def _filled(store: Store, photograph: Path, textures: int = TEXTURES) -> None:
    """So many records more, of the one photograph; their image-level vectors are random."""
    reader = store._reader()
    assert reader is not None
    work, rng = EncodeBatch("nano", reader.identity, reader.space), np.random.default_rng(1)
    record = work.record(photograph.read_bytes())
    with writing(store.path, Wanted(), Disk()) as writer:
        for start in range(0, textures, SHARD_IMAGES):
            draft = Draft()
            for number in range(start, min(textures, start + SHARD_IMAGES)):
                moved = {**record.tensors, "embedding": np.roll(record.tensors["embedding"], number, 1)}
                vectors = (0.1 * rng.standard_normal(record.vectors.shape, np.float32)).astype(np.float16)
                key = digest(str(number).encode())
                draft.records.append(replace(record, key=key, tensors=moved, vectors=vectors))
                draft.names.append(Name(f"/nowhere/{number}", f"{number}", key, 0, 0))
            writer.commit(draft)


def _throughput(store: Store, names: list[str]) -> list[dict[str, Any]]:
    """Maps of up to TEXTURES images, read from files: of one question, of several at once, and by foveate.score."""
    names = names[:TEXTURES]
    asked = [str(noun) for noun in nouns()[:: len(nouns()) // QUESTIONS][:QUESTIONS]]

    count = len(names) - 1

    def streamed(query: str | list[str]) -> float:
        maps = store.score_all(query)
        next(maps)  # before the first, the names of all images are listed
        return _seconds(lambda: all(True for _ in islice(maps, count)))

    def looped() -> float:
        return _seconds(lambda: all(score(store[n], asked[0], smoothing=0.0, cues=False) for n in names[1:]))

    turns = np.array([(streamed(asked[0]), streamed(asked), looped()) for _ in range(6)])[1:]
    one, several, loop = turns.T
    rows = [
        _rate("maps by score_all, one question", one, count),
        _rate(f"maps by score_all, {QUESTIONS} questions at once", several, count),
        _rate("maps by a loop of foveate.score, without segments", loop, count),
    ]
    times = float(np.median(several / one))
    said = f"{times:.1f} x one"
    return [*rows, {"what": f"  {QUESTIONS} questions take", "measured": said, "target": "", "median": round(times, 3)}]


def _of_the_whole(path: Path, photograph: Path) -> list[dict[str, Any]]:
    """Opening, listing and searching all of a store, each for the first time, and the memory that takes."""
    before = store_reads.resident()
    opened = timed(lambda: Store(path), 5)
    store = Store(path, cache=0)
    listed = _seconds(store.keys)
    called = store_reads.named(path, photograph)
    exact, ending = paired(lambda: store.content_key(called), lambda: store.content_key(photograph.name), 10)
    first = _seconds(lambda: store.search("a dog", 20))
    later = timed(lambda: store.search("a cat", 20), 10)
    after = store_reads.resident()
    index = sum(file.stat().st_size for file in path.glob(f"{INDEX_FILE}*"))
    grown = None if before is None or after is None else after - before
    return [
        _row("opening the store", opened, 1e3, "ms", ""),
        _once("names of all its images", listed),
        _row("an image's key by its name", exact, 1e6, "µs", ""),
        _row("an image's key by the end of its path", ending, 1e6, "µs", ""),
        _once("first search: reads the vectors of all images", first),
        _row("later searches", later, 1e3, "ms", ""),
        _size("memory that the searches took", grown),
        _size("memory of the process then", after),
        _size("index", index),
    ]


def _upkeep(store: Store, names: list[str]) -> list[dict[str, Any]]:
    """Reading every byte of a store, and rewriting it after one image in ten was removed."""
    size = store.stats()["bytes"]
    verified = _seconds(store.verify)
    removed = names[::10]
    gone = _seconds(lambda: store.remove(removed))
    compacted = _seconds(store.compact)
    return [
        _size("shards", size),
        _once("verify: every byte", verified),
        _once(f"removing {len(removed):,} images", gone),
        _once("compact: all shards written again", compacted),
    ]


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _once(what: str, seconds: float) -> dict[str, Any]:
    said = f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
    return {"what": what, "measured": f"{said} (once)", "target": "", "median": round(seconds, 5), "unit": "s"}


def _rate(what: str, seconds: np.ndarray, count: int) -> dict[str, Any]:
    rate = count / float(np.median(seconds))
    return {"what": what, "measured": f"{rate:,.0f} images/s", "target": "", "median": round(rate, 1), "unit": "1/s"}


def _size(what: str, count: int | None) -> dict[str, Any]:
    return {"what": what, "measured": store_reads.megabytes(count), "target": "", "median": count, "unit": "bytes"}


def _row(what: str, seconds: np.ndarray, factor: float, unit: str, target: str) -> dict[str, Any]:
    median, slow = float(np.median(seconds)) * factor, float(np.percentile(seconds, 99)) * factor
    return {
        "what": what,
        "measured": f"{median:.3g} {unit} (99 %: {slow:.3g})",
        "target": target,
        "median": round(median, 5),
        "unit": unit,
    }
