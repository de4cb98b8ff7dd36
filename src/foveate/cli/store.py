"""`foveate store ...`: what is in a store, and what keeps it whole."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foveate.cli.terminal import Program, counting, format_count, print_json, print_table, waiting

if TYPE_CHECKING:
    from foveate.store import Store

SHOWN = 10  # damaged images in the table; the JSON has all
WIDEST = 60  # characters of words in the table
FAR = 1000  # a lost version whose number is further on than that had a file that was no version's
StorePath = Annotated[
    str, typer.Argument(metavar="STORE", help="A store that 'foveate index' made: a folder, or an address: s3://...")
]
Names = Annotated[list[str] | None, typer.Argument(help="Images, by name, path, end of path, or id.")]
Where = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Only images for which this holds: \"taken > '2026-01-01' and tag = 'dog' and width > height\".",
    ),
]
store = Program(help="Look after a store of indexed images.")


def open_store(path: str, encoder: str | None = None) -> Store:
    """A store that is there. Raises StoreError."""
    from foveate.store import Store

    known = Store(path, encoder=encoder)
    len(known)  # raises where there is none
    return known


@store.command("list", epilog="Example:  foveate store list photos.fov --where \"taken > '2026-01-01'\" --count 20")
def list_images(
    path: StorePath,
    where: Where = None,
    count: Annotated[int, typer.Option("--count", "-k", min=1, help="Images at most.")] = 50,
    page: Annotated[int, typer.Option(min=1, help="From 1: the next so many images.")] = 1,
) -> None:
    """List images: names, sizes, when they were taken, tags, words."""
    known = open_store(path)
    found = known.page((page - 1) * count, count, where=where)
    rows = [
        (
            printable(image.name), f"{image.width} x {image.height}",
            f"{image.taken:%Y-%m-%d %H:%M}" if image.taken else "", ", ".join(map(printable, image.tags)),
            shorten(image.words or ""), *(shorten(str(value)) for value in image.columns.values()),
        )
        for image in found.images
    ]  # fmt: skip
    title = f"{format_count(found.total, 'image')}{' of ' + str(len(known)) if where else ''}"
    title += f", {len(rows)} of them here" if len(rows) < found.total else ""
    own = found.images[0].columns if found.images else ()
    print_table(title, ("image", "size", "taken", "tags", "words", *own), rows)
    images = [
        {
            "id": image.id, "name": image.name, "path": image.path, "height": image.height, "width": image.width,
            "taken": image.taken and image.taken.isoformat(), "tags": list(image.tags), "words": image.words,
            "columns": {n: v if isinstance(v, str | int | float | None) else str(v) for n, v in image.columns.items()},
        }
        for image in found.images
    ]  # fmt: skip
    print_json(store=path, total=found.total, images=images)


@store.command(epilog="Example:  foveate store remove photos.fov holiday/blurred.jpg")
def remove(path: StorePath, names: Names = None, where: Where = None) -> None:
    """Forget images. 'foveate store restore' takes it back, until images are added or the store is compacted."""
    known = open_store(path)
    before = known.dataset.version
    gone = known.remove(_chosen(known, names, where))
    back = f"; to take it back: foveate store restore {path} {before}" if gone else ""
    typer.echo(f"{format_count(gone, 'image')} removed, {len(known)} left{back}")
    print_json(store=path, removed=gone, images=len(known), before=before)


@store.command(epilog="Example:  foveate store tag photos.fov rex.jpg --add dog --drop cat")
def tag(
    path: StorePath,
    names: Names = None,
    add: Annotated[list[str] | None, typer.Option(help="A tag; again for more.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A tag that goes; again for more.")] = None,
    where: Where = None,
) -> None:
    """Tag images: 'foveate search --where "tag = 'dog'"' then asks these alone."""
    from foveate.core.errors import OptionError

    if not add and not drop:
        raise OptionError("neither --add nor --drop", expected="a tag", fix=f"foveate store tag {path} NAME --add dog")
    known = open_store(path)
    changed = known.tag(_chosen(known, names, where), add or (), drop or ())
    typer.echo(f"{format_count(changed, 'image')} changed")
    print_json(store=path, changed=changed)


def _chosen(known: Store, names: list[str] | None, where: str | None) -> list[str]:
    """Names as they are, or ids of the images for which an SQL condition holds."""
    from foveate.core.errors import OptionError

    if bool(names) == (where is not None):
        raise OptionError(
            "names and --where" if names else "no image", expected="names of images, or --where SQL",
            fix=f"'foveate store list {known.path}' shows names",
        )  # fmt: skip
    return names or [image.id for image in known.page(0, len(known), where=where).images]


@store.command(epilog="Example:  foveate store verify photos.fov")
def verify(path: StorePath) -> None:
    """Read every byte of a store and compare it with its checksum. The exit status is 1 if something is wrong."""
    from foveate.store.upkeep import UNREAD

    known = open_store(path)
    with counting(f"reading {path}", len(known)) as progress:
        found = known.verify(progress=progress)
    verdict, gone = "every byte is as it was written", any(name == UNREAD for name, _, _ in found.damaged)
    if not found.ok:
        then = "searches or lists stop until these are left out" if gone else "all others are served as before"
        verdict = f"{format_count(len(found.damaged), 'image')} of {found.images} damaged; {then}"
    each = Counter((printable(name), why) for name, _, why in found.damaged)
    damaged = [("damaged", f"{name if n == 1 else format_count(n, 'image')}: {why}") for (name, why), n in each.items()]
    more, damaged = len(damaged) - SHOWN, damaged[:SHOWN]
    rows = [
        ("images", f"{found.images}, {found.nbytes / 1e6:.1f} MB"),
        *damaged,
        *([("damaged", f"and {more} more, with --json")] if more > 0 else []),
        ("verdict", verdict),
    ]
    print_table(path, ("what", "value"), rows)
    if not found.ok:
        do = (
            f"go on without them (foveate store restore {path})"
            if gone
            else f"remove them (foveate store remove {path} NAME)"
        )
        typer.echo(f"What to do: {do}, and index their files again")
    damage = [{"name": name, "id": id, "why": why} for name, id, why in found.damaged]
    print_json(store=path, ok=found.ok, images=found.images, bytes=found.nbytes, damaged=damage)
    if not found.ok:
        raise typer.Exit(1)


@store.command(epilog="Example:  foveate store compact photos.fov --keep 0")
def compact(
    path: StorePath,
    keep: Annotated[float, typer.Option(help="Days: versions younger than that can still be restored.", min=0)] = 7,
) -> None:
    """Join small pieces, and free the bytes of removed images and old versions."""
    known = open_store(path)
    with waiting(f"rewriting {path}"):
        freed = known.compact(timedelta(days=keep))
    stats = known.stats()
    pieces = format_count(stats["fragments"], "piece")
    typer.echo(f"{freed / 1e6:.1f} MB freed; {format_count(stats['images'], 'image')} in {pieces}")
    print_json(freed=freed, **stats)


@store.command(epilog="Example:  foveate store versions photos.fov")
def versions(path: StorePath) -> None:
    """List the versions of a store: each commit made one."""
    found = open_store(path).versions()
    rows = [(str(one.number), f"{one.made:%Y-%m-%d %H:%M:%S}", str(one.images)) for one in found]
    print_table(path, ("version", "made", "images"), rows)
    each = [{"version": one.number, "made": one.made.isoformat(), "images": one.images} for one in found]
    print_json(store=path, versions=each)


@store.command(epilog="Example:  foveate store restore photos.fov 12")
def restore(
    path: StorePath,
    version: Annotated[
        int | None,
        typer.Argument(
            help="A number that 'foveate store versions' lists [default: the last that can be read, without the images "
            "whose files cannot]."
        ),
    ] = None,
) -> None:
    """Make an earlier version the newest one. Those between stay, so this can be taken back, too.

    Where the newest cannot be read, its manifest is put aside.
    """
    from foveate.core.errors import StoreDamagedError
    from foveate.store.dataset import set_aside

    gone = dict[int, str]()
    try:
        known = open_store(path)
    except StoreDamagedError:
        if not (gone := set_aside(path)):
            raise
        for number, aside in gone.items():
            back = f"to take it back: mv '{aside}' '{aside.removesuffix('.damaged')}'"
            typer.echo(f"version {number} cannot be read and was put aside; {back}")
        known = open_store(path)
    before, images = known.dataset.version, len(known)
    if version is None and not gone:
        known.restore()
        left, said = images - len(known), "that cannot be read left out: index their files again"
        typer.echo(f"{format_count(left, 'image')} {said}; {len(known)} are in the store")
        print_json(store=path, restored=known.dataset.version, before=before, images=len(known), aside=[])
        return
    version = before if version is None else version
    if version != before:
        known.restore(version)
    last = max((number for number in gone if number <= before + FAR), default=0)
    while known.dataset.version <= last:  # no number is used twice: who has the store open goes by it
        known.restore(version)
    back = f"; to take it back: foveate store restore {path} {before}" if version != before else ""
    typer.echo(f"{format_count(len(known), 'image')}, as in version {version}{back}")
    print_json(store=path, restored=version, before=before, images=len(known), aside=list(gone.values()))


@store.command(
    epilog="\b\nExamples:\n  foveate store export photos.fov photos.parquet\n  foveate store export photos.fov textures"
)
def export(
    path: StorePath,
    output: Annotated[Path, typer.Argument(help="A file NAME.parquet, or a folder for a texture file of each image.")],
    where: Where = None,
) -> None:
    """Write images for other programs: a Parquet file of all columns, or texture files."""
    known = open_store(path)
    with counting(f"writing {output}") as progress:
        count = known.export(output, where=where, progress=progress)
    typer.echo(f"{format_count(count, 'image')} in {output}")
    print_json(store=path, output=str(output), images=count)


@store.command(epilog="Example:  foveate store upgrade old.fov photos.fov")
def upgrade(
    old: Annotated[Path, typer.Argument(help="A store of an earlier release; it stays as it is.")],
    new: Annotated[str, typer.Argument(help="Where the new one goes.")],
) -> None:
    """Copy a store of an earlier release into a new one, without its images. The exit status is 1 if some are damaged.

    Interrupted, the same command goes on.
    """
    from foveate.store.upgrade import copy_store

    with counting(f"copying {old}") as progress:
        found = copy_store(old, new, progress=progress)
    if found.damaged:
        rows = [(printable(name), why) for name, why in found.damaged[:SHOWN]]
        print_table(f"left out: {len(found.damaged)}, to be indexed again", ("what", "why"), rows)
    typer.echo(f"{format_count(found.images, 'image')} in {new}; to compare every byte: foveate store verify {new}")
    left = [{"name": name, "why": why} for name, why in found.damaged]
    print_json(store=new, images=found.images, damaged=left)
    if found.damaged:
        raise typer.Exit(1)


@store.command(epilog="Example:  foveate store stats photos.fov")
def stats(path: StorePath) -> None:
    """Images, bytes, encoder and basis of a store."""
    known = open_store(path).stats()
    shown = known | {
        "bytes": f"{known['bytes'] / 1e6:.1f} MB",
        "bytes_an_image": f"{known['bytes_an_image'] / 1e3:.1f} KB",
    }
    rows = [(name.replace("_", " "), "-" if value in (None, "") else str(value)) for name, value in shown.items()]
    print_table(path, ("what", "value"), rows)
    print_json(**known)


def printable(text: str) -> str:
    """A text out of a store for the table: what a hostile one took for letters may be anything."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def shorten(text: str) -> str:
    """The beginning of a text, for the table."""
    shown = printable(text)
    return shown if len(shown) <= WIDEST else shown[: WIDEST - 1] + "…"
