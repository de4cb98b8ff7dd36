"""Full features of images, in the engine's process, so that the next question about an image does not encode it again.

All rows lie in one tensor of fixed size, in pages. It is made with the model, so that vLLM counts it as memory of the
weights. The image used longest ago makes room. This follows from the order of calls alone, so all workers of a
tensor-parallel engine keep the same images.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import torch
from torch.nn.functional import pad

ROWS = 64  # a page; by hand
FEATURES = 256 * 2**20  # by hand: bytes of features that an engine's process keeps; the environment says otherwise:
FEATURES_MB = "FOVEATE_FEATURES_MB"


class FeaturePool:
    """Features of images by key, in at most `nbytes` bytes (0 keeps nothing). width, dtype, device: of a row."""

    def __init__(self, nbytes: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
        pages = nbytes // (ROWS * width * dtype.itemsize)
        self.pages = torch.zeros(pages, ROWS, width, dtype=dtype, device=device)
        self._free = list(range(pages))
        self._images: OrderedDict[Hashable, tuple[int, torch.Tensor]] = OrderedDict()  # key -> rows, pages

    def __len__(self) -> int:
        return len(self._images)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._images

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor, whatever is in it."""
        return self.pages.nbytes

    def clear(self) -> None:
        self._images.clear()
        self._free = list(range(len(self.pages)))

    def put(self, key: Hashable, features: torch.Tensor) -> bool:
        """Keep features [n, width]; what was used longest ago makes room. -> whether they fit at all."""
        if key in self._images:
            self._images.move_to_end(key)
            return True
        needed = -(-len(features) // ROWS)
        if needed > len(self.pages) or not needed or features.shape[1] != self.pages.shape[2]:
            return False
        while len(self._free) < needed:
            _, (_, freed) = self._images.popitem(last=False)
            self._free += freed.tolist()
        table = torch.tensor([self._free.pop() for _ in range(needed)])
        padded = pad(features, (0, 0, 0, needed * ROWS - len(features)))
        self.pages[table.to(self.pages.device)] = padded.reshape(needed, ROWS, -1).to(self.pages)
        self._images[key] = len(features), table
        return True

    def take(self, key: Hashable, rows: torch.Tensor) -> torch.Tensor:
        """Rows (int64 [k], on the CPU) of an image's features: [k, width], new. Raises KeyError."""
        self._images.move_to_end(key)
        _, table = self._images[key]
        at = table[rows // ROWS] * ROWS + rows % ROWS
        return self.pages.flatten(0, 1).index_select(0, at.to(self.pages.device))
