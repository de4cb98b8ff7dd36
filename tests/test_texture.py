"""The texture as a value: channels, sampling, tables, planes of your own, published layouts."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foveate
from foveate import Grid, Texture
from foveate.core.errors import ChannelError, UnbuiltChannelWarning
from foveate.core.grid import resize_map, sample_linear, sample_nearest
from foveate.core.layout import CHANNELS, FULL40, GRID13, LAYOUTS, MVP13, Layout


def test_unbuilt_channels_are_neutral_and_warn_where_they_are_named(texture: Texture) -> None:
    unbuilt = [channel for channel in CHANNELS if not texture.has(channel.name)]
    for channel in unbuilt:
        assert channel.name not in texture.planes
        with pytest.warns(UnbuiltChannelWarning, match=f"'{channel.name}'.*was not built") as caught:
            assert (texture.channel(channel.name) == channel.neutral).all()
        assert caught[0].filename == __file__
    with pytest.warns(UnbuiltChannelWarning, match="channels=.'text'"):
        texture.mip("text", 2)
    with pytest.warns(UnbuiltChannelWarning, match="channels=.'text'"):
        texture.sample([[1, 1]], ["red", "text"])
    with pytest.warns(UnbuiltChannelWarning):  # what docs once advised: it protects nothing on a default texture
        assert not (texture.channel("text") > 0.5).any()
    with warnings.catch_warnings():  # all channels at once, and a reader who accepts the neutral value
        warnings.simplefilter("error")
        assert texture.sample([[1, 1]])[0, FULL40.layer("cluster_id")] == texture.channel("cluster_id")[0, 0]
        texture.sample([[1, 1]], MVP13)
        texture.dense(MVP13)
        texture.tokens()
        texture.channel("text", warn=False)
        texture.with_channel("text", np.ones((160, 120))).channel("text")


def test_which_channels_a_texture_has_and_their_sizes_and_ranges(texture: Texture) -> None:
    assert {"red", "edge_on", "saliency", "x", "embedding_0", "embedding_15", "edge_distance"} <= set(texture.built)
    assert {"cluster_id", "boundary"} <= set(texture.built)
    assert {"motion", "text", "gaze"}.isdisjoint(texture.built)
    assert texture.made_by["cluster_id"].startswith("kmeans")
    sizes = {"pixel": (640, 480), "quarter": (160, 120), "cell": (64, 48), "position": (64, 48)}
    for channel in CHANNELS:
        plane = texture.channel(channel.name, warn=False)
        assert plane.shape == sizes[channel.native], channel.name
        assert plane.dtype == np.float32
        assert np.isfinite(plane).all()
        assert plane.min() >= channel.low
        assert plane.max() <= channel.high


def test_convention_y_before_x(texture: Texture) -> None:
    assert np.allclose(texture.channel("x")[0], (np.arange(48) + 0.5) / 48)
    assert np.allclose(texture.channel("y")[:, 0], (np.arange(64) + 0.5) / 64)
    assert texture.sample([[0.0, 480.0]], ["x", "y", "eccentricity"])[0].tolist() == [1, 0, 1]
    for y, x in ((3, 471), (600, 20)):
        read = texture.sample([[y + 0.5, x + 0.5]], ["red", "green", "blue"])[0]
        assert np.allclose(read * 255, texture.pixel[y, x], atol=1e-3)


@given(seed=st.integers(0, 99), name=st.sampled_from(["saliency", "embedding_0", "low_pass", "edge_on"]))
def test_sampling_at_pixel_centres_equals_upsampling_first(seed: int, name: str, street: Texture) -> None:
    texture = street
    rng = np.random.default_rng(seed)
    pixels = np.stack([rng.integers(0, texture.grid.height, 30), rng.integers(0, texture.grid.width, 30)], 1)
    upsampled = resize_map(texture.channel(name), (texture.grid.height, texture.grid.width))
    assert np.allclose(texture.sample(pixels + 0.5, [name])[:, 0], upsampled[pixels[:, 0], pixels[:, 1]], atol=1e-5)


def test_dense_holds_every_channel_at_every_pixel(noise: np.ndarray) -> None:
    texture = foveate.encode(noise, long_side=64)
    dense = texture.dense()
    assert dense.shape == (40, 30, 50)
    assert np.array_equal(np.rint(dense[:3] * 255), noise.transpose(2, 0, 1))
    grid = np.stack(np.meshgrid(np.arange(30), np.arange(50), indexing="ij"), -1).reshape(-1, 2) + 0.5
    for i, name in enumerate(FULL40.names):
        assert np.allclose(dense[i].ravel(), texture.sample(grid, Layout("one", (name,)))[:, 0], atol=2e-3), name


def test_the_token_table_has_one_row_a_cell(texture: Texture) -> None:
    table, layout = texture.tokens(), texture.layout
    assert table.shape == (64 * 48, 40)
    assert table.flags.c_contiguous
    for column in (layout.names.index("saliency"), layout.layer("saliency")):
        assert np.array_equal(table[:, column], texture.channel("saliency").ravel())
    red = texture.pixel[..., 0].reshape(64, 10, 48, 10).mean((1, 3)) / 255
    assert np.allclose(table[:, 0], red.ravel(), atol=1e-5)
    kept = foveate.allocate(foveate.score(texture, "broccoli"), 20)
    assert np.array_equal(table[kept.indices], table[kept.mask.ravel()])


def test_tables_and_mips_reduce_each_channel_by_its_own_rule(texture: Texture) -> None:
    coarse = texture.tokens(Grid(8, 6, 640, 480))
    blocks = {name: texture.channel(name).reshape(8, 20, 6, 20) for name in ("edge_on", "edge_distance", "low_pass")}
    assert np.array_equal(coarse[:, 3], blocks["edge_on"].max((1, 3)).ravel())
    assert np.array_equal(coarse[:, 34], blocks["edge_distance"].min((1, 3)).ravel())
    assert np.allclose(coarse[:, 6], blocks["low_pass"].mean((1, 3)).ravel(), atol=1e-5)
    for name, function in (("edge_on", np.max), ("edge_distance", np.min), ("low_pass", np.mean)):
        native, half = texture.mip(name, 0), texture.mip(name, 1)
        assert half.shape == (80, 60)
        assert np.allclose(half, function(native.reshape(80, 2, 60, 2), (1, 3)), atol=1e-5)
    assert texture.mip("saliency", 16).shape == (1, 1)


def test_a_texture_cannot_be_changed(texture: Texture) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        texture.name = "other"  # type: ignore[misc]
    for array in (texture.pixel, texture.embedding, texture.tokens(), texture.channel("saliency")):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(TypeError):
        texture.planes["saliency"] = texture.planes["saliency"]  # type: ignore[index]


def test_a_texture_stays_small() -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (1024, 1024, 3), np.uint8)
    texture = foveate.encode(rgb)
    assert texture.grid.shape == (64, 64)
    assert texture.nbytes <= 6.5e6
    assert texture.query_nbytes <= 275e3
    texture = foveate.encode(np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8))
    texture.sample([[1.0, 1.0]], ["red"])
    texture.channel("green")
    assert not [key for key in texture._derived if isinstance(key, tuple) and key[1] in ("red", "green")]


def test_scores_of_compressed_cells_are_within_their_bound(texture: Texture, broccoli: Path) -> None:
    small, full = texture, foveate.encode(broccoli, channels="fast", rank="full")
    q = foveate.load_encoder("nano").encode_text(["a dog", "broccoli", "table"])
    assert (np.abs(small.scores(q) - full.scores(q)) <= small.error_bound(q) + full.error_bound(q) + 1e-4).all()


# --- the words of graphics: filters, boundaries, levels, footprints ---------------------------------------------------


coordinate = st.floats(-40, 40, width=32)


def bilinear(plane: np.ndarray, y: float, x: float, boundary: str) -> float:
    """One reading, the slow way."""
    h, w = plane.shape

    def at(i: int, j: int) -> float:
        if boundary == "wrap":
            return float(plane[i % h, j % w])
        if boundary == "zero" and not (0 <= i < h and 0 <= j < w):
            return 0.0
        return float(plane[min(max(i, 0), h - 1), min(max(j, 0), w - 1)])

    i, j = int(np.floor(y - 0.5)), int(np.floor(x - 0.5))
    a, b = y - 0.5 - i, x - 0.5 - j
    return (1 - a) * ((1 - b) * at(i, j) + b * at(i, j + 1)) + a * ((1 - b) * at(i + 1, j) + b * at(i + 1, j + 1))


@given(st.integers(1, 6), st.integers(1, 7), coordinate, coordinate, st.sampled_from(["clamp", "wrap", "zero"]))
def test_boundaries_against_one_reading_at_a_time(h: int, w: int, y: float, x: float, boundary: str) -> None:
    plane = np.random.default_rng(h * 8 + w).random((h, w)).astype(np.float32)
    at = np.array([y]), np.array([x])
    assert np.allclose(sample_linear(plane, *at, boundary)[0], bilinear(plane, y, x, boundary), atol=2e-5)  # type: ignore[arg-type]
    i, j = int(np.floor(y)), int(np.floor(x))
    inside = 0 <= i < h and 0 <= j < w
    expected = {
        "clamp": plane[min(max(i, 0), h - 1), min(max(j, 0), w - 1)],
        "wrap": plane[i % h, j % w],
        "zero": plane[i, j] if inside else 0,
    }[boundary]
    assert sample_nearest(plane, *at, boundary)[0] == expected  # type: ignore[arg-type]


def test_between_two_levels_lies_their_mix_and_each_position_may_have_its_own(texture: Texture) -> None:
    at = np.random.default_rng(0).uniform(0, 480, (50, 2))
    near = [texture.sample(at, ["saliency"], level=level) for level in (4.0, 5.0)]
    mixed = texture.sample(at, ["saliency"], level=4.25, filter_mode="linear-mipmap-linear")
    native = np.log2(10)  # a cell is 10 pixels: level 4 of the image is 0.68 of the cells' own
    steps = [texture.sample(at, ["saliency"], level=native + step) for step in (0, 1)]
    part = 4.25 - native
    assert np.allclose(mixed, (1 - part) * steps[0] + part * steps[1], atol=1e-5)
    assert np.array_equal(near[0], steps[1])  # the nearest level
    assert np.array_equal(texture.sample(at, ["saliency"], level=9, filter_mode="linear"), steps[0])
    at = np.random.default_rng(1).uniform(0, 480, (6, 2))
    levels = np.array([0, 2, 3.4, 5, 7, 16])
    together = texture.sample(at, ["red", "edge_on", "saliency"], level=levels)
    for i, level in enumerate(levels):
        assert np.array_equal(
            together[i], texture.sample(at[i : i + 1], ["red", "edge_on", "saliency"], level=level)[0]
        )


def test_a_footprint_becomes_a_level(texture: Texture) -> None:
    at = np.random.default_rng(2).uniform(0, 480, (5, 2))
    expected = texture.sample(at, ["low_pass"], level=4)
    assert np.array_equal(texture.sample(at, ["low_pass"], footprint=np.full(5, 16.0)), expected)
    turned = np.array([[0.0, 16.0], [-3.0, 0.0]])  # d(y, x)/d(row, column): a quarter turn, 16 pixels a column
    assert np.array_equal(texture.sample(at, ["low_pass"], footprint=np.stack([turned] * 5)), expected)
    assert np.array_equal(texture.sample(at, ["low_pass"], footprint=[turned.tolist()] * 5), expected)
    assert np.array_equal(texture.sample(at, ["low_pass"], footprint=np.full(5, 8.0), level=1), expected)
    noise = np.random.default_rng(0).integers(0, 256, (1, 4000, 3), np.uint8)
    strip = foveate.encode(noise, long_side=512)  # cells of 1 x 62 pixels
    fine, coarse = (strip.sample([[0.5, 1000.0]], ["embedding_0"], level=level) for level in (0, 6))
    assert fine == coarse


def test_ids_are_never_blended(texture: Texture) -> None:
    ids = np.random.default_rng(3).choice([0, 7, 49], texture.grid.shape)
    marked = texture.with_channel("cluster_id", ids)
    at = np.random.default_rng(4).uniform(0, 480, (200, 2))
    for mode in ("nearest", "linear", "linear-mipmap-nearest", "linear-mipmap-linear"):
        for level in (0, 4.5, 6):
            read = marked.sample(at, ["cluster_id"], level=level, filter_mode=mode)
            assert set(np.unique(read)) <= {0, 7, 49}
    for level in (1, 2, 3):
        assert set(np.unique(marked.mip("cluster_id", level))) <= {0, 7, 49}
    assert set(marked.dense(Layout("ids", ("cluster_id",))).ravel()) == {0, 7, 49}


# --- planes of one's own ----------------------------------------------------------------------------------------------


def test_a_plane_shares_the_rest_and_keeps_the_description_of_the_table(texture: Texture, tmp_path: Path) -> None:
    plane = np.linspace(-2, 2, texture.grid.count).reshape(texture.grid.shape)
    more = texture.with_channel("temperature", plane, low=-2, high=2, reduction="max", made_by="a camera", about="heat")
    assert "temperature" not in texture.built
    assert more.built == (*texture.built, "temperature")
    assert more.pixel is texture.pixel
    assert np.allclose(more.channel("temperature"), plane, atol=2e-3)
    assert np.allclose(more.mip("temperature", 1), plane.reshape(32, 2, 24, 2).max((1, 3)), atol=2e-3)
    assert more.made_by["temperature"] == "a camera"
    assert more.sample([[5, 5]], ["temperature"])[0, 0] == pytest.approx(-2, abs=1e-3)
    more.save(tmp_path / "t.safetensors")
    loaded = Texture.load(tmp_path / "t.safetensors")
    assert loaded.describe("temperature") == more.describe("temperature")
    assert np.array_equal(loaded.channel("temperature"), more.channel("temperature"))
    assert dict(loaded.made_by) == dict(more.made_by)
    with pytest.raises(ChannelError, match="perhaps temperature"):
        more.channel("temprature")
    gaze = np.zeros(texture.grid.shape)
    gaze[3, 4] = 1
    assert texture.with_channel("gaze", gaze).tokens()[3 * 48 + 4, FULL40.layer("gaze")] == 1
    depth = texture.with_channel("depth", np.full((160, 120), 0.5))
    assert depth.describe("depth").native == "quarter"
    assert texture.with_channel("mine", np.zeros((160, 120))).describe("mine").native == "quarter"
    assert texture.with_channel("mine", np.zeros((640, 480))).describe("mine").native == "pixel"


# --- layouts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(LAYOUTS))
def test_every_published_layout_materialises(noise: np.ndarray, name: str) -> None:
    dense, layout = foveate.encode(noise, long_side=64).dense(layout=name), LAYOUTS[name]
    assert dense.shape == (len(layout), *(layout.shape or (30, 50)))
    assert np.isfinite(dense).all()
    digits = {"lean": 36, "part28": 40}.get(name) or int("".join(filter(str.isdigit, name)) or len(layout))
    assert len(layout) == digits


def test_rope56_has_the_angles_of_positions_behind_full40(texture: Texture) -> None:
    table = texture.tokens(layout="rope56")
    assert np.array_equal(table[:, :40], texture.tokens())
    assert LAYOUTS["rope56"].names[40:44] == ("rope_sin_y_0", "rope_cos_y_0", "rope_sin_x_0", "rope_cos_x_0")
    h, w = texture.grid.shape
    for i in range(4):  # the formula, cell by cell
        for axis, index in (("y", np.arange(h)[:, None] + np.zeros(w)), ("x", np.arange(w) + np.zeros((h, 1)))):
            angle = index * 100 ** (-i / 4)
            for name, wave in (("sin", np.sin), ("cos", np.cos)):
                plane = texture.channel(f"rope_{name}_{axis}_{i}")
                assert np.allclose(plane, wave(angle), atol=1e-5)
    turned = [texture.channel(f"rope_{wave}_x_0") for wave in ("sin", "cos")]
    dot = turned[0][:, 2:] * turned[0][:, :-2] + turned[1][:, 2:] * turned[1][:, :-2]
    assert np.allclose(dot, np.cos(2), atol=1e-5)  # two cells apart: the same rotation everywhere
    cell = texture.grid.width / w
    assert texture.sample([[5.0, 2.5 * cell]], ["rope_sin_x_0"])[0, 0] == pytest.approx(np.sin(2), abs=1e-5)
    with pytest.raises(ChannelError):
        texture.with_channel("rope_sin_x_0", turned[0])
    with pytest.raises(ChannelError, match="rope_sin_x_3"):
        texture.channel("rope_sin_x_9")


def test_tables_of_halves_are_those_of_floats_rounded_and_end_where_float16_ends(texture: Texture) -> None:
    whole, half = texture.tokens(), texture.tokens(dtype=np.float16)
    assert half.dtype == np.float16
    assert (half.shape, half.nbytes) == (whole.shape, whole.nbytes // 2)
    assert np.array_equal(half, whole.astype(np.float16))
    assert texture.tokens(dtype="float16") is half  # kept, and read-only
    assert not half.flags.writeable
    exact = [FULL40.layer(name) for name in FULL40.names if name.startswith(("embedding", "cluster", "saliency"))]
    assert np.array_equal(half[:, exact].astype(np.float32), whole[:, exact])  # these are kept as float16
    assert np.abs(half.astype(np.float32) - whole).max() <= 2**-11
    assert texture.tokens().dtype == np.float32
    dense = texture.dense("grid13", dtype=np.float16)
    assert np.array_equal(dense, texture.dense("grid13").astype(np.float16))
    high = np.full(texture.grid.shape, 6e4)
    moved = texture.with_channel("flow_y", high).with_channel("flow_x", high)
    table = moved.tokens(layout=Layout("mine", ("flow_y", "flow_magnitude")), dtype=np.float16)
    assert table[0].tolist() == [60000, 65504]


def test_the_length_of_the_flow_follows_from_its_parts(texture: Texture) -> None:
    assert not texture.has("flow_magnitude")
    with pytest.warns(UnbuiltChannelWarning, match=r"foveate\.video"):
        assert not texture.channel("flow_magnitude").any()
    down = np.linspace(-6, 6, texture.grid.count).reshape(texture.grid.shape)
    half = texture.with_channel("flow_y", down)
    assert not half.has("flow_magnitude")
    moved = half.with_channel("flow_x", np.full(texture.grid.shape, 4.0))
    assert moved.has("flow_magnitude")
    assert "flow_magnitude" in moved.built
    assert "flow_magnitude" not in moved.planes
    assert np.allclose(moved.channel("flow_magnitude"), np.hypot(down, 4), atol=5e-3)
    assert moved.sample([[5, 5]], ["flow_magnitude"])[0, 0] == pytest.approx(np.hypot(6, 4), abs=0.1)
    with pytest.raises(ChannelError, match="flow_magnitude"):
        texture.with_channel("flow_magnitude", down)


def sobel(luma: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """d/dy and d/dx, each over 4; the border repeated."""
    p = np.pad(luma, 1, mode="edge")
    smooth_x, smooth_y = p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:], p[:-2] + 2 * p[1:-1] + p[2:]
    return (smooth_x[2:] - smooth_x[:-2]) / 4, (smooth_y[:, 2:] - smooth_y[:, :-2]) / 4


def grid13(rgb: np.ndarray, saliency: np.ndarray) -> np.ndarray:
    """The 13 planes at 32 x 32 in a few lines of NumPy, for an image whose sides are multiples of 128."""
    x = rgb / 255.0
    luma = np.rint(rgb @ [0.299, 0.587, 0.114]) / 255
    dy, dx = sobel(luma)
    magnitude = np.minimum(np.hypot(dy, dx), 1)

    def mean(plane: np.ndarray) -> np.ndarray:
        return plane.reshape(32, len(plane) // 32, 32, -1).mean((1, 3))

    def most(plane: np.ndarray) -> np.ndarray:
        return plane.reshape(32, len(plane) // 32, 32, -1).max((1, 3))

    brighter = luma >= blurred(luma)
    y, z = np.mgrid[:32, :32]
    return np.stack([*(mean(x[..., c]) for c in range(3)), (y + 0.5) / 32, (z + 0.5) / 32, mean(dx), mean(dy),
                     mean(magnitude), mean(saliency), most(magnitude * brighter), most(magnitude * ~brighter),
                     mean(x.var(2)), mean(x.mean(2))])  # fmt: skip


def blurred(luma: np.ndarray, sigma: float = 4.0) -> np.ndarray:
    reach = 16  # OpenCV's size for float planes: 4 sigma to either side
    kernel = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    kernel /= kernel.sum()
    for axis in (0, 1):
        wide = np.pad(luma, [(reach, reach) if a == axis else (0, 0) for a in (0, 1)], mode="edge")
        luma = sum(k * np.take(wide, range(i, i + luma.shape[axis]), axis) for i, k in enumerate(kernel))
    return luma


def test_grid13_against_a_few_lines_of_numpy(broccoli: Path) -> None:
    rgb = foveate.load_image(broccoli).rgb[100:612, 100:356]  # 512 x 256
    texture = foveate.encode(rgb)
    dense, expected = texture.dense(layout=GRID13), grid13(rgb, texture.channel("saliency"))
    for name, plane, twin in zip(GRID13.names, dense, expected, strict=True):
        off = np.abs(plane - twin)
        if name in ("edge_on", "edge_off", "saliency"):  # a pixel as bright as its surround may fall either way
            assert (off > 2e-3).mean() < 0.01, name
        else:
            assert off.max() < 5e-3, name
