"""What a phrase is made of: the thing itself, what it is like, and where it belongs. By rules and lists of words.

    >>> read("the man's red hat")
    Phrase(text='man red hat', noun='hat', attributes=('red',), place=Place(relation='part', of='man'), choice=None)

* A relation is read from the thing: noun - relation - of. "face part of dog", "cup on table", "held by the man".
* A frame asks for something beside its noun ("what is the man holding?"): its noun is "" ("person" for "who").
* A lone phrase, "where is", "find" and "which" ask for the first thing: what follows is its place. A question for yes
  or no ("is there a dog on the couch?") and a scene ("a man riding a horse") ask for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, cast

from foveate.language.lists import read_lists, read_pairs, read_rows, read_set

LONGEST, DEEPEST = 24, 8  # words of a phrase and places within places; longer texts are lists of words

# Where a thing is: noun - relation - of. The second line is of frames, "what is the man holding?"; a skier is known by
# skis.
Relation = Literal[
    "part", "on", "in", "under", "above", "beside", "between", "left", "right", "behind", "before", "with",
    "held", "worn", "worn on head", "ridden", "eaten", "carried", "used", "seen", "supporting", "around", "known by",
]  # fmt: skip


By = Literal["left", "right", "top", "bottom", "middle", "largest", "smallest", "nearest", "farthest"]


class Pick(NamedTuple):
    """Which of several things of a kind: the `number`-th from the left, the largest; "top left" is by two."""

    by: tuple[By, ...]
    number: int = 1
    to_place: bool = False  # the nearest to what the phrase's place names, not to the camera
    there: bool = False  # the one thing on the right of a picture is the leftmost, but not "on the left"


@dataclass(frozen=True)
class Phrase:
    """A thing that a question names or asks for."""

    text: str  # the phrase in words; of a frame the question
    noun: str  # the thing itself, "wheel" or "cup of coffee"; empty where the question asks which thing it is
    attributes: tuple[str, ...] = ()  # the words before it that describe it: ("red",), ("dark blue", "wooden")
    place: Place | None = None  # what it is part of, or where it is; None if the question does not tell
    choice: Pick | None = None  # which of several it is

    @property
    def plain(self) -> bool:
        return self.place is None and not self.attributes and self.choice is None and bool(self.noun)


@dataclass(frozen=True, repr=False)
class Place:
    """Where a thing is said to be: its relation to another one, or to two."""

    relation: Relation
    of: Phrase
    other: Phrase | None = None  # of "between the car and the bench" the bench

    @property
    def things(self) -> tuple[Phrase, ...]:
        return (self.of,) if self.other is None else (self.of, self.other)

    def changed(self, change: Callable[[Phrase], Phrase]) -> Place:
        """The same relation to what `change` makes of its things."""
        return Place(self.relation, change(self.of), None if self.other is None else change(self.other))

    def __repr__(self) -> str:
        other = "" if self.other is None else f", other={self.other.text!r}"
        return f"Place(relation={self.relation!r}, of={self.of.text!r}{other})"


class Span(NamedTuple):
    """A phrase, and the words [start, end) that it was made of."""

    phrase: str
    start: int
    end: int
    quoted: bool = False


_COLOURS, _SHADES = read_set("describing", "colours"), read_set("describing", "shades")
_ATTRIBUTES = read_set("describing", "colours", "sizes", "qualities")
_ENDINGS, _COUNTS = read_set("describing", "endings"), read_set("describing", "counts")
_TWO_DESCRIBE = read_pairs("describing", "two words")
_PREDICATES = (_COLOURS - read_set("describing", "no predicates")) | read_set("describing", "predicates")
DESCRIBING = _PREDICATES | read_set("describing", "said after")  # "the candles are lit"

_ONE_THING, _TWO_WORD_PARTS = read_pairs("things", "one thing"), read_pairs("things", "parts of two words")
_WHOLE = read_pairs("things", "one thing with of")
_MEASURES = read_set("things", "measures")
_KEEPS_ATTRIBUTES = read_set("things", "measures that keep attributes")
_CONTAINERS, _DEPICTIONS = read_set("things", "containers"), read_set("things", "depictions")
_WEARABLE = read_set("things", "clothes") | _COLOURS
_HEAD, _HANDS, _ROOMS = read_set("things", "head"), read_set("things", "hands"), read_set("things", "rooms")
_NOUNS_ING, _NOUNS_ED = read_set("things", "in -ing"), read_set("things", "in -ed")
_WHOLES_AND_PARTS = [(frozenset(wholes), parts) for wholes, parts in read_rows("wholes")]
PART_OF = {
    part: frozenset[str]().union(*(wholes for wholes, others in _WHOLES_AND_PARTS if part in others))
    for _, parts in _WHOLES_AND_PARTS
    for part in parts
}
_AGENTS = PART_OF["ear"]
_HAVE_TWO_WORD_PARTS = frozenset[str]().union(*(wholes for wholes, _ in _WHOLES_AND_PARTS))
_PARTS = frozenset(PART_OF) | read_set("things", "parts")


def _by_entry(name: str, *but: str) -> dict[str, Relation]:
    lists = read_lists(name)
    return {entry: cast(Relation, key) for key in lists if key not in but for entry in lists[key]}


_PREPOSITIONS = _by_entry("prepositions")
# What a person does, and where the answer is: "what is the man holding?". A word after the verb may change it.
_DONE = _by_entry("verbs", "posture", "states", "with", "on", "no thing")
_POSTURE, _AFTER, _THOUGHT = read_set("verbs", "posture"), read_set("verbs", "states"), read_set("verbs", "no thing")
_HOLDS, _RIDES = read_set("verbs", "with"), read_set("verbs", "on")
# The place of what an agent leans on, stands in and so on, from the preposition after the verb.
_OTHER_SIDE: dict[Relation, Relation] = {
    "on": "supporting", "in": "around", "under": "above", "above": "under", "beside": "beside", "between": "beside",
    "behind": "before", "before": "behind", "left": "right", "right": "left", "with": "used",
}  # fmt: skip

_ARTICLES, _OWN, _BE = read_set("small", "articles"), read_set("small", "own"), read_set("small", "be")
_DETERMINERS = read_set("small", "determiners") | {"all", "both", "each", "every", "one", "of"}
_SKIPPED, _KIND, _STATES = (
    _BE | read_set("small", "auxiliaries"),
    read_set("small", "kind"),
    read_set("small", "yes or no"),
)
_HAVE, _PRONOUNS, _THINGS = read_set("small", "have"), read_set("small", "pronouns"), read_set("small", "something")
_THAT = read_set("small", "that")
_ASKS, _DOES = ("what", "which", "who", "whom", "what's", "who's"), frozenset(("do", "does", "did"))
_BEFORE_A_NOUN = [[word] for word in sorted(_ARTICLES | _OWN)]
_ENDS = frozenset(".?!;:()")

_Item = str | int  # a word outside the phrases, or a phrase's number

# What may be there, asked beside the place of a frame.
FRAMES = read_lists("frames")
HANDS = FRAMES["hands"]
_USED_BY_HAND = ("held", "carried", "used", "eaten")


def things_of(relation: Relation) -> tuple[str, ...]:
    """Words for what may be in a place that a question names alone: "what is the man holding?"."""
    return FRAMES.get("held" if relation in ("carried", "used") else relation, FRAMES["anything"])


def words_of(phrase: Phrase) -> tuple[str, ...]:
    """Every text whose map `compose` needs for this phrase, without repetition."""
    out = [phrase.noun] if phrase.noun else []
    if phrase.place is not None:
        relation = phrase.place.relation
        if not phrase.noun:
            out += things_of(relation)
            out += HANDS if relation in _USED_BY_HAND else ()
            out += ("head",) if relation == "worn on head" else ()
        out += [word for thing in phrase.place.things for word in words_of(thing)]
    return tuple(dict.fromkeys(out))


def structure(words: Sequence[str], spans: Sequence[Span]) -> tuple[Phrase, ...]:
    """The structure of each phrase of a text, in order; a frame stands in the place of its agent or whole."""
    cores, tails = _split(words, spans)
    found = [Phrase(s.phrase, s.phrase) if s.quoted else _read(core) for s, core in zip(spans, cores, strict=True)]
    places = list(found)
    clauses = _clauses(words, spans, tails)
    for clause in clauses:
        _place(clause, found, places)
    out = [p if p.text == s.phrase else replace(p, text=s.phrase) for p, s in zip(places, spans, strict=True)]
    for i, (tail, span) in enumerate(zip(tails, spans, strict=True)):
        if tail and tail != ["like"] and not (tail[-1] in _DONE or words[span.end : span.end + 1] in _BEFORE_A_NOUN):
            out[i] = replace(out[i], attributes=(*out[i].attributes, " ".join(tail)))
    for clause in clauses:
        frame = _frame(clause, spans, places)
        if frame:
            for i in (item for item in clause if isinstance(item, int) and tails[item]):
                out[i] = replace(places[i], text=spans[i].phrase)  # what it does was the question's verb
            out[frame[0]] = frame[1]
    return tuple(out)


def read(phrase: str) -> Phrase:
    """The structure of one phrase without a question around it."""
    words = phrase.lower().replace("’", "'").split()
    return _read(words[1:] if len(words) > 1 and words[0] in _ARTICLES else words)


def _text(words: Sequence[str]) -> str:
    return " ".join(w.removesuffix("'s").removesuffix("'") for i, w in enumerate(words) if not i or w not in _ARTICLES)


def _read(words: Sequence[str]) -> Phrase:
    text = _text(words)
    if len(words) > LONGEST:
        return Phrase(text, text)
    of = words.index("of") if "of" in words[1:-1] else len(words)
    owners = [i for i in range(min(of, len(words) - 1)) if words[i].endswith(("'s", "s'")) and words[i + 1] != "of"]
    if owners and words[owners[-1] + 1] not in _ROOMS:
        owner = _read([*words[: owners[-1]], words[owners[-1]].removesuffix("'s").removesuffix("'")])
        return replace(_inside(_read(words[owners[-1] + 1 :]), Place("part", owner)), text=text)
    if of == len(words):
        return _read_simple(words)
    left, right = words[:of], words[of + 1 :]
    if left[-1] == "full" and len(left) > 1:
        return replace(_inside(_read_simple(left[:-1]), Place("with", _read(right))), text=text)
    article, head = right[0] if right[0] in _ARTICLES and len(right) > 1 else "", left[-1]
    of_what = _read(right[1:] if article else right)
    if head in _MEASURES:
        before = _read_simple(left).attributes if head in _KEEPS_ATTRIBUTES else ()
        return replace(of_what, text=text, attributes=(*before, *of_what.attributes))
    if len(left) == 1 and head in _ATTRIBUTES and head.endswith("est"):  # "the largest of the dogs"
        return replace(of_what, text=text, attributes=(head, *of_what.attributes))
    thing = _read_simple(left)
    contains = head in _CONTAINERS and article != "the"
    if head in _DEPICTIONS or contains or (head, right[-1]) in _WHOLE or (not article and head not in _PARTS):
        return Phrase(text, f"{thing.noun} of {of_what.text}", thing.attributes)
    return replace(_inside(thing, Place("part", of_what)), text=text)


def _depth(phrase: Phrase) -> int:
    return 1 + _depth(phrase.place.of) if phrase.place else 0


def _inside(phrase: Phrase, place: Place) -> Phrase:
    """The phrase, with a place for its outermost whole: "car door" and "the man's" make a door of a car of the man."""
    if phrase.place is None:
        return replace(phrase, place=place)
    return replace(phrase, place=replace(phrase.place, of=_inside(phrase.place.of, place)))


def _read_simple(words: Sequence[str]) -> Phrase:
    attributes, i, last = [], 0, len(words) - 1
    while i < last:
        pair = (words[i], words[i + 1])
        if pair in _ONE_THING or (pair in _TWO_WORD_PARTS and i + 1 == last):
            break
        if i + 1 < last and (pair in _TWO_DESCRIBE or (pair[0] in _SHADES and pair[1] in _COLOURS)):
            attributes.append(" ".join(pair))
            i += 2
        elif words[i] in _COUNTS:
            i += 1
        elif _describes(words[i]):
            attributes.append(words[i])
            i += 1
        else:
            break
    rest = words[i:]
    cut = len(rest) - (2 if tuple(rest[-2:]) in _TWO_WORD_PARTS else 1)
    noun, whole = _text(rest), None
    if cut > 0 and rest[cut - 1] in (PART_OF.get(rest[-1], ()) if cut == len(rest) - 1 else _HAVE_TWO_WORD_PARTS):
        noun, whole = _text(rest[cut:]), _read_simple(rest[:cut])
    return Phrase(_text(words), noun, tuple(attributes), Place("part", whole) if whole else None)


def _describes(word: str) -> bool:
    if word in _ATTRIBUTES:
        return True
    if word.endswith("ed"):
        return len(word) > 4 and not word.endswith(("eed", "bed", "shed")) and word not in _NOUNS_ED
    return "-" in word and word.rpartition("-")[2] in _ENDINGS


def _split(words: Sequence[str], spans: Sequence[Span]) -> tuple[list[list[str]], list[list[str]]]:
    """-> (the words of each phrase, the words at its end that tell what the thing does: "bus moving")."""
    cores, tails = [], []
    first = words[0] if words else ""
    asks = "is" if first in _BE else "does" if first in _ASKS and not _DOES.isdisjoint(words) else ""
    for span in spans:
        core, tail = list(words[span.start : span.end]), list[str]()
        while len(core) > 1 and not span.quoted and _says(core[-1], core[-2], asks):
            tail.insert(0, core.pop())
        cores.append(core)
        tails.append(tail)
    return cores, tails


def _says(word: str, before: str, asks: str) -> bool:
    if before in _ATTRIBUTES or before in _ARTICLES or before == "of" or before.endswith(("'s", "s'")):
        return False
    if asks == "is" and word in _PREDICATES:
        return True
    return word == "like" or is_state(word) or (asks == "does" and word in _DONE)


def is_state(word: str) -> bool:
    """Whether a word after "is" tells how a thing is there, and names no thing: "parked", "leaning"."""
    return word in _AFTER or is_doing(word)


def is_doing(word: str) -> bool:
    """Whether a word tells what something does, "pulling", and names no thing as "building" does."""
    return word.endswith("ing") and len(word) > 4 and word not in _NOUNS_ING


def is_agent(word: str) -> bool:
    """Whether a word names what does things by itself: what has ears."""
    return not _AGENTS.isdisjoint((word, word.removesuffix("s")))


def _clauses(words: Sequence[str], spans: Sequence[Span], tails: Sequence[Sequence[str]]) -> list[list[_Item]]:
    out: list[list[_Item]] = [[]]
    end = 0
    for i, span in enumerate(spans):
        _extend(out, words[end : span.start])
        out[-1] += [i, *tails[i]]
        end = span.end
    _extend(out, words[end:])
    return out


def _extend(clauses: list[list[_Item]], words: Sequence[str]) -> None:
    for word in words:
        if word in _ENDS:
            clauses.append([])
        else:
            clauses[-1].append(word)


def _place(clause: Sequence[_Item], found: Sequence[Phrase], places: list[Phrase]) -> None:
    """Write the places of first phrases into `places`, from the words between two: "the cup next to the laptop"."""
    at = [k for k, item in enumerate(clause) if isinstance(item, int)]
    states = bool(clause) and clause[0] in _STATES
    for n in range(len(at) - 2, -1, -1):
        first, second = int(clause[at[n]]), int(clause[at[n + 1]])
        gap = [str(item) for item in clause[at[n] + 1 : at[n + 1]]]
        if _owns(gap, alone=n == 0):
            places[second] = _inside(places[second], Place("part", found[first]))
            if gap[-1] == "whose":
                continue
        if gap and _depth(places[second]) >= DEEPEST:
            continue
        relation = _link(gap, definite=at[n] > 0 and clause[at[n] - 1] in ("the", "that", "this", "those", "these"))
        if relation is None or (states and relation != "part"):
            continue
        if found[first].place is not None and " of " not in found[first].text:
            continue  # "the man's hand on the wheel": not a man on a wheel, and a hand has one place
        if relation == "in" and places[second].noun.split()[-1] in _WEARABLE:
            relation = "with"
        of, other = found[second] if gap[-1] in _OWN else places[second], None
        if relation == "between" and n + 2 < len(at):
            after = [str(item) for item in clause[at[n + 1] + 1 : at[n + 2]]]
            if after[:1] == ["and"] and _DETERMINERS.issuperset(after[1:]):
                other = places[int(clause[at[n + 2]])]
        places[first] = _inside(places[first], Place(relation, of, other))


def _owns(gap: Sequence[str], alone: bool) -> bool:
    if not gap or gap[-1] not in _OWN or gap[0] == "of" or not (alone or gap[-1] == "whose"):
        return False
    return gap[-1] == "whose" or _link(gap, definite=False) in (None, "with")


def _link(gap: Sequence[str], definite: bool) -> Relation | None:
    """The relation of the words between two phrases: ["sitting", "on", "the"] -> "on"."""
    end = len(gap)
    while end and gap[end - 1] in _DETERMINERS and gap[end - 1] != "of":
        end -= 1
    words = gap[:end]
    while words:
        if len(words) == 1 and definite and (words[0] in _HOLDS or words[0] in _DONE):
            return "on" if words[0] in _RIDES else "with" if words[0] in _HOLDS else "beside"
        relation = _PREPOSITIONS.get(" ".join(words))
        if relation or not _passes(words[0]):
            return relation
        words = words[1:]
    return None


def _passes(word: str) -> bool:
    doing = is_doing(word) and word not in _DONE
    return word in _BE or word in _POSTURE or word in _THAT or word in _AFTER or doing


def _preposition(clause: Sequence[_Item], i: int) -> tuple[Relation, int] | None:
    for end in range(min(i + 5, len(clause)), i, -1):
        words = clause[i:end]
        if all(isinstance(item, str) for item in words):
            relation = _PREPOSITIONS.get(" ".join(map(str, words)))
            if relation and relation != "part":
                return relation, end
    return None


def _frame(clause: Sequence[_Item], spans: Sequence[Span], places: Sequence[Phrase]) -> tuple[int, Phrase] | None:
    """-> (the phrase in whose place it stands, the thing asked for), for questions whose answer has a place only."""
    asks = next((i for i, item in enumerate(clause) if item in _ASKS or item in _THINGS), None)
    if asks is None or (asks and isinstance(clause[asks - 1], int)):  # "the woman who is sitting"
        return None
    asked, i = clause[asks], asks + 1
    number, i = _asked_noun(clause, i) if asked in ("what", "which") else (None, i)
    place = _frame_place(clause, i, places)
    if place is None:
        return None
    agent, where = place
    if number is not None:
        return None if places[number].place == where else (number, _inside(places[number], where))
    text = " ".join(_say(item, spans) for item in clause[asks:])
    return agent, Phrase(text, "person" if str(asked).startswith("who") else "", (), where)


def _asked_noun(clause: Sequence[_Item], i: int) -> tuple[int | None, int]:
    """The noun after "what" or "which" ("what animal is ..."), and where the rest begins."""
    k = i
    while k < len(clause) and (clause[k] in _KIND or (clause[k] in _DETERMINERS and "of" in clause[i:k])):
        k += 1
    if k < len(clause) - 1 and isinstance(clause[k], int):
        return int(clause[k]), k + 1
    return None, k if k < len(clause) and clause[k] in _SKIPPED else i


def _frame_place(clause: Sequence[_Item], i: int, places: Sequence[Phrase]) -> tuple[int, Place] | None:
    """-> (the phrase that the place is of, the place), from the words after "what", "which animal" and the like."""
    start = i = _skip(clause, i)
    while i < len(clause) and clause[i] in _DETERMINERS:
        i += 1
    if i < len(clause) and isinstance(clause[i], int):
        return _done_by(clause, i, places)
    if i < len(clause) and (clause[i] in _THINGS or clause[i] in _PRONOUNS):  # "what is the thing on", "is she holding"
        start = i + 1
        while start < len(clause) and clause[i] in _PRONOUNS and clause[start] in _DONE:
            start += 1
    found, i = _preposition(clause, start), start
    while not found and i < len(clause) and isinstance(clause[i], str) and _passes(str(clause[i])):
        i += 1
        found = _preposition(clause, i)
    of = _object(clause, found[1]) if found else None
    if found and of is not None and (i == start or clause[i - 1] not in _DONE or clause[i - 1] in _POSTURE):
        return of, Place(_worn(found[0], clause, of, places), places[of])
    return _doing(clause, start, places)


def _skip(clause: Sequence[_Item], i: int) -> int:
    while i < len(clause) and (clause[i] in _SKIPPED or (clause[i] in _HAVE and clause[i - 1] not in _ASKS)):
        i += 1
    return i


def _worn(relation: Relation, clause: Sequence[_Item], of: int, places: Sequence[Phrase]) -> Relation:
    return "with" if relation == "in" and "who" in clause and places[of].noun.split()[-1] in _WEARABLE else relation


def _object(clause: Sequence[_Item], i: int) -> int | None:
    while i < len(clause) and clause[i] in _DETERMINERS:
        i += 1
    item = clause[i] if i < len(clause) else None
    return item if isinstance(item, int) else None


def _done_by(clause: Sequence[_Item], i: int, places: Sequence[Phrase]) -> tuple[int, Place] | None:
    """ "What is the man holding?": the agent is the phrase at i."""
    agent = int(clause[i])
    i += 1
    following = next((k for k in range(i, len(clause)) if isinstance(clause[k], int)), None)
    if (
        following is not None
        and following + 1 < len(clause)
        and _link([str(w) for w in clause[i:following]], definite=False)
    ):
        after = clause[following + 1]
        if isinstance(after, str) and (after in _DONE or _passes(after)):  # "the man in the red shirt holding"
            i = following + 1
    while i < len(clause) and clause[i] in _SKIPPED:
        i += 1
    if i == len(clause) or isinstance(clause[i], int):
        return None
    verb, of = str(clause[i]), places[agent]
    if verb in ("have", "has", "got"):
        nouns = {places[x].noun for x in clause[i + 1 :] if isinstance(x, int)}
        relation: Relation = "held" if nouns & _HANDS else "worn on head" if nouns & _HEAD else "with"
        return agent, Place(relation, of)
    j = i if _preposition(clause, i) else i + 1
    preposition = _preposition(clause, j)
    ends = preposition is not None and preposition[1] == len(clause)
    done = _DONE.get(verb)
    if done == "worn":
        on_head = any(places[x].noun in _HEAD for x in clause[j:] if isinstance(x, int))
        return agent, Place("worn on head" if on_head else "worn", of)
    if done:
        return agent, Place("used" if done == "eaten" and clause[j : j + 1] in (["from"], ["out"]) else done, of)
    if ends and preposition and (verb in _POSTURE or j == i or is_doing(verb)):
        return agent, Place(_OTHER_SIDE[preposition[0]], of)
    if is_doing(verb) and verb not in _POSTURE | _THOUGHT and i + 2 >= len(clause):  # "what is the woman knitting?"
        return agent, Place("used", of)
    return None


def _doing(clause: Sequence[_Item], i: int, places: Sequence[Phrase]) -> tuple[int, Place] | None:
    """ "Who is holding the umbrella?", "what is pulling the cart?": the answer is at the object."""
    if i >= len(clause) or not isinstance(clause[i], str):
        return None
    verb, j = str(clause[i]), i + 1
    if verb not in _HOLDS | _RIDES and verb not in _DONE:
        return None
    passive = verb in ("held", "worn", "ridden", "eaten", "carried", "used", "driven", "pulled", "pushed")
    if j < len(clause) and clause[j] in ("by", "with", "at", "from", "on", "in", "out", "up"):
        passive = passive and clause[j] == "by"
        j += 1
    of = _object(clause, j)
    if of is None:
        return None
    if passive:
        return of, Place(_DONE.get(verb, "used"), places[of])
    relation: Relation = "on" if verb in _RIDES else "with" if verb in _HOLDS else "beside"
    return of, Place(relation, places[of])


def _say(item: _Item, spans: Sequence[Span]) -> str:
    return item if isinstance(item, str) else spans[item].phrase
