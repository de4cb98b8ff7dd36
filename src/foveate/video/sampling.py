"""Pictures of a clip at even times, for models that take a clip as a few frames."""

from __future__ import annotations

from collections.abc import Sequence

from foveate.core.checks import check_number
from foveate.core.errors import OptionError
from foveate.video.decode import ClipSource, TimedPicture, VideoClip, open_clip

MOST = 1024  # pictures: more do not fit into a prompt, and are most often a wrong fps


def pick(source: ClipSource | VideoClip, fps: float = 2.0, *, long_side: int | None = None) -> list[TimedPicture]:
    """The first picture at or after each of the times 0, 1 / fps, 2 / fps, ... of a clip, in order; none twice.

    A clip that is open is read on, and closed.

    >>> import numpy as np
    >>> [picture.time for picture in pick([np.zeros((2, 3, 3), np.uint8)] * 48, fps=2)]
    [0.0, 0.5, 1.0, 1.5]

    Raises OptionError for more than 1,024 of them, and what `open_clip` raises.
    """
    check_number("fps", fps, 1e-6, None, fix="2.0 is usual")
    found: list[TimedPicture] = []
    with source if isinstance(source, VideoClip) else open_clip(source, long_side=long_side) as clip:
        many = OptionError(
            f"more than {MOST} pictures of '{clip.name}' at fps={fps:g}",
            expected=f"at most {MOST}",
            fix="pass a smaller fps, or a part of the clip",
        )
        if clip.frames and clip.rate and clip.frames / clip.rate * fps > MOST:
            raise many  # before they are all in memory
        due = 0
        for picture in clip:
            if picture.time * fps + 1e-6 >= due:
                found.append(picture)
                due = int(picture.time * fps + 1e-6) + 1
            if len(found) > MOST:
                raise many
    return found


def measure_rate(pictures: Sequence[TimedPicture], fps: float) -> float:
    """How many of them make a second, by their own times; `fps` of a single one."""
    last = pictures[-1].time - pictures[0].time if len(pictures) > 1 else 0.0
    return (len(pictures) - 1) / last if last > 0 else fps
