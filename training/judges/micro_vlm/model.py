"""A LLaVA of six million parameters, with the tokenizer and the processor that stock transformers loads beside it.

What is notable
* The classes are transformers' own: `LlavaForConditionalGeneration` over `CLIPVisionModel` and Llama, `LlavaProcessor`
  over `CLIPImageProcessorPil` (no torchvision) and a word-level tokenizer. Nothing is patched; only the sizes are ours.
* 128 x 128 pixels in patches of 8: 16 x 16 cells, each one token of the language model.
* The prompt is `<s> <|user|> <image> question <|assistant|>`, and the answer is one word and `</s>`.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import (
    CLIPVisionConfig,
    CLIPVisionModel,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from .scenes import COLOURS, DIGITS, LETTERS, SHAPES, SIDE

PATCH = 8
CELLS = SIDE // PATCH
TOKENS = CELLS * CELLS
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<image>", "<|user|>", "<|assistant|>")
PAD, BOS, EOS, UNK, IMAGE, USER, ASSISTANT = range(len(SPECIAL))
WORDS = (
    *"what is in on the with around of left right above below colour shape letter digit and it".split(),
    *COLOURS,
    *SHAPES,
    *LETTERS,
    *DIGITS,
)
VOCABULARY = {word: i for i, word in enumerate((*SPECIAL, *WORDS))}
CHAT = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}<|user|>"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% else %}<|assistant|>"
    "{% if message['content'] is string %} {{ message['content'] }}{% else %}{% for part in message['content'] %}"
    " {{ part['text'] }}{% endfor %}{% endif %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word; capitals and punctuation are dropped."""
    inner = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    inner.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace(Regex("[?!.,;:\"']"), "")])
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.decoder = decoders.WordPiece(prefix="##", cleanup=False)  # joins words with spaces
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<image>", "<|user|>", "<|assistant|>"],
        padding_side="left",
        model_max_length=512,
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


def config(*, tower: int = 192, tower_layers: int = 6, width: int = 256, layers: int = 5) -> LlavaConfig:
    """Sizes of the model; smaller ones are for tests."""
    return LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=tower,
            intermediate_size=tower * 4,
            num_hidden_layers=tower_layers,
            num_attention_heads=max(1, tower // 48),
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
            max_position_embeddings=512,
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


def new(*, neighbours: bool = False, **sizes: int) -> LlavaForConditionalGeneration:
    """A model with random weights (of torch's generator); `neighbours`: of the tower's heads, see look_beside."""
    model = LlavaForConditionalGeneration(config(**sizes))
    places = model.model.vision_tower.embeddings.position_embedding.weight
    with torch.no_grad():
        places[1:] += 0.3 * waves(places.shape[1])  # neighbours are alike from the start; the rest is learned
        if neighbours:
            look_beside(model.model.vision_tower)
    model.generation_config.bos_token_id, model.generation_config.eos_token_id = BOS, EOS
    model.generation_config.pad_token_id = PAD
    return model


def waves(width: int) -> torch.Tensor:
    """Sines and cosines of row and column at geometric wavelengths: float32 [256, width]."""
    count = width // 4
    speed = 2 * math.pi / CELLS * 10 ** (torch.arange(count) / count - 0.3)
    angle = torch.arange(CELLS)[:, None] * speed
    line = torch.cat([angle.sin(), angle.cos()], 1)
    rows = line[:, None].expand(-1, CELLS, -1)
    columns = line[None].expand(CELLS, -1, -1)
    return torch.cat([rows, columns], 2).reshape(TOKENS, 4 * count)


BESIDE = (
    *(((0, 1), (0, -1), (1, 0), (-1, 0)), ((0, 1), (0, -1), (1, 0), (-1, 0))),
    *(((1, 1), (1, -1), (-1, 1), (-1, -1)), ((0, 2), (0, -2), (2, 0), (-2, 0))),
)  # by layer and head: rows and columns


def look_beside(tower: CLIPVisionModel, gain: float = 2.0) -> None:
    """Adds to each head of a tower that it looks at one neighbour of a cell: a start like a convolution's.

    What a head asks for is the place turned by the neighbour's offset, what it offers is the place.
    """
    width, heads = tower.config.hidden_size, tower.config.num_attention_heads
    count, size = width // 4, width // heads
    speed = 2 * math.pi / CELLS * 10 ** (torch.arange(count) / count - 0.3)
    for layer, offsets in zip(tower.encoder.layers, BESIDE, strict=False):
        for head in range(heads):
            asks, offers = torch.zeros(size, width), torch.zeros(size, width)
            waves_used = torch.arange(head % 2, count, count // (size // 4))[: size // 4].tolist()
            for row, (wave, axis) in enumerate(product(waves_used, range(2))):
                sine = 2 * axis * count + wave
                cosine, turn = sine + count, speed[wave] * offsets[head % 4][axis]
                offers[2 * row, sine] = offers[2 * row + 1, cosine] = 1
                asks[2 * row, sine] = asks[2 * row + 1, cosine] = turn.cos()
                asks[2 * row, cosine], asks[2 * row + 1, sine] = turn.sin(), -turn.sin()
            rows = slice(head * size, (head + 1) * size)
            layer.self_attn.q_proj.weight[rows] += gain * asks
            layer.self_attn.k_proj.weight[rows] += gain * offers


def save(model: LlavaForConditionalGeneration, folder: Path) -> None:
    """Model (safetensors) and processor into a folder that stock transformers loads."""
    model.save_pretrained(folder)
    processor().save_pretrained(folder)
