"""Docstrings as Markdown shows them well: an extension of griffe, which reads them for the reference.

* Examples become blocks of code; in Markdown, lines that begin with >>> would be quotations.
* Errors that share a line of `Raises:` get one each.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> )\S.*\n?)*)+", re.M)  # and the lines that it prints
FLAG = re.compile(r" *# doctest: .*$", re.M)
RAISES = re.compile(r"^Raises:\n(?:    .*\n?)+", re.M)
NEXT_ERROR = re.compile(r"(?<=[.;]) ((?:[A-Z]\w+(?:Error|Warning)(?:, )?)+:)")


class ReadableDocstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)


def readable(docstring: str) -> str:
    fenced = EXAMPLE.sub(lambda found: f"```pycon\n{FLAG.sub('', found[0]).rstrip()}\n```\n", docstring)
    return RAISES.sub(lambda found: NEXT_ERROR.sub(r"\n    \1", found[0]), fenced)
