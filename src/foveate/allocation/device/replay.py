"""A batch that is asked again and again: everything after the text vectors as one captured CUDA graph.

    replay = Replay(stack(textures, "cuda"), questions=1, budget=273)
    replay("a dog").indices                          # int64 [b, 1, 273]: foveate.allocate's cells, on the device

A call copies the vectors into a buffer that stays, and launches the graph: Python waits for nothing. What it returns
are buffers too, which the next call overwrites: `clone()` what is kept. One Replay serves one thread.

On the CPU there is no graph: the same functions are called, with the same results. The first call is the slow
one: it makes what a capture makes, tables that stay with the texture.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.allocation.allocation import check_floor
from foveate.allocation.device.fused import How, KeptRows, as_vectors, ask_tensors, check_vectors, select
from foveate.allocation.device.keeping import rank_of
from foveate.allocation.device.results import trust_of
from foveate.allocation.device.scoring import check_supported, maps_of
from foveate.core.checks import check_choice, check_int
from foveate.core.devices import captured, counting, working_on
from foveate.core.errors import BudgetError, DeviceError, OptionError
from foveate.core.failures import explain_device
from foveate.encoders.load import match_encoder
from foveate.encoders.protocol import Encoder
from foveate.language.query import prepare
from foveate.relevance.fusion import parse_options
from foveate.texture.tensors import FEWER, OnDevice, check_texture

Rule = Literal["allocate", "scores"]


class Replay:
    """Questions of a plain thing for a batch of textures, as one graph.

    Args:
        texture: DeviceTexture or DeviceTextures. Its tensors are read where they lie; if somebody writes into them, the
            next call says so.
        questions: how many at a time, exactly.
        budget: cells that are kept for each image and question.
        rule: "allocate" keeps what `foveate.allocate(foveate.score(...))` keeps, with segments, trust and spread;
            "scores" the highest plain scores (`fused.ask`), which is one kernel.
        floor: as of `foveate.allocate`; of "allocate".
        encoder: as of `foveate.score`.
        how: as of `fused.ask`.

    Raises:
        OptionError, BudgetError, DeviceError: the arguments; or "allocate" of an encoder with negatives, of words that
        were read, of a preset with channels or a prior: ask these with `foveate.score`.
    """

    def __init__(
        self,
        texture: OnDevice,
        questions: int = 1,
        budget: int = 273,
        *,
        rule: Rule = "allocate",
        floor: float | None = None,
        encoder: str | Encoder | None = None,
        how: How = "auto",
    ) -> None:
        self.texture = check_texture(texture)
        self.questions = check_int("questions", questions)
        cells = texture.grid.count
        self.budget = check_int("budget", budget, 1, cells, fix=f"a number from 1 to {cells}", error=BudgetError)
        self.rule, self.how, self.floor = check_choice("rule", rule, ("allocate", "scores")), how, check_floor(floor)
        self.encoder = match_encoder(texture.textures[0].encoder, encoder)
        self.smoothing = _smoothing(texture, self.encoder) if rule == "allocate" else 0.0
        self._replay: Callable[[Tensor], KeptRows] | None = None
        with self._explained(), counting():  # buffers that may be written into in any mode
            self._vectors = torch.zeros(questions, self.encoder.width, device=texture.device)
            if texture.device.type == "cuda":
                self._host = torch.zeros(questions, self.encoder.width, pin_memory=True)
                self._sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._replay = captured(self._work, self._vectors)

    def __repr__(self) -> str:
        kind = "a graph" if self._replay is not None else "plain calls"
        return f"Replay({self.questions} of {self.texture!r}, budget {self.budget}, {self.rule}: {kind})"

    def __call__(self, question: str | Sequence[str] | NDArray[np.floating] | Tensor) -> KeptRows:
        """The kept cells of each image and question: indices, scores and rows, as of KeptRows.

        Args:
            question: as many texts as `questions` says, each of one plain thing; or text vectors [questions, D], a
                tensor on the texture's device or NumPy's.

        Raises:
            OptionError: another number of questions, one that is not plain ("the red car", "a dog and a cat"), or
            vectors of another width or type; NumPy's that are not finite (a tensor is not looked into).
            DeviceError: vectors on another device, or a texture that somebody wrote into.
        """
        self.texture.check_unchanged()
        device, (questions, width) = self.texture.device, self._vectors.shape
        vectors = self._read(question) if isinstance(question, str | Sequence) else question
        vectors = check_vectors(vectors, width, device)
        if len(vectors) != questions:
            raise OptionError(
                f"{len(vectors)} at a time, asked of a Replay of {questions}",
                expected=f"exactly {questions} at a time: texts, or text vectors [{questions}, {width}]",
                fix=f"Replay(texture, questions={max(1, len(vectors))}, ...) takes so many; or ask several times, and "
                "fill up with any question, whose answer you leave out",
            )
        with self._explained():
            if self._replay is None:
                return self._work(as_vectors(vectors, width, device))
            with working_on(device), counting():
                if isinstance(vectors, Tensor):
                    return self._replay(vectors)
                self._sent.synchronize()  # those of the last question have left the buffer
                self._host.numpy()[:] = vectors
                self._vectors.copy_(self._host, non_blocking=True)
                self._sent.record()
                return self._replay(self._vectors)

    def _explained(self) -> AbstractContextManager[None]:
        return explain_device(f"{self.questions} questions of {self.texture!r}", self.texture.device, FEWER)

    def _read(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        queries = [prepare(self.encoder, text) for text in ([texts] if isinstance(texts, str) else texts)]
        for query in queries:
            if not query.plain:
                raise OptionError(
                    f"{query.text!r}, of which a graph sees only {', '.join(map(repr, query.phrases))}",
                    expected="one plain thing: 'a dog'; no list, no property, no place, no word that uses a channel",
                    fix="foveate.score(texture, question) on the same texture asks it",
                )
        return np.concatenate([np.zeros((0, self.encoder.width), np.float32), *(query.vectors for query in queries)])

    def _work(self, vectors: Tensor) -> KeptRows:
        texture = self.texture
        if self.rule == "scores":
            return ask_tensors(texture, vectors, self.budget, None, how=self.how)
        maps, confidence = maps_of(texture, vectors, self.encoder.calibration, self.smoothing)
        keys, _ = rank_of(texture, maps, trust_of(confidence, torch.zeros_like(confidence)), self.budget, self.floor)
        indices = select(keys, self.budget, how=self.how)
        image = torch.arange(len(maps), device=maps.device)[:, None, None]
        return KeptRows(indices, maps.gather(-1, indices), texture.tensors.table[image, indices])


def _smoothing(texture: OnDevice, encoder: Encoder) -> float:
    """The share of segments that a plain question goes by. Raises DeviceError where there is more than that to it."""
    if encoder.calibration.contrast > 0:
        raise DeviceError(
            f"a graph for the encoder {encoder.name!r}, whose questions compete with negatives",
            expected="an encoder of absolute scores (nano), or rule='scores'",
            fix="foveate.score(texture, question) on the same texture asks it",
        )
    every = [parse_options(each, {}) for each in texture.textures]
    check_supported(texture, every[0])
    if (
        any(each.channel_weights or each.least or each.prior is not None for each in every)
        or len({e.smoothing for e in every}) > 1
    ):
        raise DeviceError(
            f"a graph for textures with the preset {every[0].preset!r}, which mixes channels or a prior into the map",
            expected="textures that are asked without them, or rule='scores'",
            fix="foveate.score(texture, question) on the same texture asks it",
        )
    return every[0].smoothing
