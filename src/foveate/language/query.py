"""A question becomes noun phrases, and those become text vectors.

* Question words, verbs and words about the answer are dropped (words/small.tsv), and what remains is cut where they
  stood: "is there a dog on the red couch?" asks for "dog" and "red couch". Quotes are exact: `the "parking meter"`.
* "and" and commas ask for things together, "or" for any of them. What comes after "except", "without", "not" and "no"
  is left out, and listed as `ignored`.
* The built-in encoders read English: a question in another language is refused, or warned of where it may be a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foveate.core.checks import check_type
from foveate.core.errors import QueryError, QueryLanguageWarning, warn
from foveate.core.readonly import ReadOnly
from foveate.encoders.load import BUILT_IN
from foveate.encoders.protocol import ASK_IN_ENGLISH, Encoder, encode_texts
from foveate.language.choice import chosen, find_choices
from foveate.language.cues import COLOUR_OF, COLOURS, CUES, SPELLED, WORDS, Cue, find_cues, is_measured
from foveate.language.lists import read_rows, read_set
from foveate.language.phrase import (
    DESCRIBING,
    Phrase,
    Pick,
    Place,
    Span,
    is_agent,
    is_doing,
    is_state,
    structure,
    words_of,
)
from foveate.language.writing import ALL_WRITING, WrittenOn, find_part, find_writing

MAX_CHARACTERS = 1000  # of a question, and phrases in it: by hand
SHOWN = 60  # characters of a text in the repr of what was made of it
MAX_PHRASES = 8
REMEMBERED = 1024  # questions, by hand
HALF = 0.45  # how sure a question can be at most where the encoder does not know one of several things that it names
DESCRIBED = 0.55  # and of "the sleeping cat", which takes it as so: as many are true as not (docs/log.md)
UnderstoodAs = Callable[[str], tuple[str, float] | None]

_FUNCTION, _PLACE = read_set("small", "function"), read_set("small", "places")
_CUTS = _FUNCTION | read_set("small", "verbs")
_NAMELESS = _FUNCTION - read_set("small", "may be things")
_AT_START, _ANSWER, _WHOLES = (
    read_set("small", "commands"),
    read_set("small", "answers"),
    read_set("small", "whole image"),
)
_NOT, _ASKING = read_set("small", "not"), read_set("small", "asking")
_YES_OR_NO = read_set("small", "yes or no")
_OPEN = _ASKING - _YES_OR_NO
_DETERMINERS, _CANS = read_set("small", "determiners"), read_set("small", "before can")
_BESIDE, _IS = read_set("small", "beside"), frozenset(("is", "are", "was", "were"))
_ADJECTIVES = read_set("small", "adjectives").union(COLOURS, SPELLED)
_SAID_OF = _IS | {"that", "which", "who"}
_GEAR = {role: gear for roles, (gear,) in read_rows("gear") for role in roles}
_TOLD = read_set("small", "whole answer")
_SIDES = frozenset(("left", "right", "above", "under", "beside", "between", "behind", "before"))
_BESIDE_IT = re.compile(
    r"\b(?:(?:left|right|front) of|above|below|over|under|beneath|underneath|beside|next to|behind|before) "
    r"(?:it|this|that|them|these|those|him|her)\b",
    re.IGNORECASE,
)
_NAMED = frozenset(("no", "not", "without"))  # a text that begins so and names nothing else asks for what it names
_EXCEPT, _ALL, _OTHER_THAN = frozenset(("except", "excluding")), ("all", "everything", "anything"), ("other", "than")
_ENDS, _LISTS = frozenset((*".?!;:()", "but")), frozenset((*",&", "and", "or"))
_BEFORE_PLACES = _PLACE | {"in", "on", "at", "to", "the"}
# Whole sentences that tell how to answer, as tests of models have them: "Answer the question using a single word."
_ORDER = re.compile(
    r"(?:please\s+)?(?:answer|respond|reply)\b|(?:please\s+)?(?:give|provide|select|choose|use|do not|don't)\b"
    r".*\b(?:answers?|options?|letters?|words?|phrases?|explanations?|choices?)\b",
    re.IGNORECASE,
)
_TRUE_OR_FALSE = re.compile(r"\btrue\s*(?:/|\bor\b|,)\s*false\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.?!])\s+|\n+")
_QUOTED = re.compile(r"[\"“”]([^\"“”]+)[\"“”]")
_CUT = None  # stands for a cut in a list of words
_QUOTE = "\ue000"  # stands for a phrase in quotes
_LANGUAGES = tuple(
    (name, frozenset(articles), frozenset(others), frozenset(word for words in shared for word in words))
    for (name,), articles, others, *shared in read_rows("foreign")
)
_ENGLISH, _NAMES = read_set("english", "english"), read_set("english", "names")
_LETTERS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
MANY = 4  # different small words of a language, where only one of them is no English word


def quoted(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")


class Wording(NamedTuple):
    """What a question names."""

    phrases: tuple[str, ...]  # its noun phrases, in order
    groups: tuple[tuple[str, ...], ...]  # those that are asked for together: "a dog and a cat", not "a dog or a cat"
    ignored: tuple[str, ...] = ()  # phrases that it leaves out
    structure: tuple[Phrase, ...] = ()  # what each phrase is made of, or the frame in its place
    unread: tuple[str, ...] = ()  # places in the picture, which are not looked for: "on the left"
    writing: WrittenOn | None = None  # where it asks for the writing on a thing: then that is what it names


def asks_beside_it(text: str) -> bool:
    """Whether a text asks for what is beside a thing that was named before: "and what is left of it?"."""
    return _BESIDE_IT.search(text) is not None


@dataclass(frozen=True, eq=False)
class Query:
    """A question as an encoder understands it.

    Attributes:
        text: as asked.
        phrases: the noun phrases it was reduced to, in order. vectors: their unit vectors, float32 [phrases, D].
        cues: channels that its words name.
        groups: the phrases in groups that are asked for together ("a dog and a cat", but not "a dog or a cat").
        ignored, unread: phrases that it leaves out; places in the picture, which are not looked for ("on the left").
        structure: what each phrase is made of, or the frame in its place.
        unknown: `unread`, and what the encoder does not understand, in the question's order.
        looked_for: words that it names -> the words that are looked for in their place: {"police car": "car"}.
        promises: how sure a phrase or a noun can be at most, in (0, 1), where another thing is looked for.
        kinds: by phrase or word what is surely one of it: vectors [1, D], each with its log odds.
        surer: log odds that are added to the confidence of a phrase or a word: how much its evidence counts.
        written_on: the thing whose writing is asked for, in words; most often none, "".
        words, word_vectors: texts whose maps are composed into those of the phrases, and their unit vectors.
    """

    text: str
    phrases: tuple[str, ...]
    vectors: NDArray[np.float32]
    cues: tuple[Cue, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()
    ignored: tuple[str, ...] = ()
    structure: tuple[Phrase, ...] = ()
    words: tuple[str, ...] = ()
    word_vectors: NDArray[np.float32] | None = None
    unread: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    looked_for: Mapping[str, str] = field(default_factory=lambda: ReadOnly({}))
    promises: Mapping[str, float] = field(default_factory=lambda: ReadOnly({}))
    surer: Mapping[str, float] = field(default_factory=lambda: ReadOnly({}))
    kinds: Mapping[str, tuple[tuple[NDArray[np.float32], float], ...]] = field(default_factory=lambda: ReadOnly({}))
    written_on: str = ""

    @cached_property
    def together(self) -> bool:
        return any(len(group) > 1 for group in self.asked_groups)

    @cached_property
    def plain(self) -> bool:
        """Whether it asks for one thing, and no part of it is composed or names a channel."""
        return len(self.phrases) == 1 and not self.words and not self.cues and not self.known_half

    @cached_property
    def asks(self) -> Literal["thing", "beside", "everything"]:
        """For a thing; for what is beside one ("what is left of the dog?"); for everything: it names no thing, or the
        picture alone ("describe the image").
        """
        if asks_beside_it(self.text):
            return "beside"
        named = {word for phrase in self.structure for word in (phrase.noun, *_places(phrase))}
        if not find_phrases(self.text)[1] or named <= _WHOLES | _TOLD | {""}:
            return "everything"
        asked = (self.structure[i].place for i in self.asked if i < len(self.structure))
        return "beside" if any(place is not None and place.relation in _SIDES for place in asked) else "thing"

    def composed(self, i: int) -> bool:
        return bool(self.words) and not self.structure[i].plain

    @cached_property
    def asked(self) -> tuple[int, ...]:
        """Numbers of the phrases that are asked for, without those that only tell where another one is."""
        if not self.words:
            return tuple(range(len(self.phrases)))
        frames = tuple(i for i, phrase in enumerate(self.structure) if not phrase.noun)
        places = {text for phrase in self.structure for text in _places(phrase)}
        return frames or tuple(i for i, phrase in enumerate(self.phrases) if phrase not in places) or (0,)

    @cached_property
    def known_half(self) -> Mapping[int, str]:
        """What is shown where the encoder does not know another thing that is named, or nothing measures what one does:
        of "person holding the trophy" the person, of "the sleeping cat" the cat. By the phrase's number; with its noun,
        where its place is unknown. Empty where all are known, or none.
        """
        nouns = {noun for phrase in self.structure for noun in _nouns(phrase)} & {*self.unknown}
        things = {i: self.structure[i] for i in self.asked if i < len(self.structure)}
        parts = {i for i, phrase in things.items() if phrase.place is not None and phrase.place.relation == "part"}
        known = {i: phrase for i, phrase in things.items() if phrase.noun not in (*nouns, "") and i not in parts}
        lost = {i for i, phrase in known.items() if not nouns.isdisjoint(_nouns(phrase))}
        either = not (nouns or _unseen(self.structure, self.unread)) or "or" in self.text.lower().split()
        return {} if either else {i: phrase.noun if i in lost else "" for i, phrase in known.items()}

    @cached_property
    def asked_groups(self) -> tuple[tuple[str, ...], ...]:
        if not self.words:
            return self.groups
        asked = {self.phrases[i] for i in self.asked}
        groups = (tuple(phrase for phrase in group if phrase in asked) for group in self.groups)
        return tuple(filter(None, groups))


def _places(phrase: Phrase) -> tuple[str, ...]:
    if phrase.place is None:
        return ()
    return tuple(text for thing in phrase.place.things for text in (thing.text, *_places(thing)))


def prepare(encoder: Encoder, text: str) -> Query:
    """Question -> Query. Raises QueryError for a text that is empty, too long or unreadable."""
    # before it is looked up, which needs a hash
    check_type("query", text, str, fix="pass a string, or a list of strings", error=QueryError)
    return _prepare(encoder, text)


def without_things(encoder: Encoder, text: str) -> Query:
    """A question that names no thing: for what is written. Raises QueryError for an empty or unreadable text."""
    check_text(text)
    return Query(text, (), np.zeros((0, encoder.width), np.float32))


@lru_cache(maxsize=REMEMBERED)
def channel_weights(question: str) -> ReadOnly[str, float]:
    """The channels that a question's words name, with their weights in (0, 1]; most often none. Raises QueryError.

    >>> dict(channel_weights("what does the sign say?"))
    {'text': 0.5}
    """
    check_text(question)
    return ReadOnly({cue.channel: cue.weight for cue in find_cues(question, noun_phrases(question))})


def noun_phrases(text: str) -> tuple[str, ...]:
    """The noun phrases of a question: `parse(text).phrases`."""
    return parse(text).phrases


def parse(text: str) -> Wording:
    """What a question names; the whole text where no phrase remains. Raises QueryError.

    >>> parse("a dog and a cat or a bird, but not a hat")[:3]
    (('dog', 'cat', 'bird'), (('dog', 'cat'), ('bird',)), ('hat',))
    """
    plain, _ = find_part(text)
    if ALL_WRITING.fullmatch(plain.strip(" ?!.")):
        plain = "writing"  # "what is written here?" names no thing, but has a look
    asked = unicodedata.normalize("NFC", plain.replace(_QUOTE, " "))
    writing = _find_writing(asked)
    asked, choices = _find_choices(writing.on if writing is not None and writing.alone else asked)
    words, spans = find_phrases(asked)
    negated = _find_ignored(words, spans)
    if len(negated) == len(spans) and words and words[0] in _NAMED:
        negated = set()  # "no entry signs", "not a dog": nothing else can be meant
    found = tuple(dict.fromkeys(s.phrase for i, s in enumerate(spans) if i not in negated))[:MAX_PHRASES]
    ignored = tuple(dict.fromkeys(spans[i].phrase for i in sorted(negated) if spans[i].phrase not in found))
    if not found and (ignored or all(word in _NAMELESS or not word.isalnum() for word in words)):
        raise QueryError(
            f"{text!r} names no thing" + (f" beside what to leave out ({', '.join(ignored)})" if ignored else ""),
            expected="a question or phrase with a noun in it",
            fix='ask for the thing: "where is the dog?"; quotes around words keep them as they are',
        )
    if not found:
        whole = " ".join(plain.split())
        return Wording((whole,), ((whole,),), (), (Phrase(whole, whole),))
    groups: list[list[str]] = []
    for i, joined in enumerate(_find_joined(words, spans)):
        if i in negated or spans[i].phrase not in found:
            continue
        if not joined or i - 1 in negated:
            groups.append([])
        groups[-1].append(spans[i].phrase)
    read = dict(zip([s.phrase for s in reversed(spans)], reversed(structure(words, spans)), strict=True))  # the first
    together = tuple(tuple(dict.fromkeys(group)) for group in groups)
    made = tuple(chosen(read[phrase], choices) if choices else read[phrase] for phrase in found)
    return Wording(found, together, ignored, made, _find_unread(words, spans), writing)


def _find_writing(text: str) -> WrittenOn | None:
    writing = None if _QUOTED.search(text) else find_writing(text.rstrip(" ?!."))
    if writing is None or writing.on.split()[-1].lower() in _WHOLES or not find_phrases(writing.on)[1]:
        return None
    return writing


def _find_choices(text: str) -> tuple[str, Mapping[str, Pick]]:
    def things(part: str) -> tuple[str, ...]:
        return tuple(span.phrase for span in find_phrases(part)[1])

    def goes_on(after: str) -> bool:
        word, *more = _words(after)
        said = asks and (word in DESCRIBING or is_state(word)) and _cuts([*more, "."], 0)
        return word not in _CUTS and not said

    asks = not _IS.isdisjoint(_words(text)[:1])  # "is the dog on the left black?"
    rest, choices = (text, {}) if _QUOTED.search(text) else find_choices(text, things, goes_on)
    named = sorted(things(rest), key=len)  # with what is said of it: "dog black"
    whole = {thing: [one for one in named if f" {thing} " in f" {one} "] for thing in choices}
    return (rest, {whole[thing][0]: choices[thing] for thing in choices}) if all(whole.values()) else (text, {})


def find_phrases(text: str) -> tuple[list[str], list[Span]]:
    """-> (the words of a question, its phrases). Where something is in quotes, only that is a phrase."""
    in_quotes = [phrase.strip() for phrase in _QUOTED.findall(text) if phrase.strip()]
    if in_quotes:
        words = _words(_QUOTED.sub(lambda found: _QUOTE if found[1].strip() else " ", text))
        places = [i for i, word in enumerate(words) if word == _QUOTE]
        return words, [Span(phrase, i, i + 1, True) for phrase, i in zip(in_quotes, places, strict=True)]
    sentences = [part for part in _SENTENCE.split(_TRUE_OR_FALSE.sub(" ", text)) if part.strip()]
    words = _worn(_before(_words(" ".join(part for part in sentences if not _ORDER.match(part.strip())) or text)))
    kept = [_CUT if _cuts(words, i) else word for i, word in enumerate(words)]
    spans, phrase, start = [], list[str](), 0
    for i, word in enumerate([*kept, _CUT]):
        if word is not _CUT:
            start = start if phrase else i
            phrase.append(word.removesuffix("'s").removesuffix("'"))
        elif i < len(words) and _joins(words, kept, i):
            phrase.append(words[i])
        elif phrase and not (phrase[-1] == "of" and words[i] in ("a", "an", "the")):
            spans.append(Span(" ".join(phrase), start, i))
            phrase = []
    return words, spans


def _before(words: list[str]) -> list[str]:
    """Words with what is said of a thing before it: "the candles that are lit" as "the lit candles"."""
    out = list[str]()
    for i, word in enumerate(words):
        after = words[i + 1] if i + 1 < len(words) else "."
        k = len(out)
        while k and out[k - 1] in _SAID_OF:
            k -= 1
        start = k
        while start and not (out[start - 1] in _CUTS or not any(c.isalnum() for c in out[start - 1])):
            start -= 1
        said = word in DESCRIBING and (after in _CUTS or not any(c.isalnum() for c in after))
        if said and start < k and not _IS.isdisjoint(out[k:]) and out[start - 1 : start] != ["what"]:
            out[start:] = [word, *out[start:k]]
        else:
            out.append(word)
    return out


def _worn(words: list[str]) -> list[str]:
    """Words in which a colour that somebody wears has a noun: "the man in black" as "the man in black clothes"."""
    out = list[str]()
    for i, word in enumerate(words):
        out.append(word)
        agent, how = (".", ".", *words[:i])[-2:]
        worn = how == "wearing" or (how == "in" and (agent == "dressed" or is_agent(agent)))
        after = [*words[i + 1 :], ".", "."]
        ends = _cuts(after, 0) or is_doing(after[0])
        if worn and SPELLED.get(word, word) in COLOURS and ends and after[1] not in COLOURS:
            out.append("clothes")
    return out


def _find_ignored(words: list[str], spans: list[Span]) -> set[int]:
    out: set[int] = set()
    asks = "?" in words or (bool(words) and words[0] in _ASKING)
    for i, word in enumerate(words):
        before, after = (words[i - 1] if i else ""), (words[i + 1] if i + 1 < len(words) else "")
        rest = word in _EXCEPT or (word, before) in {("but", all_) for all_ in _ALL} or (before, word) == _OTHER_THAN
        name = word == "no" and before in _DETERMINERS  # "the no parking sign"
        if not rest and (word not in _NOT or name or after in ("only", "just", "one")):
            continue
        if asks and not rest and word != "without" and before not in ("but", "with"):  # "the man with no shirt"
            continue
        end = i + 1
        for number, span in enumerate(spans):
            between = set(words[end : span.start])
            if span.start <= i:
                continue
            ends = between & _LISTS if end == i + 1 else not rest and "or" not in between
            new_clause = "," in between and not between <= _LISTS | _DETERMINERS | _BESIDE
            if ends or new_clause or between & _ENDS:
                break
            out.add(number)
            end = span.end
    return out


def _find_unread(words: list[str], spans: list[Span]) -> tuple[str, ...]:
    """Places in the picture, as a question names them: "on the left", but not "on the left of the car". And what things
    do, where it is done to none: "is the dog eating?".
    """
    inside = {i for span in spans for i in range(span.start, span.end)}
    out, end = [], 0
    for i, word in enumerate(words):
        after = words[i + 1] if i + 1 < len(words) else ""
        if is_doing(word) and i not in inside and _OPEN.isdisjoint(words):
            named = next((span.phrase.split()[-1] for span in spans if span.start == i + 1), "")
            if is_agent(named) or (spans and not any(c.isalnum() for c in after)):
                out.append(word)
        if word not in _PLACE or i in inside or after == "of" or after in _PLACE:
            continue
        start = i
        while start > end and words[start - 1] in _BEFORE_PLACES:
            start -= 1
        out.append(" ".join(words[start : i + 1]))
        end = i + 1
    return tuple(dict.fromkeys(out))


def _find_joined(words: list[str], spans: list[Span]) -> list[bool]:
    kinds = [""] * len(spans)
    for i in range(len(spans) - 1, 0, -1):
        gap = set(words[spans[i - 1].end : spans[i].start])
        adjective = spans[i - 1].phrase in _ADJECTIVES and not gap & _DETERMINERS  # "a black and white cat"
        if gap & _LISTS and gap <= _LISTS | _DETERMINERS | _BESIDE and (not adjective or "or" in gap):
            following = kinds[i + 1] if i + 1 < len(spans) else ""
            kinds[i] = "or" if "or" in gap else "and" if gap & {"and", "&"} else following or "and"  # a comma
    return [kind == "and" for kind in kinds]


def _words(text: str) -> list[str]:
    spaced = []
    for character in text.lower().replace("’", "'"):
        inside = character.isalnum() or character in "'-" or unicodedata.category(character).startswith("M")
        spaced.append(character if inside else f" {character} ")
    return [_strip(word) for word in "".join(spaced).split()]


def _strip(word: str) -> str:
    return word if word.endswith("s'") and word[0].isalnum() else word.strip("'-") or word


def _cuts(words: list[str], i: int) -> bool:
    word, before, after = words[i], words[i - 1] if i else "", words[i + 1] if i + 1 < len(words) else ""
    if word == "can" and (before in _DETERMINERS or before in _CANS or before in _ADJECTIVES):
        return False
    if word in _CUTS or not any(c.isalnum() for c in word) or word.isdigit():
        return True
    ends, said_of = not any(c.isalnum() for c in after), words[i - 2] if i > 1 and words[i - 1] in _IS else "it"
    if is_doing(word) and ends and said_of not in _CUTS and words[0] not in _OPEN:
        return True  # "the child is smiling"
    if _follows_be(words, i) and is_state(word) and not ends:
        return True  # "who is pushing the stroller?", "which car is parked outside?"
    if word in _AT_START and before in ("", "please", "you", "to", "and") and after:
        return True
    if word in _WHOLES and before in ("the", "this", "that") and words[max(i - 2, 0)] in ("in", "on", "of", "from"):
        return after in _CUTS or not any(c.isalnum() for c in after)
    if word in _ANSWER and (after == "of" or before in _ASKING):
        return True
    if word in _PLACE and after in _PLACE and _cuts(words, i + 1):  # "on the left side of"
        return True
    return word in _PLACE and (after in _CUTS or not any(c.isalnum() for c in after))


def _follows_be(words: list[str], i: int) -> bool:
    return i > 0 and (words[i - 1] in ("what's", "who's") or (i > 1 and words[i - 1] in _IS))


def _joins(words: list[str], kept: list[str | None], i: int) -> bool:
    """Whether this is the "of" of "cup of coffee"."""
    if words[i] != "of" or i == 0 or kept[i - 1] is _CUT:
        return False
    following = i + 2 if words[i + 1 : i + 2] and words[i + 1] in ("a", "an", "the") else i + 1
    return following < len(kept) and kept[following] is not _CUT


def check_text(text: str) -> None:
    """Raises QueryError for a text that is empty, too long or unreadable."""
    check_type("query", text, str, fix="pass a string, or a list of strings", error=QueryError)
    if len(text) > MAX_CHARACTERS:
        raise QueryError(
            f"a query of {len(text):,} characters, beginning {text[:40]!r}",
            expected=f"at most {MAX_CHARACTERS:,}",
            fix="ask for the thing you look for in a few words; one query per thing",
        )
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise QueryError(f"{text!r} is no valid Unicode", expected="a text", fix="write the query again, in UTF-8")
    if not any(character.isalnum() for character in text):
        raise QueryError(f"an empty query ({text!r})", expected="a question or a noun phrase", fix='ask "a dog", say')


def other_language(text: str) -> tuple[str, bool] | None:
    """-> (the language of a text by its small words, whether that is sure); None for English, or unclear."""
    words = _LETTERS.findall(_QUOTED.sub(" ", text).lower().replace("’", "'"))
    if len(words) < 2 or not _ENGLISH.isdisjoint(words):
        return None
    every = set(words)
    best, count = "", 0
    for name, articles, others, shared in _LANGUAGES:
        small = [word for word in words if word in articles or word in others]
        too = [word for word in words if word in shared]
        sure = len(set(small)) >= 2 and not every.isdisjoint(others)
        if (sure or (small and len({*small, *too}) >= MANY)) and 2 * len(small + too) >= len(words):
            best, count = max((best, count), (name, len(small)), key=lambda found: found[1])
    if best:
        return best, True
    if len(words) <= 4 and words[1] not in _NAMES:
        for name, articles, *_ in _LANGUAGES:
            if words[0] in articles:
                return name, False
    return None


def _check_language(text: str, name: str) -> None:
    found = other_language(text)
    if found is None:
        return
    language, sure = found
    if sure:
        raise QueryError(
            f"{text!r} is {language}", expected=f"English, which the encoder '{name}' reads", fix=ASK_IN_ENGLISH
        )
    warn(f"{text!r} looks like {language}; the encoder '{name}' reads English: {ASK_IN_ENGLISH}", QueryLanguageWarning)


@lru_cache(maxsize=REMEMBERED)
def _prepare(encoder: Encoder, text: str) -> Query:
    check_text(text)
    readable, vectors, refused = [], [], None
    if encoder.name.partition("+")[0] in BUILT_IN:
        _check_language(text, encoder.name)
    wording = parse(text)
    for phrase in wording.phrases:
        try:
            vectors.append(encode_phrase(encoder, phrase))
        except QueryError as error:
            refused = error  # one phrase that cannot be read is no reason to refuse the others
            continue
        readable.append(phrase)
    if refused is not None and not readable:
        raise refused
    groups = tuple(tuple(p for p in group if p in readable) for group in wording.groups)
    read = tuple(s for phrase, s in zip(wording.phrases, wording.structure, strict=True) if phrase in readable)
    writing = wording.writing
    cues = find_cues(text, tuple(readable) if writing is None else (*readable, writing.rest))
    if writing is not None and writing.alone:  # "the lettering on the bus"
        cues = tuple(dict.fromkeys((CUES[0], *cues)))
    if not getattr(encoder, "reads_phrases", True):  # then colours are seen in the pixels
        cues = tuple(cue for cue in cues if not cue.channel.startswith(COLOUR_OF))
    understood_as: UnderstoodAs = getattr(encoder, "understood_as", lambda text: None)
    if callable(knows := getattr(encoder, "knows", None)):  # "green apple" for apple would lose the colour
        read = tuple(_with_names(phrase, lambda text: knows(text) and not understood_as(text)) for phrase in read)
    roles = [noun for phrase in read for noun in _nouns(phrase) if noun in _GEAR and _other(noun, understood_as)]
    read = tuple(_with_gear(phrase, roles) for phrase in map(chosen, read))
    if getattr(encoder, "reads_phrases", True):
        read = tuple(_without_attributes(phrase) for phrase in read)
    things = tuple(
        one for one in read if one.noun not in _ADJECTIVES and not is_measured(one.noun)
    )  # "black and white"
    nouns = [noun for one in things for noun in _nouns(one)]
    others = {noun: other for noun in nouns if (other := _other(noun, understood_as))}
    unknown = (*wording.unread, *(phrase for phrase in wording.phrases if phrase not in readable))
    unknown += tuple(word for phrase in things for word in _not_understood(phrase, cues, encoder))
    place_of = {word: text.lower().find(word) for word in unknown}
    unknown = tuple(sorted(place_of, key=lambda word: place_of[word]))
    instead = {role: f"person with {_GEAR[role]}" for role in roles} | {
        noun: other for noun, (other, _) in others.items()
    }
    if writing is not None and readable:
        instead = {f"writing on the {writing.on}": " + ".join(readable)} | instead
    promises = {noun: at_most for noun, (_, at_most) in others.items()}
    for name, made in zip(readable, read, strict=True):
        promises[name] = min(promises.get(noun, 1.0) for noun in (name, *_nouns(made)))
    known = [name for name, made in zip(readable, read, strict=True) if made not in things or made.noun not in unknown]
    if len(known) < len(wording.phrases) and "or" not in text.lower().split():  # "a man holding a trophy" is no man
        promises = {name: min(HALF, at_most) for name, at_most in promises.items()}
    promises |= {noun: HALF for one in things for noun in _nouns(one) if noun in unknown}
    at_most = HALF if _words(text)[0] in _YES_OR_NO else DESCRIBED
    promises |= {readable[i]: min(at_most, promises[readable[i]]) for i in _unseen(read, wording.unread)}
    read, words, word_vectors = _encode_words(encoder, read)
    surer: Callable[[str], float] = getattr(encoder, "surer", lambda text: 0.0)
    asked = tuple(dict.fromkeys((*readable, *(noun for one in read if not one.plain for noun in _nouns(one)))))
    kinds = {word: kinds_of(word) for word in asked} if callable(kinds_of := getattr(encoder, "kinds_of", None)) else {}
    query = Query(
        text, tuple(readable), _frozen(vectors), cues, tuple(filter(None, groups)), wording.ignored, read, words,
        _frozen(word_vectors) if words else None, wording.unread, unknown,
        ReadOnly(instead),
        ReadOnly({name: at_most for name, at_most in promises.items() if at_most < 1}),
        ReadOnly({word: odds for word in dict.fromkeys((*readable, *words)) if (odds := surer(word))}),
        ReadOnly({word: each for word, each in kinds.items() if each}),
        "" if writing is None else writing.on,
    )  # fmt: skip
    if not (half := query.known_half):
        return query
    seen = {i: " ".join(word for word in query.phrases[i].split() if word not in unknown) for i in half}
    shown = " + ".join(noun or seen[i] for i, noun in half.items())
    return replace(query, looked_for=ReadOnly({text.strip(" ?!."): shown} | instead))


@lru_cache(maxsize=REMEMBERED)  # "what is the man holding" and "... the woman holding" share fifty words
def encode_phrase(encoder: Encoder, text: str) -> NDArray[np.float32]:
    """The vector of one text, float32 [D]: the mean direction of its prompts. Raises QueryError."""
    vectors = encode_texts(encoder, [template.format(text) for template in encoder.templates])
    if len(vectors) == 1:
        return vectors[0]
    mean = vectors.mean(0)
    return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-9), np.float32)


def _encode_words(
    encoder: Encoder, read: tuple[Phrase, ...]
) -> tuple[tuple[Phrase, ...], tuple[str, ...], list[NDArray[np.float32]]]:
    known: dict[str, NDArray[np.float32]] = {}
    out = []
    for phrase in read:
        try:
            if not phrase.plain:
                known |= {word: encode_phrase(encoder, word) for word in words_of(phrase) if word not in known}
            out.append(phrase)
        except QueryError:
            out.append(Phrase(phrase.text, phrase.text))
    return tuple(out), tuple(known), list(known.values())


def _without_attributes(phrase: Phrase) -> Phrase:
    place = phrase.place and phrase.place.changed(_without_attributes)
    return replace(phrase, noun=" ".join((*phrase.attributes, phrase.noun)).strip(), attributes=(), place=place)


def _with_gear(phrase: Phrase, roles: list[str]) -> Phrase:
    """A skier as a person with skis, where no other place is named."""
    if phrase.noun in roles and phrase.place is None:
        return replace(phrase, noun="person", place=Place("known by", Phrase(_GEAR[phrase.noun], _GEAR[phrase.noun])))
    return replace(phrase, place=phrase.place and phrase.place.changed(lambda thing: _with_gear(thing, roles)))


def _with_names(phrase: Phrase, knows: Callable[[str], bool]) -> Phrase:
    """Attributes and wholes that belong to a name join the noun: "front legs", "clock face"."""
    place = phrase.place and phrase.place.changed(lambda thing: _with_names(thing, knows))
    noun, attributes = phrase.noun, phrase.attributes
    for k in range(len(attributes)):
        if noun and knows(name := " ".join((*attributes[k:], noun))):
            noun, attributes = name, attributes[:k]
            break
    if noun and place is not None and place.relation == "part" and knows(name := f"{place.of.noun} {noun}"):
        noun = name
    return replace(phrase, noun=noun, attributes=attributes, place=place)


def _not_understood(phrase: Phrase, cues: tuple[Cue, ...], encoder: Encoder) -> list[str]:
    """Words of a phrase and its place that the map does not show: unknown nouns, properties that are not measured."""
    out = [words for words in phrase.attributes if not any(map(is_measured, words.split()))]
    used = {word for cue in cues for word in WORDS.get(cue.channel, ())}
    understands = getattr(encoder, "understands", None)
    named = bool(phrase.noun) and phrase.noun not in used
    if named and callable(understands) and not _is_understood(phrase.noun, understands):
        out.append(phrase.noun)
    things = () if phrase.place is None else phrase.place.things
    return out + [word for thing in things for word in _not_understood(thing, cues, encoder)]


def _unseen(phrases: tuple[Phrase, ...], unread: tuple[str, ...]) -> set[int]:
    """Numbers of phrases whose things do what nothing measures; of "the dog on the couch sleeping" no couch does."""
    said_of_another = (word for phrase in phrases if not is_agent(phrase.noun) for word in _states(phrase))
    does = any(map(is_doing, (*unread, *said_of_another)))
    return {i for i, phrase in enumerate(phrases) if does or _states(phrase)}


def _states(phrase: Phrase) -> list[str]:
    """What a phrase says that its things do, or how they are: "sleeping", "cat asleep", but not "the old cat"."""
    of = () if phrase.place is None else phrase.place.things
    agent = is_agent(phrase.noun)
    own = [word for word in phrase.attributes if phrase.text.endswith(f" {word}") or (agent and is_doing(word))]
    return [word for word in own if not is_measured(word)] + [word for thing in of for word in _states(thing)]


def _nouns(phrase: Phrase) -> tuple[str, ...]:
    of = () if phrase.place is None else tuple(noun for thing in phrase.place.things for noun in _nouns(thing))
    return (phrase.noun, *of) if phrase.noun else of


def _other(noun: str, understood_as: UnderstoodAs) -> tuple[str, float] | None:
    try:
        return understood_as(noun)
    except QueryError:  # it is unknown
        return None


def _is_understood(text: str, understands: Callable[[str], bool]) -> bool:
    try:
        return understands(text)
    except QueryError:
        return False


def _frozen(vectors: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    stacked = np.stack(vectors).astype(np.float32)
    stacked.setflags(write=False)
    return stacked
