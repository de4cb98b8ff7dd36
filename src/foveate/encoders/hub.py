"""What all encoders from the Hub share: images (large ones in windows), texts, loading (extra `[torch]`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_choice, check_int
from foveate.core.devices import explain_device, run_in_halves
from foveate.core.errors import EncoderFilesError, EncoderNameError, EncoderOutputError
from foveate.core.grid import Floats, Grid
from foveate.encoders.checkpoint import ModelKind, find_checkpoint, load_checkpoint
from foveate.encoders.protocol import Calibration, DenseFeatures
from foveate.encoders.windows import fit_shape, join_windows

if TYPE_CHECKING:
    import torch

Precision = Literal["auto", "float32", "bfloat16", "float16"]
LONG_SIDE, MAX_LONG_SIDE = 448, 2048
ONE_PASS = 3  # times the native grid: up to there one interpolated pass is better than windows
TEXT_BATCH = 64  # by hand
TEMPLATES = (
    "a photo of a {}.",
    "a photo of the {}.",
    "a photo of a small {}.",
    "a photo of a large {}.",
    "a bad photo of a {}.",
    "a close-up photo of a {}.",
    "there is a {} in the scene.",
)


class HubEncoder:
    """A text-image model in transformers format with a dense head; immutable.

    A family sets `kind` (the first part of its name), `default` (a checkpoint), `model_types` (of config.json), `heads`
    (the default first), `normalisation` (of pixels) and `padding` (of texts; True is to the longest).
    """

    kind: ClassVar[str]
    default: ClassVar[str]
    model_types: ClassVar[tuple[str, ...]]
    heads: ClassVar[tuple[str, ...]]
    normalisation: ClassVar[tuple[Any, Any]] = ((0.5,) * 3, (0.5,) * 3)
    padding: ClassVar[Any] = "max_length"
    templates: ClassVar[tuple[str, ...]] = TEMPLATES
    long_side: ClassVar[int] = LONG_SIDE
    # Set by hand from published margins: no trained weights could be run where this was written.
    calibration: ClassVar[Calibration] = Calibration(
        temperature=40.0, contrast=1.0, synonym=0.9, slope=60.0, offset=-3.0
    )

    def __init__(
        self, model: Any, tokenizer: Any, *, name: str, revision: str, dense: str, mean: Any = None, std: Any = None
    ) -> None:
        self.name, self.revision, self.dense = name, revision, dense
        self._model, self._tokenizer = model.eval(), tokenizer
        self._mean = np.array(self.normalisation[0] if mean is None else mean, np.float32)
        self._std = np.array(self.normalisation[1] if std is None else std, np.float32)
        vision = model.config.vision_config
        self.patch = int(vision.patch_size)
        self.native = self.native_patches(vision)
        self._dtype = next(model.vision_model.parameters()).dtype

    @property
    def device(self) -> Any:
        return self._model.device

    # What a family adds:
    @property
    def width(self) -> int:
        """D of the space that patches and texts share."""
        raise NotImplementedError

    def native_patches(self, vision: Any) -> int:
        """Patches along a side that the network was trained at."""
        return int(vision.image_size) // int(vision.patch_size)

    def dense_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Normalised pixels [n, 3, h * patch, w * patch] -> unit features [n, h, w, D]; differentiable."""
        raise NotImplementedError

    @classmethod
    def from_pretrained(
        cls, checkpoint: str = "", *, dense: str = "", device: str | None = None, dtype: Precision = "auto"
    ) -> Self:
        """A checkpoint by Hub name, `name@revision`, or local folder; empty strings mean the family's defaults.

        `dtype` is of the image network; "auto" is bfloat16 on a GPU and float32 elsewhere. Results are float32. Raises
        EncoderNameError (an unknown head, another family), EncoderFilesError, MissingExtraError, OptionError.
        """
        check_choice("dtype", dtype, get_args(Precision))
        checkpoint, dense = checkpoint or cls.default, dense or cls.heads[0]
        if dense not in cls.heads:
            raise EncoderNameError(
                f"dense head {dense!r} of {cls.kind}",
                expected=" or ".join(cls.heads),
                fix=f"write {cls.kind}:NAME#{cls.heads[-1]}, for example",
            )
        where = find_checkpoint(checkpoint, cls.model_kind())
        found = load_checkpoint(where, device=device, normalisation=cls.normalisation, tokenizer=True)
        if dtype == "auto":
            dtype = "bfloat16" if found.model.device.type == "cuda" else "float32"
        return cls(
            with_images_in(found.model, dtype),
            found.tokenizer,
            name=f"{cls.kind}:{where.label}" + ("" if dense == cls.heads[0] else f"#{dense}"),
            revision=found.revision,
            dense=dense,
            mean=found.mean,
            std=found.std,
        )

    @classmethod
    def model_kind(cls) -> ModelKind:
        return ModelKind(
            f"{cls.kind.upper()} checkpoint",
            instead=f"use the built-in encoder 'nano', which is offline, or a folder: '{cls.kind}:/path/to/folder'",
            classes=dict.fromkeys(cls.model_types, "AutoModel"),
            default=cls.default,
            files="config.json, model.safetensors and the tokenizer's files",
            error=EncoderFilesError,
            type_error=EncoderNameError,
        )

    def encode_image(self, rgb: NDArray[np.uint8], *, long_side: int | None = None) -> DenseFeatures:
        """uint8 [H, W, 3] -> unit features float32 [h, w, D] on the patch grid (28 cells along 448 pixels for /16)."""
        return self.encode_images([rgb], long_side=long_side)[0]

    def encode_images(
        self, images: Sequence[NDArray[np.uint8]], *, long_side: int | None = None
    ) -> list[DenseFeatures]:
        """Several images; those that share a grid go through the network together. Same numbers as one by one."""
        grids = [self._grid(rgb.shape[0], rgb.shape[1], long_side) for rgb in images]
        out: dict[int, DenseFeatures] = {}
        for shape in sorted({grid.shape for grid in grids}):
            members = [i for i, grid in enumerate(grids) if grid.shape == shape]
            if max(shape) > ONE_PASS * self.native:
                found = [self._in_windows(images[i], shape) for i in members]
            else:
                found = list(self._features([self._resized(images[i], shape) for i in members]))
            out |= {i: DenseFeatures(f, grids[i]) for i, f in zip(members, found, strict=True)}
        return [out[i] for i in range(len(images))]

    def _in_windows(self, rgb: NDArray[np.uint8], shape: tuple[int, int]) -> Floats:
        cells, patch = 2 * self.native, self.patch
        large = self._resized(rgb, shape)

        def look(y: int, x: int, h: int, w: int) -> Floats:
            crop = large[y * patch : (y + h) * patch, x * patch : (x + w) * patch]
            return np.asarray(self._features([crop])[0])

        overview = self._features([self._resized(rgb, fit_shape(shape, ONE_PASS * self.native))])[0]
        found = join_windows(look, overview, shape, cells, 2)
        return np.asarray(found / np.maximum(np.linalg.norm(found, axis=-1, keepdims=True), 1e-12))

    def _features(self, pictures: Sequence[Floats]) -> Floats:
        found: list[Floats] = run_in_halves(self._run, pictures, self.device)
        return np.stack(found)

    def _run(self, pictures: Sequence[Floats]) -> list[Floats]:
        import torch

        pixels = torch.from_numpy(np.ascontiguousarray(np.stack(pictures).transpose(0, 3, 1, 2)))
        with torch.inference_mode():
            features = self.dense_features(pixels.to(self.device, self._dtype)).float()
            if self._dtype != torch.float32 and not bool(features.isfinite().all()):
                raise EncoderOutputError(
                    f"encoder '{self.name}' returned NaN or infinity in {str(self._dtype).removeprefix('torch.')}",
                    expected="finite features: half precision overflows in some networks, and bad weights in any",
                    fix=f"{type(self).__name__}.from_pretrained(..., dtype='float32') as encoder=",
                )
            return list(features.cpu().numpy())

    def _grid(self, height: int, width: int, long_side: int | None) -> Grid:
        side = check_int(
            "long_side",
            LONG_SIDE if long_side is None else long_side,
            self.patch,
            MAX_LONG_SIDE,
            fix=f"leave it out for the default of {LONG_SIDE}",
        )
        cells = side / self.patch / max(height, width)
        return Grid(max(1, round(height * cells)), max(1, round(width * cells)), height, width)

    def _resized(self, rgb: NDArray[np.uint8], shape: tuple[int, int]) -> Floats:
        size = (shape[1] * self.patch, shape[0] * self.patch)
        method = cv2.INTER_AREA if size[1] < rgb.shape[0] else cv2.INTER_CUBIC
        resized = cv2.resize(rgb, size, interpolation=method).astype(np.float32) / 255
        return np.asarray((resized - self._mean) / self._std, np.float32)

    def encode_text(self, texts: Sequence[str]) -> Floats:
        """Texts -> unit vectors float32 [n, D]; longer ones than the network's context are cut."""
        import torch
        from torch.nn.functional import normalize

        out = [np.empty((0, self.width), np.float32)]
        for start in range(0, len(texts), TEXT_BATCH):
            inputs = self.tokenize(list(texts[start : start + TEXT_BATCH]))
            with torch.inference_mode(), explain_device(f"{len(inputs['input_ids'])} texts", self.device):
                placed = {key: value.to(self._model.device) for key, value in inputs.items()}
                vectors = self._model.get_text_features(**placed).pooler_output
                out.append(normalize(vectors.float(), dim=-1).cpu().numpy())
        return np.concatenate(out)

    def tokenize(self, texts: list[str]) -> dict[str, Any]:
        limit = int(self._model.config.text_config.max_position_embeddings)
        batch = self._tokenizer(texts, padding=self.padding, truncation=True, max_length=limit, return_tensors="pt")
        return {key: batch[key] for key in ("input_ids", "attention_mask")}


def with_images_in(model: Any, dtype: str) -> Any:
    """A model whose image network works in this precision, and whose text network stays as it was."""
    import torch

    for part in (model.vision_model, getattr(model, "visual_projection", None)):
        if part is not None and dtype != "float32":
            part.to(getattr(torch, dtype))
    return model
