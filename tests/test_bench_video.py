"""The measuring of video, on cases whose right answer is known by hand."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from typer.testing import CliRunner

from benchmarks import video_cosine, video_following, video_speed, video_tokens
from benchmarks.__main__ import app
from benchmarks.clips import made_clips, names_in, outline, photograph, read_clip, swaying_broccoli, through, written
from benchmarks.video_rivals import (
    BARE,
    CHAINED,
    COPIED,
    DEFAULTS,
    EVERY_FRAME,
    WAYS,
    Way,
    evs_newness,
    newest,
    no_motion,
    onward,
    pixel_newness,
)
from foveate.core.errors import OptionError
from foveate.encoders.load import load_encoder
from foveate.video.flow import FlowModel, make_view, view_shape, warp
from foveate.video.propagation import blend_layers
from foveate.video.state import State

pytestmark = pytest.mark.video

# --- rivals -----------------------------------------------------------------------------------------------------------


def test_evs_by_hand() -> None:
    right, up, both = [1.0, 0.0], [0.0, 2.0], [3.0, 3.0]
    clip = np.array([[[right, up, both]], [[right, right, both]], [[both, right, up]]])  # [3, 1, 3, 2]
    new = evs_newness(clip)
    assert np.isinf(new[0]).all()
    assert np.allclose(new[1:, 0], [[0, 1, 0], [1 - 0.5**0.5, 0, 1 - 0.5**0.5]], atol=1e-6)
    assert newest(new, 0.5).astype(int).tolist() == [[[1, 1, 1]], [[0, 1, 0]], [[0, 0, 0]]]  # 4 of 9
    assert newest(new, 0.6).astype(int).tolist() == [[[1, 1, 1]], [[0, 1, 0]], [[1, 0, 0]]]  # equal: the earlier
    assert newest(new, 0.01).astype(int).tolist() == [[[1, 1, 1]], [[0, 0, 0]], [[0, 0, 0]]]  # never below one frame
    assert newest(new, 1.0).all()


def test_pixel_difference_by_hand() -> None:
    colours = np.zeros((3, 1, 2, 6), np.uint8)
    colours[1, 0, 1] = 51
    colours[2, 0] = [[102, 0, 0, 0, 0, 0], [51] * 6]
    new = pixel_newness(colours)
    assert np.isinf(new[0]).all()
    assert np.allclose(new[1:, 0], [[0, 0.2], [0.4 / 6, 0]], atol=1e-6)


@given(st.lists(st.integers(0, 4), min_size=12, max_size=12), st.floats(0.01, 1))
def test_newest_equals_its_definition(values: list[int], share: float) -> None:
    plane = np.array(values, np.float32).reshape(3, 2, 2)
    order = sorted(range(12), key=lambda i: (-values[i], i))[: max(4, int(12 * share))]
    assert np.flatnonzero(newest(plane, share)).tolist() == sorted(order)


@pytest.fixture(scope="module")
def frames() -> list[np.ndarray]:
    """Five frames of a photograph that moves to the left by 8 pixels, 32 x 48 cells of 4."""
    wide = through(photograph("cake_and_coffee"), (128, 256), (240, 320), 0.4)[0]
    return [np.ascontiguousarray(wide[:, 8 * i : 8 * i + 192]) for i in range(5)]


def followed(frames: list[np.ndarray], way: str, **options: object) -> list[State]:
    how, state, states = Way({**WAYS[way].options, **options}).how(load_encoder("nano"), (), long_side=192), None, []
    for rgb in frames:
        state, _ = onward(state, rgb, (), how, chained=WAYS[way].chained)
        states.append(state)
    return states


def embedding(state: State) -> np.ndarray:
    return np.asarray(blend_layers(state.layers, state.view).z)


def test_by_whole_cells_chaining_is_composing_and_by_half_cells_it_blurs(frames: list[np.ndarray]) -> None:
    def flow(samples: float) -> FlowModel:
        """The true flow of `frames` is 8 samples to the right."""
        return lambda current, earlier: np.full((*earlier.shape, 2), (0, samples), np.float32)

    copied, chained = followed(frames, COPIED), followed(frames, CHAINED, flow=no_motion)
    for a, b in zip(copied, chained, strict=True):
        assert np.allclose(embedding(a), embedding(copied[0]), atol=1e-6)
        assert np.allclose(embedding(a), embedding(b), atol=1e-6)
    bare, chained = (followed(frames, way, flow=flow(8)) for way in (BARE, CHAINED))
    assert bare[0].texture.grid.shape == (16, 24)
    for number in range(1, 5):
        assert np.allclose(embedding(bare[number])[:, :-4], embedding(bare[0])[:, number : 20 + number], atol=1e-4)
        assert np.allclose(embedding(chained[number]), embedding(bare[number]), atol=1e-4)
    bare, chained = (followed(frames, way, flow=flow(4)) for way in (BARE, CHAINED))
    spread = [float(np.square(np.diff(embedding(states[4]), axis=1)).mean()) for states in (chained, bare)]
    assert spread[0] < 0.8 * spread[1]


# --- clips ------------------------------------------------------------------------------------------------------------


def test_the_object_of_a_made_clip_is_under_its_mask() -> None:
    bus, broccoli = made_clips(6, (240, 426), None)
    for rgb, mask in zip(bus.frames, bus.masks, strict=True):
        assert rgb.shape == (240, 426, 3)
        yellow = rgb[..., 0].astype(float) - rgb[..., 2]
        assert yellow[mask].mean() > yellow[~mask].mean() + 40
    assert broccoli.frames[0].shape == (426, 240, 3)
    for rgb, mask in zip(broccoli.frames, broccoli.masks, strict=True):
        green = rgb[..., 1].astype(float) - rgb[..., 0]
        assert green[mask].mean() > green[~mask].mean() + 40
    centres = [np.argwhere(mask).mean(0) for mask in bus.masks]
    assert all(b[1] - a[1] == pytest.approx(426 * 0.16 / 24, abs=0.5) for a, b in pairwise(centres))


def test_through_a_window_points_go_where_the_matrix_says() -> None:
    rgb = np.zeros((100, 120, 3), np.uint8)
    rgb[30:33, 50:53] = 255
    seen, matrix = through(rgb, (80, 90), (50.0, 60.0), 2.0, 10.0)
    y, x = np.argwhere(seen[..., 0] > 127).mean(0)
    assert matrix @ [51, 31, 1] == pytest.approx([x, y], abs=0.6)
    assert outline([(10, 20), (30, 20), (30, 25), (10, 25)], (50, 60)).sum() == 21 * 6


def test_a_folder_of_clips_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "clips"
    (folder / "green").mkdir(parents=True)
    frames, inside = swaying_broccoli(6, (96, 64))
    written(frames, folder / "green" / "clip.mp4")

    def pack(masks: list[NDArray[np.bool_]]) -> None:
        with tarfile.open(folder / "green" / "masks.tar", "w") as archive:
            for number, mask in enumerate(masks):
                Image.fromarray(mask.astype(np.uint8) * 255).save(tmp_path / "mask.png")
                archive.add(tmp_path / "mask.png", f"{number:05d}.png")

    pack(inside)
    (folder / "davis.json").write_text(json.dumps({"clips": {"green": {"text": "broccoli"}}}))
    assert names_in(folder) == {"green": "broccoli"}
    clip = read_clip(folder, "green", "broccoli", limit=5)
    assert len(clip.frames) == len(clip.masks) == len(clip.times) == len(clip.read) == 5
    assert clip.times == pytest.approx([n / 24 for n in range(5)], abs=1e-3)
    assert (clip.masks[4] == inside[4]).all()
    pack(inside[:3])
    with pytest.raises(OptionError, match="6 frames and 3 masks"):
        read_clip(folder, "green", "broccoli")
    (folder / "green" / "masks.tar").write_bytes(b"no tar")
    with pytest.raises(OptionError, match=r"masks\.tar"):
        read_clip(folder, "green", "broccoli")
    (folder / "davis.json").write_text('{"clips": {}}')
    with pytest.raises(OptionError, match=r"davis\.json"):
        names_in(folder)


# --- cosine -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(video_cosine.FIELDS))
def test_the_true_flow_points_from_a_frame_to_the_one_before(name: str) -> None:
    frames, flows = video_cosine.warped_clip(photograph("yellow_bus"), video_cosine.FIELDS[name], 8, (144, 256))
    now, before = make_view(frames[7]), make_view(frames[6])
    flow = flows[7]
    assert flows[0] is None
    assert flow is not None
    assert flow.shape == (*view_shape(144, 256), 2)
    middle = (slice(16, -16), slice(16, -16))
    off = [np.abs(now.soft - warp(before.soft, way))[middle].mean() for way in (flow, np.zeros_like(flow), -flow)]
    assert off[0] < 0.5 * off[1] < 0.5 * off[2]


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_what_is_held_by_hand() -> None:
    area = np.array([[[1, 0, 0]], [[1, 0.5, 0]], [[0, 1, 1]]], np.float32)
    chosen = np.zeros((3, 1, 3), bool)
    chosen[0, 0, 0] = chosen[1, 0, 1] = True
    # frame 0: 1 of 1. Frame 1: the first cell's token shows it, the second was sent: all. Frame 2: the second cell's
    # token shows half of what is there now, the third was never sent: 0.5 of 2.
    held, sent, age = video_tokens.held(chosen, area)
    assert held == pytest.approx((1 + 1 + 0.25) / 3)
    assert sent == pytest.approx(1.5 / 4.5)
    assert age == pytest.approx((0 * 1 + 1 * 1 + 0 * 0.5 + 1 * 0.5) / (1 + 1.5 + 0.5))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=20), st.integers(0, 120))
def test_halving_finds_the_largest_that_fits(steps: list[int], number: int) -> None:
    sizes = np.cumsum(steps)

    def make(setting: int) -> np.ndarray:
        return np.arange(200) < sizes[setting - 1]

    fitting = [setting for setting in range(1, len(sizes) + 1) if sizes[setting - 1] <= number]
    found = video_tokens.most(make, number, len(sizes)).sum()
    assert found == (sizes[fitting[-1] - 1] if fitting else sizes[0])


def test_by_time_nothing_is_sent_twice_that_did_not_change() -> None:
    looks = np.zeros((4, 2, 2, 48), np.uint8)
    looks[1:, 0, 0] = 100
    looks[2, 1, 1] = 3  # below the threshold, and back
    found = video_tokens.by_time(looks, 0.1)
    assert found[0].all()
    assert np.argwhere(found[1:]).tolist() == [[0, 0, 0]]


def test_the_simulated_stream_is_the_stream(frames: list[np.ndarray]) -> None:
    from benchmarks.clips import Labelled
    from foveate.video.streams import stream

    masks = [np.ones(frame.shape[:2], bool) for frame in frames]
    clip = Labelled("cake", "the cake", frames, masks, [0.0] * 5, [0.0] * 5, None)
    how = WAYS[DEFAULTS].how(load_encoder("nano"), ("cluster_id", "saliency"), long_side=192)
    found = video_tokens.streamed(video_tokens.follow(clip, replace(how, budget=1)), 40, how)
    for frame, chosen in zip(
        stream(frames, "the cake", budget=40, long_side=192, channels=["cluster_id", "saliency"]), found, strict=True
    ):
        assert np.flatnonzero(chosen).tolist() == frame.kept_new.tolist()  # type: ignore[union-attr]


# --- speed, flicker, memory -------------------------------------------------------------------------------------------


def test_moving_cells_by_hand() -> None:
    sets = [np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]), np.array([6, 7, 8, 9]), np.array([6, 7, 8, 9])]
    assert video_speed.moving(sets) == [0.25, 1, 0]


# --- the whole --------------------------------------------------------------------------------------------------------


def test_the_report_has_every_part(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["video", "--quick", "--out", str(tmp_path)], catch_exceptions=False)
    assert run.exit_code == 0, run.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert [row["way"] for row in report["rows"]] == list(WAYS)
    by_way = {row["way"]: row for row in report["rows"]}
    assert by_way[EVERY_FRAME]["key_share"] == 1
    assert by_way[BARE]["key_share"] == by_way[COPIED]["key_share"] == pytest.approx(2 / 14, abs=1e-4)
    for row in by_way.values():
        assert len(row["cells"]) == len(video_following.COLUMNS)
        assert all(0 <= row[key] <= 1 for key in ("coverage", "pointing", "precision"))
    assert set(report["clips"]) == {"bus"}
    for rows, columns in (
        (report["cosine"], video_cosine.COLUMNS),
        *((rows, video_cosine.COLUMNS) for rows in report["warps"].values()),
        (report["tokens"], video_tokens.COLUMNS),
        (report["targets"], ("what", "measured", "target")),
    ):
        assert all(len(row["cells"]) == len(columns) for row in rows)
    assert all(isinstance(row["value"], float | int) for row in report["targets"] if row["target"])
    assert "NaN" not in (tmp_path / "report.json").read_text()
    assert json.loads(run.output.splitlines()[-1])["title"] == report["title"]
    with Image.open(tmp_path / "clips.png") as page:
        assert page.width > page.height > 100
