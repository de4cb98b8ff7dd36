"""A harder small LLaVA: twelve to thirty cut-out things on a photograph, many alike, with parts and relations.

* Everything but the tower (tower.py, frozen) is as in LLaVA: visual tokens are projected (two layers), sines and
  cosines of row and column are added, and transformers' own Llama reads them with the question; one word answers.
* A scene is asked 40 questions in one sequence (llava.py); questions, and whether the scene is seen in a mirror (then
  left is right), are drawn anew each time.
* Extra losses, from masks of training scenes: what each cell shows, and where two heads look. Where a part is asked, at
  its cells: without that, what colour a part has was not learned in 350 steps, with it in 150.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface, LlamaForCausalLM

from training.harness import needed, write
from training.judges import llava
from training.judges.collage.cutouts import PARTS
from training.judges.collage.features import Made, load
from training.judges.collage.scenes import (
    CELLS,
    COLOURS,
    COLUMNS,
    FAMILIES,
    KINDS,
    NUMBERS,
    SIDE,
    Question,
    Scene,
    pick,
    questions_of,
)
from training.judges.collage.tower import NAMES, PLANES, WIDTH, cells_loss, shown_of
from training.judges.llava import ASSISTANT, BEFORE, EOS, IGNORED, PAD, SPECIAL, waves

SLOW = 1e8  # of the turns of places in the text: a word finds a cell 250 places before it
NOUNS = tuple(dict.fromkeys(KINDS.get(name, name) for name in NAMES))
ASKING = tuple("what colour is the part of how many left right above below".split())
VOCABULARY = {word: i for i, word in enumerate(dict.fromkeys((*SPECIAL, *ASKING, *COLOURS, *NOUNS, *PARTS, *NUMBERS)))}
PART_FAMILIES = [FAMILIES.index(name) for name in ("part", "part colour")]
SEED = 1
SLOT = 12  # the longest question has ten words; `<|assistant|>` and the answer follow
SIZE, SLOTS, STEPS, RATE = 5, 40, 1900, 1.5e-3
ALONE = 300  # steps of the projector alone, which learns what cells show: a twentieth of the time of the others


class Projector(nn.Module):
    """Visual tokens float [b, 256, WIDTH] -> [b, 256, width], with their places."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.one, self.two = nn.Linear(WIDTH, 2 * width), nn.Linear(2 * width, width)
        self.places = nn.Parameter(1.5 * waves(width))  # as large as the features, or "left of" is hardly learned

    def forward(self, tokens: Tensor) -> Tensor:
        seen: Tensor = self.two(nn.functional.gelu(self.one(self.norm(tokens))))
        return seen + self.places


class Collage(nn.Module):
    """Projector and language model, random weights (of torch's generator); parts lie where stock Llava has them."""

    def __init__(self, *, width: int = 192, layers: int = 4) -> None:
        super().__init__()
        self.sizes = {"width": width, "layers": layers}
        rope = {"rope_type": "default", "rope_theta": SLOW}
        text = LlamaForCausalLM(llava.llama(len(VOCABULARY), width, layers, rope_parameters=rope))
        self.projector = Projector(width)
        self.language_model, self.lm_head = text.model, text.lm_head
        self.config = SimpleNamespace(text_config=text.config)

    @property
    def model(self) -> Collage:
        """Where stock Llava keeps `language_model`."""
        return self

    def forward(self, tokens: Tensor) -> Tensor:
        """Visual tokens of the language model: [b, 256, width]."""
        projected: Tensor = self.projector(tokens)
        return projected


@dataclass(frozen=True)
class Batch:
    """Inputs of one step.

    Attributes:
        tokens: visual tokens float32 [b, 256, WIDTH]. ids, targets: int64 [b, n], see `llava.answers`.
        dense: int64 [b, 4, 256], what each cell shows, by PLANES. shown: int64 [b, 2, 256], which thing and which
            thing's tinted part, -1 for none.
        needs: int64 [b, n, 2]: where a question ends, the thing that it names and the one that is the answer; else -2.
        family: int64 [b, n], of the question that ends there, else -1.
    """

    tokens: Tensor
    ids: Tensor
    targets: Tensor
    dense: Tensor
    shown: Tensor
    needs: Tensor
    family: Tensor


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
        scene, there = of.made.scenes[index], of.made.shown[index]
        seen = shown_of(of.made, index)
        if turned:
            scene = mirrored(scene)
            there, seen = (p.reshape(-1, CELLS, CELLS)[..., ::-1].reshape(p.shape) for p in (there, seen))
        before = [(i, IGNORED, -2, -2, -1) for i in BEFORE]
        places.append([*before, *(place for q in pick(scene, slots, rng) for place in slot_of(q))])
        tokens.append(of.tokens[index, turned].astype(np.float32))
        shown.append(there.astype(np.int64))
        dense.append(seen)
    columns = torch.tensor(places)
    return Batch(
        tokens=torch.from_numpy(np.stack(tokens)), ids=columns[..., 0], targets=columns[..., 1],
        dense=torch.from_numpy(np.stack(dense)), shown=torch.from_numpy(np.stack(shown)),
        needs=columns[..., 2:4], family=columns[..., 4],
    )  # fmt: skip


class Trainee(nn.Module):
    """The model, and linear heads that predict what each cell shows."""

    def __init__(self, model: Collage) -> None:
        super().__init__()
        self.model = model
        width = model.sizes["width"]
        self.heads = nn.ModuleDict({name: nn.Linear(width, len(words)) for name, words in PLANES.items()})

    def seen(self, tokens: Tensor) -> Tensor:
        """Projected tokens [b, 256, width]."""
        projected: Tensor = self.model(tokens)
        return projected

    def dense_loss(self, features: Tensor, dense: Tensor) -> Tensor:
        """As the tower's: cross entropy over cells, with heads of its own."""
        return cells_loss(self.heads, features, dense)

    def answers(self, features: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """As `llava.answers`; heads are told to look at the thing named, then at the answer or its tinted part."""
        row, place = ((batch.targets != IGNORED) & (batch.targets != EOS)).nonzero(as_tuple=True)
        layers = len(self.model.language_model.layers)
        thing, part = batch.shown[row].unbind(1)
        of_part = torch.isin(batch.family[row, place], torch.tensor(PART_FAMILIES))[:, None]
        looks = [
            (layers - back, row, place, at == batch.needs[row, place, which][:, None])
            for which, (back, at) in enumerate(((3, thing), (2, torch.where(of_part, part, thing))))
        ]
        return llava.answers(self.model, features, batch.ids, batch.targets, SLOT, looks)


def align(trainee: Trainee) -> None:
    """Words begin where the projector puts what they name, and two heads begin as what they are told to be.

    Directions are those of the heads that predict what cells show. The head that looks for the thing named compares
    words with cells and hands on its place; the one that looks at the answer hands on what is there.
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


def loss_of(trainee: Trainee, batch: Batch, *, asks: bool) -> tuple[Tensor, dict[str, float]]:
    """The loss of a step; its parts and the shares of right answers by family."""
    with torch.autocast("cpu", torch.bfloat16):
        features = trainee.seen(batch.tokens)
        extra = trainee.dense_loss(features, batch.dense)
        loss, out = extra * (0.3 if asks else 1.0), {"dense": float(extra.detach())}
        if asks:
            logits, targets, looks = trainee.answers(features, batch)
            answer = F.cross_entropy(logits, targets)
            loss = loss + answer + 2.0 * looks
            out |= {"looks": float(looks.detach()), "loss": float(answer.detach())} | _right(logits, targets, batch)
    return loss, out


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
            logits, targets, _ = trainee.answers(trainee.seen(batch.tokens), batch)
        for name, share in _right(logits, targets, batch).items():
            sums.setdefault(name, []).append(share)
    return {name: round(float(np.mean(some)), 3) for name, some in sums.items()}


def save(model: Collage, folder: Path) -> None:
    """The model's weights, written whole."""
    kept = {"sizes": model.sizes, "weights": model.state_dict()}
    write(folder / "model.pt", lambda file: torch.save(kept, file))


def loaded(folder: Path) -> Collage:
    """The model of CACHE/collage/model.pt."""
    needed(folder, "model.pt", hint="first run python -m training.judges.collage --data DATA --cache CACHE")
    kept = torch.load(folder / "model.pt", weights_only=True)
    model = Collage(**kept["sizes"])
    model.load_state_dict(kept["weights"])
    return model.eval()


def train(folder: Path, *, alone: int, steps: int, size: int, slots: int, every: int = 50, **sizes: int) -> Trainee:
    """All steps that are missing; state and model are kept every `every` steps."""
    torch.manual_seed(SEED)
    AttentionInterface.register("slots", llava.slotted(SLOT))
    trainee = Trainee(Collage(**sizes))
    trainee.model.config.text_config._attn_implementation = "slots"
    made, held = learned(folder, "train"), learned(folder, "held")
    useful = asked_about(made)

    def prepared(step: int) -> Batch:
        rng = np.random.default_rng([SEED, step])
        return batch_of(made, rng.choice(useful, size).tolist(), rng, slots=slots)

    def step(number: int, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        if number == alone:
            align(trainee)
        return loss_of(trainee, batch, asks=number >= alone)

    llava.train(
        trainee,
        step,
        lambda done: llava.ahead(prepared, range(done, alone + steps)),
        [llava.rate_at(n if n < alone else n - alone, steps, RATE) for n in range(alone + steps)],
        folder / "state.pt",
        partial(save, trainee.model, folder),
        partial(accuracy, trainee, held),
        every=every,
    )
    return trainee
