"""`foveate evaluate`: the five commands, and what they print."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli import terminal

if TYPE_CHECKING:
    from foveate.cli.evaluate.vlm import Plan

evaluate = terminal.Program(help="Measure how good it is, on your own data.")
CocoData = Annotated[Path, typer.Option("--data", help="Folder with annotations.json (COCO) and its images.")]
Images = Annotated[
    list[Path], typer.Option("--data", help="A folder of images, all the way down, or an image; again for more.")
]
Limit = Annotated[int, typer.Option(help="Images at most.")]
Budgets = Annotated[str, typer.Option(help="Percents of the cells that the model gets, with commas between.")]
Modes = Annotated[str, typer.Option(help="drop: after the encoder. sparse: before it.")]
Batch = Annotated[str, typer.Option(help="Questions at once, all about one image.")]
New = Annotated[int, typer.Option(help="Tokens of an answer: exactly, or with --policies at most.")]
Repeats = Annotated[int, typer.Option(help="Measurements of each number.")]
Policies = Annotated[
    bool, typer.Option("--policies", help="Instead: which rule keeps what is needed? docs/evaluate.md")
]


@evaluate.command("relevance", epilog="Example:  foveate evaluate relevance --data FOLDER --policies")
def evaluate_relevance(
    data: CocoData,
    encoder: terminal.EncoderName = None,
    limit: Limit = 100_000,
    long_side: terminal.LongSide = None,
    half: Annotated[
        str | None, typer.Option(help="A or B: one half of the images, by their names. Tune on one, report the other.")
    ] = None,
    read: Annotated[bool, typer.Option("--read", help="Read what is written first: seconds an image.")] = False,
    words: terminal.WordsFile = None,
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", help="Folder for report.json, pairs.jsonl and curve.png, or policies.json; made if needed."
        ),
    ] = Path("foveate-bench"),
    policies: Policies = False,
) -> None:
    """Do maps lie on the things asked for?

    Against masks and baselines, with intervals (docs/evaluate.md).
    """
    from foveate.cli.evaluate import policies as rules
    from foveate.cli.evaluate.agreement import Agreement
    from foveate.cli.evaluate.coco import read_folder
    from foveate.cli.evaluate.relevance import measure
    from foveate.core.files import make_folder, write_whole
    from foveate.viz import curve

    folder = read_folder(data).half(half)
    name, known = encoder or "nano", terminal.load_words(words)
    make_folder(out)  # before the minutes of work; and every result is written before anything is printed
    with terminal.counting("relevance", min(limit, len(folder.images))) as progress:
        if policies:
            found = rules.measure(folder, name, limit, long_side, progress, read=read, **known) | {"half": half}
            write_whole(out / "policies.json", json.dumps(found, indent=1).encode())
            print_policies(found)
            return
        report, pairs = measure(folder, name, limit, long_side, progress, read=read, **known)
    report["half"] = half
    write_whole(out / "pairs.jsonl", "".join(json.dumps(pair.record()) + "\n" for pair in pairs).encode())
    write_whole(out / "report.json", json.dumps(report, indent=1).encode())
    terminal.write_picture(out / "curve.png", curve(report))

    metrics = [each.replace("_", " at ") + (" %" if "_" in each else "") for each in Agreement._fields]
    kept = ("IoU, as many cells", "recall in 10 %", "precision in 10 %")
    by_size = f"\n{name}, by the thing's share of the image: up to 1 %, up to 10 %, more"
    print_rows(report, ("map", *metrics))
    print_rows(report, ("things", *metrics), "sizes", by_size)
    print_rows(report, ("kept by", *kept), "kept", "\nkept cells beside the cells of true boxes")
    print_rows(report, ("things", *kept), "kept_sizes", by_size)
    presence = report["presence"]
    typer.echo(
        f"\nprecision of the right question over that of another thing in the image: {report['objectness']['text']}\n"
        f"AUROC of confidence, {presence['asked']} questions: {presence['text']}; detected: "
        f"{presence['detected_when_there']} of the things that are there and {presence['detected_when_not']} of the "
        f"others\n\neach thing in each image: {out / 'pairs.jsonl'}; foveate look IMAGE '\"THING\"' draws one"
    )
    terminal.print_json(**report)


@evaluate.command("compression", epilog="Example:  foveate evaluate compression --data FOLDER")
def evaluate_compression(
    data: CocoData, encoder: terminal.EncoderName = None, limit: Limit = 128, long_side: terminal.LongSide = None
) -> None:
    """What do fewer numbers a cell cost?

    What a map loses at ranks from 4 to 64.
    """
    from foveate.cli.evaluate.coco import read_folder
    from foveate.cli.evaluate.compression import COLUMNS, measure

    folder = read_folder(data)
    with terminal.counting("compression", min(limit, len(folder.images))) as progress:
        report = measure(folder, encoder or "nano", limit, long_side, progress)
    print_rows(report, COLUMNS)
    terminal.print_json(**report)


@evaluate.command("gaze", epilog="Example:  foveate evaluate gaze --data photos --fixations tracked")
def evaluate_gaze(
    data: Images,
    fixations: Annotated[
        Path | None,
        typer.Option(help="Folder of NAME.csv (x,y) or NAME.png (fixated pixels) [default: beside the images]."),
    ] = None,
    query: Annotated[str | None, typer.Option(help="A question whose map is compared, too.")] = None,
    encoder: terminal.EncoderName = None,
    limit: Limit = 100_000,
) -> None:
    """Do maps say where people look?

    NSS, AUC-Judd, CC and KL against fixations.
    """
    from foveate.cli.evaluate.gaze import find_fixations, measure
    from foveate.cli.evaluate.search import at_most, choose_images

    found, without = find_fixations(fixations, [Path(source.path) for source in choose_images(data)])
    files = dict(at_most([*found.items()], limit))
    with terminal.counting("gaze", len(files)) as progress:
        report = measure(files, encoder or "nano", query, progress)
    report["without"] = without + len(files) - report["images"]
    print_rows(report, report["columns"])
    if report["without"]:
        typer.echo(f"{report['without']} of {without + len(files)} images have no fixations", err=True)
    if report["outside"]:
        count = terminal.format_count(report["outside"], "fixation")
        typer.echo(f"{count} outside of their image left out; {report['fixations']} count", err=True)
    terminal.print_json(**report)


@evaluate.command("search", epilog="Example:  foveate evaluate search --data photos")
def evaluate_search(
    data: Images,
    queries: Annotated[
        Path | None, typer.Option(help="Your own questions, a line each [default: nouns, see --questions].")
    ] = None,
    questions: Annotated[int, typer.Option(help="Without --queries: so many nouns, evenly from the 1,585.")] = 100,
    encoder: terminal.EncoderName = None,
    limit: Annotated[
        int | None, typer.Option(help="Images at most, evenly from all [default: all]; fewer are easier to search.")
    ] = None,
    long_side: terminal.LongSide = None,
) -> None:
    """Does a search find the best images?

    Against ranking all of them exactly.
    """
    from foveate.cli.evaluate.search import COLUMNS, choose_images, measure, usual_questions

    texts = usual_questions(questions) if queries is None else terminal.read_lines(queries)
    sources = choose_images(data, limit)
    with terminal.counting("search", len(sources)) as progress:
        report = measure(sources, encoder or "nano", texts, long_side, progress)
    print_rows(report, COLUMNS)
    for path, why in report["bad"]:
        typer.echo(f"{path}: {why}", err=True)
    terminal.print_json(**report)


@evaluate.command(
    "vlm", epilog="Example:  foveate evaluate vlm --data photo.jpg --model FOLDER; docs/evaluate.md has --policies"
)
def evaluate_vlm(
    data: Images,
    model: Annotated[str, typer.Option(help="A vision-language model: a folder, or a name on the Hub.")],
    limit: Annotated[
        int | None, typer.Option(help="Images at most, evenly from all [default: 1]; questions at most [default: 500].")
    ] = None,
    budgets: Budgets = "50,25,12.5,6.7",
    modes: Modes = "drop,sparse",
    batch: Batch = "1,4",
    new: New = 16,
    repeats: Repeats = 5,
    read: Annotated[bool, typer.Option("--read", help="Read the images first: questions look at words, too.")] = False,
    dtype: terminal.Dtype = "auto",
    device: terminal.Device = "auto",
    policies: Annotated[
        bool,
        typer.Option(
            "--policies",
            help="Instead: does it answer as well, by each rule that keeps tokens? --data is a folder with "
            "questions.jsonl, or textvqa, gqa, docvqa (docs/evaluate.md).",
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option("-o", "--out", help="With --policies: folder of answers.jsonl, with which it goes on.")
    ] = Path("foveate-bench"),
) -> None:
    """Is a model faster with fewer tokens? With --policies: which tokens does it answer best with?

    Selection, prefill and whole answers, beside the stock model.
    """
    from foveate.cli.evaluate.search import choose_images
    from foveate.cli.evaluate.vlm import make_plan, measure
    from foveate.core.image import load_image
    from foveate.vlm.loader import load

    plan = make_plan(budgets, modes, batch, new, repeats, read)
    if policies:
        _answer(data, model, 500 if limit is None else limit, plan, dtype, device, out)
        return
    limit = 1 if limit is None else limit
    pictures = [load_image(source.path) for source in choose_images(data, limit)]
    vlm = load(model, dtype=dtype, device=device)
    with terminal.counting("vlm", len(pictures) * plan.repeats) as progress:
        report = measure(vlm, pictures, plan, progress)
    print_rows(report, report["columns"])
    for note in report["notes"]:
        typer.echo(note)
    typer.echo(
        "\nA batch is so many questions about the one image; stock encodes it for each of them. Encoder: of the whole\n"
        "image, once; with sparse, of the kept cells, for each question, and a part of 'whole'. New image: with all\n"
        "that 'see' does, its texture too; stock: with its processor."
    )
    terminal.print_json(model=model, data=[str(path) for path in data], **report)


def _answer(data: list[Path], model: str, limit: int, plan: Plan, dtype: str, device: str, out: Path) -> None:
    from foveate.cli.evaluate import answers
    from foveate.core.checks import check_int
    from foveate.core.errors import OptionError
    from foveate.core.files import make_folder, write_whole
    from foveate.vlm.loader import load

    if len(data) != 1:
        raise OptionError(f"{len(data)} times --data", expected="one, with --policies", fix="run it for each")
    source = str(data[0])
    limit = min(check_int("--limit", limit), answers.count_items(source))
    next(answers.read_items(source), None)  # data that cannot be read are refused before the model is loaded
    make_folder(out)
    vlm = load(model, dtype=dtype, device=device)
    known = {"model": model, "data": source, "new": plan.new, "read": plan.read, "dtype": str(vlm.model.dtype)}

    def say(text: str) -> None:
        typer.echo(text, err=True)

    with terminal.counting("vlm --policies", limit) as progress:
        report = answers.measure(vlm, source, known, out, limit, say, progress, read=plan.read, new=plan.new)
    write_whole(out / "policies.json", json.dumps(report, indent=1).encode())
    print_policies(report)


def print_policies(report: dict[str, Any]) -> None:
    print_rows(report, report["columns"])
    typer.echo("\n" + "\n".join(report["after"]))
    terminal.print_json(**report)


def print_rows(report: dict[str, Any], columns: Iterable[str], rows: str = "rows", title: str = "") -> None:
    """A table of a report: its rows have "cells"."""
    terminal.print_table(title or report["title"], tuple(columns), [tuple(row["cells"]) for row in report[rows]])
