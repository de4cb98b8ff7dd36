"""What the judges share: a small LLaVA of transformers' own classes, many questions in one sequence, tables.

A sequence is `<s> <|user|> <image> x 256` and then slots, all equally long: a question, `<|assistant|>` and the answer.
A slot sees the picture and itself, and its positions start where the picture ends. So each slot computes exactly what
the stock model computes for that question alone (the tests compare the logits), and the picture is paid for once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llama.modeling_llama import rotate_half

from training.harness import fit

CELLS, TOKENS = 16, 256  # of a picture: a side, and in all
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<image>", "<|user|>", "<|assistant|>")
PAD, BOS, EOS, UNK, IMAGE, USER, ASSISTANT = range(len(SPECIAL))
BEFORE = (BOS, USER, *[IMAGE] * TOKENS)  # the slots
PREFIX = len(BEFORE)
IGNORED = -100
CHAT = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}<|user|>"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% else %}<|assistant|>"
    "{% if message['content'] is string %} {{ message['content'] }}{% else %}{% for part in message['content'] %}"
    " {{ part['text'] }}{% endfor %}{% endif %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@dataclass(frozen=True)
class Kind:
    """What differs between two judges.

    Attributes:
        words: after the special ones, each a token; capitals and punctuation of questions are dropped.
        decoder: of `tokenizers`. side: of a picture, in pixels. mean, std: of its normalisation, of each colour.
    """

    words: tuple[str, ...]
    decoder: Any
    side: int
    mean: float
    std: float

    @property
    def vocabulary(self) -> dict[str, int]:
        return {word: i for i, word in enumerate((*SPECIAL, *self.words))}

    def normalised(self, pictures: Sequence[NDArray[np.uint8]]) -> Tensor:
        """uint8 [side, side, 3] -> float32 [b, 3, side, side], as the processor does."""
        return (torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255 - self.mean) / self.std

    def processor(self) -> Any:
        """Picture and chat -> inputs of the model: stock classes, no torchvision."""
        inner = Tokenizer(models.WordLevel(self.vocabulary, unk_token="<unk>"))
        dropped = normalizers.Replace(Regex("[?!.,;:\"']"), "")
        inner.normalizer = normalizers.Sequence([normalizers.Lowercase(), dropped])
        inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        inner.decoder = self.decoder
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>",
            additional_special_tokens=["<image>", "<|user|>", "<|assistant|>"], padding_side="left",
            model_max_length=1024,
        )  # fmt: skip
        images = CLIPImageProcessorPil(
            size={"shortest_edge": self.side}, crop_size={"height": self.side, "width": self.side},
            image_mean=[self.mean] * 3, image_std=[self.std] * 3,
        )  # fmt: skip
        return LlavaProcessor(
            image_processor=images, tokenizer=tokenizer, patch_size=self.side // CELLS,
            vision_feature_select_strategy="default", num_additional_image_tokens=1, chat_template=CHAT,
        )  # fmt: skip

    def model(
        self, *, tower: int, tower_layers: int, width: int, layers: int, head: int
    ) -> LlavaForConditionalGeneration:
        """A model with random weights (of torch's generator); head: width of a head of the tower."""
        model = LlavaForConditionalGeneration(
            LlavaConfig(
                vision_config=CLIPVisionConfig(
                    hidden_size=tower, intermediate_size=tower * 4, num_hidden_layers=tower_layers,
                    num_attention_heads=max(1, tower // head), image_size=self.side, patch_size=self.side // CELLS,
                    projection_dim=tower, hidden_act="gelu",
                ),
                text_config=llama(len(self.vocabulary), width, layers),
                image_token_id=IMAGE, image_seq_length=TOKENS, vision_feature_layer=-1,
                vision_feature_select_strategy="default", tie_word_embeddings=False,
            )
        )  # fmt: skip
        places = model.model.vision_tower.embeddings.position_embedding.weight
        with torch.no_grad():
            places[1:] += 0.3 * waves(places.shape[1])  # neighbours are alike from the start; the rest is learned
        settings = model.generation_config
        settings.bos_token_id, settings.eos_token_id, settings.pad_token_id = BOS, EOS, PAD
        return model

    def save(self, model: LlavaForConditionalGeneration, folder: Path) -> None:
        """Model (safetensors) and processor into a folder that stock transformers loads."""
        model.save_pretrained(folder)
        self.processor().save_pretrained(folder)


def llama(words: int, width: int, layers: int, **more: Any) -> LlamaConfig:
    """Of a small language model."""
    return LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=width * 5 // 2, num_hidden_layers=layers,
        num_attention_heads=max(1, width // 64), num_key_value_heads=max(1, width // 64), max_position_embeddings=1024,
        bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, tie_word_embeddings=False, attention_bias=False, **more,
    )  # fmt: skip


def waves(width: int) -> Tensor:
    """Sines and cosines of row and column at geometric wavelengths: float32 [256, width]."""
    count = width // 4
    speed = 2 * math.pi / CELLS * 10 ** (torch.arange(count) / count - 0.3)
    angle = torch.arange(CELLS)[:, None] * speed
    line = torch.cat([angle.sin(), angle.cos()], 1)
    rows, columns = line[:, None].expand(-1, CELLS, -1), line[None].expand(CELLS, -1, -1)
    return torch.cat([rows, columns], 2).reshape(TOKENS, 4 * count)


# --- many questions in one sequence -----------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def layout(slots: int, length: int) -> tuple[Tensor, Tensor]:
    """Mask bool [1, 1, n, n] (True: may look) and positions int64 [1, n] of a sequence with so many slots."""
    n = PREFIX + slots * length
    slot = torch.full((n,), -1)
    slot[PREFIX:] = torch.arange(slots).repeat_interleave(length)
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    mask = causal & ((slot[None] == -1) | (slot[None] == slot[:, None]))
    positions = torch.cat([torch.arange(PREFIX), PREFIX + torch.arange(length).repeat(slots)])
    return mask[None, None], positions[None]


def slotted(length: int) -> Callable[..., tuple[Tensor, None]]:
    """Attention by that mask in plain products, for transformers' AttentionInterface: what is hidden is not computed.

    Half the time of a step, and a third of the stock kernel's on CPUs without AMX. Of `mask`, bool [b or 1, 1, n, n],
    only the last row is read: which tokens of the picture are there at all.
    """

    def attend(
        _: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float, **more: Any
    ) -> tuple[Tensor, None]:
        q = q * scaling
        gone = torch.zeros(1, 1, 1, PREFIX, dtype=q.dtype)
        if mask is not None:
            gone = torch.where(mask[:, :, -1:, :PREFIX], gone, torch.full_like(gone, -1e4))
        slots = (q.shape[2] - PREFIX) // length
        seen, values = k[:, :, :PREFIX], v[:, :, :PREFIX]
        later = torch.full((PREFIX, PREFIX), -1e4, dtype=q.dtype).triu(1)
        first = (q[:, :, :PREFIX] @ seen.mT + later + gone).softmax(-1) @ values
        asked = q[:, :, PREFIX:]
        own, own_keys, own_values = (t[:, :, -slots * length :].unflatten(2, (slots, length)) for t in (asked, k, v))
        near = own @ own_keys.mT + later[:length, :length]
        far = (asked @ seen.mT + gone).unflatten(2, (slots, length))
        weights = torch.cat([far, near], -1).softmax(-1)
        found = weights[..., :PREFIX].flatten(2, 3) @ values + (weights[..., PREFIX:] @ own_values).flatten(2, 3)
        return torch.cat([first, found], 2).transpose(1, 2).contiguous(), None

    return attend


Look = tuple[int, Tensor, Tensor, Tensor]  # layer; rows and places [m] that look; bool [m, 256], at which cells


def answers(
    model: Any,
    features: Tensor,
    ids: Tensor,
    targets: Tensor,
    length: int,
    looks: Sequence[Look] = (),
    kept: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [m, words] and targets [m] at the places that are to be learned, and the loss of where heads look.

    The loop over layers is that of LlamaModel.forward.

    Args:
        model: as stock Llava has them: `model.language_model`, `lm_head`. features: projected cells [b, 256, width].
        ids, targets: int64 [b, n]; targets are IGNORED but for answers and `</s>`.
        looks: which layer's first head is told to look where. kept: bool [b, 256], cells that are there; None: all.
    """
    text = model.model.language_model
    embedded = text.embed_tokens(ids)
    hidden = torch.cat([embedded[:, :2], features.to(embedded.dtype), embedded[:, PREFIX:]], 1)
    mask, positions = layout((ids.shape[1] - PREFIX) // length, length)
    if kept is not None:
        mask = mask & F.pad(kept, (2, hidden.shape[1] - PREFIX), value=True)[:, None, None]
    turns, losses = text.rotary_emb(hidden, positions), []
    for number, layer in enumerate(text.layers):
        losses += [looking_loss(layer, hidden, turns, mask, *look) for of, *look in looks if of == number]
        hidden = layer(hidden, attention_mask=mask, position_ids=positions, position_embeddings=turns)
    learned = targets != IGNORED
    logits = model.lm_head(text.norm(hidden[learned])).float()
    return logits, targets[learned], torch.stack(losses).mean() if losses else logits.new_zeros(())


def looking_loss(
    layer: Any, hidden: Tensor, turns: tuple[Tensor, Tensor], mask: Tensor, row: Tensor, place: Tensor, there: Tensor
) -> Tensor:
    """Minus the logarithm of the attention of a layer's first head on the cells `there`; words take part, too."""
    size = layer.self_attn.head_dim
    normed = layer.input_layernorm(hidden)
    cos, sin = (t[0] for t in turns)  # [n, size]
    q = F.linear(normed[row, place], layer.self_attn.q_proj.weight[:size])
    q = q * cos[place] + rotate_half(q) * sin[place]
    k = F.linear(normed, layer.self_attn.k_proj.weight[:size])
    k = k * cos + rotate_half(k) * sin
    losses = []
    for b in range(len(hidden)):
        mine = (row == b) & there.any(1)
        logits = (q[mine] @ k[b].T).float() * size**-0.5
        logits = logits.masked_fill(~mask[b % len(mask), 0, place[mine]], -1e9)
        on = logits[:, 2:PREFIX].masked_fill(~there[mine], -1e9)
        losses.append((logits.logsumexp(1) - on.logsumexp(1)).sum())
    return torch.stack(losses).sum() / there.any(1).sum().clamp(min=1)


# --- training ---------------------------------------------------------------------------------------------------------


def optimiser(trainee: nn.Module) -> torch.optim.AdamW:
    """AdamW; no decay on vectors (biases, norms)."""
    flat = [p for p in trainee.parameters() if p.ndim < 2]
    full = [p for p in trainee.parameters() if p.ndim >= 2]
    return torch.optim.AdamW(
        [{"params": full, "weight_decay": 0.05}, {"params": flat, "weight_decay": 0.0}], lr=1e-3, betas=(0.9, 0.98)
    )


def rate_at(step: float, steps: int, peak: float, warm: int = 100, level: float = 0.0) -> float:
    """Learning rate: linear up, level for that share of the steps, cosine down to a fiftieth."""
    if step < warm:
        return peak * (step + 1) / warm
    late = (step - warm) / max(1, steps - warm) if not level else max(0.0, (step / steps - level) / (1 - level))
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, late))))


def ahead(make: Callable[[Any], Any], orders: Sequence[Any]) -> Iterator[Any]:
    """What is made of each order, the next one made while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(make, orders[0]) if orders else None
        for order in (*orders[1:], None):
            if coming is not None:
                now, coming = coming, None if order is None else pool.submit(make, order)
                yield now.result()


def compiled(model: Any) -> None:
    """Tower and layers compiled in place: a third faster; needs a C++ compiler."""
    for part in (model.model.vision_tower, *model.model.language_model.layers):
        part.compile(dynamic=False)


Step = Callable[[int, Any], tuple[Tensor, dict[str, float]]]  # number, batch -> the loss, and what is shown


def train(
    trainee: nn.Module,
    step: Step,
    batches: Callable[[int], Iterator[Any]],
    rates: Sequence[float],
    state: Path,
    save: Callable[[], None],
    check: Callable[[], Any],
    *,
    every: int = 100,
) -> None:
    """As many steps as there are rates (`harness.fit`); what `save` writes is kept with `state`.

    batches: of all steps from a number on. check: what is printed every five hundred steps, and at the end.
    """
    coming: Iterator[Any] = iter(())
    mean = dict[str, float]()
    print(f"{sum(p.numel() for p in trainee.parameters()) / 1e6:.1f} M parameters", flush=True)

    def loss(number: int) -> Tensor:
        nonlocal coming, mean
        if (batch := next(coming, None)) is None:
            coming = batches(number)
            batch = next(coming)
        found, now = step(number, batch)
        mean = {name: value if name not in mean else 0.95 * mean[name] + 0.05 * value for name, value in now.items()}
        if (number + 1) % 10 == 0:
            print(json.dumps({"step": number + 1, **{k: round(v, 3) for k, v in mean.items()}}), flush=True)
        return found

    def kept(done: int) -> None:
        save()
        if done % 500 == 0 or done == len(rates):
            print(f"held out {check()}", flush=True)

    fit(
        loss, len(rates), state, optimiser(trainee), rate=rates.__getitem__, every=every, clip=1.0, kept=kept,
        trainee=trainee,
    )  # fmt: skip


# --- judging ----------------------------------------------------------------------------------------------------------

DRAWS = 2000


@dataclass(frozen=True)
class Item:
    """A question about picture number `scene` of a list; it has `text`, `answer`, `family`."""

    scene: int
    question: Any


Answerer = Callable[[Sequence[Item], str, int], list[str]]  # items, method, tokens -> the answers
Metric = Callable[[str, str], float]  # what was answered, what is right -> in [0, 1]


def share(right: NDArray[Any], scene: NDArray[np.int64], full: NDArray[Any], ours: NDArray[Any]) -> dict[str, Any]:
    """The mean, its share of that at all tokens, what it lacks of `ours`; 95 % intervals by bootstrap over scenes."""
    _, group = np.unique(scene, return_inverse=True)
    count = np.bincount(group)
    hits, whole = np.bincount(group, right), np.bincount(group, full)
    draws = np.random.default_rng(0).multinomial(len(count), np.full(len(count), 1 / len(count)), size=DRAWS)
    accuracy, kept = draws @ hits / (draws @ count), draws @ hits / np.maximum(draws @ whole, 1)
    less = draws @ np.bincount(group, ours - right) / (draws @ count)
    return {
        "accuracy": float(right.mean()),
        "interval": np.quantile(accuracy, [0.025, 0.975]).round(4).tolist(),
        "kept": float(right.sum() / max(full.sum(), 1)),
        "kept_interval": np.quantile(kept, [0.025, 0.975]).round(4).tolist(),
        "less": [float((ours - right).mean()), *np.quantile(less, [0.025, 0.975]).round(4).tolist()],
        "questions": len(right),
    }


def equal(said: str, right: str) -> float:
    """1 where they are the same."""
    return float(said == right)


def report(
    answerer: Answerer,
    items: Sequence[Item],
    methods: Sequence[str],
    budgets: Mapping[str, int],
    groups: Mapping[str, NDArray[np.bool_]],
    metric: Metric = equal,
) -> dict[str, Any]:
    """Method -> budget -> group -> numbers. groups: which of the items, bool [n] each. Paired with the first method."""
    scene = np.array([item.scene for item in items])

    def right(method: str, budget: int) -> NDArray[np.float64]:
        found = answerer(items, method, budget)
        return np.array([metric(said, item.question.answer) for said, item in zip(found, items, strict=True)])

    full, ours = right(methods[0], TOKENS), dict[str, NDArray[np.float64]]()
    out: dict[str, Any] = {}
    for method in methods:
        for name, budget in budgets.items():
            hits = full if budget == TOKENS else right(method, budget)
            first = ours.setdefault(name, hits)
            rows = {g: share(hits[m], scene[m], full[m], first[m]) for g, m in groups.items() if m.any()}
            out.setdefault(method, {})[name] = rows
            print(f"  {method} {name}: {hits.mean():.3f}", flush=True)
    return out


def table(found: Mapping[str, Any], group: str) -> str:
    """Markdown of one group: a row a method, a column a budget; the mean, its interval, the share kept, and what it
    lacks of the first method where that is sure.
    """
    names = list(next(iter(found.values())))
    lines = [f"| {group} | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for method, rows in found.items():
        cells = ((rows[name][group], *rows[name][group]["interval"], *rows[name][group]["less"]) for name in names)
        shown = (
            f"{row['accuracy']:.3f} [{low:.3f}, {high:.3f}] {row['kept']:.0%}"
            + (f" ({-less:+.3f})" if least * most > 0 else "")
            for row, low, high, less, least, most in cells
        )
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


# --- answers from some of the tokens, without foveate -----------------------------------------------------------------


def prompt(text: str, kept: Sequence[int], words: Mapping[str, int]) -> tuple[Tensor, Tensor]:
    """Tokens that remain of a question's full prompt, and their positions in it: int64 [m] each. kept: ascending."""
    ids = torch.tensor([*BEFORE, *(words[word] for word in text.split()), ASSISTANT])
    stays = ids != IMAGE
    stays[2 + torch.as_tensor(kept, dtype=torch.int64)] = True
    return ids[stays], torch.arange(len(ids))[stays]


def first_words(
    model: Any, cells: Sequence[Tensor], texts: Sequence[str], kept: Sequence[Sequence[int]], words: Mapping[str, int]
) -> list[str]:
    """The first word of each answer; `cells`: projected features [256, D] of each one's picture. What is dropped leaves
    the prompt with its place: what `foveate.vlm` must agree with."""
    parts = [prompt(text, keep, words) for text, keep in zip(texts, kept, strict=True)]
    longest = max(len(ids) for ids, _ in parts)
    ids = torch.zeros(len(parts), longest, dtype=torch.int64)
    positions, real = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (tokens, places) in enumerate(parts):
        ids[row, : len(tokens)], positions[row, : len(tokens)], real[row, : len(tokens)] = tokens, places, 1
    causal = torch.ones(longest, longest, dtype=torch.bool).tril()
    mask = causal[None, None] & real.bool()[:, None, None] | torch.eye(longest, dtype=torch.bool)
    inner, names = model.model, list(words)
    with torch.no_grad():
        embedded = inner.language_model.embed_tokens(ids)
        for row, keep in enumerate(kept):
            embedded[row, 2 : 2 + len(keep)] = cells[row][torch.as_tensor(keep, dtype=torch.int64)]
        hidden = inner.language_model(
            inputs_embeds=embedded, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state
        last = hidden[torch.arange(len(parts)), real.sum(1) - 1]
        return [names[int(i)] for i in model.lm_head(last).argmax(-1)]
