"""A clip: its pictures by number, and the answers of `foveate.video.stream` for each frame, kept up to so many bytes.

A request for frames advances the stream for a moment and answers with the frames made; the page asks again for more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray
from pydantic import Field
from starlette.responses import Response

from foveate.allocation.allocation import ASKED_FOR, Keep, auto_budget
from foveate.allocation.policies import PolicyName
from foveate.allocation.worth import asked_share, mix_of
from foveate.core.errors import ImageNotFoundError, QueryError
from foveate.core.image import Picture
from foveate.encoders.load import resolve_encoder
from foveate.language.query import prepare
from foveate.video.decode import Mark, VideoClip, open_clip
from foveate.video.state import Frame
from foveate.video.streams import Stream, stream
from foveate.view.questions import QUESTIONS, describe_answer
from foveate.view.service import JPEG, MESSAGE, WHOLE, Asked, AskedImage, ImageId, Operation, Share, Text, kept_jpeg
from foveate.view.session import USUAL, ImageEntry, SessionEncoding, file_id, shown_name, to_jpeg
from foveate.view.wire import Message

# Chosen by hand.
LONG_SIDE = 1280  # pixels: larger pictures are scaled down to it
MOMENT = 0.2  # seconds that a request works on frames, at least one
MOST = 32  # frames in a message
RUNS = 4  # streams that can go on
AROUND = 24  # pictures before the one asked for that are kept on the way, for steps back
JPEGS = 128 * 2**20  # bytes of pictures kept
ANSWERS = 256 * 2**20  # bytes of answers kept
SENT, NEW, ASKED, EVEN = 1, 2, 4, 8  # bits of a cell: sent before, new; asked for; of the even spread
LAST = 99_999_999  # the highest number of a frame
Number = Annotated[int, Field(ge=0, le=LAST), *WHOLE]  # of a frame
POLICIES: Mapping[str, PolicyName | None] = {  # "worth" is the default choice
    "worth": None, "topk": "topk", "coverage": "coverage", "proportional": "proportional",
}  # fmt: skip
SUFFIXES = frozenset(
    ".mp4 .m4v .mov .mkv .webm .avi .mpg .mpeg .ts .m2ts .mts .wmv .flv .ogv .gif .apng .y4m .mjpeg .mjpg .3gp".split()
)


def is_clip(path: Path) -> bool:
    """Whether a path has the name of a video file; a folder of frames is a clip only with --clip."""
    return path.suffix.lower() in SUFFIXES and path.is_file()


class ClipPictures:
    """Pictures of a clip by number, decoded in order, from the last mark before one if that is nearer.
    `count`: None until the end was reached.
    """

    def __init__(self, path: Path) -> None:
        self.id = file_id(path)
        self.count: int | None = None
        self._path = path
        self._lock = threading.Lock()
        self._clip: VideoClip | None = None
        self._marks: dict[int, Mark] | None = {}  # None: places are not found again
        self._jpegs: LRUCache[int, bytes] = LRUCache(JPEGS, len)

    def open(self, number: int = 0) -> VideoClip:
        """The clip, at a picture before a number, or at it: the nearest from which it can be decoded."""
        clip = open_clip(self._path, long_side=LONG_SIDE)
        marks = self._marks  # another thread may find that places are not found again
        if marks is None:
            return clip
        clip.marks = marks
        if clip.jump(number):
            return clip
        self._marks = None
        return open_clip(self._path, long_side=LONG_SIDE)

    def describe(self) -> dict[str, Any]:
        """id; frames, as the file promises, or None; rate a second; longSide of its pictures."""
        with self.open() as clip:
            return {"id": self.id, "frames": clip.frames, "rate": clip.rate, "longSide": LONG_SIDE}

    def jpeg(self, number: int) -> bytes:
        """A picture as a JPEG. Raises ImageNotFoundError for a number after the last."""
        with self._lock:
            if number not in self._jpegs:
                self._read(number)
            return self._jpegs[number]

    def rgb(self, number: int) -> NDArray[np.uint8]:
        """A picture as it was decoded, uint8 [H, W, 3]. Raises ImageNotFoundError."""
        with self._lock:
            return self._read(number)

    def still(self, id: str) -> ImageEntry | None:
        """A picture as an image by itself, of the id clip[:16] and 8 digits; None for other ids."""
        start, number = id[:16], id[16:]
        if start != self.id[:16] or len(number) != 8 or not number.isdecimal():
            return None
        name = f"{shown_name(self._path.name)}, frame {int(number) + 1}"
        return ImageEntry(id, name, lambda: Picture(self.rgb(int(number)), None, name))

    def _read(self, number: int) -> NDArray[np.uint8]:
        clip, self._clip = self._clip, None  # one that fails on the way is not read again
        if clip is None or not clip.jump(number):
            clip = self.open(number)
        for picture in clip:
            if picture.index >= number - AROUND and picture.index not in self._jpegs:
                self._jpegs[picture.index] = to_jpeg(picture.rgb)
            if picture.index == number:
                self._clip = clip
                return picture.rgb
        self.count = clip.upcoming
        raise ImageNotFoundError(
            f"frame {number} of a clip of {self.count}",
            expected=f"a number from 0 to {self.count - 1}",
            fix="choose an earlier frame",
        )


class ClipQuestions(Asked):
    """What a run of a clip is about: questions, how cells are kept, and the number of its first frame."""

    questions: Annotated[tuple[Text, ...], Field(min_length=1, max_length=QUESTIONS)]
    budget: Annotated[int, Field(strict=True, ge=1), *WHOLE] | Literal["auto"] = "auto"
    policy: Literal["worth", "topk", "coverage", "proportional"] = "worth"
    floor: Share = 0.0
    start: Number = 0


class AskedFrames(ClipQuestions):
    """Frames of a clip, from a number on, for its questions."""

    id: ImageId
    frame: Number
    most: Annotated[int, Field(ge=1, le=MOST), *WHOLE] = MOST

    @property
    def run(self) -> ClipQuestions:
        return ClipQuestions(**self.model_dump(include=set(ClipQuestions.model_fields)))


class AskedPicture(AskedImage):
    number: Number


class ClipRun:
    """The stream of a clip for some questions: every frame once. One thread at a time, under its lock."""

    def __init__(self, clip: VideoClip, asked: ClipQuestions, encoding: SessionEncoding = USUAL) -> None:
        self.lock = threading.Lock()
        self.next, self.ended = clip.upcoming, False
        self._clip, self._first = clip, asked.start
        self._stream: Stream = stream(
            clip,
            askable(asked.questions, encoding),
            budget=asked.budget,
            keep=Keep(asked.floor, POLICIES[asked.policy]),
            encoder=encoding.encoder or "nano",
            words=encoding.words,
            **encoding.named,
        )

    def advance(self) -> Frame | None:
        """The next frame; None for those before the first that was asked for, and at the end."""
        source = self._clip if self.next < self._first else self._stream
        item = next(source, None)
        self.ended = item is None
        self.next += item is not None
        return item if isinstance(item, Frame) else None


def askable(questions: Sequence[str], encoding: SessionEncoding) -> tuple[str, ...]:
    """Those of several questions that can be asked; the page asks the others by themselves, and shows why not.

    Raises QueryError where none can.
    """
    network = resolve_encoder(encoding.encoder or "nano")
    encoder = network if encoding.words is None else encoding.words.of(network)
    found, refused = list[str](), list[QueryError]()
    for question in questions:
        try:
            found.append(prepare(encoder, question).text)
        except QueryError as error:
            refused.append(error)
    if refused and not found:
        raise refused[0]
    return tuple(found)


class ClipRuns:
    """Answers of a clip's stream, by questions and number of the frame."""

    def __init__(self, pictures: ClipPictures, encoding: SessionEncoding = USUAL) -> None:
        self._pictures, self._encoding = pictures, encoding
        self._lock = threading.Lock()
        self._runs: LRUCache[ClipQuestions, ClipRun] = LRUCache(RUNS)
        self._answers: LRUCache[tuple[ClipQuestions, int], Message] = LRUCache(
            ANSWERS, lambda message: 2000 + sum(array.nbytes for array in message[1].values())
        )

    def frames(self, asked: ClipQuestions, first: int, most: int = MOST) -> Message:
        """Frames from a number on: the known ones, and what can be made in MOMENT seconds; perhaps none.

        `reached`: the frame that the run makes next. `count`: of the clip, or None where the end was not reached.
        Raises QueryError, BudgetError.
        """
        run = self._run(asked)
        with run.lock:
            try:
                found = self._collect(run, asked, first, most)
            except BaseException:
                self._forget(asked)  # it is between two frames
                raise
            count = run.next if run.ended else None
        header = {"frames": [header for header, _ in found], "reached": run.next, "count": count}
        return header, {name: array for _, arrays in found for name, array in arrays.items()}

    def _collect(self, run: ClipRun, asked: ClipQuestions, first: int, most: int) -> list[Message]:
        until, found = time.monotonic() + MOMENT, list[Message]()
        while len(found) < most:
            number = first + len(found)
            answer = self._known(asked, number)
            if answer is not None:
                found.append(answer)
            elif (run.ended and number >= run.next) or time.monotonic() > until:
                break
            elif number < run.next:  # it was made, and is kept no longer
                self._forget(asked)
                break
            else:
                frame = run.advance()
                if frame is not None:
                    self._keep(asked, frame)
        return found

    def _run(self, asked: ClipQuestions) -> ClipRun:
        with self._lock:
            if asked not in self._runs:
                self._runs[asked] = ClipRun(self._pictures.open(asked.start), asked, self._encoding)
            return self._runs[asked]

    def _forget(self, asked: ClipQuestions) -> None:
        with self._lock:
            self._runs.pop(asked, None)

    def _known(self, asked: ClipQuestions, number: int) -> Message | None:
        with self._lock:
            return self._answers.get((asked, number))

    def _keep(self, asked: ClipQuestions, frame: Frame) -> None:
        with self._lock:
            self._answers[asked, frame.index] = describe_frame(frame)


def describe_frame(frame: Frame) -> Message:
    """A frame for the page: a header, and arrays [h, w] whose names begin with its number.

    N:map:I is the map of question I, float16; N:kept:I the bits SENT or NEW of a cell that is kept, EVEN of one that
    is for the even spread, ASKED of any that would be kept as asked for; N:belief is the confidence of the features in
    levels of 1/255.
    """
    answers: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for i, (relevance, kept, new) in enumerate(frame.answers):
        level = np.zeros(frame.grid.count, np.uint8)
        level[kept.indices] = SENT
        level[new] = NEW
        level[kept.indices[kept.reasons.get("floor", np.zeros(len(kept))) > 0]] |= EVEN
        asked = asked_share(relevance.map, relevance.saliency, mix_of(relevance)) >= ASKED_FOR
        arrays[f"{frame.index}:map:{i}"] = relevance.map.astype(np.float16)
        arrays[f"{frame.index}:kept:{i}"] = level.reshape(frame.grid.shape) | (ASKED * asked).astype(np.uint8)
        said = describe_answer(relevance, {"cells": auto_budget(relevance)})
        answers.append({**said, "kept": len(kept), "new": len(new)})
    arrays[f"{frame.index}:belief"] = np.round(255 * frame.confidence).astype(np.uint8)
    header = {
        "index": frame.index,
        "time": frame.time,
        "reason": frame.reason,
        "renewed": [list(map(int, box)) for box in frame.renewed],
        "belief": float(frame.confidence.mean()),
        "seconds": frame.seconds,
        "height": frame.grid.height,
        "width": frame.grid.width,
        "answers": answers,
    }
    return header, arrays


def clip_routes(pictures: ClipPictures, runs: ClipRuns) -> list[Operation]:
    """How many pictures there are as far as that is known, one of them, `ClipRuns.frames`."""

    def check(id: str) -> None:
        if id != pictures.id:
            raise ImageNotFoundError(
                "a clip that is not open", expected="the one that foveate view was given", fix="reload the page"
            )

    def about(asked: AskedImage) -> dict[str, Any]:
        check(asked.id)
        return {"id": pictures.id, "count": pictures.count}

    def picture(asked: AskedPicture) -> Response:
        check(asked.id)
        return kept_jpeg(pictures.jpeg(asked.number))

    def frames(asked: AskedFrames) -> Message:
        check(asked.id)
        return runs.frames(asked.run, asked.frame, asked.most)

    at = "/api/clips/{id}"
    return [
        Operation("GET", at, "A clip", about, AskedImage),
        Operation("GET", f"{at}/pictures/{{number}}", "A picture of a clip", picture, AskedPicture, JPEG),
        Operation("POST", f"{at}/frames", "Maps of frames", frames, AskedFrames, MESSAGE),
    ]
