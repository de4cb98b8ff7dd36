"""`foveate zoom`: small things in a large image, of which only the promising tiles are encoded."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from foveate.cli import terminal

AT_ONCE = "the survey and earlier questions had looked at everything"


def zoom(
    image: Annotated[Path, typer.Argument(help="A large image: tiled TIFF, JPEG, PNG, ...")],
    query: terminal.Questions,
    share: Annotated[
        float,
        typer.Option(
            help="Parts that a question may encode, as a share of the tiles, 0 to 1. It ends before, when it is found "
            "or all was seen at half size; 1: until it is found, or all was looked at."
        ),
    ] = 0.5,
    sure: Annotated[float, typer.Option(help="Confidence from which it counts as found, 0.01 to 1.")] = 0.5,
    encoder: terminal.EncoderName = None,
    words: terminal.WordsFile = None,
    out: terminal.Out = Path("foveate-out"),
    folder: Annotated[
        Path | None,
        typer.Option(
            "--scene",
            metavar="FOLDER",
            help="Keeps what was encoded: a scene of this image in it is read, and written back at the end. "
            "A question that is asked again goes on where it stopped.",
        ),
    ] = None,
) -> None:
    """Find small things in a large image: encode only the parts that a question makes promising, until it is found."""
    from foveate.core.checks import check_number
    from foveate.core.files import make_folder
    from foveate.encoders.load import match_encoder, resolve_encoder
    from foveate.language.query import prepare
    from foveate.tiles.file import check_folder, is_scene, load, save
    from foveate.tiles.search import LEAST_SURE, survey

    terminal.refuse_files(image, query)
    check_number("share", share)
    check_number("sure", sure, LEAST_SURE)
    start = time.perf_counter()
    known = folder if folder is not None and is_scene(folder) else None
    if folder is not None:
        make_folder(check_folder(folder))  # better now than after the work
    with terminal.waiting(f"surveying {image}" if known is None else f"reading {known}", encoder):
        taught = terminal.load_words(words).get("words")
        network = encoder if taught is None else taught.of(resolve_encoder(encoder or "nano"))
        scene = survey(image, encoder=network or "nano") if known is None else load(known, image, encoder=network)
    seconds = time.perf_counter() - start
    asked = match_encoder(scene.overview.encoder, None if scene.encoder == "nano" else scene.encoder)
    prepared, refused = terminal.answer_each(
        query, lambda text: prepare(asked, text)
    )  # before the first one is looked for
    make_folder(out)
    records = list[dict[str, Any]]()
    try:
        for text in (one.text for one in prepared):
            scene, record = _look_closer(scene, text, share, sure, out, image)
            records.append(record)
    finally:
        if folder is not None:
            save(scene, folder)  # also what was encoded before something went wrong
    rows = [
        (terminal.add_understood(r["query"], r), _answer(r), "y {:.0f}, x {:.0f}".format(*r["peak"]),
         _encoded(r), f"{r['seconds']:.1f} s")
        for r in records
    ]  # fmt: skip
    height, width = scene.raster.size
    title = f"{image}  {height} x {width} px, {'surveyed' if known is None else 'read'} in {seconds:.1f} s"
    terminal.print_table(title, ("query", "answer", "where", "encoded, of tiles", "time"), rows)
    terminal.print_files("pictures", [record["png"] for record in records])
    terminal.print_json(
        image=str(image),
        size=[height, width],
        survey_seconds=round(seconds, 3),
        scene=None if folder is None else str(folder),
        queries=records,
        refused=refused,
    )
    if refused:
        raise typer.Exit(1)


def _answer(record: dict[str, Any]) -> str:
    from foveate.relevance.confidence import in_digits

    confidence = in_digits(record["confidence"], at=record["sure"])
    looked = f"{math.floor(100 * record['seen'])} % of the image looked at, at half size or more"
    if record["detected"]:
        return f"found, {confidence}; {looked}"
    if record["exhausted"]:
        return f"not found, {confidence}; {AT_ONCE if not record['encoded'] else 'everything was looked at'}"
    if record["seen"] == 1:
        return f"not found at half size, {confidence}; --share 1 looks at everything"
    return f"not found so far, {confidence}; {looked}"


def _encoded(record: dict[str, Any]) -> str:
    seen = not record["encoded"] and record["exhausted"]
    return "none was left" if seen else f"{record['encoded']} of {record['tiles']}"


def _look_closer(scene: Any, query: str, share: float, sure: float, out: Path, image: Path) -> tuple[Any, Any]:
    from foveate.tiles.search import look, look_through
    from foveate.viz import look_page

    tiles = scene.counts[0] * scene.counts[1]
    with terminal.counting(f"looking for {query}", max(1, int(tiles * share))) as progress:
        if share == 1:
            found = look(scene, query, share=None, sure=sure, progress=lambda n, _: progress(n))
        else:
            found = look_through(scene, query, most=share, sure=sure, progress=lambda n, _: progress(n))
    scene = found.scene
    record = {
        "query": query,
        "looked_for": dict(found.relevance.looked_for),
        "unknown": list(found.relevance.unknown),
        "confidence": terminal.round_confidence(found.relevance.confidence, at=sure),
        "detected": found.detected,
        "sure": sure,
        "peak": terminal.round_box(found.peak),
        "looked": [list(box) for box in found.boxes],
        "encoded": found.encoded,
        "tiles": tiles,
        "seen": round(scene.seen, 4),
        "exhausted": found.exhausted,
        "seconds": round(found.seconds, 3),
    }
    path = out / f"{Path(scene.raster.name).stem}--{terminal.make_slug(query)}--zoom"
    identity = {"source": str(image.absolute()), "query": query}
    return scene, terminal.write_result(path, identity, record, look_page(found))
