"""The model that answers questions about images: encode once, ask anything, select again for every question.

    vlm = foveate.vlm.attach(model, processor)
    encoded = vlm.see("photo.jpg")
    vlm.ask(encoded, "what does the sign say?", budget=128).text

* The stock model is called through its own arguments: short `input_ids`, the *original* positions of the kept tokens,
  and sliced features as `mm_encoder_outputs`. Nothing is patched. All visual tokens give the stock model's numbers, bit
  for bit; a smaller budget gives those of the full prompt with the dropped tokens masked.
* Without positions the model would take compact ones, raise nothing and answer worse. So they are always passed.
* `generate` writes into the object that carries the features, so it gets a fresh one every time; the tensors of an
  EncodedImage are never changed.
* With the image in front of the question, keys and values of the prompt depend on which tokens were kept: they cannot
  be used again for another question. The encoder's output can, and is most of the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from inspect import signature
from itertools import compress
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.allocation.allocation import BEST, Allocation
from foveate.allocation.policies import Policy
from foveate.core.checks import check_choice, check_int, check_type
from foveate.core.errors import BudgetError, BudgetWarning, OptionError, PromptError, QueryError, SceneError, warn
from foveate.core.image import ImageSource
from foveate.core.readonly import ReadOnly
from foveate.pipeline import score
from foveate.relevance.fusion import Combining, Scoring, parse_options
from foveate.relevance.presets import PresetName, preset_of
from foveate.relevance.scoring import given_relevance, score_nothing
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.vlm.chat import DECAY, HISTORY, LAYERS, Chat
from foveate.vlm.encoded import MODES, Answer, EncodedImage, Mode, Prepared, Selection
from foveate.vlm.families.family import VisualFeatures
from foveate.vlm.images import Attached, encode_images, encode_video
from foveate.vlm.inputs.attention import read_attention
from foveate.vlm.inputs.batch import (
    GENERATING,
    check_context,
    check_keywords,
    cut_at_end,
    encoder_outputs,
    generation_keywords,
    keep_mask,
    needs_single_prompts,
    pad_left,
    runs_without_cache,
    shorten,
)
from foveate.vlm.inputs.features import check_weights, pool, weights_from_map
from foveate.vlm.inputs.prompt import check_question, prompt_ids, prompt_text
from foveate.vlm.pages import Read
from foveate.vlm.select.budgets import Budget, Window, count_tokens, resolve_window
from foveate.vlm.select.crops import choose_crops, cut_relevance, cut_scoring, split_budget, write_words
from foveate.vlm.select.given import Kept, choose_given
from foveate.vlm.select.methods import Candidates, Choice, Method, choose
from foveate.vlm.select.words import choose_spread

if TYPE_CHECKING:
    import torch

_WHERE = ("looking_for", "relevance")  # beside Combining: keywords of `prepare` that say where to look
Given: TypeAlias = (  # of several images, a list with one for each
    Relevance | ArrayLike | Sequence[Relevance | ArrayLike | None]
)


class QuestionWarning(UserWarning):
    """A question that names nothing the encoder can look for: its tokens are kept by saliency and an even spread."""


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

        A texture, loaded or out of a store, stands for its image, and is not made again: everything it knows (what
        was read in it, an earlier pass, a gaze) reaches the model.

        Args:
            mode: "sparse" runs the encoder for every question, over the kept tokens only; all others run it once, here.
            preset: as of `encode`, for the textures that are made here, and for the questions about all of them,
                also about those that are given (docs/presets.md).
            read: whether to read what is written, which takes seconds an image: True, by whom (as of `encode`), or
                False. "auto", the default where the preset does not say, reads those that look like a page (pages.py),
                where a reader is installed; with it and with True, a page of a PDF has the words of its text layer.
            page: of PDFs, from 1; None is the only one.
            texture: of the image, where there is one already; of several, a list with one or None for each. Every pixel
                is compared, so that a texture of another image is refused.

        Raises the errors of `load_image`; ModelError if model and processor do not fit; SceneError without images, or
        for a texture of another one; TextureEncoderError for a texture of another encoder; OptionError and
        MissingExtraError for `read`.
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
                `foveate.video.stream`, in order.
            fps: how many of them make a second.
            mode, preset, read: as for `see`; a frame that looks like the one before it is not read again. Frames of a
                stream bring their textures, with what was propagated and read.

        Raises ModelError for a model without video (its frames may go to `see`), SceneError without frames.
        """
        check_choice("mode", mode, MODES)
        return encode_video(self, frames, fps, mode, read, preset)

    def prepare(
        self,
        encoded: EncodedImage,
        question: str,
        *,
        budget: Budget = "auto",
        mode: Mode = "drop",
        method: Method = "relevance",
        policy: Policy = BEST,
        floor: float | None = None,
        protected: NDArray[np.bool_] | None = None,
        window: Window = "auto",
        weights: Sequence[torch.Tensor] | None = None,
        prompt: str | None = None,
        looking_for: str | None = None,
        relevance: Given | None = None,
        kept: Kept | None = None,
        seed: int = 0,
        **scoring: Unpack[Combining],
    ) -> Prepared:
        """Select visual tokens for a question, and lay out what the model needs: `model.generate(**prepared.inputs())`.

        Args:
            question: what is asked; it is scored on the textures and goes into the prompt.
            budget: visual tokens to keep: a number, a tuple with one for each image, "auto" or None for all. "auto" is
                from a 64th to a quarter of them, by the map; the quarter where the thing is not detected. More than
                there are is cut to all, with a warning.
            mode: "drop" after the encoder; "sparse" before it; "weight" keeps all tokens and scales their features.
            method: how tokens are chosen (select/methods.py): "relevance", or a baseline.
            policy, floor, protected, window: as of `foveate.allocate`, for method "relevance". A quarter is spread
                evenly by default, as questions are also about what is beside the thing they name; down to a tenth where
                the answer was read. `protected` is a mask over the image. `window="auto"`: in mode "sparse", windows of
                an encoder that has any are kept whole, and single tokens fill up the budget (select/budgets.py); None:
                single tokens.
            weights: for mode "weight": a factor for each visual token of each image, tensors [n]; gradients flow
                through them. None: 0.5 where nothing is relevant, to 1 at the peak.
            prompt: the whole prompt as text, with an image token for each image, instead of the chat template.
            looking_for: what to score by, where that is not the question: "the dog" for "what is it doing?".
            relevance: where to look, instead of what the question says: a Relevance over the image, or a map by hand,
                [h, w] in [0, 1] on any grid that spans it. Of several images, a list with one for each; None for one
                that the question is to search.
            kept: which visual tokens, instead of a budget: an Allocation on the model's own grid,
                `foveate.allocate(relevance.on(encoded.grid), 128)`, or a mask bool [h, w]. Of several grids, a list
                with one for each of `encoded.grids`. Cells of another grid are refused, and an Allocation whose
                texture is of another image.
            seed: of method "random".
            scoring: keywords of `foveate.score`: preset, prior, prior_weight, channels, fusion, cues, reading,
                smoothing. Of several images, `prior` may be a list with one for each, or the name of a plane that one
                of them holds.

        Raises:
            SceneError, PromptError, BudgetError, OptionError, QueryError: an argument.
            ChannelError: a prior that a texture does not hold.
        """
        import torch

        check_keywords(VLM.prepare, scoring)
        self.check(encoded, mode)
        if mode == "crop":
            raise OptionError("mode='crop' for prepare", expected="drop, sparse, weight", fix="call ask")
        if mode == "sparse" and method == "downsample":
            raise SceneError(
                "method='downsample' in mode 'sparse'",
                expected="features of the whole image, which this mode does not make",
                fix="use mode='drop', or see a smaller image",
            )
        check_int("seed", seed, 0)
        if weights is not None and mode != "weight":
            raise OptionError("weights= outside of mode 'weight'", expected="mode='weight'", fix="set the mode")
        choosing = {"budget": budget, "method": method, "policy": policy, "floor": floor, "protected": protected}
        if kept is not None:
            _check_alone(choosing | {"window": window, "weights": weights}, mode)
        clock = _Stopwatch()
        found = self._relevance(encoded, question, looking_for, relevance, scoring, searched=kept is None)
        clock.mark("score")
        windows, filled = resolve_window(self.family, self.model, mode, window)
        maps, budget = encoded.per_layout(found), None if mode == "weight" else budget
        shown = () if encoded.kind == "video" else encoded.images
        chosen = [] if kept is None else choose_given(kept, encoded.layouts, shown)
        counts = [] if kept is not None else count_tokens(encoded.layouts, maps, budget, None if filled else windows)
        for number, count in enumerate(counts):
            image = Candidates(
                encoded.layouts[number],
                maps[number],
                encoded.images if encoded.kind == "video" else encoded.images[number : number + 1],
                partial(_selectable_features, encoded, number),
                policy=policy,
                floor=choose_spread(maps[number]) if floor is None else floor,
                protected=None if protected is None else np.asarray(protected),
                window=windows,
                filled=filled,
                seed=seed + number,
            )
            if budget == "auto":  # room for what must be kept
                count = max(count, image.count_protected())
            chosen.append(choose(method, image, count))
        clock.mark("choose")
        text = prompt_text(self.processor, question, len(encoded.spans), prompt, encoded.kind)
        if encoded.kind == "video" and encoded.mark in text:
            text = text.replace(encoded.mark, self.processor.video_token)
        full = prompt_ids(self.processor, text, encoded.spans, encoded.kind)
        keep = keep_mask(full, self._token(encoded.kind), chosen, encoded.layouts)
        ids = torch.from_numpy(full).to(self.model.device)
        inputs = shorten(ids, keep, self.family.positions(self.model, ids, encoded.inputs))
        clock.mark("slice")
        features = self._features(encoded, chosen, mode, weights, maps)
        clock.mark("encode" if mode == "sparse" else "slice")
        return Prepared(
            text=ReadOnly(inputs),
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
            how: keywords of `prepare`: budget, mode, method, policy, ...; also `mode="crop"`.
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
        """Several questions in one ragged batch, padded on the left; each as if it were asked alone.

        `budget`: one for all questions, or a list with one for each.
        """
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

    def relevance(
        self,
        encoded: EncodedImage,
        question: str,
        *,
        looking_for: str | None = None,
        relevance: Given | None = None,
        **scoring: Unpack[Combining],
    ) -> tuple[Relevance, ...]:
        """Where a question looks in each image: keywords as of `prepare`.

        One that names nothing the encoder knows ("why?", another script) gets a map of 0, confidence 0 and a
        QuestionWarning: `foveate.allocate` then goes by saliency and an even spread. With a prior it gets that.
        """
        return self._relevance(encoded, question, looking_for, relevance, scoring)

    def _relevance(
        self,
        encoded: EncodedImage,
        question: str,
        looking_for: str | None,
        relevance: Given | None,
        scoring: Combining,
        searched: bool = True,
    ) -> tuple[Relevance, ...]:
        """As `relevance`; with `searched` False nothing depends on it, and it does not warn."""
        check_question(question)
        given = [None] * len(encoded.textures)
        if relevance is not None:
            given = one_each("relevance", relevance, len(given))
            if any(isinstance(each, Allocation) for each in given):
                raise OptionError("relevance=an Allocation", expected="a Relevance, or a map", fix="pass it as kept=")
            other = sorted({*scoring, *(["looking_for"] if looking_for is not None else [])})
            if other and not any(each is None for each in given):
                raise OptionError(
                    f"relevance= with {', '.join(other)}",
                    expected="one of them: a relevance that is given is not scored",
                    fix="foveate.score(texture, query, prior=...) makes a relevance with them",
                )
        text = question if looking_for is None else looking_for
        scored = iter(self._scores(encoded, text, scoring, [each is None for each in given], searched))
        return tuple(
            next(scored) if each is None else given_relevance(texture, question, each)
            for texture, each in zip(encoded.textures, given, strict=True)
        )

    def _scores(
        self, encoded: EncodedImage, text: str, scoring: Combining, wanted: Sequence[bool], searched: bool
    ) -> list[Relevance]:
        """Of the images that are wanted."""
        textures, count = list(compress(encoded.textures, wanted)), len(encoded.textures)
        told = None if self.encoder == "nano" else self.encoder  # nothing to tell of one that comes with foveate
        priors = (
            list(compress(one_each("prior", scoring["prior"], count), wanted))
            if "prior" in scoring
            else [preset_of(texture, scoring.get("preset")).scoring.get("prior") for texture in textures]
        )
        held = [not isinstance(prior, str) or t.has(prior) for t, prior in zip(textures, priors, strict=True)]
        if any(held):  # a first frame has no frame before it, and one of two images may have a gaze
            priors = [prior if has else None for prior, has in zip(priors, held, strict=True)]
        how = [cast("Scoring", {**scoring, "encoder": told, "prior": prior}) for prior in priors]
        try:
            return [score(texture, text, **each) for texture, each in zip(textures, how, strict=True)]
        except QueryError as cause:
            followed = any(prior is not None for prior in priors)
            if searched and (not followed or scoring.get("prior_weight") != 1):  # 1: the prior is all that was wanted
                warn(
                    f"{cause.received}: the image was not searched, tokens are kept by "
                    f"{'the prior' if followed else 'saliency and an even spread'}. Name what to look for (in Python "
                    "also beside the question, by looking_for=)",
                    QuestionWarning,
                )
            return [
                score_nothing(texture, text, parse_options(texture, each))
                for texture, each in zip(textures, how, strict=True)
            ]

    def chat(
        self,
        encoded: EncodedImage,
        *,
        prior_weight: float | None = None,
        decay: float = DECAY,
        follow: str = HISTORY,
        layers: tuple[int, int] = LAYERS,
        **how: Any,
    ) -> Chat:
        """A dialogue about these images: earlier rounds stay in the prompt, and every round selects again.

        Args:
            prior_weight, decay, follow, layers: as of `Chat`.
            how: keywords of `ask` for every round; `chat.ask(...)` may say otherwise for one.

        Raises SceneError for images of another model or mode; OptionError; ModelError.
        """
        check_keywords(VLM.prepare, how, (*GENERATING, "prior_weight", "decay", "follow", "layers"))
        self.check(encoded, how.get("mode", "drop"))
        return Chat(self, encoded, prior_weight=prior_weight, decay=decay, follow=follow, layers=layers, **how)

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
            out = _generate(self.model, inputs, {"pad_token_id": pad} | keywords)
        seconds = time.perf_counter() - start
        length = inputs["input_ids"].shape[1]
        answers = []
        for number, (one, row) in enumerate(
            zip(made, getattr(out, "sequences", out)[:, length:].cpu().numpy(), strict=True)
        ):
            ids = cut_at_end(row, self.model)
            shared = {field.name: getattr(one, field.name) for field in fields(Selection)}
            shared["seconds"] = ReadOnly({**one.seconds, "generate": seconds})
            attention = read_attention(out, inputs["input_ids"], self._token(one.kind), number, one.chosen, len(ids))
            text = words.decode(ids, skip_special_tokens=True).strip()
            answers.append(Answer(**shared, text=text, ids=ids, attention=attention))
        return answers

    def _token(self, kind: str) -> int:
        """Id of the placeholder of visual tokens, of images or of videos."""
        return int(getattr(self.model.config, f"{kind}_token_id"))

    def _ask_crops(self, encoded: EncodedImage, question: str, keywords: dict[str, Any], how: dict[str, Any]) -> Answer:
        """One question to one image, by its regions (select/crops.py)."""
        self.check(encoded, "crop")
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
        where = {name: how.pop(name) for name in (*_WHERE, *Combining.__annotations__) if name in how}
        (relevance,) = self.relevance(encoded, question, **where)
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
        if where.pop("relevance", None) is not None:  # what was given is all there is to go by
            within = cut_relevance(relevance, closer.textures[1:], found)
        else:
            within = self.relevance(closer, question, **cut_scoring(encoded.textures[0], closer.textures, found, where))
            within = within[1:]
        shares = split_budget(total, found, closer.tokens)
        if sum(shares) < total and how.get("budget") not in ("auto", None):
            warn(f"budget={total} is more than the {sum(shares)} visual tokens there are: all are kept", BudgetWarning)
        how = how | {"mode": "drop", "budget": shares}
        how["relevance"] = [relevance, *within]
        (answer,) = self._generate([self.prepare(closer, question, **how)], keywords)
        return replace(answer, regions=found, mode="crop", seconds=ReadOnly({"see": seconds, **answer.seconds}))

    def _features(
        self,
        encoded: EncodedImage,
        chosen: Sequence[Choice],
        mode: Mode,
        weights: Sequence[torch.Tensor] | None,
        maps: Sequence[Sequence[Relevance]],
    ) -> VisualFeatures:
        """Features of the kept rows, in the way of the mode."""
        import torch

        rows = [choice.rows for choice in chosen]
        if mode == "sparse":
            with torch.no_grad():
                return self.family.encode_kept(self.model, encoded.inputs, rows)
        assert encoded.features is not None
        if mode == "weight":
            if weights is None:
                weights = [weights_from_map(*each) for each in zip(encoded.layouts, maps, strict=True)]
            else:
                check_weights(weights, [layout.count for layout in encoded.layouts])
            return encoded.features.scale(weights)
        kept = encoded.features.take(rows)
        if any(choice.pooled is not None for choice in chosen):
            return pool(encoded.features, kept, encoded.layouts, chosen)
        return kept

    def check(self, encoded: EncodedImage, mode: Mode) -> None:
        """Raises SceneError for an image that this model cannot be asked about in this mode."""
        check_choice("mode", mode, MODES)
        check_type("encoded", encoded, EncodedImage, fix="vlm.see(image) makes one", error=SceneError)
        if encoded.model is not self.model:
            raise SceneError(
                f"an image encoded by another model ({type(encoded.model).__name__})",
                expected=f"one encoded by this {type(self.model).__name__}",
                fix="see the image again with this model",
            )
        if mode == "sparse" and not any(name.startswith("pixel") for name in encoded.inputs):
            raise SceneError(
                "mode='sparse' for an image that was encoded whole",
                expected="one whose pixels are kept",
                fix="see it with vlm.see(image, mode='sparse')",
            )
        if mode in ("drop", "weight") and encoded.features is None:
            raise SceneError(
                f"mode={mode!r}: the image was not encoded", expected="one seen for it", fix="vlm.see(image)"
            )


class _Stopwatch:
    """Seconds between marks, added up by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.perf_counter()

    def mark(self, name: str) -> None:
        before, self.last = self.last, time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + self.last - before


def _selectable_features(encoded: EncodedImage, number: int) -> NDArray[np.float32]:
    """Features of the selectable tokens of an image, float32 [n, D], for methods that compare them."""
    if encoded.features is None:
        raise SceneError(
            "a method that compares the model's features, in mode 'sparse'",
            expected="features, which this mode does not make",
            fix="use method='relevance', 'random', 'uniform' or 'saliency'",
        )
    rows = encoded.features.rows[number].float().cpu().numpy()
    return rows[encoded.layouts[number].selectable_rows()]


def one_each(name: str, given: Any, count: int) -> list[Any]:
    """One thing for each of `count` images: a list or tuple of so many; a name, or nothing, for all of them.

    Raises OptionError for another number.
    """
    alone = isinstance(given, list | tuple) and len(given) == 1 and (not np.ndim(given[0]) or np.ndim(given[0]) == 2)
    if isinstance(given, list | tuple) and (count > 1 or alone):
        found = list(given)
    else:
        found = [given] * (count if given is None or isinstance(given, str) else 1)
    if len(found) != count:
        raise OptionError(
            f"{len(found)} for {name}, of {count} images",
            expected="a list with one for each image",
            fix=f"{name}=[first, second], say; None for an image without" if name == "prior" else f"{name}=[a, b]",
        )
    return found


def _generate(model: Any, inputs: dict[str, Any], keywords: dict[str, Any]) -> Any:
    """`model.generate`, which alone knows its keywords. Raises OptionError for others."""
    try:
        return model.generate(**inputs, **keywords)
    except ValueError as cause:
        if "model_kwargs" not in str(cause):
            raise
        raise OptionError(
            f"generation={keywords}: {str(cause).splitlines()[0][:200]}",
            expected="keywords of model.generate",
            fix="check the spelling",
        ) from cause


def _check_alone(choosing: dict[str, Any], mode: Mode) -> None:
    """Raises OptionError for `kept` beside other ways to say which tokens."""
    usual = {name: parameter.default for name, parameter in signature(VLM.prepare).parameters.items()}
    other = [f"{name}=" for name, value in choosing.items() if isinstance(value, np.ndarray) or value != usual[name]]
    if other or mode == "weight":
        raise OptionError(
            f"kept= with {', '.join(other) or 'mode=weight, which keeps all tokens'}",
            expected="kept= alone: it says which tokens",
            fix="give budget, floor, policy and the like to foveate.allocate, which makes the Allocation",
        )
