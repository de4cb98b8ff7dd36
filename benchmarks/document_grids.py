"""The grids of visual tokens that real models lay over a page: their processors' sizes, with weights that are no more
than placeholders (one layer, a few numbers wide). Nothing is downloaded, and nothing is ever encoded.

Sizes are those of the published checkpoints' preprocessor files, as their classes have them by default or as written
down here: LLaVA 1.5 (336), LLaVA-NeXT (336, five shapes of tiles), Qwen2.5-VL (28 pixels a token), Qwen3-VL (32),
SmolVLM (tiles of 512, 64 tokens each), InternVL (tiles of 448, 256 tokens each, up to 12 and an overview).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from transformers import (
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
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
)
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

from examples.tiny_vlms.parts import ENDS, IDS, QWEN_TOKENS, clip_processor, qwen_processor, template, tokenizer
from foveate.vlm.loader import attach, without_video_processor
from foveate.vlm.model import VLM

TEXT: dict[str, Any] = {
    "vocab_size": 160, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 32768, **ENDS,
}  # fmt: skip
NARROW: dict[str, Any] = {
    "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
}  # fmt: skip
PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
LARGEST = (
    1280 * 28 * 28
)  # pixels: 1,280 tokens, which Qwen's own documentation recommends; the default is ten times that


def llava() -> tuple[Any, Any]:
    image = IDS["<image>"]
    vision = CLIPVisionConfig(**NARROW, image_size=336, patch_size=14, projection_dim=8)
    config = LlavaConfig(
        vision_config=vision, text_config=LlamaConfig(**TEXT), image_token_index=image, image_token_id=image
    )
    return LlavaForConditionalGeneration(config), clip_processor(336)


def llava_next() -> tuple[Any, Any]:
    image = IDS["<image>"]
    vision = CLIPVisionConfig(**NARROW, image_size=336, patch_size=14, projection_dim=8)
    config = LlavaNextConfig(
        vision_config=vision, text_config=LlamaConfig(**TEXT), image_token_index=image, image_token_id=image,
        image_grid_pinpoints=PINPOINTS,
    )  # fmt: skip
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}, image_grid_pinpoints=PINPOINTS
    )
    processor = LlavaNextProcessor(
        images, tokenizer(), patch_size=14, vision_feature_select_strategy="default", chat_template=template(),
        num_additional_image_tokens=1,
    )  # fmt: skip
    return LlavaNextForConditionalGeneration(config), processor


def _qwen(model: type[Any], config: type[Any], processor: type[Any], patch: int) -> tuple[Any, Any]:
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [1, 1, 2]}
    text = {**TEXT, "rope_parameters": rope, "head_dim": 8}
    vision: dict[str, Any] = {
        "depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1, "patch_size": patch, "out_hidden_size": 16
    }  # fmt: skip
    vision |= (
        {"deepstack_visual_indexes": [0], "num_position_embeddings": 64}
        if patch == 16
        else {"window_size": 112, "fullatt_block_indexes": [0]}
    )
    made = model(config(text_config=text, vision_config=vision, **QWEN_TOKENS))
    return made, qwen_processor(processor, patch, 3136, LARGEST * patch**2 // 14**2)


def qwen2_5_vl() -> tuple[Any, Any]:
    return _qwen(Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLConfig, Qwen2_5_VLProcessor, 14)


def qwen3_vl() -> tuple[Any, Any]:
    return _qwen(Qwen3VLForConditionalGeneration, Qwen3VLConfig, Qwen3VLProcessor, 16)


def smolvlm() -> tuple[Any, Any]:
    """By Idefics3's classes, which lay an image out in the same way and need no package for numbers in words."""
    images = Idefics3ImageProcessorPil(size={"longest_edge": 4 * 512}, max_image_size={"longest_edge": 512})
    processor = Idefics3Processor(images, tokenizer(), image_seq_len=64, chat_template=template("<image>"))
    tokens = {"image_token_id": IDS["<image>"], "pad_token_id": IDS["<pad>"]}
    vision = {**NARROW, "image_size": 512, "patch_size": 16}
    config = Idefics3Config(vision_config=vision, text_config={"model_type": "llama", **TEXT}, scale_factor=4, **tokens)
    return Idefics3ForConditionalGeneration(config), processor


def internvl() -> tuple[Any, Any]:
    config = InternVLConfig(
        vision_config={**NARROW, "image_size": [448, 448], "patch_size": [14, 14]},
        text_config={"model_type": "qwen2", **TEXT}, image_token_id=IDS["<IMG_CONTEXT>"], image_seq_length=256,
    )  # fmt: skip
    side = {"height": 448, "width": 448}
    images = GotOcr2ImageProcessorPil(size=side, crop_to_patches=True, min_patches=1, max_patches=12)
    words = tokenizer(
        start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>", video_token="<video>"
    )
    kind = without_video_processor(InternVLProcessor)
    processor = kind(images, words, None, image_seq_length=256, chat_template=template("<IMG_CONTEXT>\n"))
    return InternVLForConditionalGeneration(config), processor


FAMILIES: dict[str, Callable[[], tuple[Any, Any]]] = {
    f.__name__: f for f in (llava, llava_next, qwen2_5_vl, qwen3_vl, smolvlm, internvl)
}


@cache
def model_of(family: str) -> VLM:
    """A family's model; see its images with mode="sparse", which lays them out and encodes nothing."""
    return attach(*FAMILIES[family]())
