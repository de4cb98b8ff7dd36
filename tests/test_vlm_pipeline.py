"""Everything a texture knows reaches the model: textures seen as images, priors, maps by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import foveate
import foveate.video
from foveate.channels.attention import make_gaze_plane
from foveate.core.errors import (
    ChannelError,
    MissingExtraError,
    OptionError,
    PromptError,
    SceneError,
    TextureEncoderError,
)
from foveate.reading import Word
from foveate.relevance import ScoringOptions
from foveate.texture.texture import Texture
from foveate.vlm import VLM, Choosing, QuestionWarning
from foveate.vlm.inputs.images import CHANNELS
from tests.video_scenes import panning
from tests.vlm_models import attached, photo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
PHOTO = photo()
SHORT: dict[str, Any] = {"max_new_tokens": 2}
EXACTLY = Choosing(floor=0.0)  # no even spread


@pytest.fixture(scope="module")
def vlm() -> VLM:
    return attached("qwen2_5_vl")


@pytest.fixture(scope="module")
def texture() -> Texture:
    return foveate.encode(PHOTO, channels=CHANNELS)


def kept(prepared: Any) -> list[int]:
    return [int(row) for row in prepared.chosen[0].rows]


def corner(shape: tuple[int, int] = (8, 8)) -> np.ndarray:
    plane = np.zeros(shape, np.float32)
    plane[: shape[0] // 4, : shape[1] // 4] = 1
    return plane


@pytest.mark.parametrize("family", ["llava", "llava_next", "qwen2_5_vl", "smolvlm", "internvl"])
def test_a_texture_stands_for_its_image(family: str) -> None:
    vlm, texture = attached(family), foveate.encode(PHOTO, channels=CHANNELS)
    by_image, by_texture = vlm.see(PHOTO, read=False), vlm.see(texture, read=False)
    beside = vlm.see(PHOTO, texture=texture, read=False)
    assert by_texture.textures[0] is texture
    assert beside.textures[0] is texture
    for encoded in (by_texture, beside):
        assert encoded.features is not None
        assert by_image.features is not None
        for one, other in zip(encoded.features.rows, by_image.features.rows, strict=True):
            assert (one == other).all()
        a, b = (vlm.prepare(each, "where is the dog?", budget=6) for each in (encoded, by_image))
        assert kept(a) == kept(b)


def test_a_texture_of_another_image_is_refused(vlm: VLM, texture: Texture) -> None:
    other = PHOTO.copy()
    other[3, 4] += 1
    with pytest.raises(SceneError, match="whose pixels are others"):
        vlm.see(other, texture=texture)
    with pytest.raises(SceneError, match="pixels with the texture of"):
        vlm.see(PHOTO[:-8], texture=texture)
    with pytest.raises(SceneError, match="2 textures for 1 images"):
        vlm.see(PHOTO, texture=[texture, texture])
    with pytest.raises(SceneError, match="a texture in the place of an image"):
        vlm.see(texture, texture=texture)
    with pytest.raises(SceneError, match="texture"):
        vlm.see(PHOTO, texture="photo.safetensors")  # type: ignore[arg-type]
    stamp = replace(texture.encoder, revision="0" * 12)
    with pytest.raises(TextureEncoderError):
        vlm.see(replace(texture, encoder=stamp))


def test_a_stored_texture_is_seen(vlm: VLM, tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    Image.fromarray(PHOTO).save(images / "a.png")
    store = foveate.Store(tmp_path / "photos.fov")
    store.add(images)
    stored = store["a.png"]
    answer = vlm.ask(vlm.see(stored), "the dog", budget=6, **SHORT)
    assert answer.tokens[0] == 6
    (images / "a.png").unlink()
    gone = foveate.Store(tmp_path / "photos.fov")["a.png"]
    assert not gone.original
    with pytest.raises(SceneError, match="only a thumbnail is left"):
        vlm.see(gone)
    seen = vlm.see(PHOTO, texture=gone, read=lambda rgb: [Word(str(rgb.sum()), (0, 0, 9, 9))], preset="static")
    assert seen.textures[0].words is not None
    assert seen.textures[0].words.texts == (str(PHOTO.sum()),)  # read in the image, not in its thumbnail
    assert seen.textures[0].preset == "static"
    with_gaze = gone.with_channel("gaze", np.ones(gone.grid.shape))
    assert vlm.see(PHOTO, texture=with_gaze).textures[0].has("gaze")
    with pytest.raises(SceneError, match="whose pixels are others"):
        vlm.see(255 - PHOTO, texture=gone)


@pytest.mark.filterwarnings("ignore::foveate.core.errors.BudgetWarning")  # the tiny model has 16 tokens a crop
def test_a_map_by_hand_is_where_tokens_are_kept(vlm: VLM, texture: Texture) -> None:
    encoded = vlm.see(texture)
    grid = encoded.layouts[0].grids[0]
    by_hand = vlm.prepare(encoded, "why?", budget=1, choosing=EXACTLY, relevance=corner())
    at = int(by_hand.chosen[0].kept[0].indices[0])
    assert at // grid.w < grid.h / 3
    assert at % grid.w < grid.w / 3
    scored = foveate.score(texture, "the dog")
    assert kept(vlm.prepare(encoded, "x", budget=6, relevance=scored)) == kept(
        vlm.prepare(encoded, "the dog", budget=6)
    )
    crop = vlm.ask(encoded, "why?", mode="crop", budget=160, relevance=corner(), **SHORT)
    assert crop.regions is not None
    assert (crop.regions.boxes[:, :2] < np.array(PHOTO.shape[:2]) / 2).all()


def test_a_prior_reaches_the_model(vlm: VLM, texture: Texture) -> None:
    h, w = texture.grid.height, texture.grid.width
    gaze = make_gaze_plane([(h * 0.9, w * 0.9, 1.0)], texture.grid)
    encoded = vlm.see(texture.with_channel("gaze", gaze))
    grid = encoded.layouts[0].grids[0]
    for prior in ("gaze", gaze):
        scoring = ScoringOptions(prior=prior, prior_weight=0.9)
        made = vlm.prepare(encoded, "a zebra", budget=2, choosing=EXACTLY, scoring=scoring)
        at = made.chosen[0].kept[0].indices
        assert (at // grid.w > grid.h / 2).all()
        assert (at % grid.w > grid.w / 2).all()
    with pytest.warns(QuestionWarning, match="kept by the prior"):
        vlm.prepare(encoded, "why?", budget=1, scoring=ScoringOptions(prior="gaze", prior_weight=0.9))
    alone = ScoringOptions(prior="gaze", prior_weight=1.0)  # all that was wanted: no warning
    made = vlm.prepare(encoded, "why?", budget=1, scoring=alone)
    assert made.relevance[0].followed


def test_bad_maps_and_priors_are_refused(vlm: VLM, texture: Texture) -> None:
    encoded = vlm.see(texture)
    with pytest.raises(OptionError, match="relevance= with prior"):
        vlm.prepare(encoded, "the dog", relevance=corner(), scoring=ScoringOptions(prior="saliency"))
    with pytest.raises(OptionError):
        vlm.prepare(encoded, "the dog", relevance=corner() * 2)
    with pytest.raises(OptionError):
        vlm.prepare(encoded, "the dog", scoring=ScoringOptions(prior=corner((3, 3))))
    with pytest.raises(ChannelError):
        vlm.prepare(encoded, "the dog", scoring=ScoringOptions(prior="gaze"))
    other = foveate.score(foveate.encode(PHOTO[:-8]), "the dog")
    with pytest.raises(OptionError, match="a grid over"):
        vlm.prepare(encoded, "the dog", relevance=other)
    with pytest.raises(OptionError, match="priro"):
        vlm.ask(encoded, "the dog", priro="gaze")


def test_several_images_have_a_prior_each(vlm: VLM, texture: Texture) -> None:
    encoded = vlm.see([texture, texture])
    planes = [np.zeros(texture.grid.shape, np.float32), np.ones(texture.grid.shape, np.float32)]
    made = vlm.prepare(encoded, "a zebra", budget=(2, 2), scoring=ScoringOptions(prior=planes, prior_weight=0.5))
    assert made.relevance[1].map.mean() > made.relevance[0].map.mean() + 0.3
    with pytest.raises(OptionError, match="of 2 images"):
        vlm.prepare(encoded, "a zebra", scoring=ScoringOptions(prior=planes[0]))
    with pytest.raises(OptionError, match="of 2 images"):
        vlm.prepare(encoded, "a zebra", relevance=[corner()])


def test_frames_of_a_stream_bring_their_textures(vlm: VLM) -> None:
    with foveate.video.stream(foveate.video.open_clip(panning(6, (112, 160)), rate=2), "the dog", budget=8) as stream:
        frames = list(stream)
    encoded = vlm.see_video(frames, fps=2)
    assert {id(texture) for texture in encoded.textures} <= {id(frame.texture) for frame in frames}
    assert encoded.textures[-1].has("prev_relevance")
    vlm.prepare(encoded, "a zebra", budget=4, scoring=ScoringOptions(prior="prev_relevance"))


@pytest.mark.filterwarnings("ignore::foveate.core.errors.BudgetWarning")  # the tiny model has 16 tokens a crop
def test_crops_are_scored_as_the_picture_is(vlm: VLM, texture: Texture, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def spy(texture: Texture, query: str, **how: Any) -> Any:
        asked.append(how)
        return foveate.score(texture, query, **how)

    monkeypatch.setattr("foveate.vlm.context.score", spy)
    encoded = vlm.see(texture.with_channel("gaze", np.ones(texture.grid.shape)))
    scoring = ScoringOptions(channel_weights={"saliency": 0.5, "gaze": 0.1}, cues=False, prior="gaze")
    answer = vlm.ask(encoded, "the dog", mode="crop", budget=160, scoring=scoring, **SHORT)
    assert answer.regions is not None
    crops = asked[2:]
    assert len(crops) == len(answer.regions.boxes)
    assert all(each["channel_weights"] == {"saliency": 0.5} and each["cues"] is False for each in crops)
    assert all((each["prior"] == 1).all() for each in crops)


def test_one_thing_in_a_list_is_for_one_image(vlm: VLM, texture: Texture) -> None:
    encoded = vlm.see(texture)
    assert vlm.prepare(encoded, "a dog", scoring=ScoringOptions(prior=["saliency"])).relevance[0].reasons["prior"].any()
    given = vlm.prepare(encoded, "a dog", relevance=[[0.1, 0.9]]).relevance[0].map
    assert given[:, 0].max() < given[:, -1].min()


def test_what_a_model_cannot_take_is_said_before_it_runs(vlm: VLM, texture: Texture) -> None:
    encoded = vlm.see(texture)
    with pytest.raises(PromptError, match=r"for a context of \d+[\s\S]*fix: a shorter question"):
        vlm.ask(encoded, "bus " * 5000, relevance="bus", budget=4)
    for wrong in (0, -3, "8", 1.5):
        with pytest.raises(OptionError, match="max_new_tokens"):
            vlm.ask(encoded, "a bus", budget=4, max_new_tokens=wrong)  # type: ignore[arg-type]


def test_a_preset_never_lowers_what_words_raise() -> None:
    found = foveate.score(foveate.encode(PHOTO, preset="text"), "what does the sign say?")
    assert found.weights["text"] == 0.5
    assert foveate.score(foveate.encode(PHOTO, preset="text"), "a dog").weights["text"] == pytest.approx(0.3)


# --- presets ----------------------------------------------------------------------------------------------------------


def test_see_makes_the_textures_of_the_preset(vlm: VLM) -> None:
    usual, small = vlm.see(PHOTO, read=False), vlm.see(PHOTO, preset="minimum")
    assert usual.textures[0].preset is None
    assert set(small.textures[0].planes) == {"saliency"}
    assert small.textures[0].preset == "minimum"
    assert vlm.ask(small, "a cake", budget=5, **SHORT).relevance[0].preset == "minimum"
    film = vlm.see_video([PHOTO] * 2, preset="minimum", read=False)
    assert {texture.preset for texture in film.textures} == {"minimum"}
    assert vlm.see(PHOTO, preset="video").textures[0].has("text")  # pages are known by it


def test_a_texture_that_is_given_goes_by_the_preset(vlm: VLM) -> None:
    texture = foveate.encode(PHOTO)
    gaze = np.zeros(texture.grid.shape)
    gaze[:4, :4] = 1
    encoded = vlm.see(texture.with_channel("gaze", gaze), preset="gaze", read=False)
    found = vlm.prepare(encoded, "a zebra", budget=3).relevance[0]
    assert found.preset == "gaze"
    assert "prior" in found.reasons
    for scoring in (ScoringOptions(preset="medium"), ScoringOptions(prior=None)):
        assert "prior" not in vlm.prepare(encoded, "a zebra", budget=3, scoring=scoring).relevance[0].reasons
    both = vlm.see([texture.with_channel("gaze", gaze), photo(seed=3)], preset="gaze", read=False)
    one, other = vlm.prepare(both, "a zebra", budget=(3, 3)).relevance
    assert "prior" in one.reasons
    assert "prior" not in other.reasons  # nobody looked at it


def test_what_a_preset_lacks_is_said(vlm: VLM, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = vlm.see(PHOTO, preset="gaze", read=False)
    with pytest.raises(ChannelError, match="gaze"):
        vlm.prepare(nobody, "a zebra", budget=3)
    wrong: Any = "documents"
    with pytest.raises(OptionError, match="preset="):
        vlm.see(PHOTO, preset=wrong)
    with pytest.raises(OptionError, match="preset="):
        vlm.ask(nobody, "a zebra", budget=3, scoring=ScoringOptions(preset=wrong))

    def absent(rgb: Any, reader: Any) -> None:
        raise MissingExtraError("no reader", expected="one", fix="pip install 'foveate[text]'")

    monkeypatch.setattr("foveate.texture.texture.read_words", absent)
    with pytest.raises(MissingExtraError):
        vlm.see(PHOTO, preset="document")
    assert vlm.see(PHOTO, preset="document", read=False).textures[0].words is None
