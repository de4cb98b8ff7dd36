"""Many clients of an OpenAI-compatible server: how many requests a second, when an answer begins and when it ends."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.common import PHOTOS
from benchmarks.serving import Asked
from foveate.core.errors import FoveateError, OptionError
from foveate.core.image import load_image

Pixels = NDArray[np.uint8]
WAIT = 600.0  # seconds that a client waits for an answer
QUESTIONS = (
    "what is the person holding?", "which colour is the car?", "is there a dog in the picture?", "what lies there?",
    "what does the sign say?", "where is the tree?", "how many cups are there?", "what stands beside the door?",
)  # fmt: skip
COLUMNS = (
    "budget", "visual tokens", "prompt", "requests/s", "of the first", "first token, 50 %", "99 %", "whole, 50 %",
    "99 %", "failed",
)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """What is asked of a server; as the options of `python -m benchmarks serving`."""

    url: str
    model: str
    images: Path | None
    budgets: tuple[Asked, ...]
    concurrency: int
    requests: int
    rounds: int
    per_image: int
    max_tokens: int
    fixed: bool


@dataclass(frozen=True)
class Answered:
    """Seconds until an answer's first token and to its end; tokens of the prompt and of the answer."""

    first: float
    whole: float
    prompt: int
    tokens: int


@dataclass(frozen=True)
class Photo:
    """Pixels of a photograph, and the visual tokens that the model has for it where a budget is a share of them."""

    rgb: Pixels
    tokens: int | None = None


def measure(load: Load) -> dict[str, Any]:
    """Report of a load. Raises OptionError for a server that cannot be asked."""
    return asyncio.run(_measure(load))


async def _measure(load: Load) -> dict[str, Any]:
    limits = httpx.Limits(max_connections=load.concurrency, max_keepalive_connections=load.concurrency)
    async with httpx.AsyncClient(base_url=load.url, timeout=WAIT, limits=limits) as client:
        model = load.model or await _first_model(client)
        photos = read_photos(load.images)
        if any(isinstance(asked.budget, float) for asked in load.budgets):
            photos = [Photo(photo.rgb, await count_visual_tokens(client, load, model, photo.rgb)) for photo in photos]
        starts = itertools.count(secrets.randbelow(10**9), load.requests)  # each turn shows the same, shifted otherwise
        walls: dict[int, list[float]] = {number: [] for number in range(len(load.budgets))}
        found: dict[int, list[Answered | str]] = {number: [] for number in range(len(load.budgets))}
        for turn in range(load.rounds + 1):  # one to warm up
            for number, asked in enumerate(load.budgets):
                copies = shifted(photos, next(starts))
                bodies = make_bodies(load, model, asked, copies, load.requests if turn else load.concurrency)
                wall, said = await _press(client, bodies, load.concurrency)
                if turn:
                    walls[number].append(wall)
                    found[number] += said
    rows = [
        make_row(load, asked, walls[number], found[number], walls[0], photos)
        for number, asked in enumerate(load.budgets)
    ]
    title = (
        f"{model}: {load.concurrency} requests at a time, {load.rounds} rounds of {load.requests}, "
        f"{load.per_image} about each image, answers of {load.max_tokens} tokens"
    )
    return {"title": title, "columns": COLUMNS, "rows": rows, "url": load.url, "model": model}


# --- requests -----------------------------------------------------------------------------------------------------


def read_photos(folder: Path | None) -> list[Photo]:
    """Photographs of a folder, or the bundled ones. What is no image is left out. Raises OptionError for none."""
    photos = []
    for file in sorted((folder or PHOTOS).iterdir()) if (folder or PHOTOS).is_dir() else ():
        try:
            photos.append(Photo(load_image(file).rgb))
        except (FoveateError, OSError):
            continue
    if not photos:
        raise OptionError(f"--images {folder}", expected="a folder with photographs", fix="name another folder")
    return photos


def shifted(photos: Sequence[Photo], start: int = 1) -> Iterator[Photo]:
    """The photographs in turn, without end, each time shifted otherwise: as many tokens, and unknown to any cache.

    start: of the shifts, another one in each turn and run, as a server's caches outlive them.
    """
    for number in itertools.count(start):
        for photo in photos:
            down, right = divmod(number, photo.rgb.shape[1])
            yield Photo(np.roll(photo.rgb, (down, right), (0, 1)), photo.tokens)


def make_bodies(load: Load, model: str, asked: Asked, copies: Iterator[Photo], count: int) -> list[bytes]:
    """Requests, ready to be sent: `per_image` questions about each image."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        photo = next(copies)
        url = data_url(photo.rgb)
        for _ in range(min(load.per_image, count - len(bodies))):
            question = QUESTIONS[len(bodies) % len(QUESTIONS)]
            keywords = asked.keywords(photo.tokens) if set(load.budgets) != {Asked()} else None
            bodies.append(make_body(model, url, question, load.max_tokens, keywords, load.fixed))
    return bodies


def make_body(
    model: str, url: str, question: str, max_tokens: int, asked: Mapping[str, object] | None, fixed: bool
) -> bytes:
    """A chat request about an image. `asked`: keywords for the processor; None sends no such field."""
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    body: dict[str, Any] = {
        "model": model, "messages": [{"role": "user", "content": content}], "max_tokens": max_tokens, "temperature": 0,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    if asked is not None:
        body["mm_processor_kwargs"] = asked
    if fixed:
        body["ignore_eos"] = True
    return json.dumps(body).encode()


def data_url(rgb: Pixels) -> str:
    """A JPEG within a text."""
    file = BytesIO()
    Image.fromarray(rgb).save(file, "JPEG", quality=90)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


async def count_visual_tokens(client: httpx.AsyncClient, load: Load, model: str, rgb: Pixels) -> int:
    """Visual tokens of an image: how much longer the prompt is with all of them than with one. Raises OptionError."""
    lengths = []
    for budget in (None, 1):
        body = make_body(model, data_url(rgb), QUESTIONS[0], 1, {"foveate_budget": budget}, load.fixed)
        said = await send(client, body)
        if isinstance(said, str):
            raise OptionError(f"--url {load.url}: {said}", expected="an answer", fix="see what the server's log says")
        lengths.append(said.prompt)
    if lengths[0] <= lengths[1]:
        raise OptionError(
            f"--url {load.url}: {lengths[0]} tokens in a prompt without a budget, {lengths[1]} with a budget of 1",
            expected="a server with foveate, which shortens prompts",
            fix="install 'foveate[vllm]' beside the server, or pass --budgets none",
        )
    return lengths[0] - lengths[1] + 1


async def _first_model(client: httpx.AsyncClient) -> str:
    try:
        answer = await client.get("/v1/models")
        return str(answer.raise_for_status().json()["data"][0]["id"])
    except (httpx.HTTPError, LookupError, ValueError) as cause:
        raise OptionError(
            f"--url {client.base_url}: {cause!r}",
            expected="an OpenAI-compatible server, which lists its models at /v1/models",
            fix="start one, `vllm serve NAME`, or name its --url",
        ) from None


async def _press(
    client: httpx.AsyncClient, bodies: Sequence[bytes], concurrency: int
) -> tuple[float, list[Answered | str]]:
    """Send them, so many at a time. -> seconds of all, and what came of each."""
    waiting, said = iter(bodies), list[Answered | str]()

    async def go_on() -> None:
        for body in waiting:
            said.append(await send(client, body))

    start = time.perf_counter()
    await asyncio.gather(*(go_on() for _ in range(concurrency)))
    return time.perf_counter() - start, said


async def send(client: httpx.AsyncClient, body: bytes) -> Answered | str:
    """Send a request and read its answer as it comes. -> what came, or what went wrong."""
    start, first, usage = time.perf_counter(), None, None
    try:
        headers = {"Content-Type": "application/json"}
        async with client.stream("POST", "/v1/chat/completions", content=body, headers=headers) as answer:
            if answer.is_error:
                return f"{answer.status_code}: {(await answer.aread()).decode(errors='replace')[:300]}"
            async for line in answer.aiter_lines():
                if not line.startswith("data:") or line.endswith("[DONE]"):
                    continue
                event = json.loads(line.removeprefix("data:"))
                if "error" in event:
                    return str(event["error"])[:300]
                usage = event.get("usage") or usage
                if first is None and any(map(_says_something, event.get("choices", ()))):
                    first = time.perf_counter() - start
    except (httpx.HTTPError, ValueError) as cause:
        return repr(cause)
    if first is None or usage is None:
        return "an answer without its end, or without its usage"
    return Answered(first, time.perf_counter() - start, usage["prompt_tokens"], usage["completion_tokens"])


def _says_something(choice: Mapping[str, Any]) -> bool:
    """Whether a part of an answer holds a token: the very first holds only who speaks."""
    said = any(value for name, value in (choice.get("delta") or {}).items() if name != "role")
    return said or choice.get("finish_reason") is not None


# --- a row --------------------------------------------------------------------------------------------------------


def make_row(
    load: Load,
    asked: Asked,
    walls: Sequence[float],
    found: Sequence[Answered | str],
    first: Sequence[float],
    photos: Sequence[Photo],
) -> dict[str, Any]:
    """A row of COLUMNS. walls, first: seconds of each round, of this budget and of the first one."""
    good = [each for each in found if isinstance(each, Answered)]
    bad = [each for each in found if isinstance(each, str)]
    name, budget = str(asked), asked.budget
    shares = [photo.tokens for photo in photos if photo.tokens]
    kept = str(round(budget * float(np.mean(shares)))) if isinstance(budget, float) else ""
    kept = str(round(float(np.mean(shares)))) if budget is None and shares else kept or str(budget or "all")
    if not good:
        raise OptionError(
            f"--url {load.url}, budget {name}: {bad[0] if bad else 'no answer'}",
            expected="an answer",
            fix="see what the server's log says",
        )
    rate = float(np.median([load.requests / wall for wall in walls])) * len(good) / len(found)
    begun, ended = _middle_and_end([one.first for one in good]), _middle_and_end([one.whole for one in good])
    beside = float(np.median([before / wall for before, wall in zip(first, walls, strict=True)]))
    prompt = float(np.mean([one.prompt for one in good]))
    cells = [
        name, kept, f"{prompt:.0f}", f"{rate:.3g}", f"{beside:.2f} x", f"{begun[0]:.0f} ms", f"{begun[1]:.0f} ms",
        f"{ended[0]:.0f} ms", f"{ended[1]:.0f} ms", str(len(bad)),
    ]  # fmt: skip
    return {
        "cells": cells, "budget": budget, "alone": asked.alone, "rate": rate, "walls": list(walls), "prompt": prompt,
        "tokens": float(np.mean([one.tokens for one in good])), "first_ms": begun, "whole_ms": ended,
        "answered": len(good), "failed": len(bad), "messages": sorted(set(bad))[:3],
    }  # fmt: skip


def _middle_and_end(seconds: Sequence[float]) -> list[float]:
    """Half of the answers, and 99 of a hundred, came within so many milliseconds."""
    return [float(1e3 * each) for each in np.percentile(seconds, [50, 99])]
