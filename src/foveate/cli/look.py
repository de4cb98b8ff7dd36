"""`foveate look` and `foveate demo`: questions about an image; a picture and a JSON file for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli import terminal
from foveate.cli.encode import (
    TEXTURE,
    describe_texture,
    describe_words,
    hints_aside,
    load_or_encode,
    print_hints,
    who_reads,
)

if TYPE_CHECKING:
    from foveate.relevance.value import Relevance
    from foveate.texture.texture import Texture

Pictures = Annotated[
    list[str] | None,
    typer.Option(
        "--picture",
        help="More panels in the picture: homunculus (area in proportion to tokens), or regions (of 64 to 400 tokens, "
        "as many as the budget); again for both.",
    ),
]
WITHOUT_READER = (
    'Nothing was read: "the writing on the bus" looks for the bus; with the extra [text] it finds the words themselves.'
)
DEMO = (
    ("child_with_broccoli.jpg", ("broccoli", "the child's hand", "the child's face", "a dog")),
    ("yellow_bus.jpg", ("the bus", "the windows of the bus", "the blue bus", "the writing on the bus")),
    ("cake_and_coffee.jpg", ("the cake", "an espresso", "the cup right of the cake", "the cup left of the cake")),
)


def look(
    image: Annotated[
        Path, typer.Argument(help="An image, a PDF, or a texture written by 'foveate encode' (.safetensors).")
    ],
    query: terminal.Questions,
    budget: terminal.Budget = "auto",
    encoder: terminal.EncoderName = None,
    out: terminal.Out = Path("foveate-out"),
    floor: terminal.Floor = None,
    policy: terminal.PolicyOption = None,
    long_side: terminal.LongSideOrNative = None,
    read: terminal.ReadFlag = None,
    reader: terminal.ReaderName = None,
    page: terminal.PageNumber = None,
    picture: Pictures = None,
    preset: terminal.PresetOption = None,
    words: terminal.WordsFile = None,
) -> None:
    """Ask an image questions: a heat map, boxes and K kept cells for each (docs/pictures.md)."""
    terminal.refuse_files(image, query)
    reading = who_reads(read, reader)
    how = (encoder, floor, long_side, reading, page, picture or (), preset, words, policy)
    record, _ = _look_at(image, query, budget, out, *how)
    terminal.print_json(**record)
    if record["refused"]:
        raise typer.Exit(1)


def demo(out: terminal.Out = Path("demo"), budget: terminal.Budget = "auto") -> None:
    """Ask three bundled photographs, offline: things, parts, a place, a word that is written there, a name that only
    the classifier knows, and what is not there, or not so. One page of all (demo.png), and a picture of each question.
    """
    from importlib.util import find_spec

    from foveate.viz import overview

    reads = find_spec("rapidocr") is not None
    photos = [(terminal.PHOTOS / name, queries) for name, queries in DEMO]
    looked = [_look_at(photo, queries, budget, out, read=reads, preset="static") for photo, queries in photos]
    records, asked = [record for record, _ in looked], [relevances for _, relevances in looked]
    rows = [(texture, some) for some in asked if (texture := some[0].texture) is not None]
    path, count = out / "demo.png", sum(map(len, asked))
    note = "" if reads else WITHOUT_READER
    title = f"{len(rows)} photographs, each encoded once; {count} questions"
    terminal.write_picture(path, overview(rows, title=title, note=note))
    terminal.print_files("all on one page", [str(path)])
    terminal.print_json(demo=records, page=str(path))


def _look_at(
    image: Path, queries: list[str] | tuple[str, ...], budget: Any, out: Path, encoder: str | None = None,
    floor: float | None = None, long_side: Any = None, read: bool | str | None = None, page: int | None = None,
    pictures: Sequence[str] = (), preset: str | None = None, taught: Sequence[Path] | None = None, policy: Any = None,
) -> tuple[dict[str, Any], list[Relevance]]:  # fmt: skip
    """Print and write the results of all queries -> what `foveate look` prints as JSON; the relevances.

    All are scored and drawn before anything is written. One that cannot be asked is told, and the others are answered.
    """
    if pictures:
        from foveate.core.checks import check_choice
        from foveate.viz import PICTURES

        for name in pictures:
            check_choice("--picture", name, PICTURES)
    known = terminal.load_words(taught)
    with hints_aside() as hints:  # the network is loaded first, and beside it what is imported below
        texture, seconds = load_or_encode(image, encoder, long_side, read=read, page=page, preset=preset)
    from foveate.core.files import make_folder
    from foveate.pipeline import allocate, score
    from foveate.viz import question_page

    encoder = encoder or (None if image.suffix.lower() == TEXTURE else "nano")
    score(texture, "a dog", encoder=encoder)  # loads the encoder of a texture: no part of a question's time

    def answer(query: str) -> tuple[Relevance, Any, float, Any]:
        start = time.perf_counter()
        relevance = score(texture, query, encoder=encoder, **known)
        kept = allocate(relevance, budget, floor=floor, policy=policy)
        seconds_each = time.perf_counter() - start
        return relevance, kept, seconds_each, question_page(texture, relevance, kept, pictures)

    results, refused = terminal.answer_each(queries, answer)
    make_folder(out)
    records = [_write(texture, *result, out, str(image.absolute())) for result in results]
    said = [record["answer"] for record in records]
    rows = [
        (r["query"], _looked_for(r), *([words] if any(said) else []),
         terminal.format_confidence(r["confidence"], r["detected"]),
         " ".join(f"{side:.0f}" for box in r["boxes"][:1] for side in box), str(r["budget"]),
         f"{r['score_seconds'] * 1e3:.1f} ms")
        for r, words in zip(records, said, strict=True)
    ]  # fmt: skip
    grid = texture.grid
    title = f"{texture.name}  {grid.h} x {grid.w} = {grid.count} cells, {texture.encoder.name}, {seconds * 1e3:.0f} ms"
    if texture.preset is not None:
        title += f", preset {texture.preset}"
    if texture.words is not None:
        title += f", {describe_words(texture.words)}"
    words = ["words found"] if any(said) else []
    terminal.print_table(title, ("query", "looks for", *words, "confidence", "box y0 x0 y1 x1", "kept", "time"), rows)
    terminal.print_files("pictures", [record["png"] for record in records])
    print_hints(hints, *([] if read is False else _unread(texture, queries, records, image)))
    record = describe_texture(image, texture, seconds) | {"queries": records, "refused": refused}
    return record, [relevance for relevance, *_ in results]


def _looked_for(record: dict[str, Any]) -> str:
    phrases = terminal.add_understood(" + ".join(record["phrases"]), record)
    return phrases + "".join(f", not {phrase}" for phrase in record["ignored"])


def _unread(texture: Texture, queries: Sequence[str], records: list[dict[str, Any]], image: Path) -> list[str]:
    from foveate.answers.question import asks_for_writing, read_question

    unread = {record["query"]: record["unread"] for record in records}  # the others were refused: "who is it from?"
    asked = next((q for q in queries if unread.get(q, asks_for_writing(q) or bool(read_question(q).types))), None)
    if asked is None or texture.words is not None:
        return []
    where = "foveate encode IMAGE --read" if image.suffix.lower() == TEXTURE else "--read"
    return [
        f'"{asked}" asks for what is written, and this image was not read\n  {where} reads it, with the extra [text]'
    ]


def _write(
    texture: Texture, relevance: Any, kept: Any, seconds: float, picture: Any, out: Path, source: str
) -> dict[str, Any]:
    from foveate.relevance.written import is_unread

    record = {
        "query": relevance.query,
        "phrases": list(relevance.parts),
        "confidences": {phrase: terminal.round_confidence(value) for phrase, value in relevance.confidences.items()},
        "ignored": list(relevance.ignored),
        "looked_for": dict(relevance.looked_for),
        "unknown": list(relevance.unknown),
        "answer": relevance.answer,
        "unread": is_unread(relevance),
        "words": [
            {"text": word.text, "box": terminal.round_box(word.box), "because": word.because}
            for word in relevance.words
        ],
        "budget": len(kept),
        "indices": kept.indices.tolist(),
        "confidence": terminal.round_confidence(relevance.confidence),
        "detected": relevance.detected,
        "boxes": [terminal.round_box(box) for box in relevance.boxes()],
        "score_seconds": round(seconds, 6),
    }
    return terminal.write_result(
        out / f"{Path(texture.name).stem}--{terminal.make_slug(relevance.query)}",
        {"source": source, "query": relevance.query, "budget": len(kept), "preset": relevance.preset},
        record,
        picture,
        image=texture.name,
        size=[texture.grid.height, texture.grid.width],
        grid=list(texture.grid.shape),
        encoder={"name": texture.encoder.name, "revision": texture.encoder.revision},
        scores=[round(float(s), 5) for s in kept.scores],
        map=[[round(float(v), 4) for v in row] for row in relevance.map],
    )
