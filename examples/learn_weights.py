"""Four channel weights, learned through a vision-language model's own loss. The model is tiny, its weights are random.

Each weight says how much a channel adds to the map; the map scales the model's visual tokens (mode "weight"), and the
loss is how far its next words are from those under weights that are hidden: learning finds these again.

Run it with: python examples/learn_weights.py [IMAGE] [--steps 120]
"""

import argparse
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import foveate
import foveate.vlm
from foveate.vlm import Choosing

CHANNELS = ("saliency", "edge_on", "low_pass", "boundary")
HIDDEN = torch.tensor([0.8, 0.1, 0.6, 0.3])


def learn(image, question="the bus", steps=120):
    """(losses of all steps, learned weights [4])."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from examples.tiny_vlm import tiny_llava

    vlm = foveate.vlm.attach(*tiny_llava())
    encoded = vlm.see(image)
    there = encoded.textures[0].to("cpu")  # or "cuda"
    (grid,) = encoded.layouts[0].grids

    def next_words(weights):
        """Channel weights [4] -> log-probabilities of the next word at each place, with a gradient to the weights."""
        relevance = foveate.score(there, question, channel_weights=dict(zip(CHANNELS, weights, strict=True)))
        factors = relevance.map_on((grid.h, grid.w)).ravel()
        prepared = vlm.prepare(encoded, question, mode="weight", choosing=Choosing(weights=[factors]))
        return vlm.model(**prepared.inputs()).logits[0].log_softmax(-1)

    for parameter in vlm.model.parameters():
        parameter.requires_grad_(False)
    target = next_words(HIDDEN).exp()
    logits = torch.zeros(len(CHANNELS), requires_grad=True)  # weights .5
    optimiser, losses = torch.optim.Adam([logits], lr=0.1), []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.kl_div(next_words(logits.sigmoid()), target, reduction="batchmean")
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses, logits.sigmoid().detach()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("image", nargs="?", default=str(files("foveate") / "cli" / "photos" / "yellow_bus.jpg"))
    parser.add_argument("--steps", type=int, default=120)
    given = parser.parse_args()
    photo = Image.open(given.image).convert("RGB")
    side = min(photo.size)  # the tiny model sees a square
    losses, weights = learn(np.asarray(photo.crop((0, 0, side, side))), steps=given.steps)
    print(f"loss {losses[0]:.2e} -> {losses[-1]:.2e}")
    for name, weight, hidden in zip(CHANNELS, weights.tolist(), HIDDEN.tolist(), strict=True):
        print(f"{name:10} 0.50 -> {weight:.2f}, hidden {hidden:.2f}")
