"""Trains the micro-VLM: `python -m micro_vlm.train --out FOLDER` (from training/), about an hour on two cores.

What is notable
* Every picture is asked many questions in one sequence (batches.py), so that its 2 x 256 tokens pay.
* An extra loss tells the tower at first what is in each of its cells (three linear heads that are thrown away after the
  training); the language model then has something to look at. Its weight falls to a tenth.
* No tokens are dropped in training: the models that foveate is made for have not seen that either.
* float32 weights, bfloat16 arithmetic where autocast allows it (AMX), AdamW, cosine. Continues from `state.pt`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import model as micro
from .batches import IGNORED, PLANES, PREFIX, Batch, batch_of, batches, layout

SEED, HELD_OUT = 1, 2  # of scenes


class Trainee(nn.Module):
    """The model, and the heads that say what is in a cell."""

    def __init__(self, model: Any, questions: int) -> None:
        super().__init__()
        self.model = model
        width = model.config.vision_config.hidden_size
        self.heads = nn.ModuleDict({name: nn.Linear(width, len(words)) for name, words in PLANES.items()})
        mask, positions = layout(questions)
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("positions", positions, persistent=False)

    def seen(self, pixels: Tensor) -> Tensor:
        """Tower features of the cells, [b, 256, width]: what `vision_feature_layer=-1` and "default" select."""
        return self.model.model.vision_tower(pixel_values=pixels).last_hidden_state[:, 1:]

    def dense_loss(self, features: Tensor, dense: Tensor) -> Tensor:
        """Cross entropy over cells; those without a thing count a fifth."""
        flat = dense.flatten(2)  # [b, 3, 256]
        weight = torch.where(flat[:, 1] > 0, 1.0, 0.2).flatten()
        losses = []
        for k, name in enumerate(PLANES):
            logits = self.heads[name](features).float().flatten(0, 1)
            losses.append((F.cross_entropy(logits, flat[:, k].flatten(), reduction="none") * weight).sum())
        return torch.stack(losses).sum() / weight.sum()

    def answers(self, features: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits and targets at the places that are to be learned: [m, words], [m]."""
        inner = self.model.model
        embedded = inner.get_input_embeddings()(batch.ids)
        embedded = torch.cat([embedded[:, :2], inner.multi_modal_projector(features), embedded[:, PREFIX:]], 1)
        hidden = inner.language_model(
            inputs_embeds=embedded, attention_mask=self.mask, position_ids=self.positions, use_cache=False
        ).last_hidden_state
        learned = batch.targets != IGNORED
        return self.model.lm_head(hidden[learned]).float(), batch.targets[learned]


def accuracy(trainee: Trainee, questions: int, count: int, size: int) -> float:
    """Share of right answers (first token) on held-out scenes, teacher-forced."""
    right = asked = 0
    for k in range(count // size):
        batch = batch_of(HELD_OUT, 1_000_000 + k * size, size, questions)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            logits, targets = trainee.answers(trainee.seen(batch.pixels), batch)
        is_answer = targets != micro.EOS
        right += int((logits.argmax(-1) == targets)[is_answer].sum())
        asked += int(is_answer.sum())
    return right / asked


def rate_at(step: int, steps: int, peak: float, warm: int) -> float:
    """Learning rate: linear up, cosine down to a fiftieth."""
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))))


def dense_weight(step: int, steps: int) -> float:
    """Of the extra loss: 1, falling to 0.1 at 40 % of the steps."""
    return max(0.1, 1 - 0.9 * step / (0.4 * steps))


def optimiser(trainee: nn.Module) -> torch.optim.AdamW:
    """AdamW; no decay on vectors (biases, norms)."""
    flat = [p for p in trainee.parameters() if p.ndim < 2]
    full = [p for p in trainee.parameters() if p.ndim >= 2]
    return torch.optim.AdamW(
        [{"params": full, "weight_decay": 0.05}, {"params": flat, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.98)
    )


def one_step(
    trainee: Trainee, optimizer: Any, batch: Batch, *, rate: float, dense: float, asks: bool
) -> dict[str, float]:
    """One optimiser step; `asks=False` trains the tower alone."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", torch.bfloat16):
        features = trainee.seen(batch.pixels)
        extra = trainee.dense_loss(features, batch.dense)
        out = {"dense": float(extra.detach())}
        loss = dense * extra
        if asks:
            logits, targets = trainee.answers(features, batch)
            answer = F.cross_entropy(logits, targets)
            loss = loss + answer
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
    parser.add_argument("--steps", type=int, default=2600)
    parser.add_argument("--tower-steps", type=int, default=1000, help="first steps, of the tower alone")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--compile", action="store_true", help="a third faster; needs a C++ compiler")
    parser.add_argument("--minutes", type=float, default=0, help="stop (and save) after so many; 0: never")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    trainee = Trainee(micro.new(), args.questions)
    if args.compile:
        trainee.model.model.vision_tower.compile()
        trainee.model.model.language_model.compile()
    optimizer = optimiser(trainee)
    done, spent, state = 0, 0.0, args.out / "state.pt"
    if state.exists():
        kept = torch.load(state, weights_only=True)
        trainee.load_state_dict(kept["trainee"])
        optimizer.load_state_dict(kept["optimizer"])
        done, spent = kept["step"], kept["spent"]
    print(f"{sum(p.numel() for p in trainee.model.parameters()) / 1e6:.1f} M parameters, from step {done}", flush=True)
    begun, first, mean = time.monotonic() - spent, done, dict[str, float]()

    def keep(step: int) -> None:
        passed = {"step": step, "spent": time.monotonic() - begun}
        torch.save(
            {"trainee": trainee.state_dict(), "optimizer": optimizer.state_dict(), **passed}, args.out / "new.pt"
        )
        (args.out / "new.pt").replace(state)
        micro.save(trainee.model, args.out / "model")

    started = time.monotonic()
    for step, batch in enumerate(batches(SEED, done, args.steps, args.batch, args.questions), done):
        asks = step >= args.tower_steps
        rate = rate_at(step, args.steps, args.rate, 100)
        weight = dense_weight(step - args.tower_steps, args.steps - args.tower_steps) if asks else 1.0
        now = one_step(trainee, optimizer, batch, rate=rate, dense=weight, asks=asks)
        mean = {name: value if name not in mean else 0.9 * mean[name] + 0.1 * value for name, value in now.items()}
        if (step + 1) % 10 == 0:
            pace = (time.monotonic() - started) / (step + 1 - first)
            line = {"step": step + 1, **{k: round(v, 4) for k, v in mean.items()}, "s/step": round(pace, 2)}
            print(json.dumps(line), f"{(args.steps - step - 1) * pace / 60:.0f} min left", flush=True)
        if (step + 1) % 100 == 0:
            keep(step + 1)
        if asks and (step + 1) % 100 == 0:
            print(f"held-out {accuracy(trainee, args.questions, 64, 32):.3f}", flush=True)
        if args.minutes and time.monotonic() - begun > args.minutes * 60:
            args.steps = step + 1
            break
    keep(args.steps)
    print(f"held-out {accuracy(trainee, args.questions, 512, 32):.4f}, {(time.monotonic() - begun) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
