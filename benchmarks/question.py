"""One question's arithmetic: scores of N cells, an exact top K, a gather; beside FAISS, torch and the documents' loop.

    python -m benchmarks question

On numbers of the sizes that a texture has: 16 of a cell are scored, 40 channels are gathered. The limit is a copy of as
many bytes as must be moved, so from the same cache; arithmetic (2 flops a number) is never the limit here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import KEPT, PHOTO, Repeats, crop_square, time_each, time_once, time_row
from foveate.allocation.policies import top_cells
from foveate.core.checks import check_int
from foveate.core.threads import products_in_one_thread
from foveate.language.negatives import nouns
from foveate.pipeline import allocate, encode, score

CELLS, KEEP = (1024, 4096, 16384, 65536), (64, KEPT, 1024, 4096)
BATCHES = ((1, 16), (1, 64), (16, 1), (64, 1), (16, 16))  # images, questions
RANK, CHANNELS = 16, 40
LOOP = 5  # times the loop is run: it takes milliseconds
COLUMNS = ("what", "measured", "FAISS", "torch", "of the limit")
COMPOSED = (
    "a child",
    "the green broccoli",
    "the child's hand",
    "the fork left of the plate",
    "what is the child holding?",
)
Way = Callable[[], Any]


@contextmanager
def one_thread() -> Generator[None]:
    """NumPy, FAISS and torch with one thread each: those of one would wait, spinning, while the next is timed."""
    with products_in_one_thread(), ExitStack() as stack:
        for name, get, put in (
            ("faiss", "omp_get_max_threads", "omp_set_num_threads"),
            ("torch", "get_num_threads", "set_num_threads"),
        ):
            if (library := _optional(name)) is not None:
                set_threads = getattr(library, put)
                stack.callback(set_threads, getattr(library, get)())
                set_threads(1)
        yield


@one_thread()
def measure(
    repeats: Repeats = 200,
    cells: Annotated[int, typer.Option(help="At most so many cells.")] = CELLS[-1],
    batches: Annotated[bool, typer.Option(help="Also several images and questions at once.")] = True,
) -> dict[str, Any]:
    """Scores, exact top K and gather over N and K, beside FAISS, torch and the documents' loop.

    FAISS and torch are how many times as long they take; empty where they are not installed.
    """
    check_int("--repeats", repeats, 1, 10_000)
    check_int("--cells", cells, CELLS[0])
    random = np.random.default_rng(0)
    rows, agree = [], []
    for n in (n for n in CELLS if n <= cells):
        z, table = (random.standard_normal((n, width), np.float32) for width in (RANK, CHANNELS))
        weights = random.standard_normal(RANK, np.float32)
        for k in (k for k in KEEP if k < n):
            ways = single(z, table, weights, k)
            agree.append(min(_share(ways["ours"]()[0], way()[0]) for way in ways.values()))
            rows.append(_timed(f"N {n:,}, K {k:,}", ways, moved(n, k), repeats))
    if batches:
        for images, questions in BATCHES:
            ways = several(random, images, questions)
            many = images * questions
            row = _timed(
                f"{images} images, {questions} questions, each", ways, moved(4096, KEPT), max(5, repeats // many), many
            )
            rows.append(row)
    rows += [*_loops(random, max(1, min(LOOP, repeats))), *_whole(max(3, repeats // 10))]
    title = f"benchmarks question: scores of N cells x {RANK}, top K, {CHANNELS} channels gathered; {repeats} in turn"
    return {"title": title, "columns": COLUMNS, "rows": rows, "least_agreement": min(agree)}


def moved(n: int, k: int) -> int:
    """Bytes that one question cannot do without: coordinates in, K rows in and out, K indices out."""
    return 4 * n * RANK + 2 * 4 * k * CHANNELS + 8 * k


def single(z: np.ndarray, table: np.ndarray, weights: np.ndarray, k: int) -> dict[str, Way]:
    """The three steps by each way: () -> (indices [K], rows [K, 40]). Indices of ours ascend."""

    def ours() -> tuple[np.ndarray, np.ndarray]:
        kept = top_cells(z @ weights, k)
        return kept, table.take(kept, 0)

    ways: dict[str, Way] = {"ours": ours}
    if (faiss := _optional("faiss")) is not None:
        index = faiss.IndexFlatIP(RANK)
        index.add(z)

        def by_faiss() -> tuple[np.ndarray, np.ndarray]:
            kept = index.search(weights[None], k)[1][0]
            return kept, table.take(kept, 0)

        ways["FAISS"] = by_faiss
    if (torch := _optional("torch")) is not None:
        rows, cells, asked = (torch.from_numpy(each) for each in (table, z, weights))
        zero = torch.zeros(len(z))

        def by_torch() -> tuple[Any, Any]:
            with torch.inference_mode():
                kept = torch.topk(torch.addmv(zero, cells, asked), k, sorted=False).indices
                return kept.numpy(), rows.index_select(0, kept)

        ways["torch"] = by_torch
    return ways


def several(random: np.random.Generator, images: int, questions: int, n: int = 4096, k: int = KEPT) -> dict[str, Way]:
    """Images x questions: ours as the library does it, the others as they do it best: () -> [images, questions, K]."""
    z = random.standard_normal((images, n, RANK), np.float32)
    table = random.standard_normal((images, n, CHANNELS), np.float32)
    asked = random.standard_normal((questions, RANK), np.float32)

    def ours() -> np.ndarray:
        out = np.empty((images, questions, k), np.int64)
        for cells, rows, kept in zip(z, table, out, strict=True):
            for place, weights in zip(kept, asked, strict=True):  # one product a question, as `score` does
                place[:] = top_cells(cells @ weights, k)
                rows.take(place, 0)
        return out

    ways: dict[str, Way] = {"ours": ours}
    if (faiss := _optional("faiss")) is not None:
        indices = [faiss.IndexFlatIP(RANK) for _ in range(images)]
        for index, cells in zip(indices, z, strict=True):
            index.add(cells)

        def by_faiss() -> np.ndarray:
            out = np.stack([index.search(asked, k)[1] for index in indices])
            for rows, kept in zip(table, out, strict=True):
                rows.take(kept, 0)
            return out

        ways["FAISS"] = by_faiss
    if (torch := _optional("torch")) is not None:
        cells, rows, weights = torch.from_numpy(z), torch.from_numpy(table), torch.from_numpy(asked)

        def by_torch() -> np.ndarray:
            with torch.inference_mode():
                kept = torch.topk(weights @ cells.transpose(1, 2), k, sorted=False).indices
                every = kept.reshape(images, -1, 1).expand(-1, -1, CHANNELS)
                torch.gather(rows, 1, every)
                return np.asarray(kept.numpy())

        ways["torch"] = by_torch
    return ways


def loop(planes: np.ndarray, query: np.ndarray, positions: np.ndarray) -> list[float]:
    """The documents' way, as they write it: a sample and a cosine a position, one after the other, in torch."""
    import torch
    from torch.nn import functional

    channels, asked, out = torch.from_numpy(planes), torch.from_numpy(query), []
    for y, x in positions:
        embedding = channels[:, y, x]
        out.append(functional.cosine_similarity(embedding.unsqueeze(0), asked[None], dim=1).item())
    return out


def copy_seconds(size: int, repeats: int) -> float:
    """Seconds in which as many bytes are read and written as `size` bytes in all: median of a copy of half of them."""
    source = np.zeros(max(size // 2, 1), np.uint8)
    target = np.empty_like(source)
    return float(np.median([time_once(lambda: np.copyto(target, source)) for _ in range(max(9, repeats))]))


def _timed(what: str, ways: dict[str, Way], size: int, repeats: int, many: int = 1) -> dict[str, Any]:
    """A row: the median of ours with its 99 % percentile, the others as ratios, and the share of the limit."""
    times = {name: each / many for name, each in time_each(dict(ways), repeats).items()}
    middle = {name: float(np.median(each)) for name, each in times.items()}
    share = copy_seconds(size, repeats) / middle["ours"]
    others = {name: f"{middle[name] / middle['ours']:.2g} x" if name in middle else "" for name in ("FAISS", "torch")}
    ratios = {f"ratio_{name}": round(middle[name] / middle["ours"], 3) for name in middle if name != "ours"}
    known = {"of the limit": f"{share:.0%}", "share": round(share, 4), "bytes": size}
    return time_row(what, times["ours"], "µs", slow=99) | others | ratios | known


def _loops(random: np.random.Generator, repeats: int) -> list[dict[str, Any]]:
    """The documents' loop over 273 positions; it ranks no others, and is given them."""
    if _optional("torch") is None:
        return []
    planes = random.standard_normal((RANK, 64, 64), np.float32)
    positions = np.stack(np.unravel_index(np.sort(random.choice(4096, KEPT, False)), (64, 64)), 1)
    query = random.standard_normal(RANK, np.float32)
    loop(planes, query, positions[:9])
    seconds = np.array([time_once(lambda: loop(planes, query, positions)) for _ in range(repeats)])
    row = time_row(f"the documents' loop over {KEPT} given positions (theirs: 0.30 ms)", seconds, "µs", slow=99)
    return [_plain(row)]


def _whole(repeats: int) -> list[dict[str, Any]]:
    """`score` and `allocate` of questions that are known, one by one and as a list, each."""
    texture = encode(crop_square(PHOTO, 512))
    rows = []

    def ask(asked: str | list[str]) -> None:
        allocate(score(texture, asked), KEPT)

    def ask_each(asked: list[str]) -> None:
        for one in asked:
            ask(one)

    for number in (1, 16, 64):
        asked = list(nouns()[:number])
        ways: dict[Any, Way] = {"one by one": partial(ask_each, asked), "as a list": partial(ask, asked)}
        for name, each in time_each(ways, repeats).items():
            what = f"score() + allocate(), {number} questions {name}, each"
            rows.append(_plain(time_row(what, each / number, "µs", slow=99)))
    asks: dict[Any, Way] = {text: partial(score, texture, text) for text in COMPOSED}
    for text, each in time_each(asks, repeats).items():
        rows.append(_plain(time_row(f'score(), "{text}"', each, "µs", slow=99)))
    return rows


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"FAISS": "", "torch": "", "of the limit": ""}


def _share(a: np.ndarray, b: np.ndarray) -> float:
    return len(np.intersect1d(a, b)) / len(a)


def _optional(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError:
        return None
