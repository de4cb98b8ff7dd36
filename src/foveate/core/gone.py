"""What went in this release, and what to write instead: one table, which the next release empties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from foveate.core.errors import OptionError

P = ParamSpec("P")
R = TypeVar("R")

NAMES: dict[str, str] = {
    **{
        f"foveate.relevance.{name}": f"foveate.allocation.{name}"
        for name in (
            "Allocation", "allocate_map", "Coverage", "Policy", "Proportional", "Regions", "TopK",
            "regions",
        )
    },
    **{
        f"foveate.relevance.{name}": f"foveate.language.{name}"
        for name in ("Query", "channel_weights", "noun_phrases", "prepare")
    },
    "foveate.allocation.cascade": "foveate.score, which scores all cells in less time",
    "foveate.relevance.cascade": "foveate.score: all cells cost less than coarse ones first",
    **{
        f"foveate.vlm.{name}": f"training.judges.projector.model.{name}, in a clone"
        for name in ("TextureProjector", "TextureRows", "encode_texture")
    },
    "foveate.channels.Slic": "foveate.channels.KMeans, which covers things better",
    "foveate.channels.Seeds": "foveate.channels.KMeans, which covers things better",
}  # fmt: skip

ATTRIBUTES: dict[str, str] = {  # of classes
    "Store.to_pandas": "store.dataset.to_table(columns=['name', 'words']).to_pandas()",
    "Store.thumbnail": "store[name].thumbnail",
    "Store.content_key": "the id of a hit, or of an image of store.page(part=name)",
    "Store.work": "store.add(paths, engine=...), with an engine of your own (docs/scale.md)",
    "FittedBasis.from_pretrained": "FittedBasis.load(huggingface_hub.hf_hub_download(name, 'basis.safetensors'))",
    "FittedBasis.push_to_hub": "basis.save(path), and huggingface_hub.upload_file",
}

ENCODERS = {"nano-fast": "encode the image again with 'nano' and {long_side}: as fast, and better"}

_CHOOSING = ("policy", "floor", "protected", "window", "weights", "seed")
_SCORING = ("preset", "prior", "prior_weight", "fusion", "cues", "reading", "smoothing")
# Of a function: each keyword that it lost, and what to write instead.
KEYWORDS: dict[str, dict[str, str]] = {
    "encode": {
        "error": "rank=..., a number of 1 to the encoder's width",
        "compression": 'nothing in its place; for compression="full" write rank="full"',
        "value_range": "foveate.encode(foveate.load_image(array, value_range=(0, 1)))",
        "segments": "channels=Channels(segments=...), from foveate.channels",
        "text": 'read="rapidocr" for the words and their boxes; the channel "text" is made by the built-in finder',
        "depth": "channels=Channels(depth=...), from foveate.channels",
    },
    "stream": {
        **{name: f"keep=Keep({name}=...), from foveate.allocation" for name in ("floor", "policy", "window")},
        **{
            name: f"propagation=Propagation({name}=...), from foveate.video"
            for name in (
                "flow", "refresh", "blend", "smoothing", "hysteresis", "changed", "read_every", "prior_weight",
            )
        },
        "size": "stream(open_clip(source, long_side=...), ...)",
        "rate": "stream(open_clip(source, rate=...), ...)",
    },
    "chat": {"follow": "nothing in its place: the history answers more of the questions that refer back"},
    "make_attention_plane": {"scale": "(plane - plane.min()) / np.ptp(plane), as scale='minmax' did"},
    "score": {
        "channels": "channel_weights={'saliency': 0.3}",
        "weights": "fusion=foveate.relevance.Linear(weights=ScorerWeights(...))",
    },
    "refine": {"steps": "a larger share, or refine(texture) for the whole image"},
    "prepare": {
        "looking_for": 'relevance="the dog"',
        "channels": "scoring=ScoringOptions(channel_weights=...), from foveate.relevance",
        **{name: f"choosing=Choosing({name}=...), from foveate.vlm" for name in _CHOOSING},
        **{name: f"scoring=ScoringOptions({name}=...), from foveate.relevance" for name in _SCORING},
    },
}  # fmt: skip


COMMANDS: dict[str, str] = {  # commands, and their options, with what to write instead
    "ask --prior": "in Python vlm.ask(..., scoring=ScoringOptions(prior=...)), from foveate.relevance",
    "ask --fusion": "in Python vlm.ask(..., scoring=ScoringOptions(fusion=...)), from foveate.relevance",
    "basis fit --pca": "python -m benchmarks compression, in a clone, which has PCA beside ours",
    "basis fit --shard": "foveate basis fit --most 2000: it needs no more images",
    "basis fit --engine": "foveate basis fit --most 2000: it needs no more images",
    "basis fit --seed": "foveate basis fit without it: cells are taken evenly",
    "basis fit --gpus": "foveate basis fit --most 2000: it needs no more images",
    "basis fit --address": "foveate basis fit --most 2000: it needs no more images",
    "basis merge": "foveate basis fit --most 2000: it needs no more images",
    "channels --list": "docs/channels.md, which has the list",
    "index --shard": "the same command on every machine, into one store",
    "index --like": "the same command on every machine, into one store",
    "store ann": "foveate search as ever: a large store has its index by itself",
    "store merge": "foveate index FOLDER -o STORE, as often as you like, also at the same time",
    "store verify --repair": "foveate store remove, and index the images again; or foveate store restore",
    "doctor --encoder": "foveate doctor --words WORD, which asks nano: no other encoder has a list of words",
}


LIMITS: dict[str, str] = {  # of `basis check --limit`
    "retrieval": "neighbours=0.8, of images in the place of cells",
    "bound": "error=0.7: what is left out, of all",
    "largest": "nothing in its place: 'foveate basis fit' says what the first direction keeps",
}


def find_command(words: Sequence[str]) -> str:
    """What to write instead of a command line that names what went, or nothing."""
    given = [word.partition("=")[0] for word in words]
    for line, instead in COMMANDS.items():
        command, *option = line.split(" --")
        parts = command.split()
        if given[: len(parts)] == parts and all(f"--{name}" in given for name in option):
            return instead
    return ""


def gone_from(room: str) -> Callable[[str], Any]:
    """The `__getattr__` of a room's `__init__`: an ImportError that says where a name of the table went."""

    def find(name: str) -> Any:
        # no AttributeError: `from room import name` would replace its text
        text = f"module {room!r} has no attribute {name!r}"
        if instead := NAMES.get(f"{room}.{name}"):
            raise ImportError(f"{text} any more; use {instead}")
        raise AttributeError(text)

    return find


class _Gone:
    """An attribute that is none: hasattr is False, and asking says what to write instead."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(self._text)


def with_gone(kind: type[R]) -> type[R]:
    """A decorator of a class: its attributes that went say what to write instead."""
    for line, instead in ATTRIBUTES.items():
        owner, _, name = line.partition(".")
        if owner == kind.__name__:
            setattr(kind, name, _Gone(f"{owner!r} has no attribute {name!r} any more; write {instead}"))
    return kind


def check_kept(function: str, keywords: Iterable[str]) -> None:
    """Raises OptionError for a keyword that a function lost, with what to write instead."""
    gone = KEYWORDS.get(function, {})
    for name in keywords:
        if name in gone:
            raise OptionError(
                f"{function}({name}=...)",
                expected=f"no {name}: {function} does not take it any more",
                fix=f"write {gone[name]}",
            )


def without(function: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: keywords that a function lost raise OptionError with what to write instead."""

    def wrap(call: Callable[P, R]) -> Callable[P, R]:
        @wraps(call)
        def checked(*args: P.args, **how: P.kwargs) -> R:
            check_kept(function, how)
            return call(*args, **how)

        return checked

    return wrap
