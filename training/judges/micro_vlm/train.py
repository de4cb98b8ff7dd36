"""Trains the micro-VLM: `python -m micro_vlm.train --out FOLDER` (from training/), about an hour on two cores.

What is notable
* Every picture is asked many questions in one sequence (batches.py), so that its 2 x 256 tokens pay. With
  `--talk` it is asked eight dialogues of two turns instead: half with a follow-up ("and what colour is it"), half with
  another thing in the second turn.
* An extra loss tells tower and projector what is in each cell (three linear heads on the projected features that are
  thrown away after the training), at first alone. On the tower's own features it is not enough: the projector then
  kept 4 directions of 256, colours not among them, and no answer was learned (docs/log.md).
* Another extra loss tells one head each of two layers which thing a question is about, while it learns to bind words to
  things.
* No tokens are dropped in training: the models that foveate is made for have not seen that either.
* float32 weights, bfloat16 arithmetic where autocast allows it (AMX), AdamW, cosine. Continues from `state.pt`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.llama.modeling_llama import rotate_half

from . import model as micro
from .batches import IGNORED, PLANES, PREFIX, Batch, Order, batch_of, batches, layout

SEED, HELD_OUT = 1, 2  # of scenes
TURNS = ("first", "follow-up", "change")
ALONE = Order(0, 16, 16)  # sixteen questions of a scene
TALKS = Order(0, 16, 8, least=3, most=7, turns=2, held=0.5, glyphs=4)  # eight dialogues of two turns
SMALL = {"tower_layers": 4, "layers": 4}  # what learns dialogues in an hour on one core
LOOKS = {3: 0, 2: 1}  # counted from the last layer: whose first head is told to look at the thing named, at the answer


class Trainee(nn.Module):
    """The model, and the heads that say what is in a cell."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        width = model.config.text_config.hidden_size
        self.heads = nn.ModuleDict({name: nn.Linear(width, len(words)) for name, words in PLANES.items()})

    def seen(self, pixels: Tensor, *, learn: bool = True) -> Tensor:
        """Projected features of the cells, [b, 256, width]: those of `vision_feature_layer=-1` and "default".

        `learn=False` gives them without gradients.
        """
        inner = self.model.model
        with torch.set_grad_enabled(learn and torch.is_grad_enabled()):
            return inner.multi_modal_projector(inner.vision_tower(pixel_values=pixels).last_hidden_state[:, 1:])

    def dense_loss(self, features: Tensor, dense: Tensor) -> Tensor:
        """Cross entropy over cells; those without a thing count a fifth."""
        flat = dense.flatten(2)  # [b, 3, 256]
        weight = torch.where(flat[:, 1] > 0, 1.0, 0.2).flatten()
        losses = []
        for k, name in enumerate(PLANES):
            logits = self.heads[name](features).float().flatten(0, 1)
            losses.append((F.cross_entropy(logits, flat[:, k].flatten(), reduction="none") * weight).sum())
        return torch.stack(losses).sum() / weight.sum()

    def answers(self, features: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [m, words] and targets [m] at the places that are to be learned, and the loss of where they look.

        The loop over layers is that of LlamaModel.forward.
        """
        inner = self.model.model
        text = inner.language_model
        embedded = text.embed_tokens(batch.ids)
        hidden = torch.cat([embedded[:, :2], features, embedded[:, PREFIX:]], 1)
        mask, positions = layout(batch.slots, (batch.ids.shape[1] - PREFIX) // batch.slots)
        turns = text.rotary_emb(hidden, positions)
        looks = []
        for number, layer in enumerate(text.layers):
            if (back := len(text.layers) - number) in LOOKS:
                looks.append(looking_loss(layer, hidden, turns, mask, batch, LOOKS[back]))
            hidden = layer(hidden, attention_mask=mask, position_ids=positions, position_embeddings=turns)
        learned = batch.targets != IGNORED
        logits = self.model.lm_head(text.norm(hidden)[learned]).float()
        return logits, batch.targets[learned], torch.stack(looks).mean() if looks else logits.new_zeros(())


def looking_loss(
    layer: Any, hidden: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, batch: Batch, which: int
) -> Tensor:
    """How far the first head of a layer is from looking at a thing (`which` of Batch.needs) before it answers.

    Minus the logarithm of the head's attention on the cells that show the thing; words take part in the softmax too.
    """
    row, place = ((batch.targets != IGNORED) & (batch.targets != micro.EOS)).nonzero(as_tuple=True)
    size = layer.self_attn.head_dim
    normed = layer.input_layernorm(hidden)
    cos, sin = (t[0] for t in turns)  # [n, size]
    q = F.linear(normed[row, place], layer.self_attn.q_proj.weight[:size])
    q = q * cos[place] + rotate_half(q) * sin[place]
    k = F.linear(normed, layer.self_attn.k_proj.weight[:size])
    k = k * cos + rotate_half(k) * sin
    logits = torch.einsum("md,mnd->mn", q, k[row]).float() * size**-0.5
    logits = logits.masked_fill(~mask[0, 0, place], -1e9)
    thing = batch.needs[row, place, which]
    there = batch.shown[row] == thing[:, None]
    on = logits[:, 2:PREFIX].masked_fill(~there, -1e9).logsumexp(1)
    return (logits.logsumexp(1) - on)[there.any(1)].mean()


def accuracy(trainee: Trainee, count: int, order: Order, size: int = 32) -> dict[str, float]:
    """Shares of right answers (first token) on held-out scenes, teacher-forced: first turns, follow-ups, changes."""
    right, asked = np.zeros(len(TURNS)), np.zeros(len(TURNS))
    for k in range(count // size):
        batch = batch_of(replace(order, first=1_000_000 + k * size, count=size), HELD_OUT)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            logits, targets, _ = trainee.answers(trainee.seen(batch.pixels), batch)
        turn = batch.turn[batch.targets != IGNORED].numpy()
        hit = (logits.argmax(-1) == targets).numpy()
        for number in range(len(TURNS)):
            right[number] += hit[turn == number].sum()
            asked[number] += (turn == number).sum()
    return {name: round(float(right[i] / asked[i]), 3) for i, name in enumerate(TURNS) if asked[i]}


def rate_at(step: int, steps: int, peak: float, warm: int = 100) -> float:
    """Learning rate: linear up, cosine down to a fiftieth."""
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))))


@dataclass(frozen=True)
class Stage:
    """Steps of one kind.

    Attributes:
        steps: how many. order: the batch.
        sees: whether tower and projector learn. asks: whether the language model does.
        dense, look: weights of the extra losses.
        boost: factor of the learning rate.
    """

    steps: int
    order: Order
    sees: bool
    asks: bool
    dense: float
    look: float
    boost: float = 1.0


def stages(see: int, both: int, ask: int, finish: int, order: Order = ALONE) -> tuple[Stage, ...]:
    """Tower and projector alone; everything; the language model alone, which takes half the time; everything again."""
    return (
        Stage(see, replace(order, count=32, slots=1), sees=True, asks=False, dense=1.0, look=0.0),
        Stage(both, order, sees=True, asks=True, dense=0.3, look=0.3),
        Stage(ask, order, sees=False, asks=True, dense=0.0, look=0.5),
        Stage(finish, order, sees=True, asks=True, dense=0.3, look=0.3, boost=3.0),
    )


def plan(course: Sequence[Stage]) -> list[tuple[Stage, Order]]:
    """Every step: its stage, and scenes that no other step has."""
    out, first = [], 0
    for stage in course:
        for _ in range(stage.steps):
            out.append((stage, replace(stage.order, first=first)))
            first += stage.order.count
    return out


def optimiser(trainee: nn.Module) -> torch.optim.AdamW:
    """AdamW; no decay on vectors (biases, norms)."""
    flat = [p for p in trainee.parameters() if p.ndim < 2]
    full = [p for p in trainee.parameters() if p.ndim >= 2]
    return torch.optim.AdamW(
        [{"params": full, "weight_decay": 0.05}, {"params": flat, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.98)
    )


def one_step(trainee: Trainee, optimizer: Any, batch: Batch, stage: Stage, *, rate: float) -> dict[str, float]:
    """One optimiser step; the losses and the share of right answers."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", torch.bfloat16):
        features = trainee.seen(batch.pixels, learn=stage.sees)
        loss, out = features.new_zeros(()), {}
        if stage.sees:
            extra = trainee.dense_loss(features, batch.dense)
            loss = loss + stage.dense * extra
            out["dense"] = float(extra.detach())
        if stage.asks:
            logits, targets, looks = trainee.answers(features, batch)
            answer = F.cross_entropy(logits, targets)
            loss = loss + answer + stage.look * looks
            out["looks"] = float(looks.detach())
            is_answer = targets != micro.EOS
            out["loss"] = float(answer.detach())
            out["right"] = float((logits.argmax(-1) == targets)[is_answer].float().mean())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
    optimizer.step()
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, nargs=4, help="of the four stages")
    parser.add_argument("--talk", action="store_true", help="dialogues of two turns, by a smaller model")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--compile", action="store_true", help="a third faster; needs a C++ compiler")
    parser.add_argument("--minutes", type=float, default=0, help="stop (and save) after so many; 0: never")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    trainee = Trainee(micro.new(neighbours=args.talk, **SMALL if args.talk else {}))
    order = TALKS if args.talk else ALONE
    if args.compile:
        trainee.model.model.vision_tower.compile(dynamic=False)
        for layer in trainee.model.model.language_model.layers:
            layer.compile(dynamic=False)
    optimizer = optimiser(trainee)
    done, spent, state = 0, 0.0, args.out / "state.pt"
    if state.exists():
        kept = torch.load(state, weights_only=True)
        trainee.load_state_dict(kept["trainee"])
        optimizer.load_state_dict(kept["optimizer"])
        done, spent = kept["step"], kept["spent"]
    print(f"{sum(p.numel() for p in trainee.model.parameters()) / 1e6:.1f} M parameters, from step {done}", flush=True)
    steps = plan(stages(*args.steps or ((500, 760, 0, 270) if args.talk else (700, 800, 1100, 600)), order))
    begun, first, mean = time.monotonic() - spent, done, dict[str, float]()

    def keep(step: int) -> None:
        passed = {"step": step, "spent": time.monotonic() - begun}
        torch.save(
            {"trainee": trainee.state_dict(), "optimizer": optimizer.state_dict(), **passed}, args.out / "new.pt"
        )
        (args.out / "new.pt").replace(state)
        micro.save(trainee.model, args.out / "model")

    started = time.monotonic()
    for step, batch in enumerate(batches([order for _, order in steps[done:]], SEED), done):
        stage = steps[step][0]
        rate = rate_at(step, len(steps), args.rate) * stage.boost
        now = one_step(trainee, optimizer, batch, stage, rate=rate)
        mean = {name: value if name not in mean else 0.9 * mean[name] + 0.1 * value for name, value in now.items()}
        if (step + 1) % 10 == 0:
            pace = (time.monotonic() - started) / (step + 1 - first)
            line = {"step": step + 1, **{k: round(v, 4) for k, v in mean.items()}, "s/step": round(pace, 2)}
            print(json.dumps(line), f"{(len(steps) - step - 1) * pace / 60:.0f} min left", flush=True)
        if (step + 1) % 100 == 0:
            keep(step + 1)
        if stage.asks and (step + 1) % 200 == 0:
            print(f"held-out {accuracy(trainee, 64, order)}", flush=True)
        if args.minutes and time.monotonic() - begun > args.minutes * 60:
            steps = steps[: step + 1]
            break
    keep(len(steps))
    print(f"held-out {accuracy(trainee, 512, order)}, {(time.monotonic() - begun) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
