"""Fit the codebooks, judge what is kept, search by entries, and count what photographs share: see the package."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

import training.experiments.vocabulary
from foveate.cli.evaluate.agreement import mean_estimate
from foveate.cli.evaluate.search import recall
from foveate.core.errors import QueryError
from foveate.core.threads import products_in_one_thread
from foveate.encoders.load import load_encoder
from foveate.language.negatives import query_metric_of
from foveate.language.query import Query, prepare
from foveate.pipeline import score
from foveate.relevance.confidence import DETECTED
from foveate.relevance.value import Relevance
from foveate.store.format import Space
from foveate.store.hits import short_list
from foveate.store.reader import Vectors
from foveate.store.record import farthest, plane_peaks
from foveate.store.shared_basis import plane_space
from foveate.texture.basis import Basis
from training.experiments.arguments import checked, command
from training.experiments.examples import MEASURES, Example, compared, held_back, judge, learning, means
from training.experiments.vocabulary.cells import Cells, Common, fit_common, gather, save_whole
from training.experiments.vocabulary.codebooks import Codebook, Ids
from training.experiments.vocabulary.fitting import fit_all
from training.experiments.vocabulary.index import (
    InvertedIndex,
    join_phrases,
    make_index,
    rank_by_entries,
    rank_by_planes,
    rank_exactly,
)
from training.experiments.vocabulary.kept import BASELINE, Way, all_ways, as_encoded, likeness, with_features
from training.experiments.vocabulary.sharing import shared_by_labels, sharing_table

Floats = NDArray[np.float32]
PLANES = "peaks of nano's planes, 290 x uint8"
KEPT_PEAKS = "peaks of nano's planes, 290 x float16 (store)"
VOCABULARIES = ("256 entries", "1,024 entries", "4,096 entries", "16,384 entries")
STORE = (
    (6, 96),
    (3, 96),
    (1, 96),
    (6, 32),
)  # vectors of an image, numbers of each; the store's own, where it has no peaks, first
LISTS, TOP, ROUNDS = (10, 20, 50, 100), 10, 15
PACKED = 4  # one photograph in so many is compressed by LZMA, which takes longer than all else
SHARE = 20  # one photograph in so many is scanned where time is taken
Table = dict[str, Any]


def stored(path: Path, make: Callable[[], Any]) -> Any:
    """What an earlier run found, from its file; else made, and written whole."""
    if not path.exists():
        found = make()
        save_whole(path, lambda file: file.write(json.dumps(found).encode()))
    return json.loads(path.read_text())


def kept_array(path: Path, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """`stored` for an array."""
    if not path.exists():
        found = make()
        save_whole(path, lambda file: np.save(file, found))
    return np.load(path)


# --- what is kept of a texture ----------------------------------------------------------------------------------------


def judge_ways(examples: Sequence[Example], ways: dict[str, Way]) -> Table:
    """Every way on every question: measures, likeness to the first way's logits, and bytes of a photograph.

    The first way is what the texture itself has.
    """
    sizes: dict[str, list[Any]] = {way: [] for way in ways}
    alike: dict[str, list[Any]] = {way: [] for way in ways}

    def maps(example: Example) -> list[dict[str, Any]]:
        texture = example.texture
        full: list[Relevance] = []
        found: list[dict[str, Any]] = [{} for _ in example.asked]
        for way, keep in ways.items():
            kept = keep(texture)
            number = len(sizes[way])
            sizes[way].append((kept.raw, kept.packed if number % PACKED == 0 else None))
            other = texture if not full else with_features(texture, kept.features)
            asked = [score(other, one.text) for one in example.asked]
            full = full or asked
            for maps_by_way, exact, relevance in zip(found, full, asked, strict=True):
                maps_by_way[way] = relevance.map
                near = likeness(exact.logits.ravel(), relevance.logits.ravel())
                alike[way].append((near.spearman, near.overlap))
        del example.__dict__["texture"]
        return found

    judged = judge(examples, maps)
    return {"judged": {way: values.tolist() for way, values in judged.items()}, "sizes": sizes, "alike": alike}


def judge_groups(examples: Sequence[Example], groups: dict[str, dict[str, Way]], out: Path, name: str) -> Table:
    """All groups of ways, each beside the baseline and in a file of its own."""
    found: Table = {}
    for group, ways in groups.items():
        beside = {BASELINE: as_encoded, **ways}
        part = stored(out / f"kept_{name}_{group}.json", partial(judge_ways, examples, beside))
        for what, values in part.items():
            found.setdefault(what, {}).update(values)
    return found


def kept_table(found: dict[str, Table]) -> tuple[str, Table]:
    """Markdown, and numbers: way -> bytes, likeness, and what of the measures is lost on each set."""
    first = next(iter(found.values()))
    ways = list(first["sizes"])
    head = ["kept of a cell", "bytes a texture", "after LZMA", "Spearman", "top 6.7 %"]
    head += [f"{name}: pointing / precision / coverage" for name in found] + [f"{name}: by precision" for name in found]
    lines, numbers = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"], {}
    for way in ways:
        both = np.concatenate([np.array(each["sizes"][way], np.float64) for each in found.values()])
        raw, packed = np.nanmean(both, 0)
        spearman, overlap = np.concatenate([each["alike"][way] for each in found.values()]).mean(0)
        cells = [way, f"{raw:,.0f}", f"{packed:,.0f}", f"{spearman:.3f}", f"{overlap:.3f}"]
        row: Table = {"bytes": round(raw), "packed": round(packed), "spearman": spearman, "overlap": overlap}
        apart = []
        for name, each in found.items():
            judged = {key: np.array(values) for key, values in each["judged"].items()}
            own, lost = means(judged, way), compared(judged, way, ways[0])
            cells.append(" / ".join(f"{own[measure].mean:.3f}" for measure in MEASURES))
            row[name] = {m: {"mean": own[m].mean, "lost": lost[m]._asdict()} for m in MEASURES}
            d = lost["precision"]
            apart.append("" if way == ways[0] else f"{d.mean:+.3f} ({d.low:+.3f} to {d.high:+.3f})")
        lines.append("| " + " | ".join(cells + apart) + " |")
        numbers[way] = row
    return "\n".join(lines), numbers


# --- search -----------------------------------------------------------------------------------------------------------


def questions_of(both: dict[str, list[Example]]) -> list[Query]:
    """Every question of the held-back sets once, of those that name something."""
    encoder, found = load_encoder("nano"), []
    for text in sorted({asked.text for examples in both.values() for one in examples for asked in one.asked}):
        try:
            query = prepare(encoder, text)
        except QueryError:
            continue
        if query.phrases:
            found.append(query)
    return found


def collect_ids(cells: Cells, common: Common, books: dict[str, Codebook], folder: Path) -> dict[str, list[Ids]]:
    """The entry of every cell of every photograph, by codebook; each in a file of its own."""
    found = {}
    for name in VOCABULARIES:
        path = folder / f"ids_{name.split()[0].replace(',', '')}.npy"

        def make(name: str = name) -> NDArray[np.uint16]:
            every = []
            for start in tqdm(range(0, len(cells), 16), desc=f"ids of {name}", mininterval=5):
                some = range(start, min(start + 16, len(cells)))
                x = np.concatenate([cells.features(number) for number in some])
                every.append(books[name].ids(common.coordinates(x))[:, 0].astype(np.uint16))
            return np.concatenate(every)

        found[name] = [each.astype(np.int64) for each in np.split(kept_array(path, make), cells.starts[1:-1])]
    return found


def search_table(
    cells: Cells,
    common: Common,
    ids: dict[str, list[Ids]],
    books: dict[str, Codebook],
    queries: list[Query],
    out: Path,
) -> Table:
    """Recall of the exact best ten among short lists, bytes of an image, and milliseconds of a question."""
    encoder = load_encoder("nano")
    vectors = np.concatenate([query.vectors for query in queries])
    numbers_of = tqdm(range(len(cells)), desc="all cells", mininterval=5)

    def each_exactly() -> NDArray[Any]:
        return np.stack([rank_exactly(cells, n, vectors, encoder.calibration) for n in numbers_of], 1)

    exact = join_phrases(kept_array(out / "exact.npy", each_exactly), queries)
    clear = exact.max(1) >= DETECTED

    def each_far() -> NDArray[Any]:
        few = tqdm(range(len(cells)), desc="vectors", mininterval=5)
        return np.stack([farthest(common.coordinates(cells.features(n)), 6).astype(np.float16) for n in few])

    table = kept_array(out / "farthest.npy", each_far)
    heights = kept_array(
        out / "heights.npy", lambda: np.stack([plane_peaks(cells.features(n)) for n in range(len(cells))])
    )
    lists: dict[str, Callable[[Query], NDArray[np.int64]]] = {}
    sizes: dict[str, int] = {}
    for count, numbers in STORE:
        name = f"vectors, {count} x {numbers} float16" + (
            " (store, without peaks)" if (count, numbers) == STORE[0] else ""
        )
        lists[name] = _by_vectors(common, table[:, :count, :numbers], encoder.calibration)
        sizes[name] = 2 * count * numbers * len(cells)
    levels = np.rint(np.clip(heights / heights.max(), 0, 1) * 255).astype(np.uint8)
    lists[PLANES] = _by_planes(levels.astype(np.float32) * np.float32(heights.max() / 255), encoder.calibration)
    sizes[PLANES] = levels.nbytes
    half = heights.astype(np.float16)
    lists[KEPT_PEAKS], sizes[KEPT_PEAKS] = _by_peaks(half, encoder.calibration), half.nbytes
    for name in VOCABULARIES:
        index = make_index(ids[name], len(books[name].entries[0]))
        lists[f"index, {name}"] = _by_entries(index, books[name].features[0], encoder.calibration)
        sizes[f"index, {name}"] = index.nbytes
    found: dict[str, list[Any]] = {name: [] for name in lists}
    for query, scores in zip(tqdm(queries, desc="short lists", mininterval=5), exact, strict=True):
        for name, rank in lists.items():
            places = rank(query)
            found[name].append([recall(scores, places[:size], TOP) for size in LISTS])
    seconds = _timed(lists, queries)

    def scan(query: Query) -> None:
        for number in range(0, len(cells), SHARE):
            rank_exactly(cells, number, query.vectors, encoder.calibration)

    scanned = SHARE * _timed({"": scan}, queries)[""]
    rows = {
        name: {
            "bytes": sizes[name] / len(cells), "ms": seconds[name] * 1e3,
            "clear": [
                mean_estimate(column, range(int(clear.sum())))._asdict() for column in np.array(found[name])[clear].T
            ],
            "recall": [mean_estimate(column, range(len(queries)))._asdict() for column in np.array(found[name]).T],
        }
        for name in lists
    }  # fmt: skip
    return {
        "rows": rows,
        "scan_ms": scanned * 1e3,
        "questions": len(queries),
        "clear": int(clear.sum()),
        "images": len(cells),
    }


def _by_vectors(common: Common, table: NDArray[np.float16], calibration: Any) -> Callable[[Query], Any]:
    count, numbers = table.shape[1:]
    space = Space(Basis(common.mean, common.outward[:numbers].astype(np.float16)), np.ones(numbers, np.float32))
    vectors = Vectors(np.arange(len(table)), table.reshape(-1, numbers).astype(np.float32), count, 0)
    return lambda query: short_list(vectors, space, [query], calibration, max(LISTS))[0]


def _by_planes(heights: Floats, calibration: Any) -> Callable[[Query], Any]:
    return lambda query: np.argsort(-rank_by_planes(heights, query, calibration), kind="stable")[: max(LISTS)]


def _by_peaks(heights: NDArray[np.float16], calibration: Any) -> Callable[[Query], Any]:
    """As the store has them."""
    vectors = Vectors(np.arange(len(heights)), heights.astype(np.float32), 1, 0)
    space = plane_space(heights.shape[1])
    return lambda query: short_list(vectors, space, [query], calibration, max(LISTS))[0]


def _by_entries(index: InvertedIndex, features: Floats, calibration: Any) -> Callable[[Query], Any]:
    return lambda query: np.argsort(-rank_by_entries(index, features, query, calibration), kind="stable")[: max(LISTS)]


def _timed(calls: dict[str, Callable[[Query], Any]], queries: Sequence[Query]) -> dict[str, float]:
    """Medians of seconds of this process's own CPU time (one thread), of calls that take turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    with products_in_one_thread():
        for turn in range(ROUNDS):
            query = queries[turn * len(queries) // ROUNDS]
            for name, call in calls.items():
                start = time.process_time()
                call(query)
                found[name].append(time.process_time() - start)
    return {name: float(np.median(each)) for name, each in found.items()}


def search_lines(report: Table) -> str:
    """Markdown of `search_table`."""
    lines = [
        f"{report['images']} images, {report['questions']} questions; {report['clear']} of them find something\n",
        "| short list | bytes an image | ms a question | "
        + " | ".join([*(f"among {n}" for n in LISTS), "among 50, of those that find something"])
        + " |",
        "|---" * (4 + len(LISTS)) + "|",
    ]
    for name, row in report["rows"].items():
        shares = [f"{each['mean']:.3f} ({each['low']:.3f}-{each['high']:.3f})" for each in row["recall"]]
        found = row["clear"][LISTS.index(50)]
        shares.append(f"{found['mean']:.3f} ({found['low']:.3f}-{found['high']:.3f})")
        lines.append(f"| {name} | {row['bytes']:,.0f} | {row['ms']:.2f} | " + " | ".join(shares) + " |")
    return "\n".join([*lines, f"| all cells, exactly | | {report['scan_ms']:.0f} | 1 |" + " |" * len(LISTS)])


def main() -> None:
    """All of it; each part is in a file when it is done, and a run that was stopped goes on after it."""
    args = checked(command("vocabulary", training.experiments.vocabulary.__doc__), out="vocabulary")
    out: Path = args.out
    examples = learning(args.data, args.cache)
    cells = gather(examples, out)
    common, books, tables = fit_all(cells, out)
    groups = all_ways(common, books, tables)
    both = held_back(args.data, args.cache)
    found = {name: judge_groups(some, groups, out, name) for name, some in both.items()}
    lines, kept = kept_table(found)
    print(lines, "\n")
    ids = collect_ids(cells, common, books, out)
    queries = questions_of(both)
    space = fit_common(cells.sample(), query_metric_of(load_encoder("nano")), 96)  # as a store fits its own
    reports = {"learning": stored(out / "search.json", lambda: search_table(cells, space, ids, books, queries, out))}
    unseen = gather([*both["coco128"], *both["open"]], out / "held_back")
    their = collect_ids(unseen, common, books, out / "held_back")
    reports["held back"] = stored(
        out / "held_back" / "search.json",
        lambda: search_table(unseen, space, their, books, queries, out / "held_back"),
    )
    for collection, report in reports.items():
        print(f"{collection}: {search_lines(report)}\n")
    shares = stored(out / "sharing.json", lambda: shared_by_labels(cells, common, ids))
    print(sharing_table(shares))
    print(json.dumps({"kept": kept, "search": reports, "sharing": shares}))


if __name__ == "__main__":
    main()
