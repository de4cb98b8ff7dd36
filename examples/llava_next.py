"""LLaVA-NeXT: an overview and tiles share one budget; kept lines keep their newline features, which come on top.

Run it with: python examples/llava_next.py [--model NAME_OR_FOLDER] [--image FILE] [--budget N]
"""

import argparse
from importlib.resources import files

import torch
from transformers import AutoProcessor, LlavaNextForConditionalGeneration

import foveate.vlm

PHOTO = str(files("foveate") / "cli" / "photos" / "cake_and_coffee.jpg")
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="llava-hf/llava-v1.6-mistral-7b-hf")
parser.add_argument("--image", default=PHOTO)
parser.add_argument("--budget", type=int, default=256)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = LlavaNextForConditionalGeneration.from_pretrained(args.model, dtype="auto").to(device).eval()
processor = AutoProcessor.from_pretrained(args.model)
vlm = foveate.vlm.attach(model, processor)

encoded = vlm.see(args.image)  # the encoder runs once, for any number of questions
for grid in encoded.layouts[0].grids:
    print(f"{grid.h} x {grid.w} visual tokens")
for question in ("What is on the plate?", "What is in the cup?"):
    answer = vlm.ask(encoded, question, budget=args.budget)
    print(question, "->", answer.text)
    print("  {} of {} visual tokens,".format(*answer.tokens), f"{sum(answer.seconds.values()):.2f} s")
