"""What answers lose where the vision encoder sees kept tokens alone (mode "sparse", `foveate_encode: "kept"`).

    python -m training.judges.alone --out FOLDER [--steps 1800]      fifteen minutes of one core; prints a table

A LLaVA of 1.6 million parameters learns, with all tokens, to answer about pictures of 128 x 128 pixels in 8 x 8 tokens:

* pages: three or four lines of a key and three digits ("what is the gate");
* photographs: two of five things, cut out of the package's photographs, in two of four bands on grey noise ("what is
  beside cake", "where is cake"), the scenes of `projector/demo.py`.

Then each held-out picture is asked once with all tokens, and with a budget in the modes "drop" (the encoder saw the
whole picture) and "sparse", of the same tokens: those that foveate chooses, and the best ones (those of what is asked
about and of its answer, then any). So what differs between the columns is what the encoder saw. A loss on cells, as in
`micro_doc`, teaches the tower to read, and to say whose value a digit is, which it can only know from other cells. In
that time the model learns to see, and not to spell: of pages the heads are judged that this loss taught, which say the
digits of a token.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from tokenizers import decoders
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration

import foveate.vlm
from training.judges import llava
from training.judges.llava import ASSISTANT, BOS, EOS, IGNORED, IMAGE, PAD, USER, Kind
from training.judges.micro_doc.pages import font
from training.judges.projector import demo

SIDE, CELLS = 128, 8
CELL = SIDE // CELLS
KEYS = ("gate", "room", "seat", "price", "total", "track", "code", "floor", "line", "table")
FACES = ("truetype/dejavu/DejaVuSans.ttf", "truetype/dejavu/DejaVuSans-Bold.ttf")
DIGITS = tuple("0123456789")
ANSWERS = (*DIGITS, *demo.THINGS, *demo.BANDS)
WORDS = ("what", "is", "the", "where", "beside", *KEYS, *demo.THINGS, *demo.BANDS, *(f"##{digit}" for digit in DIGITS))
KIND = Kind(WORDS, decoders.Sequence([decoders.Replace("##", ""), decoders.Fuse()]), SIDE, 0.6, 0.3)
PLANES = {"left": 11, "right": 11, "shows": 1 + len(KEYS) + len(demo.THINGS), "place": 4}
BUDGETS = (16, 8, 4)
STEPS = 1800
HELD_OUT = 10**9


@dataclass(frozen=True)
class Asked:
    """A picture uint8 [SIDE, SIDE, 3], a question, its answer in words, and what the extra loss asks of each cell.

    dense: int64 [planes, CELLS ** 2], 0 for nothing. best: the cells of what is asked about and of its answer.
    """

    picture: NDArray[np.uint8]
    question: str
    answer: tuple[str, ...]
    dense: NDArray[np.int64]
    best: tuple[int, ...]


def page_of(seed: int) -> Asked:
    """Lines of a key and three digits; one of them is asked for."""
    rng = np.random.default_rng([1, seed])
    paper, ink = int(rng.integers(215, 256)), int(rng.integers(0, 80))
    plane = Image.new("RGB", (SIDE, SIDE), (paper,) * 3)
    pencil, dense = ImageDraw.Draw(plane), np.zeros((len(PLANES), CELLS**2), np.int64)
    lines = int(rng.integers(3, 5))
    keys, found = rng.permutation(len(KEYS))[:lines], []
    step = SIDE / lines
    for number, key in enumerate(keys):
        face = font(FACES[rng.integers(len(FACES))], int(rng.integers(14, 17)))
        y = number * step + rng.uniform(2, step - 20)
        x = rng.uniform(2, 14)
        value = "".join(DIGITS[n] for n in rng.integers(0, 10, 3))
        pencil.text((x, y), KEYS[key], font=face, fill=(ink,) * 3)
        line = {cell_at(y + 9, x + face.getlength(KEYS[key][:n]) + 4) for n in range(len(KEYS[key]))}
        for cell in line:
            dense[2, cell] = 1 + key
        x = max(x + face.getlength(KEYS[key]) + 8, rng.uniform(64, 92))
        for n, digit in enumerate(value):
            pencil.text((x, y), digit, font=face, fill=(ink,) * 3)
            middle = x + face.getlength(digit) / 2
            cell = cell_at(y + 9, middle)
            dense[int(middle % CELL >= CELL / 2), cell] = 1 + int(digit)
            dense[2, cell] = 1 + key
            dense[3, cell] = dense[3, cell] or 1 + n
            line.add(cell)
            x += face.getlength(digit) + 0.5
        found.append((KEYS[key], value, tuple(line)))
    asked, value, best = found[rng.integers(lines)]
    noise = rng.normal(0, rng.uniform(0, 6), (SIDE, SIDE, 1))
    picture = np.clip(np.asarray(plane) + noise, 0, 255).astype(np.uint8)
    return Asked(picture, f"what is the {asked}", tuple(f"##{digit}" for digit in value), dense, best)


def cell_at(y: float, x: float) -> int:
    return int(min(y, SIDE - 1) // CELL * CELLS + min(x, SIDE - 1) // CELL)


def scene_of(seed: int) -> Asked:
    """Two things in two bands, on grey noise."""
    rng = np.random.default_rng([2, seed])
    scene = demo.patches(rng)
    tall = Image.fromarray(demo.painted(scene, rng))  # 8 x 4 cells of 24 pixels: two of ours stand for one across
    picture = np.asarray(tall.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
    dense, cells = np.zeros((len(PLANES), CELLS**2), np.int64), []
    for patch in scene:
        y0, x0, y1, x1 = patch.box
        y, x = np.mgrid[:CELLS, :CELLS] + 0.5
        inside = np.flatnonzero((y > y0) & (y < y1) & (x / 2 > x0) & (x / 2 < x1))
        dense[2, inside] = 1 + len(KEYS) + list(demo.THINGS).index(patch.thing)
        cells.append(tuple(inside.tolist()))
    asked = demo.questions(scene)
    number = int(rng.integers(len(asked)))
    question, answer = asked[number]
    best = cells[0] + cells[1] if number < 2 else cells[number - 2]
    return Asked(picture, question.removesuffix(" ?"), (answer,), dense, best)


def sequence_of(asked: Asked) -> tuple[list[int], list[int]]:
    """Ids and targets."""
    ids = KIND.vocabulary
    before = [BOS, USER, *[IMAGE] * CELLS**2, *(ids[word] for word in asked.question.split()), ASSISTANT]
    answer = [*(ids[word] for word in asked.answer), EOS]
    return [*before, *answer], [*[IGNORED] * len(before), *answer]


@dataclass(frozen=True)
class Batch:
    """pixels [b, 3, SIDE, SIDE]; ids, targets [b, n]; dense [b, planes, CELLS ** 2]."""

    pixels: Tensor
    ids: Tensor
    targets: Tensor
    dense: Tensor


def batch_of(first: int, size: int = 24) -> Batch:
    """Half of each kind."""
    made = [(page_of if n % 2 else scene_of)(n) for n in range(first, first + size)]
    rows = [sequence_of(each) for each in made]
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [PAD] * (longest - len(ids)) for ids, _ in rows])
    targets = torch.tensor([targets + [IGNORED] * (longest - len(targets)) for _, targets in rows])
    dense = torch.from_numpy(np.stack([each.dense for each in made]))
    return Batch(KIND.normalised([each.picture for each in made]), ids, targets, dense)


def model_of() -> Any:
    """A stock LLaVA with random weights."""
    tower = CLIPVisionConfig(
        hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, image_size=SIDE,
        patch_size=CELL, projection_dim=128, hidden_act="gelu",
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=tower, text_config=llava.llama(len(KIND.vocabulary), 128, 2), image_token_id=IMAGE,
        image_seq_length=CELLS**2, vision_feature_layer=-1, vision_feature_select_strategy="default",
        tie_word_embeddings=False,
    )  # fmt: skip
    model = LlavaForConditionalGeneration(config)
    settings = model.generation_config
    settings.bos_token_id, settings.eos_token_id, settings.pad_token_id = BOS, EOS, PAD
    return model


class Trainee(nn.Module):
    """The model, and linear heads that say what each cell shows."""

    def __init__(self) -> None:
        super().__init__()
        self.model = model_of()
        self.heads = nn.ModuleList([nn.Linear(128, count) for count in PLANES.values()])

    def loss(self, number: int, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """Of answers and of cells."""
        inner = self.model.model
        seen = inner.multi_modal_projector(inner.vision_tower(pixel_values=batch.pixels).last_hidden_state[:, 1:])
        dense, right = seen.new_zeros(()), {}
        for (name, count), head, target in zip(PLANES.items(), self.heads, batch.dense.unbind(1), strict=True):
            weight = torch.ones(count).index_fill(0, torch.tensor([0]), 0.1)
            logits = head(seen)
            dense = dense + F.cross_entropy(logits.flatten(0, 1), target.flatten(), weight)
            there = target > 0
            right[name] = float((logits.argmax(-1) == target)[there].float().mean())
        embedded = inner.language_model.embed_tokens(batch.ids)
        embedded = torch.cat([embedded[:, :2], seen, embedded[:, 2 + CELLS**2 :]], 1)
        logits = self.model.lm_head(inner.language_model(inputs_embeds=embedded).last_hidden_state)
        logits, targets = logits[:, :-1], batch.targets[:, 1:]
        answer = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
        hit = (((logits.argmax(-1) == targets) | (targets == IGNORED)).all(1)).float()
        right |= {"loss": float(answer.detach()), "scenes": float(hit[::2].mean()), "pages": float(hit[1::2].mean())}
        return answer + 0.5 * dense, right


COLUMNS = ("", "tokens of 64", "chosen: whole picture seen", "kept alone", "the best: whole picture seen", "kept alone")


def judge(trainee: Trainee, vlm: Any, count: int) -> str:
    """A table: shares of right answers about photographs, and of digits of pages that a head reads, by budget, mode."""
    rows = [COLUMNS, ("---",) * len(COLUMNS)]
    for name, make, right in (
        ("photographs: answers", scene_of, partial(_answers, vlm)),
        ("pages: digits of a token", page_of, partial(_digits, trainee)),
    ):
        found = np.array([_by_budget(vlm, make(HELD_OUT + n), right) for n in range(count)])  # [count, budgets, 4]
        for budget, shares in zip((CELLS**2, *BUDGETS), np.nanmean(found, 0), strict=True):
            rows.append((name, str(budget), *(f"{each:.3f}" for each in shares)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _by_budget(vlm: Any, asked: Asked, right: Any) -> list[list[float]]:
    """Of each budget: what is right with the chosen tokens, drop and sparse, and with the best ones."""
    whole = vlm.see(asked.picture, read=False)
    seen = {"drop": whole, "sparse": vlm.see(asked.picture, mode="sparse", texture=whole.textures[0])}
    rest = np.random.default_rng(len(asked.best)).permutation(CELLS**2)
    best = np.array(list(dict.fromkeys([*asked.best, *rest.tolist()])))
    out = []
    for budget in (CELLS**2, *BUDGETS):
        chosen = vlm.prepare(seen["sparse"], asked.question, budget=budget, mode="sparse").chosen[0].rows
        found = []
        for cells in (chosen, best[:budget]):
            mask = np.zeros((CELLS, CELLS), bool)
            mask.flat[cells] = True
            found += [right(asked, vlm.prepare(seen[mode], asked.question, kept=mask, mode=mode)) for mode in seen]
        out.append(found)
    return out


def _answers(vlm: Any, asked: Asked, prepared: Any) -> float:
    (said,) = vlm.answers([prepared], {"max_new_tokens": 3, "do_sample": False})
    return float(said.text.strip() == asked.answer[0])


def _digits(trainee: Trainee, asked: Asked, prepared: Any) -> float:
    """The share of right ones among the digits that kept tokens show; nan for none."""
    rows, (features,) = prepared.chosen[0].rows, prepared.features.rows
    found = np.stack([head(features).argmax(-1).numpy() for head in trainee.heads[:2]])
    wanted = asked.dense[:2, rows]
    return float((found == wanted)[wanted > 0].mean()) if wanted.any() else float("nan")


def learned(out: Path, steps: int = STEPS) -> tuple[Trainee, Any]:
    """The trained model, and foveate with it attached; goes on from what is in the folder `out`."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    trainee, size = Trainee(), 24

    def batches(done: int) -> Iterator[Batch]:
        return llava.ahead(batch_of, [n * size for n in range(done, steps)])

    llava.train(
        trainee, trainee.loss, batches, [llava.rate_at(n, steps, 1e-3, level=0.6) for n in range(steps)],
        out / "state.pt", partial(KIND.save, trainee.model, out / "model"), lambda: "",
    )  # fmt: skip
    processor: Any = KIND.processor()
    processor.patch_size = CELL  # of 64 tokens, not of 256
    return trainee, foveate.vlm.attach(trainee.eval().model, processor)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--pictures", type=int, default=60, help="held out, of each kind")
    args = parser.parse_args()
    trainee, vlm = learned(args.out, args.steps)
    with torch.no_grad():
        print(judge(trainee, vlm, args.pictures))


if __name__ == "__main__":
    main()
