"""A tower of pictures over some of their patches alone: hooks on its layers, for one call.

Each layer gets the kept patches, and what it makes of them is put back in its place, with zeros elsewhere: what stands
around the layers (norms, merging, the joining of tiles) sees pictures of full size. Pictures with as many kept tokens
go through together, and those with none are not encoded.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from foveate.core.checks import keyword
from foveate.core.errors import ModelError
from foveate.vlm.families.token_layout import Indices

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, eq=False)
class Part:
    """What is kept of a picture of h x w tokens: flat indices, ascending.

    side: patches along a token, where a picture is filled up behind its patches; 0 where it is found out.
    """

    h: int
    w: int
    tokens: Indices
    side: int = 0

    def patches(self, side: int) -> Indices:
        """The patches of these tokens, side x side each, ascending."""
        rows, columns = self.tokens // self.w * side, self.tokens % self.w * side
        inner = np.arange(side)
        at = (rows[:, None, None] + inner[:, None]) * self.w * side + columns[:, None, None] + inner
        return np.sort(at.ravel())


@contextmanager
def narrowed(model: Any, body: Any, parts: Sequence[Part]) -> Iterator[None]:
    """For a while, and in this thread, the tower of `body` encodes these parts of its pictures. Raises ModelError."""
    from torch.nn import ModuleList

    text = {id(module) for module in model.get_decoder().modules()}
    stacks = [
        (path.split(".")[0], module)
        for path, module in body.named_modules()
        if isinstance(module, ModuleList) and id(module) not in text and re.search(r"^(?!video).*\.layers?$", path)
    ]
    if len(stacks) != 1:
        raise unfit(model, f"whose encoder of images has {len(stacks)} stacks of layers")
    name, stack = stacks[0]
    tower = getattr(body, name)
    call = _Call(model, list(parts))
    hooks = [
        tower.register_forward_pre_hook(call.group, with_kwargs=True),
        *(layer.register_forward_pre_hook(call.narrow, with_kwargs=True) for layer in stack),
        *(layer.register_forward_hook(call.widen, prepend=True) for layer in stack),  # before states are collected
        tower.register_forward_hook(call.answer),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def unfit(model: Any, why: str) -> ModelError:
    return ModelError(
        f"{keyword('mode', 'sparse')} with a {type(model).__name__}, {why}",
        expected="a tower that takes single patches, and tokens that are made of whole ones",
        fix="use mode='drop', which encodes the image once and drops tokens for every question",
    )


class _Call:
    """The hooks of one call, and what they must know of one another."""

    def __init__(self, model: Any, parts: list[Part]) -> None:
        self.model, self.parts = model, parts
        self.thread = threading.get_ident()  # other threads may use the encoder at the same time
        self.at: list[int] = []  # the pictures that are on their way
        self.inside = False  # whether they are not the last
        self.done: list[tuple[list[int], Any]] = []
        self.keep: torch.Tensor | None = None  # patches [pictures, K] in sequences of so many
        self.length = 0

    def group(self, module: Any, args: Any, given: dict[str, Any]) -> Any:
        """Before the tower: all but the last group of pictures go through it here."""
        if threading.get_ident() != self.thread or self.inside:
            return None
        pixels = given.get("pixel_values", args[0] if args else ())
        if len(pixels) != len(self.parts):
            raise unfit(self.model, f"whose tower gets {len(pixels)} pictures for {len(self.parts)}")
        counts = [len(part.tokens) for part in self.parts]
        groups = [[n for n, count in enumerate(counts) if count == size] for size in sorted({*counts} - {0})]
        if "image_sizes" in given:  # it joins pictures to one sequence by itself
            groups = [list(range(len(counts)))]
        self.done, self.inside = [], True
        for self.at in groups[:-1]:
            self.done.append(
                (self.at, module(*_pick(args, self.at, len(counts)), **_pick(given, self.at, len(counts))))
            )
        self.at, self.inside = groups[-1], False
        if self.at == list(range(len(counts))):
            return None
        return _pick(args, self.at, len(counts)), _pick(given, self.at, len(counts))

    def narrow(self, module: Any, args: Any, given: dict[str, Any]) -> Any:
        """Before a layer: only kept patches."""
        import torch

        if threading.get_ident() != self.thread:
            return None
        states: Any = given.get("hidden_states", args[0] if args else None)
        others = {name for name, value in given.items() if hasattr(value, "shape") and name not in TAKEN}
        if others or getattr(states, "ndim", 0) != 3:
            raise unfit(self.model, f"whose layers take {', '.join(sorted(others)) or 'no sequences'}")
        parts = [self.parts[n] for n in self.at]
        self.length = states.shape[1]
        joined = len(states) != len(parts)
        if joined and len(states) != 1:
            raise unfit(self.model, f"with {len(states)} sequences for {len(parts)} pictures")
        lead, side = self._sides(parts if joined else parts[:1])
        rows = [part.patches(side) for part in parts]
        if joined:
            starts = np.cumsum([0, *(part.h * part.w * side**2 for part in parts)])
            rows = [np.concatenate([each + start for each, start in zip(rows, starts, strict=False)])]
        keep = torch.from_numpy(np.stack([np.concatenate([np.arange(lead), lead + each]) for each in rows]))
        self.keep = None if keep.shape[1] == self.length else keep.to(states.device)
        if self.keep is None:
            return None
        made = {name: self._cut(value) for name, value in given.items()}
        if "cu_seq_lens_q" in given:  # borders of attention between pictures
            lengths = [len(part.tokens) * side**2 for part in parts]
            borders = torch.tensor(np.cumsum([0, *lengths]), dtype=torch.int32, device=states.device)
            made |= {"cu_seq_lens_q": borders, "cu_seq_lens_k": borders}
            made |= {"max_length_q": max(lengths), "max_length_k": max(lengths)}
        return tuple(self._cut(value) for value in args), made

    def widen(self, module: Any, args: Any, out: Any) -> Any:
        """Behind a layer: patches in their places."""
        if threading.get_ident() != self.thread or self.keep is None:
            return out
        return (self._back(out[0]), *out[1:]) if isinstance(out, tuple) else self._back(out)

    def answer(self, module: Any, args: Any, out: Any) -> Any:
        """Behind the tower: all groups of pictures together."""
        if threading.get_ident() != self.thread or self.inside or len(self.at) == len(self.parts):
            return out
        return _join([*self.done, (self.at, out)], len(self.parts))

    def _sides(self, parts: Sequence[Part]) -> tuple[int, int]:
        """Patches in front of those of a picture (a class token), and patches along a token."""
        tokens = sum(part.h * part.w for part in parts)
        if parts[0].side:
            return 0, parts[0].side
        for lead in (0, 1):
            side = round(((self.length - lead) / tokens) ** 0.5)
            if side and tokens * side**2 == self.length - lead:
                return lead, side
        raise unfit(self.model, f"which makes {tokens} tokens of {self.length} patches")

    def _cut(self, value: Any) -> Any:
        """Sequences of all patches -> of those that are kept: states, masks [b, 1, n, n] or [b, n], positions."""
        if isinstance(value, tuple):
            return tuple(map(self._cut, value))
        if not hasattr(value, "shape"):
            return value
        keep = self.keep
        assert keep is not None
        if value.ndim == 3:
            return (
                value.gather(1, keep[:, :, None].expand(-1, -1, value.shape[2]))
                if len(value) == len(keep)
                else value[:, keep[0]]
            )
        if value.ndim == 4:
            value = value.expand(len(keep), -1, -1, -1)
            if value.shape[2] == self.length:
                value = value.gather(2, keep[:, None, :, None].expand(-1, value.shape[1], -1, value.shape[3]))
            return value.gather(3, keep[:, None, None, :].expand(-1, value.shape[1], value.shape[2], -1))
        if len(value) == self.length and len(keep) == 1:  # positions
            return value[keep[0]]
        return value.gather(1, keep) if value.shape[1] == self.length else value

    def _back(self, states: torch.Tensor) -> torch.Tensor:
        assert self.keep is not None
        full = states.new_zeros(len(states), self.length, states.shape[2])
        return full.scatter(1, self.keep[:, :, None].expand(-1, -1, states.shape[2]), states)


TAKEN = ("hidden_states", "attention_mask", "position_embeddings", "cu_seq_lens_q", "cu_seq_lens_k")


def _pick(given: Any, at: Sequence[int], count: int) -> Any:
    """Arguments of the tower for some of its pictures."""

    def picked(value: Any) -> Any:
        if len(at) == count:
            return value
        return value[list(at)] if hasattr(value, "shape") and value.ndim and len(value) == count else value

    if isinstance(given, dict):
        return {name: picked(value) for name, value in given.items()}
    return tuple(map(picked, given))


def _join(done: Sequence[tuple[list[int], Any]], count: int) -> Any:
    """Outputs of the tower for groups of pictures -> one for all, with zeros for those that are in none."""

    def joined(parts: Sequence[Any]) -> Any:
        if isinstance(parts[0], list | tuple):
            return type(parts[0])(joined(each) for each in zip(*parts, strict=True))
        if parts[0] is None or len({part.shape[1:] for part in parts}) > 1:  # not asked for, or before the layers
            return None
        each = len(parts[0]) // len(done[0][0])  # rows of a picture: more than 1 where a tower joins them
        full = parts[0].new_zeros(count, each, *parts[0].shape[1:])
        for (at, _), part in zip(done, parts, strict=True):
            full[at] = part.reshape(len(at), each, *part.shape[1:])
        return full.flatten(0, 1)

    outs = [out for _, out in done]
    return type(outs[0])(**{name: joined([out[name] for out in outs]) for name in outs[0]})
