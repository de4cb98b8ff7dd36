"""Vision-language models of real size with random weights, and processors for them: nothing is downloaded.

What is notable
* Time does not depend on what the weights are, so these show what a checkpoint of the same shape takes. What they
  answer is noise, and so is nothing but time and memory worth reading off them.
* LLaVA is the class's default configuration, which has the sizes of LLaVA 1.5 7B. The defaults of Qwen2.5-VL are those
  of no model (an 80-layer language model 8192 wide, a tower 3584 wide whose output does not fit it), so its sizes are
  written down here: those in config.json of Qwen/Qwen2.5-VL-7B-Instruct.
* The tokenizer knows single characters, so a question has more tokens than with a real one: about thirty, not eight.

Not covered: the other families; save a random model of theirs into a folder with its processor, and measure that.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlavaConfig,
    LlavaForConditionalGeneration,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
)

from examples.tiny_vlms.parts import ENDS, IDS, QWEN_TOKENS, clip_processor, qwen_processor

QWEN_TEXT = {
    "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000, "rms_norm_eps": 1e-6,
}  # fmt: skip
QWEN_TOWER = {
    "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14,
    "out_hidden_size": 3584, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
}  # fmt: skip
TINY_TEXT = {
    "vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 8192,
}  # fmt: skip
TINY_CLIP = {
    "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 896,
    "patch_size": 14, "projection_dim": 32,
}  # fmt: skip
TINY_TOWER = {
    **QWEN_TOWER, "depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "out_hidden_size": 64,
    "fullatt_block_indexes": [1],
}  # fmt: skip
SMALL_TEXT = {  # with heads as wide as the real one's
    **TINY_TEXT, "hidden_size": 1024, "intermediate_size": 2688, "num_hidden_layers": 12, "num_attention_heads": 8,
}  # fmt: skip
SMALL_TOWER = {
    **QWEN_TOWER, "depth": 8, "hidden_size": 384, "intermediate_size": 768, "num_heads": 6, "out_hidden_size": 1024,
    "fullatt_block_indexes": [3, 7],
}  # fmt: skip
Pair = tuple[type[Any], Any, Any]


def llava(layers: int | None, tiny: bool) -> Pair:
    """(class, configuration, processor). `tiny`: narrow, with 4096 cells."""
    text = {"model_type": "llama", **(TINY_TEXT if tiny else {}), **ENDS}
    vision = {"vision_config": {"model_type": "clip_vision_model", **TINY_CLIP}} if tiny else {}
    token = IDS["<image>"]
    config = LlavaConfig(text_config=_cut(text, layers), image_token_index=token, image_token_id=token, **vision)
    return LlavaForConditionalGeneration, config, clip_processor(config.vision_config.image_size)


def qwen2_5_vl(layers: int | None, tiny: bool) -> Pair:
    """(class, configuration, processor). `tiny`: narrow; the image's size says how many cells there are."""
    if tiny:
        return _qwen2_5_vl(_cut(TINY_TEXT, layers), TINY_TOWER, [2, 3, 3])
    return _qwen2_5_vl(_cut(QWEN_TEXT, layers), QWEN_TOWER, [16, 24, 24])


def small_qwen2_5_vl() -> Pair:
    """(class, configuration, processor) of a model that a CPU answers with in seconds: 131 million parameters, and
    16 million in the encoder. Before a much smaller one a texture costs more than the whole answer."""
    return _qwen2_5_vl(SMALL_TEXT, SMALL_TOWER, [16, 24, 24])


def _qwen2_5_vl(text: dict[str, Any], tower: dict[str, Any], section: list[int]) -> Pair:
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": section}
    config = Qwen2_5_VLConfig(text_config={**text, **ENDS, "rope_parameters": rope}, vision_config=tower, **QWEN_TOKENS)
    return Qwen2_5_VLForConditionalGeneration, config, qwen_processor(Qwen2_5_VLProcessor, 14, 3136, 12_845_056)


FAMILIES = {"llava": llava, "qwen2_5_vl": qwen2_5_vl}


def random_pair(family: str, layers: int | None, tiny: bool, dtype: torch.dtype, device: str) -> tuple[Any, Any]:
    """(model, processor), made on the device in the number format; `layers`: of the language model, None for all."""
    kind, config, processor = FAMILIES[family](layers, tiny)
    return _random_model(kind, config, dtype, device), processor


def write_small(folder: Path) -> Path:
    """The small Qwen2.5-VL with random weights in float32, 600 MB, as a checkpoint that vLLM reads. -> the folder."""
    kind, config, processor = small_qwen2_5_vl()
    _random_model(kind, config, torch.float32, "cpu").save_pretrained(folder)
    return write_processor(processor, folder)


def write_processor(processor: Any, folder: Path) -> Path:
    """Tokenizer, image processor and chat template of a Qwen, without its videos, as a server reads them."""
    for part in (processor.tokenizer, processor.image_processor):
        part.save_pretrained(folder)
    (folder / "processor_config.json").write_text(json.dumps({"processor_class": type(processor).__name__}))
    (folder / "chat_template.jinja").write_text(processor.chat_template)
    return folder


def _random_model(kind: type[Any], config: Any, dtype: torch.dtype, device: str) -> Any:
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        return kind._from_config(config, dtype=dtype).eval()


def _cut(text: dict[str, Any], layers: int | None) -> dict[str, Any]:
    return text if layers is None else {**text, "num_hidden_layers": layers}
