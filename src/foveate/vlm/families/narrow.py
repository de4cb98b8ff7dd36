"""A tower over some of its patches alone: hooks on its layers, for one call.

Each layer gets the kept patches, and what it makes of them is put back in its place, with zeros elsewhere: what stands
around the layers (norms, merging, the joining of tiles) sees pictures of full size. A tower takes pictures side by side
in one sequence (Qwen, Pixtral), or each in its own: then those with as many kept tokens go through together, and those
with none are not encoded.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
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

    def patches(self, side: int, block: bool = False) -> Indices:
        """The patches of these tokens, side x side each, ascending. block: they come token after token, not in rows."""
        if block:
            return (self.tokens[:, None] * side**2 + np.arange(side**2)).ravel()
        inner = np.arange(side)
        rows, columns = self.tokens // self.w * side, self.tokens % self.w * side
        at = (rows[:, None, None] + inner[:, None]) * self.w * side + columns[:, None, None] + inner
        return np.sort(at.ravel())


@contextmanager
def narrowed(model: Any, body: Any, parts: Sequence[Part]) -> Iterator[None]:
    """For a while, and in this thread, the tower of `body` encodes these parts of its pictures. Raises ModelError."""
    from torch.nn import Conv1d, Conv2d, ModuleList

    text = {id(module) for module in model.get_decoder().modules()}
    stacks = [
        (path, module)
        for path, module in body.named_modules()
        if isinstance(module, ModuleList) and id(module) not in text and re.search(LAYERS, path)
    ]
    if len(stacks) != 1:
        raise unfit(model, f"whose encoder of images has {len(stacks)} stacks of layers")
    path, stack = stacks[0]
    if any(isinstance(module, Conv1d | Conv2d) for module in stack.modules()):
        raise unfit(model, "whose layers mix neighbours")
    tower = getattr(body, path.split(".")[0])
    call = _Call(model, tower, list(parts))
    each: tuple[Callable[..., Any], ...] = (call.group, call.narrow, call.widen, call.merge, call.spread, call.answer)
    group, narrow, widen, merge, spread, answer = map(_here, each)
    hooks = [
        tower.register_forward_pre_hook(group, with_kwargs=True),
        *(layer.register_forward_pre_hook(narrow, with_kwargs=True) for layer in stack),
        *(layer.register_forward_hook(widen, prepend=True) for layer in stack),  # before states are collected
        tower.register_forward_hook(answer),
    ]
    for name, module in tower.named_modules():
        if call.block > 1 and re.search(MERGERS, name):
            hooks += [module.register_forward_pre_hook(merge), module.register_forward_hook(spread)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if not call.length:
        raise unfit(model, "which goes through its layers by itself")


LAYERS = r"^(?!video|audio).*\b(layers?|blocks)$"
MERGERS = r"\bmerger$|merger_list\.\d+$"
BORDERS = {"cu_seqlens", "cu_seq_lens_q", "cu_seq_lens_k"}  # of attention, between pictures in one sequence
TAKEN = {"hidden_states", "attention_mask", "position_embeddings", "position_ids", "max_seqlen"}


def unfit(model: Any, why: str) -> ModelError:
    return ModelError(
        f"{keyword('mode', 'sparse')} with a {type(model).__name__}, {why}",
        expected="a tower that takes single patches, and tokens that are made of whole ones",
        fix="use mode='drop', which encodes the image once and drops tokens for every question",
    )


def _here(hook: Callable[..., Any]) -> Callable[..., Any]:
    """In this thread alone: others may use the encoder at the same time."""
    thread = threading.get_ident()
    return lambda *args: hook(*args) if threading.get_ident() == thread else None


class _Call:
    """The hooks of one call, and what they must know of one another."""

    def __init__(self, model: Any, tower: Any, parts: list[Part]) -> None:
        self.model, self.tower, self.parts = model, tower, parts
        self.block = getattr(tower, "spatial_merge_size", 1)  # patches come in those of a token, or of a few
        self.at: list[int] = []  # the pictures that are on their way
        self.inside = False  # whether they are not the last
        self.done: list[tuple[list[int], Any]] = []
        self.keep: torch.Tensor | None = None  # patches [sequences, K], ascending
        self.length = 0
        self.known: dict[tuple[int, tuple[int, ...]], torch.Tensor | None] = {}  # by length, and pictures

    def group(self, module: Any, args: Any, given: dict[str, Any]) -> Any:
        """Before the tower: all but the last group of pictures go through it here."""
        if self.inside:
            return None
        pixels = given.get("pixel_values", args[0] if args else ())
        counts = [len(part.tokens) for part in self.parts]
        groups = [[n for n, count in enumerate(counts) if count == size] for size in sorted({*counts} - {0})]
        if "image_sizes" in given or len(pixels) != len(counts):  # they lie in one sequence, or will
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

        states: Any = given.get("hidden_states", args[0] if args else None)
        others = {name for name, value in given.items() if hasattr(value, "shape")} - TAKEN - BORDERS
        if others or getattr(states, "ndim", 0) not in (2, 3):
            raise unfit(self.model, f"whose layers take {', '.join(sorted(others)) or 'no sequences'}")
        self.length = states.shape[-2]
        key = self.length, tuple(self.at)
        if key not in self.known:
            self.known[key] = self._find(states)
        self.keep = self.known[key]
        if self.keep is None:
            return None
        made = {name: self._cut(value) for name, value in given.items()}
        for name in BORDERS & {name for name, value in given.items() if value is not None}:
            borders = torch.searchsorted(self.keep[0], given[name].long())
            # a picture without patches would be a second border at the same place
            made[name] = borders[borders.diff(prepend=borders.new_full((1,), -1)) > 0].to(torch.int32)
            longest = name.replace("cu_seq_lens", "max_length").replace("cu_seqlens", "max_seqlen")
            if given.get(longest) is not None:
                made[longest] = int(made[name].diff().max())
        return tuple(map(self._cut, args)), made

    def _find(self, states: torch.Tensor) -> torch.Tensor | None:
        """Kept patches of these states, [n, L, D], or of all pictures [L, D] or [1, L, D]; None if that is all."""
        import torch

        parts = [self.parts[n] for n in self.at]
        joined = states.ndim == 2 or len(states) != len(parts)
        if joined and states.ndim == 3 and len(states) != 1:
            raise unfit(self.model, f"with {len(states)} sequences for {len(parts)} pictures")
        lead, side = self._sides(parts) if joined else self._sides(parts[:1], leads=(0, 1))
        rows = [part.patches(side, self.block == side) for part in parts]
        if joined:
            starts = np.cumsum([0, *(part.h * part.w * side**2 for part in parts)])
            rows = [np.concatenate([each + start for each, start in zip(rows, starts, strict=False)])]
            if getattr(self.tower, "window_size", 0):
                sizes = [(part.h * side, part.w * side) for part in parts]
                rows = [_in_windows(self.tower, self.block, sizes, rows[0])]
        keep = torch.from_numpy(np.stack([np.concatenate([np.arange(lead), lead + each]) for each in rows]))
        return None if keep.shape[1] == self.length else keep.to(states.device)

    def widen(self, module: Any, args: Any, out: Any) -> Any:
        """Behind a layer: patches in their places."""
        if self.keep is None:
            return out
        return (self._back(out[0]), *out[1:]) if isinstance(out, tuple) else self._back(out)

    def merge(self, module: Any, args: Any) -> Any:
        """Before patches [L, D] are merged to tokens, block by block: only kept ones."""
        if self.keep is None or len(args) != 1:
            return None
        return self._cut(args) if args[0].ndim == 2 and len(args[0]) == self.length else None

    def spread(self, module: Any, args: Any, out: Any) -> Any:
        """Behind that: tokens in their places."""
        each = self.block**2
        if self.keep is None or len(out) * each != self.keep.shape[1]:
            return out
        full = out.new_zeros(self.length // each, *out.shape[1:])
        return full.index_copy(0, self.keep[0, ::each] // each, out)

    def answer(self, module: Any, args: Any, out: Any) -> Any:
        """Behind the tower: all groups of pictures together."""
        if self.inside or len(self.at) == len(self.parts):
            return out
        return _join([*self.done, (self.at, out)], self.parts)

    def _sides(self, parts: Sequence[Part], leads: tuple[int, ...] = (0,)) -> tuple[int, int]:
        """Patches in front of those of a picture (a class token), and patches along a token."""
        tokens = sum(part.h * part.w for part in parts)
        if parts[0].side:
            return 0, parts[0].side
        for lead in leads:
            side = round(((self.length - lead) / tokens) ** 0.5)
            if side and tokens * side**2 == self.length - lead:
                return lead, side
        raise unfit(self.model, f"which makes {tokens} tokens of {self.length} patches")

    def _cut(self, value: Any) -> Any:
        """Sequences of all patches -> of those that are kept: states, masks [b, 1, n, n] or [b, n], positions."""
        if isinstance(value, tuple):
            return tuple(map(self._cut, value))
        keep = self.keep
        assert keep is not None
        shape = getattr(value, "shape", ())
        # positions may have no axis of pictures where there is one sequence
        axes = (2, 3) if len(shape) == 4 else (0, 1) if len(keep) == 1 else (1,)
        found = [axis for axis in axes if len(shape) > 1 and shape[axis] == self.length]
        for axis in found if len(shape) == 4 else found[:1]:
            if len(keep) == 1:
                value = value.index_select(axis, keep[0])
                continue
            value = value.expand(len(keep), *value.shape[1:])
            at = keep.reshape(len(keep), *(-1 if n == axis else 1 for n in range(1, value.ndim)))
            value = value.gather(axis, at.expand(*value.shape[:axis], -1, *value.shape[axis + 1 :]))
        return value

    def _back(self, states: torch.Tensor) -> torch.Tensor:
        assert self.keep is not None
        full = states.new_zeros(len(self.keep), self.length, states.shape[-1])
        at = self.keep[:, :, None].expand(-1, -1, states.shape[-1])
        return full.scatter(1, at, states.reshape(at.shape)).reshape(*states.shape[:-2], *full.shape[1:])


def _in_windows(tower: Any, block: int, sizes: Sequence[tuple[int, int]], patches: Indices) -> Indices:
    """Where these patches lie in a sequence whose blocks a tower has put in the order of windows.

    sizes: rows and columns of patches of each picture.
    """
    import torch
    from transformers.vision_utils import get_vision_window_index

    index, _ = get_vision_window_index(
        torch.tensor([(1, *size) for size in sizes]),
        spatial_merge_size=block,
        window_size=tower.window_size,
        patch_size=tower.patch_size,
    )
    at = np.flatnonzero(np.isin(np.asarray(index), patches // block**2))
    return (at[:, None] * block**2 + np.arange(block**2)).ravel()


def _pick(given: Any, at: Sequence[int], count: int) -> Any:
    """Arguments of the tower for some of its pictures."""

    def picked(value: Any) -> Any:
        if len(at) == count:
            return value
        return value[list(at)] if hasattr(value, "shape") and value.ndim and len(value) == count else value

    if isinstance(given, dict):
        return {name: picked(value) for name, value in given.items()}
    return tuple(map(picked, given))


def _join(done: Sequence[tuple[list[int], Any]], all_parts: Sequence[Part]) -> Any:
    """Outputs of the tower for groups of pictures -> one for all, with zeros for those that are in none."""
    import torch

    def joined(parts: Sequence[Any]) -> Any:
        if isinstance(parts[0], list | tuple):
            return type(parts[0])(joined(each) for each in zip(*parts, strict=True))
        if parts[0] is None or len({part.shape[1:] for part in parts}) > 1:  # not asked for, or before the layers
            return None
        # rows of each picture: its tokens, or as many as of the others: more than 1 where a tower joins them
        tokens = [part.h * part.w for part in all_parts]
        if any(len(part) != sum(tokens[n] for n in at) for (at, _), part in zip(done, parts, strict=True)):
            tokens = [len(parts[0]) // len(done[0][0])] * len(tokens)
        full = [parts[0].new_zeros(count, *parts[0].shape[1:]) for count in tokens]
        for (at, _), part in zip(done, parts, strict=True):
            for number, rows in zip(at, part.split([tokens[n] for n in at]), strict=True):
                full[number] = rows
        return torch.cat(full)

    outs = [out for _, out in done]
    return type(outs[0])(**{name: joined([out[name] for out in outs]) for name in outs[0]})
