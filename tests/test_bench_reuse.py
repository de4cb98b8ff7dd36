"""The arithmetic of `python -m benchmarks reuse`, on costs whose answer is known; small runs of its tables."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks import reuse
from benchmarks.__main__ import app
from benchmarks.common import PHOTO, crop_square, time_each
from foveate.core.grid import Grid
from foveate.encoders.load import load_encoder
from foveate.encoders.protocol import check_features
from foveate.pipeline import encode, score

COSTS = reuse.Costs(
    cut=0.001, alone={64: 0.009, 224: 0.099}, batched={224: 0.049}, dense=0.06, first=0.101, ask=0.001,
    ask_dense=0.002, ask_crops=0.0005, linear=1.0, sample=16,
)  # fmt: skip
SECONDS = st.integers(0, 200).map(lambda n: n / 64)  # exact in binary: ties are ties


@given(SECONDS, SECONDS, SECONDS, SECONDS)
def test_the_first_question_ahead_is_what_counting_finds(once: float, each: float, start: float, every: float) -> None:
    found = reuse.first_ahead((once, each), (start, every))
    counted = next((n for n in range(1, 14_000) if once + n * each < start + n * every), None)
    assert found == counted


@given(st.integers(0, 640), st.integers(1, 64))
def test_the_first_crop_that_is_dearer_is_what_counting_finds(once: int, crop: int) -> None:
    found = reuse.first_crops(once / 64, crop / 64)
    assert found == next(k for k in range(1, 700) if k * crop > once)


def test_ways_and_where_the_texture_is_ahead() -> None:
    ways = reuse.ways_of(COSTS)
    assert ways[reuse.DENSE] == pytest.approx((0.1, 0.001))
    assert ways["273 crops at 64, one by one, again"] == pytest.approx((0, 273 * 0.01 + 0.0005))
    assert ways["273 crops at 224, kept"] == pytest.approx((273 * 0.05, 0.0005))  # by the quicker way
    assert "273 crops at 64, in batches, again" not in ways  # was not measured
    table = reuse.amortise({"nano": COSTS})
    by = {row["cells"][0]: row for row in table["rows"]}
    assert [by[f"nano, {way}"]["ahead"] for way in (reuse.AGAIN, reuse.KEEP)] == [2, 41]
    assert reuse.amortise({"nano": COSTS._replace(ask_dense=0.001)})["rows"][-1]["cells"][-1] == "never"
    assert all(len(row["cells"]) == len(table["columns"]) for row in table["rows"])
    assert "16 of 273" in table["title"]


def test_five_repeats_give_an_interval_of_the_pairs() -> None:
    """A slow repeat slows both sides: the ratio of its pair stays."""
    each = tuple(COSTS._replace(first=0.101 * slow, cut=0, alone={64: 0.01 * slow}, batched={}) for slow in range(1, 6))
    costs = COSTS._replace(cut=0, alone={64: 0.03}, batched={}, first=0.303, ask_crops=0, each=each)
    (row,) = reuse.compare_patches({"nano": costs})["rows"]
    assert row["samples"] == pytest.approx([2.73 / 0.101] * 5, rel=1e-3)
    assert row["interval"] == pytest.approx([2.73 / 0.101] * 2, rel=1e-3)
    assert "interval" not in reuse.compare_patches({"nano": costs._replace(each=each[:4])})["rows"][0]


def test_patches_by_time_and_by_work() -> None:
    table = reuse.compare_patches({"nano": COSTS})
    small, large, batched = table["rows"]
    assert small["ratios"][2] == pytest.approx((273 * 0.01 + 0.0005) / 0.101)
    assert small["ahead"] == 11  # 10 crops take 0.1 s, the texture and its question half a millisecond more
    assert (large["by_work"], batched["ahead"]) == (pytest.approx(273 * 224**2 / 512**2), 3)
    assert all(len(row["cells"]) == len(table["columns"]) for row in table["rows"])


def test_bytes_of_crops_are_those_of_the_documents_where_they_count_the_same() -> None:
    moved = reuse.move_crops(3 * 1024**2, 273, 224, 1, 0, 768, 4)
    assert moved.inputs == 273 * 224 * 224 * 3 * 4  # their 164 MB
    assert moved.crops * 4 == moved.inputs  # the same crops, as bytes: once, like everything
    assert moved.vectors == 273 * 768 * 4  # their 0.84 MB
    assert moved.first == 3 * 1024**2 + moved.crops + moved.inputs + moved.vectors
    assert reuse.move_crops(0, 273, 224, 16, 5, 1, 1).weights == 18 * 5  # once a batch, the last one of a single crop


def test_windows_surround_their_cells_and_stay_inside() -> None:
    rgb = np.arange(40 * 60, dtype=np.int64).reshape(40, 60, 1)
    windows = list(reuse.windows_of(rgb, Grid(4, 4, 40, 60), 20))  # type: ignore[arg-type]
    assert {window.shape for window in windows} == {(20, 20, 1)}
    corners = [divmod(int(window[0, 0, 0]), 60) for window in windows]
    assert corners[0] == (0, 0)
    assert corners[-1] == (20, 40)
    assert corners[5] == (5, 12)  # centred at (15, 22.5); halves go to even
    assert [window.shape for window in reuse.windows_of(rgb, Grid(1, 1, 40, 60), 50)] == [(40, 50, 1)]  # type: ignore[arg-type]


def test_crops_are_an_encoder_like_any_other() -> None:
    nano, photograph = load_encoder("nano"), crop_square(PHOTO, 256)
    crops = reuse.CropsAsEncoder(nano, across=3, share=0.5, pixels=64)
    dense = crops.encode_image(photograph)
    check_features(crops, dense, (256, 256))
    middle = nano.encode_image(photograph[64:192, 64:192], long_side=64).full(nano.width).mean((0, 1))
    assert np.array_equal(dense.features[1, 1], middle)
    found = score(encode(photograph, encoder=crops), "broccoli", encoder=crops)
    assert found.map.shape == (3, 3)


def test_a_random_clip_goes_through_our_own_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    from benchmarks import random_clip

    assert random_clip.count_tokens("clip-l14", 224) == 257
    assert random_clip.count_flops("clip-b16", 197) == pytest.approx(2 * 17.5e9, rel=0.02)  # published, in products
    tiny = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2}
    parts = {"text_config": tiny, "vision_config": {**tiny, "patch_size": 16}, "projection_dim": 24}
    monkeypatch.setitem(random_clip.SIZES, "clip-b16", (parts, 224))
    encoder, photograph = random_clip.random_clip("clip-b16", layers=1), crop_square(PHOTO, 64)
    one, two = (encoder.encode_images([photograph] * n, long_side=64) for n in (1, 2))
    assert one[0].features.shape == (4, 4, 24)
    assert np.allclose(one[0].features, two[1].features, atol=1e-5)
    short, same = encoder.encode_text(["a red dog", "a dog, a red one"])[0], encoder.encode_text(["a red dog"])[0]
    assert np.allclose(short, same, atol=1e-5)  # padding changes nothing
    many = random_clip.LONG + 1
    assert encoder.encode_text(["a"] * many).shape == (many, 24)


def test_the_command_on_something_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reuse.ENCODERS, "nano", reuse.Kind(512, (64,), 4, 4))
    arguments = [
        "--encoders",
        "nano",
        "--repeats",
        "1",
        "--sides",
        "512",
        "--tables",
        "questions,patches,bytes,components",
    ]
    result = CliRunner().invoke(app, ["reuse", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout.splitlines()[-1])
    assert [table["name"] for table in report["tables"]] == ["questions", "patches", "components", "bytes"]
    costs = report["seconds"]["nano"]
    assert min(costs["first"], costs["dense"]) > costs["alone"]["64"] > 0
    assert {row["cells"][0] for row in report["tables"][2]["rows"]} == {title for _, title, *_ in reuse.COMPONENTS}
    documents, _, *ours = report["tables"][3]["rows"]
    texture = ours[-1]
    assert documents["cells"][0] == "documents, crops"
    assert texture["later"] == encode(crop_square(PHOTO, 1024)).query_nbytes + 4 * 64 * 64
    assert (
        texture["weights"]
        == (Path(reuse.__file__).parents[1] / "src/foveate/encoders/assets/nano_image.onnx").stat().st_size
    )
    assert ours[0]["weights"] == 273 * texture["weights"]


def test_functions_in_turn() -> None:
    called: list[str] = []
    times = time_each({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, 3)
    assert "".join(called) == "abababab"  # one warm-up
    assert {name: len(some) for name, some in times.items()} == {"a": 3, "b": 3}
    assert len(time_each({"a": lambda: None}, 99, patience=0.0)["a"]) == 1
    waited: list[int] = []
    time_each({"a": lambda: waited.append(1)}, 1, lambda: waited.append(2))
    assert waited == [1, 2, 1, 2]
