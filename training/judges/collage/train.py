"""Trains the LLaVA of cut-outs: `python -m training.judges.collage.train --cache CACHE`, half an hour on two cores.

What is notable
* A scene is asked 24 questions in one sequence, as in micro_vlm/batches.py; questions, and whether the scene is seen in
  a mirror (then left is right), are drawn anew each time.
* Three extra losses that no user's model has: what each cell shows (name, colour) read off the projected tokens; one
  head looks at the thing named; one head, a layer later, at the thing that is the answer. Masks of training scenes.
* No tokens are dropped in training: the models that foveate is made for have not seen that either.
* Attention in two blocks (`attend_in_slots`): what the mask hides is not computed. Half the time of a step.
* bfloat16 arithmetic where autocast allows it, AdamW, cosine. Continues from CACHE/collage/state.pt.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

from training.experiments.examples import needed
from training.judges.collage.features import Made, load
from training.judges.collage.model import VOCABULARY, Collage
from training.judges.collage.scenes import CELLS, COLUMNS, FAMILIES, KINDS, SIDE, Scene, pick, questions_of
from training.judges.collage.tower import PLANES, cells_loss, shown_of
from training.judges.micro_vlm.batches import IGNORED, PREFIX
from training.judges.micro_vlm.model import ASSISTANT, BOS, EOS, IMAGE, PAD, TOKENS, USER
from training.judges.micro_vlm.scenes import Question
from training.judges.micro_vlm.train import Trainee as Shapes
from training.judges.micro_vlm.train import optimiser, rate_at

SEED = 1
SLOT = 12  # the longest question has ten words; `<|assistant|>` and the answer follow
SIZE, SLOTS, STEPS, RATE = 8, 24, 3600, 1.5e-3
ALONE = 400  # steps of the projector alone, which learns what cells show: a twentieth of the time of the others


@dataclass(frozen=True)
class Batch:
    """Inputs of one step: as micro_vlm's, with visual tokens float32 [b, 256, WIDTH] in place of pixels.

    `family`: int64 [b, n], of the question that ends there, else -1.
    """

    tokens: Tensor
    ids: Tensor
    targets: Tensor
    dense: Tensor
    shown: Tensor
    needs: Tensor
    family: Tensor
    slots: int


def mirrored(scene: Scene) -> Scene:
    """Left and right exchanged."""
    return replace(
        scene,
        things=tuple(
            replace(
                t, column=COLUMNS - 1 - t.column, flip=not t.flip,
                box=(t.box[0], SIDE - t.box[1] - t.box[3], t.box[2], t.box[3]),
            )
            for t in scene.things
        ),
    )  # fmt: skip


def slot_of(question: Question) -> list[tuple[int, int, int, int, int]]:
    """Token, target, the thing named, the thing that is the answer, family; SLOT places."""
    answer = VOCABULARY[question.answer]
    words = [(VOCABULARY[word], IGNORED, -2, -2, -1) for word in question.text.split()]
    family = FAMILIES.index(question.family)
    first, last = (question.needs[0], question.needs[-1]) if question.family != "count" else (-2, -2)
    out = [*words, (ASSISTANT, answer, first, last, family), (answer, EOS, -2, -2, -1)]
    return out + [(PAD, IGNORED, -2, -2, -1)] * (SLOT - len(out))


@dataclass(frozen=True, eq=False)
class Learned:
    """Scenes with the tower's tokens float16 [n, 2, 256, WIDTH], and what is drawn on them (`Made`)."""

    tokens: np.ndarray
    made: Made


def learned(folder: Path, side: str) -> Learned:
    """Of a side."""
    needed(folder / side, "tokens.npy", hint="first run python -m training.judges.collage.tower --cache CACHE")
    tokens = np.load(folder / side / "tokens.npy", mmap_mode="r")
    return Learned(tokens, load(folder, side))


def asked_about(of: Learned) -> list[int]:
    """The scenes that leave a question."""
    return [k for k, scene in enumerate(of.made.scenes[: len(of.tokens)]) if questions_of(scene)]


def batch_of(of: Learned, indices: list[int], rng: np.random.Generator, *, slots: int, mirrors: bool = True) -> Batch:
    """Scenes of these numbers, `slots` questions each."""
    tokens, places, dense, shown = [], [], [], []
    for index in indices:
        turned = int(mirrors and rng.random() < 0.5)
        scene, there = of.made.scenes[index], of.made.shown[index][0]
        seen = shown_of(of.made, index)
        if turned:
            scene = mirrored(scene)
            there, seen = (p.reshape(-1, CELLS, CELLS)[..., ::-1].reshape(p.shape) for p in (there, seen))
        before = [(i, IGNORED, -2, -2, -1) for i in (BOS, USER, *[IMAGE] * TOKENS)]
        places.append([*before, *(place for q in pick(scene, slots, rng) for place in slot_of(q))])
        tokens.append(of.tokens[index, turned].astype(np.float32))
        shown.append(there.astype(np.int64))
        dense.append(seen)
    columns = torch.tensor(places)
    return Batch(
        tokens=torch.from_numpy(np.stack(tokens)), ids=columns[..., 0], targets=columns[..., 1],
        dense=torch.from_numpy(np.stack(dense)), shown=torch.from_numpy(np.stack(shown)),
        needs=columns[..., 2:4], family=columns[..., 4], slots=slots,
    )  # fmt: skip


def attend_in_slots(
    module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Attention [b, heads, n, d] of the picture to itself, and of each slot to the picture and to itself; causal.

    The same as with the mask of micro_vlm/batches.py, whose hidden three quarters are not computed.
    """
    b, heads, n, d = q.shape
    slots = (n - PREFIX) // SLOT
    hidden = torch.full((PREFIX, PREFIX), -torch.inf, dtype=q.dtype).triu(1)
    first = torch.softmax(q[:, :, :PREFIX] @ k[:, :, :PREFIX].mT * scaling + hidden, -1) @ v[:, :, :PREFIX]
    asked, keys, values = (t[:, :, PREFIX:].reshape(b, heads, slots, SLOT, d) for t in (q, k, v))
    own = asked @ keys.mT * scaling + hidden[:SLOT, :SLOT]
    seen = (q[:, :, PREFIX:] @ k[:, :, :PREFIX].mT * scaling).reshape(b, heads, slots, SLOT, PREFIX)
    weights = torch.softmax(torch.cat([seen, own], -1), -1)
    of_picture = weights[..., :PREFIX].reshape(b, heads, -1, PREFIX) @ v[:, :, :PREFIX]
    of_slot = (weights[..., PREFIX:] @ values).reshape(b, heads, -1, d)
    return torch.cat([first, of_picture + of_slot], 2).transpose(1, 2).contiguous(), None


class Trainee(Shapes):
    """The model, and the heads that say what is in a cell; `answers` is micro_vlm's."""

    def __init__(self, model: Collage) -> None:
        nn.Module.__init__(self)
        self.model = model
        width = model.sizes["width"]
        self.heads = nn.ModuleDict({name: nn.Linear(width, len(words)) for name, words in PLANES.items()})

    def seen(self, tokens: Tensor, *, learn: bool = True) -> Tensor:
        """Projected tokens [b, 256, width]."""
        with torch.set_grad_enabled(learn and torch.is_grad_enabled()):
            projected: Tensor = self.model(tokens)
            return projected

    def dense_loss(self, features: Tensor, dense: Tensor) -> Tensor:
        """As the tower's: cross entropy over cells, with heads of its own."""
        return cells_loss(self.heads, features, dense)


def align(trainee: Trainee) -> None:
    """Words begin where the projector puts what they name, and two heads begin as what they are told to be.

    Directions are those of the heads that say what is in a cell. The head that looks for the thing named compares words
    with cells and hands on its place; the one that looks at the answer hands on what is there.
    """
    model, head = trainee.model, trainee.model.language_model.layers[0].self_attn.head_dim
    found: dict[str, list[Tensor]] = {}
    for plane, words in PLANES.items():
        weight = F.normalize(trainee.get_submodule(f"heads.{plane}").get_parameter("weight").detach(), dim=1)
        for word, direction in zip(words, weight, strict=True):
            if word and KINDS.get(word, word) in VOCABULARY:
                found.setdefault(KINDS.get(word, word) if plane == "name" else word, []).append(direction)
    seen = torch.linalg.svd(torch.stack([d for some in found.values() for d in some]))[2]
    places = torch.linalg.svd(model.projector.places.detach(), full_matrices=False)[2]
    slow = torch.cat([torch.arange(12, head // 2), torch.arange(head // 2 + 12, head)])
    with torch.no_grad():
        for word, some in found.items():
            direction = F.normalize(torch.stack(some).sum(0), dim=0)
            model.language_model.embed_tokens.weight[VOCABULARY[word]] += direction
            model.lm_head.weight[VOCABULARY[word]] += 0.4 * direction
        named, answer = model.language_model.layers[-3].self_attn, model.language_model.layers[-2].self_attn
        named.q_proj.weight[slow] += seen[: len(slow)]
        named.k_proj.weight[slow] += seen[: len(slow)]
        for layer, basis in ((named, places), (answer, seen)):
            layer.v_proj.weight[:head] += basis[:head]
            layer.o_proj.weight[:, :head] += 0.5 * basis[:head].T


def one_step(trainee: Trainee, optimizer: Any, batch: Batch, *, asks: bool, rate: float) -> dict[str, float]:
    """One optimiser step; the losses and the shares of right answers by family."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cpu", torch.bfloat16):
        features = trainee.seen(batch.tokens)
        extra = trainee.dense_loss(features, batch.dense)
        loss, out = extra * (0.3 if asks else 1.0), {"dense": float(extra.detach())}
        if asks:
            logits, targets, looks = trainee.answers(features, batch)  # type: ignore[arg-type]
            answer = F.cross_entropy(logits, targets)
            loss = loss + answer + 2.0 * looks
            out |= {"looks": float(looks.detach()), "loss": float(answer.detach())} | _right(logits, targets, batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(trainee.parameters(), 1.0)
    optimizer.step()
    return out


def _right(logits: Tensor, targets: Tensor, batch: Batch) -> dict[str, float]:
    family = batch.family[batch.targets != IGNORED]
    hit = (logits.argmax(-1) == targets).float()
    return {name: float(hit[family == k].mean()) for k, name in enumerate(FAMILIES) if (family == k).any()}


def accuracy(trainee: Trainee, of: Learned, *, count: int = 40, slots: int = 36) -> dict[str, float]:
    """Shares of right answers by family, teacher-forced, with all tokens."""
    rng, sums, useful = np.random.default_rng(0), dict[str, list[float]](), asked_about(of)[:count]
    for first in range(0, len(useful), 10):
        batch = batch_of(of, useful[first : first + 10], rng, slots=slots, mirrors=False)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            logits, targets, _ = trainee.answers(trainee.seen(batch.tokens), batch)  # type: ignore[arg-type]
        for name, share in _right(logits, targets, batch).items():
            sums.setdefault(name, []).append(share)
    return {name: round(float(np.mean(some)), 3) for name, some in sums.items()}


def saved(trainee: Trainee, folder: Path) -> None:
    """The model's weights, written whole."""
    torch.save({"sizes": trainee.model.sizes, "weights": trainee.model.state_dict()}, folder / "new_model.pt")
    (folder / "new_model.pt").replace(folder / "model.pt")


def loaded(folder: Path) -> Collage:
    """The model of CACHE/collage/model.pt."""
    needed(folder, "model.pt", hint="first run python -m training.judges.collage.train --cache CACHE")
    kept = torch.load(folder / "model.pt", weights_only=True)
    model = Collage(**kept["sizes"])
    model.load_state_dict(kept["weights"])
    return model.eval()


def train(
    folder: Path, *, alone: int, steps: int, rate: float, size: int, slots: int, every: int = 50, **sizes: int
) -> Trainee:
    """All steps that are missing; state and model are kept every `every` steps."""
    torch.manual_seed(SEED)
    AttentionInterface.register("slots", attend_in_slots)
    trainee = Trainee(Collage(**sizes))
    trainee.model.config.text_config._attn_implementation = "slots"
    optimizer = optimiser(trainee)
    done, spent, state = 0, 0.0, folder / "state.pt"
    if state.exists():
        kept = torch.load(state, weights_only=True)
        trainee.load_state_dict(kept["trainee"])
        optimizer.load_state_dict(kept["optimizer"])
        done, spent = kept["step"], kept["spent"]
    print(f"{sum(p.numel() for p in trainee.model.parameters()) / 1e6:.1f} M parameters, from step {done}", flush=True)
    made, held = learned(folder, "train"), learned(folder, "held")
    useful = asked_about(made)
    begun, started, mean = time.monotonic() - spent, time.monotonic(), dict[str, float]()

    def keep(step: int) -> None:
        now = {"step": step, "spent": time.monotonic() - begun}
        torch.save({"trainee": trainee.state_dict(), "optimizer": optimizer.state_dict(), **now}, folder / "new.pt")
        (folder / "new.pt").replace(state)
        saved(trainee, folder)

    def prepared(step: int) -> Batch:
        rng = np.random.default_rng([SEED, step])
        few = rng.choice(useful, size).tolist()
        return batch_of(made, few, rng, slots=slots)

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(prepared, done)
        for step in range(done, alone + steps):
            batch = coming.result()
            coming = pool.submit(prepared, step + 1)
            if step == alone:
                align(trainee)
            now = one_step(
                trainee,
                optimizer,
                batch,
                asks=step >= alone,
                rate=rate_at(step if step < alone else step - alone, steps, rate),
            )
            mean = {k: v if k not in mean else 0.95 * mean[k] + 0.05 * v for k, v in (mean | now).items()}
            if (step + 1) % 25 == 0:
                pace = (time.monotonic() - started) / (step + 1 - done)
                line = {"step": step + 1, **{k: round(v, 3) for k, v in mean.items()}, "s/step": round(pace, 2)}
                print(json.dumps(line), f"{(alone + steps - step - 1) * pace / 60:.0f} min left", flush=True)
            if (step + 1) % every == 0 or step + 1 == alone + steps:
                keep(step + 1)
            if step >= alone and (step + 1) % 200 == 0:
                trainee.eval()
                print(f"held out {json.dumps(accuracy(trainee, held))}", flush=True)
                trainee.train()
    print(f"held out {json.dumps(accuracy(trainee, held, count=100))}, {(time.monotonic() - begun) / 60:.0f} minutes")
    return trainee


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.judges.collage.train",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--rate", type=float, default=RATE)
    args = parser.parse_args()
    train(args.cache / "collage", alone=ALONE, steps=args.steps, rate=args.rate, size=SIZE, slots=SLOTS)


if __name__ == "__main__":
    main()
