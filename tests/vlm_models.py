"""Tiny random-weight models of the real classes, with processors that need no torchvision: the families of `vlm`.

Nothing can be downloaded where the tests run. A family here is the stock model class on a small configuration, the
stock processor class with its PIL image processor, and a tokenizer of single characters.
"""

from __future__ import annotations

import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessorPil,
    Idefics3Processor,
    InternVLConfig,
    InternVLForConditionalGeneration,
    InternVLProcessor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextImageProcessorPil,
    LlavaNextProcessor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen2VLProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
    SmolVLMImageProcessorPil,
    SmolVLMProcessor,
)
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

SPECIAL = [
    "<pad>", "<s>", "</s>", "<image>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
    "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>", "<fake_token_around_image>",
    "<global-img>", "<end_of_utterance>", *(f"<row_{i}_col_{j}>" for i in range(1, 5) for j in range(1, 5)),
]  # fmt: skip
CHARACTERS = [chr(i) for i in range(32, 127)] + ["\n"]
IDS = {token: number for number, token in enumerate(SPECIAL + CHARACTERS)}
VOCABULARY = 160
TEMPLATE = (
    "{{% for m in messages %}}{{{{ '<|im_start|>' + m['role'] + '\n' }}}}"
    "{{% if m['content'] is string %}}{{{{ m['content'] }}}}{{% else %}}{{% for c in m['content'] %}}"
    "{{% if c['type'] == 'image' %}}{{{{ '{image}' }}}}{{% elif c['type'] == 'video' %}}{{{{ '{video}' }}}}"
    "{{% else %}}{{{{ c['text'] }}}}{{% endif %}}{{% endfor %}}{{% endif %}}{{{{ '<|im_end|>\n' }}}}{{% endfor %}}"
    "{{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\n' }}}}{{% endif %}}"
)
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "pad_token_id": IDS["<pad>"],
    "bos_token_id": IDS["<s>"],
    "eos_token_id": IDS["</s>"],
}
CLIP_TOWER = {
    "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 56,
    "patch_size": 14, "projection_dim": 32,
}  # fmt: skip
SIGLIP_TOWER = {
    "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64,
    "patch_size": 8,
}  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a character; special tokens whole."""
    raw = Tokenizer(models.WordLevel(dict(IDS), unk_token="?"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="?",
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.add_special_tokens({"additional_special_tokens": [t for t in SPECIAL if t not in ("<pad>", "<s>", "</s>")]})
    return fast


def template(image: str = "<image>\n", video: str = "<video>\n") -> str:
    return TEMPLATE.format(image=image.replace("\n", "\\n"), video=video.replace("\n", "\\n"))


def llava() -> tuple[Any, Any]:
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**CLIP_TOWER),
        text_config=LlamaConfig(**TEXT),
        image_token_index=IDS["<image>"],
        image_token_id=IDS["<image>"],
    )
    size = {"height": 56, "width": 56}
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": 56}, crop_size=size), tokenizer(), patch_size=14,
        vision_feature_select_strategy="default", chat_template=template(), num_additional_image_tokens=1,
    )  # fmt: skip
    return LlavaForConditionalGeneration(config), processor


def llava_next() -> tuple[Any, Any]:
    pinpoints = [[56, 112], [112, 56], [112, 112]]
    config = LlavaNextConfig(
        vision_config=CLIPVisionConfig(**CLIP_TOWER),
        text_config=LlamaConfig(**TEXT),
        image_token_index=IDS["<image>"],
        image_token_id=IDS["<image>"],
        image_grid_pinpoints=pinpoints,
    )
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, image_grid_pinpoints=pinpoints
    )
    processor = LlavaNextProcessor(
        images, tokenizer(), patch_size=14, vision_feature_select_strategy="default", chat_template=template(),
        num_additional_image_tokens=1,
    )  # fmt: skip
    return LlavaNextForConditionalGeneration(config), processor


def _qwen_tokens() -> dict[str, int]:
    return {
        "image_token_id": IDS["<|image_pad|>"],
        "video_token_id": IDS["<|video_pad|>"],
        "vision_start_token_id": IDS["<|vision_start|>"],
        "vision_end_token_id": IDS["<|vision_end|>"],
    }


def without_videos(kind: type[Any], images: Any, words: Any, chat_template: str, **attributes: Any) -> Any:
    """A processor as its class makes it, but for the video processor, which cannot be made without torchvision."""
    made = object.__new__(kind)
    made.image_processor, made.tokenizer = images, words
    made.video_processor = SimpleNamespace(num_frames=4, fps=1, video_sampling={}, do_sample_frames=False)
    made.chat_template = chat_template
    for name, value in attributes.items():
        setattr(made, name, value)
        if name.endswith("_token"):
            setattr(made, f"{name}_id", IDS[value])
    return made


def _qwen_processor(kind: type[Any], patch: int) -> Any:
    images = Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=2, temporal_patch_size=2, min_pixels=(4 * patch) ** 2, max_pixels=(24 * patch) ** 2
    )
    mark = "<|vision_start|><|{}_pad|><|vision_end|>"
    return without_videos(
        kind, images, tokenizer(), template(mark.format("image"), mark.format("video")),
        image_token="<|image_pad|>", video_token="<|video_pad|>",
        vision_start_token="<|vision_start|>", vision_end_token="<|vision_end|>",
    )  # fmt: skip


def _mrope(section: list[int], **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": section, **more}


def qwen2_vl() -> tuple[Any, Any]:
    config = Qwen2VLConfig(
        text_config={**TEXT, "rope_parameters": _mrope([2, 3, 3])},
        vision_config={
            "depth": 3,
            "embed_dim": 32,
            "hidden_size": 64,
            "num_heads": 4,
            "patch_size": 14,
            "mlp_ratio": 2,
        },
        **_qwen_tokens(),
    )
    return Qwen2VLForConditionalGeneration(config), _qwen_processor(Qwen2VLProcessor, 14)


def qwen2_5_vl() -> tuple[Any, Any]:
    config = Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": _mrope([2, 3, 3])},
        vision_config={
            "depth": 4, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "patch_size": 14,
            "out_hidden_size": 64, "window_size": 112, "fullatt_block_indexes": [3],
        },
        **_qwen_tokens(),
    )  # fmt: skip
    return Qwen2_5_VLForConditionalGeneration(config), _qwen_processor(Qwen2_5_VLProcessor, 14)


def qwen3_vl() -> tuple[Any, Any]:
    config = Qwen3VLConfig(
        text_config={**TEXT, "head_dim": 16, "rope_parameters": _mrope([2, 3, 3], mrope_interleaved=True)},
        vision_config={
            "depth": 4, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "patch_size": 16,
            "out_hidden_size": 64, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1, 2],
        },
        **_qwen_tokens(),
    )  # fmt: skip
    return Qwen3VLForConditionalGeneration(config), _qwen_processor(Qwen3VLProcessor, 16)


def idefics3() -> tuple[Any, Any]:
    config = Idefics3Config(
        vision_config=SIGLIP_TOWER, text_config={"model_type": "llama", **TEXT}, scale_factor=2,
        image_token_id=IDS["<image>"], pad_token_id=IDS["<pad>"],
    )  # fmt: skip
    images = Idefics3ImageProcessorPil(size={"longest_edge": 128}, max_image_size={"longest_edge": 64})
    return Idefics3ForConditionalGeneration(config), Idefics3Processor(
        images, tokenizer(), image_seq_len=16, chat_template=template("<image>")
    )


def smolvlm() -> tuple[Any, Any]:
    config = SmolVLMConfig(
        vision_config=SIGLIP_TOWER, text_config={"model_type": "llama", **TEXT}, scale_factor=2,
        image_token_id=IDS["<image>"], pad_token_id=IDS["<pad>"],
    )  # fmt: skip
    images = SmolVLMImageProcessorPil(size={"longest_edge": 128}, max_image_size={"longest_edge": 64})
    return SmolVLMForConditionalGeneration(config), without_videos(
        SmolVLMProcessor, images, tokenizer(), template("<image>"), image_token="<image>", image_seq_len=16,
        fake_image_token="<fake_token_around_image>", global_image_token="<global-img>", video_token="<video>",
    )  # fmt: skip


def internvl() -> tuple[Any, Any]:
    config = InternVLConfig(
        vision_config={
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": [56, 56], "patch_size": [14, 14],
        },
        text_config={"model_type": "qwen2", **TEXT}, image_token_id=IDS["<IMG_CONTEXT>"], image_seq_length=4,
    )  # fmt: skip
    images = GotOcr2ImageProcessorPil(
        size={"height": 56, "width": 56}, crop_to_patches=True, min_patches=1, max_patches=6
    )
    return InternVLForConditionalGeneration(config), without_videos(
        InternVLProcessor, images, tokenizer(), template("<IMG_CONTEXT>\n"), image_seq_length=4,
        start_image_token="<img>", end_image_token="</img>", image_token="<IMG_CONTEXT>", video_token="<video>",
        multimodal_pattern=re.compile("(?P<image><IMG_CONTEXT>)|(?P<video><video>)"),
    )  # fmt: skip


FAMILIES = {f.__name__: f for f in (llava, llava_next, qwen2_vl, qwen2_5_vl, qwen3_vl, idefics3, smolvlm, internvl)}


@cache
def pair(name: str) -> tuple[Any, Any]:
    """(model, processor) of a family: float32, evaluation, the same weights in every run."""
    torch.manual_seed(0)
    model, processor = FAMILIES[name]()
    model.eval()
    for parameter in model.parameters():  # random initialisation is so small that attention is uniform
        if parameter.ndim > 1:
            parameter.data.mul_(4)
    return model, processor


def photo(height: int = 150, width: int = 200, seed: int = 0) -> np.ndarray:
    """Smooth noise, uint8 [height, width, 3]."""
    import cv2

    noise = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), np.uint8)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
