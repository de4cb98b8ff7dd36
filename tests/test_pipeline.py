"""encode, score, allocate: the contract between them, inputs at the edge, and presets, one name for their keywords."""

from __future__ import annotations

import inspect
import json
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from typer.testing import CliRunner

import foveate
from foveate import Grid, Texture
from foveate.cli.main import app
from foveate.core.errors import (
    ChannelError,
    EncoderNameError,
    EncoderOutputError,
    ImageNotFoundError,
    MissingExtraError,
    OptionError,
    QueryError,
    TextureEncoderError,
    UnbuiltChannelWarning,
)
from foveate.encoders.protocol import Calibration, DenseFeatures, Encoder
from foveate.reading.words import Word
from foveate.relevance.options import ScoringOptions
from foveate.relevance.presets import PRESETS, PresetName, find_preset, preset_of, remember_preset
from tests.conftest import PHOTOS


def test_the_three_lines_of_the_readme(broccoli: Path) -> None:
    texture = foveate.encode(broccoli)
    relevance = foveate.score(texture, "where is the broccoli?")
    kept = foveate.allocate(relevance, budget=273)
    assert len(kept) == 273
    assert relevance.map.shape == kept.mask.shape == texture.grid.shape == (64, 48)
    assert relevance.map.dtype == np.float32
    assert 0 <= relevance.map.min() <= relevance.map.max() <= 1
    assert texture.tokens()[kept.indices].shape == (273, 40)
    for source in (str(broccoli), broccoli.read_bytes(), foveate.load_image(broccoli).rgb):
        assert np.array_equal(foveate.encode(source, channels="fast").embedding, texture.embedding)


def test_a_list_of_questions_is_stacked_in_order(texture: Texture) -> None:
    several = foveate.score(texture, ["broccoli", "a child", "a dog"])
    assert several.map.shape == several.logits.shape == (3, 64, 48)
    assert several.confidence.shape == (3,)
    assert [r.query for r in several] == ["broccoli", "a child", "a dog"]
    for i, query in enumerate(["broccoli", "a child", "a dog"]):
        assert np.allclose(several[i].map, foveate.score(texture, query).map, atol=1e-6)
    assert len(several[1:]) == 2
    kept = foveate.allocate(several, 50)
    assert np.array_equal(kept[1].indices, foveate.allocate(several[1], 50).indices)
    with pytest.raises(QueryError, match="empty list"):
        foveate.score(texture, [])


def test_several_phrases_take_the_highest_and_one_may_be_called_saliency(texture: Texture) -> None:
    both = foveate.score(texture, "is there a child with broccoli?", smoothing=0)
    assert list(both.parts) == ["child", "broccoli"]
    assert np.array_equal(both.map, np.maximum(both.parts["child"], both.parts["broccoli"]))
    assert list(foveate.score(texture, "saliency").parts) == ["saliency"]
    assert not np.array_equal(foveate.score(texture, "saliency").parts["saliency"], texture.channel("saliency"))


def test_score_is_pure_and_works_from_many_threads(broccoli: Path, texture: Texture) -> None:
    fresh = foveate.encode(broccoli)
    queries = [f"{adjective} {noun}" for adjective in ("red", "old") for noun in ("dog", "child", "broccoli", "hat")]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda q: foveate.score(fresh, q).map, queries * 4))
    alone = [foveate.score(texture, q).map for q in queries]
    assert all(np.array_equal(a, alone[i % len(queries)]) for i, a in enumerate(together))


def test_relevance_moves_to_another_grid(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    merged = relevance.on(Grid(23, 17, 640, 480))  # merged tokens of 28 pixels
    assert merged.map.shape == merged.saliency.shape == merged.parts["broccoli"].shape == (23, 17)
    assert merged.map.mean() == pytest.approx(relevance.map.mean(), abs=0.02)
    y, x = merged.grid.centres()[merged.map.argmax()]
    far = relevance.grid.centres()[relevance.map.argmax()] - (y, x)
    assert np.abs(far).max() < 60
    assert len(foveate.allocate(merged, 100)) == 100
    with pytest.raises(OptionError, match="480 x 640"):
        relevance.on(Grid(23, 17, 480, 640))


def test_an_absent_thing_gets_a_low_map_and_a_budget_that_is_context(texture: Texture) -> None:
    relevance = foveate.score(texture, "an elephant")
    assert not relevance.detected
    assert relevance.map.max() < 0.5
    kept = foveate.allocate(relevance, 273)
    quarters = [half.sum() for rows in np.array_split(kept.mask, 2) for half in np.array_split(rows, 2, 1)]
    assert min(quarters) >= 25
    assert kept.kinds.count("asked") < 100


# --- images at the edge -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, 128])
def test_constant_images_give_a_flat_map_and_an_even_budget(value: int) -> None:
    texture = foveate.encode(np.full((90, 140, 3), value, np.uint8))
    relevance = foveate.score(texture, "a dog")
    assert np.ptp(relevance.map) == 0
    assert not relevance.detected
    assert np.isfinite(texture.dense()).all()
    kept = foveate.allocate(relevance, 273)
    quarters = [half.sum() for rows in np.array_split(kept.mask, 2) for half in np.array_split(rows, 2, 1)]
    assert max(quarters) - min(quarters) <= 0.25 * 273
    assert len(kept) == 273


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (7, 500)])
@pytest.mark.filterwarnings("ignore::foveate.core.errors.ResolutionHint")
def test_extreme_shapes_go_all_the_way(size: tuple[int, int]) -> None:
    rgb = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    texture = foveate.encode(rgb)
    relevance = foveate.score(texture, "a dog")
    assert np.isfinite(relevance.map).all()
    for budget in (1, texture.grid.count):
        assert len(foveate.allocate(relevance, budget)) == budget


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full(broccoli: Path) -> Texture:
    return foveate.encode(broccoli, channels="fast", rank="full")


def test_a_rank_keeps_so_many_numbers_and_nearly_all_of_a_map(full: Texture, broccoli: Path, texture: Texture) -> None:
    assert full.embedding.shape == (64, 48, foveate.load_encoder("nano").width)
    low = foveate.encode(broccoli, channels="fast", rank=5)
    assert low.embedding.shape == (64, 48, 5)
    assert "embedding_4" in low.built
    assert "embedding_5" not in low.built
    for query in ("broccoli", "a child", "a window", "hair"):
        a, b = foveate.score(full, query).logits, foveate.score(texture, query).logits
        assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.97
    for query in ("a dog", "a bus", "a cup"):  # of what is not there next to nothing is kept, and nothing is made up
        assert abs(foveate.score(full, query).map - foveate.score(texture, query).map).max() < 0.02


def test_channels_of_a_higher_rank(texture: Texture, broccoli: Path) -> None:
    high = foveate.encode(broccoli, channels="fast", rank=28)
    assert (high.channel("embedding_20") == high.embedding[..., 20]).all()
    assert [name for name in high.built if name.startswith("embedding")] == [f"embedding_{i}" for i in range(28)]
    table = high.tokens(layout="full56")
    assert table.shape == (64 * 48, 56)
    assert (table[:, 18:46] == high.coordinates()).all()
    assert (table[:, 46:50] == 0).all()
    for rank, every in ((24, texture), (28, high)):  # all there are, and nothing else
        planes = every.dense("full", dtype=np.float16)
        assert planes.shape == (24 + rank, every.grid.height, every.grid.width)
        assert planes[17 + rank].any()
        assert (every.tokens(layout="full")[:, 18 : 18 + rank] == every.coordinates()).all()
    assert (high.sample([(100.0, 100.0)], ["embedding_23"]) != 0).all()
    with pytest.warns(UnbuiltChannelWarning, match=r"rank=27\).*not 24"):
        assert (texture.channel("embedding_26") == 0).all()


def test_the_budget_is_auto_by_default(texture: Texture, noise: np.ndarray) -> None:
    broccoli = foveate.score(texture, "broccoli")
    assert np.array_equal(foveate.allocate(broccoli).indices, foveate.allocate(broccoli, "auto").indices)
    assert 3072 / 64 < len(foveate.allocate(broccoli)) < 3072 / 4
    small = foveate.encode(noise, long_side=64)
    assert 1 <= len(foveate.allocate(foveate.score(small, "a dog"))) <= 10  # of 5 x 8


def test_transparent_cells_are_not_relevant_and_kept_last(broccoli: Path) -> None:
    rgb = foveate.load_image(broccoli).rgb
    alpha = np.full((*rgb.shape[:2], 1), 255, np.uint8)
    alpha[320:] = 0
    texture = foveate.encode(np.concatenate([rgb, alpha], 2), channels="fast")
    for query in ("a child", "an elephant"):
        relevance = foveate.score(texture, query)
        assert (relevance.map[32:] == 0).all()
        assert (relevance.map[:32].max() > 0.5) == (query == "a child")
        assert not foveate.allocate(relevance, 273).mask[32:].any()
        assert foveate.allocate(relevance, 32 * 48 + 5).mask[:32].all()


# --- somebody's own encoder -------------------------------------------------------------------------------------------


CALIBRATION = Calibration(temperature=10, contrast=1, synonym=0.99, slope=8, offset=0)


@dataclass(frozen=True)
class Colours:
    """Three dimensions: how red, green and blue a cell is. Small enough to know the right answer."""

    name: str = "colours"
    revision: str = "1"
    width: int = 3
    templates: tuple[str, ...] = ("{}", "a {}")
    calibration: Calibration = CALIBRATION

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> DenseFeatures:
        h, w = rgb.shape[0] // 8, rgb.shape[1] // 8
        mean = rgb.reshape(h, 8, w, 8, 3).mean((1, 3), np.float32) + 1
        return DenseFeatures(mean / np.linalg.norm(mean, axis=-1, keepdims=True), Grid(h, w, *rgb.shape[:2]))

    def encode_text(self, texts: object) -> np.ndarray:
        out = np.array([[("red" in t) + 0.1, ("green" in t) + 0.1, ("blue" in t) + 0.1] for t in texts], np.float32)  # type: ignore[attr-defined]
        return out / np.linalg.norm(out, axis=1, keepdims=True)


def halves() -> np.ndarray:
    rgb = np.zeros((64, 96, 3), np.uint8)
    rgb[:, :48, 0] = 255
    rgb[:, 48:, 2] = 255
    return rgb


def test_an_encoder_of_ones_own_is_wanted_back() -> None:
    own = Colours()
    assert isinstance(own, Encoder)
    texture = foveate.encode(halves(), encoder=own)  # three dimensions: all are kept
    red, blue = foveate.score(texture, ["red", "blue"], encoder=own)
    assert red.map[:, :6].min() > red.map[:, 6:].max()
    assert blue.map[:, 6:].min() > blue.map[:, :6].max()
    assert red.detected
    assert foveate.allocate(red, 48, policy="topk").mask[:, :6].all()
    texture = foveate.encode(halves(), encoder=Colours())
    with pytest.raises(TextureEncoderError, match="colours") as caught:
        foveate.score(texture, "red")
    assert "encoder=" in caught.value.fix
    with pytest.raises(TextureEncoderError, match="revision 1"):
        foveate.score(texture, "red", encoder=Colours(revision="2"))


class Strange(Colours):
    """Colours whose methods return what they are told to."""

    def __init__(self, image: Any = None, text: Any = None) -> None:
        super().__init__(revision="strange")
        self.image, self.text = image, text

    def encode_image(self, rgb: np.ndarray, *, long_side: int | None = None) -> Any:
        dense = super().encode_image(rgb)
        return dense if self.image is None else self.image(dense)

    def encode_text(self, texts: Any) -> Any:
        return super().encode_text(texts) if self.text is None else self.text(super().encode_text(texts))


@pytest.mark.parametrize(
    "image",
    [
        lambda dense: DenseFeatures(np.where(np.arange(3) == 0, np.nan, dense.features), dense.grid),
        lambda dense: DenseFeatures(dense.features * 1e6, dense.grid),
        lambda dense: DenseFeatures(dense.features[..., :2], dense.grid),
        lambda dense: DenseFeatures(dense.features, Grid(dense.grid.h, dense.grid.w, 7, 7)),
        lambda dense: DenseFeatures(dense.features.transpose(1, 0, 2), dense.grid),
        lambda dense: 5,
        lambda dense: DenseFeatures(dense.features.tolist(), dense.grid),
        lambda dense: DenseFeatures(dense.features, None),  # type: ignore[arg-type]
        lambda dense: DenseFeatures(dense.features.astype(complex), dense.grid),
    ],
)  # fmt: skip
def test_features_that_break_the_contract_are_refused(image: Any) -> None:
    with pytest.raises(EncoderOutputError, match="colours"):
        foveate.encode(halves(), encoder=Strange(image=image))


@pytest.mark.parametrize(
    "text",
    [lambda v: 0, lambda v: v.tolist(), lambda v: v[:, :2], lambda v: v * 0, lambda v: v * 1e20, lambda v: v * np.nan],
)  # fmt: skip
def test_what_is_no_text_vectors_is_refused_before_a_basis_is_made_of_it(text: Any) -> None:
    with pytest.raises(EncoderOutputError, match="text vectors"):
        foveate.encode(halves(), encoder=Strange(text=text))


@pytest.mark.parametrize(
    ("member", "value"),
    [("name", None), ("revision", 3), ("width", 0), ("calibration", None), ("templates", ()), ("templates", ("{",)),
     ("templates", ("a {x}",)), ("templates", ("a thing",)), ("templates", None)],
)  # fmt: skip
def test_a_member_that_is_wrong_is_named(member: str, value: object) -> None:
    own = Strange()
    object.__setattr__(own, member, value)
    with pytest.raises(EncoderNameError, match=member):
        foveate.encode(halves(), encoder=own)


def test_an_encoder_may_count_in_numpys_integers(tmp_path: Path) -> None:
    def count(dense: DenseFeatures) -> DenseFeatures:
        return DenseFeatures(dense.features, Grid(*np.array([*dense.grid.shape, dense.grid.height, dense.grid.width])))

    own = Strange(image=count)
    foveate.encode(halves(), encoder=own).save(tmp_path / "t.safetensors")
    assert Texture.load(tmp_path / "t.safetensors").grid == foveate.encode(halves(), encoder=own).grid
    foveate.encode(halves(), long_side=np.int64(64)).save(tmp_path / "t.safetensors")  # type: ignore[call-overload]


def test_an_encoder_that_cannot_be_hashed_or_is_none() -> None:
    class Changing(Colours):
        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(EncoderNameError):
        foveate.encode(halves(), encoder=Changing())  # type: ignore[call-overload]
    with pytest.raises(EncoderNameError, match="int"):
        foveate.encode(halves(), encoder=3)  # type: ignore[call-overload]


def test_a_file_does_not_choose_what_is_loaded(texture: Texture) -> None:
    stamp = replace(texture.encoder, name="clip:somebody/anything")
    with pytest.raises(TextureEncoderError, match="does not load what a file names"):
        foveate.score(replace(texture, encoder=stamp), "a dog")


# --- values travel ----------------------------------------------------------------------------------------------------


def test_values_travel_between_processes_and_stay_read_only(texture: Texture) -> None:
    relevance = foveate.score(texture, "broccoli")
    kept = foveate.allocate(relevance)
    with pytest.raises(ImageNotFoundError) as error:
        foveate.encode("none.jpg")
    assert all(type(pickle.loads(pickle.dumps(value))) is type(value) for value in (relevance, kept, error.value))
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)
    again = pickle.loads(pickle.dumps(texture))
    assert np.array_equal(foveate.score(again, "broccoli").map, relevance.map)
    with pytest.raises(ValueError, match="read-only"):
        again.pixel[0] = 0
    relevances = foveate.score(texture, ["is there a child with broccoli?", "a child"])
    values = (relevances, foveate.allocate(relevances[0]))
    for both, kept in (values, pickle.loads(pickle.dumps(values))):
        one = both[0].on(Grid(8, 6, 640, 480)) if both is relevances else both[0]
        for array in (one.map, one.logits, one.saliency, *one.parts.values(), kept.indices, kept.scores):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
    with pytest.raises(TypeError):
        relevances[0].parts["child"] = relevances[0].map  # type: ignore[index]


# --- presets ----------------------------------------------------------------------------------------------------------

BUS = PHOTOS / "yellow_bus.jpg"
SIDE = 192


def read(rgb: Any) -> list[Word]:
    return [Word("TOTAL", (20.0, 20.0, 60.0, 120.0)), Word("34.50", (20.0, 140.0, 60.0, 240.0))]


@pytest.fixture(scope="module")
def plain() -> Texture:
    return foveate.encode(BUS, long_side=SIDE)


def test_the_table_names_keywords_that_there_are() -> None:
    assert tuple(PRESETS) == get_args(PresetName)
    for preset in PRESETS.values():
        assert preset.about
        assert set(preset.encoding) <= set(inspect.signature(foveate.encode).parameters)
        assert set(preset.scoring) <= set(ScoringOptions.__annotations__)
    assert find_preset(None) is find_preset("medium")
    medium = find_preset("medium")
    assert not any((medium.encoding, medium.scoring))


def test_medium_is_the_default(plain: Texture) -> None:
    texture = foveate.encode(BUS, preset="medium", long_side=SIDE)
    assert texture.preset == "medium"
    assert plain.preset is None
    np.testing.assert_array_equal(texture.embedding, plain.embedding)
    assert set(texture.planes) == set(plain.planes)
    a, b = foveate.score(texture, "a bus"), foveate.score(plain, "a bus")
    np.testing.assert_array_equal(a.map, b.map)
    assert len(foveate.allocate(a, 50)) == 50


def test_a_texture_remembers_its_preset_and_shows_it(tmp_path: Path, plain: Texture) -> None:
    texture = foveate.encode(BUS, preset="text", long_side=SIDE)
    texture.save(tmp_path / "bus.safetensors")
    loaded = Texture.load(tmp_path / "bus.safetensors")
    assert loaded.preset == "text"
    assert "preset 'text'" in repr(loaded)
    assert "preset" not in repr(plain)
    relevance = foveate.score(loaded, "a bus")
    assert relevance.preset == "text"
    assert "preset 'text'" in repr(relevance)
    assert "text" in relevance.reasons
    assert relevance.on(loaded.grid).preset == "text"
    assert "text" not in foveate.score(loaded, "a bus", preset="medium").reasons
    assert [one.preset for one in foveate.score(loaded, ["a bus", "sky"])] == ["text", "text"]
    assert remember_preset(loaded, "static").preset == "static"
    assert remember_preset(loaded, None) is loaded


def test_what_a_caller_names_wins() -> None:
    texture = foveate.encode(BUS, preset="minimum", channels="fast")
    assert texture.has("edge_on")
    assert max(texture.grid.shape) * 8 == PRESETS["minimum"].encoding["long_side"]
    assert max(foveate.encode(BUS, preset="minimum", long_side=SIDE).grid.shape) * 8 == SIDE
    found = foveate.encode(BUS, preset="gaze", long_side=SIDE)
    found = found.with_channel("gaze", np.eye(*found.grid.shape))
    without = foveate.score(found, "a bus", prior=None)
    assert "prior" not in without.reasons
    half = foveate.score(found, "a bus", prior_weight=0.5)
    np.testing.assert_allclose(half.map, (without.map + found.channel("gaze")) / 2, atol=1e-6)
    assert PRESETS["gaze"].scoring["prior_weight"] != 0.5


def test_document_reads_and_minimum_is_small() -> None:
    small = foveate.encode(BUS, preset="minimum")
    assert set(small.planes) == {"saliency"}
    assert foveate.score(small, "a bus").detected
    texture = foveate.encode(BUS, preset="document", read=read, long_side=SIDE)
    assert texture.words is not None
    assert foveate.score(texture, "what is the total?").words[0].text == "34.50"


@pytest.mark.parametrize("name", ["document", "maximum"])
def test_a_preset_that_lacks_something_says_so(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(rgb: Any, reader: Any) -> None:
        raise MissingExtraError("no reader", expected="one", fix="pip install 'foveate[text]'")

    monkeypatch.setattr("foveate.reading.readers.read_words", absent)
    with pytest.raises(MissingExtraError):
        foveate.encode(BUS, preset=name, long_side=SIDE)


def test_a_gaze_that_is_not_there_is_an_error_and_one_that_is_counts() -> None:
    texture = foveate.encode(BUS, preset="gaze", long_side=SIDE)
    with pytest.raises(ChannelError, match="preset='gaze'"):
        foveate.score(texture, "a bus")
    plane = np.zeros(texture.grid.shape)
    plane[:3, :3] = 1
    relevance = foveate.score(texture.with_channel("gaze", plane), "a zebra")
    assert foveate.allocate(relevance, 9).mask[:3, :3].sum() >= 8  # one may be of the even spread


def test_a_preset_of_another_version_is_said_and_can_be_passed_over(plain: Texture) -> None:
    newer = replace(plain, preprocessing={**plain.preprocessing, "preset": "underwater"})
    with pytest.raises(OptionError, match="underwater") as caught:
        foveate.score(newer, "a bus")
    assert "medium" in caught.value.fix
    assert foveate.score(newer, "a bus", preset="medium").preset == "medium"
    assert preset_of(newer, "gaze").name == "gaze"


@pytest.mark.slow
def test_commands_take_it_show_it_and_refuse_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*command: str) -> Any:
        return CliRunner().invoke(app, [*command, "--json"])

    made = run("encode", str(BUS), "-o", "bus.safetensors", "--preset", "text", "--long-side", str(SIDE))
    assert json.loads(made.stdout)["preset"] == "text"
    seen = run("look", "bus.safetensors", "a bus", "--out", ".")
    assert json.loads(seen.stdout)["preset"] == "text"
    assert json.loads((tmp_path / "yellow_bus--a-bus.json").read_text())["preset"] == "text"
    assert isinstance(run("look", "bus.safetensors", "a bus", "--preset", "gaze").exception, ChannelError)
    for command in (("encode", "-o", "x.safetensors"), ("look", "a bus"), ("video", "a bus", "--no-video")):
        wrong = run(command[0], str(BUS), *command[1:], "--preset", "documents")
        assert isinstance(wrong.exception, OptionError), command
    assert not (tmp_path / "x.safetensors").exists()
