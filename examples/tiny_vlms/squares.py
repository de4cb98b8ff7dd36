"""Models with one square of tokens an image: the Gemmas 3, GOT-OCR 2, ViP-LLaVA, DeepSeek-VL, Janus; tokens of a VQ."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import transformers as hf
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from examples.tiny_vlms.parts import (
    CLIP_TOWER,
    IDS,
    SIGLIP_TOWER,
    TEXT,
    VOCABULARY,
    clip_processor,
    ids_of,
    template,
    tokenizer,
)
from foveate.vlm.loader import without_video_processor

GEMMA = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
ROWS = 6  # of tokens, where a square has as many columns


def _square(pixels: int) -> dict[str, int]:
    return {"height": pixels, "width": pixels}


def _siglip(pixels: int, **more: Any) -> dict[str, Any]:
    return {"model_type": "siglip_vision_model", **SIGLIP_TOWER, "image_size": pixels, **more}


def _gemma_text(width: int, **more: Any) -> dict[str, Any]:
    return {
        **TEXT, "hidden_size": width, "head_dim": width // 4, "query_pre_attn_scalar": width // 4,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "sliding_window": 1024, **more,
    }  # fmt: skip


def _gemma3(config: type[Any], processor: type[Any], width: int) -> tuple[Any, Any]:
    """A tower of 12 x 12 patches, of which 2 x 2 are pooled to a token."""
    ids, pixels = ids_of(*GEMMA.values()), 96
    made = config(
        text_config={"model_type": "gemma3_text", **_gemma_text(width)}, vision_config=_siglip(pixels),
        mm_tokens_per_image=ROWS**2, boi_token_index=ids["<start_of_image>"], eoi_token_index=ids["<end_of_image>"],
        image_token_index=ids["<image_soft_token>"],
    )  # fmt: skip
    model = hf.Gemma3ForConditionalGeneration(made)
    model.model.multi_modal_projector.mm_input_projection_weight.data.normal_(0, 0.05)  # zeros in a new model
    images = hf.Gemma3ImageProcessorPil(size=_square(pixels))
    words = tokenizer(*GEMMA.values(), **GEMMA)
    return model, processor(images, words, chat_template=template("<start_of_image>"), image_seq_length=ROWS**2)


def gemma3(width: int) -> tuple[Any, Any]:
    return _gemma3(hf.Gemma3Config, hf.Gemma3Processor, width)


def shieldgemma2(width: int) -> tuple[Any, Any]:
    """As image-text-to-text: Gemma 3; the processor asks its policies whatever the text is."""
    return _gemma3(hf.ShieldGemma2Config, hf.ShieldGemma2Processor, width)


def _paligemma(kind: str, width: int, **more: Any) -> tuple[Any, Any]:
    pixels = 48
    vocabulary = VOCABULARY + 1024 + 128  # the processor adds tokens of places and of masks
    text = {"model_type": kind, **TEXT, "hidden_size": width, "head_dim": width // 4, **more}
    config = hf.PaliGemmaConfig(
        vision_config=_siglip(pixels, vision_use_head=False), text_config={**text, "vocab_size": vocabulary},
        image_token_index=IDS["<image>"], projection_dim=width, hidden_size=width,
    )  # fmt: skip
    images = hf.SiglipImageProcessorPil(size=_square(pixels), image_seq_length=ROWS**2)
    processor = hf.PaliGemmaProcessor(images, tokenizer(image_token="<image>"), chat_template=template("<image>"))
    return hf.PaliGemmaForConditionalGeneration(config), processor


def paligemma(width: int) -> tuple[Any, Any]:
    return _paligemma("gemma", width)


def paligemma2(width: int) -> tuple[Any, Any]:
    return _paligemma("gemma2", width, query_pre_attn_scalar=width // 4, sliding_window=1024)


def _resnet(**more: Any) -> hf.ResNetConfig:
    """Stands for a tower of timm, which cannot be installed: both give features [B, channels, rows, columns]."""
    return hf.ResNetConfig(embedding_size=16, hidden_sizes=[48], depths=[1], downsample_in_first_stage=True, **more)


def gemma3n(width: int) -> tuple[Any, Any]:
    names = {**GEMMA, "boa_token": "<start_of_audio>", "eoa_token": "<end_of_audio>", "audio_token": "<audio_soft>"}
    order = [names[name] for name in ("boi_token", "boa_token", "eoi_token", "image_token", "eoa_token", "audio_token")]
    ids, pixels = ids_of(*order), 48
    first, second = ids["<end_of_image>"], ids["<end_of_audio>"]  # ids from here on have embeddings of their own
    vision = hf.Gemma3nVisionConfig(vocab_size=2, vocab_offset=first, hidden_size=48)
    audio = hf.Gemma3nAudioConfig(
        hidden_size=32, conf_num_attention_heads=2, conf_num_hidden_layers=1, input_feat_size=32,
        sscp_conv_channel_size=(8, 4), vocab_size=VOCABULARY - second, vocab_offset=second,
    )  # fmt: skip
    text = _gemma_text(
        width, vocab_size_per_layer_input=first, hidden_size_per_layer_input=8, altup_num_inputs=2, laurel_rank=8,
        num_kv_shared_layers=1, activation_sparsity_pattern=[0.95, 0.0, 0.0],
    )  # fmt: skip
    text.pop("query_pre_attn_scalar")
    config = hf.Gemma3nConfig(
        text_config=text, vision_config=vision, audio_config=audio, vision_soft_tokens_per_image=ROWS**2,
        audio_soft_tokens_per_image=4, boi_token_id=ids["<start_of_image>"], eoi_token_id=first,
        image_token_id=ids["<image_soft_token>"], boa_token_id=ids["<start_of_audio>"], eoa_token_id=second,
        audio_token_id=ids["<audio_soft>"],
    )  # fmt: skip
    processor = hf.Gemma3nProcessor(
        hf.Gemma3nAudioFeatureExtractor(), hf.SiglipImageProcessorPil(size=_square(pixels)), tokenizer(*order, **names),
        chat_template=template("<image_soft_token>"), audio_seq_length=4, image_seq_length=ROWS**2,
    )  # fmt: skip
    make = hf.AutoModel.from_config
    with patch.object(
        hf.AutoModel, "from_config", lambda part: make(_resnet() if part is config.vision_config else part)
    ):
        return hf.Gemma3nForConditionalGeneration(config), processor


def fast_vlm(width: int) -> tuple[Any, Any]:
    pixels = 48
    config = hf.FastVlmConfig(
        vision_config=_resnet(hidden_size=48), text_config={"model_type": "qwen2", **TEXT, "hidden_size": width},
        image_token_index=IDS["<image>"], image_seq_length=ROWS**2,
    )  # fmt: skip
    images = hf.CLIPImageProcessorPil(size={"shortest_edge": pixels}, crop_size=_square(pixels))
    processor = hf.LlavaProcessor(
        images, tokenizer(), patch_size=8, vision_feature_select_strategy="full", chat_template=template(),
        num_additional_image_tokens=0,
    )  # fmt: skip
    return hf.FastVlmForConditionalGeneration(config), processor


def _got(kind: type[Any], width: int, image: int) -> Any:
    """SAM's tower of 24 x 24 patches; two convolutions make a token of 4 x 4."""
    vision = {
        "hidden_size": 32, "output_channels": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 192,
        "patch_size": 8, "window_size": 6, "global_attn_indexes": [1], "mlp_dim": 48, "initializer_range": 0.02,
    }  # fmt: skip
    text = {"model_type": "qwen2", **TEXT, "hidden_size": width}
    config = kind(vision_config=vision, text_config=text, image_token_index=image, image_seq_length=ROWS**2)
    return hf.GotOcr2ForConditionalGeneration(config)


def got_ocr2(width: int) -> tuple[Any, Any]:
    images = hf.GotOcr2ImageProcessorPil(size=_square(192))
    processor = hf.GotOcr2Processor(images, tokenizer("<imgpad>"), chat_template=template("<img><imgpad></img>\n"))
    processor.num_image_tokens = ROWS**2
    return _got(hf.GotOcr2Config, width, ids_of("<imgpad>")["<imgpad>"]), processor


def pp_chart2table(width: int) -> tuple[Any, Any]:
    """The chat template writes every image token; the processor replaces none."""
    images = hf.PPChart2TableImageProcessorPil(size=_square(192))
    text = template(f"<img>{'<imgpad>' * ROWS**2}</img>\n")
    processor = hf.PPChart2TableProcessor(images, tokenizer("<imgpad>"), chat_template=text)
    return _got(hf.PPChart2TableConfig, width, ids_of("<imgpad>")["<imgpad>"]), processor


def vipllava(width: int) -> tuple[Any, Any]:
    config = hf.VipLlavaConfig(
        vision_config=hf.CLIPVisionConfig(**CLIP_TOWER), text_config=hf.LlamaConfig(**{**TEXT, "hidden_size": width}),
        image_token_index=IDS["<image>"], vision_feature_layer=[-2, -3, 1],
    )  # fmt: skip
    return hf.VipLlavaForConditionalGeneration(config), clip_processor(56)


def llava_siglip(width: int) -> tuple[Any, Any]:
    """LLaVA with another tower: without a class token, and all of its patches are taken."""
    pixels = 8 * ROWS
    config = hf.LlavaConfig(
        vision_config=_siglip(pixels), text_config=hf.LlamaConfig(**{**TEXT, "hidden_size": width}),
        image_token_index=IDS["<image>"], image_token_id=IDS["<image>"], vision_feature_select_strategy="full",
    )  # fmt: skip
    processor = hf.LlavaProcessor(
        hf.SiglipImageProcessorPil(size=_square(pixels)), tokenizer(), patch_size=8, chat_template=template(),
        vision_feature_select_strategy="full", num_additional_image_tokens=0,
    )  # fmt: skip
    return hf.LlavaForConditionalGeneration(config), processor


def janus(width: int) -> tuple[Any, Any]:
    pixels = 56
    vision = {
        "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": pixels, "patch_size": 14,
        "mlp_ratio": 2, "projection_dim": width, "depth": 2, "num_image_tokens": 16,
    }  # fmt: skip
    painter = {
        "embed_dim": 8, "num_embeddings": 16, "latent_channels": 32, "base_channels": 32, "channel_multiplier": [1, 1],
        "num_res_blocks": 1, "projection_dim": width, "image_token_embed_dim": width,
    }  # fmt: skip
    text = {"model_type": "llama", **TEXT, "hidden_size": width}
    config = hf.JanusConfig(text_config=text, vision_config=vision, vq_config=painter, image_token_id=IDS["<image>"])
    names = {"image_token": "<image>", "boi_token": "<img>", "eoi_token": "</img>"}
    images = hf.JanusImageProcessorPil(size=_square(pixels))
    processor = hf.JanusProcessor(images, tokenizer(**names), chat_template=template(), num_image_tokens=16)
    return hf.JanusForConditionalGeneration(config), processor


def deepseek_vl(width: int) -> tuple[Any, Any]:
    pixels = 48
    config = hf.DeepseekVLConfig(
        vision_config=hf.SiglipVisionConfig(**_siglip(pixels)), image_token_id=IDS["<image>"],
        text_config={"model_type": "llama", **TEXT, "hidden_size": width},
    )  # fmt: skip
    processor = hf.DeepseekVLProcessor(
        hf.DeepseekVLImageProcessorPil(size=_square(pixels)), tokenizer(image_token="<image>"),
        chat_template=template(),
        num_image_tokens=ROWS**2,
    )  # fmt: skip
    return hf.DeepseekVLForConditionalGeneration(config), processor


def deepseek_vl_hybrid(width: int) -> tuple[Any, Any]:
    pixels, sharp = 48, 96
    fine = {
        "model_type": "sam_vision_model", "hidden_size": 32, "output_channels": 16, "num_hidden_layers": 2,
        "num_attention_heads": 4, "image_size": sharp, "patch_size": 8, "window_size": 6, "global_attn_indexes": [1],
        "mlp_dim": 48, "initializer_range": 0.02,
    }  # fmt: skip
    config = hf.DeepseekVLHybridConfig(
        vision_config=hf.SiglipVisionConfig(**_siglip(pixels)), high_res_vision_config=fine,
        text_config={"model_type": "llama", **TEXT, "hidden_size": width}, image_token_id=IDS["<image>"],
    )  # fmt: skip
    processor = hf.DeepseekVLHybridProcessor(
        hf.DeepseekVLHybridImageProcessorPil(size=_square(pixels), high_res_size=_square(sharp)),
        tokenizer(image_token="<image>"), chat_template=template(), num_image_tokens=ROWS**2,
    )  # fmt: skip
    model = hf.DeepseekVLHybridForConditionalGeneration(config)
    model.model.high_res_vision_alpha.data.fill_(1)
    return model, processor


def _video_llava(width: int, kind: type[Any], videos: Any) -> tuple[Any, Any]:
    config = hf.VideoLlavaConfig(
        vision_config=hf.CLIPVisionConfig(**CLIP_TOWER), text_config=hf.LlamaConfig(**{**TEXT, "hidden_size": width}),
        image_token_index=IDS["<image>"], video_token_index=IDS["<video>"], image_seq_length=16,
    )  # fmt: skip
    images = hf.VideoLlavaImageProcessor(size={"shortest_edge": 56}, crop_size=_square(56))
    return hf.VideoLlavaForConditionalGeneration(config), kind(images, videos, tokenizer(), chat_template=template())


def video_llava(width: int) -> tuple[Any, Any]:
    return _video_llava(width, without_video_processor(hf.VideoLlavaProcessor), None)


def video_llava_frames(width: int) -> tuple[Any, Any]:
    videos = hf.VideoLlavaVideoProcessor(size={"shortest_edge": 56}, crop_size=_square(56))
    return _video_llava(width, hf.VideoLlavaProcessor, videos)


def chameleon(width: int) -> tuple[Any, Any]:
    pixels, codes = 48, [f"IMGIMG{chr(ord('A') + code)}Z" for code in range(8)]
    names = {"image_token": "<image>", "boi_token": "<img>", "eoi_token": "</img>", "sep_token": "<end_of_utterance>"}
    vision = {
        "embed_dim": 32, "num_embeddings": len(codes), "latent_channels": 32, "resolution": pixels, "base_channels": 32,
        "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1, "attn_type": "vanilla",
    }  # fmt: skip
    words = tokenizer(*codes, **names)
    config = hf.ChameleonConfig(**{**TEXT, "hidden_size": width}, vq_config=vision, vocabulary_map=words.get_vocab())
    images = hf.ChameleonImageProcessorPil(size={"shortest_edge": pixels}, crop_size=_square(pixels))
    processor = hf.ChameleonProcessor(images, words, image_seq_length=ROWS**2)
    processor.chat_template = template("<image>")
    return hf.ChameleonForConditionalGeneration(config), processor


def emu3(width: int) -> tuple[Any, Any]:
    codes = [f"<|visual token {code:06d}|>" for code in range(8)]
    wrapped = ["<|image token|>", "<|extra_200|>", "<|extra_201|>"]  # of all codes; of the ends of lines; behind both
    words = tokenizer(
        *codes, *wrapped, image_token="<image>", boi_token="<img>", eoi_token="</img>",
        image_wrapper_token="<|image token|>", eof_token="<|extra_201|>",
    )  # fmt: skip
    vision = {
        "codebook_size": len(codes), "embed_dim": 4, "latent_channels": 4, "base_channels": 32,
        "channel_multiplier": [1, 1, 1, 1], "num_res_blocks": 1, "attn_resolutions": [3], "hidden_size": 32,
    }  # fmt: skip
    text = {**TEXT, "hidden_size": width, "attention_dropout": 0.0}
    config = hf.Emu3Config(vq_config=vision, text_config=text, vocabulary_map=words.get_vocab())
    images = hf.Emu3ImageProcessor(min_pixels=48 * 48, max_pixels=64 * 64)
    return hf.Emu3ForConditionalGeneration(config), hf.Emu3Processor(images, words, chat_template=template())


def fuyu(width: int) -> tuple[Any, Any]:
    """Image tokens are words, not special; each text begins with a space, which the processor cuts off again."""
    names, patch = ["|SPEAKER|", "|NEWLINE|", "<0x04>", "<0x00>", "<0x01>", "<0x02>", "<0x03>"], 30
    raw = Tokenizer(models.WordLevel(ids_of(*names), unk_token="?"))
    raw.normalizer = normalizers.Prepend(" ")
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"\|SPEAKER\||\|NEWLINE\||<0x0\d>|[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    words = hf.PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="?"
    )
    text = {"model_type": "persimmon", **TEXT, "hidden_size": width}
    text.pop("num_key_value_heads")
    config = hf.FuyuConfig(text_config=text, patch_size=patch, image_token_id=ids_of(*names)["|SPEAKER|"])
    images = hf.FuyuImageProcessorPil(size={"height": 180, "width": 240}, patch_size=_square(patch))
    processor = hf.FuyuProcessor(images, words)
    processor.chat_template = template("")
    return hf.FuyuForCausalLM(config), processor


def aria(width: int) -> tuple[Any, Any]:
    """As many queries of a resampler as the size of the picture allows; its smallest is 490 pixels."""
    vision = {
        "model_type": "idefics3_vision", "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "image_size": 490, "patch_size": 70,
    }  # fmt: skip
    text = {**TEXT, "hidden_size": width, "moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1}
    config = hf.AriaConfig(
        vision_config=vision, text_config=text, projector_patch_to_query_dict={49: 16}, image_token_index=IDS["<image>"]
    )
    processor = hf.AriaProcessor(
        hf.AriaImageProcessorPil(max_image_size=490), tokenizer(image_token="<image>"), chat_template=template(),
        size_conversion={490: 16},
    )  # fmt: skip
    processor.images_kwargs = {**processor.images_kwargs, "max_image_size": 490}
    return hf.AriaForConditionalGeneration(config), processor


def t5gemma2(width: int) -> tuple[Any, Any]:
    ids, pixels = ids_of(*GEMMA.values()), 96
    encoder = {
        "text_config": _gemma_text(width), "vision_config": _siglip(pixels), "mm_tokens_per_image": ROWS**2,
        "boi_token_index": ids["<start_of_image>"], "eoi_token_index": ids["<end_of_image>"],
    }  # fmt: skip
    image = ids["<image_soft_token>"]
    config = hf.T5Gemma2Config(encoder=encoder, decoder=_gemma_text(width), image_token_index=image)
    processor = hf.Gemma3Processor(
        hf.Gemma3ImageProcessorPil(size=_square(pixels)), tokenizer(*GEMMA.values(), **GEMMA),
        chat_template=template("<start_of_image>"), image_seq_length=ROWS**2,
    )  # fmt: skip
    return hf.T5Gemma2ForConditionalGeneration(config), processor


FAMILIES = {
    f.__name__: f
    for f in (
        gemma3, paligemma, paligemma2, gemma3n, shieldgemma2, fast_vlm, got_ocr2, pp_chart2table, vipllava,
        llava_siglip, janus, deepseek_vl, deepseek_vl_hybrid, video_llava, chameleon, emu3,
    )
}  # fmt: skip
NEED_TORCHVISION = {f.__name__: f for f in (video_llava_frames,)}
REFUSED = {f.__name__: f for f in (aria, t5gemma2, fuyu)}
