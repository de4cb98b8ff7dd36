"""LLaVA 1.5: a photograph, two questions, 128 visual tokens.

Run it with: python examples/llava.py [--model NAME_OR_FOLDER] [--image FILE] [--budget N]
"""

import argparse
from importlib.resources import files

import torch
from transformers import AutoProcessor, LlavaForConditionalGeneration

import foveate.vlm

PHOTO = str(files("foveate") / "cli" / "photos" / "cake_and_coffee.jpg")
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="llava-hf/llava-1.5-7b-hf")
parser.add_argument("--image", default=PHOTO)
parser.add_argument("--budget", type=int, default=128)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = LlavaForConditionalGeneration.from_pretrained(args.model, dtype="auto").to(device).eval()
processor = AutoProcessor.from_pretrained(args.model)
vlm = foveate.vlm.attach(model, processor)

encoded = vlm.see(args.image)  # the encoder runs once, for any number of questions
(grid,) = encoded.layouts[0].grids
print(f"{grid.h} x {grid.w} visual tokens over (y0, x0, y1, x1) = {grid.box}: its processor cuts the centre out")
for question in ("What is on the plate?", "What is in the cup?"):
    answer = vlm.ask(encoded, question, budget=args.budget)
    print(question, "->", answer.text)
    print("  {} of {} visual tokens,".format(*answer.tokens), f"{sum(answer.seconds.values()):.2f} s")
