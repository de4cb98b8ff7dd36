"""What gives wrong answers without an error, and what must be an error."""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import foveate.vlm
from foveate.core.errors import (
    BudgetError,
    EncoderFilesError,
    EncoderNameError,
    FoveateError,
    ImageArrayError,
    ImageNotFoundError,
    ModelError,
    OptionError,
    PromptError,
    QueryError,
    SceneError,
)
from foveate.vlm import VLM
from foveate.vlm.attach import FAMILIES as KNOWN
from tests.test_vlm import EXACT, QUESTION, attached, generated, stock_inputs
from tests.vlm_models import FAMILIES, TEXT, pair, photo

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
FEW = {"max_new_tokens": 3}


@torch.no_grad()
def logits(vlm: VLM, inputs: dict[str, Any]) -> torch.Tensor:
    return torch.as_tensor(vlm.model(**inputs, use_cache=True).logits[0, -1])


# --- traps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "qwen3_vl"])
def test_without_positions_the_answer_would_differ(name: str) -> None:
    """Trap 1: compact positions raise nothing. This is why `prepare` always passes them."""
    vlm = attached(name)
    encoded = vlm.see(photo(seed=1))
    prepared = vlm.prepare(encoded, QUESTION, budget=6, method="uniform")
    right = logits(vlm, prepared.inputs())
    without = {key: value for key, value in prepared.inputs().items() if key != "position_ids"}
    assert (logits(vlm, without) - right).abs().max() > 100 * EXACT


def test_nothing_is_passed_from_which_positions_could_be_made_anew(family: str) -> None:
    """Traps 2 and 4: grids and token types of the full prompt beside short ids, and embeddings in place of ids."""
    vlm = attached(family)
    given = vlm.prepare(vlm.see(photo()), QUESTION, budget=4).inputs()
    assert set(given) == {"input_ids", "attention_mask", "position_ids", "mm_encoder_outputs"}


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_without_a_cache_gaps_would_be_borders() -> None:
    """Trap 3: `generate` drops a mask of ones, and then takes gaps in positions for borders between prompts."""
    vlm = attached("llava")
    encoded = vlm.see(photo(seed=2))
    keywords = {"max_new_tokens": 6, "use_cache": False}
    naive = generated(vlm, vlm.prepare(encoded, QUESTION, budget=5, method="uniform").inputs(), **keywords)[1]
    right = generated(vlm, vlm.prepare(encoded, QUESTION, budget=5, method="uniform").inputs(), max_new_tokens=6)[1]
    assert (naive[0] - right[0]).abs().max() > 100 * EXACT
    ours = vlm.ask(encoded, QUESTION, budget=5, method="uniform", generation={"use_cache": False, **FEW})
    cached = vlm.ask(encoded, QUESTION, budget=5, method="uniform", generation=FEW)
    assert np.array_equal(ours.ids, cached.ids)


def test_deepstack_is_not_lost() -> None:
    """Trap 4: without the further features Qwen3-VL answers, and differently."""
    vlm = attached("qwen3_vl")
    prepared = vlm.prepare(vlm.see(photo(seed=3)), QUESTION, budget=8)
    assert len(prepared.features.levels) == 3
    assert all(len(level[0]) == 8 for level in prepared.features.levels)
    right, without = prepared.inputs(), prepared.inputs()
    for level in without["mm_encoder_outputs"]["image"].deepstack_features:
        level[0] = torch.zeros_like(level[0])
    assert (logits(vlm, right) - logits(vlm, without)).abs().max() > 10 * EXACT


@pytest.mark.parametrize("settings", [{"num_beams": 3}, {"do_sample": True, "num_return_sequences": 3}])
def test_generate_never_changes_a_scene(family: str, settings: dict[str, Any]) -> None:
    """Trap 5: beams and several sequences write into the object that carries the features."""
    vlm = attached(family)
    encoded = vlm.see(photo(seed=4))
    assert encoded.features is not None
    before = copy.deepcopy(encoded.features)
    first = vlm.ask(encoded, QUESTION, budget=None, generation=FEW)
    vlm.ask(encoded, QUESTION, budget=None, generation={**FEW, **settings})
    assert [len(rows) for rows in encoded.features.rows] == [len(rows) for rows in before.rows]
    for now, then in zip(encoded.features.rows, before.rows, strict=True):
        assert torch.equal(now, then)
    assert np.array_equal(vlm.ask(encoded, QUESTION, budget=None, generation=FEW).ids, first.ids)


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_the_model_answers_others_as_before(name: str) -> None:
    """Trap 6: offsets of positions that a call leaves behind in the model must not reach the next one."""
    vlm = attached(name)
    image = photo(seed=5)
    stock = generated(vlm, stock_inputs(vlm, [image]))
    vlm.ask(vlm.see(photo(90, 220, seed=6)), QUESTION, budget=3, generation=FEW)
    again = generated(vlm, stock_inputs(vlm, [image]))
    assert torch.equal(stock[1], again[1])
    assert not [module for module in vlm.model.modules() if module._forward_hooks or module._forward_pre_hooks]


def test_an_answer_is_what_came_after_the_short_prompt(family: str) -> None:
    """Trap 9."""
    vlm = attached(family)
    answer = vlm.ask(vlm.see(photo()), QUESTION, budget=4, generation={"max_new_tokens": 5, "min_new_tokens": 5})
    assert answer.ids.shape == (5,)


# --- modes ------------------------------------------------------------------------------------------------------------


def test_weights_of_one_are_the_stock_model_and_gradients_flow(family: str) -> None:
    vlm = attached(family)
    image = photo(seed=7)
    encoded = vlm.see(image)
    ones = [torch.ones(layout.count, requires_grad=True) for layout in encoded.layouts]
    prepared = vlm.prepare(encoded, QUESTION, mode="weight", weights=ones)
    out = vlm.model(**prepared.inputs(), use_cache=True).logits[0, -1]
    stock = generated(vlm, stock_inputs(vlm, [image]), max_new_tokens=1)[1][0, 0]
    assert (out.detach() - stock).abs().max() <= EXACT / 10  # kernels differ a little where gradients are kept
    out.max().backward()
    assert ones[0].grad is not None
    assert (ones[0].grad != 0).any()


def test_usual_weights_follow_the_map() -> None:
    vlm = attached("qwen2_5_vl")
    encoded = vlm.see(Path(foveate.__file__).parent / "cli/photos/yellow_bus.jpg")
    prepared = vlm.prepare(encoded, "the yellow bus", mode="weight")
    assert encoded.features is not None
    norms = prepared.features.rows[0].norm(dim=1) / encoded.features.rows[0].norm(dim=1)
    plane = prepared.relevance[0].on(foveate.Grid(*_shape(encoded), *encoded.images[0].shape[:2])).map.ravel()
    assert norms.min() >= 0.5 - 1e-5
    assert norms.max() <= 1 + 1e-5
    assert np.corrcoef(norms.numpy(), plane)[0, 1] > 0.99
    assert len(prepared.keep) == prepared.keep.sum()


def _shape(encoded: foveate.vlm.EncodedImage) -> tuple[int, int]:
    grid = encoded.layouts[0].grids[0]
    return grid.h, grid.w


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "qwen3_vl"])
def test_crops_are_further_images(name: str) -> None:
    vlm = attached(name)
    encoded = vlm.see(Path(foveate.__file__).parent / "cli/photos/yellow_bus.jpg")
    answer = vlm.ask(encoded, "the yellow bus", mode="crop", budget=120, generation=FEW)
    assert answer.regions is not None
    assert len(answer.chosen) == 1 + len(answer.regions)
    cells = sum(choice.count for choice in answer.chosen)
    assert cells == 120 if name != "llava" else cells <= 120  # the tiny one has 16 cells an image


def test_questions_that_name_nothing_are_asked_all_the_same() -> None:
    """ "Why?" has no place in the picture: saliency and an even spread get the budget."""
    vlm = attached("llava")
    encoded = vlm.see(photo())
    for question in ("why?", "describe it", "これは何ですか"):
        answer = vlm.ask(encoded, question, budget=5, generation=FEW)
        assert answer.tokens == (5, 16)
        assert answer.relevance[0].confidence < 0.5


# --- LLaVA's own tower ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A CLIP checkpoint whose tower is that of the tiny LLaVA."""
    from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

    path = tmp_path_factory.mktemp("clip")
    letters = [*"abcdefghijklmnopqrstuvwxyz.,'"]
    words = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (path / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (path / "merges.txt").write_text("#version: 0.2\n")
    CLIPTokenizer(str(path / "vocab.json"), str(path / "merges.txt")).save_pretrained(path)
    model, _ = pair("llava")
    end = words.index("<|endoftext|>")
    config = CLIPConfig(
        text_config={
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
            "vocab_size": len(words), "max_position_embeddings": 77, "bos_token_id": end - 1, "eos_token_id": end,
        },
        vision_config=model.config.vision_config.to_dict(),
        projection_dim=24,
    )  # fmt: skip
    clip = CLIPModel(config)
    tower = model.model.vision_tower
    clip.vision_model.load_state_dict(getattr(tower, "vision_model", tower).state_dict())
    clip.save_pretrained(path)
    return str(path)


def test_the_texture_comes_from_the_same_pass(clip_folder: str) -> None:
    model, processor = pair("llava")
    vlm = foveate.vlm.attach(model, processor, encoder=f"tower:{clip_folder}")
    calls = []
    hook = model.model.vision_tower.register_forward_hook(lambda *_: calls.append(1))
    try:
        encoded = vlm.see(photo(seed=8))
    finally:
        hook.remove()
    assert len(calls) == 1
    assert encoded.textures[0].grid.shape == (4, 4)
    assert encoded.images[0].shape == (150, 152, 3)  # what the processor shows of 150 x 200
    clip: Any = vlm.encoder
    pixels = stock_inputs(vlm, [photo(seed=8)])["pixel_values"]
    with torch.no_grad():
        dense = clip.clip.dense_features(pixels)[0].numpy()
    vector = clip.encode_text(["a dog"])[0]
    ours = encoded.textures[0].scores(vector[None])[0].reshape(4, 4)
    assert np.allclose(ours, dense @ vector, atol=5e-3)
    answer = vlm.ask(encoded, "a dog", budget=5, generation=FEW)
    assert answer.tokens == (5, 16)


def test_a_tower_that_is_not_clips_is_refused(clip_folder: str) -> None:
    model, processor = copy.deepcopy(pair("llava"))
    with pytest.raises(ModelError, match=r"LLaVA 1\.5"):
        foveate.vlm.attach(model, processor, encoder="tower")
    last = [name for name, _ in model.named_parameters() if "vision" in name and name.endswith("k_proj.weight")][-1]
    weight = model.get_parameter(last)
    weight.data += 1
    with pytest.raises(ModelError, match="other weights"):
        foveate.vlm.attach(model, processor, encoder=f"tower:{clip_folder}")
    with pytest.raises(ModelError, match="whose tower is CLIP's"):
        foveate.vlm.attach(*pair("qwen2_5_vl"), encoder=f"tower:{clip_folder}")
    with pytest.raises(ModelError, match="sparse"):
        foveate.vlm.attach(*pair("llava"), encoder=f"tower:{clip_folder}").see(photo(), mode="sparse")


# --- bad input --------------------------------------------------------------------------------------------------------


def test_an_unsupported_model_lists_what_is_supported_and_what_to_write() -> None:
    class Other(torch.nn.Module):
        def forward(self, mm_encoder_outputs: Any = None) -> None: ...

    with pytest.raises(ModelError) as caught:
        foveate.vlm.attach(Other(), None)
    assert all(name in str(caught.value) for name in (*KNOWN, "placements", "encode", "positions"))
    with pytest.raises(ModelError, match="class LlamaForCausalLM") as caught:  # of the library, and without vision
        foveate.vlm.attach(LlamaForCausalLM(LlamaConfig(**TEXT)), pair("llava")[1])
    assert all(name in caught.value.expected for name in KNOWN)
    assert "pip install" not in caught.value.fix


def test_what_is_given_in_the_place_of_models_and_images() -> None:
    for name in ("Qwen/Qwen2.5-VL-3B-Instruct", Path("Qwen/Qwen2.5-VL-3B-Instruct")):
        with pytest.raises(ModelError, match="by its name") as caught:
            foveate.vlm.attach(name)
        assert "use foveate.vlm.load" in caught.value.fix
        assert "load('Qwen/Qwen2.5-VL-3B-Instruct')" in caught.value.fix
    for address in ("https://example.org/photo.jpg", Path("https://example.org/photo.jpg")):
        with pytest.raises(ImageNotFoundError, match=r"'https://example\.org/photo\.jpg'") as missing:
            attached("llava").see(address)
        assert "download it first" in missing.value.fix


def test_a_tower_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for name in ("nobody/nowhere", "./nowhere"):
        with pytest.raises(EncoderFilesError, match=f"nowhere.*encoder='tower:{name}'") as caught:
            foveate.vlm.attach(*pair("llava"), encoder=f"tower:{name}")
        assert "encoder='tower:NAME_OR_FOLDER'" in caught.value.fix
        assert "encoder='nano'" in caught.value.fix
        assert "'clip:" not in caught.value.fix


def test_an_old_transformers_is_refused() -> None:
    """A model class of the library whose forward does not know the door."""

    def forward(self: Any, input_ids: Any = None) -> None: ...

    old = type("LlavaForConditionalGeneration", (type(pair("llava")[0]),), {"forward": forward})
    with pytest.raises(ModelError, match=r"5\.18"):
        foveate.vlm.attach(object.__new__(old), pair("llava")[1])


@pytest.mark.parametrize(
    ("model", "processor"), [("llava", "qwen2_5_vl"), ("qwen3_vl", "qwen2_5_vl"), ("internvl", "llava")]
)
def test_a_processor_of_another_model_is_refused(model: str, processor: str) -> None:
    with pytest.raises(ModelError, match=r"(?i)processor"):
        foveate.vlm.attach(pair(model)[0], pair(processor)[1])


def test_no_processor_and_no_encoder_are_refused() -> None:
    with pytest.raises(ModelError, match="tokenizer"):
        foveate.vlm.attach(pair("llava")[0], pair("llava")[1].tokenizer)
    with pytest.raises(EncoderNameError):
        foveate.vlm.attach(*pair("llava"), encoder="best")


@pytest.mark.parametrize("prompt", ["USER: what is it? ASSISTANT:", "<image><image> what is it?"])
def test_image_tokens_missing_or_doubled(prompt: str) -> None:
    vlm = attached("llava")
    with pytest.raises(PromptError, match="image tokens"):
        vlm.ask(vlm.see(photo()), QUESTION, prompt=prompt, generation=FEW)
    with pytest.raises(PromptError, match="question with the image token"):
        vlm.ask(vlm.see(photo()), "<image> what is it?", generation=FEW)


def test_a_prompt_of_ones_own() -> None:
    vlm = attached("llava")
    encoded = vlm.see(photo(seed=9))
    text = vlm.processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}],
        add_generation_prompt=True, tokenize=False,
    )  # fmt: skip
    usual = vlm.prepare(encoded, QUESTION, budget=7)
    own = vlm.prepare(encoded, QUESTION, budget=7, prompt=text)
    assert torch.equal(usual.text["input_ids"], own.text["input_ids"])


def test_a_processor_without_a_chat_template_asks_for_a_prompt() -> None:
    model, processor = pair("llava")
    bare = copy.copy(processor)
    bare.chat_template = None
    vlm = foveate.vlm.attach(model, bare)
    encoded = vlm.see(photo())
    with pytest.raises(PromptError, match="chat template"):
        vlm.ask(encoded, QUESTION)
    assert vlm.ask(encoded, QUESTION, prompt="USER: <image>\nwhat? ASSISTANT:", budget=5, generation=FEW).tokens[0] == 5


def test_budgets() -> None:
    vlm = attached("llava")
    encoded = vlm.see(photo())
    with pytest.warns(UserWarning, match="16 cells"):
        assert vlm.ask(encoded, QUESTION, budget=99, generation=FEW).tokens == (16, 16)
    wrong: list[Any] = [0, -1, 2.5, True, "all", (3, 4), ()]
    for budget in wrong:
        with pytest.raises(BudgetError):
            vlm.ask(encoded, QUESTION, budget=budget, generation=FEW)
    two = vlm.see([photo(), photo(seed=1)])
    with pytest.raises(BudgetError, match="2 images"):
        vlm.ask(two, QUESTION, budget=8, generation=FEW)
    answer = vlm.ask(two, QUESTION, budget=(3, 5), generation=FEW)
    assert [choice.count for choice in answer.chosen] == [3, 5]
    assert vlm.ask(two, QUESTION, budget="auto", generation=FEW).tokens[0] >= 2
    with pytest.raises(BudgetError, match="3 budgets for 2"):
        vlm.ask_many(encoded, ["a", "b"], budget=[1, 2, 3])
    with pytest.raises(OptionError, match="list of texts"):
        vlm.ask_many(encoded, "a dog")


@pytest.mark.parametrize("mode", ["drop", "sparse"])
def test_copies_of_a_scene_and_pickles(mode: Any) -> None:
    """A copy would be of another model; so it is the encoded itself. A pickle would be the model."""
    vlm = attached("qwen3_vl")
    encoded = vlm.see(photo(), mode=mode)
    prepared = vlm.prepare(encoded, QUESTION, budget=5, mode=mode)
    for value in (encoded, prepared):
        assert copy.copy(value) is copy.deepcopy(value) is value
        assert copy.deepcopy([value])[0] is value
        with pytest.raises(SceneError, match=rf"a {type(value).__name__} to be pickled[^$]*see the image again"):
            pickle.dumps(value)
    answer = vlm.ask(encoded, QUESTION, budget=5, mode=mode, generation=FEW)
    for again in (pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
        assert (again.text, again.tokens, again.mode) == (answer.text, answer.tokens, mode)
        assert np.array_equal(again.chosen[0].kept[0].mask, answer.chosen[0].kept[0].mask)
    texture = pickle.loads(pickle.dumps(encoded.textures[0]))
    assert np.array_equal(foveate.score(texture, "a dog").map, foveate.score(encoded.textures[0], "a dog").map)


def test_smolvlm_where_transformers_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.__version__", "5.20.2")
    with pytest.raises(ModelError, match=r"5\.20\.2.*\n.*\n.*transformers>=5\.21"):
        attached("smolvlm")
    attached("idefics3")


def test_whole_windows() -> None:
    vlm = attached("qwen2_5_vl")
    encoded = vlm.see(photo(230, 230))
    kept = vlm.prepare(encoded, QUESTION, budget="auto", window=(4, 4)).chosen[0].kept[0].mask
    assert kept.shape == (8, 8)
    blocks = kept.reshape(2, 4, 2, 4).any((1, 3))
    assert kept.sum() == 16 * blocks.sum()
    with pytest.raises(BudgetError, match="whole windows"):
        vlm.prepare(encoded, QUESTION, budget=5, window=(4, 4))
    tiles = attached("internvl")
    with pytest.raises(OptionError, match="panes"):
        tiles.prepare(tiles.see(photo()), QUESTION, budget=4, window=(2, 2))


@pytest.mark.parametrize("budget", [64, 70, 79, 117, 128])
def test_sparse_prefers_whole_windows(budget: int) -> None:
    """The budget is exact: whole windows as far as they fit, then single cells."""
    vlm = attached("qwen2_5_vl")
    encoded = vlm.see(photo(336, 336), mode="sparse")
    kept = vlm.prepare(encoded, QUESTION, budget=budget, mode="sparse").chosen[0].kept[0]
    assert kept.mask.shape == (12, 12)
    assert len(kept) == kept.mask.sum() == budget
    assert set(kept.reasons) >= {"participation", "floor"}
    assert all(len(values) == budget for values in kept.reasons.values())
    full = kept.mask.reshape(3, 4, 3, 4).all((1, 3))
    assert full.sum() == budget // 16
    single = vlm.prepare(encoded, QUESTION, budget=budget, mode="sparse", window=None).chosen[0].kept[0].mask
    assert single.sum() == budget
    assert single.reshape(3, 4, 3, 4).all((1, 3)).sum() < full.sum()
    after = vlm.prepare(vlm.see(photo(336, 336)), QUESTION, budget=budget).chosen[0].kept[0].mask
    assert np.array_equal(after, single)  # behind the tower, nothing is gained by whole windows


def test_windows_where_they_do_not_pay() -> None:
    vlm = attached("qwen2_5_vl")
    encoded = vlm.see(photo(336, 336), mode="sparse")
    few = [vlm.prepare(encoded, QUESTION, budget=63, mode="sparse", window=whole).chosen[0] for whole in ("auto", None)]
    assert np.array_equal(few[0].rows, few[1].rows)
    small = vlm.see(photo(150, 200), mode="sparse")  # 5 x 7 cells: windows of 16, 12, 4 and 3
    assert vlm.prepare(small, QUESTION, budget=33, mode="sparse").tokens == (33, 35)
    with pytest.raises(OptionError, match="auto"):
        vlm.prepare(encoded, QUESTION, mode="sparse", window="windows")  # type: ignore[arg-type]


def test_windows_hold_protected_cells_and_pictures_of_a_video() -> None:
    vlm = attached("qwen2_5_vl")
    encoded = vlm.see(photo(336, 336), mode="sparse")
    mask = np.zeros((12, 12), bool)
    mask[::4, ::4] = True  # a cell in every window: more windows than fit
    kept = vlm.prepare(encoded, QUESTION, budget=70, mode="sparse", protected=mask).chosen[0].kept[0]
    full = kept.mask.reshape(3, 4, 3, 4).all((1, 3))
    assert full.sum() == 4
    assert len(kept) == 70
    assert (kept.mask & mask).sum() == 9  # the five others are among the six that fill up
    assert kept.reasons["protected"].sum() == 64  # of a window kept for them; the rest has its scores as the reason
    film = vlm.see_video([photo(336, 336, seed=n) for n in range(4)], mode="sparse")
    (choice,) = vlm.prepare(film, QUESTION, budget=160, mode="sparse").chosen
    assert choice.count == 160
    for each in choice.kept:
        if len(each) >= 64:
            assert each.mask.reshape(3, 4, 3, 4).all((1, 3)).sum() == len(each) // 16


def test_a_tower_of_windows_alone_loses_nothing_where_they_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    vlm = attached("qwen2_5_vl")
    monkeypatch.setattr(vlm.model.model.visual, "fullatt_block_indexes", [])
    image = photo(336, 336)
    dense, encoded = vlm.see(image), vlm.see(image, mode="sparse")
    assert dense.features is not None
    lost = []
    for whole in ("auto", None):
        prepared = vlm.prepare(encoded, QUESTION, budget=64, mode="sparse", window=whole)
        rows = dense.features.take([prepared.chosen[0].rows]).rows[0]
        lost.append(float((prepared.features.rows[0] - rows).abs().max() / rows.abs().max()))
    assert lost[0] <= 1e-5
    assert lost[1] > 0.02


def test_what_to_look_for_may_differ_from_the_question() -> None:
    vlm = attached("llava")
    encoded = vlm.see(Path(foveate.__file__).parent / "cli/photos/yellow_bus.jpg")
    ours = vlm.prepare(encoded, "what is it doing?", budget=4, looking_for="the bus")
    bus = vlm.prepare(encoded, "the bus", budget=4)
    assert np.array_equal(ours.chosen[0].rows, bus.chosen[0].rows)
    assert len(ours.keep) != len(bus.keep)


def test_scenes() -> None:
    llava, qwen = attached("llava"), attached("qwen2_5_vl")
    with pytest.raises(SceneError, match="another model"):
        llava.ask(qwen.see(photo()), QUESTION)
    with pytest.raises(SceneError, match="str"):
        llava.ask("photo.jpg", QUESTION)  # type: ignore[arg-type]
    with pytest.raises(SceneError, match="at least one"):
        llava.see([])
    with pytest.raises(SceneError, match="sparse"):
        llava.ask(llava.see(photo()), QUESTION, mode="sparse")
    with pytest.raises(SceneError, match="not encoded"):
        llava.ask(llava.see(photo(), mode="sparse"), QUESTION)
    with pytest.raises(SceneError, match="compares the model's features"):
        llava.ask(llava.see(photo(), mode="sparse"), QUESTION, budget=5, mode="sparse", method="maxmin")
    vlm = attached("internvl")
    with pytest.raises(SceneError, match="downsample"):
        llava.ask(llava.see(photo(), mode="sparse"), QUESTION, budget=5, mode="sparse", method="downsample")
    with pytest.raises(PromptError, match="crop"):
        llava.ask(llava.see(photo()), QUESTION, mode="crop", prompt="<image> what?")
    with pytest.raises(ModelError, match="sparse"):
        vlm.ask(vlm.see(photo(), mode="sparse"), QUESTION, mode="sparse")
    with pytest.raises(SceneError, match="2 images"):
        llava.ask(llava.see([photo(), photo()]), QUESTION, mode="crop")
    with pytest.raises(BudgetError, match="64"):
        llava.ask(llava.see(photo()), QUESTION, mode="crop", budget=10)
    for mode in ("prune", "", None):
        with pytest.raises(OptionError, match="drop"):
            llava.see(photo(), mode=mode)  # type: ignore[arg-type]


def test_videos() -> None:
    qwen = attached("qwen2_5_vl")
    with pytest.raises(SceneError, match="no frames"):
        qwen.see_video([])
    with pytest.raises(ImageArrayError, match="one size"):
        qwen.see_video([photo(), photo(90, 90)])
    with pytest.raises(OptionError, match="fps"):
        qwen.see_video([photo()], fps=0)
    with pytest.raises(ModelError, match="several images"):
        attached("llava").see_video([photo()])


def test_questions() -> None:
    vlm = attached("llava")
    encoded = vlm.see(photo())
    empty: list[Any] = ["", "  ", None, 3]
    for question in empty:
        with pytest.raises(QueryError):
            vlm.ask(encoded, question)
    with pytest.raises(OptionError, match="weights"):
        vlm.ask(encoded, QUESTION, mode="weight", weights=[torch.ones(3)])
    with pytest.raises(FoveateError):
        vlm.ask(encoded, QUESTION, method="best")


def test_usual_use_warns_of_nothing() -> None:
    vlm = attached("llava")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vlm.ask(vlm.see(photo()), QUESTION, budget=5, generation=FEW)


# --- found by attack --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llava_next", "idefics3", "smolvlm", "internvl"])
def test_a_question_that_names_nothing_spreads_over_all_panes(name: str) -> None:
    vlm = attached(name)
    kept = vlm.prepare(vlm.see(photo()), "why?", budget=20).chosen[0].kept
    assert sum(map(len, kept)) == 20
    assert all(len(each) for each in kept)


def test_a_question_that_names_nothing_spreads_over_a_video() -> None:
    vlm = attached("qwen2_5_vl")
    encoded = vlm.see_video([photo(112, 112, seed=number) for number in range(8)])
    kept = vlm.prepare(encoded, "why?", budget=12).chosen[0].kept
    assert [len(each) > 0 for each in kept] == [True] * 4


def test_transparent_tiles_come_last_and_protected_cells_first() -> None:
    vlm = attached("idefics3")
    clear = np.zeros((150, 200), np.uint8)
    clear[75:] = 255
    kept = vlm.prepare(vlm.see(np.dstack([photo(), clear])), "why?", budget=16).chosen[0].kept
    assert [len(each) for each in kept[:2]] == [0, 0]
    mask = np.zeros((10, 10), bool)
    mask[9, 9] = mask[0, 0] = True
    chosen = vlm.prepare(vlm.see(photo()), "a red thing", budget=12, protected=mask).chosen[0].kept
    assert chosen[0].mask[0, 0]
    assert chosen[3].mask[-1, -1]


def test_a_model_that_never_caches_answers_as_one_that_does() -> None:
    """Trap 3 again: fine-tuned models are often saved with use_cache=False."""
    model, processor = copy.deepcopy(pair("llava"))
    vlm = foveate.vlm.attach(model, processor)
    encoded = vlm.see(photo(seed=2))
    right = vlm.ask(encoded, QUESTION, budget=5, method="uniform", max_new_tokens=6).ids
    model.generation_config.use_cache = False
    assert np.array_equal(vlm.ask(encoded, QUESTION, budget=5, method="uniform", max_new_tokens=6).ids, right)


def test_times_of_a_video_are_not_rounded_to_the_models_format() -> None:
    model, processor = copy.deepcopy(pair("qwen2_5_vl"))
    vlm = foveate.vlm.attach(model.to(torch.bfloat16), processor)
    encoded = vlm.see_video([photo()] * 4, fps=3)
    assert encoded.inputs["second_per_grid_ts"].dtype == torch.float32


def test_another_thread_sees_the_whole_tower() -> None:
    import threading

    vlm = attached("llava")
    encoded = vlm.see(photo(seed=1), mode="sparse")
    model, seen = vlm.model, []
    stock = model.get_image_features

    def between(*args: Any, **keywords: Any) -> Any:
        thread = threading.Thread(target=lambda: seen.append(stock(*args, **keywords).pooler_output[0].shape[0]))
        thread.start()
        thread.join()
        return stock(*args, **keywords)

    model.__dict__["get_image_features"] = between
    try:
        assert len(vlm.prepare(encoded, QUESTION, budget=5, mode="sparse").features.rows[0]) == 5
    finally:
        del model.__dict__["get_image_features"]
    assert seen == [16]


def test_answers_refuses_what_does_not_belong_together() -> None:
    qwen, older = attached("qwen2_5_vl"), attached("qwen2_vl")
    prepared = qwen.prepare(qwen.see(photo()), QUESTION, budget=5)
    video = qwen.prepare(qwen.see_video([photo()] * 2), QUESTION, budget=5)
    with pytest.raises(SceneError, match="another model"):
        older.answers([prepared], FEW)
    with pytest.raises(SceneError, match="videos"):
        qwen.answers([prepared, video], FEW)
    with pytest.raises(OptionError, match="no prepared"):
        qwen.answers([])
    other = qwen.prepare(qwen.see(photo(90, 220)), "a dog", budget=9)
    both = qwen.answers([prepared, other], FEW)
    assert np.array_equal(both[1].ids, qwen.answers([other], FEW)[0].ids)


def test_generation_is_what_the_caller_says() -> None:
    from transformers import GenerationConfig

    vlm = attached("llava")
    encoded = vlm.see(photo())
    config = GenerationConfig(max_new_tokens=3, min_new_tokens=3, pad_token_id=0)
    assert len(vlm.ask(encoded, QUESTION, budget=5, generation={"generation_config": config}).ids) == 3
    assert len(vlm.ask(encoded, QUESTION, budget=5, max_new_tokens=2, generation={"min_new_tokens": 2}).ids) == 2
    for wrong in ({"input_ids": 1}, {"prompt_lookup_num_tokens": 3}):
        with pytest.raises(OptionError, match="generation"):
            vlm.ask(encoded, QUESTION, budget=5, generation=wrong)
    with pytest.raises(OptionError, match="budgets"):
        vlm.ask(encoded, QUESTION, budgets=5)


def test_tokens_of_the_other_kind_and_templates_that_fail() -> None:
    vlm = attached("qwen2_5_vl")
    with pytest.raises(PromptError, match="token"):
        vlm.ask(vlm.see(photo()), "what is <|video_pad|> here?", budget=3)
    model, processor = pair("llava")
    strings = copy.copy(processor)
    strings.chat_template = "{% for m in messages %}{{ 'USER: ' + m['content'] }}{% endfor %}"
    only = foveate.vlm.attach(model, strings)
    encoded = only.see(photo())
    with pytest.raises(PromptError, match="prompt="):
        only.ask(encoded, QUESTION, generation=FEW)
    assert only.ask(encoded, QUESTION, prompt="USER: <image> what?", budget=4, generation=FEW).tokens[0] == 4


@pytest.mark.parametrize("name", ["llava_next", "qwen2_vl"])
def test_images_too_thin_for_a_processor(name: str) -> None:
    for size in ((1, 500), (500, 1)):
        with pytest.raises(ImageArrayError, match="pixels"):
            attached(name).see(photo(*size))


def test_a_processor_whose_settings_changed() -> None:
    model, processor = copy.deepcopy(pair("internvl"))
    vlm = foveate.vlm.attach(model, processor)
    assert len(vlm.see(photo(120, 180)).layouts[0].grids) == 7
    processor.image_processor.max_patches = 2
    assert len(vlm.see(photo(120, 180)).layouts[0].grids) < 7
