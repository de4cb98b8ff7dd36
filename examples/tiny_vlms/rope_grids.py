"""Grids of patches with positions of rows and columns: later Qwens, GLM, ERNIE, PaddleOCR, HunYuan, Cosmos, MiniCPM."""

from __future__ import annotations

from typing import Any

import transformers as hf

from examples.tiny_vlms.parts import IDS, QWEN_TOKENS, TEXT, WIDTH, ids_of, qwen_processor, template, tokenizer
from foveate.vlm.loader import without_video_processor

EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
LINEAR: dict[str, Any] = {  # of a gated delta net, in front of one layer with attention
    "layer_types": ["linear_attention", "linear_attention", "full_attention"], "linear_num_key_heads": 2,
    "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
TOWER: dict[str, Any] = {"depth": 4, "hidden_size": 32, "intermediate_size": 48, "num_heads": 4}
SIGLIP: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
QWEN_MARK = "<|vision_start|><|{}_pad|><|vision_end|>"
QWEN_TEMPLATE = template(QWEN_MARK.format("image"), QWEN_MARK.format("video"))


def _text(width: int, sections: tuple[int, ...] = (2, 3, 3), part: float = 1.0, **more: Any) -> dict[str, Any]:
    """A language model. sections: of half of the part of a head of WIDTH that turns with the position."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [n * width // WIDTH for n in sections]}
    rope |= {} if part == 1 else {"partial_rotary_factor": part}
    given = {**TEXT, "hidden_size": width, "head_dim": width // 4, **more}
    return given | {"rope_parameters": {**rope, **more.get("rope_parameters", {})}}


def _grid(images: Any, patch: int, **more: Any) -> Any:
    """An image processor for grids: 4 x 4 to 24 x 24 patches of `patch` pixels, two of them a token on each side."""
    size = {"shortest_edge": (4 * patch) ** 2, "longest_edge": (24 * patch) ** 2}
    return images(patch_size=patch, merge_size=2, size=size, **more)


def _qwen3_tower(width: int, **more: Any) -> dict[str, Any]:
    return {**TOWER, "patch_size": 16, "out_hidden_size": width, "num_position_embeddings": 64, **more}


def _qwen3(kind: type[Any], width: int, text: dict[str, Any], **vision: Any) -> Any:
    return kind(text_config=text, vision_config=_qwen3_tower(width, **vision), **QWEN_TOKENS)


def _qwen3_processor() -> Any:
    return qwen_processor(hf.Qwen3VLProcessor, 16, 64**2, 384**2)


def qwen3_vl_moe(width: int) -> tuple[Any, Any]:
    text = _text(width, rope_parameters={"mrope_interleaved": True}, **EXPERTS)
    config = _qwen3(hf.Qwen3VLMoeConfig, width, text, deepstack_visual_indexes=[0, 1, 2])
    return hf.Qwen3VLMoeForConditionalGeneration(config), _qwen3_processor()


def qwen3_5(width: int) -> tuple[Any, Any]:
    text = _text(width, (2, 1, 1), 0.5, rope_parameters={"mrope_interleaved": True}, **LINEAR)
    return hf.Qwen3_5ForConditionalGeneration(_qwen3(hf.Qwen3_5Config, width, text)), _qwen3_processor()


def qwen3_5_moe(width: int) -> tuple[Any, Any]:
    shared = {"shared_expert_intermediate_size": 48}
    text = _text(width, (2, 1, 1), 0.5, rope_parameters={"mrope_interleaved": True}, **LINEAR, **EXPERTS, **shared)
    return hf.Qwen3_5MoeForConditionalGeneration(_qwen3(hf.Qwen3_5MoeConfig, width, text)), _qwen3_processor()


def qwen4_exp(width: int) -> tuple[Any, Any]:
    """Its attention looks at the eight best blocks of four tokens, of all that were before."""
    more = {
        **LINEAR, **EXPERTS, "shared_expert_intermediate_size": 48, "hc_count": 2, "hc_lowrank": 16,
        "ple_layer_ids": [2], "ple_embed_dim": width, "heads_per_ngram": 2, "ngram_vocab_size_base": 97,
        "split_ngram_parts": 1, "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": width // 4,
        "indexer_budget": 32, "indexer_compress_ratio": 4,
    }  # fmt: skip
    text = _text(width, (2, 1, 1), 0.5, rope_parameters={"mrope_interleaved": True}, **more)
    return hf.Qwen4ExpForConditionalGeneration(_qwen3(hf.Qwen4ExpConfig, width, text)), _qwen3_processor()


OMNI_TOKENS = ("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")


def _omni_processor(kind: type[Any], patch: int) -> Any:
    images = hf.Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=2, temporal_patch_size=2, min_pixels=(4 * patch) ** 2, max_pixels=(24 * patch) ** 2
    )
    words = tokenizer(
        *OMNI_TOKENS, image_token="<|image_pad|>", video_token="<|video_pad|>", audio_token="<|AUDIO|>",
        vision_bos_token="<|vision_start|>", vision_eos_token="<|vision_end|>", audio_bos_token="<|audio_bos|>",
        audio_eos_token="<|audio_eos|>",
    )  # fmt: skip
    audio = hf.WhisperFeatureExtractor(128)
    return without_video_processor(kind)(images, None, audio, words, chat_template=QWEN_TEMPLATE)


def _audio(width: int, **more: Any) -> dict[str, Any]:
    layers = {"encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 32, "d_model": 32}
    return {**layers, "output_dim": width, **more}


def qwen2_5_omni_thinker(width: int) -> tuple[Any, Any]:
    ids = ids_of(*OMNI_TOKENS)
    vision = {
        **TOWER, "patch_size": 14, "out_hidden_size": width, "window_size": 112, "fullatt_block_indexes": [3],
    }  # fmt: skip
    config = hf.Qwen2_5OmniThinkerConfig(
        text_config=_text(width), vision_config=vision, audio_config=_audio(width),
        image_token_index=QWEN_TOKENS["image_token_id"], video_token_index=QWEN_TOKENS["video_token_id"],
        audio_token_index=ids["<|AUDIO|>"], audio_start_token_id=ids["<|audio_bos|>"],
        audio_end_token_id=ids["<|audio_eos|>"], vision_start_token_id=QWEN_TOKENS["vision_start_token_id"],
    )  # fmt: skip
    processor = _omni_processor(hf.Qwen2_5OmniProcessor, 14)
    return hf.Qwen2_5OmniThinkerForConditionalGeneration(config), processor


def qwen3_omni_moe_thinker(width: int) -> tuple[Any, Any]:
    ids = ids_of(*OMNI_TOKENS)
    config = hf.Qwen3OmniMoeThinkerConfig(
        text_config=_text(width, rope_parameters={"mrope_interleaved": True}, **EXPERTS),
        vision_config=_qwen3_tower(width, deepstack_visual_indexes=[0, 1, 2]),
        audio_config=_audio(width, downsample_hidden_size=8), image_token_id=QWEN_TOKENS["image_token_id"],
        video_token_id=QWEN_TOKENS["video_token_id"], audio_token_id=ids["<|AUDIO|>"],
        audio_start_token_id=ids["<|audio_bos|>"], vision_start_token_id=QWEN_TOKENS["vision_start_token_id"],
    )  # fmt: skip
    processor = _omni_processor(hf.Qwen3OmniMoeProcessor, 16)
    return hf.Qwen3OmniMoeThinkerForConditionalGeneration(config), processor


GLM_TOKENS = (
    "<|image|>", "<|video|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>",
)  # fmt: skip


def _glm_config(kind: type[Any], width: int, **text: Any) -> Any:
    ids = ids_of(*GLM_TOKENS)
    vision = {**TOWER, "image_size": 112, "patch_size": 14, "out_hidden_size": width}
    return kind(
        text_config=_text(width, (1, 1, 2), 0.5, **text), vision_config=vision, image_token_id=ids["<|image|>"],
        video_token_id=ids["<|video|>"], image_start_token_id=ids["<|begin_of_image|>"],
        image_end_token_id=ids["<|end_of_image|>"], video_start_token_id=ids["<|begin_of_video|>"],
        video_end_token_id=ids["<|end_of_video|>"],
    )  # fmt: skip


def _glm_processor(kind: type[Any], images: type[Any]) -> Any:
    text = template("<|begin_of_image|><|image|><|end_of_image|>", "<|begin_of_video|><|video|><|end_of_video|>")
    # a still image counts as two frames in its size
    size = {"shortest_edge": 2 * 56**2, "longest_edge": 2 * 336**2}
    made = images(patch_size=14, merge_size=2, temporal_patch_size=2, size=size)
    return without_video_processor(kind)(made, tokenizer(*GLM_TOKENS), None, chat_template=text)


def glm4v(width: int) -> tuple[Any, Any]:
    config = _glm_config(hf.Glm4vConfig, width)
    return hf.Glm4vForConditionalGeneration(config), _glm_processor(hf.Glm4vProcessor, hf.Glm4vImageProcessorPil)


def glm4v_moe(width: int) -> tuple[Any, Any]:
    config = _glm_config(
        hf.Glm4vMoeConfig,
        width,
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=48,
        n_shared_experts=1,
    )
    return hf.Glm4vMoeForConditionalGeneration(config), _glm_processor(hf.Glm4vProcessor, hf.Glm4vImageProcessorPil)


def glm46v(width: int) -> tuple[Any, Any]:
    config = _glm_config(hf.Glm46VConfig, width)
    return hf.Glm46VForConditionalGeneration(config), _glm_processor(hf.Glm46VProcessor, hf.Glm46VImageProcessorPil)


def glm_ocr(width: int) -> tuple[Any, Any]:
    config = _glm_config(hf.GlmOcrConfig, width)
    return hf.GlmOcrForConditionalGeneration(config), _glm_processor(hf.Glm46VProcessor, hf.Glm46VImageProcessorPil)


ERNIE_TOKENS = (
    "<|IMAGE_PLACEHOLDER|>", "<|IMAGE_START|>", "<|IMAGE_END|>", "<|VIDEO_PLACEHOLDER|>", "<|VIDEO_START|>",
    "<|VIDEO_END|>",
)  # fmt: skip
ERNIE_NAMES = ("image_token", "image_start_token", "image_end_token", "video_token", "video_start_token",
               "video_end_token")  # fmt: skip


def ernie4_5_vl_moe(width: int) -> tuple[Any, Any]:
    ids = ids_of(*ERNIE_TOKENS)
    text = _text(width, (3, 3, 2), moe_num_experts=4, moe_k=2, moe_intermediate_size=[48, 32], moe_num_shared_experts=1)
    names = dict(zip(ERNIE_NAMES, ERNIE_TOKENS, strict=True))
    config = hf.Ernie4_5_VLMoeConfig(
        text_config=text, vision_config={**TOWER, "patch_size": 14},
        **{f"{name}_id": ids[token] for name, token in names.items()},
    )  # fmt: skip
    images = _grid(hf.Ernie4_5_VLMoeImageProcessorPil, 14)
    processor = without_video_processor(hf.Ernie4_5_VLMoeProcessor)(
        images, tokenizer(*ERNIE_TOKENS, **names), None,
        chat_template=template("<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>", "<|VIDEO_PLACEHOLDER|>"),
    )  # fmt: skip
    return hf.Ernie4_5_VLMoeForConditionalGeneration(config), processor


def paddleocr_vl(width: int) -> tuple[Any, Any]:
    config = hf.PaddleOCRVLConfig(
        text_config=_text(width), vision_config={**SIGLIP, "patch_size": 14, "image_size": 112}, **QWEN_TOKENS
    )
    images = _grid(hf.PaddleOCRVLImageProcessorPil, 14)
    processor = hf.PaddleOCRVLProcessor(images, tokenizer(image_token="<|image_pad|>"), chat_template=QWEN_TEMPLATE)
    return hf.PaddleOCRVLForConditionalGeneration(config), processor


def hunyuan_vl(width: int) -> tuple[Any, Any]:
    text = _text(width, (2, 2, 2, 2), rope_parameters={"rope_type": "dynamic", "alpha": 1000.0, "factor": 1.0})
    config = hf.HunYuanVLConfig(
        text_config=text,
        vision_config={**SIGLIP, "patch_size": 16, "out_hidden_size": width, "max_image_size": 384},
        image_token_id=IDS["<image>"], im_start_id=IDS["<img>"], im_end_id=IDS["</img>"], im_newline_id=IDS["\n"],
    )  # fmt: skip
    words = tokenizer(image_token="<image>", image_start_token="<img>", image_end_token="</img>")
    images = _grid(hf.HunYuanVLImageProcessorPil, 16, temporal_patch_size=1)
    processor = hf.HunYuanVLProcessor(images, words, chat_template=template("<img><image></img>"))
    return hf.HunYuanVLForConditionalGeneration(config), processor


COMPASS_TOKENS = ("<|IMAGE_PAD|>", "<|VIDEO_PAD|>", "<|VISION_START|>", "<|VISION_END|>")


def cohere_compass(width: int) -> tuple[Any, Any]:
    ids = ids_of(*COMPASS_TOKENS)
    text = _text(width, layer_types=["sliding_attention", "sliding_attention", "full_attention"], sliding_window=2048)
    rope = {**text["rope_parameters"], "mrope_interleaved": True}
    text["rope_parameters"] = {"sliding_attention": rope, "full_attention": None}
    config = hf.CohereCompassConfig(
        text_config=text, vision_config=_qwen3_tower(width, deepstack_visual_indexes=[0, 1, 2]),
        image_token_id=ids["<|IMAGE_PAD|>"], video_token_id=ids["<|VIDEO_PAD|>"],
        vision_start_token_id=ids["<|VISION_START|>"], vision_end_token_id=ids["<|VISION_END|>"],
    )  # fmt: skip
    mark = "<|VISION_START|><|{}_PAD|><|VISION_END|>"
    processor = without_video_processor(hf.CohereCompassProcessor)(
        _grid(hf.CohereCompassImageProcessorPil, 16), tokenizer(*COMPASS_TOKENS), None,
        chat_template=template(mark.format("IMAGE"), mark.format("VIDEO")),
    )  # fmt: skip
    return hf.CohereCompassForConditionalGeneration(config), processor


def cosmos3_edge(width: int) -> tuple[Any, Any]:
    config = hf.Cosmos3EdgeConfig(
        text_config=_text(width), vision_config={**SIGLIP, "patch_size": 16, "num_patches": 64},
        projector_hidden_size=96, **QWEN_TOKENS,
    )  # fmt: skip
    processor = without_video_processor(hf.Cosmos3EdgeProcessor)(
        _grid(hf.Cosmos3EdgeImageProcessorPil, 16), tokenizer(), None, chat_template=QWEN_TEMPLATE
    )
    processor.return_mm_token_type_ids = True  # the class leaves them out, and the model refuses images without them
    return hf.Cosmos3EdgeForConditionalGeneration(config), processor


def cosmos3_omni(width: int) -> tuple[Any, Any]:
    text = {"model_type": "qwen3_vl_text", **_text(width, rope_parameters={"mrope_interleaved": True})}
    vision = {"model_type": "qwen3_vl_vision", "deepstack_visual_indexes": [0, 1, 2]}
    config = _qwen3(hf.Cosmos3OmniConfig, width, text, **vision)
    return hf.Cosmos3OmniForConditionalGeneration(config), _qwen3_processor()


MINICPM_TOKENS = ("<image_start>", "<image_end>", "<slice>", "</slice>", "<image_id>", "</image_id>")


def minicpmv4_7(width: int) -> tuple[Any, Any]:
    ids = ids_of(*MINICPM_TOKENS)
    text = {
        "model_type": "qwen3_5_text",
        **_text(width, (2, 1, 1), 0.5, rope_parameters={"mrope_interleaved": True}, **LINEAR),
    }
    config = hf.MiniCPMV4_7Config(
        text_config=text, vision_config={**SIGLIP, "image_size": 96, "patch_size": 8}, insert_layer_id=1, image_size=96,
        image_token_id=IDS["<image>"], video_token_id=IDS["<video>"], image_start_id=ids["<image_start>"],
        image_end_id=ids["<image_end>"], slice_start_id=ids["<slice>"], slice_end_id=ids["</slice>"],
        newline_id=IDS["\n"],
    )  # fmt: skip
    words = tokenizer(
        *MINICPM_TOKENS, image_token="<image>", video_token="<video>", image_start_token="<image_start>",
        image_end_token="<image_end>", slice_start_token="<slice>", slice_end_token="</slice>",
        image_id_start_token="<image_id>", image_id_end_token="</image_id>",
    )  # fmt: skip
    images = hf.MiniCPMV4_6ImageProcessorPil(max_slice_nums=4, scale_resolution=96, patch_size=8)
    processor = without_video_processor(hf.MiniCPMV4_7Processor)(images, None, words, chat_template=template())
    return hf.MiniCPMV4_7ForConditionalGeneration(config), processor


FAMILIES = {
    f.__name__: f
    for f in (
        qwen3_vl_moe, qwen3_5, qwen3_5_moe, qwen4_exp, qwen2_5_omni_thinker, qwen3_omni_moe_thinker, glm4v, glm4v_moe,
        glm46v, glm_ocr, ernie4_5_vl_moe, paddleocr_vl, hunyuan_vl, cohere_compass, cosmos3_edge, cosmos3_omni,
        minicpmv4_7,
    )
}  # fmt: skip
