"""The recipe of the micro-VLM: its scenes, its questions, its batches, a few steps of a tiny one, stock classes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate
from foveate.encoders.protocol import Encoder
from foveate.language.query import noun_phrases

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.18")
_NAMES = "batches evaluate follow_up model reference scenes selector train train_selector".split()
batches, evaluate, follow_up, model, reference, scenes, selector, train, train_selector = (
    import_module(f"training.judges.micro_vlm.{name}") for name in _NAMES
)

MANY = [scenes.scene_of(7, index) for index in range(150)]
TINY = {"tower": 48, "tower_layers": 1, "width": 64, "layers": 3}


def tiny() -> Any:
    torch.manual_seed(0)
    return model.new(**TINY).eval()


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
        shown = scenes.cells_of(scene, model.CELLS)
        assert set(np.unique(shown)) - {-1} == set(range(len(scene.things)))
        for thing in scene.things:
            assert 0.008 <= (thing.side / scenes.SIDE) ** 2 <= 0.07


def test_the_cells_of_a_thing_hold_its_pixels() -> None:
    for scene in MANY[:20]:
        shown = scenes.cells_of(scene, model.CELLS)
        for i, thing in enumerate(scene.things):
            y, x = np.nonzero(shown == i)
            reach = thing.side * 0.75 + model.PATCH
            assert np.abs((y + 0.5) * model.PATCH - thing.y).max() <= reach
            assert np.abs((x + 0.5) * model.PATCH - thing.x).max() <= reach


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
            assert {*question.text.split(), question.answer} <= set(model.VOCABULARY)
            seen.add(question.family)
    assert seen == set(scenes.FAMILIES)


def test_foveate_looks_for_phrases_that_the_selector_was_taught() -> None:
    phrases = {p for scene in MANY for q in scenes.questions_of(scene) for p in noun_phrases(q.text)}
    assert phrases <= set(train_selector.PHRASES)


def test_labels_of_the_selector_hold() -> None:
    for scene in MANY[:30]:
        said = train_selector.holds(scene)
        assert said == set().union(*(train_selector.of(thing) for thing in scene.things))
        assert {t.shape for t in scene.things if t.shape} <= said <= set(train_selector.PHRASES)
    pictures, labels, on = train_selector.labelled(0, 4)
    assert pictures.shape == (4, 3, 128, 128)
    assert torch.equal(labels.any(-1), on)
    assert on.any()


def test_a_slot_computes_what_the_question_alone_computes() -> None:
    trainee = train.Trainee(tiny())
    batch = batches.batch_of(batches.Order(0, 2, 3), 7)
    with torch.no_grad():
        logits, _, _ = trainee.answers(trainee.seen(batch.pixels), batch)
        features = reference.features_of(trainee.model, batch.pixels)
        row = 0
        for b in range(2):
            for question in scenes.pick(MANY[b], 3):
                alone = trainee.model(
                    input_ids=reference.full_ids(question.text)[None],
                    attention_mask=torch.ones(1, len(reference.full_ids(question.text)), dtype=torch.int64),
                    pixel_values=batch.pixels[b : b + 1],
                ).logits[0, -1]
                assert torch.allclose(alone, logits[row], atol=1e-4)
                kept = list(range(0, 256, 9))
                word = reference.first_words(trainee.model, [features.pooler_output[b]], [[question.text]], [kept])
                said = reference.generated(trainee.model, features, b, question.text, kept, words=1)
                assert word == [said] or word[0].startswith("<")
                row += 2  # an answer and </s>


def test_a_follow_up_names_nothing_and_has_one_answer_in_the_scene() -> None:
    talks = [(scene, talk) for scene in MANY for talk in scenes.follow_ups_of(scene)]
    assert {talk[1].family for _, talk in talks} == set(scenes.FOLLOW_UPS)
    for scene, (first, second) in talks:
        (number,) = first.needs
        thing = scene.things[number]
        assert fits(scene, first.text) == {first.answer}
        assert second.needs == first.needs
        assert second.answer == (thing.colour if "colour" in second.text else thing.glyph)
        assert second.answer not in {*first.text.split(), first.answer}
        assert not {*second.text.split()} & {*scenes.COLOURS, *scenes.SHAPES, *scenes.LETTERS, *scenes.DIGITS}
        assert {*second.text.split()} <= set(model.VOCABULARY)


def test_a_change_names_another_thing() -> None:
    for scene in MANY[:60]:
        for first, second in scenes.changes_of(scene):
            assert not {*first.needs} & {*second.needs}
            assert second in scenes.questions_of(scene)


def test_a_slot_of_two_turns_computes_what_the_dialogue_alone_computes() -> None:
    trainee, order = train.Trainee(tiny()), batches.Order(0, 2, 4, turns=2, held=0.5)
    batch = batches.batch_of(order, 7)
    with torch.no_grad():
        logits, targets, _ = trainee.answers(trainee.seen(batch.pixels), batch)
    row, kinds = 0, batch.turn[batch.targets != batches.IGNORED].tolist()
    for b in range(2):
        for first, second in scenes.pick_talks(order.scene(7, b), 4):
            ids = reference.full_ids(first.text, first.answer, second.text)[None]
            with torch.no_grad():
                alone = trainee.model(
                    input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=batch.pixels[b : b + 1]
                ).logits[0, -1]
            assert torch.allclose(alone, logits[row + 2], atol=1e-4)  # after the first answer and </s>
            assert model.VOCABULARY[second.answer] == targets[row + 2]
            assert kinds[row : row + 4] == [0, -1, 1 if second.family in scenes.FOLLOW_UPS else 2, -1]
            row += 4
    assert row == len(logits)


def test_the_chat_template_lays_out_a_dialogue_as_the_slots_do() -> None:
    first, second = scenes.follow_ups_of(next(s for s in MANY if scenes.follow_ups_of(s)))[0]
    parts = [{"type": "image"}, {"type": "text", "text": first.text}]
    says = [{"role": "user", "content": parts}, {"role": "assistant", "content": first.answer}]
    processor = model.processor()
    text = processor.apply_chat_template(
        [*says, {"role": "user", "content": second.text + "?"}], add_generation_prompt=True
    )
    ids = processor(images=scenes.draw(MANY[0]), text=text, return_tensors="pt")["input_ids"][0]
    assert ids.tolist() == reference.full_ids(first.text, first.answer, second.text).tolist()


def test_heads_of_a_tower_start_at_neighbours() -> None:
    torch.manual_seed(0)
    tower = model.new(neighbours=True, tower_layers=1).model.vision_tower
    attention = tower.encoder.layers[0].self_attn
    with torch.no_grad():
        places = tower.encoder.layers[0].layer_norm1(tower.embeddings.position_embedding.weight[1:])
        for head, (dy, dx) in enumerate(model.BESIDE[0]):
            rows = slice(head * 48, (head + 1) * 48)
            asks, offers = places @ attention.q_proj.weight[rows].T, places @ attention.k_proj.weight[rows].T
            looks = (asks @ offers.T).argmax(1).reshape(model.CELLS, model.CELLS)
            assert looks[8, 8] == (8 + dy) * model.CELLS + 8 + dx


def test_a_few_steps_lower_both_losses() -> None:
    torch.manual_seed(0)
    trainee = train.Trainee(model.new(**TINY))
    optimizer = train.optimiser(trainee)
    batch = batches.batch_of(batches.Order(0, 4, 4), 7)
    _, both, ask, _ = train.stages(1, 1, 1, 1)
    steps = [train.one_step(trainee, optimizer, batch, both, rate=3e-3) for _ in range(12)]
    assert steps[-1]["loss"] < 0.7 * steps[0]["loss"]
    assert steps[-1]["dense"] < 0.8 * steps[0]["dense"]
    before = trainee.model.model.vision_tower.embeddings.patch_embedding.weight.clone()
    assert train.one_step(trainee, optimizer, batch, ask, rate=3e-3)["loss"] < steps[0]["loss"]
    assert torch.equal(before, trainee.model.model.vision_tower.embeddings.patch_embedding.weight)


def test_stock_classes_load_what_is_saved_and_answer(tmp_path: Path) -> None:
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    made = tiny()
    model.save(made, tmp_path)
    assert {p.suffix for p in tmp_path.iterdir()} <= {".safetensors", ".json", ".jinja"}
    stock: tuple[Any, Any] = AutoModelForImageTextToText, AutoProcessor
    loaded, processor = (each.from_pretrained(tmp_path) for each in stock)
    assert type(loaded).__name__ == "LlavaForConditionalGeneration"
    question = scenes.questions_of(MANY[0])[0].text
    parts = [{"type": "image"}, {"type": "text", "text": question.capitalize() + "?"}]
    prompt = processor.apply_chat_template([{"role": "user", "content": parts}], add_generation_prompt=True)
    picture = scenes.draw(MANY[0])
    inputs = processor(images=Image.fromarray(picture), text=prompt, return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == reference.full_ids(question).tolist()
    assert torch.allclose(inputs["pixel_values"], batches.normalised([picture]), atol=1e-6)
    out = loaded.eval().generate(**inputs, max_new_tokens=2, do_sample=False)
    features = reference.features_of(made, inputs["pixel_values"])
    whole = reference.generated(made, features, 0, question, range(256))
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
    features = reference.features_of(made, batches.normalised([picture]))
    vlm = foveate.vlm.attach(made, model.processor(), encoder=selector.Selector.load(tmp_path))
    scene = vlm.see(picture)
    for question in scenes.questions_of(MANY[0])[:2]:
        for method, how in evaluate.METHODS.items():
            answer = vlm.ask(scene, question.text, budget=31, generation={"max_new_tokens": 3}, **how)
            kept = answer.chosen[0].kept[0]
            assert len(kept.indices) == (30 if method == "downsample" else 31)
            if method != "downsample":
                expected = reference.generated(made, features, 0, question.text, kept.indices.tolist(), words=3)
                assert answer.text.strip() == expected


def test_dialogues_are_asked_in_a_chat_of_their_own_for_every_way(tmp_path: Path) -> None:
    import foveate.vlm

    torch.manual_seed(0)
    selector.save(selector.Net(), tmp_path, slope=9.0, offset=-4.0)
    vlm = foveate.vlm.attach(tiny(), model.processor(), encoder=selector.Selector.load(tmp_path))
    pictures, items = follow_up.asked(3, follow_up.FIRST["tune"])
    assert {item.talk[1].family in scenes.FOLLOW_UPS for item in items} == {True, False}
    ways: dict[str, dict[str, Any]] = {"a": {}, "b": {}, "oracle": {}}
    for _, said in follow_up.answered(vlm, pictures, items[:3], 31, ways):
        assert said["a"] == said["b"]  # nothing of one is in the prompt of the other
    plane = follow_up.needed(pictures[0], items[0].talk)
    shown = scenes.cells_of(pictures[0], model.CELLS)
    assert np.array_equal(plane == 1, np.isin(shown, items[0].talk[1].needs))


def test_the_oracle_keeps_what_the_question_needs() -> None:
    for scene in MANY[:30]:
        shown = scenes.cells_of(scene, model.CELLS).ravel()
        for question in scenes.questions_of(scene)[:4]:
            kept = evaluate.oracle(scene, question, 64)
            assert len(set(kept)) == 64
            assert kept == sorted(kept)
            needed = np.flatnonzero(np.isin(shown, question.needs))
            assert len(needed) > 64 or set(needed) <= set(kept)


def test_intervals_hold_the_share() -> None:
    rng = np.random.default_rng(0)
    full = rng.random(400) < 0.95
    found = evaluate.share(full & (rng.random(400) < 0.9), np.repeat(np.arange(100), 4), full)
    low, high = found["interval"]
    assert low < found["accuracy"] < high
    assert high - low < 0.15
    assert found["kept"] == pytest.approx(found["accuracy"] / full.mean())
