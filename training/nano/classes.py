"""The classifier's words: labels of ImageNet and WordNet -> encoders/assets/nano_classes.tsv. Made once, and frozen.

    python -m training.nano.classes --data DATA --wordnet /usr/share/wordnet      # Debian's package wordnet-base

A line for each of the 1,000 classes, in the order of their planes: its words, with commas between. Then a line for each
group of classes: its words, a tab, the numbers of its classes ("reptile": 34 kinds of turtles, lizards and snakes).

A class is the synset with the words of its label; of several the one that keeps classes in the order of their synsets,
as ImageNet has them. A word of a group counts where it is the word's first sense: WordNet's "head" is also a person.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

LABELS = "teachers/imagenet_labels.txt"
# Words above which WordNet's classes say what things are made or good for, not what they look like.
ABSTRACT = frozenset(
    """abstraction agency amphibian_genus anomaly apparatus arrangement artefact artifact assembly assets asset attire
    attribute barrier being body bound caller cause cavity chattel chemical commodity communicator component
    concavity concept conductor conveyance consequence construction consumer contrivance covering cover creation
    decoration depression device domain durables dweller enclosure entity entertainer equipment extremity facility
    fastener fastening fixture force formation function garb geological_formation goods good group holding implement
    impediment individual inhabitant instrument instrumentality instrumentation item job leisure line location matter
    means measure mechanism medium mortal natural_object nature nutriment object obstruction opening organism part
    passage passageway people percept performer person physical_entity place piece portion possession prey predator
    predatory_animal product production property protection protective_covering protective_cover quarry quantity
    relation representation restraint result seat_of_power sheet shape shelter solid somebody someone something soul
    source spot stick stuff structure substance support surface system thing top transport unit utensil victim
    whole work worker workplace young tract piece_of_land parcel geographical_area region area land holder aid safety
    assistant control game_equipment game bar block strip section fabric material cloth connection lining padding signal
    sign mark symbol tableware ware supporter creature beast brute fauna living_thing animate_being
    attachment guard guide hole housing platform frame framework movement puller tool toiletry turner pad screen stand
    strengthener""".split()
)


class Synset(NamedTuple):
    words: tuple[str, ...]
    above: tuple[str, ...]  # synsets of which it is a kind


def read_synsets(folder: Path) -> dict[str, Synset]:
    """Nouns of WordNet's database (wndb(5WN)) by their offsets."""
    out = {}
    for line in (folder / "data.noun").read_text("latin-1").splitlines():
        if line.startswith(" "):
            continue  # the licence
        offset, _, _, count, *rest = line.partition("|")[0].split()
        words = tuple(rest[2 * i] for i in range(int(count, 16)))
        pointers = rest[2 * len(words) + 1 :]
        kinds = zip(*(iter(pointers),) * 4, strict=True)
        out[offset] = Synset(words, tuple(to for symbol, to, part, _ in kinds if symbol in "@i" and part == "n"))
    return out


def read_first_senses(folder: Path) -> dict[str, str]:
    """The commonest noun sense of each word, as a synset's offset."""
    lines = (folder / "index.noun").read_text("latin-1").splitlines()
    entries = (line.split() for line in lines if not line.startswith(" "))
    return {word: rest[-int(rest[1])] for word, *rest in entries}


def find_classes(labels: Sequence[str], synsets: dict[str, Synset]) -> list[str]:
    """The synset of each label. Raises SystemExit for a label that none has."""
    by_words: dict[tuple[str, ...], list[str]] = {}
    for offset, synset in synsets.items():
        by_words.setdefault(tuple(map(str.lower, synset.words)), []).append(offset)
    found = [by_words.get(tuple(label.lower().replace(" ", "_").split(",_")), []) for label in labels]
    if missing := [label for label, some in zip(labels, found, strict=True) if not some]:
        raise SystemExit(f"no synset of WordNet has the words of {missing[:5]}")
    out: list[str] = []
    sure = [some[0] if len(some) == 1 else "" for some in found]
    for i, some in enumerate(found):
        before = out[-1] if out else ""
        after = next((each for each in sure[i + 1 :] if each), "99999999")
        out.append(next((each for each in some if before < each < after), some[0]))
    return out


def above(offset: str, synsets: dict[str, Synset]) -> Iterator[str]:
    for other in synsets[offset].above:
        yield other
        yield from above(other, synsets)


def table(labels: Sequence[str], folder: Path) -> list[str]:
    """Lines of the file."""
    synsets, first = read_synsets(folder), read_first_senses(folder)
    classes = find_classes(labels, synsets)
    members: dict[str, set[int]] = {}
    for number, offset in enumerate(classes):
        for group in above(offset, synsets):
            members.setdefault(group, set()).add(number)
    lines = [label.lower() for label in labels]
    for offset, below in sorted(members.items()):
        words = [
            word.lower().replace("_", " ")
            for word in synsets[offset].words
            if word.lower() not in ABSTRACT and first.get(word.lower()) == offset
        ]
        if words and offset not in classes:
            lines.append(f"{', '.join(words)}\t{' '.join(map(str, sorted(below)))}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--wordnet", type=Path, default=Path("/usr/share/wordnet"), help="[default: %(default)s]")
    parser.add_argument("--assets", type=Path, default=Path("src/foveate/encoders/assets"))
    args = parser.parse_args()
    labels = (args.data / LABELS).read_text("utf-8").splitlines()[1:]  # the first is the background
    lines = table(labels, args.wordnet)
    (args.assets / "nano_classes.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    words = {word for line in lines for word in line.partition("\t")[0].split(", ")}
    print(f"{len(labels)} classes, {len(lines) - len(labels)} groups, {len(words)} words")


if __name__ == "__main__":
    main()
