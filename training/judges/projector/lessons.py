"""Questions with answers, laid out once for training and checking: texture rows, ids, positions.

What is notable
* Cells are chosen as they will be when the model is asked: by `VLM.prepare`, with the same budget and method. So a
  projector learns on the cells that questions keep, at the positions they keep.
* The rows are stored before the projector, so an image is encoded once, however often it is seen.
* The answer's positions go on where the prompt's end, one by one, as when the model generates.
* Everything is laid out before the first step and stays in memory: 128 cells of 18 numbers are 9 kB an example, of 258
  numbers 132 kB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from foveate.core.image import ImageSource
from foveate.pipeline import encode
from foveate.texture.texture import Texture
from foveate.vlm.families.family import Family, encoder_outputs
from foveate.vlm.families.features import VisualFeatures
from foveate.vlm.inputs.tensors import pad_left
from foveate.vlm.model import VLM
from foveate.vlm.select.choice import Choosing
from foveate.vlm.select.methods import Method
from training.judges.projector.model import TextureRows, lay_out_texture, wrapping_of

Example = tuple[Texture | ImageSource, str, str]
Kept = int | Literal["auto"] | None


@dataclass(frozen=True, eq=False)
class Lesson:
    """One question about one texture.

    Attributes:
        rows: of the kept cells, float32 [K, in_width].
        deep: levels of zeros that the model wants beside them (DeepStack).
        prompt: input_ids, attention_mask [1, P] and position_ids [1, P] or [4, 1, P].
        full: the same of prompt, answer and end of the answer.
        question, answer: as text.
    """

    rows: torch.Tensor
    deep: int
    prompt: Mapping[str, torch.Tensor]
    full: Mapping[str, torch.Tensor]
    question: str
    answer: str

    @property
    def learnt(self) -> int:
        """Ids of the answer and its end."""
        return self.full["input_ids"].shape[1] - self.prompt["input_ids"].shape[1]


def lay_out(
    examples: Iterable[Example],
    vlm: VLM,
    rows: TextureRows,
    *,
    budget: Kept = 128,
    method: Method = "relevance",
    seed: int = 0,
) -> list[Lesson]:
    """Lay out (image or texture, question, answer): each image is encoded once if its questions stand together.

    budget: cells to keep, at most all; "auto"; or None for all. seed: of method "random", another one each example.
    """
    found: list[Lesson] = []
    last: tuple[Any, Any] = (None, None)
    for number, example in enumerate(examples):
        image, question, answer = example
        if last[1] is None or last[0] is not image:
            texture = image if isinstance(image, Texture) else encode(image, encoder=vlm.encoder)
            last = image, lay_out_texture(vlm, texture, rows, torch.from_numpy(rows.read(texture)))
        scene = last[1]
        kept = min(budget, scene.tokens[0]) if isinstance(budget, int) else budget
        prepared = vlm.prepare(scene, question, budget=kept, method=method, choosing=Choosing(seed=seed + number))
        prompt = dict(prepared.text)
        ids = [*vlm.processor.tokenizer(answer, add_special_tokens=False)["input_ids"], find_end(vlm)]
        found.append(
            Lesson(
                rows=prepared.features.rows[0],
                deep=len(prepared.features.levels),
                prompt=prompt,
                full=_continued(prompt, torch.tensor(ids, device=prompt["input_ids"].device)),
                question=question,
                answer=answer,
            )
        )
    return found


def find_end(vlm: VLM) -> int:
    """The id at which the model stops: what its generation settings say, else the tokenizer's end of sequence."""
    said = getattr(vlm.model.generation_config, "eos_token_id", None)
    said = said[0] if isinstance(said, list | tuple) and said else said
    said = vlm.processor.tokenizer.eos_token_id if said is None or isinstance(said, list | tuple) else said
    return int(said)


def join(
    lessons: Sequence[Lesson], projector: torch.nn.Module, family: Family, pad: int, *, answers: bool, dtype: Any
) -> dict[str, Any]:
    """Several lessons as keywords of one call, padded on the left; `answers`: with their answers."""
    texts = [dict(one.full if answers else one.prompt) for one in lessons]
    own = next(projector.parameters())
    features = projector(torch.cat([one.rows for one in lessons]).to(own)).to(dtype)
    inputs: dict[str, Any] = dict(pad_left(texts, pad))
    device = inputs["input_ids"].device
    parts = torch.split(features.to(device), [len(one.rows) for one in lessons])
    encoded = [
        VisualFeatures((part,), tuple((torch.zeros_like(part),) for _ in range(one.deep)), wrapping_of(family))
        for part, one in zip(parts, lessons, strict=True)
    ]
    return {**inputs, "mm_encoder_outputs": encoder_outputs(encoded, family, "image")}


def _continued(prompt: Mapping[str, torch.Tensor], more: torch.Tensor) -> dict[str, torch.Tensor]:
    """Prompt and answer; a row of order (the first of four) and rows of places each go on by ones."""
    at = prompt["position_ids"]
    steps = 1 + torch.arange(len(more), device=at.device)
    if at.ndim == 3:
        start = torch.stack([at[0].max(), *(at[1:].max(),) * (len(at) - 1)])[:, None, None]
    else:
        start = at.max()[None, None]
    ids = torch.cat([prompt["input_ids"], more[None]], 1)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "position_ids": torch.cat([at, start + steps], -1),
    }
