"""The command `foveate video`. Only typer is imported at the top, so that `foveate --help` stays quick."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from foveate.cli.terminal import (
    EncoderName,
    LongSide,
    counting,
    format_count,
    parse_budget,
    print_json,
    print_table,
    refuse_files,
    until_interrupted,
    waiting,
)

if TYPE_CHECKING:
    from foveate.cli.watch import Places

EXAMPLE = 'Example:  foveate video clip.mp4 "the dog" "a frisbee" --budget 128 --out clip_kept.mp4'


def video(
    clip: Annotated[str, typer.Argument(help="A video file, a folder of images, or camera:0.")],
    query: Annotated[list[str], typer.Argument(help="Questions or noun phrases, each in quotes.")],
    budget: Annotated[
        Any,
        typer.Option(
            "--budget", "-k", parser=parse_budget, metavar="INTEGER|auto",
            help="Cells to keep of each frame, exactly, for each question; auto: by the map's mass.",
        ),
    ] = 128,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Video to write (.mp4, .mkv); beside it NAME.jsonl, a line a frame [default: CLIP_kept.mp4]. What is "
            "there is replaced when the new one is complete; one that is interrupted stays beside it."
        ),
    ] = None,
    no_video: Annotated[bool, typer.Option("--no-video", help="Write the lines of JSON only.")] = False,
    encoder: EncoderName = None,
    every: Annotated[int, typer.Option(help="Frames from one key frame to the next, at most; 1: encode all.")] = 12,
    flow: Annotated[str, typer.Option(help="dis, or codec: the clip's own motion vectors, where they hold.")] = "dis",
    memory: Annotated[float, typer.Option(help="Share of the past in a key frame's features, 0 to 1.")] = 0.5,
    no_smooth: Annotated[bool, typer.Option("--no-smooth", help="Each frame's map and cells by themselves.")] = False,
    size: Annotated[int | None, typer.Option(help="Read pictures scaled down to this long side, in pixels.")] = None,
    long_side: LongSide = None,
    start: Annotated[float, typer.Option(help="Seconds to leave out at the beginning.")] = 0.0,
    frames: Annotated[int | None, typer.Option(help="Frames, at most.")] = None,
    rate: Annotated[float | None, typer.Option(help="Pictures a second of a folder of images [default: 24].")] = None,
) -> None:  # fmt: skip
    """Follow questions through a clip: an overlay video, lines of JSON."""
    from foveate.cli.watch import places, watch
    from foveate.core.errors import BudgetError, OptionError
    from foveate.video import Refresh, open_clip, stream
    from foveate.video.frame import How
    from foveate.video.stream import Flow

    refuse_files(query, "clip", 'for f in *.mp4; do foveate video "$f" "a dog"')
    if not 0 <= start < float("inf"):
        raise OptionError(f"--start {start}", expected="seconds, 0 or more", fix="leave it out")
    for name, value, usual in (("frames", frames, "all"), ("size", size, "the clip's own"), ("every", every, "12")):
        if value is not None and value < 1:
            raise OptionError(f"--{name} {value}", expected="1 or more", fix=f"leave it out for {usual}")
    if budget != "auto" and budget < 1:
        raise BudgetError(
            f"--budget {budget}", expected="cells of each frame, 1 or more, or auto", fix="leave it out for 128"
        )
    into = places(clip, out, not no_video)
    refresh = Refresh(every=every)
    with ExitStack() as before:
        opened = before.enter_context(open_clip(clip, vectors=flow == "codec", long_side=size, rate=rate))
        if not no_video:
            from foveate.video.decoder import pyav

            pyav()  # better now than after the first frame
        with waiting(f"reading {clip}", encoder):
            follow = stream(
                opened,
                query[0] if len(query) == 1 else query,
                budget=budget,
                encoder=encoder or "nano",
                flow=cast(Flow, flow),
                refresh=refresh,
                memory=memory,
                long_side=long_side,
                smooth=0.0 if no_smooth else How.smooth,
                hold=0.0 if no_smooth else How.hold,
            )
            opened.skip_to(start)
        before.pop_all()
    left = None if opened.frames is None else max(1, opened.frames - round(start * (opened.rate or 24)))
    total = frames if left is None else min(left, frames or left)
    with until_interrupted() as stopped, counting(Path(clip).name, total, "frames") as progress:
        found = watch(follow, into, most=frames, progress=progress, stopped=stopped)
    _show(clip, found, flow, opened.trusted, into)
    print_json(clip=clip, encoder=encoder or "nano", budget=budget, flow=flow, **found)
    if found["interrupted"]:
        raise typer.Exit(130)


def _show(clip: str, found: dict[str, Any], flow: str, trusted: bool, into: Places) -> None:
    if found["skipped"]:
        typer.echo(
            f"warning: could not be decoded, and left out: {format_count(found['skipped'], 'picture')}", err=True
        )
    if flow == "codec" and not trusted:
        typer.echo("warning: the clip's motion vectors cannot be trusted throughout; DIS stood in for them", err=True)
    count, (h, w) = found["frames"], found["grid"]
    state = "interrupted after " if found["interrupted"] else ""
    rows = [
        (r["query"], f"{r['found']:.2f}", f"{r['detected_frames']} of {count}", f"{r['kept'] / count:.0f}",
         f"{r['sent'] / count:.1f}")
        for r in found["queries"]
    ]  # fmt: skip
    title = f"{clip}  {state}{format_count(count, 'frame')}, {h} x {w} cells"
    print_table(title, ("query", "confidence", "frames found in", "kept a frame", "new a frame"), rows)
    kinds = [f"{format_count(found['keys'], 'key frame')} of {found['key_ms']:.0f} ms"]
    if found["carried_ms"] is not None:
        kinds.append(f"{count - found['keys']} carried of {found['carried_ms']:.1f} ms")
    pace = f"{found['frames_per_second']:.1f} frames a second, " + (
        "all included" if found["video"] else "no video drawn"
    )
    typer.echo(f"{', '.join(kinds)}; {pace}")
    typer.echo("files: " + " and ".join(path for path in (found["video"], found["jsonl"]) if path is not None))
    wanted = {"video": into.video, "jsonl": into.lines}
    earlier = [str(path) for name, path in wanted.items() if path is not None and str(path) != found[name]]
    if earlier:
        typer.echo(f"{' and '.join(earlier)}: as before; what is interrupted replaces nothing")
