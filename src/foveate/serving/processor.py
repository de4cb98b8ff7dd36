"""A mixin placed first in the bases of vLLM's processors (API's process): chooses tokens, shortens the prompt to them.

* The choice is made once a request, and its rows are a part of every item's hash. So vLLM's caches of processed items,
  encoded images and prompts hold apart two questions that keep other tokens, and share what keeps the same.
* Keywords of ours never reach the stock processor, which would build a new one for each question.
* What the engine needs travels as fields of each image, in the CPU's memory, as positions are computed there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from foveate.core.checks import check_number
from foveate.core.errors import (
    ChannelError,
    FoveateError,
    ImageArrayError,
    ImageError,
    ImageTooLargeError,
    ModelError,
    OptionError,
    SceneError,
)
from foveate.core.image import MAX_PIXELS, load_image
from foveate.core.threads import map_in_order
from foveate.language.query import MAX_CHARACTERS
from foveate.relevance.presets import PresetName
from foveate.serving import metrics
from foveate.serving.features import FEATURES, FEATURES_MB
from foveate.serving.kept import cut_patches, find_encoder, is_unfit
from foveate.serving.layouts import (
    ALONE,
    COUNT,
    DIGEST,
    LENGTHS,
    PARTS,
    PLACES,
    ROWS,
    SPAN,
    ChosenImage,
    ImageTokens,
    check_keywords,
    choose_places,
    find_tokens,
    find_video_tokens,
    frames_of,
    is_pixels,
    parts_of,
    visual_ids,
)
from foveate.serving.model import count_positions
from foveate.serving.repeated import find_unchanged, find_unrepeated, without_repeated
from foveate.serving.request import (
    ENCODE,
    OF_HUGGING_FACE,
    Request,
    TurnMarks,
    check_others,
    find_marks,
    find_question,
    parse_request,
    read_megabytes,
    split_keywords,
    usual_request,
)
from foveate.serving.selection import digest_image, find_texture, make_texture, needs_textures, select_rows
from foveate.serving.workers import TextureWorkers, count_workers
from foveate.texture.cache import TextureCache
from foveate.texture.texture import Texture

PIXELS = "pixel_values"  # of the stock processor: the patches of all images, where a family's are cut
CHOSEN = "foveate_chosen"  # the choice, among the keywords of the calls below `apply`
PREPARED = "foveate_prepared"  # textures that were made before, among the keywords of a request
NAMED = "-foveate-"  # between vLLM's name for an image and ours for what is kept of it, in vLLM's caches
THIN = 32  # by hand: pixels of a side, below which where an image's tokens lie may not be measurable
SIZES = 1024  # by hand: sizes of images of which it is known where their tokens lie
TEXTURES = 256 * 2**20  # by hand: bytes of textures that are kept; FOVEATE_TEXTURES_MB says otherwise
UNREPEATED = 16 * 2**20  # by hand: bytes of the rows of budget "lossless": of 2,000 images of 1,024 tokens

logger = logging.getLogger("vllm.foveate")


class ChoosingProcessor:
    """Mixin placed first in the bases of a stock `BaseMultiModalProcessor`; see the module."""

    serves_videos = False

    def __init__(self, *args: Any, **keywords: Any) -> None:
        from vllm.logger import init_logger

        super().__init__(*args, **keywords)
        configured = self.info.ctx.get_mm_config()  # type: ignore[attr-defined]
        ours, theirs = split_keywords(configured.mm_processor_kwargs or {})
        if ours:  # the stock processor must not see them
            configured.mm_processor_kwargs = theirs or None
            configured.foveate_keywords = ours
        self.usual: Request = usual_request(getattr(configured, "foveate_keywords", {}))
        self._kept_encoder = find_encoder(self.info.ctx.model_config)  # type: ignore[attr-defined]
        self._check_model(self.usual)
        self.textures: TextureCache[Texture] = TextureCache(read_megabytes("FOVEATE_TEXTURES_MB", TEXTURES))
        self._workers = TextureWorkers(count_workers())
        self.unrepeated: TextureCache[NDArray[np.int64]] = TextureCache(UNREPEATED, attrgetter("nbytes"))
        self._marks: TurnMarks | None = None
        self._tokens: dict[tuple[tuple[int, int], str], ImageTokens] = {}
        init_logger("vllm.foveate").info_once(  # vLLM makes several processors in a process
            "foveate: visual tokens of %s are chosen by the question; a request without a budget gets %s; up to %d MB "
            "of textures are kept in this process, and %d MB of features on the device",
            self.info.model_id,  # type: ignore[attr-defined]
            "all, the stock answer" if self.usual.budget is None else self.usual.budget,
            self.textures.max_bytes // 2**20,
            read_megabytes(FEATURES_MB, FEATURES) // 2**20,
        )

    def may_prepare(self, keywords: Mapping[str, object]) -> bool:
        """Whether a request of these `mm_processor_kwargs` may have textures to make; told at once."""
        with suppress(Exception):  # `apply` says what is wrong
            request = parse_request(split_keywords(keywords)[0], self.usual)
            return bool(self._workers.count) and request.budget not in (None, "lossless")
        return False

    def look(self, prompt: Mapping[str, Any]) -> PreparedRequest | None:
        """What a request shows, and which of its textures are there, in any thread. None where `apply` refuses it."""
        with suppress(Exception):
            from vllm.multimodal.parse import parse_mm_uuids

            ours, theirs = split_keywords(prompt.get("mm_processor_kwargs") or {})
            request = self._check_keywords(ours, theirs, parse_mm_uuids(prompt.get("multi_modal_uuids")))
            there = self.info.parse_mm_data(prompt["multi_modal_data"])  # type: ignore[attr-defined]
            modality = self._chosen_of(there, request, asked="foveate_budget" in ours)
            pruned = self.info.ctx.get_mm_config().is_multimodal_pruning_enabled()  # type: ignore[attr-defined]
            if modality is None or pruned:
                return None
            self._check_items(modality, ours, theirs, there)
            items = there[modality]
            seen = [each for n in range(len(items)) if (each := self._see(items, n)) is not None]
            if len(seen) < len(items):
                return None
            pictures = {digest_image(picture): picture for each in seen for picture in each.pictures}
            plan = PreparedRequest(request, theirs, items, seen, pictures, len(prompt["prompt_token_ids"]))
            for digest in pictures:
                if (kept := self.textures.peek((digest, request.preset))) is not None:
                    plan.textures[digest] = kept, None
            return plan
        return None

    def knows(self, plan: PreparedRequest) -> bool:
        """Whether it is known where its tokens lie. Else vLLM's own thread may find out: it alone asks tokenizers."""
        told = tell(plan.theirs)
        return plan.items.modality == "image" and all((each.size, told) in self._tokens for each in plan.seen)

    def needs(self, plan: PreparedRequest) -> bool:
        """Whether there is anything to choose for a request. Not where `apply` refuses it."""
        with suppress(Exception):
            tokens = self._lay_out(plan.items, plan.seen, plan.theirs)
            self._check_positions(plan.positions + sum(each.positions for each in tokens))
            return needs_textures(plan.request.budget, [each.layout for each in tokens])
        return False

    def prepare(self, plan: PreparedRequest) -> None:
        """Make the textures that are not there, in any thread, several at a time; each has two tries."""
        preset = plan.request.preset

        def make(missing: tuple[bytes, NDArray[np.uint8]]) -> None:
            digest, picture = missing
            for _ in range(2):  # processes may have been lost
                try:
                    found = find_texture(picture, digest, preset, self.textures, self._workers.make)
                except ImageError as cause:
                    plan.textures[digest] = cause
                except FoveateError:  # of what is asked for: `apply` says it
                    return
                else:
                    plan.textures[digest] = _timed(found)
                    return

        missing = plan.missing()
        for _ in map_in_order(make, missing.items(), min(len(missing), self._workers.count)):
            pass

    def close_workers(self) -> None:
        """End the processes that make textures."""
        self._workers.close()

    def get_dummy_inputs(self, *args: Any, **keywords: Any) -> Any:
        """As stock, and without a budget: memory is measured for whole images."""
        made = super().get_dummy_inputs(*args, **keywords)  # type: ignore[misc]
        return replace(made, hf_processor_mm_kwargs={**made.hf_processor_mm_kwargs, "foveate_budget": None})

    def apply(self, inputs: Any, timing_ctx: Any) -> Any:
        """Choose, then as stock."""
        ours, theirs = split_keywords(inputs.hf_processor_mm_kwargs)
        prepared = ours.get(PREPARED)
        if isinstance(prepared, Textures):  # else a client sent it, and is told
            del ours[PREPARED]
        else:
            prepared = Textures()
        request = self._check_keywords(ours, theirs, inputs.mm_uuid_items or {})
        inputs = replace(inputs, hf_processor_mm_kwargs=theirs)
        asked = "foveate_budget" in ours
        modality = self._chosen_of(inputs.mm_data_items, request, asked=asked)
        if modality is not None:
            self._check_items(modality, ours, theirs, inputs.mm_data_items)
            with timing_ctx.record("foveate"):
                inputs = self._choose(inputs, modality, request, prepared, asked=asked)
        elif any(len(items) for items in inputs.mm_data_items.values()):
            metrics.REQUESTS.labels("stock").inc()
        out = super().apply(inputs, timing_ctx)  # type: ignore[misc]
        check_answer(out, inputs.hf_processor_mm_kwargs.get(CHOSEN))
        return out

    def _check_keywords(
        self, ours: Mapping[str, object], theirs: Mapping[str, object], names: Mapping[str, Sequence[str | None]]
    ) -> Request:
        request = parse_request(ours, self.usual)
        self._check_model(request)
        check_others(theirs)
        check_names(names)
        return request

    def _chosen_of(self, there: Mapping[str, Any], request: Request, *, asked: bool) -> str | None:
        """Of which modality of a request tokens are chosen; None for the stock answer. Raises ModelError.

        there: items of the request by modality. asked: whether it names a budget itself; a default is for images.
        """
        found = [name for name, items in there.items() if len(items)]
        if request.budget is None or not found:
            return None
        if found == ["image"] or (found == ["video"] and asked and self.serves_videos):
            return found[0]
        if asked:
            other = next(name for name in found if name != "image")
            raise ModelError(
                f"foveate_budget={request.budget!r} for a request with {other}",
                expected="images alone, or videos alone" if self.serves_videos else "images alone",
                fix="leave foveate_budget out, or send frames as images, which share a budget",
            )
        return None

    def _check_items(
        self, modality: str, ours: Mapping[str, object], theirs: Mapping[str, object], there: Mapping[str, Any]
    ) -> None:
        """Raises for what the encoder was not made for, and for a video that is asked for as images alone can be."""
        info: Any = self.info  # type: ignore[attr-defined]
        check_keywords(info.get_hf_config(), info.ctx.get_merged_mm_kwargs(theirs))
        if modality != "video":
            return
        if ours.get("foveate_encode") == "kept":
            raise OptionError(
                'foveate_encode="kept" for a video',
                expected='"all": what the encoder sees of a frame depends on the frame beside it',
                fix="leave it out",
            )
        metadata = [item[1] for item in there["video"] if isinstance(item, tuple)]
        if (fps := theirs.get("fps")) is not None:
            check_number("mm_processor_kwargs with fps", fps, 0, None, fix="leave it out")
        if any(each.get("do_sample_frames") for each in (theirs, *metadata)):
            raise OptionError(
                "foveate_budget for a video of which the model's own processor picks frames (do_sample_frames)",
                expected="the frames that are shown, as vLLM's loader picks them",
                fix='--media-io-kwargs \'{"video": {"num_frames": 32}}\', without do_sample_frames',
            )

    def _get_mm_hashes(self, inputs: Any) -> Any:
        chosen, inputs = _take_chosen(inputs)
        hashes = super()._get_mm_hashes(inputs)  # type: ignore[misc]
        if chosen is None:
            return hashes
        modality = chosen[0].modality
        named = [
            stock + NAMED + blake2b(each.digest.tobytes() + each.rows.tobytes(), digest_size=16).hexdigest()
            for stock, each in zip(hashes[modality], chosen, strict=True)
        ]
        return {**hashes, modality: named}

    def _get_cache_missing_processor_kwargs(self, inputs: Any, mm_is_cached: Any) -> Mapping[str, object]:
        chosen, inputs = _take_chosen(inputs)
        keywords = super()._get_cache_missing_processor_kwargs(inputs, mm_is_cached)  # type: ignore[misc]
        if chosen is None:
            return keywords
        known = mm_is_cached[chosen[0].modality]
        missing = [each for each, cached in zip(chosen, known, strict=True) if not cached]
        return {**keywords, CHOSEN: tuple(missing)}

    def _apply_hf_processor_main(self, mm_items: Any, hf_kwargs: Mapping[str, Any]) -> Any:
        chosen, theirs = _split_chosen(hf_kwargs)
        out = super()._apply_hf_processor_main(mm_items=mm_items, hf_kwargs=theirs)  # type: ignore[misc]
        if chosen:
            out[ROWS] = torch.from_numpy(np.concatenate([each.rows for each in chosen]))
            out[COUNT] = torch.tensor([len(each.rows) for each in chosen])
            out[PLACES] = torch.from_numpy(np.concatenate([each.places for each in chosen]))
            out[LENGTHS] = torch.tensor([len(each.places) for each in chosen])
            out[SPAN] = torch.tensor([len(each.visual) for each in chosen])
            out[DIGEST] = torch.from_numpy(np.stack([each.digest for each in chosen]))
            out.update(parts_of(super()._get_mm_fields_config(out, theirs), out))  # type: ignore[misc]
            if chosen[0].alone:
                out[ALONE] = torch.ones(len(chosen), dtype=torch.bool)
                if self._cuts:
                    rows = torch.split(out[ROWS], out[COUNT].tolist())
                    out[PIXELS] = cut_patches(out[PIXELS], [int(each.visual.sum()) for each in chosen], rows)
        return out

    def _get_mm_fields_config(self, hf_inputs: Any, hf_processor_mm_kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        from vllm.multimodal.inputs import MultiModalFieldConfig

        chosen, theirs = _split_chosen(hf_processor_mm_kwargs)
        fields = super()._get_mm_fields_config(hf_inputs, theirs)  # type: ignore[misc]
        if not chosen or ROWS not in hf_inputs:
            return fields
        modality = chosen[0].modality
        fields = {  # the engine brings pixels to its device by itself, of the images that it encodes and some at a time
            name: replace(config, field=replace(config.field, keep_on_cpu=True)) if is_pixels(name) else config
            for name, config in fields.items()
        }
        named = (name for name in hf_inputs if name in (COUNT, SPAN, DIGEST, ALONE) or name.startswith(PARTS))
        ours = {name: MultiModalFieldConfig.batched(modality, keep_on_cpu=True) for name in named}
        sizes = {ROWS: hf_inputs[COUNT], PLACES: hf_inputs[LENGTHS]}
        if ALONE in hf_inputs and self._cuts:
            sizes[PIXELS] = hf_inputs[COUNT] * (len(hf_inputs[PIXELS]) // hf_inputs[COUNT].sum())
        for name, each in sizes.items():
            ours[name] = MultiModalFieldConfig.flat_from_sizes(modality, each, keep_on_cpu=True)
        return {**fields, **ours}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, Any], out_mm_kwargs: Any
    ) -> Sequence[Any]:
        from vllm.multimodal.processing import PromptInsertion, PromptUpdateDetails

        chosen, theirs = _split_chosen(hf_processor_mm_kwargs)
        updates = super()._get_prompt_updates(  # type: ignore[misc]
            mm_items=mm_items, hf_processor_mm_kwargs=theirs, out_mm_kwargs=out_mm_kwargs
        )
        if not chosen:
            return updates

        def shorten(update: Any) -> Any:
            def kept(number: int) -> Any:
                content = update.content(number) if callable(update.content) else update.content
                full = content if isinstance(content, PromptUpdateDetails) else PromptUpdateDetails.from_seq(content)
                one, visual = chosen[number], visual_ids(full)
                if not np.array_equal(visual, one.visual):
                    raise ModelError(
                        f"{visual.sum()} visual tokens among the {len(visual)} ids of {update.modality} {number}",
                        expected=f"{one.visual.sum()} among {len(one.visual)}, at the same places",
                        fix="this release of vLLM lays images out otherwise than foveate expects: docs/serving.md",
                    )
                return replace(full, full=[full.full[place] for place in one.places])

            return replace(update, **{"insertion" if isinstance(update, PromptInsertion) else "replacement": kept})

        return [shorten(update) if update.modality == chosen[0].modality else update for update in updates]

    def _see(self, items: Any, number: int) -> SeenItem | None:
        """What an image or a video shows; None where there are only features, or a name. Raises ImageError."""
        if items.modality == "image":
            image = pixels_of(items, number)
            return None if image is None else SeenItem((image,), digest_image(image))
        if items.get(number) is None or items.modality != "video" or not hasattr(items, "get_num_frames"):
            return None
        return see_video(items.get(number), self.info.get_hf_config().vision_config.temporal_patch_size)  # type: ignore[attr-defined]

    def _choose(self, inputs: Any, modality: str, request: Request, prepared: Textures, *, asked: bool) -> Any:
        """The inputs with the choice among their keywords; without, where no texture can be made of an image."""
        items = inputs.mm_data_items[modality]
        try:
            several = [self._see(items, number) for number in range(len(items))]
        except ImageError as cause:
            return _leave_stock(inputs, cause)
        seen = [each for each in several if each is not None]
        if len(seen) < len(several):
            if not asked:
                metrics.REQUESTS.labels("stock").inc()
                return inputs
            named = "an image" if modality == "image" else f"a {modality}"
            raise SceneError(
                f"foveate_budget for {named} that came as features, or only by its name in the cache",
                expected="its pixels: without them no visual tokens can be chosen",
                fix=f"send the {modality} itself, or leave foveate_budget out",
            )
        if self.info.ctx.get_mm_config().is_multimodal_pruning_enabled():  # type: ignore[attr-defined]
            raise OptionError(
                "foveate_budget beside vLLM's own pruning of videos, which adds channels to every image's features",
                expected="one of the two",
                fix="start the server without --video-pruning-rate",
            )
        theirs = inputs.hf_processor_mm_kwargs
        told = tell(theirs)
        try:
            tokens = self._lay_out(items, seen, theirs)
        except (ModelError, ImageError) as cause:
            if modality != "image" or min(min(each.size) for each in seen) >= THIN:
                raise
            return _leave_stock(inputs, cause)
        layouts = [each.layout for each in tokens]
        self._check_positions(len(inputs.prompt) + sum(each.positions for each in tokens))
        shown = [picture for each in seen for picture in each.pictures]
        try:
            needed = needs_textures(request.budget, layouts)
            found = self._find_textures(shown, request.preset, prepared) if needed else []
        except ImageError as cause:
            return _leave_stock(inputs, cause)
        made = {texture for texture, took in found if took is not None}
        metrics.TEXTURES.labels("made").inc(len(made))
        metrics.TEXTURES.labels("kept").inc(len(found) - len(made))
        textures = [texture for texture, _ in found]
        question = request.question or self._question(inputs.prompt, tokens[-1].mark)[-MAX_CHARACTERS:]
        try:
            if request.budget == "lossless":
                search = find_unrepeated if modality == "image" else find_unchanged
                finds = [partial(search, self, items[n], layout, theirs) for n, layout in enumerate(layouts)]
                rows = [self.unrepeated.get((one.digest, told), find) for one, find in zip(seen, finds, strict=True)]
                selection = without_repeated(layouts, rows)
            else:
                selection = select_rows(shown, textures, layouts, question, request.budget, request.floor)
        except ChannelError as cause:  # a KeyError, for which vLLM's server would blame itself
            raise OptionError(
                f"foveate_preset={request.preset!r}, which needs more than an image: {cause.received}",
                expected="a preset that goes by the image alone",
                fix="leave it out",
            ) from cause
        alone = request.encode == "kept" and selection.outcome != "all" and modality == "image"
        if alone and self._kept_encoder is not None:
            for each, layout in zip(seen, layouts, strict=True):
                self._kept_encoder.check_image(self.info.get_hf_config(), each.size, layout.count)  # type: ignore[attr-defined]
        metrics.REQUESTS.labels(selection.outcome).inc()
        if request.budget != "lossless":
            metrics.SCORING.observe(selection.seconds)
        kept, there = sum(map(len, selection.rows)), sum(layout.count for layout in layouts)
        metrics.KEPT.inc(kept)
        metrics.SAVED.inc(there - kept)
        chosen = tuple(
            choose_places(each, rows, one.digest + told.encode(), alone=alone, modality=modality)
            for each, rows, one in zip(tokens, selection.rows, seen, strict=True)
        )
        return replace(inputs, hf_processor_mm_kwargs={**theirs, CHOSEN: chosen})

    @property
    def _cuts(self) -> bool:
        return self._kept_encoder is not None and self._kept_encoder.cuts

    def _check_model(self, request: Request) -> None:
        """Raises for a tokenizer that does not read an image's mark, and for a tower that cannot encode some tokens."""
        from vllm.utils.mistral import is_mistral_tokenizer

        if request.budget is not None and is_mistral_tokenizer(self.info.ctx.tokenizer):  # type: ignore[attr-defined]
            raise ModelError(
                f"foveate_budget={request.budget!r} with Mistral's own tokenizer, which reads no image's mark in text",
                expected="that of Hugging Face, which the checkpoint may have beside it",
                fix=f"vllm serve ... {OF_HUGGING_FACE}",
            )
        if request.encode != "kept":
            return
        config = self.info.ctx.model_config  # type: ignore[attr-defined]
        able = self._kept_encoder is not None
        shared = self.info.ctx.get_mm_config().mm_encoder_tp_mode == "data"  # type: ignore[attr-defined]
        unfit = able and is_unfit(config.architecture)
        if able and not unfit and (self._cuts or not shared):
            return
        why = " with --mm-encoder-tp-mode data, which shares its tiles out among devices" if able else ""
        why = ", whose tower in this release of vLLM takes no positions, or has its layers elsewhere" if unfit else why
        raise ModelError(
            f'foveate_encode="kept" for {config.architecture}{why}',
            expected="a tower that takes single patches, and tokens that are made of whole ones: docs/serving.md",
            fix=f'pass {{"foveate_encode": "all"}}, or leave it out and unset {ENCODE}',
        )

    def _lay_out(self, items: Any, seen: Sequence[SeenItem], theirs: Mapping[str, object]) -> list[ImageTokens]:
        if items.modality == "image":
            return [self._find_tokens(each.size, theirs, tell(theirs)) for each in seen]
        return [find_video_tokens(self, items, number, each.size, theirs) for number, each in enumerate(seen)]

    def _find_tokens(self, size: tuple[int, int], theirs: Mapping[str, object], told: str) -> ImageTokens:
        """Where the visual tokens of an image of (height, width) pixels lie: the same for the next of its size."""
        if (found := self._tokens.get((size, told))) is None:
            found = find_tokens(self, size, theirs)
            if len(self._tokens) >= SIZES:
                self._tokens.clear()
            self._tokens[size, told] = found
        return found

    def _check_positions(self, needed: int) -> None:
        """Raises where RoPE has no numbers for the positions of the full prompt, which kept tokens have."""
        there = count_positions(self.info.ctx.model_config)  # type: ignore[attr-defined]
        if needed > there:
            raise ModelError(
                f"a prompt that takes up {needed} positions before visual tokens are dropped",
                expected=f"at most {there}, as many as the model knows: what is kept keeps its position",
                fix="send fewer images, or smaller ones",
            )

    def _find_textures(
        self, images: Sequence[NDArray[np.uint8]], preset: PresetName | None, prepared: Textures
    ) -> list[tuple[Texture, float | None]]:
        """The textures of images, several at a time, and the seconds to make each; None where it was kept."""

        def find(image: NDArray[np.uint8]) -> tuple[Texture, float | None]:
            there = prepared.get(digest := digest_image(image))
            if isinstance(there, ImageError):
                raise there
            return there or _timed(find_texture(image, digest, preset, self.textures, make_texture))

        return list(map_in_order(find, images, min(len(images), self._workers.count) or 1))

    def _question(self, prompt: Sequence[int], mark: str) -> str:
        tokenizer = self.info.get_tokenizer()  # type: ignore[attr-defined]
        if self._marks is None:
            self._marks = find_marks(tokenizer)
        return find_question(tokenizer.decode(list(prompt)), self._marks, mark)


def tell(theirs: Mapping[str, object]) -> str:
    """Keywords of the stock processor, as a part of keys."""
    return repr(sorted(theirs.items(), key=lambda item: item[0]))


@dataclass(frozen=True, eq=False)
class SeenItem:
    """What an image or a video shows: `pictures`, one of an image. digest: of all that the model gets of it."""

    pictures: tuple[NDArray[np.uint8], ...]
    digest: bytes

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) in pixels."""
        return self.pictures[0].shape[0], self.pictures[0].shape[1]


class Textures(dict[bytes, tuple[Texture, float | None] | ImageError]):
    """Textures by what pictures show, with the seconds to make each, as of `find_texture`; or why there is none.

    It travels from `look` to `apply` among the keywords of a request. A class of its own, as no client can send one.
    """


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """What a request shows, before it has its turn. items: vLLM's. pictures: by digest. positions: of its prompt."""

    request: Request
    theirs: Mapping[str, object]
    items: Any
    seen: Sequence[SeenItem]
    pictures: Mapping[bytes, NDArray[np.uint8]]
    positions: int
    textures: Textures = field(default_factory=Textures)

    def missing(self) -> dict[bytes, NDArray[np.uint8]]:
        """The pictures that have no textures yet."""
        return {digest: picture for digest, picture in self.pictures.items() if digest not in self.textures}


def _timed(found: tuple[Texture, float | None]) -> tuple[Texture, float | None]:
    if found[1] is not None:
        metrics.ENCODING.observe(found[1])
    return found


def see_video(item: Any, depth: int) -> SeenItem:
    """A video as the stock processor gets it; so many frames make one picture, of which the first is shown."""
    frames = [to_pixels(frame) for frame in frames_of(item)]
    if len({frame.shape for frame in frames}) != 1:
        raise ImageArrayError(
            f"a video of {len(frames)} frames of {sorted({frame.shape[:2] for frame in frames})} pixels",
            expected="at least one frame, all of one size",
            fix="check the file",
        )
    together = blake2b(b"".join(digest_image(frame) for frame in frames), digest_size=16).digest()
    return SeenItem(tuple(frames[::depth]), together)


def pixels_of(items: Any, number: int) -> NDArray[np.uint8] | None:
    """An image as the stock processor gets it, uint8 [H, W, 3]; None where there are only features, or a name.

    Raises ImageError for an array that is no image, and for one that is too large, before it is unpacked.
    """
    from vllm.multimodal.parse import ImageProcessorItems

    image = items.get(number) if isinstance(items, ImageProcessorItems) else None
    if image is None:
        return None
    size = items.get_image_size(number)
    if size.width * size.height > MAX_PIXELS:
        raise ImageTooLargeError(
            f"an image of {size.height} x {size.width} pixels",
            expected=f"at most {MAX_PIXELS}",
            fix="send a smaller one: the model sees less of it anyway",
        )
    return to_pixels(image)


def to_pixels(image: Any) -> NDArray[np.uint8]:
    """uint8 [H, W, 3] of an image, or a frame, in any of vLLM's forms. Raises ImageError."""
    if isinstance(image, Image.Image):
        return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
    array = np.asarray(image)
    if array.ndim == 3 and array.shape[-1] not in (1, 3, 4):
        array = np.moveaxis(array, 0, -1)
    return load_image(array).rgb


def _leave_stock(inputs: Any, cause: ImageError | ModelError) -> Any:
    """The inputs as they are: the stock answer, which is counted and logged."""
    metrics.REQUESTS.labels("unreadable").inc()
    logger.warning("foveate: the stock answer for an image that tokens cannot be chosen of: %s", cause.received)
    return inputs


def check_names(names: Mapping[str, Sequence[str | None]]) -> None:
    """Refuse a client's name for an image that could be ours: in vLLM's caches it could replace another's image."""
    if any(name is not None and NAMED in name for given in names.values() for name in given):
        raise OptionError(f"a uuid with {NAMED!r} in it", expected="another uuid", fix="leave the uuid out")


def check_answer(out: Mapping[str, Any], chosen: Sequence[ChosenImage] | None) -> None:
    """Whether vLLM made of a choice what was chosen: placeholders, and names in its caches. Raises ModelError."""
    if not chosen:
        return
    modality = chosen[0].modality
    found = [place.length for place in out["mm_placeholders"][modality]]
    wanted = [len(each.places) for each in chosen]
    if found != wanted or not all(NAMED in name for name in out["mm_hashes"][modality]):
        raise ModelError(
            f"{found} ids of each {modality} where {wanted} were chosen",
            expected="as many of both, and names of their own in vLLM's caches",
            fix="this release of vLLM calls its processors otherwise than foveate expects: docs/serving.md",
        )


def _split_chosen(keywords: Mapping[str, Any]) -> tuple[tuple[ChosenImage, ...] | None, dict[str, Any]]:
    theirs = {name: value for name, value in keywords.items() if name != CHOSEN}
    return keywords.get(CHOSEN), theirs


def _take_chosen(inputs: Any) -> tuple[tuple[ChosenImage, ...] | None, Any]:
    chosen, theirs = _split_chosen(inputs.hf_processor_mm_kwargs)
    return chosen, replace(inputs, hf_processor_mm_kwargs=theirs)
