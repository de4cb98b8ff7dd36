"""What one step hands to the next, number by number: flows known exactly, one cell of motion a frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import foveate
from foveate.core.grid import Grid
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import DenseFeatures
from foveate.texture.basis import Basis
from foveate.tiles.re_encode import RAMP, fading
from foveate.video import Frame, Refresh, stream
from foveate.video import state as steps
from foveate.video.flow import Floats
from foveate.video.propagation import Field
from foveate.video.refresh import add_halo
from foveate.video.state import State, StreamSettings, step
from tests.video_scenes import Counting, grouped, panning, photo, seen_after

SIZE, SIDE, CELLS = (96, 128), 128, (12, 16)  # pixels, working size of the encoder, cells of 8 pixels
NEVER = Refresh(every=100, parts=False, stale=2, residual=2, cut=2)
EACH = Refresh(every=1, parts=False, stale=2, residual=2, cut=2)
LEFT = np.zeros((*SIZE, 2), np.float32)  # what is seen moves to the left by a cell: it was 8 samples further right
LEFT[..., 1] = 8
CHILD, GREENS = "a child", "broccoli"
Bytes = NDArray[np.uint8]


def how(**changes: Any) -> StreamSettings:
    usual: dict[str, Any] = {"long_side": SIDE, "budget": 20, "refresh": NEVER, "names": ("saliency",)}
    usual |= {"encoder": load_encoder("nano"), "smoothing": 0.0, "hysteresis": 0.0}
    return StreamSettings(**grouped(usual | changes))


def follow(
    pictures: Sequence[Bytes], setup: StreamSettings, queries: tuple[str, ...] = (CHILD,), flow: Floats | None = LEFT
) -> tuple[list[State], list[Frame]]:
    """States and frames of a clip whose flow is known."""
    state, states, frames = None, [], []
    for i, rgb in enumerate(pictures):
        sight = seen_after(None if state is None else state.view, rgb, flow)
        state, frame = step(state, sight, str(i), queries, setup)
        states.append(state)
        frames.append(frame)
    return states, frames


def new(frame: Frame, number: int = 0) -> set[int]:
    return {int(cell) for cell in frame.kept_new[number]}


def kept(frame: Frame, number: int = 0) -> NDArray[np.bool_]:
    return np.asarray(frame.kept[number].mask)  # type: ignore[index]


def restored(state: State, frame: Frame) -> Floats:
    """The features that a frame says it has."""
    return np.asarray(state.basis.restore(np.asarray(frame.texture.embedding, np.float32)), np.float32)


@pytest.fixture(scope="module")
def pan() -> list[Bytes]:
    return list(panning(6, SIZE, 8.0))


@pytest.mark.parametrize("some", [True, False])
def test_a_keyframe_is_mixed_with_what_came_along_but_for_what_has_faded(some: bool) -> None:
    """Beside the sum over all columns; and what is only in the older frame goes when it is small everywhere."""
    random = np.random.default_rng(3)
    rows, mean = random.normal(size=(3, 9)).astype(np.float16), random.normal(size=9).astype(np.float32)
    rows[:, 2], rows[:, 7], mean[7] = 0, 1e-4, 1e-4  # in the mean alone; faded
    basis, z = Basis(mean, rows), random.normal(size=(*CELLS, 3)).astype(np.float32)
    old = Field(z, np.zeros(CELLS, np.float32), random.random(CELLS, np.float32))
    columns = np.array([1, 4, 8]) if some else None
    own = random.normal(size=(*CELLS, 3 if some else 9)).astype(np.float32)
    grid = Grid(*CELLS, *SIZE)
    mixed = steps._mix(DenseFeatures(own, grid, columns=columns), old, basis, 0.5)
    share = 0.5 * old.confidence[..., None]
    both = share * basis.restore(z) + (1 - share) * DenseFeatures(own, grid, columns=columns).full(9)
    kept = [0, 1, 3, 4, 5, 6, 8] if some else list(range(9))
    assert mixed.columns is None or sorted(mixed.columns) == kept
    np.testing.assert_allclose(mixed.full(9)[..., kept], both[..., kept], atol=1e-5)


def corner(rgb: Bytes, right: bool) -> Bytes:
    """With a bus in a lower corner."""
    shown, bus = rgb.copy(), photo(96, 128, "yellow_bus.jpg")
    shown[96:, 128:] = bus if right else shown[96:, 128:]
    shown[96:, :128] = shown[96:, :128] if right else bus
    return shown


# --- what is inherited ------------------------------------------------------------------------------------------------


def test_cells_kept_before_are_held_where_they_went(pan: list[Bytes]) -> None:
    setup = how(hysteresis=1.0)
    (state,), _ = follow(pan[:1], setup)
    before = np.zeros(CELLS, bool)
    before[2:6, 4:9] = True
    state = replace(state, answers=(replace(state.answers[0], kept=before),))
    _, frame = step(state, seen_after(state.view, pan[1], LEFT), "1", (CHILD,), setup)
    np.testing.assert_array_equal(kept(frame), np.roll(before, -1, 1))


def test_looks_and_the_last_maps_move_with_the_picture(pan: list[Bytes]) -> None:
    states, frames = follow(pan[:3], how(), (CHILD, GREENS))
    texture, before = frames[2].texture, states[1]
    largest = np.max([one.relevance.map for one in before.answers], 0)
    for name, plane in (
        ("fixation", before.fixation),
        ("prev_relevance", np.clip(largest, 0, 1)),
        ("prev_saliency", np.clip(before.answers[0].relevance.saliency, 0, 1)),
    ):
        assert np.ptp(plane) > 0.05, name
        np.testing.assert_allclose(texture.channel(name)[:, :-1], plane[:, 1:], atol=1e-3, err_msg=name)
    both = kept(frames[2], 0) | kept(frames[2], 1)
    expected = 0.9 * before.fixation[:, 1:] + 0.1 * both[:, :-1]
    np.testing.assert_allclose(states[2].fixation[:, :-1], expected, atol=1e-5)


# --- features ---------------------------------------------------------------------------------------------------------


def test_blending_leaves_cells_to_which_nothing_was_propagated(pan: list[Bytes]) -> None:
    """A keyframe blended as far as possible: the last column, which came in, is fresh; the rest is propagated."""
    encoder = load_encoder("nano")
    states, frames = follow(pan[:2], how(refresh=EACH, blend=1.0))
    assert frames[1].reason == "age"
    dense = [encoder.encode_image(rgb, long_side=SIDE).full(encoder.width) for rgb in pan[:2]]
    left = np.linalg.norm(dense[1] - restored(states[1], frames[1]), axis=-1)
    residual = frames[1].texture.residual.astype(np.float32)
    assert (left[:, -1] <= residual[:, -1] + 1e-4).all()
    assert (np.linalg.norm(dense[0][:, -1] - dense[1][:, -1], axis=-1) > 2 * residual[:, -1]).all()
    is_inside = np.linalg.norm(dense[1] - dense[0][:, np.r_[1:16, 15]], axis=-1)[:, 1:-2]
    assert np.median(left[:, 1:-2] / is_inside) > 0.5  # there, what the encoder gives now has next to no say


@pytest.mark.parametrize("rank", [None, 6])
def test_the_error_bound_holds_for_the_worst_questions(pan: list[Bytes], rank: int | None) -> None:
    """What compression left out of a cell is the question it hurts most: in a keyframe, and propagated from there."""
    encoder, (states, frames) = load_encoder("nano"), follow(pan[:2], how(rank=rank))
    features = encoder.encode_image(pan[0], long_side=SIDE).full(encoder.width)
    for state, frame, cells, truth in (
        (states[0], frames[0], np.s_[:, :], features),
        (states[1], frames[1], np.s_[:, :-1], features[:, 1:]),
    ):
        left = truth - restored(state, frame)[cells]
        worst = np.unravel_index(np.argmax(np.linalg.norm(left, axis=-1)), left.shape[:2])
        q = left[worst][None]
        wrong = np.abs(frame.texture.scores(q)[0][cells] - truth @ q[0])
        assert wrong[worst] > 0
        assert (wrong <= 1.001 * frame.texture.error_bound(q)[0][cells] + 1e-6).all()
        lengths = np.linalg.norm(left, axis=-1)
        assert (lengths <= 1.001 * frame.texture.residual.astype(np.float32)[cells] + 1e-5).all()


# --- parts ------------------------------------------------------------------------------------------------------------


def renewing(**changes: Any) -> StreamSettings:
    rules: dict[str, Any] = {"every": 100, "stale": 2, "residual": 2, "cut": 2, "most": 1} | changes
    return how(encoder=Counting(), long_side=256, refresh=Refresh(**rules))


def test_a_part_is_encoded_at_its_own_scale_and_fades_into_its_surroundings() -> None:
    scene = photo(192, 256)
    setup = renewing()
    states, frames = follow([scene, corner(scene, right=True)], setup, flow=None)
    (box,) = frames[1].renewed
    (_, _, whole), (high, wide, side) = setup.encoder.looks  # type: ignore[attr-defined]
    assert whole == 256
    assert max(high, wide) < 256
    assert side == max(high, wide)  # 256 of 256 pixels for the whole
    cells = (max(0, box[0] - RAMP), max(0, box[1] - RAMP), 24, 32)
    cover = np.zeros((24, 32), np.float32)
    cover[cells[0] :, cells[1] :] = fading((24, 32), cells)
    assert ((cover > 0) & (cover < 1)).any()
    np.testing.assert_array_equal(states[1].layers[1].covered[..., -1], cover)
    top, left_side, _, _ = add_halo(box, (24, 32))
    part = corner(scene, right=True)[8 * top :, 8 * left_side :]  # cells of 8 pixels, for the whole and for the part
    nano = load_encoder("nano")
    features = nano.encode_image(part, long_side=side).full(nano.width)[16 - top :, 20 - left_side :]
    left = np.linalg.norm(features - restored(states[1], frames[1])[16:, 20:], axis=-1)
    residual = frames[1].texture.residual[16:, 20:].astype(np.float32)
    assert (left <= 1.001 * residual + 1e-5).all()
    assert np.median(left / residual) > 0.5


@pytest.mark.parametrize(
    ("rules", "layers", "renewed", "reasons"),
    [
        ({"pause": 1}, 8, [False, True, True], [None, None]),
        ({"pause": 2}, 8, [False, True, False], [None, None]),
        ({"pause": 1}, 2, [False, True, False], [None, "stale"]),
        ({"most": 0.05}, 8, [False, False, False], ["stale", "stale"]),
    ],
)
def test_parts_are_few_and_cheap_and_come_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any], layers: int, renewed: list[bool], reasons: list[str | None]
) -> None:
    monkeypatch.setattr(steps, "MOST_LAYERS", layers)
    scene = photo(192, 256)
    clip = [scene, corner(scene, right=True), corner(corner(scene, right=True), right=False)]
    _, frames = follow(clip, renewing(**rules), flow=None)
    assert [len(frame.renewed) > 0 for frame in frames] == renewed
    assert [frame.reason for frame in frames[1:]] == reasons


# --- what is kept and sent --------------------------------------------------------------------------------------------


def test_each_question_has_its_own_record_of_what_was_sent() -> None:
    """In a still clip nothing is new, in whatever order the questions are asked; what only the other was sent is."""
    scene = photo(*SIZE)
    setup = how()
    state, first = step(None, scene, "0", (CHILD, GREENS), setup)
    assert not np.array_equal(kept(first, 0), kept(first, 1))
    assert [len(new(first, number)) for number in (0, 1)] == [20, 20]
    state, second = step(state, scene, "1", (GREENS, CHILD), setup)
    np.testing.assert_array_equal(kept(second, 0), kept(first, 1))
    assert [new(second, number) for number in (0, 1)] == [set(), set()]
    assert [one.query for one in state.answers] == [GREENS, CHILD]
    one, other = (replace(answers, query=name) for answers, name in zip(state.answers, ("a dog", "a cat"), strict=True))
    _, third = step(replace(state, answers=(one, other)), scene, "2", (GREENS, CHILD), setup)
    assert [len(new(third, number)) for number in (0, 1)] == [20, 20]


@pytest.mark.parametrize("changed", [0.0, 0.03])
def test_what_counts_as_changed(changed: float) -> None:
    """Two levels of 255 in each cell are a change for 0 alone."""
    scene = photo(*SIZE) // 2
    options: dict[str, Any] = {"budget": 60, "long_side": SIDE, "refresh": NEVER, "hysteresis": 0, "smoothing": 0}
    one, other = stream([scene, scene + 2], CHILD, **grouped(options | {"changed": changed}))
    again = set(one.kept.indices) & set(other.kept.indices)  # type: ignore[union-attr]
    assert len(again) > 20
    assert set(other.kept_new) & again == (again if changed == 0 else set())


def test_floor_and_whole_are_passed_on() -> None:
    clip = [photo(*SIZE)] * 3
    options: dict[str, Any] = {"budget": 20, "long_side": SIDE, "refresh": NEVER}
    plain, floored, whole = (
        list(stream(clip, CHILD, **grouped(options | more))) for more in ({}, {"floor": 1.0}, {"window": (2, 2)})
    )
    for at, frame in enumerate(floored):
        spread = foveate.allocate(floored[0].relevance, 20, floor=1.0)
        np.testing.assert_array_equal(frame.kept.mask, spread.mask)  # type: ignore[union-attr]
        assert not np.array_equal(frame.kept.mask, plain[at].kept.mask)  # type: ignore[union-attr]
    for frame in whole:
        windows = frame.kept.mask.reshape(6, 2, 8, 2).sum((1, 3))  # type: ignore[union-attr]
        assert set(np.unique(windows)) == {0, 4}
    assert any(set(np.unique(f.kept.mask.reshape(6, 2, 8, 2).sum((1, 3)))) != {0, 4} for f in plain)  # type: ignore[union-attr]
