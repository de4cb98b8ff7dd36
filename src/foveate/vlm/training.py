"""Training a projector on textures, in two stages: the projector alone, then adapters of the language model as well.

    train(examples, model, processor, projector, folder="run/projector")
    train(examples, model, processor, projector, stage="adapters", folder="run/adapters")
    accuracy(held_out, model, processor, projector)

What is notable
* The loss is the mean cross-entropy of the answers' ids and of their ends; prompt and image are given. Logits are made
  for the answers only.
* Stage "projector" freezes the model. Stage "adapters" puts LoRA adapters (peft, extra [train]) on all linear layers of
  the language model, in place, under the name "foveate"; the tower gets none. `model.save_pretrained(folder)` then
  writes the adapters alone, and `model.load_adapter(folder)` reads them. A second call trains the adapters it finds.
* AdamW, a warm-up and then half a cosine, gradients clipped to a length of 1.
* **A run that was killed and goes on gives the same numbers as one that was not**, bit for bit on a CPU with the same
  number of threads: order and dropout of a step depend on the seed and the number of the step alone, and a checkpoint
  holds the optimiser too. A checkpoint of other settings, examples or shapes is refused. The frozen model is not in it.
* torch's random state, the model's mode and its `requires_grad` are afterwards as they were before.
* One process, one device: the model's. Not covered: several GPUs, mixed precision by itself (a bfloat16 model works,
  the projector stays float32), gradients accumulated over batches.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from foveate.core.errors import MissingExtraError, OptionError
from foveate.encoders.protocol import Encoder
from foveate.vlm.attach import attach
from foveate.vlm.checkpoint import Checkpoint
from foveate.vlm.lessons import Example, Kept, Lesson, lessons_of, together
from foveate.vlm.model import VLM
from foveate.vlm.projector import TextureProjector, rows_for
from foveate.vlm.select.choose import Method

if TYPE_CHECKING:
    import torch

Stage = Literal["projector", "adapters"]
STAGES = ("projector", "adapters")
ADAPTER = "foveate"
RATES = {"projector": 1e-3, "adapters": 2e-4}  # as LLaVA 1.5 was trained


@dataclass(frozen=True)
class Settings:
    """How to train.

    Attributes:
        steps: batches in all.
        batch: examples a step.
        rate: the highest learning rate; None: 1e-3 for the projector alone, 2e-4 with adapters.
        warmup: share of the steps in which the rate rises.
        decay: weight decay of matrices.
        clip: longest gradient.
        seed: of order, dropout and new adapters.
        save_every: steps between checkpoints.
        rank, alpha: of the adapters: their updates have this rank and are scaled by alpha / rank.
    """

    steps: int = 1000
    batch: int = 16
    rate: float | None = None
    warmup: float = 0.03
    decay: float = 0.0
    clip: float = 1.0
    seed: int = 0
    save_every: int = 200
    rank: int = 8
    alpha: int = 16

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "save_every", "rank"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OptionError(f"{name}={value!r}", expected="a whole number of at least 1", fix="leave it out")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise OptionError(f"seed={self.seed!r}", expected="a whole number of at least 0", fix="leave it out")
        usual = self.rate is None or (math.isfinite(self.rate) and self.rate > 0)
        if not usual or not 0 <= self.warmup < 1 or not self.clip > 0 or not self.decay >= 0 or not self.alpha > 0:
            raise OptionError(
                f"rate={self.rate!r}, warmup={self.warmup!r}, clip={self.clip!r}, decay={self.decay!r}, "
                f"alpha={self.alpha!r}",
                expected="rate, clip and alpha above 0, warmup a share from 0 to 1, decay from 0 up",
                fix="leave them out",
            )


@dataclass(frozen=True)
class Progress:
    """What `progress` is called with after each step: its number from 1 on, its loss, the rate it was taken with."""

    step: int
    steps: int
    loss: float
    rate: float


def train(
    examples: Iterable[Example],
    model: Any,
    processor: Any,
    projector: TextureProjector,
    stage: Stage = "projector",
    *,
    settings: Settings | None = None,
    budget: Kept = 128,
    method: Method = "relevance",
    encoder: str | Encoder = "nano",
    folder: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[float, ...]:
    """Train a projector, and with stage "adapters" LoRA adapters beside it; returns the loss of every step.

    Args:
        examples: (image or texture, question, answer), gone through once.
        model, processor: as of `foveate.vlm.attach`. The model's own weights stay as they are.
        projector: is trained in place.
        settings: steps, rates, seed and so on.
        budget, method: cells that the model gets, as of `VLM.prepare`; None for all.
        encoder: of images among the examples, and of questions; the one that made the textures.
        folder: for checkpoints; where there is one of this very training, it goes on from there.
        progress: called after each step; what it raises ends the training.

    Raises:
        MissingExtraError: adapters without peft. ModelError: model, processor or projector do not fit. OptionError:
        settings, examples, or a checkpoint of another training. ModelFilesError: a damaged checkpoint.
    """
    if stage not in STAGES:
        raise OptionError(f"stage={stage!r}", expected=" or ".join(STAGES), fix="'projector' comes first")
    how = settings or Settings()
    vlm = attach(model, processor, encoder=encoder)
    lessons = lessons_of(examples, vlm, rows_for(vlm, projector), budget=budget, method=method, seed=how.seed)
    trained = {f"projector.{name}": p for name, p in projector.named_parameters()}
    if stage == "adapters":
        trained |= {f"model.{name}": p for name, p in _adapters(model, how).items()}
    place = None
    if folder is not None:
        place = Checkpoint(Path(folder), _identity(stage, how, lessons, trained))
    with _only(trained, model, projector):
        return _loop(vlm, projector, lessons, how, trained, how.rate or RATES[stage], place, progress)


def _loop(
    vlm: VLM,
    projector: TextureProjector,
    lessons: Sequence[Lesson],
    how: Settings,
    trained: dict[str, torch.nn.Parameter],
    highest: float,
    place: Checkpoint | None,
    progress: Callable[[Progress], None] | None,
) -> tuple[float, ...]:
    import torch

    matrices = [p for p in trained.values() if p.ndim > 1]
    others = [p for p in trained.values() if p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": how.decay}, {"params": others, "weight_decay": 0.0}], lr=highest
    )
    losses = [] if place is None else place.restore(trained, optimiser)
    for step in range(len(losses), how.steps):
        rate = highest * share_of_rate(step, how.steps, how.warmup)
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad(set_to_none=True)
        batch = [lessons[i] for i in batch_at(step, len(lessons), how.batch, how.seed)]
        with _seeded(how.seed + 1 + step, vlm.model):
            loss = loss_of(vlm, projector, batch)
            loss.backward()  # type: ignore[no-untyped-call]
        length = torch.nn.utils.clip_grad_norm_(list(trained.values()), how.clip)
        if not bool(torch.isfinite(length + loss.detach().to(length))):
            raise OptionError(
                f"a rate of {rate:.2g}, with which the loss was {loss.item():.3g} in step {step + 1}",
                expected="a training whose loss and gradient stay finite",
                fix="lower settings.rate; use bfloat16, as float16 overflows; check the weights it began with",
            )
        optimiser.step()
        losses.append(loss.item())
        if place is not None and ((step + 1) % how.save_every == 0 or step + 1 == how.steps):
            place.save(trained, optimiser, losses)
        if progress is not None:
            progress(Progress(step + 1, how.steps, losses[-1], rate))
    return tuple(losses)


def loss_of(vlm: VLM, projector: torch.nn.Module, lessons: Sequence[Lesson]) -> torch.Tensor:
    """Mean cross-entropy of the ids of all answers and of their ends, in nats: a tensor with one number."""
    import torch
    from torch.nn.functional import cross_entropy

    inputs = together(lessons, projector, vlm.family, _pad(vlm), answers=True, dtype=vlm.model.dtype)
    longest = max(one.learnt for one in lessons)
    logits = vlm.model(**inputs, use_cache=False, logits_to_keep=longest + 1).logits[:, :-1]
    wanted = inputs["input_ids"][:, -longest:]
    counts = torch.tensor([one.learnt for one in lessons], device=wanted.device)
    asked = torch.arange(longest, device=wanted.device) >= longest - counts[:, None]
    return cross_entropy(logits[asked].float(), wanted[asked].to(logits.device))


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
    lessons = lessons_of(examples, vlm, rows_for(vlm, projector), budget=budget, method=method)
    said = answers(vlm, projector, lessons, batch)
    right = [a.strip().casefold() == b.answer.strip().casefold() for a, b in zip(said, lessons, strict=True)]
    return float(np.mean(right))


def answers(vlm: VLM, projector: torch.nn.Module, lessons: Sequence[Lesson], batch: int = 32) -> list[str]:
    """What the model says, greedily, with at most as many ids as the longest answer and its end have."""
    import torch

    found: list[str] = []
    with torch.no_grad(), _mode(vlm.model, False), _mode(projector, False):
        for start in range(0, len(lessons), batch):
            part = lessons[start : start + batch]
            inputs = together(part, projector, vlm.family, _pad(vlm), answers=False, dtype=vlm.model.dtype)
            ids = vlm.model.generate(
                **inputs, do_sample=False, max_new_tokens=max(one.learnt for one in part), pad_token_id=_pad(vlm)
            )[:, inputs["input_ids"].shape[1] :]
            found += vlm.processor.tokenizer.batch_decode(ids, skip_special_tokens=True)
    return found


# --- order, rate, chance ----------------------------------------------------------------------------------------------


def batch_at(step: int, count: int, batch: int, seed: int) -> list[int]:
    """Which of `count` lessons a step sees. Each pass goes through all in an order of its own."""
    places = np.arange(step * batch, (step + 1) * batch)
    turns = {int(turn): np.random.default_rng((seed, int(turn))).permutation(count) for turn in set(places // count)}
    return [int(turns[int(place // count)][place % count]) for place in places]


def share_of_rate(step: int, steps: int, warmup: float) -> float:
    """Of the highest rate: rising along a line to 1 over the first steps, then falling along a cosine to 0."""
    rising = round(warmup * steps)
    if step < rising:
        return (step + 1) / (rising + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, steps - rising)))


@contextmanager
def _seeded(seed: int, model: Any) -> Iterator[None]:
    """torch's random numbers from a seed, and as they were afterwards."""
    import torch

    device = model.device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def _only(trained: dict[str, torch.nn.Parameter], model: Any, projector: torch.nn.Module) -> Iterator[None]:
    """Gradients for these parameters alone, both modules in training mode; everything as before afterwards."""
    parameters = [*model.parameters(), *projector.parameters()]
    before = [p.requires_grad for p in parameters]
    wanted = {id(p) for p in trained.values()}
    try:
        for p in parameters:
            p.requires_grad_(id(p) in wanted)
        with _mode(model, True), _mode(projector, True):
            yield
    finally:
        for p, was in zip(parameters, before, strict=True):
            p.requires_grad_(was)
            p.grad = None


@contextmanager
def _mode(module: torch.nn.Module, training: bool) -> Iterator[None]:
    modes = [(part, part.training) for part in module.modules()]
    try:
        module.train(training)
        yield
    finally:
        for part, was in modes:
            part.training = was


def _pad(vlm: VLM) -> int:
    tokenizer = vlm.processor.tokenizer
    return int((tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id) or 0)


def _identity(stage: str, how: Settings, lessons: Sequence[Lesson], trained: dict[str, torch.nn.Parameter]) -> str:
    """SHA-256 over all that a training depends on, but for the frozen model and where the weights began."""
    digest = hashlib.sha256(f"{stage} {how!r}".encode())
    for name, p in sorted(trained.items()):
        digest.update(f"{name} {tuple(p.shape)} {p.dtype}".encode())
    for one in lessons:
        for tensor in (one.rows, one.whole["input_ids"], one.whole["position_ids"]):
            digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()


# --- adapters ---------------------------------------------------------------------------------------------------------


def _adapters(model: Any, how: Settings) -> dict[str, torch.nn.Parameter]:
    """Parameters of the adapters by name; they are made if there are none."""
    if not any(f".{ADAPTER}." in name for name, _ in model.named_parameters()):
        try:
            from peft import LoraConfig
        except ImportError as cause:
            raise MissingExtraError(
                "stage='adapters' needs peft, which is not installed",
                expected="the extra [train]",
                fix="pip install 'foveate[train]', or train with stage='projector' alone",
            ) from cause
        config = LoraConfig(r=how.rank, lora_alpha=how.alpha, target_modules=_linear_layers(model), bias="none")
        learning, old = [(p, p.requires_grad) for p in model.parameters()], set(map(id, model.modules()))
        with _seeded(how.seed, model):
            model.add_adapter(config, adapter_name=ADAPTER)
        for p, was in learning:  # peft freezes them for good
            p.requires_grad_(was)
        for part in model.modules():
            part.training = part.training if id(part) in old else model.training
    return {name: p for name, p in model.named_parameters() if f".{ADAPTER}." in name}


def _linear_layers(model: Any) -> list[str]:
    """Full names of the linear layers of the language model, without its head."""
    import torch

    decoder = model.get_decoder()
    (prefix,) = [name for name, module in model.named_modules() if module is decoder]
    return [f"{prefix}.{name}" for name, module in decoder.named_modules() if isinstance(module, torch.nn.Linear)]
