"""From a question to the ids of the full prompt, without touching the images again.

The processor replaces each image token by what stands for its image, which needs the images. `find_spans` keeps these
ids; further prompts are tokenised with single image tokens, which are then replaced. Where a span ends in plain text
(Gemma 3 writes line ends around an image), a tokenizer may join it with its neighbours: then its text is kept, and the
whole prompt is tokenised. `find_spans` checks what it found.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from foveate.core.checks import check_type, keyword
from foveate.core.errors import ModelError, PromptError, QueryError
from foveate.vlm.families.features import mark_of
from foveate.vlm.families.token_layout import ImageSpan, Indices
from foveate.vlm.families.written import adds_special_tokens, bordered_mark

# between images, to find where the ids of one end: some tokenizers join the first with line ends behind it
APART = (" =#= ", "and")


def check_question(question: object) -> str:
    """The question itself. Raises QueryError for anything but a text with something in it."""
    if not isinstance(question, str) or not question.strip():
        what = "an empty question" if isinstance(question, str) else f"the question {question!r}"
        raise QueryError(what, expected="a text", fix='ask "what is in the picture?", say')
    return question


def prompt_text(
    processor: Any,
    question: str,
    images: int,
    prompt: str | None,
    kind: str = "image",
    earlier: Sequence[tuple[str, str]] = (),
) -> str:
    """The prompt as text, with one image token for each image, or one video token for each video (kind "video").

    `prompt`: the whole text. Without it the processor's chat template lays out the images, `earlier` rounds (question,
    answer), the question. Raises PromptError.
    """
    token = mark_of(processor, kind)
    others = {token, *(str(getattr(processor, name, token)) for name in ("image_token", "video_token"))}
    usual = keyword("prompt", f"USER: {token} What is this? ASSISTANT:")
    by_hand = f"pass {usual}, in the way your model was trained"
    if earlier:
        by_hand = "set processor.chat_template to the one of your model"
    by_template = prompt is None
    if prompt is None:
        if any(each in question for each in others):
            raise PromptError(
                f"a question with the {kind} token {token!r} in it",
                expected="plain text; the images come first by themselves",
                fix="leave the token out, or pass the whole prompt as prompt=",
            )
        if not getattr(processor, "chat_template", None) and not getattr(processor.tokenizer, "chat_template", None):
            raise PromptError(
                "a processor without a chat template", expected="one, to lay out the question", fix=by_hand
            )
        said = [question]
        for asked, answer in reversed(earlier):
            for each in others:  # a model may write the token out, letter by letter
                answer = answer.replace(each, "")
            said[:0] = [asked, answer]
        messages = [
            {"role": "assistant" if i % 2 else "user", "content": [{"type": "text", "text": text}]}
            for i, text in enumerate(said)
        ]
        messages[0]["content"] = [*({"type": kind} for _ in range(images)), {"type": "text", "text": said[0]}]
        try:
            prompt = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        except Exception as cause:  # a template is a program that came with the model: it may raise anything
            raise PromptError(
                f"a chat template that failed: {type(cause).__name__}: {str(cause).splitlines()[0][:200]}",
                expected="one that takes messages with images",
                fix=by_hand,
            ) from cause
    text = check_type("prompt", prompt, str, error=PromptError)
    if any(each in text for each in others - {token}):
        raise PromptError(
            f"a prompt with tokens of images and of videos ({', '.join(sorted(others))})",
            expected=f"only {token!r}: the model has seen {kind}s",
            fix="leave the other token out",
        )
    found = text.count(token)
    if found != images:
        raise PromptError(
            f"a prompt with {found} {kind} tokens {token!r} for {images} {kind}{'s' if images != 1 else ''}",
            expected=f"one for each {kind}",
            fix=f"the processor's chat template lays out no {kind}s: {by_hand}"
            if by_template
            else f"write the token once for each {kind}, where it belongs, or leave {keyword('prompt')} out",
        )
    return text


def prompt_ids(processor: Any, text: str, spans: Sequence[ImageSpan], kind: str = "image") -> Indices:
    """Ids [L] of the full prompt: each image token (video token) replaced by what stands for its image."""
    token = mark_of(processor, kind)
    if any(span.text is not None for span in spans):
        pieces = text.split(token)
        inner = [piece for span, after in zip(spans, pieces[1:], strict=True) for piece in (span.text or "", after)]
        return tokenise(processor, "".join([pieces[0], *inner]))
    short = tokenise(processor, text)
    at = np.flatnonzero(short == _id_of(processor, token))
    parts, start = [], 0
    for place, span in zip(at, spans, strict=True):
        parts += [short[start:place], span.ids]
        start = int(place) + 1
    return np.concatenate([*parts, short[start:]])


def find_spans(processor: Any, text: str, count: int, full: Indices) -> tuple[ImageSpan, ...]:
    """What stands for each of `count` images in `full`: ids of `text` with the images.

    Raises ModelError for a misfit.
    """
    short = tokenise(processor, text)
    (at,) = np.nonzero(short == _id_of(processor, mark_of(processor)))
    ends = [-1, *at.tolist(), len(short)]
    around = [short[a + 1 : b] for a, b in pairwise(ends)]  # what stands before, between and behind the images
    start, stop = len(around[0]), len(full) - len(around[-1])
    found = []
    for between in around[1:-1]:
        place = _find(full, between, start)
        found.append(full[start:place])
        start = place + len(between)
    spans = tuple(span_of(processor, ids) for ids in (*found, full[start:stop]))
    if len(at) != count or not np.array_equal(prompt_ids(processor, text, spans), full):
        raise ModelError(
            f"a {type(processor).__name__} whose ids beside an image depend on what stands for the image",
            expected="a processor that replaces each image token by ids, or by a text that they can be read back from",
            fix="report this with the name of the model",
        )
    return spans


def images_text(processor: Any, count: int, apart: str) -> str:
    """A text with `count` image tokens, apart by what stands for no image."""
    return apart.join([bordered_mark(processor)] * count)


def _find(ids: Indices, part: Indices, start: int) -> int:
    """Where a part begins in ids, from `start` on; their end if it does not."""
    for place in range(start, len(ids) - len(part) + 1):
        if np.array_equal(ids[place : place + len(part)], part):
            return place
    return len(ids)


def span_of(processor: Any, ids: Indices) -> ImageSpan:
    """Ids that stand for an image or a video; their text as well, where letters around them might join them."""
    words = processor.tokenizer
    whole = {int(number) for number in words.added_tokens_decoder}
    if len(ids) and int(ids[0]) in whole and int(ids[-1]) in whole:  # nothing is joined with these
        return ImageSpan(ids)
    return ImageSpan(ids, words.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _id_of(processor: Any, token: str) -> int:
    return int(processor.tokenizer.convert_tokens_to_ids(token))


def tokenise(processor: Any, text: str) -> Indices:
    ids = processor.tokenizer(text, add_special_tokens=adds_special_tokens(processor, text))["input_ids"]
    return np.asarray(ids, np.int64)
