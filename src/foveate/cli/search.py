"""`foveate search`: images out of a store, by what is in them and by what is written there."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli import terminal
from foveate.cli.store import StorePath, Where, open_store, shorten

if TYPE_CHECKING:
    from foveate.store import Store
    from foveate.store.hits import Hit
    from foveate.texture.texture import Texture


def search(
    path: StorePath,
    query: Annotated[
        list[str] | None,
        typer.Argument(
            help="Questions or noun phrases, each in quotes. What is in quotes inside of one must be written there, "
            "in a store that was indexed with --read: 'receipt \"Tan Woon\"'. None with --like."
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-k", min=1, help="Images at most.")] = 12,
    page: Annotated[int, typer.Option(min=1, help="From 1: the next best so many.")] = 1,
    where: Where = None,
    like: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Find images like this one: a file, or a name in the store.")
    ] = None,
    box: Annotated[
        str | None, typer.Option(metavar="Y0,X0,Y1,X1", help="With --like: like this part of it, in pixels.")
    ] = None,
    encoder: terminal.EncoderName = None,
    words: terminal.WordsFile = None,
    out: terminal.Out = Path("foveate-out"),
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="No pictures.")] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare all images' vectors, where a large store asks an index of them.")
    ] = False,
    rerank: Annotated[
        int | None,
        typer.Option(
            help="Images that are compared exactly; more find more [default: until 75 in a row bring nothing, at most "
            "320, or 16 for each that is wanted]."
        ),
    ] = None,
) -> None:
    """Find images in a store by what is in them, or written there: a table, a contact sheet with heat, JSON."""
    from foveate.core.errors import OptionError, QueryError, ReadingWarning
    from foveate.core.files import make_folder

    example = 'foveate index FOLDER -o photos.fov, then foveate search photos.fov "a dog"'
    terminal.refuse_files(path, query or [], "store", example)
    offset = (page - 1) * count
    if (like is None) != bool(query):
        received = "a question and --like" if like else "no question"
        raise OptionError(received, expected="a question, or --like IMAGE", fix='foveate search photos.fov "a dog"')
    if box is not None and like is None:
        raise OptionError("--box without --like", expected="an image that the box is in", fix="add --like IMAGE")
    known = open_store(path, encoder)
    how: dict[str, Any] = {"exact": exact, "where": where, **terminal.load_words(words)}
    if box is not None:
        how["box"] = _parse_box(box)
    with terminal.waiting("searching", encoder), terminal.warnings_aside(ReadingWarning) as notes:
        asked: list[Any] = list(query or ()) if like is None else [_texture(known, like, encoder)]
        with suppress(QueryError):  # of the first question alone: the others may be asked
            known.search(asked[0], 1, **how)  # reads vectors and the encoder: not part of a search's time
        answers, refused = terminal.answer_each(
            asked, lambda each: _timed(known, each, count, how | {"offset": offset, "rerank": rerank})
        )
        if not no_sheet:
            make_folder(out)  # only now, when all questions could be asked: a bad one leaves no files behind
        records = [_record(text, hits, seconds, None if no_sheet else out) for text, hits, seconds in answers]
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    for record in records:
        _show(record, offset, like is not None)
        if not record["hits"]:
            typer.echo(_why_nothing(known, where, page))
    terminal.print_json(store=path, images=len(known), offset=offset, notes=notes, queries=records, refused=refused)
    if refused:
        raise typer.Exit(1)


def _texture(known: Store, image: str, encoder: str | None) -> Texture:
    """An image of the store, or a file as the store has its images."""
    from foveate.encoders.load import match_encoder
    from foveate.pipeline import encode

    if image in known:
        return known[image]
    made = known.identity
    assert made is not None
    return encode(image, encoder=match_encoder(made.encoder, encoder), long_side=made.long_side, channels="fast")


def _parse_box(text: str) -> list[float]:
    try:
        y0, x0, y1, x1 = map(float, text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--box {text!r} is not Y0,X0,Y1,X1: four numbers with commas between") from None
    return [y0, x0, y1, x1]


def _timed(known: Store, asked: str | Texture, count: int, how: dict[str, Any]) -> tuple[str, list[Hit], float]:
    start = time.perf_counter()
    hits = known.search(asked, count, **how)
    text = asked if isinstance(asked, str) else f"like {asked.name}"
    if "box" in how:
        text += " at " + ", ".join(f"{side:g}" for side in how["box"])
    return text, hits, time.perf_counter() - start


def _record(text: str, hits: list[Hit], seconds: float, out: Path | None) -> dict[str, Any]:
    from foveate.viz import search_sheet

    sheet = None if out is None or not hits else out / f"search--{terminal.make_slug(text)}.png"
    if sheet is not None:
        terminal.write_picture(sheet, search_sheet(hits, text))
    found = [
        {"id": hit.id, "path": hit.path, "name": hit.name, "score": terminal.round_confidence(hit.score)}
        | {"detected": hit.detected, "words": _words(hit)}
        for hit in hits
    ]
    return {
        "query": text,
        "looked_for": {word: other for hit in hits for word, other in hit.looked_for.items()},
        "unknown": list(dict.fromkeys(word for hit in hits for word in hit.unknown)),
        "seconds": round(seconds, 5),
        "sheet": None if sheet is None else str(sheet),
        "hits": found,
    }


def _show(record: dict[str, Any], offset: int, like: bool) -> None:
    """like: scores say how alike images are, and not whether a thing is there."""
    rows = [
        (
            str(place),
            terminal.format_confidence(hit["score"], like or hit["detected"], 3),
            hit["path"],
            _written(hit["words"]),
        )
        for place, hit in enumerate(record["hits"], offset + 1)
    ]
    columns = 4 if any(row[3] for row in rows) else 3
    asked = terminal.add_understood(f"“{record['query']}”", record)
    title = f"{asked}  {record['seconds'] * 1e3:.0f} ms"
    terminal.print_table(title, ("", "score", "image", "written there")[:columns], [row[:columns] for row in rows])
    if record["sheet"]:
        terminal.print_files("sheet", [record["sheet"]])


def _why_nothing(known: Store, where: str | None, page: int) -> str:
    if not len(known):
        return "nothing: the store has no images"
    if where is not None and not known.page(0, 0, where=where).total:
        return f"nothing: --where leaves none of {terminal.format_count(len(known), 'image')}"
    return f"nothing on page {page}: that many are not found" if page > 1 else "nothing: no image has that written"


def _words(hit: Hit) -> list[dict[str, Any]]:
    from foveate.core.errors import StoreDamagedError, StoreKeyError

    try:
        return [{"text": word.text, "box": terminal.round_box(word.box)} for word in hit.words]
    except (StoreKeyError, StoreDamagedError):  # removed or damaged since it was found
        return []


def _written(words: list[dict[str, Any]]) -> str:
    return shorten(" ".join(word["text"] for word in words))
