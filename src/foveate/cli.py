"""The command `foveate`. Only typer is imported here; everything else when a command runs, so --help is quick.

Every command prints a table for people, and as the last line of stdout one JSON object for programs. An error is
printed to stderr with what came, what was expected and what to do; the exit status is then 1 (2 for wrong usage).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from foveate.texture import Texture

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Encode an image once, ask it anything, spend the visual tokens where the question looks.\n\n"
    "Start with:  foveate demo\n\n"
    'Then:        foveate look photo.jpg "the red car" "a dog" --budget 273',
)
bench = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Measure: the numbers of the README come from here."
)
app.add_typer(bench, name="bench")

EncoderName = Annotated[
    str | None, typer.Option("--encoder", help="nano, clip, or clip:NAME_OR_FOLDER [default: nano; a texture's own].")
]
Budget = Annotated[
    int | None, typer.Option("--budget", "-k", help="Cells to keep, exactly [default: 273, or half of a small grid].")
]
LongSide = Annotated[
    int | None, typer.Option(help="Working size of the encoder in pixels [default: the encoder's own].")
]
Out = Annotated[Path, typer.Option("--out", help="Folder for pictures and JSON; made if needed.")]
CocoData = Annotated[Path, typer.Option("--data", help="Folder with annotations.json (COCO) and its images.")]

TEXTURE = ".safetensors"
DEMO = (
    ("child_with_broccoli.jpg", ("broccoli", "a child")),
    ("cake_and_coffee.jpg", ("where is the cake?", "a cup of coffee")),
)


def _show_version(asked: bool) -> None:
    if asked:
        from foveate import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def look(
    image: Annotated[Path, typer.Argument(help="An image, or a texture written by 'foveate encode' (.safetensors).")],
    query: Annotated[list[str], typer.Argument(help="Questions or noun phrases, each in quotes.")],
    budget: Budget = None,
    encoder: EncoderName = None,
    out: Out = Path("foveate-out"),
    floor: Annotated[float, typer.Option(help="Share of the budget spread evenly, 0 to 1.")] = 0.0,
    long_side: LongSide = None,
) -> None:
    """Ask an image questions: a heat map and K kept tokens for each."""
    texture, seconds = _texture(image, encoder, long_side)
    _report(image, texture, seconds, query, budget, out, floor, encoder)


@app.command()
def encode(
    image: Annotated[Path, typer.Argument(help="An image.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Texture file to write (.safetensors).")],
    encoder: EncoderName = None,
    rank: Annotated[int, typer.Option(help="Numbers kept a cell.")] = 16,
    long_side: LongSide = None,
) -> None:
    """Encode an image once, keep the texture for 'foveate look FILE'."""
    import time

    from foveate.errors import OptionError
    from foveate.pipeline import encode as encode_image

    if output.suffix.lower() != TEXTURE:
        raise OptionError(
            f"--output {output}", expected=f"a name that ends in {TEXTURE}", fix=f"write -o {image.stem}{TEXTURE}"
        )
    start = time.perf_counter()
    with _waiting(f"encoding {image}", encoder):
        texture = encode_image(image, encoder=encoder or "nano", rank=rank, long_side=long_side)
    seconds = time.perf_counter() - start
    texture.save(output)
    _table(f"{image} -> {output}", ("what", "value"), _facts(texture, seconds))
    _last(
        image=str(image),
        texture=str(output),
        encoder=texture.encoder.name,
        grid=list(texture.grid.shape),
        encode_seconds=round(seconds, 4),
        bytes=output.stat().st_size,
    )


@app.command()
def channels(
    image: Annotated[Path, typer.Argument(help="An image or a texture file.")],
    encoder: EncoderName = None,
    out: Out = Path("foveate-out"),
) -> None:
    """Draw all 40 channels of an image on one sheet."""
    import io

    from foveate.layout import FULL40, channel_named
    from foveate.output import make_folder, write_whole
    from foveate.viz import contact_sheet

    texture, seconds = _texture(image, encoder, None)
    sheet = io.BytesIO()
    contact_sheet(texture).save(sheet, "PNG")
    make_folder(out)
    path = out / f"{Path(texture.name).stem}--channels.png"
    write_whole(path, sheet.getvalue())
    rows, built = [], set(texture.built)
    for layer, name in enumerate(FULL40.names):
        plane = texture.channel(name)
        values = f"{plane.min():.3f} .. {plane.max():.3f}" if name in built else f"neutral {plane.flat[0]:g}"
        rows.append((str(layer), name, f"{plane.shape[0]} x {plane.shape[1]}", values, channel_named(name).about))
    _table(str(image), ("layer", "channel", "native size", "values", "how"), rows)
    typer.echo(f"sheet: {path}")
    _last(image=str(image), png=str(path), built=list(texture.built), encode_seconds=round(seconds, 4))


@app.command()
def demo(out: Out = Path("demo"), budget: Budget = 273) -> None:
    """Run the main job on two bundled photographs, offline."""
    from importlib.resources import files

    records = []
    for name, queries in DEMO:
        photograph = Path(str(files("foveate") / "assets" / "photos" / name))
        texture, seconds = _texture(photograph, None, None)
        records.append(_report(photograph, texture, seconds, list(queries), budget, out, 0.0, None, quiet=True))
    _last(demo=records)


@app.command()
def doctor() -> None:
    """Say what is installed: versions, extras, encoder files, threads."""
    from foveate.doctor import examine

    report = examine()
    _table("foveate doctor", ("what", "state"), [(row["what"], row["state"]) for row in report["rows"]])
    _last(**report)
    if not report["ok"]:
        raise typer.Exit(1)


@bench.command("query")
def bench_query(
    image: Annotated[Path | None, typer.Argument(help="An image [default: a bundled photograph].")] = None,
    repeats: Annotated[int, typer.Option(help="Measurements of each row.")] = 200,
) -> None:
    """Times of the main path, sizes of a texture."""
    from foveate.bench.query import measure

    report = measure(image, repeats)
    _table(
        report["title"],
        ("what", "measured", "target"),
        [(r["what"], r["measured"], r["target"]) for r in report["rows"]],
    )
    _last(**report)


@bench.command("compression")
def bench_compression(
    data: CocoData,
    encoder: EncoderName = None,
    limit: Annotated[int, typer.Option(help="Images at most.")] = 128,
) -> None:
    """Compressed against full maps, and the seed documents' way."""
    from foveate.bench.compression import measure

    report = measure(data, encoder or "nano", limit)
    header = ("rank", "per image, query-aware", "per image, PCA + dot", "shared, centred PCA + cosine")
    _table(report["title"], header, [tuple(row["cells"]) for row in report["rows"]])
    _last(**report)


@bench.command("relevance")
def bench_relevance(
    data: CocoData,
    encoder: EncoderName = None,
    limit: Annotated[int, typer.Option(help="Images at most.")] = 100_000,
    long_side: LongSide = None,
) -> None:
    """Is the heat on the thing? Against COCO masks and baselines."""
    from foveate.bench.relevance import measure

    report = measure(data, encoder or "nano", limit, long_side)
    header = ("map", "pointing", "average precision", "coverage at 10 %")
    _table(report["title"], header, [tuple(row["cells"]) for row in report["rows"]])
    _last(**report)


# --- shared by the commands ------------------------------------------------------------------------------------------


def _texture(path: Path, encoder: str | None, long_side: int | None) -> tuple[Texture, float]:
    """A texture from an image (encoded) or from a texture file (read), and the seconds it took."""
    import time

    from foveate.errors import OptionError
    from foveate.pipeline import encode as encode_image
    from foveate.texture import Texture

    start = time.perf_counter()
    if path.suffix.lower() == TEXTURE:
        if long_side is not None:
            raise OptionError(
                f"--long-side {long_side} for the texture '{path}'",
                expected="no such option: its image is encoded already",
                fix="leave it out, or encode the image again with it",
            )
        texture = Texture.load(path)
    else:
        with _waiting(f"encoding {path}", encoder):
            texture = encode_image(path, encoder=encoder or "nano", long_side=long_side)
    return texture, time.perf_counter() - start


@contextmanager
def _waiting(what: str, encoder: str | None) -> Iterator[None]:
    """A spinner on stderr, for people only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    if (encoder or "").startswith("clip"):
        what += " (the first use of a Hub checkpoint downloads it: 600 MB for ViT-B/16)"
    with Console(stderr=True).status(what):
        yield


def _report(
    image: Path,
    texture: Texture,
    seconds: float,
    queries: list[str],
    budget: int | None,
    out: Path,
    floor: float,
    encoder: str | None,
    quiet: bool = False,
) -> dict[str, Any]:
    from foveate.look import look as look_at

    made_here = image.suffix.lower() != TEXTURE
    records = look_at(
        texture,
        queries,
        budget=budget,
        out=out,
        floor=floor,
        source=str(image.absolute()),
        encoder=encoder or ("nano" if made_here else None),
    )
    rows = [
        (r["query"], " + ".join(r["phrases"]), f"{r['confidence']:.2f}" + ("" if r["present"] else " (not found)"),
         f"{r['budget']} of {texture.grid.count}", f"{r['score_seconds'] * 1e3:.2f} ms", r["png"])
        for r in records
    ]  # fmt: skip
    title = f"{image}  {texture.grid.h} x {texture.grid.w} cells, {texture.encoder.name}, {seconds * 1e3:.0f} ms"
    _table(title, ("query", "looks for", "confidence", "kept", "time", "picture"), rows)
    result = {
        "image": str(image),
        "encoder": texture.encoder.name,
        "grid": list(texture.grid.shape),
        "encode_seconds": round(seconds, 4),
        "queries": records,
    }
    if not quiet:
        _last(**result)
    return result


def _facts(texture: Texture, seconds: float) -> list[tuple[str, str]]:
    grid = texture.grid
    return [
        ("image", f"{grid.height} x {grid.width} pixels"),
        ("cells", f"{grid.h} x {grid.w} = {grid.count}"),
        ("encoder", f"{texture.encoder.name}, revision {texture.encoder.revision}"),
        ("rank", str(texture.basis.rank)),
        ("size", f"{texture.nbytes / 1e6:.2f} MB, {texture.query_nbytes / 1e3:.0f} KB of it answers questions"),
        ("time", f"{seconds * 1e3:.0f} ms"),
    ]


def _table(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", box=None, header_style="bold", pad_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # Text, not markup: file names may hold brackets
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table)


def _last(**values: Any) -> None:
    typer.echo(json.dumps(values))


def main() -> None:
    """Entry point: turns foveate's errors into messages and a full pipe into silence."""
    from foveate.errors import FoveateError

    try:
        app()
    except FoveateError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
