"""Training a projector on textures, in two stages: the projector alone, then adapters of the language model as well.

    train(examples, model, processor, projector, folder="run/projector")
    train(examples, model, processor, projector, stage="adapters", folder="run/adapters")
    accuracy(held_out, model, processor, projector)

What is notable
* transformers' Trainer does the loop: AdamW, warm-up and cosine, clipping, checkpoints, resuming, several devices.
* The loss is the mean cross-entropy of the answers' ids and of their ends. Logits are made for the answers only.
* Stage "projector" freezes the model. Stage "adapters" puts LoRA adapters (peft) on all linear layers of the language
  model, in place, under the name "foveate". `model.save_pretrained(folder)` then writes the adapters alone.
* A checkpoint holds what is trained (safetensors) and the optimiser, not the frozen model. A run that was killed and
  goes on gives the same numbers as one that was not, bit for bit on a CPU with the same number of threads. A
  checkpoint that was cut off is passed over.
* The model's mode and its `requires_grad` are afterwards as they were before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import Trainer, TrainingArguments

from foveate.encoders.protocol import Encoder
from foveate.vlm.loader import attach
from foveate.vlm.model import VLM
from foveate.vlm.select.methods import Method
from training.judges.projector.lessons import Example, Kept, Lesson, join, lay_out
from training.judges.projector.model import TextureProjector, rows_for

Stage = Literal["projector", "adapters"]
ADAPTER = "foveate"
RATES = {"projector": 1e-3, "adapters": 2e-4}  # as LLaVA 1.5 was trained
WEIGHTS, STATE, IDENTITY = "model.safetensors", "trainer_state.json", "training.json"


def train(
    examples: Iterable[Example],
    model: Any,
    processor: Any,
    projector: TextureProjector,
    stage: Stage = "projector",
    *,
    folder: str | Path,
    steps: int = 1000,
    batch: int = 16,
    rate: float | None = None,
    save_every: int = 200,
    seed: int = 0,
    rank: int = 8,
    budget: Kept = 128,
    method: Method = "relevance",
    encoder: str | Encoder = "nano",
    **arguments: Any,
) -> tuple[float, ...]:
    """Train a projector in place, and with stage "adapters" LoRA adapters beside it; returns the loss of every step.

    Args:
        examples: (image or texture, question, answer), gone through once.
        model, processor: as of `foveate.vlm.attach`. The model's own weights stay as they are.
        folder: for checkpoints; where there is one, it goes on from there.
        steps, batch: batches in all, and examples a batch. save_every: steps between checkpoints. rank: of adapters.
        rate: the highest learning rate; None: 1e-3 for the projector alone, 2e-4 with adapters.
        budget, method: cells that the model gets, as of `VLM.prepare`; None for all.
        encoder: of images among the examples, and of questions; the one that made the textures.
        arguments: further ones of `transformers.TrainingArguments` (callbacks=[...] too).
    """
    highest = RATES[stage] if rate is None else rate
    vlm = attach(model, processor, encoder=encoder)
    lessons = lay_out(examples, vlm, rows_for(vlm, projector), budget=budget, method=method, seed=seed)
    pupil = Pupil(vlm, projector)
    adapters = _add_adapters(model, rank, seed) if stage == "adapters" else []
    trained = {id(p) for p in (*projector.parameters(), *adapters)}
    callbacks = arguments.pop("callbacks", [])
    settings = {
        "max_steps": steps, "per_device_train_batch_size": batch, "learning_rate": highest, "seed": seed,
        "save_steps": save_every, "warmup_steps": round(0.03 * steps), "lr_scheduler_type": "cosine",
        "logging_steps": 1, "logging_nan_inf_filter": False, "save_total_limit": 1, "report_to": [],
        "disable_tqdm": True, "remove_unused_columns": False, "use_cpu": vlm.model.device.type == "cpu", **arguments,
    }  # fmt: skip
    place = Path(folder)
    with _only(trained, pupil):
        trainer = _Trainer(
            model=pupil,
            args=TrainingArguments(output_dir=str(place), **settings),
            train_dataset=lessons,
            data_collator=lambda part: {"lessons": part},
            callbacks=callbacks,
        )
        trainer.train(resume_from_checkpoint=_newest(place))
    return tuple(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)


class Pupil(torch.nn.Module):
    """What the Trainer trains: the projector in front of the model. Lessons in, their loss out."""

    def __init__(self, vlm: VLM, projector: torch.nn.Module) -> None:
        super().__init__()
        self.vlm, self.model, self.projector = vlm, vlm.model, projector

    def forward(self, lessons: Sequence[Lesson]) -> dict[str, torch.Tensor]:
        """Mean cross-entropy of the ids of all answers and of their ends, in nats."""
        return {"loss": measure_loss(self.vlm, self.projector, lessons)}


def measure_loss(vlm: VLM, projector: torch.nn.Module, lessons: Sequence[Lesson]) -> torch.Tensor:
    """Mean cross-entropy of the ids of all answers and of their ends, in nats: a tensor with one number."""
    inputs = join(lessons, projector, vlm.family, _pad(vlm), answers=True, dtype=vlm.model.dtype)
    longest = max(one.learnt for one in lessons)
    logits = vlm.model(**inputs, use_cache=False, logits_to_keep=longest + 1).logits[:, :-1]
    targets = inputs["input_ids"][:, -longest:]
    counts = torch.tensor([one.learnt for one in lessons], device=targets.device)
    counted = torch.arange(longest, device=targets.device) >= longest - counts[:, None]
    return cross_entropy(logits[counted].float(), targets[counted].to(logits.device))


def accuracy(
    examples: Iterable[Example],
    model: Any,
    processor: Any,
    projector: TextureProjector,
    *,
    budget: Kept = 128,
    method: Method = "relevance",
    encoder: str | Encoder = "nano",
    batch: int = 32,
) -> float:
    """Share of examples that are answered word for word, 0 to 1: greedy, capitals and outer spaces aside."""
    vlm = attach(model, processor, encoder=encoder)
    lessons = lay_out(examples, vlm, rows_for(vlm, projector), budget=budget, method=method)
    given = answer(vlm, projector, lessons, batch)
    return float(
        np.mean([a.strip().casefold() == b.answer.strip().casefold() for a, b in zip(given, lessons, strict=True)])
    )


def answer(vlm: VLM, projector: torch.nn.Module, lessons: Sequence[Lesson], batch: int = 32) -> list[str]:
    """Greedy answers, with at most as many ids as the longest answer and its end have."""
    found: list[str] = []
    with torch.no_grad(), _restored(vlm.model), _restored(projector):
        vlm.model.eval()
        projector.eval()
        for start in range(0, len(lessons), batch):
            part = lessons[start : start + batch]
            inputs = join(part, projector, vlm.family, _pad(vlm), answers=False, dtype=vlm.model.dtype)
            ids = vlm.model.generate(
                **inputs, do_sample=False, max_new_tokens=max(one.learnt for one in part), pad_token_id=_pad(vlm)
            )[:, inputs["input_ids"].shape[1] :]
            found += vlm.processor.tokenizer.batch_decode(ids, skip_special_tokens=True)
    return found


# --- checkpoints ------------------------------------------------------------------------------------------------------


class _Trainer(Trainer):  # type: ignore[misc]
    """Checkpoints of what is trained alone: the frozen model belongs to the caller."""

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        place = Path(output_dir or str(self.args.output_dir))
        place.mkdir(parents=True, exist_ok=True)
        trained = {n: p.detach().contiguous() for n, p in self.model.named_parameters() if p.requires_grad}
        save_file(trained, place / WEIGHTS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self.model.load_state_dict(load_file(Path(resume_from_checkpoint) / WEIGHTS), strict=False)


def _newest(folder: Path) -> str | None:
    """The newest checkpoint that was written to its end. The Trainer writes its state last."""
    for place in sorted(folder.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]), reverse=True):
        try:
            json.loads((place / STATE).read_text("utf-8"))
            load_file(place / WEIGHTS)
        except (OSError, ValueError, SafetensorError):
            continue
        return str(place)
    return None


# --- what is trained --------------------------------------------------------------------------------------------------


@contextmanager
def _only(trained: set[int], pupil: Pupil) -> Iterator[None]:
    """Gradients for these parameters alone; parameters, modes and torch's random state as before afterwards."""
    before = [(p, p.requires_grad) for p in pupil.parameters()]
    with torch.random.fork_rng([pupil.model.device] if pupil.model.device.type == "cuda" else []), _restored(pupil):
        try:
            for p, _ in before:
                p.requires_grad_(id(p) in trained)
            yield
        finally:
            for p, learning in before:
                p.requires_grad_(learning)
                p.grad = None


@contextmanager
def _restored(module: torch.nn.Module) -> Iterator[None]:
    """Every part's mode (training or not) afterwards as before."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _pad(vlm: VLM) -> int:
    tokenizer = vlm.processor.tokenizer
    return int((tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id) or 0)


def _add_adapters(model: Any, rank: int, seed: int) -> list[torch.nn.Parameter]:
    """Parameters of the adapters; they are made if there are none."""
    if not any(f".{ADAPTER}." in name for name, _ in model.named_parameters()):
        from peft import LoraConfig  # the extra [train]

        decoder = model.get_decoder()
        (prefix,) = [name for name, module in model.named_modules() if module is decoder]
        linear = [f"{prefix}.{n}" for n, part in decoder.named_modules() if isinstance(part, torch.nn.Linear)]
        learning, old = [(p, p.requires_grad) for p in model.parameters()], set(map(id, model.modules()))
        with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            torch.manual_seed(seed)
            model.add_adapter(LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=linear), adapter_name=ADAPTER)
        for p, was in learning:  # peft freezes them for good
            p.requires_grad_(was)
        for part in model.modules():
            part.training = part.training if id(part) in old else model.training
    return [p for name, p in model.named_parameters() if f".{ADAPTER}." in name]
