"""Pictures of a clip at even times, for models that take a clip as a few frames."""

from __future__ import annotations

from collections.abc import Sequence

from foveate.core.errors import OptionError
from foveate.video.reader import Clip, ClipSource, Picture, open_clip

MOST = 1024  # pictures: more do not fit into a prompt, and are most often a wrong fps


def pick(source: ClipSource | Clip, fps: float = 2.0, *, long_side: int | None = None) -> list[Picture]:
    """The first picture at or after each of the times 0, 1 / fps, 2 / fps, ... of a clip, in order; none twice.

    A clip that is open is read on, and closed.

    >>> [picture.time for picture in pick([np.zeros((2, 3, 3), np.uint8)] * 48, fps=2)]
    [0.0, 0.5, 1.0, 1.5]

    Raises OptionError for more than 1,024 of them, and what `open_clip` raises.
    """
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < float("inf"):
        raise OptionError(f"fps={fps!r}", expected="pictures a second, above 0", fix="2.0 is usual")
    found: list[Picture] = []
    with source if isinstance(source, Clip) else open_clip(source, long_side=long_side) as clip:
        if clip.frames and clip.rate and clip.frames / clip.rate * fps > MOST:
            raise _too_many(clip, fps)  # before they are all in memory
        due = 0
        for picture in clip:
            if picture.time * fps + 1e-6 >= due:
                found.append(picture)
                due = int(picture.time * fps + 1e-6) + 1
            if len(found) > MOST:
                raise _too_many(clip, fps)
    return found


def rate_of(pictures: Sequence[Picture], fps: float) -> float:
    """How many of them make a second, by their own times; `fps` of a single one."""
    last = pictures[-1].time - pictures[0].time if len(pictures) > 1 else 0.0
    return (len(pictures) - 1) / last if last > 0 else fps


def _too_many(clip: Clip, fps: float) -> OptionError:
    return OptionError(
        f"more than {MOST} pictures of '{clip.name}' at fps={fps:g}",
        expected=f"at most {MOST}",
        fix="pass a smaller fps, or a part of the clip",
    )
