"""Qwen2-VL: as many visual tokens as the image's size asks for, here at most 1024; one is 28 x 28 pixels.

Run it with: python examples/qwen2_vl.py [--model NAME_OR_FOLDER] [--image FILE] [--budget N]
"""

import argparse
from importlib.resources import files

import torch
from transformers import AutoProcessor, Qwen2VLForConditionalGeneration

import foveate.vlm

PHOTO = str(files("foveate") / "cli" / "photos" / "cake_and_coffee.jpg")
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen2-VL-2B-Instruct")
parser.add_argument("--image", default=PHOTO)
parser.add_argument("--budget", type=int, default=128)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = Qwen2VLForConditionalGeneration.from_pretrained(args.model, dtype="auto").to(device).eval()
processor = AutoProcessor.from_pretrained(args.model, max_pixels=1024 * 28 * 28)
vlm = foveate.vlm.attach(model, processor)

encoded = vlm.see(args.image)  # the encoder runs once, for any number of questions
for question in ("What is on the plate?", "What is in the cup?"):
    answer = vlm.ask(encoded, question, budget=args.budget)
    print(question, "->", answer.text)
    print("  {} of {} visual tokens,".format(*answer.tokens), f"{sum(answer.seconds.values()):.2f} s")
