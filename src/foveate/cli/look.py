"""Ask a texture several questions and write down what came out: a picture and a JSON file for each.

This is what `foveate look` and `foveate demo` do after encoding; floor 6, so it may know files and pictures.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveate.core.files import make_folder, write_whole
from foveate.encoders.protocol import Encoder
from foveate.pipeline import Budget, allocate, score
from foveate.texture.texture import Texture
from foveate.viz.pictures import panels


def look(
    texture: Texture,
    queries: Sequence[str],
    *,
    budget: Budget,
    out: Path,
    floor: float = 0.0,
    source: str = "",
    encoder: str | Encoder | None = None,
) -> list[dict[str, Any]]:
    """Score and allocate each query; write `<image>--<query>.png` and `.json` into `out`. -> one record a query.

    All queries are scored before anything is written, so a bad one leaves no files behind. A file is written over only
    by the same question to the same `source` with the same budget; others get a number behind their name.

    Raises:
        QueryError, BudgetError, OptionError, OutputError.
    """
    results = []
    for query in queries:
        start = time.perf_counter()
        relevance = score(texture, query, encoder=encoder)
        kept = allocate(relevance, budget, floor=floor)
        results.append((relevance, kept, time.perf_counter() - start))
    make_folder(out)
    records = []
    for query, (relevance, kept, seconds) in zip(queries, results, strict=True):
        identity = {"source": source, "query": query, "budget": len(kept)}
        path = place(out / f"{Path(texture.name).stem}--{slug(query)}", identity)
        record = {
            "query": query,
            "phrases": list(relevance.parts),
            "budget": len(kept),
            "indices": kept.indices.tolist(),
            "confidence": round(relevance.confidence, 4),
            "detected": relevance.detected,
            "score_seconds": round(seconds, 6),
            "png": f"{path}.png",
            "json": f"{path}.json",
        }
        picture = io.BytesIO()
        panels(texture, relevance, kept).save(picture, "PNG")
        write_whole(Path(record["png"]), picture.getvalue())
        content = record | {
            "source": source,
            "image": texture.name,
            "size": [texture.grid.height, texture.grid.width],
            "grid": list(texture.grid.shape),
            "encoder": {"name": texture.encoder.name, "revision": texture.encoder.revision},
            "scores": [round(float(s), 5) for s in kept.scores],
            "map": [[round(float(v), 4) for v in row] for row in relevance.map],
        }
        write_whole(Path(record["json"]), json.dumps(content).encode())
        records.append(record)
    return records


def slug(query: str) -> str:
    """A file name for a question: its letters and digits, or a digest where it has none in ASCII."""
    words = re.sub(r"[^a-z0-9]+", "-", query.lower()).strip("-")
    return words[:60].rstrip("-") or hashlib.sha256(query.encode()).hexdigest()[:12]


def place(path: Path, identity: dict[str, Any]) -> Path:
    """The path without suffix, or the first `path-2`, `path-3`, ... that is free or holds this very result already."""
    number, candidate = 1, path
    while any(Path(f"{candidate}.{kind}").exists() for kind in ("json", "png")):
        try:
            there = json.loads(Path(f"{candidate}.json").read_text("utf-8"))
            if all(there.get(key) == value for key, value in identity.items()):
                break
        except (OSError, ValueError, AttributeError):
            pass  # not ours: leave it alone
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
