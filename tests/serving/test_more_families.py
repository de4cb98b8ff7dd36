"""Families beyond those of test_families.py: one engine and one batch each, and the answers of `foveate.vlm`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from foveate.serving.kept import find_encoder
from tests.serving.engine import Ask, Engine, assert_same
from tests.vlm_models import photo

DOG = "where is the dog?"
TWO = (photo(), photo(90, 230, seed=1))
ASKS = (
    Ask(DOG),
    *(Ask(DOG, keywords={"foveate_budget": budget}) for budget in (1, 9, "auto")),
    Ask(DOG, TWO),
    Ask(DOG, TWO, {"foveate_budget": 9}),
)
# of vLLM's own classes; what the Hub's configurations have, and those of transformers lack
OWN: dict[str, dict[str, Any]] = {
    "glm4v": {},
    "glm4v_moe": {"text_config": {"use_qk_norm": False}},
    "llama4": {},
    "llava_onevision_clips": {},
    "llava_pixtral": {},
    "llava_siglip": {},
    "mistral3": {},
    "qwen3_vl_moe": {"text_config": {"norm_topk_prob": True}},
}
BEHIND = ("fast_vlm", "glm46v", "hyperclovax_vision_v2", "lighton_ocr")  # of those of transformers
ASKED = {"foveate_question": DOG}
GARBLED = ("hyperclovax_vision_v2",)  # its tokenizer is read as GPT-2's: prompts of the tests lose their spaces by it


@pytest.mark.parametrize("name", [*OWN, *BEHIND])
def test_answers_are_those_of_the_library(start: Callable[..., Engine], name: str) -> None:
    engine = start(name, hf_overrides=OWN.get(name, {}))
    kept = (Ask(DOG, images, {"foveate_budget": 9, "foveate_encode": "kept"}) for images in ([photo()], TWO))
    asks = (*ASKS, *kept) if find_encoder(engine.llm.model_config) else ASKS
    if name in GARBLED:
        asks = tuple(replace(ask, keywords={**ask.keywords, **ASKED}) if ask.keywords else ask for ask in asks)
    for said, ask in zip(engine.ask(*asks), asks, strict=True):
        assert_same(said, engine.expect(ask))
