"""What the tiny models share: sizes, a tokenizer of single characters, a chat template. Nothing is downloaded."""

from __future__ import annotations

from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import CLIPImageProcessorPil, LlavaProcessor, PreTrainedTokenizerFast, Qwen2VLImageProcessorPil

from foveate.vlm.loader import without_video_processor

SPECIAL = [
    "<pad>", "<s>", "</s>", "<image>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
    "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>", "<fake_token_around_image>",
    "<global-img>", "<end_of_utterance>", *(f"<row_{i}_col_{j}>" for i in range(1, 5) for j in range(1, 5)),
]  # fmt: skip
CHARACTERS = [chr(i) for i in range(32, 127)] + ["\n"]
IDS = {token: number for number, token in enumerate(SPECIAL + CHARACTERS)}
TEMPLATE = (
    "{{% for m in messages %}}{{{{ '<|im_start|>' + m['role'] + '\n' }}}}"
    "{{% if m['content'] is string %}}{{{{ m['content'] }}}}{{% else %}}{{% for c in m['content'] %}}"
    "{{% if c['type'] == 'image' %}}{{{{ '{image}' }}}}{{% elif c['type'] == 'video' %}}{{{{ '{video}' }}}}"
    "{{% else %}}{{{{ c['text'] }}}}{{% endif %}}{{% endfor %}}{{% endif %}}{{{{ '<|im_end|>\n' }}}}{{% endfor %}}"
    "{{% if add_generation_prompt %}}{{{{ '<|im_start|>assistant\n' }}}}{{% endif %}}"
)
ENDS_OF_TEXT = ("<pad>", "<s>", "</s>")
ENDS = {"pad_token_id": IDS["<pad>"], "bos_token_id": IDS["<s>"], "eos_token_id": IDS["</s>"]}
QWEN_TOKENS = {
    "image_token_id": IDS["<|image_pad|>"],
    "video_token_id": IDS["<|video_pad|>"],
    "vision_start_token_id": IDS["<|vision_start|>"],
    "vision_end_token_id": IDS["<|vision_end|>"],
}
VOCABULARY = 160  # IDS has 144
WIDTH = 64  # of the language models: four heads of 16
TEXT: dict[str, Any] = {
    "hidden_size": WIDTH,
    "vocab_size": VOCABULARY,
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


def ids_of(*more: str) -> dict[str, int]:
    """IDS, and those of further special tokens."""
    return IDS | {token: len(IDS) + number for number, token in enumerate(more)}


def tokenizer(*more: str, **named: str) -> PreTrainedTokenizerFast:
    """One token a character; special tokens whole.

    more: further special tokens, with the ids behind IDS in this order (at most to VOCABULARY). named: tokens that a
    processor looks up by attribute.
    """
    raw = Tokenizer(models.WordLevel(ids_of(*more), unk_token="?"))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="?",
        clean_up_tokenization_spaces=False, extra_special_tokens=named,
    )  # fmt: skip
    fast.add_special_tokens({"additional_special_tokens": [t for t in (*SPECIAL, *more) if t not in ENDS_OF_TEXT]})
    return fast


def template(image: str = "<image>\n", video: str = "<video>\n") -> str:
    """A chat template, with what stands for an image and for a video."""
    return TEMPLATE.format(image=image.replace("\n", "\\n"), video=video.replace("\n", "\\n"))


def qwen_processor(kind: type[Any], patch: int, smallest: int, largest: int) -> Any:
    """A processor of the Qwen family: sides of patches in pixels, smallest and largest image in pixels."""
    images = Qwen2VLImageProcessorPil(
        patch_size=patch, merge_size=2, temporal_patch_size=2, min_pixels=smallest, max_pixels=largest
    )
    mark = "<|vision_start|><|{}_pad|><|vision_end|>"
    text = template(mark.format("image"), mark.format("video"))
    return without_video_processor(kind)(images, tokenizer(), None, chat_template=text)


def clip_processor(side: int) -> Any:
    """LLaVA's processor, for images of `side` pixels in patches of 14."""
    images = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    return LlavaProcessor(
        images, tokenizer(), patch_size=14, vision_feature_select_strategy="default", chat_template=template(),
        num_additional_image_tokens=1,
    )  # fmt: skip
