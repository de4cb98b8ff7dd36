"""`foveate search`: images out of a store, by what is in them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from foveate.cli.results import make_slug, write_picture
from foveate.cli.store import StorePath, open_store
from foveate.cli.terminal import (
    EncoderName,
    Out,
    format_confidence,
    print_json,
    print_table,
    refuse_files,
    waiting,
)


def search(
    path: StorePath,
    query: Annotated[list[str], typer.Argument(help="Questions or noun phrases, each in quotes.")],
    count: Annotated[int, typer.Option("--count", "-k", help="Images at most.")] = 12,
    encoder: EncoderName = None,
    out: Out = Path("foveate-out"),
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="No pictures.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Scan all images, also after 'foveate store ann'.")] = False,
) -> None:
    """Find images in a store by what is in them: a table, a contact sheet with heat, JSON."""
    from foveate.core.files import make_folder
    from foveate.viz import draw_hits

    refuse_files(query, "store", 'foveate index FOLDER -o photos.fov, then foveate search photos.fov "a dog"')
    known = open_store(path, encoder)
    if not no_sheet:
        make_folder(out)
    records: list[dict[str, Any]] = []
    with waiting("searching", encoder):
        known.search(query[0], 1, exact=exact)  # reads vectors and the encoder: not part of a search's time
        for text in query:
            start = time.perf_counter()
            hits = known.search(text, count, exact=exact)
            seconds = time.perf_counter() - start
            sheet = None if no_sheet or not hits else out / f"search--{make_slug(text)}.png"
            if sheet is not None:
                write_picture(sheet, draw_hits(hits, text))
            found = [
                {"path": hit.path, "name": hit.name, "score": round(hit.score, 4), "detected": hit.detected}
                for hit in hits
            ]
            path_of_sheet = None if sheet is None else str(sheet)
            records.append({"query": text, "seconds": round(seconds, 5), "sheet": path_of_sheet, "hits": found})
    for record in records:
        rows = [
            (str(place), format_confidence(hit["score"], hit["detected"], 3), hit["path"])
            for place, hit in enumerate(record["hits"], 1)
        ]
        print_table(f"“{record['query']}”  {record['seconds'] * 1e3:.0f} ms", ("", "score", "image"), rows)
        if record["sheet"]:
            typer.echo(f"sheet: {record['sheet']}")
    print_json(store=str(path), images=len(known), queries=records)
