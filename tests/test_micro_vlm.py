"""The micro-VLM of shapes: its scenes and questions, slots that compute what a question alone does, stock classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate
from foveate.encoders.protocol import Encoder
from foveate.language.query import noun_phrases

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.18")
from training.judges import llava  # noqa: E402
from training.judges.micro_vlm import evaluate, scenes, selector, train  # noqa: E402

pytestmark = pytest.mark.vlm

MANY = [scenes.scene_of(7, index) for index in range(80)]
TINY = {"tower": 48, "tower_layers": 1, "width": 64, "layers": 3, "head": 48}


def tiny() -> Any:
    torch.manual_seed(0)
    return train.KIND.model(**TINY).eval()


def generated(model: Any, features: Any, row: int, question: str, kept: Any, words: int = 2) -> str:
    """The stock `generate` on what remains of picture `row`: the recipe itself, without foveate."""
    ids, positions = llava.prompt(question, kept, train.VOCABULARY)
    cut = type(features)(pooler_output=[features.pooler_output[row][torch.as_tensor(kept)]])
    out = model.generate(
        input_ids=ids[None], attention_mask=torch.ones_like(ids)[None], position_ids=positions[None],
        mm_encoder_outputs={"image": cut}, max_new_tokens=words, do_sample=False,
    )  # fmt: skip
    names = list(train.VOCABULARY)
    new = [names[int(i)] for i in out[0, len(ids) :]]
    return " ".join(word for word in new if not word.startswith("<"))


def features_of(model: Any, pixels: Any) -> Any:
    with torch.no_grad():
        return model.get_image_features(pixel_values=pixels, return_dict=True)


def full(question: str) -> Any:
    return llava.prompt(question, range(256), train.VOCABULARY)[0]


def test_scenes_and_pictures_are_a_function_of_seed_and_index() -> None:
    for index in (0, 5):
        again = scenes.scene_of(7, index)
        assert again == MANY[index]
        assert np.array_equal(scenes.draw(again), scenes.draw(MANY[index]))
        assert scenes.pick(again, 12) == scenes.pick(MANY[index], 12)
    assert scenes.scene_of(8, 0) != MANY[0]


def test_things_have_the_sizes_that_the_recipe_promises() -> None:
    for scene in MANY:
        assert 4 <= len(scene.things) <= 8
        shown = scenes.cells_of(scene, llava.CELLS)
        assert set(np.unique(shown)) - {-1} == set(range(len(scene.things)))
        for thing in scene.things:
            assert 0.008 <= (thing.side / scenes.SIDE) ** 2 <= 0.07


PATCH = scenes.SIDE // llava.CELLS


def test_the_cells_of_a_thing_hold_its_pixels() -> None:
    for scene in MANY[:20]:
        shown = scenes.cells_of(scene, llava.CELLS)
        for i, thing in enumerate(scene.things):
            y, x = np.nonzero(shown == i)
            reach = thing.side * 0.75 + PATCH
            assert np.abs((y + 0.5) * PATCH - thing.y).max() <= reach
            assert np.abs((x + 0.5) * PATCH - thing.x).max() <= reach


def test_a_holder_is_painted_in_its_colour() -> None:
    for scene in MANY[:40]:
        picture = scenes.draw(scene).astype(float)
        for thing in (t for t in scene.things if t.shape == "square"):
            y, x = int(thing.y - 0.4 * thing.side), int(thing.x)  # above what it holds
            assert (
                np.abs(np.median(picture[y - 1 : y + 2, x - 1 : x + 2], (0, 1)) - scenes.COLOURS[thing.colour]).max()
                < 40
            )


def fits(scene: Any, text: str) -> set[str]:
    """All answers that a reader of the scene could give: derived from words and geometry, not from questions_of."""
    words = text.split()

    def meant(noun: list[str]) -> list[Any]:
        found = []
        for thing in scene.things:
            says = {thing.shape, thing.colour} if thing.shape else {thing.glyph, thing.kind, thing.colour}
            inner = {thing.glyph, thing.kind} if thing.shape and thing.glyph else set()
            if set(noun) <= says or set(noun) <= inner:
                found.append(thing)
        return found

    if words[1] == "is":
        side, noun = words[2], words[words.index("the") + 1 :]
        out = set()
        for anchor in meant(noun):
            dy, dx = {"left": (0, -1), "right": (0, 1), "above": (-1, 0), "below": (1, 0)}[side]
            beside = []
            for other in scene.things:
                ahead = (other.y - anchor.y) * dy + (other.x - anchor.x) * dx
                aside = abs((other.y - anchor.y) * dx) + abs((other.x - anchor.x) * dy)
                if ahead > scenes.PITCH / 2 and aside < scenes.PITCH / 2:
                    beside.append((ahead, other.shape or other.glyph))
            out.add(min(beside)[1] if beside else "nothing")
        return out
    if " in the " in text:
        return {t.glyph for t in scene.things if (t.colour, t.shape) == tuple(words[-2:]) and t.glyph} | {
            "nothing" for t in scene.things if (t.colour, t.shape) == tuple(words[-2:]) and t.kind != words[1]
        }
    if "around" in words:
        return {t.shape or "nothing" for t in scene.things if t.glyph == words[-1]}
    if "with" in words:
        return {t.colour for t in scene.things if t.shape == words[4] and t.glyph == words[-1]}
    if words[1] == "colour":
        return {t.colour for t in meant(words[4:])}
    if words[1] == "shape":
        return {t.shape for t in scene.things if t.shape and t.colour == words[-1]}
    return {t.glyph for t in scene.things if t.kind == words[1] and t.colour == words[-1]}


def test_every_question_has_one_answer() -> None:
    seen = set()
    for scene in MANY:
        for question in scenes.questions_of(scene):
            assert fits(scene, question.text) == {question.answer}, (scene, question)
            assert all(0 <= i < len(scene.things) for i in question.needs)
            assert {*question.text.split(), question.answer} <= set(train.VOCABULARY)
            seen.add(question.family)
    assert seen == set(scenes.FAMILIES)


def test_foveate_looks_for_phrases_that_the_selector_was_taught() -> None:
    phrases = {p for scene in MANY for q in scenes.questions_of(scene) for p in noun_phrases(q.text)}
    assert phrases <= set(selector.PHRASES)


def test_labels_of_the_selector_hold() -> None:
    for scene in MANY[:30]:
        for thing in scene.things:
            said = selector.of(thing)
            assert {thing.colour} | ({thing.shape} - {""}) <= said <= set(selector.PHRASES)
    pictures, labels, on = selector.labelled(0, 4)
    assert pictures.shape == (4, 3, 128, 128)
    assert torch.equal(labels.any(-1), on)
    assert on.any()


def test_a_slot_computes_what_the_question_alone_computes() -> None:
    trainee = train.Trainee(tiny())
    batch = train.batch_of(0, count=2, slots=3, seed=7)
    with torch.no_grad():
        logits, _, _ = trainee.answers(trainee.seen(batch.pixels), batch)
        features, row = features_of(trainee.model, batch.pixels), 0
        for b in range(2):
            for question in scenes.pick(MANY[b], 3):
                ids = full(question.text)[None]
                alone = trainee.model(
                    input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=batch.pixels[b : b + 1]
                ).logits[0, -1]
                assert torch.allclose(alone, logits[row], atol=1e-4)
                kept, cells = range(0, 256, 9), [features.pooler_output[b]]
                word = llava.first_words(trainee.model, cells, [question.text], [kept], train.VOCABULARY)
                said = generated(trainee.model, features, b, question.text, kept, words=1)
                assert word == [said] or word[0].startswith("<")
                row += 2  # an answer and </s>


def test_a_few_steps_lower_both_losses_and_a_tower_that_learns_nothing_stays() -> None:
    torch.manual_seed(0)
    trainee = train.Trainee(train.KIND.model(**TINY))
    optimizer, batch = llava.optimiser(trainee), train.batch_of(0, count=4, slots=4, seed=7)
    _, both, ask, _ = train.stages(1, 1, 1, 1)

    def one(stage: Any) -> dict[str, float]:
        loss, said = train.loss_of(trainee, batch, stage)
        llava.one_step(trainee, optimizer, loss, 3e-3)
        return said

    steps = [one(both) for _ in range(12)]
    assert steps[-1]["loss"] < 0.7 * steps[0]["loss"]
    assert steps[-1]["dense"] < 0.8 * steps[0]["dense"]
    before = trainee.model.model.vision_tower.embeddings.patch_embedding.weight.clone()
    assert one(ask)["loss"] < steps[0]["loss"]
    assert torch.equal(before, trainee.model.model.vision_tower.embeddings.patch_embedding.weight)


def test_stock_classes_load_what_is_saved_and_answer(tmp_path: Path) -> None:
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    made = tiny()
    train.KIND.save(made, tmp_path)
    assert {p.suffix for p in tmp_path.iterdir()} <= {".safetensors", ".json", ".jinja"}
    stock: tuple[Any, Any] = AutoModelForImageTextToText, AutoProcessor
    loaded, processor = (each.from_pretrained(tmp_path) for each in stock)
    assert type(loaded).__name__ == "LlavaForConditionalGeneration"
    question = scenes.questions_of(MANY[0])[0].text
    parts = [{"type": "image"}, {"type": "text", "text": question.capitalize() + "?"}]
    prompt = processor.apply_chat_template([{"role": "user", "content": parts}], add_generation_prompt=True)
    picture = scenes.draw(MANY[0])
    inputs = processor(images=Image.fromarray(picture), text=prompt, return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == full(question).tolist()
    assert torch.allclose(inputs["pixel_values"], train.KIND.normalised([picture]), atol=1e-6)
    out = loaded.eval().generate(**inputs, max_new_tokens=2, do_sample=False)
    features = features_of(made, inputs["pixel_values"])
    whole = generated(made, features, 0, question, range(256))
    assert processor.decode(out[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True).strip() == whole


def test_the_selector_is_an_encoder_and_reads_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    selector.save(selector.Net(), tmp_path, slope=9.0, offset=-4.0)
    encoder = selector.Selector.load(tmp_path)
    assert isinstance(encoder, Encoder)
    texture = foveate.encode(scenes.draw(MANY[0]), encoder=encoder)
    assert texture.grid.shape == (16, 16)
    relevance = foveate.score(texture, "What digit is in the green square?", encoder=encoder)
    assert set(relevance.parts) == {"digit", "green square"}
    assert len(foveate.allocate(relevance, 31).indices) == 31
    assert (tmp_path / "selector.json").is_file()
    unknown = encoder.encode_text(["zebra", "zebra", "giraffe"])
    assert np.array_equal(unknown[0], unknown[1])
    assert abs(unknown[0] @ unknown[2]) < 0.6
    with pytest.raises(FileNotFoundError, match="train one"):
        selector.Selector.load(tmp_path / "nowhere")


def test_foveate_answers_as_the_recipe_does(tmp_path: Path) -> None:
    import foveate.vlm

    torch.manual_seed(0)
    selector.save(selector.Net(), tmp_path, slope=9.0, offset=-4.0)
    made, picture = tiny(), scenes.draw(MANY[0])
    features = features_of(made, train.KIND.normalised([picture]))
    vlm = foveate.vlm.attach(made, train.KIND.processor(), encoder=selector.Selector.load(tmp_path))
    scene = vlm.see(picture)
    for question in scenes.questions_of(MANY[0])[:2]:
        for method, how in evaluate.METHODS.items():
            answer = vlm.ask(scene, question.text, budget=31, generation={"max_new_tokens": 3}, **how)
            kept = answer.chosen[0].kept[0]
            assert len(kept.indices) == (30 if method == "downsample" else 31)
            if method != "downsample":
                expected = generated(made, features, 0, question.text, kept.indices.tolist(), words=3)
                assert answer.text.strip() == expected


def test_intervals_hold_the_share() -> None:
    rng = np.random.default_rng(0)
    full = rng.random(400) < 0.95
    found = llava.share(full & (rng.random(400) < 0.9), np.repeat(np.arange(100), 4), full)
    low, high = found["interval"]
    assert low < found["accuracy"] < high
    assert high - low < 0.15
    assert found["kept"] == pytest.approx(found["accuracy"] / full.mean())
