"""A LLaVA of some million parameters that reads pages, with the tokenizer and processor that stock transformers loads.

What is notable
* As micro_vlm, the classes are transformers' own; only the sizes are ours.
* SIDE x SIDE pixels in patches of PATCH: CELLS x CELLS cells, each one token of the language model, with two or three
  characters in it.
* Words of questions are tokens, and so is each character of an answer. Case and punctuation of questions are dropped.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from training.judges.micro_vlm.model import ASSISTANT, BOS, CHAT, EOS, IMAGE, PAD, SPECIAL, USER

from .pages import SIDE
from .words import ALPHABET, COLUMNS, KEYS, THINGS

__all__ = ["ASSISTANT", "BOS", "EOS", "IMAGE", "PAD", "USER"]

PATCH = 16
CELLS = SIDE // PATCH
TOKENS = CELLS * CELLS
MEAN, STD = (0.9, 0.9, 0.9), (0.25, 0.25, 0.25)  # paper is about 0
WORDS = tuple(
    dict.fromkeys(
        ["what", "is", "the", "which", "it", "given", "how", "much", "are", "of", "have", *COLUMNS, *THINGS]
        + [word for key in KEYS for word in key.split()]
    )
)
VOCABULARY = {word: i for i, word in enumerate((*SPECIAL, *WORDS, *(f"##{letter}" for letter in ALPHABET)))}


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word of a question; answers come out character by character."""
    inner = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    inner.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex("[?!.,;:\"']"), "")])
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.decoder = decoders.Sequence([decoders.Replace("##", ""), decoders.Fuse()])
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<image>", "<|user|>", "<|assistant|>"],
        padding_side="left",
        model_max_length=1024,
    )


def processor() -> Any:
    """Picture and chat -> inputs of the model."""
    images = CLIPImageProcessorPil(
        size={"shortest_edge": SIDE},
        crop_size={"height": SIDE, "width": SIDE},
        image_mean=list(MEAN),
        image_std=list(STD),
    )
    return LlavaProcessor(
        image_processor=images,
        tokenizer=tokenizer(),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT,
    )


def config(*, tower: int = 192, tower_layers: int = 6, width: int = 256, layers: int = 4) -> LlavaConfig:
    """Sizes of the model; smaller ones are for tests."""
    return LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=tower,
            intermediate_size=tower * 4,
            num_hidden_layers=tower_layers,
            num_attention_heads=max(1, tower // 64),
            image_size=SIDE,
            patch_size=PATCH,
            projection_dim=tower,
            hidden_act="gelu",
        ),
        text_config=LlamaConfig(
            vocab_size=len(VOCABULARY),
            hidden_size=width,
            intermediate_size=width * 5 // 2,
            num_hidden_layers=layers,
            num_attention_heads=max(1, width // 64),
            num_key_value_heads=max(1, width // 64),
            max_position_embeddings=1024,
            bos_token_id=BOS,
            eos_token_id=EOS,
            pad_token_id=PAD,
            tie_word_embeddings=False,
            attention_bias=False,
        ),
        image_token_id=IMAGE,
        image_seq_length=TOKENS,
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        tie_word_embeddings=False,
    )


def new(**sizes: int) -> LlavaForConditionalGeneration:
    """A model with random weights (of torch's generator)."""
    model = LlavaForConditionalGeneration(config(**sizes))
    places = model.model.vision_tower.embeddings.position_embedding.weight
    pixels = model.model.vision_tower.embeddings.patch_embedding.weight
    with torch.no_grad():
        places[1:] += 0.3 * waves(places.shape[1])  # neighbours are alike from the start; the rest is learned
        cosines = patterns(pixels.shape[0])
        pixels[: len(cosines)] = cosines[:, None] / 3
    model.generation_config.bos_token_id, model.generation_config.eos_token_id = BOS, EOS
    model.generation_config.pad_token_id = PAD
    return model


def waves(width: int) -> torch.Tensor:
    """Sines and cosines of row and column at geometric wavelengths: float32 [TOKENS, width]."""
    count = width // 4
    speed = 2 * math.pi / CELLS * 10 ** (torch.arange(count) / count - 0.3)
    angle = torch.arange(CELLS)[:, None] * speed
    line = torch.cat([angle.sin(), angle.cos()], 1)
    rows = line[:, None].expand(-1, CELLS, -1)
    columns = line[None].expand(CELLS, -1, -1)
    return torch.cat([rows, columns], 2).reshape(TOKENS, 4 * count)


def patterns(width: int) -> torch.Tensor:
    """The cosines of a patch, coarse ones first, [at most width, PATCH, PATCH]: a start that loses nothing of it."""
    step = (torch.arange(PATCH) + 0.5) * math.pi / PATCH
    one = torch.cos(torch.arange(PATCH)[:, None] * step) * (2 / PATCH) ** 0.5
    one[0] /= 2**0.5
    both = torch.einsum("ay,bx->abyx", one, one).flatten(0, 1)
    order = (torch.arange(PATCH)[:, None] + torch.arange(PATCH)).flatten().argsort(stable=True)
    return both[order][:width]


def save(model: LlavaForConditionalGeneration, folder: Path) -> None:
    """Model (safetensors) and processor into a folder that stock transformers loads."""
    model.save_pretrained(folder)
    processor().save_pretrained(folder)
