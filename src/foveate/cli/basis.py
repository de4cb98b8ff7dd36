"""foveate basis fit | check: a basis that all images of a collection share, and what it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from foveate.cli import terminal
from foveate.core.options import ENCODE

app = terminal.Program(help="A basis that all images of a collection share: fit it, check it.")
Rank = Annotated[int, typer.Option(help=ENCODE["rank"].about)]
Queries = Annotated[
    Path | None,
    typer.Option(help="Your own questions, a line each [default: what the encoder was taught, else nouns]."),
]
Out = Annotated[Path, typer.Option("-o", "--out", help="File to write (.safetensors).")]


@app.command(epilog="Example:  foveate basis fit photos -o basis.safetensors --rank 32")
def fit(
    folders: Annotated[list[Path], typer.Argument(help="Folders of images, all the way down, or images.")],
    out: Out = Path("basis.safetensors"),
    rank: Rank = 16,
    samples: Annotated[int, typer.Option(help="Features to take, evenly from all images.", min=1)] = 1_000_000,
    most: Annotated[int, typer.Option(help="Images to look at, evenly from all.", min=1)] = 2000,
    encoder: terminal.EncoderName = None,
    queries: Queries = None,
    workers: terminal.Workers = None,
) -> None:
    """Fit a basis to folders of images."""
    terminal.use_one_thread()
    from foveate.core.checks import check_int
    from foveate.core.threads import usual_threads
    from foveate.encoders.load import resolve_encoder
    from foveate.language.negatives import query_metric_of
    from foveate.store.shared_basis import fit as fit_basis
    from foveate.store.shared_basis import gather, images_in, refuse_other_files
    from foveate.texture.basis import query_metric
    from foveate.texture.texture import EncoderStamp

    workers = usual_threads() if workers is None else check_int("--workers", workers)
    resolved, images = resolve_encoder(encoder or "nano"), _some(images_in(folders), most)
    check_int("rank", rank, 1, resolved.width, fix="16 is usual")  # now, not when all images were looked at
    metric = query_metric_of(resolved) if queries is None else query_metric(_texts(queries, resolved))
    refuse_other_files(out)
    each = -(-samples // len(images))
    with terminal.counting("images", len(images)) as progress:
        found = gather(images, resolved, each, halves=True, workers=workers, progress=progress)
    _list(found.bad)
    source = queries.name if queries is not None else "names" if getattr(resolved, "names", ()) else "nouns"
    made = {"images": len(images), "bad": len(found.bad), "queries": source}
    stamp = EncoderStamp(resolved.name, resolved.revision, resolved.width)
    basis = fit_basis(found.moments, metric, rank, stamp, made)
    basis.save(out)
    told = {name: value for name, value in basis.made.items() if name != "shares"}
    typer.echo(f"rank {rank} keeps {told['kept']:.3f} of the squared scores; the first direction {told['largest']:.3f}")
    terminal.print_json(basis=str(out), rank=rank, encoder=resolved.name, **told)


def _some(found: list[Any], most: int) -> list[Any]:
    """At most so many, evenly."""
    return found[:: -(-len(found) // most)]


@app.command(epilog="Example:  foveate basis check basis.safetensors photos --queries questions.txt")
def check(
    basis: Annotated[Path, typer.Argument(help="From 'foveate basis fit'.")],
    folders: Annotated[list[Path], typer.Argument(help="Images to check it on: best, others than it was fitted to.")],
    queries: Queries = None,
    encoder: terminal.EncoderName = None,
    out: Annotated[Path, typer.Option(help="Folder for report.json and variance.png.")] = Path("basis-check"),
    limit: Annotated[
        list[str] | None, typer.Option(help="What is good enough, as overlap=0.9; again for more.")
    ] = None,
    most: Annotated[int, typer.Option(help="Images to look at, evenly from all.", min=1)] = 200,
) -> None:
    """What a basis keeps, by rank; exit status 1 where it falls short."""
    import json

    from foveate.core.files import make_folder, write_whole
    from foveate.language.negatives import nouns
    from foveate.store.basis_check import check as checked_on
    from foveate.store.basis_check import encoder_for
    from foveate.store.shared_basis import FittedBasis, images_in
    from foveate.viz.charts import explained

    fitted = FittedBasis.load(basis)
    resolved = encoder_for(fitted, encoder)
    images = [Path(image.path) for image in _some(images_in(folders), most)]
    names = getattr(resolved, "names", ()) or nouns()
    questions = [f'"{name}"' for name in names] if queries is None else list(terminal.read_lines(queries))
    limits = _limits(limit or [])
    make_folder(out)
    with terminal.counting("images", len(images)) as progress:
        result = checked_on(fitted, images, resolved, questions, limits, progress)
    _list(result.bad)
    write_whole(out / "report.json", json.dumps(result.report(), indent=1).encode())
    if shares := fitted.made.get("shares"):  # of a file that an earlier release wrote they are not known
        terminal.write_picture(out / "variance.png", explained(shares))
    names, own = list(result.rows[result.rank]), result.failed(result.rank)
    rows = [
        (str(rank), *(f"{row[name]:.3f}" + (" !" if name in result.failed(rank) else "") for name in names))
        for rank, row in result.rows.items()
    ]
    title = f"{result.images} images, {result.questions} things seen in them; ! misses its limit"
    least = [f"{limits[name]:g}" if name in limits else "" for name in names]
    terminal.print_table(title, ("rank", *names), [*rows, ("limit", *least)])
    if own:
        better = f"rank {result.enough} would pass" if result.enough else "no rank in the file passes"
        typer.echo(f"rank {result.rank} falls short in {', '.join(own)}; {better}")
    counts = {"rank": result.rank, "enough": result.enough, "images": result.images, "bad": len(result.bad)}
    terminal.print_json(passed=not own, **counts, report=str(out / "report.json"), **result.rows[result.rank])
    raise typer.Exit(1 if own else 0)


def _texts(queries: Path, encoder: Any) -> Any:
    from foveate.encoders.protocol import encode_texts
    from foveate.language.query import prepare

    asked = [prepare(encoder, line).phrases for line in terminal.read_lines(queries)]
    phrases = dict.fromkeys(phrase for phrases in asked for phrase in phrases)
    return encode_texts(encoder, [encoder.templates[0].format(phrase) for phrase in phrases])


def _limits(texts: list[str]) -> Any:
    from foveate.core.errors import OptionError
    from foveate.core.gone import LIMITS as GONE
    from foveate.store.basis_check import LIMITS, NUMBERS

    limits = dict(LIMITS)
    for text in texts:
        name, _, value = text.partition("=")
        try:
            if name not in NUMBERS:
                raise ValueError
            limits[name] = float(value)
        except ValueError:
            names = f"NAME=NUMBER; names: {', '.join(NUMBERS)}"
            raise OptionError(f"--limit {text}", expected=names, fix=GONE.get(name, "overlap=0.9")) from None
    return limits


def _list(bad: tuple[tuple[str, str], ...]) -> None:
    lines = [f"skipped {path}: {why}" for path, why in bad[:20]] + [f"... and {len(bad) - 20} more"] * (len(bad) > 20)
    for line in lines:
        typer.echo(line.encode("utf-8", "backslashreplace").decode(), err=True)
