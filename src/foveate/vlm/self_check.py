"""Is foveate exact with this model? A small image goes through the stock model, and through foveate.

* all tokens: the stock model's logits, bit for bit.
* kept tokens: the logits of the stock model over the full prompt, where nothing sees the others. Recurrent layers have
  no mask: their reference is the stock model over the same short embeddings and positions.
* places: each half of the image is changed, with the attention of the encoder switched off. Every token must change
  more with the half that it lies in; a resampler, or tokens that lie elsewhere than foveate believes, are found here.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.core.errors import ModelError
from foveate.vlm.encoded import EncodedImage, Prepared
from foveate.vlm.families.features import mark_of
from foveate.vlm.families.written import adds_special_tokens
from foveate.vlm.inputs.generation import with_positions
from foveate.vlm.inputs.images import on_device
from foveate.vlm.inputs.prompt import prompt_text
from foveate.vlm.model import VLM

SIZE = (168, 224)  # of the small image, in pixels; by hand: several tokens, tiles where there are any
QUESTION = "what is this?"
# Of the largest logit: rounding of a few layers in that format, by hand; a wrong token or position is far above it.
TOLERANCES = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 8e-2}
FORBIDDEN = -1e30  # logits below: tokens that a model never says (Chameleon: those of images)
STILL = 1e-3  # of the largest feature: a token that changes less stands still
RIGHT = 0.98  # of the tokens that must change more with one half of the image than with the other


@dataclass(frozen=True)
class Exactness:
    """What `check` found. Differences are the largest between logits, as a share of the largest logit.

    Attributes:
        all_tokens: difference with all tokens; 0.0 is bit for bit.
        kept: difference with some tokens, against the full prompt with the others masked.
        dropped: for comparison, what dropping these tokens changes.
        places: share of tokens that change more with their own half of the image; None where no attention of the
            encoder was found to be switched off, or no token changes.
        tolerance: of both differences, in the model's number format.
        tokens: (kept, all) visual tokens of the small image.
        sparse: difference of features in mode "sparse", with all tokens, as a share of the largest; None where this
            mode is refused.
        recurrent: whether layers are recurrent; then dropped tokens are absent, not masked.
        window: tokens that the narrowest layer of the language model looks back on, None if all. In a longer prompt
            dropped tokens take up no place in it, so that such layers look further back than in the full prompt.
    """

    model: str
    dtype: str
    all_tokens: float
    kept: float
    dropped: float
    places: float | None
    tolerance: float
    tokens: tuple[int, int]
    recurrent: bool = False
    sparse: float | None = None
    window: int | None = None

    @property
    def ok(self) -> bool:
        """Whether foveate may be used with this model."""
        return (
            self.all_tokens <= self.tolerance
            and self.kept <= self.tolerance
            and (self.kept <= TOLERANCES["float32"] or self.kept <= self.dropped / 2)
            and (self.sparse is None or self.sparse <= self.tolerance)
            and (self.places is None or self.places >= RIGHT)
        )

    def __str__(self) -> str:
        def said(difference: float) -> str:
            return "exact" if difference == 0 else f"{difference:.1e} of the largest"

        k, n = self.tokens
        reference = "the stock model over the same short prompt" if self.recurrent else "the full prompt, others masked"
        places = "not measured: no attention of its encoder was found, or no token changes"
        if self.places is not None:
            places = f"{self.places:.1%} of the tokens change with their own half of the image"
        lines = [
            f"{self.model}, {self.dtype}: {'ok' if self.ok else 'NOT exact'} (tolerance {self.tolerance:.0e})",
            f"  all {n} tokens, against the stock model: {said(self.all_tokens)}",
            f"  {k} of {n} tokens, against {reference}: {said(self.kept)} (dropping them changes {self.dropped:.1e})",
            f"  places: {places}",
            f'  mode "sparse", all tokens: {"refused" if self.sparse is None else said(self.sparse)}',
        ]
        if self.window is not None:
            lines.append(f"  in prompts of more than {self.window} tokens, layers with a window look further back")
        return "\n".join(lines)


def check_attached(vlm: VLM) -> Exactness:
    """As `foveate.vlm.check` says, of a model that is attached already."""
    picture = _picture()
    encoded = vlm.see(picture, read=False)
    total = sum(encoded.tokens)
    prompt = _prompt(vlm, 1)
    whole = vlm.prepare(encoded, QUESTION, kept=_masks(encoded, np.ones(total, bool)), prompt=prompt)
    kept = np.zeros(total, bool)
    kept[np.random.default_rng(0).permutation(total)[: max(1, total // 2)]] = True
    some = vlm.prepare(encoded, QUESTION, kept=_masks(encoded, kept), prompt=prompt)
    stock = stock_inputs(vlm, [picture])
    theirs, ours, short = (first_logits(vlm, given) for given in (stock, whole.inputs(), some.inputs()))
    recurrent = is_recurrent(vlm.model)
    reference = _short_reference(vlm, stock, some) if recurrent else _masked_reference(vlm, stock, whole, some)
    largest = float(theirs.abs().max())
    dtype = str(vlm.model.dtype).removeprefix("torch.")
    return Exactness(
        model=type(vlm.model).__name__,
        dtype=dtype,
        all_tokens=_difference(theirs, ours) / largest,
        kept=_difference(reference, short) / largest,
        dropped=_difference(theirs, short) / largest,
        places=measure_places(vlm, picture),
        sparse=_sparse_difference(vlm, encoded, picture),
        tolerance=TOLERANCES.get(dtype, TOLERANCES["bfloat16"]),
        tokens=(int(kept.sum()), total),
        recurrent=recurrent,
        window=window_of(vlm.model),
    )


def _sparse_difference(vlm: VLM, encoded: EncodedImage, picture: NDArray[np.uint8]) -> float | None:
    """Features of all tokens from kept patches alone, against the encoder's; None where the family refuses."""
    import torch

    assert encoded.features is not None
    unseen = vlm.see(picture, mode="sparse", read=False)
    try:
        with torch.no_grad():
            found = vlm.family.encode_kept(
                vlm.model, unseen.inputs, [np.arange(one.count) for one in unseen.layouts], unseen.layouts
            )
    except ModelError:
        return None
    pairs = zip(found.rows, encoded.features.rows, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def stock_inputs(vlm: VLM, pictures: Sequence[NDArray[np.uint8]]) -> dict[str, Any]:
    """What a user without foveate would pass to the model, for QUESTION about these images."""
    text = prompt_text(vlm.processor, QUESTION, len(pictures), _prompt(vlm, len(pictures)))
    made = vlm.processor(
        images=[Image.fromarray(picture) for picture in pictures],
        text=text,
        return_tensors="pt",
        add_special_tokens=adds_special_tokens(vlm.processor, text),
    )
    return {name: on_device(vlm.model, name, value) for name, value in made.items()}


def _prompt(vlm: VLM, images: int) -> str | None:
    """A prompt by hand for a processor without a chat template."""
    if getattr(vlm.processor, "chat_template", None) or getattr(vlm.processor.tokenizer, "chat_template", None):
        return None
    return f"{mark_of(vlm.processor)}\n" * images + QUESTION


def _picture() -> NDArray[np.uint8]:
    """Smooth noise, the same every time: uint8 [H, W, 3]."""
    noise = np.random.default_rng(0).integers(0, 255, (6, 8, 3), np.uint8)
    return np.asarray(Image.fromarray(noise).resize(SIZE[::-1], Image.Resampling.BICUBIC))


def first_logits(vlm: VLM, inputs: dict[str, Any]) -> Any:
    """Logits of the first new token, by `generate`, which lays out positions and masks as users get them."""
    import torch

    with torch.no_grad():
        out = with_positions(vlm.model, inputs).generate(
            **inputs, max_new_tokens=1, do_sample=False, output_logits=True, return_dict_in_generate=True,
            pad_token_id=0, use_cache=True,
        )  # fmt: skip
    logits = out.logits[0][0].float()
    return torch.where(logits > FORBIDDEN, logits, 0)


def _difference(a: Any, b: Any) -> float:
    return float((a - b).abs().max())


def _masks(encoded: EncodedImage, kept: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    ends = np.cumsum([grid.count for grid in encoded.grids])[:-1]
    return [part.reshape(grid.shape) for part, grid in zip(np.split(kept, ends), encoded.grids, strict=True)]


def _masked_reference(vlm: VLM, stock: dict[str, Any], whole: Prepared, some: Prepared) -> Any:
    """The full prompt in the stock model, whose mask hides what foveate drops."""
    import torch

    mask = torch.from_numpy(some.keep.astype(np.int64))[None].to(vlm.model.device)
    return first_logits(vlm, {**stock, "attention_mask": mask, "position_ids": whole.text["position_ids"].clone()})


def _short_reference(vlm: VLM, stock: dict[str, Any], some: Prepared) -> Any:
    """The stock model over the kept ids, with its own embeddings of the full prompt, cut to the kept tokens."""
    import torch

    kept = torch.from_numpy(np.flatnonzero(some.keep)).to(vlm.model.device)
    found, here = list[Any](), threading.get_ident()

    def read(module: Any, args: Any, keywords: Any) -> Any:
        if threading.get_ident() != here:
            return None
        if found:
            return args, {**keywords, "inputs_embeds": found[0][:, kept]}
        found.append(keywords["inputs_embeds"])
        return None

    hook = vlm.model.get_decoder().register_forward_pre_hook(read, with_kwargs=True)
    try:
        first_logits(vlm, stock)
        with torch.no_grad():
            return vlm.model(**some.text, use_cache=True).logits[0, -1].float()
    finally:
        hook.remove()


def is_recurrent(model: Any) -> bool:
    """Whether layers of the language model are recurrent: a mask on keys does not hide a token from them."""
    config = model.config.get_text_config()
    kinds = [*(getattr(config, "layer_types", None) or ()), *(getattr(config, "layers_block_type", None) or ())]
    return any(re.search("linear|mamba|recurrent|conv|hybrid", str(kind)) for kind in kinds)


WINDOWS = {"sliding": "sliding_window", "chunked": "attention_chunk_size", "indexed": "index_topk"}


def window_of(model: Any) -> int | None:
    """Tokens that the narrowest layer of the language model looks back on; None: all."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds is None:  # older ones have a window in every layer, or none
        kinds = ["sliding"] if getattr(config, "use_sliding_window", True) else []
    # Unlimited-OCR's windows begin behind the prompt
    seen = [str(kind) for kind in kinds if "reference" not in str(kind)]
    found = [name for word, name in WINDOWS.items() if any(word in kind for kind in seen)]
    return min((int(getattr(config, name)) for name in found if getattr(config, name, None)), default=None)


# --- places -----------------------------------------------------------------------------------------------------------


def measure_places(vlm: VLM, picture: NDArray[np.uint8]) -> float | None:
    """Share of tokens that change more with their own half of the image than with the other; None as in `places`.

    Not whether they change at all: the convolutions of a tower reach over the border.
    """
    with local_encoder(vlm.model) as silenced:
        before, layout = _rows(vlm, picture)
        right: list[bool] = []
        for axis in (0, 1):
            middle = picture.shape[axis] // 2
            moved = []
            for half in (slice(0, middle), slice(middle, None)):
                changed = picture.copy()
                at = (slice(None),) * axis + (half,)
                changed[at] = 255 - changed[at]
                moved.append(np.abs(_rows(vlm, changed)[0] - before).max(1))
            first, still = moved[0] > moved[1], np.maximum(*moved) <= STILL * np.abs(before).max()
            for grid in layout.grids:
                edges = np.linspace(grid.box[axis], grid.box[axis + 2], grid.shape[axis] + 1)
                wide = edges[1] - edges[0] if grid.shape[axis] > 2 else 0  # lines at the border see both halves
                inside = (
                    (edges[:-1] >= 0) & (edges[1:] <= middle - wide),
                    (edges[:-1] >= middle + wide) & (edges[1:] <= 2 * middle),
                )
                ours, quiet = (np.moveaxis(each[grid.rows()].reshape(grid.shape), axis, 0) for each in (first, still))
                for here, expected in zip(inside, (True, False), strict=True):
                    right += (ours[here] == expected)[~quiet[here]].tolist()
    found = float(np.mean(right)) if right else None
    return found if silenced or (found or 0) >= RIGHT else None


def _rows(vlm: VLM, picture: NDArray[np.uint8]) -> tuple[NDArray[np.float32], Any]:
    import torch

    inputs = stock_inputs(vlm, [picture])
    ids = inputs["input_ids"][0].cpu().numpy()
    visual = {n: v for n, v in inputs.items() if n not in ("input_ids", "attention_mask")}
    span = ids[np.flatnonzero(ids == vlm.token("image"))[0] : np.flatnonzero(ids == vlm.token("image"))[-1] + 1]
    layouts = vlm.family.layouts(vlm.model, vlm.processor, visual, [picture.shape[:2]], [span])
    with torch.no_grad():
        features = vlm.family.encode(vlm.model, visual, [layouts[0].count])
    return features.rows[0].float().cpu().numpy(), layouts[0]


@contextmanager
def local_encoder(model: Any) -> Iterator[list[Any]]:
    """For a while, every attention of the encoder of images adds nothing. Yields those that were called."""
    import torch

    called, here = list[Any](), threading.get_ident()

    def nothing(module: Any, args: Any, out: Any) -> Any:
        if threading.get_ident() != here:  # other threads may use the encoder at the same time
            return out
        called.append(module)
        if isinstance(out, tuple):
            return tuple(torch.zeros_like(each) if hasattr(each, "shape") else each for each in out)
        return torch.zeros_like(out)

    text = {id(module) for module in model.get_decoder().modules()}
    found = {
        path: module
        for path, module in model.named_modules()
        if id(module) not in text and re.fullmatch("self_attn|attn|attention|self_attention", path.rsplit(".", 1)[-1])
    }
    hooks = [
        module.register_forward_hook(nothing)
        for path, module in found.items()
        if not any(other.startswith(path + ".") for other in found)  # a BERT's outer one also passes its input on
    ]
    try:
        yield called
    finally:
        for hook in hooks:
            hook.remove()
