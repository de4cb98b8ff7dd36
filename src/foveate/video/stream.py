"""A clip and a question in, a frame at a time out: which cells of each picture to spend tokens on.

    for frame in stream("clip.mp4", "the dog", budget=128):
        frame.index, frame.time, frame.relevance, frame.kept, frame.key, frame.confidence, frame.seconds

`Stream` is the only thing here that changes with time, as a clip does; each frame is made by `steps.step`, which is
pure. What it keeps between frames does not grow with their number.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from foveate.channels.build import Preset, select_channels
from foveate.channels.change import CHANGED
from foveate.core.errors import BudgetError, OptionError, QueryError, VideoError
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import Encoder
from foveate.pipeline import Budget
from foveate.relevance.allocate import BEST, check_floor
from foveate.relevance.policies import Policy
from foveate.relevance.query import prepare
from foveate.video.flow import Dis, Floats, FlowModel, view_shape
from foveate.video.frame import HOLD, MEMORY, SMOOTH, Frame, How, State
from foveate.video.reader import Clip, ClipSource, Picture, open_clip
from foveate.video.refresh import Refresh
from foveate.video.steps import step
from foveate.video.vectors import flow_of

Flow = Literal["dis", "codec"]
COVERED = 0.6  # share of the picture that the codec's vectors must speak of, or DIS is asked


class Stream(AbstractContextManager["Stream"], Iterator[Frame]):
    """The frames of a clip, once, in order. Made by `stream`.

    Attributes:
        clip: the reader: name, size, frames, rate, codec, skipped.
        queries: the questions that the next frame answers.
    """

    def __init__(self, clip: Clip, queries: str | Sequence[str], how: How, codec: bool) -> None:
        self.clip = clip
        self._how, self._codec = how, codec
        self._state: State | None = None
        self.ask(queries)

    def ask(self, queries: str | Sequence[str]) -> None:
        """Other questions from the next frame on: one scoring pass, nothing is encoded. Raises QueryError.

        A question that the frame before answered goes on as it was; for another one everything kept is new.
        """
        one = isinstance(queries, str)
        if not isinstance(queries, Iterable):
            raise QueryError(
                f"a question that is a {type(queries).__name__}",
                expected="a text, or a list of them",
                fix='ask "a dog"',
            )
        texts = (queries,) if isinstance(queries, str) else tuple(queries)
        if not texts or len(set(texts)) < len(texts):
            raise QueryError(
                f"the questions {list(texts)!r}", expected="at least one, and none of them twice", fix='ask ["a dog"]'
            )
        for text in texts:
            prepare(self._how.tower, text)
        self.queries, self._one = texts, one

    def __next__(self) -> Frame:
        started = time.perf_counter()
        if self.clip.closed:
            raise VideoError(
                f"the stream of '{self.clip.name}' is closed",
                expected="an open stream; the frames that it gave stay as they are",
                fix="call stream again, and ask for frames inside the with block",
            )
        picture = next(self.clip)
        self._state, frame = step(
            self._state, picture.rgb, f"{self.clip.name} at {picture.time:.3f} s", self.queries, self._how,
            *self._codec_flow(picture),
        )  # fmt: skip
        said: dict[str, Any] = {"index": picture.index, "time": picture.time}
        if self._one:
            said |= {"relevance": frame.relevance[0], "kept": frame.kept[0], "kept_new": frame.kept_new[0]}  # type: ignore[index]
        return replace(frame, **said, seconds=time.perf_counter() - started)

    def _codec_flow(self, picture: Picture) -> tuple[Floats | None, Floats | None]:
        """The codec's motion as flow and what it covers, where it may be believed and speaks of most of the picture."""
        if not self._codec or picture.vectors is None or not self.clip.trusted:
            return None, None
        height, width = picture.rgb.shape[:2]
        flow, covered = flow_of(picture.vectors, (height, width), view_shape(height, width))
        return (flow, covered) if float(covered.mean()) >= COVERED else (None, None)

    def __repr__(self) -> str:
        asked = repr(self.queries[0] if self._one else list(self.queries))
        asked = asked if len(asked) <= 100 else f"{asked[:99]}…"
        how = f"budget {self._how.budget}, encoder {self._how.tower.name!r}"
        return f"Stream({self.clip.name!r}, {asked}, {how}, {self.clip.progress})"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the clip. May be called twice."""
        self.clip.close()


def stream(
    source: ClipSource | Clip,
    query: str | Sequence[str],
    *,
    budget: Budget = 128,
    encoder: str | Encoder = "nano",
    flow: Flow | FlowModel = "dis",
    refresh: Refresh | None = None,
    memory: float = MEMORY,
    smooth: float = SMOOTH,
    hold: float = HOLD,
    changed: float = CHANGED,
    long_side: int | None = None,
    rank: int | None = None,
    channels: Preset | Sequence[str] = "standard",
    floor: float = 0.0,
    policy: Policy = BEST,
    window: tuple[int, int] | None = None,
    size: int | None = None,
    rate: float | None = None,
) -> Stream:
    """Follow a question, or several, through a clip: key frames are encoded, the rest is carried along the motion.

    >>> for frame in stream("clip.mp4", "the dog", budget=128):                 # doctest: +SKIP
    ...     frame.kept.indices, frame.kept_new, frame.confidence.mean()

    Args:
        source: a video file, a camera ("camera:0"), a folder of pictures, an iterable of uint8 arrays [H, W, 3] or of
            (seconds, array), or a Clip of `open_clip`, which closing the stream closes (for flow="codec" it must have
            been opened with vectors=True).
        query: a question or noun phrase; a list of them gives several maps and kept sets a frame.
        budget: cells to keep of each frame, exactly; None or "auto" as in `allocate`.
        encoder, long_side, rank, channels: as in `encode`. Edges are made when `Frame.texture` is looked at.
        flow: "dis"; "codec" for the codec's own vectors where they can be trusted (H.264, MPEG-4 or MPEG-2 without
            B-frames and with one reference), else DIS; or a function (current, earlier: luma) -> flow.
        refresh: when to encode again, see Refresh.
        memory: how much of a key frame's features is what was carried there, 0 to 1; 0 forgets at every key frame.
        smooth: share of the previous frame's map in each map, 0 to 1.
        hold: advantage of cells that were kept before, as a share of the map's peak, 0 to 1.
        changed: mean difference of a cell's colours, 0 to 1, above which it is sent again (`Frame.kept_new`).
        floor, policy, window: as in `allocate`.
        size: pictures larger than this are read scaled down to it (long side, pixels).
        rate: pictures a second of a folder or of arrays without times.

    Raises:
        VideoError, VideoNotFoundError, MissingExtraError for the source; QueryError; OptionError; BudgetError (too
        large: with the first frame, as only then the number of cells is known); encoder errors as in `encode`.
    """
    for name, share in (("memory", memory), ("smooth", smooth), ("hold", hold), ("changed", changed)):
        if isinstance(share, bool) or not isinstance(share, int | float | np.number) or not 0 <= share <= 1:
            usual = (stream.__kwdefaults__ or {})[name]
            raise OptionError(f"{name}={share!r}", expected="a number from 0 to 1", fix=f"leave it out for {usual:g}")
    if isinstance(budget, int | np.integer) and not isinstance(budget, bool) and budget < 1:
        raise BudgetError(
            f"budget={budget!r}",
            expected="cells to keep of each frame: 1 or more, None or 'auto'",
            fix="leave it out for 128",
        )
    if refresh is not None and not isinstance(refresh, Refresh):
        raise OptionError(f"refresh={refresh!r}", expected="Refresh(...)", fix="for other intervals Refresh(every=24)")
    if not callable(flow) and flow not in ("dis", "codec"):
        raise OptionError(f"flow={flow!r}", expected="'dis', 'codec' or a function", fix="leave it out for 'dis'")
    check_floor(floor)
    how = How(
        tower=resolve_encoder(encoder),
        names=select_channels(channels),
        long_side=long_side,
        rank=rank,
        flow=flow if callable(flow) else Dis(),
        refresh=refresh or Refresh(),
        memory=float(memory),
        smooth=float(smooth),
        hold=float(hold),
        changed=float(changed),
        budget=budget,
        floor=floor,
        policy=policy,
        window=window,
    )
    codec = flow == "codec"
    if isinstance(source, Clip):
        if size is not None or rate is not None:
            raise OptionError(
                f"size={size!r}, rate={rate!r} with a clip that is open",
                expected="neither",
                fix="open_clip(source, long_side=..., rate=...) takes them",
            )
        return Stream(source, query, how, codec)
    clip = open_clip(source, vectors=codec, long_side=size, rate=rate)
    try:
        return Stream(clip, query, how, codec)
    except BaseException:
        clip.close()
        raise
