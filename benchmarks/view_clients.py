"""Many clients of the viewer at a time: what they wait, what goes wrong, and whether the server's memory stays flat.

Each is a person in a hurry: opens a photograph, looks at it, asks a question, takes the next, without a pause.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.common import PHOTOS, make_row, time_row
from foveate.view.wire import unpack

QUESTIONS = ("a bus", "the cake on the table", "a child's hand", "what does the sign say?", "broccoli", "a violin")
WAIT = 120  # seconds that a client waits for an answer


@dataclass
class Load:
    """What came of the requests. seconds: of each that was answered. wrong: what was said of the others."""

    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


async def press(address: str, clients: int, seconds: float = WAIT, rounds: int | None = None) -> Load:
    """So many clients, for some time, or until each has done some rounds of four requests."""
    load, end = Load(), time.perf_counter() + seconds
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=WAIT) as asked:
        await asyncio.gather(*(_client(asked, number, end, rounds, load) for number in range(clients)))
    return load


async def _client(asked: httpx.AsyncClient, number: int, end: float, rounds: int | None, load: Load) -> None:
    photos = sorted(PHOTOS.glob("*.jpg"))
    for turn in itertools.count() if rounds is None else range(rounds):
        if time.perf_counter() > end:
            return
        content = photos[(number + turn) % len(photos)].read_bytes()
        made = await _ask(asked, load, "POST", "/api/images", content=content)
        if made is None:
            continue
        id = made.json()["id"]
        await _ask(asked, load, "GET", f"/api/images/{id}")
        await _ask(asked, load, "GET", f"/api/images/{id}/pixels")
        question = QUESTIONS[(number + turn) % len(QUESTIONS)]
        said = await _ask(asked, load, "POST", "/api/score", json={"image": id, "query": question})
        if said is not None and unpack(said.content)[0]["query"] != question:
            load.wrong.append(f"the answer to another question than {question!r}")


async def _ask(asked: httpx.AsyncClient, load: Load, method: str, path: str, **how: Any) -> httpx.Response | None:
    start = time.perf_counter()
    try:
        answer = await asked.request(method, path, **how)
    except httpx.HTTPError as error:
        load.wrong.append(f"{method} {path}: {error!r}")
        return None
    if answer.is_error:
        load.wrong.append(f"{method} {path}: {answer.status_code}")
        return None
    load.seconds.append(time.perf_counter() - start)
    return answer


def resident(process: int) -> float:
    """Memory of a process in MB, of Linux."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(process)


def client_rows(address: str, process: int, clients: int, seconds: float) -> list[dict[str, Any]]:
    """Rows of a run: a third of the time to warm up, then memory before and after the rest."""
    asyncio.run(press(address, clients, seconds / 3))
    before = resident(process)
    load = asyncio.run(press(address, clients, seconds))
    after, name = resident(process), f"{clients} clients for {seconds:g} s"
    return [
        make_row(f"{name}: requests answered", len(load.seconds), f"{len(load.seconds):,}"),
        make_row("  and not answered", len(load.wrong), ", ".join([f"{len(load.wrong)}", *load.wrong[:3]]), "0"),
        time_row("  from a request to its answer", np.array(load.seconds), "ms", slow=99),
        make_row("  memory of the server before", before, f"{before:.0f} MB"),
        make_row("  and after", after, f"{after:.0f} MB"),
    ]
