"""Mixins placed first in the bases of vLLM's model classes (engine's process): only kept rows, at original positions.

* Positions are those that the stock class gives to the full prompt, with the dropped placeholders put back.
* An image is encoded whole, whatever is asked, or its kept tokens alone (kept.py). Features of whole images are kept
  (features.py), those of kept tokens are not: who asks otherwise has other tokens. So an answer does not depend on what
  was asked before.
* vLLM's scheduler counts kept tokens when it decides how many images are encoded together. That is right where they are
  encoded alone. Else no more images are encoded in one call than have as many visual tokens as vLLM measured its memory
  for.
* Without M-RoPE, vLLM numbers tokens itself, without gaps. It asks a model only where the configuration has an M-RoPE
  section, and then passes rows (time, row, column). So `SectionDeclared` adds a section, where there is none and no
  layer looks for one, and `FlatPositions` passes the first of three equal rows on to the stock language model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from foveate.core.errors import ModelError
from foveate.serving import metrics
from foveate.serving.features import FEATURES, FEATURES_MB, FeaturePool
from foveate.serving.kept import find_encoder, kept_rows
from foveate.serving.layouts import ALONE, COUNT, DIGEST, PLACES, SECTION, SPAN, is_flat, is_pixels, take_images
from foveate.serving.request import read_megabytes, split_keywords


class ChosenRows:
    """Mixin placed first in the bases of a stock model class; see the module."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        lora = vllm_config.lora_config
        if lora and lora.enable_tower_connector_lora:
            raise ModelError(
                "--enable-tower-connector-lora: an adapter of the encoder changes an image's features",
                expected="adapters of the language model alone, which need no flag",
                fix="leave the flag out, or keep foveate out with VLLM_PLUGINS",
            )
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        config = vllm_config.model_config
        changing = config.enable_sleep_mode or getattr(vllm_config, "weight_transfer_config", None)
        self._features = FeaturePool(
            0 if changing else read_megabytes(FEATURES_MB, FEATURES),  # where weights change, features would be old
            getattr(getattr(self, "visual", None), "out_hidden_size", config.hf_text_config.hidden_size),
            config.dtype,
            torch.device(vllm_config.device_config.device),
        )
        if (encoder := find_encoder(config)) is not None:
            encoder.check(self, config.architecture)
        self._kept_encoder = encoder
        self._most = vllm_config.scheduler_config.max_num_encoder_input_tokens

    def load_weights(self, *args: Any, **keywords: Any) -> Any:
        """As stock; features of other weights are forgotten."""
        self._features.clear()
        return super().load_weights(*args, **keywords)  # type: ignore[misc]

    def get_mrope_input_positions(self, input_tokens: list[int], mm_features: Any) -> tuple[torch.Tensor, int]:
        """Positions [3, L] of the short prompt: those that its tokens have in the full one."""
        full, features, kept = restore_prompt(input_tokens, mm_features)
        positions, _ = super().get_mrope_input_positions(full, features)  # type: ignore[misc]
        return positions[:, kept], int(positions.max()) + 1 - len(input_tokens)

    def embed_multimodal(self, **inputs: Any) -> Any:
        """The kept rows of each image; as stock for what came without a choice."""
        ours, stock = split_keywords(inputs)
        if not ours:
            return super().embed_multimodal(**stock)  # type: ignore[misc]
        keys, pool = [tuple(digest) for digest in ours[DIGEST].tolist()], self._features
        kept, alone = kept_rows(ours), ALONE in ours
        rows = [torch.arange(len(each)) for each in kept] if alone else kept  # of what is encoded
        sizes = ours[COUNT if alone else SPAN].flatten().tolist()
        found = {n: pool.take(key, rows[n]) for n, key in enumerate(keys) if not alone and key in pool}
        first = {key: n for n, key in reversed(list(enumerate(keys))) if n not in found}
        for numbers in group_images(sorted(first.values()), sizes, self._most):
            encoded = (self._encode_kept if alone else self._encode)(stock, ours, numbers)
            for number, features in zip(numbers, encoded, strict=True):
                for same in (n for n, key in enumerate(keys) if key == keys[number]):
                    found[same] = features.index_select(0, rows[same].to(features.device))
                if not alone:
                    pool.put(keys[number], features)
        if not alone:
            metrics.count_features(kept=len(keys) - len(first), made=len(first))
        return tuple(found[n] for n in range(len(keys)))

    def get_encoder_cudagraph_config(self) -> Any:
        """As stock, for nothing that is chosen of: a captured encoder goes round `embed_multimodal`."""
        config = super().get_encoder_cudagraph_config()  # type: ignore[misc]
        return replace(config, modalities=[each for each in config.modalities if each not in ("image", "video")])

    def _encode_kept(
        self, stock: Mapping[str, Any], ours: Mapping[str, Any], numbers: Sequence[int]
    ) -> Sequence[torch.Tensor]:
        """Features of the kept tokens of these images of a batch, encoded without the others."""
        if self._kept_encoder is None:
            raise AssertionError("the processor refuses it")
        return self._kept_encoder.encode(self, stock, ours, numbers)

    def _encode(
        self, stock: Mapping[str, Any], ours: Mapping[str, Any], numbers: Sequence[int]
    ) -> Sequence[torch.Tensor]:
        """Full features of these images of a batch."""
        taken = take_images(stock, ours, numbers)
        placed = {name: self._place(value) if is_pixels(name) else value for name, value in taken.items()}
        return super().embed_multimodal(**placed)  # type: ignore[misc]

    def _place(self, pixels: Any) -> Any:
        device = self._features.pages.device
        return pixels.to(device) if isinstance(pixels, torch.Tensor) else [each.to(device) for each in pixels]


class FlatPositions:
    """Mixin placed between `ChosenRows` and a stock model class, for models without M-RoPE; see `is_flat`."""

    supports_mrope = True

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        self._flat = is_flat(vllm_config.model_config.hf_config)
        if self._flat and "model_config" in self.__dict__:  # transformers' models, which look for a section in forward
            self.model_config = _without_section(vllm_config.model_config)
        self._last_position = count_positions(vllm_config.model_config) - 1

    def get_mrope_input_positions(self, input_tokens: list[int], mm_features: Any) -> tuple[torch.Tensor, int]:
        """0, 1, 2, ..., three times: int64 [3, L]; of a model with M-RoPE as stock."""
        if not self._flat:
            return super().get_mrope_input_positions(input_tokens, mm_features)  # type: ignore[misc]
        return torch.arange(len(input_tokens)).repeat(3, 1), 0

    def forward(self, input_ids: Any, positions: torch.Tensor, *args: Any, **keywords: Any) -> Any:
        """As stock, with one row of positions. They end at the last that RoPE has: a GPU would read beyond its table.

        The tensor is changed in place: a captured graph reads the same memory in every call.
        """
        if not self._flat:
            return super().forward(input_ids, positions, *args, **keywords)  # type: ignore[misc]
        one = positions[0] if positions.ndim == 2 else positions
        one.clamp_(max=self._last_position)
        return super().forward(input_ids, one, *args, **keywords)  # type: ignore[misc]


def _without_section(model_config: Any) -> Any:
    """A model's configuration as it was before `SectionDeclared`."""
    stock = copy.copy(model_config)
    stock.hf_config = copy.copy(model_config.hf_config)
    del stock.hf_config.mrope_section
    return stock


class SectionDeclared:
    """Of `vllm.model_executor.models.config.MODELS_CONFIG_MAP`: a configuration without M-RoPE gets our section.

    stock: what stood there before, or None. serves: (configuration) -> whether our class runs it.
    """

    stock: Any = None
    serves: Callable[[Any], bool]

    @classmethod
    def verify_and_update_model_config(cls, model_config: Any) -> None:
        """vLLM calls it before anything asks whether the model has M-RoPE."""
        if cls.stock is not None:
            cls.stock.verify_and_update_model_config(model_config)
        if not model_config.uses_mrope and cls.serves(model_config.hf_config):
            model_config.hf_config.mrope_section = SECTION

    @classmethod
    def verify_and_update_config(cls, vllm_config: Any) -> None:
        """As stock."""
        if cls.stock is not None:
            cls.stock.verify_and_update_config(vllm_config)


def count_positions(model_config: Any) -> int:
    """Positions that RoPE has numbers for, at least."""
    trained = getattr(model_config.hf_text_config, "max_position_embeddings", 0) or 0
    return max(int(trained), int(model_config.max_model_len))


def group_images(numbers: Sequence[int], spans: Sequence[int], most: int) -> list[list[int]]:
    """Images in their order, in groups of at most so many visual tokens; an image that has more is alone.

    >>> group_images([0, 2, 3, 4], [5, 9, 3, 3, 20], 8)
    [[0, 2], [3], [4]]
    """
    groups, room = list[list[int]](), 0
    for number in numbers:
        room -= spans[number]
        if room < 0 or not groups:
            groups.append([])
            room = most - spans[number]
        groups[-1].append(number)
    return groups


def restore_prompt(ids: list[int], features: Sequence[Any]) -> tuple[list[int], list[Any], torch.Tensor]:
    """Ids [L] of the short prompt -> (ids of the full one, features with their places in it, places of the short
    prompt's tokens in it: int64 [L]).

    features: vLLM's `MultiModalFeatureSpec`s: where each image lies in the short prompt, and what travels with it.
    """
    full, moved, kept, at = list[int](), list[Any](), list[torch.Tensor](), 0
    for feature in sorted(features, key=lambda each: each.mm_position.offset):
        place = feature.mm_position
        kept.append(torch.arange(place.offset - at) + len(full))
        full += ids[at : place.offset]
        at = place.offset + place.length
        data = feature.data or {}
        places = data[PLACES].data if PLACES in data else torch.arange(place.length)
        span = int(data[SPAN].data) if PLACES in data else place.length
        if len(places) != place.length:
            raise AssertionError(f"{place.length} ids of an image where {len(places)} are kept")
        visual = torch.ones(place.length, dtype=torch.bool) if place.is_embed is None else place.is_embed
        mask = torch.ones(span, dtype=torch.bool).index_copy(0, places, visual)  # what was dropped is visual
        whole = torch.full((span,), ids[place.offset + int(visual.int().argmax())])
        whole[places] = torch.tensor(ids[place.offset : at])
        moved.append(replace(feature, mm_position=replace(place, offset=len(full), length=span, is_embed=mask)))
        kept.append(places + len(full))
        full += whole.tolist()
    kept.append(torch.arange(len(ids) - at) + len(full))
    return full + ids[at:], moved, torch.cat(kept)
