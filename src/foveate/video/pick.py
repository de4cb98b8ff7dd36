"""Pictures of a clip at even times, for models that take a clip as a few frames."""

from __future__ import annotations

from foveate.errors import OptionError
from foveate.video.reader import Clip, ClipSource, Picture, open_clip

MOST = 1024  # pictures: more do not fit into a prompt, and are most often a wrong fps


def pick(source: ClipSource | Clip, fps: float = 2.0, *, long_side: int | None = None) -> list[Picture]:
    """The first picture at or after each of the times 0, 1 / fps, 2 / fps, ... of a clip, in order; none twice.

    >>> [picture.time for picture in pick([np.zeros((2, 3, 3), np.uint8)] * 48, fps=2)]
    [0.0, 0.5, 1.0, 1.5]

    Raises OptionError for more than 1,024 of them, and what `open_clip` raises.
    """
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < float("inf"):
        raise OptionError(f"fps={fps!r}", expected="pictures a second, above 0", fix="2.0 is usual")
    found: list[Picture] = []
    with source if isinstance(source, Clip) else open_clip(source, long_side=long_side) as clip:
        due = 0
        for picture in clip:
            if picture.time * fps + 1e-6 >= due:
                found.append(picture)
                due = int(picture.time * fps + 1e-6) + 1
            if len(found) > MOST:
                raise OptionError(
                    f"more than {MOST} pictures of '{clip.name}' at fps={fps:g}",
                    expected=f"at most {MOST}",
                    fix="pass a smaller fps, or a part of the clip",
                )
    return found
