"""Fewer visual tokens in a serving engine: a load on any OpenAI-compatible server, and what arithmetic expects.

    python -m benchmarks serving --url http://localhost:8000 --images photos --budgets none,0.25,0.067 --concurrency 8
    python -m benchmarks serving --textures 0,1,2,4      # in vLLM's environment: no server, no GPU
    python -m benchmarks serving --engine new --budgets none,0.067,0.067+kept --requests 9          # no server
    python -m benchmarks serving --engine new --stock    # no server: a vLLM with foveate, and one without
    python -m benchmarks serving --arithmetic            # no server, no GPU

The load: so many clients, each sends its next request when its last one is answered; budgets take turns within a
round; photographs are shifted by some pixels, so that no cache has them; answers have one length (`ignore_eos`). The
arithmetic is a bound by a data sheet: the image's encoding, prefill, and an answer whose steps read the weights once
for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import parse_numbers
from benchmarks.vlm import PROMPT, Sizes
from foveate.core.checks import check_int, check_number
from foveate.core.errors import MissingExtraError, OptionError

Budget = int | float | str | None  # visual tokens; a share of them below 1; "auto"; None for the stock answer
KEPT = "+kept"  # behind a budget: the vision encoder sees kept tokens alone
SHARES = {"all": 1.0, "25 %": 0.25, "6.7 %": 1 / 15}
BFLOAT16 = 2  # bytes
USED, RESERVED = 0.92, 3e9  # vLLM's share of the memory (its default); what its steps take besides (an assumption)
SLOTS = {True: 1024, False: 256}  # requests at a time that vLLM's server allows, from 70 GiB on and below
COLUMNS = (
    "image", "kept", "prefill", "and encoding", "of kept alone", "keys and values", "fit at a time",
    "first token of a new image", "of all", "kept alone", "of all", "new images", "of all", "kept alone", "of all",
    "features kept", "of all", "prefix kept",
)  # fmt: skip


def measure(
    url: Annotated[str, typer.Option(help="An OpenAI-compatible server.")] = "http://localhost:8000",
    model: Annotated[str, typer.Option(help="Its name there [default: the first that the server lists].")] = "",
    images: Annotated[Path | None, typer.Option(help="A folder of photographs [default: bundled ones].")] = None,
    budgets: Annotated[
        str, typer.Option(help="Shares of the visual tokens, numbers of them, auto or none; 0.25+kept: encoded alone.")
    ] = "none",
    concurrency: Annotated[int, typer.Option(help="Requests at a time.")] = 8,
    requests: Annotated[int, typer.Option(help="Requests of a round, for each budget.")] = 64,
    rounds: Annotated[int, typer.Option(help="Rounds; in each of them all budgets have their turn.")] = 3,
    per_image: Annotated[int, typer.Option(help="Questions about each image.")] = 1,
    max_tokens: Annotated[int, typer.Option(help="Tokens of an answer.")] = 32,
    fixed: Annotated[bool, typer.Option(help="Send ignore_eos, so that all answers have that length.")] = True,
    textures: Annotated[
        str, typer.Option(help="No server: new images a second through vLLM's renderer, by processes (0,1,2,4).")
    ] = "",
    engine: Annotated[
        Path | None, typer.Option(help="A checkpoint, or new: vLLM in this process, CPU seconds to a first token.")
    ] = None,
    stock: Annotated[
        bool, typer.Option("--stock", help="With --engine: no budget, in an engine with foveate and in one without.")
    ] = False,
    arithmetic: Annotated[bool, typer.Option("--arithmetic", help="Only what needs no server.")] = False,
    tokens: Annotated[str, typer.Option(help="Arithmetic: visual tokens of an image.")] = "1024,2691",
    device: Annotated[
        str, typer.Option(help="Arithmetic: TFLOP/s in bfloat16, GB/s and GB, of a data sheet.")
    ] = "989,3350,80",
    reached: Annotated[float, typer.Option(help="Arithmetic: the share of both rates that is reached.")] = 0.5,
) -> dict[str, Any]:
    """A server of vision-language models under load, by budget; or what arithmetic expects of fewer tokens."""
    check_int("--max-tokens", max_tokens)
    if arithmetic:
        return expect(parse_numbers("--tokens", tokens), max_tokens, parse_device(device, reached))
    if textures and find_spec("vllm") is None:
        raise MissingExtraError(
            "--textures without vLLM", expected="vLLM", fix="make serving; .venv/serving/bin/python"
        )
    if textures:
        from benchmarks import renderers

        counts = [check_int("--textures", count, 0) for count in parse_numbers("--textures", textures)]
        return renderers.measure(counts, images, check_int("--requests", requests), check_int("--rounds", rounds))
    if engine is not None:
        from benchmarks import serving_engine

        if stock:
            asked = check_int("--requests", requests), check_int("--rounds", rounds), max_tokens
            return serving_engine.beside_stock(engine, images, *asked)
        return serving_engine.measure(engine, images, parse_budgets(budgets), requests)
    if find_spec("httpx") is None:
        raise MissingExtraError("a load needs httpx, which is not installed", expected="httpx", fix="pip install httpx")
    from benchmarks import serving_clients

    load = serving_clients.Load(
        url=url,
        model=model,
        images=images,
        budgets=parse_budgets(budgets),
        concurrency=check_int("--concurrency", concurrency),
        requests=check_int("--requests", requests),
        rounds=check_int("--rounds", rounds),
        per_image=check_int("--per-image", per_image),
        max_tokens=max_tokens,
        fixed=fixed,
    )
    return serving_clients.measure(load)


@dataclass(frozen=True)
class Asked:
    """What is asked of each image: a budget, and whether kept tokens are encoded alone."""

    budget: Budget = None
    alone: bool = False

    def keywords(self, tokens: int | None) -> dict[str, object]:
        """Of a request about an image of so many visual tokens."""
        share = isinstance(self.budget, float)
        budget = max(1, round(float(self.budget or 0) * (tokens or 1))) if share else self.budget
        return {"foveate_budget": budget, **({"foveate_encode": "kept"} if self.alone else {})}

    def __str__(self) -> str:
        name = "none" if self.budget is None else self.budget
        return (f"{name:.3g} of all" if isinstance(name, float) else str(name)) + ", alone" * self.alone


def parse_budgets(text: str) -> tuple[Asked, ...]:
    """`none,0.25,64+kept,auto`. Raises OptionError."""
    words = [word.strip() for word in text.split(",")]
    return tuple(Asked(_parse_budget(word.removesuffix(KEPT)), word.endswith(KEPT)) for word in words)


def _parse_budget(word: str) -> Budget:
    if word == "none":
        return None
    if word == "auto" or (word.isdecimal() and int(word) > 0):
        return word if word == "auto" else int(word)
    try:
        share = float(word)
    except ValueError:
        share = 0
    if 0 < share < 1:
        return share
    raise OptionError(
        f"--budgets {word}",
        expected="shares between 0 and 1, whole numbers of visual tokens, auto or none, with commas between",
        fix="none,0.25,0.067, say",
    )


# --- arithmetic ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TowerSizes:
    """Of a vision encoder with windows. whole: layers that see the whole image. window: patches. merged: a token's."""

    layers: int
    width: int
    inner: int
    whole: int
    window: int
    patch: int
    merged: int
    out: int

    @property
    def parameters(self) -> int:
        """Of the products: those of a layer, of patches, and of what merges four patches into a token."""
        layer = 4 * self.width * self.width + 3 * self.width * self.inner
        merger = self.merged * self.width
        return self.layers * layer + self.patch * self.width + merger * merger + merger * self.out

    def flops(self, tokens: int) -> float:
        """Of an image: 2 a weight and patch (the merger's: and token); attention within windows, or over the image."""
        patches, merger = self.merged * tokens, self.merged * self.width
        merging = merger * (merger + self.out)
        seen = self.whole * patches + (self.layers - self.whole) * min(self.window, patches)
        return 2 * ((self.parameters - merging) * patches + merging * tokens) + 4 * self.width * patches * seen


# config.json of Qwen/Qwen2.5-VL-7B-Instruct (random_vlm.py has them, too, and needs torch; a test holds them equal)
TEXT = Sizes(layers=28, width=3584, inner=18944, keys=4 * 128, words=152064)
TOWER = TowerSizes(
    layers=32, width=1280, inner=3420, whole=4, window=64, patch=3 * 2 * 14 * 14, merged=4, out=3584
)  # fmt: skip


@dataclass(frozen=True)
class DataSheet:
    """Of a device: flops and bytes a second that are reached, bytes of memory."""

    flops: float
    bandwidth: float
    memory: float


def parse_device(text: str, reached: float) -> DataSheet:
    """`989,3350,80` and the share of both rates that is reached. Raises OptionError."""
    words = text.split(",")
    try:
        flops, bandwidth, memory = (check_number("--device", float(word), 1e-3, None) for word in words)
    except ValueError:
        raise OptionError(
            f"--device {text}", expected="three numbers: TFLOP/s, GB/s, GB", fix="989,3350,80 is an H100 SXM"
        ) from None
    share = check_number("--reached", reached, 1e-3)
    return DataSheet(1e12 * flops * share, 1e9 * bandwidth * share, 1e9 * memory)


def expect(images: list[int], answer: int, device: DataSheet) -> dict[str, Any]:
    """Report: what requests cost by image and share, and how many a second a device does at most."""
    rows = []
    for tokens in images:
        check_int("--tokens", tokens)
        first: dict[str, float] = {}
        for name, share in SHARES.items():
            kept = max(1, round(tokens * share))
            cost = cost_of(tokens, kept, answer, device)
            first = first or cost
            known = "" if kept == tokens else f"{cost['features']:.3g}/s"
            cells = [
                str(tokens), f"{kept} ({name})", f"{cost['prefill'] / 1e12:.1f} TFLOP", f"{cost['both'] / 1e12:.1f}",
                f"{cost['alone'] / 1e12:.1f}", f"{cost['bytes'] / 1e6:.1f} MB", f"{cost['fit']:,.0f}",
                f"{1e3 * cost['first']:.1f} ms", f"{first['first'] / cost['first']:.1f} x",
                f"{1e3 * cost['first alone']:.1f} ms", f"{first['first'] / cost['first alone']:.1f} x",
                f"{cost['new']:.3g}/s", f"{cost['new'] / first['new']:.1f} x",
                f"{cost['new alone']:.3g}/s", f"{cost['new alone'] / first['new']:.1f} x",
                known, known and f"{cost['features'] / first['new']:.1f} x", f"{cost['prefix']:.3g}/s",
            ]  # fmt: skip
            rows.append({"cells": cells, "tokens": tokens, "kept": kept, **cost})
    title = (
        f"Qwen2.5-VL-7B in bfloat16, {PROMPT} tokens of text, answers of {answer}: arithmetic, at "
        f"{device.flops / 1e12:.0f} TFLOP/s, {device.bandwidth / 1e9:,.0f} GB/s, {device.memory / 1e9:.0f} GB"
    )
    return {"title": title, "columns": COLUMNS, "rows": rows}


def cost_of(tokens: int, kept: int, answer: int, device: DataSheet) -> dict[str, float]:
    """A request about an image of so many visual tokens, of which some are kept.

    Returns flops of its `prefill`, of `both` encoding and prefill, and of both where kept tokens are encoded `alone`;
    `bytes` of keys and values at its end; how many `fit` into the memory beside the weights; seconds of a `first` token
    of a request that is alone, at least (weights are read once); requests a second about images that are `new`, whose
    `features` the engine has kept, and whose tokens (with what stands before them) are in its `prefix` cache.
    """
    length = PROMPT + kept
    weights = BFLOAT16 * (TEXT.layers * TEXT.layer + 2 * TEXT.width * TEXT.words + TOWER.parameters)
    a_token = BFLOAT16 * 2 * TEXT.layers * TEXT.keys
    held = a_token * (length + answer)
    fit = max(0.0, USED * device.memory - weights - RESERVED) // held
    at_once = max(1.0, min(fit, SLOTS[device.memory >= 70 * 2**30]))
    prefill, encoding, some = TEXT.flops(1, length), TOWER.flops(tokens), TOWER.flops(kept)
    read = BFLOAT16 * (TEXT.layers * TEXT.layer + TEXT.width * TEXT.words) / at_once + a_token * (length + answer / 2)
    computed = 2 * (TEXT.layers * (TEXT.layer + 2 * TEXT.width * (length + answer / 2)) + TEXT.width * TEXT.words)
    answering = answer * max(read / device.bandwidth, computed / device.flops)
    texts, tower = BFLOAT16 * (TEXT.layers * TEXT.layer + TEXT.width * TEXT.words), BFLOAT16 * TOWER.parameters

    def begin(encoding: float) -> float:
        """Each of the two models takes as long as its products, or as its weights."""
        both = (encoding, tower), (prefill, texts)
        return sum(max(flops / device.flops, read / device.bandwidth) for flops, read in both)

    return {
        "prefill": prefill,
        "both": prefill + encoding,
        "alone": prefill + some,
        "first": begin(encoding),
        "first alone": begin(some),
        "bytes": held,
        "fit": fit,
        "new": 1 / ((prefill + encoding) / device.flops + answering),
        "new alone": 1 / ((prefill + some) / device.flops + answering),
        "features": 1 / (prefill / device.flops + answering),
        "prefix": 1 / (TEXT.flops(1, PROMPT) / device.flops + answering),
    }
