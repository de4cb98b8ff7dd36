"""Search by example: an image is most like itself, a box finds its thing where it moved to; and what is refused."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate
from foveate import Texture
from foveate.core.errors import OptionError, TextureEncoderError
from foveate.core.grid import Grid
from foveate.core.image import load_image
from foveate.relevance.boxes import check_box
from foveate.store.example import Usual, example_of, like, short, usual_of
from foveate.store.nearest import Vectors
from foveate.store.record import plane_peaks
from foveate.store.schema import Identity, Space, plane_space
from foveate.texture.basis import Basis
from tests.conftest import PHOTOS

SIDE, WIDTH, NUMBERS = 16, 40, 3


def textures(like: Texture, cells: np.ndarray) -> list[Texture]:
    """Textures whose features are these, [n, h, w, D]."""
    width = cells.shape[-1]
    basis = Basis(np.zeros(width, np.float32), np.eye(width, dtype=np.float16))
    kept = replace(like, grid=Grid(SIDE, SIDE, 128, 128), basis=basis, encoder=replace(like.encoder, width=width))
    return [replace(kept, embedding=x.astype(np.float16)) for x in cells]


def collection(some: list[Texture], peaks: bool = True) -> tuple[Vectors, Space, Identity]:
    """What a store keeps of them: peaks of planes; or three cells of each."""
    width, kept = some[0].encoder.width, [each.basis.restore(each.coordinates()) for each in some]
    if peaks:
        table = np.asfortranarray(np.stack([plane_peaks(x) for x in kept]).astype(np.float16))
    else:
        table = np.concatenate([x[:: -(-len(x) // NUMBERS)] for x in kept])
    space, count = plane_space(width), len(table) // len(some)
    identity = Identity(some[0].encoder, "own", some[0].rank, space.hash, None, count, peaks=peaks)
    return Vectors(np.arange(len(some)), table, count), space, identity


def scattered(seed: int, images: int = 12) -> np.ndarray:
    """Cells of images with some of the planes each, float32 [n, h, w, D]."""
    random = np.random.default_rng(seed)
    cells = random.random((images, SIDE, SIDE, WIDTH), np.float32) / 5
    return cells * (random.random((images, 1, 1, WIDTH)) < 0.3)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**16), st.booleans())
def test_an_image_is_most_like_itself(texture: Texture, seed: int, boxed: bool) -> None:
    some = textures(texture, scattered(seed))
    vectors, space, identity = collection(some)
    chosen = some[seed % len(some)]
    example = example_of(chosen, usual_of(vectors, space, identity), (16, 8, 100, 120) if boxed else None)
    scores, maps = zip(*(like(example, each) for each in some), strict=True)
    assert scores[seed % len(some)] == pytest.approx(max(scores)) == pytest.approx(1, abs=2e-3)
    assert all(0 <= score <= 1 for score in scores)
    assert all(where.shape == (SIDE, SIDE) and where.min() >= 0 and where.max() <= 1 for where in maps)
    quick = short(example, vectors, space)
    assert quick[seed % len(some)] >= 1 - 2e-3
    assert (quick - scores > -2e-3).all()  # the short list never takes an image for less than it is


@pytest.mark.parametrize("peaks", [True, False])
def test_a_box_finds_the_image_where_its_thing_is_somewhere_else(texture: Texture, peaks: bool) -> None:
    cells = np.abs(np.random.default_rng(0).normal(0, 0.01, (9, SIDE, SIDE, WIDTH))).astype(np.float32)
    cells[..., 0] += 0.5  # what all images have, and more of it than of the thing
    cells[0, 2:6, 3:7, 5] = cells[4, 9:13, 10:14, 5] = 0.3
    cells[2, 9:13, 1:4, 6] = 0.3  # another thing
    some = textures(texture, cells)
    vectors, space, identity = collection(some, peaks)
    example = example_of(some[0], usual_of(vectors, space, identity), (16, 24, 48, 56))
    found = [like(example, each) for each in some]
    assert found[4][0] > 1.5 * max(found[i][0] for i in (1, 2, 3, 5, 6, 7, 8))
    where = found[4][1] > 0.5
    assert np.argwhere(where)[[0, -1]].tolist() == [[9, 10], [12, 13]]


def test_photographs(texture: Texture, wide: Texture, street: Texture) -> None:
    """A photograph finds its mirrored copy before others; the box of a bus finds a smaller bus, and where it is."""
    bus = load_image(PHOTOS / "yellow_bus.jpg").rgb
    scene = np.full((480, 640, 3), 128, np.uint8)
    scene[200:440, 400:560] = cv2.resize(bus, (160, 240), interpolation=cv2.INTER_AREA)
    mirrored, moved = foveate.encode(np.ascontiguousarray(bus[:, ::-1])), foveate.encode(scene)
    some = [texture, mirrored, wide, moved]
    vectors, space, identity = collection(some)
    usual = usual_of(vectors, space, identity)
    assert int(short(example_of(street, usual), vectors, space).argmax()) == 1
    scores = [like(example_of(street, usual), each)[0] for each in some]
    assert scores[1] > 0.5 > max(scores[0], scores[2])
    (box, *_) = foveate.score(street, "bus").boxes()
    part = example_of(street, usual, box.tolist())
    score, where = like(part, moved)
    assert score > 2 * max(like(part, texture)[0], like(part, wide)[0])
    assert where[23:57, 48:72].max() == where.max()  # in the bus, or two cells beside it


@pytest.mark.parametrize("box", [(10, 10, 10, 40), (40, 10, 10, 40), (-50, -50, -1, -1), (0, 9000, 9, 9100), (1, 2, 3)])
def test_a_box_without_area_in_the_image_is_refused(texture: Texture, box: tuple[float, ...]) -> None:
    usual = Usual(texture.encoder, np.zeros(texture.basis.width, np.float32), None)
    with pytest.raises(OptionError, match="box"):
        example_of(texture, usual, box)


def test_a_part_of_a_pixel_beyond_the_edge_is_cut_off() -> None:
    """Detectors give such boxes."""
    grid = Grid(4, 4, 64, 80)
    assert check_box((-0.3, 10, 64.3, 80.9), grid) == (0, 10, 64, 80)
    for box in ((0, 10, 65, 80), (-1, 0, 9, 9), (64.2, 0, 64.8, 9)):
        with pytest.raises(OptionError, match="64 x 80"):
            check_box(box, grid)


def test_textures_of_another_encoder_are_refused_and_nothing_is_like_nothing(texture: Texture) -> None:
    usual = usual_of(*collection([texture, texture]))
    other = replace(texture, encoder=replace(texture.encoder, revision="0"))
    with pytest.raises(TextureEncoderError, match="revision 0"):
        example_of(other, usual)
    with pytest.raises(TextureEncoderError, match="revision 0"):
        like(example_of(texture, usual), other)
    (empty,) = textures(texture, np.zeros((1, SIDE, SIDE, texture.basis.width), np.float32))
    assert like(example_of(empty, usual), texture)[0] == 0
