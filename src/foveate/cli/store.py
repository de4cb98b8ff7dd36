"""`foveate store ...`: what keeps a store whole and quick."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foveate.cli.terminal import EncoderName, Program, counting, print_json, print_table, waiting

if TYPE_CHECKING:
    from foveate.store import Store

SHOWN = 10  # damaged images in the table; the JSON has all
StorePath = Annotated[Path, typer.Argument(help="A store: a folder that 'foveate index' made.")]
store = Program(help="Look after a store of indexed images.")


def open_store(path: Path, encoder: str | None = None) -> Store:
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


@store.command(epilog="Example:  foveate store verify photos.fov")
def verify(
    path: StorePath,
    repair: Annotated[bool, typer.Option("--repair", help="Put damaged shards aside, keep what is whole.")] = False,
) -> None:
    """Read every byte of a store and compare it with its checksum. The exit status is 1 if something is wrong."""
    known = open_store(path)
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


@store.command(epilog="Example:  foveate store compact photos.fov")
def compact(path: StorePath) -> None:
    """Join small shards, and drop the bytes of removed images."""
    known = open_store(path)
    with waiting(f"rewriting {path}", None):
        freed = known.compact()
    stats = known.stats()
    typer.echo(f"{freed / 1e6:.1f} MB freed; {stats['images']} images in {stats['shards']} shards")
    print_json(freed=freed, **stats)


@store.command(epilog="Example:  foveate store ann photos.fov --recall 0.98")
def ann(
    path: StorePath,
    recall: Annotated[
        float, typer.Option(help="Share of the exact scan's best 50 images that a search is to find.")
    ] = 0.95,
    encoder: EncoderName = None,
) -> None:
    """Put a large store's vectors into lists: searches then ask a few of them (approximate nearest neighbours)."""
    known = open_store(path, encoder)
    images = known.stats()["images"]
    with counting("listing", 2 * images) as progress:
        made = known.build_ann(recall, progress=progress)
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


@store.command(epilog="Example:  foveate store stats photos.fov")
def stats(path: StorePath) -> None:
    """Images, bytes, encoder and basis of a store."""
    known = open_store(path).stats()
    print_table(str(path), ("what", "value"), [(name.replace("_", " "), str(value)) for name, value in known.items()])
    print_json(**known)


@store.command(epilog="Example:  foveate store merge photos.fov part-0.fov part-1.fov")
def merge(
    path: Annotated[Path, typer.Argument(help="The store that takes; made if needed.")],
    parts: Annotated[list[Path], typer.Argument(help="Stores to take from; they stay as they are.")],
) -> None:
    """Join parts of one collection, made by 'foveate index --shard' (or by --like): same encoder, basis and space."""
    from foveate.store import Store

    known = Store(path)
    with waiting(f"merging into {path}", None):
        new = known.merge(*parts)
    stats = known.stats()
    typer.echo(f"{new} images taken; {stats['images']} in all")
    print_json(new=new, **stats)
