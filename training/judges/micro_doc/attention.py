"""Attention for training on few cores: the same sums as the stock kernels', in plain products of bfloat16.

PyTorch's fused kernel for CPUs takes half of a training step; plain products take a third of its time (docs/log.md).
`slotted` also leaves out what the mask of `batches.layout` hides: a slot's keys are those of the page and its own.
The functions are registered under names of transformers' attention interface; `quick` puts them into a model, and out
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from .batches import PREFIX, SLOT


def plain(
    module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Everything sees everything: [b, heads, n, d] -> [b, n, heads, d]."""
    weights = ((q * scaling) @ k.transpose(-1, -2)).softmax(-1)
    return (weights @ v).transpose(1, 2), None


def slotted(
    module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """The mask of `batches.layout`: [b, heads, PREFIX + slots x SLOT, d] -> [b, n, heads, d].

    Of `mask`, bool [b or 1, 1, n, n], only the last row is looked at: which tokens of the page are there at all.
    """
    q = q * scaling
    gone = torch.zeros(1, 1, 1, PREFIX, dtype=q.dtype)
    if mask is not None:
        gone = torch.where(mask[:, :, -1:, :PREFIX], gone, torch.full_like(gone, -1e4))
    slots = (q.shape[2] - PREFIX) // SLOT
    page, page_values = k[:, :, :PREFIX], v[:, :, :PREFIX]
    hidden = torch.full((PREFIX, PREFIX), -1e4, dtype=q.dtype).triu(1)
    first = (q[:, :, :PREFIX] @ page.transpose(-1, -2) + hidden + gone).softmax(-1) @ page_values
    asked = q[:, :, PREFIX:]
    own, own_keys, own_values = (t[:, :, -slots * SLOT :].unflatten(2, (slots, SLOT)) for t in (asked, k, v))
    near = own @ own_keys.transpose(-1, -2) + hidden[:SLOT, :SLOT]
    far = (asked @ page.transpose(-1, -2) + gone).unflatten(2, (slots, SLOT))
    weights = torch.cat([far, near], -1).softmax(-1)
    found = weights[..., :PREFIX].flatten(2, 3) @ page_values + (weights[..., PREFIX:] @ own_values).flatten(2, 3)
    return torch.cat([first, found], 2).transpose(1, 2), None


AttentionInterface.register("micro_doc_plain", plain)
AttentionInterface.register("micro_doc_slotted", slotted)


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
