"""Examples in docstrings as blocks of code: for Markdown, lines that begin with >>> would be quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> )\S.*\n?)*)+", re.M)  # and the lines that it prints
FLAG = re.compile(r" *# doctest: .*$", re.M)


class Examples(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence_examples(obj.docstring.value)


def fence_examples(docstring: str) -> str:
    return EXAMPLE.sub(lambda found: f"```pycon\n{FLAG.sub('', found[0]).rstrip()}\n```\n", docstring)
