"""Ask a vision-language model several questions about one image, and write down what it said: `foveate ask`.

Floor 6, so it may know files and pictures. What can be refused without the model is refused before it is loaded.

Not covered: several images in one prompt, videos, sampling. Use foveate.vlm for those.
"""

from __future__ import annotations

import io
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.cli.look import place, slug
from foveate.core.errors import BudgetError, OptionError, PromptError, QueryError
from foveate.core.files import make_folder, write_whole
from foveate.core.image import Picture
from foveate.texture.texture import Texture
from foveate.viz.pictures import beside, dim
from foveate.vlm.encoded import Answer, Scene
from foveate.vlm.inputs.placement import Pane
from foveate.vlm.model import MODES, VLM
from foveate.vlm.select.choose import METHODS, Choice

QUESTION = "{question}"  # in a hand-written prompt: where the question goes
Budget = int | str


def check(questions: Sequence[str], budget: Budget, mode: str, method: str, prompt: str | None, new: int) -> None:
    """Raises QueryError, BudgetError, OptionError or PromptError for what no model could be asked."""
    for question in questions:
        if not question.strip():
            raise QueryError("an empty question", expected="a text", fix='ask "what is in the picture?", say')
    for name, value, known in (("mode", mode, MODES), ("method", method, METHODS)):
        if value not in known:
            raise OptionError(f"{name}={value!r}", expected=", ".join(known), fix="leave it out for the usual one")
    if budget not in ("auto", "all") and (not isinstance(budget, int) or budget < 1):
        raise BudgetError(
            f"budget={budget!r}", expected="a whole number from 1 on, 'auto' or 'all'", fix="leave it out for 128"
        )
    if new < 1:
        raise OptionError(f"{new} new tokens", expected="1 or more", fix="leave it out for 64")
    if prompt is not None and mode == "crop":
        raise OptionError(
            "a hand-written prompt with mode='crop'",
            expected="the chat template: how many images the prompt will have is not known before",
            fix="leave one of the two out",
        )
    if prompt is not None and len(questions) > 1 and QUESTION not in prompt:
        raise PromptError(
            f"one prompt for {len(questions)} questions",
            expected=f"{QUESTION} where each question goes",
            fix=f"write --prompt 'USER: <image> {QUESTION} ASSISTANT:'",
        )


def ask(
    vlm: VLM,
    image: Picture,
    questions: Sequence[str],
    *,
    budget: Budget = 128,
    mode: str = "drop",
    method: str = "relevance",
    prompt: str | None = None,
    max_new_tokens: int = 64,
    out: Path | None = None,
    source: str = "",
    model: str = "",
) -> dict[str, Any]:
    """See once, ask each question; write `<image>--<question>--ask.png` and `.json` into `out` if one is given.

    Args:
        budget: cells to keep, "auto" or "all".
        prompt: hand-written, with the model's image token, and `{question}` where each question goes.
        source, model: for the record: the image's path, the model's name.

    Returns:
        {"cells", "see_seconds", "warnings", "questions": [{"question", "answer", "kept", "tokens", "seconds", ...}]}

    Raises:
        As `check` and `VLM.ask`; OutputError.
    """
    check(questions, budget, mode, method, prompt, max_new_tokens)
    if out is not None:
        make_folder(out)
    start = time.perf_counter()
    scene = vlm.see(image, mode="sparse" if mode == "sparse" else "drop")
    seconds = time.perf_counter() - start
    records, notes = [], []
    for question in questions:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answer = vlm.ask(
                scene,
                question,
                budget=None if budget == "all" else budget,
                mode=mode,
                method=method,
                prompt=None if prompt is None else prompt.replace(QUESTION, question),
                generation={"max_new_tokens": max_new_tokens},
            )
        ours = (note for note in caught if Path(note.filename).is_relative_to(Path(__file__).parent))
        notes += [str(note.message) for note in ours]
        identity = {
            "source": source, "model": model, "question": question, "budget": budget, "mode": mode, "method": method,
            "prompt": prompt,
        }  # fmt: skip
        records.append(_recorded(scene, answer, identity, out))
    return {
        "cells": scene.cells[0],
        "see_seconds": round(seconds, 4),
        "warnings": list(dict.fromkeys(notes)),
        "questions": records,
    }


def _recorded(scene: Scene, answer: Answer, identity: dict[str, Any], out: Path | None) -> dict[str, Any]:
    texture, panes = scene.textures[0], _panes(scene, answer)
    record = {
        "question": identity["question"],
        "answer": answer.text,
        "kept": [
            {"grid": [pane.h, pane.w], "box": [round(side, 2) for side in pane.box], "indices": cells.tolist()}
            for pane, cells in panes
        ],
        "tokens": list(answer.tokens),
        "seconds": {name: round(seconds, 6) for name, seconds in answer.seconds.items()},
        "confidence": round(answer.relevance[0].confidence, 4),
        "detected": answer.relevance[0].detected,
    }
    if answer.regions is not None:
        record["regions"] = answer.regions.boxes.tolist()
    if out is None:
        return record
    path = place(out / f"{Path(texture.name).stem}--{slug(identity['question'])}--ask", identity)
    record |= {"png": f"{path}.png", "json": f"{path}.json"}
    picture = io.BytesIO()
    drawn(texture, answer, panes).save(picture, "PNG")
    write_whole(Path(record["png"]), picture.getvalue())
    write_whole(Path(record["json"]), json.dumps(identity | record | {"image": texture.name}).encode())
    return record


def _panes(scene: Scene, answer: Answer) -> list[tuple[Pane, NDArray[np.int64]]]:
    """Panes of the whole picture with their kept cells. Mode "crop" sees the picture anew, at the same places."""
    choice: Choice = answer.chosen[0]
    return [(pane, kept.indices) for pane, kept in zip(scene.placements[0].panes, choice.kept, strict=True)]


def drawn(texture: Texture, answer: Answer, panes: Sequence[tuple[Pane, NDArray[np.int64]]]) -> Image.Image:
    """Photograph, heat map, and what the model saw: bright where a kept cell of any pane, or a region, lies."""
    size = texture.grid.height, texture.grid.width
    boxes = [] if answer.regions is None else answer.regions.boxes.tolist()

    def third(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
        y, x = ((np.arange(n) + 0.5) * whole / n for n, whole in zip(rgb.shape[:2], size, strict=True))
        bright = np.zeros(rgb.shape[:2], bool)
        for pane, cells in panes:
            bright |= covered(pane, cells, y, x)
        for y0, x0, y1, x1 in boxes:
            bright |= np.outer((y >= y0) & (y < y1), (x >= x0) & (x < x1))
        return dim(rgb, bright)

    return beside(texture, answer.relevance[0], third, "{} of {} tokens".format(*answer.tokens))


def covered(
    pane: Pane, cells: NDArray[np.int64], y: NDArray[np.floating], x: NDArray[np.floating]
) -> NDArray[np.bool_]:
    """Which positions (y [h], x [w], in pixels of the image) lie in these cells of a pane: bool [h, w]."""
    y0, x0, y1, x1 = pane.box
    rows = np.floor((y - y0) / (y1 - y0) * pane.h).astype(np.int64)
    cols = np.floor((x - x0) / (x1 - x0) * pane.w).astype(np.int64)
    inside = np.outer((rows >= 0) & (rows < pane.h), (cols >= 0) & (cols < pane.w))
    mask = np.zeros((pane.h, pane.w), bool)
    mask.ravel()[cells] = True
    found: NDArray[np.bool_] = mask[np.clip(rows, 0, pane.h - 1)][:, np.clip(cols, 0, pane.w - 1)] & inside
    return found
