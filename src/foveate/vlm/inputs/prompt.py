"""From a question to the ids of the full prompt, without touching the images again.

The processor replaces each image token by the ids that stand for its image, which needs the images. `find_spans` keeps
these ids; further prompts are tokenised with single image tokens, which are then replaced. As image tokens are special,
the ids around them do not depend on what stands between: `find_spans` checks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_type, keyword
from foveate.core.errors import ModelError, PromptError, QueryError

Indices = NDArray[np.int64]


def check_question(question: object) -> str:
    """The question itself. Raises QueryError for anything but a text with something in it."""
    if not isinstance(question, str) or not question.strip():
        raise QueryError(f"the question {question!r}", expected="a text", fix='ask "what is in the picture?", say')
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
    token = processor.image_token if kind == "image" else processor.video_token
    others = {str(getattr(processor, name, token)) for name in ("image_token", "video_token")}
    usual = keyword("prompt", f"USER: {token} What is this? ASSISTANT:")
    by_hand = f"pass {usual}, in the way your model was trained"
    if earlier:
        by_hand = "set processor.chat_template to the one of your model"
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
            fix=f"write the token once for each {kind}, where it belongs, or leave {keyword('prompt')} out",
        )
    return text


def prompt_ids(processor: Any, text: str, spans: Sequence[Indices], kind: str = "image") -> Indices:
    """Ids [L] of the full prompt: each image token (video token) replaced by the ids that stand for its image."""
    short = tokenise(processor, text)
    at = np.flatnonzero(short == (processor.image_token_id if kind == "image" else processor.video_token_id))
    pieces, start = [], 0
    for place, span in zip(at, spans, strict=True):
        pieces += [short[start:place], span]
        start = int(place) + 1
    return np.concatenate([*pieces, short[start:]])


def find_spans(processor: Any, images: Sequence[Any], text: str, full: Indices) -> tuple[Indices, ...]:
    """The ids that stand for each image in `full`, made of `text` and the images. Raises ModelError for a misfit."""
    if len(images) == 1:
        spans: tuple[Indices, ...] = (_in_place_of_image(processor, text, full),)
    else:
        token = processor.image_token
        alone = [processor(images=[image], text=token, return_tensors="np")["input_ids"][0] for image in images]
        spans = tuple(_in_place_of_image(processor, token, np.asarray(ids, np.int64)) for ids in alone)
    if not np.array_equal(prompt_ids(processor, text, spans), full):
        raise ModelError(
            "a tokenizer whose ids beside an image token depend on what stands for the image",
            expected="image tokens that are special tokens",
            fix="report this with the name of the model",
        )
    return spans


def _in_place_of_image(processor: Any, text: str, full: Indices) -> Indices:
    """Of the ids of a text and its one image: those in the place of the image token."""
    short = tokenise(processor, text)
    (place,) = np.flatnonzero(short == processor.image_token_id)
    return full[place : len(full) - (len(short) - place - 1)]


def adds_special_tokens(processor: Any, text: str) -> bool:
    """Whether the tokenizer should add its own first token: not to a text that begins with it, as transformers do."""
    first = processor.tokenizer.bos_token
    return first is None or not text.startswith(first)


def tokenise(processor: Any, text: str) -> Indices:
    ids = processor.tokenizer(text, add_special_tokens=adds_special_tokens(processor, text))["input_ids"]
    return np.asarray(ids, np.int64)
