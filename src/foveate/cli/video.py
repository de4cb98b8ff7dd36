"""The command `foveate video`: a video for people, a line of JSON for each frame."""

from __future__ import annotations

import json
import shlex
import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foveate.cli import terminal
from foveate.core.options import PROPAGATION, STREAM

if TYPE_CHECKING:
    from foveate.video.state import Frame
    from foveate.video.streams import Stream

DRAWN_BEHIND = 2  # frames: each holds its picture


def video(
    clip: Annotated[str, typer.Argument(help="A video file, or a folder of images.")],
    query: terminal.Questions,
    budget: terminal.Budget = "auto",
    floor: terminal.Floor = None,
    policy: terminal.PolicyOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out",
            help="Video to write (.mp4, .mkv); beside it NAME.jsonl, a line a frame [default: CLIP_kept.mp4]. Both are "
            "written as NAME.<random>.part and renamed at the end, also after Ctrl-C; a run that fails or is killed "
            "changes neither, and leaves the lines so far in the .part.jsonl."
        ),
    ] = None,
    no_video: Annotated[bool, typer.Option("--no-video", help="Write the lines of JSON only.")] = False,
    preset: terminal.PresetOption = None,
    encoder: terminal.EncoderName = None,
    words: terminal.WordsFile = None,
    every: Annotated[int, typer.Option(help="Frames from one keyframe to the next, at most; 1: encode all.")] = 12,
    blend: Annotated[float, typer.Option(help=PROPAGATION["blend"].help)] = 0.5,
    no_smoothing: Annotated[
        bool, typer.Option("--no-smoothing", help="Each frame's map and cells by themselves.")
    ] = False,
    size: Annotated[int | None, typer.Option(help="Read pictures scaled down to this long side, in pixels.")] = None,
    long_side: terminal.LongSide = None,
    start: Annotated[float, typer.Option(help="Seconds to leave out at the beginning.")] = 0.0,
    frames: Annotated[int | None, typer.Option(help="Frames, at most.")] = None,
    rate: Annotated[float | None, typer.Option(help="Pictures a second of a folder of images [default: 24].")] = None,
    read: Annotated[
        bool, typer.Option("--read", help=STREAM["read"].about)
    ] = False,
    reader: terminal.ReaderName = None,
    read_every: Annotated[float, typer.Option(help=PROPAGATION["read_every"].help)] = 2.0,
) -> None:  # fmt: skip
    """Follow questions through a clip: an overlay video, lines of JSON."""
    from foveate.allocation import Keep
    from foveate.core.checks import check_int, check_number
    from foveate.encoders.load import resolve_encoder
    from foveate.language.query import prepare
    from foveate.relevance.presets import find_preset
    from foveate.video import Propagation, Refresh, open_clip, stream
    from foveate.video.decode import import_pyav

    terminal.refuse_files(clip, query, "clip", 'for f in *.mp4; do foveate video "$f" "a dog"')
    check_number("--start", start, 0, None)
    for name, value, usual in (("frames", frames, "all"), ("size", size, "the clip's own")):
        if value is not None:
            check_int(f"--{name}", value, fix=f"leave it out for {usual}")
    named = find_preset(preset).name if preset else None
    lines, picture = choose_outputs(clip, out, not no_video)
    steady: dict[str, Any] = {"smoothing": 0.0, "hysteresis": 0.0} if no_smoothing else {}
    with ExitStack() as before:
        opened = before.enter_context(open_clip(clip, long_side=size, rate=rate))
        if not no_video:
            import_pyav("writing a video")  # better now than after the first frame
        with terminal.waiting(f"reading {clip}", encoder):
            taught = terminal.load_words(words)
            network = resolve_encoder(encoder or "nano")
            seer = taught["words"].of(network) if taught else network
            query, refused = terminal.answer_each(query, lambda text: prepare(seer, text).text)
            follow = stream(
                opened,
                query[0] if len(query) == 1 else query,
                budget=budget,
                preset=named,
                encoder=encoder or "nano",
                long_side=long_side,
                read=(read or None) if reader is None else reader,
                keep=Keep(floor, policy),
                propagation=Propagation(refresh=Refresh(every=every), blend=blend, read_every=read_every, **steady),
                **taught,
            )
            opened.skip_to(start)
        before.pop_all()
    left = None if opened.frames is None else max(1, opened.frames - round(start * (opened.rate or 24)))
    total = frames if left is None else min(left, frames or left)
    with terminal.until_interrupted() as stopped, terminal.counting(Path(clip).name, total) as progress:
        found = write_results(follow, lines, picture, most=frames, progress=progress, stopped=stopped)
    _print_summary(clip, found)
    terminal.print_json(clip=clip, preset=preset, encoder=encoder or "nano", budget=budget, refused=refused, **found)
    if found["interrupted"] or refused:
        raise typer.Exit(130 if found["interrupted"] else 1)


def choose_outputs(clip: str, out: Path | None, video: bool = True) -> tuple[Path, Path | None]:
    """(lines, video or None) of a clip, by default `CLIP_kept.jsonl` and `CLIP_kept.mp4`. Raises OutputError for a path
    that cannot be written, of another suffix, or that is the clip itself.
    """
    from foveate.core.errors import OutputError
    from foveate.core.files import check_output

    usual = Path(f"{Path(clip).resolve().stem}_kept.mp4")
    out = usual if out is None else out
    known = (".mp4", ".mkv") if video else (".mp4", ".mkv", ".jsonl")
    if out.suffix.lower() not in known:
        better = (out / usual if out.is_dir() else out).with_suffix(".mp4" if video else ".jsonl")
        more = ", or add --no-video for the lines alone" if video else ""
        raise OutputError(
            f"--out {out}",
            expected=f"a name that ends in {' or '.join(known)}; the lines of JSON go beside it",
            fix=f"write --out {shlex.quote(str(better))}{more}",
        )
    lines = out.with_suffix(".jsonl")
    for path in (out, lines) if video else (lines,):
        check_output(path, clip, "clip", "--out")
    return lines, out if video else None


def write_results(
    stream: Stream,
    lines: Path,
    video: Path | None = None,
    *,
    most: int | None = None,
    progress: Callable[[int], None] = lambda done: None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Write at most `most` frames of a stream as lines of JSON and pictures of a video. -> the summary of the command.

    Both files are complete or not there. A line is on its way to the disk before the next frame, in LINES.part.jsonl,
    which a failure or a kill leaves behind. Pictures are drawn by another thread. `progress` gets the number of frames
    done; `stopped` is asked after each. Raises what the stream raises, and OutputError.
    """
    import numpy as np

    from foveate.core.errors import FoveateError, OptionError, OutputError
    from foveate.core.threads import Behind
    from foveate.video.decode import RATE
    from foveate.video.export import TICKS, ClipWriter, name_part
    from foveate.viz.overlay import History, Page, draw

    started, part, clip, interrupted = time.perf_counter(), name_part(lines), stream.clip, False
    history, seconds = History(len(stream.queries)), array("d")
    tally = np.zeros((len(stream.queries), 3), np.int64)  # frames it was detected in, cells kept, cells sent
    count, shown = 0, -1.0

    def show(frame: Frame) -> None:
        nonlocal shown
        history.add(frame)
        if video is not None:
            shown = max(frame.time, shown + 2 / TICKS)  # a clip may have times finer than a player's clock
            writer.write(draw(frame, history, page), shown)

    try:
        with stream, ExitStack() as files:
            for frame in islice(stream, most):
                if not count:  # nothing is made before the first frame has been answered
                    page = Page.for_frames((frame.rgb.shape[0], frame.rgb.shape[1]), len(stream.queries))
                    left = None if clip.frames is None else clip.frames - frame.index
                    history.expected = most if left is None else min(left, most or left)
                    file = files.enter_context(part.open("x", buffering=1))
                    if video is not None:
                        rate = min(max(clip.rate or RATE, 0.01), 240.0)
                        writer = files.enter_context(ClipWriter(video, page.size, rate))
                    drawing = files.enter_context(Behind(DRAWN_BEHIND))
                row = make_record(frame)
                tally += np.array([(r.detected, len(kept), len(new)) for r, kept, new in frame.answers])
                seconds.append(frame.seconds)
                drawing.call(show, frame)
                count += 1
                file.write(json.dumps(row) + "\n")
                progress(count)
                if interrupted := stopped():
                    break
        if not count:
            raise OptionError(
                f"'{clip.name}' has no frame there", expected="a start before its end", fix="leave --start out"
            )
        part.replace(lines)
    except (FoveateError, OSError) as cause:
        note = f"; lines of the frames before are in '{part}'" if part.exists() else ""
        if isinstance(cause, FoveateError):
            raise type(cause)(cause.received, expected=cause.expected, fix=cause.fix + note) from cause
        raise OutputError(
            f"'{lines}' could not be written ({cause.strerror or cause})",
            expected="a folder that stays, with room for the lines",
            fix="choose another place or make room" + note,
        ) from cause
    keys, taken, whole = np.array(history.keyframes, bool), np.array(seconds), time.perf_counter() - started
    counts = [dict(zip(("detected_frames", "kept", "sent"), row, strict=True)) for row in tally.tolist()]
    medians = np.median(history.found, 0).tolist()
    return {
        "frames": count,
        "keyframes": int(keys.sum()),
        "renewed": sum(history.renewed),
        "skipped": clip.skipped,
        "grid": list(frame.grid.shape),
        "kept": sum(row["kept"] for row in counts),
        "sent": sum(row["sent"] for row in counts),
        "keyframe_ms": round(float(np.median(taken[keys])) * 1e3, 2),
        "propagated_ms": None if keys.all() else round(float(np.median(taken[~keys])) * 1e3, 2),
        "seconds": round(whole, 3),
        "frames_per_second": round(count / whole, 2),
        "interrupted": interrupted,
        "video": None if video is None else str(video),
        "jsonl": str(lines),
        "queries": [
            {
                "query": query,
                "looked_for": dict(relevance.looked_for),
                "unknown": list(relevance.unknown),
                "found": round(found, 4),
                **row,
            }
            for query, (relevance, *_), found, row in zip(stream.queries, frame.answers, medians, counts, strict=True)
        ],
    }


def make_record(frame: Frame) -> dict[str, Any]:
    """A frame as an object of JSON: numbers of a single question, lists of several."""
    each = [
        (kept.indices.tolist(), new.tolist(), terminal.round_confidence(relevance.confidence), relevance.detected)
        for relevance, kept, new in frame.answers
    ]
    values = [list(column) for column in zip(*each, strict=True)] if isinstance(frame.kept, tuple) else each[0]
    return {
        "index": frame.index,
        "time": round(frame.time, 6),
        "key": frame.keyframe,
        "reason": frame.reason,
        "renewed": [list(box) for box in frame.renewed],
        "grid": list(frame.grid.shape),
        **dict(zip(("kept", "kept_new", "found", "detected"), values, strict=True)),
        "confidence": round(float(frame.confidence.mean()), 4),
        **({} if frame.words is None else {"words": len(frame.words)}),
        "seconds": round(frame.seconds, 6),
    }


def _print_summary(clip: str, found: dict[str, Any]) -> None:
    if found["skipped"]:
        left_out = terminal.format_count(found["skipped"], "picture")
        typer.echo(f"warning: could not be decoded, and left out: {left_out}", err=True)
    count, (h, w) = found["frames"], found["grid"]
    rows = [
        (terminal.add_understood(r["query"], r), f"{r['found']:.2f}", f"{r['detected_frames']} of {count}",
         f"{r['kept'] / count:.0f}", f"{r['sent'] / count:.1f}")
        for r in found["queries"]
    ]  # fmt: skip
    state = "interrupted after " if found["interrupted"] else ""
    title = f"{clip}  {state}{terminal.format_count(count, 'frame')}, {h} x {w} cells"
    terminal.print_table(title, ("query", "confidence", "frames detected in", "kept a frame", "new a frame"), rows)
    kinds = f"{terminal.format_count(found['keyframes'], 'keyframe')} of {found['keyframe_ms']:.0f} ms"
    if found["propagated_ms"] is not None:
        kinds += f", {count - found['keyframes']} propagated of {found['propagated_ms']:.1f} ms"
    drawing = "all included" if found["video"] else "no video drawn"
    typer.echo(f"{kinds}; {found['frames_per_second']:.1f} frames a second, {drawing}")
    terminal.print_files("files", [path for path in (found["video"], found["jsonl"]) if path is not None])
