"""Video: what propagating features along the motion costs and gives, beside encoding every frame and beside rivals.

    python -m benchmarks video [--clips FOLDER]

* Following: video_following.py.
* Cosine to fresh features by age: video_cosine.py. Tokens over time: video_tokens.py. Large tower, stages, flicker,
  memory: video_speed.py. The other ways: video_rivals.py. Clips: clips.py.

Frames of a clip that show no object count for speed only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image

from benchmarks import video_cosine, video_following, video_speed, video_tokens
from benchmarks.clips import Labelled, made_clips, names_in, read_clip
from benchmarks.common import circumstances, print_json
from benchmarks.video_following import Followed, answer, budget_of, follow, judged, page, plain, row, strip, summary
from benchmarks.video_rivals import DEFAULTS, EVERY_FRAME, WAYS, K
from benchmarks.video_tokens import areas
from foveate.channels.build import VISUAL, select_channels
from foveate.cli.results import write_picture
from foveate.cli.terminal import counting, print_table
from foveate.core.checks import check_int
from foveate.core.errors import MissingExtraError, OptionError
from foveate.core.files import make_folder, write_whole
from foveate.encoders.load import load_encoder
from foveate.video.decode import import_pyav
from foveate.viz.paper import Block

WARPED = (288, 512)  # (H, W) of warped photographs


@dataclass(frozen=True)
class Plan:
    """How much is measured. `quick` is for tests: everything runs, no number means anything.

    Attributes:
        length: frames of a clip at most. size: (H, W) of synthetic clips. side: the encoder's working size.
        clips: how many clips at most. made: frames of synthetic ones. steps: frames of the large tower.
        still: frames of the still scene, and its size.
        tiny: a tiny tower in the large one's place. frames: of the measurement of memory.
    """

    clips: int | None = None
    length: int = 60
    size: tuple[int, int] = (480, 854)
    made: int = 48
    steps: int = 2 * K + 1
    still: int = 48
    still_size: int = 640
    side: int | None = None
    tiny: bool = False
    frames: int = 500


QUICK = Plan(
    clips=1, length=15, size=(120, 214), made=14, steps=4, still=4, still_size=176, side=176, tiny=True, frames=12
)


def measure(
    clips: Path | None, plan: Plan, progress: Callable[[int], None] = lambda done: None
) -> tuple[dict[str, Any], Image.Image]:
    """-> (report, pictures). Raises OptionError for a folder that is not as clips.py says; MissingExtraError."""
    if plan.frames < 4:
        raise OptionError(f"--frames {plan.frames}", expected="4 or more", fix="leave it out for 500")
    encoder = load_encoder("nano")
    names = tuple(name for name in select_channels("standard") if name not in VISUAL)
    following: dict[str, dict[str, Followed]] = {}
    cosine: list[list[video_cosine.Curve]] = []
    floors: list[dict[str, float]] = []
    tokens: list[dict[str, Any]] = []
    stages: dict[str, list[float]] = {}
    streamed: list[dict[str, Any]] = []
    reading: list[float] = []
    strips: list[Block] = []
    large: dict[str, Any] | str = ""
    at = 0
    with TemporaryDirectory() as folder:
        for clip in islice(_clips(clips, plan, Path(folder)), plan.clips):
            following[clip.name] = follow(clip, encoder, names, plan.side)
            reading += clip.read
            fresh = [encoder.encode_image(rgb, long_side=plan.side).features for rgb in clip.frames]
            how = WAYS[DEFAULTS].how(encoder, names, long_side=plan.side, budget=budget_of(fresh[0].shape[:2]))
            cosine.append(video_cosine.on_clip(clip, fresh, encoder, plan.side))
            floors.append(video_cosine.floors(clip, fresh, encoder, plan.side))
            tokens += video_tokens.compare(clip, fresh, how)
            for name, seconds in video_speed.stages(clip, how).items():
                stages.setdefault(name, []).extend(seconds)
            if clip.path is not None:
                streamed.append(_run_stream(clip, fresh[0].shape[:2]))
            if not strips:
                large = _large(clip, plan, names)
            strips.append(strip(clip, following[clip.name][DEFAULTS].shown))
            at += 1
            progress(at)
    warps = video_cosine.on_warps(encoder, WARPED, 2 if plan.tiny else video_cosine.AGES + 1, plan.side)
    report: dict[str, Any] = {
        "title": f"{', '.join(following)}: {sum(len(f[DEFAULTS].keys) for f in following.values())} frames; a tenth of "
        "the cells is kept",
        "rows": [row(way, following, reading) for way in WAYS],
        "clips": {name: {way: summary(one) for way, one in ways.items()} for name, ways in following.items()},
        "cosine": [video_cosine.merged(curves[0].title, curves).row() for curves in zip(*cosine, strict=True)],
        "cosine_by_clip": {name: [c.row() for c in curves] for name, curves in zip(following, cosine, strict=True)},
        "floors": {what: round(float(np.mean([f[what] for f in floors])), 4) for what in floors[0]},
        "warps": {name: [curve.row() for curve in curves] for name, curves in warps.items()},
        "tokens": video_tokens.rows(tokens),
        "tokens_by_clip": [{k: round(v, 4) if isinstance(v, float) else v for k, v in t.items()} for t in tokens],
        "stages_ms": {name: round(float(np.median(seconds)) * 1e3, 3) for name, seconds in stages.items()},
        "large_tower": large,
        "stream": streamed,
        "flicker": _or_why(lambda: video_speed.flicker(plan.still, plan.still_size, plan.side)),
        "memory": video_speed.growth(plan.frames),
        "source": str(clips) if clips else "synthetic",
        "quick": plan.tiny,
    }
    report["targets"] = targets(report)
    return report | circumstances(), page(strips)


def _clips(folder: Path | None, plan: Plan, scratch: Path) -> Iterator[Labelled]:
    if folder is not None:
        import_pyav()
        found = names_in(folder)
        return (read_clip(folder, name, question, plan.length) for name, question in found.items())
    try:
        import_pyav()
    except MissingExtraError:
        return made_clips(plan.made, plan.size, None)
    return made_clips(plan.made, plan.size, scratch)


# --- the rest of the report -------------------------------------------------------------------------------------------


def _run_stream(clip: Labelled, shape: tuple[int, ...]) -> dict[str, Any]:
    frames = video_speed.end_to_end(clip, budget_of(shape))
    grid = frames[0].grid.shape
    found = [judged(*answer(frame), area) for frame, area in zip(frames, areas(clip.masks, grid), strict=True)]
    seconds = [f.seconds for f in frames[1:]]
    propagated = [f.seconds for f in frames if not f.keyframe and not f.renewed]
    return {
        "clip": clip.name,
        "coverage": round(float(np.nanmean(np.array(found)[:, 0])), 4),
        "keyframes": sum(frame.keyframe for frame in frames),
        "frames_per_second": round(1 / float(np.mean(seconds)), 2),
        "propagated_ms": plain(np.median(propagated) * 1e3 if propagated else np.nan),
        "frames": len(frames),
    }


def _large(clip: Labelled, plan: Plan, names: tuple[str, ...]) -> dict[str, Any] | str:
    return _or_why(lambda: video_speed.large_tower(clip.frames[: plan.steps], video_speed.random_b16(plan.tiny), names))


def _or_why(run: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """What is measured, or what is missing for it."""
    try:
        return run()
    except MissingExtraError as missing:
        return f"skipped: {missing.received}"


def targets(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows (what, measured, target), with the numbers of issue 6 where it has any."""
    ways = {row["way"]: row for row in report["rows"]}
    every, ours = ways[EVERY_FRAME], ways[DEFAULTS]
    stages, large, still, memory = (report[key] for key in ("stages_ms", "large_tower", "flicker", "memory"))
    compose = next(row["by_age"] for row in report["cosine"] if row["what"] == video_cosine.COMPOSED)
    faster = every["features_ms_mean"] / ours["features_ms_mean"]
    rows: list[tuple[str, float | str, str, str]] = [
        ("coverage against every frame alone, points", 100 * (ours["coverage"] - every["coverage"]), "+.1f", ">= -2"),
        ("features of nano, every frame / defaults (means)", faster, ".2f", ""),
        ("cosine to fresh nano features, age 1", compose[1], ".3f", ""),
        (f"cosine to fresh nano features, age {video_cosine.AGES}", compose[video_cosine.AGES], ".3f", ">= 0.95"),
        *((f"  nano itself: {what}", value, ".3f", "") for what, value in report["floors"].items()),
    ]
    if isinstance(large, str):
        rows.append(("features of a B/16 tower", large, "", ">= 5"))
    else:
        rows += [
            (f"features of a B/16 tower, every frame / K = {K} by age", large["ratio_by_age"], ".1f", ">= 5"),
            ("  the same, defaults (parts renewed, early keyframes)", large["ratio_defaults"], ".1f", ""),
        ]
    rows += _whole(report["stream"])
    rows += [(f"  of a propagated frame: {name}, ms", value, ".2f", "") for name, value in stages.items()]
    if isinstance(still, str):
        rows.append(("kept cells that change on a still clip", still, "", "<= 2 %"))
    else:
        rows += [
            ("kept cells that change on a still clip", still["steady"], ".2%", "<= 2 %"),
            ("  without smoothing, hysteresis and blend", still["without"], ".2%", ""),
            ("  kept cells sent again on it", still["sent_again"], ".2%", ""),
        ]
    if memory is not None:
        rows.append((f"growth of memory over {memory['frames']} frames, MB", memory["megabytes"], "+.2f", "flat"))
    return [_target(*entry) for entry in rows]


def _target(what: str, value: float | str | None, how: str, target: str) -> dict[str, Any]:
    if isinstance(value, str):
        return {"cells": [what, value, target], "what": what, "value": value, "target": target}
    known = value is not None and not np.isnan(value)
    shown = format(value, how) if known else "-"
    return {"cells": [what, shown, target], "what": what, "value": plain(value) if known else None, "target": target}


def _whole(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, float | str, str, str]]:
    """Rows of the whole stream over files."""
    if not runs:
        return [("frames a second from a file", "skipped: no file to read", "", "")]
    spent = sum(run["frames"] / run["frames_per_second"] for run in runs)
    propagated = [run["propagated_ms"] for run in runs if run["propagated_ms"] is not None]
    return [
        ("frames a second from a file", sum(run["frames"] for run in runs) / spent, ".1f", ">= 25"),
        ("  frames only propagated, reading included", float(np.median(propagated or [np.nan])), ".2f", "<= 8 ms"),
        ("  coverage", float(np.mean([run["coverage"] for run in runs])), ".3f", ""),
    ]


def command(
    clips: Annotated[
        Path | None,
        typer.Option("--clips", help="Folder with davis.json, NAME/clip.mp4 and NAME/masks.tar [default: made clips]."),
    ] = None,
    length: Annotated[
        int | None, typer.Option(help="Frames of a clip, at most [default: 60; of made ones 48].")
    ] = None,
    frames: Annotated[int | None, typer.Option(help="Frames over which memory is measured [default: 500].")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for report.json and clips.png; made if needed.")] = Path(
        "foveate-bench"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Everything, very small: no number means anything.")] = False,
) -> None:
    """Propagating features against encoding every frame: coverage, speed, drift, flicker, tokens, memory."""
    plan = QUICK if quick else Plan()
    if length is not None:
        check_int("--length", length, 4, 1000)
        plan = replace(plan, length=length, made=min(length, plan.made))
    make_folder(out)
    with counting("video", 3) as progress:
        report, sheet = measure(clips, plan if frames is None else replace(plan, frames=frames), progress)
    write_whole(out / "report.json", json.dumps(report, indent=1).encode())
    write_picture(out / "clips.png", sheet)
    _show(report)
    typer.echo(f"\npictures: {out / 'clips.png'}; everything by clip: {out / 'report.json'}")
    print_json(**{key: value for key, value in report.items() if not key.endswith("_by_clip") and key != "clips"})


def _show(report: dict[str, Any]) -> None:
    def show(title: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        print_table(title, columns, [tuple(row["cells"]) for row in rows])

    show(report["title"], video_following.COLUMNS, report["rows"])
    show("\ncosine of propagated to fresh features by age in frames", video_cosine.COLUMNS, report["cosine"])
    for name, rows in report["warps"].items():
        show(f"\na photograph warped by a known {name}", video_cosine.COLUMNS, rows)
    show("\ntokens sent, of all cells of all frames", video_tokens.COLUMNS, report["tokens"])
    show("", ("what", "measured", "target"), report["targets"])
