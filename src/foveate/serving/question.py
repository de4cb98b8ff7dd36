"""What a prompt asks: the last thing that the user said, found in the prompt's ids.

A processor gets the ids of the laid-out prompt. Where the user's words begin and end in it, the tokenizer's chat
template says: it lays out a dialogue of known words, and what stands before and after them is what to look for. A
prompt that was not laid out by the template is read from behind its last image.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

FIRST, ANSWER, LAST = "foveatefirst", "foveateanswer", "foveatelast"  # words that no template has


@dataclass(frozen=True)
class TurnMarks:
    """What stands before and after a user's words in a prompt, and what is no word at all: special tokens."""

    before: str
    after: str
    special: tuple[str, ...]


def find_marks(tokenizer: Any) -> TurnMarks:
    """The marks of a tokenizer's chat template; empty where it has none, or one that cannot lay out a dialogue."""
    names = {str(token) for token in getattr(tokenizer, "added_tokens_decoder", {}).values()}
    names |= set(tokenizer.all_special_tokens)
    special = tuple(sorted((name for name in names if len(name) > 1), key=len, reverse=True))  # "?" may be one
    said = [("user", FIRST), ("assistant", ANSWER), ("user", LAST)]
    for lay_out in (lambda text: text, lambda text: [{"type": "text", "text": text}]):
        messages = [{"role": role, "content": lay_out(text)} for role, text in said]
        try:
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        except Exception:  # a template is a program that came with the model: it may raise anything
            continue
        parts = re.split("|".join((FIRST, ANSWER, LAST)), text)
        if len(parts) == 4:
            return TurnMarks(_common_end(parts[0], parts[2]), parts[3], special)
    return TurnMarks("", "", special)


def find_question(prompt: str, marks: TurnMarks, images: Sequence[str]) -> str:
    """The last thing that the user said in a prompt; "" where there are no words.

    Args:
        images: what stands for an image in a prompt: without a template's marks the question begins behind the last.
    """
    start = prompt.rfind(marks.before) if marks.before else -1
    if start >= 0:
        text = prompt[start + len(marks.before) :]
    else:
        start = max((prompt.rfind(mark) for mark in images), default=-1)
        text = prompt[start:] if start >= 0 else prompt
    if marks.after:
        text = text.partition(marks.after)[0]
    for token in marks.special:
        text = text.replace(token, " ")
    return " ".join(text.split())


def _common_end(one: str, other: str) -> str:
    pairs = zip(reversed(one), reversed(other), strict=False)
    alike = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    return one[len(one) - alike :]
