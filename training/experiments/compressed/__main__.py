"""`python -m training.experiments.compressed --data DATA --cache CACHE`; what it does is in __init__.py."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

import training.experiments.compressed
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.core.files import write_whole
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.negatives import query_metric_of
from foveate.language.query import prepare
from foveate.store.basis_check import likeness
from training.experiments.arguments import checked, command
from training.experiments.channel_budget.quality import MEASURES, answers, photographs
from training.experiments.compressed import embedding, planes
from training.experiments.compressed.features import features_of, make_features, with_features
from training.experiments.examples import Example, held_back, learning

Floats = NDArray[np.float64]
EVERY = 4  # of the training photographs, one in so many is learned from
CELLS = 160  # of each of them, for the embedding
OF_PLANES = ("psnr", "edges", "information", "precision", "kept", "same cells")
OF_EMBEDDING = ("spearman", "overlap", *MEASURES)
SHOWN = ("precision", "kept")
PAIRS_OF_PLANES = (
    ("autoencoder 3 x 3 to 8", "BC4"),
    ("autoencoder 3 x 3 to 8", "PCA to 8, bytes"),
    ("autoencoder 3 x 3 to 4", "PCA to 8, BC4"),  # as many bytes
    ("autoencoder 3 x 3 to 2", "PCA to 4, BC4"),  # as many bytes
    ("PCA to 8, BC4", "BC4"),
)
PAIRS_OF_EMBEDDING = tuple(
    (f"learned decoder, int8, {k}", f"{other}, int8, {r}")
    for k in embedding.SHARED[::-1]
    for other, r in (("shared basis", k), ("own basis", k), ("own basis", k // 2))
    if other == "shared basis" or r in embedding.OWN
)
TIMES = 9


def remembered(file: Path, make: Callable[[], dict[str, Floats]]) -> dict[str, Floats]:
    """What `make` makes, kept in a file."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        stream = io.BytesIO()
        np.savez(stream, **make())  # type: ignore[arg-type]
        write_whole(file, stream.getvalue())
    with np.load(file) as found:
        return {name: found[name] for name in found.files}


def judge_planes(examples: Sequence[Example], codecs: Sequence[planes.Codec]) -> dict[str, Floats]:
    """Codec -> [questions, 6] by OF_PLANES; "as it is" has the texture's own planes."""
    found: dict[str, list[Floats]] = {}
    for example in tqdm(examples, desc="planes", mininterval=5):
        texture = replace(example).texture
        stack = planes.stack(texture)
        n = len(example.asked)
        own, kept = answers(example, texture)[:, [1, 3]], planes.kept_cells(texture, example)
        found.setdefault("as it is", []).append(np.column_stack([np.tile([60, 1, 1], (n, 1)), own, np.ones(n)]))
        for codec in codecs:
            coded = codec.through(stack)
            other = planes.unstack(texture, coded)
            of_planes = (*planes.likeness(stack, coded), planes.same_information(texture, other))
            same = [(a & b).sum() / (a | b).sum() for a, b in zip(kept, planes.kept_cells(other, example), strict=True)]
            columns: list[Any] = [np.tile(of_planes, (n, 1)), answers(example, other)[:, [1, 3]], same]
            found.setdefault(codec.name, []).append(np.column_stack(columns))
    return {name: np.concatenate(rows) for name, rows in found.items()}


def judge_embedding(
    examples: Sequence[Example], codecs: Sequence[embedding.Codec], encoder: Encoder, cache: Path
) -> dict[str, Floats]:
    """Codec -> [questions, 6] by OF_EMBEDDING, and "full" of uncompressed features; "cells": of each photograph."""
    found: dict[str, list[Any]] = {"cells": []}
    for example in tqdm(examples, desc="embedding", mininterval=5):
        texture = replace(example).texture
        x = features_of(example, cache).reshape(texture.grid.count, -1).astype(np.float32)
        found["cells"].append([len(x)])
        phrases = [prepare(encoder, asked.text).vectors for asked in example.asked]
        full = [vectors @ x.T for vectors in phrases]
        for name, after in (("full", x), *((codec.name, codec.through(x)) for codec in codecs)):
            alike = [likeness(a, vectors @ after.T) for a, vectors in zip(full, phrases, strict=True)]
            judged = answers(example, with_features(texture, after))
            found.setdefault(name, []).append(np.column_stack([alike, judged]))
    return {name: np.concatenate(rows) for name, rows in found.items()}


def table(
    judged: dict[str, Floats], columns: Sequence[str], size: dict[str, str], of: Sequence[int], baseline: str
) -> list[str]:
    """Markdown: bytes, means, and differences to the baseline with 95 % intervals over photographs."""
    head = ["way", "bytes", *columns, *(f"by {name}" for name in SHOWN)]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for way, values in judged.items():
        cells = [way, size.get(way, ""), *(f"{mean:.3f}" if mean < 2 else f"{mean:.1f}" for mean in values.mean(0))]
        apart = values - judged[baseline]
        for i in (columns.index(name) for name in SHOWN):
            one = mean_estimate(apart[:, i], of)
            cells.append("" if way == baseline else f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def pairs(
    judged: dict[str, Floats], columns: Sequence[str], compared: Sequence[tuple[str, str]], of: Sequence[int]
) -> list[str]:
    """Markdown: by how much the first of two ways is better, with 95 % intervals over photographs."""
    lines = ["| way | against | " + " | ".join(columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for way, other in compared:
        apart = judged[way] - judged[other]
        some = (mean_estimate(apart[:, i], of) for i in range(len(columns)))
        cells = (f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})" for one in some)
        lines.append(f"| {way} | {other} | " + " | ".join(cells) + " |")
    return lines


def times(codecs: Sequence[Any], value: NDArray[np.float32]) -> dict[str, float]:
    """There and back, in ms: medians of interleaved calls."""
    taken: dict[str, list[float]] = {codec.name: [] for codec in codecs}
    for _ in range(TIMES):
        for codec in codecs:
            start = time.perf_counter()
            codec.through(value)
            taken[codec.name].append(1000 * (time.perf_counter() - start))
    return {name: float(np.median(some)) for name, some in taken.items()}


def main() -> None:
    args = checked(command("compressed", training.experiments.compressed.__doc__))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = args.cache / "compressed"
    learned_from = [example for example in learning(args.data, args.cache) if not example.held_out][::EVERY]
    sets = held_back(args.data, args.cache)
    encoder = load_encoder("nano")
    metric = query_metric_of(encoder)
    make_features([*learned_from, *(e for some in sets.values() for e in some)], args.cache)

    stacks = [planes.stack(replace(example).texture) for example in tqdm(learned_from, desc="stacks", mininterval=5)]
    white = planes.whitening(stacks)
    of_planes = planes.codecs(white, planes.train_all(stacks, white, folder))
    spent = times(of_planes, stacks[0])
    del stacks
    x = drawn(learned_from, args.cache)
    shared = embedding.fit_shared(x, metric)
    of_embedding = embedding.codecs(shared, metric, embedding.train_all(x, shared, metric, folder))
    spent |= times(of_embedding, features_of(learned_from[0], args.cache).reshape(-1, x.shape[1]).astype(np.float32))
    report: dict[str, Any] = {"ms": spent, "sets": {}}
    for data, examples in sets.items():
        of = photographs(examples)
        first, second = (
            hashlib.sha256(repr([data, len(of), [codec.name for codec in some]]).encode()).hexdigest()[:12]
            for some in (of_planes, of_embedding)
        )
        judged = remembered(folder / f"planes-{data}-{first}.npz", partial(judge_planes, examples, of_planes))
        size = {codec.name: f"{codec.size:g} a sample" for codec in of_planes}
        print(f"\n{data}: {len(examples)} photographs, {len(of)} questions; planes\n")
        print("\n".join(table(judged, OF_PLANES, size, of, "as it is")))
        print("\n" + "\n".join(pairs(judged, OF_PLANES, PAIRS_OF_PLANES, of)))
        other = remembered(
            folder / f"embedding-{data}-{second}.npz",
            partial(judge_embedding, examples, of_embedding, encoder, args.cache),
        )
        cells = float(other.pop("cells").mean())
        size = {codec.name: f"{codec.a_cell * cells + codec.a_photograph:,.0f}" for codec in of_embedding}
        print(f"\n{data}: embedding of {cells:.0f} cells on average, D = {x.shape[1]}\n")
        print("\n".join(table(other, OF_EMBEDDING, size | {"full": f"{2 * cells * x.shape[1]:,.0f}"}, of, "full")))
        print("\n" + "\n".join(pairs(other, OF_EMBEDDING, PAIRS_OF_EMBEDDING, of)))
        report["sets"][data] = {
            "planes": {
                way: dict(zip(OF_PLANES, values.mean(0).round(4).tolist(), strict=True))
                for way, values in judged.items()
            },
            "embedding": {
                way: dict(zip(OF_EMBEDDING, values.mean(0).round(4).tolist(), strict=True)) | {"bytes": size.get(way)}
                for way, values in other.items()
            },
        }
    print("\n| there and back, one photograph | ms |\n|---|---|")
    print("\n".join(f"| {name} | {value:.1f} |" for name, value in spent.items()))
    if args.out is not None:
        write_whole(args.out / "compressed.json", json.dumps(report).encode())
    print(json.dumps(report))


def drawn(examples: Sequence[Example], cache: Path) -> NDArray[np.float32]:
    """Features of some cells of each photograph, float32 [n, D]."""
    random, rows = np.random.default_rng(0), []
    for example in tqdm(examples, desc="cells", mininterval=5):
        x = features_of(example, cache)
        flat = x.reshape(-1, x.shape[-1])
        rows.append(flat[random.choice(len(flat), min(CELLS, len(flat)), replace=False)].astype(np.float32))
    return np.concatenate(rows)


if __name__ == "__main__":
    main()
