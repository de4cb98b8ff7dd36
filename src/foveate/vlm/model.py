"""`attach` and the model that answers questions about scenes: see once, ask anything, re-select for every question.

    vlm = foveate.vlm.attach(model, processor)
    scene = vlm.see("photo.jpg")
    vlm.ask(scene, "what does the sign say?", budget=128).text

What is notable
* The stock model is called through its own door: short `input_ids`, the *original* positions of the kept tokens, and
  sliced features as `mm_encoder_outputs`. Nothing is patched. Keeping every cell gives the stock model's numbers, bit
  for bit; a smaller budget gives those of the full prompt with the dropped tokens masked.
* Forgotten positions would not raise: the model would take compact ones and answer worse. So they are always passed.
* `generate` writes into the object that carries the features, so it gets a fresh one every time; the tensors of a scene
  are never changed.
* With the image in front of the question, keys and values of the prompt depend on which cells were kept: they cannot be
  used again for another question. What is used again is the encoded image, which is most of the work.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foveate.core.errors import BudgetError, OptionError, QueryError, SceneError
from foveate.core.image import ImageSource
from foveate.core.readonly import ReadOnly
from foveate.encoders.protocol import Encoder
from foveate.pipeline import score
from foveate.relevance.allocate import BEST
from foveate.relevance.policies import Policy
from foveate.relevance.score import empty_relevance
from foveate.relevance.value import Relevance
from foveate.vlm.checks import check_keywords, check_weights, with_length
from foveate.vlm.encoded import Answer, Mode, Prepared, Scene
from foveate.vlm.families.family import Encoded, Family
from foveate.vlm.inputs.batch import (
    kept_tokens,
    one_by_one,
    output_of,
    padded,
    short,
    uncached,
    until_end,
    usual_generation,
)
from foveate.vlm.inputs.features import pooled, usual_weights
from foveate.vlm.seeing import full_ids, see_frames, see_images
from foveate.vlm.select.budgets import Budget, cells_to_keep
from foveate.vlm.select.choose import Candidates, Choice, Method, choose
from foveate.vlm.select.windows import Whole, windows_for

if TYPE_CHECKING:
    import torch

FLOOR = 0.25  # measured on a small model that answers, docs/log.md
MODES = ("drop", "sparse", "weight", "crop")


@dataclass(frozen=True, eq=False)
class VLM:
    """A stock vision-language model with its processor, and what foveate knows of its family. Made by `attach`."""

    model: Any
    processor: Any
    family: Family
    encoder: str | Encoder

    def __repr__(self) -> str:
        encoder = self.encoder if isinstance(self.encoder, str) else self.encoder.name
        return f"VLM({type(self.model).__name__}, family {self.family.name!r}, encoder {encoder!r})"

    def see(self, images: ImageSource | Sequence[ImageSource], *, mode: Mode = "drop") -> Scene:
        """Encode one or several images, for any number of questions.

        Args:
            images: one image (path, bytes, PIL image, array), or a list or tuple of them.
            mode: "sparse" does not run the tower now, but for every question over the kept cells only. All other modes
                run it once, here.

        Raises:
            The Image...Errors of `load_image`; ModelError if model and processor do not fit; SceneError without images.
        """
        _check(mode in MODES, f"mode={mode!r}", ", ".join(MODES), "leave it out for 'drop'")
        return see_images(self, images if isinstance(images, list | tuple) else [images], mode)

    def see_video(self, frames: str | PathLike[str] | Iterable[Any], *, fps: float = 2.0, mode: Mode = "drop") -> Scene:
        """Encode frames as one video; the budget of a question is shared by all of them.

        Args:
            frames: path of a clip, of which `fps` frames a second are taken; or images of one size, or frames of
                `foveate.video.stream`, in order.
            fps: how many of them make a second.
            mode: as for `see`.

        Raises:
            ModelError: a model without video; its frames may go to `see` as several images. SceneError: no frames.
        """
        _check(mode in MODES, f"mode={mode!r}", ", ".join(MODES), "leave it out for 'drop'")
        return see_frames(self, frames, fps, mode)

    def prepare(
        self,
        scene: Scene,
        question: str,
        *,
        budget: Budget = "auto",
        mode: Mode = "drop",
        method: Method = "relevance",
        policy: Policy = BEST,
        floor: float = FLOOR,
        protected: NDArray[np.bool_] | None = None,
        window: Whole = "auto",
        weights: Sequence[torch.Tensor] | None = None,
        prompt: str | None = None,
        looking_for: str | None = None,
        seed: int = 0,
    ) -> Prepared:
        """Select cells for a question, and lay out all that the model needs: `model.generate(**prepared.inputs())`.

        Args:
            question: what is asked; it is scored on the textures and goes into the prompt.
            budget: cells to keep: a number, a tuple with one for each image, "auto" (from the map's own mass) or None
                for all. More than there are is cut to all, with a warning.
            mode: "drop" after the tower; "sparse" before it; "weight" keeps all cells and scales their features.
            method: how cells are chosen (vlm/choose.py): "relevance", or a baseline.
            policy, floor, protected, window: as of `foveate.allocate`, for method "relevance". A quarter is spread
                evenly unless you say otherwise: questions are also about what is beside the thing they name.
                `protected` is a mask on the texture's cells. `window="auto"`: in mode "sparse", windows of a tower that
                has any are kept whole, and single cells fill up the budget (vlm/windows.py); None: single cells.
            weights: for mode "weight": a factor for each feature row of each image, tensors [n]; gradients flow through
                them. None: 0.5 where nothing is relevant, to 1 at the peak.
            prompt: the whole prompt as text, with an image token for each image, instead of the chat template.
            looking_for: what to score the cells by, where that is not the question: "the dog" for "what is it doing?".
            seed: of method "random".

        Raises:
            SceneError, PromptError, BudgetError, OptionError, QueryError.
        """
        import torch

        self.check_scene(scene, mode)
        _check(
            mode != "crop", "mode='crop' for prepare", "drop, sparse, weight", "call ask, which sees the crops first"
        )
        if mode == "sparse" and method == "downsample":
            raise SceneError(
                "method='downsample' in mode 'sparse'",
                expected="features of the whole image, which this mode does not make",
                fix="use mode='drop', or see a smaller image",
            )
        if protected is not None:
            protected = np.asarray(protected)
        _check(isinstance(seed, int) and seed >= 0, f"seed={seed!r}", "a whole number from 0 on", "leave it out")
        _check(
            weights is None or mode == "weight", "weights= outside of mode 'weight'", "mode='weight'", "set the mode"
        )
        clock = _Clock()
        relevance = self.relevance(scene, question if looking_for is None else looking_for)
        clock.mark("score")
        windows, filled = windows_for(self.family, self.model, mode, window)
        numbers = cells_to_keep(scene, relevance, None if mode == "weight" else budget, None if filled else windows)
        chosen, pictures = [], scene.of_each(relevance)
        for number, count in enumerate(numbers):
            image = Candidates(
                scene.placements[number],
                pictures[number],
                scene.images if scene.kind == "video" else scene.images[number : number + 1],
                partial(_cells_of, scene, number),
                policy=policy,
                floor=floor,
                protected=protected,
                window=windows,
                filled=filled,
                seed=seed + number,
            )
            chosen.append(choose(method, image, count))
        clock.mark("choose")
        full = full_ids(self, scene, question, prompt)
        keep = kept_tokens(full, getattr(self.model.config, f"{scene.kind}_token_id"), chosen, scene.placements)
        ids = torch.from_numpy(full).to(self.model.device)
        positions = self.family.positions(self.model, ids, scene.inputs)
        text_inputs = short(ids, keep, positions)
        clock.mark("slice")
        features = self._features(scene, chosen, mode, weights, relevance)
        clock.mark("encode" if mode == "sparse" else "slice")
        tokens = sum(len(choice.rows) for choice in chosen), sum(p.count for p in scene.placements)
        return Prepared(
            ReadOnly(text_inputs),
            features,
            self.family,
            keep,
            tuple(chosen),
            relevance,
            tokens,
            ReadOnly(clock.seconds),
            self.model,
            scene.kind,
            question,
            mode,
        )

    def ask(
        self,
        scene: Scene,
        question: str,
        *,
        max_new_tokens: int | None = None,
        generation: dict[str, Any] | None = None,
        **how: Any,
    ) -> Answer:
        """Select cells for a question and let the model answer. The next question selects afresh.

        Args:
            scene: from `see`.
            question: what is asked.
            max_new_tokens: of the answer; 64 if nothing says otherwise.
            generation: keywords of `model.generate`; default: greedy.
            how: keywords of `prepare`: budget, mode, method, policy, ...; also `mode="crop"`.
        """
        generation = with_length(generation, max_new_tokens)
        check_keywords(how, self.prepare)
        if how.get("mode") == "crop":
            from foveate.vlm.crop import ask_crops

            return ask_crops(self, scene, question, generation, how)
        return self.answers([self.prepare(scene, question, **how)], generation)[0]

    def ask_many(
        self,
        scene: Scene,
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
        generation = with_length(generation, max_new_tokens)
        check_keywords(how, self.prepare)
        if not isinstance(questions, list | tuple) or not questions:
            raise OptionError(f"questions={questions!r}", expected="a list of texts", fix="use ask for a single one")
        _check(how.get("mode") != "crop", "mode='crop' for a batch", "drop, sparse, weight", "ask one after the other")
        each: list[Any] = list(budget) if isinstance(budget, list) else [budget] * len(questions)
        if len(each) != len(questions):
            raise BudgetError(
                f"{len(each)} budgets for {len(questions)} questions", expected="one for each", fix="or one for all"
            )
        made = [self.prepare(scene, q, budget=b, **how) for q, b in zip(questions, each, strict=True)]
        return self.answers(made, generation)

    def relevance(self, scene: Scene, question: str) -> tuple[Relevance, ...]:
        """Where a question looks in each image.

        Of one that names nothing the encoder knows ("why?", "describe it", another script) the map is 0 and so is the
        confidence: then `foveate.allocate` goes by saliency and an even spread.
        """
        if not isinstance(question, str) or not question.strip():
            raise QueryError(f"the question {question!r}", expected="a text", fix='ask "what is in the picture?", say')
        try:
            return tuple(score(texture, question, encoder=self._told()) for texture in scene.textures)
        except QueryError:
            return tuple(empty_relevance(texture, question) for texture in scene.textures)

    def answers(self, made: Sequence[Prepared], generation: dict[str, Any] | None = None) -> list[Answer]:
        """Generate for prepared questions, also of different scenes, in one batch. All must be of one kind."""
        import torch

        made = list(made)
        _check(bool(made), "no prepared question", "at least one", "vlm.prepare(scene, question) makes one")
        if any(one.model is not self.model for one in made) or len({one.kind for one in made}) > 1:
            raise SceneError(
                "questions prepared by another model, or about images and videos together",
                expected="questions of this model, all of one kind",
                fix="call answers once for each",
            )
        keywords = usual_generation(generation)
        if len(made) > 1 and one_by_one(self.model, keywords):
            return [answer for one in made for answer in self.answers([one], generation)]
        pad = self.processor.tokenizer.pad_token_id
        pad = self.processor.tokenizer.eos_token_id if pad is None else pad
        gaps = uncached(self.model, keywords)
        inputs: dict[str, Any] = padded([dict(one.text) for one in made], int(pad or 0), always=gaps)
        inputs["mm_encoder_outputs"] = output_of([one.features for one in made], self.family, made[0].kind)
        start = time.perf_counter()
        with torch.no_grad():
            out = self.model.generate(**inputs, **({"pad_token_id": pad} | keywords))
        seconds = time.perf_counter() - start
        out = getattr(out, "sequences", out)
        each = len(out) // len(made)  # several sequences of a question: the first counts
        found = []
        for number, one in enumerate(made):
            ids = until_end(out[number * each, inputs["input_ids"].shape[1] :].cpu().numpy(), self.model)
            found.append(
                Answer(
                    text=self.processor.tokenizer.decode(ids, skip_special_tokens=True).strip(),
                    ids=ids,
                    chosen=one.chosen,
                    relevance=one.relevance,
                    tokens=one.tokens,
                    seconds=ReadOnly({**one.seconds, "generate": seconds}),
                    question=one.question,
                    mode=one.mode,
                )
            )
        return found

    def _features(
        self,
        scene: Scene,
        chosen: Sequence[Choice],
        mode: Mode,
        weights: Sequence[torch.Tensor] | None,
        relevance: Sequence[Relevance],
    ) -> Encoded:
        """Features of the kept rows, in the way of the mode."""
        import torch

        rows = [choice.rows for choice in chosen]
        if mode == "sparse":
            with torch.no_grad():
                return self.family.encode_kept(self.model, scene.inputs, rows)
        assert scene.features is not None
        if mode == "weight":
            if weights is not None:
                check_weights(weights, [placement.count for placement in scene.placements])
            factors = (
                weights
                if weights is not None
                else [
                    usual_weights(placement, each)
                    for placement, each in zip(scene.placements, scene.of_each(relevance), strict=True)
                ]
            )
            return scene.features.scaled(factors)
        kept = scene.features.kept(rows)
        if any(choice.pooled is not None for choice in chosen):
            return pooled(scene.features, kept, scene.placements, chosen)
        return kept

    def check_scene(self, scene: Scene, mode: Mode) -> None:
        """Raises SceneError for a scene that this model cannot be asked about in this mode."""
        _check(mode in MODES, f"mode={mode!r}", ", ".join(MODES), "leave it out for 'drop'")
        if not isinstance(scene, Scene):
            raise SceneError(
                f"a scene that is a {type(scene).__name__}", expected="a Scene", fix="vlm.see(image) makes one"
            )
        if scene.model is not self.model:
            raise SceneError(
                f"a scene that was seen by another model ({type(scene.model).__name__})",
                expected=f"one seen by this {type(self.model).__name__}",
                fix="see the image again with this model",
            )
        if mode == "sparse" and not any(name.startswith("pixel") for name in scene.inputs):
            raise SceneError(
                "mode='sparse' for a scene that was encoded whole",
                expected="a scene whose pixels are kept",
                fix="see it with vlm.see(image, mode='sparse')",
            )
        if mode in ("drop", "weight") and scene.features is None:
            raise SceneError(
                f"mode={mode!r} for a scene that was not encoded", expected="one seen for it", fix="vlm.see(image)"
            )

    def _told(self) -> str | Encoder | None:
        """What `score` is told: nothing for an encoder that comes with foveate."""
        return None if self.encoder == "nano" else self.encoder


class _Clock:
    """Seconds between marks, added up by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


def _cells_of(scene: Scene, number: int) -> NDArray[np.float32]:
    """Features of all cells of an image, float32 [cells, D], for methods that compare cells."""
    if scene.features is None:
        raise SceneError(
            "a method that compares the model's features, in mode 'sparse'",
            expected="features, which this mode does not make",
            fix="use method='relevance', 'random', 'uniform' or 'saliency'",
        )
    rows = scene.features.rows[number].float().cpu().numpy()
    return rows[scene.placements[number].cell_rows()]


def _check(right: bool, received: str, expected: str, fix: str) -> None:
    if not right:
        raise OptionError(received, expected=expected, fix=fix)
