"""Ways to follow a question through a clip, and ways to send fewer tokens of it: ours, and those it is compared with.

Every way of following is made of the same steps (foveate/video/state.py), so that what differs is only what is said:
* every frame, blended: encoded as well, with our blend, smoothing and hysteresis. What propagation gains or loses
  is the difference to this one, not to frames that stand alone.
* plain copy: a flow that is always 0.
* previous-frame chaining: after each frame what was propagated is written down on its cells, as if it had been encoded
  there, and the next frame samples that. This is what one gets who warps the frame before by the flow to it.

Ways of sending, written from their descriptions:
* EVS (arXiv 2510.14624; vLLM's rule): how new a token is, is 1 - cosine to the token at its place in the frame before;
  the first frame is kept whole; the newest tokens of the whole clip are kept, ties in order, until a share is reached,
  which is never less than one frame.
* pixel difference: the same with the mean difference of a cell's colours.
Both rank the whole clip at once, which a stream cannot; both know no question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.channels.change import measure_change
from foveate.core.readonly import ReadOnly
from foveate.encoders.protocol import Encoder
from foveate.video.flow import Floats, Luma, no_flow
from foveate.video.propagation import blend_layers, make_layer
from foveate.video.refresh import Refresh
from foveate.video.state import Frame, Propagation, State, StreamSettings, step

K = 12
EVERY_FRAME, BLENDED, DEFAULTS, NO_BLEND, BY_AGE = (
    "every frame alone",
    "every frame, blended",
    "propagated (defaults)",
    "propagated, no blend",
    f"propagated, every {K}",
)
BARE, CHAINED, COPIED = (f"bare propagation, every {K}", f"chaining, every {K}", f"plain copy, every {K}")
PLAIN: Mapping[str, Any] = {"blend": 0.0, "smoothing": 0.0, "hysteresis": 0.0}


def no_motion(current: Luma, earlier: Luma) -> Floats:
    """A flow model that says that nothing moves."""
    return no_flow((earlier.shape[0], earlier.shape[1]))


def only_age(every: int) -> Refresh:
    """Whole frames at fixed intervals, and nothing else."""
    return Refresh(every=every, stale=2.0, residual=2.0, cut=2.0, parts=False)


@dataclass(frozen=True)
class Way:
    """A way to follow a clip: fields of Propagation, and whether it samples what was sampled before."""

    options: Mapping[str, Any] = field(default_factory=dict)
    chained: bool = False

    def how(self, encoder: Encoder, names: tuple[str, ...], **more: Any) -> StreamSettings:
        """What the steps take."""
        return StreamSettings(encoder, names, propagation=Propagation(**self.options), **more)


WAYS: Mapping[str, Way] = {
    EVERY_FRAME: Way({"refresh": Refresh(every=1), **PLAIN}),
    BLENDED: Way({"refresh": Refresh(every=1)}),
    DEFAULTS: Way(),
    NO_BLEND: Way({"blend": 0.0}),
    BY_AGE: Way({"refresh": only_age(K)}),
    BARE: Way({"refresh": only_age(K), **PLAIN}),
    CHAINED: Way({"refresh": only_age(K), **PLAIN}, chained=True),
    COPIED: Way({"refresh": only_age(K), "flow": no_motion, **PLAIN}),
}


def onward(
    before: State | None,
    rgb: NDArray[np.uint8],
    queries: tuple[str, ...],
    how: StreamSettings,
    *,
    chained: bool = False,
    flow: Floats | None = None,
) -> tuple[State, Frame]:
    """One frame further in one of the ways."""
    after, frame = step(before, rgb, "a frame", queries, how, flow)
    return (written_down(after, frame) if chained else after), frame


def written_down(state: State, frame: Frame) -> State:
    """What was propagated to a frame, as if it had been made there; ages stay."""
    if state.layers[0].age == 0:
        return state
    seen = blend_layers(state.layers, state.view)
    here = make_layer(seen.z, seen.residual, state.view)
    planes = {name: frame.texture.planes[name] for name in state.planes}
    return replace(
        state,
        layers=(replace(here, age=state.layers[0].age),),
        planes=ReadOnly(planes),
        planes_flow=no_flow(state.view.shape),
    )


def cosines(a: NDArray[np.floating], b: NDArray[np.floating]) -> Floats:
    """Cosine of the vectors at each place: [..., D], [..., D] -> float32 [...]; 0 where one of them has no length."""
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return np.asarray((a * b).sum(-1) / np.maximum(lengths, 1e-12), np.float32)


def evs_newness(features: NDArray[np.floating]) -> Floats:
    """Features of a clip [T, h, w, D] -> how new each token is by EVS's rule, float32 [T, h, w]; frame 0: infinite."""
    return _after_the_first(1 - cosines(features[1:], features[:-1]))


def pixel_newness(colours: NDArray[np.uint8]) -> Floats:
    """Colours of a clip's cells [T, h, w, n] -> mean difference to the frame before, in [0, 1]; frame 0: infinite."""
    changes = [measure_change(now, before) for now, before in zip(colours[1:], colours[:-1], strict=True)]
    return _after_the_first(np.array(changes, np.float32).reshape(-1, *colours.shape[1:3]))


def newest(newness: Floats, share: float) -> NDArray[np.bool_]:
    """The share of a clip's tokens [T, h, w] that are newest, of equal ones the earlier; never fewer than a frame's."""
    count = max(newness[0].size, int(newness.size * share))
    order = np.argsort(-newness.ravel(), kind="stable")
    kept = np.zeros(newness.size, bool)
    kept[order[:count]] = True
    return kept.reshape(newness.shape)


def _after_the_first(newness: NDArray[np.floating]) -> Floats:
    first = np.full((1, *newness.shape[1:]), np.inf)
    return np.asarray(np.concatenate([first, newness]), np.float32)
