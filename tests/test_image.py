"""Everything a person may pass as an image, and what comes of it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from foveate.core import errors
from foveate.core import image as image_module
from foveate.core.errors import (
    ImageArrayError,
    ImageDecodeError,
    ImageFormatError,
    ImageNotFoundError,
    ImageTooLargeError,
)
from foveate.core.image import load_image, load_reduced
from foveate.encoders.nano import fit_cells

LOSSLESS = ("PNG", "TIFF", "BMP")
SIDES = st.integers(1, 90) | st.integers(1, 11).map(lambda eighths: 8 * eighths)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


# --- what is accepted -------------------------------------------------------------------------------------------------


def test_a_tensor_may_have_its_channels_first_where_that_is_clear(noise: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(noise.copy())
    assert np.array_equal(load_image(tensor).rgb, noise)
    assert np.array_equal(load_image(tensor.permute(2, 0, 1)).rgb, noise)
    narrow = tensor[:, :3].permute(2, 0, 1)  # [3, H, 3] may be either: it is taken as it is
    assert load_image(narrow).size == (3, 30)
    with pytest.raises(ImageArrayError, match="channels last"):
        load_image(noise.transpose(2, 0, 1))


@pytest.mark.parametrize("file", [io.StringIO("text"), io.BytesIO(b"")])
def test_an_open_file_that_gives_no_bytes_says_how_to_open_one(file: Any) -> None:
    with pytest.raises(ImageArrayError, match="open for reading bytes"):
        load_image(file)
    file.close()
    with pytest.raises(ImageArrayError, match="closed"):
        load_image(file)


@pytest.mark.parametrize("kind", LOSSLESS)
def test_path_bytes_pil_and_array_give_the_same_pixels(kind: str, noise: np.ndarray, tmp_path: Path) -> None:
    content = encoded(Image.fromarray(noise), kind)
    path = tmp_path / "image.wrong-suffix"
    path.write_bytes(content)
    for source in (path, str(path), content, io.BytesIO(content), Image.fromarray(noise), noise):
        picture = load_image(source)
        assert np.array_equal(picture.rgb, noise)
        assert picture.valid is None
        assert picture.size == (30, 50)


def test_orientation_is_applied_and_every_mode_becomes_rgb(noise: np.ndarray) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # "rotate 90 degrees clockwise to view"
    picture = load_image(encoded(Image.fromarray(noise), "PNG", exif=exif))
    assert np.array_equal(picture.rgb, np.rot90(noise, -1))
    for mode in ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LAB", "I;16"]:
        picture = load_image(Image.new(mode, (5, 3)))
        assert picture.rgb.shape == (3, 5, 3)
        assert picture.rgb.dtype == np.uint8


def test_alpha_is_laid_over_white_and_kept_also_of_a_palette(noise: np.ndarray) -> None:
    alpha = np.zeros((30, 50, 1), np.uint8)
    alpha[:, 25:] = 255
    alpha[:, 20:25] = 51
    rgba = np.concatenate([noise, alpha], 2)
    for source in (rgba, encoded(Image.fromarray(rgba), "PNG")):
        picture = load_image(source)
        assert (picture.rgb[:, :20] == 255).all()  # not the hidden colours
        assert np.array_equal(picture.rgb[:, 25:], noise[:, 25:])
        expected = np.rint(noise[:, 20:25] * 0.2 + 255 * 0.8)
        assert np.abs(picture.rgb[:, 20:25].astype(int) - expected).max() <= 1
        assert picture.valid is not None
        assert np.array_equal(picture.valid, alpha[..., 0])
    assert load_image(np.concatenate([noise, np.full((30, 50, 1), 255, np.uint8)], 2)).valid is None
    palette = Image.new("P", (4, 2))
    palette.putpalette([200, 0, 0, 0, 90, 0])
    palette.putpixel((3, 1), 1)
    picture = load_image(encoded(palette, "PNG", transparency=0))
    assert picture.rgb[0, 0].tolist() == [255, 255, 255]
    assert picture.rgb[1, 3].tolist() == [0, 90, 0]
    assert picture.valid is not None
    assert picture.valid.tolist() == [[0, 0, 0, 0], [0, 0, 0, 255]]


def test_sixteen_bit_grey_is_scaled_not_truncated() -> None:
    deep = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    for source in (deep, encoded(Image.fromarray(deep), "PNG"), encoded(Image.fromarray(deep), "TIFF")):
        assert np.array_equal(load_image(source).rgb[..., 0].ravel(), np.arange(256))


def test_floats_and_32_bit_integers_need_a_range(noise: np.ndarray) -> None:
    deep = encoded(Image.fromarray(np.arange(256, dtype=np.int32).reshape(16, 16)), "TIFF")
    with pytest.raises(ImageArrayError, match="no declared range"):
        load_image(deep)
    assert np.array_equal(load_image(deep, value_range=(0, 255)).rgb[..., 0].ravel(), np.arange(256))
    unit = noise.astype(np.float64) / 255
    assert np.array_equal(load_image(unit, value_range=(0, 1)).rgb, noise)
    assert np.array_equal(load_image(unit * 2 - 1, value_range=(-1, 1)).rgb, noise)
    with pytest.raises(ImageArrayError, match="no declared range"):
        load_image(unit)
    with pytest.raises(ImageArrayError, match="no declared range"):
        load_image(encoded(Image.fromarray(unit[..., 0].astype(np.float32)), "TIFF"))


def test_a_picture_is_apart_from_the_callers_array_and_returned_as_it_is(noise: np.ndarray) -> None:
    rgb = load_image(noise).rgb
    before = rgb.copy()
    noise[:] = 0
    assert np.array_equal(rgb, before)
    picture = load_image(noise)
    assert load_image(picture, max_pixels=1) is picture


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="names and devices are POSIX")
@pytest.mark.parametrize(
    ("path", "words"),
    [("nothing-here.jpg", "no file at 'nothing-here"), (".", "is a directory"), ("/dev/zero", "not a regular file"),
     ("a" * 5000 + ".jpg", "cannot be read"), ("nul\0byte.jpg", "nul.byte")],
)  # fmt: skip
def test_paths_without_a_file(path: str, words: str) -> None:
    with pytest.raises(ImageNotFoundError, match=words):
        load_image(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "0 bytes"), (b"these are only words", "these are on"),
     (encoded(Image.new("RGB", (16, 16)), "ICO", sizes=[(16, 16)]), "begins with"),
     (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "%!PS")],
)  # fmt: skip
def test_what_is_no_image_or_of_another_format_is_refused_whatever_its_name(
    content: bytes, words: str, tmp_path: Path
) -> None:
    (tmp_path / "image.jpg").write_bytes(content)
    with pytest.raises(ImageFormatError, match=words) as caught:
        load_image(tmp_path / "image.jpg")
    assert "JPEG" in caught.value.expected


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.99])
def test_a_truncated_jpeg_is_an_error_not_a_grey_half(share: float, broccoli: Path) -> None:
    content = broccoli.read_bytes()
    with pytest.raises((ImageDecodeError, ImageFormatError)) as caught:
        load_image(content[: int(len(content) * share)])
    assert "Error" not in caught.value.received  # said in words
    assert "b'" not in caught.value.received


def test_limits_of_size(tmp_path: Path, noise: np.ndarray) -> None:
    bomb = encoded(Image.new("1", (14_000, 13_000)), "PNG")
    assert len(bomb) < 100_000
    with pytest.raises(ImageTooLargeError, match=r"182\.0 million pixels\n  expected: at most 64\.0 million"):
        load_image(bomb)
    nearly = encoded(Image.new("1", (8_001, 8_000)), "PNG")  # above our limit, below Pillow's
    with pytest.raises(ImageTooLargeError, match=r"8,000 x 8,001"):
        load_image(nearly)
    assert load_image(encoded(Image.new("1", (300, 300)), "PNG"), max_pixels=90_000).size == (300, 300)
    path = tmp_path / "image.png"
    Image.fromarray(noise).save(path)
    for source in (path, path.read_bytes()):
        with pytest.raises(ImageTooLargeError, match="bytes"):
            load_image(source, max_bytes=100)


def test_an_animation_is_its_first_frame_or_the_one_at_which_it_stands() -> None:
    frames = [Image.new("RGB", (8, 6), colour) for colour in ("red", "blue")]
    content = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert load_image(content).rgb[0, 0, 0] > 200
    animation = Image.open(io.BytesIO(content))
    animation.seek(1)
    assert load_image(animation).rgb[0, 0, 2] > 200
    assert animation.tell() == 1


@given(SIDES, SIDES, st.integers(1, 40), st.sampled_from([1, 2, 3, 6, 8]), st.booleans())
@example(height=90, width=84, at_least=40, turn=6, grey=False)  # halves of 45 x 42
def test_a_jpeg_is_decoded_at_the_smallest_scale_that_is_enough(
    height: int, width: int, at_least: int, turn: int, grey: bool
) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)).convert(
        "L" if grey else "RGB"
    )
    exif = Image.Exif()
    exif[0x0112] = turn
    content = encoded(image, "JPEG", exif=exif)
    whole, (picture, size) = load_image(content), load_reduced(content, at_least)
    assert size == whole.size
    fits = [s for s in (8, 4, 2) if size[0] % s == size[1] % s == 0]
    scale = next((s for s in fits if max(size) / s >= at_least), 1)
    assert picture.size == (size[0] // scale, size[1] // scale)
    for side in (32, 512, 1000):
        assert fit_cells(*picture.size, side) == fit_cells(*size, side)  # so a store and `encode` have the same grid
    if scale == 1:
        assert np.array_equal(picture.rgb, whole.rgb)
    same, size = load_reduced(content, None)
    assert np.array_equal(same.rgb, whole.rgb)
    assert size == whole.size


def test_a_reduced_jpeg_is_nearly_the_mean_of_its_pixels_within_the_same_limits(broccoli: Path) -> None:
    whole, (half, size) = load_image(broccoli), load_reduced(broccoli, 300)
    assert (half.size, size) == ((320, 240), (640, 480))
    assert half.rgb.flags.writeable
    means = whole.rgb.reshape(320, 2, 240, 2, 3).mean((1, 3))
    assert np.abs(half.rgb - means).mean() < 2
    for other in (whole, whole.rgb, Image.open(broccoli), encoded(Image.open(broccoli), "PNG")):
        assert np.array_equal(load_reduced(other, 10)[0].rgb, whole.rgb)  # nothing else has a scale
    big = encoded(Image.new("L", (8100, 8000)), "JPEG")
    with pytest.raises(ImageTooLargeError, match=r"64\.8 million"):
        load_reduced(big, 10)
    with pytest.raises(ImageDecodeError):
        load_reduced(broccoli.read_bytes()[:20_000], 100)
    with pytest.raises(ImageNotFoundError):
        load_reduced(broccoli.with_name("none.jpg"), 100)


def test_large_images_leave_pillow_in_strips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "STRIP", 100)
    rgb = np.random.default_rng(0).integers(0, 256, (23, 17, 3), np.uint8)
    assert np.array_equal(load_image(Image.fromarray(rgb)).rgb, rgb)
    assert np.array_equal(load_image(Image.fromarray(rgb[:1, :1])).rgb, rgb[:1, :1])


# --- fuzz -------------------------------------------------------------------------------------------------------------

SEEDS = [encoded(Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 40, 3), np.uint8)), k) for k in
         ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF")]  # fmt: skip


@given(st.sampled_from(SEEDS), st.data())
def test_mutated_files_decode_or_raise_one_of_ours(seed: bytes, data: st.DataObject) -> None:
    content = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "grow", "drop"])):
            case "flip":
                content[at] = data.draw(st.integers(0, 255))
            case "cut":
                del content[at + 1 :]
            case "grow":
                content[at:at] = data.draw(st.binary(max_size=16))
            case _:
                del content[at : at + data.draw(st.integers(1, 16))]
        if not content:
            break
    try:
        picture = load_image(bytes(content), max_pixels=1_000_000)
    except errors.FoveateError:
        return  # any other exception fails this test
    assert picture.rgb.dtype == np.uint8
    assert picture.rgb.ndim == 3
