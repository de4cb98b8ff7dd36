"""Presets and a model: how textures are made, and how every question of them goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foveate
import foveate.vlm
from foveate.core.errors import ChannelError, MissingExtraError, OptionError
from foveate.relevance import ScoringOptions
from tests.vlm_models import pair, photo

pytestmark = [pytest.mark.vlm, pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")]


@pytest.fixture(scope="module")
def vlm() -> Any:
    return foveate.vlm.attach(*pair("llava"))


def test_see_makes_the_textures_of_the_preset(vlm: Any) -> None:
    usual, small = vlm.see(photo(), read=False), vlm.see(photo(), preset="minimum")
    assert usual.textures[0].preset is None
    assert set(small.textures[0].planes) == {"saliency"}
    assert small.textures[0].preset == "minimum"
    assert vlm.ask(small, "a cake", budget=5, max_new_tokens=1).relevance[0].preset == "minimum"


def test_a_texture_that_is_given_goes_by_the_preset(vlm: Any) -> None:
    texture = foveate.encode(photo())
    gaze = np.zeros(texture.grid.shape)
    gaze[:4, :4] = 1
    encoded = vlm.see(texture.with_channel("gaze", gaze), preset="gaze", read=False)
    found = vlm.prepare(encoded, "a zebra", budget=3).relevance[0]
    assert found.preset == "gaze"
    assert "prior" in found.reasons
    assert (
        "prior"
        not in vlm.prepare(encoded, "a zebra", budget=3, scoring=ScoringOptions(preset="medium")).relevance[0].reasons
    )
    both = vlm.see([texture.with_channel("gaze", gaze), photo(seed=3)], preset="gaze", read=False)
    one, other = vlm.prepare(both, "a zebra", budget=(3, 3)).relevance
    assert "prior" in one.reasons
    assert "prior" not in other.reasons  # nobody looked at it


def test_what_a_preset_lacks_is_said(vlm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = vlm.see(photo(), preset="gaze", read=False)
    with pytest.raises(ChannelError, match="gaze"):
        vlm.prepare(nobody, "a zebra", budget=3)
    with pytest.raises(OptionError, match="preset="):
        vlm.see(photo(), preset="documents")
    wrong: Any = "documents"
    with pytest.raises(OptionError, match="preset="):
        vlm.ask(nobody, "a zebra", budget=3, scoring=ScoringOptions(preset=wrong))

    def absent(rgb: Any, reader: Any) -> None:
        raise MissingExtraError("no reader", expected="one", fix="pip install 'foveate[text]'")

    monkeypatch.setattr("foveate.texture.texture.read_words", absent)
    with pytest.raises(MissingExtraError):
        vlm.see(photo(), preset="document")
    assert vlm.see(photo(), preset="document", read=False).textures[0].words is None
