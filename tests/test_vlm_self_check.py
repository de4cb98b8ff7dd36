"""`foveate.vlm.check`, and `attach` of a class that no test names: what is right passes, what is wrong is found."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

import foveate.vlm
from foveate.core.errors import ModelError
from foveate.vlm.families import layouts
from foveate.vlm.families.family import Family
from tests.vlm_models import pair

pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.fixture
def nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No class is known by its name."""
    monkeypatch.setattr("foveate.vlm.loader.FAMILIES", ())


@pytest.mark.usefixtures("nobody_knows")
@pytest.mark.parametrize("name", ["llava", "llava_next", "qwen2_5_vl", "internvl"])
def test_a_new_class_of_a_known_kind_attaches(name: str) -> None:
    assert foveate.vlm.attach(*pair(name)).family.name == name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llava", "qwen3_vl"])
def test_in_the_models_own_number_format(name: str, dtype: torch.dtype) -> None:
    model, processor = pair(name)
    report = foveate.vlm.check(copy.deepcopy(model).to(dtype), processor)
    assert report.ok, report
    assert report.all_tokens == 0
    assert 0 < report.kept < report.dropped / 2
    assert report.dtype in str(dtype)


def wrong_positions(self: Family, model: Any, ids: torch.Tensor, inputs: Any) -> torch.Tensor:
    return torch.arange(len(ids)).expand(3, -1)


def wrong_order(self: Family, model: Any, inputs: Any, counts: Any) -> Any:
    found = right_encode(self, model, inputs, counts)
    return replace(found, rows=tuple(rows.flip(0) for rows in found.rows))


def wrong_places(self: Family, *given: Any) -> Any:
    return tuple(
        layouts.TokenLayout(tuple(replace(grid, h=grid.w, w=grid.h) for grid in one.grids), one.count)
        for one in right_layouts(self, *given)
    )


right_encode, right_layouts = Family.encode, Family.layouts


@pytest.mark.usefixtures("nobody_knows")
@pytest.mark.parametrize(
    ("method", "wrong", "measured"),
    [
        ("positions", wrong_positions, lambda r: r.all_tokens > 1e-3 and r.places == 1),
        ("encode", wrong_order, lambda r: r.all_tokens > 1e-3 and r.places < 0.9),
        ("layouts", wrong_places, lambda r: r.all_tokens == 0 and r.kept < 1e-5 and r.places < 0.9),
    ],
)
def test_what_is_wrong_is_found(method: str, wrong: Any, measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Family, method, wrong)
    report = foveate.vlm.check(*pair("qwen2_5_vl"))
    assert measured(report), report
    assert not report.ok
    with pytest.raises(ModelError, match="NOT exact") as caught:
        foveate.vlm.attach(*pair("qwen2_5_vl"))
    assert "all 48 tokens" in str(caught.value)
    assert "family=" in caught.value.fix
    assert foveate.vlm.attach(*pair("qwen2_5_vl"), family=Family("mine")).family.name == "mine"  # the caller's word
