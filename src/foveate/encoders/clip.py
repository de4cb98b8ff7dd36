"""CLIP checkpoints in transformers format as dense encoders (extra `[torch]`).

What is notable
* The raw patch tokens of CLIP's last layer are nearly useless for "where", and can be inverted. The last block is
  replaced, with the same weights: `naclip` (default; Hajimiri et al., "Pay Attention to Your Neighbours", 2024) attends
  from keys to keys with a Gaussian neighbourhood and drops the residual and the MLP; `maskclip` (Zhou et al. 2022)
  keeps each patch's own value; `raw` is the block as it was, for comparison.
* One pass at any height and width: position embeddings are interpolated (bicubic), nothing is cropped or squashed.
* Larger towers are *worse* here: B/16 beats L/14 beats H/14 in every published training-free comparison.

What is downloaded: with a Hub name and nothing in the cache, the checkpoint (about 600 MB for ViT-B/16, 1.7 GB for
L/14), once, as safetensors. A local folder downloads nothing. docs/encoders.md has the list.

Not covered: the calibration below was set by hand from published margins, since no trained CLIP weights could be run
where this was written. Rank by `relevance.margin` until you have measured it on your data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import cv2
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from foveate.encoders import CLIP_DEFAULT, Calibration, DenseFeatures, Floats
from foveate.errors import EncoderFilesError, EncoderNameError, MissingExtraError, OptionError
from foveate.grid import Grid

if TYPE_CHECKING:
    import torch

Dense = Literal["naclip", "maskclip", "raw"]
LONG_SIDE, MAX_LONG_SIDE = 448, 1024  # attention needs 0.8 GB at 1024 pixels and patch 16
SIGMA = 5.0  # patches; NACLIP's value
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)  # OpenAI's
TEXT_BATCH = 64
TEMPLATES = (
    "a photo of a {}.",
    "a photo of the {}.",
    "a photo of a small {}.",
    "a photo of a large {}.",
    "a bad photo of a {}.",
    "a close-up photo of a {}.",
    "there is a {} in the scene.",
)


class Clip:
    """A CLIP model with a dense head. Make it with `from_pretrained`; it never changes afterwards."""

    templates = TEMPLATES
    calibration = Calibration(temperature=40.0, rivalry=1.0, synonym=0.9, slope=60.0, offset=-3.0)

    def __init__(
        self, model: Any, tokenizer: Any, *, name: str, revision: str, dense: Dense, mean: Any = MEAN, std: Any = STD
    ) -> None:
        self.name, self.revision, self.dense = name, revision, dense
        self.width = int(model.config.projection_dim)
        self.patch = int(model.config.vision_config.patch_size)
        self._model, self._tokenizer = model.eval(), tokenizer
        self._mean, self._std = np.array(mean, np.float32), np.array(std, np.float32)

    @classmethod
    def from_pretrained(
        cls, checkpoint: str = CLIP_DEFAULT, *, dense: str = "naclip", device: str | None = None
    ) -> Clip:
        """A checkpoint by Hub name, `name@revision`, or local folder.

        Raises:
            MissingExtraError: torch or transformers is not installed.
            EncoderNameError: an unknown dense head, or a checkpoint of another architecture.
            EncoderFilesError: not in the folder, or not to be downloaded.
        """
        if dense not in get_args(Dense):
            raise EncoderNameError(
                f"dense head {dense!r}",
                expected=" or ".join(get_args(Dense)),
                fix="write clip:NAME#maskclip, for example",
            )
        torch, transformers = _libraries()
        source, pinned = checkpoint, ""
        if not Path(checkpoint).expanduser().is_dir():  # folders may have an @ in their names
            source, _, pinned = checkpoint.partition("@")
        folder = Path(source).expanduser()
        local = folder.is_dir()
        if source.startswith((".", "/", "~")) and not local:
            raise EncoderFilesError(
                f"no folder '{folder}'",
                expected="a folder with config.json and model.safetensors",
                fix="check the path",
            )
        where = str(folder.resolve()) if local else source
        options: dict[str, Any] = {"revision": pinned} if pinned else {}
        code = {"trust_remote_code": False}  # and never ask: a checkpoint is data
        try:
            config = transformers.AutoConfig.from_pretrained(where, **code, **options)
            if config.model_type != "clip":
                raise EncoderNameError(
                    f"'{checkpoint}' is a {config.model_type} model",
                    expected="a CLIP model (model_type 'clip')",
                    fix=f"use '{CLIP_DEFAULT}' or an OpenCLIP checkpoint converted to transformers format",
                )
            model, report = transformers.CLIPModel.from_pretrained(
                where, use_safetensors=True, output_loading_info=True, **options
            )
            if report["missing_keys"]:  # the library would fill them with random numbers and only warn
                raise ValueError(f"weights are missing: {sorted(report['missing_keys'])[:3]}")
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, **code, **options)
            mean, std = _normalisation(where, options, transformers)
        except (OSError, ValueError, RuntimeError, SafetensorError) as cause:
            if isinstance(cause, EncoderNameError):
                raise
            raise _unavailable(checkpoint, local, cause) from cause
        revision = _digest(folder) if local else str(getattr(config, "_commit_hash", None) or pinned or "unknown")
        label = folder.name if local else checkpoint  # a folder's name only: textures travel, folders do not
        name = f"clip:{label}" + ("" if dense == "naclip" else f"#{dense}")
        place = device or ("cuda" if torch.cuda.is_available() else "cpu")
        kind: Any = dense
        return cls(model.to(place), tokenizer, name=name, revision=revision[:12], dense=kind, mean=mean, std=std)

    # --- images -------------------------------------------------------------------------------------------------------

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        """uint8 [H, W, 3] -> unit features float32 [h, w, D] on the patch grid (28 cells along 448 pixels for /16)."""
        return self.encode_images([rgb], long_side=long_side)[0]

    def encode_images(
        self, images: Sequence[NDArray[np.uint8]], *, long_side: int | None = None
    ) -> list[DenseFeatures]:
        """Several images; those that share a grid go through the tower together. Same numbers as one by one."""
        import torch

        grids = [self._grid(rgb.shape[0], rgb.shape[1], long_side) for rgb in images]
        out: dict[int, DenseFeatures] = {}
        for shape in sorted({grid.shape for grid in grids}):
            members = [i for i, grid in enumerate(grids) if grid.shape == shape]
            pixels = torch.from_numpy(np.stack([self._pixels(images[i], shape) for i in members]))
            with torch.inference_mode():
                features = self.dense_features(pixels.to(self._model.device)).float().cpu().numpy()
            out |= {i: DenseFeatures(f, grids[i]) for i, f in zip(members, features, strict=True)}
        return [out[i] for i in range(len(images))]

    def dense_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Normalised pixels [n, 3, h * patch, w * patch] -> unit features [n, h, w, D]; differentiable."""
        from torch.nn.functional import normalize

        h, w = pixels.shape[2] // self.patch, pixels.shape[3] // self.patch
        vision = self._model.vision_model
        x = self.last_block(self.before_last_block(pixels), (h, w))
        x = self._model.visual_projection(vision.post_layernorm(x))[:, 1:]  # without the class token
        return normalize(x, dim=-1).reshape(len(pixels), h, w, -1)

    def before_last_block(self, pixels: torch.Tensor) -> torch.Tensor:
        """Pixels -> input of the tower's last block [n, 1 + h w, width], class token first."""
        vision = self._model.vision_model
        x = vision.pre_layrnorm(vision.embeddings(pixels, interpolate_pos_encoding=True))
        for block in vision.encoder.layers[:-1]:
            x = block(x, None)
        return x

    def last_block(self, x: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
        """The last block as it was (`raw`), or the head that replaces it: [n, 1 + h w, width] -> the same shape."""
        block = self._model.vision_model.encoder.layers[-1]
        if self.dense == "raw":
            return block(x, None)
        attention, z = block.self_attn, block.layer_norm1(x)
        v = attention.v_proj(z)
        if self.dense == "naclip":
            n, tokens, width = v.shape
            heads = (n, tokens, attention.num_heads, width // attention.num_heads)
            k, v = (t.reshape(heads).transpose(1, 2) for t in (attention.k_proj(z), v))  # [n, heads, tokens, d]
            logits = k @ k.transpose(-1, -2) * attention.scale + neighbourhood(shape).to(k)
            v = (logits.softmax(-1) @ v).transpose(1, 2).reshape(n, tokens, width)
        return attention.out_proj(v)

    def _grid(self, height: int, width: int, long_side: int | None) -> Grid:
        side = LONG_SIDE if long_side is None else long_side
        if isinstance(side, bool) or not isinstance(side, int | np.integer) or not self.patch <= side <= MAX_LONG_SIDE:
            raise OptionError(
                f"long_side={long_side!r}",
                expected=f"a whole number of pixels from {self.patch} to {MAX_LONG_SIDE}",
                fix=f"leave it out for the default of {LONG_SIDE}",
            )
        cells = side / self.patch / max(height, width)
        return Grid(max(1, round(height * cells)), max(1, round(width * cells)), height, width)

    def _pixels(self, rgb: NDArray[np.uint8], shape: tuple[int, int]) -> Floats:
        """-> normalised float32 [3, h * patch, w * patch]; the grid covers the image exactly."""
        size = (shape[1] * self.patch, shape[0] * self.patch)
        method = cv2.INTER_AREA if size[1] < rgb.shape[0] else cv2.INTER_CUBIC
        resized = cv2.resize(rgb, size, interpolation=method).astype(np.float32) / 255
        return np.ascontiguousarray(((resized - self._mean) / self._std).transpose(2, 0, 1), np.float32)

    # --- texts --------------------------------------------------------------------------------------------------------

    def encode_text(self, texts: Sequence[str]) -> Floats:
        """Texts -> unit vectors float32 [n, D]; longer ones than the tower's context are cut."""
        import torch
        from torch.nn.functional import normalize

        limit = int(self._model.config.text_config.max_position_embeddings)
        out = []
        for start in range(0, len(texts), TEXT_BATCH):
            batch = self._tokenizer(
                list(texts[start : start + TEXT_BATCH]),
                padding=True,
                truncation=True,
                max_length=limit,
                return_tensors="pt",
            )
            with torch.inference_mode():
                inputs = {key: batch[key].to(self._model.device) for key in ("input_ids", "attention_mask")}
                out.append(
                    normalize(self._model.get_text_features(**inputs).pooler_output.float(), dim=-1).cpu().numpy()
                )
        return np.concatenate(out) if out else np.empty((0, self.width), np.float32)


@lru_cache(maxsize=2)
def neighbourhood(shape: tuple[int, int], sigma: float = SIGMA) -> torch.Tensor:
    """NACLIP's bias on attention: exp(-d^2 / 2 sigma^2) of the distance in patches, 0 for the class token.

    -> float32 [1 + h w, 1 + h w].
    """
    import torch

    h, w = shape
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    at = torch.stack([y.flatten(), x.flatten()], 1).float()
    bias = torch.zeros(1 + h * w, 1 + h * w)
    bias[1:, 1:] = torch.exp(-(torch.cdist(at, at, compute_mode="donot_use_mm_for_euclid_dist") ** 2) / (2 * sigma**2))
    return bias


def _libraries() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError as cause:
        raise MissingExtraError(
            f"the encoder 'clip' needs {cause.name}, which is not installed",
            expected="the extra [torch] (on Linux, PyPI's torch brings 5 GB of CUDA packages)",
            fix="pip install 'foveate[torch]'; for a CPU-only machine first: "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu; the built-in 'nano' needs neither",
        ) from cause
    return torch, transformers


def _unavailable(checkpoint: str, local: bool, cause: Exception) -> EncoderFilesError:
    reason = str(cause).strip().split("\n")[0][:200]
    if local:
        return EncoderFilesError(
            f"the folder '{checkpoint}' does not hold a whole CLIP checkpoint ({reason})",
            expected="config.json, model.safetensors and the tokenizer's files, in transformers format",
            fix="save it again with model.save_pretrained(folder) and tokenizer.save_pretrained(folder)",
        )
    return EncoderFilesError(
        f"the checkpoint '{checkpoint}' is not in the local cache and cannot be downloaded ({reason})",
        expected="a network and a right name, or a checkpoint in the cache (HF_HUB_OFFLINE=1 forbids the network)",
        fix="use the built-in encoder 'nano', which is offline, or a local folder: 'clip:/path/to/folder'",
    )


def _normalisation(where: str, options: dict[str, Any], transformers: Any) -> tuple[Any, Any]:
    """Mean and standard deviation from preprocessor_config.json, or OpenAI's where a checkpoint has none."""
    file = transformers.utils.cached_file(
        where, "preprocessor_config.json", _raise_exceptions_for_missing_entries=False, **options
    )
    content = json.loads(Path(file).read_text("utf-8")) if file else {}
    return content.get("image_mean", MEAN), content.get("image_std", STD)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(f for kind in ("json", "safetensors", "txt") for f in folder.glob(f"*.{kind}")):
        digest.update(file.name.encode())
        with file.open("rb") as content:
            while block := content.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
