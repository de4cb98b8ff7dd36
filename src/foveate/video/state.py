"""One frame: (state before, picture) -> (state after, frame). Pure: a state can be kept, and gone back to.

A keyframe is encoded whole and, unless it is the first or follows a cut, mixed with the features propagated to it.
Between keyframes features are propagated along the motion; colours, edges and saliency are the frame's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.allocation import Allocation, Budget, Keep
from foveate.channels.build import SEGMENTS, VISUAL, Channels
from foveate.channels.segments import mark_borders
from foveate.channels.visual import CHANGED, compute_visual_planes, describe_cells
from foveate.core.arrays import to_half, to_single
from foveate.core.checks import check_number, check_type
from foveate.core.display import Drawable
from foveate.core.errors import OptionError
from foveate.core.grid import Box, Grid, resize_map
from foveate.core.image import Picture
from foveate.core.layout import native_shape
from foveate.core.readonly import Frozen
from foveate.core.threads import products_in_one_thread
from foveate.encoders.protocol import DenseFeatures, Encoder, check_features
from foveate.language.negatives import query_metric_of
from foveate.pipeline import build_texture, score
from foveate.reading.words import WordReader, Words
from foveate.relevance.presets import PresetName, fill, find_preset, remember_preset
from foveate.relevance.value import Relevance, Relevances
from foveate.texture.basis import Basis, Metric, extended, inward, rounded_up, widened
from foveate.texture.texture import Texture
from foveate.tiles.re_encode import RAMP, area_means, encode_part, fading, pixel_box, working_side
from foveate.video import temporal
from foveate.video.flow import Dis, Floats, FlowModel, Sight, View, find_passage, look, resize_flow, stack, warp
from foveate.video.outlook import Begin, Outlook, Situation, look_at, look_further
from foveate.video.propagation import Field, Layer, blend_layers, cover_all, find_trust, make_layer, widen
from foveate.video.refresh import Reason, Refresh, add_halo, find_stale_parts, measure_cost, weigh_cells
from foveate.video.words import Writing, follow, read_frame, words_now

if TYPE_CHECKING:
    from PIL import Image

# By hand: a part of which compression leaves out NEW times as much as usual gets EXTRA directions more.
NEW, EXTRA = 1.5, 8
FADED = 0.001  # propagated features nowhere larger are dropped: else every keyframe has more columns than the last
MOST_LAYERS = 8  # each costs its own flow in every frame; by hand
FRESH: tuple[str, ...] = (
    "saliency",
    "motion",
    "flow_y",
    "flow_x",
    "prev_relevance",
    "prev_saliency",
    "fixation",
    "gaze",
)
LATER = (*VISUAL, "boundary")  # made of the frame itself when `Frame.texture` is read


@dataclass(frozen=True, eq=False)
class Propagation:
    """How the frames of a clip follow from one another: `stream(propagation=Propagation(...))`.

    Attributes:
        flow: Dis(), or a function (current, earlier: luma uint8 [h, w]) -> flow, see flow.py.
        refresh: when to encode again.
        blend: share of the propagated features in those of a keyframe, 0 to 1; 0: a keyframe's own only.
        smoothing: share of the previous frame's map in each map, 0 to 1.
        hysteresis: advantage of cells that were kept before, as a share of the map's peak, 0 to 1.
        changed: mean difference of a cell's colours, 0 to 1, above which it is sent again (`Frame.kept_new`).
        read_every: seconds of the clip from one reading to the next, at least; a cut is read whenever it comes.
        prior_weight: share of the prior in each map, 0 to 1; None is the preset's, else 0.3.
    """

    flow: FlowModel = field(default_factory=Dis)
    refresh: Refresh = field(default_factory=Refresh)
    blend: float = 0.5  # this, smoothing and hysteresis were measured on few clips: docs/log.md
    smoothing: float = 0.5
    hysteresis: float = 0.05
    changed: float = CHANGED
    read_every: float = 2.0
    prior_weight: float | None = None

    def __post_init__(self) -> None:
        for name in ("blend", "smoothing", "hysteresis", "changed"):
            check_number(name, getattr(self, name), fix=f"leave it out for {getattr(Propagation, name):g}")
        check_number("read_every", self.read_every, 0, None, fix="leave it out for 2 seconds")
        if self.prior_weight is not None:
            check_number("prior_weight", self.prior_weight, fix="leave it out for 0.3")
        check_type("refresh", self.refresh, Refresh, fix="for other intervals pass Refresh(every=24)")
        if not callable(self.flow):
            raise OptionError(
                f"flow={self.flow!r}",
                expected="Dis() or a function (current, earlier) -> flow; motion vectors of a codec are not read",
                fix="leave it out for Dis()",
            )


@dataclass(frozen=True, eq=False)
class StreamSettings:
    """Checked keywords of `stream`."""

    encoder: Encoder
    names: tuple[str, ...]  # of planes
    timed: tuple[str, ...] = FRESH  # those of them that each frame makes anew
    methods: Channels | None = None
    long_side: int | None = None
    rank: int | None = None
    budget: Budget = "auto"
    keep: Keep = field(default_factory=Keep)
    propagation: Propagation = field(default_factory=Propagation)
    reader: WordReader | None = None
    preset: PresetName | None = None
    prior: str | None = None


@dataclass(frozen=True, eq=False)
class PastAnswer(Frozen):
    """What a question left behind in the frame before."""

    query: str
    relevance: Relevance
    kept: NDArray[np.bool_]
    sent: temporal.Sent


@dataclass(frozen=True, eq=False)
class State(Frozen):
    """What the next frame needs of the ones before; its size does not depend on how many they were."""

    texture: Texture  # of the last keyframe
    basis: Basis  # of the layers: the keyframe's, and directions for what came into the picture since
    layers: tuple[Layer, ...]  # the keyframe's features and those renewed since
    planes: Mapping[str, NDArray[np.float16]]  # the keyframe's channels that are propagated: segments, writing
    view: View  # this frame as flow sees it
    answers: tuple[PastAnswer, ...]  # one for each question
    fixation: Floats  # [h, w]
    part_age: int  # frames since parts were last encoded again
    segment_age: int  # of the last keyframe: frames since segments were made
    side: float | None  # working size of the encoder for a whole frame; None until a part has to be encoded
    writing: Writing | None = None  # what was last read; None without a reader
    gaze: Floats | None = None  # [h, w]; None before the first look
    time: float = 0.0  # of the frame, in seconds
    outlooks: tuple[Outlook, ...] = ()  # of the next pictures, where they were there already


@dataclass(frozen=True, eq=False)
class Frame(Frozen, Drawable):
    """One frame's answer. With several questions `relevance` is Relevances, `kept` and `kept_new` are tuples.

    Attributes:
        index: 0, 1, ... of the frames that could be read.
        time: seconds since the first, by the clip's own clock.
        kept: the cells to spend tokens on.
        kept_new: those of them that changed since they were last sent, ascending indices.
        reason: why the whole frame was encoded ("first", "cut", "age", "stale", "residual"); None where it was not.
        renewed: boxes of cells (y0, x0, y1, x1) that were encoded again in a frame that is not a keyframe.
        confidence: of the propagated features, float32 [h, w] in [0, 1]; 1 in a keyframe.
        seconds: that it took from when it was asked for.
    """

    index: int
    time: float
    relevance: Relevance | Relevances
    kept: Allocation | tuple[Allocation, ...]
    kept_new: NDArray[np.int64] | tuple[NDArray[np.int64], ...]
    reason: Reason | None
    renewed: tuple[Box, ...]
    confidence: Floats
    seconds: float
    _texture: Texture
    _names: tuple[str, ...]

    def picture(self, **how: Any) -> Image.Image:
        """The picture of its relevance; without a question, of its texture."""
        return (self.relevance if self.answers else self.texture).picture(**how)

    @property
    def keyframe(self) -> bool:
        """Whether the whole frame was encoded."""
        return self.reason is not None

    @property
    def answers(self) -> list[tuple[Relevance, Allocation, NDArray[np.int64]]]:
        """(relevance, kept, kept_new) of each question."""
        if isinstance(self.kept, Allocation):
            return [(self.relevance, self.kept, self.kept_new)]  # type: ignore[list-item]
        return list(zip(self.relevance, self.kept, self.kept_new, strict=True))  # type: ignore[arg-type]

    @property
    def grid(self) -> Grid:
        return self._texture.grid

    @property
    def rgb(self) -> NDArray[np.uint8]:
        """The picture, uint8 [H, W, 3]."""
        return self._texture.pixel

    @property
    def words(self) -> Words | None:
        """What is written in it, with boxes; None where the stream does not read."""
        return self._texture.words

    @cached_property
    def texture(self) -> Texture:
        """The frame as a texture: its own colours and edges, propagated embedding."""
        fresh = compute_visual_planes(self.rgb) if set(VISUAL) & set(self._names) else {}
        if "boundary" in self._names and self._texture.has("object_id"):
            ids = self._texture.channel("object_id").astype(np.int64)
            fresh = {**fresh, "boundary": mark_borders(ids, native_shape("quarter", self._texture.grid))}
        planes = {name: to_half(plane) for name, plane in fresh.items() if name in self._names}
        return replace(self._texture, planes={**self._texture.planes, **planes}) if planes else self._texture

    def __repr__(self) -> str:
        kept = ", ".join(str(len(kept)) for _, kept, _ in self.answers)
        kind = f"keyframe ({self.reason})" if self.keyframe else "propagated"
        return f"Frame({self.index}, {self.time:.3f} s, {kind}, {kept} of {self.grid.count} cells)"


@dataclass(frozen=True, eq=False)
class StepInput:
    """Arguments of `step`, beside the state before."""

    sight: Sight
    name: str
    queries: tuple[str, ...]
    settings: StreamSettings
    time: float
    gaze: tuple[float, float] | None = None
    upcoming: Sequence[Sight] = ()
    begin: Begin = lambda sight: None
    outlook: Outlook | None = None  # of this picture; None of the first
    known: tuple[Outlook, ...] = ()  # of the next ones

    def look_further(self, layers: tuple[Layer, ...], shape: tuple[int, int], part_age: int) -> tuple[Outlook, ...]:
        now = Situation(self.sight.view, layers, shape, part_age)
        return look_further(now, self.known, self.upcoming, self.settings.propagation.refresh, self.begin)


@products_in_one_thread()
def step(
    before: State | None,
    picture: NDArray[np.uint8] | Sight,
    name: str,
    queries: tuple[str, ...],
    settings: StreamSettings,
    time: float = 0.0,
    gaze: tuple[float, float] | None = None,
    upcoming: Sequence[Sight] = (),
    begin: Begin = lambda sight: None,
) -> tuple[State, Frame]:
    """The next frame; its index, time and seconds are filled in by the caller.

    picture: uint8 [H, W, 3], or what `look` saw in it. time: of the frame, in seconds. gaze: where a person looks,
    (y, x) in pixels of the picture. upcoming: what comes next, as far as it is known; those that will be encoded whole
    are given to `begin`, for the same features sooner.
    """
    sight = picture if isinstance(picture, Sight) else look(picture)
    rgb = sight.rgb
    given = StepInput(sight, name, queries, settings, time, gaze, upcoming, begin)
    if before is None or (before.texture.grid.height, before.texture.grid.width) != rgb.shape[:2]:
        return _encode_keyframe(given, "first")
    rules, shape = settings.propagation.refresh, before.texture.grid.shape
    if before.outlooks and before.outlooks[0].sight is sight:
        outlook, known = before.outlooks[0], before.outlooks[1:]
    else:
        passage = sight.passage
        if passage is None or passage.earlier is not before.view:
            passage = find_passage(sight.view, before.view, settings.propagation.flow)
        outlook = look_at(Situation(before.view, before.layers, shape, before.part_age), sight, passage, rules)
        known = ()
    given = replace(given, outlook=outlook, known=known)
    both = zip(outlook.found.layers, before.layers, strict=True)
    layers = tuple(replace(moved, covered=layer.covered) for moved, layer in both)
    writing = None if before.writing is None else follow(before.writing, rgb)
    motion, reason, trust = outlook.motion, outlook.reason, outlook.trust
    if reason == "cut":
        return _encode_keyframe(given, reason, side=before.side)
    boxes: list[Box] = []
    if not outlook.sure:
        maps = [one.relevance.map for one in before.answers]  # cells matter as they did in the frame before
        weight = weigh_cells(motion.propagate(np.max(maps, 0))) if maps else None
        boxes = find_stale_parts(trust.confidence, weight)
        if measure_cost(boxes, shape) > rules.most or len(layers) + len(boxes) > MOST_LAYERS:
            reason, boxes = "stale", []
    if boxes:
        try:
            before, layers = _add_parts(given, before, layers, boxes)
            trust = find_trust(layers, sight.view)
        except OptionError:  # an encoder that takes no images of this size: then it gets the whole
            reason, boxes = "stale", []
    if reason is not None:
        before = replace(before, layers=layers)
        return _encode_keyframe(given, reason, before, blend_layers(layers, trust), motion, before.side, writing)
    part_age = 0 if boxes else before.part_age + 1
    outlooks = given.look_further(layers, shape, part_age)
    after = replace(before, layers=layers, view=sight.view, part_age=part_age, writing=writing, outlooks=outlooks)
    return _answer(given, after, blend_layers(layers, trust), motion, before, None, tuple(boxes))


def _encode_keyframe(
    given: StepInput,
    reason: Reason,
    before: State | None = None,
    features: Field | None = None,
    motion: temporal.Motion | None = None,
    side: float | None = None,
    writing: Writing | None = None,
) -> tuple[State, Frame]:
    rgb, settings, view = given.sight.rgb, given.settings, given.sight.view
    dense = None
    if given.outlook is not None and given.outlook.early is not None:
        with suppress(CancelledError):  # another thread closed the stream
            dense = given.outlook.early.result()
    if dense is None:
        dense = settings.encoder.encode_image(rgb, long_side=settings.long_side)
    shape, part_age = dense.grid.shape, settings.propagation.refresh.pause
    outlooks = given.look_further((cover_all(shape, view),), shape, part_age)
    check_features(settings.encoder, dense, (rgb.shape[0], rgb.shape[1]))
    if before is not None and features is not None and settings.propagation.blend > 0:
        dense = _mix(dense, features, before.basis, settings.propagation.blend)
    names = [channel for channel in settings.names if channel not in (*FRESH, *LATER)]
    segment_age, moved = 0, dict[str, NDArray[np.float16]]()
    if before is not None and before.segment_age + before.layers[0].age < settings.propagation.refresh.segments:
        segment_age = before.segment_age + before.layers[0].age
        moved = {n: plane for n, plane in _propagate_planes(before).items() if n in SEGMENTS}
        names = [channel for channel in names if channel not in moved]
    if settings.reader is not None:
        names = [channel for channel in names if channel != "text"]  # the boxes of its words are that channel
    texture = build_texture(
        Picture(rgb, None, given.name), dense, settings.encoder, names, settings.methods,
        rank=settings.rank, long_side=settings.long_side,
    )  # fmt: skip
    texture = remember_preset(replace(texture, planes={**texture.planes, **moved}), settings.preset)
    after = State(
        texture=texture,
        basis=texture.basis,
        layers=(make_layer(texture.embedding, texture.residual, view),),
        planes=texture.planes,
        view=view,
        answers=(),
        fixation=np.zeros(texture.grid.shape, np.float32),
        part_age=part_age,
        segment_age=segment_age,
        side=side,
        writing=_read(given, writing),
        outlooks=outlooks,
    )
    return _answer(given, after, blend_layers(after.layers, find_trust(after.layers, view)), motion, before, reason)


def _mix(dense: DenseFeatures, old: Field, basis: Basis, blend: float) -> DenseFeatures:
    """Features with a share of the propagated ones, `blend` times the confidence in those."""
    share, columns = (np.float32(blend) * old.confidence)[..., None], dense.columns
    weights = np.concatenate([share * old.z, share], -1)
    rows = np.concatenate([basis.rows, basis.mean[None]], dtype=np.float32)
    if columns is not None:
        others = np.setdiff1d(np.flatnonzero(basis.rows.any(0)), columns)
        others = others[np.abs(weights @ rows[:, others]).max((0, 1)) >= FADED]
        columns = np.concatenate([columns, others])
        rows = rows[:, columns]
    mixed = weights @ rows  # share (mean + z rows)
    mixed[..., : dense.features.shape[-1]] += (1 - share) * dense.features
    return DenseFeatures(mixed, dense.grid, columns=columns)


def _read(given: StepInput, before: Writing | None) -> Writing | None:
    settings = given.settings
    if settings.reader is None:
        return None
    if before is not None and given.time - before.time < settings.propagation.read_every:
        return before
    return read_frame(given.sight.rgb, given.name, given.time, settings.reader)


def _add_parts(
    given: StepInput, before: State, layers: tuple[Layer, ...], boxes: list[Box]
) -> tuple[State, tuple[Layer, ...]]:
    side = before.side or working_side(before.texture, given.settings.encoder)
    before = replace(before, side=side)
    for box in boxes:
        layer, basis = _encode_part(given, box, before, side)
        before, layers = replace(before, basis=basis), (*layers, layer)
    return before, tuple(widen(layer, before.basis.rank) for layer in layers)


def _encode_part(given: StepInput, box: Box, before: State, side: float) -> tuple[Layer, Basis]:
    grid, basis, encoder = before.texture.grid, before.basis, given.settings.encoder
    h, w = grid.shape
    cells = (max(0, box[0] - RAMP), max(0, box[1] - RAMP), min(h, box[2] + RAMP), min(w, box[3] + RAMP))
    pixels = pixel_box(add_halo(box, grid.shape), grid)
    share = max(pixels[2] - pixels[0], pixels[3] - pixels[1]) / max(grid.height, grid.width)
    dense = encode_part(given.sight.rgb, pixels, encoder, side * share)
    fine, width = area_means(dense.features, pixels, grid, cells), basis.width
    columns = np.arange(width) if dense.columns is None else dense.columns
    heard = fine.any((0, 1))
    old = np.setdiff1d(np.flatnonzero(basis.rows.any(0) | (basis.mean != 0)), columns[heard])
    used = np.concatenate([columns[heard], old])  # the others are 0 before and after
    basis = Basis(basis.mean[used], basis.rows[:, used])
    fine = np.pad(fine[..., heard], ((0, 0), (0, 0), (0, len(old))))
    metric = query_metric_of(encoder).of(used)
    z_part, left = _compress(fine, basis, metric)
    usual = float(np.median(before.texture.residual))
    if float(np.median(np.linalg.norm(left, axis=-1))) > NEW * usual:
        basis = extended(basis, left.reshape(-1, basis.width), metric, EXTRA)
        z_part, left = _compress(fine, basis, metric)
    z, residual = np.zeros((h, w, basis.rank), np.float32), np.zeros((h, w), np.float32)
    part = (slice(cells[0], cells[2]), slice(cells[1], cells[3]))
    z[part], residual[part] = z_part, np.linalg.norm(left, axis=-1)
    cover = np.zeros((h, w), np.float32)
    cover[part] = fading(grid.shape, cells)
    return make_layer(z, residual, given.sight.view, cover), widened(basis, used, width)


def _compress(features: Floats, basis: Basis, metric: Metric) -> tuple[Floats, Floats]:
    z = np.asarray((features - basis.mean) @ inward(basis, metric), np.float32)
    return z, np.asarray(features - basis.restore(z), np.float32)


def _make_texture(given: StepInput, state: State, features: Field, planes: dict[str, Floats]) -> Texture:
    halves = to_half(features.z)
    older = _propagate_planes(state) if state.layers[0].age else state.planes
    rows = state.basis.rows.astype(np.float32)
    steepest = np.float32(np.sqrt(np.abs(rows @ rows.T).sum(1).max()))  # >= the largest singular value of the rows
    rounding = np.linalg.norm(features.z - to_single(halves), axis=-1) * steepest
    texture = replace(
        state.texture,
        pixel=given.sight.rgb,
        planes={**older, **{n: to_half(plane) for n, plane in planes.items()}},
        embedding=halves,
        basis=state.basis,
        residual=rounded_up(features.residual + rounding),
        name=given.name,
        looks=None,  # they are those of the keyframe
    )
    if state.writing is None:
        return texture
    return texture.with_words(words_now(state.writing))


def _propagate_planes(state: State) -> dict[str, NDArray[np.float16]]:
    kinds: dict[tuple[tuple[int, ...], bool], list[str]] = {}
    for name, plane in state.planes.items():
        nearest = state.texture.describe(name).filter == "nearest" or name.startswith("cluster_")
        kinds.setdefault((plane.shape, nearest), []).append(name)
    moved: dict[str, NDArray[np.float16]] = {}
    for (shape, nearest), names in kinds.items():
        flow = resize_flow(state.layers[0].flow, (shape[0], shape[1]))
        seen = warp(stack(*(state.planes[name] for name in names)), flow, nearest=nearest)
        moved |= {name: to_half(seen[..., i]) for i, name in enumerate(names)}
    return {name: moved[name] for name in state.planes}


def _answer(
    given: StepInput,
    state: State,
    features: Field,
    motion: temporal.Motion | None,
    before: State | None,
    reason: Reason | None,
    renewed: tuple[Box, ...] = (),
) -> tuple[State, Frame]:
    grid, settings, rules = state.texture.grid, given.settings, given.settings.propagation
    prior = find_preset(settings.preset).scoring.get("prior") if settings.prior is None else settings.prior
    planes = {"saliency": np.clip(resize_map(given.sight.salience, grid.shape), 0, 1)}
    old: dict[str, PastAnswer] = {}
    fixation, gaze = state.fixation, None if before is None else before.gaze
    timed = {*settings.timed, prior}
    if before is not None and motion is not None:
        old = {one.query: one for one in before.answers}
        if "motion" in timed:
            planes["motion"] = temporal.compute_change(state.view, before.view, grid.shape)
        if "flow_y" in timed:
            planes["flow_y"], planes["flow_x"] = motion.in_pixels(grid)
        if old and "prev_relevance" in timed:
            top = np.max([one.relevance.map for one in old.values()], 0)
            planes["prev_relevance"] = np.clip(motion.propagate(top), 0, 1)
        if old and "prev_saliency" in timed:
            planes["prev_saliency"] = np.clip(motion.propagate(next(iter(old.values())).relevance.saliency), 0, 1)
        if "fixation" in timed:
            planes["fixation"] = fixation = np.clip(motion.propagate(before.fixation), 0, 1)
        gaze = None if gaze is None else motion.propagate(gaze)
    if gaze is not None or given.gaze is not None or prior == "gaze":
        none = np.zeros(grid.shape, np.float32)
        passed = 0.0 if before is None else given.time - before.time
        planes["gaze"] = gaze = temporal.update_gaze(none if gaze is None else gaze, passed, given.gaze, grid)
    texture = _make_texture(given, state, features, planes)
    scoring = fill({"encoder": settings.encoder}, prior=settings.prior, prior_weight=rules.prior_weight)
    if prior is not None and not (texture.has(prior) and texture.channel(prior).any()):
        scoring["prior"] = None  # none before the first frame, or before the first look
    look_now = describe_cells(state.view.rgb, grid)
    found, kept, new, answers = [], [], [], []
    for query in given.queries:
        relevance, earlier = score(texture, query, **scoring), old.get(query)
        kept_before = None
        if earlier is not None and motion is not None:
            relevance = temporal.smooth_relevance(relevance, earlier.relevance, motion, rules.smoothing)
            kept_before = motion.propagate_kept(earlier.kept)
        chosen = temporal.allocate_steadily(relevance, kept_before, rules.hysteresis, settings.budget, settings.keep)
        before_sent = None if earlier is None else earlier.sent
        send, sent = temporal.select_changed(look_now, chosen.indices, before_sent, rules.changed)
        kept.append(chosen)
        new.append(send)
        past = replace(relevance, texture=None)  # the state keeps no pixels
        answers.append(PastAnswer(query, past, chosen.mask, sent))
        found.append(relevance)
    if kept and "fixation" in timed:
        looks = np.any([one.mask for one in kept], 0)
        fixation = np.asarray(temporal.OLD_LOOKS * fixation + (1 - temporal.OLD_LOOKS) * looks, np.float32)
    after = replace(state, answers=tuple(answers), fixation=fixation, gaze=gaze, time=given.time)
    frame = Frame(
        index=0,
        time=0.0,
        relevance=Relevances(tuple(found)),
        kept=tuple(kept),
        kept_new=tuple(new),
        reason=reason,
        renewed=renewed,
        confidence=features.confidence,
        seconds=0.0,
        _texture=texture,
        _names=settings.names,
    )
    return after, frame
