"""The command `foveate`. Only typer is imported here; everything else when a command runs, so --help is quick.

Every command prints a table for people, and as the last line of stdout one JSON object for programs. An error is
printed to stderr with what came, what was expected and what to do; the exit status is then 1 (2 for wrong usage).
"""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.ask import ask
from foveate.cli.basis import app as basis
from foveate.cli.evaluate.command import evaluate
from foveate.cli.store import index, search, store
from foveate.cli.terminal import (
    EncoderName,
    LongSide,
    Twice,
    parse_budget,
    print_json,
    print_table,
    refuse_files,
    waiting,
)
from foveate.cli.video import EXAMPLE, video

if TYPE_CHECKING:
    from foveate.texture.texture import Texture

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Encode an image once, ask it anything, spend the visual tokens where the question looks.\n\n"
    "Start with:  foveate demo\n\n"
    'Then:        foveate look photo.jpg "the red car" "a dog" --budget 273',
)
app.add_typer(basis, name="basis")
app.add_typer(evaluate, name="evaluate")
app.add_typer(store, name="store")


Budget = Annotated[
    Any,
    typer.Option(
        "--budget",
        "-k",
        parser=parse_budget,
        metavar="INTEGER|auto",
        help="Cells to keep, exactly; auto: by the map's mass [default: 273, or half of a small grid].",
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Folder for pictures and JSON; made if needed.")]

ChannelNames = Annotated[
    str,
    typer.Option("--channels", help="fast, standard or all; or names, with commas between: text,boundary,depth."),
]

TEXTURE = ".safetensors"
DEMO = (
    ("child_with_broccoli.jpg", ("broccoli", "a child")),
    ("cake_and_coffee.jpg", ("where is the cake?", "a cup of coffee")),
)


def _show_version(asked: bool) -> None:
    if asked:
        from foveate.core.version import __version__

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
    refuse_files(query)
    texture, seconds = _texture(image, encoder, long_side)
    _report(image, texture, seconds, query, budget, out, floor, encoder)


app.command()(ask)
app.command(epilog=EXAMPLE)(video)
app.command()(index)
app.command()(search)


@app.command()
def encode(
    image: Annotated[Path, typer.Argument(help="An image.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Texture file to write (.safetensors).")],
    encoder: EncoderName = None,
    rank: Annotated[int, typer.Option(help="Numbers kept a cell.")] = 16,
    long_side: LongSide = None,
    channels: ChannelNames = "standard",
    twice: Twice = False,
) -> None:
    """Encode an image once, keep the texture for 'foveate look FILE'."""
    import time

    from foveate.core.errors import OptionError
    from foveate.pipeline import encode as encode_image
    from foveate.tiles.re_encode import refine

    if output.suffix.lower() != TEXTURE:
        raise OptionError(
            f"--output {output}", expected=f"a name that ends in {TEXTURE}", fix=f"write -o {image.stem}{TEXTURE}"
        )
    start = time.perf_counter()
    with waiting(f"encoding {image}", encoder):
        texture = encode_image(
            image, encoder=encoder or "nano", rank=rank, long_side=long_side, channels=_names(channels)
        )
        if twice:
            texture = refine(texture, encoder=encoder)
    seconds = time.perf_counter() - start
    texture.save(output)
    print_table(f"{image} -> {output}", ("what", "value"), _facts(texture, seconds))
    print_json(
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
    names: ChannelNames = "all",
) -> None:
    """Draw all 40 channels of an image on one sheet."""
    import io

    from foveate.core.files import make_folder, write_whole
    from foveate.core.layout import FULL40, channel_named
    from foveate.viz.pictures import contact_sheet

    texture, seconds = _texture(image, encoder, None, names)
    sheet = io.BytesIO()
    contact_sheet(texture).save(sheet, "PNG")
    make_folder(out)
    path = out / f"{Path(texture.name).stem}--channels.png"
    write_whole(path, sheet.getvalue())
    rows, built = [], set(texture.built)
    for layer, name in enumerate(FULL40.names):
        plane = texture.channel(name)
        values = f"{plane.min():.3f} .. {plane.max():.3f}" if name in built else f"neutral {plane.flat[0]:g}"
        about = channel_named(name).about + (f" ({texture.made_by[name]})" if name in texture.made_by else "")
        rows.append((str(layer), name, f"{plane.shape[0]} x {plane.shape[1]}", values, about))
    print_table(str(image), ("layer", "channel", "native size", "values", "how"), rows)
    typer.echo(f"sheet: {path}")
    print_json(image=str(image), png=str(path), built=list(texture.built), encode_seconds=round(seconds, 4))


@app.command()
def zoom(
    image: Annotated[Path, typer.Argument(help="A large image: tiled TIFF, JPEG, PNG, ...")],
    query: Annotated[list[str], typer.Argument(help="Questions or noun phrases, each in quotes.")],
    share: Annotated[float, typer.Option(help="Share of the tiles that a question may look at, 0 to 1.")] = 0.09,
    encoder: EncoderName = None,
    out: Out = Path("foveate-out"),
    scene_folder: Annotated[
        Path | None,
        typer.Option(
            "--scene",
            metavar="FOLDER",
            help="Keeps what was encoded: a scene of this image in it is read, and written back at the end.",
        ),
    ] = None,
) -> None:
    """Find small things in a large image: encode only the tiles that a question makes promising."""
    import time

    from foveate.cli.terminal import counting
    from foveate.cli.zoom import zoom as look_closer
    from foveate.core.files import make_folder
    from foveate.tiles.file import is_scene
    from foveate.tiles.search import check_share, load, save, survey

    refuse_files(query)
    check_share(share)
    start = time.perf_counter()
    kept = scene_folder is not None and is_scene(scene_folder)
    if scene_folder is not None:
        make_folder(scene_folder)  # better now than after the work
    with waiting(f"reading {scene_folder}" if kept else f"surveying {image}", encoder):
        if scene_folder is not None and kept:
            scene = load(scene_folder, image, encoder=encoder)
        else:
            scene = survey(image, encoder=encoder or "nano")
    seconds = time.perf_counter() - start
    tiles = scene.counts[0] * scene.counts[1]
    with counting("looking closer", max(1, int(tiles * share)) * len(query)) as progress:
        done = iter(range(1, 10**9))
        scene, records = look_closer(
            scene, query, share=share, out=out, source=str(image.absolute()), progress=lambda *_: progress(next(done))
        )
    if scene_folder is not None:
        save(scene, scene_folder)
    rows = [
        (r["query"], f"{r['confidence']:.2f}" + ("" if r["detected"] else " (not found)"),
         f"y {r['peak'][0]:.0f}, x {r['peak'][1]:.0f}", f"{r['encoded']} of {tiles}", f"{r['seconds']:.1f} s", r["png"])
        for r in records
    ]  # fmt: skip
    height, width = scene.raster.size
    title = f"{image}  {height} x {width} px, {'read' if kept else 'surveyed'} in {seconds:.1f} s"
    print_table(title, ("query", "confidence", "where", "tiles encoded", "time", "picture"), rows)
    print_json(
        image=str(image),
        size=[height, width],
        survey_seconds=round(seconds, 3),
        scene=None if scene_folder is None else str(scene_folder),
        queries=records,
    )


@app.command()
def demo(out: Out = Path("demo"), budget: Budget = 273) -> None:
    """Run the main job on two bundled photographs, offline."""
    from importlib.resources import files

    records = []
    for name, queries in DEMO:
        photograph = Path(str(files("foveate") / "cli" / "photos" / name))
        texture, seconds = _texture(photograph, None, None)
        record = _report(photograph, texture, seconds, list(queries), budget, out, 0.0, None, quiet=True)
        for one in record["queries"]:
            del one["indices"]  # a wall of numbers; the JSON files have them
        records.append(record)
    print_json(demo=records)


@app.command()
def doctor() -> None:
    """Say what is installed: versions, extras, encoder files, threads."""
    from foveate.cli.doctor import examine

    report = examine()
    print_table("foveate doctor", ("what", "state"), [(row["what"], row["state"]) for row in report["rows"]])
    print_json(**report)
    if not report["ok"]:
        raise typer.Exit(1)


# --- shared by the commands ------------------------------------------------------------------------------------------


def _names(channels: str) -> Any:
    """--channels: a preset as it is, names as a list."""
    from foveate.channels.build import PRESETS

    return channels if channels in PRESETS else [name.strip() for name in channels.split(",")]


def _texture(
    path: Path, encoder: str | None, long_side: int | None, channels: str = "standard"
) -> tuple[Texture, float]:
    """A texture from an image (encoded) or from a texture file (read), and the seconds it took."""
    import time

    from foveate.core.errors import OptionError
    from foveate.pipeline import encode as encode_image
    from foveate.texture.texture import Texture

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
        with waiting(f"encoding {path}", encoder):
            texture = encode_image(path, encoder=encoder or "nano", long_side=long_side, channels=_names(channels))
    return texture, time.perf_counter() - start


def _report(
    image: Path,
    texture: Texture,
    seconds: float,
    queries: list[str],
    budget: Any,
    out: Path,
    floor: float,
    encoder: str | None,
    quiet: bool = False,
) -> dict[str, Any]:
    from foveate.cli.look import look as look_at

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
        (r["query"], " + ".join(r["phrases"]), f"{r['confidence']:.2f}" + ("" if r["detected"] else " (not found)"),
         f"{r['budget']} of {texture.grid.count}", f"{r['score_seconds'] * 1e3:.2f} ms", r["png"])
        for r in records
    ]  # fmt: skip
    title = f"{image}  {texture.grid.h} x {texture.grid.w} cells, {texture.encoder.name}, {seconds * 1e3:.0f} ms"
    print_table(title, ("query", "looks for", "confidence", "kept", "time", "picture"), rows)
    result = {
        "image": str(image),
        "encoder": texture.encoder.name,
        "grid": list(texture.grid.shape),
        "encode_seconds": round(seconds, 4),
        "queries": records,
    }
    if not quiet:
        print_json(**result)
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


def main() -> None:
    """Entry point of `foveate`."""
    if sys.argv[1:2] != ["evaluate"]:  # that measures what users of the library have
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads spin after each product, in the encoder's way
    run(app)


def run(program: typer.Typer) -> None:
    """Run a program; foveate's errors become messages, and a full pipe silence."""
    from foveate.core.errors import FoveateError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a question may hold what a terminal cannot show
    try:
        program()
        sys.stdout.flush()
    except FoveateError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        typer.echo("error: the output cannot be written: the disk is full; files already written are whole", err=True)
        sys.stderr.flush()
        os._exit(1)  # the usual exit would try to write the rest once more, and show that as a traceback
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
