"""The command `foveate ask`. Only typer is imported at the top, so that `foveate --help` stays quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from foveate.cli.terminal import EncoderName, print_json, print_table, refuse_files, waiting


def _budget(text: str | int) -> int | str:
    try:
        return text if text in ("auto", "all") else int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a whole number nor 'auto' nor 'all'") from None


def ask(
    image: Annotated[Path, typer.Argument(help="An image.")],
    question: Annotated[list[str], typer.Argument(help="Questions, each in quotes; the image is encoded once.")],
    model: Annotated[str, typer.Option(help="A vision-language model: a folder, or a name on the Hub.")],
    budget: Annotated[
        Any,
        typer.Option(
            "--budget", "-k", parser=_budget, metavar="INTEGER|auto|all",
            help="Cells that the model gets, exactly; auto: by the map's mass; all: the stock model.",
        ),
    ] = 128,
    mode: Annotated[
        str, typer.Option(help="drop: after the tower. sparse: before it. weight: all, scaled. crop: regions, larger.")
    ] = "drop",
    method: Annotated[
        str,
        typer.Option(
            help="relevance; coverage, changed; or random, uniform, saliency, maxmin, dpp, downsample to compare."
        ),
    ] = "relevance",
    encoder: EncoderName = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="The whole prompt, for a model without a chat template: its image token, and {question} where the "
            "question goes; \\n is a new line."
        ),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Length of an answer, at most.")] = 64,
    dtype: Annotated[str, typer.Option(help="auto (the checkpoint's own), float32, bfloat16, float16.")] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    out: Annotated[
        Path | None, typer.Option(help="Folder for a picture and a JSON file for each question; made if needed.")
    ] = None,
) -> None:  # fmt: skip
    """Ask a vision-language model: it gets only the tokens where the question looks."""
    import time

    from foveate.cli.answers import ask as ask_all
    from foveate.cli.answers import check
    from foveate.core.image import load_image
    from foveate.encoders.load import load_encoder
    from foveate.vlm.load import load

    refuse_files(question)
    layout = None if prompt is None else prompt.replace("\\n", "\n")
    check(question, budget, mode, method, layout, max_new_tokens)
    picture = load_image(image)
    load_encoder(encoder or "nano")
    start = time.perf_counter()
    hint = f"loading {model}" + ("" if Path(model).expanduser().is_dir() else " (downloaded if not in the cache)")
    if not sys.stderr.isatty():
        typer.echo(hint, err=True)
    with waiting(hint, None):
        vlm = load(model, dtype=dtype, device=device, encoder=encoder or "nano")
    seconds = time.perf_counter() - start
    with waiting(f"asking {model}", None):
        found = ask_all(
            vlm, picture, question, budget=budget, mode=mode, method=method, prompt=layout,
            max_new_tokens=max_new_tokens, out=out, source=str(image.absolute()), model=model,
        )  # fmt: skip
    notes, records = found["warnings"], found["questions"]
    for note in notes:
        typer.echo(f"warning: {note}", err=True)
    rows = [
        (r["question"], r["answer"], "{} of {}".format(*r["tokens"]), f"{sum(r['seconds'].values()):.2f} s",
         *([r["png"]] if out else []))
        for r in records
    ]  # fmt: skip
    title = (
        f"{image}  {found['cells']} cells, {type(vlm.model).__name__} on {vlm.model.device}, "
        f"loaded in {seconds:.1f} s, seen in {found['see_seconds']:.2f} s"
    )
    print_table(title, ("question", "answer", "tokens", "time", *(["picture"] if out else [])), rows)
    print_json(
        image=str(image), model=model, encoder=encoder or "nano", mode=mode, method=method, budget=budget,
        load_seconds=round(seconds, 3), **found,
    )  # fmt: skip
