"""Messages: arrays in the format of safetensors, with a header of JSON in its metadata. `static/api.js` reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

Message: TypeAlias = tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]  # the header, and arrays by name


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    content = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(content, {"header": json.dumps(header, allow_nan=False)})


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What `pack` made: (header, arrays). Other bytes raise ValueError and the like."""
    arrays = load(message)
    length = int.from_bytes(message[:8], "little")
    return json.loads(json.loads(message[8 : 8 + length])["__metadata__"]["header"]), arrays
