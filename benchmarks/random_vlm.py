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

from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CLIPImageProcessorPil,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessorPil,
)

from foveate.vlm.loader import without_video_processor

SPECIAL = [
    "<pad>", "<s>", "</s>", "<image>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
    "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>", "<fake_token_around_image>",
    "<global-img>", "<end_of_utterance>", *(f"<row_{i}_col_{j}>" for i in range(1, 5) for j in range(1, 5)),
]  # fmt: skip
CHARACTERS = [chr(i) for i in range(32, 127)] + ["\n"]
IDS = {token: number for number, token in enumerate(SPECIAL + CHARACTERS)}
TEMPLATE = (
    "{{% for m in messages %}}{{{{ '<|im_start|>' + m['role'] + '\n' }}}}"
    "{{% if m['content'] is string %}}{{{{ m['content'] }}}}{{% else %}}{{% for c in m['content'] %}}"
    "{{% if c['type'] == 'image' %}}{{{{ '{image}' }}}}{{% elif c['type'] == 'video' %}}{{{{ '{video}' }}}}"
    "{{% else %}}{{{{ c['text'] }}}}{{% endif %}}{{% endfor %}}{{% endif %}}{{{{ '<|im_end|>\n' }}}}{{% endfor %}}"
    "{{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\n' }}}}{{% endif %}}"
)
ENDS = {"pad_token_id": IDS["<pad>"], "bos_token_id": IDS["<s>"], "eos_token_id": IDS["</s>"]}
QWEN_TOKENS = {
    "image_token_id": IDS["<|image_pad|>"],
    "video_token_id": IDS["<|video_pad|>"],
    "vision_start_token_id": IDS["<|vision_start|>"],
    "vision_end_token_id": IDS["<|vision_end|>"],
}
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


def tokenizer(**named: str) -> PreTrainedTokenizerFast:
    """One token a character; special tokens whole. `named`: tokens that a processor looks up by attribute."""
    raw = Tokenizer(models.WordLevel(dict(IDS), unk_token="?"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="?",
        clean_up_tokenization_spaces=False, extra_special_tokens=named,
    )  # fmt: skip
    fast.add_special_tokens({"additional_special_tokens": [t for t in SPECIAL if t not in ("<pad>", "<s>", "</s>")]})
    return fast


def template(image: str = "<image>\n", video: str = "<video>\n") -> str:
    """A chat template, with what stands for an image and for a video."""
    return TEMPLATE.format(image=image.replace("\n", "\\n"), video=video.replace("\n", "\\n"))


def qwen_processor(kind: type[Any], patch: int, smallest: int, largest: int) -> Any:
    """A processor of the Qwen family: sides of patches in pixels, smallest and largest image in pixels."""
    images = Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=2, temporal_patch_size=2, min_pixels=smallest, max_pixels=largest
    )
    mark = "<|vision_start|><|{}_pad|><|vision_end|>"
    text = template(mark.format("image"), mark.format("video"))
    return without_video_processor(kind)(images, tokenizer(), None, chat_template=text)


def clip_processor(side: int) -> Any:
    """LLaVA's processor, for images of `side` pixels in patches of 14."""
    images = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    return LlavaProcessor(
        images, tokenizer(), patch_size=14, vision_feature_select_strategy="default", chat_template=template(),
        num_additional_image_tokens=1,
    )  # fmt: skip


def llava(layers: int | None, tiny: bool) -> tuple[type[Any], Any, Any]:
    """(class, configuration, processor). `tiny`: narrow, with 4096 cells."""
    text = {"model_type": "llama", **(TINY_TEXT if tiny else {}), **ENDS}
    vision = {"vision_config": {"model_type": "clip_vision_model", **TINY_CLIP}} if tiny else {}
    token = IDS["<image>"]
    config = LlavaConfig(text_config=_cut(text, layers), image_token_index=token, image_token_id=token, **vision)
    return LlavaForConditionalGeneration, config, clip_processor(config.vision_config.image_size)


def qwen2_5_vl(layers: int | None, tiny: bool) -> tuple[type[Any], Any, Any]:
    """(class, configuration, processor). `tiny`: narrow; the image's size says how many cells there are."""
    section = [2, 3, 3] if tiny else [16, 24, 24]
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": section}
    text = {**(TINY_TEXT if tiny else QWEN_TEXT), **ENDS, "rope_parameters": rope}
    config = Qwen2_5_VLConfig(
        text_config=_cut(text, layers), vision_config=TINY_TOWER if tiny else QWEN_TOWER, **QWEN_TOKENS
    )
    return Qwen2_5_VLForConditionalGeneration, config, qwen_processor(Qwen2_5_VLProcessor, 14, 3136, 12_845_056)


FAMILIES = {"llava": llava, "qwen2_5_vl": qwen2_5_vl}


def random_pair(family: str, layers: int | None, tiny: bool, dtype: torch.dtype, device: str) -> tuple[Any, Any]:
    """(model, processor), made on the device in the number format; `layers`: of the language model, None for all."""
    kind, config, processor = FAMILIES[family](layers, tiny)
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        model = kind._from_config(config, dtype=dtype)
    return model.eval(), processor


def _cut(text: dict[str, Any], layers: int | None) -> dict[str, Any]:
    return text if layers is None else {**text, "num_hidden_layers": layers}
