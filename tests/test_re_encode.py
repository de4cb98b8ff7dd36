"""A second encoding at a finer scale: what changes, what is shared, and how large errors can be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate import Grid, Texture
from foveate.core.errors import OptionError, TextureEncoderError
from foveate.encoders.protocol import DenseFeatures
from foveate.texture.texture import EncoderStamp
from foveate.tiles.re_encode import FINE, area_means, refine, top_box

NANO = foveate.load_encoder("nano")


@pytest.fixture(scope="module")
def closer(texture: Texture) -> Texture:
    return refine(texture, "broccoli", scale=2)


def queries(n: int = 50) -> np.ndarray:
    q = np.random.default_rng(0).standard_normal((n, NANO.width)).astype(np.float32)
    return q / np.linalg.norm(q, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def small(cake: Path) -> Texture:
    return foveate.encode(cake, channels="fast", long_side=256)


@pytest.mark.parametrize("rank", [None, "full"])
def test_the_same_scale_on_the_whole_image_changes_nothing(rank: Any, cake: Path) -> None:
    texture = foveate.encode(cake, rank=rank, channels="fast", long_side=256)
    same = refine(texture, "a cake", scale=1, share=1)
    assert np.abs(same.scores(queries()) - texture.scores(queries())).max() < 2e-3
    slack = same.residual.astype(np.float32) - texture.residual.astype(np.float32)
    assert -1e-3 < slack.min() <= slack.max() < 5e-3


def test_one_box_changes_and_everything_else_is_shared(texture: Texture, closer: Texture) -> None:
    assert np.array_equal(refine(texture, "broccoli", scale=2).embedding, closer.embedding)  # a pure function
    assert "pass_1" not in texture.planes
    assert not closer.embedding.flags.writeable
    changed = (closer.embedding != texture.embedding).any(-1)
    y, x = np.nonzero(changed)
    assert changed.mean() <= 0.25 + 0.02
    assert (y.max() - y.min() + 1) * (x.max() - x.min() + 1) == pytest.approx(changed.sum(), rel=0.02)
    assert np.array_equal(closer.residual[~changed], texture.residual[~changed])
    assert closer.pixel is texture.pixel
    assert closer.basis is texture.basis
    assert all(closer.planes[name] is plane for name, plane in texture.planes.items())
    assert set(closer.planes) - set(texture.planes) == {"pass_1"}
    assert not np.array_equal(closer.scores(queries()), texture.scores(queries()))
    first = foveate.score(texture, "broccoli")
    assert np.allclose(closer.channel("pass_1"), first.map, atol=1e-3)
    top = np.unravel_index(first.map.argmax(), first.map.shape)
    assert changed[top]
    assert "again at 2 x" in closer.made_by["embedding"]
    assert texture.made_by == {k: v for k, v in closer.made_by.items() if k not in ("embedding", "pass_1")}


def test_the_error_bound_stays_honest(small: Texture) -> None:
    """No score is further than the bound from that of the blended, uncompressed features."""
    refined = refine(small, "a cake", share=1, scale=1.5)
    pixels = (0, 0, small.grid.height, small.grid.width)
    fine = NANO.encode_image(small.pixel, long_side=384).full(NANO.width)
    fine = area_means(fine, pixels, small.grid, (0, 0, *small.grid.shape))
    features = FINE * fine + (1 - FINE) * NANO.encode_image(small.pixel, long_side=256).full(NANO.width)
    exact = np.einsum("nd,hwd->nhw", queries(200), features)
    excess = np.abs(refined.scores(queries(200)) - exact) - refined.error_bound(queries(200))
    assert excess.max() < 1e-5
    residual = np.linalg.norm(features - refined.basis.restore(refined.embedding.astype(np.float32)), axis=-1)
    assert (residual <= refined.residual.astype(np.float32) + 1e-5).all()
    assert refined.residual.astype(np.float32).mean() < 1.5 * residual.mean()  # and it says something


def test_a_second_pass_reads_the_first_also_from_a_file(texture: Texture, closer: Texture, tmp_path: Path) -> None:
    closer.save(tmp_path / "t.safetensors")
    back = Texture.load(tmp_path / "t.safetensors")
    assert back.made_by == closer.made_by
    for each in (closer, back):
        prior = foveate.score(each, "broccoli", prior="pass_1")
        assert prior.reasons["prior"].shape == texture.grid.shape
        assert np.array_equal(foveate.score(each, "broccoli").map, foveate.score(closer, "broccoli").map)
    second = refine(closer, "a child")
    assert np.array_equal(refine(back, "a child").embedding, second.embedding)
    assert {"pass_1", "pass_2"} <= set(second.planes)
    assert second.planes["pass_1"] is closer.planes["pass_1"]
    assert second.made_by["embedding"].count("again") == 2


def test_a_relevance_serves_as_well_as_its_question_and_none_is_the_whole_image(
    small: Texture, texture: Texture, closer: Texture
) -> None:
    again = refine(small)
    assert np.array_equal(again.embedding, refine(small, "a cake", share=1).embedding)
    assert not again.has("pass_1")  # there was no map
    assert "again at 1.5" in again.made_by["embedding"]
    relevance = foveate.score(texture, "broccoli")
    assert np.array_equal(refine(texture, relevance, scale=2).embedding, closer.embedding)
    coarse = relevance.on(Grid(16, 12, texture.grid.height, texture.grid.width))
    assert refine(texture, coarse, share=0.1).has("pass_1")


def test_images_of_any_size_and_of_one_colour(noise: np.ndarray) -> None:
    for rows, columns in [(30, 50), (1, 1), (30, 1)]:
        assert np.isfinite(refine(foveate.encode(noise[:rows, :columns]), "a dog", share=0.1).scores(queries(3))).all()
    texture = foveate.encode(np.full((40, 70, 3), 90, np.uint8))
    refined = refine(texture, "a dog", share=0.1)
    assert np.allclose(refined.scores(queries(3)), texture.scores(queries(3)), atol=1e-3)


class Coarse:
    """A third-party encoder: colours of blocks of 10 pixels, whose sizes it does not tell."""

    name, revision, width, templates = "coarse", "1", 3, ("{}",)
    calibration = NANO.calibration

    def __init__(self) -> None:
        self.sides: list[int | None] = []

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        from foveate.core.grid import resize_map

        self.sides.append(long_side)
        cells = (200 if long_side is None else long_side) / 10 / max(rgb.shape[:2])
        shape = max(1, round(rgb.shape[0] * cells)), max(1, round(rgb.shape[1] * cells))
        return DenseFeatures(resize_map(rgb, shape) / np.float32(255 * 1.8), Grid(*shape, *rgb.shape[:2]))

    def encode_text(self, texts: Any) -> np.ndarray:
        return np.tile(np.array([[1, 0, 0]], np.float32), (len(texts), 1))


def test_an_encoder_of_ones_own_is_asked_how_large_its_cells_are(cake: Path) -> None:
    coarse = Coarse()
    texture = foveate.encode(cake, encoder=coarse)
    assert texture.grid.shape == (15, 20)
    refined = refine(texture, "red", encoder=coarse, scale=2)
    assert coarse.sides == [None, None]  # half of the image at twice the scale: its usual size
    refine(texture, "red", encoder=coarse, scale=3)
    assert coarse.sides[-1] == pytest.approx(300, rel=0.1)
    assert "embedding" in refined.made_by
    with pytest.raises(TextureEncoderError):
        refine(texture, "red")


def test_convention_the_box_is_merged_where_it_lies(cake: Path) -> None:
    """Colours are the same at any scale: whatever is encoded again, nothing moves."""
    coarse = Coarse()
    texture = foveate.encode(cake, encoder=coarse, long_side=300, rank="full")
    for scale in (1.3, 2, 3):
        refined = refine(texture, "red", encoder=coarse, scale=scale)
        old, new = (t.embedding.astype(np.float32) for t in (texture, refined))
        assert np.abs(new - old).mean() < 0.003
        assert np.abs(new - old).max() < 0.05


# --- the parts --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 20), st.integers(1, 20), st.floats(0.01, 1), st.integers(0, 99))
def test_the_box_holds_the_peak_and_most_of_the_map(h: int, w: int, share: float, seed: int) -> None:
    plane = np.random.default_rng(seed).random((h, w)).round(1)
    y0, x0, y1, x1 = top_box(plane, share)
    assert 0 <= y0 < y1 <= h
    assert 0 <= x0 < x1 <= w
    tall, wide = y1 - y0, x1 - x0
    assert (tall, wide) == (max(1, round(h * share**0.5)), max(1, round(w * share**0.5)))
    peak = plane.ravel().argmax()
    y, x = peak // w, peak % w
    best, place = -1.0, (0, 0)
    for top in range(h - tall + 1):
        for left in range(w - wide + 1):
            inside = plane[top : top + tall, left : left + wide].sum()
            if top <= y < top + tall and left <= x < left + wide and inside > best + 1e-6:
                best, place = inside, (top, left)
    assert (y0, x0) == place


def test_means_over_cells_are_exact() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.random((60, 90, 2)).astype(np.float32)
    grid = Grid(7, 8, 60, 90)
    box = (2, 3, 6, 7)
    y0, x0, y1, x1 = 17, 33, 52, 79  # the pixels around it
    found = area_means(pixels[y0:y1, x0:x1], (y0, x0, y1, x1), grid, box)
    assert found.shape == (4, 4, 2)
    large = pixels.repeat(7, 0).repeat(8, 1)  # on which every cell is whole samples
    expected = large.reshape(7, 60, 8, 90, 2).mean((1, 3))[2:6, 3:7]
    assert np.allclose(found, expected, atol=1e-5)
    assert np.allclose(area_means(pixels, (0, 0, 60, 90), Grid(60, 90, 60, 90), (0, 0, 60, 90)), pixels, atol=1e-6)


# --- bad arguments ----------------------------------------------------------------------------------------------------


def test_what_does_not_belong_together_is_refused(texture: Texture, wide: Texture, small: Texture) -> None:
    with pytest.raises(OptionError, match="over the same image"):
        refine(texture, foveate.score(wide, "a cake"))
    for stamp in (EncoderStamp("nano", "old", 256), EncoderStamp("mine", "1", 256)):
        with pytest.raises(TextureEncoderError):
            refine(replace(texture, encoder=stamp), "a dog")
    texture = replace(small, preprocessing={**small.preprocessing, "long_side": 1024})
    with pytest.raises(OptionError, match="scale=4") as caught:
        refine(texture, "a cake", scale=4, share=1)
    assert "smaller" in caught.value.fix
