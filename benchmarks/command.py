"""`python -m benchmarks`: the commands that make the numbers of the README."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.terminal import EncoderName, counting, print_json, print_table

if TYPE_CHECKING:
    pass

from foveate.cli.evaluate.command import CocoData

bench = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Measure: the numbers of the README come from here."
)


@bench.command("query")
def bench_query(
    image: Annotated[Path | None, typer.Argument(help="An image [default: a bundled photograph].")] = None,
    repeats: Annotated[int, typer.Option(help="Measurements of each row.")] = 200,
) -> None:
    """Times of the main path, sizes of a texture."""
    from benchmarks.query import measure

    report = measure(image, repeats)
    print_table(
        report["title"],
        ("what", "measured", "target"),
        [(r["what"], r["measured"], r["target"]) for r in report["rows"]],
    )
    print_json(**report)


@bench.command("fusion")
def bench_fusion(
    data: CocoData,
    encoder: EncoderName = None,
    limit: Annotated[int, typer.Option(help="Images at most.")] = 100_000,
) -> None:
    """Does anything beside the question help? Balances, single channels, segments, a cascade."""
    from benchmarks.fusion import COLUMNS, measure
    from foveate.cli.evaluate.coco import read_folder

    folder = read_folder(data)
    with counting("fusion", min(limit, len(folder.images))) as progress:
        report = measure(folder, encoder or "nano", limit, progress)
    print_table(report["title"], COLUMNS, [tuple(row["cells"]) for row in report["rows"]])
    found = report["cascade"]
    typer.echo(
        f"\ncascade: looks at {found['looked']:.0%} of the cells, keeps {found['same_cells']:.0%} of those that\n"
        f"scoring everything keeps; coverage of the thing {found['coverage']:.3f} against "
        f"{found['coverage_of_scoring_everything']:.3f}"
    )
    print_json(**report)


@bench.command("refine")
def bench_refine(
    data: CocoData,
    encoder: EncoderName = None,
    limit: Annotated[int, typer.Option(help="Images at most.")] = 100_000,
) -> None:
    """Does looking again, closer, help? Boxes and the whole image, with their price."""
    from benchmarks.again import COLUMNS, measure
    from foveate.cli.evaluate.coco import read_folder

    folder = read_folder(data)
    with counting("refine", min(limit, len(folder.images))) as progress:
        report = measure(folder, encoder or "nano", limit, progress)
    print_table(report["title"], COLUMNS, [tuple(row["cells"]) for row in report["rows"]])
    print_json(**report)


@bench.command("channels")
def bench_channels(
    image: Annotated[Path | None, typer.Argument(help="An image [default: a bundled photograph].")] = None,
    repeats: Annotated[int, typer.Option(help="Measurements of each row.")] = 20,
) -> None:
    """What each channel, scorer and policy costs."""
    from benchmarks.channels import measure

    report = measure(image, repeats)
    rows = [(r["what"], r["measured"], r["target"]) for r in report["rows"]]
    print_table(report["title"], ("what", "measured", "target"), rows)
    print_json(**report)


@bench.command("text")
def bench_text(
    data: Annotated[Path, typer.Option("--data", help="Folder with annotations.json (polygons) and its images.")],
) -> None:
    """Is the text mask where the writing is? Beside edge density and random cells."""
    from benchmarks.text import COLUMNS, measure

    report = measure(data)
    print_table(report["title"], COLUMNS, [tuple(row["cells"]) for row in report["rows"]])
    for source, rows in report["sources"].items():
        print_table(f"\n{source}", COLUMNS, [tuple(row["cells"]) for row in rows])
    print_json(**report)


@bench.command("budget")
def bench_budget(
    data: Annotated[Path, typer.Option("--data", help="Folder with annotations.json (polygons) and its images.")],
    budgets: Annotated[str, typer.Option(help="Numbers of cells, with commas between.")] = "128,273",
    text: Annotated[str, typer.Option(help="Who looks for writing: auto, rapidocr or opencv.")] = "auto",
) -> None:
    """Does a budget keep what was found? Kept cells on writing, by question."""
    from typing import cast

    from benchmarks.budget import COLUMNS, measure

    try:
        numbers = [int(number) for number in budgets.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--budgets {budgets}: expected whole numbers with commas between") from None
    with counting("budget", 12) as progress:
        report = measure(data, numbers, cast(Any, text), progress)
    print_table(report["title"], COLUMNS, [tuple(row["cells"]) for row in report["rows"]])
    print_json(**report)


@bench.command("store")
def bench_store(
    image: Annotated[Path | None, typer.Argument(help="An image [default: a bundled photograph].")] = None,
    repeats: Annotated[int, typer.Option(help="Measurements of each row.")] = 1000,
    images: Annotated[int, typer.Option(help="Images of the synthetic search.")] = 100_000,
    textures: Annotated[int, typer.Option(help="Textures in the store, 90 KB each below TMPDIR.")] = 512,
    ann: Annotated[
        bool, typer.Option("--ann", help="Only approximate nearest neighbours, beside the exact scan.")
    ] = False,
) -> None:
    """Times of the store: reading, searching, indexing; and the bytes that a question reads."""
    if ann:
        from benchmarks import store_ann

        report = store_ann.measure(images, repeats)
        print_table(report["title"], ("what", "measured"), [(r["what"], r["measured"]) for r in report["rows"]])
        print_json(**report)
        return
    from benchmarks.store import measure

    report = measure(image, repeats, images, textures)
    rows = [(r["what"], r["measured"], r["target"]) for r in report["rows"]]
    print_table(report["title"], ("what", "measured", "target"), rows)
    print_json(**report)


@bench.command("basis")
def bench_basis(
    features: Annotated[int, typer.Option(help="How many.")] = 1_000_000,
    width: Annotated[int, typer.Option(help="Numbers of each.")] = 512,
) -> None:
    """Seconds and memory of fitting a basis, once the features are there."""
    from benchmarks.basis import measure

    report = measure(features, width)
    print_table(report["title"], ("what", "measured", "target"), [(*row.values(),) for row in report["rows"]])
    print_json(**report)


@bench.command("index")
def bench_index(
    folders: Annotated[list[Path], typer.Argument(help="Folders of images, all the way down, or images.")],
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas between.")] = "1,2",
    engine: Annotated[str, typer.Option(help="local, ray, or local,ray.")] = "local",
    limit: Annotated[int | None, typer.Option(help="At most so many images, evenly from all.")] = 500,
) -> None:
    """Images a second of indexing, by engine and workers, beside the tower alone."""
    from benchmarks.index import measure

    try:
        counts = [int(number) for number in workers.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--workers {workers}: expected whole numbers with commas between") from None
    engines = [name.strip() for name in engine.split(",")]
    with counting("measuring", 1 + len(counts) * len(engines), "rows") as progress:
        report = measure(folders, engines, counts, limit, progress)
    header = ("engine", "workers", "until the first", "images a second", "of a core an image", "above the tower")
    print_table(report["title"], header, [tuple(row["cells"]) for row in report["rows"]])
    print_json(**report)


@bench.command("vlm")
def bench_vlm(
    model: Annotated[str | None, typer.Option(help="A vision-language model: a folder, or a name on the Hub.")] = None,
    image: Annotated[Path | None, typer.Option(help="An image [default: a bundled photograph].")] = None,
    random: Annotated[
        str | None,
        typer.Option(
            metavar="FAMILY", help="Instead of --model: llava or qwen2_5_vl, 7B-like, with random weights; no download."
        ),
    ] = None,
    layers: Annotated[int | None, typer.Option(help="With --random: layers of the language model [all].")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="With --random: very narrow; llava with 4096 cells.")] = False,
    budgets: Annotated[str, typer.Option(help="Percents of the cells that the model gets.")] = "50,25,12.5,6.7",
    modes: Annotated[str, typer.Option(help="drop: after the tower. sparse: before it.")] = "drop,sparse",
    batch: Annotated[str, typer.Option(help="Questions at once, all about the image.")] = "1,4",
    new: Annotated[int, typer.Option(help="Tokens of an answer, exactly.")] = 16,
    repeats: Annotated[int, typer.Option(help="Measurements of each number.")] = 5,
    dtype: Annotated[
        str, typer.Option(help="auto (the checkpoint's own; with --random bfloat16), float32, bfloat16, float16.")
    ] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
) -> None:
    """Is a model faster with fewer visual tokens? Selection, prefill and whole answers, beside stock."""
    from benchmarks.vlm import measure
    from benchmarks.vlm_options import model_for, picture_of, planned

    plan = planned(budgets, modes, batch, new, repeats)
    make = model_for(model, random, layers=layers, tiny=tiny, dtype=dtype, device=device)
    picture, path = picture_of(image)
    with counting("vlm", repeats) as progress:
        report = measure(make(), picture, plan, progress)
    print_table(report["title"], tuple(report["columns"]), [tuple(row["cells"]) for row in report["rows"]])
    for note in report["notes"]:
        typer.echo(note)
    alone = report["selection"]
    typer.echo(
        "\nA batch is so many questions about the one image; stock encodes it for each of them. Tower: of the whole\n"
        "image, once; with sparse, of the kept cells, for each question, and a part of 'whole'. New image: with all\n"
        "that 'see' does, its texture too; stock: with its processor.\n"
        f"selection alone, {alone['kept']} of {alone['cells']} cells: {alone['known']['sum']:.2f} ms for a question "
        f"asked before, {alone['new']['sum']:.2f} ms for a new one (the quickest: {alone['new']['least']:.2f} ms)"
    )
    print_json(model=model or f"random {random}{' tiny' if tiny else ''}", image=path, **report)


@bench.command("video")
def bench_video(
    clips: Annotated[
        Path | None,
        typer.Option("--clips", help="Folder with davis.json, NAME/clip.mp4 and NAME/masks.tar [default: made clips]."),
    ] = None,
    frames: Annotated[int | None, typer.Option(help="Frames over which memory is measured [default: 500].")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for report.json and clips.png; made if needed.")] = Path(
        "foveate-bench"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Everything, very small: no number means anything.")] = False,
) -> None:
    """Carried along the motion against encoding every frame: coverage, speed, drift, flicker, tokens, memory."""
    from dataclasses import replace

    from benchmarks.video import QUICK, Plan, measure
    from foveate.core.files import make_folder, write_whole

    plan = QUICK if quick else Plan()
    make_folder(out)
    with counting("video", 3) as progress:
        report, sheet = measure(clips, plan if frames is None else replace(plan, frames=frames), progress)
    picture = io.BytesIO()
    sheet.save(picture, "PNG")
    write_whole(out / "report.json", json.dumps(report, indent=1).encode())
    write_whole(out / "clips.png", picture.getvalue())
    _show_video(report)
    typer.echo(f"\npictures: {out / 'clips.png'}; everything by clip: {out / 'report.json'}")
    print_json(**{key: value for key, value in report.items() if not key.endswith("_by_clip") and key != "clips"})


def _show_video(report: dict[str, Any]) -> None:
    from benchmarks import video_cosine, video_following, video_tokens

    def show(title: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        print_table(title, columns, [tuple(row["cells"]) for row in rows])

    show(report["title"], video_following.COLUMNS, report["rows"])
    show("\ncosine of propagated to fresh features by age in frames", video_cosine.COLUMNS, report["cosine"])
    for name, rows in report["warps"].items():
        show(f"\na photograph warped by a known {name}", video_cosine.COLUMNS, rows)
    show("\ntokens sent, of all cells of all frames", video_tokens.COLUMNS, report["tokens"])
    show("", ("what", "measured", "target"), report["targets"])
