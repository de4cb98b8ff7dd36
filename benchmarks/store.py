"""Times of the store, and the bytes that a question reads, each beside the project's target.

    python -m benchmarks store                        # 512 textures
    python -m benchmarks store --textures 100000      # 13 GB below TMPDIR: what grows with a store
    python -m benchmarks store --words                # 100,000 images with words: search by what is written

One photograph is stored many times with its cells moved round; searching is over random vectors. Bytes of a question:
files (asked of the system, rchar of /proc/self/io), arrays (of the product with a texture), and crops (the same
question with nano on each of 273 crops, as uint8).
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from foveate.store.ann import import_faiss
from foveate.store.disk import Disk
from foveate.store.format import Draft, Name, Space, sha256
from foveate.store.index import INDEX_FILE
from foveate.store.recovery import Wanted, writing
from PIL import Image as Pillow

from benchmarks import store_ann, store_words
from benchmarks.common import (
    KEPT,
    PHOTO,
    Image,
    Repeats,
    crop_square,
    make_row,
    ratio_row,
    time_calls,
    time_in_turn,
    time_once,
    time_row,
)
from foveate.core.checks import check_int
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Calibration
from foveate.language.negatives import nouns
from foveate.language.query import Query, prepare
from foveate.pipeline import score
from foveate.relevance.scoring import score_maps
from foveate.store import Store
from foveate.store.hits import short_list
from foveate.store.ingest import SHARD_IMAGES, EncodeBatch
from foveate.store.reader import Vectors
from foveate.store.texture import StoredTexture

SIDE = 512  # 64 x 64 cells
TEXTURES, RERANKED, QUESTIONS = 512, 50, 16
SHORT = 50  # images of a short list
CROP = 224  # pixels along the side of a patch, as those documents have it
CLAIMED = {"crops": "177 MB, said of CLIP in float32", "kept": "0.017 MB", "arrays": "0.017 MB"}
READ_BYTES = Path("/proc/self/io")


def measure(
    image: Image = PHOTO,
    repeats: Repeats = 1000,
    images: Annotated[int, typer.Option(help="Images of the synthetic search.")] = 100_000,
    textures: Annotated[int, typer.Option(help="Textures in the store, 127 KB each below TMPDIR.")] = TEXTURES,
    ann: Annotated[
        bool, typer.Option("--ann", help="Only approximate nearest neighbours, beside the exact scan.")
    ] = False,
    words: Annotated[bool, typer.Option("--words", help="Only search by what is written.")] = False,
) -> dict[str, Any]:
    """Times of the store: reading, searching, indexing; and the bytes that a question reads."""
    if ann or words:
        return (store_ann if ann else store_words).measure(images, repeats)
    for name, value, least in (("--repeats", repeats, 10), ("--images", images, 1), ("--textures", textures, 1)):
        check_int(name, value, least)
    rng, encoder, few = np.random.default_rng(0), load_encoder("nano"), max(3, repeats // 20)
    with tempfile.TemporaryDirectory() as folder:
        photograph = Path(folder) / "photo.jpg"
        Pillow.fromarray(crop_square(image, SIDE)).save(photograph, quality=90)
        at = Path(folder) / "bench.fov"
        store = Store(at, cache=0)
        store.add(photograph)
        filled = time_once(lambda: fill(store, photograph, textures))
        large = _of_the_whole(at, photograph)  # first, while nothing is in memory
        reads = read_rows(at, photograph, SIDE)
        store = Store(at, cache=0)
        names = store.keys()

        def one() -> Any:
            return store[names[int(rng.integers(len(names)))]]

        read = time_calls(one, repeats)
        warm = Store(store.path)
        score(warm[names[0]], "a dog")
        mapped = time_calls(lambda: score(warm[names[0]], "a dog"), repeats)
        found = time_calls(lambda: warm[names[0]], repeats)
        reranked = time_calls(lambda: store.search("a dog", 1, rerank=RERANKED), few)
        throughput = _throughput(store, names)
        reader = store._reader()
        assert reader is not None
        each = reader.identity.vectors
        table = rng.standard_normal((images * each, reader.space.basis.rank), np.float32) * np.float32(0.1)
        vectors = Vectors(np.arange(images), table, each, 0)
        asked = [prepare(encoder, "a dog")]
        listed, rivals = _short_lists(vectors, reader.space, asked, encoder.calibration, few)
        work, content = EncodeBatch(encoder, reader.identity, reader.space), photograph.read_bytes()
        rgb = np.asarray(Pillow.open(io.BytesIO(content)).convert("RGB"))
        whole, alone = time_in_turn(lambda: work.record(content), lambda: encoder.encode_image(rgb), few)
        size = store.stats()["bytes_an_image"]
        maintained = _maintenance(store, names)
    rows = [
        time_row("one texture of a warm store", read, "µs", "<= 100 µs, 99 %: 1000 µs", 99),
        time_row("a texture that is in the cache", found, "µs", "", 99),
        time_row("cache hit to relevance map", mapped, "µs", "<= 100 µs", 99),
        time_row(f"short list of {images:,} images", listed, "ms", "<= 30 ms", 99),
        *rivals,
        time_row(f"a search: its short list, {RERANKED} images read and scored", reranked, "ms", "<= 30 + 20 ms", 99),
        time_row("a record: decoding, encoder and everything else", whole, "ms", "", 99),
        time_row("  of which the encoder", alone, "ms", "", 99),
        ratio_row("  beside the bare encoder", whole, alone, "<= 1.25 x"),
        make_row("bytes an image", size, f"{size / 1e3:.1f} KB", "about 70 KB"),
        *throughput,
        _once("writing so many records", filled),
        *large,
        *maintained,
        *reads,
    ]
    title = f"benchmarks store: 64 x 64 cells, {textures:,} textures, medians of {repeats} ({few} where slow)"
    return {
        "title": title,
        "rows": rows,
        "image": str(image),
        "images": images,
        "textures": textures,
    }


def _short_lists(
    vectors: Vectors, space: Space, asked: list[Query], calibration: Calibration, repeats: int
) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """Seconds of a short list, and rows of what else finds the highest images, each called in turn with it.

    One product with all vectors and `argpartition`; FAISS's exact index of inner products, which gives vectors: as many
    as make sure of 50 images. All with the threads that they take by themselves.
    """
    (weights,) = space.basis.project(asked[0].vectors)[1]

    def ours() -> Any:
        return short_list(vectors, space, asked, calibration, SHORT)[0]

    def product() -> Any:
        best = (vectors.table @ weights).reshape(-1, vectors.count).max(1)
        first = np.argpartition(-best, min(SHORT, len(best)) - 1)[:SHORT]
        return first[np.argsort(-best[first], kind="stable")]

    same = len(set(product().tolist()) & set(ours().tolist()))
    if same < 0.9 * min(SHORT, len(vectors.ids)):  # sums in another order may change who is last
        raise AssertionError(f"one product and the short list have {same} images in common")
    listed, other = time_in_turn(ours, product, repeats)
    rows = [ratio_row("  one product and argpartition beside it", other, listed)]
    if find_spec("faiss") is not None:
        index = import_faiss().IndexFlatIP(vectors.table.shape[1])
        index.add(np.asarray(vectors.table, np.float32))

        def flat() -> Any:
            found = index.search(weights[None], min(SHORT * vectors.count, len(vectors.table)))[1][0] // vectors.count
            return list(dict.fromkeys(found.tolist()))[:SHORT]

        again, other = time_in_turn(ours, flat, repeats)
        rows.append(ratio_row("  FAISS, IndexFlatIP, beside it", other, again))
    return listed, rows


def fill(store: Store, photograph: Path, textures: int = TEXTURES) -> None:
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
                key = sha256(str(number).encode())
                draft.records.append(replace(record, key=key, tensors=moved, vectors=vectors))
                draft.names.append(Name(f"/nowhere/{number}", f"{number}", key, 0, 0))
            writer.commit(draft)


def _throughput(store: Store, names: list[str]) -> list[dict[str, Any]]:
    """Maps of up to TEXTURES images, read from files: of one question, and of several at once."""
    asked = [str(noun) for noun in nouns()[:: len(nouns()) // QUESTIONS][:QUESTIONS]]
    count = min(len(names), TEXTURES) - 1

    def streamed(query: str | list[str]) -> float:
        maps = store.score_all(query)
        next(maps)  # before the first, the names of all images are listed
        return time_once(lambda: all(True for _ in islice(maps, count)))

    one, several = np.array([(streamed(asked[0]), streamed(asked)) for _ in range(6)])[1:].T
    return [
        _rate("maps by score_all, one question", one, count),
        _rate(f"maps by score_all, {QUESTIONS} questions at once", several, count),
    ]


def _of_the_whole(path: Path, photograph: Path) -> list[dict[str, Any]]:
    """Opening, listing and searching all of a store, each for the first time, and the memory of the process then."""
    opened = time_calls(lambda: Store(path), 5)
    store = Store(path, cache=0)
    listed = time_once(store.keys)
    called = name_of(path, photograph)
    exact, ending = time_in_turn(lambda: store.content_key(called), lambda: store.content_key(photograph.name), 10)
    first = time_once(lambda: store.search("a dog", 20))
    later = time_calls(lambda: store.search("a cat", 20), 10)
    index = sum(file.stat().st_size for file in path.glob(f"{INDEX_FILE}*"))
    return [
        time_row("opening the store", opened, "ms", "", 99),
        _once("names of all its images", listed),
        time_row("an image's key by its name", exact, "µs", "", 99),
        time_row("an image's key by the end of its path", ending, "µs", "", 99),
        _once("first search: reads the vectors of all images", first),
        time_row("later searches", later, "ms", "", 99),
        _size("memory of the process then", _memory()),
        _size("index", index),
    ]


def _maintenance(store: Store, names: list[str]) -> list[dict[str, Any]]:
    """Reading every byte of a store, and rewriting it after one image in ten was removed."""
    size, verified = store.stats()["bytes"], time_once(store.verify)
    store.remove(names[::10])
    return [
        _size("shards", size),
        _once("verify: every byte", verified),
        _once("compact: all shards written again", time_once(store.compact)),
    ]


def _once(what: str, seconds: float) -> dict[str, Any]:
    shown = f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
    return make_row(what, seconds, f"{shown} (once)", "", "s")


def _rate(what: str, seconds: np.ndarray, count: int) -> dict[str, Any]:
    rate = count / float(np.median(seconds))
    return make_row(what, round(rate, 1), f"{rate:,.0f} images/s", "", "1/s")


def _size(what: str, count: int | None, claimed: str = "") -> dict[str, Any]:
    return make_row(what, count, _megabytes(count), claimed, "bytes")


# --- what a question reads -------------------------------------------------------------------------------------------


def count_file_bytes(function: Callable[[], Any]) -> int | None:
    """Bytes that a call reads from files, cached by the system or not; None where the system does not count them."""
    if not READ_BYTES.exists():
        return None

    def now() -> int:
        return int(READ_BYTES.read_text().split()[1])

    itself = -now() + now()
    before = now()
    function()
    return now() - before - itself


def _array_bytes(texture: StoredTexture, vectors: np.ndarray) -> dict[str, int]:
    """Of the arrays in a question's product with a texture."""
    return {
        "embedding": texture.coordinates().nbytes,
        "basis": 4 * texture.basis.rows.size + texture.basis.mean.nbytes,  # rows are multiplied as float32
        "question": vectors.nbytes,
        "map": texture.scores(vectors).nbytes,
    }


def _crop_bytes(image: Path, side: int) -> dict[str, int]:
    """Of a question to nano about KEPT crops: the image, what the encoder takes, their vectors."""
    encoder = load_encoder("nano")
    crop = crop_square(image, CROP)
    features = encoder.encode_image(crop, long_side=CROP).full(encoder.width)
    vector = features.reshape(-1, features.shape[-1]).mean(0)
    return {
        "image": side * side * 3,
        "crops": KEPT * crop.nbytes,
        "vectors": KEPT * vector.nbytes,
    }


def read_rows(path: Path, photograph: Path, side: int) -> list[dict[str, Any]]:
    """Rows of `python -m benchmarks store`. `path`: of a store that holds the photograph, `side` pixels square."""
    encoder = load_encoder("nano")
    first, later = prepare(encoder, "a dog"), prepare(encoder, "a cat")
    name = name_of(path, photograph)

    def alone() -> Callable[[], Any]:
        store = Store(path, cache=0)
        len(store)  # the index is open
        return lambda: score_maps(store[name], [first], encoder.calibration)

    warm = Store(path)
    len(warm)
    asked = count_file_bytes(lambda: score(warm[name], "a dog"))
    arrays, crops = _array_bytes(warm[name], later.vectors), _crop_bytes(photograph, side)
    kept = KEPT * warm[name].rank * 4
    return [
        _size("files: first question, what it says by itself (search, score_all)", count_file_bytes(alone())),
        _size("files: first question, foveate.score, with the image's pixels", asked),
        _size(
            "files: each later question about an image in the cache",
            count_file_bytes(lambda: score(warm[name], "a cat")),
        ),
        _size(f"arrays of each later question ({_list(arrays)})", sum(arrays.values()), CLAIMED["arrays"]),
        _size(f"  of which embeddings of the {KEPT} cells that are kept", kept, CLAIMED["kept"]),
        _size(f"each question by encoding {KEPT} crops ({_list(crops)})", sum(crops.values()), CLAIMED["crops"]),
    ]


def name_of(path: Path, photograph: Path) -> str:
    """What a store calls the photograph. (By the end of its path it would look at every name.)"""
    return next(name for name in Store(path) if name.endswith(photograph.name))


def _memory() -> int | None:
    """Bytes of memory that the process has now; None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def _megabytes(count: int | None) -> str:
    return "not counted here" if count is None else f"{count / 1e6:.3f} MB" if count < 1e7 else f"{count / 1e6:,.0f} MB"


def _list(parts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count / 1e3:,.0f} KB" for name, count in parts.items())
