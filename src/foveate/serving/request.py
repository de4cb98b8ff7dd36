"""Options of a request, the server's defaults for them, and how the question is found in a prompt that names none.

    "mm_processor_kwargs": {"foveate_budget": 128, "foveate_question": "the red car"}

The question is the last thing that the user said. The tokenizer's chat template lays out a dialogue of known words;
what stands before and after them is looked for in the prompt. A prompt that the template did not lay out is read from
behind its last image.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from foveate.core.checks import check_int, check_number
from foveate.core.errors import BudgetError, OptionError, QueryError
from foveate.language.query import MAX_CHARACTERS
from foveate.relevance.presets import PresetName, find_preset

PREFIX = "foveate_"
KEYS = ("foveate_budget", "foveate_question", "foveate_preset", "foveate_floor", "foveate_encode")
ENVIRONMENT, ENCODE = "FOVEATE_BUDGET", "FOVEATE_ENCODE"
OF_HUGGING_FACE = "--tokenizer-mode hf --config-format hf --load-format hf"  # where Mistral's own files are, too
ONLY = "FOVEATE_ONLY"  # 1: clients may send keywords of foveate, and none for the stock processor
FIRST, ANSWER, LAST = "foveatefirst", "foveateanswer", "foveatelast"  # words that no template has
Budget: TypeAlias = int | Literal["auto", "lossless"] | None
Encode: TypeAlias = Literal["all", "kept"]


@dataclass(frozen=True)
class Request:
    """What is asked for, checked.

    budget: visual tokens of all images of the request together, "auto", "lossless" (all but those whose pixels a
    neighbour has), or None for all of them: the stock answer.
    question: what to look for, where that is not what the prompt asks. preset: as of `foveate.encode`, `foveate.score`.
    floor: share of the budget that is spread evenly, in [0, 1]; None as `VLM.prepare` decides it.
    encode: what the vision encoder sees: the whole image, or the patches of kept tokens alone.
    """

    budget: Budget = None
    question: str | None = None
    preset: PresetName | None = None
    floor: float | None = None
    encode: Encode = "all"


def split_keywords(keywords: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(ours, those of the stock classes) of the keywords of a request or a server, or the fields of a batch."""
    ours = {name: value for name, value in keywords.items() if name.startswith(PREFIX)}
    return ours, {name: value for name, value in keywords.items() if name not in ours}


def check_others(theirs: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> None:
    """Refuse a client's keywords for the stock processor where the server's owner wants none. Raises OptionError.

    vLLM's flag admits them all, and {"patch_size": 7} ends the engine of a Qwen.
    """
    if theirs and environment.get(ONLY, "0") != "0":
        raise OptionError(
            f"mm_processor_kwargs with {', '.join(sorted(theirs))}",
            expected=f"keywords of foveate alone ({', '.join(KEYS)}): so the server's owner decided by {ONLY}=1",
            fix="leave it out",
        )


def parse_request(ours: Mapping[str, object], usual: Request = Request()) -> Request:  # immutable
    """Keywords that begin with `foveate_` -> what is asked for; `usual` where they do not say.

    Raises BudgetError, QueryError, OptionError: ValueErrors, which vLLM's server answers with status 400.
    """
    if unknown := sorted(set(ours) - set(KEYS)):
        near = difflib.get_close_matches(unknown[0], KEYS, n=1)
        raise OptionError(
            f"mm_processor_kwargs with {', '.join(unknown)}",
            expected=", ".join(KEYS),
            fix=f"did you mean {near[0]}?" if near else "leave it out",
        )
    given: dict[str, Any] = {name.removeprefix(PREFIX): value for name, value in ours.items()}
    return Request(
        budget=check_budget(given["budget"]) if "budget" in given else usual.budget,
        question=_check_question(given.get("question"), usual.question),
        preset=usual.preset if given.get("preset") is None else _check_preset(given["preset"]),
        floor=usual.floor
        if given.get("floor") is None
        else check_number("foveate_floor", given["floor"], 0, 1, fix="leave it out, or 0.1: a tenth of the tokens"),
        encode=usual.encode if given.get("encode") is None else _check_encode("foveate_encode", given["encode"]),
    )


def check_budget(budget: object) -> Budget:
    """A budget as JSON has it. Raises BudgetError."""
    if budget is None or budget == "auto" or budget == "lossless":
        return budget
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise BudgetError(
            f"foveate_budget={budget!r}",
            expected="a whole number from 1 on, of visual tokens of all images; 'auto'; 'lossless'; or null for all",
            fix='pass {"foveate_budget": 128}, say',
        )
    return budget


def _check_encode(name: str, told: object) -> Encode:
    if told == "all" or told == "kept":
        return told
    raise OptionError(
        f"{name}={told!r}",
        expected="'all': the vision encoder sees the whole image, or 'kept': the patches of kept tokens alone",
        fix="leave it out",
    )


def _check_preset(name: Any) -> PresetName:
    preset = find_preset(name)
    if preset.encoding.get("read"):
        raise OptionError(
            f"foveate_preset={preset.name!r}, which reads what is written in an image",
            expected="a preset that does not: reading takes seconds, and all other requests wait meanwhile",
            fix="pass 'text', say: writing is found, and not read",
        )
    return preset.name


def _check_question(question: object, usual: str | None) -> str | None:
    if question is None:
        return usual
    if not isinstance(question, str) or not question.strip() or len(question) > MAX_CHARACTERS:
        shown = repr(question) if not isinstance(question, str) or len(question) < 80 else f"{len(question)} characters"
        raise QueryError(
            f"foveate_question={shown}",
            expected=f"a text of at most {MAX_CHARACTERS} characters that names what to look for",
            fix="name the thing alone, or leave it out: the last thing that the user said is looked for",
        )
    return question


def usual_request(configured: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> Request:
    """What a server asks for where its clients do not say: its `--mm-processor-kwargs`, else the environment."""
    told, encode = (environment.get(name, "").strip() for name in (ENVIRONMENT, ENCODE))
    budget: object = int(told) if told.isdecimal() else told or None
    try:
        usual = Request(budget=check_budget(budget), encode=_check_encode(ENCODE, encode) if encode else "all")
    except BudgetError as cause:
        raise BudgetError(
            f"{ENVIRONMENT}={told!r}",
            expected="a whole number from 1 on, 'auto' or 'lossless'",
            fix=f"unset {ENVIRONMENT}",
        ) from cause
    return parse_request(configured, usual)


def read_megabytes(name: str, usual: int, environment: Mapping[str, str] = os.environ) -> int:
    """Bytes that a variable of the environment says in MB. Raises OptionError."""
    if (told := environment.get(name)) is None:
        return usual
    return check_int(name, int(told) if told.isdecimal() else told, 0, fix=f"unset {name}, or pass MB") * 2**20


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


def find_question(prompt: str, marks: TurnMarks, image: str) -> str:
    """The last thing that the user said in a prompt, or "". image: what stands for an image in it; "" if nothing."""
    start = prompt.rfind(marks.before) if marks.before else -1
    text = prompt[start + len(marks.before) :] if start >= 0 else prompt.rpartition(image)[2] if image else prompt
    if marks.after:
        text = text.partition(marks.after)[0]
    for token in marks.special:
        text = text.replace(token, " ")
    return " ".join(text.split())


def _common_end(one: str, other: str) -> str:
    pairs = zip(reversed(one), reversed(other), strict=False)
    alike = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    return one[len(one) - alike :]
