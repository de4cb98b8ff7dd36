"""Images in tiles and rows: Pixtral towers, LLaVA's later models, Granite, Cohere, Llama 4, Ovis, MiniCPM-V, OCR."""

from __future__ import annotations

from typing import Any

import transformers as hf

from examples.tiny_vlms.parts import CLIP_TOWER, IDS, SIGLIP_TOWER, TEXT, VOCABULARY, ids_of, template, tokenizer
from foveate.vlm.loader import without_video_processor

TILE = {"height": 48, "width": 48}  # 6 x 6 patches of 8, of which 2 x 2 become one token
SMALL_TOWER = {**SIGLIP_TOWER, "image_size": 48}
EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1}
ROWS = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")
PIXTRAL_TOWER = {
    "model_type": "pixtral", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "image_size": 96, "patch_size": 8,
}  # fmt: skip


def _text(kind: str, width: int, **more: Any) -> dict[str, Any]:
    return {"model_type": kind, **TEXT, "hidden_size": width, "head_dim": width // 4, **more}


# --- rows of patches, with a break behind each ------------------------------------------------------------------------


def _pixtral_processor(merge: int) -> Any:
    images = hf.PixtralImageProcessor(size={"longest_edge": 96}, patch_size={"height": 8 * merge, "width": 8 * merge})
    return hf.PixtralProcessor(
        images, tokenizer(*ROWS), patch_size=8, spatial_merge_size=merge, chat_template=template("[IMG]")
    )


def mistral3(width: int) -> tuple[Any, Any]:
    config = hf.Mistral3Config(
        vision_config=PIXTRAL_TOWER, text_config=_text("mistral", width, sliding_window=None),
        image_token_index=ids_of(*ROWS)["[IMG]"], spatial_merge_size=2, tie_word_embeddings=False,
    )  # fmt: skip
    return hf.Mistral3ForConditionalGeneration(config), _pixtral_processor(2)


def mistral_large4(width: int) -> tuple[Any, Any]:
    text = {
        **TEXT, **EXPERTS, "hidden_size": width, "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8, "v_head_dim": 16, "index_head_dim": 16, "index_n_heads": 2, "index_topk": 2048,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 512,
            "attention_factor": 1.0,
        },
    }  # fmt: skip
    config = hf.MistralLarge4Config(
        vision_config=PIXTRAL_TOWER, text_config=text, image_token_index=ids_of(*ROWS)["[IMG]"], spatial_merge_size=2
    )
    return hf.MistralLarge4ForConditionalGeneration(config), _pixtral_processor(2)


def llava_pixtral(width: int) -> tuple[Any, Any]:
    image = ids_of(*ROWS)["[IMG]"]
    config = hf.LlavaConfig(
        vision_config={**PIXTRAL_TOWER, "patch_size": 16}, text_config=_text("mistral", width, sliding_window=None),
        image_token_index=image, image_token_id=image, vision_feature_layer=-1, vision_feature_select_strategy="full",
    )  # fmt: skip
    images = hf.PixtralImageProcessor(size={"longest_edge": 96}, patch_size={"height": 16, "width": 16})
    processor = hf.PixtralProcessor(images, tokenizer(*ROWS), patch_size=16, chat_template=template("[IMG]"))
    return hf.LlavaForConditionalGeneration(config), processor


def lighton_ocr(width: int) -> tuple[Any, Any]:
    image = ids_of("<break>", "<end>")
    config = hf.LightOnOcrConfig(
        vision_config=PIXTRAL_TOWER, text_config=_text("qwen3", width), image_token_id=image["<|image_pad|>"],
        spatial_merge_size=2, tie_word_embeddings=False,
    )  # fmt: skip
    images = hf.PixtralImageProcessorPil(size={"longest_edge": 96}, patch_size={"height": 16, "width": 16})
    words = tokenizer(
        "<break>", "<end>", image_token="<|image_pad|>", image_break_token="<break>", image_end_token="<end>"
    )
    processor = hf.LightOnOcrProcessor(
        images, words, patch_size=8, spatial_merge_size=2, chat_template=template("<|image_pad|>")
    )
    return hf.LightOnOcrForConditionalGeneration(config), processor


# --- an overview, and joined tiles with an end to each line -----------------------------------------------------------


def _onevision(width: int, pinpoints: list[list[int]], ratio: str, videos: Any = None) -> tuple[Any, Any]:
    config = hf.LlavaOnevisionConfig(
        vision_config={"model_type": "siglip_vision_model", **SIGLIP_TOWER, "image_size": 32},
        text_config=_text("qwen2", width), image_token_index=IDS["<image>"], video_token_index=IDS["<video>"],
        image_grid_pinpoints=pinpoints, vision_aspect_ratio=ratio,
    )  # fmt: skip
    images = hf.LlavaOnevisionImageProcessorPil(size={"height": 32, "width": 32}, image_grid_pinpoints=pinpoints)
    kind = without_video_processor(hf.LlavaOnevisionProcessor) if videos is None else hf.LlavaOnevisionProcessor
    processor = kind(
        images, tokenizer(), videos, num_image_tokens=16, vision_feature_select_strategy="full",
        chat_template=template(), vision_aspect_ratio=ratio,
    )  # fmt: skip
    return hf.LlavaOnevisionForConditionalGeneration(config), processor


def llava_onevision(width: int) -> tuple[Any, Any]:
    """Its joined tiles have more tokens than it allows: they are interpolated to fewer."""
    return _onevision(width, [[32, 64], [64, 32], [64, 64], [96, 96]], "anyres_max_2")


def llava_onevision_whole(width: int) -> tuple[Any, Any]:
    return _onevision(width, [[32, 64], [64, 32], [64, 64]], "anyres_max_9")


def llava_onevision_clips(width: int) -> tuple[Any, Any]:
    """With its video processor."""
    videos = hf.LlavaOnevisionVideoProcessor(size={"height": 32, "width": 32})
    return _onevision(width, [[32, 64], [64, 32], [64, 64]], "anyres_max_9", videos)


def llava_next_video_clips(width: int) -> tuple[Any, Any]:
    """With its video processor."""
    videos = hf.LlavaNextVideoVideoProcessor(size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56})
    return _next_video(width, videos)


def llava_next_video(width: int) -> tuple[Any, Any]:
    return _next_video(width)


def _next_video(width: int, videos: Any = None) -> tuple[Any, Any]:
    pinpoints = [[56, 112], [112, 56], [112, 112]]
    config = hf.LlavaNextVideoConfig(
        vision_config={"model_type": "clip_vision_model", **CLIP_TOWER}, text_config=_text("llama", width),
        image_token_index=IDS["<image>"], video_token_index=IDS["<video>"], image_grid_pinpoints=pinpoints,
        image_seq_length=16, video_seq_length=4,
    )  # fmt: skip
    images = hf.LlavaNextImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, image_grid_pinpoints=pinpoints
    )
    kind = without_video_processor(hf.LlavaNextVideoProcessor) if videos is None else hf.LlavaNextVideoProcessor
    processor = kind(
        videos, images, tokenizer(), patch_size=14, vision_feature_select_strategy="default", chat_template=template(),
        num_additional_image_tokens=1,
    )  # fmt: skip
    return hf.LlavaNextVideoForConditionalGeneration(config), processor


def granite4_vision(width: int) -> tuple[Any, Any]:
    """Several layers of the language model get features, the first of them in the place of embeddings."""
    pinpoints = [[64, 128], [128, 64], [128, 128]]
    config = hf.Granite4VisionConfig(
        vision_config={"model_type": "siglip_vision_model", **SIGLIP_TOWER, "hidden_size": 64, "num_hidden_layers": 3},
        text_config={**TEXT, "hidden_size": width, "num_hidden_layers": 7, "attention_multiplier": 0.25},
        qformer_config={
            "model_type": "blip_2_qformer", "num_hidden_layers": 1, "intermediate_size": 64,
            "cross_attention_frequency": 1, "use_qformer_text_input": False,
        },
        image_token_index=IDS["<image>"], vision_feature_select_strategy="full", image_grid_pinpoints=pinpoints,
        image_seq_length=16, downsample_rate="2/4", deepstack_layer_map=[[1, 0], [2, 1]], spatial_vision_layer=-1,
        spatial_target_layers=[2, 3, 4, 5], projector_dropout=0.0,
    )  # fmt: skip
    images = hf.LlavaNextImageProcessorPil(
        size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64}, image_grid_pinpoints=pinpoints
    )
    processor = hf.Granite4VisionProcessor(
        images, tokenizer(), patch_size=8, vision_feature_select_strategy="full", chat_template=template(),
        downsample_rate="2/4",
    )  # fmt: skip
    return hf.Granite4VisionForConditionalGeneration(config), processor


# --- tiles, each with its own grid ------------------------------------------------------------------------------------


def _docling(width: int, *, fine: bool) -> tuple[Any, Any]:
    vision = {**SMALL_TOWER, "scale_factor": 2, "deepstack_visual_indexes": [0, 1], "out_hidden_size": width}
    if fine:
        vision |= {"patch_size": 4, "scale_factor": 4}
    config = hf.GraniteDoclingConfig(
        vision_config=vision,
        text_config={**TEXT, "hidden_size": width, "embedding_multiplier": 2.0, "attention_multiplier": 0.25},
        image_token_id=IDS["<image>"], tie_word_embeddings=False, pad_token_id=IDS["<pad>"],
    )  # fmt: skip
    images = hf.GraniteDoclingImageProcessorPil(size=TILE, max_patches=1 if fine else 6, fine_route=fine)
    processor = hf.GraniteDoclingProcessor(images, tokenizer(), image_seq_len=9, chat_template=template("<image>"))
    return hf.GraniteDoclingForConditionalGeneration(config), processor


def granite_docling(width: int) -> tuple[Any, Any]:
    return _docling(width, fine=False)


def granite_docling_fine(width: int) -> tuple[Any, Any]:
    """The other connector, of four times the tokens."""
    return _docling(width, fine=True)


def aya_vision(width: int) -> tuple[Any, Any]:
    more = (
        "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>", "TILE_GLOBAL",
        *(f"TILE_{n}" for n in range(1, 9)),
    )  # fmt: skip
    config = hf.AyaVisionConfig(
        vision_config={"model_type": "siglip_vision_model", **SMALL_TOWER},
        text_config=_text("cohere2", width, sliding_window=2048, sliding_window_pattern=3),
        image_token_index=ids_of(*more)["<|IMG_PATCH|>"], tie_word_embeddings=False,
    )  # fmt: skip
    images = hf.GotOcr2ImageProcessorPil(size=TILE, crop_to_patches=True, min_patches=1, max_patches=6)
    processor = hf.AyaVisionProcessor(
        images, tokenizer(*more), patch_size=8, img_size=48, downsample_factor=2, chat_template=template("<image>")
    )
    return hf.AyaVisionForConditionalGeneration(config), processor


def cohere2_vision(width: int) -> tuple[Any, Any]:
    more = ("<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>")
    text = {
        key: value
        for key, value in _text("cohere2", width, sliding_window=2048, sliding_window_pattern=3).items()
        if key != "model_type"
    }
    config = hf.Cohere2VisionConfig(
        vision_config={"model_type": "siglip_vision_model", **SMALL_TOWER}, text_config=hf.Cohere2Config(**text),
        image_token_id=ids_of(*more)["<|IMG_PATCH|>"], alignment_intermediate_size=96, tie_word_embeddings=False,
    )  # fmt: skip
    words = tokenizer(
        *more, boi_token="<|START_OF_IMG|>", eoi_token="<|END_OF_IMG|>", image_token="<|IMG_PATCH|>",
        img_line_break_token="<|IMG_LINE_BREAK|>",
    )  # fmt: skip
    images = hf.Cohere2VisionImageProcessor(size=TILE, max_patches=6, patch_size=3)  # tokens along a tile, that is
    return (
        hf.Cohere2VisionForConditionalGeneration(config),
        hf.Cohere2VisionProcessor(images, words, chat_template=template("<|IMG_PATCH|>")),
    )


def llama4(width: int) -> tuple[Any, Any]:
    more = (
        "<|image|>", "<|image_start|>", "<|image_end|>", "<|patch|>", "<|tile_x_separator|>", "<|tile_y_separator|>",
    )  # fmt: skip
    config = hf.Llama4Config(
        vision_config={
            "hidden_size": 48, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 48, "patch_size": 8, "vision_output_dim": 48, "projector_input_dim": 48,
            "projector_output_dim": 48,
        },
        text_config={
            **TEXT, "hidden_size": width, "head_dim": width // 4, "intermediate_size_mlp": 96, "num_local_experts": 4,
            "interleave_moe_layer_step": 2, "no_rope_layer_interval": 3,
        },
        image_token_index=ids_of(*more)["<|patch|>"],
    )  # fmt: skip
    images = hf.Llama4ImageProcessor(size=TILE, max_patches=6, do_normalize=False)  # with it, pixels would be bfloat16
    processor = hf.Llama4Processor(images, tokenizer(*more), patch_size=8, chat_template=template("<|image|>"))
    return hf.Llama4ForConditionalGeneration(config), processor


def perception_lm(width: int) -> tuple[Any, Any]:
    """Its tower comes from a library of towers, timm, which is not needed for one of transformers' own."""
    tower = hf.SiglipVisionConfig(**SMALL_TOWER, model_args={"embed_dim": SMALL_TOWER["hidden_size"]})
    config = hf.PerceptionLMConfig(
        vision_config=tower, text_config=_text("llama", width), vision_use_cls_token=False, projector_pooling_ratio=2,
        image_token_id=IDS["<image>"], video_token_id=IDS["<video>"],
    )  # fmt: skip
    images = hf.PerceptionLMImageProcessor(tile_size=48, max_num_tiles=6, size=TILE)
    processor = hf.PerceptionLMProcessor(
        hf.PerceptionLMVideoProcessor(size=TILE), images, tokenizer(image_token="<image>", video_token="<video>"),
        patch_size=8, pooling_ratio=2, chat_template=template(),
    )  # fmt: skip
    return hf.PerceptionLMForConditionalGeneration(config), processor


def ovis2(width: int) -> tuple[Any, Any]:
    marks = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
    ids = ids_of("<IMG_ATOM>", *marks)
    vision = {
        "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 48,
        "patch_size": 8, "hidden_stride": 2, "vocab_size": 64,
    }  # fmt: skip
    config = hf.Ovis2Config(
        vision_config=vision, text_config=_text("qwen2", width), image_token_id=ids["<IMG_ATOM>"],
        visual_indicator_token_ids=[ids[mark] for mark in marks], vocab_size=VOCABULARY, hidden_size=width,
        tie_word_embeddings=False,
    )  # fmt: skip
    images = hf.Ovis2ImageProcessorPil(size=TILE, crop_to_patches=True, max_patches=6)
    processor = hf.Ovis2Processor(images, tokenizer("<IMG_ATOM>", *marks), chat_template=template(), image_seq_length=9)
    return hf.Ovis2ForConditionalGeneration(config), processor


def qianfan_ocr(width: int) -> tuple[Any, Any]:
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "image_size": [48, 48], "patch_size": [8, 8], "drop_path_rate": 0.0,
    }  # fmt: skip
    config = hf.QianfanOCRConfig(
        vision_config=vision, text_config=_text("qwen3", width), image_token_id=IDS["<IMG_CONTEXT>"], image_seq_length=9
    )
    images = hf.GotOcr2ImageProcessorPil(size=TILE, crop_to_patches=True, min_patches=1, max_patches=6)
    words = tokenizer(start_image_token="<img>", end_image_token="</img>", context_image_token="<IMG_CONTEXT>")
    processor = hf.QianfanOCRProcessor(images, words, image_seq_length=9, chat_template=template("<image>\n"))
    return hf.QianfanOCRForConditionalGeneration(config), processor


def step3p7(width: int) -> tuple[Any, Any]:
    more = ("<im_patch>", "<patch_start>", "<patch_end>", "<patch_newline>", "<im_start>", "<im_end>")
    vision = {
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 64, "patch_size": 4,
        "mlp_ratio": 2.0, "max_position_embeddings": 256,
    }  # fmt: skip
    text = {
        **TEXT, "hidden_size": width, "head_dim": width // 4, "num_experts_per_tok": 2, "n_routed_experts": 4,
        "moe_intermediate_size": 32, "share_expert_dim": 32, "mlp_layer_types": ["dense", "sparse", "sparse"],
        "layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 2048,
    }  # fmt: skip
    config = hf.Step3p7Config(vision_config=vision, text_config=text, image_token_id=ids_of(*more)["<im_patch>"])
    images = hf.Step3p7ImageProcessor(
        size={"height": 64, "width": 64}, patch_size=48, vision_patch_size=4, max_image_size=100
    )
    processor = hf.Step3p7Processor(images, tokenizer(*more), chat_template=template("<im_patch>"))
    return hf.Step3p7ForConditionalGeneration(config), processor


# --- tiles that are cut from the image again, patches in one long row -------------------------------------------------


def _minicpm_parts(width: int) -> tuple[dict[str, Any], dict[str, Any], Any]:
    text = _text(
        "qwen3_5_text", width, num_hidden_layers=4, linear_num_key_heads=2, linear_num_value_heads=4,
        linear_key_head_dim=8, linear_value_head_dim=8, linear_conv_kernel_dim=4,
        layer_types=["linear_attention", "full_attention", "linear_attention", "full_attention"],
    )  # fmt: skip
    more = ("<slice>", "</slice>", "<image_id>", "</image_id>", "<image_start>", "<image_end>")
    words = tokenizer(
        *more, image_token="<image>", video_token="<video>", image_start_token="<image_start>",
        image_end_token="<image_end>", slice_start_token="<slice>", slice_end_token="</slice>",
        image_id_start_token="<image_id>", image_id_end_token="</image_id>",
    )  # fmt: skip
    vision = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 48,
    }  # fmt: skip
    return vision, text, words


def minicpmv4_6(width: int) -> tuple[Any, Any]:
    vision, text, words = _minicpm_parts(width)
    config = hf.MiniCPMV4_6Config(
        vision_config={**vision, "patch_size": 4}, text_config=text, insert_layer_id=1, image_size=48,
        image_token_id=IDS["<image>"], video_token_id=IDS["<video>"],
    )  # fmt: skip
    images = hf.MiniCPMV4_6ImageProcessorPil(scale_resolution=48, patch_size=4, max_slice_nums=4)
    processor = without_video_processor(hf.MiniCPMV4_6Processor)(images, None, words, chat_template=template("<image>"))
    return hf.MiniCPMV4_6ForConditionalGeneration(config), processor


def minicpm_ocr(width: int) -> tuple[Any, Any]:
    vision, text, words = _minicpm_parts(width)
    config = hf.MiniCPMOcrConfig(
        vision_config={**vision, "patch_size": 8}, text_config=text, insert_layer_id=1, image_token_id=IDS["<image>"],
        video_token_id=IDS["<video>"], tie_word_embeddings=False,
    )  # fmt: skip
    images = hf.MiniCPMOcrImageProcessor(scale_resolution=48, patch_size=8, max_slice_nums=4)
    processor = without_video_processor(hf.MiniCPMOcrProcessor)(images, None, words, chat_template=template("<image>"))
    return hf.MiniCPMOcrForConditionalGeneration(config), processor


# --- encoders behind an encoder ---------------------------------------------------------------------------------------


def _sam_tower(side: int, patch: int, channels: list[int]) -> dict[str, Any]:
    return {
        "hidden_size": 32, "output_channels": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": side,
        "patch_size": patch, "window_size": 4, "global_attn_indexes": [1], "mlp_dim": 48,
        "downsample_channels": channels, "initializer_range": 0.02,
    }  # fmt: skip


def deepseek_ocr2(width: int) -> tuple[Any, Any]:
    """144 learned queries read each view: its tokens lie nowhere in the image."""
    encoder = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }  # fmt: skip
    text = {
        **TEXT, **EXPERTS, "hidden_size": width, "num_key_value_heads": 4,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    }  # fmt: skip
    config = hf.DeepseekOcr2Config(
        vision_config={"sam_config": _sam_tower(96, 2, [24, 32]), "encoder_config": encoder}, text_config=text,
        image_token_id=IDS["<image>"],
    )  # fmt: skip
    images = hf.DeepseekOcr2ImageProcessorPil(size={"height": 96, "width": 96}, tile_size=256)
    processor = hf.DeepseekOcr2Processor(images, tokenizer(), chat_template=template(), patch_size=2)
    return hf.DeepseekOcr2ForConditionalGeneration(config), processor


def unlimited_ocr(width: int) -> tuple[Any, Any]:
    encoder = {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16,
        "patch_size": 4,
    }  # fmt: skip
    text = {
        **TEXT, **EXPERTS, "hidden_size": width, "num_key_value_heads": 4, "sliding_window": 64,
        "mlp_layer_types": ["dense", "sparse", "sparse"],
    }  # fmt: skip
    config = hf.UnlimitedOcrConfig(
        vision_config={"sam_config": _sam_tower(64, 4, [24, 32]), "encoder_config": encoder}, text_config=text,
        image_token_id=IDS["<image>"],
    )  # fmt: skip
    images = hf.UnlimitedOcrImageProcessor(size={"height": 64, "width": 64}, tile_size=48, max_patches=6)
    processor = hf.UnlimitedOcrProcessor(images, tokenizer(), chat_template=template(), patch_size=4)
    return hf.UnlimitedOcrForConditionalGeneration(config), processor


FAMILIES = {
    f.__name__: f
    for f in (
        lighton_ocr, llava_onevision, llava_onevision_whole, llava_next_video, granite4_vision, granite_docling,
        granite_docling_fine, aya_vision, ovis2, qianfan_ocr, minicpmv4_6,
    )
}  # fmt: skip
NEED_TORCHVISION = {
    f.__name__: f
    for f in (
        mistral3, mistral_large4, llava_pixtral, llava_onevision_clips, llava_next_video_clips, cohere2_vision, llama4,
        perception_lm, step3p7, minicpm_ocr, unlimited_ocr,
    )
}  # fmt: skip
REFUSED = {"deepseek_ocr2": deepseek_ocr2}
