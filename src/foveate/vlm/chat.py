"""A dialogue about an image: several rounds, each of which selects its visual tokens anew.

    chat = vlm.chat(encoded)
    chat.ask("where is the dog?", budget=64)
    chat.ask("and what colour is it?", budget=64)     # names nothing: looks where the dialogue looked

Earlier questions and answers stay in the prompt; what they were about is kept in planes: `history`, with decay, and
`attention_prev`, `attention_now` (two layers of a model that returns its attention). A question that refers back
(language/dialogue.py) takes the history as its prior; where a preset has a prior, only one that names nothing does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from foveate.channels.attention import accumulate
from foveate.core.checks import check_int, check_number
from foveate.core.errors import OptionError
from foveate.language.dialogue import PRIOR_WEIGHTS, refers_back
from foveate.relevance.options import ScoringOptions
from foveate.relevance.passes import DECAY as DECAY
from foveate.relevance.passes import HISTORY as HISTORY
from foveate.relevance.passes import shared_map
from foveate.relevance.presets import preset_of
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.vlm.encoded import Answer, EncodedImage, OfModel, Prepared
from foveate.vlm.inputs.generation import GENERATING, check_context, check_keywords, generation_keywords
from foveate.vlm.inputs.prompt import check_question, prompt_text
from foveate.vlm.inputs.tensors import place_attention

LAYERS = (-2, -1)  # by hand: the last two
ATTENTION = ("attention_prev", "attention_now")
CHOOSING = ("budget", "method", "choosing")  # what `kept` takes the place of

Floats = NDArray[np.float32]
Planes = Mapping[str, tuple[Floats, ...]]  # by name, one for each texture


class Answering(Protocol):
    """What a chat needs of a VLM."""

    @property
    def model(self) -> Any:
        """The stock model."""

    @property
    def processor(self) -> Any:
        """Its processor."""

    @property
    def prepare(self) -> Callable[..., Prepared]:
        """Select visual tokens for a question."""

    def answers(self, made: Sequence[Prepared], generation: dict[str, Any] | None = None) -> list[Answer]:
        """Generate for prepared questions."""


@dataclass(frozen=True)
class Turn:
    """A round of a dialogue, as plain values.

    Attributes:
        tokens: (visual tokens the model got, visual tokens there are).
        prompt: tokens of the prompt, visual ones included.
        prior_weight: of the dialogue so far in this round's map; 0 for none.
    """

    question: str
    answer: str
    tokens: tuple[int, int]
    prompt: int
    prior_weight: float


class Chat(OfModel):
    """A dialogue about one EncodedImage, from `VLM.chat`; for one thread at a time. A round that fails changes nothing.

    Attributes:
        turns: the rounds that are in the prompt, oldest first.
    """

    def __init__(
        self,
        vlm: Answering,
        encoded: EncodedImage,
        *,
        prior_weight: float | None = None,
        decay: float = DECAY,
        layers: tuple[int, int] = LAYERS,
        **how: Any,
    ) -> None:
        """Keywords that are not named here are those of `ask`, for every round.

        Args:
            prior_weight: of the dialogue in a question that refers to it and names something besides, 0 to 1; .7 by
                default. With a prior in `scoring` it is that prior's weight.
            decay: how much of the history stays when a question names another thing, 0 to 1.
            layers: of the language model, for attention_prev and attention_now; negative ones count from the end.
        """
        self.encoded = encoded
        self.turns: tuple[Turn, ...] = ()
        self._vlm, self._how = vlm, how
        self._weight = None if prior_weight is None else check_number("prior_weight", prior_weight)
        self._decay = check_number("decay", decay)
        self._layers = _check_layers(vlm.model, layers)
        self._attends = _config(vlm.model)._attn_implementation == "eager"
        self._planes: Planes = {}

    def __repr__(self) -> str:
        planes = f", planes {', '.join(self._planes)}" if self._planes else ""
        return f"Chat({len(self.turns)} rounds about {self.encoded!r}{planes})"

    @property
    def textures(self) -> tuple[Texture, ...]:
        """Textures of the images with the planes of the dialogue: `foveate.score(texture, query, prior="history")`."""
        found = list(self.encoded.textures)
        for name, planes in self._planes.items():
            found = [t.with_channel(name, plane, made_by="dialogue") for t, plane in zip(found, planes, strict=True)]
        return tuple(found)

    def prepare(self, question: str, **how: Any) -> Prepared:
        """Select visual tokens for the next question; the dialogue stays as it is. Keywords as of `ask`."""
        return self._prepare(question, self._with(how))[0]

    def ask(self, question: str, **how: Any) -> Answer:
        """Ask the next question, with the dialogue so far in the prompt.

        Args:
            how: keywords of `VLM.ask`, but for `prompt` and mode "crop". A map as `relevance`, or a prior in `scoring`,
                takes the place of the dialogue's own prior; a text as `relevance` decides whether the dialogue counts.

        Raises the errors of `VLM.ask`; BudgetError or PromptError where the dialogue does not fit the model's context.
        """
        how = self._with(how)
        keywords = generation_keywords(self._vlm.model, how.pop("generation", None), how.pop("max_new_tokens", None))
        prepared, weight, back = self._prepare(question, how)
        check_context(self._vlm.model, prepared.text, prepared.tokens[0], keywords, rounds=len(self.turns))
        if self._attends:
            keywords |= {"output_attentions": True, "return_dict_in_generate": True}
        (answer,) = self._vlm.answers([prepared], keywords)
        self._planes = self._add(answer, back)
        self.turns = (*self.turns, Turn(question, answer.text, answer.tokens, prepared.length, weight))
        return answer

    def forget(self, rounds: int | None = None) -> None:
        """Take the oldest rounds out of the prompt; None: all, and the planes too. Raises OptionError for too many."""
        if rounds is None:
            self.turns, self._planes = (), {}
            return
        fix = "chat.forget() forgets everything"
        self.turns = self.turns[check_int("rounds", rounds, 0, len(self.turns), fix=fix) :]

    def _with(self, how: dict[str, Any]) -> dict[str, Any]:
        """A round's keywords over those of every round; its ways to choose tokens replace `kept`, or it them."""
        left_out: tuple[str, ...] = ()
        if how.get("kept") is not None:
            left_out = CHOOSING + (("mode",) if self._how.get("mode") == "weight" else ())
        elif how.get("mode") == "weight" or any(name in how for name in CHOOSING):
            left_out = ("kept",)
        return {name: value for name, value in self._how.items() if name not in left_out} | how

    def _prepare(self, question: str, how: dict[str, Any]) -> tuple[Prepared, float, bool]:
        """The question's tokens, the weight of the dialogue's prior, and whether it is about the same thing as that."""
        check_keywords(self._vlm.prepare, how, GENERATING)
        how = {name: value for name, value in how.items() if name not in GENERATING}
        if how.get("mode") == "crop" or how.get("prompt") is not None:
            raise OptionError(
                "mode='crop' in a chat" if how.get("mode") == "crop" else "prompt= in a chat",
                expected="the model's chat template with the same image in every round",
                fix="leave it out, or use vlm.ask",
            )
        processor, images = self._vlm.processor, self.encoded
        earlier = [(turn.question, turn.answer) for turn in self.turns]
        text = prompt_text(processor, check_question(question), len(images.spans), None, images.kind, earlier)
        how["prompt"], weight, back = text, 0.0, False
        where, scoring = how.get("relevance"), how.get("scoring", ScoringOptions())
        if where is not None and not isinstance(where, str):
            pass  # a map by hand
        elif "prior" in scoring:
            if self._weight is not None and "prior_weight" not in scoring:
                scoring = {**scoring, "prior_weight": self._weight}
        else:
            kind, planes = refers_back(question if where is None else where), self._followed()
            back = kind != "not"
            if planes is not None and (kind == "wholly" or not self._has_prior(scoring)):
                weight = PRIOR_WEIGHTS[kind] if kind != "partly" or self._weight is None else self._weight
                weight = scoring.get("prior_weight", weight)
                if weight:
                    scoring = {**scoring, "prior": planes if len(planes) > 1 else planes[0], "prior_weight": weight}
        how["scoring"] = scoring
        return self._vlm.prepare(images, question, **how), weight, back

    def _followed(self) -> tuple[Floats, ...] | None:
        """The history; None where it says nothing: a prior of zeros would be a map of zeros."""
        planes = self._planes.get(HISTORY)
        return planes if planes and any(plane.any() for plane in planes) else None

    def _has_prior(self, scoring: ScoringOptions) -> bool:
        presets = (preset_of(texture, scoring.get("preset")) for texture in self.encoded.textures)
        return any(preset.scoring.get("prior") is not None for preset in presets)

    def _add(self, answer: Answer, back: bool) -> Planes:
        """The planes after a round; a question that goes back is still about the same thing."""
        history, textures = self._planes.get(HISTORY), self.encoded.textures
        if history is None or not back or not any(plane.any() for plane in history):
            maps = [shared_map(r.on(t.grid)) for r, t in zip(answer.relevance, textures, strict=True)]
            old = [np.zeros_like(plane) for plane in maps] if history is None else history
            history = tuple(accumulate(*each, self._decay) for each in zip(old, maps, strict=True))
        planes = {**self._planes, HISTORY: history}
        if answer.attention is not None:
            for name, layer in zip(ATTENTION, self._layers, strict=True):
                planes[name] = attention_planes(self.encoded, answer, layer)
        return planes


def attention_planes(encoded: EncodedImage, answer: Answer, layer: int) -> tuple[Floats, ...]:
    """Where an answer looked: float32 [h, w] in [0, 1] on the cells of each texture, the highest of all 1.

    Raises OptionError for an answer without attention, or a layer that the model does not have.
    """
    if answer.attention is None:
        raise OptionError(
            "an answer without attention",
            expected='a model with attn_implementation="eager"',
            fix='vlm.chat asks for it; vlm.ask with generation={"output_attentions": True, '
            '"return_dict_in_generate": True}',
        )
    depth = len(answer.attention[0])
    check_int("layer", layer, -depth, depth - 1)
    grids: list[Relevance] = list(answer.relevance)
    found: list[Floats] = []
    for given, choice, layout, pictures in zip(
        answer.attention, answer.chosen, encoded.layouts, encoded.per_layout(grids), strict=True
    ):
        here = encoded.textures[len(found) : len(found) + len(pictures)]
        found += place_attention(given[layer], choice, layout, [texture.grid for texture in here])
    highest = max(float(plane.max()) for plane in found)
    return tuple(plane / highest if highest > 0 else plane for plane in found)


def _config(model: Any) -> Any:
    return model.config.get_text_config()


def _check_layers(model: Any, layers: tuple[int, int]) -> tuple[int, int]:
    depth = int(_config(model).num_hidden_layers)
    if not isinstance(layers, tuple | list) or len(layers) != 2:
        raise OptionError(f"layers={layers!r}", expected="two of the model's layers", fix=f"{LAYERS} are the last two")
    if layers == LAYERS and depth == 1:
        return -1, -1
    return tuple(check_int("layer", layer, -depth, depth - 1) for layer in layers)  # type: ignore[return-value]
