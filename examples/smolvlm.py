"""SmolVLM2: the same questions at three budgets, the last being all tokens. Needs `pip install num2words`.

Run it with: python examples/smolvlm.py [--model NAME_OR_FOLDER] [--image FILE] [--budget N]
"""

import argparse
from importlib.resources import files

import torch
from transformers import AutoProcessor, SmolVLMForConditionalGeneration

import foveate.vlm

PHOTO = str(files("foveate") / "cli" / "photos" / "cake_and_coffee.jpg")
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="HuggingFaceTB/SmolVLM2-2.2B-Instruct")
parser.add_argument("--image", default=PHOTO)
parser.add_argument("--budget", type=int, default=128)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = SmolVLMForConditionalGeneration.from_pretrained(args.model, dtype="auto").to(device).eval()
processor = AutoProcessor.from_pretrained(args.model)
vlm = foveate.vlm.attach(model, processor)

encoded = vlm.see(args.image)  # the encoder runs once, for any number of questions
for question in ("What is on the plate?", "What is in the cup?"):
    for budget in (args.budget, "auto", None):
        answer = vlm.ask(encoded, question, budget=budget)
        print(question, "->", answer.text)
        print("  {} of {} visual tokens,".format(*answer.tokens), f"{sum(answer.seconds.values()):.2f} s")
