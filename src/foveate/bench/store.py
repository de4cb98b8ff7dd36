"""Times of the store, each beside the project's target.

    foveate bench store

Textures are of 64 x 64 cells: one photograph, square, stored many times with its cells moved round. Searching is over
synthetic vectors, random and as long as real ones. Medians, with the 99th percentile; the machines are shared.
"""

from __future__ import annotations

import io
import tempfile
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from foveate.bench import circumstances
from foveate.bench.query import SIDE, paired, square, timed
from foveate.encoders import load_encoder
from foveate.errors import OptionError
from foveate.pipeline import score
from foveate.relevance.query import prepare
from foveate.store import Store
from foveate.store.disk import Disk
from foveate.store.opening import VECTORS, Wanted, writing
from foveate.store.record import digest
from foveate.store.search import Vectors, short_list
from foveate.store.shard import Draft, Name
from foveate.store.work import EncodeBatch

TEXTURES, RERANKED = 512, 50


def measure(image: Path | None, repeats: int, images: int) -> dict[str, Any]:
    """Measure everything. `images`: of the synthetic search; `repeats`: of the quick rows, slow ones a tenth."""
    if repeats < 10 or images < 1:
        raise OptionError(f"--repeats {repeats}, --images {images}", expected="10 and 1, or more", fix="leave them out")
    path = image or Path(str(files("foveate") / "assets" / "photos" / "child_with_broccoli.jpg"))
    rng, tower, few = np.random.default_rng(0), load_encoder("nano"), max(10, repeats // 20)
    with tempfile.TemporaryDirectory() as folder:
        photograph = Path(folder) / "photo.jpg"
        Image.fromarray(square(path, SIDE)).save(photograph, quality=90)
        store = Store(Path(folder) / "bench.fov", cache=0)
        store.add(photograph)
        _filled(store, photograph)
        names = store.keys()

        def one() -> Any:
            return store[names[int(rng.integers(len(names)))]]

        read = timed(one, repeats)
        warm = Store(store.path)
        score(warm[names[0]], "a dog")
        mapped = timed(lambda: score(warm[names[0]], "a dog"), repeats)
        found = timed(lambda: warm[names[0]], repeats)
        reranked = timed(lambda: store.search("a dog", 1, rerank=RERANKED), few)
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
    over = float(np.median(whole - alone) / np.median(alone))
    rows = [
        _row("one texture of a warm store", read, 1e6, "µs", "<= 100 µs, 99 %: 1000 µs"),
        _row("a texture that is in the cache", found, 1e6, "µs", ""),
        _row("cache hit to relevance map", mapped, 1e6, "µs", "<= 100 µs"),
        _row(f"short list of {images:,} images", listed, 1e3, "ms", "<= 30 ms"),
        _row(f"exact score of {RERANKED} images, with reading them", reranked, 1e3, "ms", "<= 20 ms"),
        _row("a record: decoding, tower and everything else", whole, 1e3, "ms", ""),
        _row("  of which the tower", alone, 1e3, "ms", ""),
        _row("  of which decoding the JPEG", decoded, 1e3, "ms", ""),
        _row("  of which SHA-256", digested, 1e3, "ms", ""),
        {"what": "overhead above the bare tower", "measured": f"{over:.1%}", "target": "<= 15 %", "median": over},
        {"what": "bytes an image", "measured": f"{size / 1e3:.1f} KB", "target": "about 70 KB", "median": size},
    ]
    title = f"foveate bench store: 64 x 64 cells, {TEXTURES} textures, medians of {repeats} ({few} where slow)"
    return {"title": title, "rows": rows, "image": str(path), "images": images, **circumstances()}


def _filled(store: Store, photograph: Path) -> None:
    """TEXTURES records more, of the one photograph."""
    reader = store._reader()
    assert reader is not None
    work = EncodeBatch("nano", reader.identity, reader.space)
    record = work.record(photograph.read_bytes())
    with writing(store.path, Wanted(), Disk()) as writer:
        for start in range(0, TEXTURES, 256):
            draft = Draft()
            for number in range(start, start + 256):
                moved = {**record.tensors, "embedding": np.roll(record.tensors["embedding"], number, 1)}
                key = digest(str(number).encode())
                draft.records.append(replace(record, key=key, tensors=moved))
                draft.names.append(Name(f"/nowhere/{number}", f"{number}", key, 0, 0))
            writer.commit(draft)


def _row(what: str, seconds: np.ndarray, factor: float, unit: str, target: str) -> dict[str, Any]:
    median, slow = float(np.median(seconds)) * factor, float(np.percentile(seconds, 99)) * factor
    return {
        "what": what,
        "measured": f"{median:.3g} {unit} (99 %: {slow:.3g})",
        "target": target,
        "median": round(median, 5),
        "unit": unit,
    }
