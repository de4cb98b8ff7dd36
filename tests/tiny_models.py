"""Tiny models of the real classes with random weights far enough from zero that errors show, saved as checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers.models.sam2_video.configuration_sam2_video import Sam2VideoMaskDecoderConfig

PATCH, WIDTH = 8, 32  # of the encoders
SAM_SIDE = 64
WORDS = ["<pad>", "<unk>", *"a photo of dog cat the small large bad close-up there is in scene . red".split()]

CLIP = {
    "text_config": {
        "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 77,
    },
    "vision_config": {
        "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 3,
        "image_size": 64, "patch_size": PATCH,
    },
    "projection_dim": 24,
}  # fmt: skip
VISION = {"hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": 4, "patch_size": PATCH}
TEXT = {
    "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": len(WORDS), "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": None,
    "eos_token_id": None,
}  # fmt: skip
DECODER = {
    "hidden_size": 16, "mlp_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "iou_head_hidden_dim": 16,
}  # fmt: skip
SAM_VISION = {
    "hidden_size": 16, "output_channels": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": SAM_SIDE,
    "patch_size": 8, "window_size": 2, "global_attn_indexes": [1], "num_pos_feats": 8, "mlp_dim": 32,
}  # fmt: skip
HIERA = {
    "backbone_config": {
        "model_type": "sam2_hiera_det_model", "hidden_size": 8, "image_size": [SAM_SIDE, SAM_SIDE],
        "blocks_per_stage": [1, 1, 2, 1], "embed_dim_per_stage": [8, 16, 32, 64],
        "num_attention_heads_per_stage": [1, 1, 2, 2], "window_size_per_stage": [4, 2, 2, 2],
        "global_attention_blocks": [3], "window_positional_embedding_background_size": [2, 2],
    },
    "backbone_channel_list": [64, 32, 16, 8], "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
    "fpn_hidden_size": 16,
}  # fmt: skip
MEMORY: dict[str, Any] = {
    "image_size": SAM_SIDE, "memory_attention_hidden_size": 16, "memory_encoder_hidden_size": 16,
    "memory_attention_feed_forward_hidden_size": 16, "mask_downsampler_embed_dim": 16,
    "memory_fuser_embed_dim": 16, "memory_fuser_intermediate_dim": 16,
}  # fmt: skip
DINO = {
    "model_type": "dinov2", "image_size": 56, "patch_size": 14, "hidden_size": 16, "num_hidden_layers": 4,
    "num_attention_heads": 2, "mlp_ratio": 2, "out_indices": [1, 2, 3, 4], "reshape_hidden_states": False,
}  # fmt: skip


def save(kind: str, folder: Path) -> Path:
    """A checkpoint of a kind: clip, siglip, siglip2, tipsv2, sam, sam2, sam2_video, depth."""
    folder.mkdir()
    if kind == "clip":
        _save_clip(folder)
    elif kind in ("siglip", "siglip2", "tipsv2"):
        words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
        words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer: Any = transformers.PreTrainedTokenizerFast(
            tokenizer_object=words, pad_token="<pad>", unk_token="<unk>"
        )
        tokenizer.save_pretrained(folder)
        _encoder(kind).save_pretrained(folder)
    else:
        (depth() if kind == "depth" else _sam(kind)).save_pretrained(folder)
    return folder


def _disturb(model: Any, by: float = 0.1) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return model.eval()


def _save_clip(folder: Path) -> None:
    """Three blocks, patch 8, native 64 x 64, three heads of 16, 24-dimensional joint space; a tokenizer of letters."""
    torch.manual_seed(0)
    letters = [*"abcdefghijklmnopqrstuvwxyz.,'"]
    words = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    transformers.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt")).save_pretrained(folder)
    end = words.index("<|endoftext|>")
    text: Any = {**CLIP["text_config"], "vocab_size": len(words), "bos_token_id": end - 1, "eos_token_id": end}  # type: ignore[dict-item]
    _disturb(transformers.CLIPModel(transformers.CLIPConfig(**{**CLIP, "text_config": text}))).save_pretrained(folder)
    normalisation = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
    (folder / "preprocessor_config.json").write_text(json.dumps(normalisation))


def _encoder(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "siglip":
        vision = {**VISION, "intermediate_size": 48, "image_size": 64}
        text = {**TEXT, "projection_size": WIDTH}
        return _disturb(transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision)))
    if kind == "siglip2":
        vision = {**VISION, "intermediate_size": 48, "num_patches": 64}
        text = {**TEXT, "projection_size": WIDTH}
        return _disturb(transformers.Siglip2Model(transformers.Siglip2Config(text_config=text, vision_config=vision)))
    vision = {**VISION, "mlp_ratio": 2, "image_size": 64, "num_register_tokens": 1}
    return _disturb(transformers.Tipsv2Model(transformers.Tipsv2Config(text_config=TEXT, vision_config=vision)))


def _sam(kind: str) -> Any:
    """A model whose masks have contrast and whose opinion of them is high."""
    torch.manual_seed(0)
    prompts = {"hidden_size": 16, "image_size": SAM_SIDE, "mask_input_channels": 4}
    parts: dict[str, Any] = {"prompt_encoder_config": {**prompts, "patch_size": 8 if kind == "sam" else 16}}
    parts["mask_decoder_config"] = DECODER
    model: Any
    if kind == "sam":
        model = transformers.SamModel(transformers.SamConfig(vision_config=SAM_VISION, **parts))
    elif kind == "sam2":
        model = transformers.Sam2Model(transformers.Sam2Config(vision_config=HIERA, **parts))
    else:
        parts["mask_decoder_config"] = Sam2VideoMaskDecoderConfig(**DECODER)  # 5.18 takes a dict for something else
        model = transformers.Sam2VideoModel(transformers.Sam2VideoConfig(vision_config=HIERA, **parts, **MEMORY))
    _disturb(model, 0.5)
    with torch.no_grad():
        model.mask_decoder.iou_prediction_head.proj_out.bias.fill_(9)
    return model


def depth() -> Any:
    """A Depth Anything model whose map is far from even."""
    torch.manual_seed(0)
    config = transformers.DepthAnythingConfig(
        backbone_config=DINO, reassemble_hidden_size=16, neck_hidden_sizes=[4, 6, 8, 8], fusion_hidden_size=8,
        head_hidden_size=4,
    )  # fmt: skip
    model: Any = _disturb(transformers.DepthAnythingForDepthEstimation(config))
    with torch.no_grad():
        model.head.conv3.bias.fill_(3)  # above the ReLU
    return model
