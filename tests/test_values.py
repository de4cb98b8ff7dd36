"""Values are arrays to NumPy and torch, show themselves as pictures, and are one short line in a terminal."""

from __future__ import annotations

import copy
import io
import pickle
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as random_arrays
from PIL import Image, ImageShow

import foveate
from foveate import Allocation, Relevance, Relevances, Texture, tiles
from foveate.allocation.crops import regions
from foveate.core import display
from foveate.core.arrays import LEAST_FOLD, LEAST_GROUPS, largest, to_half, to_single
from foveate.core.display import FORMATS, Drawable, free_path
from foveate.core.errors import FoveateError, MissingExtraError, OptionError, OutputError
from foveate.relevance.confidence import peak

SHORT = LEAST_GROUPS * LEAST_FOLD  # from here on groups come first
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(scope="module")
def texture(broccoli: Path) -> Texture:
    """Of a small photograph: pictures of it are quick."""
    rgb = np.ascontiguousarray(foveate.load_image(broccoli).rgb[::2, ::2])
    return foveate.encode(foveate.load_image(rgb), long_side=256)


@pytest.fixture(scope="module")
def one(texture: Texture) -> Relevance:
    return foveate.score(texture, "a child")


@pytest.fixture(scope="module")
def several(texture: Texture) -> Relevances:
    return foveate.score(texture, ["a child", "broccoli", "a dog"])


@pytest.fixture(scope="module")
def kept(one: Relevance) -> Allocation:
    return foveate.allocate(one, 200)


def test_a_relevance_is_its_map_relevances_are_a_stack_an_allocation_is_its_indices(
    one: Relevance, several: Relevances, kept: Allocation, texture: Texture
) -> None:
    assert np.asarray(one) is np.array(one, copy=False) is one.map
    assert not np.asarray(one).flags.writeable
    np.array(one)[:] = 0  # a copy is the caller's
    assert one.map.any()
    assert np.asarray(one, np.float64).dtype == np.float64
    assert np.array_equal(np.asarray(one, np.float16), one.map.astype(np.float16))
    assert np.array_equal(one.map * 2, np.multiply(one, 2))
    assert texture.with_channel("asked", one).has("asked")
    assert np.array_equal(np.asarray(several), [each.map for each in several])
    assert np.asarray(several[:2]).shape[0] == 2
    assert np.asarray(several[:0]).shape == several[:0].map.shape == several[:0].logits.shape == (0, 0, 0)
    assert np.asarray(kept) is kept.indices
    for value, dtype in ((one, np.float64), (several, None), (several, np.float32)):
        with pytest.raises(ValueError, match="copy"):
            np.array(value, dtype, copy=False)


@needs_torch
def test_tensors_are_their_own(one: Relevance, several: Relevances, kept: Allocation) -> None:
    import torch

    for value in (one, several, kept):
        tensor = value.torch()
        assert tensor.device == torch.device("cpu")
        assert np.array_equal(tensor.numpy(), np.asarray(value))
        tensor += 1
        assert not np.array_equal(tensor.numpy(), np.asarray(value))
    assert one.torch("meta").device == torch.device("meta")
    assert one.torch(torch.device("cpu")).dtype == torch.float32
    assert kept.torch().dtype == torch.int64
    rows = torch.arange(kept.grid.count)[kept.torch()]
    assert torch.equal(rows, kept.torch())


@needs_torch
def test_a_device_that_is_not_there_and_torch_that_is_missing(one: Relevance, monkeypatch: pytest.MonkeyPatch) -> None:
    devices: tuple[Any, ...] = ("nowhere", "cuda:99", object())
    for device in devices:
        with pytest.raises(OptionError, match="leave it out for the CPU"):
            one.torch(device)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"foveate\[torch\]"):
        one.torch()


def as_numpy(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def test_every_half_comes_back_and_its_neighbours_round_to_even() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[~np.isnan(every)]
    single = to_single(every)
    assert single.dtype == np.float32
    np.testing.assert_array_equal(single.view(np.uint32), every.astype(np.float32).view(np.uint32))
    np.testing.assert_array_equal(to_half(single).view(np.uint16), every.view(np.uint16))
    with np.errstate(over="ignore", invalid="ignore"):
        between = (single[:-1] + single[1:]) / 2  # ties among them
    between = np.concatenate([np.nextafter(between, np.float32(way)) for way in (-1e9, 0, 1e9)] + [between])
    between = between[~np.isnan(between)]
    np.testing.assert_array_equal(to_half(between).view(np.uint16), as_numpy(between).view(np.uint16))


@given(random_arrays.arrays(np.float32, random_arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
                     elements=st.floats(width=32, allow_nan=False)))  # fmt: skip
def test_any_shape(values: np.ndarray) -> None:
    for each in (values, values.T, values[..., ::2] if values.ndim else values):
        found = to_half(each)
        assert found.shape == each.shape
        np.testing.assert_array_equal(found.view(np.uint16), as_numpy(each).view(np.uint16))
        assert to_single(found).shape == each.shape


def test_halves_that_are_no_number_and_without_an_opencv_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    assert np.isnan(to_half(np.array([np.nan], np.float32))).all()
    assert to_half(np.array([1e-7, 1e9])).tolist() == as_numpy(np.array([1e-7, 1e9])).tolist()
    assert to_single(np.array([3], np.int8)).dtype == np.float32
    monkeypatch.setattr("foveate.core.arrays._opencv_converts", lambda: False)
    values = np.array([1e-7, 0.1, -0.0, 7e4], np.float32)
    np.testing.assert_array_equal(to_half(values).view(np.uint16), as_numpy(values).view(np.uint16))
    assert to_single(to_half(values)).dtype == np.float32


@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 3 * SHORT),
    st.integers(1, 400),
    st.sampled_from([1, 2, 7, 10**6]),
    st.sampled_from(["any", "rising", "falling", "one group", "infinite"]),
)
def test_they_are_those_of_a_sort(seed: int, count: int, k: int, kinds: int, order: str) -> None:
    values = np.random.default_rng(seed).integers(0, kinds, count).astype(np.float64)
    if order in ("rising", "falling"):
        values = np.sort(values)[:: 1 if order == "rising" else -1]
    elif order == "one group":
        values = np.where(np.arange(count) % LEAST_GROUPS == 3, values, 0)
    elif order == "infinite":
        values[:7], values[-7:] = np.inf, -np.inf
    k = min(k, count)
    found = largest(values, k)
    assert found[0] == found.min()
    assert np.array_equal(np.sort(found), np.sort(values)[count - k :])
    assert np.array_equal(np.sort(largest(values.astype(np.float32), k)), np.sort(found))


@pytest.mark.parametrize("few", [1, 90, 110, 4 * SHORT])
def test_no_number_is_above_all_of_them_as_for_numpy(few: int) -> None:
    n, k, random = 4 * SHORT, 100, np.random.default_rng(0)
    values = random.random(n, dtype=np.float32)
    values[random.permutation(n)[:few]] = np.nan
    np.testing.assert_array_equal(np.sort(largest(values, k)), np.sort(values)[n - k :])
    np.testing.assert_array_equal(largest(values, k)[0], np.partition(values, n - k)[n - k])
    assert np.isnan(peak(values))


def test_a_peak_does_not_depend_on_the_order_of_the_cells() -> None:
    random = np.random.default_rng(0)
    cells = random.random(4096, dtype=np.float32)
    assert len({peak(random.permutation(cells)) for _ in range(20)}) == 1
    assert peak(cells) == pytest.approx(np.sort(cells)[-4:].mean(dtype=np.float64), rel=1e-7)  # float32


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def values(texture: Texture) -> dict[str, Drawable]:
    relevance = foveate.score(texture, "a child")
    several = foveate.score(texture, ["a child", "broccoli"])
    return {"texture": texture, "one": relevance, "several": several, "kept": foveate.allocate(relevance, 200)}


def test_every_value_has_a_picture(values: dict[str, Drawable]) -> None:
    for value in values.values():
        picture = value.picture()
        assert (picture.mode, min(picture.size) > 100) == ("RGB", True)
        with Image.open(io.BytesIO(value._repr_png_() or b"")) as shown:
            assert shown.format == "PNG"
            assert shown.width / shown.height == pytest.approx(picture.width / picture.height, rel=0.01)
            assert shown.width * shown.height <= 1.01 * max(display.NOTEBOOK, picture.width * picture.height / 4)
    assert values["several"].picture().size[0] > values["one"].picture().size[0]  # a panel a question


@pytest.mark.parametrize("suffix", [".png", ".JPG", ".webp", ".tif", ".pdf"])
def test_the_end_of_a_name_says_the_format(values: dict[str, Drawable], tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a picture{suffix}"
    values["one"].save_image(path, side=120)
    if suffix == ".pdf":
        assert path.read_bytes().startswith(b"%PDF")
    else:
        with Image.open(path) as written:
            assert written.format == FORMATS[suffix.lower()][0]
            assert written.size == values["one"].picture(side=120).size
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", OutputError),
        ("folder", OutputError),
        ("folder.png", OutputError),
        ("missing/picture.png", OutputError),
        ("picture", OptionError),
        ("picture.gif", OptionError),
        ("pic\0ture.png", OutputError),
    ],
)
def test_a_bad_path_changes_nothing(
    values: dict[str, Drawable], tmp_path: Path, name: str, error: type[FoveateError]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.png").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(error, match="fix: "):
        values["one"].save_image(tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(OptionError, match="of type int"):
        values["one"].save_image(3)  # type: ignore[arg-type]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a screen; the current folder."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_server_gets_a_file_under_a_free_name(
    values: dict[str, Drawable], server: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        values["one"].show(side=120)
    assert {path.name for path in server.iterdir()} == {"relevance.png", "relevance-2.png", "relevance-3.png"}
    assert str(server / "relevance-3.png") in capsys.readouterr().out
    assert free_path(server / "other.png") == server / "other.png"


def test_a_desktop_opens_its_viewer(
    values: dict[str, Drawable], server: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(ImageShow, "_viewers", [])
    values["kept"].show(side=120)  # no viewer is installed
    assert str(server / "allocation.png") in capsys.readouterr().out
    seen: list[Image.Image] = []
    viewer = SimpleNamespace(show=lambda image, **options: not seen.append(image))  # type: ignore[func-returns-value]
    monkeypatch.setattr(ImageShow, "_viewers", [viewer])
    values["kept"].show(side=120)
    assert [each.size for each in seen] == [values["kept"].picture(side=120).size]
    assert len(list(server.iterdir())) == 1


def test_a_notebook_displays(values: dict[str, Drawable], server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=shown.append))
    values["texture"].show()
    assert isinstance(shown[0], Image.Image)
    assert not list(server.iterdir())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not display.in_notebook()


def test_a_value_keeps_its_texture_and_pickles_without_it(texture: Texture, values: dict[str, Any]) -> None:
    one: Relevance = values["one"]
    kept: Allocation = values["kept"]
    several: Relevances = values["several"]
    assert one.texture is kept.texture is several[1].texture is texture
    assert one.on(foveate.Grid(10, 12, texture.grid.height, texture.grid.width)).texture is texture
    assert foveate.score(texture, "a dog", prior=one).texture is texture
    for value in (one, kept):
        again = pickle.loads(pickle.dumps(value))
        assert again.texture is None
        assert value.texture is texture
        assert len(pickle.dumps(value)) < texture.pixel.nbytes
        assert min(again.picture().size) > 100  # the map, or the cells, alone
    assert pickle.loads(pickle.dumps(several))[0].texture is None
    for name in ("texture", "one", "kept"):
        assert copy.copy(values[name]) is copy.deepcopy(values[name]) is values[name]  # it never changes


def test_options_of_a_picture_are_checked_whatever_the_value(values: dict[str, Drawable]) -> None:
    for name, said in (("one", "side, labels"), ("kept", "side, labels"), ("several", "side"), ("texture", "none")):
        with pytest.raises(OptionError, match="bogus=1 of a picture") as caught:
            values[name].picture(bogus=1)
        assert said in caught.value.expected
    with pytest.raises(OptionError, match="bogus=1"):
        foveate.viz.picture_of(values["one"], bogus=1)
    panels = values["several"].picture(side=100, labels=False)
    assert 150 < panels.width < 300 > panels.height


def test_what_has_no_picture(values: dict[str, Any]) -> None:
    none = values["several"][:0]
    assert none._repr_png_() is None
    assert np.asarray(none).shape == none.logits.shape == (0, 0, 0)
    with pytest.raises(OptionError, match="no questions"):
        none.show()
    with pytest.raises(OptionError, match="a picture of str"):
        foveate.viz.picture_of("photo.jpg")
    with pytest.raises(OutputError, match=r"20000 x 2 pixels cannot be written as WEBP[^$]*pass 'a/b.png'"):
        display.encode_picture(Image.new("RGB", (20_000, 2)), Path("a/b.webp"))


@pytest.mark.slow
def test_what_has_a_relevance_shows_it(broccoli: Path, tmp_path: Path) -> None:
    store = foveate.Store(tmp_path / "s.fov")
    store.add(broccoli)
    (hit,) = store.search("broccoli")
    assert hit.picture(side=200).size == hit.relevance.picture(side=200).size
    found = foveate.tiles.look(foveate.tiles.survey(broccoli), "broccoli", share=0)
    assert found.relevance.texture is found.scene.overview
    assert min(found.picture(side=200).size) > 100
    frame = next(iter(foveate.video.stream([foveate.load_image(broccoli).rgb], "broccoli")))
    assert frame.picture(side=200).size == frame.relevance.picture(side=200).size


# --- one line in a terminal -------------------------------------------------------------------------------------------


def test_the_main_job_and_a_long_question_cut(texture: Texture, broccoli: Path) -> None:
    relevance = foveate.score(texture, "a child")
    text = repr(relevance)
    assert text.startswith(f"Relevance('a child', {texture.grid.h} x {texture.grid.w} cells, confidence ")
    assert text.endswith(": detected)" if relevance.detected else ": not detected)")
    kept = foveate.allocate(relevance, 200)
    assert repr(kept) == f"Allocation(200 of {texture.grid.count}, grid {texture.grid.h} x {texture.grid.w})"
    found = repr(foveate.score(texture, ["a child", "a dog", "a cat", "a bus"]))
    assert found.startswith(f"Relevances(4: 'a child' {relevance.confidence:.2f}, 'a dog' ")
    assert "a bus" not in found
    cut = regions(relevance.map, relevance.grid, 256)
    assert repr(cut) == f"Regions(of {' + '.join(map(str, cut.tokens.tolist()))} tokens)"
    assert repr(foveate.load_image(broccoli)) == "Picture('child_with_broccoli.jpg', 640 x 480 px)"
    text = repr(foveate.score(texture, "the child\n" + "and the broccoli " * 20))
    assert len(text) < 140
    assert "\n" not in text
    assert "..." in text


@pytest.mark.slow
def test_large_images(broccoli: Path) -> None:
    look = tiles.look(tiles.survey(broccoli), "a child")
    assert len(repr(look)) < 200
    assert repr(look.scene).startswith("Scene(640 x 480 px, ")


@pytest.fixture
def small() -> Any:
    pytest.importorskip("transformers")
    from tests.vlm_models import attached

    return attached("qwen3_vl")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_vision_language_models(small: Any) -> None:
    image = np.zeros((128, 192, 3), np.uint8)
    image[40:80, 50:120] = 200
    encoded, kind = small.see(image), "Qwen3VLForConditionalGeneration"
    assert repr(small) == f"VLM({kind}, family 'qwen3_vl', encoder 'nano')"
    assert repr(encoded) == f"EncodedImage(128 x 192 px, 24 visual tokens, encoded, {kind})"
    assert repr(encoded.features) == "VisualFeatures(24 x 64, 3 further levels)"
    later = small.see([image, image[:64]], mode="sparse")
    sizes = "2 images of 128 x 192 and 64 x 192 px, 24 + 12 visual tokens"
    assert repr(later) == f"EncodedImage({sizes}, for mode 'sparse', {kind})"
    film = small.see_video([image] * 4)
    assert repr(film) == f"EncodedImage(2 frames of 128 x 192 px, 48 visual tokens, encoded, {kind})"
    prepared = small.prepare(later, "what is it?", budget=(4, 3), mode="sparse")
    assert repr(prepared) == f"Prepared('what is it?', 7 of 36 visual tokens, mode 'sparse', {kind})"
    assert repr(prepared.chosen[0]) == "Choice(4 of 24 selectable tokens, 4 with line ends)"
    answer = small.ask(encoded, "what is it?", budget=6, max_new_tokens=2)
    seconds = sum(answer.seconds.values())
    assert (answer.question, answer.mode) == ("what is it?", "drop")
    assert repr(answer) == (
        f"Answer({answer.text!r} to 'what is it?', 6 of 24 visual tokens, mode 'drop', {seconds:.2f} s)"
    )
    crops = small.ask(encoded, "a square", budget=100, mode="crop", max_new_tokens=1)
    assert (crops.question, crops.mode) == ("a square", "crop")
    assert len(small.ask_many(encoded, ["a square", "a dog"], budget=5, max_new_tokens=1)) == 2
    assert len(repr(small.ask_many(encoded, ["a square", "a dog"], budget=5, max_new_tokens=1))) < 250
