"""Tokens whose pixels a neighbour has: which they are, budget "lossless", and `Choosing(redundancy=...)`."""

from __future__ import annotations

import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from benchmarks import redundancy
from foveate.core.errors import ModelError, OptionError, SceneError
from foveate.vlm import Choosing, QuestionWarning
from tests.vlm_models import attached, page, photo

pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]
NAMES = ("qwen2_5_vl", "llava", "llava_next", "idefics3", "internvl")


def same_as_neighbours(cells: np.ndarray) -> np.ndarray:
    same = np.zeros(cells.shape[:2], bool)
    same[:, 1:] |= (cells[:, 1:] == cells[:, :-1]).all(2)
    same[1:] |= (cells[1:] == cells[:-1]).all(2)
    same[1:, 1:] |= (cells[1:, 1:] == cells[:-1, :-1]).all(2)
    return same


def test_the_pixels_are_those_that_the_model_gets() -> None:
    """Against the processor's own numbers, laid out by hand."""
    vlm = attached("qwen2_5_vl")
    pixels = vlm.see(page(), mode="sparse", read=False).inputs["pixel_values"].numpy()  # a token's patches together
    (found,) = vlm.repeated(vlm.see(page(), read=False))
    assert np.array_equal(found, same_as_neighbours(pixels.reshape(5, 7, -1)))
    squares = attached("llava").see(page(), mode="sparse", read=False).inputs["pixel_values"][0].numpy()
    cells = squares.reshape(3, 4, 14, 4, 14).transpose(1, 3, 0, 2, 4).reshape(4, 4, -1)
    (found,) = attached("llava").repeated(attached("llava").see(page(), read=False))
    assert np.array_equal(found, same_as_neighbours(cells))
    assert 0 < found.sum() < found.size - 1


@pytest.mark.parametrize("mode", ["drop", "sparse"])
@pytest.mark.parametrize("name", NAMES)
def test_lossless_drops_what_is_repeated_and_nothing_else(name: str, mode: Any) -> None:
    vlm, images = attached(name), [page(), np.full((90, 60, 3), 9, np.uint8)]
    encoded = vlm.see(images, mode=mode, read=False)
    repeated = vlm.repeated(encoded)
    with warnings.catch_warnings():
        warnings.simplefilter("error", QuestionWarning)
        ours = vlm.prepare(encoded, "why?", budget="lossless", mode=mode)  # names nothing, and does not have to
    theirs = vlm.prepare(encoded, "where is a dog?", kept=[~each for each in repeated], mode=mode)
    for one, other in zip(ours.chosen, theirs.chosen, strict=True):
        assert np.array_equal(one.rows, other.rows)
    assert 2 <= ours.tokens[0] < ours.tokens[1]
    same = vlm.prepare(encoded, "why?", kept=[~each for each in repeated], mode=mode)
    with torch.no_grad():
        assert torch.equal(vlm.model(**ours.inputs()).logits, vlm.model(**same.inputs()).logits)


@pytest.mark.parametrize("name", ["qwen2_5_vl", "llava_next"])
def test_a_repetition_is_never_kept_before_what_is_none(name: str) -> None:
    vlm = attached(name)
    encoded = vlm.see(page(), read=False)
    repeated = np.concatenate([each.ravel() for each in vlm.repeated(encoded)])
    for budget in range(1, len(repeated) + 1):
        prepared = vlm.prepare(encoded, "the picture", budget=budget, choosing=Choosing(redundancy=0))
        kept = np.concatenate([each.mask.ravel() for each in prepared.chosen[0].kept])
        assert kept.sum() == budget
        assert not kept[repeated].any() or kept[~repeated].all()
    usual = vlm.prepare(encoded, "the picture", budget=9)
    assert vlm.prepare(encoded, "the picture", budget=9, choosing=Choosing(redundancy=None)).tokens == usual.tokens


def test_levels_count_pixels_that_are_nearly_the_same() -> None:
    rgb = np.full((112, 112, 3), 100, np.uint8)
    rgb[:, 56:] += 2
    vlm = attached("llava")
    encoded = vlm.see(rgb, read=False)
    halves = [int((~vlm.repeated(encoded, levels)[0]).sum()) for levels in range(4)]
    assert halves == [2, 2, 1, 1]
    for levels, count in ((None, 2), (0, 2), (2, 1)):
        chosen = vlm.prepare(encoded, "a dog", budget="lossless", choosing=Choosing(redundancy=levels))
        assert chosen.tokens[0] == count
    with pytest.raises(OptionError, match="levels"):
        vlm.repeated(encoded, -1)


def test_what_cannot_be_compared_is_told() -> None:
    vlm = attached("qwen2_5_vl")
    with pytest.raises(SceneError, match="of a video"):
        vlm.ask(vlm.see_video([page(), page()], read=False), "a dog?", budget="lossless")
    mixed = attached("llava_onevision")
    with pytest.raises(ModelError, match="mixed of several patches"):
        mixed.ask(mixed.see(page(), read=False), "a dog?", budget="lossless")


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"mode": "weight"}, "weight"),
        ({"method": "random"}, "method"),
        ({"choosing": Choosing(floor=0.5)}, "floor"),
        ({"budget": 4, "method": "random", "choosing": Choosing(redundancy=0)}, "redundancy"),
        ({"budget": "lossles"}, "lossless"),
        ({"budget": ("lossless",)}, "lossless"),
    ],
)
def test_what_does_not_go_together_is_refused(how: dict[str, Any], named: str) -> None:
    vlm = attached("llava")
    with pytest.raises((OptionError, ValueError), match=named):
        vlm.prepare(vlm.see(page(), read=False), "a dog", **{"budget": "lossless", **how})
    with pytest.raises(OptionError, match="redundancy"):
        Choosing(redundancy=-1)


def test_the_table_of_unique_tokens(tmp_path: Path) -> None:
    """A blank image keeps a token, noise all; a tar is read as a folder is."""
    for name, rgb in (("blank", np.full((300, 300, 3), 7, np.uint8)), ("noise", photo(300, 300))):
        (tmp_path / name).mkdir()
        Image.fromarray(rgb).save(tmp_path / name / "one.png")
    with tarfile.open(tmp_path / "noise.tar", "w") as archive:
        archive.add(tmp_path / "noise" / "one.png", "one.png")
    rows = redundancy.measure([tmp_path / name for name in ("blank", "noise", "noise.tar")])["rows"]
    shares = [row["shares"] for row in rows]
    assert [row["tokens"] for row in rows[:2]] == [121, 81]
    assert shares[0] == pytest.approx([1 / 121] * 4)
    assert shares[2][0] == shares[2][3] == 1
    assert shares[2:4] == shares[4:]
