"""`foveate doctor`: what is installed, and which words nano knows. Nothing is imported at the top that may fail."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli.terminal import print_json, print_table
from foveate.core.version import __version__

if TYPE_CHECKING:
    from foveate.language.phrase import Phrase

BASE = (
    "numpy", "opencv-python-headless", "pillow", "onnxruntime", "tokenizers", "safetensors", "typer", "rich",
    "cachetools",
)  # fmt: skip
EXTRAS = {
    "torch": ("torch", "transformers"),
    "vlm": ("torch", "transformers", "jinja2"),
    "train": ("peft",),
    "text": ("rapidocr", "pypdfium2"),
    "view": ("starlette", "uvicorn", "pydantic"),
    "large": ("tifffile", "imagecodecs"),
    "video": ("av",),
    "specialists": ("ai-edge-litert",),
    "store": ("pylance", "pyarrow"),
    "ray": ("ray", "pyarrow"),
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
AGAIN = "install foveate again from where it came: pip install --force-reinstall . in its clone, say"
MOST_NAMES, FAINT = 3, 0.05  # of a word, in the table

LEGEND = """
known    nano was taught it.
near     it was not; what is like it, or what it is a kind of, is looked for instead, the weaker, the less alike
         (1: at full strength), and its confidence is limited.
unknown  nothing that nano was taught is like it: its map stays low, and it does not count as detected.
         An encoder that reads any text: --encoder clip of 'foveate look' (see docs/which_encoder.md).
Who knows: the detector's things and the head's stuff, rooms, parts and clothes are seen from a hundredth of the picture
on; the classifier's classes from a tenth of its side on, and several of one kind are one place. MODEL_CARD.md has how
well each is seen."""


def doctor(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="With --words: words, or questions in quotes.")
    ] = None,
    ask_words: Annotated[
        bool, typer.Option("--words", help="Say of each WORD whether nano knows it, and what it looks for instead.")
    ] = False,
    vlm: Annotated[
        str | None,
        typer.Option("--vlm", metavar="NAME", help="Compare foveate with this vision-language model: name or folder."),
    ] = None,
) -> None:
    """Say what is installed: versions, extras, encoder files, threads; which words nano knows; or check a model."""
    if vlm is not None:
        _check_model(vlm)
        return
    if words or ask_words:
        _explain_words(words or [])
        return
    report = examine()
    print_table("foveate doctor", ("what", "state"), [(row["what"], row["state"]) for row in report["rows"]])
    print_json(**report)
    if not report["ok"]:
        raise typer.Exit(1)


def _explain_words(texts: list[str]) -> None:
    from foveate.core.errors import OptionError

    if not texts:
        raise OptionError("--words without a word", expected="one or more", fix="foveate doctor --words cat wheel sky")
    found = [word for text in texts for word in explain(text)]
    columns = ("word", "nano", "who knows", "looks for")
    print_table("which words nano knows", columns, [_explained(word) for word in found])
    typer.echo(LEGEND)
    print_json(words=found)


def _check_model(name: str) -> None:
    from dataclasses import asdict

    from foveate.vlm.loader import check, load_pair

    report = check(*load_pair(name))
    typer.echo(report)
    print_json(ok=report.ok, **asdict(report))
    if not report.ok:
        raise typer.Exit(1)


def explain(text: str) -> list[dict[str, Any]]:
    """The things that a text names, then what of it is not understood.

    {"word", "state": "known", "near" or "unknown", "names": {name: strength}, "who": the specialist of the strongest}
    each; "why", where there are no names.
    """
    from foveate.core.errors import QueryError
    from foveate.encoders.load import load_encoder
    from foveate.language.phrase import words_of
    from foveate.language.query import prepare

    encoder: Any = load_encoder("nano")
    try:
        query = prepare(encoder, text)
    except QueryError as error:
        return [{"word": text, "state": "unknown", "names": {}, "why": error.received}]
    found: list[dict[str, Any]] = []
    for word in dict.fromkeys(word for phrase in query.structure for word in words_of(phrase)):
        names = encoder.space.meaning(word)
        known = encoder.knows(word) and encoder.understood_as(word) is None
        state = "known" if known else "near" if encoder.understands(word) else "unknown"
        who = encoder.space.specialist(word) if names else ""
        found.append({"word": word, "state": state, "names": names, "who": who})
    seen = [word for phrase in query.structure for word in _described(phrase)]
    found += [
        {"word": word, "state": "known", "names": {}, "who": "the pixels", "like": like}
        for word, like in dict(seen).items()
        if word not in query.unknown
    ]
    named = {word["word"] for word in found}
    unread = [word for word in query.unknown if word not in named]  # "biggest", "on the left"
    return found + [{"word": word, "state": "unknown", "names": {}, "why": "it enters no map"} for word in unread]


def _described(phrase: Phrase) -> list[tuple[str, str]]:
    """The words that describe a thing and those around it, with how they are looked for."""
    out = [(word, "its colour, material or pattern") for word in phrase.attributes]
    if phrase.choice is not None:
        what = " ".join(phrase.choice.by)
        out.append((what, f"number {phrase.choice.number} of those that are found, by {what}"))
    return out + [each for thing in (phrase.place.things if phrase.place else ()) for each in _described(thing)]


def _explained(word: dict[str, Any]) -> tuple[str, str, str, str]:
    every = [(name, strength) for name, strength in word["names"].items() if strength >= FAINT]
    names, more = every[:MOST_NAMES], len(every) - MOST_NAMES
    if word["state"] == "unknown":
        like = word.get("why", "nothing")
    elif "like" in word:
        like = word["like"]
    elif word["state"] == "known":
        like = ", ".join(name for name, _ in names) + (f" and {more} more" if more > 0 else "")
    else:
        like = ", ".join(f"{name} {strength:.2f}" for name, strength in names)
    return word["word"], word["state"], "" if word["state"] == "unknown" else word["who"], like


def examine() -> dict[str, Any]:
    """-> {"ok": bool, "rows": [{"what", "state"}]}; not ok where the main job cannot run."""
    limits = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
    rows = [
        ("foveate", __version__),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        ("cpu", ", ".join([f"{platform.machine()}, {os.cpu_count()} cores", *limits])),
        *((name, _version(name) or f"MISSING: {AGAIN}") for name in BASE),
    ]
    for extra, packages in EXTRAS.items():
        missing = [p for p in packages if _version(p) is None]
        state = ", ".join(f"{p} {_version(p)}" for p in packages)
        rows.append((f"extra [{extra}]", f"not installed: pip install 'foveate[{extra}]'" if missing else state))
    works, state = _try_nano()
    rows.append(("encoder nano", state))
    rows += [(f"reader {name}", _try_reader(name)) for name in ("rapidocr", "tesseract")]
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    allowed = "allowed; for clip, siglip, tips, depth and vision-language models only"
    rows.append(("hub", "offline by HF_HUB_OFFLINE" if offline else allowed))
    return {
        "ok": works and all(_version(name) for name in BASE),
        "rows": [{"what": what, "state": state} for what, state in rows],
    }


def _try_nano() -> tuple[bool, str]:
    """Do the main job on a tiny image, whatever may be broken."""
    try:
        import numpy as np

        from foveate.encoders.nano import NanoEncoder
        from foveate.pipeline import encode, score

        encoder = NanoEncoder.built_in()
        image = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
        score(encode(image, encoder=encoder, long_side=64), "a dog", encoder=encoder)
        megabytes = sum((encoder.folder / file).stat().st_size for file in encoder.files) / 1e6
        return True, f"works, revision {encoder.revision}, {megabytes:.1f} MB, offline"
    except Exception as error:  # whatever it is, it is what the reader of this table wants to know
        return False, f"BROKEN: {type(error).__name__}: {str(error).splitlines()[0]}. {AGAIN}"


def _try_reader(name: str) -> str:
    try:
        import numpy as np

        from foveate.reading.readers import find_reader

        reader = find_reader(name)
        reader.read(np.full((64, 64, 3), 255, np.uint8))
        return f"works, {reader.name}"
    except ImportError as error:  # MissingExtraError is one
        return f"not installed: {getattr(error, 'fix', error)}"
    except Exception as error:
        return f"BROKEN: {type(error).__name__}: {str(error).splitlines()[0]}"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
