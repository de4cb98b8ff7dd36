"""Values for other people's tools: supervision, FiftyOne, Rerun, imported when used. Their boxes begin with x."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import Allocation
from foveate.core.checks import check_type
from foveate.core.errors import MissingExtraError
from foveate.core.grid import check_whole
from foveate.relevance.value import Relevance
from foveate.viz.colours import QUESTIONS
from foveate.viz.layers import colour_heat, enlarge

HEAT_OPACITY = 0.6  # of heat over the photograph in Rerun; chosen by hand


def to_supervision(relevance: Relevance, threshold: float | None = None) -> Any:
    """The boxes of a question as `supervision.Detections`, the best first, for supervision's annotators.

    Args:
        relevance: of one question, which becomes `class_name`; confidence is how relevant each box is.
        threshold: as of `Relevance.boxes`.

    Raises MissingExtraError, OptionError, and what `Relevance.boxes` raises.
    """
    relevance = check_type("relevance", relevance, Relevance, fix="pass what score returned")
    supervision = _load("supervision")
    boxes = relevance.boxes(threshold)
    return supervision.Detections(
        xyxy=boxes[:, [1, 0, 3, 2]],
        confidence=relevance.score_boxes(boxes),
        class_id=np.zeros(len(boxes), int),
        data={"class_name": np.full(len(boxes), relevance.query)},
    )


def to_fiftyone(value: Relevance | Allocation, label: str = "kept") -> Any:
    """A label for a sample of FiftyOne: of a relevance its map, a `Heatmap`; of kept cells `Detections`, one a cell.

    >>> sample["bus"] = viz.to_fiftyone(relevance)                              # doctest: +SKIP

    Args:
        value: what score or allocate returned.
        label: of kept cells. Their confidence is the map's value there.

    Raises MissingExtraError without fiftyone; OptionError for another value, and for cells over a part of an image.
    """
    check_type("value", value, (Relevance, Allocation), fix="pass what score or allocate returned")
    check_whole(value.grid, "a label of an image")
    fiftyone = _load("fiftyone")
    if isinstance(value, Relevance):
        return fiftyone.Heatmap(map=np.array(value.map), range=[0, 1])
    corners = _corners(value.grid.boxes()[value.indices] / np.tile([value.grid.height, value.grid.width], 2))
    places = np.concatenate([corners["mins"], corners["sizes"]], 1).tolist()  # as shares of the image
    return fiftyone.Detections(
        detections=[
            fiftyone.Detection(label=label, bounding_box=place, confidence=score)
            for place, score in zip(places, value.scores.tolist(), strict=True)
        ]
    )


def to_rerun(
    relevance: Relevance, kept: Allocation | None = None, *, path: str = "foveate", recording: Any = None
) -> None:
    """Log a question to Rerun: `path/image` (of its texture), `path/heat`, `path/boxes`; `path/kept`, one box a cell.

    Args:
        relevance: of one question.
        kept: what allocate returned of it.
        path: of the entities.
        recording: a `rerun.RecordingStream`; None is the one that `rerun.init` began.

    Raises MissingExtraError without rerun; OptionError for other values, and for cells over a part of an image.
    """
    relevance = check_type("relevance", relevance, Relevance, fix="pass what score returned")
    check_whole(relevance.grid, "a picture")
    rerun = _load("rerun", "rerun-sdk")

    def log(name: Literal["image", "heat", "boxes", "kept"], entity: Any) -> None:
        rerun.log(f"{path}/{name}", entity, recording=recording)

    grid, boxes = relevance.grid, relevance.boxes()
    if relevance.texture is not None:
        log("image", rerun.Image(relevance.texture.pixel))
    heat = colour_heat(enlarge(relevance.map, (grid.height, grid.width)))
    log("heat", rerun.Image(heat, opacity=HEAT_OPACITY, draw_order=1))
    named = [f"{relevance.query} {score:.2f}" for score in relevance.score_boxes(boxes)]
    log("boxes", rerun.Boxes2D(**_corners(boxes), labels=named))
    if kept is not None:
        kept = check_type("kept", kept, Allocation, fix="pass what allocate returned")
        check_whole(kept.grid, "a picture")
        log("kept", rerun.Boxes2D(**_corners(kept.grid.boxes()[kept.indices]), colors=QUESTIONS[0]))


def _corners(boxes: NDArray[np.floating]) -> dict[str, NDArray[np.floating]]:
    low, high = boxes[:, 1::-1], boxes[:, :1:-1]
    return {"mins": low, "sizes": high - low}


def _load(name: str, package: str | None = None) -> Any:
    try:
        return import_module(name)
    except ImportError as cause:
        raise MissingExtraError(
            f"foveate.viz.to_{name} needs {name}, which is not installed",
            expected=f"the package {package or name}",
            fix=f"pip install {package or name}",
        ) from cause
