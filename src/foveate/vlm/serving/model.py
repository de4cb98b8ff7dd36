"""Before a family's stock model class, in the engine's process: only the kept rows, at their original positions.

* Positions are those that the stock class gives to the full prompt, dropped placeholders put back; so no formula of a
  family is copied.
* An image is encoded once, whole, whatever is asked: full features are kept (features.py) by what the image shows.
* Both are asked before the first token is computed, so chunked prefill, batches and cache hits need nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from foveate.vlm.serving import metrics
from foveate.vlm.serving.features import FeaturePool
from foveate.vlm.serving.processor import COUNT, DIGEST, FEATURES, FIELDS, PLACES, ROWS, SPAN, megabytes


class ChosenRows:
    """Mixin before a stock model class; see the module."""

    _features: FeaturePool | None = None
    _keeps: bool = True

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        lora = vllm_config.lora_config  # an adapter of the encoder changes its features, and is not known here
        self._keeps = not (lora and lora.enable_tower_connector_lora)

    def load_weights(self, *args: Any, **keywords: Any) -> Any:
        """As stock; features of other weights are forgotten."""
        if self._features is not None:
            self._features.clear()
        return super().load_weights(*args, **keywords)  # type: ignore[misc]

    def get_mrope_input_positions(self, input_tokens: list[int], mm_features: Any) -> tuple[torch.Tensor, int]:
        """Positions [3, L] of the short prompt: those that its tokens have in the full one."""
        full, features, kept = restore_prompt(input_tokens, mm_features)
        positions, _ = super().get_mrope_input_positions(full, features)  # type: ignore[misc]
        return positions[:, kept], int(positions.max()) + 1 - len(input_tokens)

    def embed_multimodal(self, **inputs: Any) -> Any:
        """The kept rows of each image; as stock for what came without a choice."""
        ours, stock = split_inputs(inputs)
        if not ours:
            made = super().embed_multimodal(**stock)  # type: ignore[misc]
            self._pool(made)  # at the latest while vLLM measures its memory
            return made
        keys = [tuple(digest) for digest in ours[DIGEST].tolist()]
        rows = torch.split(ours[ROWS], ours[COUNT].flatten().tolist())
        pool = self._features
        missing = [n for n, key in enumerate(keys) if (pool is None or key not in pool) and key not in keys[:n]]
        made = dict(zip((keys[n] for n in missing), self._encode(stock, missing), strict=True))
        metrics.count_features(kept=len(keys) - len(missing), made=len(missing))
        pool = self._pool(list(made.values()))
        found = [
            made[key].index_select(0, each.to(made[key].device)) if key in made else pool.take(key, each)
            for key, each in zip(keys, rows, strict=True)
        ]
        for key, features in made.items():  # after the others were taken, as they may have to make room
            pool.put(key, features)
        return tuple(found)

    def get_encoder_cudagraph_config(self) -> Any:
        """As stock, without images: a captured encoder goes round `embed_multimodal`, and returns every row."""
        config = super().get_encoder_cudagraph_config()  # type: ignore[misc]
        return replace(config, modalities=[each for each in config.modalities if each != "image"])

    def _encode(self, stock: Mapping[str, Any], numbers: Sequence[int]) -> Sequence[torch.Tensor]:
        """Full features of these images of a batch."""
        if not numbers:
            return ()
        return super().embed_multimodal(**self.take_images(stock, numbers))  # type: ignore[misc]

    def _pool(self, made: Sequence[torch.Tensor]) -> FeaturePool:
        if self._features is None:
            one = made[0]
            budget = megabytes("FOVEATE_FEATURES_MB", FEATURES) if self._keeps else 0
            self._features = FeaturePool(budget, one.shape[-1], one.dtype, one.device)
        return self._features

    @staticmethod
    def take_images(inputs: Mapping[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
        """What the stock model takes of a batch of images -> of some of them. Of the family."""
        raise NotImplementedError


def split_inputs(inputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(our fields, the stock model's) of a batch of images."""
    ours = {name: inputs[name] for name in FIELDS if name in inputs}
    return ours, {name: value for name, value in inputs.items() if name not in ours}


def restore_prompt(ids: list[int], features: Sequence[Any]) -> tuple[list[int], list[Any], torch.Tensor]:
    """The full prompt of a short one.

    Args:
        ids: of the short prompt, [L].
        features: vLLM's `MultiModalFeatureSpec`s: where each image lies in it, and what travels with it.

    Returns ids of the full prompt, features with their places in it, and where the short prompt's tokens lie in the
    full one: int64 [L].
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
        moved.append(replace(feature, mm_position=replace(place, offset=len(full), length=span)))
        kept.append(places + len(full))
        full += [ids[place.offset]] * span if PLACES in data else ids[place.offset : at]
    kept.append(torch.arange(len(ids) - at) + len(full))
    return full + ids[at:], moved, torch.cat(kept)
