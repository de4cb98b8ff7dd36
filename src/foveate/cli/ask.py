"""`foveate ask`: questions to a vision-language model about one image; what needs no model is refused before it."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli import terminal
from foveate.cli.encode import TEXTURE, who_reads
from foveate.core.options import CHOOSING, MODEL_ARGS, PREPARE, SEE

if TYPE_CHECKING:
    from foveate.vlm.encoded import Answer, EncodedImage

QUESTION = "{question}"  # in a hand-written prompt: where the question goes


def ask(
    image: Annotated[Path, typer.Argument(help="An image, or a texture written by 'foveate encode' (.safetensors).")],
    question: Annotated[list[str], typer.Argument(help="Questions, each in quotes; the image is encoded once.")],
    model: Annotated[str, typer.Option(help="A vision-language model: a folder, or a name on the Hub.")],
    budget: terminal.TokenBudget = "auto",
    floor: Annotated[float | None, typer.Option(metavar="<0 to 1>", help=CHOOSING["floor"].help)] = None,
    policy: terminal.PolicyOption = None,
    mode: Annotated[str, typer.Option(help=PREPARE["mode"].help)] = "drop",
    method: Annotated[str, typer.Option(help=PREPARE["method"].help)] = "relevance",
    preset: terminal.PresetOption = None,
    encoder: terminal.EncoderName = None,
    prompt: Annotated[str | None, typer.Option(help=f"{PREPARE['prompt'].about} \\n is a new line.")] = None,
    read: Annotated[bool | None, typer.Option("--read/--no-read", help=SEE["read"].help)] = None,
    reader: terminal.ReaderName = None,
    words: terminal.WordsFile = None,
    page: terminal.PageNumber = None,
    chat: Annotated[
        bool, typer.Option("--chat", help="One dialogue: each question knows those before it, and their answers.")
    ] = False,
    max_new_tokens: Annotated[int, typer.Option(help=MODEL_ARGS["max_new_tokens"].help)] = 64,
    dtype: terminal.Dtype = "auto",
    device: terminal.Device = "auto",
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder for a picture and a JSON file for each question; made if needed.")
    ] = None,
) -> None:  # fmt: skip
    """Ask a vision-language model: it gets only the tokens where the question looks."""
    from foveate.core.files import make_folder
    from foveate.encoders.load import load_encoder
    from foveate.reading.pdf import open_source
    from foveate.relevance.options import parse_options
    from foveate.relevance.presets import find_preset
    from foveate.texture.texture import Texture
    from foveate.vlm import Choosing, load
    from foveate.vlm.inputs.prompt import check_question
    from foveate.vlm.loader import libraries

    terminal.refuse_files(image, question)
    prompt = None if prompt is None else prompt.replace("\\n", "\n")
    question, refused = terminal.answer_each(question, check_question)
    _check(question, budget, floor, policy, mode, method, prompt, max_new_tokens, chat)
    who, wanted = who_reads(read, reader), find_preset(preset).name if preset else None
    seen: Any
    if image.suffix.lower() == TEXTURE:
        seen = Texture.load(image)
        parse_options(seen, {"preset": wanted})
    else:
        picture, layer = open_source(image, page)
        seen = picture if layer is None else image  # a PDF brings its words
    load_encoder(encoder or "nano")
    libraries()  # a missing extra is said before anything is loaded
    start = time.perf_counter()
    hint = f"loading {model}" + ("" if Path(model).expanduser().is_dir() else " (downloaded if not in the cache)")
    if not sys.stderr.isatty():
        typer.echo(hint, err=True)
    with terminal.waiting(hint, None):
        vlm = load(model, dtype=dtype, device=device, encoder=encoder or "nano")
    load_seconds = time.perf_counter() - start
    if out is not None:
        make_folder(out)
    how: dict[str, Any] = {
        "budget": None if budget == "all" else budget,
        "mode": mode,
        "method": method,
        "choosing": Choosing(floor=floor, policy=policy),
        "generation": {"max_new_tokens": max_new_tokens},
        "scoring": terminal.load_words(words),
    }
    given = {
        "model": model,
        "budget": budget,
        "mode": mode,
        "method": method,
        "floor": floor,
        "policy": policy,
        "preset": wanted,
    }
    records, notes = list[dict[str, Any]](), dict[str, None]()
    try:
        with terminal.waiting(f"asking {model}", None):
            start = time.perf_counter()
            encoded = vlm.see(seen, page=page, mode="sparse" if mode == "sparse" else "drop", preset=wanted, read=who)
            see_seconds = time.perf_counter() - start
            rounds = vlm.chat(encoded) if chat else None
            for text in question:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    if rounds is None:
                        written = None if prompt is None else prompt.replace(QUESTION, text)
                        answer = vlm.ask(encoded, text, prompt=written, **how)
                    else:
                        answer = rounds.ask(text, **how)
                ours = [note for note in caught if note.category.__module__.startswith("foveate.")]
                notes |= dict.fromkeys(str(note.message) for note in ours)  # of what was asked, not of libraries
                identity = {"source": str(image.absolute()), "question": text, **given, "prompt": prompt}
                if chat:
                    identity["after"] = question[: len(records)]
                records.append(_record(encoded, answer, identity, out))
    finally:
        if records:  # also the answers before a question that could not be asked
            for note in notes:
                typer.echo(f"warning: {note}", err=True)
            title = (
                f"{image}  {encoded.tokens[0]} visual tokens, {type(vlm.model).__name__} on {vlm.model.device}, "
                f"loaded in {load_seconds:.1f} s, seen in {see_seconds:.2f} s"
            )
            _show(title, records)
            read_words = encoded.textures[0].words
            terminal.print_json(
                image=str(image), **given, encoder=encoder or "nano", load_seconds=round(load_seconds, 3),
                cells=encoded.tokens[0], see_seconds=round(see_seconds, 4),
                words=None if read_words is None else len(read_words), warnings=list(notes), questions=records,
                refused=refused,
            )  # fmt: skip
    if refused:
        raise typer.Exit(1)


def _show(title: str, records: list[dict[str, Any]]) -> None:
    rows = [
        (
            terminal.add_understood(r["question"], r),
            r["answer"],
            "{} of {}".format(*r["tokens"]),
            f"{sum(r['seconds'].values()):.2f} s",
        )
        for r in records
    ]
    terminal.print_table(title, ("question", "answer", "tokens", "time"), rows)
    terminal.print_files("pictures", [record["png"] for record in records if "png" in record])


def _check(
    questions: list[str],
    budget: Any,
    floor: float | None,
    policy: Any,
    mode: str,
    method: str,
    prompt: str | None,
    new: int,
    chat: bool,
) -> None:
    from foveate.allocation.allocation import Keep
    from foveate.core.checks import check_choice, check_int
    from foveate.core.errors import BudgetError, OptionError, PromptError
    from foveate.vlm.encoded import MODES
    from foveate.vlm.select.methods import METHODS

    Keep(floor, policy)  # refuses them
    check_choice("mode", mode, MODES)
    check_choice("method", method, METHODS)
    if budget not in ("auto", "lossless", "all"):
        check_int("budget", budget, fix="or 'auto', or 'lossless', or 'all'", error=BudgetError)
    check_int("max_new_tokens", new)
    for both, together, expected in (
        (chat and prompt is not None, "--chat with --prompt", "the model's chat template in every round"),
        (chat and mode == "crop", "--chat with --mode crop", "the same image in every round"),
        (policy is not None and method != "relevance", f"--policy with --method {method}", "a policy with relevance"),
        (prompt is not None and mode == "crop", "--prompt with --mode crop",
         "the chat template: the number of images is not known before"),
    ):  # fmt: skip
        if both:
            raise OptionError(together, expected=expected, fix="leave one of the two out")
    if prompt is not None and len(questions) > 1 and QUESTION not in prompt:
        raise PromptError(
            f"one prompt for {len(questions)} questions",
            expected=f"{QUESTION} where each question goes",
            fix=f"write --prompt 'USER: <image> {QUESTION} ASSISTANT:'",
        )


def _record(encoded: EncodedImage, answer: Answer, identity: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """For JSON; with `out`, the answer's picture and file are written. Mode "crop" keeps the picture's own grids."""
    grids, kept = encoded.layouts[0].grids, answer.chosen[0].kept
    record = {
        "question": identity["question"],
        "answer": answer.text,
        "kept": [
            {"grid": [grid.h, grid.w], "box": [round(side, 2) for side in grid.box], "indices": cells.indices.tolist()}
            for grid, cells in zip(grids, kept, strict=True)
        ],
        "tokens": list(answer.tokens),
        "seconds": {name: round(seconds, 6) for name, seconds in answer.seconds.items()},
        "looked_for": dict(answer.relevance[0].looked_for),
        "unknown": list(answer.relevance[0].unknown),
        "confidence": terminal.round_confidence(answer.relevance[0].confidence),
        "detected": answer.relevance[0].detected,
    }
    if answer.regions is not None:
        record["regions"] = answer.regions.boxes.tolist()
    if out is None:
        return record
    from foveate.viz import answer_page

    texture = encoded.textures[0]
    stem = out / f"{Path(texture.name).stem}--{terminal.make_slug(identity['question'])}--ask"
    return terminal.write_result(stem, identity, record, answer_page(answer), image=texture.name)
