"""`foveate.vlm.check`, and `attach` of a class that no test names: what is right passes, what is wrong is found."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch

import foveate.vlm
from foveate.core.errors import ModelError
from foveate.vlm.families.family import Family
from foveate.vlm.families.token_layout import TokenLayout
from tests.vlm_models import pair, photo, tokenizer

pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.fixture
def nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """No class is known by its name."""
    monkeypatch.setattr("foveate.vlm.loader.FAMILIES", ())
    monkeypatch.setattr("foveate.vlm.loader.PASSED", WeakKeyDictionary())


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


def test_a_derived_class_is_checked_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, processor = pair("llava")
    derived = copy.deepcopy(model)
    derived.__class__ = type("LlavaForConditionalGeneration", (type(model),), {})
    checks: list[Any] = []

    def passing(vlm: Any) -> Any:
        checks.append(vlm)
        return SimpleNamespace(ok=True, places=1.0)

    monkeypatch.setattr("foveate.vlm.loader.check_attached", passing)
    for each in (model, derived, derived):
        foveate.vlm.attach(each, processor)
    foveate.vlm.attach(derived, copy.copy(processor))
    assert len(checks) == 2  # with each processor


def test_it_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        foveate.vlm.check(*pair("qwen3_vl"))


def wrong_positions(self: Family, model: Any, ids: torch.Tensor, inputs: Any) -> torch.Tensor:
    return torch.arange(len(ids)).expand(3, -1)


def wrong_order(self: Family, model: Any, inputs: Any, counts: Any) -> Any:
    found = right_encode(self, model, inputs, counts)
    return replace(found, rows=tuple(rows.flip(0) for rows in found.rows))


def wrong_places(self: Family, *given: Any) -> Any:
    return tuple(
        TokenLayout(tuple(replace(grid, h=grid.w, w=grid.h) for grid in one.grids), one.count)
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


class ByHand:
    """A processor written by hand: what attach needs of one, and no more."""

    image_token, chat_template = "<image>", None

    def __init__(self) -> None:
        self.tokenizer = tokenizer()

    def __call__(self, images: Any, text: Any, return_tensors: str = "pt", add_special_tokens: bool = True) -> Any:
        small = [np.asarray(image.resize((56, 56)), np.float32).transpose(2, 0, 1) / 127.5 - 1 for image in images]
        text = (text if isinstance(text, str) else text[0]).replace("<image>", "<image>" * 16)
        ids = self.tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"]
        made = {"input_ids": [ids], "attention_mask": [[1] * len(ids)], "pixel_values": np.stack(small)}
        return {name: torch.as_tensor(np.asarray(value)) for name, value in made.items()}


@pytest.mark.usefixtures("nobody_knows")
def test_a_processor_by_hand() -> None:
    vlm = foveate.vlm.attach(pair("llava")[0], ByHand())
    report = foveate.vlm.check(pair("llava")[0], ByHand())
    assert (report.all_tokens, report.places, report.tokens) == (0, 1, (8, 16))
    prompt = "<image>\na dog? "
    assert vlm.ask(vlm.see(photo()), "a dog?", budget=5, prompt=prompt, max_new_tokens=2).tokens == (5, 16)
    assert vlm.see(photo()).grid.box == (0, 0, 150, 200)  # it squeezes the image
