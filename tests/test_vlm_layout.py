"""Where visual tokens lie, and which are chosen: against the pixels that change, and against twins in a few lines."""

from __future__ import annotations

import os
import pickle
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate import Grid, Texture
from foveate.allocation.policies import determinantal, max_min
from foveate.core.errors import OptionError
from foveate.core.readonly import ReadOnly
from foveate.relevance.value import Relevance
from foveate.vlm import METHODS, VLM, Choosing
from foveate.vlm.families.token_layout import TokenGrid, TokenLayout, project
from foveate.vlm.families.where_shown import visible_box
from foveate.vlm.select.baselines import coarser_shape
from foveate.vlm.select.choice import Candidates
from foveate.vlm.select.methods import alike_by_looks, choose, choose_tokens
from tests.vlm_models import FAMILIES, attached, encoded, photo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def test_cells_over_a_part_of_an_image_have_no_boxes_in_it(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    size = texture.grid.height, texture.grid.width
    part = relevance.on(TokenGrid(12, 12, (100, 20, size[0], size[1])))
    kept = foveate.allocate(part, 20)
    for wrong in (
        part.boxes,
        lambda: part.on((6, 6)).boxes(),
        lambda: part.score_boxes([[0, 0, 9, 9]]),
        lambda: foveate.viz.heatmap(texture, part),
        lambda: foveate.viz.compare(texture, {"broccoli": part}),
        lambda: foveate.viz.kept(texture, kept),
        lambda: foveate.viz.homunculus(texture, kept),
    ):
        with pytest.raises(OptionError, match=r"of cells over a part .* 100 to \d+ down and 20 to"):
            wrong()
    assert part.picture().mode == kept.picture().mode == "RGB"  # by themselves, over grey
    assert pickle.loads(pickle.dumps(part)).grid.part == part.grid.part
    whole = relevance.on(TokenGrid(12, 12, (0.0, 0.0, float(size[0]), float(size[1]))))
    assert whole.grid.part is None
    assert whole.boxes().shape[1] == 4


def test_what_looks_alike_is_no_matter_of_the_first_frame_alone() -> None:
    rng = np.random.default_rng(0)
    pictures = [foveate.encode(rng.integers(0, 255, (96, 96, 3), np.uint8)) for _ in range(3)]
    first, second, third = (foveate.score(each, "a dog") for each in pictures)
    frames = TokenLayout(tuple(TokenGrid(4, 4, (0.0, 0.0, 96.0, 96.0), 16 * i, 0, i) for i in range(2)), 32)
    one, other = alike_by_looks(frames, [first, second]), alike_by_looks(frames, [first, third])
    assert one is not None
    assert other is not None
    assert not np.array_equal(one.apart, other.apart)


def test_a_tile_is_asked_for_as_far_as_the_best_of_all_tiles() -> None:
    plane = np.zeros((8, 16), np.float32)
    plane[:4, :4], plane[4, 12] = 1, 0.02
    found, size = relevance(plane, 64, 128), (64, 128)
    halves = [TokenGrid(8, 8, (0.0, x, 64.0, x + 64.0), int(x)) for x in (0.0, 64.0)]
    (chosen,) = choose_tokens(
        [TokenLayout(tuple(halves), 128)], [[found]], [[np.zeros((*size, 3), np.uint8)]],
        lambda number: np.zeros((128, 1), np.float32), 120, "relevance", Choosing(), lambda number: None,
    )  # fmt: skip
    left, right = chosen.kept
    assert left.kinds.count("asked") == 16
    assert right.kinds.count("asked") == 0


def relevance(plane: np.ndarray, height: int = 60, width: int = 80, **more: Any) -> Relevance:
    plane = np.asarray(plane, np.float32)
    return Relevance(
        query="a dog", map=plane, logits=plane, confidence=0.9, parts=ReadOnly({}), reasons=ReadOnly({}),
        saliency=np.zeros_like(plane), valid=None, grid=Grid(plane.shape[0], plane.shape[1], height, width), **more,
    )  # fmt: skip


# --- geometry ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(FAMILIES))
@pytest.mark.parametrize("size", [(150, 200), (260, 120), (120, 120)])
def test_a_token_lies_where_its_features_change(name: str, size: tuple[int, int]) -> None:
    """A black patch in a grey photograph: the rows that change are those of the tokens over it, in every grid."""
    vlm = attached(name)
    height, width = size
    grey = np.full((height, width, 3), 128, np.uint8)
    before, layout = patches_of(vlm, grey)
    rng = np.random.default_rng(0)
    for _ in range(3):
        y, x = int(rng.uniform(0.15, 0.85) * height), int(rng.uniform(0.15, 0.85) * width)
        marked = grey.copy()
        marked[max(0, y - 4) : y + 4, max(0, x - 4) : x + 4] = 0
        after, _ = patches_of(vlm, marked)
        change = np.abs(after - before).sum(1)
        found = 0
        for grid in layout.grids:
            y0, x0, y1, x1 = grid.box
            if not (y0 + 4 < y < y1 - 4 and x0 + 4 < x < x1 - 4):
                continue
            there = change[grid.rows()]
            best = int(there.argmax())
            side_y, side_x = (y1 - y0) / grid.h, (x1 - x0) / grid.w
            centre = y0 + (best // grid.w + 0.5) * side_y, x0 + (best % grid.w + 0.5) * side_x
            assert abs(centre[0] - y) <= side_y / 2 + 6
            assert abs(centre[1] - x) <= side_x / 2 + 6
            assert there[best] > 0
            found += 1
        assert found or name == "llava"  # which cuts the centre out


def patches_of(vlm: VLM, rgb: np.ndarray) -> tuple[np.ndarray, TokenLayout]:
    """Feature rows without attention between patches: every attention of the encoder is switched off for the call."""
    hooks = [
        module.register_forward_hook(lambda m, a, out: tuple(torch.zeros_like(o) if o is not None else o for o in out)
                                     if isinstance(out, tuple) else torch.zeros_like(out))
        for path, module in vlm.model.named_modules()
        if path.rsplit(".", 1)[-1] in ("self_attn", "attn", "attention") and not re.search("language|text", path)
    ]  # fmt: skip
    assert hooks
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("foveate.vlm.inputs.images.encode", lambda *a, **k: None)  # no textures are needed
            image = vlm.see(rgb, read=False)
    finally:
        for hook in hooks:
            hook.remove()
    assert image.features is not None
    return image.features.rows[0].numpy(), image.layouts[0]


def test_what_a_clip_processor_shows() -> None:
    class Settings:
        do_resize, do_center_crop, do_pad = True, True, False
        size, crop_size = {"shortest_edge": 336}, {"height": 336, "width": 336}

    assert visible_box(Settings(), (480, 640)) == pytest.approx((0, 80, 480, 560), abs=1)
    assert visible_box(Settings(), (640, 480)) == pytest.approx((80, 0, 560, 480), abs=1)
    assert visible_box(Settings(), (500, 500)) == (0, 0, 500, 500)
    padded = Settings()
    padded.do_pad = True
    assert visible_box(padded, (480, 640)) == pytest.approx((-80, 0, 560, 640), abs=1)
    squeezed = Settings()
    squeezed.do_center_crop, squeezed.size = False, {"height": 336, "width": 336}
    assert visible_box(squeezed, (480, 640)) == (0, 0, 480, 640)


# --- maps on grids ----------------------------------------------------------------------------------------------------


def test_a_map_on_a_grid_is_its_area_mean() -> None:
    """Against sums over single pixels."""
    plane = np.random.default_rng(1).random((6, 8), np.float32)
    fine = plane.repeat(10, 0).repeat(10, 1)  # 60 x 80 pixels
    grid = TokenGrid(2, 3, (6.0, 11.0, 46.0, 71.0))
    ours = project(relevance(plane), grid).map
    theirs = fine[6:46, 11:71].reshape(2, 20, 3, 20).mean((1, 3))
    assert np.allclose(ours, theirs, atol=1e-5)


def test_a_grid_over_the_whole_image_is_that_of_the_map() -> None:
    plane = np.random.default_rng(2).random((6, 8), np.float32)
    whole = TokenGrid(3, 4, (0.0, 0.0, 60.0, 80.0))
    assert np.array_equal(project(relevance(plane), whole).map, relevance(plane).on(Grid(3, 4, 60, 80)).map)


def test_outside_of_the_image_nothing_is_relevant_and_is_kept_last() -> None:
    plane = np.full((6, 8), 0.5, np.float32)
    grid = TokenGrid(8, 8, (-10.0, 0.0, 70.0, 80.0))
    found = project(relevance(plane), grid)
    assert np.allclose(found.map[0], 0)
    assert np.allclose(found.map[1:7], 0.5)
    assert found.valid is not None
    assert found.valid[0].sum() == 0
    assert found.valid[1:7].all()
    kept = foveate.allocate(found, 48).mask
    assert kept[1:7].all()


@given(st.integers(1, 9), st.integers(1, 9), st.floats(0, 30), st.floats(0, 40), st.floats(5, 30), st.floats(5, 40))
@settings(max_examples=60, deadline=None)
def test_a_constant_stays_a_constant_inside(h: int, w: int, y: float, x: float, down: float, across: float) -> None:
    plane = np.full((7, 5), 0.25, np.float32)
    found = project(relevance(plane), TokenGrid(h, w, (y, x, y + down, x + across)))
    assert found.map.shape == (h, w)
    assert np.allclose(found.map, 0.25, atol=1e-5)


# --- choices ----------------------------------------------------------------------------------------------------------


def candidates(seed: int = 0, grids: int = 1) -> Candidates:
    rng = np.random.default_rng(seed)
    shapes = [(6, 8), (3, 4)][:grids]
    made, first = [], 0
    for h, w in shapes:
        made.append(TokenGrid(h, w, (0.0, 0.0, 60.0, 80.0), first=first))
        first += h * w
    features = rng.normal(size=(first, 5)).astype(np.float32)
    found = relevance(rng.random((6, 8), np.float32), features=rng.normal(size=(6, 8, 3)).astype(np.float32))
    image = np.zeros((60, 80, 3), np.uint8)
    return Candidates(TokenLayout(tuple(made), first), (found,), (image,), lambda: features)


@pytest.mark.parametrize("grids", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_keeps_exactly_as_many_as_asked(method: Any, grids: int) -> None:
    image = candidates(grids=grids)
    cells = image.layout.selectable
    for budget in (1, 2, 7, cells - 1, cells):
        choice = choose(method, image, budget)
        assert choice.count == len(choice.rows)
        assert choice.count == budget or (method == "downsample" and 0 < choice.count <= budget)
        assert (np.diff(choice.rows) > 0).all()
        again = choose(method, image, budget)
        assert np.array_equal(choice.rows, again.rows)


def test_relevance_keeps_the_best_of_all_panes() -> None:
    image = candidates(grids=2)
    scores = np.concatenate([r.map.ravel() for r in image.on_grids()])
    kept = choose("relevance", image, 9).rows
    assert set(kept) == set(np.argsort(-scores, kind="stable")[:9])


def test_random_differs_by_seed_and_uniform_spreads() -> None:
    image = candidates()
    a, b = (choose("random", replace(image, choosing=Choosing(seed=seed)), 12).rows for seed in (0, 1))
    assert not np.array_equal(a, b)
    rows = choose("uniform", image, 12).rows
    assert np.ptp(rows // 8) >= 4
    assert np.ptp(rows % 8) >= 6


def test_max_min_is_the_greedy_one() -> None:
    features = np.random.default_rng(3).normal(size=(30, 4)).astype(np.float32)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    distance = 1 - unit @ unit.T
    chosen = [int(np.where(np.eye(30, dtype=bool), np.inf, distance).min(1).argmax())]
    while len(chosen) < 8:
        rest = [i for i in range(30) if i not in chosen]
        chosen.append(max(rest, key=lambda i: (distance[i, chosen].min(), -i)))
    assert max_min(features, features[:, 0], 8).tolist() == sorted(chosen)


def test_determinantal_is_the_greedy_determinant() -> None:
    rng = np.random.default_rng(4)
    features, scores = rng.normal(size=(20, 12)).astype(np.float32), rng.random(20).astype(np.float32)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    r = np.maximum((scores - scores.min()) / np.ptp(scores), 1e-6)
    kernel = (r[:, None] * (unit @ unit.T) * r).astype(np.float64)
    chosen: list[int] = []
    for _ in range(6):
        rest = [i for i in range(20) if i not in chosen]
        chosen.append(max(rest, key=lambda i: np.linalg.slogdet(kernel[np.ix_([*chosen, i], [*chosen, i])])[1]))
    assert determinantal(features, scores, 6).tolist() == sorted(chosen)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 500))
def test_coarser_grids_fit(h: int, w: int, most: int) -> None:
    rows, cols = coarser_shape((h, w), most)
    assert rows * cols <= most
    assert rows <= h
    assert cols <= w
    assert most == 0 or rows * cols >= 1


def test_downsampled_features_are_means() -> None:
    image = encoded("llava")
    prepared = attached("llava").prepare(image, "a dog", budget=4, method="downsample")
    assert image.features is not None
    means = image.features.rows[0].reshape(2, 2, 2, 2, -1).mean((1, 3)).reshape(4, -1)
    assert torch.allclose(prepared.features.rows[0], means, atol=1e-6)
    assert image.features.rows[0].shape[0] == 16


def test_protected_tokens_are_kept_first() -> None:
    image = encoded("qwen2_5_vl")
    mask = np.zeros(image.textures[0].grid.shape, bool)
    mask[-1, -1] = True
    kept = attached("qwen2_5_vl").prepare(image, "a dog", budget=1, choosing=Choosing(protected=mask)).chosen[0].kept[0]
    assert kept.mask[-1, -1]
    every = attached("qwen2_5_vl").prepare(image, "a dog", choosing=Choosing(protected=np.ones_like(mask))).chosen[0]
    assert every.count == image.layouts[0].selectable  # "auto" makes room for them


@pytest.mark.skipif("FOVEATE_TRANSFORMERS" in os.environ, reason="the oldest transformers has them not, or not right")
@pytest.mark.parametrize(("name", "box"), [("glm5_next", (0, 0, 155, 200)), ("gemma4", (0, 0, 150, 200))])
def test_a_grid_reaches_as_far_as_its_processor_fills_the_image_up(name: str, box: tuple[int, ...]) -> None:
    (grid,) = attached(name).see(photo(150, 200), mode="sparse").layouts[0].grids
    assert grid.box == pytest.approx(box, abs=1)
