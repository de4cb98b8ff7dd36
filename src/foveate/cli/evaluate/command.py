"""`foveate evaluate`: how good is it on your own data?"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.terminal import EncoderName, LongSide, counting, print_json, print_table

if TYPE_CHECKING:
    from foveate.cli.evaluate.coco import Folder

evaluate = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Measure how good it is, on your own data.")
CocoData = Annotated[Path, typer.Option("--data", help="Folder with annotations.json (COCO) and its images.")]
COMPRESSED = 128  # images at most for the table of compression: it keeps the features of all of them


@evaluate.command("compression")
def evaluate_compression(
    data: CocoData,
    encoder: EncoderName = None,
    limit: Annotated[int, typer.Option(help="Images at most; their features are kept in memory.")] = COMPRESSED,
    long_side: LongSide = None,
) -> None:
    """Compressed against full maps, in five ways, one of them the seed documents'."""
    from foveate.cli.evaluate.coco import read_folder

    report = _compression(read_folder(data), encoder or "nano", limit, long_side)
    _show_compression(report)
    print_json(**report)


@evaluate.command("relevance")
def evaluate_relevance(
    data: CocoData,
    encoder: EncoderName = None,
    limit: Annotated[int, typer.Option(help="Images at most.")] = 100_000,
    long_side: LongSide = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for report.json, pairs.jsonl and cases.png; made if needed.")
    ] = Path("foveate-bench"),
) -> None:
    """Is the heat on the thing? Against COCO masks and baselines, with intervals and pictures."""
    from foveate.cli.evaluate.coco import read_folder
    from foveate.cli.evaluate.gallery import page
    from foveate.cli.evaluate.relevance import measure
    from foveate.core.files import make_folder, write_whole

    name, folder = encoder or "nano", read_folder(data)
    make_folder(out)  # before the minutes of work; and every result is written before anything is printed
    with counting("relevance", min(limit, len(folder.images))) as progress:
        report, pairs = measure(folder, name, limit, long_side, progress)
    write_whole(out / "pairs.jsonl", "".join(json.dumps(pair.record()) + "\n" for pair in pairs).encode())
    write_whole(out / "report.json", json.dumps(report, indent=1).encode())
    compression = _compression(folder, name, min(limit, COMPRESSED), long_side)
    report["compression"] = compression["rows"]
    write_whole(out / "report.json", json.dumps(report, indent=1).encode())
    picture = io.BytesIO()
    page(folder, name, pairs, long_side).save(picture, "PNG")
    write_whole(out / "cases.png", picture.getvalue())
    _show_relevance(name, report)
    _show_compression(compression)
    typer.echo(f"\npictures of the best, worst and random cases: {out / 'cases.png'}; each pair: {out / 'pairs.jsonl'}")
    print_json(**report)


@evaluate.command("search")
def evaluate_search(
    folders: Annotated[list[Path], typer.Argument(help="Folders of images, all the way down, or images.")],
    queries: Annotated[
        Path | None, typer.Option(help="Your own questions, a line each [default: nouns, see --questions].")
    ] = None,
    questions: Annotated[int, typer.Option(help="Without --queries: so many nouns, evenly from the 1,585.")] = 100,
    encoder: EncoderName = None,
    limit: Annotated[
        int | None, typer.Option(help="Images at most, evenly from all [default: all]; fewer are easier to search.")
    ] = None,
    long_side: LongSide = None,
) -> None:
    """Is the store's short list good enough for your images? Against ranking all of them exactly."""
    from foveate.cli.evaluate.search import COLUMNS, chosen, measure, questions_in, summary, usual_questions

    texts = usual_questions(questions) if queries is None else questions_in(queries)
    sources = chosen(folders, limit)
    with counting("search", 2 * len(sources)) as progress:
        report = measure(sources, encoder or "nano", texts, long_side, progress)
    print_table(report["title"], COLUMNS, [tuple(row["cells"]) for row in report["rows"]])
    for path, why in report["bad"]:
        typer.echo(f"{path}: {why}", err=True)
    typer.echo("\n" + summary(report))
    print_json(**report)


def _show_relevance(name: str, report: dict[str, Any]) -> None:
    from foveate.cli.evaluate.agreement import Agreement

    metrics = tuple(field.replace("_", " at ") + (" %" if "_" in field else "") for field in Agreement._fields)
    print_table(report["title"], ("map", *metrics), [tuple(row["cells"]) for row in report["rows"]])
    print_table(
        f"\n{name}, by the thing's share of the image: up to 1 %, up to 10 %, more",
        ("things", *metrics),
        [tuple(row["cells"]) for row in report["sizes"]],
    )
    presence = report["presence"]
    typer.echo(
        f"\nprecision of the right question over that of another thing in the image: {report['objectness']['text']}\n"
        f"presence AUROC of confidence, {presence['asked']} questions: {presence['text']}; present is True for "
        f"{presence['found_when_there']} of the things that are there and {presence['found_when_not']} of the others\n"
    )


def _compression(folder: Folder, encoder: str, limit: int, long_side: int | None) -> dict[str, Any]:
    from foveate.cli.evaluate.compression import measure

    with counting("compression", min(limit, len(folder.images))) as progress:
        return measure(folder, encoder, limit, long_side, progress)


def _show_compression(report: dict[str, Any]) -> None:
    from foveate.cli.evaluate.compression import WAYS

    print_table(report["title"], ("rank", *WAYS.values()), [tuple(row["cells"]) for row in report["rows"]])
