"""Trains the model: `python -m micro_doc.train --out FOLDER` (from training/), under two hours on two cores.

What is notable
* As micro_vlm: many questions a page in one sequence, float32 weights with bfloat16 arithmetic, AdamW, stages;
  continues from `state.pt`. A last stage leaves cells out: without it even the answer's own cells were not enough.
* The extra loss asks each cell, on the projected features, for its characters in order, whose they are (key or thing,
  column) and which character of the value it begins with. At first alone: a model that cannot read learns no answers.
* Two more tell heads where to look: in the tower from a cell to its key and to all of its value (which were not found
  in 1,500 steps without), in the language model to the cell of the answer's next character.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.llama.modeling_llama import rotate_half

from training.judges.micro_vlm.train import optimiser

from . import model as micro
from .attention import quick
from .batches import CELLS, IGNORED, PLANES, PREFIX, SLOT, SLOTS, TOKENS, Batch, batch_of, batches, layout

SEED, HELD_OUT = 1, 2  # of pages
LOOKS = (1, 2)  # layers whose first head is told where the next character stands
LINKS = (1, 2, 3, 4)  # of the tower: layers whose first two heads are told which cells belong together
OWNER = list(PLANES).index("owner")
HEAVY = {"owner": 3.0, "place": 2.0}  # planes that count more


class Trainee(nn.Module):
    """The model, and the heads that say what is in a cell."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        width = model.config.text_config.hidden_size
        self.heads = nn.ModuleDict({name: nn.Linear(width, count) for name, count in PLANES.items()})

    def seen(self, pixels: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Projected features of the cells, [b, TOKENS, width], and what goes into each layer of the tower."""
        inner = self.model.model
        out = inner.vision_tower(pixel_values=pixels, output_hidden_states=True)
        return inner.multi_modal_projector(out.last_hidden_state[:, 1:]), out.hidden_states

    def links_loss(self, states: tuple[Tensor, ...], dense: Tensor) -> Tensor:
        """How far two heads of the tower's layers LINKS are from looking at the key of a cell, and at the whole value.

        Cross entropy of a head's attention against an even spread over the cells that it should look at.
        """
        owner, column, place = (dense[:, list(PLANES).index(name)] for name in ("owner", "column", "place"))
        same = (owner[:, :, None] == owner[:, None]) & (owner > 0)[:, :, None]
        of_key = same & (place == 0)[:, None]
        of_value = same & ((place > 0)[:, :, None] & (place > 0)[:, None]) & (column[:, :, None] == column[:, None])
        losses = []
        layers = self.model.model.vision_tower.encoder.layers
        for number in (n for n in LINKS if n < len(layers)):
            layer = layers[number]
            size = layer.self_attn.head_dim
            normed = layer.layer_norm1(states[number])
            q, k = (
                F.linear(normed, project.weight[: 2 * size], project.bias[: 2 * size]).unflatten(2, (2, size))
                for project in (layer.self_attn.q_proj, layer.self_attn.k_proj)
            )
            logits = torch.einsum("bihd,bjhd->bhij", q[:, 1:], k).float() * size**-0.5
            spread = logits.log_softmax(-1)[..., 1:]  # the class token may be looked at, too
            for head, wanted in enumerate((of_key, of_value)):
                count = wanted.sum(-1)
                each = -(spread[:, head] * wanted).sum(-1) / count.clamp(min=1)
                losses.append(each.sum() / (count > 0).sum().clamp(min=1))
        return torch.stack(losses).mean()

    def dense_loss(self, features: Tensor, dense: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Cross entropy over cells, those with nothing a tenth; and the shares of right glyphs, owners and places."""
        written = (dense[:, SLOTS] > 0).flatten()
        owned = (dense[:, OWNER] > 0).flatten()
        total, right = features.new_zeros((), dtype=torch.float32), {}
        for k, name in enumerate(PLANES):
            target = dense[:, k].flatten()
            logits = self.heads[name](features).float().flatten(0, 1)
            weight = torch.where(written if k < 2 * SLOTS else owned, 1.0, 0.1)
            loss = (F.cross_entropy(logits, target, reduction="none") * weight).sum() / weight.sum()
            total = total + HEAVY.get(name, 1.0) * loss
            if name in ("quarter1", "glyph0", "glyph1", "owner", "place"):
                there = target > 0
                right[name] = float((logits.detach().argmax(-1) == target)[there].float().mean())
        return total, right

    def answers(self, features: Tensor, batch: Batch, kept: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Logits [m, words] and targets [m] at the places that are to be learned, and the loss of where they look.

        `kept`: bool [b, TOKENS], the cells that the language model gets; None: all.

        The loop over layers is that of LlamaModel.forward.
        """
        inner = self.model.model
        text = inner.language_model
        embedded = text.embed_tokens(batch.ids)
        hidden = torch.cat([embedded[:, :2], features.to(embedded.dtype), embedded[:, PREFIX:]], 1)
        mask, positions = layout((batch.ids.shape[1] - PREFIX) // SLOT)
        if kept is not None:
            mask = mask & F.pad(kept, (2, hidden.shape[1] - PREFIX), value=True)[:, None, None]
        turns = text.rotary_emb(hidden, positions)
        looks = []
        for number, layer in enumerate(text.layers):
            if number in LOOKS and torch.is_grad_enabled():
                looks.append(looking_loss(layer, hidden, turns, mask, batch))
            hidden = layer(hidden, attention_mask=mask, position_ids=positions, position_embeddings=turns)
        learned = batch.targets != IGNORED
        logits = self.model.lm_head(text.norm(hidden[learned])).float()
        return logits, batch.targets[learned], torch.stack(looks).mean() if looks else logits.new_zeros(())


def looking_loss(layer: Any, hidden: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, batch: Batch) -> Tensor:
    """Minus the logarithm of a layer's first head's attention, before a character, on the cell of that character."""
    row, place = (batch.looks >= 0).nonzero(as_tuple=True)
    size = layer.self_attn.head_dim
    normed = layer.input_layernorm(hidden)
    cos, sin = (t[0] for t in turns)  # [n, size]
    q = F.linear(normed[row, place], layer.self_attn.q_proj.weight[:size])
    q = q * cos[place] + rotate_half(q) * sin[place]
    k = F.linear(normed, layer.self_attn.k_proj.weight[:size])
    k = k * cos + rotate_half(k) * sin
    losses = []
    for b in range(len(hidden)):
        mine = row == b
        logits = (q[mine] @ k[b].T).float() * size**-0.5
        logits = logits.masked_fill(~mask[b % len(mask), 0, place[mine]], -1e9)
        losses.append(F.cross_entropy(logits, 2 + batch.looks[b, place[mine]], reduction="sum"))
    return torch.stack(losses).sum() / len(row)


def some_cells(batch: Batch, step: int) -> Tensor:
    """Cells to keep of each page, bool [b, TOKENS]: those of the answers and of their keys, and a share of the others.

    The share is drawn for each page, from none to all; half of the pages keep what lies around those cells, too.
    """
    rng = torch.Generator().manual_seed(step)
    owner = batch.dense[:, OWNER]
    b = len(owner)
    needed = torch.zeros(b, TOKENS + 1, dtype=torch.bool)
    needed.scatter_(1, batch.looks.clamp(min=-1) % (TOKENS + 1), True)  # -1 is the place behind the last cell
    needed = needed[:, :TOKENS]
    asked = torch.zeros(b, int(owner.max()) + 1, dtype=torch.bool).scatter_(1, owner * needed, True)
    asked[:, 0] = False
    needed = needed | asked.gather(1, owner) & (batch.dense[:, list(PLANES).index("place")] == 0)
    wide = F.max_pool2d(needed.float().unflatten(1, (CELLS, CELLS))[:, None], 3, 1, 1)[:, 0].flatten(1) > 0
    needed = torch.where(torch.rand(b, 1, generator=rng) < 0.5, wide, needed)
    share = torch.rand(b, 1, generator=rng) ** 2
    return needed | (torch.rand(b, TOKENS, generator=rng) < share)


def exact(logits: Tensor, batch: Batch) -> tuple[int, int]:
    """How many answers are right in every character, teacher-forced (the same as greedily: the first error counts)."""
    learned = batch.targets != IGNORED
    row, place = learned.nonzero(as_tuple=True)
    slots = (batch.ids.shape[1] - PREFIX) // SLOT
    slot = row * slots + (place - PREFIX) // SLOT
    wrong = torch.bincount(slot, (logits.argmax(-1) != batch.targets[learned]).float(), len(batch.ids) * slots)
    return int((wrong == 0).sum()), len(wrong)


def accuracy(trainee: Trainee, count: int, *, held_back: bool = False, size: int = 16, questions: int = 8) -> float:
    """Share of answers that are right in every character, on held-out pages."""
    right = asked = 0
    for k in range(max(1, count // size)):
        batch = batch_of(HELD_OUT, 1_000_000 + k * size, size, questions, held_back=held_back)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16), quick(trainee.model):
            logits, _, _ = trainee.answers(trainee.seen(batch.pixels)[0], batch)
        hits, every = exact(logits, batch)
        right, asked = right + hits, asked + every
    return right / asked


def rate_at(step: float, steps: int, peak: float, warm: int = 100) -> float:
    """Learning rate: linear up, level, and down to a fiftieth over the last fifth."""
    if step < warm:
        return peak * (step + 1) / warm
    late = max(0.0, (step / steps - 0.78) / 0.22)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, late))))


@dataclass(frozen=True)
class Stage:
    """Steps of one kind: how many; pages and questions of each; whether answers count; weights of the extra losses."""

    steps: int
    pages: int
    questions: int
    asks: bool
    dense: float
    links: float
    look: float
    drops: bool = False


def stages(see: int, both: int, some: int) -> tuple[Stage, ...]:
    """Tower and projector alone; everything; everything, with some of the cells."""
    return (
        Stage(see, 8, 1, asks=False, dense=1.0, links=2.0, look=0.0),
        Stage(both, 8, 12, asks=True, dense=0.5, links=0.0, look=1.0),
        Stage(some, 8, 5, asks=True, dense=0.5, links=0.0, look=0.5, drops=True),
    )


def one_step(
    trainee: Trainee, optimizer: Any, batch: Batch, stage: Stage, *, rate: float, step: int = 0
) -> dict[str, float]:
    """One optimiser step; the losses and the shares of what is right."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", torch.bfloat16), quick(trainee.model):
        features, states = trainee.seen(batch.pixels)
        extra, out = trainee.dense_loss(features, batch.dense)
        out["dense"] = float(extra.detach())
        loss = stage.dense * extra
        if stage.links:
            links = trainee.links_loss(states, batch.dense)
            out["links"] = float(links.detach())
            loss = loss + stage.links * links
        if stage.asks:
            kept = some_cells(batch, step) if stage.drops else None
            logits, targets, looks = trainee.answers(features, batch, kept)
            answer = F.cross_entropy(logits, targets)
            loss = loss + answer + stage.look * looks
            hits, every = exact(logits.detach(), batch)
            out |= {"looks": float(looks.detach()), "loss": float(answer.detach()), "exact": hits / every}
            out["letters"] = float((logits.detach().argmax(-1) == targets).float().mean())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
    optimizer.step()
    return out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, nargs=3, default=(2650, 2100, 500), help="of the three stages")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--compile", action="store_true", help="a third faster; needs a C++ compiler")
    parser.add_argument(
        "--minutes", type=float, default=0, help="the rate falls, and it stops, after so many; 0: never"
    )
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    cv2.setNumThreads(1)  # its threads wait by spinning, which starves the others
    args.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(SEED)
    trainee = Trainee(micro.new())
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
    begun, mean, saved = time.monotonic() - spent, dict[str, float](), time.monotonic()

    def keep(step: int) -> None:
        passed = {"step": step, "spent": time.monotonic() - begun}
        torch.save(
            {"trainee": trainee.state_dict(), "optimizer": optimizer.state_dict(), **passed}, args.out / "new.pt"
        )
        (args.out / "new.pt").replace(state)
        micro.save(trainee.model, args.out / "model")

    total, step, first, number = sum(args.steps), 0, 0, done
    for stage in stages(*args.steps):
        if args.minutes and time.monotonic() - begun > args.minutes * 60:
            break
        numbers = range(max(step, done), step + stage.steps)
        firsts = [first + (number - step) * stage.pages for number in numbers]
        step, first = step + stage.steps, first + stage.steps * stage.pages
        started = time.monotonic()
        for number, batch in zip(numbers, batches(SEED, firsts, stage.pages, stage.questions), strict=False):
            minutes = (time.monotonic() - begun) / 60
            passed = max(number, total * minutes / args.minutes) if args.minutes and number > 100 else number
            rate = rate_at(passed, total, args.rate)
            now = one_step(trainee, optimizer, batch, stage, rate=rate, step=number)
            mean = {n: v if n not in mean else 0.95 * mean[n] + 0.05 * v for n, v in now.items()}
            if (number + 1) % 10 == 0:
                pace = (time.monotonic() - started) / (number + 1 - numbers[0])
                line = {"step": number + 1, **{k: round(v, 3) for k, v in mean.items()}, "s/step": round(pace, 2)}
                print(json.dumps(line), f"{minutes:.1f} min", f"rate {rate:.1e}", flush=True)
            if time.monotonic() - saved > 180:
                keep(number + 1)
                saved = time.monotonic()
            if stage.asks and (number + 1) % 100 == 0:
                print(held_out(trainee, 32), flush=True)
            if args.minutes and minutes > args.minutes:
                break
    keep(number + 1)
    print(f"{held_out(trainee, 256)}, {(time.monotonic() - begun) / 60:.0f} minutes")


def held_out(trainee: Trainee, count: int) -> str:
    """Accuracy on so many pages, in words."""
    known, other = (accuracy(trainee, count, held_back=kind) for kind in (False, True))
    return f"held-out {known:.3f}, other layouts and fonts {other:.3f}"


if __name__ == "__main__":
    main()
