"""A clip and a question in, a frame at a time out: which cells of each picture to spend tokens on.

`Stream` is the only thing here that changes with time. Of a file or a folder one thread decodes the next few pictures,
and another looks for motion in them; what is sure to be encoded whole is encoded by a third before its turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from foveate.allocation.allocation import Budget, Keep
from foveate.channels.build import Channels, ChannelSet, select_channels
from foveate.core.checks import check_choice, check_int, check_number, check_type
from foveate.core.errors import BudgetError, ChannelError, QueryError, VideoError
from foveate.core.gone import without
from foveate.core.layout import FLOW
from foveate.core.threads import MANY, Ahead, share_cores
from foveate.encoders.load import resolve_encoder
from foveate.encoders.protocol import DenseFeatures, Encoder
from foveate.encoders.taught import TaughtWords
from foveate.language.query import prepare
from foveate.reading.readers import ReadBy, choose_reader
from foveate.relevance.presets import PresetName, fill, find_preset
from foveate.video.decode import ClipSource, TimedPicture, VideoClip, open_clip
from foveate.video.flow import Dis, FlowModel, Sight, look
from foveate.video.state import FRESH, LATER, Frame, Propagation, State, StreamSettings, step

STILL = ("static", "minimum")  # presets without planes of time
AHEAD = 4  # pictures: as many as are decoded while one is encoded
AHEAD_BYTES = 64_000_000  # of large pictures fewer, but one


class Stream(AbstractContextManager["Stream"], Iterator[Frame]):
    """The frames of a clip, once, in order. Made by `stream`.

    Attributes:
        clip: the reader: name, size, frames, rate, codec, skipped.
        queries: the questions that the next frame answers.
    """

    def __init__(self, clip: VideoClip, queries: str | Sequence[str], settings: StreamSettings) -> None:
        self.clip = clip
        self._settings = settings
        self._seen = _look_ahead(clip, settings.propagation.flow)
        self._encoding = ThreadPoolExecutor(1, "foveate-encoding")
        self._begun = 0
        self._count = 0
        self._state: State | None = None
        self._gaze: tuple[float, float] | None = None
        self.ask(queries)

    def ask(self, queries: str | Sequence[str]) -> None:
        """Other questions from the next frame on; nothing is encoded for them. Raises QueryError."""
        one = isinstance(queries, str)
        check_type("query", queries, Iterable, expected="one text or several", fix='ask "a dog"', error=QueryError)
        texts = (queries,) if isinstance(queries, str) else tuple(queries)
        if not texts or len(set(texts)) < len(texts):
            raise QueryError(
                f"the questions {list(texts)!r}",
                expected="at least one, and none of them twice",
                fix="ask each question once",
            )
        for text in texts:
            prepare(self._settings.encoder, text)
        self.queries, self._one = texts, one

    def gaze(self, y: float | None, x: float | None = None) -> None:
        """Where a person looks from the next frame on: (y, x) in pixels, or None for nowhere.

        It is the channel "gaze" of the frames' textures, with a trail that loses half of its weight in half a second.
        Raises OptionError for a place outside of the picture, VideoError after `close`.
        """
        self._check_open()
        if y is None and x is None:
            self._gaze = None
            return
        if self._state is None:
            h, w = self.clip.size or (None, None)
        else:
            h, w = self._state.texture.grid.height, self._state.texture.grid.width
        fix = "gaze(y, x) takes pixels of the picture, y first; gaze(None) for a look that is not on it"
        self._gaze = check_number("gaze y", y, 0, h, fix=fix), check_number("gaze x", x, 0, w, fix=fix)

    def _check_open(self) -> None:
        if self.clip.closed:
            raise VideoError(
                f"the stream of '{self.clip.name}' is closed",
                expected="an open stream; the frames that it gave stay as they are",
                fix="call stream again, and ask for frames inside the with block",
            )

    def __next__(self) -> Frame:
        started = time.perf_counter()
        self._check_open()
        try:
            picture, sight = next(self._seen)
        except StopIteration:
            self._check_open()  # the end of the clip, and not that another thread closed it
            raise
        name = f"{self.clip.name} at {picture.time:.3f} s"
        at = picture.time
        upcoming = [sight for _, sight in self._seen.ready()] if isinstance(self._seen, Ahead) else []
        self._state, frame = step(
            self._state, sight, name, self.queries, self._settings, at, self._gaze, upcoming, self._begin
        )  # fmt: skip
        self._count = picture.index + 1
        values: dict[str, Any] = {"index": picture.index, "time": picture.time}
        if self._one:
            values |= {"relevance": frame.relevance[0], "kept": frame.kept[0], "kept_new": frame.kept_new[0]}  # type: ignore[index]
        return replace(frame, **values, seconds=time.perf_counter() - started)

    def _begin(self, sight: Sight) -> Future[DenseFeatures] | None:
        settings = self._settings
        with suppress(RuntimeError):  # closed meanwhile
            self._begun += 1
            if self._begun == MANY:  # the network for a part of the cores is worth loading
                self._encoding.submit(share_cores, 2)
            return self._encoding.submit(settings.encoder.encode_image, sight.rgb, long_side=settings.long_side)
        return None

    def __repr__(self) -> str:
        queries = repr(self.queries[0] if self._one else list(self.queries))
        queries = queries if len(queries) <= 100 else f"{queries[:99]}…"
        settings = f"budget {self._settings.budget}, encoder {self._settings.encoder.name!r}"
        settings += "" if self._settings.preset is None else f", preset {self._settings.preset!r}"
        return f"Stream({self.clip.name!r}, {queries}, {settings}, {self.clip.progress(self._count)})"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.clip.close()
        if isinstance(self._seen, Ahead):
            self._seen.close()
        self._encoding.shutdown(cancel_futures=True)


def _look_ahead(clip: VideoClip, model: FlowModel) -> Iterator[tuple[TimedPicture, Sight]]:
    """The pictures of a clip, each with what it shows; of files and folders made by threads, up to AHEAD of them."""
    if clip.live:
        return _Seen(clip, None)
    h, w = clip.size or (1, 1)
    most = max(1, min(AHEAD, AHEAD_BYTES // (3 * h * w)))
    pictures = Ahead(islice(clip, None), 1)  # a slice has no `close`, so the clip stays open until `Stream.close`
    return Ahead(_Seen(pictures, model if isinstance(model, Dis) else None), most)


class _Seen(Iterator[tuple[TimedPicture, Sight]]):
    """Pictures, each with what it shows: not a generator, which an interrupt would end."""

    def __init__(self, pictures: VideoClip | Ahead[TimedPicture], model: FlowModel | None) -> None:
        self._pictures, self._model = pictures, model
        self._sight: Sight | None = None

    def __next__(self) -> tuple[TimedPicture, Sight]:
        picture = next(self._pictures)
        sight = self._sight = look(picture.rgb, self._sight, self._model)
        return picture, sight

    def close(self) -> None:
        if isinstance(self._pictures, Ahead):
            self._pictures.close()


@without("stream")
def stream(
    source: ClipSource | VideoClip,
    query: str | Sequence[str],
    *,
    budget: Budget = "auto",
    preset: PresetName | None = None,
    encoder: str | Encoder = "nano",
    rank: int | None = None,
    long_side: int | None = None,
    channels: ChannelSet | Sequence[str] | Channels | None = None,
    read: bool | ReadBy | None = None,
    prior: str | None = None,
    keep: Keep | None = None,
    propagation: Propagation | None = None,
    words: TaughtWords | None = None,
) -> Stream:
    """Follow a question, or several, through a clip: keyframes are encoded, the rest is propagated along the motion.

    >>> for frame in stream("clip.mp4", "the dog", budget=128):                 # doctest: +SKIP
    ...     frame.kept.indices, frame.kept_new, frame.confidence.mean()

    Args:
        source: what `open_clip` takes: a video file, a folder of pictures, an iterable of uint8 arrays [H, W, 3] or of
            (seconds, array); or an open clip, which the stream reads ahead and closes.
        query: a question or noun phrase; a list of them gives several maps and kept sets a frame.
        budget: cells to keep of each frame: exactly so many, or "auto" as in `allocate`, by each frame's map.
        preset: as in `encode` and `score`; the textures of the frames remember it.
        encoder, rank, long_side, channels: as in `encode`. Edges are made when `Frame.texture` is read. With named
            channels, and with preset="static", only those planes of time are made that are named ("motion", say).
        read: True, or by whom, as in `encode`: keyframes are read, which takes seconds each time, and the words
            followed in between (`Frame.words`).
        prior: as in `score`, a plane by name: "gaze" (see `Stream.gaze`), "prev_relevance", "saliency". It enters as
            soon as there is one: the first frame has none before it.
        keep: floor, policy, protected and window, as in `allocate`.
        propagation: when to encode again, and how the frames follow from one another.
        words: taught words, which every keyframe is encoded with.

    Raises:
        VideoError, VideoNotFoundError, MissingExtraError: the source.
        QueryError, OptionError: an argument. Of the encoder, the errors of `encode`.
        BudgetError: the budget; if too large, with the first frame, as only then the number of cells is known.
    """
    if budget != "auto":
        check_int("budget", budget, fix='leave it out for "auto"', error=BudgetError)
    fix = "pass Keep(floor=0.1), say, from foveate.allocation"
    keep = Keep() if keep is None else check_type("keep", keep, Keep, fix=fix)
    fix = "pass Propagation(blend=0), say, from foveate.video"
    propagation = Propagation() if propagation is None else check_type("propagation", propagation, Propagation, fix=fix)
    how = fill(
        {"channels": "standard", "read": False, **find_preset(preset).encoding},
        long_side=long_side, rank=rank, read=read,
    )  # fmt: skip
    methods = channels if isinstance(channels, Channels) else Channels(channels)
    asked, timed = how["channels"] if methods.names is None else methods.names, FRESH
    if preset in STILL or not (methods.names is None or isinstance(methods.names, str)):
        asked = set(asked)
        timed = tuple(each for each in FRESH if each in asked or (each[:5] == "flow_" and FLOW.name in asked))
        asked -= {*FRESH, FLOW.name}
    names = select_channels(asked if isinstance(asked, str) else tuple(asked), methods.depth)
    if prior is not None:
        held = sorted({*names, *FRESH} - {*LATER, "flow_y", "flow_x"})
        check_choice("prior", prior, held, fix='prior="gaze" goes by what `Stream.gaze` is told', error=ChannelError)
    network = resolve_encoder(encoder)
    if words is not None:
        network = check_type("words", words, TaughtWords, fix="foveate.TaughtWords.load reads a file").of(network)
    settings = StreamSettings(
        encoder=network,
        names=names,
        timed=timed,
        methods=methods,
        long_side=how.get("long_side"),
        rank=how.get("rank"),
        budget=budget,
        keep=keep,
        propagation=propagation,
        reader=choose_reader(how["read"], wanted=False),
        preset=preset,
        prior=prior,
    )
    if isinstance(source, VideoClip):
        return Stream(source, query, settings)
    clip = open_clip(source)
    try:
        return Stream(clip, query, settings)
    except BaseException:
        clip.close()
        raise
