"""A job in parts: `--shard i/n` takes every n-th file, so that n workers need nothing but their number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from foveate.core.errors import OptionError
from foveate.store.files import Source


def part_of(sources: Sequence[Source], part: str) -> list[Source]:
    """The i-th of n parts, "i/n" with i from 0: every n-th file, in the order of their paths. Raises OptionError."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", part)
    if match is None or not int(match[1]) < int(match[2]):
        raise OptionError(f"--shard {part}", expected="I/N with I from 0 to N - 1", fix="--shard 0/4 to --shard 3/4")
    ordered = sorted(sources, key=lambda source: source.path)
    return ordered[int(match[1]) :: int(match[2])]
