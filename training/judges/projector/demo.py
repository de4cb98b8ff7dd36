"""Does a projector on textures learn? A small language model, generated scenes, two stages; prints a table.

    python -m training.judges.projector.demo              # everything; ten minutes on one busy core
    python -m training.judges.projector.demo --rows 2     # the first rows only

What: a scene is two of five things, cut out of the package's photographs, in two of four bands on grey noise. Two
questions: "what is beside cake ?", "where is cake ?". "blind" is the best guess from the question alone. Held-out
scenes are new windows and arrangements. No weights can be downloaded here, so there is a stage 0: a small language
model (stock LLaVA classes, a random tower that never runs) learns the game on scenes written as a raster of 8 x 4
words. Then it is frozen, and a projector has to say in vectors what the words said.
Why: the seed documents train a projection layer, then the whole model.
Verdict: it learns in front of a frozen model, if all images share their axes; with each image's own axes, or a random
language model, it does not (.75 is what it can reach: this model guesses one of two places). All: docs/log.md.
"""

from __future__ import annotations

import argparse
import copy
import math
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

import foveate
from foveate.vlm import attach
from training.harness import falling, fit
from training.judges.projector.lessons import lay_out
from training.judges.projector.model import TextureProjector, TextureRows, rows_for
from training.judges.projector.train import Stage, accuracy, measure_loss, train

SHAPE, STEP = (8, 4), 24  # the language model's grid of cells, and the pixels of each
THINGS = {  # in photographs of the package: boxes (y0, x0, y1, x1) in pixels
    "child": ("child_with_broccoli.jpg", (40, 100, 280, 330)),
    "broccoli": ("child_with_broccoli.jpg", (270, 244, 490, 478)),
    "cake": ("cake_and_coffee.jpg", (264, 176, 410, 308)),
    "cup": ("cake_and_coffee.jpg", (215, 380, 350, 560)),
    "bus": ("yellow_bus.jpg", (105, 120, 320, 574)),
}
BANDS = ("top", "upper", "lower", "bottom")  # two lines of cells each
SPECIAL = ("<pad>", "<s>", "</s>", "<image>", "<unk>")
WORDS = (*THINGS, "grey", *BANDS, "what", "where", "is", "beside", "?", ":")
TEMPLATE = (
    "{% for m in messages %}{% for c in m['content'] %}{% if c['type'] == 'image' %}<image> "
    "{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endfor %} :"
)


# --- scenes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patch:
    """A thing in a band: its box (y0, x0, y1, x1) in cells."""

    thing: str
    band: str
    box: tuple[float, float, float, float]


def patches(rng: np.random.Generator) -> list[Patch]:
    """Two different things in different bands."""
    found = []
    high = SHAPE[0] / len(BANDS)
    for thing, band in zip(rng.choice(list(THINGS), 2, replace=False), rng.permutation(len(BANDS))[:2], strict=True):
        h, w = rng.uniform(0.7, 1) * high, rng.uniform(1.5, 3)
        y, x = band * high + rng.uniform(0, high - h), rng.uniform(0, SHAPE[1] - w)
        found.append(Patch(str(thing), BANDS[band], (y, x, y + h, x + w)))
    return found


def painted(scene: Sequence[Patch], rng: np.random.Generator) -> np.ndarray:
    """uint8 [192, 96, 3]: a window into each thing, mirrored or not, lighter or darker, on grey noise."""
    image = np.full((SHAPE[0] * STEP, SHAPE[1] * STEP, 3), rng.uniform(90, 160))
    image += rng.normal(0, 12, (*image.shape[:2], 1))
    for patch in scene:
        y0, x0, y1, x1 = (round(v * STEP) for v in patch.box)
        file, (top, left, bottom, right) = THINGS[patch.thing]
        h, w = rng.uniform(0.7, 1, 2) * (bottom - top, right - left)
        top, left = int(rng.uniform(top, bottom - h)), int(rng.uniform(left, right - w))
        window = photo(file)[top : top + int(h), left : left + int(w)]
        window = cv2.resize(window, (x1 - x0, y1 - y0), interpolation=cv2.INTER_AREA)[:, :: rng.choice([-1, 1])]
        image[y0:y1, x0:x1] = window * rng.uniform(0.7, 1.2) + rng.normal(0, 8, 3)
    return np.clip(image, 0, 255).astype(np.uint8)


@cache
def photo(file: str) -> np.ndarray:
    """A photograph of the package, uint8 [H, W, 3]."""
    return foveate.load_image(str(files("foveate") / "cli" / "photos" / file)).rgb


def raster(scene: Sequence[Patch]) -> list[str]:
    """8 x 4 words: the thing under the centre of each cell."""
    words = [["grey"] * SHAPE[1] for _ in range(SHAPE[0])]
    for patch in scene:
        y0, x0, y1, x1 = patch.box
        for y in range(SHAPE[0]):
            for x in range(SHAPE[1]):
                if y0 <= y + 0.5 < y1 and x0 <= x + 0.5 < x1:
                    words[y][x] = patch.thing
    return [word for line in words for word in line]


def questions(scene: Sequence[Patch]) -> list[tuple[str, str]]:
    """What is beside the one and the other, where is the one and the other: four questions with answers."""
    one, other = scene
    return [
        (f"what is beside {one.thing} ?", other.thing),
        (f"what is beside {other.thing} ?", one.thing),
        (f"where is {one.thing} ?", one.band),
        (f"where is {other.thing} ?", other.band),
    ]


def examples(count: int, seed: int) -> list[tuple[foveate.Texture, str, str]]:
    """Textures of `count` scenes, each with one question of either kind."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        scene = patches(rng)
        texture = foveate.encode(painted(scene, rng), long_side=SHAPE[0] * STEP, channels="fast")
        asked = questions(scene)
        found += [(texture, *asked[rng.integers(2)]), (texture, *asked[2 + rng.integers(2)])]
    return found


# --- the language model -----------------------------------------------------------------------------------------------


def model_of_words(width: int = 64, layers: int = 3) -> tuple[Any, Any]:
    """A stock LLaVA with a small Llama, one token a word, and its processor."""
    ids = {word: number for number, word in enumerate(SPECIAL + WORDS)}
    raw = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    text = LlamaConfig(
        vocab_size=len(ids), hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
        num_attention_heads=4, max_position_embeddings=256, initializer_range=0.08,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    tower = CLIPVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )
    config = LlavaConfig(vision_config=tower, text_config=text, image_token_index=3, image_token_id=3)
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        model = LlavaForConditionalGeneration(config).eval()
    processor = LlavaProcessor(
        CLIPImageProcessorPil(size={"shortest_edge": 28}), tokenizer, patch_size=14,
        vision_feature_select_strategy="default", chat_template=TEMPLATE, num_additional_image_tokens=1,
    )  # fmt: skip
    return model, processor


def stage_zero(model: Any, processor: Any, steps: int, folder: Path, batch: int = 32) -> float:
    """Train the language model on scenes written as words; returns its accuracy over the last 50 steps."""
    right: list[float] = []

    def loss(step: int) -> torch.Tensor:
        rng, rows, starts = np.random.default_rng([12345, step]), [], []
        for _ in range(batch):
            scene = patches(rng)
            question, answer = questions(scene)[rng.integers(4)]
            prompt = [*raster(scene), *question.split(), ":"]
            starts.append(len(prompt))
            rows.append([*prompt, *answer.split(), "</s>"])
        longest = max(map(len, rows))
        padded = [row + ["<pad>"] * (longest - len(row)) for row in rows]
        ids = torch.tensor([processor.tokenizer.convert_tokens_to_ids(row) for row in padded])
        wanted = ids.clone()
        for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
            wanted[number, :start] = wanted[number, len(row) :] = -100
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits[:, :-1]
        hit = (logits.argmax(-1) == wanted[:, 1:]) | (wanted[:, 1:] < 0)
        right.append(hit.all(1).float().mean().item())
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted[:, 1:].flatten(), ignore_index=-100)

    optimiser = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    fit(loss, steps, folder / "words.pt", optimiser, rate=falling(1e-3, steps, 50), every=200, clip=1.0, model=model)
    model.zero_grad(set_to_none=True)
    return float(np.mean(right[-50:]))


# --- the table --------------------------------------------------------------------------------------------------------


def measured(
    model: Any, processor: Any, projector: Any, held: Sequence[Any], budget: int | None
) -> tuple[float, float]:
    """(loss, accuracy) on held-out scenes."""
    vlm = attach(model, processor)
    lessons = lay_out(held, vlm, rows_for(vlm, projector), budget=budget)
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(lessons), 50):
            part = lessons[start : start + 50]
            total += measure_loss(vlm, projector, part).item() * sum(one.learnt for one in part)
    return total / sum(one.learnt for one in lessons), accuracy(held, model, processor, projector, budget=budget)


@dataclass(frozen=True)
class Row:
    """One row of the table: how textures are read, through how many layers, in front of which model."""

    name: str
    rank: int | None = 16
    hidden: int | None = None
    budget: int | None = None
    taught: bool = True


ROWS = (
    Row("16 axes, linear"),
    Row("16 axes, two layers", hidden=128),
    Row("all 256, two layers", rank=None, hidden=128),
    Row("16 axes, two layers, 16 of 32 cells", hidden=128, budget=16),
    Row("16 axes, two layers, no stage 0", hidden=128, taught=False),
)


def main() -> None:
    """Stage 0, then every row; a line as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=len(ROWS), help="how many rows of the table")
    parser.add_argument("--zero", type=int, default=1000, help="steps of stage 0")
    parser.add_argument("--steps", type=int, default=500, help="steps of stage 1; stage 2 takes half as many")
    parser.add_argument("--scenes", type=int, default=600, help="training scenes; a quarter as many are held out")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    seen, held = examples(chosen.scenes, 1), examples(chosen.scenes // 4, 2)
    model, processor = model_of_words()
    raw = copy.deepcopy(model)
    with tempfile.TemporaryDirectory() as folder:
        right = stage_zero(model, processor, chosen.zero, Path(folder))
    print(f"{sum(p.numel() for p in model.model.language_model.parameters())} parameters, {len(seen)} examples")
    print("| projector | stage 1: loss, accuracy | stage 2: loss, accuracy | seconds |\n|---|---|---|---|")
    print(f"| blind: best guess without the image | {math.log(4) / 2:.3f}, 0.250 | | |")  # an end costs nothing
    print(f"| the language model on scenes written as words | accuracy {right:.3f} | | |", flush=True)
    for row in ROWS[: chosen.rows]:
        start = time.perf_counter()
        mine = copy.deepcopy(model if row.taught else raw)
        textures = [texture for texture, _, _ in seen[::2]]
        rows = TextureRows.fit(textures, rank=row.rank, side=SHAPE[0])
        projector = TextureProjector.for_model(mine, rows, row.hidden)
        cells = []
        plan: tuple[tuple[Stage, int, float], ...]
        plan = ("projector", chosen.steps, 1e-2), ("adapters", chosen.steps // 2, 2e-3)
        for stage, steps, rate in plan:
            with tempfile.TemporaryDirectory() as folder:
                train(seen, mine, processor, projector, stage, folder=folder, steps=steps, rate=rate, budget=row.budget)
            cells.append("{:.3f}, {:.3f}".format(*measured(mine, processor, projector, held, row.budget)))
        print(f"| {row.name} | {cells[0]} | {cells[1]} | {time.perf_counter() - start:.0f} |", flush=True)


if __name__ == "__main__":
    main()
