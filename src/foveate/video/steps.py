"""One frame: (state before, picture) -> (state after, frame). Pure: a state can be kept, and gone back to.

A key frame is encoded whole, and its features are mixed with what was carried there: a tower sees a running dog better
in one frame than in the next, and the mean of several looks is better than any one of them (`memory`, docs/video.md).
Between key frames everything is carried along the motion; colours, edges and saliency are the frame's own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foveate.channels.build import VISUAL, build_planes
from foveate.channels.change import describe_cells
from foveate.channels.saliency import compute_saliency
from foveate.core.errors import OptionError
from foveate.core.grid import Box
from foveate.core.image import Picture
from foveate.core.readonly import ReadOnly
from foveate.encoders.protocol import DenseFeatures, check_features
from foveate.pipeline import score, texture_of
from foveate.relevance.negatives import query_metric_of
from foveate.relevance.value import Relevances
from foveate.texture.basis import Basis, Metric, extended, inward, rounded_up
from foveate.texture.texture import Texture
from foveate.tiles.re_encode import RAMP, area_means, encode_part, fading, pixel_box, working_side
from foveate.video.flow import (
    Floats,
    View,
    at_cells,
    composed,
    flow_between,
    occluded,
    still,
    unlikeness,
    view_of,
    warped,
)
from foveate.video.frame import Asked, Frame, How, State
from foveate.video.propagate import Patch, Seen, moved, overlaid, patch_of, widened
from foveate.video.refresh import Reason, cost, importance, stale_parts, with_halo
from foveate.video.temporal import Step, looks, motion_of, smoothed, steadily, step_of
from foveate.video.transmit import sent_now

EXPLAINED = 0.02  # unlikeness of the median sample up to which the codec's motion is believed
NEW, EXTRA = 1.5, 8  # a part that the basis says this much less of than usual gets so many directions of its own
MOST_PATCHES = 8  # each costs its own flow in every frame
SEGMENTS_LAST = 30  # frames; then they are made again even where no frame was encoded
FRESH = ("saliency", "motion", "flow_y", "flow_x", "prev_relevance", "prev_saliency", "fixation")
LATER = (*VISUAL, "boundary")  # made of the frame itself when somebody looks: Frame.texture


def step(
    before: State | None,
    rgb: NDArray[np.uint8],
    name: str,
    queries: tuple[str, ...],
    how: How,
    flow: Floats | None = None,
    covered: NDArray[np.floating] | None = None,
) -> tuple[State, Frame]:
    """The next frame. Index, time and seconds of the frame are the caller's to fill in.

    Args:
        before: from the frame before; None for the first.
        rgb: uint8 [H, W, 3].
        name: of the frame, for messages.
        queries: texts that the encoder can read.
        how: see How.
        flow: to the frame before, where the caller knows it (from the codec); None asks the flow model.
        covered: float32 [y, x], how far the known flow speaks of each sample; None: of all.
    """
    view = view_of(rgb)
    if before is None or before.texture.grid.height != rgb.shape[0] or before.texture.grid.width != rgb.shape[1]:
        return _key(rgb, name, view, queries, how, "first")
    flow, uncovered = _motion(flow, covered, view, before.view, how)
    patches = tuple(moved(patch, flow, uncovered) for patch in before.patches)
    seen = overlaid(patches, view)
    last = step_of(flow, uncovered, view, before.view, before.texture.grid.shape)
    reason = how.refresh.key(patches[0].age, seen.confidence, seen.unlike, last.unlike, last.lost)
    if reason == "cut":
        return _key(rgb, name, view, queries, how, reason, side=before.side)
    boxes: list[Box] = []
    if reason is None and how.refresh.parts and before.part_age + 1 >= how.refresh.pause:
        boxes = stale_parts(seen.confidence, _matters(before, last))
        if cost(boxes, seen.confidence.shape) > how.refresh.most or len(patches) + len(boxes) > MOST_PATCHES:
            reason, boxes = "stale", []
    if boxes:
        try:
            renewed, patches = _with_parts(before, patches, rgb, view, boxes, how)
        except OptionError:  # an encoder that takes no images of this size: then it gets the whole
            reason, boxes = "stale", []
        else:
            before, seen = renewed, overlaid(patches, view)
    if reason is not None:
        return _key(rgb, name, view, queries, how, reason, before, seen, last, side=before.side)
    shared = before.planes_age == before.patches[0].age  # the usual case: both are of the key frame
    after = replace(
        before,
        patches=patches,
        planes_flow=patches[0].flow if shared else composed(flow, before.planes_flow),
        planes_age=before.planes_age + 1,
        view=view,
        part_age=0 if boxes else before.part_age + 1,
    )
    if after.planes_age >= SEGMENTS_LAST:
        after = _planes_again(after, rgb, seen, how)
    return _answered(after, rgb, name, queries, how, seen, last, before, reason=None, renewed=tuple(boxes))


def _motion(
    known: Floats | None, covered: NDArray[np.floating] | None, view: View, earlier: View, how: How
) -> tuple[Floats, NDArray[np.bool_]]:
    """The flow to the frame before and what that one lacked; a known flow is taken if it explains the picture.

    Where a known flow does not speak and the picture has changed, there is something new.
    """
    if known is not None:
        unlike = unlikeness(view, earlier, known)
        if float(np.median(unlike[::4, ::4])) <= EXPLAINED:
            new = np.zeros(view.shape, bool) if covered is None else (covered < 0.5) & (unlike > EXPLAINED)
            return known, new
    flow, back = flow_between(how.flow, view, earlier), flow_between(how.flow, earlier, view)
    return flow, occluded(flow, back)


def _key(
    rgb: NDArray[np.uint8],
    name: str,
    view: View,
    queries: tuple[str, ...],
    how: How,
    reason: Reason,
    before: State | None = None,
    seen: Seen | None = None,
    last: Step | None = None,
    side: float | None = None,
) -> tuple[State, Frame]:
    """A frame that is encoded whole, mixed with what was carried to it."""
    dense = how.tower.encode_image(rgb, long_side=how.long_side)
    check_features(how.tower, dense, (rgb.shape[0], rgb.shape[1]))
    if before is not None and seen is not None and how.memory > 0:
        share = (np.float32(how.memory) * seen.confidence)[..., None]
        mixed = (1 - share) * dense.features + share * before.basis.restore(seen.z)
        dense = DenseFeatures(np.asarray(mixed, np.float32), dense.grid)
    names = [channel for channel in how.names if channel not in LATER]
    texture = texture_of(Picture(rgb, None, name), dense, how.tower, names, rank=how.rank, long_side=how.long_side)
    after = State(
        texture=texture,
        basis=texture.basis,
        patches=(patch_of(texture.embedding, texture.residual, view),),
        planes=ReadOnly({name: plane for name, plane in texture.planes.items() if name not in (*FRESH, *LATER)}),
        planes_flow=still(view.shape),
        planes_age=0,
        view=view,
        asked=(),
        fixation=np.zeros(texture.grid.shape, np.float32),
        part_age=how.refresh.pause,
        side=side,
    )
    return _answered(after, rgb, name, queries, how, overlaid(after.patches, view), last, before, reason=reason)


def _with_parts(
    before: State, patches: tuple[Patch, ...], rgb: NDArray[np.uint8], view: View, boxes: list[Box], how: How
) -> tuple[State, tuple[Patch, ...]]:
    """The patches and those of the boxes, all in one basis, which the state then has."""
    if before.side is None:
        before = replace(before, side=working_side(before.texture, how.tower))
    for box in boxes:
        patch, basis = _renewed(rgb, view, box, before, how)
        before, patches = replace(before, basis=basis), (*patches, patch)
    return before, tuple(widened(patch, before.basis.rank) for patch in patches)


def _renewed(rgb: NDArray[np.uint8], view: View, box: Box, before: State, how: How) -> tuple[Patch, Basis]:
    """A part of the frame, encoded with its surroundings, and the field's basis, with room for what is new in it."""
    grid, basis = before.texture.grid, before.basis
    h, w = grid.shape
    cells = (max(0, box[0] - RAMP), max(0, box[1] - RAMP), min(h, box[2] + RAMP), min(w, box[3] + RAMP))
    pixels = pixel_box(with_halo(box, grid.shape), grid)
    share = max(pixels[2] - pixels[0], pixels[3] - pixels[1]) / max(grid.height, grid.width)
    assert before.side is not None  # _with_parts has asked for it
    fine = area_means(encode_part(rgb, pixels, how.tower, before.side * share), pixels, grid, cells)
    metric = query_metric_of(how.tower)
    z_part, left = _coordinates(fine, basis, metric)
    usual = float(np.median(before.texture.residual))
    if float(np.median(np.linalg.norm(left, axis=-1))) > NEW * usual:
        basis = extended(basis, left.reshape(-1, basis.width), metric, EXTRA)
        z_part, left = _coordinates(fine, basis, metric)
    z, residual = np.zeros((h, w, basis.rank), np.float32), np.zeros((h, w), np.float32)
    part = (slice(cells[0], cells[2]), slice(cells[1], cells[3]))
    z[part], residual[part] = z_part, np.linalg.norm(left, axis=-1)
    cover = np.zeros((h, w), np.float32)
    cover[part] = fading(grid.shape, cells)
    return patch_of(z, residual, view, cover), basis


def _coordinates(features: Floats, basis: Basis, metric: Metric) -> tuple[Floats, Floats]:
    """Features [..., D] in a basis that stands, [..., r], and what that leaves over, [..., D]."""
    z = np.asarray((features - basis.mean) @ inward(basis, metric), np.float32)
    return z, np.asarray(features - basis.restore(z), np.float32)


def _planes_again(state: State, rgb: NDArray[np.uint8], seen: Seen, how: How) -> State:
    names = [name for name in how.names if name not in (*FRESH, *LATER)]
    planes, _ = build_planes(names, rgb, seen.z)
    kept = ReadOnly({name: plane.astype(np.float16) for name, plane in planes.items()})
    return replace(state, planes=kept, planes_flow=still(state.view.shape), planes_age=0)


def _matters(before: State, last: Step) -> Floats | None:
    """How much a cell matters for the questions asked: by the frame before, carried."""
    if not before.asked:
        return None
    return importance(last.carried(np.max([one.relevance.map for one in before.asked], 0)))


def _texture(state: State, rgb: NDArray[np.uint8], name: str, seen: Seen, planes: dict[str, Floats]) -> Texture:
    """The frame as a texture, without the planes that are made only when somebody looks."""
    key = state.texture
    kept = seen.z.astype(np.float16)
    if state.planes_age:
        carried = {n: _plane_now(key, n, plane, state.planes_flow) for n, plane in state.planes.items()}
    else:
        carried = dict(state.planes)
    rounding = np.linalg.norm(seen.z - kept.astype(np.float32), axis=-1) * _steepest(state.basis)
    return replace(
        key,
        pixel=rgb,
        planes={**carried, **{n: plane.astype(np.float16) for n, plane in planes.items()}},
        embedding=kept,
        basis=state.basis,
        residual=rounded_up(seen.residual + rounding),
        name=name,
    )


def _steepest(basis: Basis) -> np.float32:
    """No change of coordinates by 1 changes features by more than this: sqrt of the largest |B B^T| row sum."""
    rows = basis.rows.astype(np.float32)
    return np.float32(np.sqrt(np.abs(rows @ rows.T).sum(1).max()))


def _plane_now(key: Texture, name: str, plane: NDArray[np.float16], flow: Floats) -> NDArray[np.float16]:
    nearest = key.describe(name).filter == "nearest" or name.startswith("cluster_")
    return warped(plane, at_cells(flow, (plane.shape[0], plane.shape[1])), nearest=nearest).astype(np.float16)


def _answered(
    state: State,
    rgb: NDArray[np.uint8],
    name: str,
    queries: tuple[str, ...],
    how: How,
    seen: Seen,
    last: Step | None,
    before: State | None,
    *,
    reason: Reason | None,
    renewed: tuple[Box, ...] = (),
) -> tuple[State, Frame]:
    """The questions put to a frame whose features are known."""
    grid = state.texture.grid
    planes = {"saliency": compute_saliency(state.view.rgb, grid.shape)}
    old: dict[str, Asked] = {}
    fixation = state.fixation
    if before is not None and last is not None:
        old = {one.query: one for one in before.asked}
        fixation = np.clip(last.carried(before.fixation), 0, 1)
        planes["motion"] = motion_of(state.view, before.view, grid.shape)
        planes["flow_y"], planes["flow_x"] = last.moved(grid)
        if old:
            top = np.max([one.relevance.map for one in old.values()], 0)
            planes["prev_relevance"] = np.clip(last.carried(top), 0, 1)
            planes["prev_saliency"] = np.clip(last.carried(next(iter(old.values())).relevance.saliency), 0, 1)
        planes["fixation"] = fixation
    texture = _texture(state, rgb, name, seen, planes)
    look_now = describe_cells(state.view.rgb, grid)
    relevances, kept, new, asked = [], [], [], []
    for query in queries:
        found, earlier = score(texture, query, encoder=how.tower), old.get(query)
        if earlier is not None and last is not None:
            found = smoothed(found, earlier.relevance, last, how.smooth)
        held = None
        if earlier is not None and last is not None:
            held = (last.carried(earlier.kept, nearest=True) > 0.5) & (last.trust > 0.5)
        chosen = steadily(found, held, how.hold, how.budget, floor=how.floor, policy=how.policy, window=how.window)
        send, sent = sent_now(look_now, chosen.indices, None if earlier is None else earlier.sent, how.changed)
        relevances.append(found)
        kept.append(chosen)
        new.append(send)
        asked.append(Asked(query, found, chosen.mask, sent))
    if kept:
        fixation = looks(fixation, np.any([one.mask for one in kept], 0))
    after = replace(state, asked=tuple(asked), fixation=fixation)
    frame = Frame(
        index=0,
        time=0.0,
        relevance=Relevances(tuple(relevances)),
        kept=tuple(kept),
        kept_new=tuple(new),
        key=reason is not None,
        reason=reason,
        renewed=renewed,
        confidence=seen.confidence,
        seconds=0.0,
        _carried=texture,
        _names=how.names,
    )
    return after, frame
