"""What a terminal shows of a value: one short line with the facts, and no arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate
from foveate import Texture, tiles
from foveate.allocation.crops import regions

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")


def test_the_main_job(texture: Texture, broccoli: Path) -> None:
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


def test_a_long_question_is_cut_and_stays_in_one_line(texture: Texture) -> None:
    text = repr(foveate.score(texture, "the child\n" + "and the broccoli " * 20))
    assert len(text) < 140
    assert "\n" not in text
    assert "..." in text


def test_large_images(broccoli: Path) -> None:
    look = tiles.look(tiles.survey(broccoli), "a child")
    assert len(repr(look)) < 200
    assert repr(look.scene).startswith("Scene(640 x 480 px, ")


@pytest.fixture
def small() -> Any:
    pytest.importorskip("transformers")
    from tests.vlm_models import attached

    return attached("qwen3_vl")


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
