"""A texture in the place of the vision tower: rows of numbers, and a projector to the language model's width.

    rows = TextureRows.fit(textures)                                    # 16 numbers a cell, and where it lies
    projector = TextureProjector.for_model(model, rows)                 # train.py trains it
    vlm.ask(encode_texture(vlm, projector, texture), "what is on the plate?", budget=128)

* **The kept embedding of one texture cannot be compared with that of another**: every image has its own basis
  (texture/basis.py). So rows are made of *restored* features, x ~ mean + z B, on axes that all images share (principal
  axes of the training textures), moved and scaled to mean 0 and variance 1.
* Where a cell lies reaches the language model twice: as the position id of its token, and as the channels "y" and "x".
* Features of an average are the average of features, so a grid of more than `side` cells is made coarser first.
* A linear layer, or two with a GELU between (`hidden`), as LLaVA and LLaVA 1.5 have them. The first outputs have the
  mean length of the model's own token embeddings: larger vectors drown the text.
* Of a prompt's image only placeholder tokens are laid out, one a cell. Qwen3-VL's deeper levels (DeepStack) get zeros.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save
from torch import nn

from foveate.core.files import make_folder, write_whole
from foveate.core.grid import Grid, resize_map
from foveate.core.image import ImageSource
from foveate.core.layout import Layout
from foveate.core.readonly import ReadOnly
from foveate.pipeline import encode
from foveate.texture.texture import EncoderStamp, Texture
from foveate.vlm import VLM, EncodedImage
from foveate.vlm.families.family import Family
from foveate.vlm.families.features import VisualFeatures, Wrapping
from foveate.vlm.families.token_layout import ImageSpan, one_grid

FILE = "projector.safetensors"
GELU_POWER = 0.425  # mean square of GELU of a standard normal number
Floats = NDArray[np.float32]
USUAL_RANK, USUAL_SIDE = 16, 24  # 24 x 24: as many tokens as LLaVA 1.5 takes
PLACE = ("y", "x")
CALM = 1e-6  # a column with less variance than that is constant


@dataclass(frozen=True, eq=False)
class TextureRows:
    """How textures of one encoder become rows. Made by `TextureRows.fit`.

    Attributes:
        encoder: that made the textures; those of another are refused.
        axes: float32 [r, D], rows of unit length; None keeps all D numbers.
        channels: of the table, read after the embedding, in this order.
        centre, scale: float32 [width]: a row is (raw - centre) / scale.
        side: cells of the long side at most.
    """

    encoder: EncoderStamp
    axes: Floats | None
    channels: tuple[str, ...]
    centre: Floats
    scale: Floats
    side: int = USUAL_SIDE

    def __post_init__(self) -> None:
        if any(name.startswith("embedding_") for name in self.channels):
            raise ValueError(f"channels {self.channels}: each image has its own embedding basis")

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return len(self.centre)

    @property
    def rank(self) -> int:
        """Numbers of the embedding in a row."""
        return self.width - len(self.channels)

    def grid(self, texture: Texture) -> Grid:
        """The cells that a language model gets of a texture: its own, or fewer of about the same aspect."""
        own = texture.grid
        if max(own.shape) <= self.side:
            return own
        h, w = (max(1, round(n * self.side / max(own.shape))) for n in own.shape)
        return Grid(h, w, own.height, own.width)

    def read(self, texture: Texture) -> Floats:
        """Rows of all cells of `grid(texture)`, along the rows: float32 [cells, width].

        Raises ValueError for a texture of another encoder.
        """
        if texture.encoder != self.encoder:
            raise ValueError(f"a texture of {texture.encoder} for rows of {self.encoder}")
        raw = _raw(texture, self.grid(texture), self.axes, self.channels)
        return np.asarray((raw - self.centre) / self.scale, np.float32)

    @classmethod
    def fit(
        cls,
        textures: Iterable[Texture],
        *,
        rank: int | None = USUAL_RANK,
        channels: Sequence[str] = PLACE,
        side: int = USUAL_SIDE,
    ) -> TextureRows:
        """Axes, centre and scale from the textures of one encoder that a projector will be trained on, in one pass.

        Args:
            rank: principal axes to keep of the restored features; None keeps all D numbers as they are.
            channels: of the table, to be read beside the embedding; not its embedding_0 .. (see the module).
            side: cells of the long side at most.
        """
        count, plain, names = 0, None, tuple(channels)
        for texture in textures:
            if plain is None:
                D = texture.encoder.width
                width = D + len(names)
                zeros, ones = np.zeros(width, np.float32), np.ones(width, np.float32)
                plain = cls(texture.encoder, None, names, zeros, ones, side)
                total, products = np.zeros(width), np.zeros((width, width))
            raw = plain.read(texture).astype(np.float64)
            count, total, products = count + len(raw), total + raw.sum(0), products + raw.T @ raw
        if plain is None:
            raise ValueError("no textures")
        mean = total / count
        covariance = products / count - np.outer(mean, mean)
        variance, axes = covariance.diagonal(), None
        if rank is not None:
            values, vectors = np.linalg.eigh(covariance[:D, :D])
            values, vectors = values[::-1][:rank], vectors[:, ::-1][:, :rank]
            signs = np.where(vectors[np.abs(vectors).argmax(0), np.arange(rank)] < 0, -1, 1)
            axes = np.ascontiguousarray((vectors * signs).T, np.float32)
            mean = np.concatenate([axes @ mean[:D], mean[D:]])
            variance = np.concatenate([values, variance[D:]])
        scale = np.where(variance > CALM**2, np.sqrt(np.maximum(variance, 0)), 1)
        return cls(plain.encoder, axes, names, mean.astype(np.float32), scale.astype(np.float32), side)


def _raw(texture: Texture, grid: Grid, axes: Floats | None, channels: tuple[str, ...]) -> Floats:
    z = resize_map(texture.coordinates().reshape(*texture.grid.shape, -1), grid.shape).reshape(grid.count, -1)
    features = texture.basis.restore(z)
    kept = features if axes is None else features @ axes.T
    return np.concatenate([kept, texture.tokens(grid, Layout("rows", channels))], 1) if channels else kept


class TextureProjector(nn.Module):
    """Rows [n, rows.width] -> [n, out_width]; `hidden`: numbers between two layers, None for one layer."""

    def __init__(self, rows: TextureRows, out_width: int, hidden: int | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.rows, self.out_width, self.hidden = rows, out_width, hidden
        widths = [rows.width, out_width] if hidden is None else [rows.width, hidden, out_width]
        layers: list[nn.Module] = []
        for number, (a, b) in enumerate(pairwise(widths)):
            layers += [nn.GELU()] if number else []
            layers.append(nn.utils.skip_init(nn.Linear, a, b))
        self.layers = nn.Sequential(*layers)
        self._begin(1.0, seed)

    @torch.no_grad()
    def _begin(self, rms: float, seed: int) -> None:
        """Weights for inputs of variance 1 and outputs of root mean square `rms`."""
        source = torch.Generator().manual_seed(seed)
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        for layer in linear:
            power = layer.in_features * (1.0 if layer is linear[0] else GELU_POWER)
            layer.weight.normal_(0, (rms if layer is linear[-1] else 1.0) / math.sqrt(power), generator=source)
            layer.bias.zero_()

    @classmethod
    def for_model(cls, model: Any, rows: TextureRows, hidden: int | None = None, *, seed: int = 0) -> Self:
        """A projector as wide as a model's token embeddings, which begins with vectors as large as they are."""
        table = model.get_input_embeddings().weight
        projector = cls(rows, int(table.shape[1]), hidden, seed=seed)
        projector._begin(float(table.detach().float().square().mean().sqrt()), seed)
        return projector.to(table.device)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., rows.width] -> [..., out_width]."""
        return self.layers(rows)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write projector.safetensors, whole or not at all: the weights, and how textures are read."""
        make_folder(Path(folder))
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        for name in ("axes", "centre", "scale"):
            if getattr(self.rows, name) is not None:
                tensors[f"rows.{name}"] = torch.from_numpy(getattr(self.rows, name).copy())
        told = {
            "out_width": self.out_width, "hidden": self.hidden, "channels": self.rows.channels,
            "side": int(self.rows.side), "encoder": asdict(self.rows.encoder),
        }  # fmt: skip
        write_whole(Path(folder) / FILE, save(tensors, {"projector": json.dumps(told)}))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        with safe_open(Path(folder) / FILE, "pt") as file:
            told = json.loads(file.metadata()["projector"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dictionary
        parts = {name: tensors.pop(f"rows.{name}", None) for name in ("axes", "centre", "scale")}
        how: Any = {name: None if value is None else value.numpy() for name, value in parts.items()}
        how |= {"channels": tuple(told["channels"]), "side": told["side"]}
        made = cls(TextureRows(EncoderStamp(**told["encoder"]), **how), told["out_width"], told["hidden"])
        made.load_state_dict(tensors)
        return made


def encode_texture(vlm: VLM, projector: TextureProjector, image: Texture | ImageSource) -> EncodedImage:
    """An EncodedImage whose features come from a texture, through a projector: for `vlm.ask` and all the rest.

    Args:
        vlm: the model, attached; its vision tower is not run.
        projector: trained for this model. Gradients flow into it where torch records them.
        image: a texture of the projector's encoder, or an image, which is encoded with the encoder of `vlm`.

    Raises ValueError for a projector of another width than the model.
    """
    rows = rows_for(vlm, projector)
    texture = image if isinstance(image, Texture) else encode(image, encoder=vlm.encoder)
    own = next(projector.parameters())
    features = projector(torch.from_numpy(rows.read(texture)).to(own)).to(vlm.model.device, vlm.model.dtype)
    return lay_out_texture(vlm, texture, rows, features)


def rows_for(vlm: VLM, projector: TextureProjector) -> TextureRows:
    """The rows that a projector reads. Raises ValueError if it does not fit the model."""
    width = int(vlm.model.get_input_embeddings().weight.shape[1])
    if projector.out_width != width:
        raise ValueError(f"a projector to {projector.out_width} numbers for a model of {width}")
    return projector.rows


def wrapping_of(family: Family) -> Wrapping:
    """How a model takes features that its own encoder did not make: a list of tensors, or one tensor."""
    return Wrapping(listed=family.name not in ("idefics3", "smolvlm", "internvl"))


def lay_out_texture(vlm: VLM, texture: Texture, rows: TextureRows, features: torch.Tensor) -> EncodedImage:
    """An EncodedImage over the cells of `rows.grid(texture)`, with these features [cells, any width]."""
    grid = rows.grid(texture)
    size = grid.height, grid.width
    token = int(vlm.model.config.image_token_id)
    inputs: dict[str, Any] = {}
    levels: tuple[tuple[torch.Tensor, ...], ...] = ()
    visual = getattr(getattr(vlm.model, "model", None), "visual", None)
    if visual is not None:  # Qwen: positions in rows and columns, from a grid of patches
        merge = int(visual.spatial_merge_size)
        inputs["image_grid_thw"] = torch.tensor([[1, grid.h * merge, grid.w * merge]], device=vlm.model.device)
        deep = getattr(vlm.model.config.vision_config, "deepstack_visual_indexes", None) or ()
        width = int(vlm.model.get_input_embeddings().weight.shape[1])
        levels = tuple((features.new_zeros(len(features), width),) for _ in deep)
    layout, span = one_grid(grid.h, grid.w, size), ImageSpan(np.full(grid.count, token, np.int64))
    encoded = VisualFeatures((features,), levels, wrapping_of(vlm.family))
    return EncodedImage(vlm.model, (texture.pixel,), (texture,), (layout,), (span,), encoded, ReadOnly(inputs))
