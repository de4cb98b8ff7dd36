"""A tiny vision-language model with random weights, to try the code with: the real LLaVA class, nothing downloaded.

Run it with: python examples/tiny_vlm.py [IMAGE]
"""

import argparse
from importlib.resources import files

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPImageProcessorPil,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

import foveate.vlm

TEMPLATE = "{% for m in messages %}{% for c in m.content %}{{ c.text or '<image>' }}{% endfor %}{% endfor %}"


def tiny_llava(side=336):  # pixels, in patches of 14: 24 x 24 visual tokens
    """(model, processor): two layers 64 wide; every character is a token."""
    words = ["<image>", "<end>", *map(chr, range(32, 127))]
    letters = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=letters, eos_token="<end>", pad_token="<end>", unk_token="?")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    images = CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    processor = LlavaProcessor(images, tokenizer, 14, "default", TEMPLATE, num_additional_image_tokens=1)

    size = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {"model_type": "llama", "vocab_size": len(words), "eos_token_id": 1, "max_position_embeddings": 8192, **size}
    vision = {"model_type": "clip_vision_model", "image_size": side, "patch_size": 14, **size}
    config = LlavaConfig(text_config=text, vision_config=vision, image_token_index=0)
    torch.manual_seed(0)
    return LlavaForConditionalGeneration(config).eval(), processor


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    bus = str(files("foveate") / "cli" / "photos" / "yellow_bus.jpg")
    parser.add_argument("image", nargs="?", default=bus, help="[default: a bundled photograph]")
    photo = parser.parse_args().image
    vlm = foveate.vlm.attach(*tiny_llava())
    encoded = vlm.see(photo)
    print(encoded)
    print(vlm.ask(encoded, "what colour is the bus?", budget=64, max_new_tokens=8))
