"""A clip: its pictures by number, and what `foveate.video.stream` says of each for the questions of the page.

Nothing runs by itself. A request for frames takes the stream on for a moment and answers with what came of it; the
page asks again for as long as it wants more. So a run that nobody asks for any more has stopped, and waits until newer
ones take its place. Pictures and answers are kept up to a number of bytes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from anyio import to_thread
from cachetools import LRUCache
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from foveate.allocation.allocation import Keep, auto_budget
from foveate.allocation.policies import Coverage, Policy, Proportional, TopK
from foveate.core.checks import check_choice, check_int, check_number
from foveate.core.errors import ImageNotFoundError, QueryError
from foveate.core.image import Picture
from foveate.video.decode import VideoClip, open_clip
from foveate.video.state import Frame
from foveate.video.streams import Stream, stream
from foveate.view.encoding import USUAL, SessionEncoding
from foveate.view.files import shown_name
from foveate.view.images import to_jpeg
from foveate.view.pictures import ImageEntry, file_id
from foveate.view.questions import describe_answer
from foveate.view.reply import packed, read_body

LONG_SIDE = 1280  # pixels: larger pictures are scaled down to it
MOMENT = 0.2  # seconds that a request works on frames, at least one
MOST = 32  # frames in a message
RUNS = 4  # streams that can go on
AROUND = 24  # pictures before the one asked for that are kept on the way, for steps back
JPEGS = 128 * 2**20  # bytes of pictures kept
ANSWERS = 256 * 2**20  # bytes of answers kept
QUESTIONS = 6
LAST = 99_999_999  # the highest number of a frame
POLICIES: Mapping[str, Policy] = {"topk": TopK(), "coverage": Coverage(), "proportional": Proportional()}
SUFFIXES = frozenset(
    ".mp4 .m4v .mov .mkv .webm .avi .mpg .mpeg .ts .m2ts .mts .wmv .flv .ogv .gif .apng .y4m .mjpeg .mjpg .3gp".split()
)

Message: TypeAlias = "tuple[dict[str, Any], dict[str, NDArray[Any]]]"


def is_clip(path: Path) -> bool:
    """Whether a path is named as a video file is. A folder of frames is a clip only where somebody says so."""
    return path.suffix.lower() in SUFFIXES and path.is_file()


class ClipPictures:
    """Pictures of a clip by number. They are decoded in their order; to go back is to begin anew.

    Attributes:
        id: of the clip, 24 hexadecimal digits.
        count: pictures in the clip; None until the end was reached.
    """

    def __init__(self, path: Path) -> None:
        self.id = file_id(path)
        self.count: int | None = None
        self._path = path
        self._lock = threading.Lock()
        self._clip: VideoClip | None = None
        self._next = 0
        self._jpegs: LRUCache[int, bytes] = LRUCache(JPEGS, len)

    def open(self) -> VideoClip:
        """The clip from its beginning."""
        return open_clip(self._path, long_side=LONG_SIDE)

    def describe(self) -> dict[str, Any]:
        """What the page is told: id; frames, as the file promises, or None; rate a second; longSide of its pictures."""
        with self.open() as clip:
            return {"id": self.id, "frames": clip.frames, "rate": clip.rate, "longSide": LONG_SIDE}

    def jpeg(self, number: int) -> bytes:
        """A picture as a JPEG. Raises ImageNotFoundError behind the last."""
        with self._lock:
            if number not in self._jpegs:
                self._read(number)
            return self._jpegs[number]

    def rgb(self, number: int) -> NDArray[np.uint8]:
        """A picture as it was decoded, uint8 [H, W, 3]. Raises ImageNotFoundError behind the last."""
        with self._lock:
            return self._read(number)

    def still(self, id: str) -> ImageEntry | None:
        """A picture as an image by itself (`frame_id`); None for other ids."""
        start, number = id[:16], id[16:]
        if start != self.id[:16] or len(number) != 8 or not number.isdecimal():
            return None
        name = f"{shown_name(self._path.name)}, frame {int(number) + 1}"
        return ImageEntry(id, name, lambda: Picture(self.rgb(int(number)), None, name))

    def _read(self, number: int) -> NDArray[np.uint8]:
        if self._clip is None or number < self._next:
            self._clip, self._next = self.open(), 0
        for picture in self._clip:
            self._next = picture.index + 1
            if picture.index >= number - AROUND and picture.index not in self._jpegs:
                self._jpegs[picture.index] = to_jpeg(picture.rgb)
            if picture.index == number:
                return picture.rgb
        self.count, self._clip = self._next, None
        raise ImageNotFoundError(
            f"frame {number} of a clip of {self.count}",
            expected=f"a number from 0 to {self.count - 1}",
            fix="choose an earlier frame",
        )


def frame_id(clip: str, number: int) -> str:
    """The id of a picture of a clip as an image."""
    return f"{clip[:16]}{number:08d}"


@dataclass(frozen=True)
class ClipQuestions:
    """What a run of a clip is about: questions, how cells are kept, and the number of its first frame."""

    questions: tuple[str, ...]
    budget: int | str = "auto"
    policy: str = "topk"
    floor: float = 0.0
    start: int = 0

    @staticmethod
    def of(body: Mapping[str, Any]) -> ClipQuestions:
        """From the body of a request, which has a list of questions. Raises OptionError and QueryError."""
        questions = body["questions"]
        if not 1 <= len(questions) <= QUESTIONS or not all(isinstance(text, str) for text in questions):
            fix = "send the texts of the questions"
            raise QueryError(f"{len(questions)} questions", expected=f"1 to {QUESTIONS} texts", fix=fix)
        budget = body.get("budget", "auto")
        return ClipQuestions(
            tuple(questions),
            budget if budget == "auto" else check_int("budget", budget, fix='send a number or "auto"'),
            check_choice("policy", body.get("policy", "topk"), list(POLICIES)),
            check_number("floor", body.get("floor", 0.0), fix="send a share"),
            check_int("start", body.get("start", 0), 0, LAST),
        )


class ClipRun:
    """The stream of a clip for some questions: every frame once. One thread at a time, under its lock.

    Attributes:
        next: number of the frame that comes next.
        ended: whether there is none.
    """

    def __init__(self, clip: VideoClip, asked: ClipQuestions, encoding: SessionEncoding = USUAL) -> None:
        self.lock = threading.Lock()
        self.next, self.ended = 0, False
        self._clip, self._first = clip, asked.start
        self._stream: Stream = stream(
            clip,
            asked.questions,
            budget=asked.budget,  # type: ignore[arg-type]
            keep=Keep(asked.floor, POLICIES[asked.policy]),
            encoder=encoding.encoder or "nano",
            **encoding.named,
        )

    def advance(self) -> Frame | None:
        """The next frame; None for those before the first that was asked for, and at the end."""
        source = self._clip if self.next < self._first else self._stream
        item = next(source, None)
        self.ended = item is None
        self.next += item is not None
        return item if isinstance(item, Frame) else None


class ClipRuns:
    """Answers of a clip's stream, by questions and number of the frame."""

    def __init__(self, pictures: ClipPictures, encoding: SessionEncoding = USUAL) -> None:
        self._pictures, self._encoding = pictures, encoding
        self._lock = threading.Lock()
        self._runs: LRUCache[ClipQuestions, ClipRun] = LRUCache(RUNS)
        self._answers: LRUCache[tuple[ClipQuestions, int], Message] = LRUCache(ANSWERS, _count_bytes)

    def frames(self, asked: ClipQuestions, first: int, most: int = MOST) -> Message:
        """Frames from a number on: those that are known, and else what can be made in a moment. May be none yet.

        Header: frames, a list (`describe_frame`); reached, the number of the frame that the run makes next; count, how
        many the clip has, or None where the end was not reached. Raises QueryError, BudgetError.
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
                self._runs[asked] = ClipRun(self._pictures.open(), asked, self._encoding)
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

    N:map:I is the map of question I, float16; N:kept:I 0 for a cell that is not kept, 1 for one that is and was sent
    before, 2 for one that is new; N:saliency; N:belief is the confidence of the features in levels of 1/255.
    """
    answers: list[dict[str, Any]] = []
    arrays: dict[str, NDArray[Any]] = {}
    for i, (relevance, kept, new) in enumerate(frame.answers):
        level = np.zeros(frame.grid.count, np.uint8)
        level[kept.indices] = 1
        level[new] = 2
        arrays[f"{frame.index}:map:{i}"] = relevance.map.astype(np.float16)
        arrays[f"{frame.index}:kept:{i}"] = level.reshape(frame.grid.shape)
        said = describe_answer(relevance, {"cells": auto_budget(relevance)})
        answers.append({**said, "kept": len(kept), "new": len(new)})
    arrays[f"{frame.index}:saliency"] = frame.answers[0][0].saliency.astype(np.float16)
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


def _count_bytes(message: Message) -> int:
    return 2000 + sum(array.nbytes for array in message[1].values())


def clip_routes(pictures: ClipPictures, runs: ClipRuns) -> list[Route]:
    """GET /api/clips/{id}, how many pictures there are as far as that is known, and /api/clips/{id}/pictures/{number};
    POST /api/clips/{id}/frames of {"questions", "budget", "policy", "floor", "start", "frame", "most"} ->
    `ClipRuns.frames`."""

    def check(request: Request) -> None:
        if request.path_params["id"] != pictures.id:
            raise ImageNotFoundError(
                "a clip that is not open", expected="the one that foveate view was given", fix="reload the page"
            )

    async def about(request: Request) -> Response:
        check(request)
        return JSONResponse({"id": pictures.id, "count": pictures.count})

    async def picture(request: Request) -> Response:
        check(request)
        number = request.path_params["number"]
        check_int("number", number, 0, LAST)
        content = await to_thread.run_sync(pictures.jpeg, number)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    async def frames(request: Request) -> Response:
        check(request)
        body = await read_body(request, questions=list, frame=int)
        first, most = check_int("frame", body["frame"], 0, LAST), check_int("most", body.get("most", MOST), 1, MOST)
        return packed(*await to_thread.run_sync(runs.frames, ClipQuestions.of(body), first, most))

    return [
        Route("/api/clips/{id}", about),
        Route("/api/clips/{id}/pictures/{number:int}", picture),
        Route("/api/clips/{id}/frames", frames, methods=["POST"]),
    ]
