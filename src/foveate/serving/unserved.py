"""Architectures that foveate does not serve: the stock classes, but that a budget is refused instead of ignored.

A stock processor takes an unknown keyword without a word. So every architecture with a multimodal processor is looked
up here: its model class is the stock one by another name of its own, as a processor belongs to a class.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from foveate.core.errors import ModelError
from foveate.serving.families import FAMILIES
from foveate.serving.hooks import REFUSING
from foveate.serving.request import check_others, parse_request, split_keywords, usual_request
from foveate.serving.stock import find_stock, with_processor


class RefusingProcessor:
    """Mixin before a stock `BaseMultiModalProcessor`."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        told, _ = split_keywords(self.info.ctx.get_mm_config().mm_processor_kwargs or {})  # type: ignore[attr-defined]
        self._refuse(usual_request(told).budget)

    def apply(self, inputs: Any, timing_ctx: Any) -> Any:
        """As stock, without a budget."""
        told, theirs = split_keywords(inputs.hf_processor_mm_kwargs)
        check_others(theirs)
        self._refuse(parse_request(told).budget)
        return super().apply(replace(inputs, hf_processor_mm_kwargs=theirs), timing_ctx)  # type: ignore[misc]

    def _refuse(self, budget: object) -> None:
        if budget is not None:
            config = self.info.ctx.model_config  # type: ignore[attr-defined]
            raise ModelError(
                f"foveate_budget={budget!r} for {config.architecture}",
                expected=", ".join(FAMILIES),
                fix="leave foveate_budget out, and unset FOVEATE_BUDGET: this model gives its stock answers only",
            )


def __getattr__(name: str) -> Any:
    """The class of an architecture: stock, with a processor that refuses; itself where it has none."""
    try:
        stock = find_stock(name.partition("__")[0])
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    if not hasattr(stock, "_processor_factory"):
        return stock
    model = type(stock.__name__, (stock,), {"__module__": __name__, "__doc__": stock.__doc__})
    made = globals()[name] = with_processor(model, RefusingProcessor, REFUSING, {"__module__": __name__})
    return made
