"""LLaVA 1.5 and NeXT, the first Qwens, Idefics3, SmolVLM, InternVL."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

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
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
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

from examples.tiny_vlms.parts import (
    CLIP_TOWER,
    IDS,
    QWEN_TOKENS,
    SIGLIP_TOWER,
    TEXT,
    WIDTH,
    clip_processor,
    qwen_processor,
    template,
    tokenizer,
)
from foveate.vlm.loader import without_video_processor


def _llava_config(kind: type[Any], width: int, **more: Any) -> Any:
    image = IDS["<image>"]
    text, vision = LlamaConfig(**{**TEXT, "hidden_size": width}), CLIPVisionConfig(**CLIP_TOWER)
    return kind(vision_config=vision, text_config=text, image_token_index=image, image_token_id=image, **more)


def llava(width: int) -> tuple[Any, Any]:
    return LlavaForConditionalGeneration(_llava_config(LlavaConfig, width)), clip_processor(56)


def llava_next(width: int) -> tuple[Any, Any]:
    pinpoints = [[56, 112], [112, 56], [112, 112]]
    config = _llava_config(LlavaNextConfig, width, image_grid_pinpoints=pinpoints)
    images = LlavaNextImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, image_grid_pinpoints=pinpoints
    )
    processor = LlavaNextProcessor(
        images, tokenizer(), patch_size=14, vision_feature_select_strategy="default", chat_template=template(),
        num_additional_image_tokens=1,
    )  # fmt: skip
    return LlavaNextForConditionalGeneration(config), processor


def _qwen_config(kind: type[Any], width: int, vision: dict[str, Any], **text: Any) -> Any:
    section = [share * width // WIDTH for share in (2, 3, 3)]
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": section}
    text = {**TEXT, "hidden_size": width, **text, "rope_parameters": {**rope, **text.get("rope_parameters", {})}}
    return kind(text_config=text, vision_config=vision, **QWEN_TOKENS)


def _qwen_processor(kind: type[Any], patch: int) -> Any:
    return qwen_processor(kind, patch, (4 * patch) ** 2, (24 * patch) ** 2)


def qwen2_vl(width: int) -> tuple[Any, Any]:
    vision = {"depth": 3, "embed_dim": 32, "hidden_size": width, "num_heads": 4, "patch_size": 14, "mlp_ratio": 2}
    config = _qwen_config(Qwen2VLConfig, width, vision)
    return Qwen2VLForConditionalGeneration(config), _qwen_processor(Qwen2VLProcessor, 14)


def qwen2_5_vl(width: int) -> tuple[Any, Any]:
    vision = {
        "depth": 4, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "patch_size": 14,
        "out_hidden_size": width, "window_size": 112, "fullatt_block_indexes": [3],
    }  # fmt: skip
    config = _qwen_config(Qwen2_5_VLConfig, width, vision)
    return Qwen2_5_VLForConditionalGeneration(config), _qwen_processor(Qwen2_5_VLProcessor, 14)


def qwen3_vl(width: int) -> tuple[Any, Any]:
    vision = {
        "depth": 4, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4, "patch_size": 16,
        "out_hidden_size": width, "num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1, 2],
    }  # fmt: skip
    config = _qwen_config(
        Qwen3VLConfig, width, vision, head_dim=width // 4, rope_parameters={"mrope_interleaved": True}
    )
    return Qwen3VLForConditionalGeneration(config), _qwen_processor(Qwen3VLProcessor, 16)


def _idefics_config(kind: type[Any], width: int) -> Any:
    text = {"model_type": "llama", **TEXT, "hidden_size": width}
    tokens = {"image_token_id": IDS["<image>"], "pad_token_id": IDS["<pad>"]}
    return kind(vision_config=SIGLIP_TOWER, text_config=text, scale_factor=2, **tokens)


def idefics3(width: int) -> tuple[Any, Any]:
    images = Idefics3ImageProcessorPil(size={"longest_edge": 128}, max_image_size={"longest_edge": 64})
    processor = Idefics3Processor(images, tokenizer(), image_seq_len=16, chat_template=template("<image>"))
    return Idefics3ForConditionalGeneration(_idefics_config(Idefics3Config, width)), processor


def smolvlm(width: int) -> tuple[Any, Any]:
    images = SmolVLMImageProcessorPil(size={"longest_edge": 128}, max_image_size={"longest_edge": 64})
    with patch("transformers.models.smolvlm.processing_smolvlm.num2words", str):  # for videos only
        kind = without_video_processor(SmolVLMProcessor)
        processor = kind(images, tokenizer(), None, image_seq_len=16, chat_template=template("<image>"))
    return SmolVLMForConditionalGeneration(_idefics_config(SmolVLMConfig, width)), processor


def internvl(width: int) -> tuple[Any, Any]:
    config = InternVLConfig(
        vision_config={
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": [56, 56], "patch_size": [14, 14],
        },
        text_config={"model_type": "qwen2", **TEXT, "hidden_size": width}, image_token_id=IDS["<IMG_CONTEXT>"],
        image_seq_length=4,
    )  # fmt: skip
    side = {"height": 56, "width": 56}
    images = GotOcr2ImageProcessorPil(size=side, crop_to_patches=True, min_patches=1, max_patches=6)
    words = tokenizer(
        start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>", video_token="<video>"
    )
    kind = without_video_processor(InternVLProcessor)
    processor = kind(images, words, None, image_seq_length=4, chat_template=template("<IMG_CONTEXT>\n"))
    return InternVLForConditionalGeneration(config), processor


FAMILIES = {f.__name__: f for f in (llava, llava_next, qwen2_vl, qwen2_5_vl, qwen3_vl, idefics3, smolvlm, internvl)}
