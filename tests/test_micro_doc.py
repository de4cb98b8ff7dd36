"""The recipe of the micro-VLM for pages: its pages, questions, batches, a few steps of a tiny one, the evaluation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveate.reading.words import Word, Words

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.18")
from benchmarks.reading import read_questions  # noqa: E402
from foveate.cli.evaluate.policies import RULES  # noqa: E402
from tests.test_bench_reading import write_folder  # noqa: E402
from training.judges import cases as judges  # noqa: E402
from training.judges import llava  # noqa: E402
from training.judges.micro_doc import cases, evaluate, pages, train, words  # noqa: E402

pytestmark = pytest.mark.vlm

KINDS = [False, True]
MANY = {kind: [pages.page_of(7, index, held_back=kind, plain=True) for index in range(30)] for kind in KINDS}
EVERY = MANY[False] + MANY[True]
TINY = {"tower": 128, "tower_layers": 2, "width": 64, "layers": 3}


def tiny() -> Any:
    torch.manual_seed(0)
    return train.model(**TINY).eval()


def box_of(page: Any, run: Any) -> tuple[float, float, float, float]:
    """(y0, x0, y1, x1) around the ink of a run, in pixels of the picture."""
    x0, y0, x1, y1 = pages.font(run.file, run.size).getbbox(run.text, anchor="ls")
    corners = np.array([(run.x + x, run.y + y, 1.0) for x in (x0, x1) for y in (y0, y1)]) @ page.affine.T
    (left, top), (right, bottom) = corners.min(0), corners.max(0)
    return float(top), float(left), float(bottom), float(right)


def test_pages_are_a_function_of_seed_and_index() -> None:
    for index in (0, 5):
        again = pages.page_of(7, index, plain=True)
        assert (again.runs, again.fields) == (MANY[False][index].runs, MANY[False][index].fields)
        assert np.array_equal(pages.draw(again), pages.draw(MANY[False][index]))
        assert pages.questions_of(again) == pages.questions_of(MANY[False][index])
    assert pages.page_of(8, 0, plain=True).runs != MANY[False][0].runs


def test_boxes_hold_the_ink_of_the_answer() -> None:
    for page in EVERY:
        clean = replace(page, rules=(), noise=0.0, blur=0.0)
        for k, run in enumerate(page.runs):
            if run.role != pages.VALUE:
                continue
            without = replace(clean, runs=tuple(r for n, r in enumerate(page.runs) if n != k))
            y, x = np.nonzero((pages.draw(clean) != pages.draw(without)).any(2))
            y0, x0, y1, x1 = box_of(page, run)
            assert y.min() >= y0 - 2
            assert y.max() <= y1 + 2
            assert x.min() >= x0 - 2
            assert x.max() <= x1 + 2
            break


def test_every_field_is_asked_once_and_answered_by_what_is_printed() -> None:
    for page in EVERY:
        asked = pages.questions_of(page)
        assert sorted(question.field for question in asked) == list(range(len(page.fields)))
        assert len({(one.key, one.column) for one in page.fields}) == len(page.fields)
        for question in asked:
            (printed,) = (run for run in page.runs if (run.field, run.role) == (question.field, pages.VALUE))
            assert question.answer == printed.text.lower()
            assert 0 < len(question.answer) <= words.LONGEST
            assert set(question.answer) <= set(words.ALPHABET)
            assert page.fields[question.field].key in question.text
            assert len(train.words_of(question.text)) <= train.ASKED


def test_values_and_their_cells() -> None:
    for page in EVERY[:20]:
        dense, where = train.dense_of(page)
        glyphs = {number: letter for letter, number in train.GLYPHS.items()}
        for number, one in enumerate(page.fields):
            for letter, cell in zip(one.value.lower(), where[number], strict=True):
                if letter != " " and cell >= 0:
                    said = {glyphs.get(int(v)) for v in dense[: train.SLOTS, cell]}
                    said |= {glyphs.get(int(v)) for v in dense[train.SLOTS : 2 * train.SLOTS, cell]}
                    assert letter in said


def test_a_slot_computes_what_the_question_alone_computes() -> None:
    trainee = train.Trainee(tiny())
    batch = train.batch_of(7, 0, 2, 3, plain=True)
    with torch.no_grad():
        with train.quick(trainee.model):
            logits, targets, _ = trainee.answers(trainee.seen(batch.pixels)[0], batch)
        row = 0
        for b in range(2):
            for question in pages.questions_of(MANY[False][b])[:3]:
                ids, wanted, _ = train.slot_of(question, [-1] * len(question.answer))
                length = ids.index(llava.PAD) if llava.PAD in ids else len(ids)
                prompt = [llava.BOS, llava.USER, *[llava.IMAGE] * llava.TOKENS, *ids[:length]]
                alone = trainee.model(
                    input_ids=torch.tensor([prompt]),
                    attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                    pixel_values=batch.pixels[b : b + 1],
                ).logits[0, llava.PREFIX :]
                at = [k for k, target in enumerate(wanted) if target != llava.IGNORED]
                assert torch.allclose(alone[at], logits[row : row + len(at)], atol=1e-3)
                assert targets[row : row + len(at)].tolist() == [wanted[k] for k in at]
                row += len(at)
        assert row == len(logits)


def test_a_few_steps_lower_the_losses(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trainee, steps, saved = train.Trainee(train.model(**TINY)), [], list[int]()

    def step(number: int, batch: Any) -> tuple[Any, dict[str, float]]:
        loss, said = train.loss_of(trainee, batch, train.stages(1, 1, 1)[1])
        steps.append(said)
        return loss, said

    batch = train.batch_of(7, 0, 2, 4, plain=True)
    llava.train(
        trainee, step, lambda done: iter([batch] * (12 - done)), [3e-3] * 12, tmp_path / "state.pt",
        lambda: saved.append(1), lambda: "nothing", every=5,
    )  # fmt: skip
    assert len(saved) == 3  # after 5, 10 and 12 steps
    for name in ("loss", "dense", "looks"):
        assert steps[-1][name] < 0.9 * steps[0][name]


def test_stock_classes_load_what_is_saved_and_the_processor_makes_the_prompt(tmp_path: Path) -> None:
    from PIL import Image
    from transformers import AutoModelForImageTextToText, AutoProcessor

    train.KIND.save(tiny(), tmp_path)
    assert {p.suffix for p in tmp_path.iterdir()} <= {".safetensors", ".json", ".jinja"}
    stock: tuple[Any, Any] = AutoModelForImageTextToText, AutoProcessor
    loaded, processor = (each.from_pretrained(tmp_path) for each in stock)
    assert type(loaded).__name__ == "LlavaForConditionalGeneration"
    question = pages.questions_of(MANY[False][0])[0]
    parts = [{"type": "image"}, {"type": "text", "text": question.text}]
    prompt = processor.apply_chat_template([{"role": "user", "content": parts}], add_generation_prompt=True)
    picture = pages.draw(MANY[False][0])
    inputs = processor(images=Image.fromarray(picture), text=prompt, return_tensors="pt")
    ids, _, _ = train.slot_of(question, [-1] * len(question.answer))
    asked = ids[: ids.index(llava.ASSISTANT) + 1]
    assert inputs["input_ids"][0].tolist() == [llava.BOS, llava.USER, *[llava.IMAGE] * llava.TOKENS, *asked]
    assert torch.allclose(inputs["pixel_values"], train.KIND.normalised([picture]), atol=1e-5)
    letters = [train.VOCABULARY[f"##{letter}"] for letter in "12.50 kg"]
    assert processor.decode([*letters, llava.EOS], skip_special_tokens=True) == "12.50 kg"


@pytest.mark.parametrize("method", ["relevance", "dpp", "maxmin", "saliency", "uniform", "random"])
def test_foveate_answers_as_the_recipe_does(method: Any) -> None:
    """Without foveate: placeholders of dropped cells leave the prompt with their positions, features leave alike."""
    import foveate.vlm

    made, page = tiny(), MANY[False][0]
    pixels = train.KIND.normalised([pages.draw(page)])
    with torch.no_grad():
        features = made.get_image_features(pixel_values=pixels, return_dict=True)
    vlm = foveate.vlm.attach(made, train.KIND.processor())
    text = pages.questions_of(page)[0].text
    asked = text.lower().rstrip("?")
    answer = vlm.ask(vlm.see(pages.draw(page), read=False), text, budget=31, method=method, generation=evaluate.SHORT)
    kept = answer.chosen[0].kept[0].indices.tolist()
    ids, positions = llava.prompt(asked, kept, train.VOCABULARY)
    part = type(features)(pooler_output=[features.pooler_output[0][kept]])
    out = made.generate(
        input_ids=ids[None], attention_mask=torch.ones_like(ids)[None], position_ids=positions[None],
        mm_encoder_outputs={"image": part}, **evaluate.SHORT,
    )  # fmt: skip
    said = vlm.processor.tokenizer.decode(out[0, len(ids) :], skip_special_tokens=True)
    assert answer.text.strip() == said.strip()
    one = llava.first_words(made, [features.pooler_output[0]], [asked], [kept], train.VOCABULARY)
    assert one == [list(train.VOCABULARY)[int(out[0, len(ids)])]]


def test_the_evaluation_asks_every_method_with_its_budget(tmp_path: Path) -> None:
    import foveate.vlm

    found, items = evaluate.asked(1, 2, held_back=False, plain=True)
    vlm = foveate.vlm.attach(tiny(), train.KIND.processor())
    read = [
        Words.of([Word(run.text, box_of(page, run), 1.0, k) for k, run in enumerate(page.runs)], "mine")
        for page in found
    ]
    answerer = evaluate.through_foveate(vlm, found, read)
    everything = {"all": np.ones(len(items), bool)}
    budgets = {"100 %": 256, "12 %": 31}
    report = llava.report(answerer, items, list(evaluate.METHODS), budgets, everything, evaluate.alike)
    assert set(report) == set(evaluate.METHODS)
    assert all(row["12 %"]["all"]["questions"] == len(items) for row in report.values())
    assert llava.table(report, "all").count("\n") == len(evaluate.METHODS) + 1
    kept = vlm.answers([evaluate.given(vlm, vlm.see(pages.draw(found[0])), items[0], np.array([3, 9]))], evaluate.SHORT)
    assert kept[0].chosen[0].rows.tolist() == [3, 9]


def test_a_case_needs_every_cell_of_its_answer() -> None:
    for page in EVERY:
        of = {question.field: question for question in pages.questions_of(page)}
        for run in (run for run in page.runs if run.role == pages.VALUE and run.field in of):
            (need,) = cases.needs_of(page, of[run.field])
            assert 0 < need.least == len(need.cells) <= len(run.text.replace(" ", ""))
            y0, x0, y1, x1 = box_of(page, run)
            assert (np.abs((need.cells // 16 + 0.5) * 16 - (y0 + y1) / 2) <= 16).all()
            assert (np.abs((need.cells % 16 + 0.5) * 16 - (x0 + x1) / 2) <= (x1 - x0) / 2 + 16).all()


def test_every_page_is_asked_read_and_unread(tmp_path: Path) -> None:
    found, _ = evaluate.asked(1, 2, held_back=False, plain=True)
    read = [[run.text, box_of(found[0], run), 1.0, k] for k, run in enumerate(found[0].runs)]
    (tmp_path / "words-trained.json").write_text(json.dumps([read]), "utf-8")
    some = list(cases.cases(tmp_path, 1, 2, plain=True))
    assert [case.set for case in some] == ["micro_doc read"] * 2 + ["micro_doc"] * 2
    assert [case.score(RULES["default"](case, 64)) for case in some[:2]] == [1, 1]


def test_every_set_is_made_and_judged_by_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, cache = tmp_path / "dev" / "docs", tmp_path / "cache"
    data.mkdir(parents=True)
    cache.mkdir()
    (cache / "pages.json").write_bytes((write_folder(data) / "words.json").read_bytes())
    half = read_questions(data)[0].half
    by_pixels, by_looks = (judges.cases(tmp_path, cache, half, own=own, sets=("pages",)) for own in (False, True))
    for one, other in zip(by_pixels, by_looks, strict=True):
        assert one.needs[0].cells.tolist() == other.needs[0].cells.tolist()
        assert one.rows.shape != other.rows.shape
    judges.main(["--data", str(tmp_path), "--cache", str(cache), "--half", half, "--sets", "pages"])
    assert "pages read: oracle - random at 12 % is 1.00" in capsys.readouterr().out


def test_anls_forgives_a_few_edits() -> None:
    assert evaluate.alike("12.50", "12.50") == 1
    assert evaluate.alike("12.58", "12.50") == pytest.approx(0.8)
    assert evaluate.alike("12", "1234") == 0
    assert evaluate.alike("kitten", "sitting") == pytest.approx(1 - 3 / 7)
    assert evaluate.alike("", "a") == 0


def test_the_oracle_keeps_the_answer_and_a_text_mask_keeps_writing() -> None:
    for page in EVERY[:20]:
        _, where = train.dense_of(page)
        for question in pages.questions_of(page)[:4]:
            kept = evaluate.oracle(page, question, 31)
            assert len(set(kept.tolist())) == 31
            assert {cell for cell in where[question.field] if cell >= 0} <= set(kept.tolist())
    one = Words.of([Word("total", (0, 0, 16, 80), 1.0, 0)], "mine")
    assert evaluate.written(one, 5).tolist() == [0, 1, 2, 3, 4]
