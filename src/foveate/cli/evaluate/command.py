"""`foveate evaluate`: how good and how fast it is, on the user's own data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.terminal import Device, Dtype, EncoderName, LongSide, Program, counting, print_json, print_table

if TYPE_CHECKING:
    from foveate.cli.evaluate.coco import Folder
    from foveate.cli.evaluate.questions import Questions
    from foveate.cli.evaluate.relevance import Pair

evaluate = Program(help="Measure how good it is, on your own data.")
CocoData = Annotated[Path, typer.Option("--data", help="Folder with annotations.json (COCO) and its images.")]
Labelled = Annotated[
    Path,
    typer.Option("--data", help="Folder with annotations.json (COCO) or queries.json (open questions) and its images."),
]
Images = Annotated[
    list[Path], typer.Option("--data", help="A folder of images, all the way down, or an image; again for more.")
]
Limit = Annotated[int, typer.Option(help="Images at most.")]
COMPRESSED = 128  # images at most for the table of compression: it keeps the features of all of them
SHOWN = 5  # refused questions at most that are printed

# Of a plan to time a model; `python -m benchmarks vlm` has the same.
Budgets = Annotated[str, typer.Option(help="Percents of the cells that the model gets, with commas between.")]
Modes = Annotated[str, typer.Option(help="drop: after the encoder. sparse: before it.")]
Batch = Annotated[str, typer.Option(help="Questions at once, all about one image.")]
New = Annotated[int, typer.Option(help="Tokens of an answer, exactly.")]
Repeats = Annotated[int, typer.Option(help="Measurements of each number.")]


@evaluate.command("relevance", epilog="Example:  foveate evaluate relevance --data FOLDER")
def evaluate_relevance(
    data: Labelled,
    encoder: EncoderName = None,
    limit: Limit = 100_000,
    long_side: LongSide = None,
    half: Annotated[
        str | None,
        typer.Option(help="A or B: one half of the images, by their names. Tune on one, report the other."),
    ] = None,
    read: Annotated[bool, typer.Option("--read", help="Read what is written first: seconds an image.")] = False,
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            help="Folder for report.json, pairs.jsonl, cases.png and curve.png (of names); made if needed.",
        ),
    ] = Path("foveate-bench"),
) -> None:
    """Is the heat on the thing? Against masks and baselines, with intervals and pictures (docs/evaluate.md)."""
    from foveate.cli.evaluate.coco import HALVES
    from foveate.core.checks import check_choice
    from foveate.core.errors import OptionError

    if half is not None:
        check_choice("--half", half, HALVES, fix="leave it out for all images")
    if (data / "queries.json").is_file():
        _evaluate_questions(data, encoder or "nano", limit, long_side, half, out, read)
    elif (data / "annotations.json").is_file():
        _evaluate_things(data, encoder or "nano", limit, long_side, half, out, read)
    else:
        raise OptionError(
            f"'{data}' has neither annotations.json nor queries.json",
            expected="a COCO-style folder (annotations.json), or one of open questions (queries.json), with its images",
            fix="pass --data FOLDER with one of them; docs/evaluate.md shows both",
        )


def _evaluate_things(
    data: Path, encoder: str, limit: int, long_side: int | None, half: str | None, out: Path, read: bool
) -> None:
    """The names of a COCO-style folder, its stuff where it has label masks, and compression."""
    from foveate.cli.evaluate.coco import read_folder
    from foveate.cli.evaluate.open import measure as measure_open
    from foveate.cli.evaluate.questions import read_stuff
    from foveate.cli.evaluate.relevance import draw_cases, measure
    from foveate.cli.results import write_picture
    from foveate.core.files import make_folder, write_whole
    from foveate.viz import curve

    folder = read_folder(data)
    folder = folder if half is None else folder.half(half)
    stuff = read_stuff(folder)
    make_folder(out)  # before the minutes of work; and every result is written before anything is printed
    with counting("relevance", min(limit, len(folder.images))) as progress:
        report, pairs = measure(folder, encoder, limit, long_side, progress, read=read)
    report["half"] = half
    write_whole(out / "pairs.jsonl", _lines(pairs))
    write_whole(out / "report.json", json.dumps(report, indent=1).encode())
    compression = _compress(folder, encoder, min(limit, COMPRESSED), long_side)
    report["compression"], report["compression_maps"] = compression["rows"], compression["maps"]
    if stuff is not None:
        with counting("stuff", min(limit, len(stuff.photographs))) as progress:
            report["stuff"], asked = measure_open(stuff, encoder, limit, long_side, progress, read=read)
        write_whole(out / "stuff.jsonl", _lines(asked))
    write_whole(out / "report.json", json.dumps(report, indent=1).encode())
    write_picture(out / "curve.png", curve(report))
    write_picture(out / "cases.png", draw_cases(folder, encoder, pairs, long_side, read=read))
    sizes = f"\n{encoder}, by the thing's share of the image: up to 1 %, up to 10 %, more"
    print_rows(report, ("map", *_metrics()))
    print_rows(report, ("things", *_metrics()), "sizes", sizes)
    kept = ("IoU, as many cells", "recall in 10 %", "precision in 10 %")
    print_rows(report, ("kept by", *kept), "kept", "\nkept cells beside the cells of true boxes")
    print_rows(report, ("things", *kept), "kept_sizes", f"\n{encoder}, by the thing's share of the image")
    presence = report["presence"]
    typer.echo(
        f"\nprecision of the right question over that of another thing in the image: {report['objectness']['text']}\n"
        f"AUROC of confidence, {presence['asked']} questions: {presence['text']}; detected: "
        f"{presence['detected_when_there']} of the things that are there and {presence['detected_when_not']} of the "
        "others\n"
    )
    if stuff is not None:
        _show_questions(report["stuff"], "stuff, from the label masks: ")
        typer.echo("")
    _show_compression(compression)
    _show_files(out)
    print_json(**report)


def _evaluate_questions(
    data: Path, encoder: str, limit: int, long_side: int | None, half: str | None, out: Path, read: bool
) -> None:
    """The open questions of a folder with queries.json."""
    from foveate.cli.evaluate.open import draw_cases, measure
    from foveate.cli.evaluate.questions import read_questions
    from foveate.cli.results import write_picture
    from foveate.core.files import make_folder, write_whole

    questions = read_questions(data)
    questions = questions if half is None else questions.half(half)
    make_folder(out)
    with counting("relevance", min(limit, len(questions.photographs))) as progress:
        report, asked = measure(questions, encoder, limit, long_side, progress, read=read)
    report["half"] = half
    write_whole(out / "pairs.jsonl", _lines(asked))
    write_whole(out / "report.json", json.dumps(report, indent=1).encode())
    write_picture(out / "cases.png", draw_cases(questions, encoder, asked, long_side, read=read))
    _show_questions(report)
    print_rows(
        report,
        ("map", *_metrics()),
        "maps",
        "\nall questions about what is there, beside maps of other things and of none",
    )
    _show_files(out)
    print_json(**report)


def _show_questions(report: dict[str, Any], title: str = "") -> None:
    """The tables of open questions."""
    from foveate.cli.evaluate.open import DETECTED, NOUNS, WHERE

    print_rows(report, WHERE, title=title + report["title"])
    print_rows(report, DETECTED, "detected", "\nis it there? AUROC: of confidence, beside questions about what is not")
    if report["nouns"]:
        print_rows(report, NOUNS, "nouns", "\nthe whole question beside its noun alone, on the same mask")
    refused = report["refused"]
    if refused["number"]:
        names = ", ".join(map(repr, refused["questions"][:SHOWN]))
        more = ", ..." if len(refused["questions"]) > SHOWN else ""
        typer.echo(f"\nrefused, and counted as not found: {refused['number']} ({names}{more})")


def _show_files(out: Path) -> None:
    typer.echo(f"\npictures of the best, worst and random cases: {out / 'cases.png'}; each pair: {out / 'pairs.jsonl'}")


def _lines(pairs: Iterable[Pair]) -> bytes:
    return "".join(json.dumps(pair.record()) + "\n" for pair in pairs).encode()


def _metrics() -> tuple[str, ...]:
    """Columns of a table of maps."""
    from foveate.cli.evaluate.agreement import Agreement

    return tuple(field.replace("_", " at ") + (" %" if "_" in field else "") for field in Agreement._fields)


@evaluate.command("compression", epilog="Example:  foveate evaluate compression --data FOLDER")
def evaluate_compression(
    data: Labelled,
    encoder: EncoderName = None,
    limit: Annotated[int, typer.Option(help="Images at most; their features are kept in memory.")] = COMPRESSED,
    long_side: LongSide = None,
) -> None:
    """Compressed against full maps, in five ways, one of them the seed documents'."""
    from foveate.cli.evaluate.coco import read_folder
    from foveate.cli.evaluate.questions import read_questions

    read: Folder | Questions = read_questions(data) if (data / "queries.json").is_file() else read_folder(data)
    report = _compress(read, encoder or "nano", limit, long_side)
    _show_compression(report)
    print_json(**report)


@evaluate.command("search", epilog="Example:  foveate evaluate search --data photos")
def evaluate_search(
    data: Images,
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
    from foveate.cli.evaluate.search import COLUMNS, choose_images, measure, read_questions, summarise, usual_questions

    texts = usual_questions(questions) if queries is None else read_questions(queries)
    sources = choose_images(data, limit)
    with counting("search", 2 * len(sources)) as progress:
        report = measure(sources, encoder or "nano", texts, long_side, progress)
    print_rows(report, COLUMNS)
    for path, why in report["bad"]:
        typer.echo(f"{path}: {why}", err=True)
    typer.echo("\n" + summarise(report))
    print_json(**report)


@evaluate.command("vlm", epilog="Example:  foveate evaluate vlm --data photo.jpg --model FOLDER")
def evaluate_vlm(
    data: Images,
    model: Annotated[str, typer.Option(help="A vision-language model: a folder, or a name on the Hub.")],
    limit: Annotated[int, typer.Option(help="Images at most, evenly from all; each takes as long as the first.")] = 1,
    budgets: Budgets = "50,25,12.5,6.7",
    modes: Modes = "drop,sparse",
    batch: Batch = "1,4",
    new: New = 16,
    repeats: Repeats = 5,
    read: Annotated[bool, typer.Option("--read", help="Read the images first: questions look at words, too.")] = False,
    dtype: Dtype = "auto",
    device: Device = "auto",
) -> None:
    """Is a model faster with fewer visual tokens? Selection, prefill and whole answers, beside the stock model."""
    from foveate.cli.evaluate.search import choose_images
    from foveate.cli.evaluate.vlm import make_plan
    from foveate.core.image import load_image
    from foveate.vlm.loader import load

    plan = make_plan(budgets, modes, batch, new, repeats, read)
    pictures = [load_image(source.path) for source in choose_images(data, limit)]
    report = time_vlm(load(model, dtype=dtype, device=device), pictures, plan)
    print_json(model=model, data=[str(path) for path in data], **report)


def time_vlm(vlm: Any, pictures: list[Any], plan: Any) -> dict[str, Any]:
    """Measure a loaded model, print what was found. -> the report."""
    from foveate.cli.evaluate.vlm import measure

    with counting("vlm", len(pictures) * plan.repeats) as progress:
        report = measure(vlm, pictures, plan, progress)
    print_rows(report, report["columns"])
    for note in report["notes"]:
        typer.echo(note)
    alone = report["selection"]
    typer.echo(
        "\nA batch is so many questions about the one image; stock encodes it for each of them. Encoder: of the whole\n"
        "image, once; with sparse, of the kept cells, for each question, and a part of 'whole'. New image: with all\n"
        "that 'see' does, its texture too; stock: with its processor.\n"
        f"selection alone, {alone['kept']} of {alone['cells']} cells: {alone['known']['sum']:.2f} ms for a question "
        f"asked before, {alone['new']['sum']:.2f} ms for a new one (the quickest: {alone['new']['least']:.2f} ms)"
    )
    return report


def print_rows(report: dict[str, Any], columns: Iterable[str], rows: str = "rows", title: str = "") -> None:
    """A table of a report: its rows have "cells"."""
    print_table(title or report["title"], tuple(columns), [tuple(row["cells"]) for row in report[rows]])


def _compress(data: Folder | Questions, encoder: str, limit: int, long_side: int | None) -> dict[str, Any]:
    from foveate.cli.evaluate.coco import Folder
    from foveate.cli.evaluate.compression import measure

    images = data.images if isinstance(data, Folder) else data.photographs
    with counting("compression", min(limit, len(images))) as progress:
        return measure(data, encoder, limit, long_side, progress)


def _show_compression(report: dict[str, Any]) -> None:
    from foveate.cli.evaluate.compression import OWN, WAYS

    print_rows(report, ("rank", *WAYS.values()))
    print_rows(report, ("rank", *(WAYS[way] for way in OWN)), "maps", "\n" + report["maps_title"])
