"""The harder small model: its scenes and questions, cut-outs, tower, training that goes on, and every way judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from transformers import AttentionInterface  # noqa: E402

from foveate.language.dialogue import goes_back  # noqa: E402
from training.judges import llava  # noqa: E402
from training.judges.collage import cases, cutouts, evaluate, features, model, scenes, tower  # noqa: E402
from training.judges.collage.scenes import COLOURS  # noqa: E402

pytestmark = pytest.mark.vlm

GROUND = np.full((60, 80, 3), 128, np.uint8)


def pool() -> dict[str, list[cutouts.Cutout]]:
    """Grey ellipses, with a part at the bottom of the dogs and cars."""
    out = {}
    y, x = np.mgrid[:60, :50]
    disc = ((y - 29.5) / 30) ** 2 + ((x - 24.5) / 25) ** 2 < 1
    light = np.repeat((80 + 2 * y)[..., None], 3, 2).astype(np.uint8)
    for name, parts in (
        ("dog", {"leg": disc & (y > 40)}),
        ("car", {"wheel": disc & (y > 40)}),
        ("boots", {}),
        ("face", {}),
    ):
        out[name] = [cutouts.Cutout(name, light, disc, parts, "made")]
    return out


POOL = pool()
SOME = [scenes.scene_of(7, index, POOL, grounds=1) for index in range(60)]


def test_a_scene_is_a_function_of_seed_and_index_and_survives_a_file() -> None:
    for index in (0, 9):
        assert scenes.scene_of(7, index, POOL, grounds=1) == SOME[index] == scenes.Scene.read(SOME[index].line())
    assert scenes.scene_of(8, 0, POOL, grounds=1) != SOME[0]
    assert {len(scene.things) for scene in SOME} <= set(range(12, 31))


def test_cells_show_the_things_and_their_tints() -> None:
    for scene in SOME[:6]:
        picture, shown = scenes.draw(scene, POOL, GROUND)
        assert picture.shape == (512, 512, 3)
        small = picture.reshape(16, 32, 16, 32, 3).mean((1, 3)).reshape(256, 3)
        for number, thing in enumerate(scene.things):
            here = np.flatnonzero((shown[0] == number) & (shown[1] < 0))
            top, left, high, wide = thing.box
            assert len(here) > 1
            assert (np.abs((here // 16 + 0.5) * 32 - top - high / 2) <= high / 2 + 16).all()
            assert (np.abs((here % 16 + 0.5) * 32 - left - wide / 2) <= wide / 2 + 16).all()
            if thing.colour:  # of the tints, the right one is the nearest in hue
                off = small[here].mean(0) - 128
                wanted = {c: np.array(rgb) - np.mean(rgb) for c, rgb in COLOURS.items()}
                fit = {c: off @ w / np.linalg.norm(w) for c, w in wanted.items()}
                assert thing.colour in sorted(fit, key=fit.__getitem__)[-3:]
            if thing.part:
                assert (shown[1] == number).any()


def fits(scene: Any, text: str) -> set[str]:
    """Every answer that a reader of the scene could give: from words and places, not from questions_of."""
    words = text.split()

    def meant(noun: list[str]) -> list[Any]:
        return [t for t in scene.things if t.kind == noun[-1] and (len(noun) == 1 or t.colour == noun[0])]

    def at(thing: Any, side: str) -> list[Any]:
        dy, dx = {"left": (0, -1), "right": (0, 1), "above": (-1, 0), "below": (1, 0)}[side]
        place = thing.row + dy, thing.column + dx
        return [t for t in scene.things if (t.row, t.column) == place]

    if words[:2] == ["how", "many"]:
        return {scenes.NUMBERS[len(meant(words[2:])) - 1]}
    noun = words[words.index("the") + 1 :]
    if words[1] == "part":
        owner, colour = " ".join(noun).split(" is ")
        return {t.part if t.paint == colour else "none" for t in meant(owner.split())}
    side = next((w for w in words if w in ("left", "right", "above", "below")), "")
    if words[1] == "is":
        anchors = meant(noun)
        return {t.kind for a in anchors for t in at(a, side)} | ({"several"} if len(anchors) != 1 else set())
    if side:
        anchors = meant(words[len(words) - words[::-1].index("the") :])
        return {t.colour for a in anchors for t in at(a, side) if t.kind == noun[0]} | (
            {"several"} if len(anchors) != 1 else set()
        )
    if "of" in words:
        part, last = noun[0], words[len(words) - words[::-1].index("the") :]
        return {t.paint if t.part == part else "none" for t in meant(last)}
    return {t.colour for t in meant(noun)}


def test_every_question_has_one_answer_and_its_words_are_known() -> None:
    families = set()
    for scene in SOME:
        for question in scenes.questions_of(scene):
            assert fits(scene, question.text) == {question.answer}, question
            assert {*question.text.split(), question.answer} <= set(model.VOCABULARY)
            assert len(question.text.split()) <= model.SLOT - 2
            families.add(question.family)
    assert families == set(scenes.FAMILIES)


def test_in_a_mirror_left_is_right() -> None:
    swap = {"left": "right", "right": "left"}
    for scene in SOME[:20]:
        turned = model.mirrored(scene)
        assert model.mirrored(turned) == scene
        there = {(q.text, q.answer) for q in scenes.questions_of(turned)}
        assert there == {
            (" ".join(swap.get(w, w) for w in q.text.split()), q.answer) for q in scenes.questions_of(scene)
        }
    picture, shown = scenes.draw(SOME[0], POOL, GROUND)
    again, there_shown = scenes.draw(model.mirrored(SOME[0]), POOL, GROUND)
    assert np.array_equal(again, picture[:, ::-1])
    assert np.array_equal(there_shown.reshape(2, 16, 16), shown.reshape(2, 16, 16)[..., ::-1])


def test_one_connected_piece_is_cut_out() -> None:
    mask = np.zeros((100, 120), bool)
    mask[10:60, 10:70], mask[80:90, 90:100] = True, True
    rgb = np.full((100, 120, 3), 7, np.uint8)
    one = cutouts.cut("bag", rgb, mask, {"head": mask & (np.arange(100) < 25)[:, None]}, "made")
    assert one is not None
    assert one.mask.shape == (50, 60)
    assert one.mask.all()
    assert one.parts["head"].sum() == 15 * 60
    assert cutouts.cut("bag", rgb, mask[::-1] & False, {}, "made") is None
    mask[:, :] = True
    assert cutouts.cut("bag", rgb, mask, {}, "made") is None  # cut by the photograph's borders


def write(folder: Path, count: int = 4) -> None:
    """Files of scenes; tokens that say name and tint of each cell outright."""
    for side in ("train", "held"):
        at = folder / side
        at.mkdir(parents=True)
        drawn = [scenes.draw(scene, POOL, GROUND)[1] for scene in SOME[:count]]
        np.save(at / "shown.npy", np.stack(drawn))
        rng = np.random.default_rng(0)
        np.save(at / "nano.npy", rng.normal(size=(count, 16, 16, features.NUMBERS)).astype(np.float16))
        np.save(at / "pixels.npy", rng.integers(0, 255, (count, 256, 256, 3)).astype(np.uint8))
        (at / "scenes.jsonl").write_text("".join(scene.line() + "\n" for scene in SOME[:count]))
        made = features.load(folder, side)
        tokens = np.zeros((count, 2, 256, tower.WIDTH), np.float16)
        for index in range(count):
            for plane, numbers in enumerate(tower.shown_of(made, index)):
                tokens[index, 0, np.arange(256), 30 * plane + numbers] = 3
            turned = tokens[index, 0].reshape(16, 16, -1)[:, ::-1]
            tokens[index, 1] = turned.reshape(256, -1)
        np.save(at / "tokens.npy", tokens)


TINY: dict[str, Any] = {"size": 2, "slots": 4, "width": 64, "layers": 3}


def test_training_goes_on_where_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "whole")
    write(tmp_path / "killed")
    whole = model.train(tmp_path / "whole", alone=1, steps=2, every=1, **TINY)
    loss_of, calls = model.loss_of, []

    def dies(*args: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return loss_of(*args, **how)

    monkeypatch.setattr(model, "loss_of", dies)
    with pytest.raises(KeyboardInterrupt):
        model.train(tmp_path / "killed", alone=1, steps=2, every=1, **TINY)
    monkeypatch.setattr(model, "loss_of", loss_of)
    again = model.train(tmp_path / "killed", alone=1, steps=2, every=1, **TINY)
    for name, there in whole.state_dict().items():
        assert torch.equal(there, again.state_dict()[name]), name
    kept = model.loaded(tmp_path / "killed").state_dict()
    assert all(torch.equal(value, again.model.state_dict()[name]) for name, value in kept.items())


def test_a_tower_learns_two_scenes_and_goes_on(tmp_path: Path) -> None:
    write(tmp_path, 2)
    first = tower.train(tmp_path, steps=1, size=1, every=1)
    pixels, nano, dense = tower.inputs(features.load(tmp_path, "train"), [0, 1], [False, True])
    before = float(tower.cells_loss(first.heads, first(pixels, nano), dense).detach())
    later = tower.train(tmp_path, steps=9, size=1, every=4)
    assert torch.load(tmp_path / "tower.pt", weights_only=True)["step"] == 9
    assert float(tower.cells_loss(later.heads, later(pixels, nano), dense).detach()) < 0.9 * before
    tower.write_tokens(later, tmp_path, "train")
    of = model.learned(tmp_path, "train")
    assert np.allclose(of.tokens[1, 1], later(pixels, nano)[1].detach().numpy(), atol=2e-2)


def batch(folder: Path) -> tuple[Any, Any]:
    write(folder)
    torch.manual_seed(0)
    trainee = model.Trainee(model.Collage(width=64, layers=3))
    of = model.learned(folder, "train")
    return trainee, model.batch_of(of, [0, 1, 2], np.random.default_rng(1), slots=5)


def test_attention_in_slots_is_attention_with_the_mask(tmp_path: Path) -> None:
    AttentionInterface.register("slots", llava.slotted(model.SLOT))
    trainee, some = batch(tmp_path)
    found = {}
    for way in ("sdpa", "slots"):
        trainee.model.config.text_config._attn_implementation = way
        trainee.zero_grad()
        logits, targets, looks = trainee.answers(trainee.seen(some.tokens), some)
        (torch.nn.functional.cross_entropy(logits, targets) + looks).backward()
        found[way] = logits.detach(), trainee.model.language_model.layers[0].self_attn.k_proj.weight.grad.clone()
    for one, other in zip(found["sdpa"], found["slots"], strict=True):
        assert torch.allclose(one, other, atol=2e-5)


def test_a_slot_answers_as_the_question_alone_does(tmp_path: Path) -> None:
    trainee, _ = batch(tmp_path)
    of = model.learned(tmp_path, "train")
    some = model.batch_of(of, [0, 1], np.random.default_rng(1), slots=5, mirrors=False)
    with torch.no_grad():
        features_seen = trainee.seen(some.tokens)
        logits, targets, _ = trainee.answers(features_seen, some)
    words = list(model.VOCABULARY)
    taught = [words[int(i)] for i in logits.argmax(-1)[::2]]
    assert [words[int(i)] for i in targets[1::2]] == ["</s>"] * 10
    rng = np.random.default_rng(1)
    asked = [q for scene in (SOME[0], SOME[1]) for q in scenes.pick(scene, 5, rng)]
    cells = [features_seen[k // 5] for k in range(10)]
    alone = llava.first_words(trainee.model, cells, [q.text for q in asked], [range(256)] * 10, model.VOCABULARY)
    assert [words[int(i)] for i in targets[::2]] == [q.answer for q in asked]
    assert alone == taught


def test_the_oracle_keeps_the_cells_of_the_things_asked_about() -> None:
    shown = scenes.draw(SOME[0], POOL, GROUND)[1][0]
    kept = evaluate.oracle(shown, (0, 3), 8)
    assert len(kept) == len(set(kept)) == 8
    assert set(shown[kept]) == {0, 3}
    everything = evaluate.oracle(shown, (0,), 256)
    assert everything == [*range(256)]


def test_every_way_is_judged_on_every_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, 2)
    for number, scene in enumerate(SOME[:2]):
        Image.fromarray(scenes.draw(scene, POOL, GROUND)[0]).save(tmp_path / "held" / f"{number:04d}.png")
    torch.manual_seed(0)
    model.save(model.Collage(width=64, layers=3), tmp_path)
    result = evaluate.evaluate(tmp_path, "held", scenes=9, each=3, ways=["default", "oracle", "maxmin"])
    assert all(set(rows) == set(evaluate.BUDGETS) for rows in result["found"].values())
    for rows in result["found"].values():  # pairs are of the first way
        for name, groups in rows.items():
            for group, one in groups.items():
                ours = result["found"]["default"][name][group]["accuracy"]
                assert one["less"][0] == pytest.approx(ours - one["accuracy"], abs=1e-9)
    assert "2 scenes" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"has no tokens\.npy: first run"):
        evaluate.evaluate(tmp_path, "known", scenes=1, each=1, ways=["oracle"])
    found = list(cases.cases(tmp_path, "held"))
    assert {case.set for case in found} == {"held named", "held relations", "held dialogues"}
    assert all(case.rows.shape == (256, tower.WIDTH) and case.relevance.grid.count == 256 for case in found)


def test_a_case_is_met_by_one_token_of_each_thing_asked_about() -> None:
    seen = set()
    for scene in SOME[:20]:
        shown = scenes.draw(scene, POOL, GROUND)[1]
        for question in scenes.questions_of(scene):
            needs = cases.needs_of(question, shown)
            assert [set(shown[0][need.cells]) for need in needs[: len(question.needs)]] == [{n} for n in question.needs]
            part = question.family in ("part", "part colour")
            assert len(needs) == len(question.needs) + part
            assert not part or set(shown[1][needs[-1].cells]) <= {question.needs[0]}  # a small one may be hidden
            assert {need.least for need in needs} == {1}
            seen.add(question.family)
            if question.family in scenes.NAMED:
                for text, things in cases.follow_ups(scene.things, question):
                    assert goes_back(text) == "wholly"
                    assert things[0] == question.needs[0]
                    side = next((side for side in scenes.SIDES if f" {side} it" in text), "")
                    assert things[1:] == ((scenes.beside(scene.things, things[0], side),) if side else ())
    assert seen >= {"part", "part colour", "relation", "alike"}
