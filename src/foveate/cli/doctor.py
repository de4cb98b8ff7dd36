"""`foveate doctor`: what is installed, and what is missing; to paste into a report of a problem. And which words nano
knows.

Nothing is imported at the top that could be what is broken.
"""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import typer

from foveate.cli.terminal import EncoderName, print_json, print_table
from foveate.core.version import __version__

BASE = (
    "numpy", "opencv-python-headless", "pillow", "onnxruntime", "tokenizers", "safetensors", "typer", "rich",
    "filelock", "cachetools",
)  # fmt: skip
EXTRAS = {
    "torch": ("torch", "transformers"),
    "vlm": ("torch", "transformers", "jinja2"),
    "train": ("peft",),
    "text": ("rapidocr", "pypdfium2"),
    "large": ("tifffile", "imagecodecs"),
    "video": ("av",),
    "faiss": ("faiss-cpu",),
    "ray": ("ray", "pyarrow"),
}
ENCODERS = ("nano",)  # built in; foveate.encoders.load, which may be what is broken, has the same
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MOST_NAMES, FAINT = 3, 0.05  # of a word, in the table

LEGEND = """
known    nano was taught it.
near     it was not; what is like it is looked for instead, the weaker, the less alike (1: the same).
unknown  nothing that nano was taught is like it: its map stays low, and it does not count as detected.
         An encoder that reads any text: --encoder clip of 'foveate look' (see docs/which_encoder.md)."""


def doctor(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="With --words: words, or questions in quotes.")
    ] = None,
    ask_words: Annotated[
        bool, typer.Option("--words", help="Say of each WORD whether nano knows it, and what it looks for instead.")
    ] = False,
    encoder: EncoderName = None,
) -> None:
    """Say what is installed: versions, extras, encoder files, threads; or which words nano knows."""
    from foveate.core.errors import OptionError

    if words or ask_words:
        _explain_words(words or [], encoder or "nano")
        return
    if encoder is not None:
        raise OptionError(
            f"--encoder {encoder} without --words",
            expected="--words and the words to be explained; the report of what is installed is of all encoders",
            fix="foveate doctor --words cat wheel sky, or foveate doctor alone",
        )
    report = examine()
    print_table("foveate doctor", ("what", "state"), [(row["what"], row["state"]) for row in report["rows"]])
    print_json(**report)
    if not report["ok"]:
        raise typer.Exit(1)


def _explain_words(texts: list[str], encoder: str) -> None:
    from foveate.core.errors import OptionError, QueryError

    if not texts:
        raise QueryError("--words without a word", expected="one or more", fix="foveate doctor --words cat wheel sky")
    if encoder != "nano":
        raise OptionError(
            f"--words with --encoder {encoder}",
            expected="nano: the one that was taught a list of words",
            fix="clip, siglip and tips read any text: try one with 'foveate look'",
        )
    found = [word for text in texts for word in explain(text)]
    print_table("which words nano knows", ("word", "nano", "looks for"), [_explained(word) for word in found])
    typer.echo(LEGEND)
    print_json(words=found)


def explain(text: str) -> list[dict[str, Any]]:
    """The things that a text names, then what of it is not understood.

    {"word", "state": "known", "near" or "unknown", "names": {name: strength}} each; "why", where there are no names.
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
        state = "known" if encoder.knows(word) else "near" if encoder.understands(word) else "unknown"
        found.append({"word": word, "state": state, "names": names})
    named = {word["word"] for word in found}
    unread = [word for word in query.unknown if word not in named]  # "biggest", "on the left"
    return found + [{"word": word, "state": "unknown", "names": {}, "why": "it enters no map"} for word in unread]


def _explained(word: dict[str, Any]) -> tuple[str, str, str]:
    names = [(name, strength) for name, strength in word["names"].items() if strength >= FAINT][:MOST_NAMES]
    if word["state"] == "unknown":
        like = word.get("why", "nothing")
    elif word["state"] == "known":
        like = ", ".join(name for name, _ in names)
    else:
        like = ", ".join(f"{name} {strength:.2f}" for name, strength in names)
    return word["word"], word["state"], like


def examine() -> dict[str, Any]:
    """-> {"ok": bool, "rows": [{"what", "state"}]}; not ok where the main job cannot run."""
    limits = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
    folder = _folder_of_clone()
    again = f"pip install --force-reinstall {'foveate' if folder is None else '.'}"
    rows = [
        ("foveate", __version__ + (f", from {folder}" if folder else "")),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        ("cpu", ", ".join([f"{platform.machine()}, {os.cpu_count()} cores", *limits])),
        *((name, _version(name) or f"MISSING: {again}") for name in BASE),
    ]
    for extra, packages in EXTRAS.items():
        missing = [p for p in packages if _version(p) is None]
        state = ", ".join(f"{p} {_version(p)}" for p in packages)
        rows.append((f"extra [{extra}]", f"not installed: {_command_for(extra, folder)}" if missing else state))
    tried = {name: _try_encoder(name, again) for name in ENCODERS}
    rows += [(f"encoder {name}", state) for name, (_, state) in tried.items()]
    rows += [("reader rapidocr", _try_reader("rapidocr")), ("reader tesseract", _try_reader("tesseract"))]
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    rows.append(
        (
            "hub",
            "offline by HF_HUB_OFFLINE"
            if offline
            else "allowed; for clip, siglip, tips, depth and vision-language models only",
        )
    )
    ok = all(working for working, _ in tried.values()) and all(_version(name) for name in BASE)
    return {"ok": ok, "rows": [{"what": what, "state": state} for what, state in rows]}


def _folder_of_clone() -> str | None:
    """The folder that foveate was installed from, where that was not an index."""
    try:
        source = json.loads(distribution("foveate").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # it runs without being installed
        return str(Path(__file__).parents[3])
    return url2pathname(urlsplit(source["url"]).path) if "dir_info" in source else None


def _command_for(extra: str, folder: str | None) -> str:
    return f"pip install 'foveate[{extra}]'" if folder is None else f"pip install '.[{extra}]' in the clone"


def _try_encoder(name: str, again: str) -> tuple[bool, str]:
    """Do the main job on a tiny image, whatever may be broken."""
    try:
        import numpy as np

        from foveate.encoders.load import BUILT_IN
        from foveate.pipeline import encode, score

        encoder = BUILT_IN[name].built_in()
        image = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
        score(encode(image, encoder=encoder, long_side=64), "a dog", encoder=encoder)
        megabytes = sum((encoder.folder / file).stat().st_size for file in encoder.files) / 1e6
        return True, f"works, revision {encoder.revision}, {megabytes:.1f} MB, offline"
    except Exception as error:  # whatever it is, it is what the reader of this table wants to know
        return False, f"BROKEN: {type(error).__name__}: {str(error).splitlines()[0]}. {again}"


def _try_reader(name: str) -> str:
    """Read a tiny image; readers are no part of the main job."""
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
