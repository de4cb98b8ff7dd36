"""`foveate index`: images into a store."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from foveate.cli import terminal
from foveate.core.options import ENCODE, STREAM

SHOWN = 10  # bad images in the table; the JSON has all


def index(
    images: Annotated[
        list[Path],
        typer.Argument(help="Folders of images, image files, and lists: a path a line, in a .txt file or -, stdin."),
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--out",
            "--output",
            metavar="PATH",
            help="The store: a folder, photos.fov say, or s3://bucket/photos.fov.",
        ),
    ],
    encoder: terminal.EncoderName = None,
    workers: terminal.Workers = None,
    rank: Annotated[int | None, typer.Option(help=STREAM["rank"].help)] = None,
    shared: Annotated[bool, typer.Option("--shared", help="One basis for the cells of all images, rank 64.")] = False,
    basis: Annotated[
        Path | None, typer.Option(help="From 'foveate basis fit', for the cells of all images [default: each its own].")
    ] = None,
    long_side: terminal.LongSide = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A column of yours for the new images: album=summer, rating=5, mine=true; again for more. "
            "'foveate search --where' asks for it.",
        ),
    ] = None,
    read: Annotated[
        bool,
        typer.Option(
            "--read",
            help=f"{ENCODE['read'].about} 'foveate search' then finds that, too. Of a store that has images without "
            "their words, these are read; one that is read goes on so without this option.",
        ),
    ] = False,
    reader: terminal.ReaderName = None,
    looks: Annotated[
        bool, typer.Option("--looks", help="Keep what taught words are made of: 'foveate search --words' needs it.")
    ] = False,
    engine: terminal.EngineName = "local",
    gpus: terminal.Gpus = 0.0,
    address: terminal.Address = None,
    device: terminal.Where = None,
) -> None:
    """Index images, once: afterwards 'foveate search' finds things in them."""
    terminal.use_one_thread()
    from foveate.store import Store

    columns = dict(parse_column(text) for text in column or ())
    cells: Any = "shared" if shared else None
    if basis is not None:
        if shared:
            raise typer.BadParameter("--shared fits a basis, --basis gives one: pass one of them")
        from foveate.store.shared_basis import FittedBasis

        cells = FittedBasis.load(basis).basis(rank)
    known = Store(output, encoder=encoder, basis=cells, rank=rank, long_side=long_side, looks=looks)
    several, by = terminal.make_engine(engine, workers, gpus, address)
    elsewhere = None if engine == "local" else by  # here, a file whose content is known is not encoded
    reads = read or reader is not None or bool(known.identity and known.identity.reader)
    with terminal.counting("reading and indexing" if reads else "indexing") as progress:
        try:
            added = known.add(
                images, workers=several, engine=elsewhere, read=reader or read or None, device=device, columns=columns,
                progress=lambda step: progress(step.done, step.total, f"{step.known + step.committed} safe"),
            )  # fmt: skip
        except KeyboardInterrupt:
            done = 0 if known.identity is None else len(known)
            kept = f"{terminal.format_count(done, 'image')} {'is' if done == 1 else 'are'} in the store"
            typer.echo(f"interrupted; {kept}, and the same command goes on", err=True)
            raise
    stats = known.stats()
    if added.bad:
        rows = [(path, why) for path, why in added.bad[:SHOWN]]
        more = f", {len(added.bad) - SHOWN} more with --json" if len(added.bad) > SHOWN else ""
        terminal.print_table(f"left out: {terminal.format_count(len(added.bad), 'file')}{more}", ("file", "why"), rows)
    count = terminal.format_count
    rate = f" in {added.seconds:.1f} s, {added.added / max(added.seconds, 1e-3):.1f} images a second"
    passed = f"{count(len(added.stores), 'store')}: {''.join(added.stores[:1])}{', ...' if added.stores[1:] else ''}"
    facts = [
        ("added", count(added.added, "image") + (rate if added.added else "")),
        *([("read", f"{added.read}; {stats['read']} of the store's images, by {stats['reader']}")] if reads else []),
        *([("already there", count(added.known, "file"))] if added.known else []),
        *([("passed over", passed)] if added.stores else []),
        *([("copies", f"{count(added.linked, 'file')} of the same content as others")] if added.linked else []),
        ("in the store", f"{count(stats['images'], 'image')}, {stats['bytes'] / 1e6:.1f} MB"),
        ("an image takes", f"{stats['bytes_an_image'] / 1e3:.0f} KB on average"),
    ]
    terminal.print_table(output, ("what", "value"), facts)
    terminal.print_json(
        store=output, added=added.added, newly_read=added.read, linked=added.linked, known=added.known,
        stores=added.stores, bad=[{"path": path, "why": why} for path, why in added.bad],
        seconds=round(added.seconds, 3),
        **{name: value for name, value in stats.items() if name != "store"},
    )  # fmt: skip


def parse_column(text: str) -> tuple[str, str | float | bool]:
    """'rating=5' -> ("rating", 5): numbers, true and false as such, all else as text. Raises typer.BadParameter.

    >>> parse_column("album=summer of 69"), parse_column("rating=4.5"), parse_column("mine=true")
    (('album', 'summer of 69'), ('rating', 4.5), ('mine', True))
    """
    name, given, value = text.partition("=")
    if not given or not name.strip().isidentifier():
        raise typer.BadParameter(f"--column {text!r} is not NAME=VALUE, with a NAME of letters, digits and _")
    if value.lower() in ("true", "false"):
        return name.strip(), value.lower() == "true"
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        if math.isfinite(number):
            return name.strip(), number
    return name.strip(), value
