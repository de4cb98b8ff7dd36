"""Is the verdict as good as the map? What is shown but not said to be there; what is said to be there and is not.

    python -m training.nano.premises --data DATA --out PREMISES
    python -m benchmarks verdict --data OPEN --data PREMISES --half B

Folders of open questions (questions.py); of those that `training.nano.premises` makes, the kind is the form of the
question. A map is right where its average precision is RIGHT or more. Calibration over ten bins compares confidence
with the share of the questions whose thing is there, and with the share whose map is right, too ("shown"); once for the
questions as they are, and once as if half of them asked for what is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import ArrayLike, NDArray

from benchmarks.common import EncoderName, Half
from benchmarks.open import Asked, ask, by_title
from benchmarks.questions import read_questions
from foveate.cli.evaluate.agreement import Estimate, auroc_estimate, mean_estimate, plain

Data = Annotated[list[Path], typer.Option(help="Folder with queries.json and its photographs; may be repeated.")]
RIGHT = 0.5  # average precision from which a map is right
BINS = 10
Floats = NDArray[np.float64]
THERE = ("of what is there", "questions", "detected", "precision", "right maps", "of right maps, detected")
NOT = ("of what is not there", "questions", "called there", "AUC against all right maps")
BIN = ("confidence", "questions", "mean", "there", "shown", "there (half)", "shown (half)")


def measure(
    data: Data, encoder: EncoderName = None, limit: Annotated[int | None, typer.Option()] = None, half: Half = None
) -> dict[str, Any]:
    """Is the verdict as good as the map?"""
    name, asked = encoder or "nano", list[Asked]()
    for folder in data:
        questions = read_questions(folder)
        asked += ask(questions if half is None else questions.half(half), name, limit)
    return make_report(asked, name) | {"half": half}


def make_report(asked: Sequence[Asked], encoder: str) -> dict[str, Any]:
    """A row for each form of question there and not there, the AUC, and how far confidence is from being right."""
    there, absent = [one for one in asked if one.there], [one for one in asked if not one.there]
    shown = [one for one in there if _is_right(one, encoder)]
    rows = [_there_row(title, some, encoder) for title, some in [*by_title(there).items(), ("all", there)]]
    false = {
        "title": "and although it is not there",
        "columns": NOT,
        "rows": [_absent_row(title, some, shown) for title, some in [*by_title(absent).items(), ("all", absent)]],
    }
    bins = _reliability(asked, encoder)
    return {
        "title": f"{len({one.image for one in asked})} photographs, {len(there)} questions about what is there, "
        f"{len(absent)} about what is not",
        "columns": THERE,
        "rows": rows,
        "false": false,
        "reliability": bins,
        "encoder": encoder,
        "after": [false, bins],
    }


def calibration_error(confidence: ArrayLike, right: ArrayLike, weights: ArrayLike = 1.0) -> float:
    """Expected calibration error: |mean confidence - share that is right|, over bins of equal width. All [n]."""
    values, truth = np.asarray(confidence, np.float64), np.asarray(right, np.float64)
    weight = np.broadcast_to(np.asarray(weights, np.float64), values.shape)
    differences = np.bincount(_bins(values), weight * (values - truth), minlength=BINS)
    return float(np.abs(differences).sum() / weight.sum())


def _bins(confidence: Floats) -> NDArray[np.int64]:
    return np.minimum((confidence * BINS).astype(np.int64), BINS - 1)


def _is_right(one: Asked, encoder: str) -> bool:
    return one.found[encoder].precision >= RIGHT


def _there_row(title: str, asked: Sequence[Asked], encoder: str) -> dict[str, Any]:
    right = [one for one in asked if _is_right(one, encoder)]
    columns = {
        "detected": _share(asked),
        "precision": mean_estimate([one.found[encoder].precision for one in asked], _images(asked)),
        "right": mean_estimate([_is_right(one, encoder) for one in asked], _images(asked)),
        "right_detected": _share(right),
    }
    return _row(title, len(asked), columns)


def _absent_row(title: str, asked: Sequence[Asked], shown: Sequence[Asked]) -> dict[str, Any]:
    both = [*shown, *asked]
    auc = auroc_estimate([o.confidence for o in both], np.array([o.there for o in both]), _images(both))
    return _row(title, len(asked), {"detected": _share(asked), "auc": auc})


def _row(title: str, number: int, columns: dict[str, Estimate]) -> dict[str, Any]:
    known = {"cells": [title, str(number), *map(str, columns.values())], "kind": title, "number": number}
    return known | {name: estimate.record() for name, estimate in columns.items()}


def _reliability(asked: Sequence[Asked], encoder: str) -> dict[str, Any]:
    """A row for each bin of confidence; the errors of four readings of it."""
    confidence = np.array([one.confidence for one in asked])
    there = np.array([one.there for one in asked])
    shown = np.array([one.there and _is_right(one, encoder) for one in asked])
    half = np.where(there, 0.5 / max(there.mean(), 1e-9), 0.5 / max(1 - there.mean(), 1e-9))
    readings = [(truth, weights) for weights in (np.ones(len(asked)), half) for truth in (there, shown)]
    errors = [calibration_error(confidence, truth, weights) for truth, weights in readings]
    rows, places = [], _bins(confidence)
    for number in np.unique(places):
        inside = places == number
        shares = [np.average(truth[inside], weights=weights[inside]) for truth, weights in readings]
        cells = [f"{number / BINS:.1f}", str(inside.sum()), *(f"{x:.2f}" for x in (confidence[inside].mean(), *shares))]
        rows.append({"cells": cells})
    rows.append({"cells": ["error", str(len(asked)), "", *(f"{error:.3f}" for error in errors)]})
    known = dict(zip(("there", "shown", "there_half", "shown_half"), (plain(e) for e in errors), strict=True))
    return {"title": "reliability of the confidence", "columns": BIN, "rows": rows, "errors": known}


def _share(asked: Sequence[Asked]) -> Estimate:
    return mean_estimate([one.detected for one in asked], _images(asked)) if asked else Estimate(*[float("nan")] * 3)


def _images(asked: Iterable[Asked]) -> list[int]:
    """Numbers of photographs, by name: the same one may come from two folders."""
    files = [one.image for one in asked]
    return np.unique(files, return_inverse=True)[1].tolist()
