"""Budget "lossless": the rows of visual tokens but those whose pixels a neighbour has, of a video those whose pixels
were there in the picture before. No texture, and no question.

The stock processor is run on an image that is new: its pixels are those that the model gets. Then it runs once more,
as vLLM's caches are asked by the rows that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.serving.layouts import is_pixels, without_weights
from foveate.serving.selection import ImageRows
from foveate.vlm.families.pixels import find_repeated
from foveate.vlm.families.processors import fitting_processor
from foveate.vlm.families.token_layout import TokenLayout

Indices = NDArray[np.int64]


def find_unrepeated(stock: Any, image: Any, layout: TokenLayout, keywords: Mapping[str, object]) -> Indices:
    """Rows of the tokens of an image that repeat no neighbour, and the ends of their lines: int64, ascending.

    stock: vLLM's processor. image: as vLLM has it. keywords: of the stock processor. Raises ModelError.
    """
    items = stock.info.parse_mm_data({"image": [image]}, validate=False)
    made = dict(stock._apply_hf_processor_main(mm_items=items, hf_kwargs=keywords))
    lists = {name: value for name, value in made.items() if is_pixels(name) and isinstance(value, list)}
    made |= {name: torch.stack(value) for name, value in lists.items()}
    model = without_weights(stock.info.get_hf_config())
    processor = fitting_processor(model, stock.info.get_hf_processor(**keywords))
    (repeated,) = find_repeated(model, processor, made, [layout])
    return layout.rows([np.flatnonzero(~each) for each in repeated])


def find_unchanged(stock: Any, video: Any, layout: TokenLayout, keywords: Mapping[str, object]) -> Indices:
    """Rows of a video's tokens whose pixels are not those at the same place in the picture before: int64, ascending.

    Of a Qwen, whose processor makes patches token after token. The others are as of `find_unrepeated`.
    """
    items = stock.info.parse_mm_data({"video": [video]}, validate=False)
    made = stock._apply_hf_processor_main(mm_items=items, hf_kwargs=keywords)
    cells = made["pixel_values_videos"].reshape(layout.frames, layout.count // layout.frames, -1)
    new = torch.ones(cells.shape[:2], dtype=torch.bool)
    new[1:] = (cells[1:] != cells[:-1]).any(-1)
    return np.flatnonzero(new.numpy())


def without_repeated(layouts: Sequence[TokenLayout], rows: Sequence[Indices]) -> ImageRows:
    """What is kept of the images of a request, of which these rows repeat no neighbour."""
    whole = all(len(each) == layout.count for each, layout in zip(rows, layouts, strict=True))
    return ImageRows(tuple(rows), "all" if whole else "lossless", 0.0)
