"""The values of this room: a model with its adapter, an image that it has encoded, a prepared question, an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, NoReturn, get_args

import numpy as np
from numpy.typing import NDArray

from foveate.allocation.crops import Regions
from foveate.allocation.worth import Alike, find_alike
from foveate.core.display import Drawable
from foveate.core.errors import SceneError
from foveate.core.readonly import OwnCopy
from foveate.encoders.protocol import Encoder
from foveate.language.query import quoted
from foveate.relevance.value import Relevance
from foveate.texture.texture import Texture
from foveate.vlm.families.family import Family, encoder_outputs
from foveate.vlm.families.features import Kinds, VisualFeatures, token_of
from foveate.vlm.families.token_layout import ImageSpan, TokenGrid, TokenLayout
from foveate.vlm.select.choice import Choice
from foveate.vlm.select.methods import MOST_COMPARED

Mode = Literal["drop", "sparse", "weight", "crop"]
MODES: tuple[Mode, ...] = get_args(Mode)
Indices = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Attached:
    """A stock vision-language model with its processor, its family's adapter, and the encoder of textures."""

    model: Any
    processor: Any
    family: Family
    encoder: str | Encoder

    def token(self, kind: str) -> int:
        """Id of the placeholder of visual tokens, of images or of videos."""
        pictures = hasattr(self.processor, "replace_frame_token_id")  # GLM's: a video is written as images
        found = token_of(self.model, "image" if pictures else kind)
        if found is None:
            raise SceneError(
                f"{kind}s for {type(self.model).__name__}", expected="a model that has a token for them", fix=""
            )
        return found


class OfModel(OwnCopy):
    """A value that holds its model: it is not pickled."""

    def __reduce__(self) -> NoReturn:
        raise SceneError(
            f"a {type(self).__name__} to be pickled: it holds its model and the model's features",
            expected="a value that stays in its process",
            fix="see the image again where it is needed; to keep what questions are scored on, and not the features: "
            "encoded.textures[0].save(path)",
        )


@dataclass(frozen=True, eq=False)
class EncodedImage(OfModel):
    """One or several images, or a video, as a model has encoded them, for any number of questions. From `VLM.see`.

    Attributes:
        images: uint8 [H, W, 3] each; of a video, the pictures that the model gets.
        textures: of each of them: what questions are scored on.
        layouts: where the visual tokens of each image lie; a video has one layout for all pictures.
        spans, mark: what stands for each image, or the video, in a prompt; the part of its text that it replaces.
        features: of each image, or of the video; None if encoded for mode "sparse" only.
        inputs: what the processor made of the images; pixels only where a mode needs them again.
        kinds: further inputs of every token that the model takes (`token_type_ids`): the kind of an id, if it is not 0.
    """

    model: Any
    images: tuple[NDArray[np.uint8], ...]
    textures: tuple[Texture, ...]
    layouts: tuple[TokenLayout, ...]
    spans: tuple[ImageSpan, ...]
    features: VisualFeatures | None
    inputs: Mapping[str, Any]
    kind: Literal["image", "video"] = "image"
    mark: str = ""
    kinds: Kinds = field(default_factory=dict)

    def __repr__(self) -> str:
        sizes = " and ".join(sorted({f"{image.shape[0]} x {image.shape[1]}" for image in self.images}))
        shown = f"{len(self.images)} {'frames' if self.kind == 'video' else 'images'} of " * (len(self.images) > 1)
        state = "for mode 'sparse'" if self.features is None else "encoded"
        tokens = " + ".join(map(str, self.tokens))
        return f"EncodedImage({shown}{sizes} px, {tokens} visual tokens, {state}, {type(self.model).__name__})"

    @property
    def tokens(self) -> tuple[int, ...]:
        """Visual tokens of each image, or of the video, that a budget counts: the largest budgets."""
        return tuple(layout.selectable for layout in self.layouts)

    @property
    def grids(self) -> tuple[TokenGrid, ...]:
        """The grids of visual tokens, of all images in order; each may be given to `Relevance.on`."""
        return tuple(grid for layout in self.layouts for grid in layout.grids)

    @property
    def grid(self) -> TokenGrid:
        """The only grid of visual tokens, for `relevance.on(encoded.grid)`. Raises SceneError where there are more."""
        if len(self.grids) > 1:
            raise SceneError(
                f"grid of {self!r}, whose visual tokens lie on {len(self.grids)} grids",
                expected="an image with a single grid",
                fix="use encoded.grids: [relevance.on(grid) for grid in encoded.grids]",
            )
        return self.grids[0]

    def rows(self, number: int) -> Floats:
        """The model's features of the selectable tokens of an image, float32 [n, D]. Raises SceneError: mode sparse."""
        if self.features is None:
            raise SceneError(
                "a method that compares the model's features, in mode 'sparse'",
                expected="features, which this mode does not make",
                fix="use method='relevance', 'random', 'uniform' or 'saliency'",
            )
        rows = self.features.rows[number].detach().float().cpu().numpy()
        return np.asarray(rows[self.layouts[number].selectable_rows()])

    def alike(self, number: int) -> Alike | None:
        """The selectable tokens of an image, compared by the model's features: found once."""
        if number not in self._alike:
            many = self.tokens[number] > MOST_COMPARED
            self._alike[number] = None if many else find_alike(self.rows(number))
        return self._alike[number]

    @cached_property
    def repeated(self) -> dict[int, list[list[NDArray[np.bool_]]]]:
        """What `VLM.repeated` has found of this image, by levels."""
        return {}

    @cached_property
    def _alike(self) -> dict[int, Alike | None]:
        return {}

    def per_layout(self, relevance: Sequence[Relevance]) -> list[Sequence[Relevance]]:
        """Relevance of all pictures -> of the pictures of each layout."""
        ends = np.cumsum([layout.frames for layout in self.layouts])
        return [relevance[b - one.frames : b] for one, b in zip(self.layouts, ends.tolist(), strict=True)]


@dataclass(frozen=True, eq=False)
class Selection(OwnCopy, Drawable):
    """What a question keeps.

    Attributes:
        chosen: the kept visual tokens of each image; `chosen[0].kept[0]` is an Allocation, with indices, scores, mask.
        relevance: of the question, over each image.
        tokens: (visual tokens the model gets, visual tokens there are).
        seconds: of the parts: "score", "choose", "slice", "encode" (mode "sparse"), "see" (crops), "generate".
        textures, layouts: of the EncodedImage, for drawing. An answer is pickled without them.
    """

    _drawn_by: ClassVar[str] = "answer_page"

    question: str
    mode: Mode
    chosen: tuple[Choice, ...]
    relevance: tuple[Relevance, ...]
    tokens: tuple[int, int]
    seconds: Mapping[str, float]
    textures: tuple[Texture, ...] = field(default=(), kw_only=True)
    layouts: tuple[TokenLayout, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, eq=False)
class Prepared(OfModel, Selection):
    """A question ready for the model: `model(**prepared.inputs())`, or `model.generate(**prepared.inputs())`.

    Attributes:
        text: input_ids, attention_mask [1, K] and position_ids [1, K] or [4, 1, K] of the kept tokens.
        features, family: of the kept visual tokens, and who wraps them for the model.
        keep: which tokens of the full prompt are there, bool [L].
    """

    text: Mapping[str, Any]
    features: VisualFeatures
    family: Family
    keep: NDArray[np.bool_]
    model: Any
    kind: str = "image"

    def __repr__(self) -> str:
        return f"Prepared({quoted(self.question)}, {_spent(self.tokens, self.mode)}, {type(self.model).__name__})"

    @property
    def length(self) -> int:
        """Tokens of the prompt: `ids[0, prepared.length :]` of what `generate` returns is the answer."""
        return int(self.text["input_ids"].shape[1])

    def inputs(self) -> dict[str, Any]:
        """Keywords for one call of the model: a new object every time, as `generate` may write into it."""
        return {**self.text, "mm_encoder_outputs": encoder_outputs([self.features], self.family, self.kind)}


@dataclass(frozen=True, eq=False)
class Answer(Selection):
    """A model's answer.

    Attributes:
        text: without special tokens.
        ids: generated ids, int64 [n].
        regions: mode "crop": what was cut out; the first of `chosen` is the whole picture, then come the regions.
        attention: float32 [layers, n] of each image, n as in `chosen[i].rows`: the mean of heads and of the answer's
            tokens. None where the model did not return it (a chat with attn_implementation="eager" does).
    """

    text: str
    ids: Indices
    regions: Regions | None = None
    attention: tuple[Floats, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "textures": (), "layouts": ()}

    def __repr__(self) -> str:
        seconds = sum(self.seconds.values())
        spent = _spent(self.tokens, self.mode)
        return f"Answer({quoted(self.text)} to {quoted(self.question)}, {spent}, {seconds:.2f} s)"


def _spent(tokens: tuple[int, int], mode: Mode) -> str:
    return f"{tokens[0]} of {tokens[1]} visual tokens, mode {mode!r}"
