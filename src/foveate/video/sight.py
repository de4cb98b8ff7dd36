"""What a picture shows by itself and beside the one before: all of a frame that needs no question and no state.

So it can be made ahead, by another thread, while the frames before it are answered (streams.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.channels.saliency import SIDE, compute_saliency
from foveate.core.readonly import Frozen
from foveate.video.flow import (
    Floats,
    FlowModel,
    View,
    check_flow,
    compare_views,
    estimate_flow,
    is_inside,
    make_view,
    to_confidence,
)


@dataclass(frozen=True, eq=False)
class Passage(Frozen):
    """From a picture to the one before, in samples of their views.

    Attributes:
        earlier: the view of the one before.
        flow: to it, float32 [y, x, 2]. uncovered: what it does not show, bool [y, x].
        trust: in the flow, float32 [y, x], 0 to 1.
        difference: of the median sample to where the flow points, 0 to 1.
    """

    earlier: View
    flow: Floats
    uncovered: NDArray[np.bool_]
    trust: Floats
    difference: float


@dataclass(frozen=True, eq=False)
class Sight(Frozen):
    """A picture, uint8 [H, W, 3]; its view; its saliency, float32 [64, 64]; and how it follows from the one before,
    None where that is not known."""

    rgb: NDArray[np.uint8]
    view: View
    salience: Floats
    passage: Passage | None = None


def look(rgb: NDArray[np.uint8], before: Sight | None = None, model: FlowModel | None = None) -> Sight:
    """A picture, and how it follows from the one before where that is given, with a model, and of the same size.

    Raises OptionError for a model that returns no flow.
    """
    view = make_view(rgb)
    passage = None
    if before is not None and model is not None and before.rgb.shape == rgb.shape:
        passage = find_passage(view, before.view, model)
    return Sight(rgb, view, compute_saliency(view.rgb, (SIDE, SIDE)), passage)


def find_passage(current: View, earlier: View, model: FlowModel) -> Passage:
    """By the flow of a model in both directions. Raises OptionError for a model that returns no flow."""
    flow, back = estimate_flow(model, current, earlier), estimate_flow(model, earlier, current)
    return _passage(earlier, flow, *check_flow(current, earlier, flow, back))


def follow_flow(current: View, earlier: View, flow: Floats) -> Passage:
    """By a flow that is known, with nothing uncovered."""
    return _passage(earlier, flow, np.zeros(current.shape, bool), compare_views(current, earlier, flow))


def _passage(earlier: View, flow: Floats, uncovered: NDArray[np.bool_], unlike: Floats) -> Passage:
    trust = to_confidence(unlike) * (is_inside(flow) & ~uncovered)
    return Passage(earlier, flow, uncovered, trust, float(np.median(unlike[::4, ::4])))
