"""Questions against words that were read: which word is best, how sure that is, and why."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from foveate.answers.match import WordScores, paint_words, prepare_words, read_question, score_words
from foveate.answers.question import FIELDS
from foveate.answers.types import find_types
from foveate.core.grid import Grid
from foveate.language.spelling import alike, forms, split_words
from foveate.reading.words import Word, Words
from tests.reading_pages import Asked, draw, places, read_pages

PAGES, ASKED = read_pages()
PREPARED = {name: prepare_words(page.words) for name, page in PAGES.items()}
THINGS = ["dog", "where is the dog?", "the red car", "is there a zebra?", "what is the man holding?", "how many cats?"]


def ask(text: str, question: str) -> tuple[Words, WordScores]:
    words = draw(text).words
    return words, score_words(prepare_words(words), read_question(question))


def best(text: str, question: str) -> str:
    words, found = ask(text, question)
    return words.texts[int(found.scores.argmax())]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: f"{asked.page}: {asked.question}")
def test_the_best_word_is_in_the_answer(asked: Asked) -> None:
    found = score_words(PREPARED[asked.page], read_question(asked.question))
    right = int(found.scores.argmax()) in places(PAGES[asked.page].words, asked.answer)
    assert right is not asked.missed


def test_answers_are_covered_whole() -> None:
    """By the best quarter of the cells, every word of nearly every answer."""
    shares = []
    for asked in ASKED:
        words, (height, width) = PAGES[asked.page]
        longer = max(height, width)
        grid = Grid(max(1, round(64 * height / longer)), max(1, round(64 * width / longer)), height, width)
        plane = paint_words(words, score_words(PREPARED[asked.page], read_question(asked.question)).scores, grid)
        least = np.sort(plane.ravel())[-grid.count // 4]
        cells = grid.index_at(words.boxes[:, :2] / 2 + words.boxes[:, 2:] / 2)
        shares.append(np.mean([plane.ravel()[cells[i]] >= least for i in places(words, asked.answer)]))
    assert np.mean(shares) > 0.97


def test_any_text_is_a_question() -> None:
    odd = ("", " ", "?", '""', "the", "who?", "#", "\x00", "犬", "a" * 5000, '"' * 99, "on on on", "the word")
    for text in (*odd, *(asked.question for asked in ASKED[::7])):
        found = score_words(PREPARED["menu"], read_question(text))
        assert found.scores.shape == (len(PAGES["menu"].words),)
        assert found.scores.dtype == np.float32
        assert 0 <= found.scores.min() <= found.scores.max() <= 1
        assert 0 <= found.confidence <= 1


def test_fields_are_wellformed() -> None:
    for row in FIELDS:
        assert row.names
        for phrase in (*row.names, *row.asked):
            assert split_words(" ".join(phrase)) == list(phrase)  # as questions and pages are cut: else it never fits


# --- spelling and types ----------------------------------------------------------------------------------------------


def test_words_are_alike_but_for_misread_letters_and_plurals() -> None:
    for word, other in (("supplier", "suppller"), ("total", "t0tai"), ("to", "t0"), ("house", "qbhquse")):
        assert alike(word, other) > 0.6, word
    for word, other in (("house", "mouse"), ("book", "600"), ("cat", "car"), ("1234", "1235")):
        assert alike(word, other) == 0.0, word
    assert dict(forms("company"))["companies"] == dict(forms("companies"))["company"] == 0.97


def test_shapes_that_are_none() -> None:
    assert all(weight < 0.5 for _, _, weight in find_types("1-4-9").get("date", ()))
    assert all(weight <= 0.5 for _, _, weight in find_types("99/99/99").get("date", ()))
    assert "phone" not in find_types("12.50 13.50 1/2/2020")


# --- what is found -----------------------------------------------------------------------------------------------


def test_why_names_the_label() -> None:
    words, found = ask("TOTAL      34.50\nDate:  3 May 2024", "what is the total?")
    assert found.because[words.texts.index("34.50")] == 'right of "TOTAL", is an amount'
    assert found.because[words.texts.index("TOTAL")] == 'matches "total"'
    words, found = ask("Supplier\nAcme Ltd", "who supplies it?")
    assert found.because[words.texts.index("Acme")].startswith('below "Supplier"')
    words, found = ask("Supplier\nAlpha\nBeta\nAcme     Vendor", "who is the supplier?")
    assert found.because[words.texts.index("Acme")] == 'below "Supplier"'  # a name may not stand before its label
    words, found = ask("CASH 20.00", "how much cash was paid?")
    assert found.because[words.texts.index("20.00")].startswith('after "CASH"')


@pytest.mark.parametrize("question", ["when must it be paid?", "when is it due?", "by when must it be paid?"])
@pytest.mark.parametrize(
    "page",
    [
        "Invoice date: 1/3/2024\nPayment due: 15/3/2024\nPay by: bank transfer",
        "Invoice date 1/3/2024\nPayment due 15/3/2024\nPaid by VISA 2/3/2024",
        "DATE       PAYMENT DUE   PAY BY\n1/3/2024   15/3/2024     Cheque",
        "Invoice date 1/3/2024\nPay by 15/3/2024",
    ],
)
def test_when_something_is_due(page: str, question: str) -> None:
    assert best(page, question) == "15/3/2024"


def test_where_row_and_column_meet() -> None:
    table = "Item        Price     Stock\nCoffee      2.50      14\nTea         1.90      33\nCocoa       3.10      5"
    assert best(table, "what is the price of the tea?") == "1.90"
    assert best(table, "what is the stock of cocoa?") == "5"


def test_phrases_go_over_lines_and_may_be_misread() -> None:
    sign = "NO PARK1NG\nAT ANY TIME\nParking garage"
    words, found = ask(sign, "the sign that says no parking at any time")
    assert {words.texts[i] for i in np.argsort(-found.scores)[:5]} == {"NO", "PARK1NG", "AT", "ANY", "TIME"}
    assert found.confidence > 0.5
    assert ask("Fresh fish\nevery day", "the sign that says EXIT")[1].confidence < 0.25


@pytest.mark.parametrize("page", ["german invoice", "business letter", "menu", "warning sign", "fax cover"])
@pytest.mark.parametrize("thing", THINGS)
def test_silent_where_nothing_written_is_asked_for(page: str, thing: str) -> None:
    assert score_words(PREPARED[page], read_question(thing)).confidence < 0.5


def test_a_word_on_a_sign_is_weak_for_a_plain_noun() -> None:
    sign = "PERSON CO\nsince 1982"
    assert ask(sign, "person")[1].confidence < 0.5
    assert ask(sign, "where is the person?")[1].confidence < 0.5
    assert ask(sign, 'where does it say "person"?')[1].confidence > 0.5
    assert ask(sign, "what does the sign say?")[1].confidence > 0.5


def test_hardly_read_words_count_less() -> None:
    def page(confidence: float) -> float:
        words = [Word("Total", (0, 0, 10, 40), 0.99, 0), Word("34.50", (0, 80, 10, 120), confidence, 1)]
        return float(score_words(prepare_words(Words.of(words, "x")), read_question("what is the total?")).scores[1])

    assert page(0.2) < 0.7 * page(0.99)


def test_other_scripts_are_equal_or_nothing() -> None:
    assert best("Итого:  1250\nНДС:  250", "Итого?") == "1250"
    assert best("合計  390\n現金  500", "現金?") == "500"
    assert ask("合計  390", "what is the dog?")[1].confidence < 0.25


def test_nothing_read_and_one_word() -> None:
    empty = Words.of([], "x")
    found = score_words(prepare_words(empty), read_question("what is the total?"))
    assert found.scores.shape == (0,)
    assert found.confidence == 0.0
    assert not paint_words(empty, found.scores, Grid(4, 4, 64, 64)).any()
    assert best("STOP", "the word stop") == "STOP"


def test_prepared_words_are_immutable_and_pickle() -> None:
    page = PREPARED["menu"]
    with pytest.raises(ValueError, match="read-only"):
        page.boxes[0, 0] = 1
    for mapping in (page.index, page.types):
        with pytest.raises(TypeError):
            mapping["new"] = 1  # type: ignore[index]
    again = pickle.loads(pickle.dumps(page))
    question = read_question("how much is the tiramisu?")
    assert np.array_equal(score_words(again, question).scores, score_words(page, question).scores)


# --- cells -------------------------------------------------------------------------------------------------------


def test_cells_under_words_are_painted() -> None:
    words = Words.of([Word("a", (10, 10, 20, 30), 1.0, 0), Word("b", (10, 40, 20, 60), 1.0, 0)], "x")
    grid = Grid(8, 8, 80, 80)
    plane = paint_words(words, np.array([1.0, 0.5], np.float32), grid)
    assert plane.shape == (8, 8)
    assert plane[1, 1] == plane[1, 2] == 1.0
    assert 0.35 < plane[1, 4] <= 0.5
    assert plane[4:].max() == 0
    words = Words.of([Word("far", (500, 500, 520, 560), 1.0, 0)], "x")
    assert not paint_words(words, np.ones(1, np.float32), Grid(4, 4, 64, 64)).any()
