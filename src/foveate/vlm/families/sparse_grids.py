"""Mode "sparse" for towers whose images are one sequence of patches, with a grid for each (`image_grid_thw`).

Most can be told where each patch lies, and get no others: which they take is tried once, with a few patches of noise.
The rest, which find out more about the grid by themselves, embed all patches; their layers get those that are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from foveate.vlm.families.features import Inputs, VisualFeatures, find_method, taken_by, unwrap
from foveate.vlm.families.narrow import unfit
from foveate.vlm.families.token_layout import Indices, TokenLayout

if TYPE_CHECKING:
    import torch

KINDS = ("video", "image")
TAKEN = {"hidden_states", "position_embeddings", "cu_seqlens", "max_seqlen"}


def has_grids(inputs: Inputs) -> bool:
    return any(f"{kind}_grid_thw" in inputs for kind in KINDS)


def encode_kept_patches(
    model: Any, inputs: Inputs, kept: Sequence[Indices], layouts: Sequence[TokenLayout]
) -> VisualFeatures:
    """The encoder over the patches of these tokens alone. Every image attends to itself.

    Raises ModelError for a tower whose layers mix neighbours.
    """
    kind = next(kind for kind in KINDS if f"{kind}_grid_thw" in inputs)
    encoder = find_method(model, f"get_{kind}_features")
    assert encoder is not None
    grid = inputs[f"{kind}_grid_thw"]
    counts = [layout.selectable for layout in layouts]
    total = int(grid.prod(-1).sum())
    merge = round((total / sum(counts)) ** 0.5)  # patches along a token
    if merge**2 * sum(counts) != total:
        raise unfit(model, "whose tokens are not all merged patches")
    tower = _tower_of(encoder)
    pixels = inputs["pixel_values_videos" if kind == "video" else "pixel_values"]
    rows = [layout.count for layout in layouts]
    turned = _way(encoder, tower, kind, merge, pixels) if rows == counts else None  # else lines of tokens have ends
    if turned is not None:
        return _told(encoder, tower, kind, merge, turned, inputs, kept, counts)
    tokens = [
        np.flatnonzero(np.isin(layout.selectable_rows(), mine)) for layout, mine in zip(layouts, kept, strict=True)
    ]
    patches, _ = _patches_of(grid, merge, _block(tower, merge), tokens, counts)
    with _narrowed(model, tower, patches.sort().values, _borders(grid, patches), len(pixels)):
        return unwrap(encoder(**taken_by(encoder, inputs), return_dict=True), rows).take(kept)


_WAYS: WeakKeyDictionary[Any, bool | None] = WeakKeyDictionary()


def _way(encoder: Any, tower: Any, kind: str, merge: int, pixels: Any) -> bool | None:
    """How a tower is told where patches lie: False; True if its learned positions are turned; None if it cannot be.

    Tried once, with a few patches of noise: told, the tower must make the same of them.
    """
    import torch

    if tower in _WAYS:
        return _WAYS[tower]
    grid = torch.tensor([[1, 2 * merge, 3 * merge]], device=pixels.device)
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal((6 * merge**2, *pixels.shape[1:])))
    inputs = {
        "pixel_values_videos" if kind == "video" else "pixel_values": noise.to(pixels),
        f"{kind}_grid_thw": grid,
        f"{kind}_merge_sizes": torch.full((1,), merge, device=pixels.device),
    }
    right = unwrap(encoder(**taken_by(encoder, inputs), return_dict=True), [6]).rows[0]
    near = float(right.abs().max()) * (1e-4 if right.dtype == torch.float32 else 1e-2)
    found = None
    for turned in (False, True):
        try:
            told = _told(encoder, tower, kind, merge, turned, inputs, [np.arange(6)], [6]).rows[0]
        except (TypeError, ValueError, RuntimeError, IndexError):  # what a tower does not expect
            continue
        if float((told - right).abs().max()) <= near:
            found = turned
            break
    _WAYS[tower] = found
    return found


def _told(
    encoder: Any,
    tower: Any,
    kind: str,
    merge: int,
    turned: bool,
    inputs: Inputs,
    kept: Sequence[Indices],
    counts: Sequence[int],
) -> VisualFeatures:
    """The encoder is told where each patch lies, and, instead of the images' grids, of strips as high as a token."""
    import torch
    from transformers import vision_utils

    grid = inputs[f"{kind}_grid_thw"]
    block = _block(tower, merge)
    patches, strips = _patches_of(grid, merge, block, kept, counts)
    given = {
        "position_ids": vision_utils.get_vision_position_ids(grid, block)[patches],
        "cu_seqlens": _borders(grid, patches),
    }
    placed = next((each for each in tower.modules() if hasattr(each, "num_grid_per_side")), None)
    if placed is not None:  # learned positions, stretched over the image
        indices, weights = vision_utils.get_vision_interpolation_indices_and_weights(
            grid[:, [0, 2, 1]] if turned else grid,
            num_grid_per_side=placed.num_grid_per_side,
            mode=placed.interpolation_mode,
            align_corners=placed.interpolation_align_corners,
            spatial_merge_size=block,
            **({"padding": placed.interpolation_padding} if hasattr(placed, "interpolation_padding") else {}),
        )
        given |= {"interp_indices": indices[patches], "interp_weights": weights[patches]}
    if getattr(tower, "window_size", 0):
        given |= _windows(tower, grid, block, patches)
    name = "pixel_values_videos" if kind == "video" else "pixel_values"
    made = {
        **inputs,
        name: inputs[name][patches],
        f"{kind}_grid_thw": torch.tensor(strips, device=grid.device),
        f"{kind}_merge_sizes": torch.full((len(strips),), merge, device=grid.device),
    }
    return unwrap(encoder(**taken_by(encoder, made), **given, return_dict=True), [len(rows) for rows in kept])


def _block(tower: Any, merge: int) -> int:
    """How patches come: in those of a token, merge x merge, or (1) in rows of the image."""
    return merge if getattr(tower, "spatial_merge_size", 1) == merge else 1


def _patches_of(
    grid: torch.Tensor, merge: int, block: int, kept: Sequence[Indices], counts: Sequence[int]
) -> tuple[torch.Tensor, list[list[int]]]:
    """The patches of these tokens, in the order of a strip for each image, merge patches high; the strips' grids."""
    import torch

    starts = np.cumsum([0, *counts])
    tokens = torch.from_numpy(np.concatenate([rows + a for rows, a in zip(kept, starts, strict=False)])).to(grid)
    patches = tokens[:, None] * merge**2 + torch.arange(merge**2, device=grid.device)
    sizes = [len(rows) for rows in kept]
    if block != merge:
        order, start = [], 0
        for t, h, w in grid.tolist():
            at = start + torch.arange(t * h * w, device=grid.device)
            order.append(at.reshape(t, h // merge, merge, w // merge, merge).transpose(2, 3).flatten())
            start += t * h * w
        patches = torch.cat(order)[patches]
        each = [part.reshape(-1, merge, merge).transpose(0, 1).flatten() for part in torch.split(patches, sizes)]
        patches = torch.cat(each)
    return patches.flatten(), [[1, merge, merge * size] for size in sizes]


def _borders(grid: torch.Tensor, patches: torch.Tensor) -> torch.Tensor:
    """Borders of attention between the pictures of these patches."""
    import torch
    from torch.nn.functional import pad

    shots = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])  # patches of each picture
    count = torch.bincount(torch.bucketize(patches, shots.cumsum(0), right=True))
    return pad(count[count > 0].cumsum(0), (1, 0)).to(torch.int32)


def _windows(tower: Any, grid: torch.Tensor, block: int, patches: torch.Tensor) -> dict[str, torch.Tensor]:
    """What is left of the windows in which the patches of a tower attend to each other."""
    import torch
    from torch.nn.functional import pad
    from transformers.vision_utils import get_vision_window_index

    index, borders = (
        torch.as_tensor(each, device=grid.device).long()
        for each in get_vision_window_index(
            grid, spatial_merge_size=block, window_size=tower.window_size, patch_size=tower.patch_size
        )
    )
    tokens = patches[:: block**2] // block**2
    inverse = torch.full((len(index),), -1, device=grid.device).scatter(
        0, tokens, torch.arange(len(tokens), device=grid.device)
    )
    window = torch.repeat_interleave(
        torch.arange(len(borders) - 1, device=grid.device), (borders[1:] - borders[:-1]) // block**2
    )
    found = inverse[index] >= 0
    count = torch.bincount(window[found], minlength=len(borders) - 1)
    count = count[count > 0]  # an empty window would be a second border at the same place
    return {
        "window_index": inverse[index][found],
        "cu_window_seqlens": pad((count * block**2).cumsum(0), (1, 0)).to(torch.int32),
    }


@contextmanager
def _narrowed(model: Any, tower: Any, keep: torch.Tensor, borders: torch.Tensor, length: int) -> Iterator[None]:
    """For a while, and in this thread, the layers of a tower get these patches of its one sequence. Raises ModelError.

    keep: ascending. borders: of attention, between the pictures of these patches. length: of the whole sequence.
    """
    from torch.nn import Conv1d, Conv2d, ModuleList

    lists = [list(each) for each in tower.modules() if isinstance(each, ModuleList)]
    blocks = max(lists, key=len, default=[])
    if not blocks or any(isinstance(each, Conv1d | Conv2d) for block in blocks for each in block.modules()):
        raise unfit(model, "whose layers mix neighbours")
    thread = threading.get_ident()
    called: list[bool] = []

    def cut(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(cut, value))
        if not hasattr(value, "shape") or length not in value.shape[:2]:
            return value
        return value.index_select(value.shape.index(length), keep)

    def narrow(module: Any, args: Any, given: dict[str, Any]) -> Any:
        if threading.get_ident() != thread:
            return None
        others = {name for name, value in given.items() if hasattr(value, "shape")} - TAKEN
        states: Any = given.get("hidden_states", args[0] if args else None)
        if others or "cu_seqlens" not in given or (not called and length != states.shape[-2]):
            raise unfit(model, f"whose layers take {', '.join(sorted(others)) or 'more than patches'}")
        called.append(True)
        made = {name: cut(value) for name, value in given.items()} | {"cu_seqlens": borders}
        if given.get("max_seqlen") is not None:
            made["max_seqlen"] = int((borders[1:] - borders[:-1]).max())
        return tuple(map(cut, args)), made

    def widen(module: Any, args: Any, out: Any) -> Any:
        if threading.get_ident() != thread:
            return out
        states: Any = out[0] if isinstance(out, tuple) else out
        at = states.ndim - 2
        shape = (*states.shape[:at], length, states.shape[-1])
        full = states.new_zeros(shape).index_copy(at, keep, states)
        return (full, *list(out)[1:]) if isinstance(out, tuple) else full

    hooks = [block.register_forward_pre_hook(narrow, with_kwargs=True) for block in blocks]
    hooks.append(blocks[-1].register_forward_hook(widen))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if not called:
        raise unfit(model, "which goes through its layers by itself")


def _tower_of(encoder: Any) -> Any:
    """The encoder of images that a method of a model's body calls."""
    body = encoder.__self__
    names = ("visual", "vision_tower", "vision_model", "vision_encoder")
    return next((found for name in names if (found := getattr(body, name, None)) is not None), body)
