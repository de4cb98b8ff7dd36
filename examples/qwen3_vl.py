"""Qwen3-VL: two questions in one batch, each with a budget of its own. DeepStack's features are sliced with the rest.

Run it with: python examples/qwen3_vl.py [--model NAME_OR_FOLDER] [--image FILE] [--budget N]
"""

import argparse
from importlib.resources import files

import torch
from transformers import AutoProcessor, Qwen3VLForConditionalGeneration

import foveate.vlm

PHOTO = str(files("foveate") / "cli" / "photos" / "cake_and_coffee.jpg")
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="Qwen/Qwen3-VL-4B-Instruct")
parser.add_argument("--image", default=PHOTO)
parser.add_argument("--budget", type=int, default=128)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = Qwen3VLForConditionalGeneration.from_pretrained(args.model, dtype="auto").to(device).eval()
processor = AutoProcessor.from_pretrained(args.model)
vlm = foveate.vlm.attach(model, processor)

encoded = vlm.see(args.image)  # the encoder runs once, for any number of questions
questions = ["What is on the plate?", "What is in the cup?"]
answers = vlm.ask_many(encoded, questions, budget=[args.budget, "auto"])  # "auto": as many as the map asks for
for question, answer in zip(questions, answers, strict=True):
    print(question, "->", answer.text)
    print("  {} of {} visual tokens,".format(*answer.tokens), f"{answer.seconds['generate']:.2f} s for both")
