"""What is written, looked for in a Lance dataset: with its full-text index, without, and with rows outside it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import store_words
from foveate.core.errors import QueryError, StoreDamagedError
from foveate.reading.words import Word, Words
from foveate.store.words import pack_words, pattern_of, text_of, tokens_of, unpack_words
from foveate.store.writing import WrittenTexts, align, find_words, index_words, read_quotes, units_of, words_of_phrases

lance = pytest.importorskip("lance")
pa = pytest.importorskip("pyarrow")

PAGES = {
    "a": "KEDAI TAN WOON YANN TOTAL 9.00 DATE11/4/93",
    "b": "KEDAI LIM SENG THO TOTAL RM34.50",
    "c": "SIMPLIFIED TAXINVOICE singapre cruise",
    "d": "合計金額 Café Größe ŁÓDŹ İstanbul",
    "e": "",
    "f": "Москва мой ΑΘΉΝΑ Ελλάς हिन्दी गोली",
    "gone": "KEDAI TAN WOON 合計",
    "unread": None,
}
WAYS = ("none", "all", "half", "compacted")


def words_of(text: str) -> Words:
    return Words.of([Word(word, (0, k, 1, k + 1)) for k, word in enumerate(text.split())], "mine 1.0")


def dataset_of(texts: Sequence[str | None], path: Path, mode: str = "create", **how: Any) -> Any:
    column = [None if text is None else text_of(words_of(text)) for text in texts]
    return lance.write_dataset(pa.table({"words": pa.array(column, pa.string())}), path, mode=mode, **how)


@pytest.fixture(scope="module", params=WAYS)
def texts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> WrittenTexts:
    """PAGES without "gone", in every state of the index."""
    path, order = tmp_path_factory.mktemp("w") / request.param, ["gone", *(name for name in PAGES if name != "gone")]
    half = 4 if request.param != "all" else len(PAGES)
    dataset = dataset_of([PAGES[name] for name in order[:half]], path, max_rows_per_file=2)
    if request.param != "none":
        assert index_words(dataset, 0)
        assert not index_words(dataset, 0)
    if half < len(PAGES):
        dataset = dataset_of([PAGES[name] for name in order[half:]], path, "append")
    dataset.delete("words LIKE 'KEDAI TAN WOON 合計'")
    if request.param == "compacted":
        index_words(dataset, 0)
        dataset.optimize.compact_files()
        dataset.checkout_latest()
        assert len(dataset.get_fragments()) == 1
    return WrittenTexts(dataset, len(PAGES) - 1)


NAMES = [name for name in PAGES if name != "gone"]


def ids_of(dataset: Any) -> list[int]:
    """Row ids, in order."""
    return list(dataset.scanner(columns=["_rowid"]).to_table()["_rowid"].to_pylist())


def quoted(texts: WrittenTexts, query: str, enough: int = 5) -> dict[str, float]:
    found = WrittenTexts(texts.dataset, texts.images).find_quoted(read_quotes(query).quoted, enough)
    called = dict(zip(ids_of(texts.dataset), NAMES, strict=True))
    return {called[row]: share for row, share in found.items()}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ('"tan woon"', "a"), ('"TAN  woon, yann!"', "a"), ('"tan woom yann"', "a"),  # a letter is wrong
        ('"tanwoon yann"', "a"), ('"tax invoice"', "c"), ('"simplified tax invoice"', "c"),  # a space is lost
        ('"simplfied taxinvoice"', "c"), ('"simpilfied"', "c"), ('"singapore"', "c"),
        ('"9.00"', "a"), ('"9.01"', ""), ('"11/4/93"', "a"), ('"34.50"', "b"), ('"rm 34.50"', "b"), ('"RM34"', "b"),
        ('"kedai"', "ab"), ('"kedai" "34.50"', "b"), ('"kedai" "nothing like it"', ""), ("“lim seng”", "b"),
        ('"合計"', "d"), ('"金額 cafe"', "d"), ('"計合"', ""), ('"GRÖSSE"', "d"), ('"lodz"', "d"), ('"Łódź"', "d"),
        ('"istanbul"', "d"), ('"İSTANBUL"', "d"), ('"москва"', "f"), ('"москвва"', "f"), ('"мои αθηνα"', "f"),
        ('"ΕΛΛΑΣ"', "f"), ('"हिन्दी"', "f"), ('"woon tan"', ""), ('"tan seng"', ""), ('"an"', ""), ('"мо"', ""),
    ],
)  # fmt: skip
def test_quoted_text_must_be_written(query: str, found: str, texts: WrittenTexts, capfd: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "".join(sorted(quoted(texts, query))) == found
    assert capfd.readouterr().err == ""  # nor does Lance warn


def test_how_well_it_is_written(texts: WrittenTexts) -> None:
    assert quoted(texts, '"tan woon"') == {"a": 1.0}
    assert quoted(texts, '"tan woom yann"') == {"a": pytest.approx(1 - 1 / 11)}
    assert quoted(texts, '"tan woom yann" "kedai"') == {"a": pytest.approx((1 - 1 / 11) ** 0.5)}


def test_other_words(texts: WrittenTexts) -> None:
    ids = ids_of(texts.dataset)
    for query, name in (
        ("lim seng tho", "b"), ("total 34.50", "b"), ("total 9.00", "a"), ("合計", "d"), ("Größe", "d"),
        ("singapore cruise", "c"), ("cafe total", "d"), ("москва", "f"), ("мосвка", "f"),
    ):  # fmt: skip
        words = units_of(query)
        asked = WrittenTexts(texts.dataset, texts.images)
        best, *_ = rows = [ids.index(row) for row in asked.find_having(words, 3)]
        assert NAMES[best] == name
        shares = asked.shares([words, words[:1], ()], ids)
        assert shares.shape == (len(NAMES), 3)
        assert shares[:, 0].argmax() == best
        assert not shares[[NAMES.index("e"), NAMES.index("unread")]].any()
        assert not shares[:, 2].any()
        assert set(np.flatnonzero(shares[:, 0])) == set(rows)
    share = WrittenTexts(texts.dataset, texts.images).shares([units_of("singapore")], [ids[NAMES.index("c")]])
    assert share == pytest.approx(1 - 1 / 9)
    assert WrittenTexts(texts.dataset, texts.images).find_having(units_of("nothing 77"), 3) == []


def test_every_text_is_found_whatever_is_indexed(tmp_path: Path) -> None:
    """Random texts of many scripts: what is in a row, and what has one error, against a plain comparison."""
    rng = np.random.default_rng(0)
    letters = list("abAB12éŁß ı.,-_合計かЙиёΆα")
    pages = [
        "".join(rng.choice(letters, rng.integers(0, 40))) + " " + rng.choice(["tabby", "tbaby"]) for _ in "x" * 300
    ]
    dataset = dataset_of(pages[:200], tmp_path / "d")
    index_words(dataset, 0)
    dataset = dataset_of(pages[200:], tmp_path / "d", "append")
    rows, ids = [f" {' '.join(tokens_of(page))} " for page in pages], ids_of(dataset)
    tried = 0
    for page in pages[::3]:
        tokens = tokens_of(page)
        start = int(rng.integers(len(tokens)))
        way = tuple(tokens[start : start + int(rng.integers(1, 4))])
        right = [place for place, row in enumerate(rows) if f" {' '.join(way)} " in row]
        assert WrittenTexts(dataset, len(pages)).find([way]) == [ids[place] for place in right], way
        assert dataset.take(right)["words"].to_pylist() == [text_of(words_of(pages[place])) for place in right]
        tried += len(way) > 1
    assert tried > 30
    assert WrittenTexts(dataset, len(pages)).find([("tabby",)], "tabby") == ids


def test_the_index_is_made_once_there_is_enough(tmp_path: Path) -> None:
    dataset = dataset_of(["a b", None, "", "b c"], tmp_path / "d")
    assert not index_words(dataset)
    assert not index_words(dataset, 2)
    assert index_words(dataset, 1)
    dataset = dataset_of([None, "", None], tmp_path / "d", "append")
    assert not index_words(dataset, 0)
    for number in range(5):
        dataset = dataset_of([f"b x{number}"], tmp_path / "d", "append")
        assert index_words(dataset, 0)
        assert not index_words(dataset, 0)
    assert WrittenTexts(dataset, 12).find([("b",)]) == [ids_of(dataset)[place] for place in (0, 3, 7, 8, 9, 10, 11)]
    (index,) = dataset.describe_indices()
    assert len(index.segments) < 3
    empty = dataset_of([None, ""], tmp_path / "e")
    assert not index_words(empty, 0)
    assert WrittenTexts(empty, 2).find_quoted((("a",),), 1) == {}


def test_several_make_the_index_at_once(tmp_path: Path) -> None:
    dataset_of(["a b"] * 50, tmp_path / "d")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: index_words(lance.dataset(tmp_path / "d"), 0), range(4)))
        dataset_of(["a c"] * 50, tmp_path / "d", "append")
        list(pool.map(lambda _: index_words(lance.dataset(tmp_path / "d"), 0), range(4)))
    dataset = lance.dataset(tmp_path / "d")
    assert not index_words(dataset, 0)
    assert WrittenTexts(dataset, 100).find([("a",)]) == ids_of(dataset)


def test_a_broken_index_is_a_damaged_store(tmp_path: Path) -> None:
    dataset = dataset_of(["a b"] * 50, tmp_path / "d")
    index_words(dataset, 0)
    for file in (tmp_path / "d" / "_indices").rglob("*.lance"):
        file.write_bytes(b"\xff" * 100)
    with pytest.raises(StoreDamagedError):
        WrittenTexts(lance.dataset(tmp_path / "d"), 50).find([("a",)])


# --- texts and tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ['"!!!"', 'receipt "🙂"'])
def test_quotes_without_a_letter(query: str) -> None:
    with pytest.raises(QueryError):
        read_quotes(query)


def test_quotes_are_read() -> None:
    assert read_quotes('receipt "Tan Woon" «9.00»') == ("receipt    ", (("tan", "woon"), ("9", "00")))
    assert read_quotes('kedai "tan') == ('kedai "tan', ())
    assert read_quotes('kedai "   "').quoted == ()
    assert words_of_phrases(None, "RM34.50 rm")[0] == (("rm",), ("34", "50"))


def test_tokens() -> None:
    assert tokens_of("Total: RM34.50 DATE11/4/93") == ["total", "rm", "34", "50", "date", "11", "4", "93"]
    assert tokens_of("合計 naïve ＡＢ ﬁne Łódź") == ["合", "計", "naive", "ab", "fine", "lodz"]
    assert tokens_of("\"*^:-()'; 🙂\x00") == []
    assert text_of(words_of("Total: RM34.50 合計 A-1 m²")) == "Total: RM 34.50 合計 A-1 m 2"
    assert "'" not in pattern_of(("o", "αβ合"), False)


def test_words_as_bytes_and_back() -> None:
    words = Words.of([Word("Ü\u2028x", (0, 0, 1, 1), 0.5, 3), Word("b", (1, 2, 3, 4), 1.0, 9)], "mine 2", 90)
    back = unpack_words(pack_words(words), (10, 10))
    assert (back.texts, back.reader, back.turned) == (words.texts, "mine 2", 90)
    with pytest.raises(ValueError, match="none"):
        unpack_words(pack_words(words), (2, 10))  # a box beyond the image


def test_the_words_that_were_asked_for() -> None:
    words = words_of("KEDAI TAN WOON singapre TAXINVOICE")
    for quote, other, found in (
        ("tan woom", "", "TAN WOON"), ("tax invoice", "", "TAXINVOICE"), ("", "singapore kedai", "KEDAI singapre"),
    ):  # fmt: skip
        asked = [tuple(quote.split())] if quote else []
        assert " ".join(word.text for word in find_words(words, asked, units_of(other))) == found


def errors_of(wanted: str, tokens: Sequence[str]) -> int:
    """What `align` counts, cell by cell."""
    text, far = "".join(tokens), 10_000
    edges = set(np.cumsum([0, *map(len, tokens)]).tolist())
    row = [int(j not in edges) for j in range(len(text) + 1)]
    for letter in wanted:
        new = [row[0] + (far if letter.isdigit() else 1)]
        for j, other in enumerate(text, 1):
            wrong = 0 if other == letter else far if other.isdigit() and letter.isdigit() else 1
            lost, extra = (far if c.isdigit() else 1 for c in (letter, other))
            new.append(min(row[j - 1] + wrong, row[j] + lost, new[-1] + extra))
        row = new
    return min(errors + (j not in edges) for j, errors in enumerate(row))


def test_align_counts_errors() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        listed = [
            ["".join(rng.choice(list("ab1"), rng.integers(1, 5))) for _ in range(rng.integers(0, 6))] for _ in "xyz"
        ]
        wanted = "".join(rng.choice(list("ab12"), rng.integers(1, 7)))
        found = align(wanted, listed)
        assert [errors for errors, _ in found] == [errors_of(wanted, tokens) for tokens in listed]
        for (errors, (first, end)), tokens in zip(found, listed, strict=True):
            if errors == 0:
                assert "".join(tokens[first:end]) == wanted


def test_the_benchmark_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_words, "VOCABULARY", 500)
    times = store_words.measure(1000, 5)
    assert len(times["rows"]) == 11
    assert all(row["measured"] for row in times["rows"])
