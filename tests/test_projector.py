"""The projection path: rows that mean the same in every image, a projector that learns from them, files, resuming."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

import foveate
import foveate.vlm
from foveate import Texture
from foveate.texture.basis import Basis
from tests.vlm_models import FAMILIES, IDS, SPECIAL, VOCABULARY, pair, photo
from training.judges.projector.lessons import Lesson, lay_out
from training.judges.projector.model import TextureProjector, TextureRows, encode_texture
from training.judges.projector.train import accuracy, measure_loss, train

SIDE = 4
LOOK: dict[str, Any] = {"long_side": 128, "channels": "fast", "rank": 16}
FEW: dict[str, Any] = {"steps": 6, "batch": 2, "save_every": 2}
pytestmark = [
    pytest.mark.vlm,
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"),
]


@pytest.fixture(scope="module")
def textures() -> list[Texture]:
    return [foveate.encode(photo(96, 128, seed=i), **LOOK) for i in range(3)]


@pytest.fixture(scope="module")
def rows(textures: list[Texture]) -> TextureRows:
    return TextureRows.fit(textures, side=SIDE)


@pytest.fixture
def llava() -> tuple[Any, Any]:
    """Of its own for each test: training changes a model."""
    model, processor = pair("llava")
    return copy.deepcopy(model), processor


def of(model: Any, rows: TextureRows, hidden: int | None = None, seed: int = 0) -> TextureProjector:
    return TextureProjector.for_model(model, rows, hidden, seed=seed)


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- rows -------------------------------------------------------------------------------------------------------------


def test_rows_are_the_restored_features_on_shared_axes(textures: list[Texture]) -> None:
    """The NumPy twin: restore every cell first, average over the coarse grid, then put it on the axes."""
    rows = TextureRows.fit(textures, rank=16, channels=("y", "x"), side=SIDE)
    texture = textures[1]
    full = texture.basis.restore(texture.coordinates()).reshape(12, 16, -1)
    coarse = full.reshape(3, 4, 4, 4, -1).mean((1, 3)).reshape(12, -1)
    assert rows.axes is not None
    assert np.allclose(rows.axes @ rows.axes.T, np.eye(16), atol=1e-5)
    y, x = np.mgrid[:3, :4]
    place = np.stack([(y + 0.5) / 3, (x + 0.5) / 4], -1).reshape(12, 2)
    twin = np.concatenate([coarse @ rows.axes.T, place], 1)
    assert np.allclose(rows.read(texture) * rows.scale + rows.centre, twin, atol=2e-3)


def test_the_same_features_have_the_same_rows_whatever_axes_they_are_kept_on(
    textures: list[Texture], rows: TextureRows
) -> None:
    """The trap: every image has a basis of its own, so its kept coordinates mean nothing beside those of another."""
    texture = textures[0]
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(16, 16)))[0].astype(np.float32)
    turned = replace(
        texture,
        embedding=(texture.coordinates() @ turn).reshape(*texture.grid.shape, 16).astype(np.float16),
        basis=Basis(texture.basis.mean, (turn.T @ texture.basis.rows.astype(np.float32)).astype(np.float16)),
    )
    assert np.abs(rows.read(turned) - rows.read(texture)).max() < 0.05
    assert abs(np.corrcoef(turned.coordinates().ravel(), texture.coordinates().ravel())[0, 1]) < 0.5


# --- the module and its files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [None, 24])
def test_it_begins_as_loud_as_the_token_embeddings(
    rows: TextureRows, textures: list[Texture], hidden: int | None
) -> None:
    model, _ = pair("llava")
    before = torch.random.get_rng_state()
    projector = of(model, rows, hidden)
    assert torch.equal(torch.random.get_rng_state(), before)
    table = torch.from_numpy(np.concatenate([rows.read(texture) for texture in textures]))
    out = projector(table)
    assert out.shape == (len(table), 64)
    loudness = model.get_input_embeddings().weight.square().mean().sqrt()
    assert 0.6 < out.square().mean().sqrt() / loudness < 1.6
    assert same(weights(projector), weights(of(model, rows, hidden)))
    assert not same(weights(projector), weights(of(model, rows, hidden, seed=1)))


@pytest.mark.parametrize(("rank", "hidden"), [(16, None), (None, 24)])
def test_saved_and_read_again(tmp_path: Path, textures: list[Texture], rank: int | None, hidden: int | None) -> None:
    rows = TextureRows.fit(textures, rank=rank, channels=("y", "x", "saliency"), side=SIDE)
    projector = TextureProjector(rows, 40, hidden, seed=3)
    projector.save(tmp_path)
    again = TextureProjector.load(tmp_path)
    assert same(weights(projector), weights(again))
    assert (again.rows.encoder, again.rows.channels, again.rows.side) == (rows.encoder, rows.channels, SIDE)
    assert np.array_equal(again.rows.read(textures[0]), rows.read(textures[0]))


# --- in front of stock models -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(FAMILIES))
def test_it_takes_the_place_of_the_tower(name: str, textures: list[Texture], rows: TextureRows) -> None:
    """The prompt has one placeholder a kept cell; the model gets the projector's vectors, at the full grid's places."""
    vlm = foveate.vlm.attach(*pair(name))
    projector = of(vlm.model, rows)
    scene = encode_texture(vlm, projector, textures[0])
    prepared = vlm.prepare(scene, "where is it?", budget=5)
    kept = prepared.chosen[0].rows
    assert prepared.tokens == (5, 12)
    assert torch.equal(prepared.features.rows[0], projector(torch.from_numpy(rows.read(textures[0])))[kept])
    full = vlm.prepare(scene, "where is it?", budget=None)
    positions = full.text["position_ids"][..., torch.from_numpy(prepared.keep)]
    assert torch.equal(prepared.text["position_ids"][-3:], positions[-3:])
    logits = vlm.model(**prepared.inputs(), use_cache=False).logits
    (gradient,) = torch.autograd.grad(logits[0, -1, 40], next(projector.parameters()))
    assert gradient.abs().max() > 0


@pytest.mark.parametrize("name", list(FAMILIES))
def test_loss_is_that_of_the_answers_alone(name: str, textures: list[Texture], rows: TextureRows) -> None:
    """A ragged batch against a reference: one by one, all logits, no padding, log-softmax by hand."""
    vlm = foveate.vlm.attach(*pair(name))
    projector = of(vlm.model, rows)
    said = [(textures[0], "what?", "ab"), (textures[1], "what is it?", "c"), (textures[2], "where?", "def")]
    lessons = lay_out(said, vlm, rows, budget=5, method="uniform")  # a lesson's own cells are no model's rows yet
    assert [one.learnt for one in lessons] == [3, 2, 4]
    total = []
    with torch.no_grad():
        for (texture, question, _), one in zip(said, lessons, strict=True):
            features = vlm.prepare(encode_texture(vlm, projector, texture), question, budget=5, method="uniform")
            inputs = {**one.full, "mm_encoder_outputs": features.inputs()["mm_encoder_outputs"]}
            logits = vlm.model(**inputs, use_cache=False).logits[0].log_softmax(-1)
            ids = inputs["input_ids"][0]
            total += [-logits[i - 1, ids[i]] for i in range(len(ids) - one.learnt, len(ids))]
        assert torch.allclose(measure_loss(vlm, projector, lessons), torch.stack(total).mean(), atol=1e-4)


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl"])
def test_answers_stand_where_generation_would_put_them(name: str, textures: list[Texture], rows: TextureRows) -> None:
    """Logits for a given answer equal those of generating it, so training and asking agree about positions."""
    vlm = foveate.vlm.attach(*pair(name))
    projector = of(vlm.model, rows)
    prepared = vlm.prepare(encode_texture(vlm, projector, textures[0]), "what?", budget=5, method="uniform")
    unsaid = [*range(len(SPECIAL)), *range(len(IDS), VOCABULARY)]  # an answer is text
    out = vlm.model.generate(
        **prepared.inputs(), do_sample=False, max_new_tokens=4, pad_token_id=0, suppress_tokens=unsaid,
        output_logits=True, return_dict_in_generate=True,
    )  # fmt: skip
    ids = out.sequences[0, prepared.text["input_ids"].shape[1] :]
    said = textures[0], "what?", vlm.processor.tokenizer.decode(ids)
    (lesson,) = lay_out([said], vlm, rows, budget=5, method="uniform")
    with torch.no_grad():
        given = {**lesson.full, "mm_encoder_outputs": prepared.inputs()["mm_encoder_outputs"]}
        logits = vlm.model(**given, use_cache=False).logits[0, -6:-2]
    assert torch.equal(lesson.full["input_ids"][0, -5:-1], ids)
    assert torch.allclose(logits, torch.cat(out.logits), atol=1e-4)


# --- training ---------------------------------------------------------------------------------------------------------


def lit(count: int, seed: int) -> Iterator[tuple[Texture, str, str]]:
    """A bus or a piece of broccoli, somewhere on grey noise: which is it?"""
    photos = Path(foveate.__file__).parent / "cli" / "photos"
    boxes = {"b": ("yellow_bus.jpg", 105, 120, 320, 574), "v": ("child_with_broccoli.jpg", 270, 244, 490, 478)}
    rng = np.random.default_rng(seed)
    for number in range(count):
        answer = "bv"[number % 2]
        file, y0, x0, y1, x1 = boxes[answer]
        thing = foveate.load_image(photos / file).rgb[y0:y1, x0:x1]
        h, w = rng.integers(40, 60, 2)
        y, x = rng.integers(0, 96 - h), rng.integers(0, 96 - w)
        image = np.clip(rng.normal(120, 15, (96, 96, 1)).repeat(3, 2), 0, 255).astype(np.uint8)
        image[y : y + h, x : x + w] = cv2.resize(thing, (int(w), int(h)), interpolation=cv2.INTER_AREA)
        yield foveate.encode(image, long_side=96, channels="fast"), "?", answer


def taught(model: Any, lessons: Sequence[Lesson]) -> None:
    """Stage 0, as no trained language model can be had here: the answer stands in the prompt, in the image's place."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    letters = torch.tensor([IDS[one.answer] for one in lessons])[:, None]
    ids, at = (torch.cat([one.full[name] for one in lessons]) for name in ("input_ids", "position_ids"))
    ids = torch.where(ids == IDS["<image>"], letters, ids)
    for _ in range(12):
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=at, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits[:, -3:-1].mT, ids[:, -2:])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    model.zero_grad(set_to_none=True)


def test_it_learns(llava: tuple[Any, Any], tmp_path: Path) -> None:
    """Held-out scenes are told apart, by a frozen model that never saw an image; a blind guess is half right."""
    model, processor = llava
    seen, held = list(lit(24, 0)), list(lit(30, 1))
    projector = of(model, TextureRows.fit((texture for texture, _, _ in seen), side=SIDE))
    vlm = foveate.vlm.attach(model, processor)
    taught(model, lay_out(seen, vlm, projector.rows, budget=8))
    frozen, random = weights(model), torch.random.get_rng_state()
    before = accuracy(held, model, processor, projector, budget=8)
    losses = train(seen, model, processor, projector, folder=tmp_path, steps=64, batch=8, rate=1e-2, budget=8)
    assert same(frozen, weights(model))
    assert torch.equal(torch.random.get_rng_state(), random)
    assert not model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    blind = np.log(2) / 2  # one of two letters, and an end that is certain
    assert len(losses) == 64
    assert np.mean(losses[-10:]) < blind / 2 < np.mean(losses[:3])
    after = accuracy(held, model, processor, projector, budget=8)
    assert before <= 0.65  # 30 scenes: half, give or take
    assert after >= 0.85
    with torch.no_grad():
        assert measure_loss(vlm, projector, lay_out(held, vlm, projector.rows, budget=8)) < 0.7 * blind


def examples(textures: list[Texture]) -> list[tuple[Texture, str, str]]:
    return [(texture, question, answer) for texture in textures for question, answer in (("a?", "bc"), ("d?", "e"))]


class Killer(TrainerCallback):  # type: ignore[misc]
    """Kills its own process after a step, or while the checkpoint of one is being written."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.crash
@pytest.mark.parametrize("stage", ["adapters"])
def test_a_killed_process_goes_on_bit_for_bit(
    tmp_path: Path, textures: list[Texture], rows: TextureRows, stage: Any
) -> None:
    """SIGKILL after step 5 of 6 in a process of its own, a checkpoint that was cut off, and the rest here."""

    def run(folder: Path, killer: list[Any]) -> tuple[tuple[float, ...], dict[str, torch.Tensor]]:
        model, processor = pair("llava")
        model = copy.deepcopy(model)
        projector = of(model, rows)
        losses = train(
            examples(textures), model, processor, projector, stage, folder=folder, budget=5, callbacks=killer, **FEW
        )
        return losses, {**weights(projector), **weights(model)}

    child = os.fork()
    if child == 0:
        try:
            run(tmp_path / "cut", [Killer(5)])
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    broken = tmp_path / "cut" / "checkpoint-5"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"cut off")
    again, uninterrupted = run(tmp_path / "cut", []), run(tmp_path / "whole", [])
    assert again[0] == uninterrupted[0]
    assert same(again[1], uninterrupted[1])
    kept = next((tmp_path / "cut").glob("checkpoint-6")) / "model.safetensors"
    assert all("projector" in name or ".foveate." in name for name in load_file(kept))  # the frozen model is not in it


def test_adapters_change_nothing_but_themselves_and_can_be_read_again(
    tmp_path: Path, llava: tuple[Any, Any], textures: list[Texture], rows: TextureRows
) -> None:
    model, processor = llava
    projector, frozen = of(model, rows), weights(model)
    losses = train(
        examples(textures), model, processor, projector, "adapters",
        folder=tmp_path / "run", steps=20, batch=4, rate=1e-2,
    )  # fmt: skip
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    now = {name.replace(".base_layer", ""): value for name, value in weights(model).items()}
    assert all(torch.equal(now[name], value) for name, value in frozen.items())
    added = {name for name in now if name not in frozen}
    assert {name.split(".")[1] for name in added} == {"language_model"}
    assert len(added) == 2 * 7 * 3
    assert all(p.requires_grad for name, p in model.named_parameters() if ".foveate." not in name)
    assert not any(part.training for part in model.modules())
    model.save_pretrained(tmp_path)
    assert (tmp_path / "adapter_model.safetensors").exists()
    fresh = copy.deepcopy(pair("llava")[0])
    fresh.load_adapter(str(tmp_path))
    vlm, other = foveate.vlm.attach(model, processor), foveate.vlm.attach(fresh, processor)
    with torch.no_grad():
        a = vlm.model(**vlm.prepare(encode_texture(vlm, projector, textures[0]), "a?").inputs()).logits
        b = other.model(**other.prepare(encode_texture(other, projector, textures[0]), "a?").inputs()).logits
    assert torch.equal(a, b)
