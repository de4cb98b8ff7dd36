"""`foveate_encode: "kept"`: vLLM's encoder over kept tokens alone says what mode "sparse" of `foveate.vlm` says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from foveate.core.errors import ModelError
from foveate.serving.kept import ENCODERS, GRIDS, find_encoder, is_unfit
from foveate.serving.metrics import FOLDER
from foveate.vlm import attach
from tests.serving.engine import Ask, Engine, Said, assert_same
from tests.vlm_models import page, pair, photo

DOG = "where is the dog?"
PERSON = "what is on the left of the person in the picture"
TWO = (photo(), photo(120, 260, seed=1))


def kept(budget: int | str, **more: Any) -> dict[str, Any]:
    return {"foveate_budget": budget, "foveate_encode": "kept", **more}


ASKS = {
    **{
        f"{budget} for the {name}": Ask(question, keywords=kept(budget))
        for name, question in (("dog", DOG), ("person", PERSON))
        for budget in (1, 9, 20, 34, 10_000, "auto")
    },
    "of the whole image": Ask(DOG, keywords={"foveate_budget": 9, "foveate_encode": "all"}),
    "lossless": Ask(DOG, [page()], kept("lossless")),
    "no budget": Ask(DOG, keywords={"foveate_encode": "kept"}),
    "two images share": Ask(PERSON, TWO, kept(20)),
    "the same image twice": Ask(DOG, [TWO[0], TWO[0]], kept(16)),
    "other keywords": Ask(DOG, keywords=kept(9, foveate_question="the red car", foveate_floor=1)),
}


@pytest.fixture(scope="module", params=["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def engine(request: pytest.FixtureRequest, start: Callable[..., Engine]) -> Engine:
    return start(request.param)


@pytest.fixture(scope="module")
def batch(engine: Engine) -> dict[str, Said]:
    """All at once, encoded both ways, so that they share steps and caches."""
    return dict(zip(ASKS, engine.ask(*ASKS.values()), strict=True))


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.filterwarnings("ignore::foveate.core.errors.BudgetWarning")
def test_answers_are_those_of_mode_sparse(engine: Engine, batch: dict[str, Said], name: str) -> None:
    assert_same(batch[name], engine.expect(ASKS[name]))


@pytest.mark.parametrize("order", ["all kept all", "kept all kept"])
def test_what_is_kept_of_one_way_is_not_taken_for_the_other(engine: Engine, order: str) -> None:
    """The same cells each time: what was asked before must not show. Features of the whole image are kept alone."""
    image, pool = photo(seed=len(order) + ord(order[0])), engine.model._features
    asks = [Ask(DOG, [image], {"foveate_budget": 12, "foveate_encode": how}) for how in order.split()]
    before, said = len(pool), [engine.ask(ask)[0] for ask in asks]
    for ask, one in zip(asks, said, strict=True):
        assert_same(one, engine.expect(ask))
    assert len(pool) == before + 1
    assert abs(said[0].logprobs - said[1].logprobs).max() > 1e-3
    assert said[2].cached > said[1].cached == 0


def test_the_encoder_gets_kept_patches_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    tower, seen = engine.model.visual, list[int]()
    stock = type(tower).forward

    def counted(self: Any, pixels: Any, *rest: Any, **given: Any) -> Any:
        seen.append(len(pixels))
        return stock(self, pixels, *rest, **given)

    monkeypatch.setattr(type(tower), "forward", counted)
    engine.ask(Ask(DOG, [photo(seed=77), photo(seed=77)], kept(14, foveate_floor=1)))
    assert seen == [7 * tower.spatial_merge_size**2]  # the same rows of the same image are encoded once


@pytest.mark.parametrize(("most", "together"), [(2, [2]), (1, [1, 1])])
def test_kept_tokens_are_what_the_encoders_memory_is_shared_out_by(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, most: int, together: list[int]
) -> None:
    """vLLM's scheduler counts them, too; with the whole image seen, images of nine tokens would be alone."""
    calls, encode = list[int](), type(engine.model)._encode_kept

    def counted(self: Any, stock: Any, ours: Any, numbers: Any) -> Any:
        calls.append(len(numbers))
        return encode(self, stock, ours, numbers)

    monkeypatch.setattr(type(engine.model), "_encode_kept", counted)
    monkeypatch.setattr(engine.model, "_most", most)
    ask = Ask(DOG, [photo(100, 100, seed=500 + 2 * most + n) for n in range(2)], kept(2))
    (said,) = engine.ask(ask)
    assert calls == together
    assert_same(said, engine.expect(ask))


def test_a_tower_that_cannot_is_refused() -> None:
    from vllm.multimodal.processing import ProcessorInputs

    from tests.serving.test_families import Choosing

    with pytest.raises(ModelError, match='foveate_encode="kept" for Other') as caught:
        Choosing({"foveate_encode": "kept"})
    assert isinstance(caught.value, ValueError)  # which vLLM's server answers with status 400
    with pytest.raises(ModelError, match='"all"'):
        Choosing().apply(ProcessorInputs([1], {}, None, {"foveate_encode": "kept"}), None)


def test_another_kind_of_tower_is_refused_by_the_configuration() -> None:
    def found(name: str, tower: str) -> Any:
        vision = SimpleNamespace(vision_config=SimpleNamespace(model_type=tower))
        return find_encoder(SimpleNamespace(architecture=name, hf_config=vision))

    llava, qwen = "LlavaForConditionalGeneration", "Qwen2VLForConditionalGeneration"
    assert [found(llava, "other"), found(qwen, "other")] == [None, GRIDS]
    assert found(llava, "pixtral") is not found(llava, "clip_vision_model")


def test_tokens_that_are_mixed_of_several_patches_are_refused() -> None:
    vlm = attach(*pair("llava_onevision"))  # its joined tiles have more tokens than it allows
    (layout,) = vlm.see(photo()).layouts
    (encoder,) = ENCODERS["LlavaOnevisionForConditionalGeneration"]
    encoder.check_image(vlm.model.config, (32, 32), 2 * 16 + 4)
    GRIDS.check_image(vlm.model.config, (150, 200), layout.count)
    with pytest.raises(ModelError, match="150 x 200 pixels"):
        encoder.check_image(vlm.model.config, (150, 200), layout.count)


class OtherTower(torch.nn.Linear):
    """Of another release: it says no positions."""

    blocks = ()


@pytest.mark.parametrize("held", [True, False])
def test_a_tower_that_does_not_fit_refuses_kept_and_stops_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """One that this process does not hold, as of a server of text alone, fits."""
    from vllm.model_executor.models.utils import StageMissingLayer

    from tests.serving.test_families import Choosing

    asked = {"foveate_encode": "kept"}
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.setitem(ENCODERS, "Other", (GRIDS,))
    tower = OtherTower(2, 2)
    stand_in = SimpleNamespace(visual=tower if held else StageMissingLayer("image_tower", tower))
    GRIDS.check(stand_in, "Other")
    if not held:
        Choosing(asked)
        return
    with pytest.raises(ModelError, match="for Other, whose tower in this release"):
        Choosing(asked)
    GRIDS.check(SimpleNamespace(visual=StageMissingLayer("image_tower", tower)), "Other")  # the next engine
    Choosing(asked)


def test_a_server_of_text_alone_starts(start: Callable[..., Engine]) -> None:
    engine = start("qwen2_5_vl", limit_mm_per_prompt={"image": 0, "video": 0})
    (said,) = engine.llm.generate([{"prompt": DOG}], use_tqdm=False)
    assert said.outputs[0].token_ids
    assert not is_unfit("Qwen2_5_VLForConditionalGeneration")
