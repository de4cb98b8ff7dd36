"""Arrays as one message, which `static/wire.js` reads without a copy.

    4 bytes       length n of the header, little-endian, a multiple of 8 less 4
    n bytes       UTF-8 JSON, filled up with spaces: {..., "arrays": [{"name", "dtype", "shape", "offset"}, ...]}
    the arrays    little-endian, row-major, each at its offset (from the end of the header, a multiple of 8)

Types: f4, f2, i4, u1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

TYPES: dict[str, np.dtype[Any]] = {
    "f4": np.dtype("<f4"),
    "f2": np.dtype("<f2"),
    "i4": np.dtype("<i4"),
    "u1": np.dtype("u1"),
}
_NAMES = {dtype: name for name, dtype in TYPES.items()}


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A header and arrays as a message. Raises ValueError for a type of array that it has no name for."""
    parts, listed, offset = [], [], 0
    for name, array in arrays.items():
        little = array.dtype.newbyteorder("<")
        if little not in _NAMES:
            raise ValueError(f"{name} is {array.dtype}; a message takes {', '.join(TYPES)}")
        content = np.ascontiguousarray(array, little).tobytes()
        listed.append({"name": name, "dtype": _NAMES[little], "shape": list(array.shape), "offset": offset})
        content += bytes(-len(content) % 8)
        parts.append(content)
        offset += len(content)
    text = json.dumps({**header, "arrays": listed}, allow_nan=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return b"".join([len(text).to_bytes(4, "little"), text, *parts])


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What `pack` made: (header, arrays)."""
    start = 4 + int.from_bytes(message[:4], "little")
    header = json.loads(message[4:start])
    arrays = {}
    for each in header.pop("arrays"):
        dtype, count = TYPES[each["dtype"]], int(np.prod(each["shape"]))
        arrays[each["name"]] = np.frombuffer(message, dtype, count, start + each["offset"]).reshape(each["shape"])
    return header, arrays
