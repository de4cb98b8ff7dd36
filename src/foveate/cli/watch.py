"""Follow questions through a clip, and write down what was kept: a video for people, a line of JSON for each frame.

This is what `foveate video` does; floor 6, so it may know files and pictures.

What is notable
* Both files grow frame by frame: a line is written after its picture. However it ends, they differ by one frame at
  most, and only after a kill or where the disk was full.
* What is there already stays until the new one is complete, as `ClipWriter` says; so does FILE.jsonl. A run that was
  interrupted, or failed on the way, is not complete: what it wrote stays beside the earlier results, and is named.
* Nothing is made before the first frame has been answered, so a bad question, budget or clip leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import tempfile
import time
from array import array
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from foveate.core.errors import FoveateError, OptionError, OutputError
from foveate.relevance.allocate import Allocation
from foveate.relevance.value import Relevance
from foveate.video.export import TICKS, ClipWriter
from foveate.video.frame import Frame
from foveate.video.stream import Stream
from foveate.viz.overlay import Layout, Strip, drawn

RATE = 24.0  # pictures a second, where a clip does not say
VIDEO, LINES = (".mp4", ".mkv"), ".jsonl"


@dataclass(frozen=True)
class Places:
    """Where the results go. Without a video there are only lines."""

    lines: Path
    video: Path | None = None

    def __str__(self) -> str:
        return " and ".join(f"'{path}'" for path in (self.video, self.lines) if path is not None)


def places(clip: str, out: Path | None, video: bool = True) -> Places:
    """Where the results of a clip go, checked before any work: `CLIP_kept.mp4` and `CLIP_kept.jsonl` if not said.

    Raises OutputError: another suffix, no such folder, no right to write there, a folder in its place, the clip itself.
    """
    out = _usual(clip) if out is None else out
    known = VIDEO if video else (*VIDEO, LINES)
    if out.suffix.lower() not in known:
        better = (out / _usual(clip) if out.is_dir() else out).with_suffix(VIDEO[0] if video else LINES)
        raise OutputError(
            f"--out {out}",
            expected=f"a name that ends in {' or '.join(known)}; the lines of JSON go beside it",
            fix=f"write --out {shlex.quote(str(better))}"
            + (", or add --no-video for the lines alone" if video else ""),
        )
    found = Places(out.with_suffix(LINES), out if video else None)
    for path in (*([out] if video else []), found.lines):
        _check(path, clip)
    return found


def _usual(clip: str) -> Path:
    return Path(f"{Path(clip).resolve().stem.replace(':', '-')}_kept.mp4")


def _check(path: Path, clip: str) -> None:
    try:
        if path.exists() and os.path.exists(clip) and path.samefile(clip):
            raise OutputError(
                f"'{path}' is the clip itself", expected="another file", fix="choose another name with --out"
            )
        if path.is_dir():
            raise IsADirectoryError("that is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (OSError, ValueError) as cause:
        if isinstance(cause, OutputError):
            raise
        raise OutputError(
            f"'{path}' cannot be written ({getattr(cause, 'strerror', None) or cause})",
            expected="the name of a file in a folder that exists and can be written to",
            fix="make the folder first, or choose another place with --out",
        ) from cause


class Lines(AbstractContextManager["Lines"]):
    """JSON objects, one a line, each on its way to the disk before the next. Raises OutputError.

    Attributes:
        place: where the lines are now, as of a ClipWriter; None where there is no file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        beside = path.with_name(f"{path.stem}.{secrets.token_hex(4)}.part{path.suffix}")
        self._part = beside if os.path.lexists(path) else path
        self.place: Path | None = self._part
        try:
            self._file = self._part.open("xb", buffering=0)
        except OSError as cause:
            raise self._failed(cause) from cause

    def write(self, values: dict[str, Any]) -> None:
        """Add one object."""
        rest = memoryview(json.dumps(values).encode() + b"\n")
        before = self._file.tell()
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            if not os.fstat(self._file.fileno()).st_nlink:
                raise FileNotFoundError("it was removed while it was written")
        except OSError as cause:
            with suppress(OSError):
                self._file.truncate(before)  # no half line
            raise self._failed(cause) from cause
        self.count += 1

    def _failed(self, cause: OSError) -> OutputError:
        return OutputError(
            f"'{self._part}' could not be written ({cause.strerror or cause})",
            expected="a folder that stays, with room for the lines",
            fix="choose another place or make room",
        )

    def close(self, *, whole: bool = True) -> None:
        """As `ClipWriter.close`. May be called twice."""
        if self._file.closed:
            return
        self._file.close()
        with suppress(OSError):
            if not self.count:
                self.place = None
                self._part.unlink()
            elif whole and self._part != self.path:
                self._part.replace(self.path)
                self.place = self.path

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(whole=kind is None)


class Results(AbstractContextManager["Results"]):
    """The files of a run, once there is something to write."""

    def __init__(self, into: Places) -> None:
        self.into = into
        self.lines: Lines | None = None
        self.video: ClipWriter | None = None
        self._open = ExitStack()

    def begin(self, size: tuple[int, int], rate: float) -> tuple[Lines, ClipWriter | None]:
        """Make them, for pictures (H, W). Raises OutputError."""
        self.lines = lines = self._open.enter_context(Lines(self.into.lines))
        if self.into.video is not None:
            self.video = self._open.enter_context(ClipWriter(self.into.video, size, rate))
        return lines, self.video

    @property
    def places(self) -> list[Path]:
        """Where there is something of this run now: the video first."""
        found = [None if file is None else file.place for file in (self.video, self.lines)]
        return [path for path in found if path is not None and path.exists()]

    def interrupted(self) -> None:
        """Close them, without putting them in the place of earlier ones. Raises OutputError."""
        for file in (self.video, self.lines):
            if file is not None:
                file.close(whole=False)

    def __exit__(self, *failure: Any) -> None:
        self._open.__exit__(*failure)


@dataclass
class Tally:
    """What is counted on the way; a few numbers a frame."""

    questions: tuple[str, ...]
    key_seconds: array[float] = field(default_factory=lambda: array("d"))
    carried_seconds: array[float] = field(default_factory=lambda: array("d"))
    renewed: int = 0
    found: list[array[float]] = field(default_factory=list)
    detected: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    grid: tuple[int, int] = (0, 0)
    last: float = 0.0

    def __post_init__(self) -> None:
        n = len(self.questions)
        self.found = [array("d") for _ in range(n)]
        self.detected, self.kept, self.sent = [0] * n, [0] * n, [0] * n

    @property
    def frames(self) -> int:
        """So far."""
        return len(self.key_seconds) + len(self.carried_seconds)

    def add(self, frame: Frame) -> None:
        """Count a frame."""
        (self.key_seconds if frame.key else self.carried_seconds).append(frame.seconds)
        self.renewed += len(frame.renewed)
        self.grid, self.last = frame.grid.shape, frame.time
        for i, (relevance, kept, new) in enumerate(answers(frame)):
            self.found[i].append(relevance.confidence)
            self.detected[i] += relevance.detected
            self.kept[i] += len(kept)
            self.sent[i] += len(new)


def watch(
    stream: Stream,
    into: Places,
    *,
    most: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Write every frame of a stream into the two files. -> what happened, as `foveate video` prints it.

    Args:
        stream: closed at the end.
        into: from `places`.
        most: frames, at most.
        progress: called with the number of frames done.
        stopped: asked after each frame; True ends the clip there. Both files can be read, but they take no earlier
            ones' place: "video" and "jsonl" in what is returned say where they are.

    Raises:
        What the stream raises, and OutputError. Frames before that are in the files, and the message says so.
    """
    tally, start, files = Tally(stream.queries), time.perf_counter(), Results(into)
    try:
        with stream, files:
            interrupted = _follow(stream, files, most, tally, progress, stopped)
            if interrupted:
                files.interrupted()
    except FoveateError as error:
        if not tally.frames:
            raise
        there = " and ".join(f"'{path}'" for path in files.places)
        frames = "the frame before" if tally.frames == 1 else f"the {tally.frames} frames before"
        verb = ("is" if tally.frames == 1 else "are") + " in " if there else "had been written"
        raise type(error)(
            error.received, expected=error.expected, fix=f"{error.fix}; {frames} {verb}{there}"
        ) from error
    return _said(stream, files, tally, time.perf_counter() - start, interrupted)


def _follow(
    stream: Stream,
    files: Results,
    most: int | None,
    tally: Tally,
    progress: Callable[[int], None],
    stopped: Callable[[], bool],
) -> bool:
    """Whether it was stopped."""
    clip, one = stream.clip, len(stream.queries) == 1
    frame = next(stream, None)
    if frame is None:
        raise OptionError(
            f"'{clip.name}' has no frame there", expected="a start before its end", fix="leave --start out"
        )
    promised = None if clip.frames is None else clip.frames - frame.index
    expected = most if promised is None else min(promised, most or promised)
    first, height, width = frame.index, *frame.rgb.shape[:2]
    layout, strip = Layout.of((height, width), len(stream.queries)), Strip.empty(expected, len(stream.queries))
    rate = min(max(clip.rate or RATE, 0.01), 240.0)
    lines, video = files.begin(layout.size, rate)
    shown = -1.0
    while frame is not None:
        relevances = [relevance for relevance, _, _ in answers(frame)]
        belief = float(frame.confidence.mean())
        strip = strip.with_frame(belief, [r.confidence for r in relevances], frame.key, bool(frame.renewed))
        if video is not None:
            shown = max(frame.time, shown + 2 / TICKS)  # a clip may have times finer than a player's clock
            video.write(drawn(frame, strip, layout, None if expected is None else first + expected), shown)
        lines.write(record(frame, one))
        tally.add(frame)
        progress(tally.frames)
        if stopped():
            return True
        frame = None if tally.frames == most else next(stream, None)
    return False


def record(frame: Frame, one: bool) -> dict[str, Any]:
    """A frame as an object of JSON: numbers of a single question, lists of several."""
    each = answers(frame)
    of_questions = {
        "kept": [kept.indices.tolist() for _, kept, _ in each],
        "kept_new": [new.tolist() for _, _, new in each],
        "found": [round(relevance.confidence, 4) for relevance, _, _ in each],
        "detected": [relevance.detected for relevance, _, _ in each],
    }
    return {
        "index": frame.index,
        "time": round(frame.time, 6),
        "key": frame.key,
        "reason": frame.reason,
        "renewed": [list(box) for box in frame.renewed],
        "grid": list(frame.grid.shape),
        **({name: values[0] for name, values in of_questions.items()} if one else of_questions),
        "confidence": round(float(frame.confidence.mean()), 4),
        "seconds": round(frame.seconds, 6),
    }


def answers(frame: Frame) -> list[tuple[Relevance, Allocation, Any]]:
    """(relevance, kept, indices of what is new) of each question."""
    if isinstance(frame.relevance, Relevance):
        return [(frame.relevance, frame.kept, frame.kept_new)]  # type: ignore[list-item]
    return list(zip(frame.relevance, frame.kept, frame.kept_new, strict=True))  # type: ignore[arg-type]


def _said(stream: Stream, files: Results, tally: Tally, seconds: float, interrupted: bool) -> dict[str, Any]:
    def milliseconds(values: array[float]) -> float | None:
        return round(median(values) * 1e3, 2) if values else None

    questions = [
        {
            "query": query,
            "found": round(float(np.median(tally.found[i])), 4),
            "detected_frames": tally.detected[i],
            "kept": tally.kept[i],
            "sent": tally.sent[i],
        }
        for i, query in enumerate(tally.questions)
    ]
    return {
        "frames": tally.frames,
        "keys": len(tally.key_seconds),
        "renewed": tally.renewed,
        "skipped": stream.clip.skipped,
        "grid": list(tally.grid),
        "kept": sum(tally.kept),
        "sent": sum(tally.sent),
        "key_ms": milliseconds(tally.key_seconds),
        "carried_ms": milliseconds(tally.carried_seconds),
        "seconds": round(seconds, 3),
        "frames_per_second": round(tally.frames / seconds, 2),
        "interrupted": interrupted,
        "video": None if files.video is None else str(files.video.place),
        "jsonl": None if files.lines is None else str(files.lines.place),
        "queries": questions,
    }
