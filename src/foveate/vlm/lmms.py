"""foveate as a model of lmms-eval 0.7: the field's own benchmarks, with fewer visual tokens, by one command.

    python -m lmms_eval --model foveate --tasks gqa,mme,pope \\
        --model_args pretrained=llava-hf/llava-1.5-7b-hf,budget=128,method=relevance,mode=drop

lmms-eval finds it by the entry point `lmms_eval.models` (pyproject.toml), which names `manifest`.

* The prompt is the task's, word for word. What is *scored* on the image is the question in it (`extract_question`).
* The images encoded last are kept, by their pixels: benchmarks ask several questions about one image.
* `until` cuts the answer, but for the default blank line, as in lmms-eval's own adapters.
* Tasks of several rounds are dialogues, a new one for new images. One that does not fit the model's context forgets its
  oldest rounds.

Not covered: log-likelihoods, videos and sounds, and batches (several images in one call).
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from cachetools import LRUCache

from foveate.core.checks import check_choice, check_number
from foveate.core.errors import BudgetError, ModelError, OptionError, PromptError
from foveate.core.image import Picture, load_image
from foveate.vlm.chat import Chat
from foveate.vlm.encoded import MODES, Answer, EncodedImage
from foveate.vlm.families.features import mark_of
from foveate.vlm.loader import load
from foveate.vlm.model import VLM
from foveate.vlm.select.choice import Choosing
from foveate.vlm.select.methods import METHODS

NAME = "foveate"
IMAGES = 16  # kept encoded, by hand; one of LLaVA-1.5-7B holds 576 x 4096 numbers and a texture
READ: dict[str, bool | str] = {"auto": "auto", "true": True, "false": False}
BLANK_LINE = "\n\n"  # what tasks that say nothing get as `until`

_CHOICE = re.compile(r"^\(?[A-Za-z][.):]\s+")  # "A. red": what may be looked for is the red
_AMONG = re.compile(r"\s*\([A-Z]\)\s*")  # "(A) red (B) blue" in one line
_SENTENCE = re.compile(r"\n+|(?<=[.?!:])\s+")
_WHERE = re.compile(
    r"\b(?:in|on|of|from|by) (?:the|this|that|these) (?:image|picture|photo|photograph|figure)s?\b", re.I
)
_ORDER = re.compile(
    r"^(?:please\b|answer\b|hint\b|note\b|context\b|options?\b|choices?\b|question\s*:$|"
    r"(?:give|provide|select|choose|respond|reply|output|return|use|your|do not|don't)\b"
    r".*\b(?:answers?|options?|letters?|words?|phrases?|numbers?|response|explanation|choices?)\b)",
    re.I,
)


def manifest() -> Any:
    """What lmms-eval's registry asks for: the model's name, and where its class is."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest(model_id=NAME, chat_class_path=f"{__name__}.Foveate")


def __getattr__(name: str) -> Any:
    if name == "Foveate":
        return _model_class()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _model_class() -> type[Any]:
    from lmms_eval.api.model import lmms

    class Foveate(Evaluated, lmms):  # type: ignore[misc]
        """A stock vision-language model that gets only the visual tokens that a question needs."""

        is_simple = False  # it takes messages, not texts

    Foveate.__module__, Foveate.__qualname__ = __name__, "Foveate"
    return Foveate


class Evaluated:
    """lmms-eval's class of a model without its base class. Arguments come from --model_args.

    Args:
        pretrained, dtype, device, encoder: as of `foveate.vlm.load`. Of several processes each takes its own GPU.
        budget: visual tokens of each image: a number, "auto", "lossless", "all" (the stock model), or a share: "25%".
        method, mode: as of `VLM.prepare`; "crop" uses the chat template, not the task's prompt; not for several rounds.
        floor, seed: as of `Choosing`.
        images: how many are kept encoded.
        read: as of `VLM.see`: auto (pages), True or False.
        max_new_tokens: where a task says nothing.
    """

    def __init__(
        self,
        pretrained: str,
        *,
        budget: int | float | str = "auto",
        method: str = "relevance",
        mode: str = "drop",
        floor: float | None = None,
        dtype: str = "auto",
        device: str = "auto",
        encoder: str = "nano",
        seed: int = 0,
        images: int = IMAGES,
        read: bool | str = "auto",
        max_new_tokens: int = 128,
        batch_size: int | str = 1,
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown:
            raise OptionError(
                f"--model_args {', '.join(f'{name}={value}' for name, value in unknown.items())}",
                expected="pretrained, budget, method, mode, floor, dtype, device, encoder, seed, images, read, "
                "max_new_tokens",
                fix="check the spelling",
            )
        check_choice("method", method, METHODS)
        check_choice("mode", mode, MODES)
        self.read: Any = READ[check_choice("read", str(read).lower(), tuple(READ))]
        if str(batch_size) != "1":
            raise OptionError(
                f"batch_size={batch_size}", expected="1: each question has its images", fix="leave it out"
            )
        self.budget, self.method, self.mode = _parse_budget(budget), method, mode
        share = None if floor is None else check_number("floor", float(floor))
        self.choosing = Choosing(floor=share, seed=int(seed))
        self.max_new_tokens, self.batch_size = int(max_new_tokens), 1
        self.vlm: VLM = load(str(pretrained), dtype=dtype, device=_own_device(device), encoder=encoder)
        self.encoded: LRUCache[str, EncodedImage] = LRUCache(max(1, int(images)))
        self._device = self.vlm.model.device

    @property
    def device(self) -> Any:
        """Where the model is; lmms-eval gathers its counts there."""
        return self._device

    def clean(self) -> None:
        """Called after the last request: lets go of the model, so that a judge may have its memory."""
        del self.vlm, self.encoded
        super().clean()  # type: ignore[misc]

    def generate_until(self, requests: Sequence[Any]) -> list[Any]:
        from lmms_eval.api.instance import GenerationResult, TokenCounts
        from lmms_eval.models.model_utils.gen_metrics import log_metrics
        from tqdm import tqdm

        found, kept, whole, new, seconds = [], 0, 0, 0, 0.0
        for request in tqdm(requests, disable=getattr(self, "rank", 0) != 0, desc="Model Responding"):
            *_, doc_to_messages, settings, doc_id, task, split = request.args
            messages = doc_to_messages(self.task_dict[task][split][doc_id])  # type: ignore[attr-defined]
            start = time.perf_counter()
            text, answer = self.answer(messages, settings)
            seconds += time.perf_counter() - start
            kept, whole, new = kept + answer.tokens[0], whole + answer.tokens[1], new + len(answer.ids)
            found.append(GenerationResult(text=text, token_counts=TokenCounts(output_tokens=len(answer.ids))))
            self.cache_hook.add_partial("generate_until", (request.args[0], settings), text)  # type: ignore[attr-defined]
        log_metrics(
            total_gen_tokens=new,
            total_elapsed_time=seconds,
            avg_speed=new / seconds if seconds else 0.0,
            additional_metrics={
                "visual_tokens_kept": kept / max(len(found), 1),
                "visual_tokens_of": whole / max(len(found), 1),
            },
        )
        return found

    def answer(self, messages: Sequence[dict[str, Any]], settings: dict[str, Any]) -> tuple[str, Answer]:
        """Messages of one request, and its generation settings -> the text, cut at `until`, and foveate's Answer."""
        token = mark_of(self.vlm.processor)
        images, turns, words = _read_messages(messages, token)
        if not images:
            raise _no_image()
        encoded = self.encode([load_image(image) for image in images])
        how: dict[str, Any] = {
            "mode": self.mode,
            "method": self.method,
            "choosing": self.choosing,
            "budget": token_budget(self.budget, encoded),
            "generation": translate_settings(settings, self.max_new_tokens),
        }
        if self.mode == "crop":
            answer = self.vlm.ask(encoded, words, relevance=extract_question(words), **how)
        else:
            prompt = self.vlm.processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
            answer = self.vlm.ask(encoded, extract_question(words), prompt=prompt, **how)
        return cut_answer(answer.text, settings.get("until")), answer

    def encode(self, images: Sequence[Picture]) -> EncodedImage:
        """These images, encoded: kept, or seen now."""
        digest = hashlib.sha256()
        for image in images:
            digest.update(repr(image.rgb.shape).encode() + image.rgb.tobytes())
        key = digest.hexdigest()
        encoded = self.encoded.get(key)
        if encoded is None:
            encoded = self.vlm.see(list(images), mode="sparse" if self.mode == "sparse" else "drop", read=self.read)
            self.encoded[key] = encoded
        return encoded

    def loglikelihood(self, requests: Sequence[Any]) -> list[tuple[float, bool]]:
        raise NotImplementedError("foveate gives no log-likelihoods; choose tasks of output_type generate_until")

    def generate_until_multi_round(self, requests: Sequence[Any]) -> list[list[str]]:
        from tqdm import tqdm

        found = []
        for request in tqdm(requests, disable=getattr(self, "rank", 0) != 0, desc="Model Responding"):
            context, settings, doc_to_visual, doc_to_text, doc_id, task, split = request.args
            document = self.task_dict[task][split][doc_id]  # type: ignore[attr-defined]
            answers = self.answer_rounds(document, context, settings, doc_to_visual, doc_to_text)
            found.append(answers)
            self.cache_hook.add_partial("generate_until_multi_round", (context, settings), answers)  # type: ignore[attr-defined]
        return found

    def answer_rounds(
        self, document: Any, context: str, settings: dict[str, Any], doc_to_visual: Any, doc_to_text: Any
    ) -> list[str]:
        """All rounds of one document: the task says after each what comes next, and when it is over.

        `doc_to_text(document, previous_output=, round_idx=, previous_round_info=)` gives images or None, the text, a
        signal to end, the answers so far, and the next `previous_round_info`.

        Raises OptionError for mode "crop"; BudgetError or PromptError where a round alone does not fit the context.
        """
        if self.mode == "crop":
            raise OptionError(
                "mode=crop for a task of several rounds",
                expected="drop, sparse, weight: the same image in every round",
                fix="write mode=drop in --model_args, or leave this task out",
            )
        token, answers, info = mark_of(self.vlm.processor), list[str](), None
        images, chat = doc_to_visual(document), None
        while True:
            if answers:
                images, context, over, answers, info = doc_to_text(
                    document, previous_output=answers, round_idx=len(answers), previous_round_info=info
                )
                answers = list(answers)
                if over:
                    return answers
            if images:
                encoded = self.encode([load_image(image) for image in images])
                if chat is None or chat.encoded is not encoded:
                    chat = self.vlm.chat(encoded, mode=self.mode, method=self.method, choosing=self.choosing)
            if chat is None:
                raise _no_image()
            words = context.replace(token, "").strip()
            answer = _ask_within_context(
                chat,
                words,
                relevance=extract_question(words),
                budget=token_budget(self.budget, chat.encoded),
                generation=translate_settings(settings, self.max_new_tokens),
            )
            answers.append(cut_answer(answer.text, settings.get("until")))


def _ask_within_context(chat: Chat, question: str, **how: Any) -> Answer:
    """The next answer; where the dialogue is too long for the model, the oldest rounds are forgotten."""
    while True:
        try:
            return chat.ask(question, **how)
        except (BudgetError, PromptError):
            if not chat.turns:
                raise
            chat.forget(1)


def _no_image() -> ModelError:
    return ModelError(
        "a request without an image", expected="one or more", fix="leave this task out: foveate selects visual tokens"
    )


def extract_question(text: str) -> str:
    """The question in a task's prompt: without orders to the model, letters of choices, and "in the image".

    >>> extract_question("Is there a dog in the image?\\nAnswer the question using a single word or phrase.")
    'Is there a dog?'
    >>> extract_question("What is it?\\nA. a cup\\nB. a plate\\nAnswer with the option's letter directly.")
    'What is it?; a cup; a plate'
    """
    # Letters of choices go before sentences are cut, as "A." would be one.
    lines = "\n".join(_CHOICE.sub("", line.strip()) for line in _AMONG.sub("\n", text).split("\n"))
    sentences = [_CHOICE.sub("", part.strip()) for part in _SENTENCE.split(lines)]
    kept = [re.sub(r"\s+([?.!,])", r"\1", _WHERE.sub("", part)).strip() for part in sentences if not _ORDER.match(part)]
    return "; ".join(part for part in kept if part) or text


def cut_answer(text: str, until: str | Sequence[str] | None) -> str:
    """The text before the first of these, blank lines aside."""
    ends = [until] if isinstance(until, str) else list(until or ())
    places = [text.find(end) for end in ends if end and end != BLANK_LINE and end in text]
    return text[: min(places)].strip() if places else text


def translate_settings(settings: dict[str, Any], usual: int) -> dict[str, Any]:
    """A task's settings -> keywords of `model.generate`: greedy, unless it asks for a temperature above 0."""
    temperature = settings.get("temperature") or 0
    found: dict[str, Any] = {
        "max_new_tokens": int(settings.get("max_new_tokens") or usual),
        "num_beams": int(settings.get("num_beams") or 1),
        "do_sample": temperature > 0,
    }
    if temperature > 0:
        found |= {"temperature": float(temperature), "top_p": settings.get("top_p")}
    return found


def token_budget(budget: int | float | str | None, encoded: EncodedImage) -> int | str | tuple[int, ...] | None:
    """What `prepare` is given: a number for each image, at most its visual tokens, at least 1."""
    if budget is None or isinstance(budget, str):
        return budget
    share = isinstance(budget, float)
    found = tuple(max(1, min(n, round(budget * n) if share else int(budget))) for n in encoded.tokens)
    return found if len(found) > 1 else found[0]


def _parse_budget(given: int | float | str) -> int | float | str | None:
    """A whole number (visual tokens), a share in (0, 1], "auto", "lossless", or None for all."""
    if given in ("all", "auto", "lossless"):
        return None if given == "all" else str(given)
    text = str(given)
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if isinstance(given, bool) or value <= 0 or (text.endswith("%") and value > 1) or (value > 1 and value % 1):
        raise BudgetError(
            f"budget={given!r}",
            expected="a number of visual tokens, a share such as 25%, auto, lossless or all",
            fix="write budget=128",
        )
    return value if text.endswith("%") or value < 1 else int(value)


def _own_device(device: str) -> str:
    local, plain = os.environ.get("LOCAL_RANK"), device in ("auto", "cuda")
    if local is None or not plain:
        return device
    import torch

    return f"cuda:{local}" if torch.cuda.is_available() else "cpu"


def _read_messages(messages: Sequence[dict[str, Any]], token: str) -> tuple[list[Any], list[dict[str, Any]], str]:
    """Messages -> images, messages for the chat template, and the words of what the user says last."""
    images, turns, words = [], [], ""
    for message in messages:
        given = message["content"]
        content: list[dict[str, Any]] = []
        for part in [{"type": "text", "text": given}] if isinstance(given, str) else given:
            if part["type"] == "image":
                images.append(part["url"])
                content.append({"type": "image"})
            elif part["type"] == "text":
                content.append({"type": "text", "text": part["text"].replace(token, "")})
            else:
                raise ModelError(f"a request with a {part['type']}", expected="images and text", fix="leave it out")
        turns.append({"role": message["role"], "content": content})
        if message["role"] == "user":
            words = "\n".join(part["text"] for part in content if part["type"] == "text").strip()
    return images, turns, words
