"""InternVL3: select with foveate, generate with your own code.

Run it with: python examples/internvl.py [--model NAME_OR_FOLDER] [--image FILE] [--budget N]
"""

import argparse
import time
from importlib.resources import files

import torch
from transformers import AutoProcessor, InternVLForConditionalGeneration

import foveate.vlm

PHOTO = str(files("foveate") / "cli" / "photos" / "cake_and_coffee.jpg")
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="OpenGVLab/InternVL3-1B-hf")
parser.add_argument("--image", default=PHOTO)
parser.add_argument("--budget", type=int, default=128)
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
model = InternVLForConditionalGeneration.from_pretrained(args.model, dtype="auto").to(device).eval()
processor = AutoProcessor.from_pretrained(args.model)
vlm = foveate.vlm.attach(model, processor)

encoded = vlm.see(args.image)  # the encoder runs once, for any number of questions
for question in ("What is on the plate?", "What is in the cup?"):
    start = time.perf_counter()
    prepared = vlm.prepare(encoded, question, budget=args.budget)
    inputs = prepared.inputs()  # input_ids, attention_mask, position_ids, mm_encoder_outputs: new ones each time
    with torch.no_grad():
        out = model.generate(**inputs, max_new_tokens=64, do_sample=False)
    text = processor.tokenizer.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    print(question, "->", text.strip())
    print("  {} of {} visual tokens,".format(*prepared.tokens), f"{time.perf_counter() - start:.2f} s")
