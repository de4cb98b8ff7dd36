"""How long a vision-language model takes, by visual tokens: sizes of real models with random weights, no download.

    python -m benchmarks vlm                                  on a CPU one layer is timed, and multiplied
    python -m benchmarks vlm --device cuda --layers all       the whole model, made on the GPU, bfloat16
    python -m benchmarks chat                                 a round of a dialogue, without generation

* prefill: the language model alone takes in the visual tokens that are kept and 30 others. Beside its speed-up stand
  two ideal ones: that of the flops, and that of the limit, the longer of flops / (flops a second) and bytes / (bytes a
  second), both rates measured on the same device in the same run.
* answer: from the picture to the last token. With all layers it is measured, as `foveate evaluate vlm` does; with
  fewer, the parts are timed and added (`compose`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import (
    PHOTO,
    Image,
    crop_square,
    make_row,
    show_part,
    time_calls,
    time_each,
    time_in_turn,
    time_row,
)
from benchmarks.common import Repeats as Times
from foveate.cli.evaluate.command import Batch, Budgets, Modes, New, Repeats
from foveate.cli.evaluate.vlm import QUESTIONS, Plan, make_plan
from foveate.cli.evaluate.vlm import measure as measure_answers
from foveate.cli.terminal import Device, Dtype
from foveate.core.checks import check_choice, check_int
from foveate.core.image import Picture, load_image
from foveate.pipeline import encode
from foveate.vlm.inputs.images import CHANNELS
from foveate.vlm.loader import DTYPES, attach, device_of, libraries

FAMILIES = ("llava", "qwen2_5_vl")  # of random_vlm.py, which needs transformers
PROMPT = 30  # tokens of a question and its template
WITHIN = 1.15  # target: prefill no more than this from its ideal speed-up
PREFILL = ("batch", "visual tokens", "prefill", "speed-up", "ideal, flops", "ideal, limit", "ideal / ours", "of limit")
COMPOSED = ("batch", "way", "tokens", "seen before", "speed-up", "new image", "speed-up")


def measure(
    image: Image = PHOTO,
    family: Annotated[str, typer.Option("--random", metavar="FAMILY", help="llava or qwen2_5_vl, 7B-like.")] = "llava",
    layers: Annotated[str, typer.Option(help="Layers of the language model, or all; auto: 1 on a CPU.")] = "auto",
    tiny: Annotated[bool, typer.Option("--tiny", help="Very narrow; llava with 4096 cells.")] = False,
    budgets: Budgets = "25,6.7",
    modes: Modes = "drop",
    batch: Batch = "1,4,16",
    new: New = 16,
    repeats: Repeats = 3,
    dtype: Dtype = "auto",
    device: Device = "auto",
) -> dict[str, Any]:
    """Is a model faster with fewer visual tokens? With random weights; auto is bfloat16, and all layers on a GPU."""
    plan = make_plan(budgets, modes, batch, new, repeats)
    make = prepare_model(family, layers, tiny, dtype, device)
    picture = load_image(image)
    vlm = make()
    sizes, every = sizes_of(vlm.model.config), _all_layers(family, tiny)
    prefill = show_part(time_prefill(vlm, sizes, plan, vlm.see(picture).tokens[0]))
    if sizes.layers == every:
        answer = measure_answers(vlm, [picture], plan, lambda done: None)
        answer["rows"] = [name_row(row) for row in answer["rows"]]
    else:
        answer = compose_answers(vlm, sizes, picture, plan, prefill, every)
    return {
        "title": "vlm",
        "model": f"random {family}{' tiny' if tiny else ''}",
        "image": str(image),
        "tables": [prefill, show_part(answer)],
        "layers": sizes.layers,
        "of_layers": every,
        "device": str(vlm.model.device),
        "dtype": str(vlm.model.dtype).split(".")[-1],
        "threads": libraries()[0].get_num_threads(),
    }


def name_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `foveate evaluate vlm` under a name and with one number, for `python -m benchmarks compare`."""
    what, whole = f"answer, batch {row['batch']}, {row['way']}", row["whole_ms"]
    return make_row(what, whole, f"{whole:.3g} ms", unit="ms") | row


# --- sizes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Of a language model: layers, width, inner width, width of keys (heads x side), words."""

    layers: int
    width: int
    inner: int
    keys: int
    words: int

    @property
    def layer(self) -> int:
        """Parameters of a layer's products: queries, keys, values, output; gate, up and down."""
        return 2 * self.width * self.width + 2 * self.width * self.keys + 3 * self.width * self.inner

    def flops(self, batch: int, tokens: int) -> float:
        """Of a prefill: 2 a weight and token, half of the square of attention (it is causal), one row of the head."""
        attention = 2 * tokens * tokens * self.width
        return batch * (self.layers * (2 * self.layer * tokens + attention) + 2 * self.width * self.words)

    def bytes(self, batch: int, tokens: int, each: int) -> float:
        """That a prefill moves at least: weights once, keys and values written, rows of a layer read and written."""
        rows = batch * tokens * (2 * self.keys + 2 * self.width)
        return each * (self.layers * (self.layer + rows) + self.width * self.words)


def sizes_of(config: Any) -> Sizes:
    """Of a model's configuration."""
    text = config.get_text_config()
    side = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    keys = (text.num_key_value_heads or text.num_attention_heads) * side
    return Sizes(text.num_hidden_layers, text.hidden_size, text.intermediate_size, keys, text.vocab_size)


def _all_layers(family: str, tiny: bool) -> int:
    from benchmarks import random_vlm

    return int(random_vlm.FAMILIES[family](None, tiny)[1].get_text_config().num_hidden_layers)


# --- making it ----------------------------------------------------------------------------------------------------


def prepare_model(family: str, layers: str, tiny: bool, dtype: str, device: str) -> Callable[..., Any]:
    """Checks the options; what it returns makes the VLM. Raises OptionError, MissingExtraError."""
    check_choice("--random", family, FAMILIES)
    known = None if layers in ("auto", "all") else check_int("--layers", _number(layers), 1, 1000)
    check_choice("dtype", dtype, DTYPES)
    torch, _ = libraries()
    place, kind = device_of(torch, device), getattr(torch, "bfloat16" if dtype == "auto" else dtype)
    many = 1 if layers == "auto" and place == "cpu" and not tiny else known

    def make() -> Any:
        from benchmarks import random_vlm

        return attach(*random_vlm.random_pair(family, many, tiny, kind, place))

    return make


def _number(layers: Any) -> Any:
    try:
        return int(layers)
    except ValueError:
        return layers


# --- prefill ------------------------------------------------------------------------------------------------------


def time_prefill(vlm: Any, sizes: Sizes, plan: Plan, every: int) -> dict[str, Any]:
    """The language model alone on rows of noise: all visual tokens and each share of them, by batch."""
    torch, _ = libraries()
    model = vlm.model
    kept = [every, *(max(1, round(every * share / 100)) for share in plan.budgets)]
    more, make_rates = _rate_parts(torch, sizes, model)
    each, rows, best = model.dtype.itemsize, list[dict[str, Any]](), dict[int, Rates]()
    for batch in plan.batches:
        parts: dict[Any, Callable[[], Any]] = {n: _prefill(torch, model, batch, PROMPT + n) for n in kept}
        times = time_each(parts | more, plan.repeats, _synchronise(torch, model))
        best[batch] = make_rates(times)
        rows += [_prefill_row(sizes, best[batch], batch, every, n, times, each) for n in dict.fromkeys(kept)]
    title = (
        f"prefill of {sizes.layers} layers of {sizes.width} ({sizes.layers * sizes.layer / 1e9:.2f}e9 parameters), "
        f"{model.device}, {str(model.dtype).split('.')[-1]}; limit: {best[plan.batches[0]]}; target: ideal, limit / "
        f"speed-up <= {WITHIN}"
    )
    rates = {batch: rate.record() for batch, rate in best.items()}
    return {"name": "prefill", "title": title, "columns": PREFILL, "rows": rows, "rates": rates}


def _prefill_row(
    sizes: Sizes, rates: Rates, batch: int, every: int, n: int, times: dict[Any, np.ndarray], each: int
) -> dict[str, Any]:
    """Of `n` visual tokens, beside all of them."""
    milliseconds = times[n] * 1e3
    limit = rates.limit(sizes, batch, PROMPT + n, each)
    row = time_row(f"prefill, batch {batch}, {n} visual tokens", times[n], "ms")
    median, share = float(np.median(milliseconds)), limit / float(np.median(times[n]))
    known: dict[str, Any] = {"flops": sizes.flops(batch, PROMPT + n), "share_of_limit": share}
    cells = [str(batch), str(n), f"{median:.3g} ms", *[""] * 4, f"{share:.0%}"]
    if n != every:
        speedup = float(np.median(times[every] / times[n]))
        ideal = sizes.flops(batch, PROMPT + every) / known["flops"]
        reachable = rates.limit(sizes, batch, PROMPT + every, each) / limit
        known |= {"speedup": speedup, "ideal_flops": ideal, "ideal_limit": reachable}
        cells[3:7] = [f"{speedup:.2f} x", f"{ideal:.2f}", f"{reachable:.2f}", f"{reachable / speedup:.2f}"]
    return row | {"batch": batch, "tokens": n, **known, "cells": cells}


@dataclass(frozen=True)
class Rates:
    """What a device did best in this run: flops a second of one large product, bytes a second of a copy."""

    flops: float
    bytes: float

    def limit(self, sizes: Sizes, batch: int, tokens: int, each: int) -> float:
        """Seconds that a prefill takes at least."""
        return max(sizes.flops(batch, tokens) / self.flops, sizes.bytes(batch, tokens, each) / self.bytes)

    def __str__(self) -> str:
        return f"{self.flops / 1e12:.3g} TFLOP/s, {self.bytes / 1e9:.3g} GB/s"

    def record(self) -> dict[str, float]:
        return {"flops": self.flops, "bytes": self.bytes}


def _rate_parts(torch: Any, sizes: Sizes, model: Any) -> tuple[dict[Any, Callable[[], Any]], Callable[[Any], Rates]]:
    """Two parts to call in turn with what is measured, and what makes rates of their seconds: a product of the
    feed-forward's shape, and a copy of 128 MB (read and written). The best of each counts."""
    rows = 8192 if model.device.type == "cuda" else 1024
    with torch.no_grad():
        a = torch.rand(rows, sizes.width, device=model.device).to(model.dtype)
        b = torch.rand(sizes.width, sizes.inner, device=model.device).to(model.dtype)
        block = torch.zeros(1 << 27, dtype=torch.int8, device=model.device)
        target = torch.empty_like(block)

    def rates(times: dict[Any, np.ndarray]) -> Rates:
        flops = 2 * rows * sizes.width * sizes.inner / times["product"].min()
        return Rates(float(flops), float(2 * block.numel() / times["copy"].min()))

    return {"product": lambda: torch.mm(a, b), "copy": lambda: target.copy_(block)}, rates


def _prefill(torch: Any, model: Any, batch: int, tokens: int) -> Callable[[], Any]:
    """A function that takes in `tokens` rows for each of a batch, writes keys and values, and scores the next word."""
    text, head = model.model.language_model, model.lm_head
    width = model.config.get_text_config().hidden_size
    rows = torch.rand(batch, tokens, width, device=model.device).to(model.dtype)

    def run() -> Any:
        with torch.no_grad():
            found = text(inputs_embeds=rows, use_cache=True)
            return found.past_key_values, head(found.last_hidden_state[:, -1:])

    return run


def _synchronise(torch: Any, model: Any) -> Callable[[], None]:
    return (lambda: torch.cuda.synchronize(model.device)) if model.device.type == "cuda" else lambda: None


# --- answers by arithmetic ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """Seconds: of one layer's prefill and of its step to one more token, of the head, of the image encoder for one
    image, of a texture, of choosing the tokens of one question."""

    prefill: float
    step: float
    head: float
    tower: float
    texture: float
    choose: float


def compose(parts: Parts, layers: int, batch: int, new: int, ours: bool) -> tuple[float, float]:
    """Seconds of `batch` answers of `new` tokens about one image, (seen before, new).

    The stock model encodes the image for each question, every time; we encode it once, when it is new.
    """
    model = layers * (parts.prefill + (new - 1) * parts.step) + new * parts.head
    if not ours:
        return batch * parts.tower + model, batch * parts.tower + model
    asked = batch * parts.choose + model
    return asked, parts.tower + parts.texture + asked


def compose_answers(
    vlm: Any, sizes: Sizes, picture: Picture, plan: Plan, prefill: dict[str, Any], layers: int
) -> dict[str, Any]:
    """Answers of the whole model from the parts of one that has fewer layers."""
    torch, _ = libraries()
    seen = vlm.see(picture, mode="sparse")  # it keeps its pixels
    counts, every = [layout.count for layout in seen.layouts], seen.tokens[0]
    shares: list[tuple[str, float | None]] = [("all", None), *((f"{share:g} %", share) for share in plan.budgets)]
    kept = {name: every if share is None else max(1, round(every * share / 100)) for name, share in shares}
    encoded, asked = vlm.see(picture), itertools.cycle(QUESTIONS)

    def choose(budget: int) -> Any:
        return vlm.prepare(encoded, next(asked), budget=budget)

    one: dict[Any, Callable[[], Any]] = {
        "tower": lambda: _without_gradient(torch, lambda: vlm.family.encode(vlm.model, seen.inputs, counts)),
        "texture": lambda: encode(picture.rgb),
        **{name: partial(choose, n) for name, n in kept.items()},
    }
    wait = _synchronise(torch, vlm.model)
    alone = {name: float(np.median(times)) for name, times in time_each(one, plan.repeats, wait).items()}
    known = {(row["batch"], row["tokens"]): row["median"] / 1e3 for row in prefill["rows"]}
    rows = []
    for batch in plan.batches:
        steps = _steps(torch, vlm.model, batch, kept)
        times = {name: float(np.median(some)) for name, some in time_each(steps, plan.repeats, wait).items()}
        found: dict[str, tuple[int, tuple[float, float]]] = {}
        for name, n in kept.items():
            head = times["head"]
            parts = Parts(
                max(0.0, known[batch, n] - head) / sizes.layers, max(0.0, times[name] - head) / sizes.layers, head,
                alone["tower"], alone["texture"], alone[name],
            )  # fmt: skip
            if not found:
                found["stock"] = every, compose(parts, layers, batch, plan.new, ours=False)
            found[name] = n, compose(parts, layers, batch, plan.new, ours=True)
        stock = found["stock"][1]
        for name, (n, (before, new)) in found.items():
            ratios = [stock[0] / before, stock[1] / new]
            cells = [str(batch), name, str(n)]
            for seconds, ratio in zip((before, new), ratios, strict=True):
                cells += [f"{seconds:.3g} s", "" if name == "stock" else f"{ratio:.2f} x"]
            rows.append(
                {"batch": batch, "way": name, "tokens": n, "seconds": [before, new], "speedup": ratios, "cells": cells}
            )
    title = (
        f"answers of {plan.new} tokens by {layers} layers: {sizes.layers} timed and multiplied, not measured whole; "
        f"tower {alone['tower']:.2f} s, texture {alone['texture']:.2f} s"
    )
    return {"name": "answer", "title": title, "columns": COMPOSED, "rows": rows, "parts": alone}


def _steps(torch: Any, model: Any, batch: int, kept: dict[str, int]) -> dict[Any, Callable[[], Any]]:
    """One more token after each prefill, head included; and the head alone."""
    text, head = model.model.language_model, model.lm_head
    row = torch.rand(batch, 1, model.config.get_text_config().hidden_size, device=model.device).to(model.dtype)

    def make(cache: Any) -> Callable[[], Any]:
        def run() -> Any:
            found = text(inputs_embeds=row, past_key_values=cache, use_cache=True)
            return head(found.last_hidden_state)

        return lambda: _without_gradient(torch, run)

    parts: dict[Any, Callable[[], Any]] = {
        name: make(_prefill(torch, model, batch, PROMPT + n)()[0]) for name, n in kept.items()
    }
    return parts | {"head": lambda: _without_gradient(torch, lambda: head(row))}


def _without_gradient(torch: Any, function: Callable[[], Any]) -> Any:
    with torch.no_grad():
        return function()


# --- a round of a dialogue --------------------------------------------------------------------------------------------

CHAT_SIDE = 896  # pixels: 32 x 32 visual tokens of 28
CHAT_BUDGET = 128
PARTS = ("score", "choose", "slice")


def chat(image: Image = PHOTO, repeats: Times = 100) -> dict[str, Any]:
    """Times of a round of a dialogue, without generation."""
    vlm = prepare_model("qwen2_5_vl", "1", True, "float32", "cpu")()
    photograph = crop_square(image, CHAT_SIDE)
    texture = encode(photograph, channels=CHANNELS)
    seen = vlm.see(texture, read=False)
    dialogue = vlm.chat(seen, budget=CHAT_BUDGET, max_new_tokens=1)
    dialogue.ask("where is the dog?")
    selecting = []

    def again() -> None:
        seconds = dialogue.prepare("and what colour is it?").seconds
        selecting.append(sum(seconds[part] for part in PARTS))

    whole = time_calls(again, repeats)
    few = max(5, repeats // 10)
    with_texture, alone = time_in_turn(
        lambda: vlm.see(texture, read=False), lambda: vlm.see(photograph, read=False), few
    )
    encoding = time_calls(lambda: encode(photograph, channels=CHANNELS), few)
    rows = [
        time_row("a round selects again: score, choose, slice", np.array(selecting[-repeats:]), "ms", "<= 3 ms"),
        time_row("  with the prompt laid out: chat.prepare", whole, "ms"),
        time_row("see(texture)", with_texture, "ms"),
        time_row("see(image)", alone, "ms"),
        time_row("  of which encode", encoding, "ms"),
    ]
    title = f"benchmarks chat: {seen.tokens[0]} visual tokens, {CHAT_BUDGET} kept, medians of {repeats} ({few} of see)"
    return {"title": title, "rows": rows, "image": str(image)}
