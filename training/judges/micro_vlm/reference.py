"""Answers from some of the tokens, by the recipe itself: what `foveate.vlm` must agree with.

A prompt of the full length is made, the placeholders of dropped cells are cut out of it together with their positions,
the encoder's outputs are cut alike, and both go into stock `generate` (`mm_encoder_outputs`, transformers >= 5.18).
`first_words` does the same for many questions at once in one forward pass; the answer is one word, so its first token
is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .model import ASSISTANT, BOS, EOS, IMAGE, TOKENS, USER, VOCABULARY

Kept = Sequence[int]  # ascending cells
Words = Mapping[str, int]  # numbered from 0; special ones as in model.py


def full_ids(*turns: str, words: Words = VOCABULARY) -> Tensor:
    """The prompt of a question or a dialogue (question, answer, question, ...) with all placeholders: int64 [n]."""
    ids = [BOS]
    for number, turn in enumerate(turns):
        said = [words[word] for word in turn.split()]
        if number % 2:
            ids += [ASSISTANT, *said, EOS]
        else:
            ids += [USER, *([] if number else [IMAGE] * TOKENS), *said]
    return torch.tensor([*ids, ASSISTANT])


def short(turns: Sequence[str], kept: Kept, words: Words = VOCABULARY) -> tuple[Tensor, Tensor]:
    """Tokens and original positions that remain, int64 [m] each."""
    ids = full_ids(*turns, words=words)
    stays = ids != IMAGE
    stays[2 + torch.as_tensor(kept, dtype=torch.int64)] = True
    return ids[stays], torch.arange(len(ids))[stays]


def features_of(model: Any, pixels: Tensor) -> Any:
    """Encoder outputs of pictures [b, 3, 128, 128], made once."""
    with torch.no_grad():
        return model.get_image_features(pixel_values=pixels, return_dict=True)


def generated(model: Any, features: Any, row: int, question: str, kept: Kept, words: int = 2) -> str:
    """The stock `generate` on what remains of picture `row`."""
    ids, positions = short([question], kept)
    cut = type(features)(pooler_output=[features.pooler_output[row][torch.as_tensor(kept)]])
    out = model.generate(
        input_ids=ids[None],
        attention_mask=torch.ones_like(ids)[None],
        position_ids=positions[None],
        mm_encoder_outputs={"image": cut},
        max_new_tokens=words,
        do_sample=False,
    )
    names = list(VOCABULARY)
    new = [names[int(i)] for i in out[0, len(ids) :]]
    return " ".join(word for word in new if not word.startswith("<"))


def first_words(
    model: Any,
    cells: Sequence[Tensor],
    talks: Sequence[Sequence[str]],
    kept: Sequence[Kept],
    words: Words = VOCABULARY,
) -> list[str]:
    """First word of each answer to the last turn; `cells` has the projected features [256, D] of each one's picture."""
    parts = [short(turns, keep, words) for turns, keep in zip(talks, kept, strict=True)]
    longest = max(len(ids) for ids, _ in parts)
    ids = torch.zeros(len(parts), longest, dtype=torch.int64)
    positions, real = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (tokens, places) in enumerate(parts):
        ids[row, : len(tokens)], positions[row, : len(tokens)], real[row, : len(tokens)] = tokens, places, 1
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()
    mask = causal[None, None] & real.bool()[:, None, None] | torch.eye(longest, dtype=torch.bool)
    inner = model.model
    with torch.no_grad():
        embedded = inner.get_input_embeddings()(ids)
        for row, keep in enumerate(kept):
            embedded[row, 2 : 2 + len(keep)] = cells[row][torch.as_tensor(keep, dtype=torch.int64)]
        hidden = inner.language_model(
            inputs_embeds=embedded, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state
        last = hidden[torch.arange(len(parts)), real.sum(1) - 1]
        names = list(words)
        return [names[int(i)] for i in model.lm_head(last).argmax(-1)]
