"""Does a vision-language model answer as well with what a rule keeps? Every rule, on questions with answers.

Questions come from a folder with questions.jsonl, or from a public set by its name, through the package `datasets`.
Each is asked with all tokens once, and with 6, 12, 25 and 50 % of them by every rule. The scores of a question are a
line of answers.jsonl, so a run that was killed goes on where it was.
"""

from __future__ import annotations

import json
import string
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from foveate.allocation.policies import PolicyName
from foveate.cli.evaluate.agreement import circumstances, mean_estimate
from foveate.cli.evaluate.coco import open_images
from foveate.cli.evaluate.policies import SHARES, Judged, table
from foveate.core.checks import check_choice
from foveate.core.errors import MissingExtraError, OptionError
from foveate.core.files import write_whole
from foveate.vlm.encoded import Answer, EncodedImage, Prepared
from foveate.vlm.loader import libraries
from foveate.vlm.model import VLM
from foveate.vlm.select.choice import Choosing
from foveate.vlm.select.methods import Method

RULES: dict[str, tuple[Method, PolicyName | None]] = {
    "default": ("relevance", None),
    "topk": ("relevance", "topk"),
    "coverage": ("relevance", "coverage"),
    "dpp": ("dpp", None),  # of the model's own features, as the next
    "maxmin": ("maxmin", None),
    "saliency": ("saliency", None),
    "uniform": ("uniform", None),
    "random": ("random", None),
}
SHORT = "\nAnswer the question using a single word or phrase."  # as lmms-eval asks
AGREED = 4  # answers, of which vqa can be 1
FIRST = 3  # questions after which the hours are known; the first of them warms up
Scores = dict[str, list[float]]


class Answered(NamedTuple):
    """A question with its answers. image: its name, and `load` something that `VLM.see` takes."""

    image: str
    load: Callable[[], Any]
    text: str
    answers: tuple[str, ...]
    metric: str


class Public(NamedTuple):
    """A set on the Hub: its repository, configuration, split with so many questions, and metric; `images`: the
    configuration that has its images.
    """

    repository: str
    config: str | None
    split: str
    many: int
    metric: str
    images: str | None = None


PUBLIC = {
    "textvqa": Public("lmms-lab/textvqa", None, "validation", 5000, "vqa"),
    "gqa": Public(
        "lmms-lab/GQA", "testdev_balanced_instructions", "testdev", 12578, "exact", "testdev_balanced_images"
    ),
    "docvqa": Public("lmms-lab/DocVQA", "DocVQA", "validation", 5349, "anls"),
}


def exact(said: str, answers: Sequence[str]) -> float:
    """1 where an answer is one of these, but for case, punctuation and articles."""
    return float(_plain(said) in map(_plain, answers))


def vqa(said: str, answers: Sequence[str]) -> float:
    """VQA's accuracy: a third for each of the others who says so, at most 1, over all choices of the others.

    Its lists of contractions and numerals are left out.
    """
    same = [_plain(said) == _plain(answer) for answer in answers]
    return float(np.mean([min(1, (sum(same) - own) / 3) for own in same]))


def anls(said: str, answers: Sequence[str]) -> float:
    """DocVQA's: 1 less the edits for each character of the longer one, 0 below a half; of the best answer."""
    alike = (Levenshtein.normalized_similarity(*(" ".join(t.lower().split()) for t in (said, a))) for a in answers)
    return float(max(value if value >= 0.5 else 0.0 for value in alike))


METRICS: dict[str, Callable[[str, Sequence[str]], float]] = {"exact": exact, "vqa": vqa, "anls": anls}


def _plain(text: str) -> str:
    words = text.lower().translate(str.maketrans("", "", string.punctuation)).split()
    return " ".join(word for word in words if word not in ("a", "an", "the"))


def read_items(data: str) -> Iterator[Answered]:
    """Of a folder, or of one of PUBLIC. Raises OptionError, MissingExtraError."""
    return _of_folder(Path(data)) if (source := _public(data)) is None else _of_hub(source)


def count_items(data: str) -> int:
    return len(_questions(Path(data))) if (source := _public(data)) is None else source.many


def _public(data: str) -> Public | None:
    return None if Path(data).is_dir() else PUBLIC.get(data)


def _questions(folder: Path) -> list[str]:
    file = folder / "questions.jsonl"
    try:
        return file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise _wrong(f"'{file}' ({cause})") from None


def _of_folder(folder: Path) -> Iterator[Answered]:
    file, lines = folder / "questions.jsonl", _questions(folder)
    with open_images(folder) as read:
        for number, line in enumerate(lines, 1):
            try:
                entry = json.loads(line)
                image, text, answers = str(entry["image"]), str(entry["question"]), tuple(map(str, entry["answers"]))
                metric = check_choice("metric", entry.get("metric", "exact"), tuple(METRICS))
            except (ValueError, KeyError, TypeError) as cause:
                raise _wrong(f"'{file}', line {number}: {type(cause).__name__} {str(cause)[:100]}") from None
            if not answers or not text.strip():
                raise _wrong(f"'{file}', line {number}: no {'answer' if text.strip() else 'question'}")
            if metric == "vqa" and len(answers) < AGREED:
                raise _wrong(
                    f"'{file}', line {number}: {len(answers)} answers for vqa, where {AGREED} make a whole point"
                )
            yield Answered(image, lambda image=image: read(image), text, answers, metric)  # type: ignore[misc]


def _wrong(what: str) -> OptionError:
    return OptionError(
        what,
        expected='lines like {"image": "a.jpg", "question": "what is it?", "answers": ["a cup"]}, images beside them',
        fix=f"see docs/evaluate.md; or --data {', '.join(PUBLIC)}",
    )


def _of_hub(source: Public) -> Iterator[Answered]:
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtraError(
            f"--data {source.repository} without the package datasets",
            expected="pip install datasets, and the Hub in reach",
            fix="install it, or pass a folder with questions.jsonl (docs/evaluate.md)",
        ) from None

    def rows(config: str | None) -> Any:
        return load_dataset(source.repository, config, split=source.split, streaming=True)

    images = {str(row["id"]): row["image"] for row in rows(source.images)} if source.images else {}
    for number, row in enumerate(rows(source.config)):
        name = str(row.get("imageId", row.get("image_id", row.get("docId", number))))
        picture = images[name] if images else row["image"]
        answers = row["answers"] if "answers" in row else [row["answer"]]
        text = row["question"]
        yield Answered(name, lambda picture=picture: picture.convert("RGB"), text, tuple(answers), source.metric)  # type: ignore[misc]


def measure(
    vlm: VLM,
    data: str,
    known: dict[str, Any],
    out: Path,
    limit: int,
    say: Callable[[str], None],
    progress: Callable[[int], None] = lambda done: None,
    *,
    read: bool = False,
    new: int = 16,
) -> dict[str, Any]:
    """-> report. Goes on with OUT/answers.jsonl, of which `known` must be the first line.

    limit: questions, from the first; not more than there are. say: told the hours, once they are known. new: tokens of
    an answer, at most.
    """
    file, scores, images = out / "answers.jsonl", list[Scores](), list[str]()
    there, seen = _lines(file, known), None
    start, fresh = 0.0, 0
    for number, item in enumerate(islice(read_items(data), limit)):
        images.append(item.image)
        if number < len(there):
            if (there[number]["image"], there[number]["question"]) != (item.image, item.text):
                raise _other(file, f"line {number + 2} is of another question than the data")
            scores.append(there[number]["scores"])
            continue
        if seen is None or seen[0] != item.image:
            seen = item.image, vlm.see(item.load(), read=read)
        found, said = _ask(vlm, seen[1], item, number, new)
        scores.append(found)
        with file.open("a", encoding="utf-8") as lines:
            line = {"image": item.image, "question": item.text, "scores": found, "said": said}
            lines.write(json.dumps(line) + "\n")
        fresh += 1
        if fresh == 1:
            start = time.perf_counter()
        elif fresh == FIRST:
            each = (time.perf_counter() - start) / (FIRST - 1)
            left = limit - number - 1
            say(f"{each:.1f} s a question: {each * left / 3600:.2f} hours for {left} more; if killed, it goes on")
        progress(number + 1)
    if not scores:
        raise _wrong(f"'{data}' holds no question")
    judged = Judged(
        [data if data in PUBLIC else Path(data).name] * len(scores),
        images,
        {rule: np.array([each[rule] for each in scores]) for rule in RULES},
    )
    every = mean_estimate([each["all"][0] for each in scores], np.unique(images, return_inverse=True)[1].tolist())
    title = f"{type(vlm.model).__name__}, score of its answers (all tokens: {every})"
    return {**table(judged, title), "all": every.record(), **known, "questions": len(scores), **circumstances()}


def _lines(file: Path, known: dict[str, Any]) -> list[dict[str, Any]]:
    """What was done, line by line; a line that was cut off goes."""
    head = json.dumps(known)
    lines = file.read_text("utf-8").splitlines(keepends=True) if file.is_file() else []
    whole = [line for line in lines if line.endswith("\n")]
    if whole and whole[0] != head + "\n":
        raise _other(file, f"it is of another run: {whole[0].strip()[:200]}")
    write_whole(file, "".join(whole or [head + "\n"]).encode())
    return [json.loads(line) for line in whole[1:]]


def _other(file: Path, why: str) -> OptionError:
    return OptionError(f"'{file}': {why}", expected="the same model, data and options", fix="name another --out")


def _ask(vlm: VLM, encoded: EncodedImage, item: Answered, seed: int, new: int) -> tuple[Scores, dict[str, list[str]]]:
    """Scores and answers of each rule at each of SHARES, and with all tokens."""
    generation, metric = {"max_new_tokens": new}, METRICS[item.metric]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a question that names nothing says so once for each rule

        def prepare(budget: Any, method: Method = "relevance", policy: PolicyName | None = None) -> Prepared:
            choosing = Choosing(policy=policy, seed=seed)
            text = item.text + SHORT
            return vlm.prepare(encoded, text, relevance=item.text, budget=budget, method=method, choosing=choosing)

        said = {"all": [vlm.answers([prepare(None)], generation)[0].text]} | {rule: [] for rule in RULES}
        for share in SHARES:
            budget = tuple(max(1, round(share * count)) for count in encoded.tokens)
            made = [prepare(budget, *how) for how in RULES.values()]
            for rule, answer in zip(RULES, _answers(vlm, made, generation), strict=True):
                said[rule].append(answer.text)
    return {rule: [metric(text, item.answers) for text in texts] for rule, texts in said.items()}, said


def _answers(vlm: VLM, made: Sequence[Prepared], generation: dict[str, Any]) -> list[Answer]:
    """In one batch, all of as many tokens; one after the other where that does not fit in memory."""
    try:
        return vlm.answers(made, generation)
    except libraries()[0].OutOfMemoryError:
        return [vlm.answers([one], generation)[0] for one in made]
