"""A LLaVA of six million parameters that reads pages.

    python -m training.judges.micro_doc.train --out FOLDER [--compile]      under two hours on two cores

* 256 x 256 pixels in patches of 16: 16 x 16 cells, with two or three characters each. Words of questions are tokens,
  and so is each character of an answer. Many questions of a page in one sequence (llava.py), three stages; the last one
  leaves cells out: without it even the answer's own cells were not enough.
* An extra loss asks each cell, on the projected features, for its characters, whose they are (key or thing, column) and
  which character of the value it begins with. At first alone: a model that cannot read learns no answers.
* Two more tell heads where to look: in the tower from a cell to its key and to all of its value (which were not found
  in 1,500 steps without), in the language model to the cell of the answer's next character.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import decoders
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

from training.judges import llava
from training.judges.llava import ASSISTANT, BEFORE, CELLS, EOS, IGNORED, PAD, PREFIX, TOKENS, Kind
from training.judges.micro_doc.pages import SIDE, VALUE, Page, Question, characters, draw, page_of, questions_of
from training.judges.micro_doc.words import ALPHABET, COLUMNS, KEYS, LONGEST, THINGS

PATCH = SIDE // CELLS
WORDS = tuple(
    dict.fromkeys(
        ["what", "is", "the", "which", "it", "given", "how", "much", "are", "of", "have", *COLUMNS, *THINGS]
        + [word for key in KEYS for word in key.split()]
        + [f"##{letter}" for letter in ALPHABET]
    )
)
LETTERS = decoders.Sequence([decoders.Replace("##", ""), decoders.Fuse()])
KIND = Kind(WORDS, LETTERS, SIDE, 0.9, 0.25)  # paper is about 0
VOCABULARY = KIND.vocabulary
SIZES = {"tower": 192, "tower_layers": 6, "width": 256, "layers": 4, "head": 64}
ASKED = 7  # words of the longest question
SLOT = ASKED + 1 + LONGEST
SLOTS = 4  # characters of a cell that the extra loss asks for: in order, and by the quarter that they stand in
GLYPHS = {letter: i + 1 for i, letter in enumerate(ALPHABET.strip() + ",")}
OWNERS = {name: i + 1 for i, name in enumerate((*KEYS, *THINGS))}
HEADERS = {name: i + 1 for i, name in enumerate(COLUMNS)}
PLANES = {
    **{f"quarter{k}": len(GLYPHS) + 1 for k in range(SLOTS)},
    **{f"glyph{k}": len(GLYPHS) + 1 for k in range(SLOTS)},
    "owner": len(OWNERS) + 1,
    "column": len(HEADERS) + 1,
    "place": LONGEST + 1,
}


SEED, HELD_OUT = 1, 2  # of pages
LOOKS = (1, 2)  # layers whose first head is told where the next character stands
LINKS = (1, 2, 3, 4)  # of the tower: layers whose first two heads are told which cells belong together
OWNER = list(PLANES).index("owner")
HEAVY = {"owner": 3.0, "place": 2.0}  # planes that count more


def model(**sizes: int) -> Any:
    """A model with random weights; pixels begin as the cosines of a patch, coarse ones first, which lose nothing."""
    made = KIND.model(**{**SIZES, **sizes})
    pixels = made.model.vision_tower.embeddings.patch_embedding.weight
    step = (torch.arange(PATCH) + 0.5) * math.pi / PATCH
    one = torch.cos(torch.arange(PATCH)[:, None] * step) * (2 / PATCH) ** 0.5
    one[0] /= 2**0.5
    both = torch.einsum("ay,bx->abyx", one, one).flatten(0, 1)
    order = (torch.arange(PATCH)[:, None] + torch.arange(PATCH)).flatten().argsort(stable=True)
    with torch.no_grad():
        pixels[: len(both)] = both[order][: len(pixels), None] / 3
    return made


@dataclass(frozen=True)
class Batch:
    """Inputs of one step.

    Attributes:
        pixels: float32 [b, 3, SIDE, SIDE], normalised as the processor does.
        ids: int64 [b, n]. targets: see `llava.answers`.
        dense: int64 [b, planes, TOKENS]: what the extra loss asks of each cell, 0 for none.
        looks: int64 like ids: where an answer's character stands, the cell of that character, else -1.
    """

    pixels: Tensor
    ids: Tensor
    targets: Tensor
    dense: Tensor
    looks: Tensor


def words_of(question: str) -> list[int]:
    """Tokens of a question, as the tokenizer makes them."""
    return [VOCABULARY[word] for word in question.lower().rstrip("?").split()]


def cells_of(centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """The cell of each place (y, x), -1 outside."""
    at = np.floor(centres / PATCH).astype(np.int64)
    return np.where(((at >= 0) & (at < CELLS)).all(1), at[:, 0] * CELLS + at[:, 1], -1)


def dense_of(page: Page) -> tuple[NDArray[np.int64], dict[int, list[int]]]:
    """What the extra loss asks of each cell, [planes, TOKENS]; and each field's cells of its value's characters."""
    found = characters(page)
    cells = cells_of(found.centres)
    dense = np.zeros((len(PLANES), TOKENS), np.int64)
    filled = np.zeros(TOKENS, np.int64)
    where: dict[int, list[int]] = {k: [-1] * len(one.value) for k, one in enumerate(page.fields)}
    names = list(PLANES)
    owner, column, place = (names.index(name) for name in ("owner", "column", "place"))
    order = np.lexsort((found.centres[:, 1], found.run, np.round(found.centres[:, 0] / 5), cells))
    for i in order:
        cell = cells[i]
        if cell < 0:
            continue
        glyph = GLYPHS[found.text[i]]
        dense[int(found.centres[i, 1] % PATCH * SLOTS / PATCH), cell] = glyph
        if filled[cell] < SLOTS:
            dense[SLOTS + filled[cell], cell] = glyph
            filled[cell] += 1
        run = page.runs[found.run[i]]
        if run.field < 0:
            continue
        one = page.fields[run.field]
        if run.role == VALUE:
            where[run.field][found.place[i]] = int(cell)
        if not dense[owner, cell]:
            dense[owner, cell] = OWNERS[one.key]
            if run.role == VALUE:
                dense[column, cell] = HEADERS.get(one.column, 0)
                dense[place, cell] = found.place[i] + 1
    return dense, where


def slot_of(question: Question, where: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Tokens, targets and looks of one question, each SLOT long."""
    words = words_of(question.text)
    answer = [VOCABULARY[f"##{letter}"] for letter in question.answer]
    ids = [*words, ASSISTANT, *answer]
    targets = [IGNORED] * len(words) + [*answer, EOS]
    looks = [-1] * len(words) + [*where, -1]
    rest = SLOT - len(ids)
    return ids + [PAD] * rest, targets + [IGNORED] * rest, looks + [-1] * rest


def batch_of(
    seed: int, first: int, count: int, questions: int, *, held_back: bool = False, plain: bool = False
) -> Batch:
    """Pages number first .. first + count - 1 of a seed; `questions` of each, some twice where it has fewer."""
    pictures, ids, targets, dense, looks = [], [], [], [], []
    for index in range(first, first + count):
        page = page_of(seed, index, held_back=held_back, plain=plain)
        planes, where = dense_of(page)
        asked = questions_of(page)
        slots = [slot_of(q, where[q.field]) for k in range(questions) for q in (asked[k % len(asked)],)]
        pictures.append(draw(page))
        ids.append([*BEFORE, *(i for slot in slots for i in slot[0])])
        targets.append([*[IGNORED] * PREFIX, *(i for slot in slots for i in slot[1])])
        looks.append([*[-1] * PREFIX, *(i for slot in slots for i in slot[2])])
        dense.append(planes)
    return Batch(
        KIND.normalised(pictures),
        torch.tensor(ids),
        torch.tensor(targets),
        torch.from_numpy(np.stack(dense)),
        torch.tensor(looks),
    )


# --- training ---------------------------------------------------------------------------------------------------------


def plain(
    module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Everything sees everything: [b, heads, n, d] -> [b, n, heads, d]."""
    weights = ((q * scaling) @ k.transpose(-1, -2)).softmax(-1)
    return (weights @ v).transpose(1, 2), None


AttentionInterface.register("micro_doc_plain", plain)
AttentionInterface.register("micro_doc_slotted", llava.slotted(SLOT))


@contextmanager
def quick(model: Any) -> Iterator[None]:
    """Within it, tower and language model attend by the functions above."""
    configs = (model.model.vision_tower.config, model.model.language_model.config)
    before = [config._attn_implementation for config in configs]
    for config, name in zip(configs, ("micro_doc_plain", "micro_doc_slotted"), strict=True):
        config._attn_implementation = name
    try:
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation = name


class Trainee(nn.Module):
    """The model, and linear heads that predict what each cell shows."""

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
        """As `llava.answers`; heads are told to look at the cell of the next character."""
        row, place = (batch.looks >= 0).nonzero(as_tuple=True)
        there = F.one_hot(batch.looks[row, place], TOKENS).bool()
        looks = [(number, row, place, there) for number in LOOKS] if torch.is_grad_enabled() else []
        return llava.answers(self.model, features, batch.ids, batch.targets, SLOT, looks, kept)


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


@dataclass(frozen=True)
class Stage:
    """Steps of one kind: how many; questions of each page; whether answers count; weights of the extra losses."""

    steps: int
    questions: int
    asks: bool
    dense: float
    links: float
    look: float
    drops: bool = False


def stages(see: int, both: int, some: int) -> tuple[Stage, ...]:
    """Tower and projector alone; everything; everything, with some of the cells."""
    return (
        Stage(see, 1, asks=False, dense=1.0, links=2.0, look=0.0),
        Stage(both, 12, asks=True, dense=0.5, links=0.0, look=1.0),
        Stage(some, 5, asks=True, dense=0.5, links=0.0, look=0.5, drops=True),
    )


def loss_of(trainee: Trainee, batch: Batch, stage: Stage, step: int = 0) -> tuple[Tensor, dict[str, float]]:
    """The loss of a step; its parts and the shares of what is right."""
    with torch.autocast("cpu", torch.bfloat16), quick(trainee.model):
        features, states = trainee.seen(batch.pixels)
        extra, out = trainee.dense_loss(features, batch.dense)
        loss, out["dense"] = stage.dense * extra, float(extra.detach())
        if stage.links:
            links = trainee.links_loss(states, batch.dense)
            loss, out["links"] = loss + stage.links * links, float(links.detach())
        if stage.asks:
            kept = some_cells(batch, step) if stage.drops else None
            logits, targets, looks = trainee.answers(features, batch, kept)
            answer = F.cross_entropy(logits, targets)
            loss = loss + answer + stage.look * looks
            hits, every = exact(logits.detach(), batch)
            out |= {"looks": float(looks.detach()), "loss": float(answer.detach()), "exact": hits / every}
    return loss, out


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, nargs=3, default=(2650, 2100, 500), help="of the three stages")
    parser.add_argument("--compile", action="store_true", help="a third faster; needs a C++ compiler")
    args = parser.parse_args()
    cv2.setNumThreads(1)  # its threads wait by spinning, which starves the others
    torch.manual_seed(SEED)
    trainee = Trainee(model())
    if args.compile:
        llava.compiled(trainee.model)
    plan = [stage for stage in stages(*args.steps) for _ in range(stage.steps)]
    orders = [(8 * number, stage.questions) for number, stage in enumerate(plan)]
    llava.train(
        trainee,
        lambda number, batch: loss_of(trainee, batch, plan[number], number),
        lambda done: llava.ahead(lambda o: batch_of(SEED, o[0], 8, o[1]), orders[done:]),
        [llava.rate_at(n, len(plan), 1e-3, level=0.78) for n in range(len(plan))],
        args.out / "state.pt",
        partial(KIND.save, trainee.model, args.out / "model"),
        lambda: [round(accuracy(trainee, 64, held_back=kind), 3) for kind in (False, True)],
    )


if __name__ == "__main__":
    main()
