"""Gemma 4, the LFMs, EXAONE, and others whose processors lay a grid over an image of any size and shape."""

from __future__ import annotations

import importlib
from typing import Any

import torch
import transformers as hf

from examples.tiny_vlms.parts import IDS, QWEN_TOKENS, TEXT, ids_of, qwen_processor, template, tokenizer
from foveate.vlm.loader import without_video_processor

PATCH = 8  # of most towers here, in pixels
SIDES = {"min_pixels": (4 * PATCH) ** 2, "max_pixels": (16 * PATCH) ** 2}
IMAGE_AND_VIDEO = {"image_token_id": IDS["<|image_pad|>"], "video_token_id": IDS["<|video_pad|>"]}
SPAN = "<|vision_start|><|{}_pad|><|vision_end|>"
TOWER: dict[str, Any] = {
    "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": PATCH,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 48, "num_experts_per_tok": 2}  # of four


def _text(width: int, **more: Any) -> dict[str, Any]:
    return {**TEXT, "hidden_size": width, "head_dim": width // 4, "rope_parameters": None, **more}


def _grown(*more: str) -> int:
    """A vocabulary with room for further special tokens."""
    return len(ids_of(*more)) + 8


GEMMA = ("<|image|>", "<|video|>", "<|image>", "<image|>", "<|audio|>", "<|audio>", "<audio|>")


def _gemma4(width: int, **text: Any) -> tuple[Any, Any]:
    ids = ids_of(*GEMMA)
    text = _text(
        width, vocab_size=_grown(*GEMMA), vocab_size_per_layer_input=_grown(*GEMMA), hidden_size_per_layer_input=8,
        global_head_dim=width // 2, sliding_window=1024, **text,
    )  # fmt: skip
    text.setdefault("layer_types", ["sliding_attention", "sliding_attention", "full_attention"])
    vision = {
        **TOWER, "num_key_value_heads": 4, "head_dim": 12, "patch_size": 4, "pooling_kernel_size": 3,
        "position_embedding_size": 64,
    }  # fmt: skip
    config = hf.Gemma4Config(text_config=text, vision_config=vision, audio_config=None, **_gemma_tokens(ids))
    images = hf.Gemma4ImageProcessorPil(patch_size=4, pooling_kernel_size=3, max_soft_tokens=70)
    processor = without_video_processor(hf.Gemma4Processor)(
        hf.Gemma4AudioFeatureExtractor(),
        images,
        _gemma_words(),
        None,
        chat_template=template("<|image|>", "<|video|>"),
    )
    model = hf.Gemma4ForConditionalGeneration(config)
    torch.nn.init.normal_(
        model.model.vision_tower.patch_embedder.position_embedding_table, std=0.1
    )  # it starts as ones
    return model, processor


def _gemma_tokens(ids: dict[str, int]) -> dict[str, int]:
    return {
        "image_token_id": ids["<|image|>"], "video_token_id": ids["<|video|>"], "boi_token_id": ids["<|image>"],
        "eoi_token_id": ids["<image|>"], "audio_token_id": ids["<|audio|>"], "boa_token_id": ids["<|audio>"],
        "eoa_token_index": ids["<audio|>"],
    }  # fmt: skip


def _gemma_words() -> Any:
    return tokenizer(
        *GEMMA, image_token="<|image|>", boi_token="<|image>", eoi_token="<image|>", audio_token="<|audio|>",
        boa_token="<|audio>", eoa_token="<audio|>",
    )  # fmt: skip


def gemma4(width: int) -> tuple[Any, Any]:
    """As the small ones: causal, with a second embedding for each layer, and layers that share keys and values."""
    layers = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    return _gemma4(width, num_hidden_layers=4, num_kv_shared_layers=2, layer_types=layers)


def gemma4_moe(width: int) -> tuple[Any, Any]:
    """As 26B-A4B: experts, and tokens of an image that see each other."""
    experts = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 48}
    return _gemma4(width, use_bidirectional_attention="vision", **experts)


def gemma4_unified(width: int) -> tuple[Any, Any]:
    kinds = _torchvision("gemma4_unified")
    text = _text(
        width, vocab_size=_grown(*GEMMA), global_head_dim=width // 2, sliding_window=1024,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    )  # fmt: skip
    vision = {"patch_size": 4, "pooling_kernel_size": 3, "mm_embed_dim": width, "mm_posemb_size": 64}
    config = kinds.Gemma4UnifiedConfig(
        text_config=text, vision_config={**vision, "output_proj_dims": width}, audio_config=None,
        **_gemma_tokens(ids_of(*GEMMA)),
    )  # fmt: skip
    images = kinds.Gemma4UnifiedImageProcessor(patch_size=4, pooling_kernel_size=3, max_soft_tokens=70)
    processor = without_video_processor(kinds.Gemma4UnifiedProcessor)(
        hf.Gemma4AudioFeatureExtractor(),
        images,
        _gemma_words(),
        None,
        chat_template=template("<|image|>", "<|video|>"),
    )
    return kinds.Gemma4UnifiedForConditionalGeneration(config), processor


def _torchvision(module: str) -> Any:
    """A package of transformers whose image processor needs torchvision: importing a name of it fails without."""
    return importlib.import_module(f"transformers.models.{module}")


LFM2 = (
    "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>",
    *(f"<|img_row_{i}_col_{j}|>" for i in range(1, 4) for j in range(1, 4)),
)  # fmt: skip


def lfm2_vl(width: int) -> tuple[Any, Any]:
    """Tiles and a thumbnail of the image's shape; layers with a short convolution between those with attention."""
    kinds = _torchvision("lfm2_vl")
    text = _text(
        width, vocab_size=_grown(*LFM2), layer_types=["conv", "full_attention", "full_attention"],
        block_multiple_of=16, model_type="lfm2",
    )  # fmt: skip
    vision = {**TOWER, "model_type": "siglip2_vision_model", "num_patches": 16, "vision_use_head": False}
    config = kinds.Lfm2VlConfig(
        text_config=text, vision_config=vision, image_token_id=IDS["<image>"], projector_hidden_size=64,
    )  # fmt: skip
    images = kinds.Lfm2VlImageProcessor(
        tile_size=32, encoder_patch_size=PATCH, min_image_tokens=4, max_image_tokens=16, max_tiles=6
    )
    words = tokenizer(*LFM2, image_token="<image>")
    return kinds.Lfm2VlForConditionalGeneration(config), kinds.Lfm2VlProcessor(
        images, words, chat_template=template("<image>")
    )


def lfm3_vl(width: int) -> tuple[Any, Any]:
    """A tower and a language model with convolutions; sliding windows longer than the prompt."""
    kinds = _torchvision("lfm3_vl")
    text = _text(
        width, model_type="lfm3", sliding_window=1024, layer_types=["conv", "sliding_attention", "full_attention"],
        conv_L_cache=3,
    )  # fmt: skip
    vision = {
        **TOWER, "num_hidden_layers": 3, "num_key_value_heads": 2, "layer_types": ["conv", "full_attention", "conv"],
    }  # fmt: skip
    config = kinds.Lfm3VlConfig(text_config=text, vision_config=vision, projector_hidden_size=64, **QWEN_TOKENS)
    return kinds.Lfm3VlForConditionalGeneration(config), _qwens(kinds.Lfm3VlProcessor)


def _qwens(kind: type[Any]) -> Any:
    return qwen_processor(kind, PATCH, SIDES["min_pixels"], SIDES["max_pixels"])


def _qwen_tower(width: int) -> dict[str, Any]:
    return {
        "depth": 2, "hidden_size": 48, "intermediate_size": 64, "num_heads": 4, "patch_size": PATCH,
        "out_hidden_size": width, "window_size": 4 * PATCH, "fullatt_block_indexes": [1],
    }  # fmt: skip


def exaone4_5(width: int) -> tuple[Any, Any]:
    """Qwen2.5-VL's tower with fewer keys; a language model with positions in one dimension and sliding windows."""
    layers = ["sliding_attention", "sliding_attention", "full_attention"]
    text = _text(width, model_type="exaone4", sliding_window=1024, layer_types=layers)
    vision = {**_qwen_tower(width), "num_key_value_heads": 2}
    config = hf.Exaone4_5_Config(text_config=text, vision_config=vision, **IMAGE_AND_VIDEO)
    return hf.Exaone4_5_ForConditionalGeneration(config), _qwens(hf.Exaone4_5_Processor)


def video_llama_3(width: int) -> tuple[Any, Any]:
    """Patches that are not merged in an image."""
    config = hf.VideoLlama3Config(text_config=_text(width, model_type="qwen2"), vision_config=TOWER, **IMAGE_AND_VIDEO)
    images = hf.VideoLlama3ImageProcessorPil(patch_size=PATCH, min_pixels=(4 * PATCH) ** 2, max_pixels=(8 * PATCH) ** 2)
    processor = without_video_processor(hf.VideoLlama3Processor)(
        images, tokenizer(), None, chat_template=template(SPAN.format("image"), SPAN.format("video"))
    )
    return hf.VideoLlama3ForConditionalGeneration(config), processor


def hyperclovax_vision_v2(width: int) -> tuple[Any, Any]:
    """Qwen2.5-VL's tower; a language model with positions in one dimension."""
    kinds = _torchvision("hyperclovax_vision_v2")
    config = kinds.HyperCLOVAXVisionV2Config(
        text_config=_text(width, model_type="hyperclovax"),
        vision_config={**_qwen_tower(48), "model_type": "qwen2_5_vl_vision"}, **IMAGE_AND_VIDEO,
    )  # fmt: skip
    return kinds.HyperCLOVAXVisionV2ForConditionalGeneration(config), _qwens(kinds.HyperCLOVAXVisionV2Processor)


def _latent(width: int) -> dict[str, Any]:
    """Attention over compressed keys and values."""
    return {"kv_lora_rank": 16, "q_lora_rank": 24, "v_head_dim": width // 4, "qk_nope_head_dim": width // 4}


def kimi_k25(width: int) -> tuple[Any, Any]:
    """Images are padded at the bottom and on the right to whole tokens."""
    kinds = _torchvision("kimi_k25")
    text = {
        **_text(width, model_type="deepseek_v3", num_key_value_heads=4), **EXPERTS, **_latent(width),
        "n_routed_experts": 4, "qk_rope_head_dim": 8, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 0,
    }  # fmt: skip
    del text["head_dim"]
    vision = {**TOWER, "pos_emb_height": 8, "pos_emb_width": 8}
    config = kinds.Kimi_K25Config(text_config=text, vision_config=vision, projection_hidden_size=48, **QWEN_TOKENS)
    images = kinds.Kimi_K25ImageProcessor(patch_size=PATCH, max_patches=200, size={"max_height": 64, "max_width": 64})
    words = tokenizer(image_token="<|image_pad|>", video_token="<|video_pad|>")
    processor = without_video_processor(kinds.Kimi_K25Processor)(
        images, words, None, chat_template=template(SPAN.format("image"), SPAN.format("video"))
    )
    return kinds.Kimi_K25ForConditionalGeneration(config), processor


MOLMO = (
    "<|image|>", "<|video|>", "<im_patch>", "<im_col>", "<im_start>", "<low_res_im_start>", "<frame_start>", "<im_end>",
    "<frame_end>", "<im_low>",
)  # fmt: skip


def molmo2(width: int) -> tuple[Any, Any]:
    """The whole image small, then overlapping tiles as one grid; each line ends with a token of its own."""
    kinds = _torchvision("molmo2")
    ids = ids_of(*MOLMO)
    wide = {"initializer_range": 0.032}  # or the image would hardly be seen
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    text = _text(width, vocab_size=len(ids), additional_vocab_size=8, rope_parameters=rope)
    vision = {**TOWER, "num_hidden_layers": 3, "num_key_value_heads": 4, "head_dim": 12, "image_size": [48, 48], **wide}
    adapter = {
        "vision_feature_layer": [2, 1], "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 4,
        "head_dim": 12, "intermediate_size": 64, "text_hidden_size": width, **wide,
    }  # fmt: skip
    config = kinds.Molmo2Config(
        text_config=text, vision_config=vision, adapter_config=adapter, image_patch_id=ids["<im_patch>"],
        image_start_token_id=ids["<im_start>"], low_res_image_start_token_id=ids["<low_res_im_start>"],
        image_end_token_id=ids["<im_end>"], frame_start_token_id=ids["<frame_start>"],
        frame_end_token_id=ids["<frame_end>"], **wide,
    )  # fmt: skip
    images = kinds.Molmo2ImageProcessor(
        size={"height": 48, "width": 48}, patch_size=PATCH, pooling_size=[2, 2], max_crops=6, overlap_margins=[1, 1]
    )
    processor = without_video_processor(kinds.Molmo2Processor)(
        images, None, tokenizer(*MOLMO), chat_template=template(*MOLMO[:2])
    )
    return kinds.Molmo2ForConditionalGeneration(config), processor


MUSE = ("<|patch|>", "<|image_start|>", "<|image_end|>", "<|video|>", "<|vid_frame_separator|>", "<|vid_start|>",
        "<|vid_end|>", "<|audio|>", "<|soft_audio_start|>", "<|soft_audio_end|>")  # fmt: skip


def _muse(width: int, **text: Any) -> dict[str, Any]:
    ids = ids_of(*MUSE)
    layers = ["full_attention", "sliding_attention", "full_attention"]
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    return {
        "text_config": {
            **_text(width, vocab_size=_grown(*MUSE), sliding_window=1024, layer_types=layers), **text,
            "rope_parameters": rope, "layer_rope_theta": [0, 10000.0, 0],
        },
        "vision_config": {
            **TOWER, "num_hidden_layers": 3, "pos_emb_height": 8, "pos_emb_width": 8, "max_position_embeddings": 64,
            "layer_types": ["window_attention", "full_attention", "full_attention"],
        },
        "image_token_id": ids["<|patch|>"], "video_token_id": ids["<|video|>"], "out_hidden_size": 4 * 48,
        "projector_hidden_size": 64,
    }  # fmt: skip


def _muse_images() -> Any:
    return _torchvision("muse_glimmer").MuseGlimmerImageProcessor(patch_size=PATCH, max_image_tokens=48)


def muse_glimmer(width: int) -> tuple[Any, Any]:
    """Layers without positions between sliding windows."""
    kinds = _torchvision("muse_glimmer")
    processor = without_video_processor(kinds.MuseGlimmerProcessor)(
        _muse_images(), None, tokenizer(*MUSE), chat_template=template("<|patch|>", "<|video|>")
    )
    return kinds.MuseGlimmerForConditionalGeneration(kinds.MuseGlimmerConfig(**_muse(width))), processor


def muse_spark(width: int) -> tuple[Any, Any]:
    """As Glimmer, with experts."""
    kinds = _torchvision("muse_spark")
    experts = {**EXPERTS, "num_local_experts": 4, "moe_hidden_size": 32}
    audio = {
        "patch_sizes": [4, 2], "hidden_sizes": [8, 16], "depths": [1, 1], "num_hidden_layers": 2,
        "out_hidden_size": width,
    }  # fmt: skip
    config = kinds.MuseSparkConfig(
        **_muse(width, **experts), audio_config=audio, audio_token_id=ids_of(*MUSE)["<|audio|>"]
    )
    processor = without_video_processor(kinds.MuseSparkProcessor)(
        _muse_images(), None, tokenizer(*MUSE), kinds.MuseSparkFeatureExtractor(),
        chat_template=template("<|patch|>", "<|video|>"),
    )  # fmt: skip
    return kinds.MuseSparkForConditionalGeneration(config), processor


def nemotron_h_omni(width: int) -> tuple[Any, Any]:
    """A hybrid of Mamba 2, attention and experts; RADIO's tower."""
    kinds = _torchvision("nemotron_h_omni")
    more = ("<so_embedding>", "<so_start>", "<so_end>")
    text = {
        **_text(width, model_type="nemotron_h", vocab_size=_grown(*more)), **EXPERTS, "n_routed_experts": 4,
        "layers_block_type": ["linear_attention", "full_attention", "moe"], "ssm_state_size": 8, "mamba_num_heads": 4,
        "mamba_head_dim": width // 4, "expand": 1, "n_groups": 2, "chunk_size": 16,
        "moe_shared_expert_intermediate_size": 48,
    }  # fmt: skip
    del text["num_hidden_layers"]
    vision = {
        "model_type": "radio", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "mlp_ratio": 2.0,
        "patch_size": PATCH, "image_size": 64, "max_img_size": 128, "video_temporal_patch_size": 2,
    }  # fmt: skip
    config = kinds.NemotronH_Omni_Reasoning_V3_Config(
        text_config=text, vision_config=vision, audio_config=None, image_token_id=IDS["<image>"],
        video_token_id=IDS["<video>"], audio_token_id=ids_of(*more)["<so_embedding>"], projector_hidden_size=64,
        vision_hidden_size=48,
    )  # fmt: skip
    images = kinds.NemotronH_Omni_Reasoning_V3ImageProcessor(
        patch_size=PATCH, min_num_patches=16, max_num_patches=192, max_model_len=4096
    )
    processor = without_video_processor(kinds.NemotronH_Omni_Reasoning_V3Processor)(
        images,
        None,
        tokenizer(*more),
        hf.ParakeetFeatureExtractor(),
        chat_template=template("<image>", "<video>"),
    )
    return kinds.NemotronH_Omni_Reasoning_V3(config), processor


GLM = (
    "<|image|>", "<|video|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>",
)  # fmt: skip


def glm5_next(width: int) -> tuple[Any, Any]:
    """Linear attention, attention to keys that an index chooses (here to all), experts, several residual streams."""
    kinds = _torchvision("glm5_next")
    ids = ids_of(*GLM)
    text = {
        **_text(width, vocab_size=_grown(*GLM), num_key_value_heads=4), **EXPERTS, **_latent(width),
        "n_routed_experts": 4, "index_topk": 1024, "index_head_dim": 16, "index_n_heads": 2, "index_kpool": 4,
        "layer_types": ["linear_attention", "indexed_attention", "linear_attention"], "linear_head_dim": 16,
        "linear_num_heads": 4, "hc_mult": 2, "mlp_layer_types": ["dense", "sparse", "sparse"],
        "indexer_types": ["full", "full", "full"],
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 48, "intermediate_size": 64, "num_heads": 4, "patch_size": PATCH,
        "out_hidden_size": width, "projection_intermediate_size": 64, "image_size": 64,
    }  # fmt: skip
    config = kinds.Glm5NextConfig(
        text_config=text, vision_config=vision, image_token_id=ids["<|image|>"], video_token_id=ids["<|video|>"],
        image_start_token_id=ids["<|begin_of_image|>"], image_end_token_id=ids["<|end_of_image|>"],
        video_start_token_id=ids["<|begin_of_video|>"], video_end_token_id=ids["<|end_of_video|>"],
    )  # fmt: skip
    images = kinds.Glm5NextImageProcessorPil(patch_size=PATCH, min_image_tokens=4, max_image_tokens=64)
    image = "<|begin_of_image|><|image|><|end_of_image|>"
    processor = without_video_processor(kinds.Glm5NextProcessor)(
        images, tokenizer(*GLM), None, chat_template=template(image, "<|begin_of_video|><|video|><|end_of_video|>")
    )
    return kinds.Glm5NextForConditionalGeneration(config), processor


INKLING = ("<|unused_200054|>", "<|unused_200053|>", "<|content_image|>", "<|content_audio_input|>")


def _inkling_text(width: int, **more: Any) -> dict[str, Any]:
    return {
        **_text(width, vocab_size=_grown(*INKLING)), **EXPERTS, "unpadded_vocab_size": _grown(*INKLING),
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": width // 4, "n_routed_experts": 4,
        "sliding_window_size": 1024, "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding"], "d_rel": 8,
        "rel_extent": 1024, **more,
    }  # fmt: skip


def inkling2(width: int) -> tuple[Any, Any]:
    """Whole images in cells of 20 pixels, padded at the bottom and on the right; short convolutions in every layer."""
    kinds = _torchvision("inkling2")
    text = _inkling_text(width, n_layers_per_attn_res_block=2)
    vision = {**TOWER, "patch_size": 10, "posemb_grid_size": 8, "projection_hidden_dim": 64, "text_hidden_size": width}
    config = kinds.Inkling2Config(
        text_config=text, vision_config=vision, image_token_id=ids_of(*INKLING)["<|unused_200054|>"]
    )
    images = kinds.Inkling2ImageProcessor(size={"height": 20, "width": 20})
    return kinds.Inkling2ForConditionalGeneration(config), kinds.Inkling2Processor(
        images, tokenizer(*INKLING), chat_template=template("<|content_image|><|unused_200054|>")
    )


def inkling(width: int) -> tuple[Any, Any]:
    """Cells of an image, each encoded alone, and one column more than the image is wide."""
    kinds = _torchvision("inkling")
    ids = ids_of(*INKLING)
    text = _inkling_text(width, n_shared_experts=1, logits_mup_width_multiplier=2.0)
    vision = {
        "patch_size": 40, "hidden_size": 16, "num_attention_heads": 4,
        "num_hidden_layers": 6,  # with fewer than it has scales, the library asks for scipy
    }  # fmt: skip
    config = kinds.InklingConfig(
        text_config=text, vision_config=vision, audio_config={"n_mel_bins": 8, "mel_vocab_size": 8},
        image_token_id=ids["<|unused_200054|>"], audio_token_id=ids["<|unused_200053|>"],
        image_bos_token_id=ids["<|content_image|>"], audio_bos_token_id=ids["<|content_audio_input|>"],
    )  # fmt: skip
    images = kinds.InklingImageProcessor(size={"height": 40, "width": 40})
    processor = kinds.InklingProcessor(
        kinds.InklingFeatureExtractor(feature_size=8), images, tokenizer(*INKLING),
        chat_template=template("<|content_image|><|unused_200054|>"), num_dmel_bins=8,
    )  # fmt: skip
    return kinds.InklingForConditionalGeneration(config), processor


DOTS = ("<|imgpad|>", "<|audio_comp_pad|>")


def dots3_note(width: int) -> tuple[Any, Any]:
    """A tower with experts; a language model that compresses keys and values, and looks at those an index chooses."""
    kinds = _torchvision("dots3_note")
    ids = ids_of(*DOTS)
    sliding = {
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 4, "swa_q_lora_rank": 24, "swa_kv_lora_rank": 16,
        "swa_head_dim": width // 4 + 8, "swa_qk_nope_head_dim": width // 4, "swa_v_head_dim": width // 4,
    }  # fmt: skip
    text = {
        **_text(width, vocab_size=_grown(*DOTS), num_key_value_heads=4), **EXPERTS, **_latent(width), **sliding,
        "head_dim": width // 4 + 8, "qk_rope_head_dim": 8, "n_routed_experts": 4, "index_topk": 1024,
        "index_head_dim": 16, "index_n_heads": 2, "sliding_window": 1024, "moe_shared_expert_intermediate_size": 48,
        "layer_types": ["indexed_attention", "sliding_attention", "indexed_attention"],
    }  # fmt: skip
    vision = {
        **TOWER, "moe_intermediate_size": 32, "adapter_in_dim": 48, "adapter_out_dim": width, "num_local_experts": 4,
        "pyramid_num_routed": [-1, 4],
    }  # fmt: skip
    audio = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "downsample_hidden_size": 8, "feature_size": 16, "adapter_input_size": 16, "adapter_out_dim": width,
    }  # fmt: skip
    config = kinds.Dots3NoteConfig(
        text_config=text, vision_config=vision, audio_config=audio, image_token_id=ids["<|imgpad|>"],
        video_token_id=IDS["<|video_pad|>"], audio_token_id=ids["<|audio_comp_pad|>"],
    )  # fmt: skip
    images = hf.Qwen2VLImageProcessorPil(patch_size=PATCH, merge_size=2, temporal_patch_size=1, **SIDES)
    processor = without_video_processor(kinds.Dots3NoteProcessor)(
        images, tokenizer(*DOTS), None, kinds.Dots3NoteFeatureExtractor(feature_size=16),
        chat_template=template("<img><|imgpad|></img>", "<img><|video_pad|></img>"),
    )  # fmt: skip
    return kinds.Dots3NoteForConditionalGeneration(config), processor


FAMILIES = {
    f.__name__: f
    for f in (gemma4, gemma4_moe, lfm3_vl, exaone4_5, video_llama_3, hyperclovax_vision_v2, glm5_next, dots3_note)
}
NEED_TORCHVISION = {
    f.__name__: f
    for f in (
        gemma4_unified, lfm2_vl, kimi_k25, molmo2, muse_glimmer, muse_spark, nemotron_h_omni, inkling2,
        inkling,
    )
}  # fmt: skip
