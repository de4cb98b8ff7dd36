"""Models whose positions are 0, 1, 2, ...: LLaVA and all others without M-RoPE. Dropped tokens leave gaps there too.

vLLM numbers their tokens itself, without gaps, and asks nobody. It asks a model whose configuration has an M-RoPE
section, though, and then hands rows of positions (time, row, column) to it. So the configuration gets a section, where
no layer looks for one: on the whole model instead of in its language model's RoPE parameters. The three rows are equal,
and `forward` passes the first one on. The language model is the stock one, with the stock RoPE of whatever type; it
sees, and torch compiles, one row of positions as ever.
"""

from __future__ import annotations

from typing import Any

import torch

SECTION = [1, 1, 1]  # only its length is read: three rows


class FlatPositions:
    """Mixin behind `ChosenRows` and before a stock model class without M-RoPE; see the module."""

    supports_mrope = True

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        self._last_position = count_positions(vllm_config.model_config) - 1

    def get_mrope_input_positions(self, input_tokens: list[int], mm_features: Any) -> tuple[torch.Tensor, int]:
        """0, 1, 2, ..., three times: int64 [3, L]."""
        return torch.arange(len(input_tokens)).repeat(3, 1), 0

    def forward(self, input_ids: Any, positions: torch.Tensor, *args: Any, **keywords: Any) -> Any:
        """As stock, with one row of positions.

        An answer that grows beyond the last position that RoPE has numbers for stays there: a GPU would read other
        memory. In place, as a captured graph reads where it read when it was captured.
        """
        one = positions[0] if positions.ndim == 2 else positions
        one.clamp_(max=self._last_position)
        return super().forward(input_ids, one, *args, **keywords)  # type: ignore[misc]


class SectionDeclared:
    """Of `vllm.model_executor.models.config.MODELS_CONFIG_MAP`: a model's configuration gets its section."""

    @staticmethod
    def verify_and_update_model_config(model_config: Any) -> None:
        """Before anything asks whether the model has M-RoPE."""
        model_config.hf_config.mrope_section = SECTION

    @staticmethod
    def verify_and_update_config(vllm_config: Any) -> None:
        """Nothing more."""


def count_positions(model_config: Any) -> int:
    """Positions that RoPE has numbers for, at least."""
    trained = getattr(model_config.hf_text_config, "max_position_embeddings", 0) or 0
    return max(int(trained), int(model_config.max_model_len))
