"""What a small language model answers from some of the visual tokens, with gradients to how much each one counts.

    answer_logits(model, tokens, cells, ids, bias)      logits [b, words] of the one word that is the answer

What is notable
* The recipe of dropping: tokens of kept cells stand where they stood, at their own positions, and so does the question.
  Logits are those of training/micro_vlm/reference.py; a test holds them equal.
* A cell that counts w < 1 gets log w added to every look at it: at w -> 0 it is dropped. Scaling features by w, as mode
  "weight" of foveate.vlm does, is not that: a norm stands before each layer and takes the scale out again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from training.collage.model import VOCABULARY
from training.micro_vlm.model import ASSISTANT, BOS, PAD, TOKENS, USER

BEFORE = 2  # <s> <|user|>


def ids_of(texts: Sequence[str]) -> Tensor:
    """Questions as the model reads them, `<|assistant|>` behind each: int64 [n, longest], padded behind."""
    rows = [torch.tensor([*(VOCABULARY[word] for word in text.split()), ASSISTANT]) for text in texts]
    return pad_sequence(rows, batch_first=True, padding_value=PAD)


def answer_logits(model: Any, tokens: Tensor, cells: Tensor, ids: Tensor, bias: Tensor | None = None) -> Tensor:
    """Logits of the first word of each answer, float32 [b, words].

    Args:
        model: a Collage, or stock Llava with its vocabulary.
        tokens: projected visual tokens [b, m, width]. cells: int64 [b, m] ascending, which of the 256 they are.
        ids: of `ids_of`. bias: added to the logits of attention on each token, [b, m].
    """
    b, m, _ = tokens.shape
    embed = model.get_input_embeddings()
    before = embed(torch.tensor([BOS, USER])).expand(b, -1, -1)
    hidden = torch.cat([before, tokens, embed(ids)], 1)
    asked = BEFORE + TOKENS + torch.arange(ids.shape[1])
    positions = torch.cat([torch.arange(BEFORE).expand(b, -1), BEFORE + cells, asked.expand(b, -1)], 1)
    n = hidden.shape[1]
    mask = torch.full((n, n), float("-inf")).triu(1).expand(b, n, n)
    if bias is not None:
        mask = mask + torch.nn.functional.pad(bias.float(), (BEFORE, ids.shape[1]))[:, None]
    last = model.model.language_model(
        inputs_embeds=hidden, attention_mask=mask[:, None].to(hidden.dtype), position_ids=positions, use_cache=False
    ).last_hidden_state
    ends = BEFORE + m + (ids == ASSISTANT).int().argmax(1)
    logits: Tensor = model.lm_head(last[torch.arange(b), ends]).float()
    return logits


def picked(values: Tensor, cells: Tensor) -> Tensor:
    """Of [b, n, ...] those of cells [b, m]: [b, m, ...]."""
    return values[torch.arange(len(values))[:, None], cells]
