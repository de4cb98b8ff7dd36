"""Qwen2.5-VL: visual tokens dropped behind the encoder, and for comparison in front of it.

Run it with: python examples/qwen2_5_vl.py [--model NAME_OR_FOLDER] [--image FILE] [--budget N]
"""

import argparse
from importlib.resources import files

import torch
from transformers import AutoProcessor, Qwen2_5_VLForConditionalGeneration

import foveate.vlm

PHOTO = str(files("foveate") / "cli" / "photos" / "cake_and_coffee.jpg")
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen2.5-VL-3B-Instruct")
parser.add_argument("--image", default=PHOTO)
parser.add_argument("--budget", type=int, default=128)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = Qwen2_5_VLForConditionalGeneration.from_pretrained(args.model, dtype="auto").to(device).eval()
processor = AutoProcessor.from_pretrained(args.model)
vlm = foveate.vlm.attach(model, processor)

encoded = vlm.see(args.image)  # the encoder runs once, for any number of questions
unseen = vlm.see(args.image, mode="sparse")  # it runs for each question, over the kept tokens only
for question in ("What is on the plate?", "What is in the cup?"):
    answer = vlm.ask(encoded, question, budget=args.budget)
    print(question, "->", answer.text)
    print("  {} of {} visual tokens,".format(*answer.tokens), f"{sum(answer.seconds.values()):.2f} s")
    sparse = vlm.ask(unseen, question, budget=args.budget, mode="sparse")
    print("  in front of the encoder:", sparse.text, f"({sum(sparse.seconds.values()):.2f} s)")
