"""vLLM's OpenAI-compatible server over a tiny model in a folder: processes of its own, asked over HTTP."""

from __future__ import annotations

import base64
import io
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil  # type: ignore[import-untyped]
from numpy.typing import NDArray
from PIL import Image

START = 400  # seconds, at most; two busy cores took 110
COMMAND = [
    "serve", "--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager",
    "--block-size", "32", "--max-num-seqs", "32", "--max-num-batched-tokens", "2048", "--max-logprobs", "200",
    "--limit-mm-per-prompt", '{"image": 2}', "--logprobs-mode", "raw_logprobs",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Server:
    """Attributes:
    url: where it listens.
    process: the first of its processes.
    log: what they print.
    """

    url: str
    process: psutil.Process
    log: Path

    def ask(self, body: Mapping[str, Any], seconds: float = 120) -> httpx.Response:
        """The answer to a chat request."""
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=seconds)

    def counts(self) -> dict[str, float]:
        """What /metrics shows: name and labels -> number."""
        lines = httpx.get(f"{self.url}/metrics", timeout=60).text.splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(number) for name, _, number in pairs}

    def memory(self) -> int:
        """Bytes of all processes that are theirs alone."""
        every = [self.process, *self.process.children(recursive=True)]
        return sum(one.memory_full_info().uss for one in every)


@contextmanager
def start_server(folder: Path, scratch: Path, *flags: str, **environment: str) -> Iterator[Server]:
    """A server, until the block ends. `scratch`: a folder for its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", *COMMAND, "--port", str(port), *flags]
    command.insert(4, str(folder))
    around = {
        **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_LOGGING_LEVEL": "INFO", "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(sys.path), **environment,
    }  # fmt: skip
    log = scratch / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=around, stdout=out, stderr=out, start_new_session=True)
    server = Server(f"http://127.0.0.1:{port}", psutil.Process(process.pid), log)
    try:
        wait_until_it_answers(server, process)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_it_answers(server: Server, process: subprocess.Popen[bytes]) -> None:
    """Raises AssertionError with the end of the log."""
    deadline = time.monotonic() + START
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.HTTPError):
            if httpx.get(f"{server.url}/health", timeout=5).is_success:
                return
        time.sleep(0.5)
    raise AssertionError(server.log.read_text(errors="replace")[-4000:])


def chat(text: str, images: Sequence[NDArray[np.uint8]] = (), keywords: Any = None, **more: Any) -> dict[str, Any]:
    """The body of a chat request, which generates four tokens and tells the probable ones."""
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in images]
    body = {
        "model": "tiny", "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}],
        "max_tokens": 4, "temperature": 0, "ignore_eos": True, "logprobs": True, "top_logprobs": 20,
    }  # fmt: skip
    return {**body, **more} if keywords is None else {**body, "mm_processor_kwargs": keywords, **more}


def data_url(image: NDArray[np.uint8]) -> str:
    """An image as a request has it, without loss."""
    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
