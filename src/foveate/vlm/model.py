"""The model that answers questions about images: encode once, ask anything, select again for every question.

The stock model is called through its own arguments: short `input_ids`, the *original* positions of the kept tokens
(with compact ones it would answer worse, without an error), and sliced features as `mm_encoder_outputs`. All visual
tokens give the stock model's numbers, bit for bit; fewer give those of the full prompt with the others masked.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.core.checks import check_choice, check_int, keyword
from foveate.core.errors import BudgetError, BudgetWarning, OptionError, PromptError, SceneError, warn
from foveate.core.gone import without
from foveate.core.image import ImageSource
from foveate.core.readonly import ReadOnly
from foveate.relevance.options import ScoringOptions
from foveate.relevance.presets import PresetName
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.vlm.chat import DECAY, LAYERS, Chat
from foveate.vlm.encoded import MODES, Answer, Attached, EncodedImage, Mode, Prepared, Selection
from foveate.vlm.families.family import encoder_outputs
from foveate.vlm.inputs.generation import (
    GENERATING,
    check_context,
    check_keywords,
    cut_at_end,
    generate,
    generation_keywords,
    needs_single_prompts,
    runs_without_cache,
)
from foveate.vlm.inputs.images import Read, encode_images, encode_video
from foveate.vlm.inputs.tensors import pad_left, read_attention
from foveate.vlm.prepare import (
    Stopwatch,
    Where,
    check_encoded,
    check_request,
    choose_kept,
    find_relevance,
    find_repeated,
    lay_out,
    look_in,
    make_features,
)
from foveate.vlm.select.choice import Budget, Choosing
from foveate.vlm.select.crops import choose_crops, cut_relevance, cut_scoring, split_budget, write_words
from foveate.vlm.select.given import Kept
from foveate.vlm.select.methods import Method


@dataclass(frozen=True, eq=False)
class VLM(Attached):
    """A stock vision-language model that gets only the visual tokens that a question needs. Made by `attach`."""

    def __repr__(self) -> str:
        encoder = self.encoder if isinstance(self.encoder, str) else self.encoder.name
        return f"VLM({type(self.model).__name__}, family {self.family.name!r}, encoder {encoder!r})"

    def see(
        self,
        images: ImageSource | Texture | Sequence[ImageSource | Texture],
        *,
        mode: Mode = "drop",
        preset: PresetName | None = None,
        read: Read | None = None,
        page: int | None = None,
        texture: Texture | Sequence[Texture | None] | None = None,
    ) -> EncodedImage:
        """Encode one image (path, bytes, PIL image, array), or a list or tuple of them, for any number of questions.

        A texture stands for its image and is not made again: what was read in it, a gaze and the like reach the model.

        Args:
            mode: "sparse" runs the encoder for every question, over the kept tokens only; all others run it once, here.
            preset: as of `encode`, for the textures that are made here and for the questions about all of them.
            read: whether to read what is written, which takes seconds an image: True, by whom (as of `encode`), or
                False. "auto", the default where the preset does not say, reads what looks like a page.
            page: of PDFs, from 1; None is the only one.
            texture: of the image, where there is one already; of several, a list with one or None for each. A texture
                of another image is refused.

        Raises the errors of `load_image`, ModelError, SceneError, TextureEncoderError, OptionError, MissingExtraError.
        """
        check_choice("mode", mode, MODES)
        sources: Any = images if isinstance(images, list | tuple) else [images]
        known: Any = texture if isinstance(texture, list | tuple) else [texture]
        return encode_images(self, sources, mode, read, page, None if texture is None else known, preset)

    def see_video(
        self,
        frames: str | PathLike[str] | Iterable[Any],
        *,
        fps: float = 2.0,
        mode: Mode = "drop",
        preset: PresetName | None = None,
        read: Read | None = None,
    ) -> EncodedImage:
        """Encode frames as one video; the budget of a question is shared by all of them.

        Args:
            frames: path of a clip, of which `fps` frames a second are taken; or images of one size, or frames of
                `foveate.video.stream`, which bring their textures.
            fps: how many of them make a second.
            mode, preset, read: as for `see`; a frame that looks like the one before it is not read again.

        Raises ModelError for a model without video (its frames may go to `see`), SceneError without frames.
        """
        check_choice("mode", mode, MODES)
        return encode_video(self, frames, fps, mode, read, preset)

    @without("prepare")
    def prepare(
        self,
        encoded: EncodedImage,
        question: str,
        *,
        budget: Budget = "auto",
        mode: Mode = "drop",
        method: Method = "relevance",
        kept: Kept | None = None,
        relevance: Where | None = None,
        boxes: ArrayLike | Sequence[ArrayLike] | None = None,
        prompt: str | None = None,
        choosing: Choosing = Choosing(),  # noqa: B008  a value
        scoring: ScoringOptions = ScoringOptions(),  # noqa: B008
    ) -> Prepared:
        """Select visual tokens for a question, and lay out what the model needs: `model.generate(**prepared.inputs())`.

        Args:
            question: what is asked; it is scored on the textures and goes into the prompt.
            budget: visual tokens to keep: a number, a tuple with one for each image, "auto" (1/64 to 1/4 of them, by
                the map), "lossless" (all but those whose pixels a neighbour has: `repeated`) or None for all.
            mode: "drop" after the encoder; "sparse" before it; "weight" keeps all tokens and scales their features.
            method: how tokens are chosen: "relevance", "changed", or a baseline (select/methods.py).
            kept: which tokens, instead of a budget: an Allocation on the model's own grid,
                `foveate.allocate(relevance.on(encoded.grid), 128)`, or a mask bool [h, w]; a list for several grids.
            relevance: where to look, instead of what the question names: a text ("the dog"), a Relevance, or a map
                [h, w] in [0, 1]. Of several images, a list; None for one that the question is to search.
            boxes: where to look, instead: boxes (y0, x0, y1, x1) in pixels of the image, a detector's, say. Tokens in
                them go first, the others of the budget are their context. Of several images, a list for each.
            prompt: the whole prompt, with an image token for each image, instead of the chat template.
            choosing: floor, policy, protected, window, seed, redundancy, weights.
            scoring: rarer keywords of `foveate.score`. Of several images, its `prior` may be a list.

        Raises:
            SceneError, PromptError, BudgetError, OptionError, QueryError: an argument.
            ChannelError: a prior that a texture does not hold.
        """
        check_encoded(self, encoded, mode)
        check_request(mode, method, budget, kept, choosing)
        clock = Stopwatch()
        if boxes is not None:
            if relevance is not None:
                raise OptionError("boxes= with relevance=", expected="one of them", fix="leave one of them out")
            relevance = look_in(boxes, encoded.textures)
        found = find_relevance(
            self, encoded, question, relevance, scoring, searched=kept is None and budget != "lossless"
        )
        clock.mark("score")
        count = None if mode == "weight" else budget
        chosen = choose_kept(encoded, found, count, method, kept, choosing, partial(find_repeated, self, encoded))
        clock.mark("choose")
        keep, text = lay_out(self, encoded, question, prompt, chosen)
        clock.mark("slice")
        features = make_features(self, encoded, found, mode, chosen, choosing.weights)
        clock.mark("encode" if mode == "sparse" else "slice")
        return Prepared(
            text=ReadOnly(text),
            features=features,
            family=self.family,
            keep=keep,
            chosen=tuple(chosen),
            relevance=found,
            tokens=(sum(len(choice.rows) for choice in chosen), sum(layout.count for layout in encoded.layouts)),
            seconds=ReadOnly(clock.seconds),
            model=self.model,
            kind=encoded.kind,
            question=question,
            mode=mode,
            textures=encoded.textures,
            layouts=encoded.layouts,
        )

    def ask(
        self,
        encoded: EncodedImage,
        question: str,
        *,
        max_new_tokens: int | None = None,
        generation: dict[str, Any] | None = None,
        **how: Any,
    ) -> Answer:
        """Select visual tokens for a question and let the model answer. The next question selects again.

        Args:
            max_new_tokens: of the answer; 64 by default.
            generation: keywords of `model.generate`; default: greedy. `num_return_sequences` above 1 is refused.
            how: keywords of `prepare`: budget, mode, method, ...; also `mode="crop"`.
        """
        keywords = generation_keywords(self.model, generation, max_new_tokens)
        check_keywords(VLM.prepare, how, GENERATING)
        if how.get("mode") == "crop":
            return self._ask_crops(encoded, question, keywords, dict(how))
        return self._generate([self.prepare(encoded, question, **how)], keywords)[0]

    def ask_many(
        self,
        encoded: EncodedImage,
        questions: Sequence[str],
        *,
        budget: Budget | Sequence[Budget] = "auto",
        max_new_tokens: int | None = None,
        generation: dict[str, Any] | None = None,
        **how: Any,
    ) -> list[Answer]:
        """Several questions in one ragged batch; each as if it were asked alone. budget: one, or a list of one each."""
        keywords = generation_keywords(self.model, generation, max_new_tokens)
        check_keywords(VLM.prepare, how, GENERATING)
        if not isinstance(questions, list | tuple) or not questions:
            raise OptionError(f"questions={questions!r}", expected="a list of texts", fix="use ask for a single one")
        if how.get("mode") == "crop":
            raise OptionError("mode='crop' for a batch", expected="drop, sparse, weight", fix="ask one after the other")
        budgets: list[Any] = list(budget) if isinstance(budget, list) else [budget] * len(questions)
        if len(budgets) != len(questions):
            raise BudgetError(
                f"{len(budgets)} budgets for {len(questions)} questions", expected="one for each", fix="or one for all"
            )
        made = [self.prepare(encoded, q, budget=b, **how) for q, b in zip(questions, budgets, strict=True)]
        return self._generate(made, keywords)

    @without("prepare")
    def relevance(
        self,
        encoded: EncodedImage,
        question: str,
        *,
        relevance: Where | None = None,
        scoring: ScoringOptions = ScoringOptions(),  # noqa: B008  a value
    ) -> tuple[Relevance, ...]:
        """Where a question looks in each image: keywords as of `prepare`.

        One that names nothing ("why?", another script) gets a map of 0, or its prior alone, and a QuestionWarning.
        """
        return find_relevance(self, encoded, question, relevance, scoring)

    def repeated(self, encoded: EncodedImage, levels: int = 0) -> tuple[NDArray[np.bool_], ...]:
        """Visual tokens that show no pixel that a neighbour does not show as well: bool [h, w] for each of
        `encoded.grids`. The neighbour is the one on the left, above, or above on the left, and may repeat another.

        The pixels are the model's own, behind its processor's resizing. What is False has all of them:
        `vlm.ask(encoded, question, budget="lossless")` keeps that.

        Args:
            levels: of 256, by which two pixels may differ that count as the same.

        Raises ModelError for a model whose tokens have no pixels of their own, SceneError for a video.
        """
        check_encoded(self, encoded, "sparse" if encoded.features is None else "drop")
        levels = check_int("levels", levels, 0, 255, fix="0 wants the same pixels")
        return tuple(grid for image in find_repeated(self, encoded, levels) for grid in image)

    @without("chat")
    def chat(
        self,
        encoded: EncodedImage,
        *,
        prior_weight: float | None = None,
        decay: float = DECAY,
        layers: tuple[int, int] = LAYERS,
        **how: Any,
    ) -> Chat:
        """A dialogue about these images: earlier rounds stay in the prompt, and every round selects again.

        Args:
            prior_weight, decay, layers: as of `Chat`.
            how: keywords of `ask` for every round; `chat.ask(...)` may say otherwise for one.

        Raises SceneError for images of another model or mode; OptionError; ModelError.
        """
        check_keywords(VLM.prepare, how, (*GENERATING, "prior_weight", "decay", "layers"))
        check_encoded(self, encoded, how.get("mode", "drop"))
        return Chat(self, encoded, prior_weight=prior_weight, decay=decay, layers=layers, **how)

    def answers(self, made: Sequence[Prepared], generation: dict[str, Any] | None = None) -> list[Answer]:
        """Generate for prepared questions, also of different images, in one batch. All must be of one kind."""
        return self._generate(list(made), generation_keywords(self.model, generation, None))

    def _generate(self, made: list[Prepared], keywords: dict[str, Any]) -> list[Answer]:
        import torch

        if not made or any(one.model is not self.model for one in made) or len({one.kind for one in made}) > 1:
            several = "questions prepared by another model, or about images and videos together"
            raise SceneError(
                several if made else "no prepared question",
                expected="questions of this model, all of one kind",
                fix="call answers once for each; vlm.prepare(encoded, question) makes one",
            )
        for one in made:
            check_context(self.model, one.text, one.tokens[0], keywords)
        if len(made) > 1 and needs_single_prompts(self.model, keywords):
            return [answer for one in made for answer in self._generate([one], keywords)]
        words = self.processor.tokenizer
        pad = words.eos_token_id if words.pad_token_id is None else words.pad_token_id
        uncached = runs_without_cache(self.model, keywords)
        inputs: dict[str, Any] = pad_left([dict(one.text) for one in made], int(pad or 0), always=uncached)
        inputs["mm_encoder_outputs"] = encoder_outputs([one.features for one in made], self.family, made[0].kind)
        start = time.perf_counter()
        with torch.no_grad():
            out = generate(self.model, inputs, {"pad_token_id": pad} | keywords)
        seconds = time.perf_counter() - start
        length = inputs["input_ids"].shape[1]
        answers = []
        for number, (one, row) in enumerate(
            zip(made, getattr(out, "sequences", out)[:, length:].cpu().numpy(), strict=True)
        ):
            ids = cut_at_end(row, self.model)
            shared = {field.name: getattr(one, field.name) for field in fields(Selection)}
            shared["seconds"] = ReadOnly({**one.seconds, "generate": seconds})
            attention = read_attention(out, inputs["input_ids"], self.token(one.kind), number, one.chosen, len(ids))
            text = words.decode(ids, skip_special_tokens=True).strip()
            answers.append(Answer(**shared, text=text, ids=ids, attention=attention))
        return answers

    def _ask_crops(self, encoded: EncodedImage, question: str, keywords: dict[str, Any], how: dict[str, Any]) -> Answer:
        check_encoded(self, encoded, "crop")
        if len(encoded.images) != 1:
            raise SceneError(
                f"mode='crop' for {len(encoded.images)} images", expected="one image", fix="see each by itself"
            )
        if how.get("prompt") is not None:
            raise PromptError(
                "prompt= in mode 'crop'",
                expected="the chat template: how many images there are is known only after the question",
                fix="leave prompt= out, or use mode='drop'",
            )
        if how.get("kept") is not None:
            raise OptionError("kept= in mode 'crop'", expected="mode='drop' or 'sparse'", fix="leave one of them out")
        where, scoring = how.pop("relevance", None), how.pop("scoring", ScoringOptions())
        (relevance,) = self.relevance(encoded, question, relevance=where, scoring=scoring)
        total, found = choose_crops(self.model, relevance, how.get("budget", "auto"))
        start = time.perf_counter()
        crops = found.crops(encoded.images[0])
        known = encoded.textures[0] if encoded.textures[0].shows(encoded.images[0]) else None
        closer = self.see(
            [encoded.images[0], *crops], read=False, texture=None if known is None else [known, *[None] * len(crops)]
        )
        if (words := encoded.textures[0].words) is not None:  # nothing is read twice
            closer = replace(closer, textures=tuple(write_words(closer.textures, words, found)))
        seconds = time.perf_counter() - start
        if where is None or isinstance(where, str):
            scoring = cut_scoring(encoded.textures[0], closer.textures, found, scoring)
            within = self.relevance(closer, question, relevance=where, scoring=scoring)[1:]
        else:  # what was given is all there is to go by
            within = cut_relevance(relevance, closer.textures[1:], found)
        shares = split_budget(total, found, closer.tokens)
        if sum(shares) < total and how.get("budget") not in ("auto", None):
            came = keyword("budget", total)
            warn(f"{came} is more than the {sum(shares)} visual tokens there are: all are kept", BudgetWarning)
        how = how | {"mode": "drop", "budget": shares}
        how["relevance"] = [relevance, *within]
        (answer,) = self._generate([self.prepare(closer, question, **how)], keywords)
        return replace(answer, regions=found, mode="crop", seconds=ReadOnly({"see": seconds, **answer.seconds}))
