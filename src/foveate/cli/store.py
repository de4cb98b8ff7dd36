"""The commands `foveate index`, `foveate search` and `foveate store ...`. See terminal.py for what they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.terminal import (
    Address,
    EncoderName,
    EngineName,
    Gpus,
    LongSide,
    counting,
    make_engine,
    print_json,
    print_table,
    use_one_thread,
    waiting,
)

if TYPE_CHECKING:
    from foveate.store import Store
    from foveate.store.ingest import Progress

SHOWN = 10  # bad images in the table; the JSON has all
StorePath = Annotated[Path, typer.Argument(help="A store: a folder that 'foveate index' made.")]
store = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look after a store of indexed images.")


def index(
    images: Annotated[
        list[Path],
        typer.Argument(help="Folders of images, image files, and lists: a path a line, in a .txt file or -, stdin."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The store: a folder, PHOTOS.fov by custom.")],
    encoder: EncoderName = None,
    workers: Annotated[
        int | None, typer.Option(help="Threads, or workers of Ray [default: as many as there are cores].")
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Numbers kept a cell [default: 16].")] = None,
    shared: Annotated[bool, typer.Option("--shared", help="One basis for the cells of all images, rank 64.")] = False,
    basis: Annotated[
        Path | None, typer.Option(help="From 'foveate basis fit', for the cells of all images [default: each its own].")
    ] = None,
    long_side: LongSide = None,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="Only the I-th of N parts, 0/N to N-1/N; 'foveate store merge' joins them."),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="A store that a new one is made like: parts of unlike machines then merge."),
    ] = None,
    engine: EngineName = "local",
    gpus: Gpus = 0.0,
    address: Address = None,
) -> None:
    """Index images, once: afterwards 'foveate search' finds things in them."""
    use_one_thread()
    from foveate.store import Store

    given: Any = "shared" if shared else None
    if basis is not None:
        if shared:
            raise typer.BadParameter("--shared fits a basis, --basis gives one: pass one of them")
        from foveate.store.shared_basis import FittedBasis

        given = FittedBasis.load(basis).basis(rank)
    known = Store(output, encoder=encoder, basis=given, rank=rank, long_side=long_side)
    several, by = make_engine(engine, workers, gpus, address)
    elsewhere = None if engine == "local" else by  # here, a file whose content is known is not encoded
    with _counted("indexing", encoder) as progress:
        try:
            added = known.add(images, workers=several, part=shard, like=like, engine=elsewhere, progress=progress)
        except KeyboardInterrupt:
            typer.echo(f"interrupted; {len(known)} images are in the store, and the same command goes on", err=True)
            raise
    stats = known.stats()
    if added.bad:
        rows = [(path, why) for path, why in added.bad[:SHOWN]]
        more = f", {len(added.bad) - SHOWN} more in the last line" if len(added.bad) > SHOWN else ""
        print_table(f"{len(added.bad)} files are no images that can be read{more}", ("file", "why"), rows)
    rate = added.added / added.seconds if added.seconds else 0.0
    facts = [
        ("added", f"{added.added} in {added.seconds:.1f} s, {rate:.1f} images a second"),
        ("known before", f"{added.known}; {added.linked} more names of images that are there"),
        ("in the store", f"{stats['names']} names, {stats['images']} images, {stats['bytes'] / 1e6:.1f} MB"),
        ("an image takes", f"{stats.get('bytes_an_image', 0) / 1e3:.0f} KB, {stats.get('cells_an_image', 0)} cells"),
    ]
    print_table(str(output), ("what", "value"), facts)
    print_json(
        store=str(output), added=added.added, linked=added.linked, known=added.known,
        bad=[{"path": path, "why": why} for path, why in added.bad], seconds=round(added.seconds, 3), **_rest(stats),
    )  # fmt: skip


def search(
    path: StorePath,
    query: Annotated[list[str], typer.Argument(help="Questions or noun phrases, each in quotes.")],
    count: Annotated[int, typer.Option("--count", "-k", help="Images at most.")] = 12,
    encoder: EncoderName = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for contact sheets; made if needed.")] = Path(
        "foveate-out"
    ),
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="No pictures.")] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Scan all images, also after 'foveate store approximate'.")
    ] = False,
) -> None:
    """Find images in a store by what is in them: a table, a contact sheet with heat, JSON."""
    import time

    from foveate.cli.terminal import refuse_files
    from foveate.core.files import make_folder
    from foveate.viz.sheet import write_sheet

    refuse_files(query, "store", 'foveate index FOLDER -o photos.fov, then foveate search photos.fov "a dog"')
    known = _there(path, encoder)
    if not no_sheet:
        make_folder(out)
    records: list[dict[str, Any]] = []
    with waiting("searching", encoder):
        known.search(
            query[0], 1, exact=exact
        )  # vectors are read and the encoder is loaded: not part of a search's time
        for text in query:
            start = time.perf_counter()
            hits = known.search(text, count, exact=exact)
            seconds = time.perf_counter() - start
            sheet = None if no_sheet or not hits else str(write_sheet(hits, text, out))
            found = [
                {"path": hit.path, "name": hit.name, "score": round(hit.score, 4), "detected": hit.detected}
                for hit in hits
            ]
            records.append({"query": text, "seconds": round(seconds, 5), "sheet": sheet, "hits": found})
    for record in records:
        rows = [
            (str(place), f"{hit['score']:.3f}" + ("" if hit["detected"] else " (not found)"), hit["path"])
            for place, hit in enumerate(record["hits"], 1)
        ]
        print_table(f"“{record['query']}”  {record['seconds'] * 1e3:.0f} ms", ("", "score", "image"), rows)
        if record["sheet"]:
            typer.echo(f"sheet: {record['sheet']}")
    print_json(store=str(path), images=len(known), queries=records)


@store.command("verify")
def verify(
    path: StorePath,
    repair: Annotated[bool, typer.Option("--repair", help="Put damaged shards aside, keep what is whole.")] = False,
) -> None:
    """Read every byte of a store and compare it with its checksum. The exit status is 1 if something is wrong."""
    known = _there(path, None)
    with waiting(f"reading {path}", None):
        found = known.verify(repair=repair)
    rows = [
        ("images", f"{found.images}, {found.names} names"),
        ("shards", f"{found.shards}, {found.nbytes / 1e6:.1f} MB"),
        *(("problem", line) for line in found.problems),
        *(("put aside", line) for line in found.repaired),
        *(("lost" if repair else "damaged", line) for line in found.damaged[:SHOWN]),
        *(("note", line) for line in found.notes),
        ("verdict", "every byte is as it was written" if found.ok else "damaged: run it with --repair"),
    ]
    print_table(str(path), ("what", "value"), rows)
    if repair and found.damaged:
        typer.echo(f"{len(found.damaged)} images are lost: index their folder again, and they are made anew")
    print_json(
        store=str(path), ok=found.ok, images=found.images, names=found.names, shards=found.shards, bytes=found.nbytes,
        problems=list(found.problems), damaged=list(found.damaged), repaired=list(found.repaired),
        notes=list(found.notes),
    )  # fmt: skip
    if not found.ok:
        raise typer.Exit(1)


@store.command("compact")
def compact(path: StorePath) -> None:
    """Join small shards, and drop the bytes of removed images."""
    known = _there(path, None)
    with waiting(f"rewriting {path}", None):
        freed = known.compact()
    stats = known.stats()
    typer.echo(f"{freed / 1e6:.1f} MB freed; {stats['images']} images in {stats['shards']} shards")
    print_json(freed=freed, **stats)


@store.command("approximate")
def approximate(
    path: StorePath,
    recall: Annotated[
        float, typer.Option(help="Share of the exact scan's best 50 images that a search is to find.")
    ] = 0.95,
    encoder: EncoderName = None,
) -> None:
    """Put a large store's vectors into lists: searches then ask a few of them (approximate nearest neighbours)."""
    known = _there(path, encoder)
    images = known.stats()["images"]
    with counting("approximating", 2 * images) as progress:
        made = known.approximate(recall, progress=lambda done, _: progress(done))
    rows = [
        ("images", f"{made.images:,}, {made.vectors:,} vectors"),
        ("lists", f"{made.lists:,}; {made.probes:,} of them are asked"),
        ("recall", f"{made.recall:.3f} of the exact scan's best 50, over nouns of the bank; {recall:g} was wanted"),
        ("bytes", f"{made.nbytes / 1e6:.1f} MB, {made.nbytes / made.images:.0f} an image"),
        ("seconds", f"{made.seconds:.1f}"),
    ]
    print_table(str(path), ("what", "value"), rows)
    if made.images < images:
        typer.echo(f"{images - made.images} images of damaged shards are left out: foveate store verify {path}")
    print_json(
        store=str(path), images=made.images, vectors=made.vectors, lists=made.lists, probes=made.probes,
        recall=round(made.recall, 4), bytes=made.nbytes, seconds=round(made.seconds, 3),
    )  # fmt: skip


@store.command("stats")
def stats(path: StorePath) -> None:
    """Images, bytes, encoder and basis of a store."""
    said = _there(path, None).stats()
    print_table(str(path), ("what", "value"), [(name.replace("_", " "), str(value)) for name, value in said.items()])
    print_json(**said)


@store.command("merge")
def merge(
    path: Annotated[Path, typer.Argument(help="The store that takes; made if needed.")],
    parts: Annotated[list[Path], typer.Argument(help="Stores to take from; they stay as they are.")],
) -> None:
    """Join parts of one collection, made by 'foveate index --shard' (or by --like): same encoder, basis and space."""
    from foveate.store import Store

    known = Store(path)
    with waiting(f"merging into {path}", None):
        new = known.merge(*parts)
    said = known.stats()
    typer.echo(f"{new} images taken; {said['images']} in all")
    print_json(new=new, **said)


def _there(path: Path, encoder: str | None) -> Store:
    """A store that has images. Raises StoreError."""
    from foveate.core.errors import StoreError
    from foveate.store import Store

    known = Store(path, encoder=encoder)
    if known.identity is None:
        raise StoreError(
            f"no store at '{path}'",
            expected="a folder that 'foveate index' made",
            fix=f"make it: foveate index FOLDER -o {path}",
        )
    return known


def _rest(stats: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in stats.items() if name != "store"}


@contextmanager
def _counted(what: str, encoder: str | None) -> Iterator[Callable[[Progress], None]]:
    """A spinner while the basis is fitted, then a bar with rate and time left."""
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(waiting("looking at a sample of the images", encoder))
        bar: list[Callable[[int], None]] = []

        def show(progress: Progress) -> None:
            if not bar:
                first.close()
                bar.append(stack.enter_context(counting(what, progress.total, "images")))
            bar[0](progress.done)

        yield show
