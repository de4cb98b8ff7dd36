"""How long a vision-language model takes with all tokens, and with those that a question needs.

"stock" is the model without foveate, which encodes the image in every call; "all" the same tokens through foveate. A
batch is so many questions about one image. Each row is timed of an image *seen before* and of a *new* one. All ways are
called in turn, and a ratio is the median of the ratios within repeats.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from foveate.cli.evaluate.agreement import circumstances
from foveate.core.checks import check_choice, check_int, check_number
from foveate.core.errors import ModelError, OptionError
from foveate.core.image import Picture
from foveate.vlm.encoded import EncodedImage, Mode, Prepared
from foveate.vlm.families.written import adds_special_tokens
from foveate.vlm.inputs.prompt import prompt_text
from foveate.vlm.loader import libraries
from foveate.vlm.model import VLM

COLUMNS = (
    "batch", "way", "tokens", "selection ms", "encoder ms", "prefill ms", "whole ms", "of stock", "new image ms",
    "of stock", "",
)  # fmt: skip
QUESTIONS = ("what is in the picture?", "where is the child?", "what colour is the plate?", "is there a dog?")
SELECTION = ("score", "choose", "slice")
MODES: tuple[Mode, ...] = ("drop", "sparse")


@dataclass(frozen=True)
class Plan:
    """`budgets` are percents of the cells, `batches` questions at once, `new` tokens of an answer. `read`: the pictures
    are read, once, before anything is timed.
    """

    budgets: tuple[float, ...]
    modes: tuple[Mode, ...]
    batches: tuple[int, ...]
    new: int
    repeats: int
    read: bool = False


def make_plan(budgets: str, modes: str, batch: str, new: int, repeats: int, read: bool = False) -> Plan:
    """Options as text, lists with commas -> a plan. Raises OptionError."""

    def split(option: str, text: str, convert: Callable[[str], Any], expected: str) -> tuple[Any, ...]:
        try:
            return tuple(convert(part.strip()) for part in text.split(","))
        except (ValueError, OptionError):
            fix = "check it; put commas between several"
            raise OptionError(f"{option} {text!r}", expected=f"{expected}, or several", fix=fix) from None

    return Plan(
        split("--budgets", budgets, lambda part: check_number("share", float(part), 1e-9, 100), "a percent up to 100"),
        split("--modes", modes, lambda part: check_choice("mode", part, MODES), "drop or sparse"),
        split("--batch", batch, lambda part: check_int("size", int(part), 1, 256), "a whole number from 1 to 256"),
        check_int("--new", new, 1, 4096),
        check_int("--repeats", repeats, 1, 1000),
        read,
    )


@dataclass
class Way:
    """One row: how (mode None: the stock model; share None: all cells), and by picture its visual tokens, by name the
    milliseconds of each repeat.
    """

    name: str
    mode: Mode | None
    share: float | None
    batch: int
    tokens: list[int] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **milliseconds: float) -> None:
        for name, value in milliseconds.items():
            self.times.setdefault(name, []).append(value)


def measure(vlm: VLM, pictures: Sequence[Picture], plan: Plan, progress: Callable[[int], None]) -> dict[str, Any]:
    """-> report. A way that the model cannot do, or that does not fit in memory, is left out with a note."""
    notes, ways, cells = list[str](), list(_ways(plan)), list[int]()
    for number, picture in enumerate(pictures):
        clock = _Clock(vlm, picture, plan.new, plan.read)
        cells.append(clock.encoded["drop"].tokens[0])
        ways = [way for way in ways if clock.warm_up(way, notes)]
        for repeat in range(plan.repeats):
            seen = {mode: clock.see(mode) for mode in dict.fromkeys(way.mode for way in ways if way.mode)}
            encoded = clock.timed(clock.encode)[0]
            for way in ways:
                if way.mode is None:
                    clock.measure_stock(way)
                else:
                    clock.measure_ours(way, seen[way.mode], encoded)
            progress(number * plan.repeats + repeat + 1)
    stock = {way.batch: way for way in ways if way.mode is None}
    rows = [_row(way, stock.get(way.batch)) for way in ways]
    model = vlm.model
    return {
        "title": f"{type(model).__name__} on {model.device}, {str(model.dtype).split('.')[-1]}, "
        f"{' + '.join(map(str, cells))} cells, answers of {plan.new} tokens, medians of {plan.repeats * len(cells)}",
        "columns": list(COLUMNS),
        "rows": rows,
        "notes": notes,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "layers": model.config.get_text_config().num_hidden_layers,
        "attention": model.config._attn_implementation,
        "torch": clock.torch.__version__,
        "transformers": clock.transformers.__version__,
        "threads": clock.torch.get_num_threads(),
        "read": plan.read,
        **circumstances(),
    }


class _Clock:
    def __init__(self, vlm: VLM, picture: Picture, new: int, read: bool = False) -> None:
        self.torch, self.transformers = libraries()
        self.vlm, self.picture, self.new = vlm, picture, new
        self.cuda = vlm.model.device.type == "cuda"
        self.encoded: dict[str, EncodedImage] = {mode: vlm.see(picture, mode=mode, read=read) for mode in MODES}

    def timed(self, function: Callable[[], Any]) -> tuple[float, Any]:
        """(milliseconds, result), with the GPU idle before and after."""
        self._wait()
        start = time.perf_counter()
        result = function()
        self._wait()
        return (time.perf_counter() - start) * 1e3, result

    def encode(self) -> Any:
        encoded = self.encoded["sparse"]  # the one that keeps its pixels
        with self.torch.no_grad():
            return self.vlm.family.encode(self.vlm.model, encoded.inputs, [layout.count for layout in encoded.layouts])

    def see(self, mode: Mode) -> float:
        return self.timed(lambda: self.vlm.see(self.picture, mode=mode, read=False))[0]

    def warm_up(self, way: Way, notes: list[str]) -> bool:
        """Whether a way works: it is gone through once, and its tokens are counted. A failure is noted."""
        try:
            if way.mode is None:
                self._generate(self._inputs(way.batch), self.new)
            else:
                self._answer(self._prepare(way), self.new)
        except (ModelError, self.torch.OutOfMemoryError) as cause:
            why = cause.received if isinstance(cause, ModelError) else "it does not fit in memory"
            notes.append(f"left out: {way.name}, batch {way.batch}: {why}")
            return False
        encoded = self.encoded["drop"]
        every = sum(layout.count for layout in encoded.layouts)
        kept = self._budget(way)
        way.tokens.append(every if kept is None else kept + every - encoded.tokens[0])
        return True

    def measure_stock(self, way: Way) -> None:
        processed, inputs = self.timed(lambda: self._inputs(way.batch))
        prefill, _ = self.timed(lambda: self._generate(inputs, 1))
        whole, _ = self.timed(lambda: self._generate(inputs, self.new))
        way.add(prefill=prefill, whole=whole, fresh=processed + whole)

    def measure_ours(self, way: Way, seen: float, encoded: float) -> None:
        first = self._prepare(way)
        prefill, _ = self.timed(lambda: self._answer(first, 1))
        prepared, made = self.timed(lambda: self._prepare(way))
        generated, _ = self.timed(lambda: self._answer(made, self.new))
        selection = sum(one.seconds[name] for one in made for name in SELECTION) * 1e3
        whole = prepared + generated
        encoded = prepared - selection if way.mode == "sparse" else encoded
        way.add(selection=selection, encoder=encoded, prefill=prefill, whole=whole, fresh=seen + whole)

    def _prepare(self, way: Way) -> list[Prepared]:
        assert way.mode is not None
        encoded, kept = self.encoded[way.mode], self._budget(way)
        return [self.vlm.prepare(encoded, q, budget=kept, mode=way.mode) for q in _questions(way.batch)]

    def _budget(self, way: Way) -> int | None:
        return None if way.share is None else max(1, round(self.encoded["drop"].tokens[0] * way.share / 100))

    def _answer(self, made: Sequence[Prepared], new: int) -> Any:
        return self.vlm.answers(made, {"max_new_tokens": new, "min_new_tokens": new})

    def _inputs(self, batch: int) -> dict[str, Any]:
        processor, model = self.vlm.processor, self.vlm.model
        texts = [prompt_text(processor, question, 1, None) for question in _questions(batch)]
        images = [[Image.fromarray(self.picture.rgb)]] * batch
        more = {"padding": True, "padding_side": "left"} if batch > 1 else {}
        special = adds_special_tokens(processor, texts[0])
        made = processor(images=images, text=texts, return_tensors="pt", add_special_tokens=special, **more)
        return {
            name: value.to(model.device, model.dtype) if value.is_floating_point() else value.to(model.device)
            for name, value in made.items()
            if hasattr(value, "to")
        }

    def _generate(self, inputs: dict[str, Any], new: int) -> Any:
        words = self.vlm.processor.tokenizer
        pad = words.eos_token_id if words.pad_token_id is None else words.pad_token_id
        with self.torch.no_grad():
            return self.vlm.model.generate(
                **inputs, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=pad
            )

    def _wait(self) -> None:
        if self.cuda:
            self.torch.cuda.synchronize(self.vlm.model.device)


def _ways(plan: Plan) -> Iterator[Way]:
    for batch in plan.batches:
        yield Way("stock", None, None, batch)
        yield Way("all", "drop", None, batch)
        for mode, share in itertools.product(plan.modes, plan.budgets):
            yield Way(f"{mode} {share:g} %", mode, share, batch)


def _row(way: Way, stock: Way | None) -> dict[str, Any]:
    tokens = round(float(np.median(way.tokens)))
    medians = {name: float(np.median(values)) for name, values in way.times.items()}
    ratios = {} if stock is None else {
        name: float(np.median(np.divide(way.times[name], stock.times[name]))) for name in ("whole", "fresh")
    }  # fmt: skip
    ours = {} if way.mode is None else ratios
    slow = [words for name, words in (("whole", "seen before"), ("fresh", "new image")) if ours.get(name, 0) >= 1]
    shown = {name: f"{value:.1f}" if value < 100 else f"{value:.0f}" for name, value in medians.items()}
    shown |= {f"{name} of stock": f"{ratio:.2f}" for name, ratio in ours.items()}
    columns = ("selection", "encoder", "prefill", "whole", "whole of stock", "fresh", "fresh of stock")
    cells = [str(way.batch), way.name, str(tokens), *(shown.get(name, "") for name in columns)]
    cells.append(f"NOT faster: {', '.join(slow)}" if slow else "")
    return {
        "batch": way.batch,
        "way": way.name,
        "tokens": tokens,
        **{f"{name}_ms": round(value, 3) for name, value in medians.items()},
        **{f"{name}_of_stock": round(value, 4) for name, value in ratios.items()},
        "cells": cells,
    }


def _questions(batch: int) -> list[str]:
    return list(itertools.islice(itertools.cycle(QUESTIONS), batch))
