"""Questions against words that were read: which word is best, how sure that is, and what it does to the map."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import foveate
from foveate.answers.match import Evidence, WordScores, place_words, score_words
from foveate.answers.page import prepare_words
from foveate.answers.question import FIELDS, read_question
from foveate.answers.types import find_types
from foveate.core.errors import OptionError, QueryError
from foveate.core.grid import Grid
from foveate.language.cues import find_cues
from foveate.language.spelling import alike, forms, split_words
from foveate.language.writing import find_part
from foveate.reading.words import Word, Words
from foveate.relevance.value import say
from foveate.relevance.written import UNREAD, find_words, page_of
from foveate.texture.texture import Texture
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
        plane = place_words(words, grid).paint(score_words(PREPARED[asked.page], read_question(asked.question)).scores)
        least = np.sort(plane.ravel())[-grid.count // 4]
        cells = grid.index_at(words.boxes[:, :2] / 2 + words.boxes[:, 2:] / 2)
        shares.append(np.mean([plane.ravel()[cells[i]] >= least for i in places(words, asked.answer)]))
    assert np.mean(shares) > 0.97


def test_any_text_is_a_question_and_fields_are_wellformed() -> None:
    odd = ("", " ", "?", '""', "the", "who?", "#", "\x00", "犬", "a" * 5000, '"' * 99, "on on on", "the word")
    for text in (*odd, *(asked.question for asked in ASKED[::7])):
        found = score_words(PREPARED["menu"], read_question(text))
        assert found.scores.shape == (len(PAGES["menu"].words),)
        assert found.scores.dtype == np.float32
        assert 0 <= found.scores.min() <= found.scores.max() <= 1
        assert 0 <= found.confidence <= 1
    for row in FIELDS:
        assert row.names
        for phrase in (*row.names, *row.asked):
            assert split_words(" ".join(phrase)) == list(phrase)  # as questions and pages are cut: else it never fits


# --- spelling and types ----------------------------------------------------------------------------------------------


def test_words_are_alike_but_for_misread_letters_and_shapes_may_be_none() -> None:
    for word, other in (("supplier", "suppller"), ("total", "t0tai"), ("to", "t0"), ("house", "qbhquse")):
        assert alike(word, other) > 0.6, word
    for word, other in (("house", "mouse"), ("book", "600"), ("cat", "car"), ("1234", "1235")):
        assert alike(word, other) == 0.0, word
    assert dict(forms("company"))["companies"] == dict(forms("companies"))["company"] == 0.97
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


TAPE = """CITY MARKET            Reg 04
Cashier: JANE DOE      TAPE 000123
TEST PEN       4006381333931     2.49
NOTE PAD A5    4006381333948     3.10
TOTAL                            5.59
CASH                            10.00
Open 12:00 - 22:30     www.citymarket.example"""
ORDER = """ACME SUPPLIES LTD
PO NUMBER              Date: 03/05/2024
PO-77812
Copper pipe 15 mm      48.00
Total                  48.00
Total incl. tax        57.60
Please quote the PO number on all payments and letters to us."""
TOTALS = """CITY MARKET            Reg 04
Total weight           1.250 kg
Total savings              4.10
Total tax                  9.60
TOTAL                     57.60
Total cash                60.00"""
NAMES_BELOW = """CITY MARKET            Reg 04
ITEM          QTY   PRICE   AMOUNT
                               7.00
BLUE PEN
                              12.00
TEST PEN
TOTAL                         19.00"""
CODES_ABOVE = """CITY MARKET
000123                         7.00
BLUE PEN
000124                        12.00
TEST PEN
TOTAL                         19.00"""
NAMES_ABOVE = """CITY MARKET            28.02.2028
BLUE PEN
000123                         7.00
TEST PEN
000124                        12.00
TOTAL                         19.00"""
BEEPER = """SUPERVISOR: Jerome Curry
PHONE NUMBER:(201) 923-9208 BEEPER NUMBER: (201) 698-1780"""
CONTRACT = """DOCUMENT CLEARANCE SHEET
Date Routed:           January 11, 1994       Contract No.           4011 00 00
Total Contract Cost    $1,340,000.00          Current Year Cost      1994-1995
G/L Code:                                     Program Budget Code
UP TO AND INCLUDING $25,000"""
SLIP = """13/04/2018         Tax Invoice
                             No.CS00233394
Tel: 03-7832 6929
ITEM               QTY      PRICE
001697             5.00     1.00
                   1L.6627 Seamaster
Thank you for shopping here. Goods sold are not returnable."""
LABELS_INSIDE = """GST ID: 000012345678    GST 6 %     6.0%     -0.72
TEL: 03-555 0142 FAX: 03-555 0143
JOB NO. 7559
BRAND KOLA
DESCRIPTION CMS Dispenser Sign
DATE 12/15/97
Cash              20.00
Cash Change       1.20
Items received: 287"""
BLANKS = """FAX TRANSMISSION      Reg (1191015-W)
NUMBER OF PAGES:
(713) 591-6733        Jane Doe
Cashier:              City Milk Cashier
Banana Milkshake(R)   Mango Lassi
Carrier: Northern Freight
Strain of Mice: Random Bred Swiss Webster Albino Mice
LOT NO                ORDER NO. 55-1234
CASE NO               BATCH SIZE     400 kg
PRODUCT ID            UNIT PRICE     PARCEL DATE
                      77.12          3 May 2024"""
NEITHER = """ACME SUPPLIES LTD      Invoice No: 40127
Copper pipe 15 mm      48.00
Please quote the PO number on all payments and letters to us.
Items may be returned to the cashier with this tape.
Opening hours          from 9:00 to 17:00
Arrival                Day 15 June 2024"""


@pytest.mark.parametrize(
    ("page", "question", "answer"),
    [
        (ORDER, "what is the PO number?", "PO NUMBER -> PO-77812"),
        (TAPE, "who is the cashier?", "Cashier -> JANE DOE"),
        (TAPE, "how much is the test pen?", "TEST PEN -> 2.49"),
        *((page, "how much is the test pen?", "TEST PEN -> 12.00") for page in (NAMES_BELOW, CODES_ABOVE, NAMES_ABOVE)),
        *((page, "how much is the blue pen?", "BLUE PEN -> 7.00") for page in (NAMES_BELOW, CODES_ABOVE, NAMES_ABOVE)),
        (NAMES_BELOW, "what is the total?", "TOTAL -> 19.00"),
        (BEEPER, "beeper number?", "BEEPER NUMBER -> (201) 698-1780"),
        (TAPE, "what is the total?", "TOTAL -> 5.59"),  # not the cash below it
        (ORDER, "what is the total?", "Total incl. tax -> 57.60"),
        (TOTALS, "what is the total?", "TOTAL -> 57.60"),  # not the grams, and not what was handed over
        (TOTALS, "what is the total tax?", "Total tax -> 9.60"),
        (TOTALS, "what are the total savings?", "Total savings -> 4.10"),
        (TAPE, "when is it open?", "Open -> 12:00 - 22:30"),
        (TAPE, "what is the website?", "www.citymarket.example"),
        *(
            (CONTRACT, question, "Contract No -> 4011 00 00")
            for question in ("what is the contract number?", "the contract number", "what is the contract no.?")
        ),
        (CONTRACT, "what is the total contract cost?", "Total Contract Cost -> $1,340,000.00"),
        ("Contract No. 77-12\nContract Date     3 May 2024", "the number of the contract?", "Contract No. -> 77-12"),
        ("Contract Cost     $1,340,000.00", "what is the contract number?", None),  # money is no number
        ("Contract Date     3 May 2024", "what is the contract number?", None),
        (CONTRACT, "what is the program budget code?", None),
        (SLIP, "what is the invoice number?", "Tax Invoice -> No.CS00233394"),
        (LABELS_INSIDE, "what is the GST registration number?", "GST ID -> 000012345678"),  # not a share, nor money
        (LABELS_INSIDE, "what is the phone number?", "TEL -> 03-555 0142"),
        (LABELS_INSIDE, "which brand is it?", "BRAND -> KOLA"),
        (LABELS_INSIDE, "what is the description?", "DESCRIPTION -> CMS Dispenser Sign"),  # a line with a label ends it
        (LABELS_INSIDE, "how much cash was paid?", "Cash -> 20.00"),  # "change" is no misread "charge"
        (LABELS_INSIDE, "how many items were received?", "Items received -> 287"),
        (BLANKS, "who is the cashier?", "Cashier -> City Milk Cashier"),  # not what stands below it
        (BLANKS, "who is the carrier?", "Carrier -> Northern Freight"),
        (BLANKS, "what is the strain of mice?", "Strain of Mice -> Random Bred Swiss Webster Albino Mice"),
        (BLANKS, "how many pages are there?", None),  # a phone number is no count,
        (BLANKS, "what is the lot no?", None),  # and that of the next label no value
        (BLANKS, "what is the product ID?", None),
        (BLANKS, "what is the case number?", None),
        (NEITHER, "what is the PO number?", None),
        (NEITHER, "who is the cashier?", None),
        (NEITHER, "how much is the test pen?", None),
        (NEITHER, "what are the opening hours?", "Opening hours -> 9:00"),  # "from" begins no other label,
        (NEITHER, "when is the arrival?", "Arrival -> 15 June 2024"),  # and "day" none that a date has
        ("TOTAL", "what is the total?", None),
    ],
)
def test_an_answer_is_one_value_of_the_type_that_is_asked_for(page: str, question: str, answer: str | None) -> None:
    found, confidence = find_words(prepare_words(draw(page).words), read_question(question))
    if answer is None:
        assert confidence < 0.35
    else:
        assert say(found) == answer
        assert confidence >= 0.5


def test_of_two_values_over_one_another_that_in_the_row_of_the_label_is_meant() -> None:
    rows = (("Brands:", 100, 100, 80), ("KOLA", 99, 205, 50), ("Agreement:", 112, 90, 100), ("Filled", 112, 202, 60))
    words = [Word(text, (y, x, y + 18, x + wide), 1.0, k) for k, (text, y, x, wide) in enumerate(rows)]
    found, _ = find_words(prepare_words(Words.of(words, "x")), read_question("what are the brands?"))
    assert say(found) == "Brands -> KOLA"


def test_what_speaks_against_an_answer() -> None:
    """A long value, one that another equals, words hardly read, a label that holds a part: each makes it less sure."""

    def sure(text: str, question: str = "what is the batch number?", read: float = 1.0) -> tuple[float, Evidence]:
        words = [word._replace(confidence=read) for word in draw(text).words]
        found = score_words(prepare_words(Words.of(words, "x")), read_question(question))
        assert found.evidence is not None
        assert all(0 <= each <= 1 for each in found.evidence)
        return found.confidence, found.evidence

    plain, evidence = sure("Batch number: 40127")
    assert evidence[1:] == (0, 0, 0, 0)
    assert plain > 0.7
    assert (sure("Batch number: 40127   Batch number: 40128")[0]) < plain
    assert sure("Batch number: 40127", read=0.9)[0] < plain
    assert sure("Number: 40127")[0] < 0.35
    long = "Description\nA sign that our representative will put up next week"
    assert sure(long, "what is the description?")[0] < sure(long[:22], "what is the description?")[0] - 0.2
    assert sure(long.replace("\n", ": "), "what is the description?")[1].long == 0  # all of it on the line of its label


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


def test_a_word_on_a_sign_is_weak_for_a_plain_noun_and_other_scripts_are_equal_or_nothing() -> None:
    sign = "PERSON CO\nsince 1982"
    assert ask(sign, "person")[1].confidence < 0.5
    assert ask(sign, "where is the person?")[1].confidence < 0.5
    assert ask(sign, 'where does it say "person"?')[1].confidence > 0.5
    assert ask(sign, "what does the sign say?")[1].confidence > 0.5
    assert best("Итого:  1250\nНДС:  250", "Итого?") == "1250"
    assert best("合計  390\n現金  500", "現金?") == "500"
    assert ask("合計  390", "what is the dog?")[1].confidence < 0.25
    table = "Item        Price     Stock\nCoffee      2.50      14\nTea         1.90      33\nCocoa       3.10      5"
    assert best(table, "what is the price of the tea?") == "1.90"
    assert best(table, "what is the stock of cocoa?") == "5"


def test_nothing_read_one_word_and_words_hardly_read() -> None:
    empty = Words.of([], "x")
    found = score_words(prepare_words(empty), read_question("what is the total?"))
    assert found.scores.shape == (0,)
    assert found.confidence == 0.0
    assert not place_words(empty, Grid(4, 4, 64, 64)).paint(found.scores).any()
    assert best("STOP", "the word stop") == "STOP"

    def page(confidence: float) -> float:
        words = [Word("Total", (0, 0, 10, 40), 0.99, 0), Word("34.50", (0, 80, 10, 120), confidence, 1)]
        return float(score_words(prepare_words(Words.of(words, "x")), read_question("what is the total?")).scores[1])

    assert page(0.2) < 0.7 * page(0.99)


def test_cells_under_words_are_painted() -> None:
    words = Words.of([Word("a", (10, 10, 20, 30), 1.0, 0), Word("b", (10, 40, 20, 60), 1.0, 0)], "x")
    grid = Grid(8, 8, 80, 80)
    plane = place_words(words, grid).paint(np.array([1.0, 0.5], np.float32))
    assert plane.shape == (8, 8)
    assert plane[1, 1] == plane[1, 2] == 1.0
    assert 0.35 < plane[1, 4] <= 0.5
    assert plane[4:].max() == 0
    words = Words.of([Word("far", (500, 500, 520, 560), 1.0, 0)], "x")
    assert not place_words(words, Grid(4, 4, 64, 64)).paint(np.ones(1, np.float32)).any()


# --- in a map ---------------------------------------------------------------------------------------------------------


PAGE = [
    Word("RECEIPT", (20, 180, 50, 330), 0.99, 0),
    Word("Date:", (100, 40, 120, 90), 0.98, 1),
    Word("12/03/2024", (100, 110, 120, 220), 0.98, 1),
    Word("Apples", (200, 40, 220, 110), 0.97, 2),
    Word("3.20", (200, 400, 220, 450), 0.97, 3),
    Word("TOTAL", (300, 40, 320, 110), 0.99, 4),
    Word("34.50", (300, 400, 320, 460), 0.99, 5),
    Word("From:", (400, 40, 420, 90), 0.99, 6),
    Word("Ann", (400, 110, 420, 150), 0.99, 6),
    Word("Lee", (400, 155, 420, 190), 0.99, 6),
]


@pytest.fixture(scope="module")
def blank() -> Texture:
    """A sheet of paper with grey bars in the place of words: nano sees nothing in it."""
    rgb = np.full((512, 512, 3), 245, np.uint8)
    for word in PAGE:
        y0, x0, y1, x1 = map(int, word.box)
        rgb[y0 + 4 : y1 - 4, x0:x1] = 90
    return foveate.encode(rgb)


@pytest.fixture(scope="module")
def page(blank: Texture) -> Texture:
    return blank.with_words(Words.of(PAGE, "by hand"))


def inside(relevance: foveate.Relevance, text: str) -> bool:
    """Whether the best cell touches the word."""
    y0, x0, y1, x1 = next(word.box for word in PAGE if word.text == text)
    y, x = np.unravel_index(relevance.map.argmax(), relevance.map.shape)
    size = 512 / relevance.grid.h
    return bool(y0 < (y + 1) * size and y1 > y * size and x0 < (x + 1) * size and x1 > x * size)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("what is the total?", "34.50"),
        ("how much was the total?", "34.50"),
        ("what is the date?", "12/03/2024"),
        ("when was it bought?", "12/03/2024"),
        ('the word "Apples"', "Apples"),
        ("the line that says RECEIPT", "RECEIPT"),
    ],
)
def test_the_map_points_at_the_answer(page: Texture, question: str, answer: str) -> None:
    relevance = foveate.score(page, question)
    assert inside(relevance, answer)
    assert relevance.detected
    assert relevance.words[0].text == answer
    labels = {"34.50": "TOTAL -> 34.50", "12/03/2024": "Date -> 12/03/2024"}
    assert relevance.answer == labels.get(answer, answer)
    kept = foveate.allocate(relevance, 12)
    best = kept.why(int(kept.scores.argmax()))
    assert str(best["words"]).startswith(answer + ", ")
    assert best["reading"] > 0.4  # type: ignore[operator]
    if answer == "34.50":  # the whole answer is kept
        size = 512 / kept.grid.h
        y0, x0, y1, x1 = (value / size for value in PAGE[6].box)
        assert foveate.allocate(relevance, 40).mask[int(y0) : -int(-y1 // 1), int(x0) : -int(-x1 // 1)].all()


WRITTEN_ON = ("what is written on the bus?", "what number is on the bus?", "what is printed on the side of the bus?")


@pytest.mark.parametrize("question", [*WRITTEN_ON, "the writing on the bus", "the name on the bus"])
def test_writing_on_a_thing_is_that_which_lies_on_it_or_the_thing_itself(street: Texture, question: str) -> None:
    """Where the bus is: rows 110 to 300, columns 140 to 640 of 427 x 640 pixels."""
    on, off = Word("3105", (189, 270, 218, 300), 1.0, 0), Word("2207", (5, 20, 30, 70), 1.0, 1)
    unread, itself = foveate.score(street, question), {f"writing on the {read_question(question).on}": "bus"}
    assert unread.looked_for == itself
    elsewhere = foveate.score(street.with_words(Words.of([off], "by hand")), question)
    assert (elsewhere.words, elsewhere.looked_for) == ((), itself)
    assert unread.detected  # the finder sees writing there
    assert not elsewhere.detected  # it was read, and nothing there
    for relevance in (unread, elsewhere):
        assert len(relevance.boxes())  # what it lies on is shown
        kept = foveate.allocate(relevance, 64)
        rows, columns = kept.indices // kept.grid.w * 427 / kept.grid.h, kept.indices % kept.grid.w * 640 / kept.grid.w
        assert np.mean((rows > 100) & (rows < 310) & (columns > 130)) > 0.7
    both = foveate.score(street.with_words(Words.of([on, off], "by hand")), question)
    assert (both.words[0].text, both.looked_for) == ("3105", {})
    nowhere = foveate.score(street.with_words(Words.of([on], "by hand")), "what is written on the trophy?")
    assert nowhere.looked_for == {"writing on the trophy": "all writing"}
    assert nowhere.unknown == ("trophy",)
    sign = [Word("STOP", (220, 300, 240, 350), 1.0, 1), Word("ANGELES", (190, 380, 212, 470), 1.0, 0)]
    read = foveate.score(street.with_words(Words.of([*sign, Word("LOS", (192, 330, 211, 370), 1.0, 0)], "x")), question)
    assert read.answer == "LOS ANGELES STOP"  # as it is read


def test_nothing_is_written_on_a_thing_where_the_finder_of_writing_sees_none(street: Texture) -> None:
    nothing, everything = np.zeros((107, 160), np.float32), np.ones((107, 160), np.float32)
    for plane, detected in ((nothing, False), (everything, True)):
        found = foveate.score(street.with_channel("text", plane), WRITTEN_ON[0])
        assert found.detected is detected
        assert found.confidence == pytest.approx(1 if detected else 0.45, abs=0.01)
        assert len(found.boxes())


@pytest.mark.parametrize("question", ["what is written here?", "What’s printed there?", "the writing", "all text"])
def test_all_writing_is_what_is_asked_for(street: Texture, question: str) -> None:
    words = [Word("Take", (180, 300, 220, 400)), Word("3105", (240, 270, 255, 300))]
    found = foveate.score(street.with_words(Words.of(words, "by hand")), question)
    assert {word.text for word in found.words} == {"Take", "3105"}
    assert {word.because for word in found.words} == {"is written"}
    assert found.detected


@pytest.mark.parametrize("question", ["what is written here?", "the writing"])
def test_what_nobody_could_read_is_kept_beside_what_was(street: Texture, question: str) -> None:
    unread = foveate.score(street, question)
    read = foveate.score(street.with_words(Words.of([Word("3105", (240, 270, 255, 300))], "by hand")), question)
    assert (unread.unknown, dict(unread.looked_for)) == ((), {})
    assert unread.map.max() > 0.2
    assert (read.map >= unread.map - 1e-6).all()


@pytest.mark.parametrize(
    ("question", "written"),
    [
        ("what is written on the left?", {"3105", "LEFT"}),
        ("the writing on the right-hand side", {"Take"}),
        ("what does it say at the bottom?", {"3105"}),
        ("what is written in the lower third of the picture?", {"3105"}),
        ("read the top half", {"LEFT", "Take"}),
        ("the words in the corner", {"LEFT"}),
        ("what is written in the top right corner?", {"Take"}),
    ],
)
def test_writing_in_a_part_of_the_picture(street: Texture, question: str, written: set[str]) -> None:
    words = [Word("LEFT", (20, 30, 60, 120)), Word("Take", (160, 400, 200, 520)), Word("3105", (380, 270, 410, 310))]
    found = foveate.score(street.with_words(Words.of(words, "by hand")), question)
    assert {word.text for word in found.words if word.score > 0.5} == written
    assert not found.looked_for
    plane = next(plane for name, plane in found.reasons.items() if name.startswith("part of the picture"))
    unread = foveate.score(street, question)
    assert unread.map.max() > 0
    assert not unread.map[plane == 0].any()
    there = [word for word in words if word.text not in written]
    elsewhere = foveate.score(street.with_words(Words.of(there, "by hand")), question)
    assert elsewhere.looked_for == {question.rstrip("?"): "the writing elsewhere"}
    assert not elsewhere.detected


def test_a_value_in_a_part_of_the_picture_competes_with_those_there_alone(street: Texture) -> None:
    left, right, due, split = (Word(text, (100, x, 120, x + wide), 1.0, 0) for text, x, wide in (
        ("3/5/2020", 80, 70), ("4/6/2021", 480, 70), ("Due", 390, 30), ("3/5/2020", 400, 70),
    ))  # fmt: skip
    date, other = (Word("Date:", (100, x, 120, x + 45), 1.0, 0) for x in (30, 425))
    both = street.with_words(Words.of([date, left, due, other, right], "by hand"))
    alone = street.with_words(Words.of([due, other, right], "by hand"))
    found, least = foveate.score(both, "the date on the right"), foveate.score(alone, "the date on the right")
    assert found.answer == least.answer == "Due Date -> 4/6/2021"
    assert found.confidence == pytest.approx(least.confidence, rel=0.05)
    assert found.detected
    apart = street.with_words(Words.of([date, split], "by hand"))
    assert foveate.score(apart, "the date on the right").answer == "Date -> 3/5/2020"  # a label elsewhere is one
    nothing = foveate.score(apart, "the date on the left")
    assert not nothing.detected
    assert "Date:" not in nothing.answer


@pytest.mark.parametrize("question", ["what’s written on the left?", "what is\nwritten on the left?"])
def test_a_part_of_the_picture_is_found_however_it_is_typed(question: str) -> None:
    assert find_part(question)[1] == read_question(question).part == "left"
    assert find_cues(question, ())[-1].channel.endswith("left")


@pytest.mark.parametrize(
    "question", ["what is on the left?", "the dog on the left", "what is written left of the bus?"]
)
def test_other_places_are_no_parts_of_the_picture(question: str) -> None:
    assert read_question(question).part == find_part(question)[1] == ""


@pytest.mark.parametrize("question", ["what is advertised?", "the words about the weather"])
def test_where_no_word_answers_the_largest_are_named_and_it_is_said(street: Texture, question: str) -> None:
    large = [Word("Take", (180, 300, 220, 400), 1.0, 0), Word("trips", (182, 410, 219, 480), 1.0, 0)]
    read = foveate.score(
        street.with_words(Words.of([*large, Word("3105", (240, 270, 255, 300), 1.0, 1)], "x")), question
    )
    assert read.answer == "Take trips"
    assert list(read.looked_for.values()) == ["the largest writing"]
    assert not read.detected
    y, x = np.unravel_index(read.map.argmax(), read.map.shape)
    assert 180 < (y + 0.5) * 427 / read.grid.h < 220
    assert 300 < (x + 0.5) * 640 / read.grid.w < 480


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("the words about the weather", "Rain Wind"),
        ("what is written about food?", "Pizza"),
        ("anything written about medicine?", "Doctor"),
    ],
)
def test_where_no_word_answers_those_near_in_meaning_are_named_and_it_is_said(
    street: Texture, question: str, answer: str
) -> None:
    rows = (("Rain", 40, 100), ("Wind", 40, 200), ("Pizza,", 90, 100), ("Doctor", 140, 100), ("12", 190, 100))
    words = [Word(text, (y, x, y + 14, x + 60), 1.0, i) for i, (text, y, x) in enumerate(rows)]
    read = foveate.score(
        street.with_words(Words.of([*words, Word("BRIX", (240, 100, 300, 300), 1.0, 9)], "x")), question
    )
    assert read.answer.rstrip(",") == answer
    assert list(read.looked_for.values()) == ["the nearest words in meaning"]
    assert not read.detected


def test_a_question_without_a_noun_asks_for_what_is_written_unless_it_is_left_out(
    blank: Texture, page: Texture
) -> None:
    with pytest.raises(QueryError):
        foveate.score(blank, "who is it from?")
    relevance = foveate.score(page, "who is it from?")
    assert {word.text for word in relevance.words[:2]} == {"Ann", "Lee"}
    with pytest.raises(QueryError):
        foveate.score(page, "")
    plain = foveate.score(blank, "the total", cues=False)  # "total" is a cue for writing, too
    without = foveate.score(page, "the total", reading=False, cues=False)
    np.testing.assert_array_equal(plain.map, without.map)
    assert "reading" not in without.reasons
    assert without.words == ()
    with pytest.raises(OptionError):
        foveate.score(page, "the total", reading="yes")  # type: ignore[call-overload]


@pytest.mark.parametrize("question", ["where is the dog?", "a bicycle", "the red car"])
def test_a_map_stays_as_it_is_where_nothing_written_is_asked_for(blank: Texture, page: Texture, question: str) -> None:
    without, read = foveate.score(blank, question), foveate.score(page, question)
    np.testing.assert_array_equal(without.map, read.map)
    assert not read.detected
    assert read.confidence == pytest.approx(without.confidence, abs=0.2)


def test_quotes_alone_may_name_a_thing(page: Texture, street: Texture) -> None:
    read = street.with_words(Words.of([Word("SCHOOL", (100, 100, 120, 200))], "by hand"))
    assert foveate.score(read, '"bus"').confidence == foveate.score(street, '"bus"').confidence > 0.9
    assert foveate.score(read, '"SCHOOL"').detected
    assert not foveate.score(read, 'the sign that says "bus"').detected
    assert foveate.score(page, 'the sign that says "STOP"').confidence < 0.3
    assert foveate.score(read, 'the word "SCHOQL"').detected  # misread
    assert not foveate.score(read, '"preschooling"').detected


@cache
def unread_sheet(lines: int) -> Texture:
    """A sheet with two columns of short lines, as a finder of writing sees them: a grey bar and a plane."""
    rgb, plane = np.full((512, 512, 3), 245, np.uint8), np.zeros((128, 128), np.float32)
    for line in range(lines):
        y = 20 + 30 * (line // 2)
        x = 40 + 260 * (line % 2)
        rgb[y : y + 12, x : x + 90] = 90
        plane[y // 4 : y // 4 + 4, x // 4 : x // 4 + 23] = 1
    return foveate.encode(rgb).with_channel("text", plane)


def test_the_writing_of_a_page_that_nobody_read_takes_the_place_of_a_guess() -> None:
    sheet = unread_sheet(24)
    written = sheet.channel("text")[1::2, 1::2] > 0
    for question in ("what is the total?", "who is it from?"):
        relevance = foveate.score(sheet, question)
        best = np.argsort(-relevance.map.ravel())[: int(written.sum()) // 2]
        assert written.ravel()[best].mean() > 0.9
        assert 0 < relevance.map.max() <= UNREAD
        assert not relevance.detected
        assert relevance.words == ()
        assert relevance.reasons["reading"].max() > UNREAD
    plain = foveate.score(sheet, "what is the total?", reading=False)
    assert "reading" not in plain.reasons
    assert plain.confidence == foveate.score(sheet, "what is the total?").confidence


def test_what_is_no_page_or_was_read_keeps_its_map() -> None:
    few, empty = unread_sheet(6), unread_sheet(24).with_words(Words.of([], "mine"))
    empty = empty.with_channel("text", unread_sheet(24).channel("text"))
    for texture in (few, empty, foveate.encode(few.pixel)):
        assert "reading" not in foveate.score(texture, "what is the total?").reasons
        with pytest.raises(QueryError):
            foveate.score(texture, "who is it from?")
    assert page_of(few) == (0.0, None)
    assert page_of(unread_sheet(24))[0] == 1


@pytest.mark.parametrize("turned", [90, 180, 270])
def test_a_turned_page_is_understood_as_it_is_read(page: Texture, turned: int) -> None:
    """Boxes lie in the image as it was given; rows and columns are those of the page as one reads it."""

    def turn(y: float, x: float) -> tuple[float, float]:
        for _ in range((360 - turned) // 90):  # the page lies turned clockwise by so many quarters
            y, x = x, 512 - y
        return y, x

    words = []
    for word in PAGE:
        (ya, xa), (yb, xb) = turn(*word.box[:2]), turn(*word.box[2:])
        words.append(word._replace(box=(min(ya, yb), min(xa, xb), max(ya, yb), max(xa, xb))))
    lying = page.with_words(Words.of(words, "by hand", turned))
    relevance = foveate.score(lying, "what is the total?")
    assert relevance.words[0].text == "34.50"
    assert relevance.detected
