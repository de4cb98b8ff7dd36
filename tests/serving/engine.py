"""vLLM's engine over a tiny model in a folder, and `foveate.vlm` over the same folder: both must say the same.

All in one process, float32, on the CPU. Heads are 32 wide, as vLLM's attention on the CPU asks.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from foveate.serving.request import parse_request
from foveate.serving.selection import select_rows
from foveate.vlm import VLM, Choosing, EncodedImage, load
from foveate.vlm.inputs.generation import with_positions
from foveate.vlm.inputs.prompt import prompt_text
from foveate.vlm.select.methods import choose_tokens
from tests.vlm_models import VOCABULARY, photo

STEPS = 4  # tokens that are generated
SAME = 1e-5  # log-probabilities of two engines in float32: 7.7e-6 were seen


@dataclass(frozen=True, eq=False)
class Ask:
    """A request. `keywords`: its mm_processor_kwargs; none is a stock request."""

    question: str
    images: Sequence[NDArray[np.uint8]] = field(default_factory=lambda: (photo(),))
    keywords: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Said:
    """An answer.

    Attributes:
        ids: of the generated tokens.
        logprobs: of the whole vocabulary at each of them, [steps, VOCABULARY].
        length: tokens of the prompt.
        cached: of them, those whose keys and values were there; 0 for `foveate.vlm`, which keeps none.
    """

    ids: list[int]
    logprobs: NDArray[np.float64]
    length: int
    cached: int = 0


@dataclass(frozen=True, eq=False)
class Engine:
    """Attributes:
    llm: `vllm.LLM`, with the plug-in.
    vlm: the same folder in `foveate.vlm`.
    """

    llm: Any
    vlm: VLM

    @property
    def model(self) -> Any:
        """The model class's instance in the engine: stock, with our mixin before it."""
        return self.llm.apply_model(lambda model: model)[0]

    def ask(self, *asked: Ask, steps: int = STEPS) -> list[Said]:
        """Answers of the engine, so many tokens each; the requests are one batch."""
        from vllm import SamplingParams

        how = SamplingParams(max_tokens=steps, temperature=0, logprobs=VOCABULARY, ignore_eos=True)
        outputs = self.llm.generate([self.prompt(each) for each in asked], how, use_tqdm=False)
        return [self.read(output) for output in outputs]

    def prompt(self, ask: Ask) -> dict[str, Any]:
        """A request as `vllm.LLM.generate` takes it."""
        images = [Image.fromarray(image) for image in ask.images]
        text = prompt_text(self.vlm.processor, ask.question, len(images), None)
        prompt: dict[str, Any] = {"prompt": text, "multi_modal_data": {"image": images}}
        return prompt if not ask.keywords else {**prompt, "mm_processor_kwargs": ask.keywords}

    @staticmethod
    def read(output: Any) -> Said:
        """An answer out of vLLM's output."""
        (one,) = output.outputs
        found = [[step[token].logprob for token in range(VOCABULARY)] for step in one.logprobs]
        return Said(list(one.token_ids), np.array(found), len(output.prompt_token_ids), output.num_cached_tokens)

    def expect(self, ask: Ask, steps: int = STEPS) -> Said:
        """What `foveate.vlm` answers, one request alone. Of several images, what each has of the budget is served's.

        Tokens are compared by how they look, as where they are chosen the model's features are not at hand.
        """
        ours = {name.removeprefix("foveate_"): value for name, value in ask.keywords.items()}
        mode: Literal["sparse", "drop"] = "sparse" if ours.pop("encode", "all") == "kept" else "drop"
        encoded = self.vlm.see(list(ask.images), mode=mode, preset=ours.pop("preset", None), read=False)
        how = {"relevance": ours.pop("question", None), "choosing": Choosing(floor=ours.pop("floor", None))}
        if len(ask.images) > 1 and isinstance(ours.get("budget"), int):
            ours["budget"] = share(encoded, ask)
        with pytest.MonkeyPatch.context() as patch, torch.no_grad():
            patch.setattr(
                "foveate.vlm.prepare.choose_tokens", lambda *given, **more: choose_tokens(*given[:-1], **more)
            )
            prepared = self.vlm.prepare(encoded, ask.question, **{"budget": None, **ours, **how, "mode": mode})
            inputs = prepared.inputs()
            made = with_positions(self.vlm.model, inputs).generate(
                **inputs, max_new_tokens=steps, do_sample=False, eos_token_id=VOCABULARY,  # none ends it
                return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
        found = np.stack([torch.log_softmax(step[0].double(), -1).numpy() for step in made.logits])
        return Said(made.sequences[0, prepared.length :].tolist(), found, prepared.length)


def share(encoded: EncodedImage, ask: Ask) -> tuple[int, ...]:
    """What each image of a request has of its budget, which does not count ends of lines."""
    request = parse_request(ask.keywords)
    chosen = select_rows(list(ask.images), encoded.textures, encoded.layouts, ask.question, request.budget)
    pairs = zip(chosen.rows, encoded.layouts, strict=True)
    return tuple(len(np.intersect1d(rows, layout.selectable_rows())) for rows, layout in pairs)


def assert_same(found: Said, wanted: Said) -> None:
    """The same prompt's length, tokens and log-probabilities."""
    assert found.length == wanted.length
    assert found.ids == wanted.ids
    np.testing.assert_allclose(found.logprobs, wanted.logprobs, rtol=0, atol=SAME)


@contextmanager
def start_engine(folder: Path, **options: Any) -> Iterator[Engine]:
    """An engine over a folder. `options`: of `vllm.LLM`, instead of those here."""
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory
    from vllm.model_executor.models.transformers.base import Base

    usual: dict[str, Any] = {
        "dtype": "float32", "max_model_len": 1024, "max_num_batched_tokens": 2048, "max_num_seqs": 8, "block_size": 32,
        "enforce_eager": True, "limit_mm_per_prompt": {"image": 2}, "max_logprobs": VOCABULARY,
    }  # fmt: skip
    vlm = load(str(folder), device="cpu", dtype="float32")
    with pytest.MonkeyPatch.context() as patch:  # or no model of transformers could be run beside the engine
        patch.setattr(Base, "_decorate_for_torch_compile", lambda self: None)
        llm = LLM(str(folder), **{**usual, **options})
    try:
        yield Engine(llm, vlm)
    finally:
        llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()
        cleanup_dist_env_and_memory()
