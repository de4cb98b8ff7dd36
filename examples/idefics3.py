"""Idefics3: two images in one prompt, with a budget for each.

Run it with: python examples/idefics3.py [--model NAME_OR_FOLDER] [--image FILE] [--budget N]
"""

import argparse
from importlib.resources import files

import torch
from transformers import AutoProcessor, Idefics3ForConditionalGeneration

import foveate.vlm

PHOTO = str(files("foveate") / "cli" / "photos" / "cake_and_coffee.jpg")
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="HuggingFaceM4/Idefics3-8B-Llama3")
parser.add_argument("--image", default=PHOTO)
parser.add_argument("--budget", type=int, default=128)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = Idefics3ForConditionalGeneration.from_pretrained(args.model, dtype="auto").to(device).eval()
processor = AutoProcessor.from_pretrained(args.model)
vlm = foveate.vlm.attach(model, processor)

other = str(files("foveate") / "cli" / "photos" / "yellow_bus.jpg")
encoded = vlm.see([args.image, other])  # the encoder runs once, for any number of questions
for question in ("What is on the plate?", "What colour is the bus?"):
    answer = vlm.ask(encoded, question, budget=(args.budget, args.budget))
    print(question, "->", answer.text)
    print("  {} of {} visual tokens,".format(*answer.tokens), f"{sum(answer.seconds.values()):.2f} s")
