"""From texture rows to the language model's width: what stands in the place of the vision tower.

    rows = TextureRows.fit(textures)                                    # 16 numbers a cell, and where it lies
    projector = TextureProjector.for_model(model, rows)                 # trained by training/judges/projector
    vlm = foveate.vlm.attach(model, processor)
    vlm.ask(encode_texture(vlm, projector, texture), "what is on the plate?", budget=128)

* A linear layer, or two with a GELU between (`hidden`), as LLaVA and LLaVA 1.5 have them.
* The file holds all that is needed to read a texture: encoder, axes, centre, scale, channels.
* The first outputs have the mean length of the model's own token embeddings; a projector that begins ten times too loud
  drowns the text. Weights are drawn from a separate generator: torch's global one is left as it was.
* `encode_texture` gives an ordinary `EncodedImage`, for `ask`, `ask_many` and `prepare`. The vision tower is never run.
* Of a prompt's image only placeholder tokens are laid out, one a cell, without the tags that some families put around
  tiles. Qwen3-VL's deeper levels (DeepStack) get zeros: the projector feeds the first layer only.
* Needs torch; this module is imported when it is first used.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np

from foveate.core.checks import check_int
from foveate.core.errors import MissingExtraError, ModelError, ModelFilesError, OptionError
from foveate.core.files import make_folder, write_whole
from foveate.core.image import ImageSource
from foveate.core.readonly import ReadOnly
from foveate.encoders.checkpoint import ModelKind, explain_errors, find_checkpoint
from foveate.pipeline import encode
from foveate.texture.texture import EncoderStamp, Texture
from foveate.vlm.encoded import EncodedImage
from foveate.vlm.families.family import VisualFeatures
from foveate.vlm.families.token_layout import one_grid
from foveate.vlm.model import VLM
from foveate.vlm.rows import TextureRows

try:
    import torch
    from torch import nn
except ImportError as _cause:
    raise MissingExtraError(
        "a texture projector needs torch, which is not installed",
        expected="the extra [vlm]",
        fix="pip install 'foveate[vlm]'",
    ) from _cause

FORMAT, VERSION = "foveate-texture-projector", 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
KIND = ModelKind(
    what="texture projector",
    classes={},
    default="",
    needed_by="a texture projector",
    instead="check the name",
    without_torch="",
    error=ModelFilesError,
    type_error=ModelError,
    files=f"{CONFIG} and {WEIGHTS} as TextureProjector.save_pretrained writes them",
    saved_by="TextureProjector.save_pretrained(folder)",
)
GELU_POWER = 0.425  # mean square of GELU of a standard normal number
CARD = """---
library_name: foveate
tags: [texture-projector]
---
A foveate `TextureProjector`: texture rows of {in_width} numbers ({encoder}) to a language model {out_width} wide.

    from foveate.vlm.projector import TextureProjector
    projector = TextureProjector.from_pretrained("{repo}")
"""


class TextureProjector(nn.Module):
    """Rows [n, in_width] -> [n, out_width]; `hidden`: numbers between two layers, None for one layer.

    `rows`: how textures become rows; None for a projector whose rows are made by the caller.
    """

    def __init__(
        self,
        in_width: int,
        out_width: int,
        hidden: int | None = None,
        *,
        rows: TextureRows | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        fix = "TextureProjector.for_model(model, rows) takes the widths from the model and the rows"
        check_int("in_width", in_width, fix=fix)
        check_int("out_width", out_width, fix=fix)
        if hidden is not None:
            check_int("hidden", hidden, fix="leave it out for one layer")
        if rows is not None and rows.width != in_width:
            raise OptionError(
                f"in_width={in_width} for rows of {rows.width}", expected="the same", fix="pass in_width=rows.width"
            )
        self.in_width, self.out_width, self.hidden, self.rows = in_width, out_width, hidden, rows
        widths = [in_width, out_width] if hidden is None else [in_width, hidden, out_width]
        layers: list[nn.Module] = []
        for number, (a, b) in enumerate(pairwise(widths)):
            layers += [nn.GELU()] if number else []
            layers.append(nn.utils.skip_init(nn.Linear, a, b))  # type: ignore[no-untyped-call]
        self.layers = nn.Sequential(*layers)
        self._begin(1.0, seed)

    @torch.no_grad()
    def _begin(self, loudness: float, seed: int) -> None:
        """Weights for inputs of variance 1 and outputs of root mean square `loudness`."""
        source = torch.Generator().manual_seed(seed)
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        for layer in linear:
            power = layer.in_features * (1.0 if layer is linear[0] else GELU_POWER)
            layer.weight.normal_(0, (loudness if layer is linear[-1] else 1.0) / math.sqrt(power), generator=source)
            layer.bias.zero_()

    @classmethod
    def for_model(cls, model: Any, rows: TextureRows, hidden: int | None = None, *, seed: int = 0) -> Self:
        """A projector as wide as a model's token embeddings, which begins as loud as they are."""
        table = model.get_input_embeddings().weight
        projector = cls(rows.width, int(table.shape[1]), hidden, rows=rows, seed=seed)
        projector._begin(float(table.detach().float().square().mean().sqrt()), seed)
        return projector.to(table.device)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., in_width] -> [..., out_width]."""
        return self.layers(rows)

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and model.safetensors, each whole or not at all. Raises OutputError."""
        from safetensors.torch import save

        place = Path(folder)
        make_folder(place)
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        config: dict[str, Any] = {"format": FORMAT, "version": VERSION, "rows": None}
        config |= {name: getattr(self, name) for name in ("in_width", "out_width", "hidden")}
        if self.rows is not None:
            stamp = self.rows.encoder
            config["rows"] = {
                "encoder": {"name": stamp.name, "revision": stamp.revision, "width": stamp.width},
                "rank": None if self.rows.axes is None else self.rows.rank,
                "channels": list(self.rows.channels), "side": int(self.rows.side),
            }  # fmt: skip
            for name in ("axes", "centre", "scale"):
                if getattr(self.rows, name) is not None:
                    tensors[f"rows.{name}"] = torch.from_numpy(getattr(self.rows, name).copy())
        write_whole(place / WEIGHTS, save(tensors))
        write_whole(place / CONFIG, json.dumps(config, indent=2).encode())

    @classmethod
    def from_pretrained(
        cls, name: str | os.PathLike[str], *, revision: str | None = None, local_files_only: bool = False
    ) -> Self:
        """Read what `save_pretrained` wrote: a local folder, or the name of a repository on the Hub.

        Raises ModelFilesError for files that are missing, damaged, or of something else.
        """
        from huggingface_hub import snapshot_download
        from safetensors.torch import load

        source = find_checkpoint(os.fspath(name), KIND)
        with explain_errors(source):
            folder = source.folder or Path(
                snapshot_download(
                    source.where,
                    revision=revision or source.pinned or None,
                    allow_patterns=[CONFIG, WEIGHTS],
                    local_files_only=local_files_only,
                )
            )
            config = json.loads((folder / CONFIG).read_text("utf-8"))
            tensors = load((folder / WEIGHTS).read_bytes())
            if not isinstance(config, dict) or config.get("format") != FORMAT or config.get("version") != VERSION:
                raise ValueError(f"{CONFIG} does not say format {FORMAT!r}, version {VERSION}")
            if bad := sorted(key for key, value in tensors.items() if not bool(torch.isfinite(value).all())):
                raise ValueError(f"{', '.join(bad)} hold infinite numbers or NaN")
            try:
                rows = _read_rows(config["rows"], tensors)
                made = cls(config["in_width"], config["out_width"], config["hidden"], rows=rows)
                made.load_state_dict({key: value for key, value in tensors.items() if not key.startswith("rows.")})
            except (KeyError, TypeError, RuntimeError, OptionError) as cause:
                raise ValueError(f"config and weights do not fit together: {' '.join(str(cause).split())}") from cause
        return made

    def push_to_hub(self, repo: str, *, private: bool = False, token: str | None = None) -> str:
        """Upload to the Hub with a short model card, as "owner/name"; returns the address of the commit."""
        from huggingface_hub import HfApi

        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            encoder = "rows of its own" if self.rows is None else f"encoder {self.rows.encoder.name}"
            card = CARD.format(in_width=self.in_width, out_width=self.out_width, encoder=encoder, repo=repo)
            write_whole(Path(folder) / "README.md", card.encode())
            api = HfApi(token=token)
            api.create_repo(repo, private=private, exist_ok=True)
            return str(api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Texture projector"))


def encode_texture(vlm: VLM, projector: TextureProjector, image: Texture | ImageSource) -> EncodedImage:
    """An EncodedImage whose features come from a texture, through a projector: for `vlm.ask` and all the rest.

    Args:
        vlm: the model, attached; its vision tower is not run.
        projector: trained for this model. Gradients flow into it where torch records them.
        image: a texture of the projector's encoder, or an image, which is encoded with the encoder of `vlm`.

    Raises:
        ModelError: the projector is of another width than the model, or does not know how to read textures.
    """
    rows = rows_for(vlm, projector)
    texture = image if isinstance(image, Texture) else encode(image, encoder=vlm.encoder)
    own = next(projector.parameters())
    features = projector(torch.from_numpy(rows.read(texture)).to(own)).to(vlm.model.device, vlm.model.dtype)
    return lay_out_texture(vlm, texture, rows, features)


def rows_for(vlm: VLM, projector: TextureProjector) -> TextureRows:
    """The rows that a projector reads. Raises ModelError if it knows none, or does not fit the model."""
    width = int(vlm.model.get_input_embeddings().weight.shape[1])
    if projector.out_width != width or projector.rows is None:
        raise ModelError(
            f"a projector to {projector.out_width} numbers for a {type(vlm.model).__name__}"
            if projector.rows is not None
            else "a projector without rows: it does not know how to read a texture",
            expected=f"one with rows, to {width} numbers",
            fix="TextureProjector.for_model(model, TextureRows.fit(textures))",
        )
    return projector.rows


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
    layout, span = one_grid(grid.h, grid.w, size), np.full(grid.count, token, np.int64)
    encoded = VisualFeatures((features,), levels)
    return EncodedImage(vlm.model, (texture.pixel,), (texture,), (layout,), (span,), encoded, ReadOnly(inputs))


def _read_rows(config: Any, tensors: dict[str, torch.Tensor]) -> TextureRows | None:
    """Raises KeyError, TypeError, OptionError or ChannelError (a KeyError) for what is no description of rows."""
    if config is None:
        return None
    stamp = EncoderStamp(
        str(config["encoder"]["name"]), str(config["encoder"]["revision"]), int(config["encoder"]["width"])
    )
    axes = None if config["rank"] is None else tensors["rows.axes"].numpy()
    centre, scale = (tensors[f"rows.{name}"].numpy() for name in ("centre", "scale"))
    return TextureRows(stamp, axes, tuple(map(str, config["channels"])), centre, scale, config["side"])
